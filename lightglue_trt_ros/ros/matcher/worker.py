"""From items (messages, files) to their matches, in one thread that opens the backend, owns it and closes it. No ROS here.

Nothing that was opened is ever held by anybody else: a pipeline that is left behind ends what is its own, its successor has another
backend. What is said about a failure is text, for an exception's traceback would keep engines alive beyond their CUDA context.
"""

from __future__ import annotations

import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ...core.backend import Backend
from ...core.config import MatcherConfig
from ...core.epipolar_check import RightImage
from ...core.frame_matcher import FrameMatcher
from ...core.masks import Mask
from ...core.timing import FrameStatistics, Stopwatch
from ...core.tracks import TrackCounter
from ...core.types import FrameMatches, UInt8
from ...engines.selection import Opened
from ...utils.errors import DeviceMemoryError, EngineError, FrameError, clear_frames, in_words
from .latest_queue import NewestSlots

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
    mask: Mask | None = None
    right: RightImage | None = None  # of its pair


class Outlet(Protocol[T_contra]):
    """A camera that a pipeline works for. All of it is called from the pipeline's thread."""

    def decode(self, item: T_contra) -> Input:
        """Raises FrameError."""

    def publish(self, frame: Input, matches: FrameMatches) -> None:
        """The frame's matches, as soon as they are there."""

    def show(self, frame: Input, matches: FrameMatches | None) -> None:
        """After publishing: whatever may take time. None for a frame without a reference."""

    def started_anew(self, reason: str) -> None:
        """Reference and tracks were forgotten."""

    def rejected(self, error: str, details: str) -> None:
        """A frame was dropped; `details` is the traceback of an error that nobody expected, else empty."""


class Owner(Protocol):
    """Whose pipeline it is. All of it is called from the pipeline's thread."""

    def opened(self, reason: str, warning: str) -> None:
        """The backend is open: what it is and why, and what was given up for it (empty: nothing)."""

    def ended(self) -> None:
        """It ended by itself, `failure` says why, and everything is released."""


class Inlet(Generic[T]):
    """A camera's way into a pipeline, with its outlet, its counts and the resets asked of it."""

    def __init__(self, number: int, outlet: Outlet[T], slots: NewestSlots[T]) -> None:
        self.number, self.outlet, self.statistics, self._slots = number, outlet, FrameStatistics(), slots
        self.resets: deque[str] = deque(maxlen=1)  # why, where one was asked for

    def offer(self, item: T) -> None:
        """Hand over an item; never waits."""
        self.statistics.arrived(replacing=self._slots.offer(item, self.number))


