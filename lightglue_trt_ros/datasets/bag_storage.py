"""rosbag2 as messages, as far as its files go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..utils.errors import BagError
from .damaged_bags import count, salvage, unpack_file, unpacked
from .image_folders import natural
from .sequence import Topic

SUFFIXES, ZSTD = ('.db3', '.mcap'), '.zstd'


class Storage:
    """A rosbag2 directory, .db3 or .mcap file, opened anew by every pass. Raises BagError when nothing in it can be read."""

    def __init__(self, path: Path) -> None:
        rosbags_modules()
        self.path = path
        self._scratch: TemporaryDirectory[str] | None = None  # of what was compressed as a file
        self._files = list(map(self._unpacked, self._named()))
        counts, reasons = self._promised(), list[str]()
        for file in self._files if not counts else ():
            found, reason = count(file)
            counts.update(found)
            reasons.append(reason)
        if not counts and path.is_dir() and not (path / 'metadata.yaml').exists():
            names = ', '.join(file.name for file in self._files)
            raise BagError(f'{path} has no metadata.yaml, and nothing can be read in {names}')
        if not counts:
            reason = '; '.join(filter(None, reasons)) or 'there is nothing in it'
            raise BagError(f'cannot read {path}: {reason}; it may be cut off, still being written, or no bag')
        self.topics = tuple(Topic(name, kind, number) for (name, kind), number in sorted(counts.items()))

    def messages(self, topic: Topic) -> Iterator[tuple[int, bytes]]:
        """(received in ns, CDR, perhaps compressed: see `unpacked`) in recorded order. Raises BagError where it breaks off."""
        broken: BagError | None = None
        for file in self._files:
            try:
                for message in salvage(file, topic):
                    yield message.received_ns, message.data
            except BagError as error:
                broken = broken or error
        if broken is not None:
            raise broken

    def _promised(self) -> Counter[tuple[str, str]]:
        """The counts of metadata.yaml, empty where it cannot be read."""
        try:
            return Counter({(each['topic_metadata']['name'], each['topic_metadata']['type']): int(each['message_count'])
                            for each in self._metadata()['topics_with_message_count']})
        except (KeyError, TypeError, ValueError):
            return Counter()

    def _named(self) -> list[Path]:
        if self.path.is_file():
            return [self.path]
        try:
            named = [self.path / Path(name).name for name in self._metadata()['relative_file_paths']]
        except (KeyError, TypeError):
            named = bag_files(self.path)
        return [file for file in named if file.is_file() and file.name.removesuffix(ZSTD).endswith(SUFFIXES)]

    def _unpacked(self, file: Path) -> Path:
        if file.suffix != ZSTD:
            return file
        self._scratch = self._scratch or TemporaryDirectory()
        return unpack_file(file, Path(self._scratch.name))

    def _metadata(self) -> Any:
        import yaml
        try:
            content = yaml.safe_load((self.path / 'metadata.yaml').read_text(encoding='utf-8'))
        except (OSError, UnicodeDecodeError, yaml.YAMLError):
            return {}
        return content.get('rosbag2_bagfile_information', {}) if isinstance(content, dict) else {}


def bag_files(path: Path) -> list[Path]:
    """The .db3 and .mcap files of a directory, part 10 after part 9."""
    return sorted((entry for entry in path.iterdir() if entry.suffix in SUFFIXES), key=natural)


@lru_cache(maxsize=1)  # the store compiles a decoder per type and keeps it
def rosbags_modules() -> tuple[Any, Any]:
    """The module rosbags.rosbag2 and a type store. Raises BagError where rosbags is not installed.

    The messages used here are the same on the wire in every ROS 2, so that bags without type definitions read as well.
    """
    try:
        from rosbags import rosbag2
        from rosbags.typesys import Stores, get_typestore
    except ImportError as error:
        raise BagError(f'bags need the Python package rosbags ({error}): pip install rosbags') from None
    return rosbag2, get_typestore(Stores.ROS2_HUMBLE)


def deserialize(raw: bytes, kind: str, where: str) -> Any:
    """The message in `raw` (CDR), of type `kind`. Raises BagError."""
    _, store = rosbags_modules()
    raw = unpacked(raw, where)
    try:
        return store.deserialize_cdr(raw, kind)
    except Exception as error:
        raise BagError(f'{where} ({len(raw)} bytes) is no {kind}: {error}; the bag is damaged') from None
