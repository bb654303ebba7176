"""From an item (a message, a file) to its matches, in one thread that opens the backend, owns it and closes it. No ROS here.

Nothing that was opened is ever held by anybody else: a pipeline that is left behind ends what is its own, its successor has another
backend. What is said about a failure is text, for an exception's traceback would keep engines alive beyond their CUDA context.
"""

from __future__ import annotations

import threading
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from .backends import Backend
from .config import MatcherConfig
from .errors import DeviceMemoryError, EngineError, FrameError, clear_frames, in_words
from .features import FrameMatches, UInt8
from .frontend import FrameMatcher
from .selection import Opened
from .slot import NewestSlot
from .telemetry import FrameStatistics, Stopwatch
from .tracks import TrackCounter

PATIENCE = 10  # frames in a row that the backend may fail: a CUDA error that has corrupted the context never goes away

T = TypeVar('T')
T_contra = TypeVar('T_contra', contravariant=True)


class State(Enum):
    """Where a pipeline is in its life; there is no way back."""

    OPENING = 'opening'
    RUNNING = 'running'
    ENDED = 'ended'


class Opener(Protocol):
    """As `selection.open_backend`: called in the pipeline's thread, to end soon once `cancelled()` is true."""

    def __call__(self, config: MatcherConfig, *, cancelled: Callable[[], bool]) -> Opened: ...


class Input(NamedTuple):
    """One decoded frame."""

    image: UInt8  # gray (H, W)
    stamp: float  # seconds
    source: Any  # what it was decoded from


class Outlet(Protocol[T_contra]):
    """What a pipeline works for. All of it is called from the pipeline's thread."""

    def decode(self, item: T_contra) -> Input:
        """Raises FrameError."""

    def publish(self, frame: Input, matches: FrameMatches) -> None:
        """The frame's matches, as soon as they are there."""

    def show(self, frame: Input, matches: FrameMatches | None) -> None:
        """After publishing: whatever may take time. None for a frame without a reference."""

    def opened(self, reason: str, warning: str) -> None:
        """The backend is open: what it is and why, and what was given up for it (empty: nothing)."""

    def started_anew(self, reason: str) -> None:
        """Reference and tracks were forgotten."""

    def rejected(self, error: str, details: str) -> None:
        """A frame was dropped; `details` is the traceback of an error that nobody expected, else empty."""

    def ended(self) -> None:
        """It ended by itself, `failure` says why, and everything is released."""


class Pipeline(Generic[T]):
    """Decodes, matches and publishes the newest item offered.

        pipeline = Pipeline(config, open_backend, outlet, TrackCounter())
        pipeline.start()          # returns at once; the state tells when it runs
        pipeline.offer(item)
        pipeline.stop()
    """

    def __init__(self, config: MatcherConfig, open_backend: Opener, outlet: Outlet[T], counter: TrackCounter) -> None:
        """`counter` goes on through all pipelines that are given it, so that no track id comes twice."""
        self.config = config  # may be replaced while it runs: the next frame has the new one
        self.state = State.OPENING
        self.was_open = False
        self.failure = ''  # why it ended by itself
        self.backend = 'none'  # the open backend, in words
        self.statistics = FrameStatistics()
        self._open_backend, self._outlet, self._counter = open_backend, outlet, counter
        self._slot: NewestSlot[T] = NewestSlot()
        self._cancelled = threading.Event()
        self._resets: deque[str] = deque(maxlen=1)  # why, where one was asked for
        self._backend: Backend | None = None
        self._failures = 0  # in a row
        self._thread = threading.Thread(target=self._live, name='inference', daemon=True)

    def start(self) -> None:
        """Open in the background; items that come meanwhile replace each other."""
        self._thread.start()

    def offer(self, item: T) -> None:
        """Hand over an item; never waits."""
        self.statistics.arrived(replacing=self._slot.offer(item))

    def reset(self, reason: str) -> None:
        """Forget reference and tracks before the next item."""
        self._resets.append(reason)

    def stop(self, timeout: float | None = None) -> bool:
        """Cut short what runs, release everything. False when the thread is still busy after `timeout` seconds: it ends alone."""
        self._cancelled.set()
        self._slot.close()
        backend = self._backend
        if backend is not None:
            backend.cancel()
        if self._thread.ident is not None:  # else it was never started
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def figures(self) -> dict[str, str]:
        """What it tells about itself, by name."""
        return {**self.statistics.report(), 'backend': self.backend, 'last error': self.failure or self.statistics.last_error}

    # the thread

    def _live(self) -> None:
        failure = self._work()
        self._release()
        self.failure = '' if self._cancelled.is_set() else failure
        self.state = State.ENDED
        if not self._cancelled.is_set():
            self._outlet.ended()

    def _work(self) -> str:
        """Open and handle items; what ended it, in words. The exception does not leave here, nor does what its frames hold."""
        try:
            frames = self._open()
            while (item := self._slot.take()) is not None:
                self._handle(item, frames)
        except BaseException as error:
            clear_frames(error)
            return in_words(error)
        return ''

    def _open(self) -> FrameMatcher:
        opened = self._open_backend(self.config, cancelled=self._cancelled.is_set)
        self._backend = opened.backend
        frames = FrameMatcher(opened.backend, self.config, self._counter)
        if not self._cancelled.is_set():
            self.backend, self.state, self.was_open = opened.backend.description, State.RUNNING, True
            self.statistics.opened()
            self._outlet.opened(opened.reason, opened.warning)
        return frames

    def _release(self) -> None:
        """After the features, which went with `_work`, the backend that made them."""
        backend, self._backend, self.backend = self._backend, None, 'none'
        if backend is not None:
            with suppress(Exception):  # of a GPU that failed already
                backend.close()

    def _handle(self, item: T, frames: FrameMatcher) -> None:
        try:
            self._match(item, frames)
            self._failures = 0
        except FrameError as error:
            self.statistics.failed(str(error))
            self._outlet.rejected(str(error), '')
        except DeviceMemoryError:
            raise  # ends the thread, which releases the GPU
        except Exception as error:  # one bad frame never ends it
            if self._cancelled.is_set():
                return
            self._failures += 1
            if self._failures >= PATIENCE:
                raise EngineError(f'{PATIENCE} frames in a row failed, the last with: {in_words(error)}') from error
            self.statistics.failed(f'{type(error).__name__}: {error}')
            self._outlet.rejected(f'{type(error).__name__}: {error}', traceback.format_exc())

    def _match(self, item: T, frames: FrameMatcher) -> None:
        frames.config = self.config
        if self._resets:
            frames.reset(self._resets.popleft())
        clock = Stopwatch()
        frame = self._outlet.decode(item)
        clock.lap('decode')
        matches = frames.process(frame.image, frame.stamp)
        clock.lap('process')
        if frames.resets > self.statistics.resets:
            self.statistics.started_anew(frames.last_reset)
            self._outlet.started_anew(frames.last_reset)
        if self._cancelled.is_set():
            return
        if matches is not None:
            self._outlet.publish(frame, matches)
        clock.lap('publish')
        stage_ms = {**clock.laps, 'frame': clock.total_ms, **(matches.stage_ms if matches is not None else {})}
        self.statistics.finished(stage_ms, None if matches is None else len(matches.matched()),
                                 0 if matches is None else matches.layers)
        self._outlet.show(frame, matches)
