"""The most likely pose: derivatives, points behind a camera, and scenes that leave several poses open."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from lightglue_trt_ros.odometry import likelihood
from lightglue_trt_ros.odometry.likelihood import Residuals, most_likely
from lightglue_trt_ros.odometry.pose_covariance import cross_matrix
from lightglue_trt_ros.odometry.two_view import estimate_relative_pose, pose_auc, pose_error_deg

K = np.array([[500.0, 0, 320], [0, 500, 240], [0, 0, 1]])
SEEDS = range(20)


def slanted_plane(seed, off=0.06, baseline=0.12, sigma=0.1, count=400):
    """Pixels of both views, their covariances and the pose: points on a plane 4 m away, and a share `off` of them before it."""
    rng = np.random.default_rng(seed)
    pixels0 = rng.uniform([0, 0], [640, 480], (count, 2))
    rays = homogeneous(pixels0) @ np.linalg.inv(K).T
    depths = 1 / (0.25 + 0.12 * rays[:, 0] + 0.2 * rays[:, 1])
    before = rng.random(count) < off
    depths[before] *= rng.uniform(0.6, 0.95, before.sum())
    direction, rotation = rng.normal(size=3), cv2.Rodrigues(rng.normal(0, 0.02, 3))[0]
    direction /= np.linalg.norm(direction)
    seen = rays * depths[:, None] @ rotation.T + baseline * direction
    sigmas = sigma * np.exp(rng.normal(0, 0.5, count))
    pixels1 = (seen / seen[:, 2:] @ K.T)[:, :2] + rng.normal(size=(count, 2)) * sigmas[:, None]
    return pixels0, pixels1, sigmas[:, None, None]**2 * np.eye(2), rotation, direction


def turned_plane(seed, count=150):
    """The same for points on a plane 2 m away, which the camera goes around by 30 degrees."""
    rng = np.random.default_rng(seed)
    axis = rng.normal(size=3) * [1, 1, 0.3]
    rotation = cv2.Rodrigues(np.pi / 6 * axis / np.linalg.norm(axis))[0]
    rays = homogeneous(rng.uniform(0, [640, 480], (count, 2))) @ np.linalg.inv(K).T
    points = rays * (2 / (rays @ [*rng.normal(0, 0.4, 2), 1]))[:, None]
    translation = [0, 0, 2] - 2 * rotation[:, 2] + rng.normal(0, 0.2, 3)
    seen = points @ rotation.T + translation
    sigmas = np.exp(rng.normal(np.log(0.25), 0.5, count))
    pixels0, pixels1 = ((each / each[:, 2:] @ K.T)[:, :2] for each in (points, seen))
    pixels1 += rng.normal(size=(count, 2)) * sigmas[:, None]
    shown = (points[:, 2] > 0.2) & (seen[:, 2] > 0.2)
    return (pixels0[shown], pixels1[shown], (sigmas**2)[shown, None, None] * np.eye(2), rotation,
            translation / np.linalg.norm(translation))


def two_planes(seed, count=400):
    """The same for half of the points on a wall, half on the ground; 40 % of all stand, as dirt on the lens does."""
    rng = np.random.default_rng(seed)
    pixels0 = rng.uniform([0, 0], [640, 480], (count, 2))
    rays = homogeneous(pixels0) @ np.linalg.inv(K).T
    wall, ground = rays @ [0.1, 0.05, 0.25], np.maximum(rays @ [-0.05, 0.6, 0.12], 0.05)
    depths = 1 / np.where(rng.random(count) < 0.5, wall, ground)
    direction, rotation = rng.normal(size=3), cv2.Rodrigues(rng.normal(0, 0.05, 3))[0]
    direction /= np.linalg.norm(direction)
    seen = rays * depths[:, None] @ rotation.T + 0.15 * direction
    sigmas, stands = 0.4 * np.exp(rng.normal(0, 0.5, count)), rng.random(count) < 0.4
    pixels1 = np.where(stands[:, None], pixels0, (seen / seen[:, 2:] @ K.T)[:, :2]) + rng.normal(size=(count, 2)) * sigmas[:, None]
    return pixels0, pixels1, sigmas[:, None, None]**2 * np.eye(2), rotation, direction


def homogeneous(points):
    return np.column_stack([points, np.ones(len(points))])


def residuals_of(pixels0, pixels1, covariances):
    x0, x1 = (homogeneous(pixels) @ np.linalg.inv(K).T for pixels in (pixels0, pixels1))
    return Residuals(x0, x1, covariances / K[0, 0]**2, np.zeros((1, 2, 2)))


@pytest.mark.parametrize('scene', [{}, {'off': 0.03}, {'baseline': 0.06}, {'off': 0.1, 'baseline': 0.04},
                                   {'off': 0.03, 'baseline': 0.2, 'sigma': 0.2}], ids=str)
def test_near_a_plane_no_pose_is_far_from_the_truth(scene):
    """From RANSAC's pose alone, 3 to 8 of the 20 are more than 5 degrees off, up to 90."""
    errors = []
    for seed in SEEDS:
        pixels0, pixels1, covariances, *true = slanted_plane(seed, **scene)
        found = estimate_relative_pose(pixels0, pixels1, K, K, covariances)
        errors.append(max(pose_error_deg(found.rotation, found.translation, *true)))
    assert max(errors) < 5
    assert pose_auc(errors)[1] > 0.95


