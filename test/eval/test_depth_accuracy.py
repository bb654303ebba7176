"""The figures of depth images: exact ones give no errors, errors that are put in come out, and reports show them."""

from __future__ import annotations

import dataclasses
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

pytest.importorskip('rosbags', reason='bags need the Python package rosbags')

from support.evaluated_bags import CAMERA, HEIGHT, PERIOD, START, WIDTH, figures, make_bag
from support.matches import frame_matches
from support.moving_camera import BASELINE, FOCAL, SIZE, poses_of, steps
from support.schemas import violations

from lightglue_trt_eval.baselines import MatchedPoints
from lightglue_trt_eval.cli.evaluate_bag import main
from lightglue_trt_eval.fleet.plan import Installation, make_plan
from lightglue_trt_eval.images.degradation import degraded_depth
from lightglue_trt_eval.options import OWN_DEPTH_IMAGES, EvaluationOptions, add_evaluation_options
from lightglue_trt_eval.predict.frames import ShownDepth
from lightglue_trt_eval.predict.predictions import Prediction
from lightglue_trt_eval.predict.run import located_before
from lightglue_trt_eval.score.depth_accuracy import DepthScore
from lightglue_trt_ros.core.cameras import Intrinsics, normalised
from lightglue_trt_ros.core.depth import NOISE, DepthImage, Positions, locate
from lightglue_trt_ros.core.types import FrameMatches

FOCAL_K = np.array([[FOCAL, 0, SIZE[0] / 2], [0, FOCAL, SIZE[1] / 2], [0, 0, 1]])
PLANE = np.array([0.1, -0.2, 1.0]), 3.0  # points X with normal X = distance, in the axes of the first camera


def motion() -> np.ndarray:
    """(4, 4) first camera from second: 0.3 m forward, and a turn."""
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = cv2.Rodrigues(np.radians([1.0, -3.0, 2.0]))[0], (0.05, -0.02, 0.3)
    return pose


def depth_of(pose: np.ndarray) -> DepthImage:
    """What a camera at `pose` has as depth of the plane."""
    pixels = np.stack(np.meshgrid(np.arange(WIDTH), np.arange(HEIGHT)), axis=-1).reshape(-1, 2)
    rays = np.column_stack([normalised(pixels, CAMERA), np.ones(len(pixels))]) @ pose[:3, :3].T
    z = (PLANE[1] - PLANE[0] @ pose[:3, 3]) / (rays @ PLANE[0])
    return DepthImage(z.reshape(HEIGHT, WIDTH).astype(np.float32), 1.0, CAMERA)


def matches_of(given: DepthImage | None, scale: float = 1.0, count: int = 4000) -> FrameMatches:
    """Exact matches of points on the plane, with the depth of the second image."""
    rng, pose = np.random.default_rng(0), motion()
    before = rng.uniform([10, 10], [WIDTH - 10, HEIGHT - 10], (count, 2)).astype(np.float32)
    points = locate(depth_of(np.eye(4)), before, np.zeros((count, 2, 2), np.float32)).xyz.astype(np.float64)
    in_second = (points - pose[:3, 3]) @ pose[:3, :3]
    now = (in_second[:, :2] / in_second[:, 2:] * CAMERA.k[[0, 1], [0, 1]] + CAMERA.k[:2, 2]).astype(np.float32)
    covariances = np.tile(np.eye(2, dtype=np.float32) * 1e-6, (count, 1, 1))
    positions = None if given is None else locate(given, now, covariances)
    return frame_matches(now, before, covariances=covariances,
                         xyz=None if positions is None else positions.xyz * np.float32(scale),
                         sigma_z=None if positions is None else positions.sigma_z)


def located(matches: FrameMatches, reference: DepthImage | None) -> Positions | None:
    """As an evaluation keeps them."""
    shown = None if reference is None else ShownDepth(reference, reference)
    return located_before(Prediction(MatchedPoints.none(), published=matches), shown)


