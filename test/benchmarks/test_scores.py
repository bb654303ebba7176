"""Scores: errors from true positions, by depth and by epipolar lines, with a fitted motion, and the calibration error."""

from __future__ import annotations

import json

import cv2
import numpy as np
import pytest
from support.evaluated_bags import CAMERA, HEIGHT, WIDTH, make_bag
from support.matches import frame_matches

from benchmarks.__main__ import main
from benchmarks.scores import JudgedMatches, calibration, judge
from lightglue_trt_eval.predict.scene import Scene, Timeline
from lightglue_trt_ros.core.depth import DepthImage
from lightglue_trt_ros.core.types import FrameMatches

COUNT, PLANE_M, STEP_M = 400, 2.0, 0.3
DEPTH = DepthImage(np.full((HEIGHT, WIDTH), PLANE_M, np.float32), 1.0, CAMERA)


def scene(turned_deg: float = 0.0) -> Scene:
    """A step to the right, and poses whose second one is wrong by an angle."""
    poses = np.tile(np.eye(4), (2, 1, 1))
    poses[1, 0, 3] = STEP_M
    poses[1, :3, :3] = cv2.Rodrigues(np.radians([turned_deg, 0.0, 0.0]))[0]
    return Scene(Timeline(np.arange(2), np.arange(2) * 10**8, np.zeros(2, int), 1.0), CAMERA, poses)


def matches(shift: tuple[float, float], depth: DepthImage | None) -> FrameMatches:
    """Of points on a plane, or at any depth where there is no depth image; each fourth is unsure, and off by `shift`."""
    random = np.random.default_rng(0)
    before = random.uniform([30, 10], [WIDTH - 10, HEIGHT - 10], (COUNT, 2)).astype(np.float32)
    metres = np.full(COUNT, PLANE_M) if depth is not None else random.uniform(1, 5, COUNT)
    now = before - np.stack([CAMERA.k[0, 0] * STEP_M / metres, np.zeros(COUNT)], axis=1).astype(np.float32)
    now[::4] += np.float32(shift)
    scores = np.where(np.arange(COUNT) % 4 == 0, 0.3, 0.95).astype(np.float32)
    return frame_matches(now, before, scores=scores, covariances=np.tile(np.eye(2, dtype=np.float32), (COUNT, 1, 1)))


@pytest.mark.parametrize('depth', [DEPTH, None])
@pytest.mark.parametrize('shift', [(0.0, 5.0), (5.0, 0.0)])
def test_errors_are_distances_from_the_true_position_or_its_line(depth, shift):
    found = judge(scene(), (0, 1), matches(shift, depth), depth)
    off = 5.0 if depth is not None or shift[1] else 0.0  # a shift along its line is not seen without depth
    for errors in (found.recorded, found.fitted):
        np.testing.assert_allclose(errors[::4], off, atol=0.02 if depth is not None else 0.3)
        np.testing.assert_allclose(np.delete(errors, np.s_[::4]), 0, atol=0.1)


@pytest.mark.parametrize('depth', [DEPTH, None])
def test_a_wrong_pose_moves_the_recorded_errors_and_not_the_fitted_ones(depth):
    found = judge(scene(3.0), (0, 1), matches((0.0, 9.0), depth), depth)
    assert np.median(found.recorded) > 3
    assert np.median(np.delete(found.fitted, np.s_[::4])) < 0.1
    assert found.fitted[::4].min() > 3


def test_points_of_unknown_depth_and_pairs_without_poses_are_left_out():
    half = DEPTH.pixels.copy()
    half[:, WIDTH // 2:] = 0
    assert 0 < len(judge(scene(), (0, 1), matches((0, 0), DEPTH), DEPTH._replace(pixels=half)).scores) < COUNT
    unknown = scene()
    unknown.poses = None
    assert judge(unknown, (0, 1), matches((0, 0), DEPTH), DEPTH) is None


def test_probabilities_have_no_calibration_error_and_boasts_have_theirs():
    random = np.random.default_rng(0)
    scores = random.uniform(0, 1, 50_000).astype(np.float32)
    wrong = np.where(random.uniform(size=len(scores)) < scores, 0.5, 9.0)
    found = calibration([JudgedMatches(scores, wrong, np.zeros(len(scores)))])
    assert found['recorded_error'] < 0.01
    assert found['recorded_right'] == pytest.approx(0.5, abs=0.01)
    assert (found['fitted_right'], found['fitted_error']) == (1, pytest.approx(0.5, abs=0.01))
    assert sum(count for count, _, _ in found['recorded_curve']) == found['matches'] == len(scores)


@pytest.mark.networks
def test_the_command_prints_a_row_for_each_stride(tmp_path, capsys):
    asked = ['scores', '--data', str(make_bag(tmp_path / 'bag')), '--backend', 'onnxruntime', '--height', '96', '--width', '128',
             '--max-keypoints', '64', '--weights', 'ours_light']
    assert main([*asked, '--strides', '1,2', '--json', str(tmp_path / 'found.json')]) == 0
    assert 'the true epipolar line, an upper bound' in capsys.readouterr().out
    once, twice = json.loads((tmp_path / 'found.json').read_text())['scores']['rows']
    assert (once['pairs'], twice['pairs']) == (7, 3)
    assert 0.5 < once['recorded_right'] <= 1
    assert 0 < once['score'] < 1
    assert main([*asked, '--strides', '20']) == 1
    assert 'no two frames 20 apart' in capsys.readouterr().err
