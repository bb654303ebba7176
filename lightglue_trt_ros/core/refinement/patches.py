"""Patches of one image found in another: Lucas-Kanade under a local affine change, with gain and offset compensated.

Inverse compositional (Baker and Matthews, IJCV 2004): gradients and normal matrices are the reference's, once. The gradients are
made orthogonal to the patch itself and to a constant, so neither a change of contrast nor one of brightness moves a point.

Points are the last axis of every array: an operation runs over hundreds of points at a time, not over the 9 pixels of a row.
"""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from ..types import Float32
from .matrices import inverse_2x2, outer, product, through
from .scratch import scratch

FAINT = 0.1  # gray levels, root of the mean square: contrast below it is none, nor is what has less than this share of the patch's
ALIKE = 0.5  # least correlation with the patch of what is taken for it: the best that white noise offers has 0.4
QUANTISATION = 0.02  # gray levels squared: a residual is never less
_FULL = np.array([[0, 1], [1, 2]])  # a symmetric matrix of its three entries


class PatchFit(NamedTuple):
    """Where M patches are in the current image, in its pixels, and what says how well that is known."""

    points: Float32  # (2, M)
    inverse: Float32  # (2, 2, M) of the structure tensors' means, pixels squared per gray level squared
    residual: Float32  # (M,) gray levels squared, the mean square of what differs after gain and offset
    alike: NDArray[np.bool_]  # (M,) whether it is the patch: a black image and a bare wall have nothing of it
    backward: Float32  # (2, M) how far the patch found comes back beside where it was taken from, as seen in the current image


def find_patches(reference: Float32, current: Float32, points: Float32, start: Float32, view: Float32, radius: int,
                 steps: int) -> PatchFit:
    """Find the patches around `points` (2, M) of one image near `start` (2, M) in another, each under its `view` (2, 2, M).

    Both images are gray levels, float32 (H, W); patches have sides of 2 radius + 1 pixels. `steps` of Gauss and Newton are taken,
    whatever they reach.
    """
    axis = np.arange(-radius - 1, radius + 2, dtype=np.float32)[:, None]  # the patch, and a pixel more for its gradients
    upright, seen = (each[:, :, None] * axis for each in (np.eye(2, dtype=np.float32)[:, :, None], view))
    template = _Template(_sample(reference, points, upright), 'template')
    step_of, here = product(view, inverse_2x2(template.tensor)), start
    for _ in range(steps):
        here = here - through(step_of, template.slope(_sample(current, here, seen[:, :, 1:-1])))
    found = _Template(_sample(current, here, seen), 'found')
    gain = template.gain(found.pattern)
    alike = np.asarray((gain > FAINT) & (gain * template.contrast > ALIKE * found.contrast), np.bool_)
    gain = np.maximum(gain, FAINT)
    residual = np.asarray(np.maximum(found.variance / gain**2 - template.contrast**2, 0) + QUANTISATION, np.float32)
    back = through(inverse_2x2(found.tensor), found.slope(template.pattern))  # the first step of the way back
    return PatchFit(here, product(step_of, view.transpose(1, 0, 2)), residual, alike, -through(view, back))


class _Template:
    """Patches and their gradients, and sums over them: all that steps are made of.

    What a gain or an offset would explain is not taken from each pixel of the gradients, but from the sums. These are einsum's,
    for it asks no BLAS, whose threads cost more here than they give.
    """

    def __init__(self, patch: Float32, name: str) -> None:
        """Of patches with a rim, (side + 2, side + 2, M); until the next of that name in this thread."""
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
        self._explained = means[:2] / self.contrast  # (2, M) what the gradients have of the patch over its contrast
        tensor = np.stack([np.einsum('yxm,yxm->m', *each) for each in ((u, u), (u, v), (v, v))])
        less = outer(self._mean, self._mean) + outer(self._explained, self._explained) * (2 - self.variance / self.contrast**2)
        self.tensor = tensor[_FULL] * (self._share[0] / 2) - less  # (2, 2, M) gray levels squared per pixel squared

    def gain(self, seen: Float32) -> Float32:
        """(M,): how much of the patches there is in what is seen, (side, side, M)."""
        return np.asarray(np.einsum('yxm,yxm->m', self.pattern, seen) * self._share[2] / self.contrast**2, np.float32)

    def slope(self, seen: Float32) -> Float32:
        """(2, M): gradient of the error of what is seen, (side, side, M), by the point, with the gain and offset that fit best."""
        means = self._means(seen)
        gain = means[2] / self.contrast
        along = means[:2] - self._mean * (np.add.reduce(seen, axis=(0, 1)) * self._share[2]) - self._explained * gain
        return np.asarray(along / np.maximum(gain / self.contrast, FAINT), np.float32)

    def _means(self, seen: Float32) -> Float32:
        """(3, M): of gradients and pattern times what is seen."""
        return np.asarray(np.einsum('ryxm,yxm->rm', self._rows, seen) * self._share, np.float32)


def _sample(image: Float32, points: Float32, offsets: Float32) -> Float32:
    """Gray levels (side, side, M) around `points` (2, M), bilinear; the image's edge goes on for ever.

    `offsets` (2, 2, side, M or 1) are u and v of the steps across a patch, and of those down. Until the next call in this thread.
    """
    side, count = offsets.shape[2], points.shape[1]
    maps = scratch('maps', 2, side, side, count)
    np.add(offsets[:, 0, None], (offsets[:, 1] + points[:, None])[:, :, None], out=maps)
    gray = scratch('gray', side * side, count)
    cv2.remap(image, maps[0].reshape(gray.shape), maps[1].reshape(gray.shape), cv2.INTER_LINEAR, gray, cv2.BORDER_REPLICATE)
    return gray.reshape(side, side, count)
