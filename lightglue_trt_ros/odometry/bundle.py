"""Bundle adjustment of a short window: Levenberg-Marquardt on poses and points, points eliminated (Triggs et al., 2000).

A window has P views and L points, and few enough of both that dense arrays over (P, L) beat any sparse bookkeeping. Observations
are (P, L, 3): x and y on the plane z = 1 of the left camera and x on that of a rectified right one, NaN where not seen.
"""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np

from ..recordings.poses import Float64

NEAR = 1e-3  # a point this close to the camera's plane, or behind it, is taken for this deep
PATIENCE = 5  # steps in a row that may make it worse
ENOUGH = 1e-4  # a share by which a step has to make it better


class Bundle(NamedTuple):
    """Poses and points. `inverse_poses` takes the world's points to each camera's axes."""

    inverse_poses: Float64  # (P, 4, 4) camera from world
    points: Float64  # (L, 3) world


class _Linear(NamedTuple):
    """The problem around a bundle, each row under the square root of its weight."""

    errors: Float64  # (P, L, 3)
    of_pose: Float64  # (P, L, 3, 6): a turn and a shift in the camera's axes, after the pose
    of_point: Float64  # (P, L, 3, 3)


def adjust(bundle: Bundle, seen: Float64, first_free: int, baseline: float, scale: float, steps: int) -> Bundle:
    """The bundle of least cost near the given one: Cauchy's loss of `scale` (on the plane z = 1), poses from `first_free` on free.

    `baseline` is the right camera's place on the left one's x axis.
    """
    cost, damping, worse = float(_loss(_errors(bundle, seen, baseline, scale)).sum()), 1e-4, 0
    linear = _linearised(bundle, seen, baseline, scale)
    while steps > 0 and worse < PATIENCE:
        steps -= 1
        trial = _stepped(bundle, linear, first_free, damping)
        trial_cost = float(_loss(_errors(trial, seen, baseline, scale)).sum())
        if not trial_cost < cost:
            damping, worse = 10 * damping, worse + 1
            continue
        done = cost - trial_cost < ENOUGH * cost
        bundle, cost, damping, worse = trial, trial_cost, damping / 5, 0
        if done:
            break
        linear = _linearised(bundle, seen, baseline, scale)
    return bundle


def reprojection_errors(bundle: Bundle, seen: Float64, baseline: float) -> Float64:
    """(P, L): the larger of the left and the right distance on the plane z = 1; NaN where not seen, infinite behind a camera."""
    errors = _errors(bundle, seen, baseline, 1.0)
    distance = np.maximum(np.linalg.norm(errors[..., :2], axis=2), np.abs(errors[..., 2]))
    distance[_in_cameras(bundle)[..., 2] <= NEAR] = np.inf
    return np.asarray(np.where(np.isfinite(seen[..., 0]), distance, np.nan), np.float64)


def _in_cameras(bundle: Bundle) -> Float64:
    """(P, L, 3)"""
    rotations, shifts = bundle.inverse_poses[:, :3, :3], bundle.inverse_poses[:, None, :3, 3]
    return np.asarray(bundle.points @ rotations.transpose(0, 2, 1) + shifts, np.float64)


def _errors(bundle: Bundle, seen: Float64, baseline: float, scale: float) -> Float64:
    """Predicted minus seen, (P, L, 3) in units of `scale`; 0 where not seen."""
    x, y, z = np.moveaxis(_in_cameras(bundle), 2, 0)
    predicted = np.stack([x, y, x - baseline], axis=2) / np.maximum(z, NEAR)[..., None]
    return np.where(np.isnan(seen), 0.0, (predicted - seen) / scale)


def _loss(errors: Float64) -> Float64:
    """Cauchy's, (P, L, 2): of the left point and of the right column."""
    return np.log1p(np.stack([errors[..., 0]**2 + errors[..., 1]**2, errors[..., 2]**2], axis=2))


def _linearised(bundle: Bundle, seen: Float64, baseline: float, scale: float) -> _Linear:
    errors = _errors(bundle, seen, baseline, scale)
    roots = np.exp(-_loss(errors) / 2)[..., [0, 0, 1]] * ~np.isnan(seen)  # the weight is 1 / (1 + error^2)
    there = _in_cameras(bundle)
    x, y, z = np.moveaxis(there, 2, 0)
    z = np.maximum(z, NEAR)
    of_camera = np.zeros((*there.shape, 3))  # what x, y, z in the camera's axes change
    of_camera[..., 0, 0] = of_camera[..., 1, 1] = of_camera[..., 2, 0] = 1 / z
    of_camera[..., 2] -= np.stack([x, y, x - baseline], axis=2) / (z * z)[..., None]
    of_camera *= roots[..., None] / scale
    turns = np.cross(there[:, :, None], of_camera)
    return _Linear(errors * roots, np.concatenate([turns, of_camera], axis=3),
                   of_camera @ bundle.inverse_poses[:, None, :3, :3])


def _stepped(bundle: Bundle, linear: _Linear, first_free: int, damping: float) -> Bundle:
    """One damped Gauss-Newton step."""
    errors, of_pose = linear.errors[first_free:], linear.of_pose[first_free:]
    views, count = errors.shape[:2]
    per_point = linear.of_point.transpose(1, 0, 2, 3).reshape(count, -1, 3)
    points_square = per_point.transpose(0, 2, 1) @ per_point
    points_right = -(linear.errors.transpose(1, 0, 2).reshape(count, 1, -1) @ per_point)[:, 0]
    poses_square = np.zeros((6 * views, 6 * views))
    poses_right = np.zeros(6 * views)
    for view in range(views):
        rows, part = of_pose[view].reshape(-1, 6), slice(6 * view, 6 * view + 6)
        poses_square[part, part], poses_right[part] = rows.T @ rows, -rows.T @ errors[view].ravel()
    mixed = (of_pose.transpose(0, 1, 3, 2) @ linear.of_point[first_free:]).transpose(1, 0, 2, 3).reshape(count, 6 * views, 3)
    for square in (points_square, poses_square):
        axes = np.arange(square.shape[-1])
        square[..., axes, axes] = square[..., axes, axes] * (1 + damping) + 1e-12
    eliminated = mixed @ np.linalg.inv(points_square)
    flat = (matrix.transpose(1, 0, 2).reshape(6 * views, 3 * count) for matrix in (eliminated, mixed))
    poses_step = np.linalg.solve(poses_square - next(flat) @ next(flat).T,
                                 poses_right - np.einsum('lai,li->a', eliminated, points_right))
    points_step = np.linalg.solve(points_square, (points_right - poses_step @ mixed)[..., None])[..., 0]
    poses = bundle.inverse_poses.copy()
    for view, (*turn, x, y, z) in enumerate(poses_step.reshape(views, 6)):
        change = np.eye(4)
        change[:3, :3], change[:3, 3] = cv2.Rodrigues(np.array(turn))[0], (x, y, z)
        poses[first_free + view] = change @ poses[first_free + view]
    return Bundle(poses, bundle.points + points_step)
