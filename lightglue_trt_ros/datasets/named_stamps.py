"""The stamps by which images of a folder are named."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from .poses import named_values, naming, parse_stamp, read_stamps

_LAST_S = 2_000_000_000  # of names, May 2033: a larger number is a date, as 20240131
_LONGEST_STEP_NS = 10**12  # on average, of milliseconds and microseconds since 1970: else they are nanoseconds since a start
_NAMED = re.compile(r'(?:.*[^0-9.])?([1-9][0-9]{9}(?:[0-9]{3}){0,3}(?:\.[0-9]+)?)(?:[^0-9.].*)?')  # by a stamp since 2001
_TWO_NUMBERS = re.compile(r'(.*(?<![0-9])[1-9][0-9]{9})[_-]([0-9]{9}(?![0-9]).*)')  # seconds and nanoseconds


def stamps_of_names(files: Sequence[Path]) -> list[int]:
    """The stamps by which images are named, in nanoseconds; empty unless all are, and ascend.

    Seconds have ten digits before the point, milliseconds 13, microseconds 16, nanoseconds 19.
    """
    found = [_NAMED.fullmatch(_TWO_NUMBERS.sub(r'\1\2', file.stem)) for file in files]
    numbers = [match[1] for match in found if match]
    digits = {len(number.partition('.')[0]) for number in numbers}
    if len(digits) != 1 or len(numbers) < len(files):
        return []
    unit_ns = 10**(19 - digits.pop())
    stamps = [parse_stamp(number, unit_ns) if int(number[:10]) < _LAST_S else 0 for number in numbers]
    if unit_ns in (10**3, 10**6) and stamps[-1] - stamps[0] > _LONGEST_STEP_NS * len(stamps):
        return []
    return stamps if all(before < after for before, after in pairwise([0, *stamps])) else []


def read_stamps_of(path: Path, files: Sequence[Path]) -> list[int]:
    """The stamps of images: one a line, in their order, or after the name of its image, as in times.txt of TUM's monoVO.

    Names may lack their endings; where they are stamps, these count. Raises BagError that names the line, or an image without one.
    """
    named = named_values(path)
    if not any(file.stem in named or file.name in named for file in files):
        return read_stamps(path)
    if stamps := stamps_of_names(files):
        return stamps
    found = [named.get(file.name) or named.get(file.stem, '') for file in files]
    with naming(path):
        if '' in found:
            raise ValueError(f'it has no line for {files[found.index("")].name}: begin one with this name, and its stamp')
        stamps = list(map(parse_stamp, found))
        if late := next((number for number, (before, after) in enumerate(pairwise(stamps), 1) if before >= after), 0):
            raise ValueError(f'the numbers after the names of the images are no stamps, that of {files[late].name}, {found[late]}, '
                             f'comes after {found[late - 1]}: leave one number in each line, the stamp of an image')
    return stamps
