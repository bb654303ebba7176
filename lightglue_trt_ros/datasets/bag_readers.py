"""The files of a bag read in order of time, whole or damaged: also without an index, and behind gaps.

SQLite itself reads .db3 files row by row. mcap files are read record by record (https://mcap.dev/spec). Nothing is decompressed
beyond `limits.max_unpacked`. The package mcap's own reader gives up a chunk that is cut off with all its messages and ends at the
first damage; neither it nor rosbags bounds what a chunk becomes.

Messages come in the order in which rosbag2 plays them: by the time at which they were received, equal times as recorded.
"""

from __future__ import annotations

import heapq
import sqlite3
import struct
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from functools import partial
from importlib import import_module
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from ..utils.errors import BagError
from ..utils.limits import PACKING, UNPACKED_VARIABLE, max_unpacked

_MAGIC = b'\x89MCAP0\r\n'
_ROS1_MAGIC = b'#ROSBAG V'
_FOOTER, _SCHEMA, _CHANNEL, _MESSAGE, _CHUNK, _STATISTICS, _DATA_END = 2, 3, 4, 5, 6, 11, 15
_FOOTER_BYTES = 9 + 20 + len(_MAGIC)
_MAX_FAILURES = 200  # rows in a row: more than a page holds, so the rest of the file is gone
_ZSTD = b'\x28\xb5\x2f\xfd'
_PIECE = 1 << 20
_WAL_VERSION, _WAL_AT = 2, slice(18, 20)  # of a database that may have a write-ahead log, in its header
DAMAGE = (OSError, sqlite3.Error, struct.error, ValueError, TypeError)

Timed = TypeVar('Timed', bound=tuple[Any, ...])


class Channel(NamedTuple):
    """A topic as a file has it."""

    name: str
    type: str
    encoding: str = 'cdr'  # of its messages: cdr is ROS 2's

    @classmethod
    def of(cls, name: str, kind: str, encoding: str) -> Channel:
        """With sensor_msgs/msg/Image for sensor_msgs/Image, as the first releases of ROS 2 and some tools spell a type."""
        package, _, last = kind.partition('/')
        return cls(name, f'{package}/msg/{last}' if encoding == 'cdr' and last and '/' not in last else kind, encoding)


class DamagedError(BagError):
    """Nothing of a compressed file can be unpacked."""


class OversizeError(BagError):
    """Compressed data would exceed the allowed size."""


def messages(file: Path, wanted: Channel) -> Iterator[tuple[int, bytes]]:
    """(received in ns, data) of a .db3 or .mcap file in order of time.

    Raises BagError or one of DAMAGE where the file breaks off. A gap in the middle raises nothing: fewer messages come than the
    metadata counts.
    """
    if file.suffix == '.db3':
        yield from _sqlite_messages(file, wanted)
    else:
        for received, channel, data in _Mcap(file).messages():
            if channel == wanted:
                yield received, data


def counted(file: Path) -> tuple[Counter[Channel], str]:
    """Messages by channel up to the first damage, and its reason; sqlite3 may count a few that are not whole."""
    counts: Counter[Channel] = Counter()
    try:
        if file.suffix == '.db3':
            with _open_sqlite(file) as connection:
                topics = {number: Channel.of(*rest) for number, *rest in connection.execute(
                    'SELECT id, name, type, serialization_format FROM topics')}
                counts.update(dict.fromkeys(topics.values(), 0))
                counts.update(topics[number] for _, number in _rows(connection, 'topic_id'))
        else:
            mcap = _Mcap(file)
            with suppress(*DAMAGE):
                return mcap.summary(), ''
            for _, channel, _ in mcap.messages():
                counts[channel] += 1
            counts.update(dict.fromkeys(mcap.channels, 0))
    except (*DAMAGE, KeyError, BagError) as error:
        return counts, f'{missing_log(file)}{error}' or 'it is empty'
    return counts, ''


def first_time(file: Path) -> int:
    """When the first message of a file was received, ns; 0 where that cannot be read."""
    with suppress(*DAMAGE, BagError):
        if file.suffix != '.db3':
            return min(span.first for span in _Mcap(file).spans())
        with _open_sqlite(file) as connection:
            return int(connection.execute('SELECT min(timestamp) FROM messages').fetchone()[0])
    return 0


