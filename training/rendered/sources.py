"""The list of 3D scenes: who made the models, under which licence, and which exact commit was read."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

LICENCES = frozenset({'MIT-0', 'MIT', 'CC0-1.0', 'CC-BY-3.0', 'CC-BY-4.0', 'BSD-2-Clause', 'BSD-3-Clause', 'Apache-2.0'})
LIST = Path(__file__).with_name('scenes.yaml')
SECONDS = 1800  # the longest that git may take to fetch one repository


class RenderError(Exception):
    """A scene, a viewpoint or the list of scenes cannot be used."""


@dataclass(frozen=True)
class Source:
    """One git repository. `models` is the folder in it that `model://` URIs refer to; `left_out` says what is not used."""

    name: str
    url: str
    commit: str
    licence: str
    stated_in: str
    attribution: str
    models: str
    left_out: str


@dataclass(frozen=True)
class Entry:
    """One scene to render.

    `retexture` is the share of plain surfaces that get a photograph, `objects` the number of added objects, and `weight` the
    scene's relative number of views.
    """

    name: str
    source: Source
    world: str
    retexture: float = 0.0
    objects: int = 0
    weight: float = 1.0


def load_list(path: Path = LIST) -> list[Entry]:
    """Read the list of scenes.

    Raises:
        RenderError: the list cannot be read, or an entry has a missing or unknown key, a licence outside LICENCES, a commit that is
            not 40 hexadecimal digits, or a name that occurs twice. The message names the entry.

    """
    try:
        content = yaml.safe_load(path.read_text(encoding='utf-8'))
        listed, scenes = content['sources'], content['scenes']
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise RenderError(f'{path}: no list of sources and scenes can be read from it: {error!r}') from error
    sources = {source.name: source for source in (_source(item, path) for item in listed)}
    entries = [_entry(item, sources, path) for item in scenes]
    names = [entry.name for entry in entries]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise RenderError(f'{path}: names of scenes occur twice: {twice}.')
    return entries


def source_of(name: str, entries: list[Entry]) -> Source | None:
    """The source of that name among the entries' sources; None where no entry uses it."""
    return next((entry.source for entry in entries if entry.source.name == name), None)


def _source(item: dict[str, Any], path: Path) -> Source:
    try:
        source = Source(**item)
    except TypeError as error:
        raise RenderError(f'{path}: source {item}: {error}') from error
    if source.licence not in LICENCES:
        raise RenderError(f'{path}: source {source.name}: licence {source.licence} is none of {", ".join(sorted(LICENCES))}.')
    if not re.fullmatch('[0-9a-f]{40}', source.commit):
        raise RenderError(f'{path}: source {source.name}: commit {source.commit!r} is not 40 hexadecimal digits.')
    return source


def _entry(item: dict[str, Any], sources: dict[str, Source], path: Path) -> Entry:
    try:
        return Entry(**{**item, 'source': sources[item['source']]})
    except (TypeError, KeyError) as error:
        raise RenderError(f'{path}: scene {item}: {error!r}') from error


def fetch(source: Source, folder: Path) -> Path:
    """The source's folder under `folder`; git fetches its commit there if it is missing. Raises RenderError."""
    target = folder / source.name
    if target.is_dir():
        return target
    half = folder / f'{source.name}.tmp'
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    for command in (['init', '--quiet'], ['fetch', '--quiet', '--depth', '1', source.url, source.commit],
                    ['checkout', '--quiet', 'FETCH_HEAD']):
        try:
            done = subprocess.run(['git', *command], cwd=half, capture_output=True, text=True, timeout=SECONDS, check=False)
            problem = done.stderr.strip()[-300:] if done.returncode else ''
        except (OSError, subprocess.TimeoutExpired) as error:
            problem = str(error)
        if problem:
            raise RenderError(f'{source.name}: git {" ".join(command)} failed: {problem}. Put a copy into {target}.')
    half.replace(target)
    return target
