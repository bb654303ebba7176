"""Stereo rigs and pairs of images with known truth."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
from support.networks import photo

from lightglue_trt_ros.core.cameras import Intrinsics, StereoRig, intrinsics_of

HEIGHT, WIDTH = 192, 256
FOCAL, DISPARITY = 220.0, 7
BASELINE = 0.25
K = np.array([[FOCAL, 0, (WIDTH - 1) / 2], [0, FOCAL, (HEIGHT - 1) / 2], [0, 0, 1]])


def camera_info(k: np.ndarray = K, d: Sequence[float] = (), r: np.ndarray | None = None, shift_m: float = 0.0,
                size: tuple[int, int] = (HEIGHT, WIDTH), model: str = 'plumb_bob') -> SimpleNamespace:
    """What has the fields of a CameraInfo."""
    p = np.hstack([k, [[-k[0, 0] * shift_m], [0], [0]]])
    return SimpleNamespace(width=size[1], height=size[0], distortion_model=model, d=list(d), k=k.ravel(), p=p.ravel(),
                           r=(np.eye(3) if r is None else r).ravel())


def camera(**given: Any) -> Intrinsics:
    return intrinsics_of(camera_info(**given), '/camera/image_raw')


def plain_rig(baseline_m: float = BASELINE, size: tuple[int, int] = (HEIGHT, WIDTH)) -> StereoRig:
    """For images of `size` (height, width)."""
    return StereoRig(camera(size=size), camera(size=size, shift_m=baseline_m))


def wall_pairs(count: int, step: int = 3) -> list[tuple[np.ndarray, np.ndarray]]:
    """Left and right views of a wall that goes by: every point `step` pixels to the left a frame, DISPARITY across."""
    wall = photo('coffee', HEIGHT, WIDTH + 160)
    return [(wall[:, x:x + WIDTH], wall[:, x + DISPARITY:x + DISPARITY + WIDTH]) for x in range(0, count * step, step)]


def turned(image: np.ndarray, rotation: np.ndarray) -> np.ndarray:
    """What a camera turned by `rotation` (3, 3), its axes from the old ones, sees of the same."""
    return cv2.warpPerspective(image, K @ rotation @ np.linalg.inv(K), (WIDTH, HEIGHT), flags=cv2.INTER_CUBIC,
                               borderMode=cv2.BORDER_REFLECT)
