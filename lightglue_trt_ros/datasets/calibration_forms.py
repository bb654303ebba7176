"""Forms of calibration files: what each says of its cameras, by key. Errors are ValueError and KeyError, and name the key.

Nothing about a lens is dropped: a key of distortion that a form does not read is an error, unless all its values are zero.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..core.cameras import FISHEYE, LEAST_BASELINE_M, MOST_BASELINE_M, POLYNOMIAL, Intrinsics, distortion_model, is_camera
from ..core.types import Float64
from .calibration_exports import as_chain
from .calibration_texts import BySize
from .poses import is_rotation

OTHERS = ('inverse_brown_conrady', 'modified_brown_conrady')  # RealSense's own lenses: their coefficients mostly are zero
MODELS = {  # names of a camera's model in files, small letters, and the lens that they stand for; '' where another key names it
    '': '', 'pinhole': '', 'perspective': '', 'opencv': 'plumb_bob', 'kannalabrandt8': 'equidistant',
    'opencv_fisheye': 'equidistant', 'fisheye': 'equidistant', 'rectified': 'none', 'none': 'none', 'brown_conrady': 'plumb_bob',
    'kannala_brandt4': 'equidistant', 'equidistant': 'equidistant', 'plumb_bob': 'plumb_bob', 'radtan': 'radtan',
    'radial_tangential': 'radtan', 'kb4': 'equidistant', 'simple_pinhole': '', 'simple_radial': 'plumb_bob', 'radial': 'plumb_bob',
    'rational_polynomial': 'rational_polynomial', **{name: name for name in OTHERS}}
LENS_KEYS = ('calibration_model', 'projection_model', 'projection_type', 'lens_model', 'lens_type', 'camera_type', 'cam_type',
             'type')  # may name a lens of MODELS; other words, as of products, do not count
OTHER_LENSES = re.compile(  # and what a lens profile of Gyroflow says, not of MODELS
    r'fish|equidist|kannala|omni|(^|_)mei$|eucm|(^|_)ds$|sphere|scaramuzza|ocam|(^|_)fov$|atan|stretch|view')
FISHEYE_KEYS = ('fisheye_model', 'is_fisheye', 'use_fisheye', 'fisheye')  # are true for equidistant
SIZES = (('width', 'height'), ('image_width', 'image_height'), ('w', 'h'), ('cols', 'rows'), ('resolution',), ('image_size',),
         ('imagesize',), ('imagewidth', 'imageheight'), ('img_width', 'img_height'), ('frame_width', 'frame_height'), ('img_size',))
MATRICES = ('camera_matrix', 'k', 'cameramat', 'cameramatrix', 'intrinsic_matrix', 'intrinsicmatrix', 'mtx', 'm',
            'camera_intrinsic', 'cam_k')
MATRICES_OR_LISTS = ('intrinsics', 'intrinsic')  # also matrices
FOCALS = (('fx', 'fy', 'cx', 'cy'), ('fl_x', 'fl_y', 'cx', 'cy'), ('fx', 'fy', 'ppx', 'ppy'))
MODEL_KEYS = ('distortion_model', 'distortion_type', 'distortion')
COEFFICIENTS = ('distortion_coefficients', 'distortion_coeffs', 'distortion_coefs', 'dist_coeffs', 'dist_coefs', 'dist_coeff',
                'distcoeff', 'distcoeffs', 'dist', 'd', 'coeffs', 'camera_dist_coeffs', 'distortioncoefficients',
                'distortion_coefficient', 'dist_coefficients', 'distortion_params', 'dist_params', 'distcoef', 'coefficients',
                'cam_dist', 'kc')
INNER_COEFFICIENTS = ('params', 'parameters', 'values')  # inside of a mapping of distortion
FLAT = ('k1', 'k2', 'p1', 'p2', 'k3', 'k4', 'k5', 'k6')  # in the order of OpenCV's vector
OFF_MIDDLE = 0.1  # of the size; a principal point is nearer, and one of images that were resized by 1.25 or more is farther
ONE_OFF_MIDDLE = 0.12  # where the other axis is near: a resized image has both off, and DAVIS240C's lens sits 0.115 too low
MOST_TANGENTIAL = 0.02  # of real lenses; cv2.fisheye's files name no model, and its third and fourth coefficient are larger
WIDE = 1.2  # tangent of the angle to a corner, 50 degrees: of lenses with four coefficients and no model mostly fisheyes see more
LENS = re.compile(  # keys that speak of a lens, in small letters; min_dist, max_dist and baseline_dist_thr are of trackers
    r'^(?!.*flags?$).*?((?<!min)(?<!max)(?<!baseline)(^|[._])dist(_|$|coef|o$|param)|distor|coef(f?s?|ficients?)?(_|$)|'
    r'(^|[._])(rad_?tan|radial|tangential|fisheye(_model|_?par.*)?$|skew|mirror|[kp]_?\d+$|d$|s[1-4]$|tau|xi$|kc$|lens_?(par|coef)))')
POSE_KEYS = ("T_BS (EuRoC), T_cam_imu or T_imu_cam (Kalibr, OpenVINS), body_T_cam0, body_T_cam1 or extrinsicRotation and "
             'extrinsicTranslation (VINS), Tbc or IMU.T_b_c1 (ORB-SLAM)')
_MISSING: Any = object()


class Fields:
    """The values of a mapping, by key without regard to capitals. It notes which keys were read."""

    def __init__(self, values: Mapping[Any, Any], prefix: str = '') -> None:
        """Only keys that begin with `prefix` count, and are named without it; errors name them whole."""
        self.prefix = prefix
        self._keys = {str(key)[len(prefix):].lower(): str(key) for key in values if str(key).startswith(prefix)}
        self._values = {str(key): value for key, value in values.items() if str(key).startswith(prefix)}
        self._read: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._keys

    def first(self, *names: str) -> str | None:
        """The first of `names` that the mapping has."""
        return next((name for name in names if name in self), None)

    def whole(self, name: str) -> str:
        """The key as it stands in the file."""
        return self._keys.get(name.lower(), self.prefix + name)

    def get(self, name: str, default: Any = _MISSING) -> Any:
        """Raises KeyError without a `default`."""
        key = self._keys.get(name.lower())
        self._read.add(name.lower())
        if key is None:
            if default is _MISSING:
                raise KeyError(self.prefix + name)
            return default
        return self._values[key]

    def is_listed(self, name: str) -> bool:
        """Whether the value is a list, or a mapping."""
        return isinstance(self._values.get(self.whole(name)), (list, tuple, dict))

    def is_plain_list(self, name: str) -> bool:
        """Whether the value is a list, or OpenCV's {data: list}."""
        return self.is_listed(name) and not self.is_named(name)

    def is_true(self, name: str) -> bool:
        """Whether the value is a truth that holds, or 1; only then it counts as read."""
        holds = str(self._values.get(self.whole(name))).lower() in ('true', 'yes', '1', '1.0')
        self._read.update([name] * holds)
        return holds

    def count(self, name: str) -> int:
        """How many values a list, nested lists or OpenCV's {data: list} have."""
        return _count(self._values[self.whole(name)])

    def is_named(self, name: str) -> bool:
        """Whether the value is a mapping of names, and no {data: list}."""
        value = self._values.get(self.whole(name))
        return isinstance(value, dict) and 'data' not in value

    def inner(self, name: str) -> Fields:
        """The values of a mapping inside."""
        value = self.get(name)
        if not isinstance(value, dict):
            raise ValueError(f'{self.whole(name)}: {value} is no mapping of numbers')
        return Fields(value)

    def text(self, name: str) -> str:
        """Empty where it is missing."""
        value = self.get(name, '')
        return '' if value is None else str(value).strip()

    def numbers(self, name: str, *counts: int) -> list[float]:
        """A list, nested lists or OpenCV's {data: list}; of one of `counts` values, of any number without."""
        values = _flat(self.get(name), self.whole(name))
        if counts and len(values) not in counts:
            raise ValueError(f'{self.whole(name)} has {len(values)} value{"s" * (len(values) != 1)}, not '
                             f'{" or ".join(map(str, counts))}: {values}')
        return values

    def number(self, name: str) -> float:
        return _number(self.get(name), self.whole(name))

    def pixels(self, name: str) -> int:
        return _pixels(self.get(name), self.whole(name))

    def size(self, name: str) -> tuple[int, int]:
        """Width and height in one list, or by these names."""
        if self.is_named(name):
            inner = self.inner(name)
            names = next((names for names in SIZES[:3] if names[0] in inner), SIZES[0])
            return inner.pixels(names[0]), inner.pixels(names[1])
        words = re.fullmatch(r'(\d+) ?[x,] ?(\d+)', str(self.get(name)))  # 640x480
        width, height = (_pixels(value, self.whole(name)) for value in (words.groups() if words else self.numbers(name, 2)))
        return width, height

    def matrix(self, name: str) -> Float64:
        """A rigid transformation, (4, 4); of 12 values the last row is left out."""
        values = self.numbers(name, 12, 16)
        matrix = np.array([*values, 0, 0, 0, 1][:16]).reshape(4, 4)
        return rigid(matrix, self.whole(name))

    def check_all_read(self, is_lens: bool = False) -> None:
        """Raise ValueError for a key of the lens that nobody read; `is_lens`: all that are no words are."""
        for name, key in self._keys.items():
            value = self._values[key]
            whole = [name, str(value)] if is_lens and not isinstance(value, str) and not _is_zero(value) else []
            if name not in self._read and (unread := whole or _of_lens(name, value)):
                raise ValueError(f'{".".join((key, *unread[1:-1]))}: {unread[-1][:80]} is not read here, and speaks of the lens. '
                                 f'Name the coefficients {COEFFICIENTS[0]}, or k1, k2, p1, p2, k3, or remove the key')


