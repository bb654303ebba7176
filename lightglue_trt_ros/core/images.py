"""Conversion of sensor_msgs/Image and CompressedImage, or objects with their fields, to gray, and back. No ROS here.

Encodings of cameras need a view into the message and at most one OpenCV call; all others need cv_bridge.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from ..utils.errors import BagError, ConfigError, FrameError, ImageEncodingError
from ..utils.limits import decode_image
from .types import UInt8


@dataclass(frozen=True)
class _Layout:
    """Positions of an encoding's samples (sensor_msgs/image_encodings.hpp), and their conversion to luma."""

    channels: int = 1
    sample_bytes: int = 1
    pixel_bytes: int = 1  # from one pixel's first sample to the next pixel's
    first: int = 0  # offset of the first sample: luma in packed YUV
    to_gray: int | None = None  # cv2 colour code; None: the samples are luma
    chroma_rows: float = 0.0  # of the luma plane's, in number: they follow it


def _layouts() -> dict[str, _Layout]:
    table = {'mono8': _Layout(), '8UC1': _Layout(), 'nv24': _Layout(chroma_rows=2.0)}
    table |= dict.fromkeys(('nv12', 'nv21'), _Layout(chroma_rows=0.5))
    table |= dict.fromkeys(('yuv422', 'uyvy'), _Layout(pixel_bytes=2, first=1))
    table |= dict.fromkeys(('yuv422_yuy2', 'yuyv'), _Layout(pixel_bytes=2))
    table |= dict.fromkeys(('mono16', '16UC1'), _Layout(sample_bytes=2, pixel_bytes=2))
    colours = (('rgb{}', '', 3, cv2.COLOR_RGB2GRAY), ('bgr{}', '{}UC3', 3, cv2.COLOR_BGR2GRAY),
               ('rgba{}', '', 4, cv2.COLOR_RGBA2GRAY), ('bgra{}', '{}UC4', 4, cv2.COLOR_BGRA2GRAY))
    # OpenCV names a mosaic after its second row's second and third pixels, ROS after the four at the top left.
    mosaics = (('rggb', cv2.COLOR_BayerBG2GRAY), ('bggr', cv2.COLOR_BayerRG2GRAY),
               ('gbrg', cv2.COLOR_BayerGR2GRAY), ('grbg', cv2.COLOR_BayerGB2GRAY))
    for size in (1, 2):
        for name, alias, channels, code in colours:
            layout = _Layout(channels, size, channels * size, to_gray=code)
            table |= {form.format(8 * size): layout for form in (name, alias) if form}
        for name, code in mosaics:
            table[f'bayer_{name}{8 * size}'] = _Layout(1, size, size, to_gray=code)
    return table


LAYOUTS = _layouts()  # by encoding: those that need no cv_bridge
OUTER_PERCENT, FEW_LEVELS = (1, 99), 16  # of samples; gray levels between these: thermal cameras have fewer in 16 bits
DEPTH_ENCODINGS = ('16UC1', '32FC1')  # in millimetres and in metres, by REP 118
_IN_WORDS = 'mono8, rgb8, bgr8, rgba8, bgra8, bayer_*8, 8UC1/3/4, the same in 16 bits, yuv422, yuv422_yuy2, nv12, nv21, nv24'
_NUMBERS = re.compile(r'(8S|16S|32S|32F|64F)C[1-4]|(8|16)UC2')  # of sensor_msgs/image_encodings: not of brightness


def gray_from_image(msg: Any, bits: int = 16) -> UInt8:
    """Luma of an Image, uint8 (height, width); a view that shares the message's memory wherever no arithmetic is needed.

    YUV gives its luma plane. 16-bit samples give their top byte, also in dark frames: a gain by each frame's brightness would
    change a point's descriptor between frames. Set `bits` (8 to 16) for a camera that fills the low 10, 12 or 14 bits: samples
    are then multiplied by 2^(8 - bits), rounded, and saturated at 255.

    Raises ImageEncodingError when the encoding is unknown or size, step and data do not fit each other.
    """
    layout = LAYOUTS.get(msg.encoding)
    if layout is None:
        return _through_cv_bridge(msg)
    check_image(msg, layout.pixel_bytes, layout.chroma_rows)
    shape = (msg.height, msg.width, layout.channels)
    strides = (msg.step, layout.pixel_bytes, layout.sample_bytes)
    if layout.sample_bytes == 2 and bits != 16:
        wide = np.ndarray(shape, '>u2' if msg.is_bigendian else '<u2', msg.data, 0, strides)
        samples = _scale(wide, bits)
    else:
        low_byte_first = layout.sample_bytes == 2 and not msg.is_bigendian
        samples = np.ndarray(shape, np.uint8, msg.data, layout.first + low_byte_first, strides)
    pixels = samples if layout.channels > 1 else samples[..., 0]
    return pixels if layout.to_gray is None else _to_gray(pixels, layout.to_gray)


