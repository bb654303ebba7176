"""LightGlue as ONNX graphs: the network as a whole, or as a chain of stages that may stop early.

Lindenberger, Sarlin, Pollefeys: LightGlue: Local Feature Matching at Light Speed, ICCV 2023.
"""

from __future__ import annotations

import numpy as np
import onnx
from spox import Tensor, Var, argument, build

from ..core.config import EngineSpec
from ..core.early_exit import EARLY_MATCH_SCORE, EarlyExits, confidence_threshold
from ..utils.errors import ConfigError
from . import engine_tensors as names
from .architecture import HEAD_DIM
from .fp8_calibration import Calibration, member
from .fp8_rounding import Rounding, check
from .typed_onnx import Typed, stamp
from .weight_folding import Linear, fold, rebased
from .weights import Weights

MASKED = -1e4  # a logit that softmax turns into 0, and that FP16 still holds


def lightglue(spec: EngineSpec, weights: Weights, *, calibration: Calibration | None = None, observe: bool = False,
              log_assignment: bool = False) -> onnx.ModelProto:
    """The matcher for one pair of feature sets of K rows, all layers in one graph.

    keypoints0, keypoints1 float32 (K, 2) pixels; scores0, scores1 float32 (K,); descriptors0, descriptors1 (K, D) in the
    spec's precision; match_threshold, detection_threshold float32 scalars -> matches0 int32 (K,), the row of image 1 or -1;
    scores float32 (K,), 0 where there is no match. Rows at or under the detection threshold never match. They attend, as a mask
    would keep TensorRT from fusing the attention: in poorly textured frames they move the matches of others a little
    (docs/experiments.md). `log_assignment` adds an output of that name, (K, K).

    In fp8 the calibration's members compute in FP8 and the rest in FP16; in fp32 a calibration makes an emulation of that, rounded
    in the same places, for ONNX Runtime on the CPU. Its state is in the calibration's basis. `observe` rounds nothing and adds the
    FP32 outputs `inputs.NAME` (2, K, inputs), NAME as in a calibration's peaks: what would be rounded, centred where there is a
    centre. Raises ConfigError for fp8 without a calibration, and for a calibration of other weights or shapes.
    """
    net = _LightGlue(spec, weights, calibration, observe=observe)
    return net.stage(0, net.layers, log_assignment)


def lightglue_stages(spec: EngineSpec, weights: Weights, early_exits: EarlyExits, *,
                     calibration: Calibration | None = None) -> dict[str, onnx.ModelProto]:
    """The matcher's graphs by the names of `early_exits`: `lightglue` cut into stages, and an assignment for each early exit.

    The assignment of exit 0 takes the descriptors, as the first stage does, and nothing of the layers.

    A stage that is not the last gives `next_state` (2, K, width), the `state` of the next one and of its exit's assignment, and
    `confidence` float32 (2,): the share of confident points, and the mean logit, NaN where one is NaN. The first also gives
    `cosines` and `sines` (2, 1, K, 64), the encoded positions. `calibration` is as in `lightglue`; its basis is that of `state`, so
    that all graphs take the same one. Raises ConfigError as `lightglue` does, and when the stages do not end with the network.
    """
    net = _LightGlue(spec, weights, calibration)
    net.check_ends(early_exits, weights.name)
    graphs = {name: net.stage(*span) for name, span in zip(early_exits.stages, early_exits.spans, strict=True)}
    return graphs | {name: net.head(end) for name, end in zip(early_exits.heads, early_exits.ends, strict=False)}


