"""The check of depth and pose: views of a cluster are warped into each other and must look alike."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from training.rendered.raycast import Camera
from training.rendered.sources import RenderError

Floats = NDArray[Any]
LEAST = 0.9  # correlation of gray levels over co-visible pixels; true depth gives 0.99, twice the depth up to 0.84
AGREEMENT = 0.02  # largest difference of depth, as a share, at which a pixel counts as seen by both views
SEEN = 0.1  # least median share of co-visible pixels


@dataclass(frozen=True)
class View:
    """A packed view: `image` is uint8 (H, W), `depth` is uint16 (H, W) in millimetres, 0 for nothing."""

    name: str
    cluster: int
    camera: Camera
    image: NDArray[np.uint8]
    depth: NDArray[np.uint16]


@dataclass(frozen=True)
class Agreement:
    """Medians over pairs, and percentiles 5, 50 and 95 of the optical flow in pixels."""

    correlation: float
    covisible: float
    flow: tuple[float, float, float]


def covisible(first: Camera, depth: Floats, second: Camera, other: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Where the second camera sees the pixels of the first.

    Args:
        first: the camera of `depth`.
        depth: metres (H, W) along the optical axis, 0 for nothing.
        second: the camera of `other`.
        other: metres (H, W) of the second camera.

    Returns:
        x and y in pixels of the second view, float32 (H, W) each, and whether both views see the point, bool (H, W).

    """
    points = first.rays().reshape(*depth.shape, 3) * depth[..., None] + first.pose[:3, 3]
    local = (points - second.pose[:3, 3]) @ second.pose[:3, :3]
    z = np.maximum(local[..., 2], 1e-3)
    x = local[..., 0] / z * second.focal + (second.width - 1) / 2
    y = local[..., 1] / z * second.focal + (second.height - 1) / 2
    column, row = np.rint(x), np.rint(y)
    inside = (depth > 0) & (local[..., 2] > 0.05) & (column >= 0) & (column < second.width) & (row >= 0) & (row < second.height)
    found = other[np.where(inside, row, 0).astype(int), np.where(inside, column, 0).astype(int)]
    return x.astype(np.float32), y.astype(np.float32), inside & (np.abs(found - z) < AGREEMENT * z)


def check_scene(name: str, views: list[View]) -> Agreement:
    """Warp the first view of each cluster into the others.

    Raises:
        RenderError: the median correlation is below LEAST, or hardly a pixel is seen twice. The depth has another unit then, or the
            poses are of another frame.

    """
    correlations, shares, flows = [], [], []
    for _, group in groupby(views, key=lambda view: view.cluster):
        first, *others = group
        for second in others:
            x, y, seen = covisible(first.camera, first.depth / 1000.0, second.camera, second.depth / 1000.0)
            shares.append(float(seen.mean()))
            if seen.sum() < 100:
                continue
            warped = cv2.remap(second.image, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
            correlations.append(float(np.corrcoef(first.image[seen], warped[seen])[0, 1]))
            rows, columns = np.nonzero(seen)
            flows.append(np.hypot(x[seen] - columns, y[seen] - rows)[::50])
    share = float(np.median(shares)) if shares else 0.0
    correlation = float(np.median(correlations)) if correlations else 0.0
    if share < SEEN or not correlation >= LEAST:
        raise RenderError(f'{name}: views warped by depth and pose have correlation {correlation:.2f} (at least {LEAST} is needed) '
                          f'and share {share:.0%} of their pixels (at least {SEEN:.0%}). Give depth in millimetres along the '
                          'optical axis, and poses world-from-camera of the optical frame in metres.')
    low, median, high = np.percentile(np.concatenate(flows), [5, 50, 95])
    return Agreement(correlation, share, (float(low), float(median), float(high)))
