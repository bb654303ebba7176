"""Types on builders without strong typing (TensorRT 8.6): what the typed graph says is pinned, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import EngineError

# these carry their own type (constants, conversions) or have none that can be pinned (shapes)
_UNPINNABLE = frozenset({'CONSTANT', 'SHAPE', 'CAST', 'IDENTITY', 'ASSERTION'})
_HEAVY = frozenset({'CONVOLUTION', 'DECONVOLUTION', 'FULLY_CONNECTED', 'MATRIX_MULTIPLY'})
_FLOATS = {'FLOAT': 'fp32', 'HALF': 'fp16'}


def pin_types(module: Any, network: Any, types: Mapping[str, str]) -> int:
    """Pin the FP32 islands of `network`, and its convolutions and matrix products in FP16; returns how many are FP32.

    `types` names every tensor's type in the graph. A layer belongs to an island when one of its outputs is FP32, or, where it has
    only integer or boolean outputs (comparisons), one of its inputs. Layers that the parser adds without an ONNX name (a
    broadcast's reshape) go with their inputs. What is light and FP16 is left to the builder. Raises EngineError when the version
    cannot pin.
    """
    known, islands = dict(types), 0
    for layer in (network.get_layer(index) for index in range(network.num_layers)):
        kind = layer.type.name
        inputs = {known.get(tensor.name) for tensor in _tensors(layer.num_inputs, layer.get_input)}
        outputs = list(_tensors(layer.num_outputs, layer.get_output))
        for tensor in outputs:
            if tensor.name not in known and kind != 'CONSTANT':
                known[tensor.name] = _inherit(inputs, tensor.dtype.name)
        computed = {known.get(tensor.name) for tensor in outputs}
        single = 'fp32' in computed or ('fp32' in inputs and computed.isdisjoint(_FLOATS.values()))
        if kind in _UNPINNABLE or not (single or (kind in _HEAVY and 'fp16' in computed)):
            continue
        if not hasattr(layer, 'set_output_type') or not hasattr(layer, 'precision'):
            raise EngineError(f'this TensorRT can neither type a network strongly nor pin {layer.name} to a type: build in fp32')
        layer.precision = module.DataType.FLOAT if single else module.DataType.HALF
        for index, tensor in enumerate(outputs):
            if known.get(tensor.name) == 'fp32':
                layer.set_output_type(index, module.DataType.FLOAT)
        islands += single
    return islands


def _tensors(count: int, get: Any) -> Iterator[Any]:
    return (tensor for tensor in map(get, range(count)) if tensor is not None)  # optional inputs are None


def _inherit(inputs: set[str | None], dtype: str) -> str:
    """The type of a tensor that the graph does not name."""
    if dtype not in _FLOATS:
        return dtype.lower()
    return next((name for name in ('fp32', 'fp16') if name in inputs), _FLOATS[dtype])
