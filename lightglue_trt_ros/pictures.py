"""Drawing: correspondences on camera frames, and the demo's plots. OpenCV alone at run time; matplotlib for files."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from .errors import LightglueTrtError
from .features import Float32, FrameMatches, UInt8
from .files import write_whole

SHIFT = 4  # fractional bits of the coordinates that OpenCV draws at
LONG_TRACK = 30  # frames; longer tracks have the same colour
GOOD_PX, BAD_PX = 1.0, 5.0  # errors that the pictures call good, and where their colour scale ends
INK, PAPER, GRID = '#1f2933', '#ffffff', '#d9dee4'
BLUE, ORANGE, GRAY = '#1768ac', '#e4572e', '#8795a1'
ERROR_COLOURS = ('#19e3b1', '#b8f34a', '#ffd23f', '#ff8c42', '#ff2e63')  # good to bad, of rising contrast to gray photographs


def draw_matches(image: UInt8, matches: FrameMatches) -> UInt8:
    """The run-time view: every keypoint, and a line back to where it stood in the reference, coloured by the track's length.

    image: uint8 (H, W) gray or (H, W, 3) bgr, the current frame; it is left as it is. Returns uint8 (H, W, 3) bgr.
    Blue tracks are new, red ones at least 30 frames old. About 1 ms for 1,000 matches at 640x480.
    """
    canvas = cv2.cvtColor(image, cv2.COLOR_GRAY2BGR) if image.ndim == 2 else image.copy()
    unit = max(1, round(min(canvas.shape[:2]) / 480))
    now, before = _fixed_point(matches.keypoints), _fixed_point(matches.reference_keypoints)
    lines, dots = np.stack([before, now], axis=1), np.stack([now, now], axis=1)
    ages = np.minimum(matches.track_lengths, LONG_TRACK)
    levels = np.linspace(40, 235, LONG_TRACK + 1).astype(np.uint8)[:, None]
    palette = cv2.applyColorMap(levels, cv2.COLORMAP_TURBO).reshape(-1, 3).tolist()
    for age in np.unique(ages):  # young first, so that long tracks lie on top
        chosen = ages == age
        cv2.polylines(canvas, list(lines[chosen]), False, palette[age], unit, cv2.LINE_AA, SHIFT)
        cv2.polylines(canvas, list(dots[chosen]), False, palette[age], 4 * unit, cv2.LINE_AA, SHIFT)
    count = f'{len(matches)} matches'
    if len(matches):
        count += f', median track {np.median(matches.track_lengths):.0f} frames'
    cv2.rectangle(canvas, (0, canvas.shape[0] - 22 * unit), (9 * unit * len(count), canvas.shape[0]), (0, 0, 0), cv2.FILLED)
    corner = (6 * unit, canvas.shape[0] - 7 * unit)
    cv2.putText(canvas, count, corner, cv2.FONT_HERSHEY_SIMPLEX, 0.5 * unit, (255, 255, 255), unit, cv2.LINE_AA)
    return np.asarray(canvas, np.uint8)


def _fixed_point(points: Float32) -> NDArray[np.int32]:
    """(N, 2) pixels in OpenCV's fixed point, kept where lines far outside the image cannot overflow it."""
    return np.rint(np.clip(np.nan_to_num(points), -1e5, 1e5) * (1 << SHIFT)).astype(np.int32)


