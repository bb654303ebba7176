"""From matches to correspondences: refined points, the residuals that scale their covariances, and tracks that propagate.

Track propagation: unmatched points of a track continue where the image still shows them.
SuperPoint does not detect every point again. The motion of the neighbours predicts its position. Refinement finds the point there,
or gives it a large covariance. The epipolar geometry of the matches rejects points with another motion. A camera that only rotates,
or observes a plane, has many such geometries, which all fit such points.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .geometry import Size, epipolar_distances
from .masks import Mask
from .refinement import PREDICTED_PX, Refined
from .refinement.variance_factor import measure
from .types import Float32, Float64, Matches, Rows, largest_sigmas

MAX_SIGMA_PX = 0.57 * PREDICTED_PX  # largest standard deviation: the images give two thirds of the information
LINE_PX = 2.0  # largest distance to the epipolar line
NEAR_PX = 3.0  # points nearer than this are one: SuperPoint's keypoints are more than 4 apart


class Sought(NamedTuple):
    """The reference's points to find in the current frame."""

    points: Float32  # (K + C, 2) pixels: keypoints, refined where they were matched, then propagated points
    searched: NDArray[np.bool_]  # (K + C,) whether a point is searched where it has no match
    mask: Mask | None  # of the current frame, of the images' size or of the engine's
    fit_limit: float  # limit of the epipolar fit, as VarianceFactor has it


class Correspondences(NamedTuple):
    """M matches, then C propagated points, smallest covariance first; pixels."""

    matched: int  # M
    rows: Rows  # (M + C,) of the reference
    next_rows: Rows  # (M + C,) of the current frame: of its K keypoints, or new rows behind them
    reference_points: Float32  # (M + C, 2)
    points: Float32  # (M + C, 2)
    covariances: Float32  # (M + C, 2, 2) of `points`, not yet scaled
    scores: Float32  # (M + C,) 0 for propagated points
    quantile: float  # of the squared distances of inliers to their epipolar lines, over their variances: for VarianceFactor
    inliers: int

    def merged_into(self, keypoints: Float32) -> Float32:
        """The current frame's keypoints (K, 2) with these points at their rows, (K or more, 2)."""
        more = max(0, int(self.next_rows.max(initial=-1)) + 1 - len(keypoints))
        merged = np.concatenate([keypoints, np.zeros((more, 2), np.float32)])
        merged[self.next_rows] = self.points
        return merged


def correspond(sought: Sought, answer: Matches, keypoints: Float32, size: Size, unit: float,
               refine: Callable[[Rows, Float32], Refined]) -> Correspondences:
    """Correspondences by the host.

    Args:
        answer: of LightGlue; finite.
        keypoints: (K, 2) pixels of the current frame.
        size: (height, width) of the frames.
        unit: pixels of the frames to one of the engine's image.
        refine: refines rows (N,) of the reference, matched at points (N, 2), NaN where unmatched.
    """
    rows = np.flatnonzero(answer.indices >= 0)
    next_rows, count, at_least_one = answer.indices.take(rows).astype(np.intp), len(rows), max(1.0, unit)
    searched = sought.searched.copy()
    searched[rows] = False
    lost = np.flatnonzero(searched) if count else rows  # matches say where to search
    points, numbers = keypoints.take(next_rows, axis=0), np.arange(count + len(lost))
    refined = refine(np.concatenate([rows, lost]), np.concatenate([points, np.full((len(lost), 2), np.nan, np.float32)]))
    scores, before = answer.scores.take(rows), sought.points.take(rows, axis=0)
    matched = refined.take(numbers[:count]).with_fallback(points, at_least_one).with_doubt(scores)
    fit = measure(before, matched.points, matched.covariances, at_least_one, sought.fit_limit)
    lost_refined = refined.take(numbers[count:])
    if sought.mask is not None:
        allowed = np.flatnonzero(sought.mask.allows(lost_refined.points, size))
        lost, lost_refined = lost.take(allowed), lost_refined.take(allowed)
    known = keypoints.copy()
    known[next_rows] = matched.points
    more = propagate(lost, sought.points.take(lost, axis=0), lost_refined, known, next_rows, size, fit.fundamental, unit)
    return Correspondences(
        count, np.concatenate([rows, more.rows]), np.concatenate([next_rows, more.next_rows]),
        np.concatenate([before, sought.points.take(more.rows, axis=0)]), np.concatenate([matched.points, more.refined.points]),
        np.concatenate([matched.covariances, more.refined.covariances]),
        np.concatenate([scores, np.zeros(len(more.rows), np.float32)]), fit.quantile, fit.inliers)


