"""Calibration files in YAML, JSON, OpenCV's XML or a tool's own text: intrinsics, poses in the body, and stereo pairs.

`calibration_forms` has what each form says. A file that describes several cameras is named with one of them: camchain.yaml:cam1.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np

from ..core.cameras import Intrinsics
from ..core.types import Float64
from ..utils.errors import BagError, first_of, naming
from ..utils.files import text_of
from . import colmap
from .calibration_exports import as_chain, named
from .calibration_fields import Fields, check_finite
from .calibration_forms import POSE_KEYS, DescribedCamera, check_baseline, described, has_matrix, of_size, sized
from .calibration_texts import of_text

FORMS = ("this package's calib.yaml, into which you can copy the numbers of other files (width, height, fx, fy, cx, cy, k1, k2, "
         "p1, p2, k3), ROS's camera_calibration and CameraInfo, OpenCV's, EuRoC's sensor.yaml, Kalibr's camchain.yaml, "
         "VINS-Fusion's, ORB-SLAM's, COLMAP's, ZED's, rs-enumerate-devices -c and others of docs/evaluation.md")
_READ = f'the forms that are read: {FORMS}'
MOST_NAMED = 8  # of a file's cameras or keys in a message: COLMAP may have a camera for each image
_OPENCV = re.compile(r'\A%YAML:.*|!!opencv-(nd-)?matrix')  # not YAML, but in OpenCV's files
_NO_SPACE = re.compile(r'^([ \t]*[\w.]+):(?=[^\s:])', re.MULTILINE)  # after a key: OpenCV reads that, and ORB-SLAM's files have it
_REMARKS = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)  # of JSON, as JsonCpp reads it, outside of words
_MATLAB = 'writelines(jsonencode(toStruct(cameraParams)), "calib.json")'


class _Choice(NamedTuple):
    """A camera of a file."""

    file: Path
    name: str  # of the camera in the file; empty: the file has one, without a name
    camera: DescribedCamera
    note: str = ''  # for people, on what the file leaves open

    @property
    def words(self) -> str:
        return f'{self.file}, {self.name}' if self.name else str(self.file)

    @property
    def label(self) -> str:
        return self.name or self.file.name


def load_intrinsics(path: Path, rectified: bool = False, size: Callable[[], tuple[int, int]] | None = None) -> Intrinsics:
    """Read intrinsics from a YAML file; docs/evaluation.md lists the forms and their keys.

    Args:
        path: The file; of a file with several cameras FILE:NAME, as in camchain.yaml:cam1.
        rectified: Whether the images are rectified. Then the projection_matrix of a camera_calibration file counts, as P of a
            CameraInfo does; such a file with distortion and without projection_matrix is refused.
        size: Gives width and height of the images, for a file that does not say them.

    Raises BagError that names the file and the key.
    """
    return _read(_chosen(path, size), rectified)


def camera_names(path: Path, size: Callable[[], tuple[int, int]] | None = None) -> list[str]:
    """The cameras that a file describes; an empty name of one without. Raises BagError."""
    return list(_choices(path, size))


def load_pair(path: Path, rectified: bool = False, size: Callable[[], tuple[int, int]] | None = None) \
        -> tuple[Intrinsics, Intrinsics] | None:
    """Left and right camera of a file that describes both and how they stand; FILE:LEFT,RIGHT or FILE,FILE chooses them.

    Of several cameras these are the ones that the file or their names call left and right; of two others, the first is the left.
    None where the file describes one, where `path` chooses one, or where the file does not say how they stand. Raises BagError,
    also where it describes more cameras and no pair.
    """
    first, second = _two_of(path)
    file, name = split_choice(first)
    if second and split_choice(Path(second))[0].is_file():
        left, right = (_chosen(Path(each), size) for each in (first, second))
        steps = None
    else:
        cameras = {} if name and not second else _choices(file, size)
        if len(cameras) < 2 and not second:
            return next((found for each in cameras.values() if (found := _rectified_pair(each, rectified))), None)
        if second and second not in cameras:
            raise BagError(f'{second} is no file, and no camera of {file}: it has {first_of(cameras, MOST_NAMED) or "one"}')
        left, right = [_named(file, each, cameras) for each in (name, second)] if second else _pair_of(file, cameras)
        steps = list(cameras.values())
    with _naming(right):
        pose = _between(left, right, steps, rectified)
        if pose is None and second:
            raise ValueError(f'it does not say how this camera stands to {left.words}: give poses of both in the body, T_cn_cnm1, '
                             'or rectification_matrix and projection_matrix of both')
        if pose is None:
            return None
        check_baseline(float(np.linalg.norm(pose[:3, 3])), f'the distance between {left.label} and {right.label}')
    *rotations, baseline = rectifying(pose)
    return (replace(_read(left, rectified), rectification=rotations[0]),
            replace(_read(right, rectified), rectification=rotations[1], shift_m=baseline))


def _rectified_pair(chosen: _Choice, rectified: bool) -> tuple[Intrinsics, Intrinsics] | None:
    """Both cameras of rectified images by the only one that a file describes with a baseline, as ORB-SLAM2 does; None without."""
    with _naming(chosen):
        baseline = chosen.camera.baseline()
        if baseline is None:
            return None
        check_baseline(baseline, 'the baseline')
    camera = _read(chosen, rectified)
    return None if camera.lens.distorts else (camera, replace(camera, shift_m=baseline))


def _two_of(path: Path) -> tuple[Path, str]:
    """What FILE:LEFT,RIGHT or FILE,FILE names; the second is empty where it names one. Raises BagError."""
    if path.exists() or ',' not in str(path):
        return path, ''
    pairs = [(Path(str(path)[:comma.start()]), str(path)[comma.end():].strip()) for comma in re.finditer(',', str(path))]
    found = [(first, second) for first, second in pairs if split_choice(first)[0].is_file()]
    first, second = found[0] if found else (path, '')
    if found and (len(found) > 1 or second in ('', str(first), split_choice(first)[1])):
        raise BagError(f'{path} names no pair: give the left and the right camera, as FILE:cam0,cam1 or LEFT.yaml,RIGHT.yaml')
    return first, second


def _pair_of(file: Path, cameras: dict[str, _Choice]) -> list[_Choice]:
    """Left and right camera. Raises BagError where nothing tells which of several they are."""
    sides = [[each for each in cameras.values() if each.camera.side == side] for side in ('left', 'right')]
    if all(len(each) == 1 for each in sides):
        return [each[0] for each in sides]
    if len(cameras) > 2 and any(map(_has_pose, cameras.values())):
        raise BagError(f'{file} describes the cameras {first_of(cameras, MOST_NAMED)}, and does not say which are left and right: '
                       f'name both, as {file}:{",".join(list(cameras)[:2])}')
    return list(cameras.values())[:2]


def _has_pose(chosen: _Choice) -> bool:
    with _naming(chosen):
        return chosen.camera.in_left() is not None or chosen.camera.in_body() is not None


def _between(left: _Choice, right: _Choice, cameras: list[_Choice] | None, rectified: bool) -> Float64 | None:
    """The pose of `right` in `left` (4, 4), by the steps between the `cameras` of their file, or else by what both say."""
    if cameras is not None:
        first, last = sorted((cameras.index(left), cameras.index(right)))
        steps = [step for each in cameras[first + 1:last + 1] if (step := each.camera.in_left()) is not None]
        if len(steps) == last - first:
            pose = np.eye(4)
            for step in steps:
                pose = np.asarray(pose @ step, np.float64)
            return pose if cameras[first] is left else np.asarray(np.linalg.inv(pose), np.float64)
    for one, other in ((left.camera.in_body(), right.camera.in_body()),
                       (left.camera.in_rig(rectified), right.camera.in_rig(rectified))):
        if one is not None and other is not None and not np.array_equal(one, other):
            return np.asarray(np.linalg.solve(one, other), np.float64)
    return None


def split_choice(path: Path) -> tuple[Path, str]:
    """The file and the name of the camera in FILE:NAME; an empty name where `path` is a file."""
    file, colon, name = str(path).rpartition(':')
    return (Path(file), name) if colon and not path.exists() and Path(file).is_file() else (path, '')


def check_size(intrinsics: Intrinsics, height: int, width: int) -> None:
    """Raise BagError unless the intrinsics are for images of `height` x `width` pixels.

    Nothing is scaled: a resized image and a cropped one have the same size and different intrinsics.
    """
    if (intrinsics.height, intrinsics.width) != (height, width):
        swapped = (intrinsics.height, intrinsics.width) == (width, height)
        raise BagError(f'the intrinsics are for {intrinsics.width}x{intrinsics.height} pixels, the images have {width}x{height}: '
                       + 'its width and height are swapped, as where MATLAB has rows first, or the images are rotated; ' * swapped
                       + 'give the calibration of these images (--camera)')


def load_camera_in_body(path: Path) -> Float64:
    """The pose of a camera in the body, (4, 4) body from camera: T_BS of EuRoC, T_cam_imu of Kalibr, or VINS's or ORB-SLAM's.

    Of a file with several cameras `path` is FILE:NAME. Raises BagError, also for a file without a pose.
    """
    chosen = _chosen(path)
    pose = _in_body(chosen)
    if pose is None:
        raise BagError(f'{chosen.words} does not say where the camera is in the body: it needs {POSE_KEYS}')
    return pose


def find_camera_in_body(path: Path) -> Float64 | None:
    """As `load_camera_in_body`; None where the file does not exist, or has no pose. Raises BagError."""
    return _in_body(_chosen(path)) if path.exists() else None


def load_baseline(path: Path) -> float:
    """baseline_m in the calib.yaml of a right camera: metres along x from the left camera. Raises BagError."""
    try:
        return check_baseline(float(_mapping(path)['baseline_m']), 'baseline_m')
    except KeyError:
        raise BagError(f'{path} has no baseline_m, the metres between left and right camera') from None
    except (TypeError, ValueError) as error:
        raise BagError(f'{path}: {error}; baseline_m has the metres between left and right camera') from None


def _read(chosen: _Choice, rectified: bool) -> Intrinsics:
    with _naming(chosen):
        camera = chosen.camera.intrinsics(rectified)
        return replace(camera, source=', '.join(filter(None, (chosen.words, camera.source, chosen.note))))


def _in_body(chosen: _Choice) -> Float64 | None:
    with _naming(chosen):
        return chosen.camera.in_body()


def _chosen(path: Path, size: Callable[[], tuple[int, int]] | None = None) -> _Choice:
    """The only camera of a file, or the one that `path` names. Raises BagError."""
    if _two_of(path)[1]:
        raise BagError(f'{path} names two cameras, which --stereo and --right-topic take: name one')
    file, name = split_choice(path)
    cameras = _choices(file, size)
    if name and list(cameras) == ['']:
        raise BagError(f'{file} describes one camera without a name: leave out :{name}')
    if name:
        return _named(file, name, cameras)
    if len(cameras) > 1:
        one_an_image = 'if COLMAP has estimated one for each image, run it with --ImageReader.single_camera 1; else '
        raise BagError(f'{file} describes the cameras {first_of(cameras, MOST_NAMED)}: {one_an_image * (len(cameras) > MOST_NAMED)}'
                       f'choose one, as {file}:{next(iter(cameras))}')
    return next(iter(cameras.values()))


def _named(file: Path, name: str, cameras: dict[str, _Choice]) -> _Choice:
    if name not in cameras:
        raise BagError(f'{file} has no camera {name}: it has {first_of(cameras, MOST_NAMED)}')
    return cameras[name]


def _choices(file: Path, size: Callable[[], tuple[int, int]] | None) -> dict[str, _Choice]:
    """The cameras of a file by name, for images of this `size`. Raises BagError."""
    pose = _extrinsics_beside(file)
    values = {**_mapping(file), **pose}
    with naming(file):
        said = as_chain(values)
    try:
        whole = of_size(said, size)
        values, added = (whole, False) if size is None else sized(whole, size)
        cameras = described(values, lambda name: _mapping(file.parent / name))
    except (KeyError, ValueError) as error:
        raise BagError(f'{file}: {error}') from None
    notes = ['which has no size: that of the images is taken'] * added + ['with R and T of the file of extrinsics'] * bool(pose)
    note = ', '.join(notes)
    return {name: _Choice(file, name, camera, getattr(said.get(name), 'remark', note)) for name, camera in cameras.items()}


def _extrinsics_beside(file: Path) -> dict[str, Any]:
    """R and T of extrinsics.yml next to intrinsics.yml, as OpenCV's stereo_calib writes both; else empty. Raises BagError."""
    other = file.with_name(file.name.replace('intrinsic', 'extrinsic'))
    values = _mapping(other) if other != file and other.is_file() else {}
    return {name: values[name] for name in 'RT'} if {'R', 'T'} <= values.keys() else {}


