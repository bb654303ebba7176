"""How good the depths of points are, against those of the frame before moved by the true motion; the metric odometry by them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from lightglue_trt_ros.core.cameras import Intrinsics, distortion_model, same_view
from lightglue_trt_ros.core.depth import DepthImage, depth_pixels, locate
from lightglue_trt_ros.core.types import Float64, FrameMatches
from lightglue_trt_ros.datasets.bag import DEPTH_SKEW_NS, with_nearest
from lightglue_trt_ros.datasets.sequence import Frame, Recording, readable_frames
from lightglue_trt_ros.odometry.sliding_window import MatchOdometry, Quality
from lightglue_trt_ros.odometry.two_view import relative_pose
from lightglue_trt_ros.utils.errors import BagError, FrameError

from ..images.degradation import degraded_depth
from .trajectory import kitti_drift

ERROR_EDGES = np.geomspace(1e-6, 100, 3000)  # bins of relative errors


class ShownDepth(NamedTuple):
    """The depth image of a frame."""

    given: DepthImage  # to our matchers
    recorded: DepthImage  # the same, where it is not degraded; without noise where it is: it is the truth then


def check_registered(depth: Recording, images: Recording, camera: Intrinsics) -> None:
    """Raise BagError where the depth images have a calibration of their own that is not that of the images.

    The recorded calibration of the images counts, and `camera` where there is none.
    """
    own, recorded = (_recorded_camera(each) for each in (depth, images))
    expected = recorded or camera
    if own is not None and not same_view(own, expected):
        raise BagError(f'{depth.image_topic} is not registered to {images.image_topic}: its CameraInfo is another one, '
                       f'{own}, the images have {expected}. Let the driver register depth to these images '
                       '(align_depth, depth_registration), or evaluate the rectified images with rectified depth')


def _recorded_camera(recording: Recording) -> Intrinsics | None:
    """None where it cannot be used."""
    try:
        camera = recording.intrinsics
        if camera is not None:
            distortion_model(camera)
        return camera
    except BagError:
        return None


class DepthImages:
    """The depth images of a recording, as its frames need them. `on_note` gets lines about missing ones."""

    def __init__(self, recording: Recording, camera: Intrinsics, degradation: str, on_note: Callable[[str], None]) -> None:
        """`camera` is that of the images, which the depth images are registered to; `degradation` may be empty."""
        self._recording, self.camera, self._degradation, self._on_note = recording, camera, degradation, on_note

    def of_frames(self, frames: Iterable[Frame]) -> Iterator[tuple[Frame, ShownDepth | None]]:
        """Every frame with the depth image nearest in time; None where there is none of its moment, or of its size."""
        missing, reason, count = 0, '', 0
        for frame, nearest in with_nearest(iter(frames), readable_frames(self._recording, self._on_note)):
            depth, count = None, count + 1
            try:
                if nearest is not None:
                    depth = self._load(nearest)
            except (BagError, FrameError) as error:
                reason = reason or f'; the first that cannot be used: {error}'
            missing += depth is None
            yield frame, depth
        if missing:
            self._on_note(f'depth: {missing} of {count} frames have no depth image within {DEPTH_SKEW_NS / 1e9:g} s and '
                          f'half the time between frames{reason}')

    def _load(self, frame: Frame) -> ShownDepth:
        """Raises BagError, FrameError."""
        message, camera = frame.load(), self.camera
        pixels, unit_m = depth_pixels(message, per_metre=self._recording.depth_scale)
        height, width = pixels.shape
        if (height, width) != (camera.height, camera.width):
            raise FrameError(f'it has {width}x{height} pixels, the images {camera.width}x{camera.height}: register it to them')
        recorded = DepthImage(pixels, unit_m, camera)
        if not self._degradation:
            return ShownDepth(recorded, recorded)
        return ShownDepth(degraded_depth(recorded, self._degradation), recorded._replace(noise=0.0))


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

    def add(self, matches: FrameMatches | None, reference: DepthImage | None, true_before: Float64 | None,
            true: Float64 | None) -> None:
        """A frame: its matches, None without a reference; the reference's depth image; true poses (4, 4) of both."""
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
        if reference is None or true_before is None or true is None:
            return
        located = locate(reference, matches.reference_keypoints, np.zeros_like(matches.covariances))
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
