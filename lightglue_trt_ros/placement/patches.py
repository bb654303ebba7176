"""Patches of one image found in another: Lucas-Kanade under a local affine change, with gain and offset compensated.

Inverse compositional (Baker and Matthews, IJCV 2004): gradients and normal matrices are the reference's, once. The gradients are
made orthogonal to the patch itself and to a constant, so neither a change of contrast nor one of brightness moves a point.
"""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from ..features import Float32

FAINT = 0.1  # gray levels, root of the mean square: contrast below it is none
QUANTISATION = 0.02  # gray levels squared: a residual is never less


class PatchFit(NamedTuple):
    """Where M patches are in the current image, in its pixels, and what says how well that is known."""

    points: Float32  # (M, 2)
    inverse: Float32  # (M, 2, 2) of the structure tensors' means, pixels squared per gray level squared
    residual: Float32  # (M,) gray levels squared, the mean square of what differs after gain and offset
    alike: NDArray[np.bool_]  # (M,) whether anything of the patch is there: a black image has none of it
    backward: Float32  # (M, 2) how far the patch found comes back beside where it was taken from, as seen in the current image


def find_patches(reference: Float32, current: Float32, points: Float32, start: Float32, view: Float32, radius: int,
                 steps: int) -> PatchFit:
    """Find the patches around `points` (M, 2) of one image near `start` (M, 2) in another, each under its `view` (M, 2, 2).

    Both images are gray levels, float32 (H, W); patches have sides of 2 radius + 1 pixels. `steps` of Gauss and Newton are taken,
    whatever they reach.
    """
    side = 2 * radius + 1
    axis = np.arange(-radius - 1, radius + 2, dtype=np.float32)
    rim = np.stack(np.meshgrid(axis, axis))  # (2, side + 2, side + 2): the patch, and a pixel more for its gradients
    inner = np.ascontiguousarray(rim[:, 1:-1, 1:-1].reshape(2, -1))
    rows, contrast = _template(_sample(reference, points, rim[None]))
    inverse = inverse_2x2(_products(rows))
    here = _steps(current, rows, contrast, start, (view @ inner).reshape(-1, 2, side, side), view @ inverse, steps)
    patch = _sample(current, here, (view @ rim.reshape(2, -1)).reshape(-1, *rim.shape))
    seen = patch[:, 1:-1, 1:-1].reshape(len(here), -1, 1)
    gain = (rows[:, 2:] @ seen)[:, 0, 0] / (contrast * side**2)
    alike, gain = np.asarray(gain > FAINT, np.bool_), np.maximum(gain, FAINT)
    spread = np.mean((seen[:, :, 0] - seen[:, :, 0].mean(axis=1, keepdims=True))**2, axis=1)
    residual = np.asarray(np.maximum(spread / gain**2 - contrast**2, 0) + QUANTISATION, np.float32)
    rows, contrast = _template(patch)  # of the way back, as the reference sees it; its first step says what more would
    back = _steps(reference, rows, contrast, points, inner.reshape(1, 2, side, side), inverse_2x2(_products(rows)), 1) - points
    backward = np.asarray((view @ back[:, :, None])[:, :, 0], np.float32)
    return PatchFit(here, np.asarray(view @ inverse @ view.transpose(0, 2, 1), np.float32), residual, alike, backward)


def _steps(image: Float32, rows: Float32, contrast: Float32, start: Float32, offsets: Float32, step_of: Float32,
           count: int) -> Float32:
    """Points (M, 2) after `count` steps from `start`; `step_of` (M, 2, 2) makes a step of the gradient of the error."""
    here = np.asarray(start, np.float32)
    for _ in range(count):
        projected = rows @ _sample(image, here, offsets).reshape(len(here), -1, 1) / rows.shape[2]
        gain = np.maximum(projected[:, 2:] / contrast[:, None, None], FAINT)
        here = here - (step_of @ (projected[:, :2] / gain))[:, :, 0]
    return here


def _products(rows: Float32) -> Float32:
    """Structure tensors (M, 2, 2), as means over the patch: gray levels squared per pixel squared."""
    return np.asarray(rows[:, :2] @ rows[:, :2].transpose(0, 2, 1) / rows.shape[2], np.float32)


def _template(patch: Float32) -> tuple[Float32, Float32]:
    """Of patches with a rim, (M, side + 2, side + 2): rows (M, 3, side^2) and the contrast (M,), the root of the mean square.

    Rows are the gradients along u and v, without what a gain would explain, and the patch over its contrast; none has a mean.
    """
    inner = patch[:, 1:-1, 1:-1]
    rows = np.stack([(patch[:, 1:-1, 2:] - patch[:, 1:-1, :-2]) / 2, (patch[:, 2:, 1:-1] - patch[:, :-2, 1:-1]) / 2, inner], axis=1)
    rows = rows.reshape(len(patch), 3, -1)
    rows -= rows.mean(axis=2, keepdims=True)
    contrast = np.maximum(np.sqrt(np.mean(rows[:, 2]**2, axis=1)), np.float32(FAINT))
    rows[:, 2] /= contrast[:, None]
    rows[:, :2] -= (rows[:, :2] @ rows[:, 2, :, None]) / rows.shape[2] * rows[:, 2:]
    return rows, contrast


def inverse_2x2(matrices: Float32) -> Float32:
    """Inverses (M, 2, 2) of symmetric matrices; where there is next to nothing to invert, a large but finite one."""
    a, b, d = matrices[:, 0, 0] + np.float32(1e-6), matrices[:, 0, 1], matrices[:, 1, 1] + np.float32(1e-6)
    determinant = np.maximum(a * d - b * b, 1e-6 * (a + d)**2)
    return np.asarray(np.stack([d, -b, -b, a], axis=1) / determinant[:, None], np.float32).reshape(-1, 2, 2)


def _sample(image: Float32, points: Float32, offsets: Float32) -> Float32:
    """Gray levels (M, h, w) at `points` (M, 2) + `offsets` (M or 1, 2, h, w), bilinear; the image's edge goes on for ever."""
    count, (_, _, *shape) = len(points), offsets.shape
    u, v = (points[:, axis, None] + offsets[:, axis].reshape(len(offsets), -1) for axis in (0, 1))
    return np.asarray(cv2.remap(image, u, v, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE), np.float32).reshape(count, *shape)
