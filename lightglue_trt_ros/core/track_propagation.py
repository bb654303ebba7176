"""Track propagation: unmatched points of a track continue where the image still shows them.

SuperPoint does not detect every point again. The motion of the neighbours predicts its position. Refinement finds the point there,
or gives it a large covariance. The epipolar geometry of the matches rejects points with another motion. A camera that only rotates,
or observes a plane, has many such geometries, which all fit such points.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .cameras import Intrinsics
from .geometry import Size, epipolar_distances
from .lens import in_image
from .refinement import PREDICTED_PX, Refined
from .types import Float32, Float64, Rows, largest_sigmas

MAX_SIGMA_PX = 0.57 * PREDICTED_PX  # largest standard deviation: the images give two thirds of the information
LINE_PX = 2.0  # largest distance to the epipolar line
NEAR_PX = 3.0  # points nearer than this are one: SuperPoint's keypoints are more than 4 apart


class Propagated(NamedTuple):
    """C points that continue without a match, pixels of the current frame."""

    rows: Rows  # (C,) of the reference
    next_rows: Rows  # (C,) of the current frame: of a keypoint at that point, or new rows after all others
    refined: Refined


def propagate(rows: Rows, reference_points: Float32, refined: Refined, keypoints: Float32, matched: Rows, size: Size,
              fundamental: Float64 | None = None, unit: float = 1.0, camera: Intrinsics | None = None) -> Propagated:
    """Choose the candidates that continue, smallest covariance first; none is near another one or near a match.

    Args:
        rows, reference_points: (N,) and (N, 2), the candidates: unmatched points of the reference.
        refined: their positions in the current frame, NaN where not refined.
        keypoints: (K, 2) of the current frame; at most K candidates continue.
        matched: rows of `keypoints` with a match.
        size: (height, width) of the current frame.
        fundamental: (3, 3) maps undistorted points of the reference to their epipolar lines; None where it is unknown.
        unit: pixels of the image to one of the extractor's image.
        camera: of both frames. A point that its lens cannot undistort has no line, and does not continue.
    """
    if not len(rows):
        return Propagated(rows, rows, refined)
    (u, v), sigmas = refined.points.T, largest_sigmas(refined.covariances)
    good = (sigmas <= MAX_SIGMA_PX * unit) & (u >= 0) & (v >= 0) & (u <= size[1] - 1) & (v <= size[0] - 1)
    if fundamental is not None:
        good &= np.abs(_line_distances(reference_points, refined.points, fundamental, camera)) < LINE_PX * unit
    known = np.flatnonzero(good)
    order = known.take(sigmas.take(known).argsort(kind='stable'))
    left, keypoint_rows = _without_near_duplicates(refined.points.take(order, axis=0), keypoints, NEAR_PX * unit)
    kept = _one_per_keypoint(keypoint_rows, matched, count := len(keypoints))[:count]
    chosen, next_rows = order.take(left.take(kept)), keypoint_rows.take(kept)
    new = next_rows == count
    next_rows[new] = count + np.arange(np.count_nonzero(new))
    return Propagated(rows.take(chosen), next_rows, refined.take(chosen))


def _without_near_duplicates(points: Float32, keypoints: Float32, reach: float) -> tuple[Rows, Rows]:
    """Which points of (M, 2), best first, have no better one within `reach`; and the first of the K keypoints there, K for none."""
    count = len(keypoints)
    near, others = _near_pairs(points, np.concatenate([keypoints, points]), reach)
    keypoint_rows, duplicate = np.full(len(points), count), np.zeros(len(points), np.bool_)
    at_keypoint, at_better = others < count, others - count < near
    duplicate[near[at_better & ~at_keypoint]] = True
    np.minimum.at(keypoint_rows, near[at_keypoint], others[at_keypoint])
    left = np.flatnonzero(~duplicate)
    return left, keypoint_rows.take(left)


def _one_per_keypoint(keypoint_rows: Rows, matched: Rows, count: int) -> Rows:
    """Which points, best first, continue: those without a keypoint (`count`), and the best at each keypoint that has no match."""
    numbers, taken, best = np.arange(len(keypoint_rows)), np.zeros(count + 1, np.bool_), np.empty(count + 1, np.intp)
    taken[matched] = True
    best[keypoint_rows[::-1]] = numbers[::-1]  # the last one written stays
    return np.flatnonzero((keypoint_rows == count) | ((best.take(keypoint_rows) == numbers) & ~taken.take(keypoint_rows)))


def _line_distances(points0: Float32, points1: Float32, fundamental: Float64, camera: Intrinsics | None) -> Float64:
    """Signed distances (N,), pixels of the image, of points (N, 2) to the epipolar lines of points (N, 2); NaN where unknown."""
    if camera is None or not camera.lens.distorts:
        return epipolar_distances(points0, points1, fundamental)[0]
    after = camera.lens.undistorted(points1)
    distances, normals = epipolar_distances(camera.lens.undistorted(points0).points, after.points, fundamental)
    return distances / in_image(after.jacobians, normals)


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
