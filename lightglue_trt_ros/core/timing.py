"""Times of a frame's stages, and the node's statistics: counts, rates, and percentiles over the last frames."""

from __future__ import annotations

import itertools
import math
import re
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

WINDOW = 256  # frames of which percentiles are taken
PERCENTILES = (50, 95, 99)
LOOK_BACK_S = 10.0  # of rates, and of the diagnostics' verdict
PAUSES_S = (0.0, 10.0, 60.0, 600.0)  # before a warning's first line, the second, the third, each later one
CALM_S = 5.0  # a warning that was not given for so long has ended
FIGURES = re.compile(r'\b[0-9a-f]{2}\b|[\d.]+')  # in a warning: bytes in hexadecimal, and numbers


def usual_period(stamps: Iterable[float], share: float = 0.5) -> float:
    """The median of the times between stamps that follow each other, in their unit; infinite without any.

    Where some are lost, a smaller `share` of these times, which are no longer than what it gives, tells the true one.
    """
    apart = sorted(after - before for before, after in itertools.pairwise(stamps) if after > before)
    return apart[int(len(apart) * share)] if apart else math.inf


class Stopwatch:
    """Wall milliseconds between laps, by name; laps of one name add up."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._started = self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """Name the time since the last lap, or since the start."""
        now = time.perf_counter()
        self.laps[name] = self.laps.get(name, 0.0) + (now - self._last) * 1e3
        self._last = now

    @property
    def total_ms(self) -> float:
        """From the start to the last lap."""
        return (self._last - self._started) * 1e3


class FadingLog:
    """When to log a repeated warning: at once, after 10 s, after a minute, then every 10 minutes.

    Warnings that differ in figures only are the same one. For one thread.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, pause_s: float = CALM_S) -> None:
        """`pause_s` is the least time between lines of different warnings."""
        self._clock, self._pause_s = clock, pause_s
        self._warnings: dict[str, tuple[float, int, float]] = {}  # by text without figures: last time, lines, last line's time
        self._last_line = -np.inf

    def lasts(self, warning: str) -> bool:
        """Whether it was given in the last CALM_S."""
        return bool(abs(self._clock() - self._warnings.get(FIGURES.sub('', warning), (-np.inf,))[0]) < CALM_S)

    def due(self, warning: str) -> bool:
        """Whether to log a warning that is given now."""
        now, kind = self._clock(), FIGURES.sub('', warning)
        self._warnings = {each: value for each, value in self._warnings.items() if abs(now - value[0]) < CALM_S}
        _, lines, line = self._warnings.get(kind, (now, 0, -np.inf))
        due = bool(now - line >= PAUSES_S[min(lines, len(PAUSES_S) - 1)] and abs(now - self._last_line) >= self._pause_s)
        if due:
            lines, line = lines + 1, now
            self._last_line = now
        self._warnings[kind] = now, lines, line
        return due


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
            self._last_arrival = self._clock()

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
        """All statistics as text, in reading order; rates are over the last LOOK_BACK_S."""
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
