"""Bags with images in the transports of image_transport."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

IMAGE, COMPRESSED = 'sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage'


def packed(array: np.ndarray, encoding: str, pack: Any) -> tuple[str, bytes]:
    """Format and data as zstd_image_transport writes them."""
    head = struct.pack('<IIBII', *array.shape[:2], 0, array.shape[1] * array.itemsize, len(encoding)) + encoding.encode()
    return 'zstd', head + pack(array.tobytes())


def bag(path: Path, topics: dict[str, list[tuple[str, Any]]], frame_ids: dict[str, str] | None = None) -> Path:
    """A message each 0.1 s: of an array an Image of that encoding, of bytes a CompressedImage of that format."""
    from rosbags.rosbag2 import Writer
    from rosbags.typesys import Stores, get_typestore
    store = get_typestore(Stores.ROS2_HUMBLE)
    with Writer(path, version=9) as writer:
        for topic, messages in topics.items():
            kind = IMAGE if isinstance(messages[0][1], np.ndarray) else COMPRESSED
            connection = writer.add_connection(topic, kind, typestore=store)
            for number, (form, data) in enumerate(messages):
                header = store.types['std_msgs/msg/Header'](store.types['builtin_interfaces/msg/Time'](1, number * 10**8),
                                                            (frame_ids or {}).get(topic, 'cam'))
                if kind == IMAGE:
                    step = data.shape[1] * data.itemsize * (data.shape[2] if data.ndim == 3 else 1)
                    message = store.types[kind](header, *data.shape[:2], form, 0, step,
                                                np.ascontiguousarray(data).view(np.uint8).reshape(-1))
                else:
                    message = store.types[kind](header, form, np.frombuffer(data, np.uint8))
                writer.write(connection, 10**9 + number * 10**8, store.serialize_cdr(message, kind))
    return path
