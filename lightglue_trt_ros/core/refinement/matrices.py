"""Arithmetic of many 2 x 2 matrices and vectors of 2, which BLAS would do one by one.

M matrices are (2, 2, M): an operation runs over hundreds of them at a time.
"""

from __future__ import annotations

import numpy as np

from ..types import Float32

EPSILON, LEAST = np.float32(1e-6), np.float32(1e-6)  # added to the diagonal; least determinant over trace^2


def inverse_2x2(matrices: Float32) -> Float32:
    """Inverses (2, 2, M) of symmetric matrices; large but finite where a matrix is almost singular."""
    a, b, d = matrices[0, 0] + EPSILON, matrices[0, 1], matrices[1, 1] + EPSILON
    determinant = np.maximum(a * d - b * b, LEAST * (a + d)**2)
    return np.asarray(np.array([[d, -b], [-b, a]], np.float32) / determinant, np.float32)


def through(matrices: Float32, vectors: Float32) -> Float32:
    """(2, M): matrices (2, 2, M) times vectors (2, M)."""
    return np.asarray(matrices[:, 0] * vectors[0] + matrices[:, 1] * vectors[1], np.float32)


def product(left: Float32, right: Float32) -> Float32:
    """Matrix products (2, 2, M)."""
    return np.asarray(left[:, :1] * right[0] + left[:, 1:] * right[1], np.float32)


def outer(left: Float32, right: Float32) -> Float32:
    """Outer products (2, 2, M) of vectors (2, M)."""
    return np.asarray(left[:, None] * right, np.float32)


def identity(scale: Float32) -> Float32:
    """(2, 2, M): identities times `scale` (M,)."""
    return np.asarray(np.eye(2, dtype=np.float32)[:, :, None] * scale, np.float32)


def eigenvalue_gap(matrices: Float32) -> Float32:
    """Differences (M,) of both eigenvalues of symmetric matrices (2, 2, M)."""
    return np.asarray(2 * _mean_and_half(matrices)[1], np.float32)


def lessened(matrices: Float32, by: np.float32) -> Float32:
    """Symmetric matrices (2, 2, M) with eigenvalues reduced by `by`, to 0 at least."""
    mean, half = _mean_and_half(matrices)
    more, less = np.maximum(mean + half - by, 0), np.maximum(mean - half - by, 0)
    kept = (more - less) / (2 * half + EPSILON)
    return np.asarray((matrices - identity(mean)) * kept + identity((more + less) / 2), np.float32)


def _mean_and_half(matrices: Float32) -> tuple[Float32, Float32]:
    """Mean and half the difference, (M,) each, of both eigenvalues of (2, 2, M)."""
    a, b, d = matrices[0, 0], matrices[0, 1], matrices[1, 1]
    return (a + d) / 2, np.sqrt(((a - d) / 2)**2 + b * b)


def points_last(array: Float32) -> Float32:
    """(M, ...) to (..., M)."""
    return np.ascontiguousarray(np.moveaxis(array, 0, -1), np.float32)


def points_first(array: Float32) -> Float32:
    """(..., M) to (M, ...)."""
    return np.ascontiguousarray(np.moveaxis(array, -1, 0), np.float32)
