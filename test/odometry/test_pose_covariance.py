"""Covariances of the odometry: as large as its errors, in the right axes, and never zero."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from support.moving_camera import BASELINE, FOCAL, poses_of, steps

from lightglue_trt_ros.odometry import pose_covariance, sliding_window
from lightglue_trt_ros.odometry.bundle_adjustment import Bundle, OffsetEstimate, pose_covariances
from lightglue_trt_ros.odometry.pose_covariance import (
    Drift,
    after_unknown,
    compounded,
    in_fixed_axes,
    of_velocities,
    seen_from,
    unseen,
)
from lightglue_trt_ros.odometry.sliding_window import Fix, Quality, SlidingWindow


def pose_of(vectors: np.ndarray) -> np.ndarray:
    """(..., 4, 4) of translations and rotation vectors (..., 6)."""
    made = np.broadcast_to(np.eye(4), (*vectors.shape[:-1], 4, 4)).copy()
    made[..., :3, 3], made[..., :3, :3] = vectors[..., :3], Rotation.from_rotvec(vectors[..., 3:]).as_matrix()
    return made


def vector_of(poses: np.ndarray) -> np.ndarray:
    """(..., 6) translations and rotation vectors of poses (..., 4, 4)."""
    return np.concatenate([poses[..., :3, 3], Rotation.from_matrix(poses[..., :3, :3]).as_rotvec()], axis=-1)


def covariance_of(errors: np.ndarray) -> np.ndarray:
    return errors.T @ errors / len(errors)


OWN = np.diag([1, 4, 9, 0.5, 2, 1]) * 1e-8
OWN[0, 4] = OWN[4, 0] = 0.7e-8
STEP = pose_of(np.array([0.3, -0.1, 0.8, 0.1, 0.4, -0.2]))
MOUNTED = pose_of(np.array([0.5, 0.2, -1.0, 1.2, -0.3, 0.4]))


def test_covariances_follow_poses_to_other_frames_and_axes():
    rng = np.random.default_rng(0)
    drawn, of_step = (rng.multivariate_normal(np.zeros(6), OWN * factor, 40_000) for factor in (1, 0.3))
    poses, steps_made = (true @ pose_of(errors) for true, errors in ((MOUNTED, drawn), (STEP, of_step)))
    after = MOUNTED @ STEP
    close(compounded(OWN, STEP, 0.3 * OWN), covariance_of(vector_of(np.linalg.inv(after) @ poses @ steps_made)))
    before = MOUNTED @ np.linalg.inv(STEP)
    close(seen_from(STEP, OWN), covariance_of(vector_of(np.linalg.inv(before) @ poses @ np.linalg.inv(STEP))))
    turned = Rotation.from_matrix(poses[:, :3, :3] @ MOUNTED[:3, :3].T).as_rotvec()
    fixed = np.concatenate([poses[:, :3, 3] - MOUNTED[:3, 3], turned], axis=1)
    close(in_fixed_axes(MOUNTED[:3, :3], OWN), covariance_of(fixed))
    velocities = np.einsum('nji,nj->ni', steps_made[:, :3, :3], steps_made[:, :3, 3]) - STEP[:3, :3].T @ STEP[:3, 3]
    close(of_velocities(0.3 * OWN, STEP, 0.1)[:3, :3], covariance_of(velocities / 0.1))


def close(found: np.ndarray, expected: np.ndarray) -> None:
    sigma = np.sqrt(np.diag(expected))
    np.testing.assert_allclose(found / np.outer(sigma, sigma), expected / np.outer(sigma, sigma), atol=0.03)


def test_a_step_that_nobody_observed_is_as_uncertain_as_it_is_long():
    grown = after_unknown(np.zeros((6, 6)), STEP, (2.0, 0.5))
    np.testing.assert_allclose(np.sqrt(np.diag(grown)), [2, 2, 2, 0.5, 0.5, 0.5])


def test_drift_adds_up_with_the_way_and_not_with_time():
    forward, drift = pose_of(np.array([0, 0, 1.0, 0, 0, 0])), Drift()
    for _ in range(100):
        drift = drift.after(forward, 10.0)
    lasting = 100 * np.sqrt(unseen(forward, 10.0)[2, 2] / 2)
    assert np.sqrt(drift.covariance[2, 2]) == pytest.approx(lasting, rel=0.01)
    for _ in range(1000):
        drift = drift.after(np.eye(4), 10.0)
    assert np.sqrt(drift.covariance[2, 2]) == pytest.approx(lasting, rel=0.01)


def run(poses: np.ndarray, right: bool, seed: int) -> list[tuple[Fix, int]]:
    """Fixes that track, each with the number of its frame among `poses`."""
    window = SlidingWindow(FOCAL, BASELINE if right else None)
    fixes = [window.add(each.stamp, each.ids, each.points, each.stamp - 0.1, each.reference_points, each.right_x if right else None)
             for each in steps(poses, noise_px=0.4, seed=seed)]
    return [(fix, number) for number, fix in enumerate(fixes, 1) if fix.quality is Quality.TRACKING]


@pytest.mark.slow
@pytest.mark.parametrize('right', [True, False])
def test_the_adjustments_covariances_are_those_of_independent_errors(right, monkeypatch):
    """Of errors without calibration and shutter, and of tracks that pass none on: no factor, no drift."""
    monkeypatch.setattr(sliding_window, 'VARIANCE', 1.0)
    for name in ('OF_SHIFT', 'OF_ROTATION', 'OF_PARALLAX'):
        monkeypatch.setattr(pose_covariance, name, 0.0)
    of_poses, of_twists = [], []
    for seed in range(4):
        true = poses_of(20)
        fixes = run(true, right, seed)
        if not right:
            true = true.copy()
            true[:, :3, 3] /= np.linalg.norm(true[fixes[0][1], :3, 3])
        for fix, number in fixes:
            np.linalg.cholesky(fix.covariance)
            of_poses.append(vector_of(np.linalg.solve(true[number], fix.pose)) / np.sqrt(np.diag(fix.covariance)))
            step = np.linalg.solve(true[number - 1], true[number])
            twist = np.concatenate([step[:3, :3].T @ step[:3, 3], vector_of(step)[3:]]) / 0.1
            found = np.concatenate([fix.velocity, fix.rotation_rate])
            of_twists.append((found - twist) / np.sqrt(np.diag(fix.twist_covariance)))
    for errors in map(np.array, (of_poses, of_twists)):
        assert 0.5 < (np.abs(errors) < 1).mean() < 0.85
        assert (np.abs(errors) < 3).mean() > 0.93


@pytest.mark.slow
def test_covariances_stay_while_the_camera_stands_and_grow_as_it_moves():
    still = np.concatenate([poses_of(10), np.repeat(poses_of(10)[-1:], 40, axis=0)])
    sigmas = np.array([np.sqrt(np.diag(fix.covariance)) for fix, _ in run(still, True, 1)])
    assert (sigmas > 0).all()
    assert (sigmas[8] > sigmas[0]).all()
    assert (sigmas[-1] < 1.5 * sigmas[12]).all()


def test_what_was_not_tracked_makes_the_pose_uncertain():
    frames = list(steps(poses_of(14)))
    window, sigmas = SlidingWindow(FOCAL, BASELINE), []
    for number, each in enumerate(frames):
        ids = each.ids + (10_000 if number >= 8 else 0)  # all tracks end
        fix = window.add(each.stamp, ids, each.points, each.stamp - 0.1, each.reference_points, each.right_x)
        sigmas.append(np.sqrt(np.diag(fix.covariance)))
    step = np.linalg.norm(frames[8].pose[:3, 3] - frames[7].pose[:3, 3])
    assert (sigmas[-1][:3] > 0.9 * step).all()
    assert (sigmas[7][:3] < 0.2 * step).all()


@pytest.mark.parametrize('seconds', [0.3, -50.0])
@pytest.mark.parametrize('right', [True, False])
def test_motion_between_tracks_makes_the_pose_as_uncertain_as_it_is_long(right, seconds):
    """Time passes unseen, or goes back: the camera may have moved for as long, or by a step. Before, it was one or none."""
    frames = list(steps(poses_of(16)))
    window, sigmas = SlidingWindow(FOCAL, BASELINE if right else None), []
    for number, each in enumerate(frames):
        later, ids = (seconds, each.ids + 10_000) if number >= 8 else (0.0, each.ids)
        fix = window.add(each.stamp + later, ids, each.points, each.stamp + later - 0.1, each.reference_points,
                         each.right_x if right else None)
        if fix.quality is Quality.TRACKING:
            sigmas.append(np.sqrt(np.diag(fix.covariance))[:3].min())
            if number == 7:
                tracked, moved = sigmas[-1], window.unit.speed * max(seconds, 0.1)
    assert tracked < 0.3 * moved < 0.3 * sigmas[-1]


@pytest.mark.parametrize('right', [True, False])
def test_no_tracks_are_exact_and_no_covariance_is_zero(right):
    window = SlidingWindow(FOCAL, BASELINE if right else None)
    for each in steps(poses_of(12)):
        fix = window.add(each.stamp, each.ids, each.points, each.stamp - 0.1, each.reference_points, each.right_x)
        if fix.quality is Quality.TRACKING:
            for covariance in (fix.covariance, fix.twist_covariance):
                np.linalg.cholesky(covariance)
                assert np.sqrt(np.diag(covariance)).min() > 1e-6


@pytest.mark.filterwarnings('error')
def test_covariances_of_few_points_are_finite():
    poses = np.tile(np.eye(4), (3, 1, 1))
    poses[:, 0, 3] = 0, -0.1, -0.2
    for count in (1, 4):
        points = np.random.default_rng(0).uniform([-1, -1, 3], [1, 1, 6], (count, 3))
        seen = np.einsum('pij,lj->pli', poses[:, :3, :3], points) + poses[:, None, :3, 3]
        observed = np.stack([seen[..., 0], seen[..., 1], seen[..., 0] - BASELINE], axis=2) / seen[..., 2:]
        for sigma in (None, 1e-6):
            found = pose_covariances(Bundle(poses, points), observed, np.ones((3, count)), BASELINE, 1e-3, OffsetEstimate(0.0, 1e6),
                                     sigma)
            assert np.isfinite(found).all()
            assert (np.einsum('iaia->ia', found) > 0).all()


def test_where_the_adjustment_leaves_no_point_the_pose_is_lost(monkeypatch):
    window, frames = SlidingWindow(FOCAL, BASELINE), list(steps(poses_of(8)))

    def add(each) -> Fix:
        return window.add(each.stamp, each.ids, each.points, each.stamp - 0.1, each.reference_points, each.right_x)
    assert add(frames[0]).quality is Quality.TRACKING
    with monkeypatch.context() as patch:
        patch.setattr(sliding_window, 'WRONG_PX', -1.0)
        assert add(frames[1]).quality is Quality.LOST
    assert [add(each).quality for each in frames[2:]][-1] is Quality.TRACKING
