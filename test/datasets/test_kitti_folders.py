"""Drives of KITTI's raw data: calibration by the size of the images, and ground truth of GPS and IMU, by hand."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from lightglue_trt_ros.core.cameras import StereoRig
from lightglue_trt_ros.core.types import Float64
from lightglue_trt_ros.datasets.calibration_files import load_intrinsics
from lightglue_trt_ros.datasets.ground_truth import load_ground_truth
from lightglue_trt_ros.datasets.kitti_folders import KittiRawFolder
from lightglue_trt_ros.datasets.recordings import open_recording
from lightglue_trt_ros.utils.errors import BagError

COUNT = 4
RAW, RECTIFIED = (60, 30), (50, 24)  # width, height
LIDAR_FROM_IMU = np.array([[1.0, 0, 0, -0.8], [0, 1, 0, 0.3], [0, 0, 1, -0.8], [0, 0, 0, 1]])
FIRST_FROM_LIDAR = np.array([[0.0, -1, 0, -0.004], [0, 0, -1, -0.08], [1, 0, 0, -0.27], [0, 0, 0, 1]])
RECTIFYING = cv2.Rodrigues(np.array([0.004, -0.007, 0.01]))[0]
SECOND_FROM_FIRST = np.eye(4)
SECOND_FROM_FIRST[:3, :3], SECOND_FROM_FIRST[:3, 3] = cv2.Rodrigues(np.array([0.02, 0.03, 0.01]))[0], [0.06, 0.001, -0.002]
K = np.array([[40.0, 0, 25], [0, 41, 12], [0, 0, 1]])
OFFSET = np.array([0.06, -0.0004, 0.003])  # of rectified camera 2
IMU = [(49.0, 8.4, 110.0, 0.01, -0.02, 0.5), (49.00001, 8.40002, 110.25, 0.02, 0.01, 0.6),
       (49.00002, 8.40005, 110.5, 0.0, 0.03, 0.75), (49.00004, 8.40007, 110.0, -0.01, 0.02, 0.9)]


def test_drive_of_kitti_360_has_its_images_in_data_rect(tmp_path: Path) -> None:
    """Its calibration and its poses are files elsewhere, which name the frames by their numbers."""
    camera = tmp_path / 'data_2d_raw' / '2013_05_28_drive_0000_sync' / 'image_00'
    (camera / 'data_rect').mkdir(parents=True)
    (camera / 'timestamps.txt').write_text(''.join(f'2013-05-28 08:46:02.{number}00000000\n' for number in range(COUNT)))
    for number in range(COUNT):
        cv2.imwrite(str(camera / 'data_rect' / f'{number:010d}.png'), np.full(RECTIFIED[::-1], number, np.uint8))
    poses = tmp_path / 'cam0_to_world.txt'
    poses.write_text(''.join(f'{number} 1 0 0 {number} 0 1 0 0 0 0 1 0 0 0 0 1\n' for number in (0, 2, 3)))
    calibration = tmp_path / 'perspective.txt'
    calibration.write_text(f'P_rect_00: {flat(np.column_stack([K, np.zeros(3)]))}\nS_rect_00: {flat(RECTIFIED)}\n')
    for place in (camera, camera.parent):
        recording = open_recording(place)
        truth = load_ground_truth(recording, file=poses)
        assert truth is not None
        stamps = [frame.stamp_ns for frame in recording.frames()]
        assert truth.stamps_ns.tolist() == [stamps[0], *stamps[2:]]
        assert truth.poses[:, 0, 3].tolist() == [0, 2, 3]
    assert load_intrinsics(calibration, size=lambda: RECTIFIED).k.tolist() == K.tolist()


def flat(values) -> str:
    return ' '.join(f'{value:.12e}' for value in np.ravel(values))


def rigid(pose: Float64) -> str:
    return f'calib_time: 15-Mar-2012 11:37:16\nR: {flat(pose[:3, :3])}\nT: {flat(pose[:3, 3])}\ndelta_f: 0 0\n'


def make_drive(day: Path, size: tuple[int, int]) -> Path:
    drive = day / '2011_09_26_drive_0001_sync'
    for camera in range(4):
        folder = drive / f'image_{camera:02d}'
        (folder / 'data').mkdir(parents=True)
        (folder / 'timestamps.txt').write_text(''.join(f'2011-09-26 13:02:25.{number}00000001\n' for number in range(COUNT)))
        for number in range(COUNT):
            cv2.imwrite(str(folder / 'data' / f'{number:010d}.png'), np.full(size[::-1], number, np.uint8))
    (drive / 'oxts' / 'data').mkdir(parents=True)
    (drive / 'oxts' / 'timestamps.txt').write_text(''.join(f'2011-09-26 13:02:25.{number}05000000\n' for number in range(COUNT)))
    for number, values in enumerate(IMU):
        (drive / 'oxts' / 'data' / f'{number:010d}.txt').write_text(' '.join(map(str, (*values, *[0.5] * 24))) + '\n')
    (day / 'calib_imu_to_velo.txt').write_text(rigid(LIDAR_FROM_IMU))
    (day / 'calib_velo_to_cam.txt').write_text(rigid(FIRST_FROM_LIDAR))
    offsets = [np.zeros(3), [-0.54, 0, 0], OFFSET, OFFSET - [0.53, 0, 0]]
    (day / 'calib_cam_to_cam.txt').write_text('calib_time: 09-Jan-2012 13:57:47\ncorner_dist: 9.95e-02\n' + ''.join(
        f'S_{name}: {flat(RAW)}\nK_{name}: {flat(K)}\nD_{name}: {flat([-0.37, 0.2, 0.002, 0.001, -0.07])}\n'
        f'R_{name}: {flat(pose[:3, :3])}\nT_{name}: {flat(pose[:3, 3])}\nS_rect_{name}: {flat(RECTIFIED)}\n'
        f'R_rect_{name}: {flat(RECTIFYING if number == 0 else np.eye(3))}\n'
        f'P_rect_{name}: {flat(np.column_stack([K, K @ offset]))}\n'
        for number, (offset, pose) in enumerate(zip(offsets, (np.eye(4), np.eye(4), SECOND_FROM_FIRST, np.eye(4)), strict=True))
        for name in [f'{number:02d}']))
    return drive


def in_world(number: int) -> Float64:
    """World (east, north, up of the first pose) from IMU, of the numbers in IMU."""
    latitude, longitude, up, roll, pitch, yaw = IMU[number]
    scale = 6378137.0 * np.cos(np.radians(49.0))

    def north(degrees: float) -> float:
        return scale * float(np.arcsinh(np.tan(np.radians(degrees))))  # the same function as log(tan(45 deg + half))

    pose = np.eye(4)
    about = [cv2.Rodrigues(np.eye(3)[axis] * angle)[0] for axis, angle in enumerate((roll, pitch, yaw))]
    pose[:3, :3] = about[2] @ about[1] @ about[0]
    pose[:3, 3] = scale * np.radians(longitude - 8.4), north(latitude) - north(49.0), up - 110.0
    return pose


@pytest.mark.parametrize('camera', ['', 'image_00', 'image_02'])
@pytest.mark.parametrize('size', [RAW, RECTIFIED])
def test_landmark_is_seen_where_imu_lidar_and_cameras_put_it(tmp_path: Path, camera: str, size: tuple[int, int]) -> None:
    """A point of the world, through the poses of the truth and through KITTI's chain of sensors."""
    drive = make_drive(tmp_path, size)
    recording = open_recording(drive / camera)
    assert isinstance(recording, KittiRawFolder)
    assert len(recording) == COUNT
    truth = load_ground_truth(recording)
    assert truth is not None
    assert truth.stamps_ns[0] == 1317042145005000000
    from_first = SECOND_FROM_FIRST if camera == 'image_02' else np.eye(4)
    if size == RECTIFIED:
        from_first = np.eye(4)
        from_first[:3, :3] = RECTIFYING
        from_first[:3, 3] = OFFSET if camera == 'image_02' else 0
    for number in range(COUNT):
        landmark = in_world(number) @ [12, 1, -0.5, 1]  # ahead of the car
        seen = from_first @ FIRST_FROM_LIDAR @ LIDAR_FROM_IMU @ [12, 1, -0.5, 1]
        assert seen[2] > 10
        np.testing.assert_allclose(np.linalg.inv(truth.poses[number]) @ landmark, seen, atol=1e-6)


