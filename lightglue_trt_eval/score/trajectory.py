"""Trajectories: the two-view odometry, its errors against the ground truth, and their confidence intervals.

Poses are (N, 4, 4), world from camera, row by row of the same frames. A true pose with a NaN is unknown: its row is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lightglue_trt_ros.core.types import Float64, FrameMatches
from lightglue_trt_ros.datasets.poses import angles_deg
from lightglue_trt_ros.odometry.sliding_window import MatchOdometry, Quality
from lightglue_trt_ros.odometry.two_view import RelativePose

from .confidence import LEVEL, SEED, ConfidenceInterval, dependence, drawn_blocks, mean_interval, ratio_interval
from .metrics import OdometryResult

KITTI_SEGMENTS_M = (100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 700.0, 800.0)
SHORT_SEGMENTS_M = (5.0, 10.0, 20.0, 50.0)  # where not even 100 m were covered
KITTI_EVERY = 10  # frames between the starts of segments
TRAJECTORIES = 200  # that are drawn
ALIGNED = 3  # poses that an ATE needs: a similarity takes any two to their places
LEAST_STEP_M, LEAST_STEPS = 1e-3, 5  # that have a length to compare, and how many
_CHUNK = 100_000  # poses of them that are held at a time

Scale = Literal['truth', 'unit']


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


class KittiDrift(NamedTuple):
    """Mean errors over segments of the path."""

    translation_percent: float
    rotation_deg_per_m: float
    segments_m: tuple[float, ...]  # lengths of which at least one segment lies in the path
    translations: tuple[float, ...]  # of each segment, as shares
    rotations: tuple[float, ...]  # of each segment, degrees per metre
    starts: tuple[int, ...]  # of each segment, rows of the known poses


def known_poses(true: ArrayLike) -> NDArray[np.bool_]:
    """Rows (N,) bool of poses that are known."""
    return np.asarray(np.isfinite(np.asarray(true, np.float64)).all(axis=(1, 2)), np.bool_)


def align_sim3(estimated: ArrayLike, true: ArrayLike) -> Similarity | None:
    """The similarity that takes the estimated positions closest to the true ones, by least squares (Umeyama, PAMI 1991).

    Positions on one line, or in one point, leave a rotation open: there the orientations choose it. Where the one or the other does
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
    # Rounding alone moves equal positions by 1e-16 of their distance from the origin.
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


def rpe(estimated: ArrayLike, true: ArrayLike) -> tuple[float, float] | None:
    """Relative pose error per frame: of (Q_i^-1 Q_i+1)^-1 (P_i^-1 P_i+1), true Q, estimated P (Sturm et al., IROS 2012).

    Root mean squares of its translation's length in metres and of its angle in degrees, over consecutive rows that are both known.
    None without any.
    """
    lengths, angles = step_errors(estimated, true)
    if not len(lengths):
        return None
    return float(np.sqrt(np.mean(lengths**2))), float(np.sqrt(np.mean(angles**2)))


def step_errors(estimated: ArrayLike, true: ArrayLike) -> tuple[Float64, Float64]:
    """Errors of the steps, for `rpe`: metres and degrees, one of each for every two consecutive rows that are both known."""
    rows = known_poses(true)
    both = np.flatnonzero(rows[1:] & rows[:-1])
    errors = _difference(np.asarray(true, np.float64), np.asarray(estimated, np.float64), both, both + 1)
    return np.linalg.norm(errors[:, :3, 3], axis=1), angles_deg(errors[:, :3, :3])


def kitti_drift(estimated: ArrayLike, true: ArrayLike) -> KittiDrift | None:
    """Drift as the KITTI odometry benchmark's development kit defines it (Geiger et al., CVPR 2012).

    From every tenth frame, to the first one that is more than a segment's length further along the true path: what is left of
    the estimated motion after the true one, its translation and its angle over the segment's length, averaged over all segments.
    Lengths are KITTI's 100, 200 ... 800 m, or 5, 10, 20 and 50 m where the path is not longer than 100 m. None where it is too
    short for any. Frames without ground truth are left out beforehand, and the path leads straight on.
    """
    rows = known_poses(true)
    poses, truth = np.asarray(estimated, np.float64)[rows], np.asarray(true, np.float64)[rows]
    if len(truth) < 2:
        return None
    path = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(truth[:, :3, 3], axis=0), axis=1))])
    lengths = np.asarray(KITTI_SEGMENTS_M if path[-1] > KITTI_SEGMENTS_M[0] else SHORT_SEGMENTS_M)
    first, length = (axis.ravel() for axis in np.meshgrid(np.arange(0, len(path), KITTI_EVERY), lengths, indexing='ij'))
    last = np.searchsorted(path, path[first] + length, side='right')
    inside = last < len(path)
    if not inside.any():
        return None
    first, last, length = first[inside], last[inside], length[inside]
    errors = _difference(poses, truth, first, last)
    translation, rotation = np.linalg.norm(errors[:, :3, 3], axis=1) / length, angles_deg(errors[:, :3, :3]) / length
    return KittiDrift(100 * float(translation.mean()), float(rotation.mean()), tuple(np.unique(length).tolist()),
                 tuple(translation.tolist()), tuple(rotation.tolist()), tuple(first.tolist()))


