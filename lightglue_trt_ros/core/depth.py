"""Depth images that are registered to a camera's frames: decoding of messages, and the depth of points. No ROS here."""

from __future__ import annotations

from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from ..utils.compressed_depth import unpacked
from ..utils.errors import FrameError
from .cameras import Intrinsics, normalised
from .images import check_image
from .types import Float32

NOISE = 0.0025  # 1 / metre: standard deviation of z over z squared, of structured light and stereo depth cameras
JUMP = 0.05  # share of z between neighbouring pixels: beyond it they are of two surfaces
NEAREST_M, FARTHEST_M = 0.05, 100.0  # medians beyond which the unit must be wrong
LEAST_M, MOST_M = 1e-4, 1e5  # of a depth: beyond them it is no measurement, and its square leaves float32
SATURATED = 65535  # of 16 bits: unknown, or too far for them
_KINDS = {'16UC1': ('u2', 1e-3), 'mono16': ('u2', 1e-3), '32FC1': ('f4', 1.0)}  # type of a pixel, metres to its unit (REP 118)


class DepthImage(NamedTuple):
    """Distances along the optical axis, for each pixel of a frame."""

    pixels: NDArray[Any]  # (H, W) uint16 or float32; 0, 65535, negative or not finite where unknown
    unit_m: float  # metres to 1
    camera: Intrinsics  # of the frame, for its directions
    noise: float = NOISE


class Positions(NamedTuple):
    """M points in the optical frame of a camera (x right, y down, z forward), NaN where unknown."""

    xyz: Float32  # (M, 3) metres
    sigma_z: Float32  # (M,) metres, standard deviation of z

    @classmethod
    def along(cls, rays: NDArray[Any], z: NDArray[Any], sigma_z: NDArray[Any]) -> Positions:
        """Points at depths z (M,) on rays (M, 2) of the plane z = 1; unknown where any value is not finite."""
        x, y = rays.T
        known = np.isfinite(x + y + z + sigma_z)
        z, sigma_z = (np.where(known, each, np.nan).astype(np.float32) for each in (z, sigma_z))
        return cls(np.stack([x * z, y * z, z], axis=1).astype(np.float32), sigma_z)


def depth_pixels(msg: Any, megapixels: float | None = None, per_metre: float | None = None) -> tuple[NDArray[Any], float]:
    """`depth_from_compressed` of a CompressedImage, `depth_from_image` of an Image; their fields differ."""
    return depth_from_compressed(msg, megapixels, per_metre) if hasattr(msg, 'format') else depth_from_image(msg, per_metre)


def depth_from_image(msg: Any, per_metre: float | None = None) -> tuple[NDArray[Any], float]:
    """Pixels (H, W) of a sensor_msgs/Image, a view of its data, and metres to their unit. Raises FrameError.

    `per_metre` are units to a metre; without it those of the encoding, 1000 of 16UC1 and 1 of 32FC1.
    """
    kind = _KINDS.get(msg.encoding)
    if kind is None:
        raise FrameError(f'its encoding is {msg.encoding!r:.60}: depth is 16UC1 in millimetres or 32FC1 in metres (REP 118)')
    form = np.dtype(('>' if msg.is_bigendian else '<') + kind[0])
    check_image(msg, form.itemsize)
    unit_m = 1 / per_metre if per_metre else kind[1]
    return check_unit(np.ndarray((msg.height, msg.width), form, msg.data, 0, (msg.step, form.itemsize)), unit_m)


def depth_from_compressed(msg: Any, megapixels: float | None = None, per_metre: float | None = None) -> tuple[NDArray[Any], float]:
    """The same of a sensor_msgs/CompressedImage of compressed_depth_image_transport, as `unpacked`. Raises FrameError.

    The format 'png' is 16UC1. `megapixels` as in `limits.decode_image`, `per_metre` as in `depth_from_image`.
    """
    encoding = '16UC1' if msg.format == 'png' else msg.format.partition(';')[0].strip()
    if encoding not in _KINDS or 'jpeg' in msg.format:
        raise FrameError(f'its format is {msg.format!r:.60}: compressedDepth with PNG or RVL, of 16UC1 or 32FC1, can be read')
    try:
        pixels = unpacked(bytes(msg.data), msg.format, encoding, megapixels)
    except (ValueError, cv2.error) as error:
        raise FrameError(f'{error}') from None
    return check_unit(pixels, 1 / per_metre if per_metre else _KINDS[encoding][1])


