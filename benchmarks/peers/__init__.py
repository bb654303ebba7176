"""Ours against free learned matchers on recorded pairs: poses and precision, at each one's number of matches and at equal ones."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.peers.networks import PEERS, PeerBackend, require
from benchmarks.real_images import find_sequences
from benchmarks.recorded_pairs import add_pair_options, load_images, sample_pairs
from lightglue_trt_eval.options import EvaluationOptions
from lightglue_trt_eval.predict.frames import ShownFrame
from lightglue_trt_eval.predict.methods import OurMethod, correspondences
from lightglue_trt_eval.predict.recorded_scene import open_scene
from lightglue_trt_eval.predict.scene import Scene
from lightglue_trt_eval.predict.shared_networks import SharedNetworks
from lightglue_trt_eval.score.metrics import PairResult, pair_intervals, summary_of, table_of
from lightglue_trt_eval.score.pair_score import score_points
from lightglue_trt_ros.core.backend import Backend
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.geometry import fitting_size
from lightglue_trt_ros.core.types import FrameMatches, UInt8
from lightglue_trt_ros.datasets.recordings import open_recording
from lightglue_trt_ros.engines.selection import open_backend
from lightglue_trt_ros.utils.commands import log
from lightglue_trt_ros.utils.console import print_table
from lightglue_trt_ros.utils.errors import BagError

DATA = 'any recording, or the folder of several'
OURS = ('ours', 'ours_light')
COLUMNS = {'matches': 0, 'precision@1': 1, 'pose_auc@10': 1}  # of METRICS: digits
HEADER = ('matches', '@1 px %', 'AUC@10')

Pair = tuple[int, int]  # frames of the timeline


class RecordedPairs(NamedTuple):
    """Pairs of a recording by stride, and the gray images (H, W) of their frames."""

    scene: Scene
    by_stride: dict[int, list[Pair]]
    images: dict[int, UInt8]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Which matchers, and which frames."""
    parser.add_argument('--peers', nargs='+', choices=[*PEERS], default=[*PEERS], help='default: all')
    add_pair_options(parser)