@contextmanager
def _naming(chosen: _Choice) -> Iterator[None]:
    """Errors name the file and the camera."""
    try:
        yield
    except KeyError as error:
        keys = first_of(chosen.camera.keys, MOST_NAMED)
        raise BagError(f'{chosen.words} has no {error.args[0]}' + (f', it has {keys}' if keys else '')
                       + f'; {_named_file(chosen.file) or _READ}') from None
    except (ValueError, TypeError, BagError) as error:
        raise BagError(f'{chosen.words}: {error}') from None


def _named_file(path: Path) -> str:
    """Advice where a value of a file is the name of that of the cameras, as in settings of MINS and D2SLAM; else empty."""
    named = {key: path.parent / value for key, value in _mapping(path).items() if isinstance(value, str)}
    for key, other in named.items():
        if other.suffix in ('.yaml', '.yml', '.json') and other.is_file():
            with suppress(BagError, KeyError, TypeError, ValueError):  # of a file without a camera
                if all(each.camera.intrinsics(False) for each in _choices(other, None).values()):
                    return f'its {key} names {other}: give that file'
    return ''


def _mapping(path: Path) -> dict[str, Any]:
    """What a file says, by key. Raises BagError."""
    text, values = '', {}
    try:
        text = text_of(path)
        values = _parsed(path, text)
    except OSError as error:
        raise BagError(f'cannot read {path}: {error}') from None
    except UnicodeDecodeError:
        values = _of_numpy(path) or colmap.cameras_of(colmap.cameras_text(path.read_bytes()))
        if not values:
            raise BagError(f'{path} is no text: export it as text, that of MATLAB by {_MATLAB}; {_READ}') from None
    with naming(path):
        check_finite(values)
    if isinstance(values, list) and len(values) == 1 and isinstance(values[0], dict) and 'cameras' in values[0]:
        values = values[0]  # OpenSfM's reconstruction.json
    if isinstance(values, list) and values and all(isinstance(each, dict) and 'camera_intrinsic' in each for each in values):
        values = {'calibrated_sensor': values}  # nuScenes'
    if isinstance(values, list) and any(isinstance(each, dict) and has_matrix(Fields(each)) for each in values):
        values = named(values)
    if not isinstance(values, dict):
        start = next((line for line in text.splitlines() if line.strip() and line[0] != '#'), '')
        raise BagError(f'{path} is no calibration, it {f"begins with {start[:60]!r}" if start else "is empty"}; {_READ}')
    return values


