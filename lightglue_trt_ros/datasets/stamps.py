"""Stamps in text files, one a line or with the files of images, and in the names of these."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from ..utils.errors import BagError, naming
from ..utils.files import text_of

MAX_STAMP_NS = (2**31 - 1) * 10**9  # builtin_interfaces/Time holds seconds in an int32
LEAST_DIGITS = 9  # of a time without a point: fewer are numbers of frames
_PART_DIGITS = 9  # of nanoseconds in a second
_NS_DIGITS = 17  # of nanoseconds with a point behind them: fewer may be seconds
_LEAST_NS = 10**16  # a time of so many is in nanoseconds: as seconds it is beyond MAX_STAMP_NS
HEADING = re.compile(r'\W*((t|secs?|id|index|frame\w*)\W|(?![0-9]).*(time|stamp))', re.IGNORECASE)  # a line of column names
_CALENDAR = re.compile(r'(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:\.(\d*))?(?: ?Z| ?([+-]\d\d):?(\d\d))?')
SPLITS = re.compile('[,;|]'), re.compile(r'[\s,;|]+')  # a line of names, whatever stands between the values
DIGITS = {13: 10**6, 16: 10**3}  # of a time since 1970 in milliseconds and microseconds: as seconds it is beyond MAX_STAMP_NS
_COMMENT = re.compile(r'#|^\s*(?:%|//)')
NS, US = r'n(s|secs?|anosecs?|anoseconds)', r'([uµμ]s(ecs?)?|micros(ecs?|econds))'  # names of units
MS = r'(ms(ecs?)?|millis(ecs?|econds))'
_HEADED = re.compile(rf'([\[(]\s*|(time|stamps?)_)((?P<ns>{NS})|(?P<us>{US})|(?P<ms>{MS}))(?!\w)', re.IGNORECASE)
_OF_HEADING = {'ns': 1, 'us': 10**3, 'ms': 10**6}
_UNITS = {1: 'nanoseconds', 10**3: 'microseconds', 10**6: 'milliseconds', 10**9: 'seconds'}  # by their nanoseconds
_LAST_S = 2_000_000_000  # of names, May 2033: a larger number is a date, as 20240131
_LONGEST_STEP_NS = 10**12  # on average, of milliseconds and microseconds since 1970: else they are nanoseconds since a start
# Stamps since 2001, and older ones in nanoseconds.
_NAMED = re.compile(r'(?<![0-9.])([1-9][0-9]{9}(?:[0-9]{3}){0,3}(?:\.[0-9]+)?|(?!19|20)[1-9][0-9]{17})(?![0-9.])')
_OLDER_NS_DIGITS = 18  # of nanoseconds before 2001, as of clocks that count from another year; no date, as 202401311010100000
_SHORTEST_STEP_NS = 2 * 10**6  # on average, of seconds since a start: shot010.0001.png and the next have numbers
_OF_CLOCK = re.compile(r'(?<![0-9.])([0-9]{1,9}\.[0-9]{3,9})(?![0-9.])')  # seconds since a start, as of ARKitScenes
_TWO_NUMBERS = re.compile(r'(.*(?<![0-9])[1-9][0-9]{9})[_-]([0-9]{9}(?![0-9]).*)')  # seconds and nanoseconds

T = TypeVar('T')


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


def of_parts(texts: Sequence[str]) -> list[int]:
    """The times of texts that have nanoseconds behind the point, without zeros before them: 7.50000000 is 7.05 s.

    Scripts print `sec`, a point and `nsec` so. Empty unless these times ascend, and do not as decimal numbers.
    """
    parts = [text.partition('.') for text in texts]
    if max((len(part) for *_, part in parts), default=0) != _PART_DIGITS or not all(
            whole.isdigit() and part.isdigit() for whole, _, part in parts):
        return []
    counted, decimal = [int(whole) * 10**9 + int(part) for whole, _, part in parts], list(map(parse_stamp, texts))
    return counted if _all_ascend(counted) and not _all_ascend(decimal) else []


def _all_ascend(stamps: Sequence[int]) -> bool:
    return all(before < after for before, after in pairwise(stamps))


def parse_nanoseconds(text: str) -> int:
    """A count of nanoseconds, also with zeros behind a point, as ORB-SLAM3 has it, or as NumPy's savetxt writes it, 1.5e+18.

    Raises ValueError for other numbers.
    """
    try:
        if 'e' in text.lower() and _LEAST_NS <= float(text) <= MAX_STAMP_NS:
            text = str(int(Decimal(text)))
        whole, _, fraction = text.partition('.')
        ns = int(text if fraction.strip('0') or len(whole) < _NS_DIGITS else whole)
    except ValueError:
        raise ValueError(f'{text!r} is not a number of nanoseconds') from None
    if not 0 <= ns <= MAX_STAMP_NS:
        raise ValueError(f'{text!r} is not a time in nanoseconds between 0 and {MAX_STAMP_NS}')
    return ns


def stamps_of_names(files: Sequence[Path]) -> list[int]:
    """The stamps by which images are named, in nanoseconds; empty unless all are, and ascend.

    Seconds have ten digits before the point, milliseconds 13, microseconds 16, nanoseconds 18 or 19. Of several in each name the
    first that ascend count. Where there are none, one number with three digits or more behind a point is seconds.
    """
    found = [_NAMED.findall(_TWO_NUMBERS.sub(r'\1\2', file.stem)) for file in files]
    columns = [list(column) for column in zip(*found, strict=False)]  # a name may have the time of reception too
    return next(filter(None, map(_ascending, columns)), []) if any(found) else _of_clock(files)


def _of_clock(files: Sequence[Path]) -> list[int]:
    found = [_OF_CLOCK.findall(file.stem) for file in files]
    stamps = [parse_stamp(each[0]) for each in found if len(each) == 1]
    if len(stamps) < len(files) or not stamps or stamps[-1] - stamps[0] < (len(stamps) - 1) * _SHORTEST_STEP_NS:
        return []
    return stamps if _all_ascend(stamps) else []


def _ascending(numbers: list[str]) -> list[int]:
    """The stamps, in nanoseconds, that these numbers are; empty unless they ascend."""
    digits = {len(number.partition('.')[0]) for number in numbers}
    if len(digits) != 1:
        return []
    is_older = digits == {_OLDER_NS_DIGITS}
    unit_ns = 1 if is_older else 10**(19 - digits.pop())
    stamps = [parse_stamp(number, unit_ns) if is_older or int(number[:10]) < _LAST_S else 0 for number in numbers]
    if unit_ns in (10**3, 10**6) and stamps[-1] - stamps[0] > _LONGEST_STEP_NS * len(stamps):
        return []
    return stamps if _all_ascend([0, *stamps]) else []


def read_stamps_of(path: Path, files: Sequence[Path]) -> list[int]:
    """The stamps of images: one a line, in their order, or after the name of its image, as in times.txt of TUM's monoVO.

    Names may lack their endings; where they are stamps, these count. Raises BagError that names the line, or an image without one.
    """
    headings, lines = read_lines(path)
    unit_ns, words = _unit_of(headings), [line.replace(',', ' ').split() for _, line in lines]
    named = {row[0]: row[1] for row in words if len(row) > 1}
    if not any(file.stem in named or file.name in named for file in files):
        return read_stamps(path)
    if stamps := stamps_of_names(files):
        return stamps
    found = [named.get(file.name) or named.get(file.stem, '') for file in files]
    with naming(path):
        if '' in found:
            raise ValueError(f'it has no line for {files[found.index("")].name}: begin one with this name, and its stamp')
        stamps = of_parts(found) or [parse_stamp(each, unit_ns or 10**9) for each in found]
        if late := next((number for number, (before, after) in enumerate(pairwise(stamps), 1) if before >= after), 0):
            raise ValueError(f'the numbers after the names of the images are no stamps, that of {files[late].name}, {found[late]}, '
                             f'comes after {found[late - 1]}: leave one number in each line, the stamp of an image')
    return stamps


def read_stamps(path: Path) -> list[int]:
    """Read one stamp per line, in seconds or the unit above them or by their digits, as nanoseconds.

    Raises BagError that names the line.
    """
    headings, lines = read_lines(path)
    digits = {len(line) if line.isdigit() else 0 for _, line in lines}
    unit_ns = _unit_of(headings) or DIGITS.get(max(digits, default=0) if len(digits) == 1 else 0, 10**9)

    def row(line: str) -> int:
        try:
            return parse_stamp(line, unit_ns)
        except ValueError:
            if len(line.replace(',', ' ').split()) < 2:
                raise
        raise ValueError(f'{line[:80]!r} is more than a number of {_UNITS[unit_ns]}: leave one in each line, the stamp of an image')

    stamps = rows_of(path, lines, row)
    return of_parts([line for _, line in lines]) or stamps


def _unit_of(headings: Sequence[str]) -> int:
    """Nanoseconds of the unit that a line above the stamps names, as [us] or timestamp_ms; 0 where none does."""
    found = next(filter(None, map(_HEADED.search, reversed(headings))), None)
    return 0 if found is None else next(ns for name, ns in _OF_HEADING.items() if found[name])


def read_list(path: Path, parse: Callable[[str], int], separator: str | None = None, *,
              depth: bool = False) -> list[tuple[int, str]]:
    """Read lines `stamp name`, the lists of images of TUM and EuRoC, as (nanoseconds, name); `parse` reads a stamp.

    The number of the image may stand before both. Of lines `stamp name stamp name`, associations of images and depth images, the
    ones with the word depth are read if `depth`, else the others. Raises BagError that names the line.
    """
    def row(line: str) -> tuple[int, str]:
        words = [word.strip() for word in line.split(separator)]
        if len(words) == 3 and words[0].isdigit() and len(words[0]) < LEAST_DIGITS and is_number(words[1]):
            words = words[1:]
        if len(words) == 4 and is_number(words[2]):
            depth_first = 'depth' in words[1].lower() and 'depth' not in words[3].lower()
            words = words[:2] if depth_first == depth else words[2:]
        if len(words) < 2:
            raise ValueError(f'{line!r} is no stamp and file name')
        return parse(words[0]), words[1]

    return rows_of(path, read_lines(path)[1], row)


def begins_list(path: Path) -> bool:
    """Whether the first line of a text has a stamp and the name of a file, perhaps after a number, or two of each."""
    with suppress(BagError):
        lines = read_lines(path)[1]
        words = ['.' in word and not is_number(word) for word in lines[0][1].split()] if lines else []
        return words in ([False, True], [False, False, True], [False, True, False, True])
    return False


def read_lines(path: Path) -> tuple[list[str], list[tuple[int, str]]]:
    """Comments and column names above the values, all where there are none, and the numbered lines without comments and blanks."""
    try:
        text = text_of(path).splitlines()
    except OSError as error:
        raise BagError(f'cannot read {path}: {error}') from None
    except UnicodeDecodeError:
        raise BagError(f'{path} is no text: export it as text, with a line for each pose or stamp; of binary files only a '
                       'whole images.bin of COLMAP and poses_bounds.npy of LLFF are read') from None
    lines = [(number, values) for number, line in enumerate(text, 1) if (values := _COMMENT.split(line)[0].strip()).strip(',;|')]
    while lines and (HEADING.match(lines[0][1]) or _is_heading(lines[0][1])):
        lines = lines[1:]
    return [line.lstrip('#%/ ') for line in text[:lines[0][0] - 1 if lines else None]], lines


def _is_heading(line: str) -> bool:
    """Whether a line has three words or more, and the first are no numbers: markers of trackers may be called 1, 2, 3."""
    words = SPLITS[1].split(line)
    return len(words) > 2 and not any(map(is_number, words[:3]))


def is_number(word: str) -> bool:
    with suppress(ValueError):
        return float(word) is not None
    return _CALENDAR.fullmatch(word.strip()) is not None


def rows_of(path: Path, lines: Iterable[tuple[int, str]], row: Callable[[str], T]) -> list[T]:
    """Each of the numbered lines, read by `row`. Raises BagError that names the line."""
    rows = []
    for number, line in lines:
        with naming(f'{path}, line {number}'):
            rows.append(row(line))
    return rows
