"""What stopping early saves, on recorded frames: the matcher in stages against one of all layers, our frame against a pair's."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from lightglue_trt_ros.core.backend import Backend
from lightglue_trt_ros.core.early_exit import ALL_LAYERS
from lightglue_trt_ros.core.geometry import resize_gray
from lightglue_trt_ros.core.timing import Stopwatch
from lightglue_trt_ros.core.types import Thresholds, UInt8

MATCHER = ('one stage', 'stages, all run', 'stages, adaptive')
FRAME = ('pair pipeline', 'ours')


@dataclass
class DepthTimes:
    """Wall milliseconds on every pair of one recording at one stride."""

    sequence: str
    stride: int
    match_ms: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in MATCHER})  # features are there already
    frame_ms: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in FRAME})  # extraction and matching
    layers: list[int] = field(default_factory=list)  # that ran, by pair, with adaptive depth

    @property
    def histogram(self) -> str:
        """For people: layers: pairs."""
        return ', '.join(f'{layers}: {count}' for layers, count in sorted(Counter(self.layers).items()))


def measure_depth(staged: Backend, whole: Backend, depth_confidence: float, images: Iterable[UInt8], sequence: str,
                  stride: int) -> DepthTimes:
    """Time `staged` and `whole`, whose matcher is one stage, on gray frames, uint8 (H, W), `stride` apart.

    The pair pipeline extracts both frames and runs all layers, as matchers without a cache do; ours extracts the current one and
    stops when enough points are confident. Variants take turns on every pair, so that a drifting clock favours none.
    """
    found = DepthTimes(sequence, stride)
    size = (staged.spec.image_height, staged.spec.image_width)
    frames = (resize_gray(image, size) for image in itertools.islice(images, 0, None, stride))
    all_layers, adaptive = Thresholds(depth=ALL_LAYERS), Thresholds(depth=depth_confidence)
    previous = next(frames, None)
    if previous is None:
        return found
    before, before_whole = _seen(staged, previous), _seen(whole, previous)
    for current in frames:
        now, now_whole = _seen(staged, current), _seen(whole, current)
        clock = Stopwatch()
        whole.match(before_whole, now_whole, all_layers)
        clock.lap(MATCHER[0])
        staged.match(before, now, all_layers)
        clock.lap(MATCHER[1])
        found.layers.append(staged.match(before, now, adaptive).layers)
        clock.lap(MATCHER[2])
        before_whole = None  # its slot serves the pair pipeline
        whole.match(whole.extract(previous), whole.extract(current), all_layers)
        clock.lap(FRAME[0])
        staged.match(before, staged.extract(current), adaptive)
        clock.lap(FRAME[1])
        for name, value in clock.laps.items():
            (found.match_ms if name in MATCHER else found.frame_ms)[name].append(value)
        before, before_whole, previous = now, now_whole, current
    return found


def _seen(backend: Backend, image: UInt8) -> Any:
    """Features that are there: a GPU works while its caller goes on."""
    features = backend.extract(image)
    features.scores  # noqa: B018 waits for them
    return features