@dataclass(frozen=True)
class DescribedCamera:
    """What a file says of one camera, read when it is asked for."""

    intrinsics: Callable[[bool], Intrinsics]  # of rectified images (True), or of raw ones
    in_body: Callable[[], Float64 | None] = lambda: None  # (4, 4) body from camera
    in_left: Callable[[], Float64 | None] = lambda: None  # (4, 4) from the camera before it in the file, a left one, to this one
    keys: tuple[str, ...] = ()  # what the file has instead, for messages


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
    keys_of_poses = 'body_T_cam0', 'IMU.T_b_c1', 'Tbc'  # whichever tool's
    return {name: DescribedCamera(partial(_plain, each), partial(_pose, Fields(each), *keys_of_poses), keys=tuple(map(str, each)))
            for name, each in (nested or {'': dict(values)}).items()}


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


def rigid(matrix: Float64, name: str) -> Float64:
    """`matrix` (4, 4), checked. Raises ValueError."""
    if not is_rotation(matrix[:3]):
        raise ValueError(f'{name}: its left upper 3x3 is no rotation: {matrix[:3, :3].tolist()}')
    if matrix[3].tolist() != [0, 0, 0, 1]:
        raise ValueError(f'{name}: its last row is {matrix[3].tolist()}, not [0, 0, 0, 1]')
    return matrix


