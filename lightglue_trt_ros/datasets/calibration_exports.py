"""Files of tools that list cameras in their own way, in the words of Kalibr's camchain, which `calibration_forms` reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import cv2
import numpy as np

from ..core.types import Float64
from . import other_lenses
from .calibration_texts import BySize, in_pixels
from .poses import poses_from

Values = Mapping[str, Any]  # of a file, by key
Cameras = dict[int | str, dict[str, Any]]  # with Kalibr's keys, by number or name
_BASALT = {'pinhole': 'none', 'kb4': 'equidistant', 'pinhole-radtan8': 'rational_polynomial'}
_SIDES = ('1', '2'), ('0', '1'), ('left', 'right'), ('Left', 'Right'), ('l', 'r'), ('L', 'R')  # in the keys of a pair
_OF_PAIRS = (('K', 'M', 'mtx', 'cameraMatrix', 'camera_matrix', 'camera_mat', 'intrinsics', 'intrinsic'),
             ('D', 'dist', 'distCoeffs', 'dist_coeffs', 'distortion_coefficients', 'distortion', 'dist_coefs'))
_NERFSTUDIO = ('camera_model', 'w', 'h', 'fl_x', 'fl_y', 'cx', 'cy', 'k1', 'k2', 'k3', 'k4', 'p1', 'p2', 'is_fisheye')
_INNER = ('projection', 'intrinsics', 'intrinsic', 'camera_intrinsics', 'cameraintrinsics', 'camera_matrix', 'cameramatrix', 'k')
_INNER_MATRICES = 'camera_matrix', 'cameramatrix', 'intrinsic_matrix', 'mtx', 'k'
_OF_MIDDLE = {'u0': 'cx', 'v0': 'cy', 'ppx': 'cx', 'ppy': 'cy'}  # other names of a principal point
_ROTATIONS = 'R', 'rot', 'rotation', 'rotation_matrix', 'R_stereo', 'rotationMatrix', 'rotMatrix'  # right from left
_TRANSLATIONS = 'T', 'trans', 'translation', 'translation_vector', 'T_stereo', 'translationVector', 'transVector'
_RECTIFYING = ('size', *_ROTATIONS, *_TRANSLATIONS, 'E', 'F', 'R1', 'R2', 'P1', 'P2', 'Q')  # of stereoCalibrate and stereoRectify
# Of each mode of a camera the size of its images, that of the whole sensor in its pixels, and what is cut off left and above.
_KINECT: dict[str, list[tuple[int, int, tuple[int, int], int, int]]] = {
    'color': [(1280, 720, (1280, 960), 0, 120), (1920, 1080, (1920, 1440), 0, 180), (2560, 1440, (2560, 1920), 0, 240),
              (2048, 1536, (2048, 1536), 0, 0), (3840, 2160, (3840, 2880), 0, 360), (4096, 3072, (4096, 3072), 0, 0)],
    'depth': [(320, 288, (512, 512), 96, 90), (640, 576, (1024, 1024), 192, 180), (512, 512, (512, 512), 0, 0),
              (1024, 1024, (1024, 1024), 0, 0)]}
_OF_OPENMVG = {'disto_k1': 'radtan', 'disto_k3': 'radtan', 'disto_t2': 'radtan', 'fisheye': 'equidistant'}
_OF_ALICEVISION = {'pinhole': 'none', 'none': 'none', 'fisheye4': 'equidistant',
                   **dict.fromkeys(('radialk1', 'radialk3', 'radial1', 'radial3', 'brown'), 'radtan')}
_OF_DGP = {name: f'lens_parameter_{name}' for name in ('alpha', 'beta', 'fov', 'w', 'xi', 'equirectangular')}
_LUXONIS = 'rational_polynomial', 'equidistant', 'equirectangular', 'radial_division', 'cylindrical'  # by cameraType
_LUXONIS_UNITS = 1.0, 0.01, 0.001, 0.0254, 0.3048  # in metres, by number
_VIKIT = {'pinhole': 'radtan', 'pinholeradialtangential': 'radtan', 'equidistantcamera': 'equidistant',
          'pinholeequidistant': 'equidistant', 'pinholenodistortion': 'none', 'atan': 'fov'}  # SVO's and FAST-LIVO's cam_model
_OKVIS = {'radialtangential': 'radtan', 'radialtangential8': 'rational_polynomial'}


def as_chain(values: Values) -> Values:
    """Cameras cam0, cam1 ..., or by name, with Kalibr's keys; `values` themselves where no tool is known that writes such."""
    cameras: Cameras = {}
    with suppress(ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError):  # another tool's file
        values = _of_nerf(_of_frames(_flat(_of_parameters(values))))
        read = next((read for recognises, read in _TOOLS if recognises(values)), None)
        cameras = {} if read is None else dict(read(values))
    named_cameras = {name if isinstance(name, str) else f'cam{name}': camera for name, camera in cameras.items()}
    if not named_cameras and 'camera.fx' in values:  # as ORB-SLAM's, in slambook's letters
        values = {re.sub('^camera', 'Camera', str(name)): value for name, value in values.items()}
    return named_cameras or _with_focals(_flat(_named_lists(values), 3))


