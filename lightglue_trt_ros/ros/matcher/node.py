"""The ROS node: parameters, lifecycle, diagnostics, the reset service. No mathematics."""

from __future__ import annotations

import dataclasses
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial, wraps
from typing import Any

import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from lifecycle_msgs.srv import ChangeState
from rcl_interfaces.msg import SetParametersResult
from rclpy.clock import Clock, ClockType
from rclpy.lifecycle import LifecycleNode, TransitionCallbackReturn
from rclpy.lifecycle import State as LifecycleState
from rclpy.parameter import Parameter
from std_msgs.msg import Header
from std_srvs.srv import Trigger

from ...core.config import MatcherConfig
from ...core.tracks import TrackCounter
from ...engines.selection import open_backend
from ...utils.commands import Ending
from ...utils.errors import ConfigError, LightglueTrtError
from .. import diagnostics as health
from ..executor import spin
from ..parameters import as_declared, declare_settings
from .camera_interface import CameraChannel
from .worker import Inlet, Opener, Pipeline, State

SILENCE_S = 3.0  # without a frame for this long, the node says so
STOP_S = 5.0  # for what runs when the node is deactivated

Transition = Callable[['MatcherNode', LifecycleState], TransitionCallbackReturn]


def told(transition: Transition) -> Transition:
    """Log what a transition raises, and keep it for the diagnostics: rclpy drops it on its way to error processing."""
    @wraps(transition)
    def logged(node: MatcherNode, state: LifecycleState) -> TransitionCallbackReturn:
        try:
            return transition(node, state)
        except Exception as error:
            node.failure = f'{transition.__name__} failed, {type(error).__name__}: {error}'
            trace = '' if isinstance(error, LightglueTrtError) else f'\n{traceback.format_exc().rstrip()}'
            node.get_logger().error(f'{node.failure}{trace}\n{health.way_back(node, "configure, then activate")}')
            raise
    return logged


