"""The acceptance check: on frames that it was not calibrated on, an FP8 matcher must find what FP32 finds at the same exit."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lightglue_trt_ros.backends.onnxruntime import OnnxMatcher
from lightglue_trt_ros.core.config import EngineSpec
from lightglue_trt_ros.core.early_exit import EarlyExits
from lightglue_trt_ros.core.geometry import Size, to_original
from lightglue_trt_ros.core.types import Int32, Thresholds
from lightglue_trt_ros.networks.architecture import layers_of
from lightglue_trt_ros.networks.fp8_calibration import Calibration
from lightglue_trt_ros.networks.weights import Weights
from lightglue_trt_ros.utils.console import Bar, print_table
from lightglue_trt_ros.utils.errors import BagError

from ..baselines import MatchedPoints
from ..score.metrics import PairResult, summary_of, table_of
from ..score.pair_score import score_points
from .samples import FramePair, RecordingSample, mixed, some

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
LEVELS = {'easy': 'consecutive frames', 'hard': 'hard pairs'}
CHANCE = 'FP32 by chance'

logger = logging.getLogger(__name__)

Members = frozenset[str]  # parts of the matcher that are in FP8
Figures = dict[tuple[str, str], dict[str, float]]  # precision and pose AUC, percent, by (recording, level)
Chances = Mapping[tuple[str, str], Mapping[str, tuple[float, float]]]


@dataclass(eq=False)
class HeldOutSet:
    """The held-out pairs of one recording and one stride, with FP32's answers."""

    name: str  # of the recording
    level: str  # easy or hard
    stride: int
    pairs: list[FramePair]
    reference: list[Int32] = field(default_factory=list)  # (exits, K) each

    @property
    def matches(self) -> int:
        """After all layers."""
        return sum(int((indices[-1] >= 0).sum()) for indices in self.reference)

    def part(self, count: int) -> HeldOutSet:
        """About `count` of the pairs."""
        chosen = set(some(self.pairs, count))
        kept = [(pair, indices) for pair, indices in zip(self.pairs, self.reference, strict=True) if pair in chosen]
        return HeldOutSet(self.name, self.level, self.stride, [pair for pair, _ in kept], [indices for _, indices in kept])


@dataclass(frozen=True)
class Score:
    """A candidate on one set, against FP32 on the same features."""

    name: str
    level: str
    stride: int
    pairs: int
    matches: int  # of FP32
    f1: float  # of the sets of matches, as pairs of rows, over all pairs together; at the exit where it is lowest
    count_ratio: float  # number of matches over FP32's, at the exit where it is furthest from 1
    exits: tuple[float, ...] = ()  # F1 at each


@dataclass(frozen=True)
class AcceptanceCheck:
    """Thresholds that every recording must reach."""

    f1: float = F1

    def least(self, level: str) -> float:
        return self.f1 if level == 'easy' else self.f1 - HARD_ALLOWANCE

    def passes(self, score: Score) -> bool:
        return score.f1 >= self.least(score.level) and abs(score.count_ratio - 1) <= COUNT_TOLERANCE + 1e-9

    def passed(self, scores: Sequence[Score]) -> bool:
        return bool(scores) and all(map(self.passes, scores))


@dataclass(frozen=True)
class Trial:
    """Parts of the matcher in FP8, and how they did."""

    name: str
    fp8: Members
    share: float  # of the matcher's FLOPs
    scores: Sequence[Score]  # on each set
    answers: Sequence[Sequence[Int32]] = ()  # to each set's pairs
    one_group: bool = False  # one group by itself: its sensitivity

    def f1(self, level: str) -> float:
        """The lowest of the recordings'."""
        return min((score.f1 for score in self.scores if score.level == level), default=1.0)

    @property
    def count_ratio(self) -> float:
        """The furthest from 1."""
        return max((score.count_ratio for score in self.scores), key=lambda value: abs(value - 1), default=1.0)

    @property
    def pairs(self) -> int:
        return sum(score.pairs for score in self.scores)


def open_matcher(spec: EngineSpec, weights: Weights, calibration: Calibration | None = None) -> OnnxMatcher:
    """The FP32 matcher with its usual exits; with a calibration its emulation in FP8. Raises EngineError."""
    from lightglue_trt_ros.networks.lightglue import lightglue_stages
    early_exits = EarlyExits.of(layers_of(weights.tensors))
    stages = lightglue_stages(dataclasses.replace(spec, precision='fp32'), weights, early_exits, calibration=calibration)
    return OnnxMatcher(stages, early_exits)


