"""Calibrations as programs that calibrate write them."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np

from .export_tables import Cameras, Tools, Values, all_have, one
from .poses import poses_from

_BASALT = {'pinhole': 'none', 'kb4': 'equidistant', 'pinhole-radtan8': 'rational_polynomial'}


def _mc_calib(values: Values) -> Cameras:
    """MC-Calib's calibrated_cameras_data.yml: camera_0 ..., whose distortion_type is 0 for OpenCV's lens and 1 for a fisheye's.

    Its poses are rig from camera, in the unit of the board's squares.
    """
    return {name: {
        **({'T_rig_cam': camera['camera_pose_matrix']} if 'camera_pose_matrix' in camera else {}),
        'resolution': [camera['img_width'], camera['img_height']], 'camera_matrix': camera['camera_matrix'],
        'distortion_model': {0: 'radtan', 1: 'equidistant'}.get(camera['distortion_type'], f'type {camera["distortion_type"]}'),
        'distortion_coeffs': camera['distortion_vector']}
        for name, camera in values.items() if isinstance(camera, dict) and 'distortion_vector' in camera}


def _multical(values: Values) -> Cameras:
    """multical's calibration.json. Its poses are camera from rig; cam2_to_cam1 is that of cam2 where the rig is cam1."""
    poses = {name.partition('_to_')[0]: _in_rig(pose['R'], pose['T']) for name, pose in values['camera_poses'].items()}
    return {name: {**camera, **({'T_rig_cam': poses[name]} if name in poses else {})} for name, camera in values['cameras'].items()}


def _aniposelib(values: Values) -> Cameras:
    """Its calibration.toml: camera from rig by a rotation vector and a translation."""
    return {str(camera.get('name', name)): {
        'resolution': camera['size'], 'camera_matrix': camera['matrix'], 'dist_coeffs': camera['distortions'],
        'distortion_model': 'equidistant' if camera.get('fisheye') else 'radtan',
        'T_rig_cam': _in_rig(cv2.Rodrigues(np.array(camera['rotation'], np.float64))[0], camera['translation'])}
        for name, camera in values.items() if isinstance(camera, dict) and 'matrix' in camera}


def _in_rig(rotation: Any, translation: Any) -> Any:
    """Rig from camera, 4x4 in lists, of camera from rig."""
    return np.linalg.inv([*np.column_stack([rotation, translation]), [0, 0, 0, 1]]).tolist()


def _basalt(values: Values) -> Cameras:
    entry, cameras = values['value0'], Cameras()
    for number, (camera, size) in enumerate(zip(entry['intrinsics'], entry['resolution'], strict=True)):
        kind, lens, pose = camera['camera_type'], camera['intrinsics'], entry['T_imu_cam'][number]
        cameras[number] = {
            **{name: value for name, value in lens.items() if name[:1] not in 'fc'}, 'resolution': size,
            'camera_model': 'pinhole' if kind in _BASALT else kind, 'distortion_model': _BASALT.get(kind, 'none'),
            'intrinsics': [lens[name] for name in ('fx', 'fy', 'cx', 'cy')],
            'T_imu_cam': poses_from([[pose[f'p{axis}'] for axis in 'xyz']], [[pose[f'q{axis}'] for axis in 'xyzw']])[0].tolist()}
    return cameras


def _matlab(values: Values) -> dict[str, Any]:
    """What toStruct gives of cameraParameters: rows before columns, pixels from (1, 1), and the older matrix is transposed.

    The pose of stereoParameters is not read: its rotation is transposed in some versions.
    """
    k = np.array(values['K'] if 'K' in values else np.transpose(values['IntrinsicMatrix']), np.float64)
    (height, width), (k1, k2, *k3) = values['ImageSize'], values['RadialDistortion']
    return {'resolution': [width, height], 'intrinsics': [k[0, 0], k[1, 1], k[0, 2] - 1, k[1, 2] - 1], 'skew': float(k[0, 1]),
            'distortion_model': 'radtan', 'distortion_coeffs': [k1, k2, *values['TangentialDistortion'], *k3]}


def _opencalib(values: Values) -> dict[str, Any]:
    (camera,) = (value['param'] for value in values.values())
    return {'resolution': [camera['img_dist_w'], camera['img_dist_h']], 'camera_matrix': camera['cam_K'],
            'dist_coeffs': camera['cam_dist']}


def _mrcal(values: Values) -> dict[str, Any]:
    """A .cameramodel; its other lenses are refused by name."""
    model, numbers = str(values['lensmodel']).removeprefix('LENSMODEL_'), values['intrinsics']
    is_read = model in ('PINHOLE', 'OPENCV4', 'OPENCV5', 'OPENCV8', 'OPENCV12')
    return {'camera_model': 'pinhole' if is_read else model, 'resolution': values['imagersize'], 'intrinsics': numbers[:4],
            'distortion_model': 'rational_polynomial' if len(numbers) > 9 else 'radtan',
            'distortion_coeffs': numbers[4:] or [0.0] * 4}


TOOLS: Tools = (
    ({'nb_camera', 'camera_0'}.issubset, _mc_calib),
    ({'cameras', 'camera_poses'}.issubset, _multical),
    (lambda values: any(isinstance(camera, dict) and {'matrix', 'distortions', 'size'} <= camera.keys()
                        for camera in values.values()), _aniposelib),
    (lambda values: values.get('value0'), _basalt),
    ({'CameraParameters1', 'CameraParameters2'}.issubset,
     lambda values: {number: _matlab(values[f'CameraParameters{number + 1}']) for number in range(2)}),
    (all_have(lambda camera: 'cam_K' in camera.get('param', {})), one(_opencalib)),
    ({'RadialDistortion'}.issubset, one(_matlab)),
    ({'lensmodel', 'imagersize'}.issubset, one(_mrcal)))