def _difference(one: Float64, other: Float64, first: NDArray[np.int64], last: NDArray[np.int64]) -> Float64:
    """(one_first^-1 one_last)^-1 (other_first^-1 other_last), (M, 4, 4)."""
    motions = [np.linalg.solve(poses[first], poses[last]) for poses in (one, other)]
    return np.asarray(np.linalg.solve(motions[0], motions[1]), np.float64)


class MetricOdometryScore:
    """The odometry in metres over frames as they come, its drift, and the mean share of points that have a length."""

    def __init__(self, name: str, odometry: MatchOdometry) -> None:
        """`name` begins the names of the figures."""
        self._name, self._odometry = name, odometry
        self._poses: list[Float64] = []  # (4, 4) world from camera, estimated and true, NaN where unknown
        self._true: list[Float64] = []
        self._shares: list[float] = []

    def _follow(self, matches: FrameMatches | None, true: Float64 | None) -> Quality:
        """Go on to a frame, to the same pose without matches; how it was found."""
        fix = None if matches is None else self._odometry.add(matches)
        self._true.append(np.full((4, 4), np.nan) if true is None else true)
        self._poses.append(fix.pose if fix is not None else self._poses[-1] if self._poses else np.eye(4))
        return Quality.TRACKING if fix is None else fix.quality

    def _share(self, known: NDArray[np.bool_]) -> None:
        """Which points (M,) of a frame have a length."""
        self._shares.append(float(known.mean()) if len(known) else 0.0)

    def figures(self) -> dict[str, float]:
        """By the names of METRICS; what cannot be known is missing."""
        name, known = self._name, dict[str, float]()
        if self._shares:
            known[f'{name}_points'] = 100 * float(np.mean(self._shares))
        drift = kitti_drift(np.stack(self._poses), np.stack(self._true)) if self._poses else None
        if drift is not None:
            known |= {f'{name}_drift_percent': drift.translation_percent, f'{name}_drift_deg_per_m': drift.rotation_deg_per_m}
        return known

    def length_ratio(self) -> float | None:
        """How long steps of the odometry are to those of the truth, in the median; None where they do not agree on it."""
        if len(self._poses) < 2:
            return None
        ours, true = (np.linalg.norm(np.diff(np.stack(poses)[:, :3, 3], axis=0), axis=1) for poses in (self._poses, self._true))
        known = true[np.isfinite(true)]
        moving = true > max(LEAST_STEP_M, float(np.median(known)) / 4 if len(known) else np.inf)
        if moving.sum() < LEAST_STEPS:
            return None
        low, middle, high = np.percentile(ours[moving] / true[moving], [25, 50, 75])
        return float(middle) if high - low < middle / 4 else None