def answers(matcher: OnnxMatcher, pairs: Sequence[FramePair], bar: Bar | None = None) -> list[Int32]:
    """For each pair (exits, K): the second image's row that each of the first matches, -1 where none. Raises EngineError."""
    return [np.stack([matches.indices for matches in matcher.match_exits(*pair.features, Thresholds())])
            for pair in (bar or Bar()).each(pairs)]


def choose_held_out(samples: Sequence[RecordingSample], matcher: OnnxMatcher) -> list[HeldOutSet]:
    """The sets to judge by: consecutive frames, and frames as far apart as still leaves FP32 half of its matches, up to four.

    `matcher` is FP32. Recordings that cannot be judged are logged. Raises BagError where FP32 itself finds too little to judge by.
    """
    held_out = []
    for each in samples:
        easy = each.pairs(1, True)
        if not easy:
            if each.split.held_out:
                logger.info(f'{each.path}: no two consecutive frames are held out, so it is not judged')
            continue
        held_out.append(HeldOutSet(each.name, 'easy', 1, easy))
        base = _median_count(answers(matcher, some(easy, PROBES)))
        for stride in HARD_STRIDES:
            hard = each.pairs(stride, True)
            if hard and _median_count(answers(matcher, some(hard, PROBES))) >= HARD_SHARE * base:
                held_out.append(HeldOutSet(each.name, 'hard', stride, hard))
                break
        else:
            logger.warning(f'{each.path} has no hard pairs: frames {HARD_STRIDES[-1]} and more apart are too few, or leave FP32 '
                f'less than {HARD_SHARE:.0%} of its matches')
    if not held_out:
        raise BagError('no pair of frames is held out: nothing to judge FP8 by; record more, or name --held-out recordings')
    return held_out


def answer_references(held_out: Sequence[HeldOutSet], matcher: OnnxMatcher, bar: Bar | None = None) -> None:
    """Fill in FP32's answers. Raises BagError where they are too few to judge by."""
    for each in held_out:
        each.reference = answers(matcher, each.pairs, bar)
        if each.matches < LEAST_MATCHES:
            raise BagError(f'{each.name}: FP32 finds {each.matches} matches in {len(each.pairs)} held-out pairs, {each.stride} '
                           'apart: too few to judge FP8 by: hold out frames that show something')


def score(held_out: HeldOutSet, candidate: Sequence[Int32]) -> Score:
    """Compare answers with FP32's at the same exits: a match is the same where both its rows are."""
    mine = np.stack(candidate)  # (pairs, exits, K)
    theirs = np.stack(held_out.reference)[:, -mine.shape[1]:]  # a single graph answers after all layers
    same, count, wanted = (part.sum(axis=(0, 2)) for part in ((mine == theirs) & (mine >= 0), mine >= 0, theirs >= 0))
    f1 = np.where(count + wanted > 0, 2 * same / np.maximum(1, count + wanted), 1.0)
    ratios = count / np.maximum(1, wanted)
    return Score(held_out.name, held_out.level, held_out.stride, len(held_out.pairs), held_out.matches, float(f1.min()),
                 float(ratios[np.abs(ratios - 1).argmax()]), tuple(map(float, f1)))


def figures_of(held_out: Sequence[HeldOutSet], answers: Sequence[Sequence[Int32]], engine: Size) -> Figures:
    """`geometry` of the answers to each set."""
    return {(each.name, each.level): geometry(each, its_answers, engine)
            for each, its_answers in zip(held_out, answers, strict=True)}


def geometry(held_out: HeldOutSet, answers: Sequence[Int32], engine: Size) -> dict[str, float]:
    """Epipolar precision and pose AUC, percent, of answers; empty without intrinsics or ground truth. Matches are not refined."""
    scores: list[PairResult] = []
    for pair, exits in zip(held_out.pairs, answers, strict=True):
        each, frames = pair.sample, (pair.first, pair.second)
        scene = each.scene
        if scene.camera(frames) is None or any(scene.pose(frame) is None for frame in frames):
            continue
        indices = exits[-1]  # after all layers
        rows = np.flatnonzero(indices >= 0)
        first, second = pair.features
        points = MatchedPoints(to_original(first.keypoints[rows], engine, each.sizes[pair.first]),
                                 to_original(second.keypoints[indices[rows]], engine, each.sizes[pair.second]))
        scores.append(score_points(scene, frames, points, None)[0].pair)
    return {name: value for name, value in summary_of(table_of(scores)).items() if name in FIGURES}


