"""~/match_keyframes over real DDS while frames, depth, parameters, diagnostics, lifecycle and other requests go on."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack

import numpy as np
import pytest

rclpy = pytest.importorskip('rclpy', reason='rclpy is not installed: the node is not tested')
from lifecycle_msgs.msg import Transition
from rcl_interfaces.srv import GetParameters
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.qos import DurabilityPolicy, QoSProfile
from sensor_msgs.msg import CameraInfo, Image, PointCloud2
from support.ros_helpers import SECOND, Peer, depth_message, header, image_message, matcher_node, opens, with_peer
from support.waiting import wait_for

from lightglue_trt_eval.times.null_backend import NullBackend
from lightglue_trt_ros.core.types import HostFeatures, Matches
from lightglue_trt_ros.ros.executor import FAILURES, NodeExecutor
from lightglue_trt_ros.ros.matcher import pipeline
from lightglue_trt_ros.ros.matcher.keyframe_topics import COLUMNS
from lightglue_trt_ros.utils.errors import DeviceMemoryError

pytestmark = pytest.mark.release

HEIGHT, WIDTH = 48, 64
SETTINGS = {'image_height': HEIGHT, 'image_width': WIDTH, 'max_keypoints': 50, 'refinement': 'none', 'keyframes': 4,
            'keyframe_min_ratio': 1.0, 'carry_frames': 0}
ACTIVE, INACTIVE, OFF = Transition.TRANSITION_ACTIVATE, Transition.TRANSITION_DEACTIVATE, Transition.TRANSITION_ACTIVE_SHUTDOWN


class ShiftedBackend(NullBackend):
    """Keypoints are as far to the right as the image is bright; a closed `gate` holds up extraction, `failure` ends a match."""

    def __init__(self, spec) -> None:
        super().__init__(spec)
        self.gate, self.busy = threading.Event(), threading.Event()
        self.gate.set()
        self.missed = 0
        self.failure: Exception | None = None
        self.extract_failure: Exception | None = None

    def extract(self, image, mask=None):
        self.busy.set()
        self.gate.wait(20)
        if self.extract_failure is not None:
            raise self.extract_failure
        keypoints = self._features.keypoints + np.array([image[0, 0], 0], np.float32)
        return HostFeatures(keypoints, self._features.scores, np.zeros((len(keypoints), 256), np.float32))

    def keep(self, features):
        if self.failure is None:
            return features
        raise self.failure

    def match(self, reference, current, thresholds):
        if self.failure is not None:
            raise self.failure
        self.missed += 1  # another keypoint each time: each frame is a keyframe
        indices = self._matches.indices.copy()
        indices[self.missed % len(indices)] = -1
        return Matches(indices, self._matches.scores, 0)


class Asked:
    """A node, its backend, and a client of its ~/match_keyframes."""

    def __init__(self, ends: ExitStack, camera: str = '', **parameters) -> None:
        self.backends: list[ShiftedBackend] = []
        self.node = matcher_node(opens(ShiftedBackend, self.backends), SETTINGS, **parameters)
        self.peer = with_peer(ends, self.node)
        self.client = self.peer.node.create_client(GetParameters, f'/matcher/{camera}match_keyframes')
        assert self.client.wait_for_service(10)
        self.peer.wait_for_backend('null', 10)

    @property
    def backend(self) -> ShiftedBackend:
        """The one that is open."""
        return self.backends[-1]

    def show(self, number: int, gray: int = 0, publisher=None) -> None:
        """Publish a frame, of its own stamp."""
        self.peer.send(image_message(SECOND + number * SECOND // 10, np.full((HEIGHT, WIDTH), gray, np.uint8)), publisher)

    def begin(self) -> None:
        """Two frames, of which the second one is a keyframe."""
        self.show(0)
        wait_for(lambda: self.figure('frames processed') == 1)
        self.show(1)
        wait_for(lambda: self.figure('frames processed') == 2)

    def hold(self) -> None:
        """A third frame, which is not done before the gate of the backend opens."""
        self.backend.gate.clear()
        self.backend.busy.clear()
        self.show(2)
        assert self.backend.busy.wait(5)

    def figure(self, name: str) -> int:
        return int(self.peer.figures().get(name, 0))

    def ask(self, *stamps: str):
        return self.client.call_async(GetParameters.Request(names=stamps or ('1.1', '1.1')))


def answered(future):
    wait_for(future.done, 10)
    return future.result().values


def test_parameters_images_and_diagnostics_go_on_while_requests_wait(stack):
    asked = Asked(stack)
    asked.begin()
    asked.hold()
    waiting = [asked.ask() for _ in range(8)]  # DDS keeps ten of a client's requests
    time.sleep(0.3)
    began, reports = time.monotonic(), len(asked.peer.reports)
    value = asked.peer.call(GetParameters, '/matcher/get_parameters', GetParameters.Request(names=['keyframes'])).values[0]
    assert value.integer_value == 4
    asked.show(3)
    wait_for(lambda: asked.figure('frames received') == 4)
    wait_for(lambda: len(asked.peer.reports) > reports + 3)
    assert time.monotonic() - began < 4
    assert not any(future.done() for future in waiting)
    asked.backend.gate.set()
    for future in waiting:
        assert len(answered(future)) == len(COLUMNS)
    assert asked.figure('frames rejected') == 0


def test_a_request_with_each_frame_costs_no_frame_its_depth(stack):
    asked = Asked(stack, depth=True, keyframes=30)
    info, depths = (asked.peer.node.create_publisher(kind, topic, 10) for kind, topic in ((CameraInfo, '/camera_info'),
                                                                                         (Image, '/depth')))
    wait_for(lambda: info.get_subscription_count() and depths.get_subscription_count())
    info.publish(CameraInfo(header=header(SECOND), height=HEIGHT, width=WIDTH, distortion_model='plumb_bob', d=[0.0] * 5,
                            k=[60.0, 0.0, 32.0, 0.0, 60.0, 24.0, 0.0, 0.0, 1.0]))
    time.sleep(0.3)
    depth = np.full((HEIGHT, WIDTH), 2000, np.uint16)
    futures = []
    for number in range(20):
        asked.show(number)
        if number > 2:
            futures.append(asked.ask())
        time.sleep(0.008)
        depths.publish(depth_message(SECOND + number * SECOND // 10, depth))
        time.sleep(0.05)
    wait_for(lambda: asked.figure('frames processed') >= 18)
    assert all(len(answered(future)) == len(COLUMNS) for future in futures)
    known = [np.isfinite(np.frombuffer(cloud.data, np.float32)[2]) for cloud in asked.peer.clouds]
    assert len(known) >= 17
    assert np.mean(known) > 0.9


def test_waiting_requests_are_answered_on_deactivation_and_shut_down(stack, capfd):
    asked = Asked(stack)
    for transition in (INACTIVE, OFF):
        asked.begin()
        asked.hold()
        waiting = [asked.ask() for _ in range(5)]
        time.sleep(0.3)
        threading.Timer(0.5, asked.backend.gate.set).start()
        assert asked.peer.change_state(transition)
        for future in waiting:
            assert answered(future)[0].string_value == 'not answered: the node was deactivated'
        if transition == INACTIVE:
            assert 'the node is not active' in answered(asked.ask())[0].string_value
            before = asked.figure('frames processed')
            assert asked.peer.change_state(ACTIVE)
            wait_for(lambda: asked.peer.status()[1] in ('matching', 'waiting for images') or not asked.figure('frames processed'))
            assert before
    wait_for(lambda: not asked.client.service_is_ready())
    assert 'Traceback' not in capfd.readouterr().err


def test_requests_that_wait_are_answered_when_the_matcher_ends_by_itself(stack):
    asked = Asked(stack)
    asked.begin()
    asked.backend.gate.clear()
    asked.backend.busy.clear()
    asked.backend.extract_failure = DeviceMemoryError('no memory is left')
    asked.show(2)
    assert asked.backend.busy.wait(5)
    waiting = [asked.ask() for _ in range(3)]
    time.sleep(0.3)
    asked.backend.gate.set()
    for future in waiting:
        assert answered(future)[0].string_value == 'not answered: the matcher has ended, no memory is left'
    assert 'the node is not active' in answered(asked.ask())[0].string_value


@pytest.mark.parametrize(('error', 'words'), [
    (np.linalg.LinAlgError('Eigenvalues did not converge'), 'LinAlgError: Eigenvalues did not converge'),
    (ValueError('cannot reshape'), 'ValueError: cannot reshape'),
    (RuntimeError('boom'), 'RuntimeError: boom'),
    (DeviceMemoryError('no memory is left'), 'no memory is left')])
def test_errors_of_a_match_are_answered_as_what_they_are_and_end_nothing(stack, capfd, error, words):
    asked = Asked(stack)
    asked.begin()
    asked.backend.failure = error
    for _ in range(FAILURES + pipeline.MAX_FAILURES):
        (value,) = answered(asked.ask())
        assert words in value.string_value
        assert 'give the stamps' not in value.string_value
    asked.backend.failure = None
    assert len(answered(asked.ask())) == len(COLUMNS)
    asked.show(2)
    wait_for(lambda: asked.figure('frames processed') == 3)
    assert asked.figure('frames rejected') == 0
    assert capfd.readouterr().err.count('matching two keyframes failed') <= 1


def test_more_requests_than_may_wait_are_refused_in_words(stack, monkeypatch):
    monkeypatch.setattr(pipeline, 'MOST_QUESTIONS', 3)
    asked = Asked(stack)
    asked.begin()
    asked.hold()
    waiting = [asked.ask() for _ in range(5)]
    wait_for(lambda: sum(future.done() for future in waiting) == 2)
    for future in waiting:
        if future.done():
            assert future.result().values[0].string_value.startswith('3 requests wait already')
    asked.backend.gate.set()
    assert sum(len(answered(future)) == len(COLUMNS) for future in waiting) == 3


def test_names_that_are_no_stamps_are_quoted_in_a_line(stack):
    asked = Asked(stack)
    for names in (['1'], ['a', 'b'], ['1', '2', '3'], [str(number) * 9 for number in range(10_000)], ['x' * 10_000, '1']):
        (value,) = answered(asked.ask(*names))
        assert 'give the stamps of two keyframes' in value.string_value
        assert len(value.string_value) < 300


def test_each_camera_answers_for_its_own_keyframes(stack):
    asked = Asked(stack, 'rear/', cameras=['front', 'rear'])
    front = asked.peer.node.create_client(GetParameters, '/matcher/front/match_keyframes')
    assert front.wait_for_service(10)
    for camera, grays in (('front', (0, 10, 20)), ('rear', (0, 50, 150))):
        publisher, clouds = asked.peer.node.create_publisher(Image, f'/{camera}/image', 10), []
        asked.peer.node.create_subscription(PointCloud2, f'/matcher/{camera}/matches', clouds.append, 10)
        wait_for(lambda camera=camera: asked.peer.node.count_publishers(f'/matcher/{camera}/matches'))
        time.sleep(0.3)
        for number, gray in enumerate(grays):
            asked.show(number, gray, publisher)
            wait_for(lambda number=number, clouds=clouds: len(clouds) >= number) if number else time.sleep(0.5)
    names = GetParameters.Request(names=['1.1', '1.2'])
    for client, shift in ((front, 10), (asked.client, 100)) * 2:
        answer = {name: np.array(value.double_array_value)
                  for name, value in zip(COLUMNS, answered(client.call_async(names)), strict=True)}
        np.testing.assert_allclose(answer['u'] - answer['u_ref'], shift, atol=1e-3)


def test_who_comes_later_gets_the_keyframes_that_are_kept(stack):
    asked = Asked(stack)
    for number in range(7):
        asked.show(number, 20 * number)
        wait_for(lambda number=number: asked.figure('frames processed') == number + 1)
    late: list[PointCloud2] = []
    kept = QoSProfile(depth=10, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    asked.peer.node.create_subscription(PointCloud2, '/matcher/keyframe', late.append, kept)
    wait_for(lambda: len(late) == 4)
    stamps = [f'{cloud.header.stamp.sec}.{cloud.header.stamp.nanosec:09d}' for cloud in late]
    assert stamps == ['1.300000000', '1.400000000', '1.500000000', '1.600000000']
    assert len(answered(asked.ask(stamps[0], stamps[-1]))) == len(COLUMNS)
    assert 'kept are 4' in answered(asked.ask('1.2', stamps[-1]))[0].string_value


def test_node_executor_answers_requests_and_stops_while_some_wait(ros, capfd):
    backends: list[ShiftedBackend] = []
    node = matcher_node(opens(ShiftedBackend, backends), SETTINGS)
    peer, executor, ended = Peer(), NodeExecutor(), threading.Event()
    executor.add_node(node)
    thread = threading.Thread(target=executor.spin_until, args=(ended.is_set,))
    thread.start()
    try:
        assert node.trigger_configure() == node.trigger_activate() == TransitionCallbackReturn.SUCCESS
        client = peer.node.create_client(GetParameters, '/matcher/match_keyframes')
        assert client.wait_for_service(10)
        wait_for(lambda: backends)
        for number in range(2):
            peer.send(image_message(SECOND + number * SECOND // 10, np.zeros((HEIGHT, WIDTH), np.uint8)), clouds=number)
            time.sleep(0.3)
        request = GetParameters.Request(names=['1.1', '1.1'])
        assert len(answered(client.call_async(request))) == len(COLUMNS)
        backends[0].gate.clear()
        backends[0].busy.clear()
        peer.send(image_message(2 * SECOND, np.zeros((HEIGHT, WIDTH), np.uint8)))
        assert backends[0].busy.wait(5)
        waiting = [client.call_async(request) for _ in range(3)]
        time.sleep(0.3)
    finally:
        ended.set()
        executor.wake()
        thread.join(5)
        assert not thread.is_alive()
        backends[0].gate.set()
        node.stop()
        executor.remove_node(node)
        node.destroy_node()
        peer.close()
    assert not any(future.done() and len(future.result().values) > 1 for future in waiting)
    output = capfd.readouterr().err
    assert 'Traceback' not in output
    assert 'never' not in output
