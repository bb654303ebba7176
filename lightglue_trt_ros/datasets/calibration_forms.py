"""Forms of calibration files: what each says of its cameras, by key. Errors are ValueError and KeyError, and name the key.

Nothing about a lens is dropped: a key of distortion that a form does not read is an error, unless all its values are zero.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from ..core.cameras import LEAST_BASELINE_M, MOST_BASELINE_M, POLYNOMIAL, Intrinsics, distortion_model, is_camera
from ..core.types import Float64
from .calibration_exports import as_chain
from .calibration_fields import SIZES, Fields, is_zero, rigid
from .calibration_lens import MODEL_KEYS, OTHERS, camera_model, lens_of
from .calibration_shapes import ORDERS, USUAL, order_of
from .calibration_texts import BySize
from .fitted_lenses import LISTED, PARAMETERS, fitted
from .opencv_pairs import sides_of, step_of_pair

MATRICES = ('camera_matrix', 'k', 'cameramat', 'cameramatrix', 'intrinsic_matrix', 'intrinsicmatrix', 'mtx', 'm',
            'camera_intrinsic', 'cam_k')
PROJECTIONS = ('projection_matrix', 'p')
MATRICES_OR_LISTS = ('intrinsics', 'intrinsic')  # also matrices
FOCALS = (('fx', 'fy', 'cx', 'cy'), ('fl_x', 'fl_y', 'cx', 'cy'), ('fx', 'fy', 'ppx', 'ppy'), ('fu', 'fv', 'cu', 'cv'),
          ('fx', 'fy', 'px', 'py'))
OFF_MIDDLE = 0.1  # of the size; a principal point is nearer, and one of images that were resized by 1.25 or more is farther
ONE_OFF_MIDDLE = 0.12  # where the other axis is near: a resized image has both off, and DAVIS240C's lens sits 0.115 too low
LEAST_TURN_DEG = 0.01  # that is told
_NAMES_OF_SIDES = {side: rf'(^|[^a-z])({side}|{side[0]})([^a-z]|$)|^infra(red)?_?{number}$'  # infrared_1 is RealSense's left one
                   for number, side in enumerate(('left', 'right'), 1)}
BODY_KEYS = 'body_T_cam0', 'body_T_cam', 'IMU.T_b_c1', 'Tbc', 'local_transform'  # whichever tool's; the last is RTAB-Map's
POSE_KEYS = ("T_BS (EuRoC), T_cam_imu or T_imu_cam (Kalibr, OpenVINS), body_T_cam0, body_T_cam1 or extrinsicRotation and "
             'extrinsicTranslation (VINS), Tbc or IMU.T_b_c1 (ORB-SLAM)')


@dataclass(frozen=True)
class DescribedCamera:
    """What a file says of one camera, read when it is asked for."""

    intrinsics: Callable[[bool], Intrinsics]  # of rectified images (True), or of raw ones
    in_body: Callable[[], Float64 | None] = lambda: None  # (4, 4) body from camera
    in_left: Callable[[], Float64 | None] = lambda: None  # (4, 4) from the camera before it in the file, a left one, to this one
    in_rig: Callable[[bool], Float64 | None] = lambda rectified: None  # (4, 4) in axes of all, of rectified images or of raw ones
    baseline: Callable[[], float | None] = lambda: None  # metres, where one camera describes both of a rectified pair
    side: str = ''  # left or right, where the file says that it is of the stereo pair
    keys: tuple[str, ...] = ()  # what the file has instead, for messages
    raw_pair: Mapping[str, DescribedCamera] = field(default_factory=dict)  # left and right, where this one is of rectified images


def described(values: Mapping[str, Any], read: Callable[[str], Mapping[str, Any]]) -> dict[str, DescribedCamera]:
    """The cameras of a file by name; a camera that has none is called ''. Raises ValueError for a file that has no camera.

    `read` gives what another file has, by the name that stands in this one.
    """
    values = as_chain(values)
    fields = Fields(values)
    if 'relative_config_imucam' in fields:  # OpenVINS's estimator_config.yaml
        other = read(fields.text('relative_config_imucam'))
        return described({key: value for key, value in other.items() if key != 'relative_config_imucam'}, read)
    chain = {name: value for name, value in values.items() if re.fullmatch(r'cam\d+', str(name)) and isinstance(value, dict)}
    if chain:
        return _chain(chain)
    if 'projection_parameters' in fields or 'distortion_parameters' in fields:
        return {'': DescribedCamera(partial(_vins, values), partial(_vins_in_body, fields))}
    if 'body_T_cam0' in fields or 'cam0_calib' in fields:
        return _vins_rig(fields, read)
    if any(str(key).startswith(('Camera.', 'Camera1.')) for key in values):
        return _orbslam(values)
    nested = {} if _has_camera(values) else _cameras_in(values)
    if len(nested) == 2 and (step := step_of_pair(values)):
        left, right = sorted(nested, key=lambda name: _side_of(name) == 'right')
        nested = {left: nested[left], right: nested[right] | step}
    return _listed(nested or {'': dict(values)}, *BODY_KEYS)


def _cameras_in(values: Mapping[str, Any], depth: int = 3) -> dict[str, dict[str, Any]]:
    """The mappings inside that describe a camera, by the names that lead to them: Dataset.Calibration.

    Raises ValueError for a key of a lens next to one.
    """
    found: dict[str, dict[str, Any]] = {}
    without = {}
    for name, value in values.items():
        inner: dict[str, dict[str, Any]] = {}
        if isinstance(value, dict):
            inner = {'': value} if _has_camera(value) else _cameras_in(value, depth - 1) if depth > 1 else {}
        found |= {f'{name}.{key}' if key else str(name): each for key, each in inner.items()}
        if not inner:
            without[name] = value
    if found:
        Fields(without).check_all_read()
    return found


def of_size(values: Mapping[str, Any], size: Callable[[], tuple[int, int]] | None) -> dict[str, Any]:
    """What a file says, of a camera that it describes for several sizes of images what counts for `size`. Raises ValueError."""
    by_size = {name: each for name, each in values.items() if isinstance(each, BySize)}
    if not by_size:
        return dict(values)
    wanted = size() if size is not None else None
    chosen = {name: [entry for entry in entries if tuple(entry['resolution']) == wanted] for name, entries in by_size.items()}
    if not any(chosen.values()):
        sizes = dict.fromkeys('{}x{}'.format(*entry['resolution']) for entries in by_size.values() for entry in entries)
        raise ValueError(f'it is for images of {", ".join(sizes)}' + (f', and these have {wanted[0]}x{wanted[1]}' if wanted else '')
                         + ': give images of one of these sizes, of one camera each and not resized, or calibrate anew')
    if twice := next((name for name, entries in chosen.items() if len(entries) > 1), None):
        raise ValueError(f'it describes {twice} more than once for the size of these images: keep one')
    return {name: entries[0] for name, entries in chosen.items() if entries}


def sized(values: Mapping[str, Any], size: Callable[[], tuple[int, int]]) -> tuple[dict[str, Any], bool]:
    """What a file says, with width and height of the images where it has none, as ORB-SLAM2's files of TUM and KITTI.

    The truth is whether it had none. Raises ValueError where its principal point is far from the middle of these images: others
    were calibrated.
    """
    values = as_chain(values)
    if 'camera_angle_x' in values and 'fx' not in values:
        return dict(as_chain({**values, **dict(zip(('w', 'h'), size(), strict=True))})), True
    prefix = 'Camera.' if 'Camera.fx' in values else ''
    fields = Fields(values, prefix)
    if any(all(map(fields.__contains__, names)) for names in SIZES):
        return dict(values), False
    cameras = {name: sized(value, size) for name, value in values.items() if isinstance(value, dict) and has_matrix(Fields(value))}
    if cameras:
        return {**values, **{name: camera for name, (camera, _) in cameras.items()}}, any(added for _, added in cameras.values())
    if not has_matrix(fields):
        return dict(values), False
    matrix = _matrix_of(fields) or next((name for name in MATRICES_OR_LISTS if fields.is_plain_list(name)), None)
    k = _k_of(fields, matrix) if matrix else _pinhole(*map(fields.number, _focals_of(fields)))
    middle, (width, height) = (k[2] or k[6], k[5] or k[7]), size()  # some write K column by column
    nearer, farther = sorted((abs(middle[0] / width - 0.5), abs(middle[1] / height - 0.5)))
    if farther > (OFF_MIDDLE if nearer > ONE_OFF_MIDDLE / 2 else ONE_OFF_MIDDLE):
        raise ValueError(f'it has no {prefix}width, and its principal point {middle[0]:g}, {middle[1]:g} is far from the middle of '
                         f'the images of {width}x{height}: give the calibration of these, or add {prefix}width and {prefix}height, '
                         'where it has only numbers in a calib.yaml with them')
    return {**values, f'{prefix}width': width, f'{prefix}height': height}, True


def has_matrix(fields: Fields) -> bool:
    if matrix := _matrix_of(fields):
        return fields.is_listed(matrix)
    return any(fields.is_plain_list(name) and fields.count(name) == 4 for name in MATRICES_OR_LISTS) or \
        any(all(map(fields.__contains__, names)) for names in FOCALS)


def _focals_of(fields: Fields) -> tuple[str, ...]:
    """The names of focal lengths and principal point."""
    return next((names for names in FOCALS if all(map(fields.__contains__, names))), FOCALS[0])


def _matrix_of(fields: Fields) -> str | None:
    """The name of the matrix K, or of the four numbers of a MATRICES; None without any."""
    return fields.first(*MATRICES) or next((name for name in MATRICES_OR_LISTS if fields.is_plain_list(name)
                                            and fields.count(name) in (9, 12, 16)), None)


def _k_of(fields: Fields, name: str) -> list[float]:
    """The 9 numbers of K, also of 4 and of those in a matrix with a fourth column of zeros."""
    k = fields.numbers(name, 9, 4, 12, 16)
    if len(k) == 4:
        return _pinhole(*k)
    if len(k) > 9:
        rows = np.reshape(k, (-1, 4))
        if rows[:3, 3].any():
            raise ValueError(f'{fields.whole(name)} is a projection, its fourth column is {rows[:3, 3].tolist()}: give K, 3x3')
        k = rows[:3, :3].ravel().tolist()
    return k


def check_baseline(metres: float, name: str) -> float:
    """`metres`, where two cameras of one rig can be that far apart. Raises ValueError."""
    if not LEAST_BASELINE_M <= abs(metres) <= MOST_BASELINE_M:
        raise ValueError(f'{name} is {metres:g} m, and a rig has {LEAST_BASELINE_M:g} to {MOST_BASELINE_M:g} m: give it in metres'
                         + ', not in millimetres' * (abs(metres) > MOST_BASELINE_M))
    return metres


def _camera(size: tuple[int, int], k: list[float], model: str, d: list[float], parameters: Sequence[float] = ()) -> Intrinsics:
    if model in PARAMETERS or model in LISTED:
        return _fitted(size, k, model, d, parameters)
    if model == 'none' and any(d):
        raise ValueError(f'its images have no distortion by the model, and D = {d}: one of both is wrong')
    if model in OTHERS and any(d):
        raise ValueError(f'model: {model} with D = {d} is not read: undistort the images, or calibrate anew with radtan')
    if model in ('none', *OTHERS):
        model = 'plumb_bob'
    if min(k[0], k[4]) < 0:
        raise ValueError(f'fx is {k[0]:g} and fy {k[4]:g}: give both positive. Where fy is negative, as in ICL-NUIM, y is up: '
                         'mirror the ground truth, x y z qx qy qz qw to x -y z -qx qy -qz qw')
    camera = Intrinsics(*size, np.reshape(k, (3, 3)), POLYNOMIAL.get(model.replace('-', '_'), model), np.array(d, np.float64))
    distortion_model(camera)
    return camera


def _fitted(size: tuple[int, int], k: list[float], model: str, d: list[float], parameters: Sequence[float]) -> Intrinsics:
    """A camera with the `parameters` of its model: that of FOV may be a coefficient, and omni alone has coefficients too."""
    if model == 'fov' and not parameters:
        d, parameters = [0.0, *d[1:]], d[:1]
    if model in PARAMETERS and len(parameters) != len(PARAMETERS[model]):
        raise ValueError(f'the lens is {model}, whose {", ".join(PARAMETERS[model])} are not read here: undistort the images')
    if any(d) and not (model == 'omni' and len(d) <= 5):
        raise ValueError(f'{model} with D = {d} is not read: undistort the images, or calibrate anew without D')
    lens = fitted(model, parameters, np.reshape(k, (3, 3)), d, size)
    turned = f', whose axes are rotated by {lens.turn_deg:.2f} degrees' if abs(lens.turn_deg) >= LEAST_TURN_DEG else ''
    found, off_px = lens.model.removesuffix('_polynomial'), max(lens.off_px, 0.01)
    return Intrinsics(*size, lens.k, lens.model, np.array(lens.d),
                      source=f'its {model} as the {found} lens within {off_px:.2f} px of it{turned}')


def _parameters(fields: Fields, model: str) -> list[float]:
    """Those of PARAMETERS, before the focal lengths in the list of intrinsics or by their names, or the list of a LISTED model."""
    if model in LISTED:
        if not (listed := fields.numbers('lens_parameters', *([LISTED[model]] if LISTED[model] else []))):
            raise ValueError(f'its {model} has no coefficients: take the file anew')
        return listed
    names = PARAMETERS.get(model, ())
    if names and fields.is_plain_list('intrinsics') and fields.count('intrinsics') == 4 + len(names):
        return fields.numbers('intrinsics')[:-4]
    if model != 'fov' and (missing := [name for name in names if name not in fields]):
        raise ValueError(f'{model} has no {" and no ".join(missing)}: give {", ".join(names)} before the focal lengths in '
                         'intrinsics, or as keys')
    return [fields.numbers(name, 1)[0] if fields.is_listed(name) else fields.number(name) for name in names if name in fields]


def _pinhole(fx: float, fy: float, cx: float, cy: float) -> list[float]:
    return [fx, 0, cx, 0, fy, cy, 0, 0, 1]


def _has_camera(values: Mapping[str, Any]) -> bool:
    fields = Fields(values)
    is_whole = any(names[0] in fields for names in SIZES) or 'T_imu_cam' in fields  # its size may be that of the images
    return is_whole and any(name in fields for name in (*MATRICES, *MATRICES_OR_LISTS, 'fx', 'fl_x'))


def _size(fields: Fields, usual: tuple[str, ...]) -> tuple[int, int]:
    """Width and height by the names that are there. Raises KeyError with the `usual` ones."""
    names = next((names for names in SIZES if names[0] in fields), usual)
    return fields.size(names[0]) if len(names) == 1 else (fields.pixels(names[0]), fields.pixels(names[1]))


def _plain(values: Mapping[str, Any], rectified: bool) -> Intrinsics:
    """A mapping with size, K and coefficients, by whichever names. Of rectified images its projection matrix counts."""
    fields = Fields(values)
    model = camera_model(fields, 'model', 'camera_model', 'model_type')
    parameters = _parameters(fields, model)
    size, k, order = _size_and_k(fields, 0 if model in LISTED else len(parameters))
    is_matrix = _matrix_of(fields) is not None
    projected = _projected(fields, size) if rectified and is_matrix else None
    if projected is not None:
        return projected
    wide = np.hypot(size[0] / k[0], size[1] / k[4]) / 2 if k[0] and k[4] and not parameters else 0.0
    lens, d = lens_of(fields, '' if parameters else model, wide)
    if any(d):
        _check_coefficients(fields, d, is_named=bool(model), is_of_rectified=rectified and is_matrix)
    fields.check_all_read()
    if parameters and lens not in ('none', *POLYNOMIAL):
        raise ValueError(f'{model} with {lens} is not read: undistort the images, or calibrate anew with {model} and radtan')
    camera = _camera(size, k, model if parameters else lens, d, parameters)
    return replace(camera, source=', '.join(filter(None, (camera.source, fields.text('remark'), order))))


def _size_and_k(fields: Fields, parameters: int) -> tuple[tuple[int, int], list[float], str]:
    """Width and height, the 9 numbers of K, and of an unusual order of a list a remark; it stands behind so many `parameters`."""
    matrix, listed = _matrix_of(fields), fields.first(*MATRICES_OR_LISTS)
    if matrix is None and listed is not None:
        size, numbers = _size(fields, SIZES[4]), fields.numbers(listed, *{4, 4 + parameters})[-4:]
        order = order_of(numbers, size)
        ordered = [numbers[place] for place in ORDERS[order]]
        return size, _pinhole(*ordered), f'whose {listed} are {order} by their values' * (order != USUAL)
    if matrix is None:
        return _size(fields, SIZES[0]), _pinhole(*map(fields.number, _focals_of(fields))), ''
    size, k = _size(fields, SIZES[1]), _k_of(fields, matrix)  # four numbers are DSEC's
    if not any(k[2:6:3]) and all(k[6:8]):  # column by column, as Open3D, Record3D and MATLAB have it
        k = [k[row + 3 * column] for row in range(3) for column in range(3)]
    if any(k[6:8]):
        raise ValueError(f'{fields.whole(matrix)} is {k}, and the last row of K is 0, 0, 1: give a matrix, or the numbers by name, '
                         'fx, fy, cx, cy, k1, k2, p1, p2, k3')
    if 'fx' in fields and fields.number('fx') != k[0]:
        raise ValueError(f'{fields.whole(matrix)} has the focal length {k[0]:g}, and fx is {fields.number("fx"):g}: remove one')
    return size, k, ''


def _projected(fields: Fields, size: tuple[int, int]) -> Intrinsics | None:
    """The camera of rectified images by the projection matrix; None without one that is calibrated."""
    name = fields.first(*PROJECTIONS)
    p = np.zeros((3, 4)) if name is None else np.reshape(fields.numbers(name, 12), (3, 4))
    if name is None or not is_camera(p[:, :3]):
        return None
    return Intrinsics(*size, p[:, :3], 'plumb_bob', np.zeros(5), shift_m=-float(p[0, 3] / p[0, 0]) if p[0, 0] > 0 else 0.0,
                      source=f'its {fields.whole(name)}')


def _check_coefficients(fields: Fields, d: list[float], is_named: bool, is_of_rectified: bool) -> None:
    """Raise ValueError for coefficients that are of raw images where others count, or of a lens that nobody names."""
    if is_of_rectified:
        matrix, name = _matrix_of(fields) or '', fields.first(*PROJECTIONS)
        missing = 'it has no projection_matrix' if name is None else \
            f'its {fields.whole(name)} is {np.reshape(fields.numbers(name), (3, 4)).tolist()}, which is not calibrated'
        raise ValueError(f'{missing}, and the images are rectified by the name of their topic: '
                         f'{fields.whole(matrix)} and D = {d} are of the raw images. Give the calibration of the rectified ones')
    is_list = _matrix_of(fields) is None and fields.first(*MATRICES_OR_LISTS) is not None
    if is_list and not is_named and fields.first(*MODEL_KEYS) is None:
        raise ValueError(f'it has no distortion_model, and D = {d} are of radtan or of equidistant: name the model')
    if fields.get('distorted', True) is False:  # of MonoGS and its kin
        raise ValueError(f'distorted: False, and D = {d} are of the raw images: remove them if the images are undistorted')


def _chain(cameras: Mapping[str, Any]) -> dict[str, DescribedCamera]:
    """Kalibr's camchain: cam0, cam1 ..., with T_cam_imu of each and T_cn_cnm1 from the one before."""
    return _listed(dict(sorted(cameras.items(), key=lambda item: int(str(item[0])[3:]))))  # T_cn_cnm1 is from the number before


