"""Patches of one image found in another: Lucas-Kanade under a local affine change, with gain and offset compensated.

Inverse compositional (Baker and Matthews, IJCV 2004): gradients and normal matrices are the reference's, once. The gradients are
made orthogonal to the patch itself and to a constant, so neither a change of contrast nor one of brightness moves a point.

Points are the last axis of every array: an operation runs over hundreds of points at a time, not over the 9 pixels of a row.
"""

from __future__ import annotations

import math
import threading
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from ..types import Float32
from .matrices import identity, inverse_2x2, outer, points_first, product, through

FAINT = 0.1  # gray levels, root mean square: least contrast of a patch, and least gain of one found
ALIKE = 0.5  # least correlation with the patch: the best of white noise is 0.4
QUANTISATION = 0.02  # gray levels squared: the least residual
REACH_PX = 60.0  # Gaussian reach around a point of the matches that give its change of view
RIDGE_PX = 20.0  # matches of a smaller standard deviation than this are drawn towards a pure shift
SOURCES = 128  # most matches for the change of view: more add nothing
VIEW_BLOCK = 128  # points at a time: their weights stay in the cache, and a product is too small for BLAS to wake its threads
_FULL = np.array([[0, 1], [1, 2]])  # a symmetric matrix of its three entries


class PatchFit(NamedTuple):
    """M patches found in the current image, in its pixels, and the parts of their covariances."""

    points: Float32  # (2, M)
    inverse: Float32  # (2, 2, M) of the structure tensors' means, pixels squared per gray level squared
    residual: Float32  # (M,) gray levels squared, the mean square of what differs after gain and offset
    alike: NDArray[np.bool_]  # (M,) whether it correlates with the patch: a black image and a bare wall do not
    backward: Float32  # (2, M) error of the way back from the patch found, in pixels of the current image


def find_patches(reference: Float32, current: Float32, points: Float32, start: Float32, view: Float32, radius: int,
                 steps: int) -> PatchFit:
    """Find the patches around `points` (2, M) of one image near `start` (2, M) in another, each under its `view` (2, 2, M).

    Both images are gray levels, float32 (H, W); patches have sides of 2 radius + 1 pixels. Takes `steps` Gauss-Newton steps.
    """
    axis = np.arange(-radius - 1, radius + 2, dtype=np.float32)[:, None]  # the patch, and a pixel more for its gradients
    upright, warped = (each[:, :, None] * axis for each in (np.eye(2, dtype=np.float32)[:, :, None], view))
    template = _Template(_sample(reference, points, upright), 'template')
    step_of, here = product(view, inverse_2x2(template.tensor)), start
    for _ in range(steps):
        here = here - through(step_of, template.slope(_sample(current, here, warped[:, :, 1:-1])))
    target = _Template(_sample(current, here, warped), 'target')
    gain = template.gain(target.pattern)
    alike = np.asarray((gain > FAINT) & (gain * template.contrast > ALIKE * target.contrast), np.bool_)
    gain = np.maximum(gain, FAINT)
    residual = np.asarray(np.maximum(target.variance / gain**2 - template.contrast**2, 0) + QUANTISATION, np.float32)
    back = through(inverse_2x2(target.tensor), target.slope(template.pattern))  # the first step of the way back
    return PatchFit(here, product(step_of, view.transpose(1, 0, 2)), residual, alike, -through(view, back))


class _Template:
    """Patches, their gradients and sums over both, of which Gauss-Newton steps are made.

    Gain and offset are compensated in the sums, not in each pixel of the gradients. The sums are einsum's: it uses no BLAS, whose
    threads cost more here than they give.
    """

    def __init__(self, patch: Float32, name: str) -> None:
        """Of patches with a rim, (side + 2, side + 2, M). Valid until the next template of this name in this thread."""
        inner, side, count = patch[1:-1, 1:-1], patch.shape[0] - 2, patch.shape[2]
        self._rows = scratch(name, 3, side, side, count)
        u, v, self.pattern = self._rows
        np.subtract(patch[1:-1, 2:], patch[1:-1, :-2], out=u)  # twice the gradient
        np.subtract(patch[2:, 1:-1], patch[:-2, 1:-1], out=v)
        self._share = np.array([[0.5], [0.5], [1]], np.float32) / np.float32(side * side)
        np.subtract(inner, np.add.reduce(inner, axis=(0, 1)) * self._share[2], out=self.pattern)
        self._mean = np.add.reduce(self._rows[:2], axis=(1, 2)) * self._share[:2]
        means = self._means(self.pattern)
        self.variance = means[2]
        self.contrast = np.maximum(np.sqrt(self.variance), FAINT)
        self._explained = means[:2] / self.contrast  # (2, M) correlation of gradients and patch, over the contrast
        tensor = np.stack([np.einsum('yxm,yxm->m', *each) for each in ((u, u), (u, v), (v, v))])
        less = outer(self._mean, self._mean) + outer(self._explained, self._explained) * (2 - self.variance / self.contrast**2)
        self.tensor = tensor[_FULL] * (self._share[0] / 2) - less  # (2, 2, M) gray levels squared per pixel squared

    def gain(self, patches: Float32) -> Float32:
        """Gain (M,) of `patches` (side, side, M)."""
        return np.asarray(np.einsum('yxm,yxm->m', self.pattern, patches) * self._share[2] / self.contrast**2, np.float32)

    def slope(self, patches: Float32) -> Float32:
        """Gradient (2, M) of the error of `patches` (side, side, M) by the point, with the best gain and offset."""
        means = self._means(patches)
        gain = means[2] / self.contrast
        along = means[:2] - self._mean * (np.add.reduce(patches, axis=(0, 1)) * self._share[2]) - self._explained * gain
        return np.asarray(along / np.maximum(gain / self.contrast, FAINT), np.float32)

    def _means(self, patches: Float32) -> Float32:
        """Means (3, M) of gradients and pattern times `patches`."""
        return np.asarray(np.einsum('ryxm,yxm->rm', self._rows, patches) * self._share, np.float32)


