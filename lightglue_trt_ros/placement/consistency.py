"""Whether covariances are as large as they should be: the matches of a frame must agree on one epipolar geometry."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..features import Float32

Float64 = NDArray[np.float64]

ENOUGH = 30  # matches that say something beside the geometry, which takes eight
SAMPLES = 300  # more say no more
ROUNDS, SETTLED = 40, 1e-6  # at most, and how far from parallel two rounds' matrices are, as 1 - cosine, when no more are needed
EXACT = 1e-6  # of a variance, squared errors below it are none
QUANTILE, NORMAL = 0.8, 1.642  # of the squares of a standard normal variable
INLIER_PX = 1.0  # matches further from their line are wrong, and say nothing
RATE = 0.2  # of a frame in the mean over frames
LEAST, MOST = 0.25, 4.0


class VarianceFactor:
    """What variances have to be multiplied with, followed over frames as a mean of logarithms.

    A rolling shutter, a lens's distortion or motion blur put points off by more than the patches know, a quiet camera by less.
    """

    def __init__(self) -> None:
        self._log: float | None = None
        self.fundamental: Float64 | None = None  # matrix (3, 3) of the last matches, where they were enough

    @property
    def value(self) -> float:
        return 1.0 if self._log is None else float(np.exp(self._log))

    def update(self, points0: Float32, points1: Float32, covariances: Float32, unit: float = 1.0) -> float:
        """The factor after M matches: points (M, 2) of both images, covariances (M, 2, 2) of the second ones."""
        some = slice(None, None, max(1, -(-len(points0) // SAMPLES)))
        self.fundamental = None
        if len(points0) >= ENOUGH:
            chosen = points0[some], points1[some], covariances[some]
            self.fundamental = fundamental_matrix(*chosen)
            errors, deviations = epipolar_errors(*chosen, self.fundamental)
            near = errors < INLIER_PX * unit
            ratio = np.quantile((errors / deviations)[near]**2, QUANTILE) / NORMAL if near.sum() >= ENOUGH else 1.0
            measured = float(np.log(np.clip(ratio, LEAST, MOST)))
            self._log = measured if self._log is None else (1 - RATE) * self._log + RATE * measured
        return self.value


def fundamental_matrix(points0: Float32, points1: Float32, covariances: Float32) -> Float64:
    """The fundamental matrix (3, 3) that fits matches (M, 2) best, covariances (M, 2, 2) of the second points; M is 8 at least.

    The eight-point algorithm (Hartley, PAMI 1997), weighted by the variances and by Geman and McClure's loss, until that settles.
    """
    (x0, to0), (x1, to1) = _normalised(points0), _normalised(points1)
    spread = np.asarray(covariances, np.float64) * to1[0, 0]**2
    half = len(x0) // 2
    products = (x1[:, :, None] * x0[:, None, :]).reshape(-1, 9)
    weights, matrix = np.ones(len(x0)), np.zeros(9)
    for _ in range(ROUNDS):
        before, matrix = matrix, np.linalg.eigh((products * weights[:, None]).T @ products)[1][:, 0]
        if 1 - abs(before @ matrix) < SETTLED:
            break
        variances = _along(x0 @ matrix.reshape(3, 3)[:2].T, spread) + 1e-18
        ratios = (products @ matrix)**2 / variances
        middle = float(np.partition(ratios, half)[half])
        if middle < EXACT:  # a camera that stands still: every geometry fits
            break
        weights = 1 / (variances * (1 + ratios / max(4.0, middle))**2)
    return np.asarray(to1.T @ matrix.reshape(3, 3) @ to0, np.float64)


def epipolar_errors(points0: Float32, points1: Float32, covariances: Float32, fundamental: Float64) -> tuple[Float64, Float64]:
    """Distances (M,) in pixels of the second points to their epipolar lines, and their standard deviations."""
    lines: Float64 = np.asarray(_homogeneous(points0) @ fundamental.T, np.float64)
    length = np.linalg.norm(lines[:, :2], axis=1) + 1e-30
    variances = _along(lines[:, :2], covariances)
    errors = np.abs(np.sum(_homogeneous(points1) * lines, axis=1)) / length
    return np.asarray(errors, np.float64), np.asarray(np.sqrt(variances) / length + 1e-9, np.float64)


def _along(directions: Float64, covariances: NDArray[Any]) -> Float64:
    """Variances (N,) along directions (N, 2), times the squares of their lengths; covariances (N, 2, 2)."""
    u, v = directions.T
    return np.asarray(u * u * covariances[:, 0, 0] + 2 * u * v * covariances[:, 0, 1] + v * v * covariances[:, 1, 1], np.float64)


def _normalised(points: Float32) -> tuple[Float64, Float64]:
    """Homogeneous points (M, 3) about their mean, spread by one, and the matrix (3, 3) that makes them of pixels."""
    mean: Float64 = np.asarray(np.mean(points, axis=0, dtype=np.float64))
    scale = float(np.sqrt(np.mean(np.sum((points - mean)**2, axis=1)) / 2)) or 1.0
    matrix = np.array([[1 / scale, 0, -mean[0] / scale], [0, 1 / scale, -mean[1] / scale], [0, 0, 1]])
    return _homogeneous(points) @ matrix.T, matrix


def _homogeneous(points: Float32) -> Float64:
    return np.column_stack([np.asarray(points, np.float64), np.ones(len(points))])
