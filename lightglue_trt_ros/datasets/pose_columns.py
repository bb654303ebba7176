"""Which columns of a line have a time and a pose, by the line that names them or by what `ros2 topic echo --csv` writes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ..utils.errors import first_of
from .stamps import DIGITS, HEADING, LEAST_DIGITS, MS, NS, SPLITS, US, is_number, parse_nanoseconds, parse_stamp

_UNIT = rf'(_?(s|secs?|seconds|{NS}|{US}|{MS}))?'  # of a time
_LENGTH = 'mm|cm|dm|km|ft|feet|foot|in|inch|inches'  # of a position; only the first two are read
_IN_BRACKETS = re.compile(rf'\s*[\[(]\s*(s|secs?|seconds|{NS}|{US}|{MS}|{_LENGTH})\s*[\])]', re.IGNORECASE)
_LABEL = re.compile(r'^(\w+):\s+')  # before the names, as in `format: timestamp tx ty tz qx qy qz qw`
_FROM_WORLD = re.compile(r'(^|[._])([tpqr]?[cbis]w|w(orld)?_?(2|to)_?(c|cam|camera)|(c|cam|camera)_?from_?w(orld)?)([._]|$)')
_POSITION = r'(?:(?:.*\.)?(?:pose_|transform_)*(?:p|t|pos(?:ition)?|loc(?:ation)?|tran(?:s|slation)?)(?:[_.].*)?[_.]?)?'  # before x
_ROTATION = r'(?:.*\.)?(?:pose_|transform_)*(?:q|quat|quaternion|r|rot|rotation|o|ori|orientation)(?:[_.].*)?[_.]?'
_AFTER = '(_mm|_cm|_m)?(_world_device|_odometry_device)?'  # an axis; the last two are Project Aria's
_TIME = rf'(.*[._])?((time)?stamp|time){_UNIT}|t{_UNIT}'
_UNIT_ALONE = rf'secs?|seconds|{NS}|{US}|{MS}'  # as SubT-MRS calls a time
_FRAME = r'(frame|image|img)_?(id|idx|index|number)?'  # whose number may be a stamp, as that of 4Seasons
_STAMP = re.compile(rf'\d{{{LEAST_DIGITS},}}')
_PER_METRE = {'_mm': 1000, '_cm': 100}  # by the end of a position's name
_ROSTOPIC = 'field.'  # before the names of `rostopic echo -p`, whose times are nanoseconds
_FRAMES = r'.*header[._]frame_id|(.*[._])?child_frame_id|(device|camera|cam|sensor|object|body)_(id|name)|subject|segment'
_SECONDS = re.compile(r'((?:(?:.*[._])?(?:t|time|(?:time)?stamp|tv)[._]?)?)(?:s|secs?|seconds)')  # of a time in two columns
_UNITS = (NS, 1), (US, 10**3), (MS, 10**6)
_OF_MESSAGE = r'(.*\.)?header[._]stamp'
_ORDERS = {'w, x, y, z': re.compile(r'(\bq?_?w\W+q?_?x\W+q?_?y\W+q?_?z|wxyz)', re.IGNORECASE),
           'x, y, z, w': re.compile(r'(\bq?_?x\W+q?_?y\W+q?_?z\W+q?_?w|xyzw)', re.IGNORECASE)}  # of a quaternion, in a sentence
_ANGLES = re.compile(r'(^|\W)(heading|yaw|omega)\W+(pitch|phi)\W+(roll|kappa)(\W|$)', re.IGNORECASE)


_WORD = re.compile(  # of a position or a rotation, before other words
    r'^(pose_|transform_)*(position|pos|p|translation|trans|tran|t|location|loc|quaternion|quat|q|rotation|rot|r|orientation|ori|o)'
    '(?=_|$)')
Sets = dict[str, list[int]]  # columns by the words in their names beside position and axis


class Columns(NamedTuple):
    """Where a line of a file has what."""

    stamp: list[int]  # one column, or seconds and a part of one
    pose: list[int]  # x, y, z, qx, qy, qz, qw
    unit_ns: int = 10**9  # of the one column of the stamp; 0: by its digits
    per_metre: int = 1  # units of the position
    frames: Sequence[int] = ()  # columns that name the frames of a pose
    from_world: bool = False  # whether its poses are camera from world
    part_ns: int = 1  # of the second column of the stamp
    named: int = 0  # how many columns the line of names has; 0 without one

    def stamp_of(self, words: Sequence[str]) -> int:
        """In nanoseconds. Of two columns each may have the whole time: seconds with a fraction, or more than a second of parts.

        Raises ValueError.
        """
        first, *rest = (words[column] for column in self.stamp)
        unit_ns = self.unit_ns or DIGITS.get(len(first.partition('.')[0]), 10**9)
        try:
            whole = parse_nanoseconds(first) if unit_ns == 1 else parse_stamp(first, unit_ns)
            parts = sum(parse_stamp(each, self.part_ns) for each in rest)
            return whole if whole % 10**9 else parts if parts >= 10**9 else whole + parts
        except ValueError as error:
            advice = '' if self.unit_ns or rest or not is_number(first) else ': name its unit, as timestamp_ns or timestamp_us'
            raise ValueError(f'{error}{advice}') from None


def echoed_columns(words: Sequence[str]) -> Columns | None:
    """Of a message in a line: seconds, nanoseconds, its frame, perhaps a child frame, x, y, z, qx, qy, qz, qw; None of others."""
    first = next((at for at, word in enumerate(words) if at > 1 and is_number(word)), 0)
    if first not in (3, 4) or not all(word.isdigit() for word in words[:2]) or len(words) < first + 7:
        return None
    return Columns([0, 1], list(range(first, first + 7)), frames=range(2, first))


def named_columns(headings: Sequence[str], words: Sequence[str]) -> Columns | None:
    """The columns by the last of `headings` that names a time and all of a pose; `words` are the values of a line.

    The header.stamp of the same message comes before other times: the first column of its file mostly is the time of reception.
    Raises ValueError where a line names several poses, or as many columns as there are values, and not all of these.
    """
    count = len(words)
    is_kapture = any(heading.startswith('kapture format') for heading in headings)
    for heading in reversed(headings):
        for split in SPLITS:
            names = _names_in(heading, split)
            if pose := _pose_in(names):
                break
        split_stamp, part_ns = _split_stamp(names)
        stamps = split_stamp, _found(names, (_OF_MESSAGE,))
        own = [each for each in stamps if pose and each and names[pose[0]].startswith(names[each[0]].rpartition('header')[0])]
        if pose and (stamp := [*own, _time_in(names, words)][0]):
            units = [] if own else [unit for form, unit in _UNITS if re.search(f'{form}$', names[stamp[0]])]
            units += [1] * (len(stamp) < 2 and any(name.startswith(_ROSTOPIC) for name in names))
            frames = [at for at, name in enumerate(names) if re.fullmatch(_FRAMES, name)]
            return Columns(stamp, pose, [*units, 0][0], _PER_METRE.get(names[pose[0]][-3:], 1), frames,
                           is_kapture or _are_from_world(heading, [names[at] for at in pose]), part_ns, len(names))
        if (not pose and _sets_in(names, _ROTATION, 'xyzw')) or (len(names) == count > 1 and (pose or HEADING.match(heading))):
            raise ValueError(_needed(heading))
    by_commas = [(heading, _names_in(heading, SPLITS[0])) for heading in reversed(headings)]
    others = [heading for heading, names in by_commas if len(names) == count > 1 and not any(map(is_number, names))]
    if others:
        raise ValueError(_needed(others[0]))
    return None


def _are_from_world(heading: str, names: Sequence[str]) -> bool:
    """Whether the `names` of a pose's columns, or what stands before them, say camera from world: q_cw, w2c_tx or `T_cw: …`.

    Raises ValueError where those of the position or of the rotation alone do.
    """
    label = _LABEL.match(heading)
    if label is not None and _FROM_WORLD.search(label[1].lower()):
        return True
    position, rotation = (any(_FROM_WORLD.search(name[:-1]) for name in each) for each in (names[:3], names[3:]))  # q_cw may be qw
    if position != rotation:
        raise ValueError(f'its columns {", ".join(names)} have camera from world in one part and world from camera in the other: '
                         'write poses of one kind, as p_wc and q_wc')
    return position


def _needed(heading: str) -> str:
    return (f'its columns are {heading[:200].strip()}: a time (timestamp in seconds, or timestamp_ms, _us or _ns), a position '
            '(x, y, z in metres, or x_mm, x_cm) and a quaternion (qx, qy, qz, qw) are needed, rename or add them')


def _time_in(names: Sequence[str], words: Sequence[str]) -> list[int]:
    """The column of a time, or else one that has only the name of a unit, or of a frame and a value as long as a stamp."""
    frame = [at for at in _found(names, (_FRAME,)) if at < len(words) and _STAMP.fullmatch(words[at].strip())]
    return _found(names, (_TIME,)) or _found(names, (_UNIT_ALONE,)) or frame


def _pose_in(names: Sequence[str]) -> list[int]:
    """The columns of x, y, z, qx, qy, qz, qw, those of one topic, or all behind one word, as gt_x and gt_qx; none where one lacks.

    Raises ValueError where several topics or words have a pose.
    """
    if pose := _pose_of(names):
        return pose
    words = Counter(name[:end] for name in names for end in range(1, len(name)) if name[end - 1] in '_.')
    behind = {word: [name.removeprefix(word) if name.startswith(word) else '' for name in names]
              for word, count in words.items() if count >= len('xyz' 'xyzw')}
    return _only({word.strip('_.'): pose for word, inner in behind.items() if (pose := _pose_of(inner))})


def _pose_of(names: Sequence[str]) -> list[int]:
    """As `_pose_in`, without words before the names."""
    positions, rotations = _sets_in(names, _POSITION, 'xyz'), _sets_in(names, _ROTATION, 'xyzw')
    if len(positions) == len(rotations) == 1:  # whatever stands before them
        rotations = dict(zip(positions, rotations.values(), strict=True))
    return _only({topic: _joined(positions[topic], rotations[topic]) for topic in positions if topic in rotations})


def _joined(positions: Sets, rotations: Sets) -> list[int]:
    """The only position and rotation of a topic, or of several those that one word names, or none: p and q beside p_target.

    Raises ValueError where this is not one of each.
    """
    if len(positions) == len(rotations) == 1:
        return next(iter(positions.values())) + next(iter(rotations.values()))
    same = [stem for stem in positions if stem in rotations]
    if len(same) != 1:
        several = [f'{kind} {first_of(sorted(each), 4)}' for kind, each in (('positions', positions), ('rotations', rotations))]
        raise ValueError(f'it has the {" and ".join(several)} by the words in their names: keep the columns of one pose')
    return positions[same[0]] + rotations[same[0]]


def _only(poses: dict[str, list[int]]) -> list[int]:
    if len(poses) > 1:
        raise ValueError(f'it has the poses of {first_of(sorted(poses), 4)}: keep the columns of one')
    return next(iter(poses.values()), [])


def _sets_in(names: Sequence[str], form: str, axes: str) -> dict[str, Sets]:
    """Of each topic, as odom in odom.pos.x, the columns of all axes whose names differ by the axis alone, by other words there."""
    found: dict[tuple[str, ...], dict[str, int]] = {}
    for at, name in enumerate(names):
        if match := re.fullmatch(f'({form})([{axes}]){_AFTER}', name):
            found.setdefault((match[1], *match.groups('')[2:]), {}).setdefault(match[2], at)
    sets: dict[str, Sets] = {}
    for (head, *_), columns in found.items():
        if len(columns) == len(axes):
            topic, _, rest = head.rstrip('._').rpartition('.')
            sets.setdefault(topic, {}).setdefault(_WORD.sub('', rest).strip('_') or 'without a word',
                                                  [columns[axis] for axis in axes])
    return sets


def _split_stamp(names: Sequence[str]) -> tuple[list[int], int]:
    """The columns of seconds and of a part of one, as timestamp_sec and timestamp_nsec, and the part's unit in ns; or none."""
    seconds = {match[1]: at for at, name in enumerate(names) if name != 's' and (match := _SECONDS.fullmatch(name))}
    found = (([seconds[match[1]], at], unit_ns) for at, name in enumerate(names) for unit, unit_ns in _UNITS
             if (match := re.fullmatch(f'(.*?){unit}', name)) and match[1] in seconds)
    return next(found, ([], 1))


def _names_in(heading: str, split: re.Pattern[str]) -> list[str]:
    text = re.sub(r'\[.*?\]|\(.*?\)', '', _IN_BRACKETS.sub(r'_\1', _LABEL.sub('', heading))).strip()
    return [name.strip(' %"\'').lower().replace('/', '.').replace(' ', '_') for name in split.split(text)]


def check_order(headings: Sequence[str], order: str) -> None:
    """Raise ValueError where lines above values without names say that a quaternion has the other order of _ORDERS."""
    said = {each: heading for each, form in _ORDERS.items() for heading in headings if form.search(heading)}
    if len(said) == 1 and order not in said:
        other, heading = next(iter(said.items()))
        raise ValueError(f'{heading.strip()[:120]!r} speaks of {other}, and without names of columns a quaternion here is {order}: '
                         'write one name for each column into that line, as timestamp x y z qw qx qy qz')


def angles_in(headings: Sequence[str], count: int) -> str:
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
