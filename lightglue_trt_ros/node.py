"""The ROS node: parameters, QoS, lifecycle, diagnostics, the reset service. No mathematics."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rcl_interfaces.msg import SetParametersResult
from rclpy.clock import Clock, ClockType
from rclpy.lifecycle import LifecycleNode, TransitionCallbackReturn
from rclpy.lifecycle import State as LifecycleState
from rclpy.parameter import Parameter
from rclpy.qos import HistoryPolicy, QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import Image, PointCloud2, PointField
from std_srvs.srv import Trigger

from . import health
from .clouds import fill_cloud, point_fields, stamp_seconds
from .config import MatcherConfig
from .errors import ConfigError, FrameError
from .features import FrameMatches
from .images import fill_image, gray_of
from .parameters import declare_settings
from .pictures import draw_matches
from .pipeline import Input, Opener, Pipeline, State
from .selection import open_backend
from .spinning import ended_by_signals, spin
from .subscription import subscribe
from .tracks import TrackCounter
from .vins_topics import VinsTopics

MATCH_FIELDS = point_fields(PointField)
SILENCE_S = 3.0  # without a frame for this long, the node says so
THROTTLE_S = 5.0  # one line of a kind in this time
STOP_S = 5.0  # for what runs when the node is deactivated

Transition = Callable[['MatcherNode', LifecycleState], TransitionCallbackReturn]


def told(transition: Transition) -> Transition:
    """Log what a transition raises: rclpy drops it on its way to error processing."""
    @wraps(transition)
    def logged(node: MatcherNode, state: LifecycleState) -> TransitionCallbackReturn:
        try:
            return transition(node, state)
        except Exception as error:
            node.get_logger().error(f'{transition.__name__} failed, {type(error).__name__}: {error}')
            raise
    return logged


class MatcherNode(LifecycleNode):  # type: ignore[misc]
    """Subscribes to camera frames and publishes correspondences; while active, a Pipeline of its own thread does the work.

    Raises ConfigError when a parameter is unknown, of the wrong type or out of range.
    """

    def __init__(self, open_backend: Opener = open_backend, **node_options: Any) -> None:
        super().__init__('matcher', automatically_declare_parameters_from_overrides=True, **node_options)
        self._open_backend, self._counter = open_backend, TrackCounter()
        self._interfaces = ExitStack()
        self._vins: VinsTopics | None = None
        self._advised: tuple[Any, ...] = ()
        self._config, self.settings = declare_settings(self)
        self._pipeline, self._active = self._new_pipeline(), False  # kept when it has ended, for what it tells
        self.add_on_set_parameters_callback(self._on_set_parameters)
        self._diagnostics = self.create_publisher(DiagnosticArray, '/diagnostics', 10)
        self._pipeline_ended = self.create_guard_condition(self._give_up)
        # this timer also lets SIGTERM end the executor: keep it at a second or less, of a clock that runs without /clock too
        self.create_timer(1.0, self._publish_diagnostics, clock=Clock(clock_type=ClockType.STEADY_TIME))

    # lifecycle

    def start(self) -> bool:
        """Configure and activate. False when either fails; the log says why."""
        done = TransitionCallbackReturn.SUCCESS
        return bool(self.trigger_configure() == done and self.trigger_activate() == done)

    @told
    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        reliable = QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=10, reliability=ReliabilityPolicy.RELIABLE)
        self._matches = self.create_lifecycle_publisher(PointCloud2, '~/matches', reliable)
        self._interfaces.callback(self.destroy_lifecycle_publisher, self._matches)
        self._debug_image = self.create_lifecycle_publisher(Image, '~/debug_image', reliable)
        self._interfaces.callback(self.destroy_lifecycle_publisher, self._debug_image)
        if self.settings.tracks_format == 'vins':
            self._vins = VinsTopics(self, self.settings, reliable)
            self._interfaces.callback(self._vins.close)
        self._reset = self.create_service(Trigger, '~/reset', self._on_reset)
        self._interfaces.callback(self.destroy_service, self._reset)
        self._images = subscribe(self, self.settings, self._on_image, self._on_lost)
        self._interfaces.callback(self.destroy_subscription, self._images)
        return TransitionCallbackReturn.SUCCESS

    @told
    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Active at once, while the networks are being opened; where that fails the node goes back to inactive."""
        result = super().on_activate(state)
        if self._vins is not None:
            self._vins.begin()
        self._pipeline, self._active = self._new_pipeline(), True
        self._pipeline.start()
        return result

    @told
    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self.stop()
        return super().on_deactivate(state)

    @told
    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """As it was before it was configured."""
        self.stop()
        self._interfaces.close()
        return TransitionCallbackReturn.SUCCESS

    on_shutdown = on_error = on_cleanup

    def _new_pipeline(self) -> Pipeline[bytes]:
        return Pipeline(self._config, self._open_backend, self, self._counter)

    def stop(self) -> None:
        """End the pipeline, cutting short what it runs. Safe to call twice."""
        active, self._active = self._active, False
        if active and not self._pipeline.stop(STOP_S):
            self.get_logger().error(f'the inference thread did not end within {STOP_S:g} s: it is left behind')

    # what the pipeline asks for and tells, in its thread

    def decode(self, item: bytes) -> Input:
        """As Outlet."""
        try:
            message = deserialize_message(item, self._images.msg_type)
        except Exception as error:
            raise FrameError(f'a message of {len(item)} bytes is no {self._images.msg_type.__name__} ({error}): check its sender') \
                from error
        gray = gray_of(message, self.settings.image_bits, self.settings.max_megapixels)
        return Input(gray, stamp_seconds(message.header), message)

    def publish(self, frame: Input, matches: FrameMatches) -> None:
        """As Outlet."""
        cloud = PointCloud2(header=frame.source.header, fields=MATCH_FIELDS)
        self._matches.publish(fill_cloud(cloud, matches))
        if self._vins is not None:
            self._vins.publish(frame, matches)

    def show(self, frame: Input, matches: FrameMatches | None) -> None:
        """As Outlet."""
        if matches is not None and matches.note:
            self.get_logger().warning(matches.note, throttle_duration_sec=THROTTLE_S)
        if matches is not None and self._debug_image.get_subscription_count():
            picture = draw_matches(frame.image, matches, self.settings.draw_covariances)
            self._debug_image.publish(fill_image(Image(header=frame.source.header), picture, 'bgr8'))
        self._advise(frame)

    def opened(self, reason: str, warning: str) -> None:
        """As Outlet."""
        self.get_logger().info(f'backend: {reason}')
        if warning:
            self.get_logger().warning(warning)
        self.get_logger().info(f'subscribed to {self._images.topic_name} ({self.settings.qos_reliability}), '
                               f'publishing {self.resolve_topic_name("~/matches")}')

    def started_anew(self, reason: str) -> None:
        """As Outlet."""
        self.get_logger().warning(f'tracks start anew: {reason}', throttle_duration_sec=THROTTLE_S)
        if self._vins is not None:
            self._vins.restart()

    def rejected(self, error: str, details: str) -> None:
        """As Outlet."""
        if details:
            self.get_logger().error(f'frame dropped, {error}', throttle_duration_sec=THROTTLE_S)
            self.get_logger().debug(details)
        else:
            self.get_logger().warning(f'frame dropped: {error}', throttle_duration_sec=THROTTLE_S)

    def ended(self) -> None:
        """As Outlet."""
        with ended_by_signals():
            self._pipeline_ended.trigger()

    def _advise(self, frame: Input) -> None:
        """Say once for each kind of image what would make matching better."""
        kind = (frame.image.shape, getattr(frame.source, 'encoding', ''))
        if kind != self._advised:
            self._advised = kind
            for advice in health.advice(frame.image, kind[1], (self._config.image_height, self._config.image_width)):
                self.get_logger().warning(advice)

    # callbacks of the executor: they only hand over

    def _on_image(self, data: bytes) -> None:
        if self._active:
            self._pipeline.offer(data)

    def _on_lost(self, count: int) -> None:
        self._pipeline.statistics.missed(count)

    def _on_reset(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        self._pipeline.reset(f'asked for on {self._reset.srv_name}')
        response.success, response.message = True, 'reference and tracks are forgotten with the next frame'
        return response

    def _on_set_parameters(self, parameters: list[Parameter]) -> SetParametersResult:
        names = {field.name for field in dataclasses.fields(MatcherConfig) if field.metadata['dynamic']}
        changes = {parameter.name: parameter.value for parameter in parameters if parameter.name in names}
        try:
            self._config = dataclasses.replace(self._config, **changes)
        except ConfigError as error:
            return SetParametersResult(successful=False, reason=str(error))
        self._pipeline.config = self._config
        return SetParametersResult(successful=True)

    def _give_up(self) -> None:
        """Where the pipeline has ended by itself, it has released what it held: wait, inactive, for another activation."""
        pipeline = self._pipeline
        if self._active and pipeline.state is State.ENDED:
            what = 'deactivated' if pipeline.was_open else 'not activated'
            self.get_logger().error(f'{what}: {pipeline.failure}; activate again when that is mended')
            self.trigger_deactivate()

    def _publish_diagnostics(self) -> None:
        verdict, pipeline = self._verdict(), self._pipeline
        if verdict.level == health.WARN and pipeline.state is State.RUNNING:
            self.get_logger().warning(verdict.message, throttle_duration_sec=2 * THROTTLE_S)
        self._diagnostics.publish(health.to_message(self, verdict, pipeline.figures()))

    def _verdict(self) -> health.Verdict:
        pipeline = self._pipeline
        if not self._active or pipeline.state is State.ENDED:
            return health.Verdict(DiagnosticStatus.ERROR, pipeline.failure) if pipeline.failure else health.IDLE
        if pipeline.state is State.OPENING:
            return health.OPENING
        if pipeline.statistics.silence_s > SILENCE_S:
            return health.silent(self, self._images, pipeline.statistics)
        return health.working(pipeline.statistics)


def run(node: MatcherNode) -> None:
    """Until SIGINT or SIGTERM, leaving nothing behind. For the main thread of a process that ends with it."""
    spin(node, node.start if node.settings.autostart else lambda: True, node.stop)
