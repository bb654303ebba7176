"""What a calibration file says, by key: of YAML, JSON, OpenCV's XML, NumPy's arrays, COLMAP's cameras or a tool's own text."""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from ..utils.errors import BagError, naming
from ..utils.files import text_of
from . import colmap
from .calibration_fields import Fields, check_finite
from .calibration_forms import has_matrix
from .calibration_shapes import named
from .calibration_texts import of_text

READ = ("the forms that are read: this package's calib.yaml, into which you can copy the numbers of other files (width, height, "
        "fx, fy, cx, cy, k1, k2, p1, p2, k3), ROS's camera_calibration and CameraInfo, OpenCV's, EuRoC's sensor.yaml, "
        "Kalibr's camchain.yaml, VINS-Fusion's, ORB-SLAM's, COLMAP's, ZED's, rs-enumerate-devices -c and others of "
        "docs/evaluation.md")
_OPENCV = re.compile(r'\A%YAML.*|!!opencv-(nd-)?matrix')  # not YAML, but in OpenCV's files
_NO_SPACE = re.compile(r'^([ \t]*[\w.]+):(?=[^\s:])', re.MULTILINE)  # after a key: OpenCV reads that, and ORB-SLAM's files have it
_BYTES = re.compile(r"(?<=:)\s*b(?=')")  # before words of Python, as of optimization_inputs in files of mrcal
_REMARKS = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)  # of JSON, as JsonCpp reads it, outside of words
_NUMPY = 'has no arrays that are read, as where Python objects were saved: np.savez("calib.npz", camera_matrix=K, dist=D)'
_MATLAB = 'writelines(jsonencode(toStruct(cameraParams)), "calib.json")'


def values_of(path: Path) -> dict[str, Any]:
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
            advice = _NUMPY if path.suffix in ('.npy', '.npz') else f'is no text: export it as text, that of MATLAB by {_MATLAB}'
            raise BagError(f'{path} {advice}; {READ}') from None
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
        raise BagError(f'{path} is no calibration, it {f"begins with {start[:60]!r}" if start else "is empty"}; {READ}')
    return values


def _of_numpy(path: Path) -> dict[str, Any]:
    """The arrays of np.savez by their names, as mtx and dist, or K of np.save; empty for another file."""
    values: dict[str, Any] = {}
    with suppress(zipfile.BadZipFile, zlib.error, EOFError, ValueError):  # of another file, a damaged one, or objects
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
        return _of_xml(path, text) if text.lstrip().startswith(('<?xml', '<sdf')) else _of_yaml(path, text)
    except (yaml.YAMLError, cv2.error, RecursionError, SystemError) as error:
        raise BagError(f'{path} is no YAML, JSON or XML ({" ".join(str(error).split()):.200}); {READ}') from None


def _of_xml(path: Path, text: str) -> Any:
    if re.search(r'<robot[\s>]', text):
        raise BagError(f'{path} is a URDF, which has no lens: for --camera-in-body write T_BS into a YAML file, 16 numbers row by '
                       'row, body from the optical frame, as tf2_echo prints them')
    if '<sdf' in text:
        raise BagError(f'{path} is SDF: record the camera_info of Gazebo, or write K of a calib.yaml, fx = fy = width / 2 / '
                       'tan(horizontal_fov / 2)')
    if '<opencv_storage' not in text:
        raise BagError(f'{path} is XML, and not that of OpenCV (<opencv_storage>): export it as such; {READ}')
    storage = cv2.FileStorage(str(path), cv2.FILE_STORAGE_READ)
    return _plain_values(storage.root())  # nodes do not keep their storage


def _of_yaml(path: Path, text: str) -> Any:
    """Also of JSON: tabs stand in that and before comments, and PyYAML refuses them."""
    with suppress(ValueError):  # of JSON, which may be large; that of ROS has tabs and commas that only YAML allows
        return json.loads(text)
    import yaml
    bare = _REMARKS.sub(lambda found: found[1] or ' ', text)
    text = bare if bare.lstrip().startswith(('{', '[')) else text

    class Loader(yaml.SafeLoader):
        """Takes two different values of one key, of which YAML keeps the last, as words that are no number."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            own = [(str(key.value), value) for key, value in node.value]
            again = {name for name, count in Counter(name for name, _ in own).items() if count > 1}
            values = super().construct_mapping(node, deep)
            for name in again & values.keys():
                texts = dict.fromkeys(yaml.serialize(value).removesuffix('...\n').strip() for key, value in own if key == name)
                values[name] = ', and again '.join(texts) if len(texts) > 1 else values[name]
            return values

    read = yaml.load_all(_NO_SPACE.sub(r'\1: ', _OPENCV.sub('', _BYTES.sub(' ', text.expandtabs()))), Loader)
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
