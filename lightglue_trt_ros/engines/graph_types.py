"""What types an ONNX graph asks for: the yardstick for what a builder made of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from ..errors import EngineError

HEAVY = ('Conv', 'ConvTranspose', 'Gemm', 'MatMul')  # the operators that precision is about
_NAMES = {'FLOAT': 'fp32', 'FLOAT16': 'fp16', 'BFLOAT16': 'bf16', 'DOUBLE': 'fp64', 'FLOAT8E4M3FN': 'fp8', 'FLOAT8E5M2': 'fp8'}


@dataclass(frozen=True)
class GraphTypes:
    """The type of every tensor of a graph by name ('fp32', 'fp16', 'fp8', 'int32', …), and of its heavy operators."""

    tensors: dict[str, str]
    heavy: Counter[str]  # convolutions and matrix products by the type of their output
    nodes: tuple[tuple[str, str], ...]  # name and operator, in the graph's order

    def require(self, precision: str) -> None:
        """Raise EngineError unless the graph is written in `precision`: a builder could only give less than was asked."""
        quantized = 'fp8' in self.tensors.values()
        fits = {'fp32': not quantized and set(self.heavy) <= {'fp32'}, 'fp16': not quantized and self.heavy['fp16'] > 0,
                'fp8': quantized}
        if precision not in fits:
            raise EngineError(f'precision is {precision!r}: use one of {", ".join(fits)}')
        if not fits[precision]:
            found = ', '.join(f'{count} in {name}' for name, count in sorted(self.heavy.items())) or 'none'
            raise EngineError(f'an {precision} engine was asked of a graph that is not {precision}: export it in {precision} '
                              f'(convolutions and matrix products: {found}; float8 tensors: {"some" if quantized else "none"})')


def read_types(data: bytes) -> GraphTypes:
    """Types as ONNX infers them. Raises EngineError when `data` is no valid ONNX model, or onnx is not installed."""
    try:
        import onnx
    except ImportError as error:
        raise EngineError(f'onnx cannot be imported ({error}): pip install onnx') from error
    try:
        graph = onnx.shape_inference.infer_shapes(onnx.load_model_from_string(data)).graph
    except Exception as error:  # protobuf's and onnx's own errors have no common root
        raise EngineError(f'this is not an ONNX model: {error}') from error

    def name_of(elem_type: int) -> str:
        name: str = onnx.TensorProto.DataType.Name(elem_type)
        return _NAMES.get(name, name.lower())
    values = (*graph.input, *graph.value_info, *graph.output)
    tensors = {value.name: name_of(value.type.tensor_type.elem_type) for value in values}
    tensors |= {initializer.name: name_of(initializer.data_type) for initializer in graph.initializer}
    heavy = Counter(tensors.get(node.output[0], 'unknown') for node in graph.node if node.op_type in HEAVY)
    return GraphTypes(tensors, heavy, tuple(_identity(node) for node in graph.node))


def _identity(node: Any) -> tuple[str, str]:
    return node.name, node.op_type
