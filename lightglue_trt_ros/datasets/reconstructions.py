"""Poses by the names of images, as reconstructions have them: COLMAP's images.txt and images.bin, transforms.json of nerfstudio and
others, Record3D's metadata.json, cameras.json of 3D Gaussian Splatting, OpenMVG's sfm_data.json, AliceVision's .sfm, OpenSfM's
reconstruction.json, Metashape's XML, LLFF's poses_bounds.npy, and folders of a matrix or a Polycam JSON per image. By the numbers
of images: PandaSet's poses.json, BOP's scene_camera.json and Virtual KITTI's extrinsic.txt."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import ArrayLike

from ..core.types import Float64
from ..utils.errors import BagError, first_of, naming
from ..utils.files import text_of
from . import colmap
from .folder_recordings import SUFFIXES, FolderRecording, natural
from .poses import Trajectory, is_rotation, poses_from
from .sequence import Recording
from .stamps import stamps_of_names

_WORD = re.compile(r'[._-]?(pose|color|colour|rgb)$', re.IGNORECASE)  # after a number, as in frame-000001.color of 7-Scenes
_METASHAPE = re.compile(r'<camera [^>]*label="([^"]+)"[^>]*>\s*<transform>([^<]+)</transform>')
_VIRTUAL_KITTI = re.compile(r'frame (cameraID )?r1,1 ')  # how its files begin
_OPTICAL = np.diag([1.0, -1, -1, 1])  # OpenGL's camera (x right, y up, z backwards) from the optical frame


def read_reconstruction(path: Path, recording: Recording) -> Trajectory | None:
    """The poses of a file that names the image of each, with the stamps of these images; None where it is another file.

    The images are those of the folder that was recorded, by their names without folders and endings; of several cameras the folder
    of the images counts. Else their names must be stamps. COLMAP's poses are camera from world
    (https://colmap.github.io/format.html), as OpenSfM's, BOP's and Virtual KITTI's; OpenMVG's rotations are, and its positions are
    the centres of cameras. The others are world from camera: 3D Gaussian Splatting, AliceVision, Metashape and ScanNet++ have them
    as they are here, the rest with the axes of OpenGL, LLFF with axes down, right and backwards. Record3D's are in the order of the
    frames, which it names by their numbers, LLFF's in that of the names as text. A folder has a matrix world from camera in a .txt
    per image, as of ScanNet and 7-Scenes, or Polycam's t_00 to t_23 in a .json. Lengths have the unit of the reconstruction. Raises
    BagError.
    """
    tool, poses = ('LLFF', _of_llff(path, recording)) if path.suffix == '.npy' else _by_name(path)
    if not poses:
        return None
    names = sorted(_of_one_camera(path, list(map(Path, poses)), recording), key=natural)
    stamps = dict(zip(map(_key, names), stamps_of_names(names), strict=False))
    if isinstance(recording, FolderRecording):
        own = dict(zip(map(_key, recording.files), recording.stamps_ns, strict=True))
        stamps = own if own.keys() & set(map(_key, names)) else stamps
    known = [name for name in names if _key(name) in stamps]
    if not known:
        raise BagError(f'{path} has the poses of images, as {names[0]}, and {recording.path} has no image of such a '
                       'name: give the folder of these images, or a file with times (TUM)')
    with naming(path):
        times, known_poses = [stamps[_key(name)] for name in known], [poses[str(name)] for name in known]
        return Trajectory(np.array(times, np.int64), np.stack(known_poses),
                          f'{path} ({tool}, by the names of {len(known)} images, in its own unit of length)').ordered()


def _of_one_camera(path: Path, names: list[Path], recording: Recording) -> list[Path]:
    """The names in the folder of the recording, as of one camera of a rig, or all where none is. Raises BagError."""
    home = recording.files[0].absolute().parent.parts if isinstance(recording, FolderRecording) else ()
    names = [name for name in names if set(name.parent.parts) <= {*home, 'images'}] or names
    if len(set(map(_key, names))) < len(names):
        folders = first_of(sorted({str(name.parent) for name in names}), 4)
        raise BagError(f'{path} has several poses of images that are called alike, in {folders}: name the folder of the images as '
                       'the one in it, or leave the lines of one camera')
    return names


def _key(file: Path) -> str:
    """By which a pose finds its image: its name without zeros before a number."""
    name = _WORD.sub('', file.stem)
    return name.lstrip('0') or '0' if name.isdigit() else name


def _by_name(path: Path) -> tuple[str, dict[str, Float64]]:
    """The tool, and world-from-camera poses (4, 4) by the file names of images; none for another file. Raises BagError."""
    if path.is_dir():
        is_polycam = any(path.glob('*.json')) and not any(path.glob('*.txt'))
        return ('Polycam', _of_polycam(path)) if is_polycam else ('a matrix per image', _of_folder(path))
    with suppress(ArithmeticError, OSError, RecursionError, ValueError):  # others name these
        try:
            text = text_of(path)
        except UnicodeDecodeError:
            text = colmap.images_text(path.read_bytes())
        if re.match(r'\s*\[\s*{', text):
            values = json.loads(text)
            if 'shots' in values[0]:
                return 'OpenSfM', _of_tool('OpenSfM', _of_opensfm, values, path)
            if {'position', 'heading'} <= values[0].keys():
                return 'PandaSet', _of_tool('PandaSet', _of_pandaset, values, path)
            with suppress(KeyError, TypeError):
                return '3D Gaussian Splatting', _of_splatting(values, path)
        elif '<camera ' in text:
            return 'Metashape', _checked({label: np.reshape([float(word) for word in numbers.split()], (4, 4))
                                          for label, numbers in _METASHAPE.findall(text)}, path)
        elif _VIRTUAL_KITTI.match(text):
            return 'Virtual KITTI', _of_tool('Virtual KITTI', _of_virtual_kitti, text, path)
        elif not text.lstrip().startswith('{'):
            return 'COLMAP', colmap.poses_of(text, path, SUFFIXES)
        with suppress(AttributeError, KeyError, TypeError):
            return _of_json(json.loads(text), path)
    return '', {}


def _of_tool(tool: str, read: Callable[[Any, Path], dict[str, Float64]], values: Any, path: Path) -> dict[str, Float64]:
    """What `read` gives of a file that can only be of this tool. Raises BagError where it is broken."""
    try:
        return read(values, path)
    except KeyError as error:
        raise BagError(f'{path}: it is of {tool}, and an entry has no {error.args[0]}: export it anew') from None
    except (ArithmeticError, AttributeError, IndexError, TypeError, ValueError, cv2.error) as error:
        raise BagError(f'{path}: it is of {tool}, and broken ({" ".join(str(error).split()):.100}): export it anew') from None


def _of_json(values: Any, path: Path) -> tuple[str, dict[str, Float64]]:
    """Of JSON with names or numbers of images, by tool. Raises BagError, and such as `_by_name` suppresses for another file."""
    if 'sfm_data_version' in values:
        return 'OpenMVG', _of_tool('OpenMVG', _of_openmvg, values, path)
    if 'views' in values and 'poses' in values:
        return 'AliceVision', _of_tool('AliceVision', _of_alicevision, values, path)
    if all(isinstance(frame, dict) and 'aligned_pose' in frame for frame in values.values()):
        return 'ScanNet++', _checked({name: np.asarray(frame['aligned_pose'], np.float64) for name, frame in values.items()}, path)
    if all(isinstance(frame, dict) and 'cam_R_w2c' in frame for frame in values.values()):
        return 'BOP', _of_tool('BOP', _of_bop, values, path)
    if 'poses' in values and (table := np.array(values['poses'], np.float64)).shape[1:] == (7,):
        with naming(path):
            numbered = enumerate(poses_from(table[:, 4:], table[:, :4]) @ _OPTICAL)
        return 'Record3D', {f'{number}.jpg': pose for number, pose in numbered}
    frames = values['frames']
    poses = {frame['file_path']: np.asarray(frame['transform_matrix'], np.float64) for frame in frames}
    return 'transforms.json', {name: pose @ _OPTICAL for name, pose in _checked(poses, path).items()}


def _of_openmvg(values: dict[str, Any], path: Path) -> dict[str, Float64]:
    """The rotations are camera from world, the centres are in the world. Views without a pose are left out. Raises BagError."""
    own = {pose['key']: pose['value'] for pose in values['extrinsics']}
    views = [view['value']['ptr_wrapper']['data'] for view in values['views']]
    return _checked({view['filename']: _whole(np.column_stack([np.transpose(own[view['id_pose']]['rotation']),
                                                               own[view['id_pose']]['center']]))
                     for view in views if view['id_pose'] in own}, path)


def _of_alicevision(values: dict[str, Any], path: Path) -> dict[str, Float64]:
    """A rotation, camera from world, is written column by column: in rows it is world from camera. Raises BagError."""
    own = {}
    for pose in values['poses']:
        rotation, centre = (np.array(pose['pose']['transform'][name], np.float64) for name in ('rotation', 'center'))
        own[pose['poseId']] = _whole(np.column_stack([rotation.reshape(3, 3), centre]))
    return _checked({view['path']: own[view['poseId']] for view in values['views'] if view.get('poseId') in own}, path)


def _of_opensfm(values: list[dict[str, Any]], path: Path) -> dict[str, Float64]:
    """Camera from world, a rotation vector and a translation. Raises BagError where the images are in several parts."""
    parts = [part['shots'] for part in values]
    if len(parts) != 1:
        counts = ", ".join(str(len(part)) for part in parts)
        raise BagError(f'{path} has {len(parts)} reconstructions, of {counts} images, which no pose joins: leave one in it')
    return {name: _from_camera(np.column_stack([cv2.Rodrigues(np.array(shot['rotation'], np.float64))[0], shot['translation']]))
            for name, shot in parts[0].items()}


def _of_pandaset(values: list[dict[str, Any]], path: Path) -> dict[str, Float64]:
    """World from camera; images are 00.jpg, 01.jpg ... Raises BagError."""
    table = np.array([[pose[part][axis] for part, axes in (('position', 'xyz'), ('heading', 'xyzw')) for axis in axes]
                      for pose in values], np.float64)
    with naming(path):
        return {f'{number:02d}.jpg': pose for number, pose in enumerate(poses_from(table[:, :3], table[:, 3:]))}


def _of_bop(values: dict[str, Any], path: Path) -> dict[str, Float64]:
    """Camera from world, in millimetres; images are 000000.png, 000001.png ... Raises BagError."""
    return _checked({f'{int(number):06d}.png': _from_camera(np.column_stack([
        np.reshape(frame['cam_R_w2c'], (3, 3)), np.array(frame['cam_t_w2c']) / 1000])) for number, frame in values.items()}, path)


def _of_virtual_kitti(text: str, path: Path) -> dict[str, Float64]:
    """Camera from world: the number of the image, in version 2 that of the camera, and a 4x4 matrix. Raises BagError."""
    poses = {}
    for words in filter(None, map(str.split, text.splitlines()[1:])):
        number, *camera = map(int, words[:-16])
        name = f'Camera_{camera[0]}/rgb_{number:05d}.jpg' if camera else f'{number:05d}.png'
        poses[name] = _from_camera(np.array(words[-16:-4], np.float64))
    return _checked(poses, path)


def _of_llff(path: Path, recording: Recording) -> dict[str, Float64]:
    """poses_bounds.npy: of each image, in the order of their names as text, 3x5 numbers of which these are the first four columns.

    Raises BagError.
    """
    with naming(path):
        try:
            table = np.load(path, allow_pickle=False)
        except (EOFError, ValueError) as error:
            raise ValueError(f'{error}: name poses_bounds.npy of LLFF, or export a text') from None
        if table.ndim != 2 or table.shape[1] != 17 or not isinstance(recording, FolderRecording):
            raise ValueError(f'it has numbers of the shape {table.shape}: of .npy only poses_bounds.npy of LLFF (N, 17) is read, '
                             'for a folder of images; write matrices as text, np.savetxt("poses.txt", poses.reshape(-1, 16))')
        names = sorted(file.name for file in recording.files)
        if len(names) != len(table):
            raise ValueError(f'it has {len(table)} poses, and {recording.path} {len(names)} images: give the folder of all')
    down, right, back, middle = np.moveaxis(table[:, :15].reshape(-1, 3, 5)[:, :, :4], 2, 0)
    poses = np.stack([right, down, -back, middle], axis=2)
    return _checked({name: _whole(pose) for name, pose in zip(names, poses, strict=True)}, path)


def _of_splatting(cameras: list[dict[str, Any]], path: Path) -> dict[str, Float64]:
    """Raises BagError, and KeyError or TypeError for another file."""
    return _checked({camera['img_name']: _whole(np.column_stack([camera['rotation'], camera['position']]))
                     for camera in cameras}, path)


def _of_polycam(path: Path) -> dict[str, Float64]:
    """Of a folder of cameras, keyframes/corrected_cameras or keyframes/cameras. Raises BagError."""
    names = [f't_{row}{column}' for row in range(3) for column in range(4)]
    poses = {}
    for file in path.glob('*.json'):
        with naming(file):
            values = json.loads(text_of(file))
            if not isinstance(values, dict) or not set(names) <= values.keys():
                raise ValueError('it has no t_00 to t_23, the pose of an image in Polycam: name a folder of such, or of matrices')
            poses[file.name] = _whole([float(values[name]) for name in names])
    return {name: pose @ _OPTICAL for name, pose in _checked(poses, path).items()}


def _whole(rows: ArrayLike) -> Float64:
    """The 4x4 matrix whose first three rows these are, or their 12 numbers row by row."""
    return np.vstack([np.reshape(np.asarray(rows, np.float64), (3, 4)), [0, 0, 0, 1]])


def _from_camera(rows: ArrayLike) -> Float64:
    """World from camera, of the first three rows of camera from world."""
    return np.asarray(np.linalg.inv(_whole(rows)), np.float64)


def _checked(poses: dict[str, Float64], path: Path) -> dict[str, Float64]:
    """`poses` by names as paths have them, a.png for ./a.png. Raises BagError where the rotation of one is none."""
    wrong = next((name for name, pose in poses.items() if pose.shape != (4, 4) or not is_rotation(pose[:3])), None)
    if wrong is not None:
        raise BagError(f'{path}: the matrix of {wrong} is {poses[wrong].tolist()}: its left upper 3x3 is no rotation')
    return {str(Path(name)): pose for name, pose in poses.items()}


def _of_folder(path: Path) -> dict[str, Float64]:
    """Of the files that hold a 3x4 or 4x4 matrix; those of a tracker that saw nothing are left out. Raises BagError."""
    tables = {}
    for file in path.glob('*.txt'):
        with suppress(OSError, ValueError):
            values = np.array(text_of(file).replace(',', ' ').split(), np.float64)
            if len(values) in (12, 16) and np.isfinite(values).all():
                tables[file.name] = values.reshape(-1, 4)
    if any(len(rows) == 4 and rows[3, :3].any() for rows in tables.values()):  # column by column, as of SYNTHIA
        tables = {name: rows.T for name, rows in tables.items()}
    poses = {name: _whole(rows[:3]) for name, rows in tables.items()}
    if not poses:
        raise BagError(f'{path} is a folder without poses: name a file, or a folder of .txt with a 4x4 matrix (world from camera) '
                       'for each image, named as the images are')
    return _checked(poses, path)
