"""The messages of a rosbag2, whole or damaged: also without its index, and behind gaps.

SQLite itself reads .db3 files row by row. mcap files are read record by record (https://mcap.dev/spec). Nothing is decompressed
beyond `limits.max_unpacked`. The package mcap's own reader gives up a chunk that is cut off with all its messages and ends at the
first damage; neither it nor rosbags bounds what a chunk becomes.
"""

from __future__ import annotations

import sqlite3
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import lru_cache
from importlib import import_module
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from ..utils.errors import BagError
from ..utils.limits import PACKING, UNPACKED_VARIABLE, max_unpacked
from .image_folders import natural
from .sequence import Topic

SUFFIXES, ZSTD = ('.db3', '.mcap'), '.zstd'
_MAGIC = b'\x89MCAP0\r\n'
_FOOTER, _SCHEMA, _CHANNEL, _MESSAGE, _CHUNK, _STATISTICS, _DATA_END = 2, 3, 4, 5, 6, 11, 15
_FOOTER_BYTES = 9 + 20 + len(_MAGIC)
_MAX_FAILURES = 200  # rows in a row: more than a page holds, so the rest of the file is gone
_ZSTD = b'\x28\xb5\x2f\xfd'
_PIECE = 1 << 20
_McapMessage = tuple[tuple[str, str], int, bytes]  # (topic, type), received in ns, CDR perhaps compressed
_DAMAGE = (OSError, sqlite3.Error, struct.error, ValueError, TypeError)


class Storage:
    """A rosbag2 directory, .db3 or .mcap file, opened anew by every pass. Raises BagError when nothing in it can be read."""

    def __init__(self, path: Path) -> None:
        rosbags_modules()
        self.path = path
        metadata = self._metadata()
        self._scratch: TemporaryDirectory[str] | None = None  # of unpacked files
        self._files = [self._unpacked(file) if file.suffix == ZSTD else file for file in self._named(metadata)]
        try:
            counts = Counter({(each['topic_metadata']['name'], each['topic_metadata']['type']): int(each['message_count'])
                              for each in metadata['topics_with_message_count']})
        except (KeyError, TypeError, ValueError):
            counts = Counter()
        reasons = list[str]()
        for file in self._files if not counts else ():
            of_file, reason = _counted(file)
            counts.update(of_file)
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
                yield from _messages(file, topic)
            except BagError as error:
                broken = broken or error
            except _DAMAGE as error:
                broken = broken or BagError(f'{file} is damaged: {error}')
        if broken is not None:
            raise broken

    def _named(self, metadata: Any) -> list[Path]:
        if self.path.is_file():
            return [self.path]
        try:
            named = [self.path / Path(name).name for name in metadata['relative_file_paths']]
        except (KeyError, TypeError):
            named = bag_files(self.path)
        return [file for file in named if file.is_file() and file.name.removesuffix(ZSTD).endswith(SUFFIXES)]

    def _unpacked(self, path: Path) -> Path:
        """NAME of NAME.zstd, in the scratch folder. Raises BagError."""
        self._scratch = self._scratch or TemporaryDirectory()
        target, size = Path(self._scratch.name, path.stem), path.stat().st_size
        left = max(max_unpacked(), PACKING * size)
        try:
            with _opened('zstd', path) as source, target.open('wb') as file:
                while piece := source.read(_PIECE):
                    if (left := left - len(piece)) < 0:
                        raise OversizeError(f'{path}, {size} bytes, becomes more than {file.tell() / 2**20:.0f} MiB: '
                                            f'unpack it yourself (zstd -d), or raise {UNPACKED_VARIABLE}')
                    file.write(piece)
        except BagError:
            target.unlink()
            raise
        except Exception as error:  # of the decompressor's own kind
            raise BagError(f'cannot unpack {path}: {error}; it may be cut off, or no zstd') from None
        return target

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


class OversizeError(BagError):
    """Compressed data would exceed the allowed size."""


