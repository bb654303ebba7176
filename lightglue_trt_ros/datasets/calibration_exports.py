"""Files of tools that list cameras in their own way, in the words of Kalibr's camchain, which `calibration_forms` reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .poses import poses_from

_BASALT = {'pinhole': 'none', 'kb4': 'equidistant', 'pinhole-radtan8': 'rational_polynomial'}
_OPENCV_PAIRS = (('K{}', 'D{}'), ('M{}', 'D{}'), ('cameraMatrix{}', 'distCoeffs{}'), ('camera_matrix_{}', 'dist_coeffs_{}'),
                 ('mtx{}', 'dist{}'))
_NERFSTUDIO = ('camera_model', 'w', 'h', 'fl_x', 'fl_y', 'cx', 'cy', 'k1', 'k2', 'k3', 'k4', 'p1', 'p2', 'is_fisheye')
_RECTIFYING = ('R', 'T', 'E', 'F', 'R1', 'R2', 'P1', 'P2', 'Q')  # of stereoCalibrate and stereoRectify
_OKVIS = {'radialtangential': 'radtan', 'radialtangential8': 'rational_polynomial'}


def as_chain(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Cameras cam0, cam1 ... with Kalibr's keys; `values` themselves where no tool is known that writes such."""
    try:
        values = _of_frames(values)
        key = next((key for key in _TOOLS if values.get(key)), None)
        cameras = _TOOLS[key](values[key]) if key is not None else _of_matlab(values) or _of_opencv(values)
        return {f'cam{number}': camera for number, camera in cameras.items()} or values
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return values  # another tool's file


def _of_matlab(values: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """What toStruct gives of cameraParameters: rows before columns, pixels from (1, 1), and the older matrix is transposed."""
    if 'RadialDistortion' not in values:
        return {}
    k = np.array(values['K'] if 'K' in values else np.transpose(values['IntrinsicMatrix']), np.float64)
    (height, width), (k1, k2, *k3) = values['ImageSize'], values['RadialDistortion']
    return {0: {'resolution': [width, height], 'intrinsics': [k[0, 0], k[1, 1], k[0, 2] - 1, k[1, 2] - 1], 'skew': float(k[0, 1]),
                'distortion_model': 'radtan', 'distortion_coeffs': [k1, k2, *values['TangentialDistortion'], *k3]}}


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