def _matlab(values: Values) -> dict[str, Any]:
    """What toStruct gives of cameraParameters: rows before columns, pixels from (1, 1), and the older matrix is transposed.

    The pose of stereoParameters is not read: its rotation is transposed in some versions.
    """
    k = np.array(values['K'] if 'K' in values else np.transpose(values['IntrinsicMatrix']), np.float64)
    (height, width), (k1, k2, *k3) = values['ImageSize'], values['RadialDistortion']
    return {'resolution': [width, height], 'intrinsics': [k[0, 0], k[1, 1], k[0, 2] - 1, k[1, 2] - 1], 'skew': float(k[0, 1]),
            'distortion_model': 'radtan', 'distortion_coeffs': [k1, k2, *values['TangentialDistortion'], *k3]}


def _flat(values: Values, depth: int = 2) -> Values:
    """With the names inside `intrinsics: {fx: ...}`, {K: ...} or `camera_matrix: {fx: ...}` next to the others, also of cameras."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            own = {_OF_MIDDLE.get(str(key).lower(), str(key)): each for key, each in value.items()}
            names = {key.lower() for key in own}
            is_camera = {'fx', 'fy', 'cx', 'cy'} <= names or not names.isdisjoint(_INNER_MATRICES)
            if is_camera and str(name).lower() in _INNER and all(values.get(key, each) == each for key, each in own.items()):
                found |= own
                continue
            value = _flat(value, depth - 1) if depth > 1 else value
        found[name] = value
    return found


def _with_focals(values: Values, depth: int = 3) -> dict[str, Any]:
    """With fx, fy, cx, cy for focal_length and principal_point: two numbers, or one focal length for both; also inside."""
    pairs = [_two_of(values.get(name)) for name in ('focal_length', 'principal_point')]
    found = {name: _with_focals(value, depth - 1) if depth and isinstance(value, dict) else value for name, value in values.items()}
    if not all(pairs):
        return found
    del found['focal_length'], found['principal_point']
    return found | dict(zip(('fx', 'fy', 'cx', 'cy'), pairs[0] + pairs[1], strict=True))


def _two_of(value: Any) -> list[float]:
    """Both numbers of a list or of {x: ..., y: ...}, and one number twice; empty for others."""
    by_name = [value[key] for key in sorted(value)] if isinstance(value, dict) else None
    numbers = by_name or (value if isinstance(value, list) else [value] * 2)
    return numbers if len(numbers) == 2 and all(isinstance(number, (int, float)) for number in numbers) else []


def _named_lists(values: Values) -> dict[str, Any]:
    """With a list of cameras as a mapping of them, by their names, ids or numbers."""
    return {key: named(value) if key in ('cameras', 'sensors') else value for key, value in values.items()}


def named(cameras: Any) -> Any:
    """A list of mappings as a mapping, by their names, ids or numbers; what is no such list as it is."""
    if not isinstance(cameras, list) or not cameras or not all(isinstance(each, dict) for each in cameras):
        return cameras
    keys = [next((str(each[key]) for key in ('name', 'camera_name', 'id') if key in each), str(number))
            for number, each in enumerate(cameras)]
    return dict(zip(keys, cameras, strict=True)) if len(set(keys)) == len(keys) else cameras


def _of_parameters(values: Values) -> Values:
    """Of a parameter file of one ROS 2 node, its parameters; `values` themselves of others."""
    inner = next(iter(values.values())) if len(values) == 1 else None
    parameters = inner.get('ros__parameters') if isinstance(inner, dict) else None
    return parameters if isinstance(parameters, dict) else values


def _of_frames(values: Values) -> Values:
    """Of a transforms.json whose frames have intrinsics, these, as cam0 ... where they differ; `values` themselves of others."""
    frames = [frame for frame in values.get('frames') or [] if 'fl_x' in frame]
    if 'fl_x' in values or not frames:
        return values
    common = {name: value for name, value in values.items() if name != 'frames'}
    cameras = [{**common, **{name: frame[name] for name in _NERFSTUDIO if name in frame}} for frame in frames]
    different = [camera for number, camera in enumerate(cameras) if camera not in cameras[:number]]
    return different[0] if len(different) == 1 else {f'cam{number}': each for number, each in enumerate(different)}


def _of_nerf(values: Values) -> Values:
    """Of nerfstudio's and instant-ngp's cameras, fl_x ..., OpenCV's fx ...: they count pixels from the corner of the first one.

    Those inside cam0 ... too; `values` themselves of others.
    """
    if 'fl_x' not in values:
        inner = {name: _of_nerf(value) for name, value in values.items() if isinstance(value, dict) and 'fl_x' in value}
        return {**values, **inner} if inner else values
    rest = {name: value for name, value in values.items() if name not in ('fl_x', 'fl_y', 'cx', 'cy', 'is_fisheye')}
    focal = {name[0] + name[-1]: float(values[name]) for name in ('fl_x', 'fl_y') if name in values}
    middle = {name: float(values[name]) - 0.5 for name in ('cx', 'cy') if name in values}
    return {**rest, **focal, **middle, **({'camera_model': 'OPENCV_FISHEYE'} if values.get('is_fisheye') else {})}


def _opencv_keys(values: Values) -> list[tuple[str, str]]:
    """The keys of matrix and coefficients, of the first camera and of the second; empty where there are no such."""
    for sides in _SIDES:
        found = [[key for stem in stems for key in (f'{stem}{side}', f'{stem}_{side}', f'{side}_{stem}') if key in values][:1]
                 for side in sides for stems in _OF_PAIRS]
        if all(found):
            keys = [key for each in found for key in each]
            return [(keys[0], keys[1]), (keys[2], keys[3])]
    return []


def _opencv_pair(values: Values) -> Cameras:
    """The pair of cv2.stereoCalibrate: two matrices, two lists of coefficients, and R and T, right from left."""
    pair = _opencv_keys(values)
    common = {key: value for key, value in values.items() if key not in {*pair[0], *pair[1], *_RECTIFYING}}
    if isinstance(values.get('size'), list):
        common['image_size'] = values['size']
    left, right = (dict(_flat({**common, 'camera_matrix': values[k], 'dist_coeffs': values[d]})) for k, d in pair)
    return {0: left, 1: right | step_of_pair(values)}


def step_of_pair(values: Values) -> dict[str, Any]:
    """T_cn_cnm1 of the second camera by R and T of cv2.stereoCalibrate; empty without them."""
    rotation, translation = (_numbers_of(values, keys) for keys in (_ROTATIONS, _TRANSLATIONS))
    if rotation.size not in (3, 9) or translation.size != 3:
        return {}
    rotation = np.asarray(cv2.Rodrigues(rotation)[0] if rotation.size == 3 else rotation.reshape(3, 3))
    return {'T_cn_cnm1': np.column_stack([rotation, translation]).tolist()}


def _numbers_of(values: Values, keys: tuple[str, ...]) -> Float64:
    """(n,) of the first of `keys` that is there; empty without any."""
    value: Any = next((values[key] for key in keys if key in values), [])
    return np.ravel(value['data'] if isinstance(value, dict) else value).astype(np.float64)


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


def _vikit(values: Values) -> dict[str, Any]:
    """SVO's and FAST-LIVO's: cam_d0 ... are k1, k2, p1, p2, k3 of a pinhole, and coefficients of a fisheye are k1 to k4."""
    kind = str(values['cam_model'])
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


def _photonvision(values: Values) -> dict[str, Any]:
    size = values['resolution']
    return {'resolution': [size['width'], size['height']], 'camera_matrix': values['cameraIntrinsics'],
            'dist_coeffs': values['distCoeffs']}


def _mast3r_slam(values: Values) -> dict[str, Any]:
    numbers = values['calibration'][:]  # of a mapping, as another tool's, there is no such part
    return {'resolution': [values['width'], values['height']], 'intrinsics': numbers[:4], 'distortion_model': 'radtan',
            'distortion_coeffs': numbers[4:] or [0.0] * 4}


def _gyroflow(values: Values) -> dict[str, Any]:
    """A lens profile: that of cv2.fisheye, unless it names another model."""
    lens, size = values['fisheye_params'], values['calib_dimension']
    model = values.get('distortion_model') or 'opencv_fisheye'
    stretches = [values.get(f'input_{name}_stretch') or 1 for name in ('horizontal', 'vertical')]
    changed = f'stretched by {stretches[0]:g} and {stretches[1]:g}' if stretches != [1, 1] else values.get('digital_lens')
    return {'resolution': [size['w'], size['h']], 'camera_matrix': lens['camera_matrix'], 'camera_model': changed or 'pinhole',
            'distortion_model': 'equidistant' if model == 'opencv_fisheye' else model,
            'distortion_coeffs': lens['distortion_coeffs']}


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


def sides_of(values: Values) -> Cameras:
    """The raw pair that ORB-SLAM2 and AirVO rectify, by LEFT.K, LEFT.D, LEFT.R and LEFT.P; a size may be of both cameras."""
    cameras: Cameras = {}
    for side in ('LEFT', 'RIGHT'):
        own = {name.removeprefix(f'{side}.'): value for name, value in values.items() if name.startswith(f'{side}.')}
        size = {f'image_{name}': own.get(name, values.get(f'image_{name}')) for name in ('width', 'height')}
        d = _numbers_of(own, ('D',)).tolist()
        lens = 'equidistant' if values.get('distortion_type') == 1 else 'radtan'
        cameras[side.lower()] = {
            **{name: each for name, each in size.items() if each is not None}, 'camera_matrix': own.get('K'),
            'distortion_model': lens, 'distortion_coefficients': d[:4] if lens == 'equidistant' and d[4:] == [0] else d,
            **{name: own[key] for key, name in (('R', 'rectification_matrix'), ('P', 'projection_matrix')) if key in own}}
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


def _opencalib(values: Values) -> dict[str, Any]:
    (camera,) = (value['param'] for value in values.values())
    return {'resolution': [camera['img_dist_w'], camera['img_dist_h']], 'camera_matrix': camera['cam_K'],
            'dist_coeffs': camera['cam_dist']}


def _spectacular(camera: dict[str, Any]) -> dict[str, Any]:
    """Spectacular AI's calibration.json; imuToCamera takes points of the IMU into the camera."""
    kind = camera['model']
    lens = {'kannala-brandt4': 'equidistant', 'brown-conrady': 'radtan', 'pinhole': 'radtan'}.get(kind)
    size = {'resolution': [camera['imageWidth'], camera['imageHeight']]} if 'imageWidth' in camera else {}
    return {'camera_model': 'pinhole' if lens else kind, **size,
            'intrinsics': [camera[name] for name in ('focalLengthX', 'focalLengthY', 'principalPointX', 'principalPointY')],
            'distortion_model': lens or kind, 'distortion_coeffs': camera.get('distortionCoefficients') or [0.0] * 4,
            'T_cam_imu': camera['imuToCamera']}


