"""Two fleets on the same recordings: what got better, what worse, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..evaluation.bootstrap import BEHIND, LEVEL, RESAMPLES, SEED, Interval, pose_auc_difference
from ..recordings.poses import Float64

AUC_DEG = 10
EQUAL = 'the same'


class PairColumns(NamedTuple):
    """The pairs of one matcher on one recording, N rows."""

    stride: NDArray[np.int64]
    reference_frame: NDArray[np.int64]
    frame: NDArray[np.int64]
    pose_error_deg: Float64  # infinite where no pose was found, NaN where the truth does not say
    inliers: Float64
    matches: Float64

    def at(self, stride: int) -> PairColumns:
        """Those of one stride."""
        return PairColumns(*(column[self.stride == stride] for column in self))


class Difference(NamedTuple):
    """One recording now, less then."""

    stride: int
    metric: str
    interval: Interval  # points of a percentage, positive where it got better

    @property
    def verdict(self) -> str:
        """EQUAL where nothing differs, else the interval's."""
        found = self.interval
        return EQUAL if found.difference == found.low == found.high == 0 else found.verdict

    def worse_by(self, limit: float) -> bool:
        """Whether it got worse by more than `limit` points, and that is no chance of these pairs."""
        return self.interval.difference < -limit and self.interval.verdict == BEHIND

    def as_dict(self) -> dict[str, Any]:
        return {'stride': self.stride, 'metric': self.metric, **asdict(self.interval), 'verdict': self.verdict}


@dataclass
class Comparison:
    """Everything that is said of a fleet and the one before."""

    path: str  # of the one before
    changes: list[str]  # what was set or installed differently
    recordings: dict[str, list[Difference]] = field(default_factory=dict)  # by name
    together: list[Difference] = field(default_factory=list)  # means over recordings; the interval's pairs are recordings
    missing: list[str] = field(default_factory=list)  # names of recordings that were evaluated then and are not asked for now
    unread: list[str] = field(default_factory=list)  # that were evaluated then and could not be now
    added: list[str] = field(default_factory=list)  # that were not evaluated then

    def failures(self, limit: float) -> list[str]:
        """A line for all that got worse by more than `limit` points, the fleet as a whole first."""
        found = [f'all recordings: {told(each)}' for each in self.together if each.worse_by(limit)]
        found += [f'{name}: {told(each)}' for name, differences in sorted(self.recordings.items(), key=lambda each: worst(each[1]))
                  for each in differences if each.worse_by(limit)]
        found += [f'{name}: it was evaluated before and cannot be now' for name in self.unread]
        return found if self.recordings else [*found, f'no recording of {self.path} was evaluated now: nothing can be compared']


def compare(now: PairColumns, then: PairColumns) -> list[Difference]:
    """One recording at each stride that both have: pose AUC where there is truth, else the share of inliers."""
    return list(_differences(now, then))


def _differences(now: PairColumns, then: PairColumns) -> Iterator[Difference]:
    for stride in sorted(set(now.stride.tolist()) & set(then.stride.tolist())):
        mine, theirs = _common(now.at(stride), then.at(stride))
        known = ~(np.isnan(mine.pose_error_deg) | np.isnan(theirs.pose_error_deg))
        if known.any():
            interval = pose_auc_difference(mine.pose_error_deg[known], theirs.pose_error_deg[known], AUC_DEG)
            yield Difference(stride, f'pose_auc@{AUC_DEG}', interval.scaled(100))
        elif len(known):
            shares = [np.divide(side.inliers, np.maximum(side.matches, 1)) for side in (mine, theirs)]
            yield Difference(stride, 'inlier_ratio', mean_difference(*shares).scaled(100))


def _common(first: PairColumns, second: PairColumns) -> tuple[PairColumns, PairColumns]:
    """The pairs of frames that both have, in one order."""
    keys = [side.reference_frame * (1 << 32) + side.frame for side in (first, second)]
    _, rows, others = np.intersect1d(*keys, return_indices=True)
    return PairColumns(*(column[rows] for column in first)), PairColumns(*(column[others] for column in second))


def over_recordings(differences: Iterable[list[Difference]]) -> list[Difference]:
    """The mean difference at each stride, every recording counting once; recordings are what is drawn anew."""
    found: dict[tuple[int, str], list[float]] = {}
    for recording in differences:
        for each in recording:
            found.setdefault((each.stride, each.metric), []).append(each.interval.difference)
    return [Difference(stride, metric, mean_difference(values, np.zeros(len(values))))
            for (stride, metric), values in sorted(found.items(), key=lambda each: (each[0][1] != f'pose_auc@{AUC_DEG}', each[0]))]


def mean_difference(first: Sequence[float] | Float64, other: Sequence[float] | Float64) -> Interval:
    """Mean of the first less the other's, of values (N,) that belong together, by the bootstrap of `evaluation.bootstrap`."""
    gains = np.asarray(first, np.float64) - np.asarray(other, np.float64)
    drawn = np.random.default_rng(SEED)
    means = [gains[drawn.integers(0, len(gains), len(gains))].mean() for _ in range(RESAMPLES)]
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(gains.mean()), float(low), float(high), len(gains))


def worst(differences: Sequence[Difference]) -> float:
    """The lowest of them, points; 0 without any."""
    return min((each.interval.difference for each in differences), default=0.0)


def told(difference: Difference) -> str:
    """For people: pose_auc@10 at stride 2 -5.3 points (-7.0 to -3.1)"""
    found = difference.interval
    return f'{difference.metric} at stride {difference.stride} {found.difference:+.1f} points ({found.low:+.1f} to {found.high:+.1f})'