def check_unit(pixels: NDArray[Any], unit_m: float) -> tuple[NDArray[Any], float]:
    """Pixels and metres to their unit, as they are. Raises FrameError where the median of some pixels shows that it is wrong."""
    known = _known(pixels)[0]
    median_m = float(np.median(known)) * unit_m if known.size else NEAREST_M
    if not NEAREST_M <= median_m <= FARTHEST_M:
        how = {('u', True): '16UC1 is in millimetres (REP 118), multiply by 1000 or publish 32FC1',
               ('f', False): 'it must be in metres (32FC1 of REP 118), divide by 1000, publish 16UC1, or check its scale'}
        size = f'{median_m:.3g}' if median_m < 1 else f'{median_m:.0f}'
        raise FrameError(f'its median is {size} m: ' + how.get(
            (pixels.dtype.kind, median_m < 1), f'its unit, {unit_m:g} m, must be wrong: that of millimetres is 0.001'))
    return pixels, unit_m


def share_known(pixels: NDArray[Any]) -> float:
    """The share of known pixels, 0 to 1, of one in 256."""
    known, count = _known(pixels)
    return float(known.size / max(count, 1))


def _known(pixels: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """The known ones of a pixel in 256, and how many these are."""
    some = pixels[::16, ::16]
    return some[np.isfinite(some) & (some > 0) & ((some < SATURATED) if some.dtype.kind == 'u' else True)], some.size


def locate(depth: DepthImage, points: Float32, covariances: Float32) -> Positions:
    """Positions of the frame's points (M, 2), pixels, with covariances (M, 2, 2).

    Within a surface, inverse depth is interpolated from four pixels: it is linear on a plane. Where some of them are unknown, the
    nearest pixel counts. Where they are of two surfaces, the point is on either, so its depth is unknown.
    The variance of z is that of the depth image, (noise z^2)^2, and that of the point, along the slope of the surface.
    """
    height, width = depth.pixels.shape
    points = np.asarray(points, np.float32)
    u, v = points.T
    inside = (u > -0.5) & (u < width - 0.5) & (v > -0.5) & (v < height - 0.5)  # false for NaN
    left, right, across = _neighbours(np.where(inside, u, 0), width)
    above, below, down = _neighbours(np.where(inside, v, 0), height)
    stored = np.stack([depth.pixels[row, column] for row in (above, below) for column in (left, right)])  # (4, M)
    four = stored.astype(np.float32) * np.float32(depth.unit_m)
    known = (four > LEAST_M) & (four < MOST_M)  # false for NaN
    if stored.dtype.kind == 'u':
        known &= stored < SATURATED
    four[~known] = np.nan
    inverse = 1 / four
    nearest = inverse[2 * (down >= 0.5) + (across >= 0.5), np.arange(len(points))]
    along_rows = inverse[1::2] - inverse[::2]  # of the upper and of the lower row
    top, bottom = inverse[::2] + along_rows * across
    whole = known.all(axis=0)
    apart = np.fmax.reduce(inverse) > np.fmin.reduce(inverse) * (1 + JUMP)
    z = 1 / np.where(inside & ~apart, np.where(whole, top + (bottom - top) * down, nearest), np.float32(np.nan))
    du, dv = along_rows[0] * (1 - down) + along_rows[1] * down, bottom - top  # the slope of inverse depth
    by_point = (du * covariances[:, 0, 0] + 2 * dv * covariances[:, 0, 1]) * du + dv * dv * covariances[:, 1, 1]
    sigma_z = z * z * np.sqrt(np.float32(depth.noise)**2 + np.where(whole, np.maximum(by_point, 0), 0))
    return Positions.along(normalised(points, depth.camera), z, sigma_z)


def _neighbours(place: Float32, size: int) -> tuple[NDArray[np.intp], NDArray[np.intp], Float32]:
    """The pixels before and behind each place (M,) of an image side, and how far it is from the first to the second, 0 to 1."""
    place = np.minimum(np.maximum(place, 0), size - 1)
    first = np.minimum(place.astype(np.intp), max(size - 2, 0))
    return first, np.minimum(first + 1, size - 1), place - first.astype(np.float32)
