"""Text files of poses: those of TUM, KITTI and EuRoC, matrices, and columns by their names."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from ..core.types import Float64
from ..utils.errors import BagError, first_of, naming
from .poses import Trajectory, is_rotation, poses_from
from .stamps import HEADING, LEAST_DIGITS, MS, NS, SPLITS, US, is_number, parse_nanoseconds, parse_stamp, read_lines, rows_of

KINDS = ('tum', 'kitti', 'euroc')
OFF_UNIT = 0.05  # of a quaternion's length: where columns have no names, more shows that these are others
FEW = 10  # poses that may have one rotation
_KITTI_VALUES, _TUM_VALUES, _MATRIX_VALUES = 12, 8, 16
_FOUR_SEASONS_VALUES = 10, 11  # with commas
_USUAL_NAMES = {'tum': 'TUM', 'euroc': 'EuRoC'}
_LAST_ROW = [0, 0, 0, 1]  # of a 4x4 matrix
_NAMES_ADVICE = 'keep one line above the values that names the columns, as timestamp x y z qx qy qz qw'
_UNIT = rf'(_?(s|secs?|seconds|{NS}|{US}|{MS}))?'  # of a time
_IN_BRACKETS = re.compile(rf'\s*[\[(]\s*(s|secs?|seconds|{NS}|{US}|{MS}|mm|cm)\s*[\])]', re.IGNORECASE)
_POSITION = r'(?:(?:.*\.)?(?:pose_|transform_)*(?:p|t|pos(?:ition)?|loc(?:ation)?|tran(?:s|slation)?)(?:[_.].*)?[_.]?)?'  # before x
_ROTATION = r'(?:.*\.)?(?:pose_|transform_)*(?:q|quat|quaternion|r|rot|rotation|o|orientation)(?:[_.].*)?[_.]?'
_AFTER = '(_mm|_cm|_m)?(_world_device|_odometry_device)?'  # an axis; the last two are Project Aria's
_TIME = rf'(.*[._])?((time)?stamp|time){_UNIT}|t{_UNIT}'
_DIGITS = {13: 10**6, 16: 10**3}  # of a time since 1970 in milliseconds and microseconds: as seconds it is beyond MAX_STAMP_NS
_PER_METRE = {'_mm': 1000, '_cm': 100}  # by the end of a position's name
_ROSTOPIC = 'field.'  # before the names of `rostopic echo -p`, whose times are nanoseconds
_FRAMES = r'.*header[._]frame_id|(.*[._])?child_frame_id|(device|camera|cam|sensor|object|body)_(id|name)|subject|segment'
_SECONDS = re.compile(r'((?:(?:.*[._])?(?:t|time|(?:time)?stamp|tv)[._]?)?)(?:s|secs?|seconds)')  # of a time in two columns
_UNITS = (NS, 1), (US, 10**3), (MS, 10**6)
_OF_MESSAGE = r'(.*\.)?header[._]stamp'

_TARTANAIR = re.compile(r'pose_(left|right|[lr]cam_(front|back|left|right|top|bottom))\.txt')  # names of its files
_NED = np.array([[0.0, 0, 1, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1]])  # axes forward, right and down from the optical frame
_ANGLES = re.compile(r'(^|\W)(heading|yaw|omega)\W+(pitch|phi)\W+(roll|kappa)(\W|$)', re.IGNORECASE)

_FORMS = (f'poses are {_TUM_VALUES} a line (TUM: t tx ty tz qx qy qz qw; with commas EuRoC: t,x,y,z,qw,qx,qy,qz), without times, '
          f'one for each image, {_TUM_VALUES - 1}, or matrices of {_KITTI_VALUES} or {_MATRIX_VALUES}, also after a time; else '
          f'{_NAMES_ADVICE}')
_OF_JSON = '; JSON is read of the tools in docs/evaluation.md'


def kind_of(path: Path) -> str:
    """tum, kitti or euroc, by the first line that holds values. Raises BagError when it is none of them."""
    headings, lines = _read(path)
    number, line = lines[0] if lines else (0, '')
    separator = _separator(line)
    count = len(words := line.split(separator))
    if angles := _angles_in(headings, count):
        raise BagError(f'{path} has rotations as angles, {angles}, whose order and axes differ between tools: '
                       'export quaternions or matrices, RealityCapture and Metashape as COLMAP or XML')
    forms = _FORMS + _OF_JSON * [*headings, line][0].startswith(('{', '['))
    if not lines:
        raise BagError(f'{path} holds no pose: {forms}')
    with naming(path):
        named = _named_columns(headings, count)
    if named is None and not any(map(is_number, words[:2])):
        echo = 'ros2 topic echo --csv writes lines that are read; ' * line.startswith('header:')
        raise BagError(f'{path}, line {number} begins with {line[:60]!r}: {echo}{forms}')
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
    first = lines[0][1] if lines else ''
    separator = _separator(first) or (',' if kind == 'euroc' else None)
    words = first.split(separator) if lines else []
    with naming(path):
        named = _named_columns(headings, len(words)) or _echoed_columns(words)
    is_four_seasons = len(words) in _FOUR_SEASONS_VALUES and words[9].strip().isdigit()  # its quality; VINS has velocities there
    form = '4Seasons' if named is None and kind == 'euroc' and is_four_seasons else _USUAL_NAMES[kind]
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

    rows = rows_of(path, lines, row)
    stamps, table = [stamp for stamp, _ in rows], np.asarray([values for _, values in rows], np.float64).reshape(-1, 7)
    name = form if columns == usual else \
        'by the names of its columns' if headings else f'of {" in ".join(frames[::-1])}, echoed'
    if named is None and form == 'EuRoC':
        name += ': no line names the columns, qw is taken as the first of the quaternion'
    name += ', camera from world' * columns.from_world
    table[:, :3] /= columns.per_metre
    known, doubt = _known(path, table)
    with naming(path):
        poses = poses_from(table[known, :3], table[known, 3:])
        poses = np.asarray(np.linalg.inv(poses), np.float64) if columns.from_world else poses
    return trajectory_of(path, name + doubt, [stamps[number] for number in np.flatnonzero(known)], poses)


def _known(path: Path, table: Float64) -> tuple[NDArray[np.bool_], str]:
    """Lines (N,) to take of positions and quaternions (N, 7), all where none has a pose; and what to say of them.

    Raises BagError where all quaternions are 0.
    """
    known, doubt = np.asarray(np.isfinite(table).all(axis=1) & table[:, 3:].any(axis=1), np.bool_), ''
    if len(table) > 1 and np.isfinite(table).all() and not table[:, 3:].any():
        raise BagError(f'{path}: the quaternions of all {len(table)} poses are 0: it has only positions, as of a prism or GPS, '
                       'and the figures need rotations; name a file that has both (--truth)')
    if not known.any():
        known[:] = True
    elif not known.all():
        doubt = f'; lines without a pose, left out: {(~known).sum()}'
    taken = table[known]
    if len(taken) > FEW and (taken[:, 3:] == taken[0, 3:]).all() and not (taken[:, :3] == taken[0, :3]).all():
        doubt += '; all quaternions are equal, as in a file of only positions'
    return known, doubt


def _separator(line: str) -> str | None:
    """What stands between the values; None for spaces."""
    return next((each for each in ';,' if each in line), None)


class _Columns(NamedTuple):
    """Where a line of a file has what."""

    stamp: list[int]  # one column, or seconds and a part of one
    pose: list[int]  # x, y, z, qx, qy, qz, qw
    unit_ns: int = 10**9  # of the one column of the stamp; 0: by its digits
    per_metre: int = 1  # units of the position
    frames: Sequence[int] = ()  # columns that name the frames of a pose
    from_world: bool = False  # whether its poses are camera from world
    part_ns: int = 1  # of the second column of the stamp

    def stamp_of(self, words: Sequence[str]) -> int:
        """In nanoseconds. Of two columns each may have the whole time: seconds with a fraction, or more than a second of parts.

        Raises ValueError.
        """
        first, *rest = (words[column] for column in self.stamp)
        unit_ns = self.unit_ns or _DIGITS.get(len(first.partition('.')[0]), 10**9)
        try:
            whole = parse_nanoseconds(first) if unit_ns == 1 else parse_stamp(first, unit_ns)
            parts = sum(parse_stamp(each, self.part_ns) for each in rest)
            return whole if whole % 10**9 else parts if parts >= 10**9 else whole + parts
        except ValueError as error:
            advice = '' if self.unit_ns or rest or not is_number(first) else ': name its unit, as timestamp_ns or timestamp_us'
            raise ValueError(f'{error}{advice}') from None


def _echoed_columns(words: Sequence[str]) -> _Columns | None:
    """Of a message in a line: seconds, nanoseconds, its frame, perhaps a child frame, x, y, z, qx, qy, qz, qw; None of others."""
    first = next((at for at, word in enumerate(words) if at > 1 and is_number(word)), 0)
    if first not in (3, 4) or not all(word.isdigit() for word in words[:2]) or len(words) < first + 7:
        return None
    return _Columns([0, 1], list(range(first, first + 7)), frames=range(2, first))


def _named_columns(headings: Sequence[str], count: int) -> _Columns | None:
    """The columns by the last of `headings` that names a time and all of a pose.

    The header.stamp of the same message comes before other times: the first column of its file mostly is the time of reception.
    Raises ValueError where a line names several poses, or `count` columns, as many as there are values, and not all of these.
    """
    is_kapture = any(heading.startswith('kapture format') for heading in headings)
    for heading in reversed(headings):
        for split in SPLITS:
            names = _names_in(heading, split)
            if pose := _pose_in(names):
                break
        split_stamp, part_ns = _split_stamp(names)
        stamps = split_stamp, _found(names, (_OF_MESSAGE,))
        own = [each for each in stamps if pose and each and names[pose[0]].startswith(names[each[0]].rpartition('header')[0])]
        if pose and (stamp := [*own, _found(names, (_TIME,))][0]):
            units = [] if own else [unit for form, unit in _UNITS if re.search(f'{form}$', names[stamp[0]])]
            units += [1] * (len(stamp) < 2 and any(name.startswith(_ROSTOPIC) for name in names))
            frames = [at for at, name in enumerate(names) if re.fullmatch(_FRAMES, name)]
            return _Columns(stamp, pose, [*units, 0][0], _PER_METRE.get(names[pose[0]][-3:], 1), frames, is_kapture,
                            part_ns)
        if (not pose and _sets_in(names, _ROTATION, 'xyzw')) or (len(names) == count > 1 and (pose or HEADING.match(heading))):
            raise ValueError(f'its columns are {heading[:200].strip()}: a time (timestamp in seconds, or timestamp_ms, _us or '
                             '_ns), a position (x, y, z) and a quaternion (qx, qy, qz, qw) are needed, rename or add them')
    return None


def _pose_in(names: Sequence[str]) -> list[int]:
    """The columns of x, y, z, qx, qy, qz, qw, those of one topic; none where a part is absent.

    Raises ValueError where several topics have a pose.
    """
    positions, rotations = _sets_in(names, _POSITION, 'xyz'), _sets_in(names, _ROTATION, 'xyzw')
    if len(positions) == len(rotations) == 1:  # whatever stands before them
        rotations = dict(zip(positions, rotations.values(), strict=True))
    poses = {topic: positions[topic] + rotations[topic] for topic in positions if topic in rotations}
    if len(poses) > 1:
        raise ValueError(f'it has the poses of {first_of(sorted(poses), 4)}: keep the columns of one')
    return next(iter(poses.values()), [])


def _sets_in(names: Sequence[str], form: str, axes: str) -> dict[str, list[int]]:
    """The columns of all axes whose names differ by the axis alone, the first of each topic, as odom in odom.pos.x."""
    found: dict[tuple[str, ...], dict[str, int]] = {}
    for at, name in enumerate(names):
        if match := re.fullmatch(f'({form})([{axes}]){_AFTER}', name):
            found.setdefault((match[1], *match.groups('')[2:]), {}).setdefault(match[2], at)
    sets = [(head.rstrip('._').rpartition('.')[0], columns) for (head, *_), columns in found.items() if len(columns) == len(axes)]
    return {topic: [columns[axis] for axis in axes] for topic, columns in reversed(sets)}


def _split_stamp(names: Sequence[str]) -> tuple[list[int], int]:
    """The columns of seconds and of a part of one, as timestamp_sec and timestamp_nsec, and the part's unit in ns; or none."""
    seconds = {match[1]: at for at, name in enumerate(names) if name != 's' and (match := _SECONDS.fullmatch(name))}
    found = (([seconds[match[1]], at], unit_ns) for at, name in enumerate(names) for unit, unit_ns in _UNITS
             if (match := re.fullmatch(f'(.*?){unit}', name)) and match[1] in seconds)
    return next(found, ([], 1))


