"""How far a training has come, and what follows from that."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

WARM_UP = 300  # steps
LEAST = 0.01  # of the learning rate, at the end


@dataclass
class Schedule:
    """Ends after `steps`, or after `minutes` of training in all pieces together; one of them is given.

    `piece` (minutes, 0: no bound) ends this process earlier: the next one goes on from its checkpoint.
    """

    steps: int = 0
    minutes: float = 0.0
    piece: float = 0.0
    step: int = 0
    spent: float = 0.0  # minutes, in pieces before this one
    _started: float = field(default_factory=time.monotonic)
    _now: float = 0.0  # minutes of this piece, as all processes agreed on last

    def elapsed(self) -> float:
        """Minutes of this piece, by this process's clock."""
        return (time.monotonic() - self._started) / 60

    def agree(self, elapsed: float) -> None:
        """All processes take the same time for theirs, so that all have the same learning rate and end at the same step."""
        self._now = elapsed

    @property
    def progress(self) -> float:
        """0 to 1."""
        done = self.step / self.steps if self.steps else (self.spent + self._now) / self.minutes
        return min(1.0, done)

    @property
    def finished(self) -> bool:
        return self.progress >= 1

    @property
    def interrupted(self) -> bool:
        """This piece's time is up."""
        return bool(self.piece) and self._now >= self.piece

    @property
    def minutes_left(self) -> float:
        done = max(self.progress, 1e-6)
        return (self.spent + self._now) * (1 - done) / done

    @property
    def rate(self) -> float:
        """Of the learning rate: linear warm-up, then half a cosine."""
        warm_up = min(WARM_UP, max(1, self.steps // 10)) if self.steps else WARM_UP
        return min(1.0, (self.step + 1) / warm_up) * (LEAST + (1 - LEAST) * 0.5 * (1 + math.cos(math.pi * self.progress)))
