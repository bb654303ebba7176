"""Where matched points are placed, and how well that is known: warps of a photograph, and images that have nothing to go by."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
from collections import Counter

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.executables import environment
from support.networks import moved, photo

from lightglue_trt_eval.predict.methods import covariances_at, updated
from lightglue_trt_ros.core import refinement as placement
from lightglue_trt_ros.core.geometry import epipolar_distances
from lightglue_trt_ros.core.refinement import (
    LIMIT_PX,
    PREDICTED_PX,
    UNREFINED_PX,
    Pyramid,
    Refined,
    refine_points,
    unrefined,
)
from lightglue_trt_ros.core.refinement.matrices import eigenvalue_gap, lessened, points_first, points_last
from lightglue_trt_ros.core.refinement.patches import find_patches
from lightglue_trt_ros.core.refinement.variance_factor import HALF, MOST, NORMAL, VarianceFactor, epipolar_residuals, fit_epipolar
from lightglue_trt_ros.core.types import largest_sigmas


@pytest.fixture
def image():
    return photo('coffee', 480, 640)


@pytest.fixture
def points(image):
    """Of the image, with something around them."""
    return corners(image)


def place(image, view, points, seen, unit=1.0):
    return refine_points(Pyramid(image, unit), Pyramid(view, unit), points, seen)


def sigmas(covariances):
    """The largest standard deviation of each, pixels."""
    return np.sqrt(np.linalg.eigvalsh(covariances)[:, 1])


def grid(shape, step=24, border=60):
    v, u = np.mgrid[border:shape[0] - border:step, border:shape[1] - border:step]
    return np.stack([u.ravel(), v.ravel()], 1).astype(np.float32)


def corners(image):
    return cv2.goodFeaturesToTrack(image, 200, 0.02, 8).reshape(-1, 2)


def through(homography, points):
    mapped = np.column_stack([points, np.ones(len(points))]) @ homography.T
    return (mapped[:, :2] / mapped[:, 2:]).astype(np.float32)


def followed(homography, points, border, size=(640, 480)):
    """Those of the points that stay in an image, so far from its border, and where they go."""
    truth = through(homography, points)
    inside = ((truth > border) & (truth < np.array(size) - border - 1)).all(axis=1)
    return points[inside], truth[inside]


@pytest.mark.parametrize(('angle', 'scale'), [(0, 1.0), (2, 1.0), (8, 0.93), (25, 0.85), (-90, 1.0)])
def test_points_go_where_the_image_has_gone(image, points, angle, scale):
    view, homography = moved(image, angle, scale)
    points, truth = followed(homography, points, 20)
    seen = (truth + np.random.default_rng(0).normal(0, 0.8, truth.shape)).astype(np.float32)
    found, covariances = place(image, view, points, seen)
    before, after = np.linalg.norm(seen - truth, axis=1), np.linalg.norm(found - truth, axis=1)
    assert len(points) > 80
    assert np.median(before) > 0.7
    assert np.median(after) < 0.1
    assert np.mean(after < 0.5) > 0.9
    assert np.linalg.norm(found - seen, axis=1).max() < LIMIT_PX
    assert np.median(sigmas(covariances)) < 0.2


@pytest.mark.parametrize('change', [lambda image: image * 0.6, lambda image: image * 0.7 + 60, lambda image: image * 1.1 - 10])
def test_exposure_moves_no_point(image, points, change):
    found, covariances = place(image, np.clip(change(image.astype(np.float32)), 0, 255).astype(np.uint8), points, points)
    assert np.median(np.linalg.norm(found - points, axis=1)) < 0.02
    assert np.isfinite(covariances).all()


@pytest.mark.parametrize(('depth', 'period'), [(0.2, 160), (0.4, 80), (0.6, 40)])
def test_bars_that_roll_over_the_image_make_points_less_known(image, points, depth, period):
    """As lamps flicker: what they put wrong is claimed, and more is claimed the worse they are."""
    def lit(phase):
        bars = 1 - depth / 2 * (1 + np.sin(2 * np.pi * (np.arange(480) / period + phase)))
        return (image * bars[:, None]).astype(np.uint8)

    found, covariances = place(lit(0.0), lit(0.4), points, points)
    apart = found - points
    deviations = np.sqrt(np.einsum('mi,mij,mj->m', apart, np.linalg.inv(covariances), apart))
    assert np.median(np.linalg.norm(apart, axis=1)) < 0.25
    assert np.mean(deviations < 2) > 0.85, 'of a normal distribution in two dimensions 0.865 are'
    steady = place(lit(0.0), lit(0.0), points, points)[1]
    assert np.median(sigmas(covariances)) > 1.5 * np.median(sigmas(steady))


def images_of_an_edge():
    """Two, with noise: an edge at column 80."""
    edge = cv2.GaussianBlur(np.repeat(np.where(np.arange(160) < 80, 60, 180)[None].astype(np.uint8), 120, axis=0), (0, 0), 1.5)
    return [np.clip(edge + noise, 0, 255).astype(np.uint8) for noise in np.random.default_rng(0).normal(0, 1, (2, *edge.shape))]


def test_an_edge_is_known_across_and_not_along():
    first, second = images_of_an_edge()
    points = np.array([[80, 60], [79, 40]], np.float32)
    found, covariances = place(first, second, points, points + np.float32([0.6, 0.6]))
    np.testing.assert_allclose(found[:, 0], points[:, 0], atol=0.1)
    across, along = np.sqrt(covariances[:, 0, 0]), np.sqrt(covariances[:, 1, 1])
    assert ((across > 0.2) & (across < 0.35)).all()  # no real edge is quite straight
    assert (along > 3 * across).all()
    assert (along > 1.9).all()  # as SuperPoint saw it: noise along the edge says nothing


def test_predicted_point_on_edge_has_covariance_of_unrefined_match():
    first, second = images_of_an_edge()
    matched = np.array([[80, 30], [80, 50], [79, 70]], np.float32)
    on_noise = grid((120, 64), 16, 4)
    refined = refine_points(Pyramid(first), Pyramid(second), np.vstack([matched, np.float32([[80, 60]]), on_noise]), matched)
    on_edge, *bare = sigmas(refined.covariances[3:])
    assert 0.9 * UNREFINED_PX < on_edge < 1.1 * UNREFINED_PX
    assert np.mean(np.array(bare) > 0.99 * PREDICTED_PX) > 0.99


def test_lessened_matrices_have_smaller_eigenvalues_and_the_same_axes():
    roots = np.random.default_rng(0).normal(size=(50, 2, 2))
    matrices = np.asarray(roots @ roots.transpose(0, 2, 1), np.float32)
    values, axes = np.linalg.eigh(matrices)
    expected = axes @ (np.maximum(values - 0.5, 0)[..., None] * axes.transpose(0, 2, 1))
    np.testing.assert_allclose(points_first(lessened(points_last(matrices), np.float32(0.5))), expected, atol=1e-4)
    np.testing.assert_allclose(eigenvalue_gap(points_last(matrices)), values[:, 1] - values[:, 0], atol=1e-4)


@pytest.mark.parametrize('level', [0, 90, 255])
def test_points_on_nothing_stay_and_are_not_known(level):
    blank = np.full((120, 160), level, np.uint8)
    points = grid(blank.shape, 20, 30)
    found, covariances = place(blank, blank, points, points + np.float32(1.5))
    np.testing.assert_array_equal(found, points + np.float32(1.5))
    np.testing.assert_allclose(sigmas(covariances), UNREFINED_PX, rtol=0.05)


@pytest.mark.parametrize('contrast', [1, 8, 60])
def test_noise_is_not_found_in_other_noise(contrast):
    noise = np.random.default_rng(0).normal(128, contrast, (2, 240, 320))
    first, second = np.clip(noise, 0, 255).round().astype(np.uint8)
    points = grid(first.shape, 20, 8)
    found, covariances = place(first, second, points, points)
    assert np.isfinite(found).all()
    assert (np.linalg.eigvalsh(covariances) > 0).all()
    assert np.mean(np.all(found == points, axis=1)) > 0.99
    assert np.mean(sigmas(covariances) > 0.99 * UNREFINED_PX) > 0.99


def test_a_frozen_camera_moves_nothing_and_claims_no_more_than_its_floor(image, points):
    found, covariances = place(image, image, points, points)
    np.testing.assert_allclose(found, points, atol=1e-3)
    assert sigmas(covariances).min() > 0.02


def test_points_of_another_place_are_not_known(image, points):
    """What is not found nearby is no finer position of this point."""
    found, covariances = place(image, photo('astronaut', 480, 640), points, points)
    assert np.linalg.norm(found - points, axis=1).max() < LIMIT_PX
    assert ((found >= 0) & (found <= [639, 479])).all()
    assert np.median(sigmas(covariances)) > 3 * np.median(sigmas(place(image, image, points, points).covariances))


def test_points_at_the_border_stay_inside(image):
    points = np.array([[0, 0], [639, 479], [0, 479], [320, 0], [-3, 5], [700, 20]], np.float32)
    found, covariances = place(image, np.roll(image, -2, axis=1), points, points)
    assert np.isfinite(found).all()
    assert np.isfinite(covariances).all()
    np.testing.assert_array_equal(found[4:], points[4:])


@pytest.mark.parametrize('count', [0, 1, 2])
def test_few_points(image, points, count):
    points = points[:count]
    found, covariances = place(image, image, points, points + np.float32(0.4))
    assert found.shape == (count, 2)
    assert covariances.shape == (count, 2, 2)
    assert found.dtype == covariances.dtype == np.float32
    np.testing.assert_allclose(found, points, atol=0.1)


def test_a_large_image_is_searched_in_pixels_of_the_extractor(image):
    """Four pixels of the camera are one of the engine's: points are seen, and looked for, that much more coarsely."""
    image = cv2.resize(image, (2560, 1920), interpolation=cv2.INTER_CUBIC)
    view, homography = moved(image, 2, 1.0)
    points, truth = followed(homography, corners(cv2.resize(image, (640, 480))) * 4 + np.float32(1.5), 80, (2560, 1920))
    seen = (truth + np.random.default_rng(0).normal(0, 5, truth.shape)).astype(np.float32)
    after = np.linalg.norm(place(image, view, points, seen, 4.0).points - truth, axis=1)
    assert np.mean(after < 0.5) > 0.85
    assert np.mean(after < 0.5) > np.mean(np.linalg.norm(place(image, view, points, seen).points - truth, axis=1) < 0.5) + 0.2


