"""Bounds on the memory that a small file or message may need when it is decoded.

The node has a parameter for this. Commands and the library, and the processes that they start, read the environment.
"""

from __future__ import annotations

import os
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
_FORMATS = ('PNG', 'JPEG', 'BMP', 'PPM', 'TIFF', 'WEBP', 'GIF', 'JPEG2000')

warnings.filterwarnings('ignore', category=Image.DecompressionBombWarning)  # the errors here come with advice


def decode_image(data: bytes, flags: int, megapixels: float | None = None) -> NDArray[Any] | None:
    """`cv2.imdecode` of an image whose header names at most `megapixels`; None takes the bound of the environment.

    Returns None where the data are no image. Raises ValueError with the figures where the image is larger, or where a JPEG lacks
    its end marker (some OpenCV versions then return its upper part), cv2.error, ConfigError.
    """
    if data.startswith(b'\xff\xd8\xff') and data.rfind(b'\xff\xd9') < data.rfind(b'\xff\xda'):
        raise ValueError(f'the JPEG is cut off after {len(data)} bytes, its end marker is missing: check where it comes from')
    allowed = _number(MEGAPIXELS_VARIABLE, MEGAPIXELS) if megapixels is None else megapixels
    try:
        with Image.open(BytesIO(data), formats=_FORMATS) as header:
            width, height = header.size
    except Image.DecompressionBombError:
        size = f'more than {2e-6 * (Image.MAX_IMAGE_PIXELS or 0):.0f}'
    except (OSError, SyntaxError, ValueError):  # all that the parsers of damaged headers raise
        return None
    else:
        if width * height <= allowed * 1e6:
            image: NDArray[Any] | None = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
            return image
        size = f'{width}x{height} pixels, {width * height * 1e-6:.0f}'
    raise ValueError(f'{len(data)} bytes hold {size} megapixels where {allowed:g} are allowed: send smaller images, or raise '
                     f'{MEGAPIXELS_VARIABLE if megapixels is None else "max_megapixels"}')


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
