"""Predictions: every method sees every frame once, with the frame before it at each stride.

Reading, our networks, the baselines and the scoring of earlier frames run in parallel; nothing else runs while a frame is timed.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any, NamedTuple, TypeVar

from ..core.types import UInt8
from ..datasets.sequence import Frame
from ..utils.errors import BagError, FrameError
from .baselines import Correspondences
from .costs import Cost, Meter, WallTime
from .methods import Method, Prediction
from .scene import Scene

T = TypeVar('T')

BACKWARD_PAIRS = 20  # that are matched backwards as well
TIMED_PAIRS = 30  # whose second frame is timed
READ_AHEAD = 3  # frames that wait for the networks


class ShownFrame(NamedTuple):
    """A frame as every method sees it."""

    number: int  # in the timeline
    image: UInt8
    references: dict[int, tuple[int, UInt8] | None]  # by stride: number and image of the frame before; None: a sequence starts


class FramePrediction(NamedTuple):
    """What one method predicts for a frame."""

    by_stride: dict[int, Prediction]
    cost: Cost | None = None  # of stride 1, if the frame was timed
    backward: Correspondences | None = None  # of stride 1, from the frame to its reference


class MethodRun:
    """A method on one recording: a stream for each stride, one for matching backwards, and the thread of a baseline."""

    def __init__(self, method: Method, strides: Sequence[int], wall: WallTime) -> None:
        self._streams = {stride: method.stream() for stride in strides}
        self._backward = method.stream()
        self._executor = None if method.ours else ThreadPoolExecutor(1, method.name)  # our networks stay in the caller's thread
        self._wall, self._kind = wall, 'inference' if method.ours else 'baselines'

    def time(self, shown: ShownFrame, seconds: float) -> tuple[Prediction | None, Cost]:
        """Match the frame at stride 1, and measure the cost."""
        with self._wall.spent(self._kind):
            meter = Meter()
            prediction = self._match(shown, 1, seconds, alone=True)
            return prediction, meter.cost if prediction is None else meter.cost.plus(prediction.saved)

    def submit(self, shown: ShownFrame, seconds: float, backwards: bool,
               timed: tuple[Prediction | None, Cost] | None) -> Future[FramePrediction]:
        """Match the frame at every stride, except at stride 1 if it was `timed`, and backwards if asked."""
        if self._executor is not None:
            return self._executor.submit(self._predict, shown, seconds, backwards, timed)
        done: Future[FramePrediction] = Future()
        done.set_result(self._predict(shown, seconds, backwards, timed))
        return done

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown()

    def _predict(self, shown: ShownFrame, seconds: float, backwards: bool,
                 timed: tuple[Prediction | None, Cost] | None) -> FramePrediction:
        with self._wall.spent(self._kind):
            by_stride = {stride: timed[0] if timed is not None and stride == 1 else self._match(shown, stride, seconds)
                         for stride in shown.references}
            known = {stride: prediction for stride, prediction in by_stride.items() if prediction is not None}
            return FramePrediction(known, None if timed is None else timed[1],
                                   self._match_back(shown) if backwards and 1 in known else None)

    def _match(self, shown: ShownFrame, stride: int, seconds: float, alone: bool = False) -> Prediction | None:
        stream = self._streams[stride]
        if shown.references[stride] is None:
            stream.reset()
        return stream.process(shown.image, seconds, alone=alone)

    def _match_back(self, shown: ShownFrame) -> Correspondences | None:
        reference = shown.references[1]
        if reference is None:
            return None
        self._backward.reset()
        self._backward.process(shown.image, 0.0)
        prediction = self._backward.process(reference[1], 1.0)
        return None if prediction is None else prediction.points


class Predictor:
    """Shows a recording to all methods.

    `frames` opens the recording anew and gives the frames of the scene's timeline, `decode` makes gray uint8 (H, W) of what one
    loads, `stopped` is asked between frames, `note` gets a line about frames that are lost or change their size.
    """

    def __init__(self, frames: Callable[[], Iterable[Frame]], decode: Callable[[Any], UInt8], scene: Scene, *, wall: WallTime,
                 stopped: Callable[[], bool], note: Callable[[str], None]) -> None:
        self._frames, self._decode, self._scene = frames, decode, scene
        self._wall, self._stopped, self._note = wall, stopped, note
        self._backward = {pair[1] for pair in scene.timeline.pairs(BACKWARD_PAIRS)}
        self._timed = {pair[1] for pair in scene.timeline.pairs(TIMED_PAIRS)}
        self._reading = threading.Lock()  # held while a frame is read, and while one is timed
        self.interrupted = False  # `stopped` ended it early

    def predictions(self, methods: Sequence[Method], strides: Sequence[int], wait_until_idle: Callable[[], None],
                    ) -> Generator[tuple[ShownFrame, list[Future[FramePrediction]]], None, None]:
        """Each frame and the predictions of `methods` for it, those of baselines perhaps still in progress.

        `wait_until_idle` returns once all earlier frames are predicted and scored: it is called before a frame is timed.
        """
        before: dict[int, tuple[int, UInt8]] = {}  # by stride
        resized: list[str] = []
        with ExitStack() as stack:
            runs = [MethodRun(method, strides, self._wall) for method in methods]
            for run in runs:
                stack.callback(run.close)
            for number, frame, image in stack.enter_context(closing(read_ahead(self._read(), READ_AHEAD, self._reading))):
                if self._stopped():
                    self.interrupted = True
                    return
                if isinstance(image, Exception):
                    self._note(f'frame {frame.number} cannot be decoded: {image}')
                    continue
                self._scene.see(number, image.shape)
                if 1 in before and before[1][1].shape != image.shape:
                    resized.append(f'to {image.shape[1]}x{image.shape[0]} with frame {frame.number}')
                shown = ShownFrame(number, image, self._references(number, image, before, strides))
                yield shown, self._predict(runs, shown, wait_until_idle)
        if resized:
            self._note(f'the images change their size {len(resized)} times, first {resized[0]}: the sequence starts anew there, '
                       'and only frames of the size that the intrinsics are for have a geometry')

    def _predict(self, runs: Sequence[MethodRun], shown: ShownFrame,
                 wait_until_idle: Callable[[], None]) -> list[Future[FramePrediction]]:
        seconds, paired = self._scene.timeline.seconds(shown.number), shown.references.get(1) is not None
        timed: list[tuple[Prediction | None, Cost] | None] = [None] * len(runs)
        if paired and shown.number in self._timed:
            wait_until_idle()
            with self._reading:
                timed = [run.time(shown, seconds) for run in runs]
        return [run.submit(shown, seconds, paired and shown.number in self._backward, first)
                for run, first in zip(runs, timed, strict=True)]

    def _references(self, number: int, image: UInt8, before: dict[int, tuple[int, UInt8]],
                    strides: Sequence[int]) -> dict[int, tuple[int, UInt8] | None]:
        """The frame's references by stride; afterwards `before` holds the frame itself."""
        segments, references = self._scene.timeline.segments, {}
        for stride in strides:
            if number % stride:
                continue
            previous = before.get(stride)
            joined = previous is not None and previous[1].shape == image.shape and segments[previous[0]] == segments[number]
            references[stride] = previous if joined else None
            before[stride] = number, image
        return references

    def _read(self) -> Generator[tuple[int, Frame, UInt8 | Exception], None, None]:
        """Every frame of the timeline with its image, or with the error that its decoding raises."""
        source = enumerate(self._frames())
        while True:
            with self._wall.spent('reading'):
                entry = next(source, None)
                if entry is None:
                    return
                number, frame = entry
                try:
                    image: UInt8 | Exception = self._decode(frame.load())
                except (BagError, FrameError) as error:
                    image = error
            yield number, frame, image


def read_ahead(source: Generator[T, None, None], count: int, lock: threading.Lock) -> Generator[T, None, None]:
    """The items of `source`, which a thread takes from it while it holds `lock`, at most `count` in advance.

    An error of `source` is raised where its item is asked for. At the end the thread closes `source`, as databases require.
    """
    def take() -> T | None:
        with lock:
            return next(source, None)

    with ThreadPoolExecutor(1, 'reading') as reader:
        waiting = deque(reader.submit(take) for _ in range(count))
        try:
            while (item := waiting.popleft().result()) is not None:
                waiting.append(reader.submit(take))
                yield item
        finally:
            for future in waiting:
                future.cancel()
            reader.submit(source.close)
