"""Text files of poses: those of TUM, KITTI and EuRoC, matrices, and columns by their names (`pose_columns`)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from ..core.types import Float64
from ..utils.errors import BagError, naming
from .pose_columns import Columns, angles_in, check_order, echoed_columns, named_columns
from .poses import Trajectory, are_positions, is_rotation, poses_from
from .stamps import LEAST_DIGITS, SPLITS, is_number, of_parts, parse_stamp, read_lines, rows_of

KINDS = ('tum', 'kitti', 'euroc')
OFF_UNIT = 0.05  # of a quaternion's length: where columns have no names, more shows that these are others
_KITTI_VALUES, _TUM_VALUES, _MATRIX_VALUES = 12, 8, 16
_FOUR_SEASONS_VALUES = 10, 11  # with commas
_POSITION_VALUES = 4  # with a time, as of Hilti's challenges
_USUAL_NAMES = {'tum': 'TUM', 'euroc': 'EuRoC'}
_LAST_ROW = [0, 0, 0, 1]  # of a 4x4 matrix
_ORDERS = 'w, x, y, z', 'x, y, z, w'  # of quaternions
_NAMES_ADVICE = 'keep one line above the values that names the columns, as timestamp x y z qx qy qz qw'

_TARTANAIR = re.compile(r'pose_(left|right|[lr]cam_(front|back|left|right|top|bottom))\.txt')  # names of its files
_NED = np.array([[0.0, 0, 1, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1]])  # axes forward, right and down from the optical frame

_FORMS = (f'poses are {_TUM_VALUES} a line (TUM: t tx ty tz qx qy qz qw; with commas EuRoC: t,x,y,z,qw,qx,qy,qz), without times, '
          f'one for each image, {_TUM_VALUES - 1}, or matrices of {_KITTI_VALUES} or {_MATRIX_VALUES}, also after a time; else '
          f'{_NAMES_ADVICE}')
_POSITIONS = 'it has only positions, as of a prism or GPS, and the figures need rotations; name a file that has both (--truth)'
_OF_JSON = '; JSON is read of the tools in docs/evaluation.md'


def kind_of(path: Path) -> str:
    """tum, kitti or euroc, by the first line that holds values. Raises BagError when it is none of them."""
    headings, lines = _read(path)
    number, line = lines[0] if lines else (0, '')
    separator = _separator(line)
    count = len(words := line.split(separator))
    if angles := angles_in(headings, count):
        raise BagError(f'{path} has rotations as angles, {angles}, whose order and axes differ between tools: '
                       'export quaternions or matrices, RealityCapture and Metashape as COLMAP or XML')
    forms = _FORMS + _OF_JSON * [*headings, line][0].startswith(('{', '['))
    if not lines:
        raise BagError(f'{path} holds no pose: {forms}')
    with naming(path):
        named = named_columns(headings, words)
    if named is None and not any(map(is_number, words[:2])):
        echo = 'ros2 topic echo --csv writes lines that are read; ' * line.startswith('header:')
        raise BagError(f'{path}, line {number} begins with {line[:60]!r}: {echo}{forms}')
    if named is None and _is_pose(words):
        with naming(path):
            check_order(headings if count == _TUM_VALUES - 1 else [], 'x, y, z, w')
        return 'kitti'
    if separator or named is not None or count == _TUM_VALUES:
        return 'euroc' if separator else 'tum'
    if count not in (_KITTI_VALUES, _MATRIX_VALUES):
        is_position = count == _POSITION_VALUES and len(words[0].partition('.')[0]) >= LEAST_DIGITS
        raise BagError(f'{path}, line {number}: {count} values: {_POSITIONS if is_position else _FORMS}')
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
        named = named_columns(headings, words) or echoed_columns(words)
    is_four_seasons = len(words) in _FOUR_SEASONS_VALUES and all(_has_scale(line.split(separator)) for _, line in lines)
    form = '4Seasons' if named is None and kind == 'euroc' and is_four_seasons else _USUAL_NAMES[kind]
    usual, order = {'TUM': (Columns([0], [1, 2, 3, 4, 5, 6, 7], 0), 't x y z qx qy qz qw'),
                    '4Seasons': (Columns([0], [1, 2, 3, 4, 5, 6, 7], 1), 't,x,y,z,qx,qy,qz,qw,…, and t in nanoseconds'),
                    'EuRoC': (Columns([0], [1, 2, 3, 5, 6, 7, 4], 1), 't,x,y,z,qw,qx,qy,qz, and t in nanoseconds')}[form]
    order = f'{order}, where no line above names the columns: {_NAMES_ADVICE}' if named is None else \
        'by the line that names the columns' if headings else 'as `ros2 topic echo --csv` writes them'
    columns = named or usual
    with naming(path):
        check_order([] if named else headings, 'w, x, y, z' if form == 'EuRoC' else 'x, y, z, w')
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
            if columns.named != len(words) and (length := math.hypot(*values[3:])) and abs(length - 1) > OFF_UNIT:
                raise ValueError(f'the quaternion {values[3:]} has length {length:.2f}, not 1'
                                 + f', and {len(words)} values have {columns.named} names' * bool(columns.named))
        except ValueError as error:
            raise ValueError(f'{error} ({order})') from None
        return stamp, values

    rows = rows_of(path, lines, row)
    parts = of_parts([line.split(separator)[columns.stamp[0]].strip() for _, line in lines]) if len(columns.stamp) == 1 else []
    stamps, table = parts or [stamp for stamp, _ in rows], np.asarray([values for _, values in rows], np.float64).reshape(-1, 7)
    name = form if columns._replace(named=0) == usual else \
        'by the names of its columns' if headings else f'of {" in ".join(frames[::-1])}, echoed'
    if named is None and form == 'EuRoC':
        name += ': no line names the columns, qw is taken as the first of the quaternion'
    name += ', camera from world' * columns.from_world + ', whose times have nanoseconds without zeros before them' * bool(parts)
    table[:, :3] /= columns.per_metre
    if named is None and len(table):
        with naming(path):
            _check_start(table[0].tolist(), is_w_first=form == 'EuRoC')
    known, doubt = _known(path, table)
    with naming(path):
        poses = poses_from(table[known, :3], table[known, 3:])
        poses = np.asarray(np.linalg.inv(poses), np.float64) if columns.from_world else poses
    return trajectory_of(path, name + doubt, [stamps[number] for number in np.flatnonzero(known)], poses)


def _check_start(pose: list[float], is_w_first: bool) -> None:
    """Raise ValueError where the first pose, x, y, z, qx, qy, qz, qw, is at 0 and has no rotation only by the other order."""
    written = pose[6:] + pose[3:6] if is_w_first else pose[3:]
    if not any(pose[:3]) and list(map(abs, written)) == ([0, 0, 0, 1] if is_w_first else [1, 0, 0, 0]):
        read, other = _ORDERS if is_w_first else _ORDERS[::-1]
        raise ValueError(f'the first pose is at 0, 0, 0 with the quaternion {written}, no rotation as {other}, and one by 180 '
                         f'degrees as {read}: name the columns in a line above the values, as timestamp x y z qw qx qy qz')


def _has_scale(words: Sequence[str]) -> bool:
    """Whether a line has 4Seasons' scale, and its quality, a digit: others have velocities there."""
    with suppress(IndexError, ValueError):
        return float(words[8]) > 0 and words[9].strip().isdigit()
    return False


def _known(path: Path, table: Float64) -> tuple[NDArray[np.bool_], str]:
    """Lines (N,) to take of positions and quaternions (N, 7), all where none has a pose; and what to say of them.

    Raises BagError where all quaternions are 0.
    """
    known, doubt = np.asarray(np.isfinite(table).all(axis=1) & table[:, 3:].any(axis=1), np.bool_), ''
    if len(table) > 1 and np.isfinite(table).all() and not table[:, 3:].any():
        raise BagError(f'{path}: the quaternions of all {len(table)} poses are 0: {_POSITIONS}')
    if not known.any():
        known[:] = True
    elif not known.all():
        doubt = f'; lines without a pose, left out: {(~known).sum()}'
    if are_positions(table[known]):
        doubt += '; all quaternions are equal, as in a file of only positions'
    return known, doubt


def _separator(line: str) -> str | None:
    """What stands between the values; None for spaces."""
    return next((each for each in ';,' if each in line), None)


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
    short = bool(lines) and len(first := lines[0][1].split(_separator(lines[0][1]))) == _TUM_VALUES - 1
    if short:
        with naming(path):
            _check_start(list(map(float, first)), is_w_first=False)
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
