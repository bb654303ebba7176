"""Two fleets on the same recordings: what got better, what worse, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..score.confidence import BEHIND, POWER, TAIL, Difference, mean_difference
from ..score.metrics import Table, paired_differences

AUC, PRECISION, INLIERS = 'pose_auc@10', 'precision@1', 'inlier_ratio'  # what is compared, in METRICS
EQUAL = 'the same'

Changes = dict[tuple[int, str], Difference]  # now less then, points of a percentage, by stride and metric; positive is better


class DetectableLoss(NamedTuple):
    """The losses, points, that the acceptance check tells with the chance POWER at a limit of 0; None: none, too few pairs."""

    stride: int
    metric: str
    together: float | None  # in the mean over all recordings
    recording: float | None  # in a single one, whichever it is


@dataclass
class Comparison:
    """Everything that is said of a fleet and the one before."""

    path: str  # of the one before
    causes: list[str]  # what was set or installed differently
    recordings: dict[str, Changes] = field(default_factory=dict)  # by name
    together: Changes = field(default_factory=dict)  # means over recordings; their pairs are recordings
    missing: list[str] = field(default_factory=list)  # names of recordings that were evaluated then and are not asked for now
    unread: list[str] = field(default_factory=list)  # that were evaluated then and could not be now
    added: list[str] = field(default_factory=list)  # that were not evaluated then

    def failures(self, limit: float) -> list[str]:
        """A line for all that surely got worse by more than `limit` points, the fleet as a whole first.

        Of many comparisons some are far off by chance, so each has to be the surer the more there are (Holm, Scandinavian
        Journal of Statistics 1979, with weights): that any fails although none got worse has a chance of TAIL at most.
        """
        judged, weights = self._judged()
        sure = holm([each.chance_above(-limit) for *_, each in judged], TAIL, weights)
        worse: dict[str, list[str]] = {}
        for (name, stride, metric, each), rejected in zip(judged, sure, strict=True):
            if rejected:
                worse.setdefault(name or 'all recordings', []).append(
                    f'{metric} at stride {stride} {each.difference:+.1f} points ({each.low:+.1f} to {each.high:+.1f})')
        lines = [f'{name}: {"; ".join(changes)}' for name, changes in worse.items()]
        lines += [f'{name}: it was evaluated before and cannot be now' for name in self.unread]
        if not any(self.recordings.values()):
            lines.append(f'nothing can be compared with {self.path}: no recording, or no stride, is the same')
        return lines

    def detectable(self) -> list[DetectableLoss]:
        """For each metric and stride the losses that `failures` tells with the chance POWER; of a single recording it is the loss
        that so many recordings need at most.
        """
        losses: dict[tuple[int, str], tuple[list[float], list[float]]] = {}
        judged, weights = self._judged()
        for (name, stride, metric, each), weight in zip(judged, weights, strict=True):
            losses.setdefault((stride, metric), ([], []))[bool(name)].append(each.detectable(TAIL * weight))
        return [DetectableLoss(stride, metric, min(fleet, default=None), float(np.quantile(single, POWER)) if single else None)
                for (stride, metric), (fleet, single) in losses.items()]

    def _judged(self) -> tuple[list[tuple[str, int, str, Difference]], list[float]]:
        """Recording (empty: all), stride, metric and change of all that have pairs enough, and their shares of the chance to err.

        Half of it is the fleet's as a whole: its few means tell small losses, if they do not pay for all single recordings.
        """
        fleet = [('', *key, each) for key, each in self.together.items() if each.enough]
        single = [(name, *key, each) for name, changes in sorted(self.recordings.items(), key=lambda each: worst(each[1]))
                  for key, each in changes.items() if each.enough]
        groups = [group for group in (fleet, single) if group]
        return [*fleet, *single], [1 / len(groups) / len(group) for group in groups for _ in group]


def holm(chances: Sequence[float], level: float, weights: Sequence[float] | None = None) -> list[bool]:
    """Which hypotheses of p values (N,) are rejected, so that the chance to reject any true one is at most `level`.

    `weights` (N,) are the shares of `level` that each begins with; None: equal ones.
    """
    values = np.asarray(chances, np.float64)
    shares = np.ones(len(values)) if weights is None else np.asarray(weights, np.float64)
    order = np.argsort(values / shares, kind='stable')
    left = np.cumsum(shares[order][::-1])[::-1]
    passed = np.minimum.accumulate(values[order] <= level * shares[order] / left)
    rejected = np.zeros(len(values), np.bool_)
    rejected[order] = passed
    return rejected.tolist()


def verdict_of(change: Difference) -> str:
    """EQUAL where nothing differs, else the interval's."""
    return EQUAL if change.difference == change.low == change.high == 0 else change.verdict


def main_change(changes: Changes, stride: int) -> Difference | None:
    """The change that a recording is judged by at a stride: of AUC, or without ground truth of INLIERS."""
    return changes.get((stride, AUC), changes.get((stride, INLIERS)))


def compare(now: dict[int, Table], then: dict[int, Table]) -> Changes:
    """One recording at each stride that both have: pose AUC and precision where there is truth, else the share of inliers."""
    changes: Changes = {}
    for stride in sorted(now.keys() & then.keys()):
        found = paired_differences(now[stride], then[stride], (AUC, PRECISION, INLIERS))
        wanted = (AUC, PRECISION) if AUC in found else (INLIERS,)
        changes |= {(stride, metric): found[metric].scaled(100) for metric in wanted if metric in found}
    return changes


def over_recordings(differences: Iterable[Changes]) -> Changes:
    """The mean change at each stride where there are several, every recording counting once; recordings are what is drawn anew."""
    values: dict[tuple[int, str], list[float]] = {}
    for recording in differences:
        for key, each in recording.items():
            values.setdefault(key, []).append(each.difference)
    keys = sorted(values, key=lambda key: ((AUC, PRECISION, INLIERS).index(key[1]), key[0]))
    return {key: mean_difference(values[key], ordered=False).within(100) for key in keys if len(values[key]) > 1}


def worst(changes: Changes) -> float:
    """The lowest of those that are surely lower, points; 0 without any."""
    return min((each.difference for each in changes.values() if each.verdict == BEHIND), default=0.0)
