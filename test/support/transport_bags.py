"""Bags with images in the transports of image_transport."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
from support.bags import COMPRESSED, IMAGE, compressed_image, image, write_messages


def packed(array: np.ndarray, encoding: str, pack: Any) -> tuple[str, bytes]:
    """Format and data as zstd_image_transport writes them."""
    head = struct.pack('<IIBII', *array.shape[:2], 0, array.shape[1] * array.itemsize, len(encoding)) + encoding.encode()
    return 'zstd', head + pack(array.tobytes())


def bag(path: Path, topics: dict[str, list[tuple[str, Any]]], frame_ids: dict[str, str] | None = None) -> Path:
    """A message each 0.1 s: of an array an Image of that encoding, of bytes a CompressedImage of that format."""
    made = {}
    for topic, messages in topics.items():
        kind, frame_id = IMAGE if isinstance(messages[0][1], np.ndarray) else COMPRESSED, (frame_ids or {}).get(topic, 'cam')
        stamped = [(10**9 + number * 10**8, *message) for number, message in enumerate(messages)]
        made[topic] = kind, [(stamp, image(stamp, frame_id, data, form) if kind == IMAGE else
                              compressed_image(stamp, frame_id, form, data)) for stamp, form, data in stamped]
    return write_messages(path, made)
