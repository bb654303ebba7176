"""The stamps by which images of a folder are named."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from .poses import MAX_STAMP_NS, parse_stamp

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
    stamps = [parse_stamp(number, unit_ns) if int(number[:10]) * 10**9 <= MAX_STAMP_NS else 0 for number in numbers]
    return stamps if all(before < after for before, after in pairwise([0, *stamps])) else []
