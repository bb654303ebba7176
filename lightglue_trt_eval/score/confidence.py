"""How sure a figure is, and a difference between two matchers, of values whose neighbours resemble each other.

Values follow each other in time, and a few of them do not tell how much they resemble those before. So the mean has the posterior
distribution under an AR(1) whose correlation is unknown, with the reference prior (Berger and Yang, Econometric Theory 1994): a
mixture of Student's t distributions, one for each correlation, weighted by how well that explains the values. Few values allow
high correlations and get wide intervals; many values tell it, and get those of their correlation.
- Noise from pair to pair hides what changes slowly, so means of a few neighbours are the values, as many as half the cube root of
  N, where that leaves LEAST_MEANS.
- An interval allows every correlation, also of what drifts for longer than the values last. A p value takes those up to
  MOST_CORRELATED: otherwise no loss, however large, would have one of less than a thousandth in a few dozens of values.
- A share of pairs and a percentile have the ends that counts of independent values have (Clopper and Pearson, Biometrika 1934;
  order statistics), of as many values as these are worth.
test/eval/test_confidence.py holds how often intervals and verdicts err.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lightglue_trt_ros.core.types import Float64

LEVEL = 0.95
TAIL = (1 - LEVEL) / 2
SEED = 0  # the same steps give the same interval of a trajectory
MIN_PAIRS = 10  # of fewer, whose correlation is 0.9, more than 1 - LEVEL would get a verdict on nothing
MIN_RECORDINGS = 6  # 2 * 0.5^n, the chance that n independent values agree on a side that is none, is under 1 - LEVEL from here on
MOST_CORRELATED = 0.95  # neighbours, for p values: they resemble each other over 40 values then
LEAST_MEANS = 50  # of neighbours: fewer independent ones would not exclude that they are highly correlated
POWER = 0.8  # chance with which what is detectable is detected
AHEAD, BEHIND, OPEN = 'ahead', 'behind', 'cannot be told from these pairs'

_CORRELATIONS = np.sin(np.pi * ((np.arange(64) + 0.5) / 64 - 0.5))  # equally likely: 1 / sqrt(1 - r^2) is the reference prior
_LEAST_WEIGHT = 1e-12  # of a correlation that is considered
_LEAST_RESIDUAL = 1e-12  # of the sum of squares: what is left of it is rounding


class ConfidenceInterval(NamedTuple):
    """Where a figure may lie, in its own unit, and how many pairs, times or tracks it rests on. Infinite: that end is open."""

    low: float
    high: float
    size: int

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    def scaled(self, factor: float) -> ConfidenceInterval:
        """The same in another unit."""
        return ConfidenceInterval(self.low * factor, self.high * factor, self.size)


class Posterior(NamedTuple):
    """How far the true mean may be from that of the values: a mixture of t distributions of the same freedom."""

    weights: Float64  # (G,)
    centres: Float64  # (G,) from the mean of the values
    scales: Float64  # (G,) 0: the values are all the same
    freedom: float
    correlations: Float64  # (G,) of neighbours

    def up_to(self, correlation: float) -> Posterior:
        """The same, if the correlation is no higher."""
        kept = self.correlations <= correlation
        if not kept.any():
            return self
        weights = self.weights[kept] / self.weights[kept].sum()
        return Posterior(weights, self.centres[kept], self.scales[kept], self.freedom, self.correlations[kept])

    def scaled(self, factor: float) -> Posterior:
        """The same in another unit."""
        return self._replace(centres=self.centres * factor, scales=self.scales * factor)

    @property
    def middle_scale(self) -> float:
        """The median of the scales."""
        order = np.argsort(self.scales)
        return float(self.scales[order[np.searchsorted(np.cumsum(self.weights[order]), 0.5)]])

    def chance_below(self, offset: float) -> float:
        """The probability that the true mean is further down than `offset` from that of the values."""
        from scipy.special import stdtr
        if not self.scales[0]:
            return float(offset > 0)
        return float(self.weights @ stdtr(self.freedom, (offset - self.centres) / self.scales))

    def quantile(self, chance: float) -> float:
        """The offset below which the true mean is with this probability."""
        from scipy.optimize import brentq
        from scipy.special import stdtrit
        if not self.scales[0]:
            return 0.0
        ends = self.centres + self.scales * stdtrit(self.freedom, chance)
        low, high = float(ends.min()), float(ends.max())
        if high - low <= 1e-9 * max(abs(low), abs(high)):
            return low
        room = 1e-3 * (high - low)  # for rounding
        found = brentq(lambda offset: self.chance_below(offset) - chance, low - room, high + room, xtol=1e-6 * room, rtol=1e-6)
        return float(found)


EXACT = Posterior(np.ones(1), np.zeros(1), np.zeros(1), 0.0, np.zeros(1))  # of values that are all the same


@dataclass(frozen=True)
class Difference:
    """A difference and where it may lie, all in the unit of what is compared."""

    difference: float
    low: float
    high: float
    pairs: int  # that it rests on
    freedom: float = 0.0  # about how many independent pairs these are worth, less one
    least: int = MIN_PAIRS  # pairs for a verdict
    posterior: Posterior = field(default=EXACT, repr=False, compare=False)  # of correlations up to MOST_CORRELATED

    def scaled(self, factor: float) -> Difference:
        """The same in another unit."""
        return replace(self, difference=self.difference * factor, low=self.low * factor, high=self.high * factor,
                       posterior=self.posterior.scaled(factor))

    def within(self, limit: float) -> Difference:
        """The same of what cannot be further from 0 than `limit`."""
        return replace(self, low=max(self.low, -limit), high=min(self.high, limit))

    def plain(self) -> dict[str, Any]:
        """For reports."""
        return {'difference': self.difference, 'low': self.low, 'high': self.high, 'pairs': self.pairs, 'freedom': self.freedom,
                'verdict': self.verdict}

    @property
    def enough(self) -> bool:
        """Whether there are as many pairs as a verdict needs."""
        return self.pairs >= self.least

    @property
    def verdict(self) -> str:
        """AHEAD or BEHIND where the interval excludes 0 and there are enough pairs, else OPEN."""
        if not self.enough or self.low <= 0 <= self.high:
            return OPEN
        return AHEAD if self.low > 0 else BEHIND

    def chance_above(self, limit: float) -> float:
        """The p value, one-sided, of a true difference of `limit` or more."""
        return 1.0 if self.difference >= limit else 1 - self.posterior.chance_below(limit - self.difference)

    def detectable(self, chance: float) -> float:
        """The loss whose p value falls below `chance` with the probability POWER."""
        return self.posterior.quantile(1 - chance) + max(0.0, self.posterior.quantile(POWER))


class Sample(NamedTuple):
    """A figure: the mean of what each pair adds, in order of time, and a constant; it lies between `least` and `most`."""

    parts: Float64  # (N,)
    constant: float = 0.0
    least: float = -np.inf
    most: float = np.inf


class Dependence(NamedTuple):
    """How values resemble their neighbours."""

    correlation: float  # of neighbours, corrected for its bias, 0 or more
    block: int  # values that are drawn together


class _Mean(NamedTuple):
    """Of the mean of values: ends of its interval below and above, and how many independent values these are worth."""

    low: float
    high: float
    independent: float
    posterior: Posterior


def area_sample(errors: ArrayLike, threshold: float) -> Sample:
    """Pose errors (N,) in degrees, for the area under their recall curve up to a threshold; infinite and NaN: no pose.

    The trapezoids of `two_view.pose_auc` add up to the sum of (threshold - error) and half the largest error under the threshold,
    over N times the threshold. The latter is the constant: it is at most 1 / 2N, and hardly varies.
    """
    given = np.asarray(errors, np.float64).ravel()
    within = given < threshold  # NaN is not
    largest = given[within].max(initial=0.0) / (2 * max(len(given), 1) * threshold)
    return Sample(np.where(within, threshold - np.where(within, given, 0.0), 0.0) / threshold, float(largest), 0.0, 1.0)


def interval_of(sample: Sample) -> ConfidenceInterval:
    """Where a figure may lie, within the values that it is the mean of; NaN without any."""
    parts, constant, least, most = sample
    if not len(parts):
        return ConfidenceInterval(np.nan, np.nan, 0)
    found = _mean(parts)
    ends = np.clip(parts.mean() + np.array([found.low, found.high]), parts.min(), parts.max()) + constant
    low, high = np.clip(ends, least, most)
    return ConfidenceInterval(float(low), float(high), len(parts))


def difference(first: Sample, other: Sample) -> Difference:
    """The first less the other, over the same pairs: each counts with both of its values. Without pairs all is 0."""
    return mean_difference(first.parts - other.parts, constant=first.constant - other.constant)


def mean_interval(values: ArrayLike) -> ConfidenceInterval:
    """Where the mean of values (N,), in order of time, may lie; NaN without any."""
    return interval_of(Sample(np.asarray(values, np.float64).ravel()))


def mean_difference(differences: ArrayLike, ordered: bool = True, constant: float = 0.0) -> Difference:
    """The mean of differences (N,) and a constant, and where it may lie.

    Args:
        ordered: They follow each other in time; False: they are independent, as recordings are.
    """
    parts = np.asarray(differences, np.float64).ravel()
    least = MIN_PAIRS if ordered else MIN_RECORDINGS
    if not len(parts):
        return Difference(0.0, 0.0, 0.0, 0, least=least)
    found, mean = _mean(parts, ordered), float(parts.mean()) + constant
    return Difference(mean, mean + found.low, mean + found.high, len(parts), found.independent - 1, least,
                      found.posterior.up_to(MOST_CORRELATED))


def ratio_interval(sums: ArrayLike, counts: ArrayLike) -> ConfidenceInterval:
    """Where the sum of `sums` (N,) over the sum of `counts` (N,) may lie, both in order of time; NaN without any count.

    Each entry adds what it moves the ratio by (Cochran, Sampling Techniques, chapter 6).
    """
    above, below = np.asarray(sums, np.float64), np.asarray(counts, np.float64)
    total = float(below.sum())
    if not total:
        return ConfidenceInterval(np.nan, np.nan, 0)
    ratio, own = float(above.sum()) / total, above[below > 0] / below[below > 0]
    found = _mean((above - ratio * below) / below.mean())
    return ConfidenceInterval(float(max(ratio + found.low, own.min())), float(min(ratio + found.high, own.max())), int(total))


def share_interval(hits: ArrayLike) -> ConfidenceInterval:
    """Where the share of ones among zeros and ones (N,), N > 0, in order of time, may lie: all or none of N is not surely all."""
    from scipy.special import betaincinv
    given = np.asarray(hits, np.float64).ravel()
    size, share = _mean(given).independent, float(given.mean())
    low = betaincinv(share * size, (1 - share) * size + 1, TAIL) if share > 0 else 0.0
    high = betaincinv(share * size + 1, (1 - share) * size, 1 - TAIL) if share < 1 else 1.0
    return ConfidenceInterval(float(low), float(high), len(given))


def percentile_intervals(values: ArrayLike, percents: Sequence[int]) -> list[ConfidenceInterval]:
    """Where percentiles of values (N,), N > 0, in order of time, may lie: between two of the values.

    An end is open, infinite, where too few values tell it: N independent ones are all below the percentile p with the probability
    p^N. A 95th percentile has an upper end from 72 independent values on, a 99th from 368.
    """
    from scipy.special import betainc
    in_time = np.asarray(values, np.float64).ravel()
    order, count, intervals = np.argsort(in_time, kind='stable'), len(in_time), []
    given, ranks = in_time[order], np.empty(count)
    ranks[order] = np.arange(count)
    size = _mean(ranks).independent
    worth = np.arange(1, count + 1) * (size / count)  # independent values up to each
    for percent in percents:
        share = percent / 100
        above = np.flatnonzero(betainc(worth, size - worth + 1, share) <= TAIL)  # as many are below the percentile too seldom
        below = np.flatnonzero(betainc(worth, size - worth + 1, 1 - share) <= TAIL)  # the same from the other end
        intervals.append(ConfidenceInterval(float(given[count - 1 - below[0]]) if len(below) else -math.inf,
                                            float(given[above[0]]) if len(above) else math.inf, count))
    return intervals


def dependence(values: ArrayLike) -> Dependence:
    """How values (N,), or the columns of (N, K) that resemble their neighbours most, do so.

    A block is as long as is best for the variance of an AR(1)'s mean (Politis and White, Econometric Reviews 2004), and at least
    the cube root of N, as values may resemble each other over longer than an AR(1) tells; at most a quarter of N.
    """
    given = np.asarray(values, np.float64)
    count, centred = len(given), given - given.mean(axis=0)
    square = np.sum(centred**2, axis=0)
    if count <= 4 or not np.any(square > 0):
        return Dependence(0.0, 1)
    lagged = np.max(np.sum(centred[1:] * centred[:-1], axis=0)[square > 0] / square[square > 0]) if given.ndim > 1 else \
        np.sum(centred[1:] * centred[:-1]) / square
    correlation = float(np.clip((count * lagged + 1) / (count - 3), 0, max(0.0, 1 - 4 / count)))  # there all are worth two values
    best = (1.5 * count * (2 * correlation / (1 - correlation**2))**2)**(1 / 3)
    return Dependence(correlation, max(1, int(min(max(best, count**(1 / 3)), count / 4))))


def drawn_blocks(count: int, block: int, rows: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Indices (rows, count) of values in blocks that follow each other; the first value follows the last."""
    starts = rng.integers(0, count, (rows, -(-count // block)))
    return np.asarray((starts[:, :, None] + np.arange(block)).reshape(rows, -1)[:, :count] % count, np.int64)


def _mean(values: Float64, ordered: bool = True) -> _Mean:
    """How far from their mean that of values (N,), N > 0, may lie."""
    count = len(values)
    if count < 2 or np.ptp(values) <= 1e-12 * np.abs(values).max():
        return _Mean(0.0, 0.0, float(count), EXACT)
    if ordered:
        joined = max(1, min(round(count**(1 / 3) / 2), count // LEAST_MEANS))
        means = values[count % joined:].reshape(-1, joined).mean(axis=1)
        posterior = _posterior(means - values.mean())
    else:
        posterior = Posterior(np.ones(1), np.zeros(1), np.full(1, values.std(ddof=1) / math.sqrt(count)), count - 1.0, np.zeros(1))
    low, high = posterior.quantile(TAIL), posterior.quantile(1 - TAIL)
    independent = values.var(ddof=1) / posterior.middle_scale**2
    return _Mean(min(low, 0.0), max(high, 0.0), float(np.clip(independent, 1, count)), posterior)


def _posterior(values: Float64) -> Posterior:
    """Of the mean of values (N,), N > 1, in order of time: for each correlation the generalized least-squares mean, its standard
    error, and the likelihood with mean and deviation integrated out.
    """
    first, before, after, count = values[0], values[:-1], values[1:], len(values)
    stays, steps = 1 - _CORRELATIONS**2, 1 - _CORRELATIONS
    known = stays + (count - 1) * steps**2  # information on the mean, over that of one step
    centres = (stays * first + steps * (after.sum() - _CORRELATIONS * before.sum())) / known
    residual = stays * first**2 + after @ after - 2 * _CORRELATIONS * (after @ before) + _CORRELATIONS**2 * (before @ before) \
        - known * centres**2
    residual = np.maximum(residual, _LEAST_RESIDUAL * (values @ values))
    likely = 0.5 * (np.log(stays) - np.log(known) - (count - 1) * np.log(residual))
    weights = np.exp(likely - likely.max())
    kept = weights > _LEAST_WEIGHT
    scales = np.sqrt(residual / ((count - 1) * known))
    return Posterior(weights[kept] / weights[kept].sum(), centres[kept], scales[kept], count - 1.0, _CORRELATIONS[kept])
