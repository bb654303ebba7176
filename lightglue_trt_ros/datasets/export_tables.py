"""What a table of tools has: what recognises the file of a tool, and what reads its cameras by number or name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Values = Mapping[str, Any]  # of a file, by key
Cameras = dict[int | str, dict[str, Any]]  # with Kalibr's keys, by number or name
Tools = tuple[tuple[Callable[[Values], Any], Callable[[Values], Any]], ...]  # the first that recognises a file reads it


def one(read: Callable[[Values], dict[str, Any]]) -> Callable[[Values], Cameras]:
    """Reads a file of one camera."""
    return lambda values: {0: read(values)}


def all_have(is_camera: Callable[[dict[str, Any]], bool]) -> Callable[[Values], bool]:
    """Recognises a file that is a mapping of cameras."""
    return lambda values: bool(values) and all(isinstance(value, dict) and is_camera(value) for value in values.values())
