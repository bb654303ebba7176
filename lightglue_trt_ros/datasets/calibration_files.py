"""Calibration files in YAML: a camera's intrinsics, its pose in the body, and the baseline of a stereo pair."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from ..core.cameras import FISHEYE, POLYNOMIAL, Intrinsics, distortion_model
from ..core.types import Float64
from ..utils.errors import BagError

_OPENCV = re.compile(r'\A%YAML:.*|!!opencv-matrix')  # not YAML, but in OpenCV's files


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
            model = 'equidistant' if str(calib.get('distortion', '')).lower().startswith(FISHEYE) else None
        width, height = map(int, size)
        model = str(model or ('rational_polynomial' if len(d or ()) >= 8 else 'plumb_bob')).lower()
        camera = Intrinsics(width, height, np.asarray(k, np.float64).reshape(3, 3), POLYNOMIAL.get(model, model),
                            np.asarray(d or [], np.float64))
        distortion_model(camera)
        return camera
    except KeyError as error:
        raise BagError(f'{path} has no {error.args[0]}: it needs width, height, fx, fy, cx, cy, or the keys of '
                       "ROS's camera_calibration, of OpenCV's or of EuRoC's sensor.yaml") from None
    except (ValueError, TypeError, BagError) as error:
        raise BagError(f'{path}: {error}') from None


def check_size(intrinsics: Intrinsics, height: int, width: int) -> None:
    """Raise BagError unless the intrinsics are for images of `height` x `width` pixels.

    Nothing is scaled: a resized image and a cropped one have the same size and different intrinsics.
    """
    if (intrinsics.height, intrinsics.width) != (height, width):
        raise BagError(f'the intrinsics are for {intrinsics.width}x{intrinsics.height} pixels, the images have {width}x{height}: '
                       'give the calibration of these images (--camera)')


def load_camera_in_body(path: Path) -> Float64 | None:
    """T_BS of an EuRoC sensor.yaml: (4, 4), body from sensor; None without that key. Raises BagError."""
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
    """baseline_m in the calib.yaml of a right camera: metres along x from the left camera. Raises BagError."""
    try:
        return float(_mapping(path)['baseline_m'])
    except (KeyError, TypeError, ValueError):
        raise BagError(f'{path} has no baseline_m, the metres between left and right camera') from None


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


def rectifying(right_in_left: Float64) -> tuple[Float64, Float64, float]:
    """Rotations (3, 3) from the axes of the left and of the right camera to rectified ones, and the baseline in metres.

    `right_in_left` (4, 4), left from right. x goes along the baseline, z is as near to both optical axes as it can be.
    """
    rotation, translation = right_in_left[:3, :3], right_in_left[:3, 3]
    baseline = float(np.linalg.norm(translation))
    x = translation / (baseline or 1.0)
    y = np.cross(rotation[:, 2] + [0, 0, 1], x)
    y /= np.linalg.norm(y)
    shared = np.stack([x, y, np.cross(x, y)])
    return shared, shared @ rotation, baseline
