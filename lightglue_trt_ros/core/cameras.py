"""Cameras: intrinsics, distortion, and stereo rigs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..utils.errors import BagError
from .geometry import Size
from .lens import EQUIDISTANT, IDEAL, RATIONAL, Lens, Undistorted, perspective
from .types import Float64

POLYNOMIAL = {'plumb_bob': 'plumb_bob', 'radial_tangential': 'plumb_bob', 'radtan': 'plumb_bob',  # - and spaces are _ here
              'rational_polynomial': 'rational_polynomial', 'brown_conrady': 'plumb_bob'}
FISHEYE = ('equidistant', 'fisheye', 'kannala_brandt', 'kannala_brandt4')
_NONE = ('', 'none', 'pinhole', 'perspective', 'inverse_brown_conrady')  # the last is RealSense's, mostly of zeros
LARGEST_COEFFICIENT = 1e6  # of a lens; rational models of real ones come to some thousands
_COUNTS = (4, 5, 8, 12, 14)  # under either name: those that are left out are zero
_TRANSPORT = re.compile(r'(?<=[^/])/(compressed|compressedDepth|theora|zstd|ffmpeg|foxglove|h264)$')  # image_transport's plugins
_RECTIFIED = re.compile(r'(?<!not)(?<!non)(?<!un)(^|_)rect(ified)?(_|$)')  # in a name of a topic, as image_rect_color has it
_RAW = re.compile(r'(^|_)raw(_|$)')
_ENDS_OF_FRAMES = re.compile(r'(_(optical|frame|link))+$')
REGISTERED_PX = 1.0  # two calibrations of one camera give a pixel the same ray, to this accuracy
JITTER = 1e-3  # of the image's width, of R and of the shift: calibrations that differ by less count as one
LEAST_BASELINE_M, MOST_BASELINE_M = 2e-3, 10.0  # of a rig; endoscopes have 4 mm, and a P[3] without fx gives less
_FOCAL_SIDES = 0.03, 1e4  # focal length over the image's side: a fisheye of 360 degrees on a fifth of it, and space telescopes
_AXIS_FOCAL = 5.0  # from the image to its principal point, focal lengths: the tangent of 79 degrees, which no lens shows so far off


@dataclass(frozen=True, eq=False)
class Intrinsics:
    """A pinhole camera, as sensor_msgs/CameraInfo describes it. It holds copies. Raises BagError when it cannot be one."""

    width: int  # pixels
    height: int
    k: Float64  # (3, 3), pixels
    distortion_model: str  # plumb_bob, rational_polynomial or equidistant
    d: Float64  # (n,), given in any shape
    rectification: Float64 = field(default_factory=lambda: np.eye(3))  # (3, 3): its axes to the rectified ones of a stereo pair
    shift_m: float = 0.0  # along the rectified x axis, from the pair's origin
    source: str = ''  # where the calibration comes from, for people: a file, or CameraInfo on a topic

    def __post_init__(self) -> None:
        for name in ('k', 'd', 'rectification'):
            values = np.array(getattr(self, name), np.float64, order='C')
            object.__setattr__(self, name, values.ravel() if name == 'd' else values)  # OpenCV's are (1, n) or (n, 1)
        if self.k.shape != (3, 3) or self.rectification.shape != (3, 3):
            raise BagError(f'K of the intrinsics is {self.k.shape}, and R {self.rectification.shape}: both are (3, 3)')
        if self.width <= 0 or self.height <= 0:
            raise BagError(f'the intrinsics are for {self.width}x{self.height} pixels: set width and height to those of the images')
        if not np.isfinite(self.k).all() or not np.isfinite(self.d).all():
            raise BagError(f'the intrinsics are not finite: K = {self.k.tolist()}, D = {self.d.tolist()}; calibrate the camera')
        if not (self.k[0, 0] > 0 and self.k[1, 1] > 0 and self.k[2, 2] == 1):
            raise BagError(f'the intrinsics are K = {self.k.tolist()}: the camera is not calibrated')
        focal, middle, size = self.k[[0, 1], [0, 1]], self.k[:2, 2], np.array([self.width, self.height])
        shares, off, below = focal / size, np.maximum(-middle, middle - size) / focal, self.k[[1, 2, 2], [0, 0, 1]]
        if (shares < _FOCAL_SIDES[0]).any() or (shares > _FOCAL_SIDES[1]).any() or (off > _AXIS_FOCAL).any() or below.any():
            raise BagError(f'no lens has K = {self.k.tolist()} for {self.width}x{self.height} pixels: the camera is not '
                           'calibrated, or its K is not in pixels')

    @cached_property
    def lens(self) -> Lens:
        """How it distorts. Raises BagError as `distortion_model`."""
        model = distortion_model(self)
        return Lens(self.k, self.d, IDEAL if model is None else EQUIDISTANT if model == 'equidistant' else RATIONAL)

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of its images."""
        return self.height, self.width

    def nearly(self, other: Intrinsics) -> bool:
        """Whether rays, R and shift differ by JITTER at most: with autofocus each image has a K of its own."""
        return (same_view(self, other, JITTER * self.width) and np.allclose(self.rectification, other.rectification, 0.0, JITTER)
                and bool(np.isclose(self.shift_m, other.shift_m, rtol=JITTER, atol=0.0, equal_nan=True)))

    @property
    def fold(self) -> str:
        """What is wrong where the lens model folds back inside the image, for people; empty: it does not."""
        farthest = float(np.hypot(*np.maximum(self.k[:2, 2], (self.width, self.height) - self.k[:2, 2])))
        if not self.lens.limit_px < farthest:
            return ''
        return (f'the distortion D = {self.d.tolist()} folds back {self.lens.limit_px:.0f} px from the principal point, a corner '
                f'is {farthest:.0f} px away: points beyond count as unknown; calibrate with points near the corners')

    def __str__(self) -> str:
        """For people: plumb_bob, fx 458.0, fy 457.0, 752x480, cx 367.0, cy 248.0, D [-0.28, 0.07, 0.0002, 0.00002]."""
        (fx, _, cx), (_, fy, cy) = self.k[:2].tolist()
        d = f', D {[float(f"{each:.4g}") for each in self.d]}' * bool(self.lens.distorts)
        model, shift = self.distortion_model if d else 'no distortion', f', x {self.shift_m:.4g} m in the pair' * bool(self.shift_m)
        return f'{model}, fx {fx:.1f}, fy {fy:.1f}, {self.width}x{self.height}, cx {cx:.1f}, cy {cy:.1f}{d}{shift}'

    @property
    def projection(self) -> Float64:
        """P of its CameraInfo, (3, 4)."""
        column = np.array([[-self.k[0, 0] * self.shift_m if self.shift_m else 0.0], [0.0], [0.0]])
        return np.hstack([self.k, column])


