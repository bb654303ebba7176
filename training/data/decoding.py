"""Image files as arrays: what OpenCV reads, and the DDS files of games (S3TC blocks), which it does not."""

from __future__ import annotations

import struct
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from training.data.sources import DataError


def _colours_565(packed: NDArray[np.uint16]) -> NDArray[np.float32]:
    red, green, blue = packed >> 11, (packed >> 5) & 63, packed & 31
    return np.stack([blue * (255 / 31), green * (255 / 63), red * (255 / 31)], axis=-1).astype(np.float32)


def decode_dds(data: bytes) -> NDArray[np.uint8]:
    """The largest level of a DXT1, DXT3 or DXT5 file (H, W, 3), BGR. Raises DataError for other formats and cut files."""
    if len(data) < 128:
        raise DataError('a DDS file without its header')
    height, width = struct.unpack_from('<II', data, 12)
    fourcc = data[84:88]
    size = {b'DXT1': 8, b'DXT3': 16, b'DXT5': 16}.get(fourcc)
    if size is None:
        raise DataError(f'a DDS file of format {fourcc!r}, not DXT1, DXT3 or DXT5')
    rows, columns = (height + 3) // 4, (width + 3) // 4
    if not rows * columns or len(data) < 128 + rows * columns * size:
        raise DataError(f'a DDS file cut short: {len(data)} bytes for {width}x{height}')
    blocks = np.frombuffer(data, np.uint8, rows * columns * size, 128).reshape(-1, size)[:, size - 8 :]
    ends = np.ascontiguousarray(blocks[:, :4]).view('<u2').astype(np.uint16)
    first, second = _colours_565(ends[:, 0]), _colours_565(ends[:, 1])
    third = np.where((ends[:, 0] > ends[:, 1])[:, None], (2 * first + second) / 3, (first + second) / 2)
    fourth = np.where((ends[:, 0] > ends[:, 1])[:, None], (first + 2 * second) / 3, 0)
    if size == 16:
        third, fourth = (2 * first + second) / 3, (first + 2 * second) / 3
    palette = np.stack([first, second, third, fourth], axis=1)
    indices = np.ascontiguousarray(blocks[:, 4:]).view('<u4')[:, 0]
    choice = (indices[:, None] >> (2 * np.arange(16, dtype=np.uint32))) & 3
    pixels = np.take_along_axis(palette, choice[:, :, None].astype(np.intp), axis=1)
    image = pixels.reshape(rows, columns, 4, 4, 3).transpose(0, 2, 1, 3, 4).reshape(rows * 4, columns * 4, 3)
    return np.ascontiguousarray(image[:height, :width].round().astype(np.uint8))


def decode(data: bytes) -> NDArray[np.uint8]:
    """An image (H, W), (H, W, 3) BGR or (H, W, 4), eight bits. Raises DataError for what cannot be read."""
    if not data:
        raise DataError('empty, or not in this copy of the source')
    if data[:4] == b'DDS ':
        return decode_dds(data)
    if data[:2] == b'\xff\xd8' and b'\xff\xd9' not in data[-4096:]:
        raise DataError('a JPEG file cut short')  # OpenCV fills the rest with gray
    try:
        image: NDArray[Any] | None = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    except cv2.error as error:
        raise DataError(f'cannot be decoded: {error}') from error
    if image is None:
        raise DataError(f'cannot be decoded: {len(data)} bytes that are no image OpenCV reads')
    if image.dtype == np.uint16:
        image = image >> 8
    elif image.dtype != np.uint8:
        raise DataError(f'pixels are {image.dtype}, not of 8 or 16 bits')
    return image.astype(np.uint8, copy=False)
