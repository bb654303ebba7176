"""play_bag over real DDS, in a process of its own: every frame, in order, with its stamp, at its time, and gone when told."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest

rclpy = pytest.importorskip('rclpy', reason='playing needs ROS 2 (rclpy)')
pytest.importorskip('rosbags', reason='bags need the Python package rosbags')

from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import CameraInfo, CompressedImage, Image
from support.bags import IMAGE, serialised_images, write_messages
from support.camera_info_bags import Images, Info, K, camera_bag
from support.executables import environment
from support.image_recordings import image_folder, pinhole

from lightglue_trt_eval.cli.make_bag import main as make_bag
from lightglue_trt_ros.cli.play_bag import main
from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.datasets.bag_writer import write_bag
from lightglue_trt_ros.datasets.recordings import open_recording
from lightglue_trt_ros.ros.player import LATE_S, PREFETCH, PacketSource, Punctuality
from lightglue_trt_ros.utils.processes import FASTDDS_CHOICES

START = 1_700_000_000_123_456_789
PERIOD = 20_000_000
CAMERA = Intrinsics(64, 48, np.array([[50.0, 0, 32], [0, 51.0, 24], [0, 0, 1]]), 'plumb_bob', np.arange(5) / 10)


def frames(count: int, color: bool = False) -> Iterator[tuple[int, np.ndarray]]:
    rng = np.random.default_rng(3)
    for number in range(count):
        noise = rng.integers(0, 256, (48, 64, 3) if color else (48, 64), np.uint8)
        yield START + number * PERIOD, cv2.GaussianBlur(noise, (0, 0), 2)


class Listener:
    """Takes what is published, with the times of arrival."""

    def __init__(self, kind: type, topic: str, info_topic: str, reliability: ReliabilityPolicy) -> None:
        self.images: list[tuple[float, Any]] = []
        self.infos: list[Any] = []
        self._context = rclpy.Context()
        rclpy.init(context=self._context)
        self._node = rclpy.create_node('listener', context=self._context)
        qos = QoSProfile(depth=100, reliability=reliability)
        self._node.create_subscription(kind, topic, lambda msg: self.images.append((time.monotonic(), msg)), qos)
        self._node.create_subscription(CameraInfo, info_topic, self.infos.append, qos)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._spin)
        self._thread.start()

    def _spin(self) -> None:
        while not self._closed.is_set():
            self._executor.spin_once(timeout_sec=0.05)

    def wait(self, done: Callable[[], bool], seconds: float = 10.0) -> bool:
        deadline = time.monotonic() + seconds
        while not done() and time.monotonic() < deadline:
            time.sleep(0.01)
        return done()

    def publishers(self, topic: str) -> int:
        return int(self._node.count_publishers(topic))

    def close(self) -> None:
        """Leave. Safe to call twice. The player, which waits for acknowledgements of what nobody else reads, then ends at once."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._thread.join()
        self._executor.shutdown()
        self._node.destroy_node()
        rclpy.try_shutdown(context=self._context)