def check_baseline(metres: float, name: str) -> float:
    """`metres`, where two cameras of one rig can be that far apart. Raises ValueError."""
    if not LEAST_BASELINE_M <= abs(metres) <= MOST_BASELINE_M:
        raise ValueError(f'{name} is {metres:g} m, and a rig has {LEAST_BASELINE_M:g} to {MOST_BASELINE_M:g} m: give it in metres, '
                         'not in millimetres')
    return metres


def _camera(size: tuple[int, int], k: list[float], model: str, d: list[float]) -> Intrinsics:
    if model == 'none' and any(d):
        raise ValueError(f'its images have no distortion by the model, and D = {d}: one of both is wrong')
    if model in OTHERS and any(d):
        raise ValueError(f'model: {model} with D = {d} is not read: undistort the images, or calibrate anew with radtan')
    if model in ('none', *OTHERS):
        model = 'plumb_bob'
    camera = Intrinsics(*size, np.reshape(k, (3, 3)), POLYNOMIAL.get(model.replace('-', '_'), model), np.array(d, np.float64))
    distortion_model(camera)
    return camera


def _pinhole(fx: float, fy: float, cx: float, cy: float) -> list[float]:
    return [fx, 0, cx, 0, fy, cy, 0, 0, 1]


def _camera_model(fields: Fields, *names: str) -> str:
    """The lens that a camera's model stands for, '' where another key names it. Raises ValueError for other models."""
    for name in names:
        model = fields.text(name)
        lens = MODELS.get(re.sub('[ -]', '_', model.lower().removeprefix('distortion.')))  # RealSense's: distortion.brown_conrady
        if lens is None:
            raise ValueError(f'{fields.whole(name)}: {model}, and only {fields.whole(name)}: pinhole can be used: {_advice(model)}')
        if lens:
            return lens
    if any(fields.text(name) for name in MODEL_KEYS if not fields.is_listed(name)):
        return ''
    for name in (name for name in LENS_KEYS if not fields.is_listed(name)):
        model = fields.text(name).lower()
        if lens := MODELS.get(re.sub('[ -]', '_', model), ''):
            return lens
        if OTHER_LENSES.search(model):
            raise ValueError(f'{fields.whole(name)}: {model}, and only plumb_bob, rational_polynomial and equidistant are read: '
                             f'name one of these if it is that, else {_advice(model)}')
    return ''


