"""Frames between which a camera moves, and cameras that take turns: told by small images without fine structure."""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np

from lightglue_trt_ros.core.geometry import resize_gray, size_of, size_text
from lightglue_trt_ros.core.images import OUTER_PERCENT
from lightglue_trt_ros.core.types import Float32, UInt8
from lightglue_trt_ros.utils.errors import BagError

MIN_FRAMES = 16  # between which the camera moved
MAX_FRAMES = 96  # that are in memory
MAX_PIXELS = 800_000  # of an image in memory: larger ones are reduced
SMALL = 96  # pixels of the longer side of the image by which motion is told
MOVED, MOVED_SHARE = 0.04, 0.1  # least change of a small image, relative, and in which share of it
MOVING = 0.3  # least share of the image that is another one a third of the recording later
NEARLY_ALWAYS, LASTING = 0.75, 0.04  # share of the frames in which a pixel is; least share of such pixels: who walks by has none
RETURNED, ALTERNATE = 0.8, 0.35  # difference to an earlier frame over that to the last; share of such frames of several cameras
TURNS = 6  # earlier frames among which the other camera's last one is
FINE, CORNERS = 320, 400  # pixels of the longer side of images whose corners are compared, and how many are
UNLIKE = 0.75  # distance of a descriptor to the nearest one of the other image, over that to the next
FLAT = 64  # gray levels, a quarter of all: fewer change by less than MOVED where structure of a fifth of their contrast moves
BLACK = 12.0  # gray levels that some pixel of a frame must exceed


class _Seen(NamedTuple):
    """A frame."""

    small: Float32
    fine: UInt8  # its structure


class Alternation:
    """Frames that are unlike the last one, but like one before it: several cameras that take turns.

    So are those of a camera that passes the rings of a tunnel or the posts of a fence. But these have more corners of the last one.
    """

    def __init__(self) -> None:
        self._recent = list[_Seen]()
        self._count = self._returns = self._asked = self._passes = 0

    def add(self, frame: UInt8, small: Float32) -> None:
        """The next frame (H, W), and what `small_of` makes of it."""
        self._count += 1
        seen = _Seen(small, _reduced(frame, (FINE / max(frame.shape)) ** 2).copy())
        self._recent = [each for each in self._recent if each.small.shape == small.shape]
        if len(self._recent) > 1:
            *before, last = self._recent
            if _changed(last.small, small) > MOVING:
                self._asked += 1
                nearest = min(before, key=lambda each: _difference(each.small, small))
                if _difference(nearest.small, small) < RETURNED * _difference(last.small, small):
                    self._returns += 1
                    self._passes += len(shared_corners(last.fine, seen.fine)[0]) > len(shared_corners(nearest.fine, seen.fine)[0])
        self._recent = [*self._recent, seen][-TURNS:]

    @property
    def doubt(self) -> str:
        """For people; empty where there is none."""
        if self._asked < max(MIN_FRAMES / 2, self._count / 4) or self._returns <= ALTERNATE * self._asked or \
                self._passes > self._returns / 2:
            return ''
        return (f'{self._returns} of {self._count} frames are unlike the frame before and like an earlier one: do several cameras '
                'share this topic or folder, are its images not in the order of time, does light flicker, or does the scene '
                'repeat, as the rings of a tunnel? One camera belongs on each topic')


class Exposures:
    """Exposures that take turns, as cameras for a high dynamic range send them."""

    def __init__(self) -> None:
        self._levels = list[float]()

    def add(self, frame: UInt8) -> None:
        """The next frame (H, W)."""
        self._levels.append(float(frame.mean()) + 1)

    @property
    def doubt(self) -> str:
        """For people; empty where there is none."""
        stops = np.abs(np.diff(np.log2(self._levels)))
        changed = int(np.sum(stops > 1))
        if len(stops) < MIN_FRAMES / 2 or changed <= len(stops) / 2:
            return ''
        return (f'{changed} of {len(self._levels)} frames are more than twice as bright or dark as the frame before: a camera that '
                'takes several exposures alternately (HDR), or light that flickers. Record one exposure, or those of one length')


