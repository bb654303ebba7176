"""The sweep's report: rows of a table, notes on what is missing, and three figures of lines."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.sweep.cells import EXACT, SPREAD, Cell
from lightglue_trt_eval.report.style import OURS, Picture, finish, new_figure, styled
from lightglue_trt_ros.core.drawing import GRAY, INK, PAPER

HEADER = ('pixels', 'K', 'precision', f'ms (p{SPREAD[0]} to p{SPREAD[1]})', 'times faster', 'engine MiB', 'ONNX MiB',
          'easy: count, F1', 'hard: count, F1')
LEFT = 1
TITLE = 'Precisions of the matcher; in brackets the percentiles, or the share of the FP32 file; count: matches over those of FP32'
COLOURS = dict(zip(('fp32', 'fp16', 'fp8'), (INK, *OURS), strict=False))
CROSS = '\N{MULTIPLICATION SIGN} '  # as the figures mark a gap
HEIGHTS = (3.4, 2.75, 2.2, 1.9)  # inches of each panel: of one, two, three, more
REST = 1.0  # for what they share
STYLES = (('-', 6.0, 'o', 12, 0.45), ((0, (3, 1.6)), 2.6, 's', 7, 1.0), ((0, (1, 1.2)), 2.6, '^', 7, 1.0))  # by level
ASIDE = 0.05  # of the distance between places, for lines whose spreads would cover each other


@dataclass(frozen=True)
class Series:
    """One line; a value that is NaN leaves a gap, and a cross at the foot of the panel."""

    label: str
    colour: str
    values: Sequence[float]  # one for each place
    spread: Sequence[tuple[float, float]] = ()  # lower and upper end, one for each place
    level: int = 0  # of lines that have a colour in common: wide and pale, then dashed on top of it


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    series: Sequence[Series]
    bottom: float = 0.0
    marked: float | None = None  # a level to compare with
    remark: str = ''  # written into the panel: what is missing, and why


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
    """Commands that make the missing ones, each once."""
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


@styled()
def draw_lines(panels: Sequence[Panel], places: Sequence[str], label: str) -> bytes:
    """The PNG. All panels have the same series; the legend has those that have a value somewhere."""
    named = {series.label for panel in panels for series in panel.series if np.isfinite(series.values).any()}
    figure, axes = new_figure(len(panels), REST + len(panels) * HEIGHTS[min(len(panels), len(HEIGHTS)) - 1])
    for part, panel in zip(axes, panels, strict=True):
        _draw(part, panel, named, len(places))
    axes[-1].set_xticks(range(len(places)), list(places))
    axes[-1].set_xlabel(label if len(named) != 1 else f'{label} ({next(iter(named))})')  # one has no legend
    return finish(figure, axes[0])


def _draw(axes: Any, panel: Panel, named: Collection[str], places: int) -> None:
    axes.set_title(panel.title)
    axes.set_xlim(-0.25, places - 0.75)
    known = [value for series in panel.series for value in (*series.values, *(end for ends in series.spread for end in ends))
             if math.isfinite(value)]
    highest = max([*known, panel.bottom + 0.1 if panel.marked is None else panel.marked])
    axes.set_ylim(panel.bottom, panel.bottom + 1.12 * (highest - panel.bottom))
    if panel.marked is not None:
        axes.axhline(panel.marked, color=GRAY, lw=2, zorder=1)
    for number, series in enumerate(panel.series):
        if series.label in named:
            _draw_series(axes, panel, series, (number - (len(panel.series) - 1) / 2) * ASIDE if series.spread else 0.0)
    axes.locator_params(axis='y', nbins=4)
    if not known:
        axes.set_yticks([])
        axes.grid(visible=False)
    if panel.remark:
        axes.text(0.02, 0.06 if known else 0.5, panel.remark, transform=axes.transAxes, va='bottom', color=INK, zorder=7,
                  bbox={'facecolor': PAPER, 'edgecolor': 'none', 'alpha': 0.8, 'pad': 1.5})


def _draw_series(axes: Any, panel: Panel, series: Series, aside: float) -> None:
    places, values = np.arange(len(series.values)) + aside, np.array(series.values, float)
    dashes, width, marker, size, alpha = STYLES[1 if aside and not series.level else min(series.level, len(STYLES) - 1)]
    if aside:  # nothing lies on top of it
        dashes, width, size, marker = STYLES[min(1, series.level)][0], 2.4, 7, STYLES[min(series.level, len(STYLES) - 1)][2]
    axes.plot(places, values, color=series.colour, ls=dashes, lw=width, marker=marker, ms=size, alpha=alpha, label=series.label,
              dash_capstyle='butt', zorder=3 + series.level)
    for place, value, (low, high) in zip(places, values, series.spread, strict=False):
        if math.isfinite(value):
            axes.plot([place, place], [low, high], color=series.colour, lw=5, alpha=0.4, solid_capstyle='butt', zorder=2)
    gaps = places[~np.isfinite(values)]
    if 0 < len(gaps) < len(values):
        axes.plot(gaps, np.full(len(gaps), panel.bottom), 'x', color=series.colour, ms=9, mew=2.5, clip_on=False, zorder=6)