def _listed(cameras: Mapping[str, Any], *poses: str) -> dict[str, DescribedCamera]:
    """Cameras in this order, which may have T_cn_cnm1 from the one before, and keys of `poses` in the body."""
    found: dict[str, DescribedCamera] = {}
    before: DescribedCamera | None = None
    for name, values in cameras.items():
        fields = Fields(values)
        found[str(name)] = before = DescribedCamera(
            partial(_plain, values), partial(_chained, fields, before, *poses), partial(_in_left, fields, before),
            partial(_in_rig, fields), partial(_baseline, fields), fields.text('side_of_pair') or _side_of(str(name)),
            tuple(map(str, values)))
    return found


def _baseline(fields: Fields) -> float | None:
    return fields.number('baseline_m') if 'baseline_m' in fields else None


def _in_rig(fields: Fields, rectified: bool) -> Float64 | None:
    """T_rig_cam, or the pose in a rectified pair by P and R, as of camera_calibration; that of rectified images has no R."""
    if 'T_rig_cam' in fields:
        return fields.matrix('T_rig_cam')
    name, turn = fields.first(*PROJECTIONS), fields.first('rectification_matrix', 'r')
    if name is None or (turn is None and not rectified):
        return None
    p, pose = np.reshape(fields.numbers(name, 12), (3, 4)), np.eye(4)
    if p[0, 0] <= 0 or not is_camera(p[:, :3]):
        return None
    if turn is not None and not rectified:
        pose[:3, :3] = np.reshape(fields.numbers(turn, 9), (3, 3))
    pose[:2, 3] = -p[:2, 3] / p[[0, 1], [0, 1]]
    return rigid(pose, fields.whole(turn or name))


