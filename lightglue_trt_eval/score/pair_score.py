"""The score of one pair of frames: against its geometry, the ground truth, and the correspondences of another method."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from lightglue_trt_ros.core.geometry import contiguous, epipolar_distances, sampled_model
from lightglue_trt_ros.core.lens import in_image
from lightglue_trt_ros.core.refinement.variance_factor import plausible
from lightglue_trt_ros.core.types import Float64
from lightglue_trt_ros.odometry import two_view
from lightglue_trt_ros.odometry.two_view import (
    MIN_MATCHES,
    PoseEstimator,
    RelativePose,
    epipolar_errors,
    homography_errors,
    relative_pose,
)

from ..baselines import MatchedPoints
from ..predict.scene import MIN_BASELINE_M, MIN_STEP_PER_DEPTH, Motion, Scene, Straight
from .metrics import PRECISION_PX, PairResult
from .trajectory import known_poses

Points = tuple[ArrayLike, ArrayLike]  # (M, 2) in the reference and in the current image, pixels

INLIER_PX = 1.0
SAME_PX = 1.0
MIN_MATCHES_UNCALIBRATED = 8  # seven give up to three fundamental matrices that all fit
CONFIDENCE, MAX_ITERATIONS = 0.9999, 10000
FEW = 50  # matches
SHORT_STEP = 2 * MIN_STEP_PER_DEPTH  # of the depth: where the direction is barely resolved
PLANE_PX, PLANE_SHARE = 1.0, 0.8  # so many of the matches near one homography: the scene is close to a plane
NEAR_DEG = 5.0  # of two poses that are the same


class PairScore(NamedTuple):
    """Figures of a pair."""

    pair: PairResult
    errors_px: Float64 | None  # (M,) distances to the true epipolar lines, infinite if unknown; None without truth or camera
    estimate: RelativePose | None  # None without a camera or where no pose was found
    deviations: Float64 | None = None  # of matches from the estimated geometry, over their standard deviations; None: unknown


class Agreement(NamedTuple):
    """Correspondences of one matcher against those of a first one, on the same pair."""

    retention: float  # share of the first's that the other has too, 1 where the first has none
    f1: float  # harmonic mean of that and of the share of the other's that the first has; 1 where neither has any
    count_ratio: float  # other's number over the first's, which counts as at least 1


def score_pair(frames: tuple[int, int], stamp: float, points: Points | None, camera: ArrayLike | None, pose0: ArrayLike | None,
               pose1: ArrayLike | None, *, estimator: PoseEstimator = two_view.estimate_relative_pose,
               motion: Motion | None = None, covariances: ArrayLike | None = None,
               jacobians: Float64 | None = None) -> PairScore:
    """Score the correspondences of a reference and a current frame.

    Without a camera there are matches and inliers, no more. Where the true cameras are MIN_BASELINE_M apart or closer, the
    rotation's homography replaces the epipolar geometry. The translation's direction is scored where `motion` is resolved; without
    a `motion`, where the true cameras are further apart. Inliers: see `count_inliers`. Distances: see `epipolar_errors`.

    Args:
        points: (M, 2) of both without the lens's distortion, NaN where it has no inverse: such matches are counted and not scored.
        camera: (3, 3) of both; None: unknown.
        pose0, pose1: (4, 4) world from camera; None or NaN: unknown.
        estimator: one of `two_view.ESTIMATORS`.
        covariances: (M, 2, 2) square pixels of the current points, without distortion as they are.
        jacobians: (M, 2, 2) derivative of the current points by the pixels of their image; None: there is no lens.
    """
    given: Points = ([], []) if points is None else points
    sides = [np.asarray(side, np.float64).reshape(-1, 2) for side in given]
    usable = np.asarray(np.isfinite(np.hstack(sides)).all(axis=1), np.bool_)
    x0, x1 = (side[usable] for side in sides)
    inliers, model = count_inliers(x0, x1, camera)
    pair = PairResult(frames, stamp, len(usable), inliers, model)
    if camera is None:
        return PairScore(pair, None, None)
    matrix = np.asarray(camera, np.float64)
    weights = () if covariances is None else (np.asarray(covariances)[usable],)
    slopes = None if jacobians is None else jacobians[usable]
    deviations = partial(_plausible_deviations, x0, x1, *weights, slopes) if weights else None
    estimate = estimator(x0, x1, matrix, matrix, *weights) if len(x0) else None
    off, known = None, dict[str, Any]()  # from the estimated geometry, which many points know better than most truths do
    if estimate is not None and deviations is not None:
        off = deviations(two_view.fundamental_of(estimate, matrix, matrix))
        known |= {'within_1_sigma': _share(off, 1), 'within_2_sigma': _share(off, 2)}
    if pose0 is None or pose1 is None or not known_poses(np.stack([np.asarray(pose0), np.asarray(pose1)])).all():
        return PairScore(dataclasses.replace(pair, **known), None, estimate, off)
    of_truth, errors = _against_truth(x0, x1, matrix, (pose0, pose1), estimate, motion, deviations)
    errors_px = np.full(len(usable), np.inf)
    errors_px[usable] = errors
    return PairScore(dataclasses.replace(pair, **known, **of_truth), errors_px, estimate, off)


def _against_truth(x0: Float64, x1: Float64, matrix: Float64, poses: tuple[ArrayLike, ArrayLike], estimate: RelativePose | None,
                   motion: Motion | None, deviations: Callable[[Float64], Float64] | None) -> tuple[dict[str, Any], Float64]:
    """Fields of a pair's result, and distances (M,) of its matches from the true geometry, pixels."""
    rotation, translation = relative_pose(*poses)
    step_m, known = float(np.linalg.norm(translation)), dict[str, Any]()
    if step_m > MIN_BASELINE_M:
        true = two_view.fundamental_from_poses(*poses, matrix, matrix)
        errors = epipolar_errors(x0, x1, true)
        if deviations is not None:
            off = deviations(true)
            known |= {'true_within_1_sigma': _share(off, 1), 'true_within_2_sigma': _share(off, 2)}
    else:
        errors = homography_errors(x0, x1, matrix @ rotation @ np.linalg.inv(matrix))
    rotation_deg = direction_deg = math.inf
    if estimate is not None:
        rotation_deg, direction_deg = two_view.pose_error_deg(estimate.rotation, estimate.translation, rotation, translation,
                                                              min_baseline=MIN_BASELINE_M)
    resolved = step_m > MIN_BASELINE_M if motion is None else motion.resolved
    precision = tuple(float(np.mean(errors < limit)) if len(errors) else 0.0 for limit in PRECISION_PX)
    return {**known, 'precision': precision, 'error_median_px': float(np.median(errors)) if len(errors) else None,
            'rotation_deg': rotation_deg, 'translation_deg': direction_deg if resolved else None, 'step_m': step_m,
            'step_per_depth': None if motion is None else motion.per_depth}, errors