def _sample(image: Float32, points: Float32, offsets: Float32) -> Float32:
    """Gray levels (side, side, M) around `points` (2, M), bilinear; the image is continued beyond its edge.

    `offsets` (2, 2, side, M or 1) are u and v of the steps across a patch, and of those down. Valid until the next call in this
    thread.
    """
    side, count = offsets.shape[2], points.shape[1]
    maps = scratch('maps', 2, side, side, count)
    np.add(offsets[:, 0, None], (offsets[:, 1] + points[:, None])[:, :, None], out=maps)
    gray = scratch('gray', side * side, count)
    cv2.remap(image, maps[0].reshape(gray.shape), maps[1].reshape(gray.shape), cv2.INTER_LINEAR, gray, cv2.BORDER_REPLICATE)
    return gray.reshape(side, side, count)


def local_affine(points0: Float32, points1: Float32, at: Float32) -> tuple[Float32, Float32]:
    """Local change of view around points, from the matches (M, 2) near them, by weighted least squares drawn to the identity.

    Args:
        at: points (N, 2) of image 0.

    Returns:
        Matrices (N, 2, 2) that map offsets around each point to offsets in image 1, and the predicted points (N, 2) there.
    """
    middle, shift = points0.mean(axis=0), np.median(points1 - points0, axis=0)
    some = slice(None, None, -(-len(points0) // SOURCES))
    x, a, b = (np.asarray(each, np.float32) / np.float32(REACH_PX) for each in
               (at - middle, points0[some] - middle, points1[some] - points0[some] - shift))
    table = np.column_stack([np.ones(len(a), np.float32), a, b, a[:, :1] * a, a[:, 1:] * a, b[:, :1] * a, b[:, 1:] * a])
    moments = _moments(x, a, table)
    total = moments[0] + np.float32(1e-6)
    mean, moved, within, between = np.split(moments[1:] / total, (2, 4, 8))
    ridge = identity(np.float32((RIDGE_PX / REACH_PX)**2) / total)
    covariance = within.reshape(2, 2, -1) - outer(mean, mean) + ridge
    change = product(between.reshape(2, 2, -1) - outer(moved, mean), inverse_2x2(covariance))
    predicted = at + shift + points_first(moved + through(change, x.T - mean)) * np.float32(REACH_PX)
    return points_first(change) + np.eye(2, dtype=np.float32), np.asarray(predicted, np.float32)


def _moments(x: Float32, sources: Float32, table: Float32) -> Float32:
    """Sums (C, N) of the table (S, C) of the sources (S, 2), each weighted by a Gaussian in its distance to x (N, 2)."""
    one, half, half_source = np.float32(1), *(np.float32(-0.5) * np.sum(p * p, axis=1) for p in (x, sources))
    left = np.column_stack([x, half, np.full_like(half, one)])
    right = np.stack([*sources.T, np.full_like(half_source, one), half_source])
    sums = np.empty((len(x), table.shape[1]), np.float32)
    for first in range(0, len(x), VIEW_BLOCK):
        rows = slice(first, first + VIEW_BLOCK)
        weights = left[rows] @ right
        np.matmul(np.exp(weights, out=weights), table, out=sums[rows])
    return np.ascontiguousarray(sums.T)


_scratch = threading.local()  # arrays by name


def scratch(name: str, *shape: int) -> Float32:
    """Uninitialised memory of this thread, the same for each name: fresh pages cost more than the arithmetic on them."""
    size, flat = math.prod(shape), vars(_scratch).get(name)
    if flat is None or len(flat) < size:
        flat = vars(_scratch)[name] = np.empty(size, np.float32)
    return flat[:size].reshape(shape)
