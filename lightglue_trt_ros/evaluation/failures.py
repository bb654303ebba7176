"""Why a pair came out badly, in words: few matches, a camera that hardly moved, a plane's two poses."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np

from ..core.geometry import sampled_model
from ..core.types import Float64
from ..odometry.two_view import RelativePose, homography_errors, pose_error_deg, relative_pose
from .metrics import PairResult
from .motion_observability import MIN_STEP_PER_DEPTH

FEW = 50  # matches
SHORT_STEP = 2 * MIN_STEP_PER_DEPTH  # of the depth: where the direction is barely resolved
PLANE_PX, PLANE_SHARE = 1.0, 0.8  # so many of the matches near one homography: the scene is close to a plane
NEAR_DEG = 5.0  # of two poses that are the same


def causes(pair: PairResult, points: tuple[Float64, Float64], camera: Float64 | None, pose0: Float64 | None, pose1: Float64 | None,
           estimate: RelativePose | None) -> str:
    """What there is to say about a pair: undistorted points (M, 2), the camera (3, 3), true world-from-camera poses."""
    found = []
    if pair.matches < FEW:
        found.append('no matches' if not pair.matches else f'only {pair.matches} match{"es" * (pair.matches > 1)}')
    if pair.step_m is not None:
        depth = '' if pair.step_per_depth is None else f', {100 * pair.step_per_depth:.1f} % of the depth'
        small = pair.step_per_depth is not None and pair.step_per_depth < SHORT_STEP
        found.append(f'the camera {"hardly " * small}moved{":" * small} {_length(pair.step_m)}{depth}')
        if pair.translation_deg is None:
            found.append('too little for the truth to tell a direction, the turn alone is judged')
    if camera is not None and pose0 is not None and pose1 is not None:
        found += _plane(points, camera, relative_pose(pose0, pose1), estimate)
    return '; '.join(found)


def _length(metres: float) -> str:
    return f'{1e3 * metres:.0f} mm' if metres < 1 else f'{metres:.1f} m'


def _plane(points: tuple[Float64, Float64], camera: Float64, truth: tuple[Float64, Float64],
           estimate: RelativePose | None) -> list[str]:
    """A plane allows two poses (Faugeras and Lustman, 1988): is the estimate the other one?"""
    if estimate is None or len(points[0]) < 8:
        return []
    opencv: Any = cv2
    first, second = (np.ascontiguousarray(side) for side in points)
    homography = sampled_model(cv2.findHomography, first, second, cv2.USAC_MAGSAC, PLANE_PX)
    if homography is None:
        return []
    share = float(np.mean(homography_errors(first, second, homography) < PLANE_PX))
    if share < PLANE_SHARE:
        return []
    _, rotations, translations, _ = opencv.decomposeHomographyMat(homography, camera)
    poses = [(rotation, step.ravel()) for rotation, step in zip(rotations, translations, strict=True) if np.linalg.norm(step) > 0]

    def near(rotation: Float64, direction: Float64) -> set[int]:
        return {k for k, pose in enumerate(poses) if max(pose_error_deg(*pose, rotation, direction)) < NEAR_DEG}

    taken, true = near(estimate.rotation, estimate.translation), near(*truth)
    text = f'{100 * share:.0f} % of the matches lie on one plane'
    return [f'{text}, which has two poses: this is the other one' if taken and true and not taken & true else text]
