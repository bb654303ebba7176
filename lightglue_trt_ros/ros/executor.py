"""Run a node from its start to the signal that ends it; one exception in a callback does not end it."""

from __future__ import annotations

import argparse
import math
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import rclpy
from rclpy.executors import ConditionReachedException, ExternalShutdownException, ShutdownException, SingleThreadedExecutor
from rclpy.logging import get_logger
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from rclpy.task import Future as Signal
from rclpy.utilities import remove_ros_args
from rclpy.waitable import Waitable

from ..utils.commands import Ending
from ..utils.errors import NodeError, clear_frames, in_words

Answer = TypeVar('Answer')

FAILURES = 10  # of one callback in a row: a restart may repair it
EVENTS_S = 1.0  # between looks at events of the middleware: in each wait they would take half of its time


@contextmanager
def ros_started(parser: argparse.ArgumentParser, argv: list[str] | None, ending: Ending) -> Iterator[argparse.Namespace]:
    """Read the command line, including ROS arguments, and start ROS; at the end ROS is shut down.

    Exits with 2 and a line on stderr when ROS refuses its arguments. Only the Ending handles signals: rclpy's handlers would shut
    down the context while callbacks run.
    """
    arguments = sys.argv if argv is None else [parser.prog, *argv]
    try:
        args = parser.parse_args(remove_ros_args(arguments)[1:])
        ending.ready = True
        rclpy.init(args=arguments, signal_handler_options=SignalHandlerOptions.NO)
    except RuntimeError as error:  # rcl's, of one line that ends in places in its sources
        parser.exit(2, f'{parser.prog}: {str(error).split(", at /")[0]}{"; set ROS_LOG_DIR or HOME" * ("logging" in str(error))}\n')
    try:
        yield args
    finally:
        rclpy.try_shutdown()


class NodeExecutor(SingleThreadedExecutor):  # type: ignore[misc]
    """Logs exceptions of callbacks, with their tracebacks, and goes on. Events of the middleware come up to EVENTS_S late."""

    def __init__(self) -> None:
        super().__init__()
        self._failures: dict[Any, int] = {}  # in a row, by entity
        self._events_due, self._looks_at_events = -math.inf, False

    def can_execute(self, entity: Any) -> bool:
        """Whether the next wait includes this entity. Called by rclpy."""
        is_event = isinstance(entity, Waitable)
        self._looks_at_events |= is_event and time.monotonic() >= self._events_due
        return (self._looks_at_events or not is_event) and bool(super().can_execute(entity))

    def spin_until(self, ended: Callable[[], bool]) -> None:
        """Spin until `ended()`, checked after each `wake`. Raises NodeError when a callback fails FAILURES times in a row."""
        while True:
            entity, node, error = None, None, None
            if self._looks_at_events:
                self._events_due, self._looks_at_events = time.monotonic() + EVENTS_S, False
            try:
                task, entity, node = self.wait_for_ready_callbacks(None, None, ended)
                task()
                error = task.exception()
            except (ConditionReachedException, ExternalShutdownException, ShutdownException):
                return
            except Exception as raised:  # while it looked for what is ready
                error = raised
            if error is None:
                self._failures.pop(entity, None)
            else:
                self._failed(entity, node, error)

    def _failed(self, entity: Any, node: Node | None, error: BaseException) -> None:
        count = self._failures[entity] = self._failures.get(entity, 0) + 1
        name = f'the callback of a {type(entity).__name__}'
        with suppress(Exception):  # where it is destroyed already; timers have no name
            name += f' {getattr(entity, "topic_name", "") or entity.srv_name}'
        lines = ''.join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip()
        log = get_logger('spinning') if node is None else node.get_logger()
        log.error(f'{name} failed, {count} times in a row: {in_words(error)}\n{lines}')
        clear_frames(error)
        if count >= FAILURES:
            raise NodeError(f'{name} failed {count} times in a row, the last time with: {in_words(error)}')
        if entity is not None and not super().can_execute(entity):
            # It failed before the callback, while the message was taken: then rclpy leaves its whole group locked.
            entity._executor_event = False
            entity.callback_group.ending_execution(entity)


async def awaited(answer: Future[Answer], node: Node) -> Answer:
    """The result that another thread will give, for a callback of the node; its executor goes on meanwhile.

    The callback needs a group of its own, or one that is reentrant: others of its group wait for its end.
    """
    given, executor = Signal(), node.executor

    def wake(_: Future[Answer]) -> None:
        given.set_result(None)
        executor.wake()  # the executors of Humble and Jazzy look at callbacks that wait when something else wakes them

    answer.add_done_callback(wake)
    await given
    return answer.result()


def spin(node: Node, ending: Ending, begin: Callable[[], object] = bool, end: Callable[[], None] = lambda: None) -> None:
    """`begin`, spin until a signal comes, `end`, and destroy the node. Raises what `begin` and NodeExecutor do."""
    executor = NodeExecutor()
    executor.add_node(node)
    ending.wake = executor.wake
    try:
        begin()
        executor.spin_until(ending.asked.is_set)
    finally:
        end()
        executor.remove_node(node)
        node.destroy_node()