def figures_of(matches: FrameMatches, reference: DepthImage | None, true: np.ndarray | None = None) -> dict[str, float]:
    score = DepthScore(CAMERA)
    score.add(None, None, None, np.eye(4))
    score.add(matches, located(matches, reference), np.eye(4), motion() if true is None else true)
    return score.figures()


def test_exact_depth_has_no_error() -> None:
    found = figures_of(matches_of(depth_of(motion())), depth_of(np.eye(4)))
    assert 95 < found['depth_points'] <= 100, 'some points leave the image'
    assert found['depth_error_p90'] < 0.02
    assert found['depth_within_1_sigma'] == found['depth_within_2_sigma'] == 100


def test_errors_come_out_as_they_were_put_in() -> None:
    longer = figures_of(matches_of(depth_of(motion()), scale=1.02), depth_of(np.eye(4)))
    assert longer['depth_error_p50'] == pytest.approx(2, abs=0.03)
    assert longer['depth_error_p90'] == pytest.approx(2, abs=0.03)
    assert longer['depth_within_1_sigma'] == 0, 'two percent are more than a quarter of a percent a metre'
    standing = figures_of(matches_of(depth_of(motion())), depth_of(np.eye(4)), true=np.eye(4))
    assert standing['depth_error_p50'] > 5, 'the camera did move'


def test_deviations_count_those_of_both_depth_images() -> None:
    """Noise on the newer image alone, on both, and on both while the older one is taken for exact."""
    exact, noisy = depth_of(np.eye(4)), degraded_depth(depth_of(np.eye(4)), 'depth_noise', seed=1)
    matches = matches_of(degraded_depth(depth_of(motion()), 'depth_noise'))
    one, both, half = (figures_of(matches, each) for each in (exact._replace(noise=0.0), noisy, noisy._replace(noise=0.0)))
    for found in (one, both):
        assert 64 < found['depth_within_1_sigma'] < 74
        assert 92 < found['depth_within_2_sigma'] < 98
    assert half['depth_within_1_sigma'] < 60
    assert one['depth_error_p50'] == pytest.approx(100 * 0.6745 * NOISE * 2.7, rel=0.15), 'half of all normal errors are below'


def advice_of(matches: FrameMatches, true: np.ndarray | None = None) -> str:
    score = DepthScore(CAMERA)
    score.add(None, None, None, np.eye(4))
    score.add(matches, located(matches, depth_of(np.eye(4))), np.eye(4), motion() if true is None else true)
    return score.advice


@pytest.mark.parametrize(('scale', 'line'), [
    (1.0, ''), (1.005, ''),
    (1.05, '0 % of the depths are within two standard deviations of those of the frame before after the true motion'),
    (10.0, 'in 1 of 1 frames, first in frame 1, points are 9 times'), (0.2, 'in 1 of 1 frames, first in frame 1, points are 0.1')])
def test_depth_that_contradicts_the_frame_before_is_named(scale: float, line: str) -> None:
    found = advice_of(matches_of(depth_of(motion()), scale))
    assert found.startswith(line)
    assert bool(found) == bool(line)


def test_wrong_matches_and_standing_cameras_blame_no_depth() -> None:
    matches = matches_of(depth_of(motion()))
    wrong = matches.reference_keypoints.copy()
    wrong[:1600] = np.roll(wrong[:1600], 7, axis=0)
    assert advice_of(dataclasses.replace(matches, reference_keypoints=wrong)) == ''
    before = depth_of(np.eye(4))
    positions = locate(before, wrong, matches.covariances)
    assert advice_of(dataclasses.replace(matches, keypoints=wrong, reference_keypoints=wrong, xyz=positions.xyz,
                                         sigma_z=positions.sigma_z), np.eye(4)) == ''


