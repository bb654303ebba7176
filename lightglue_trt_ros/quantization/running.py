"""The whole matcher as one graph on the CPU: in FP32, emulating FP8, or telling what its layers read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..backends import onnxruntime as runtime
from ..calibration import Calibration
from ..config import EngineSpec
from ..errors import EngineError
from ..features import Float32, HostFeatures, Int32, Thresholds
from ..weights.networks import Weights
from .footage import Footage
from .pairs import Pair

OBSERVED = 'inputs.'
THRESHOLDS = Thresholds()

Tell = Callable[[int], None]


class WholeMatcher:
    """One graph for ONNX Runtime. Raises EngineError."""

    def __init__(self, model: Any, threads: int = 0) -> None:
        """`model` is an onnx.ModelProto with the inputs and outputs of `graphs.lightglue`; `threads` 0 is one per core."""
        self._network, self._options = runtime.Network(model, threads), runtime.import_runtime().RunOptions()

    def match(self, first: HostFeatures, second: HostFeatures) -> Int32:
        """(K,) the second image's row that each of the first matches, -1 where none."""
        return np.asarray(self._run(first, second)['matches0'], np.int32)

    def observe(self, first: HostFeatures, second: HostFeatures) -> dict[str, Float32]:
        """What the layers read, by the names of a calibration's peaks; of a graph that was written with `observe`."""
        return {name.removeprefix(OBSERVED): value for name, value in self._run(first, second).items() if name.startswith(OBSERVED)}

    def _run(self, first: HostFeatures, second: HostFeatures) -> Mapping[str, Any]:
        try:
            found = self._network.run(runtime.ort_values(feed(first, second)), self._options)
        except Exception as error:  # ONNX Runtime has no public root exception
            raise EngineError(f'ONNX Runtime failed: {error}') from error
        return {name: value.numpy() for name, value in found.items()}


def open_matcher(spec: EngineSpec, weights: Weights, calibration: Calibration | None = None, *,
                 observe: bool = False) -> WholeMatcher:
    """The FP32 matcher; with a calibration its emulation in FP8, and with `observe` what would be rounded there."""
    from ..graphs.lightglue import lightglue
    return WholeMatcher(lightglue(_fp32(spec), weights, calibration=calibration, observe=observe))


def answers(matcher: WholeMatcher, footage: Sequence[Footage], pairs: Sequence[Pair],
            tell: Tell = lambda done: None) -> list[Int32]:
    """What the matcher says to each pair; `tell` hears how many are done."""
    found = []
    for done, pair in enumerate(pairs, 1):
        found.append(matcher.match(*features_of(footage, pair)))
        tell(done)
    return found


def feed(first: HostFeatures, second: HostFeatures) -> dict[str, Any]:
    """The inputs of a whole matcher's graph, by name."""
    arrays = {f'{name}{side}': np.ascontiguousarray(getattr(features, name)) for side, features in enumerate((first, second))
              for name in ('keypoints', 'descriptors', 'scores')}
    return arrays | {'match_threshold': np.array(THRESHOLDS.match, np.float32),
                     'detection_threshold': np.array(THRESHOLDS.detection, np.float32)}


def features_of(footage: Sequence[Footage], pair: Pair) -> tuple[HostFeatures, HostFeatures]:
    features = footage[pair.recording].features
    return features[pair.first], features[pair.second]


def _fp32(spec: EngineSpec) -> EngineSpec:
    return EngineSpec(spec.image_height, spec.image_width, spec.max_keypoints, 'fp32')
