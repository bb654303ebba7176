"""The smallest visual odometry: relative poses of consecutive frames, one after the other. No map, no bundle adjustment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from ..odometry.two_view import RelativePose
from .odometry_spreads import odometry_spreads
from .results import OdometryResult
from .trajectory import align_sim3, ate, kitti_drift, rpe

Scale = Literal['truth', 'unit']


class Odometry:
    """Chains two-view poses into a trajectory that begins at the identity.

    Two views know no scale: each step is as long as the true one (`truth`), or all are 1 long (`unit`). A pair without a pose
    repeats the motion before it (constant velocity), as tracking does that waits for better images; where the truth of a step is
    missing, the last known length stands in.
    """

    def __init__(self, scale: Scale) -> None:
        self.scale: Scale = scale
        self._poses = [np.eye(4)]
        self._turn, self._direction, self._length = np.eye(3), np.zeros(3), 0.0

    def __len__(self) -> int:
        return len(self._poses)

    def add(self, estimate: RelativePose | None, true_step_m: float | None = None) -> None:
        """Go on to the next frame by its pose relative to the last one, None where there is none.

        `true_step_m` is the true distance between the two cameras in metres, None or NaN where unknown; unit scale ignores it.
        """
        if self.scale == 'unit':
            self._length = 1.0
        elif true_step_m is not None and math.isfinite(true_step_m):
            self._length = float(true_step_m)
        if estimate is not None:  # the motion of camera 1 in camera 0's axes is the inverse of what takes points from 0 to 1
            self._turn, self._direction = estimate.rotation.T, -estimate.rotation.T @ estimate.translation
        step = np.eye(4)
        step[:3, :3], step[:3, 3] = self._turn, self._length * self._direction
        self._poses.append(self._poses[-1] @ step)

    def result(self, frames: Sequence[int], stamps: ArrayLike, true_poses: ArrayLike | None = None) -> OdometryResult:
        """The trajectory of N frames and its errors: `frames` and `stamps` (N,), `true_poses` (N, 4, 4) with NaN where unknown.

        N is one more than the pairs that were added. With truth: ATE after Sim(3) alignment, RPE per frame (of the trajectory as
        chained, which a frame's choice of axes leaves alone), and KITTI's drift where the path is long enough for it. In unit
        scale, translations in metres make no sense: the ATE, whose alignment finds the scale, and the rotations' errors remain.
        """
        poses, numbers, times = np.stack(self._poses), np.asarray(frames, np.int64), np.asarray(stamps, np.float64)
        truth = None if true_poses is None else np.asarray(true_poses, np.float64)
        alignment = None if truth is None else align_sim3(poses, truth)
        if truth is None or alignment is None:
            return OdometryResult(numbers, times, poses, None, self.scale)
        aligned = alignment.apply(poses)
        figures: dict[str, float | None] = {'ate_m': ate(aligned, truth)}
        metric = self.scale == 'truth'
        if (steps := rpe(poses, truth)) is not None:
            figures |= {'rpe_m': steps.translation_m if metric else None, 'rpe_deg': steps.rotation_deg}
        if (drift := kitti_drift(poses, truth)) is not None:
            figures |= {'drift_percent': drift.translation_percent if metric else None,
                        'drift_deg_per_m': drift.rotation_deg_per_m}
        return OdometryResult(numbers, times, aligned, truth, self.scale,
                              {name: value for name, value in figures.items() if value is not None},
                              () if drift is None else drift.segments_m, odometry_spreads(poses, truth, drift))
