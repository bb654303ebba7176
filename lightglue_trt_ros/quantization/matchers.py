"""The matcher on the CPU: in FP32, emulating FP8, telling what its layers read, or as NVIDIA ModelOpt makes it.

The last is the recipe of published FP8 deployments, to compare with: the FP32 graph, entropy calibration, two pairs. ModelOpt is
needed on the machine that compares, never on the robot, and by nothing else here.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import itertools
import logging
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..backends import onnxruntime as runtime
from ..calibration import Calibration
from ..config import EngineSpec
from ..depth import LAYERS, Depth
from ..errors import ConfigError, EngineError
from ..features import Float32, HostFeatures, Int32, Thresholds
from ..weights.architecture import layers_of
from ..weights.networks import Weights
from .samples import FramePair, RecordingSample, some

OBSERVED = 'inputs.'
THRESHOLDS = Thresholds()

Tell = Callable[[int], None]
MODELOPT_PAIRS = 2
REQUIREMENT = 'nvidia-modelopt[onnx]==0.47.0'


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
    from ..graphs.lightglue import lightglue, lightglue_stages
    if observe:
        return HostMatcher({'matcher': lightglue(_fp32(spec), weights, calibration=calibration, observe=True)})
    depth = Depth.of(layers_of(weights.tensors))
    return HostMatcher(lightglue_stages(_fp32(spec), weights, depth, calibration=calibration), depth)


def answers(matcher: HostMatcher, samples: Sequence[RecordingSample], pairs: Sequence[FramePair],
            tell: Tell = lambda done: None) -> list[Int32]:
    """What the matcher says to each pair, (exits, K) each; `tell` hears how many are done."""
    found = []
    for done, pair in enumerate(pairs, 1):
        found.append(matcher.match(*features_of(samples, pair)))
        tell(done)
    return found


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


def require_modelopt() -> None:
    """Raises ConfigError, with how to install it, where ModelOpt is missing."""
    if importlib.util.find_spec('modelopt') is None:
        raise ConfigError(f"--modelopt needs NVIDIA ModelOpt on this machine: pip install '{REQUIREMENT}', best into an "
                          'environment of its own; without --modelopt it is not needed, and on the robot never')


def quantised_by_modelopt(spec: EngineSpec, weights: Weights, samples: Sequence[RecordingSample],
                          pairs: Sequence[FramePair]) -> tuple[Any, float]:
    """The whole matcher as ModelOpt's default recipe makes it, FP32 elsewhere, and the share of its FLOPs in FP8.

    Of `pairs` two are used. Raises ConfigError without ModelOpt, EngineError where it fails.
    """
    require_modelopt()
    import onnx

    from ..graphs.lightglue import lightglue
    try:
        quantize = importlib.import_module('modelopt.onnx.quantization').quantize
    except Exception as error:  # whatever its own imports raise
        raise ConfigError(f"ModelOpt cannot be imported ({error}): pip install '{REQUIREMENT}'") from error
    model = lightglue(EngineSpec(spec.image_height, spec.image_width, spec.max_keypoints, 'fp32'), weights)
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder) / 'matcher.onnx', Path(folder) / 'matcher.quant.onnx'
        source.write_bytes(model.SerializeToString())
        level = logging.root.manager.disable
        logging.disable(logging.ERROR)  # it speaks of INT8 and of a missing GPU: neither matters here
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                quantize(str(source), quantize_mode='fp8', calibration_method='entropy', calibration_eps=['cpu'],
                         calibration_data_reader=_Reader(samples, pairs), high_precision_dtype='fp32', output_path=str(result),
                         log_level='ERROR')
            found = onnx.load(str(result))
        except Exception as error:  # whatever a foreign tool raises
            raise EngineError(f'ModelOpt failed: {error}') from error
        finally:
            logging.disable(level)
    return found, share_of_flops(found)


def share_of_flops(model: Any) -> float:
    """Of the FLOPs of a graph's matrix products, those whose two sides come out of a DequantizeLinear."""
    import onnx
    graph = onnx.shape_inference.infer_shapes(model).graph
    makers = {output: node.op_type for node in graph.node for output in node.output}
    shapes = {value.name: [size.dim_value for size in value.type.tensor_type.shape.dim]
              for value in (*graph.value_info, *graph.input, *graph.output)}
    shapes |= {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    total = done = 0.0
    for node in graph.node:
        if node.op_type == 'MatMul':
            work = math.prod(shapes[node.output[0]]) * (shapes.get(node.input[0]) or shapes[node.input[1]][-2:-1])[-1]
            total += work
            done += work * all(makers.get(name) == 'DequantizeLinear' for name in node.input)
    return done / total if total else 0.0


class _Reader:
    """Calibration data as ONNX Runtime's quantisation takes it."""

    def __init__(self, samples: Sequence[RecordingSample], pairs: Sequence[FramePair]) -> None:
        self._feeds = [feed(*features_of(samples, pair)) for pair in some(pairs, MODELOPT_PAIRS)]
        self._place = 0

    def get_next(self) -> dict[str, np.ndarray] | None:
        self._place += 1
        return self._feeds[self._place - 1] if self._place <= len(self._feeds) else None

    def get_first(self) -> dict[str, np.ndarray]:
        return self._feeds[0]

    def rewind(self) -> None:
        self._place = 0
