"""Image folders of the benchmarks as they are unpacked, and the bags that make_bag writes from them."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml

from lightglue_trt_eval.cli.make_bag import main as make_bag
from lightglue_trt_ros.core.types import Float64
from lightglue_trt_ros.datasets.ground_truth import load_ground_truth, poses_at
from lightglue_trt_ros.datasets.image_folders import EurocFolder, ImagesFolder, TumFolder
from lightglue_trt_ros.datasets.kitti_folders import KittiFolder
from lightglue_trt_ros.datasets.poses import poses_from
from lightglue_trt_ros.datasets.recordings import open_recording
from lightglue_trt_ros.utils.errors import BagError

COUNT = 6
STEP_NS = 100_000_000
START_NS = 1_403_636_579_763_555_584  # float seconds cannot hold it
BODY_FROM_CAMERA = np.array([[0.0, -1, 0, 0.5], [1, 0, 0, 0.25], [0, 0, 1, -0.125], [0, 0, 0, 1]])
BODY_FROM_TRUTH = np.array([[0.0, 0, 1, 0.1], [1, 0, 0, 0.2], [0, 1, 0, 0.3], [0, 0, 0, 1]])


def image(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (30, 40), np.uint8)


def camera_poses(count: int = COUNT) -> Float64:
    rng = np.random.default_rng(5)
    return poses_from(np.cumsum(rng.normal(size=(count, 3)), axis=0), rng.normal(size=(count, 4)) * 0.1 + [0, 0, 0, 1])


def quaternion(pose: Float64) -> str:
    """x y z qx qy qz qw, through OpenCV: not through the code that is tested."""
    vector = cv2.Rodrigues(pose[:3, :3])[0].reshape(3)
    angle = float(np.linalg.norm(vector))
    axis = vector / max(angle, 1e-12) * np.sin(angle / 2)
    return ' '.join(f'{value:.12f}' for value in (*pose[:3, 3], *axis, np.cos(angle / 2)))


def write_images(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True)
    for number, name in enumerate(names):
        assert cv2.imwrite(str(folder / name), image(number))


@pytest.mark.parametrize('names', [
    ['1700000000.05.png', '1700000000.1.png', '1700000000.15.png', '1700000000.2.png', '1700000000.25.png', '1700000001.0.png'],
    [f'left_{stamp}.png' for stamp in (
        '1699999999.98', '1700000000.0', '1700000000.05', '1700000000.1', '1700000000.123456', '1700000000.2')],
    ['9.95.jpg', '9.976.jpg', '10.0.jpg', '10.017.jpg', '10.05.jpg', '10.1.jpg'],
    ['frame_8.png', 'frame_9.png', 'frame_10.png', 'frame_100.png', 'frame_101.png', 'frame_1000.png'],
    ['cam1.8.png', 'cam1.9.png', 'cam1.10.png', 'cam1.11.png', 'cam1.100.png', 'cam2.1.png']])
def test_images_named_by_stamp_or_number_get_their_own_stamps(tmp_path: Path, names: list[str]) -> None:
    write_images(tmp_path / 'images', names)
    (tmp_path / 'timestamps.txt').write_text(''.join(f'{1 + number / 10}\n' for number in range(COUNT)))
    folder = ImagesFolder(tmp_path)
    for number, (stamp, pixels) in enumerate(folder.images()):
        assert stamp == 10**9 + number * STEP_NS
        assert names[number].endswith('.jpg') or np.array_equal(pixels, image(number))
    assert [file.name for file in folder.files] == names


def make_tum(path: Path) -> Path:
    stamps = [f'1305031910.{number}65258' for number in range(COUNT)]
    write_images(path / 'rgb', [f'{stamp}.png' for stamp in stamps])
    (path / 'rgb.txt').write_text('# color images\n# timestamp filename\n' + ''.join(f'{s} rgb/{s}.png\n' for s in stamps))
    (path / 'groundtruth.txt').write_text('# ground truth\n' + ''.join(
        f'{stamp} {quaternion(pose)}\n' for stamp, pose in zip(stamps, camera_poses(), strict=True)))
    return path


def make_kitti(disk: Path, camera: int, poses: str) -> Path:
    path = disk / 'sequences' / '07'
    write_images(path / f'image_{camera}', [f'{number:06d}.png' for number in range(COUNT)])
    (path / 'times.txt').write_text(''.join(f'{number * 0.1:e}\n' for number in range(COUNT)))
    offset = {0: 0.0, 2: 45.0}[camera]
    (path / 'calib.txt').write_text(f'P0: 700 0 20 0 0 700 15 0 0 0 1 0\nP2: 700 0 20 {offset} 0 700 15 -0.3 0 0 1 0.005\n'
                                    'Tr: 1 0 0 0 0 1 0 0 0 0 1 0\n')
    of_camera_0 = camera_poses()
    if camera == 2:  # x_2 = x_0 + b, with K b the fourth column of P2
        b = np.linalg.solve([[700, 0, 20], [0, 700, 15], [0, 0, 1]], [45.0, -0.3, 0.005])
        from_0 = np.eye(4)
        from_0[:3, 3] = b
        of_camera_0 = of_camera_0 @ from_0
    file = disk / poses
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savetxt(file, of_camera_0[:, :3].reshape(-1, 12), fmt='%.12e')
    return path


def make_euroc(path: Path) -> Path:
    stamps = [START_NS + number * STEP_NS for number in range(COUNT)]
    camera, truth = path / 'mav0' / 'cam0', path / 'mav0' / 'state_groundtruth_estimate0'
    write_images(camera / 'data', [f'{stamp}.png' for stamp in stamps])
    (camera / 'data.csv').write_text('#timestamp [ns],filename\r\n' + ''.join(f'{s},{s}.png\r\n' for s in stamps))
    mounting = ', '.join(map(str, BODY_FROM_CAMERA.reshape(-1)))
    (camera / 'sensor.yaml').write_text(
        f'sensor_type: camera\nT_BS:\n  cols: 4\n  rows: 4\n  data: [{mounting}]\nresolution: [40, 30]\ncamera_model: pinhole\n'
        'intrinsics: [45.5, 46.5, 20.25, 15.25]\ndistortion_model: radial-tangential\n'
        'distortion_coefficients: [-0.2, 0.07, 0.0002, 0.00001]\n')
    truth.mkdir()
    mounting = ', '.join(map(str, BODY_FROM_TRUTH.reshape(-1)))
    (truth / 'sensor.yaml').write_text(f'sensor_type: visual-inertial\nT_BS:\n  cols: 4\n  rows: 4\n  data: [{mounting}]\n')
    rows = ['#timestamp, p_RS_R_x [m], p_RS_R_y [m], p_RS_R_z [m], q_RS_w [], q_RS_x [], q_RS_y [], q_RS_z [], v_x [m s^-1]']
    for stamp, pose in zip(stamps, camera_poses() @ np.linalg.inv(BODY_FROM_CAMERA) @ BODY_FROM_TRUTH, strict=True):
        x, y, z, qx, qy, qz, qw = quaternion(pose).split()
        rows.append(','.join([str(stamp), x, y, z, qw, qx, qy, qz, '0.5']))
    (truth / 'data.csv').write_text('\n'.join(rows) + '\n')
    return path


MAKERS = {'tum': lambda path: make_tum(path / 'desk'), 'kitti': lambda path: make_kitti(path, 0, 'poses/07.txt'),
          'kitti colour': lambda path: make_kitti(path, 2, 'sequences/07/poses.txt'),
          'euroc': lambda path: make_euroc(path / 'MH_01')}
KINDS = {'tum': TumFolder, 'kitti': KittiFolder, 'kitti colour': KittiFolder, 'euroc': EurocFolder}


@pytest.mark.parametrize('name', MAKERS)
def test_layout(tmp_path: Path, name: str) -> None:
    recording = open_recording(MAKERS[name](tmp_path))
    assert type(recording) is KINDS[name]
    assert len(recording) == COUNT
    stamps = [frame.stamp_ns for frame in recording.frames()]
    assert [frame.number for frame in recording.frames()] == list(range(COUNT))
    assert np.array_equal(np.diff(stamps), [STEP_NS] * (COUNT - 1))
    for number, frame in enumerate(recording.frames()):
        assert frame.load().data.tobytes() == image(number).tobytes()
    truth = load_ground_truth(recording)
    assert truth is not None
    assert truth.stamps_ns.tolist() == stamps
    assert np.abs(truth.poses - camera_poses()).max() < 1e-9
    assert np.abs(poses_at(truth, stamps, 0.0) - camera_poses()).max() < 1e-9
    camera = recording.intrinsics
    if name == 'tum':
        assert camera is None
    else:
        assert camera is not None
        assert (camera.width, camera.height) == (40, 30)
        assert camera.k[0].tolist() == ([45.5, 0, 20.25] if name == 'euroc' else [700, 0, 20])
        assert camera.d.tolist() == ([-0.2, 0.07, 0.0002, 0.00001] if name == 'euroc' else [0.0] * 5)


@pytest.mark.parametrize('tracker', ['mocap0', 'vicon0'])
def test_poses_of_trackers_and_lists_with_a_line_of_names(tmp_path: Path, tracker: str) -> None:
    path = make_euroc(tmp_path / 'room1')
    (path / 'mav0' / 'state_groundtruth_estimate0').rename(path / 'mav0' / tracker)
    listing = path / 'mav0' / 'cam0' / 'data.csv'
    listing.write_text(listing.read_text().replace('#timestamp', 'timestamp'))
    recording = open_recording(path)
    if tracker == 'mocap0':  # TUM-VI's, which have one calibration of all cameras instead
        (path / 'mav0' / 'cam0' / 'sensor.yaml').unlink()
        camera = {'T_cam_imu': np.linalg.inv(BODY_FROM_CAMERA).tolist(), 'intrinsics': [45.5, 46.5, 20.25, 15.25],
                  'resolution': [40, 30], 'distortion_model': 'equidistant', 'distortion_coeffs': [0.01, 0.0, 0.0, 0.0]}
        (path / 'dso').mkdir()
        (path / 'dso' / 'camchain.yaml').write_text(yaml.safe_dump({'cam0': camera}))
        assert recording.intrinsics is not None
        assert (recording.intrinsics.k[0].tolist(), recording.intrinsics.size) == ([45.5, 0, 20.25], (30, 40))
    truth = load_ground_truth(recording)
    assert truth is not None
    assert np.abs(truth.poses - camera_poses()).max() < 1e-9


def test_stamps_in_nanoseconds_are_read_as_such(tmp_path: Path) -> None:
    write_images(tmp_path / 'images', ['0.png', '1.png'])
    for text in (f'{START_NS}\n{START_NS + 1}\n', f'timestamp\n{START_NS}.0\n1403636579.763555585\n'):
        (tmp_path / 'timestamps.txt').write_text(text)
        assert [frame.stamp_ns for frame in open_recording(tmp_path).frames()] == [START_NS, START_NS + 1]


@pytest.mark.parametrize(('text', 'stamps'), [
    ('1403636579763\n1403636579813\n', [1403636579763 * 10**6, 1403636579813 * 10**6]),
    ('1403636579763555\n1403636579813555\n', [1403636579763555000, 1403636579813555000]),
    ('7.950000000\n8.50000000\n8.150000000\n', [7_950_000_000, 8_050_000_000, 8_150_000_000]),
    ('7.95\n8.5\n', [7_950_000_000, 8_500_000_000]),
    ('7.950000000\n8.5\n', [7_950_000_000, 8_500_000_000])])
def test_unit_of_stamps_without_a_name_is_told_by_their_digits(tmp_path: Path, text: str, stamps: list[int]) -> None:
    write_images(tmp_path / 'images', [f'{number}.png' for number in range(len(stamps))])
    (tmp_path / 'timestamps.txt').write_text(text)
    assert [frame.stamp_ns for frame in open_recording(tmp_path).frames()] == stamps


@pytest.mark.parametrize(('heading', 'unit_ns'), [
    ('# timestamps left [us]', 10**3), ('timestamp_ms', 10**6), ('# stamp (ns)', 1), ('# time [s]', 10**9), ('# rig_ms', 10**9)])
def test_the_unit_above_the_stamps_counts(tmp_path: Path, heading: str, unit_ns: int) -> None:
    write_images(tmp_path / 'images', ['0.png', '1.png'])
    (tmp_path / 'timestamps.txt').write_text(f'{heading}\n1.226649e+06\n1267113\n')
    assert [frame.stamp_ns for frame in open_recording(tmp_path).frames()] == [1226649 * unit_ns, 1267113 * unit_ns]
    (tmp_path / 'timestamps.txt').write_text(f'{heading}\n0 1.226649e+06\n1 1267113\n')
    assert [frame.stamp_ns for frame in open_recording(tmp_path).frames()] == [1226649 * unit_ns, 1267113 * unit_ns]


def test_stamps_that_lie_among_the_images_are_named(tmp_path: Path) -> None:
    write_images(tmp_path / 'images', ['0.png', '1.png'])
    (tmp_path / 'images' / 'exposures.txt').write_text('0.5\n0.5\n')
    with pytest.raises(BagError, match=r'timestamps\.txt does not exist: write'):
        open_recording(tmp_path)
    (tmp_path / 'images' / 'stamps_left.txt').write_text('1\n2\n')
    with pytest.raises(BagError, match=r'copy \S+/images/stamps_left\.txt there, which has a stamp for each image, or write'):
        open_recording(tmp_path)


@pytest.mark.parametrize(('listing', 'folder', 'line'), [
    ('images.txt', 'images', '{stamp} {file}\n'), ('left_images.txt', 'img', '{number} {stamp} {file}\n')])
def test_lists_of_event_cameras_give_the_stamps(tmp_path: Path, listing: str, folder: str, line: str) -> None:
    stamps, names = [f'{0.05 * number:.9f}' for number in range(COUNT)], [f'frame_{number:08d}.png' for number in range(COUNT)]
    write_images(tmp_path / folder, names)
    (tmp_path / listing).write_text(''.join(
        line.format(number=number, stamp=stamp, file=f'{folder}/{name}')
        for number, (stamp, name) in enumerate(zip(stamps, names, strict=True))))
    (tmp_path / 'groundtruth.txt').write_text(''.join(
        f'{stamp} {quaternion(pose)}\n' for stamp, pose in zip(stamps, camera_poses(), strict=True)))
    (tmp_path / 'calib.txt').write_text('45 46 20 15 -0.368 0.15 0.0003 -0.0002 0.0\n')
    recording = open_recording(tmp_path)
    truth, camera = load_ground_truth(recording), recording.intrinsics
    assert [frame.stamp_ns for frame in recording.frames()] == [50_000_000 * number for number in range(COUNT)]
    assert truth is not None
    assert camera is not None
    assert np.abs(poses_at(truth, truth.stamps_ns, 0.001) - camera_poses()).max() < 1e-9
    assert camera.d.tolist() == [-0.368, 0.15, 0.0003, -0.0002, 0.0]
    (tmp_path / listing).write_text('1 0.9 0.1 0.2 0.3 1 2 3 1 0.png\n')  # COLMAP's images.txt has poses
    with pytest.raises(BagError, match=r'timestamps\.txt'):
        open_recording(tmp_path)


def test_folder_of_openloris_has_its_aligned_depth(tmp_path: Path) -> None:
    for folder in ('color', 'depth', 'aligned_depth'):
        write_images(tmp_path / folder, [f'{number}.png' for number in range(COUNT)])
    for folder in ('color', 'depth'):
        (tmp_path / f'{folder}.txt').write_text(''.join(f'{number}.5 {folder}/{number}.png\n' for number in range(COUNT)))
    (tmp_path / 'calibration.txt').write_text('45 46 20 15\n')  # as ETH3D's
    recording = open_recording(tmp_path)
    assert isinstance(recording, TumFolder)
    assert [frame.stamp_ns for frame in recording.frames()][:2] == [500_000_000, 1_500_000_000]
    assert recording.intrinsics is not None
    assert recording.intrinsics.k[0].tolist() == [45, 0, 20]
    assert recording.depth is None  # depth/ is of the depth camera
    (tmp_path / 'aligned_depth.txt').write_text('0.5 aligned_depth/0.png\n')
    del recording.depth
    assert recording.depth is not None
    assert recording.depth.files == [tmp_path / 'aligned_depth' / '0.png']
    assert recording.depth._per_metre is None  # millimetres


@pytest.mark.parametrize(('listing', 'line'), [
    ('times.txt', '{stem} {stamp} 8.5'), ('timestamps.txt', '{stem}.png,{stamp}'), ('times.txt', '{stamp}')])
def test_stamps_may_stand_after_the_names_of_images(tmp_path: Path, listing: str, line: str) -> None:
    write_images(tmp_path / 'images', [f'{number:05d}.png' for number in range(COUNT)])
    rows = [line.format(stem=f'{number:05d}', stamp=f'1403636579.{number}63555584') for number in range(COUNT)]
    (tmp_path / listing).write_text('\n'.join(rows) + '\n')
    assert [frame.stamp_ns for frame in open_recording(tmp_path).frames()] == [
        1_403_636_579_063_555_584 + number * STEP_NS for number in range(COUNT)]
    if 'stem' in line:  # of images that were taken out, the others keep their stamps
        (tmp_path / 'images' / '00001.png').unlink()
        assert [frame.stamp_ns for frame in open_recording(tmp_path).frames()][1] == 1_403_636_579_263_555_584
        (tmp_path / listing).write_text('\n'.join(rows[:-1]) + '\n')
        with pytest.raises(BagError, match=r'/time\w+\.txt: it has no line for 00005\.png'):
            open_recording(tmp_path)


def test_flags_after_names_that_are_stamps_are_no_stamps(tmp_path: Path) -> None:
    stamps = [START_NS // 1000 + 50_000 * number for number in range(COUNT)]
    write_images(tmp_path / 'images', [f'{stamp}.png' for stamp in stamps])
    (tmp_path / 'timestamps.txt').write_text(''.join(f'{stamp} {number + 1}\n' for number, stamp in enumerate(stamps)))
    assert [frame.stamp_ns for frame in open_recording(tmp_path).frames()] == [1000 * stamp for stamp in stamps]


@pytest.mark.parametrize('listing', ['rgb.txt', 'associations.txt'])
@pytest.mark.parametrize('line', ['{0}.5 rgb/{0}.png {0}.6 depth/{0}.png', '{0}.6 depth/{0}.png {0}.5 rgb/{0}.png',
                                  '{0}.5 depthcam/rgb/{0}.png {0}.6 depthcam/depth/{0}.png'])
def test_associations_have_images_and_depth_in_any_order(tmp_path: Path, listing: str, line: str) -> None:
    (tmp_path / listing).write_text(''.join(line.format(number) + '\n' for number in range(COUNT)))
    recording = TumFolder(tmp_path, 'images')
    assert recording.depth is not None
    for each, parent, tenths in ((recording, 'rgb', 5), (recording.depth, 'depth', 6)):
        assert [file.parent.name for file in each.files] == [parent] * COUNT
        assert each.stamps_ns == [number * 10**9 + tenths * 10**8 for number in range(COUNT)]


@pytest.mark.parametrize('form', [
    '{ns}', 'left_{ns}', '{ns}_left', '{s}', 'frame-{s}', '_Color_{ms}', '{us}', '{sec}_{nsec:09d}', 'cam0_{sec}-{nsec:09d}'])
def test_images_named_by_their_stamps_need_no_list(tmp_path: Path, form: str) -> None:
    stamps = [START_NS - START_NS % 1000 + 400_000_000 * number for number in range(COUNT)]
    names = [form.format(ns=ns, us=ns // 1000, s=f'{ns // 10**9}.{ns % 10**9 // 1000:06d}', sec=ns // 10**9, nsec=ns % 10**9,
                         ms=f'{ns // 10**6}.{ns % 10**6 // 1000:03d}') + '.png' for ns in stamps]
    write_images(tmp_path / 'own' / 'images', names)
    write_images(tmp_path / 'euroc' / 'mav0' / 'cam0' / 'data', names)
    write_images(tmp_path / 'euroc' / 'mav0' / 'cam1' / 'data', names)
    for recording in (open_recording(tmp_path / 'own'), open_recording(tmp_path / 'euroc')):
        assert [frame.stamp_ns for frame in recording.frames()] == stamps
        assert recording.notes == (f'the stamps of the images are the numbers in their names, as {names[0]}',)
    assert recording.right is not None
    assert [frame.stamp_ns for frame in recording.right.frames()] == stamps


def test_nanoseconds_before_2001_in_names_of_images_are_stamps(tmp_path: Path) -> None:
    stamps = [315975640448534784, 315975643412234000]  # of Argoverse, whose clock counts from another year
    write_images(tmp_path / 'images', [f'ring_front_center_{stamp}.png' for stamp in stamps])
    assert [frame.stamp_ns for frame in open_recording(tmp_path).frames()] == stamps


def test_seconds_since_a_start_in_names_of_images_are_stamps(tmp_path: Path) -> None:
    names = [f'41048190_{second}.png' for second in ('999.983', '1000.000', '1000.017')]  # of ARKitScenes
    write_images(tmp_path / 'images', names)
    assert [frame.stamp_ns for frame in open_recording(tmp_path).frames()] == [999983 * 10**6, 10**12, 1000017 * 10**6]
    write_images(tmp_path / 'exposures' / 'images', [f'{START_NS + number}_0.12{number}.png' for number in range(3)])
    recording = open_recording(tmp_path / 'exposures')
    assert [frame.stamp_ns for frame in recording.frames()] == [START_NS + number for number in range(3)]


@pytest.mark.parametrize('form', ['shot010.{:04d}', 'take_2.{:03d}'])
def test_numbers_of_frames_behind_a_point_are_no_seconds(tmp_path: Path, form: str) -> None:
    write_images(tmp_path / 'images', [f'{form.format(number)}.png' for number in range(3, 6)])
    with pytest.raises(BagError, match=r'timestamps\.txt'):
        open_recording(tmp_path)


@pytest.mark.parametrize('form', ['color_SN1_g{taken}_f{number}_s{received}_e50', '{start}_{taken}', '{taken}_{start}'])
def test_of_two_stamps_in_each_name_the_first_that_ascends_counts(tmp_path: Path, form: str) -> None:
    """As Orbbec's images, with the times of exposure and of reception; the begin of a recording does not ascend."""
    start, taken = 1739874543000, [1739874543227, 1739874543260, 1739874543294]
    names = [form.format(start=start, taken=time, number=number, received=time + 90 + 30 * (number % 2)) + '.jpg'
             for number, time in enumerate(taken)]
    write_images(tmp_path / 'images', names)
    assert [frame.stamp_ns for frame in open_recording(tmp_path).frames()] == [time * 10**6 for time in taken]


