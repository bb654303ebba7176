"""How sure a figure is, and a difference between two matchers: the percentile bootstrap (Efron and Tibshirani, 1993, chapter 13).

Pairs of frames are drawn with replacement, the same ones for every figure and every matcher that has as many pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..recordings.poses import Float64

RESAMPLES = 2000
LEVEL = 0.95
SEED = 0  # the same pairs give the same interval
MIN_PAIRS = 6  # 2 * 0.5^n, the chance that n pairs agree on a side that is none, is under 1 - LEVEL from here on
AHEAD, BEHIND, OPEN = 'ahead', 'behind', 'cannot be told from these pairs'

_CHUNK = 2_000_000  # drawn pairs that are held at a time
_LARGEST = 200  # errors that may be the largest of a draw: that none of so many is drawn has a chance of exp(-200)


class Spread(NamedTuple):
    """Where a figure may lie, in its own unit, and how many pairs, times or tracks it rests on."""

    low: float
    high: float
    size: int

    def scaled(self, factor: float) -> Spread:
        """The same in another unit."""
        return Spread(self.low * factor, self.high * factor, self.size)


@dataclass(frozen=True)
class Interval:
    """A difference and where it may lie, all in the unit of what is compared."""

    difference: float
    low: float
    high: float
    pairs: int  # that it rests on

    def scaled(self, factor: float) -> Interval:
        """The same in another unit."""
        return Interval(self.difference * factor, self.low * factor, self.high * factor, self.pairs)

    @property
    def verdict(self) -> str:
        """AHEAD or BEHIND where the interval excludes 0 and there are MIN_PAIRS, else OPEN."""
        if self.pairs < MIN_PAIRS or self.low <= 0 <= self.high:
            return OPEN
        return AHEAD if self.low > 0 else BEHIND


class AreaSample:
    """Pose errors (N,) in degrees, for the area under their recall curve up to a threshold; infinite and NaN: no pose."""

    def __init__(self, errors: ArrayLike, threshold: float) -> None:
        given = np.asarray(errors, np.float64).ravel()
        within = given < threshold  # NaN is not
        self._gains, self._threshold = np.where(within, threshold - given, 0.0), threshold
        reached = np.where(within, given, 0.0)
        self._order = np.argsort(-reached, kind='stable')[:_LARGEST]
        self._largest = reached[self._order]

    def __call__(self, weights: Float64) -> Float64:
        """The area (R,) where pair i counts weights[:, i] times, (R, N).

        The trapezoids of `twoview.pose_auc` add up to the sum of (threshold - error) and half the largest error under the
        threshold, over N times the threshold: nothing needs sorting.
        """
        drawn = weights[:, self._order] > 0
        largest = np.where(drawn.any(axis=1), self._largest[drawn.argmax(axis=1)], 0.0)
        return np.asarray((weights @ self._gains + largest / 2) / (len(self._gains) * self._threshold), np.float64)


class MeanSample:
    """Values (N,), for the mean of those that are known: NaN is not."""

    def __init__(self, values: ArrayLike) -> None:
        given = np.asarray(values, np.float64).ravel()
        self._known = np.isfinite(given).astype(np.float64)
        self._values = np.where(np.isfinite(given), given, 0.0)

    def __call__(self, weights: Float64) -> Float64:
        """The mean (R,) where value i counts weights[:, i] times, (R, N); NaN where none is known."""
        with np.errstate(invalid='ignore'):
            return np.asarray(weights @ self._values / (weights @ self._known), np.float64)


Sample = AreaSample | MeanSample


def spreads(samples: Mapping[str, Sample], count: int, *, resamples: int = RESAMPLES, level: float = LEVEL,
            seed: int = SEED) -> dict[str, Spread]:
    """Where each figure of `count` pairs may lie; empty without pairs."""
    if not count or not samples:
        return {}
    drawn: dict[str, list[Float64]] = {name: [] for name in samples}
    for weights in _weights(count, resamples, seed):
        for name, sample in samples.items():
            drawn[name].append(sample(weights))
    return {name: Spread(*_ends(np.concatenate(found), level), count) for name, found in drawn.items()}


def difference(first: Sample, other: Sample, count: int, *, resamples: int = RESAMPLES, level: float = LEVEL,
               seed: int = SEED) -> Interval:
    """The first less the other, over the same `count` pairs: each is drawn with both of its values. Without pairs all is 0."""
    return differences({'': (first, other)}, count, resamples=resamples, level=level, seed=seed)['']


def differences(samples: Mapping[str, tuple[Sample, Sample]], count: int, *, resamples: int = RESAMPLES, level: float = LEVEL,
                seed: int = SEED) -> dict[str, Interval]:
    """The same for several figures of the same pairs, by name."""
    if not count:
        return {name: Interval(0.0, 0.0, 0.0, 0) for name in samples}
    drawn: dict[str, list[Float64]] = {name: [] for name in samples}
    for weights in _weights(count, resamples, seed):
        for name, (first, other) in samples.items():
            drawn[name].append(first(weights) - other(weights))
    every = np.ones((1, count))
    return {name: Interval(float((first(every) - other(every))[0]), *_ends(np.concatenate(drawn[name]), level), count)
            for name, (first, other) in samples.items()}


def pose_auc_difference(first: ArrayLike, other: ArrayLike, threshold: float, *, resamples: int = RESAMPLES, level: float = LEVEL,
                        seed: int = SEED) -> Interval:
    """Pose AUC up to `threshold` degrees of the first less that of the other, in [-1, 1], over the same pairs.

    `first` and `other` are the errors (N,) of both on each pair, degrees; infinity and NaN where no pose was found, which counts as
    in `twoview.pose_auc`.
    """
    return difference(AreaSample(first, threshold), AreaSample(other, threshold), np.asarray(first).size, resamples=resamples,
                      level=level, seed=seed)


def mean_spread(values: ArrayLike) -> Spread:
    """Where the mean of values (N,) may lie; NaN without any."""
    given = np.asarray(values, np.float64).ravel()
    return spreads({'': MeanSample(given)}, len(given)).get('', Spread(np.nan, np.nan, 0))


def mean_interval(differences: ArrayLike) -> Interval:
    """The mean of differences (N,), N > 0, and where it may lie."""
    given = np.asarray(differences, np.float64).ravel()
    return Interval(float(given.mean()), *mean_spread(given))


def percentile_spreads(values: ArrayLike, percents: tuple[int, ...]) -> list[Spread]:
    """Where percentiles of values (N,), N > 0, may lie."""
    given = np.asarray(values, np.float64).ravel()
    rng, found = np.random.default_rng(SEED), [np.zeros((len(percents), 0))]
    for rows in _chunks(len(given), RESAMPLES):
        found.append(np.percentile(given[rng.integers(0, len(given), (rows, len(given)))], percents, axis=1))
    return [Spread(*_ends(drawn, LEVEL), len(given)) for drawn in np.concatenate(found, axis=1)]


def histogram_mean_spread(histogram: Mapping[int, int]) -> Spread:
    """Where the mean may lie of what a histogram counts, value -> how often; NaN of an empty one."""
    values, counts = (np.array(side, np.float64) for side in (list(histogram.keys()), list(histogram.values())))
    total = int(counts.sum())
    if not total:
        return Spread(np.nan, np.nan, 0)
    drawn = np.random.default_rng(SEED).multinomial(total, counts / total, RESAMPLES) @ values / total
    return Spread(*_ends(drawn, LEVEL), total)


def _weights(count: int, resamples: int, seed: int) -> Iterator[Float64]:
    """How often each of `count` pairs is drawn, (R, count), R adding up to `resamples`."""
    rng = np.random.default_rng(seed)
    for rows in _chunks(count, resamples):
        drawn = rng.integers(0, count, (rows, count)) + count * np.arange(rows)[:, None]
        yield np.bincount(drawn.ravel(), minlength=rows * count).reshape(rows, count).astype(np.float64)


def _chunks(count: int, resamples: int) -> Iterator[int]:
    step = max(1, _CHUNK // count)
    for start in range(0, resamples, step):
        yield min(step, resamples - start)


def _ends(drawn: Float64, level: float) -> tuple[float, float]:
    low, high = np.nanquantile(drawn, [(1 - level) / 2, (1 + level) / 2]) if np.isfinite(drawn).any() else (np.nan, np.nan)
    return float(low), float(high)
