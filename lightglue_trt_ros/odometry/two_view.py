"""Two views: epipolar geometry of known poses, relative pose from correspondences, and the errors of both.

Poses are world from camera, (4, 4); a relative pose (R, t) maps camera 0 to camera 1, x1 = R x0 + t. Points are (M, 2) pixels.
HZ is Hartley & Zisserman, Multiple View Geometry in Computer Vision, second edition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.geometry import contiguous, epipolar_distances, sampled_model
from ..core.types import Float64
from ..datasets.poses import angles_deg
from .likelihood import Residuals, most_likely
from .pose_covariance import cross_matrix

MIN_MATCHES = 6  # five give up to ten essential matrices that all fit
CONFIDENCE, SAMPLINGS = 0.9999, 10_000  # of RANSAC; OpenCV's USAC methods ignore the latter before 4.7


@dataclass(frozen=True, eq=False)
class RelativePose:
    """Camera 1 from camera 0, with the correspondences that agree."""

    rotation: Float64  # (3, 3)
    translation: Float64  # (3,) unit length: two views have no scale
    inliers: NDArray[np.bool_]  # (M,) within the threshold of the epipolar geometry, by Sampson's distance


def relative_pose(pose0: ArrayLike, pose1: ArrayLike) -> tuple[Float64, Float64]:
    """Rotation (3, 3) and translation (3,) in metres that take camera 0 to camera 1, of two world-from-camera poses (4, 4)."""
    first, second = np.asarray(pose0, np.float64), np.asarray(pose1, np.float64)
    back = second[:3, :3].T
    # The difference first: two equal positions give a translation of exactly zero.
    return back @ first[:3, :3], back @ (first[:3, 3] - second[:3, 3])


def essential_from_poses(pose0: ArrayLike, pose1: ArrayLike) -> Float64:
    """Essential matrix (3, 3) of two world-from-camera poses: E = [t]x R, x1' E x0 = 0 (HZ 9.6). Zero without a baseline."""
    rotation, translation = relative_pose(pose0, pose1)
    return cross_matrix(translation) @ rotation


def fundamental_from_poses(pose0: ArrayLike, pose1: ArrayLike, intrinsics0: ArrayLike, intrinsics1: ArrayLike) -> Float64:
    """Fundamental matrix (3, 3) of two world-from-camera poses and camera matrices (3, 3): F = K1^-T E K0^-1 (HZ 9.6)."""
    return np.asarray(_inverse(intrinsics1).T @ essential_from_poses(pose0, pose1) @ _inverse(intrinsics0), np.float64)


def epipolar_errors(points0: ArrayLike, points1: ArrayLike, fundamental: ArrayLike) -> Float64:
    """Symmetric epipolar distance (M,) in pixels: sqrt((d(x1, F x0)^2 + d(x0, F^T x1)^2) / 2), d(point, line) in pixels.

    The root mean square of the two distances, whose squares HZ (11.10) adds up. A point at the epipole has no line, and a zero F
    no lines at all: such rows are infinite.
    """
    x0, x1, f = _homogeneous(points0), _homogeneous(points1), np.asarray(fundamental, np.float64)
    lines1, lines0 = x0 @ f.T, x1 @ f
    algebraic = np.sum(x1 * lines1, axis=1)
    with np.errstate(divide='ignore', invalid='ignore'):
        squared = algebraic**2 * (1 / np.sum(lines1[:, :2]**2, axis=1) + 1 / np.sum(lines0[:, :2]**2, axis=1)) / 2
    return np.asarray(np.sqrt(np.where(np.isnan(squared), np.inf, squared)), np.float64)


def deviations(points0: ArrayLike, points1: ArrayLike, covariances: ArrayLike, fundamental: ArrayLike) -> tuple[Float64, Float64]:
    """Signed distances (M,) in pixels of the second points to their epipolar lines, and over their standard deviations.

    `covariances` are (M, 2, 2), pixels squared, of the second points given the first. NaN at the epipole.
    """
    distances, normals = epipolar_distances(points0, points1, fundamental)
    variances = np.einsum('in,nij,jn->n', normals, np.asarray(covariances, np.float64), normals)
    return distances, np.asarray(distances / np.sqrt(variances), np.float64)


def fundamental_of(pose: RelativePose, intrinsics0: ArrayLike, intrinsics1: ArrayLike) -> Float64:
    """Fundamental matrix (3, 3) of an estimated pose."""
    return np.asarray(_inverse(intrinsics1).T @ cross_matrix(pose.translation) @ pose.rotation @ _inverse(intrinsics0), np.float64)


