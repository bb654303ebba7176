"""Typed graphs: every tensor's type stands in the ONNX graph, so that a strongly typed builder has nothing to choose.

A network computes in one type (`Typed.dtype`). Where FP16 would overflow, flush to zero or lose pixels (softmax over cells,
norms, coordinates, positional encoding, the final assignment) the graph casts to FP32 and back: an FP32 island.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import spox.opset.ai.onnx.v17 as op17
import spox.opset.ai.onnx.v21 as op21
from numpy.typing import NDArray
from spox import Var

from ..core.config import EngineSpec
from ..utils.errors import ConfigError

OPSET = 17  # the newest that TensorRT 8.6 parses, the oldest with LayerNormalization
IR = 8  # the one that came with it: ONNX Runtime 1.12, the last for Humble's NumPy, takes no newer
_DTYPES = {'fp32': np.float32, 'fp16': np.float16}


class Typed:
    """Writes one network's constants and casts in one compute type. Raises ConfigError for a precision it cannot write."""

    def __init__(self, precision: str, calibrated: bool = False) -> None:
        """`calibrated`: the graph will have E4M3's operators, of opset 21."""
        if precision not in _DTYPES:
            raise ConfigError(f'graphs are written in {" or ".join(_DTYPES)}, not {precision}, which only the matcher has')
        self.dtype = np.dtype(_DTYPES[precision])
        self.op: Any = op21 if calibrated else op17  # not mixed: spox converts each older node, which takes seconds

    def halves(self, x: Var, axis: int) -> tuple[Var, Var]:
        parts = self.op.split(x, axis=axis, **({'outputs_count': 2} if self.op is op17 else {'num_outputs': 2}))
        return parts[0], parts[1]

    def row_maxima(self, x: Var) -> Var:
        """(N, M) -> (N,)."""
        return self.op.reduce_max(x, axes=[1] if self.op is op17 else self.op.const(np.array([1])), keepdims=0)

    def const(self, values: NDArray[np.float32] | float) -> Var:
        """A constant of the compute type."""
        return self.op.const(np.asarray(values, self.dtype))

    def compute(self, x: Var) -> Var:
        """`x` in the compute type."""
        return x if x.unwrap_tensor().dtype == self.dtype else self.op.cast(x, to=self.dtype.type)

    def exact(self, x: Var) -> Var:
        """`x` in FP32: the entrance of an island."""
        return x if x.unwrap_tensor().dtype == np.float32 else self.op.cast(x, to=np.float32)


def stamp(model: onnx.ModelProto, network: str, spec: EngineSpec, weights_sha256: str,
          calibration_sha256: str = '') -> onnx.ModelProto:
    """Finish a model, and write into it what it is: metadata_props that `read_stamp` and every ONNX tool can show.

    An fp8 spec's graph that has nothing in FP8, an early exit's assignment say, is called what it is: fp16.
    """
    precision = spec.precision if _write_float8(model) or spec.precision != 'fp8' else 'fp16'
    props = {'network': network, 'image_height': spec.image_height, 'image_width': spec.image_width,
             'max_keypoints': spec.max_keypoints, 'precision': precision, 'weights_sha256': weights_sha256}
    if calibration_sha256:
        props['calibration_sha256'] = calibration_sha256
    onnx.helper.set_model_props(model, {key: str(value) for key, value in props.items()})
    _drop_unused_outputs(model)
    model.producer_name = 'lightglue_trt_ros'
    model.opset_import[0].version = max(OPSET, model.opset_import[0].version)  # spox writes the least that the nodes need
    model.ir_version = min(model.ir_version, IR if model.opset_import[0].version == OPSET else model.ir_version)
    return model


def _drop_unused_outputs(model: onnx.ModelProto) -> None:
    """spox names every optional output (LayerNormalization's mean, MaxPool's indices); TensorRT refuses them."""
    used = {name for node in model.graph.node for name in node.input} | {output.name for output in model.graph.output}
    for node in model.graph.node:
        while len(node.output) > 1 and node.op_type in ('LayerNormalization', 'MaxPool') and node.output[-1] not in used:
            node.output.pop()


def _write_float8(model: onnx.ModelProto) -> bool:
    """Whether there are Q/DQ nodes; the bytes that they read become FP8, as initializers: spox has no such type."""
    nodes = list(model.graph.node)
    bytes_read = {name for node in nodes if node.op_type in ('QuantizeLinear', 'DequantizeLinear') for name in node.input}
    if not bytes_read:
        return False
    del model.graph.node[:]
    for node in nodes:
        value = node.attribute[0].t if node.op_type == 'Constant' else None
        if value is None or value.data_type != onnx.TensorProto.UINT8 or node.output[0] not in bytes_read:
            model.graph.node.append(node)
        else:
            value.name, value.data_type = node.output[0], onnx.TensorProto.FLOAT8E4M3FN
            model.graph.initializer.append(value)
    return True


def read_stamp(model: onnx.ModelProto) -> Mapping[str, str]:
    """The metadata_props of a model."""
    return {prop.key: prop.value for prop in model.metadata_props}
