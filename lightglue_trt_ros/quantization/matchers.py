"""The matcher on the CPU: in FP32, emulating FP8, or telling what its layers read."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..backends import onnxruntime as runtime
from ..core.config import EngineSpec
from ..core.early_exit import LAYERS, Depth
from ..core.types import Float32, HostFeatures, Int32, Thresholds
from ..networks.architecture import layers_of
from ..networks.fp8_calibration import Calibration
from ..networks.weights import Weights
from ..utils.console import Bar
from ..utils.errors import EngineError
from .samples import FramePair, RecordingSample

OBSERVED = 'inputs.'
THRESHOLDS = Thresholds()


class HostMatcher:
    """The graphs of a matcher for ONNX Runtime, run to the end with an answer at every exit. Raises EngineError."""

    def __init__(self, models: Mapping[str, Any], depth: Depth | None = None, threads: int = 0) -> None:
        """`models` are onnx.ModelProto by the names of `depth`, None: one of all layers; `threads` 0 is one per core."""
        self.depth, self._options = depth or Depth((LAYERS,)), runtime.import_runtime().RunOptions()
        self._networks = {name: runtime.Network(models[name], threads) for name in self.depth.graphs}

    def match(self, first: HostFeatures, second: HostFeatures) -> Int32:
        """(exits, K) the second image's row that each of the first matches, -1 where none."""
        tensors, found = runtime.ort_values(feed(first, second)), []
        for stage, head in itertools.zip_longest(self.depth.stages, self.depth.heads):
            tensors |= self._run(stage, tensors)
            if head is not None:
                tensors['state'] = tensors['next_state']
                tensors |= self._run(head, tensors)
            found.append(tensors['matches0'].numpy())
        return np.stack(found).astype(np.int32)

    def observe(self, first: HostFeatures, second: HostFeatures) -> dict[str, Float32]:
        """What the linears read, by name; of one graph that was written with `observe`."""
        found = self._run(self.depth.stages[0], runtime.ort_values(feed(first, second)))
        return {name.removeprefix(OBSERVED): value.numpy() for name, value in found.items() if name.startswith(OBSERVED)}

    def _run(self, name: str, tensors: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._networks[name].run(tensors, self._options)
        except Exception as error:  # ONNX Runtime has no public root exception
            raise EngineError(f'ONNX Runtime failed: {error}') from error


def open_matcher(spec: EngineSpec, weights: Weights, calibration: Calibration | None = None, *,
                 observe: bool = False) -> HostMatcher:
    """The FP32 matcher with its usual exits; with a calibration its emulation in FP8. With `observe` one graph of all layers, which
    tells what would be rounded.
    """
    from ..networks.lightglue import lightglue, lightglue_stages
    if observe:
        return HostMatcher({'matcher': lightglue(_fp32(spec), weights, calibration=calibration, observe=True)})
    depth = Depth.of(layers_of(weights.tensors))
    return HostMatcher(lightglue_stages(_fp32(spec), weights, depth, calibration=calibration), depth)


def answers(matcher: HostMatcher, samples: Sequence[RecordingSample], pairs: Sequence[FramePair],
            bar: Bar | None = None) -> list[Int32]:
    """The matcher's answer to each pair, (exits, K) each."""
    return [matcher.match(*features_of(samples, pair)) for pair in (bar or Bar()).each(pairs)]


def feed(first: HostFeatures, second: HostFeatures) -> dict[str, Any]:
    """The inputs of a whole matcher's graph, by name."""
    arrays = {f'{name}{side}': np.ascontiguousarray(getattr(features, name)) for side, features in enumerate((first, second))
              for name in ('keypoints', 'descriptors', 'scores')}
    return arrays | {'match_threshold': np.array(THRESHOLDS.match, np.float32),
                     'detection_threshold': np.array(THRESHOLDS.detection, np.float32)}


def features_of(samples: Sequence[RecordingSample], pair: FramePair) -> tuple[HostFeatures, HostFeatures]:
    features = samples[pair.recording].features
    return features[pair.first], features[pair.second]


def _fp32(spec: EngineSpec) -> EngineSpec:
    return EngineSpec(spec.image_height, spec.image_width, spec.max_keypoints, 'fp32')
