"""How long each stage of a frame takes, and what the descriptor cache saves."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...core.backend import Backend
from ...core.config import MatcherConfig
from ...core.frame_matcher import FrameMatcher
from ...core.geometry import resize_gray
from ...core.types import UInt8


@dataclass(frozen=True)
class StageTimes:
    """Wall milliseconds of every frame after the first, by stage; `frame` is all of FrameMatcher.process."""

    stages: dict[str, list[float]]
    peak_memory_mib: float
    layers: list[int]  # of LightGlue that ran

    @property
    def fps(self) -> float:
        return 1e3 / float(np.median(self.stages['frame']))


def measure_stages(backend: Backend, config: MatcherConfig, frames: Iterator[UInt8]) -> StageTimes:
    """Run `frames` through FrameMatcher."""
    matcher = FrameMatcher(backend, config)
    stages: dict[str, list[float]] = {}
    layers: list[int] = []
    for i, image in enumerate(frames):
        started = time.perf_counter()
        matches = matcher.process(image, 0.1 * i)
        if matches is not None:
            elapsed = (time.perf_counter() - started) * 1e3
            layers.append(matches.layers)
            for name, value in {**matches.stage_ms, 'frame': elapsed}.items():
                stages.setdefault(name, []).append(value)
    return StageTimes(stages, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, layers)


@dataclass(frozen=True)
class CachingGain:
    """A frame with cached reference features against one that extracts both images again, medians in one run."""

    cached_ms: float
    uncached_ms: float
    extract_ms: float
    match_ms: float

    @property
    def ratio(self) -> float:
        return self.uncached_ms / self.cached_ms

    @property
    def predicted(self) -> float:
        """(2 extract + match) / (extract + match)."""
        return (2 * self.extract_ms + self.match_ms) / (self.extract_ms + self.match_ms)


def measure_caching(backend: Backend, config: MatcherConfig, frames: Iterator[UInt8]) -> CachingGain:
    """Every other frame extracts the frame before it again, as a pair pipeline does, so that a drifting clock favours neither."""
    matcher, size = FrameMatcher(backend, config), (backend.spec.image_height, backend.spec.image_width)
    times: dict[str, list[float]] = {'cached': [], 'uncached': [], 'extract': [], 'match': []}
    previous: UInt8 | None = None
    for i, image in enumerate(frames):
        started = time.perf_counter()
        if previous is not None and i % 2:
            backend.extract(resize_gray(previous, size))
        matches = matcher.process(image, 0.1 * i)
        elapsed = (time.perf_counter() - started) * 1e3
        if matches is not None:
            times['uncached' if i % 2 else 'cached'].append(elapsed)
            for name in () if i % 2 else ('extract', 'match'):
                times[name].append(matches.stage_ms[name])
        previous = image
    return CachingGain(*(float(np.median(times[name])) for name in ('cached', 'uncached', 'extract', 'match')))
