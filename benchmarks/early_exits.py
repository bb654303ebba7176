"""Time that early exits save on recorded frames: the matcher in stages against one of all layers, and whole frames."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.real_images import find_sequences
from benchmarks.recorded_pairs import add_stride_options
from lightglue_trt_eval.cli.benchmark import opened, percentiles
from lightglue_trt_ros.core.backend import Backend
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.early_exit import ALL_LAYERS, EarlyExits
from lightglue_trt_ros.core.geometry import resize_gray
from lightglue_trt_ros.core.timing import Stopwatch
from lightglue_trt_ros.core.types import Thresholds, UInt8
from lightglue_trt_ros.datasets.recordings import gray_images
from lightglue_trt_ros.utils.console import print_table
from lightglue_trt_ros.utils.errors import BagError, EngineError

DATA = 'any recording, or the folder of several'
MATCHER = ('one stage', 'stages, all run', 'stages, adaptive')
FRAME = ('pair pipeline', 'ours')


@dataclass
class ExitTimes:
    """Wall milliseconds on every pair of one recording at one stride."""

    sequence: str
    stride: int
    match_ms: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in MATCHER})  # without extraction
    frame_ms: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in FRAME})  # extraction and matching
    layers: list[int] = field(default_factory=list)  # that ran, by pair, with early exits

    @property
    def histogram(self) -> str:
        """Text, `layers: pairs` of each exit."""
        return ', '.join(f'{layers}: {count}' for layers, count in sorted(Counter(self.layers).items()))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Which frames, and which engines."""
    add_stride_options(parser, '1')
    parser.add_argument('--whole-engine-dir', default='', metavar='DIR', help='engines of build_engines --stages 9')


def measure(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    """Time each recording at each stride. Raises BagError, EngineError."""
    whole_config = dataclasses.replace(config, engine_dir=args.whole_engine_dir or config.engine_dir, depth_confidence=ALL_LAYERS)
    report = []
    with opened(config) as staged, opened(whole_config, EarlyExits((staged.early_exits.ends[-1],))) as whole:
        if len(whole.early_exits.ends) > 1:
            raise EngineError('depth compares with engines of one stage: build them with --stages 9, and name --whole-engine-dir')
        for (name, path), stride in itertools.product(find_sequences(args.data).items(), args.strides):
            times = time_exits(staged, whole, config.depth_confidence, gray_images(path, args.image_topic), name, stride)
            if not times.layers:
                raise BagError(f'{path}: no two frames are {stride} apart; give smaller --strides or a longer recording')
            report.append(dataclasses.asdict(times))
            rows = [(variant, *percentiles(ms), f'{max(ms):.2f}', f'{np.median(table[first]) / np.median(ms):.2f}')
                    for table, first in ((times.match_ms, MATCHER[0]), (times.frame_ms, FRAME[0]))
                    for variant, ms in table.items()]
            print_table(f'{name}, every {stride}. frame, depth_confidence {config.depth_confidence:g}: mean '
                        f'{np.mean(times.layers):.2f} layers ({times.histogram}); wall ms over {len(times.layers)} pairs',
                        ['only the matcher; whole frame', 'median', 'p95', 'p99', 'worst', 'times faster'], rows, left=1)
    return {'pairs': report}


def time_exits(staged: Backend, whole: Backend, depth_confidence: float, images: Iterable[UInt8], sequence: str,
               stride: int) -> ExitTimes:
    """Time `staged` and `whole`, whose matcher is one stage, on gray frames, uint8 (H, W), `stride` apart.

    The pair pipeline extracts both frames and runs all layers, as matchers without a cache do. Ours extracts the current frame and
    stops when enough points are confident. All variants run on every pair, so that a drifting clock favours none.
    """
    times = ExitTimes(sequence, stride)
    size = (staged.spec.image_height, staged.spec.image_width)
    frames = (resize_gray(image, size) for image in itertools.islice(images, 0, None, stride))
    all_layers, adaptive = Thresholds(depth_confidence=ALL_LAYERS), Thresholds(depth_confidence=depth_confidence)
    previous = next(frames, None)
    if previous is None:
        return times
    before, before_whole = _extracted(staged, previous), _extracted(whole, previous)
    for current in frames:
        now, now_whole = _extracted(staged, current), _extracted(whole, current)
        clock = Stopwatch()
        whole.match(before_whole, now_whole, all_layers)
        clock.lap(MATCHER[0])
        staged.match(before, now, all_layers)
        clock.lap(MATCHER[1])
        times.layers.append(staged.match(before, now, adaptive).layers)
        clock.lap(MATCHER[2])
        before_whole = None  # its slot serves the pair pipeline
        whole.match(whole.extract(previous), whole.extract(current), all_layers)
        clock.lap(FRAME[0])
        staged.match(before, staged.extract(current), adaptive)
        clock.lap(FRAME[1])
        for name, value in clock.laps.items():
            (times.match_ms if name in MATCHER else times.frame_ms)[name].append(value)
        before, before_whole, previous = now, now_whole, current
    return times


def _extracted(backend: Backend, image: UInt8) -> Any:
    """Features whose extraction has ended: a GPU works while its caller goes on."""
    features = backend.extract(image)
    features.scores  # noqa: B018 waits for them
    return features
