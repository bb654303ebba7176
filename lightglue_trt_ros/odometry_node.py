"""The reference consumer of ~/matches: Odometry, Path and TF of the left camera of a stereo pair, in metres, or of one camera."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import numpy as np
from geometry_msgs.msg import Point, Pose, PoseStamped, Quaternion, Transform, TransformStamped, Twist, Vector3
from nav_msgs.msg import Odometry as OdometryMessage
from nav_msgs.msg import Path
from rclpy.clock import Clock, ClockType
from rclpy.exceptions import InvalidParameterTypeException
from rclpy.node import Node
from rclpy.qos import HistoryPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header

from .camera_info import CameraListener
from .clouds import matches_from_cloud
from .errors import ConfigError, FrameError
from .features import FrameMatches
from .odometry.window import Quality, SlidingWindow
from .parameters import settings_given
from .recordings.camera import normalised
from .recordings.poses import Float64, quaternions_from_rotations
from .right_camera import RigListener

THROTTLE_S = 5.0  # one line of a kind in this time
PATH_POSES = 10_000  # the path's last ones
UPRIGHT = np.array([[0.0, 0, 1, 0], [-1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 0, 1]])  # from optical axes to x forward, y left, z up

try:
    from tf2_msgs.msg import TFMessage
except ImportError:  # no wheel has it, every installation of ROS does
    TFMessage = None


class _Seen(NamedTuple):
    """A frame's tracks on the plane z = 1, M rows."""

    window: SlidingWindow
    points: Float64  # (M, 2)
    reference_points: Float64  # (M, 2)
    right_x: Float64 | None  # (M,)
    axes: Float64  # (4, 4): from the camera's to those of the plane


