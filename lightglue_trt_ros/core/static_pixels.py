"""Pixels that stand still in the images of a moving camera: no keypoint is taken there."""

from __future__ import annotations

import cv2
import numpy as np

from .cells import GRID
from .fixed_pattern import FixedPattern, detail_of
from .geometry import Size, resize_gray
from .types import UInt8


class StaticPixels:
    """What stands in the images of a moving camera: pixels that are brighter than what is around them in nearly all, or darker."""

    CONTRAST = 4.0  # least difference from the mean around, gray levels
    SURE, LEAST_IMAGES = 0.8, 3  # share of the images in which a pixel differs, and of how many
    MEMORY = 20  # images
    REACH_PX = 2  # pixels around, in which no keypoint is taken either
    LARGEST = 0.5  # share of the image; above it, higher contrasts alone count
    APART_PX = 4.0  # motion from one image to the next that counts
    RARELY = 5  # frames to the next one, once it is known

    def __init__(self, size: Size) -> None:
        self.size, self.images, self.fixed = size, 0, FixedPattern()
        self.blocked, self.cells = 0.0, np.zeros(GRID)  # share of the image, and of each cell of GRID
        self._moved, self._late = 0.0, 0
        self._mean = self._brighter = self._darker = np.zeros(size, np.float32)
        self._allowed: UInt8 | None = None
        self._both: tuple[UInt8 | None, UInt8 | None, UInt8 | None] = None, None, None

    def allowed(self, mask: UInt8 | None) -> UInt8 | None:
        """`mask`, uint8 of `size` or None, without the pixels of the pattern; the same array until either changes."""
        if mask is None or self._allowed is None:
            return mask if self._allowed is None else self._allowed
        if self._both[0] is not mask or self._both[1] is not self._allowed:
            left = np.minimum(mask, self._allowed)
            self._both = mask, self._allowed, left if left.any() else mask
        return self._both[2]

    def add(self, image: UInt8, motion_px: float) -> None:
        """Learn from a gray image, uint8 (H, W), before which the camera moved so far."""
        self._moved, self._late = self._moved + motion_px, self._late + 1
        known = self.images >= self.MEMORY
        if self._moved < self.APART_PX or (known and self.fixed.is_settled and self._late < self.RARELY):
            return
        self._moved = 0.0
        self.fixed.add(image)
        if known and self._late < self.RARELY:
            return
        self._late, self.images = 0, self.images + 1
        detail, _ = detail_of(resize_gray(image, self.size).astype(np.float32))
        part = np.float32(1 / min(self.images, self.MEMORY))
        self._mean = self._mean + part * (detail - self._mean)
        self._brighter = self._brighter + part * ((detail > self.CONTRAST) - self._brighter)
        self._darker = self._darker + part * ((detail < -self.CONTRAST) - self._darker)
        if self.images >= self.LEAST_IMAGES:
            self._block()

    def _block(self) -> None:
        sure, contrast, least = np.maximum(self._brighter, self._darker) > self.SURE, np.abs(self._mean), self.CONTRAST
        disc = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * self.REACH_PX + 1,) * 2)
        while True:
            free = np.asarray(1 - cv2.dilate((sure & (contrast > least)).astype(np.uint8), disc), np.uint8)
            self.blocked = 1 - np.count_nonzero(free) / free.size
            if self.blocked <= self.LARGEST:
                break
            least *= 1.3
        self.cells = np.asarray(cv2.resize(1.0 - free, GRID[::-1], interpolation=cv2.INTER_AREA), np.float64)
        self._allowed = 255 * free if self.blocked else None
