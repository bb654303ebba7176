"""LightGlue as ONNX graphs: the network as a whole, or as a chain of stages that may stop early.

Lindenberger, Sarlin, Pollefeys: LightGlue: Local Feature Matching at Light Speed, ICCV 2023.
"""

from __future__ import annotations

import numpy as np
import onnx
import spox.opset.ai.onnx.v17 as op
from spox import Tensor, Var, argument, build

from ..core.config import EngineSpec
from ..core.early_exit import EARLY_MATCH_SCORE, Depth, confidence_threshold
from ..utils.errors import ConfigError
from .architecture import HEAD_DIM
from .blocks import LightGlueBlocks, filter_matches, stack, swap
from .fp8_calibration import Calibration
from .typed_onnx import stamp
from .weights import Weights


def lightglue(spec: EngineSpec, weights: Weights, *, calibration: Calibration | None = None, observe: bool = False,
              mask_attention: bool = False, log_assignment: bool = False) -> onnx.ModelProto:
    """The matcher for one pair of feature sets of K rows, all layers in one graph.

    keypoints0, keypoints1 float32 (K, 2) pixels; scores0, scores1 float32 (K,); descriptors0, descriptors1 (K, D) in the
    spec's precision; match_threshold, detection_threshold float32 scalars -> matches0 int32 (K,), the row of image 1 or -1;
    scores float32 (K,), 0 where there is no match. Rows at or under the detection threshold never match. With `mask_attention`
    they do not attend either, which is exact and keeps TensorRT from fusing the attention; without it, rows that are no keypoints
    move the matches of poorly textured frames a little (docs/experiments.md). `log_assignment` adds an output of that name, (K, K).

    In fp8 the calibration's members compute in FP8 and the rest in FP16; in fp32 a calibration makes an emulation of that, rounded
    in the same places, for ONNX Runtime on the CPU. Its state is in the calibration's basis. `observe` rounds nothing and adds the
    FP32 outputs `inputs.NAME` (2, K, inputs), NAME as in a calibration's peaks: what would be rounded, centred where there is a
    centre. Raises ConfigError for fp8 without a calibration, and for a calibration of other weights or shapes.
    """
    net = LightGlueBlocks(spec, weights, calibration, observe)
    return _Writer(net, calibration, mask_attention, log_assignment).stage(0, net.layers)


def lightglue_stages(spec: EngineSpec, weights: Weights, depth: Depth, *, calibration: Calibration | None = None,
                     mask_attention: bool = False) -> dict[str, onnx.ModelProto]:
    """The matcher's graphs by the names of `depth`: `lightglue` cut into stages, and an assignment for each early exit.

    A stage that is not the last gives `next_state` (2, K, width), the `state` of the next one and of its exit's assignment, and
    `confidence` float32 (2,): the share of confident points, and the mean logit, NaN where one is NaN. The first also gives
    `cosines` and `sines` (2, 1, K, 64), the encoded positions. `calibration` is as in `lightglue`; its basis is that of `state`, so
    that all graphs take the same one. Raises ConfigError as `lightglue` does, and when the stages do not end with the network.
    """
    net = LightGlueBlocks(spec, weights, calibration)
    if depth.ends[-1] != net.layers:
        raise ConfigError(f'the stages end after layer {depth.ends[-1]}: {weights.name} has {net.layers}')
    writer = _Writer(net, calibration, mask_attention)
    spans = zip((0, *depth.ends), depth.ends, strict=False)
    graphs = {name: writer.stage(*span) for name, span in zip(depth.stages, spans, strict=True)}
    return graphs | {name: writer.head(end) for name, end in zip(depth.heads, depth.ends, strict=False)}


class _Writer:
    """Writes the graphs of one network."""

    def __init__(self, net: LightGlueBlocks, calibration: Calibration | None, mask_attention: bool,
                 log_assignment: bool = False) -> None:
        self.net, self.mask_attention, self.log_assignment = net, mask_attention, log_assignment
        self.calibration_sha256 = '' if calibration is None else calibration.sha256

    def stage(self, first: int, end: int) -> onnx.ModelProto:
        """Layers `first` to `end` - 1."""
        net, inputs = self.net, self._inputs('scores0', 'scores1', 'detection_threshold')
        valid = _valid(inputs)
        outputs: dict[str, Var] = {}
        if first == 0:
            inputs |= self._inputs('keypoints0', 'keypoints1', 'descriptors0', 'descriptors1')
            x = net.project(stack(inputs['descriptors0'], inputs['descriptors1']))
            rotation = net.encode_positions(stack(inputs['keypoints0'], inputs['keypoints1']))
            outputs = dict(zip(('cosines', 'sines'), rotation, strict=True))
        else:
            inputs |= self._inputs('state', 'cosines', 'sines')
            x, rotation = inputs['state'], (inputs['cosines'], inputs['sines'])
        bias = net.attention_bias(valid) if self.mask_attention else None
        for layer in range(first, end):
            x = net.self_attend(layer, x, rotation, bias)
            x = net.cross_attend(layer, x, None if bias is None else swap(bias))
        if end == net.layers:
            return self._assigned(inputs, end, x, valid)
        outputs |= {'next_state': x, 'confidence': net.confident(end - 1, x, valid, confidence_threshold(end - 1, net.layers))}
        return self._model(inputs, outputs)

    def head(self, end: int) -> onnx.ModelProto:
        """The assignment after `end` layers, without matches below EARLY_MATCH_SCORE, which are more often wrong there."""
        inputs = self._inputs('state', 'scores0', 'scores1', 'detection_threshold')
        return self._assigned(inputs, end, inputs['state'], _valid(inputs))

    def _assigned(self, inputs: dict[str, Var], end: int, x: Var, valid: Var) -> onnx.ModelProto:
        inputs |= self._inputs('match_threshold')
        assignment = self.net.assign(end - 1, x, valid)
        threshold = inputs['match_threshold']
        if end < self.net.layers:
            threshold = op.max([threshold, op.const(np.float32(EARLY_MATCH_SCORE))])
        matches, scores = filter_matches(assignment, valid, threshold, self.net.spec.max_keypoints)
        outputs = {'matches0': matches, 'scores': scores}
        return self._model(inputs, outputs | ({'log_assignment': assignment} if self.log_assignment else {}))

    def _inputs(self, *names: str) -> dict[str, Var]:
        k, dtype = self.net.spec.max_keypoints, self.net.typed.dtype
        rotation, scalar = Tensor(dtype, (2, 1, k, HEAD_DIM)), Tensor(np.float32, ())
        descriptors, state = Tensor(dtype, (k, self.net.net.descriptors)), Tensor(dtype, (2, k, self.net.net.width))
        types = {'keypoints': Tensor(np.float32, (k, 2)), 'descriptors': descriptors, 'scores': Tensor(np.float32, (k,)),
                 'state': state, 'cosines': rotation, 'sines': rotation, 'match_threshold': scalar, 'detection_threshold': scalar}
        return {name: argument(types[name.rstrip('01')]) for name in names}

    def _model(self, inputs: dict[str, Var], outputs: dict[str, Var]) -> onnx.ModelProto:
        outputs |= {f'inputs.{name}': seen for name, seen in self.net.rounding.seen.items()}
        return stamp(build(inputs, outputs), 'lightglue', self.net.spec, self.net.sha256, self.calibration_sha256)


def _valid(inputs: dict[str, Var]) -> Var:
    """(2, K): the rows that are keypoints."""
    return stack(*(op.greater(inputs[f'scores{side}'], inputs['detection_threshold']) for side in (0, 1)))