def _names_in(heading: str, split: re.Pattern[str]) -> list[str]:
    text = re.sub(r'\[.*?\]|\(.*?\)', '', _IN_BRACKETS.sub(r'_\1', heading)).strip()
    return [name.strip(' %"\'').lower().replace('/', '.').replace(' ', '_') for name in split.split(text)]


def _angles_in(headings: Sequence[str], count: int) -> str:
    """The angles in a line that names `count` columns, any number for 0; empty where a line names a quaternion."""
    lines = [(heading, _names_in(heading, split)) for heading in headings for split in SPLITS]
    if any(_sets_in(names, _ROTATION, 'xyzw') for _, names in lines):
        return ''
    found = (_ANGLES.search(heading) for heading, names in lines if count in (0, len(names)))
    return next((angles[0].strip(' ,#;') for angles in found if angles), '')


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
        words = line.split(_separator(line))
        if len(words) in (_KITTI_VALUES + 1, _MATRIX_VALUES + 1):
            if (time := words.pop(0).strip()).isdigit() and len(time) < LEAST_DIGITS:
                numbers.append(int(time))
            own.append(parse_stamp(time))
        return _rigid([_number(word) for word in words], columns)

    lines = _read(path)[1]
    columns = any(_is_by_columns(line) for _, line in lines)
    rows = rows_of(path, lines, row)
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
    short = bool(lines) and len(lines[0][1].split(_separator(lines[0][1]))) == _TUM_VALUES - 1
    name = 'a line per image: tx ty tz qx qy qz qw' if short else 'KITTI, matrices column by column' if columns else 'KITTI'
    return trajectory_of(path, f'{name}, by numbers of images' if numbers else name, stamps_ns, poses)


