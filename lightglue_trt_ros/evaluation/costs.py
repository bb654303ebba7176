"""What work costs: wall time, the time of all the CPU's threads, the GPU's."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple


class Cost(NamedTuple):
    """Milliseconds; what goes on in other threads meanwhile is in `cpu_ms`, so it is a figure of who works alone."""

    wall_ms: float = 0.0
    cpu_ms: float = 0.0
    gpu_ms: float = 0.0

    def plus(self, other: Cost, times: float = 1.0) -> Cost:
        """Both together, the other one `times` over."""
        return Cost(*(mine + times * theirs for mine, theirs in zip(self, other, strict=True)))


class Meter:
    """Reads the clocks: `cost` is what has been spent since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    @property
    def cost(self) -> Cost:
        return Cost((time.perf_counter() - self._wall) * 1e3, (time.process_time() - self._cpu) * 1e3)


class WallTime:
    """Seconds by what they were spent on, from any thread: what goes on side by side counts on each side."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._lock = threading.Lock()

    @contextmanager
    def spent(self, name: str) -> Iterator[None]:
        """Count the time of a block as `name`."""
        started = time.perf_counter()
        try:
            yield
        finally:
            with self._lock:
                self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started
