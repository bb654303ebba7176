"""The figures of a report, from an Evaluation: each is None where there is nothing to show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from lightglue_trt_ros.core.drawing import INK, PAPER
from lightglue_trt_ros.core.types import Float32, Float64, UInt8

from ..score.metrics import DEVIATION_EDGES, ERROR_EDGES_PX, DrawnPair, Evaluation, MatcherResult
from .style import DPI, WIDTH, Look, Picture, draw_shares, finish, looks_of, new_figure, plain, save, styled, thinned

Drawn = Sequence[tuple[MatcherResult, Look]]
SMALL, LARGE = 0.06, 0.15  # shares of a frame: what no stage explains is drawn from the one on, stages are named from the other on
LINES = 90  # of a pair; every match is a dot
WIDE = 1.6  # images of a larger aspect ratio stand above each other
BAD_PX = 5.0  # where the scale of the colours ends
GAP = 10  # pixels between the images
SCALE = 'distance to the true epipolar line, px'  # of the colours
COLOURS = ('#3fc5ff', '#d8f36a', '#ffbf1f', '#ff6a1a', '#d1003f')  # good to bad: blue, yellow, red, safe for the colour-blind


@styled()
def draw_all(evaluation: Evaluation) -> list[Picture]:
    """Every figure that the evaluation has something for, in reading order."""
    drawn = list(zip(evaluation.matchers, looks_of(evaluation.matchers), strict=True))
    figures = (_trajectory(drawn), _over_time(drawn), _pose_errors(drawn), _epipolar_errors(drawn), _deviations(drawn),
               _strides(drawn, evaluation.strides), _track_lengths(drawn), _stage_times(drawn))
    return [*_middle(evaluation.matchers), *filter(None, figures), *draw_worst(evaluation)]


def draw_worst(evaluation: Evaluation) -> list[Picture]:
    """The first matcher's worst pairs, the worst first."""
    return [_worst(pair, number, first.name)
            for first in evaluation.matchers[:1] for number, pair in enumerate(first.worst_pairs, 1)]


def _trajectory(drawn: Drawn) -> Picture | None:
    known = [(matcher.odometry, look) for matcher, look in drawn if matcher.odometry is not None
             and np.isfinite(matcher.odometry.poses[:, :3, 3]).all(1).sum() > 1]
    if not known:
        return None
    truth = next((odometry.true_poses[:, :3, 3] for odometry, _ in known if odometry.true_poses is not None), None)
    lines = [odometry.poses[:, :3, 3] for odometry, _ in known]
    main = lines[0] if truth is None else truth
    across, up = np.argsort(np.nan_to_num(_span(main)))[::-1][:2]
    figure, (axes,) = new_figure(height=4.8)
    for line, (_, look) in zip(lines, known, strict=True):
        axes.plot(line[:, across], line[:, up], **{**look, 'zorder': 4 if look is known[0][1] else 3})
    if truth is not None:
        axes.plot(truth[:, across], truth[:, up], color=INK, lw=6, alpha=0.3, label='ground truth', zorder=2)
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
               + ('aligned with the ground truth (Sim(3)): the closer to the wide gray line, the better.' if truth is not None else
                  'without ground truth every step has the length 1, so only the shape means something.')
               + (' Lines that leave the picture go on outside it.' if clipped else ''))
    return Picture('trajectory', 'Trajectory', caption, finish(figure, axes))


def _span(points: Float64) -> Float64:
    return np.asarray(np.nanmax(points, 0) - np.nanmin(points, 0), float)


