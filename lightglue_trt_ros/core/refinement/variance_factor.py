"""Scale of the covariances, estimated from the epipolar residuals of each frame's matches."""

from __future__ import annotations

import math
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from ..geometry import sampled_model
from ..types import Float32, Float64

ENOUGH = 30  # matches for an estimate; the geometry takes eight
SAMPLES = 300  # matches at most: more do not improve the estimate
ROUNDS, SETTLED = 40, 1e-6  # at most; 1 - cosine between the matrices of two rounds, below which it has converged
EXACT = 1e-6  # share of a variance: smaller squared errors count as 0
QUANTILE, NORMAL = 0.85, 2.072  # of the squares of a standard normal variable
FREEDOM = 7  # degrees of freedom of a fundamental matrix, which the fit takes from the residuals
WRONG_PX, WRONG_SIGMAS = 4.0, 4.0  # further than both, a match is wrong: keypoints of the extractor are more than 4 pixels apart
INLIER_PX = 1.0  # of MAGSAC++
RATE = 0.2  # weight of a frame in the mean over frames
LEAST, MOST = 0.1, 4.0
HALF = 0.455  # median of the squares of a standard normal variable
UNLIKELY = 2.0  # times the factor so far: a fit with a larger median of its squared residuals is rejected
CONFIDENCE, SAMPLINGS = 0.99, 300  # of MAGSAC++


class VarianceFactor:
    """The factor of the covariances, filtered over frames as a mean of logarithms.

    Rolling shutter, lens distortion or motion blur make errors larger than the patches show, a camera with little noise smaller.
    """

    def __init__(self) -> None:
        self._log: float | None = None

    @property
    def value(self) -> float:
        return 1.0 if self._log is None else math.exp(self._log)

    @property
    def fit_limit(self) -> float:
        """Limit of a fit's median of squared residuals over their variances; a fit beyond it is tried again from samples."""
        return 0.0 if self._log is None else HALF * min(UNLIKELY * self.value, MOST)

    def add(self, quantile: float, inliers: int) -> None:
        """Filter in a frame whose `inliers` have this QUANTILE of squared distances over their variances; too few change nothing.

        The quantile is compared with that of a normal distribution.
        """
        if inliers >= ENOUGH:
            ratio = quantile / NORMAL * inliers / (inliers - FREEDOM)
            measured = math.log(min(max(ratio, LEAST), MOST))
            self._log = measured if self._log is None else (1 - RATE) * self._log + RATE * measured

    def update(self, points0: Float32, points1: Float32, covariances: Float32, unit: float = 1.0) -> float:
        """The factor after M matches, as `measure` takes them."""
        measured = measure(points0, points1, covariances, unit, self.fit_limit)
        self.add(measured.quantile, measured.inliers)
        return self.value


class Measured(NamedTuple):
    """How a frame's matches fit one epipolar geometry."""

    fundamental: Float64 | None  # (3, 3) maps points to their lines; None for too few matches
    quantile: float  # QUANTILE of the squared distances of inliers over their variances; NaN without any
    inliers: int


