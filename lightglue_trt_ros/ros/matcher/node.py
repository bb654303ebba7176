"""The matcher node: parameters, lifecycle, diagnostics, the reset service."""

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
from ...engines.selection import Opened, open_backend
from ...utils.commands import Ending
from ...utils.errors import ConfigError, LightglueTrtError
from ...utils.processes import keep_memory
from .. import diagnostics
from ..executor import spin
from ..parameters import as_declared, check_declared, declare_settings, empty_lists_refused
from ..qos import without_effect
from .camera_interface import CameraInterface
from .pipeline import Pipeline, State

SILENCE_S = 3.0  # without a frame for longer is a warning
STOP_S = 5.0  # for the running frame when the node is deactivated

Transition = Callable[['MatcherNode', LifecycleState], TransitionCallbackReturn]


def logged(transition: Transition) -> Transition:
    """Log the exception of a transition and keep it for the diagnostics: rclpy drops it before error processing."""
    @wraps(transition)
    def run_logged(node: MatcherNode, state: LifecycleState) -> TransitionCallbackReturn:
        try:
            return transition(node, state)
        except Exception as error:
            node.failure = f'{transition.__name__} failed, {type(error).__name__}: {error}'
            trace = '' if isinstance(error, LightglueTrtError) else f'\n{traceback.format_exc().rstrip()}'
            node.get_logger().error(f'{node.failure}{trace}\n{diagnostics.way_back(node, "configure, then activate")}')
            raise
    return run_logged


