"""Depth images as compressed_depth_image_transport sends them: a PNG or RVL behind a header, float32 as inverse depth."""

from __future__ import annotations

import struct
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from .limits import check_megapixels, decode_image

HEADER = struct.Struct('<iff')  # its format, and two parameters of inverse depth
SIZE = struct.Struct('<II')  # of an RVL image: columns, rows


def unpacked(data: bytes, form: str, encoding: str, megapixels: float | None = None) -> NDArray[Any]:
    """Pixels (H, W) of a message with this `format` and `encoding`: uint16, or float32 of 32FC1, NaN where unknown.

    Without compressedDepth in its format it is a PNG or TIFF of compressed_image_transport. Raises ValueError, cv2.error.
    """
    inverse = 'compressedDepth' in form
    packed, bits = data[HEADER.size:] if inverse else data, 32 if encoding == '32FC1' and not inverse else 16
    is_rvl = inverse and 'rvl' in form
    coded = decode_rvl(packed, megapixels) if is_rvl else decode_image(packed, cv2.IMREAD_UNCHANGED, megapixels)
    if coded is None or coded.dtype != (np.uint16 if bits == 16 else np.float32) or coded.ndim != 2:
        raise ValueError(f'its {len(data)} bytes hold no image of {bits} bits: check its sender')
    if not inverse or encoding != '32FC1':
        return coded
    _, scale, shift = HEADER.unpack_from(data)
    with np.errstate(divide='ignore', invalid='ignore'):
        return np.where(coded > 0, np.float32(scale) / (coded - np.float32(shift)), np.float32(np.nan))


def decode_rvl(data: bytes, megapixels: float | None = None) -> NDArray[np.uint16] | None:
    """Pixels (H, W) of run-length and variable-length codes (Wilson, Fast Lossless Depth Image Compression, ISS 2017).

    Numbers are groups of three bits, the lowest first, in nibbles whose highest bit says that more follow. They are, in turns, how
    many pixels are 0, how many are not, and the differences of these, signs in the lowest bit. None where that is not what the
    data are. Raises ValueError for an image that is too large.
    """
    if len(data) < SIZE.size:
        return None
    columns, rows = SIZE.unpack_from(data)
    check_megapixels((columns, rows), len(data), megapixels)
    numbers = _numbers(np.frombuffer(data, '<u4', len(data) // 4 - 2, SIZE.size))
    one_by_one, lengths = numbers.tolist(), list[int]()
    used, left = 0, columns * rows
    while left > 0 and used + 2 <= len(numbers):
        zeros, others = one_by_one[used:used + 2]
        lengths += zeros, others
        used, left = used + 2 + others, left - zeros - others
    if left or not lengths or used > len(numbers):
        return None
    runs = np.array(lengths).reshape(-1, 2)
    coded = numbers[:used][_second_of(np.stack([np.full(len(runs), 2), runs[:, 1]], axis=1))]
    pixels = np.zeros(columns * rows, np.uint16)
    pixels[_second_of(runs)] = np.cumsum((coded >> 1) ^ -(coded & 1)).astype(np.uint16)
    return pixels.reshape(rows, columns)


def _numbers(words: NDArray[np.uint32]) -> NDArray[np.int64]:
    """The numbers in words of eight nibbles; what follows the last whole one is left out."""
    nibbles = ((words[:, None] >> np.arange(28, -1, -4, dtype=np.uint32)) & 15).astype(np.uint8).ravel()
    last = np.flatnonzero(nibbles < 8)
    if not len(last):
        return np.zeros(0, np.int64)
    first = np.concatenate([[0], last[:-1] + 1])
    places = np.arange(last[-1] + 1) - np.repeat(first, last + 1 - first)
    return np.add.reduceat((nibbles[:last[-1] + 1] & 7).astype(np.int64) << np.minimum(3 * places, 57), first)


def _second_of(lengths: NDArray[Any]) -> NDArray[np.bool_]:
    """A mask that is false and true in turns, for these lengths (N, 2)."""
    return np.repeat(np.tile([False, True], len(lengths)), lengths.ravel())
