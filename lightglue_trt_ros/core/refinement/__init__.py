"""Matched points, placed by the images themselves, and how well each is known then, in which direction.

SuperPoint knows a point to about half a pixel; the patch around it tells where the same point is in the other image to a tenth,
but only across edges, and only where there is texture. So every place comes with a covariance.
"""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from ..geometry import Size
from ..types import Float32, Rows, UInt8
from .matrices import eigenvalue_gap, identity, inverse_2x2, lessened, outer, points_first, points_last, through
from .patches import PatchFit, find_patches
from .views import local_affine


class Level(NamedTuple):
    """How patches are compared at one level of the pyramid, and what their variance is made of, in its pixels."""

    radius: int  # of the patch
    steps: int
    noise: float  # times the residual over the patch's structure
    backward: float  # times the square of what the way back misses


COARSE, FINE = Level(7, 4, 4.1, 0.56), Level(4, 2, 2.1, 0.5)  # wide where noise is less; then narrow, which planes allow everywhere
BLOCK = 512  # points at a time, at most: their patches are 5 MB then
FLOOR_PX = 0.03  # standard deviation that the best texture leaves, in a level's pixels
DISAGREEMENT = 0.25  # times the square of what levels differ by
GHOST = 0.5  # times the residual: structure that noise alone seems to have, in every direction
BEND = 0.15  # times how much further a point may slide along an edge than across: how far off that takes it, for edges bend
LIMIT_PX = 6.0  # a patch found further away is another one
UNREFINED_PX = 2.0  # standard deviation of a matched point whose patch is not found, and at worst of any whose patch is
DETECTED_PX = 0.5  # and of one as SuperPoint sees it
PREDICTED_PX, PREDICTED_LIMIT_PX = 5.0, 12.0  # both for a point that is only known to go where its neighbours went


class Refined(NamedTuple):
    """M points of the current image and their covariances, given the points of the reference."""

    points: Float32  # (M, 2) pixels
    covariances: Float32  # (M, 2, 2) pixels squared

    def take(self, rows: Rows) -> Refined:
        """Points and covariances of `rows`."""
        return Refined(self.points.take(rows, axis=0), self.covariances.take(rows, axis=0))

    def with_fallback(self, points: Float32, unit: float) -> Refined:
        """The same, but `points` (M, 2) with UNREFINED_PX in rows that are not finite."""
        finite = np.isfinite(self.points).all(axis=1) & np.isfinite(self.covariances).all(axis=(1, 2))
        wrong = np.flatnonzero(~finite)
        if not len(wrong):
            return self
        placed = Refined(self.points.copy(), self.covariances.copy())
        placed.points[wrong], placed.covariances[wrong] = points[wrong], np.eye(2) * (UNREFINED_PX * unit)**2
        return placed


class Pyramid:
    """A frame as gray levels in float32, at its own size, at half of it, and so on; made once and kept with the frame.

    `unit` is how many of its pixels a pixel of the extractor's image is: where that is large, points are less well known, and
    looked for in smaller images.
    """

    def __init__(self, image: UInt8, unit: float = 1.0) -> None:
        self.unit = max(1.0, unit)
        self.levels: list[Float32] = [image.astype(np.float32)]
        for _ in levels_for((image.shape[0], image.shape[1]), unit)[1:]:
            self.levels.append(np.asarray(cv2.pyrDown(self.levels[-1]), np.float32))


