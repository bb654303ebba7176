"""Covariances of poses and velocities: (6, 6), translation, then rotation, in the axes of the frame that moves.

A pose T that is off by xi is T exp(xi) (Barfoot and Furgale, IEEE Transactions on Robotics 2014), to first order in xi.
"""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np

from ..core.geometry import contiguous
from ..core.types import Float64

OF_SHIFT, OF_ROTATION, OF_PARALLAX = 0.005, 0.008, 0.0012  # of `unseen`
GENERATORS = np.array([[[0, 0, 0], [0, 0, -1], [0, 1, 0]], [[0, 0, 1], [0, 0, 0], [-1, 0, 0]], [[0, -1, 0], [1, 0, 0], [0, 0, 0]]],
                      np.float64)  # of rotations about the axes


def seen_from(frame: Float64, covariance: Float64) -> Float64:
    """The covariance of another frame of the same body, whose origin and axes are those of `frame` (4, 4): other from own."""
    adjoint = _adjoint(frame)
    return np.asarray(adjoint @ covariance @ adjoint.T, np.float64)


def step_between(first: Float64, second: Float64) -> Float64:
    """(4, 4) the second pose in the first one."""
    return np.asarray(np.linalg.solve(first, second), np.float64)


def compounded(covariance: Float64, step: Float64, of_step: Float64) -> Float64:
    """That of a pose and a `step` (4, 4) after it, whose errors are independent."""
    return seen_from(step_between(step, np.eye(4)), covariance) + of_step


def after_unknown(covariance: Float64, step: Float64, moved: tuple[float, float]) -> Float64:
    """That of a pose, and of the `step` (4, 4) to its guess after a motion that nobody observed.

    The guess may be off by as much as it `moved` at the usual speed: units, and radians.
    """
    return compounded(covariance, step, np.diag(np.repeat(moved, 3)**2))


def unseen(step: Float64, depth: float) -> Float64:
    """The covariance (6, 6) of a step (4, 4) that no adjustment sees: by calibration, stamps and shutter.

    Its deviations are shares of the motion, in a scene of a usual `depth`.
    """
    shift, angle = lengths(step)
    sizes = OF_SHIFT * shift + OF_ROTATION * angle * depth, OF_ROTATION * angle + OF_PARALLAX * shift / depth
    return np.diag(np.repeat(sizes, 3)**2)


class Drift(NamedTuple):
    """How what is unseen adds up: half of its variance is the same in each step, and grows with the way; half is independent."""

    lasting: Float64 = np.zeros((6, 6))  # a factor of its covariance
    passing: Float64 = np.zeros((6, 6))

    def after(self, step: Float64, depth: float) -> Drift:
        """The drift of the pose after another step (4, 4)."""
        own, back = unseen(step, depth) / 2, _adjoint(step_between(step, np.eye(4)))
        return Drift(back @ self.lasting + np.sqrt(own), back @ self.passing @ back.T + own)

    @property
    def covariance(self) -> Float64:
        """(6, 6)."""
        return np.asarray(self.lasting @ self.lasting.T + self.passing, np.float64)


def lengths(step: Float64) -> tuple[float, float]:
    """Of the translation and, in radians, of the rotation of a step (4, 4)."""
    return float(np.linalg.norm(step[:3, 3])), float(np.linalg.norm(cv2.Rodrigues(contiguous(step[:3, :3]))[0]))


def difference(joint: Float64, step: Float64) -> Float64:
    """The covariance (6, 6) of a `step` (4, 4) between two poses with the `joint` one (2, 6, 2, 6)."""
    change = np.hstack([-_adjoint(step_between(step, np.eye(4))), np.eye(6)])
    return np.asarray(change @ joint.reshape(12, 12) @ change.T, np.float64)


def larger(covariance: Float64) -> Float64:
    """The part of a symmetric matrix that is a covariance: without negative eigenvalues."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.maximum(values, 0) @ vectors.T, np.float64)


def of_velocities(of_step: Float64, step: Float64, seconds: float) -> Float64:
    """The covariance of velocity and rotation rate, in the axes after a `step` (4, 4)."""
    change = np.eye(6)
    change[:3, 3:] = cross_matrix(step[:3, :3].T @ step[:3, 3])
    return np.asarray(change @ of_step @ change.T / seconds**2, np.float64)


def in_fixed_axes(rotation: Float64, covariance: Float64) -> Float64:
    """Translation and rotation along and about the axes of the world; `rotation` (3, 3) is world from frame."""
    turned = np.eye(4)
    turned[:3, :3] = rotation
    return seen_from(turned, covariance)


def _adjoint(pose: Float64) -> Float64:
    rotation, shift = pose[:3, :3], pose[:3, 3]
    return np.asarray(np.block([[rotation, cross_matrix(shift) @ rotation], [np.zeros((3, 3)), rotation]]), np.float64)


def cross_matrix(v: Float64) -> Float64:
    """The matrix [v]x (..., 3, 3) of vectors (..., 3), so that [v]x w is the cross product."""
    return np.asarray((v @ GENERATORS.reshape(3, 9)).reshape(*v.shape, 3), np.float64)