def score_points(scene: Scene, frames: tuple[int, int], points: MatchedPoints, motion: Motion | None, *,
                 estimator: PoseEstimator = two_view.estimate_relative_pose) -> tuple[PairScore, Straight]:
    """Score the correspondences of two frames of a scene; they are given back without the lens's distortion."""
    straight = scene.straight(frames, points)
    return score_pair(scene.numbers(frames), scene.timeline.seconds(frames[1]), straight.points, scene.camera(frames),
                      scene.pose(frames[0]), scene.pose(frames[1]), estimator=estimator, motion=motion,
                      covariances=straight.covariances, jacobians=straight.jacobians), straight


def _plausible_deviations(x0: Float64, x1: Float64, covariances: ArrayLike, jacobians: Float64 | None,
                          fundamental: Float64) -> Float64:
    """Signed distances of the matches that are not wrong, over their standard deviations."""
    distances, deviations = two_view.deviations(x0, x1, covariances, fundamental)
    if jacobians is not None:
        distances = distances / in_image(jacobians, epipolar_distances(x0, x1, fundamental)[1])
    return deviations[plausible(distances, deviations * deviations)]


def _share(off: Float64, limit: float) -> float | None:
    """Of deviations (M,) that are below `limit`; None of none."""
    return float(np.mean(np.abs(off) < limit)) if len(off) else None


def count_inliers(points0: ArrayLike, points1: ArrayLike, camera: ArrayLike | None) -> tuple[int, str]:
    """How many correspondences (M, 2) the better model explains within 1 px, and which: essential, homography, or empty.

    Both are estimated by MAGSAC++ (Barath et al., CVPR 2020) with 1 px. A correspondence is explained when its distance
    to the epipolar lines (`two_view.epipolar_errors`), or to where the homography sends it (`two_view.homography_errors`), is under
    1 px. Without a camera matrix (3, 3) a fundamental matrix stands in for the essential one, and is called so. Fewer than six
    correspondences, or eight without a camera, are explained by anything: none counts.
    """
    x0, x1 = contiguous(points0), contiguous(points1)
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


def agreement(first: MatchedPoints, other: MatchedPoints) -> Agreement:
    """How far another matcher's correspondences on a pair are the first's: points (M, 2) of the reference and the current image.

    Two correspondences are the same when their points lie within 1 px of each other in both images; one to one, the closest first.
    """
    return _agreement(_common(first, other), len(first.reference), len(other.reference))


def agreement_of_rows(first: NDArray[np.int32], other: NDArray[np.int32]) -> Agreement:
    """The same for matches of the same features: rows (M, 2) of the reference and of the current image, the same where both are."""
    common = len({*map(tuple, first.tolist())} & {*map(tuple, other.tolist())})
    return _agreement(common, len(first), len(other))


