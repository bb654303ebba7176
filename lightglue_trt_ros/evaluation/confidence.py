"""How sure a figure is, and a difference between two matchers: the moving-block bootstrap (Künsch, Annals of Statistics 1989).

Values of neighbouring pairs resemble each other, so blocks of them are drawn with replacement, not single ones. Blocks alone give
intervals that are too narrow where values resemble each other much, so:
- an AR(1) is fitted and removed before blocks are drawn, and put back into the mean (prewhitening: Andrews and Monahan,
  Econometrica 1992); its coefficient is corrected for its bias (Marriott and Pope, Biometrika 1954), and it is that of means of
  a few neighbours, as many as half the cube root of N: noise from pair to pair would hide what changes slowly;
- the variance of a mean of blocks misses that of the mean they are measured from: it is divided by 1 - block / N;
- the ends are as far apart as those of a t distribution, with the degrees of freedom of that many independent values.
test/evaluation/test_confidence.py holds how often an interval then misses the true mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.types import Float64

RESAMPLES = 2000
LEVEL = 0.95
SEED = 0  # the same pairs give the same interval
MIN_PAIRS = 6  # 2 * 0.5^n, the chance that n pairs agree on a side that is none, is under 1 - LEVEL from here on
AHEAD, BEHIND, OPEN = 'ahead', 'behind', 'cannot be told from these pairs'

_LEAST_FREEDOM = 4.0  # degrees: fewer are told apart by nothing that a few pairs show


class ConfidenceInterval(NamedTuple):
    """Where a figure may lie, in its own unit, and how many pairs, times or tracks it rests on."""

    low: float
    high: float
    size: int

    def scaled(self, factor: float) -> ConfidenceInterval:
        """The same in another unit."""
        return ConfidenceInterval(self.low * factor, self.high * factor, self.size)


@dataclass(frozen=True)
class Difference:
    """A difference and where it may lie, all in the unit of what is compared."""

    difference: float
    low: float
    high: float
    pairs: int  # that it rests on
    freedom: float = _LEAST_FREEDOM  # degrees of freedom: about how many independent pairs these are worth, less one

    def scaled(self, factor: float) -> Difference:
        """The same in another unit."""
        return Difference(self.difference * factor, self.low * factor, self.high * factor, self.pairs, self.freedom)

    def within(self, limit: float) -> Difference:
        """The same of what cannot be further from 0 than `limit`."""
        return Difference(self.difference, max(self.low, -limit), min(self.high, limit), self.pairs, self.freedom)

    @property
    def verdict(self) -> str:
        """AHEAD or BEHIND where the interval excludes 0 and there are MIN_PAIRS, else OPEN."""
        if self.pairs < MIN_PAIRS or self.low <= 0 <= self.high:
            return OPEN
        return AHEAD if self.low > 0 else BEHIND

    def chance_above(self, limit: float) -> float:
        """The p value, one-sided, of a true difference of `limit` or more."""
        from scipy.special import stdtr
        if self.difference >= limit:
            return 1.0
        upper = self.high - self.difference
        return float(stdtr(self.freedom, (self.difference - limit) / upper * _t(self.freedom))) if upper > 0 else 0.0


class Sample(NamedTuple):
    """A figure: the mean of what each pair adds, in order of time, and a constant."""

    parts: Float64  # (N,)
    constant: float = 0.0


class Dependence(NamedTuple):
    """How values resemble their neighbours."""

    correlation: float  # of neighbours, corrected for its bias, 0 or more
    block: int  # values that are drawn together


def area_sample(errors: ArrayLike, threshold: float) -> Sample:
    """Pose errors (N,) in degrees, for the area under their recall curve up to a threshold; infinite and NaN: no pose.

    The trapezoids of `two_view.pose_auc` add up to the sum of (threshold - error) and half the largest error under the threshold,
    over N times the threshold. The latter is the constant: it is at most 1 / 2N, and hardly varies.
    """
    given = np.asarray(errors, np.float64).ravel()
    within = given < threshold  # NaN is not
    largest = given[within].max(initial=0.0) / (2 * max(len(given), 1) * threshold)
    return Sample(np.where(within, threshold - np.where(within, given, 0.0), 0.0) / threshold, float(largest))


def interval_of(sample: Sample) -> ConfidenceInterval:
    """Where a figure may lie, within the values that it is the mean of; NaN without any."""
    parts, constant = sample
    if not len(parts):
        return ConfidenceInterval(np.nan, np.nan, 0)
    low, high, _ = _deviations(parts)
    low, high = np.clip(parts.mean() + np.array([low, high]), parts.min(), parts.max()) + constant
    return ConfidenceInterval(float(low), float(high), len(parts))


def difference(first: Sample, other: Sample) -> Difference:
    """The first less the other, over the same pairs: each counts with both of its values. Without pairs all is 0."""
    return mean_difference(first.parts - other.parts, constant=first.constant - other.constant)


def mean_interval(values: ArrayLike) -> ConfidenceInterval:
    """Where the mean of values (N,), in order of time, may lie; NaN without any."""
    return interval_of(Sample(np.asarray(values, np.float64).ravel()))


def mean_difference(differences: ArrayLike, ordered: bool = True, constant: float = 0.0) -> Difference:
    """The mean of differences (N,) and a constant, and where it may lie; `ordered`: they follow each other in time."""
    parts = np.asarray(differences, np.float64).ravel()
    if not len(parts):
        return Difference(0.0, 0.0, 0.0, 0)
    low, high, freedom = _deviations(parts, ordered)
    mean = float(parts.mean()) + constant
    return Difference(mean, mean + low, mean + high, len(parts), freedom)


def ratio_interval(sums: ArrayLike, counts: ArrayLike) -> ConfidenceInterval:
    """Where the sum of `sums` (N,) over the sum of `counts` (N,) may lie, both in order of time; NaN without any count.

    Each entry adds what it moves the ratio by (Cochran, Sampling Techniques, chapter 6).
    """
    above, below = np.asarray(sums, np.float64), np.asarray(counts, np.float64)
    total = float(below.sum())
    if not total:
        return ConfidenceInterval(np.nan, np.nan, 0)
    ratio, own = float(above.sum()) / total, above[below > 0] / below[below > 0]
    low, high, _ = _deviations((above - ratio * below) / below.mean())
    return ConfidenceInterval(float(max(ratio + low, own.min())), float(min(ratio + high, own.max())), int(total))


def percentile_intervals(values: ArrayLike, percents: Sequence[int]) -> list[ConfidenceInterval]:
    """Where percentiles of values (N,), N > 0, in order of time, may lie: the percentiles at the ends of the interval of the share
    that lies below (Woodruff, Journal of the American Statistical Association 1952).
    """
    given, intervals = np.asarray(values, np.float64).ravel(), []
    for percent in percents:
        low, high, _ = _deviations((given <= np.percentile(given, percent)).astype(np.float64))
        ends = np.percentile(given, np.clip([percent + 100 * low, percent + 100 * high], 0, 100))
        intervals.append(ConfidenceInterval(float(ends[0]), float(ends[1]), len(given)))
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


def _deviations(values: Float64, ordered: bool = True) -> tuple[float, float, float]:
    """How far below and above their mean that of values (N,), N > 0, may lie, and the degrees of freedom that this rests on."""
    if len(values) < 2 or np.ptp(values) <= 1e-12 * np.abs(values).max():
        return 0.0, 0.0, max(len(values) - 1.0, _LEAST_FREEDOM)
    joined = max(1, round(len(values)**(1 / 3) / 2)) if ordered else 1
    count = len(values) // joined
    means = values[len(values) - count * joined:].reshape(count, joined).mean(axis=1)
    centred = means - means.mean()
    correlation, block = dependence(means) if ordered else Dependence(0.0, 1)
    rest = centred - correlation * np.concatenate([[0.0], centred[:-1]])
    rest[0] *= math.sqrt(1 - correlation**2)
    rest -= rest.mean()
    sums = np.convolve(np.concatenate([rest, rest[:block - 1]]), np.ones(block), 'valid')  # of the block that starts at each
    blocks = -(-count // block)
    drawn = sums[np.random.default_rng(SEED).integers(0, count, (RESAMPLES, blocks))].sum(axis=1)
    fitted = max(1, count - 1 - (correlation > 0))
    edge = 1 - block / count if block > 1 else 1.0
    drawn /= math.sqrt(blocks * block * fitted * edge) * (1 - correlation)
    independent = float(centred @ centred) / (count - 1) / max(float(np.var(drawn)), 1e-300)
    freedom = max(_LEAST_FREEDOM, min(independent - 1, count - 1, 1.5 * count / block if block > 1 else math.inf))
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) * (_t(freedom) / _t(math.inf))
    return float(min(low, 0.0)), float(max(high, 0.0)), freedom


def _t(freedom: float) -> float:
    """Quantile of the t distribution at the upper end of LEVEL."""
    from scipy.special import ndtri, stdtrit
    return float(stdtrit(freedom, (1 + LEVEL) / 2)) if math.isfinite(freedom) else float(ndtri((1 + LEVEL) / 2))
