"""Which frames of a recording are calibrated on, which are held out for the gate, and which of them make pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import BagError

STRIDES = (1, 2, 4)  # frames between the two of a pair
RUN = 24  # frames in a row, where a recording has more than are taken
HELD_OUT = 0.25  # share of the frames
GAP = 0.02  # share of the recording that lies between the two and is not used
LEAST_FRAMES = 10
LEAST_HELD_OUT = 4


class Pair(NamedTuple):
    """Two frames of one recording, by their places in its timeline."""

    recording: int
    first: int
    second: int

    @property
    def stride(self) -> int:
        return self.second - self.first


@dataclass(frozen=True)
class Split:
    """Places in a recording's timeline: runs of consecutive frames."""

    calibration: tuple[range, ...]
    held_out: tuple[range, ...]

    @property
    def frames(self) -> list[int]:
        """All of them, ascending."""
        return sorted({place for runs in (self.calibration, self.held_out) for run in runs for place in run})

    def __str__(self) -> str:
        parts = ((self.calibration, 'calibration on'), (self.held_out, 'held out'))
        return ', '.join(f'{what} {_text(runs)}' for runs, what in parts if runs)


def split(length: int, frames: int, share: float = HELD_OUT) -> Split:
    """Up to `frames` of a recording of `length`: the last `share` of it is held out, with a gap before it.

    A share of 0 holds nothing out, 1 everything. Both parts are spread over theirs, in runs. Raises BagError where a part would
    be too short to be of use.
    """
    if share in (0, 1):
        runs = spread(range(length), frames)
        return Split(runs, ()) if share == 0 else Split((), runs)
    held_out = max(LEAST_HELD_OUT, round(share * length))
    gap = min(max(STRIDES[-1], round(GAP * length)), max(1, (length - held_out) // 8))
    end = length - held_out - gap
    if end < LEAST_HELD_OUT:
        raise BagError(f'{length} frames are too few to calibrate on some and hold others out: record more')
    part = max(LEAST_HELD_OUT, round(share * frames))
    return Split(spread(range(end), max(LEAST_HELD_OUT, frames - part)), spread(range(length - held_out, length), part))


def spread(places: range, count: int) -> tuple[range, ...]:
    """About `count` of the places, evenly spread in runs of RUN in a row; all of them where they are no more."""
    if len(places) <= count:
        return (places,) if places else ()
    number = max(1, round(count / RUN))
    lengths = [len(part) for part in np.array_split(np.arange(count), number)]
    starts = np.linspace(places.start, places.stop - lengths[-1], number).round().astype(int).tolist()
    merged: list[range] = []
    for start, length in zip(starts, lengths, strict=True):
        if merged and start <= merged[-1].stop:
            start = merged[-1].stop
            merged[-1] = range(merged[-1].start, min(start + length, places.stop))
        else:
            merged.append(range(start, start + length))
    return tuple(merged)


def quotas(lengths: Sequence[int], frames: int) -> list[int]:
    """How many frames each recording of `lengths` gives to `frames` together: equal parts, and short ones all they have."""
    found = [0] * len(lengths)
    order = sorted(range(len(lengths)), key=lambda number: lengths[number])
    for done, number in enumerate(order):
        found[number] = min(lengths[number], round((frames - sum(found)) / (len(lengths) - done)))
    return found


def pairs_of(recording: int, runs: Sequence[range], segments: NDArray[np.int64], stride: int,
             usable: Sequence[int] | set[int] | None = None) -> list[Pair]:
    """All pairs `stride` apart inside one run and one segment of the timeline, whose frames are `usable` (None: all are)."""
    known = None if usable is None else set(usable)
    return [Pair(recording, first, first + stride) for run in runs for first in run
            if first + stride in run and segments[first] == segments[first + stride]
            and (known is None or (first in known and first + stride in known))]


def some(pairs: Sequence[Pair], count: int) -> list[Pair]:
    """About `count` of the pairs, evenly spread."""
    if len(pairs) <= count:
        return list(pairs)
    return [pairs[number] for number in np.unique(np.linspace(0, len(pairs) - 1, count).round().astype(int)).tolist()]


def mixed(by_stride: Sequence[Sequence[Pair]], count: int) -> list[Pair]:
    """About `count` pairs, of each stride as many as of the others where there are so many."""
    shares = quotas([len(pairs) for pairs in by_stride], min(count, sum(map(len, by_stride))))
    return [pair for pairs, share in zip(by_stride, shares, strict=True) if share for pair in some(pairs, share)]


def _text(runs: Sequence[range]) -> str:
    count = sum(map(len, runs))
    shown = ', '.join(_spans(runs[:3])) + (f', … {runs[-1].start} to {runs[-1].stop - 1}' if len(runs) > 3 else '')
    return f'{count} frames ({shown})'


def _spans(runs: Sequence[range]) -> Iterator[str]:
    for run in runs:
        yield f'{run.start} to {run.stop - 1}'
