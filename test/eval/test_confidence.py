"""Intervals of figures and differences: how often they miss, and what they say about pairs."""

from __future__ import annotations

import dataclasses
import math

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support.evaluations import evaluation

from lightglue_trt_eval.score import confidence as bootstrap
from lightglue_trt_eval.score.confidence import (
    AHEAD,
    BEHIND,
    MIN_PAIRS,
    MIN_RECORDINGS,
    OPEN,
    Sample,
    area_sample,
    dependence,
    difference,
    drawn_blocks,
    interval_of,
    mean_difference,
    mean_interval,
    percentile_intervals,
    ratio_interval,
    share_interval,
)
from lightglue_trt_eval.score.metrics import CONTESTED, MatcherResult
from lightglue_trt_eval.score.trajectory import align_sim3, ate, kitti_drift, odometry_intervals
from lightglue_trt_ros.odometry.two_view import pose_auc

ERRORS = st.one_of(st.floats(0, 40), st.sampled_from([0.0, 5.0, 10.0, np.inf, np.nan]))


def pose_auc_difference(first, other, threshold):
    """Pose AUC up to `threshold` degrees of the first less that of the other, of the errors (N,) of both on the same pairs."""
    return difference(area_sample(first, threshold), area_sample(other, threshold))


@given(arrays(np.float64, st.tuples(st.just(2), st.integers(1, 40)), elements=ERRORS))
def test_the_difference_is_that_of_the_areas(errors):
    found = pose_auc_difference(errors[0], errors[1], 10)
    assert found.difference == pytest.approx(pose_auc(errors[0], [10])[0] - pose_auc(errors[1], [10])[0], abs=1e-12)
    assert found.low <= found.high


def ar1(rng, correlation, draws, count, ahead=200):
    """Gaussian series (draws, count) whose neighbours are correlated so much, of mean 0."""
    noise, series = rng.standard_normal((draws, count + ahead)), np.zeros((draws, count + ahead))
    for k in range(1, count + ahead):
        series[:, k] = correlation * series[:, k - 1] + noise[:, k]
    return series[:, ahead:]


@pytest.mark.slow
@pytest.mark.parametrize('correlation', [0.0, 0.3, 0.6, 0.8])
def test_an_interval_misses_the_true_mean_as_often_as_it_says(correlation):
    """5 % is right, of figures and of differences alike."""
    series = ar1(np.random.default_rng(0), correlation, 1000, 200)
    found = [mean_difference(values) for values in series]
    missed = np.array([[each.low > 0, each.high < 0] for each in found]).mean(axis=0)
    assert 0.015 <= missed.sum() <= 0.065
    assert (missed > 0.003).all()  # on either side
    assert [mean_interval(values)[:2] for values in series[:5]] == [pytest.approx((each.low, each.high)) for each in found[:5]]


def test_a_slow_change_under_noise_is_seen():
    """An AR(1) does not describe it; its lag 1 correlation of 0.45 says little about how long it lasts."""
    rng = np.random.default_rng(1)
    slow = ar1(rng, 0.9, 300, 200)
    series = slow / slow.std() + rng.standard_normal(slow.shape)
    assert np.mean([not each.low <= 0 <= each.high for each in map(mean_difference, series)]) < 0.16  # as if independent: 47 %


@pytest.mark.parametrize('count', [MIN_PAIRS, 15, 25, 50])
def test_verdicts_of_no_difference_err_as_often_as_they_say(count):
    """5 % is right; 400 draws of that give at most 8 % with a chance of 99 %."""
    for correlation in (0.0, 0.5, 0.9):
        series = ar1(np.random.default_rng(2), correlation, 400, count)
        assert np.mean([mean_difference(values).verdict != OPEN for values in series]) <= 0.08, correlation


def test_a_difference_that_is_there_gets_its_verdict():
    for count, step in ((MIN_PAIRS, 6.0), (25, 1.0), (100, 0.5)):
        series = step + ar1(np.random.default_rng(2), 0.0, 50, count)
        assert np.mean([mean_difference(values).verdict == AHEAD for values in series]) > 0.8


