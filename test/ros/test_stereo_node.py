"""The stereo node over real DDS: two cameras that are together, skewed, late, silent, of unlike rates, or no pair at all."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

rclpy = pytest.importorskip('rclpy', reason='rclpy is not installed: the node is not tested')
pytest.importorskip('skimage', reason='the cameras show a photograph of scikit-image')
from diagnostic_msgs.msg import DiagnosticStatus
from sensor_msgs.msg import CameraInfo, Image
from support.ros_helpers import SECOND, header, image_message, matcher_node, opens, with_peer
from support.shared_backend import SharedBackend
from support.stereo_pairs import BASELINE, DISPARITY, HEIGHT, WIDTH, K, camera_info, wall_pairs
from support.vins_estimator import Estimator
from support.waiting import wait_for

from lightglue_trt_ros.ros.cloud_reader import matches_from_cloud
from lightglue_trt_ros.ros.parameters import NodeConfig
from lightglue_trt_ros.utils.errors import ConfigError

SETTINGS = {'image_height': HEIGHT, 'image_width': WIDTH, 'max_keypoints': 150, 'backend': 'onnxruntime', 'stereo': True}
PERIOD_NS = SECOND // 5
PAIRS = 14


class Rig:
    """A stereo node, and who publishes both cameras."""

    def __init__(self, stack: ExitStack, **parameters: Any) -> None:
        self.backends: list[SharedBackend] = []

        self.node = matcher_node(opens(SharedBackend, self.backends), SETTINGS, **parameters)
        self.peer = with_peer(stack, self.node)
        make = self.peer.node.create_publisher
        self.rights = make(Image, '/right/image', 10)
        self.infos = [make(CameraInfo, topic, 10) for topic in ('/camera_info', '/right/camera_info')]
        self.peer.wait_for_backend()
        wait_for(lambda: all(each.get_subscription_count() for each in (self.rights, self.peer.images, *self.infos)))

    def tell_cameras(self, left: dict[str, Any] | None = None, right: dict[str, Any] | None = None) -> None:
        for publisher, given in zip(self.infos, (left or {}, right or {'shift_m': BASELINE}), strict=True):
            publisher.publish(CameraInfo(header=header(SECOND), **vars(camera_info(**given))))
        time.sleep(0.3)

    def send(self, number: float, *, left: np.ndarray | None = None, right: np.ndarray | None = None, skew_ns: int = 0) -> Any:
        """A pair, or one of it; the matches of the cloud that comes of a left image that has a reference."""
        stamp, before = SECOND + round(number * PERIOD_NS), len(self.peer.clouds)
        if right is not None:
            self.rights.publish(image_message(stamp + skew_ns, right))
        if left is None:
            return None
        self.peer.images.publish(image_message(stamp, left))
        wait_for(lambda: int(self.peer.figures().get('frames processed', 0)) >= 1 if not number else len(self.peer.clouds) > before)
        return matches_from_cloud(self.peer.clouds[-1]) if number else None


def known(matches) -> np.ndarray:
    assert matches.right_keypoints is not None
    return np.isfinite(matches.right_keypoints[:, 0])


@pytest.mark.parametrize(('more', 'words'), [
    ({'cameras': ('front', 'rear')}, 'cameras has front, rear: run a node for each pair'),
    ({'depth': True}, 'stereo and depth are both true')])
def test_stereo_is_for_one_pair_of_cameras_without_depth(more, words):
    with pytest.raises(ConfigError, match=words):
        NodeConfig(stereo=True, **more)


@pytest.mark.release
def test_one_cloud_per_pair_whatever_the_right_camera_does(stack):
    """Together, a little skewed, missing, late and unreadable; no image is extracted twice."""
    rig, views = Rig(stack), wall_pairs(PAIRS)
    rig.tell_cameras()
    found = {}
    for number, (left, right) in enumerate(views):
        if number == 5:
            found[number] = rig.send(number, left=left)
            rig.send(number, right=right)  # late
        elif number == 6:
            found[number] = rig.send(number, left=left)
        elif number == 7:
            found[number] = rig.send(number, left=left, right=right[:, :-8])
        elif number == 8:
            rig.send(number - 0.5, right=right)  # one more, of a camera that is twice as fast
            found[number] = rig.send(number, left=left, right=right)
        else:
            found[number] = rig.send(number, left=left, right=right, skew_ns=(number % 3 - 1) * 4_000_000)
    for number in range(1, PAIRS):
        share = known(found[number]).mean()
        assert share == 0 if number in (5, 6, 7) else share > 0.8, number
    last = found[PAIRS - 1]
    assert np.median(np.abs(last.keypoints - last.right_keypoints - [DISPARITY, 0])[known(last)]) < 0.1
    assert last.track_lengths.max() == PAIRS
    assert (rig.peer.clouds[-1].point_step, rig.peer.clouds[-1].is_dense) == (76, False)
    extracted = rig.backends[0].extracted
    assert len(extracted) == len(set(extracted)) == PAIRS + PAIRS - 4
    wait_for(lambda: rig.peer.figures().get('stereo pairs') == str(PAIRS - 4))  # the first left image has no reference
    figures = rig.peer.figures()
    assert (figures['right images missing'], figures['right images late'], figures['right images rejected']) == ('2', '1', '1')
    assert 'match right ms (p50 / p95 / p99)' in figures
    assert rig.peer.status()[1] == 'matching'


def test_unsynchronised_clocks_are_told_with_the_skew(stack, capfd):
    rig, views = Rig(stack), wall_pairs(PAIRS)
    rig.tell_cameras()
    for number, (left, right) in enumerate(views):
        matches = rig.send(number, left=left, right=right, skew_ns=-37 * SECOND)
        assert matches is None or not known(matches).any()
    wait_for(lambda: '-37.000 s apart' in rig.peer.status()[1])
    assert '-37.000 s apart, max_stereo_skew_s is 0.005: trigger both cameras together' in capfd.readouterr().err


def test_a_silent_right_camera_costs_nothing_but_right_points(stack):
    rig, views = Rig(stack), wall_pairs(PAIRS)
    rig.tell_cameras()
    for number, (left, _) in enumerate(views):
        matches = rig.send(number, left=left)
        assert matches is None or (len(matches) > 30 and not known(matches).any())
    wait_for(lambda: f'no right image came with the last {PAIRS} left images (/right/image): ' in rig.peer.status()[1])


def test_a_right_image_that_is_the_left_one_gives_no_points(stack, capfd):
    """Half of all disparities around zero are positive: depths that mean nothing."""
    rig, views = Rig(stack), wall_pairs(4)
    rig.tell_cameras()
    for number, (left, _) in enumerate(views):
        matches = rig.send(number, left=left, right=left)
    assert not known(matches).any()
    words = 'right image dropped: it is the left image itself: give the topic of the right camera, and look at its driver'
    wait_for(lambda: rig.peer.status()[1] == words)
    assert capfd.readouterr().err.count('it is the left image itself') == 1
    black = np.zeros_like(views[0][0])
    rig.send(4, left=black, right=black)
    rig.send(5, left=views[0][0], right=views[0][1])
    assert rig.peer.figures()['right images rejected'] == '4', 'dark is another fault'


def test_swapped_images_are_told(stack, capfd):
    rig, views = Rig(stack), wall_pairs(7)
    rig.tell_cameras()
    for number, (left, right) in enumerate(views):
        matches = rig.send(number, left=right, right=left)
    assert not known(matches).any()
    assert 'left and right look swapped: ' in capfd.readouterr().err
    wait_for(lambda: '0 % of the points have a right point: left and right look swapped: ' in rig.peer.status()[1])
    assert rig.peer.status()[0] == DiagnosticStatus.WARN
    assert (rig.peer.figures()['points with right %'], rig.peer.figures()['stereo pairs']) == ('last 0, mean 0', '0')


@pytest.mark.parametrize(('right', 'words'), [
    (np.zeros((HEIGHT, WIDTH), np.uint8), 'the right images are black, with a mean gray value of 0 of 255'),
    (wall_pairs(1)[0][1], 'the right camera has sent the same picture for 1 s'),
], ids=['black', 'frozen'])
def test_a_right_camera_without_a_picture_warns_until_it_has_one(stack, right, words):
    rig, views = Rig(stack), wall_pairs(16)
    rig.tell_cameras()
    for number, (left, _) in enumerate(views[:8]):
        rig.send(number, left=left, right=right)
    wait_for(lambda: words in rig.peer.status()[1])
    assert rig.peer.status()[0] == DiagnosticStatus.WARN
    for number, pair in enumerate(views[8:], 8):
        rig.send(number, left=pair[0], right=pair[1])
    wait_for(lambda: 'the right' not in rig.peer.status()[1])


def test_cameras_that_cannot_be_used_are_told_and_mended_ones_are_taken(stack, capfd):
    rig, views, numbers = Rig(stack), wall_pairs(12), iter(range(100))

    def told(wait: bool = True) -> str:
        number = next(numbers)
        matches = rig.send(number, left=views[number][0], right=views[number][1])
        assert matches is None or bool(known(matches).any()) is not wait
        return capfd.readouterr().err

    assert 'stereo waits for a CameraInfo on /camera_info\n' in (first := told())
    assert 'stereo waits for a CameraInfo on /right/camera_info\n' in first
    wait_for(lambda: rig.peer.status()[1].startswith('stereo waits for a CameraInfo on /camera_info'))
    assert 'waits' not in told(), 'once'
    right = {'shift_m': BASELINE}
    for left, other, line in (
            ({'k': np.zeros((3, 3))}, right, '/camera_info is refused: K of the CameraInfo is [[0.0'),
            ({}, {'k': K * np.nan}, '/right/camera_info is refused: the intrinsics are not finite'),
            ({}, {**right, 'size': (100, 200)}, 'for 200x100 pixels, the images have 256x192'),
            ({}, {}, 'P[3] of the right one must be -fx * baseline'),
            (right, {}, 'left and right are swapped: by their CameraInfos the right camera stands 0.250 m'),
            ({}, {**right, 'r': 3 * np.eye(3)}, 'R of the right camera is')):
        rig.tell_cameras(left, other or {'shift_m': 0.0})
        assert line in capfd.readouterr().err + told()
    rig.tell_cameras()
    assert 'waits' not in told(wait=False)


@pytest.mark.parametrize('channels', [5, 9])
def test_vins_estimator_reads_right_observations_where_images_exist(stack, channels):
    rig, views, focal = Rig(stack, tracks_format='vins', vins_channels=channels, max_tracks=60), wall_pairs(7), K[0, 0]
    estimator = Estimator(rig.peer)
    wait_for(lambda: rig.peer.node.count_publishers('/matcher/feature'))
    rig.tell_cameras()
    for number, (left, right) in enumerate(views):
        rig.send(number, left=left, right=None if number == 3 else right)
    wait_for(lambda: len(estimator.frames) == len(views) - 1)
    assert estimator.check_tracks() >= 4
    for number, ((_, found), rights) in enumerate(zip(estimator.frames, estimator.rights, strict=True), 1):
        assert len(found) <= 60
        assert rights.keys() <= found.keys()
        if channels == 5 or number == 3:
            assert not rights
            continue
        assert len(rights) > 0.7 * len(found)
        seen, here = np.stack(list(rights.values())), np.stack([found[track] for track in rights])
        np.testing.assert_allclose(seen[:, :2], (seen[:, 3:5] - K[:2, 2]) / focal, atol=1e-5)
        assert np.median(np.abs((here - seen)[:, 0] * focal - DISPARITY)) < 0.2
        went_on = [track in estimator.rights[number - 2] for track in rights] if number > 1 else [False] * len(rights)
        assert not seen[~np.array(went_on), 5:7].any()
        if any(went_on):
            assert np.median(np.abs(seen[went_on, 5] * focal * PERIOD_NS / SECOND + 3)) < 0.2
