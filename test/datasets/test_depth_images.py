"""Depth images of recordings: folders of both layouts and bags, found, read, paired with images, and written."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest

from lightglue_trt_eval.cli.make_bag import main as make_bag
from lightglue_trt_ros.core.cameras import camera_info_topic
from lightglue_trt_ros.core.depth import depth_pixels
from lightglue_trt_ros.datasets.bag_writer import write_bag
from lightglue_trt_ros.datasets.recordings import open_recording
from lightglue_trt_ros.datasets.sequence import holds_depth
from lightglue_trt_ros.datasets.stereo_and_depth import depth_of, with_nearest
from lightglue_trt_ros.utils.errors import BagError

pytest.importorskip('rosbags', reason='bags need the Python package rosbags')
from support.image_recordings import image_folder, pinhole
from support.transport_bags import bag as transport_bag


def image(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (30, 40), np.uint8)


def depth(number: int) -> np.ndarray:
    pixels = np.random.default_rng(100 + number).integers(500, 8000, (30, 40)).astype(np.uint16)
    pixels[0, :5] = 0
    return pixels


def images_folder(path: Path, count: int = 3) -> Path:
    """Files are 8, 9, 10: without zeros in front."""
    return image_folder(path, map(image, range(count)), calibration=pinhole(40, 30, 50), first=8, depth=map(depth, range(count)))


def tum_folder(path: Path) -> Path:
    """Depth images come 10 ms after the images, and there are two of them."""
    for name, make, stamps in (('rgb', image, (1.0, 1.1, 1.2)), ('depth', depth, (1.01, 1.21))):
        (path / name).mkdir(parents=True)
        for number, stamp in enumerate(stamps):
            assert cv2.imwrite(str(path / name / f'{stamp}.png'), make(number))
        (path / f'{name}.txt').write_text('# made by hand\n' + ''.join(f'{stamp} {name}/{stamp}.png\n' for stamp in stamps))
    return path


def metres(message: Any) -> np.ndarray:
    pixels, unit_m = depth_pixels(message)
    return np.nan_to_num(pixels * np.float32(unit_m))


def test_a_depth_image_beside_each_image_is_in_millimetres(tmp_path: Path) -> None:
    recording = open_recording(images_folder(tmp_path))
    found = depth_of(recording)
    assert (len(found), found.intrinsics.k.tolist()) == (3, recording.intrinsics.k.tolist())
    for number, frame in enumerate(found.frames()):
        message = frame.load()
        assert (frame.stamp_ns, message.encoding, message.height, message.width) == (10**9 + number * 10**8, '16UC1', 30, 40)
        np.testing.assert_allclose(metres(message), depth(number) / 1000, rtol=1e-6)


def test_depth_of_tum_has_5000_to_a_metre_and_its_own_stamps(tmp_path: Path) -> None:
    recording = open_recording(tum_folder(tmp_path))
    frames = list(depth_of(recording).frames())
    assert [frame.stamp_ns for frame in frames] == [1_010_000_000, 1_210_000_000]
    for number, frame in enumerate(frames):
        message = frame.load()
        assert message.encoding == '32FC1'
        np.testing.assert_allclose(metres(message), depth(number) / 5000, rtol=1e-6)
        assert np.isnan(depth_pixels(message)[0][0, :5]).all(), 'as REP 118 has it'
    pairs = list(with_nearest(recording.frames(), depth_of(recording).frames()))
    assert [other and other.number for _, other in pairs] == [0, None, 1]


def test_an_image_gets_the_nearest_depth_image() -> None:
    def frames(*stamps_ms: int) -> Any:
        return iter([SimpleNamespace(stamp_ns=stamp * 10**6) for stamp in stamps_ms])

    def nearest(images: Any, others: Any) -> list[int | None]:
        return [None if other is None else other.stamp_ns // 10**6 for _, other in with_nearest(images, others)]

    assert nearest(frames(0, 33, 67, 100), frames(10, 43, 57, 87, 110)) == [10, 43, 57, 110]
    assert nearest(frames(0, 33, 67), frames(10, 50, 61)) == [10, None, 61], 'further than half a period'
    assert nearest(frames(0, 16, 33), frames(12)) == [12, None, None], 'a depth image is of one frame'
    assert nearest(frames(*range(0, 1000, 16)), frames(*range(0, 1000, 32))) == [stamp if stamp % 32 == 0 else None
                                                                                for stamp in range(0, 1000, 16)]
    assert nearest(frames(*range(0, 1000, 32)), frames(*range(0, 1000, 16))) == list(range(0, 1000, 32))
    assert nearest(frames(0, 100, 200), frames(50, 150, 220)) == [None, None, 220]
    assert nearest(frames(0, 100), frames()) == [None, None]


def test_files_that_are_no_depth_images_are_named(tmp_path: Path) -> None:
    path = images_folder(tmp_path)
    bad = path / 'depth' / '9.png'
    for picture, words in ((image(0), 'has 8 bits and 1 channels'), (np.dstack([depth(0)] * 3), 'has 16 bits and 3 channels')):
        assert cv2.imwrite(str(bad), picture)
        first, second, _ = depth_of(open_recording(path)).frames()
        first.load()
        with pytest.raises(BagError, match=rf'9.png {words}: depth is a gray PNG of 16 bits'):
            second.load()
    bad.write_bytes(b'')
    with pytest.raises(BagError, match=r'9.png \(0 bytes\) is not an image'):
        next(frame for frame in depth_of(open_recording(path)).frames() if frame.number == 1).load()
    bad.unlink()
    with pytest.raises(BagError, match='3 images and 2 depth images: give each image one'):
        depth_of(open_recording(path))
    assert len(list(open_recording(path).frames())) == 3, 'without depth it can be used'
    for file in (path / 'depth').iterdir():
        file.unlink()
    (path / 'depth').rmdir()
    assert open_recording(path).depth is None
    with pytest.raises(BagError, match='has no depth images: put them into depth/ next to images/'):
        depth_of(open_recording(path))
    with pytest.raises(BagError, match='without a topic /depth: give --depth'):
        depth_of(open_recording(path), '/depth')


@pytest.mark.parametrize('make', [images_folder, tum_folder])
def test_a_bag_of_a_folder_has_its_depth(tmp_path: Path, capsys: pytest.CaptureFixture[str], make: Any) -> None:
    folder = open_recording(make(tmp_path / 'folder'))
    assert make_bag([str(folder.path), str(tmp_path / 'bag')]) == 0
    for program, line in zip(('play_bag', 'evaluate_bag'), capsys.readouterr().out.splitlines()[-2:], strict=True):
        camera = ' --camera CALIB.yaml' * (program == 'evaluate_bag' and make is tum_folder)  # which has no calibration
        assert line == f'ros2 run lightglue_trt_ros {program} {tmp_path / "bag"} --depth{camera}'
    recording = open_recording(tmp_path / 'bag')
    assert recording.image_topic == '/camera/image_raw'
    found = depth_of(recording)
    assert found.image_topic == '/camera/depth/image_raw'
    for frame, original in zip(found.frames(), folder.depth.frames(), strict=True):
        assert frame.stamp_ns == original.stamp_ns
        assert frame.load().encoding == original.load().encoding
        np.testing.assert_array_equal(metres(frame.load()), metres(original.load()))
    if folder.intrinsics is not None:
        assert found.intrinsics.k.tolist() == folder.intrinsics.k.tolist()
    assert make_bag([str(folder.path), str(tmp_path / 'without'), '--no-depth', '--compressed', 'png']) == 0
    assert open_recording(tmp_path / 'without').depth is None
    assert len(capsys.readouterr().out.splitlines()) == 1


def bag(path: Path, topics: dict[str, tuple[str, str]]) -> Path:
    """A bag with three messages on each topic, which has a frame_id and an encoding."""
    def message(topic: str, encoding: str, number: int) -> tuple[str, Any]:
        if 'compressed' in topic:
            return f'{encoding}; compressedDepth png', bytes(12) + cv2.imencode('.png', depth(number))[1].tobytes()
        return encoding, image(number) if encoding == 'mono8' else depth(number)

    return transport_bag(path, {topic: [message(topic, encoding, number) for number in range(3)]
                                for topic, (_, encoding) in topics.items()},
                         {topic: frame_id for topic, (frame_id, _) in topics.items()})


REALSENSE = {'/camera/camera/color/image_raw': ('color_optical', 'mono8'),
             '/camera/camera/aligned_depth_to_color/image_raw': ('color_optical', '16UC1'),
             '/camera/camera/depth/image_rect_raw': ('depth_optical', '16UC1')}


def test_of_a_depth_cameras_topics_colour_and_registered_depth_are_found(tmp_path: Path) -> None:
    recording = open_recording(bag(tmp_path / 'bag', REALSENSE))
    assert recording.image_topic == '/camera/camera/color/image_raw'
    assert depth_of(recording).image_topic == '/camera/camera/aligned_depth_to_color/image_raw'
    assert depth_of(recording, '/camera/camera/depth/image_rect_raw').image_topic == '/camera/camera/depth/image_rect_raw'
    with pytest.raises(BagError, match='no images on /depth'):
        depth_of(recording, '/depth')
    only_depth = open_recording(tmp_path / 'bag', '/camera/camera/depth/image_rect_raw')
    assert len(only_depth) == 3, 'a depth topic that is named is opened'


def test_compressed_depth_is_found_where_there_is_no_raw_one(tmp_path: Path) -> None:
    raw, small = '/camera/aligned_depth_to_color/image_raw', '/camera/aligned_depth_to_color/image_raw/compressedDepth'
    topics = {'/camera/color/image_raw': ('color', 'mono8'), small: ('color', '16UC1')}
    found = depth_of(open_recording(bag(tmp_path / 'one', topics)))
    assert found.image_topic == small
    for number, frame in enumerate(found.frames()):
        np.testing.assert_allclose(metres(frame.load()), depth(number) / 1000, rtol=1e-6)
    assert depth_of(open_recording(bag(tmp_path / 'two', {**topics, raw: ('color', '16UC1')}))).image_topic == raw
    assert camera_info_topic(small) == camera_info_topic(raw)


def test_depth_that_is_not_registered_has_to_be_named(tmp_path: Path) -> None:
    del (topics := dict(REALSENSE))['/camera/camera/aligned_depth_to_color/image_raw']
    recording = open_recording(bag(tmp_path / 'bag', topics))
    assert recording.depth is None
    with pytest.raises(BagError, match=r"frame_id 'color_optical': \S+depth/image_rect_raw \('depth_op.*Register"):
        depth_of(recording)


def test_reads_png_depth_of_other_drivers_and_refuses_other_images(tmp_path: Path) -> None:
    colour, stored = ('bgr8', np.zeros((12, 16, 3), np.uint8)), np.full((12, 16), 1500, np.uint16)
    png = cv2.imencode('.png', stored)[1].tobytes()
    for name, form in (('a', 'png'), ('b', 'mono16; png compressed ')):
        topics = {'/cam/color': [colour], '/cam/depth/compressed': [(form, png)]}
        found = depth_of(open_recording(transport_bag(tmp_path / name, topics)))
        np.testing.assert_allclose(metres(next(found.frames()).load()), 1.5, rtol=1e-6)
    picture = cv2.imencode('.png', np.zeros((12, 16), np.uint8))[1].tobytes()
    for name, topic, message in (('c', '/cam/disparity', ('16UC1', stored)), ('d', '/cam/depth/compressed', ('png', picture)),
                                 ('e', '/cam/labels', ('16UC1', stored))):
        with pytest.raises(BagError, match=f'no depth images: .*It holds: .*{topic}'):
            depth_of(open_recording(transport_bag(tmp_path / name, {'/cam/color': [colour], topic: [message]})))


def test_topics_of_colour_stay_when_all_are_called_depth(tmp_path: Path) -> None:
    both = {'/depth_camera/rgb': ('camera', 'mono8'), '/depth_camera/depth': ('camera', '16UC1')}
    recording = open_recording(bag(tmp_path / 'two', both))
    assert recording.image_topic == '/depth_camera/rgb', 'what an image holds counts for more than its name'
    assert depth_of(recording).image_topic == '/depth_camera/depth'
    write_bag(tmp_path / 'one', [(1, image(0))], image_topic='/depth_camera/image_raw')
    assert open_recording(tmp_path / 'one').image_topic == '/depth_camera/image_raw'


def test_the_word_depth_in_a_topic() -> None:
    assert all(map(holds_depth, ('/camera/depth/image_rect_raw', '/camera/aligned_depth_to_color/image_raw', '/depth', '/depth0/i',
                                 '/kinect2/qhd/image_depth_rect', '/rgbd_camera/depth_image', '/zed/depth/depth_registered',
                                 '/oak/stereo/image_raw/compressedDepth')))
    assert not any(map(holds_depth, ('/camera/color/image_raw', '/depthai/rgb/image_raw', '/in_depthless/image', '/oak/rgb/image')))
