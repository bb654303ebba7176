"""Masks of a camera's image: no keypoint is where a mask is 0. No ROS here."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from ..utils.errors import ConfigError, FrameError
from ..utils.limits import decode_image
from .geometry import Size, resize_nearest, size_of, size_text
from .types import Float32, UInt8


class Mask:
    """uint8 (H, W) of the images' size, or of the engine's. Raises FrameError for anything else.

    Do not change the array: results derived from it, also on the device, are kept for all frames with this Mask.
    """

    def __init__(self, allowed: UInt8, name: str = 'the mask') -> None:
        """`name` is for people."""
        if allowed.ndim != 2 or allowed.dtype != np.uint8 or not allowed.size:
            raise FrameError(f'{name} is {allowed.dtype} {allowed.shape}: masks are uint8 (H, W), 0 where no keypoint may be')
        self.allowed, self.name = np.ascontiguousarray(allowed), name
        self._resized = {self.size: self.allowed}

    @property
    def size(self) -> Size:
        return size_of(self.allowed)

    @cached_property
    def share(self) -> float:
        """Masked share of the image, 0 to 1."""
        return 1 - np.count_nonzero(self.allowed) / self.allowed.size

    def check(self, image: Size, engine: Size) -> None:
        """Raise FrameError unless it has one of these sizes, (height, width): another camera's mask would be wrong."""
        if self.size not in (image, engine):
            raise FrameError(f'{self.name} is {size_text(self.size)}, the images are {size_text(image)}: a mask has their size, or '
                             f"the engine's {size_text(engine)}")

    def resized(self, size: Size) -> UInt8:
        """uint8 of `size`; the same array at each call."""
        if size not in self._resized:
            self._resized[size] = resize_nearest(self.allowed, size)
        return self._resized[size]

    def allows(self, points: Float32, image: Size) -> NDArray[np.bool_]:
        """(M,) whether the mask is not 0 at points (M, 2), pixels of an image of that size."""
        inside = np.clip(np.nan_to_num(points), 0, np.array(image[::-1], np.float32) - 1)
        columns, rows = (inside + np.float32(0.5)).astype(np.int32).T
        return np.asarray(self.resized(image)[rows, columns] > 0, np.bool_)

    def both(self, other: Mask, image: Size) -> Mask:
        """0 where this mask or the other is 0, for images of that size."""
        return Mask(np.minimum(self.resized(image), other.resized(image)), f'{self.name} and {other.name}')


def load_mask(path: str | os.PathLike[str]) -> Mask:
    """A mask from an image file of one channel of 8 bits. Raises ConfigError."""
    name = f'the mask {path}'
    try:
        data = Path(path).read_bytes()
        image = decode_image(data, cv2.IMREAD_UNCHANGED)
    except OSError as error:
        raise ConfigError(f'{name} cannot be read ({error.strerror}): give an 8-bit gray PNG, 0 where no keypoint may be') from None
    except (ValueError, cv2.error) as error:
        raise ConfigError(f'{name} cannot be read: {error}') from None
    if image is None or data.startswith(b'\xff\xd8'):
        what = f'no image: {len(data)} bytes' if image is None else 'a JPEG, which keeps no exact zeros'
    elif image.ndim != 2 or image.dtype != np.uint8:
        what = f'{image.dtype} with {1 if image.ndim == 2 else image.shape[2]} channels'
    elif not image.any():
        what = '0 everywhere, which leaves no keypoint at all'
    else:
        return Mask(np.asarray(image, np.uint8), name)
    raise ConfigError(f'{name} is {what}: give an 8-bit gray PNG, 0 where no keypoint may be and 255 elsewhere')
