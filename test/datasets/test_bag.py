"""Recordings: bags of both storages and image folders, there and back; every damage has its message."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import cv2
import numpy as np
import pytest
from support.bags import IMAGE, database, serialised_images, storage_file, write_messages
from support.full_disks import room_for
from support.image_recordings import image_folder

from lightglue_trt_eval.cli.make_bag import main as make_bag
from lightglue_trt_ros.core.cameras import Intrinsics, camera_info_topic
from lightglue_trt_ros.datasets.bag_recording import BagRecording
from lightglue_trt_ros.datasets.bag_writer import write_bag
from lightglue_trt_ros.datasets.folder_recordings import FolderRecording
from lightglue_trt_ros.datasets.ground_truth import load_ground_truth
from lightglue_trt_ros.datasets.poses import Trajectory, poses_from, quaternions_from_rotations
from lightglue_trt_ros.datasets.recordings import open_recording
from lightglue_trt_ros.datasets.sequence import read_image
from lightglue_trt_ros.utils.errors import BagError

pytest.importorskip('rosbags', reason='bags need the Python package rosbags')

START = 1_700_000_000_123_456_789  # float seconds cannot hold it
K = np.array([[100.25, 0, 20.5], [0, 101.75, 15.5], [0, 0, 1]])
CAMERA = Intrinsics(40, 30, K, 'plumb_bob', np.array([0.1, -0.2, 0.001, 0.002, 0.03]))


def images(count: int = 5, color: bool = False) -> list[tuple[int, np.ndarray]]:
    rng = np.random.default_rng(7)
    shape = (30, 40, 3) if color else (30, 40)
    return [(START + i * 33_333_333, rng.integers(0, 256, shape, np.uint8)) for i in range(count)]


def trajectory(count: int = 5) -> Trajectory:
    rng = np.random.default_rng(8)
    stamps = np.array([START + i * 33_333_333 for i in range(count)], np.int64)
    return Trajectory(stamps, poses_from(rng.normal(size=(count, 3)), rng.normal(size=(count, 4))))


def make_folder(path: Path) -> Path:
    """Files are 8, 9, 10: without zeros in front."""
    return image_folder(path, [image for _, image in images(3)], [f'1700000000.{number}00000001' for number in range(3)], first=8)


@pytest.mark.parametrize('storage', ['sqlite3', 'mcap'])
@pytest.mark.parametrize('version', [8, 9])
@pytest.mark.parametrize('color', [False, True])
def test_round_trip(tmp_path: Path, storage: str, version: int, color: bool) -> None:
    frames, truth, seen = images(color=color), trajectory(), []
    count = write_bag(tmp_path / 'bag', iter(frames), CAMERA, truth, storage=storage, version=version, progress=seen.append)
    assert count == 5
    assert seen == [1, 2, 3, 4, 5]
    assert [entry.name for entry in tmp_path.iterdir()] == ['bag']  # nothing is left beside it
    recording = open_recording(tmp_path / 'bag')
    assert len(recording) == 5
    assert not recording.compressed
    assert {topic.name: topic.count for topic in recording.topics} == {
        '/camera/image_raw': 5, '/camera/camera_info': 5, '/ground_truth/pose': 5}
    for _ in range(2):  # every pass starts anew
        for frame, (stamp, image) in zip(recording.frames(), frames, strict=True):
            msg = frame.load()
            assert frame.stamp_ns == frame.received_ns == stamp
            assert (msg.height, msg.width, msg.encoding, msg.step) == (30, 40, 'bgr8' if color else 'mono8', 120 if color else 40)
            assert msg.header.frame_id == 'camera'
            assert bytes(msg.data) == image.tobytes()
    camera = recording.intrinsics
    assert camera is not None
    assert (camera.width, camera.height, camera.distortion_model) == (40, 30, 'plumb_bob')
    assert np.array_equal(camera.k, K)
    assert np.array_equal(camera.d, CAMERA.d)
    recorded = load_ground_truth(recording)
    assert recorded is not None
    assert np.array_equal(recorded.stamps_ns, truth.stamps_ns)
    assert np.abs(recorded.poses - truth.poses).max() < 1e-9


@pytest.mark.parametrize('storage', ['sqlite3', 'mcap'])
def test_single_file_and_directory_without_metadata(tmp_path: Path, storage: str) -> None:
    write_bag(tmp_path / 'bag', images(), storage=storage)
    assert len(list(open_recording(storage_file(tmp_path / 'bag')).frames())) == 5
    (tmp_path / 'bag' / 'metadata.yaml').unlink()  # as a recorder leaves it that was killed
    recording = open_recording(tmp_path / 'bag')
    assert len(list(recording.frames())) == 5
    assert recording.intrinsics is None
    assert load_ground_truth(recording) is None


@pytest.mark.parametrize('mode', ['file', 'message', 'storage'])
def test_zstd(tmp_path: Path, mode: str) -> None:
    write_bag(tmp_path / 'plain', images(), CAMERA)
    plain = serialised_images(tmp_path / 'plain')
    bag = write_messages(tmp_path / 'zstd', {'/cam': (IMAGE, plain)}, 'mcap' if mode == 'storage' else 'sqlite3', mode)
    assert serialised_images(bag) == plain
    if mode == 'message':  # the single file does not say so: each message does
        assert serialised_images(bag / 'zstd.db3') == plain


@pytest.mark.parametrize('kind', ['jpeg', 'png'])
def test_compressed(tmp_path: Path, kind: str) -> None:
    smooth = cv2.GaussianBlur(images(1, color=True)[0][1], (0, 0), 3)
    write_bag(tmp_path / 'bag', [(START, smooth)], CAMERA, compressed=kind)
    recording = open_recording(tmp_path / 'bag')
    assert recording.compressed
    assert recording.image_topic == '/camera/image_raw/compressed'
    assert recording.intrinsics is not None  # /camera/camera_info, also for .../compressed
    msg = next(recording.frames()).load()
    assert msg.format == f'bgr8; {kind} compressed bgr8'
    back = cv2.imdecode(np.asarray(msg.data), cv2.IMREAD_COLOR)
    assert np.abs(back.astype(int) - smooth).mean() < (4 if kind == 'jpeg' else 1e-9)


def test_stamps_that_step_back_keep_their_order(tmp_path: Path) -> None:
    stamps = [100, 300, 200, 200, 400]
    write_bag(tmp_path / 'bag', [(stamp, image) for stamp, (_, image) in zip(stamps, images(), strict=True)])
    assert [frame.stamp_ns for frame in open_recording(tmp_path / 'bag').frames()] == stamps


def test_choice_of_topic(tmp_path: Path) -> None:
    write_bag(tmp_path / 'one', images(), CAMERA, trajectory())
    messages = serialised_images(tmp_path / 'one')
    write_messages(tmp_path / 'two', {'/left/image': (IMAGE, messages), '/right/image': (IMAGE, messages[1:])})
    with pytest.raises(BagError, match=r'2 image topics.*/left/image \(sensor_msgs/msg/Image, 5 messages\); /right/image \(.*4'):
        open_recording(tmp_path / 'two')
    assert len(open_recording(tmp_path / 'two', '/right/image')) == 4
    with pytest.raises(BagError, match=r'no images on /up.*/left/image'):
        open_recording(tmp_path / 'two', '/up')
    with pytest.raises(BagError, match=r'no images on /ground_truth/pose, but geometry_msgs/msg/PoseStamped. It holds: /c[^;]*$'):
        open_recording(tmp_path / 'one', '/ground_truth/pose')
    assert camera_info_topic('/image') == '/camera_info'
    assert camera_info_topic('/a/b/image/compressed') == '/a/b/camera_info'


def test_bag_without_images(tmp_path: Path) -> None:
    write_messages(tmp_path / 'bag', {'/camera/image_raw': (IMAGE, [])})
    with pytest.raises(BagError, match=r'no message on /camera/image_raw: .*QoS .*: /camera/image_raw \(\S+, 0 messages\)'):
        open_recording(tmp_path / 'bag')
    with pytest.raises(BagError, match='no message on /camera/image_raw'):
        open_recording(tmp_path / 'bag', '/camera/image_raw')


@pytest.mark.parametrize('storage', ['sqlite3', 'mcap'])
@pytest.mark.parametrize('share', [0.0, 0.3, 0.7, 0.98])
def test_truncated_bag(tmp_path: Path, storage: str, share: float) -> None:
    write_bag(tmp_path / 'bag', images(200), storage=storage)
    file = storage_file(tmp_path / 'bag')
    data = file.read_bytes()
    file.write_bytes(data[:int(len(data) * share)])
    with pytest.raises(BagError, match=str(file.parent)):
        list(open_recording(tmp_path / 'bag').frames())


def test_messages_missing_or_damaged(tmp_path: Path) -> None:
    write_bag(tmp_path / 'bag', images())
    with database(tmp_path / 'bag') as tables:
        tables.execute('DELETE FROM messages WHERE id = 5')
        tables.execute("UPDATE messages SET data = substr(data, 1, 200) WHERE id = 4")
        tables.execute("UPDATE messages SET data = x'0102' WHERE id = 3")
    frames = open_recording(tmp_path / 'bag').frames()
    next(frames).load()
    next(frames)
    with pytest.raises(BagError, match='message 3 of /camera/image_raw is 2 bytes'):
        next(frames)
    with database(tmp_path / 'bag') as tables:
        tables.execute('DELETE FROM messages WHERE id = 3')
    frames = open_recording(tmp_path / 'bag').frames()
    cut = [next(frames) for _ in range(3)][2]
    with pytest.raises(BagError, match=r'message 3 of /camera/image_raw \(200 bytes\) is no sensor_msgs/msg/Image'):
        cut.load()
    with pytest.raises(BagError, match='ends after 3 of the 5 messages'):
        next(frames)


def test_what_is_no_recording(tmp_path: Path) -> None:
    with pytest.raises(BagError, match='nowhere does not exist'):
        open_recording(tmp_path / 'nowhere')
    with pytest.raises(BagError, match=r'neither a rosbag2.*it holds nothing'):
        open_recording(tmp_path)
    for name, message in (('old.bag', 'rosbags-convert'), ('a.mcap.gz', 'unpack it first'),
                          ('a.db3.zstd', r'cannot unpack .*a\.db3\.zstd, 1 bytes'), ('a.txt', 'no rosbag2 file')):
        (tmp_path / name).write_text('x')
        with pytest.raises(BagError, match=message):
            open_recording(tmp_path / name)
        (tmp_path / name).unlink()
    for name in ('a_0.db3', 'a_1.db3'):
        (tmp_path / name).write_text('x')
    with pytest.raises(BagError, match=r'no metadata\.yaml, and nothing can be read in a_0\.db3, a_1\.db3'):
        open_recording(tmp_path)
    with pytest.raises(BagError, match=r'cannot read .*a_0\.db3'):
        open_recording(tmp_path / 'a_0.db3')
    (tmp_path / 'metadata.yaml').write_text('rosbag2_bagfile_information: [')
    with pytest.raises(BagError, match='cannot read'):
        open_recording(tmp_path)


def test_rectified_images_have_the_projection_of_camera_info(tmp_path: Path) -> None:
    for name, k, d in (('/cam/image_rect', [[90.0, 0, 19], [0, 91, 14], [0, 0, 1]], np.zeros(5)),
                       ('/cam/image_raw', K.tolist(), CAMERA.d), ('/rectangle/image', K.tolist(), CAMERA.d)):
        path = tmp_path / name.replace('/', '_')
        write_bag(path, images(2), CAMERA, image_topic=name)
        with database(path) as tables:
            ((number, raw),) = tables.execute('SELECT m.id, m.data FROM messages m JOIN topics t ON t.id = m.topic_id '
                                              "WHERE t.type LIKE '%CameraInfo' ORDER BY m.id LIMIT 1").fetchall()
            p = np.hstack([K, np.zeros((3, 1))]).tobytes()
            assert raw.count(p) == 1
            other = np.array([[90.0, 0, 19, 0], [0, 91, 14, 0], [0, 0, 1, 0]]).tobytes()
            tables.execute('UPDATE messages SET data = ? WHERE id = ?', (raw.replace(p, other), number))
        camera = open_recording(path).intrinsics
        assert camera is not None
        assert camera.k.tolist() == k
        assert np.array_equal(camera.d, d)


@pytest.mark.parametrize('value', [np.nan, np.inf, 0.0, -1.0])
def test_uncalibrated_camera(tmp_path: Path, value: float) -> None:
    k = K.copy()
    k[0, 0] = value
    with pytest.raises(BagError, match=r'not finite|not calibrated'):
        Intrinsics(40, 30, k, 'plumb_bob', np.zeros(5))
    camera = Intrinsics(40, 30, K.copy(), 'plumb_bob', np.zeros(5))
    camera.k[0, 0] = value  # as a driver writes it
    write_bag(tmp_path / 'bag', images(), camera)
    recording = open_recording(tmp_path / 'bag')
    assert len(list(recording.frames())) == 5  # the images are as good as ever
    with pytest.raises(BagError, match=rf'{tmp_path}.*K = '):
        _ = recording.intrinsics


def test_writing_leaves_nothing_half_done(tmp_path: Path) -> None:
    def failing() -> object:
        yield images(1)[0]
        raise KeyboardInterrupt

    for frames, error in ((failing(), KeyboardInterrupt), (iter([]), BagError), ([(0, np.zeros((3, 4, 2), np.uint8))], BagError),
                          ([(0, np.zeros((3, 4), np.float32))], BagError)):
        with pytest.raises(error):
            write_bag(tmp_path / 'bag', frames)
        assert not list(tmp_path.iterdir())
    write_bag(tmp_path / 'bag', images(2))
    with pytest.raises(BagError, match='--force'):
        write_bag(tmp_path / 'bag', images(3))
    with pytest.raises(KeyboardInterrupt):
        write_bag(tmp_path / 'bag', failing(), force=True)
    assert len(open_recording(tmp_path / 'bag')) == 2  # the old one is still there
    write_bag(tmp_path / 'bag', images(3), force=True)
    assert len(open_recording(tmp_path / 'bag')) == 3
    assert [entry.name for entry in tmp_path.iterdir()] == ['bag']
    (tmp_path / 'precious').mkdir()
    with pytest.raises(BagError, match='never overwritten'):
        write_bag(tmp_path / 'precious', images(1), force=True)
    (tmp_path / 'file').write_text('x')
    with pytest.raises(BagError, match='cannot write'):
        write_bag(tmp_path / 'file' / 'bag', images(1))
    with pytest.raises(BagError, match="storage 'rosbag1'"):
        write_bag(tmp_path / 'new', images(1), storage='rosbag1')


@pytest.mark.parametrize('storage', ['sqlite3', 'mcap'])
def test_a_full_disk_leaves_the_bag_before_and_nothing_else(tmp_path, storage):
    write_bag(tmp_path / 'bag', images(2), storage=storage)
    for name in ('bag', 'new'):
        with room_for(40_000), pytest.raises(BagError, match=f'cannot write .*{name}'):
            write_bag(tmp_path / name, images(60), storage=storage, force=True)
    assert [entry.name for entry in tmp_path.iterdir()] == ['bag']
    assert len(open_recording(tmp_path / 'bag')) == 2


def test_folder(tmp_path: Path) -> None:
    recording = open_recording(make_folder(tmp_path / 'seq'))
    assert isinstance(recording, FolderRecording)
    assert [file.name for file in recording.files] == ['8.png', '9.png', '10.png']
    assert recording.stamps_ns == [1700000000_000000001, 1700000000_100000001, 1700000000_200000001]
    for frame, (_, image) in zip(recording.frames(), images(3), strict=True):
        msg = frame.load()
        assert (msg.height, msg.width, msg.encoding, msg.step) == (30, 40, 'mono8', 40)
        assert msg.data.tobytes() == image.tobytes()
    assert recording.intrinsics is None
    assert load_ground_truth(recording) is None


def test_folder_errors(tmp_path: Path) -> None:
    (tmp_path / 'empty' / 'images').mkdir(parents=True)
    with pytest.raises(BagError, match=r'images holds no image \(0 other files\)'):
        open_recording(tmp_path / 'empty')
    seq = make_folder(tmp_path / 'seq')
    (seq / 'timestamps.txt').write_text('0.0\n0.1\n')
    with pytest.raises(BagError, match='has 2 stamps and 3 images'):
        open_recording(seq)
    for bad in ('nan', '-1', 'soon', '9e99'):
        (seq / 'timestamps.txt').write_text(f'0.0\n{bad}\n0.2\n')
        with pytest.raises(BagError, match=rf"timestamps\.txt, line 2: '{bad}'"):
            open_recording(seq)
    (seq / 'timestamps.txt').unlink()
    with pytest.raises(BagError, match='does not exist: write one stamp per image') as refused:
        open_recording(seq)
    subprocess.run(str(refused.value).partition('30 frames a second: ')[2], shell=True, check=True)
    assert [frame.stamp_ns for frame in open_recording(seq).frames()] == [0, 33_333_000, 66_667_000]


@pytest.mark.parametrize(('suffix', 'share'), [('.png', 0.5), ('.jpg', 0.5), ('.jpg', 0.98), ('.png', 0.0)])
def test_undecodable_image(tmp_path: Path, suffix: str, share: float) -> None:
    path = tmp_path / f'a{suffix}'
    cv2.imwrite(str(path), images(1)[0][1])
    data = path.read_bytes()
    assert read_image(path).shape == (30, 40)
    path.write_bytes(data[:int(len(data) * share)])
    with pytest.raises(BagError, match=rf'a\{suffix}.*\b{int(len(data) * share)} bytes'):
        read_image(path)
    with pytest.raises(BagError, match='cannot read'):
        read_image(tmp_path / 'gone.png')


def test_calibration_file(tmp_path: Path) -> None:
    seq = make_folder(tmp_path / 'seq')
    good = 'model: pinhole\nwidth: 40\nheight: 30\nfx: 1.5\nfy: 2.5\ncx: 3.5\ncy: 4.5\n'
    for text, model, d in ((good, 'plumb_bob', []),
                           (good + 'dist: [1, 2, 3, 4, 5, 6, 7, 8]\n', 'rational_polynomial', range(1, 9)),
                           (good + 'distortion: equidistant\ndist: [1, 2, 3, 4]\n', 'equidistant', range(1, 5))):
        (seq / 'calib.yaml').write_text(text)
        camera = open_recording(seq).intrinsics
        assert camera is not None
        assert camera.k.tolist() == [[1.5, 0, 3.5], [0, 2.5, 4.5], [0, 0, 1]]
        assert (camera.distortion_model, camera.d.tolist()) == (model, list(d))
    for text, message in ((good.replace('1.5', '.nan'), 'not finite'), (good.replace('1.5', '0'), 'not calibrated'),
                          (good.replace('fx', 'f'), 'has no fx'), (good.replace('pinhole', 'ocam'), 'model: pinhole'),
                          ('[', 'calib.yaml'), (good.replace('1.5', 'wide'), 'wide'), (good.replace('40', '-40'), '-40x30')):
        (seq / 'calib.yaml').write_text(text)
        with pytest.raises(BagError, match=message):
            _ = open_recording(seq).intrinsics


@pytest.mark.parametrize('name', ['kitti_short_1', 'kitti_short_2', 'hololens'])
def test_real_sequences(tmp_path: Path, shared_data: Path, name: str) -> None:
    folder = open_recording(shared_data / name)
    assert isinstance(folder, FolderRecording)
    truth, camera = folder.ground_truth(), folder.intrinsics
    assert truth is not None
    assert camera is not None
    assert len(truth) == len(folder)
    back = poses_from(truth.poses[:, :3, 3], quaternions_from_rotations(truth.poses[:, :3, :3]))[:, :3, :3]
    assert np.abs(back - truth.poses[:, :3, :3]).max() < 1e-9
    few = [next_image for next_image, _ in zip(folder.images(), range(8), strict=False)]
    write_bag(tmp_path / 'bag', few, camera, truth, storage='mcap')
    recording = open_recording(tmp_path / 'bag')
    for frame, (stamp, image) in zip(recording.frames(), few, strict=True):
        assert frame.stamp_ns == stamp
        assert bytes(frame.load().data) == image.tobytes()
        assert image.shape[:2] == (camera.height, camera.width)
    recorded = load_ground_truth(recording)
    assert recorded is not None
    assert np.abs(recorded.poses - truth.poses).max() < 1e-9
    assert np.array_equal(recorded.stamps_ns, truth.stamps_ns)


def test_make_bag_refuses_its_own_recording_and_topics_of_no_ros(tmp_path: Path, usage_error: Callable[..., str]) -> None:
    folder, bag = make_folder(tmp_path / 'seq'), tmp_path / 'bag'
    assert make_bag([str(folder), str(bag)]) == 0
    assert 'is the recording itself' in usage_error(make_bag, bag, f'{bag}/', '--degrade', 'dim', '--force')
    for topic in ('/a b/image', '/1/image'):
        assert f'{topic!r} cannot be the name of a ROS topic' in usage_error(make_bag, folder, tmp_path, '--image-topic', topic)
    for topic in ('/camera/camera_info', '/ground_truth/pose'):
        assert f'two streams would be written as {topic}' in usage_error(make_bag, folder, tmp_path / 'b', '--image-topic', topic)


def test_make_bag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seq = make_folder(tmp_path / 'seq')
    out = tmp_path / 'out' / 'bag'
    options = ['--storage', 'mcap', '--compressed', 'png', '--image-topic', '/cam/image', '--frame-id', 'left']
    assert make_bag([str(seq), str(out), *options]) == 0
    assert f'{out}: 3 frames over 0.2 s, no CameraInfo, no poses' in capsys.readouterr().out
    recording = open_recording(out)
    assert isinstance(recording, BagRecording)
    assert recording.image_topic == '/cam/image/compressed'
    assert next(recording.frames()).load().header.frame_id == 'left'
    for arguments, message in (([str(seq), str(out)], '--force'), ([str(out), str(tmp_path / 'b')], 'is a bag already'),
                               ([str(tmp_path / 'no'), str(out)], 'does not exist')):
        assert make_bag(arguments) == 1
        assert message in capsys.readouterr().err
    assert make_bag([str(seq), str(out), '--force']) == 0
    shutil.copy(seq / 'timestamps.txt', seq / 'images' / '9.png')
    assert make_bag([str(seq), str(out), '--force']) == 1
    assert '9.png' in capsys.readouterr().err
    assert len(list(open_recording(out).frames())) == 3


@pytest.mark.parametrize('name', ['BagRecording', 'StereoRecording', 'depth_of', 'gray_images', 'open_recording', 'paired',
                                  'right_of', 'stereo_recording', 'with_nearest'])
def test_names_that_scripts_import_from_bag_stay_there(name: str) -> None:
    assert callable(getattr(import_module('lightglue_trt_ros.datasets.bag'), name))
