"""Cameras: intrinsics, distortion, and stereo rigs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..utils.errors import BagError
from .lens import EQUIDISTANT, IDEAL, RATIONAL, Lens, Undistorted, perspective
from .types import Float64

POLYNOMIAL = {'plumb_bob': 'plumb_bob', 'radial-tangential': 'plumb_bob', 'radtan': 'plumb_bob',
              'rational_polynomial': 'rational_polynomial'}
FISHEYE = ('equidistant', 'fisheye')
_NONE = ('', 'none')
_COUNTS = {'plumb_bob': (4, 5), 'rational_polynomial': (8, 12, 14), 'equidistant': (4,)}
_RECTIFIED = re.compile(r'(^|_)rect(ified)?(_|$)')  # in a topic's last name, as image_rect_color has it
LEAST_BASELINE_M = 1e-4


@dataclass(frozen=True, eq=False)
class Intrinsics:
    """A pinhole camera, as sensor_msgs/CameraInfo describes it. Raises BagError when it cannot be one."""

    width: int  # pixels
    height: int
    k: Float64  # (3, 3), pixels
    distortion_model: str  # plumb_bob, rational_polynomial or equidistant
    d: Float64  # (n,)
    rectification: Float64 = field(default_factory=lambda: np.eye(3))  # (3, 3): its axes to the rectified ones of a stereo pair
    shift_m: float = 0.0  # along the rectified x axis, from the pair's origin

    def __post_init__(self) -> None:
        if self.width <= 0 or self.height <= 0:
            raise BagError(f'the intrinsics are for {self.width}x{self.height} pixels')
        if self.k.shape != (3, 3) or not np.isfinite(self.k).all() or not np.isfinite(self.d).all():
            raise BagError(f'the intrinsics are not finite: K = {self.k.tolist()}, D = {self.d.tolist()}; calibrate the camera')
        if not (self.k[0, 0] > 0 and self.k[1, 1] > 0 and self.k[2, 2] == 1):
            raise BagError(f'the intrinsics are K = {self.k.tolist()}: the camera is not calibrated')

    @cached_property
    def lens(self) -> Lens:
        """How it distorts. Raises BagError as `distortion_model`."""
        model = distortion_model(self)
        return Lens(self.k, self.d, IDEAL if model is None else EQUIDISTANT if model == 'equidistant' else RATIONAL)

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of its images."""
        return self.height, self.width

    def same_as(self, other: Intrinsics) -> bool:
        """Whether all values are equal, wherever they come from."""
        names = (each.name for each in fields(self) if each.name != 'source')
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)

    @property
    def fold(self) -> str:
        """What is wrong where the lens model folds back inside the image, for people; empty: it does not."""
        farthest = float(np.hypot(*np.maximum(self.k[:2, 2], (self.width, self.height) - self.k[:2, 2])))
        if not self.lens.limit_px < farthest:
            return ''
        return (f'the distortion D = {self.d.tolist()} folds back {self.lens.limit_px:.0f} px from the principal point, a corner '
                f'is {farthest:.0f} px away: points beyond count as unknown; calibrate with points near the corners')

    def __str__(self) -> str:
        """For people: plumb_bob, fx 458.0, fy 457.0, 752x480."""
        model = self.distortion_model if self.lens.distorts else 'no distortion'
        return f'{model}, fx {self.k[0, 0]:.1f}, fy {self.k[1, 1]:.1f}, {self.width}x{self.height}'

    @property
    def projection(self) -> Float64:
        """P of its CameraInfo, (3, 4)."""
        column = np.array([[-self.k[0, 0] * self.shift_m if self.shift_m else 0.0], [0.0], [0.0]])
        return np.hstack([self.k, column])


def camera_info_topic(image_topic: str) -> str:
    """The topic of an image topic's CameraInfo: /camera/camera_info for /camera/image_raw[/compressed]."""
    return image_topic.removesuffix('/compressed').removesuffix('/compressedDepth').rpartition('/')[0] + '/camera_info'


def intrinsics_of(info: Any, image_topic: str) -> Intrinsics:
    """K and D of a sensor_msgs/CameraInfo; of rectified images (`image_rect`) its P, without distortion.

    Only StereoRig checks R and P. Raises BagError when the camera is not calibrated; `distortion_model` raises for unknown models.
    """
    k, d, model = np.array(info.k, np.float64).reshape(3, 3), np.array(info.d, np.float64), info.distortion_model
    rotation, projection = (np.array(values, np.float64).reshape(3, -1) for values in (info.r, info.p))
    shift = -float(projection[0, 3] / projection[0, 0]) if projection[0, 0] > 0 else 0.0
    if _RECTIFIED.search(image_topic.removesuffix('/compressed').rpartition('/')[2]) and projection[0, 0] > 0:
        k, d, model, rotation = projection[:, :3], np.zeros(5), 'plumb_bob', np.eye(3)
    return Intrinsics(info.width, info.height, k, model, d, rotation if rotation.any() else np.eye(3), shift)