class TwoViewOdometry:
    """Chains two-view poses into a trajectory that begins at the identity.

    Two views know no scale: each step is as long as the true one (`truth`), or all are 1 long (`unit`). A pair without a pose
    repeats the motion before it (constant velocity), as tracking does that waits for better images; where the truth of a step is
    missing, the last known length stands in.
    """

    def __init__(self, scale: Scale) -> None:
        self.scale: Scale = scale
        self._poses = [np.eye(4)]
        self._rotation, self._direction, self._length = np.eye(3), np.zeros(3), 0.0

    def __len__(self) -> int:
        return len(self._poses)

    def add(self, estimate: RelativePose | None, true_step_m: float | None = None) -> None:
        """Go on to the next frame by its pose relative to the last one, None where there is none.

        `true_step_m` is the true distance between the two cameras in metres, None or NaN where unknown; unit scale ignores it.
        """
        if self.scale == 'unit':
            self._length = 1.0
        elif true_step_m is not None and math.isfinite(true_step_m):
            self._length = float(true_step_m)
        if estimate is not None:  # the motion of camera 1 in camera 0's axes is the inverse of what takes points from 0 to 1
            self._rotation, self._direction = estimate.rotation.T, -estimate.rotation.T @ estimate.translation
        step = np.eye(4)
        step[:3, :3], step[:3, 3] = self._rotation, self._length * self._direction
        self._poses.append(self._poses[-1] @ step)

    def result(self, frames: Sequence[int], stamps: ArrayLike, true_poses: ArrayLike | None = None) -> OdometryResult:
        """The trajectory of N frames and its errors: `frames` and `stamps` (N,), `true_poses` (N, 4, 4) with NaN where unknown.

        N is one more than the pairs that were added. With truth: ATE after Sim(3) alignment, of three known poses or more; RPE per
        frame (of the trajectory as chained, which a frame's choice of axes leaves alone); and KITTI's drift where the path is long
        enough for it. In unit scale, translations in metres make no sense: the ATE, whose alignment finds the scale, and the
        rotations' errors remain. Where no step of the truth is known, only rotations do.
        """
        poses, numbers, times = np.stack(self._poses), np.asarray(frames, np.int64), np.asarray(stamps, np.float64)
        truth = None if true_poses is None else np.asarray(true_poses, np.float64)
        alignment = None if truth is None else align_sim3(poses, truth)
        if truth is None or alignment is None:
            return OdometryResult(numbers, times, poses, None, self.scale)
        aligned = alignment.apply(poses)
        steps = rpe(poses, truth)
        metric = self.scale == 'truth' and steps is not None  # else no step has its true length
        figures: dict[str, float | None] = {}
        if known_poses(truth).sum() >= ALIGNED and (metric or self.scale == 'unit'):
            figures['ate_m'] = ate(aligned, truth)
        if steps is not None:
            figures |= {'rpe_m': steps[0] if metric else None, 'rpe_deg': steps[1]}
        if (drift := kitti_drift(poses, truth)) is not None:
            figures |= {'drift_percent': drift.translation_percent if metric else None,
                        'drift_deg_per_m': drift.rotation_deg_per_m}
        return OdometryResult(numbers, times, aligned, truth, self.scale,
                              {name: value for name, value in figures.items() if value is not None},
                              () if drift is None else drift.segments_m, odometry_intervals(poses, truth, drift))


def odometry_intervals(poses: Float64, truth: Float64, drift: KittiDrift | None) -> dict[str, ConfidenceInterval]:
    """The intervals of a trajectory's figures: poses (N, 4, 4) as chained, ground truth (N, 4, 4) with NaN where it is unknown.

    One trajectory is one draw: its ATE is set next to those of trajectories that make the same errors, step by step, at other
    places, several consecutive steps at a time. Segments count by the frame where they begin: those of neighbouring ones overlap.
    """
    intervals = {}
    lengths, angles = step_errors(poses, truth)
    if len(lengths):
        intervals = {'rpe_m': _root(mean_interval(lengths**2)), 'rpe_deg': _root(mean_interval(angles**2)),
                     'ate_m': _ate(poses, truth)}
    if drift is not None:
        starts, places = np.unique(drift.starts, return_inverse=True)
        counts = np.bincount(places)
        sums = [np.bincount(places, errors, len(starts)) for errors in (drift.translations, drift.rotations)]
        intervals |= {'drift_percent': ratio_interval(sums[0], counts).scaled(100),
                      'drift_deg_per_m': ratio_interval(sums[1], counts)}
    return intervals


def _ate(poses: Float64, truth: Float64) -> ConfidenceInterval:
    rows = known_poses(truth)
    true, chained = truth[rows], poses[rows]
    steps = np.linalg.solve(true[:-1], true[1:])
    errors = np.linalg.solve(steps, np.linalg.solve(chained[:-1], chained[1:]))
    block = dependence(np.hstack([errors[:, :3, 3], (errors - errors.transpose(0, 2, 1))[:, (0, 0, 1), (1, 2, 2)]])).block
    rng, ates = np.random.default_rng(SEED), list[float]()
    for start in range(0, TRAJECTORIES, step := max(1, _CHUNK // len(true))):
        drawn = drawn_blocks(len(steps), block, min(step, TRAJECTORIES - start), rng)
        others = np.tile(np.eye(4), (len(drawn), len(true), 1, 1))
        for number in range(len(steps)):
            others[:, number + 1] = others[:, number] @ steps[number] @ errors[drawn[:, number]]
        ates += [value for other in others if (value := _ate_aligned(other, true)) is not None]
    low, high = np.quantile(ates, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    own = _ate_aligned(chained, true)
    if own is not None:  # other axes cancel in the trajectory itself, and at other places they do not
        low, high = min(low, own), max(high, own)
    return ConfidenceInterval(float(low), float(high), len(steps))


def _ate_aligned(poses: Float64, true: Float64) -> float | None:
    """None where the poses cannot be aligned."""
    alignment = align_sim3(poses, true)
    return None if alignment is None else ate(alignment.apply(poses), true)


def _root(squared: ConfidenceInterval) -> ConfidenceInterval:
    return ConfidenceInterval(math.sqrt(squared.low), math.sqrt(squared.high), squared.size)
