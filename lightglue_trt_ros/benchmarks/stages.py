"""How long each stage of a frame takes, and what the descriptor cache saves."""

from __future__ import annotations

import itertools
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass

import cv2
import numpy as np

from ..backends import Backend
from ..config import MatcherConfig
from ..errors import BagError
from ..features import UInt8
from ..frontend import FrameMatcher
from ..geometry import resize_gray


@dataclass(frozen=True)
class StageTimes:
    """Wall milliseconds of every frame after the first, by stage; `frame` is all of FrameMatcher.process."""

    stages: dict[str, list[float]]
    peak_memory_mib: float
    layers: list[int]  # of LightGlue that ran

    @property
    def fps(self) -> float:
        return 1e3 / float(np.median(self.stages['frame']))


def textured_frames(count: int, height: int, width: int) -> Iterator[UInt8]:
    """A drifting texture, gray (H, W). Shapes are fixed, so what is in the image does not change the times."""
    rng = np.random.default_rng(0)
    texture = cv2.GaussianBlur(rng.random((height + 64, width + 64), np.float32), (0, 0), 2)
    canvas = cv2.normalize(texture, None, 0, 255, cv2.NORM_MINMAX).astype(np.uint8)  # type: ignore[call-overload]
    for i in range(count):
        u, v = 2 * i % 64, i % 64
        yield np.ascontiguousarray(canvas[v:v + height, u:u + width])


def forth_and_back(images: Iterator[UInt8], count: int) -> Iterator[UInt8]:
    """`count` frames of a recording, so that each has the one before it or after it as its neighbour; as many are held at most.

    Decoded before the first is given, which takes no part in anybody's time then. Raises BagError, for a single image too.
    """
    held = list(itertools.islice(images, count))
    if len(held) < 2:
        raise BagError(f'the recording has {len(held)} frames: each is matched with the one before, so give one of two at least')
    return itertools.islice(itertools.cycle([*held, *held[-2:0:-1]]), count)


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
