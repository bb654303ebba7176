"""Arrays that are views give what plain copies give, in every function that hands points or matrices to OpenCV."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from support.cameras import BARREL, FISHEYE, RATIONAL
from support.moving_camera import BASELINE, FOCAL, poses_of, steps
from support.networks import photo
from support.trajectories import pose

from lightglue_trt_eval.baselines import BASELINES, find_corners, follow_points
from lightglue_trt_eval.images.degradation import degraded
from lightglue_trt_eval.predict.scene import follow_corners
from lightglue_trt_eval.score.metrics import PairResult
from lightglue_trt_eval.score.pair_score import count_inliers, failure_reasons
from lightglue_trt_ros.core.cameras import Intrinsics, StereoRig, normalised, undistort
from lightglue_trt_ros.core.geometry import contiguous, resize_gray, sampled_model
from lightglue_trt_ros.core.refinement import Pyramid
from lightglue_trt_ros.core.refinement.variance_factor import fit_epipolar
from lightglue_trt_ros.core.static_points import StaticPoints
from lightglue_trt_ros.odometry.bundle_adjustment import Bundle, OffsetEstimate, adjust
from lightglue_trt_ros.odometry.pose_covariance import lengths
from lightglue_trt_ros.odometry.sliding_window import SlidingWindow, _perspective
from lightglue_trt_ros.odometry.two_view import ESTIMATORS, RelativePose, relative_pose

ROOT = Path(__file__).parents[2]
ROBOT, WORKBENCH = ROOT / 'lightglue_trt_ros', ROOT / 'lightglue_trt_eval'
TAKES_ARRAYS = re.compile(r'(find(Ess|Fund|Homo)|solve|refine|recover|decompose|.*[uU]ndistort|project|triang|Rodrigues|estimate|'
                          r'calcOpt|batchD|goodF|perspectiveT|warp)')
COVERED = {'core/cameras', 'core/lens', 'core/refinement/variance_factor', 'odometry/two_view', 'odometry/likelihood',
           'odometry/sliding_window', 'odometry/bundle_adjustment', 'odometry/pose_covariance', 'score/pair_score', 'baselines',
           'core/static_evidence', 'images/static_structure'}
WIDTH, HEIGHT = 640, 480
K = np.array([[500.0, 0, 320], [0, 510, 240], [0, 0, 1]])
STANDING, MOVED = np.eye(4), pose([0.02, 0.08, -0.05], [0.4, -0.1, 0.2])
RNG = np.random.default_rng(0)
RAYS = np.column_stack([RNG.uniform(-0.5, 0.5, 200), RNG.uniform(-0.4, 0.4, 200), np.ones(200)])
ANYWHERE, PLANE = RAYS * RNG.uniform(2, 12, (200, 1)), RAYS * 5.0


def columns(array: np.ndarray) -> np.ndarray:
    """Some columns of a wider matrix."""
    wide = np.full((*array.shape[:-1], array.shape[-1] + 3), 77, array.dtype)
    wide[..., 1:-2] = array
    return wide[..., 1:-2]


def rows(array: np.ndarray) -> np.ndarray:
    """Every second row."""
    return np.repeat(array, 2, axis=0)[::2]


def transposed(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array.T).T


def backwards(array: np.ndarray) -> np.ndarray:
    """Negative strides along all axes."""
    return np.flip(np.flip(array).copy())


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


VIEWS = (columns, rows, transposed, backwards, read_only)


def seen(points: np.ndarray, camera: np.ndarray = STANDING) -> np.ndarray:
    local = (points - camera[:3, 3]) @ camera[:3, :3] @ K.T
    return local[:, :2] / local[:, 2:]


def noisy(points: np.ndarray, seed: int) -> np.ndarray:
    return points + np.random.default_rng(seed).normal(0, 0.1, points.shape)


FIRST, SECOND = seen(ANYWHERE), noisy(seen(ANYWHERE, MOVED), 1)
COVARIANCES = np.tile(np.eye(2) * 0.01, (200, 1, 1))


def through_a_lens(function: Callable[..., Any], model: str, d: list[float]) -> tuple[Any, dict[str, np.ndarray]]:
    return (lambda points, k, d: function(points, Intrinsics(WIDTH, HEIGHT, k, model, d)),
            {'points': FIRST, 'k': K, 'd': np.array(d)})


def rectified(points: np.ndarray, k: np.ndarray, d: np.ndarray, r: np.ndarray) -> np.ndarray:
    left = Intrinsics(WIDTH, HEIGHT, k, 'plumb_bob', d, r)
    return StereoRig(left, Intrinsics(WIDTH, HEIGHT, k, 'plumb_bob', d, r, 0.25)).left_points(points)


def estimated(name: str) -> Callable[..., Any]:
    def estimate(points0: Any, points1: Any, k0: Any, k1: Any, covariances: Any) -> tuple[np.ndarray, ...]:
        found = ESTIMATORS[name](points0, points1, k0, k1, covariances)
        assert found is not None
        assert found.inliers.mean() > 0.7
        return found.rotation, found.translation, found.inliers
    return estimate


def sampled(points0: Any, points1: Any, k: Any) -> np.ndarray:
    model = sampled_model(cv2.findEssentialMat, points0, points1, k, method=cv2.USAC_ACCURATE, prob=0.9999, threshold=0.5)
    assert model is not None
    return model


def weighted(points0: Any, points1: Any, covariances: Any) -> tuple[np.ndarray, ...]:
    fit = fit_epipolar(points0, points1, covariances, fit_limit=0.0)  # MAGSAC++ is asked
    return fit.fundamental, fit.distances


def reasons(points0: Any, points1: Any, k: Any, pose0: Any, pose1: Any) -> str:
    rotation, step = relative_pose(pose0, pose1)
    estimate = RelativePose(rotation, step / np.linalg.norm(step), np.ones(200, np.bool_))
    text = failure_reasons(PairResult((0, 1), 0.0, 200), (points0, points1), k, pose0, pose1, estimate)
    assert 'one plane' in text
    return text


def adjusted(poses: Any, points: Any, observed: Any) -> tuple[np.ndarray, ...]:
    bundle, offset = adjust(Bundle(poses, points), observed, np.ones(observed.shape[:2]), 1, BASELINE, 1 / FOCAL, 3,
                            OffsetEstimate(0.0, FOCAL**2))
    return bundle.inverse_poses, bundle.points, np.array(offset)


def bundle() -> dict[str, np.ndarray]:
    poses = np.linalg.inv(poses_of(4))
    points = np.random.default_rng(3).uniform([-3, -2, 5], [3, 2, 12], (40, 3))
    local = points @ poses[:, :3, :3].transpose(0, 2, 1) + poses[:, None, :3, 3]
    observed = np.stack([local[..., 0], local[..., 1], local[..., 0] - BASELINE], axis=2) / local[..., 2:]
    return {'poses': poses, 'points': noisy(points, 4), 'observed': observed}


def tracked(**points: np.ndarray) -> np.ndarray:
    """Poses of the odometry, whose frames' points are given."""
    window, frames = SlidingWindow(FOCAL, BASELINE), list(steps(poses_of(4)))
    return np.stack([window.add(each.stamp, each.ids, points[f'now{number}'], each.stamp - 0.1, points[f'before{number}'],
                                points[f'right{number}']).pose for number, each in enumerate(frames)])