def without_transport(image_topic: str) -> str:
    """The topic of the images themselves: /camera/image_raw for /camera/image_raw/compressed and its other transports."""
    return _TRANSPORT.sub('', image_topic)


def is_rectified(topic: str) -> bool:
    """Whether the names of an image topic or CameraInfo topic say that its images are rectified.

    The last name that says rect or raw decides: image_rect, image_rect_raw, rect/image and /rectified/left/image are rectified,
    image_raw and rect/image_raw are not.
    """
    for name in reversed(without_transport(topic).split('/')):
        if _RECTIFIED.search(name):
            return True
        if _RAW.search(name):
            return False
    return False


def camera_info_topics(image_topic: str) -> tuple[str, ...]:
    """The topics that may have an image topic's CameraInfo, the first one that exists counts.

    /camera/camera_info for /camera/image_raw, whatever its transport, and camera_info for image_raw. Of rectified images
    camera_info_rect comes first, where Isaac ROS has the calibration of those.
    """
    base = without_transport(image_topic)
    place = base[:base.rfind('/') + 1]
    return (place + 'camera_info_rect', place + 'camera_info') if is_rectified(base) else (place + 'camera_info',)


def camera_info_places(image_topic: str) -> tuple[str, ...]:
    """These topics, and last the one below the images, as ZED and MYNT EYE have it: /rect/image/camera_info for /rect/image."""
    return *camera_info_topics(image_topic), f'{without_transport(image_topic)}/camera_info'


