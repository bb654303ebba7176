"""Bits and units of recorded images: lines for people where the used bits, or the unit of depth images, look wrong."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from ..core.depth import SATURATED, depth_pixels
from ..core.images import FEW_LEVELS, LAYOUTS, OUTER_PERCENT, check_image
from ..utils.errors import BagError, FrameError, ImageEncodingError
from ..utils.limits import decode_image
from .folder_recordings import DepthFolder
from .sequence import Frame, Recording, readable_frames

JUDGED_IMAGES = 20  # by which bits and units are judged
FILLED_BITS = (8, 10, 12, 14)  # of 16, by cameras
SATURATED_SHARE = 0.001  # of pixels: fewer are single ones beyond 65.5 m
NEAR, NEAR_M = 5, 0.25  # percent of depths, and metres: a Kinect measures from 0.5 m on, stereo cameras from 0.3
_JPEG = b'\xff\xd8\xff'  # how one begins


def bits_note(frames: Iterable[Frame], bits: int = 16) -> str:
    """A line for people if images of 16 bits are dark, saturated or nearly gray, as the camera fills other bits; empty if not.

    All frames count together. Images of 8 bits are never dark in this sense, and one ends the search.
    """
    largest = count = 0
    low, high = np.inf, -np.inf  # between which nearly all samples are
    for frame in frames:
        try:
            samples = samples_of_16_bits(frame.load())
        except (BagError, FrameError):
            continue
        if samples is None:
            return ''
        largest, count = max(largest, int(samples.max())), count + 1
        darkest, brightest = np.percentile(samples[::4, ::4], OUTER_PERCENT)
        low, high = min(low, darkest), max(high, brightest)
    used = next((some for some in FILLED_BITS if largest < 2**some), 16)
    levels = (high - low) / 2**(min(used, bits) - 8)  # by the best --image-bits
    if not largest or (used == bits and levels >= FEW_LEVELS):
        return ''
    if used <= bits and levels < FEW_LEVELS:
        return (f'the images have little contrast: nearly all samples of {count} images of 16 bits are from {low:.0f} to '
                f'{high:.0f}, which gives at most {levels:.0f} of 256 gray levels; record 8 bits, stretched to this range')
    found = f'the largest sample of {count} images of 16 bits is {largest}, which takes {used} bits'
    if used < bits:
        return f'the images are dark: {found}, not {bits}; if the camera fills {used}, give --image-bits {used}'
    return f'bright parts of the images are lost: {found}, more than --image-bits {bits}; give the number that the camera fills'


def samples_of_16_bits(msg: Any) -> NDArray[np.uint16] | None:
    """The samples of an Image or CompressedImage of 16 bits; None where it has 8 bits, or is no image.

    With those of many images you know how many bits the camera fills.
    """
    if hasattr(msg, 'format'):
        data = bytes(msg.data)
        if data.startswith(_JPEG) or 'compressedDepth' in msg.format:
            return None
        try:
            image = decode_image(data, cv2.IMREAD_UNCHANGED)
        except (ValueError, cv2.error):
            return None
        return None if image is None or image.dtype != np.uint16 or not image.size else np.asarray(image, np.uint16)
    layout = LAYOUTS.get(msg.encoding)
    if layout is None or layout.sample_bytes != 2:
        return None
    try:
        check_image(msg, layout.pixel_bytes)
    except ImageEncodingError:
        return None
    shape, strides = (msg.height, msg.width, layout.channels), (msg.step, layout.pixel_bytes, layout.sample_bytes)
    return np.asarray(np.ndarray(shape, '>u2' if msg.is_bigendian else '<u2', msg.data, 0, strides), np.uint16)


def median_depth(depth: Recording, on_note: Callable[[str], None]) -> float | None:
    """The median depth of the first images in metres, None without any; `on_note` gets a line that says why."""
    known, pixels_in_all, saturated, refusal = list[NDArray[np.float32]](), 0, 0, ''
    for frame in itertools.islice(readable_frames(depth, lambda line: None), JUDGED_IMAGES):
        try:
            pixels, unit_m = depth_pixels(frame.load(), per_metre=depth.depth_scale)
        except (BagError, FrameError) as error:
            refusal = refusal or str(error)
            continue
        some = pixels.ravel()[::7]
        full = some == SATURATED if some.dtype.kind == 'u' else np.isposinf(some) & isinstance(depth, DepthFolder)
        saturated, pixels_in_all = saturated + int(full.sum()), pixels_in_all + some.size
        known.append((some[np.isfinite(some) & (some > 0) & ~full] * unit_m).astype(np.float32))
    if saturated > SATURATED_SHARE * pixels_in_all:
        on_note(f'depth: {100 * saturated / pixels_in_all:.1f} % of the pixels are 65535, which is taken as unknown: write 0 there')
    if not sum(map(len, known)):
        why = f': {refusal}' if refusal else ''
        on_note(f'depth: the first images have none{why}; --depth-scale gives the units to a metre (1000 for millimetres, 5000 in '
                'TUM folders)')
        return None
    metres = np.concatenate(known)
    if isinstance(depth, DepthFolder) and depth.has_units_of_layout and (near_m := float(np.percentile(metres, NEAR))) < NEAR_M:
        on_note(f'depth: {NEAR} % of the pixels are nearer than {near_m:.2g} m, which few cameras measure, by the units of a TUM '
                'folder, 5000 to a metre: if these are millimetres, give --depth-scale 1000')
    return float(np.median(metres))
