"""Calibrations in the settings of SLAM and in the results of photogrammetry."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from . import other_lenses
from .calibration_texts import in_pixels
from .export_tables import Cameras, Tools, Values, all_have, one

_OF_OPENMVG = {'disto_k1': 'radtan', 'disto_k3': 'radtan', 'disto_t2': 'radtan', 'fisheye': 'equidistant'}
_OF_ALICEVISION = {'pinhole': 'none', 'none': 'none', 'fisheye4': 'equidistant',
                   **dict.fromkeys(('radialk1', 'radialk3', 'radial1', 'radial3', 'brown'), 'radtan')}
_VIKIT = {'pinhole': 'radtan', 'pinholeradialtangential': 'radtan', 'equidistantcamera': 'equidistant',
          'pinholeequidistant': 'equidistant', 'pinholenodistortion': 'none', 'atan': 'fov'}  # SVO's and FAST-LIVO's cam_model
_OKVIS = {'radialtangential': 'radtan', 'radialtangential8': 'rational_polynomial'}


def _openmvg(intrinsic: dict[str, Any]) -> dict[str, Any]:
    """An intrinsic of sfm_data.json, whose lens only the key of its coefficients names: k1, k2, k3, p1, p2 or a fisheye's."""
    data = intrinsic['value']['ptr_wrapper']['data']
    camera, name = data.get('value0', data), next((name for name in _OF_OPENMVG if name in data), '')
    return _with_lens(_OF_OPENMVG.get(name, 'none'), data.get(name, []), [camera['width'], camera['height']], [
        camera['focal_length'], camera['focal_length'], *camera['principal_point']])


def _alicevision(intrinsic: dict[str, Any]) -> dict[str, Any]:
    """An intrinsic of a .sfm: the focal length in the unit of the sensor's width, the middle from that of the image or whole."""
    size, kind = [int(intrinsic[side]) for side in ('width', 'height')], str(intrinsic['type'])
    kind = str(intrinsic.get('distortionType', 'none')) if kind == 'pinhole' and 'distortionType' in intrinsic else kind
    if 'pxFocalLength' in intrinsic:
        focal = np.broadcast_to(np.array(intrinsic['pxFocalLength'], np.float64), 2).tolist()
    else:
        focal = [size[0] * float(intrinsic['focalLength']) / float(intrinsic['sensorWidth'])] * 2
    middle = [float(each) for each in intrinsic['principalPoint']]
    middle = [each + side / 2 if abs(each) < side / 4 else each for each, side in zip(middle, size, strict=True)]
    square = float(intrinsic.get('pixelRatio', 1)) == 1 or 'pxFocalLength' in intrinsic
    return _with_lens(_OF_ALICEVISION.get(kind, kind) if square else f'a pixelRatio of {intrinsic["pixelRatio"]}', [
        float(each) for each in intrinsic.get('distortionParams') or []], size, [*focal, *middle])


def _with_lens(lens: str, d: list[float], size: list[int], k: list[float]) -> dict[str, Any]:
    """k1, k2, k3 of a polynomial, perhaps with p1 and p2 behind them, or a fisheye's; `lens` of another kind is refused by name."""
    is_read = lens in ('none', 'radtan', 'equidistant')
    d = [*d, *[0.0] * (5 - len(d))] if lens == 'radtan' else d
    return {'camera_model': 'pinhole' if is_read else lens, 'resolution': size, 'intrinsics': k, 'distortion_model': lens,
            'distortion_coeffs': [*d[:2], *d[3:5], d[2]] if lens == 'radtan' else d}


def _opensfm(camera: dict[str, Any]) -> dict[str, Any]:
    """OpenSfM's and OpenDroneMap's: in sizes of the longer side, from the middle of the image, whose first pixel is at 0.5."""
    kind, width, height = camera.get('projection_type', 'perspective'), camera['width'], camera['height']
    side, focal = max(width, height), camera.get('focal')
    lens = {'fisheye': 'equidistant', 'fisheye_opencv': 'equidistant', 'perspective': 'radtan', 'simple_radial': 'radtan',
            'radial': 'radtan', 'brown': 'radtan'}.get(kind)
    return {'camera_model': 'pinhole' if lens else kind, 'resolution': [width, height], 'distortion_model': lens or kind,
            'intrinsics': [side * camera.get('focal_x', focal), side * camera.get('focal_y', focal),
                           side * camera.get('c_x', 0.0) + width / 2 - 0.5, side * camera.get('c_y', 0.0) + height / 2 - 0.5],
            **{name: value for name, value in camera.items() if name[0] in 'kps' and name[1:].isdigit()}}


def _maplab(entry: dict[str, Any]) -> dict[str, Any]:
    """Also SVO's, and OKVIS's."""
    camera = {**entry, **entry.get('camera', {})}
    if 'focal_length' in camera:
        model = str(camera['distortion_type'])
        return {**camera, 'resolution': camera['image_dimension'], 'distortion_type': _OKVIS.get(model, model),
                'intrinsics': [*camera['focal_length'], *camera['principal_point']], 'T_imu_cam': camera.get('T_SC')}
    if camera.get('type') == 'omni':
        return {**other_lenses.of_svo(camera), 'T_imu_cam': entry.get('T_B_C')}
    lens = camera.pop('distortion')
    del camera['camera']
    return {**camera, 'camera_model': camera['type'], 'distortion_model': lens['type'],
            'distortion_coeffs': lens.get('parameters') or [], 'T_imu_cam': entry.get('T_B_C')}