@pytest.mark.parametrize(('names', 'noted'), [
    (['left-000', 'left-001', 'right-000', 'right-001'], '2 kinds of names, 2 as left-#.png, 2 as right-#.png: leave those of one'),
    (['IMG_1', 'IMG_2', 'IMG_3 (copy)'], ''), (['a1f', 'b2c', 'c3d', 'd4e', 'e5a', 'f6b'], ''), (['frame9', 'frame10'], '')])
def test_names_of_two_cameras_in_one_folder_are_noted(tmp_path: Path, names: list[str], noted: str) -> None:
    write_images(tmp_path / 'images', [f'{name}.png' for name in names])
    (tmp_path / 'timestamps.txt').write_text(''.join(f'{number}\n' for number in range(len(names))))
    notes = open_recording(tmp_path).notes
    assert noted in notes[0] if noted else not notes


@pytest.mark.parametrize('names', [
    ['0000000001', '0000000002'], ['20230615143022', '20230615143023'], ['IMG_20230615_143022', 'IMG_20230615_143023'],
    ['1403636579', 'a'], ['gain_0.5', 'gain_1.0'], ['v1.000_2.125', 'v1.000_2.250'], ['a_1.250', 'b_1.125'],
    ['a_1403636579', 'b_1403636579'], ['9403636579', '9403636580'], ['1403636579', '1403636579763'],
    ['1234567890123', '1234617890123'],  # nanoseconds since the start of a camera, 0.05 s apart
    ['2024013100', '2024013101'], ['202401311010100000', '202401311010105000'], ['IMG_2024013110101000', 'IMG_2024013110101005']])