class MatcherNode(LifecycleNode):  # type: ignore[misc]
    """Subscribes to cameras' frames and publishes correspondences; while active, a Pipeline works in a thread of its own.

    Raises ConfigError when a parameter is unknown, of the wrong type or out of range.
    """

    def __init__(self, open_backend: Callable[..., Opened] = open_backend, **node_options: Any) -> None:
        with empty_lists_refused():
            super().__init__('matcher', automatically_declare_parameters_from_overrides=True, **node_options)
        self._open_backend, self._counter = open_backend, TrackCounter()
        self.left_behind = False  # a thread, which may run on after the node
        self.failure = ''  # of the last transition that failed, until the node is configured again
        self._reported = self._label  # in the last diagnostics
        self._interfaces = ExitStack()
        self._config, self.settings = declare_settings(self)
        self._cameras = [CameraInterface(self, self.settings, name, self._config) for name in self.settings.cameras]
        self._pipeline_ended = self.create_guard_condition(self._give_up)
        self._pipeline, self._active = self._new_pipeline(), False  # kept when it has ended, for its diagnostics
        self.add_on_set_parameters_callback(self._on_set_parameters)
        self._diagnostics = self.create_publisher(DiagnosticArray, '/diagnostics', 10)
        for service in self.services:
            if service.srv_type is ChangeState:
                service.callback = partial(self._on_change_state, service.callback)
        # this timer also lets SIGTERM end the executor: keep it at a second or less, of a clock that runs without /clock too
        self.create_timer(1.0, self._publish_diagnostics, clock=Clock(clock_type=ClockType.STEADY_TIME))

    # lifecycle

    def start(self) -> bool:
        """Configure and activate. False when either fails; the log says why."""
        done = TransitionCallbackReturn.SUCCESS
        return bool(self.trigger_configure() == done and self.trigger_activate() == done)

    def begin(self) -> None:
        """Start, or leave that to a lifecycle manager."""
        if self.settings.autostart:
            self.start()
        else:
            self.get_logger().info('autostart is false: waiting for a lifecycle manager to configure and activate this node')

    @logged
    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        self.failure = ''
        self._reset = self.create_service(Trigger, '~/reset', self._on_reset)
        self._interfaces.callback(self.destroy_service, self._reset)
        for camera in self._cameras:
            self._interfaces.callback(camera.close)
            camera.open()
        if line := without_effect(self):
            self.get_logger().warning(line)
        return TransitionCallbackReturn.SUCCESS

    @logged
    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Become active at once, while the networks open; the node returns to inactive when opening fails."""
        result = super().on_activate(state)
        for camera in self._cameras:
            camera.begin()
        self.get_logger().info('opening the networks: this takes seconds, and longer at the first start with new settings')
        self._pipeline, self._active = self._new_pipeline(), True
        self._pipeline.start()
        return result

    @logged
    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self.stop()
        return super().on_deactivate(state)

    @logged
    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Undo `on_configure`."""
        self.stop()
        self._interfaces.close()
        return TransitionCallbackReturn.SUCCESS

    on_shutdown = on_cleanup

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Clean up after a failed transition; the process ends when that fails, as no transition leads out of that state."""
        try:
            return self.on_cleanup(state)
        except Exception:
            raise SystemExit(f'{self.get_name()}: cleaning up after an error failed: {self.failure}') from None

    def _on_change_state(self, change: Callable[[Any, Any], Any], request: ChangeState.Request,
                         response: ChangeState.Response) -> ChangeState.Response:
        """Answer a transition that is not allowed now: before Kilted, rclpy raises rcl's error and the caller gets no answer."""
        try:
            return change(request, response)
        except RuntimeError:
            self.get_logger().warning(f'transition {request.transition.id} is refused: the node is {self._label}')
            response.success = False
            return response

    @property
    def _label(self) -> str:
        """The state of its lifecycle, as ROS calls it."""
        return str(self._state_machine.current_state[1])

    def _new_pipeline(self) -> Pipeline:
        pipeline = Pipeline(self._config, self._open_backend, self._cameras, self._counter, self._on_opened,
                            self._pipeline_ended.trigger)
        for camera, source in zip(self._cameras, pipeline.inputs, strict=True):
            camera.input = source
        return pipeline

    def stop(self) -> None:
        """Cancel the pipeline. Safe to call twice."""
        active, self._active = self._active, False
        if active and not self._pipeline.stop(STOP_S):
            self.left_behind = True
            self.get_logger().error(f'the inference thread did not end within {STOP_S:g} s: it is left behind')

    def _on_opened(self, opened: Opened) -> None:
        """Log the backend and the topics; from the pipeline's thread."""
        self.get_logger().info(f'backend: {opened.reason}')
        if opened.warning:
            self.get_logger().warning(opened.warning)
        for camera in self._cameras:
            camera.log.info(f'active: {camera.route}')

    def _on_reset(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        self._pipeline.reset(f'asked for on {self._reset.srv_name}')
        response.success, response.message = True, 'reference and tracks are forgotten with the next frame'
        return response

    def set_parameters_atomically(self, parameter_list: list[Parameter]) -> SetParametersResult:
        """Called by rclpy's parameter services."""
        try:
            check_declared(self, {each.name: each.value for each in parameter_list})
        except ConfigError as error:
            return SetParametersResult(successful=False, reason=str(error))
        return super().set_parameters_atomically(as_declared(parameter_list))

    def _on_set_parameters(self, parameters: list[Parameter]) -> SetParametersResult:
        names = {field.name for field in dataclasses.fields(MatcherConfig) if field.metadata['dynamic']}
        changes = {parameter.name: parameter.value for parameter in parameters if parameter.name in names}
        try:
            self._config = dataclasses.replace(self._config, **changes)
        except ConfigError as error:
            return SetParametersResult(successful=False, reason=str(error))
        self._pipeline.config = self._config
        for camera in self._cameras:
            camera.config = self._config
        return SetParametersResult(successful=True)

    def _give_up(self) -> None:
        """Deactivate when the pipeline has ended by itself: it has released everything, another activation may follow."""
        pipeline = self._pipeline
        if self._active and pipeline.state is State.ENDED:
            what = 'deactivated' if pipeline.was_open else 'not activated'
            self.get_logger().error(f'{what}: {pipeline.failure}\n{diagnostics.way_back(self, "activate")}')
            self.trigger_deactivate()

    def _publish_diagnostics(self) -> None:
        statuses = []
        for camera in self._cameras:
            verdict = self._verdict(camera)
            if self._pipeline.state is State.RUNNING:
                camera.log_verdict(verdict)
            if verdict.level == DiagnosticStatus.STALE and self._label != self._reported:
                self.get_logger().info(verdict.message)
            self._reported = self._label
            figures = {**self._pipeline.figures(camera.input), **camera.figures()}
            statuses.append(diagnostics.status(self, camera.name, verdict, figures))
        self._diagnostics.publish(DiagnosticArray(header=Header(stamp=self.get_clock().now().to_msg()), status=statuses))

    def _verdict(self, camera: CameraInterface) -> diagnostics.Verdict:
        pipeline = self._pipeline
        if not self._active or pipeline.state is State.ENDED:
            failure = self.failure or pipeline.failure
            return (diagnostics.Verdict(DiagnosticStatus.ERROR, failure) if failure else
                    diagnostics.idle(self, self._label))
        if pipeline.state is State.OPENING:
            return diagnostics.OPENING
        statistics = camera.input.statistics
        if statistics.silence_s > SILENCE_S:
            return diagnostics.silent(self, statistics, *camera.wanted)
        if not statistics.count.received:
            return diagnostics.Verdict(diagnostics.WARN, f'waiting for the first image: {camera.route}', logged=True)
        several = diagnostics.several_publishers(self, camera.images.topic_name)
        return diagnostics.working(statistics, camera.verdict, camera.waits, camera.fault, several)


def run(node: MatcherNode, ending: Ending) -> None:
    """Run until SIGINT or SIGTERM. For the main thread of a process that ends with it."""
    keep_memory()
    spin(node, ending, node.begin, node.stop)
    if node.left_behind:  # C++ aborts when it returns to an interpreter that ends
        rclpy.try_shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
