"""The quick way: OpenCV's Lucas-Kanade (IJCAI 1981), a patch that is only shifted, after one similarity for the whole view."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np

from ..features import Float32, UInt8
from . import LIMIT_PX

WINDOW_PX = 13  # side of the patch
UPRIGHT = 0.03  # a turn by less (radians), or a change of scale, is left to the patches
_STOP = (cv2.TERM_CRITERIA_COUNT + cv2.TERM_CRITERIA_EPS, 30, 0.01)


def lucas_kanade(reference: UInt8, current: UInt8, reference_points: Float32, current_points: Float32) -> Float32:
    """As the package says. Where the view has turned or come closer, patches are compared after the similarity that fits all."""
    patches, there = _aligned(reference, reference_points, current_points)
    start = np.ascontiguousarray(current_points, np.float32).reshape(-1, 1, 2)
    flow: Any = cv2.calcOpticalFlowPyrLK  # the type stubs know no initial flow
    moved, found, _ = flow(patches, current, there.reshape(-1, 1, 2), start.copy(), winSize=(WINDOW_PX, WINDOW_PX), maxLevel=0,
                           criteria=_STOP, flags=cv2.OPTFLOW_USE_INITIAL_FLOW)
    moved = moved.reshape(-1, 2)
    kept = (found.ravel() == 1) & (np.linalg.norm(moved - current_points, axis=1) < LIMIT_PX)
    return np.where(kept[:, None], moved, current_points).astype(np.float32)


def _aligned(image: UInt8, points: Float32, target: Float32) -> tuple[UInt8, Float32]:
    """The image and its points under the similarity that takes them nearest to `target`; as they are where that hardly turns."""
    middle, goal = points.mean(axis=0), target.mean(axis=0)
    arms, wanted = (points - middle) @ np.array([1, 1j]), (target - goal) @ np.array([1, 1j])
    turn = np.vdot(arms, wanted) / max(float(np.vdot(arms, arms).real), 1e-9)  # rotation and scale as one complex number
    if abs(turn - 1) < UPRIGHT or abs(turn) < 0.1:
        return image, np.ascontiguousarray(points, np.float32)
    linear = np.array([[turn.real, -turn.imag], [turn.imag, turn.real]])
    similarity = np.column_stack([linear, goal - linear @ middle])
    warped = cv2.warpAffine(image, similarity, image.shape[::-1], flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(warped, np.uint8), np.ascontiguousarray(points @ linear.T + similarity[:, 2], np.float32)
