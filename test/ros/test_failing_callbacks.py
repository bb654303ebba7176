"""Exceptions in callbacks of the executables: each is logged with its traceback, the node goes on, and always failing ends it."""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

rclpy = pytest.importorskip('rclpy', reason='rclpy is not installed: the executables are not tested')
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from rcl_interfaces.srv import GetParameters, SetParameters
from rclpy.parameter import Parameter
from sensor_msgs.msg import CameraInfo, PointCloud2
from std_srvs.srv import Trigger
from support.executables import SMALL, launch_python
from support.ros_helpers import SECOND, Peer, image_message
from support.waiting import wait_for

pytestmark = pytest.mark.release

ATTACKED = """
import sys
from pathlib import Path
from lightglue_trt_ros.engines.selection import Opened

node_name, orders = sys.argv.pop(1), Path(sys.argv.pop(1))

def ordered(name):
    # The file `name` is an order to fail once, `name.always` one to fail every time.
    try:
        (orders / name).unlink()
    except FileNotFoundError:
        return (orders / f'{name}.always').exists()
    return True

def attack(owner, name, order):
    healthy = getattr(owner, name)
    def fails(*arguments, **words):
        if ordered(order):
            raise ZeroDivisionError(f'injected into {name}')
        return healthy(*arguments, **words)
    fails.__name__ = name
    setattr(owner, name, fails)

from rclpy.node import Node
create_timer = Node.create_timer
Node.create_timer = lambda self, period_s, *more, **named: create_timer(self, 0.05, *more, **named)  # diagnostics are waited for

from lightglue_trt_ros.ros.camera_info import CameraListener
attack(CameraListener, '_on_info', '_on_info')
if node_name == 'matcher':
    from lightglue_trt_eval.times.null_backend import NullBackend
    from lightglue_trt_ros.ros.matcher import node
    from lightglue_trt_ros.utils.errors import EngineError
    def opening(config, *, cancelled):
        if ordered('opening'):
            raise EngineError('no engine')
        return Opened(NullBackend(config.engine_spec('fp32')), 'null')
    node.MatcherNode.__init__.__defaults__ = (opening,)
    from lightglue_trt_ros.ros.matcher.camera_interface import CameraInterface
    from lightglue_trt_ros.ros.matcher.keyframe_topics import KeyframeTopics
    from lightglue_trt_ros.ros.matcher.mask_topic import CameraMasks
    from lightglue_trt_ros.ros.matcher.paired_images import PairedImages
    attack(CameraInterface, '_on_image', '_on_image')
    attack(CameraMasks, '_on_mask', '_on_mask')
    attack(KeyframeTopics, '_on_request', '_on_request')
    attack(PairedImages, '_on_image', 'depth')
    for name in ('_publish_diagnostics', '_on_reset', '_on_set_parameters', '_give_up', 'stop', 'on_cleanup'):
        attack(node.MatcherNode, name, name)
    from lightglue_trt_ros.cli.matcher import main
else:
    from lightglue_trt_ros.ros.odometry_node import OdometryNode
    attack(OdometryNode, '_on_matches', '_on_matches')
    attack(OdometryNode, '_report', '_report')
    from lightglue_trt_ros.cli.odometry import main
sys.exit(main())
"""


class Attacked:
    """An executable whose methods fail on order."""

    def __init__(self, node: str, folder: Path, own: bool) -> None:
        """`own`: one test has it, and ends it."""
        self.node, self.own, self._orders, self._log = node, own, folder / 'orders', folder / 'log'
        self._orders.mkdir()
        settings = ['--ros-args', *SMALL, '-p', 'keyframes:=2', '-p', 'depth:=true'] if node == 'matcher' else []
        with self._log.open('w') as log:
            self.process = launch_python(['-c', ATTACKED, node, str(self._orders), *settings], stdout=log)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def order(self, name: str) -> None:
        """`name` fails the next time that it is called, or with `.always` each time."""
        (self._orders / name).touch()

    def failed(self, name: str) -> bool:
        return not (self._orders / name).exists()

    def end(self, number: int) -> None:
        """End it with a signal: the exit code is 0."""
        self.process.send_signal(number)
        self.process.wait(20)
        assert self.process.returncode == 0, self.log

    def close(self) -> None:
        """End it, whatever the test left."""
        try:
            if not self.own:
                assert self.process.poll() is None, self.log
                self.end(signal.SIGINT if self.node == 'matcher' else signal.SIGTERM)
        finally:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope='module')
def attacked(tmp_path_factory) -> Iterator[Callable[..., Attacked]]:
    """A function that returns an executable, the one before where that is shared too; there is one at a time."""
    running: list[Attacked] = []

    def start(node: str, own: bool = False) -> Attacked:
        if not running or own or running[-1].own or running[-1].node != node:
            if running:
                running.pop().close()
            running.append(Attacked(node, tmp_path_factory.mktemp(node), own))
        return running[-1]

    yield start
    if running:
        running.pop().close()


def opened(peer: Peer, matcher: Attacked) -> Attacked:
    """The matcher, once it reports its backend itself: the one before it may have been heard too."""
    peer.reports.clear()
    peer.wait_for_backend('null')
    return matcher


def ask(peer: Peer, kind: Any, name: str, request: Any) -> None:
    """Call a service that does not answer."""
    client = peer.node.create_client(kind, name)
    assert client.wait_for_service(20)
    client.call_async(request)


def send_until(peer: Peer, done: Callable[[], object], publisher: Any, message: Any) -> None:
    """Publish again and again, as the first messages may come before their reader is found."""
    wait_for(lambda: publisher.publish(message) or time.sleep(0.05) or done(), 30)