def _mrcal(values: Values) -> dict[str, Any]:
    """A .cameramodel; its other lenses are refused by name."""
    model, numbers = str(values['lensmodel']).removeprefix('LENSMODEL_'), values['intrinsics']
    is_read = model in ('PINHOLE', 'OPENCV4', 'OPENCV5', 'OPENCV8', 'OPENCV12')
    return {'camera_model': 'pinhole' if is_read else model, 'resolution': values['imagersize'], 'intrinsics': numbers[:4],
            'distortion_model': 'rational_polynomial' if len(numbers) > 9 else 'radtan',
            'distortion_coeffs': numbers[4:] or [0.0] * 4}


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


def _argoverse(camera: dict[str, Any]) -> dict[str, Any]:
    """Argoverse 1's: the images have no distortion, its coefficients are those of before (argoverse-api, issue 81)."""
    own, (w, *xyz) = camera['value'], camera['value']['vehicle_SE3_camera_']['rotation']['coefficients']
    (fx, fy), (cx, cy) = ([own[f'focal_{name}_{axis}_px_'] for axis in 'xy'] for name in ('length', 'center'))
    return {'camera_matrix': [[fx, own['skew_'], cx], [0, fy, cy], [0, 0, 1]], 'distortion_model': 'none',
            'remark': 'whose coefficients are left out: images of Argoverse are undistorted',
            'T_imu_cam': poses_from([own['vehicle_SE3_camera_']['translation']], [[*xyz, w]])[0].tolist()}


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
    poses = {name.partition('_to_')[0]: np.linalg.inv([*np.column_stack([pose['R'], pose['T']]), [0, 0, 0, 1]]).tolist()
             for name, pose in values['camera_poses'].items()}
    return {name: {**camera, **({'T_rig_cam': poses[name]} if name in poses else {})} for name, camera in values['cameras'].items()}