def _over_time(drawn: Drawn) -> Picture | None:
    shown = [(matcher.table(), look) for matcher, look in drawn if matcher.count()]
    if not shown:
        return None
    columns = ['matches'] + ['inliers'] * any((pairs['model'] != '').any() for pairs, _ in shown)
    begin = min(pairs['stamp'][0] for pairs, _ in shown)
    figure, panels = new_figure(len(columns), 3.4 if len(columns) == 1 else 5.2)
    thin = False
    for axes, name in zip(panels, columns, strict=True):
        for number, (pairs, look) in enumerate(shown):
            values = pairs[name].astype(float)
            times, median, low, high = thinned(pairs['stamp'] - begin, values)
            if number == 0 and len(times) < len(values):
                thin = True
                axes.fill_between(times, low, high, color=look['color'], alpha=0.2, lw=0)
            axes.plot(times, median, **look, marker='o' if len(times) == 1 else '', zorder=3 if number else 4)
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
    every = [(matcher.table()['pose_error_deg'], look) for matcher, look in drawn]
    known = [(errors[~np.isnan(errors)], look) for errors, look in every if not np.isnan(errors).all()]
    if not known:
        return None
    finite = [errors[np.isfinite(errors)] for errors, _ in known]
    typical = min((float(np.percentile(errors, 95)) for errors in finite if len(errors)), default=20.0)
    limit = next((value for value in (1, 2, 5, 10) if typical <= value), 20)
    levels = np.linspace(0, limit, 300)
    curves = [(levels, 100 * (np.searchsorted(np.sort(errors), levels, side='right') / len(errors)), look)
              for errors, look in known]
    png = draw_shares(curves, 'Pairs with a pose error up to …', 'larger of rotation and direction error, deg', (0, limit))
    caption = ('The higher and further to the left, the better; pairs without a pose never arrive, so their curve ends lower. '
               'The area under a curve is the pose AUC.')
    return Picture('pose_errors', 'Pose error', caption, png)


def _epipolar_errors(drawn: Drawn) -> Picture | None:
    levels = ERROR_EDGES_PX[1:-1]
    curves = _cumulated(levels, [(matcher.error_histogram, look) for matcher, look in drawn])
    if not curves:
        return None
    png = draw_shares(curves, 'Matches with an epipolar error up to …', 'distance to the true epipolar line, px',
                      (levels[0], levels[-1]), {tick: f'{tick:g}' for tick in (0.1, 0.3, 1, 3, 10, 50)}, log=True)
    caption = ("Share of each matcher's own matches that lie this close to their true epipolar lines: higher and further left is "
               'better. How many matches there are is not in this figure.')
    return Picture('epipolar_errors', 'Epipolar error', caption, png)


def _deviations(drawn: Drawn) -> Picture | None:
    levels = DEVIATION_EDGES[1:-1]
    curves = _cumulated(levels, [(matcher.deviation_histogram, look) for matcher, look in drawn])
    if not curves:
        return None
    expected = [100 * math.erf(level / math.sqrt(2)) for level in levels]
    wide_line = {'color': INK, 'lw': 6, 'alpha': 0.3, 'label': 'normal distribution'}
    png = draw_shares([(levels, expected, wide_line), *curves], 'Matches within … of their standard deviations',
                      'distance to the epipolar line, in standard deviations', (0, levels[-1]))
    caption = ('Whether the covariances are right. A curve on the wide gray line is right, below it covariances are too small, '
               'above it too large. Lines are those of the estimated pose. Matches further away than 4 px and than four of their '
               'standard deviations are wrong, and left out.')
    return Picture('deviations', 'Are covariances right', caption, png)


def _cumulated(levels: Float64, histograms: Sequence[tuple[NDArray[np.int64] | None, Look]]) -> list[tuple[Float64, Float64, Look]]:
    """Curves of the percentages below `levels`, the inner edges of histograms; an empty one has none."""
    return [(levels, 100 * np.cumsum(histogram)[:-1] / histogram.sum(), look)
            for histogram, look in histograms if histogram is not None and histogram.sum()]


def _strides(drawn: Drawn, strides: Sequence[int]) -> Picture | None:
    known = [([matcher.summary(stride).get('pose_auc@10', np.nan) for stride in strides], look) for matcher, look in drawn]
    known = [(values, look) for values, look in known if np.isfinite(values).any()]
    if len(strides) < 2 or not known:
        return None
    ticks = {float(number): str(stride) for number, stride in enumerate(strides)}
    png = draw_shares([(list(ticks), values, {**look, 'marker': 'o', 'ms': 8}) for values, look in known],
                      'Pose AUC up to 10 degrees', 'frames between the two of a pair', (-0.2, len(strides) - 0.8), ticks)
    return Picture('strides', 'Pose AUC over strides', 'Accuracy when frames are further apart, as at a lower frame rate or a '
                   'faster motion: the flatter, the more robust.', png)


