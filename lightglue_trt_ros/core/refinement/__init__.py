"""Subpixel refinement of matched points by the image patches around them, with a covariance for each.

SuperPoint locates a point to about half a pixel. The patch around it locates it to a tenth, but only across edges, and only
where there is texture: the covariance has both.
"""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from ..geometry import Size
from ..types import Float32, Rows, UInt8
from .matrices import eigenvalue_gap, identity, inverse_2x2, lessened, outer, points_first, points_last, through
from .patches import PatchFit, find_patches, local_affine


class Level(NamedTuple):
    """Patches at one level of the pyramid, and the factors of their variance, in its pixels."""

    radius: int  # of the patch
    steps: int
    noise: float  # times the residual over the patch's structure
    backward: float  # times the square of the error of the way back


COARSE, FINE = Level(7, 4, 4.1, 0.56), Level(4, 2, 2.1, 0.5)  # wide at low resolution, then narrow and more often planar
SMALL = 0.6  # unit of an image whose features are of an enlarged one: its points are near, and a wide patch is of several things
BLOCK = 512  # most points at a time: their patches take 5 MB
FLOOR_PX = 0.03  # least standard deviation, in a level's pixels
DISAGREEMENT = 0.25  # times the square of the difference between levels
GHOST = 0.5  # times the residual: apparent structure of pure noise, in every direction
BEND = 0.15  # times the deviation along an edge beyond that across: error of a bent edge
LIMIT_PX = 6.0  # a patch found further away does not count
UNREFINED_PX = 2.0  # standard deviation of a matched point whose patch is not found; the largest of one that is found
DOUBT = 8.0  # times the variance: what a match of raw score 0 has beyond one of score 1
DETECTED_PX = 0.5  # standard deviation of a detection of SuperPoint
PREDICTED_PX, PREDICTED_LIMIT_PX = 5.0, 12.0  # standard deviation and limit of a point predicted from its neighbours


class Refined(NamedTuple):
    """M refined points of the current image, and their covariances given the points of the reference."""

    points: Float32  # (M, 2) pixels
    covariances: Float32  # (M, 2, 2) pixels squared

    def take(self, rows: Rows) -> Refined:
        """Points and covariances of `rows`."""
        return Refined(self.points.take(rows, axis=0), self.covariances.take(rows, axis=0))

    def with_doubt(self, scores: Float32) -> Refined:
        """Larger covariances for matches of lower scores (M,): a match with score s is right with probability s, else near.

        The variance of that mixture is linear in s. It needs no patch: matches of a low score err more at the same texture.
        """
        return Refined(self.points, self.covariances * (1 + np.float32(DOUBT) * (1 - scores))[:, None, None])

    def with_fallback(self, points: Float32, unit: float) -> Refined:
        """Rows that are not finite replaced by `points` (M, 2) with UNREFINED_PX."""
        finite = np.isfinite(self.points), np.isfinite(self.covariances)
        if finite[0].all() and finite[1].all():
            return self
        wrong = np.flatnonzero(~(finite[0].all(axis=1) & finite[1].all(axis=(1, 2))))
        refined = Refined(self.points.copy(), self.covariances.copy())
        refined.points[wrong], refined.covariances[wrong] = points[wrong], np.eye(2) * (UNREFINED_PX * unit)**2
        return refined


class Pyramid:
    """Gray levels of a frame in float32, at full size, half of it, and so on.

    `unit`: pixels of the frame to one of the extractor's image. Where it is large, points are less certain and the search begins in
    smaller images.
    """

    def __init__(self, image: UInt8, unit: float = 1.0) -> None:
        self.unit = max(1.0, unit)
        self.levels: list[Float32] = [image.astype(np.float32)]
        for _ in levels_for((image.shape[0], image.shape[1]), unit)[1:]:
            self.levels.append(np.asarray(cv2.pyrDown(self.levels[-1]), np.float32))


