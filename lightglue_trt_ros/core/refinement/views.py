"""How the view changes around each match: patches are compared under it."""

from __future__ import annotations

import numpy as np

from ..types import Float32
from .matrices import identity, inverse_2x2, outer, points_first, product, through

REACH_PX = 60.0  # matches about this near tell how the view changes around a point
RIDGE_PX = 20.0  # fewer or closer ones than a spread of this are drawn towards a pure shift
SOURCES = 128  # matches that the view's change is taken from: more say no more
BLOCK = 128  # points at a time: their weights stay in the cache, and a product is too small for BLAS to wake its threads


def local_affine(points0: Float32, points1: Float32, at: Float32 | None = None) -> tuple[Float32, Float32]:
    """How offsets around each point of image 0 become offsets around its match, (N, 2, 2), and where the point goes by it, (N, 2).

    Weighted least squares over the matches (M, 2) nearby, drawn towards the identity; all in moments. `at` are the points (N, 2) of
    image 0 that are asked for, the matches' own where left out.
    """
    asked = points0 if at is None else at
    middle, shift = points0.mean(axis=0), np.median(points1 - points0, axis=0)
    some = slice(None, None, -(-len(points0) // SOURCES))
    x, a, b = (np.asarray(each, np.float32) / np.float32(REACH_PX) for each in
               (asked - middle, points0[some] - middle, points1[some] - points0[some] - shift))
    table = np.column_stack([np.ones(len(a), np.float32), a, b, a[:, :1] * a, a[:, 1:] * a, b[:, :1] * a, b[:, 1:] * a])
    moments = _moments(x, a, table)
    total = moments[0] + np.float32(1e-6)
    mean, moved, within, between = np.split(moments[1:] / total, (2, 4, 8))
    ridge = identity(np.float32((RIDGE_PX / REACH_PX)**2) / total)
    spread = within.reshape(2, 2, -1) - outer(mean, mean) + ridge
    change = product(between.reshape(2, 2, -1) - outer(moved, mean), inverse_2x2(spread))
    there = asked + shift + points_first(moved + through(change, x.T - mean)) * np.float32(REACH_PX)
    return points_first(change) + np.eye(2, dtype=np.float32), np.asarray(there, np.float32)


def _moments(x: Float32, sources: Float32, table: Float32) -> Float32:
    """Sums (C, N) of the table (S, C) of the sources (S, 2), each weighted by a Gaussian in its distance to x (N, 2)."""
    one, half, half_source = np.float32(1), *(np.float32(-0.5) * np.sum(p * p, axis=1) for p in (x, sources))
    left = np.column_stack([x, half, np.full_like(half, one)])
    right = np.stack([*sources.T, np.full_like(half_source, one), half_source])
    sums = np.empty((len(x), table.shape[1]), np.float32)
    for first in range(0, len(x), BLOCK):
        rows = slice(first, first + BLOCK)
        weights = left[rows] @ right
        np.matmul(np.exp(weights, out=weights), table, out=sums[rows])
    return np.ascontiguousarray(sums.T)