def test_small_things_that_move_by_themselves_are_found_in_a_small_image():
    """Discs of 16 pixels before a wall: at half the size a wide patch would hold more of the wall than of the disc."""
    rng = np.random.default_rng(0)
    wall, before = (cv2.GaussianBlur(rng.uniform(0, 255, (120, 160)).astype(np.float32), (0, 0), 1.5) for _ in range(2))
    wall, before = (cv2.normalize(each, None, 0, 255, cv2.NORM_MINMAX).astype(np.uint8) for each in (wall, before))
    middles = [(u, v) for u in range(20, 150, 30) for v in range(20, 110, 26)]
    mask = np.zeros(wall.shape, np.uint8)
    for middle in middles:
        cv2.circle(mask, middle, 8, 1, -1)
    shift = np.array([[1, 0, 2.4], [0, 1, -1.3]])
    moved_mask, moved_discs = (cv2.warpAffine(each, shift, (160, 120)) for each in (mask, before))
    first, second = np.where(mask, before, wall), np.where(moved_mask, moved_discs, wall)
    points = np.array(middles, np.float32)
    starts = points + shift[:, 2].astype(np.float32) + rng.normal(0, 0.4, points.shape).astype(np.float32)
    found = refine_points(Pyramid(first, 0.25), Pyramid(second, 0.25), points, starts)
    errors = np.linalg.norm(found.points - points - shift[:, 2], axis=1)
    assert np.median(errors) < 0.15
    assert np.mean(errors < 3 * largest_sigmas(found.covariances)) > 0.9