def by_time(parts: Iterable[tuple[int, Callable[[], Iterator[Timed]]]]) -> Iterator[Timed]:
    """The items of several iterators, each in order of its items' first field, merged in that order.

    A part is opened when the time comes that is given with it: none of its items may be earlier. Equal items come in the order of
    their parts.
    """
    waiting = deque(sorted(((start, number, opened) for number, (start, opened) in enumerate(parts)), key=lambda part: part[:2]))
    heap: list[tuple[Any, int, Timed, Iterator[Timed]]] = []

    def advance(number: int, items: Iterator[Timed]) -> None:
        if (item := next(items, None)) is not None:
            heapq.heappush(heap, (item[0], number, item, items))

    while waiting or heap:
        while waiting and (not heap or waiting[0][0] <= heap[0][0]):
            _, number, opened = waiting.popleft()
            advance(number, opened())
        if heap:
            _, number, item, items = heapq.heappop(heap)
            yield item
            advance(number, items)


def unpacked(data: bytes, what: str) -> bytes:
    """A message without its zstd compression, if it has one. Raises BagError."""
    try:
        return _unpack('zstd', data) if data[:4] == _ZSTD else data
    except BagError as error:
        raise type(error)(f'{what}: {error}') from None


def unpack_file(path: Path, target: Path) -> str:
    """Write the content of a .zstd file to `target`, and return why that ends early; empty: it is whole. Raises BagError."""
    size = path.stat().st_size
    left = max(max_unpacked(), PACKING * size)
    with target.open('wb') as file:
        try:
            with _opened('zstd', path) as source:
                while piece := source.read(_PIECE):
                    if (left := left - len(piece)) < 0:
                        raise OversizeError(f'{path}, {size} bytes, becomes more than {file.tell() / 2**20:.0f} MiB: '
                                            f'unpack it yourself (zstd -d), or raise {UNPACKED_VARIABLE}')
                    file.write(piece)
        except (BagError, OSError):  # the latter where there is no room
            raise
        except Exception as error:  # of the decompressor's own kind
            if not file.tell():
                raise DamagedError(f'cannot unpack {path}, {size} bytes: {error}; it is cut off, or no zstd: copy it again') \
                    from None
            return f'{path} is cut off or damaged ({error}): what stands before is read'
    return ''


def missing_log(path: Path) -> str:
    """A line where a .db3 file may have a write-ahead log, and it is not there; else empty."""
    with suppress(OSError), path.open('rb') as file:
        if path.suffix == '.db3' and file.read(20)[_WAL_AT] == bytes([_WAL_VERSION] * 2) and not _log_of(path):
            return f'{path.name} was recorded with a write-ahead log, {path.name}-wal, which is absent: copy it there; '
    return ''


def _log_of(path: Path) -> bool:
    """Whether a write-ahead log lies beside a database."""
    log = path.with_name(f'{path.name}-wal')
    return log.is_file() and log.stat().st_size > 0


def _open_sqlite(path: Path) -> closing[sqlite3.Connection]:
    """Open a database for reading: nothing is written beside it, so its folder may be read-only.

    SQLite reads a write-ahead log without its index in shared memory where it has the database for itself. Without locks it has.
    """
    path = path.resolve()
    has_log = path.stat().st_size > 0 and _log_of(path)  # the log of an empty database would be deleted
    access = 'mode=ro&vfs=unix-none' if has_log else 'immutable=1'
    connection = sqlite3.connect(f'{path.as_uri()}?{access}', uri=True)
    connection.execute('PRAGMA locking_mode=EXCLUSIVE')
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


def _sqlite_messages(file: Path, wanted: Channel) -> Iterator[tuple[int, bytes]]:
    columns = f'timestamp, length(data), CASE WHEN length(data) <= {max_unpacked()} THEN data END'
    with _open_sqlite(file) as connection:
        topics = connection.execute('SELECT id, name, type, serialization_format FROM topics WHERE name = ?', wanted[:1]).fetchall()
        condition = f'topic_id IN ({", ".join(str(number) for number, *rest in topics if Channel.of(*rest) == wanted)})'
        for _, received, size, data in _timed_rows(connection, columns, condition):
            _check_size(file, size)
            if isinstance(data, bytes):
                yield received, data


def _timed_rows(connection: sqlite3.Connection, columns: str, condition: str) -> Iterator[tuple[Any, ...]]:
    """`_rows` in order of time. Most files have them in this order, and are read from one end to the other."""
    order = list[tuple[int, int]]()
    with suppress(sqlite3.DatabaseError):
        order += ((received, number) for number, received in _rows(connection, 'timestamp', condition))
    if all(before <= after for before, after in pairwise(order)):
        yield from _rows(connection, columns, condition)
        return
    for _, number in sorted(order):
        with suppress(sqlite3.DatabaseError):
            yield from connection.execute(f'SELECT id, {columns} FROM messages WHERE id = ?', (number,)).fetchall()