def homography_errors(points0: ArrayLike, points1: ArrayLike, homography: ArrayLike) -> Float64:
    """Distance (M,) from H x0 to x1 in pixels of image 1 (HZ 4.2.2, in one image); infinite where H sends x0 to infinity."""
    mapped = _homogeneous(points0) @ np.asarray(homography, np.float64).T
    with np.errstate(divide='ignore', invalid='ignore'):
        errors = np.linalg.norm(mapped[:, :2] / mapped[:, 2:] - _homogeneous(points1)[:, :2], axis=1)
    return np.asarray(np.where(np.isnan(errors), np.inf, errors), np.float64)


def estimate_relative_pose(points0: ArrayLike, points1: ArrayLike, intrinsics0: ArrayLike, intrinsics1: ArrayLike,
                           covariances: ArrayLike | None = None, *, threshold_px: float = 0.5, refine_px: float = 0.3,
                           method: int = cv2.USAC_ACCURATE) -> RelativePose | None:
    """Pose of camera 1 relative to camera 0 from correspondences (M, 2) and camera matrices (3, 3), undistorted pinholes.

    First the five-point algorithm (Nister, PAMI 2004) in graph-cut RANSAC (Barath & Matas, CVPR 2018). Of the four poses of the
    essential matrix, the one with most inliers in front of both cameras is taken. Then the maximum-likelihood pose by
    Levenberg-Marquardt over all correspondences under a Cauchy loss, from there and from other directions of translation: without
    this step, the result depends more on the threshold and on `method` than on the correspondences. OpenCV restarts its generator
    at each call: equal input gives an equal answer.

    Args:
        covariances: (M, 2, 2), pixels squared, of the second points given the first. With them the residual is the distance to the
            second point's epipolar line over its standard deviation. Without, it is Sampson's distance over `refine_px`.
        threshold_px: Of inliers. It is tight, because scenes close to a plane have two poses that differ by less than a pixel.
        refine_px: Scale of the loss; 0 leaves the second step out.

    Returns:
        The pose; None when fewer than six correspondences are given or no geometry is found.
    """
    pixels0, pixels1 = np.asarray(points0, np.float64), np.asarray(points1, np.float64)
    if len(pixels0) < MIN_MATCHES:
        return None
    camera = np.asarray(intrinsics0, np.float64)
    inverse1 = _inverse(intrinsics1)
    x0, x1 = _homogeneous(pixels0) @ _inverse(intrinsics0).T, _homogeneous(pixels1) @ inverse1.T
    # In pixels, camera 0's on both sides: OpenCV's MAGSAC++ does far worse on normalised points.
    essential = sampled_model(cv2.findEssentialMat, pixels0, (x1 @ camera.T)[:, :2], camera, method=method, prob=CONFIDENCE,
                              threshold=threshold_px, maxIters=SAMPLINGS)
    if essential is None:
        return None
    pixel = 4 / float(np.trace(np.asarray(intrinsics0)[:2, :2]) + np.trace(np.asarray(intrinsics1)[:2, :2]))
    limit = threshold_px * pixel
    pose = _in_front(essential, x0, x1, limit)
    if pose is not None and refine_px > 0:
        to_rays, circle = inverse1[:2, :2], (refine_px * pixel)**2 * np.eye(2)[None]  # from pixels to (x / z, y / z)
        of_second = circle if covariances is None else to_rays @ np.asarray(covariances, np.float64) @ to_rays.T
        of_first = circle if covariances is None else np.zeros((1, 2, 2))
        rotation, direction = most_likely(*pose, Residuals(x0, x1, of_second, of_first))
        pose = _in_front(cross_matrix(direction) @ rotation, x0, x1, limit)  # the refined matrix knows the sides better
    if pose is None:
        return None
    rotation, direction = pose
    return RelativePose(rotation, direction, np.abs(_sampson(cross_matrix(direction) @ rotation, x0, x1)) < limit)


PoseEstimator = Callable[..., RelativePose | None]  # of points, points, camera matrix, camera matrix, and covariances or None


def _unweighted(points0: ArrayLike, points1: ArrayLike, intrinsics0: ArrayLike, intrinsics1: ArrayLike,
                covariances: ArrayLike | None = None, **settings: Any) -> RelativePose | None:
    return estimate_relative_pose(points0, points1, intrinsics0, intrinsics1, **settings)


