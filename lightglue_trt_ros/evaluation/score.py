"""One pair of frames against geometry and truth, and one matcher's correspondences against another's."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.geometry import sampled_model
from ..core.refinement.variance_factor import plausible
from ..core.types import Float64
from ..odometry.two_view import (
    DEFAULT_ESTIMATOR,
    ESTIMATORS,
    MIN_MATCHES,
    PoseEstimator,
    RelativePose,
    deviations,
    epipolar_errors,
    fundamental_from_poses,
    fundamental_of,
    homography_errors,
    pose_error_deg,
    relative_pose,
)
from .baselines import Correspondences
from .metrics import PRECISION_PX, PairResult
from .motion_observability import MIN_BASELINE_M, Motion
from .trajectory import known_poses

Points = tuple[ArrayLike, ArrayLike]  # (M, 2) in the reference and in the current image, pixels

INLIER_PX = 1.0
SAME_PX = 1.0
MIN_MATCHES_UNCALIBRATED = 8  # seven give up to three fundamental matrices that all fit
CONFIDENCE, MAX_ITERATIONS = 0.9999, 10000


class Scored(NamedTuple):
    """What is known about a pair."""

    pair: PairResult
    errors_px: Float64 | None  # (M,) distances to the true epipolar lines; None without truth or camera
    estimate: RelativePose | None  # None without a camera or where no pose was found
    deviations: Float64 | None = None  # of matches from the estimated geometry, over their standard deviations; None: unknown


class Agreement(NamedTuple):
    """Correspondences of one matcher against those of a first one, on the same pair."""

    retention: float  # share of the first's that the other has too, 1 where the first has none
    f1: float  # harmonic mean of that and of the share of the other's that the first has; 1 where neither has any
    count_ratio: float  # other's number over the first's, which counts as at least 1


def score_pair(frames: tuple[int, int], stamp: float, found: Points | None, camera: ArrayLike | None, pose0: ArrayLike | None,
               pose1: ArrayLike | None, *, estimator: PoseEstimator = ESTIMATORS[DEFAULT_ESTIMATOR], motion: Motion | None = None,
               covariances: ArrayLike | None = None, min_baseline_m: float = MIN_BASELINE_M) -> Scored:
    """Score the correspondences of a reference and a current frame.

    `found` are points (M, 2) of both without the lens's distortion, `camera` is the (3, 3) matrix of both, the poses are (4, 4),
    world from camera; None, or a NaN in a pose, means unknown. Without a camera there are matches and the inliers of a fundamental
    matrix or a homography, no more. Where the true cameras are `min_baseline_m` apart or closer, there is no epipolar geometry:
    the rotation's homography stands in. The translation's direction is scored where `motion` is resolved; without a `motion`, where
    the true cameras are further apart than that. `estimator` is one of `twoview.ESTIMATORS`, and gets the `covariances` (M, 2, 2)
    where there are any. Inliers: see `count_inliers`. Distances: see `twoview.epipolar_errors`.
    """
    points0, points1 = (np.zeros((0, 2)), np.zeros((0, 2))) if found is None else (np.asarray(p, np.float64) for p in found)
    inliers, model = count_inliers(points0, points1, camera)
    pair = PairResult(frames, stamp, len(points0), inliers, model)
    if camera is None:
        return Scored(pair, None, None)
    matrix = np.asarray(camera, np.float64)
    weights: tuple[ArrayLike, ...] = () if covariances is None else (covariances,)
    estimate = estimator(points0, points1, matrix, matrix, *weights) if len(points0) else None
    off = None  # from the estimated geometry, which many points know better than most truths do
    if estimate is not None and covariances is not None:
        off = _plausible_deviations(points0, points1, covariances, fundamental_of(estimate, matrix, matrix))
        pair = dataclasses.replace(pair, within_1_sigma=_share(off, 1), within_2_sigma=_share(off, 2))
    if pose0 is None or pose1 is None or not known_poses(np.stack([np.asarray(pose0), np.asarray(pose1)])).all():
        return Scored(pair, None, estimate, off)
    rotation, translation = relative_pose(pose0, pose1)
    step_m = float(np.linalg.norm(translation))
    if step_m > min_baseline_m:
        true = fundamental_from_poses(pose0, pose1, matrix, matrix)
        errors = epipolar_errors(points0, points1, true)
        if covariances is not None:
            truly_off = _plausible_deviations(points0, points1, covariances, true)
            pair = dataclasses.replace(pair, true_within_1_sigma=_share(truly_off, 1), true_within_2_sigma=_share(truly_off, 2))
    else:
        errors = homography_errors(points0, points1, matrix @ rotation @ np.linalg.inv(matrix))
    turn = shift = math.inf
    if estimate is not None:
        turn, shift = pose_error_deg(estimate.rotation, estimate.translation, rotation, translation, min_baseline=min_baseline_m)
    resolved = step_m > min_baseline_m if motion is None else motion.resolved
    precision = tuple(float(np.mean(errors < limit)) if len(errors) else 0.0 for limit in PRECISION_PX)
    pair = dataclasses.replace(
        pair, precision=precision, error_median_px=float(np.median(errors)) if len(errors) else None, rotation_deg=turn,
        translation_deg=shift if resolved else None, step_m=step_m, step_per_depth=None if motion is None else motion.per_depth)
    return Scored(pair, errors, estimate, off)


def _plausible_deviations(points0: Float64, points1: Float64, covariances: ArrayLike, fundamental: Float64) -> Float64:
    """Signed distances of the matches that are not wrong, over their standard deviations."""
    distances, found = deviations(points0, points1, covariances, fundamental)
    return found[plausible(distances, found * found)]


def _share(off: Float64, limit: float) -> float | None:
    """Of deviations (M,) that are below `limit`; None of none."""
    return float(np.mean(np.abs(off) < limit)) if len(off) else None


def count_inliers(points0: ArrayLike, points1: ArrayLike, camera: ArrayLike | None) -> tuple[int, str]:
    """How many correspondences (M, 2) the better model explains within 1 px, and which: essential, homography, or empty.

    Both are estimated by MAGSAC++ (Barath et al., CVPR 2020) with 1 px. A correspondence is explained when its distance
    to the epipolar lines (`twoview.epipolar_errors`), or to where the homography sends it (`twoview.homography_errors`), is under
    1 px. Without a camera matrix (3, 3) a fundamental matrix stands in for the essential one, and is called so. Fewer than six
    correspondences, or eight without a camera, are explained by anything: none counts.
    """
    x0, x1 = (np.ascontiguousarray(points, np.float64) for points in (points0, points1))
    if len(x0) < (MIN_MATCHES_UNCALIBRATED if camera is None else MIN_MATCHES):
        return 0, ''
    if camera is None:
        name = 'fundamental'
        epipolar = sampled_model(cv2.findFundamentalMat, x0, x1, cv2.USAC_MAGSAC, INLIER_PX, CONFIDENCE, MAX_ITERATIONS)
    else:
        name, matrix = 'essential', np.asarray(camera, np.float64)
        epipolar = sampled_model(cv2.findEssentialMat, x0, x1, matrix, method=cv2.USAC_MAGSAC, prob=CONFIDENCE,
                                 threshold=INLIER_PX, maxIters=MAX_ITERATIONS)
        if epipolar is not None:
            inverse = np.linalg.inv(matrix)
            epipolar = inverse.T @ epipolar @ inverse
    homography = sampled_model(cv2.findHomography, x0, x1, cv2.USAC_MAGSAC, INLIER_PX, maxIters=MAX_ITERATIONS,
                               confidence=CONFIDENCE)
    counts = {name: _within(epipolar_errors, x0, x1, epipolar), 'homography': _within(homography_errors, x0, x1, homography)}
    best = max(counts, key=lambda model: counts[model])  # the epipolar model where both explain as much
    return (counts[best], best) if counts[best] else (0, '')


def agreement(first: Correspondences, other: Correspondences) -> Agreement:
    """How far another matcher's correspondences on a pair are the first's: points (M, 2) of the reference and the current image.

    Two correspondences are the same when their points lie within 1 px of each other in both images; one to one, the closest first.
    """
    return _agreement(_common(first, other), len(first.reference), len(other.reference))


def agreement_of_rows(first: NDArray[np.int32], other: NDArray[np.int32]) -> Agreement:
    """The same for matches of the same features: rows (M, 2) of the reference and of the current image, the same where both are."""
    common = len({*map(tuple, first.tolist())} & {*map(tuple, other.tolist())})
    return _agreement(common, len(first), len(other))


def _agreement(common: int, mine: int, others: int) -> Agreement:
    return Agreement(common / mine if mine else 1.0, 2 * common / (mine + others) if mine + others else 1.0, others / max(1, mine))


def _within(distance: Any, x0: Float64, x1: Float64, model: Float64 | None) -> int:
    return 0 if model is None else int(np.sum(distance(x0, x1, model) < INLIER_PX))


def _common(first: Correspondences, other: Correspondences) -> int:
    """Number of correspondences that both have."""
    from scipy.spatial import cKDTree
    one, two = (np.hstack([np.asarray(side, np.float64) for side in pair[:2]]) for pair in (first, other))  # (M, 4)
    if not len(one) or not len(two):
        return 0
    two = two[np.argsort(two[:, 0], kind='stable')]
    near = cKDTree(one).sparse_distance_matrix(cKDTree(two), 2 * SAME_PX, output_type='ndarray')  # and some more
    rows, columns = near['i'], near['j']
    squared = (one[rows] - two[columns])**2
    there, here = squared[:, :2].sum(axis=1), squared[:, 2:].sum(axis=1)
    taken_rows: set[int] = set()
    taken_columns: set[int] = set()
    for k in np.lexsort((columns, rows, there + here)).tolist():
        if max(there[k], here[k]) <= SAME_PX**2 and rows[k] not in taken_rows and columns[k] not in taken_columns:
            taken_rows.add(rows[k])
            taken_columns.add(columns[k])
    return len(taken_rows)
