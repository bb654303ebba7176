"""Files of tools that list cameras in their own way, in the words of Kalibr's camchain, which `calibration_forms` reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from .poses import poses_from

_COLMAP = re.compile(r'\s*(\d+)\s+([A-Z_]+)\s+(\d+)\s+(\d+)((?:\s+[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?){3,})\s*')
_COLMAP_MODELS = {  # what the lens is called, and how many focal lengths and coefficients there are, in OpenCV's order
    'SIMPLE_PINHOLE': ('none', 1, 0), 'PINHOLE': ('none', 2, 0), 'SIMPLE_RADIAL': ('radtan', 1, 1), 'RADIAL': ('radtan', 1, 2),
    'OPENCV': ('radtan', 2, 4), 'FULL_OPENCV': ('rational_polynomial', 2, 8), 'OPENCV_FISHEYE': ('equidistant', 2, 4),
    'SIMPLE_RADIAL_FISHEYE': ('equidistant', 1, 1), 'RADIAL_FISHEYE': ('equidistant', 1, 2)}
_BASALT = {'pinhole': 'none', 'kb4': 'equidistant', 'pinhole-radtan8': 'rational_polynomial'}
_OPENCV_PAIRS = (('K{}', 'D{}'), ('M{}', 'D{}'), ('cameraMatrix{}', 'distCoeffs{}'), ('camera_matrix_{}', 'dist_coeffs_{}'),
                 ('mtx{}', 'dist{}'))
_NERFSTUDIO = ('camera_model', 'w', 'h', 'fl_x', 'fl_y', 'cx', 'cy', 'k1', 'k2', 'k3', 'k4', 'p1', 'p2', 'is_fisheye')
_RECTIFYING = ('R', 'T', 'E', 'F', 'R1', 'R2', 'P1', 'P2', 'Q')  # of stereoCalibrate and stereoRectify
_DSO = {'pinhole': 'none', 'radtan': 'radtan', 'equidistant': 'equidistant', 'kannalabrandt': 'equidistant', 'fov': '',
        'atan': ''}  # what the lens is called, '': it is not read
_OKVIS = {'radialtangential': 'radtan', 'radialtangential8': 'rational_polynomial'}


def as_chain(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Cameras cam0, cam1 ... with Kalibr's keys; `values` themselves where no tool is known that writes such."""
    try:
        values = _of_frames(values)
        key = next((key for key in _TOOLS if values.get(key)), None)
        cameras = _of_opencv(values) if key is None else _TOOLS[key](values[key])
        return {f'cam{number}': camera for number, camera in cameras.items()} or values
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return values  # another tool's file