ESTIMATORS: dict[str, PoseEstimator] = {
    'ml': estimate_relative_pose,
    'unweighted': _unweighted,
    'magsac': partial(_unweighted, method=cv2.USAC_MAGSAC, threshold_px=1.0, refine_px=0.0),
}
DEFAULT_ESTIMATOR = 'ml'
ESTIMATOR_LABELS = {'ml': 'graph-cut RANSAC, 0.5 px, then maximum likelihood over all matches, each by its covariance',
                    'unweighted': 'the same, all alike', 'magsac': 'MAGSAC++, 1 px'}


def pose_error_deg(rotation: ArrayLike, translation: ArrayLike, rotation_gt: ArrayLike, translation_gt: ArrayLike, *,
                   min_baseline: float = 0.0) -> tuple[float, float]:
    """Angle of the residual rotation, and angle between the directions of translation, both in degrees.

    As SuperGlue (Sarlin et al., CVPR 2020) and LightGlue evaluate: the pose error is the larger of the two, and the translation's
    is min(e, 180 - e), for the sign of an essential matrix is open. Where the true baseline is `min_baseline` or shorter there is
    no direction to compare, and its error is 0 (as LoFTR's evaluation has it, Sun et al., CVPR 2021).
    """
    residual = np.asarray(rotation, np.float64).T @ np.asarray(rotation_gt, np.float64)
    rotation_deg = float(angles_deg(residual[None])[0])
    t, truth = np.asarray(translation, np.float64).ravel(), np.asarray(translation_gt, np.float64).ravel()
    if np.linalg.norm(truth) <= min_baseline:
        return rotation_deg, 0.0
    angle = float(np.degrees(np.arctan2(np.linalg.norm(np.cross(t, truth)), t @ truth)))
    return rotation_deg, min(angle, 180 - angle)


def pose_auc(errors_deg: ArrayLike, thresholds: Sequence[float] = (5, 10, 20)) -> list[float]:
    """Area under the recall curve up to each threshold, over the threshold: [0, 1] each, by SuperGlue's exact trapezoids.

    The curve joins (0, 0) and (error, share of errors so far) at every sorted error, and is level from the last error under the
    threshold on. A pair without an estimate counts as an infinite error, and so does NaN. Zeros when there are no errors.
    """
    errors = np.asarray(errors_deg, np.float64).ravel()
    errors = np.sort(np.where(np.isnan(errors), np.inf, errors))
    errors, recall = np.append(0.0, errors), np.arange(len(errors) + 1) / max(1, len(errors))
    areas = []
    for threshold in thresholds:
        last = int(np.searchsorted(errors, threshold))
        x, y = np.append(errors[:last], threshold), np.append(recall[:last], recall[max(0, last - 1)])
        areas.append(float(np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2) / threshold))
    return areas


def _homogeneous(points: ArrayLike) -> Float64:
    pixels = np.asarray(points, np.float64).reshape(-1, 2)
    return np.column_stack([pixels, np.ones(len(pixels))])


def _inverse(matrix: ArrayLike) -> Float64:
    return np.asarray(np.linalg.inv(np.asarray(matrix, np.float64)), np.float64)


def _in_front(essential: Float64, x0: Float64, x1: Float64, limit: float) -> tuple[Float64, Float64] | None:
    """Rotation and direction of an essential matrix that put most points within `limit` of it in front of both cameras."""
    essential = essential / np.linalg.norm(essential) * np.sqrt(2)
    mask: Any = (np.abs(_sampson(essential, x0, x1)) < limit).astype(np.uint8)[:, None]
    camera: Any = np.eye(3)
    # The default distance of 50 baselines would drop far points, which is most of them where the baseline is short.
    agreed, *pose = cv2.recoverPose(contiguous(essential), contiguous(x0[:, :2]), contiguous(x1[:, :2]), camera,
                                    distanceThresh=1e9, mask=mask)
    return (np.asarray(pose[0], np.float64), np.asarray(pose[1], np.float64).ravel()) if agreed else None


def _sampson(essential: Float64, x0: Float64, x1: Float64) -> Float64:
    """Signed Sampson distances (M,) of homogeneous points (M, 3): over the lengths of their gradients (HZ 11.9)."""
    lines1, lines0 = x0 @ essential.T, x1 @ essential
    length = np.sqrt(np.sum(lines1[:, :2]**2, axis=1) + np.sum(lines0[:, :2]**2, axis=1)) + 1e-12
    return np.asarray(np.sum(x1 * lines1, axis=1) / length, np.float64)