def check_it_matches(peer: Peer) -> None:
    """Frames at 10 Hz, until a cloud comes."""
    before, stamps = len(peer.clouds), itertools.count(10 * SECOND, SECOND // 10)
    wait_for(peer.images.get_subscription_count)
    wait_for(lambda: peer.images.publish(image_message(next(stamps))) or time.sleep(0.1) or len(peer.clouds) > before)


def poke(peer: Peer, where: str) -> None:
    """Do what has the matcher call `where`."""
    if where == '_on_image':
        wait_for(peer.images.get_subscription_count)
        peer.images.publish(image_message(SECOND))
    elif where == '_on_reset':
        ask(peer, Trigger, '/matcher/reset', Trigger.Request())
    elif where == '_on_set_parameters':
        changed = Parameter('match_threshold', value=0.3).to_parameter_msg()
        ask(peer, SetParameters, '/matcher/set_parameters', SetParameters.Request(parameters=[changed]))
    elif where == '_on_request':
        ask(peer, GetParameters, '/matcher/match_keyframes', GetParameters.Request())
    elif where == 'stop':  # within on_deactivate
        assert not peer.change_state(Transition.TRANSITION_DEACTIVATE)
        assert peer.change_state(Transition.TRANSITION_CONFIGURE)
        assert peer.change_state(Transition.TRANSITION_ACTIVATE)
    elif where == '_give_up':
        assert peer.change_state(Transition.TRANSITION_DEACTIVATE)
        assert peer.change_state(Transition.TRANSITION_ACTIVATE)
        wait_for(lambda: 'no engine' in peer.status()[1])


@pytest.mark.parametrize('where', ['_on_image', '_publish_diagnostics', '_on_reset', '_on_set_parameters', '_on_mask',
                                   '_on_request', '_on_info', 'depth', '_give_up', 'stop'])
def test_exception_in_a_callback_is_logged_and_matcher_continues(peer, attacked, where):
    matcher = opened(peer, attacked('matcher'))
    before = len(matcher.log)
    matcher.order(where)
    if where == '_give_up':
        matcher.order('opening')
    if where in ('_on_mask', 'depth', '_on_info'):
        topic, message = {'_on_mask': ('/mask', image_message(SECOND)), 'depth': ('/depth', image_message(SECOND)),
                          '_on_info': ('/camera_info', CameraInfo())}[where]
        send_until(peer, lambda: matcher.failed(where), peer.node.create_publisher(type(message), topic, 1), message)
    else:
        poke(peer, where)
    wait_for(lambda: matcher.failed(where))
    wait_for(lambda: peer.change_state(Transition.TRANSITION_DEACTIVATE))
    assert peer.change_state(Transition.TRANSITION_ACTIVATE)
    check_it_matches(peer)
    assert matcher.process.poll() is None
    log = matcher.log[before:]
    assert log.count('Traceback (most recent call last)') == 1, log
    assert f'ZeroDivisionError: injected into {"_on_image" if where == "depth" else where}' in log


@pytest.mark.parametrize(('node', 'where', 'topic'), [
    ('matcher', '_on_image', '/image'), ('odometry', '_on_matches', '/matcher/matches')])
def test_a_callback_that_always_fails_ends_the_process_with_1_and_a_line(peer, attacked, node, where, topic):
    failing = attacked(node, own=True)
    failing.order(f'{where}.always')
    publisher = peer.images if node == 'matcher' else peer.node.create_publisher(PointCloud2, topic, 10)
    message = image_message(SECOND) if node == 'matcher' else PointCloud2()
    wait_for(lambda: publisher.publish(message) or time.sleep(0.02) or failing.process.poll() is not None, 60)
    log = failing.log
    assert failing.process.returncode == 1, log
    last = log.splitlines()[-1]
    assert last.startswith(f'{node}: the callback of a Subscription {topic} failed 10 times in a row, the last time with: ZeroDiv')
    assert log.count('Traceback (most recent call last)') == 10


def test_where_cleaning_up_fails_too_the_process_ends_with_1_and_a_line(peer, attacked):
    matcher = opened(peer, attacked('matcher', own=True))
    assert peer.change_state(Transition.TRANSITION_DEACTIVATE)
    matcher.order('on_cleanup.always')
    ask(peer, ChangeState, '/matcher/change_state', ChangeState.Request(transition=Transition(id=Transition.TRANSITION_CLEANUP)))
    matcher.process.wait(20)
    log = matcher.log
    assert matcher.process.returncode == 1, log
    assert log.splitlines()[-1].startswith('matcher: cleaning up after an error failed: ')


@pytest.mark.parametrize('where', ['_on_matches', '_report', '_on_info'])
def test_exception_in_a_callback_is_logged_and_odometry_continues(peer, attacked, where):
    odometry = attacked('odometry')
    clouds = peer.node.create_publisher(PointCloud2, '/matcher/matches', 10)
    infos = peer.node.create_publisher(CameraInfo, '/camera_info', 10)
    wait_for(clouds.get_subscription_count, 30)
    wait_for(infos.get_subscription_count)
    wait_for(lambda: peer.reports, 30)
    before = len(odometry.log)
    odometry.order(where)
    send_until(peer, lambda: odometry.failed(where), infos if where == '_on_info' else clouds,
               CameraInfo() if where == '_on_info' else PointCloud2())
    peer.reports.clear()
    send_until(peer, lambda: 'cloud lacks u, v' in peer.status()[1], clouds, PointCloud2())
    assert odometry.process.poll() is None
    log = odometry.log[before:]
    assert log.count('Traceback (most recent call last)') == 1, log
    assert f'ZeroDivisionError: injected into {where}' in log
