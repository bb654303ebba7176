"""Pairs, drawn: both frames, their matches coloured by their distance to the truth."""

from __future__ import annotations

import math

import cv2
import numpy as np

from ...core.drawing import PAPER
from ...core.types import Float32, Float64, UInt8
from ..results import DrawnPair, Evaluation
from .style import DPI, WIDTH, Picture, plain, save, styled

LINES = 90  # of a pair; every match is a dot
WIDE = 1.6  # images of a larger aspect ratio stand above each other
BAD_PX = 5.0  # where the scale of the colours ends
GAP = 10  # pixels between the images
COLOURS = ('#3fc5ff', '#d8f36a', '#ffbf1f', '#ff6a1a', '#d1003f')  # good to bad: blue, yellow, red, safe for the colour-blind


def draw_worst(evaluation: Evaluation) -> list[Picture]:
    """The first matcher's worst pairs, the worst first."""
    return [_worst(pair, number, first.name)
            for first in evaluation.matchers[:1] for number, pair in enumerate(first.worst_pairs, 1)]


def _worst(pair: DrawnPair, number: int, name: str) -> Picture:
    frames = f'frames {pair.frames[0]} and {pair.frames[1]}'
    assert pair.images is not None
    png = draw_pair(pair.images, pair.points[:2], pair.errors_px, f'{number}. {frames.capitalize()}: {_verdict(pair)}',
                    f'{plain(name, 16)}: {_counted(pair)}', 'distance to the true epipolar line, px')
    caption = (f'{name}, worst pair {number}: {_verdict(pair)}. ' + (f'{pair.why[:1].upper()}{pair.why[1:]}. ' if pair.why else '')
               + ('Red matches are wrong by the truth, blue ones right.' if pair.errors_px is not None else
                  'Without truth, wrong matches show as lines that run against their neighbours.'))
    return Picture(f'worst_pair_{number}', f'Worst pair {number}: {frames}', caption, png, photo=True)


@styled()
def draw_pair(images: tuple[UInt8, UInt8], points: tuple[Float32, Float32], errors_px: Float64 | None, title: str, text: str,
              scale_title: str, carried: tuple[Float32, Float32] | None = None) -> bytes:
    """The PNG of two gray frames (H, W) and their matches, pixels (M, 2), coloured by their errors (M,), or in one colour.

    Every match is a dot, LINES of them, spread evenly over the errors, are lines too; `scale_title` says what the errors are.
    Points that are `carried`, (N, 2) each, are white rings.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.collections import LineCollection
    from matplotlib.colors import LinearSegmentedColormap, Normalize
    from matplotlib.figure import Figure
    rings = carried or (points[0][:0], points[1][:0])
    canvas, places = _mounted(images, (np.concatenate([points[0], rings[0]]), np.concatenate([points[1], rings[1]])))
    (left, left_rings), (right, right_rings) = (np.split(side, [len(points[0])]) for side in places)
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
    for side in (left_rings, right_rings):
        axes.scatter(side[:, 0], side[:, 1], s=14, facecolors='none', edgecolors='white', linewidths=0.8)
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
        figure.text(0.012, 0.17 / height, 'No truth to colour by: one colour for all.', va='center')
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
    return f'{text}, median error {np.median(known):.1f} px' if len(known) else text
