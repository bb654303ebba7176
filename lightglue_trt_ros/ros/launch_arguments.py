"""Words of a command line that ROS takes for others: arguments that no launch file declares, parameters and topics mixed up."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..utils.errors import did_you_mean
from .parameters import FIELDS, LAUNCH, SIMILAR, TOPICS


def value_of(name: str, text: str) -> Any:
    """A parameter's value, of its type. Raises ValueError where the text has none; the node checks its range."""
    default: Any = FIELDS[name].default
    kind = type(default)
    try:
        return {'true': True, 'false': False}[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError):
        needed = {bool: 'neither true nor false', int: 'no whole number'}.get(kind, 'no number')
        raise ValueError(f'{name}:={text} is {needed}: {FIELDS[name].metadata["doc"]}') from None


def undeclared(declared: Collection[str], files: Collection[str], parameters: Collection[str] = (),
               advice: str = 'add -s for a list') -> dict[str, str]:
    """The arguments NAME:=VALUE of the command line that name `parameters`, where `ros2 launch` was given one of these `files`.

    Empty where another file was given: its arguments have meanings of their own. Raises ValueError for a name that is neither a
    parameter nor `declared`, with a similar one or the `advice`.
    """
    if not any(Path(word).name in files for word in sys.argv):
        return {}
    given = dict(word.split(':=', 1) for word in sys.argv if ':=' in word)
    for name in given:
        if name not in declared and name not in parameters:
            known = [LAUNCH[name]] if LAUNCH.get(name) in declared else [*declared, *parameters]
            raise ValueError(f'there is no argument {name}: {did_you_mean(name, known, SIMILAR * (len(known) > 1)) or advice}')
    return {name: text for name, text in given.items() if name not in declared}


def left_out(configurations: Mapping[str, str], declared: Collection[str], files: Collection[str]) -> str:
    """The parameters among the arguments of a launch file that includes one of `files`, for people; empty: none.

    They may be its own, as of a camera driver: nothing tells them from those that are meant for the matcher.
    """
    names = [name for name in FIELDS if name in configurations and name not in declared]
    if not names or any(Path(word).name in files for word in sys.argv):
        return ''
    return (f'launch arguments of the same name as parameters of the matcher are not given to it: {", ".join(names)}. If they are '
            'meant for it, write them into its params_file')


def misplaced(words: Sequence[str], parameters: Collection[str]) -> Iterator[str]:
    """Words NAME:=VALUE that ROS takes for something else, for people.

    They name a topic behind -p, one of the `parameters` without it, or an argument of the launch file as if it were a topic.
    """
    for before, word in itertools.pairwise(['', *words]):
        name, given, topic = word.partition(':=')
        remap, behind_p = f'--ros-args -r {TOPICS.get(name)}:={topic}', before in ('-p', '--param')
        if given and behind_p and name in TOPICS:
            yield f'{word} sets a parameter, and {name} is a topic: write {remap}'
        elif given and not behind_p and TOPICS.get(name, name) != name:
            yield f'{word} remaps a name that this node does not have: write {remap}'
        elif given and name in parameters and before not in ('-p', '--param', '-r', '--remap'):
            yield f'{word} remaps a name, and {name} is a parameter: write --ros-args -p {word}'
