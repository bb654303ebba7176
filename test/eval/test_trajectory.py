"""Errors of trajectories against definitions recomputed another way, values by hand, and the evo program."""

from __future__ import annotations

import itertools
import json
import math
import shutil
import subprocess
import zipfile

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.trajectories import disturbed, pose, real_truth, walk

from lightglue_trt_eval.score.trajectory import (
    KITTI_SEGMENTS_M,
    SHORT_SEGMENTS_M,
    Similarity,
    align_sim3,
    ate,
    kitti_drift,
    odometry_intervals,
    rpe,
)
from lightglue_trt_ros.datasets.poses import quaternions_from_rotations


def horn(moving, fixed):
    """Scale, rotation, translation by Horn's quaternions (JOSA A 1987), scale of least squares: no singular values here."""
    a, b = moving - moving.mean(0), fixed - fixed.mean(0)
    s = a.T @ b
    delta = np.array([s[1, 2] - s[2, 1], s[2, 0] - s[0, 2], s[0, 1] - s[1, 0]])
    table = np.zeros((4, 4))
    table[0, 0], table[0, 1:], table[1:, 0] = np.trace(s), delta, delta
    table[1:, 1:] = s + s.T - np.trace(s) * np.eye(3)
    w, x, y, z = np.linalg.eigh(table)[1][:, -1]
    rotation = np.array([[1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
                         [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
                         [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]])
    scale = sum(q @ rotation @ p for p, q in zip(a, b, strict=True)) / (a**2).sum()
    return scale, rotation, fixed.mean(0) - scale * rotation @ moving.mean(0)


def angle_deg(rotation):
    return math.degrees(np.linalg.norm(cv2.Rodrigues(rotation)[0]))


def rpe_by_the_book(estimated, true):
    errors = [np.linalg.inv(np.linalg.inv(q0) @ q1) @ (np.linalg.inv(p0) @ p1)
              for (p0, p1), (q0, q1) in zip(itertools.pairwise(estimated), itertools.pairwise(true), strict=True)]
    return (math.sqrt(sum(e[:3, 3] @ e[:3, 3] for e in errors) / len(errors)),
            math.sqrt(sum(angle_deg(e[:3, :3])**2 for e in errors) / len(errors)))


def drift_by_the_book(estimated, true, lengths):
    """Frame by frame, as the benchmark's text has it; another code path than ours on purpose."""
    travelled, total = [0.0], 0.0
    for a, b in itertools.pairwise(true):
        total += math.dist(a[:3, 3], b[:3, 3])
        travelled.append(total)
    shifts, turns = [], []
    for first in range(0, len(true), 10):
        for length in lengths:
            last = next((k for k in range(first, len(true)) if travelled[k] > travelled[first] + length), None)
            if last is None:
                continue
            wanted = np.linalg.inv(true[first]) @ true[last]
            left = np.linalg.inv(np.linalg.inv(estimated[first]) @ estimated[last]) @ wanted
            shifts.append(np.linalg.norm(left[:3, 3]) / length)
            turns.append(angle_deg(left[:3, :3]) / length)
    return 100 * np.mean(shifts), np.mean(turns), len(shifts)


CASES = {'winding': walk(60), 'long': walk(260, seed=3, step=(0, 0.1, 1.5), wobble=0.02), 'short': walk(12, seed=5)}


@pytest.mark.parametrize('name', CASES)
def test_ate_after_alignment_is_what_another_method_gives(name):
    true = CASES[name]
    estimated = disturbed(true)
    estimated[:, :3, 3] *= 0.37
    ours = align_sim3(estimated, true)
    scale, rotation, translation = horn(estimated[:, :3, 3], true[:, :3, 3])
    assert ours.scale == pytest.approx(scale, abs=1e-9)
    np.testing.assert_allclose(ours.rotation, rotation, atol=1e-9)
    moved = estimated[:, :3, 3] @ (scale * rotation).T + translation
    expected = math.sqrt(sum(math.dist(a, b)**2 for a, b in zip(moved, true[:, :3, 3], strict=True)) / len(true))
    assert expected > 1e-3
    assert ate(ours.apply(estimated), true) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize('name', CASES)
def test_relative_errors_and_drift_follow_their_definitions(name):
    true = CASES[name]
    estimated = disturbed(true)
    assert tuple(rpe(estimated, true)) == pytest.approx(rpe_by_the_book(estimated, true), abs=1e-9)
    drift = kitti_drift(estimated, true)
    lengths = KITTI_SEGMENTS_M if name == 'long' else SHORT_SEGMENTS_M
    shift, turn, count = drift_by_the_book(estimated, true, lengths)
    assert (drift.translation_percent, drift.rotation_deg_per_m) == pytest.approx((shift, turn), abs=1e-9)
    assert len(drift.starts) == count
    assert set(drift.segments_m) <= set(lengths)
    assert len(drift.segments_m) >= (3 if name == 'long' else 2)


def test_real_paths_give_their_own_definitions_too(shared_data):
    for name in ('kitti_short_1', 'kitti_short_2'):
        _, _, true = real_truth(shared_data / name)
        estimated = disturbed(true)
        drift = kitti_drift(estimated, true)
        assert drift.segments_m == SHORT_SEGMENTS_M
        expected = drift_by_the_book(estimated, true, SHORT_SEGMENTS_M)
        assert (drift.translation_percent, drift.rotation_deg_per_m, len(drift.starts)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize('program', ['evo_ape', 'evo_rpe'])
def test_the_evo_program_agrees(program, tmp_path):
    """evo is GPL: it is run, never imported."""
    if shutil.which(program) is None:
        pytest.skip(f'{program} is not installed (pip install evo): an independent implementation is not at hand')
    true = CASES['winding']
    estimated = disturbed(true)
    for name, poses in (('true', true), ('estimated', estimated)):
        quaternions = quaternions_from_rotations(poses[:, :3, :3])
        np.savetxt(tmp_path / f'{name}.txt', np.column_stack([np.arange(len(poses)), poses[:, :3, 3], quaternions]), fmt='%.17g')

    def evo(*options):
        result = tmp_path / 'result.zip'
        result.unlink(missing_ok=True)
        subprocess.run([program, 'tum', str(tmp_path / 'true.txt'), str(tmp_path / 'estimated.txt'), *options, '--save_results',
                        str(result), '--no_warnings'], check=True, capture_output=True, timeout=60)
        with zipfile.ZipFile(result) as archive:
            return json.loads(archive.read('stats.json'))['rmse']

    if program == 'evo_ape':
        assert ate(align_sim3(estimated, true).apply(estimated), true) == pytest.approx(evo('-as'), abs=1e-6)
    else:
        steps = ('--delta', '1', '--delta_unit', 'f')
        expected = evo('-r', 'trans_part', *steps), evo('-r', 'angle_deg', *steps)
        assert tuple(rpe(estimated, true)) == pytest.approx(expected, abs=1e-6)


@given(st.tuples(*[st.floats(-3, 3)] * 3), st.tuples(*[st.floats(-50, 50)] * 3), st.floats(0.05, 20))
def test_a_similarity_is_undone(turn, shift, scale):
    true = CASES['short']
    moved = Similarity(scale, pose(turn, shift)[:3, :3], np.asarray(shift)).apply(true)
    back = align_sim3(moved, true)
    assert back.scale == pytest.approx(1 / scale)
    np.testing.assert_allclose(back.apply(moved), true, atol=1e-7)


def test_a_mirrored_path_is_not_mirrored_back():
    true = CASES['winding']
    mirrored = true.copy()
    mirrored[:, 0, 3] *= -1
    assert np.linalg.det(align_sim3(mirrored, true).rotation) == pytest.approx(1)
    assert ate(align_sim3(mirrored, true).apply(mirrored), true) > 0.1


def test_by_hand():
    true = np.tile(np.eye(4), (3, 1, 1))
    true[:, 2, 3] = [0, 1, 2]
    estimated = true.copy()
    estimated[1, 0, 3] = 3
    assert ate(estimated, true) == pytest.approx(math.sqrt(3))
    assert rpe(estimated, true)[0] == pytest.approx(3)
    turned = true @ pose([0, 0, 0], [0, 0, 0])
    turned[2] = turned[2] @ pose([0, math.radians(2), 0], [0, 0, 0])
    assert rpe(turned, true)[1] == pytest.approx(2 / math.sqrt(2))


def test_drift_by_hand():
    """A straight drive with steps of 1 m that are 1 % too long: from frames 0, 10 ... to the first frame beyond 5, 10 ... m."""
    true = np.tile(np.eye(4), (40, 1, 1))
    true[:, 2, 3] = np.arange(40)
    estimated = true.copy()
    estimated[:, 2, 3] *= 1.01
    drift = kitti_drift(estimated, true)
    assert drift.segments_m == (5, 10, 20)
    # 6 m, 11 m and 21 m over the segments' 5, 10 and 20 m; the frames 0, 10, 20, 30 start 4, 3 and 2 of them.
    assert len(drift.starts) == 9
    assert drift.translation_percent == pytest.approx((4 * 6 / 5 + 3 * 11 / 10 + 2 * 21 / 20) / 9)
    assert drift.rotation_deg_per_m == pytest.approx(0, abs=1e-9)


def test_poses_without_truth_are_left_out():
    true, estimated = CASES['winding'], disturbed(CASES['winding'])
    holes = true.copy()
    holes[[0, 7, 8, 30, 59]] = np.nan
    kept = np.isfinite(holes).all(axis=(1, 2))
    alignment, expected = align_sim3(estimated, holes), align_sim3(estimated[kept], true[kept])
    assert alignment.scale == pytest.approx(expected.scale)
    assert ate(alignment.apply(estimated), holes) == pytest.approx(ate(expected.apply(estimated[kept]), true[kept]))
    steps = [k for k in range(59) if kept[k] and kept[k + 1]]
    single = [rpe(estimated[k:k + 2], true[k:k + 2])[0] for k in steps]
    assert rpe(estimated, holes)[0] == pytest.approx(math.sqrt(np.mean(np.square(single))))
    assert kitti_drift(estimated, holes) == kitti_drift(estimated[kept], true[kept])


def test_nothing_known_is_none():
    unknown, estimated = np.full((5, 4, 4), np.nan), np.tile(np.eye(4), (5, 1, 1))
    assert [of(estimated, unknown) for of in (align_sim3, ate, rpe, kitti_drift)] == [None] * 4
    single = unknown.copy()
    single[2] = np.eye(4)
    assert ate(align_sim3(estimated, single).apply(estimated), single) == pytest.approx(0)
    assert rpe(estimated, single) is None
    assert kitti_drift(estimated, single) is None
    assert kitti_drift(CASES['short'][:4], CASES['short'][:4]) is None  # shorter than 5 m


@pytest.mark.parametrize('rows', [1, 2, 6])
def test_a_standing_or_straight_camera_is_aligned_with_its_orientation(rows):
    true = np.repeat(pose([0.4, 0.8, -0.3], [10, 20, 30])[None], rows, axis=0)
    for straight in (False, True):
        if straight:
            true = true.copy()
            true[:, :3, 3] += np.outer(np.arange(rows), true[0, :3, 2])
        estimated = np.linalg.inv(pose([0.1, 0.5, 1.0], [3, 2, 1])) @ true
        estimated[:, :3, 3] *= 2 if straight and rows > 1 else 1
        alignment = align_sim3(estimated, true)
        np.testing.assert_allclose(alignment.apply(estimated), true, atol=1e-6)
        assert alignment.scale == pytest.approx(0.5 if straight and rows > 1 else 1)


def test_one_that_stands_while_the_other_moves_keeps_its_scale():
    true = CASES['winding']
    standing = np.tile(pose([0, 0, 0], [1, 2, 3]), (len(true), 1, 1))
    for estimated, truth in ((standing, true), (true, standing)):
        alignment = align_sim3(estimated, truth)
        assert alignment.scale == 1
        spread = math.sqrt(np.mean(np.sum((true[:, :3, 3] - true[:, :3, 3].mean(0))**2, axis=1)))
        assert ate(alignment.apply(estimated), truth) == pytest.approx(spread)


def test_interval_of_an_ate_holds_the_ate_where_other_axes_cancel_in_it():
    truth = walk(40, wobble=0.3)
    axes = pose([0.4, -0.8, 0.3], [0.0, 0.0, 0.0])
    other_axes = np.linalg.inv(axes) @ truth @ axes
    own = ate(align_sim3(other_axes, truth).apply(other_axes), truth)
    assert own < 1e-6
    interval = odometry_intervals(other_axes, truth, None)['ate_m']
    assert interval.holds(own)
    assert interval.high > 0.01, 'at other places the same errors do not cancel'