def _aniposelib(values: Values) -> Cameras:
    """Its calibration.toml: camera from rig by a rotation vector and a translation."""
    return {str(camera.get('name', name)): {
        'resolution': camera['size'], 'camera_matrix': camera['matrix'], 'dist_coeffs': camera['distortions'],
        'distortion_model': 'equidistant' if camera.get('fisheye') else 'radtan', 'T_rig_cam': np.linalg.inv([
            *np.column_stack([cv2.Rodrigues(np.array(camera['rotation'], np.float64))[0], camera['translation']]), [0, 0, 0, 1]])
        .tolist()} for name, camera in values.items() if isinstance(camera, dict) and 'matrix' in camera}


def _nuscenes(cameras: list[dict[str, Any]]) -> Cameras:
    """calibrated_sensor.json, by tokens; its images have no distortion. Sensors without a matrix are no cameras."""
    return {camera['token']: {
        'camera_matrix': camera['camera_intrinsic'], 'distortion_model': 'none',
        'T_imu_cam': poses_from([camera['translation']], [[*camera['rotation'][1:], camera['rotation'][0]]])[0].tolist()}
        for camera in cameras if camera['camera_intrinsic']}


def _record3d(values: Values) -> dict[str, Any]:
    """Its metadata.json; each frame has focal lengths of its own too, by the focus, and those of K are of the first one."""
    return {name: value for name, value in values.items() if name not in ('perFrameIntrinsicCoeffs', 'poses', 'initPose')}


