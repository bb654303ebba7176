"""Cameras: intrinsics from YAML files, and pixels of the ideal pinhole."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import ArrayLike

from ..errors import BagError
from .poses import Float64
from .sequence import Intrinsics

_POLYNOMIAL = {'plumb_bob': 'plumb_bob', 'radial-tangential': 'plumb_bob', 'radtan': 'plumb_bob',
               'rational_polynomial': 'rational_polynomial'}
_FISHEYE = ('equidistant', 'fisheye')
_NONE = ('', 'none')
_COUNTS = {'plumb_bob': (4, 5), 'rational_polynomial': (8, 12, 14), 'equidistant': (4,)}
_OPENCV = re.compile(r'\A%YAML:.*|!!opencv-matrix')  # what OpenCV's files have beside YAML
_RECTIFIED = re.compile(r'(^|_)rect(ified)?(_|$)')  # in a topic's last name, as image_rect_color has it
_CRITERIA = (cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, 200, 1e-12)
_RESIDUAL_PX = 1e-2  # of an undistorted point that is distorted again


def load_intrinsics(path: Path) -> Intrinsics:
    """Read intrinsics from a YAML file in one of four forms.

    This package's (calib.yaml): model: pinhole, width, height, fx, fy, cx, cy, dist: [...], distortion: equidistant|anything else.
    ROS's camera_calibration: image_width, image_height, camera_matrix, distortion_model, distortion_coefficients.
    OpenCV's: image_width, image_height, camera_matrix, distortion_coefficients, fisheye_model.
    EuRoC's sensor.yaml: resolution, intrinsics, distortion_model, distortion_coefficients.

    Raises BagError that names the file and what it lacks.
    """
    calib = _mapping(path)
    try:
        for name in ('model', 'camera_model'):
            if str(calib.get(name, 'pinhole')) != 'pinhole':
                raise ValueError(f'{name}: {calib[name]}, and only {name}: pinhole can be used')
        if 'camera_matrix' in calib:
            size, k = (calib['image_width'], calib['image_height']), calib['camera_matrix']['data']
            model, d = calib.get('distortion_model'), (calib.get('distortion_coefficients') or {}).get('data')
            model = model or ('equidistant' if calib.get('fisheye_model') else None)
        elif 'intrinsics' in calib:
            size, (fx, fy, cx, cy) = calib['resolution'], calib['intrinsics']
            model, d = calib.get('distortion_model'), calib.get('distortion_coefficients')
            k = [fx, 0, cx, 0, fy, cy, 0, 0, 1]
        else:
            size, (fx, fy, cx, cy) = (calib['width'], calib['height']), (calib[name] for name in ('fx', 'fy', 'cx', 'cy'))
            k, d = [fx, 0, cx, 0, fy, cy, 0, 0, 1], calib.get('dist')
            model = 'equidistant' if str(calib.get('distortion', '')).lower().startswith(_FISHEYE) else None
        width, height = map(int, size)
        model = str(model or ('rational_polynomial' if len(d or ()) >= 8 else 'plumb_bob')).lower()
        camera = Intrinsics(width, height, np.asarray(k, np.float64).reshape(3, 3), _POLYNOMIAL.get(model, model),
                            np.asarray(d or [], np.float64))
        distortion_model(camera)
        return camera
    except KeyError as error:
        raise BagError(f'{path} has no {error.args[0]}: it needs width, height, fx, fy, cx, cy, or the keys of '
                       "ROS's camera_calibration, of OpenCV's or of EuRoC's sensor.yaml") from None
    except (ValueError, TypeError, BagError) as error:
        raise BagError(f'{path}: {error}') from None


def intrinsics_of(info: Any, image_topic: str) -> Intrinsics:
    """K and D of a sensor_msgs/CameraInfo; of rectified images (`image_rect`) its P, without distortion.

    What R and P say of a stereo pair is checked by StereoRig alone: others have no need of it. Raises BagError when the camera is
    not calibrated; `distortion_model` tells whether its model is known.
    """
    k, d, model = np.array(info.k, np.float64).reshape(3, 3), np.array(info.d, np.float64), info.distortion_model
    turn, projection = (np.array(values, np.float64).reshape(3, -1) for values in (info.r, info.p))
    shift = -float(projection[0, 3] / projection[0, 0]) if projection[0, 0] > 0 else 0.0
    if _RECTIFIED.search(image_topic.removesuffix('/compressed').rpartition('/')[2]) and projection[0, 0] > 0:
        k, d, model, turn = projection[:, :3], np.zeros(5), 'plumb_bob', np.eye(3)
    return Intrinsics(info.width, info.height, k, model, d, turn if turn.any() else np.eye(3), shift)


def load_camera_in_body(path: Path) -> Float64 | None:
    """T_BS of an EuRoC sensor.yaml: (4, 4), body from sensor; None where it has none. Raises BagError."""
    mounting = _mapping(path).get('T_BS')
    if mounting is None:
        return None
    try:
        matrix = np.asarray(mounting['data'], np.float64).reshape(4, 4)
        if not np.isfinite(matrix).all() or np.abs(matrix[:3, :3] @ matrix[:3, :3].T - np.eye(3)).max() > 1e-3:
            raise ValueError('its left upper 3x3 is no rotation')
    except (KeyError, ValueError, TypeError) as error:
        raise BagError(f'{path}, T_BS: {error}; it is a 4x4 matrix, body from sensor') from None
    return matrix


def load_baseline(path: Path) -> float:
    """baseline_m of the calib.yaml of a right camera: metres along x from the left one. Raises BagError."""
    try:
        return float(_mapping(path)['baseline_m'])
    except (KeyError, TypeError, ValueError):
        raise BagError(f'{path} has no baseline_m, the metres between left and right camera') from None


def in_rig(camera: Intrinsics, rectification: Float64, shift_m: float) -> Intrinsics:
    """The camera as one of a stereo pair, see Intrinsics."""
    return dataclasses.replace(camera, rectification=rectification, shift_m=shift_m)


def rectifying(right_in_left: Float64) -> tuple[Float64, Float64, float]:
    """Rotations (3, 3) from the left and from the right camera's axes to those that both share, and the baseline in metres.

    `right_in_left` (4, 4), left from right. x goes along the baseline, z is as near to both optical axes as it can be.
    """
    turn, place = right_in_left[:3, :3], right_in_left[:3, 3]
    baseline = float(np.linalg.norm(place))
    x = place / (baseline or 1.0)
    y = np.cross(turn[:, 2] + [0, 0, 1], x)
    y /= np.linalg.norm(y)
    shared = np.stack([x, y, np.cross(x, y)])
    return shared, shared @ turn, baseline


def check_size(intrinsics: Intrinsics, height: int, width: int) -> None:
    """Raise BagError when the images, `height` x `width` pixels, are not of the size that the intrinsics are for.

    Nothing is scaled: a resized image and a cropped one have the same size and different intrinsics.
    """
    if (intrinsics.height, intrinsics.width) != (height, width):
        raise BagError(f'the intrinsics are for {intrinsics.width}x{intrinsics.height} pixels, the images have {width}x{height}: '
                       'give the calibration of these images (--camera)')


def distortion_model(intrinsics: Intrinsics) -> str | None:
    """plumb_bob, rational_polynomial or equidistant; None where the camera is an ideal pinhole.

    An equidistant camera whose coefficients are zero is no pinhole; one without coefficients counts as one.
    Raises BagError when the model is unknown or has a wrong number of coefficients.
    """
    name, d = intrinsics.distortion_model.strip().lower(), intrinsics.d
    model = 'equidistant' if name in _FISHEYE else _POLYNOMIAL.get(name)
    if name in _NONE and not d.any():
        return None
    if model is None:
        raise BagError(f'distortion model {intrinsics.distortion_model!r} with D = {d.tolist()} is not known: '
                       f'{", ".join((*_POLYNOMIAL, *_FISHEYE))} are; undistort the images before recording, or calibrate anew')
    if d.size == 0 or (model != 'equidistant' and not d.any()):
        return None
    if d.size not in _COUNTS[model] and not (model == 'plumb_bob' and d.size in _COUNTS['rational_polynomial']):
        counts = ' or '.join(map(str, _COUNTS[model]))
        raise BagError(f'{intrinsics.distortion_model} has {counts} coefficients, not D = {d.tolist()}')
    return model


def undistort(points: ArrayLike, intrinsics: Intrinsics) -> Float64:
    """Map pixels (M, 2) of the camera's image to those of the ideal pinhole with the same K, (M, 2) float64.

    A row is NaN where the model has no inverse: the point is not finite, lies where the polynomial folds back or at 90 degrees
    and more from the axis; found by distorting the result again, which must come back to within 0.01 px.
    Models as in sensor_msgs/CameraInfo; solved by OpenCV (Kannala and Brandt, PAMI 2006, for equidistant). Raises BagError.
    """
    given = np.array(points, np.float64).reshape(-1, 2)
    model = distortion_model(intrinsics)
    if model is None or not len(given):
        return given
    k, d = intrinsics.k, intrinsics.d.reshape(-1)
    finite = np.isfinite(given).all(axis=1, keepdims=True)
    rays = _rays(np.where(finite, given, k[:2, 2]), k, d, model)
    sane = finite & (np.abs(rays) < 1e3).all(axis=1, keepdims=True)
    back = _distorted(np.where(sane, rays, 0.0), k, d, model)
    good = sane & (np.linalg.norm(back - given, axis=1, keepdims=True) < _RESIDUAL_PX)
    return np.where(good, rays @ k[:2, :2].T + k[:2, 2], np.nan)


def normalised(points: ArrayLike, intrinsics: Intrinsics) -> Float64:
    """Map pixels (M, 2) to the plane z = 1 in front of the camera, without distortion: (M, 2) float64, NaN rows as `undistort`."""
    camera = intrinsics.k
    return np.asarray(np.linalg.solve(camera[:2, :2], (undistort(points, intrinsics) - camera[:2, 2]).T).T, np.float64)


def _rays(pixels: Float64, k: Float64, d: Float64, model: str) -> Float64:
    if model == 'equidistant':
        rays: Any = cv2.fisheye.undistortPoints(pixels[:, None], k, d)
    elif hasattr(cv2, 'undistortPointsIter'):  # until OpenCV 4; 5 has its criteria in undistortPoints
        rays = cv2.undistortPointsIter(pixels[:, None], k, d, None, None, _CRITERIA)
    else:
        rays = cv2.undistortPoints(pixels[:, None], k, d, criteria=_CRITERIA)
    return np.asarray(rays, np.float64).reshape(-1, 2)


def _distorted(rays: Float64, k: Float64, d: Float64, model: str) -> Float64:
    points, zero = np.column_stack([rays, np.ones(len(rays))])[:, None], np.zeros(3)
    project = cv2.fisheye.projectPoints if model == 'equidistant' else cv2.projectPoints
    return np.asarray(project(points, zero, zero, k, d)[0], np.float64).reshape(-1, 2)


def _mapping(path: Path) -> dict[str, Any]:
    import yaml
    try:
        calib = yaml.safe_load(_OPENCV.sub('', path.read_text(encoding='utf-8')))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BagError(f'cannot read {path}: {" ".join(str(error).split())}') from None
    if not isinstance(calib, dict):
        raise BagError(f"{path} is no calibration: this package's calib.yaml, ROS's camera_calibration, OpenCV's or EuRoC's "
                       'sensor.yaml')
    return calib
