"""Files whose lenses are of the models of `fitted_lenses.LISTED`, in the words of Kalibr's camchain.

OCamCalib's calib_results.txt, its polynomial in the YAML of camodocal (VINS-Fusion, LF-VIO), MultiCol-SLAM, SVO and Kimera,
WoodScape's JSON, NVIDIA's rig.json, Project Aria's calibration and MATLAB's fisheyeParameters. `lens_parameters` has the list of a
model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import cv2
import numpy as np

from .poses import poses_from

Camera = dict[str, Any]  # with Kalibr's keys
FLU = np.array([[0.0, 0, 1, 0], [-1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 0, 1]])  # axes forward, left, up from the optical frame
_NUMBERS = re.compile(r'^[ \t]*([-+\d.][-+\d.eE \t]*)$', re.MULTILINE)


def of_ocamcalib(text: str) -> dict[str, Any]:
    """calib_results.txt: its polynomials, middle (row, column), affine matrix and size (height, width). Raises ValueError.

    The polynomial of its first line counts, from which the second, its inverse, was fitted. z is along the axis here.
    """
    lines = [[float(word) for word in line.split()] for line in _NUMBERS.findall(text)]
    if len(lines) != 5 or [len(line) for line in lines[2:]] != [2, 3, 2] or any(line[0] != len(line) - 1 for line in lines[:2]):
        raise ValueError(f'it has lines of {[len(line) for line in lines]} numbers, and calib_results.txt of OCamCalib two '
                         'polynomials, each behind its count, the middle (2), the affine matrix (3) and the size (2)')
    (_, *direct), _, (row, column), (c, d, e), (height, width) = lines
    return {'cam0': _of_ocam(direct, [[1, e, column], [d, c, row], [0, 0, 1]], width, height)}


def _of_ocam(direct: Sequence[float], k: list[list[float]], width: float, height: float) -> Camera:
    return {'camera_model': 'ocamcalib', 'resolution': [width, height], 'camera_matrix': k,
            'lens_parameters': [-float(value) for value in direct]}


def of_camodocal(values: Mapping[str, Any]) -> Camera:
    """model_type: scaramuzza, where x and y are columns and rows; its inverse polynomial was fitted to the other."""
    direct, affine = values['poly_parameters'], values['affine_parameters']
    k = [[affine['ac'], affine['ad'], affine['cx']], [affine['ae'], 1, affine['cy']], [0, 0, 1]]
    return _of_ocam([direct[f'p{power}'] for power in range(len(direct))], k, values['image_width'], values['image_height'])


def of_multicol(values: Mapping[str, Any]) -> Camera:
    """MultiCol-SLAM's and CubemapSLAM's Camera.a0 …, with the same axes."""
    own = {name.removeprefix('Camera.'): value for name, value in values.items()}
    k = [[own['c'], own['d'], own['u0']], [own['e'], 1, own['v0']], [0, 0, 1]]
    return _of_ocam([own[f'a{power}'] for power in range(int(own['nrpol']))], k, own['Iw'], own['Ih'])


def of_svo(camera: Mapping[str, Any]) -> Camera:
    """type: omni, whose intrinsics are OCamCalib's polynomial (5), middle, c, d, e, the inverse polynomial and a mask's radii."""
    numbers = [float(value) for value in camera['intrinsics']['data']]
    (cx, cy, c, d, e) = numbers[5:10]
    return _of_ocam(numbers[:5], [[1, e, cx], [d, c, cy], [0, 0, 1]], camera['image_width'], camera['image_height'])


def of_kimera(values: Mapping[str, Any]) -> Camera:
    """camera_model: omni, with MATLAB's polynomial, z along the axis, as distortion_coefficients, and its pose in the body."""
    (a, b, c), (cx, cy) = values['omni_affine'], values['omni_distortion_center']
    return {'camera_model': 'ocamcalib', 'resolution': values['resolution'], 'camera_matrix': [[1, a, cx], [b, c, cy], [0, 0, 1]],
            'lens_parameters': values['distortion_coefficients'], 'T_BS': values.get('T_BS')}


def of_matlab_fisheye(values: Mapping[str, Any]) -> Camera:
    """fisheyeParameters and fisheyeIntrinsics: a polynomial without its linear term, and pixels from (1, 1)."""
    (a0, *others), (height, width), (cx, cy) = values['MappingCoefficients'], values['ImageSize'], values['DistortionCenter']
    (c, d), (e, one) = values['StretchMatrix']
    return {'camera_model': 'ocamcalib', 'resolution': [width, height], 'lens_parameters': [a0, 0.0, *others],
            'camera_matrix': [[c, d, cx - 1], [e, one, cy - 1], [0, 0, 1]]}