def _side_of(name: str) -> str:
    """left or right, by a camera's name; empty for others."""
    return next((side for side, pattern in _NAMES_OF_SIDES.items() if re.search(pattern, name.lower())), '')


def _in_left(fields: Fields, before: DescribedCamera | None) -> Float64 | None:
    """A camera's pose in the one before it: by T_cn_cnm1, or by the poses of both in the body."""
    if 'T_cn_cnm1' in fields:
        return np.asarray(np.linalg.inv(fields.matrix('T_cn_cnm1')), np.float64)
    return _between(before, partial(_pose, fields))


def _between(before: DescribedCamera | None, in_body: Callable[[], Float64 | None]) -> Float64 | None:
    left, right = None if before is None else before.in_body(), in_body()
    return None if left is None or right is None else np.asarray(np.linalg.solve(left, right), np.float64)


def _chained(fields: Fields, before: DescribedCamera | None, *poses: str) -> Float64 | None:
    """A camera's pose in the body, or that of the one before it and T_cn_cnm1."""
    pose = _pose(fields, *poses)
    left = before.in_body() if pose is None and before is not None and 'T_cn_cnm1' in fields else None
    return pose if left is None else np.asarray(left @ np.linalg.inv(fields.matrix('T_cn_cnm1')), np.float64)


