"""rosbag2 recordings (sqlite3 or mcap, compressed or not), read without ROS."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BagError
from .poses import Trajectory, poses_from
from .sequence import (
    CAMERA_INFO,
    COMPRESSED_IMAGE,
    IMAGE,
    IMAGE_TOPIC,
    POSE_STAMPED,
    POSE_TOPIC,
    FolderRecording,
    Frame,
    Intrinsics,
    Recording,
    Topic,
)

_STORAGE_SUFFIXES = ('.db3', '.mcap')


def open_recording(path: str | os.PathLike[str], image_topic: str | None = None) -> Recording:
    """Open a rosbag2 directory, a single .db3 or .mcap file, or an image folder (see sequence.FolderRecording).

    `image_topic` may be left out when the bag holds images on one topic. Raises BagError, with what was found.
    """
    path = Path(path)
    if not path.exists():
        raise BagError(f'{path} does not exist')
    if path.is_dir():
        if (path / 'images').is_dir() and not (path / 'metadata.yaml').exists():
            return FolderRecording(path, image_topic or IMAGE_TOPIC)
        path = _bag_in(path)
    elif path.suffix not in _STORAGE_SUFFIXES:
        advice = {'.bag': 'convert this ROS 1 bag with rosbags-convert', '.zstd': f'open its directory, {path.parent}'}
        raise BagError(f'{path} is no rosbag2 file (.db3, .mcap): {advice.get(path.suffix, "name a bag or an image folder")}')
    return BagRecording(path, image_topic)


def camera_info_topic(image_topic: str) -> str:
    """The topic beside an image topic that holds its CameraInfo: /camera/image_raw[/compressed] has /camera/camera_info."""
    return image_topic.removesuffix('/compressed').rpartition('/')[0] + '/camera_info'


class BagRecording(Recording):
    """One image topic of a rosbag2. Every pass opens the bag anew, so passes may run side by side."""

    def __init__(self, path: Path, image_topic: str | None = None) -> None:
        self.path = path
        with _reader(path) as reader:
            counts: dict[tuple[str, str], int] = {}
            for connection in reader.connections:
                key = (connection.topic, connection.msgtype)
                counts[key] = counts.get(key, 0) + connection.msgcount
        self.topics = tuple(Topic(name, kind, count) for (name, kind), count in sorted(counts.items()))
        self._topic = self._choose(image_topic)
        self.image_topic = self._topic.name

    def __len__(self) -> int:
        return self._topic.count

    def frames(self) -> Iterator[Frame]:
        """As Recording says. Raises BagError when the bag ends early, after the frames that it does hold."""
        number = 0
        for number, (received, raw) in enumerate(_messages(self.path, self._topic), 1):
            where = f'{self.path}, message {number} of {self._topic.name}'
            yield Frame(_stamp(raw, where), received, partial(_deserialize, raw, self._topic.type, where), raw)
        if number < len(self):
            raise BagError(f'{self.path} ends after {number} of the {len(self)} messages that it promises on {self._topic.name}: '
                           f'it was cut off; copy it again, or run `ros2 bag reindex`')

    @cached_property
    def camera_info(self) -> bytes | None:
        infos = [topic for topic in self.topics if topic.type == CAMERA_INFO and topic.count]
        beside = [topic for topic in infos if topic.name == camera_info_topic(self.image_topic)]
        if not beside and len(infos) != 1:
            return None
        return next((raw for _, raw in _messages(self.path, (beside or infos)[0])), None)

    @cached_property
    def intrinsics(self) -> Intrinsics | None:
        if self.camera_info is None:
            return None
        info = _deserialize(self.camera_info, CAMERA_INFO, f'{self.path}, its CameraInfo')
        try:
            return Intrinsics(info.width, info.height, np.array(info.k, np.float64).reshape(3, 3), info.distortion_model,
                              np.array(info.d, np.float64))
        except BagError as error:
            raise BagError(f'{self.path}: {error}') from None

    @cached_property
    def trajectory(self) -> Trajectory | None:
        topic = next((t for t in self.topics if (t.name, t.type) == (POSE_TOPIC, POSE_STAMPED) and t.count), None)
        if topic is None:
            return None
        stamps: list[int] = []
        rows: list[list[float]] = []
        for _, raw in _messages(self.path, topic):
            where = f'{self.path}, message {len(stamps) + 1} of {topic.name}'
            stamps.append(_stamp(raw, where))
            pose = _deserialize(raw, POSE_STAMPED, where).pose
            p, q = pose.position, pose.orientation
            rows.append([p.x, p.y, p.z, q.x, q.y, q.z, q.w])
        table = np.asarray(rows, np.float64).reshape(-1, 7)
        try:
            return Trajectory(np.asarray(stamps, np.int64), poses_from(table[:, :3], table[:, 3:]))
        except BagError as error:
            raise BagError(f'{self.path}, {topic.name}: {error}') from None

    def _choose(self, name: str | None) -> Topic:
        listing = '; '.join(map(str, self.topics)) or 'nothing'
        if name is not None:
            chosen = [topic for topic in self.image_topics if topic.name == name]
            if not chosen:
                raise BagError(f'{self.path} has no images on {name}. It holds: {listing}')
        else:
            chosen = [topic for topic in self.image_topics if topic.count]
            if not chosen:
                raise BagError(f'{self.path} holds no images ({IMAGE} or {COMPRESSED_IMAGE}). It holds: {listing}')
            if len(chosen) > 1:
                raise BagError(f'{self.path} holds {len(chosen)} image topics, choose one (--image-topic). It holds: {listing}')
        if not chosen[0].count:
            raise BagError(f'{self.path} has no message on {chosen[0].name}. It holds: {listing}')
        return chosen[0]


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


def _messages(path: Path, topic: Topic) -> Iterator[tuple[int, bytes]]:
    """(received in ns, CDR) in recorded order."""
    with _reader(path) as reader:
        wanted = [each for each in reader.connections if (each.topic, each.msgtype) == (topic.name, topic.type)]
        for _, received, raw in reader.messages(connections=wanted):
            yield received, bytes(raw)


def _stamp(raw: bytes, where: str) -> int:
    """header.stamp, where a message with a header begins: after 4 bytes of encapsulation, int32 seconds, uint32 nanoseconds."""
    if raw[:4] == b'\x28\xb5\x2f\xfd':
        raise BagError(f'{where} is compressed by itself: open the directory with metadata.yaml, not the single file')
    if len(raw) < 12 or raw[0] != 0:
        raise BagError(f'{where} is {len(raw)} bytes that are no serialised message: the bag is damaged')
    seconds, nanoseconds = struct.unpack_from('<iI' if raw[1] & 1 else '>iI', raw, 4)
    return int(seconds) * 10**9 + int(nanoseconds)


def _deserialize(raw: bytes, kind: str, where: str) -> Any:
    _, store = rosbags_modules()
    try:
        return store.deserialize_cdr(raw, kind)
    except Exception as error:
        raise BagError(f'{where} ({len(raw)} bytes) is no {kind}: {error}; the bag is damaged') from None


def _bag_in(path: Path) -> Path:
    """The bag of a directory; one whose recorder died has no metadata.yaml, and can be read while it is a single file."""
    if (path / 'metadata.yaml').exists():
        return path
    names = sorted(entry.name for entry in path.iterdir())
    files = [name for name in names if name.endswith(_STORAGE_SUFFIXES)]
    if len(files) == 1:
        return path / files[0]
    found = ', '.join(names[:8]) + (', …' if len(names) > 8 else '') if names else 'nothing'
    advice = '; make metadata.yaml with `ros2 bag reindex`' if files else ''
    raise BagError(f'{path} is neither a rosbag2 (metadata.yaml) nor an image folder (images/, timestamps.txt): '
                   f'it holds {found}{advice}')
