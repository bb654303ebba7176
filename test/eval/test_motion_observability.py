"""Which pairs have a direction worth scoring: the true step over the scene's depth, measured on worlds whose depth is known."""

from __future__ import annotations

import math
from typing import Any

import cv2
import numpy as np
import pytest
from support.networks import photo
from support.trajectories import pose

from lightglue_trt_eval.baselines import MatchedPoints
from lightglue_trt_eval.predict.scene import MIN_STEP_PER_DEPTH, Motion, Scene, Timeline, follow_corners, shifts, step_per_depth
from lightglue_trt_eval.score.metrics import PairResult
from lightglue_trt_eval.score.pair_score import failure_reasons
from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.datasets.sequence import Frame
from lightglue_trt_ros.odometry.two_view import RelativePose, relative_pose

HEIGHT, WIDTH = 240, 320
K = np.array([[300.0, 0, 160], [0, 300.0, 120], [0, 0, 1]])
RNG = np.random.default_rng(0)


def views(step: np.ndarray, noise: float = 0.0, turn: float = 0.05, depth: float = 5.0) -> tuple[tuple[Any, ...], np.ndarray]:
    """Pixels (M, 2) of points about so far away, in two cameras, and the second camera's pose; the first is at the origin."""
    second = pose([0, turn, 0.02], step)
    points = RNG.uniform([-2, -1.5, 0.8 * depth], [2, 1.5, 1.2 * depth], (300, 3))
    local = [(points - camera[:3, 3]) @ camera[:3, :3] @ K.T for camera in (np.eye(4), second)]
    return tuple(side[:, :2] / side[:, 2:] + RNG.normal(0, noise, (300, 2)) for side in local), second


@pytest.mark.parametrize('direction', [(1, 0, 0), (0, 0, 1), (0.5, 0.2, 0.8)])
@pytest.mark.parametrize('share', [0.005, 0.02, 0.1])
def test_the_share_is_that_of_the_depth(direction: tuple[float, ...], share: float) -> None:
    step = 5 * share * np.array(direction) / np.linalg.norm(direction)
    points, second = views(step, noise=0.1)
    found, near = step_per_depth(points, K, np.eye(4), second)
    assert near == 1
    assert found == pytest.approx(share, rel=0.15, abs=0.0015)
    assert Motion(5 * share, found).resolved == (share > 0.01)


def test_scale_does_not_matter_and_noise_is_no_motion() -> None:
    points, second = views(np.array([0.1, 0, 0]))
    larger = second.copy()
    larger[:3, 3] *= 100
    assert step_per_depth(points, K, np.eye(4), larger)[0] == pytest.approx(step_per_depth(points, K, np.eye(4), second)[0])
    points, second = views(np.array([1e-4, 0, 0]), noise=3.0)
    assert step_per_depth(points, K, np.eye(4), second)[0] < MIN_STEP_PER_DEPTH / 4, 'noise turns it as often'
    points, second = views(np.zeros(3))
    assert step_per_depth(points, K, np.eye(4), second) == (0, 0)
    assert step_per_depth(tuple(side[:19] for side in points), K, np.eye(4), pose([0, 0, 0], [1, 0, 0])) == (None, 0)


def test_the_bound_is_what_it_says() -> None:
    """A truth whose turn is 0.05 degrees off turns the direction of the least step by 5 degrees."""
    assert pytest.approx(0.01, abs=1e-4) == MIN_STEP_PER_DEPTH
    assert math.degrees(math.atan(math.tan(math.radians(0.05)) / MIN_STEP_PER_DEPTH)) == pytest.approx(5)


def wall(second: np.ndarray, depth: float = 4.0) -> tuple[np.ndarray, np.ndarray]:
    """A photograph on a wall, seen by both cameras."""
    rotation, translation = relative_pose(np.eye(4), second)
    homography = K @ (rotation + np.outer(translation, [0, 0, 1]) / depth) @ np.linalg.inv(K)
    image = photo('coffee', HEIGHT, WIDTH)
    return image, np.asarray(cv2.warpPerspective(image, homography, (WIDTH, HEIGHT)), np.uint8)


def scene_of(second: np.ndarray) -> Scene:
    recorded = [Frame(k * 10**8, k * 10**8, lambda: None, number=k) for k in range(3)]
    intrinsics = Intrinsics(WIDTH, HEIGHT, K, 'plumb_bob', np.zeros(5))
    return Scene(Timeline.of(recorded, 1.0), intrinsics, np.stack([np.eye(4), second, second @ second]))


