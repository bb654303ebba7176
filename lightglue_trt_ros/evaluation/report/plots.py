"""The figures of a report, from an Evaluation: each is None where there is nothing to show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...core.drawing import INK
from ...core.types import Float64
from ..results import DEVIATION_EDGES, ERROR_EDGES_PX, Evaluation, MatcherResult
from .pair_pictures import draw_worst
from .style import Look, Picture, finish, looks_of, new_figure, percent_axis, plain, styled, thinned

Drawn = Sequence[tuple[MatcherResult, Look]]
SMALL, LARGE = 0.06, 0.15  # shares of a frame: what no stage explains is drawn from the one on, stages are named from the other on


@styled()
def draw_all(evaluation: Evaluation) -> list[Picture]:
    """Every figure that the evaluation has something for, in reading order."""
    drawn = list(zip(evaluation.matchers, looks_of(evaluation.matchers), strict=True))
    figures = (_trajectory(drawn), _over_time(drawn), _pose_errors(drawn), _epipolar_errors(drawn), _deviations(drawn),
               _strides(drawn, evaluation.strides), _track_lengths(drawn), _stage_times(drawn))
    return [picture for picture in figures if picture is not None] + draw_worst(evaluation)


def _trajectory(drawn: Drawn) -> Picture | None:
    known = [(matcher.odometry, look) for matcher, look in drawn if matcher.odometry is not None
             and np.isfinite(matcher.odometry.poses[:, :3, 3]).all(1).sum() > 1]
    if not known:
        return None
    truth = next((found.true_poses[:, :3, 3] for found, _ in known if found.true_poses is not None), None)
    lines = [found.poses[:, :3, 3] for found, _ in known]
    main = lines[0] if truth is None else truth
    across, up = np.argsort(np.nan_to_num(_span(main)))[::-1][:2]
    figure, (axes,) = new_figure(height=4.8)
    for line, (_, look) in zip(lines, known, strict=True):
        axes.plot(line[:, across], line[:, up], **{**look.line, 'zorder': 4 if look is known[0][1] else 3})
    if truth is not None:
        axes.plot(truth[:, across], truth[:, up], color=INK, lw=6, alpha=0.3, label='truth', zorder=2)
    start = main[np.isfinite(main).all(1)][0]
    axes.plot(start[across], start[up], 'o', color=INK, ms=9, label='start', zorder=5, ls='none')
    inside = main if truth is None else np.concatenate([truth, lines[0]])
    size = max(float(np.nanmax(_span(inside))), 1e-9)
    low, high = np.nanmin(inside, 0) - 0.3 * size, np.nanmax(inside, 0) + 0.3 * size
    shown = [np.clip(line, low, high) for line in [inside, *lines]]
    clipped = any(((line < low) | (line > high)).any() for line in lines)
    box = np.concatenate(shown)[:, [across, up]]
    (left, bottom), (right, top) = np.nanmin(box, 0) - 0.06 * size, np.nanmax(box, 0) + 0.06 * size
    axes.locator_params(nbins=6)
    axes.set_xlim(left, right, auto=True)  # as wide as this or, for an equal scale, wider
    axes.set_ylim(bottom, top, auto=True)
    axes.set_aspect('equal', adjustable='datalim')
    if across > up:  # turned by a quarter, not mirrored
        axes.invert_yaxis()
    unit = 'm' if known[0][0].scale == 'truth' or truth is not None else 'steps'
    axes.set_xlabel(f'{"xyz"[across]}, {unit}')
    axes.set_title(f'Trajectory: {"xyz"[up]} against {"xyz"[across]}, {unit}')
    caption = ('Two-view poses chained from frame to frame, seen where they move the most; '
               + ('aligned with the truth (Sim(3)): the closer to the wide gray line, the better.' if truth is not None else
                  'without truth every step has the length 1, so only the shape means something.')
               + (' Lines that leave the picture go on outside it.' if clipped else ''))
    return Picture('trajectory', 'Trajectory', caption, finish(figure, axes))


def _span(points: Float64) -> Float64:
    return np.asarray(np.nanmax(points, 0) - np.nanmin(points, 0), float)


def _over_time(drawn: Drawn) -> Picture | None:
    shown = [(matcher.pairs[1], look) for matcher, look in drawn if matcher.pairs.get(1)]
    if not shown:
        return None
    columns = ['matches'] + ['inliers'] * any(pair.model for pairs, _ in shown for pair in pairs)
    begin = min(pairs[0].stamp for pairs, _ in shown)
    figure, panels = new_figure(len(columns), 3.4 if len(columns) == 1 else 5.2)
    thin = False
    for axes, name in zip(panels, columns, strict=True):
        for number, (pairs, look) in enumerate(shown):
            values = np.array([getattr(pair, name) for pair in pairs], float)
            times, median, low, high = thinned(np.array([pair.stamp for pair in pairs]) - begin, values)
            if number == 0 and len(times) < len(values):
                thin = True
                axes.fill_between(times, low, high, color=look.colour, alpha=0.2, lw=0)
            axes.plot(times, median, **look.line, marker='o' if len(times) == 1 else '', zorder=3 if number else 4)
        axes.set_title(f'{name.capitalize()} per frame')
        axes.set_ylim(0, max(1.0, axes.get_ylim()[1] * 1.05))
        axes.margins(x=0.01)
        axes.locator_params(axis='y', nbins=4)
    panels[-1].set_xlabel('time, s')
    caption = 'Dips are the frames to look at: few matches, or many of them that fit no motion of the camera.'
    if thin:
        caption += f' Lines are medians of neighbouring frames; the band holds every frame of {drawn[0][0].name}.'
    return Picture('matches_over_time', 'Matches and inliers over time' if len(columns) > 1 else 'Matches over time', caption,
                   finish(figure, panels[0]))


def _pose_errors(drawn: Drawn) -> Picture | None:
    known = [(np.array(found, float), look) for matcher, look in drawn
             if (found := [pair.pose_error_deg for pair in matcher.pairs.get(1, []) if pair.pose_error_deg is not None])]
    if not known:
        return None
    finite = [errors[np.isfinite(errors)] for errors, _ in known]
    typical = min((float(np.percentile(errors, 95)) for errors in finite if len(errors)), default=20.0)
    limit = next((value for value in (1, 2, 5, 10) if typical <= value), 20)
    figure, (axes,) = new_figure()
    levels = np.linspace(0, limit, 300)
    for errors, look in known:
        share = np.searchsorted(np.sort(errors), levels, side='right') / len(errors)
        axes.plot(levels, 100 * share, **look.line)
    percent_axis(axes, 'Pairs with a pose error up to …')
    axes.set_xlim(0, limit)
    axes.set_xlabel('larger of rotation and direction error, deg')
    caption = ('The higher and further to the left, the better; pairs without a pose never arrive, so their curve ends lower. '
               'The area under a curve is the pose AUC.')
    return Picture('pose_errors', 'Pose error', caption, finish(figure, axes))


def _epipolar_errors(drawn: Drawn) -> Picture | None:
    known = [(matcher.error_histogram, look) for matcher, look in drawn
             if matcher.error_histogram is not None and matcher.error_histogram.sum()]
    if not known:
        return None
    figure, (axes,) = new_figure()
    for histogram, look in known:
        axes.plot(ERROR_EDGES_PX[1:-1], 100 * np.cumsum(histogram)[:-1] / histogram.sum(), **look.line)
    percent_axis(axes, 'Matches with an epipolar error up to …')
    axes.set_xscale('log')
    axes.set_xlim(ERROR_EDGES_PX[1], ERROR_EDGES_PX[-2])
    _plain_ticks(axes, [0.1, 0.3, 1, 3, 10, 50])
    axes.set_xlabel('distance to the true epipolar line, px')
    caption = ("Share of each matcher's own matches that lie this close to where the truth allows them: higher and further left is "
               'better. How many matches there are is not in this figure.')
    return Picture('epipolar_errors', 'Epipolar error', caption, finish(figure, axes))


def _deviations(drawn: Drawn) -> Picture | None:
    known = [(matcher.deviation_histogram, look) for matcher, look in drawn
             if matcher.deviation_histogram is not None and matcher.deviation_histogram.sum()]
    if not known:
        return None
    figure, (axes,) = new_figure()
    levels = DEVIATION_EDGES[1:-1]
    axes.plot(levels, [100 * math.erf(level / math.sqrt(2)) for level in levels], color=INK, lw=6, alpha=0.3, label='as claimed')
    for histogram, look in known:
        axes.plot(levels, 100 * np.cumsum(histogram)[:-1] / histogram.sum(), **look.line)
    percent_axis(axes, 'Matches within … of their standard deviations')
    axes.set_xlim(0, levels[-1])
    axes.set_xlabel('distance to the epipolar line, in standard deviations')
    caption = ('Whether covariances can be believed: a curve on the wide gray line is right, one below it claims too much, one '
               'above it too little. Lines are those of the estimated pose. Matches further away than 4 px and than four of their '
               'standard deviations are wrong, and left out.')
    return Picture('deviations', 'Are covariances right', caption, finish(figure, axes))


def _plain_ticks(axes: Any, ticks: Sequence[float]) -> None:
    axes.set_xticks(list(ticks), [f'{tick:g}' for tick in ticks])
    axes.set_xticks([], minor=True)


def _strides(drawn: Drawn, strides: Sequence[int]) -> Picture | None:
    known = [([matcher.summary(stride).get('pose_auc@10', np.nan) for stride in strides], look) for matcher, look in drawn]
    known = [(values, look) for values, look in known if np.isfinite(values).any()]
    if len(strides) < 2 or not known:
        return None
    figure, (axes,) = new_figure()
    places = np.arange(len(strides))
    for values, look in known:
        axes.plot(places, values, **look.line, marker='o', ms=8)
    percent_axis(axes, 'Pose AUC up to 10 degrees')
    axes.set_xticks(places, [str(stride) for stride in strides])
    axes.set_xlim(-0.2, len(places) - 0.8)
    axes.set_xlabel('frames between the two of a pair')
    return Picture('strides', 'Pose AUC over strides', 'What remains when frames are further apart, as at a lower frame rate or a '
                   'faster motion: the flatter, the more robust.', finish(figure, axes))


def _track_lengths(drawn: Drawn) -> Picture | None:
    known = [(matcher.track_lengths, look) for matcher, look in drawn if sum(matcher.track_lengths.values())]
    if not known:
        return None
    levels = np.arange(2, max(max(lengths) for lengths, _ in known) + 1)
    figure, (axes,) = new_figure()
    end = 4
    for lengths, look in known:
        counts = np.array([[length, count] for length, count in lengths.items()], float)
        alive = 100 * np.array([counts[counts[:, 0] >= level, 1].sum() for level in levels]) / counts[:, 1].sum()
        axes.plot(levels, alive, **look.line)
        end = max(end, int(levels[alive >= 0.5].max(initial=0)))  # beyond, there is nothing to see
    percent_axis(axes, 'Tracks of at least … frames')
    axes.set_xscale('log')
    axes.set_xlim(2, end)
    _plain_ticks(axes, [tick for tick in (2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000) if tick <= end])
    axes.set_xlabel('frames that a point was followed through')
    caption = ('Share of all tracks that lived at least this long: higher and further right is better, '
               'since long tracks hold an odometry together.')
    return Picture('track_lengths', 'Track lengths', caption, finish(figure, axes))


def _stage_times(drawn: Drawn) -> Picture | None:
    known = [(matcher.stage_ms, look) for matcher, look in drawn if any(matcher.stage_ms.values())]
    if not known:
        return None
    figure, (axes,) = new_figure(height=1.4 + 1.1 * len(known))
    bars = [(*_parts(stages), look) for stages, look in known]
    end = max(max(late, sum(parts.values())) for parts, _, late, _ in bars) or 1.0
    for row, (parts, median, late, look) in enumerate(bars):
        left = 0.0
        for number, width in enumerate(parts.values()):
            axes.barh(row, width, 0.42, left, color=look.colour, alpha=0.5 if number % 2 else 1, edgecolor='white', lw=1)
            left += width
        axes.plot([late, late], [row - 0.22, row + 0.22], color=INK, lw=3, solid_capstyle='butt')
        axes.text(0, row - 0.27, look.label, va='bottom', fontweight='bold')
        axes.text(end * 1.02, row - 0.27, f'p50 {_ms(median)}  p95 {_ms(late)}', va='bottom', ha='right')
        named = [f'{plain(name)} {_ms(width)}' for name, width in parts.items() if name and width > LARGE * median]
        axes.text(0, row + 0.24, ', '.join(named), va='top')
    axes.set_ylim(len(bars) - 0.6, -0.85)
    axes.set_xlim(0, end * 1.03)
    axes.set_yticks([])
    axes.locator_params(axis='x', nbins=6)
    axes.grid(axis='y', visible=False)
    axes.set_title('Time of a frame, ms')
    caption = ('Bars are the median times of the stages one after another; the black tick is the p95 of the whole frame. '
               'Shorter is better.')
    return Picture('stage_times', 'Stage times', caption, finish(figure))


def _parts(stages: Mapping[str, Sequence[float]]) -> tuple[dict[str, float], float, float]:
    """Medians of the stages and of what they leave of a frame; median and p95 of the whole frame."""
    frame = stages.get('frame') or [sum(times) for times in zip(*stages.values(), strict=False)]
    median, late = map(float, np.percentile(frame, (50, 95)) if frame else (0.0, 0.0))
    parts = {name: float(np.median(times)) for name, times in stages.items() if name != 'frame' and times}
    rest = median - sum(parts.values())
    if not parts or rest > SMALL * median:
        parts['other' if parts else ''] = rest
    return parts, median, late


def _ms(value: float) -> str:
    return f'{value:.1f}' if value < 99.95 else f'{value:.0f}'
