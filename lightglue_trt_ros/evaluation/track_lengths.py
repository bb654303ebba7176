"""Tracks of matchers that keep none: the points of one pair found again in the next."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.types import Float32
from .baselines import Correspondences


class TrackLengths:
    """How long points are matched on, over pairs of consecutive frames: (0, 1), (1, 2) ...

    A pair's reference point goes on with the track whose current point in the pair before has the very same coordinates: so give
    the points as the matcher found them. Where several matches end in one point the longest track goes on, and where a point
    has several matches the first one does: one point is one track. Of a pair two numbers are kept.
    """

    def __init__(self) -> None:
        self._ended: Counter[int] = Counter()
        self._by_pair: list[tuple[int, int]] = []
        self._keys, self._lengths = _no_tracks()

    def add(self, found: Correspondences | None) -> float | None:
        """Follow the tracks through a pair's points (M, 2): the share of the reference's tracked points that were matched again.

        Points are tracked from the pair before. None where there are none: in the first pair, and after one without matches.
        A pair of None (nothing was matched, or the matcher was reset) ends every track.
        """
        before = len(self._keys)
        self._by_pair.append((0, 0))
        if found is None or not len(found[0]):
            self._end(self._lengths)
            self._keys, self._lengths = _no_tracks()
            return 0.0 if found is not None and before else None
        reference, first = np.unique(_keys(found[0]), return_index=True)
        lengths = np.full(len(reference), 2, np.int64)
        known = np.isin(self._keys, reference, assume_unique=True)
        lengths[np.searchsorted(reference, self._keys[known])] = self._lengths[known] + 1
        self._end(self._lengths[~known])
        current = _keys(found[1])[first]
        longest_first = np.argsort(-lengths, kind='stable')
        self._keys, kept = np.unique(current[longest_first], return_index=True)
        kept = longest_first[kept]
        self._end(np.delete(lengths, kept))
        self._lengths = lengths[kept]
        return float(np.mean(known)) if before else None

    def histogram(self) -> dict[int, int]:
        """Number of tracks by length in frames, at least 2; those that still go on count with the length that they have."""
        return dict(sorted((self._ended + Counter(self._lengths.tolist())).items()))

    def ended(self) -> list[tuple[int, int]]:
        """The sum of lengths, and the number, of the tracks that ended with each pair; at the end of those that still go on."""
        return [*self._by_pair, (int(self._lengths.sum()), len(self._lengths))]

    def _end(self, lengths: NDArray[np.int64]) -> None:
        self._ended.update(lengths.tolist())
        total, count = self._by_pair[-1]
        self._by_pair[-1] = total + int(lengths.sum()), count + len(lengths)


def _no_tracks() -> tuple[NDArray[Any], NDArray[np.int64]]:
    return np.zeros(0, np.uint64), np.zeros(0, np.int64)


def _keys(points: Float32) -> NDArray[Any]:
    """A number (M,) per point (M, 2), equal for equal coordinates."""
    plain = np.ascontiguousarray(points, np.float32) + np.float32(0)  # -0 becomes 0
    return plain.view(np.uint64).ravel()
