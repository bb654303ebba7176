"""Scale of the covariances, estimated from the epipolar residuals of each frame's matches."""

from __future__ import annotations

import math
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..cameras import Intrinsics
from ..geometry import middle, sampled_model
from ..lens import in_image
from ..types import Float64

ENOUGH = 30  # matches for an estimate; the geometry takes eight
SAMPLES = 300  # matches at most: more do not improve the estimate
ROUNDS, SETTLED = 40, 1e-6  # at most; 1 - cosine between the matrices of two rounds, below which it has converged
EXACT = 1e-6  # share of a variance: smaller squared errors count as 0
QUANTILE, NORMAL = 0.85, 2.072  # of the squares of a standard normal variable
FREEDOM = 11  # what the fit takes from the residuals: seven degrees of freedom, and what a robust loss chooses
WRONG_PX, WRONG_SIGMAS = 4.0, 4.0  # further than both, a match is wrong: keypoints of the extractor are more than 4 pixels apart
INLIER_PX = 1.0  # of MAGSAC++
LEAST, MOST = 0.1, 4.0
NOISE = 3.0  # variance of the logarithm that a frame measures, times its inliers
DRIFT = 0.04  # variance by which the logarithm changes from frame to frame
JUMP = 3.0  # standard deviations of a frame from those before: the camera begins to move, or to stand
RATE = 0.2  # weight of a frame in the mean that limits fits: one wrong fit must not let the next ones pass
SHARP = 0.97  # sharpness from which on no second geometry is looked for
ALIKE = 0.2, 7.0  # log of how much worse the second geometry is than the first where both are right, and that times sqrt(inliers)
HALF = 0.455  # median of the squares of a standard normal variable
UNLIKELY = 2.0  # times the usual factor: a fit with a larger median of its squared residuals is rejected
CONFIDENCE, SAMPLINGS = 0.99, 300  # of MAGSAC++


class VarianceFactor:
    """The factor of the covariances: a Kalman filter of its logarithm, which weighs a frame by the number of its inliers.

    Rolling shutter or motion blur make errors larger than the patches show, a camera with little noise smaller. The errors of a
    camera that stands are several times smaller than those of one that moves, so a frame far from those before replaces them.
    """

    def __init__(self) -> None:
        self._log: float | None = None
        self._variance = 0.0  # of the logarithm
        self._usual: float | None = None  # a slower mean of the logarithm, over frames of the layers

    @property
    def value(self) -> float:
        return 1.0 if self._log is None else math.exp(self._log)

    @property
    def fit_limit(self) -> float:
        """Limit of a fit's median of squared residuals over their variances; a fit beyond it is tried again from samples."""
        if self._log is None:
            return 0.0
        return HALF * (MOST if self._usual is None else min(UNLIKELY * math.exp(self._usual), MOST))

    def add(self, quantile: float, inliers: int, second_quantile: float = math.inf, *, by_layers: bool = True) -> None:
        """Filter in a frame whose `inliers` have this QUANTILE of squared distances over their variances; too few change nothing.

        The quantile is compared with that of a normal distribution. A plane, a rotation and a standing camera have many
        geometries: the fit is the one of them with the smallest distances, `second_quantile` is of another one, which nothing
        chose. The mean of both logarithms is right then. Matches from before the first layer are more exact than those of the
        layers (not `by_layers`), and change no limit of theirs.
        """
        if inliers < ENOUGH:
            return
        quantile = max(quantile, LEAST * LEAST)
        if math.log(max(second_quantile, quantile) / quantile) < ALIKE[0] + ALIKE[1] / math.sqrt(inliers):
            quantile = math.sqrt(quantile * second_quantile)
        measured = math.log(min(max(quantile / NORMAL * inliers / (inliers - FREEDOM), LEAST), MOST))
        noise = NOISE / inliers
        expected = self._variance + DRIFT
        if by_layers:
            self._usual = measured if self._usual is None else (1 - RATE) * self._usual + RATE * measured
        if self._log is None or (measured - self._log)**2 > JUMP**2 * (expected + noise):
            self._log, self._variance = measured, noise
        else:
            weight = expected / (expected + noise)
            self._log, self._variance = self._log + weight * (measured - self._log), (1 - weight) * expected


