"""Bounds on the memory that a small file or message may need when it is decoded.

The node has a parameter for this. Commands and the library, and the processes that they start, read the environment.
"""

from __future__ import annotations

import os
import re
import warnings
from io import BytesIO
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from .errors import ConfigError

MEGAPIXELS, UNPACKED_MIB = 64.0, 256.0  # the defaults: above the largest common cameras, and above one of their raw images
MEGAPIXELS_VARIABLE = 'LIGHTGLUE_TRT_MAX_MEGAPIXELS'
UNPACKED_VARIABLE = 'LIGHTGLUE_TRT_MAX_UNPACKED_MIB'
PACKING = 64  # times its own size: a compressed file may become this large on disk, where that is more than the bound
_JPEG, _END = b'\xff\xd8\xff', b'\xff\xd9'  # how one begins and ends
_MARKER, _BEHIND_SCAN = re.compile(rb'\xff+([^\x00\xff])'), re.compile(rb'\xff+[^\x00\xff\xd0-\xd7]')
_SCAN, _RESTARTS, _SEQUENTIAL, _WITHOUT_LENGTH = 0xda, 0xdd, (0xc0, 0xc1), (0x01, *range(0xd0, 0xd9))
_FILLERS = b'\x55\xa3' * 64, b'\xd9\x6e' * 64  # that change pixels which are missing
_FORMATS = ('PNG', 'JPEG', 'BMP', 'PPM', 'TIFF', 'WEBP', 'GIF', 'JPEG2000')

warnings.filterwarnings('ignore', category=Image.DecompressionBombWarning)  # the errors here come with advice


def decode_image(data: bytes, flags: int, megapixels: float | None = None) -> NDArray[Any] | None:
    """`cv2.imdecode` of an image whose header names at most `megapixels`; None takes the bound of the environment.

    Returns None where the data are no image. Raises ValueError with the figures where the image is larger, or where a JPEG ends
    within its pixels (some OpenCV versions then return its upper part), cv2.error, ConfigError. Bytes behind its end do not count.
    """
    try:
        with Image.open(BytesIO(data), formats=_FORMATS) as header:
            size: tuple[int, int] | None = header.size
    except Image.DecompressionBombError:
        size = None
    except (OSError, SyntaxError, ValueError):  # all that the parsers of damaged headers raise
        return None
    check_megapixels(size, len(data), megapixels)
    return _decode_jpeg(data, flags) if data.startswith(_JPEG) else _decode(data, flags)


def check_megapixels(size: tuple[int, int] | None, packed: int, megapixels: float | None = None) -> None:
    """Raises ValueError where `packed` bytes hold an image of a (width, height) beyond `megapixels`; None: beyond Pillow's.

    `megapixels` as for `decode_image`.
    """
    allowed = _number(MEGAPIXELS_VARIABLE, MEGAPIXELS) if megapixels is None else megapixels
    if size is not None and size[0] * size[1] <= allowed * 1e6:
        return
    large = (f'more than {2e-6 * (Image.MAX_IMAGE_PIXELS or 0):.0f}' if size is None else
             f'{size[0]}x{size[1]} pixels, {size[0] * size[1] * 1e-6:.0f}')
    raise ValueError(f'{packed} bytes hold {large} megapixels where {allowed:g} are allowed: send smaller images, or raise '
                     f'{MEGAPIXELS_VARIABLE if megapixels is None else "max_megapixels"}')


def _decode(data: bytes, flags: int) -> NDArray[Any] | None:
    image: NDArray[Any] | None = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    return image


def _decode_jpeg(data: bytes, flags: int) -> NDArray[Any] | None:
    """Raises ValueError where pixels are missing. Where the end marker alone is, other bytes behind the pixels change nothing."""
    ended, sequential = _read_markers(data)
    if ended:
        return _decode(data, flags)
    if sequential:
        pixels = data.rstrip(b'\xff\x00')
        first, *others = (_decode_quietly(pixels + more + _END) for more in (b'', *_FILLERS))
        if first is not None and all(other is not None and np.array_equal(first, other) for other in others):
            return _decode(pixels + _END, flags)
    raise ValueError(f'the JPEG is cut off after {len(data)} bytes, its end marker is missing: check where it comes from')


def _decode_quietly(data: bytes) -> NDArray[Any] | None:
    """As `_decode`, of a JPEG that may be damaged: OpenCV's decoder writes a line to stderr about each one."""
    try:
        with Image.open(BytesIO(data), formats=('JPEG',)) as image:
            return np.asarray(image)
    except (OSError, SyntaxError, ValueError):
        return None


def _read_markers(data: bytes) -> tuple[bool, bool]:
    """Whether a JPEG has its end marker, or has begun a single scan that holds its pixels from first to last (ITU T.81, annex B).

    The data of a segment, such as a thumbnail in EXIF, are passed over by the segment's length.
    """
    at, sequential, restarts, scans = len(_JPEG) - 1, False, False, 0
    while marker := _MARKER.search(data, at):
        code, at = marker[1][0], marker.end()
        if code == _END[1]:
            return True, False
        if code in _WITHOUT_LENGTH:
            continue
        sequential, restarts = sequential or code in _SEQUENTIAL, restarts or code == _RESTARTS
        at += max(2, int.from_bytes(data[at:at + 2], 'big'))
        if code == _SCAN:
            scans += 1
            if (behind := _BEHIND_SCAN.search(data, at)) is None:
                break
            at = behind.start()
    return False, sequential and scans == 1 and not restarts


def max_unpacked() -> int:
    """Bytes that one compressed message, or chunk of a file, may become. Raises ConfigError."""
    return int(_number(UNPACKED_VARIABLE, UNPACKED_MIB) * 2**20)


def _number(variable: str, default: float) -> float:
    text = os.environ.get(variable) or str(default)
    try:
        value = float(text)
        if not value > 0:
            raise ValueError
    except ValueError:
        raise ConfigError(f'{variable} is {text!r}: it must be a number above 0') from None
    return value
