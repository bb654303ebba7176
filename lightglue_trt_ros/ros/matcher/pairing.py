"""Finds the partner of each frame by its stamp, a right image or a depth image, and why frames have none. No ROS here."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from ...core.timing import usual_period

PARTNERS, FRAMES = 16, 64  # partners that came before their frames, with their data; frames whose stamps are kept
OPEN = 4  # newest frames whose partners are kept however many follow: the next one to be processed is among them
SILENT = 5  # frames in a row without any partner: then nothing waits
RHYTHM = 3  # last partners, each of which tells when the next are due: one that is out of time is no guide
JUDGED, BLAMED = 10, 5  # last frames: those that show that partners are missing, and those that show why

T = TypeVar('T')


class Words(NamedTuple):
    """Names of frames and partners, of the parameter that limits the difference of their stamps, and keys of the diagnostics."""

    frames: str
    partner: str
    paired: str  # number of frames whose clouds have what the partner gives
    share: str  # of the points that have it
    gives: str
    limit: str
    skew: str  # key of the diagnostics


STEREO = Words('left images', 'right', 'stereo pairs', 'points with right %', 'a right point', 'max_stereo_skew_s',
               'stereo skew ms (right - left)')
DEPTH = Words('images', 'depth', 'images with depth', 'points with depth %', 'depth', 'max_depth_skew_s',
              'depth skew ms (depth - image)')


@dataclass
class _WaitingFrame:
    """Stamp and arrival of a frame, seconds, and whether it got a partner."""

    stamp: float
    came: float
    paired: bool = False
    delay: float | None = None  # of its partner, which came too late


@dataclass(eq=False)
class _Partner(Generic[T]):
    """Stamp of a partner, seconds, and its data."""

    stamp: float
    item: T


class Pairing(Generic[T]):
    """One thread reports frames and partners as they come; another thread takes the partner of each frame.

    A frame keeps its partner from its arrival on, however many others come while earlier frames are processed. When stamps go back,
    all earlier images are forgotten; the counts stay.
    """

    def __init__(self, max_skew_s: float, words: Words = STEREO, clock: Callable[[], float] = time.monotonic,
                 max_wait_s: float = 0.1) -> None:
        """A frame waits for its partner no longer than `max_wait_s` after it came."""
        self.missing = self.late = 0
        self._max_skew_s, self._max_wait_s, self._words = max_skew_s, max_wait_s, words
        self._clock, self._change = clock, threading.Condition()
        self._since_partner = 0  # frames since the last partner
        self._begin()

    def _begin(self) -> None:
        self._frames: deque[_WaitingFrame] = deque(maxlen=FRAMES)
        self._half_period_s = math.inf  # half the usual time between frames: beyond it another frame is nearer
        self._judged: deque[_WaitingFrame] = deque(maxlen=FRAMES)  # those of them for which `take` was called
        self._claimed: float | None = None  # stamp of the frame that is processed
        self._partners: list[_Partner[T]] = []
        self._partner_stamps: deque[float] = deque(maxlen=FRAMES)
        self._delays: deque[float] = deque(maxlen=JUDGED)  # seconds from a frame to its partner, 0 where that was there
        self._waits: deque[float] = deque(maxlen=JUDGED)  # seconds
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
            self._frames.append(_WaitingFrame(stamp, now))
            self._half_period_s = usual_period(frame.stamp for frame in self._frames) / 2
            self._since_partner += 1
            if self._nearest(stamp) is not None:
                self._delays.append(0.0)
            self._prune()
            self._change.notify()

    def partner_came(self, stamp: float, item: T) -> None:
        """Report a partner: it waits for its frame, or is dropped if that was taken without it."""
        with self._change:
            if self._last_partner is not None and stamp < self._last_partner[0]:
                self._begin()
            now = self._clock()
            self._last_partner, self._since_partner = (stamp, now), 0
            self._partner_stamps.append(stamp)
            frame = min(self._frames, key=lambda frame: abs(frame.stamp - stamp), default=None)
            if frame is not None and abs(frame.stamp - stamp) <= self._reach_s:
                self._delays.append(now - frame.came)
            if self._frames:
                self._apart.append((now - self._frames[-1].came, stamp - self._frames[-1].stamp))
            unpaired = (frame for frame in self._judged if not frame.paired and frame.delay is None)
            missed = min(unpaired, key=lambda frame: abs(frame.stamp - stamp), default=None)
            if missed is not None and abs(missed.stamp - stamp) <= self._reach_s:
                self.late += 1
                missed.delay = now - missed.came
            else:
                self._partners.append(_Partner(stamp, item))
            self._prune()
            self._change.notify()

    def claim(self, stamp: float) -> None:
        """Report that a frame is processed from now on: its partner is kept, or awaited, until it is taken."""
        with self._change:
            self._claimed = stamp

    def take(self, stamp: float) -> T | None:
        """The partner of the frame with this stamp; None where none comes in time. It is no other frame's."""
        with self._change:
            frame, began = self._frame(stamp), self._clock()
            if frame is not None:
                self._change.wait_for(lambda: not self._is_worth_waiting(stamp), frame.came + self._max_wait_s - self._clock())
            self._waits.append(max(0.0, self._clock() - began))
            nearest, self._claimed = self._nearest(stamp), None
            if (frame := self._frame(stamp)) is not None:  # time may have gone back meanwhile
                frame.paired = nearest is not None
                self._judged.append(frame)
            if nearest is None:
                self.missing += 1
                return None
            self._partners = [each for each in self._partners if each.stamp > nearest.stamp]
            return nearest.item

    @property
    def skew_s(self) -> float:
        """Stamp of partners minus that of frames that come at the same time; NaN without such images."""
        with self._change:
            soonest = sorted(self._apart)[:len(self._apart) // 2 + 1]
        return float(np.median([difference for _, difference in soonest])) if soonest else float('nan')

    @property
    def delay_s(self) -> float:
        """How long after their frames partners usually come, 0 where they come first; NaN without any."""
        with self._change:
            return float(np.median(self._delays)) if self._delays else float('nan')

    @property
    def age_s(self) -> float:
        """Seconds since the last partner came; NaN without any."""
        with self._change:
            return float('nan') if self._last_partner is None else self._clock() - self._last_partner[1]

    @property
    def holds_up(self) -> bool:
        """Whether frames usually wait so long that others are replaced meanwhile."""
        with self._change:
            return bool(self._waits) and float(np.median(self._waits)) > self._half_period_s

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
                return (f'{words.partner} images come {np.median(delays):.3f} s after the {words.frames} of their stamps, '
                        f'too late to be paired, max_wait_s is {self._max_wait_s:g} (or their clock is behind by as much): look '
                        f'at the driver and the link of the {words.partner} camera, or raise max_wait_s')
            if abs(skew) <= self._reach_s:
                return (f'{missing} of the last {JUDGED} {words.frames} have no {words.partner} image: look at the rate and the '
                        'link of its camera')
            reach = (f'{words.limit} is {self._max_skew_s:g}' if self._reach_s == self._max_skew_s else
                     f'half the time between images is {self._reach_s:.3f} s')
            return (f'the stamps of {words.frames} and {words.partner} images are {skew:+.3f} s apart, {reach}: trigger both '
                    f'cameras together and synchronise their clocks{", or raise it" if abs(skew) < self._half_period_s else ""}')

    @property
    def _reach_s(self) -> float:
        return min(self._max_skew_s, self._half_period_s)

    def _frame(self, stamp: float) -> _WaitingFrame | None:
        return next((frame for frame in reversed(self._frames) if frame.stamp == stamp), None)

    def _nearest(self, stamp: float) -> _Partner[T] | None:
        nearest = min(self._partners, key=lambda partner: abs(partner.stamp - stamp), default=None)
        return nearest if nearest is not None and abs(nearest.stamp - stamp) <= self._reach_s else None

    def _prune(self) -> None:
        """Keep the partners of the frame that is processed and of the newest ones, and those that may be a later frame's."""
        newest = self._frames[-1].stamp if self._frames else -math.inf
        stamps = [frame.stamp for frame in list(self._frames)[-OPEN:]] + ([] if self._claimed is None else [self._claimed])
        kept = {id(partner) for stamp in stamps if (partner := self._nearest(stamp)) is not None}
        kept |= {id(partner) for partner in self._partners[-PARTNERS:] if partner.stamp > newest - self._reach_s}
        self._partners = [partner for partner in self._partners if id(partner) in kept]

    def _is_worth_waiting(self, stamp: float) -> bool:
        """Whether a partner is due that is nearer to this frame than what came."""
        frame, last = self._frame(stamp), self._last_partner
        if frame is None or (self._since_partner >= SILENT and (last is not None or len(self._judged) >= SILENT)):
            return False  # but before the first partner, frames that were dropped meanwhile do not count: the camera may just start
        if self._delays and float(np.median(self._delays)) > self._max_wait_s:
            return False  # they come too late
        nearest = self._nearest(stamp)
        if last is None:
            return True
        if last[0] >= stamp or stamp - last[0] > SILENT * 2 * self._half_period_s + self._max_wait_s:
            return False  # images come in the order of their stamps; those of another clock are no guide
        period = usual_period(self._partner_stamps, 0.25)  # some are lost
        if math.isinf(period):
            return nearest is None
        due = min(_due(each, last[0], period, stamp) for each in list(self._partner_stamps)[-RHYTHM:])
        if nearest is None:
            return due <= self._reach_s + self._half_period_s / 2
        return abs(nearest.stamp - stamp) - due > period / 4


def _due(of: float, last: float, period: float, stamp: float) -> float:
    """How far from `stamp` the nearest image is that comes after `last`, whole periods after the one at `of`."""
    periods = max(math.floor((last - of) / period + 0.25) + 1, round((stamp - of) / period))
    return abs(of + periods * period - stamp)
