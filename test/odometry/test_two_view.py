"""Two-view geometry against scenes whose truth is known, and the metrics against values computed by hand."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.trajectories import pose

from lightglue_trt_ros.odometry.two_view import (
    DEFAULT_ESTIMATOR,
    ESTIMATOR_LABELS,
    ESTIMATORS,
    epipolar_errors,
    essential_from_poses,
    estimate_relative_pose,
    fundamental_from_poses,
    homography_errors,
    pose_auc,
    pose_error_deg,
    relative_pose,
)

K0 = np.array([[500.0, 0, 320], [0, 510, 240], [0, 0, 1]])
K1 = np.array([[700.0, 0, 400], [0, 690, 300], [0, 0, 1]])


POSE0 = pose([0.1, -0.2, 0.3], [1, 2, 3])
POSE1 = POSE0 @ pose([0.02, 0.08, -0.05], [0.4, -0.1, 0.2])


def project(points, world_from_camera, intrinsics):
    camera = (np.linalg.inv(world_from_camera) @ np.column_stack([points, np.ones(len(points))]).T)[:3]
    pixels = intrinsics @ camera
    return (pixels[:2] / pixels[2]).T


def scene(count=300, noise=0.0, outliers=0.0, pose1=POSE1, seed=0):
    """Correspondences of points 2 to 12 m ahead of camera 0; the first rows are the outliers."""
    rng = np.random.default_rng(seed)
    rays = np.column_stack([rng.uniform(-1, 1, count), rng.uniform(-0.8, 0.8, count), np.ones(count)])
    world = rays * rng.uniform(2, 12, (count, 1)) @ POSE0[:3, :3].T + POSE0[:3, 3]
    points0, points1 = project(world, POSE0, K0), project(world, pose1, K1)
    points0, points1 = (p + rng.normal(0, noise, p.shape) for p in (points0, points1))
    wrong = int(outliers * count)
    points1[:wrong] = rng.uniform([0, 0], [800, 600], (wrong, 2))
    return points0, points1


def pose_errors(points0, points1, pose1=POSE1, **settings):
    estimate = estimate_relative_pose(points0, points1, K0, K1, **settings)
    assert estimate is not None
    return pose_error_deg(estimate.rotation, estimate.translation, *relative_pose(POSE0, pose1)), estimate


def distance_to_line(point, line):
    return abs(line @ [*point, 1]) / math.hypot(line[0], line[1])


def test_relative_pose_takes_camera_0_to_camera_1():
    rotation, translation = relative_pose(POSE0, POSE1)
    in_world = np.array([0.5, 1.5, 9.0, 1.0])
    in0, in1 = np.linalg.inv(POSE0) @ in_world, np.linalg.inv(POSE1) @ in_world
    np.testing.assert_allclose(rotation @ in0[:3] + translation, in1[:3], atol=1e-12)


def test_the_true_geometry_has_no_error():
    points0, points1 = scene()
    assert epipolar_errors(points0, points1, fundamental_from_poses(POSE0, POSE1, K0, K1)).max() < 1e-9


def test_essential_matrix_has_two_equal_singular_values_of_the_baseline():
    baseline = np.linalg.norm(POSE1[:3, 3] - POSE0[:3, 3])
    np.testing.assert_allclose(np.linalg.svd(essential_from_poses(POSE0, POSE1))[1], [baseline, baseline, 0], atol=1e-12)


def test_epipolar_errors_equal_distances_to_both_lines():
    points0, points1 = scene(40, noise=3.0, outliers=0.5)
    f = fundamental_from_poses(POSE0, POSE1, K0, K1)
    expected = [math.sqrt((distance_to_line(b, f @ [*a, 1])**2 + distance_to_line(a, f.T @ [*b, 1])**2) / 2)
                for a, b in zip(points0, points1, strict=True)]
    np.testing.assert_allclose(epipolar_errors(points0, points1, f), expected, rtol=1e-9)


def test_a_vertical_shift_is_the_error_of_a_sideways_camera():
    sideways = fundamental_from_poses(np.eye(4), pose([0, 0, 0], [1, 0, 0]), K0, K0)
    np.testing.assert_allclose(epipolar_errors([[100, 50], [10, 20]], [[30, 52.5], [-7, 20]], sideways), [2.5, 0], atol=1e-9)


def test_without_epipolar_lines_every_error_is_infinite():
    assert np.isinf(epipolar_errors([[1, 2]], [[1, 2]], essential_from_poses(POSE0, POSE0))).all()
    assert epipolar_errors(np.zeros((0, 2)), np.zeros((0, 2)), np.eye(3)).shape == (0,)


def test_homography_errors():
    shift = [[2, 0, 10], [0, 2, -5], [0, 0, 1]]
    np.testing.assert_allclose(homography_errors([[1, 1], [0, 0]], [[12, -3], [13, -1]], shift), [0, 5])
    to_infinity = [[1, 0, 0], [0, 1, 0], [1, 0, 0]]
    assert np.isinf(homography_errors([[0, 3]], [[0, 0]], to_infinity)).all()


def test_exact_correspondences_give_the_exact_pose():
    (turn, shift), estimate = pose_errors(*scene())
    assert turn < 1e-4
    assert shift < 1e-3
    assert estimate.inliers.all()
    # Cheirality: the direction itself is right, not only its line.
    assert estimate.translation @ relative_pose(POSE0, POSE1)[1] > 0


def test_the_estimator_is_no_bottleneck_under_noise_and_outliers():
    (turn, shift), estimate = pose_errors(*scene(500, noise=0.35, outliers=0.3))
    assert turn < 0.1
    assert shift < 1.0
    assert estimate.inliers[150:].mean() > 0.6
    assert estimate.inliers[:150].mean() < 0.05


def test_refinement_improves_what_the_best_sample_of_plain_ransac_gave():
    scenes = [scene(300, noise=0.35, outliers=0.3, seed=seed) for seed in range(6)]
    refined, sampled = ([max(pose_errors(*points, method=cv2.RANSAC, refine_px=refine)[0]) for points in scenes]
                        for refine in (0.3, 0.0))
    assert np.median(refined) < 0.6 * np.median(sampled)


@pytest.mark.parametrize('name', ESTIMATORS)
def test_every_named_estimator_finds_the_pose(name):
    points = scene(400, noise=0.35, outliers=0.3)
    estimate = ESTIMATORS[name](*points, K0, K1)
    turn, shift = pose_error_deg(estimate.rotation, estimate.translation, *relative_pose(POSE0, POSE1))
    assert max(turn, shift) < 1
    assert estimate.translation @ relative_pose(POSE0, POSE1)[1] > 0
    assert estimate.inliers[120:].mean() > 0.6


def test_the_estimators_have_labels():
    assert ESTIMATOR_LABELS.keys() == ESTIMATORS.keys()
    assert DEFAULT_ESTIMATOR in ESTIMATORS


def exact_area(errors, threshold):
    """The recall curve's area in rational numbers, piece by piece between its corners."""
    finite, limit = sorted(Fraction(error) for error in errors if math.isfinite(error)), Fraction(threshold)
    corners = [(Fraction(0), Fraction(0))]
    corners += [(error, Fraction(k, len(errors))) for k, error in enumerate(finite, 1) if error < limit]
    corners.append((limit, corners[-1][1]))
    return float(sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in itertools.pairwise(corners)) / limit)