@pytest.mark.parametrize(('share', 'most'), [(0, 2), (0.3, 1)], ids=['none wrong', 'three of ten wrong'])
def test_of_the_two_poses_of_a_plane_the_right_one_is_found(share, most):
    """A camera that goes around a plane: RANSAC's pose and its neighbours are wrong in 8 of 60.

    In 9, the wrong one fits better by more than a tenth, with points behind a camera. Of a homography that is sampled in normalised
    coordinates, 9 are wrong where three of ten matches are.
    """
    wrong = 0
    for seed in range(60):
        pixels0, pixels1, covariances, *true = turned_plane(seed)
        anywhere = round(share * len(pixels1))
        pixels1[:anywhere] = np.random.default_rng(1000 + seed).uniform([0, 0], [640, 480], (anywhere, 2))
        found = estimate_relative_pose(pixels0, pixels1, K, K, covariances)
        wrong += max(pose_error_deg(found.rotation, found.translation, *true)) > 3
    assert wrong <= most


def test_of_poses_of_a_plane_that_none_tells_apart_the_less_turned_wins():
    """A camera that passes by a plane and turns by a degree or two: noise alone chose the wrong pose of 10."""
    wrong = 0
    for seed in range(30):
        pixels0, pixels1, covariances, *true = slanted_plane(seed, off=0, baseline=0.6)
        found = estimate_relative_pose(pixels0, pixels1, K, K, covariances)
        wrong += max(pose_error_deg(found.rotation, found.translation, *true)) > 5
    assert wrong <= 3


@pytest.mark.parametrize(('share', 'slide'), [(0.5, 0), (0.6, 40), (0.7, 40)])
def test_many_wrong_matches_do_not_choose_the_pose(share, slide):
    """They go anywhere, or along the rows as on a texture that repeats."""
    errors = []
    for seed in SEEDS:
        pixels0, pixels1, covariances, *true = slanted_plane(seed, off=0.5, baseline=0.4)
        rng, number = np.random.default_rng(1000 + seed), round(share * len(pixels1))
        anywhere, along = rng.uniform([0, 0], [640, 480], (number, 2)), [slide, 0] * rng.uniform(0, 2, (number, 1))
        pixels1[:number] = pixels0[:number] + along + rng.normal(0, 3, (number, 2)) if slide else anywhere
        found = estimate_relative_pose(pixels0, pixels1, K, K, covariances)
        errors.append(max(pose_error_deg(found.rotation, found.translation, *true)))
    assert max(errors) < 3


def test_derivatives_by_a_rotation_are_those_of_small_turns():
    pixels0, pixels1, covariances, rotation, direction = slanted_plane(1)
    residuals, turns = residuals_of(pixels0, pixels1, covariances), 1e-7 * np.eye(3)
    rotations, directions = np.repeat(rotation[None], 3, 0), np.repeat(direction[None], 3, 0)
    distances, slopes = residuals.turning(rotations, directions)
    np.testing.assert_allclose(distances[0], residuals.at(cross_matrix(direction) @ rotation)[0], rtol=1e-9)
    turned = residuals.turning(np.stack([cv2.Rodrigues(turn)[0] @ rotation for turn in turns]), directions)[0]
    numeric = (turned - distances) / 1e-7
    across = np.abs(numeric.T - slopes[0])  # the lengths of the lines, which change little, count as constant
    assert np.median(across) < 0.02 * np.median(np.abs(slopes[0]))