def measure(points0: Float32, points1: Float32, covariances: Float32, unit: float, fit_limit: float) -> Measured:
    """Residuals of M matches: points (M, 2) of both images, covariances (M, 2, 2) of the second ones, all finite.

    Outliers do not count; their limit grows with the covariance, because a fixed limit would hide large errors. `unit` is pixels of
    the image to one of the extractor's, at least 1; `fit_limit` as for `fit_epipolar`.
    """
    if len(points0) < ENOUGH:
        return Measured(None, math.nan, 0)
    some = slice(None, None, max(1, -(-len(points0) // SAMPLES)))
    fit = fit_epipolar(points0[some], points1[some], covariances[some], INLIER_PX * unit, fit_limit)
    right = fit.ratios[plausible(fit.distances, fit.ratios, unit)]
    return Measured(fit.fundamental, _quantile(right) if len(right) else math.nan, len(right))


def plausible(distances: Float64, ratios: Float64, unit: float = 1.0) -> NDArray[np.bool_]:
    """Inlier test of matches (M,), by their distances in pixels to their lines, and by their squares over the variances."""
    return (np.abs(distances) < WRONG_PX * unit) | (ratios < WRONG_SIGMAS**2)


class EpipolarFit(NamedTuple):
    """The epipolar geometry of M matches, and their residuals."""

    fundamental: Float64  # matrix (3, 3) that maps points to their lines
    distances: Float64  # (M,) pixels, of the second points to their lines
    ratios: Float64  # (M,) squares of these, over their variances


def fit_epipolar(points0: Float32, points1: Float32, covariances: Float32, threshold_px: float = INLIER_PX,
                 fit_limit: float = HALF * MOST) -> EpipolarFit:
    """The fundamental matrix that fits matches (M, 2) best, covariances (M, 2, 2) of the second points; M is 8 at least.

    The eight-point algorithm (Hartley, PAMI 1997), weighted by the variances and by Geman and McClure's loss, until that settles.
    The first round's weights are those of the covariances: in bad light, points without a patch would lead it astray.
    Where the median of its squared residuals over their variances is beyond `fit_limit`, as it may be where a third of the
    matches are wrong, the rounds begin again from MAGSAC++'s (Barath et al., CVPR 2020), at `threshold_px`. The better of both is
    taken.
    """
    table = _Table(points0, points1, covariances)
    fit = table.settled(1 / (covariances[:, 0, 0] + covariances[:, 1, 1] + 1e-18))
    if fit.middle > fit_limit:
        sampled = sampled_model(cv2.findFundamentalMat, points0, points1, cv2.USAC_MAGSAC, threshold_px, CONFIDENCE, SAMPLINGS)
        if sampled is not None:
            fit = min(fit, table.settled(table.of_pixels(sampled).weights()), key=lambda each: each.middle)
    matrix = fit.matrix.reshape(3, 3)
    lines = matrix[:2] @ table.x0
    lines *= lines
    distances = np.sqrt(fit.squares / (lines[0] + lines[1] + 1e-30)) / table.to1[0, 0]
    return EpipolarFit(table.to1.T @ matrix @ table.to0, distances, fit.ratios)


class _Judged(NamedTuple):
    """Residuals of M matches for a fundamental matrix of normalised points."""

    matrix: Float64  # (9,)
    squares: Float64  # (M,) of x1' F x0
    variances: Float64  # (M,) of that
    ratios: Float64  # (M,) of both
    middle: float  # median of the ratios

    def weights(self) -> Float64:
        """Weights (M,) of the next round."""
        weights = self.ratios * (1 / max(4.0, self.middle))
        weights += 1
        weights *= weights
        weights *= self.variances
        return np.reciprocal(weights, out=weights)


class _Table:
    """Terms that all rounds share, computed once: matches are few, so each call of NumPy counts."""

    def __init__(self, points0: Float32, points1: Float32, covariances: Float32) -> None:
        (self.x0, self.to0), (x1, self.to1) = _normalised(points0), _normalised(points1)
        self._products = (x1[:, None] * self.x0).reshape(9, -1)  # times the matrix, row by row: x1' F x0
        self._deviations = _deviations(self.x0, np.asarray(covariances, np.float64) * self.to1[0, 0]**2)

    def settled(self, weights: Float64) -> _Judged:
        """The result of rounds that begin with `weights` (M,)."""
        before = np.zeros(9)
        for _ in range(ROUNDS):
            judged = self._judged(np.linalg.eigh((self._products * weights) @ self._products.T)[1][:, 0])
            # a camera that stands still: every geometry fits
            if 1 - abs(float(before.dot(judged.matrix))) < SETTLED or judged.middle < EXACT:
                break
            before, weights = judged.matrix, judged.weights()
        return judged

    def of_pixels(self, fundamental: Float64) -> _Judged:
        """Residuals for a fundamental matrix (3, 3) of pixels."""
        matrix = (np.linalg.inv(self.to1).T @ fundamental @ np.linalg.inv(self.to0)).ravel()
        return self._judged(matrix / np.linalg.norm(matrix))

    def _judged(self, matrix: Float64) -> _Judged:
        squares, parts = matrix.dot(self._products), matrix[:6].dot(self._deviations)
        squares *= squares
        parts *= parts
        variances = parts[:len(squares)] + parts[len(squares):]
        variances += 1e-18
        ratios, half = squares / variances, len(squares) // 2
        return _Judged(matrix, squares, variances, ratios, float(np.partition(ratios, half)[half]))


def _deviations(x0: Float64, covariances: Float64) -> Float64:
    """(6, 2 M): multiplied by a matrix's first two rows, values whose squares sum in pairs to the variances along lines (M,).

    The matrix maps points (3, M) to lines; uses Cholesky roots of the covariances (M, 2, 2).
    """
    a, b, d = covariances[:, 0, 0], covariances[:, 0, 1], covariances[:, 1, 1]
    along = np.sqrt(a + 1e-18)
    mixed = b / along
    deviations = np.zeros((2, 3, 2, x0.shape[1]))
    np.multiply(x0, along, out=deviations[0, :, 0])
    np.multiply(x0, mixed, out=deviations[1, :, 0])
    np.multiply(x0, np.sqrt(np.maximum(d - mixed * mixed, 0)), out=deviations[1, :, 1])
    return deviations.reshape(6, -1)


def _normalised(points: Float32) -> tuple[Float64, Float64]:
    """Homogeneous points (3, M) about their mean, spread by one, and the matrix (3, 3) that makes them of pixels (M, 2)."""
    x = np.ones((3, len(points)))
    x[:2] = points.T
    mean = np.add.reduce(x[:2], axis=1) / len(points)
    x[:2] -= mean[:, None]
    scale = math.sqrt(float(np.vdot(x[:2], x[:2])) / (2 * len(points))) or 1.0
    x[:2] *= 1 / scale
    return x, np.array([[1 / scale, 0, -mean[0] / scale], [0, 1 / scale, -mean[1] / scale], [0, 0, 1]])


def _quantile(values: Float64) -> float:
    """QUANTILE of the values, interpolated as in NumPy, in a fifth of its time."""
    below, share = divmod(QUANTILE * (len(values) - 1), 1)
    first = int(below)
    ordered = np.partition(values, (first, min(first + 1, len(values) - 1)))[first:first + 2]
    return float(ordered[0] + share * (ordered[-1] - ordered[0]))
