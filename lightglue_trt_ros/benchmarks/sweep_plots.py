"""The sweep for people: rows of a table, notes on what is missing, and three pictures."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from ..pictures import INK
from ..reports.line_plots import Panel, Series, draw_lines
from ..reports.style import OURS, Picture
from .sweep import EXACT, SPREAD, Cell
from .sweep_runners import Missing

HEADER = ('pixels', 'K', 'precision', f'ms (p{SPREAD[0]} to p{SPREAD[1]})', 'times faster', 'engine MiB', 'ONNX MiB',
          'easy: count, F1', 'hard: count, F1')
LEFT = 1
TITLE = 'Precisions of the matcher; in brackets the spread, or the share of the FP32 file; count: matches over those of FP32'
COLOURS = dict(zip(('fp32', 'fp16', 'fp8'), (INK, *OURS), strict=False))
CROSS = '\N{MULTIPLICATION SIGN} '  # as the figures mark a gap
_MIB = 1 << 20

Value = Callable[[Cell], float | Missing]


def table_rows(cells: Iterable[Cell]) -> list[list[str]]:
    """A row for each cell, under HEADER; FP32 has the number of matches where the others have count ratio and F1."""
    return [[f'{cell.side}x{cell.side}', str(cell.max_keypoints), cell.precision.upper(), _spread(cell.match_ms),
             _spread(cell.speedup), _size(cell.plans if isinstance(cell.plans, Missing) else cell.plans.bytes, cell.plan_ratio),
             _size(cell.onnx_bytes, cell.onnx_ratio), _agreed(cell, 'easy'), _agreed(cell, 'hard')] for cell in cells]


def notes(cells: Sequence[Cell]) -> list[str]:
    """A line for each thing that the table cannot say by itself."""
    lines = []
    for cell in cells:
        if cell.precision == EXACT and min(cell.keypoints.values(), default=cell.max_keypoints) < cell.max_keypoints:
            found = ', '.join(f'{kind} pair {count}' for kind, count in sorted(cell.keypoints.items()))
            lines.append(f'{cell.side}x{cell.side}, K = {cell.max_keypoints}: fewer keypoints are found ({found}); the other rows '
                         'are padding, and cost the same time')
    if any(cell.emulated for cell in cells):
        lines.append('(e): an emulation, which rounds where FP8 rounds and computes in FP32')
    return lines + [f'{reason}: {advice}' for reason, advice in dict.fromkeys((one.reason, one.advice) for one in _missing(cells))
                    if advice]


def commands(cells: Sequence[Cell]) -> list[str]:
    """What makes the missing ones, each once."""
    return list(dict.fromkeys(one.command for one in _missing(cells) if one.command))


def markdown(about: Sequence[str], cells: Sequence[Cell]) -> str:
    """The table and its notes, to be published."""
    rows = [HEADER, ['---'] * len(HEADER), *table_rows(cells)]
    return '\n'.join([*(f'- {line}' for line in about), '', *(f'| {" | ".join(row)} |' for row in rows), '',
                      *(f'- {line}' for line in notes(cells)), ''])


def draw_sweep(cells: Sequence[Cell]) -> list[Picture]:
    """Speed-up, size and agreement over keypoints, a line for each precision and size of image."""
    places = list(dict.fromkeys(cell.max_keypoints for cell in cells))
    others = [cell for cell in cells if cell.precision != EXACT]

    def panel(title: str, shown: Sequence[Cell], value: Value, bottom: float = 0.0, marked: float | None = None, *,
              spread: bool = False, matches: bool = False) -> Panel:
        return Panel(title, _series(shown, places, value, spread=spread, matches=matches), bottom, marked, _remark(shown, value))

    agreed: dict[str, Value] = {f'{title}, {kind} pair': _agreement(kind, name) for kind in ('easy', 'hard')
                                for title, name in (('F1', 'f1'), ('Number of matches', 'count_ratio'))}
    lowest = min([0.95, *(_number(value(cell)) for value in agreed.values() for cell in others)])  # NaN is never less
    bottom = max(0.0, math.floor(20 * lowest - 0.6) / 20)  # room for a remark
    figures = {
        'speed': ('Speed-up', [panel('Matcher: times faster than FP32', others, lambda cell: _median(cell.speedup), marked=1.0,
                                     spread=True)]),
        'size': ('Size', [panel('Engine, MiB', cells, _engine_mib), panel('ONNX file, MiB', cells, _onnx_mib)]),
        'agreement': ('Agreement with FP32', [panel(f'{title} (FP32: 1)', others, value, bottom, 1.0, matches=True)
                                              for title, value in agreed.items()]),
    }
    return [Picture(name, title, '', draw_lines(panels, list(map(str, places)), 'keypoints'))
            for name, (title, panels) in figures.items()]


def _series(cells: Sequence[Cell], places: Sequence[int], value: Value, *, spread: bool, matches: bool) -> list[Series]:
    """A line for each precision and side, without any value where all is missing."""
    lines = []
    for precision, (level, side) in itertools.product(dict.fromkeys(cell.precision for cell in cells),
                                                      enumerate(dict.fromkeys(cell.side for cell in cells))):
        row = {cell.max_keypoints: cell for cell in cells if (cell.precision, cell.side) == (precision, side)}
        emulated = ' (emulated)' if matches and any(cell.emulated for cell in row.values()) else ''
        lines.append(Series(f'{precision.upper()}, {side} px{emulated}', COLOURS[precision],
                            [_number(value(row[place])) for place in places],
                            [_ends(row[place].speedup) for place in places] if spread else (), level))
    return lines


def _remark(cells: Sequence[Cell], value: Value) -> str:
    """What is missing in a panel, and why, by precision where not all lack everything; a cross stands where a part is missing."""
    said = {}
    for precision in dict.fromkeys(cell.precision for cell in cells):
        figures = [value(cell) for cell in cells if cell.precision == precision]
        reasons = ', '.join(dict.fromkeys(one.reason for one in figures if isinstance(one, Missing)))
        cross = '' if all(isinstance(one, Missing) for one in figures) else CROSS
        if reasons:
            said[f'{cross}{precision.upper()}'] = reasons
    if len(said) > 1 and len(set(said.values())) == 1 and all(isinstance(value(cell), Missing) for cell in cells):
        return next(iter(said.values()))
    return '; '.join(f'{name}: {reasons}' for name, reasons in said.items())


def _agreement(kind: str, name: str) -> Value:
    return lambda cell: cell.agreement if isinstance(cell.agreement, Missing) else float(getattr(cell.agreement[kind], name))


def _engine_mib(cell: Cell) -> float | Missing:
    return cell.plans if isinstance(cell.plans, Missing) else cell.plans.bytes / _MIB


def _onnx_mib(cell: Cell) -> float | Missing:
    return cell.onnx_bytes if isinstance(cell.onnx_bytes, Missing) else cell.onnx_bytes / _MIB


def _median(values: list[float] | Missing) -> float | Missing:
    return values if isinstance(values, Missing) else float(np.median(values))


def _ends(values: list[float] | Missing) -> tuple[float, float]:
    low, high = (math.nan, math.nan) if isinstance(values, Missing) else np.percentile(values, SPREAD)
    return float(low), float(high)


def _number(value: float | Missing) -> float:
    return math.nan if isinstance(value, Missing) else value


def _missing(cells: Iterable[Cell]) -> Iterator[Missing]:
    return (value for cell in cells for value in vars(cell).values() if isinstance(value, Missing))


def _spread(values: list[float] | Missing) -> str:
    if isinstance(values, Missing):
        return values.reason
    low, middle, high = np.percentile(values, (SPREAD[0], 50, SPREAD[1]))
    digits = 2 if middle < 10 else 1 if middle < 100 else 0
    return f'{middle:.{digits}f}' + (f' ({low:.{digits}f} to {high:.{digits}f})' if low < high else '')


def _size(size: int | Missing, ratio: float | Missing) -> str:
    if isinstance(size, Missing):
        return size.reason
    return f'{size / _MIB:.1f} ({ratio.reason if isinstance(ratio, Missing) else f"{ratio:.2f}"})'


def _agreed(cell: Cell, kind: str) -> str:
    if isinstance(cell.matches, Missing):
        return cell.matches.reason
    if cell.precision == EXACT or isinstance(cell.agreement, Missing):
        return f'{cell.matches[kind]} matches'
    return f'{cell.agreement[kind].count_ratio:.3f}, {cell.agreement[kind].f1:.3f}{" (e)" if cell.emulated else ""}'