class Pipeline(Generic[T]):
    """Decodes, matches and publishes the newest item that each inlet was offered, in fair turns, all on one backend.

        pipeline = Pipeline(config, open_backend, owner, [outlet], TrackCounter())
        pipeline.start()          # returns at once; the state tells when it runs
        pipeline.inlets[0].offer(item)
        pipeline.stop()
    """

    def __init__(self, config: MatcherConfig, open_backend: Opener, owner: Owner, outlets: Sequence[Outlet[T]],
                 counter: TrackCounter) -> None:
        """An inlet for each outlet. `counter` goes on through all pipelines that are given it, so that no track id comes twice."""
        self.config = config  # may be replaced while it runs: the next frame has the new one
        self.state = State.OPENING
        self.was_open = False
        self.failure = ''  # why it ended by itself
        self.backend = 'none'  # the open backend, in words
        self._slots: NewestSlots[T] = NewestSlots(len(outlets))
        self.inlets = [Inlet(number, outlet, self._slots) for number, outlet in enumerate(outlets)]
        self._open_backend, self._owner, self._counter = open_backend, owner, counter
        self._cancelled = threading.Event()
        self._backend: Backend | None = None
        self._failures = 0  # in a row
        self._thread = threading.Thread(target=self._live, name='inference', daemon=True)

    def start(self) -> None:
        """Open in the background; items that come meanwhile replace each other."""
        self._thread.start()

    def reset(self, reason: str) -> None:
        """Forget every camera's reference and tracks before its next item."""
        for inlet in self.inlets:
            inlet.resets.append(reason)

    def stop(self, timeout: float | None = None) -> bool:
        """Cut short what runs, release everything. False when the thread is still busy after `timeout` seconds: it ends alone."""
        self._cancelled.set()
        self._slots.close()
        backend = self._backend
        if backend is not None:
            backend.cancel()
        if self._thread.ident is not None:  # else it was never started
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def figures(self, inlet: Inlet[T]) -> dict[str, str]:
        """What there is to tell about a camera, by name."""
        counts = inlet.statistics
        return {**counts.report(), 'backend': self.backend, 'last error': self.failure or counts.dated_error}

    # the thread

    def _live(self) -> None:
        failure = self._work()
        self._release()
        self.failure = '' if self._cancelled.is_set() else failure
        self.state = State.ENDED
        if not self._cancelled.is_set():
            self._owner.ended()

    def _work(self) -> str:
        """Open and handle items; what ended it, in words. The exception does not leave here, nor does what its frames hold."""
        try:
            matchers = self._open()
            while (taken := self._slots.take()) is not None:
                number, item = taken
                self._handle(item, self.inlets[number], matchers[number])
        except BaseException as error:
            clear_frames(error)
            return in_words(error)
        return ''

    def _open(self) -> list[FrameMatcher]:
        """The backend, and a matcher on it for each inlet."""
        opened = self._open_backend(self.config, cancelled=self._cancelled.is_set)
        self._backend = opened.backend
        for inlet in reversed(self.inlets):
            opened.backend.select_camera(inlet.number)  # what has to be taken for each camera is taken now
        matchers = [FrameMatcher(opened.backend, self.config, self._counter) for _ in self.inlets]
        if not self._cancelled.is_set():
            self.backend, self.state, self.was_open = opened.backend.description, State.RUNNING, True
            for inlet in self.inlets:
                inlet.statistics.opened()
            self._owner.opened(opened.reason, opened.warning)
        return matchers

    def _release(self) -> None:
        """After the features, which went with `_work`, the backend that made them."""
        backend, self._backend, self.backend = self._backend, None, 'none'
        if backend is not None:
            with suppress(Exception):  # of a GPU that failed already
                backend.close()

    def _handle(self, item: T, inlet: Inlet[T], frames: FrameMatcher) -> None:
        try:
            self._match(item, inlet, frames)
            self._failures = 0
        except FrameError as error:
            inlet.statistics.failed(str(error))
            inlet.outlet.rejected(str(error), '')
        except DeviceMemoryError:
            raise  # ends the thread, which releases the GPU
        except Exception as error:  # one bad frame never ends it
            if self._cancelled.is_set():
                return
            self._failures += 1
            if self._failures >= PATIENCE:
                raise EngineError(f'{PATIENCE} frames in a row failed, the last with: {in_words(error)}') from error
            inlet.statistics.failed(f'{type(error).__name__}: {error}')
            inlet.outlet.rejected(f'{type(error).__name__}: {error}', traceback.format_exc())

    def _match(self, item: T, inlet: Inlet[T], frames: FrameMatcher) -> None:
        frames.config = self.config
        frames.backend.select_camera(inlet.number)
        if inlet.resets:
            frames.reset(inlet.resets.popleft())
        clock = Stopwatch()
        frame = inlet.outlet.decode(item)
        clock.lap('decode')
        matches = frames.process(frame.image, frame.stamp, frame.right, mask=frame.mask)
        clock.lap('process')
        if frames.resets > inlet.statistics.resets:
            inlet.statistics.started_anew(frames.last_reset)
            inlet.outlet.started_anew(frames.last_reset)
        if self._cancelled.is_set():
            return
        if matches is not None:
            inlet.outlet.publish(frame, matches)
        clock.lap('publish')
        stage_ms = {**clock.laps, 'frame': clock.total_ms, **(matches.stage_ms if matches is not None else {})}
        inlet.statistics.finished(stage_ms, None if matches is None else len(matches.matched()),
                                  0 if matches is None else matches.layers)
        inlet.outlet.show(frame, matches)
