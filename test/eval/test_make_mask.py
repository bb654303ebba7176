"""The command make_mask: its files, several cameras, and what it refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
from support.camera_info_bags import Images, camera_bag
from support.image_recordings import image_folder

from lightglue_trt_eval.cli.make_mask import main
from lightglue_trt_ros.core.masks import load_mask
from lightglue_trt_ros.datasets.bag_writer import write_bag
from lightglue_trt_ros.datasets.folder_recordings import FolderRecording
from lightglue_trt_ros.datasets.recordings import open_recording

HEIGHT, WIDTH, COUNT = 120, 160, 40


def frames(edge: int, count: int = COUNT) -> list[np.ndarray]:
    """A camera that passes a wall with structure; the rows from `edge` on are black."""
    rng = np.random.default_rng(7)
    wall = np.zeros((1200, 1200), np.float32)
    for cell in (4, 12, 40, 120):
        wall += cv2.resize(rng.uniform(0, 50, (1200 // cell, 1200 // cell)).astype(np.float32), (1200, 1200))
    views = [wall[3 * number:, 20 * number:][:HEIGHT, :WIDTH].copy() for number in range(count)]
    for view in views:
        view[edge:] = 0
    return [np.clip(view + rng.normal(0, 1, view.shape) + 20 * (view > 0), 0, 255).astype(np.uint8) for view in views]


def masked(path: Path) -> np.ndarray:
    return load_mask(path).allowed == 0


def test_writes_a_mask_that_loads_and_a_picture_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / 'masks' / 'body.png'
    assert main([str(image_folder(tmp_path / 'in', frames(90))), '--out', str(out)]) == 0
    said = capsys.readouterr().out
    assert f'{out}: 25.' in said
    assert f'% of {WIDTH}x{HEIGHT} stands still and is masked ({COUNT} frames compared)' in said
    assert f'mask_file:={out}' in said
    assert masked(out)[91:].mean() > 0.99
    assert masked(out)[:88].mean() < 0.01
    picture = cv2.imread(str(tmp_path / 'masks' / 'body_over_frame.png'))
    assert picture.shape == (HEIGHT, WIDTH, 3)
    assert picture[100, 80, 2] > 100 > picture[100, 80, 0]
    assert len([*out.parent.iterdir()]) == 2


def test_where_nothing_stands_the_mask_hides_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(image_folder(tmp_path / 'in', frames(HEIGHT))), '--out', str(tmp_path / 'mask.png')]) == 0
    assert masked(tmp_path / 'mask.png').mean() < 0.01
    assert 'mask.png' in capsys.readouterr().out


def test_specks_that_stand_still_are_counted_in_pixels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = [cv2.resize(image, (4 * WIDTH, 4 * HEIGHT)) for image in frames(HEIGHT)]
    for image in images:
        image[200:204, 300:304] = 255
    assert main([str(image_folder(tmp_path / 'in', images)), '--out', str(tmp_path / 'mask.png')]) == 0
    pixels = np.count_nonzero(masked(tmp_path / 'mask.png'))
    assert 0 < pixels < 150
    assert f'{pixels} pixels of 640x480 stand still and are masked: specks, no border (40 frames' in capsys.readouterr().out


def test_left_and_right_images_get_a_mask_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair = image_folder(tmp_path / 'in', frames(90), images_right=frames(60))
    assert main([str(pair), '--stereo', '--out', str(tmp_path / '{camera}.png')]) == 0
    assert capsys.readouterr().out.endswith(f"give the node mask_file:={tmp_path / 'left.png'}, which masks left images only\n")
    assert masked(tmp_path / 'left.png').mean() == pytest.approx(0.25, abs=0.02)
    assert masked(tmp_path / 'right.png').mean() == pytest.approx(0.5, abs=0.02)


def bag(path: Path, images: list[np.ndarray], topic: str) -> Path:
    source = image_folder(path.with_name(f'{path.name}_in'), images)
    recording = open_recording(source)
    assert isinstance(recording, FolderRecording)
    write_bag(path, recording.images(), None, None, image_topic=topic)
    return path


def test_each_of_several_cameras_gets_its_mask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording = bag(tmp_path / 'bag', frames(90), '/front/image_raw')
    out = str(tmp_path / '{camera}.png')
    assert main([str(recording), '--cameras', 'front', '--out', out]) == 0
    assert f'mask_file:={out}\n' in capsys.readouterr().out
    assert masked(tmp_path / 'front.png').mean() == pytest.approx(0.25, abs=0.02)
    (tmp_path / 'front.png').unlink()
    for topic in (['--image-topic', '/{camera}/image_raw'], []):
        assert main([str(recording), '--cameras', 'front,rear', *topic, '--out', out]) == 1
        assert re.search(f'^make_mask: rear: {recording} (has|holds) no images o[nf] .*rear', capsys.readouterr().err)
        assert masked(tmp_path / 'front.png').mean() == pytest.approx(0.25, abs=0.02), 'the other camera has its mask'
        (tmp_path / 'front.png').unlink()


def test_images_of_two_cameras_on_one_topic_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording = camera_bag(tmp_path / 'bag', {'/image': Images(frames(90), 'left,left,left,right')})
    assert main([str(recording), '--out', str(tmp_path / 'mask.png')]) == 1
    assert capsys.readouterr().err == (f"make_mask: {recording}, /image: frame 3 is of 'right', those before are of 'left', by "
                                       'their frame_id: several cameras publish on this topic. Record each on its own\n')
    assert not (tmp_path / 'mask.png').exists()


def test_raw_images_of_16_bits_are_told_what_they_lack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dark, flat = ([image.astype(np.uint16) * gain + offset for image in frames(90)] for gain, offset in ((20, 0), (4, 7200)))
    folder, out = str(image_folder(tmp_path / 'dark', dark)), str(tmp_path / 'mask.png')
    assert main([folder, '--out', out]) == 1
    assert 'the images are dark: the largest sample of 20 images' in (words := capsys.readouterr().out)
    assert 'give --image-bits 12' in words
    assert main([folder, '--out', out, '--image-bits', '12']) == 0
    assert 'dark' not in capsys.readouterr().out.replace(out, '')
    assert main([str(image_folder(tmp_path / 'flat', flat)), '--out', str(tmp_path / 'mask.png')]) == 1
    assert 'give more contrast: nearly all gray values are from 28 to 30 of 255' in capsys.readouterr().err


def test_a_standing_camera_writes_nothing_and_ends_with_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(image_folder(tmp_path / 'in', frames(90, 1) * COUNT)), '--out', str(tmp_path / 'mask.png')]) == 1
    error = capsys.readouterr().err
    assert error.count('\n') == 1
    assert error.startswith(f"make_mask: {tmp_path / 'in'}, ")
    assert error.endswith('Record a camera that rotates and moves\n'), 'in good contrast'
    assert 'the camera stands' in error
    assert not [*tmp_path.glob('*.png')]


@pytest.mark.parametrize(('words', 'told'), [
    (['--out', 'mask.jpg'], 'the mask is a PNG'), (['--cameras', 'a,b', '--out', 'mask.png'], 'write {camera} where a name stands'),
    (['--cameras', 'a,a'], "cameras has 'a' 2 times"), (['--cameras', ''], "--cameras has '', an empty name"),
    (['--cameras', 'a,b', '--image-topic', '/image'], 'is one topic for 2 cameras'),
    (['--cameras', 'a,b', '--stereo'], '--stereo is of one pair')])
def test_options_that_contradict_are_usage_errors(tmp_path: Path, words: list[str], told: str,
                                                  usage_error: Callable[..., str]) -> None:
    assert told in usage_error(main, tmp_path, *words)