def _advice(model: str) -> str:
    if model.lower() == 'kannala_brandt':
        return ('write k2, k3, k4, k5 as dist and mu, mv, u0, v0 as fx, fy, cx, cy of a calib.yaml with distortion: equidistant')
    product = '' if OTHER_LENSES.search(model.lower()) else '; if it names a product, remove the line'
    return f'undistort the images, or calibrate anew with pinhole and radtan or equidistant{product}'


def _lens(fields: Fields, model: str = '', wide: float = 0.0) -> tuple[str, list[float]]:
    """Model and coefficients: a list, or k1, k2, p1, p2, k3 ... by name. Raises ValueError, KeyError.

    `wide` is the tangent of the angle from the middle of the image to its corner, by K.
    """
    key = next((name for name in MODEL_KEYS if not fields.is_listed(name) and fields.text(name)), None)
    if not model and key is not None:
        model = re.split(r'[\s(,;]', fields.text(key).lower(), maxsplit=1)[0]  # calibrations have `none (rectified)`
        model = 'equidistant' if model.startswith(FISHEYE[:2]) else model
    elif not model and any(map(fields.is_true, FISHEYE_KEYS)):
        model = 'equidistant'
    name = next((name for name in (*COEFFICIENTS, 'distortion') if fields.is_listed(name)), None)
    if name is not None and not fields.is_named(name):
        d = fields.numbers(name)
        if not model and len(d) == 4 and max(map(abs, d[2:])) > MOST_TANGENTIAL:
            raise ValueError(f'{fields.whole(name)}: {d} are of a fisheye by the last two, tangential ones are below '
                             f'{MOST_TANGENTIAL}: name the model, distortion_model: equidistant or plumb_bob')
        if not model and len(d) == 4 and any(d[2:]) and wide > WIDE:
            raise ValueError(f'{fields.whole(name)}: {d} without a model, and K sees {2 * np.degrees(np.arctan(wide)):.0f} degrees '
                             'from corner to corner: mostly that is a fisheye. Name the model, distortion_model: equidistant or '
                             'plumb_bob')
    elif name is not None:
        inner = fields.inner(name)
        model = model or _camera_model(inner, 'model', 'type', *MODEL_KEYS)
        d = _inner_list(inner) or _by_name(inner, model)
        inner.check_all_read(is_lens=True)
    else:
        d = _by_name(fields, model)
    if not d and (model == 'equidistant' or (name is None and key is not None and model not in ('none', 'pinhole'))):
        raise KeyError(f'{fields.prefix}{fields.first(*COEFFICIENTS) or COEFFICIENTS[0]}')
    return model or ('rational_polynomial' if len(d) >= 8 else 'plumb_bob'), d