def test_calibration_is_of_raw_or_of_rectified_images_by_their_size(tmp_path: Path) -> None:
    raw, rectified = open_recording(make_drive(tmp_path / 'a', RAW)), open_recording(make_drive(tmp_path / 'b', RECTIFIED))
    assert raw.intrinsics is not None
    assert (raw.intrinsics.width, raw.intrinsics.d[0], raw.right) == (60, -0.37, None)
    assert rectified.intrinsics is not None
    assert (rectified.intrinsics.width, rectified.intrinsics.d.tolist()) == (50, [0] * 5)
    other = open_recording(make_drive(tmp_path / 'c', (40, 20)))
    with pytest.raises(BagError, match=r'is of images of .*\(50, 24\), \(60, 30\).*, those in .* have \(40, 20\)'):
        _ = other.intrinsics


@pytest.mark.parametrize(('camera', 'baseline_m'), [('image_00', 0.54), ('image_02', 0.53)])
def test_right_images_of_a_rectified_drive_are_those_of_the_next_camera(tmp_path: Path, camera: str, baseline_m: float) -> None:
    left = open_recording(make_drive(tmp_path, RECTIFIED) / camera)
    assert left.right is not None
    assert left.intrinsics is not None
    assert left.right.intrinsics is not None
    assert StereoRig(left.intrinsics, left.right.intrinsics).baseline_m == pytest.approx(baseline_m)