def test_the_depth_is_the_images_own() -> None:
    """Whoever is judged: corners are followed, though the turn alone moves them by 50 pixels."""
    second = pose([0, 0.17, 0], [0.2, 0, 0.1])
    scene, images = scene_of(second), wall(second)
    motion = scene.motion((0, 1), images)
    assert motion.step_m == pytest.approx(math.hypot(0.2, 0.1))
    assert motion.per_depth == pytest.approx(motion.step_m / 4.1, rel=0.1)
    dark = np.zeros((HEIGHT, WIDTH), np.uint8)
    assert scene.motion((1, 2), (dark, dark)).per_depth == pytest.approx(motion.per_depth), 'the depth of the frame before'
    assert scene_of(second).motion((0, 1), (dark, dark)).per_depth is None
    points, _ = views(np.array([0.2, 0, 0.1]), turn=0.17)
    blind = scene_of(pose([0, 0.17, 0.02], [0.2, 0, 0.1]))
    assert blind.motion((0, 1), (dark, dark), MatchedPoints(*(side.astype(np.float32) for side in points))).resolved


def test_the_depth_is_that_of_matches_where_the_truth_contradicts_corners() -> None:
    """A pattern that stands in both images draws corners to it."""
    second = pose([0, 0.05, 0.02], [0.1, 0, 0.05])
    images, pattern = wall(second), cv2.GaussianBlur(RNG.normal(0, 200, (HEIGHT, WIDTH)), (0, 0), 2)
    covered = tuple(np.clip(image / 4 + 80 + pattern, 0, 255).astype(np.uint8) for image in images)
    points, _ = views(second[:3, 3], depth=4.0)
    matches = MatchedPoints(*(side.astype(np.float32) for side in points))
    clean, alone, found = (scene_of(second).motion((0, 1), *given) for given in ((images,), (covered,), (covered, matches)))
    assert found.per_depth == pytest.approx(clean.per_depth, rel=0.1)
    assert alone.per_depth == 0
    wrong = MatchedPoints(matches.reference, matches.current + np.float32(20))
    assert scene_of(second).motion((0, 1), covered, wrong) == alone, 'which the truth contradicts more'
    assert scene_of(second).motion((0, 1), images, matches) == clean


def test_corners_that_cannot_be_followed_are_none() -> None:
    image = photo('coffee', HEIGHT, WIDTH)
    other = RNG.integers(0, 256, image.shape, np.uint8)
    assert len(follow_corners((image, image), lambda points: points).reference) > 100
    assert len(follow_corners((image, other), lambda points: np.full(points.shape, np.nan)).reference) < 40
    assert len(follow_corners((image, image[:100]), lambda points: points).reference) == 0
    assert not np.isfinite(shifts(np.zeros((1, 2)), np.zeros((3, 3)))).any()


def record(matches: int = 300, **known: float) -> PairResult:
    moved = {'step_m': 0.25, 'step_per_depth': 0.06, 'translation_deg': 30.0}
    return PairResult((0, 1), 0.0, matches, rotation_deg=1.0, **{**moved, **known})


def test_the_reasons_of_a_bad_pair_are_named() -> None:
    points, second = views(np.array([0.2, 0, 0.1]))
    rotation, direction = relative_pose(np.eye(4), second)
    right = RelativePose(rotation, direction / np.linalg.norm(direction), np.ones(300, np.bool_))
    told = failure_reasons(record(), points, K, np.eye(4), second, right)
    assert told == 'the camera moved 250 mm, 6.0 % of the depth'
    still = record(12, step_m=0.003, step_per_depth=0.001, translation_deg=None)
    few = failure_reasons(still, (points[0][:5], points[1][:5]), K, np.eye(4), second, None)
    assert few == ('only 12 matches; the camera hardly moved: 3 mm, 0.1 % of the depth; '
                   'too little for a true direction: only the rotation is scored')
    assert failure_reasons(record(0, step_m=None), (points[0][:0],) * 2, None, None, None, None) == 'no matches'


def test_the_other_pose_of_a_plane_is_named() -> None:
    second = pose([0.02, 0.1, 0], [1.0, 0.1, 0.2])
    grid = np.column_stack([RNG.uniform([-2, -1.5], [2, 1.5], (200, 2)), np.full(200, 5.0)])
    local = [(grid - camera[:3, 3]) @ camera[:3, :3] @ K.T for camera in (np.eye(4), second)]
    points = tuple(side[:, :2] / side[:, 2:] for side in local)
    rotation, translation = relative_pose(np.eye(4), second)
    homography = K @ (rotation + np.outer(translation, [0, 0, 1]) / 5) @ np.linalg.inv(K)
    _, rotations, steps, _ = cv2.decomposeHomographyMat(homography, K)
    other = next(k for k in range(4) if np.abs(rotations[k] - rotation).max() > 0.1)

    def told(turn: np.ndarray, step: np.ndarray) -> str:
        estimate = RelativePose(turn, step.ravel() / np.linalg.norm(step), np.ones(200, np.bool_))
        return failure_reasons(record(), points, K, np.eye(4), second, estimate)

    assert told(rotations[other], steps[other]).endswith('100 % of the matches lie on one plane, which has two poses: '
                                                         'this is the other one')
    assert told(rotation, translation).endswith('100 % of the matches lie on one plane')
