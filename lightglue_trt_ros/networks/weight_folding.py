"""The folded weights of LightGlue's layers: plain matrices, straight from the weights, with what can be multiplied in beforehand.

Folded into the weights, exactly: the attention's scale (on Q and K), the output projection into the FFN's first layer, and the
rotary pairs, which are reordered so that a rotation works on halves. `rebased` also folds in a calibration's bases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .architecture import DESCRIPTOR_HEAD, HEAD_DIM
from .fp8_calibration import BLOCKS, Calibration
from .weights import Tensors

HEADS = 4
SHARPNESS = 20.0  # of an untrained assignment of descriptors: a cosine 0.15 below the best one adds 5 % to the best one's softmax
SURE = 10.0  # logit of its matchability: every point may match
DIM = HEADS * HEAD_DIM  # of the published network, which is what FP8 is worked out for; the other graphs take any width

Array = NDArray[np.float32]
Wide: TypeAlias = 'NDArray[np.floating[Any]]'  # a basis or its inverse, in double precision


@dataclass(frozen=True)
class Linear:
    """weight @ x + bias."""

    weight: Array  # (outputs, inputs)
    bias: Array  # (outputs,)

    def after(self, inverse: Wide) -> Linear:
        """The layer whose inputs come in a basis, given that one's inverse."""
        return Linear((self.weight @ inverse).astype(np.float32), self.bias)

    def into(self, basis: Wide) -> Linear:
        """The layer whose outputs go into a basis."""
        return Linear((basis @ self.weight).astype(np.float32), (basis @ self.bias).astype(np.float32))


@dataclass(frozen=True)
class Block:
    """A self or cross attention with its FFN: x + update(gelu(norm(hidden([x, attention(query, key, value)]))))."""

    query: Linear
    key: Linear | None  # of a cross attention: its queries serve both sides
    value: Linear
    hidden: Linear  # of [x, context], the output projection multiplied in
    gain: Array
    shift: Array
    update: Linear


@dataclass(frozen=True)
class Head:
    """Weights of the heads, which read the state after a layer, or the descriptors."""

    final: Linear  # the similarity's scale multiplied in
    matchability: Linear
    confidence: Linear | None  # neither the last layer nor the descriptors have one


@dataclass(frozen=True)
class Folded:
    """The network; `blocks` by layer and 'self' or 'cross', `heads` by layer."""

    project: Linear | None
    frequencies: Array  # (32, 2)
    blocks: Mapping[tuple[int, str], Block]
    heads: tuple[Head, ...]
    descriptor_head: Head  # before the first layer

    @property
    def layers(self) -> int:
        return len(self.heads)

    @property
    def width(self) -> int:
        """Channels of the state, a multiple of HEAD_DIM."""
        return int(self.heads[0].final.weight.shape[1])

    @property
    def descriptors(self) -> int:
        """Numbers of a descriptor."""
        return self.width if self.project is None else int(self.project.weight.shape[1])

    def head_after(self, layers: int) -> Head:
        """The head that reads the state after so many layers; after none, the descriptors."""
        return self.heads[layers - 1] if layers else self.descriptor_head


def fold(tensors: Tensors) -> Folded:
    """The network of a set of weights."""
    layers = sum(name.endswith('.self_attn.Wqkv.weight') for name in tensors)
    blocks = {(layer, name): make(tensors, f'transformers.{layer}.{name}_attn')
              for layer in range(layers) for name, make in zip(BLOCKS, (_self_block, _cross_block), strict=True)}
    # some weights bring a projection of the descriptors, the official SuperPoint ones do not
    project = _linear(tensors, 'input_proj') if 'input_proj.weight' in tensors else None
    heads = tuple(_head(tensors, f'log_assignment.{layer}', f'token_confidence.{layer}.token.0') for layer in range(layers))
    trained = f'{DESCRIPTOR_HEAD}.final_proj.weight' in tensors
    descriptor_head = _head(tensors, DESCRIPTOR_HEAD) if trained else _untrained_head(project, heads[0].final.weight.shape[1])
    return Folded(project, tensors['posenc.Wr.weight'].astype(np.float32), blocks, heads, descriptor_head)