def _inner_list(fields: Fields) -> list[float]:
    """The coefficients in a mapping of distortion, where they are a list."""
    name = next((name for name in (*COEFFICIENTS, *INNER_COEFFICIENTS) if fields.is_plain_list(name)), None)
    return [] if name is None else fields.numbers(name)


def _by_name(fields: Fields, model: str) -> list[float]:
    """Coefficients that have a key each, in OpenCV's order; none where there is no such key."""
    order: tuple[str, ...] = FLAT[:2] + FLAT[4:6] if model == 'equidistant' else FLAT
    values = {each: fields.number(each) for each in order if each in fields}
    if not model and values.get('k4') and not values.keys() & {'p1', 'p2', 'k5', 'k6'}:
        raise ValueError(f'{", ".join(map(fields.whole, values))} are of a fisheye or of a polynomial: name the model, '
                         'distortion_model: equidistant or plumb_bob')
    if model != 'equidistant':
        order = FLAT if any(values.get(each) for each in FLAT[5:]) else FLAT[:5] if 'k3' in values else FLAT[:4]
    return [values.get(each, 0.0) for each in order] if values else []


def _has_camera(values: Mapping[str, Any]) -> bool:
    fields = Fields(values)
    return any(names[0] in fields for names in SIZES) and any(name in fields for name in (*MATRICES, 'intrinsics', 'fx', 'fl_x'))


def _size(fields: Fields, usual: tuple[str, ...]) -> tuple[int, int]:
    """Width and height by the names that are there. Raises KeyError with the `usual` ones."""
    names = next((names for names in SIZES if names[0] in fields), usual)
    return fields.size(names[0]) if len(names) == 1 else (fields.pixels(names[0]), fields.pixels(names[1]))


def _plain(values: Mapping[str, Any], rectified: bool) -> Intrinsics:
    """A mapping with size, K and coefficients, by whichever names. Of rectified images its projection matrix counts."""
    fields = Fields(values)
    model = _camera_model(fields, 'model', 'camera_model', 'model_type')
    matrix, listed = _matrix_of(fields), fields.first('intrinsics')
    if matrix is not None:
        size, k = _size(fields, SIZES[1]), _k_of(fields, matrix)  # four numbers are DSEC's
        if not any(k[2:6:3]) and all(k[6:8]):  # column by column, as Open3D, Record3D and MATLAB have it
            k = [k[row + 3 * column] for row in range(3) for column in range(3)]
        if 'fx' in fields and fields.number('fx') != k[0]:
            raise ValueError(f'{fields.whole(matrix)} has the focal length {k[0]:g}, and fx is {fields.number("fx"):g}: remove one')
    elif listed is not None:
        size, k = _size(fields, SIZES[4]), _pinhole(*fields.numbers(listed, 4))
    else:
        size = _size(fields, SIZES[0])
        k = _pinhole(*map(fields.number, _focals_of(fields)))
    projection = fields.first('projection_matrix', 'p') if matrix is not None and rectified else None
    p = np.zeros((3, 4)) if projection is None else np.reshape(fields.numbers(projection, 12), (3, 4))
    if projection is not None and is_camera(p[:, :3]):
        return Intrinsics(*size, p[:, :3], 'plumb_bob', np.zeros(5), shift_m=-float(p[0, 3] / p[0, 0]) if p[0, 0] > 0 else 0.0,
                          source=f'its {fields.whole(projection)}')
    lens = _lens(fields, model, np.hypot(size[0] / k[0], size[1] / k[4]) / 2 if k[0] and k[4] else 0.0)
    if rectified and matrix is not None and any(lens[1]):
        missing = 'it has no projection_matrix' if projection is None else \
            f'its {fields.whole(projection)} is {p.tolist()}, which is not calibrated'
        raise ValueError(f'{missing}, and the images are rectified by the name of their topic: '
                         f'{fields.whole(matrix)} and D = {lens[1]} are of the raw images. Give the calibration of the rectified '
                         'ones')
    if matrix is None and listed is not None and not model and any(lens[1]) and fields.first(*MODEL_KEYS) is None:
        raise ValueError(f'it has no distortion_model, and D = {lens[1]} are of radtan or of equidistant: name the model')
    if any(lens[1]) and fields.get('distorted', True) is False:  # of MonoGS and its kin
        raise ValueError(f'distorted: False, and D = {lens[1]} are of the raw images: remove them if the images are undistorted')
    fields.check_all_read()
    return _camera(size, k, *lens)


