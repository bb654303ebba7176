"""Calibrations that cameras and their makers' programs give."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.types import Float64
from .calibration_texts import BySize
from .export_tables import Cameras, Tools, Values, one

# Of each mode of a camera the size of its images, that of the whole sensor in its pixels, and what is cut off left and above.
_KINECT: dict[str, list[tuple[int, int, tuple[int, int], int, int]]] = {
    'color': [(1280, 720, (1280, 960), 0, 120), (1920, 1080, (1920, 1440), 0, 180), (2560, 1440, (2560, 1920), 0, 240),
              (2048, 1536, (2048, 1536), 0, 0), (3840, 2160, (3840, 2880), 0, 360), (4096, 3072, (4096, 3072), 0, 0)],
    'depth': [(320, 288, (512, 512), 96, 90), (640, 576, (1024, 1024), 192, 180), (512, 512, (512, 512), 0, 0),
              (1024, 1024, (1024, 1024), 0, 0)]}
_LUXONIS = 'rational_polynomial', 'equidistant', 'equirectangular', 'radial_division', 'cylindrical'  # by cameraType
_LUXONIS_UNITS = 1.0, 0.01, 0.001, 0.0254, 0.3048  # in metres, by number


def _kinect(values: Values) -> dict[str, Any]:
    """Azure Kinect's calibration, relative to the whole sensor: for the size of each mode the part of that which is read."""
    cameras = {}
    for camera in values['CalibrationInformation']['Cameras']:
        name = {'CALIBRATION_CameraLocationD0': 'depth', 'CALIBRATION_CameraLocationPV0': 'color'}[camera['Location']]
        cx, cy, fx, fy, k1, k2, k3, k4, k5, k6, codx, cody, p2, p1 = camera['Intrinsics']['ModelParameters'][:14]
        model = str(camera['Intrinsics']['ModelType']).removeprefix('CALIBRATION_LensDistortionModel')
        cameras[name] = BySize([{
            'resolution': [width, height], 'distortion_model': 'radtan' if model == 'BrownConrady' else model,
            'camera_matrix': [fx * w, 0, cx * w - left - 0.5, 0, fy * h, cy * h - top - 0.5, 0, 0, 1],
            'dist_coeffs': [k1, k2, p1, p2, k3, k4, k5, k6], 'radial_centre': [codx, cody]}
            for width, height, (w, h), left, top in _KINECT[name]])
    return cameras


def _luxonis(values: Values) -> Cameras:
    """By their sockets: cam0 is CAM_A. Those without a calibration are left out."""
    known = {socket: camera for socket, camera in values['cameraData'] if np.any(camera['intrinsicMatrix'])}
    places = {socket: _luxonis_place(dict(values['cameraData']), socket) for socket in known}
    sides = values.get('stereoRectificationData') or {}
    cameras: Cameras = {}
    for before, socket in zip((None, *sorted(known)), sorted(known), strict=False):
        camera = known[socket]
        cameras[socket] = {
            'resolution': [camera['width'], camera['height']], 'camera_matrix': camera['intrinsicMatrix'],
            'distortion_model': _LUXONIS[camera['cameraType']], 'distortion_coeffs': camera['distortionCoeff'],
            'side_of_pair': next((side for side in ('left', 'right') if sides.get(f'{side}CameraSocket') == socket), '')}
        if before is not None and places[before][0] == places[socket][0]:
            cameras[socket]['T_cn_cnm1'] = np.linalg.solve(places[socket][1], places[before][1])[:3].tolist()
    return cameras


def _luxonis_place(cameras: Values, socket: Any) -> tuple[Any, Float64]:
    """The socket at the end of a camera's extrinsics, and the pose (4, 4) in that one; each moves points into the next camera."""
    pose, passed = np.eye(4), {socket}
    while (step := cameras[socket].get('extrinsics') or {}).get('toCameraSocket', -1) in cameras.keys() - passed:
        if not np.any(step['rotationMatrix']):
            break  # not calibrated
        own = np.eye(4)
        own[:3, :3] = step['rotationMatrix']
        own[:3, 3] = [step['translation'][axis] * _LUXONIS_UNITS[step.get('lengthUnit', 1)] for axis in 'xyz']
        socket, pose = step['toCameraSocket'], own @ pose
        passed.add(socket)
    return socket, pose


def _record3d(values: Values) -> dict[str, Any]:
    """Its metadata.json; each frame has focal lengths of its own too, by the focus, and those of K are of the first one."""
    return {name: value for name, value in values.items() if name not in ('perFrameIntrinsicCoeffs', 'poses', 'initPose')}


def _orbbec(values: Values) -> Cameras:
    """The .ini that its viewer writes: color and depth, each with OpenCV's coefficients in a section of its own."""
    return {name.lower(): {**values[f'{name}Intrinsic'], **values.get(f'{name}Distortion', {})}
            for name in ('Color', 'Depth') if f'{name}Intrinsic' in values}


def _spectacular(camera: dict[str, Any]) -> dict[str, Any]:
    """Spectacular AI's calibration.json; imuToCamera takes points of the IMU into the camera."""
    kind = camera['model']
    lens = {'kannala-brandt4': 'equidistant', 'brown-conrady': 'radtan', 'pinhole': 'radtan'}.get(kind)
    size = {'resolution': [camera['imageWidth'], camera['imageHeight']]} if 'imageWidth' in camera else {}
    return {'camera_model': 'pinhole' if lens else kind, **size,
            'intrinsics': [camera[name] for name in ('focalLengthX', 'focalLengthY', 'principalPointX', 'principalPointY')],
            'distortion_model': lens or kind, 'distortion_coeffs': camera.get('distortionCoefficients') or [0.0] * 4,
            'T_cam_imu': camera['imuToCamera']}


def _photonvision(values: Values) -> dict[str, Any]:
    size = values['resolution']
    return {'resolution': [size['width'], size['height']], 'camera_matrix': values['cameraIntrinsics'],
            'dist_coeffs': values['distCoeffs']}


def _gyroflow(values: Values) -> dict[str, Any]:
    """A lens profile: that of cv2.fisheye, unless it names another model."""
    lens, size = values['fisheye_params'], values['calib_dimension']
    model = values.get('distortion_model') or 'opencv_fisheye'
    stretches = [values.get(f'input_{name}_stretch') or 1 for name in ('horizontal', 'vertical')]
    changed = f'stretched by {stretches[0]:g} and {stretches[1]:g}' if stretches != [1, 1] else values.get('digital_lens')
    return {'resolution': [size['w'], size['h']], 'camera_matrix': lens['camera_matrix'], 'camera_model': changed or 'pinhole',
            'distortion_model': 'equidistant' if model == 'opencv_fisheye' else model,
            'distortion_coeffs': lens['distortion_coeffs']}


TOOLS: Tools = (
    ({'CalibrationInformation'}.issubset, _kinect),
    (lambda values: values.get('cameraData'), _luxonis),
    ({'K', 'perFrameIntrinsicCoeffs'}.issubset, one(_record3d)),
    ({'ColorIntrinsic'}.issubset, _orbbec),
    (lambda values: isinstance(values.get('cameras'), list) and 'focalLengthX' in values['cameras'][0],
     lambda values: enumerate(map(_spectacular, values['cameras']))),
    ({'cameraIntrinsics', 'resolution'}.issubset, one(_photonvision)),
    ({'fisheye_params', 'calib_dimension'}.issubset, one(_gyroflow)))