def levels_for(size: Size, unit: float) -> list[Size]:
    """Sizes of a pyramid's levels, (height, width), from the image's own on: two, and more where `unit` is large."""
    sizes = [size]
    for _ in range(1 + round(float(np.log2(max(1.0, unit))))):
        sizes.append(((sizes[-1][0] + 1) // 2, (sizes[-1][1] + 1) // 2))
    return sizes


def refine_matches(reference: Pyramid, current: Pyramid, reference_points: Float32, current_points: Float32) -> Refined:
    """Matched points (M, 2) of the current frame, moved to where the reference's patches are found.

    The mean of where SuperPoint saw the point and of where its patch is found at each level, weighted by their covariances. What is
    found beyond LIMIT_PX or outside the image does not count, nor does what has nothing of the patch, nor what is not finite.
    """
    return _place(reference, current, reference_points, current_points, (COARSE, FINE))


def refine_all(reference: Pyramid, current: Pyramid, reference_points: Float32, current_points: Float32,
              unmatched: Float32) -> tuple[Refined, Refined]:
    """Matched points (M, 2), and points (N, 2) of the reference that are `unmatched`: both as `refine_matches` does it.

    The unmatched are looked for where the matches around them went, PREDICTED_LIMIT_PX around; without any match N must be 0.
    """
    placed = _place(reference, current, reference_points, current_points, (COARSE, FINE), unmatched)
    count = len(current_points)
    return Refined(placed.points[:count], placed.covariances[:count]), Refined(placed.points[count:], placed.covariances[count:])


def covariances_at(reference: Pyramid, current: Pyramid, reference_points: Float32, current_points: Float32) -> Float32:
    """Covariances (M, 2, 2) in pixels squared of points that another method has placed: by the same patches, where they are."""
    still = COARSE._replace(steps=0), FINE._replace(steps=0)
    return _place(reference, current, reference_points, current_points, still).covariances


def unrefined(count: int, unit: float = 1.0) -> Float32:
    """Covariances (count, 2, 2) in pixels squared of points as SuperPoint sees them."""
    return np.tile(np.eye(2, dtype=np.float32) * np.float32((DETECTED_PX * max(1.0, unit))**2), (count, 1, 1))


def _place(reference: Pyramid, current: Pyramid, reference_points: Float32, current_points: Float32, how: tuple[Level, Level],
           unmatched: Float32 | None = None) -> Refined:
    start = np.asarray(current_points, np.float32)
    if not len(start):
        return Refined(start, np.zeros((0, 2, 2), np.float32))
    before_px, limit_px = (np.full(len(start), value, np.float32) for value in (UNREFINED_PX, LIMIT_PX))
    if unmatched is None or not len(unmatched):
        view = local_affine(reference_points, start)[0]
    else:
        asked = np.concatenate([reference_points, unmatched])
        view, there = local_affine(reference_points, start, at=asked)
        reference_points, start = asked, np.concatenate([start, there[len(start):]])
        before_px = np.append(before_px, np.full(len(unmatched), PREDICTED_PX, np.float32))
        limit_px = np.append(limit_px, np.full(len(unmatched), PREDICTED_LIMIT_PX, np.float32))
    wanted = _Wanted(points_last(reference_points), points_last(start), points_last(view), before_px * np.float32(current.unit),
                     limit_px * np.float32(current.unit))
    blocks = np.array_split(np.arange(len(start)), -(-len(start) // BLOCK))
    with np.errstate(over='ignore', invalid='ignore'):  # of what is then not found
        placed = [_refine_block(reference, current, wanted.of(rows), how) for rows in blocks]
    return Refined(*(points_first(np.concatenate(each, axis=-1)) for each in zip(*placed, strict=True)))


class _Wanted(NamedTuple):
    """M points that are looked for, the last axis of each array, as in `patches`; pixels of the cameras' images."""

    asked: Float32  # (2, M) in the reference
    start: Float32  # (2, M) where they may be
    view: Float32  # (2, 2, M)
    before_px: Float32  # (M,) standard deviation of that
    limit_px: Float32  # (M,)

    def of(self, rows: NDArray[np.intp]) -> _Wanted:
        return _Wanted(*(np.ascontiguousarray(each[..., rows]) for each in self))


def _refine_block(reference: Pyramid, current: Pyramid, wanted: _Wanted, how: tuple[Level, Level]) -> tuple[Float32, Float32]:
    """Where the points are, (2, M), and their covariances (2, 2, M); both are finite where the start is."""
    start = here = wanted.start
    last = np.array(current.levels[0].shape[::-1], np.float32)[:, None] - 1
    information, moved = identity(wanted.before_px**-2), np.zeros_like(start)
    claimed, spread = np.zeros_like(information), np.zeros_like(information)
    found_before = found_once = np.zeros(len(wanted.before_px), np.bool_)
    for depth in reversed(range(len(current.levels))):
        scale, level = np.float32(2**depth), how[0] if depth == len(current.levels) - 1 else how[1]
        found = find_patches(reference.levels[depth], current.levels[depth], wanted.asked / scale, here / scale, wanted.view,
                             level.radius, level.steps)
        points, more = found.points * scale, inverse_2x2(_covariances(found, level) * scale**2)
        good = np.sum((points - start)**2, axis=0) < wanted.limit_px**2
        good &= found.alike & np.all((points >= 0) & (points <= last), axis=0) & np.isfinite(more).all(axis=(0, 1))
        points = np.where(good, points, start)
        apart, more = (points - here) * (good & found_before), np.where(good, more, np.float32(0))
        spread += outer(apart, apart) * np.float32(DISAGREEMENT)
        here, found_before, found_once = points, good, found_once | good
        information, moved = information + more, moved + through(more, here - start)
        claimed = claimed + lessened(more, _of_noise(level) / scale**2)
    at_worst = np.where(found_once, np.float32(UNREFINED_PX * current.unit), wanted.before_px)
    covariances = inverse_2x2(claimed + identity(at_worst**-2))
    spread += identity(eigenvalue_gap(covariances) * np.float32(BEND**2))
    return start + through(inverse_2x2(information), moved), covariances + spread


def _covariances(found: PatchFit, level: Level) -> Float32:
    """(2, 2, M) in the level's pixels squared: noise over texture, what the way back misses, and a floor."""
    by_noise = found.inverse * (found.residual * np.float32(level.noise / (2 * level.radius + 1)**2))
    by_return = outer(found.backward, found.backward * np.float32(level.backward))
    return by_noise + by_return + identity(np.full_like(found.residual, FLOOR_PX**2))


def _of_noise(level: Level) -> np.float32:
    """What is known of a patch without texture, by what noise makes look like some, 1 / (the level's pixels squared)."""
    return np.float32(GHOST * (2 * level.radius + 1)**2 / level.noise)
