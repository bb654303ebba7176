"""Finds the partner of each frame by its stamp, a right image or a depth image, and why frames have none. No ROS here."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np

PARTNERS, FRAMES = 8, 64  # partners that wait, with their data; frames whose stamps are kept
WAIT_S = 0.05  # for a partner, and no longer than until the next frame
SILENT = 5  # frames in a row without any partner: then nothing waits
JUDGED, BLAMED = 10, 5  # last frames: those that show that partners are missing, and those that show why

T = TypeVar('T')


class Words(NamedTuple):
    """Names of frames and partners, of the parameter that limits the difference of their stamps, and of that difference."""

    frames: str
    partner: str
    paired: str  # frames with a partner: key of the diagnostics
    limit: str
    skew: str  # key of the diagnostics


STEREO = Words('left images', 'right', 'stereo pairs', 'max_stereo_skew_s', 'stereo skew ms (right - left)')
DEPTH = Words('images', 'depth', 'images with depth', 'max_depth_skew_s', 'depth skew ms (depth - image)')


@dataclass
class _Frame:
    """Stamp and arrival of a frame, seconds, and whether it got a partner."""

    stamp: float
    came: float
    paired: bool = False
    delay: float | None = None  # of its partner, which came too late


class Pairing(Generic[T]):
    """One thread reports frames and partners as they come; another thread takes the partner of each frame.

    When stamps go back, all earlier images are forgotten; the counts stay.
    """

    def __init__(self, max_skew_s: float, words: Words = STEREO, clock: Callable[[], float] = time.monotonic) -> None:
        self.paired = self.missing = self.late = 0
        self._max_skew_s, self._words, self._clock, self._change = max_skew_s, words, clock, threading.Condition()
        self._since_partner = 0  # frames since the last partner
        self._begin()

    def _begin(self) -> None:
        self._frames: deque[_Frame] = deque(maxlen=FRAMES)
        self._half_period_s = math.inf  # half the usual time between frames: beyond it another frame is nearer
        self._judged: deque[_Frame] = deque(maxlen=FRAMES)  # those of them for which `take` was called
        self._partners: deque[tuple[float, T]] = deque(maxlen=PARTNERS)  # stamp and item
        self._last_partner: tuple[float, float] | None = None  # stamp and arrival
        self._apart: deque[tuple[float, float]] = deque(maxlen=JUDGED)  # seconds between arrivals, and between stamps

    def frame_came(self, stamp: float) -> None:
        """Report a frame, before anything processes it."""
        with self._change:
            if self._frames and stamp < self._frames[-1].stamp:
                self._begin()
            now = self._clock()
            if self._last_partner is not None and not self._since_partner:
                self._apart.append((now - self._last_partner[1], self._last_partner[0] - stamp))
            self._frames.append(_Frame(stamp, now))
            stamps = [frame.stamp for frame in self._frames]
            apart = sorted(after - before for before, after in itertools.pairwise(stamps) if after > before)
            self._half_period_s = apart[len(apart) // 2] / 2 if apart else math.inf
            self._since_partner += 1
            self._change.notify()

    def partner_came(self, stamp: float, item: T) -> None:
        """Report a partner: it waits for its frame, or is dropped if that was taken without it."""
        with self._change:
            if self._last_partner is not None and stamp < self._last_partner[0]:
                self._begin()
            now = self._clock()
            self._last_partner, self._since_partner = (stamp, now), 0
            if self._frames:
                self._apart.append((now - self._frames[-1].came, stamp - self._frames[-1].stamp))
            unpaired = (frame for frame in self._judged if not frame.paired and frame.delay is None)
            missed = min(unpaired, key=lambda frame: abs(frame.stamp - stamp), default=None)
            if missed is not None and abs(missed.stamp - stamp) <= self._reach_s:
                self.late += 1
                missed.delay = now - missed.came
            else:
                self._partners.append((stamp, item))
            self._change.notify()

    def take(self, stamp: float) -> T | None:
        """The partner of the frame with this stamp; None where none comes in time. It is no other frame's."""
        with self._change:
            self._change.wait_for(lambda: self._nearest(stamp) is not None or not self._is_worth_waiting(stamp), WAIT_S)
            nearest = self._nearest(stamp)
            if (frame := next((each for each in reversed(self._frames) if each.stamp == stamp), None)) is not None:
                frame.paired = nearest is not None
                self._judged.append(frame)
            if nearest is None:
                self.missing += 1
                return None
            self.paired += 1
            kept = [each for each in self._partners if each[0] > nearest[0]]
            self._partners.clear()
            self._partners.extend(kept)
            return nearest[1]

    @property
    def skew_s(self) -> float:
        """Stamp of partners minus that of frames that come at the same time; NaN without such images."""
        with self._change:
            soonest = sorted(self._apart)[:len(self._apart) // 2 + 1]
        return float(np.median([difference for _, difference in soonest])) if soonest else float('nan')

    @property
    def silent(self) -> bool:
        """Whether no partner came with the last SILENT frames."""
        with self._change:
            return self._since_partner >= SILENT

    @property
    def problem(self) -> str:
        """Why most of the last frames have no partner, for people; empty: they have, or too few images came."""
        skew, words = self.skew_s, self._words
        with self._change:
            last = list(self._judged)[-JUDGED:]
            missing = sum(not frame.paired for frame in last)
            if len(last) < JUDGED or missing <= JUDGED / 2:
                return ''
            if self._since_partner >= SILENT:
                return f'no {words.partner} image came with the last {self._since_partner} {words.frames}'
            newest = self._last_partner[0] + self._reach_s if self._last_partner is not None else -np.inf
            decided = [frame.delay for frame in self._judged if not frame.paired and frame.stamp <= newest][-BLAMED:]
            delays = [delay for delay in decided if delay is not None]
            if len(delays) > len(decided) / 2:
                return (f'{words.partner} images come {np.median(delays):.3f} s after the {words.frames} of their stamps, too late '
                        'to be paired (or their clock is behind by as much): look at the driver and the link of the '
                        f'{words.partner} camera')
            if abs(skew) <= self._reach_s:
                return (f'{missing} of the last {JUDGED} {words.frames} have no {words.partner} image: look at the rate and the '
                        'link of its camera')
            reach = (f'{words.limit} is {self._max_skew_s:g}' if self._reach_s == self._max_skew_s else
                     f'half the time between images is {self._reach_s:.3f} s')
            return (f'the stamps of {words.frames} and {words.partner} images are {skew:+.3f} s apart, {reach}: '
                    'trigger both cameras together and synchronise their clocks'
                    + (', or raise it' if abs(skew) < self._half_period_s else ''))

    @property
    def _reach_s(self) -> float:
        return min(self._max_skew_s, self._half_period_s)

    def _nearest(self, stamp: float) -> tuple[float, T] | None:
        nearest = min(self._partners, key=lambda each: abs(each[0] - stamp), default=None)
        return nearest if nearest is not None and abs(nearest[0] - stamp) <= self._reach_s else None

    def _is_worth_waiting(self, stamp: float) -> bool:
        """Whether partners come, and no newer frame waits."""
        return self._since_partner < SILENT and bool(self._frames) and self._frames[-1].stamp == stamp