def _pose(fields: Fields, *others: str) -> Float64 | None:
    """Body from camera, by T_BS, T_imu_cam, the inverse of T_cam_imu, or the first of `others` that is there."""
    for name in ('T_BS', 'T_imu_cam'):
        if fields.get(name, None) is not None:
            return fields.matrix(name)
    return np.asarray(np.linalg.inv(fields.matrix('T_cam_imu')), np.float64) if 'T_cam_imu' in fields else \
        _optional(fields, *others)


def _optional(fields: Fields, *names: str) -> Float64 | None:
    """The matrix of the first of `names` that is there; None without any."""
    name = fields.first(*names)
    return None if name is None else fields.matrix(name)


def _vins(values: Mapping[str, Any], rectified: bool) -> Intrinsics:
    """VINS's: model_type: PINHOLE, MEI or KANNALA_BRANDT, size, projection_parameters and distortion_parameters."""
    fields = Fields(values)
    size, projection = (fields.pixels('image_width'), fields.pixels('image_height')), fields.inner('projection_parameters')
    fields.is_true('fisheye')  # is of a mask
    if fields.text('model_type') == 'KANNALA_BRANDT':
        k, d = _pinhole(*map(projection.number, ('mu', 'mv', 'u0', 'v0'))), [projection.number(f'k{i}') for i in range(2, 6)]
        fields.check_all_read()
        return _camera(size, k, 'equidistant', d)
    kind, distortion = camera_model(fields, 'model_type'), fields.inner('distortion_parameters')
    k = _pinhole(*map(projection.number, ('gamma1', 'gamma2', 'u0', 'v0') if kind == 'omni' else ('fx', 'fy', 'cx', 'cy')))
    mirror = [fields.inner('mirror_parameters')] if kind == 'omni' else []
    model, d = lens_of(distortion)
    parameters = [each.number('xi') for each in mirror]
    for each in (fields, projection, distortion, *mirror):
        each.check_all_read()
    return _camera(size, k, kind if mirror else model, d, parameters)


