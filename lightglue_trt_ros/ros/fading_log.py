"""When a repeated warning is logged again. No ROS here."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

PAUSES_S = (0.0, 10.0, 60.0, 600.0)  # before a warning's first line, the second, the third, each later one
CALM_S = 5.0  # a warning that was not given for so long has ended
MOST = 64  # warnings that are remembered
FIGURES = re.compile(r'\b[0-9a-f]{2}\b|[\d.]+')  # in a warning: bytes in hexadecimal, and numbers


class _Given(NamedTuple):
    """How a warning was given and logged; times in seconds."""

    last: float
    line: float = -np.inf  # the last one
    spells: int = 0  # before the present one, with a line; it ended between them
    lines: int = 0  # one of each of these, and those of the present spell


class FadingLog:
    """When to log a repeated warning: at once, after 10 s, after a minute, then every 10 minutes.

    This holds for one that lasts, and for one that ends and begins again and again. Warnings that differ in figures only are the
    same one. For one thread.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, pause_s: float = CALM_S) -> None:
        """`pause_s` is the least time between lines of different warnings."""
        self._clock, self._pause_s = clock, pause_s
        self._warnings: dict[str, _Given] = {}  # by text without figures, the newest last
        self._last_line = -np.inf

    def warn(self, log: Any, warning: str) -> bool:
        """Log a warning that is given now if it is due; returns whether it was."""
        if due := self.due(warning):
            log.warning(warning)
        return due

    def due(self, warning: str) -> bool:
        """Whether to log a warning that is given now."""
        now, kind = self._clock(), FIGURES.sub('', warning)
        given = self._warnings.pop(kind, NEVER)
        if not -CALM_S < now - given.last < PAUSES_S[-1]:  # time has gone back, or it has ended long ago
            given = NEVER
        elif now - given.last >= CALM_S:
            spells = given.spells + (given.lines > given.spells)
            given = given._replace(spells=spells, lines=spells)
        pause_s = PAUSES_S[min(given.lines, len(PAUSES_S) - 1)]
        due = bool(now - given.line >= pause_s and abs(now - self._last_line) >= self._pause_s)
        if due:
            given = given._replace(line=now, lines=given.lines + 1)
            self._last_line = now
        self._warnings = dict([*self._warnings.items(), (kind, given._replace(last=now))][-MOST:])
        return due


NEVER = _Given(-np.inf)
