"""The pictures of a fleet's page: how figures are distributed over the recordings, and what changed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...core.drawing import GRAY, INK
from ..confidence import AHEAD, BEHIND
from ..metrics import METRICS
from ..report.style import Picture, finish, looks_of, new_figure, percent_axis, styled
from ..results import MatcherResult
from .comparison import AUC, INLIERS, PRECISION, Change, Comparison, change_at
from .rows import FleetRow

DISTRIBUTIONS = (AUC, PRECISION, INLIERS, 'matches', 'frame_ms_p50')
BETTER, WORSE = '#0072b2', '#d55e00'
MOST = 300  # recordings that are drawn one by one


@styled()
def draw_fleet(rows: Sequence[FleetRow], comparison: Comparison | None) -> list[Picture]:
    """Every picture that there is something for. `rows` are evaluated ones."""
    changed = [] if comparison is None else [_changes(comparison, stride) for stride in _strides(comparison)]
    return [picture for picture in (*changed, *(_distribution(rows, metric) for metric in DISTRIBUTIONS)) if picture is not None]


def _distribution(rows: Sequence[FleetRow], metric: str) -> Picture | None:
    """Share of the recordings up to a value, a curve for each matcher."""
    named = {each['name']: each['ours'] for row in rows for each in row.facts['matchers']}
    matchers = [MatcherResult(name, '', ours) for name, ours in named.items()]
    known = []
    for matcher, look in zip(matchers, looks_of(matchers), strict=True):
        figures = [value for row in rows if (value := row.figure(metric, matcher=matcher.name)) is not None]
        if figures:
            known.append((np.sort(figures), look))
    if not known:
        return None
    figure, (axes,) = new_figure()
    for values, look in known:
        axes.step([values[0], *values], 100 * np.arange(len(values) + 1) / len(values), where='post', **look.line)
    percent_axis(axes, 'Recordings up to …')
    axes.set_xlabel(_label(metric) + (f', {METRICS[metric].unit}' if METRICS[metric].unit else ''))
    better, end = ('right', 'begins') if METRICS[metric].higher_is_better else ('left', 'ends')
    return Picture(metric, f'Recordings by {_label(metric)}', 'Of consecutive frames: a curve '
                   f'further to the {better} is better, and where it {end} are the recordings to look at.', finish(figure, axes))


def _label(metric: str) -> str:
    short = {AUC: 'pose AUC@10', PRECISION: 'matches within 1 px', INLIERS: 'share of inliers',
             'frame_ms_p50': 'median time of a frame'}
    return short.get(metric, METRICS[metric].label)


def _strides(comparison: Comparison) -> list[int]:
    return sorted({each.stride for found in comparison.recordings.values() for each in found})


def _changes(comparison: Comparison, stride: int) -> Picture | None:
    """Every recording's difference with its interval, the worst first."""
    every = [change_at(changes, stride) for changes in comparison.recordings.values()]
    found: list[Change] = sorted((each for each in every if each is not None), key=lambda each: each.interval.difference)
    if not found or all(each.interval.difference == 0 for each in found):
        return None
    if len(found) > MOST:
        found = found[:MOST // 2] + found[-(MOST // 2):]
    figure, (axes,) = new_figure()
    for place, each in enumerate(found):
        interval = each.interval
        colour = {AHEAD: BETTER, BEHIND: WORSE}.get(interval.verdict, GRAY)
        axes.plot([place, place], [interval.low, interval.high], color=colour, lw=2, solid_capstyle='butt')
        axes.plot(place, interval.difference, 'o', color=colour, ms=6)
    axes.axhline(0, color=INK, lw=1)
    axes.set_title(f'Change at stride {stride}, points')
    axes.set_xticks([])
    axes.set_xlabel('recordings, the worst first' + f' (the {MOST // 2} at either end)' * (len(found) == MOST))
    caption = (f'Each recording now less before, with its 95 % interval, pairs {stride} frames apart: orange is worse, blue '
               'better, gray cannot be told from its pairs.')
    return Picture(f'changes_{stride}', f'Change at stride {stride}', caption, finish(figure))
