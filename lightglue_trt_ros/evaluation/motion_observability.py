"""What the truth can resolve: whether a pair's true motion is long enough, for its scene, to have a direction worth scoring.

A rotation of the camera by a small angle e moves the picture as a step of e times the depth does. If the relative rotations
of the ground truth are good to e, the direction of a step of length b is good to atan(e * depth / b). The direction is scored where
that is no more than the finest bound of the pose AUC.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..core.types import Float32, Float64, UInt8
from ..odometry.two_view import epipolar_errors, fundamental_from_poses, relative_pose
from .baselines import Correspondences, find_corners, follow_points

TRUTH_ROTATION_DEG = 0.05  # what true relative rotations are taken to be good to: trackers and GNSS/INS name a few hundredths
DIRECTION_DEG = 5.0  # how far that may rotate a direction
MIN_STEP_PER_DEPTH = math.tan(math.radians(TRUTH_ROTATION_DEG)) / math.tan(math.radians(DIRECTION_DEG))  # 0.01
MIN_BASELINE_M = 0.005  # true steps that are no longer say nothing about a direction: most is the truth's own noise

MIN_POINTS = 20  # fewer say nothing about a scene's depth
CORNERS = 400
EPIPOLAR_PX = 3.0  # what is further from its true epipolar line moves by itself, or was lost
EPIPOLE = math.sin(math.radians(3))  # nearer to the direction of motion nothing tells a depth


class Motion(NamedTuple):
    """A pair's true motion."""

    step_m: float  # between the two cameras
    per_depth: float | None = None  # the same over the scene's median depth; None: nothing is known about the depth

    @property
    def resolved(self) -> bool:
        """Whether the truth can say where to."""
        return self.step_m > MIN_BASELINE_M and self.per_depth is not None and self.per_depth >= MIN_STEP_PER_DEPTH


def step_per_depth(points: tuple[ArrayLike, ArrayLike], camera: Float64, pose0: Float64, pose1: Float64) -> float | None:
    """The true step over the median depth of what is seen, of undistorted points (M, 2) of both images and world-from-camera poses.

    In the triangle of both cameras and a point the law of sines gives it: the sine of the parallax over that of the angle between
    ray and step. No lengths are needed, and noise makes small steps a little longer, never long: half a pixel is a thousandth.
    Points that are not EPIPOLAR_PX near their true line do not count. None where MIN_POINTS are not left.
    """
    pixels0, pixels1 = (np.asarray(side, np.float64).reshape(-1, 2) for side in points)
    rotation, translation = relative_pose(pose0, pose1)
    length = float(np.linalg.norm(translation))
    if not length or len(pixels0) < MIN_POINTS:
        return None if length else 0.0
    rays0, rays1 = _rays(pixels0, camera) @ rotation.T, _rays(pixels1, camera)
    with np.errstate(invalid='ignore'):
        off_axis = np.linalg.norm(np.cross(rays1, translation / length), axis=1)
        near = (epipolar_errors(pixels0, pixels1, fundamental_from_poses(pose0, pose1, camera, camera)) < EPIPOLAR_PX)
        ratios = np.linalg.norm(np.cross(rays0, rays1), axis=1)[near & (off_axis > EPIPOLE)] / off_axis[near & (off_axis > EPIPOLE)]
    return float(np.median(ratios)) if len(ratios) >= MIN_POINTS else None


def follow_corners(images: tuple[UInt8, UInt8], expected: Callable[[Float32], Float64]) -> Correspondences:
    """Corners of the first gray image (H, W) followed into the second by Lucas-Kanade, forward and backward: pixels of both.

    `expected` tells of points (M, 2) of the first image where to look for them in the second, NaN where it does not know.
    """
    reference, current = images
    points = find_corners(reference, CORNERS, max(3.0, math.sqrt(reference.size / CORNERS) / 2))
    if not len(points) or reference.shape != current.shape:
        return Correspondences.none()
    guess = np.asarray(expected(points), np.float32)
    guess = np.where(np.isfinite(guess), guess, points)
    followed, good = follow_points(reference, current, points, guess)
    return Correspondences(points[good], followed[good])


def shifts(points: Float64, homography: Float64) -> Float64:
    """How far a homography moves points (M, 2)."""
    moved = np.column_stack([points, np.ones(len(points))]) @ homography.T
    with np.errstate(divide='ignore', invalid='ignore'):
        return np.asarray(moved[:, :2] / moved[:, 2:] - points, np.float64)


def _rays(pixels: Float64, camera: Float64) -> Float64:
    """Unit vectors (M, 3)."""
    rays = np.column_stack([pixels, np.ones(len(pixels))]) @ np.linalg.inv(camera).T
    return np.asarray(rays / np.linalg.norm(rays, axis=1, keepdims=True), np.float64)
