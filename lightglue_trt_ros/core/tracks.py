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

    def follow(self, rows: Rows, next_rows: Rows, matched: int, keypoints: int, counter: TrackCounter) -> tuple[Tracks, Tracks]:
        """Tracks of the next frame, in which this frame's `rows` (M + C,) are `next_rows`; the first M are `matched`.

        It has so many `keypoints`, and as many rows behind them as propagated points need. This frame's rows get ids and grow as
        well, because a keyframe is matched again and again. They come first, and replace these where the next frame is used.
        """
        grown, again = Tracks(self.ids.copy(), self.lengths.copy(), self.missed.copy()), rows[:matched]
        fresh = again[grown.ids.take(again) == NONE]
        grown.ids[fresh] = counter.take(len(fresh))
        grown.missed += grown.ids != NONE
        grown.missed[again] = 0
        grown.lengths[rows] += 1
        following = Tracks.empty(max(keypoints, int(next_rows.max(initial=-1)) + 1))
        for name, values in vars(grown).items():
            getattr(following, name)[next_rows] = values.take(rows)
        return grown, following

    def may_miss(self, count: int) -> NDArray[np.bool_]:
        """Whether rows are of tracks that may miss one more match, `count` in a row at most."""
        return np.asarray((self.ids != NONE) & (self.missed < count), np.bool_)


class TrackCounter:
    """Gives out track ids to any thread. Resets do not restart it: an id returns after 2^32 others."""

    def __init__(self) -> None:
        self._next, self._lock = 0, threading.Lock()

    def take(self, count: int) -> NDArray[np.int64]:
        with self._lock:
            first, self._next = self._next, (self._next + count) % 2**32
        return (first + np.arange(count, dtype=np.int64)) % 2**32
