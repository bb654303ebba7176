"""Quaternions there and back, and the TUM format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightglue_trt_ros.datasets.pose_files import read_quaternions
from lightglue_trt_ros.datasets.poses import Trajectory, angles_deg, interpolated, poses_from, quaternions_from_rotations
from lightglue_trt_ros.datasets.stamps import parse_stamp, read_stamps
from lightglue_trt_ros.utils.errors import BagError


def test_ground_truth_file(tmp_path: Path) -> None:
    path = tmp_path / 'groundtruth.txt'
    path.write_text('# t tx ty tz qx qy qz qw\n1700000000.123456789 1 2 3 0 0 0.5 0.5\n')
    truth = read_quaternions(path, 'tum')
    assert truth.stamps_ns.tolist() == [1_700_000_000_123_456_789]
    assert np.allclose(truth.poses[0], [[0, -1, 0, 1], [1, 0, 0, 2], [0, 0, 1, 3], [0, 0, 0, 1]], atol=1e-12)
    for text, message in (('0 1 2 3\n', 'line 1: 4 values where 8'), ('\n0 1 2 3 0 0 0 one\n', 'line 2'), ('', 'no pose'),
                          ('0 1 2 3 0 0 0 0\n', 'no direction'), ('0 nan 2 3 0 0 0 1\n', 'pose 0 is not finite')):
        path.write_text(text)
        with pytest.raises(BagError, match=message):
            read_quaternions(path, 'tum')


@settings(max_examples=200, deadline=None)
@given(st.tuples(*[st.floats(-1, 1)] * 4).filter(lambda q: np.linalg.norm(q) > 1e-3))
def test_quaternions_round_trip(q: tuple[float, ...]) -> None:
    rotation = poses_from(np.zeros((1, 3)), [q])[:, :3, :3]
    assert np.abs(rotation[0] @ rotation[0].T - np.eye(3)).max() < 1e-9
    back = quaternions_from_rotations(rotation)
    assert back[0, 3] >= 0
    assert abs(np.linalg.norm(back) - 1) < 1e-12
    assert np.abs(poses_from(np.zeros((1, 3)), back)[:, :3, :3] - rotation).max() < 1e-9


def test_half_turns() -> None:
    """Where w = 0 the trace tells nothing."""
    for axis in np.eye(3):
        rotation = 2 * np.outer(axis, axis) - np.eye(3)
        assert np.abs(np.abs(quaternions_from_rotations([rotation])[0]) - [*axis, 0]).max() < 1e-12


def test_poses_between_two_lie_on_the_shortest_arc() -> None:
    first, second = (poses_from([[metres, 0, 0]], [[0, 0, np.sin(half), np.cos(half)]]) for metres, half in ((0, 0.1), (2, -1.4)))
    between = interpolated(first, second, np.array([0.25]))
    assert between[0, :3, 3].tolist() == [0.5, 0, 0]
    assert np.abs(between - poses_from([[0.5, 0, 0]], [[0, 0, np.sin(-0.275), np.cos(-0.275)]])).max() < 1e-15
    assert np.abs(interpolated(first, first, np.array([0.7])) - first).max() < 1e-15
    assert angles_deg(second[:, :3, :3])[0] == pytest.approx(np.degrees(2.8), abs=1e-12)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**31 - 2), st.integers(0, 10**9 - 1))
def test_stamps_are_exact(seconds: int, nanoseconds: int) -> None:
    assert parse_stamp(f'{seconds}.{nanoseconds:09d}') == seconds * 10**9 + nanoseconds


@pytest.mark.parametrize(('text', 'nanoseconds'), [
    ('2011-09-26 13:02:25.964389445', 964389445), ('2011-09-26T13:02:25', 0), ('2011-09-26T15:02:25.5+02:00', 500_000_000),
    ('2011-09-26 13:02:25.964389Z', 964389000), ('2011-09-26 09:32:25.25 -0330', 250_000_000)])
def test_times_by_the_calendar_are_stamps(tmp_path: Path, text: str, nanoseconds: int) -> None:
    assert parse_stamp(text) == 1317042145 * 10**9 + nanoseconds
    (tmp_path / 'timestamps.txt').write_text(f'{text}\n{text}\n')
    assert read_stamps(tmp_path / 'timestamps.txt') == [parse_stamp(text)] * 2
    (tmp_path / 'poses.csv').write_text(f'timestamp,x,y,z,qx,qy,qz,qw\n{text},1,2,3,0,0,0,1\n')
    assert read_quaternions(tmp_path / 'poses.csv', 'euroc').stamps_ns.tolist() == [parse_stamp(text)]


@pytest.mark.parametrize('text', ['2011-13-26 13:02:25', '2011-09-26', '1969-12-31 23:59:59'])
def test_other_times_by_the_calendar_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r'is not a (number of|time in) seconds'):
        parse_stamp(text)


@pytest.mark.parametrize(('metres', 'is_told'), [(0.069, False), (9.0, False), (69.0, True)])
def test_distance_of_a_camera_that_may_be_of_millimetres_is_told(metres: float, is_told: bool) -> None:
    body = np.eye(4)
    body[1, 3] = metres
    moved = Trajectory(np.array([1]), np.eye(4)[None], 'poses.txt').of_camera(body, 'moved')
    assert moved.poses[0, 1, 3] == metres
    assert ('69 m away: positions in the body are in metres' in moved.source) == is_told
