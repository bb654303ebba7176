"""What a builder made of a graph, as the engine inspector tells it, and whether that is what was asked for."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import EngineError

_HEAVY_KIND = re.compile(r'conv|gemm|mat(rix)?_?mul|mha|fully_?connected', re.I)
_HEAVY_FUSED = re.compile(r'gemm|mha', re.I)  # in the name of a generated kernel
_OPAQUE = frozenset({'Myelin', 'ForeignNode'})  # 8.6 shows a fused region as one layer
_TYPES = (('fp8', r'FP8|E4M3'), ('fp16', r'\bFP16|\bHalf'), ('bf16', r'BF16|BFloat16'), ('fp32', r'FP32|\bFloat\b'),
          ('uint8', r'UInt8'), ('int8', r'Int8'), ('int32', r'Int32'), ('int64', r'Int64'), ('bool', r'Bool'),
          ('fp4', r'FP4|E2M1'), ('int4', r'Int4'))
_PATTERNS = tuple((name, re.compile(pattern, re.I)) for name, pattern in _TYPES)
_FLOATING = frozenset({'fp8', 'fp16', 'bf16', 'fp32', 'fp4'})


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


def read_layers(information: str) -> tuple[LayerInfo, ...]:
    """Layers out of the engine inspector's JSON, built with detailed verbosity. Raises EngineError without details."""
    try:
        layers = json.loads(information, strict=False)['Layers']  # 8.6 leaves control characters in its strings
    except (ValueError, KeyError, TypeError) as error:
        raise EngineError(f'the engine inspector gave no layers ({error}): {information[:200]!r}') from error
    if any(not isinstance(layer, dict) for layer in layers):
        raise EngineError('the engine inspector gave names alone: the engine was not built with detailed profiling verbosity')
    return tuple(LayerInfo(layer.get('Name', ''), layer.get('LayerType', ''), _precision(layer)) for layer in layers)


def audit(layers: Iterable[LayerInfo], precision: str, *, strongly_typed: bool, fp32_nodes: int, weights_ratio: float) -> str:
    """One line on the precision of the convolutions and matrix products; EngineError when it is not the one asked for.

    Without layers (built for another GPU, so that nothing could be loaded here) the verdict rests on strong typing alone.
    `fp32_nodes`: how many such operators the graph itself keeps in FP32. `weights_ratio`: plan size over graph size, the only
    evidence where a weakly typed engine is all closed regions; an FP16 graph whose weights came out in FP32 doubles.
    """
    layers = tuple(layers)
    if not layers:
        if strongly_typed:
            return f'{precision}: strongly typed; layers not inspected, as the engine cannot be loaded on this machine'
        raise EngineError('the engine could not be inspected and is not strongly typed: its precision is unknown')
    heavy = Counter(layer.precision for layer in layers if layer.heavy)
    closed = sum(layer.kind in _OPAQUE for layer in layers)
    found = ', '.join(f'{count} in {name}' for name, count in sorted(heavy.items())) or 'none to be seen'
    if precision == 'fp32':
        wrong = sum(heavy.values()) > heavy['fp32']
    else:
        wrong = (heavy[precision] == 0 and not closed) or (precision == 'fp16' and heavy['fp32'] > fp32_nodes)
    if wrong:
        raise EngineError(f'an {precision} engine was asked for, but its convolutions and matrix products are: {found} '
                          f'({fp32_nodes} belong in fp32): this TensorRT built something else; it is not kept')
    if closed and not strongly_typed and precision == 'fp16' and not heavy['fp16'] and weights_ratio > 1.6:
        raise EngineError(f'an fp16 engine was asked for, but its plan is {weights_ratio:.1f} times as large as its graph: '
                          'weights came out in fp32')
    hidden = f'; {closed} fused regions closed to inspection' if closed else ''
    return f'{precision}: convolutions and matrix products {found}{hidden}'


def _precision(layer: dict[str, Any]) -> str:
    inputs, outputs = ([_type(tensor) for tensor in layer.get(side) or ()] for side in ('Inputs', 'Outputs'))
    return next((name for name in (*inputs, *outputs) if name in _FLOATING), next(iter((*outputs, *inputs)), 'unknown'))


def _type(tensor: Any) -> str:
    text = f'{tensor.get("Format/Datatype", "")} {tensor.get("Datatype", "")}' if isinstance(tensor, dict) else ''
    return next((name for name, pattern in _PATTERNS if pattern.search(text)), 'unknown')