Points = NDArray[np.float32] | NDArray[np.float64]


class EpipolarResiduals(NamedTuple):
    """How a frame's matches fit one epipolar geometry."""

    fundamental: Float64 | None  # (3, 3) maps undistorted points to their lines; None for too few matches
    quantile: float  # QUANTILE of the squared distances of inliers over their variances; NaN without any
    inliers: int
    second_quantile: float = math.inf  # the same for the geometry that fits second best
    tested: int = 0  # matches that inliers are of


def epipolar_residuals(points0: Points, points1: Points, covariances: Points, unit: float, fit_limit: float,
                       camera: Intrinsics | None = None) -> EpipolarResiduals:
    """Residuals of M matches: points (M, 2) of both images, covariances (M, 2, 2) of the second ones, all finite.

    Outliers do not count; their limit grows with the covariance, because a fixed limit would hide large errors. `unit` is pixels of
    the image to one of the extractor's, at least 1; `fit_limit` as for `fit_epipolar`. With the `camera` of both images the
    geometry is that of undistorted points, and points that its lens cannot undistort do not count.
    """
    before, after, carried, jacobians = points0, points1, covariances, None
    if camera is not None and camera.lens.distorts:
        undistorted = camera.lens.undistorted(points1)
        before, after, carried, jacobians = (camera.lens.undistorted(points0).points, undistorted.points,
                                             undistorted.carried(covariances), undistorted.jacobians)
    known = np.flatnonzero(np.isfinite(before).all(axis=1) & np.isfinite(after).all(axis=1))
    if len(known) < ENOUGH:
        return EpipolarResiduals(None, math.nan, 0)
    some = known[::_stride(len(known))]
    fit = fit_epipolar(before[some], after[some], carried[some], INLIER_PX * unit, fit_limit,
                       None if jacobians is None else jacobians[some])
    right = np.flatnonzero(plausible(fit.distances, fit.ratios, unit))
    if not len(right):
        return EpipolarResiduals(fit.fundamental, math.nan, 0, tested=len(some))
    second = math.inf if fit.second_ratios is None else _quantile(fit.second_ratios[right])
    return EpipolarResiduals(fit.fundamental, _quantile(fit.ratios[right]), len(right), second, len(some))


