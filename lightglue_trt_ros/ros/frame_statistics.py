"""The node's statistics: counts, rates, and percentiles over the last frames. No ROS here."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..core.timing import PERCENTILES

WINDOW = 256  # frames of which percentiles are taken
LOOK_BACK_S = 10.0  # of rates, and of the diagnostics' verdict
PAUSE_S = 5.0  # without a frame: rates begin anew after it, and those of slower cameras would never settle


def in_time(seconds: float) -> str:
    """A duration for people: 12 s, 5 min, 3 h, 2 days."""
    for unit, length, limit in (('s', 1, 120), ('min', 60, 7200), ('h', 3600, 172800)):
        if seconds < limit:
            return f'{seconds / length:.0f} {unit}'
    return f'{seconds / 86400:.0f} days'


class Counts(NamedTuple):
    """Numbers of frames, and of resets."""

    received: int = 0
    processed: int = 0
    replaced: int = 0  # by newer frames, before they were processed
    lost: int = 0  # before they were received
    rejected: int = 0
    resets: int = 0


class FrameStatistics:
    """Thread-safe counters of one activation: the inference thread writes, diagnostics read once a second."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self.count = Counts()
        self._stages: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=WINDOW))
        self._matches: deque[tuple[int, int]] = deque(maxlen=WINDOW)  # matches and layers of a frame
        self.last_error = self.last_reset = ''
        self._last_rejection = -np.inf
        self.opened()

    def opened(self) -> None:
        """The backend is open: rates and verdict ignore earlier frames, which counts include."""
        with self._lock:
            self._last_arrival = self._clock()
            self._reports = deque([(self._last_arrival, self.count)])

    def arrived(self, *, replacing: bool = False) -> None:
        """A frame came; `replacing` one that waited and is dropped."""
        with self._lock:
            self._add(received=1, replaced=int(replacing))
            before, self._last_arrival = self._last_arrival, self._clock()
            if self._last_arrival - before > PAUSE_S:
                self._reports = deque([(self._last_arrival, self.count)])

    def missed(self, count: int) -> None:
        """`count` frames were lost before they were received."""
        with self._lock:
            self._add(lost=count)

    def finished(self, stage_ms: dict[str, float], matches: int | None, layers: int = 0) -> None:
        """A frame was processed: wall milliseconds by stage, its matches (None: no reference), and LightGlue's layers that ran."""
        with self._lock:
            self._add(processed=1)
            if matches is not None:
                self._matches.append((matches, layers))
            for name, value in stage_ms.items():
                self._stages[name].append(value)

    def failed(self, error: str) -> None:
        with self._lock:
            self._add(rejected=1)
            self.last_error, self._last_rejection = error, self._clock()

    def tracks_restarted(self, reason: str) -> None:
        """The matcher dropped reference and tracks."""
        with self._lock:
            self._add(resets=1)
            self.last_reset = reason

    def _add(self, **more: int) -> None:
        self.count = self.count._replace(**{name: getattr(self.count, name) + number for name, number in more.items()})

    @property
    def dated_error(self) -> str:
        """The last error after its age, e.g. 12 s ago: ...; empty where there was none."""
        return f'{in_time(self.rejection_age_s)} ago: {self.last_error}' if self.last_error else ''

    @property
    def rejection_age_s(self) -> float:
        """Seconds since the last rejected frame; infinite without one."""
        with self._lock:
            return float(self._clock() - self._last_rejection)

    @property
    def silence_s(self) -> float:
        """Seconds since the last frame arrived, or since the start."""
        with self._lock:
            return self._clock() - self._last_arrival

    def recent(self) -> tuple[float, Counts]:
        """Seconds, about LOOK_BACK_S if reports are made every second, and the counts of that time."""
        with self._lock:
            then, before = self._reports[0]
            return max(self._clock() - then, 1e-9), Counts(*(now - old for now, old in zip(self.count, before, strict=True)))

    def report(self) -> dict[str, str]:
        """All statistics as text, in reading order; rates are over the last LOOK_BACK_S, or since a pause."""
        with self._lock:
            now, count = self._clock(), self.count
            while len(self._reports) > 1 and now - self._reports[0][0] > LOOK_BACK_S + 0.5:  # a report is early or late
                self._reports.popleft()
            matches, stages = list(self._matches), {name: list(values) for name, values in self._stages.items()}
        seconds, recent = self.recent()
        self._reports.append((now, count))
        table = {'fps in': f'{recent.received / seconds:.2f}', 'fps out': f'{recent.processed / seconds:.2f}',
                 'frames received': str(count.received), 'frames processed': str(count.processed),
                 'frames lost before': str(count.lost), 'frames dropped': str(count.replaced),
                 'frames rejected': str(count.rejected), 'resets': f'{count.resets} {self.last_reset}'.strip()}
        if matches:
            counts, layers = zip(*matches, strict=True)
            table['matches (last, median)'] = f'{counts[-1]}, {np.median(counts):.0f}'
            frames = ', '.join(f'{number}: {times}' for number, times in sorted(Counter(layers).items()))
            table['layers (mean; frames by layers)'] = f'{np.mean(layers):.2f}; {frames}'
        for name, values in stages.items():
            points = ' / '.join(f'{value:.2f}' for value in np.percentile(values, PERCENTILES))
            table[f'{name} ms (p50 / p95 / p99)'] = points
        return table
