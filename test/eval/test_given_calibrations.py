"""Calibration files that the user names for a recording: --camera and --camera-in-body, for raw and rectified images and pairs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip('rosbags', reason='bags need the Python package rosbags')

from support.evaluated_bags import CAMERA, HEIGHT, WIDTH, make_bag

from lightglue_trt_eval.inputs import open_inputs
from lightglue_trt_eval.options import OWN_RIGHT_IMAGES, EvaluationOptions
from lightglue_trt_eval.predict.recorded_scene import named_pair, open_scene
from lightglue_trt_eval.predict.scene import Scene
from lightglue_trt_ros.core.cameras import Intrinsics, distortion_model
from lightglue_trt_ros.datasets.recordings import open_recording
from lightglue_trt_ros.datasets.stereo_and_depth import stereo_recording
from lightglue_trt_ros.utils.errors import BagError

D = [-0.28, 0.07, 0.001, -0.002]
ROS = (f'image_width: {WIDTH}\nimage_height: {HEIGHT}\ncamera_matrix:\n  data: [120, 0, 66, 0, 120, 50, 0, 0, 1]\n'
       f'distortion_model: plumb_bob\ndistortion_coefficients:\n  data: {D}\n')
P = 'projection_matrix:\n  data: [110, 0, 64, 0, 0, 110, 48, 0, 0, 0, 1, 0]\n'
BODY = np.array([[0.0, -1, 0, 0.5], [1, 0, 0, 0.25], [0, 0, 1, -0.125], [0, 0, 0, 1]])


def of_chain(extra: str = '', fx: float = 110.0) -> str:
    return (f'  camera_model: pinhole\n  intrinsics: [{fx}, 110.0, 64, 48]\n  distortion_model: radtan\n  distortion_coeffs: {D}\n'
            f'  resolution: [{WIDTH}, {HEIGHT}]\n{extra}')


def scene_of(bag: Path, topic: str | None = None, **options: Path) -> tuple[Scene, list[str]]:
    notes: list[str] = []
    scene = open_scene(open_recording(bag, topic), EvaluationOptions(image_topic=topic, **options), notes.append)[0]
    return scene, notes


@pytest.fixture
def rectified(tmp_path: Path) -> Path:
    return make_bag(tmp_path / 'rectified', 3, intrinsics=None, image_topic='/camera/image_rect')


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / 'calibration.yaml'


def test_projection_matrix_is_taken_for_a_rectified_topic(rectified: Path, tmp_path: Path, file: Path) -> None:
    file.write_text(ROS + P)
    scene, notes = scene_of(rectified, camera=file)
    assert scene.intrinsics is not None
    assert np.array_equal(scene.intrinsics.k, CAMERA.k)
    assert distortion_model(scene.intrinsics) is None
    assert notes == []
    raw, _ = scene_of(make_bag(tmp_path / 'raw', 3), camera=file)
    assert raw.intrinsics is not None
    assert (raw.intrinsics.k[0, 0], raw.intrinsics.d.tolist()) == (120, D)
    assert scene.other_view is not None
    assert raw.other_view is not None
    assert (scene.other_view.k[0, 0], raw.other_view.k[0, 0]) == (120, 110), 'in case that the name is wrong'
    file.write_text(ROS)
    with pytest.raises(BagError, match=rf'{file}: it has no projection_matrix'):
        scene_of(rectified, camera=file)


def test_distortion_of_a_rectified_topic_is_noted(rectified: Path, tmp_path: Path, file: Path) -> None:
    file.write_text(f'cam0:\n{of_chain()}')
    scene, notes = scene_of(rectified, camera=file)
    assert scene.intrinsics is not None
    assert scene.intrinsics.d.tolist() == D
    assert any(f'{file}, cam0 has distortion, and the images on /camera/image_rect are rectified' in note for note in notes)
    assert scene_of(make_bag(tmp_path / 'raw', 3), camera=file)[1] == []


def test_pose_in_the_body_moves_the_ground_truth_or_is_refused(tmp_path: Path, file: Path) -> None:
    bag = make_bag(tmp_path / 'bag', 3)
    plain = scene_of(bag)[0].poses
    file.write_text(f'cam0:\n{of_chain(f"  T_cam_imu: {np.linalg.inv(BODY).tolist()}")}\ncam1:\n{of_chain()}')
    moved = scene_of(bag, camera_in_body=Path(f'{file}:cam0'))[0].poses
    assert plain is not None
    assert moved is not None
    np.testing.assert_allclose(moved, plain @ BODY, atol=1e-12)
    for choice, message in ((file, 'cam0, cam1: choose one'), (f'{file}:cam1', 'cam1 does not say where the camera is')):
        with pytest.raises(BagError, match=message):
            scene_of(bag, camera_in_body=Path(choice))


@pytest.mark.parametrize(('k', 'doubt'), [
    ([110, 0, 64, 0, 110, 48, 0, 0, 1], None), ([110, 0, 58, 0, 116, 56, 0, 0, 1], None),
    ([110, 0, 64, 0, 140, 48, 0, 0, 1], 'fx is 110 and fy 140, and nearly every camera has square pixels: unless'),
    ([110, 0, 64, 0, 110, 12, 0, 0, 1], 'the principal point 64, 12 is far from the middle of 128x96: unless'),
    ([160, 0, 12, 0, 110, 48, 0, 0, 1], 'fx is 160 and fy 110, .* pixels, and the principal point 12, 48 is far')])
def test_calibration_that_few_cameras_have_is_noted(tmp_path: Path, file: Path, k: list[int], doubt: str | None) -> None:
    file.write_text(f'width: {WIDTH}\nheight: {HEIGHT}\nK: {k}\n')
    notes = scene_of(make_bag(tmp_path / 'bag', 3), camera=file)[1]
    assert len(notes) == (doubt is not None)
    assert all(re.match(f'{file}: {doubt}', note) for note in notes)


def test_camera_info_of_larger_images_has_one_line_and_one_remedy(tmp_path: Path) -> None:
    larger = Intrinsics(WIDTH, HEIGHT, CAMERA.k * [[2], [2], [1]], 'plumb_bob', np.zeros(5))
    notes = [note for note in scene_of(make_bag(tmp_path / 'bag', 3, intrinsics=larger))[1] if 'principal point' in note]
    assert len(notes) == 1
    assert re.search(r'the middle of images 2\.0\d times as large as its 128x96: give that of these', notes[0])


@pytest.mark.parametrize('unit', [1, 1000])
def test_ground_truth_in_millimetres_is_noted(tmp_path: Path, unit: int) -> None:
    bag, truth = make_bag(tmp_path / 'bag', 3), tmp_path / 'poses.txt'
    stamps = [frame.stamp_ns / 1e9 for frame in open_recording(bag).frames()]
    truth.write_text(''.join(f'{stamp:.3f} {0.5 * stamp * unit % (1000 * unit):.3f} 0 0 0 0 0 1\n' for stamp in stamps))
    noted = [note for note in scene_of(bag, truth=truth)[1] if 'the ground truth moves at 500 m/s' in note]
    assert len(noted) == (unit == 1000)


def test_chain_of_two_cameras_calibrates_a_pair(tmp_path: Path, file: Path) -> None:
    """cam0 is the left camera, cam1 the right one; without --stereo one has to be chosen."""
    images = [(1_700_000_000 * 10**9 + number * 10**8, np.full((HEIGHT, WIDTH), number, np.uint8)) for number in range(3)]
    wrong = Intrinsics(WIDTH, HEIGHT, CAMERA.k * [[2], [2], [1]], 'plumb_bob', np.zeros(5))
    bag = make_bag(tmp_path / 'bag', 3, intrinsics=wrong, right=(images, wrong))
    right_in_left = np.eye(4)
    right_in_left[0, 3] = 0.11
    file.write_text(f'cam0:\n{of_chain()}cam1:\n{of_chain(f"  T_cn_cnm1: {np.linalg.inv(right_in_left).tolist()}", 111.0)}\n')
    left = open_recording(bag, '/camera/image_raw')
    options = EvaluationOptions(camera=file, right_topic='/camera_right/image_raw')
    rig = stereo_recording(left, options.right_topic, named_pair(options, left)).rig
    assert rig.baseline_m == pytest.approx(0.11)
    assert (rig.left.k[0, 0], rig.right.k[0, 0]) == (110, 111)
    scene = open_scene(left, options, [].append)[0]
    assert scene.intrinsics is not None
    assert (scene.intrinsics.k[0, 0], scene.intrinsics.d.tolist()) == (110, D)
    with pytest.raises(BagError, match=f'choose one, as {file}:cam0'):
        scene_of(bag, '/camera/image_raw', camera=file)
    alone = EvaluationOptions(camera=Path(f'{file}:cam1'), right_topic=OWN_RIGHT_IMAGES)
    assert named_pair(alone, left) is None
    with pytest.raises(BagError, match='the CameraInfos have no baseline'):
        stereo_recording(left, '/camera_right/image_raw', named_pair(alone, left))
    notes: list[str] = []
    with pytest.raises(BagError, match='the CameraInfos have no baseline'):
        open_inputs(left, replace(alone, right_topic='/camera_right/image_raw'), notes.append)
    assert [note.partition(' (')[0] for note in notes] == [f'{file}:cam1 does not describe a pair']


@pytest.mark.parametrize(('metres', 'doubt'), [
    (0.11, ''), (-0.11, 'stands 0.11 m to the left of the left one: unless the images are upside down, left and right are swapped'),
    (6.0, 'the baseline is 6 m by the calibration, and most rigs have 0.01 to 1 m: check that it is in metres, not in centimetres'),
    (0.003, 'the baseline is 0.003 m by the calibration')])
def test_baseline_that_few_rigs_have_is_noted(tmp_path: Path, file: Path, caplog, metres: float, doubt: str) -> None:
    images = [(1_700_000_000 * 10**9 + number * 10**8, np.full((HEIGHT, WIDTH), number, np.uint8)) for number in range(3)]
    left = open_recording(make_bag(tmp_path / 'bag', 3, right=(images, CAMERA)), '/camera/image_raw')
    pose = np.eye(4)
    pose[0, 3] = -metres
    file.write_text(f'cam0:\n{of_chain()}cam1:\n{of_chain(f"  T_cn_cnm1: {pose.tolist()}")}\n')
    notes: list[str] = []
    with caplog.at_level('INFO'):
        open_inputs(left, EvaluationOptions(camera=file, right_topic='/camera_right/image_raw'), notes.append)
    assert f'right images: /camera_right/image_raw, baseline {abs(metres):g} m, from {file}, cam1' in caplog.messages
    found = [note for note in notes if 'the baseline is' in note or 'stands' in note]
    assert (len(found), doubt in ''.join(found)) == (bool(doubt), True)


def test_calibration_of_other_right_images_is_refused(tmp_path: Path, file: Path) -> None:
    """Half as large, or raw next to rectified ones."""
    images = [(1_700_000_000 * 10**9 + number * 10**8, np.full((HEIGHT, WIDTH), number, np.uint8)) for number in range(3)]
    half = Intrinsics(WIDTH // 2, HEIGHT // 2, CAMERA.k * [[0.5], [0.5], [1]], 'plumb_bob', np.zeros(5), shift_m=0.11)
    left = open_recording(make_bag(tmp_path / 'bag', 3, right=(images, half)), '/camera/image_raw')
    options = EvaluationOptions(right_topic='/camera_right/image_raw')
    with pytest.raises(BagError, match=r'right camera, .*for 64x48 pixels, the images have 128x96: give the calibration of these'):
        open_inputs(left, options, [].append)
    pose = np.eye(4)
    pose[0, 3] = -0.11
    file.write_text(f'cam0:\n{of_chain()}cam1:\n{of_chain(f"  T_cn_cnm1: {pose.tolist()}")}\n')
    bag = make_bag(tmp_path / 'other', 3, right=(images, CAMERA), image_topic='/camera/image_rect')
    with pytest.raises(BagError, match='of /camera/image_rect and /camera_right/image_raw one is rectified by its name'):
        open_inputs(open_recording(bag, '/camera/image_rect'), replace(options, camera=file), [].append)