def measure(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    """Print and return the figures of each recording at each stride. Raises BagError, EngineError."""
    for key in args.peers:
        require(key)
    return {'recordings': [part for name, path in find_sequences(args.data).items() for part in _measure(name, path, args, config)]}


def _measure(name: str, path: Path, args: argparse.Namespace, config: MatcherConfig) -> Iterator[dict[str, Any]]:
    recorded = read_pairs(path, args.strides, args.pairs, args.image_topic)
    size = fitting_size(next(iter(recorded.images.values())).shape, config.image_height * config.image_width)
    config = dataclasses.replace(config, image_height=size[0], image_width=size[1])
    found: dict[str, dict[Pair, FrameMatches]] = {}
    for weights in dict.fromkeys((config.weights, *OURS)):
        own = dataclasses.replace(config, weights=weights)
        found |= match_pairs(weights, open_backend(own).backend, own, recorded)
    for key in args.peers:
        found |= match_pairs(PEERS[key].name, PeerBackend(key, config.engine_spec('fp32')), config, recorded)
    for stride, pairs in recorded.by_stride.items():
        figures = {each: summaries(own, equal) for each, (own, equal) in score_pairs(recorded, pairs, found).items()}
        print_table(f'{name}, every {stride}. frame, {len(pairs)} pairs: own number of matches, and equal numbers',
                    ['matcher', 'layers', *HEADER, *(f'equal: {title}' for title in HEADER)],
                    [(each, f'{parts["own"]["layers"]:.1f}', *_cells(parts, 'own'), *_cells(parts, 'equal'))
                     for each, parts in figures.items()], left=1)
        yield {'sequence': name, 'stride': stride, 'pairs': len(pairs), 'matchers': figures}


def read_pairs(path: Path, strides: Sequence[int], count: int, image_topic: str | None = None) -> RecordedPairs:
    """At most `count` pairs by stride, evenly sampled. Raises BagError."""
    recording = open_recording(path, image_topic)
    scene, _ = open_scene(recording, EvaluationOptions(image_topic=image_topic), log.info)
    sampled = {stride: sample_pairs(scene.timeline, stride, count) for stride in strides}
    wanted = {frame for pairs in sampled.values() for pair in pairs for frame in pair}
    images = {row: image for row, (image, _) in load_images(recording, scene, wanted, depth=False).items()}
    for row, image in images.items():
        scene.see(row, image.shape)
    by_stride = {stride: [pair for pair in pairs if images[pair[0]].shape == images[pair[1]].shape]
                 for stride, pairs in sampled.items()}
    for stride, pairs in by_stride.items():
        if not pairs:
            raise BagError(f'{path}: no two frames of one size are {stride} apart; give smaller --strides or a longer recording')
    return RecordedPairs(scene, by_stride, images)


def match_pairs(name: str, backend: Backend, config: MatcherConfig, recorded: RecordedPairs) -> dict[str, dict[Pair, FrameMatches]]:
    """The matches of each pair by itself, by `config` and without refinement. Closes the backend."""
    variants = {name: config, f'{name}, refinement none': dataclasses.replace(config, refinement='none')}
    networks = SharedNetworks(backend, variants.values())
    methods = [OurMethod(each, networks, variant) for each, variant in variants.items()]
    log.info(f'{name}: {backend.description}')
    found: dict[str, dict[Pair, FrameMatches]] = {method.name: {} for method in methods}
    with closing(networks):
        streams: list[Any] = []
        for pair in dict.fromkeys(itertools.chain(*recorded.by_stride.values())):
            _before, streams = streams, [method.stream() for method in methods]  # a frame of both pairs is extracted once
            for stamp, frame in enumerate(pair):  # all variants of a frame, which then is extracted once
                for method, stream in zip(methods, streams, strict=True):
                    prediction = stream.process(ShownFrame(frame, float(stamp), recorded.images[frame]))
                    if prediction is not None and prediction.published is not None:
                        found[method.name][pair] = prediction.published.matched()
    return found


def score_pairs(recorded: RecordedPairs, pairs: Sequence[Pair], found: dict[str, dict[Pair, FrameMatches]],
                ) -> dict[str, tuple[list[PairResult], list[PairResult]]]:
    """By matcher, each pair with all matches, and with the best by score: as many as the matcher with the fewest has there."""
    results: dict[str, tuple[list[PairResult], list[PairResult]]] = {name: ([], []) for name in found}
    for pair in pairs:
        matches = {name: by_pair[pair] for name, by_pair in found.items()}
        images = recorded.images[pair[0]], recorded.images[pair[1]]
        motion = recorded.scene.motion(pair, images, correspondences(next(iter(matches.values()))))
        fewest = min(map(len, matches.values()))
        for name, each in matches.items():
            for part, points in zip(results[name], (each, best(each, fewest)), strict=True):
                scored, _ = score_points(recorded.scene, pair, correspondences(points), motion)
                part.append(dataclasses.replace(scored.pair, layers=points.layers))
    return results


def best(matches: FrameMatches, count: int) -> FrameMatches:
    """The `count` matches of the highest scores."""
    kept = np.zeros(len(matches), np.bool_)
    kept[np.argsort(-matches.scores, kind='stable')[:count]] = True
    return matches.only(kept)


def summaries(own: Sequence[PairResult], equal: Sequence[PairResult]) -> dict[str, Any]:
    """Means of both parts, and the 95 % intervals that are known."""
    parts: dict[str, Any] = {'own': summary_of(table_of(own)), 'equal': summary_of(table_of(equal))}
    parts['intervals'] = {part: {name: interval[:2] for name, interval in pair_intervals(table_of(results)).items()
                                 if interval.size > 1 and math.isfinite(interval.low)}
                          for part, results in (('own', own), ('equal', equal))}
    return parts


def _cells(parts: dict[str, Any], part: str) -> list[str]:
    """COLUMNS of a part; shares with their intervals."""
    cells = []
    for name, digits in COLUMNS.items():
        value, interval = parts[part].get(name), parts['intervals'][part].get(name)
        cells.append('-' if value is None else f'{value:.{digits}f}' + (
            f' ({interval[0]:.0f} to {interval[1]:.0f})' if interval is not None and digits else ''))
    return cells
