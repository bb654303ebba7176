"""The odometry's arithmetic on exact tracks, noisy ones and wrong ones, with depth and without, and where it has to begin anew."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from support.moving_camera import BASELINE, CAMERA, FOCAL, Step, poses_of, steps, with_depth

from lightglue_trt_eval.score.trajectory import align_sim3, ate, rpe
from lightglue_trt_ros.odometry.bundle_adjustment import Bundle, OffsetEstimate, adjust, reprojection_errors
from lightglue_trt_ros.odometry.sliding_window import Fix, MatchOdometry, Quality, SlidingWindow, _View


def track(window: SlidingWindow, frames: list[Step], right: bool = False) -> list[Fix]:
    return [window.add(each.stamp, each.ids, each.points, each.stamp - 0.1, each.reference_points, each.right_x if right else None)
            for each in frames]


def tracked(frames, fixes):
    """Poses, estimated and true, of the frames that have one."""
    good = [number for number, fix in enumerate(fixes) if fix.quality is Quality.TRACKING]
    return np.stack([fixes[number].pose for number in good]), np.stack([frames[number].pose for number in good])


def share_of_way(poses, truth, *, metric: bool) -> float:
    """The error of a path over its length; without metres after the alignment of scale."""
    if not metric:
        poses = align_sim3(poses, truth).apply(poses)
    return ate(poses, truth) / np.linalg.norm(np.diff(truth[:, :3, 3], axis=0), axis=1).sum()


def by_depth(frames, noise, change) -> list[Fix]:
    """Of tracks with depth; `change` gives those of a frame other depths and deviations."""
    odometry, rng, fixes = MatchOdometry(CAMERA, depth=True), np.random.default_rng(4), []
    for step in frames:
        matches = with_depth(step, noise, rng)
        xyz, sigma_z = matches.xyz.copy(), matches.sigma_z.copy()
        change(step, matches.track_ids, xyz, sigma_z, rng)
        fixes.append(odometry.add(dataclasses.replace(matches, xyz=xyz, sigma_z=sigma_z)))
    return fixes


def test_with_depth_exact_tracks_give_the_true_poses_in_metres():
    frames = list(steps(poses_of(15)))
    fixes = track(SlidingWindow(FOCAL, BASELINE), frames, right=True)
    assert all(fix.quality is Quality.TRACKING for fix in fixes)
    for frame, fix in zip(frames, fixes, strict=True):
        np.testing.assert_allclose(fix.pose, frame.pose, atol=1e-4)
        assert fix.points > 50


def test_without_depth_shape_is_true_and_first_step_has_unit_length():
    frames = list(steps(poses_of(15)))
    fixes = track(SlidingWindow(FOCAL), frames)
    poses, truth = tracked(frames, fixes)
    assert len(poses) >= 13
    alignment = align_sim3(poses, truth)
    assert ate(alignment.apply(poses), truth) < 1e-3
    assert np.linalg.norm(poses[0, :3, 3]) == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(alignment.rotation, np.eye(3), atol=1e-3)


@pytest.mark.slow
def test_right_columns_that_are_all_off_cost_no_scale():
    frames = [each._replace(right_x=each.right_x + 1.5 / FOCAL) for each in steps(poses_of(40), noise_px=0.2)]
    window = SlidingWindow(FOCAL, BASELINE)
    fixes = track(window, frames, right=True)
    assert window.right_offset_px == pytest.approx(1.5, abs=0.15)
    poses, truth = tracked(frames, fixes)
    step, true = (np.linalg.norm(np.diff(each[20:, :3, 3], axis=0), axis=1).sum() for each in (poses, truth))
    assert step / true == pytest.approx(1, abs=0.01)


def test_right_columns_that_are_known_to_be_off_put_points_where_they_are():
    poses, offset = poses_of(2), 2 / FOCAL
    points = np.array([[-2, 1, 6], [1, -1, 9], [3, 1, 20], [0, 0, 40]]) @ poses[1, :3, :3].T + poses[1, :3, 3]
    there = (points - poses[1, :3, 3]) @ poses[1, :3, :3]
    flat = there[:, :2] / there[:, 2:]
    window = SlidingWindow(FOCAL, BASELINE)
    window._offset = OffsetEstimate(offset, FOCAL**2)
    right = flat[:, 0] - BASELINE / there[:, 2] + offset
    window._views = [_View(1.0, poses[1], np.arange(4), np.column_stack([flat, right, np.ones(4)]))]
    window._triangulate()
    np.testing.assert_allclose([window._points[number] for number in range(4)], points, rtol=1e-9)


@pytest.mark.parametrize('right', [True, False])
def test_noise_and_wrong_matches_cost_little(right):
    frames = list(steps(poses_of(30), noise_px=0.4, wrong=0.15))
    fixes = track(SlidingWindow(FOCAL, BASELINE if right else None), frames, right)
    poses, truth = tracked(frames, fixes)
    assert len(poses) > 25
    assert share_of_way(poses, truth, metric=right) < 0.01
    assert rpe(poses, truth)[1] < 0.15


def test_one_camera_with_depth_knows_metres_from_its_second_frame_on():
    frames, rng = list(steps(poses_of(30), noise_px=0.4)), np.random.default_rng(3)
    odometry = MatchOdometry(CAMERA, depth=True)
    fixes = [odometry.add(with_depth(step, 0.0025, rng)) for step in frames]
    assert {fix.quality for fix in fixes} == {Quality.TRACKING}
    assert share_of_way(*tracked(frames, fixes), metric=True) < 0.005
    assert odometry.window.right_offset_px == pytest.approx(0, abs=1e-3)


@pytest.mark.slow
def test_a_depth_weighs_by_its_own_deviation():
    """Half of the depths are too large, and say so: they cost little, and much where they claim to be exact."""
    frames, errors = list(steps(poses_of(25))), []
    for claimed in (0.05, 0.0005):
        def too_far(step, ids, xyz, sigma_z, rng, claimed=claimed):
            bad = ids % 2 == 0
            xyz[bad, 2] += np.abs(rng.normal(0, 0.003, bad.sum())) * xyz[bad, 2]**2
            sigma_z[bad] = claimed * xyz[bad, 2]**2

        errors.append(ate(*tracked(frames, by_depth(frames, 0.0005, too_far))))
    assert errors[0] < 0.3 * errors[1]


@pytest.mark.slow
@pytest.mark.filterwarnings('error')
def test_a_deviation_of_zero_does_not_end_the_adjustment():
    """As with depth_noise 0: a few points claim to be exact, and the others go on to count."""
    frames, errors = list(steps(poses_of(25), noise_px=0.4)), []
    for least in (0.0, 0.001):
        def exact(step, ids, xyz, sigma_z, rng, least=least):
            sure = ids % 20 == 0
            xyz[sure, 2], sigma_z[sure] = (BASELINE / (step.points[:, 0] - step.right_x))[sure], least

        fixes = by_depth(frames, 0.002, exact)
        assert {fix.quality for fix in fixes} == {Quality.TRACKING}
        errors.append(ate(*tracked(frames, fixes)))
    assert errors[0] < 1.3 * errors[1]


@pytest.mark.slow
def test_the_adjustment_is_worth_its_time():
    """Against the same without it, on the same noise."""
    frames = list(steps(poses_of(30), noise_px=0.8))
    errors = []
    for count in (0, 6):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr('lightglue_trt_ros.odometry.sliding_window.STEPS', count)
            found = rpe(*tracked(frames, track(SlidingWindow(FOCAL, BASELINE), frames, right=True)))
        errors.append(found)
    assert errors[1][0] < 0.6 * errors[0][0]
    assert errors[1][1] < 0.7 * errors[0][1]


@pytest.mark.slow
def test_a_camera_that_stands_goes_nowhere():
    still = np.concatenate([poses_of(10), np.repeat(poses_of(10)[-1:], 40, axis=0)])
    frames = list(steps(still, noise_px=0.3))
    fixes = track(SlidingWindow(FOCAL, BASELINE), frames, right=True)
    stopped = np.stack([fix.pose[:3, 3] for fix in fixes[15:]])
    assert np.ptp(stopped, axis=0).max() < 0.03


def test_a_camera_that_never_moved_is_waited_for():
    frames = list(steps(np.repeat(np.eye(4)[None], 8, axis=0), noise_px=0.3))
    assert {fix.quality for fix in track(SlidingWindow(FOCAL), frames)} == {Quality.STARTING}


@pytest.mark.slow
@pytest.mark.parametrize('right', [True, False])
def test_where_all_tracks_end_it_begins_anew_from_there_at_the_same_scale(right):
    frames = list(steps(poses_of(30)))
    frames = frames[:12] + [each._replace(ids=each.ids + 10_000) for each in frames[12:]]
    fixes = track(SlidingWindow(FOCAL, BASELINE if right else None), frames, right)
    assert [fix.quality for fix in fixes].count(Quality.LOST) == 1
    assert fixes[12].quality is Quality.LOST
    poses, truth = tracked(frames, fixes)
    assert len(poses) > 24
    assert share_of_way(poses, truth, metric=right) < 0.04


@pytest.mark.slow
def test_camera_lost_after_a_stand_begins_anew_at_the_scale_before():
    """Its last speed is that of noise, which would shrink all that follows a thousand times."""
    driven = poses_of(40)
    still = np.concatenate([driven[:15], np.repeat(driven[14:15], 20, axis=0), driven[15:]])
    frames = list(steps(still, noise_px=0.1))
    frames = frames[:34] + [each._replace(ids=each.ids + 10_000) for each in frames[34:]]
    fixes = track(SlidingWindow(FOCAL), frames)
    assert [fix.quality for fix in fixes].count(Quality.LOST) == 1
    before, after = ([np.linalg.norm(fix.velocity) for fix in fixes[part] if fix.quality is Quality.TRACKING]
                     for part in (slice(2, 13), slice(36, None)))
    assert len(after) > 18
    assert np.median(after) == pytest.approx(np.median(before), rel=0.35)


def test_too_few_tracks_twice_ids_and_time_that_goes_back_raise_nothing():
    window = SlidingWindow(FOCAL, BASELINE)
    frames = list(steps(poses_of(12)))
    nothing = np.zeros((0, 2))
    window.add(0.5, [], nothing, 0.4, nothing, [])
    track(window, frames[:4], right=True)
    twice = frames[4]._replace(ids=np.repeat(frames[4].ids[::2], 2)[:len(frames[4].ids)])
    fixes = track(window, [twice, *frames[5:], *frames], right=True)
    assert fixes[-1].quality is Quality.TRACKING
    assert all(np.isfinite(fix.pose).all() for fix in fixes)


@pytest.mark.parametrize('right', [True, False])
def test_tracks_without_any_sense_and_geometry_that_fails_end_nothing(right, monkeypatch):
    rng = np.random.default_rng(5)
    window = SlidingWindow(FOCAL, BASELINE if right else None)
    frames = list(steps(poses_of(14)))
    for number in range(25):
        count = int(rng.integers(0, 60))
        points = rng.choice([0.0, 0.1, rng.normal()], (count, 2)) if number % 3 else rng.normal(0, 0.3, (count, 2))
        fix = window.add(0.01 * number + 0.1, rng.integers(0, 80, count), points, 0.01 * number + 0.09, points[::-1],
                         points[:, 0] - 0.05)
        assert np.isfinite(fix.pose).all()
    track(window, frames[:6], right)

    def fail(*_: object) -> None:
        raise np.linalg.LinAlgError('Singular matrix')
    with monkeypatch.context() as patch:
        patch.setattr('lightglue_trt_ros.odometry.sliding_window.adjust', fail)
        assert track(window, frames[6:7], right)[0].quality is Quality.LOST
    assert track(window, frames[7:], right)[-1].quality is Quality.TRACKING


def test_bundle_adjustment_finds_the_least_cost():
    poses = np.linalg.inv(poses_of(5))
    rng = np.random.default_rng(3)
    points = rng.uniform([-3, -2, 5], [3, 2, 12], (40, 3))
    there = points @ poses[:, :3, :3].transpose(0, 2, 1) + poses[:, None, :3, 3]
    seen = np.stack([there[..., 0], there[..., 1], there[..., 0] - BASELINE], axis=2) / there[..., 2:]
    seen[rng.random(seen.shape[:2]) < 0.2] = np.nan
    moved = poses.copy()
    moved[1:, :3, 3] += rng.normal(0, 0.05, (4, 3))
    start = Bundle(moved, points + rng.normal(0, 0.1, points.shape))
    found, estimate = adjust(start, seen, np.ones(seen.shape[:2]), 1, BASELINE, 1 / FOCAL, 30, OffsetEstimate(0.0, FOCAL**2))
    assert abs(estimate.offset) < 1e-4
    assert estimate.information > 1.3 * FOCAL**2, 'the views know something of it too'
    np.testing.assert_allclose(found.inverse_poses, poses, atol=1e-4)
    errors = reprojection_errors(found, seen, np.ones(seen.shape[:2]), BASELINE)
    assert np.nanmax(errors) < 1e-4
    np.testing.assert_array_equal(np.isnan(errors), np.isnan(seen[..., 0]))


def test_where_time_begins_again_the_old_points_are_forgotten():
    """A bag that is played twice has the ids of its first time, and another world."""
    frames, window = list(steps(poses_of(6))), SlidingWindow(FOCAL, BASELINE)
    last = track(window, frames, right=True)[-1].pose
    for frame, fix in zip(frames, track(window, frames, right=True), strict=True):
        assert fix.quality is Quality.TRACKING
        np.testing.assert_allclose(fix.pose, last @ frame.pose, atol=1e-3)


def test_an_imprecise_depth_pulls_little():
    """The error of a right column counts times its precision."""
    poses = np.tile(np.eye(4), (2, 1, 1))
    poses[1, 0, 3] = -0.3
    points = np.random.default_rng(0).uniform([-1, -1, 3], [1, 1, 6], (30, 3))
    exact = Bundle(poses, points)
    seen = np.einsum('pij,lj->pli', poses[:, :3, :3], points) + poses[:, None, :3, 3]
    observed = np.stack([seen[..., 0], seen[..., 1], seen[..., 0] - BASELINE], axis=2) / seen[..., 2:]
    observed[..., 2] += 0.01
    errors = reprojection_errors(exact, observed, np.full((2, 30), 0.1), BASELINE)
    np.testing.assert_allclose(errors, 0.001, rtol=1e-6)


def test_the_precision_of_a_depth_is_that_of_its_deviation():
    """0.1 % of z is not rounded up; only a deviation of 0 is."""
    (step,), rng = list(steps(poses_of(2))), np.random.default_rng(0)
    matches = with_depth(step, 0.001, rng)
    z = matches.xyz[:, 2].astype(np.float64)
    for sigma_z, expected in ((1e-3 * z, 1e-3 * z), (0 * z, 1e-4 * z)):
        odometry = MatchOdometry(CAMERA, depth=True)
        odometry.window._start = lambda: (Quality.STARTING, 0)
        odometry.add(dataclasses.replace(matches, sigma_z=sigma_z.astype(np.float32)))
        found = odometry.window._views[-1].observed[:, 3]
        known = np.isfinite(z)
        np.testing.assert_allclose(found[known], 0.5 / FOCAL * z[known]**2 / expected[known], rtol=1e-5)
