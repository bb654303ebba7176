"""Poses in text files: TUM, KITTI and EuRoC."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from ..core.types import Float64
from ..utils.errors import BagError
from .poses import MAX_STAMP_NS, Trajectory, parse_stamp, poses_from

KINDS = ('tum', 'kitti', 'euroc')
_KITTI_VALUES, _TUM_VALUES = 12, 8

T = TypeVar('T')


def kind_of(path: Path) -> str:
    """tum, kitti or euroc, by the first line that holds values. Raises BagError when it is none of them."""
    number, line = next(_lines(path), (0, ''))
    if ',' in line:
        return 'euroc'
    kinds = {_KITTI_VALUES: 'kitti', _TUM_VALUES: 'tum'}
    if (count := len(line.split())) not in kinds:
        raise BagError(f'{path}, line {number}: {count} values: poses are {_TUM_VALUES} a line (TUM: t tx ty tz qx qy qz qw), '
                       f'{_KITTI_VALUES} (KITTI), or separated by commas (EuRoC)')
    return kinds[count]


def read_tum(path: Path) -> Trajectory:
    """Read lines `t tx ty tz qx qy qz qw` (seconds, metres, world from camera), the TUM RGB-D benchmark's format.

    Raises BagError that names the line.
    """
    return _quaternion_poses(path, 'TUM', 't x y z qx qy qz qw', None, parse_stamp)


def read_euroc(path: Path) -> Trajectory:
    """Read lines `t,px,py,pz,qw,qx,qy,qz,...` (nanoseconds, metres, world from body) of EuRoC's data.csv.

    Raises BagError that names the line.
    """
    return _quaternion_poses(path, 'EuRoC', 't x y z qw qx qy qz', ',', parse_nanoseconds)


def read_kitti(path: Path, stamps_ns: Sequence[int]) -> Trajectory:
    """Read lines of 12 numbers, the rows of a 3x4 matrix, world from camera, one line per stamp.

    Raises BagError that names the line, or both counts.
    """
    def row(line: str) -> list[float]:
        values = [float(word) for word in line.split()]
        if len(values) != _KITTI_VALUES:
            raise ValueError(f'{len(values)} values where {_KITTI_VALUES} belong, a 3x4 matrix')
        r = np.asarray(values, np.float64).reshape(3, 4)[:, :3]
        if not np.abs(r @ r.T - np.eye(3)).max() < 1e-3 or np.linalg.det(r) < 0:
            raise ValueError('its left 3x3 is no rotation')
        return values

    rows = _rows(path, row)
    if rows and len(rows) != len(stamps_ns):
        raise BagError(f'{path} has {len(rows)} poses for {len(stamps_ns)} stamps: KITTI poses are one per frame '
                       '(their stamps stand in a times.txt beside them, or are those of the recording)')
    poses = np.tile(np.eye(4), (len(rows), 1, 1))
    poses[:, :3] = np.asarray(rows, np.float64).reshape(-1, 3, 4)
    return _trajectory(path, 'KITTI', stamps_ns, poses)


def read_stamps(path: Path) -> list[int]:
    """Read one stamp in seconds per line, as nanoseconds. Raises BagError that names the line."""
    return _rows(path, parse_stamp)


def read_list(path: Path, parse: Callable[[str], int], separator: str | None = None) -> list[tuple[int, str]]:
    """Read lines `stamp name`, the lists of images of TUM and EuRoC, as (nanoseconds, name); `parse` reads a stamp.

    Raises BagError that names the line.
    """
    def row(line: str) -> tuple[int, str]:
        words = [word.strip() for word in line.split(separator)]
        if len(words) < 2:
            raise ValueError(f'{line!r} is no stamp and file name')
        return parse(words[0]), words[1]

    return _rows(path, row)


def parse_nanoseconds(text: str) -> int:
    """A count of nanoseconds. Raises ValueError when that is no stamp ROS can hold."""
    ns = int(text)
    if not 0 <= ns <= MAX_STAMP_NS:
        raise ValueError(f'{text!r} is not a time in nanoseconds between 0 and {MAX_STAMP_NS}')
    return ns


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines without comments and blanks."""
    try:
        lines = path.read_text(encoding='utf-8-sig').splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BagError(f'cannot read {path}: {error}') from None
    for number, line in enumerate(lines, 1):
        if text := line.split('#')[0].strip():
            yield number, text


def _rows(path: Path, row: Callable[[str], T]) -> list[T]:
    """What `row` makes of each line; its ValueError becomes a BagError that names the line."""
    rows = []
    for number, line in _lines(path):
        try:
            rows.append(row(line))
        except ValueError as error:
            raise BagError(f'{path}, line {number}: {error}') from None
    return rows


def _quaternion_poses(path: Path, name: str, fields: str, separator: str | None, parse: Callable[[str], int]) -> Trajectory:
    """Lines of `fields`; where commas separate them, more may follow."""
    order = fields.split()

    def row(line: str) -> tuple[int, list[float]]:
        words = line.split(separator)
        if len(words) != len(order) if separator is None else len(words) < len(order):
            raise ValueError(f'{len(words)} values where {len(order)} belong ({fields})')
        return parse(words[0]), [float(words[order.index(field)]) for field in ('x', 'y', 'z', 'qx', 'qy', 'qz', 'qw')]

    rows = _rows(path, row)
    table = np.asarray([values for _, values in rows], np.float64).reshape(-1, 7)
    try:
        poses = poses_from(table[:, :3], table[:, 3:])
    except BagError as error:
        raise BagError(f'{path}: {error}') from None
    return _trajectory(path, name, [stamp for stamp, _ in rows], poses)


def _trajectory(path: Path, name: str, stamps_ns: Sequence[int], poses: Float64) -> Trajectory:
    if not len(poses):
        raise BagError(f'{path} holds no pose')
    try:
        return Trajectory(np.asarray(stamps_ns, np.int64), poses, f'{path} ({name})')
    except BagError as error:
        raise BagError(f'{path}: {error}') from None