def chance(held_out: HeldOutSet, score: Score, engine: Size) -> dict[str, tuple[float, float]]:
    """Lowest and greatest `geometry` of FP32's answers, over several draws, when as many matches as a candidate of this score
    gets wrong are left out at random: differences within that are not the candidate's doing.
    """
    rng, drawn = np.random.default_rng(0), []
    for _ in range(DRAWS):
        left = [np.where(rng.random(indices.shape[1]) < 1 - score.f1, -1, indices[-1:]) for indices in held_out.reference]
        drawn.append(geometry(held_out, left, engine))
    return {name: (min(each[name] for each in drawn), max(each[name] for each in drawn)) for name in drawn[0]}


def check_motion(samples: Sequence[RecordingSample], matcher: OnnxMatcher, strides: Sequence[int]) -> float:
    """Warn where the camera stands still: the greatest median displacement of matches, over the strides, is under half a pixel.

    Returns it, pixels of the engine's image. `matcher` is FP32.
    """
    greatest = 0.0
    for stride in strides:
        pairs = mixed([each.pairs(stride, part) for each in samples for part in (False, True)], PROBES)
        moved = [np.zeros(0)]
        for pair, exits in zip(pairs, answers(matcher, pairs), strict=True):
            indices = exits[-1]
            rows = np.flatnonzero(indices >= 0)
            first, second = pair.features
            moved.append(np.linalg.norm(first.keypoints[rows] - second.keypoints[indices[rows]], axis=1))
        if len(together := np.concatenate(moved)):
            greatest = max(greatest, float(np.median(together)))
    if greatest < STILL_PX:
        logger.warning(f'nothing moves in these recordings (median displacement of matches {greatest:.2f} px at every stride): '
                       'wider strides are no harder than consecutive frames, and the check says nothing about a camera in motion')
    return greatest


def print_acceptance_check(candidates: Sequence[Trial], check: AcceptanceCheck) -> None:
    """F1 and counts of each candidate on each set."""
    rows = [(each.name, f'{100 * each.share:.0f} %', score.name, f'{LEVELS[score.level]}, {score.stride} apart', str(score.pairs),
             f'{score.matches / score.pairs:.0f}', f'{score.f1:.3f}', f'{check.least(score.level):.3f}', f'{score.count_ratio:.3f}',
             'passed' if check.passes(score) else 'failed')
            for each in candidates for score in each.scores]
    header = ['matcher', 'of FLOPs', 'recording', 'pairs', 'number', 'FP32 matches', 'F1', 'needed', 'count ratio', 'gate']
    print_table(f'Acceptance check: FP8 against FP32 on frames held out from calibration (count ratio within {COUNT_TOLERANCE:.0%} '
                'of 1)', header, rows, 4)


def print_figures(figures: Mapping[str, Figures], chances: Chances) -> None:
    """Precision and pose AUC of FP32 and the candidates, by name, where there is a ground truth; and what chance does to them."""
    rows = []
    for (recording, level), ranges in chances.items():
        for name, by_set in figures.items():
            if mine := by_set.get((recording, level)):
                rows.append((recording, LEVELS[level], name, *(_percent(mine.get(figure)) for figure in FIGURES)))
        if ranges:
            texts = [' to '.join(map(_percent, ranges.get(figure, ()))) for figure in FIGURES]
            rows.append((recording, LEVELS[level], CHANCE, *texts))
    if rows:
        title = f'Against the ground truth, percent ({CHANCE}: without as many of its matches as FP8 gets wrong, {DRAWS} times)'
        print_table(title, ['recording', 'pairs', 'matcher', *(_label(figure) for figure in FIGURES)], rows, 3)


def plain(candidate: Trial, figures: Figures, check: AcceptanceCheck) -> dict[str, Any]:
    """For JSON."""
    sets = [{**dataclasses.asdict(score), 'needed_f1': check.least(score.level), 'passed': check.passes(score),
             **figures.get((score.name, score.level), {})} for score in candidate.scores]
    return {'name': candidate.name, 'flops_share': rounded_figures(candidate.share), 'sets': list(map(rounded_figures, sets))}


def _median_count(answers: Sequence[Int32]) -> float:
    return float(np.median([int((indices[-1] >= 0).sum()) for indices in answers]))


def _label(name: str) -> str:
    what, limit = name.split('@')
    return f'{"within" if what == "precision" else "AUC"} {limit} {"px" if what == "precision" else "deg"}'


def _percent(value: float | None) -> str:
    return '' if value is None else f'{value:.1f}'


def rounded_figures(value: Any) -> Any:
    """For JSON: floats to 5 digits, also those in dictionaries and tuples."""
    if isinstance(value, dict):
        return {name: rounded_figures(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return [rounded_figures(each) for each in value]
    return round(value, 5) if isinstance(value, float) else value