def lightglue_engines(spec: EngineSpec, weights: Weights, early_exits: EarlyExits, *, calibration: Calibration | None = None,
                      own_attention: bool = False) -> dict[str, onnx.ModelProto]:
    """The matcher's graphs for TensorRT, without what kernels of our own do there.

    They are those of `lightglue_stages`, but give what the kernels take: instead of matches `final` (2, K, width) and
    `matchability` float32 (2, K), and instead of the confidence `tokens` (2, K), both logits. With `own_attention` layers are cut
    where they attend, into `early_exits.blocks`: the first gives the first `state`, the encoded positions and `projected`, what its
    attention takes: (2, K, 3 width) with queries, keys and values before a self attention, (2, K, 2 width) with queries, which are
    also the keys, and values before a cross attention. Each further block takes `attended` (2, K, 2 width), the state and what was
    attended to. `calibration` as in `lightglue_stages`, and not with `own_attention`.
    """
    net = _LightGlue(spec, weights, calibration)
    net.check_ends(early_exits, weights.name)
    if own_attention:
        graphs = {early_exits.blocks[0]: net.start()}
        for layer in range(net.layers):
            self_block, cross_block = early_exits.blocks[1 + 2 * layer:3 + 2 * layer]
            graphs |= {self_block: net.block(layer, 'self'), cross_block: net.block(layer, 'cross', layer + 1 in early_exits.ends)}
    else:
        spans = zip(early_exits.stages, early_exits.spans, strict=True)
        graphs = {name: net.stage(*span, assigned=False) for name, span in spans}
    return graphs | {name: net.head(end, assigned=False) for name, end in zip(early_exits.heads, early_exits.ends, strict=False)}