def levels_for(size: Size, unit: float) -> list[Size]:
    """Sizes (height, width) of a pyramid's levels, the image first: two, more where `unit` is large, and it alone where small."""
    smaller = 1 + round(float(np.log2(max(1.0, unit)))) if unit > SMALL else 0
    return [(-(-size[0] // 2**depth), -(-size[1] // 2**depth)) for depth in range(1 + smaller)]


def refine_points(reference: Pyramid, current: Pyramid, reference_points: Float32, current_points: Float32,
                  levels: tuple[Level, Level] = (COARSE, FINE)) -> Refined:
    """Refine matched and unmatched points of the reference by its patches.

    The result is the mean of the initial position and of the patch found at each level, weighted by their covariances. A patch
    does not count beyond a limit, outside the image, without correlation, or with values that are not finite.

    Args:
        reference_points: (M + N, 2), of which the first M are matched.
        current_points: (M, 2). The other N points are searched within PREDICTED_LIMIT_PX of where the matches around them went;
            without any match N must be 0.
        levels: of the smallest of several images, and of all others.
    """
    start, matched = np.asarray(current_points, np.float32), len(current_points)
    if not matched:
        return Refined(start, np.zeros((0, 2, 2), np.float32))
    view, predicted = local_affine(reference_points[:matched], start, reference_points)
    start = np.concatenate([start, predicted[matched:]])
    is_matched = np.arange(len(start)) < matched
    start_px = np.where(is_matched, np.float32(UNREFINED_PX), np.float32(PREDICTED_PX))
    limit_px = np.where(is_matched, np.float32(LIMIT_PX), np.float32(PREDICTED_LIMIT_PX))
    search = _Search(points_last(reference_points), points_last(start), points_last(view), start_px * np.float32(current.unit),
                     limit_px * np.float32(current.unit))
    blocks = np.array_split(np.arange(len(start)), -(-len(start) // BLOCK))
    with np.errstate(over='ignore', invalid='ignore'):  # in patches that then do not count
        refined = [_refine_block(reference, current, search.of(rows), levels) for rows in blocks]
    return Refined(*(points_first(np.concatenate(each, axis=-1)) for each in zip(*refined, strict=True)))


def unrefined(count: int, unit: float = 1.0) -> Float32:
    """Covariances (count, 2, 2), pixels squared, of detections of SuperPoint."""
    return np.tile(np.eye(2, dtype=np.float32) * np.float32((DETECTED_PX * max(1.0, unit))**2), (count, 1, 1))


class _Search(NamedTuple):
    """M points to search, the last axis of each array; pixels of the cameras' images."""

    reference: Float32  # (2, M) in the reference
    start: Float32  # (2, M) predicted in the current image
    view: Float32  # (2, 2, M)
    start_px: Float32  # (M,) standard deviation of `start`
    limit_px: Float32  # (M,)

    def of(self, rows: NDArray[np.intp]) -> _Search:
        return _Search(*(np.ascontiguousarray(each[..., rows]) for each in self))


def _refine_block(reference: Pyramid, current: Pyramid, search: _Search, levels: tuple[Level, Level]) -> tuple[Float32, Float32]:
    """Refined points (2, M) and covariances (2, 2, M), finite where `start` is."""
    start = here = search.start
    last = np.array(current.levels[0].shape[::-1], np.float32)[:, None] - 1
    information, moved = identity(search.start_px**-2), np.zeros_like(start)
    certain, extra = np.zeros_like(information), np.zeros_like(information)
    good_before = good_once = np.zeros(len(search.start_px), np.bool_)
    for depth in reversed(range(len(current.levels))):
        scale, level = np.float32(2**depth), levels[0] if 0 < depth == len(current.levels) - 1 else levels[1]
        fit = find_patches(reference.levels[depth], current.levels[depth], search.reference / scale, here / scale, search.view,
                             level.radius, level.steps)
        points, more = fit.points * scale, inverse_2x2(_covariances(fit, level) * scale**2)
        good = np.sum((points - start)**2, axis=0) < search.limit_px**2
        good &= fit.alike & np.all((points >= 0) & (points <= last), axis=0) & np.isfinite(more).all(axis=(0, 1))
        points = np.where(good, points, start)
        apart, more = (points - here) * (good & good_before), np.where(good, more, np.float32(0))
        extra += outer(apart, apart) * np.float32(DISAGREEMENT)
        here, good_before, good_once = points, good, good_once | good
        information, moved = information + more, moved + through(more, here - start)
        noise = np.float32(GHOST * (2 * level.radius + 1)**2 / level.noise)  # its information, 1 / (the level's pixels squared)
        certain = certain + lessened(more, noise / scale**2)
    at_worst = np.where(good_once, np.float32(UNREFINED_PX * current.unit), search.start_px)
    covariances = inverse_2x2(certain + identity(at_worst**-2))
    extra += identity(eigenvalue_gap(covariances) * np.float32(BEND**2))
    return start + through(inverse_2x2(information), moved), covariances + extra


def _covariances(fit: PatchFit, level: Level) -> Float32:
    """(2, 2, M), the level's pixels squared: noise over texture, error of the way back, and a floor."""
    by_noise = fit.inverse * (fit.residual * np.float32(level.noise / (2 * level.radius + 1)**2))
    by_return = outer(fit.backward, fit.backward * np.float32(level.backward))
    return by_noise + by_return + identity(np.full_like(fit.residual, FLOOR_PX**2))
