"""Files in the folder of a recording that may be its calibration or ground truth: the notes of evaluate_bag name them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support.image_recordings import image_folder

from lightglue_trt_eval.predict.nearby_files import MOST_CAMERAS, MOST_OF_FOLDER, calibrations_near, ground_truths_near
from lightglue_trt_ros.datasets.recordings import open_recording

COUNT, SIZE = 4, (72, 96)
POSES = ''.join(f'{1 + k / 10} {k} 0 0 0 0 0 1\n' for k in range(COUNT))
KITTI = '70 0 48 0 0 70 36 0 0 0 1 0\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return image_folder(tmp_path / 'in', [np.full(SIZE, number, np.uint8) for number in range(COUNT)])


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(text)
    return path


def truths(folder: Path) -> str:
    recording = open_recording(folder)
    return ground_truths_near(recording, [frame.stamp_ns for frame in recording.frames()], 0.02)


def test_no_advice_where_a_folder_has_only_images(folder: Path) -> None:
    assert (calibrations_near(folder, SIZE), truths(folder)) == ('', '')


def test_transforms_json_next_to_images_is_named_as_both(folder: Path) -> None:
    frames = [{'file_path': f'images/{file.name}', 'transform_matrix': np.eye(4).tolist()}
              for file in sorted((folder / 'images').iterdir())]
    camera = {'w': 96, 'h': 72, 'fl_x': 80.0, 'fl_y': 80.0, 'cx': 48, 'cy': 36}
    path = written(folder / 'transforms.json', json.dumps({**camera, 'frames': frames}))
    assert (calibrations_near(folder, SIZE), truths(folder)) == (f', perhaps {path}', f', perhaps {path}')
    assert calibrations_near(folder, (SIZE[1], SIZE[0])) == '', 'it is of images of another size'


@pytest.mark.parametrize('name', ['poses.txt', 'odometry/keyframes.csv', 'sparse/0/poses.tum'])
def test_poses_in_the_folder_are_named_where_their_times_fit(folder: Path, name: str) -> None:
    path = written(folder / name, POSES)
    assert truths(folder) == f', perhaps {path}'
    written(path, POSES.replace('1', '9'))
    assert truths(folder) == ''


def test_each_camera_of_a_file_is_named_as_the_option_takes_it(folder: Path) -> None:
    path = written(folder / 'calib.txt', 2 * KITTI)
    assert calibrations_near(folder, SIZE) == f', perhaps {path}:cam0, {path}:cam1'
    written(path, (MOST_CAMERAS + 1) * KITTI)
    assert calibrations_near(folder, SIZE) == ''


def test_a_folder_of_matrices_is_named_as_ground_truth(folder: Path) -> None:
    for file in (folder / 'images').iterdir():
        written(folder / 'pose' / f'{file.stem}.txt', '1 0 0 0\n0 1 0 0\n0 0 1 0\n0 0 0 1\n')
    assert truths(folder) == f', perhaps {folder / "pose"}'


def test_files_after_the_first_ones_of_a_folder_are_not_tried(folder: Path) -> None:
    for number in range(MOST_OF_FOLDER):
        written(folder / 'labels' / f'{number}.txt', '0 0.5 0.5 0.1\n')
    written(folder / 'labels' / '99.txt', POSES)
    assert truths(folder) == ''
