"""Stereo without ROS: two cameras on one plane, points of a frame in its right image, and what is told of a pair that is none."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from support.counted_backend import CountedBackend
from support.stereo_pairs import BASELINE, DISPARITY, FOCAL, HEIGHT, WIDTH, K, camera, plain_rig, turned, wall_pairs

from lightglue_trt_ros.core.cameras import StereoRig, normalised
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.frame_matcher import FrameMatcher
from lightglue_trt_ros.core.stereo import RightImage, check_epipolar
from lightglue_trt_ros.core.types import FrameMatches
from lightglue_trt_ros.networks.models import load_model
from lightglue_trt_ros.utils.errors import BagError

pytestmark = pytest.mark.stereo
CONFIG = MatcherConfig(image_height=HEIGHT, image_width=WIDTH, max_keypoints=200, backend='onnxruntime')
TURN = cv2.Rodrigues(np.radians([1.5, -1.0, 2.0]))[0]  # of the right camera's axes


@pytest.fixture(scope='module')
def backend():
    return CountedBackend(CONFIG.engine_spec('fp32'), load_model('ours'), threads=2)


def test_unrectified_stereo_points_map_to_the_rectified_plane():
    """Two cameras of different lenses, each turned, by OpenCV's own projection and rectification."""
    turn, place = cv2.Rodrigues(np.array([0.02, -0.05, 0.03]))[0], np.array([-0.3, 0.01, 0.02])  # right from left
    barrel, kr = np.array([-0.2, 0.05, 0.001, -0.002, 0.0]), np.array([[210.0, 0, 120], [0, 212.0, 95], [0, 0, 1]])
    r0, r1, _, p1, *_ = cv2.stereoRectify(K, barrel, kr, np.zeros(5), (WIDTH, HEIGHT), turn, place[:, None])
    rig = StereoRig(camera(d=barrel, r=r0), camera(k=kr, r=r1, shift_m=-p1[0, 3] / p1[0, 0]))
    assert rig.baseline_m == pytest.approx(np.linalg.norm(place))
    points = np.random.default_rng(0).uniform([-1, -0.8, 2], [1, 0.8, 9], (50, 3))
    left = cv2.projectPoints(points, np.zeros(3), np.zeros(3), K, barrel)[0].reshape(-1, 2)
    right = cv2.projectPoints(points, cv2.Rodrigues(turn)[0], place, kr, np.zeros(5))[0].reshape(-1, 2)
    here, there = rig.left_points(left), rig.right_points(right)
    np.testing.assert_allclose(here[:, 1], there[:, 1], atol=1e-5)
    np.testing.assert_allclose(rig.baseline_m / (here[:, 0] - there[:, 0]), (points @ r0.T)[:, 2], rtol=1e-3)
    across = np.array([[0, -place[2], place[1]], [place[2], 0, -place[0]], [-place[1], place[0], 0]])
    by_matrix = r1.T @ np.array([[0, 0, 0], [0, 0, rig.baseline_m], [0, -rig.baseline_m, 0]]) @ r0
    np.testing.assert_allclose(by_matrix, across @ turn, atol=1e-9)  # the essential matrix, as the rig has it


@pytest.mark.parametrize(('left', 'right', 'told'), [
    ({'shift_m': 0.2}, {}, r'swapped.* 0\.200 m to the left'), ({}, {}, r'P\[3\] of the right one'),
    ({}, {'shift_m': float('nan')}, 'not finite'), ({}, {'shift_m': 0.2, 'r': 2 * np.eye(3)}, 'R of the right camera'),
    ({'r': np.full((3, 3), np.nan)}, {'shift_m': 0.2}, 'R of the left camera')])
def test_what_is_no_rig_is_refused(left, right, told):
    with pytest.raises(BagError, match=told):
        StereoRig(camera(**left), camera(**right))


def test_points_off_their_lines_and_behind_the_cameras_are_not_believed():
    left = np.array([[100, 50], [100, 60], [100, 70], [100, 80], [100, 90]], np.float32)
    right = np.array([[90, 50.9], [90, 63], [103, 70], [np.nan, np.nan], [99.5, 89]], np.float32)
    covariances = np.tile(np.diag([0.04, 1]).astype(np.float32), (5, 1, 1))
    found = check_epipolar(plain_rig(), left, right, covariances)
    np.testing.assert_array_equal(np.isfinite(found.points[:, 0]), [True, False, False, False, True])
    np.testing.assert_array_equal(found.points[[0, 4]], right[[0, 4]])
    assert not found.note
    assert np.isfinite(check_epipolar(plain_rig(), left, right, covariances, unit=3.0).points[1, 0]), 'larger images are less exact'


