"""Images of no use: without texture, one picture under new stamps, views with nothing in common, two cameras in turns."""

from __future__ import annotations

import itertools
from collections import deque

import cv2
import numpy as np

from .cameras import same_frame
from .types import Float32, UInt8

FEW, JUDGED = 3, 3  # matches, at most, in each of so many last frames
RECENT, NEEDED = 10, 12  # last frames whose median number of matches is reported where it is smaller: too few for a pose
CELL = 8  # pixels that are averaged: the noise of a sensor is no texture
TEXTURE = 1.0  # least root mean square of differences between cells that are neighbours, in gray values
STRIDE = 16  # of the pixels that are compared first
REPEATED_S = 1.0  # by stamps, least time of one picture that is reported
TURNS = 3  # changes of the camera among the last RECENT images, from which on they are reported


class ImageCheck:
    """Checks the images of a camera: one thread adds them, another reads the results once a second."""

    def __init__(self) -> None:
        self._image: UInt8 | None = None
        self._since = self._stamp = 0.0  # stamps of the first and the newest image with these pixels
        self._matches: deque[int] = deque(maxlen=RECENT)
        self._frames: deque[str] = deque(maxlen=RECENT)  # frame_ids of the last images

    def add(self, image: UInt8, stamp: float, frame_id: str = '') -> None:
        """Compare a gray image (H, W) with the one before, and keep it; `stamp` in seconds."""
        self._frames.append(frame_id)
        if self._image is None or stamp < self._stamp or not same_pixels(self._image, image):
            self._since = stamp
        self._image, self._stamp = image, stamp

    def matched(self, count: int) -> None:
        """The newest image has so many matches."""
        self._matches.append(count)

    @property
    def repeated_s(self) -> float:
        """How long, by stamps, all images have the same pixels; 0 where that is shorter than REPEATED_S."""
        seconds = self._stamp - self._since
        return seconds if seconds >= REPEATED_S else 0.0

    @property
    def cameras(self) -> list[str]:
        """The frame_ids of cameras that send the images in turns; empty where one camera sends them."""
        frames = list(self._frames)
        return sorted({*frames}) if sum(not same_frame(*pair) for pair in itertools.pairwise(frames)) >= TURNS else []

    @property
    def untextured(self) -> tuple[float, int] | None:
        """Mean gray value, 0 to 255, and most matches of the last frames; None where there is texture, or one has matches."""
        matches, image = list(self._matches)[-JUDGED:], self._image
        if image is None or len(matches) < JUDGED or max(matches) > FEW or texture_of(image) >= TEXTURE:
            return None
        return float(image.mean()), max(matches)

    @property
    def few_matches(self) -> int | None:
        """Median number of matches of the last RECENT frames where it is below NEEDED, else None."""
        matches = list(self._matches)
        median = int(np.median(matches)) if len(matches) == RECENT else NEEDED
        return median if median < NEEDED else None


def same_pixels(before: UInt8, image: UInt8) -> bool:
    """Whether two images (H, W) are equal; a subsample decides for nearly all that differ."""
    return np.array_equal(before[::STRIDE, ::STRIDE], image[::STRIDE, ::STRIDE]) and np.array_equal(before, image)


def texture_of(image: UInt8) -> float:
    """Root mean square of the differences between neighbours among the means of CELL x CELL pixels of an image (H, W)."""
    height, width = (max(1, side // CELL) for side in image.shape)
    cells: Float32 = np.asarray(cv2.resize(np.asarray(image, np.float32), (width, height), interpolation=cv2.INTER_AREA))
    steps = np.concatenate([np.diff(cells, axis=axis).ravel() for axis in (0, 1)])
    return float(np.sqrt(np.mean(steps**2))) if len(steps) else 0.0
