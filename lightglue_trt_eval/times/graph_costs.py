"""Work of a network, counted in its ONNX graph: floating-point operations and bytes of memory."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from lightglue_trt_ros.core.config import EngineSpec
from lightglue_trt_ros.networks.models import Model
from lightglue_trt_ros.utils.errors import EngineError

if TYPE_CHECKING:
    import onnx

_MATRIX = ('Conv', 'Gemm', 'MatMul')
_UNFUSED = (*_MATRIX, 'ArgMax', 'GridSample', 'LayerNormalization', 'LogSoftmax', 'MaxPool', 'ReduceL2', 'ReduceMax', 'Softmax',
            'TopK')  # the other operators are fused into these, or only change shapes


@dataclass(frozen=True)
class Work:
    """Of one stage of a frame."""

    matrix_flops: float = 0.0  # on tensor cores: two for each multiplication of a matrix product
    flops: float = 0.0  # of kernels in FP32
    bytes: float = 0.0  # read from memory and written to it

    def __add__(self, other: Work) -> Work:
        return Work(self.matrix_flops + other.matrix_flops, self.flops + other.flops, self.bytes + other.bytes)


def network_work(spec: EngineSpec, model: Model) -> tuple[Work, Work]:
    """Of the extractor for one image, and of all layers of the matcher. Raises EngineError where a library is missing."""
    try:
        from lightglue_trt_ros.networks.lightglue import lightglue
        from lightglue_trt_ros.networks.superpoint import superpoint
    except ImportError as error:
        raise EngineError(f'the work is counted in graphs, which cannot be written ({error}): pip install onnx ml_dtypes spox'
                          ) from error
    return graph_work(superpoint(spec, model.extractor)), graph_work(lightglue(spec, model.matcher))


def graph_work(model: onnx.ModelProto) -> Work:
    """Work of a graph of fixed shapes.

    Operations are those of convolutions and matrix products. Bytes are the weights, inputs and outputs of these, and of operators
    that cannot be fused into them, each once, as if no cache kept anything from one operator to the next. The logits of attention
    are not counted: a fused attention never writes them.
    """
    import onnx
    graph = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
    constants = [onnx.helper.make_tensor_value_info(each.name, each.data_type, each.dims) for each in graph.initializer]
    known = {value.name: value.type.tensor_type for value in (*constants, *graph.input, *graph.value_info, *graph.output)}
    shapes = {name: [size.dim_value for size in tensor.shape.dim] for name, tensor in known.items()}
    sizes = {name: prod(shapes[name]) * onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).itemsize
             for name, tensor in known.items()}
    multiplied = {name for node in graph.node if node.op_type == 'MatMul' for name in node.input}
    logits = {name for node in graph.node if node.op_type == 'Softmax' and node.output[0] in multiplied
              for name in (*node.input, *node.output)}
    flops, moved = 0, 0
    for node in graph.node:
        if node.op_type in _MATRIX:
            flops += 2 * prod(shapes[node.output[0]]) * _products(node, shapes)
        if node.op_type in _UNFUSED:
            moved += sum(sizes[name] for name in {*node.input, *node.output} - logits - {''})
    return Work(matrix_flops=flops, bytes=moved)


def _products(node: onnx.NodeProto, shapes: dict[str, list[int]]) -> int:
    """Multiplications for one number of the output."""
    if node.op_type == 'Conv':
        return prod(shapes[node.input[1]][1:])
    transposed = any(attribute.name == 'transA' and attribute.i for attribute in node.attribute)
    return shapes[node.input[0]][0 if transposed else -1]
