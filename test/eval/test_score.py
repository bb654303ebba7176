"""Scores of pairs whose truth is known, and agreement against a search over all pairs."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.trajectories import pose, real_truth

from lightglue_trt_eval.baselines import MatchedPoints, SiftMatcher
from lightglue_trt_eval.score import pair_score as score
from lightglue_trt_eval.score.pair_score import agreement, count_inliers, returning_share, score_pair
from lightglue_trt_ros.datasets.recordings import open_recording
from lightglue_trt_ros.odometry.two_view import ESTIMATORS, pose_error_deg, relative_pose

CAMERA = np.array([[500.0, 0, 320], [0, 500, 240], [0, 0, 1]])
POSE0 = pose([0.1, -0.2, 0.3], [1, 2, 3])
POSE1 = POSE0 @ pose([0.02, 0.08, -0.05], [0.4, -0.1, 0.2])
TURNED = POSE0 @ pose([0.02, 0.08, -0.05], [0, 0, 0])
FRAMES, STAMP = (6, 7), 0.7


def scene(second=POSE1, count=300, wrong=60, plane=False, noise=0.1, seed=0):
    """Points of both images; the first `wrong` ones go astray by 30 pixels or more."""
    rng = np.random.default_rng(seed)
    rays = np.column_stack([rng.uniform(-0.5, 0.5, count), rng.uniform(-0.4, 0.4, count), np.ones(count)])
    depths = (6 / (1 + 0.3 * rays[:, :1] + 0.1 * rays[:, 1:2])) if plane else rng.uniform(2, 12, (count, 1))
    rotation, translation = relative_pose(POSE0, second)
    there = rays * depths @ rotation.T + translation
    points0, points1 = ((p @ CAMERA.T)[:, :2] / p[:, 2:] for p in (rays, there))
    points1[:wrong] += rng.uniform(30, 60, (wrong, 2)) * rng.choice([-1, 1], (wrong, 2))
    return tuple((points + rng.normal(0, noise, points.shape)).astype(np.float32) for points in (points0, points1))


def test_a_pair_with_everything_known():
    pair, errors, estimate, _ = score_pair(FRAMES, STAMP, scene(), CAMERA, POSE0, POSE1)
    assert (pair.frames, pair.stamp, pair.matches, pair.model) == (FRAMES, STAMP, 300, 'essential')
    assert 238 <= pair.inliers <= 250
    assert errors.shape == (300,)
    assert pair.precision == tuple(np.mean(errors < limit) for limit in (1, 2, 3))
    assert 0.8 <= pair.precision[0] < 0.85
    assert pair.error_median_px == np.median(errors) < 0.2
    assert pair.pose_error_deg < 0.5
    assert (pair.rotation_deg, pair.translation_deg) == pose_error_deg(
        estimate.rotation, estimate.translation, *relative_pose(POSE0, POSE1))


@pytest.mark.slow
@pytest.mark.parametrize(('error_px', 'claimed_px', 'within'), [
    (0.5, 0.5, (68.3, 95.4)), (1.0, 1.0, (68.3, 95.4)), (1.5, 1.5, (68.3, 95.4)), (1.0, 0.5, (38.3, 68.3)),
    (3.0, 1.0, (31.9, 60.5)), (0.25, 0.5, (95.4, 100))])
def test_shares_within_deviations_are_those_of_all_right_matches(error_px, claimed_px, within):
    """While matches over 1 px were left out, errors of 3 px under covariances of 1 px gave 100 and 100."""
    found = []
    for seed in range(4):
        points0, points1 = scene(count=500, wrong=100, noise=0, seed=seed)
        points1 = points1 + np.random.default_rng(seed).normal(0, error_px, points1.shape)
        covariances = np.tile(np.eye(2) * claimed_px**2, (500, 1, 1))
        pair = score_pair(FRAMES, STAMP, (points0, points1), CAMERA, POSE0, POSE1, covariances=covariances).pair
        found.append((pair.within_1_sigma, pair.within_2_sigma, pair.true_within_1_sigma, pair.true_within_2_sigma))
    np.testing.assert_allclose(100 * np.mean(found, axis=0), within * 2, atol=4)


def test_without_truth_or_baseline_nothing_is_said_of_true_deviations():
    covariances = np.tile(0.01 * np.eye(2), (300, 1, 1))
    for second, truth in ((POSE1, None), (TURNED, TURNED)):
        pair = score_pair(FRAMES, STAMP, scene(second), CAMERA, POSE0, truth, covariances=covariances).pair
        assert pair.true_within_1_sigma is None
        assert pair.within_1_sigma is not None


def test_the_estimator_that_is_asked_for_gives_the_pose():
    estimates = [score_pair(FRAMES, STAMP, scene(noise=0.5), CAMERA, POSE0, POSE1, estimator=estimator).estimate
                 for estimator in (ESTIMATORS['ml'], ESTIMATORS['magsac'])]
    assert not np.array_equal(estimates[0].rotation, estimates[1].rotation)
    none = score_pair(FRAMES, STAMP, scene(), CAMERA, POSE0, POSE1, estimator=lambda *points: None)
    assert none.pair.pose_error_deg == math.inf
    assert none.pair.inliers > 200


@pytest.mark.parametrize('hole', [None, np.full((4, 4), np.nan)])
def test_without_truth_there_are_inliers_and_a_pose(hole):
    for poses in ((hole, POSE1), (POSE0, hole)):
        pair, errors, estimate, _ = score_pair(FRAMES, STAMP, scene(), CAMERA, *poses)
        assert errors is None
        assert (pair.precision, pair.error_median_px, pair.rotation_deg, pair.translation_deg) == (None,) * 4
        assert pair.inliers > 230
        assert estimate is not None


def test_without_a_camera_there_are_inliers_of_a_fundamental_matrix():
    pair, errors, estimate, _ = score_pair(FRAMES, STAMP, scene(), None, POSE0, POSE1)
    assert (errors, estimate, pair.pose_error_deg, pair.precision) == (None,) * 4
    assert pair.model == 'fundamental'
    assert 235 <= pair.inliers <= 255


@pytest.mark.parametrize('found', [None, (np.zeros((0, 2), np.float32),) * 2])
def test_no_matches_are_a_failure(found):
    pair, errors, estimate, _ = score_pair(FRAMES, STAMP, found, CAMERA, POSE0, POSE1)
    assert (pair.matches, pair.inliers, pair.model, pair.precision) == (0, 0, '', (0, 0, 0))
    assert pair.pose_error_deg == math.inf
    assert (pair.error_median_px, estimate, len(errors)) == (None, None, 0)
    assert score_pair(FRAMES, STAMP, found, CAMERA, None, None).pair.precision is None
    assert score_pair(FRAMES, STAMP, found, None, None, None).pair.matches == 0


@pytest.mark.parametrize('count', [1, 5, 6, 20])
@pytest.mark.parametrize('camera', [CAMERA, None])
def test_few_or_equal_points_are_no_crash(count, camera):
    same = np.full((count, 2), 100, np.float32)
    for found in ((same, same), scene(count=count, wrong=0)):
        pair = score_pair(FRAMES, STAMP, found, camera, POSE0, POSE1).pair
        assert pair.matches == count
        assert 0 <= pair.inliers <= count
        assert bool(pair.inliers) == bool(pair.model)
        assert count > (5 if camera is not None else 7) or (pair.inliers, pair.model) == (0, '')


def test_a_turning_camera_is_explained_by_a_homography(monkeypatch):
    found = scene(TURNED, noise=0.02)
    pair, errors, *_ = score_pair(FRAMES, STAMP, found, CAMERA, POSE0, TURNED)
    assert pair.translation_deg is None, 'there is no direction to be wrong about'
    assert pair.pose_error_deg is None
    assert pair.rotation_deg < 0.1
    assert 238 <= np.sum(errors < 1) <= 242  # distances of points here, not to lines
    assert pair.inliers >= 238
    moved = TURNED.copy()
    moved[0, 3] += 0.004  # less than the truth is good for
    assert score_pair(FRAMES, STAMP, found, CAMERA, POSE0, moved).pair.translation_deg is None
    monkeypatch.setattr(score, 'MIN_BASELINE_M', 0.001)
    assert score_pair(FRAMES, STAMP, found, CAMERA, POSE0, moved).pair.translation_deg > 0


def test_the_model_that_explains_more_counts():
    points0, points1 = scene(plane=True, wrong=0, noise=0)
    inliers, model = count_inliers(points0, points1, CAMERA)
    assert (inliers, model) == (300, 'essential')  # both explain a plane: the more general one
    rng = np.random.default_rng(3)
    points1 = points0 @ np.array([[0.5, 0.9], [-0.7, 0.4]]) + rng.normal(0, 0.2, points0.shape)  # no pinhole sees this
    affine, model = count_inliers(points0, points1, CAMERA * [[8], [8], [1]])
    assert affine > 280


def test_a_sideways_shift_of_the_truth_is_seen():
    """The truth decides: the same points under another truth are off."""
    wrong = POSE1 @ pose([0.01, 0, 0], [0, 0, 0])
    right, off = (score_pair(FRAMES, STAMP, scene(), CAMERA, POSE0, second) for second in (POSE1, wrong))
    assert off.pair.rotation_deg == pytest.approx(math.degrees(0.01), abs=0.1)
    assert off.pair.precision[0] < right.pair.precision[0] / 2
    assert off.pair.inliers == right.pair.inliers


def by_brute_force(first, other):
    """Greedy, closest first, over all pairs."""
    gaps = [np.linalg.norm(a[:, None].astype(float) - b[None].astype(float), axis=2) for a, b in zip(first, other, strict=True)]
    near = sorted((gaps[0][i, j]**2 + gaps[1][i, j]**2, i, j) for i in range(len(first[0])) for j in range(len(other[0]))
                  if max(gaps[0][i, j], gaps[1][i, j]) <= 1)
    rows, columns = set(), set()
    for _, i, j in near:
        if i not in rows and j not in columns:
            rows.add(i)
            columns.add(j)
    return len(rows)


def compared(first, other):
    return agreement(MatchedPoints(*first[:2]), MatchedPoints(*other[:2]))


matches = st.lists(st.tuples(*[st.integers(0, 12).map(lambda k: k / 2 + 0.01 * (k % 3))] * 4), max_size=12)


@given(matches, matches)
def test_agreement_as_a_search_over_all_pairs(one, two):
    first, other = (tuple(np.asarray(rows, np.float32).reshape(-1, 4)[:, k:k + 2] for k in (0, 2)) for rows in (one, two))
    found = compared(first, other)
    total = len(one) + len(two)
    # Ties may fall differently: then one greedy pairing can be a little larger than another.
    common = by_brute_force(first, other)
    assert found.f1 * total / 2 == pytest.approx(common, abs=2) if total else found.f1 == 1
    assert found.count_ratio == len(two) / max(1, len(one))
    assert found.f1 <= 1
    assert 0 <= found.retention <= 1
    back = compared(other, first)
    assert back.f1 == pytest.approx(found.f1)


def test_agreement_by_hand():
    rng = np.random.default_rng(0)
    first = tuple(rng.uniform(0, 600, (200, 2)).astype(np.float32) for _ in range(2))
    assert compared(first, first) == (1, 1, 1)
    order = rng.permutation(200)[:150]
    moved = first[0][order] + np.float32([0.6, 0.7]), first[1][order]  # 0.92 pixels
    assert compared(first, moved) == pytest.approx((0.75, 2 * 150 / 350, 0.75))
    assert compared(moved, first) == pytest.approx((1, 2 * 150 / 350, 200 / 150))
    far = first[0] + np.float32([0.8, 0.8]), first[1]
    assert compared(first, far).retention < 0.05
    elsewhere = first[0], first[1] + np.float32([0, 5])
    assert compared(first, elsewhere).f1 < 0.05
    twice = tuple(np.repeat(side[:1], 3, axis=0) for side in first)
    assert compared(twice, tuple(side[:1] for side in twice)) == pytest.approx((1 / 3, 0.5, 1 / 3))
    assert compared(tuple(side[:1] for side in twice), twice) == pytest.approx((1, 0.5, 3))
    for shift in (1, -1):  # a whole pixel is within a pixel
        whole = np.float32([[10, 20], [30, 40]])
        assert compared((whole, whole), (whole + np.float32([shift, 0]), whole)).f1 == 1
        assert compared((whole, whole), (whole + np.float32([1.01 * shift, 0]), whole)).f1 == 0
    nothing = (np.zeros((0, 2), np.float32),) * 2
    assert compared(nothing, nothing) == (1, 1, 0)
    assert compared(nothing, first) == (1, 0, 200)
    assert compared(first, nothing) == (0, 0, 0)


def test_a_real_pair(shared_data):
    folder = shared_data / 'kitti_short_1'
    camera, _, poses = real_truth(folder)
    views = open_recording(folder).images()  # type: ignore[attr-defined]  # of folders
    images = [image for (_, image), _ in zip(views, range(2), strict=False)]
    found = SiftMatcher(1024).match(*images)
    pair = score_pair((0, 1), 0.1, found[:2], camera, poses[0], poses[1]).pair
    assert pair.inliers > 0.7 * pair.matches > 100
    assert pair.precision[1] > 0.8
    assert pair.pose_error_deg < 2
    assert compared(found, found) == (1, 1, 1)


def test_covariances_reach_the_estimator():
    given = []

    def estimator(points0, points1, camera0, camera1, covariances=None):
        given.append(covariances)

    covariances = np.tile(np.eye(2), (300, 1, 1))
    for known in (None, covariances):
        score_pair(FRAMES, STAMP, scene(), CAMERA, POSE0, POSE1, estimator=estimator, covariances=known)
    assert given[0] is None
    np.testing.assert_array_equal(given[1], covariances)


def test_points_that_cannot_be_undistorted_count_but_are_not_scored():
    points, covariances = scene(), np.tile(np.eye(2), (302, 1, 1))
    expected = score_pair(FRAMES, STAMP, points, CAMERA, POSE0, POSE1, covariances=covariances[2:])
    with_unknown = [np.concatenate([np.full((2, 2), np.nan), side]) for side in points]
    pair, errors, estimate, off = score_pair(FRAMES, STAMP, with_unknown, CAMERA, POSE0, POSE1, covariances=covariances)
    assert pair == dataclasses.replace(expected.pair, matches=expected.pair.matches + 2)
    np.testing.assert_array_equal(errors, [np.inf, np.inf, *expected.errors_px])
    np.testing.assert_array_equal(estimate.rotation, expected.estimate.rotation)
    np.testing.assert_array_equal(off, expected.deviations)


def test_a_match_returns_where_it_came_from():
    """Of ten matches six return, two come back elsewhere, and two have no match back: these do not count."""
    start = np.float32([[20.0 * number, 10] for number in range(10)])
    end = start + np.float32([200, 100])
    back = start.copy()
    back[6:8] += 30
    forward, backward = MatchedPoints(start, end), MatchedPoints(end[:8] + np.float32(0.4), back[:8])
    assert returning_share(forward, backward) == 0.75
    assert returning_share(forward, MatchedPoints.none()) is None
    assert returning_share(forward, MatchedPoints(end + 500, start)) is None