def tracks() -> dict[str, np.ndarray]:
    frames = list(enumerate(steps(poses_of(4))))
    return {f'{name}{number}': value for number, each in frames
            for name, value in (('now', each.points), ('before', each.reference_points), ('right', each.right_x))}


CASES: dict[str, tuple[Callable[..., Any], dict[str, np.ndarray]]] = {
    'undistort plumb_bob': through_a_lens(undistort, 'plumb_bob', BARREL),
    'undistort rational': through_a_lens(undistort, 'rational_polynomial', RATIONAL),
    'undistort equidistant': through_a_lens(undistort, 'equidistant', FISHEYE),
    'normalised': through_a_lens(normalised, 'plumb_bob', BARREL),
    'stereo rig': (rectified, {'points': FIRST, 'k': K, 'd': np.array(BARREL), 'r': np.eye(3)}),
    'sampled_model': (sampled, {'points0': FIRST, 'points1': SECOND, 'k': K}),
    'fit_epipolar': (weighted, {'points0': FIRST, 'points1': SECOND, 'covariances': COVARIANCES}),
    **{f'relative pose {name}': (estimated(name), {'points0': FIRST, 'points1': SECOND, 'k0': K, 'k1': K,
                                                   'covariances': COVARIANCES}) for name in ESTIMATORS},
    'perspective': (lambda positions, observed: _perspective(positions, observed, 0.01),
                    {'positions': ANYWHERE, 'observed': ANYWHERE[:, :2] / ANYWHERE[:, 2:]}),
    'bundle adjustment': (adjusted, bundle()),
    'lengths of a step': (lengths, {'step': MOVED}),
    'sliding window': (tracked, tracks()),
    'inliers': (count_inliers, {'points0': FIRST, 'points1': SECOND, 'camera': K}),
    'inliers without a camera': (lambda points0, points1: count_inliers(points0, points1, None),
                                 {'points0': FIRST, 'points1': SECOND}),
    'reasons of a plane': (reasons, {'points0': seen(PLANE), 'points1': seen(PLANE, MOVED), 'k': K, 'pose0': STANDING,
                                     'pose1': MOVED}),
}


