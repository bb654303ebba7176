"""What rounding to E4M3 adds to a product, and the bases and weights in which it adds least.

E4M3 errs by a share of each value, so rounding x puts noise of variance ~ sum_i E[x_i^2] |W_:i|^2 onto W x. An invertible T changes
that sum (x' = T x, W' = W T^-1) and nothing else: to sum_i (T C T')_ii (T^-T G T^-1)_ii with C = cov(x), G = W' W. With one reader
of x it is least where both Gramians are equal and their diagonals level; with many, gradient descent goes on from there.
Weights are rounded with what is known of their inputs: each makes up for the errors of those before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core.types import Float32
from ..networks import e4m3
from ..networks.fp8_calibration import RoundedWeights

Float64 = NDArray[np.float64]

STEPS = 250
RATE = 2e-3  # of Adam (Kingma & Ba, ICLR 2015), whose other settings are the paper's
MAX_CONDITION = 32.0  # FP16 rounds what is computed in a basis 2^-11 times this coarsely at worst
DAMPING = 1e-2  # of the mean variance, added to each: directions that were never seen still count


@dataclass(frozen=True)
class Reader:
    """What a state of n values is multiplied by: its covariance (n, n), and W' W (n, n) over the energy of the product."""

    covariance: Float64
    gramian: Float64


def noise(basis: Float64, readers: Sequence[Reader], leading: int = 0) -> float:
    """Mean over the readers of what rounding in `basis` (n, n) adds, in units of the E4M3 error's variance: lower is better.

    The `leading` rows, whose errors are compensated, add nothing.
    """
    inverse: Float64 = np.asarray(np.linalg.inv(basis), np.float64)
    return float(np.mean([_diagonal(basis @ reader.covariance, basis.T)[leading:]
                          @ _diagonal(inverse.T @ reader.gramian, inverse)[leading:] for reader in readers]))


def balanced(covariance: Float64, gramian: Float64, leading: int = 0, ridge: float = 1e-3) -> Float64:
    """The basis (n, n) that is best for one reader, its `leading` rows being compensated.

    T C T' = T^-T G T^-1, diagonal (as in balanced truncation: Moore, IEEE TAC 1981): the greatest come first and are compensated;
    Hartley's rotation levels the others. `ridge`, a share of the mean variance, is added to both, so that directions never seen
    keep a bounded scale.
    """
    size = len(covariance)
    covariance, gramian = (matrix + ridge * max(float(np.trace(matrix)), 1e-30) / size * np.eye(size)
                           for matrix in (covariance, gramian))
    factor = np.linalg.cholesky(covariance)
    squares, vectors = (found[..., ::-1] for found in np.linalg.eigh(factor.T @ gramian @ factor))
    scales = np.maximum(squares, 1e-300) ** 0.25
    basis = scales[:, None] * np.linalg.solve(factor.T, vectors).T
    basis[leading:] = hartley(size - leading) @ basis[leading:]
    return bounded(_of_energy(basis, covariance))


def shared(readers: Sequence[Reader], leading: int = 0, steps: int = STEPS) -> Float64:
    """The basis (n, n) that is good for all readers together, its `leading` rows being compensated. Deterministic.

    Adam on `noise`, whose gradient is 2 (diag(g) T C - S' G S diag(c) S') for each reader, S = T^-1, c and g the two diagonals
    without the leading rows.
    """
    weights = [1 / max(float(np.trace(reader.covariance)), 1e-30) for reader in readers]
    covariance = np.mean([weight * reader.covariance for weight, reader in zip(weights, readers, strict=True)], axis=0)
    start = balanced(covariance, np.mean([reader.gramian for reader in readers], axis=0), leading, 1e-2)
    covariances, gramians = (np.hstack([getattr(reader, name) for reader in readers]) for name in ('covariance', 'gramian'))
    basis, best, least = start, start, noise(start, readers, leading)
    first, second = np.zeros_like(basis), np.zeros_like(basis)
    rate = RATE * float(np.sqrt(np.mean(start ** 2)) * np.sqrt(len(start)))  # steps relative to the size of the entries
    for step in range(1, steps + 1):
        slope, value = _slope(basis, covariances, gramians, leading)
        if value < least:
            best, least = basis, value
        first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope ** 2
        basis = basis - rate * (first / (1 - 0.9 ** step)) / (np.sqrt(second / (1 - 0.999 ** step)) + 1e-12)
    basis = basis if noise(basis, readers, leading) < least else best
    return bounded(_of_energy(basis, covariance))


