"""Times of a frame's stages, and the usual time between stamps."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable

PERCENTILES = (50, 95, 99)


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
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """Name the time since the last lap, or since the start."""
        now = time.perf_counter()
        self.laps[name] = self.laps.get(name, 0.0) + (now - self._last) * 1e3
        self._last = now
