"""~/feature and ~/restart: tracks as the estimators of VINS-Mono and VINS-Fusion read them (Qin, Li and Shen, T-RO 2018)."""

from __future__ import annotations

import array
import itertools
import math
from typing import Any, NamedTuple

import numpy as np
from geometry_msgs.msg import Point32
from numpy.typing import NDArray
from rclpy.lifecycle import LifecycleNode
from sensor_msgs.msg import ChannelFloat32, PointCloud
from std_msgs.msg import Bool

from ...core.cameras import Intrinsics, normalised
from ...core.geometry import Size, size_of
from ...core.types import Float32, Float64, FrameMatches
from ..camera_info import CameraListener, camera_topic
from ..parameters import NodeConfig
from ..qos import OVERRIDABLE
from .pipeline import Input

LARGEST_ID = 2**24  # beyond it, float32 no longer tells neighbours apart
Int64 = NDArray[np.int64]


class VinsTopics:
    """Publishes every frame's tracks once the camera is known."""

    def __init__(self, node: LifecycleNode, settings: NodeConfig, camera: str, calibration: CameraListener) -> None:
        self._node, self._channels, self._calibration = node, settings.vins_channels, calibration
        feature, restart = (camera_topic(camera, topic) for topic in ('~/feature', '~/restart'))
        self._feature: Any = node.create_lifecycle_publisher(PointCloud, feature, 10, qos_overriding_options=OVERRIDABLE)
        self._restart: Any = node.create_lifecycle_publisher(Bool, restart, 10, qos_overriding_options=OVERRIDABLE)
        self._tracks = VinsTracks(settings.max_tracks, settings.cameras.index(camera), len(settings.cameras))
        self._published = False

    def close(self) -> None:
        for publisher in (self._feature, self._restart):
            self._node.destroy_lifecycle_publisher(publisher)

    def publish(self, frame: Input, matches: FrameMatches) -> None:
        """From the pipeline's thread."""
        camera = frame.camera or self._calibration.calibration(size_of(frame.image), frame.source.header.frame_id)
        if camera is None:
            return
        right = None if frame.right is None or self._channels == 5 else frame.right.rig.right  # VINS-Mono knows no second camera
        tracks = self._tracks.update(matches, camera, right)
        message = PointCloud(header=frame.source.header)
        message.points = [Point32(x=x, y=y, z=1.0) for x, y in tracks.points.tolist()]
        message.channels = [ChannelFloat32(name=name, values=array.array('f', values.tobytes()))
                            for name, values in channels(tracks, self._channels).items()]
        self._feature.publish(message)
        self._published = True

    def begin(self) -> None:
        """The node is active; where it was so before, the tracks of that time have ended."""
        if self._published:
            self.restart()

    def restart(self) -> None:
        """End the estimator's window: the next tracks do not continue the earlier ones."""
        self._restart.publish(Bool(data=True))


class VinsPoints(NamedTuple):
    """The tracks of one message, M rows: points of the camera, then points of the right camera with the same ids."""

    cameras: Int64  # (M,) 0, and 1 for the right camera of a pair: each estimator has cameras of its own
    ids: Int64  # (M,) unique over all cameras: the camera's own count, times the number of cameras, plus the camera
    points: Float64  # (M, 2) on the plane z = 1, undistorted
    pixels: Float32  # (M, 2) of the image as it was received
    velocities: Float64  # (M, 2) of `points`, per second


class _Observed(NamedTuple):
    """A track in the last message."""

    number: int
    point: Float64  # (2,) on the plane z = 1
    right: Float64  # (2,) in the right camera, NaN where it was not observed


