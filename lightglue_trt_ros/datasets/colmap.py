"""COLMAP's cameras.txt and images.txt, and its cameras.bin and images.bin in their words (https://colmap.github.io/format.html)."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..core.types import Float64
from ..utils.errors import naming
from .fitted_lenses import LISTED
from .poses import poses_from

_CAMERA = re.compile(r'\s*(\d+)\s+([A-Z_]+)\s+(\d+)\s+(\d+)((?:\s+[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?){3,})\s*')
_MODELS = {  # what the lens is called, and how many focal lengths and coefficients there are, in OpenCV's order
    'SIMPLE_PINHOLE': ('none', 1, 0), 'PINHOLE': ('none', 2, 0), 'SIMPLE_RADIAL': ('radtan', 1, 1), 'RADIAL': ('radtan', 1, 2),
    'OPENCV': ('radtan', 2, 4), 'FULL_OPENCV': ('rational_polynomial', 2, 8), 'OPENCV_FISHEYE': ('equidistant', 2, 4),
    'FOV': ('fov', 2, 1), 'THIN_PRISM_FISHEYE': ('thin_prism_fisheye', 2, 8), 'RAD_TAN_THIN_PRISM_FISHEYE': ('fisheye624', 2, 12),
    'SIMPLE_RADIAL_FISHEYE': ('equidistant', 1, 1), 'RADIAL_FISHEYE': ('equidistant', 1, 2)}
_NUMBERS = (('SIMPLE_PINHOLE', 3), ('PINHOLE', 4), ('SIMPLE_RADIAL', 4), ('RADIAL', 5), ('OPENCV', 8), ('OPENCV_FISHEYE', 8),
            ('FULL_OPENCV', 12), ('FOV', 5), ('SIMPLE_RADIAL_FISHEYE', 4), ('RADIAL_FISHEYE', 5), ('THIN_PRISM_FISHEYE', 12),
            ('RAD_TAN_THIN_PRISM_FISHEYE', 16))  # in cameras.bin, by their numbers, with the count of their parameters
_IMAGE = re.compile(r'\s*\d+((?:\s+[-+.\deE]+){7})\s+\d+\s+(\S.*)')  # id, qw qx qy qz tx ty tz, camera, name


def cameras_of(text: str) -> dict[str, Any]:
    """The cameras of cameras.txt by their ids, with Kalibr's keys; empty for another text.

    COLMAP counts pixels from the corner of the first one, OpenCV from its centre.
    """
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith('#')]
    found = [match.groups() for match in map(_CAMERA.fullmatch, lines) if match]
    cameras = {}
    for number, model, width, height, parameters in found if len(found) == len(lines) else ():
        lens, focals, count = _MODELS.get(model, ('', 2, 0))
        numbers = [float(each) for each in parameters.split()]
        if len(numbers) < focals + 2 or (lens and len(numbers) != focals + 2 + count):
            return {}
        cx, cy = (value - 0.5 for value in numbers[focals:focals + 2])
        d = numbers[focals + 2:]
        camera = {'resolution': [int(width), int(height)], 'intrinsics': [numbers[0], numbers[focals - 1], cx, cy]}
        cameras[f'cam{number}'] = {**camera, 'camera_model': lens, 'lens_parameters': d} if lens in LISTED else {
            **camera, 'camera_model': 'pinhole' if lens else model, 'distortion_model': lens,
            'distortion_coeffs': d + [0.0] * (4 - len(d)) if d else []}
    return cameras


def poses_of(text: str, path: Path, endings: tuple[str, ...]) -> dict[str, Float64]:
    """World-from-camera poses (4, 4) by the names of images, of the lines of images.txt that end in such a name.

    A line of points follows each. Raises BagError that names `path`.
    """
    lines = [match for line in text.splitlines() if line.rstrip().lower().endswith(endings) and (match := _IMAGE.fullmatch(line))]
    table = np.array([line[1].split() for line in lines], np.float64).reshape(-1, 7)
    with naming(path):
        poses = np.linalg.inv(poses_from(table[:, 4:], table[:, [1, 2, 3, 0]]))
    return {str(Path(line[2].strip())): pose for line, pose in zip(lines, poses, strict=True)}


def cameras_text(data: bytes) -> str:
    """cameras.bin in the lines of cameras.txt; empty for another file."""
    def camera(at: int) -> tuple[list[Any], int]:
        number, model, width, height = struct.unpack_from('<iiQQ', data, at)
        name, count = _NUMBERS[model]
        return [number, name, width, height, *struct.unpack_from(f'<{count}d', data, at + 24)], at + 24 + 8 * count

    return _lines(data, camera)


def images_text(data: bytes) -> str:
    """images.bin in the lines of images.txt, without the points; empty for another file."""
    def image(at: int) -> tuple[list[Any], int]:
        end = data.index(b'\0', at + 64)
        points = struct.unpack_from('<Q', data, end + 1)[0]
        return [*struct.unpack_from('<I7dI', data, at), data[at + 64:end].decode()], end + 9 + 24 * points

    return _lines(data, image)


def _lines(data: bytes, read: Callable[[int], tuple[list[Any], int]]) -> str:
    """The values of each entry in a line; `read` gives these and where the next entry begins."""
    lines, at = [], 8
    try:
        for _ in range(struct.unpack_from('<Q', data)[0]):
            values, at = read(at)
            lines.append(' '.join(map(str, values)))
    except (struct.error, IndexError, ValueError):
        return ''
    return '\n'.join(lines) if at == len(data) else ''