@given(st.lists(st.floats(0, 60) | st.just(math.inf), min_size=1, max_size=40))
def test_pose_auc_in_rational_numbers(errors):
    assert pose_auc(errors) == pytest.approx([exact_area(errors, limit) for limit in (5, 10, 20)], abs=1e-9)


def test_a_short_baseline_keeps_its_far_points():
    near = POSE0 @ pose([0.01, 0.02, 0], [0.03, 0, 0.01])
    (turn, _), estimate = pose_errors(*scene(pose1=near), pose1=near)
    assert turn < 1e-3
    assert estimate.inliers.all()


def test_pose_does_not_depend_on_the_global_opencv_seed():
    points = scene(200, noise=0.5, outliers=0.4)
    estimates = []
    for seed in (1, 99):
        cv2.setRNGSeed(seed)
        estimates.append(estimate_relative_pose(*points, K0, K1))
        estimate_relative_pose(*scene(50, seed=seed), K0, K1)
    np.testing.assert_array_equal(estimates[0].rotation, estimates[1].rotation)
    np.testing.assert_array_equal(estimates[0].translation, estimates[1].translation)
    np.testing.assert_array_equal(estimates[0].inliers, estimates[1].inliers)


@pytest.mark.parametrize('count', [0, 1, 5])
def test_too_few_correspondences_give_no_pose(count):
    assert estimate_relative_pose(*scene(count), K0, K1) is None