def _track_lengths(drawn: Drawn) -> Picture | None:
    known = [(matcher.track_lengths, look) for matcher, look in drawn if sum(matcher.track_lengths.values())]
    if not known:
        return None
    levels = np.arange(2, max(max(lengths) for lengths, _ in known) + 1)
    curves, end = [], 4
    for lengths, look in known:
        counts = np.array([[length, count] for length, count in lengths.items()], float)
        alive = 100 * np.array([counts[counts[:, 0] >= level, 1].sum() for level in levels]) / counts[:, 1].sum()
        curves.append((levels, alive, look))
        end = max(end, int(levels[alive >= 0.5].max(initial=0)))  # beyond, there is nothing to see
    ticks = {tick: str(tick) for tick in (2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000) if tick <= end}
    png = draw_shares(curves, 'Tracks of at least … frames', 'frames that a point was followed through', (2, end), ticks, log=True)
    caption = ('Share of all tracks that lived at least this long: higher and further right is better, '
               'since long tracks hold an odometry together.')
    return Picture('track_lengths', 'Track lengths', caption, png)


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
            axes.barh(row, width, 0.42, left, color=look['color'], alpha=0.5 if number % 2 else 1, edgecolor='white', lw=1)
            left += width
        axes.plot([late, late], [row - 0.22, row + 0.22], color=INK, lw=3, solid_capstyle='butt')
        axes.text(0, row - 0.27, look['label'], va='bottom', fontweight='bold')
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


def _middle(matchers: Sequence[MatcherResult]) -> list[Picture]:
    """The first matcher's pair in the middle of the recording."""
    return [Picture('matches', 'Matches', f'{first.name}, the pair in the middle of the recording. Every match is a dot, '
                    f'{LINES} of them have a line.',
                    draw_pair(pair.images, pair.points[:2], pair.errors_px, _counted(pair),
                              f'{plain(first.name, 16)}: frames {pair.frames[0]} and {pair.frames[1]}', SCALE), photo=True)
            for first in matchers[:1] for pair in first.middle_pair if pair.images is not None]


def _worst(pair: DrawnPair, number: int, name: str) -> Picture:
    frames = f'frames {pair.frames[0]} and {pair.frames[1]}'
    assert pair.images is not None
    png = draw_pair(pair.images, pair.points[:2], pair.errors_px, f'{number}. {frames.capitalize()}: {_verdict(pair)}',
                    f'{plain(name, 16)}: {_counted(pair)}', SCALE)
    caption = (f'{name}, worst pair {number}: {_verdict(pair)}. ' + (f'{pair.why[:1].upper()}{pair.why[1:]}. ' if pair.why else '')
               + ('Red matches are wrong by the ground truth, blue ones right.' if pair.errors_px is not None else
                  'Without ground truth, wrong matches show as lines that run against their neighbours.'))
    return Picture(f'worst_pair_{number}', f'Worst pair {number}: {frames}', caption, png, photo=True)


