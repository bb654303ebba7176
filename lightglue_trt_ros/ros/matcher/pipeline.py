"""Messages become matches in one thread, which opens the backend, owns it and closes it. No ROS here.

A pipeline that is left behind releases its own backend; its successor opens another. Failures are kept as text: the traceback of an
exception would keep engines alive beyond their CUDA context.
"""

from __future__ import annotations

import math
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeVar

from ...core.backend import Backend
from ...core.cameras import Intrinsics
from ...core.config import MatcherConfig
from ...core.depth import DepthImage
from ...core.frame_matcher import FrameMatcher
from ...core.keyframes import Keyframe
from ...core.masks import Mask
from ...core.stereo import RightImage
from ...core.timing import Stopwatch
from ...core.tracks import TrackCounter
from ...core.types import FrameMatches, UInt8
from ...engines.selection import Opened
from ...utils.errors import DeviceMemoryError, EngineError, FrameError, clear_frames, in_words
from ..frame_statistics import FrameStatistics

Answer = TypeVar('Answer')

QUESTIONS = -1  # their source in the queue
MOST_QUESTIONS = 100  # that wait
MAX_FAILURES = 10  # frames in a row that the backend may fail: a CUDA error that has corrupted the context never goes away


class State(Enum):
    """Life of a pipeline, in this order."""

    OPENING = 'opening'
    RUNNING = 'running'
    ENDED = 'ended'


class Input(NamedTuple):
    """One decoded frame."""

    image: UInt8  # gray (H, W)
    stamp: float  # seconds
    source: Any  # what it was decoded from
    mask: Mask | None = None
    right: RightImage | None = None  # of its stereo pair
    depth: Callable[[], DepthImage | None] | None = None  # waits for the one that is registered to it
    camera: Intrinsics | None = None  # its calibration, where one is known


class Question(NamedTuple):
    """What somebody asks the matcher of a camera."""

    camera: int
    ask: Callable[[FrameMatcher], Any]
    answer: Future[Any]


class FrameHandler(Protocol):
    """Decodes and publishes for one camera. The pipeline's thread calls all methods."""

    def decode(self, item: bytes) -> Input:
        """Decode an item. Raises FrameError."""

    def publish(self, frame: Input, matches: FrameMatches) -> None:
        """Publish the matches of a frame, without delay."""

    def publish_keyframe(self, frame: Input, keyframe: Keyframe) -> None:
        """Publish a frame that has become a keyframe."""

    def show(self, frame: Input, matches: FrameMatches | None) -> None:
        """Slow work after publishing. `matches` is None for a frame without a reference."""

    def tracks_restarted(self, reason: str) -> None:
        """The matcher dropped reference and tracks."""

    def rejected(self, error: str, details: str) -> None:
        """A frame was dropped; `details` is the traceback of an unexpected error, else empty."""


class LatestQueue:
    """The newest message of each source, between threads; a newer one replaces one that waits, and sources alternate.

    Questions are one more source, QUESTIONS, of which none is replaced.
    """

    def __init__(self, sources: Iterable[int] = (0,)) -> None:
        self._change = threading.Condition()
        self._items: dict[int, Any] = {}
        self._questions: deque[Question] = deque()
        self._order = [*sources, QUESTIONS]  # least recently served first: a fast source never starves a slow one
        self.accepts = False  # while the pipeline is started and not stopped
        self._closed = False

    def offer(self, item: Any, source: int = 0) -> bool:
        """Put an item without waiting; true when it replaced one."""
        with self._change:
            replaced = source in self._items
            if not self._closed:
                self._items[source] = item
            self._change.notify()
            return replaced

    def ask(self, question: Question) -> None:
        """Put a question behind the others, without waiting. Raises EngineError where it would never be taken."""
        with self._change:
            if not self.accepts:
                raise EngineError('the node is not active: activate it first')
            if len(self._questions) == MOST_QUESTIONS:
                raise EngineError(f'{MOST_QUESTIONS} requests wait already: send the next one when one of them is answered')
            self._questions.append(question)
            self._change.notify()

    def take(self) -> tuple[int, Any] | None:
        """Wait for an item; its source and the item, or None once the queue is closed."""
        with self._change:
            self._change.wait_for(lambda: self._items or self._questions or self._closed)
            for source in self._order:
                if source in self._items or (source == QUESTIONS and self._questions):
                    self._order.remove(source)
                    self._order.append(source)
                    return source, self._questions.popleft() if source == QUESTIONS else self._items.pop(source)
            return None

    def close(self, why: str = '') -> None:
        """Drop the waiting items, answer the questions with an EngineError, and wake the taker. Safe to call twice."""
        with self._change:
            self._closed, self.accepts = True, False
            self._items.clear()
            left = list(self._questions)
            self._questions.clear()
            self._change.notify()
        for question in left:
            question.answer.set_exception(EngineError(f'not answered: {why}'))


