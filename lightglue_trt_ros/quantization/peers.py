"""The recipe of published FP8 deployments, to compare with: NVIDIA ModelOpt on the FP32 graph, entropy calibration, two pairs.

ModelOpt is needed on the machine that compares, never on the robot, and by nothing else here.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import logging
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..config import EngineSpec
from ..errors import ConfigError, EngineError
from ..weights.networks import Weights
from .footage import Footage
from .pairs import Pair, some
from .running import features_of, feed

PAIRS = 2
REQUIREMENT = 'nvidia-modelopt[onnx]==0.47.0'


def require_modelopt() -> None:
    """Raises ConfigError, with how to install it, where ModelOpt is missing."""
    if importlib.util.find_spec('modelopt') is None:
        raise ConfigError(f"--peers needs NVIDIA ModelOpt on this machine: pip install '{REQUIREMENT}', best into an environment "
                          'of its own; without --peers it is not needed, and on the robot never')


def quantised(spec: EngineSpec, weights: Weights, footage: Sequence[Footage], pairs: Sequence[Pair]) -> tuple[Any, float]:
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
                         calibration_data_reader=_Reader(footage, pairs), high_precision_dtype='fp32', output_path=str(result),
                         log_level='ERROR')
            found = onnx.load(str(result))
        except Exception as error:  # whatever a foreign tool raises
            raise EngineError(f'ModelOpt failed: {error}') from error
        finally:
            logging.disable(level)
    return found, share(found)


def share(model: Any) -> float:
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

    def __init__(self, footage: Sequence[Footage], pairs: Sequence[Pair]) -> None:
        self._feeds = [feed(*features_of(footage, pair)) for pair in some(pairs, PAIRS)]
        self._place = 0

    def get_next(self) -> dict[str, np.ndarray] | None:
        self._place += 1
        return self._feeds[self._place - 1] if self._place <= len(self._feeds) else None

    def get_first(self) -> dict[str, np.ndarray]:
        return self._feeds[0]

    def rewind(self) -> None:
        self._place = 0
