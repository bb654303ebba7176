"""The topics of one camera of the node: subscriptions, decoding of its frames, publishers."""

from __future__ import annotations

import dataclasses
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from typing import Any

from rclpy.lifecycle import LifecycleNode
from sensor_msgs.msg import Image, PointCloud2, PointField

from ...core.config import MatcherConfig
from ...core.drawing import draw_matches, shade
from ...core.geometry import size_of
from ...core.image_check import ImageCheck
from ...core.images import fill_image
from ...core.keyframes import Keyframe
from ...core.types import FrameMatches, Standing
from .. import diagnostics
from ..camera_info import CameraListener, camera_topic
from ..clouds import LAYOUTS, fill_cloud, layout_of, point_fields, stamp_seconds
from ..fading_log import FadingLog
from ..frame_statistics import in_time
from ..parameters import NodeConfig
from ..qos import OVERRIDABLE
from .keyframe_topics import KeyframeTopics
from .mask_topic import CameraMasks
from .paired_images import DepthCamera, RightCamera
from .pipeline import CameraInput, Input
from .subscription import decode, subscribe, wanted_images
from .vins import VinsTopics

FIELDS = {layout: point_fields(PointField, layout) for layout in LAYOUTS}


class CameraInterface:
    """Offers the messages of one camera to `input` as they come, and publishes their matches: a FrameHandler of the pipeline."""

    input: CameraInput  # of the node's present pipeline

    def __init__(self, node: LifecycleNode, settings: NodeConfig, name: str, config: MatcherConfig) -> None:
        """`name` is empty for a single camera; `config` may be replaced while it runs."""
        self._node, self._settings, self.name, self.config = node, settings, name, config
        self.log = node.get_logger().get_child(name) if name else node.get_logger()  # of the node, or of a named camera
        self._interfaces = ExitStack()
        self._calibration: CameraListener | None = None
        self._vins: VinsTopics | None = None
        self._masks: CameraMasks | None = None
        self._paired: RightCamera | DepthCamera | None = None
        self._keyframes: KeyframeTopics | None = None
        self._message_bytes = 0  # of the newest image
        self._check = ImageCheck()
        self._standing: Standing | None = None  # in the newest frame's images
        self._advised: tuple[Any, ...] = ()
        self._warnings = FadingLog()  # of the executor's thread; the others are of the pipeline's
        self._rejections, self._restarts, self._notes, self._advice = (FadingLog() for _ in range(4))
        self._silence: diagnostics.Verdict | None = None  # last warning of a silence, until its end is logged

    def open(self) -> None:
        """Subscribe and advertise. Raises ConfigError for a mask file that cannot be used."""
        self._matches = self._publisher(PointCloud2, camera_topic(self.name, '~/matches'))
        self._debug_image = self._publisher(Image, camera_topic(self.name, '~/debug_image'))
        if self.config.keyframes:
            self._keyframes = KeyframeTopics(self._node, self.name, self.log, self.config.keyframes, self._matches_between)
            self._interfaces.callback(self._keyframes.close)
        vins = self._settings.tracks_format == 'vins'
        needed_by = {camera_topic(self.name, '~/feature'): vins, 'stereo': self._settings.stereo, 'depth': self._settings.depth}
        self._calibration = CameraListener(self._node, [name for name, needed in needed_by.items() if needed], self.name)
        self._interfaces.callback(self._calibration.close)
        if vins:
            self._vins = VinsTopics(self._node, self._settings, self.name, self._calibration)
            self._interfaces.callback(self._vins.close)
        engine = self.config.image_height, self.config.image_width
        self._masks = CameraMasks(self._node, self.log, self._settings, engine, self.name)
        self._interfaces.callback(self._masks.close)
        if self._settings.stereo or self._settings.depth:
            self._paired = (RightCamera(self._node, self._settings, self._calibration) if self._settings.stereo else
                            DepthCamera(self._node, self._settings, self.name, self._calibration))
            self._interfaces.callback(self._paired.close)
        self.images = subscribe(self._node, self._settings, camera_topic(self.name, 'image'), self._settings.image_transport,
                                self._on_image, lambda count: self.input.statistics.missed(count))
        self._interfaces.callback(self._node.destroy_subscription, self.images)

    def _on_image(self, data: bytes) -> None:
        self._message_bytes = len(data)
        if self._paired is not None:
            self._paired.frame_came(data)
        self.input.offer(data)

    def _matches_between(self, reference: float, current: float) -> Future[FrameMatches]:
        return self.input.ask(lambda matcher: matcher.matches_between(reference, current))

    def begin(self) -> None:
        """The node is active."""
        self._silence, self._check = None, ImageCheck()
        if self._vins is not None:
            self._vins.begin()
        if self._paired is not None:
            self._paired.begin()

    def close(self) -> None:
        """Undo `open`. Safe to call twice."""
        self._interfaces.close()

    @property
    def route(self) -> str:
        """Topics that it subscribes to and publishes, as text."""
        role = 'right camera' if self._settings.stereo else 'depth camera'
        paired = '' if self._paired is None else f' and, as its {role}, {self._paired.images.topic_name}'
        return (f'subscribed to {self.images.topic_name}{paired} ({self.images.qos_profile.reliability.name.lower()}), '
                f'publishing {self._node.resolve_topic_name(camera_topic(self.name, "~/matches"))}')

    def figures(self) -> dict[str, str]:
        """Diagnostics of calibration, masks, stereo and depth, by key."""
        figures = {} if self._calibration is None else {'calibration': self._calibration.description}
        masked = {'masked': self._masks.description} if self._masks is not None and self._masks.description else {}
        stands = {} if self._standing is None else {'standing still': str(self._standing)}
        return figures | masked | stands | ({} if self._paired is None else self._paired.figures())

    @property
    def wanted(self) -> list[diagnostics.Wanted]:
        """The subscriptions of the images, and of those that come with them."""
        size = None if self._calibration is None else self._calibration.size
        count = self.input.statistics.count
        name, came = camera_topic(self.name, 'image'), 0 if count.lost else count.received
        own = wanted_images(self.images, name, self._settings, size, self._message_bytes, came)
        return [own] if self._paired is None else [own, self._paired.wanted]

    @property
    def fault(self) -> diagnostics.Verdict | None:
        """Several publishers of the matches, images that can give none, or calibrations in turns; None without such problems."""
        if fault := diagnostics.mixed_matches(self._node, self._matches.topic_name) or diagnostics.useless_images(self._check):
            return fault
        if self._calibration is not None and (restless := self._calibration.restless):
            return diagnostics.Verdict(diagnostics.WARN, restless)
        return None if self._paired is None else self._paired.fault

    @property
    def waits(self) -> str:
        """Why frames are held up by the right or the depth camera, for people; empty: they are not."""
        return '' if self._paired is None else self._paired.waits

    @property
    def verdict(self) -> diagnostics.Verdict:
        """Right or depth camera, masks, frames with few matches, what stands still in the images, a calibration of no use."""
        verdict = (self._paired and self._paired.verdict(self.wanted[0])) or (self._masks and self._masks.verdict)
        if (not verdict or verdict.logged) and (count := self._check.few_matches) is not None:  # which no other line tells
            return diagnostics.few_matches(count, self.config)
        if verdict:
            return verdict
        if (standing := self._standing) is not None:
            return diagnostics.Verdict(diagnostics.WARN, standing.in_words)
        problem = self._calibration and self._calibration.problem
        return diagnostics.Verdict(diagnostics.WARN, problem, logged=True) if problem else diagnostics.MATCHING

    def log_verdict(self, verdict: diagnostics.Verdict) -> None:
        """Log a warning, less often the longer it lasts, and the end of a silence. Called once a second."""
        lines = () if verdict.logged or verdict.level != diagnostics.WARN else verdict.parts or (verdict.message,)
        new = [line for line in lines if self._warnings.warn(self.log, line)]
        if verdict.silent_s:
            self._silence = verdict if new or self._silence is not None else None
        elif self._silence is not None:
            self.log.info(f'images come again on {self.images.topic_name}: none had come for {in_time(self._silence.silent_s)}')
            self._silence = None

    def _publisher(self, kind: Any, topic: str) -> Any:
        publisher = self._node.create_lifecycle_publisher(kind, topic, 10, qos_overriding_options=OVERRIDABLE)
        self._interfaces.callback(self._node.destroy_lifecycle_publisher, publisher)
        return publisher

    # FrameHandler, which has the docstrings; in the pipeline's thread

    def decode(self, item: bytes) -> Input:
        if self._paired is not None:
            self._paired.claim(item)
        gray, message = decode(item, self.images.msg_type, self._settings)
        stamp, frame_id = stamp_seconds(message.header), message.header.frame_id
        self._check.add(gray, stamp, frame_id)
        camera = None if self._calibration is None else self._calibration.calibration(size_of(gray), frame_id, needed=False)
        mask = None if self._masks is None else self._masks.mask(size_of(gray), stamp)
        right = depth = None
        if isinstance(self._paired, RightCamera):
            right = self._paired.image_of(gray, stamp, frame_id)
        elif self._paired is not None:
            depth = partial(self._paired.image_of, gray, stamp, frame_id)  # it may still come: matching does not wait for it
        return Input(gray, stamp, message, mask, right, depth, camera)

    def publish(self, frame: Input, matches: FrameMatches) -> None:
        if self._settings.stereo and matches.right_keypoints is None:
            matches = matches.without_right()
        elif self._settings.depth and matches.xyz is None:
            matches = matches.without_depth()
        if self._paired is not None:
            self._paired.published(matches)
        self._check.matched(len(matches))
        self._standing = matches.standing
        matches = dataclasses.replace(matches, image_size=size_of(frame.image))
        cloud = PointCloud2(header=frame.source.header, fields=FIELDS[layout_of(matches)])
        self._matches.publish(fill_cloud(cloud, matches))
        if self._vins is not None:
            self._vins.publish(frame, matches)

    def publish_keyframe(self, frame: Input, keyframe: Keyframe) -> None:
        if self._keyframes is not None:
            self._keyframes.publish(frame.source.header, keyframe, self.config.detection_threshold)

    def show(self, frame: Input, matches: FrameMatches | None) -> None:
        if matches is not None and matches.note:
            self._notes.warn(self.log, matches.note)
        if matches is not None and self._debug_image.get_subscription_count():
            image = frame.image if frame.mask is None else shade(frame.image, frame.mask.resized(size_of(frame.image)))
            picture = draw_matches(image, matches, self._settings.draw_covariances)
            self._debug_image.publish(fill_image(Image(header=frame.source.header), picture, 'bgr8'))
        self._advise(frame)

    def tracks_restarted(self, reason: str) -> None:
        self._restarts.warn(self.log, f'tracks start anew: {reason}')
        if self._vins is not None:
            self._vins.restart()

    def rejected(self, error: str, details: str) -> None:
        if not self._rejections.due(error):
            return
        if details:
            self.log.error(f'frame dropped, {error}')
            self.log.debug(details)
        else:
            self.log.warning(f'frame dropped: {error}')

    def _advise(self, frame: Input) -> None:
        """Log what would improve matching when size or encoding of the images change."""
        encoding = getattr(frame.source, 'encoding', '') or getattr(frame.source, 'format', '').partition(';')[0]  # mono16; png
        kind = (frame.image.shape, encoding)
        if kind != self._advised:
            self._advised = kind
            if lines := diagnostics.advice(frame.image, kind[1], self.config):
                self._advice.warn(self.log, '; '.join(lines))
