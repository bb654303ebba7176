"""The precision of a network on its way through a builder: what the graph asks for, what 8.6 is pinned to, what came out."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..utils.errors import EngineError

HEAVY = ('Conv', 'ConvTranspose', 'Gemm', 'MatMul')  # the ONNX operators that precision is about
_ONNX_TYPES = {'FLOAT': 'fp32', 'FLOAT16': 'fp16', 'BFLOAT16': 'bf16', 'DOUBLE': 'fp64', 'FLOAT8E4M3FN': 'fp8',
               'FLOAT8E5M2': 'fp8'}
# of TensorRT's network: these carry their own type (constants, conversions) or have none that can be pinned (shapes)
_UNPINNABLE = frozenset({'CONSTANT', 'SHAPE', 'CAST', 'IDENTITY', 'ASSERTION'})
_HEAVY_LAYERS = frozenset({'CONVOLUTION', 'DECONVOLUTION', 'FULLY_CONNECTED', 'MATRIX_MULTIPLY'})
_PINNED = {'FLOAT': 'fp32', 'HALF': 'fp16'}
# of the engine inspector
_HEAVY_KIND = re.compile(r'conv|gemm|mat(rix)?_?mul|mha|fully_?connected', re.I)
_HEAVY_FUSED = re.compile(r'gemm|mha', re.I)  # in the name of a generated kernel
_OPAQUE = frozenset({'Myelin', 'ForeignNode'})  # 8.6 shows a fused region as one layer
_PATTERNS = tuple((name, re.compile(pattern, re.I)) for name, pattern in (
    ('fp8', r'FP8|E4M3'), ('fp16', r'\bFP16|\bHalf'), ('bf16', r'BF16|BFloat16'), ('fp32', r'FP32|\bFloat\b'), ('uint8', r'UInt8'),
    ('int8', r'Int8'), ('int32', r'Int32'), ('int64', r'Int64'), ('bool', r'Bool'), ('fp4', r'FP4|E2M1'), ('int4', r'Int4')))
_FLOATING = frozenset({'fp8', 'fp16', 'bf16', 'fp32', 'fp4'})


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
        if not fits[precision]:
            counts = ', '.join(f'{count} in {name}' for name, count in sorted(self.heavy.items())) or 'none'
            raise EngineError(f'an {precision} engine was asked of a graph that is not {precision}: export it in {precision} '
                              f'(convolutions and matrix products: {counts}; float8 tensors: {"some" if quantized else "none"})')


@dataclass(frozen=True)
class LayerInfo:
    """One layer of an engine. `precision` is what it computes in: the type of its first floating input, else output, else any."""

    name: str
    kind: str
    precision: str

    @property
    def heavy(self) -> bool:
        """A convolution, a matrix product or fused attention."""
        return bool(_HEAVY_KIND.search(self.kind) or (self.kind == 'kgen' and _HEAVY_FUSED.search(self.name)))


class TimingCache(NamedTuple):
    """What builds have timed: its bytes, and TensorRT's own object where this process made it.

    The next build takes the object: TensorRT 8.6 does not read back what it timed of fused regions, and times all of them again.
    """

    data: bytes = b''
    made: Any = None


NOTHING_TIMED = TimingCache()


@dataclass(frozen=True)
class Plan:
    """A built engine, serialised, with what the inspector says of it; `layers` is empty where it cannot be loaded to be asked."""

    data: bytes
    timing_cache: TimingCache
    layers: tuple[LayerInfo, ...]
    seconds: float
    strongly_typed: bool
    fp32_nodes: int = 0  # convolutions and matrix products that the graph itself keeps in FP32
    onnx_bytes: int = 0


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
        return _ONNX_TYPES.get(name, name.lower())
    values = (*graph.input, *graph.value_info, *graph.output)
    tensors = {value.name: name_of(value.type.tensor_type.elem_type) for value in values}
    tensors |= {initializer.name: name_of(initializer.data_type) for initializer in graph.initializer}
    heavy = Counter(tensors.get(node.output[0], 'unknown') for node in graph.node if node.op_type in HEAVY)
    return GraphTypes(tensors, heavy, tuple((node.name, node.op_type) for node in graph.node))


def pin_types(module: Any, network: Any, types: Mapping[str, str]) -> int:
    """Pin what `types`, the graph's, has in FP32, and convolutions and matrix products in FP16; returns how many are FP32.

    For builders without strong typing (TensorRT 8.6). A layer is FP32 when one of its outputs is, or, where it has only integer or
    boolean outputs (comparisons), one of its inputs. Layers that the parser adds without an ONNX name (a broadcast's reshape) go
    with their inputs. The builder chooses for light layers in FP16. Raises EngineError when the version cannot pin.
    """
    type_of, pinned = dict(types), 0
    for layer in (network.get_layer(index) for index in range(network.num_layers)):
        kind = layer.type.name
        inputs = {type_of.get(tensor.name) for tensor in _tensors(layer.num_inputs, layer.get_input)}
        outputs = list(_tensors(layer.num_outputs, layer.get_output))
        for tensor in outputs:
            if tensor.name not in type_of and kind != 'CONSTANT':
                type_of[tensor.name] = _inherit(inputs, tensor.dtype.name)
        computed = {type_of.get(tensor.name) for tensor in outputs}
        single = 'fp32' in computed or ('fp32' in inputs and computed.isdisjoint(_PINNED.values()))
        if kind in _UNPINNABLE or not (single or (kind in _HEAVY_LAYERS and 'fp16' in computed)):
            continue
        if not hasattr(layer, 'set_output_type') or not hasattr(layer, 'precision'):
            raise EngineError(f'this TensorRT can neither type a network strongly nor pin {layer.name} to a type: build in fp32')
        layer.precision = module.DataType.FLOAT if single else module.DataType.HALF
        for index, tensor in enumerate(outputs):
            if type_of.get(tensor.name) == 'fp32':
                layer.set_output_type(index, module.DataType.FLOAT)
        pinned += single
    return pinned


def read_layers(information: str) -> tuple[LayerInfo, ...]:
    """Layers out of the engine inspector's JSON, built with detailed verbosity. Raises EngineError."""
    try:
        layers = json.loads(information, strict=False)['Layers']  # 8.6 leaves control characters in its strings
        return tuple(LayerInfo(layer.get('Name', ''), layer.get('LayerType', ''), _precision(layer)) for layer in layers)
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # names alone, where it was not built to give details
        raise EngineError(f'the engine inspector gave no layers ({error}): {information[:200]!r}') from error


def audit(plan: Plan, precision: str) -> str:
    """One line on the precision of its convolutions and matrix products; EngineError when it is not the one asked for.

    Without layers (built for another GPU, so that nothing could be loaded here) the verdict rests only on strong typing. Where a
    weakly typed engine is all closed regions, its size is the only evidence: an FP16 graph whose weights came out in FP32 doubles.
    """
    if not plan.layers:
        if plan.strongly_typed:
            return f'{precision}: strongly typed; layers not inspected, as the engine cannot be loaded on this machine'
        raise EngineError('the engine could not be inspected and is not strongly typed: its precision is unknown')
    heavy = Counter(layer.precision for layer in plan.layers if layer.heavy)
    closed = sum(layer.kind in _OPAQUE for layer in plan.layers)
    counts = ', '.join(f'{count} in {name}' for name, count in sorted(heavy.items())) or 'none to be seen'
    if precision == 'fp32':
        wrong = sum(heavy.values()) > heavy['fp32']
    else:
        wrong = (heavy[precision] == 0 and not closed) or (precision == 'fp16' and heavy['fp32'] > plan.fp32_nodes)
    if wrong:
        raise EngineError(f'an {precision} engine was asked for, but its convolutions and matrix products are: {counts} '
                          f'({plan.fp32_nodes} belong in fp32): this TensorRT built something else; it is not kept')
    growth = len(plan.data) / plan.onnx_bytes if plan.onnx_bytes else 0.0
    if closed and not plan.strongly_typed and precision == 'fp16' and not heavy['fp16'] and growth > 1.6:
        raise EngineError(f'an fp16 engine was asked for, but its plan is {growth:.1f} times as large as its graph: '
                          'weights came out in fp32')
    hidden = f'; {closed} fused regions closed to inspection' if closed else ''
    return f'{precision}: convolutions and matrix products {counts}{hidden}'


def _tensors(count: int, get: Any) -> Iterator[Any]:
    return (tensor for tensor in map(get, range(count)) if tensor is not None)  # optional inputs are None


def _inherit(inputs: set[str | None], dtype: str) -> str:
    """The type of a tensor that the graph does not name."""
    if dtype not in _PINNED:
        return dtype.lower()
    return next((name for name in ('fp32', 'fp16') if name in inputs), _PINNED[dtype])


def _precision(layer: dict[str, Any]) -> str:
    inputs, outputs = ([_type(tensor) for tensor in layer.get(side) or ()] for side in ('Inputs', 'Outputs'))
    return next((name for name in (*inputs, *outputs) if name in _FLOATING), next(iter((*outputs, *inputs)), 'unknown'))


def _type(tensor: Any) -> str:
    text = f'{tensor.get("Format/Datatype", "")} {tensor.get("Datatype", "")}' if isinstance(tensor, dict) else ''
    return next((name for name, pattern in _PATTERNS if pattern.search(text)), 'unknown')
