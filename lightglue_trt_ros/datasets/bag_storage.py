"""The messages of a rosbag2 by topic, over all of its files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..utils.errors import BagError
from ..utils.files import lfs_advice
from .bag_parts import ZSTD, parts_of, unpacked_name
from .bag_readers import DAMAGE, Channel, DamagedError, by_time, counted, first_time, messages, missing_log, unpack_file, unpacked
from .sequence import Topic


class Storage:
    """A rosbag2 directory or one of its files, opened anew by every pass. Raises BagError when nothing in it can be read.

    Compressed files are unpacked once, into a folder that lives as long as this object.
    """

    def __init__(self, path: Path) -> None:
        rosbags_modules()
        self.path = path
        parts = parts_of(path)
        self._absent, notes = parts.absent, parts.notes
        self._scratch: TemporaryDirectory[str] | None = None  # of unpacked files
        self._files = [*self._plain(parts.files, notes)]
        if not (path if path.is_dir() else path.parent).joinpath('metadata.yaml').exists():  # the recorder may have died
            notes += [f'{file} may have a write-ahead log, {file.name}-wal, which is absent: copy it there if the recording has it'
                      for file in self._files if missing_log(file)]
        self.notes = tuple(notes)  # what is absent, or read otherwise than metadata.yaml says; for people
        counts, reasons = _promised(parts.metadata) if parts.counted else Counter[Channel](), list[str]()
        if not any(counts.values()):
            for file in self._files:
                of_file, reason = counted(file)
                counts.update(of_file)
                reasons.append(reason)
        if not counts and path.is_dir() and not (path / 'metadata.yaml').exists():
            names = ', '.join(file.name for file in self._files)
            raise BagError(f'{path} has no metadata.yaml, and nothing can be read in {names}: {"; ".join(filter(None, reasons))}')
        if not counts:
            reason = '; '.join(filter(None, reasons)) or 'there is nothing in it'
            raise BagError(f'cannot read {path}: {reason}; it may be cut off, still being written, or no bag')
        self.topics = tuple(Topic(*channel[:2], number, channel.encoding) for channel, number in sorted(counts.items()))

    def messages(self, topic: Topic) -> Iterator[tuple[int, bytes]]:
        """(received in ns, CDR, perhaps compressed: see `unpacked`) in order of time. Raises BagError where it breaks off."""
        broken = list[BagError]()

        def of_file(file: Path) -> Iterator[tuple[int, bytes]]:
            try:
                yield from messages(file, Channel(topic.name, topic.type, topic.encoding))
            except BagError as error:
                broken.append(error)
            except DAMAGE as error:
                broken.append(BagError(f'{file} is damaged: {error}'))

        yield from by_time((start, partial(of_file, file)) for file, start in self._starts)
        if broken:
            raise broken[0]

    @property
    def loss(self) -> str:
        """Why messages may be fewer than promised, and what to do; for people."""
        if self._absent:
            names = ', '.join(self._absent)
            return f'{names}, which belongs to it, is absent: copy it there' if len(self._absent) == 1 else \
                f'{names}, which belong to it, are absent: copy them there'
        logs = ''.join(map(missing_log, self._files)).removesuffix('; ')
        return logs or 'it was cut off or is damaged; copy it again'

    @cached_property
    def _starts(self) -> list[tuple[Path, int]]:
        """The files, and when the first message of each was received; of a single one that does not matter."""
        return [(file, first_time(file) if len(self._files) > 1 else 0) for file in self._files]

    def _plain(self, files: Sequence[Path], notes: list[str]) -> Iterator[Path]:
        """The files, unpacked where they are compressed. Of several one without data, or no zstd, gives a note. Raises BagError."""
        pointers = list(map(lfs_advice, files))
        if pointers and all(pointers):
            raise BagError(pointers[0])
        for file, pointer in zip(files, pointers, strict=True):
            if pointer:
                notes.append(f'{pointer}. The other parts are read')
                continue
            try:
                yield self._unpacked(file, notes) if file.suffix in ZSTD else file
            except DamagedError as error:
                if len(files) < 2:
                    raise
                notes.append(f'{error}. The other parts are read')

    def _unpacked(self, path: Path, notes: list[str]) -> Path:
        """NAME of NAME.zstd, in the scratch folder; a file that is cut off gives a note. Raises BagError."""
        self._scratch = self._scratch or TemporaryDirectory()
        target = Path(self._scratch.name, unpacked_name(path.name))
        try:
            if loss := unpack_file(path, target):
                notes.append(loss)
        except OSError as error:
            raise BagError(f'cannot unpack {path} into {target.parent}: {error.strerror or error}; make room, or name another '
                           'folder in TMPDIR') from None
        return target


def _promised(metadata: dict[str, Any]) -> Counter[Channel]:
    """The counts of metadata.yaml; none where it is no such file."""
    try:
        return Counter({Channel.of(each['topic_metadata']['name'], each['topic_metadata']['type'],
                                   each['topic_metadata'].get('serialization_format') or 'cdr'): int(each['message_count'])
                        for each in metadata['topics_with_message_count']})
    except (AttributeError, KeyError, TypeError, ValueError):
        return Counter()


@lru_cache(maxsize=1)  # the store compiles a decoder per type and keeps it
def rosbags_modules() -> tuple[Any, Any]:
    """The module rosbags.rosbag2 and a type store. Raises BagError where rosbags is not installed.

    The messages used here are the same on the wire in every ROS 2, so bags without type definitions can be read.
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
