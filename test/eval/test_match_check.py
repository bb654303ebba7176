"""Calibrations and ground truths with one mistake, against matches that are right."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import numpy as np
import pytest
from support.trajectories import hand_held, pose

from lightglue_trt_eval.baselines import MatchedPoints
from lightglue_trt_eval.predict.scene import SECOND, Scene, Timeline
from lightglue_trt_eval.score.match_check import MatchCheck
from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.datasets.poses import poses_from, quaternions_from_rotations
from lightglue_trt_ros.datasets.sequence import Frame

COUNT, HZ, NOISE_PX = 30, 10, 0.15
CAMERA = Intrinsics(640, 480, np.array([[400.0, 0, 320], [0, 400, 240], [0, 0, 1]]), 'plumb_bob', np.zeros(5))
BENT = dataclasses.replace(CAMERA, d=np.array([-0.28, 0.07, 0, 0, 0]))
PATH = hand_held(COUNT)
MIRROR = np.diag([-1.0, 1, 1, 1])
SWAPPED = np.array([[0.0, 1, 0, 0], [1, 0, 0, 0], [0, 0, -1, 0], [0, 0, 0, 1]])


def pixels_of(camera: Intrinsics, places: np.ndarray) -> np.ndarray:
    return np.asarray(camera.lens.distorted((places[:, :2] / places[:, 2:]).T)[0].T * camera.k[0, 0] + camera.k[:2, 2])


def doubts(true: np.ndarray, given: Intrinsics = CAMERA, real: Intrinsics = CAMERA, seen: np.ndarray | None = None,
           noise_px: float = NOISE_PX, other_view: Intrinsics | None = None) -> tuple[list[str], bool]:
    """Those about points that the `real` camera sees from the poses `seen`, with the calibration and the truth that are given."""
    seen, rng = hand_held(len(true)) if seen is None else seen, np.random.default_rng(0)
    scene = Scene(Timeline.of([Frame(k * SECOND // HZ, 0, lambda: None, number=k) for k in range(len(true))], 1.0), given, true)
    scene.other_view = other_view
    check = MatchCheck(scene)
    for k in range(len(true) - 1):
        rays = np.column_stack([rng.uniform(-0.7, 0.7, 120), rng.uniform(-0.5, 0.5, 120), np.ones(120)])
        second = np.linalg.inv(seen[k + 1]) @ seen[k]
        moved = (rays * rng.uniform(1.5, 8, (120, 1))) @ second[:3, :3].T + second[:3, 3]
        pixels = [pixels_of(real, each) + noise_px * rng.normal(size=(120, 2)) for each in (rays, moved)]
        points = MatchedPoints(*(each.astype(np.float32) for each in pixels))
        check.add((k, k + 1), points, scene.straight((k, k + 1), points))
    return check.doubts


def zoomed(scale: float, all_of_k: bool = False) -> Intrinsics:
    k = np.diag([scale, scale, 1]) @ CAMERA.k
    k[:2, 2] = k[:2, 2] if all_of_k else CAMERA.k[:2, 2]
    return dataclasses.replace(CAMERA, k=k)


def stretched(across: float) -> Intrinsics:
    return dataclasses.replace(CAMERA, k=np.diag([across, 1, 1]) @ CAMERA.k)


def off_middle(times: int = 1) -> Intrinsics:
    return dataclasses.replace(CAMERA, k=CAMERA.k + times * np.array([[0, 0, 32], [0, 0, 24], [0, 0, 0]]))


@pytest.mark.parametrize(('given', 'real', 'reason'), [
    (zoomed(1.1), CAMERA, r'the focal length is (399|400|401) px instead of 440, as of images that were cropped'),
    (zoomed(0.7), CAMERA, r'the focal length is (399|400|401) px instead of 280, as'),
    (zoomed(2.0, True), CAMERA, r'K is that of images (1.99|2.00|2.01) times as large'),
    (stretched(4 / 3), CAMERA, 'K is that of images 1.3[234] times as wide and (0.99|1.00|1.01) times as high: give'),
    (off_middle(), CAMERA, r'the principal point is (319|320|321), (239|240|241) instead of 352, 264'),
    (off_middle(6), CAMERA, r'the principal point is (319|320|321), (239|240|241) instead of 512, 384, as of images whose edges'),
    (CAMERA, BENT, 'the images are distorted, and the calibration has no coefficients: calibrate anew'),
    (BENT, CAMERA, 'the images have no distortion, as rectified ones: give a calibration without coefficients'),
    (BENT, zoomed(0.8), 'the images have no distortion, and a focal length of (319|320|321) px instead of 400, as rectified ones'),
    (dataclasses.replace(zoomed(1.1), d=BENT.d), BENT, 'the focal length is 39[0-9] px instead of 440, as'),
    (dataclasses.replace(CAMERA, d=-BENT.d), BENT, 'the distortion is another one than that of the calibration')])
def test_mistake_of_a_calibration_is_named(given: Intrinsics, real: Intrinsics, reason: str) -> None:
    (line,), _ = doubts(PATH, given, real)
    assert pytest.approx(0.15, abs=0.1) == float(line.partition('and only ')[2].split()[0])
    assert line.count(' if ') == 1
    assert re.search(f' if {reason}', line), line


@pytest.mark.parametrize(('given', 'real', 'reason'), [
    (zoomed(0.85), CAMERA, ' 0.[0-9]+ if the focal length is (399|400|401) px instead of 340, as of images that were cropped'),
    (off_middle(), CAMERA, r' 0.[0-9]+ if the principal point is (319|320|321), (239|240|241) instead of 352, 264'),
    (CAMERA, BENT, 'the images are distorted, and the calibration has no coefficients'), (BENT, CAMERA, 'no distortion'),
    (CAMERA, CAMERA, '')])
def test_calibration_of_a_camera_that_only_rotates_is_judged(given: Intrinsics, real: Intrinsics, reason: str) -> None:
    poses = PATH * np.array([[1, 1, 1, 0]] * 3 + [[1] * 4])
    found, _ = doubts(poses, given, real, seen=poses)
    assert [bool(re.search(f'^matches without a step are not where .*{reason}', line)) for line in found] == [True] * bool(reason)
    assert doubts(np.tile(PATH[0], (COUNT, 1, 1)), given, real, seen=poses) == ([], False), 'a truth that stands tells nothing'


@pytest.mark.parametrize(('given', 'real', 'reason'), [
    (dataclasses.replace(zoomed(1.2), d=BENT.d), CAMERA, 'the images are rectified, and P of .*: give it .*, no distortion, fx 40'),
    (zoomed(0.8), BENT, r'the images are not rectified, and K and D .*: give them .*, plumb_bob, fx 400.0, .* D \[-0.28, 0.07')])
def test_view_of_the_calibration_that_fits_is_named(given: Intrinsics, real: Intrinsics, reason: str) -> None:
    (line,), is_surer = doubts(PATH, given, real, other_view=real)
    assert re.search(f' if {reason}', line), line
    assert line.count(' if ') == 1
    assert is_surer


def test_small_mistake_is_named_where_it_explains_most_of_the_distance() -> None:
    (line,), _ = doubts(PATH, zoomed(0.97), noise_px=0.03)
    assert 'only 0.02 if the focal length is 400 px instead of 388' in line
    assert doubts(PATH, zoomed(0.97)) == ([], False), 'it explains half of it: true motions of real recordings have such noise'


def test_nothing_is_named_where_what_no_camera_has_explains_more() -> None:
    assert doubts(PATH, CAMERA, off_middle(11)) == ([], False), 'a camera that is rotated would explain half of it'


def reordered(poses: np.ndarray) -> np.ndarray:
    return poses_from(poses[:, :3, 3], quaternions_from_rotations(poses[:, :3, :3])[:, [3, 0, 1, 2]])


def with_rotations(poses: np.ndarray, rotations: np.ndarray) -> np.ndarray:
    changed = poses.copy()
    changed[:, :3, :3] = rotations
    return changed


@pytest.mark.parametrize(('mistake', 'reason', 'surer'), [
    (lambda poses: poses @ pose([0, 0, 0], [0.2, -0.2, 0.1]), 'the camera is 0.30 m away .* at -0.20, 0.20, -0.10: give', False),
    (lambda poses: poses @ pose([0.2, 0.1, 0], [0, 0, 0]), r'the camera is rotated by 13 degrees against the frame', False),
    (lambda poses: poses @ pose([0.05, 0.05, 0], [0, 0, 0]), r'the camera is rotated by 4 degrees against the frame', False),
    (lambda poses: poses @ SWAPPED, r'other axes than the camera: .* x down, y right, z backward|by its rotations x down', False),
    (lambda poses: with_rotations(SWAPPED @ poses, poses[:, :3, :3]), 'its positions have other axes than its rotations', False),
    (lambda poses: with_rotations(MIRROR @ poses, poses[:, :3, :3]), 'its positions are mirrored or have other axes', False),
    (lambda poses: MIRROR @ poses @ MIRROR, 'mirrored along the x axis of the camera, .* or the images are mirrored left to', True),
    (np.linalg.inv, 'its poses are camera from world: invert them', True),
    (lambda poses: with_rotations(poses, poses[:, :3, :3].transpose(0, 2, 1)), 'its rotations are camera from world', True),
    (reordered, 'its quaternions are w, x, y, z: name its columns', True)])
def test_mistake_of_a_ground_truth_is_named(mistake: Callable[[np.ndarray], np.ndarray], reason: str, surer: bool) -> None:
    (line,), found = doubts(mistake(PATH))
    assert re.search(f' if .*{reason}', line), line
    assert line.count(' if ') == 1
    assert found is surer


def test_axes_of_a_robot_that_goes_straight_are_named() -> None:
    rotations = [np.array([0, 0.0012 * np.sin(k), 0]) for k in range(20)]
    straight = np.stack([pose(each, [0, 0, 0.3 * k]) for k, each in enumerate(rotations)])
    seen = np.stack([pose(each + each[[1, 0, 2]] / 3, [0, 0, 0.3 * k]) for k, each in enumerate(rotations)])  # the truth is rough
    in_body = np.eye(4)
    in_body[:3, :3] = [[0, 0, 1], [-1, 0, 0], [0, -1, 0]]
    (line,), _ = doubts(straight @ np.linalg.inv(in_body), seen=seen)
    assert 'by its rotations x forward, y left, z up, as of a file' in line
    assert line.count(' if ') == 1


def test_mirrored_ground_truth_is_named_from_seven_pairs() -> None:
    (line,), _ = doubts(MIRROR @ hand_held(8) @ MIRROR)
    assert 'mirrored along the x axis' in line


@pytest.mark.parametrize('true', [PATH, PATH * np.array([[1, 1, 1, 30]] * 3 + [[1] * 4]), PATH[::-1],
                                  np.tile(np.eye(4), (COUNT, 1, 1)), PATH[np.random.default_rng(0).permutation(COUNT)]])
def test_right_or_unexplained_motion_gets_no_reason(true: np.ndarray) -> None:
    assert doubts(true, other_view=BENT) == ([], False)


def test_wrong_matches_are_no_mistake() -> None:
    assert doubts(PATH, noise_px=3.0) == ([], False)
