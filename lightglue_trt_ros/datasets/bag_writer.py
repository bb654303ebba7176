"""Write recordings as rosbag2 (sqlite3 or mcap), without ROS."""

from __future__ import annotations

import heapq
import os
import shutil
import sqlite3
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from ..core.cameras import Intrinsics, camera_info_topic
from ..core.types import UInt8
from ..utils.errors import BagError
from .bag_storage import rosbags_modules
from .poses import Trajectory, quaternions_from_rotations
from .sequence import (
    CAMERA_INFO,
    COMPRESSED_IMAGE,
    DEPTH_TOPIC,
    IMAGE,
    IMAGE_TOPIC,
    POSE_STAMPED,
    POSE_TOPIC,
    RIGHT_TOPIC,
    ImageRecord,
)

STORAGES = ('sqlite3', 'mcap')
COMPRESSIONS = ('jpeg', 'png')
VERSIONS = (8, 9)  # of metadata.yaml


def write_bag(path: str | os.PathLike[str], frames: Iterable[tuple[int, UInt8]], intrinsics: Intrinsics | None = None,
              trajectory: Trajectory | None = None, *, image_topic: str = IMAGE_TOPIC, frame_id: str = 'camera',
              storage: str = 'sqlite3', version: int = 9, compressed: str | None = None, force: bool = False,
              right: tuple[Iterable[tuple[int, UInt8]], Intrinsics | None] | None = None,
              depth: Iterable[tuple[int, NDArray[Any]]] | None = None, progress: Callable[[int], None] | None = None) -> int:
    """Write a rosbag2 directory and return the number of frames.

    `frames` yields (stamp in ns, image), gray (H, W) or BGR (H, W, 3) uint8. They are recorded as mono8 or bgr8 on `image_topic`,
    or with `compressed` (jpeg, png) as CompressedImage on `image_topic`/compressed. Each has a CameraInfo; the poses are on
    /ground_truth/pose. `right` has frames and intrinsics of the right camera of a stereo pair, recorded on /camera_right/image_raw.
    `depth` yields (stamp in ns, depth image registered to the frames), uint16 (H, W) in millimetres or float32 in metres: they are
    recorded as Image on /camera/depth/image_raw, with the same CameraInfo. `progress` is called with the count after each frame.
    The bag appears under its name once it is whole.

    Raises BagError, and whatever `frames` raises.
    """
    path = Path(path)
    if storage not in STORAGES or version not in VERSIONS or compressed not in (None, *COMPRESSIONS):
        raise BagError(f'storage {storage!r}, version {version!r}, compressed {compressed!r}: '
                       f'use one of {STORAGES}, of {VERSIONS}, of {(None, *COMPRESSIONS)}')
    rosbag2, store = rosbags_modules()
    from rosbags.rosbag2 import StoragePlugin
    plugin, make = StoragePlugin[storage.upper()], _Messages(store, frame_id)
    poses = deque([] if not trajectory else zip(trajectory.stamps_ns.tolist(), make.poses(trajectory), strict=True))
    kind = COMPRESSED_IMAGE if compressed else IMAGE
    count, clock = 0, 0
    with _whole(path, force) as target, rosbag2.Writer(target, version=version, storage_plugin=plugin) as writer:
        record = partial(make.image, compressed=compressed)
        left = _Side(writer, store, image_topic, kind, frames, intrinsics, record)
        sides = [left]
        if right is not None:
            sides.append(_Side(writer, store, RIGHT_TOPIC, kind, *right, record))
        if depth is not None:
            sides.append(_Side(writer, store, DEPTH_TOPIC, IMAGE, depth, intrinsics, make.depth))
        ground_truth = writer.add_connection(POSE_TOPIC, POSE_STAMPED, typestore=store) if poses else None
        for stamp, image, side in heapq.merge(*sides, key=lambda each: each[0]):
            clock = max(clock, stamp)  # a bag is read in the order of these times: stamps that step back must not reorder it
            while poses and poses[0][0] <= clock:
                writer.write(ground_truth, *poses.popleft())
            if side.intrinsics is not None:
                writer.write(side.infos, clock, make.info(stamp, side.intrinsics))
            writer.write(side.images, clock, side.record(stamp, image))
            count += side is left
            if progress is not None:
                progress(count)
        if not count:
            raise BagError(f'there are no frames to write to {path}')
        for stamp, raw in poses:
            writer.write(ground_truth, stamp, raw)
    return count


