"""Masks at the node, over real DDS: of a file, of a topic, of both, and what becomes of those of no use."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager

import cv2
import numpy as np
import pytest

rclpy = pytest.importorskip('rclpy', reason='rclpy is not installed: the node is not tested')
from diagnostic_msgs.msg import DiagnosticStatus
from rclpy.parameter import Parameter
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image
from support.ros_helpers import SECOND, SpunMatcher, as_parameters, image_message, opens
from support.waiting import wait_for

from lightglue_trt_eval.times.null_backend import NullBackend
from lightglue_trt_ros.core.masks import load_mask
from lightglue_trt_ros.ros.cloud_reader import matches_from_cloud
from lightglue_trt_ros.ros.fading_log import FadingLog
from lightglue_trt_ros.ros.matcher.node import MatcherNode
from lightglue_trt_ros.utils.errors import ConfigError

pytestmark = pytest.mark.usefixtures('ros')

SMALL = {'image_height': 48, 'image_width': 64, 'max_keypoints': 50, 'refinement': 'none', 'mask_margin': 0}
SIZE = (96, 128)  # of the images, twice the engine's
RIGHT, UPPER = (np.zeros(SIZE, np.uint8) for _ in range(2))
RIGHT[:, 64:], UPPER[:48] = 255, 1


class Masked(NullBackend):
    """Remembers the masks that it was given."""

    def __init__(self, spec, masks: list) -> None:
        super().__init__(spec)
        self.masks = masks

    def extract(self, image, mask=None):
        self.masks.append(mask)
        return super().extract(image, mask)


class Run(SpunMatcher):
    """A node, a peer that sends frames and masks, and the lines of the log."""

    def __init__(self, log, remapped=(), **parameters) -> None:
        self.masks: list = []

        arguments = ['--ros-args', *(word for rule in remapped for word in ('-r', rule))] if remapped else None
        super().__init__(MatcherNode(opens(lambda spec: Masked(spec, self.masks)), cli_args=arguments,
                                     parameter_overrides=as_parameters({**SMALL, **parameters})))
        self._log, self.time = log, 10 * SECOND
        sensor = QoSProfile(depth=10, reliability=ReliabilityPolicy.BEST_EFFORT)
        topic = next((rule.removeprefix('mask:=') for rule in remapped), '/mask')
        self.publisher = self.peer.node.create_publisher(Image, topic, sensor)

    def mask(self, allowed, age_s: float = 0.1, encoding: str = 'mono8') -> None:
        """Send a mask, that much older than the next frame."""
        wait_for(self.publisher.get_subscription_count)
        before = self.node._cameras[0]._masks._newest
        self.publisher.publish(image_message(self.time + SECOND // 10 - round(age_s * SECOND), allowed, encoding))
        wait_for(lambda: self.node._cameras[0]._masks._newest is not before)

    def frame(self, size=SIZE, step_s: float = 0.1):
        """Send a frame; the mask that the extractor was given for it, and the matches (None for the first)."""
        self.time += round(step_s * SECOND)
        before, clouds = len(self.masks), len(self.peer.clouds)
        self.peer.send(image_message(self.time, np.random.default_rng(self.time).integers(0, 256, size).astype(np.uint8)))
        wait_for(lambda: len(self.masks) > before)
        if before:
            wait_for(lambda: len(self.peer.clouds) > clouds)
        return self.masks[-1], matches_from_cloud(self.peer.clouds[-1]) if before else None

    def said(self, about: str) -> list[str]:
        """Lines of the log with these words."""
        whole = self._log.read_text().rpartition('\n')[0].splitlines()
        return [words for line in whole if about in (words := line.partition(']: ')[2] or line)]

    def figures(self) -> str:
        count = len(self.peer.reports)
        wait_for(lambda: len(self.peer.reports) > count)
        return self.peer.figures().get('masked', '')


@contextmanager
def standard_error_in(path):
    """What goes to standard error, in a file. Unlike with capfd, nothing is lost that is written while a test reads it."""
    error = os.dup(2)
    with path.open('ab') as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(error, 2)
            os.close(error)


@pytest.fixture
def running(tmp_path):
    """A function that starts a node with these remappings and parameters."""
    with ExitStack() as stack:
        def start(*remapped, **parameters) -> Run:
            stack.enter_context(standard_error_in(log := tmp_path / 'log.txt'))  # pytest sets its own before
            run = Run(log, remapped, **parameters)
            stack.callback(run.close)
            return run

        yield start


def written(folder, allowed) -> str:
    path = folder / 'mask.png'
    cv2.imwrite(str(path), allowed)
    return str(path)


@pytest.mark.release
def test_mask_file_and_topic_combine_while_the_topic_is_fresh(running, tmp_path):
    run = running(mask_file=written(tmp_path, RIGHT[::2, ::2]))  # of the engine's size
    run.node._cameras[0]._masks._problems = FadingLog(lambda: run.time / SECOND, pause_s=0.0)
    first, _ = run.frame()
    again, matches = run.frame()
    np.testing.assert_array_equal(first, RIGHT[::2, ::2])
    assert again is first, 'which costs nothing on a device'
    assert 0 < len(matches) < 50
    assert matches.keypoints[:, 0].min() >= 63.5
    run.mask(UPPER)  # of the images' size
    both, matches = run.frame()
    np.testing.assert_array_equal(both > 0, (RIGHT > 0)[::2, ::2] & (UPPER > 0)[::2, ::2])
    assert matches.keypoints[:, 0].min() >= 63.5
    assert matches.keypoints[:, 1].max() <= 47.5
    assert run.frame()[0] is both, 'the same mask is the same array'
    assert run.frame(step_s=0.5)[0] is first, 'the topic is silent'
    assert run.frame()[0] is first
    assert run.said('the newest mask on /mask') == [
        'the newest mask on /mask is 0.70 s older than the image, mask_max_age_s is 0.5: matching goes on without it']
    assert run.figures() == (f'50 % of the image, by the mask {tmp_path}/mask.png; the newest mask on /mask is 0.80 s older than '
                             'the image, mask_max_age_s is 0.5')
    assert run.peer.status() == (DiagnosticStatus.WARN, 'the newest mask on /mask is 0.80 s older than the image, mask_max_age_s '
                                 'is 0.5: matching goes on without it')
    for _ in range(12):  # once it has come for a while, it is told of again
        run.mask(UPPER, age_s=-0.8)
        assert (run.frame(step_s=0.9)[0] > 0).sum() == (both > 0).sum()
    assert run.said('the mask on /mask is used')
    wait_for(lambda: 'mask' not in run.peer.status()[1] and ';' not in run.figures())  # few matches are left: another warning
    run.frame(step_s=0.9)
    assert len(run.said('older than the image')) == 2
    run.mask(UPPER, age_s=-0.8)
    assert run.frame()[0] is first, 'it is of another time too'
    assert run.said('0.80 s newer than the image')


def test_masks_of_file_and_topic_together_are_grown_by_the_margin(running, tmp_path):
    run = running(mask_file=written(tmp_path, RIGHT), mask_margin=3)
    allowed, _ = run.frame()
    assert not allowed[:, :35].any()
    assert allowed[:, 35:].all()
    run.mask(UPPER)
    both, _ = run.frame()
    assert np.count_nonzero(both) == both[:21, 35:].size
    assert both[:21, 35:].all()
    assert run.frame()[0] is both
    run.node.set_parameters([Parameter('mask_margin', value=0)])
    assert np.count_nonzero(run.frame()[0]) == both[:24, 32:].size


def test_mask_margin_that_leaves_nothing_is_logged_once_and_not_used(running):
    run = running(mask_margin=30)
    allowed = np.zeros(SIZE, np.uint8)
    allowed[40:60, 40:60] = 255
    run.mask(allowed)
    assert np.count_nonzero(run.frame()[0]) == 100
    assert len(run.frame()[1])
    wait_for(lambda: run.said('mask_margin = 30'))  # the line comes after the cloud
    assert run.said('mask_margin = 30') == ['the mask on /mask leaves 3.3 % of the image, and nothing of it once mask_margin = 30 '
                                            'pixels of 64x48 are added: it is used without them; lower mask_margin']


def test_without_any_mask_nothing_is_masked_and_nothing_said(running):
    run = running()
    assert run.frame()[0] is None
    assert len(run.frame()[1]) == 50
    assert run.figures() == ''
    run.mask(RIGHT)  # nobody has to have asked for it
    assert run.frame()[0] is not None
    assert run.figures() == '50 % of the image, by the mask on /mask'
    assert not run.said('mask on')


def test_masks_of_no_use_are_told_of_once_and_the_frames_go_on_without(running):
    run = running('mask:=/seen/people')
    assert run.frame()[0] is None
    assert run.frame()[0] is None
    for allowed, encoding, age_s in ((np.zeros((*SIZE, 3), np.uint8), 'rgb8', 0.1), (np.ones((30, 40), np.uint8), 'mono8', 0.1),
                                     (RIGHT, 'mono8', -3.0)):
        run.mask(allowed, age_s, encoding)
        assert run.frame()[0] is None
        assert run.frame()[0] is None
    assert [line.removesuffix(': matching goes on without it') for line in run.said('goes on without it')] == [
        'no mask has come on /seen/people (give one that never changes as mask_file)',
        'the mask on /seen/people is rgb8: send mono8, 0 where no keypoint may be',
        "the mask on /seen/people is 40x30, the images are 128x96: a mask has their size, or the engine's 64x48",
        'the newest mask on /seen/people is 3.00 s newer than the image, mask_max_age_s is 0.5']
    run.mask(np.zeros(SIZE, np.uint8))  # somebody stands before the camera
    assert len(run.frame()[1]) == 0
    wait_for(lambda: run.peer.status() == (DiagnosticStatus.WARN, 'the mask on /seen/people is 0 in the whole image: there can be '
                                           'no keypoints'))
    run.mask(RIGHT)
    assert len(run.frame()[1])
    wait_for(lambda: run.peer.status()[0] == DiagnosticStatus.OK)


def test_a_mask_that_is_missing_does_not_hide_few_matches(running):
    run = running('mask:=/seen/people')
    run.frame()
    publisher = 'no mask has come on /seen/people (give one that never changes as mask_file): matching goes on without it'
    wait_for(lambda: run.peer.status()[1] == publisher)
    run.peer.node.destroy_publisher(run.publisher)
    run.frame()
    wait_for(lambda: run.peer.status()[1] == 'no mask has come on /seen/people (nobody publishes it): matching goes on without it')
    for _ in range(10):
        run.node._cameras[0]._check.matched(0)
    wait_for(lambda: run.peer.status()[1].startswith('0 matches a frame in the last 10 frames'))


def test_a_recording_that_is_repeated_does_not_repeat_lines_about_masks(running):
    """Its stamps go back each time, by more than the pauses between lines."""
    run = running('mask:=/seen/people')
    for number in range(8):
        run.peer.send(image_message((2000 + 900 * (number % 2)) * SECOND, np.full(SIZE, number, np.uint8)))
        wait_for(lambda: len(run.masks) > number)  # noqa: B023
    assert len([line for line in run.said('no mask has come') if line.endswith('matching goes on without it')]) == 1


def test_a_file_that_does_not_fit_the_images_drops_them_and_says_why(running, tmp_path):
    run = running(mask_file=written(tmp_path, RIGHT))
    run.frame()
    run.peer.send(image_message(run.time + SECOND // 20, np.zeros((60, 80), np.uint8)))
    wait_for(lambda: run.said('dropped'))
    assert run.said('dropped')[0] == (f'frame dropped: the mask {tmp_path}/mask.png is 128x96, the images are 80x60: a mask has '
                                      "their size, or the engine's 64x48")
    assert run.frame()[1] is not None, 'the next good one works'


def test_a_node_with_a_file_of_no_use_does_not_configure_and_says_why(running, tmp_path):
    run = running(mask_file=str(tmp_path / 'missing.png'))
    assert not run.active
    assert len(run.said('on_configure failed, ConfigError: the mask')) == 1
    assert run.said('Once that is mended: ros2 lifecycle set /matcher configure, then activate (weights, ')
    wait_for(lambda: run.peer.status()[0] == DiagnosticStatus.ERROR)
    assert run.peer.status()[1].startswith('on_configure failed, ConfigError: the mask')


@pytest.mark.parametrize(('name', 'image', 'words'), [
    ('missing.png', None, r'cannot be read \(No such file'), ('wide.png', np.ones((8, 8), np.uint16), 'is uint16 with 1'),
    ('colour.png', np.ones((8, 8, 3), np.uint8), 'is uint8 with 3 channels'),
    ('photo.jpg', np.full((8, 8), 255, np.uint8), 'is a JPEG, which'),
    ('black.png', np.zeros((8, 8), np.uint8), 'is 0 everywhere, which leaves no keypoint'), ('words.png', b'words', 'is no image')])
def test_files_of_no_use_are_refused_in_one_line(tmp_path, name, image, words):
    path = tmp_path / name
    if isinstance(image, bytes):
        path.write_bytes(image)
    elif image is not None:
        cv2.imwrite(str(path), image)
    with pytest.raises(ConfigError, match=rf'^the mask .*{name} {words}.*8-bit gray PNG, 0 where no keypoint may be[^\n]*$'):
        load_mask(path)
    with pytest.raises(ConfigError):
        load_mask(str(path))
