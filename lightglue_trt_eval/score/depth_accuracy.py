"""How good the depths of points are, against those of the frame before moved by the true motion; the metric odometry by them."""

from __future__ import annotations

import numpy as np

from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.core.depth import Positions
from lightglue_trt_ros.core.types import Float64, FrameMatches
from lightglue_trt_ros.odometry.sliding_window import MatchOdometry, Quality
from lightglue_trt_ros.odometry.two_view import relative_pose

from .trajectory import kitti_drift

ERROR_EDGES = np.geomspace(1e-6, 100, 3000)  # bins of relative errors


class DepthScore:
    """The figures over consecutive frames, as they come. Of points nothing is kept."""

    def __init__(self, camera: Intrinsics) -> None:
        self._odometry = MatchOdometry(camera, depth=True)
        self._poses: list[Float64] = []  # (4, 4) world from camera, estimated and true, NaN where unknown
        self._true: list[Float64] = []
        self._shares: list[float] = []  # of points with a depth, by frame
        self._lost = 0  # frames that the odometry has no pose of
        self._errors = np.zeros(len(ERROR_EDGES) - 1, np.int64)  # histogram of relative errors
        self._within = np.zeros(2, np.int64)  # errors within one and two standard deviations

    def add(self, matches: FrameMatches | None, located: Positions | None, true_before: Float64 | None,
            true: Float64 | None) -> None:
        """A frame: its matches, None without a reference; where its reference's depth image has them; true poses (4, 4) of both."""
        self._true.append(np.full((4, 4), np.nan) if true is None else true)
        if matches is None:
            self._poses.append(self._poses[-1] if self._poses else np.eye(4))
            return
        matches = matches if matches.xyz is not None else matches.without_depth()
        fix = self._odometry.add(matches)
        self._poses.append(fix.pose)
        self._lost += fix.quality is not Quality.TRACKING
        assert matches.xyz is not None
        assert matches.sigma_z is not None
        z = matches.xyz[:, 2].astype(np.float64)
        self._shares.append(float(np.isfinite(z).mean()) if len(z) else 0.0)
        if located is None or true_before is None or true is None:
            return
        rotation, translation = relative_pose(true_before, true)
        along = located.xyz @ rotation[2]
        predicted = along + translation[2]
        both = np.isfinite(z) & (predicted > 0)  # false for NaN
        errors = np.abs(z - predicted)[both]
        predicted_sigma = (located.sigma_z * np.abs(along) / located.xyz[:, 2])[both]
        deviations = errors / np.hypot(matches.sigma_z[both], predicted_sigma)
        self._errors += np.histogram(np.clip(errors / predicted[both], ERROR_EDGES[0], ERROR_EDGES[-1]), ERROR_EDGES)[0]
        self._within += [np.count_nonzero(deviations < 1), np.count_nonzero(deviations < 2)]

    def figures(self) -> dict[str, float]:
        """By the names of METRICS; what cannot be known is missing."""
        known: dict[str, float] = {}
        if self._shares:
            known |= {'depth_points': 100 * float(np.mean(self._shares)), 'depth_frames_lost': float(self._lost)}
        if count := int(self._errors.sum()):
            middle, high = np.interp([0.5, 0.9], np.concatenate([[0], np.cumsum(self._errors)]) / count, ERROR_EDGES).tolist()
            one, two = (100 * self._within / count).tolist()
            known |= {'depth_error_p50': 100 * middle, 'depth_error_p90': 100 * high, 'depth_within_1_sigma': one,
                      'depth_within_2_sigma': two}
        drift = kitti_drift(np.stack(self._poses), np.stack(self._true)) if self._poses else None
        if drift is not None:
            known |= {'depth_drift_percent': drift.translation_percent, 'depth_drift_deg_per_m': drift.rotation_deg_per_m}
        return known
