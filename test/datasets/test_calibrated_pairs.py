"""Pairs of cameras by calibration files: which two of a rig, on which side, in which unit."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from lightglue_trt_ros.core.cameras import Intrinsics, StereoRig
from lightglue_trt_ros.datasets.calibration_files import load_intrinsics
from lightglue_trt_ros.datasets.calibration_pairs import load_pair
from lightglue_trt_ros.utils.errors import BagError

SIZE = 640, 480
K = {'left': np.array([[450.0, 0, 310], [0, 451, 236], [0, 0, 1]]), 'right': np.array([[460.0, 0, 330], [0, 461, 246], [0, 0, 1]])}
D = {'left': [-0.28, 0.07, 0.0002, 0.0001, 0.0], 'right': [-0.25, 0.06, -0.0003, 0.0002, 0.0]}
NO_D = {'left': [0.0] * 5, 'right': [0.0] * 5}
RIGHT_FROM_LEFT = np.eye(4)
RIGHT_FROM_LEFT[:3, :3] = cv2.Rodrigues(np.array([0.02, -0.03, 0.015]))[0]
RIGHT_FROM_LEFT[:3, 3] = -RIGHT_FROM_LEFT[:3, :3] @ [0.12, 0.003, -0.002]
COLOUR_FROM_RIGHT = np.eye(4)
COLOUR_FROM_RIGHT[:3, :3] = cv2.Rodrigues(np.array([0.01, 0.02, -0.01]))[0]
COLOUR_FROM_RIGHT[:3, 3] = [0.06, 0.001, 0.0]
BODY_FROM_LEFT = np.array([[0.0, 0, 1, 0.2], [-1, 0, 0, 0.05], [0, -1, 0, 0.3], [0, 0, 0, 1]])
R, T = RIGHT_FROM_LEFT[:3, :3], RIGHT_FROM_LEFT[:3, 3]
UNKNOWN = {'rotationMatrix': [[0.0] * 3] * 3, 'translation': dict.fromkeys('xyz', 0.0), 'toCameraSocket': -1}


def check_rig(pair: tuple[Intrinsics, Intrinsics] | None, d: dict[str, list[float]] = D, fisheye: bool = False) -> None:
    """Points in space have one row in both cameras, and the disparity of their depth in metres."""
    assert pair is not None
    rig = StereoRig(*pair)
    places = np.random.default_rng(0).uniform([-1, -0.6, 2], [1, 0.6, 8], (50, 3))
    project: Callable[..., Any] = cv2.fisheye.projectPoints if fisheye else cv2.projectPoints
    pixels = {side: project(local[:, None], np.zeros(3), np.zeros(3), K[side], np.array(d[side]))[0][:, 0]
              for side, local in (('left', places), ('right', places @ R.T + T))}
    left, right = rig.left_points(pixels['left']), rig.right_points(pixels['right'])
    np.testing.assert_allclose(left[:, 1], right[:, 1], atol=1e-5)
    np.testing.assert_allclose(rig.baseline_m / (left - right)[:, 0], (places @ rig.left.rectification.T)[:, 2], rtol=1e-3)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def written(text: object, name: str = 'calib.json') -> Path:
        (tmp_path / name).write_text(text if isinstance(text, str) else json.dumps(text))
        return tmp_path / name
    return written


def step(pose: np.ndarray, socket: int, metres: float = 0.01, **more: int) -> dict[str, Any]:
    translation = dict(zip('xyz', (pose[:3, 3] / metres).tolist(), strict=True))
    return {'rotationMatrix': pose[:3, :3].tolist(), 'translation': translation, 'toCameraSocket': socket,
            'specTranslation': {'x': -12.0, 'y': 0.0, 'z': 0.0}, **more}


def oak_camera(side: str, extrinsics: dict[str, Any], d: dict[str, list[float]] = D, kind: int = 0) -> dict[str, Any]:
    return {'cameraType': kind, 'width': 640, 'height': 480, 'intrinsicMatrix': K[side].tolist(),
            'distortionCoeff': d[side] + [0.0] * (14 - len(d[side])), 'extrinsics': extrinsics, 'lensPosition': 0}


def oak(*cameras: list[Any], left: int = 1, right: int = 2) -> dict[str, Any]:
    return {'boardName': 'OAK-D', 'version': 7, 'cameraData': list(cameras), 'imuExtrinsics': UNKNOWN,
            'stereoRectificationData': {'leftCameraSocket': left, 'rightCameraSocket': right}}


COLOUR = [0, oak_camera('left', UNKNOWN)]
OAK_D = (COLOUR, [1, oak_camera('left', step(RIGHT_FROM_LEFT, 2))], [2, oak_camera('right', step(COLOUR_FROM_RIGHT, 0))])


@pytest.mark.parametrize('text', [
    oak(*OAK_D), oak(*OAK_D[::-1]), oak(*OAK_D[1:]), oak([0, {**COLOUR[1], 'intrinsicMatrix': []}], *OAK_D[1:]),
    oak([1, oak_camera('left', UNKNOWN)], [2, oak_camera('right', step(np.linalg.inv(RIGHT_FROM_LEFT), 1))]),
    oak([1, oak_camera('right', UNKNOWN)], [2, oak_camera('left', step(RIGHT_FROM_LEFT, 1, 0.001, lengthUnit=2))], left=2,
        right=1)],
    ids=['chain', 'backwards', 'two', 'without colour', 'left is the root', 'millimetres'])
def test_left_and_right_camera_of_an_oak_are_its_pair(write, text: dict[str, Any]) -> None:
    check_rig(load_pair(write(text)))


def test_fisheyes_of_an_oak_are_a_pair(write) -> None:
    d = {'left': [0.01, 0.02, -0.003, 0.001], 'right': [0.012, 0.018, -0.002, 0.001]}
    cameras = [1, oak_camera('left', step(RIGHT_FROM_LEFT, 2), d, 1)], [2, oak_camera('right', UNKNOWN, d, 1)]
    check_rig(load_pair(write(oak(*cameras))), d, fisheye=True)
    with pytest.raises(BagError, match=r"distortion model 'radial_division' with D = .* is not known"):
        load_pair(write(oak([1, {**cameras[0][1], 'cameraType': 3}], cameras[1])))


def kalibr(number: int, side: str, pose: np.ndarray | None = None) -> dict[str, Any]:
    k = K[side]
    return {f'cam{number}': {
        'camera_model': 'pinhole', 'intrinsics': [k[0, 0], k[1, 1], k[0, 2], k[1, 2]], 'distortion_model': 'radtan',
        'distortion_coeffs': D[side][:4], 'resolution': [*SIZE], **({} if pose is None else {'T_cn_cnm1': pose.tolist()})}}


FOUR = {**kalibr(0, 'left'), **kalibr(1, 'right', COLOUR_FROM_RIGHT), **kalibr(2, 'left', COLOUR_FROM_RIGHT),
        **kalibr(3, 'right', RIGHT_FROM_LEFT)}


def test_pair_of_four_cameras_is_named(write) -> None:
    path = write(FOUR)
    check_rig(load_pair(Path(f'{path}:cam2,cam3')))
    between = {**kalibr(0, 'left'), **kalibr(1, 'right', COLOUR_FROM_RIGHT),
               **kalibr(2, 'right', RIGHT_FROM_LEFT @ np.linalg.inv(COLOUR_FROM_RIGHT))}
    check_rig(load_pair(Path(f'{write(between)}:cam0,cam2')))
    backwards = {**kalibr(0, 'right'), **kalibr(1, 'left', np.linalg.inv(RIGHT_FROM_LEFT))}
    check_rig(load_pair(Path(f'{write(backwards)}:cam1,cam0')))


@pytest.mark.parametrize(('choice', 'words'), [
    ('', 'describes the cameras cam0, cam1, cam2, cam3, and does not say which are left and right: name both, as .*:cam0,cam1'),
    (':cam2,cam2', 'names no pair'), (':cam1,cam2,cam3', 'names no pair'), (':cam2,', 'names no pair'),
    (':cam0,cam9', 'cam9 is no file, and no camera of'), (':cam9,cam0', 'has no camera cam9')])
def test_pair_that_nothing_names_is_refused(write, choice: str, words: str) -> None:
    path = write(FOUR)
    with pytest.raises(BagError, match=words):
        load_pair(Path(f'{path}{choice}'))


def test_commas_in_folders_name_no_pair(tmp_path: Path) -> None:
    folder = tmp_path / 'a,b'
    folder.mkdir()
    path = folder / 'chain.json'
    path.write_text(json.dumps(FOUR))
    assert load_intrinsics(Path(f'{path}:cam2')).k[0, 0] == K['left'][0, 0]
    check_rig(load_pair(Path(f'{path}:cam2,cam3')))
    check_rig(load_pair(Path(f'{path}:cam2, cam3')))
    with pytest.raises(BagError, match='cannot read'):
        load_intrinsics(folder / 'none.yaml')


def ros(side: str) -> dict[str, Any]:
    number = ('left', 'right').index(side)
    rectified = cv2.stereoRectify(K['left'], np.array(D['left']), K['right'], np.array(D['right']), SIZE, R, T[:, None], alpha=0)
    return {'image_width': 640, 'image_height': 480, 'camera_name': 'narrow', 'camera_matrix': {'data': K[side].ravel().tolist()},
            'distortion_model': 'plumb_bob', 'distortion_coefficients': {'data': D[side]},
            'rectification_matrix': {'data': rectified[number].ravel().tolist()},
            'projection_matrix': {'data': rectified[2 + number].ravel().tolist()}}


def euroc(side: str) -> dict[str, Any]:
    pose = BODY_FROM_LEFT if side == 'left' else BODY_FROM_LEFT @ np.linalg.inv(RIGHT_FROM_LEFT)
    return {**kalibr(0, side)['cam0'], 'T_BS': {'data': pose.ravel().tolist()}}


@pytest.mark.parametrize('one', [ros, euroc])
def test_files_of_two_cameras_are_a_pair(write, one: Callable[[str], dict[str, Any]]) -> None:
    left, right = write(one('left'), 'left.yaml'), write(one('right'), 'right.yaml')
    check_rig(load_pair(Path(f'{left},{right}')))
    assert load_pair(left) is None
    with pytest.raises(BagError, match='names two cameras, which --stereo and --right-topic take: name one'):
        load_intrinsics(Path(f'{left},{right}'))
    with pytest.raises(BagError, match=r'right\.yaml: it does not say how this camera stands to .*left.yaml: give poses of both'):
        load_pair(Path(f'{left},{write(kalibr(0, "right")["cam0"], "right.yaml")}'))


@pytest.mark.parametrize('sides', [('left', 'right'), ('right', 'left')])
def test_names_tell_left_and_right(write, sides: tuple[str, str]) -> None:
    check_rig(load_pair(write({f'front_{side}': ros(side) for side in sides})))


def test_rectified_images_have_no_rotation_in_the_pair(write) -> None:
    left, right = load_pair(write({side: ros(side) for side in K}), True) or pytest.fail('no pair')
    assert np.array_equal(left.rectification, np.eye(3))
    assert (left.lens.distorts, right.lens.distorts) == (False, False)
    assert right.shift_m == pytest.approx(np.linalg.norm(T))
    assert left.k[0, 0] == ros('left')['projection_matrix']['data'][0]


def test_camera_above_the_other_is_a_pair(write) -> None:
    files = [write({**ros('left'), 'rectification_matrix': {'data': np.eye(3).ravel().tolist()}, 'projection_matrix': {
        'data': [450.0, 0, 310, 0, 0, 450, 236, shift, 0, 0, 1, 0]}}, f'{name}.yaml') for name, shift in (('top', 0), ('low', -45))]
    upper, lower = load_pair(Path(f'{files[0]},{files[1]}')) or pytest.fail('no pair')
    assert lower.shift_m == pytest.approx(0.1)
    np.testing.assert_allclose(upper.rectification[0], [0, 1, 0], atol=1e-12)


def matrix(name: str, values: object) -> str:
    data = np.asarray(values, np.float64)
    rows = len(data) if data.ndim == 2 else 1
    return f'{name}: !!opencv-matrix\n   rows: {rows}\n   cols: {data.size // rows}\n   dt: d\n   data: {data.ravel().tolist()}\n'


INTRINSICS = '%YAML:1.0\n---\n' + ''.join(matrix(f'{name}{number}', values[side]) for number, side in enumerate(K, 1)
                                           for name, values in (('M', K), ('D', D)))


def test_extrinsics_of_opencv_stand_next_to_the_intrinsics(write) -> None:
    path = write(INTRINSICS, 'intrinsics.yml')
    assert load_pair(path, size=lambda: SIZE) is None
    write('%YAML:1.0\n---\n' + matrix('R', R) + matrix('T', T[:, None]) + matrix('R1', np.eye(3)), 'extrinsics.yml')
    pair = load_pair(path, size=lambda: SIZE)
    check_rig(pair)
    assert pair is not None
    assert pair[1].source.endswith('that of the images is taken, with R and T of the file of extrinsics')


@pytest.mark.parametrize(('names', 'rotation'), [
    (('R', 'T'), cv2.Rodrigues(R)[0]), (('rot', 'trans'), R), (('rotation_matrix', 'translation_vector'), R)])
def test_pose_of_an_opencv_pair_has_many_names(write, names: tuple[str, str], rotation: np.ndarray) -> None:
    path = write(INTRINSICS + matrix(names[0], rotation) + matrix(names[1], T[:, None]), 'stereo.yml')
    check_rig(load_pair(path, size=lambda: SIZE))


def mc_calib(*sides: str) -> str:
    """Poses in the first camera, as tools of its own draw them (python_utils/display_calib_cameras.py)."""
    own = {'left': np.eye(4), 'right': np.linalg.inv(RIGHT_FROM_LEFT)}
    text = f'%YAML:1.0\n---\nnb_camera: {len(sides)}\n'
    for number, side in enumerate(sides):
        matrices = {'camera_matrix': K[side], 'distortion_vector': [D[side]], 'camera_pose_matrix': own[side]}
        lines = ''.join(matrix(*each) for each in matrices.items()) + 'distortion_type: 0\nimg_width: 640\nimg_height: 480\n'
        text += f'camera_{number}:\n' + ''.join(f'   {line}\n' for line in lines.splitlines())
    return text


def multical(master: bool, *sides: str) -> dict[str, Any]:
    """Poses take points of the rig, or of cam0, into the camera (multical/io/export_calib.py)."""
    own = {'left': np.eye(4) if master else np.linalg.inv(BODY_FROM_LEFT)}
    own['right'] = RIGHT_FROM_LEFT @ own['left']
    return {'cameras': {f'cam{number}': {'model': 'standard', 'image_size': [*SIZE], 'K': K[side].tolist(), 'dist': [D[side]]}
                        for number, side in enumerate(sides)},
            'camera_poses': {f'cam{number}' + '_to_cam0' * (master and number > 0): {
                'R': own[side][:3, :3].tolist(), 'T': own[side][:3, 3].tolist()} for number, side in enumerate(sides)},
            'image_sets': {'rgb': [{'cam0': 'a.png', 'cam1': 'b.png'}]}}


def toml(value: Any) -> str:
    return f'[ {", ".join(map(toml, value))},]' if isinstance(value, list) else json.dumps(value)


def aniposelib(*sides: str) -> str:
    """calibration.toml as the package toml writes it (aniposelib/cameras.py)."""
    poses = {'left': ([0.0] * 3, [0.0] * 3), 'right': (cv2.Rodrigues(R)[0].ravel().tolist(), T.tolist())}
    cameras = ({'name': f'cam{number}', 'size': [*SIZE], 'matrix': K[side].tolist(), 'distortions': D[side],
                'rotation': poses[side][0], 'translation': poses[side][1]} for number, side in enumerate(sides))
    return ''.join(f'[cam_{number}]\n' + ''.join(f'{name} = {toml(value)}\n' for name, value in camera.items()) + '\n'
                   for number, camera in enumerate(cameras)) + '[metadata]\nadjusted = false\nerror = 0.5\n'


@pytest.mark.parametrize('form', [mc_calib, partial(multical, True), partial(multical, False), aniposelib], ids=[
    'MC-Calib', 'master', 'rig', 'aniposelib'])
def test_poses_in_a_rig_make_a_pair_of_two_and_not_of_three(write, form: Callable[..., object]) -> None:
    check_rig(load_pair(write(form('left', 'right'))))
    three = write(form('left', 'left', 'right'))
    with pytest.raises(BagError, match=r'describes the cameras .*, and does not say which are left and right: name both'):
        load_pair(three)
    first, last = ('camera_0', 'camera_2') if form is mc_calib else ('cam0', 'cam2')
    check_rig(load_pair(Path(f'{three}:{first},{last}')))


@pytest.mark.parametrize('sides', [('left', 'right'), ('right', 'left')])
def test_rotation_and_translation_stand_next_to_two_cameras(write, sides: tuple[str, str]) -> None:
    cameras = {side: {'image_size': [*SIZE], 'K': K[side].tolist(), 'dist': D[side]} for side in sides}
    check_rig(load_pair(write({**cameras, 'R': R.tolist(), 'T': T[:, None].tolist(), 'E': R.tolist()})))
    assert load_pair(write(cameras)) is None
    numbered = {f'{name}{number}': values[side] for number, side in enumerate(K) for name, values in (('D', D), ('K', {
        side: K[side].tolist()}))}
    check_rig(load_pair(write({**numbered, 'image_size': [*SIZE], 'R': R.tolist(), 'T': T.tolist()})))


def realsense(name: str, side: str) -> str:
    k = K[side]
    return (f' Intrinsic of "{name}" / 640x480 / {{Z16}}\n  Width:      \t640\n  Height:     \t480\n  PPX:        \t{k[0, 2]}\n'
            f'  PPY:        \t{k[1, 2]}\n  Fx:         \t{k[0, 0]}\n  Fy:         \t{k[1, 1]}\n  Distortion: \tBrown Conrady\n'
            '  Coeffs:     \t0  \t0  \t0  \t0  \t0\n  FOV (deg):  \t71 x 56\n\n')


def moved(one: str, other: str, pose: np.ndarray) -> str:
    rows = ''.join('   ' + '  '.join(f'{value:.9g}' for value in row) + '  \n' for row in pose[:3, :3])
    return (f'Extrinsic from "{one}"\t  To\t  "{other}" :\n Rotation Matrix:\n{rows}\n'
            f' Translation Vector: {"  ".join(f"{value:.9g}" for value in pose[:3, 3])}  \n\n')


def test_infrared_cameras_of_a_realsense_are_a_pair(write) -> None:
    cameras = ''.join(realsense(*each) for each in (('Depth', 'left'), ('Color', 'right'), ('Infrared 1', 'left'),
                                                    ('Infrared 2', 'right')))
    path = write(f'Intrinsic Parameters:\n\n{cameras}', 'rs.txt')
    assert load_pair(path, size=lambda: SIZE) is None
    poses = (moved('Infrared 1', 'Depth', np.eye(4)) + moved('Infrared 2', 'Depth', np.linalg.inv(RIGHT_FROM_LEFT))
             + moved('Depth', 'Infrared 2', RIGHT_FROM_LEFT) + moved('Color', 'Depth', COLOUR_FROM_RIGHT))
    check_rig(load_pair(write(f'{cameras} Extrinsic Parameters:\n{poses}', 'rs.txt'), size=lambda: SIZE), NO_D)


ORBSLAM = 'Camera.fx: 450\nCamera.fy: 450\nCamera.cx: 310\nCamera.cy: 236\nCamera.width: 640\nCamera.height: 480\n'


@pytest.mark.parametrize('text', [f'%YAML:1.0\n{ORBSLAM}Camera.bf: 54.0\n',
                                  f'%YAML:1.0\n{ORBSLAM.replace("Camera.f", "Camera1.f").replace("Camera.c", "Camera1.c")}'
                                  'Camera.type: Rectified\nStereo.b: 0.12\n', '450 0 310 0 450 236 0 0 1\n0.12\n'])
def test_one_camera_with_a_baseline_is_a_rectified_pair(write, text: str) -> None:
    pair = load_pair(write(text, 'calib.txt'), size=lambda: SIZE)
    assert pair is not None
    assert StereoRig(*pair).baseline_m == pytest.approx(0.12)
    assert (pair[0].k.tolist(), pair[0].rectification.tolist()) == (pair[1].k.tolist(), np.eye(3).tolist())
    with pytest.raises(BagError, match=r'the baseline is \d+ m, .*not in millimetres'):
        load_pair(write(text.replace('54.0', '54000').replace('0.12', '120'), 'calib.txt'), size=lambda: SIZE)


def test_baseline_of_an_rgbd_camera_with_a_lens_is_no_pair(write) -> None:
    assert load_pair(write(f'%YAML:1.0\n{ORBSLAM}Camera.bf: 40.0\nCamera.k1: 0.2\nCamera.k2: -0.9\n')) is None


@pytest.mark.parametrize('has_poses', [True, False])
def test_raw_cameras_of_kitti_are_a_pair_by_their_poses(write, has_poses: bool) -> None:
    def line(name: str, values: object) -> str:
        return f'{name}: {" ".join(f"{value:.9e}" for value in np.ravel(values))}\n'

    text = 'calib_time: 09-Jan-2012 13:57:47\n'
    for number, side, turn, translation in ((2, 'left', np.eye(3), np.zeros(3)), (3, 'right', R, T)):
        text += line(f'S_0{number}', SIZE) + line(f'K_0{number}', K[side]) + line(f'D_0{number}', D[side])
        if has_poses:
            text += line(f'R_0{number}', turn) + line(f'T_0{number}', translation)
        text += line(f'S_rect_0{number}', (620, 460)) + line(f'P_rect_0{number}', np.column_stack([K['left'], -54 * T]))
    pair = load_pair(write(text, 'calib_cam_to_cam.txt'), size=lambda: SIZE)
    if has_poses:
        check_rig(pair)
    else:
        assert pair is None


BROKEN = {'camera_model': 'pinhole', 'resolution': SIZE, 'intrinsics': [450, 451, 310, 236], 'distortion_model': 'radtan',
          'distortion_coeffs': [0.0] * 4, 'T_cam_imu': np.diag([2.0, 1, 1, 1]).tolist()}


def test_two_cameras_are_a_pair_by_their_step_where_a_pose_is_broken(write) -> None:
    pair = load_pair(write({'cam0': BROKEN, 'cam1': {**BROKEN, 'T_cn_cnm1': RIGHT_FROM_LEFT.tolist()}}))
    assert pair is not None
    assert pair[1].shift_m == pytest.approx(np.linalg.norm(T))


def test_broken_pose_of_three_cameras_is_named(write) -> None:
    with pytest.raises(BagError, match=r'calib.json, cam0: T_cam_imu: .* is no rotation'):
        load_pair(write({f'cam{number}': BROKEN for number in range(3)}))
