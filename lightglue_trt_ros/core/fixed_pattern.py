"""What a camera adds to every image alike: fixed-pattern noise of a dark or a thermal sensor, hot pixels, a projector's dots.

Learned from images between which the camera moved, and subtracted: scene-based correction of a sensor's nonuniformity, by the
constant statistics of Harris and Chiang (IEEE Transactions on Image Processing 8, 1999). What it adds to whole patches is little,
but networks see it; it is learned where the scene has less contrast than it.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from .types import Float32, UInt8

AROUND_PX = 4.0  # deviation of the Gaussian around a pixel, from whose mean its detail differs
FAR, PATCH = 4, 15  # times that of the Gaussian, whose mean this mean differs from; pixels of half the size, for the contrast there
QUIET, USUAL = 0.3, 0.5  # gray levels: noise of these means, and their usual offset
MEMORY = 60  # images
SETTLED_AT = (4, 6, 9, 13, 20, 30, 43, 60)  # images after which offsets are computed, and after every GONE of them
CERTAIN = 2.0  # standard deviations of its mean, below which a pixel's offset counts as none
PROBES = 1024  # pixels of the largest offsets that tell whether an image has the pattern
AROUND = (-5, 0), (5, 0), (0, -5), (0, 5)  # what they are compared with, pixels down and right
INSIDE = np.s_[5:-5, 5:-5]  # has all of those
PRESENT = 0.5  # share of the pattern that an image must have
GONE = 20  # images without the pattern, after which it is forgotten


def detail_of(gray: Float32) -> tuple[Float32, Float32]:
    """How a gray image, float32 (H, W), differs from the mean around each pixel; these means, at half the size."""
    height, width = gray.shape
    half = cv2.resize(gray, ((width + 1) // 2, (height + 1) // 2), interpolation=cv2.INTER_AREA)  # is blurred sooner
    deviation = (AROUND_PX**2 - 1)**0.5 / 2  # resizing down and up has a variance of one pixel squared
    means = np.asarray(cv2.GaussianBlur(half, (0, 0), deviation), np.float32)
    return np.asarray(gray - cv2.resize(means, (width, height)), np.float32), means


class FixedPattern:
    """Offset of each pixel of a camera's images, all of one size: the mean of their details, less where that is uncertain."""

    def __init__(self) -> None:
        self._learned: _Moments | None = None
        self._known: _Offsets | None = None
        self._without = 0  # images in turn that have had no pattern

    @property
    def is_settled(self) -> bool:
        """Whether more images hardly change what is known."""
        return self._learned is not None and self._learned.images >= MEMORY

    def corrected(self, image: UInt8) -> UInt8:
        """A gray image, uint8 (H, W), without the pattern; the image itself where it has none, or none is known."""
        known = self._known
        return image if known is None or not known.are_in(image) else known.subtracted_from(image)

    def add(self, image: UInt8) -> None:
        """Learn from an image, uint8 (H, W), before which the camera moved."""
        self._without = self._without + 1 if self._known is not None and not self._known.are_in(image) else 0
        if self._learned is None or self._learned.mean.shape != image.shape or self._without > GONE:
            self._learned, self._known, self._without = _Moments(image.shape), None, 0
        if not self._without:
            self._learned.add(image.astype(np.float32))
            if self._learned.images in SETTLED_AT or self._learned.images % GONE == 0:  # which takes longer than to learn
                self._known = self._learned.offsets()


class _Moments:
    """Over the last images: mean and mean square of each pixel's detail, and a weighted mean of how the means around it differ."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.images = 0
        self.mean, self._square = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        self._weight, self._weighted = np.zeros((2, (shape[0] + 1) // 2, (shape[1] + 1) // 2), np.float32)

    def add(self, gray: Float32) -> None:
        self.images += 1
        detail, means = detail_of(gray)
        eighth = cv2.resize(means, None, fx=1 / FAR, fy=1 / FAR, interpolation=cv2.INTER_AREA)
        broad = means - cv2.resize(cv2.GaussianBlur(eighth, (0, 0), AROUND_PX / 2), means.shape[::-1])
        weight = 1 / (QUIET**2 + cv2.blur(broad * broad, (PATCH, PATCH)))
        moments, new = (self.mean, self._square, self._weight, self._weighted), (detail, detail * detail, weight, weight * broad)
        for moment, values in zip(moments, new, strict=True):
            cv2.accumulateWeighted(np.asarray(values, np.float32), moment, 1 / min(self.images, MEMORY))

    def offsets(self) -> _Offsets | None:
        """None where no pixel has one."""
        squared, count = self.mean * self.mean, min(self.images, MEMORY)
        variance = np.maximum(self._square - squared, 1) / (count - 1)  # of the mean; gray levels are whole numbers
        share = np.maximum(0, 1 - CERTAIN**2 * variance / np.maximum(squared, 1e-6))
        detail = self.mean * share
        broad = cv2.resize(self._weighted / (self._weight + 1 / (count * USUAL**2)), squared.shape[::-1])
        return _Offsets(np.rint(detail + broad).astype(np.int16)) if np.rint(detail[INSIDE]).any() else None


class _Offsets:
    """What is to be subtracted, int16 (H, W), and whether an image has it: by the pixels with the largest offsets."""

    def __init__(self, offsets: NDArray[np.int16]) -> None:
        self._brighter, self._darker = (np.clip(part, 0, 255).astype(np.uint8) for part in (offsets, -offsets))
        strength = np.zeros(offsets.shape, np.int16)
        strength[INSIDE] = np.abs(offsets[INSIDE])
        above = np.bincount(strength.ravel())[::-1].cumsum()[::-1]  # pixels with this strength at least
        least = max(1, int(np.searchsorted(-above, -PROBES, side='right')) - 1)
        strongest = np.flatnonzero(strength >= least)
        self._v, self._u = np.unravel_index(strongest[::max(1, len(strongest) // PROBES)], strength.shape)
        self._expected = self._contrast(offsets)

    def subtracted_from(self, image: UInt8) -> UInt8:
        """An image, uint8 (H, W), without them. A quarter of the time of a subtraction of int16."""
        return np.asarray(cv2.subtract(cv2.add(image, self._darker), self._brighter), np.uint8)

    def are_in(self, image: UInt8) -> bool:
        """Whether an image, uint8 (H, W), has them."""
        expected = self._expected
        return image.shape == self._brighter.shape and bool(self._contrast(image) @ expected > PRESENT * (expected @ expected))

    def _contrast(self, image: UInt8 | NDArray[np.int16]) -> Float32:
        """How those pixels differ from the mean of four around."""
        v, u = self._v, self._u
        around = sum(image[v + down, u + right].astype(np.float32) for down, right in AROUND)
        return np.asarray(image[v, u] - around / 4, np.float32)
