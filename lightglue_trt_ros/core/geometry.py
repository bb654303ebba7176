"""Coordinates. Pixels are (u, v) = (column, row); the centre of the top-left pixel is (0, 0), as in OpenCV."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .config import STRIDE
from .types import Float32, Float64, Int32, UInt8

Size = tuple[int, int]  # (height, width)
SMALLEST = 320 * 240  # pixels of an engine's image: fewer have too few keypoints


def size_of(image: UInt8) -> Size:
    """(height, width)."""
    return image.shape[0], image.shape[1]


def size_text(size: Size) -> str:
    """WIDTHxHEIGHT."""
    return f'{size[1]}x{size[0]}'


def unit_of(size: Size, engine: Size) -> float:
    """Pixels of an image of `size` to one pixel of the engine's image; the larger of both axes."""
    return max(whole / part for whole, part in zip(size, engine, strict=True))


def fitting_size(image: Size, area: int = 640 * 480) -> Size:
    """The engine's size for an image: its aspect ratio, about `area` pixels, each side a multiple of 8.

    An image of less than half of these pixels keeps its size, SMALLEST pixels at least: noise that is enlarged looks like texture.
    """
    own = image[0] * image[1]
    scale = ((area if 2 * own >= area else min(area, max(own, SMALLEST))) / own) ** 0.5
    height, width = (max(2 * STRIDE, round(side * scale / STRIDE) * STRIDE) for side in image)
    return height, width


def resize_gray(image: UInt8, size: Size) -> UInt8:
    """Resize a gray image, uint8 (H, W), to `size`: area averaging, or bilinear where both sides grow."""
    if image.shape == size:
        return image
    grows = size[0] >= image.shape[0] and size[1] >= image.shape[1]
    return np.asarray(cv2.resize(image, size[::-1], interpolation=cv2.INTER_LINEAR if grows else cv2.INTER_AREA), np.uint8)


def resize_nearest(image: UInt8, size: Size) -> UInt8:
    """Resize uint8 (H, W) to `size` by nearest neighbours: no value is mixed of several."""
    rows, columns = (((np.arange(new) + 0.5) * (old / new)).astype(np.int32) for old, new in zip(image.shape, size, strict=True))
    return np.ascontiguousarray(image[np.ix_(rows, columns)])


class Taps(NamedTuple):
    """`weights` (n, taps) of the old pixels from `first` (n,) on, of which each new pixel along an axis is the sum."""

    first: Int32
    weights: Float32


def resize_taps(source: Size, target: Size) -> tuple[Taps, Taps]:
    """Taps of `resize_gray` along rows and along columns.

    As in OpenCV: areas are averaged where both sides shrink; where one grows, INTER_AREA takes two pixels a side.
    """
    scales = [old / new for old, new in zip(source, target, strict=True)]
    if min(scales) >= 1:
        down, right = (_areas(old, new) for old, new in zip(source, target, strict=True))
    else:
        down, right = (_two_taps(old, new, max(scales) <= 1) for old, new in zip(source, target, strict=True))
    return _taps(down), _taps(right)


def _taps(shares: Float32) -> Taps:
    """Taps of a matrix (new, old) whose rows are zero except for some neighbours."""
    used = shares != 0
    first = used.argmax(axis=1)
    count = int((shares.shape[1] - used[:, ::-1].argmax(axis=1) - first).max())
    first = np.minimum(first, shares.shape[1] - count)
    weights = np.take_along_axis(shares, first[:, None] + np.arange(count), axis=1)
    return Taps(first.astype(np.int32), np.ascontiguousarray(weights))


def _areas(old: int, new: int) -> Float32:
    """(new, old): the share of each old pixel in each new one."""
    edges = np.arange(new + 1)[:, None] * (old / new)
    covered = np.clip(edges - np.arange(old), 0, 1)  # of each old pixel, up to each edge
    return np.asarray(np.diff(covered, axis=0) * (new / old), np.float32)


def _two_taps(old: int, new: int, between_centres: bool) -> Float32:
    """(new, old): shares of two neighbours, by the distance of centres, or as INTER_AREA by the area that the new pixel covers."""
    targets = np.arange(new)
    if between_centres:
        at = np.clip((targets + 0.5) * (old / new) - 0.5, 0, old - 1)
        first = np.floor(at).astype(int)
        second_share = at - first
    else:
        first = np.floor(targets * (1 / (new / old))).astype(int)  # rounded as in OpenCV: this selects the pixel in some cases
        beyond = np.asarray(targets + 1 - (first + 1) * (new / old), np.float32)
        second_share = np.where(beyond <= 0, 0.0, beyond - np.floor(beyond))
    weights = np.zeros((new, old), np.float32)
    weights[targets, first] = 1 - second_share
    weights[targets, np.minimum(first + 1, old - 1)] += second_share.astype(np.float32)
    return weights


def to_original(keypoints: Float32, engine: Size, original: Size) -> Float32:
    """Map (N, 2) pixels of the engine's image to the original's: u = (u' + 0.5) / s - 0.5, each axis with its own s."""
    points = keypoints + np.float32(0.5)
    for axis in (0, 1):  # by a row of two scales, NumPy takes several times as long
        points[:, axis] *= np.float32(original[1 - axis] / engine[1 - axis])
    return points - np.float32(0.5)


def epipolar_distances(points0: ArrayLike, points1: ArrayLike, fundamental: ArrayLike) -> tuple[Float64, Float64]:
    """Signed distances (M,) in pixels of the second points (M, 2) to the epipolar lines of the first, and these lines' normals.

    Normals (2, M) are of length 1. At the epipole, which has no line, all is NaN.
    """
    (u0, v0), (u1, v1) = np.reshape(points0, (-1, 2)).T, np.reshape(points1, (-1, 2)).T
    f = np.asarray(fundamental, np.float64)[:, :, None]
    lines = f[:, 0] * u0 + f[:, 1] * v0 + f[:, 2]
    with np.errstate(divide='ignore', invalid='ignore'):
        lines /= np.sqrt(lines[0] * lines[0] + lines[1] * lines[1])
    return np.asarray(lines[0] * u1 + lines[1] * v1 + lines[2], np.float64), np.asarray(lines[:2], np.float64)


def contiguous(values: ArrayLike, dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """An array of `dtype` in C order without gaps, as OpenCV takes points and matrices; a copy only where it has to be one.

    OpenCV 4.10 and 5.0 read the columns of a larger matrix wrongly in `findEssentialMat`, and raise no error.
    """
    return np.ascontiguousarray(values, dtype)


def as_complex(points: Float32) -> NDArray[np.complex64]:
    """Points (N, 2) as complex numbers (N,), of the same memory where they have no gaps: NumPy writes these to rows much faster."""
    return contiguous(points, np.float32).view(np.complex64)[:, 0]


def middle(values: NDArray[Any]) -> float:
    """Their median, the larger of two, in a fifth of the time of NumPy's."""
    half = len(values) // 2
    return float(np.partition(values, half)[half])


def sampled_model(find: Callable[..., Any], *given: Any, **settings: Any) -> Float64 | None:
    """The (3, 3) matrix of an OpenCV estimator that samples at random; None where nothing fits.

    Arrays are given to it as `contiguous` float64. Some raise where nothing fits: OpenCV 5's MAGSAC++ for a fundamental matrix of
    points with one common motion.
    """
    try:
        model = find(*(contiguous(each) if isinstance(each, np.ndarray) else each for each in given), **settings)[0]
    except cv2.error:
        return None
    return np.asarray(model, np.float64) if model is not None and model.shape == (3, 3) else None