class MovingFrames:
    """Frames between which the camera moved, from all over the recording, in bounded memory."""

    def __init__(self, name: str) -> None:
        self.name, self.size = name, (0, 0)
        self._frames, self._smalls, self._alternation = list[UInt8](), list[Float32](), Alternation()
        self._count, self._accepted, self._every = 0, 0, 1
        self._darkest, self._brightest = 255.0, 0.0

    def add(self, frame: UInt8) -> None:
        size = size_of(frame)
        self.size = self.size if self._count else size
        if size != self.size:
            raise BagError(f'{self.name}: frame {self._count} is {size_text(size)}, those before are {size_text(self.size)}: do '
                           'several cameras publish on this topic? Record one, or name it with --image-topic')
        self._count += 1
        darkest, brightest = np.percentile(frame, OUTER_PERCENT)
        self._darkest, self._brightest = min(self._darkest, float(darkest)), max(self._brightest, float(brightest))
        small = small_of(frame)
        self._alternation.add(frame, small)
        if self._smalls and _changed(self._smalls[-1], small) <= MOVED_SHARE:
            return
        self._accepted += 1
        if (self._accepted - 1) % self._every:
            return
        self._frames.append(_reduced(frame, MAX_PIXELS / frame.size).copy())
        self._smalls.append(small)
        if len(self._frames) == MAX_FRAMES:
            self._frames, self._smalls, self._every = self._frames[::2], self._smalls[::2], 2 * self._every

    def moving(self) -> list[UInt8]:
        """The frames. Raises BagError where they tell nothing."""
        if self._count < MIN_FRAMES:
            raise BagError(f'{self.name}: {self._count} frames are too few: a mask takes {MIN_FRAMES} or more between which the '
                           'camera moves')
        if self._brightest < BLACK:
            raise BagError(f'{self.name}: the frames are black, no brighter than {self._brightest:.0f} of 255: record in light, or '
                           'give --image-bits if the camera fills 10 or 12 of 16 bits')
        if self._alternation.doubt:
            raise BagError(f'{self.name}: {self._alternation.doubt}')
        others = np.abs(np.roll(np.stack(self._smalls), len(self._smalls) // 3, axis=0) - self._smalls) > MOVED
        moving, lasting = float(np.median(others.mean(axis=(1, 2)))), float(np.mean(others.mean(axis=0) > NEARLY_ALWAYS))
        if self._count <= 2 * self._accepted < 2 * MIN_FRAMES and moving >= MOVING and lasting >= LASTING:
            raise BagError(f'{self.name}: {self._accepted} of {self._count} frames differ from those before, and a mask takes '
                           f'{MIN_FRAMES} or more: record for longer')
        if len(self._frames) < MIN_FRAMES or moving < MOVING or lasting < LASTING:
            raise BagError(f'{self.name}: the camera stands or hardly moves: {self._accepted} of {self._count} frames differ from '
                           f'those before, in {100 * moving:.0f} % of the image, and {100 * lasting:.0f} % of it nearly always; a '
                           f'mask takes {MIN_FRAMES} or more, {100 * MOVING:.0f} % and {100 * LASTING:.0f} %. Record a camera that '
                           f'rotates and moves{self._contrast()}')
        return self._frames

    def _contrast(self) -> str:
        """For people, how the refusal goes on where the frames are so flat that motion hardly changes them; else empty."""
        if self._brightest - self._darkest >= FLAT:
            return ''
        return (f', or give more contrast: nearly all gray values are from {self._darkest:.0f} to {self._brightest:.0f} of 255. '
                'Thermal images: record 8 bits, stretched to the range that they use')

    @property
    def example(self) -> UInt8:
        """A frame of the images' size."""
        return resize_gray(self._frames[len(self._frames) // 2], self.size)


def small_of(frame: UInt8) -> Float32:
    """The image without fine structure, relative to its surroundings: exposure, gain and vignetting are not in it."""
    scale = SMALL / max(frame.shape)
    size = (max(8, round(frame.shape[1] * scale)), max(8, round(frame.shape[0] * scale)))
    small = cv2.resize(frame, size, interpolation=cv2.INTER_AREA).astype(np.float32)
    return np.asarray((cv2.GaussianBlur(small, (0, 0), 1.0) + 4) / (cv2.GaussianBlur(small, (0, 0), 5.0) + 4), np.float32)


def _reduced(frame: UInt8, share: float) -> UInt8:
    """The image with this share of its pixels; the same where it has no more."""
    return frame if share >= 1 else resize_gray(frame, (round(frame.shape[0] * share**0.5), round(frame.shape[1] * share**0.5)))


def shared_corners(first: UInt8, second: UInt8) -> tuple[Float32, Float32]:
    """Corners (M, 2) of an image that the other has, and no other one that is nearly as alike; and where they are there."""
    orb = cv2.ORB_create(CORNERS)  # type: ignore[attr-defined]
    (corners, before), (others, now) = (orb.detectAndCompute(image, None) for image in (first, second))
    if before is None or now is None:
        return np.zeros((0, 2), np.float32), np.zeros((0, 2), np.float32)
    pairs = [pair for pair in cv2.BFMatcher(cv2.NORM_HAMMING).knnMatch(before, now, k=2)
             if len(pair) == 2 and pair[0].distance < UNLIKE * pair[1].distance]
    return (np.array([corners[each[0].queryIdx].pt for each in pairs], np.float32).reshape(-1, 2),
            np.array([others[each[0].trainIdx].pt for each in pairs], np.float32).reshape(-1, 2))


def _changed(before: Float32, now: Float32) -> float:
    """Share of a small image that is another one."""
    return float(np.mean(np.abs(now - before) > MOVED))


def _difference(first: Float32, second: Float32) -> float:
    return float(np.mean(np.abs(first - second)))