def _vins_in_body(fields: Fields) -> Float64 | None:
    if 'extrinsicRotation' not in fields:
        return _optional(fields, 'body_T_cam0')
    matrix = np.eye(4)
    matrix[:3, :3] = np.reshape(fields.numbers('extrinsicRotation', 9), (3, 3))
    matrix[:3, 3] = fields.numbers('extrinsicTranslation', 3)
    return rigid(matrix, 'extrinsicRotation')


def _vins_rig(fields: Fields, read: Callable[[str], Mapping[str, Any]]) -> dict[str, DescribedCamera]:
    """VINS-Fusion's configuration: cam0_calib, cam1_calib name files with the intrinsics; body_T_cam0, body_T_cam1 are poses."""
    count = max(1, round(fields.number('num_of_cam'))) if 'num_of_cam' in fields else 8
    cameras: dict[str, DescribedCamera] = {}
    before: DescribedCamera | None = None
    for name in (f'cam{number}' for number in range(count) if f'body_T_cam{number}' in fields or f'cam{number}_calib' in fields):
        in_body = partial(_optional, fields, f'body_T_{name}')
        before = cameras[name] = DescribedCamera(partial(_elsewhere, fields, f'{name}_calib', read), in_body,
                                                 partial(_between, before, in_body))
    return cameras