def test_of_opposite_depths_the_one_before_the_cameras_costs_less():
    """Points before a camera that moves sideways; were the motion the opposite one, they would be behind it."""
    pixels0, _, covariances, *_ = slanted_plane(2)
    rays = homogeneous(pixels0) @ np.linalg.inv(K).T
    sideways, still = np.array([1.0, 0, 0]), np.eye(3)
    near = rays * 4 + 0.1 * sideways
    mixed = near.copy()
    mixed[::2] -= 0.2 * sideways
    costs = [residuals_of(pixels0, (seen / seen[:, 2:] @ K.T)[:, :2], covariances).costs(still[None], sideways[None])[1][0]
             for seen in (near, rays * 4 - 0.1 * sideways, mixed)]
    assert costs[:2] == pytest.approx([0, 0], abs=1e-9), 'either direction is right for one of both'
    assert costs[2] > len(rays), 'half the points are behind, whichever it is'


def test_most_likely_of_a_right_start_stays_there():
    pixels0, pixels1, covariances, rotation, direction = slanted_plane(3, off=0.5, baseline=0.4)
    found = most_likely(rotation, direction, residuals_of(pixels0, pixels1, covariances))
    assert max(pose_error_deg(*found, rotation, direction)) < 0.5


def test_other_starts_are_refined_where_the_given_one_is_wrong():
    """From the given direction alone 9 of the 20 are wrong; the best of 48 directions is up to 4 degrees off."""
    errors = []
    for seed in range(20):
        pixels0, pixels1, covariances, rotation, direction = slanted_plane(seed, off=0.5, baseline=0.06, sigma=0.2)
        found = most_likely(rotation, np.array([0.0, 0, 1]), residuals_of(pixels0, pixels1, covariances))
        errors.append(max(pose_error_deg(*found, rotation, direction)))
    assert max(errors) < 1.5


def test_a_second_plane_begins_where_standing_points_mislead_the_others():
    errors = []
    for seed in range(30):
        pixels0, pixels1, covariances, rotation, direction = two_planes(seed)
        found = estimate_relative_pose(pixels0, pixels1, K, K, covariances)
        errors.append(max(pose_error_deg(found.rotation, found.translation, rotation, direction)))
    assert np.count_nonzero(np.array(errors) > 5) <= 4, 'without it 6 or more of them are wrong'


def test_sides_choose_among_poses_that_fit_alike_and_no_others(monkeypatch):
    pixels0, pixels1, covariances, rotation, direction = slanted_plane(3, off=0.5, baseline=0.4)
    residuals = residuals_of(pixels0, pixels1, covariances)
    costs = Residuals.costs
    monkeypatch.setattr(Residuals, 'costs', lambda *args: (costs(*args)[0], -costs(*args)[0]))  # the worst fit has the best sides
    found = most_likely(rotation, direction, residuals)
    assert max(pose_error_deg(*found, rotation, direction)) < 0.5


@pytest.mark.parametrize(('off', 'decide'), [(0.5, False), (0, True)], ids=['half of the points off it', 'a plane'])
def test_sides_decide_beyond_poses_that_fit_alike_only_on_a_plane(monkeypatch, off, decide):
    """As wrong matches are on either side of a right pose; a wrong one, far turned, may have all points on one."""
    pixels0, pixels1, covariances, rotation, direction = slanted_plane(3, off=off, baseline=0.4)
    costs = Residuals.costs
    monkeypatch.setattr(Residuals, 'costs', lambda *args: (costs(*args)[0], -costs(*args)[0]))
    monkeypatch.setattr(likelihood, 'NEARLY', 1e9)
    found = most_likely(rotation, direction, residuals_of(pixels0, pixels1, covariances))
    assert (max(pose_error_deg(*found, rotation, direction)) > 5) == decide


@pytest.mark.filterwarnings('error')
@pytest.mark.parametrize('kind', ['one point', 'one point in both', 'a row', 'no motion', 'a shift', 'anywhere', 'half a turn'])
def test_degenerate_correspondences_give_a_finite_pose_or_none(kind):
    rng = np.random.default_rng(0)
    for count in (6, 40):
        before = rng.uniform(0, 600, (count, 2))
        if kind.startswith('one point'):
            before[:] = before[0]
        if kind == 'a row':
            before[:, 1] = 100
        move = {'one point in both': 3.0, 'a row': rng.normal(0, 5, (count, 1)) * [1, 0], 'no motion': 0.0, 'a shift': [20, 0],
                'anywhere': rng.uniform(-1e4, 1e4, (count, 2)), 'half a turn': [640, 480] - 2 * before}
        after = before + move.get(kind, rng.normal(0, 5, (count, 2)))
        for covariances in (None, np.exp(rng.normal(0, 3, count))[:, None, None] * np.eye(2)):
            found = estimate_relative_pose(before, after, K, K, covariances)
            if found is not None:
                assert np.isfinite(found.translation).all()
                assert np.linalg.det(found.rotation) == pytest.approx(1)
