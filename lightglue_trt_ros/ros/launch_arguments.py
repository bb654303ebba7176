"""Words of a command line that ROS takes for others: arguments that no launch file declares, parameters and topics mixed up."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from ..utils.errors import did_you_mean
from .parameters import FIELDS, SIMILAR, TOPICS


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
            raise ValueError(f'there is no argument {name}: {did_you_mean(name, [*declared, *parameters], SIMILAR) or advice}')
    return {name: text for name, text in given.items() if name not in declared}


def bare_parameters(words: Sequence[str]) -> list[str]:
    """The words NAME:=VALUE that name a parameter of the matcher without -p: ROS takes them as remappings of a topic."""
    pairs = itertools.pairwise(['', *words])
    return [word for before, word in pairs
            if ':=' in word and word.split(':=')[0] in FIELDS and before not in ('-p', '--param', '-r', '--remap')]


def topics_as_parameters(words: Sequence[str]) -> list[tuple[str, str]]:
    """(word, how to remap) of each word NAME:=VALUE behind -p that names a topic: ROS takes it as a parameter."""
    given = ((word, word.partition(':=')) for before, word in itertools.pairwise(words) if before in ('-p', '--param'))
    return [(word, f'-r {TOPICS[name]}:={topic}') for word, (name, _, topic) in given if name in TOPICS]
