"""Which parts must stay in FP16 for FP8 to keep the matches: sensitivity group by group, then the worst ones left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..calibration import BLOCKS, PARTS, Calibration, assignment, member
from ..config import EngineSpec
from ..features import Int32
from ..graphs.folding import DIM
from ..weights.networks import Weights
from .footage import Footage
from .gate import Gate, Held, Score, judge
from .running import Tell, open_matcher

SUBSET = 8  # pairs of each level that the search judges by
EXTRA = (0, 1, 3, 6)  # more groups left out, where all pairs fail what those few passed

Members = frozenset[str]


class Group(NamedTuple):
    """Parts that go into FP8 or stay in FP16 together."""

    name: str
    members: Members


@dataclass(frozen=True)
class Point:
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
class Found:
    """What a search ends with."""

    fp8: Members | None  # None where nothing passes
    scores: list[Score]  # of that, or of the last one tried, on all pairs
    answers: list[list[Int32]]  # the same one's, by set
    points: list[Point]


def flops(layers: int, keypoints: int) -> dict[str, float]:
    """Floating-point operations of each member for a pair of images, from the shapes of the graph's products.

    `other` is the projection of the descriptors (where weights have one) and the assignment's two products.
    """
    rows, found = 2 * keypoints, dict[str, float]()
    for layer in range(layers):
        for block in BLOCKS:
            outputs = {'project': DIM * DIM * (3 if block == 'self' else 2), 'hidden': 4 * DIM * DIM, 'update': 2 * DIM * DIM}
            found |= {member(layer, block, part): 2.0 * rows * weights for part, weights in outputs.items()}
            found[member(layer, block, 'attention')] = 2 * 2.0 * rows * keypoints * DIM
    found[assignment(layers)] = 2.0 * rows * DIM * DIM + 2.0 * keypoints * keypoints * DIM
    found['other'] = 2.0 * rows * DIM * DIM
    return found


def share(members: Iterable[str], layers: int, keypoints: int) -> float:
    """Of the matcher's operations."""
    each = flops(layers, keypoints)
    return sum(each[name] for name in members) / sum(each.values())


def groups(layers: int, fp8: Members) -> list[Group]:
    """`fp8` by block and part, the first half of the layers and the second apart."""
    middle, found = (layers + 1) // 2, []
    for half in (range(middle), range(middle, layers)):
        for block in BLOCKS:
            for part in PARTS:
                chosen = frozenset(member(layer, block, part) for layer in half) & fp8
                if chosen:
                    found.append(Group(f'{block} {part}, layers {half.start + 1} to {half.stop}', chosen))
    return found


class Search:
    """Judges choices of parts by emulating them."""

    def __init__(self, spec: EngineSpec, weights: Weights, calibration: Calibration, footage: Sequence[Footage],
                 held: Sequence[Held], gate: Gate) -> None:
        """`calibration.fp8` is what would be in FP8 if it could; `held` has FP32's answers."""
        self._spec, self._weights, self._calibration, self._footage = spec, weights, calibration, footage
        self._held, self._gate, self._done = held, gate, 0
        self._tell: Tell = lambda done: None
        counts = {level: sum(each.level == level for each in held) for level in ('easy', 'hard')}
        self._subset = [each.part(-(-SUBSET // counts[each.level])) for each in held]
        self._layers = calibration.value_bases.shape[0]
        self._answers: list[list[Int32]] = []  # of the last evaluation on all pairs
        self._groups = groups(self._layers, calibration.fp8)
        self.steps = len(self._groups) + 2 + len(self._groups).bit_length()  # evaluations, about

    def evaluate(self, name: str, fp8: Members, whole: bool = False, alone: bool = False) -> tuple[Point, list[Score]]:
        """One choice, on all pairs or on the search's."""
        matcher = open_matcher(self._spec, self._weights, replace(self._calibration, fp8=fp8))
        scores, found = judge(self._held if whole else self._subset, self._footage, matcher)
        self._answers = found if whole else []
        self._done += 1
        self._tell(min(self._done, self.steps))
        return self.point(name, fp8, scores, alone), scores

    def point(self, name: str, fp8: Members, scores: Sequence[Score], alone: bool = False) -> Point:
        easy, hard = ([each.f1 for each in scores if each.level == level] for level in ('easy', 'hard'))
        ratio = max((each.count_ratio for each in scores), key=lambda value: abs(value - 1), default=1.0)
        part = share(fp8, self._layers, self._spec.max_keypoints)
        return Point(name, part, min(easy, default=1.0), min(hard, default=1.0), ratio, self._gate.passed(scores), alone,
                     sum(each.pairs for each in scores))

    def run(self, tell: Tell = lambda done: None) -> Found:
        """Groups one at a time, then all of them without the worst ones until the gate holds on all pairs.

        For all of them it does not. `tell` hears how many of `steps` are done.
        """
        self._tell, self._done = tell, 0
        everything, points, cost = self._calibration.fp8, list[Point](), dict[Group, float]()
        for group in self._groups:
            point, _ = self.evaluate(group.name, group.members, alone=True)
            points.append(point)
            cost[group] = (2 - point.easy - point.hard) / max(point.share, 1e-9)
        members = frozenset({assignment(self._layers)})
        points.append(self.evaluate('assignment (always FP16)', members, alone=True)[0])
        order = sorted(self._groups, key=lambda group: -cost[group])

        def without(number: int) -> tuple[str, Members]:
            name = 'all' if not number else f'without {order[number - 1].name}' + (f' and {number - 1} more' if number > 1 else '')
            return name, everything.difference(*(group.members for group in order[:number]))

        low, high = 0, len(order)  # so many left out fail; so many pass, for nothing is left then
        while high - low > 1:
            middle = (low + high) // 2
            points.append(self.evaluate(*without(middle))[0])
            low, high = (low, middle) if points[-1].passed else (middle, high)
        scores: list[Score] = []
        for extra in EXTRA:
            if (number := high + extra) >= len(order):
                break
            name, fp8 = without(number)
            point, scores = self.evaluate(name, fp8, whole=True)
            points = [each for each in points if each.name != name] + [point]
            if point.passed:
                return Found(fp8, scores, self._answers, points)
        return Found(None, scores, self._answers, points)