def save_match_picture(path: str | Path, reference_image: UInt8, current_image: UInt8, matches: FrameMatches,
                       errors_px: NDArray[np.floating] | None = None, max_lines: int = 160) -> None:
    """Write a PNG of both frames side by side with their matches, coloured by error, or by score without `errors_px`.

    reference_image, current_image: uint8 (H, W) gray or (H, W, 3) bgr. errors_px: (M,) distances to the truth in pixels, NaN
    where there is none to compare with. Every match is a dot; `max_lines` of them, spread evenly over the scale, are lines too.
    Raises LightglueTrtError when the file cannot be written.
    """
    from matplotlib.collections import LineCollection
    from matplotlib.colors import LinearSegmentedColormap, Normalize
    from matplotlib.figure import Figure
    both = [cv2.cvtColor(image, cv2.COLOR_GRAY2RGB if image.ndim == 2 else cv2.COLOR_BGR2RGB)
            for image in (reference_image, current_image)]
    gap = max(4, both[0].shape[1] // 80)
    height, offset = max(image.shape[0] for image in both), both[0].shape[1] + gap
    canvas = np.full((height, offset + both[1].shape[1], 3), 255, np.uint8)
    canvas[:both[0].shape[0], :offset - gap] = both[0]
    canvas[:both[1].shape[0], offset:] = both[1]
    left, right = matches.reference_keypoints, matches.keypoints + np.array([offset, 0], np.float32)
    if errors_px is None:
        values, label, norm = matches.scores, 'score of the match', Normalize(0, 1)
        colours = LinearSegmentedColormap.from_list('score', ERROR_COLOURS[::-1])
        order = np.argsort(values)[::-1]
    else:
        values, label, norm = np.asarray(errors_px, float), 'distance to the truth, pixels', Normalize(0, BAD_PX)
        colours = LinearSegmentedColormap.from_list('error', ERROR_COLOURS)
        order = np.argsort(values)
    order = order[np.isfinite(values[order])]
    drawn = np.unique(np.linspace(0, len(order) - 1, max_lines).round().astype(int)) if len(order) else order
    lined = order[drawn]

    figure = Figure(figsize=(14, 14 * height / canvas.shape[1] + 1.1), facecolor=PAPER)
    axes = figure.add_axes((0.01, 0.11, 0.98, 0.82))
    axes.imshow(canvas, interpolation='antialiased')
    axes.axis('off')
    axes.add_collection(LineCollection(list(np.stack([left, right], axis=1)[lined]), array=values[lined], cmap=colours, norm=norm,
                                       linewidths=0.8, alpha=0.75))
    for points in (left, right):
        dots = axes.scatter(points[order, 0], points[order, 1], s=7, c=values[order], cmap=colours, norm=norm, linewidths=0)
    figure.text(0.01, 0.965, _headline(matches, errors_px), color=INK, fontsize=14, fontweight='bold', va='center')
    bar = figure.colorbar(dots, cax=figure.add_axes((0.36, 0.085, 0.28, 0.016)), orientation='horizontal',
                          extend='max' if errors_px is not None else 'neither')
    bar.outline.set_visible(False)
    bar.set_label(label, color=INK)
    figure.text(0.01, 0.07, f'reference, {matches.reference_stamp:.2f} s', color=INK, fontsize=11)
    figure.text(0.99, 0.07, f'current, {matches.stamp:.2f} s', color=INK, fontsize=11, ha='right')
    _save(figure, path)


def _headline(matches: FrameMatches, errors_px: NDArray[np.floating] | None) -> str:
    if errors_px is None or not np.isfinite(errors_px).any():
        return f'{len(matches)} matches'
    known = np.asarray(errors_px)[np.isfinite(errors_px)]
    return (f'{len(matches)} matches, {100 * np.mean(known <= 3):.1f} % within 3 px of the truth, '
            f'median error {np.median(known):.2f} px')


def save_demo_plot(path: str | Path, report: Mapping[str, Any]) -> None:
    """Write the demo's PNG: matches, error and latency of every frame over time.

    report['per_frame'] is a list with one mapping per published frame: `time_s` since the first frame, `matches` (count), and,
    where known, `correct` (matches within report['correct_px'], 3 unless given, of the truth), `error_median_px`, `error_p95_px`,
    `latency_ms` (from the image to its matches). Optional: report['period_ms'], the camera's. Values may be None.
    Raises LightglueTrtError when there is nothing to plot or the file cannot be written.
    """
    from matplotlib.figure import Figure
    rows = report.get('per_frame') or []
    if not rows:
        raise LightglueTrtError('the report has no frames to plot: the matcher published nothing; look at its log')

    def column(name: str) -> NDArray[np.float64]:
        return np.array([row.get(name) for row in rows], float)  # None becomes NaN, which matplotlib leaves out

    time = column('time_s')
    figure = Figure(figsize=(11, 9), facecolor=PAPER, layout='constrained')
    counts, errors, latency = figure.subplots(3, 1, sharex=True)

    counts.plot(time, column('matches'), color=BLUE, lw=2, label='published')
    if np.isfinite(column('correct')).any():
        counts.fill_between(time, column('correct'), color=BLUE, alpha=0.15, lw=0,
                            label=f'within {report.get("correct_px", 3):g} px of the truth')
    _dress(counts, 'Matches', 'matches per frame')

    for name, colour, label in (('error_median_px', BLUE, 'median'), ('error_p95_px', ORANGE, '95th percentile')):
        errors.plot(time, column(name), color=colour, lw=2, label=label)
    errors.axhline(GOOD_PX, color=GRAY, lw=1, ls=(0, (4, 3)), label=f'{GOOD_PX:g} px')
    _dress(errors, report.get('truth', 'distance to the truth').capitalize(), 'error, pixels')

    latency_ms = column('latency_ms')
    latency.plot(time, latency_ms, color=BLUE, lw=1, marker='o', ms=4, label='image to matches')
    if np.isfinite(latency_ms).any():
        median = float(np.nanmedian(latency_ms))
        latency.axhline(median, color=ORANGE, lw=1.5, label=f'median {median:.1f} ms')
    if report.get('period_ms'):
        period = float(report['period_ms'])
        latency.axhline(period, color=GRAY, lw=1, ls=(0, (4, 3)), label=f'period of the frames {period:.0f} ms')
    _dress(latency, 'Latency', 'latency, ms')
    latency.set_xlabel('time since the first frame, s', color=INK)
    _save(figure, path)


def save_layer_plot(path: str | Path, layers: Mapping[str, list[tuple[str, str, float]]]) -> None:
    """Write a PNG of layer times: by network a list of (name, precision, milliseconds), the slowest first.

    Raises LightglueTrtError when the file cannot be written.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch
    colours = dict(zip(sorted({row[1] for rows in layers.values() for row in rows}), (BLUE, ORANGE, GRAY, INK) * 4, strict=False))
    figure = Figure(figsize=(12, 1.5 + 0.32 * sum(map(len, layers.values()))), facecolor=PAPER, layout='constrained')
    for axes, (network, rows) in zip(np.atleast_1d(figure.subplots(len(layers), 1)), layers.items(), strict=True):
        axes.barh([f'{name[:60]} ' for name, _, _ in rows], [ms for *_, ms in rows], color=[colours[row[1]] for row in rows])
        axes.invert_yaxis()
        axes.set_title(network, loc='left', color=INK, fontsize=12, fontweight='bold')
        axes.set_xlabel('time per run, ms', color=INK)
        axes.legend(handles=[Patch(color=colour, label=name) for name, colour in colours.items()], frameon=False, loc='lower right')
    _save(figure, path)


def _dress(axes: Any, title: str, label: str) -> None:
    """The look that all the demo's axes share."""
    axes.set_title(title, loc='left', color=INK, fontsize=12, fontweight='bold')
    axes.set_ylabel(label, color=INK)
    axes.set_ylim(bottom=0, top=axes.get_ylim()[1] * 1.05)
    axes.margins(x=0.01)
    axes.grid(color=GRID, lw=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(side == 'bottom')
        spine.set_color(GRAY)
    axes.legend(loc='lower right', bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2, ncol=3, frameon=False, labelcolor=INK)


def _save(figure: Any, path: str | Path) -> None:
    path, png = Path(path), io.BytesIO()
    figure.savefig(png, format='png', dpi=110)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, png.getvalue())
    except OSError as error:
        raise LightglueTrtError(f'{path} cannot be written: {error}; choose another output directory') from error