def read_arkitscenes(path: Path) -> Trajectory | None:
    """ARKitScenes' lowres_wide.traj, lines of a time in seconds, a rotation vector and a translation, camera from world.

    None for lines of more values, and of a position and a quaternion. Raises BagError that names the line.
    """
    lines = _read(path)[1]
    words_of = [line.split(_separator(line)) for _, line in lines]
    if any(len(words) >= _TUM_VALUES for words in words_of[:1]) or all(map(_is_pose, words_of)):
        return None

    def row(line: str) -> tuple[int, list[float]]:
        words = line.split(_separator(line))
        if len(words) != _TUM_VALUES - 1:
            raise ValueError(f'{len(words)} values where 7 belong, as in a .traj of ARKitScenes: t rx ry rz tx ty tz')
        return parse_stamp(words[0]), [_number(word) for word in words[1:]]

    rows = rows_of(path, lines, row)
    poses = np.tile(np.eye(4), (len(rows), 1, 1))
    for pose, (_, values) in zip(poses, rows, strict=True):
        pose[:3, :3], pose[:3, 3] = cv2.Rodrigues(np.array(values[:3]))[0], values[3:]
    inverse = np.asarray(np.linalg.inv(poses), np.float64)
    return trajectory_of(path, 'ARKitScenes, camera from world', [stamp for stamp, _ in rows], inverse)


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


