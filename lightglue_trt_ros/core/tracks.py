"""Track ids: the same number for the same scene point for as long as it is re-matched."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from .types import Rows

NONE = -1  # id of a row without a track


class Tracks:
    """Ids and lengths of one frame's rows: K keypoints, then propagated points that are no keypoints.

    A row gets an id when it is first matched; the rows of later frames inherit it. Ids count up and wrap at 2^32. `missed` counts
    the latest frames in which a track was not matched.
    """

    def __init__(self, ids: NDArray[np.int64], lengths: NDArray[np.int64], missed: NDArray[np.int64]) -> None:
        self.ids, self.lengths, self.missed = ids, lengths, missed

    @classmethod
    def empty(cls, count: int) -> Tracks:
        return cls(np.full(count, NONE, np.int64), np.ones(count, np.int64), np.zeros(count, np.int64))

    def follow(self, rows: Rows, next_rows: Rows, next_count: int, counter: TrackCounter) -> Tracks:
        """Tracks of the next frame, whose `next_rows` (M,) match this frame's `rows` (M,).

        This frame's matched rows get ids and grow as well: a keyframe is matched again and again.
        """
        fresh = rows[self.ids.take(rows) == NONE]
        self.ids[fresh] = counter.take(len(fresh))
        self.missed += self.ids != NONE
        self.missed[rows] = 0
        following = Tracks.empty(next_count)
        self._go_on(following, rows, next_rows)
        return following

    def may_miss(self, count: int) -> NDArray[np.bool_]:
        """Whether rows are of tracks that may miss one more match, `count` in a row at most."""
        return np.asarray((self.ids != NONE) & (self.missed < count), np.bool_)

    def propagate(self, following: Tracks, rows: Rows, next_rows: Rows) -> None:
        """Continue tracks of `rows` (C,) without a match in `next_rows` of the next frame, which gets as many rows as needed."""
        more = Tracks.empty(max(0, int(next_rows.max(initial=-1)) + 1 - len(following.ids)))
        for name, added in vars(more).items():
            setattr(following, name, np.concatenate([getattr(following, name), added]))
        self._go_on(following, rows, next_rows)

    def _go_on(self, following: Tracks, rows: Rows, next_rows: Rows) -> None:
        self.lengths[rows] += 1
        for name, values in vars(self).items():
            getattr(following, name)[next_rows] = values.take(rows)


class TrackCounter:
    """Gives out track ids to any thread. Resets do not restart it: an id returns after 2^32 others."""

    def __init__(self) -> None:
        self._next, self._lock = 0, threading.Lock()

    def take(self, count: int) -> NDArray[np.int64]:
        with self._lock:
            first, self._next = self._next, (self._next + count) % 2**32
        return (first + np.arange(count, dtype=np.int64)) % 2**32
