"""Masks of a camera's image: no keypoint is where a mask is 0. No ROS here."""

from __future__ import annotations

import os
from functools import cached_property, reduce
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from ..utils.errors import ConfigError, FrameError
from ..utils.limits import decode_image
from .geometry import Size, resize_nearest, size_of, size_text
from .images import check_gray
from .types import Float32, UInt8


class Mask:
    """uint8 (H, W) of the images' size, or of the engine's. Raises FrameError for anything else.

    Do not change the array: results derived from it, also on the device, are kept for all frames with this Mask.
    """

    def __init__(self, allowed: UInt8, name: str = 'the mask') -> None:
        """`name` is for people."""
        check_gray(allowed, name, 'masks are uint8 (H, W), 0 where no keypoint may be')
        self.allowed, self.name = np.ascontiguousarray(allowed), name
        self._resized = {self.size: self.allowed}
        self._grown: dict[tuple[Size, float], UInt8] = {}

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

    def grown(self, size: Size, margin: float) -> UInt8:
        """uint8 of `size`, 0 within `margin` of its pixels of a 0 of the mask; the same array at each call.

        A keypoint beside the edge of a mask still sees what is behind it. The border of the image is no such edge. Where a
        pixel of `size` covers several of the mask, one 0 is enough. If nothing would be left, this is `resized`: see `doubt`.
        """
        if margin < 1:
            return self.resized(size)
        if (size, margin) not in self._grown:
            reach = np.arange(-int(margin), int(margin) + 1)
            disc = (np.hypot(reach[:, None], reach) <= margin).astype(np.uint8)
            grown = np.asarray(cv2.erode(resize_nearest(_least(self.allowed, size), size), disc), np.uint8)
            self._grown[size, margin] = grown if grown.any() else self.resized(size)
        return self._grown[size, margin]

    def doubt(self, size: Size, margin: float) -> str:
        """Why `grown` is not larger than `resized`, for people; empty where it is."""
        exact = self.resized(size)
        if margin < 1 or self.grown(size, margin) is not exact or not exact.any():
            return ''
        return (f'{self.name} leaves {100 * np.count_nonzero(exact) / exact.size:.2g} % of the image, and nothing of it once '
                f'mask_margin = {margin:g} pixels of {size_text(size)} are added: it is used without them; lower mask_margin')

    def allows(self, points: Float32, image: Size, margin: float = 0.0) -> NDArray[np.bool_]:
        """(M,) whether the mask, grown by `margin`, is not 0 at points (M, 2), pixels of an image of that size."""
        inside = np.clip(np.nan_to_num(points), 0, np.array(image[::-1], np.float32) - 1)
        columns, rows = (inside + np.float32(0.5)).astype(np.int32).T
        return np.asarray(self.grown(image, margin)[rows, columns] > 0, np.bool_)

    def both(self, other: Mask, image: Size) -> Mask:
        """0 where this mask or the other is 0, for images of that size."""
        return Mask(np.minimum(self.resized(image), other.resized(image)), f'{self.name} and {other.name}')


def _least(allowed: UInt8, size: Size) -> UInt8:
    """The least value that each pixel of `size` covers, along the axes that shrink."""
    for old, new in zip(size_of(allowed), size, strict=True):
        if new < old:  # `np.minimum.reduceat` takes 40 times as long
            first, last = np.arange(new) * old // new, np.arange(1, new + 1) * old // new - 1
            rows = (allowed[np.minimum(first + step, last)] for step in range(-(-old // new) + 1))
            allowed = reduce(np.minimum, rows)
        allowed = np.ascontiguousarray(allowed.T)
    return allowed


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