def test_covariance_of_points_refined_elsewhere_grows_with_their_error(image, points):
    view, homography = moved(image, 2, 1.0)
    truth = through(homography, points)
    right = covariances_at(Pyramid(image), Pyramid(view), points, truth)
    wrong = covariances_at(Pyramid(image), Pyramid(view), points, truth + np.float32([0.5, -0.5]))
    assert np.median(sigmas(right)) < 0.2
    assert np.median(sigmas(wrong)) > 2 * np.median(sigmas(right))


def scene(count, sigma, seed=0):
    """Two views of points in space: points, noisy points (N, 2) and the covariances that the noise has."""
    rng = np.random.default_rng(seed)
    space = np.column_stack([rng.uniform(-4, 4, (count, 2)), rng.uniform(4, 12, count)])
    turn = cv2.Rodrigues(np.array([0.02, 0.05, -0.01]))[0]
    views = space, space @ turn.T + [0.4, 0.1, 0.2]
    first, second = (500 * view[:, :2] / view[:, 2:] + [320, 240] for view in views)
    halves = sigma * rng.uniform(0.3, 1.5, (count, 1, 1)) * (np.eye(2) + rng.normal(0, 0.5, (count, 2, 2)))
    second = second + (halves @ rng.normal(0, 1, (count, 2, 1)))[:, :, 0]
    return first.astype(np.float32), second.astype(np.float32), (halves @ halves.transpose(0, 2, 1)).astype(np.float32)


