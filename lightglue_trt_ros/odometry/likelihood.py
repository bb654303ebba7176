"""The most likely pose of two views, from one that is near.

A pose (R, t) maps camera 0 to camera 1, x1 = R x0 + t with a t of length 1; points are homogeneous (M, 3), of a pinhole whose camera
matrix is the identity. HZ is Hartley & Zisserman, Multiple View Geometry in Computer Vision, second edition.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import ArrayLike

from ..core.geometry import contiguous
from ..core.types import Float64

REFINE_STEPS = 20  # of Levenberg-Marquardt at most


def cross_matrix(v: ArrayLike) -> Float64:
    """The matrix [v]x (3, 3), so that [v]x w is the cross product."""
    x, y, z = np.asarray(v, np.float64)
    return np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])


class Residuals:
    """Distances of homogeneous points (M, 3) to an epipolar geometry, over their scales, and their derivatives.

    Sampson's distance over `scale`; with covariances (M, 2, 2) of the second points the distance to their line over its standard
    deviation. Both are x1' E x0 over the root of l1' S1 l1 + l0' S0 l0, of lines' first two coordinates (HZ 11.9, 5.2.3).
    """

    def __init__(self, x0: Float64, x1: Float64, scale: float, covariances: Float64 | None) -> None:
        self.x0, self.x1 = x0, x1
        self.products = (x1[:, :, None] * x0[:, None, :]).reshape(-1, 9)  # times the matrix, row by row: x1' E x0
        isotropic = np.broadcast_to(np.eye(2) * scale**2, (len(x0), 2, 2))
        self.covariances1 = isotropic if covariances is None else covariances
        self.covariances0 = isotropic if covariances is None else np.zeros((1, 2, 2))

    def cost(self, essential: Float64) -> float:
        """Cauchy's."""
        return float(np.sum(np.log1p(self._parts(essential)[0]**2)))

    def slopes(self, essential: Float64) -> tuple[Float64, Float64]:
        """Residuals (M,), and their derivatives (M, 9) by the entries of the essential matrix, in row order."""
        residuals, lengths, lines1, lines0 = self._parts(essential)
        growth = np.zeros((len(self.x0), 3, 3))  # of half the squared lengths
        growth[:, :2] += lines1[:, :, None] * self.x0[:, None]
        growth[:, :, :2] += self.x1[:, :, None] * lines0[:, None]
        return residuals, (self.products - (residuals / lengths)[:, None] * growth.reshape(-1, 9)) / lengths[:, None]

    def _parts(self, essential: Float64) -> tuple[Float64, Float64, Float64, Float64]:
        """Residuals and their standard deviations (M,), and both lines (M, 2) times the covariances."""
        plain1, plain0 = (self.x0 @ essential.T)[:, :2, None], (self.x1 @ essential)[:, :2, None]
        lines1, lines0 = (self.covariances1 @ plain1)[:, :, 0], (self.covariances0 @ plain0)[:, :, 0]
        lengths = np.sqrt(np.sum(plain1[:, :, 0] * lines1 + plain0[:, :, 0] * lines0, axis=1)) + 1e-15
        return self.products @ essential.ravel() / lengths, lengths, lines1, lines0


def refine(rotation: Float64, direction: Float64, residuals: Residuals) -> tuple[Float64, Float64]:
    """Levenberg-Marquardt with Cauchy weights over five parameters: a rotation vector, and two along the sphere of directions."""
    generators = [cross_matrix(axis) for axis in np.eye(3)]
    current, damping = residuals.cost(cross_matrix(direction) @ rotation), 1e-3
    for _ in range(REFINE_STEPS):
        tangent = np.linalg.svd(direction[None])[2][1:].T
        essential = cross_matrix(direction) @ rotation
        distances, slopes = residuals.slopes(essential)
        changes = [cross_matrix(direction) @ g @ rotation for g in generators] + [cross_matrix(column) @ rotation for column in tangent.T]
        basis = np.stack([change.ravel() for change in changes], axis=1)  # (9, 5): how the matrix moves with each parameter
        weighted = slopes * (1 / (1 + distances**2))[:, None]
        normal, gradient = basis.T @ (weighted.T @ slopes) @ basis, basis.T @ (weighted.T @ distances)
        while True:
            step = -np.linalg.solve(normal + damping * np.diag(np.diag(normal)) + 1e-15 * np.eye(5), gradient)
            rotated = np.asarray(cv2.Rodrigues(contiguous(step[:3]))[0], np.float64) @ rotation
            moved = direction + tangent @ step[3:]
            moved /= np.linalg.norm(moved)
            reached = residuals.cost(cross_matrix(moved) @ rotated)
            if reached <= current or damping > 1e6:
                break
            damping *= 10
        if reached > current:
            break
        gain, rotation, direction, current, damping = current - reached, rotated, moved, reached, max(damping / 10, 1e-9)
        if gain <= 1e-6 * current:
            break
    return rotation, direction