def _messages(file: Path, topic: Topic) -> Iterator[tuple[int, bytes]]:
    """(received in ns, data) of a .db3 or .mcap file in recorded order.

    Raises BagError or one of _DAMAGE where the file breaks off. A gap in the middle raises nothing: fewer messages come than the
    metadata counts.
    """
    if file.suffix == '.db3':
        yield from _sqlite_messages(file, topic)
    else:
        for name, received, data in _Mcap(file).messages():
            if name == (topic.name, topic.type):
                yield received, data


def _counted(file: Path) -> tuple[Counter[tuple[str, str]], str]:
    """Messages by (topic, type) up to the first damage, and its reason; sqlite3 may count a few that are not whole."""
    counts: Counter[tuple[str, str]] = Counter()
    try:
        if file.suffix == '.db3':
            with _open_sqlite(file) as connection:
                topics = {number: (name, kind) for number, name, kind in connection.execute('SELECT id, name, type FROM topics')}
                counts.update(dict.fromkeys(topics.values(), 0))
                counts.update(topics[number] for _, number in _rows(connection, 'topic_id'))
        else:
            mcap = _Mcap(file)
            with suppress(*_DAMAGE):
                return mcap.summary(), ''
            counts.update(name for name, *_ in mcap.messages())
    except (*_DAMAGE, KeyError, BagError) as error:
        return counts, str(error) or 'it is empty'
    return counts, ''


def unpacked(data: bytes, what: str) -> bytes:
    """A message without its zstd compression, if it has one. Raises BagError."""
    try:
        return _unpack('zstd', data) if data[:4] == _ZSTD else data
    except BagError as error:
        raise type(error)(f'{what}: {error}') from None


def _open_sqlite(path: Path) -> closing[sqlite3.Connection]:
    connection = sqlite3.connect(f'{path.absolute().as_uri()}?immutable=1', uri=True)
    connection.execute('PRAGMA writable_schema=ON')  # without, SQLite refuses a file that is shorter than its header says
    return closing(connection)


def _rows(connection: sqlite3.Connection, columns: str, condition: str = 'TRUE') -> Iterator[tuple[Any, ...]]:
    last = failures = 0
    while True:
        try:
            query = f'SELECT id, {columns} FROM messages WHERE id > ? AND {condition} ORDER BY id'
            for row in connection.execute(query, (last,)):
                if row[0] <= last:  # SQLite takes a page that is gone for zeros
                    raise sqlite3.DatabaseError('rows are missing')
                last, failures = row[0], 0
                yield row
            return
        except sqlite3.DatabaseError:
            last, failures = last + 1, failures + 1
            if failures > _MAX_FAILURES:
                raise


def _sqlite_messages(file: Path, topic: Topic) -> Iterator[tuple[int, bytes]]:
    columns = f'timestamp, length(data), CASE WHEN length(data) <= {max_unpacked()} THEN data END'
    with _open_sqlite(file) as connection:
        numbers = connection.execute('SELECT id FROM topics WHERE name = ? AND type = ?', (topic.name, topic.type)).fetchall()
        condition = f'topic_id IN ({", ".join(str(number) for number, in numbers)})'
        for _, received, size, data in _rows(connection, columns, condition):
            _check_size(file, size)
            if isinstance(data, bytes):
                yield received, data


