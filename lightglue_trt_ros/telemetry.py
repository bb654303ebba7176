"""Times of a frame's stages; what the node tells about itself: counts, rates, percentiles over the last frames."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

WINDOW = 256  # frames that percentiles look back on
PERCENTILES = (50, 95, 99)
LOOK_BACK_S = 10.0  # what diagnostics judge by


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

    def started_anew(self, reason: str) -> None:
        """Reference and tracks were forgotten."""
        with self._lock:
            self.resets += 1
            self.last_reset = reason

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
        """Everything as text, in reading order; rates are over the time since the last report."""
        with self._lock:
            now, (then, before) = self._clock(), self._counts[-1]
            while self._counts and now - self._counts[0][0] > LOOK_BACK_S:
                self._counts.popleft()
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
