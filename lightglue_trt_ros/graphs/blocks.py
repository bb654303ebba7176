"""LightGlue's blocks: what its layers, its confidence and its assignment are made of, straight from the weights.

Folded into the weights, exactly: the attention's scale (on Q and K), the output projection into the FFN's first layer, and the
rotary pairs, which are reordered so that a rotation works on halves.
"""

from __future__ import annotations

import numpy as np
import spox.opset.ai.onnx.v17 as op
from numpy.typing import NDArray
from spox import Var

from ..config import EngineSpec
from ..weights.store import Weights
from .precision import Typed

HEADS = 4
HEAD_DIM = 64
DIM = HEADS * HEAD_DIM
MASKED = -1e4  # a logit that softmax turns into 0, and that FP16 still holds

Array = NDArray[np.float32]


class LightGlueBlocks:
    """The network's blocks; x is (2, K, 256): both images side by side."""

    def __init__(self, spec: EngineSpec, weights: Weights) -> None:
        self.spec, self.tensors, self.sha256, self.typed = spec, weights.tensors, weights.sha256, Typed(spec.precision)
        self.layers = sum(name.endswith('.self_attn.Wqkv.weight') for name in self.tensors)

    def project(self, descriptors: Var) -> Var:
        """Some weights bring a projection of the descriptors, the official SuperPoint ones do not."""
        if 'input_proj.weight' not in self.tensors:
            return descriptors
        return self.linear(descriptors, *self.weight('input_proj'))

    def encode_positions(self, keypoints: Var) -> tuple[Var, Var]:
        """Keypoints (2, K, 2) in pixels -> cosines and sines (2, 1, K, 64) of the learned frequencies."""
        half = np.array([self.spec.image_width, self.spec.image_height], np.float32) / 2
        normalized = op.div(op.sub(keypoints, op.const(half)), op.const(half.max()))
        angles = op.matmul(normalized, op.const(np.ascontiguousarray(self.tensors['posenc.Wr.weight'].T, np.float32)))
        angles = op.unsqueeze(op.concat([angles, angles], axis=2), op.const(np.array([1])))
        return self.typed.compute(op.cos(angles)), self.typed.compute(op.sin(angles))

    def attention_bias(self, valid: Var) -> Var:
        """Valid rows (2, K) -> what is added to the logits of a key, (2, 1, 1, K): nothing, or enough to silence it."""
        bias = op.where(valid, self.typed.const(0), self.typed.const(MASKED))
        return op.unsqueeze(bias, op.const(np.array([1, 2])))

    def self_attend(self, layer: int, x: Var, rotation: tuple[Var, Var], bias: Var | None) -> Var:
        block = f'transformers.{layer}.self_attn'
        weight, offset = self.weight(f'{block}.Wqkv')
        # rows come as (head, channel, q|k|v), rotary pairs as neighbours: reorder to q|k|v apart and pairs as halves
        rows = np.arange(3 * DIM).reshape(HEADS, HEAD_DIM // 2, 2, 3)
        halves = rows.transpose(3, 0, 2, 1).reshape(3, DIM)
        plain = rows.transpose(3, 0, 1, 2).reshape(3, DIM)
        scale = HEAD_DIM ** -0.25
        q = self.heads(self.linear(x, weight[halves[0]] * scale, offset[halves[0]] * scale))
        k = self.heads(self.linear(x, weight[halves[1]] * scale, offset[halves[1]] * scale))
        v = self.heads(self.linear(x, weight[plain[2]], offset[plain[2]]))
        context = self.attend(_rotate(q, rotation), _rotate(k, rotation), v, bias)
        return self.feed_forward(block, 'out_proj', x, context)

    def cross_attend(self, layer: int, x: Var, bias: Var | None) -> Var:
        block = f'transformers.{layer}.cross_attn'
        weight, offset = self.weight(f'{block}.to_qk')
        scale = HEAD_DIM ** -0.25
        qk = self.heads(self.linear(x, weight * scale, offset * scale))
        v = self.heads(self.linear(x, *self.weight(f'{block}.to_v')))
        return self.feed_forward(block, 'to_out', x, self.attend(qk, swap(qk), swap(v), bias))

    def attend(self, q: Var, k: Var, v: Var, bias: Var | None) -> Var:
        """(2, heads, K, 64) each -> (2, K, 256)."""
        logits = op.matmul(q, op.transpose(k, perm=[0, 1, 3, 2]))
        logits = logits if bias is None else op.add(logits, bias)
        context = op.matmul(op.softmax(logits, axis=-1), v)
        return op.reshape(op.transpose(context, perm=[0, 2, 1, 3]), self.shape(2, self.spec.max_keypoints, DIM))

    def feed_forward(self, block: str, projection: str, x: Var, context: Var) -> Var:
        """x + FFN([x, projection(context)]), the projection multiplied into the FFN's first layer."""
        out, out_bias = self.weight(f'{block}.{projection}')
        weight, offset = self.weight(f'{block}.ffn.0')
        folded = np.concatenate([weight[:, :DIM], weight[:, DIM:] @ out], axis=1)
        hidden = self.linear(op.concat([x, context], axis=2), folded, offset + weight[:, DIM:] @ out_bias)
        gain, shift = self.weight(f'{block}.ffn.1')
        hidden = op.layer_normalization(hidden, self.typed.const(gain), self.typed.const(shift), axis=-1, epsilon=1e-5)[0]
        return op.add(x, self.linear(self.gelu(hidden), *self.weight(f'{block}.ffn.3')))

    def assign(self, layer: int, x: Var, valid: Var) -> Var:
        """Log of the soft partial assignment, FP32 (K, K) (equation 6 of the paper)."""
        weight, offset = self.weight(f'log_assignment.{layer}.final_proj')
        scale = DIM ** -0.25
        m0, m1 = unstack(self.linear(x, weight * scale, offset * scale))
        similarity = self.typed.exact(op.matmul(m0, op.transpose(m1, perm=[1, 0])))
        valid0, valid1 = unstack(valid)
        both = op.and_(op.unsqueeze(valid0, op.const(np.array([1]))), op.unsqueeze(valid1, op.const(np.array([0]))))
        similarity = op.where(both, similarity, op.const(np.float32(MASKED)))
        matchability = self.typed.exact(self.linear(x, *self.weight(f'log_assignment.{layer}.matchability')))
        certainty0, certainty1 = unstack(op.neg(op.softplus(op.neg(matchability))))  # log of the sigmoid, (K, 1)
        certainty = op.add(certainty0, op.transpose(certainty1, perm=[1, 0]))
        return op.add(op.add(op.log_softmax(similarity, axis=1), op.log_softmax(similarity, axis=0)), certainty)

    def confident(self, layer: int, x: Var, valid: Var, threshold: float) -> Var:
        """float32 (2,): the share of valid rows whose final match this layer knows already, and their mean -log of the confidence.

        A row is confident when the sigmoid of its token reaches `threshold` (section 3.3 of the paper); NaN is not confident, and
        makes the mean NaN. Where no row is valid, all are confident. The softplus, -log of the sigmoid, keeps TensorRT 8.6 from
        fusing these FP32 lines with the layers before them, which would make those slower by half.
        """
        doubt = op.softplus(op.neg(self.typed.exact(self.linear(x, *self.weight(f'token_confidence.{layer}.token.0')))))
        doubt = op.squeeze(doubt, op.const(np.array([2])))  # (2, K)
        wavering = op.and_(op.not_(op.less_or_equal(doubt, op.const(np.float32(-np.log(threshold))))), valid)
        count = op.max([_total(op.cast(valid, to=np.float32)), op.const(np.ones(1, np.float32))])
        share = op.sub(op.const(np.float32(1)), op.div(_total(op.cast(wavering, to=np.float32)), count))
        mean = op.div(_total(op.where(valid, doubt, op.const(np.float32(0)))), count)
        return op.concat([share, mean], axis=0)

    def linear(self, x: Var, weight: Array, bias: Array) -> Var:
        return op.add(op.matmul(x, self.typed.const(np.ascontiguousarray(weight.T))), self.typed.const(bias))

    def heads(self, x: Var) -> Var:
        """(2, K, 256) -> (2, heads, K, 64)."""
        return op.transpose(op.reshape(x, self.shape(2, self.spec.max_keypoints, HEADS, HEAD_DIM)), perm=[0, 2, 1, 3])

    def gelu(self, x: Var) -> Var:
        gate = op.add(op.erf(op.mul(x, self.typed.const(2 ** -0.5))), self.typed.const(1))
        return op.mul(op.mul(x, gate), self.typed.const(0.5))

    def weight(self, name: str) -> tuple[Array, Array]:
        return self.tensors[f'{name}.weight'].astype(np.float32), self.tensors[f'{name}.bias'].astype(np.float32)

    @staticmethod
    def shape(*sizes: int) -> Var:
        return op.const(np.array(sizes, np.int64))


def filter_matches(assignment: Var, valid: Var, threshold: Var, count: int) -> tuple[Var, Var]:
    """Mutual best matches of (K, K) above the threshold -> matches0 int32 (K,), scores float32 (K,)."""
    best1 = op.arg_max(assignment, axis=1, keepdims=0)
    best0 = op.arg_max(assignment, axis=0, keepdims=0)
    scores = op.exp(op.reduce_max(assignment, axes=[1], keepdims=0))
    mutual = op.equal(op.cast(op.gather(best0, best1), to=np.int32), op.const(np.arange(count, dtype=np.int32)))
    valid0, valid1 = unstack(valid)
    seen = op.and_(valid0, op.cast(op.gather(op.cast(valid1, to=np.int32), best1), to=np.bool_))
    keep = op.and_(op.and_(mutual, seen), op.greater(scores, threshold))
    matches = op.where(keep, op.cast(best1, to=np.int32), op.const(np.int32(-1)))
    return matches, op.where(keep, scores, op.const(np.float32(0)))


def _rotate(x: Var, rotation: tuple[Var, Var]) -> Var:
    """Rotary encoding of (2, heads, K, 64) whose halves hold the pairs."""
    cosines, sines = rotation
    first, second = op.split(x, outputs_count=2, axis=3)
    return op.add(op.mul(x, cosines), op.mul(op.concat([op.neg(second), first], axis=3), sines))


def stack(x0: Var, x1: Var) -> Var:
    axis = op.const(np.array([0]))
    return op.concat([op.unsqueeze(x0, axis), op.unsqueeze(x1, axis)], axis=0)


def unstack(x: Var) -> tuple[Var, Var]:
    x0, x1 = op.split(x, outputs_count=2, axis=0)
    axis = op.const(np.array([0]))
    return op.squeeze(x0, axis), op.squeeze(x1, axis)


def swap(x: Var) -> Var:
    x0, x1 = op.split(x, outputs_count=2, axis=0)
    return op.concat([x1, x0], axis=0)


def _total(x: Var) -> Var:
    """The sum of (2, K), shape (1,)."""
    return op.reduce_sum(op.reshape(x, op.const(np.array([-1]))), op.const(np.array([0])), keepdims=1)
