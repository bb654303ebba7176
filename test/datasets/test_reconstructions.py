"""Ground truth of reconstructions, whose poses have names of images instead of times: COLMAP's and nerfstudio's files."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import cv2
import numpy as np
import pytest
from support.image_recordings import image_folder

from lightglue_trt_ros.datasets.ground_truth import load_ground_truth
from lightglue_trt_ros.datasets.poses import poses_from, quaternions_from_rotations
from lightglue_trt_ros.datasets.recordings import open_recording
from lightglue_trt_ros.utils.errors import BagError

COUNT, SECOND = 4, 10**9
POSES = poses_from([[0.1 * k, 0.2, -0.3 * k] for k in range(COUNT)], [[0.1, 0.2 * k, 0, 1] for k in range(COUNT)])  # of the camera


def colmap(path: Path, names: list[str], points: str = '2362.4 248.5 58396 1784.7 268.3 -1') -> Path:
    """As COLMAP writes it: in any order, each pose followed by a line of points."""
    lines = ['# Image list with two lines of data per image:', '#   IMAGE_ID, QW, QX, QY, QZ, TX, TY, TZ, CAMERA_ID, NAME']
    for number in reversed(range(len(names))):
        inverse = np.linalg.inv(POSES[number])
        x, y, z, w = quaternions_from_rotations(inverse[None, :3, :3])[0]
        lines += [' '.join(map(str, [number + 1, w, x, y, z, *inverse[:3, 3], 1, names[number]])), points]
    path.write_text('\n'.join(lines) + '\n')
    return path


def transforms(path: Path, names: list[str]) -> Path:
    """As nerfstudio writes it: the camera looks along -z, and y is up."""
    opengl = POSES @ np.diag([1.0, -1, -1, 1])
    frames = [{'file_path': name, 'transform_matrix': pose.tolist()} for name, pose in zip(names, opengl, strict=True)]
    path.write_text(json.dumps({'w': 96, 'h': 72, 'fl_x': 80.0, 'frames': frames}, indent=2))
    return path


def recorded(path: Path, first: int = 0) -> Path:
    return image_folder(path, [np.full((8, 9), number, np.uint8) for number in range(COUNT)], first=first)


@pytest.mark.parametrize('points', ['2362.4 248.5 58396 1784.7 268.3 -1', ''])
@pytest.mark.parametrize('folder', ['', 'images/', './cam 0/'])
def test_colmap_poses_get_the_stamps_of_the_named_images(tmp_path: Path, points: str, folder: str) -> None:
    file = colmap(tmp_path / 'images.txt', [f'{folder}{number}.jpg' for number in range(9, 9 + COUNT)], points)
    truth = load_ground_truth(open_recording(recorded(tmp_path / 'in', 9)), file=file)
    assert truth is not None
    assert truth.stamps_ns.tolist() == [SECOND + number * SECOND // 10 for number in range(COUNT)]
    np.testing.assert_allclose(truth.poses, POSES, atol=1e-12)
    assert '(COLMAP, by the names of 4 images, in its own unit of length)' in truth.source


def test_colmaps_binary_has_the_poses_of_its_text(tmp_path: Path) -> None:
    images = b''
    for number in reversed(range(COUNT)):
        inverse = np.linalg.inv(POSES[number])
        x, y, z, w = quaternions_from_rotations(inverse[None, :3, :3])[0]
        images += struct.pack('<I7dI', number + 1, w, x, y, z, *inverse[:3, 3], 1) + f'cam 0/{number}.jpg\0'.encode()
        images += struct.pack('<Q', number) + number * struct.pack('<ddq', 1.5, 2.5, -1)
    file = tmp_path / 'images.bin'
    file.write_bytes(struct.pack('<Q', COUNT) + images)
    truth = load_ground_truth(open_recording(recorded(tmp_path / 'in')), file=file)
    assert truth is not None
    np.testing.assert_allclose(truth.poses, POSES, atol=1e-12)
    file.write_bytes(struct.pack('<Q', COUNT) + images[:-1])
    with pytest.raises(BagError, match=r'images\.bin is no text: .* whole images\.bin'):
        load_ground_truth(open_recording(recorded(tmp_path / 'in2')), file=file)


def test_record3d_has_opengl_axes_and_numbers_of_frames(tmp_path: Path) -> None:
    opengl = POSES @ np.diag([1.0, -1, -1, 1])
    rows = [[*q, *pose[:3, 3]] for q, pose in zip(quaternions_from_rotations(opengl[:, :3, :3]).tolist(), opengl, strict=True)]
    file = tmp_path / 'metadata.json'
    file.write_text(json.dumps({'h': 72, 'w': 96, 'K': [80, 0, 0, 0, 80, 0, 48, 36, 1], 'fps': 60, 'poses': rows}))
    truth = load_ground_truth(open_recording(recorded(tmp_path / 'in')), file=file)
    assert truth is not None
    np.testing.assert_allclose(truth.poses, POSES, atol=1e-12)
    assert 'Record3D, by the names of 4 images' in truth.source


@pytest.mark.parametrize('ending', ['.png', ''])
def test_transforms_json_has_opengl_axes_and_names(tmp_path: Path, ending: str) -> None:
    file = transforms(tmp_path / 'transforms.json', [f'images/{number}{ending}' for number in range(COUNT)])
    truth = load_ground_truth(open_recording(recorded(tmp_path / 'in')), file=file)
    assert truth is not None
    np.testing.assert_allclose(truth.poses, POSES, atol=1e-12)


def test_cameras_of_gaussian_splatting_have_the_poses_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / 'cameras.json'
    file.write_text(json.dumps([{'id': number, 'img_name': str(number), 'width': 9, 'height': 8, 'position': pose[:3, 3].tolist(),
                                 'rotation': pose[:3, :3].tolist(), 'fx': 8.0, 'fy': 8.0} for number, pose in enumerate(POSES)]))
    truth = load_ground_truth(open_recording(recorded(tmp_path / 'in')), file=file)
    assert truth is not None
    np.testing.assert_allclose(truth.poses, POSES, atol=1e-12)
    assert '(3D Gaussian Splatting, by the names of 4 images' in truth.source


def test_cameras_of_polycam_have_opengl_axes(tmp_path: Path) -> None:
    cameras = tmp_path / 'corrected_cameras'
    cameras.mkdir()
    for number, pose in enumerate(POSES @ np.diag([1.0, -1, -1, 1])):
        values = {f't_{row}{column}': pose[row, column] for row in range(3) for column in range(4)}
        (cameras / f'{number}.json').write_text(json.dumps({'fx': 8.0, 'fy': 8.0, 'cx': 4.5, 'cy': 4.0, **values}))
    truth = load_ground_truth(open_recording(recorded(tmp_path / 'in')), file=cameras)
    assert truth is not None
    np.testing.assert_allclose(truth.poses, POSES, atol=1e-12)
    (cameras / '2.json').write_text('{"fx": 8.0}')
    with pytest.raises(BagError, match=r'2\.json: it has no t_00 to t_23'):
        load_ground_truth(open_recording(recorded(tmp_path / 'in2')), file=cameras)


def openmvg() -> str:
    """Rotations from the world, centres in it; the third image has no pose, and ids of poses are not those of views."""
    views = [{'key': number, 'value': {'ptr_wrapper': {'data': {'filename': f'{number}.jpg', 'id_pose': number + 7}}}}
             for number in range(COUNT)]
    poses = [{'key': number + 7, 'value': {'rotation': pose[:3, :3].T.tolist(), 'center': pose[:3, 3].tolist()}}
             for number, pose in enumerate(POSES)]
    return json.dumps({'sfm_data_version': '0.3', 'root_path': '/a', 'views': views, 'intrinsics': [], 'extrinsics': poses})


@pytest.mark.parametrize('folder', ['./', 'images//'])
def test_openmvg_may_write_names_in_another_way_than_paths(tmp_path: Path, folder: str) -> None:
    file = tmp_path / 'sfm_data.json'
    file.write_text(re.sub(r'"filename": "', f'"filename": "{folder}', openmvg()))
    truth = load_ground_truth(open_recording(recorded(tmp_path / 'in')), file=file)
    assert truth is not None
    np.testing.assert_allclose(truth.poses, POSES, atol=1e-12)


@pytest.mark.parametrize('text', [
    '[{"a": ' + '[' * 3000, '{"frames": [{"file_path": "0.png", "transform_matrix": [[1' + '0' * 400 + ']]}]}'])
def test_values_that_no_pose_has_are_refused_with_the_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / 'poses.json'
    file.write_text(text)
    with pytest.raises(BagError, match=r'poses\.json(, line 1| holds no pose)'):
        load_ground_truth(open_recording(recorded(tmp_path / 'in')), file=file)


def alicevision() -> str:
    """Words in place of numbers, rotations from the world column by column."""
    views = [{'viewId': str(number), 'poseId': f'{number}7', 'path': f'/a/{number}.jpg'} for number in range(COUNT)]
    poses = [{'poseId': f'{number}7', 'pose': {'transform': {
        'rotation': [str(value) for value in pose[:3, :3].T.ravel(order='F')], 'center': [str(value) for value in pose[:3, 3]]}}}
        for number, pose in enumerate(POSES)]
    return json.dumps({'version': ['1', '2', '8'], 'views': views, 'intrinsics': [], 'poses': poses})


def opensfm(parts: int = 1) -> str:
    shots = {f'{number}.jpg': {'rotation': cv2.Rodrigues(pose[:3, :3])[0].ravel().tolist(), 'translation': pose[:3, 3].tolist()}
             for number, pose in enumerate(np.linalg.inv(POSES))}
    return json.dumps([{'cameras': {}, 'shots': shots, 'points': {}}] * parts)


def metashape() -> str:
    cameras = ''.join(f'<camera id="{number}" sensor_id="0" label="{number}">\n  <transform>{" ".join(map(str, pose.ravel()))}'
                      '</transform>\n</camera>\n' for number, pose in enumerate(POSES))
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<document><chunk><cameras>{cameras}</cameras></chunk></document>\n'


SCANNETPP = json.dumps({str(number): {'pose': np.eye(4).tolist(), 'aligned_pose': pose.tolist(), 'intrinsic': np.eye(3).tolist()}
                        for number, pose in enumerate(POSES)})


def pandaset() -> str:
    return json.dumps([{'position': dict(zip('xyz', pose[:3, 3], strict=True)), 'heading': dict(zip('xyzw', q, strict=True))}
                       for pose, q in zip(POSES, quaternions_from_rotations(POSES[:, :3, :3]).tolist(), strict=True)])


def bop() -> str:
    return json.dumps({str(number): {'cam_R_w2c': pose[:3, :3].ravel().tolist(), 'cam_t_w2c': (1000 * pose[:3, 3]).tolist()}
                       for number, pose in enumerate(np.linalg.inv(POSES))})


def virtual_kitti(cameras: int) -> str:
    """Of its second version, with several cameras, or of the first."""
    lines = [f'frame {"cameraID " * (cameras > 1)}r1,1 r1,2 r1,3 t1 r2,1 r2,2 r2,3 t2 r3,1 r3,2 r3,3 t3 0 0 0 1']
    for number, pose in enumerate(np.linalg.inv(POSES)):
        for camera in range(cameras):
            shifted = pose - camera * np.eye(4)[[0]].T @ [[0, 0, 0, 0.53]]
            lines.append(' '.join(map(str, [number, *[camera] * (cameras > 1), *shifted.ravel()])))
    return '\n'.join(lines) + '\n'


@pytest.mark.parametrize(('tool', 'text'), [
    ('PandaSet', pandaset()), ('BOP', bop()), ('Virtual KITTI', virtual_kitti(1)), ('ScanNet++', SCANNETPP), ('OpenMVG', openmvg()),
    ('AliceVision', alicevision()), ('OpenSfM', opensfm()), ('Metashape', metashape())])
def test_poses_of_other_tools_are_world_from_camera(tmp_path: Path, tool: str, text: str) -> None:
    file = tmp_path / 'poses'
    file.write_text(text)
    truth = load_ground_truth(open_recording(recorded(tmp_path / 'in')), file=file)
    assert truth is not None
    np.testing.assert_allclose(truth.poses, POSES, atol=1e-9)
    assert f'({tool}, by the names of 4 images, in its own unit of length)' in truth.source


def test_views_without_a_pose_are_left_out(tmp_path: Path) -> None:
    for number, (text, key) in enumerate(((openmvg(), 'extrinsics'), (alicevision(), 'poses'))):
        values, file = json.loads(text), tmp_path / f'{number}.json'
        file.write_text(json.dumps({**values, key: values[key][1:]}))
        truth = load_ground_truth(open_recording(recorded(tmp_path / f'in{number}')), file=file)
        assert truth is not None
        np.testing.assert_allclose(truth.poses, POSES[1:], atol=1e-9)


def test_poses_of_llff_are_in_the_order_of_names_as_text(tmp_path: Path) -> None:
    folder = recorded(tmp_path / 'in', first=8)  # 8, 9, 10, 11: as text 10 comes first
    rotations = np.stack([POSES[:, :3, 1], POSES[:, :3, 0], -POSES[:, :3, 2]], axis=2)  # down, right, backwards
    table = np.concatenate([rotations, POSES[:, :3, 3:], np.tile([[8.0], [9.0], [80.0]], (COUNT, 1, 1))], axis=2).reshape(COUNT, 15)
    table = np.column_stack([table, np.ones(COUNT), np.full(COUNT, 9.0)])
    np.save(tmp_path / 'poses_bounds.npy', table[[2, 3, 0, 1]])
    truth = load_ground_truth(open_recording(folder), file=tmp_path / 'poses_bounds.npy')
    assert truth is not None
    np.testing.assert_allclose(truth.poses, POSES, atol=1e-9)


def test_names_that_are_stamps_need_no_folder_of_images(tmp_path: Path) -> None:
    file = colmap(tmp_path / 'images.txt', [f'140363657{number}.763555584.png' for number in range(COUNT)])
    truth = load_ground_truth(open_recording(recorded(tmp_path / 'in')), file=file)
    assert truth is not None
    assert truth.stamps_ns.tolist() == [1403636570763555584 + number * SECOND for number in range(COUNT)]


@pytest.mark.parametrize('write', [colmap, transforms])
def test_of_a_rig_the_poses_of_the_folder_of_the_images_count(tmp_path: Path, write) -> None:
    names = ['images/left/0.png', 'images/left/1.png', 'images/right/0.png', 'images/right/2.png']
    file = write(tmp_path / 'poses', names)
    truth = load_ground_truth(open_recording(recorded(tmp_path / 'left')), file=file)
    assert truth is not None
    np.testing.assert_allclose(truth.poses, POSES[:2], atol=1e-12)
    with pytest.raises(BagError, match=r'poses of images that are called alike, in images/left, images/right: name the folder'):
        load_ground_truth(open_recording(recorded(tmp_path / 'in')), file=file)


@pytest.mark.parametrize('camera', [0, 1])
def test_camera_of_virtual_kitti_is_that_of_the_folder(tmp_path: Path, camera: int) -> None:
    file, folder = tmp_path / 'extrinsic.txt', recorded(tmp_path / f'Camera_{camera}')
    file.write_text(virtual_kitti(2))
    for image in sorted((folder / 'images').iterdir()):
        image.rename(image.with_name(f'rgb_{int(image.stem):05d}.jpg'))
    truth = load_ground_truth(open_recording(folder), file=file)
    assert truth is not None
    np.testing.assert_allclose(truth.poses, POSES + camera * np.concatenate([np.zeros((COUNT, 4, 3)), 0.53 * POSES[:, :, :1]], 2))


def test_broken_file_by_numbers_of_images_is_refused_with_the_tool(tmp_path: Path) -> None:
    file = tmp_path / 'poses'
    for tool, text in (('PandaSet', pandaset().replace('"w"', '"W"')), ('BOP', bop().replace('"3"', '"c"')),
                       ('Virtual KITTI', virtual_kitti(1)[:-9])):
        file.write_text(text)
        with pytest.raises(BagError, match=f'poses: it is of {tool}, and'):
            load_ground_truth(open_recording(recorded(tmp_path / tool)), file=file)


def test_folder_of_matrices_column_by_column_is_read_as_such(tmp_path: Path) -> None:
    folder, truths = recorded(tmp_path / 'in'), tmp_path / 'pose'
    truths.mkdir()
    own = POSES - POSES[0] * ([0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0])  # the first of which has no position
    for number, pose in enumerate(own):
        (truths / f'{number:06d}.txt').write_text(' '.join(map(str, pose.T.ravel())) + '\n')
    truth = load_ground_truth(open_recording(folder), file=truths)
    assert truth is not None
    np.testing.assert_allclose(truth.poses, own, atol=1e-12)


def test_names_that_no_image_has_are_refused_with_one(tmp_path: Path) -> None:
    file = colmap(tmp_path / 'images.txt', ['front_1.png'])
    with pytest.raises(BagError, match=r'has the poses of images, as front_1.png, and .* has no image of such a name'):
        load_ground_truth(open_recording(recorded(tmp_path / 'in')), file=file)


def test_a_matrix_of_transforms_json_that_is_no_rotation_is_refused(tmp_path: Path) -> None:
    file = transforms(tmp_path / 'transforms.json', [f'{number}.png' for number in range(COUNT)])
    content = json.loads(file.read_text())
    content['frames'][2]['transform_matrix'][0][0] = 5
    file.write_text(json.dumps(content))
    with pytest.raises(BagError, match=r'the matrix of 2.png is .* is no rotation'):
        load_ground_truth(open_recording(recorded(tmp_path / 'in')), file=file)


@pytest.mark.parametrize(('image', 'pose'), [('{}.png', '{}.txt'), ('frame-{:06d}.color.jpg', 'frame-{:06d}.pose.txt')])
def test_folder_has_a_matrix_for_each_image(tmp_path: Path, image: str, pose: str) -> None:
    folder, truths = recorded(tmp_path / 'in'), tmp_path / 'pose'
    truths.mkdir()
    for number, file in enumerate(sorted((folder / 'images').iterdir())):
        file.rename(file.with_name(image.format(number)))
        np.savetxt(truths / pose.format(number), POSES[number])
    (truths / pose.format(9)).write_text('-inf -inf -inf -inf\n' * 4)  # ScanNet's, where its tracker was lost
    (truths / 'intrinsics.txt').write_text('500 500 320 240\n')
    (truths / 'camera.json').write_text('{"fx": 500}')
    truth = load_ground_truth(open_recording(folder), file=truths)
    assert truth is not None
    assert truth.stamps_ns.tolist() == [SECOND + number * SECOND // 10 for number in range(COUNT)]
    np.testing.assert_allclose(truth.poses, POSES, atol=1e-12)
    np.savetxt(truths / pose.format(2), 2 * POSES[2])
    with pytest.raises(BagError, match=r'pose: the matrix of .*2\S* is .* is no rotation'):
        load_ground_truth(open_recording(folder), file=truths)


@pytest.mark.parametrize('text', ['{', '{"frames": 1}', '{"frames": [{"file_path": "a.png"}]}'])
def test_json_without_poses_is_refused_with_the_forms(tmp_path: Path, text: str) -> None:
    (tmp_path / 'a.json').write_text(text)
    with pytest.raises(BagError, match=r'poses are 8 a line.*; JSON is read of the tools in docs/evaluation\.md'):
        load_ground_truth(open_recording(recorded(tmp_path / 'in')), file=tmp_path / 'a.json')