def gray_from_compressed(msg: Any, bits: int = 16, megapixels: float | None = None) -> UInt8:
    """Luma of a CompressedImage (JPEG, PNG, whatever OpenCV reads), uint8 (H, W), EXIF orientation ignored.

    `bits` is that of `gray_from_image`. A mosaic that compressed_image_transport stored unchanged ('bayer_rggb8; png compressed ')
    is demosaiced. A JPEG without its end marker is refused, although some OpenCV versions return its upper part. Images of more
    than `megapixels` (None: the limit of `limits`) are not decoded.

    Raises ImageEncodingError.
    """
    data = bytes(msg.data)
    what = f'compressed image of format {msg.format!r:.60}, {len(data)} bytes'
    if 'compressedDepth' in msg.format:
        raise ImageEncodingError(f'{what} is a depth image: subscribe to the compressed intensity or colour image')
    if not data:
        raise ImageEncodingError(f'{what}: there is nothing to decode, check the publisher')
    flags = cv2.IMREAD_GRAYSCALE | cv2.IMREAD_IGNORE_ORIENTATION | (cv2.IMREAD_ANYDEPTH if bits != 16 else 0)
    try:
        image = decode_image(data, flags, megapixels)
    except ValueError as error:
        raise ImageEncodingError(f'{what}: {error}') from None
    except cv2.error as error:
        raise ImageEncodingError(f'{what}: OpenCV refuses it ({error.err}); check the publisher') from error
    if image is None or image.size == 0 or image.dtype not in (np.uint8, np.uint16):
        raise ImageEncodingError(f'{what} starting {data[:8].hex(" ")}: it cannot be decoded, send whole JPEG or PNG files')
    gray = _scale(image, bits) if image.dtype == np.uint16 else np.asarray(image, np.uint8)
    source, _, stored = msg.format.partition(';')
    stored = stored.partition('compressed')[2].strip()
    mosaic = LAYOUTS.get(source) if source.startswith('bayer_') and stored in ('', source) else None
    return gray if mosaic is None or mosaic.to_gray is None else _to_gray(gray, mosaic.to_gray)


def gray_of(msg: Any, bits: int = 16, megapixels: float | None = None) -> UInt8:
    """`gray_from_compressed` of a CompressedImage, `gray_from_image` of an Image; their fields differ."""
    return gray_from_compressed(msg, bits, megapixels) if hasattr(msg, 'format') else gray_from_image(msg, bits)


def eight_bits(samples: NDArray[Any], bits: int = 16) -> UInt8:
    """8 bits of 16-bit samples of any shape, as `gray_from_image` makes them: the top byte, or the top 8 of the low `bits`."""
    return (samples >> 8).astype(np.uint8) if bits == 16 else _scale(samples, bits)


def fill_image(msg: Any, image: UInt8, encoding: str) -> Any:
    """Fill an Image with uint8 (H, W) or (H, W, channels), in an encoding of as many bytes per pixel (bgr8).

    Raises ImageEncodingError when the array and the encoding do not fit.
    """
    layout = LAYOUTS.get(encoding)
    channels = image.shape[2] if image.ndim == 3 else 1
    fits = image.ndim in (2, 3) and image.dtype == np.uint8 and image.size > 0
    if layout is None or layout.chroma_rows or layout.pixel_bytes != channels or not fits:
        raise ImageEncodingError(f'cannot send a {image.dtype} array of shape {image.shape} as {encoding!r:.60}: '
                                 'use uint8 (H, W) with mono8, or (H, W, 3) with bgr8 or rgb8')
    msg.height, msg.width, msg.encoding, msg.step = *image.shape[:2], encoding, image.shape[1] * channels
    msg.data.frombytes(np.ascontiguousarray(image).reshape(-1))
    return msg


def check_gray(image: Any, name: str, wanted: str = 'FrameMatcher takes gray uint8 (H, W)') -> None:
    """Raise FrameError unless it is a uint8 array (H, W); `wanted` says for people what is."""
    if not isinstance(image, np.ndarray) or image.ndim != 2 or image.dtype != np.uint8 or not image.size:
        shown = f'{image.dtype} {image.shape}' if isinstance(image, np.ndarray) else f'no array but {type(image).__name__}'
        raise FrameError(f'{name} is {shown}: {wanted}')