def _vikit(values: Values) -> dict[str, Any]:
    """SVO's and FAST-LIVO's: cam_d0 ... are k1, k2, p1, p2, k3 of a pinhole, and coefficients of a fisheye are k1 to k4.

    Coco-LIC names no model, and the size in another way.
    """
    kind, values = str(values.get('cam_model', 'pinhole')), {
        **{f'cam_{side}': values[f'image_{side}'] for side in ('width', 'height') if f'image_{side}' in values}, **values}
    model = _VIKIT.get(kind.lower())
    names = [name for name in ('cam_d{}', 'k{}') for name in map(name.format, range(5)) if name in values]
    *size, fx, fy, cx, cy = (values[f'cam_{name}'] for name in ('width', 'height', 'fx', 'fy', 'cx', 'cy'))
    return {'camera_model': kind if model is None else 'pinhole', 'resolution': size,
            'intrinsics': in_pixels([fx, fy, cx, cy], size) if model == 'fov' else [fx, fy, cx, cy],
            'distortion_model': model or kind, 'distortion_coeffs': [values[name] for name in names] or [0.0] * 4}


def _vikit_names(values: Values) -> list[str]:
    """Of several such cameras cam0, cam1 ..."""
    return [name for name, value in values.items()
            if re.fullmatch(r'cam\d', str(name)) and isinstance(value, dict) and 'cam_fx' in value]


def _mast3r_slam(values: Values) -> dict[str, Any]:
    numbers = values['calibration'][:]  # of a mapping, as another tool's, there is no such part
    return {'resolution': [values['width'], values['height']], 'intrinsics': numbers[:4], 'distortion_model': 'radtan',
            'distortion_coeffs': numbers[4:] or [0.0] * 4}


def _airslam(values: Values) -> Cameras:
    """Cameras whose size and lens are named once for all; T is T_cam_imu where T_type is 1, else T_BS."""
    lens = {0: 'none', 1: 'radtan', 2: 'equidistant'}[values['distortion_type']]
    cameras: Cameras = {}
    for number in range(8):
        if camera := values.get(f'cam{number}'):
            d = camera['distortion_coeffs']
            cameras[number] = {
                'resolution': [values['image_width'], values['image_height']], 'intrinsics': camera['intrinsics'],
                'distortion_model': lens, 'distortion_coeffs': d[:4] if lens == 'equidistant' and d[4:] == [0] else d,
                'T_cam_imu' if camera.get('T_type') else 'T_BS': camera['T']}
    return cameras


def _ov2slam(values: Values) -> Cameras:
    """Left and right camera; of a fisheye p1 and p2 are its third and fourth coefficient."""
    cameras: Cameras = {}
    for number, side in enumerate(('left', 'right')):
        own = {key[len('Camera.'):-1]: value for key, value in values.items() if re.fullmatch(rf'Camera\.[a-z]+\d?{side[0]}', key)}
        if 'fx' in own:
            model = values[f'Camera.model_{side}']
            cameras[number] = {
                'resolution': [values[f'Camera.{side}_n{name}'] for name in ('width', 'height')],
                'intrinsics': [own[name] for name in ('fx', 'fy', 'cx', 'cy')], 'T_BS': values.get(f'body_T_cam{number}'),
                'distortion_model': 'equidistant' if model == 'fisheye' else 'radtan' if model == 'pinhole' else model,
                'distortion_coeffs': [own[name] for name in ('k1', 'k2', 'p1', 'p2')]}
    return cameras


TOOLS: Tools = (
    ({'sfm_data_version', 'intrinsics'}.issubset, lambda values: enumerate(map(_openmvg, values['intrinsics']))),
    ({'views', 'intrinsics', 'version'}.issubset, lambda values: enumerate(map(_alicevision, values['intrinsics']))),
    (lambda values: isinstance(values.get('cameras'), dict) and values['cameras'],
     lambda values: enumerate(map(_opensfm, values['cameras'].values()))),
    (lambda values: values.get('cameras'), lambda values: enumerate(map(_maplab, values['cameras']))),
    (lambda values: values.get('sensors'), lambda values: enumerate(
        _maplab(camera) for sensor in values['sensors'] if sensor.get('sensor_type') == 'NCAMERA' for camera in sensor['cameras'])),
    (_vikit_names, lambda values: {int(name[3:]): _vikit(values[name]) for name in _vikit_names(values)}),
    (all_have(lambda camera: 'projection_type' in camera), lambda values: enumerate(map(_opensfm, values.values()))),
    ({'cam_fx'}.issubset, one(_vikit)),
    ({'calibration', 'width', 'height'}.issubset, one(_mast3r_slam)),
    ({'image_width', 'distortion_type', 'cam0'}.issubset, _airslam),
    ({'Camera.fxl'}.issubset, _ov2slam))