class _LightGlue:
    """Writes the graphs of one network; x is (2, K, width): both images side by side.

    Raises ConfigError for a calibration of something else.
    """

    def __init__(self, spec: EngineSpec, weights: Weights, calibration: Calibration | None, *, observe: bool = False) -> None:
        self.spec, self.sha256 = spec, weights.sha256
        self.calibration_sha256 = '' if calibration is None else calibration.sha256
        self.typed = Typed('fp16' if spec.precision == 'fp8' else spec.precision, calibration is not None)
        self.op, net = self.typed.op, fold(weights.tensors)
        check(calibration, spec, weights)
        self.net = net if calibration is None else rebased(net, calibration)
        self.layers, self.rounding = net.layers, Rounding(self.typed, calibration, observe)

    def check_ends(self, early_exits: EarlyExits, name: str) -> None:
        if early_exits.ends[-1] != self.layers:
            raise ConfigError(f'the stages end after layer {early_exits.ends[-1]}: {name} has {self.layers}, which must be the '
                              'last one (--stages)')

    def stage(self, first: int, end: int, log_assignment: bool = False, *, assigned: bool = True) -> onnx.ModelProto:
        """Layers `first` to `end` - 1, and after the last one the assignment, or what it takes."""
        inputs: dict[str, Var] = {}
        outputs: dict[str, Var] = {}
        if first == 0:
            x, rotation = self.begin(inputs)
            outputs = dict(zip(names.ROTATION, rotation, strict=True))
        else:
            inputs |= self._inputs(names.STATE, *names.ROTATION)
            x, rotation = inputs[names.STATE], (inputs[names.COSINES], inputs[names.SINES])
        for layer in range(first, end):
            x = self.cross_attend(layer, self.self_attend(layer, x, rotation))
        if end == self.layers:
            return self._assigned(inputs, end, x, log_assignment) if assigned else self._model(inputs, self.projections(end, x))
        exits = {'confidence': self.confident(end - 1, x, self.valid(inputs))} if assigned else \
            {names.TOKENS: self.tokens(end - 1, x)}
        return self._model(inputs, outputs | {names.NEXT_STATE: x} | exits)

    def head(self, end: int, *, assigned: bool = True) -> onnx.ModelProto:
        """The assignment after `end` layers, without matches below EARLY_MATCH_SCORE, which are more often wrong there."""
        inputs = self._inputs(*([names.STATE] if end else names.of_pair(names.DESCRIPTORS)))
        x = inputs[names.STATE] if end else self.stack(*inputs.values())
        return self._assigned(inputs, end, x) if assigned else self._model(inputs, self.projections(end, x))

    def start(self) -> onnx.ModelProto:
        """The part before the first attention."""
        inputs: dict[str, Var] = {}
        x, (cosines, sines) = self.begin(inputs)
        outputs = {names.NEXT_STATE: x, names.COSINES: cosines, names.SINES: sines,
                   names.PROJECTED: self.projected(0, 'self', x)}
        return self._model(inputs, outputs)

    def block(self, layer: int, name: str, an_exit: bool = False) -> onnx.ModelProto:
        """The part between a layer's 'self' or 'cross' attention and the next one, with the tokens where it may stop."""
        op, inputs = self.op, self._inputs(names.ATTENDED)
        attended = inputs[names.ATTENDED]
        x = op.slice(attended, *(op.const(np.array([bound])) for bound in (0, self.net.width, 2)))
        x = self.feed_forward(layer, name, x, attended)
        if name == 'self':
            return self._model(inputs, {names.NEXT_STATE: x, names.PROJECTED: self.projected(layer, 'cross', x)})
        if layer + 1 == self.layers:
            return self._model(inputs, self.projections(self.layers, x))
        outputs = {names.NEXT_STATE: x, names.PROJECTED: self.projected(layer + 1, 'self', x)}
        return self._model(inputs, outputs | ({names.TOKENS: self.tokens(layer, x)} if an_exit else {}))

    def begin(self, inputs: dict[str, Var]) -> tuple[Var, tuple[Var, Var]]:
        """The first state, and cosines and sines of the positions; the features join `inputs`."""
        keypoints, descriptors = names.of_pair(names.KEYPOINTS), names.of_pair(names.DESCRIPTORS)
        inputs |= self._inputs(*keypoints, *descriptors)
        x = self.stack(*(inputs[name] for name in descriptors))
        x = x if self.net.project is None else self.rounding.linear(x, self.net.project)
        return x, self.encode_positions(self.stack(*(inputs[name] for name in keypoints)))

    def projected(self, layer: int, name: str, x: Var) -> Var:
        """All that an attention takes, by one product: see `lightglue_engines`."""
        block = self.net.blocks[layer, name]
        parts = [block.query, *([block.key or block.query] if name == 'self' else []), block.value]
        whole = Linear(np.concatenate([part.weight for part in parts]), np.concatenate([part.bias for part in parts]))
        return self.rounding.linear(x, whole)

    def projections(self, end: int, x: Var) -> dict[str, Var]:
        """Inputs of the assignment after `end` layers: the matchability's FP32 logits without their last axis."""
        head = self.net.head_after(end)
        matchability = self.op.squeeze(self.typed.exact(self.rounding.linear(x, head.matchability)), self.op.const(np.array([2])))
        return {names.FINAL: self.rounding.linear(x, head.final), names.MATCHABILITY: matchability}

    def _assigned(self, inputs: dict[str, Var], end: int, x: Var, log_assignment: bool = False) -> onnx.ModelProto:
        valid = self.valid(inputs)
        inputs |= self._inputs(names.MATCH_THRESHOLD)
        assignment = self.assign(end, x, valid)
        threshold = inputs[names.MATCH_THRESHOLD]
        if end < self.layers:
            threshold = self.op.max([threshold, self.op.const(np.float32(EARLY_MATCH_SCORE))])
        matches, scores = self.filter_matches(assignment, valid, threshold, self.spec.max_keypoints)
        outputs = {names.MATCHES: matches, names.MATCH_SCORES: scores}
        return self._model(inputs, outputs | ({'log_assignment': assignment} if log_assignment else {}))

    def _inputs(self, *wanted: str) -> dict[str, Var]:
        types = names.matcher_input_types(self.spec.max_keypoints, self.net.width, self.net.descriptors, self.typed.dtype)
        return {name: argument(Tensor(*types[name])) for name in wanted}

    def _model(self, inputs: dict[str, Var], outputs: dict[str, Var]) -> onnx.ModelProto:
        outputs |= {f'inputs.{name}': var for name, var in self.rounding.observed.items()}
        return stamp(build(inputs, outputs), 'lightglue', self.spec, self.sha256, self.calibration_sha256)

    def encode_positions(self, keypoints: Var) -> tuple[Var, Var]:
        """Keypoints (2, K, 2) in pixels -> cosines and sines (2, 1, K, 64) of the learned frequencies."""
        op = self.op
        half = np.array([self.spec.image_width, self.spec.image_height], np.float32) / 2
        normalized = op.div(op.sub(keypoints, op.const(half)), op.const(half.max()))
        angles = op.matmul(normalized, op.const(np.ascontiguousarray(self.net.frequencies.T)))
        angles = op.unsqueeze(op.concat([angles, angles], axis=2), op.const(np.array([1])))
        return self.typed.compute(op.cos(angles)), self.typed.compute(op.sin(angles))

    def self_attend(self, layer: int, x: Var, rotation: tuple[Var, Var]) -> Var:
        block = self.net.blocks[layer, 'self']
        projected = self.rounding.linears(member(layer, 'self', 'project'), x, block.query, block.key or block.query, block.value)
        q, k, v = (self.heads(part) for part in projected)
        context = self.attend(self.rotate(q, rotation), self.rotate(k, rotation), v)
        return self.feed_forward(layer, 'self', x, self.op.concat([x, context], axis=2))

    def cross_attend(self, layer: int, x: Var) -> Var:
        block = self.net.blocks[layer, 'cross']
        projected = self.rounding.linears(member(layer, 'cross', 'project'), x, block.query, block.value)
        qk, v = (self.heads(part) for part in projected)
        context = self.attend(qk, self.swap(qk), self.swap(v))
        return self.feed_forward(layer, 'cross', x, self.op.concat([x, context], axis=2))

    def attend(self, q: Var, k: Var, v: Var) -> Var:
        """(2, heads, K, 64) each -> (2, K, width)."""
        op = self.op
        logits = op.matmul(q, op.transpose(k, perm=[0, 1, 3, 2]))
        context = op.matmul(op.softmax(logits, axis=-1), v)
        return op.reshape(op.transpose(context, perm=[0, 2, 1, 3]), self.shape(2, self.spec.max_keypoints, self.net.width))

    def feed_forward(self, layer: int, name: str, x: Var, attended: Var) -> Var:
        """x + FFN(attended), which is x and the context."""
        op = self.op
        block = self.net.blocks[layer, name]
        hidden, = self.rounding.linears(member(layer, name, 'hidden'), attended, block.hidden)
        gain, shift = self.typed.const(block.gain), self.typed.const(block.shift)
        hidden = op.layer_normalization(hidden, gain, shift, axis=-1, epsilon=1e-5)[0]
        update, = self.rounding.linears(member(layer, name, 'update'), self.gelu(hidden), block.update)
        return op.add(x, update)

    def assign(self, end: int, x: Var, valid: Var) -> Var:
        """Log of the soft partial assignment after `end` layers, FP32 (K, K) (equation 6 of the paper)."""
        op = self.op
        projections = self.projections(end, x)
        m0, m1 = self.unstack(projections[names.FINAL])
        similarity = self.typed.exact(op.matmul(m0, op.transpose(m1, perm=[1, 0])))
        valid0, valid1 = self.unstack(valid)
        both = op.and_(op.unsqueeze(valid0, op.const(np.array([1]))), op.unsqueeze(valid1, op.const(np.array([0]))))
        similarity = op.where(both, similarity, op.const(np.float32(MASKED)))
        certainty0, certainty1 = self.unstack(op.neg(op.softplus(op.neg(projections[names.MATCHABILITY]))))  # log of the sigmoid
        certainty = op.add(op.unsqueeze(certainty0, op.const(np.array([1]))), op.unsqueeze(certainty1, op.const(np.array([0]))))
        return op.add(op.add(op.log_softmax(similarity, axis=1), op.log_softmax(similarity, axis=0)), certainty)

    def tokens(self, layer: int, x: Var) -> Var:
        """Logits of the confidence in each row, (2, K)."""
        confidence = self.net.heads[layer].confidence
        assert confidence is not None, 'the last layer always stops'
        return self.op.squeeze(self.rounding.linear(x, confidence), self.op.const(np.array([2])))

    def confident(self, layer: int, x: Var, valid: Var) -> Var:
        """float32 (2,): the share of valid rows whose final match this layer knows already, and their mean -log of the confidence.

        A row is confident when the sigmoid of its token reaches `confidence_threshold` (section 3.3 of the paper); NaN is not
        confident, and makes the mean NaN. Where no row is valid, all are confident.
        """
        op = self.op
        threshold = confidence_threshold(layer, self.layers)
        doubt = op.softplus(op.neg(self.typed.exact(self.tokens(layer, x))))  # (2, K)
        wavering = op.and_(op.not_(op.less_or_equal(doubt, op.const(np.float32(-np.log(threshold))))), valid)
        count = op.max([self.total(op.cast(valid, to=np.float32)), op.const(np.ones(1, np.float32))])
        share = op.sub(op.const(np.float32(1)), op.div(self.total(op.cast(wavering, to=np.float32)), count))
        mean = op.div(self.total(op.where(valid, doubt, op.const(np.float32(0)))), count)
        return op.concat([share, mean], axis=0)

    def heads(self, x: Var) -> Var:
        """(2, K, width) -> (2, heads, K, 64)."""
        op = self.op
        heads = op.reshape(x, self.shape(2, self.spec.max_keypoints, self.net.width // HEAD_DIM, HEAD_DIM))
        return op.transpose(heads, perm=[0, 2, 1, 3])

    def gelu(self, x: Var) -> Var:
        op = self.op
        gate = op.add(op.erf(op.mul(x, self.typed.const(2 ** -0.5))), self.typed.const(1))
        return op.mul(op.mul(x, gate), self.typed.const(0.5))

    def shape(self, *sizes: int) -> Var:
        return self.op.const(np.array(sizes, np.int64))

    def valid(self, inputs: dict[str, Var]) -> Var:
        """(2, K): the rows that are keypoints, by what joins `inputs` for it."""
        scores = names.of_pair(names.SCORES)
        inputs |= self._inputs(*scores, names.DETECTION_THRESHOLD) if scores[0] not in inputs else {}
        return self.stack(*(self.op.greater(inputs[side], inputs[names.DETECTION_THRESHOLD]) for side in scores))

    def filter_matches(self, assignment: Var, valid: Var, threshold: Var, count: int) -> tuple[Var, Var]:
        """Mutual best matches of (K, K) above the threshold -> matches0 int32 (K,), scores float32 (K,)."""
        op = self.op
        best1 = op.arg_max(assignment, axis=1, keepdims=0)
        best0 = op.arg_max(assignment, axis=0, keepdims=0)
        scores = op.exp(self.typed.row_maxima(assignment))
        mutual = op.equal(op.cast(op.gather(best0, best1), to=np.int32), op.const(np.arange(count, dtype=np.int32)))
        valid0, valid1 = self.unstack(valid)
        both_valid = op.and_(valid0, op.cast(op.gather(op.cast(valid1, to=np.int32), best1), to=np.bool_))
        keep = op.and_(op.and_(mutual, both_valid), op.greater(scores, threshold))
        matches = op.where(keep, op.cast(best1, to=np.int32), op.const(np.int32(-1)))
        return matches, op.where(keep, scores, op.const(np.float32(0)))

    def rotate(self, x: Var, rotation: tuple[Var, Var]) -> Var:
        """Rotary encoding of (2, heads, K, 64) whose halves hold the pairs."""
        op = self.op
        cosines, sines = rotation
        first, second = self.typed.halves(x, axis=3)
        return op.add(op.mul(x, cosines), op.mul(op.concat([op.neg(second), first], axis=3), sines))

    def stack(self, x0: Var, x1: Var) -> Var:
        op = self.op
        axis = op.const(np.array([0]))
        return op.concat([op.unsqueeze(x0, axis), op.unsqueeze(x1, axis)], axis=0)

    def unstack(self, x: Var) -> tuple[Var, Var]:
        op = self.op
        zero, one, two = (op.const(np.array([number])) for number in range(3))  # Split takes no booleans in ONNX Runtime 1.12
        return op.squeeze(op.slice(x, zero, one, zero), zero), op.squeeze(op.slice(x, one, two, zero), zero)

    def swap(self, x: Var) -> Var:
        op = self.op
        x0, x1 = self.typed.halves(x, axis=0)
        return op.concat([x1, x0], axis=0)

    def total(self, x: Var) -> Var:
        """The sum of (2, K), shape (1,)."""
        op = self.op
        return op.reduce_sum(op.reshape(x, op.const(np.array([-1]))), op.const(np.array([0])), keepdims=1)