class CameraInput:
    """One camera of a pipeline: its handler, its statistics and requested resets."""

    def __init__(self, number: int, handler: FrameHandler, queue: LatestQueue) -> None:
        self.number, self.handler, self.statistics, self._queue = number, handler, FrameStatistics(), queue
        self.resets: deque[str] = deque(maxlen=1)  # reason of a requested reset
        self.answers = False  # while the networks still open, a question would wait for them
        self._newest, self._is_late = -math.inf, False  # stamp of the last frame in order; whether one before it came since

    def offer(self, item: bytes) -> None:
        """Hand over an item without waiting."""
        if self._queue.accepts:
            self.statistics.arrived(replacing=self._queue.offer(item, self.number))

    def check_order(self, stamp: float, most_s: float) -> None:
        """Raises FrameError for a frame less than `most_s` before the last one; two in a row are a time that went back."""
        late_s = self._newest - stamp
        self._is_late = 0 < late_s < most_s and not self._is_late
        if self._is_late:
            raise FrameError(f'its stamp is {late_s:.3f} s before that of the last frame: images come late, or of two publishers')
        self._newest = stamp

    def ask(self, question: Callable[[FrameMatcher], Answer]) -> Future[Answer]:
        """Ask the camera's matcher, without waiting; the pipeline's thread answers between two frames, or when it ends.

        The answer raises what the question raises, and EngineError when the pipeline ends before. Raises EngineError where nobody
        would answer, and while the networks open.
        """
        if self._queue.accepts and not self.answers:
            raise EngineError('the networks still open: ask again when the node matches')
        answer: Future[Answer] = Future()
        self._queue.ask(Question(self.number, question, answer))
        return answer


