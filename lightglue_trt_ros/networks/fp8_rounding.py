"""Where LightGlue's graphs round to E4M3, as a calibration says: pairs of Q/DQ around matrix products, in the forms that TensorRT
computes in FP8. Without a calibration nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import spox.opset.ai.onnx.v17 as op
import spox.opset.ai.onnx.v21 as op21
from spox import Var

from ..core.config import EngineSpec
from ..core.types import Int32
from ..utils.errors import ConfigError
from . import e4m3
from .fp8_calibration import Calibration, RoundedWeights
from .typed_onnx import Typed
from .weight_folding import DIM, Array, Linear
from .weights import Tensors, Weights

LEAST_PEAK, GREATEST_PEAK = e4m3.LEAST_SCALE * 2.0 ** e4m3.LEAST_EXPONENT, 65504.0  # below, all would be subnormal or nothing


def check(calibration: Calibration | None, spec: EngineSpec, weights: Weights) -> None:
    """Raise ConfigError unless the calibration was made for these weights and shapes; fp8 needs one."""
    if calibration is not None or spec.precision == 'fp8':
        check_width(weights.tensors)
    if calibration is None:
        if spec.precision == 'fp8':
            raise ConfigError('an fp8 matcher needs a calibration: make one with quantize, or use fp16')
        return
    if spec.precision == 'fp16':
        raise ConfigError('a calibration was given for an fp16 matcher: it is for fp8, or for emulating that in fp32')
    asked = {'weights_sha256': weights.sha256, 'image_height': spec.image_height, 'image_width': spec.image_width,
             'max_keypoints': spec.max_keypoints}
    for name, value in asked.items():
        made_for = calibration.provenance.get(name)
        if made_for != value:
            raise ConfigError(f'the calibration was made for {name} {made_for}, not {value}: calibrate again')


def check_width(matcher: Tensors) -> None:
    """Raise ConfigError unless the matcher is as wide as what FP8 is worked out for."""
    hidden, inputs = matcher['transformers.0.self_attn.ffn.0.weight'].shape
    if (inputs, hidden) != (2 * DIM, 2 * DIM):
        raise ConfigError(f'FP8 is for matchers {DIM} channels wide, {2 * DIM} in their FFN: these weights have {inputs // 2} and '
                          f'{hidden}; use fp16')


class Rounding:
    """Writes the parts that may be in FP8; or, to observe, writes them without rounding and keeps what would be rounded."""

    def __init__(self, typed: Typed, calibration: Calibration | None, observe: bool) -> None:
        self._typed, self._observe = typed, observe
        self._peaks: Mapping[str, float] = {} if calibration is None else calibration.peaks
        self._fp8 = frozenset[str]() if calibration is None or observe else calibration.fp8
        # as both compute types hold them, so that an emulation subtracts what the engine does
        self._centres: Mapping[str, Array] = {} if calibration is None else {
            name: values.astype(np.float16).astype(np.float32) for name, values in calibration.centres.items()
            if observe or name in self._fp8}
        self._inputs: Mapping[str, Int32] = {} if calibration is None else calibration.compensated
        self._rounded: Mapping[str, RoundedWeights] = {} if calibration is None else calibration.weights
        self.observed: dict[str, Var] = {}  # FP32, by the linear that reads it

    def linears(self, name: str, x: Var, *layers: Linear) -> list[Var]:
        """The layers of the member `name`, which read the same x."""
        centre = self._centres.get(name)
        centred = x if centre is None else op.sub(x, self._typed.const(centre))
        if self._observe:
            self.observed[name] = self._typed.exact(centred)
        if name not in self._fp8:
            return [self.linear(x, layer) for layer in layers]
        x = self._compensated(name, centred)
        # the layer of the centre is exact, and goes into the bias: what is left of the weights' rounding errs on x - centre alone
        shifts = [layer.bias if centre is None else layer.bias + layer.weight @ centre for layer in layers]
        return [op.add(op.matmul(x, weight), self._typed.const(shift))
                for weight, shift in zip(self._weights(name, layers), shifts, strict=True)]

    def linear(self, x: Var, layer: Linear) -> Var:
        """A layer in the compute type."""
        return op.add(op.matmul(x, self._typed.const(np.ascontiguousarray(layer.weight.T))), self._typed.const(layer.bias))

    def _scale(self, name: str) -> float:
        if name not in self._peaks:
            raise ConfigError(f'the calibration has no peak of {name}, without which that cannot be in FP8: calibrate again')
        peak = self._peaks[name]
        if not LEAST_PEAK <= peak <= GREATEST_PEAK:
            raise ConfigError(f'the calibration says that {name} goes up to {peak:g}: FP8 next to FP16 takes {LEAST_PEAK:g} to '
                              f'{GREATEST_PEAK:g}; calibrate again, on frames with texture, or leave it in FP16')
        return e4m3.scale_of(peak)

    def _pair(self, x: Var, scale: float) -> Var:
        # spox has no float8: uint8 stands for it until the graph is stamped
        step, zero = self._typed.const(scale), op21.const(np.array(0, np.uint8))
        return op21.dequantize_linear(op21.quantize_linear(x, step, zero), step, zero)

    def _compensated(self, name: str, x: Var) -> Var:
        """Rounded x (2, K, inputs); what that loses of the compensated inputs stands rounded in further columns."""
        scale, inputs = self._scale(name), self._inputs.get(name)
        if inputs is not None:
            lost = op.gather(op.sub(x, self._pair(x, scale)), op21.const(inputs.astype(np.int64)), axis=2)
            x = op.concat([x, lost], axis=2)
        return self._pair(x, scale)

    def _weights(self, name: str, layers: Sequence[Linear]) -> Iterator[Var]:
        """Of each layer of a member: (inputs, outputs) of FP8 with a scale per output; compensated inputs have theirs twice."""
        whole = self._rounded.get(name) or RoundedWeights.nearest(np.concatenate([layer.weight for layer in layers]))
        inputs = self._inputs.get(name)
        codes = whole.codes if inputs is None else np.hstack([whole.codes, whole.codes[:, inputs]])
        ends = np.cumsum([len(layer.bias) for layer in layers])[:-1]
        for part, scales in zip(np.split(codes, ends), np.split(whole.scales, ends), strict=True):
            zeros = op21.const(np.zeros(len(scales), np.uint8))
            yield op21.dequantize_linear(op21.const(np.ascontiguousarray(part.T)), self._typed.const(scales), zeros, axis=1)
