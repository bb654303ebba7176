"""Many matrices of 2 x 2 and vectors of 2 at once, written out: BLAS would be asked for each of them in turn.

Which of them it is, is the last axis: an operation runs over hundreds at a time.
"""

from __future__ import annotations

import numpy as np

from ..features import Float32

EPSILON, LEAST = np.float32(1e-6), np.float32(1e-6)  # what is added to the diagonal, and the least determinant over trace^2


def inverse_2x2(matrices: Float32) -> Float32:
    """Inverses (2, 2, M) of symmetric matrices; where there is next to nothing to invert, a large but finite one."""
    a, b, d = matrices[0, 0] + EPSILON, matrices[0, 1], matrices[1, 1] + EPSILON
    determinant = np.maximum(a * d - b * b, LEAST * (a + d)**2)
    return np.asarray(np.array([[d, -b], [-b, a]], np.float32) / determinant, np.float32)


def through(matrices: Float32, vectors: Float32) -> Float32:
    """(2, M): matrices (2, 2, M) times vectors (2, M)."""
    return np.asarray(matrices[:, 0] * vectors[0] + matrices[:, 1] * vectors[1], np.float32)


def product(left: Float32, right: Float32) -> Float32:
    """(2, 2, M) of two such matrices."""
    return np.asarray(left[:, :1] * right[0] + left[:, 1:] * right[1], np.float32)


def outer(left: Float32, right: Float32) -> Float32:
    """(2, 2, M): vectors (2, M) times each other."""
    return np.asarray(left[:, None] * right, np.float32)


def identity(scale: Float32) -> Float32:
    """(2, 2, M): identities times what `scale` (M,) says."""
    return np.asarray(np.eye(2, dtype=np.float32)[:, :, None] * scale, np.float32)


def points_last(array: Float32) -> Float32:
    """(M, ...) to (..., M)."""
    return np.ascontiguousarray(np.moveaxis(array, 0, -1), np.float32)


def points_first(array: Float32) -> Float32:
    """(..., M) to (M, ...)."""
    return np.ascontiguousarray(np.moveaxis(array, -1, 0), np.float32)