def same(left: Any, right: Any) -> None:
    if isinstance(left, tuple):
        for one, other in zip(left, right, strict=True):
            np.testing.assert_array_equal(one, other)
    else:
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize('name', [pytest.param(name, marks=[pytest.mark.slow] * (name == 'sliding window')) for name in CASES])
@pytest.mark.parametrize('dtype', [np.float64, np.float32])
def test_views_of_points_and_matrices_give_what_copies_give(name: str, dtype: type) -> None:
    function, arrays = CASES[name]
    plain = {key: np.ascontiguousarray(value, dtype) for key, value in arrays.items()}
    right = function(**{key: value.copy() for key, value in plain.items()})
    assert right is not None
    for view in VIEWS:
        same(function(**{key: view(value) for key, value in plain.items()}), right)
        for key in plain:
            same(function(**{**plain, key: view(plain[key])}), right)


def test_views_of_images_give_what_copies_give() -> None:
    images = photo('coffee', 120, 160), photo('coffee', 120, 164)[:, 4:].copy()
    corners = find_corners(images[0], 60, 5.0)

    def results(first: np.ndarray, second: np.ndarray, points: np.ndarray) -> list[Any]:
        return [resize_gray(first, (60, 80)), *Pyramid(first).levels, find_corners(first, 60, 5.0, np.full_like(first, 255)),
                *follow_points(first, second, points), *follow_points(first, second, points, points),
                *follow_corners((first, second), lambda corners: corners)[:2], *BASELINES['sift'](200).match(first, second)[:2],
                *BASELINES['orb'](200).match(first, second)[:2]]

    right = results(*images, corners)
    for view in VIEWS:
        for result, plain in zip(results(view(images[0]), view(images[1]), view(corners)), right, strict=True):
            np.testing.assert_array_equal(result, plain)


@pytest.mark.parametrize('view', VIEWS)
def test_static_points_of_array_views_are_judged_as_of_copies(view: Callable[[np.ndarray], np.ndarray]) -> None:
    before = np.random.default_rng(1).uniform((0, 0), (WIDTH, HEIGHT), (200, 2)).astype(np.float32)
    after = before + np.float32((9, 4)) * (np.arange(200) < 150)[:, None].astype(np.float32)
    everywhere = np.arange(200)

    def foreign(first: np.ndarray, second: np.ndarray) -> Any:
        return StaticPoints((HEIGHT, WIDTH)).judge(everywhere, everywhere, first, second, (HEIGHT, WIDTH), 1.0).foreign

    np.testing.assert_array_equal(foreign(before, after), everywhere >= 150)
    np.testing.assert_array_equal(foreign(view(before), view(after)), everywhere >= 150)


@pytest.mark.parametrize('kind', ['rain', 'bonnet', 'dots', 'text'])
@pytest.mark.parametrize('view', VIEWS)
def test_structure_is_added_to_views_as_to_copies(view: Callable[[np.ndarray], np.ndarray], kind: str) -> None:
    image = photo('coffee', 120, 160)
    np.testing.assert_array_equal(degraded(view(image), kind), degraded(image, kind))


@pytest.mark.parametrize('view', VIEWS)
def test_a_camera_holds_plain_copies(view: Callable[[np.ndarray], np.ndarray]) -> None:
    given = view(K), view(np.array(BARREL)), view(np.eye(3))
    camera = Intrinsics(WIDTH, HEIGHT, given[0], 'plumb_bob', *given[1:])
    for held, array in zip((camera.k, camera.d, camera.rectification), given, strict=True):
        assert held.flags.c_contiguous
        assert held.dtype == np.float64
        assert not np.shares_memory(held, array)
        np.testing.assert_array_equal(held, array)
    assert Intrinsics(WIDTH, HEIGHT, K.astype(np.float32), 'plumb_bob', np.zeros(5)).k.dtype == np.float64


def test_contiguous_copies_only_where_it_has_to() -> None:
    assert contiguous(K) is K
    for view in (columns, transposed, backwards):
        made = contiguous(view(K), np.float32)
        assert made.flags.c_contiguous
        assert made.dtype == np.float32


def calls_with_arrays(path: Path) -> set[str]:
    """OpenCV's functions of points or matrices that a file names."""
    return {node.attr for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Attribute) and TAKES_ARRAYS.match(node.attr)
            and ast.unparse(node.value) in ('cv2', 'opencv', 'cv2.fisheye')}


def test_no_other_file_hands_points_or_matrices_to_opencv() -> None:
    """A new one belongs into CASES, and then into COVERED."""
    rooms = {ROBOT: ('core', 'odometry'), WORKBENCH: ('images', 'predict', 'score')}
    files = {path.relative_to(package).with_suffix('').as_posix() for package, names in rooms.items() for room in names
             for path in (package / room).rglob('*.py') if calls_with_arrays(path)}
    assert files <= COVERED
