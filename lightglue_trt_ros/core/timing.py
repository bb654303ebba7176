"""Times of a frame's stages; what the node tells about itself: counts, rates, percentiles over the last frames."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

WINDOW = 256  # frames that percentiles look back on
PERCENTILES = (50, 95, 99)
LOOK_BACK_S = 10.0  # what diagnostics judge by, and rates are over
PAUSES_S = (0.0, 10.0, 60.0, 600.0)  # before the first line of a warning, the second, the third, each other
CALM_S = 5.0  # a warning that was not given for so long is over; and what lies between the lines of different ones
FIGURES = re.compile(r'\b[0-9a-f]{2}\b|[\d.]+')  # in a warning: bytes in hexadecimal, and numbers


class Counts(NamedTuple):
    """Frames that came, went through, gave way to newer ones, were lost before they came; and resets."""

    received: int = 0
    processed: int = 0
    replaced: int = 0
    lost: int = 0
    resets: int = 0


class Stopwatch:
    """Wall milliseconds between laps, by name."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._started = self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """Name the time since the last lap, or since the start."""
        now = time.perf_counter()
        self.laps[name] = (now - self._last) * 1e3
        self._last = now

    @property
    def total_ms(self) -> float:
        """From the start to the last lap."""
        return (self._last - self._started) * 1e3


class FadingLog:
    """When a warning that comes again and again is logged: at once, after 10 s, after a minute, then every 10 minutes.

    Warnings that differ in figures only are the same one. For one thread.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._warnings: dict[str, tuple[float, int, float]] = {}  # without figures: when it came last, lines, time of the last
        self._last_line = -np.inf

    def lasts(self, warning: str) -> bool:
        """Whether it was given in the last CALM_S."""
        return self._clock() - self._warnings.get(FIGURES.sub('', warning), (-np.inf,))[0] < CALM_S

    def due(self, warning: str) -> bool:
        """Whether a warning that is given now is to be logged."""
        now, kind = self._clock(), FIGURES.sub('', warning)
        self._warnings = {each: value for each, value in self._warnings.items() if now - value[0] < CALM_S}
        _, lines, line = self._warnings.get(kind, (now, 0, -np.inf))
        due = bool(now - line >= PAUSES_S[min(lines, len(PAUSES_S) - 1)] and now - self._last_line >= CALM_S)
        if due:
            lines, line = lines + 1, now
            self._last_line = now
        self._warnings[kind] = now, lines, line
        return due


def in_time(seconds: float) -> str:
    """A span of time for people: 12 s, 5 min, 3 h, 2 days."""
    for unit, length, limit in (('s', 1, 120), ('min', 60, 7200), ('h', 3600, 172800)):
        if seconds < limit:
            return f'{seconds / length:.0f} {unit}'
    return f'{seconds / 86400:.0f} days'


class FrameStatistics:
    """Thread-safe counters of one activation: the inference thread writes, diagnostics read once a second."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._stages: dict[str, deque[float]] = {}
        self._matches: deque[int] = deque(maxlen=WINDOW)
        self._layers: deque[int] = deque(maxlen=WINDOW)
        self.received = self.processed = self.replaced = self.rejected = self.resets = self.lost = 0
        self.last_error = self.last_reset = ''
        self._last_rejection = -np.inf
        self._last_arrival = clock()
        self._counts = deque([(self._last_arrival, Counts())])  # of the last reports

    def arrived(self, *, replacing: bool = False) -> None:
        """A frame came, perhaps in place of one that waited and is dropped."""
        with self._lock:
            self.received += 1
            self.replaced += replacing
            self._last_arrival = self._clock()

    def opened(self) -> None:
        """What came while nothing could run is counted, and not judged."""
        with self._lock:
            self._last_arrival = self._clock()
            self._counts.clear()
            self._counts.append((self._last_arrival, self._count()))

    def missed(self, count: int) -> None:
        """So many frames were lost before they came here."""
        with self._lock:
            self.lost += count

    def finished(self, stage_ms: dict[str, float], matches: int | None, layers: int = 0) -> None:
        """One frame went through: wall milliseconds by stage, its matches (None: no reference) and LightGlue's layers that ran."""
        with self._lock:
            self.processed += 1
            if matches is not None:
                self._matches.append(matches)
                self._layers.append(layers)
            for name, value in stage_ms.items():
                self._stages.setdefault(name, deque(maxlen=WINDOW)).append(value)

    def failed(self, error: str) -> None:
        with self._lock:
            self.rejected += 1
            self.last_error, self._last_rejection = error, self._clock()

    def tracks_restarted(self, reason: str) -> None:
        """Reference and tracks were forgotten."""
        with self._lock:
            self.resets += 1
            self.last_reset = reason

    @property
    def dated_error(self) -> str:
        """The last error after its age, e.g. 12 s ago: ...; empty where there was none."""
        return f'{in_time(self.rejection_age_s)} ago: {self.last_error}' if self.last_error else ''

    @property
    def rejection_age_s(self) -> float:
        """Seconds since a frame was rejected last; infinite while none was."""
        with self._lock:
            return float(self._clock() - self._last_rejection)

    @property
    def silence_s(self) -> float:
        """Seconds since the last frame arrived, or since the start."""
        with self._lock:
            return self._clock() - self._last_arrival

    def recent(self) -> tuple[float, Counts]:
        """Seconds, LOOK_BACK_S at most where it is reported every second, and what was counted in them."""
        with self._lock:
            then, before = self._counts[0]
            return max(self._clock() - then, 1e-9), Counts(*(now - old for now, old in zip(self._count(), before, strict=True)))

    def _count(self) -> Counts:
        return Counts(self.received, self.processed, self.replaced, self.lost, self.resets)

    def report(self) -> dict[str, str]:
        """Everything as text, in reading order; rates are over the last LOOK_BACK_S."""
        with self._lock:
            now = self._clock()
            while len(self._counts) > 1 and now - self._counts[0][0] > LOOK_BACK_S + 0.5:  # a report is early or late
                self._counts.popleft()
            then, before = self._counts[0]
            self._counts.append((now, self._count()))
            span = max(now - then, 1e-9)
            table = {'fps in': f'{(self.received - before.received) / span:.2f}',
                     'fps out': f'{(self.processed - before.processed) / span:.2f}',
                     'frames received': str(self.received), 'frames processed': str(self.processed),
                     'frames lost before': str(self.lost), 'frames dropped': str(self.replaced),
                     'frames rejected': str(self.rejected), 'resets': f'{self.resets} {self.last_reset}'.strip()}
            matches, all_layers = list(self._matches), list(self._layers)
            stages = {name: list(values) for name, values in self._stages.items()}
        # no frame waits for what follows
        if matches:
            table['matches (last, median)'] = f'{matches[-1]}, {np.median(matches):.0f}'
            counts = ', '.join(f'{layers}: {count}' for layers, count in sorted(Counter(all_layers).items()))
            table['layers (mean; frames by layers)'] = f'{np.mean(all_layers):.2f}; {counts}'
        for name, values in stages.items():
            points = ' / '.join(f'{value:.2f}' for value in np.percentile(values, PERCENTILES))
            table[f'{name} ms (p50 / p95 / p99)'] = points
        return table
