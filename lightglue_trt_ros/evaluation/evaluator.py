"""The pass over a recording: each frame decoded once, every contestant in lockstep, every pair scored.

Nothing but the records of the pairs grows with the recording.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..errors import BagError, EngineError, FrameError
from ..features import UInt8
from ..recordings.sequence import Frame
from .baselines import Correspondences
from .contestants import Contestant, Sighting
from .results import MatcherResult
from .scene import Scene
from .scoring import SAME_PX
from .tally import Tally
from .twoview import PoseEstimator

BACKWARD_PAIRS = 20  # that are matched backwards as well


class WallTime:
    """Seconds by what they were spent on."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def spent(self, name: str) -> Iterator[None]:
        """Count the time of a block as `name`."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started

    def reading(self, frames: Iterable[Frame]) -> Iterator[Frame]:
        """The same frames; the time that getting them takes is counted."""
        source = iter(frames)
        while True:
            with self.spent('reading'):
                frame = next(source, None)
            if frame is None:
                return
            yield frame


class Stopped(Exception):  # noqa: N818
    """The user has asked for an end."""


class Evaluator:
    """Runs the contestants over a recording.

    `frames` opens the recording anew and gives the frames of the scene's timeline, `decode` makes gray uint8 (H, W) of what one
    loads, `stopped` is asked between frames, `tell` gets a line about what frames turn out to be.
    """

    def __init__(self, frames: Callable[[], Iterable[Frame]], decode: Callable[[Any], UInt8], scene: Scene,
                 contestants: Sequence[Contestant], estimator: PoseEstimator, *, wall: WallTime | None = None,
                 stopped: Callable[[], bool] = lambda: False, tell: Callable[[str], None] = lambda line: None) -> None:
        self._frames, self._decode, self._scene, self._contestants = frames, decode, scene, contestants
        self.wall, self._stopped, self._tell = wall or WallTime(), stopped, tell
        self._tallies = [Tally(each.name, each.description, each.ours, scene, estimator) for each in contestants]
        self._undecodable: set[int] = set()
        self._wanted = set(scene.timeline.pairs(BACKWARD_PAIRS))
        self._forward: dict[tuple[int, int], list[Correspondences]] = {}
        self.interrupted = False
        self.failure = ''  # why it ended early

    def run(self, strides: Sequence[int], progress: Callable[[int], None] = lambda done: None) -> list[MatcherResult]:
        """Evaluate with each stride and backwards; what was done until then when the user asks for an end or a backend fails.

        `progress` hears how many of `work(strides)` frames are done.
        """
        done = itertools.count(1)

        def step() -> None:
            progress(next(done))

        try:
            for stride in strides:
                self._pass(stride, step)
            self._pass_backwards(step)
        except Stopped:
            self.interrupted = True
        except EngineError as error:
            self.interrupted, self.failure = True, str(error)
        return [tally.finish() for tally in self._tallies]

    def work(self, strides: Sequence[int]) -> int:
        """Frames that `run` processes."""
        return sum(-(-len(self._scene.timeline) // stride) for stride in strides) + 2 * len(self._wanted)

    def _pass(self, stride: int, step: Callable[[], None]) -> None:
        segments, previous = self._scene.timeline.segments, None
        sizes: list[str] = []
        self._reset()
        for number, frame in enumerate(self.wall.reading(self._frames())):
            if number % stride:
                continue
            if self._stopped():
                raise Stopped
            if (image := self._image(number, frame)) is not None:
                resized = previous is not None and previous[1].shape != image.shape
                sizes += [f'to {image.shape[1]}x{image.shape[0]} with frame {frame.number}'] * resized
                if previous is None or resized or segments[previous[0]] != segments[number]:
                    self._reset()
                    previous = None
                self._pair(stride, previous, (number, image))
                previous = number, image
            step()
        self._reset()
        if sizes and stride == 1:
            self._tell(f'the images change their size {len(sizes)} times, first {sizes[0]}: the sequence starts anew there, '
                       'and only frames of the size that the intrinsics are for have a geometry')

    def _pair(self, stride: int, previous: tuple[int, UInt8] | None, current: tuple[int, UInt8]) -> None:
        """Show every contestant the current frame, and score what it finds."""
        number, image = current
        first: Correspondences | None = None
        forward: list[Correspondences] = []
        for contestant, tally in zip(self._contestants, self._tallies, strict=True):
            started = time.perf_counter()
            sighting = self._process(contestant, image, self._scene.timeline.seconds(number))
            stage_ms = {'frame': (time.perf_counter() - started) * 1e3}
            if previous is None or sighting is None:
                continue
            with self.wall.spent('estimating'):
                tally.add(stride, (previous[0], number), sighting.points, images=(previous[1], image),
                          stage_ms={**sighting.stage_ms, **stage_ms}, layers=sighting.layers,
                          first=first if contestant.ours else None)
            first = sighting.points if first is None else first
            forward.append(sighting.points)
        pair = (-1 if previous is None else previous[0], number)
        if stride == 1 and pair in self._wanted and len(forward) == len(self._contestants):
            self._forward[pair] = forward

    def _pass_backwards(self, step: Callable[[], None]) -> None:
        """Match some pairs the other way round: what is right comes back."""
        shares: list[list[float]] = [[] for _ in self._contestants]
        before: dict[int, UInt8] = {}
        needed = {number for pair in self._forward for number in pair}
        by_end = {pair[1]: pair for pair in self._forward}
        for number, frame in enumerate(self.wall.reading(self._frames())):
            if self._stopped():
                break
            if number not in needed or (image := self._image(number, frame)) is None:
                continue
            if (pair := by_end.get(number)) is not None and (reference := before.get(pair[0])) is not None:
                self._turn_round(self._forward[pair], image, reference, shares)
                step()
                step()
            before = {number: image}
        self._reset()
        for tally, found in zip(self._tallies, shares, strict=True):
            tally.result.forward_backward = sum(found) / len(found) if found else None
        if self._stopped():
            raise Stopped

    def _turn_round(self, forward: list[Correspondences], image: UInt8, reference: UInt8, shares: list[list[float]]) -> None:
        self._reset()
        for contestant, points, found in zip(self._contestants, forward, shares, strict=True):
            self._process(contestant, image, 0.0)
            backward = self._process(contestant, reference, 1.0)
            share = None if backward is None else _coming_back(points, backward.points)
            if share is not None:
                found.append(share)

    def _process(self, contestant: Contestant, image: UInt8, stamp: float) -> Sighting | None:
        with self.wall.spent('inference' if contestant.ours else 'baselines'):
            return contestant.process(image, stamp)

    def _image(self, number: int, frame: Frame) -> UInt8 | None:
        """The decoded frame; None where that fails, which is told once."""
        try:
            with self.wall.spent('reading'):
                image = self._decode(frame.load())
        except (BagError, FrameError) as error:
            if number not in self._undecodable:
                self._undecodable.add(number)
                self._tell(f'frame {frame.number} cannot be decoded: {error}')
            return None
        self._scene.see(number, image.shape)
        return image

    def _reset(self) -> None:
        for contestant in self._contestants:
            contestant.reset()


def _coming_back(forward: Correspondences, backward: Correspondences) -> float | None:
    """Share of the matches that end near where they began, of those whose end is matched backwards at all: 1 px each time."""
    if not len(forward.current) or not len(backward.reference):
        return None
    distances = np.linalg.norm(forward.current[:, None] - backward.reference[None], axis=2)
    again = np.flatnonzero(distances.min(axis=1) < SAME_PX)
    ends = backward.current[distances[again].argmin(axis=1)]
    return float(np.mean(np.linalg.norm(ends - forward.reference[again], axis=1) < SAME_PX)) if len(again) else None