def _chain(cameras: Mapping[str, Any]) -> dict[str, DescribedCamera]:
    """Kalibr's camchain: cam0, cam1 ..., with T_cam_imu of each and T_cn_cnm1 from the one before."""
    found: dict[str, DescribedCamera] = {}
    before: DescribedCamera | None = None
    for name, values in sorted(cameras.items(), key=lambda item: int(str(item[0])[3:])):  # T_cn_cnm1 is from the number before
        fields = Fields(values)
        found[str(name)] = before = DescribedCamera(
            partial(_plain, values), partial(_chained, fields, before), partial(_in_left, fields, before))
    return found


def _in_left(fields: Fields, before: DescribedCamera | None) -> Float64 | None:
    """A camera's pose in the one before it: by T_cn_cnm1, or by the poses of both in the body."""
    if 'T_cn_cnm1' in fields:
        return np.asarray(np.linalg.inv(fields.matrix('T_cn_cnm1')), np.float64)
    return _between(before, partial(_pose, fields))


def _between(before: DescribedCamera | None, in_body: Callable[[], Float64 | None]) -> Float64 | None:
    left, right = None if before is None else before.in_body(), in_body()
    return None if left is None or right is None else np.asarray(np.linalg.solve(left, right), np.float64)


def _chained(fields: Fields, before: DescribedCamera | None) -> Float64 | None:
    """A camera's pose in the body, or that of the one before it and T_cn_cnm1."""
    pose = _pose(fields)
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
    """VINS's: model_type: PINHOLE, image_width, image_height, projection_parameters and distortion_parameters."""
    fields = Fields(values)
    _camera_model(fields, 'model_type')
    size = fields.pixels('image_width'), fields.pixels('image_height')
    projection, distortion = (fields.inner(f'{name}_parameters') for name in ('projection', 'distortion'))
    k = _pinhole(*map(projection.number, ('fx', 'fy', 'cx', 'cy')))
    model, d = _lens(distortion)
    for each in (fields, projection, distortion):
        each.check_all_read()
    return _camera(size, k, model, d)


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
        return replace(_vins(read(file), rectified), source=file)
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

    first = 'Camera1' if 'Camera1.fx' in fields else 'Camera'
    left = DescribedCamera(partial(_orbslam_camera, values, f'{first}.'), left_in_body)
    if 'Camera2.fx' not in fields:
        return {'': left}
    return {first: left, 'Camera2': DescribedCamera(partial(_orbslam_camera, values, 'Camera2.'), right_in_body, right_in_left)}


