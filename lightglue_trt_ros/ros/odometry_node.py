"""The reference consumer of ~/matches: Odometry, Path and TF of the left camera of a stereo pair, in metres, or of one camera."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import Any, NamedTuple

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from geometry_msgs.msg import Point, Pose, PoseStamped, Quaternion, Transform, TransformStamped, Twist, Vector3
from nav_msgs.msg import Odometry as OdometryMessage
from nav_msgs.msg import Path
from rcl_interfaces.msg import ParameterDescriptor
from rclpy.clock import Clock, ClockType
from rclpy.exceptions import InvalidParameterTypeException
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header

from ..core.cameras import Intrinsics, StereoRig
from ..core.types import Float64, FrameMatches
from ..datasets.poses import on_grid, quaternions_from_rotations
from ..odometry.pose_covariance import in_fixed_axes, seen_from
from ..odometry.sliding_window import SAME_S, Fix, MatchOdometry, Quality
from ..utils.errors import ConfigError, FrameError
from . import diagnostics
from .camera_info import CameraListener, RigListener
from .cloud_reader import matches_from_cloud
from .clouds import stamp_seconds
from .fading_log import FadingLog
from .frames import FrameTree
from .parameters import empty_lists_refused, settings_given
from .qos import OVERRIDABLE, unheard, without_effect

SILENCE_S, ALONE_S = 3.0, 10.0  # without a cloud, diagnostics say so; without a matcher, the log does: it may start more slowly
CLOUDS = 'sensor_msgs/msg/PointCloud2'
LOST = 'lost: too few tracks agree; it begins anew from here, as fast as it was'
RECENT, LEFT_OUT, BUSY = 20, 5, 0.8  # last clouds, and from how many gaps and which share of busy time on it is too slow
PARAMETERS = (  # name, default, description
    ('odom_frame', 'odom', 'Fixed frame of the poses'),
    ('base_frame', '', "Frame of the robot whose poses are published; empty: the camera's own"),
    ('publish_tf', True, 'Whether the pose is also published on /tf'))
PATH_POSES = 10_000  # the path's last ones
TF_DEPTH = 100  # transforms that wait, as tf2_ros has it
UPRIGHT = np.array([[0.0, 0, 1, 0], [-1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 0, 1]])  # from optical axes to x forward, y left, z up

try:
    from tf2_msgs.msg import TFMessage
except ImportError:  # every installation of ROS has it, wheels do not
    TFMessage = None


class _Cloud(NamedTuple):
    """How a cloud was processed."""

    began: float  # monotonic seconds
    seconds: float
    follows_gap: bool  # its reference is newer than the cloud before


class OdometryNode(Node):  # type: ignore[misc]
    """Publishes poses in `odom_frame`, whose origin is the first one: of `base_frame`, or of the camera with x forward, z up."""

    def __init__(self, **node_options: Any) -> None:
        """Raises ConfigError for a parameter of another name or type."""
        with empty_lists_refused():
            super().__init__('odometry', automatically_declare_parameters_from_overrides=True, **node_options)
        self._frame, self._base, transforms = self._settings()
        self._odometry = self.create_publisher(OdometryMessage, '~/odometry', 10, qos_overriding_options=OVERRIDABLE)
        self._path = self.create_publisher(Path, '~/path', 1, qos_overriding_options=OVERRIDABLE)
        self._diagnostics = self.create_publisher(DiagnosticArray, '/diagnostics', 10)
        self._transforms: Any = None
        if transforms and TFMessage is None:
            self.get_logger().warning('tf2_msgs is not installed: no TF is published')
        elif transforms:
            self._transforms = self.create_publisher(TFMessage, '/tf', 100)
        self._frames, self._problems = FrameTree(self._frame), FadingLog(pause_s=0.0)
        self._world = UPRIGHT  # (4, 4) `odom_frame` from the axes of the first view
        if self._base:
            static = QoSProfile(depth=TF_DEPTH, durability=DurabilityPolicy.TRANSIENT_LOCAL)
            for topic, qos in (('/tf_static', static), ('/tf', TF_DEPTH)):
                self.create_subscription(TFMessage, topic, self._on_transforms, qos)
        left = CameraListener(self, ('~/odometry',))
        self._rig = RigListener(self, '~/odometry', left)  # for clouds that have right points, others need its left camera
        self._estimator: MatchOdometry | None = None
        self._quality: Quality | None = None
        self._is_loss_logged = True  # the last time that it began anew, or there was none
        self._points = self._clouds = self._losses = 0  # points tracked now; clouds received; times lost
        self._heard = self._lost_since = time.monotonic()  # the last cloud; the last pose
        self._poses: deque[PoseStamped] = deque(maxlen=PATH_POSES)
        self._pose: Float64 | None = None  # (4, 4), the last one published
        self._covariance = np.zeros((6, 6))  # of the camera's, as in Fix
        self._mounting = np.eye(4)  # (4, 4) base from camera
        self._stamp = self._newest = -math.inf  # of the last cloud that was used, of the last one
        self._reference = -math.inf  # stamp of the reference of the last cloud that was used
        self._recent: deque[_Cloud] = deque(maxlen=RECENT)
        self._trouble = ''  # why clouds cannot be used, for log and diagnostics
        self._drawn: PoseStamped | None = None
        self.create_timer(1.0, self._report, clock=Clock(clock_type=ClockType.STEADY_TIME))  # runs without /clock too
        self._matches = self.create_subscription(PointCloud2, 'matcher/matches', self._on_matches, 10,
                                                 qos_overriding_options=OVERRIDABLE)
        if line := without_effect(self):
            self.get_logger().warning(line)
        self.get_logger().info(f'listening to {self._matches.topic_name}, publishing {self._odometry.topic_name}')

    def _settings(self) -> tuple[str, str, bool]:
        """Values of PARAMETERS, which are declared here."""
        settings_given(self, [name for name, _, _ in PARAMETERS])
        try:
            frame, base, transforms = (
                self.declare_parameter(name, default, ParameterDescriptor(description=description, read_only=True)).value
                for name, default, description in PARAMETERS)
        except InvalidParameterTypeException as error:
            raise ConfigError(str(error)) from error
        if base and TFMessage is None:
            raise ConfigError(f'base_frame is {base}, and tf2_msgs is not installed: install it, or leave base_frame empty')
        return frame, base, transforms

    def _on_matches(self, cloud: PointCloud2) -> None:
        self._heard, self._clouds = time.monotonic(), self._clouds + 1
        try:
            matches = matches_from_cloud(cloud)
        except FrameError as error:
            self._trouble = f'cloud dropped, {error}'
            if self._problems.due(self._trouble):
                self.get_logger().error(self._trouble)
            return
        self._use(cloud.header, matches)
        follows_gap = matches.reference_stamp > self._newest + SAME_S
        self._newest = stamp_seconds(cloud.header)
        self._recent.append(_Cloud(self._heard, time.monotonic() - self._heard, follows_gap))

    def _use(self, header: Header, matches: FrameMatches) -> None:
        if not len(matches):  # tracks may continue after an empty cloud: the window skips it
            if self._quality is Quality.TRACKING:
                self._log_quality(Quality.LOST, 0)
            return
        source = self._rig.left if matches.right_keypoints is None else self._rig
        calibration = source.calibration(matches.image_size, header.frame_id)
        self._trouble = source.problem
        if calibration is None:
            return
        if not self._is_mounted(header.frame_id) or self._is_of_others(matches):
            return
        estimator = self._begun(calibration, matches.xyz is not None and matches.right_keypoints is None)
        if matches.stamp <= self._stamp:
            back_s = self._stamp - matches.stamp
            self._is_loss_logged = self._problems.warn(
                self.get_logger(), f'time went back by {back_s:.3f} s: it begins anew where it was')
        self._stamp, self._reference = matches.stamp, matches.reference_stamp
        fix = estimator.add(matches)
        self._log_quality(fix.quality, fix.points)
        if fix.quality is Quality.TRACKING:
            self._publish(header, fix)

    def _is_of_others(self, matches: FrameMatches) -> bool:
        """Whether its reference is an older frame whose cloud was left out: of two kinds of frames that alternate, one counts."""
        is_older = matches.reference_stamp < self._stamp - SAME_S and matches.stamp > self._stamp
        return is_older and abs(matches.reference_stamp - self._reference) > SAME_S and self._quality is not Quality.LOST

    def _on_transforms(self, message: Any) -> None:
        self._frames.add(message.transforms)

    def _is_mounted(self, camera: str) -> bool:
        """Whether the camera's place on the robot is known; it is looked up for each cloud, as a joint may move it."""
        if not self._base:
            return True
        optical = self._frames.optical(camera)
        mounting = self._frames.pose(optical, self._base)
        if mounting is None:
            camera_root, base_root = self._frames.root(camera), self._frames.root(self._base)
            self._trouble = (f"no transform connects the camera's frame {camera!r} (below {camera_root!r}) with base_frame "
                             f'{self._base!r} (below {base_root!r}): publish the missing one on /tf_static, or correct base_frame')
            self._problems.warn(self.get_logger(), self._trouble)
            return False
        if optical != camera.lstrip('/'):
            self._problems.warn(self.get_logger(), f'the frame_id of the images, {camera}, has x forward by TF: {optical}, the '
                                'optical frame below it, is taken as the camera. Let the driver write that')
        if self._pose is None:
            self._world = mounting
        self._mounting = mounting
        return True

    def _begun(self, calibration: Intrinsics | StereoRig, depth: bool) -> MatchOdometry:
        """The odometry; for another calibration a new one, which goes on from the last pose, in the last unit."""
        before = self._estimator
        if before is None or not _alike(before.calibration, calibration) or before.depth != depth:
            pose = np.eye(4) if self._pose is None else np.linalg.inv(self._world) @ self._pose @ self._mounting
            unit = None if before is None else before.window.unit
            self._estimator = MatchOdometry(calibration, pose, unit, depth, self._covariance)
            baseline_m = self._estimator.baseline_m
            if before is None or (before.baseline_m is None, before.depth) != (baseline_m is None, depth):
                line = ('points have depth: poses are in metres' if depth else
                        f'the baseline is {baseline_m:.3f} m: poses are in metres' if baseline_m is not None else
                        'one camera knows no metres: the unit is the distance between the first two views')
                self._is_loss_logged = self._problems.due(line)
                if self._is_loss_logged:
                    self.get_logger().info(line)
            else:
                self._is_loss_logged = self._problems.warn(
                    self.get_logger(), f'the calibration has changed, {_figures(before.calibration)} to {_figures(calibration)}: '
                    'it begins anew where the last pose was')
            self._quality = None
            return self._estimator
        return before

    def _log_quality(self, quality: Quality, points: int) -> None:
        """Log each change of quality once; where losses follow each other quickly, less often."""
        self._points = points
        if quality is Quality.TRACKING:
            self._lost_since = time.monotonic()
        if quality is self._quality:
            return
        self._quality = quality
        if quality is Quality.LOST:
            self._losses += 1
            self._is_loss_logged = self._problems.warn(self.get_logger(), LOST)
        elif self._is_loss_logged:
            self.get_logger().info(f'{self._waiting}: nothing is published until then' if quality is Quality.STARTING else
                                   f'tracking {points} points')

    @property
    def _waiting(self) -> str:
        estimator = self._estimator
        if estimator is None or estimator.baseline_m is None:
            return 'waiting for the camera to move sideways'
        return f'waiting for tracks with {"depth" if estimator.depth else "points in the right image"}'

    def _publish(self, header: Header, fix: Fix) -> None:
        """A pose in `odom_frame`, and velocities along and about the axes of the frame that has it."""
        pose = self._world @ fix.pose @ np.linalg.inv(self._mounting)
        rate = self._mounting[:3, :3] @ fix.rotation_rate
        velocity = self._mounting[:3, :3] @ fix.velocity - np.cross(rate, self._mounting[:3, 3])
        header, child = Header(stamp=header.stamp, frame_id=self._frame), self._base or header.frame_id or 'camera'
        x, y, z = on_grid(pose[:3, 3]).tolist()
        quaternion = on_grid(quaternions_from_rotations(pose[None, :3, :3])[0]).tolist()
        orientation = Quaternion(**dict(zip('xyzw', quaternion, strict=True)))
        message = OdometryMessage(header=header, child_frame_id=child)
        message.pose.pose = Pose(position=Point(x=x, y=y, z=z), orientation=orientation)
        message.pose.covariance = in_fixed_axes(pose[:3, :3], seen_from(self._mounting, fix.covariance)).ravel()
        message.twist.twist = Twist(linear=_vector(velocity), angular=_vector(rate))
        message.twist.covariance = seen_from(self._mounting, fix.twist_covariance).ravel()
        self._pose, self._covariance = pose, fix.covariance
        self._odometry.publish(message)
        if self._transforms is not None:
            transform = Transform(translation=Vector3(x=x, y=y, z=z), rotation=orientation)
            stamped = TransformStamped(header=header, child_frame_id=child, transform=transform)
            self._transforms.publish(TFMessage(transforms=[stamped]))
        self._poses.append(PoseStamped(header=header, pose=message.pose.pose))

    def _report(self) -> None:
        """Publish diagnostics, and the whole path if it has subscribers and has grown; once a second."""
        verdict, tracking = self._verdict(), self._quality is Quality.TRACKING
        lost = time.monotonic() - self._lost_since if self._pose is not None and not tracking else 0.0
        figures = {'state': 'waiting' if self._quality is None else self._quality.value, 'points': str(self._points),
                   'lost for s': f'{lost:.0f}', 'times lost': str(self._losses), 'clouds received': str(self._clouds),
                   'unit': 'unknown' if self._estimator is None else 'own' if self._estimator.baseline_m is None else 'metres'}
        can_come = self.count_publishers(self._matches.topic_name) and not unheard(self, self._matches)
        silent = '' if can_come else self._why_silent(ALONE_S)
        mixed = diagnostics.mixed_matches(self, self._matches.topic_name)
        for line in filter(None, (self._slowness, silent, mixed and mixed.message)):
            self._problems.warn(self.get_logger(), line)
        self._diagnostics.publish(DiagnosticArray(header=Header(stamp=self.get_clock().now().to_msg()),
                                                  status=[diagnostics.status(self, 'poses', verdict, figures)]))
        if self._poses and self._poses[-1] is not self._drawn and self._path.get_subscription_count():
            self._drawn = self._poses[-1]
            self._path.publish(Path(header=self._drawn.header, poses=list(self._poses)))

    @property
    def _slowness(self) -> str:
        """That clouds come faster than they are processed, for people; empty: they do not."""
        clouds = list(self._recent)
        gaps = sum(cloud.follows_gap for cloud in clouds)
        seconds = clouds[-1].began - clouds[0].began if clouds else 0.0
        if gaps < LEFT_OUT or sum(cloud.seconds for cloud in clouds[:-1]) < BUSY * seconds:
            return ''
        milliseconds = 1e3 * float(np.median([cloud.seconds for cloud in clouds]))
        return (f'slower than the matcher: a cloud takes {milliseconds:.0f} ms, so some are left out, {gaps} times among the last '
                f'{len(clouds)}, and poses come late: fewer max_keypoints, fewer images a second or a less busy machine help')

    def _why_silent(self, least_s: float) -> str:
        """Why no cloud has come for longer than `least_s`, for people; empty: one has."""
        topic, seconds = self._matches.topic_name, time.monotonic() - self._heard
        if seconds <= least_s:
            return ''
        if self.count_publishers(topic):
            reason = unheard(self, self._matches) or 'is the matcher active, and does it see images?'
        else:
            found = ', '.join(name for name, types in self.get_topic_names_and_types()
                              if CLOUDS in types and name.endswith('/matches') and self.count_publishers(name))
            remap = f'start this node with --ros-args -r matcher/matches:={"TOPIC" if "," in found else found}'
            reason = 'nobody publishes it' + (f'; matches come on {found}: {remap}' if found else '')
        return f'no cloud on {topic} for {seconds:.0f} s: {reason}'

    def _verdict(self) -> diagnostics.Verdict:
        lost = time.monotonic() - self._lost_since
        if silent := self._why_silent(SILENCE_S):
            return diagnostics.Verdict(diagnostics.WARN, silent)
        if mixed := diagnostics.mixed_matches(self, self._matches.topic_name):
            return mixed
        if self._trouble:
            return diagnostics.Verdict(diagnostics.WARN, self._trouble)
        if slow := self._slowness:
            return diagnostics.Verdict(diagnostics.WARN, slow)
        if self._quality is Quality.TRACKING:
            return diagnostics.Verdict(DiagnosticStatus.OK, f'tracking {self._points} points')
        if self._pose is not None:
            return diagnostics.Verdict(diagnostics.WARN, f'lost for {lost:.0f} s: {self._waiting}')
        return diagnostics.Verdict(diagnostics.WARN, self._waiting if self._quality is not None else 'waiting for matches')


def _vector(values: Float64) -> Vector3:
    return Vector3(**dict(zip('xyz', values.tolist(), strict=True)))


def _alike(one: Intrinsics | StereoRig, other: Intrinsics | StereoRig) -> bool:
    """Whether calibrations are the same: a message between them that could not be used may have had others made."""
    if isinstance(one, StereoRig) and isinstance(other, StereoRig):
        return one is other or (one.left.nearly(other.left) and one.right.nearly(other.right))
    return one is other


def _figures(calibration: Intrinsics | StereoRig) -> str:
    """The figures of a calibration, for people."""
    camera = calibration if isinstance(calibration, Intrinsics) else calibration.left
    k, baseline = camera.k, '' if isinstance(calibration, Intrinsics) else f', baseline {calibration.baseline_m:.4f} m'
    return f'fx {k[0, 0]:.2f} fy {k[1, 1]:.2f} cx {k[0, 2]:.2f} cy {k[1, 2]:.2f} px, D {np.round(camera.d, 4).tolist()}{baseline}'