def test_the_interval_of_a_median_follows_the_correlation():
    """Times of frames resemble those before; the median of an AR(1) is 0."""
    series = ar1(np.random.default_rng(3), 0.8, 300, 200)
    found = [percentile_intervals(values, (50,))[0] for values in series]
    assert np.mean([not each.low <= 0 <= each.high for each in found]) < 0.08  # as if independent: 42 %


def test_percentiles_have_no_end_that_their_values_cannot_give():
    """30 values are all below their 95th percentile with a chance of 21 %, and below the 99th with one of 74 %."""
    rng = np.random.default_rng(11)
    truths = np.exp(0.35 * np.array([0.0, 1.6449, 2.3263]))
    found = [percentile_intervals(rng.lognormal(0, 0.35, 30), (50, 95, 99)) for _ in range(300)]
    assert (np.mean([misses(row, truths) for row in found], axis=0) <= 0.08).all()
    assert all(math.isinf(late.high) and math.isinf(last.high) for _, late, last in found)
    assert np.mean([math.isfinite(middle.high - middle.low) for middle, _, _ in found]) > 0.9
    many = [percentile_intervals(rng.lognormal(0, 0.35, 500), (50, 95, 99)) for _ in range(100)]
    assert np.mean([math.isfinite(late.high) for _, late, _ in many]) > 0.9
    assert np.mean([misses(row, truths) for row in many]) <= 0.08
    (few,) = percentile_intervals([3.0, 1.0, 2.0], (50,))
    assert few[:2] == (-math.inf, math.inf)


def misses(intervals, truths):
    return [not each.low <= truth <= each.high for each, truth in zip(intervals, truths, strict=True)]


def test_an_interval_of_a_share_is_that_of_counts():
    """All of 25 is not surely all: Clopper and Pearson's ends, of as many independent values as they are worth."""
    assert share_interval([0] * 25)[:2] == pytest.approx((0, 1 - 0.025**(1 / 25)))
    assert share_interval([1] * 25)[:2] == pytest.approx((0.025**(1 / 25), 1))
    hits = np.random.default_rng(0).permutation([1.0] * 30 + [0.0] * 70)
    low, high, size = share_interval(hits)
    assert (low, high, size) == (pytest.approx(0.21, abs=0.03), pytest.approx(0.40, abs=0.03), 100)
    runs = share_interval(np.sort(hits))
    assert runs.high - runs.low > 1.5 * (high - low)


def test_the_area_is_a_mean_and_a_constant():
    errors = np.random.default_rng(3).gamma(2, 4, 50)
    errors[7], errors[9] = np.inf, np.nan
    parts, constant, *_ = area_sample(errors, 10)
    assert parts.mean() + constant == pytest.approx(pose_auc(errors, [10])[0])
    drawn = [pose_auc(errors[rows], [10])[0] for rows in np.random.default_rng(5).integers(0, 50, (400, 50))]
    found = interval_of(area_sample(errors, 10))
    assert found.low <= pose_auc(errors, [10])[0] <= found.high
    assert 0.8 < (found.high - found.low) / np.ptp(np.quantile(drawn, [0.025, 0.975])) < 1.5


def test_blocks_follow_the_correlation():
    rng = np.random.default_rng(4)
    short, long = (dependence(ar1(rng, correlation, 1, 400)[0]) for correlation in (0.0, 0.9))
    assert short.correlation < 0.15 < 0.8 < long.correlation
    assert short.block < 12 < long.block <= 100
    assert dependence(np.ones(50)) == (0, 1)
    drawn = drawn_blocks(10, 4, 100, rng)
    assert drawn.shape == (100, 10)
    assert {*np.diff(drawn[:, :4]).ravel().tolist()} == {1, -9}


def test_the_width_is_that_of_a_mean():
    """Of errors that are 0 or infinite the area is the share of the former: a mean, whose standard error is known."""
    rng = np.random.default_rng(0)
    first, other = (np.where(rng.random(1000) < share, 0.0, np.inf) for share in (0.7, 0.6))
    steps = np.isfinite(first).astype(float) - np.isfinite(other)
    found = pose_auc_difference(first, other, 10)
    assert found.difference == pytest.approx(steps.mean())
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * steps.std() / np.sqrt(1000), rel=0.15)
    assert found.verdict == AHEAD
    assert pose_auc_difference(other, first, 10).verdict == BEHIND


