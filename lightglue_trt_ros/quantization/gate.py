"""The quality gate: an FP8 matcher must find, on frames that it was not calibrated on, what the FP32 one finds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..errors import BagError
from ..evaluation.results import MatcherResult
from ..evaluation.scoring import score_pair
from ..features import Int32
from ..geometry import Size, to_original
from .footage import Footage, Say
from .pairs import Pair, mixed, some
from .running import WholeMatcher, answers, features_of

F1 = 0.96  # on consecutive frames
HARD_ALLOWANCE = 0.04  # by which it may be lower on hard pairs
COUNT_TOLERANCE = 0.03
HARD_STRIDES = (4, 3, 2)
HARD_SHARE = 0.5  # of the matches of consecutive frames that must remain for a stride to say something
LEAST_MATCHES = 10  # of FP32, in a set; fewer judge nothing
STILL_PX = 0.5  # of the engine's image
PROBES = 6  # pairs by which strides are judged
DRAWS = 10
FIGURES = ('precision@1', 'precision@2', 'precision@3', 'pose_auc@5', 'pose_auc@10', 'pose_auc@20')


@dataclass(eq=False)
class Held:
    """The held-out pairs of one recording and one stride, with what FP32 says to them."""

    name: str  # of the recording
    level: str  # easy or hard
    stride: int
    pairs: list[Pair]
    reference: list[Int32] = field(default_factory=list)

    @property
    def matches(self) -> int:
        return sum(int((indices >= 0).sum()) for indices in self.reference)

    def part(self, count: int) -> Held:
        """About `count` of the pairs."""
        chosen = set(some(self.pairs, count))
        kept = [(pair, indices) for pair, indices in zip(self.pairs, self.reference, strict=True) if pair in chosen]
        return Held(self.name, self.level, self.stride, [pair for pair, _ in kept], [indices for _, indices in kept])


@dataclass(frozen=True)
class Score:
    """A candidate on one set, against FP32 on the same features."""

    name: str
    level: str
    stride: int
    pairs: int
    matches: int  # of FP32
    f1: float  # of the sets of matches, as pairs of rows, over all pairs together
    count_ratio: float  # number of matches over FP32's


@dataclass(frozen=True)
class Gate:
    """What must be reached, on every recording."""

    f1: float = F1

    def least(self, level: str) -> float:
        return self.f1 if level == 'easy' else self.f1 - HARD_ALLOWANCE

    def passes(self, score: Score) -> bool:
        return score.f1 >= self.least(score.level) and abs(score.count_ratio - 1) <= COUNT_TOLERANCE + 1e-9

    def verdict(self, scores: Sequence[Score], level: str) -> bool:
        return all(self.passes(score) for score in scores if score.level == level)

    def passed(self, scores: Sequence[Score]) -> bool:
        return bool(scores) and all(map(self.passes, scores))


def choose_held_out(footage: Sequence[Footage], matcher: WholeMatcher, say: Say) -> list[Held]:
    """The sets to judge by: consecutive frames, and frames as far apart as still leaves FP32 half of its matches, up to four.

    `matcher` is FP32. `say` hears what cannot be judged. Raises BagError where FP32 itself finds too little to judge by.
    """
    found = []
    for number, each in enumerate(footage):
        easy = each.pairs(number, 1, True)
        if not easy:
            if each.split.held_out:
                say(f'{each.path}: no two consecutive frames are held out, so it is not judged')
            continue
        found.append(Held(each.name, 'easy', 1, easy))
        base = _median_count(answers(matcher, footage, some(easy, PROBES)))
        for stride in HARD_STRIDES:
            hard = each.pairs(number, stride, True)
            if hard and _median_count(answers(matcher, footage, some(hard, PROBES))) >= HARD_SHARE * base:
                found.append(Held(each.name, 'hard', stride, hard))
                break
        else:
            say(f'warning: {each.path} has no hard pairs: frames {HARD_STRIDES[-1]} and more apart are too few, or leave FP32 '
                f'less than {HARD_SHARE:.0%} of its matches')
    if not found:
        raise BagError('no pair of frames is held out: nothing to judge FP8 by; record more, or name --held-out recordings')
    return found


def answer_references(held: Sequence[Held], footage: Sequence[Footage], matcher: WholeMatcher,
                      tell: Callable[[int], None] = lambda done: None) -> None:
    """Fill in what FP32 says. Raises BagError where that is too little to judge by."""
    done = 0
    for each in held:
        each.reference = answers(matcher, footage, each.pairs, lambda count: tell(done + count))  # noqa: B023
        done += len(each.pairs)
        if each.matches < LEAST_MATCHES:
            raise BagError(f'{each.name}: FP32 finds {each.matches} matches in {len(each.pairs)} held-out pairs, {each.stride} '
                           'apart: too few to judge FP8 by: hold out frames that show something')


def judge(held: Sequence[Held], footage: Sequence[Footage], matcher: WholeMatcher,
          tell: Callable[[int], None] = lambda done: None) -> tuple[list[Score], list[list[Int32]]]:
    """A candidate's score on each set, and its answers."""
    scores, all_answers, done = [], [], 0
    for each in held:
        found = answers(matcher, footage, each.pairs, lambda count: tell(done + count))  # noqa: B023
        done += len(each.pairs)
        scores.append(score(each, found))
        all_answers.append(found)
    return scores, all_answers