_McapMessage = tuple[int, Channel, bytes]  # received in ns, its channel, data perhaps compressed


class _Span(NamedTuple):
    """A chunk, or a message outside of chunks."""

    first: int  # received, ns
    last: int
    at: int  # offset of its record


class _Mcap:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._schemas: dict[int, str] = {}
        self._channels: dict[int, Channel] = {}
        self._counts: dict[int, int] = {}
        self._ended = False

    def messages(self) -> Iterator[_McapMessage]:
        """In order of time. Raises BagError at the end where the file is cut off."""
        spans = self.spans()
        with self._path.open('rb') as file:
            if all(before.last <= after.first for before, after in pairwise(spans)):
                file.seek(len(_MAGIC))
                yield from self._records(file)
            else:
                self._learn_channels(file)
                yield from by_time((span.first, partial(self._record_at, file, span.at)) for span in spans)
        if not self._ended:
            raise BagError(f'{self._path} is cut off: copy it again')

    @property
    def channels(self) -> list[Channel]:
        """Those that have been met so far."""
        return list(self._channels.values())

    def spans(self) -> list[_Span]:
        """What holds messages, in recorded order, by the heads of the records. Raises BagError where the file is no mcap file."""
        spans = list[_Span]()
        with self._path.open('rb') as file, suppress(struct.error):
            if (start := file.read(9))[:len(_MAGIC)] != _MAGIC:
                raise BagError(f'{self._path} does not begin as an mcap file' + (
                    ', but as a ROS 1 bag: name it .bag, and convert it with rosbags-convert' if start == _ROS1_MAGIC else ''))
            file.seek(at := len(_MAGIC))
            while len(head := file.read(9)) == 9:
                kind, size = struct.unpack('<BQ', head)
                if kind in (_DATA_END, _FOOTER):
                    break
                if kind == _CHUNK:
                    first, last = struct.unpack('<QQ', file.read(16))
                    spans.append(_Span(first, last, at))
                elif kind == _MESSAGE:
                    (received,) = struct.unpack_from('<Q', file.read(14), 6)
                    spans.append(_Span(received, received, at))
                file.seek(at := at + 9 + min(size, 2**62))
        return spans

    def _learn_channels(self, file: BinaryIO) -> None:
        """From the summary, or without it from all that is before the end: chunks name them where they are used first."""
        with suppress(*DAMAGE):
            self.summary()
            return
        file.seek(len(_MAGIC))
        deque(self._records(file), maxlen=0)

    def _record_at(self, file: BinaryIO, at: int) -> Iterator[_McapMessage]:
        """The messages of the record there."""
        file.seek(at)
        head = file.read(9)
        body = file.read(min(struct.unpack_from('<Q', head, 1)[0], max_unpacked() + 1))
        return self._records(BytesIO(head + body))

    def summary(self) -> Counter[Channel]:
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
        if not self._counts:  # by the format both the record and its map may be left out
            raise ValueError('the summary counts no messages')
        if not self._channels or not self._counts.keys() <= self._channels.keys():
            raise ValueError('the summary is not whole')
        counts = Counter(dict.fromkeys(self._channels.values(), 0))
        for number, messages_in_all in self._counts.items():
            counts[self._channels[number]] += messages_in_all
        return counts

    def _records(self, file: BinaryIO, in_chunk: bool = False) -> Iterator[_McapMessage]:
        """Messages of the file as recorded, or of a chunk, which holds no other chunks."""
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
                yield from sorted(self._chunk(body), key=lambda message: message[0])
            elif len(body) < size:
                return
            elif kind != _MESSAGE:
                self._keep(kind, body)
            else:
                number, _, received = struct.unpack_from('<HIQ', body)
                if number in self._channels:
                    yield received, self._channels[number], body[22:]

    def _keep(self, kind: int, body: bytes) -> None:
        """What a record says of all messages."""
        if kind == _SCHEMA:
            self._schemas[struct.unpack_from('<H', body)[0]] = _string(body, 2)[0]
        elif kind == _CHANNEL:
            number, schema = struct.unpack_from('<HH', body)
            name, end = _string(body, 4)
            self._channels[number] = Channel.of(name, self._schemas.get(schema, ''), _string(body, end)[0])
        elif kind == _STATISTICS:
            (length,) = struct.unpack_from('<I', body, 42)
            self._counts = dict(struct.iter_unpack('<HQ', body[46:46 + length]))

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
        raise BagError(f'{len(data)} bytes are no whole {compression} ({error}): they are damaged, copy the bag again') from None
    if len(content) > limit:
        del content  # the error would keep it in memory
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
