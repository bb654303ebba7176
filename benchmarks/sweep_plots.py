"""The sweep for people: rows of a table, notes on what is missing, and three pictures."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from benchmarks.line_plots import Panel, Series, draw_lines
from benchmarks.sweep import EXACT, SPREAD, Cell
from lightglue_trt_ros.core.drawing import INK
from lightglue_trt_ros.evaluation.report.style import OURS, Picture

HEADER = ('pixels', 'K', 'precision', f'ms (p{SPREAD[0]} to p{SPREAD[1]})', 'times faster', 'engine MiB', 'ONNX MiB',
          'easy: count, F1', 'hard: count, F1')
LEFT = 1
TITLE = 'Precisions of the matcher; in brackets the spread, or the share of the FP32 file; count: matches over those of FP32'
COLOURS = dict(zip(('fp32', 'fp16', 'fp8'), (INK, *OURS), strict=False))
CROSS = '\N{MULTIPLICATION SIGN} '  # as the figures mark a gap


def table_rows(cells: Iterable[Cell]) -> list[list[str]]:
    """A row for each cell, under HEADER; FP32 has the number of matches where the others have count ratio and F1."""
    return [[f'{cell.side}x{cell.side}', str(cell.max_keypoints), cell.precision.upper(), _spread(cell, 'match_ms'),
             _spread(cell, 'speedup'), _size(cell, 'engine'), _size(cell, 'onnx'), _agreed(cell, 'easy'), _agreed(cell, 'hard')]
            for cell in cells]


def notes(cells: Sequence[Cell]) -> list[str]:
    """A line for each thing that the table cannot say by itself; what lies behind a reason is told of the first that has it."""
    lines = []
    for cell in cells:
        if cell.precision == EXACT and min(cell.keypoints.values(), default=cell.max_keypoints) < cell.max_keypoints:
            found = ', '.join(f'{kind} pair {count}' for kind, count in sorted(cell.keypoints.items()))
            lines.append(f'{cell.side}x{cell.side}, K = {cell.max_keypoints}: fewer keypoints are found ({found}); the other rows '
                         'are padding, and cost the same time')
    if any(cell.emulated for cell in cells):
        lines.append('(e): an emulation, which rounds where FP8 rounds and computes in FP32')
    texts: dict[str, str] = {}
    for missing in itertools.chain.from_iterable(cell.missing.values() for cell in cells):
        texts.setdefault(missing.reason, ' '.join(missing.text.splitlines()))
    return lines + [f'{reason}: {text}' for reason, text in texts.items()]


def commands(cells: Sequence[Cell]) -> list[str]:
    """What makes the missing ones, each once."""
    last_lines = (missing.text.splitlines()[-1] for cell in cells for missing in cell.missing.values())
    return [line for line in dict.fromkeys(last_lines) if line.startswith('ros2 ')]


def markdown(about: Sequence[str], cells: Sequence[Cell]) -> str:
    """The table and its notes, to be published."""
    rows = [HEADER, ['---'] * len(HEADER), *table_rows(cells)]
    return '\n'.join([*(f'- {line}' for line in about), '', *(f'| {" | ".join(row)} |' for row in rows), '',
                      *(f'- {line}' for line in notes(cells)), ''])


def draw_sweep(cells: Sequence[Cell]) -> list[Picture]:
    """Speed-up, size and agreement over keypoints, a line for each precision and size of image."""
    others = [cell for cell in cells if cell.precision != EXACT]
    agreed = {f'{title}, {kind} pair (FP32: 1)': _agreement(kind, name) for kind in ('easy', 'hard')
              for title, name in (('F1', 'f1'), ('Number of matches', 'count_ratio'))}
    lowest = np.nanmin([0.95, *(value(cell) for value in agreed.values() for cell in others)])
    bottom = max(0.0, math.floor(20 * lowest - 0.6) / 20)  # room for a remark
    figures = {
        'speed': ('Speed-up', [_panel('Matcher: times faster than FP32', others, 'speedup', _median_speedup, marked=1.0)]),
        'size': ('Size', [_panel('Engine, MiB', cells, 'engine_mib', lambda cell: cell.engine_mib),
                          _panel('ONNX file, MiB', cells, 'onnx_mib', lambda cell: cell.onnx_mib)]),
        'agreement': ('Agreement with FP32', [_panel(title, others, 'agreement', value, bottom, 1.0)
                                              for title, value in agreed.items()])}
    places = [str(count) for count in dict.fromkeys(cell.max_keypoints for cell in cells)]
    return [Picture(name, title, '', draw_lines(panels, places, 'keypoints')) for name, (title, panels) in figures.items()]


def _panel(title: str, cells: Sequence[Cell], figure: str, value: Callable[[Cell], float], bottom: float = 0.0,
           marked: float | None = None) -> Panel:
    """A line for each precision and side, with gaps where the figure is missing, and a remark that says why."""
    lines, remarks = [], []
    for precision in dict.fromkeys(cell.precision for cell in cells):
        mine = [cell for cell in cells if cell.precision == precision]
        for level, side in enumerate(dict.fromkeys(cell.side for cell in mine)):
            row = [cell for cell in mine if cell.side == side]
            emulated = ' (emulated)' if figure == 'agreement' and any(cell.emulated for cell in row) else ''
            spread = [tuple(np.percentile(cell.speedup or [math.nan], SPREAD)) for cell in row] if figure == 'speedup' else ()
            lines.append(Series(f'{precision.upper()}, {side} px{emulated}', COLOURS[precision], [value(cell) for cell in row],
                                spread, level))
        missing = [cell.missing[figure].reason for cell in mine if figure in cell.missing]
        if missing:  # a cross stands where a part is missing
            cross = CROSS if len(missing) < len(mine) else ''
            remarks.append(f'{cross}{precision.upper()}: {", ".join(dict.fromkeys(missing))}')
    return Panel(title, lines, bottom, marked, '; '.join(remarks))


def _median_speedup(cell: Cell) -> float:
    return float(np.median(cell.speedup or [math.nan]))


def _agreement(kind: str, name: str) -> Callable[[Cell], float]:
    return lambda cell: getattr(cell.agreement[kind], name) if cell.agreement else math.nan


def _spread(cell: Cell, figure: str) -> str:
    if figure in cell.missing:
        return cell.missing[figure].reason
    low, middle, high = np.percentile(getattr(cell, figure), (SPREAD[0], 50, SPREAD[1]))
    digits = 2 if middle < 10 else 1 if middle < 100 else 0
    return f'{middle:.{digits}f}' + (f' ({low:.{digits}f} to {high:.{digits}f})' if low < high else '')


def _size(cell: Cell, what: str) -> str:
    mib, ratio = f'{what}_mib', f'{what}_ratio'
    if mib in cell.missing:
        return cell.missing[mib].reason
    share = cell.missing[ratio].reason if ratio in cell.missing else f'{getattr(cell, ratio):.2f}'
    return f'{getattr(cell, mib):.1f} ({share})'


def _agreed(cell: Cell, kind: str) -> str:
    if 'matches' in cell.missing:
        return cell.missing['matches'].reason
    if cell.precision == EXACT or not cell.agreement:
        return f'{cell.matches[kind]} matches'
    return f'{cell.agreement[kind].count_ratio:.3f}, {cell.agreement[kind].f1:.3f}{" (e)" if cell.emulated else ""}'
