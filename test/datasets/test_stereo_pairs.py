"""Stereo recordings: right images and rigs of every layout, and frames in pairs."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from support.image_recordings import image_folder, pinhole

from lightglue_trt_eval.cli.make_bag import main as make_bag
from lightglue_trt_ros.datasets.calibration_files import load_camera_in_body
from lightglue_trt_ros.datasets.recordings import open_recording
from lightglue_trt_ros.datasets.stereo_and_depth import paired, right_of, stereo_recording
from lightglue_trt_ros.utils.errors import BagError

LEFT_IN_BODY = np.array([[0.0, -1, 0, 0.5], [1, 0, 0, 0.25], [0, 0, 1, -0.125], [0, 0, 0, 1]])
CALIB = pinhole(40, 30, 50)


def image(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (30, 40), np.uint8)


def write(folder: Path, first: int, count: int = 3, names: list[str] | None = None) -> None:
    folder.mkdir(parents=True)
    for number in range(count):
        assert cv2.imwrite(str(folder / (f'{number:06d}.png' if names is None else names[number])), image(first + number))


def images_folder(path: Path) -> Path:
    return image_folder(path, map(image, range(3)), calibration=CALIB, baseline_m=0.25, images_right=map(image, range(100, 103)))


def kitti(path: Path, camera: int) -> Path:
    write(path / f'image_{camera}', 0)
    write(path / f'image_{camera + 1}', 100)
    (path / 'times.txt').write_text('1.0\n1.1\n1.2\n')
    places = {0: 0.0, 1: -12.5, 2: 2.0, 3: -10.5 + 20 * 0.02}  # the last one also stands 0.02 m further back
    (path / 'calib.txt').write_text(''.join(f'P{number}: 50 0 20 {place} 0 50 15 0 0 0 1 {0.02 * (number == 3)}\n'
                                            for number, place in places.items()))
    return path


def euroc(path: Path) -> Path:
    """The right camera 0.25 m along the left one's x axis, but for a turn, and stamps of its own."""
    turn = cv2.Rodrigues(np.radians([1.0, -2.0, 0.5]))[0]
    right = LEFT_IN_BODY @ np.block([[turn, np.array([[0.25], [0], [0]])], [np.zeros((1, 3)), np.ones((1, 1))]])
    for name, first, late, mounting in (('cam0', 0, 0, LEFT_IN_BODY), ('cam1', 100, 7, right)):
        stamps = [str(10**9 + number * 10**8 + late) for number in range(3)]
        write(path / 'mav0' / name / 'data', first, names=[f'{stamp}.png' for stamp in stamps])
        (path / 'mav0' / name / 'data.csv').write_text('#t,f\n' + ''.join(f'{stamp},{stamp}.png\n' for stamp in stamps))
        (path / 'mav0' / name / 'sensor.yaml').write_text(
            f'T_BS:\n  rows: 4\n  cols: 4\n  data: {mounting.ravel().tolist()}\nresolution: [40, 30]\ncamera_model: pinhole\n'
            'intrinsics: [50, 50, 20, 15]\ndistortion_model: radial-tangential\ndistortion_coefficients: [0, 0, 0, 0]\n')
    return path


@pytest.mark.parametrize('make', [images_folder, lambda path: kitti(path, 0), lambda path: kitti(path, 2), euroc],
                         ids=['images', 'kitti', 'kitti colour', 'euroc'])
def test_right_images_and_the_rig_of_a_layout(tmp_path, make):
    left, right, rig = stereo_recording(open_recording(make(tmp_path / 'one')))
    assert right.image_topic != left.image_topic
    assert rig.baseline_m == pytest.approx(0.25)
    pairs = list(paired(left.frames(), right.frames()))
    assert [(frame.load().data.tobytes(), other.load().data.tobytes()) for frame, other in pairs] == [
        (image(number).tobytes(), image(100 + number).tobytes()) for number in range(3)]
    seen = rig.left_points([[20, 15], [30, 25]])  # of a point straight ahead, and of one beside it
    if make is euroc:
        # x of the shared plane goes along the baseline, which is the left camera's x here; its z is between both
        np.testing.assert_allclose(rig.left.rectification[0], [1, 0, 0], atol=1e-9)
        ahead = LEFT_IN_BODY @ np.array([0.1, 0.05, 2, 1])
        there = np.linalg.solve(load_camera_in_body(left.path.with_name('cam1') / 'sensor.yaml'), ahead)
        pixel = np.array([[50 * there[0] / there[2] + 20, 50 * there[1] / there[2] + 15]])
        mine = rig.left_points([[50 * 0.05 + 20, 50 * 0.025 + 15]])
        depth = (rig.left.rectification @ [0.1, 0.05, 2])[2]
        np.testing.assert_allclose(mine - rig.right_points(pixel), [[0.25 / depth, 0]], atol=1e-9)
    else:
        np.testing.assert_allclose(seen, [[0, 0], [0.2, 0.2]])


