"""What stands still in the images of a moving camera: borders, bonnets, burnt-in text, projected dots, hot pixels, dirt.

Two kinds are found. Structure that stands: the high pass of a pixel has one sign in most frames, as the world's has not. And opaque
surfaces: a pixel has one value in all frames, but for the gain of the exposure, in a region whose outline stands. The second
condition is what the sky and bare walls do not meet: where they end moves with the camera.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from lightglue_trt_ros.core.geometry import resize_nearest
from lightglue_trt_ros.core.types import Float32, UInt8
from lightglue_trt_ros.utils.errors import BagError

from .moving_frames import MovingFrames

Bools = NDArray[np.bool_]

MOST_HIDDEN = 0.75  # share of the image
FINE, COARSE = 0.7, (2.0, 4.0)  # standard deviations of the high passes, pixels: of dots, and of dirt and edges
LEAST = 1.0  # gray levels of a high pass that count
STRONG, WEAK, SUPPORT = 0.7, 0.5, 0.5  # least agreement of signs where structure begins, where it goes on; least share of frames
STEADY = 0.4  # least median of a third of the frames, over that of another
OUTLIER = 3.5  # standard deviations of the whole image's median high pass, which fixed pattern noise and slow scenes have
RING = 0.35  # of a stronger pixel of the other sign near by: the high pass of that one
SHARP = 0.7  # least slope of the mean of all frames, over the usual one
ABRUPT = 4.0  # gray levels of changes where the world begins
LINE = 40  # pixels, least length of a horizon
OUTLINE = 0.4  # least share of an opaque region's outline that stands
WIRE = 0.7  # least share of a thin line at which the world begins
ATTENUATED = 0.6  # of the changes around it that the world shows behind a soft edge
LEAST_AREA = 12  # pixels of an opaque region
HOLE = 0.001  # share of the image: smaller holes of opaque regions are filled
LETTER, LETTERS = 15.0, 40  # least high pass of text, and its pixels
OFTEN = 0.15  # share of the frames in which a changing letter is there
LARGE = 0.01  # share of the image from which an opaque region is no text
STRIP = 32  # rows that are sorted at a time


class StandingMask(NamedTuple):
    """The mask of a camera."""

    allowed: UInt8  # (H, W) of the images' size, 0 where something stands, else 255
    image: UInt8  # (H, W) a frame
    frames: int  # that were compared

    @property
    def share(self) -> float:
        """Masked share of the image, 0 to 1."""
        return 1 - np.count_nonzero(self.allowed) / self.allowed.size


def find_standing(frames: Iterable[UInt8], name: str) -> StandingMask:
    """The mask of gray frames, uint8 (H, W), in recorded order; `name` is the recording's, for errors.

    Raises BagError where no mask can be told: too few frames, black ones, several sizes or cameras, a camera that stands, and
    where hardly anything would be left.
    """
    kept = MovingFrames(name)
    for frame in frames:
        kept.add(frame)
    images, size = kept.moving(), kept.size
    hidden = _hidden(images)
    share = np.count_nonzero(hidden) / hidden.size
    if share > MOST_HIDDEN:
        raise BagError(f'{name}: {100 * share:.0f} % of the image stands still while the rest moves: is that a standing camera, or '
                       'a sensor with fixed pattern noise? Record a moving camera in good light')
    allowed = resize_nearest(np.where(hidden, 0, 255).astype(np.uint8), size)
    return StandingMask(allowed, kept.example, len(images))


def _hidden(images: list[UInt8]) -> Bools:
    """(H, W) what stands in N images of one size."""
    height, width = images[0].shape
    unit = max(1.0, (height * width / (640 * 480)) ** 0.5)  # a glyph of a larger image has more pixels
    smooth = np.stack([_blurred(image.astype(np.float32), FINE).astype(np.float16) for image in images])
    parts = list[_Structure]()
    for sigma in COARSE:
        high = np.stack([(each - _blurred(image.astype(np.float32), sigma * unit)).astype(np.float16)
                         for each, image in zip(smooth, images, strict=True)])
        parts.append(_structure(high, sigma * unit))
    structure = parts[-1]._replace(pixels=parts[0].pixels | parts[1].pixels, seeds=parts[0].seeds | parts[1].seeds)
    gains = _gains(smooth, structure)
    change = _spread(smooth)
    crest, sharp = _edges(smooth)
    structure = structure._replace(pixels=structure.pixels & ~_rocking(structure.pixels, crest, sharp, unit))
    opaque = _opaque(*_residual(smooth, gains), structure, sharp, unit)
    near = _dilated(opaque, 3 * COARSE[-1] * unit) & ~opaque
    around = _blurred(change * ~opaque, 12 * unit) / np.maximum(_blurred((~opaque).astype(np.float32), 12 * unit), 1e-3)
    halo = near & (change > ATTENUATED * around)  # the world, whose high pass sees the edge of what is opaque
    return opaque | (structure.pixels & ~halo) | _text(opaque, high, structure, unit)


class _Structure(NamedTuple):
    """(H, W) each."""

    pixels: Bools  # where the high pass has one sign in most frames
    seeds: Bools  # the same, with rings and halos
    median: Float32  # of the high pass


def _structure(high: NDArray[np.float16], sigma: float) -> _Structure:
    positive, negative = ((sign * high > LEAST).mean(axis=0) for sign in (1, -1))
    support = positive + negative
    agreement = np.abs(positive - negative) / np.maximum(support, 1e-6)
    count = len(high)
    median = _quantiles(high, (0.5,))[0]
    thirds = np.stack([_quantiles(high[count * part // 3:count * (part + 1) // 3], (0.5,))[0] for part in range(3)])
    thirds *= np.sign(median)
    usual = float(np.median(np.abs(median - np.median(median)))) / 0.6745
    tall = (np.abs(median) > max(LEAST, OUTLIER * usual)) & (thirds.min(axis=0) > STEADY * thirds.max(axis=0))
    weak = tall & (agreement > WEAK) & (support > SUPPORT)
    seeds = weak & (agreement > STRONG)
    reach = 2 * round(1.5 * sigma) + 1
    around = np.ones((reach, reach), np.uint8)
    other = np.where(median > 0, -cv2.erode(median, around), cv2.dilate(median, around))
    ring = np.abs(median) < RING * other
    signs = [weak & ~ring & (sign * median > 0) for sign in (1, -1)]
    pixels = np.zeros(median.shape, np.bool_)
    for each in signs:
        pixels |= _touching(each, seeds & each, least=3)
    return _Structure(pixels, weak, median)


def _gains(smooth: NDArray[np.float16], structure: _Structure) -> list[Float32]:
    """(N,) exposures by which what stands may have changed: not at all, and as standing structure did."""
    gains = [np.ones(len(smooth), np.float32)]
    rows, columns = np.nonzero(structure.pixels)
    if len(rows) >= 50:
        some = np.linspace(0, len(rows) - 1, min(len(rows), 20_000)).astype(np.intp)
        values = smooth[:, rows[some], columns[some]].astype(np.float32)
        level = np.median(values, axis=0)
        bright = level > 16
        if np.count_nonzero(bright) >= 50:
            gains.append(np.maximum(np.median(values[:, bright] / level[bright], axis=1), 0.02).astype(np.float32))
    return [*gains, *_common_gain(smooth)]


def _common_gain(smooth: NDArray[np.float16]) -> list[Float32]:
    """The gain (N,) that more pixels of a grid share than any other, as those of a plain surface do; empty where few share one."""
    _, height, width = smooth.shape
    rows, columns = (np.linspace(0, side - 1, 28).astype(np.intp) for side in (height, width))
    values = smooth[:, rows][:, :, columns].reshape(len(smooth), -1).astype(np.float32)
    level = np.median(values, axis=0)
    series = (values / np.maximum(level, 1))[:, level > 16].T
    if not len(series):
        return []
    alike = np.stack([np.mean(np.abs(series - each) < 0.06, axis=1) > 0.9 for each in series])
    most = int(alike.sum(axis=1).argmax())
    return [np.maximum(np.median(series[alike[most]], axis=0), 0.02)] if alike[most].sum() >= 0.01 * level.size else []


def _residual(smooth: NDArray[np.float16], gains: list[Float32]) -> tuple[Float32, Float32]:
    """(H, W) by how much a pixel differs from its own level times the gain, in a third and in most of the frames.

    The least of several gains.
    """
    found = [_quantiles(smooth, (0.35, 0.9), partial(_apart, gain=gain)) for gain in gains]
    third, most = np.min(found, axis=0)
    return third, most


def _apart(rows: Float32, _: slice, *, gain: Float32) -> Float32:
    gains = gain[:, None, None]
    return np.asarray(np.abs(rows - gains * np.median(rows / gains, axis=0)), np.float32)


def _spread(smooth: NDArray[np.float16]) -> Float32:
    low, high = _quantiles(smooth, (0.2, 0.8))
    return np.asarray(high - low, np.float32)


def _edges(smooth: NDArray[np.float16]) -> tuple[Bools, Bools]:
    """(H, W) the edges of the mean of all frames, and those among them that stay where they are to a pixel.

    An edge that rocks, as the horizon before a car does, is blurred in the mean of all frames: less steep there than in each.
    """
    around = np.ones((7, 7), np.uint8)
    total, steep = np.zeros((2, *smooth.shape[1:]), np.float32), np.zeros(smooth.shape[1:], np.float32)
    for image in smooth:
        slopes = np.stack([cv2.Sobel(image.astype(np.float32), cv2.CV_32F, *axis) for axis in ((1, 0), (0, 1))])
        total += slopes
        steep += cv2.dilate(np.hypot(*slopes), around)
    mean = np.hypot(*total)
    crest = mean > 0.6 * cv2.dilate(mean, np.ones((15, 15), np.uint8))  # beside an edge that rocks, slopes are rare and agree
    return np.asarray(crest, np.bool_), np.asarray(crest & (cv2.dilate(mean, around) > SHARP * steep), np.bool_)


def _rocking(pixels: Bools, crest: Bools, sharp: Bools, unit: float) -> Bools:
    """Long lines of structure whose edges do not stay where they are: a horizon, a kerb."""
    count, labels, stats, _ = cv2.connectedComponentsWithStats(pixels.astype(np.uint8), connectivity=8)
    edges, staying = (np.bincount(labels[each & pixels], minlength=count) for each in (crest, sharp))
    sides = stats[:, [cv2.CC_STAT_WIDTH, cv2.CC_STAT_HEIGHT]].max(axis=1)
    rocking = (sides > LINE * unit) & (staying < 0.3 * edges)
    rocking[0] = False
    return np.asarray(rocking[labels], np.bool_)


def _opaque(third: Float32, residual: Float32, structure: _Structure, sharp: Bools, unit: float) -> Bools:
    """Regions of one value in all frames, whose outline or inside is structure that stands.

    An outline stands where an edge of the mean does, or where the changes of a third of the frames begin: next to a sky or a
    wall most frames show more of it. Across a standing edge there is another region: a white wall
    behind a black border has one value as long as it is too bright.
    """
    quiet = float(np.percentile(residual, 10))
    steady, small = residual < np.clip(2.5 * quiet, 4, 8), np.ones((3, 3), np.uint8)
    near, found = _dilated(structure.seeds & sharp, 6 * unit), np.zeros(steady.shape, np.bool_)
    near |= cv2.dilate(third, np.ones((5, 5), np.uint8)) > np.maximum(3 * third, ABRUPT)
    for sign in (1, -1):
        steady_side = (steady & ~(structure.seeds & (sign * structure.median < 0))).astype(np.uint8)
        side = cv2.morphologyEx(steady_side, cv2.MORPH_OPEN, small)
        count, labels, stats, _ = cv2.connectedComponentsWithStats(side, connectivity=4)
        outline = (side > 0) & (cv2.erode(side, small) == 0)  # not at the border of the image
        lengths, standing, textured = (np.bincount(labels[each], minlength=count)
                                       for each in (outline, outline & near, structure.seeds))
        areas = stats[:, cv2.CC_STAT_AREA]
        accepted = ((standing > OUTLINE * np.maximum(lengths, 1)) | (textured > 0.5 * areas)) & (areas >= LEAST_AREA)
        accepted[0] = False
        found |= accepted[labels] | _wires(steady_side, near, unit)
    _, labels, stats, _ = cv2.connectedComponentsWithStats((~found).astype(np.uint8), connectivity=4)
    holes = stats[:, cv2.CC_STAT_AREA] < HOLE * found.size
    return np.asarray(found | holes[labels], np.bool_)


def _wires(steady: UInt8, near: Bools, unit: float) -> Bools:
    """Long lines of one value in all frames, next to which the world begins: a mesh, a cable."""
    count, labels, stats, _ = cv2.connectedComponentsWithStats(steady, connectivity=8)
    sides = stats[:, [cv2.CC_STAT_WIDTH, cv2.CC_STAT_HEIGHT]].max(axis=1)
    wires = (sides > LINE * unit) & (np.bincount(labels[near], minlength=count) > WIRE * stats[:, cv2.CC_STAT_AREA])
    wires[0] = False
    return _dilated(np.asarray(wires[labels], np.bool_), 1)


def _text(opaque: Bools, high: NDArray[np.float16], structure: _Structure, unit: float) -> Bools:
    """Letters that change next to letters that stay, as those of a clock, and the gaps between letters."""
    _, labels, stats, _ = cv2.connectedComponentsWithStats(opaque.astype(np.uint8), connectivity=8)
    small = stats[:, cv2.CC_STAT_AREA] < LARGE * opaque.size
    small[0] = False
    letters = np.asarray(small[labels], np.bool_) & structure.pixels
    sign = 1 if np.count_nonzero(structure.median[letters] > 0) > np.count_nonzero(letters) / 2 else -1
    letters &= sign * structure.median > LETTER
    if np.count_nonzero(letters) < LETTERS:
        return np.zeros(letters.shape, np.bool_)
    near, height = _dilated(letters, 20 * unit), float(np.median(np.abs(structure.median[letters])))
    rows = np.flatnonzero(near.any(axis=1))
    within = slice(rows[0], rows[-1] + 1)
    found = letters.copy()
    found[within] |= near[within] & ((sign * high[:, within] > 0.6 * height).mean(axis=0) > OFTEN)
    closed = cv2.morphologyEx(found.astype(np.uint8), cv2.MORPH_CLOSE, _ellipse(8 * unit))
    return np.asarray(closed > 0, np.bool_)


def _quantiles(stack: NDArray[np.float16], shares: Sequence[float],
               change: Callable[[Float32, slice], Float32] = lambda rows, _: rows) -> list[Float32]:
    """Quantiles (H, W) over the first axis of a stack (N, H, W), or of what `change` makes of a strip of its rows."""
    count, height, width = stack.shape
    found = [np.empty((height, width), np.float32) for _ in shares]
    for top in range(0, height, STRIP):
        at = slice(top, top + STRIP)
        values = np.sort(change(stack[:, at].astype(np.float32), at), axis=0)
        for each, share in zip(found, shares, strict=True):
            each[at] = values[min(count - 1, int(share * count))]
    return found


def _touching(pixels: Bools, seeds: Bools, least: int) -> Bools:
    """The connected parts of `pixels` with one of `seeds`, of `least` pixels or more."""
    count, labels, stats, _ = cv2.connectedComponentsWithStats(pixels.astype(np.uint8), connectivity=8)
    wanted = (np.bincount(labels[seeds], minlength=count) > 0) & (stats[:, cv2.CC_STAT_AREA] >= least)
    wanted[0] = False
    return np.asarray(wanted[labels], np.bool_)


def _blurred(image: Float32, sigma: float) -> Float32:
    return np.asarray(cv2.GaussianBlur(image, (0, 0), sigma), np.float32)


def _dilated(pixels: Bools, radius: float) -> Bools:
    return np.asarray(cv2.dilate(pixels.astype(np.uint8), _ellipse(radius)) > 0, np.bool_)


def _ellipse(radius: float) -> UInt8:
    side = 2 * round(radius) + 1
    return np.asarray(cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (side, side)), np.uint8)
