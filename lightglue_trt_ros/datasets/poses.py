"""Camera poses: trajectories with stamps, rotations and unit quaternions, and text files of TUM, KITTI and EuRoC."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.types import Float64
from ..utils.errors import BagError
from ..utils.files import text_of

MAX_STAMP_NS = (2**31 - 1) * 10**9  # builtin_interfaces/Time holds seconds in an int32
KINDS = ('tum', 'kitti', 'euroc')
OFF_UNIT = 0.05  # of a quaternion's length: where columns have no names, more shows that these are others
GRID = 2.0**-32  # of numbers in the poses that this package computes: a quarter of a nanometre
_KITTI_VALUES, _TUM_VALUES, _MATRIX_VALUES = 12, 8, 16
_FOUR_SEASONS_VALUES = 10, 11  # with commas
_USUAL_NAMES = {'tum': 'TUM', 'euroc': 'EuRoC'}
_LAST_ROW = [0, 0, 0, 1]  # of a 4x4 matrix
_LEAST_DIGITS = 9  # of a time without a point: fewer are numbers of frames
_LEAST_NS = 10**16  # a time of so many is in nanoseconds: as seconds it is beyond MAX_STAMP_NS
_HEADING = re.compile(r'\W*((t|secs?|id|index|frame\w*)\W|(?![0-9]).*(time|stamp))', re.IGNORECASE)  # a line of column names
_CALENDAR = re.compile(r'(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:\.(\d*))?(?: ?Z| ?([+-]\d\d):?(\d\d))?')
_SPLITS = re.compile('[,;|]'), re.compile(r'[\s,;|]+')  # a line of names, whatever stands between the values
_NAMES_ADVICE = 'keep one line above the values that names the columns, as timestamp x y z qx qy qz qw'
_COMMENT = re.compile(r'#|^\s*(?:%|//)')
_NS = r'n(s|secs?|anosecs?|anoseconds)'
_US, _MS = r'([uµμ]s(ecs?)?|micros(ecs?|econds))', r'(ms(ecs?)?|millis(ecs?|econds))'
_UNIT = rf'(_?(s|secs?|seconds|{_NS}|{_US}|{_MS}))?'  # of a time
_IN_BRACKETS = re.compile(rf'\s*[\[(]\s*(s|secs?|seconds|{_NS}|{_US}|{_MS}|mm|cm)\s*[\])]', re.IGNORECASE)
_UNITS = {1: 'nanoseconds', 10**3: 'microseconds', 10**6: 'milliseconds', 10**9: 'seconds'}  # by their nanoseconds
_POSITION = r'((.*\.)?(p|t|pos|position|tran|trans|translation)([_.].*)?[_.]?)?'  # names of columns, before x, y or z
_ROTATION = r'(.*\.)?(q|quat|quaternion|r|rot|rotation|o|orientation)([_.].*)?[_.]?'
_COLUMNS = (rf'(.*[._])?((time)?stamp|time){_UNIT}|t{_UNIT}', *(f'{_POSITION}{axis}(_mm|_cm)?' for axis in 'xyz'),
            *(_ROTATION + axis for axis in 'xyzw'))
_DIGITS = {13: 10**6, 16: 10**3}  # of a time since 1970 in milliseconds and microseconds: as seconds it is beyond MAX_STAMP_NS
_PER_METRE = {'_mm': 1000, '_cm': 100}  # by the end of a position's name
_ROSTOPIC = 'field.'  # before the names of `rostopic echo -p`, whose times are nanoseconds
_STAMPS = (r'((.*[._])?stamp[._])?secs?', r'((.*[._])?stamp[._])?n(ano)?secs?'), (r'(.*\.)?header[._]stamp',)  # of a message

_FORMS = (f'poses are {_TUM_VALUES} a line (TUM: t tx ty tz qx qy qz qw; with commas EuRoC: t,x,y,z,qw,qx,qy,qz), without times, '
          f'one for each image, {_TUM_VALUES - 1}, or matrices of {_KITTI_VALUES} or {_MATRIX_VALUES}, also after a time; else '
          f'{_NAMES_ADVICE}')

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
        parent = self.parent or 'a frame without a name'
        return f'{self.child} in {parent} ({len(self.stamps)} poses)' if self.child else f'{len(self.stamps)} poses in {parent}'

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


def parse_stamp(text: str, unit_ns: int = 10**9) -> int:
    """A time in units of `unit_ns`, seconds, in decimal notation to nanoseconds, exactly; one too large is in nanoseconds.

    Also one by the calendar, 2011-09-26 13:02:25.964389445, which is UTC unless it names its zone. Raises ValueError when that
    is no stamp ROS can hold.
    """
    try:
        value = Decimal(text) if (calendar := _CALENDAR.fullmatch(text)) is None else _nanoseconds_of(*calendar.groups())
        ns = int((value if value >= _LEAST_NS else value * unit_ns).to_integral_value())
    except (InvalidOperation, OverflowError, ValueError):
        raise ValueError(f'{text!r} is not a number of {_UNITS[unit_ns]}') from None
    if not 0 <= ns <= MAX_STAMP_NS:
        raise ValueError(f'{text!r} is not a time in {_UNITS[unit_ns]} between 0 and {MAX_STAMP_NS // unit_ns}, nor one in '
                         'nanoseconds')
    return ns


def _nanoseconds_of(time: str, fraction: str | None, hours: str | None, minutes: str | None) -> Decimal:
    """Since 1970, of a time by the calendar and its zone. Raises ValueError."""
    seconds = int(datetime.fromisoformat(f'{time}{hours or "+00"}:{minutes or "00"}').timestamp())
    return Decimal(seconds * 10**9 + int((fraction or '').ljust(9, '0')[:9]))


def kind_of(path: Path) -> str:
    """tum, kitti or euroc, by the first line that holds values. Raises BagError when it is none of them."""
    headings, lines = _read(path)
    if not lines:
        raise BagError(f'{path} holds no pose: {_FORMS}')
    number, line = lines[0]
    separator = _separator(lines)
    count = len(words := line.split(separator))
    with naming(path):
        named = _named_columns(headings, count)
    if named is None and not any(map(_is_number, words[:2])):
        raise BagError(f'{path}, line {number} begins with {line[:60]!r}: {_FORMS}')
    if named is None and _is_pose(words):
        return 'kitti'
    if separator or named is not None or count == _TUM_VALUES:
        return 'euroc' if separator else 'tum'
    if count not in (_KITTI_VALUES, _MATRIX_VALUES):
        raise BagError(f'{path}, line {number}: {count} values: {_FORMS}')
    return 'kitti'


def read_quaternions(path: Path, kind: str) -> Trajectory:
    """Read a file of poses with quaternions, in metres and seconds or nanoseconds; EuRoC's lines may have more values.

    tum: `t tx ty tz qx qy qz qw`, world from camera, of the TUM RGB-D benchmark. euroc: `t,px,py,pz,qw,qx,qy,qz,...`, world from
    body, of EuRoC's data.csv; lines of ten or eleven values are 4Seasons' GNSSPoses.txt, with qw last. Where a line above the
    values names the columns, it has the order, and the unit of time. Lines whose pose is NaN, empty or without a rotation, as
    trackers write them that see nothing, are left out if others have one. Raises BagError that names the line.
    """
    headings, lines = _read(path)
    separator = _separator(lines) or (',' if kind == 'euroc' else None)
    with naming(path):
        words = lines[0][1].split(separator) if lines else []
        named = _named_columns(headings, len(words)) or _echoed_columns(words)
    form = '4Seasons' if named is None and kind == 'euroc' and len(words) in _FOUR_SEASONS_VALUES else _USUAL_NAMES[kind]
    usual, order = {'TUM': (_Columns([0], [1, 2, 3, 4, 5, 6, 7]), 't x y z qx qy qz qw'),
                    '4Seasons': (_Columns([0], [1, 2, 3, 4, 5, 6, 7], 1), 't,x,y,z,qx,qy,qz,qw,…, and t in nanoseconds'),
                    'EuRoC': (_Columns([0], [1, 2, 3, 5, 6, 7, 4], 1), 't,x,y,z,qw,qx,qy,qz, and t in nanoseconds')}[form]
    order = f'{order}, where no line above names the columns: {_NAMES_ADVICE}' if named is None else \
        'by the line that names the columns' if headings else 'as `ros2 topic echo --csv` writes them'
    columns = named or usual
    frames = [words[column].strip() for column in columns.frames]
    count = max(*columns.stamp, *columns.pose) + 1

    def row(line: str) -> tuple[int, list[float]]:
        words = [word.strip() for word in line.split(separator)]
        if len(words) < count or (named is None and kind == 'tum' and len(words) > _TUM_VALUES):
            raise ValueError(f'{len(words)} values where {count} belong ({order})')
        if [words[column] for column in columns.frames] != frames:
            raise ValueError(f'poses of more frames than {" and ".join(frames)}: record a bag of the topic, or keep these')
        try:
            stamp, values = columns.stamp_of(words), [_number(words[column]) for column in columns.pose]
            if named is None and (length := math.hypot(*values[3:])) and abs(length - 1) > OFF_UNIT:
                raise ValueError(f'the quaternion {values[3:]} has length {length:.2f}, not 1')
        except ValueError as error:
            raise ValueError(f'{error} ({order})') from None
        return stamp, values

    rows = _rows(path, row)
    stamps, table = [stamp for stamp, _ in rows], np.asarray([values for _, values in rows], np.float64).reshape(-1, 7)
    name = form if columns == usual else \
        'by the names of its columns' if headings else f'of {" in ".join(frames[::-1])}, echoed'
    if named is None and form == 'EuRoC':
        name += ': no line names the columns, qw is taken as the first of the quaternion'
    table[:, :3] /= columns.per_metre
    known = np.isfinite(table).all(axis=1) & table[:, 3:].any(axis=1)
    if known.any() and not known.all():
        stamps, table = [stamps[number] for number in np.flatnonzero(known)], table[known]
        name += f'; lines without a pose, left out: {(~known).sum()}'
    with naming(path):
        poses = poses_from(table[:, :3], table[:, 3:])
    return _trajectory(path, name, stamps, poses)


def _separator(lines: Sequence[tuple[int, str]]) -> str | None:
    """Of the values in the first line; None for spaces."""
    return next((each for each in ';,' if lines and each in lines[0][1]), None)


class _Columns(NamedTuple):
    """Where a line of a file has what."""

    stamp: list[int]  # one column, or seconds and nanoseconds
    pose: list[int]  # x, y, z, qx, qy, qz, qw
    unit_ns: int = 10**9  # of the one column of the stamp; 0: by its digits
    per_metre: int = 1  # units of the position
    frames: Sequence[int] = ()  # columns that name the frames of a pose

    def stamp_of(self, words: Sequence[str]) -> int:
        """In nanoseconds. Raises ValueError."""
        first, *rest = (words[column] for column in self.stamp)
        unit_ns = self.unit_ns or _DIGITS.get(len(first.partition('.')[0]), 10**9)
        return (parse_nanoseconds(first) if unit_ns == 1 else parse_stamp(first, unit_ns)) \
            + sum(map(parse_nanoseconds, rest))


def _echoed_columns(words: Sequence[str]) -> _Columns | None:
    """Of a message in a line: seconds, nanoseconds, its frame, perhaps a child frame, x, y, z, qx, qy, qz, qw; None of others."""
    first = next((at for at, word in enumerate(words) if at > 1 and _is_number(word)), 0)
    if first not in (3, 4) or not all(word.isdigit() for word in words[:2]) or len(words) < first + 7:
        return None
    return _Columns([0, 1], list(range(first, first + 7)), frames=range(2, first))


def _named_columns(headings: Sequence[str], count: int) -> _Columns | None:
    """The columns by the last of `headings` that names a time and all of a pose.

    The header.stamp of the same message comes before other times: the first column of its file mostly is the time of reception.
    Raises ValueError where a line names `count` columns, as many as there are values, and not all of these.
    """
    for heading in reversed(headings):
        text = re.sub(r'\[.*?\]|\(.*?\)', '', _IN_BRACKETS.sub(r'_\1', heading)).strip()
        for split in _SPLITS:
            words = split.split(text)
            names = [name.strip(' %"\'').lower().replace('/', '.').replace(' ', '_') for name in words]
            if pose := _found(names, _COLUMNS[1:]):
                break
        stamps = [_found(names, forms) for forms in _STAMPS]
        own = [each for each in stamps if pose and each and names[pose[0]].startswith(names[each[0]].rpartition('header')[0])]
        if pose and (stamp := [*own, _found(names, _COLUMNS[:1])][0]):
            forms = () if own else ((_NS, 1), (_US, 10**3), (_MS, 10**6))
            units = [unit for form, unit in forms if re.search(f'{form}$', names[stamp[0]])]
            units += [1] * any(name.startswith(_ROSTOPIC) for name in names)
            frames = [at for at, name in enumerate(names) if re.fullmatch(r'.*header[._]frame_id|(.*[._])?child_frame_id', name)]
            return _Columns(stamp, pose, [*units, 0][0], _PER_METRE.get(names[pose[0]][-3:], 1), frames)
        if (not pose and _found(names, _COLUMNS[4:])) or (len(words) == count > 1 and (pose or _HEADING.match(heading))):
            raise ValueError(f'its columns are {heading[:200].strip()}: a time (timestamp in seconds, or timestamp_ms, _us or '
                             '_ns), a position (x, y, z) and a quaternion (qx, qy, qz, qw) are needed, rename or add them')
    return None


def _found(names: Sequence[str], forms: Sequence[str]) -> list[int]:
    """The first column of each form; none unless each has one."""
    columns = [at for form in forms for at in [at for at, name in enumerate(names) if re.fullmatch(form, name)][:1]]
    return columns if len(columns) == len(forms) else []


def read_kitti(path: Path, stamps_ns: Sequence[int], numbered: Mapping[int, int] | None = None) -> Trajectory:
    """Read lines of 12 numbers, the rows of a 3x4 matrix, world from camera, or of 16, those of a 4x4 one; one line per stamp.

    The 16 may be in four lines, as in Open3D's trajectory.log, or columns, as ARKit, Unity and OpenGL have them. Of 7 numbers the
    first are the position, the others the quaternion x, y, z, w. A time in seconds or nanoseconds may stand before a matrix, and
    counts instead of `stamps_ns`; or the number of an image, as in KITTI-360, whose stamp is in `numbered`: other matrices are left
    out then. Raises BagError that names the line, or both counts.
    """
    own, numbers = list[int](), list[int]()

    def row(line: str) -> list[float]:
        words = line.split(_separator([(0, line)]))
        if len(words) in (_KITTI_VALUES + 1, _MATRIX_VALUES + 1):
            if (time := words.pop(0).strip()).isdigit() and len(time) < _LEAST_DIGITS:
                numbers.append(int(time))
            own.append(parse_stamp(time))
        return _rigid([_number(word) for word in words], columns)

    lines = _read(path)[1]
    columns = any(_is_by_columns(line) for _, line in lines)
    rows = _rows(path, row)
    if numbers and (len(numbers) < len(own) or not any(number in (numbered or {}) for number in numbers)):
        raise BagError(f'{path}: {numbers[0]} before the matrix is the number of a frame and no time, and no image has it in its '
                       'name: write its stamp in seconds')
    stamps_ns = own or stamps_ns
    if rows and len(rows) != len(stamps_ns):
        raise BagError(f'{path} has {len(rows)} poses for {len(stamps_ns)} stamps: KITTI poses are one per frame '
                       '(their stamps stand in a times.txt next to them, or are those of the recording)')
    poses = np.tile(np.eye(4), (len(rows), 1, 1))
    poses[:, :3] = np.asarray(rows, np.float64).reshape(-1, 3, 4)
    if numbered and numbers:
        known = [row for row, number in enumerate(numbers) if number in numbered]
        poses, stamps_ns = poses[known], [numbered[numbers[row]] for row in known]
    short = bool(lines) and len(lines[0][1].split(_separator(lines))) == _TUM_VALUES - 1
    name = 'a line per image: tx ty tz qx qy qz qw' if short else 'KITTI, matrices column by column' if columns else 'KITTI'
    return _trajectory(path, f'{name}, by numbers of images' if numbers else name, stamps_ns, poses)


def _rigid(values: list[float], columns: bool) -> list[float]:
    """The 12 numbers of a 3x4 matrix, of the rows or `columns` of a matrix, or of position and quaternion. Raises ValueError."""
    if len(values) == _TUM_VALUES - 1:
        if abs(math.hypot(*values[3:]) - 1) > OFF_UNIT:
            raise ValueError(f'the quaternion {values[3:]} has length {math.hypot(*values[3:]):.2f}, not 1 (tx ty tz qx qy qz qw)')
        return [float(value) for value in poses_from([values[:3]], [values[3:]])[0, :3].ravel()]
    if columns and len(values) == _MATRIX_VALUES:
        values = [values[row + 4 * column] for row in range(4) for column in range(4)]
    if values[_KITTI_VALUES:] == _LAST_ROW:
        values = values[:_KITTI_VALUES]
    if len(values) != _KITTI_VALUES:
        raise ValueError(f'{len(values)} values where {_KITTI_VALUES} belong, a 3x4 matrix')
    if not is_rotation(values):
        raise ValueError('its left 3x3 is no rotation; the rows of [R t] are needed, world from camera')
    return values


def _is_by_columns(line: str) -> bool:
    """Whether a line has the 16 numbers of a 4x4 matrix column by column, and cannot have them row by row."""
    with suppress(ValueError):
        values = [float(word) for word in line.split(_separator([(0, line)]))][-_MATRIX_VALUES:]
        return len(values) == _MATRIX_VALUES and values[3::4] == _LAST_ROW != values[_KITTI_VALUES:]
    return False


def _is_pose(words: Sequence[str]) -> bool:
    """Whether these are 12 or 16 numbers of a pose, perhaps after a time, or the 7 of one."""
    try:
        values = [float(word) for word in words[(len(words) - 1) % 4 == 0:]]
    except ValueError:
        return False
    if len(values) == _TUM_VALUES - 1:
        return abs(math.hypot(*values[3:]) - 1) <= OFF_UNIT
    return (len(values) == _KITTI_VALUES and is_rotation(values)) or _LAST_ROW in (values[_KITTI_VALUES:], values[3::4])


def is_rotation(values: ArrayLike) -> bool:
    """Whether the left 3x3 of a matrix (3, 4), or of its 12 numbers row by row, is one."""
    r = np.asarray(values, np.float64).reshape(3, 4)[:, :3]
    return bool(np.abs(r @ r.T - np.eye(3)).max() < 1e-3 and np.linalg.det(r) > 0)


def read_stamps(path: Path) -> list[int]:
    """Read one stamp in seconds per line, as nanoseconds. Raises BagError that names the line."""
    def row(line: str) -> int:
        try:
            return parse_stamp(line)
        except ValueError:
            if len(line.replace(',', ' ').split()) < 2:
                raise
        raise ValueError(f'{line[:80]!r} is more than a number of seconds: leave one in each line, the stamp of an image')

    return _rows(path, row)


def named_values(path: Path) -> dict[str, str]:
    """The second words of lines by their first ones. Raises BagError where the file cannot be read."""
    words = [line.replace(',', ' ').split() for _, line in _read(path)[1]]
    return {row[0]: row[1] for row in words if len(row) > 1}


def read_list(path: Path, parse: Callable[[str], int], separator: str | None = None, *,
              depth: bool = False) -> list[tuple[int, str]]:
    """Read lines `stamp name`, the lists of images of TUM and EuRoC, as (nanoseconds, name); `parse` reads a stamp.

    The number of the image may stand before both. Of lines `stamp name stamp name`, associations of images and depth images, the
    ones with the word depth are read if `depth`, else the others. Raises BagError that names the line.
    """
    def row(line: str) -> tuple[int, str]:
        words = [word.strip() for word in line.split(separator)]
        if len(words) == 3 and words[0].isdigit() and len(words[0]) < _LEAST_DIGITS and _is_number(words[1]):
            words = words[1:]
        if len(words) == 4 and _is_number(words[2]):
            depth_first = 'depth' in words[1].lower() and 'depth' not in words[3].lower()
            words = words[:2] if depth_first == depth else words[2:]
        if len(words) < 2:
            raise ValueError(f'{line!r} is no stamp and file name')
        return parse(words[0]), words[1]

    return _rows(path, row)


def begins_list(path: Path) -> bool:
    """Whether the first line of a text has a stamp and the name of a file, perhaps after a number, or two of each."""
    with suppress(BagError):
        lines = _read(path)[1]
        words = ['.' in word and not _is_number(word) for word in lines[0][1].split()] if lines else []
        return words in ([False, True], [False, False, True], [False, True, False, True])
    return False


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
        return float(text or 'nan')  # a column without a value
    except ValueError:
        raise ValueError(f'{text.strip()!r} is no number') from None


def _read(path: Path) -> tuple[list[str], list[tuple[int, str]]]:
    """Comments and column names above the values, and the numbered lines without comments and blanks."""
    try:
        text = text_of(path).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BagError(f'cannot read {path}: {error}') from None
    lines = [(number, values) for number, line in enumerate(text, 1) if (values := _COMMENT.split(line)[0].strip()).strip(',;|')]
    while lines and (_HEADING.match(lines[0][1]) or _is_heading(lines[0][1])):
        lines = lines[1:]
    return [line.lstrip('#%/ ') for line in text[:lines[0][0] - 1 if lines else 0]], _joined_matrices(lines)


def _joined_matrices(lines: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Each 4x4 matrix in one line where all have four, perhaps after one of three numbers (Open3D's and Redwood's .log)."""
    words = [_SPLITS[1].split(line) for _, line in lines]
    rows = [number for number, each in enumerate(words) if not (len(each) == 3 and all(map(str.isdigit, each)))]
    if any(len(words[row]) != 4 for row in rows) or len(rows) % 4 or not rows:
        return lines
    blocks = [rows[at:at + 4] for at in range(0, len(rows), 4)]
    with suppress(ValueError):
        if all([float(word) for word in words[block[3]]] == _LAST_ROW for block in blocks):
            return [(lines[block[0]][0], ' '.join(word for row in block for word in words[row])) for block in blocks]
    return lines


def _is_heading(line: str) -> bool:
    """Whether a line has three words or more, and the first are no numbers: markers of trackers may be called 1, 2, 3."""
    words = _SPLITS[1].split(line)
    return len(words) > 2 and not any(map(_is_number, words[:3]))


def _is_number(word: str) -> bool:
    with suppress(ValueError):
        return float(word) is not None
    return _CALENDAR.fullmatch(word.strip()) is not None


def _rows(path: Path, row: Callable[[str], T]) -> list[T]:
    """Each line, read by `row`. Raises BagError that names the line."""
    rows = []
    for number, line in _read(path)[1]:
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
