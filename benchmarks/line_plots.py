"""Figures of lines over a few places that have names, such as numbers of keypoints, one panel under another."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lightglue_trt_ros.core.drawing import GRAY, INK, PAPER
from lightglue_trt_ros.evaluation.report.style import finish, new_figure, styled

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
