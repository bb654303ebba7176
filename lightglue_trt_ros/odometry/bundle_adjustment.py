"""Bundle adjustment of a short window: Levenberg-Marquardt on poses and points, points eliminated (Triggs et al., 2000).

A window has P views and L points, few enough that dense arrays over (P, L) are faster than sparse ones. Observations are
(P, L, 3): x and y on the plane z = 1 of the left camera, and x on that of a rectified right camera, NaN where not observed.
A depth z is the same as x - baseline / z there. `precisions` (P, L) are of that x, in units of those of x and y.
"""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np

from ..core.geometry import contiguous
from ..core.types import Float64

NEAR = 1e-3  # least depth: of points closer to the camera's plane, or behind it
RIDGE = 1e-6  # added to the diagonals, which keeps unobservable parameters in place
LEAST_FREEDOM = 0.1  # of the observations: degrees of freedom of the variance
LEAST_VARIANCE = 0.01  # of errors, in the loss's scale: a tenth of it, and none is exact
LEAST_GAIN = 1e-4  # of the cost, as a share; a smaller one ends the adjustment


class Bundle(NamedTuple):
    """Poses and points of a window."""

    inverse_poses: Float64  # (P, 4, 4) camera from world
    points: Float64  # (L, 3) world
    offset: float = 0.0  # error of all x of the right camera, on its plane z = 1, from its calibration


class OffsetEstimate(NamedTuple):
    """A normal distribution of the offset. Its variance is 1 / information if errors have the deviation `scale`."""

    offset: float = 0.0
    information: float = 0.0


class _Linear(NamedTuple):
    """Errors and their derivatives at a bundle, each row times the square root of its weight."""

    errors: Float64  # (P, L, 3)
    of_pose: Float64  # (P, L, 3, 6): a rotation and a translation in the camera's axes, after the pose
    of_point: Float64  # (P, L, 3, 3)
    of_offset: Float64  # (P, L): of the right column alone


def adjust(bundle: Bundle, observed: Float64, precisions: Float64, first_free: int, baseline: float, scale: float, steps: int,
           prior: OffsetEstimate) -> tuple[Bundle, OffsetEstimate]:
    """The bundle of least cost near the given one, and the estimate of the offset with it.

    The cost is Cauchy's loss of `scale` (on the plane z = 1), and that of the `prior`. Poses from `first_free` on are free.
    `baseline` is the right camera's position on the left camera's x axis.
    """
    def cost_of(trial: Bundle) -> float:
        loss = _loss(_errors(trial, observed, precisions, baseline, scale)).sum()
        return float(loss + prior.information * (trial.offset - prior.offset)**2)

    cost, damping = cost_of(bundle), 1e-4
    linear = _linearised(bundle, observed, precisions, baseline, scale)
    for _ in range(steps):
        trial = _Normal(linear, first_free, damping, bundle.offset, prior).step(bundle)
        trial_cost = cost_of(trial)
        if not trial_cost < cost:
            damping *= 10
            continue
        done = cost - trial_cost < LEAST_GAIN * cost
        bundle, cost, damping = trial, trial_cost, damping / 5
        linear = _linearised(bundle, observed, precisions, baseline, scale)
        if done:
            break
    return bundle, OffsetEstimate(bundle.offset, _Normal(linear, first_free, RIDGE, bundle.offset, prior).information())


def pose_covariances(bundle: Bundle, observed: Float64, precisions: Float64, baseline: float, scale: float, prior: OffsetEstimate,
                     length_sigma: float | None = None) -> Float64:
    """Covariances (P - 1, 6, P - 1, 6) of the poses after the first, which counts as exact, at a bundle of least cost.

    Of a pose: translation, then rotation, in the camera's axes. `length_sigma` is the standard deviation of the distance between
    the first two poses, as a share of it; needed where nothing else gives a length. Noise is that of the errors.
    """
    linear = _linearised(bundle, observed, precisions, baseline, scale)
    square = _Normal(linear, 1, RIDGE, bundle.offset, prior).square
    variance = _variance(_errors(bundle, observed, precisions, baseline, scale), observed, 3 * len(bundle.points) + len(square))
    if length_sigma is not None:
        apart = np.linalg.inv(bundle.inverse_poses[1])[:3, 3] - np.linalg.inv(bundle.inverse_poses[0])[:3, 3]
        along = bundle.inverse_poses[1, :3, :3] @ apart / (max(apart @ apart, RIDGE) * length_sigma)
        square[3:6, 3:6] += variance * np.outer(along, along)
    views, order = len(bundle.inverse_poses) - 1, [3, 4, 5, 0, 1, 2]
    found = variance * np.linalg.inv(square)[:-1, :-1].reshape(views, 6, views, 6)[:, order][..., order]
    return np.asarray((found + found.transpose(2, 3, 0, 1)) / 2, np.float64)