@pytest.mark.parametrize('wrong_by', [0.5, 1.0, 3.0])
def test_the_factor_finds_what_variances_lack(wrong_by):
    first, second, covariances = scene(600, 0.1)
    second[:60] += np.random.default_rng(1).uniform(5, 40, (60, 2)).astype(np.float32)  # wrong matches say nothing
    factor = updated(VarianceFactor(), first, second, covariances / np.float32(wrong_by))
    assert wrong_by / 1.4 < factor < wrong_by * 1.4


def mean_factor(count, true_px, claimed_px):
    """The geometric mean over 20 scenes of the factor of one frame; deviations along each axis, numbers or (N,)."""
    logs, claimed = [], np.broadcast_to(claimed_px, count).astype(np.float32)
    for seed in range(20):
        first, second, _ = scene(count, 0, seed)
        second = second + np.random.default_rng(seed).normal(0, 1, second.shape) * np.reshape(true_px, (-1, 1))
        covariances = np.eye(2, dtype=np.float32) * (claimed**2)[:, None, None]
        logs.append(np.log(updated(VarianceFactor(), first, second.astype(np.float32), covariances)))
    return np.exp(np.mean(logs))


@pytest.mark.parametrize('count', [60, 300])
@pytest.mark.parametrize('sigma_px', [0.1, 0.25, 0.5, 0.75, 1.0, 1.5])
def test_honest_covariances_are_left_as_they_are(count, sigma_px):
    assert 0.8 < mean_factor(count, sigma_px, sigma_px) < 1.25


@pytest.mark.parametrize('count', [60, 300])
@pytest.mark.parametrize('sigma_px', [0.4, 0.8, 1.2])
def test_variance_factor_finds_too_small_covariances_at_any_error(count, sigma_px):
    assert 2.5 < mean_factor(count, sigma_px, sigma_px / 2) <= 4, '4 is right'


@pytest.mark.parametrize('count', [60, 300])
def test_variance_factor_is_one_for_correct_mixed_covariances(count):
    sigmas_px = np.where(np.arange(count) % 2, 0.15, 1.2)
    assert 0.8 < mean_factor(count, sigmas_px, sigmas_px) < 1.25


def test_a_fifth_of_wrong_matches_changes_no_factor():
    first, second, covariances = scene(300, 0.2)
    second[::5] += np.random.default_rng(1).choice([-1, 1], (60, 2)) * np.random.default_rng(2).uniform(7, 14, (60, 2))
    assert 0.7 < updated(VarianceFactor(), first, second.astype(np.float32), covariances) < 1.4


def test_factor_follows_a_frame_by_the_number_of_its_matches():
    steps = []
    for count in (60, 300):
        first, second, covariances = scene(count, 0.2)
        factor = VarianceFactor()
        before = [updated(factor, first, second, covariances) for _ in range(10)][-1]
        steps.append(np.log(updated(factor, first, second, covariances / np.float32(1.3)) / before) / np.log(1.3))
        after = factor.value
        assert updated(factor, first[:20], second[:20], covariances[:20]) == after, 'too few to say: it stays'
    assert 0.3 < steps[0] < 0.7 < steps[1] < 0.95