def returning_share(forward: MatchedPoints, backward: MatchedPoints) -> float | None:
    """Share of the forward matches that return within 1 px, of those whose end has a backward match within 1 px; None of none."""
    if not len(forward.current) or not len(backward.reference):
        return None
    distances = np.linalg.norm(forward.current[:, None] - backward.reference[None], axis=2)
    again = np.flatnonzero(distances.min(axis=1) < SAME_PX)
    ends = backward.current[distances[again].argmin(axis=1)]
    return float(np.mean(np.linalg.norm(ends - forward.reference[again], axis=1) < SAME_PX)) if len(again) else None


def _agreement(common: int, mine: int, others: int) -> Agreement:
    return Agreement(common / mine if mine else 1.0, 2 * common / (mine + others) if mine + others else 1.0, others / max(1, mine))


def _within(distance: Any, x0: Float64, x1: Float64, model: Float64 | None) -> int:
    return 0 if model is None else int(np.sum(distance(x0, x1, model) < INLIER_PX))


def _common(first: MatchedPoints, other: MatchedPoints) -> int:
    """Number of correspondences that both have."""
    from scipy.spatial import cKDTree
    one, two = (np.hstack([np.asarray(side, np.float64) for side in pair[:2]]) for pair in (first, other))  # (M, 4)
    if not len(one) or not len(two):
        return 0
    two = two[np.argsort(two[:, 0], kind='stable')]
    near = cKDTree(one).sparse_distance_matrix(cKDTree(two), 2 * SAME_PX, output_type='ndarray')  # and some more
    rows, columns = near['i'], near['j']
    squared = (one[rows] - two[columns])**2
    in_reference, in_current = squared[:, :2].sum(axis=1), squared[:, 2:].sum(axis=1)
    taken_rows: set[int] = set()
    taken_columns: set[int] = set()
    for k in np.lexsort((columns, rows, in_reference + in_current)).tolist():
        if max(in_reference[k], in_current[k]) <= SAME_PX**2 and rows[k] not in taken_rows and columns[k] not in taken_columns:
            taken_rows.add(rows[k])
            taken_columns.add(columns[k])
    return len(taken_rows)


def failure_reasons(pair: PairResult, points: tuple[Float64, Float64], camera: Float64 | None, pose0: Float64 | None,
                    pose1: Float64 | None, estimate: RelativePose | None) -> str:
    """Why a pair came out badly, in words: few matches, a short step, a plane.

    Args: undistorted points (M, 2) of both images, NaN if unknown, the camera (3, 3), true world-from-camera poses (4, 4).
    """
    reasons = []
    if pair.matches < FEW:
        reasons.append('no matches' if not pair.matches else f'only {pair.matches} match{"es" * (pair.matches > 1)}')
    if pair.step_m is not None:
        depth = '' if pair.step_per_depth is None else f', {100 * pair.step_per_depth:.1f} % of the depth'
        small = pair.step_per_depth is not None and pair.step_per_depth < SHORT_STEP
        length = f'{1e3 * pair.step_m:.0f} mm' if pair.step_m < 1 else f'{pair.step_m:.1f} m'
        reasons.append(f'the camera {"hardly " * small}moved{":" * small} {length}{depth}')
        if pair.translation_deg is None:
            reasons.append('too little for a true direction: only the rotation is scored')
    if camera is not None and pose0 is not None and pose1 is not None:
        reasons += _plane(points, camera, relative_pose(pose0, pose1), estimate)
    return '; '.join(reasons)


def _plane(points: tuple[Float64, Float64], camera: Float64, truth: tuple[Float64, Float64],
           estimate: RelativePose | None) -> list[str]:
    """A plane allows two poses (Faugeras and Lustman, 1988): is the estimate the other one?"""
    usable = np.isfinite(np.hstack(points)).all(axis=1)
    if estimate is None or np.count_nonzero(usable) < 8:
        return []
    opencv: Any = cv2
    first, second = (side[usable] for side in points)
    homography = sampled_model(cv2.findHomography, first, second, cv2.USAC_MAGSAC, PLANE_PX)
    if homography is None:
        return []
    share = float(np.mean(homography_errors(first, second, homography) < PLANE_PX))
    if share < PLANE_SHARE:
        return []
    _, rotations, translations, _ = opencv.decomposeHomographyMat(contiguous(homography), contiguous(camera))
    poses = [(rotation, step.ravel()) for rotation, step in zip(rotations, translations, strict=True) if np.linalg.norm(step) > 0]

    def near(rotation: Float64, direction: Float64) -> set[int]:
        return {k for k, pose in enumerate(poses) if max(two_view.pose_error_deg(*pose, rotation, direction)) < NEAR_DEG}

    taken, true = near(estimate.rotation, estimate.translation), near(*truth)
    text = f'{100 * share:.0f} % of the matches lie on one plane'
    return [f'{text}, which has two poses: this is the other one' if taken and true and not taken & true else text]