def _variance(errors: Float64, observed: Float64, unknowns: int) -> float:
    """The variance of estimates by Cauchy's loss over the inverse of their weighted information (Huber, Robust Statistics, 7.6).

    `errors` (P, L, 3) are in units of the loss's scale; `unknowns` were fitted to them.
    """
    known = np.isfinite(observed)
    squares = np.stack([errors[..., 0]**2 + errors[..., 1]**2, errors[..., 2]**2], axis=2)
    weights = 1 / (1 + squares)
    left, right = weights[known[..., 0], 0], weights[known[..., 2], 1]
    count = 2 * len(left) + len(right)
    slopes = 2 * np.sum(left**2) + np.sum(right * (2 * right - 1))
    influence = np.sum(left**2 * squares[known[..., 0], 0]) + np.sum(right**2 * squares[known[..., 2], 1])
    least = max(LEAST_FREEDOM * count, 1.0)
    variance = influence * (2 * left.sum() + right.sum()) / max(slopes, least)**2 * count / max(count - unknowns, least)
    return float(max(variance, LEAST_VARIANCE))


def reprojection_errors(bundle: Bundle, observed: Float64, precisions: Float64, baseline: float) -> Float64:
    """The larger of left and right distance on the plane z = 1, (P, L); NaN where not observed, infinite behind a camera.

    Right distances are times their precisions.
    """
    errors = _errors(bundle, observed, precisions, baseline, 1.0)
    distance = np.maximum(np.linalg.norm(errors[..., :2], axis=2), np.abs(errors[..., 2]))
    distance[_in_cameras(bundle)[..., 2] <= NEAR] = np.inf
    return np.asarray(np.where(np.isfinite(observed[..., 0]), distance, np.nan), np.float64)


def _in_cameras(bundle: Bundle) -> Float64:
    """Points in each camera's axes, (P, L, 3)."""
    rotations, shifts = bundle.inverse_poses[:, :3, :3], bundle.inverse_poses[:, None, :3, 3]
    return np.asarray(bundle.points @ rotations.transpose(0, 2, 1) + shifts, np.float64)


def _errors(bundle: Bundle, observed: Float64, precisions: Float64, baseline: float, scale: float) -> Float64:
    """Predicted minus observed, (P, L, 3) in units of `scale`; 0 where not observed."""
    x, y, z = np.moveaxis(_in_cameras(bundle), 2, 0)
    predicted = np.stack([x, y, x - baseline], axis=2) / np.maximum(z, NEAR)[..., None]
    predicted[..., 2] += bundle.offset
    errors = (predicted - observed) / scale
    errors[..., 2] *= precisions
    return np.where(np.isnan(observed), 0.0, errors)


def _loss(errors: Float64) -> Float64:
    """Cauchy's, (P, L, 2): of the left point and of the right column."""
    return np.log1p(np.stack([errors[..., 0]**2 + errors[..., 1]**2, errors[..., 2]**2], axis=2))


