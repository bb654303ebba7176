"""CameraInfo as drivers send it: late, changed, refused, of another camera, repeated with each image, or never."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

rclpy = pytest.importorskip('rclpy', reason='rclpy is not installed: the nodes are not tested')
from diagnostic_msgs.msg import DiagnosticStatus
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile
from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import CameraInfo
from support.ros_helpers import SECOND, SMALL, image_message, matcher_node, opens, with_peer
from support.waiting import wait_for

from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.core.frame_matcher import FrameMatcher
from lightglue_trt_ros.ros import camera_info
from lightglue_trt_ros.ros.camera_info import LINES, CameraListener
from lightglue_trt_ros.ros.cloud_reader import matches_from_cloud
from lightglue_trt_ros.ros.fading_log import FadingLog

SIZE = (48, 64)
USED = 'CameraInfo on /camera_info is used from now on'
WITHOUT = 'matching goes on without the lens: CameraInfo on /camera_info'


def message(focal: float = 60.0, second: int = 0, frame_id: str = 'camera', size: tuple[int, int] = SIZE,
            **fields: Any) -> CameraInfo:
    info = CameraInfo(height=size[0], width=size[1], distortion_model='plumb_bob', d=[0.1, 0.0, 0.0, 0.0, 0.0],
                      k=[focal, 0.0, 31.5, 0.0, focal, 23.5, 0.0, 0.0, 1.0])
    info.header.frame_id, info.header.stamp.sec = frame_id, second
    for name, value in fields.items():
        setattr(info, name, value)
    return info


ZEROS = {'k': [0.0] * 9, 'd': [0.0] * 5}


def fields_of(info: CameraInfo) -> dict[str, str]:
    """In words, without the stamp: NaN equals NaN."""
    return {name: repr(getattr(info, name)) for name in info.get_fields_and_field_types() if name != 'header'} | {
        'frame_id': info.header.frame_id}


class Listening:
    """A listener without a network: it gets messages and questions from the test."""

    def __init__(self, stack: ExitStack, *needed_by: str, images: str = '/image') -> None:
        node = rclpy.create_node('listener', cli_args=['--ros-args', '-r', f'image:={images}'])
        stack.callback(node.destroy_node)
        self.listener = CameraListener(node, needed_by)

    def hear(self, *messages: CameraInfo, number: int = 0) -> None:
        """Messages of the topic of this number."""
        for each in messages:
            self.listener._on_info(bytes(serialize_message(each)), number)

    def focal(self, frame_id: str = 'camera', size: tuple[int, int] | None = SIZE) -> float | None:
        camera = self.listener.calibration(size, frame_id)
        return None if camera is None else camera.k[0, 0]


def test_a_repeated_camera_info_is_read_once_and_another_one_at_once(stack, monkeypatch):
    read = []
    monkeypatch.setattr(camera_info, 'deserialize_message', lambda data, kind: read.append(data) or deserialize_message(data, kind))
    run = Listening(stack, 'the test')
    run.hear(*(message(second=second) for second in range(5)))
    first = run.listener.calibration(SIZE)
    assert run.listener.calibration(SIZE) is first
    assert (len(read), first.k[0, 0]) == (1, 60.0)
    run.hear(message(50.0, second=5))
    assert (run.focal(), len(read)) == (50.0, 2)
    run.hear(*(message(second=second, distortion_model='unheard of') for second in (6, 7)))
    assert (run.focal(), len(read)) == (None, 3)
    assert run.listener.problem.startswith("the test waits: CameraInfo on /camera_info is refused: distortion model 'unheard of'")
    run.hear(message(50.0, second=8))
    camera = run.listener.calibration(SIZE)
    run.hear(message(50.0, second=9, binning_x=1, binning_y=1))
    assert run.listener.calibration(SIZE) is camera, 'the same values are the same camera'
    assert len(read) == 5


def test_the_messages_of_two_cameras_on_one_topic_are_read_once(stack, monkeypatch):
    read = []
    monkeypatch.setattr(camera_info, 'deserialize_message', lambda data, kind: read.append(data) or deserialize_message(data, kind))
    run, cameras = Listening(stack), []
    for second in range(5):
        run.hear(message(60.0, second=second, frame_id='front'), message(70.0, second=second, frame_id='rear'))
        cameras.append(run.listener.calibration(SIZE, 'front'))
        assert run.focal('') == 70.0, 'the newest'
    assert len(read) == 2
    assert [camera.k[0, 0] for camera in cameras] == [60.0] * 5


def test_cameras_that_share_a_topic_are_told_apart_by_frame_id(stack, capfd):
    run = Listening(stack)
    run.hear(message(70.0, frame_id='rear'))
    assert run.focal('front') is None
    assert run.listener.description.startswith(
        "none: CameraInfo on /camera_info is of frame_id 'rear', the images are of 'front': remap camera_info")
    run.hear(message(60.0, frame_id='/front'), message(70.0, frame_id='rear'))
    assert (run.focal('front'), run.focal('rear'), run.focal('')) == (60.0, 70.0, 70.0)
    run.hear(message(70.0, second=1, frame_id='rear', **ZEROS))
    assert (run.focal('front'), run.focal('rear')) == (60.0, None)
    log = capfd.readouterr().err
    assert log.count('WARN') == 2, log
    for number in range(100):
        run.hear(message(frame_id=f'frame {number}'))
    assert len(run.listener._infos) == camera_info.FRAMES


def test_a_camera_info_without_a_frame_id_counts_for_every_image(stack):
    run = Listening(stack)
    run.hear(message(frame_id=''))
    assert run.focal('camera') == 60.0


@pytest.mark.parametrize(('of_images', 'of_info'), [
    ('camera_color_optical_frame', 'camera_color_frame'), ('/robot/camera', 'camera'), ('camera', '/camera')])
def test_endings_and_prefixes_of_a_frame_id_do_not_count(stack, of_images, of_info):
    run = Listening(stack)
    run.hear(message(40.0, frame_id='other'), message(60.0, frame_id=of_info), message(40.0, second=1, frame_id='other'))
    assert run.focal(of_images) == 60.0


def test_binning_and_roi_give_the_calibration_of_smaller_images(stack, capfd):
    run = Listening(stack)
    run.hear(message(120.0, size=(96, 128), binning_x=2, binning_y=2))
    assert run.focal() == 60.0
    assert run.focal(size=(96, 128)) == 120.0
    assert run.focal(size=(50, 70)) is None
    assert 'is refused: the CameraInfo is for 128x96 pixels, with binning_x 2' in capfd.readouterr().err


def test_rectified_images_prefer_camera_info_rect_over_camera_info(stack):
    run, p = Listening(stack, images='/camera/image_rect'), [60.0, 0.0, 31.5, 0.0, 0.0, 60.0, 23.5, 0.0, 0.0, 0.0, 1.0, 0.0]
    assert run.listener.topic == '/camera/camera_info_rect or /camera/camera_info'
    run.hear(message(p=[70.0, *p[1:]]), number=1)
    assert run.focal() == 70.0, 'P counts, not K'
    run.hear(message(p=p), number=0)
    run.hear(message(p=[70.0, *p[1:]], binning_x=1), number=1)
    assert run.focal() == 60.0
    assert run.listener.calibration(SIZE).source.startswith('CameraInfo on /camera/camera_info_rect')


def test_a_calibration_that_changes_with_every_image_does_not_fill_the_log(stack, capfd, monkeypatch):
    run = Listening(stack)
    for number in range(50):
        run.hear(message(60.0 + number))
        assert run.focal() == 60.0 + number
    assert capfd.readouterr().err.count('used from now on') == LINES
    monkeypatch.setattr(camera_info, 'IN_S', 0.0)
    for _ in range(10):
        run.focal()
    assert capfd.readouterr().err.count('used from now on: plumb_bob, fx 109.0') == 1, 'the one that lasts is logged'


@pytest.mark.parametrize('other', [{'k': [61.0, 0.0, 31.5, 0.0, 61.0, 23.5, 0.0, 0.0, 1.0]}, ZEROS], ids=['another', 'zeros'])
def test_calibrations_that_alternate_are_logged_less_and_less(stack, capfd, monkeypatch, other):
    """For an hour, two publishers at 1 Hz each; then one of them ends."""
    run, now = Listening(stack), [1000.0]
    monkeypatch.setattr('lightglue_trt_ros.ros.camera_info.time.monotonic', lambda: now[0])
    run.listener._problems = FadingLog(lambda: now[0], pause_s=0.0)
    both = message(d=[0.0] * 5), message(**{'d': [0.0] * 5, **other})  # a lens takes time
    for _ in range(3600):
        for each in both:
            now[0] += 0.5
            run.hear(each)
            run.focal()
    assert capfd.readouterr().err.count('used from now on') < 45
    assert run.listener.restless.startswith('CameraInfo on /camera_info changes again and again: fix focus')
    run.hear(message(70.0))
    for _ in range(15):
        now[0] += 1.0
        run.focal()
    assert capfd.readouterr().err.count('used from now on: plumb_bob, fx 70.0') == 1
    assert not run.listener.restless


def test_calibration_refused_for_another_size_is_logged_at_once(stack, capfd):
    run = Listening(stack)
    for size in ((96, 128), (60, 80), (96, 128)):
        run.hear(message(size=size))
        assert run.focal() is None
        assert run.focal() is None
        assert capfd.readouterr().err.count(f'{WITHOUT} is for {size[1]}x{size[0]} pixels, the images have 64x48') == 1


def test_images_that_alternate_in_size_are_no_change_of_the_calibration(stack, capfd):
    run = Listening(stack)
    run.hear(message())
    for _ in range(20):
        assert (run.focal(), run.focal(size=(96, 128))) == (60.0, None)
    assert capfd.readouterr().err.count('CameraInfo') <= LINES + 1
    assert not run.listener.restless


@pytest.mark.release
def test_two_publishers_of_a_camera_info_are_counted_in_the_diagnostics(camera):
    run = camera()
    other = run.peer.node.create_publisher(CameraInfo, '/camera_info', 10)
    wait_for(other.get_subscription_count)

    def warned() -> bool:
        for info in (message(), message(**ZEROS)):
            run.tell(info)
            run.frames(1)
        return run.peer.status() == (DiagnosticStatus.WARN, 'CameraInfo on /camera_info changes again and again: 2 publishers send '
                                     'it: stop all but that of this camera')
    wait_for(warned)


def test_lens_that_folds_is_used_and_its_fold_radius_is_logged(stack, capfd):
    run = Listening(stack)
    run.hear(message(d=[-0.5, 0.0, 0.0, 0.0, 0.0], k=[30.0, 0.0, 31.5, 0.0, 30.0, 23.5, 0.0, 0.0, 1.0]))
    assert run.focal() == 30.0
    radius = 30 * (2 / 3) * (2 / 3)**0.5  # r (1 - r^2 / 2) grows until r^2 = 2 / 3
    assert f'folds back {radius:.0f} px from the principal point' in capfd.readouterr().err


def test_what_needs_the_camera_is_named_once(stack, capfd):
    runs = Listening(stack, 'depth'), Listening(stack, '~/feature', 'stereo')
    for run in runs:
        run.listener.calibration(SIZE, needed=False)
    assert 'waits' not in capfd.readouterr().err, 'nothing would be published with it yet'
    for run in runs * 3:
        run.focal()
    log = capfd.readouterr().err
    assert log.count('depth waits for a CameraInfo on /camera_info') == 1
    assert log.count('~/feature and stereo wait for a CameraInfo on /camera_info') == 1


class Camera:
    """A matcher node on a backend that computes nothing, and a camera; `given` are the calibrations that its matcher got."""

    def __init__(self, stack: ExitStack, monkeypatch: pytest.MonkeyPatch, **parameters: Any) -> None:
        self.given: list[Intrinsics | None] = []
        process = FrameMatcher.process

        def watched(matcher: FrameMatcher, *arguments: Any, **named: Any) -> Any:
            self.given.append(named.get('camera'))
            return process(matcher, *arguments, **named)

        monkeypatch.setattr(FrameMatcher, 'process', watched)
        self.node = matcher_node(opens(), SMALL, **parameters)
        self.peer = with_peer(stack, self.node)
        self.infos = self.peer.node.create_publisher(CameraInfo, '/camera_info', 10)
        self._frames = 0
        wait_for(self.infos.get_subscription_count)
        self.peer.wait_for_backend('null')

    def tell(self, *messages: CameraInfo) -> None:
        """Publish CameraInfos, each when the node has the one before."""
        for each in messages:
            self.infos.publish(each)
            wait_for(lambda each=each: self._heard(each))

    def _heard(self, sent: CameraInfo) -> bool:
        """Whether the node's newest CameraInfo is like this one; bytes between fields may differ, and the stamp may be older."""
        newest = list(self.node._cameras[0]._calibration._infos.values())[-1:]
        return bool(newest) and fields_of(newest[0].info) == fields_of(sent)

    def frames(self, count: int = 1, size: tuple[int, int] = SIZE) -> Any:
        """Publish images, each when the one before is matched; the matches of the last one, if there are any."""
        for _ in range(count):
            done = len(self.given)
            self._frames += 1
            self.peer.send(image_message(SECOND + self._frames * SECOND // 10, np.zeros(size, np.uint8)))
            wait_for(lambda done=done: len(self.given) > done)
        wait_for(lambda: self.peer.figures().get('frames processed') == str(self._frames))
        return matches_from_cloud(self.peer.clouds[-1]) if self.peer.clouds else None

    @property
    def focals(self) -> list[float | None]:
        """Of each frame."""
        return [None if camera is None else float(camera.k[0, 0]) for camera in self.given]

    def calibration(self) -> str:
        return self.peer.figures().get('calibration', '')


@pytest.fixture
def camera(stack, monkeypatch):
    """A function that starts a Camera."""
    return lambda **parameters: Camera(stack, monkeypatch, **parameters)


def test_frames_before_camera_info_match_and_tracks_continue_after_it(camera, capfd):
    run = camera()
    before = run.frames(3)
    assert run.calibration() == 'none: no CameraInfo on /camera_info'
    run.tell(message(), message(second=1))
    after = run.frames(2)
    assert run.focals == [None] * 3 + [60.0] * 2
    assert run.given[3] is run.given[4]
    assert set(before.track_ids) == set(after.track_ids), 'pixels are what they were'
    words = 'plumb_bob, fx 60.0, fy 60.0, 64x48, cx 31.5, cy 23.5, D [0.1, 0.0, 0.0, 0.0, 0.0]'
    wait_for(lambda: run.calibration() == f'CameraInfo on /camera_info, {words}')
    log = capfd.readouterr().err
    assert log.count(f'{USED}: {words}') == 1, log
    assert 'WARN' not in log


def test_another_calibration_starts_tracks_anew_once_and_says_so(camera, capfd):
    run = camera()
    run.tell(message())
    before = run.frames(3)
    run.tell(message(50.0), message(50.0, second=1))
    after = run.frames(3)
    assert run.focals == [60.0] * 3 + [50.0] * 3
    assert not set(before.track_ids) & set(after.track_ids)
    wait_for(lambda: run.peer.figures()['resets'].startswith('1 the calibration changed'))
    log = capfd.readouterr().err
    assert log.count('tracks start anew: the calibration changed') == 1, log
    assert (log.count(f'{USED}: plumb_bob, fx 60.0'), log.count(f'{USED}: plumb_bob, fx 50.0')) == (1, 1)
    run.tell(message(60.0, d=[0.1001, 0.0, 0.0, 0.0, 0.0]))
    run.frames(2)
    assert run.focals[-1] == 60.0
    run.tell(message(60.0, d=[0.2, 0.0, 0.0, 0.0, 0.0]))
    run.frames(2)
    wait_for(lambda: run.peer.figures()['resets'].startswith('3 '))
    assert capfd.readouterr().err.count(f'{USED}: plumb_bob, fx 60.0') == 2


def test_a_focal_length_that_quivers_with_autofocus_costs_no_tracks(camera, capfd):
    run = camera()
    for number in range(12):
        run.tell(message(60.0 + 0.02 * (number % 3)))
        run.frames()
    assert run.peer.figures()['resets'] == '0'
    assert len(run.peer.clouds) == 11
    assert capfd.readouterr().err.count(USED) == 1
    run.tell(message(60.0, d=[0.1, 0.0, 0.0, 0.0, 1e-6], p=[60.0, 0.0, 31.5, -15.0, 0.0, 60.0, 23.5, 0.0, 0.0, 0.0, 1.0, 0.0]))
    run.frames()
    assert run.given[-1].shift_m == 0.25, 'another baseline counts'
    for number in range(1, 11):
        run.tell(message(60.0 + 0.05 * number))
        run.frames()
    assert run.given[-1].k[0, 0] == pytest.approx(60.5, abs=0.2), 'what creeps away counts'


def test_another_projection_of_a_pair_costs_no_tracks(camera):
    run = camera()
    run.tell(message())
    run.frames(2)
    run.tell(message(p=[60.0, 0.0, 31.5, -15.0, 0.0, 60.0, 23.5, 0.0, 0.0, 0.0, 1.0, 0.0]))
    assert run.frames().track_lengths.max() == 3
    assert run.given[2].shift_m == 0.25


BAD = {
    'wrong size': ({'size': (480, 640)}, 'is for 640x480 pixels, the images have 64x48'),
    'zeros': (ZEROS, 'is refused: '),
    'unknown model': ({'distortion_model': 'omni'}, "is refused: distortion model 'omni'"),
    'NaN': ({'k': [60.0, 0.0, np.nan, 0.0, 60.0, 23.5, 0.0, 0.0, 1.0]}, 'is refused: '),
    'memory as D': ({'d': [0.1, 1e300, 0.0, 0.0, 0.0]}, 'is refused: no lens has D = [0.1, 1e+300, 0.0, 0.0, 0.0]'),
    'other frame': ({'frame_id': 'depth'}, "is of frame_id 'depth', the images are of 'camera': remap camera_info"),
}


@pytest.mark.parametrize('name', BAD)
def test_bad_camera_info_warns_once_and_a_later_good_one_is_used(stack, capfd, name):
    fields, words = BAD[name]
    run = Listening(stack)
    run.hear(message(**fields), message(second=1, **fields))
    assert [run.focal() for _ in range(3)] == [None] * 3
    assert run.listener.description.startswith(f'none: CameraInfo on /camera_info {words}')
    log = capfd.readouterr().err
    assert log.count('WARN') == log.count(f'{WITHOUT} {words}') == 1, log
    run.hear(message())
    assert [run.focal() for _ in range(2)] == [60.0] * 2
    log = capfd.readouterr().err
    assert (log.count('WARN'), log.count(USED)) == (0, 1), log


def test_calibration_that_becomes_unusable_is_dropped_and_tracks_stay(camera, capfd):
    run = camera()
    run.tell(message())
    before = run.frames(2)
    run.tell(message(**ZEROS))
    without = run.frames(2)
    wait_for(lambda: run.calibration().startswith('none: CameraInfo on /camera_info is refused: '))
    level, words = run.peer.status()
    assert (level, words.startswith(f'{WITHOUT} is refused: ')) == (DiagnosticStatus.WARN, True)
    run.tell(message())
    again = run.frames()
    wait_for(lambda: run.peer.status() == (DiagnosticStatus.OK, 'matching'))
    assert run.focals == [60.0, 60.0, None, None, 60.0]
    assert len(without) == 50
    assert set(before.track_ids) == set(without.track_ids) == set(again.track_ids)
    run.frames(2, size=(24, 32))
    run.tell(message(30.0, size=(24, 32)))
    run.frames(1, size=(24, 32))
    assert run.focals[5:] == [None, None, 30.0], 'that of another size'
    assert capfd.readouterr().err.count(f'{WITHOUT} is for 64x48 pixels, the images have 32x24') == 1


def test_the_last_calibration_stays_when_its_publisher_ends(camera):
    run = camera()
    run.tell(message())
    run.frames()
    run.peer.node.destroy_publisher(run.infos)
    wait_for(lambda: not run.node.count_publishers('/camera_info'))
    run.frames(2)
    assert run.focals == [60.0] * 3
    assert run.calibration().startswith('CameraInfo on /camera_info, plumb_bob')


def test_a_second_camera_on_the_topic_costs_no_tracks(camera, capfd):
    run = camera()
    for second in range(4):
        run.tell(message(second=second), message(40.0, second=second, frame_id='other'))
        matches = run.frames()
    assert run.focals == [60.0] * 4
    assert matches.track_lengths.max() == 4
    assert 'WARN' not in capfd.readouterr().err


def test_where_nobody_publishes_it_one_line_says_so_after_some_seconds(camera, capfd, monkeypatch):
    monkeypatch.setattr(camera_info, 'MISSING_S', 0.3)
    run, line = camera(), 'no CameraInfo on /camera_info: matching goes on without the lens'
    run.frames(2)
    assert line not in capfd.readouterr().err
    time.sleep(0.3)
    run.frames(3)
    assert run.peer.status() == (DiagnosticStatus.OK, 'matching')
    log = capfd.readouterr().err
    assert (log.count(line), log.count('WARN')) == (1, 0), log


def test_camera_info_below_the_images_counts_after_one_next_to_them(camera):
    """As ZED cameras have it."""
    run = camera()
    below = run.peer.node.create_publisher(CameraInfo, '/image/camera_info', 10)
    wait_for(below.get_subscription_count)
    below.publish(message(40.0))
    wait_for(lambda: (run.frames(1), run.focals[-1] == 40.0)[1])
    run.tell(message(60.0))
    wait_for(lambda: (run.frames(1), run.focals[-1] == 60.0)[1])
    below.publish(message(40.0, second=1))
    run.frames(3)
    assert run.focals[-1] == 60.0


def test_a_missing_camera_info_names_those_of_other_topics(camera, capfd, monkeypatch):
    monkeypatch.setattr(camera_info, 'MISSING_S', 0.3)
    run = camera(stereo=True)
    run.peer.node.destroy_publisher(run.infos)
    run.peer.node.create_publisher(CameraInfo, '/driver/camera_info', 10)
    remedy = ('there is one on /driver/camera_info: start this node with --ros-args -r camera_info:=/driver/camera_info if it '
              'is of these images')
    wait_for(lambda: (run.frames(1), remedy in run.peer.status()[1])[1])
    assert remedy in capfd.readouterr().err


@pytest.mark.release
def test_a_camera_info_that_was_sent_once_and_is_kept_is_read(stack, camera):
    kept = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    driver = Node('driver')
    stack.callback(driver.destroy_node)
    driver.create_publisher(CameraInfo, '/camera_info', kept).publish(message(50.0))
    run = camera()
    wait_for(lambda: (run.frames(1), run.focals[-1] == 50.0)[1])
    run.tell(message(60.0))
    run.frames(1)
    assert run.focals[-1] == 60.0


@pytest.mark.parametrize('parameters', [{}, {'depth': True}, {'stereo': True}, {'tracks_format': 'vins', 'stereo': True},
                                        {'tracks_format': 'vins', 'depth': True}], ids=str)
@pytest.mark.release
def test_all_that_needs_the_camera_shares_one_subscription(camera, parameters):
    run = camera(**parameters)
    assert len(run.node.get_subscriptions_info_by_topic('/camera_info')) == 1
    run.tell(message())
    run.frames(2)
    assert run.focals == [60.0] * 2
    run.node.trigger_deactivate()
    run.node.trigger_cleanup()
    wait_for(lambda: not run.node.count_subscribers('/camera_info'))