def camera_info_topic(image_topic: str) -> str:
    """The usual topic of an image topic's CameraInfo: /camera/camera_info for /camera/image_raw[/compressed]."""
    return camera_info_topics(image_topic)[-1]


def same_frame(one: str, other: str) -> bool:
    """Whether two frame_ids can be of one camera: equal, or one is empty.

    Slashes at the ends, the prefix of a robot, and the endings _optical, _frame and _link do not count: drivers mix
    camera_color_frame and camera_color_optical_frame.
    """
    first, second = (_ENDS_OF_FRAMES.sub('', frame.strip('/')) for frame in (one, other))
    return not first or not second or first == second or first.endswith('/' + second) or second.endswith('/' + first)


@np.errstate(all='ignore')  # of numbers that are refused
def intrinsics_of(info: Any, image_topic: str, size: Size | None = None, topic: str = '') -> Intrinsics:
    """The camera of images, by a sensor_msgs/CameraInfo: its K and D, or its P without distortion if they are rectified.

    K and P are of the whole sensor, `width` x `height` pixels. Images of that size have them as they are. Images that have the size
    of the message's ROI after its binning have them moved to that: u' = (u - x_offset + 0.5) / binning_x - 0.5, since the centre of
    the first pixel is (0, 0). (image_geometry leaves out the half pixels.) A rectified image is cut as the raw one, as image_proc
    does it.

    Args:
        image_topic: Of the images; its names say whether they are rectified (`is_rectified`).
        size: Of the images (height, width). None: unknown, K is as the message has it.
        topic: Where the message came from, for `source`.

    Raises:
        BagError: The camera is not calibrated, or binning and ROI do not give the images' size. `distortion_model` raises for
            unknown models, and StereoRig checks R and P.
    """
    k, d, model = np.array(info.k, np.float64).reshape(3, 3), np.array(info.d, np.float64), info.distortion_model
    rotation, projection = (np.array(values, np.float64).reshape(3, -1) for values in (info.r, info.p))
    source = f'CameraInfo on {topic}' if topic else ''
    known = is_camera(projection[:, :3])
    shift = -float(projection[0, 3] / projection[0, 0]) if projection[0, 0] > 0 else 0.0
    rectified = is_rectified(image_topic) or (not is_camera(k) and any(map(_RECTIFIED.search, image_topic.split('/'))))
    if rectified and known:
        k, d, model, rotation = projection[:, :3].copy(), np.zeros(5), 'plumb_bob', np.eye(3)
        source = f'{source}, its P' if source else ''
    elif rectified and d.any():
        raise BagError(f'P of the CameraInfo is {projection.tolist()}: the images on {image_topic} are rectified, and of those P '
                       'counts, not K and D; set P (camera_calibration does), or give the calibration of these images')
    if not is_camera(k):
        raise BagError(f'K of the CameraInfo is {k.tolist()}: the camera is not calibrated'
                       + (f'; its P is, which counts for rectified images, but {image_topic} does not say rect' if known else ''))
    width, height, change = _shown(info, size)
    if change is not None:
        k, source = change @ k, f'{source}, with its binning and ROI' if source else ''
    return Intrinsics(width, height, k, model, d, rotation if rotation.any() else np.eye(3), shift, source)


def is_camera(k: Float64) -> bool:
    """False for the identity and zeros, which drivers send without a calibration; Intrinsics checks the rest."""
    return not (k[0, 0] == k[1, 1] and k[0, 0] in (0, 1))


