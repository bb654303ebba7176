"""Diagnostics of a node whose images can give no matches, or whose matches come from two nodes. Over real DDS."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import numpy as np
import pytest

rclpy = pytest.importorskip('rclpy', reason='rclpy is not installed: the node is not tested')
from diagnostic_msgs.msg import DiagnosticStatus
from sensor_msgs.msg import Image, PointCloud2
from support.ros_helpers import SECOND, SMALL, SpunMatcher, image_message, matcher_node, opens
from support.waiting import wait_for

from lightglue_trt_eval.times.null_backend import NullBackend
from lightglue_trt_ros.ros import diagnostics
from lightglue_trt_ros.ros.frame_statistics import FrameStatistics

pytestmark = pytest.mark.usefixtures('ros')

OK, MATCHING = DiagnosticStatus.OK, 'matching'


class ContrastBackend(NullBackend):
    """Matches nothing in images with little contrast."""

    def extract(self, image, mask=None):
        self.has_contrast = float(image.std()) > 10
        return super().extract(image, mask)

    def match(self, reference, current, thresholds):
        if self.has_contrast:
            return self._matches
        nothing = np.full_like(self._matches.indices, -1)
        return dataclasses.replace(self._matches, indices=nothing, scores=np.zeros_like(self._matches.scores))


@pytest.fixture
def matcher():
    running = SpunMatcher(matcher_node(opens(ContrastBackend), SMALL))
    yield running
    running.close()


def scene(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 255, (48, 64)).astype(np.uint8)


def send_until(matcher: SpunMatcher, picture: Callable[[int], np.ndarray], words: str, start_s: int = 10) -> tuple[bytes, str]:
    """Send pictures at 20 Hz, with such stamps, until the status has `words`; returns the status. Fails after a minute."""
    for number in range(1200):
        matcher.peer.send(image_message(start_s * SECOND + number * SECOND // 20, picture(number)))
        time.sleep(0.05)
        status = matcher.peer.status()
        if number > 40 and words in status[1]:
            return status
    raise AssertionError(f'{words} is not in {status}')


@pytest.mark.parametrize(('gray', 'look'), [(0, 'black'), (254, 'white'), (128, 'without texture')])
def test_uniform_images_warn_with_their_gray_value(matcher, gray, look):
    def covered(number: int) -> np.ndarray:
        return np.full((48, 64), gray, np.uint8) + (scene(number) > 127)

    level, message = send_until(matcher, covered, f'the images are {look}')
    assert level == DiagnosticStatus.WARN
    value = int(message.partition('mean gray value of ')[2].split()[0])
    assert abs(value - gray) <= 1
    assert 'lens cap' in message
    assert 'image_bits' in message
    assert send_until(matcher, scene, MATCHING, 30)[0] == OK


def test_textured_images_with_few_matches_warn_with_thresholds(matcher):
    def faint(number: int) -> np.ndarray:
        return np.kron(np.random.default_rng(number).integers(0, 20, (6, 8)), np.ones((8, 8), np.uint8)).astype(np.uint8)

    level, message = send_until(matcher, faint, '0 matches a frame in the last 10 frames')
    assert level == DiagnosticStatus.WARN
    assert 'look at ~/debug_image' in message
    assert 'match_threshold is 0.4, detection_threshold 0.0005' in message
    other = matcher.peer.node.create_publisher(Image, '/image', 10)
    assert '/image has 2 publishers' in send_until(matcher, faint, 'publishers', 30)[1]
    matcher.peer.node.destroy_publisher(other)
    assert send_until(matcher, scene, MATCHING, 60)[0] == OK


def test_one_picture_under_new_stamps_warns_until_it_changes(matcher, capfd):
    level, message = send_until(matcher, lambda number: scene(0), 'the same picture for 2 s')
    assert level == DiagnosticStatus.WARN
    assert 'restart its driver' in message
    assert send_until(matcher, scene, MATCHING, 30)[0] == OK
    assert capfd.readouterr().err.count('the same picture for') == 1


def test_noise_of_a_standing_camera_does_not_warn(matcher):
    def standing(number: int) -> np.ndarray:
        return scene(0) // 2 + (np.random.default_rng(number).random((48, 64)) > 0.9)

    messages = []
    for number in range(60):
        matcher.peer.send(image_message(10 * SECOND + number * SECOND // 20, standing(number)))
        time.sleep(0.05)
        messages.append(matcher.peer.status())
    assert set(messages[40:]) == {(OK, MATCHING)}


def test_a_recording_that_pauses_goes_on_without_a_warning(matcher, monkeypatch):
    monkeypatch.setattr('lightglue_trt_ros.ros.matcher.node.SILENCE_S', 0.5)
    send_until(matcher, scene, MATCHING)
    wait_for(lambda: 'no image on /image for' in matcher.peer.status()[1])
    assert send_until(matcher, lambda number: scene(number + 40), MATCHING, 20)[0] == OK


@pytest.mark.release
def test_a_second_publisher_of_the_matches_warns_until_it_ends(matcher):
    send_until(matcher, scene, MATCHING)
    other = matcher.peer.node.create_publisher(PointCloud2, '/matcher/matches', 10)
    level, message = send_until(matcher, scene, '/matcher/matches has 2 publishers', 30)
    assert level == DiagnosticStatus.WARN
    assert 'stop the other node' in message
    assert '__node:=' in message
    matcher.peer.node.destroy_publisher(other)
    assert send_until(matcher, scene, MATCHING, 60)[0] == OK


def test_a_recording_beside_a_driver_is_named_where_stamps_go_back(matcher):
    recording = matcher.peer.node.create_publisher(Image, '/image', 10)
    wait_for(recording.get_subscription_count)
    for number in range(600):
        matcher.peer.send(image_message(10 * SECOND + number * SECOND // 20, scene(number)), recording)
        time.sleep(0.05)
        matcher.peer.send(image_message(10**6 * SECOND + number * SECOND // 20, scene(number)))
        time.sleep(0.05)
        level, message = matcher.peer.status()
        if 'tracks started anew' in message:
            break
    assert level == DiagnosticStatus.WARN
    assert message.endswith('; /image has 2 publishers: stop recordings, or give each camera a topic of its own')


def test_two_cameras_on_one_topic_warn_with_their_frame_ids(matcher):
    """Both of a pair see nearly the same: matches are many, and no stamp goes back."""
    for number in range(40):
        message = image_message(10 * SECOND + number * SECOND // 20, scene(number))
        message.header.frame_id = ('left_optical', 'right_optical')[number % 2]
        matcher.peer.send(message)
        time.sleep(0.05)
    wait_for(lambda: 'alternate between left_optical and right_optical' in matcher.peer.status()[1])
    level, text = matcher.peer.status()
    assert level == DiagnosticStatus.WARN
    assert 'give each a topic of its own' in text
    assert send_until(matcher, scene, MATCHING, 30)[0] == OK


def test_a_fault_is_reported_before_the_rate_and_after_rejections():
    statistics, fault = FrameStatistics(), diagnostics.Verdict(diagnostics.WARN, 'a fault')
    for _ in range(5):
        statistics.missed(1)
    assert 'were lost' in diagnostics.working(statistics).message
    assert diagnostics.working(statistics, fault=fault) == fault
    statistics.failed('a bad frame')
    assert 'a bad frame' in diagnostics.working(statistics, fault=fault).message


def test_a_rate_does_not_hide_what_else_is_wrong():
    """On a small computer every camera is too fast, for ever."""
    now = [0.0]
    statistics, few = FrameStatistics(lambda: now[0]), diagnostics.Verdict(diagnostics.WARN, '3 matches a frame', logged=True)
    now[0] = 5.0
    for _ in range(10):
        statistics.arrived(replacing=True)
    statistics.finished({}, 1)
    slow = diagnostics.working(statistics).message
    assert slow.startswith('slower than the camera')
    assert diagnostics.working(statistics, few)[:2] == (diagnostics.WARN, f'3 matches a frame; {slow}')
    assert diagnostics.working(statistics, few).parts == (slow,), 'the other one is logged already'
    assert diagnostics.working(statistics, few._replace(logged=False)).parts == ('3 matches a frame', slow)
    assert diagnostics.working(FrameStatistics(), few) == few, 'logged where it was found'
    statistics.missed(2)
    assert diagnostics.working(statistics, few).message.startswith('3 matches a frame; 2 of 12 frames of the last 5 s were lost')
    for _ in range(3):
        statistics.tracks_restarted('a gap')
    message = diagnostics.working(statistics, few).message
    assert message.startswith('3 matches a frame; tracks started anew 3 times in 5 s; the last reason: a gap; 2 of 12 ')


def test_a_warning_that_lasts_is_not_logged_again_when_another_joins(matcher, capfd):
    camera = matcher.node._cameras[0]
    for message, *parts in (('it is foggy',), ('it is foggy; it is dark', 'it is foggy', 'it is dark'), ('it is foggy',)):
        camera.log_verdict(diagnostics.Verdict(diagnostics.WARN, message, parts=tuple(parts)))
    log = capfd.readouterr().err
    assert log.count('it is foggy') == 1
    assert 'it is foggy; ' not in log


def test_some_rejected_frames_do_not_hide_what_else_is_wrong():
    """A driver that sends each frame twice has half of them rejected, for ever."""
    statistics, few = FrameStatistics(), diagnostics.Verdict(diagnostics.WARN, '3 matches a frame')
    statistics.failed('the stamp stands still')
    rejected = diagnostics.Verdict(diagnostics.WARN, 'frames are rejected: the stamp stands still', logged=True)
    assert diagnostics.working(statistics, few) == rejected, 'what else is wrong is of earlier frames'
    statistics.finished({}, 1)
    assert diagnostics.working(statistics) == rejected
    assert diagnostics.working(statistics, few).message == f'{rejected.message}; 3 matches a frame'
    assert diagnostics.working(statistics, few._replace(logged=True)).logged, 'nothing is left for the log'
    assert diagnostics.working(statistics, fault=few).message == f'{rejected.message}; 3 matches a frame'


def test_a_camera_so_slow_that_each_frame_starts_anew_is_not_well():
    statistics = FrameStatistics()
    for _ in range(2):
        assert diagnostics.working(statistics) == diagnostics.MATCHING
        statistics.arrived()
        statistics.tracks_restarted('a gap of 5.000 s')
        statistics.finished({}, None)
    assert 'anew 2 times' in diagnostics.working(statistics).message
    statistics.finished({}, 1)
    assert diagnostics.working(statistics) == diagnostics.MATCHING, 'a frame had matches'


def test_rejected_frames_do_not_count_as_dropped():
    times = iter([0.0, *[5.0] * 99])
    statistics = FrameStatistics(lambda: next(times))
    for number in range(20):
        statistics.arrived(replacing=number < 4)
        if number > 9:
            statistics.finished({}, 1)
    message = diagnostics.working(statistics, several='/image has 2 publishers').message
    assert message.startswith('slower than the camera: 0.8 of 4.0 frames a second are dropped')
    assert message.endswith('; /image has 2 publishers'), 'each is a cause of drops'
    assert diagnostics.working(FrameStatistics(), several='2 publishers')[:2] == (OK, 'matching; 2 publishers')
    statistics.failed('the stamp stands still')
    assert diagnostics.working(statistics, several='/image has 2 publishers').message.endswith('; /image has 2 publishers')
