"""Whether covariances are as large as they should be: the matches of a frame must agree on one epipolar geometry."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..features import Float32

Float64 = NDArray[np.float64]

ENOUGH = 30  # matches that say something beside the geometry, which takes eight
SAMPLES = 300  # more say no more
ROUNDS = 12
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

    @property
    def value(self) -> float:
        return 1.0 if self._log is None else float(np.exp(self._log))

    def update(self, points0: Float32, points1: Float32, covariances: Float32, unit: float = 1.0) -> float:
        """The factor after M matches: points (M, 2) of both images, covariances (M, 2, 2) of the second ones."""
        some = slice(None, None, max(1, len(points0) // SAMPLES))
        if len(points0) >= ENOUGH:
            errors, deviations = epipolar_errors(points0[some], points1[some], covariances[some])
            near = errors < INLIER_PX * unit
            ratio = np.quantile((errors / deviations)[near]**2, QUANTILE) / NORMAL if near.sum() >= ENOUGH else 1.0
            measured = float(np.log(np.clip(ratio, LEAST, MOST)))
            self._log = measured if self._log is None else (1 - RATE) * self._log + RATE * measured
        return self.value


def epipolar_errors(points0: Float32, points1: Float32, covariances: Float32) -> tuple[Float64, Float64]:
    """Distances (M,) in pixels to the epipolar lines of the fundamental matrix that fits best, and their standard deviations.

    The eight-point algorithm (Hartley, PAMI 1997), weighted by the variances and by Geman and McClure's loss, a few times over.
    """
    (x0, _), (x1, scale) = _normalised(points0), _normalised(points1)
    spread = np.asarray(covariances, np.float64) / scale**2
    products = (x1[:, :, None] * x0[:, None, :]).reshape(-1, 9)
    weights, matrix = np.ones(len(x0)), np.eye(3)
    for _ in range(ROUNDS):
        matrix = np.linalg.eigh((products * weights[:, None]).T @ products)[1][:, 0].reshape(3, 3)
        lines = (x0 @ matrix.T)[:, :2]
        variances = np.einsum('ni,nij,nj->n', lines, spread, lines) + 1e-18
        ratios = (products @ matrix.ravel())**2 / variances
        weights = 1 / (variances * (1 + ratios / max(4.0, float(np.median(ratios))))**2)
    length = np.linalg.norm(lines, axis=1) + 1e-18
    return np.abs(products @ matrix.ravel()) / length * scale, np.sqrt(variances) / length * scale


def _normalised(points: Float32) -> tuple[Float64, float]:
    """Homogeneous points (M, 3) about their mean, and the pixels that are one of their units."""
    centred = np.asarray(points, np.float64) - np.mean(points, axis=0)
    scale = float(np.sqrt(np.mean(np.sum(centred**2, axis=1)) / 2)) or 1.0
    return np.column_stack([centred / scale, np.ones(len(points))]), scale
