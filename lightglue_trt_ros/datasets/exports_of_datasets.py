"""Calibrations of public datasets with a form of their own."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import other_lenses
from .export_tables import Cameras, Tools, Values
from .poses import poses_from

_OF_DGP = {name: f'lens_parameter_{name}' for name in ('alpha', 'beta', 'fov', 'w', 'xi', 'equirectangular')}


def _dgp(values: Values) -> Cameras:
    """DGP's, as of DDAD: lists of sensors, whose zeros say nothing; a lidar has no focal length. Poses are vehicle from camera."""
    rows = zip(values['names'], values['intrinsics'], values['extrinsics'], strict=True)
    return {name: {**{_OF_DGP.get(key, key): value for key, value in camera.items() if value}, 'T_imu_cam': poses_from(
        [[pose['translation'][axis] for axis in 'xyz']], [[pose['rotation'][f'q{axis}'] for axis in 'xyzw']])[0].tolist()}
        for name, camera, pose in rows if camera['fx']}


def _spires(values: Values) -> Cameras:
    """Oxford Spires' sensor.yaml; T_cam_imu, which one camera has, takes points of the IMU into the camera."""
    model = {'OPENCV_FISHEYE': 'equidistant', 'OPENCV': 'radtan'}.get(values['camera_model'], values['camera_model'])
    return {camera['label']: {
        'resolution': [camera['image_width'], camera['image_height']], 'intrinsics': camera['intrinsics'],
        'distortion_model': model, 'distortion_coeffs': camera['extra_params'],
        **({'T_cam_imu': poses_from([pose[:3]], [pose[3:]])[0].tolist()} if pose else {})}
        for camera in values['cameras'] for pose in [camera.get('T_cam_imu_t_xyz_q_xyzw')]}


def _argoverse(camera: dict[str, Any]) -> dict[str, Any]:
    """Argoverse 1's: the images have no distortion, its coefficients are those of before (argoverse-api, issue 81)."""
    own, (w, *xyz) = camera['value'], camera['value']['vehicle_SE3_camera_']['rotation']['coefficients']
    (fx, fy), (cx, cy) = ([own[f'focal_{name}_{axis}_px_'] for axis in 'xy'] for name in ('length', 'center'))
    return {'camera_matrix': [[fx, own['skew_'], cx], [0, fy, cy], [0, 0, 1]], 'distortion_model': 'none',
            'remark': 'whose coefficients are left out: images of Argoverse are undistorted',
            'T_imu_cam': poses_from([own['vehicle_SE3_camera_']['translation']], [[*xyz, w]])[0].tolist()}


def _nuscenes(cameras: list[dict[str, Any]]) -> Cameras:
    """calibrated_sensor.json, by tokens; its images have no distortion. Sensors without a matrix are no cameras."""
    return {camera['token']: {
        'camera_matrix': camera['camera_intrinsic'], 'distortion_model': 'none',
        'T_imu_cam': poses_from([camera['translation']], [[*camera['rotation'][1:], camera['rotation'][0]]])[0].tolist()}
        for camera in cameras if camera['camera_intrinsic']}


def _a2d2(camera: dict[str, Any]) -> dict[str, Any]:
    """Audi's cams_lidars.json: Lens is Fisheye or Telecam; CamMatrix is of rectified images. x of a view is forward, y left."""
    k, view = np.array(camera['CamMatrix'], np.float64), camera['view']
    x, y = (np.array(view[name], np.float64) for name in ('x-axis', 'y-axis'))
    z = np.cross(x, y)
    pose = np.eye(4)
    pose[:3, :3] = np.array([each / np.linalg.norm(each) for each in (x, np.cross(z, x), z)]).T
    pose[:3, 3] = view['origin']
    lens = {'Fisheye': 'equidistant', 'Telecam': 'radtan'}.get(camera['Lens'], camera['Lens'])
    return {'resolution': camera['Resolution'], 'camera_matrix': camera['CamMatrixOriginal'], 'distortion_model': lens,
            'dist_coeffs': camera['Distortion'], 'projection_matrix': np.column_stack([k, np.zeros(3)]).tolist(),
            'T_imu_cam': (pose @ other_lenses.FLU).tolist()}


TOOLS: Tools = (
    ({'names', 'intrinsics', 'extrinsics'}.issubset, _dgp),
    (lambda values: {'cameras', 'camera_model'}.issubset(values.get('sensor') or {}), lambda values: _spires(values['sensor'])),
    ({'camera_data_'}.issubset, lambda values: {
        camera['key'].removeprefix('image_raw_'): _argoverse(camera) for camera in values['camera_data_']}),
    ({'calibrated_sensor'}.issubset, lambda values: _nuscenes(values['calibrated_sensor'])),
    ({'cameras', 'lidars', 'vehicle'}.issubset, lambda values: {
        name: _a2d2(camera) for name, camera in values['cameras'].items()}))
