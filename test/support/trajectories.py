"""Trajectories for the tests, made up and real."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import ArrayLike

from lightglue_trt_ros.core.types import Float64
from lightglue_trt_ros.datasets.ground_truth import load_ground_truth
from lightglue_trt_ros.datasets.recordings import open_recording


def pose(turn: ArrayLike, position: ArrayLike) -> Float64:
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = cv2.Rodrigues(np.asarray(turn, float))[0], position
    return matrix


def walk(count: int, seed: int = 0, step: Sequence[float] = (0.3, 0.05, 1.0), wobble: float = 0.05) -> Float64:
    """A winding path: every step turns and moves a little differently."""
    rng, poses = np.random.default_rng(seed), [pose([0.3, -0.2, 0.1], [5, -3, 2])]
    for _ in range(count - 1):
        poses.append(poses[-1] @ pose(rng.normal(0, wobble, 3), np.asarray(step) + rng.normal(0, 0.1, 3)))
    return np.stack(poses)


def hand_held(count: int, hz: float = 10.0, late_s: float = 0.0) -> Float64:
    """Poses (N, 4, 4) of a camera in a hand, which rotates about all axes and goes to and fro."""
    times = np.arange(count) / hz - late_s
    turns = np.stack([0.4 * np.sin(1.7 * times), 0.6 * np.sin(1.1 * times + 1), 0.3 * np.sin(2.3 * times + 2)], axis=1)
    return np.stack([pose(turn, [np.sin(time), 0.3 * np.cos(2 * time), time / 2])
                     for turn, time in zip(turns, times, strict=True)])


def disturbed(poses: Float64, seed: int = 1, turn: float = 0.004, shift: float = 0.02) -> Float64:
    """The same steps, each a little wrong: what an odometry would give."""
    rng, found = np.random.default_rng(seed), [np.eye(4)]
    for first, second in itertools.pairwise(poses):
        found.append(found[-1] @ np.linalg.inv(first) @ second @ pose(rng.normal(0, turn, 3), rng.normal(0, shift, 3)))
    return np.stack(found)


def real_truth(folder: Path) -> tuple[Float64, tuple[int, int], Float64]:
    """Camera matrix, image size (width, height) and true poses of a recording beside the repository."""
    recording = open_recording(folder)
    camera, truth = recording.intrinsics, load_ground_truth(recording)
    assert camera is not None
    assert truth is not None
    return camera.k, (camera.width, camera.height), truth.poses
