"""One shape for files whose cameras lie in lists or inside other names, or are of a ROS node or a renderer of scenes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .calibration_lens import MOST_TANGENTIAL
from .export_tables import Values

_NERFSTUDIO = ('camera_model', 'w', 'h', 'fl_x', 'fl_y', 'cx', 'cy', 'k1', 'k2', 'k3', 'k4', 'p1', 'p2', 'is_fisheye')
_NERF = 'fl_x', 'fl_y', 'cx', 'cy', 'is_fisheye', 'camera_angle_x'
_INNER = ('projection', 'intrinsics', 'intrinsic', 'camera_intrinsics', 'cameraintrinsics', 'camera_matrix', 'cameramatrix', 'k')
_INNER_MATRICES = 'camera_matrix', 'cameramatrix', 'intrinsic_matrix', 'mtx', 'k'
SQUARE = 0.03  # logarithm of fx over fy: pixels of cameras are nearer to squares
USUAL = 'fx, fy, cx, cy'
ORDERS = {USUAL: (0, 1, 2, 3), 'fx, cx, fy, cy': (0, 2, 1, 3), 'cx, cy, fx, fy': (2, 3, 0, 1)}  # OpenLORIS's, Azure Kinect's SDK's
_OF_PHONES = {'focalLength': 'focal_length', 'principalPoint': 'principal_point', 'imageDimensions': 'image_size',
              'imageResolution': 'image_size'}  # as ARCore, ARKit and Unity call them
_OF_MIDDLE = {'u0': 'cx', 'v0': 'cy', 'ppx': 'cx', 'ppy': 'cy'}  # other names of a principal point


def of_parameters(values: Values) -> Values:
    """Of a parameter file of one ROS 2 node, its parameters; `values` themselves of others."""
    inner = next(iter(values.values())) if len(values) == 1 else None
    parameters = inner.get('ros__parameters') if isinstance(inner, dict) else None
    return parameters if isinstance(parameters, dict) else values


def of_frames(values: Values) -> Values:
    """Of a transforms.json whose frames have intrinsics, these, as cam0 ... where they differ; `values` themselves of others."""
    frames = [frame for frame in values.get('frames') or [] if 'fl_x' in frame]
    if 'fl_x' in values or not frames:
        return values
    common = {name: value for name, value in values.items() if name != 'frames'}
    cameras = [{**common, **{name: frame[name] for name in _NERFSTUDIO if name in frame}} for frame in frames]
    different = [camera for number, camera in enumerate(cameras) if camera not in cameras[:number]]
    return different[0] if len(different) == 1 else {f'cam{number}': each for number, each in enumerate(different)}


def of_nerf(values: Values) -> Values:
    """Of nerfstudio's and instant-ngp's cameras, fl_x ..., OpenCV's fx ...: they count pixels from the corner of the first one.

    Their k4 without a fisheye is of the eighth power of the radius, which no lens of OpenCV has, and refused. Those inside
    cam0 ... too; `values` themselves of others. Renderers give the angle of the view instead, camera_angle_x.
    """
    if 'fl_x' not in values and {'camera_angle_x', 'w', 'h'} <= values.keys():
        focal = values['w'] / 2 / math.tan(values['camera_angle_x'] / 2)
        values = {'fl_x': focal, 'fl_y': focal, 'cx': values['w'] / 2, 'cy': values['h'] / 2, **values}
    if 'fl_x' not in values:
        inner = {name: of_nerf(value) for name, value in values.items() if isinstance(value, dict) and 'fl_x' in value}
        return {**values, **inner} if inner else values
    rest = {name: value for name, value in values.items() if name not in _NERF}
    focal = {name[0] + name[-1]: float(values[name]) for name in ('fl_x', 'fl_y') if name in values}
    middle = {name: float(values[name]) - 0.5 for name in ('cx', 'cy') if name in values}
    if values.get('is_fisheye'):
        rest['camera_model'] = 'OPENCV_FISHEYE'
    if 'FISH' not in str(rest.get('camera_model')).upper():
        rest = {{'k4': 'coefficient_k4_of_the_eighth_power'}.get(name, name): value for name, value in rest.items()}
    return {**rest, **focal, **middle}


def flat(values: Values, depth: int = 2) -> Values:
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
            value = flat(value, depth - 1) if depth > 1 else value
        found[name] = value
    return found


def with_focals(values: Values, depth: int = 3) -> dict[str, Any]:
    """With fx, fy, cx, cy for focal_length and principal_point: two numbers, or one focal length for both; also inside.

    A list of nine with these four and OpenCV's five coefficients is parted too.
    """
    values = _parted({_OF_PHONES.get(str(name)[:1].lower() + str(name)[1:], name): value for name, value in values.items()})
    pairs = [_two_of(values.get(name)) for name in ('focal_length', 'principal_point')]
    found = {name: with_focals(value, depth - 1) if depth and isinstance(value, dict) else value for name, value in values.items()}
    if not all(pairs):
        return found
    del found['focal_length'], found['principal_point']
    return found | dict(zip(('fx', 'fy', 'cx', 'cy'), pairs[0] + pairs[1], strict=True))


def _parted(values: dict[str, Any]) -> dict[str, Any]:
    """With nine numbers under `intrinsic`, as Waymo has fx, fy, cx, cy, k1, k2, p1, p2, k3, as K's four and the coefficients."""
    for name in ('intrinsic', 'intrinsics') if values.keys().isdisjoint(('distortion_model', 'distortion_coefficients')) else ():
        numbers = values.get(name)
        if isinstance(numbers, list) and len(numbers) == 9 and all(isinstance(number, (int, float)) for number in numbers):
            fx, fy, cx, cy, *d = numbers
            is_square = min(fx, fy) > 10 and abs(math.log(fx / fy)) < SQUARE
            if is_square and min(cx, cy) > 1 and max(map(abs, d[2:4])) < MOST_TANGENTIAL:  # k3 is larger, as in another order
                return {**values, name: numbers[:4], 'distortion_model': 'plumb_bob', 'distortion_coefficients': d}
    return values


