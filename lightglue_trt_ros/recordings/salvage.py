"""Damaged recordings: the frames that can be read, and the messages that stand in a file without its index and behind gaps.

sqlite3 files are read by SQLite itself, row by row; mcap files record by record (https://mcap.dev/spec).
"""

from __future__ import annotations

import sqlite3
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ..errors import BagError
from .sequence import Frame, Recording

_MAGIC = b'\x89MCAP0\r\n'
_FOOTER, _CHANNEL, _SCHEMA, _MESSAGE, _CHUNK, _DATA_END = 2, 4, 3, 5, 6, 15
_MAX_RECORD = 2**30  # bytes; a length beyond is damage
_MAX_FAILURES = 200  # rows in a row: more than a page holds, so the rest of the file is gone
_ZSTD = b'\x28\xb5\x2f\xfd'
_DAMAGE = (OSError, sqlite3.Error, struct.error, ValueError, TypeError)


class Message(NamedTuple):
    """One message as it stands in the file."""

    topic: str
    type: str
    received_ns: int
    data: bytes  # CDR


def readable_frames(recording: Recording, on_loss: Callable[[str], None]) -> Iterator[Frame]:
    """Iterate over the frames of a recording that is perhaps damaged, in recorded order, not loaded yet.

    Messages that are none are left out, and a recording that breaks off ends there; `on_loss` gets a line for each of the two,
    with counts, when the iteration ends or is closed. Never raises BagError; what a frame's `load` raises is the caller's.
    """
    broken: list[tuple[int, BagError]] = []
    read, end = 0, ''
    try:
        for frame in recording.frames(lambda number, error: broken.append((number, error))):
            read += 1
            yield frame
    except BagError as error:
        end = str(error)
    finally:
        seen = read + len(broken)
        total = max(len(recording), seen)
        if broken:
            on_loss(f'{len(broken)} of {total} frames are no images; the first is frame {broken[0][0]}: {broken[0][1]}')
        if end:
            lost = f'{total - seen} of {total} frames are lost' if total > seen else \
                f'the recording breaks off after {seen} frames, how many followed is not known'
            on_loss(f'{lost}: {end}')


def salvage(path: Path) -> Iterator[Message]:
    """Messages of a .db3 or .mcap file in the order in which they were written.

    Raises BagError where the file breaks off. A gap that it continues behind does not raise: less than promised has come then.
    """
    try:
        yield from _sqlite(path) if path.suffix == '.db3' else _Mcap(path).messages()
    except _DAMAGE as error:
        raise BagError(f'{path} is damaged: {error}') from None


def count(path: Path) -> Counter[tuple[str, str]]:
    """Messages by (topic, type), as far as the file goes; sqlite3 may count a few that it no longer holds whole."""
    found: Counter[tuple[str, str]] = Counter()
    try:
        if path.suffix == '.db3':
            with _open_sqlite(path) as connection:
                topics = _topics(connection)
                found.update(dict.fromkeys(topics.values(), 0))
                for _, number in _rows(connection, 'topic_id'):
                    found[topics[number]] += 1
        else:
            for message in _Mcap(path).messages():
                found[message.topic, message.type] += 1
    except (*_DAMAGE, KeyError, BagError):
        pass  # what was counted until then is the answer
    return found


def decompressed(data: bytes) -> bytes:
    """A message as it was before zstd; itself where it is not compressed. Raises BagError."""
    return _unpack('zstd', data) if data[:4] == _ZSTD else data


def _open_sqlite(path: Path) -> closing[sqlite3.Connection]:
    connection = sqlite3.connect(f'{path.absolute().as_uri()}?immutable=1', uri=True)
    connection.execute('PRAGMA writable_schema=ON')  # without, SQLite refuses a file that is shorter than its header says
    return closing(connection)


def _topics(connection: sqlite3.Connection) -> dict[int, tuple[str, str]]:
    return {number: (name, kind) for number, name, kind in connection.execute('SELECT id, name, type FROM topics')}


def _rows(connection: sqlite3.Connection, columns: str) -> Iterator[tuple[Any, ...]]:
    last = failures = 0
    while True:
        try:
            for row in connection.execute(f'SELECT id, {columns} FROM messages WHERE id > ? ORDER BY id', (last,)):
                if row[0] <= last:  # SQLite takes a page that is gone for zeros
                    raise sqlite3.DatabaseError('rows are missing')
                last, failures = row[0], 0
                yield row
            return
        except sqlite3.DatabaseError:
            last, failures = last + 1, failures + 1
            if failures > _MAX_FAILURES:
                raise


def _sqlite(path: Path) -> Iterator[Message]:
    with _open_sqlite(path) as connection:
        topics = _topics(connection)
        for _, number, received, data in _rows(connection, 'topic_id, timestamp, data'):
            if number in topics and isinstance(data, bytes):
                yield Message(*topics[number], received, data)


class _Mcap:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._schemas: dict[int, str] = {}
        self._channels: dict[int, tuple[str, str]] = {}
        self._ended = False

    def messages(self) -> Iterator[Message]:
        with self._path.open('rb') as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise BagError(f'{self._path} does not begin as an mcap file')
            yield from self._records(file)
        if not self._ended:
            raise BagError(f'{self._path} is cut off')

    def _records(self, file: BinaryIO) -> Iterator[Message]:
        """Those of the file, or of a chunk."""
        while len(head := file.read(9)) == 9:
            kind, size = struct.unpack('<BQ', head)
            if kind in (_DATA_END, _FOOTER):
                self._ended = True
                return
            if kind not in (_SCHEMA, _CHANNEL, _MESSAGE, _CHUNK):
                file.seek(min(size, 2**62), 1)
                continue
            body = file.read(min(size, _MAX_RECORD))
            if kind == _CHUNK:
                yield from self._chunk(body)
            elif len(body) < size:
                return
            elif kind == _SCHEMA:
                self._schemas[struct.unpack_from('<H', body)[0]] = _string(body, 2)[0]
            elif kind == _CHANNEL:
                number, schema = struct.unpack_from('<HH', body)
                self._channels[number] = (_string(body, 4)[0], self._schemas.get(schema, ''))
            else:
                number, _, received = struct.unpack_from('<HIQ', body)
                if number in self._channels:
                    yield Message(*self._channels[number], received, body[22:])

    def _chunk(self, body: bytes) -> Iterator[Message]:
        try:
            compression, start = _string(body, 28)
            records = body[start + 8:]
            yield from self._records(BytesIO(_unpack(compression, records) if compression else records))
        except (BagError, struct.error):
            return  # its messages are missing in the count


def _string(body: bytes, start: int) -> tuple[str, int]:
    """A string with its length in front, and where it ends."""
    (size,) = struct.unpack_from('<I', body, start)
    return body[start + 4:start + 4 + size].decode(errors='replace'), start + 4 + size


def _unpack(compression: str, data: bytes) -> bytes:
    try:
        decompress = import_module('lz4.frame').decompress if compression == 'lz4' else _zstd()
        return bytes(decompress(data))
    except Exception as error:
        raise BagError(f'{len(data)} bytes are no {compression}: {error}') from None


def _zstd() -> Any:
    """The decompressor that rosbags brings along, or Python's own from 3.14 on."""
    for name in ('compression.zstd', 'backports.zstd'):
        with suppress(ImportError):
            return import_module(name).decompress
    return lambda data: import_module('zstandard').ZstdDecompressor().decompressobj().decompress(data)
