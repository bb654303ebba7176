"""The files of a rosbag2: those that metadata.yaml names and those that are there, in their order, and what is absent."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..utils.errors import BagError, first_of
from .folder_recordings import is_hidden, natural

SUFFIXES, ZSTD = ('.db3', '.mcap'), ('.zstd', '.zst')
ENDINGS = tuple(suffix + packed for suffix in SUFFIXES for packed in ('', *ZSTD))  # of the names of a bag's files
ROS1_ADVICE = 'convert this ROS 1 bag: pip install rosbags, rosbags-convert --src {file} --dst {folder}'
_NUMBERED = re.compile(r'(.*)_(\d+)')


@dataclass
class Parts:
    """The files of a bag, perhaps compressed, in the order of their names."""

    files: list[Path]
    metadata: dict[str, Any] = field(default_factory=dict)  # of metadata.yaml; empty where it cannot be read
    absent: list[str] = field(default_factory=list)  # names of files that belong to the bag
    notes: list[str] = field(default_factory=list)  # lines for people
    counted: bool = True  # whether metadata.yaml counts the messages of just these files


def bag_files(path: Path) -> list[Path]:
    """The .db3 and .mcap files of a directory, also compressed ones, part 10 after part 9.

    Of a file and its compressed form the first counts: a recorder that died while it compressed leaves both.
    """
    entries = [entry for entry in path.iterdir()
               if entry.name.endswith(ENDINGS) and not is_hidden(entry.name) and entry.is_file()]
    plain = {entry.name for entry in entries if entry.suffix in SUFFIXES}
    packed = {unpacked_name(entry.name): entry for entry in entries if entry.suffix in ZSTD}
    return sorted([*(entry for entry in entries if entry.name in plain),
                   *(entry for name, entry in packed.items() if name not in plain)], key=natural)


def is_bag(path: Path) -> bool:
    """Whether a folder has the metadata.yaml of a bag, or files of one."""
    with suppress(OSError):
        return bool(_metadata(path) or bag_files(path))
    return False


def unpacked_name(name: str) -> str:
    """rec_0.mcap of rec_0.mcap.zstd, and of itself."""
    return name[:name.rindex('.')] if name.endswith(ZSTD) else name


def parts_of(path: Path) -> Parts:
    """The files of the bag at `path`, a directory or one file.

    A file that metadata.yaml names may have been compressed or unpacked since. Files that it does not name are read if they can be
    renamed ones, since as many or more are absent, or if they go on where the named ones end, as a recorder leaves them that died.

    Raises BagError where metadata.yaml names files and none of them is there, and where files of two formats are in one place.
    """
    if path.is_file():
        return Parts([path])
    metadata, here = _metadata(path), {unpacked_name(file.name): file for file in bag_files(path)}
    named = [unpacked_name(Path(str(name)).name) for name in metadata.get('relative_file_paths') or ()]
    files, absent = [here[name] for name in named if name in here], [name for name in named if name not in here]
    others = {name: file for name, file in here.items() if name not in named}
    if not named:
        return _unnamed_parts(path, metadata, here)
    if absent and others:
        note = (f'{path / "metadata.yaml"} names {_listing(absent)}, which {_is(absent)} absent: read instead '
                f'{_is(others)} {_listing(others)}')
        return Parts(sorted([*files, *others.values()], key=natural), metadata, [], [note], counted=False)
    if not files:
        raise BagError(f'{path / "metadata.yaml"} names {_listing(named)}, and {path} has no such file: '
                       f'copy {_them(named)} there, or name the folder that has {_them(named)}')
    last = _numbers(named)
    more = {name: file for name, file in others.items()
            if (own := _NUMBERED.fullmatch(Path(name).stem)) and own[1] in last and int(own[2]) > max(last[own[1]])}
    notes = [f'{path / "metadata.yaml"} does not name {_listing(names)}, which {_is(names)} {words}' for names, words in (
        (more, 'read as the next part'), (others.keys() - more.keys(), 'left out: name a file itself to read it')) if names]
    if absent:
        notes.append(f'{path}: {_listing(absent)}, which metadata.yaml names, {_is(absent)} absent: copy {_them(absent)} there')
    return Parts([*files, *more.values()], metadata, absent, notes, counted=not more)


def _unnamed_parts(path: Path, metadata: dict[str, Any], here: dict[str, Path]) -> Parts:
    """All files that are `here`, by their unpacked names, where metadata.yaml names none. Raises BagError."""
    if len({Path(name).suffix for name in here}) > 1:
        raise BagError(f'{path} holds bags of two formats, {_listing(here)}: name the one that is meant')
    notes = [f'{path / "metadata.yaml"} cannot be read: {_listing(here)} are read'] if here and not metadata and \
        (path / 'metadata.yaml').exists() else []
    recordings = {re.sub(r'[_.-]?\d+$', '', Path(name).stem) for name in here}
    if len(recordings) > 1:
        notes.append(f'{path}: {_listing(here)} are of {len(recordings)} recordings by their names, and read as one: name one '
                     'where they do not belong together')
    gaps = _gaps(list(here))
    if gaps:
        notes.append(f'{path}: {_listing(gaps)} {_is(gaps)} absent by the numbers of the other parts: '
                     f'copy {_them(gaps)} there if the recording has {_them(gaps)}')
    return Parts(list(here.values()), metadata, gaps, notes, counted=False)


def _metadata(path: Path) -> dict[str, Any]:
    import yaml
    try:
        content = yaml.safe_load((path / 'metadata.yaml').read_text(encoding='utf-8'))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    found = content.get('rosbag2_bagfile_information') if isinstance(content, dict) else None
    return found if isinstance(found, dict) else {}


def _numbers(names: Iterable[str]) -> dict[str, list[int]]:
    """The numbers of parts, by what stands in front of them."""
    numbers: dict[str, list[int]] = {}
    for name in names:
        if match := _NUMBERED.fullmatch(Path(name).stem):
            numbers.setdefault(match[1], []).append(int(match[2]))
    return numbers


def _gaps(names: list[str]) -> list[str]:
    """The parts that are absent between others, or before them: a recorder counts from 0."""
    gaps = list[str]()
    for stem, numbers in _numbers(names).items():
        first = min(numbers) if min(numbers) > 1 else 0
        absent = max(numbers) + 1 - first - len(numbers)
        if 0 < absent < len(numbers):  # more are no parts of one recording
            gaps += [f'{stem}_{number}{Path(names[0]).suffix}' for number in range(first, max(numbers)) if number not in numbers]
    return gaps


def _listing(names: Iterable[str]) -> str:
    ordered = sorted(names, key=lambda name: natural(Path(name)))
    return first_of(ordered, 5)


def _is(names: Iterable[str]) -> str:
    return 'is' if len(list(names)) == 1 else 'are'


def _them(names: Iterable[str]) -> str:
    return 'it' if len(list(names)) == 1 else 'them'