@pytest.fixture
def listen() -> Iterator[Callable[..., Listener]]:
    made: list[Listener] = []

    def make(kind: type = Image, topic: str = '/camera/image_raw', info_topic: str = '/camera/camera_info',
             reliability: ReliabilityPolicy = ReliabilityPolicy.RELIABLE) -> Listener:
        made.append(Listener(kind, topic, info_topic, reliability))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def play() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    made: list[subprocess.Popen[str]] = []

    def start(*arguments: object, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        command = [sys.executable, '-m', 'lightglue_trt_ros.cli.play_bag', '--start-delay', '1']  # so that listeners know of it
        made.append(subprocess.Popen([*command, *map(str, arguments)], text=True, stdin=stdin, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, env=environment()))
        return made[-1]

    yield start
    for process in made:
        if process.poll() is None:
            process.kill()
        process.communicate()


def end_of(process: subprocess.Popen[str], count: int, *listeners: Listener) -> str:
    """The output of a player that has published `count` frames; it ends sooner without the listeners, which have them all."""
    for each in listeners:
        each.close()
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert f'published {count} frames in' in out
    return out


def stamp_of(msg: Any) -> int:
    return int(msg.header.stamp.sec * 10**9 + msg.header.stamp.nanosec)


@pytest.mark.parametrize('storage', ['sqlite3', 'mcap'])
@pytest.mark.release
def test_every_frame_in_order(tmp_path: Path, storage: str, listen: Callable[..., Listener],
                              play: Callable[..., subprocess.Popen[str]]) -> None:
    sent = list(frames(60))
    write_bag(tmp_path / 'bag', sent, CAMERA, storage=storage)
    listener = listen()
    out, err = (process := play(tmp_path / 'bag', '--rate', '2')).communicate(timeout=30)
    assert process.returncode == 0, err
    assert listener.wait(lambda: len(listener.images) >= 60 and len(listener.infos) >= 60)
    stamps = [stamp for stamp, _ in sent]
    assert [stamp_of(msg) for _, msg in listener.images] == stamps
    assert [stamp_of(info) for info in listener.infos] == stamps
    for (_, msg), (_, image) in zip(listener.images, sent, strict=True):
        assert (msg.height, msg.width, msg.encoding, msg.step, msg.header.frame_id) == (48, 64, 'mono8', 64, 'camera')
        assert msg.data.tobytes() == image.tobytes()
    assert listener.infos[0].k.tolist() == CAMERA.k.reshape(-1).tolist()
    assert list(listener.infos[0].d) == CAMERA.d.tolist()
    span = listener.images[-1][0] - listener.images[0][0]
    assert abs(span - 59 * 0.01) < 0.1  # 20 ms recorded, at twice the pace; no drift adds up
    summary = re.search(r'published 60 frames in ([\d.]+) s, ([\d.]+) Hz, \d+ late', out)
    assert summary, out
    assert abs(float(summary[2]) - 100) < 10


def test_recorded_masks_go_out_before_the_first_image_after_them(tmp_path: Path, listen: Callable[..., Listener],
                                                                 play: Callable[..., subprocess.Popen[str]]) -> None:
    stamps = [START + number * PERIOD - PERIOD // 4 for number in (-1, 1, 2, 4, 9)]
    write_bag(tmp_path / 'images', frames(6))
    write_bag(tmp_path / 'masks', ((stamp, np.full((48, 64), number, np.uint8)) for number, stamp in enumerate(stamps)))
    bag, topics = tmp_path / 'bag', {'images': '/camera/image_raw', 'masks': '/seen/mask'}
    write_messages(bag, {topic: (IMAGE, serialised_images(tmp_path / name)) for name, topic in topics.items()})
    listener, masked = listen(), listen(topic='/seen/mask')
    process = play(bag, '--image-topic', '/camera/image_raw', '--mask-topic', '/seen/mask', '--hz', '20')
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert '6 frames on /camera/image_raw, no CameraInfo, 5 masks on /seen/mask' in out
    assert listener.wait(lambda: len(listener.images) == 6 and len(masked.images) == 4), 'after the last image nobody needs any'
    assert [(stamp_of(msg), msg.data[0]) for _, msg in masked.images] == list(zip(stamps[:4], range(4), strict=True))
    images, masks = (open_recording(bag, topic) for topic in topics.values())
    along = [[deserialize_message(mask, Image).data[0] for mask in packet.masks] for packet in PacketSource(images, masks=masks)]
    assert along == [[0], [1], [2], [], [3], []]
    assert main([str(tmp_path / 'images'), '--mask-topic', '/nowhere']) == 1


@pytest.mark.release
def test_large_images_best_effort_arrive_without_any_setting(tmp_path: Path, listen: Callable[..., Listener],
                                                             play: Callable[..., subprocess.Popen[str]],
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    image = np.zeros((960, 1000), np.uint8)  # the default shared memory holds 512 KiB
    write_bag(tmp_path / 'bag', [(START + number * PERIOD, image) for number in range(30)], CAMERA)
    listener = listen(reliability=ReliabilityPolicy.BEST_EFFORT)
    for name in FASTDDS_CHOICES:
        monkeypatch.delenv(name, raising=False)
    process = play(tmp_path / 'bag', '--hz', '20', '--reliability', 'best_effort')
    _, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert listener.wait(lambda: len(listener.images) == 30), f'{len(listener.images)} of 30'


@pytest.mark.release
def test_folder_compressed_best_effort_under_another_name(tmp_path: Path, listen: Callable[..., Listener],
                                                          play: Callable[..., subprocess.Popen[str]]) -> None:
    sent = list(frames(10, color=True))
    image_folder(tmp_path, [image for _, image in sent], [f'{stamp // 10**9}.{stamp % 10**9:09d}' for stamp, _ in sent])
    listener = listen(CompressedImage, '/robot/left/compressed', '/robot/camera_info', ReliabilityPolicy.BEST_EFFORT)
    process = play(tmp_path, '--hz', '50', '--compressed', 'png', '--topic', '/camera/left', '--reliability', 'best_effort',
                   '--frame-id', 'left', '--ros-args', '-r',
                   '/camera/left/compressed:=/robot/left/compressed')
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert 'no CameraInfo, best_effort' in out
    assert listener.wait(lambda: len(listener.images) >= 5), 'best effort may lose some, not most'
    images = dict(sent)
    assert [stamp_of(msg) for _, msg in listener.images] == sorted({stamp_of(msg) for _, msg in listener.images})
    for _, msg in listener.images:
        assert (msg.header.frame_id, msg.format) == ('left', 'bgr8; png compressed bgr8')
        assert np.array_equal(cv2.imdecode(np.frombuffer(msg.data, np.uint8), cv2.IMREAD_COLOR), images[stamp_of(msg)])
    assert not listener.infos


def test_compressed_bag(tmp_path: Path, listen: Callable[..., Listener], play: Callable[..., subprocess.Popen[str]]) -> None:
    write_bag(tmp_path / 'bag', frames(5), CAMERA, compressed='jpeg', image_topic='/a/image')
    recorded = [deserialize_message(frame.raw, CompressedImage) for frame in open_recording(tmp_path / 'bag').frames()]
    listener = listen(CompressedImage, '/a/image/compressed', '/a/camera_info')
    process = play(tmp_path / 'bag')
    assert listener.wait(lambda: len(listener.images) >= 5 and len(listener.infos) >= 5, 30)
    end_of(process, 5, listener)
    assert [msg for _, msg in listener.images] == recorded


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
@pytest.mark.release
def test_signals_end_a_loop(tmp_path: Path, number: int, listen: Callable[..., Listener],
                            play: Callable[..., subprocess.Popen[str]]) -> None:
    write_bag(tmp_path / 'bag', frames(3))
    listener = listen()
    process = play(tmp_path / 'bag', '--loop', '--hz', '100')
    assert listener.wait(lambda: len(listener.images) > 7)
    process.send_signal(number)
    begin = time.monotonic()
    out, err = process.communicate(timeout=10)
    assert time.monotonic() - begin < 1.5
    assert process.returncode == 0, err
    assert not err
    assert re.search(r'stopped; published \d+ frames', out)
    stamps = [(stamp_of(msg) - START) // PERIOD for _, msg in listener.images[:7]]
    assert stamps == [0, 1, 2, 0, 1, 2, 0]  # as recorded, in repetitions too


def test_paused_it_plays_when_a_line_comes_and_ends_when_none_can(tmp_path: Path, listen: Callable[..., Listener],
                                                                  play: Callable[..., subprocess.Popen[str]]) -> None:
    write_bag(tmp_path / 'bag', frames(3))
    listener = listen()
    process = play(tmp_path / 'bag', '--start-paused', '--start-delay', '0', stdin=subprocess.PIPE)
    ended = play(tmp_path / 'bag', '--start-paused')
    signalled = {number: play(tmp_path / 'bag', '--start-paused', stdin=subprocess.PIPE)
                 for number in (signal.SIGINT, signal.SIGTERM)}
    for number, paused in signalled.items():
        assert paused.stdout is not None
        assert '3 frames' in paused.stdout.readline()
        paused.send_signal(number)
        assert paused.wait(timeout=5) == 0
    out, err = ended.communicate(timeout=30)
    assert (ended.returncode, err) == (0, '')
    assert 'stopped; published 0 frames' in out
    assert process.stdout is not None
    assert '3 frames' in process.stdout.readline()
    assert not listener.wait(lambda: bool(listener.images), 2.0)
    assert process.stdin is not None
    process.stdin.write('\n')
    process.stdin.flush()
    assert listener.wait(lambda: len(listener.images) == 3)
    end_of(process, 3, listener)


def test_signal_while_waiting(tmp_path: Path, play: Callable[..., subprocess.Popen[str]]) -> None:
    write_bag(tmp_path / 'bag', frames(3))
    process = play(tmp_path / 'bag', '--subscriber-timeout', '60')
    lines = [process.stdout.readline() for _ in range(2)] if process.stdout else []
    assert 'waiting up to 60 s for 1 subscriber on /camera/image_raw' in lines[1]
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert (process.returncode, err) == (0, '')
    assert 'stopped; published 0 frames' in out


def test_nobody_comes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_bag(tmp_path / 'bag', frames(2))
    assert main([str(tmp_path / 'bag'), '--subscriber-timeout', '0.1', '--topic', '/nobody', '--start-delay', '0']) == 0
    out = capfd.readouterr().out
    assert '0 of 1 subscribers on /nobody after 0.1 s; playing all the same' in out
    assert 'published 2 frames' in out


def test_a_zoom_that_is_played_without_its_calibrations_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    infos = [Info(K * [[zoom], [zoom], [1]]) for zoom in (1.0, 1.0, 1.5)]
    bag = camera_bag(tmp_path / 'bag', {'/camera/image_raw': Images(), '/camera/camera_info': infos})
    options = ['--wait-for-subscribers', '0', '--start-delay', '0', '--hz', '1000']
    assert main([str(bag), *options]) == 0
    out = capfd.readouterr().out
    assert 'CameraInfo on /camera/camera_info changes, and ' in out
    assert 'are used for all images; others: 1, the first is message ' in out
    assert main([str(bag), *options, '--max-frames', '2']) == 0
    assert 'changes' not in capfd.readouterr().out
    bag = camera_bag(tmp_path / 'none', {'/camera/image_raw': Images(), '/camera/camera_info': [Info(0 * K), Info()]})
    assert main([str(bag), *options]) == 0
    assert 'Traceback' not in capfd.readouterr().err


def test_errors(tmp_path: Path, capfd: pytest.CaptureFixture[str], usage_error: Callable[..., str]) -> None:
    assert main([str(tmp_path / 'gone')]) == 1
    assert 'play_bag: ' in (err := capfd.readouterr().err)
    assert 'gone does not exist' in err
    write_bag(tmp_path / 'bag', frames(2), CAMERA)
    assert main([str(tmp_path / 'bag'), '--image-topic', '/other']) == 1
    assert '/camera/image_raw (sensor_msgs/msg/Image, 2 messages)' in capfd.readouterr().err
    metadata = tmp_path / 'bag' / 'metadata.yaml'
    metadata.write_text(metadata.read_text().replace('message_count: 2', 'message_count: 3'))
    assert main([str(tmp_path / 'bag'), '--wait-for-subscribers', '0', '--start-delay', '0']) == 1
    out, err = capfd.readouterr()
    assert 'published 2 frames' in out  # what is there is played
    assert 'ends after 2 of the 3 messages' in err
    assert main([str(tmp_path / 'bag'), '--topic', '/a b/image']) == 1
    assert "'/a b/image'; --topic names another one\n" in capfd.readouterr().err
    for words, complaint in ((['--topic', '/camera/camera_info'], 'two streams would be played on /camera/camera_info'),
                             (['--mask-topic', '/camera/image_raw'], 'two streams would be played on /camera/image_raw'),
                             (['--wait-for-subscribers', '0', '--sent', str(tmp_path)], f'{tmp_path} cannot be written (Is a dir')):
        assert main([str(tmp_path / 'bag'), *words]) == 1
        assert f'play_bag: {complaint}' in capfd.readouterr().err
    for arguments in (['--rate', '0'], ['--rate', 'nan'], ['--hz', '-1'], ['--hz', '1', '--rate', '1'], ['--start-delay', '-1'],
                      ['--wait-for-subscribers', '-1'], ['--compressed', 'gif']):
        usage_error(main, tmp_path / 'bag', *arguments)


def test_packets_keep_the_pace(tmp_path: Path) -> None:
    stamps = (0, 10**9, 4 * 10**9, 6 * 10**9)
    write_bag(tmp_path / 'bag', [(stamp, image) for (_, image), stamp in zip(frames(4), stamps, strict=True)])
    recording = open_recording(tmp_path / 'bag')

    def dues(count: int, **settings: Any) -> list[float]:
        return [packet.due_s for packet, _ in zip(PacketSource(recording, **settings), range(count), strict=False)]

    assert dues(9) == [0, 1, 4, 6]
    assert dues(9, rate=2.0) == [0, 0.5, 2, 3]
    assert dues(9, hz=10.0) == [0, 0.1, 0.2, 0.3]
    assert dues(9, loop=True) == [0, 1, 4, 6, 8, 9, 12, 14, 16]  # a repetition comes a mean period after the end
    assert dues(6, loop=True, hz=2.0) == [0, 0.5, 1, 1.5, 2, 2.5]
    write_bag(tmp_path / 'right', [(stamp + 10**8, image) for (_, image), stamp in zip(frames(4), stamps, strict=True)])
    right = open_recording(tmp_path / 'right')
    assert dues(9, others=[right]) == pytest.approx([0, 0.1, 1, 1.1, 4, 4.1, 6, 6.1])
    assert dues(6, others=[right], hz=10.0) == [0, 0, 0.1, 0.1, 0.2, 0.2]
    assert dues(9, others=[right, right], hz=10.0) == [0, 0, 0, 0.1, 0.1, 0.1, 0.2, 0.2, 0.2]


def depth_folder(path: Path, depth: list[np.ndarray]) -> Path:
    """An image folder of four frames, 0.05 s apart."""
    stamps = [1 + number / 20 for number in range(4)]
    return image_folder(path, [image for _, image in frames(4)], stamps, calibration=pinhole(64, 48, 50), depth=depth)


@pytest.mark.parametrize('kind', ['folder', 'bag'])
def test_depth_images_are_played_beside_the_images_they_are_registered_to(
        tmp_path: Path, kind: str, listen: Callable[..., Listener], play: Callable[..., subprocess.Popen[str]]) -> None:
    folder = tmp_path / 'folder'
    pixels = [np.full((48, 64), 1000 + number, np.uint16) for number in range(4)]
    depth_folder(folder, pixels)
    if kind == 'bag':
        assert make_bag([str(folder), str(tmp_path / 'bag')]) == 0
    depth = listen(topic='/camera/depth/image_raw', info_topic='/camera/depth/camera_info')  # waited for for a second alone
    images = listen() if kind == 'folder' else listen(CompressedImage, '/camera/image_raw/compressed')
    process = play(tmp_path / kind, '--depth', '--start-delay', '2', *(['--compressed', 'png'] if kind == 'bag' else []))
    assert depth.wait(lambda: len(depth.images) == 4 and len(depth.infos) == 4, 30)
    assert images.wait(lambda: len(images.images) == 4 and len(images.infos) == 4)
    out = end_of(process, 4, depth, images)
    assert ' and /camera/depth/image_raw, with CameraInfo' in out
    assert [stamp_of(msg) for _, msg in images.images] == [stamp_of(msg) for _, msg in depth.images]
    for (_, msg), sent in zip(depth.images, pixels, strict=True):
        assert (msg.encoding, msg.height, msg.width, msg.step, msg.header.frame_id) == ('16UC1', 48, 64, 128, 'camera')
        assert msg.data.tobytes() == sent.tobytes()
    assert depth.infos[0].k.tolist() == images.infos[0].k.tolist()


def test_depth_camera_info_subscribed_last_misses_no_message(
        tmp_path: Path, listen: Callable[..., Listener], play: Callable[..., subprocess.Popen[str]]) -> None:
    depth_folder(tmp_path, [np.full((48, 64), 1000, np.uint16)] * 4)
    images, depth = listen(), listen(topic='/camera/depth/image_raw', info_topic='/elsewhere')
    process = play(tmp_path, '--depth', '--start-delay', '0')
    assert depth.wait(lambda: depth.publishers('/camera/depth/image_raw') > 0, 30)
    infos = listen(topic='/nothing', info_topic='/camera/depth/camera_info')
    assert infos.wait(lambda: len(infos.infos) == 4)
    end_of(process, 4, images, depth, infos)


def stereo_folder(folder: Path) -> Path:
    """An image folder of five pairs, 0.1 s apart."""
    images = [image for _, image in frames(10)]
    return image_folder(folder, images[:5], calibration=pinhole(64, 48, 50), baseline_m=0.25, images_right=images[5:])


def test_a_stereo_folder_is_played_with_both_cameras(tmp_path: Path, listen: Callable[..., Listener],
                                                     play: Callable[..., subprocess.Popen[str]]) -> None:
    left, right = listen(), listen(topic='/camera_right/image_raw', info_topic='/camera_right/camera_info')
    folder = stereo_folder(tmp_path / 'two')
    alone = play(folder, '--left-alone', '--hz', '100', '--topic', '/alone', '--wait-for-subscribers', '0')
    process = play(folder)
    for listener, first, name in ((left, 0, 'camera'), (right, 5, 'camera_right')):
        assert listener.wait(lambda listener=listener: len(listener.images) >= 5 and len(listener.infos) >= 5, 30)
        for number, (_, message) in enumerate(listener.images):
            assert message.data.tobytes() == list(frames(10))[first + number][1].tobytes()
            assert (stamp_of(message), message.header.frame_id) == (10**9 + number * 10**8, name)
    assert (left.infos[0].p[3], right.infos[0].p[3]) == (0, -50 * 0.25)
    out = end_of(process, 5, left, right)
    assert '5 frames on /camera/image_raw and /camera_right/image_raw' in out
    out = end_of(alone, 5)
    assert '5 frames on /alone, ' in out
    assert 'camera_right' not in out


def test_several_cameras_of_a_bag_are_played_as_recorded(tmp_path: Path, listen: Callable[..., Listener],
                                                         play: Callable[..., subprocess.Popen[str]]) -> None:
    assert make_bag([str(stereo_folder(tmp_path / 'two')), str(tmp_path / 'bag'), '--stereo']) == 0
    first, second = listen(), listen(topic='/camera_right/image_raw', info_topic='/camera_right/camera_info')
    process = play(tmp_path / 'bag', '--image-topic', '/camera/image_raw', '--more-topics', '/camera_right/image_raw')
    for listener in (first, second):
        assert listener.wait(lambda listener=listener: len(listener.images) >= 5 and len(listener.infos) >= 5, 30)
    out = end_of(process, 5, first, second)
    assert '5 frames on /camera/image_raw and /camera_right/image_raw' in out
    for listener, number in ((first, 0), (second, 5)):
        assert [message.data.tobytes() for _, message in listener.images] == [
            image.tobytes() for _, image in list(frames(10))[number:number + 5]]


@pytest.mark.parametrize('topic', ['/camera/image_raw', '/rear'])
def test_a_camera_that_is_no_other_is_refused(tmp_path: Path, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_bag(tmp_path / 'bag', frames(2))
    assert main([str(tmp_path / 'bag'), '--more-topics', topic]) == 1
    assert topic in capsys.readouterr().err


def test_prefetch_is_bounded(tmp_path: Path) -> None:
    write_bag(tmp_path / 'bag', frames(2))
    template = next(open_recording(tmp_path / 'bag').frames())
    read = []

    def endless() -> Iterator[Any]:
        while True:
            read.append(1)
            yield template

    recording = SimpleNamespace(compressed=False, camera_info=None, intrinsics=None, frames=endless)
    packets = iter(PacketSource(recording))
    for _ in range(20):
        next(packets)
    time.sleep(0.3)
    assert 20 <= len(read) <= 20 + PREFETCH + 1
    packets.close()  # type: ignore[attr-defined]  # a generator
    count = len(read)
    time.sleep(0.05)
    assert len(read) == count  # its thread is gone


@pytest.mark.parametrize('encoding', ['rgb8', 'bgr8', '8UC3', 'mono8', 'yuv422_yuy2'])
def test_raw_recordings_can_be_sent_compressed(encoding: str) -> None:
    image = next(frames(1, color=True))[1]
    channels = {'mono8': 1, 'yuv422_yuy2': 2}.get(encoding, 3)
    rows = np.zeros((48, 64 * channels + 5), np.uint8)  # padded rows
    rows[:, :64 * channels] = (image[..., ::-1] if encoding == 'rgb8' else image[..., :channels]).reshape(48, -1)
    record = SimpleNamespace(height=48, width=64, encoding=encoding, step=rows.shape[1], data=rows.reshape(-1), is_bigendian=0)
    frame = SimpleNamespace(stamp_ns=START, received_ns=START, raw=b'', load=lambda: record)
    recording = SimpleNamespace(compressed=False, camera_info=None, intrinsics=None, frames=lambda: iter([frame]))
    packet, = PacketSource(recording, compression='png')
    msg = deserialize_message(packet.image, CompressedImage)
    assert stamp_of(msg) == START
    expected = image if channels == 3 else image[..., 0]
    assert np.array_equal(cv2.imdecode(np.frombuffer(msg.data, np.uint8), cv2.IMREAD_UNCHANGED), expected)


def test_a_recording_without_depth_is_not_played_with_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_bag(tmp_path / 'bag', frames(2), CAMERA)
    assert main([str(tmp_path / 'bag'), '--depth']) == 1
    assert 'has no depth images: none of its topics has images of 16UC1 or 32FC1' in capfd.readouterr().err


def test_tally() -> None:
    tally = Punctuality()
    for now, due in ((10.0, 10.0), (11.0, 11.0), (12.0 + 2 * LATE_S, 12.0)):
        tally.add(now, due)
    assert (tally.frames, tally.late) == (3, 1)
    assert str(tally).startswith('published 3 frames in 2.01 s, 1.00 Hz, 1 late')
    assert str(Punctuality()).startswith('published 0 frames in 0.00 s, no rate')