def axes_by_name(path: Path) -> Float64 | None:
    """(4, 4) body from camera of a file that is TartanAir's by its name and its 7 numbers a line; None of others."""
    lines = _read(path)[1] if _TARTANAIR.fullmatch(path.name) else []
    return _NED if lines and len(lines[0][1].split(_separator(lines[0][1]))) == _TUM_VALUES - 1 else None


def _is_by_columns(line: str) -> bool:
    """Whether a line has the 16 numbers of a 4x4 matrix column by column, and cannot have them row by row."""
    with suppress(ValueError):
        values = [float(word) for word in line.split(_separator(line))][-_MATRIX_VALUES:]
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


def _number(text: str) -> float:
    """Raises ValueError."""
    try:
        return float(text or 'nan')  # a column without a value
    except ValueError:
        raise ValueError(f'{text.strip()!r} is no number') from None


def _read(path: Path) -> tuple[list[str], list[tuple[int, str]]]:
    """As `read_lines`, with each matrix in one line where all have four lines, or three, as of ICL-NUIM and SUN3D.

    A line of three numbers may stand before each of them (Open3D's and Redwood's .log).
    """
    headings, lines = read_lines(path)
    words = [SPLITS[1].split(line) for _, line in lines]
    rows = [number for number, each in enumerate(words) if not (len(each) == 3 and all(map(str.isdigit, each)))]
    if not rows or any(len(words[row]) != 4 for row in rows):
        return headings, lines
    for height in (4, 3):
        blocks = [rows[at:at + height] for at in range(0, len(rows), height)]
        matrices = [[word for row in block for word in words[row]] for block in blocks]
        with suppress(ValueError):
            if all(_is_matrix(list(map(float, matrix))) for matrix in matrices):
                return headings, [(lines[block[0]][0], ' '.join(matrix)) for block, matrix in zip(blocks, matrices, strict=True)]
    return headings, lines


def _is_matrix(values: list[float]) -> bool:
    """Whether these are a 4x4 matrix by its last row, or a 3x4 one by its rotation."""
    return values[_KITTI_VALUES:] == _LAST_ROW or (len(values) == _KITTI_VALUES and is_rotation(values))


def trajectory_of(path: Path, name: str, stamps_ns: Sequence[int], poses: Float64) -> Trajectory:
    if not len(poses):
        raise BagError(f'{path} holds no pose: one a line is needed')
    with naming(path):
        return Trajectory(np.asarray(stamps_ns, np.int64), poses, f'{path} ({name})')