@pytest.mark.parametrize('turned', [0.0, 0.1, 0.4])
def test_points_on_epipolar_lines_are_triangulated_in_left_camera_axes(turned):
    """Each with the deviation of its depth, by that of its column; also where the cameras are turned against the rectified axes."""
    turn = cv2.Rodrigues(np.array([0, turned, 0.02]))[0]
    rig = StereoRig(camera(r=turn), camera(r=turn, shift_m=0.2))
    points = np.random.default_rng(0).uniform([-1, -1, 3], [1, 1, 9], (50, 3))  # left camera's axes
    left = points @ rig.left.k.T
    right = (points - turn.T @ [0.2, 0, 0]) @ rig.left.k.T
    left, right = (each[:, :2] / each[:, 2:] for each in (left, right))
    covariances = np.tile(np.diag([0.04, 1]).astype(np.float32), (50, 1, 1))
    positions = check_epipolar(rig, left, right, covariances).positions
    np.testing.assert_allclose(positions.xyz, points, rtol=1e-4, atol=1e-4)
    below, above = (np.stack([check_epipolar(rig, left, right + step, covariances).positions.xyz[:, 2]
                              for step in sign * 0.05 * np.eye(2)]) for sign in (-1, 1))
    slopes = (above.astype(np.float64) - below) / 0.1  # of z by the right pixel
    np.testing.assert_allclose(positions.sigma_z, np.sqrt(slopes[0]**2 * 0.04 + slopes[1]**2), rtol=0.005)
    covariances[0, 0, 0] = np.inf
    assert not np.isfinite(check_epipolar(rig, left, right, covariances).positions.xyz[0]).any()


def shared(found: FrameMatches) -> np.ndarray:
    assert found.right_keypoints is not None
    return np.isfinite(found.right_keypoints[:, 0])


@pytest.mark.networks
def test_stereo_extracts_each_image_once_and_tracks_as_mono(backend):
    pairs, frames = wall_pairs(5), FrameMatcher(backend, CONFIG)
    backend.extracted.clear()
    backend.matched = 0
    found = [frames.process(left, 0.1 * number, RightImage(right, plain_rig())) for number, (left, right) in enumerate(pairs)]
    assert found[0] is None
    assert len(backend.extracted) == 9, 'no image twice, and the right one of a frame without a reference not at all'
    assert set(backend.extracted) == {int(image.sum()) for pair in pairs for image in pair} - {int(pairs[0][1].sum())}
    assert backend.matched == 8
    alone = FrameMatcher(backend, CONFIG)
    for number, (left, _) in enumerate(pairs):
        mono = alone.process(left, 0.1 * number)
        if mono is not None:
            assert mono.right_keypoints is None
            for name in ('keypoints', 'reference_keypoints', 'scores', 'track_ids', 'track_lengths', 'covariances', 'carried'):
                np.testing.assert_array_equal(getattr(found[number], name), getattr(mono, name))
    for each in found[1:]:
        known = shared(each)
        assert known.mean() > 0.8
        apart = each.keypoints[known] - each.right_keypoints[known]
        assert np.median(np.linalg.norm(apart - [DISPARITY, 0], axis=1)) < 0.1
        assert {'extract right', 'match right'} <= set(each.stage_ms)
    assert shared(found[4])[found[4].carried > 0].any(), 'carried points are looked for too'


@pytest.mark.networks
def test_a_missing_right_image_costs_that_frames_right_points_alone(backend):
    pairs, frames = wall_pairs(4), FrameMatcher(backend, CONFIG)
    found = [frames.process(left, 0.1 * number, None if number == 2 else RightImage(right, plain_rig()))
             for number, (left, right) in enumerate(pairs)][1:]
    assert found[1].right_keypoints is None
    assert np.isnan(found[1].without_right().right_keypoints).all()
    assert found[1].without_right().right_keypoints.shape == (len(found[1]), 2)
    assert shared(found[0]).any()
    assert shared(found[2]).any()
    assert len(set(found[0].track_ids) & set(found[1].track_ids) & set(found[2].track_ids)) > 30


@pytest.mark.networks
def test_a_right_camera_that_is_turned_is_matched_along_its_epipolar_lines(backend):
    pairs, frames = wall_pairs(2), FrameMatcher(backend, CONFIG)
    rig = StereoRig(camera(), camera(r=TURN.T, shift_m=BASELINE))
    for number, (left, right) in enumerate(pairs):
        found = frames.process(left, 0.1 * number, RightImage(turned(right, TURN), rig))
    known = shared(found)
    assert known.mean() > 0.7
    assert np.median(np.abs(found.keypoints[known, 1] - found.right_keypoints[known, 1])) > 3, 'no rows of the images'
    here, there = rig.left_points(found.keypoints[known]) * FOCAL, rig.right_points(found.right_keypoints[known]) * FOCAL
    assert np.median(np.linalg.norm(here - there - [DISPARITY, 0], axis=1)) < 0.15
    np.testing.assert_allclose(normalised(found.keypoints[known], rig.left) * FOCAL, here, atol=1e-3)
    frames = FrameMatcher(backend, CONFIG)
    for number, (left, right) in enumerate(pairs):  # taken for rectified
        found = frames.process(left, 0.1 * number, RightImage(turned(right, TURN), plain_rig()))
    assert shared(found).mean() < 0.3


@pytest.mark.networks
def test_swapped_images_are_told_by_the_sign_of_their_disparities(backend):
    frames = FrameMatcher(backend, CONFIG)
    for number, (left, right) in enumerate(wall_pairs(2)):
        found = frames.process(right, 0.1 * number, RightImage(left, plain_rig()))
    assert 'left and right look swapped: ' in found.note
    assert not shared(found).any()


@pytest.mark.networks
@pytest.mark.parametrize('refinement', ['patches', 'none'])
def test_a_right_image_that_shows_nothing_of_the_left_one(backend, refinement):
    frames = FrameMatcher(backend, MatcherConfig(**{**vars(CONFIG), 'refinement': refinement}))
    for number, (left, _) in enumerate(wall_pairs(2)):
        found = frames.process(left, 0.1 * number, RightImage(np.zeros_like(left), plain_rig()))
    assert len(found) > 50
    assert not shared(found).any()
