"""Exact tracks: a camera among points that it sees, and what a matcher without errors would say of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation
from support.matches import frame_matches

from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.core.types import FrameMatches

FOCAL, SIZE = 500.0, (640, 480)
BASELINE = 0.5
CAMERA = Intrinsics(640, 480, np.array([[FOCAL, 0, 320], [0, FOCAL, 240], [0, 0, 1]]), 'plumb_bob', np.zeros(5))


class Step(NamedTuple):
    """A frame and the one before."""

    stamp: float
    pose: np.ndarray  # (4, 4) world from camera
    ids: np.ndarray  # (M,)
    points: np.ndarray  # (M, 2) on the plane z = 1
    reference_points: np.ndarray
    right_x: np.ndarray  # (M,) in a right camera at BASELINE


def poses_of(count: int, turn_deg: float = 1.5, speed: float = 0.25) -> np.ndarray:
    """(N, 4, 4): a curve forward and to the right; the first is where the world begins."""
    poses = [np.eye(4)]
    for number in range(count - 1):
        step = np.eye(4)
        step[:3, :3] = Rotation.from_rotvec([0.2 * np.sin(number), turn_deg, 0.3], degrees=True).as_matrix()
        step[:3, 3] = 0.4 * speed, 0.02, speed
        poses.append(poses[-1] @ step)
    return np.stack(poses)


def steps(poses: np.ndarray, *, seed: int = 1, noise_px: float = 0.0, wrong: float = 0.0, points: int = 1500,
          rate_hz: float = 10.0) -> Iterator[Step]:
    """Consecutive frames of a camera that goes along `poses`; a share of `wrong` matches point anywhere."""
    rng = np.random.default_rng(seed)
    middle = poses[:, :3, 3].mean(axis=0)
    world = middle + rng.uniform([-12, -3, -12], [12, 3, 12], (points, 3))
    before = None
    for number, pose in enumerate(poses):
        there = (world - pose[:3, 3]) @ pose[:3, :3]
        with np.errstate(divide='ignore', invalid='ignore'):
            flat = there[:, :2] / there[:, 2:]
        visible = (there[:, 2] > 1.0) & (np.abs(flat) < np.array(SIZE) / 2 / FOCAL).all(axis=1)
        flat = flat + rng.normal(0, noise_px / FOCAL, flat.shape)
        if before is not None:
            both = np.flatnonzero(visible & before[0])
            now = flat[both].copy()
            bad = rng.random(len(both)) < wrong
            now[bad] = rng.uniform(-0.4, 0.4, (bad.sum(), 2))
            right = now[:, 0] - BASELINE / there[both, 2] + rng.normal(0, noise_px / FOCAL, len(both))
            yield Step(1.0 + number / rate_hz, pose, both, now, before[1][both], right)
        before = visible, flat


def with_depth(step: Step, noise: float, rng: np.random.Generator) -> FrameMatches:
    """The tracks of a camera with intrinsics K, whose depth has the deviation `noise` z^2; a tenth of it is unknown."""
    count, z = len(step.ids), BASELINE / (step.points[:, 0] - step.right_x)
    z = z + rng.normal(0, noise * z * z)
    z[rng.random(count) < 0.1] = np.nan
    pixels, before = (points * FOCAL + [320, 240] for points in (step.points, step.reference_points))
    xyz = np.column_stack([step.points * z[:, None], z]).astype(np.float32)
    return frame_matches(pixels, before, step.stamp, track_ids=step.ids.astype(np.uint32),
                         covariances=np.zeros((count, 2, 2), np.float32), xyz=xyz, sigma_z=(noise * z * z).astype(np.float32))
