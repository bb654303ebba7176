"""From matches to correspondences: refined points, the residuals that scale their covariances, and tracks that propagate."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .cameras import Intrinsics
from .geometry import Size, as_complex
from .masks import Mask
from .refinement import Refined
from .refinement.variance_factor import epipolar_residuals
from .track_propagation import propagate
from .types import Float32, Matches, Rows


class Sought(NamedTuple):
    """The reference's points to find in the current frame."""

    points: Float32  # (K + C, 2) pixels: keypoints, refined where they were matched, then propagated points
    searched: NDArray[np.bool_]  # (K + C,) whether a point is searched where it has no match
    mask: Mask | None  # of the current frame, of the images' size or of the engine's
    fit_limit: float  # limit of the epipolar fit, as VarianceFactor has it
    camera: Intrinsics | None = None  # of both frames, whose lens then counts; None: unknown


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
    second_quantile: float = math.inf  # the same for the geometry that fits second best
    tested: int = 0  # matches that inliers are of

    def without(self, foreign: NDArray[np.bool_]) -> Correspondences:
        """Those where `foreign` (M + C,) is false."""
        kept = np.flatnonzero(~foreign)
        arrays = {name: getattr(self, name).take(kept, axis=0)
                  for name in ('rows', 'next_rows', 'reference_points', 'points', 'covariances', 'scores')}
        return self._replace(matched=int(np.count_nonzero(~foreign[:self.matched])), **arrays)

    def merged_into(self, keypoints: Float32) -> Float32:
        """The current frame's keypoints (K, 2) with these points at their rows, (K or more, 2)."""
        more = max(0, int(self.next_rows.max(initial=-1)) + 1 - len(keypoints))
        merged = np.concatenate([keypoints, np.zeros((more, 2), np.float32)])
        as_complex(merged)[self.next_rows] = as_complex(self.points)
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
    fit = epipolar_residuals(before, matched.points, matched.covariances, at_least_one, sought.fit_limit, sought.camera)
    lost_refined = refined.take(numbers[count:])
    if sought.mask is not None:
        allowed = np.flatnonzero(sought.mask.allows(lost_refined.points, size))
        lost, lost_refined = lost.take(allowed), lost_refined.take(allowed)
    known = keypoints.copy()
    known[next_rows] = matched.points
    more = propagate(lost, sought.points.take(lost, axis=0), lost_refined, known, next_rows, size, fit.fundamental, unit,
                     sought.camera)
    return Correspondences(
        count, np.concatenate([rows, more.rows]), np.concatenate([next_rows, more.next_rows]),
        np.concatenate([before, sought.points.take(more.rows, axis=0)]), np.concatenate([matched.points, more.refined.points]),
        np.concatenate([matched.covariances, more.refined.covariances]),
        np.concatenate([scores, np.zeros(len(more.rows), np.float32)]), fit.quantile, fit.inliers, fit.second_quantile, fit.tested)
