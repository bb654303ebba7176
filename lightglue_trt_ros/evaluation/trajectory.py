"""How far a trajectory is from the truth: absolute and relative errors, drift.

Poses are (N, 4, 4), world from camera, row by row of the same frames. A true pose with a NaN is unknown: its row is left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.types import Float64
from ..datasets.poses import angles_deg

KITTI_SEGMENTS_M = (100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 700.0, 800.0)
SHORT_SEGMENTS_M = (5.0, 10.0, 20.0, 50.0)  # where not even 100 m were covered
KITTI_EVERY = 10  # frames between the starts of segments


class Similarity(NamedTuple):
    """x -> scale * rotation x + translation."""

    scale: float
    rotation: Float64  # (3, 3)
    translation: Float64  # (3,)

    def apply(self, poses: ArrayLike) -> Float64:
        """Move poses (N, 4, 4): their positions by all of it, their orientations by the rotation."""
        moved = np.array(poses, np.float64)
        moved[:, :3, 3] = self.scale * moved[:, :3, 3] @ self.rotation.T + self.translation
        moved[:, :3, :3] = self.rotation @ moved[:, :3, :3]
        return moved


class RelativeErrors(NamedTuple):
    """Root mean squares over steps of one frame."""

    translation_m: float
    rotation_deg: float


class Drift(NamedTuple):
    """Mean errors over segments of the path."""

    translation_percent: float
    rotation_deg_per_m: float
    segments_m: tuple[float, ...]  # lengths of which at least one segment lies in the path
    translations: tuple[float, ...]  # of each segment, as shares
    rotations: tuple[float, ...]  # of each segment, degrees per metre
    starts: tuple[int, ...]  # of each segment, rows of the known poses

    @property
    def segments(self) -> int:
        """How many."""
        return len(self.translations)


def known_poses(true: ArrayLike) -> NDArray[np.bool_]:
    """Rows (N,) bool of poses that are known."""
    return np.asarray(np.isfinite(np.asarray(true, np.float64)).all(axis=(1, 2)), np.bool_)


def align_sim3(estimated: ArrayLike, true: ArrayLike) -> Similarity | None:
    """The similarity that takes the estimated positions closest to the true ones, by least squares (Umeyama, PAMI 1991).

    Positions on one line, or in one point, leave a turn open: there the orientations choose it. Where the one or the other does
    not move at all there is no scale to find, and it is 1. None without a known pose.
    """
    rows = known_poses(true)
    moving, fixed = np.asarray(estimated, np.float64)[rows], np.asarray(true, np.float64)[rows]
    if not len(fixed):
        return None
    mean0, mean1 = moving[:, :3, 3].mean(0), fixed[:, :3, 3].mean(0)
    centred0, centred1 = moving[:, :3, 3] - mean0, fixed[:, :3, 3] - mean1
    covariance = centred1.T @ centred0
    size0, size1 = np.linalg.norm(centred0), np.linalg.norm(centred1)
    # Rounding alone spreads equal positions by 1e-16 of their distance from the origin.
    moved0 = bool(size0 > 1e-12 * (1 + np.linalg.norm(mean0)))
    moved1 = bool(size1 > 1e-12 * (1 + np.linalg.norm(mean1)))
    correlation = covariance / (size0 * size1) if moved0 and moved1 else np.zeros((3, 3))
    if np.linalg.svd(correlation, compute_uv=False)[1] < 1e-9:
        correlation = correlation + 1e-6 * np.einsum('nij,nkj->ik', fixed[:, :3, :3], moving[:, :3, :3]) / len(fixed)
    left, _, right = np.linalg.svd(correlation)
    signs = np.array([1, 1, np.sign(np.linalg.det(left) * np.linalg.det(right))])
    rotation = left * signs @ right
    scale = float(np.sum(rotation * covariance) / size0**2) if moved0 and moved1 else 1.0
    return Similarity(scale, rotation, mean1 - scale * rotation @ mean0)


def ate(estimated: ArrayLike, true: ArrayLike) -> float | None:
    """Absolute trajectory error: root mean square of the positions' distances, metres (Sturm et al., IROS 2012).

    Nothing is aligned here; see `align_sim3`. None without a known pose.
    """
    rows = known_poses(true)
    if not rows.any():
        return None
    differences = np.asarray(estimated, np.float64)[rows, :3, 3] - np.asarray(true, np.float64)[rows, :3, 3]
    return float(np.sqrt(np.mean(np.sum(differences**2, axis=1))))


def rpe(estimated: ArrayLike, true: ArrayLike) -> RelativeErrors | None:
    """Relative pose error per frame: of (Q_i^-1 Q_i+1)^-1 (P_i^-1 P_i+1), true Q, estimated P (Sturm et al., IROS 2012).

    Root mean squares of its translation's length and of its angle, over consecutive rows that are both known. None without any.
    """
    lengths, angles = step_errors(estimated, true)
    if not len(lengths):
        return None
    return RelativeErrors(float(np.sqrt(np.mean(lengths**2))), float(np.sqrt(np.mean(angles**2))))


def step_errors(estimated: ArrayLike, true: ArrayLike) -> tuple[Float64, Float64]:
    """What `rpe` sums up: metres and degrees, one of each for every two consecutive rows that are both known."""
    rows = known_poses(true)
    both = np.flatnonzero(rows[1:] & rows[:-1])
    errors = _difference(np.asarray(true, np.float64), np.asarray(estimated, np.float64), both, both + 1)
    return np.linalg.norm(errors[:, :3, 3], axis=1), angles_deg(errors[:, :3, :3])


def kitti_drift(estimated: ArrayLike, true: ArrayLike, segments_m: tuple[float, ...] | None = None) -> Drift | None:
    """Drift as the KITTI odometry benchmark's development kit defines it (Geiger et al., CVPR 2012).

    From every tenth frame, to the first one that is more than a segment's length further along the true path: what is left of
    the estimated motion after the true one, its translation and its angle over the segment's length, averaged over all segments.
    Lengths are KITTI's 100, 200 ... 800 m, or 5, 10, 20 and 50 m where the path is not longer than 100 m. None where it is too
    short for any. Frames without truth are left out beforehand, and the path leads straight on.
    """
    rows = known_poses(true)
    poses, truth = np.asarray(estimated, np.float64)[rows], np.asarray(true, np.float64)[rows]
    if len(truth) < 2:
        return None
    path = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(truth[:, :3, 3], axis=0), axis=1))])
    lengths = np.asarray(segments_m or (KITTI_SEGMENTS_M if path[-1] > KITTI_SEGMENTS_M[0] else SHORT_SEGMENTS_M))
    first, length = (axis.ravel() for axis in np.meshgrid(np.arange(0, len(path), KITTI_EVERY), lengths, indexing='ij'))
    last = np.searchsorted(path, path[first] + length, side='right')
    inside = last < len(path)
    if not inside.any():
        return None
    first, last, length = first[inside], last[inside], length[inside]
    errors = _difference(poses, truth, first, last)
    translation, rotation = np.linalg.norm(errors[:, :3, 3], axis=1) / length, angles_deg(errors[:, :3, :3]) / length
    return Drift(100 * float(translation.mean()), float(rotation.mean()), tuple(np.unique(length).tolist()),
                 tuple(translation.tolist()), tuple(rotation.tolist()), tuple(first.tolist()))


def _difference(one: Float64, other: Float64, first: NDArray[np.int64], last: NDArray[np.int64]) -> Float64:
    """(one_first^-1 one_last)^-1 (other_first^-1 other_last), (M, 4, 4)."""
    motions = [np.linalg.solve(poses[first], poses[last]) for poses in (one, other)]
    return np.asarray(np.linalg.solve(motions[0], motions[1]), np.float64)