def bounded(basis: Float64, condition: float = MAX_CONDITION) -> Float64:
    """The same basis, its singular values drawn together where the largest is more than `condition` times the smallest."""
    left, values, right = np.linalg.svd(basis)
    middle = float(np.exp(np.mean(np.log(np.maximum(values, 1e-30)))))
    if values[-1] * condition >= values[0]:
        return basis
    return np.asarray(left * np.clip(values, middle / condition ** 0.5, middle * condition ** 0.5) @ right, np.float64)


def hartley(size: int) -> Float64:
    """An orthogonal matrix (size, size) without large entries: the discrete Hartley transform."""
    angles = 2 * np.pi / size * np.outer(np.arange(size), np.arange(size))
    return np.asarray((np.cos(angles) + np.sin(angles)) / np.sqrt(size), np.float64)


def rounded_weights(weight: Float32, covariance: Float64) -> RoundedWeights:
    """Of weights (outputs, inputs): those on E4M3's grid that change products least.

    Frantar et al.: GPTQ, ICLR 2023, after Hassibi and Stork's Optimal Brain Surgeon, on a floating-point grid in place of integers.

    `covariance` (inputs, inputs) is that of the inputs around their centre, whose product is exact.
    """
    size, scales = len(covariance), e4m3.scales_of(weight)
    damped = covariance + DAMPING * max(float(np.trace(covariance)), 1e-30) / size * np.eye(size)
    order = np.argsort(-np.diag(damped), kind='stable')  # the greatest first, while there are others to make up for them
    factor = np.linalg.cholesky(np.linalg.inv(damped[np.ix_(order, order)])).T  # upper: its rows say how errors spread
    left = np.ascontiguousarray((weight / scales[:, None]).T[order], np.float64)  # (inputs, outputs)
    for row in range(size):
        exact = left[row].copy()
        left[row] = e4m3.rounded(exact)
        left[row + 1:] -= np.outer(factor[row, row + 1:], (exact - left[row]) / factor[row, row])
    found = np.empty_like(left)
    found[order] = left
    return RoundedWeights(e4m3.encoded(found.T), scales)


def _slope(basis: Float64, covariances: Float64, gramians: Float64, leading: int) -> tuple[Float64, float]:
    """Gradient of `noise`, and its value; of readers side by side, (n, readers * n) each: few large products."""
    size, count = len(basis), covariances.shape[1] // len(basis)
    inverse = np.linalg.inv(basis)
    moved = (basis @ covariances).reshape(size, count, size)
    half = (inverse.T @ gramians).reshape(size, count, size)  # S' G of each
    seen = (half.reshape(size * count, size) @ inverse).reshape(size, count, size)
    c, g = np.einsum('irk,ik->ri', moved, basis), np.einsum('iri->ri', seen).copy()
    c[:, :leading] = g[:, :leading] = 0
    slope = np.einsum('ri,irk->ik', g, moved) - np.einsum('irk,rk->ik', seen, c) @ inverse.T
    return 2 * slope / count, float(np.sum(c * g)) / count


def _of_energy(basis: Float64, covariance: Float64) -> Float64:
    """Scaled so that the state is as large in this basis as before: a factor changes nothing else."""
    energy = float(np.sum(_diagonal(basis @ covariance, basis.T)))
    return np.asarray(basis * np.sqrt(np.trace(covariance) / max(energy, 1e-300)), np.float64)


def _diagonal(left: Float64, right: Float64) -> Float64:
    """Diagonal of a product."""
    return np.asarray(np.einsum('ij,ji->i', left, right), np.float64)