def _elsewhere(fields: Fields, key: str, read: Callable[[str], Mapping[str, Any]], rectified: bool) -> Intrinsics:
    file = str(fields.get(key))
    try:
        camera = _vins(read(file), rectified)
        return replace(camera, source=', '.join(filter(None, (file, camera.source))))
    except ValueError as error:
        raise ValueError(f'{key}, {file}: {error}') from None
    except KeyError as error:
        raise KeyError(f'{error.args[0]} in {key}, {file}') from None


def _orbslam(values: Mapping[str, Any]) -> dict[str, DescribedCamera]:
    """ORB-SLAM's: Camera.fx (2) or Camera1.fx and Camera2.fx (3), Camera.type, Camera.width and Camera.height."""
    fields = Fields(values)
    left_in_body = partial(_optional, fields, 'IMU.T_b_c1', 'Tbc')
    right_in_left = partial(_optional, fields, 'Stereo.T_c1_c2', 'Tlr')

    def right_in_body() -> Float64 | None:
        left, offset = left_in_body(), right_in_left()
        return None if left is None or offset is None else left @ offset

    def baseline() -> float | None:
        """Stereo.b, or bf over the focal length."""
        if 'Camera.bf' in fields:
            return fields.number('Camera.bf') / fields.number(f'{first}.fx')
        return fields.number('Stereo.b') if 'Stereo.b' in fields else None

    first = 'Camera1' if 'Camera1.fx' in fields else 'Camera'
    raw = {} if is_zero(values.get('LEFT.D')) or 'RIGHT.K' not in values else _listed(_orbslam_raw(values))
    left = DescribedCamera(partial(_orbslam_camera, values, f'{first}.'), left_in_body, baseline=baseline, raw_pair=raw)
    if 'Camera2.fx' not in fields:
        return {'': left}
    return {first: left, 'Camera2': DescribedCamera(partial(_orbslam_camera, values, 'Camera2.'), right_in_body, right_in_left)}


