"""When a repeated warning is logged again. No ROS here."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import numpy as np

PAUSES_S = (0.0, 10.0, 60.0, 600.0)  # before a warning's first line, the second, the third, each later one
CALM_S = 5.0  # a warning that was not given for so long has ended
FIGURES = re.compile(r'\b[0-9a-f]{2}\b|[\d.]+')  # in a warning: bytes in hexadecimal, and numbers


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
