"""Bags of any messages, written by rosbags or byte by byte, and their files."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from lightglue_trt_ros.datasets.poses import quaternions_from_rotations
from lightglue_trt_ros.datasets.recordings import open_recording

IMAGE, COMPRESSED, CAMERA_INFO = (f'sensor_msgs/msg/{name}' for name in ('Image', 'CompressedImage', 'CameraInfo'))
TRANSFORM, TF = 'geometry_msgs/msg/TransformStamped', 'tf2_msgs/msg/TFMessage'
MCAP = b'\x89MCAP0\r\n'


@cache
def store() -> Any:
    from rosbags.typesys import Stores, get_typestore
    return get_typestore(Stores.ROS2_HUMBLE)


def new(kind: str, *fields: Any) -> Any:
    return store().types[kind](*fields)


def header(stamp_ns: int, frame_id: str) -> Any:
    return new('std_msgs/msg/Header', new('builtin_interfaces/msg/Time', *divmod(stamp_ns, 10**9)), frame_id)


def image(stamp_ns: int, frame_id: str, pixels: np.ndarray, encoding: str = 'mono8') -> Any:
    """An Image of pixels (H, W) or (H, W, C)."""
    rows = np.ascontiguousarray(pixels).view(np.uint8).reshape(len(pixels), -1)
    return new(IMAGE, header(stamp_ns, frame_id), *pixels.shape[:2], encoding, 0, rows.shape[1], rows.reshape(-1))


def compressed_image(stamp_ns: int, frame_id: str, form: str, data: bytes) -> Any:
    return new(COMPRESSED, header(stamp_ns, frame_id), form, np.frombuffer(data, np.uint8))


def transform(stamp_ns: int, parent: str, child: str, matrix: np.ndarray) -> Any:
    """A TransformStamped of (4, 4) parent from child."""
    q = quaternions_from_rotations(matrix[None, :3, :3])[0]
    return new(TRANSFORM, header(stamp_ns, parent), child, new(
        'geometry_msgs/msg/Transform', new('geometry_msgs/msg/Vector3', *matrix[:3, 3]), new('geometry_msgs/msg/Quaternion', *q)))


def write_messages(path: Path, topics: Mapping[str, tuple[str, Iterable[tuple[int, Any]]]], storage: str = 'sqlite3',
                   compress: str = '') -> Path:
    """A bag whose topics have a kind, and messages with the times of their reception in ns: `new` ones, or serialised.

    A kind that rosbags does not know has bytes. `compress` is what is compressed one by one: file, message or storage.
    """
    from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
    from rosbags.typesys import get_types_from_msg
    writer = Writer(path, version=9, storage_plugin=StoragePlugin[storage.upper()])
    if compress:
        writer.set_compression(CompressionMode[compress.upper()], CompressionFormat.ZSTD)
    with writer:
        for topic, (kind, messages) in topics.items():
            if kind not in store().types:
                store().register(get_types_from_msg('uint8[] data', kind))
            connection = writer.add_connection(topic, kind, typestore=store())
            for received_ns, message in messages:
                serialised = isinstance(message, (bytes, memoryview))
                writer.write(connection, received_ns, message if serialised else store().serialize_cdr(message, kind))
    return path


def serialised_images(path: Path) -> list[tuple[int, bytes]]:
    """The images of a bag as `write_messages` takes them."""
    return [(frame.received_ns, frame.raw or b'') for frame in open_recording(path).frames()]


def storage_file(bag: Path) -> Path:
    """The file with the messages; there is one."""
    file, = (file for file in bag.iterdir() if file.suffix in ('.db3', '.mcap'))
    return file


@contextmanager
def database(path: Path) -> Iterator[sqlite3.Connection]:
    """The tables of a bag, or of its file, to be changed."""
    with closing(sqlite3.connect(storage_file(path) if path.is_dir() else path)) as opened, opened:
        yield opened


def mcap_record(code: int, body: bytes) -> bytes:
    return struct.pack('<BQ', code, len(body)) + body


def mcap_text(value: str) -> bytes:
    return struct.pack('<I', len(value)) + value.encode()


def mcap_message(data: bytes) -> bytes:
    """Received at 1 s."""
    return mcap_record(5, struct.pack('<HIQQ', 1, 0, 10**9, 10**9) + data)


def mcap_chunk(packed: bytes, size: int, compression: str = 'zstd') -> bytes:
    """Records that have `size` bytes when they are unpacked."""
    return mcap_record(6, struct.pack('<QQQI', 10**9, 10**9, size, 0) + mcap_text(compression)
                       + struct.pack('<Q', len(packed)) + packed)


def mcap(*records: bytes, kind: str = IMAGE, topic: str = '/cam', encoding: str = 'cdr') -> bytes:
    """A file of one channel without an index, as a recorder leaves it that was killed."""
    schema = mcap_record(3, struct.pack('<H', 1) + mcap_text(kind) + mcap_text('ros2msg') + mcap_text(''))
    channel = mcap_record(4, struct.pack('<HH', 1, 1) + mcap_text(topic) + mcap_text(encoding) + mcap_text(''))
    return b''.join([MCAP, mcap_record(1, mcap_text('ros2') + mcap_text('')), schema, channel, *records,
                     mcap_record(15, bytes(4)), mcap_record(2, bytes(20)), MCAP])
