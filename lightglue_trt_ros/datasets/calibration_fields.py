"""The values of a calibration file, by key, which are read once each: what is left over of a lens is an error."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..core.types import Float64
from .poses import is_rotation

OTHER_LENSES = re.compile(  # and what a lens profile of Gyroflow says, not of MODELS
    r'fish|equidist|kannala|omni|(^|_)mei$|eucm|(^|_)ds$|sphere|scaramuzza|ocam|(^|_)fov$|atan|stretch|view')
SIZES = (('width', 'height'), ('image_width', 'image_height'), ('w', 'h'), ('cols', 'rows'), ('resolution',), ('image_size',),
         ('imagesize',), ('imagewidth', 'imageheight'), ('img_width', 'img_height'), ('frame_width', 'frame_height'), ('img_size',),
         ('resolution_width', 'resolution_height'))
LENS = re.compile(  # keys that speak of a lens, in small letters; min_dist, max_dist and baseline_dist_thr are of trackers
    r'^(?!.*flags?$).*?((?<!min)(?<!max)(?<!baseline)(^|[._])dist(_|$|coef|o$|param)|distor|coef(f?s?|ficients?)?(_|$)|'
    r'(^|[._])(rad_?tan|radial|tangential|fisheye(_model|_?par.*)?$|skew|mirror|[kp]_?\d+$|d$|s[1-4]$|tau|xi$|kc$|lens_?(par|coef)))')
_OF_LISTS = re.compile(r'(?!.*(dist|lens|radial|tangential|_[kp]_?\d)).*([._]d$|coef)')  # n_samples_d is a setting, T_I_D a pose
_DISTANCE = re.compile(r'(?!.*(cam|lens|coef|param|radial|tangential))\w*[a-z0-9]_dist(_[a-z]+)*')  # of a number of metres
_PIX4D = re.compile(r'[rt]_?[1-3]')  # its radial and tangential coefficients; matrices of these names are of stereo pairs
MOST_DEPTH = 50  # of mappings and lists inside of each other: YAML may have itself inside
_MISSING: Any = object()


class Fields:
    """The values of a mapping, by key without regard to capitals, and with - as _. It notes which keys were read."""

    def __init__(self, values: Mapping[Any, Any], prefix: str = '') -> None:
        """Only keys that begin with `prefix` count, and are named without it; errors name them whole."""
        self.prefix = prefix
        self._keys = {str(key)[len(prefix):].lower().replace('-', '_'): str(key) for key in values if str(key).startswith(prefix)}
        self._values = {str(key): value for key, value in values.items() if str(key).startswith(prefix)}
        self._read: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._keys

    def first(self, *names: str) -> str | None:
        """The first of `names` that the mapping has."""
        return next((name for name in names if name in self), None)

    def whole(self, name: str) -> str:
        """The key as it stands in the file."""
        return self._keys.get(name.lower(), self.prefix + name)

    def get(self, name: str, default: Any = _MISSING) -> Any:
        """Raises KeyError without a `default`."""
        key = self._keys.get(name.lower())
        self._read.add(name.lower())
        if key is None:
            if default is _MISSING:
                raise KeyError(self.prefix + name)
            return default
        return self._values[key]

    def is_listed(self, name: str) -> bool:
        """Whether the value is a list, or a mapping."""
        return isinstance(self._values.get(self.whole(name)), (list, tuple, dict))

    def is_plain_list(self, name: str) -> bool:
        """Whether the value is a list, or OpenCV's {data: list}."""
        return self.is_listed(name) and not self.is_named(name)

    def is_true(self, name: str) -> bool:
        """Whether the value is a truth that holds, or 1; only then it counts as read."""
        holds = str(self._values.get(self.whole(name))).lower() in ('true', 'yes', '1', '1.0')
        self._read.update([name] * holds)
        return holds

    def count(self, name: str) -> int:
        """How many values a list, nested lists or OpenCV's {data: list} have."""
        return _count(self._values[self.whole(name)])

    def is_named(self, name: str) -> bool:
        """Whether the value is a mapping of names, and no {data: list}."""
        value = self._values.get(self.whole(name))
        return isinstance(value, dict) and 'data' not in value

    def inner(self, name: str) -> Fields:
        """The values of a mapping inside."""
        value = self.get(name)
        if not isinstance(value, dict):
            raise ValueError(f'{self.whole(name)}: {value} is no mapping of numbers')
        return Fields(value)

    def text(self, name: str) -> str:
        """Empty where it is missing."""
        value = self.get(name, '')
        return '' if value is None else str(value).strip()

    def numbers(self, name: str, *counts: int) -> list[float]:
        """A list, nested lists or OpenCV's {data: list}; of one of `counts` values, of any number without."""
        values = _flat(self.get(name), self.whole(name))
        if counts and len(values) not in counts:
            raise ValueError(f'{self.whole(name)} has {len(values)} value{"s" * (len(values) != 1)}, not '
                             f'{" or ".join(map(str, counts))}: {values}')
        return values

    def number(self, name: str) -> float:
        return _number(self.get(name), self.whole(name))

    def pixels(self, name: str) -> int:
        return _pixels(self.get(name), self.whole(name))

    def size(self, name: str) -> tuple[int, int]:
        """Width and height in one list, or by these names."""
        if self.is_named(name):
            inner = self.inner(name)
            names = next((names for names in (*SIZES[:3], ('x', 'y')) if names[0] in inner), SIZES[0])
            return inner.pixels(names[0]), inner.pixels(names[1])
        words = re.fullmatch(r'(\d+) ?[x,] ?(\d+)', str(self.get(name)))  # 640x480
        width, height = (_pixels(value, self.whole(name)) for value in (words.groups() if words else self.numbers(name, 2)))
        return width, height

    def matrix(self, name: str) -> Float64:
        """A rigid transformation, (4, 4); of 12 values the last row is left out."""
        values = self.numbers(name, 12, 16)
        matrix = np.array([*values, 0, 0, 0, 1][:16]).reshape(4, 4)
        return rigid(matrix, self.whole(name))

    def check_all_read(self, is_lens: bool = False) -> None:
        """Raise ValueError for a key of the lens that nobody read; `is_lens`: all that are no words are."""
        for name, key in self._keys.items():
            value = self._values[key]
            is_coefficient = is_lens or (_PIX4D.fullmatch(name) and not isinstance(value, (list, dict)))
            whole = [name, str(value)] if is_coefficient and not isinstance(value, str) and not is_zero(value) else []
            if name not in self._read and (unread := whole or _of_lens(name, value)):
                raise ValueError(f'{".".join((key, *unread[1:-1]))}: {unread[-1][:80]} is not read here, and speaks of the lens. '
                                 'Name the coefficients distortion_coefficients, or k1, k2, p1, p2, k3, or remove the key')