def _one(read: Callable[[Values], dict[str, Any]]) -> Callable[[Values], Cameras]:
    """Reads a file of one camera."""
    return lambda values: {0: read(values)}


def _all_have(is_camera: Callable[[dict[str, Any]], bool]) -> Callable[[Values], bool]:
    """Recognises a file that is a mapping of cameras."""
    return lambda values: bool(values) and all(isinstance(value, dict) and is_camera(value) for value in values.values())


_TOOLS: tuple[tuple[Callable[[Values], Any], Callable[[Values], Any]], ...] = (
    # What recognises the file of a tool, and what reads its cameras by number or name. The first that recognises a file reads it.
    (lambda values: 'sensors' in (values.get('rig') or {}), other_lenses.of_nvidia),
    ({'CameraCalibrations'}.issubset, other_lenses.of_aria),
    ({'poly_parameters', 'affine_parameters'}.issubset, lambda values: {0: other_lenses.of_camodocal(values)}),
    ({'omni_affine', 'distortion_coefficients'}.issubset, _one(other_lenses.of_kimera)),
    (lambda values: values.get('type') == 'omni' and 'data' in values['intrinsics'], _one(other_lenses.of_svo)),
    ({'Camera.nrpol', 'Camera.a0'}.issubset, lambda values: {0: other_lenses.of_multicol(values)}),
    (lambda values: (values.get('intrinsic') or {}).get('model') == 'radial_poly',
     lambda values: {0: other_lenses.of_woodscape(values)}),
    (lambda values: 'MappingCoefficients' in (values.get('Intrinsics') or values),
     lambda values: {0: other_lenses.of_matlab_fisheye(values.get('Intrinsics') or values)}),
    ({'CalibrationInformation'}.issubset, _kinect),
    ({'sfm_data_version', 'intrinsics'}.issubset, lambda values: enumerate(map(_openmvg, values['intrinsics']))),
    ({'views', 'intrinsics', 'version'}.issubset, lambda values: enumerate(map(_alicevision, values['intrinsics']))),
    ({'nb_camera', 'camera_0'}.issubset, _mc_calib),
    ({'cameras', 'camera_poses'}.issubset, _multical),
    (lambda values: any(isinstance(camera, dict) and {'matrix', 'distortions', 'size'} <= camera.keys()
                        for camera in values.values()), _aniposelib),
    ({'names', 'intrinsics', 'extrinsics'}.issubset, _dgp),
    (lambda values: {'cameras', 'camera_model'}.issubset(values.get('sensor') or {}), lambda values: _spires(values['sensor'])),
    ({'camera_data_'}.issubset, lambda values: {
        camera['key'].removeprefix('image_raw_'): _argoverse(camera) for camera in values['camera_data_']}),
    ({'calibrated_sensor'}.issubset, lambda values: _nuscenes(values['calibrated_sensor'])),
    ({'cameras', 'lidars', 'vehicle'}.issubset, lambda values: {
        name: _a2d2(camera) for name, camera in values['cameras'].items()}),
    ({'K', 'perFrameIntrinsicCoeffs'}.issubset, _one(_record3d)),
    (lambda values: isinstance(values.get('cameras'), dict) and values['cameras'],
     lambda values: enumerate(map(_opensfm, values['cameras'].values()))),
    (lambda values: values.get('cameras') and 'focalLengthX' in values['cameras'][0],
     lambda values: enumerate(map(_spectacular, values['cameras']))),
    (lambda values: values.get('cameras'), lambda values: enumerate(map(_maplab, values['cameras']))),
    (lambda values: values.get('value0'), _basalt),
    (lambda values: values.get('cameraData'), _luxonis),
    (lambda values: values.get('sensors'), lambda values: enumerate(
        _maplab(camera) for sensor in values['sensors'] if sensor.get('sensor_type') == 'NCAMERA' for camera in sensor['cameras'])),
    (_vikit_names, lambda values: {int(name[3:]): _vikit(values[name]) for name in _vikit_names(values)}),
    ({'CameraParameters1', 'CameraParameters2'}.issubset,
     lambda values: {number: _matlab(values[f'CameraParameters{number + 1}']) for number in range(2)}),
    (_all_have(lambda camera: 'projection_type' in camera), lambda values: enumerate(map(_opensfm, values.values()))),
    (_all_have(lambda camera: 'cam_K' in camera.get('param', {})), _one(_opencalib)),
    ({'RadialDistortion'}.issubset, _one(_matlab)),
    ({'cam_model', 'cam_fx'}.issubset, _one(_vikit)),
    ({'cameraIntrinsics', 'resolution'}.issubset, _one(_photonvision)),
    ({'calibration', 'width', 'height'}.issubset, _one(_mast3r_slam)),
    ({'lensmodel', 'imagersize'}.issubset, _one(_mrcal)),
    ({'fisheye_params', 'calib_dimension'}.issubset, _one(_gyroflow)),
    ({'image_width', 'distortion_type', 'cam0'}.issubset, _airslam),
    ({'Camera.fxl'}.issubset, _ov2slam),
    (lambda values: {'LEFT.K', 'RIGHT.K'}.issubset(values) and 'Camera.fx' not in values, sides_of),
    (_opencv_keys, _opencv_pair))