class OdometryNode(Node):  # type: ignore[misc]
    """Publishes the camera's poses in the frame `odom_frame`, which stands where the camera was first, upright as it was."""

    def __init__(self, **node_options: Any) -> None:
        """Raises ConfigError for a parameter of another name or type."""
        super().__init__('odometry', automatically_declare_parameters_from_overrides=True, **node_options)
        settings_given(self, ('odom_frame', 'publish_tf'))
        try:
            self._frame = str(self.declare_parameter('odom_frame', 'odom').value)
            transforms = bool(self.declare_parameter('publish_tf', True).value)
        except InvalidParameterTypeException as error:
            raise ConfigError(str(error)) from error
        reliable = QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=10, reliability=ReliabilityPolicy.RELIABLE)
        self._odometry = self.create_publisher(OdometryMessage, '~/odometry', reliable)
        self._path = self.create_publisher(Path, '~/path', 1)
        self._transforms = self._transform_publisher() if transforms else None
        self._camera = CameraListener(self, '~/odometry')
        self._rig = RigListener(self, '~/odometry', self._camera)  # for clouds that have right points
        self._window: SlidingWindow | None = None
        self._quality: Quality | None = None
        self._poses: deque[PoseStamped] = deque(maxlen=PATH_POSES)
        self._last: tuple[float, Float64] | None = None
        self._drawn: PoseStamped | None = None
        # this timer also lets SIGTERM end the executor: of a clock that runs without /clock too
        self.create_timer(1.0, self._draw, clock=Clock(clock_type=ClockType.STEADY_TIME))
        clouds = self.create_subscription(PointCloud2, 'matcher/matches', self._on_matches, reliable)
        self.get_logger().info(f'listening to {clouds.topic_name}, publishing {self._odometry.topic_name}')

    def _transform_publisher(self) -> Any:
        if TFMessage is None:
            self.get_logger().warning('tf2_msgs is not installed: no TF is published')
            return None
        return self.create_publisher(TFMessage, '/tf', QoSProfile(depth=100))

    def _on_matches(self, cloud: PointCloud2) -> None:
        try:
            matches = matches_from_cloud(cloud)
        except FrameError as error:
            self.get_logger().error(f'cloud dropped, {error}', throttle_duration_sec=THROTTLE_S)
            return
        seen = self._seen(matches)
        if seen is None:
            return
        window, here, there, right, axes = seen
        known = np.isfinite(here).all(axis=1) & np.isfinite(there).all(axis=1)
        fix = window.add(matches.stamp, matches.track_ids[known], here[known], matches.reference_stamp, there[known],
                         None if right is None else right[known])
        self._tell(fix.quality, fix.points)
        if fix.quality is Quality.TRACKING:
            self._publish(cloud.header, fix.stamp, UPRIGHT @ axes.T @ fix.pose @ axes)

    def _seen(self, matches: FrameMatches) -> _Seen | None:
        """On the plane z = 1 of the camera, or of the stereo pair; None while these are not known, or nothing is seen."""
        if matches.right_keypoints is None:
            camera = self._camera.camera()
            if camera is None or not len(matches):
                return None
            return _Seen(self._begun(float(camera.k[0, 0]), None), normalised(matches.keypoints, camera),
                         normalised(matches.reference_keypoints, camera), None, np.eye(4))
        rig = self._rig.rig()
        if rig is None or not len(matches):
            return None
        axes = np.eye(4)
        axes[:3, :3] = rig.left.rectification
        return _Seen(self._begun(rig.focal_px, rig.baseline_m), rig.left_points(matches.keypoints),
                     rig.left_points(matches.reference_keypoints), rig.right_points(matches.right_keypoints)[:, 0], axes)

    def _begun(self, focal_px: float, baseline_m: float | None) -> SlidingWindow:
        """The window; another one where the clouds have become stereo, or are it no longer."""
        if self._window is None or self._window.metric != (baseline_m is not None):
            self._window, self._quality = SlidingWindow(focal_px, baseline_m), None
            self.get_logger().info(f'the baseline is {baseline_m:.3f} m: poses are in metres' if baseline_m is not None else
                                   'one camera knows no metres: the unit is the distance between the first two views')
        return self._window

    def _tell(self, quality: Quality, points: int) -> None:
        """Each change, once."""
        if quality is not self._quality:
            self._quality = quality
            metric = self._window is not None and self._window.metric
            waiting = 'tracks with points in the right image' if metric else 'the camera to move sideways'
            line = {Quality.STARTING: f'waiting for {waiting}: nothing is published until then',
                    Quality.TRACKING: f'tracking {points} points',
                    Quality.LOST: 'lost: too few tracks agree; it begins anew from here, as fast as it was'}[quality]
            if quality is Quality.LOST:
                self.get_logger().warning(line)
            else:  # a call of its own: rclpy keeps the severity of a place's first line
                self.get_logger().info(line)

    def _publish(self, header: Header, stamp: float, pose: Float64) -> None:
        header, child = Header(stamp=header.stamp, frame_id=self._frame), header.frame_id or 'camera'
        x, y, z = map(float, pose[:3, 3])
        turn = Quaternion(**dict(zip('xyzw', quaternions_from_rotations(pose[None, :3, :3])[0].tolist(), strict=True)))
        message = OdometryMessage(header=header, child_frame_id=child)
        message.pose.pose = Pose(position=Point(x=x, y=y, z=z), orientation=turn)
        if self._last is not None and stamp > self._last[0]:
            moved = pose[:3, :3].T @ (pose[:3, 3] - self._last[1][:3, 3]) / (stamp - self._last[0])
            message.twist.twist = Twist(linear=Vector3(**dict(zip('xyz', moved.tolist(), strict=True))))
        self._last = stamp, pose
        self._odometry.publish(message)
        if self._transforms is not None:
            transform = Transform(translation=Vector3(x=x, y=y, z=z), rotation=turn)
            stamped = TransformStamped(header=header, child_frame_id=child, transform=transform)
            self._transforms.publish(TFMessage(transforms=[stamped]))
        self._poses.append(PoseStamped(header=header, pose=message.pose.pose))

    def _draw(self) -> None:
        """The whole path, once a second where somebody looks and it has grown."""
        if self._poses and self._poses[-1] is not self._drawn and self._path.get_subscription_count():
            self._drawn = self._poses[-1]
            self._path.publish(Path(header=self._drawn.header, poses=list(self._poses)))
