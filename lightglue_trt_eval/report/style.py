"""The look that a report's figures share: few elements, large type, one colour per matcher."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from lightglue_trt_ros.core.drawing import GRAY, GRID, INK, PAPER
from lightglue_trt_ros.core.types import Float64

from ..score.metrics import MatcherResult

WIDTH, HEIGHT, DPI = 6.0, 4.0, 200  # inches: 1200 x 800 pixels
PNG_LEVEL = 3  # half of the usual level's time, for a tenth more bytes
FONT = 14.5  # points: 9 of them remain on a screen of 360 px
RC = {'font.size': FONT, 'axes.titlesize': FONT, 'axes.titleweight': 'bold', 'axes.titlelocation': 'left', 'axes.titlecolor': INK,
      'axes.labelcolor': INK, 'axes.edgecolor': GRAY, 'axes.grid': True, 'axes.axisbelow': True, 'grid.color': GRID,
      'xtick.color': INK, 'ytick.color': INK, 'text.color': INK, 'figure.facecolor': PAPER, 'legend.frameon': False,
      **{f'axes.spines.{side}': False for side in ('top', 'right', 'left')}, 'xtick.major.pad': 7,
      **{f'{axis}tick.{kind}.size': 0 for axis in 'xy' for kind in ('major', 'minor')}}
# Okabe and Ito's colours, which colour-blind people tell apart; the dashes say the same again.
KNOWN = {'sift': '#e69f00', 'orb': '#009e73', 'klt': '#cc79a7'}
OURS = ('#0072b2', '#d55e00', '#56b4e9')
SPARE = ('#7f3c8d', '#8c6d31', '#4d4d4d', '#a6761d')
DASHES: tuple[Any, ...] = ('-', (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)), (0, (8, 2)), (0, (2.5, 1.2)))
LONGEST = 22  # letters of a name in a legend
STRETCHES = 150  # of a line over time

Look = dict[str, Any]  # how the lines of a matcher are drawn, in every figure: what matplotlib's plot takes


class Picture(NamedTuple):
    """A figure of the report."""

    name: str  # of its file, without .png
    title: str
    caption: str
    png: bytes
    photo: bool = False  # camera frames, which a page carries as JPEG


def looks_of(matchers: Sequence[MatcherResult]) -> list[Look]:
    """A look for each, by its name where it is a known baseline, so that reports resemble each other."""
    ours, spare, known = list(OURS), list(SPARE), dict(KNOWN)
    looks = []
    for number, matcher in enumerate(matchers):
        colour = None if matcher.ours else known.pop(matcher.name.lower().split()[0] if matcher.name.split() else '', None)
        if colour is None:
            palette = ours if matcher.ours and ours else spare
            colour = palette.pop(0) if palette else SPARE[number % len(SPARE)]
        looks.append({'color': colour, 'ls': DASHES[number % len(DASHES)], 'lw': 2.8 if number == 0 else 2.2,
                      'label': plain(matcher.name), 'dash_capstyle': 'butt'})
    return looks


def plain(name: str, longest: int = LONGEST) -> str:
    """A name as matplotlib may have it: no mathematics, not hidden from legends, not too long."""
    name = ' '.join(name.split()) or 'unnamed'
    if len(name) > longest:
        name = f'{name[:longest - 8]}\N{HORIZONTAL ELLIPSIS}{name[-7:]}'
    return (' ' * name.startswith('_') + name).replace('$', r'\$')


@contextmanager
def styled() -> Iterator[None]:
    """RC, for a block or a function that draws."""
    from matplotlib import rc_context
    with rc_context(RC):
        yield


def new_figure(panels: int = 1, height: float = HEIGHT) -> tuple[Any, list[Any]]:
    """A figure of the report's width, and its axes from top to bottom."""
    from matplotlib.figure import Figure
    figure = Figure(figsize=(WIDTH, height))
    return figure, list(np.atleast_1d(figure.subplots(panels, 1, sharex=True)))


def finish(figure: Any, axes: Any = None) -> bytes:
    """Lay out, with the legend of `axes` under them where it has more than one entry; the PNG."""
    handles, labels = axes.get_legend_handles_labels() if axes is not None else ([], [])
    bottom = 0.0
    if len(handles) > 1:
        rows = next(rows for rows in range(1, len(labels) + 1) if _legend_width(labels, rows) < WIDTH * 72 or rows == len(labels))
        columns = -(-len(labels) // rows)
        bottom = (rows * 1.35 + 0.5) * FONT / 72 / figure.get_figheight()
        figure.legend(handles, labels, loc='lower center', ncol=columns, borderaxespad=0.2, handlelength=1.7, columnspacing=1.2,
                      labelspacing=0.25, handletextpad=0.5, borderpad=0.1)
    for _ in range(2):  # axes of an equal scale have other limits, and other labels, once they have their room
        figure.tight_layout(rect=(0, bottom, 1, 1), pad=0.5)
    return save(figure)


def _legend_width(labels: Sequence[str], rows: int) -> float:
    """Points that a legend of so many rows takes, filled column by column; a generous estimate."""
    return sum((3.5 + 0.6 * max(map(len, labels[start:start + rows]))) * FONT for start in range(0, len(labels), rows))


def save(figure: Any) -> bytes:
    """The PNG of a figure as it is."""
    file = io.BytesIO()
    figure.savefig(file, format='png', dpi=DPI, facecolor=PAPER, pil_kwargs={'compress_level': PNG_LEVEL})
    return file.getvalue()


def draw_shares(curves: Iterable[tuple[ArrayLike, ArrayLike, Mapping[str, Any]]], title: str, label: str,
                limits: tuple[float, float] | None = None, ticks: Mapping[Any, str] | None = None, log: bool = False) -> bytes:
    """The PNG of shares, 0 to 100 %: a line for each x (N,), percentages (N,), and how it is drawn; `label` is that of x."""
    figure, (axes,) = new_figure()
    for x, percentages, line in curves:
        axes.plot(x, percentages, **line)
    axes.set_title(title)
    axes.set_ylim(0, 102)
    axes.set_yticks([0, 25, 50, 75, 100], ['0', '25', '50', '75', '100 %'])
    if log:
        axes.set_xscale('log')
    if ticks is not None:
        axes.set_xticks(list(ticks), list(ticks.values()))
        axes.set_xticks([], minor=True)
    if limits is not None:
        axes.set_xlim(*limits)
    axes.set_xlabel(label)
    return finish(figure, axes)


def thinned(times: Float64, values: Float64) -> tuple[Float64, ...]:
    """Times, medians, minima and maxima (S,) over stretches of equal numbers of values (N,), N > 0: STRETCHES of them at most."""
    stretches = np.array_split(np.stack([times, values]), min(STRETCHES, len(values)), axis=1)
    return tuple(np.array([(np.median(t), np.median(v), v.min(), v.max()) for t, v in stretches]).T)
