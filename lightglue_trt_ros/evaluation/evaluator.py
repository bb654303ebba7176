"""The pass over a recording: each frame decoded once, shown to every contestant at every stride, every pair scored.

Reading, the networks, each baseline and the scoring go on side by side, but for the frames that are timed: those run alone.
Nothing but the records of the pairs grows with the recording.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np

from ..core.types import UInt8
from ..datasets.sequence import Frame
from ..odometry.two_view import PoseEstimator
from ..utils.errors import BagError, EngineError, FrameError
from .baselines import Correspondences
from .concurrency import Floor, ahead
from .costs import Cost, Meter, WallTime
from .methods import Contestant, Sighting, Stream
from .results import MatcherResult
from .scene import Scene
from .score import SAME_PX
from .tally import Tally

BACKWARD_PAIRS = 20  # that are matched backwards as well
TIMED_PAIRS = 30  # whose second frame is timed
READ_AHEAD, UNSCORED = 3, 3  # frames that may wait for the networks, and for the scoring

First = Callable[[int, tuple[int, int], Sighting], Sighting]


class Stopped(Exception):  # noqa: N818
    """The user has asked for an end."""


class Shown(NamedTuple):
    """A frame that goes round."""

    number: int  # in the timeline
    image: UInt8
    references: dict[int, tuple[int, UInt8] | None]  # by stride: the frame before, None for the first one


class Found(NamedTuple):
    """What a contestant found in a frame."""

    sightings: dict[int, Sighting]  # by stride
    cost: Cost | None = None  # of stride 1, where the frame was timed
    coming_back: float | None = None  # share of the matches of stride 1 that come back


class Timed(NamedTuple):
    """What a contestant found in a frame of stride 1, and what that took."""

    sighting: Sighting | None
    cost: Cost


class Lane:
    """A contestant with its streams and its results."""

    def __init__(self, contestant: Contestant, tally: Tally, strides: Sequence[int]) -> None:
        self.contestant, self.tally = contestant, tally
        self._streams = {stride: contestant.stream() for stride in strides}
        self._backward: Stream = contestant.stream()
        self.executor = None if contestant.ours else ThreadPoolExecutor(1, contestant.name)  # ours belongs to its thread

    def see(self, shown: Shown, seconds: float, backwards: bool, timed: Timed | None, clock: WallTime) -> Found:
        """Match the frame with the one before, at every stride, and back; stride 1 has been where it was `timed`."""
        with clock.spent('inference' if self.contestant.ours else 'baselines'):
            found: dict[int, Sighting] = {}
            for stride in shown.references:
                sighting = timed.sighting if timed is not None and stride == 1 else self._match(shown, stride, seconds)
                if sighting is not None:
                    found[stride] = sighting
            coming_back = self._match_back(shown, found[1].points) if backwards and 1 in found else None
            return Found(found, None if timed is None else timed.cost, coming_back)

    def time(self, shown: Shown, seconds: float, clock: WallTime) -> Timed:
        """Match the frame at stride 1, and say what that takes."""
        with clock.spent('inference' if self.contestant.ours else 'baselines'):
            meter = Meter()
            sighting = self._match(shown, 1, seconds, alone=True)
            return Timed(sighting, meter.cost if sighting is None else meter.cost.plus(sighting.saved))

    def close(self) -> None:
        if self.executor is not None:
            self.executor.shutdown()

    def _match(self, shown: Shown, stride: int, seconds: float, alone: bool = False) -> Sighting | None:
        stream = self._streams[stride]
        if shown.references[stride] is None:
            stream.reset()
        return stream.process(shown.image, seconds, alone=alone)

    def _match_back(self, shown: Shown, forward: Correspondences) -> float | None:
        reference = shown.references[1]
        if reference is None:
            return None
        self._backward.reset()
        self._backward.process(shown.image, 0.0)
        backward = self._backward.process(reference[1], 1.0)
        return None if backward is None else _coming_back(forward, backward.points)


class Evaluator:
    """Runs the contestants over a recording.

    `frames` opens the recording anew and gives the frames of the scene's timeline, `decode` makes gray uint8 (H, W) of what one
    loads, `stopped` is asked between frames, `tell` gets a line about what frames turn out to be. `first` gets the stride, the pair
    and what the first contestant saw in it, and gives what the others of ours are compared with.
    """

    def __init__(self, frames: Callable[[], Iterable[Frame]], decode: Callable[[Any], UInt8], scene: Scene,
                 contestants: Sequence[Contestant], estimator: PoseEstimator, *, wall: WallTime | None = None,
                 stopped: Callable[[], bool] = lambda: False, tell: Callable[[str], None] = lambda line: None,
                 first: First | None = None) -> None:
        self._frames, self._decode, self._scene, self._contestants = frames, decode, scene, contestants
        self._estimator, self._first = estimator, first
        self.wall, self._stopped, self._tell = wall or WallTime(), stopped, tell
        self._backward = {pair[1] for pair in scene.timeline.pairs(BACKWARD_PAIRS)}
        self._timed = {pair[1] for pair in scene.timeline.pairs(TIMED_PAIRS)}
        self._floor = Floor()
        self.covered = 0  # frames that were evaluated
        self.interrupted = False
        self.failure = ''  # why it ended early

    def __len__(self) -> int:
        return len(self._scene.timeline)

    def run(self, strides: Sequence[int], progress: Callable[[int], None] = lambda done: None) -> list[MatcherResult]:
        """Evaluate with each stride, and some pairs backwards; what was done until then when the user asks for an end or a backend
        fails. `progress` hears how many of the timeline's frames are done.
        """
        tallies = [Tally(each.name, each.description, each.ours, self._scene, self._estimator, drawn=number == 0)
                   for number, each in enumerate(self._contestants)]
        lanes = [Lane(each, tally, strides) for each, tally in zip(self._contestants, tallies, strict=True)]
        try:
            self._pass(lanes, strides, progress)
        except Stopped:
            self.interrupted = True
        except EngineError as error:
            self.interrupted, self.failure = True, str(error)
        return [tally.finish() for tally in tallies]

    def _pass(self, lanes: Sequence[Lane], strides: Sequence[int], progress: Callable[[int], None]) -> None:
        before: dict[int, tuple[int, UInt8]] = {}  # by stride
        sizes: list[str] = []
        with ExitStack() as stack:
            for lane in lanes:
                stack.callback(lane.close)
            scorer = stack.enter_context(ThreadPoolExecutor(1, 'scoring'))
            frames = stack.enter_context(ahead(self._read(), READ_AHEAD, self._floor))
            waiting: deque[Future[None]] = deque()
            try:
                for number, frame, image in frames:
                    if self._stopped():
                        raise Stopped
                    if isinstance(image, Exception):
                        self._tell(f'frame {frame.number} cannot be decoded: {image}')
                    else:
                        self._scene.see(number, image.shape)
                        previous = before.get(1)
                        if previous is not None and previous[1].shape != image.shape:
                            sizes.append(f'to {image.shape[1]}x{image.shape[0]} with frame {frame.number}')
                        shown = Shown(number, image, self._references(number, image, before, strides))
                        waiting.append(scorer.submit(self._score, lanes, shown, self._show(lanes, shown, waiting)))
                    while len(waiting) > UNSCORED:
                        waiting.popleft().result()
                    progress(number + 1)
            finally:  # what was seen is scored, however this ends
                for future in waiting:
                    future.result()
        if sizes:
            self._tell(f'the images change their size {len(sizes)} times, first {sizes[0]}: the sequence starts anew there, '
                       'and only frames of the size that the intrinsics are for have a geometry')

    def _references(self, number: int, image: UInt8, before: dict[int, tuple[int, UInt8]],
                    strides: Sequence[int]) -> dict[int, tuple[int, UInt8] | None]:
        """What the frame is matched with, by stride; `before` goes on to it."""
        segments, found = self._scene.timeline.segments, {}
        for stride in strides:
            if number % stride:
                continue
            previous = before.get(stride)
            joined = previous is not None and previous[1].shape == image.shape and segments[previous[0]] == segments[number]
            found[stride] = previous if joined else None
            before[stride] = number, image
        return found

    def _show(self, lanes: Sequence[Lane], shown: Shown, waiting: deque[Future[None]]) -> list[Future[Found]]:
        """Let everybody see the frame, side by side; one after the other, and nothing beside them, where it is timed."""
        seconds, timed = self._scene.timeline.seconds(shown.number), None
        if shown.number in self._timed and shown.references.get(1) is not None:
            for future in waiting:
                future.result()
            with self._floor.alone():
                timed = [lane.time(shown, seconds, self.wall) for lane in lanes]
        found: list[Future[Found]] = []
        for number, lane in enumerate(lanes):
            first = None if timed is None else timed[number]
            if lane.executor is not None:
                found.append(lane.executor.submit(self._see, lane, shown, seconds, first))
            else:
                done: Future[Found] = Future()
                found.append(done)
                done.set_result(self._see(lane, shown, seconds, first))
        return found

    def _see(self, lane: Lane, shown: Shown, seconds: float, timed: Timed | None) -> Found:
        backwards = shown.number in self._backward and shown.references.get(1) is not None
        with self._floor.shared():
            return lane.see(shown, seconds, backwards, timed, self.wall)

    def _score(self, lanes: Sequence[Lane], shown: Shown, found: Sequence[Future[Found]]) -> None:
        """Score what everybody found in a frame."""
        everybody = [future.result() for future in found]
        with self._floor.shared(), self.wall.spent('estimating'):
            for stride, reference in shown.references.items():
                sighted = [(lane, each) for lane, each in zip(lanes, everybody, strict=True) if stride in each.sightings]
                if reference is None or not sighted:
                    continue
                pair, images = (reference[0], shown.number), (reference[1], shown.image)
                first = sighted[0][1].sightings[stride]
                motion = self._scene.motion(pair, images, first.points)
                if self._first is not None:
                    first = self._first(stride, pair, first)
                for lane, each in sighted:
                    sighting = each.sightings[stride]
                    lane.tally.add(stride, pair, sighting, images=images, motion=motion,
                                   first=first if lane.contestant.ours and sighting is not first else None)
            for lane, each in zip(lanes, everybody, strict=True):
                if each.cost is not None and 1 in each.sightings:
                    lane.tally.time(each.sightings[1], each.cost)
                if each.coming_back is not None:
                    lane.tally.result.forward_backward.append(each.coming_back)
        self.covered += 1

    def _read(self) -> Generator[tuple[int, Frame, UInt8 | Exception], None, None]:
        """Every frame of the timeline with its image, or with what keeps it from being decoded."""
        source = enumerate(self._frames())
        while True:
            with self.wall.spent('reading'):
                entry = next(source, None)
                if entry is None:
                    return
                number, frame = entry
                try:
                    image: UInt8 | Exception = self._decode(frame.load())
                except (BagError, FrameError) as error:
                    image = error
            yield number, frame, image


def _coming_back(forward: Correspondences, backward: Correspondences) -> float | None:
    """Share of the matches that end near where they began, of those whose end is matched backwards at all: 1 px each time."""
    if not len(forward.current) or not len(backward.reference):
        return None
    distances = np.linalg.norm(forward.current[:, None] - backward.reference[None], axis=2)
    again = np.flatnonzero(distances.min(axis=1) < SAME_PX)
    ends = backward.current[distances[again].argmin(axis=1)]
    return float(np.mean(np.linalg.norm(ends - forward.reference[again], axis=1) < SAME_PX)) if len(again) else None