class _Mcap:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._schemas: dict[int, str] = {}
        self._channels: dict[int, tuple[str, str]] = {}
        self._counts: dict[int, int] = {}
        self._ended = False

    def messages(self) -> Iterator[_McapMessage]:
        with self._path.open('rb') as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise BagError(f'{self._path} does not begin as an mcap file')
            yield from self._records(file)
        if not self._ended:
            raise BagError(f'{self._path} is cut off')

    def summary(self) -> Counter[tuple[str, str]]:
        """The counts at the end of a whole file. Raises ValueError where there are none, and what a damaged file raises."""
        with self._path.open('rb') as file:
            file.seek(-_FOOTER_BYTES, 2)
            footer = file.read()
            (start,) = struct.unpack_from('<Q', footer, 9)
            if footer[0] != _FOOTER or not footer.endswith(_MAGIC) or not start:
                raise ValueError('there is no summary')
            file.seek(start)
            for _ in self._records(file):
                raise ValueError('there are messages in the summary')
        if not self._channels or not self._counts.keys() <= self._channels.keys():
            raise ValueError('the summary is not whole')
        counts = Counter(dict.fromkeys(self._channels.values(), 0))
        for number, messages in self._counts.items():
            counts[self._channels[number]] += messages
        return counts

    def _records(self, file: BinaryIO, in_chunk: bool = False) -> Iterator[_McapMessage]:
        """Messages of the file, or of a chunk, which holds no other chunks."""
        while len(head := file.read(9)) == 9:
            kind, size = struct.unpack('<BQ', head)
            if kind in (_DATA_END, _FOOTER):
                self._ended = True
                return
            if kind not in (_SCHEMA, _CHANNEL, _MESSAGE, _CHUNK, _STATISTICS) or (kind == _CHUNK and in_chunk):
                file.seek(min(size, 2**62), 1)
                continue
            _check_size(self._path, size)
            body = file.read(size)
            if kind == _CHUNK:
                yield from self._chunk(body)
            elif len(body) < size:
                return
            elif kind == _SCHEMA:
                self._schemas[struct.unpack_from('<H', body)[0]] = _string(body, 2)[0]
            elif kind == _CHANNEL:
                number, schema = struct.unpack_from('<HH', body)
                self._channels[number] = (_string(body, 4)[0], self._schemas.get(schema, ''))
            elif kind == _STATISTICS:
                (length,) = struct.unpack_from('<I', body, 42)
                self._counts = dict(struct.iter_unpack('<HQ', body[46:46 + length]))
            else:
                number, _, received = struct.unpack_from('<HIQ', body)
                if number in self._channels:
                    yield self._channels[number], received, body[22:]

    def _chunk(self, body: bytes) -> Iterator[_McapMessage]:
        try:
            compression, start = _string(body, 28)
            records = body[start + 8:]
            yield from self._records(BytesIO(_unpack(compression, records) if compression else records), in_chunk=True)
        except OversizeError as error:
            raise OversizeError(f'{self._path}: {error}') from None
        except (BagError, struct.error):
            return  # the count shows that its messages are missing


def _string(body: bytes, start: int) -> tuple[str, int]:
    """A string with its length in front, and where it ends."""
    (size,) = struct.unpack_from('<I', body, start)
    return body[start + 4:start + 4 + size].decode(errors='replace'), start + 4 + size


def _check_size(path: Path, size: int) -> None:
    if size > max_unpacked():
        raise OversizeError(f'{path} names a record of {size / 2**20:.0f} MiB where {max_unpacked() / 2**20:.0f} are allowed: '
                            f'it is damaged, or raise {UNPACKED_VARIABLE}')


def _unpack(compression: str, data: bytes) -> bytes:
    """All frames of zstd or lz4 in `data`. Raises BagError."""
    limit = max_unpacked()
    try:
        with _opened(compression, BytesIO(data)) as file:
            content = bytes(file.read(limit + 1))
    except BagError:
        raise
    except Exception as error:  # of the decompressors' own kinds
        raise BagError(f'{len(data)} bytes are no {compression}: {error}') from None
    if len(content) > limit:
        raise OversizeError(f'{len(data)} bytes of {compression} become more than {limit / 2**20:.0f} MiB: '
                            f'raise {UNPACKED_VARIABLE} if that is right')
    return content


def _opened(compression: str, source: Path | BytesIO) -> Any:
    """A file of unpacked data: of lz4, or of zstd by Python 3.14 or the package that rosbags depends on. Raises BagError."""
    if compression == 'lz4':
        return import_module('lz4.frame').open(source)
    for name in ('compression.zstd', 'backports.zstd'):
        with suppress(ImportError):
            zstd = import_module(name)
            window = min(max(27, max_unpacked().bit_length()), 30)
            return zstd.open(source, options={zstd.DecompressionParameter.window_log_max: window})
    raise BagError('zstd needs the Python package backports.zstd, which rosbags brings: pip install -U rosbags')