def _two_of(value: Any) -> list[float]:
    """Both numbers of a list or of {x: ..., y: ...}, and one number twice; empty for others."""
    by_name = [value[key] for key in sorted(value)] if isinstance(value, dict) else None
    numbers = by_name or (value if isinstance(value, list) else [value] * 2)
    return numbers if len(numbers) == 2 and all(isinstance(number, (int, float)) for number in numbers) else []


def named_lists(values: Values) -> dict[str, Any]:
    """With a list of cameras as a mapping of them, by their names, ids or numbers."""
    return {key: named(value) if key in ('cameras', 'sensors') else value for key, value in values.items()}


def named(cameras: Any) -> Any:
    """A list of mappings as a mapping, by their names, ids or numbers; what is no such list as it is."""
    if not isinstance(cameras, list) or not cameras or not all(isinstance(each, dict) for each in cameras):
        return cameras
    keys = [next((str(each[key]) for key in ('name', 'camera_name', 'id') if key in each), str(number))
            for number, each in enumerate(cameras)]
    return dict(zip(keys, cameras, strict=True)) if len(set(keys)) == len(keys) else cameras


def order_of(numbers: Sequence[float], size: tuple[int, int]) -> str:
    """That of ORDERS in which a camera with images of `size` has its four `numbers`: the usual one, if its pixels are squares then.

    Else the one with squares and the principal point nearest to the middle.
    """
    def off_middle(order: str) -> float:
        fx, fy, cx, cy = (numbers[place] for place in ORDERS[order])
        is_square = order == USUAL or abs(math.log(fx / fy)) < SQUARE
        return max(abs(cx / size[0] - 0.5), abs(cy / size[1] - 0.5)) if is_square else math.inf

    is_usual = min(numbers) <= 0 or abs(math.log(numbers[0] / numbers[1])) < SQUARE
    return USUAL if is_usual else min(ORDERS, key=off_middle)
