"""What the image topics of a bag hold: one image in several transports, depth, or what this package drew and computed itself."""

from __future__ import annotations

import itertools
import re
import struct
import zlib
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np

from ..core.cameras import without_transport
from ..core.drawing import BAR, CHARACTER, MARGIN, WORD, drawing_unit, write_text
from ..core.images import DEPTH_ENCODINGS
from ..core.types import UInt8
from ..utils.errors import BagError
from ..utils.limits import decode_image, max_unpacked
from .bag_readers import unpacked
from .bag_storage import Storage, deserialize
from .sequence import COMPRESSED_DEPTH, COMPRESSED_IMAGE, IMAGE, Topic, holds_depth
from .units import samples_of_16_bits

ZSTD_FORMAT = 'zstd'  # of zstd_image_transport
_TRANSPORTS = ('', COMPRESSED_DEPTH, '/compressed', '/zstd')  # the first one that is there counts
_DARK, _ALIKE = 48, 0.8  # of a black bar of `draw_matches` and its text that JPEG has changed: gray levels, and correlation
_TRIED = 5  # messages, for one that can be read
_VIDEO = re.compile(r'h\.?26[45]|hevc|av1|vp[89]', re.IGNORECASE)  # formats of packets in a CompressedImage, as of Isaac ROS
_START_CODES = b'\0\0\0\1', b'\0\0\1'  # of H.264's and H.265's packets
_ZSTD_HEADER = struct.Struct('<IIBII')  # height, width, is_bigendian, step, length of the encoding


class ImageTopics:
    """The image topics of a bag that have messages."""

    def __init__(self, storage: Storage) -> None:
        self._storage, self._first = storage, dict[str, Any]()
        self.topics = [topic for topic in storage.topics
                       if topic.type in (IMAGE, COMPRESSED_IMAGE) and topic.encoding == 'cdr' and topic.count]

    def cameras(self) -> list[list[Topic]]:
        """The topics by the image that they carry, raw first. Its other transports follow, but none of a video."""
        images = itertools.filterfalse(self.is_video, self.topics)
        ordered = sorted(images, key=lambda topic: (without_transport(topic.name), transport_rank(topic.name), topic.name))
        return [list(group) for _, group in itertools.groupby(ordered, lambda topic: without_transport(topic.name))]

    def first(self, topic: Topic) -> Any:
        """The first message that can be read, of the first few; None where there is none."""
        if topic.name not in self._first:
            self._first[topic.name] = None
            with suppress(BagError):
                for _, raw in itertools.islice(self._storage.messages(topic), _TRIED):
                    with suppress(BagError):
                        self._first[topic.name] = load_image(unpacked(raw, topic.name), topic.type, topic.name)
                        break
        return self._first[topic.name]

    def holds_depth(self, topic: Topic) -> bool:
        """Whether its images are depth: by the first one, or by its name where that cannot be read."""
        message = self.first(topic)
        if message is None:
            return holds_depth(topic.name)
        if hasattr(message, 'format'):
            encoding = message.format.partition(';')[0].strip()
            return 'compressedDepth' in message.format or encoding in DEPTH_ENCODINGS or (
                encoding in ('png', 'mono16') and holds_depth(topic.name) and samples_of_16_bits(message) is not None)
        return message.encoding in DEPTH_ENCODINGS or (message.encoding == 'mono16' and holds_depth(topic.name))

    def is_video(self, topic: Topic) -> bool:
        """Whether its messages are packets of a video, which need those before them."""
        message: Any = self.first(topic) if topic.type == COMPRESSED_IMAGE else None
        return hasattr(message, 'format') and (
            _VIDEO.search(message.format) is not None or bytes(message.data[:4]).startswith(_START_CODES))

    def is_own(self, topic: Topic) -> bool:
        """Whether its images are those of ~/debug_image of the matcher node, by what they show."""
        picture = _bgr8(self.first(topic))
        return picture is not None and is_drawing(picture)


def is_drawing(picture: UInt8) -> bool:
    """Whether a bgr image (H, W, 3) is one of `draw_matches`, perhaps compressed since: its bar of text shows it."""
    unit = drawing_unit(picture)
    bar = np.ascontiguousarray(picture[-BAR * unit:, :16 * CHARACTER * unit, 0])
    expected = np.full((BAR * unit, 2 * len(WORD) * CHARACTER * unit, 3), _DARK, np.uint8)
    write_text(expected, WORD, unit)
    word = np.ascontiguousarray(expected[:, MARGIN * unit:len(WORD) * CHARACTER * unit, 0])
    if bar.shape[0] < word.shape[0] or bar.shape[1] < word.shape[1] or bar[:, :MARGIN * unit - 2].max() > _DARK:
        return False
    return bool(cv2.matchTemplate(bar, word, cv2.TM_CCOEFF_NORMED).max() > _ALIKE)


def transport_rank(topic: str) -> int:
    """The place of a topic's transport in the order in which they are preferred."""
    transport = topic[len(without_transport(topic)):]
    return _TRANSPORTS.index(transport) if transport in _TRANSPORTS else len(_TRANSPORTS)


def _bgr8(message: Any) -> UInt8 | None:
    """The pixels (H, W, 3) of an image of this encoding, and None of others, and of those that cannot be read."""
    if message is None or not (message.format if hasattr(message, 'format') else message.encoding).startswith('bgr8'):
        return None
    with suppress(ValueError, TypeError, cv2.error):
        if hasattr(message, 'format'):
            return np.asarray(decode_image(bytes(message.data), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION), np.uint8)
        return np.ndarray((message.height, message.width, 3), np.uint8, message.data, 0, (message.step, 3, 1))
    return None


def stamped(raw: bytes, stamp_ns: int) -> bytes:
    """The message in `raw` (CDR) with another header.stamp, as `stamp_of` reads it."""
    return raw[:4] + struct.pack('<iI' if raw[1] & 1 else '>iI', *divmod(stamp_ns, 10**9)) + raw[12:]


def load_image(raw: bytes, kind: str, where: str) -> Any:
    """The message in `raw` (CDR), of Image or CompressedImage; that of zstd_image_transport as Image. Raises BagError."""
    message = deserialize(raw, kind, where)
    if getattr(message, 'format', '') != ZSTD_FORMAT:
        return message
    data = bytes(message.data)
    try:
        height, width, is_bigendian, step, length = _ZSTD_HEADER.unpack_from(data)
        encoding, packed = data[17:17 + length].decode(), data[17 + length:]
        pixels = unpacked(packed, where)
        if pixels is packed:  # most versions write gzip
            unpacker = zlib.decompressobj(47)
            pixels = unpacker.decompress(packed, max_unpacked())
            if not unpacker.eof:
                raise zlib.error(f'cut off, or more than {max_unpacked() / 2**20:.0f} MiB')
    except (struct.error, UnicodeDecodeError, zlib.error, BagError) as error:
        raise BagError(f'{where}: {len(data)} bytes are no image of zstd_image_transport ({error}): check its sender') from None
    return SimpleNamespace(header=message.header, height=height, width=width, encoding=encoding, is_bigendian=is_bigendian,
                           step=step, data=np.frombuffer(pixels, np.uint8))
