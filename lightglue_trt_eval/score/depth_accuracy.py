"""How good the depths of points are, against those of the frame before moved by the true motion; the metric odometry by them."""

from __future__ import annotations

import math

import numpy as np

from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.core.depth import Positions
from lightglue_trt_ros.core.geometry import epipolar_distances
from lightglue_trt_ros.core.types import Float64, FrameMatches
from lightglue_trt_ros.odometry.sliding_window import MatchOdometry, Quality
from lightglue_trt_ros.odometry.two_view import essential_from_poses, relative_pose

from ..predict.scene import MIN_BASELINE_M
from .pair_score import FEW
from .trajectory import MetricOdometryScore

ERROR_EDGES = np.geomspace(1e-6, 100, 3000)  # bins of relative errors
ANOTHER_UNIT = 3.0  # ratio of median depths of the same points in two consecutive frames: no camera comes so near in one
FITS, LEAST, NEAR_PX = 0.8, 500, 3.0  # share within two deviations, 0.95 if right; depths that tell it; from true epipolar lines
SCALED, OFF_SCALE, SPREAD = 10, 0.08, 0.25  # steps that tell a scale, how far it is off, and steps from it in the median


class DepthScore(MetricOdometryScore):
    """The figures over consecutive frames, as they come. Of points nothing is kept."""

    def __init__(self, camera: Intrinsics) -> None:
        super().__init__('depth', MatchOdometry(camera, depth=True))
        self._lost = 0  # frames that the odometry has no pose of
        self._errors = np.zeros(len(ERROR_EDGES) - 1, np.int64)  # histogram of relative errors
        self._within = np.zeros(2, np.int64)  # errors within one and two standard deviations
        self._focal_px, self._fitting = float(camera.k[0, 0]), np.zeros(2, np.int64)  # of matches near true lines: those, and all
        self._changes: list[tuple[int, float]] = []  # frames, and how many times as far as in the frame before their points are

    def add(self, matches: FrameMatches | None, located: Positions | None, true_before: Float64 | None,
            true: Float64 | None) -> None:
        """A frame: its matches, None without a reference; where its reference's depth image has them; true poses (4, 4) of both."""
        if matches is not None and matches.xyz is None:
            matches = matches.without_depth()
        self._lost += self._follow(matches, true) is not Quality.TRACKING
        if matches is None or matches.xyz is None or matches.sigma_z is None:
            return
        z = matches.xyz[:, 2].astype(np.float64)
        self._share(np.isfinite(z))
        if located is None:
            return
        times = z / located.xyz[:, 2]
        known = np.isfinite(times)
        if known.sum() >= FEW:
            self._changes.append((len(self._true) - 1, float(np.median(times[known]))))
        if true_before is None or true is None:
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
        first, second = (xyz[both, :2] / xyz[both, 2:] for xyz in (located.xyz, matches.xyz))
        off = np.abs(epipolar_distances(first, second, essential_from_poses(true_before, true))[0])  # NaN: cameras at one place
        near = ~(off * self._focal_px > NEAR_PX)  # wrong matches say nothing of a depth
        self._fitting += [np.count_nonzero(near & (deviations < 2)), np.count_nonzero(near)]

    @property
    def _too_long(self) -> float | None:
        """How many times as long as the true ones the steps are; None where they are right, few, or of no one scale."""
        poses, true = (np.stack(each)[:, :3, 3] if each else np.zeros((0, 3)) for each in (self._poses, self._true))
        lengths, true_lengths = (np.linalg.norm(np.diff(each, axis=0), axis=1) for each in (poses, true))
        known = true_lengths > MIN_BASELINE_M  # false for NaN
        ratios = lengths[known] / true_lengths[known]
        if len(ratios) < SCALED or (ratio := float(np.median(ratios))) <= 0:
            return None
        spread = float(np.median(np.abs(ratios / ratio - 1)))
        return ratio if spread < SPREAD and abs(math.log(ratio)) > max(OFF_SCALE, spread) else None

    @property
    def advice(self) -> str:
        """Advice about the depth from the figures; empty: nothing."""
        if jumps := [each for each in self._changes if not 1 / ANOTHER_UNIT < each[1] < ANOTHER_UNIT]:
            (frame, times), count = jumps[0], len(self._changes)
            return (f'in {len(jumps)} of {count} frames, first in frame {frame}, points are {times:.3g} times as far away as in '
                    'the frame before: depth images have different units; write all in one')
        ratio = self._too_long
        if ratio is None:
            fitting, count = self._fitting.tolist()
            return '' if count < LEAST or fitting >= FITS * count else (
                f'{100 * fitting / count:.0f} % of the depths are within two standard deviations of those of the frame before '
                'after the true motion, where 95 are right: check that depth images are registered to the images and of their '
                'moment, that unknown pixels are 0 or NaN, the noise of the camera, and the ground truth')
        return (f'the steps by depth are {ratio:.3g} times as long as the true ones: check the unit of the depth (--depth-scale), '
                'that it is registered to the images, and the unit of the ground truth')

    def figures(self) -> dict[str, float]:
        """By the names of METRICS; what cannot be known is missing."""
        known = super().figures()
        if self._shares:
            known['depth_frames_lost'] = float(self._lost)
        if count := int(self._errors.sum()):
            middle, high = np.interp([0.5, 0.9], np.concatenate([[0], np.cumsum(self._errors)]) / count, ERROR_EDGES).tolist()
            one, two = (100 * self._within / count).tolist()
            known |= {'depth_error_p50': 100 * middle, 'depth_error_p90': 100 * high, 'depth_within_1_sigma': one,
                      'depth_within_2_sigma': two}
        return known