class _Side:
    """The frames of one camera, and the connections that they are written to."""

    def __init__(self, writer: Any, store: Any, topic: str, kind: str, frames: Iterable[tuple[int, NDArray[Any]]],
                 intrinsics: Intrinsics | None, record: Callable[[int, NDArray[Any]], memoryview]) -> None:
        """`record` serialises an image with its stamp."""
        self._frames, self.intrinsics, self.record = frames, intrinsics, record
        self.images = writer.add_connection(topic + '/compressed' * (kind == COMPRESSED_IMAGE), kind, typestore=store)
        self.infos = writer.add_connection(camera_info_topic(topic), CAMERA_INFO, typestore=store) if intrinsics else None

    def __iter__(self) -> Iterator[tuple[int, NDArray[Any], _Side]]:
        return ((stamp, image, self) for stamp, image in self._frames)


@contextmanager
def _whole(path: Path, force: bool) -> Iterator[Path]:
    """A scratch folder for the bag, which moves to `path` when the block ends well and is removed otherwise."""
    if path.exists() and not force:
        raise BagError(f'{path} exists: choose another name, or overwrite it with --force')
    if path.exists() and not (path / 'metadata.yaml').is_file():
        raise BagError(f'{path} exists and is not a rosbag2 directory: it is never overwritten')
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f'.{path.name}.', dir=path.parent))
    except OSError as error:
        raise BagError(f'cannot write {path}: {error}') from None
    try:
        yield scratch / path.name  # the storage file inside is named after its directory, so the scratch is a parent
        if path.exists():
            os.replace(path, scratch / 'replaced')
        os.replace(scratch / path.name, path)
    except (OSError, sqlite3.Error) as error:
        raise BagError(f'cannot write {path}: {error}') from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


class _Messages:
    """Makes serialised messages (CDR)."""

    def __init__(self, store: Any, frame_id: str) -> None:
        self.store, self.types, self.frame_id = store, store.types, frame_id

    def image(self, stamp: int, image: UInt8, compressed: str | None) -> memoryview:
        record = ImageRecord.from_array(image)
        if compressed is None:
            return self._image(stamp, record)
        form = compressed_format(record.encoding, compressed)
        return self._make(COMPRESSED_IMAGE, self._header(stamp), form, encode(image, compressed))

    def depth(self, stamp: int, pixels: NDArray[Any]) -> memoryview:
        return self._image(stamp, ImageRecord.from_depth(pixels))

    def info(self, stamp: int, camera: Intrinsics) -> memoryview:
        region = self.types['sensor_msgs/msg/RegionOfInterest'](0, 0, 0, 0, False)
        return self._make(CAMERA_INFO, self._header(stamp), camera.height, camera.width, camera.distortion_model, camera.d,
                          camera.k.reshape(-1), camera.rectification.reshape(-1), camera.projection.reshape(-1), 0, 0, region)

    def poses(self, trajectory: Trajectory) -> Iterator[memoryview]:
        point, quaternion, pose = (self.types[f'geometry_msgs/msg/{name}'] for name in ('Point', 'Quaternion', 'Pose'))
        quaternions = quaternions_from_rotations(trajectory.poses[:, :3, :3]).tolist()
        for stamp, t, q in zip(trajectory.stamps_ns.tolist(), trajectory.poses[:, :3, 3].tolist(), quaternions, strict=True):
            yield self._make(POSE_STAMPED, self._header(stamp, 'world'), pose(point(*t), quaternion(*q)))

    def _image(self, stamp: int, record: ImageRecord) -> memoryview:
        return self._make(IMAGE, self._header(stamp), record.height, record.width, record.encoding, 0, record.step, record.data)

    def _header(self, stamp: int, frame_id: str | None = None) -> Any:
        time = self.types['builtin_interfaces/msg/Time'](*divmod(stamp, 10**9))
        return self.types['std_msgs/msg/Header'](time, self.frame_id if frame_id is None else frame_id)

    def _make(self, kind: str, *fields: Any) -> memoryview:
        raw: memoryview = self.store.serialize_cdr(self.types[kind](*fields), kind)
        return raw


def encode(image: UInt8, compression: str) -> UInt8:
    """The bytes (n,) uint8 of a JPEG (quality 95) or PNG of gray (H, W) or BGR (H, W, 3) uint8. Raises BagError."""
    done, data = cv2.imencode('.jpg' if compression == 'jpeg' else '.png', image)
    if not done:
        raise BagError(f'OpenCV cannot encode an image of shape {image.shape} as {compression}: record it without --compressed')
    return np.asarray(data, np.uint8).reshape(-1)


def compressed_format(encoding: str, compression: str) -> str:
    """CompressedImage.format as image_transport's compressed plugin writes and parses it."""
    return f'{encoding}; {compression} compressed {encoding}'
