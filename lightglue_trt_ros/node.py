"""The ROS node: parameters, QoS, lifecycle, diagnostics, the reset service. No mathematics."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from rcl_interfaces.msg import SetParametersResult
from rclpy.lifecycle import LifecycleNode, State, TransitionCallbackReturn
from rclpy.parameter import Parameter
from rclpy.qos import HistoryPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CompressedImage, Image, PointCloud2
from std_srvs.srv import Trigger

from . import health
from .backends import Backend
from .config import MatcherConfig
from .errors import ConfigError, DeviceMemoryError, EngineError, FrameError, LightglueTrtError
from .features import FrameMatches, UInt8
from .frontend import FrameMatcher
from .messages import gray_of, image_to_msg, matches_to_cloud, stamp_seconds
from .parameters import declare_settings
from .pictures import draw_matches
from .selection import Opened, open_backend
from .stats import FrameStatistics, Stopwatch
from .worker import LatestWorker

SILENCE_S = 3.0  # without a frame for this long, the node says so
THROTTLE_S = 5.0  # one line of a kind in this time

ImageMessage = Any  # sensor_msgs Image or CompressedImage


class MatcherNode(LifecycleNode):  # type: ignore[misc]
    """Subscribes to camera frames and publishes correspondences; inference runs in one worker thread while active.

    Raises ConfigError when a parameter is unknown, of the wrong type or out of range.
    """

    def __init__(self, open_backend: Callable[[MatcherConfig], Opened] = open_backend, **node_options: Any) -> None:
        super().__init__('matcher', automatically_declare_parameters_from_overrides=True, **node_options)
        self._open_backend = open_backend
        self._statistics = FrameStatistics()
        self._backend: Backend | None = None
        self._frames: FrameMatcher | None = None
        self._worker: LatestWorker[ImageMessage] | None = None
        self._reset_requested = ''
        self._advised: tuple[Any, ...] = ()
        self._config, self.settings = declare_settings(self)
        self.add_on_set_parameters_callback(self._on_set_parameters)
        self._diagnostics = self.create_publisher(DiagnosticArray, '/diagnostics', 10)
        # this timer also lets SIGTERM end the executor: keep it at a second or less
        self.create_timer(1.0, self._publish_diagnostics)

    # lifecycle

    def start(self) -> bool:
        """Configure and activate. False when either fails; the log says why."""
        done = TransitionCallbackReturn.SUCCESS
        return bool(self.trigger_configure() == done and self.trigger_activate() == done)

    def on_configure(self, state: State) -> TransitionCallbackReturn:
        reliable = QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=10, reliability=ReliabilityPolicy.RELIABLE)
        self._matches = self.create_lifecycle_publisher(PointCloud2, '~/matches', reliable)
        self._debug_image = self.create_lifecycle_publisher(Image, '~/debug_image', reliable)
        self._reset = self.create_service(Trigger, '~/reset', self._on_reset)
        self._images = self._subscribe()
        return TransitionCallbackReturn.SUCCESS

    def on_activate(self, state: State) -> TransitionCallbackReturn:
        self._statistics = FrameStatistics()
        worker = LatestWorker(self._open, self._on_frame, self._close)
        try:
            worker.start(keep_waiting=self.context.ok)
        except LightglueTrtError as error:
            self._statistics.last_error = str(error)
            self.get_logger().error(f'not activated: {error}')
            return TransitionCallbackReturn.FAILURE
        self._worker = worker
        return super().on_activate(state)

    def on_deactivate(self, state: State) -> TransitionCallbackReturn:
        self.stop_worker()
        return super().on_deactivate(state)

    def on_cleanup(self, state: State) -> TransitionCallbackReturn:
        self.stop_worker()
        for publisher in (self._matches, self._debug_image):
            self.destroy_lifecycle_publisher(publisher)
        self.destroy_service(self._reset)
        self.destroy_subscription(self._images)
        return TransitionCallbackReturn.SUCCESS

    def on_shutdown(self, state: State) -> TransitionCallbackReturn:
        self.stop_worker()
        return TransitionCallbackReturn.SUCCESS

    def on_error(self, state: State) -> TransitionCallbackReturn:
        self.stop_worker()
        return TransitionCallbackReturn.SUCCESS

    def stop_worker(self) -> None:
        """End the inference thread, cutting short what it runs. Safe to call twice."""
        worker, self._worker = self._worker, None
        if worker is None:
            return
        if self._backend is not None:
            self._backend.cancel()
        if not worker.stop(timeout=5.0):
            self.get_logger().error('the inference thread did not end within 5 s: it is left behind')

    # the worker's thread

    def _open(self) -> None:
        self._backend, reason, warning = self._open_backend(self._config)
        self._frames = FrameMatcher(self._backend, self._config)
        self.get_logger().info(f'backend: {reason}')
        if warning:
            self.get_logger().warning(warning)
        self.get_logger().info(f'subscribed to {self._images.topic_name} ({self.settings.qos_reliability}), '
                               f'publishing {self.resolve_topic_name("~/matches")}')

    def _close(self) -> None:
        if self._backend is not None:
            self._backend.close()
        self._backend = self._frames = None

    def _on_frame(self, message: ImageMessage) -> None:
        try:
            self._match_and_publish(message)
        except FrameError as error:
            self._statistics.failed(str(error))
            self.get_logger().warning(f'frame dropped: {error}', throttle_duration_sec=THROTTLE_S)
        except DeviceMemoryError:
            raise  # ends the worker, which releases the GPU
        except Exception as error:  # one bad frame never ends the node
            if self._worker is None:
                return  # cut short by stop_worker
            self._statistics.failed(f'{type(error).__name__}: {error}')
            self.get_logger().error(f'frame dropped, {type(error).__name__}: {error}', throttle_duration_sec=THROTTLE_S)
            self.get_logger().debug(traceback.format_exc())

    def _match_and_publish(self, message: ImageMessage) -> None:
        frames = self._frames
        if frames is None:
            raise EngineError('no backend is open: activate the node')
        frames.config = self._config
        if self._reset_requested:
            frames.reset(self._reset_requested)
            self._reset_requested = ''
        clock, resets = Stopwatch(), frames.resets
        image = gray_of(message, self.settings.image_bits)
        clock.lap('decode')
        matches = frames.process(image, stamp_seconds(message.header))
        clock.lap('process')
        if frames.resets > resets:
            self.get_logger().warning(f'tracks start anew: {frames.last_reset}', throttle_duration_sec=THROTTLE_S)
        if matches is not None:
            self._matches.publish(matches_to_cloud(matches, message.header))
        clock.lap('publish')
        stage_ms = {**clock.laps, 'frame': clock.total_ms, **(matches.stage_ms if matches is not None else {})}
        if matches is None:
            self._statistics.finished(stage_ms, None)
        else:
            self._statistics.finished(stage_ms, len(matches), matches.layers)
            if matches.note:
                self.get_logger().warning(matches.note, throttle_duration_sec=THROTTLE_S)
            self._draw(image, matches, message.header)
        self._advise(message, image)

    def _advise(self, message: ImageMessage, image: UInt8) -> None:
        """Say once for each kind of image what would make matching better."""
        kind = (image.shape, getattr(message, 'encoding', ''))
        if kind != self._advised:
            self._advised = kind
            for advice in health.advice(image, kind[1], (self._config.image_height, self._config.image_width)):
                self.get_logger().warning(advice)

    def _draw(self, image: UInt8, matches: FrameMatches, header: Any) -> None:
        if self._debug_image.get_subscription_count():
            self._debug_image.publish(image_to_msg(draw_matches(image, matches), header, 'bgr8'))

    # callbacks of the executor: they only hand over

    def _on_image(self, message: ImageMessage) -> None:
        worker = self._worker
        if worker is not None:
            self._statistics.arrived()
            worker.offer(message)

    def _on_reset(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        self._reset_requested = f'asked for on {self._reset.srv_name}'
        response.success, response.message = True, 'reference and tracks are forgotten with the next frame'
        return response

    def _on_set_parameters(self, parameters: list[Parameter]) -> SetParametersResult:
        names = {field.name for field in dataclasses.fields(MatcherConfig) if field.metadata['dynamic']}
        changes = {parameter.name: parameter.value for parameter in parameters if parameter.name in names}
        try:
            self._config = dataclasses.replace(self._config, **changes)
        except ConfigError as error:
            return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)

    def _subscribe(self) -> Any:
        """Compressed images come on <image>/compressed, wherever `image` is remapped to."""
        reliability = ReliabilityPolicy.RELIABLE if self.settings.qos_reliability == 'reliable' else ReliabilityPolicy.BEST_EFFORT
        qos = QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=1, reliability=reliability)
        if self.settings.image_transport == 'raw':
            return self.create_subscription(Image, 'image', self._on_image, qos)
        topic = self.resolve_topic_name('image') + '/compressed'
        return self.create_subscription(CompressedImage, topic, self._on_image, qos)

    def _give_up(self, failure: BaseException | None) -> None:
        """Inference has ended by itself and released what it held: wait, inactive, for another activation."""
        self.get_logger().error(f'deactivated: {failure}; activate again when that is mended')
        self._statistics.last_error = str(failure)
        self.trigger_deactivate()

    def _publish_diagnostics(self) -> None:
        worker, statistics = self._worker, self._statistics
        if worker is None:
            verdict = health.idle(statistics)
        elif not worker.alive:
            verdict = health.ended(worker.failure)
            self._give_up(worker.failure)
        elif statistics.silence_s > SILENCE_S:
            verdict = health.silent(self, self._images, statistics.silence_s)
            self.get_logger().warning(verdict.message, throttle_duration_sec=2 * THROTTLE_S)
        else:
            verdict = health.working(statistics)
        facts = {'frames dropped': str(worker.replaced if worker else 0),
                 'backend': self._backend.description if self._backend else 'none',
                 'resets': f'{self._frames.resets} {self._frames.last_reset}'.strip() if self._frames else '0',
                 'last error': statistics.last_error}
        self._diagnostics.publish(health.to_message(self, verdict, {**statistics.report(), **facts}))


def run(node: MatcherNode) -> None:
    """Spin until SIGINT or SIGTERM, then leave nothing behind."""
    from rclpy.executors import SingleThreadedExecutor
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    try:
        with ended_by_signals():
            if node.settings.autostart:
                node.start()
            executor.spin()
    finally:
        node.stop_worker()
        executor.remove_node(node)
        node.destroy_node()
        rclpy.try_shutdown()


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """What a signal cuts short ends here, without an error.

    rclpy's handler invalidates the context at any moment; whatever uses that next, a publisher or a transition, raises RCLError.
    """
    from rclpy.executors import ExternalShutdownException
    try:
        yield
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    except Exception:
        if rclpy.ok():
            raise
