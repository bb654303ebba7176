"""The image topics of a bag: transports of one image, depth by what it holds, and the pictures that the matcher draws."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from support.bags import COMPRESSED, IMAGE, compressed_image, image, write_messages
from support.compression import zstd
from support.transport_bags import bag, packed

from lightglue_trt_ros.core.depth import depth_pixels
from lightglue_trt_ros.core.drawing import draw_matches
from lightglue_trt_ros.core.images import gray_of, stamp_of
from lightglue_trt_ros.core.types import FrameMatches
from lightglue_trt_ros.datasets.bag_topics import is_drawing
from lightglue_trt_ros.datasets.recordings import open_recording
from lightglue_trt_ros.datasets.sequence import readable_frames
from lightglue_trt_ros.datasets.stereo_and_depth import depth_of
from lightglue_trt_ros.utils.errors import BagError

pytest.importorskip('rosbags', reason='bags need the Python package rosbags')

HEIGHT, WIDTH = 120, 240


def gray(number: int) -> np.ndarray:
    return cv2.GaussianBlur(np.random.default_rng(number).integers(0, 256, (HEIGHT, WIDTH), np.uint8), (0, 0), 2)


def depth(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(500, 8000, (HEIGHT, WIDTH)).astype(np.uint16)


def png(array: np.ndarray, form: str) -> tuple[str, bytes]:
    return form, cv2.imencode('.png', array)[1].tobytes()


def compressed_depth(array: np.ndarray) -> tuple[str, bytes]:
    return '16UC1; compressedDepth png', bytes(12) + cv2.imencode('.png', array)[1].tobytes()


def raw(array: np.ndarray, encoding: str) -> tuple[str, np.ndarray]:
    return encoding, array


GRAYS = [gray(number) for number in range(3)]
RAW = [raw(array, 'mono8') for array in GRAYS]
PNG = [png(array, 'mono8; png compressed mono8') for array in GRAYS]
ZSTD = [packed(array, 'mono8', gzip.compress) for array in GRAYS]


def test_transports_of_one_image_are_one_camera_and_raw_comes_first(tmp_path: Path) -> None:
    base = '/camera/image_raw'
    recording = open_recording(bag(tmp_path / 'bag', {f'{base}/compressed': PNG, f'{base}/zstd': ZSTD, base: RAW[:2]}))
    assert recording.image_topic == base
    assert recording.notes == (f'images: {base} ({IMAGE}, 2 messages); not read are the same ones in another transport, '
                               f'{base}/compressed ({COMPRESSED}, 3 messages); {base}/zstd ({COMPRESSED}, 3 messages)',)
    named = open_recording(tmp_path / 'bag', f'{base}/compressed')
    assert (len(named), named.compressed, named.notes) == (3, True, ())
    del (others := {f'{base}/compressed': PNG, f'{base}/zstd': ZSTD, base: RAW})[base]
    recording = open_recording(bag(tmp_path / 'two', others))
    assert recording.image_topic == f'{base}/compressed'
    assert open_recording(tmp_path / 'two', base).notes == (f'{base} was recorded as {base}/compressed',)


def test_two_cameras_with_transports_are_still_two(tmp_path: Path) -> None:
    topics = {'/left/image_raw': RAW, '/left/image_raw/compressed': PNG, '/right/image_raw/compressed': PNG}
    with pytest.raises(BagError, match=r'holds 2 image topics, choose one \(--image-topic\)'):
        open_recording(bag(tmp_path / 'bag', topics))
    assert open_recording(tmp_path / 'bag', camera='left').image_topic == '/left/image_raw'


@pytest.mark.parametrize('pack', [gzip.compress, zstd])
def test_images_of_zstd_image_transport_are_read(tmp_path: Path, pack: Any) -> None:
    path = bag(tmp_path / 'bag', {'/camera/image_raw/zstd': [packed(array, 'mono8', pack) for array in GRAYS]})
    recording = open_recording(path)
    assert not recording.compressed
    for frame, array in zip(recording.frames(), GRAYS, strict=True):
        assert np.array_equal(gray_of(frame.load()), array)
        assert frame.raw is None, 'it is no Image as serialised'
    assert recording.frame_id == 'cam'  # type: ignore[attr-defined]  # of bags
    for data in (b'short', packed(GRAYS[0], 'mono8', pack)[1][:60], packed(GRAYS[0], 'mono8', lambda pixels: b'none')[1]):
        bad = open_recording(bag(tmp_path / f'bad{len(data)}', {'/camera/image_raw/zstd': [('zstd', data)]}))
        with pytest.raises(BagError, match=rf'message 1 of .*zstd: {len(data)} bytes are no image of zstd_image_transport'):
            next(bad.frames()).load()


@pytest.mark.parametrize(('encoding', 'array'), [('16UC1', depth(1)), ('32FC1', depth(1).astype(np.float32) / 1000)])
def test_depth_is_known_by_what_it_holds(tmp_path: Path, encoding: str, array: np.ndarray) -> None:
    path = bag(tmp_path / 'bag', {'/oak/rgb/image_raw': RAW, '/oak/stereo/image_raw': [raw(array, encoding)] * 3})
    recording = open_recording(path)
    assert recording.image_topic == '/oak/rgb/image_raw'
    assert recording.notes == ('/oak/stereo/image_raw: depth by its encoding, so no camera; --image-topic takes it all the same',)
    assert depth_of(recording).image_topic == '/oak/stereo/image_raw'
    assert open_recording(path, '/oak/stereo/image_raw').image_topic == '/oak/stereo/image_raw'
    alone = open_recording(bag(tmp_path / 'alone', {'/thermal/image_raw': [raw(depth(2), '16UC1')]}))
    assert alone.image_topic == '/thermal/image_raw', 'the only images are taken'


def test_colours_of_a_topic_called_depth_are_no_depth(tmp_path: Path) -> None:
    topics = {'/camera/color/image_raw': RAW, '/camera/depth/colorized': [raw(np.dstack([array] * 3), 'bgr8') for array in GRAYS]}
    recording = open_recording(bag(tmp_path / 'bag', topics))
    assert recording.image_topic == '/camera/color/image_raw'
    assert recording.depth is None


DEPTH_TRANSPORTS = {'': raw(depth(1), '16UC1'), '/compressedDepth': compressed_depth(depth(1)),
                    '/compressed': png(depth(1), '16UC1; png compressed '), '/zstd': packed(depth(1), '16UC1', gzip.compress)}


@pytest.mark.parametrize('first', range(4))
def test_transports_of_one_depth_image_are_one(tmp_path: Path, first: int) -> None:
    base = '/camera/aligned_depth_to_color/image_raw'
    transports = dict(list(DEPTH_TRANSPORTS.items())[first:])
    topics = {'/camera/color/image_raw': RAW} | {base + name: [message] * 3 for name, message in reversed(transports.items())}
    found = depth_of(open_recording(bag(tmp_path / 'bag', topics)))
    assert found.image_topic == base + next(iter(transports))
    for frame in found.frames():
        pixels, unit_m = depth_pixels(frame.load())
        np.testing.assert_array_equal(pixels, depth(1))
        assert unit_m == 1e-3


def drawn(image: np.ndarray, count: int = 60) -> np.ndarray:
    rng = np.random.default_rng(5)
    points = rng.uniform([0, 0], [image.shape[1], image.shape[0]], (count, 2)).astype(np.float32)
    matches = FrameMatches(1.0, 0.9, points, points + 3, np.ones(count, np.float32), np.arange(count, dtype=np.uint32),
                           np.full(count, 4, np.uint32), np.tile(np.eye(2, dtype=np.float32), (count, 1, 1)),
                           np.zeros(count, np.bool_), {}, image.shape[:2])
    return draw_matches(image, matches)


@pytest.mark.parametrize('size', [(120, 160), (480, 640), (1080, 1920)])
@pytest.mark.parametrize('count', [0, 7, 1024])
def test_a_drawing_of_matches_is_recognised(size: tuple[int, int], count: int) -> None:
    image = cv2.resize(gray(1), size[::-1])
    picture = drawn(image, count)
    assert is_drawing(picture)
    assert is_drawing(cv2.imdecode(cv2.imencode('.jpg', picture, [cv2.IMWRITE_JPEG_QUALITY, 70])[1], cv2.IMREAD_COLOR))
    dark = picture.copy()
    dark[-40:] = 0
    for other in (np.dstack([image] * 3), dark, np.zeros_like(picture), np.full_like(picture, 255)):
        assert not is_drawing(other)


def test_pictures_of_the_matcher_are_never_images_of_a_camera(tmp_path: Path) -> None:
    picture = drawn(GRAYS[0])
    jpeg = ('bgr8; jpeg compressed bgr8', cv2.imencode('.jpg', picture)[1].tobytes())
    for name, message in (('/seen', raw(picture, 'bgr8')), ('/matcher/debug_image/compressed', jpeg)):
        path = bag(tmp_path / name.replace('/', '_'), {'/camera/image_raw': RAW, name: [message] * 3})
        recording = open_recording(path)
        assert recording.image_topic == '/camera/image_raw'
        assert recording.notes == (f'{name}: pictures that the matcher draws, left out',)
        with pytest.raises(BagError, match=rf'{name} has the pictures that the matcher draws .*name its topic \(--image-topic\)'):
            open_recording(path, name)
    with pytest.raises(BagError, match='/matcher/debug_image has the pictures that the matcher draws'):
        open_recording(bag(tmp_path / 'only', {'/matcher/debug_image': [raw(picture, 'bgr8')]}))
    camera = open_recording(bag(tmp_path / 'other', {'/matcher/debug_image': RAW}))
    assert camera.image_topic == '/matcher/debug_image', 'the name alone does not tell'


def test_images_in_packets_of_a_video_are_named(tmp_path: Path) -> None:
    write_messages(tmp_path / 'bag', {'/camera/image_raw/theora': ('theora_image_transport/msg/Packet', [(1, bytes(12))])})
    with pytest.raises(BagError, match=r'packets of a video only, /camera/image_raw/theora .*: play it, and record what comes out'):
        open_recording(tmp_path / 'bag')


@pytest.mark.parametrize(('form', 'start'), [
    ('h264', b'\0\0\0\1\x67'), ('', b'\0\0\1\x40'), ('HEVC', b''), ('rgb8; av1', b'\x12')])
def test_compressed_images_that_are_packets_of_a_video_are_named(tmp_path: Path, form: str, start: bytes) -> None:
    """As Isaac ROS records them: they need the packets before them."""
    video = compressed_image(1, 'cam', form, start + bytes(90))
    write_messages(tmp_path / 'bag', {'/left/image_compressed': (COMPRESSED, [(1, video)])})
    for topic in (None, '/left/image_compressed'):
        with pytest.raises(BagError, match=r'packets of a video, /left/image_compressed .*: play it into a decoder, as isaac_ros'):
            open_recording(tmp_path / 'bag', topic)
    picture = compressed_image(1, 'cam', 'jpeg', cv2.imencode('.jpg', np.zeros((8, 8), np.uint8))[1].tobytes())
    both = {'/left/image_compressed': (COMPRESSED, [(1, video)]), '/rear': (COMPRESSED, [(1, picture)])}
    assert open_recording(write_messages(tmp_path / 'both', both)).image_topic == '/rear'


def test_other_views_share_what_the_user_gave(tmp_path: Path) -> None:
    path = bag(tmp_path / 'bag', {'/a/image_raw': RAW, '/b/image_raw': RAW})
    other = open_recording(path, '/a/image_raw', image_bits=12, depth_scale=5000.0).other('/b/image_raw')  # type: ignore[attr-defined]
    assert (other.bits, other.depth_scale) == (12, 5000.0)


@pytest.mark.parametrize('packing', ['', 'message'])
def test_images_without_stamps_have_those_of_the_recorder(tmp_path: Path, packing: str) -> None:
    received, jpeg = [1_700_000_000_000_000_000 + 33_000_007 * number for number in range(3)], PNG[0]
    bag = write_messages(tmp_path / 'bag', {
        '/cam/image_raw': (IMAGE, [(time, image(0, 'cam', GRAYS[0])) for time in received]),
        '/jpeg/compressed': (COMPRESSED, [(time, compressed_image(0, 'cam', *jpeg)) for time in received])}, compress=packing)
    for topic in ('/cam/image_raw', '/jpeg/compressed'):
        recording = open_recording(bag, topic)
        frames = list(recording.frames())
        assert [frame.stamp_ns for frame in frames] == received
        stamps = [frame.load().header.stamp for frame in frames]
        assert [stamp.sec * 10**9 + stamp.nanosec for stamp in stamps] == received
        assert [stamp_of(frame.raw, '') for frame in frames if frame.raw is not None] == received
        assert np.array_equal(gray_of(frames[0].load()), GRAYS[0])
        assert recording.notes[-1].startswith(f'header.stamp of the images on {topic} is 0: the times at which they were recorded')


@pytest.mark.parametrize('missing', [{0, 1}, {2}, {3, 4}])
def test_images_without_stamps_beside_others_are_left_out(tmp_path: Path, missing: set[int]) -> None:
    stamps = [0 if number in missing else (number + 100) * 10**9 for number in range(5)]
    bag = write_messages(tmp_path / 'bag', {'/cam': (IMAGE, [(10**18 + number, image(stamp, 'cam', GRAYS[0]))
                                                             for number, stamp in enumerate(stamps)])})
    recording, lines = open_recording(bag), list[str]()
    assert [frame.stamp_ns for frame in readable_frames(recording, lines.append)] == list(filter(None, stamps))
    assert (len(lines), recording.notes) == (1, ())
    assert f'{len(missing)} of 5 frames cannot be used; the first is frame {min(missing)}: ' in lines[0]
    assert 'has header.stamp 0, and others have a time' in lines[0]


def test_a_simulation_may_begin_at_0(tmp_path: Path) -> None:
    bag = write_messages(tmp_path / 'bag', {'/cam': (IMAGE, [(10**18 + time, image(time, 'cam', GRAYS[0])) for time in (0, 1)])})
    assert ([frame.stamp_ns for frame in open_recording(bag).frames()], open_recording(bag).notes) == ([0, 1], ())
