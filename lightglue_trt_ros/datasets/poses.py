"""Camera poses: trajectories with stamps, rotations and unit quaternions, and text files of TUM, KITTI and EuRoC."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.types import Float64
from ..utils.errors import BagError

MAX_STAMP_NS = (2**31 - 1) * 10**9  # builtin_interfaces/Time holds seconds in an int32
KINDS = ('tum', 'kitti', 'euroc')
GRID = 2.0**-32  # of numbers in the poses that this package computes: a quarter of a nanometre
_KITTI_VALUES, _TUM_VALUES = 12, 8

T = TypeVar('T')


@dataclass(frozen=True, eq=False)
class Trajectory:
    """N poses with stamps. Raises BagError when a value is not finite."""

    stamps_ns: NDArray[np.int64]  # (N,) nanoseconds
    poses: Float64  # (N, 4, 4) world from camera, metres, the camera in its optical frame (x right, y down, z forward)
    source: str = ''  # for people: where the poses are from, and how they became the camera's
    as_camera: bool = False  # taken as the camera's own as they were

    def __post_init__(self) -> None:
        if not np.isfinite(self.poses).all():
            number = int(np.argmin(np.isfinite(self.poses).all(axis=(1, 2))))
            raise BagError(f'pose {number} is not finite: correct it, or remove it')

    def __len__(self) -> int:
        return len(self.stamps_ns)

    def of_camera(self, camera_in_body: Float64 | None, how: str) -> Trajectory:
        """The camera's poses where these are a body's: `camera_in_body` (4, 4) is body from camera; None leaves them as they are.

        `how` is added to the source.
        """
        poses = self.poses if camera_in_body is None else self.poses @ camera_in_body
        return Trajectory(self.stamps_ns, poses, f'{self.source}, {how}', camera_in_body is None)

    def ordered(self) -> Trajectory:
        """In the order of the stamps, the first of each that occurs again; itself where that is so already."""
        if (np.diff(self.stamps_ns) > 0).all():
            return self
        stamps, first = np.unique(self.stamps_ns, return_index=True)
        return Trajectory(stamps, self.poses[first], self.source, self.as_camera)


@dataclass
class Poses:
    """The poses of one frame in another."""

    parent: str
    child: str  # empty where the messages do not name it
    stamps: list[int] = field(default_factory=list)  # nanoseconds
    rows: list[list[float]] = field(default_factory=list)  # x, y, z, qx, qy, qz, qw

    def __str__(self) -> str:
        return f'{self.child or "?"} in {self.parent or "?"} ({len(self.stamps)} poses)'

    @property
    def matrices(self) -> Float64:
        """(N, 4, 4) parent from child."""
        table = np.asarray(self.rows, np.float64).reshape(-1, 7)
        return poses_from(table[:, :3], table[:, 3:])


def quaternions_from_rotations(rotations: ArrayLike) -> Float64:
    """Unit quaternions (N, 4), x, y, z, w with w >= 0, of rotation matrices (N, 3, 3)."""
    m = np.asarray(rotations, np.float64).reshape(-1, 3, 3)
    diagonal = np.einsum('nii->ni', m)
    trace = diagonal.sum(axis=1)
    products = np.empty((len(m), 4, 4))  # 4 q q^T: any row has the direction of q, that of the largest component is exact
    products[:, :3, :3] = m + m.transpose(0, 2, 1)
    products[:, range(3), range(3)] = 1 - trace[:, None] + 2 * diagonal
    products[:, :3, 3] = products[:, 3, :3] = m[:, (2, 0, 1), (1, 2, 0)] - m[:, (1, 2, 0), (2, 0, 1)]
    products[:, 3, 3] = 1 + trace
    q: Float64 = products[np.arange(len(m)), np.einsum('nii->ni', products).argmax(axis=1)]
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    return np.where(q[:, 3:] < 0, -q, q)


def _rotations_from(quaternions: Float64) -> Float64:
    """Rotation matrices (N, 3, 3) of unit quaternions (N, 4), x, y, z, w."""
    x, y, z, w = quaternions.T
    rows = [[x * x - y * y - z * z + w * w, 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), -x * x + y * y - z * z + w * w, 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), -x * x - y * y + z * z + w * w]]
    return np.asarray(rows).transpose(2, 0, 1)


def on_grid(values: ArrayLike) -> Float64:
    """The nearest multiples of GRID: by these a recording shows who computed its poses."""
    return np.asarray(np.round(np.asarray(values, np.float64) / GRID) * GRID, np.float64)


def are_on_grid(rows: ArrayLike) -> bool:
    """Whether positions and quaternions (N, 7) were made by `on_grid`: numbers of others are not, or have single precision."""
    values = np.asarray(rows, np.float64)
    if not np.isfinite(values).all() or (on_grid(values) != values).any():
        return False
    return bool(np.mean((values.astype(np.float32) != values).any(axis=1)) >= 0.5)


def interpolated(first: Float64, second: Float64, share: Float64) -> Float64:
    """Poses between two (N, 4, 4) each, at shares (N,) of the way: positions on the line, rotations along the shortest arc."""
    start, end = (quaternions_from_rotations(poses[:, :3, :3]) for poses in (first, second))
    end = np.where((start * end).sum(axis=1, keepdims=True) < 0, -end, end)
    angle = 2 * np.arctan2(np.linalg.norm(end - start, axis=1), np.linalg.norm(end + start, axis=1))  # of the quaternions
    weights = [part * np.sinc(part * angle / np.pi) / np.sinc(angle / np.pi) for part in (1 - share, share)]
    between = weights[0][:, None] * start + weights[1][:, None] * end
    poses = first + share[:, None, None] * (second - first)
    poses[:, :3, :3] = _rotations_from(between / np.linalg.norm(between, axis=1, keepdims=True))
    return poses


def angles_deg(rotations: ArrayLike) -> Float64:
    """Angles (N,) of rotations (N, 3, 3)."""
    q = quaternions_from_rotations(rotations)
    return np.asarray(np.degrees(2 * np.arctan2(np.linalg.norm(q[:, :3], axis=1), q[:, 3])), np.float64)


def poses_from(translations: ArrayLike, quaternions: ArrayLike) -> Float64:
    """Poses (N, 4, 4) of translations (N, 3) and quaternions (N, 4) in the order x, y, z, w, which are normalised first.

    Raises BagError when a quaternion is not finite or has no length.
    """
    q = np.asarray(quaternions, np.float64)
    norm = np.linalg.norm(q, axis=1)
    if (bad := ~(np.isfinite(norm) & (norm > 1e-6))).any():
        row = int(np.argmax(bad))
        raise BagError(f'the quaternion of pose {row} is {q[row].tolist()}: it has no direction; correct it, or remove the pose')
    poses = np.tile(np.eye(4), (len(q), 1, 1))
    poses[:, :3, :3] = _rotations_from(q / norm[:, None])
    poses[:, :3, 3] = np.asarray(translations, np.float64)
    return poses


def parse_stamp(text: str) -> int:
    """Seconds in decimal notation to nanoseconds, exactly. Raises ValueError when that is no stamp ROS can hold."""
    try:
        ns = int((Decimal(text) * 10**9).to_integral_value())
    except (InvalidOperation, OverflowError, ValueError):
        raise ValueError(f'{text!r} is not a number of seconds') from None
    if not 0 <= ns <= MAX_STAMP_NS:
        raise ValueError(f'{text!r} is not a time in seconds between 0 and {MAX_STAMP_NS // 10**9}')
    return ns


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


def read_quaternions(path: Path, kind: str) -> Trajectory:
    """Read a file of poses with quaternions, in seconds or nanoseconds and metres; EuRoC's lines may have more values.

    tum: `t tx ty tz qx qy qz qw`, world from camera, of the TUM RGB-D benchmark. euroc: `t,px,py,pz,qw,qx,qy,qz,...`, world from
    body, of EuRoC's data.csv. Raises BagError that names the line.
    """
    fields = ['t', 'x', 'y', 'z', *(('qx', 'qy', 'qz', 'qw') if kind == 'tum' else ('qw', 'qx', 'qy', 'qz'))]
    separator, parse = (None, parse_stamp) if kind == 'tum' else (',', parse_nanoseconds)

    def row(line: str) -> tuple[int, list[float]]:
        words = line.split(separator)
        if len(words) < _TUM_VALUES or (kind == 'tum' and len(words) > _TUM_VALUES):
            raise ValueError(f'{len(words)} values where {_TUM_VALUES} belong ({" ".join(fields)})')
        return parse(words[0]), [_number(words[fields.index(field)]) for field in ('x', 'y', 'z', 'qx', 'qy', 'qz', 'qw')]

    rows = _rows(path, row)
    table = np.asarray([values for _, values in rows], np.float64).reshape(-1, 7)
    with naming(path):
        poses = poses_from(table[:, :3], table[:, 3:])
    return _trajectory(path, {'tum': 'TUM', 'euroc': 'EuRoC'}[kind], [stamp for stamp, _ in rows], poses)


def read_kitti(path: Path, stamps_ns: Sequence[int]) -> Trajectory:
    """Read lines of 12 numbers, the rows of a 3x4 matrix, world from camera, one line per stamp.

    Raises BagError that names the line, or both counts.
    """
    def row(line: str) -> list[float]:
        values = [_number(word) for word in line.split()]
        if len(values) != _KITTI_VALUES:
            raise ValueError(f'{len(values)} values where {_KITTI_VALUES} belong, a 3x4 matrix')
        r = np.asarray(values, np.float64).reshape(3, 4)[:, :3]
        if not np.abs(r @ r.T - np.eye(3)).max() < 1e-3 or np.linalg.det(r) < 0:
            raise ValueError('its left 3x3 is no rotation; the rows of [R t] are needed, world from camera')
        return values

    rows = _rows(path, row)
    if rows and len(rows) != len(stamps_ns):
        raise BagError(f'{path} has {len(rows)} poses for {len(stamps_ns)} stamps: KITTI poses are one per frame '
                       '(their stamps stand in a times.txt next to them, or are those of the recording)')
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
    try:
        ns = int(text)
    except ValueError:
        raise ValueError(f'{text!r} is not a number of nanoseconds') from None
    if not 0 <= ns <= MAX_STAMP_NS:
        raise ValueError(f'{text!r} is not a time in nanoseconds between 0 and {MAX_STAMP_NS}')
    return ns


def _number(text: str) -> float:
    """Raises ValueError."""
    try:
        return float(text)
    except ValueError:
        raise ValueError(f'{text.strip()!r} is no number') from None


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
    """Each line, read by `row`. Raises BagError that names the line."""
    rows = []
    for number, line in _lines(path):
        with naming(f'{path}, line {number}'):
            rows.append(row(line))
    return rows


@contextmanager
def naming(place: Path | str) -> Iterator[None]:
    """Errors in the block become a BagError that names the place."""
    try:
        yield
    except (ValueError, BagError) as error:
        raise BagError(f'{place}: {error}') from None


def _trajectory(path: Path, name: str, stamps_ns: Sequence[int], poses: Float64) -> Trajectory:
    if not len(poses):
        raise BagError(f'{path} holds no pose: one a line is needed')
    with naming(path):
        return Trajectory(np.asarray(stamps_ns, np.int64), poses, f'{path} ({name})')