@pytest.mark.slow
@pytest.mark.parametrize('scale', [1.0, 1.1])
def test_the_odometry_by_depth_is_metric(scale: float) -> None:
    """Exact tracks with exact depth; a truth that is ten percent larger is a tenth off."""
    score, poses = DepthScore(Intrinsics(*SIZE, FOCAL_K, 'plumb_bob', np.zeros(0))), poses_of(30)
    poses[:, :3, 3] *= scale
    score.add(None, None, None, poses[0])
    for number, step in enumerate(steps(poses_of(30)), 1):
        z = (BASELINE / (step.points[:, 0] - step.right_x)).astype(np.float32)
        pixels, before = (points * FOCAL + FOCAL_K[:2, 2] for points in (step.points, step.reference_points))
        score.add(frame_matches(pixels, before, step.stamp, track_ids=step.ids.astype(np.uint32),
                                covariances=np.zeros((len(z), 2, 2), np.float32),
                                xyz=np.column_stack([step.points * z[:, None], z]).astype(np.float32),
                                sigma_z=(NOISE * z * z).astype(np.float32)), None, poses[number - 1], poses[number])
    figures = score.figures()
    assert figures['depth_drift_percent'] == pytest.approx(100 * (1 - 1 / scale), abs=0.05 if scale == 1 else 1)
    assert figures['depth_drift_deg_per_m'] < 0.01
    assert figures['depth_frames_lost'] == 0
    assert score.advice.startswith('the steps by depth are 0.909 times as long as the true ones' if scale > 1 else '')
    assert bool(score.advice) == (scale > 1)


def test_without_depth_or_truth_there_is_less_to_say() -> None:
    assert figures_of(matches_of(None), depth_of(np.eye(4))) == {'depth_points': 0, 'depth_frames_lost': 1}
    for reference, true in ((None, motion()), (depth_of(np.eye(4)), None)):
        score = DepthScore(CAMERA)
        matches = matches_of(depth_of(motion()))
        score.add(matches, located(matches, reference), np.eye(4), true)
        assert score.figures().keys() == {'depth_points', 'depth_frames_lost'}
        assert score.figures()['depth_frames_lost'] == 0
    assert DepthScore(CAMERA).figures() == {}


def depths(count: int = 8, metres: float = 2.0, odd: float = 2.0) -> list[tuple[int, np.ndarray]]:
    """Of the wall 2 m away; odd frames may have another distance."""
    return [(START + PERIOD * number, np.full((HEIGHT, WIDTH), odd if number % 2 else metres, np.float32))
            for number in range(count)]


@pytest.mark.slow
def test_a_report_has_the_figures_of_depth_and_all_others_stay(evaluated: Any, tmp_path: Path) -> None:
    bag = make_bag(tmp_path / 'bag', depth=depths(odd=2.02))
    text, report = evaluated(bag, '--depth', '--baselines', 'klt', '--compare', 'fp32', '32', '--fail-under', 'depth_points=90')
    assert violations('report', report) == []
    assert report['recording']['depth'] == '/camera/depth/image_raw, 8 images'
    assert report['recording']['depth_median_m'] == pytest.approx(2.01, abs=0.02)
    assert 'depth: /camera/depth/image_raw, 8 images, median 2' in text
    for matcher in report['matchers'][:2]:
        found = matcher['summary']['1']
        assert 95 < found['depth_points'] <= 100
        assert found['depth_error_p50'] == pytest.approx(1, abs=0.02)
        assert (found['depth_within_1_sigma'], found['depth_within_2_sigma']) == (0, 100), '2 cm, of which 1.4 are one deviation'
        assert not any(name.startswith('depth') for name in matcher['summary']['2'])
    assert not any(name.startswith('depth') for name in report['matchers'][2]['summary']['1']), 'a baseline has none'
    assert 'depth_points' in text
    assert 'points with a depth' in (tmp_path / 'out' / 'report.html').read_text()
    without = evaluated(bag, '--baselines', 'klt', '--compare', 'fp32', '32').report
    for matcher in report['matchers']:
        for name in [name for name in matcher['summary']['1'] if name.startswith('depth')]:
            del matcher['summary']['1'][name]
    assert figures(without) == figures(report)


