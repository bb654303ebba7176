"""Bits of images and units of depth: what is read, scaled, shown and told."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

pytest.importorskip('rosbags', reason='bags need the Python package rosbags')

from support.camera_info_bags import HEIGHT, WIDTH, Images, Info, K, camera_bag, gray
from support.image_recordings import image_folder

from lightglue_trt_eval.cli.benchmark import main as benchmark
from lightglue_trt_eval.cli.make_bag import main as make_bag
from lightglue_trt_eval.cli.quantize import main as quantize
from lightglue_trt_eval.options import EvaluationOptions
from lightglue_trt_eval.predict.frames import check_registered
from lightglue_trt_eval.predict.recorded_scene import open_scene
from lightglue_trt_ros.cli.build_engines import _recorded_frames
from lightglue_trt_ros.cli.build_engines import main as build_engines
from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.core.depth import DepthImage, depth_pixels, locate
from lightglue_trt_ros.core.images import gray_of
from lightglue_trt_ros.datasets.recordings import gray_images, open_recording
from lightglue_trt_ros.datasets.sequence import ImageRecord, read_image
from lightglue_trt_ros.datasets.stereo_and_depth import depth_of
from lightglue_trt_ros.datasets.units import bits_note, median_depth
from lightglue_trt_ros.utils.errors import BagError

PICTURES = [gray(number) for number in range(3)]


def deep(bits: int) -> list[np.ndarray]:
    """The pictures with `bits` of 16 filled; their low bits are not zero."""
    return [(picture.astype(np.uint16) << (bits - 8)) + (1 << (bits - 8)) // 2 for picture in PICTURES]


def netpbm(magic: str, maxval: int, samples: np.ndarray) -> bytes:
    """A file of gray (H, W) or RGB (H, W, 3), in text (P2, P3) or binary."""
    head = f'{magic}\n# by hand\n{samples.shape[1]} {samples.shape[0]}\n{maxval}\n'.encode()
    if magic in ('P2', 'P3'):
        return head + ' '.join(map(str, samples.ravel())).encode() + b'\n'
    return head + samples.astype('>u2' if maxval > 255 else np.uint8).tobytes()


def grays(path: Path, bits: int = 16) -> list[np.ndarray]:
    recording = open_recording(path, image_bits=bits)
    return [gray_of(frame.load(), recording.bits) for frame in recording.frames()]


def notes_of(path: Path, **options: Any) -> list[str]:
    notes: list[str] = []
    given = EvaluationOptions(**options)
    open_scene(given.open(path), given, notes.append)
    return [note for note in notes if '--image-bits' in note]


@pytest.mark.parametrize('bits', [10, 12, 14])
@pytest.mark.parametrize('kind', ['bag', 'compressed', '.png', '.tiff'])
def test_image_bits_give_the_picture(tmp_path: Path, bits: int, kind: str) -> None:
    path = tmp_path / 'recording'
    if kind.startswith('.'):
        image_folder(path, deep(bits), suffix=kind)
    else:
        topic = '/camera/image_raw' + '/compressed' * (kind == 'compressed')
        camera_bag(path, {topic: Images(deep(bits), png=kind == 'compressed')})
    for found, picture in zip(grays(path, bits), PICTURES, strict=True):
        assert np.abs(found.astype(int) - picture).max() <= 1
    note, = notes_of(path)
    assert f'which takes {bits} bits' in note
    assert f'give --image-bits {bits}' in note
    assert notes_of(path, image_bits=bits) == []
    note, = notes_of(path, image_bits=8)
    assert 'bright parts of the images are lost' in note


def test_images_of_eight_bits_and_full_ones_are_never_dark(tmp_path: Path) -> None:
    night = [picture // 100 for picture in PICTURES]
    for number, arrays in enumerate((night, deep(16), [np.zeros((HEIGHT, WIDTH), np.uint16)] * 3)):
        bag = camera_bag(tmp_path / f'bag{number}', {'/camera/image_raw': Images(arrays)})
        assert notes_of(bag) == []
        assert notes_of(image_folder(tmp_path / f'folder{number}', arrays)) == []
    one_bright = [*deep(12)[:2], deep(16)[0]]
    assert notes_of(camera_bag(tmp_path / 'bright', {'/camera/image_raw': Images(one_bright)})) == []


@pytest.mark.parametrize(('counts', 'unit', 'brightest', 'found'), [
    (29000, 10, 65535, 'from 29.* to 31.*, which gives at most 10 of'),
    (7600, 1, 7900, 'from 7.* to 78.*, which gives at most 4 of')],
    ids=['kelvins', '14 bits'])
def test_raw_thermal_images_are_called_nearly_gray(tmp_path: Path, counts: int, unit: int, brightest: int, found: str) -> None:
    kelvins = [counts + unit * picture.astype(np.uint16) for picture in PICTURES]  # hundredths
    kelvins[0][0, :2] = 0, brightest  # broken pixels
    notes: list[str] = []
    given = EvaluationOptions()
    open_scene(given.open(camera_bag(tmp_path / 'bag', {'/thermal/image_raw': Images(kelvins)})), given, notes.append)
    assert re.search(rf'little contrast: .* of 3 images .* are {found} 256 gray levels', ' '.join(notes))
    assert '--image-bits' not in ' '.join(notes)


def test_thermal_images_without_a_frame_that_can_be_read_have_no_note() -> None:
    assert bits_note([]) == ''


@pytest.mark.parametrize('magic', ['P2', 'P3', 'P5', 'P6'])
@pytest.mark.parametrize('maxval', [15, 127, 255, 1023, 4095, 65535])
def test_the_maxval_of_a_netpbm_file_is_white(tmp_path: Path, magic: str, maxval: int) -> None:
    values = np.random.default_rng(1).integers(0, maxval, (7, 9), endpoint=True)
    values[0, :2] = 0, maxval
    samples = np.dstack([values] * 3) if magic in ('P3', 'P6') else values
    (tmp_path / 'picture.pgm').write_bytes(netpbm(magic, maxval, samples))
    found = read_image(tmp_path / 'picture.pgm')
    assert found.dtype == np.uint8
    assert found.ndim == samples.ndim
    assert np.abs(found.reshape(7, 9, -1)[..., 0] - values * 255 / maxval).max() <= 1


def test_a_maxval_counts_before_image_bits(tmp_path: Path) -> None:
    path = image_folder(tmp_path / 'folder', PICTURES)
    for number, samples in enumerate(deep(12)):
        (path / 'images' / f'{number}.png').unlink()
        (path / 'images' / f'{number}.pgm').write_bytes(netpbm('P5', 4095, samples))
    for bits in (16, 12, 10):
        for found, picture in zip(grays(path, bits), PICTURES, strict=True):
            assert np.abs(found.astype(int) - picture).max() <= 1
    assert notes_of(path) == []


def test_colour_of_sixteen_bits_keeps_its_gray(tmp_path: Path) -> None:
    colour = np.dstack(PICTURES)
    for bits, shift in ((16, 8), (12, 4)):
        path = image_folder(tmp_path / f'folder{bits}', [colour.astype(np.uint16) << shift] * 2)
        np.testing.assert_array_equal(grays(path, bits)[0], cv2.cvtColor(colour, cv2.COLOR_BGR2GRAY))
        recording = open_recording(path, image_bits=bits)
        np.testing.assert_array_equal(next(recording.images())[1], colour)  # type: ignore[attr-defined]


def test_make_bag_writes_pictures_of_image_bits(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = image_folder(tmp_path / 'folder', deep(12))
    assert make_bag([str(path), str(tmp_path / 'dark')]) == 0
    assert 'give --image-bits 12' in ''.join(capfd.readouterr())
    assert make_bag([str(path), str(tmp_path / 'bag'), '--image-bits', '12']) == 0
    assert '--image-bits' not in ''.join(capfd.readouterr())
    for found, picture in zip(grays(tmp_path / 'bag'), PICTURES, strict=True):
        assert np.abs(found.astype(int) - picture).max() <= 1


def test_image_bits_are_those_of_right_images(tmp_path: Path) -> None:
    bag = camera_bag(tmp_path / 'bag', {'/left/image_raw': Images(deep(12)), '/right/image_raw': Images(deep(12))})
    left = open_recording(bag, '/left/image_raw', image_bits=12)
    assert left.other('/right/image_raw').bits == 12  # type: ignore[attr-defined]
    path = image_folder(tmp_path / 'folder', deep(12))
    (path / 'images').rename(path / 'images_right')
    right = open_recording(image_folder(path, deep(12)), image_bits=12).right
    assert right is not None
    assert right.bits == 12


def tum(path: Path, pixels: np.ndarray) -> Path:
    """A TUM RGB-D folder with three images, all with these depths."""
    for name, arrays in (('rgb', PICTURES), ('depth', [pixels] * 3)):
        (path / name).mkdir(parents=True)
        for number, array in enumerate(arrays):
            assert cv2.imwrite(str(path / name / f'{number}.png'), array)
        (path / f'{name}.txt').write_text(''.join(f'{number}.0 {name}/{number}.png\n' for number in range(3)))
    return path


def depth_bag(path: Path, pixels: np.ndarray, encoding: str = '16UC1', depth: Info | None = None, image: Info | None = None,
              topic: str = '/camera/depth/image') -> Path:
    topics = {'/camera/color/image_raw': Images(), topic: Images([pixels] * 3, encoding=encoding),
              '/camera/color/camera_info': [image or Info()]}
    return camera_bag(path, topics | ({topic.rpartition('/')[0] + '/camera_info': [depth]} if depth else {}))


WALL = np.full((HEIGHT, WIDTH), 1068, np.uint16)


@pytest.mark.parametrize(('scale', 'metres'), [(None, 0.2136), (1000, 1.068), (5000, 0.2136), (400, 2.67)])
def test_depth_scale_of_a_tum_folder(tmp_path: Path, scale: float | None, metres: float) -> None:
    depth = depth_of(open_recording(tum(tmp_path / 'folder', WALL), depth_scale=scale))
    pixels, unit_m = depth_pixels(next(depth.frames()).load(), per_metre=depth.depth_scale)
    assert pixels[3, 4] * unit_m == pytest.approx(metres)
    notes: list[str] = []
    assert median_depth(depth, notes.append) == pytest.approx(metres)
    assert ['5 % of the pixels are nearer than 0.21 m' in note and 'millimetres, give --depth-scale 1000' in note
            for note in notes] == [True] * (scale is None)


def test_depth_in_the_units_of_tum_is_not_doubted(tmp_path: Path) -> None:
    pixels = np.linspace(2500, 20000, WALL.size).reshape(WALL.shape).astype(np.uint16)
    depth = depth_of(open_recording(tum(tmp_path / 'folder', pixels)))
    assert median_depth(depth, lambda note: pytest.fail(note)) == pytest.approx(2.25, rel=0.01)


@pytest.mark.parametrize(('pixels', 'encoding', 'scale', 'metres'), [
    (WALL, '16UC1', None, 1.068), (WALL, '16UC1', 5000, 0.2136), (np.float32(WALL) / 1000, '32FC1', None, 1.068),
    (np.float32(WALL), '32FC1', 1000, 1.068)])
def test_depth_scale_of_a_bag(tmp_path: Path, pixels: np.ndarray, encoding: str, scale: float | None, metres: float) -> None:
    depth = depth_of(open_recording(depth_bag(tmp_path / 'bag', pixels, encoding), depth_scale=scale))
    assert median_depth(depth, lambda note: pytest.fail(note)) == pytest.approx(metres)


@pytest.mark.parametrize(('pixels', 'encoding', 'scale', 'told'), [
    (WALL // 50, '16UC1', None, 'its median is 0.021 m'), (WALL, '16UC1', 5, 'its median is 214 m'),
    (np.float32(WALL), '32FC1', None, 'its median is 1068 m'), (np.zeros_like(WALL), '16UC1', None, 'the first images have none')])
def test_a_unit_that_cannot_be_is_told_with_the_remedy(tmp_path: Path, pixels: np.ndarray, encoding: str, scale: float | None,
                                                       told: str) -> None:
    notes: list[str] = []
    median_depth(depth_of(open_recording(depth_bag(tmp_path / 'bag', pixels, encoding), depth_scale=scale)), notes.append)
    assert len(notes) == 1
    assert told in notes[0]
    assert '--depth-scale' in notes[0]


@pytest.mark.parametrize('make', [tum, depth_bag])
def test_depth_of_65535_is_unknown_and_noted(tmp_path: Path, make: Any) -> None:
    pixels = WALL.copy()
    pixels[:, ::2] = 65535
    depth, notes = depth_of(open_recording(make(tmp_path / 'recording', pixels))), list[str]()
    assert median_depth(depth, notes.append) == pytest.approx(0.2136 if make is tum else 1.068)
    assert len(notes) == (2 if make is tum else 1)
    assert '50.0 % of the pixels are 65535, which is taken as unknown: write 0 there' in notes[0]
    camera, points = Intrinsics(WIDTH, HEIGHT, K, 'plumb_bob', np.zeros(0)), np.array([[20, 9], [21, 9]], np.float32)
    z = locate(DepthImage(*depth_pixels(next(depth.frames()).load()), camera), points, np.zeros((2, 2, 2), np.float32)).xyz[:, 2]
    assert np.isnan(z).tolist() == [True, False]


def test_make_bag_writes_depth_by_its_scale(tmp_path: Path, capfd: pytest.CaptureFixture[str],
                                            usage_error: Callable[..., str]) -> None:
    path = tum(tmp_path / 'folder', WALL)
    assert make_bag([str(path), str(tmp_path / 'bag'), '--depth-scale', '1000']) == 0
    assert 'depth with a median of 1.07 m' in capfd.readouterr().out
    assert median_depth(depth_of(open_recording(tmp_path / 'bag')), lambda note: pytest.fail(note)) == pytest.approx(1.068)
    usage_error(make_bag, path, tmp_path / 'other', '--depth-scale', '1000', '--no-depth')


BENT = (-0.3, 0.1, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(('image', 'depth', 'topic', 'registered'), [
    (Info(), Info(), '/camera/depth/image', True), (Info(d=BENT), Info(d=BENT), '/camera/depth/image', True),
    (Info(d=BENT), Info(), '/camera/depth/image', False), (Info(d=BENT), Info(d=BENT), '/camera/depth/image_rect', False),
    (Info(d=(*BENT, 0, 0, 0), model='rational_polynomial'), Info(d=BENT), '/camera/depth/image', True),
    (Info(), Info(K + np.outer([2, 0, 0], [0, 0, 1])), '/camera/depth/image', False),
    (Info(), None, '/camera/depth/image', True)])
def test_depth_of_another_view_is_refused(tmp_path: Path, image: Info, depth: Info | None, topic: str, registered: bool) -> None:
    recording = open_recording(depth_bag(tmp_path / 'bag', WALL, depth=depth, image=image, topic=topic), '/camera/color/image_raw')
    camera = recording.intrinsics
    assert camera is not None
    if registered:
        check_registered(depth_of(recording, topic), recording, camera)
        return
    with pytest.raises(BagError, match=f'{topic} is not registered to /camera/color/image_raw: its CameraInfo is another one'):
        check_registered(depth_of(recording, topic), recording, camera)


def test_commands_take_the_bits_of_their_recordings(tmp_path: Path, usage_error: Callable[..., str]) -> None:
    bag = camera_bag(tmp_path / 'bag', {'/camera/image_raw': Images(deep(12))})
    shown, _ = _recorded_frames(bag, None, 12, (HEIGHT, WIDTH))
    for found, also, picture in zip(shown, gray_images(bag, image_bits=12), PICTURES, strict=True):
        np.testing.assert_array_equal(found, also)
        assert np.abs(found.astype(int) - picture).max() <= 1
    for main in (quantize, build_engines, benchmark):
        assert '17 does not lie in [8, 16]' in usage_error(main, '--image-bits', '17')


def test_sixteen_bits_of_colour_stay_colour_for_a_player() -> None:
    pytest.importorskip('rclpy', reason='rclpy is not installed: nothing is played')
    from lightglue_trt_ros.ros.player import _for_encoder
    colour = np.dstack(PICTURES)
    np.testing.assert_array_equal(_for_encoder(ImageRecord.from_samples(colour.astype(np.uint16) * 256 + 77)), colour)