def of_woodscape(values: Mapping[str, Any]) -> Camera:
    """The middle is given from that of the image, whose first pixel is at 0; the pose is vehicle from camera."""
    lens, pose = values['intrinsic'], values.get('extrinsic')
    cx, cy = (lens[side] / 2 - 0.5 + lens[f'c{axis}_offset'] for axis, side in (('x', 'width'), ('y', 'height')))
    return {'camera_model': 'f_theta_forward', 'resolution': [lens['width'], lens['height']],
            'camera_matrix': [[1, 0, cx], [0, lens['aspect_ratio'], cy], [0, 0, 1]],
            'lens_parameters': [0.0, *(lens[f'k{power}'] for power in range(1, int(lens['poly_order']) + 1))],
            **({'T_imu_cam': poses_from([pose['translation']], [pose['quaternion']])[0].tolist()} if pose else {})}


def of_nvidia(values: Mapping[str, Any]) -> dict[str, Camera]:
    """The f-theta cameras of a rig.json, as of DriveWorks and NuRec, by their names; others are named, and refused."""
    return {sensor['name'].replace(':', '_'): _of_ftheta(sensor) for sensor in values['rig']['sensors']
            if 'width' in (sensor.get('properties') or {})}


def _of_ftheta(sensor: Mapping[str, Any]) -> Camera:
    own = sensor['properties']
    size, (cx, cy) = [int(float(own[name])) for name in ('width', 'height')], (float(own[name]) for name in ('cx', 'cy'))
    pose = {'T_imu_cam': _of_rig(sensor)} if 'nominalSensor2Rig_FLU' in sensor else {}
    if own.get('Model') != 'ftheta':
        return {'camera_model': str(own.get('Model')), 'resolution': size, 'intrinsics': [1.0, 1.0, cx, cy], **pose}
    kind = own.get('polynomial-type', 'pixeldistance-to-angle')
    c, d, e = (float(own.get(f'linear-{name}', default)) for name, default in (('c', 1), ('d', 0), ('e', 0)))
    model = {'pixeldistance-to-angle': 'f_theta_backward', 'angle-to-pixeldistance': 'f_theta_forward'}.get(kind, kind)
    return {'camera_model': model, 'resolution': size, 'camera_matrix': [[c, d, cx], [e, 1, cy], [0, 0, 1]],
            'lens_parameters': [float(word) for word in str(own.get('polynomial', own.get('bw-poly'))).split()], **pose}


def _of_rig(sensor: Mapping[str, Any]) -> list[list[float]]:
    """Rig from the optical frame: both have forward, left and up, with angles about x, y and z in degrees."""
    pose = np.eye(4)
    corrections = sensor.get('correction_sensor_R_FLU', {}).get('roll-pitch-yaw', [0, 0, 0])
    pose[:3, :3] = _of_angles(sensor['nominalSensor2Rig_FLU']['roll-pitch-yaw']) @ _of_angles(corrections)
    pose[:3, 3] = np.add(sensor['nominalSensor2Rig_FLU']['t'], sensor.get('correction_rig_T', [0, 0, 0]))
    return [[float(value) for value in row] for row in pose @ FLU]


def _of_angles(degrees: Sequence[float]) -> Any:
    about = [cv2.Rodrigues(angle * axis)[0] for angle, axis in zip(np.radians(degrees), np.eye(3), strict=True)]
    return about[2] @ about[1] @ about[0]


def of_aria(values: Mapping[str, Any]) -> dict[str, Camera]:
    """Project Aria's cameras by their labels; poses are device from camera. One focal length may stand for both."""
    cameras = values['CameraCalibrations']
    sizes = [{'resolution': size} for size in values.get('ImageSizes', ())] or [{}] * len(cameras)
    return {camera['Label']: {**_of_aria_camera(camera), **size} for camera, size in zip(cameras, sizes, strict=True)}


def _of_aria_camera(camera: Mapping[str, Any]) -> Camera:
    name, numbers, pose = camera['Projection']['Name'], list(camera['Projection']['Params']), camera['T_Device_Camera']
    w, xyz = pose['UnitQuaternion']
    numbers = numbers if len(numbers) % 2 == 0 else [numbers[0], *numbers]
    d = numbers[4:]
    lens: Camera = {'camera_model': name, 'lens_parameters': d}
    if name == 'FisheyeRadTanThinPrism':
        lens = {'camera_model': 'fisheye624', 'lens_parameters': [*d, *[0.0] * (12 - len(d))]}
    elif name in ('KannalaBrandtK3', 'Linear'):
        lens = {'camera_model': 'pinhole', 'distortion_model': 'equidistant' if d else 'none', 'distortion_coeffs': d}
    return {**lens, 'intrinsics': numbers[:4], 'T_imu_cam': poses_from([pose['Translation']], [[*xyz, w]])[0].tolist()}