def test_factor_is_right_from_the_first_frame_after_standing():
    """A mean over frames took twelve: 31 % of the points of the first one lay within one deviation."""
    rng, factor, claimed = np.random.default_rng(0), VarianceFactor(), np.tile(0.01 * np.eye(2, dtype=np.float32), (300, 1, 1))
    for _ in range(30):
        points = rng.uniform((0, 0), (640, 480), (300, 2))
        there = points + rng.normal(0, 0.03, points.shape)
        standing = updated(factor, points.astype(np.float32), there.astype(np.float32), claimed)
    assert standing == pytest.approx(0.1, rel=0.2)
    for seed in range(12):
        first, second, _ = scene(300, 0, seed)
        value = updated(factor, first, (second + rng.normal(0, 0.1, second.shape)).astype(np.float32), claimed)
        assert 0.6 < math.erf(math.sqrt(value / 2)) < 0.76, 'share of the points within one deviation'


@pytest.mark.parametrize('count', [30, 60, 300])
@pytest.mark.parametrize('kind', ['plane', 'rotation', 'standing'])
def test_factor_is_not_lowered_where_many_geometries_fit(kind, count):
    """The fit takes the geometry with the smallest residuals: 0.5 at 30 matches, 0.7 at 60."""
    logs = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        space = np.column_stack([rng.uniform(-4, 4, (count, 2)), rng.uniform(4, 12, count)])
        if kind == 'plane':
            space[:, 2] = 8 + 0.1 * space[:, 0]
        turn = np.eye(3) if kind == 'standing' else cv2.Rodrigues(np.array([0.02, 0.05, -0.01]))[0]
        views = space, space @ turn.T + ([0.4, 0.1, 0.2] if kind == 'plane' else [0, 0, 0])
        first, second = (500 * view[:, :2] / view[:, 2:] + [320, 240] for view in views)
        second = second + rng.normal(0, 0.5, second.shape)
        claimed = np.tile(0.25 * np.eye(2, dtype=np.float32), (count, 1, 1))
        logs.append(np.log(updated(VarianceFactor(), first.astype(np.float32), second.astype(np.float32), claimed)))
    assert 0.8 < np.exp(np.mean(logs)) < 1.25


def driven(rng, step):
    """Points (300, 2) seen by a car before and after a step."""
    space = rng.uniform([-8, -2, 6], [8, 2, 40], (300, 3))
    return [700 * view[:, :2] / view[:, 2:] + [600, 180] for view in (space, space - step)]


def test_epipolar_fit_is_robust_to_wrong_points_of_large_covariance():
    """At night: a fifth of the points are known to 0.15 px, the others to 2 px, and some of these are wrong."""
    rng, astray = np.random.default_rng(0), 0
    for _ in range(30):
        first, second = driven(rng, [0.02, 0, 1.0])
        known = rng.random(300) < 0.2
        claimed_px, far = np.where(known, 0.15, 2.0), (rng.random(300) < 0.15) & ~known
        seen = second + (np.minimum(claimed_px, 0.6) * rng.normal(size=(2, 300))).T + far[:, None] * rng.normal(0, 10, (300, 2))
        fit = fit_epipolar(first.astype(np.float32), seen.astype(np.float32),
                           (claimed_px**2)[:, None, None].astype(np.float32) * np.eye(2, dtype=np.float32), fit_limit=1e9)
        astray += np.quantile(np.abs(epipolar_distances(first, second, fit.fundamental)[0]), 0.9) > 1
    assert astray <= 2


