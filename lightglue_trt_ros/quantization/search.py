"""Which parts must stay in FP16 for FP8 to keep the matches: sensitivity group by group, then the worst ones left out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..core.config import EngineSpec
from ..core.drawing import GRAY
from ..core.types import Int32
from ..networks.fp8_calibration import BLOCKS, PARTS, Calibration, member
from ..networks.weight_folding import DIM
from ..networks.weights import Weights
from ..utils.console import Bar, print_table
from .matchers import open_matcher
from .quality import LEVELS, HeldOutSet, QualityGate, Score, judge, rounded_figure
from .samples import RecordingSample

SUBSET = 8  # pairs of each level that the search judges by
EXTRA = (0, 1, 3, 6)  # more groups left out, where all pairs fail what those few passed
COLOURS = {'easy': '#0072b2', 'hard': '#d55e00'}

Members = frozenset[str]


class PartGroup(NamedTuple):
    """Parts that go into FP8 or stay in FP16 together."""

    name: str
    members: Members


@dataclass(frozen=True)
class TriedParts:
    """One choice of parts, and what it costs."""

    name: str
    share: float  # of the matcher's FLOPs that are in FP8
    easy: float  # F1, the lowest of the recordings'
    hard: float
    count_ratio: float  # the furthest from 1
    passed: bool
    alone: bool = False  # one group by itself: its sensitivity
    pairs: int = 0  # that it was judged by


@dataclass(frozen=True)
class SearchResult:
    """What a search ends with."""

    fp8: Members | None  # None where nothing passes
    scores: list[Score]  # of that, or of the last one tried, on all pairs
    answers: list[list[Int32]]  # the same one's, by set
    tried: list[TriedParts]


def flops(layers: int, keypoints: int) -> dict[str, float]:
    """Floating-point operations of each member for a pair of images, from the shapes of the graph's products.

    `attention` and `other`, which stay in FP16: the latter is the projection of the descriptors (where weights have one) and the
    assignment's two products.
    """
    rows, found = 2 * keypoints, dict[str, float]()
    for layer in range(layers):
        for block in BLOCKS:
            outputs = {'project': DIM * DIM * (3 if block == 'self' else 2), 'hidden': 4 * DIM * DIM, 'update': 2 * DIM * DIM}
            found |= {member(layer, block, part): 2.0 * rows * weights for part, weights in outputs.items()}
    found['attention'] = layers * len(BLOCKS) * 2 * 2.0 * rows * keypoints * DIM
    found['other'] = 2 * 2.0 * rows * DIM * DIM + 2.0 * keypoints * keypoints * DIM
    return found


def share(members: Iterable[str], layers: int, keypoints: int) -> float:
    """Of the matcher's operations."""
    each = flops(layers, keypoints)
    return sum(each[name] for name in members) / sum(each.values())


def groups(layers: int, fp8: Members) -> list[PartGroup]:
    """`fp8` by block and part, the first half of the layers and the second apart."""
    middle, found = (layers + 1) // 2, []
    for half in (range(middle), range(middle, layers)):
        for block in BLOCKS:
            for part in PARTS:
                chosen = frozenset(member(layer, block, part) for layer in half) & fp8
                if chosen:
                    found.append(PartGroup(f'{block} {part}, layers {half.start + 1} to {half.stop}', chosen))
    return found