def _of_frames(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of a transforms.json whose frames have intrinsics, these, as cam0 ... where they differ; `values` themselves of others."""
    frames = [frame for frame in values.get('frames') or [] if 'fl_x' in frame]
    if 'fl_x' in values or not frames:
        return values
    common = {name: value for name, value in values.items() if name != 'frames'}
    cameras = [{**common, **{name: frame[name] for name in _NERFSTUDIO if name in frame}} for frame in frames]
    different = [camera for number, camera in enumerate(cameras) if camera not in cameras[:number]]
    return different[0] if len(different) == 1 else {f'cam{number}': each for number, each in enumerate(different)}


def _of_opencv(values: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """The pair of cv2.stereoCalibrate: two matrices, two lists of coefficients, and R and T, right from left."""
    for names in _OPENCV_PAIRS:
        keys = [[name.format(number) for name in names] for number in (1, 2)]
        if all(key in values for pair in keys for key in pair):
            own = {*keys[0], *keys[1], *_RECTIFYING}
            common = {key: value for key, value in values.items() if key not in own}
            left, right = ({**common, 'camera_matrix': values[k], 'dist_coeffs': values[d]} for k, d in keys)
            if 'R' in values and 'T' in values:
                rotation, translation = (np.asarray(each['data'] if isinstance(each, dict) else each, np.float64).ravel().tolist()
                                         for each in (values['R'], values['T']))
                right['T_cn_cnm1'] = [each for row in range(3) for each in (*rotation[3 * row:3 * row + 3], translation[row])]
            return {0: left, 1: right}
    return {}


def of_colmap(text: str) -> dict[str, Any]:
    """The cameras of COLMAP's cameras.txt by their ids, with Kalibr's keys; empty for another text.

    COLMAP counts pixels from the corner of the first one, OpenCV from its centre.
    """
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith('#')]
    found = list(filter(None, map(_COLMAP.fullmatch, lines)))
    cameras = {}
    for number, model, width, height, parameters in (match.groups() for match in found if len(found) == len(lines)):
        lens, focals, count = _COLMAP_MODELS.get(model, ('', 2, 0))
        numbers = [float(each) for each in parameters.split()]
        if len(numbers) < focals + 2 or (lens and len(numbers) != focals + 2 + count):
            return {}
        cx, cy = (value - 0.5 for value in numbers[focals:focals + 2])
        d = numbers[focals + 2:]
        cameras[f'cam{number}'] = {
            'camera_model': 'pinhole' if lens else model, 'resolution': [int(width), int(height)],
            'intrinsics': [numbers[0], numbers[focals - 1], cx, cy], 'distortion_model': lens,
            'distortion_coeffs': d + [0.0] * (4 - len(d)) if d else []}
    return cameras


def of_numbers(text: str) -> dict[str, Any]:
    """K of a text of numbers, with or without the name of a lens before them; empty for another text.

    That is a 3x3, 3x4 or 4x4 matrix, as ScanNet and many scripts have it, or the line of DSO and 4Seasons, lens fx fy cx cy and
    coefficients, with a line width height after it.
    """
    lines = [line.replace(',', ' ').split() for line in text.splitlines() if line.strip() and not line.lstrip().startswith('#')]
    lens, lines = (lines[0][0], [lines[0][1:], *lines[1:]]) if len(lines) > 1 and lines[0][0].lower() in _DSO else ('', lines)
    with suppress(ValueError):
        if lens:
            width, height = map(int, lines[1])
            numbers = [float(word) for word in lines[0]]
            return _of_dso(_DSO[lens.lower()], numbers, [width, height]) if len(numbers) >= 4 else {}
        values = np.array([float(word) for line in lines for word in line])
        k = values.reshape({9: (3, 3), 16: (4, 4)}.get(len(values), (3, 4)))[:3, :3]
        if (k[2] == [0, 0, 1]).all() and not k[1, 0] and min(k[0, 0], k[1, 1]) > 1:
            return {'camera_matrix': k.ravel().tolist()}
    return {}


def _of_dso(lens: str, values: list[float], size: list[int]) -> dict[str, Any]:
    """With Kalibr's keys. DSO's relative numbers are of the width and the height."""
    focals, d = values[:4], values[4:]
    if max(focals) < 10:
        fx, fy, cx, cy = (value * side for value, side in zip(focals, size * 2, strict=True))
        focals = [fx, fy, cx - 0.5, cy - 0.5]
    return {'cam0': {'camera_model': 'pinhole' if lens else 'fov', 'resolution': size, 'intrinsics': focals,
                     'distortion_model': lens, 'distortion_coeffs': d if lens != 'none' or any(d) else []}}


def _maplab(entries: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Also SVO's, and OKVIS's."""
    cameras = {}
    for number, entry in enumerate(entries):
        camera = {**entry, **entry.get('camera', {})}
        if 'focal_length' in camera:
            model = str(camera['distortion_type'])
            cameras[number] = {
                **camera, 'resolution': camera['image_dimension'], 'distortion_type': _OKVIS.get(model, model),
                'intrinsics': [*camera['focal_length'], *camera['principal_point']], 'T_imu_cam': camera.get('T_SC')}
        else:
            lens = camera.pop('distortion')
            del camera['camera']
            cameras[number] = {
                **camera, 'camera_model': camera['type'], 'distortion_model': lens['type'],
                'distortion_coeffs': lens.get('parameters') or [], 'T_imu_cam': entry.get('T_B_C')}
    return cameras


def _basalt(entry: dict[str, Any]) -> dict[int, dict[str, Any]]:
    cameras = {}
    for number, (camera, size) in enumerate(zip(entry['intrinsics'], entry['resolution'], strict=True)):
        kind, values, pose = camera['camera_type'], camera['intrinsics'], entry['T_imu_cam'][number]
        cameras[number] = {
            **{name: value for name, value in values.items() if name[:1] in 'kp'}, 'resolution': size,
            'camera_model': 'pinhole' if kind in _BASALT else kind, 'distortion_model': _BASALT.get(kind, kind),
            'intrinsics': [values[name] for name in ('fx', 'fy', 'cx', 'cy')],
            'T_imu_cam': poses_from([[pose[f'p{axis}'] for axis in 'xyz']], [[pose[f'q{axis}'] for axis in 'xyzw']])[0].tolist()}
    return cameras


def _luxonis(entries: list[tuple[int, dict[str, Any]]]) -> dict[int, dict[str, Any]]:
    """By their sockets: cam0 is CAM_A."""
    return {socket: {
        'resolution': [camera['width'], camera['height']], 'camera_matrix': camera['intrinsicMatrix'],
        'distortion_model': 'equidistant' if camera['cameraType'] == 1 else 'rational_polynomial',
        'distortion_coeffs': camera['distortionCoeff']} for socket, camera in entries}


_TOOLS: dict[str, Callable[[Any], dict[int, dict[str, Any]]]] = {  # by the key at the top of their files
    'cameras': _maplab, 'value0': _basalt, 'cameraData': _luxonis}
