"""The two-view odometry on made-up motions, and on the true motions of real drives with half a pixel of noise."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from support.trajectories import pose, real_truth, walk

from lightglue_trt_eval.score.trajectory import TwoViewOdometry
from lightglue_trt_ros.odometry.two_view import ESTIMATORS, RelativePose, relative_pose


def two_view(first, second):
    rotation, translation = relative_pose(first, second)
    return RelativePose(rotation, translation / np.linalg.norm(translation), np.ones(8, bool))


def lengths(poses):
    return np.linalg.norm(np.diff(poses[:, :3, 3], axis=0), axis=1)


def chained(poses, scale='truth', lost=(), unknown=()):
    odometry = TwoViewOdometry(scale)
    for k, step in enumerate(lengths(poses)):
        estimate = None if k in lost else two_view(poses[k], poses[k + 1])
        odometry.add(estimate, None if k in unknown else step)
    return odometry


def result(odometry, truth=None):
    return odometry.result(range(len(odometry)), np.arange(len(odometry)) / 10, truth)


def test_true_motions_give_the_true_path():
    true = walk(40)
    found = result(chained(true), true)
    np.testing.assert_allclose(found.poses, true, atol=1e-9)
    assert set(found.figures) == {'ate_m', 'rpe_m', 'rpe_deg', 'drift_percent', 'drift_deg_per_m'}
    assert max(found.figures.values()) < 1e-6
    assert found.segments_m == (5, 10, 20)
    assert found.scale == 'truth'
    np.testing.assert_allclose(result(chained(true)).poses, np.linalg.inv(true[0]) @ true, atol=1e-9)


@pytest.mark.parametrize(('known', 'figures'), [
    (slice(0, 1), set()), (slice(0, 2), {'rpe_m', 'rpe_deg'}), (slice(0, 3), {'ate_m', 'rpe_m', 'rpe_deg'}),
    (slice(0, 40, 3), {'drift_deg_per_m'})])
def test_few_or_scattered_true_poses_give_no_error_in_metres(known, figures):
    true = walk(40)
    odometry = chained(true, unknown=range(39) if len(range(40)[known]) > 3 else ())
    partly = np.full_like(true, np.nan)
    partly[known] = true[known]
    found = result(odometry, partly)
    assert set(found.figures) == figures


def test_a_reversed_direction_is_seen():
    true = walk(40)
    odometry = TwoViewOdometry('truth')
    for k, step in enumerate(lengths(true)):
        right = two_view(true[k], true[k + 1])
        odometry.add(RelativePose(right.rotation, right.translation * (-1 if k == 20 else 1), right.inliers), step)
    figures = result(odometry, true).figures
    assert figures['rpe_m'] == pytest.approx(2 * lengths(true)[20] / np.sqrt(39))
    assert figures['ate_m'] > 0.1
    assert figures['rpe_deg'] < 1e-6


def test_unit_steps_have_no_metres_but_a_shape():
    straight = np.stack([pose([0, 0, 0], [0, 0, 2.5 * k]) for k in range(30)])
    odometry = chained(straight, 'unit')
    np.testing.assert_allclose(np.diff(result(odometry).poses[:, 2, 3]), 1)
    found = result(odometry, straight)
    assert set(found.figures) == {'ate_m', 'rpe_deg', 'drift_deg_per_m'}
    assert found.figures['ate_m'] < 1e-9
    assert found.scale == 'unit'
    without = result(odometry)
    assert (without.figures, without.true_poses, without.segments_m) == ({}, None, ())


def test_a_failed_pair_repeats_the_motion_before_it():
    step = pose([0, 0.1, 0], [0.1, 0, 1])
    true = [np.eye(4)]
    for _ in range(12):
        true.append(true[-1] @ step)
    true = np.stack(true)
    odometry = chained(true, lost=(5, 6))
    np.testing.assert_allclose(result(odometry, true).poses, true, atol=1e-9)
    assert len(odometry) == 13
    first = chained(true[:3], lost=(0,))  # nothing to repeat: it stays where it is
    np.testing.assert_array_equal(result(first).poses[1], np.eye(4))


def test_a_step_without_truth_is_as_long_as_the_one_before():
    true = walk(10, wobble=0)
    odometry = chained(true, unknown=(4, 5))
    odometry.add(two_view(true[0], true[1]), float('nan'))
    steps, known = lengths(result(odometry).poses), lengths(true)
    np.testing.assert_allclose(steps, [*known[:4], known[3], known[3], *known[6:], known[8]])
    holes = np.concatenate([true, true[:1]])
    holes[[5, 10]] = np.nan
    found = result(odometry, holes)
    assert np.isfinite(list(found.figures.values())).all()
    assert np.isnan(found.true_poses[5]).all()
    assert result(odometry, np.full_like(holes, np.nan)).true_poses is None


def noisy_correspondences(camera, size, poses, count=500, noise=0.5):
    """Points 5 to 80 m ahead, evenly spread in the logarithm, seen by each pair of cameras."""
    rng, (width, height) = np.random.default_rng(0), size
    for first, second in itertools.pairwise(poses):
        points0 = rng.uniform([0, 0], [width, height], (3 * count, 2))
        depths = np.exp(rng.uniform(np.log(5), np.log(80), (3 * count, 1)))
        rotation, translation = relative_pose(first, second)
        there = np.column_stack([points0, np.ones(3 * count)]) @ np.linalg.inv(camera).T * depths @ rotation.T + translation
        projected = there @ camera.T
        points1 = projected[:, :2] / projected[:, 2:]
        seen = np.flatnonzero((there[:, 2] > 1) & ((points1 >= 0) & (points1 < [width, height])).all(axis=1))[:count]
        yield tuple(points[seen] + rng.normal(0, noise, (len(seen), 2)) for points in (points0, points1))


@pytest.mark.parametrize(('name', 'estimator'), zip(['kitti_short_1', 'kitti_short_2', 'kitti_short_1'], ESTIMATORS, strict=True))
def test_the_estimator_is_no_bottleneck(shared_data, name, estimator):
    camera, size, true = real_truth(shared_data / name)
    odometry = TwoViewOdometry('truth')
    for points, step in zip(noisy_correspondences(camera, size, true), lengths(true), strict=True):
        estimate = ESTIMATORS[estimator](*points, camera, camera)
        assert estimate is not None
        odometry.add(estimate, step)
    found = result(odometry, true)
    assert 0.001 < found.figures['drift_percent'] < 0.5
    assert found.figures['ate_m'] < 0.25
    assert found.segments_m == (5, 10, 20, 50)