def distortion_model(intrinsics: Intrinsics) -> str | None:
    """plumb_bob, rational_polynomial or equidistant; None where the camera is an ideal pinhole.

    An equidistant camera whose coefficients are zero is no pinhole; one without coefficients counts as one.
    Raises BagError when the model is unknown or has a wrong number of coefficients.
    """
    name, d = intrinsics.distortion_model.strip().lower(), intrinsics.d
    model = 'equidistant' if name in FISHEYE else POLYNOMIAL.get(name)
    if name in _NONE and not d.any():
        return None
    if model is None:
        raise BagError(f'distortion model {intrinsics.distortion_model!r} with D = {d.tolist()} is not known: '
                       f'{", ".join((*POLYNOMIAL, *FISHEYE))} are; undistort the images before recording, or calibrate anew')
    if d.size == 0 or (model != 'equidistant' and not d.any()):
        return None
    if d.size not in _COUNTS[model] and not (model == 'plumb_bob' and d.size in _COUNTS['rational_polynomial']):
        counts = ' or '.join(map(str, _COUNTS[model]))
        raise BagError(f'{intrinsics.distortion_model} has {counts} coefficients, not D = {d.tolist()}')
    return model


def undistort(points: ArrayLike, intrinsics: Intrinsics) -> Float64:
    """Map pixels (M, 2) of the camera's image to those of the ideal pinhole with the same K, (M, 2) float64.

    A row is NaN where the model has no inverse: the point is not finite, the polynomial folds back, or the ray is 90 degrees or
    more from the axis. Models as in sensor_msgs/CameraInfo. Raises BagError.
    """
    return intrinsics.lens.undistorted(points).points


def normalised(points: ArrayLike, intrinsics: Intrinsics) -> Float64:
    """Map pixels (M, 2) to the plane z = 1 in front of the camera, without distortion: (M, 2) float64, NaN rows as `undistort`."""
    camera = intrinsics.k
    return np.asarray(np.linalg.solve(camera[:2, :2], (undistort(points, intrinsics) - camera[:2, 2]).T).T, np.float64)


@dataclass(frozen=True, eq=False)
class StereoRig:
    """A left and a right camera by their CameraInfos: K and D, and the R and P of stereo calibration.

    Rectified images have the K of P, no D and no R. Of other images the points are rectified: rows on the rectified plane z = 1
    are the epipolar lines of the essential matrix R_right^T [baseline]x R_left. Raises BagError when the cameras are no pair, or
    are swapped.
    """

    left: Intrinsics
    right: Intrinsics

    def __post_init__(self) -> None:
        for name, camera in (('left', self.left), ('right', self.right)):
            r = camera.rectification
            if not (np.isfinite(r).all() and np.abs(r @ r.T - np.eye(3)).max() < 1e-3 and np.linalg.det(r) > 0):
                raise BagError(f'R of the {name} camera is {r.tolist()}, which is no rotation: calibrate the pair as one')
        if not np.isfinite(self.baseline_m):
            raise BagError(f'the baseline is {self.baseline_m} m: P of the CameraInfos is not finite; calibrate the pair as one')
        if self.baseline_m < -LEAST_BASELINE_M:
            raise BagError(f'left and right are swapped: by their CameraInfos the right camera stands {-self.baseline_m:.3f} m to '
                           'the left of the left one')
        if self.baseline_m < LEAST_BASELINE_M:
            raise BagError('the CameraInfos have no baseline: P[3] of the right one must be -fx * baseline, in metres; calibrate '
                           'the pair as one')

    @property
    def baseline_m(self) -> float:
        return self.right.shift_m - self.left.shift_m

    @property
    def focal_px(self) -> float:
        """Pixels of the left image for a length of 1 on the rectified plane."""
        return float(self.left.k[0, 0])

    def left_points(self, pixels: ArrayLike) -> Float64:
        """Pixels (M, 2) of the left image on the rectified plane z = 1, (M, 2); NaN where the ray does not meet it."""
        return _rectified(pixels, self.left).points

    def right_points(self, pixels: ArrayLike) -> Float64:
        """As `left_points`, of the right image: x is smaller than the left x by baseline over depth, y is equal."""
        return self.right_rectified(pixels).points

    def right_rectified(self, pixels: ArrayLike) -> Undistorted:
        """The same, with the derivative by the pixels of the right image."""
        return _rectified(pixels, self.right)


def _rectified(pixels: ArrayLike, camera: Intrinsics) -> Undistorted:
    straight, inverse = camera.lens.undistorted(pixels), np.linalg.inv(camera.k[:2, :2])
    rays = inverse @ (straight.points - camera.k[:2, 2]).T
    with np.errstate(divide='ignore', invalid='ignore'):
        points, slopes = perspective(camera.rectification, rays)
    points[:, ~(camera.rectification[2, :2] @ rays + camera.rectification[2, 2] > 0)] = np.nan
    return Undistorted(points.T, np.moveaxis(slopes, -1, 0) @ inverse @ straight.jacobians)