def test_the_interval_holds_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        difficulty = rng.gamma(2, 2, 80)
        first, other = difficulty * rng.gamma(4, 0.25, 80), difficulty * rng.gamma(4, 0.25, 80)  # equally good
        covered += pose_auc_difference(first, other, 10).verdict == OPEN
    assert 0.90 <= covered / 200 <= 0.99


def test_pairs_are_kept_together():
    """A small gain on every pair stands out, though pairs differ by far more."""
    errors = np.random.default_rng(2).uniform(0, 9, 60)
    paired = pose_auc_difference(errors, errors + 0.3, 10)
    assert paired.verdict == AHEAD
    assert paired.high - paired.low < 0.01
    assert pose_auc_difference(errors, np.roll(errors, 7) + 0.3, 10).verdict == OPEN


def test_equal_errors_give_an_open_verdict():
    errors = np.array([1.0, 3.0, np.inf, np.nan, 0.0, 12.0, 2.0])
    found = pose_auc_difference(errors, errors, 5)
    assert (found.difference, found.low, found.high, found.verdict) == (0, 0, 0, OPEN)
    assert pose_auc_difference(np.full(9, np.inf), np.full(9, np.nan), 5).verdict == OPEN
    assert pose_auc_difference([], [], 5) == bootstrap.Difference(0, 0, 0, 0)


def test_few_pairs_give_an_open_verdict():
    first, other = np.zeros(MIN_PAIRS), np.full(MIN_PAIRS, np.inf)
    alike = np.full(MIN_RECORDINGS, 2.0)
    assert [mean_difference(values, ordered=False).verdict for values in (alike, alike[1:])] == [AHEAD, OPEN]
    assert pose_auc_difference(first, other, 10).verdict == AHEAD
    few = pose_auc_difference(first[1:], other[1:], 10)
    assert (few.difference, few.low, few.high, few.verdict) == (1, 1, 1, OPEN)


def test_the_first_is_compared_with_each_other_on_common_pairs():
    found = evaluation(frames=60, strides=(1, 4))
    contests = found.contests
    assert list(contests) == [(s, n, metric) for s in (1, 4) for n in ('SIFT', 'ORB', 'KLT') for metric in CONTESTED]
    for (stride, rival, metric), interval in contests.items():
        first, other = (m.summary(stride)[metric] for m in found.matchers if m.name in ('ours fp16', rival))
        assert interval.difference == pytest.approx(first - other)
        assert interval.pairs == found.matchers[0].count(stride)
    sift = found.matchers[1]
    found = dataclasses.replace(found)
    sift.pairs[1] = {name: np.delete(column, slice(9, 20)) for name, column in sift.pairs[1].items()}
    sift.pairs[1]['pose_error_deg'][:9] = np.nan
    assert found.contests[1, 'SIFT', 'pose_auc@10'].pairs == found.matchers[0].count() - 20
    assert {metric for _, _, metric in evaluation(truth=False).contests} == {'inlier_ratio'}
    assert evaluation(truth=False).headline == 'inlier_ratio'
    assert found.headline == 'pose_auc@10'
    assert evaluation(names=()).contests == {}
    assert evaluation(names=('ours fp16',)).contests == {}


def test_a_mean_of_what_is_known_percentiles_and_ratios():
    values = np.random.default_rng(5).normal(10, 2, 400)
    low, high, size = mean_interval(values)
    assert (high - low) / 2 == pytest.approx(1.96 * values.std() / 20, rel=0.25)
    assert size == 400
    assert mean_interval([]).size == 0
    middle, late = percentile_intervals(values, (50, 95))
    assert middle.low < np.median(values) < middle.high < late.low < np.percentile(values, 95) < late.high
    gap = difference(Sample(values), Sample(values + np.random.default_rng(6).normal(1, 0.1, 400)))
    assert (gap.verdict, gap.pairs) == (BEHIND, 400)
    same = ratio_interval(values, np.ones(400))
    assert same == pytest.approx((low, high, 400))
    assert ratio_interval([0, 0], [0, 0]).size == 0


