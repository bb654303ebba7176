"""Which right image belongs to a left one, by their stamps; and what is wrong where none does. No ROS here."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np

RIGHTS, LEFTS = 8, 64  # right images that wait, with what they hold, and left ones that are remembered, without
WAIT_S = 0.05  # for a right image that is on its way; no longer than to the next left one
SILENT = 5  # left images in a row without any right one: it is not waited for
JUDGED, ENOUGH = 30, 10  # the last left images, and how many say something

T = TypeVar('T')


class StereoPairing(Generic[T]):
    """One thread reports left and right images as they come, another one takes the right image of each left one."""

    def __init__(self, max_skew_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.paired = self.missing = self.late = 0
        self._max_skew_s, self._clock, self._change = max_skew_s, clock, threading.Condition()
        self._lefts: deque[tuple[float, float]] = deque(maxlen=LEFTS)  # stamp and arrival
        self._rights: deque[tuple[float, T]] = deque(maxlen=RIGHTS)  # stamp and item
        self._last_right: tuple[float, float] | None = None  # stamp and arrival
        self._unpaired: deque[float] = deque(maxlen=LEFTS)  # stamps of left images that went on alone
        self._found: deque[bool] = deque(maxlen=JUDGED)  # of each left image, whether it had a right one
        self._delays: deque[float] = deque(maxlen=JUDGED)  # of those that came too late
        self._apart: deque[tuple[float, float]] = deque(maxlen=JUDGED)  # between arrivals, seconds, and between their stamps
        self._alone = 0  # left images since the last right one

    def left_came(self, stamp: float) -> None:
        """A left image, before it is offered to anybody."""
        with self._change:
            now = self._clock()
            if self._last_right is not None:
                self._apart.append((now - self._last_right[1], self._last_right[0] - stamp))
            self._lefts.append((stamp, now))
            self._alone += 1
            self._change.notify()

    def right_came(self, stamp: float, item: T) -> None:
        """A right image; it waits for its left one, or is dropped where that has gone on alone."""
        with self._change:
            now = self._clock()
            self._last_right, self._alone = (stamp, now), 0
            if self._lefts:
                self._apart.append((now - self._lefts[-1][1], stamp - self._lefts[-1][0]))
            missed = min(self._unpaired, key=lambda left: abs(left - stamp), default=np.inf)
            if abs(missed - stamp) > self._max_skew_s:
                self._rights.append((stamp, item))
            else:
                self.late += 1
                self._unpaired.remove(missed)
                self._delays.extend(now - arrival for left, arrival in self._lefts if left == missed)
            self._change.notify()

    def take(self, stamp: float) -> T | None:
        """The right image of the left one of this stamp; None where none comes in time. It is in no other pair."""
        with self._change:
            deadline = self._clock() + WAIT_S
            while (found := self._nearest(stamp)) is None and self._is_worth_waiting(stamp):
                left_s = deadline - self._clock()
                if left_s <= 0 or not self._change.wait(left_s):
                    break
            self._found.append(found is not None)
            if found is None:
                self.missing += 1
                self._unpaired.append(stamp)
                return None
            self.paired += 1
            kept = [each for each in self._rights if each[0] > found[0]]
            self._rights.clear()
            self._rights.extend(kept)
            return found[1]

    @property
    def skew_s(self) -> float:
        """Right stamp minus left one, of images that come at the same time; NaN where none do."""
        with self._change:
            soonest = sorted(self._apart)[:len(self._apart) // 2 + 1]
        return float(np.median([difference for _, difference in soonest])) if soonest else float('nan')

    @property
    def silent(self) -> bool:
        """So many left images came since the last right one that none is waited for."""
        with self._change:
            return self._alone >= SILENT

    @property
    def trouble(self) -> str:
        """Why most left images have no right one, for people; empty: they have, or it is too early to say."""
        skew = self.skew_s
        with self._change:
            missing = len(self._found) - sum(self._found)
            if len(self._found) < ENOUGH or missing <= len(self._found) / 2:
                return ''
            if self._alone >= SILENT:
                return f'no right image came with the last {self._alone} left ones'
            if len(self._delays) > missing / 2:
                return (f'right images come {np.median(self._delays):.3f} s after the left ones of their stamps, too late to be '
                        'paired (or their clock is behind by as much): look at the driver and the link of the right camera')
            return (f'the stamps of left and right images are {skew:+.3f} s apart, max_stereo_skew_s is {self._max_skew_s:g}: '
                    'trigger both cameras together and synchronise their clocks, or raise it')

    def _nearest(self, stamp: float) -> tuple[float, T] | None:
        found = min(self._rights, key=lambda each: abs(each[0] - stamp), default=None)
        return found if found is not None and abs(found[0] - stamp) <= self._max_skew_s else None

    def _is_worth_waiting(self, stamp: float) -> bool:
        """Right images come at all, and no newer left one waits to be matched."""
        return self._alone < SILENT and bool(self._lefts) and self._lefts[-1][0] == stamp