def check_image(msg: Any, pixel_bytes: int = 1, chroma_rows: float = 0.0) -> None:
    """Raise ImageEncodingError unless an Image holds the rows that it declares; `chroma_rows` are of chroma, for one of luma."""
    what = f'image {msg.width}x{msg.height} {msg.encoding!r:.60}, step {msg.step}, {len(msg.data)} bytes'
    if msg.width < 1 or msg.height < 1:
        raise ImageEncodingError(f'{what}: it has no pixels; check the camera driver')
    if msg.step < msg.width * pixel_bytes:
        raise ImageEncodingError(f'{what}: one row needs {msg.width * pixel_bytes} bytes, more than step; '
                                 'the driver must set step to the full row length in bytes, padding included')
    rows = msg.height + math.ceil(chroma_rows * msg.height)
    missing = msg.step * rows - len(msg.data)
    if missing < 0:  # cv_bridge refuses it: rows or planes are longer than the message says, and the picture would be sheared
        raise ImageEncodingError(f'{what}: there are {-missing} bytes more than step x {rows} rows, {msg.step * rows}; '
                                 'the driver must set step to the full row length in bytes, and height to the rows that it sends')
    if missing > 0:
        raise ImageEncodingError(f'{what}: {missing} bytes are missing, step x {rows} rows is {msg.step * rows}; '
                                 'the message was cut short or its size is wrong, check the camera driver')


def _scale(samples: NDArray[Any], bits: int) -> UInt8:
    """16-bit samples of which the low `bits` count, any shape and byte order, to uint8 of the same shape."""
    if not 8 <= bits <= 16:
        raise ConfigError(f'bits is {bits}: a 16-bit image has 8 to 16 significant bits')
    aligned = np.require(samples, np.uint16, ['C', 'A'])  # OpenCV misreads 16-bit rows at odd addresses
    return np.asarray(cv2.convertScaleAbs(aligned, alpha=2.0 ** (8 - bits)), np.uint8).reshape(samples.shape)


def _to_gray(pixels: UInt8, code: int) -> UInt8:
    if pixels.ndim == 2 and min(pixels.shape) < 3:  # OpenCV answers such a mosaic with zeros
        raise ImageEncodingError(f'a Bayer image of {pixels.shape[1]}x{pixels.shape[0]} pixels is too small: '
                                 'demosaicing needs 3x3, send whole frames')
    return np.asarray(cv2.cvtColor(pixels, code), np.uint8)


def _through_cv_bridge(msg: Any) -> UInt8:
    refusal = f'image encoding {msg.encoding!r:.60} is none of {_IN_WORDS}'
    if _NUMBERS.fullmatch(msg.encoding):
        raise ImageEncodingError(f'{refusal}: its numbers are no brightness; set the camera to one of them'
                                 + (', or give the images as depth' if msg.encoding in DEPTH_ENCODINGS else ''))
    try:
        from cv_bridge import CvBridge
    except Exception as error:  # built for another numpy it fails in its own ways
        raise ImageEncodingError(f'{refusal}; else install cv_bridge ({error})') from error
    check_image(msg)
    try:
        gray = np.asarray(CvBridge().imgmsg_to_cv2(msg, 'mono8'))
    except Exception as error:  # CvBridgeError, cv2.error, and what numpy raises
        raise ImageEncodingError(f'{refusal}, and cv_bridge refuses it: {error}; set the camera to one of them') from error
    if gray.shape != (msg.height, msg.width) or gray.dtype != np.uint8:
        raise ImageEncodingError(f'{refusal}, and cv_bridge made {gray.dtype} {gray.shape} of it; set the camera to one of them')
    return gray


def view_image(raw: bytes) -> Any:
    """Fields of an Image in little-endian CDR, which all common machines write; `data` is a view. None: deserialise these bytes.

    Its strings have a length in 4 bytes and end in a zero; its numbers of 4 bytes are aligned.
    """
    try:
        at = 16 + struct.unpack_from('<I', raw, 12)[0]  # of frame_id, behind encapsulation and stamp
        at += -at % 4
        height, width, length = struct.unpack_from('<III', raw, at)
        encoding, at = raw[at + 12:at + 11 + length].decode(), at + 12 + length
        is_bigendian, at = raw[at], at + 1
        at += -at % 4
        step, length = struct.unpack_from('<II', raw, at)
    except (struct.error, IndexError, UnicodeDecodeError):
        return None
    data = memoryview(raw)[at + 8:at + 8 + length]
    return None if raw[:2] != b'\0\1' or len(data) < length else SimpleNamespace(
        height=height, width=width, encoding=encoding, is_bigendian=is_bigendian, step=step, data=data)


def stamp_of(raw: bytes, where: str) -> int:
    """header.stamp in nanoseconds of a serialised message: after 4 bytes of encapsulation, int32 seconds, uint32 nanoseconds.

    Raises BagError.
    """
    if len(raw) < 12 or raw[0] != 0:
        raise BagError(f'{where} is {len(raw)} bytes that are no serialised message: the bag is damaged')
    seconds, nanoseconds = struct.unpack_from('<iI' if raw[1] & 1 else '>iI', raw, 4)
    return int(seconds) * 10**9 + int(nanoseconds)
