"""How the view changes around each match: patches are compared under it."""

from __future__ import annotations

import numpy as np

from ..features import Float32

REACH_PX = 60.0  # matches about this near tell how the view changes around a point
RIDGE_PX = 20.0  # fewer or closer ones than a spread of this are drawn towards a pure shift
SOURCES = 128  # matches that the view's change is taken from: more say no more


def local_affine(points0: Float32, points1: Float32, at: Float32 | None = None) -> tuple[Float32, Float32]:
    """How offsets around each point of image 0 become offsets around its match, (N, 2, 2), and where the point goes by it, (N, 2).

    Weighted least squares over the matches (M, 2) nearby, drawn towards the identity; all in moments, one matrix product. `at` are
    the points (N, 2) of image 0 that are asked for, the matches' own where left out.
    """
    asked = points0 if at is None else at
    middle, shift = points0.mean(axis=0), np.median(points1 - points0, axis=0)
    some = slice(None, None, -(-len(points0) // SOURCES))
    x = np.asarray(asked - middle, np.float32) / np.float32(REACH_PX)
    a = np.asarray(points0[some] - middle, np.float32) / np.float32(REACH_PX)
    b = np.asarray(points1[some] - points0[some] - shift, np.float32) / np.float32(REACH_PX)
    half, half_source = (np.float32(0.5) * np.sum(p * p, axis=1) for p in (x, a))
    weights = np.exp(x @ a.T - half[:, None] - half_source)  # (N, S) Gaussian in the distance
    table = np.column_stack([np.ones(len(a), np.float32), a, b, a[:, :1] * a, a[:, 1:] * a, b[:, :1] * a, b[:, 1:] * a])
    total, *moments = np.split(weights @ table, (1, 3, 5), axis=1)
    total += np.float32(1e-6)
    mean, moved, products = (m / total for m in moments)
    spread = products[:, :4].reshape(-1, 2, 2) - mean[:, :, None] * mean[:, None]
    spread += np.eye(2, dtype=np.float32) * ((RIDGE_PX / REACH_PX)**2 / total)[:, :, None]
    change = (products[:, 4:].reshape(-1, 2, 2) - moved[:, :, None] * mean[:, None]) @ np.linalg.inv(spread)
    there = asked + shift + np.float32(REACH_PX) * (moved + ((x - mean)[:, None] @ change.transpose(0, 2, 1))[:, 0])
    return np.asarray(np.eye(2, dtype=np.float32) + change, np.float32), np.asarray(there, np.float32)
