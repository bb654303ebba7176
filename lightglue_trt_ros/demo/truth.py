"""Where the matched points really went, as far as a recording knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..evaluation.twoview import epipolar_errors, fundamental_from_poses
from ..features import FrameMatches
from ..recordings.poses import Float64, Trajectory
from .flight import FlightFrame, transfer


class NoTruth:
    """A recording without ground truth."""

    kind = 'no ground truth in the recording'

    def errors(self, matches: FrameMatches) -> Float64:
        """(M,) pixels from the truth, NaN where it does not say."""
        return np.full(len(matches), np.nan)


class FlightTruth(NoTruth):
    """Depth and poses of a rendered flight: how far a point is from where it really went."""

    kind = 'distance to the true position'

    def __init__(self, frames: Sequence[FlightFrame], camera: Float64) -> None:
        self._frames, self._camera = {frame.stamp_ns: frame for frame in frames}, camera

    def errors(self, matches: FrameMatches) -> Float64:
        first, second = (_at(self._frames, stamp) for stamp in (matches.reference_stamp, matches.stamp))
        there, visible = transfer(matches.reference_keypoints, first.depth, first.pose, second.pose, self._camera)
        return np.where(visible, np.linalg.norm(there - matches.keypoints, axis=1), np.nan)


class PoseTruth(NoTruth):
    """Recorded poses: how far a point is from its true epipolar line."""

    kind = 'distance to the true epipolar line'

    def __init__(self, trajectory: Trajectory, camera: Float64) -> None:
        self._poses, self._camera = dict(zip(trajectory.stamps_ns.tolist(), trajectory.poses, strict=True)), camera

    def errors(self, matches: FrameMatches) -> Float64:
        first, second = (_at(self._poses, stamp) for stamp in (matches.reference_stamp, matches.stamp))
        fundamental = fundamental_from_poses(first, second, self._camera, self._camera)
        return np.asarray(epipolar_errors(matches.reference_keypoints, matches.keypoints, fundamental))


def _at(by_stamp: dict[int, Any], stamp: float) -> Any:
    """The entry nearest to `stamp` seconds."""
    return by_stamp[min(by_stamp, key=lambda key: abs(key * 1e-9 - stamp))]