def test_tracks_that_end_together_are_no_independent_ones():
    """A bad frame ends a thousand tracks at once: there are as many surprises as frames."""
    rng = np.random.default_rng(7)
    ended = rng.permutation([0] * 30 + [1000] * 10)
    lengths = ended * rng.integers(3, 12, 40)
    low, high, size = ratio_interval(lengths, ended)
    assert size == 10_000
    assert high - low > 1.5  # of 10,000 independent tracks: 0.1


def test_the_chance_is_the_intervals():
    values = np.random.default_rng(8).normal(-1, 2, 60)
    found = mean_difference(values)
    assert found.chance_above(found.high) == pytest.approx(0.025, rel=0.1)  # and a little less, without the highest correlations
    assert found.chance_above(found.low) == mean_difference(-values).chance_above(0.0) == 1
    assert found.scaled(100).chance_above(0.0) == pytest.approx(found.chance_above(0.0))
    assert found.high - found.difference < found.detectable(0.025) == pytest.approx(found.scaled(100).detectable(0.025) / 100)
    assert found.chance_above(found.difference) == 1
    assert found.chance_above(5.0) < 1e-3
    assert mean_difference([-3.0] * 9).chance_above(-1) == 0
    wide = mean_difference([-1.0, 1.0, 0.9])
    assert max(-wide.low, wide.high) > 1
    assert (wide.within(1).low, wide.within(1).high) == (-1, 1)


def test_every_figure_of_a_stride_has_its_interval():
    found = evaluation(frames=60, strides=(1, 2))
    for matcher in found.matchers:
        for stride in (1, 2):
            summary, intervals = matcher.summary(stride), matcher.intervals(stride)
            assert set(summary) <= set(intervals)
            for name, value in summary.items():
                assert intervals[name].low <= value * (1 + 1e-9)
                assert value <= intervals[name].high * (1 + 1e-9)


def test_a_trajectorys_interval_is_that_of_trajectories_of_the_same_steps():
    rng, step = np.random.default_rng(6), np.eye(4)
    step[0, 3] = 1.0
    truth = np.stack([np.linalg.matrix_power(step, k) for k in range(80)])

    def walked():
        """Every step is off by a few millimetres and hundredths of a degree."""
        poses = [np.eye(4)]
        for _ in range(79):
            off = np.eye(4)
            off[:3, 3] = rng.normal(0, 0.005, 3)
            off[:3, :3] = cv2.Rodrigues(rng.normal(0, 5e-4, 3))[0]
            poses.append(poses[-1] @ step @ off)
        return np.stack(poses)

    inside = 0
    for _ in range(10):
        interval = odometry_intervals(walked(), truth, None)['ate_m']
        other = walked()
        inside += interval.low <= ate(align_sim3(other, truth).apply(other), truth) <= interval.high
    assert inside >= 8
    assert set(odometry_intervals(truth, truth, kitti_drift(truth, truth))) == {'rpe_m', 'rpe_deg', 'ate_m', 'drift_percent',
                                                                             'drift_deg_per_m'}


@pytest.mark.parametrize(('times', 'low', 'high'), [
    ([20.0] * 3, None, None),  # nothing bounds the median
    (np.linspace(10, 20, 200), 1e3 / 15.8, 1e3 / 14.2),
])
def test_frames_a_second_have_the_ends_that_the_median_has(times, low, high):
    result = MatcherResult('ours', '', True)
    result.stage_ms['frame'] = list(np.random.default_rng(0).permutation(times))
    interval = result.intervals().get('fps')
    if low is None:
        assert interval is None or math.isinf(interval.high)
    else:
        assert interval.low == pytest.approx(low, rel=0.03)
        assert interval.high == pytest.approx(high, rel=0.03)


def test_interval_of_an_area_ends_at_one():
    """Whatever the curve's last trapezoid adds."""
    found = interval_of(area_sample([9.0] + [0.0] * 14, 10.0))
    assert 0 <= found.low <= found.high <= 1