def test_one_point_many_times_is_no_crash():
    same = np.full((20, 2), 100.0)
    estimate = estimate_relative_pose(same, same, K0, K1)
    assert estimate is None or np.isfinite(estimate.rotation).all()


def test_pose_error_angles():
    quarter = cv2.Rodrigues(np.array([0, 0, np.pi / 2]))[0]
    assert pose_error_deg(quarter, [1, 0, 0], np.eye(3), [0, 2, 0]) == pytest.approx((90, 90))
    assert pose_error_deg(np.eye(3), [1, 0, 0], np.eye(3), [-3, 0, 0]) == pytest.approx((0, 0))
    assert pose_error_deg(np.eye(3), [1, 1, 0], np.eye(3), [-1, 0, 0]) == pytest.approx((0, 45))
    half = np.diag([1.0, -1, -1])
    assert pose_error_deg(half, [1, 0, 0], np.eye(3), [1, 0, 0])[0] == pytest.approx(180)


def test_without_a_baseline_the_direction_is_not_scored():
    assert pose_error_deg(np.eye(3), [1, 0, 0], np.eye(3), [0, 0, 0]) == (0, 0)
    assert pose_error_deg(np.eye(3), [1, 0, 0], np.eye(3), [0, 0.01, 0])[1] == pytest.approx(90)
    assert pose_error_deg(np.eye(3), [1, 0, 0], np.eye(3), [0, 0.01, 0], min_baseline=0.02)[1] == 0


@pytest.mark.parametrize(('errors', 'thresholds', 'expected'), [
    # From (0, 0) to (2, 1/2), then (4, 1), level to 10: (0.5 + 1.5 + 6) / 10.
    ([2, 4], (10,), [0.8]),
    # Only the first is under 3: 0.5 + 0.5 * 1, over 3.
    ([4, 2], (3,), [1 / 3]),
    ([math.inf, 2], (10,), [0.45]),
    ([math.nan, 2], (10,), [0.45]),
    ([7, 30, 15, 90], (5, 10, 20), [0.0, 0.1625, (0.875 + 3 + 2.5) / 20]),
    ([math.inf], (5, 10, 20), [0, 0, 0]),
    ([0, 0], (5,), [1.0]),
    ([], (5, 10), [0, 0]),
])
def test_pose_auc_by_hand(errors, thresholds, expected):
    assert pose_auc(errors, thresholds) == pytest.approx(expected)


@given(st.lists(st.floats(0, 180) | st.just(math.inf), min_size=1, max_size=30))
def test_pose_auc_is_a_share_and_falls_with_a_failure(errors):
    areas = pose_auc(errors)
    assert all(0 <= area <= 1 for area in areas)
    assert all(worse <= area + 1e-12 for worse, area in zip(pose_auc([*errors, math.inf]), areas, strict=True))
