"""A node from its start to the signal that ends it, or in a thread."""

from __future__ import annotations

import argparse
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import rclpy
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import install_signal_handlers, uninstall_signal_handlers
from rclpy.utilities import remove_ros_args

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def start_ros(parser: argparse.ArgumentParser, argv: list[str] | None) -> bool:
    """Read the command line, ROS's part of it too; False with a line on stderr where ROS refuses its own."""
    arguments = sys.argv if argv is None else [parser.prog, *argv]
    try:
        parser.parse_args(remove_ros_args(arguments)[1:])
        rclpy.init(args=arguments)
    except RuntimeError as error:  # rcl's, of one line that ends in places in its sources
        print(f'{parser.prog}: {re.split(r", at /", str(error))[0]}', file=sys.stderr)
        return False
    return True


def spin(node: Node, begin: Callable[[], bool], end: Callable[[], None]) -> None:
    """`begin`, spin until SIGINT or SIGTERM, `end`, and destroy the node and the context."""
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    with signals_end_it_once():
        try:
            with ended_by_signals():
                begin()
                executor.spin()
        finally:
            end()
            executor.remove_node(node)
            node.destroy_node()
            rclpy.try_shutdown()


@contextmanager
def spun_by_a_thread(node: Node) -> Iterator[None]:
    """The node's callbacks run in a thread; at the end node and context are gone."""
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    thread = threading.Thread(target=executor.spin, daemon=True)
    thread.start()
    try:
        yield
    finally:
        executor.shutdown()
        thread.join(2.0)
        node.destroy_node()
        rclpy.try_shutdown()


@contextmanager
def signals_end_it_once() -> Iterator[None]:
    """A signal ends the context and raises no KeyboardInterrupt, and what comes after that changes nothing, to the process's end.

    launch forwards the Ctrl-C that the terminal has sent to all: the second one would cut the ending short.
    """
    uninstall_signal_handlers()
    for number in SIGNALS:
        signal.signal(number, lambda *_: None)
    install_signal_handlers()
    try:
        yield
    finally:
        uninstall_signal_handlers()
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # a function would give way to the default while the interpreter ends


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """What a signal cuts short ends here, without an error.

    rclpy's handler invalidates the context at any moment; whatever uses that next, a publisher or a transition, raises RCLError.
    """
    try:
        yield
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    except Exception:
        if rclpy.ok():
            raise