def test_other_numbers_in_names_of_images_are_no_stamps(tmp_path: Path, names: list[str]) -> None:
    write_images(tmp_path / 'images', [f'{name}.png' for name in names])
    with pytest.raises(BagError, match=r'timestamps\.txt does not exist: .* name each image by its stamp'):
        open_recording(tmp_path)


def test_image_folder_with_a_metadata_file_of_its_own_is_no_bag(tmp_path: Path) -> None:
    write_images(tmp_path / 'images', [f'{START_NS + number}.png' for number in range(3)])
    (tmp_path / 'metadata.yaml').write_text('name: garden\nlicense: CC BY 4.0\n')
    assert len(open_recording(tmp_path)) == 3


@pytest.mark.parametrize('name', [
    'stereo/centre/{us}.png', 'image/stereo_left/{ns}.png', 'samples/CAM_FRONT/n015+0800__CAM_FRONT__{us}.png'])
def test_folder_of_images_that_are_named_by_stamps_is_a_recording(tmp_path: Path, name: str) -> None:
    """Of Oxford RobotCar, KAIST Urban and nuScenes: poses and calibration are given as files."""
    stamps = [(START_NS + number * 10**8) // 1000 * 1000 for number in range(3)]
    images = [Path(name.format(ns=stamp, us=stamp // 1000)) for stamp in stamps]
    write_images(tmp_path / images[0].parent, [image.name for image in images])
    write_images(tmp_path / images[0].parent.parent / 'depth', [f'{stamp}.png' for stamp in stamps])
    folder = tmp_path / images[0].parent
    recording = open_recording(folder)
    assert [frame.stamp_ns for frame in recording.frames()] == stamps
    assert recording.notes == (f'the stamps of the images are the numbers in their names, as {images[0].name}',)
    (folder / 'calib.yaml').write_text('fx: 40\nfy: 40\ncx: 31.5\ncy: 23.5\nwidth: 64\nheight: 48\n')
    assert (camera := open_recording(folder).intrinsics) is not None
    assert camera.k[0, 0] == 40
    with pytest.raises(BagError, match=f'It has a recording in {images[0].parent}: name one, as {folder}$'):
        open_recording(tmp_path)


@pytest.mark.parametrize(('names', 'opened', 'advice'), [
    (['mav0/cam0/data.csv', *(f'mav0/cam0/data/{START_NS + number}.png' for number in range(2))], 'mav0/cam0/data',
     r'Name \S+/cam0$'),
    ([f'depth/{START_NS + number}.png' for number in range(2)], 'depth', 'Move the images into images/'),
    (['own/images/0.png', 'own/timestamps.txt'], 'own/images', r'Name \S+/own$'),
    (['mav0/cam0/data/1.png', 'mav0/cam0/data.csv'], 'mav0/cam0/data', r'Name \S+/cam0$'),
    (['flight/IMG_1.JPG'], 'flight', 'Move the images into images/, and write the stamp of each'),
    (['flight/left.MP4', 'flight/notes.txt'], 'flight', r'ffmpeg -r 30 -i \S+/flight/left.MP4 images/%06d.png.* > timestamps.txt'),
    (['flight.bag.active'], 'flight.bag.active', 'recorder of ROS 1 died: rosbag reindex it, and convert'),
    (['left.avi'], 'left.avi', r'no rosbag2 file .*ffmpeg -r 30 -i \S+/left.avi images/%06d.png'),
    (['image_02/data/1.png', 'image_03/data/1.png', 'oxts/data/1.txt'], '.', 'in image_02/data, image_03/data: copy one of these'),
    (['color/0.jpg', 'depth/0.png', 'pose/0.txt'], '.', r'color, depth, pose\. It has images in color, depth: .*timestamps\.txt'),
    ([f'desk/images/{START_NS}.png', 'docs/images/a.png'], '.', r'It has a recording in desk: name one, as \S+/desk$'),
    ([f'a/mav0/cam0/data/{START_NS}.png', 'a/mav0/imu0/data.csv'], '.', r'a recording in a: name one, as \S+/a$'),
    (['a/sensors/records/left/0.png'], 'a', r'It has images in sensors/records/left: copy one of these as images/'),
    (['flight/all.mp4', *(f'flight/frame_{number}.png' for number in range(20))], 'flight', 'Move the images into images/, and'),
    (['a/seq-01/frame-0.color.png', 'a/seq-01/frame-0.depth.png'], 'a',
     r'images in seq-01: copy one of these as images/ into a new folder, its images of depth as depth/, and write'),
    (['images/frame-0.color.png', 'images/frame-0.depth.png'], '.',
     r'images holds 2 images, 1 of them depth by their names, as frame-0.depth.png: move those into depth/ next to images/'),
    (['images/left/0.png', 'images/right/0.png'], 'images/left', 'Move the images into images/, and write'),
    (['flight/color_0.png', 'flight/depth_0.png'], 'flight', 'images into images/, those of depth into depth/, and write'),
    (['pose/0.txt'], '.', 'it holds pose$')])
def test_other_folders_are_refused_with_what_to_do(tmp_path: Path, names: list[str], opened: str, advice: str) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b'')
    with pytest.raises(BagError, match=advice):
        open_recording(tmp_path / opened)


@pytest.mark.parametrize('name', MAKERS)
def test_bag_from_a_layout(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = MAKERS[name](tmp_path / 'in')
    assert make_bag([str(folder), str(tmp_path / 'bag'), '--storage', 'mcap']) == 0
    assert f'{COUNT} frames over 0.5 s' in capsys.readouterr().out
    bag, source = open_recording(tmp_path / 'bag'), open_recording(folder)
    assert [frame.stamp_ns for frame in bag.frames()] == [frame.stamp_ns for frame in source.frames()]
    truth = load_ground_truth(bag)
    assert truth is not None
    assert np.abs(truth.poses - camera_poses()).max() < 1e-9  # of the camera, whatever the folder's truth is of
    assert (bag.intrinsics is None) == (source.intrinsics is None)
    if bag.intrinsics is not None and source.intrinsics is not None:
        assert np.array_equal(bag.intrinsics.k, source.intrinsics.k)
        assert np.array_equal(bag.intrinsics.d, source.intrinsics.d)


def test_where_euroc_may_be_opened(tmp_path: Path) -> None:
    path = make_euroc(tmp_path / 'MH_01')
    for place in (path, path / 'mav0', path / 'mav0' / 'cam0'):
        assert len(open_recording(place)) == COUNT
        assert load_ground_truth(open_recording(place)) is not None


def test_layouts_that_lack_something(tmp_path: Path) -> None:
    kitti = make_kitti(tmp_path / 'kitti', 0, 'poses/07.txt')
    poses = tmp_path / 'kitti' / 'poses' / '07.txt'
    poses.write_text(''.join(poses.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(BagError, match=r'07\.txt has 5 poses for 6 stamps'):
        load_ground_truth(open_recording(kitti))
    poses.unlink()
    assert load_ground_truth(open_recording(kitti)) is None
    (kitti / 'calib.txt').write_text('P1: 1 0 0 0 0 1 0 0 0 0 1 0\n')
    with pytest.raises(BagError, match=r'calib\.txt has no P0'):
        _ = open_recording(kitti).intrinsics
    (kitti / 'calib.txt').unlink()
    assert open_recording(kitti).intrinsics is None
    (kitti / 'times.txt').write_text('0\n1\n')
    with pytest.raises(BagError, match='has 2 stamps and 6 images'):
        open_recording(kitti)
    tum = make_tum(tmp_path / 'tum')
    (tum / 'rgb.txt').write_text('1.5 rgb/a.png\n1.6\n')
    with pytest.raises(BagError, match=r'rgb\.txt, line 2'):
        open_recording(tum)
    (tum / 'rgb.txt').write_text('1.5 rgb/a.png\n')
    with pytest.raises(BagError, match=r'cannot read .*a\.png'):
        next(open_recording(tum).frames()).load()
    (tum / 'rgb.txt').write_text('# nothing\n')
    with pytest.raises(BagError, match='lists no image'):
        open_recording(tum)
    euroc = make_euroc(tmp_path / 'euroc')
    listing = euroc / 'mav0' / 'cam0' / 'data.csv'
    listing.unlink()
    first = min(listing.with_name('data').iterdir())
    first.rename(first.with_name('first.png'))
    for place in (euroc, euroc / 'mav0', euroc / 'mav0' / 'cam0'):
        with pytest.raises(BagError, match=f'{listing} is missing'):
            open_recording(place)
    listing.write_text('soon,a.png\n')
    with pytest.raises(BagError, match=r'data\.csv, line 1: .*soon'):
        open_recording(euroc)


def test_shared_sequences_as_kitti(tmp_path: Path, shared_data: Path) -> None:
    """Real images and poses, laid out as KITTI does, give what the package's own layout gives."""
    own = open_recording(shared_data / 'kitti_short_1')
    truth = load_ground_truth(own)
    assert truth is not None
    (tmp_path / 'image_0').symlink_to((shared_data / 'kitti_short_1' / 'images').resolve())
    (tmp_path / 'times.txt').write_text(''.join(f'{stamp / 1e9:.6e}\n' for stamp in truth.stamps_ns))
    np.savetxt(tmp_path / 'poses.txt', truth.poses[:, :3].reshape(-1, 12), fmt='%.12e')
    (tmp_path / 'calib.txt').write_text('P0: 707.0912 0 601.8873 0 0 707.0912 183.1104 0 0 0 1 0\n')
    laid_out = open_recording(tmp_path)
    assert isinstance(laid_out, KittiFolder)
    again = load_ground_truth(laid_out)
    assert again is not None
    assert np.abs(again.poses - truth.poses).max() < 1e-9
    assert laid_out.intrinsics is not None
    assert own.intrinsics is not None
    assert np.array_equal(laid_out.intrinsics.k, own.intrinsics.k)
    assert laid_out.intrinsics.width == own.intrinsics.width


def test_folder_with_calibration_without_size_takes_that_of_images(tmp_path: Path) -> None:
    write_images(tmp_path / 'rgb', [f'{number}.png' for number in range(COUNT)])
    (tmp_path / 'rgb.txt').write_text(''.join(f'{1 + number / 10} rgb/{number}.png\n' for number in range(COUNT)))
    (tmp_path / 'calib.yaml').write_text('Camera.fx: 30.0\nCamera.fy: 31.0\nCamera.cx: 19.5\nCamera.cy: 14.5\n')
    camera = TumFolder(tmp_path, '/camera/image_raw').intrinsics
    assert camera is not None
    assert (camera.width, camera.height) == (40, 30)