def rigid(matrix: Float64, name: str) -> Float64:
    """`matrix` (4, 4), checked. Raises ValueError."""
    if not is_rotation(matrix[:3]):
        raise ValueError(f'{name}: its left upper 3x3 is no rotation: {matrix[:3, :3].tolist()}')
    if matrix[3].tolist() != [0, 0, 0, 1]:
        raise ValueError(f'{name}: its last row is {matrix[3].tolist()}, not [0, 0, 0, 1]')
    return matrix


def _flat(value: Any, name: str) -> list[float]:
    if isinstance(value, dict):
        if 'data' not in value:
            raise KeyError(f'{name}.data')
        value = value['data']
    if not isinstance(value, (list, tuple)):
        raise ValueError(f'{name}: {value} is no list of numbers')
    parts = [_flat(each, name) if isinstance(each, (list, tuple)) else [_number(each, name)] for each in value]
    return [number for part in parts for number in part]


def _count(value: Any) -> int:
    if isinstance(value, dict) and 'data' in value:
        value = value['data']
    return sum(map(_count, value)) if isinstance(value, (list, tuple)) else 1


def _number(value: Any, name: str) -> float:
    try:
        number = float('' if isinstance(value, bool) else value)  # PyYAML takes 2e-05 for a word
    except (TypeError, ValueError):
        raise ValueError(f'{name}: {value!r} is no number') from None
    if not np.isfinite(number):
        raise ValueError(f'{name}: {number} is not finite; calibrate the camera')
    return number


def _pixels(value: Any, name: str) -> int:
    number = _number(value, name)
    if number != int(number):
        raise ValueError(f'{name}: {value} is no number of pixels')
    return int(number)


def _of_lens(name: str, value: Any) -> list[str]:
    """The keys that lead to something about a lens, and its value in words; empty where there is none."""
    is_distance = isinstance(value, (int, float)) and _DISTANCE.fullmatch(name.lower()) is not None
    is_other = _count(value) in (1, 16) and not isinstance(value, str) and _OF_LISTS.match(name.lower()) is not None
    if LENS.search(name.lower()) and not (is_zero(value) or is_distance or is_other):
        return [name, str(value)]
    is_lens = re.search(r'(^|_)lens$', name.lower()) is not None  # words in it are of products, but those of fisheyes
    if is_lens and (isinstance(value, list) or OTHER_LENSES.search(str(value).lower())) and not is_zero(value):
        return [name, str(value)]
    for key, each in value.items() if isinstance(value, dict) else ():
        numbers = [str(key), str(each)] if is_lens and isinstance(each, list) and not is_zero(each) else []
        if found := _of_lens(str(key), each) or numbers:
            return [name, *found]
    return []


def check_finite(values: Any, name: str = '', depth: int = 0) -> None:
    """Raise ValueError for a number that is not finite, with its key, and for values that are nested without end."""
    if depth > MOST_DEPTH:
        raise ValueError(f'{name[:80]}: its lists and mappings are nested more than {MOST_DEPTH} times, which no calibration is')
    if isinstance(values, dict):
        for key, value in values.items():
            check_finite(value, f'{name}.{key}' if name else str(key), depth + 1)
    elif isinstance(values, list):
        for value in values:
            check_finite(value, name, depth + 1)
    elif isinstance(values, (int, float)) and not abs(values) <= sys.float_info.max:
        raise ValueError(f'{name}: {f"{values}"[:20]} is not finite; calibrate the camera')


def is_zero(value: Any) -> bool:
    """Of nothing, of zero, and of lists and mappings of these."""
    if isinstance(value, dict):
        return all(map(is_zero, [value['data']] if 'data' in value else value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(is_zero, value))
    try:
        return value in (None, '') or float(value) == 0
    except (TypeError, ValueError):
        return str(value).lower() in ('none', 'false', 'no')