def _of_numpy(path: Path) -> dict[str, Any]:
    """The arrays of np.savez by their names, as mtx and dist, or K of np.save; empty for another file."""
    values: dict[str, Any] = {}
    with suppress(zipfile.BadZipFile, EOFError, ValueError):  # of another file, or objects
        stored = np.load(path, allow_pickle=False)
        for name in getattr(stored, 'files', ()):
            with suppress(ValueError):
                values[name] = stored[name].tolist()
        if isinstance(stored, np.ndarray) and stored.shape in ((3, 3), (3, 4), (4, 4)):
            values = {'camera_matrix': stored.tolist()}
    return values


def _parsed(path: Path, text: str) -> Any:
    """The values of a text of any kind, also such that are no mapping. Raises BagError."""
    import yaml
    with naming(path):
        values = of_text(text)
    if values:
        return values
    try:
        return _of_xml(path, text) if text.lstrip().startswith('<?xml') else _of_yaml(path, text)
    except (yaml.YAMLError, cv2.error, RecursionError, SystemError) as error:
        raise BagError(f'{path} is no YAML, JSON or XML ({" ".join(str(error).split()):.200}); {_READ}') from None


def _of_xml(path: Path, text: str) -> Any:
    if '<opencv_storage' not in text:
        raise BagError(f'{path} is XML, and not that of OpenCV (<opencv_storage>): export it as such; {_READ}')
    storage = cv2.FileStorage(str(path), cv2.FILE_STORAGE_READ)
    return _plain_values(storage.root())  # nodes do not keep their storage