def rebased(net: Folded, calibration: Calibration) -> Folded:
    """The same network in the calibration's bases: its state is `residual_basis` times the network's."""
    basis = calibration.residual_basis.astype(np.float64)
    inverse = np.linalg.inv(basis)

    def rebase(block: Block, bases: Array) -> Block:
        values = diagonal(*bases)
        return replace(block, query=block.query.after(inverse), key=None if block.key is None else block.key.after(inverse),
                       value=block.value.after(inverse).into(values),
                       hidden=block.hidden.after(diagonal(inverse, np.linalg.inv(values))), update=block.update.into(basis))

    def read(head: Head) -> Head:
        return Head(head.final.after(inverse), head.matchability.after(inverse),
                    None if head.confidence is None else head.confidence.after(inverse))

    project = net.project or Linear(np.eye(net.width, dtype=np.float32), np.zeros(net.width, np.float32))
    blocks = {(layer, name): rebase(block, calibration.value_bases[layer, BLOCKS.index(name)])
              for (layer, name), block in net.blocks.items()}
    return replace(net, project=project.into(basis), blocks=blocks, heads=tuple(read(head) for head in net.heads))


def _self_block(tensors: Tensors, name: str) -> Block:
    qkv = _linear(tensors, f'{name}.Wqkv')
    # rows come as (head, channel, q|k|v), rotary pairs as neighbours: reorder to q|k|v apart and pairs as halves
    rows = np.arange(len(qkv.bias)).reshape(-1, HEAD_DIM // 2, 2, 3)
    halves = rows.transpose(3, 0, 2, 1).reshape(3, -1)
    plain = rows.transpose(3, 0, 1, 2).reshape(3, -1)
    scale = HEAD_DIM ** -0.25
    query, key, value = (Linear(qkv.weight[part], qkv.bias[part]) for part in (halves[0], halves[1], plain[2]))
    return Block(_scaled(query, scale), _scaled(key, scale), value, *_feed_forward(tensors, name, 'out_proj'))


def _cross_block(tensors: Tensors, name: str) -> Block:
    query = _scaled(_linear(tensors, f'{name}.to_qk'), HEAD_DIM ** -0.25)
    return Block(query, None, _linear(tensors, f'{name}.to_v'), *_feed_forward(tensors, name, 'to_out'))


def _feed_forward(tensors: Tensors, name: str, projection: str) -> tuple[Linear, Array, Array, Linear]:
    out, hidden, norm = (_linear(tensors, f'{name}.{part}') for part in (projection, 'ffn.0', 'ffn.1'))
    of_state, of_context = np.split(hidden.weight, 2, axis=1)
    folded = Linear(np.concatenate([of_state, of_context @ out.weight], axis=1), hidden.bias + of_context @ out.bias)
    return folded, norm.weight, norm.bias, _linear(tensors, f'{name}.ffn.3')


def _head(tensors: Tensors, assignment: str, confidence: str = '') -> Head:
    final = _linear(tensors, f'{assignment}.final_proj')
    return Head(_scaled(final, len(final.bias) ** -0.25), _linear(tensors, f'{assignment}.matchability'),
                _linear(tensors, confidence) if f'{confidence}.weight' in tensors else None)


def _untrained_head(project: Linear | None, width: int) -> Head:
    """Similarities are cosines of the descriptors, SHARPNESS times; of longer ones in the directions that the matcher reads."""
    descriptors = width if project is None else project.weight.shape[1]
    basis = np.eye(width, descriptors)
    if project is not None and descriptors > width:
        basis = np.linalg.qr(project.weight.T.astype(np.float64))[0].T
    return Head(Linear((SHARPNESS**0.5 * basis).astype(np.float32), np.zeros(width, np.float32)),
                Linear(np.zeros((1, descriptors), np.float32), np.full(1, SURE, np.float32)), None)


def _linear(tensors: Tensors, name: str) -> Linear:
    return Linear(tensors[f'{name}.weight'].astype(np.float32), tensors[f'{name}.bias'].astype(np.float32))


def _scaled(linear: Linear, scale: float) -> Linear:
    return Linear(linear.weight * scale, linear.bias * scale)


def diagonal(*parts: NDArray[Any]) -> Wide:
    """Square matrices along the diagonal of a greater one."""
    ends = np.cumsum([len(part) for part in parts])
    matrix = np.zeros((ends[-1], ends[-1]))
    for end, part in zip(ends, parts, strict=True):
        matrix[end - len(part):end, end - len(part):end] = part
    return matrix
