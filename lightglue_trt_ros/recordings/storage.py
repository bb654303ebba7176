"""rosbag2 as messages: through its index where that is whole, else as far as its files go."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import BagError
from .layouts import natural
from .salvage import count, decompressed, salvage
from .sequence import Topic

SUFFIXES = ('.db3', '.mcap')


class Storage:
    """A rosbag2 directory, .db3 or .mcap file, opened anew by every pass. Raises BagError when nothing in it can be read."""

    def __init__(self, path: Path) -> None:
        rosbags_modules()
        self.path = path
        self.damage = ''  # why the index cannot be used
        counts: Counter[tuple[str, str]] = Counter()
        try:
            with _reader(path) as reader:
                for connection in reader.connections:
                    counts[connection.topic, connection.msgtype] += connection.msgcount
        except BagError as error:
            self.damage = str(error)
            counts = self._promised()
            for file in self._files() if not counts else ():
                counts.update(count(file))
            if not counts and path.is_dir() and not (path / 'metadata.yaml').exists():
                names = ', '.join(file.name for file in self._files())
                raise BagError(f'{path} has no metadata.yaml, and nothing can be read in {names}') from None
            if not counts:
                raise
        self.topics = tuple(Topic(name, kind, number) for (name, kind), number in sorted(counts.items()))

    def messages(self, topic: Topic) -> Iterator[tuple[int, bytes]]:
        """(received in ns, CDR) in recorded order. Raises BagError where the recording breaks off."""
        last = -1
        if not self.damage:
            try:
                with _reader(self.path) as reader:
                    wanted = [each for each in reader.connections if (each.topic, each.msgtype) == (topic.name, topic.type)]
                    for _, received, raw in reader.messages(connections=wanted):
                        last = received
                        yield received, _as_it_was(bytes(raw))
                return
            except BagError:
                if not self._files():
                    raise
        broken: BagError | None = None
        for file in self._files():
            try:
                for message in salvage(file):
                    if (message.topic, message.type) == (topic.name, topic.type) and message.received_ns > last:
                        yield message.received_ns, _as_it_was(message.data)
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

    def _files(self) -> list[Path]:
        if self.path.is_file():
            return [self.path]
        try:
            named = [self.path / Path(name).name for name in self._metadata()['relative_file_paths']]
        except (KeyError, TypeError):
            named = bag_files(self.path)
        return [file for file in named if file.is_file() and file.suffix in SUFFIXES]

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


def _as_it_was(data: bytes) -> bytes:
    """A message without its compression; one that cannot be decompressed comes as it is, and is none to whoever reads it."""
    try:
        return decompressed(data)
    except BagError:
        return data


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


def stamp_of(raw: bytes, where: str) -> int:
    """header.stamp, where a message with a header begins: after 4 bytes of encapsulation, int32 seconds, uint32 nanoseconds.

    Raises BagError.
    """
    if len(raw) < 12 or raw[0] != 0:
        raise BagError(f'{where} is {len(raw)} bytes that are no serialised message: the bag is damaged')
    seconds, nanoseconds = struct.unpack_from('<iI' if raw[1] & 1 else '>iI', raw, 4)
    return int(seconds) * 10**9 + int(nanoseconds)


def deserialize(raw: bytes, kind: str, where: str) -> Any:
    """The message in `raw` (CDR), of type `kind`. Raises BagError."""
    _, store = rosbags_modules()
    try:
        return store.deserialize_cdr(raw, kind)
    except Exception as error:
        raise BagError(f'{where} ({len(raw)} bytes) is no {kind}: {error}; the bag is damaged') from None


@contextmanager
def _reader(path: Path) -> Iterator[Any]:
    """An open reader. Whatever a damaged file makes the parsers raise becomes a BagError."""
    rosbag2, _ = rosbags_modules()
    try:
        with rosbag2.Reader(path) as reader:
            yield reader
    except BagError:
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise BagError(f'cannot read {path}: {reason}; it may be cut off, still being written, or no bag') from error