def _linearised(bundle: Bundle, observed: Float64, precisions: Float64, baseline: float, scale: float) -> _Linear:
    errors = _errors(bundle, observed, precisions, baseline, scale)
    roots = np.exp(-_loss(errors) / 2)[..., [0, 0, 1]] * ~np.isnan(observed)  # the weight is 1 / (1 + error^2)
    in_cameras = _in_cameras(bundle)
    x, y, z = np.moveaxis(in_cameras, 2, 0)
    z = np.maximum(z, NEAR)
    of_camera = np.zeros((*in_cameras.shape, 3))  # derivatives by x, y, z in the camera's axes
    of_camera[..., 0, 0] = of_camera[..., 1, 1] = of_camera[..., 2, 0] = 1 / z
    of_camera[..., 2] -= np.stack([x, y, x - baseline], axis=2) / (z * z)[..., None]
    of_camera *= roots[..., None] / scale
    of_camera[..., 2, :] *= precisions[..., None]
    of_rotation = np.cross(in_cameras[:, :, None], of_camera)
    return _Linear(errors * roots, np.concatenate([of_rotation, of_camera], axis=3),
                   of_camera @ bundle.inverse_poses[:, None, :3, :3], roots[..., 2] / scale * precisions)


class _Normal:
    """The normal equations of six parameters of each free pose and of the offset; the points are eliminated."""

    def __init__(self, linear: _Linear, first_free: int, damping: float, offset: float, prior: OffsetEstimate) -> None:
        self.first_free, of_pose, count = first_free, linear.of_pose[first_free:], linear.errors.shape[1]
        views = len(of_pose)
        per_point = linear.of_point.transpose(1, 0, 2, 3).reshape(count, -1, 3)
        self.points_square = per_point.transpose(0, 2, 1) @ per_point
        self.points_right = -(linear.errors.transpose(1, 0, 2).reshape(count, 1, -1) @ per_point)[:, 0]
        square, right = np.zeros((6 * views + 1, 6 * views + 1)), np.zeros(6 * views + 1)
        for view in range(views):
            rows, part = of_pose[view].reshape(-1, 6), slice(6 * view, 6 * view + 6)
            square[part, part], right[part] = rows.T @ rows, -rows.T @ linear.errors[first_free + view].ravel()
            square[part, -1] = square[-1, part] = of_pose[view, :, 2].T @ linear.of_offset[first_free + view]
        square[-1, -1] = np.sum(linear.of_offset**2) + prior.information
        right[-1] = -np.sum(linear.of_offset * linear.errors[..., 2]) - prior.information * (offset - prior.offset)
        self.mixed = np.empty((count, 6 * views + 1, 3))
        mixed = of_pose.transpose(0, 1, 3, 2) @ linear.of_point[first_free:]
        self.mixed[:, :-1] = mixed.transpose(1, 0, 2, 3).reshape(count, 6 * views, 3)
        self.mixed[:, -1] = np.einsum('pl,pli->li', linear.of_offset, linear.of_point[:, :, 2])
        for each in (self.points_square, square):
            axes = np.arange(each.shape[-1])
            each[..., axes, axes] = each[..., axes, axes] * (1 + damping) + RIDGE
        eliminated = self.mixed @ np.linalg.inv(self.points_square)
        flat = (matrix.transpose(1, 0, 2).reshape(6 * views + 1, 3 * count) for matrix in (eliminated, self.mixed))
        self.square = square - next(flat) @ next(flat).T
        self.right = right - np.einsum('lai,li->a', eliminated, self.points_right)

    def step(self, bundle: Bundle) -> Bundle:
        """The bundle after one Gauss-Newton step."""
        step = np.linalg.solve(self.square, self.right)
        points_step = np.linalg.solve(self.points_square, (self.points_right - step @ self.mixed)[..., None])[..., 0]
        poses = bundle.inverse_poses.copy()
        for view, (*rotation, x, y, z) in enumerate(step[:-1].reshape(-1, 6), self.first_free):
            change = np.eye(4)
            change[:3, :3], change[:3, 3] = cv2.Rodrigues(contiguous(rotation))[0], (x, y, z)
            poses[view] = change @ poses[view]
        return Bundle(poses, bundle.points + points_step, bundle.offset + float(step[-1]))

    def information(self) -> float:
        """Information of the offset, with poses and points marginalised."""
        rest = np.linalg.solve(self.square[:-1, :-1], self.square[:-1, -1])
        return float(max(0.0, self.square[-1, -1] - self.square[-1, :-1] @ rest))