def test_drive_without_calibration_has_no_truth_and_says_what_to_add(tmp_path: Path) -> None:
    drive = make_drive(tmp_path, RECTIFIED)
    (tmp_path / 'calib_imu_to_velo.txt').unlink()
    recording = open_recording(drive)
    assert load_ground_truth(recording) is None
    assert 'has the poses of the IMU, and' in recording.notes[0]
    assert 'no calib_imu_to_velo.txt: no ground truth' in recording.notes[0]
    mounting = np.array([[0.0, 0, 1, 1], [-1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 0, 1]])
    given = load_ground_truth(recording, camera_in_body=mounting)
    assert given is not None
    np.testing.assert_allclose(given.poses[1], in_world(1) @ mounting, atol=1e-6)


@pytest.mark.parametrize(('text', 'message'), [
    ('49 8 110 0 0', 'it begins with .*: latitude, longitude .degrees.'), ('498 8 110 0 0 0', 'it begins with'),
    ('49 8 110 0 0 45', 'radians'), ('49 east', 'could not convert')])
def test_oxts_that_is_none_is_refused_by_its_file(tmp_path: Path, text: str, message: str) -> None:
    drive = make_drive(tmp_path, RECTIFIED)
    (drive / 'oxts' / 'data' / '0000000002.txt').write_text(text)
    with pytest.raises(BagError, match=rf'0000000002\.txt: .*{message}'):
        load_ground_truth(open_recording(drive))


def test_counts_of_oxts_and_stamps_that_differ_are_refused(tmp_path: Path) -> None:
    drive = make_drive(tmp_path, RECTIFIED)
    (drive / 'oxts' / 'data' / '0000000002.txt').unlink()
    with pytest.raises(BagError, match='has 4 stamps and 3 files of data'):
        load_ground_truth(open_recording(drive))
