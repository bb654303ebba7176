"""Where points of the rendered flight go, by its depth and poses."""

from __future__ import annotations

import numpy as np
from scipy.ndimage import map_coordinates

from lightglue_trt_eval.demo.flight import FlightFrame


def transferred(first: FlightFrame, second: FlightFrame, points: np.ndarray, intrinsics: np.ndarray) -> tuple[np.ndarray, ...]:
    """Where pixels of a frame, (N, 2), are in another one, and which are certainly visible there, (N,) bool.

    Inverse depths are linear in a plane, so this is exact but for points next to an edge.
    """
    rays = np.column_stack([points, np.ones(len(points))]) @ np.linalg.inv(intrinsics).T
    world = rays / _inverse_depths(first, points)[:, None] @ first.pose[:3, :3].T + first.pose[:3, 3]
    seen = (world - second.pose[:3, 3]) @ second.pose[:3, :3]
    moved = (seen / seen[:, 2:] @ intrinsics.T)[:, :2]
    return moved, np.abs(_inverse_depths(second, moved) * seen[:, 2] - 1) < 0.03


def _inverse_depths(frame: FlightFrame, points: np.ndarray) -> np.ndarray:
    """Of pixels, (N, 2); NaN outside of the image."""
    return np.asarray(map_coordinates(1 / frame.depth, points.T[::-1], order=1, cval=np.nan))