@styled()
def draw_pair(images: tuple[UInt8, UInt8], points: tuple[Float32, Float32], errors_px: Float64 | None, title: str, text: str,
              scale_title: str) -> bytes:
    """The PNG of two gray frames (H, W) and their matches, pixels (M, 2), coloured by their errors (M,), or in one colour.

    Every match is a dot. LINES of them, evenly distributed over the errors, also have a line; `scale_title` names the errors.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.collections import LineCollection
    from matplotlib.colors import LinearSegmentedColormap, Normalize
    from matplotlib.figure import Figure
    canvas, (left, right) = _mounted(images, points)
    tall = WIDTH * canvas.shape[0] / canvas.shape[1]
    top, bottom = 0.62, 0.85 if errors_px is not None else 0.38
    height = tall + top + bottom
    figure = Figure(figsize=(WIDTH, height), facecolor=PAPER)
    axes = figure.add_axes((0, bottom / height, 1, tall / height))
    axes.imshow(canvas, cmap='gray', vmin=0, vmax=255, interpolation='antialiased')
    axes.set_xlim(-0.5, canvas.shape[1] - 0.5)
    axes.set_ylim(canvas.shape[0] - 0.5, -0.5)
    axes.axis('off')
    colours, scale = LinearSegmentedColormap.from_list('error', COLOURS), Normalize(0, BAD_PX)
    errors = np.zeros(len(left)) if errors_px is None else np.where(np.isfinite(errors_px), errors_px, np.inf)
    order = np.argsort(errors, kind='stable')  # the worst on top
    lined = order[np.unique(np.linspace(0, len(order) - 1, LINES).round().astype(int))] if len(order) else order
    paint = colours(scale(np.minimum(errors, BAD_PX)))
    axes.add_collection(LineCollection(list(np.stack([left, right], 1)[lined]), colors=paint[lined], linewidths=0.9, alpha=0.85))
    for side in (left, right):
        axes.scatter(side[order, 0], side[order, 1], s=6, c=paint[order], linewidths=0)
    figure.text(0.012, 1 - 0.16 / height, title, va='center', fontweight='bold')
    figure.text(0.012, 1 - 0.45 / height, text, va='center')
    if errors_px is not None:
        bar = figure.colorbar(ScalarMappable(scale, colours), cax=figure.add_axes((0.2, 0.36 / height, 0.6, 0.14 / height)),
                              orientation='horizontal', extend='max', ticks=[0, 1, 2, 3, 4, BAD_PX])
        bar.outline.set_visible(False)
        bar.ax.set_title(scale_title, fontweight='normal', loc='center', pad=4)
    else:
        figure.text(0.012, 0.17 / height, 'No ground truth: one colour for all.', va='center')
    return save(figure)


def _mounted(images: tuple[UInt8, UInt8], points: tuple[Float32, Float32]) -> tuple[UInt8, tuple[Float32, Float32]]:
    """Both images on one canvas of the picture's resolution, and the points on it."""
    (first, second), (points0, points1) = images, points
    above = max(first.shape[1] / first.shape[0], second.shape[1] / second.shape[0]) > WIDE
    width = int(WIDTH * DPI) if above else (int(WIDTH * DPI) - GAP) // 2
    (image0, places0), (image1, places1) = _resized(first, points0, width), _resized(second, points1, width)
    left, top = (0, image0.shape[0] + GAP) if above else (width + GAP, 0)
    canvas = np.full((max(image0.shape[0], top + image1.shape[0]), left + width), 255, np.uint8)
    canvas[:image0.shape[0], :width] = image0
    canvas[top:top + image1.shape[0], left:] = image1
    return canvas, (places0, places1 + np.array([left, top], np.float32))


def _resized(image: UInt8, points: Float32, width: int) -> tuple[UInt8, Float32]:
    scale = width / image.shape[1]
    size = (width, max(1, round(image.shape[0] * scale)))
    drawn = cv2.resize(image, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)
    return np.asarray(drawn, np.uint8), np.asarray((points.reshape(-1, 2) + 0.5) * scale - 0.5, np.float32)


def _verdict(pair: DrawnPair) -> str:
    if pair.errors_px is None:
        return f'{100 * pair.badness:.0f} % outliers' if math.isfinite(pair.badness) else 'no model found'
    return f'pose off by {pair.badness:.1f} deg' if math.isfinite(pair.badness) else 'no pose found'


def _counted(pair: DrawnPair) -> str:
    count = len(pair.points.reference)
    text = f'{count} match' if count == 1 else f'{count} matches'
    known = pair.errors_px[np.isfinite(pair.errors_px)] if pair.errors_px is not None else np.zeros(0)
    return f'{text}, median error {np.median(known):.2f} px' if len(known) else text
