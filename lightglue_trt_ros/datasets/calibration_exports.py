"""Files of tools that list cameras in their own way, in the words of Kalibr's camchain, which `calibration_forms` reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from .poses import poses_from

_COLMAP = re.compile(r'\s*(\d+)\s+([A-Z_]+)\s+(\d+)\s+(\d+)((?:\s+[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?){3,})\s*')
_COLMAP_MODELS = {  # what the lens is called, and how many focal lengths and coefficients there are, in OpenCV's order
    'SIMPLE_PINHOLE': ('none', 1, 0), 'PINHOLE': ('none', 2, 0), 'SIMPLE_RADIAL': ('radtan', 1, 1), 'RADIAL': ('radtan', 1, 2),
    'OPENCV': ('radtan', 2, 4), 'FULL_OPENCV': ('rational_polynomial', 2, 8), 'OPENCV_FISHEYE': ('equidistant', 2, 4),
    'SIMPLE_RADIAL_FISHEYE': ('equidistant', 1, 1), 'RADIAL_FISHEYE': ('equidistant', 1, 2)}
_BASALT = {'pinhole': 'none', 'kb4': 'equidistant', 'pinhole-radtan8': 'rational_polynomial'}
_OKVIS = {'radialtangential': 'radtan', 'radialtangential8': 'rational_polynomial'}


def as_chain(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Cameras cam0, cam1 ... with Kalibr's keys; `values` themselves where no tool is known that writes such."""
    for key, read in _TOOLS.items():
        entries = values.get(key)
        try:
            if entries:
                return {f'cam{number}': camera for number, camera in read(entries).items()}
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            continue  # another tool's file
    return values


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