def test_what_is_no_stereo_recording_says_so(tmp_path):
    path = images_folder(tmp_path / 'one')
    left = open_recording(path)
    with pytest.raises(BagError, match='without a topic /right'):
        right_of(left, '/right')
    (path / 'calib_right.yaml').write_text(CALIB)
    with pytest.raises(BagError, match='no baseline_m'):
        right_of(open_recording(path))
    (path / 'calib_right.yaml').write_text(CALIB + 'baseline_m: -0.25\n')
    with pytest.raises(BagError, match='one: left and right are swapped'):
        stereo_recording(open_recording(path))
    (path / 'calib_right.yaml').unlink()
    with pytest.raises(BagError, match='no calibration for /camera_right/image_raw'):
        stereo_recording(open_recording(path))
    (path / 'images_right' / '2.png').unlink()
    with pytest.raises(BagError, match='3 images and 2 right ones'):
        right_of(open_recording(path))
    alone = image_folder(tmp_path / 'two', map(image, range(3)))
    assert right_of(open_recording(alone)) is None
    with pytest.raises(BagError, match='does not say which images are the right ones'):
        stereo_recording(open_recording(alone))


def test_a_bag_has_the_right_images_on_a_topic(tmp_path, capsys):
    folder = images_folder(tmp_path / 'one')
    assert make_bag([str(folder), str(tmp_path / 'bag'), '--stereo']) == 0
    for program, line in zip(('play_bag', 'evaluate_bag'), capsys.readouterr().out.splitlines()[1:], strict=True):
        assert line == (f'ros2 run lightglue_trt_ros {program} {tmp_path / "bag"} --image-topic /camera/image_raw '
                        '--right-topic /camera_right/image_raw')
    with pytest.raises(BagError, match=r'choose one \(--image-topic\); evaluate_bag and play_bag take the right one as --r'):
        open_recording(tmp_path / 'bag')
    left = open_recording(tmp_path / 'bag', '/camera/image_raw')
    assert right_of(left) is None
    _, right, rig = stereo_recording(left, '/camera_right/image_raw')
    assert rig.baseline_m == pytest.approx(0.25)
    pairs = list(paired(left.frames(), right.frames()))
    assert [(bytes(frame.load().data), bytes(other.load().data)) for frame, other in pairs] == [
        (image(number).tobytes(), image(100 + number).tobytes()) for number in range(3)]
    with pytest.raises(BagError, match='no images on /right'):
        right_of(left, '/right')
    shutil.rmtree(folder / 'images_right')
    assert make_bag([str(folder), str(tmp_path / 'other'), '--stereo']) == 1


def test_a_bag_of_unrectified_cameras_keeps_how_they_stand(tmp_path):
    folder = open_recording(euroc(tmp_path / 'one'))
    assert make_bag([str(folder.path), str(tmp_path / 'bag'), '--stereo', '--compressed', 'png']) == 0
    left = open_recording(tmp_path / 'bag', '/camera/image_raw/compressed')
    rigs = [stereo_recording(folder).rig, stereo_recording(left, '/camera_right/image_raw/compressed').rig]
    points = [[3, 4], [30, 20]]
    np.testing.assert_allclose(rigs[1].left_points(points), rigs[0].left_points(points), atol=1e-12)
    np.testing.assert_allclose(rigs[1].right_points(points), rigs[0].right_points(points), atol=1e-12)


def test_frames_are_paired_by_stamp():
    def frames(*stamps_ms):
        return iter([SimpleNamespace(stamp_ns=stamp * 10**6) for stamp in stamps_ms])
    found = paired(frames(0, 100, 200, 300, 400), frames(50, 98, 150, 203, 310, 404))
    assert [None if other is None else other.stamp_ns // 10**6 for _, other in found] == [None, 98, 203, None, 404]
    twice = list(paired(frames(100, 103), frames(101)))
    assert twice[1][1] is None, 'no image is in two pairs'