def _shown(info: Any, size: Size | None) -> tuple[int, int, Float64 | None]:
    """Width and height of images of `size` by a CameraInfo, and the matrix (3, 3) from the sensor's pixels to theirs, if another.

    Raises BagError where binning and ROI do not give this size.
    """
    binning = tuple(max(int(getattr(info, name, 0)), 1) for name in ('binning_x', 'binning_y'))
    roi = getattr(info, 'roi', None)
    x, y, width, height = 0, 0, info.width, info.height
    if roi is not None and roi.width and roi.height:
        x, y, width, height = roi.x_offset, roi.y_offset, roi.width, roi.height
    whole = (x, y, width, height) == (0, 0, info.width, info.height)
    if size is None or size == (info.height, info.width) or (whole and binning == (1, 1)):
        return info.width, info.height, None
    fits = [by in (side // bins, -(-side // bins)) for by, side, bins in zip(size, (height, width), binning[::-1], strict=True)]
    if not all(fits):
        region = '' if whole else f', roi {width}x{height} at x_offset {x}, y_offset {y}'
        raise BagError(f'the CameraInfo is for {info.width}x{info.height} pixels, with binning_x {binning[0]}, binning_y '
                       f'{binning[1]}{region}: that gives {width // binning[0]}x{height // binning[1]} pixels, the images have '
                       f'{size[1]}x{size[0]}; correct binning and roi in the driver, or give the calibration of these images')
    change = np.eye(3)
    for axis, (offset, bins) in enumerate(zip((x, y), binning, strict=True)):
        change[axis, axis], change[axis, 2] = 1 / bins, (0.5 - offset) / bins - 0.5
    return size[1], size[0], change


def same_view(one: Intrinsics, other: Intrinsics, most_px: float = REGISTERED_PX) -> bool:
    """Whether a pixel has the same ray in both cameras, to `most_px` everywhere in the image: size, K, model and D count."""
    if (one.width, one.height) != (other.width, other.height):
        return False
    u, v = np.meshgrid(np.linspace(0, one.width - 1, 9), np.linspace(0, one.height - 1, 7))
    pixels = np.column_stack([u.ravel(), v.ravel()])
    with np.errstate(invalid='ignore'):
        apart = np.abs(normalised(pixels, one) - normalised(pixels, other)) * [other.k[0, 0], other.k[1, 1]]
    known = np.isfinite(apart).all(axis=1)
    return bool(known.any() and apart[known].max() <= most_px)


def distortion_model(intrinsics: Intrinsics) -> str | None:
    """plumb_bob, rational_polynomial or equidistant; None where the camera is an ideal pinhole.

    An equidistant camera whose coefficients are zero is no pinhole; one without coefficients counts as one.
    Raises BagError when the model is unknown or has a wrong number of coefficients.
    """
    name, d = re.sub('[ -]', '_', intrinsics.distortion_model.strip().lower()), intrinsics.d
    model = 'equidistant' if name in FISHEYE else POLYNOMIAL.get(name)
    if name in _NONE and not d.any():
        return None
    if name == 'pinhole':
        raise BagError(f'distortion model pinhole with D = {d.tolist()}: a pinhole has no distortion. Name the model of D: '
                       'plumb_bob, rational_polynomial or equidistant')
    if model is None:
        raise BagError(f'distortion model {intrinsics.distortion_model!r} with D = {d.tolist()} is not known: '
                       f'{", ".join((*POLYNOMIAL, *FISHEYE))} are; undistort the images before recording, or calibrate anew')
    if np.abs(d).max(initial=0.0) > LARGEST_COEFFICIENT:
        raise BagError(f'no lens has D = {d.tolist()}: the camera is not calibrated, or the values are not initialised')
    if d.size == 0 or (model != 'equidistant' and not d.any()):
        return None
    counts = (4,) if model == 'equidistant' else _COUNTS
    if d.size not in counts and not (model == 'equidistant' and d.size > 4 and not d[4:].any()):  # drivers fill up with zeros
        raise BagError(f'{intrinsics.distortion_model} has {" or ".join(map(str, counts))} coefficients, not D = {d.tolist()}')
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
        if abs(self.baseline_m) > MOST_BASELINE_M:
            raise BagError(f'the baseline is {self.baseline_m:g} m, and a rig has {MOST_BASELINE_M:g} m at most: give it in '
                           'metres, not in millimetres (P[3] of the right CameraInfo is -fx * baseline)')
        if self.baseline_m < -LEAST_BASELINE_M:
            raise BagError(f'left and right are swapped: by their CameraInfos the right camera stands {-self.baseline_m:.3f} m to '
                           'the left of the left one')
        if self.baseline_m < LEAST_BASELINE_M:
            raise BagError(f'the CameraInfos have no baseline, but {self.baseline_m:g} m: P[3] of the right one must be -fx * '
                           'baseline, in metres; calibrate the pair as one')

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