@pytest.mark.slow
def test_missing_and_wrong_depth_images_are_noted(evaluated: Any, tmp_path: Path) -> None:
    some = depths()
    some[2] = some[2][0] + 50_000_000, some[2][1]
    some[5] = some[5][0], np.ones((10, 10), np.float32)
    text, report = evaluated(make_bag(tmp_path / 'bag', depth=some), '--depth')
    assert ('note: depth: 2 of 8 frames have no depth image within 0.02 s and half the time between frames; the first '
            f'that cannot be used: it has 10x10 pixels, the images {WIDTH}x{HEIGHT}: register it to them') in text
    assert report['matchers'][0]['summary']['1']['depth_points'] == pytest.approx(100 * 5 / 7, abs=2), 'of 7 pairs'
    far = make_bag(tmp_path / 'far', depth=depths(metres=2000.0))
    assert 'its median is 2000 m: it must be in metres' in evaluated(far, '--depth').text


@pytest.mark.slow
@pytest.mark.parametrize('frame_id', ['', 'camera'])
def test_depth_that_nothing_says_is_registered_is_noted(evaluated: Any, tmp_path: Path, frame_id: str) -> None:
    bag = make_bag(tmp_path / 'bag', depth=depths(), intrinsics=None, frame_id=frame_id)
    calib = tmp_path / 'calib.yaml'
    calib.write_text(f'width: {WIDTH}\nheight: {HEIGHT}\nfx: 200\nfy: 200\ncx: {WIDTH / 2}\ncy: {HEIGHT / 2}\n')
    text, _ = evaluated(bag, '--depth', '--camera', str(calib))
    said = 'nothing says that /camera/depth/image_raw is registered to /camera/image_raw, which is assumed' in text
    assert said == (not frame_id)


@pytest.mark.slow
def test_noise_on_depth_images_is_within_its_deviation(evaluated: Any, tmp_path: Path, usage_error: Callable[..., str]) -> None:
    bag = make_bag(tmp_path / 'bag', depth=depths())
    text, report = evaluated(bag, '--depth', '--degrade', 'depth_noise')
    assert violations('report', report) == []
    assert 'degraded, depth_noise: Depth images with noise of 0.0025 z^2 metres' in text
    found, plain = report['matchers'][0], evaluated(bag, '--depth').report['matchers'][0]
    assert 58 < found['summary']['1']['depth_within_1_sigma'] < 80
    assert found['pairs'] == plain['pairs'], 'images are as recorded'
    assert plain['summary']['1']['depth_error_p90'] < 0.01
    assert '--degrade depth_noise is of depth images: give --depth' in usage_error(main, bag, '--degrade', 'depth_noise')


@pytest.mark.slow
def test_what_depth_needs_is_named(evaluated: Any, refused: Any, tmp_path: Path, usage_error: Callable[..., str]) -> None:
    text = refused(make_bag(tmp_path / 'plain'), '--depth')
    assert 'has no depth images: none of its topics has images of 16UC1 or 32FC1' in text
    text = refused(make_bag(tmp_path / 'uncalibrated', depth=depths(), intrinsics=None), '--depth')
    assert 'points with a depth need the intrinsics of the camera; give --camera' in text
    evaluated(make_bag(tmp_path / 'bag', depth=depths()), '--depth-topic', '/camera/depth/image_raw')
    told = usage_error(main, tmp_path / 'bag', '--cameras', 'camera,rear', '--depth-topic', '/depth')
    assert '--depth-topic /depth is one topic for 2 cameras' in told


def test_a_fleet_passes_the_option_on() -> None:
    plan = make_plan({'depth_topic': '--depth', 'backend': 'onnxruntime'}, Installation('0.2.0-1', 'ours', 'a', 'b'))
    parser = ArgumentParser()
    add_evaluation_options(parser)
    assert EvaluationOptions.of(parser.parse_args(plan.words), parser).depth_topic == OWN_DEPTH_IMAGES
