"""The node over real DDS, in this process, on a backend that computes nothing: interface, lifecycle, faults."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from typing import ClassVar

import cv2
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

rclpy = pytest.importorskip('rclpy', reason='rclpy is not installed: the node is not tested')
from diagnostic_msgs.msg import DiagnosticStatus
from lifecycle_msgs.msg import State, Transition
from lifecycle_msgs.srv import GetState
from rcl_interfaces.srv import DescribeParameters, SetParameters
from rclpy.parameter import Parameter
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import CompressedImage, Image
from std_srvs.srv import Trigger
from support.ros_helpers import SECOND, SMALL, Peer, SpunMatcher, header, image_message, matcher_node, opens, uniform_image
from support.waiting import wait_for

from lightglue_trt_eval.times.null_backend import NullBackend
from lightglue_trt_ros.core.config import EngineSpec, MatcherConfig
from lightglue_trt_ros.ros import diagnostics
from lightglue_trt_ros.ros.cloud_reader import matches_from_cloud
from lightglue_trt_ros.ros.fading_log import FadingLog
from lightglue_trt_ros.ros.frame_statistics import FrameStatistics
from lightglue_trt_ros.ros.matcher import subscription
from lightglue_trt_ros.utils.errors import ConfigError, DeviceMemoryError, EngineError
from lightglue_trt_ros.utils.processes import FASTDDS_VARIABLES

pytestmark = [pytest.mark.usefixtures('ros'), pytest.mark.release]


class GatedBackend(NullBackend):
    """Waits in extract while `gate` is closed, fails while `failure` is set, and remembers its threads."""

    gate, opening = threading.Event(), threading.Event()
    failure: Exception | None = None
    refuse: Exception | None = None
    threads: ClassVar[set[int]] = set()
    open_now = extracted = 0

    def __init__(self, spec: EngineSpec) -> None:
        GatedBackend.opening.wait(10)
        if GatedBackend.refuse:
            raise GatedBackend.refuse
        super().__init__(spec)
        GatedBackend.open_now += 1

    def extract(self, image, mask=None):
        GatedBackend.threads.add(threading.get_ident())
        GatedBackend.extracted += 1
        GatedBackend.gate.wait(10)
        if GatedBackend.failure:
            raise GatedBackend.failure
        return super().extract(image, mask)

    def cancel(self):
        GatedBackend.gate.set()

    def close(self):
        GatedBackend.open_now -= 1


class Running(SpunMatcher):
    """On the gated backend."""

    def __init__(self, **parameters) -> None:
        super().__init__(matcher_node(opens(GatedBackend), SMALL, **parameters))


def state_of(peer: Peer) -> int:
    return peer.call(GetState, '/matcher/get_state', GetState.Request()).current_state.id


@pytest.fixture
def running():
    """A function that starts a node with the given parameters; all are closed at the end."""
    GatedBackend.gate.set()
    GatedBackend.opening.set()
    GatedBackend.failure = GatedBackend.refuse = None
    GatedBackend.threads = set()
    started = []

    def start(**parameters):
        started.append(Running(**parameters))
        return started[-1]

    yield start
    for each in started:
        each.close()


def first_pair(peer: Peer, stamp_ns: int = 10 * SECOND) -> None:
    """Two frames a tenth of a second apart: the second one's cloud arrives."""
    before = GatedBackend.extracted
    peer.send(image_message(stamp_ns))
    wait_for(lambda: GatedBackend.extracted > before)
    peer.send(image_message(stamp_ns + SECOND // 10), clouds=1)


def test_cloud_carries_the_image_header_and_the_correspondences(running):
    peer = running().peer
    first_pair(peer)
    cloud = peer.clouds[-1]
    assert (cloud.header.stamp.sec, cloud.header.stamp.nanosec, cloud.header.frame_id) == (10, 100000000, 'camera')
    assert (cloud.height, cloud.width, cloud.point_step, cloud.is_bigendian) == (1, 50, 52, False)
    assert [field.name for field in cloud.fields] == [
        'u', 'v', 'u_ref', 'v_ref', 'score', 'track_id', 'track_length', 't_ref', 'cov_uu', 'cov_uv', 'cov_vv', 'carried',
        'image_width', 'image_height']
    matches = matches_from_cloud(cloud)
    far = np.linalg.norm(matches.reference_keypoints, axis=1) > 32  # from the corner that differs from image to image
    assert np.count_nonzero(far) > 20
    np.testing.assert_array_equal(matches.keypoints[far], matches.reference_keypoints[far])
    np.testing.assert_array_equal(matches.track_lengths, 2)
    assert matches.reference_stamp - matches.stamp == pytest.approx(-0.1)
    assert matches.image_size == (48, 64)


@pytest.mark.parametrize('reliability', [ReliabilityPolicy.RELIABLE, ReliabilityPolicy.BEST_EFFORT])
def test_default_qos_receives_from_every_publisher(running, reliability):
    peer = running().peer
    publisher = peer.node.create_publisher(Image, '/image', QoSProfile(depth=5, reliability=reliability))
    for i in range(5):
        peer.send(image_message((10 + i) * SECOND // 10), publisher)
        time.sleep(0.05)
    wait_for(lambda: peer.clouds)


def test_compressed_transport_with_colour_and_garbage(running):
    peer = running(image_transport='compressed').peer
    jpeg = cv2.imencode('.jpg', np.full((48, 64, 3), 90, np.uint8))[1]
    for i in range(2):
        message = CompressedImage(header=header(10 * SECOND + i), format='jpeg')
        message.data.frombytes(jpeg.tobytes())
        peer.send(message, clouds=i)
        time.sleep(0.1)
    assert peer.clouds[-1].width == 50
    message = CompressedImage(header=header(11 * SECOND), format='jpeg')
    message.data.frombytes(b'\xff\xd8 not a picture')
    peer.send(message)
    wait_for(lambda: 'jpeg' in peer.figures().get('last error', '').lower())


def test_replaced_frames_are_counted_as_dropped_and_not_deserialized(running, monkeypatch):
    deserialised = []
    monkeypatch.setattr(subscription, 'deserialize_message',
                        lambda data, kind: deserialised.append(1) or deserialize_message(data, kind))
    GatedBackend.gate.clear()
    peer = running().peer
    for i in range(6):
        peer.send(image_message(10 * SECOND + i))
        time.sleep(0.05)
    GatedBackend.gate.set()
    wait_for(lambda: len(peer.clouds) == 1)
    assert peer.clouds[0].header.stamp.nanosec == 5
    names = ('frames received', 'frames processed', 'frames dropped')
    wait_for(lambda: [peer.figures().get(name) for name in names] == ['6', '2', '4'])
    assert len(deserialised) == 2
    assert len(GatedBackend.threads) == 1
    assert threading.get_ident() not in GatedBackend.threads


BAD = {
    'unknown encoding': (lambda m: setattr(m, 'encoding', 'h264'), 'h264'),
    'short data': (lambda m: setattr(m, 'data', m.data[:100]), 'bytes'),
    'zero size': (lambda m: (setattr(m, 'width', 0), setattr(m, 'data', m.data[:0])), '0x48'),
    'stamp stands still': (lambda m: None, 'stands still'),
}


def test_bad_frames_are_reported_and_the_next_good_one_works(running):
    peer = running().peer
    first_pair(peer)
    for number, (spoil, word) in enumerate(BAD.values(), 1):
        message = image_message(10 * SECOND + (2 * number) * SECOND // 10)
        spoil(message)
        if word == 'stands still':
            message.header.stamp = peer.clouds[-1].header.stamp
        peer.send(message)
        wait_for(lambda word=word: word in peer.figures().get('last error', ''))
        assert peer.figures()['frames rejected'] == str(number)
        wait_for(lambda word=word: peer.status()[0] == DiagnosticStatus.WARN and word in peer.status()[1])
        clouds = peer.send(image_message(10 * SECOND + (2 * number + 1) * SECOND // 10), clouds=1)
        assert matches_from_cloud(clouds[-1]).track_lengths[0] == 2 + number, 'the bad frame cost no track'


def test_a_frame_that_comes_after_a_newer_one_costs_no_tracks(running):
    peer = running().peer
    first_pair(peer)
    peer.send(image_message(103 * SECOND // 10), clouds=1)
    peer.send(image_message(102 * SECOND // 10))
    wait_for(lambda: 'its stamp is 0.100 s before that of the last frame' in peer.status()[1])
    clouds = peer.send(image_message(104 * SECOND // 10), clouds=1)
    assert matches_from_cloud(clouds[-1]).track_lengths[0] == 4
    peer.send(image_message(102 * SECOND // 10))
    wait_for(lambda: peer.figures()['frames rejected'] == '2')
    peer.send(image_message(103 * SECOND // 10))  # two in a row: time went back
    wait_for(lambda: 'time went back by 0.100 s' in peer.figures()['resets'])


def test_frames_that_are_rejected_for_one_reason_are_logged_once(running, capfd):
    peer = running().peer
    for i in range(8):
        message = image_message(10 * SECOND + i * SECOND // 10)
        message.encoding = 'foo8'
        peer.send(message)
        time.sleep(0.2)
    wait_for(lambda: peer.figures().get('frames rejected') == '8' and 'frames are rejected: ' in peer.status()[1])
    peer.reports.clear()
    wait_for(lambda: len(peer.reports) > 1)
    assert len([line for line in capfd.readouterr().err.splitlines() if "'foo8'" in line]) == 1
    assert len(peer.status()[1]) < 230
    assert re.fullmatch(r"\d s ago: image encoding 'foo8' is none of mono8, .*", peer.figures()['last error'])


def test_frames_that_are_rejected_now_and_then_are_logged_less_and_less(running, capfd, monkeypatch):
    """As of a loose cable: each one after others that are good."""
    monkeypatch.setattr('lightglue_trt_ros.ros.fading_log.CALM_S', 0.1)
    monkeypatch.setattr('lightglue_trt_ros.ros.fading_log.PAUSES_S', (0.0, 0.5, 1000.0))
    run = running()
    run.node._cameras[0]._rejections = FadingLog(pause_s=0.0)
    run.peer.wait_for_backend('null')
    for number in range(12):
        message = image_message((10 + number) * SECOND)
        message.encoding = 'jpeg'
        run.peer.send(message)
        time.sleep(0.2)
    wait_for(lambda: run.peer.figures().get('frames rejected') == '12')
    assert capfd.readouterr().err.count("frame dropped: image encoding 'jpeg'") == 2


def test_two_sizes_in_turns_are_logged_once_and_not_with_each_image(running, capfd):
    """As of two cameras on one topic: tracks start anew with each image, and the advice about the size changes."""
    peer = running().peer
    for number in range(30):
        peer.send(image_message(SECOND + number * SECOND // 20, uniform_image(number, ((48, 200), (300, 48))[number % 2])))
        wait_for(lambda number=number: int(peer.figures().get('frames processed', 0)) > number)
    log = capfd.readouterr().err
    assert log.count('are stretched to') == 1
    assert log.count('tracks start anew: the image size changed') == 1


def test_exhausted_device_memory_deactivates_node_until_reactivated(running):
    peer = running().peer
    first_pair(peer)
    GatedBackend.failure = DeviceMemoryError('device memory is exhausted: 3 MiB are free')
    peer.send(image_message(11 * SECOND))
    wait_for(lambda: state_of(peer) == State.PRIMARY_STATE_INACTIVE)
    assert GatedBackend.open_now == 0
    wait_for(lambda: peer.status() == (DiagnosticStatus.ERROR, 'device memory is exhausted: 3 MiB are free'))
    GatedBackend.failure = None
    assert peer.change_state(Transition.TRANSITION_ACTIVATE)
    first_pair(peer, 20 * SECOND)


@pytest.mark.parametrize(('stamp_ns', 'size', 'reason'), [
    (5 * SECOND, (48, 64), 'time went back'), (20 * SECOND, (48, 64), 'gap'), (10 * SECOND + 2 * SECOND // 10, (40, 64), 'size')])
def test_interruptions_start_tracks_anew(running, stamp_ns, size, reason):
    peer = running().peer
    first_pair(peer)
    peer.send(image_message(stamp_ns, np.zeros(size, np.uint8)))
    wait_for(lambda: reason in peer.figures().get('resets', ''))
    clouds = peer.send(image_message(stamp_ns + SECOND // 10, np.zeros(size, np.uint8)), clouds=1)
    matches = matches_from_cloud(clouds[-1])
    assert set(matches.track_lengths) == {2}
    assert matches.track_ids.min() >= 50


def test_advice_on_stretched_and_dark_images():
    config = MatcherConfig()
    lines = diagnostics.advice(np.full((370, 1226), 90, np.uint8), 'mono8', config)
    assert len(lines) == 1
    assert 'set image_width to 1008 and image_height to 304' in lines[0]
    assert 'image_bits' in diagnostics.advice(np.full((480, 640), 15, np.uint8), 'mono16', config)[0]
    assert not diagnostics.advice(np.full((960, 1280), 90, np.uint8), 'mono16', config)


@pytest.mark.parametrize(('size', 'advised'), [
    ((240, 320), '320 and image_height to 240'), ((120, 160), '320 and image_height to 240'), ((360, 480), None)])
def test_small_images_that_are_enlarged_get_the_size_to_set(size, advised):
    lines = diagnostics.advice(np.full(size, 90, np.uint8), 'mono8', MatcherConfig())
    assert len(lines) == (advised is not None)
    assert all('are enlarged to 640x480, ' in line and f'set image_width to {advised}' in line for line in lines)
    assert not diagnostics.advice(np.full(size, 90, np.uint8), 'mono8', MatcherConfig(image_height=240, image_width=320))


def test_compressed_images_of_16_bits_that_are_dark_get_a_line(running, capfd):
    peer = running(image_transport='compressed').peer
    peer.wait_for_backend('null')
    samples = np.random.default_rng(0).integers(0, 1 << 12, (48, 64), np.uint16)
    png = cv2.imencode('.png', samples)[1].tobytes()
    peer.send(CompressedImage(header=header(10 * SECOND), format='mono16; png compressed ', data=png))
    wait_for(lambda: peer.figures().get('frames processed') == '1')
    assert 'the brightest pixel of this mono16 frame is 15 of 255' in capfd.readouterr().err


def test_a_thermal_camera_of_16_bits_gets_a_line_about_its_range(running, capfd):
    """A room in hundredths of a kelvin."""
    room, peer = np.linspace(28900, 30100, 64, dtype='<u2'), running().peer
    for number in range(2):
        message = Image(header=header((10 + number) * SECOND), height=48, width=64, encoding='mono16', step=128)
        message.data.frombytes(np.tile(room, (48, 1)).tobytes())
        peer.send(message)
        wait_for(lambda number=number: peer.figures().get('frames processed') == str(number + 1))
    log = capfd.readouterr().err
    assert log.count('nearly all pixels of this mono16 frame are from 112 to 117 of 255') == 1
    assert 'let the driver publish 8 bits, stretched to the range that it uses' in log


@pytest.mark.parametrize('size', [(1, 1), (1, 1000), (1000, 1), (8, 8), (20, 20_000), (20, 4000)])
def test_no_size_is_advised_that_would_be_refused(size):
    config = MatcherConfig(image_height=144, image_width=480, max_keypoints=3000)
    line, = diagnostics.advice(np.full(size, 90, np.uint8), 'mono8', config)
    assert 'are stretched to 480x144' in line
    assert 'image_width' not in line
    assert 'the networks take no size that would fit' in line


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(encoding=st.sampled_from(['mono8', 'mono16', 'bgr8', 'bayer_rggb8', 'yuyv', 'nv12', '', 'jpeg', '32FC1']),
       height=st.integers(0, 70), width=st.integers(0, 70), step=st.integers(0, 300), size=st.integers(0, 4000),
       big=st.integers(0, 1), seconds=st.integers(-5, 5))
def test_no_malformed_image_ends_the_node(storm, encoding, height, width, step, size, big, seconds):
    """Through the node's own path; the fixture then sends good images over DDS."""
    message = Image(header=header(100 * SECOND + seconds), encoding=encoding, height=height, width=width, step=step,
                    is_bigendian=big)
    message.data.frombytes(bytes(size))
    statistics = storm.node._pipeline.inputs[0].statistics
    before = statistics.count.processed + statistics.count.rejected
    storm.node._pipeline.inputs[0].offer(serialize_message(message))
    wait_for(lambda: statistics.count.processed + statistics.count.rejected > before)
    assert 'Error: ' not in statistics.last_error, 'only errors made on purpose are shown without their type'
    storm.frames += 1


@pytest.fixture
def storm(running):
    run = running()
    run.frames = 0
    yield run
    assert run.frames > 100
    first_pair(run.peer, 200 * SECOND)


def test_reset_service_forgets_the_reference(running):
    peer = running().peer
    first_pair(peer)
    assert peer.call(Trigger, '/matcher/reset', Trigger.Request()).success
    peer.send(image_message(10 * SECOND + 2 * SECOND // 10))
    time.sleep(0.2)
    clouds = peer.send(image_message(10 * SECOND + 3 * SECOND // 10), clouds=1)
    assert set(matches_from_cloud(clouds[-1]).track_lengths) == {2}
    assert len(peer.clouds) == 2


def test_debug_image_is_drawn_only_while_somebody_subscribes(running):
    peer = running().peer
    first_pair(peer)
    assert not peer.debug_images
    watcher = peer.watch_debug_image()
    wait_for(lambda: peer.node.count_subscribers('/matcher/debug_image'))
    time.sleep(0.2)
    peer.send(image_message(10 * SECOND + 2 * SECOND // 10), clouds=1)
    image = wait_for(lambda: peer.debug_images and peer.debug_images[0])
    assert (image.encoding, image.height, image.width) == ('bgr8', 48, 64)
    peer.node.destroy_subscription(watcher)


def test_parameters_have_descriptions_ranges_and_read_only_flags(running):
    peer = running().peer
    names = ['match_threshold', 'max_keypoints', 'reference', 'image_transport']
    found = peer.call(DescribeParameters, '/matcher/describe_parameters', DescribeParameters.Request(names=names)).descriptors
    assert [d.read_only for d in found] == [False, True, False, True]
    assert all(d.description for d in found)
    assert (found[0].floating_point_range[0].from_value, found[0].floating_point_range[0].to_value) == (0.0, 1.0)
    assert (found[1].integer_range[0].from_value, found[1].integer_range[0].to_value) == (1, 3840)
    assert 'previous, keyframe' in found[2].additional_constraints


def test_setting_parameters_while_it_runs(running):
    run = running()
    for name, value, ok, reason in (
            ('match_threshold', 0.5, True, ''), ('reference', 'keyframe', True, ''),
            ('match_threshold', 1.5, False, 'match_threshold is 1.5: it must lie in [0.0, 1.0]'),
            ('reference', 'first', False, 'previous, keyframe'),
            ('max_keypoints', 60, False, 'max_keypoints is read-only: start the node with --ros-args -p max_keypoints:=60'),
            ('stereo', True, False, '-p stereo:=true'), ('match_threshold', 1, True, ''),
            ('match_threshold', 'high', False, "match_threshold is 'high' (str): it must be a number in [0.0, 1.0]"),
            ('match_threshold', 2, False, 'is 2: '), ('match_threshold', True, False, 'True (bool)'), ('max_gap_s', 0.0, False, ''),
            ('image_topic', '/a', False, 'image_topic is a topic, no parameter: start the node with --ros-args -r image:=/a')):
        before = run.node.get_parameter(name).value if run.node.has_parameter(name) else None
        request = SetParameters.Request(parameters=[Parameter(name, value=value).to_parameter_msg()])
        result = run.peer.call(SetParameters, '/matcher/set_parameters', request).results[0]
        assert result.successful == ok, (name, value)
        assert reason in result.reason
        assert before is None or run.node.get_parameter(name).value == (value if ok else before)
        assert run.node.get_parameter('match_threshold').type_ == Parameter.Type.DOUBLE
    first_pair(run.peer)


def test_a_misspelt_parameter_is_refused_with_the_right_name(running):
    request = SetParameters.Request(parameters=[Parameter('match_treshold', value=0.5).to_parameter_msg()])
    result = running().peer.call(SetParameters, '/matcher/set_parameters', request).results[0]
    assert (result.successful, result.reason) == (False, "unknown setting 'match_treshold': did you mean match_threshold?")


@pytest.mark.parametrize(('parameters', 'words'), [
    ({'match_treshold': 0.2}, 'did you mean match_threshold'), ({'image_height': 479}, 'use 480'),
    ({'match_threshold': 'high'}, "'high'"), ({'qos_reliability': 'sometimes'}, 'best_effort, reliable'),
    ({'max_keypoints': 9999}, '9999'), ({'image_topic': '/a'}, '-r image:=/a'),
    ({'lightglue_weights': 'homography'}, 'is now weights')])
def test_bad_parameters_refuse_to_start_with_a_reason(parameters, words):
    with pytest.raises(ConfigError, match=words):
        matcher_node(opens(GatedBackend), SMALL, **parameters)


def test_a_node_that_is_deactivated_logs_it_once_with_the_way_back(running, capfd):
    peer = running().peer
    first_pair(peer)
    assert 'not active' not in capfd.readouterr().err
    assert peer.change_state(Transition.TRANSITION_DEACTIVATE)
    wait_for(lambda: 'not active' in peer.status()[1])
    peer.reports.clear()
    wait_for(lambda: len(peer.reports) > 1)
    log = capfd.readouterr().err
    assert log.count('not active (inactive), images are ignored: ros2 lifecycle set /matcher activate') == 1


def test_before_its_first_image_a_node_waits_and_names_topic_and_qos(running):
    peer = running().peer
    waits = 'waiting for the first image: subscribed to /image (best_effort), publishing /matcher/matches'
    wait_for(lambda: peer.status() == (DiagnosticStatus.WARN, waits))
    peer.send(image_message(10 * SECOND))
    wait_for(lambda: peer.status() == (DiagnosticStatus.OK, 'matching'))


def test_without_autostart_lifecycle_transitions_reopen_the_backend(running):
    run = running(autostart=False)
    change, opened = run.peer.change_state, GatedBackend.open_now
    assert state_of(run.peer) == State.PRIMARY_STATE_UNCONFIGURED
    assert change(Transition.TRANSITION_CONFIGURE)
    assert change(Transition.TRANSITION_ACTIVATE)
    wait_for(lambda: GatedBackend.open_now == opened + 1)
    first_pair(run.peer)
    assert change(Transition.TRANSITION_DEACTIVATE)
    assert GatedBackend.open_now == opened
    wait_for(lambda: run.peer.status()[1] == 'not active (inactive), images are ignored: ros2 lifecycle set /matcher activate')
    assert change(Transition.TRANSITION_ACTIVATE)
    first_pair(run.peer, 20 * SECOND)
    first, second = (set(matches_from_cloud(cloud).track_ids.tolist()) for cloud in run.peer.clouds)
    assert not first & second, 'track ids go on'
    assert change(Transition.TRANSITION_DEACTIVATE)
    assert change(Transition.TRANSITION_CLEANUP)
    wait_for(lambda: run.peer.status()[1].endswith(': ros2 lifecycle set /matcher configure, then activate'))
    assert change(Transition.TRANSITION_CONFIGURE)
    assert change(Transition.TRANSITION_ACTIVATE)
    first_pair(run.peer, 30 * SECOND)
    assert change(Transition.TRANSITION_ACTIVE_SHUTDOWN)
    assert GatedBackend.open_now == opened
    wait_for(lambda: run.peer.status()[1] == 'not active (finalized), images are ignored: start the node again')


@pytest.mark.parametrize(('error', 'words'), [
    (EngineError('no engine: build one'), 'no engine: build one'),
    (ModuleNotFoundError("No module named 'spox'"), "ModuleNotFoundError: No module named 'spox'")])
def test_backend_that_fails_to_open_leaves_node_inactive_with_reason(running, capfd, error, words):
    GatedBackend.refuse = error
    run = running()
    wait_for(lambda: run.peer.status() == (DiagnosticStatus.ERROR, words))
    wait_for(lambda: state_of(run.peer) == State.PRIMARY_STATE_INACTIVE)
    log = capfd.readouterr().err
    assert f'not activated: {words}' in log
    assert 'ros2 lifecycle set /matcher activate (weights, ' in log
    GatedBackend.refuse = None
    assert run.peer.change_state(Transition.TRANSITION_ACTIVATE)
    first_pair(run.peer)


def test_after_an_error_in_a_transition_nothing_is_there_twice(running, monkeypatch, capfd):
    run, start = running(autostart=False), threading.Thread.start

    def refuse(thread):
        if thread.name == 'inference':
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, 'start', refuse)
    assert run.peer.change_state(Transition.TRANSITION_CONFIGURE)
    assert not run.peer.change_state(Transition.TRANSITION_ACTIVATE)
    log = capfd.readouterr().err
    assert "on_activate failed, RuntimeError: can't start new thread" in log
    assert 'ros2 lifecycle set /matcher configure, then activate' in log
    assert state_of(run.peer) == State.PRIMARY_STATE_UNCONFIGURED
    monkeypatch.undo()
    assert run.peer.change_state(Transition.TRANSITION_CONFIGURE)
    assert run.peer.change_state(Transition.TRANSITION_ACTIVATE)
    for i in range(5):
        run.peer.send(image_message(10 * SECOND + i * SECOND // 10))
        time.sleep(0.1)
    wait_for(lambda: int(run.peer.figures().get('frames received', 0)) >= 5 and len(run.peer.clouds) >= 4)
    assert run.peer.figures()['frames received'] == '5'
    assert len(run.peer.clouds) == 4


def test_the_node_answers_and_reports_while_the_backend_is_opened(running, capfd):
    GatedBackend.opening.clear()
    run = running(autostart=False)
    assert run.peer.change_state(Transition.TRANSITION_CONFIGURE)
    started = time.monotonic()
    assert run.peer.change_state(Transition.TRANSITION_ACTIVATE)
    wait_for(lambda: run.peer.status()[1] == 'opening the networks')
    assert time.monotonic() - started < 3, 'the executor does not wait'
    log = capfd.readouterr().err
    assert 'opening the networks: ' in log
    assert 'active: ' not in log
    GatedBackend.opening.set()
    wait_for(lambda: 'null' in run.peer.figures()['backend'])
    assert 'active: subscribed to /image ' in capfd.readouterr().err
    first_pair(run.peer)


def test_frame_that_outlasts_deactivation_spares_the_next_activation(running, monkeypatch):
    monkeypatch.setattr(GatedBackend, 'cancel', lambda self: None)  # a run that cannot be cut short
    monkeypatch.setattr('lightglue_trt_ros.ros.matcher.node.STOP_S', 0.5)
    opened = GatedBackend.open_now
    run = running()
    run.peer.send(image_message(10 * SECOND))
    wait_for(lambda: run.peer.figures().get('frames processed') == '1')
    GatedBackend.gate.clear()
    run.peer.send(image_message(11 * SECOND))
    time.sleep(0.2)
    assert run.peer.change_state(Transition.TRANSITION_DEACTIVATE)
    assert run.peer.change_state(Transition.TRANSITION_ACTIVATE)
    wait_for(lambda: GatedBackend.open_now == opened + 2)
    GatedBackend.gate.set()
    wait_for(lambda: GatedBackend.open_now == opened + 1)
    first_pair(run.peer, 20 * SECOND)


@pytest.mark.parametrize('transition', [Transition.TRANSITION_CONFIGURE, 99])
def test_a_transition_that_is_not_allowed_is_refused_and_costs_nothing(running, transition, capfd):
    peer = running().peer
    assert not peer.change_state(transition)
    first_pair(peer)
    log = capfd.readouterr().err  # from Kilted on rclpy's own line
    assert f'transition {transition} is refused: ' in log or f'Unable to start transition {transition} ' in log
    assert peer.change_state(Transition.TRANSITION_DEACTIVATE)


def test_silence_is_explained(running):
    peer = running(qos_reliability='reliable').peer
    other = peer.node.create_publisher(Image, '/other/image', 1)
    wait_for(lambda: peer.status()[0] == DiagnosticStatus.WARN and 'no image on /image' in peer.status()[1])
    peer.node.destroy_publisher(other)
    peer.node.destroy_publisher(peer.images)
    shy = peer.node.create_publisher(Image, '/image', QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT))
    wait_for(lambda: 'peer publishes best effort' in peer.status()[1])
    peer.node.destroy_publisher(shy)
    another = peer.node.create_publisher(Image, '/other/image', 1)
    wait_for(lambda: 'comes on /other/image' in peer.status()[1])
    peer.node.destroy_publisher(another)
    wait_for(lambda: 'comes on /image/compressed: set image_transport to compressed' in peer.status()[1])


def test_images_that_come_again_after_a_silence_are_a_line(running, capfd, monkeypatch):
    monkeypatch.setattr('lightglue_trt_ros.ros.matcher.node.SILENCE_S', 0.5)
    peer, log, stamp = running().peer, '', 10 * SECOND
    wait_for(lambda: 'no image on /image for' in peer.status()[1])
    deadline = time.monotonic() + 4
    while 'images come again on /image: none had come for ' not in log:
        assert time.monotonic() < deadline, log
        stamp += SECOND // 10
        peer.send(image_message(stamp))
        time.sleep(0.1)
        log += capfd.readouterr().err
    assert log.count('no image on /image for') == 1


SENDER = """
import sys, time
import rclpy
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image
rclpy.init()
node = rclpy.create_node('sender')
images = node.create_publisher(Image, '/image', QoSProfile(depth=5, reliability=ReliabilityPolicy.BEST_EFFORT))
while not images.get_subscription_count():
    time.sleep(0.05)
image = Image(encoding='mono8', height=48, width=20000, step=20000)
image.data.frombytes(bytes(48 * 20000))
for i in range(120):
    image.header.stamp.sec, image.header.stamp.nanosec = divmod(10**10 + i * 33_000_000, 10**9)
    images.publish(image)
    time.sleep(0.03)
"""


def test_images_that_fast_dds_loses_are_counted_and_it_is_said_what_to_do(running):
    """960 kB through the default shared memory of 512 KiB."""
    environment = {name: value for name, value in os.environ.items() if name not in FASTDDS_VARIABLES}
    peer = running().peer
    sender = subprocess.Popen([sys.executable, '-c', SENDER], env=environment)
    try:
        wait_for(lambda: int(peer.figures().get('frames lost before', 0)) > 10, 30)
        words = ('config/fastdds_large_images.xml', 'lost')
        wait_for(lambda: peer.status()[0] == DiagnosticStatus.WARN and all(word in peer.status()[1] for word in words), 30)
    finally:
        sender.kill()
        sender.wait(30)


def test_being_slower_than_the_camera_and_repeated_resets_are_said(running):
    GatedBackend.gate.clear()
    peer = running().peer
    for i in range(6):
        peer.send(image_message(10 * SECOND + i))
        time.sleep(0.2 * diagnostics.SETTLED_S)
    GatedBackend.gate.set()
    wait_for(lambda: 'slower than the camera' in peer.status()[1])
    assert peer.status()[0] == DiagnosticStatus.WARN
    other = FrameStatistics()
    for i in range(5):
        other.arrived()
        other.finished({}, 1)
        assert (diagnostics.working(other).level == DiagnosticStatus.WARN) == (i > 2)
        other.tracks_restarted('the image size changed from 8x1 to 9x1')
    assert 'anew 5 times' in diagnostics.working(other).message
    assert diagnostics.working(other).message.endswith('; the last reason: the image size changed from 8x1 to 9x1')
