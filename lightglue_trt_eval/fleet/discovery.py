"""Find the recordings that a command line names, as folders, globs or lists, here or where fsspec reaches; hash their contents."""

from __future__ import annotations

import hashlib
import json
import logging
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from lightglue_trt_ros.datasets.bag_parts import ENDINGS
from lightglue_trt_ros.datasets.folder_recordings import SUFFIXES, is_hidden, natural
from lightglue_trt_ros.datasets.stamps import stamps_of_names
from lightglue_trt_ros.utils.errors import LightglueTrtError

BAGS = (*ENDINGS, '.bag')  # also those of ROS 1, which are listed with what converts them
LAYOUT_FILES = {'timestamps.txt', 'times.txt', 'groundtruth.txt', 'calib.yaml'}  # next to images/
LISTS = {'rgb.txt', 'left_images.txt', 'associations.txt', 'color.txt'}  # of images
ALONE = {'metadata.yaml', 'mav0', 'cam0', 'image_00', 'image_02', *LISTS}  # each shows a recording
DEPTH = 8  # folders below the one that was named
CHANGED = ('mtime', 'ETag', 'etag', 'md5Hash', 'LastModified', 'last_modified', 'updated', 'created', 'CRC')  # by storage
CHUNK = 1 << 20  # bytes read at a time
PIP_LINE = 'pip install dask distributed fsspec pyarrow'

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RecordingRef:
    """A recording that was asked for, not opened yet."""

    url: str  # a local path, or what fsspec opens
    name: str  # for people, one for each recording of a fleet
    size: int = 0  # bytes
    stamp: str = ''  # hash of names, sizes and times of change
    reason: str = ''  # why it cannot be read

    @property
    def local(self) -> bool:
        return '://' not in self.url


def find_recordings(words: Iterable[str]) -> list[RecordingRef]:
    """Every recording that `words` lead to, each place once, in this order. A place that does not exist has its reason.

    A .txt file is a list: one word a line, # begins a comment, paths are relative to the list. Places that are named again
    are logged. Raises LightglueTrtError for a folder, glob or list without any recording, and for a storage that cannot be had.
    """
    recordings: dict[str, RecordingRef] = {}
    for word in words:
        for listed in _expanded(word):
            if listed.url in recordings:
                logger.info(f'{listed.url} is named more than once: it is evaluated once')
            recordings.setdefault(listed.url, listed)
    names = _names(list(recordings))
    return [replace(listed, name=name) for listed, name in zip(recordings.values(), names, strict=True)]


def storage_of(url: str) -> tuple[Any, str]:
    """The fsspec file system of a place, and its path there. Raises LightglueTrtError."""
    try:
        system, path = fleet_module('fsspec.core').url_to_fs(url)
    except (ImportError, ValueError, OSError) as error:
        raise LightglueTrtError(f'{url} cannot be opened: {error}') from None
    return system, str(path)


def _expanded(word: str) -> list[RecordingRef]:
    system, path = storage_of(word)
    try:
        if any(letter in path for letter in '*?[') and not system.exists(path):
            recordings = [each for hit in sorted(system.glob(path)) for each in _below(word, system, str(hit))]
            what = 'matches no recording'
        elif path.endswith('.txt') and system.isfile(path):
            lines = [line.partition('#')[0].strip() for line in system.cat_file(path).decode().splitlines()]
            folder = _url(word, posixpath.dirname(path))
            recordings = [each for line in lines if line
                          for each in _expanded(line if '://' in line or line.startswith('/') else f'{folder}/{line}')]
            what = 'lists no recording'
        elif not system.exists(path):
            return [RecordingRef(_url(word, path), '', reason='it does not exist')]
        else:
            recordings, what = list(_below(word, system, path)), 'holds no recording (rosbag2, .db3, .mcap, or an image folder)'
    except (OSError, UnicodeDecodeError, NotImplementedError) as error:
        raise LightglueTrtError(f'{word} cannot be searched: {error}') from None
    if not recordings:
        raise LightglueTrtError(f'{word} {what}')
    return recordings


def _below(word: str, system: Any, path: str) -> Iterator[RecordingRef]:
    """The recording at `path`, or else those in the folders below; without any, images in `path` that are named by stamps."""
    if system.isfile(path):
        if path.endswith(BAGS) or path == storage_of(word)[1]:  # what was named itself is told why it cannot be read
            yield _measured(word, system, path)
        return
    places = list(_search(system, path, DEPTH))
    if not places and _are_stamped(system, path):  # images without a layout
        places = [path]
    yield from (_measured(word, system, place) for place in places)