def score(held: Held, found: Sequence[Int32]) -> Score:
    """Compare answers with FP32's: a match is the same where both its rows are."""
    same = sum(int(((mine == theirs) & (mine >= 0)).sum()) for mine, theirs in zip(found, held.reference, strict=True))
    count = sum(int((indices >= 0).sum()) for indices in found)
    total = count + held.matches
    return Score(held.name, held.level, held.stride, len(held.pairs), held.matches, 2 * same / total if total else 1.0,
                 count / max(1, held.matches))


def geometry(held: Held, footage: Sequence[Footage], found: Sequence[Int32], engine: Size) -> dict[str, float]:
    """Epipolar precision and pose AUC, percent, of answers; empty without intrinsics or truth. Matches are not placed anew."""
    result = MatcherResult(held.name, '', True, {1: []})
    for pair, indices in zip(held.pairs, found, strict=True):
        each, frames = footage[pair.recording], (pair.first, pair.second)
        scene = each.scene
        if scene.camera(frames) is None or any(scene.pose(frame) is None for frame in frames):
            continue
        rows = np.flatnonzero(indices >= 0)
        first, second = features_of(footage, pair)
        points = (to_original(first.keypoints[rows], engine, each.sizes[pair.first]),
                  to_original(second.keypoints[indices[rows]], engine, each.sizes[pair.second]))
        straight = scene.straight(frames, points)
        usable = np.isfinite(np.hstack(straight)).all(axis=1)
        scored = score_pair(scene.numbers(frames), scene.timeline.seconds(pair.second), (straight[0][usable], straight[1][usable]),
                            scene.camera(frames), scene.pose(pair.first), scene.pose(pair.second))
        result.pairs[1].append(scored.pair)
    return {name: value for name, value in result.summary().items() if name in FIGURES}


def chance(held: Held, footage: Sequence[Footage], score: Score, engine: Size) -> dict[str, tuple[float, float]]:
    """Lowest and greatest `geometry` of FP32's answers, over several draws, when as many matches as a candidate of this score
    gets wrong are left out at random: differences within that are not the candidate's doing.
    """
    rng, drawn = np.random.default_rng(0), []
    for _ in range(DRAWS):
        left = [np.where(rng.random(len(indices)) < 1 - score.f1, -1, indices) for indices in held.reference]
        drawn.append(geometry(held, footage, left, engine))
    return {name: (min(each[name] for each in drawn), max(each[name] for each in drawn)) for name in drawn[0]}


def check_motion(footage: Sequence[Footage], matcher: WholeMatcher, strides: Sequence[int], say: Say) -> float:
    """Warn where the camera stands still: the greatest median displacement of matches, over the strides, is under half a pixel.

    Returns it, pixels of the engine's image. `matcher` is FP32.
    """
    greatest = 0.0
    for stride in strides:
        pairs = mixed([each.pairs(number, stride, part) for number, each in enumerate(footage) for part in (False, True)], PROBES)
        moved = [np.zeros(0)]
        for pair, indices in zip(pairs, answers(matcher, footage, pairs), strict=True):
            rows = np.flatnonzero(indices >= 0)
            first, second = features_of(footage, pair)
            moved.append(np.linalg.norm(first.keypoints[rows] - second.keypoints[indices[rows]], axis=1))
        if len(together := np.concatenate(moved)):
            greatest = max(greatest, float(np.median(together)))
    if greatest < STILL_PX:
        say(f'warning: nothing moves in these recordings (median displacement of matches {greatest:.2f} px at every stride): wider '
            'strides are no harder than consecutive frames, and the gate says nothing about a camera in motion')
    return greatest


def _median_count(found: Sequence[Int32]) -> float:
    return float(np.median([int((indices >= 0).sum()) for indices in found]))