def tested_of(matches: int) -> int:
    """How many of these matches a fit tests; none where they are too few."""
    return -(-matches // _stride(matches)) if matches >= ENOUGH else 0


def _stride(matches: int) -> int:
    return max(1, -(-matches // SAMPLES))


def plausible(distances: Float64, ratios: Float64, unit: float = 1.0) -> NDArray[np.bool_]:
    """Inlier test of matches (M,), by their distances in pixels to their lines, and by their squares over the variances."""
    return (np.abs(distances) < WRONG_PX * unit) | (ratios < WRONG_SIGMAS**2)


class EpipolarFit(NamedTuple):
    """The epipolar geometry of M matches, and their residuals."""

    fundamental: Float64  # matrix (3, 3) that maps points to their lines
    distances: Float64  # (M,) pixels of the image, of the second points to their lines
    ratios: Float64  # (M,) squares of these, over their variances
    second_ratios: Float64 | None  # (M,) the same for the geometry that fits second best; None: no other one fits


def fit_epipolar(points0: ArrayLike, points1: ArrayLike, covariances: ArrayLike, threshold_px: float = INLIER_PX,
                 fit_limit: float = HALF * MOST, jacobians: Float64 | None = None) -> EpipolarFit:
    """The fundamental matrix that fits matches (M, 2) best, covariances (M, 2, 2) of the second points; M is 8 at least.

    Points and covariances are those of pinhole cameras; `jacobians` (M, 2, 2) are the derivatives of the second points by the
    pixels of the image, where these differ.

    The eight-point algorithm (Hartley, PAMI 1997), weighted by the variances and by Geman and McClure's loss, until that settles.
    The first round's weights are those of the covariances: in bad light, points without a patch would lead it astray.
    Where the median of its squared residuals over their variances is beyond `fit_limit`, as it may be where a third of the
    matches are wrong, the rounds begin again from MAGSAC++'s (Barath et al., CVPR 2020), at `threshold_px`. The better of both is
    taken.
    """
    before, after, carried = (np.asarray(each, np.float64) for each in (points0, points1, covariances))
    table = _Table(before, after, carried)
    fit = table.iterate(1 / (carried[:, 0, 0] + carried[:, 1, 1] + 1e-18))
    if fit.median > fit_limit:
        sampled = sampled_model(cv2.findFundamentalMat, before, after, cv2.USAC_MAGSAC, threshold_px, CONFIDENCE, SAMPLINGS)
        if sampled is not None:
            fit = min(fit, table.iterate(table.of_pixels(sampled).weights()), key=lambda each: each.median)
    matrix = fit.matrix.reshape(3, 3)
    lines = matrix[:2] @ table.x0
    along = np.sqrt(lines[0] * lines[0] + lines[1] * lines[1]) if jacobians is None else in_image(jacobians, lines)
    distances = np.sqrt(fit.squares) / (along + 1e-15) / table.to1[0, 0]
    return EpipolarFit(table.to1.T @ matrix @ table.to0, distances, fit.ratios,
                       table.second(fit.weights()).ratios if fit.sharpness < SHARP else None)


class _Judged(NamedTuple):
    """Residuals of M matches for a fundamental matrix of normalised points."""

    matrix: Float64  # (9,)
    squares: Float64  # (M,) of x1' F x0
    variances: Float64  # (M,) of that
    ratios: Float64  # (M,) of both
    median: float  # median of the ratios
    sharpness: float  # 1 where no other geometry fits, 1/9 where all fit alike: squares of 1 / eigenvalues over their sum's square

    def weights(self) -> Float64:
        """Weights (M,) of the next round."""
        weights = self.ratios * (1 / max(4.0, self.median))
        weights += 1
        weights *= weights
        weights *= self.variances
        return np.reciprocal(weights, out=weights)


class _Table:
    """Terms that all rounds share, computed once: matches are few, so each call of NumPy counts."""

    def __init__(self, points0: Float64, points1: Float64, covariances: Float64) -> None:
        (self.x0, self.to0), (x1, self.to1) = _normalised(points0), _normalised(points1)
        self._products = (x1[:, None] * self.x0).reshape(9, -1)  # times the matrix, row by row: x1' F x0
        self._deviations = _deviations(self.x0, covariances * self.to1[0, 0]**2)

    def iterate(self, weights: Float64) -> _Judged:
        """The result of rounds that begin with `weights` (M,)."""
        before = np.zeros(9)
        for _ in range(ROUNDS):
            eigenvalues, vectors = np.linalg.eigh((self._products * weights) @ self._products.T)
            inverses = 1 / np.maximum(eigenvalues, 1e-16 * eigenvalues[-1])
            judged = self._judged(vectors[:, 0], float(inverses.dot(inverses)) / float(inverses.sum())**2)
            # a camera that stands still: every geometry fits
            if 1 - abs(float(before.dot(judged.matrix))) < SETTLED or judged.median < EXACT:
                break
            before, weights = judged.matrix, judged.weights()
        return judged

    def second(self, weights: Float64) -> _Judged:
        """Residuals for the matrix that fits second best with `weights` (M,)."""
        return self._judged(np.linalg.eigh((self._products * weights) @ self._products.T)[1][:, 1])

    def of_pixels(self, fundamental: Float64) -> _Judged:
        """Residuals for a fundamental matrix (3, 3) of pixels."""
        matrix = (np.linalg.inv(self.to1).T @ fundamental @ np.linalg.inv(self.to0)).ravel()
        return self._judged(matrix / np.linalg.norm(matrix))

    def _judged(self, matrix: Float64, sharpness: float = math.nan) -> _Judged:
        squares, parts = matrix.dot(self._products), matrix[:6].dot(self._deviations)
        squares *= squares
        parts *= parts
        variances = parts[:len(squares)] + parts[len(squares):]
        variances += 1e-18
        ratios = squares / variances
        return _Judged(matrix, squares, variances, ratios, middle(ratios), sharpness)


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


def _normalised(points: Float64) -> tuple[Float64, Float64]:
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