def _orbslam_camera(values: Mapping[str, Any], prefix: str, rectified: bool) -> Intrinsics:
    common, own = Fields(values, 'Camera.'), Fields(values, prefix)
    model = camera_model(common, 'type', 'model')
    if not any(names[0] in common for names in SIZES):
        raise ValueError('it has no Camera.width: add Camera.width and Camera.height, the size of the images in pixels')
    size = _size(common, SIZES[0])
    k = _pinhole(*map(own.number, ('fx', 'fy', 'cx', 'cy')))
    model, d = lens_of(own, model)
    own.check_all_read()
    if 'Camera1.fx' in values:
        common.check_all_read()
    if not rectified:
        if not is_zero(values.get('LEFT.D')):
            return replace(_plain(_orbslam_raw(values)['left'], rectified=False), source='its LEFT.K and LEFT.D, of raw images')
        others = {key: value for key, value in values.items() if not re.match(r'(Camera\d*|LEFT|RIGHT)\.', str(key))}
        Fields(others).check_all_read()
    return _camera(size, k, model, d)


def _orbslam_raw(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The pair that ORB-SLAM2 rectifies, left and right: Camera.fx is of the rectified images."""
    if 'LEFT.K' not in values:
        raise ValueError('LEFT.D is of the raw images, and Camera.fx of the rectified ones: add LEFT.K')
    size = {'image_width': values.get('Camera.width'), 'image_height': values.get('Camera.height')}
    return {str(side): camera for side, camera in sides_of({**size, **values}).items()}