class Search:
    """Judges choices of parts by emulating them."""

    def __init__(self, spec: EngineSpec, weights: Weights, calibration: Calibration, samples: Sequence[RecordingSample],
                 held_out: Sequence[HeldOutSet], gate: QualityGate) -> None:
        """`calibration.fp8` is what would be in FP8 if it could; `held_out` has FP32's answers."""
        self._spec, self._weights, self._calibration, self._samples = spec, weights, calibration, samples
        self._held_out, self._gate, self._done = held_out, gate, 0
        self._bar = Bar()
        counts = {level: sum(each.level == level for each in held_out) for level in ('easy', 'hard')}
        self._subset = [each.part(-(-SUBSET // counts[each.level])) for each in held_out]
        self._layers = calibration.value_bases.shape[0]
        self._answers: list[list[Int32]] = []  # of the last evaluation on all pairs
        self._groups = groups(self._layers, calibration.fp8)
        self.steps = len(self._groups) + 1 + len(self._groups).bit_length()  # evaluations, about

    def evaluate(self, name: str, fp8: Members, whole: bool = False, alone: bool = False) -> tuple[TriedParts, list[Score]]:
        """One choice, on all pairs or on the search's."""
        matcher = open_matcher(self._spec, self._weights, replace(self._calibration, fp8=fp8))
        scores, found = judge(self._held_out if whole else self._subset, self._samples, matcher)
        self._answers = found if whole else []
        self._done += 1
        self._bar(min(self._done, self.steps))
        return self.tried(name, fp8, scores, alone), scores

    def tried(self, name: str, fp8: Members, scores: Sequence[Score], alone: bool = False) -> TriedParts:
        easy, hard = ([each.f1 for each in scores if each.level == level] for level in ('easy', 'hard'))
        ratio = max((each.count_ratio for each in scores), key=lambda value: abs(value - 1), default=1.0)
        part = share(fp8, self._layers, self._spec.max_keypoints)
        return TriedParts(name, part, min(easy, default=1.0), min(hard, default=1.0), ratio, self._gate.passed(scores), alone,
                          sum(each.pairs for each in scores))

    def run(self, bar: Bar | None = None) -> SearchResult:
        """Groups one at a time, then all of them without the worst ones until the gate holds on all pairs.

        For all of them it does not. `bar` makes about `steps` steps.
        """
        self._bar, self._done = bar or Bar(), 0
        everything, tried, cost = self._calibration.fp8, list[TriedParts](), dict[PartGroup, float]()
        for group in self._groups:
            one, _ = self.evaluate(group.name, group.members, alone=True)
            tried.append(one)
            cost[group] = (2 - one.easy - one.hard) / max(one.share, 1e-9)
        order = sorted(self._groups, key=lambda group: -cost[group])

        def without(number: int) -> tuple[str, Members]:
            name = 'all' if not number else f'without {order[number - 1].name}' + (f' and {number - 1} more' if number > 1 else '')
            return name, everything.difference(*(group.members for group in order[:number]))

        low, high = 0, len(order)  # so many left out fail; so many pass, for nothing is left then
        while high - low > 1:
            middle = (low + high) // 2
            tried.append(self.evaluate(*without(middle))[0])
            low, high = (low, middle) if tried[-1].passed else (middle, high)
        scores: list[Score] = []
        for extra in EXTRA:
            if (number := high + extra) >= len(order):
                break
            name, fp8 = without(number)
            one, scores = self.evaluate(name, fp8, whole=True)
            tried = [each for each in tried if each.name != name] + [one]
            if one.passed:
                return SearchResult(fp8, scores, self._answers, tried)
        return SearchResult(None, scores, self._answers, tried)


def print_search(tried: Sequence[TriedParts]) -> None:
    """The sensitivities, then the frontier."""
    alone = sorted((one for one in tried if one.alone), key=lambda one: one.easy + one.hard)
    print_table('Sensitivity: one group alone in FP8', _HEADER, [_row(one) for one in alone], 1)
    print_table('Frontier: all but the worst groups in FP8', _HEADER, [_row(one) for one in frontier(tried)], 1)


def frontier(tried: Sequence[TriedParts]) -> list[TriedParts]:
    """What leaves some out of all, most FP8 first."""
    return sorted((one for one in tried if not one.alone), key=lambda one: -one.share)


def draw_frontier(tried: Sequence[TriedParts], gate: QualityGate) -> bytes:
    """F1 against the share of FLOPs in FP8, PNG."""
    from ..evaluation.report.style import finish, new_figure, styled
    with styled():
        figure, (axes,) = new_figure(height=4.6)
        for level, label in LEVELS.items():
            chosen = [(0.0, 1.0), *((100 * one.share, getattr(one, level)) for one in reversed(frontier(tried)))]
            shares, f1 = zip(*chosen, strict=True)
            axes.plot(shares, f1, color=COLOURS[level], lw=2.6, marker='o', ms=8, label=label, zorder=4)
            alone = [(100 * one.share, getattr(one, level)) for one in tried if one.alone]
            if alone:
                axes.plot(*zip(*alone, strict=True), ls='none', marker='x', ms=7, mew=2, color=COLOURS[level], alpha=0.6,
                          zorder=3)
            axes.axhline(gate.least(level), color=COLOURS[level], lw=1.6, ls=(0, (4, 3)), zorder=2)
        if any(one.alone for one in tried):
            axes.plot([], [], ls='none', marker='x', ms=7, mew=2, color=GRAY, label='one group alone')
        axes.plot([], [], color=GRAY, lw=1.6, ls=(0, (4, 3)), label='gate')
        axes.set_title('F1 of the matches against FP32')
        axes.set_xlabel("share of the matcher's FLOPs in FP8, %")
        lowest = min([gate.least('hard'), *(value for one in tried for value in (one.easy, one.hard))])
        axes.set_ylim(lowest - 0.01, 1.002)
        axes.set_xlim(-1, max(20.0, *(100 * one.share for one in tried)) * 1.04)
        return finish(figure, axes)


def plain_tried(tried: Sequence[TriedParts]) -> list[dict[str, Any]]:
    return [{name: rounded_figure(value) for name, value in dataclasses.asdict(one).items()} for one in tried]


_HEADER = ['in FP8', 'of FLOPs', 'pairs', 'F1 easy', 'F1 hard', 'count ratio', 'gate']


def _row(one: TriedParts) -> tuple[str, ...]:
    verdict = '' if one.alone else 'passed' if one.passed else 'failed'
    figures = (f'{value:.3f}' for value in (one.easy, one.hard, one.count_ratio))
    return one.name, f'{100 * one.share:.1f} %', str(one.pairs), *figures, verdict