def test_what_the_geometry_leaves_is_what_its_lines_say():
    first, second, covariances = scene(200, 0.1)
    found = fit_epipolar(first, second, covariances)
    distances, normals = epipolar_distances(first, second, found.fundamental)
    variances = np.einsum('in,nij,jn->n', normals, covariances, normals)
    np.testing.assert_allclose(found.distances, np.abs(distances), rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(found.ratios, distances**2 / variances, rtol=1e-3, atol=1e-6)
    assert 0.2 < np.median(found.ratios) < 0.9, '0.45 is right'


def test_the_geometry_is_found_where_half_of_the_matches_are_wrong():
    """A car's way forward. Least squares, from which the rounds begin, lead some of these astray."""
    rng, covariances = np.random.default_rng(0), np.tile(0.01 * np.eye(2, dtype=np.float32), (300, 1, 1))
    for _ in range(40):
        first, second = driven(rng, [0.05, 0, 3])
        wrong = rng.random(300) < 0.5
        seen = second + rng.normal(0, 0.1, second.shape) + wrong[:, None] * rng.normal(0, 10, second.shape)
        found = fit_epipolar(first.astype(np.float32), seen.astype(np.float32), covariances)
        distances, _ = epipolar_distances(first, second, found.fundamental)
        assert np.quantile(np.abs(distances), 0.95) < 0.5


@pytest.mark.parametrize(('precise', 'wrong', 'step'), [(0.0, 0.25, 1.0), (0.0, 0.4, 1.0), (0.2, 0.25, 1.0)])
def test_the_geometry_is_found_under_covariances_that_are_too_large(precise, wrong, step):
    """At night on a road most patches are not found: what a wrong geometry leaves is likely then, by the covariances alone."""
    rng, factor, astray = np.random.default_rng(0), VarianceFactor(), 0
    for _ in range(30):
        first, second = driven(rng, [0.02, 0, step])
        known = rng.random(300) < precise
        error_px, claimed_px = np.where(known, 0.15, 0.4), np.where(known, 0.15, 2.4)
        far = (rng.random(300) < wrong) & ~known
        seen = second + error_px[:, None] * rng.normal(size=(300, 2)) + far[:, None] * rng.normal(0, 30, (300, 2))
        found = epipolar_residuals(first.astype(np.float32), seen.astype(np.float32),
                        (claimed_px**2)[:, None, None].astype(np.float32) * np.eye(2, dtype=np.float32), 1.0, factor.fit_limit)
        factor.add(found.quantile, found.inliers)
        astray += np.quantile(np.abs(epipolar_distances(first, second, found.fundamental)[0]), 0.9) > 2
    assert astray <= 3, '15 to 26 of 30 before'
    assert factor.value < 0.5


@pytest.mark.parametrize('count', [0, 5, 29])
def test_too_few_matches_say_nothing_of_variances(count):
    first, second, covariances = scene(60, 0.1)
    assert updated(VarianceFactor(), first[:count], second[:count], covariances[:count] / 9) == 1.0


def test_points_on_one_spot_say_nothing_bad():
    point = np.full((50, 2), 7, np.float32)
    assert np.isfinite(updated(VarianceFactor(), point, point, np.tile(np.eye(2, dtype=np.float32), (50, 1, 1))))


def test_unmatched_points_are_found_where_their_neighbours_went(image, points):
    view, homography = moved(image, 8, 0.93)
    points, truth = followed(homography, points, 20)
    lost = np.arange(len(points)) % 4 == 0
    refined = refine_points(Pyramid(image), Pyramid(view), np.concatenate([points[~lost], points[lost]]), truth[~lost])
    placed, others = (refined.take(part) for part in np.split(np.arange(len(points)), [np.count_nonzero(~lost)]))
    assert np.mean(np.linalg.norm(others.points - truth[lost], axis=1) < 0.3) > 0.9
    alone = place(image, view, points[~lost], truth[~lost])
    np.testing.assert_allclose(placed.points, alone.points, atol=1e-3)
    np.testing.assert_allclose(placed.covariances, alone.covariances, rtol=0.01, atol=1e-5)
    assert sigmas(others.covariances).max() <= PREDICTED_PX * 1.5


@pytest.mark.parametrize('level', [0, 128, 255])
def test_where_nothing_of_a_patch_is_left_the_point_is_unknown(image, points, level):
    found, covariances = place(image, np.full_like(image, level), points, points)
    np.testing.assert_array_equal(found, points)
    np.testing.assert_allclose(sigmas(covariances), UNREFINED_PX, rtol=1e-5)


def test_the_epipolar_geometry_of_the_matches_is_known():
    """A camera that moves sideways: lines are the rows of the image, for points at any depth."""
    rng = np.random.default_rng(0)
    points = rng.uniform(0, 600, (80, 2)).astype(np.float32)
    there = points + np.column_stack([rng.uniform(2, 20, 80), rng.normal(0, 0.05, 80)]).astype(np.float32)
    there[:8, 1] += 15  # wrong matches
    found = epipolar_residuals(points, there, np.tile(np.eye(2, dtype=np.float32) * 0.0025, (80, 1, 1)), 1.0, 0.0)
    some = rng.uniform(100, 500, (20, 2)).astype(np.float32)
    distances, normals = epipolar_distances(some, some + np.float32([30, 3]), found.fundamental)
    np.testing.assert_allclose(np.abs(distances), 3, atol=0.3)
    np.testing.assert_allclose(np.abs(normals[1]), 1, atol=0.01)
    few = epipolar_residuals(points[:20], there[:20], np.tile(np.eye(2, dtype=np.float32), (20, 1, 1)), 1.0, 0.0)
    assert few.fundamental is None, 'too few to say'
    assert few.inliers == 0


def test_refinement_of_a_point_is_independent_of_its_neighbours(image):
    """More than fit into one block, in two orders."""
    view, homography = moved(image, 3, 1.02)
    points = cv2.goodFeaturesToTrack(image, 700, 0.002, 4).reshape(-1, 2)
    assert len(points) > placement.BLOCK
    truth = through(homography, points)
    whole = place(image, view, points, truth)
    order = np.random.default_rng(0).permutation(len(points))
    mixed = place(image, view, points[order], truth[order])
    apart = np.linalg.norm(mixed.points - whole.points[order], axis=1)
    assert np.percentile(apart, 90) < 0.01, 'rounding, for sums go in another order'
    assert apart.max() < 0.2
    close = np.isclose(mixed.covariances, whole.covariances[order], rtol=0.05, atol=1e-4).all(axis=(1, 2))
    assert close.mean() > 0.9


SHADINGS = {
    'flat': lambda u, v: 0 * u + 90, 'black': lambda u, v: 0 * u, 'saturated': lambda u, v: 0 * u + 255,
    'ramp': lambda u, v: u / 4, 'ramps': lambda u, v: (u + 2 * v) / 8, 'edge': lambda u, v: np.where(u < v, 40.0, 220.0),
    'faint': lambda u, v: 128 + np.sin(u / 40 + v / 50),
    'textured': lambda u, v: 128 + 100 * np.sin(u * u / 90) * np.cos(v * v / 70)}


@given(st.sampled_from(sorted(SHADINGS)), st.sampled_from(sorted(SHADINGS)), st.sampled_from([1.0, 2.0, 4.0]), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_every_number_is_finite_whatever_patches_show(first, second, unit, seed):
    """Noise-free ramps under a textured patch gave NaN where the way back went on for ever."""
    rng, (v, u) = np.random.default_rng(seed), np.mgrid[:120, :160].astype(np.float64)
    frames = [Pyramid(np.clip(SHADINGS[name](u, v), 0, 255).astype(np.uint8), unit) for name in (first, second)]
    points = rng.uniform(0, [159, 119], (80, 2)).astype(np.float32)
    seen = points + rng.normal(0, 2, points.shape).astype(np.float32)
    placed = refine_points(frames[0], frames[1], points, seen[:50])
    assert np.isfinite(placed.points).all()
    assert np.isfinite(placed.covariances).all()
    assert (np.linalg.eigvalsh(placed.covariances) > 0).all()


def test_diverged_backward_refinement_gives_finite_results(image, points, monkeypatch):
    """Squared, its length is more than a float32 holds: times False, that was NaN."""
    def lost(*given):
        fit = find_patches(*given)
        fit.backward[:, ::3] = 1e25
        fit.points[:, 1::3] = np.nan
        return fit

    monkeypatch.setattr(placement, 'find_patches', lost)
    found, covariances = place(image, image, points, points + np.float32(0.5))
    assert np.isfinite(found).all()
    assert np.isfinite(covariances).all()
    np.testing.assert_allclose(sigmas(covariances)[1::3], UNREFINED_PX, rtol=1e-3)


def test_what_is_not_finite_is_where_the_match_was():
    placed = Refined(np.float32([[1, 2], [np.nan, 4], [5, 6]]), unrefined(3))
    placed.covariances[2, 0, 1] = np.inf
    matched = np.float32([[9, 9], [8, 8], [7, 7]])
    found = placed.with_fallback(matched, 2.0)
    np.testing.assert_array_equal(found.points, [[1, 2], [8, 8], [7, 7]])
    np.testing.assert_allclose(sigmas(found.covariances), [0.5, 2 * UNREFINED_PX, 2 * UNREFINED_PX])
    assert np.isnan(placed.points[1, 0]), 'what was given is left alone'


def test_threads_do_not_write_into_each_other_s_patches(image, points):
    views = [moved(image, angle, 1.0)[0] for angle in (1, 2, 3, 4)]
    alone = [place(image, view, points, points) for view in views]
    found = [[] for _ in views]

    def work(number):
        found[number] += [place(image, views[number], points, points) for _ in range(10)]
    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(views))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for expected, mine in zip(alone, found, strict=True):
        for each in mine:
            np.testing.assert_array_equal(each.points, expected.points)


BLAS_AT_WORK = """
import time
import cv2
import numpy as np
from lightglue_trt_ros.core.refinement import Pyramid, refine_points
from lightglue_trt_eval.predict.methods import updated
from lightglue_trt_ros.core.refinement.variance_factor import VarianceFactor
cv2.setNumThreads(1)
rng = np.random.default_rng(0)
frames = [Pyramid(cv2.GaussianBlur(rng.integers(0, 256, (480, 640), dtype=np.uint8), (0, 0), 2)) for _ in range(2)]
points = rng.uniform(20, 400, (1000, 2)).astype(np.float32)
factor = VarianceFactor()
def work():
    for _ in range(20):
        placed = refine_points(*frames, points, points[:800] + 1)
        updated(factor, points[:800], placed.points[:800], placed.covariances[:800])
work()
time.sleep(0.3)
all_threads, mine = time.process_time(), time.thread_time()
work()
print((time.process_time() - all_threads) / (time.thread_time() - mine))
"""


@pytest.mark.slow
def test_no_thread_of_blas_is_woken():
    """They wait busily for small products: on many cores that was most of the time that placement took."""
    done = subprocess.run([sys.executable, '-c', BLAS_AT_WORK], env=environment(OPENBLAS_NUM_THREADS='4'), capture_output=True,
                          text=True, check=True)
    assert float(done.stdout) < 1.2


def test_a_camera_that_stands_still_costs_no_search_for_its_geometry():
    """Every fundamental matrix fits: rounds would wander among them."""
    points = np.random.default_rng(0).uniform(0, 400, (200, 2)).astype(np.float32)
    shifts = np.random.default_rng(1).uniform((-20, -1), (20, 1), (200, 2)).astype(np.float32)

    def calls(there):
        """Of functions, Python's and C's: the work of the rounds, whatever else the machine does."""
        events: Counter[str] = Counter()
        before = sys.getprofile()
        sys.setprofile(lambda frame, event, argument: events.update([event]))
        try:
            found = fit_epipolar(points, there, unrefined(len(points)))
        finally:
            sys.setprofile(before)
        assert all(np.isfinite(values).all() for values in found[:3])
        return events['call'] + events['c_call']

    assert calls(points) < 0.6 * calls(points + shifts)


def test_of_the_weighted_fit_and_the_sampled_one_the_better_is_taken():
    """The sampled geometry is that of exact points, whose covariances are large; most points go another way."""
    (first, second, covariances), (others, gone, _) = scene(130, 0.5, 2), scene(90, 1e-3, 52)
    rolled = (gone - [320, 240]) @ cv2.Rodrigues(np.array([0, 0, 0.3]))[0][:2, :2].T + [380, 210]
    points0, points1 = np.concatenate([first, others]), np.concatenate([second, rolled])
    given = points0, points1, np.concatenate([covariances, np.tile(25 * np.eye(2), (90, 1, 1))])
    weighted, both = (fit_epipolar(*given, 0.1, limit) for limit in (np.inf, 0.0))
    np.testing.assert_array_equal(both.distances, weighted.distances)


def test_large_images_have_inliers_as_far_off_as_their_pixels_are_small():
    first, second, covariances = scene(400, 5.0)
    large, small = (epipolar_residuals(first, second, covariances / 400, unit, math.inf) for unit in (4.0, 1.0))
    assert large.inliers > 1.3 * small.inliers
    assert large.quantile > 2 * small.quantile


def test_exact_frames_without_layers_do_not_lower_the_fit_limit():
    factor = VarianceFactor()
    for _ in range(10):
        factor.add(NORMAL, 300)
    limit = factor.fit_limit
    for _ in range(30):
        factor.add(0.2 * NORMAL, 300, by_layers=False)
    assert factor.fit_limit == limit
    assert factor.value < 0.3
    factor.add(0.2 * NORMAL, 300)
    assert factor.fit_limit < limit


def test_limit_of_layers_is_the_largest_where_only_exact_frames_were_seen():
    factor = VarianceFactor()
    assert factor.fit_limit == 0
    factor.add(0.2 * NORMAL, 300, by_layers=False)
    assert factor.fit_limit == HALF * MOST
