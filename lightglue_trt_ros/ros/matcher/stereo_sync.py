"""Pairs left and right images by their stamps, and finds out why images have no pair. No ROS here."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

RIGHTS, LEFTS = 8, 64  # right images that wait, with their data; left images whose stamps are kept
WAIT_S = 0.05  # for a right image, and no longer than until the next left one
SILENT = 5  # left images in a row without any right one: then nothing waits
JUDGED, BLAMED = 10, 5  # last left images: those that show that images have no pairs, and those that show why

T = TypeVar('T')


@dataclass
class _Left:
    """A left image: its stamp and arrival, seconds, and whether it got a right one."""

    stamp: float
    came: float
    paired: bool = False
    delay: float | None = None  # of its right image, which came too late


class StereoPairing(Generic[T]):
    """One thread reports left and right images as they come; another thread takes the right image of each left one.

    When the stamps of a camera go back, all earlier images are forgotten; the counts stay.
    """

    def __init__(self, max_skew_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.paired = self.missing = self.late = 0
        self._max_skew_s, self._clock, self._change = max_skew_s, clock, threading.Condition()
        self._alone = 0  # left images since the last right one
        self._begin()

    def _begin(self) -> None:
        self._lefts: deque[_Left] = deque(maxlen=LEFTS)
        self._judged: deque[_Left] = deque(maxlen=LEFTS)  # those of them for which `take` was called
        self._rights: deque[tuple[float, T]] = deque(maxlen=RIGHTS)  # stamp and item
        self._last_right: tuple[float, float] | None = None  # stamp and arrival
        self._apart: deque[tuple[float, float]] = deque(maxlen=JUDGED)  # seconds between arrivals, and between stamps

    def left_came(self, stamp: float) -> None:
        """Report a left image, before anything processes it."""
        with self._change:
            if self._lefts and stamp < self._lefts[-1].stamp:
                self._begin()
            now = self._clock()
            if self._last_right is not None and not self._alone:
                self._apart.append((now - self._last_right[1], self._last_right[0] - stamp))
            self._lefts.append(_Left(stamp, now))
            self._alone += 1
            self._change.notify()

    def right_came(self, stamp: float, item: T) -> None:
        """Report a right image: it waits for its left one, or is dropped if that was taken without it."""
        with self._change:
            if self._last_right is not None and stamp < self._last_right[0]:
                self._begin()
            now = self._clock()
            self._last_right, self._alone = (stamp, now), 0
            if self._lefts:
                self._apart.append((now - self._lefts[-1].came, stamp - self._lefts[-1].stamp))
            alone = (left for left in self._judged if not left.paired and left.delay is None)
            missed = min(alone, key=lambda left: abs(left.stamp - stamp), default=None)
            if missed is not None and abs(missed.stamp - stamp) <= self._reach_s:
                self.late += 1
                missed.delay = now - missed.came
            else:
                self._rights.append((stamp, item))
            self._change.notify()

    def take(self, stamp: float) -> T | None:
        """The right image for the left one of this stamp; None where none comes in time. It is in no other pair."""
        with self._change:
            deadline = self._clock() + WAIT_S
            while (nearest := self._nearest(stamp)) is None and self._is_worth_waiting(stamp):
                left_s = deadline - self._clock()
                if left_s <= 0 or not self._change.wait(left_s):
                    break
            if (left := next((each for each in reversed(self._lefts) if each.stamp == stamp), None)) is not None:
                left.paired = nearest is not None
                self._judged.append(left)
            if nearest is None:
                self.missing += 1
                return None
            self.paired += 1
            kept = [each for each in self._rights if each[0] > nearest[0]]
            self._rights.clear()
            self._rights.extend(kept)
            return nearest[1]

    @property
    def skew_s(self) -> float:
        """Right stamp minus left stamp of images that come at the same time; NaN without such images."""
        with self._change:
            soonest = sorted(self._apart)[:len(self._apart) // 2 + 1]
        return float(np.median([difference for _, difference in soonest])) if soonest else float('nan')

    @property
    def silent(self) -> bool:
        """Whether no right image came with the last SILENT left ones."""
        with self._change:
            return self._alone >= SILENT

    @property
    def problem(self) -> str:
        """Why most of the last left images have no right one, for people; empty: they have, or too few images came."""
        skew = self.skew_s
        with self._change:
            last = list(self._judged)[-JUDGED:]
            missing = sum(not left.paired for left in last)
            if len(last) < JUDGED or missing <= JUDGED / 2:
                return ''
            if self._alone >= SILENT:
                return f'no right image came with the last {self._alone} left ones'
            newest = self._last_right[0] + self._reach_s if self._last_right is not None else -np.inf
            decided = [left.delay for left in self._judged if not left.paired and left.stamp <= newest][-BLAMED:]
            delays = [delay for delay in decided if delay is not None]
            if len(delays) > len(decided) / 2:
                return (f'right images come {np.median(delays):.3f} s after the left ones of their stamps, too late to be '
                        'paired (or their clock is behind by as much): look at the driver and the link of the right camera')
            if abs(skew) <= self._reach_s:
                return f'{missing} of the last {JUDGED} left images have no right one: look at the rate and the link of its camera'
            reach = (f'max_stereo_skew_s is {self._max_skew_s:g}' if self._reach_s == self._max_skew_s else
                     f'half the time between images is {self._reach_s:.3f} s')
            return (f'the stamps of left and right images are {skew:+.3f} s apart, {reach}: '
                    'trigger both cameras together and synchronise their clocks'
                    + (', or raise it' if abs(skew) < self._half_period_s else ''))

    @property
    def _half_period_s(self) -> float:
        """Half the usual time between left images: beyond it another left image is nearer."""
        stamps = [left.stamp for left in self._lefts]
        apart = sorted(after - before for before, after in itertools.pairwise(stamps) if after > before)
        return apart[len(apart) // 2] / 2 if apart else float('inf')

    @property
    def _reach_s(self) -> float:
        return min(self._max_skew_s, self._half_period_s)

    def _nearest(self, stamp: float) -> tuple[float, T] | None:
        nearest = min(self._rights, key=lambda each: abs(each[0] - stamp), default=None)
        return nearest if nearest is not None and abs(nearest[0] - stamp) <= self._reach_s else None

    def _is_worth_waiting(self, stamp: float) -> bool:
        """Whether right images come, and no newer left image waits."""
        return self._alone < SILENT and bool(self._lefts) and self._lefts[-1].stamp == stamp