def _search(system: Any, path: str, depth: int, above: tuple[Path, ...] = ()) -> Iterator[str]:
    """Recordings at `path` and below; `above` are the folders on the way to it, links followed."""
    above = (*above, Path(path).resolve())
    entries = {posixpath.basename(entry['name'].rstrip('/')): entry for entry in system.ls(path, detail=True)}
    bags = sorted(name for name in entries if name.endswith(BAGS) and not is_hidden(name))
    parts = {re.sub(r'_\d+(\.\w+)+$', '', name) for name in bags}
    of_parts = len(bags) > 1 and len(parts) == 1 and not bags[0].endswith('.bag')  # of one bag
    if is_recording(entries) or of_parts or ('images' in entries and not bags and _are_stamped(system, entries['images']['name'])):
        yield path
        return
    yield from (entries[name]['name'] for name in bags)
    for name in sorted(entries.keys() - set(bags)):
        below, kind = entries[name]['name'], entries[name]['type']
        if name.startswith('.'):
            continue
        if entries[name].get('islink') and (not system.exists(below) or Path(below).resolve() in above):
            logger.info(f'{below} is a link to {"a folder above it" if system.exists(below) else "nothing"}: it is passed over')
        elif depth and (kind == 'directory' or (kind != 'file' and system.isdir(below))):  # a link
            yield from _search(system, below, depth - 1, above)


def is_recording(names: Iterable[str]) -> bool:
    """Whether a folder that holds these names is one recording: a rosbag2, or images in one of the layouts."""
    here = set(names)
    events = 'images.txt' in here and 'cameras.txt' not in here  # COLMAP writes both
    return bool(here & ALONE or ('images' in here and (events or here & LAYOUT_FILES))
                or ('times.txt' in here and here & {'image_0', 'image_2'}) or {'data.csv', 'data'} <= here)


def _are_stamped(system: Any, folder: str) -> bool:
    """Whether images are named by their stamps; a line is logged of those that are not, and have no list of them."""
    files = [Path(name) for entry in system.ls(folder, detail=True) if (name := entry['name']).lower().endswith(SUFFIXES)]
    if files and not (stamped := bool(stamps_of_names(sorted(files, key=natural)))):
        logger.info(f'{folder} has {len(files)} image{"s" * (len(files) > 1)} without stamps: it is passed over')
    return bool(files) and stamped


def _measured(word: str, system: Any, path: str) -> RecordingRef:
    files = {path: system.info(path)} if system.isfile(path) else system.find(path, detail=True)
    rows = [(name[len(path):], info.get('size') or 0, str(next((info[key] for key in CHANGED if info.get(key)), '')))
            for name, info in sorted(files.items())]
    return RecordingRef(_url(word, path), '', sum(row[1] for row in rows), hashlib.sha256(json.dumps(rows).encode()).hexdigest())


def _url(word: str, path: str) -> str:
    """`path` of the storage that `word` is in: zip://runs/a::file:///all.zip for runs/a of that archive."""
    head, chained, rest = word.partition('::')
    protocol, marked, _ = head.partition('://')
    if chained and not marked:  # simplecache::s3://bucket/run
        return f'{head}::{_url(rest, path)}'
    if '://' in path or (not chained and (not marked or protocol in ('file', 'local'))):
        return path
    return f'{protocol}://{path.lstrip("/")}{chained}{rest}'


def _names(urls: Sequence[str]) -> list[str]:
    """The end of each place, as short as no other has it."""
    parts = [url.partition('::')[0].rstrip('/').split('/') for url in urls]
    ends = [['/'.join(each[-count:]) for count in range(1, len(each) + 1)] for each in parts]
    counts = Counter(end for each in ends for end in each)
    return [next((end for end in each if counts[end] == 1), url) for each, url in zip(ends, urls, strict=True)]


def fingerprint(listed: RecordingRef) -> str:
    """sha256 of the names in the recording and of what stands in its files, hexadecimal.

    Files elsewhere are not read: there it is of names, sizes, and the storage's own tags of the contents. Raises OSError.
    """
    if not listed.local:
        return listed.stamp
    path, total = Path(listed.url), hashlib.sha256()
    files = [path] if path.is_file() else sorted(each for each in path.rglob('*') if each.is_file())
    poses = path.resolve().parent.parent / 'poses' / f'{path.resolve().name}.txt'  # KITTI's sequences have them two folders up
    if (path / 'times.txt').is_file() and poses.is_file():
        files.append(poses)
    for file in files:
        inside = file.relative_to(path).as_posix() if file.is_relative_to(path) else file.name
        total.update(f'{inside}\0{file.stat().st_size}\0'.encode())
        with file.open('rb') as content:
            while chunk := content.read(CHUNK):
                total.update(chunk)
    return total.hexdigest()


def fleet_module(name: str) -> Any:
    """The module `name`, e.g. pyarrow.parquet. Raises LightglueTrtError with the pip line where it is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise LightglueTrtError(f'evaluate_fleet needs the Python package {name.partition(".")[0]} ({error}): {PIP_LINE}') from None
