"""A camera's frame on the device, as ONNX graphs: the extractor's image, and the pyramid that points are placed in."""

from __future__ import annotations

import numpy as np
import onnx
import spox.opset.ai.onnx.v17 as op
from spox import Tensor, Var, argument, build

from ..config import EngineSpec
from .precision import stamp

HALVING = np.outer(*2 * [np.array([1, 4, 6, 4, 1], np.float32) / 16])  # Burt and Adelson, IEEE Trans. Communications 1983


def frame(spec: EngineSpec) -> onnx.ModelProto:
    """image uint8 (H, W), of any camera -> resized uint8 (height, width of the spec), level float32 (H, W), the pyramid's first.

    `rows` and `columns` are `geometry.resize_matrices` of the camera's size: two products, whatever way the image is resized.
    """
    image = argument(Tensor(np.uint8, ('height', 'width')))
    rows, columns = (argument(Tensor(np.float32, shape)) for shape in ((spec.image_height, 'height'), ('width', spec.image_width)))
    level = op.cast(image, to=np.float32)
    gray = op.floor(op.add(op.matmul(op.matmul(rows, level), columns), _value(0.5)))
    resized = op.cast(op.min([op.max([gray, _value(0)]), _value(255)]), to=np.uint8)
    model = build({'image': image, 'rows': rows, 'columns': columns}, {'resized': resized, 'level': level})
    _name_outputs(model)
    return stamp(model, 'frame', spec, '')


def halve(spec: EngineSpec) -> onnx.ModelProto:
    """level float32 (H, W) -> half float32 ((H + 1) // 2, (W + 1) // 2), as `cv2.pyrDown`."""
    level = argument(Tensor(np.float32, ('height', 'width')))
    wide = op.pad(op.unsqueeze(level, _shape(0, 1)), _shape(0, 0, 2, 2, 0, 0, 2, 2), mode='reflect')
    half = op.squeeze(op.conv(wide, op.const(HALVING[None, None]), strides=[2, 2]), _shape(0, 1))
    return stamp(build({'level': level}, {'half': half}), 'halve', spec, '')


def _name_outputs(model: onnx.ModelProto) -> None:
    """spox names outputs by an Identity each; TensorRT takes uint8 where it comes in or goes out, and nowhere between."""
    given = {node.input[0]: node.output[0] for node in model.graph.node if node.op_type == 'Identity'}
    nodes = [node for node in model.graph.node if node.op_type != 'Identity']
    for node in nodes:
        for names in (node.input, node.output):
            names[:] = [given.get(name, name) for name in names]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _value(value: float) -> Var:
    return op.const(np.float32(value))


def _shape(*sizes: int) -> Var:
    return op.const(np.array(sizes, np.int64))
