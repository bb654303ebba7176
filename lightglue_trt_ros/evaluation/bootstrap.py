"""How sure a difference between two matchers is: the paired percentile bootstrap (Efron and Tibshirani, 1993, chapter 13)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..recordings.poses import Float64

RESAMPLES = 2000
LEVEL = 0.95
SEED = 0  # the same pairs give the same interval
MIN_PAIRS = 6  # 2 * 0.5^n, the chance that n pairs agree on a side that is none, is under 1 - LEVEL from here on
AHEAD, BEHIND, OPEN = 'ahead', 'behind', 'cannot be told from these pairs'

_CHUNK = 2_000_000  # drawn pairs that are held at a time


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


def pose_auc_difference(first: ArrayLike, other: ArrayLike, threshold: float, *, resamples: int = RESAMPLES, level: float = LEVEL,
                        seed: int = SEED) -> Interval:
    """Pose AUC up to `threshold` degrees of the first less that of the other, in [-1, 1], over the same pairs.

    `first` and `other` are the errors (N,) of both on each pair, degrees; infinity and NaN where no pose was found, which counts as
    in `twoview.pose_auc`. Pairs are drawn with replacement, each with both of its errors. Without pairs all is 0.
    """
    errors = np.stack([np.asarray(side, np.float64).ravel() for side in (first, other)])
    count = errors.shape[1]
    if not count:
        return Interval(0.0, 0.0, 0.0, 0)
    within = errors < threshold  # NaN is not
    gains = np.where(within, threshold - errors, 0.0)
    reached = np.where(within, errors, 0.0)
    rng = np.random.default_rng(seed)
    differences = [np.zeros(0)]
    step = max(1, _CHUNK // count)
    for start in range(0, resamples, step):
        drawn = rng.integers(0, count, (min(step, resamples - start), count))
        differences.append(_difference(gains[:, drawn], reached[:, drawn], threshold))
    low, high = np.quantile(np.concatenate(differences), [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(_difference(gains, reached, threshold)), float(low), float(high), count)


def _difference(gains: Float64, reached: Float64, threshold: float) -> Float64:
    """AUC of the first less the other's, of arrays (2, ..., N).

    The trapezoids of `twoview.pose_auc` add up to the sum of (threshold - error) and half the largest error under the threshold,
    over N times the threshold: nothing needs sorting.
    """
    areas = (gains.sum(axis=-1) + reached.max(axis=-1) / 2) / (gains.shape[-1] * threshold)
    return np.asarray(areas[0] - areas[1], np.float64)
