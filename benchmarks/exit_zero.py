"""The decision about exit 0: poses before the first layer, after the layers and by the decision, and what other limits give."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.real_images import find_sequences
from benchmarks.recorded_pairs import AS_RECORDED, add_kind_options, open_recorded
from lightglue_trt_eval.images.degradation import degraded_frames
from lightglue_trt_eval.predict.frames import Frames, ShownFrame
from lightglue_trt_eval.predict.methods import NEVER_S, correspondences
from lightglue_trt_eval.predict.recorded_scene import usable_frames
from lightglue_trt_eval.predict.shared_networks import SharedNetworks
from lightglue_trt_eval.score.pair_score import score_points
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.depth_zero import DepthZero, Evidence, Limits
from lightglue_trt_ros.core.frame_matcher import FrameMatcher
from lightglue_trt_ros.core.images import gray_of
from lightglue_trt_ros.engines.selection import open_backend
from lightglue_trt_ros.odometry.two_view import pose_auc
from lightglue_trt_ros.utils.commands import log
from lightglue_trt_ros.utils.console import print_table
from lightglue_trt_ros.utils.errors import BagError, EngineError

DATA = 'any recording with ground truth, or the folder of several'
FEWEST = 8  # matches that an epipolar geometry needs: fewer are no try
OTHERS: dict[str, Sequence[float]] = {
    'inliers': (0, 0.8, 0.85, 0.95), 'matches': (50, 100, 300), 'of_keypoints': (0, 0.3, 0.6), 'covered': (0, 0.3, 0.7),
    'change': (0.1, 0.4, 9), 'standing': (0.01, 0.1, 1)}


@dataclasses.dataclass(frozen=True)
class Tried:
    """A pair that was matched both before the first layer and after the layers."""

    matches: int  # before the first layer
    keypoints: int  # of the frame with fewer
    rows: int
    evidence: Evidence | None  # None: too few matches
    at_zero_deg: float  # error of the pose, see `PairResult.pose_error_deg`
    by_layers_deg: float

    def accepted(self, limits: Limits) -> bool:
        """Whether the decision takes what was matched before the first layer."""
        rule = DepthZero(limits)
        return (self.evidence is not None and rule.enough(self.matches, self.keypoints, self.rows)
                and rule.is_sure(self.evidence))


class Row(NamedTuple):
    """Percent, of the pairs of a recording at a stride."""

    accepted: float
    by_rule: float  # AUC@10
    at_zero: float
    by_layers: float


class Accepting(DepthZero):
    """Tries and accepts every pair, and keeps what it showed."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0, 0, 0
        self.evidence: Evidence | None = None

    def due(self) -> bool:
        self.evidence = None
        return True

    def enough(self, matches: int, keypoints: int, rows: int) -> bool:
        self.asked = matches, keypoints, rows
        return matches >= FEWEST

    def is_sure(self, evidence: Evidence) -> bool:
        self.evidence = evidence
        return True


class Refusing(DepthZero):
    """Tries none."""

    def due(self) -> bool:
        return False


def add_options(parser: argparse.ArgumentParser) -> None:
    """Which frames."""
    add_kind_options(parser, '1,2', (AS_RECORDED,))


def measure(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    """Match each recording twice at each stride. Raises BagError, EngineError."""
    tried = {f'{name}, {kind}, {stride}' if kind != AS_RECORDED else f'{name}, {stride}':
             list(_tried(path, args.image_topic, config, stride, kind, args.frames))
             for name, path in find_sequences(args.data).items() for kind in args.kinds for stride in args.strides}
    for name in [name for name, pairs in tried.items() if not pairs]:
        log.info(f'{name}: no pair of frames has a true pose, and it is left out: a larger --strides may give some')
        del tried[name]
    if not tried:
        raise BagError(f'{args.data}: no pair of frames has a true pose: give ground truth, or larger --strides')
    rows = {name: row_of(pairs, Limits()) for name, pairs in tried.items()}
    print_table('AUC@10; accepted: of pairs with a pose, %', ['recording, stride', *Row._fields],
                [(name, *(f'{value:.1f}' for value in row)) for name, row in rows.items()], left=1)
    others = {words: with_limits(tried.values(), limits) for words, limits in other_limits()}
    print_table('Other limits: means of all rows, and the AUC@10 that the worst row loses against the layers',
                ['limits', 'accepted', 'by_rule', 'loses'],
                [(words, *(f'{value:.1f}' for value in values.values())) for words, values in others.items()], left=1)
    return {'rows': {name: row._asdict() for name, row in rows.items()}, 'limits': others,
            'pairs': {name: [dataclasses.asdict(pair) for pair in pairs] for name, pairs in tried.items()}}


def other_limits() -> Iterator[tuple[str, Limits]]:
    """The present ones, and those with one of OTHERS, in words."""
    yield 'as they are', Limits()
    for name, values in OTHERS.items():
        for value in values:
            yield f'{name} {value:g}', Limits()._replace(**{name: value})


def row_of(pairs: Sequence[Tried], limits: Limits) -> Row:
    """By these limits, without pauses after a refusal."""
    accepted = [pair.accepted(limits) for pair in pairs]
    by_rule = [pair.at_zero_deg if taken else pair.by_layers_deg for pair, taken in zip(pairs, accepted, strict=True)]
    errors = by_rule, [pair.at_zero_deg for pair in pairs], [pair.by_layers_deg for pair in pairs]
    return Row(100 * float(np.mean(accepted)), *(100 * pose_auc(each)[1] for each in errors))


def with_limits(recordings: Collection[Sequence[Tried]], limits: Limits) -> dict[str, float]:
    """Means of the rows, and what the worst one loses."""
    rows = [row_of(pairs, limits) for pairs in recordings]
    return {'accepted': float(np.mean([row.accepted for row in rows])), 'by_rule': float(np.mean([row.by_rule for row in rows])),
            'loses': max(row.by_layers - row.by_rule for row in rows)}


def _tried(path: Path, image_topic: str | None, config: MatcherConfig, stride: int, kind: str, count: int) -> Iterator[Tried]:
    """The pairs whose true pose is known."""
    recording, scene, config = open_recorded(path, image_topic, dataclasses.replace(config, max_gap_s=NEVER_S))
    frames = Frames(lambda: degraded_frames(usable_frames(recording, scene.timeline.numbers), [kind]), gray_of, scene)
    with closing(SharedNetworks(open_backend(config).backend, [config])) as networks:
        if not networks.early_exits.at_zero:
            raise EngineError('these engines have no exit 0: build them without --stages')
        at_zero, by_layers = (FrameMatcher(networks, config) for _ in range(2))
        at_zero.depth_zero, by_layers.depth_zero = accepting, _ = Accepting(), Refusing()
        before: ShownFrame | None = None
        for shown in frames.read(range(0, min(count, len(scene.timeline)), stride)):
            networks.show(shown.image, 0)
            matches = [each.process(shown.image, shown.seconds, camera=shown.camera) for each in (by_layers, at_zero)]
            if before is not None:
                pair, images, errors = (before.number, shown.number), (before.image, shown.image), list[float]()
                for points in (correspondences(each.matched()) for each in matches if each is not None):
                    error = score_points(scene, pair, points, scene.motion(pair, images, points))[0].pair.pose_error_deg
                    errors += [] if error is None else [error]
                if len(errors) == 2:
                    yield Tried(*accepting.asked, accepting.evidence, *errors[::-1])
            before = shown
