"""What belongs to one camera of the node: its subscription, the decoding of its frames, and all that is published of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from rclpy.lifecycle import LifecycleNode
from rclpy.qos import HistoryPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image, PointCloud2, PointField

from ...core.config import MatcherConfig
from ...core.drawing import draw_matches, shade
from ...core.geometry import size_of
from ...core.images import fill_image
from ...core.timing import FadingLog, in_time
from ...core.types import FrameMatches
from .. import diagnostics as health
from ..camera_info import camera_topic
from ..clouds import fill_cloud, point_fields, stamp_seconds
from ..parameters import NodeConfig
from ..right_camera import RightCamera
from ..subscription import decode, subscribe
from .mask_topic import CameraMasks
from .vins_topic import VinsTopics
from .worker import Input

MATCH_FIELDS, STEREO_FIELDS = point_fields(PointField), point_fields(PointField, stereo=True)
RELIABLE = QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=10, reliability=ReliabilityPolicy.RELIABLE)
THROTTLE_S = 5.0  # one line of a kind in this time


class CameraChannel:
    """Hands over a camera's messages as they come; what becomes of them it publishes, as the pipeline's Outlet."""

    def __init__(self, node: LifecycleNode, settings: NodeConfig, camera: str, config: MatcherConfig) -> None:
        """`camera` is its name, empty for the only one; `config` has the size that frames are resized to."""
        self._node, self._settings, self.camera, self._config = node, settings, camera, config
        self._log = node.get_logger().get_child(camera) if camera else node.get_logger()
        self._interfaces = ExitStack()
        self._vins: VinsTopics | None = None
        self._masks: CameraMasks | None = None
        self._right: RightCamera | None = None
        self._advised: tuple[Any, ...] = ()
        self._warnings, self._rejections = FadingLog(), FadingLog()  # of the executor's thread, of the pipeline's
        self._silence: health.Verdict | None = None  # the last word on one whose end is not logged yet

    def open(self, on_image: Callable[[bytes], None], on_lost: Callable[[int], None]) -> None:
        """Subscribe and advertise. `on_image` gets each message, `on_lost` how many more were lost before they came.

        Raises ConfigError for a mask of no use.
        """
        self._matches = self._publisher(PointCloud2, self._topic('~/matches'))
        self._debug_image = self._publisher(Image, self._topic('~/debug_image'))
        if self._settings.tracks_format == 'vins':
            self._vins = VinsTopics(self._node, self._settings, RELIABLE, self.camera)
            self._interfaces.callback(self._vins.close)
        engine = self._config.image_height, self._config.image_width
        self._masks = CameraMasks(self._node, self.log, self._settings, engine, self.camera)
        self._interfaces.callback(self._masks.close)
        if self._settings.stereo:
            self._right = RightCamera(self._node, self._settings)
            self._interfaces.callback(self._right.close)
            on_image = self._right.noting(on_image)
        self.images = subscribe(self._node, self._settings, self._topic('image'), on_image, on_lost)
        self._interfaces.callback(self._node.destroy_subscription, self.images)

    def begin(self) -> None:
        """The node is active."""
        self._silence = None
        if self._vins is not None:
            self._vins.begin()
        if self._right is not None:
            self._right.begin()

    def close(self) -> None:
        """As it was before `open`. Safe to call twice."""
        self._interfaces.close()

    @property
    def log(self) -> Any:
        """The node's logger, or the named camera's own."""
        return self._log

    @property
    def route(self) -> str:
        """What it listens to and where it publishes, for people."""
        right = '' if self._right is None else f' and, as its right camera, {self._right.images.topic_name}'
        return (f'subscribed to {self.images.topic_name}{right} ({self._settings.qos_reliability}), '
                f'publishing {self._node.resolve_topic_name(self._topic("~/matches"))}')

    def _topic(self, topic: str) -> str:
        return camera_topic(self.camera, topic)

    def figures(self) -> dict[str, str]:
        """What there is to tell beside what the pipeline counts, by name."""
        masked = {'masked': self._masks.told} if self._masks is not None and self._masks.told else {}
        return masked | ({} if self._right is None else self._right.figures())

    @property
    def verdict(self) -> health.Verdict:
        """On what it hears beside its images."""
        if self._right is not None and (trouble := self._right.trouble):
            return health.Verdict(health.WARN, trouble)
        if self._masks is not None and (complaint := self._masks.complaint):
            return health.Verdict(health.WARN, f'{complaint}: matching goes on without it', logged=True)
        return health.MATCHING

    def log_verdict(self, verdict: health.Verdict) -> None:
        """Once a second: a warning is logged, less often the longer it lasts, and so is the end of a silence."""
        if verdict.silent_s:
            self._silence = verdict
        elif self._silence is not None and not self._warnings.lasts(self._silence.message):
            self.log.info(f'images come again on {self.images.topic_name}: none had come for {in_time(self._silence.silent_s)}')
            self._silence = None
        if verdict.level == health.WARN and not verdict.logged and self._warnings.due(verdict.message):
            self.log.warning(verdict.message)

    def _publisher(self, kind: Any, topic: str) -> Any:
        publisher = self._node.create_lifecycle_publisher(kind, topic, RELIABLE)
        self._interfaces.callback(self._node.destroy_lifecycle_publisher, publisher)
        return publisher

    # what the pipeline asks for and tells, in its thread

    def decode(self, item: bytes) -> Input:
        """As Outlet."""
        gray, message = decode(item, self.images.msg_type, self._settings)
        stamp = stamp_seconds(message.header)
        mask = None if self._masks is None else self._masks.mask(size_of(gray), stamp)
        return Input(gray, stamp, message, mask, None if self._right is None else self._right.image_of(gray, stamp))

    def publish(self, frame: Input, matches: FrameMatches) -> None:
        """As Outlet."""
        if self._right is not None and matches.right_keypoints is None:
            matches = matches.without_right()
        matches = dataclasses.replace(matches, image_size=size_of(frame.image))
        cloud = PointCloud2(header=frame.source.header, fields=MATCH_FIELDS if self._right is None else STEREO_FIELDS)
        self._matches.publish(fill_cloud(cloud, matches))
        if self._vins is not None:
            self._vins.publish(frame, matches)

    def show(self, frame: Input, matches: FrameMatches | None) -> None:
        """As Outlet."""
        if matches is not None and matches.note:
            self._log.warning(matches.note, throttle_duration_sec=THROTTLE_S)
        if matches is not None and self._debug_image.get_subscription_count():
            image = frame.image if frame.mask is None else shade(frame.image, frame.mask.resized(size_of(frame.image)))
            picture = draw_matches(image, matches, self._settings.draw_covariances)
            self._debug_image.publish(fill_image(Image(header=frame.source.header), picture, 'bgr8'))
        self._advise(frame)

    def started_anew(self, reason: str) -> None:
        """As Outlet."""
        self._log.warning(f'tracks start anew: {reason}', throttle_duration_sec=THROTTLE_S)
        if self._vins is not None:
            self._vins.restart()

    def rejected(self, error: str, details: str) -> None:
        """As Outlet."""
        if not self._rejections.due(error):
            return
        if details:
            self._log.error(f'frame dropped, {error}')
            self._log.debug(details)
        else:
            self._log.warning(f'frame dropped: {error}')

    def _advise(self, frame: Input) -> None:
        """Say once for each kind of image what would make matching better."""
        kind = (frame.image.shape, getattr(frame.source, 'encoding', ''))
        if kind != self._advised:
            self._advised = kind
            for advice in health.advice(frame.image, kind[1], self._config):
                self._log.warning(advice)
