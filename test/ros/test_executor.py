"""The executor of the nodes: what callbacks raise, and what is raised before they are called."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from contextlib import contextmanager

import pytest

rclpy = pytest.importorskip('rclpy', reason='rclpy is not installed: the nodes are not tested')
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.waitable import Waitable
from std_msgs.msg import Header
from support.waiting import wait_for

from lightglue_trt_ros.ros.executor import EVENTS_S, FAILURES, NodeExecutor, awaited
from lightglue_trt_ros.ros.matcher.subscription import SubscriptionEventCallbacks  # type: ignore[attr-defined]  # of either release
from lightglue_trt_ros.utils.errors import NodeError

pytestmark = [pytest.mark.usefixtures('ros'), pytest.mark.release]


class Listener(Node):
    """A node that fails as often as `failures` says, and a publisher that it hears."""

    def __init__(self) -> None:
        super().__init__('listener')
        self.heard: list[str] = []
        self.failures = 0
        self.create_subscription(Header, 'topic', self._on_header, 10)
        self.publisher = self.create_publisher(Header, 'topic', 10)

    def _on_header(self, header: Header) -> None:
        if self.failures > 0:
            self.failures -= 1
            raise ZeroDivisionError('injected')
        self.heard.append(header.frame_id)

    def say(self, *names: str) -> None:
        wait_for(self.publisher.get_subscription_count)
        for name in names:
            self.publisher.publish(Header(frame_id=name))


@contextmanager
def spinning():
    """A listener and its executor in a thread; what it raised is in `ends`."""
    node, executor, ended = Listener(), NodeExecutor(), threading.Event()
    executor.add_node(node)
    executor.ends = []

    def spin() -> None:
        try:
            executor.spin_until(ended.is_set)
        except NodeError as error:
            executor.ends.append(str(error))

    thread = threading.Thread(target=spin)
    thread.start()
    yield node, executor
    ended.set()
    executor.wake()
    thread.join(5)
    assert not thread.is_alive()
    node.destroy_node()


def test_only_consecutive_failures_end_the_executor():
    with spinning() as (node, executor):
        for _ in range(3):
            node.failures = FAILURES - 1
            node.say(*map(str, range(FAILURES)))
            wait_for(lambda: node.heard and node.heard[-1] == str(FAILURES - 1))
            node.heard.clear()
        assert not executor.ends
        node.failures = 1000
        node.say(*map(str, range(FAILURES)))
        assert f'/topic failed {FAILURES} times in a row, the last time with: ZeroDivision' in wait_for(lambda: executor.ends)[0]


def test_a_message_that_cannot_be_taken_costs_that_message_alone(monkeypatch, capfd):
    """As of a middleware that cannot read it: rclpy then leaves the callback's group locked, and the node was deaf."""
    with spinning() as (node, executor):
        take, spoilt = executor._take_subscription, ['one']

        def fails(subscription):
            taken = take(subscription)
            if spoilt:
                raise RuntimeError(f'{spoilt.pop()} cannot be read')
            return taken

        monkeypatch.setattr(executor, '_take_subscription', fails)
        node.say('one', 'two')
        wait_for(lambda: node.heard == ['two'])
    assert 'RuntimeError: one cannot be read' in capfd.readouterr().err


def test_events_of_the_middleware_come_though_few_waits_are_for_them(monkeypatch):
    """A subscription that no publisher's QoS satisfies, while a timer wakes the node 50 times a second."""
    incompatible, waits, with_events = [], [], []
    with spinning() as (node, executor):
        node.create_timer(0.02, lambda: waits.append(1))
        quiet = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
        demanding = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
        node.create_subscription(Header, 'quiet', print, demanding,
                                 event_callbacks=SubscriptionEventCallbacks(incompatible_qos=incompatible.append))
        event = list(node.waitables)[-1]
        can_execute = executor.can_execute
        monkeypatch.setattr(executor, 'can_execute', lambda entity: can_execute(entity) and (
            entity is not event or with_events.append(1) is None))
        began = time.monotonic()
        node.create_publisher(Header, 'quiet', quiet)
        wait_for(lambda: incompatible)
        wait_for(lambda: time.monotonic() > began + 3 * EVENTS_S)
        assert isinstance(event, Waitable)
    assert len(with_events) <= 6 < 40 < len(waits)


def test_an_answer_of_another_thread_is_awaited_while_callbacks_go_on():
    """No timer wakes this node: only the answer itself does."""
    with spinning() as (node, _):
        answers: list[Future] = []
        got: list[str] = []

        async def ask(header: Header) -> None:
            answers.append(Future())
            try:
                got.append(await awaited(answers[-1], node))
            except ZeroDivisionError as error:
                got.append(str(error))

        node.create_subscription(Header, 'topic', ask, 10, callback_group=ReentrantCallbackGroup())
        wait_for(lambda: node.publisher.get_subscription_count() == 2)
        node.say('a', 'b')
        wait_for(lambda: len(answers) == 2 and node.heard == ['a', 'b'])
        time.sleep(0.3)
        began = time.process_time()
        time.sleep(0.5)
        assert time.process_time() - began < 0.2, 'it sleeps while it waits'
        answers[1].set_result('second')
        wait_for(lambda: got == ['second'], 2)
        answers[0].set_exception(ZeroDivisionError('first'))
        wait_for(lambda: got == ['second', 'first'], 2)
