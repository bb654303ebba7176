"""Options of commands: types of their values, options that take several words, and fields of a settings class as options."""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

Number = TypeVar('Number', int, float)


class HelpInLines(argparse.HelpFormatter):
    """Help of options in which the line breaks stay, so that each choice can have its line."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        lines: list[str] = []
        for line in text.splitlines():
            lines += super()._split_lines(line, width)
        return lines


def add_settings(parser: argparse._ActionsContainer, settings: type, *names: str) -> None:
    """Add an option for each named field of a `settings` class: --max-keypoints for max_keypoints, --height for image_height."""
    fields = {field.name: field for field in dataclasses.fields(settings)}
    for name in names:
        field = fields[name]
        default = '; default: %(default)s' if field.default != '' else ''
        parser.add_argument('--' + _destination(name).replace('_', '-'), type=type(field.default), default=field.default,
                            choices=field.metadata['choices'] or None, help=field.metadata['doc'] + default)


def settings_of(args: argparse.Namespace, settings: type) -> dict[str, Any]:
    """The fields of a `settings` class that `args` has a value for."""
    values = {field.name: getattr(args, _destination(field.name), None) for field in dataclasses.fields(settings)}
    return {name: value for name, value in values.items() if value is not None}


def add_image_bits(parser: argparse._ActionsContainer) -> None:
    """Add --image-bits."""
    parser.add_argument('--image-bits', type=number(int, 8, 16), default=16, metavar='N', help='bits that the camera fills, of '
                        'images of 16 bits (mono16, PNG, TIFF): 10 or 12 where they look black; of a PGM its maxval counts, where '
                        'it is not 65535; default: %(default)s')


def add_depth_scale(parser: argparse._ActionsContainer) -> None:
    """Add --depth-scale."""
    parser.add_argument('--depth-scale', type=positive, metavar='N', help='units to a metre of the depth images; default: 1000 of '
                        '16 bits, 1 of 32FC1, 5000 of a TUM folder')


def positive(text: str) -> float:
    """A finite number above 0. The type of an option."""
    value = float(text)
    if not 0 < value < float('inf'):
        raise argparse.ArgumentTypeError(f'{text} must be above 0, and finite')
    return value


def number(kind: type[Number], least: float, most: float = math.inf) -> Callable[[str], Number]:
    """A type of options: a finite int or float from `least` to `most`."""
    limits = f'does not lie in [{least:g}, {most:g}]'
    if most == math.inf:
        limits = f'must be at least {least:g}' + ', and finite' * (kind is float)

    def parse(text: str) -> Number:
        value = kind(text)
        if not (least <= value <= most and value < math.inf):
            raise argparse.ArgumentTypeError(f'{text} {limits}')
        return value
    parse.__name__ = kind.__name__  # argparse says 'invalid int value'
    return parse


def numbers(text: str) -> tuple[int, ...]:
    """Whole numbers above 0, separated by commas: sorted, without duplicates. The type of an option."""
    try:
        values = tuple(sorted({int(word) for word in text.split(',')}))
    except ValueError:
        raise argparse.ArgumentTypeError(f'{text!r}: write whole numbers with commas between them') from None
    if values[0] < 1:
        raise argparse.ArgumentTypeError(f'{text}: the numbers must be above 0')
    return values


def some_of(names: Collection[str]) -> Callable[[str], tuple[str, ...]]:
    """A type of options: some of `names`, separated by commas, without duplicates."""
    def parse(text: str) -> tuple[str, ...]:
        chosen = tuple(dict.fromkeys(word for word in text.lower().split(',') if word))
        if unknown := [word for word in chosen if word not in names]:
            raise argparse.ArgumentTypeError(f'{unknown[0]!r} is none of {", ".join(names)}')
        if not chosen:
            raise argparse.ArgumentTypeError(f'nothing is named: give some of {", ".join(names)}')
        return chosen
    return parse


def check_owned(parser: argparse.ArgumentParser, args: argparse.Namespace, owners: Sequence[str], *names: str) -> None:
    """End the command with a usage error where one of the options `names` is given without any of `owners`, whose it is."""
    if any(getattr(args, owner) for owner in owners):
        return
    for name in names:
        if getattr(args, name) != parser.get_default(name):
            options = ' or '.join(f'--{owner.replace("_", "-")}' for owner in owners)
            parser.error(f'--{name.replace("_", "-")} is of {options}: give {options}, or leave it out')


def one_word_each(words: Sequence[str], greedy: Mapping[str, Callable[[str], bool]]) -> list[str]:
    """The command line with `--compare a b` as `--compare=a --compare=b`: no option takes more than its own words.

    `greedy` says of such options which words are theirs. Another one ends them where it is a path; else it is left to the option,
    which says what it takes.
    """
    arguments: list[str] = []
    option = ''
    for word in words:
        if word.startswith('-') or not option or (not greedy[option](word) and (os.sep in word or Path(word).exists())):
            option = word if word in greedy else ''
            arguments.append(word)
        else:
            arguments[-1:] = [] if arguments[-1] == option else arguments[-1:]
            arguments.append(f'{option}={word}')
    return arguments


def _destination(name: str) -> str:
    return name.removeprefix('image_')
