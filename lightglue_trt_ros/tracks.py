"""Track ids: the same number for the same scene point for as long as it is re-matched."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from .features import Int32, UInt32

NONE = -1  # a row that belongs to no track yet


class Tracks:
    """Ids and lengths of the rows of one frame, K slots.

    A row gets an id when it is first matched; the rows of later frames inherit it. Ids count up and wrap at 2^32.
    """

    def __init__(self, ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        self.ids, self.lengths = ids, lengths

    @classmethod
    def empty(cls, count: int) -> Tracks:
        return cls(np.full(count, NONE, np.int64), np.ones(count, np.int64))

    def follow(self, rows: Int32, next_rows: Int32, next_count: int, counter: TrackCounter) -> Tracks:
        """Tracks of the next frame, in which `next_rows` (M,) re-observe this frame's `rows` (M,).

        This frame's matched rows get their ids and grow too: a keyframe is matched again and again.
        """
        fresh = rows[self.ids[rows] == NONE]
        self.ids[fresh] = counter.take(len(fresh))
        self.lengths[rows] += 1
        following = Tracks.empty(next_count)
        following.ids[next_rows], following.lengths[next_rows] = self.ids[rows], self.lengths[rows]
        return following

    def published(self, rows: Int32) -> tuple[UInt32, UInt32]:
        """Ids and lengths of `rows`, both uint32 (M,)."""
        return self.ids[rows].astype(np.uint32), self.lengths[rows].astype(np.uint32)


class TrackCounter:
    """Hands out track ids, to any thread; no reset starts it again, so no id returns before 2^32 others."""

    def __init__(self) -> None:
        self._next, self._lock = 0, threading.Lock()

    def take(self, count: int) -> NDArray[np.int64]:
        with self._lock:
            first, self._next = self._next, (self._next + count) % 2**32
        return (first + np.arange(count, dtype=np.int64)) % 2**32