def _orbslam_camera(values: Mapping[str, Any], prefix: str, rectified: bool) -> Intrinsics:
    common, own = Fields(values, 'Camera.'), Fields(values, prefix)
    model = _camera_model(common, 'type', 'model')
    if not any(names[0] in common for names in SIZES):
        raise ValueError('it has no Camera.width: add Camera.width and Camera.height, the size of the images in pixels')
    size = _size(common, SIZES[0])
    k = _pinhole(*map(own.number, ('fx', 'fy', 'cx', 'cy')))
    model, d = _lens(own, model)
    own.check_all_read()
    if 'Camera1.fx' in values:
        common.check_all_read()
    if not rectified:
        others = Fields({key: value for key, value in values.items() if not re.match(r'Camera\d*\.', str(key))})
        if not _is_zero(others.get('LEFT.D', None)):
            raise ValueError('LEFT.D and LEFT.K are of the raw images, and Camera.fx of the rectified ones, which alone are read. '
                             'Write LEFT.K and LEFT.D into a file of camera_calibration (camera_matrix, distortion_coefficients)')
        others.check_all_read()
    return _camera(size, k, model, d)


def _flat(value: Any, name: str) -> list[float]:
    if isinstance(value, dict):
        if 'data' not in value:
            raise KeyError(f'{name}.data')
        value = value['data']
    if not isinstance(value, (list, tuple)):
        raise ValueError(f'{name}: {value} is no list of numbers')
    parts = [_flat(each, name) if isinstance(each, (list, tuple)) else [_number(each, name)] for each in value]
    return [number for part in parts for number in part]


def _count(value: Any) -> int:
    if isinstance(value, dict) and 'data' in value:
        value = value['data']
    return sum(map(_count, value)) if isinstance(value, (list, tuple)) else 1


def _number(value: Any, name: str) -> float:
    try:
        number = float('' if isinstance(value, bool) else value)  # PyYAML takes 2e-05 for a word
    except (TypeError, ValueError):
        raise ValueError(f'{name}: {value!r} is no number') from None
    if not np.isfinite(number):
        raise ValueError(f'{name}: {number} is not finite; calibrate the camera')
    return number


def _pixels(value: Any, name: str) -> int:
    number = _number(value, name)
    if number != int(number):
        raise ValueError(f'{name}: {value} is no number of pixels')
    return int(number)


def _of_lens(name: str, value: Any) -> list[str]:
    """The keys that lead to something about a lens, and its value in words; empty where there is none."""
    if LENS.search(name.lower()) and not _is_zero(value):
        return [name, str(value)]
    is_lens = re.search(r'(^|_)lens$', name.lower()) is not None  # words in it are of products, but those of fisheyes
    if is_lens and (isinstance(value, list) or OTHER_LENSES.search(str(value).lower())) and not _is_zero(value):
        return [name, str(value)]
    for key, each in value.items() if isinstance(value, dict) else ():
        numbers = [str(key), str(each)] if is_lens and isinstance(each, list) and not _is_zero(each) else []
        if found := _of_lens(str(key), each) or numbers:
            return [name, *found]
    return []


def check_finite(values: Any, name: str = '') -> None:
    """Raise ValueError for a number that is not finite, with its key."""
    if isinstance(values, dict):
        for key, value in values.items():
            check_finite(value, f'{name}.{key}' if name else str(key))
    elif isinstance(values, list):
        for value in values:
            check_finite(value, name)
    elif isinstance(values, float) and not np.isfinite(values):
        raise ValueError(f'{name}: {values} is not finite; calibrate the camera')


def _is_zero(value: Any) -> bool:
    """Of nothing, of zero, and of lists and mappings of these."""
    if isinstance(value, dict):
        return all(map(_is_zero, [value['data']] if 'data' in value else value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_is_zero, value))
    try:
        return value in (None, '') or float(value) == 0
    except (TypeError, ValueError):
        return str(value).lower() in ('none', 'false', 'no')