class Propagated(NamedTuple):
    """C points that continue without a match, pixels of the current frame."""

    rows: Rows  # (C,) of the reference
    next_rows: Rows  # (C,) of the current frame: of a keypoint at that point, or new rows after all others
    refined: Refined


def propagate(rows: Rows, reference_points: Float32, refined: Refined, keypoints: Float32, matched: Rows, size: Size,
              fundamental: Float64 | None = None, unit: float = 1.0) -> Propagated:
    """Choose the candidates that continue, smallest covariance first; none is near another one or near a match.

    Args:
        rows, reference_points: (N,) and (N, 2), the candidates: unmatched points of the reference.
        refined: their positions in the current frame, NaN where not refined.
        keypoints: (K, 2) of the current frame; at most K candidates continue.
        matched: rows of `keypoints` with a match.
        size: (height, width) of the current frame.
        fundamental: (3, 3) maps points of the reference to their epipolar lines; None where it is unknown.
        unit: pixels of the image to one of the extractor's image.
    """
    if not len(rows):
        return Propagated(rows, rows, refined)
    (u, v), sigmas = refined.points.T, largest_sigmas(refined.covariances)
    good = (sigmas <= MAX_SIGMA_PX * unit) & (u >= 0) & (v >= 0) & (u <= size[1] - 1) & (v <= size[0] - 1)
    if fundamental is not None:
        distances, _ = epipolar_distances(reference_points, refined.points, fundamental)
        good &= np.abs(distances) < LINE_PX * unit
    known = np.flatnonzero(good)
    order = known.take(sigmas.take(known).argsort(kind='stable'))
    points, count = refined.points.take(order, axis=0), len(keypoints)
    near, others = _near_pairs(points, np.concatenate([keypoints, points]), NEAR_PX * unit)
    keypoint_rows, duplicate = np.full(len(order), count), np.zeros(len(order), np.bool_)  # `count`: no keypoint is near
    near_keypoint, near_better = others < count, others - count < near  # a better candidate has a smaller covariance
    duplicate[near[near_better & ~near_keypoint]] = True
    np.minimum.at(keypoint_rows, near[near_keypoint], others[near_keypoint])

    left = np.flatnonzero(~duplicate)
    keypoint_rows, numbers = keypoint_rows.take(left), np.arange(len(left))
    taken, first = np.zeros(count + 1, np.bool_), np.empty(count + 1, np.intp)
    taken[matched] = True
    first[keypoint_rows[::-1]] = numbers[::-1]  # the last one written stays
    new = keypoint_rows == count
    kept = np.flatnonzero(new | ((first.take(keypoint_rows) == numbers) & ~taken.take(keypoint_rows)))[:count]
    chosen, next_rows, new = order.take(left.take(kept)), keypoint_rows.take(kept), new.take(kept)
    next_rows[new] = count + np.arange(np.count_nonzero(new))
    return Propagated(rows.take(chosen), next_rows, refined.take(chosen))


def _near_pairs(points0: Float32, points1: Float32, reach: float) -> tuple[Rows, Rows]:
    """Pairs of points (M, 2) and (L, 2) that are nearer than `reach`: rows (N,) of both.

    A sweep along u: each point is compared with those between u - reach and u + reach.
    """
    (u0, v0), (u1, v1) = points0.T, points1.T
    along = u1.argsort()
    sorted_u = u1.take(along)
    first = sorted_u.searchsorted(u0 - np.float32(reach))
    counts = sorted_u.searchsorted(u0 + np.float32(reach), side='right') - first
    rows = np.repeat(np.arange(len(u0)), counts)
    others = along.take(np.arange(len(rows)) + np.repeat(first - (np.cumsum(counts) - counts), counts))
    du, dv = u0.take(rows) - u1.take(others), v0.take(rows) - v1.take(others)
    near = np.flatnonzero(du * du + dv * dv < reach**2)
    return rows.take(near), others.take(near)