class Pipeline:
    """Decodes, matches and publishes the newest message of each camera, in fair turns, on one backend."""

    def __init__(self, config: MatcherConfig, open_backend: Callable[..., Opened], handlers: Sequence[FrameHandler],
                 counter: TrackCounter, on_open: Callable[[Opened], None] = lambda opened: None,
                 on_end: Callable[[], None] = lambda: None) -> None:
        """Make an input for each handler.

        Args:
            open_backend: as `selection.open_backend`; called in the pipeline's thread, ends soon once `cancelled()` is true.
            counter: pipelines that share it never give out a track id twice.
            on_open: called in the pipeline's thread when the backend is open.
            on_end: called there when the pipeline ended by itself and released everything; `failure` has the reason.
        """
        self.config = config  # may be replaced while it runs: the next frame has the new one
        self.state = State.OPENING
        self.was_open = False
        self.failure = ''  # why it ended by itself
        self.backend = 'none'  # description of the open backend
        self._queue = LatestQueue(range(len(handlers)))
        self.inputs = [CameraInput(number, handler, self._queue) for number, handler in enumerate(handlers)]
        self._open_backend, self._counter, self._on_open, self._on_end = open_backend, counter, on_open, on_end
        self._cancelled = threading.Event()
        self._backend: Backend | None = None
        self._failures = 0  # in a row
        self._thread = threading.Thread(target=self._live, name='inference', daemon=True)

    def start(self) -> None:
        """Open in the background; messages that come meanwhile replace each other."""
        self._queue.accepts = True
        self._thread.start()

    def reset(self, reason: str) -> None:
        """Drop every camera's reference and tracks before its next message."""
        for camera in self.inputs:
            camera.resets.append(reason)

    def stop(self, timeout: float | None = None) -> bool:
        """Cancel the run, release everything. False when the thread is still busy after `timeout` seconds: it ends later."""
        self._cancelled.set()
        self._queue.close('the node was deactivated')
        backend = self._backend
        if backend is not None:
            backend.cancel()
        if self._thread.ident is not None:  # else it was never started
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def figures(self, camera: CameraInput) -> dict[str, str]:
        """Diagnostics of a camera, by key."""
        statistics = camera.statistics
        return {**statistics.report(), 'backend': self.backend, 'last error': self.failure or statistics.dated_error}

    # the thread

    def _live(self) -> None:
        failure = self._work()
        self._queue.close(f'the matcher has ended, {failure}')
        self._release()
        self.failure = '' if self._cancelled.is_set() else failure
        self.state = State.ENDED
        if not self._cancelled.is_set():
            self._on_end()

    def _work(self) -> str:
        """Open and handle messages; returns why it ended. The exception and its frames are not kept."""
        try:
            matchers = self._open()
            while (taken := self._queue.take()) is not None:
                number, item = taken
                if number == QUESTIONS:
                    matcher = matchers[item.camera]
                    matcher.config = self.config
                    _answer(item, matcher)
                else:
                    self._handle(item, self.inputs[number], matchers[number])
        except BaseException as error:
            clear_frames(error)
            return in_words(error)
        return ''

    def _open(self) -> list[FrameMatcher]:
        """Open the backend and make a matcher on it for each camera."""
        opened = self._open_backend(self.config, cancelled=self._cancelled.is_set)
        self._backend = opened.backend
        for camera in reversed(self.inputs):
            opened.backend.select_camera(camera.number)  # each camera's memory is allocated now
        matchers = [FrameMatcher(opened.backend, self.config, self._counter) for _ in self.inputs]
        if not self._cancelled.is_set():
            self.backend, self.state, self.was_open = opened.backend.description, State.RUNNING, True
            for camera in self.inputs:
                camera.statistics.opened()
                camera.answers = True
            self._on_open(opened)
        return matchers

    def _release(self) -> None:
        """Close the backend; its features were released with `_work`."""
        backend, self._backend, self.backend = self._backend, None, 'none'
        if backend is not None:
            with suppress(Exception):  # of a GPU that failed already
                backend.close()

    def _handle(self, item: bytes, camera: CameraInput, matcher: FrameMatcher) -> None:
        try:
            self._match(item, camera, matcher)
            self._failures = 0
        except FrameError as error:
            camera.statistics.failed(str(error))
            camera.handler.rejected(str(error), '')
        except DeviceMemoryError:
            raise  # ends the thread, which releases the GPU
        except Exception as error:  # one bad frame never ends it
            if self._cancelled.is_set():
                return
            self._failures += 1
            if self._failures >= MAX_FAILURES:
                raise EngineError(f'{MAX_FAILURES} frames in a row failed, the last with: {in_words(error)}') from error
            camera.statistics.failed(f'{type(error).__name__}: {error}')
            camera.handler.rejected(f'{type(error).__name__}: {error}', traceback.format_exc())

    def _match(self, item: bytes, camera: CameraInput, matcher: FrameMatcher) -> None:
        matcher.config = self.config
        matcher.backend.select_camera(camera.number)
        if camera.resets:
            matcher.reset(camera.resets.popleft())
        clock = Stopwatch()
        frame = camera.handler.decode(item)
        camera.check_order(frame.stamp, self.config.max_gap_s)
        clock.lap('decode')
        matches = matcher.process(frame.image, frame.stamp, frame.right, mask=frame.mask, depth=frame.depth, camera=frame.camera)
        clock.lap('process')
        if matcher.resets > camera.statistics.count.resets:
            camera.statistics.tracks_restarted(matcher.last_reset)
            camera.handler.tracks_restarted(matcher.last_reset)
        if self._cancelled.is_set():
            return
        if matches is not None:
            camera.handler.publish(frame, matches)
            if matcher.keyframes is not None and (newest := matcher.keyframes.newest) and newest.stamp == matches.stamp:
                camera.handler.publish_keyframe(frame, newest)
        clock.lap('publish')
        stage_ms = {**clock.laps, 'frame': sum(clock.laps.values()), **(matches.stage_ms if matches is not None else {})}
        camera.statistics.finished(stage_ms, None if matches is None else len(matches.matched()),
                                  0 if matches is None else matches.layers)
        camera.handler.show(frame, matches)


def _answer(question: Question, matcher: FrameMatcher) -> None:
    """Answer with whatever comes of it: an error is the asker's, and no failure of a frame."""
    try:
        question.answer.set_result(question.ask(matcher))
    except BaseException as error:
        clear_frames(error)
        question.answer.set_exception(error)
        if not isinstance(error, Exception):
            raise