class MatcherNode(LifecycleNode):  # type: ignore[misc]
    """Subscribes to cameras' frames and publishes correspondences; while active, a Pipeline of its own thread does the work.

    Raises ConfigError when a parameter is unknown, of the wrong type or out of range.
    """

    def __init__(self, open_backend: Opener = open_backend, **node_options: Any) -> None:
        try:
            super().__init__('matcher', automatically_declare_parameters_from_overrides=True, **node_options)
        except ValueError as error:
            if 'NOT_SET' not in str(error):
                raise
            raise ConfigError("a parameter has no value: write [''] for an empty list, and leave out what is not set") from error
        self._open_backend, self._counter = open_backend, TrackCounter()
        self.left_behind = False  # a thread, which may run on after the node
        self.failure = ''  # of the last transition that failed, until the node is configured again
        self._interfaces = ExitStack()
        self._config, self.settings = declare_settings(self)
        self._channels = [CameraChannel(self, self.settings, camera, self._config) for camera in self.settings.cameras]
        self._pipeline, self._active = self._new_pipeline(), False  # kept when it has ended, for what it tells
        self.add_on_set_parameters_callback(self._on_set_parameters)
        self._diagnostics = self.create_publisher(DiagnosticArray, '/diagnostics', 10)
        for service in self.services:
            if service.srv_type is ChangeState:
                service.callback = partial(self._on_change_state, service.callback)
        self._pipeline_ended = self.create_guard_condition(self._give_up)
        # this timer also lets SIGTERM end the executor: keep it at a second or less, of a clock that runs without /clock too
        self.create_timer(1.0, self._publish_diagnostics, clock=Clock(clock_type=ClockType.STEADY_TIME))

    # lifecycle

    def start(self) -> bool:
        """Configure and activate. False when either fails; the log says why."""
        done = TransitionCallbackReturn.SUCCESS
        return bool(self.trigger_configure() == done and self.trigger_activate() == done)

    def wait(self) -> bool:
        """Leave both to a lifecycle manager, and say so."""
        self.get_logger().info('autostart is false: waiting for a lifecycle manager to configure and activate this node')
        return True

    @told
    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        self.failure = ''
        self._reset = self.create_service(Trigger, '~/reset', self._on_reset)
        self._interfaces.callback(self.destroy_service, self._reset)
        for number, channel in enumerate(self._channels):
            self._interfaces.callback(channel.close)
            channel.open(partial(self._on_image, number), partial(self._on_lost, number))
        return TransitionCallbackReturn.SUCCESS

    @told
    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Active at once, while the networks are being opened; where that fails the node goes back to inactive."""
        result = super().on_activate(state)
        for channel in self._channels:
            channel.begin()
        self.get_logger().info('opening the networks: seconds, more at the first start with new settings')
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

    on_shutdown = on_cleanup

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Cleaned up where a transition has failed; where that fails too the process ends, as no transition leads out of there."""
        try:
            return self.on_cleanup(state)
        except Exception:
            raise SystemExit(f'{self.get_name()}: cleaning up after an error failed: {self.failure}') from None

    def _on_change_state(self, change: Callable[[Any, Any], Any], request: ChangeState.Request,
                         response: ChangeState.Response) -> ChangeState.Response:
        """Before Kilted, rclpy lets rcl's error out for a transition that is not allowed now, and who asked gets no answer."""
        try:
            return change(request, response)
        except RuntimeError as error:
            self.get_logger().warning(f'transition {request.transition.id} is refused: {str(error).split(", at ")[0]}')
            response.success = False
            return response

    def _new_pipeline(self) -> Pipeline[bytes]:
        return Pipeline(self._config, self._open_backend, self, self._channels, self._counter)

    def stop(self) -> None:
        """End the pipeline, cutting short what it runs. Safe to call twice."""
        active, self._active = self._active, False
        if active and not self._pipeline.stop(STOP_S):
            self.left_behind = True
            self.get_logger().error(f'the inference thread did not end within {STOP_S:g} s: it is left behind')

    # what the pipeline tells, in its thread

    def opened(self, reason: str, warning: str) -> None:
        """As Owner."""
        self.get_logger().info(f'backend: {reason}')
        if warning:
            self.get_logger().warning(warning)
        for channel in self._channels:
            channel.log.info(f'active: {channel.route}')

    def ended(self) -> None:
        """As Owner."""
        self._pipeline_ended.trigger()

    # callbacks of the executor: they only hand over

    def _on_image(self, number: int, data: bytes) -> None:
        if self._active:
            self._pipeline.inlets[number].offer(data)

    def _on_lost(self, number: int, count: int) -> None:
        self._pipeline.inlets[number].statistics.missed(count)

    def _on_reset(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        self._pipeline.reset(f'asked for on {self._reset.srv_name}')
        response.success, response.message = True, 'reference and tracks are forgotten with the next frame'
        return response

    def set_parameters_atomically(self, parameter_list: list[Parameter]) -> SetParametersResult:
        """As rclpy's, which the parameter services call."""
        return super().set_parameters_atomically(as_declared(parameter_list))

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
            self.get_logger().error(f'{what}: {pipeline.failure}\n{health.way_back(self, "activate")}')
            self.trigger_deactivate()

    def _publish_diagnostics(self) -> None:
        statuses = []
        for channel, inlet in zip(self._channels, self._pipeline.inlets, strict=True):
            verdict = self._verdict(channel, inlet)
            if self._pipeline.state is State.RUNNING:
                channel.log_verdict(verdict)
            figures = {**self._pipeline.figures(inlet), **channel.figures()}
            statuses.append(health.status(self, channel.camera, verdict, figures))
        self._diagnostics.publish(DiagnosticArray(header=Header(stamp=self.get_clock().now().to_msg()), status=statuses))

    def _verdict(self, channel: CameraChannel, inlet: Inlet[bytes]) -> health.Verdict:
        pipeline = self._pipeline
        if not self._active or pipeline.state is State.ENDED:
            failure = self.failure or pipeline.failure
            return health.Verdict(DiagnosticStatus.ERROR, failure) if failure else health.IDLE
        if pipeline.state is State.OPENING:
            return health.OPENING
        if inlet.statistics.silence_s > SILENCE_S:
            return health.silent(self, channel.images, inlet.statistics)
        return health.working(inlet.statistics, channel.verdict)


def run(node: MatcherNode, ending: Ending) -> None:
    """Until SIGINT or SIGTERM, leaving nothing behind. For the main thread of a process that ends with it."""
    spin(node, ending, node.start if node.settings.autostart else node.wait, node.stop)
    if node.left_behind:  # in C++, which aborts where it comes back to an interpreter that ends
        rclpy.try_shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
