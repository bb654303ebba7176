"""Trajectories for the tests, made up and real."""

from __future__ import annotations

import itertools

import cv2
import numpy as np

from lightglue_trt_ros.datasets.bag import open_recording
from lightglue_trt_ros.datasets.ground_truth import load_ground_truth


def pose(turn, position):
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = cv2.Rodrigues(np.asarray(turn, float))[0], position
    return matrix


def walk(count, seed=0, step=(0.3, 0.05, 1.0), wobble=0.05):
    """A winding path: every step turns and moves a little differently."""
    rng, poses = np.random.default_rng(seed), [pose([0.3, -0.2, 0.1], [5, -3, 2])]
    for _ in range(count - 1):
        poses.append(poses[-1] @ pose(rng.normal(0, wobble, 3), np.asarray(step) + rng.normal(0, 0.1, 3)))
    return np.stack(poses)


def disturbed(poses, seed=1, turn=0.004, shift=0.02):
    """The same steps, each a little wrong: what an odometry would give."""
    rng, found = np.random.default_rng(seed), [np.eye(4)]
    for first, second in itertools.pairwise(poses):
        found.append(found[-1] @ np.linalg.inv(first) @ second @ pose(rng.normal(0, turn, 3), rng.normal(0, shift, 3)))
    return np.stack(found)


def real_truth(folder):
    """Camera matrix, image size (width, height) and true poses of a recording beside the repository."""
    recording = open_recording(folder)
    camera = recording.intrinsics
    return camera.k, (camera.width, camera.height), load_ground_truth(recording).poses
