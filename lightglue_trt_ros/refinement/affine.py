"""The precise way: Lucas-Kanade under the local affine change of the view, with gain and offset compensated."""

from __future__ import annotations

import cv2
import numpy as np

from ..features import Float32, UInt8
from . import LIMIT_PX

RADIUS_PX = 5  # of the patch
ITERATIONS = 5
STOP_PX = 0.03
REACH_PX = 60.0  # matches about this near tell how the view changes around a point
RIDGE_PX = 20.0  # fewer or closer ones than a spread of this are drawn towards a pure shift
SOURCES = 256  # matches that the view's change is taken from: more say no more
MIN_TEXTURE = 1e-4  # det / trace^2 of the structure tensor


def affine(reference: UInt8, current: UInt8, reference_points: Float32, current_points: Float32) -> Float32:
    """As the package says. The patch is warped by the local affine change of the view and normalised in mean and contrast.

    Inverse compositional (Baker and Matthews, IJCV 2004). A point stays where it is when it has no texture, would move LIMIT_PX or
    further, or correlates less well afterwards.
    """
    start, count = np.asarray(current_points, np.float32), len(current_points)
    view = local_affine(reference_points, current_points)
    axis, side = np.arange(-RADIUS_PX - 1, RADIUS_PX + 2, dtype=np.float32), 2 * RADIUS_PX + 3
    right, down = (grid.ravel() for grid in np.meshgrid(axis, axis))
    patch = _sample(reference, reference_points[:, :1] + right, reference_points[:, 1:] + down).reshape(count, side, side)
    inner = patch[:, 1:-1, 1:-1]
    rows = np.stack([patch[:, 1:-1, 2:] - patch[:, 1:-1, :-2], patch[:, 2:, 1:-1] - patch[:, :-2, 1:-1], 2 * inner], axis=1) / 2
    rows = rows.reshape(count, 3, -1)  # gradients along u and v, and the patch itself
    rows -= rows.mean(axis=2, keepdims=True)
    contrast = np.sqrt(np.sum(rows[:, 2]**2, axis=1)) + np.float32(0.1)
    rows /= contrast[:, None, None]
    gram = rows @ rows.transpose(0, 2, 1)
    tensor, bias = gram[:, :2, :2], gram[:, :2, 2]
    determinant, trace = np.linalg.det(tensor), np.trace(tensor, axis1=1, axis2=2)
    textured = determinant > MIN_TEXTURE * trace**2
    tensor[~textured] = np.eye(2)
    step_of = (view @ np.linalg.inv(tensor)).astype(np.float32)  # residual's projection -> pixels of image 1
    offsets = np.stack([right, down]).reshape(2, side, side)[:, 1:-1, 1:-1].reshape(2, -1)
    warped = (view @ offsets).astype(np.float32)  # (M, 2, P)

    points, before, moved = start.copy(), np.zeros(count, np.float32), np.zeros(count, np.bool_)
    live = np.flatnonzero(textured)
    warped, rows = warped[live], rows[live]
    for turn in range(ITERATIONS + 1):
        if not len(live):
            break
        at = points[live]
        seen = _sample(current, warped[:, 0] + at[:, :1], warped[:, 1] + at[:, 1:])
        seen -= seen.mean(axis=1, keepdims=True)
        length = np.sqrt(np.einsum('np,np->n', seen, seen)) + np.float32(0.1)
        projected = (rows @ seen[:, :, None])[:, :, 0] / length[:, None]
        correlation = projected[:, 2]
        if turn == 0:
            before[live] = correlation
        step = (step_of[live] @ (projected[:, :2] - bias[live])[:, :, None])[:, :, 0]
        done = (np.linalg.norm(step, axis=1) < STOP_PX) | (turn == ITERATIONS)
        points[live[~done]] -= step[~done]
        near = np.linalg.norm(points[live] - start[live], axis=1) < LIMIT_PX
        moved[live[done & near]] = (correlation >= before[live])[done & near]
        keep = ~done & near
        live, warped, rows = live[keep], warped[keep], rows[keep]
    return np.asarray(np.where(moved[:, None], points, start), np.float32)


def local_affine(points0: Float32, points1: Float32) -> Float32:
    """How offsets around each point of image 0 become offsets around its match: (M, 2, 2).

    Weighted least squares over the matches nearby, drawn towards the identity; all in moments, one matrix product.
    """
    x = np.asarray(points0 - np.mean(points0, axis=0), np.float32) / np.float32(REACH_PX)
    d = np.asarray(points1 - points0, np.float32) / np.float32(REACH_PX)
    d -= np.median(d, axis=0)
    some = slice(None, None, -(-len(x) // SOURCES))
    a, b = x[some], d[some]
    half, half_source = (np.float32(0.5) * np.sum(p * p, axis=1) for p in (x, a))
    weights = np.exp(x @ a.T - half[:, None] - half_source)  # (M, S) Gaussian in the distance
    table = np.column_stack([np.ones(len(a), np.float32), a, b, a[:, :1] * a, a[:, 1:] * a, b[:, :1] * a, b[:, 1:] * a])
    total, *moments = np.split(weights @ table, (1, 3, 5), axis=1)
    total += np.float32(1e-6)
    mean, shift, products = (m / total for m in moments)
    spread = products[:, :4].reshape(-1, 2, 2) - mean[:, :, None] * mean[:, None]
    spread += np.eye(2, dtype=np.float32) * ((RIDGE_PX / REACH_PX)**2 / total)[:, :, None]
    change = products[:, 4:].reshape(-1, 2, 2) - shift[:, :, None] * mean[:, None]
    return np.asarray(np.eye(2, dtype=np.float32) + change @ np.linalg.inv(spread), np.float32)


def _sample(image: UInt8, u: Float32, v: Float32) -> Float32:
    return cv2.remap(image, u, v, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE).astype(np.float32)