def _of_yaml(path: Path, text: str) -> Any:
    """Also of JSON: tabs stand in that and before comments, and PyYAML refuses them."""
    with suppress(ValueError):  # of JSON, which may be large; that of ROS has tabs and commas that only YAML allows
        return json.loads(text)
    import yaml
    bare = _REMARKS.sub(lambda found: found[1] or ' ', text)
    text = bare if bare.lstrip().startswith(('{', '[')) else text
    read = yaml.safe_load_all(_NO_SPACE.sub(r'\1: ', _OPENCV.sub('', text.expandtabs())))
    documents = [each for each in read if each is not None]  # `ros2 topic echo` ends each message with ---
    values = documents[0] if documents else None
    if not all(_same_but_header(values, each) for each in documents[1:]):
        raise BagError(f'{path} holds {len(documents)} documents (---) that differ: keep one')
    return values


def _same_but_header(one: Any, other: Any) -> bool:
    return all(isinstance(each, dict) for each in (one, other)) and {**one, 'header': 0} == {**other, 'header': 0}


def _plain_values(node: Any) -> Any:
    """What OpenCV's FileStorage has, as YAML would have it."""
    if node.isMap():
        return {key: _plain_values(node.getNode(key)) for key in list(node.keys())}
    if node.isSeq():
        return [_plain_values(node.at(number)) for number in range(node.size())]
    return node.string() if node.isString() else node.real()


def rectifying(right_in_left: Float64) -> tuple[Float64, Float64, float]:
    """Rotations (3, 3) from the axes of the left and of the right camera to rectified ones, and the baseline in metres.

    `right_in_left` (4, 4), left from right. x goes along the baseline, z is as near to both optical axes as it can be.
    """
    rotation, translation = right_in_left[:3, :3], right_in_left[:3, 3]
    baseline = float(np.linalg.norm(translation))
    x = translation / (baseline or 1.0)
    y = np.cross(rotation[:, 2] + [0, 0, 1], x)
    y /= np.linalg.norm(y)
    shared = np.stack([x, y, np.cross(x, y)])
    return shared, shared @ rotation, baseline