class VinsTracks:
    """Chooses, numbers and measures the tracks of one camera, frame by frame.

    An estimator takes the observations of an id for consecutive. So an id is kept from one message to the next, and never returns
    after a message without it. The matcher's own ids may return: a keyframe finds points again after frames without them.
    """

    def __init__(self, max_tracks: int, camera: int = 0, cameras: int = 1) -> None:
        """`camera` is counted from 0, of `cameras`."""
        self.max_tracks, self._camera, self._cameras = max_tracks, camera, cameras
        self._numbers = itertools.count(1)  # of new tracks
        self._last: dict[int, _Observed] = {}  # by the matcher's track ids
        self._stamp = math.nan  # of the last message

    def update(self, matches: FrameMatches, intrinsics: Intrinsics, right: Intrinsics | None = None) -> VinsPoints:
        """At most `max_tracks` of a frame's matches, and with the `right` camera their points there.

        Points that the camera's model cannot undistort are left out. Velocities are since the last message where the track was in
        it, as the estimators' own tracker has it, else since the reference. In the right image, which has no reference, they are 0
        then, as in that tracker.
        """
        kept = np.array([track in self._last for track in matches.track_ids.tolist()], np.bool_)
        rows = bucketed(matches.keypoints, kept, matches.track_lengths, matches.scores, (intrinsics.height, intrinsics.width),
                        self.max_tracks)
        ids = matches.track_ids[rows].tolist()
        points, before = normalised(matches.keypoints[rows], intrinsics), normalised(matches.reference_keypoints[rows], intrinsics)
        elapsed = np.full((len(rows), 1), matches.stamp - matches.reference_stamp)
        right_points, right_before = np.full((2, len(rows), 2), np.nan)
        for index in np.flatnonzero(kept[rows]).tolist():
            _, before[index], right_before[index] = self._last[ids[index]]
            elapsed[index] = matches.stamp - self._stamp
        velocities = (points - before) / elapsed
        good = np.flatnonzero(np.isfinite(velocities).all(axis=1))
        if right is not None and matches.right_keypoints is not None:
            right_points = normalised(matches.right_keypoints[rows], right)
        self._last = {ids[index]: _Observed(self._last[ids[index]].number if ids[index] in self._last else next(self._numbers),
                                            points[index], right_points[index]) for index in good.tolist()}
        numbers = np.array([observed.number for observed in self._last.values()], np.int64) % (LARGEST_ID // self._cameras)
        numbers = numbers * self._cameras + self._camera
        camera = np.zeros(len(good), np.int64)
        tracks = VinsPoints(camera, numbers, points[good], matches.keypoints[rows[good]], velocities[good])
        in_right = np.isfinite(right_points[good]).all(axis=1)
        if matches.right_keypoints is not None and in_right.any():
            chosen = good[in_right]
            velocities = np.nan_to_num((right_points - right_before)[chosen] / (matches.stamp - self._stamp))
            right_tracks = VinsPoints(camera[in_right] + 1, numbers[in_right], right_points[chosen],
                                      matches.right_keypoints[rows[chosen]], velocities)
            tracks = VinsPoints(*(np.concatenate([mine, theirs]) for mine, theirs in zip(tracks, right_tracks, strict=True)))
        self._stamp = matches.stamp
        return tracks


def bucketed(pixels: Float32, kept: NDArray[np.bool_], lengths: NDArray[np.uint32], scores: Float32, size: Size,
             count: int) -> Int64:
    """At most `count` rows of `pixels` (M, 2) in an image of `size`, bucketed by a grid of about `count` square cells.

    In a cell, rows `kept` (M,) come first, then long tracks, then high scores. Each cell's best row precedes every second one.
    """
    columns, rows = (np.asarray(pixels, np.float64) / math.sqrt(size[0] * size[1] / count)).astype(np.int64).T
    cells = rows * (size[0] + size[1] + 1) + columns
    best_first = np.lexsort((-scores, -lengths.astype(np.int64), ~kept))
    by_cell = np.argsort(cells[best_first], kind='stable')
    ordered = cells[best_first][by_cell]
    rank = np.empty(len(ordered), np.int64)  # within the cell
    rank[by_cell] = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)
    return np.asarray(best_first[np.argsort(rank, kind='stable')[:count]], np.int64)


def channels(tracks: VinsPoints, count: int) -> dict[str, Float32]:
    """The channels of the message by name, each (M,) float32: five as VINS-Mono reads them, nine as VINS-Fusion.

    VINS-Fusion reads a point's ground truth position from the last three: zeros. It asserts that camera 0 comes first in an id, and
    takes camera 1 for the second observation of a stereo pair.
    """
    (u, v), (vx, vy) = tracks.pixels.T, tracks.velocities.T
    named = {'id': tracks.ids, 'u': u, 'v': v, 'vx': vx, 'vy': vy}
    if count == 9:
        named = {'id': tracks.ids, 'camera': tracks.cameras, **named, **dict.fromkeys(('gx', 'gy', 'gz'), np.zeros(len(u)))}
    return {name: np.asarray(values, np.float32) for name, values in named.items()}
