"""Drawing of correspondences on camera frames; the colours of all pictures."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from .types import Float32, FrameMatches, UInt8

SHIFT = 4  # fractional bits of the coordinates that OpenCV draws at
ELLIPSE_SIGMAS = 10  # one standard deviation is about a tenth of a pixel
LONG_TRACK = 30  # frames; longer tracks have the same colour
WORD = 'matches'  # in the text of every picture
BAR, CHARACTER, MARGIN = 22, 9, 6  # units: height of the text's black bar, width of a letter, and in front of the first
INK, PAPER, GRID = '#1f2933', '#ffffff', '#d9dee4'
BLUE, ORANGE, GRAY = '#1768ac', '#e4572e', '#8795a1'


def draw_matches(image: UInt8, matches: FrameMatches, covariances: bool = False) -> UInt8:
    """Draw every keypoint, and a line to its position in the reference, coloured by the track's length.

    Blue tracks are new, red ones at least 30 frames old. With `covariances`, ellipses show ELLIPSE_SIGMAS standard deviations.

    Args:
        image: uint8 (H, W) gray or (H, W, 3) bgr, the current frame; it is not changed.

    Returns:
        uint8 (H, W, 3) bgr.
    """
    canvas: UInt8 = np.asarray(cv2.cvtColor(image, cv2.COLOR_GRAY2BGR) if image.ndim == 2 else image.copy(), np.uint8)
    unit = drawing_unit(canvas)
    now, before = _fixed_point(matches.keypoints), _fixed_point(matches.reference_keypoints)
    lines, dots = np.stack([before, now], axis=1), np.stack([now, now], axis=1)
    ages = np.minimum(matches.track_lengths, LONG_TRACK)
    levels = np.linspace(40, 235, LONG_TRACK + 1).astype(np.uint8)[:, None]
    palette = cv2.applyColorMap(levels, cv2.COLORMAP_TURBO).reshape(-1, 3).tolist()
    for age in np.unique(ages):  # young first, so that long tracks lie on top
        chosen = ages == age
        cv2.polylines(canvas, list(lines[chosen]), False, palette[age], unit, cv2.LINE_AA, SHIFT)
        cv2.polylines(canvas, list(dots[chosen]), False, palette[age], 4 * unit, cv2.LINE_AA, SHIFT)
    carried = int(np.count_nonzero(matches.carried))
    if covariances:
        _draw_ellipses(canvas, matches, palette, ages, unit)
    count = f'{len(matches) - carried} {WORD}' + (f', {carried} propagated' if carried else '')
    if len(matches):
        count += f', median track {np.median(matches.track_lengths):.0f} frames'
    write_text(canvas, count, unit)
    return np.asarray(canvas, np.uint8)


def shade(image: UInt8, allowed: UInt8) -> UInt8:
    """A gray image, uint8 (H, W), at a third of its brightness where `allowed` (H, W) is 0."""
    return np.where(allowed > 0, image, image // 3)


def drawing_unit(image: UInt8) -> int:
    """Pixels to a unit of what is drawn."""
    return max(1, round(float(min(image.shape[:2])) / 480))


def write_text(canvas: UInt8, text: str, unit: int) -> None:
    """White on black at the lower left."""
    height = canvas.shape[0]
    cv2.rectangle(canvas, (0, height - BAR * unit), (CHARACTER * unit * len(text), height), (0, 0, 0), cv2.FILLED)
    cv2.putText(canvas, text, (MARGIN * unit, height - 7 * unit), cv2.FONT_HERSHEY_SIMPLEX, 0.5 * unit, (255, 255, 255), unit,
                cv2.LINE_AA)


def _draw_ellipses(canvas: UInt8, matches: FrameMatches, palette: list[list[float]], ages: NDArray[np.uint32], unit: int) -> None:
    known = np.flatnonzero(np.isfinite(matches.covariances).all(axis=(1, 2)))
    variances, axes = np.linalg.eigh(matches.covariances[known])
    sizes = _fixed_point(ELLIPSE_SIGMAS * np.sqrt(np.maximum(variances, 0)))
    angles = np.degrees(np.arctan2(axes[:, 1, 0], axes[:, 0, 0]))
    for row, middle, size, angle in zip(known, _fixed_point(matches.keypoints[known]), sizes, angles, strict=True):
        cv2.ellipse(canvas, middle.tolist(), size.tolist(), float(angle), 0, 360, palette[ages[row]], unit, cv2.LINE_AA, SHIFT)


def _fixed_point(points: Float32) -> NDArray[np.int32]:
    """(N, 2) pixels in OpenCV's fixed point, clipped so that lines far outside the image do not overflow."""
    return np.rint(np.clip(np.nan_to_num(points), -1e5, 1e5) * (1 << SHIFT)).astype(np.int32)
