"""Ground truths with a mistake, against the rotations that the images show."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from support.evaluated_bags import CAMERA, HEIGHT, START, WIDTH
from support.networks import photo
from support.trajectories import disturbed, hand_held, pose

from lightglue_trt_eval.predict.scene import SECOND, Scene, Timeline
from lightglue_trt_eval.score.truth_check import TruthCheck
from lightglue_trt_ros.datasets.bag_writer import write_bag
from lightglue_trt_ros.datasets.poses import Trajectory, poses_from, quaternions_from_rotations
from lightglue_trt_ros.datasets.sequence import Frame

HZ, COUNT = 10, 120
BODY = pose([1.2, -1.2, 1.2], [0.1, 0, 0.3])  # camera from body
TILTED = BODY @ pose([0, 0.2, 0], [0, 0, 0])
AXES = r'x forward, y left, z up, as of a file with the line T_BS: \[0, 0, 1, 0, -1, 0, 0, 0, 0, -1, 0, 0, 0, 0, 0, 1\], where '


def path(late_s: float = 0.0, count: int = COUNT) -> np.ndarray:
    return hand_held(count, HZ, late_s)


def reordered(poses: np.ndarray, columns: list[int]) -> np.ndarray:
    """Poses of a file whose quaternions have another order than x, y, z, w."""
    return poses_from(poses[:, :3, 3], quaternions_from_rotations(poses[:, :3, :3])[:, columns])


def bag_of_a_wall(folder: Path, late_ns: int) -> Path:
    """A photograph seen by a camera that rotates, with a ground truth whose stamps are late."""
    wall, poses = photo('coffee', 3 * HEIGHT, 3 * WIDTH), np.stack([pose(0.4 * cv2.Rodrigues(each[:3, :3])[0].ravel(), [0, 0, 0])
                                                                    for each in path()[:40]])
    middle = np.array([[1.0, 0, WIDTH], [0, 1, HEIGHT], [0, 0, 1]])
    frames = [(START + k * SECOND // HZ, cv2.warpPerspective(wall, CAMERA.k @ each[:3, :3].T @ np.linalg.inv(middle @ CAMERA.k),
                                                             (WIDTH, HEIGHT))) for k, each in enumerate(poses)]
    write_bag(folder, frames, CAMERA, Trajectory(START + late_ns + np.arange(40) * SECOND // HZ, poses))
    return folder


def doubts(true: np.ndarray | None, seen: np.ndarray) -> list[str]:
    timeline = Timeline.of([Frame(k * SECOND // HZ, 0, lambda: None, number=k) for k in range(len(seen))], 1.0)
    check = TruthCheck(Scene(timeline, None, true))
    for k in range(len(seen) - 1):
        check.add((k, k + 1), seen[k + 1, :3, :3].T @ seen[k, :3, :3])
    return check.doubts


MIRROR = np.diag([1.0, -1, 1, 1])


def with_gap(poses: np.ndarray) -> np.ndarray:
    return np.where(np.isin(np.arange(len(poses)), range(40, 60))[:, None, None], np.nan, poses)


@pytest.mark.parametrize(('mistake', 'reason'), [
    (lambda poses: poses @ BODY, rf'axes than the camera: say where .*--camera-in-body., by its rotations {AXES}.*; mirror .*$'),
    (lambda poses: poses @ pose([0, 0, np.pi], [0, 0, 0]), '.*x left, y up, z forward, .*; or the images are rotated by 180 .*$'),
    (lambda poses: with_gap(poses @ TILTED), r'axes than the camera: say where .*--camera-in-body.; mirror axes .*left-handed.*$'),
    (lambda poses: MIRROR @ poses @ MIRROR, r'other axes .* mirror axes that are left-handed, as those of Unity and CARLA are$'),
    (lambda poses: np.linalg.inv(poses @ np.diag([1.0, -1, -1, 1])), 'camera from world: invert them, and then .* z backward.*'),
    (np.linalg.inv, 'only by 0.3[0-9] if its poses are camera from world: invert them$'),
    (lambda poses: reordered(poses, [3, 0, 1, 2]), 'if its quaternions are w, x, y, z: name its columns$'),
    (lambda poses: reordered(poses, [1, 2, 3, 0]), 'if its quaternions are x, y, z, w: name its columns$'),
    (lambda poses: path(0.3), 'if its stamps are about 0.(29|30|31) s too late: correct its clock$'),
    (lambda poses: with_gap(path(-1.2)), 'if its stamps are about 1.(19|20|21) s too early: correct its clock$')])
def test_usual_mistake_in_a_ground_truth_is_named(mistake: Callable[[np.ndarray], np.ndarray], reason: str) -> None:
    found, = doubts(mistake(path()), disturbed(path()))
    assert re.fullmatch(rf'the ground truth does not rotate as the images do.*{reason}', found), found


@pytest.mark.parametrize(('turn', 'columns', 'order'), [
    ([0, np.pi, 0], [3, 0, 1, 2], 'w, x, y, z'), ([0, 0, np.pi], [1, 2, 3, 0], 'x, y, z, w')])
def test_order_of_quaternions_is_named_where_it_changes_little(turn: list[float], columns: list[int], order: str) -> None:
    times = np.arange(COUNT) / HZ
    seen = np.stack([pose([0.02 * np.sin(2.3 * t), 0.6 * np.sin(1.1 * t), 0.03 * np.sin(1.7 * t)], [0, 0, t]) for t in times])
    true = pose(turn, [0, 0, 0]) @ seen
    assert not doubts(true, seen)
    found, = doubts(reordered(true, columns), seen)
    assert re.search(rf'rotate by 2.8. degrees a frame, it differs by 0.2., .* 0.00 if its quaternions are {order}:', found)


@pytest.mark.parametrize(('late_s', 'reason'), [
    (18.0, '18.00 s too late: correct its clock; GPS and TAI are 18 and 37 s ahead of UTC'), (-17.8, '17.80 s too early: '),
    (38.4, '38.40 s too late: '), (10.0, '')])
def test_clock_without_leap_seconds_is_named(late_s: float, reason: str) -> None:
    count = 900 if late_s > 20 else 500  # of which half overlap
    found = doubts(path(late_s, count), disturbed(path(count=count)))
    assert bool(found) == bool(reason)
    assert all(f'if its stamps are about {reason}' in line for line in found)


@pytest.mark.parametrize('seed', [3, 8])
def test_clock_is_found_to_two_hundredths_of_a_second_among_noise(seed: int) -> None:
    found, = doubts(path(0.4, 60), disturbed(path(count=60), turn=0.006, seed=seed))
    assert re.search(r'about 0.(38|39|40|41|42) s too late', found), found


def test_clock_that_is_little_off_is_named_where_it_explains_nearly_all() -> None:
    found, = doubts(path(0.01, 60), disturbed(path(count=60), turn=1e-4))
    assert re.search(r'differs by 0.0[3-9], and only by 0.0[01] if its stamps are about 0.01 s too late', found), found


@pytest.mark.parametrize('true', [path(), with_gap(path()), path(0.01), path()[::-1], np.full((COUNT, 4, 4), np.nan), None])
def test_right_or_unexplained_ground_truth_gets_no_reason(true: np.ndarray | None) -> None:
    assert not doubts(true, disturbed(path()))


def test_ground_truth_that_stands_while_images_rotate_is_named() -> None:
    true = path()
    true[50:60] = true[50]
    found, = doubts(true, disturbed(path()))
    assert found.startswith('the ground truth stands still in 9 of 119 pairs of frames that rotate: its tracker may repeat a pose')
    assert not doubts(np.tile(np.eye(4), (COUNT, 1, 1)), disturbed(path())), 'a camera that stands, by --degrade'
    held, = doubts(path()[np.arange(16) // 2 * 2], disturbed(path()[:16]))
    assert held.startswith('the ground truth stands still in 8 of 15 pairs of frames that rotate'), 'and its clock is right'


def test_ground_truth_without_rotations_is_named() -> None:
    true = np.tile(np.eye(4), (COUNT, 1, 1))
    true[:, :3, 3] = path()[:, :3, 3]
    found, = doubts(true, disturbed(path()))
    assert found.startswith('the ground truth never rotates, and the images do, by ')


def test_frames_out_of_order_are_no_clock() -> None:
    order = np.concatenate([[0, 1], np.arange(10, 20), [2], np.arange(20, 24), np.arange(3, 10)])
    assert not doubts(path()[:24], disturbed(path()[order], turn=1e-4))


def test_few_rotations_and_poor_matches_are_no_reason() -> None:
    assert not doubts(path()[:10] @ BODY, disturbed(path())[:10])
    still = np.tile(np.eye(4), (COUNT, 1, 1))
    assert not doubts(path() @ BODY, still)
    assert not doubts(path() @ BODY, disturbed(still, turn=0.1))


def test_axes_that_rotations_about_one_axis_do_not_show_are_not_named() -> None:
    yaw = np.stack([pose([0, 0.5 * np.sin(1.1 * k / HZ), 0], [0, 0, k / HZ]) for k in range(COUNT)])
    found, = doubts(yaw @ BODY, disturbed(yaw, turn=1e-4))
    assert '(--camera-in-body); mirror axes' in found


def test_other_axes_are_named_where_a_wide_rotation_contradicts_them() -> None:
    seen, true = (np.stack([pose([0.13 * k + wide * (k > 38), 0, 0], [0, 0, 0]) for k in range(46)]) for wide in (1.1, 1.0))
    true[:30] = true[:30] @ pose([0, 0, np.pi], [0, 0, 0])  # the pictures of this part were saved upside down
    found, = doubts(true, disturbed(seen))
    assert 'its poses are of a frame with other axes than the camera' in found


@pytest.mark.parametrize('late_s', [0.0, 0.4])
def test_report_has_a_note_where_the_clock_of_a_ground_truth_is_late(evaluated: Any, tmp_path: Path, late_s: float) -> None:
    bag = bag_of_a_wall(tmp_path / 'bag', round(late_s * SECOND))
    report = evaluated(bag, '--baselines', 'klt', '--strides', '1', '--estimator', 'ml').report
    notes = [note for note in report['notes'] if 'does not rotate as the images do' in note]
    assert [re.sub('0.(38|39|41|42) s', '0.40 s', re.sub(r'.*and only by [0-9.]+ ', '', note)) for note in notes] == (
        ['if its stamps are about 0.40 s too late: correct its clock'] if late_s else [])
