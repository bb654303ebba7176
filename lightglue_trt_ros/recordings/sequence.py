"""Recordings: what a bag and an image folder have in common, and image folders themselves."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from ..errors import BagError
from ..features import UInt8
from .poses import Float64, Trajectory, parse_stamp, read_tum

IMAGE = 'sensor_msgs/msg/Image'
COMPRESSED_IMAGE = 'sensor_msgs/msg/CompressedImage'
CAMERA_INFO = 'sensor_msgs/msg/CameraInfo'
POSE_STAMPED = 'geometry_msgs/msg/PoseStamped'
IMAGE_TOPIC = '/camera/image_raw'
POSE_TOPIC = '/ground_truth/pose'
SUFFIXES = ('.png', '.jpg', '.jpeg', '.bmp', '.pgm', '.ppm', '.tif', '.tiff', '.webp')


@dataclass(frozen=True)
class Topic:
    """One topic of a recording."""

    name: str
    type: str  # as ROS 2 spells it, e.g. sensor_msgs/msg/Image
    count: int  # messages

    def __str__(self) -> str:
        return f'{self.name} ({self.type}, {self.count} messages)'


@dataclass(frozen=True)
class Frame:
    """One image of a recording, not read or decoded yet."""

    stamp_ns: int  # header.stamp, nanoseconds
    received_ns: int  # when the recorder wrote it; the stamp where nobody recorded that
    load: Callable[[], Any]  # an object with the fields of sensor_msgs/Image or CompressedImage; raises BagError
    raw: bytes | None = None  # the message as serialised in the bag (CDR), None in a folder


@dataclass(frozen=True)
class ImageRecord:
    """The fields of sensor_msgs/Image, for images that never were a message."""

    height: int
    width: int
    encoding: str  # mono8 or bgr8
    step: int  # bytes per row
    data: UInt8  # (height * step,)
    is_bigendian: int = 0

    @classmethod
    def from_array(cls, image: UInt8) -> ImageRecord:
        """Wrap gray (H, W) or BGR (H, W, 3) uint8. Raises BagError for anything else."""
        if image.dtype != np.uint8 or image.size == 0 or not (image.ndim == 2 or (image.ndim == 3 and image.shape[2] == 3)):
            raise BagError(f'an image of shape {image.shape} and type {image.dtype}: uint8 (H, W) or (H, W, 3) can be recorded')
        height, width = image.shape[:2]
        channels = 1 if image.ndim == 2 else 3
        return cls(height, width, 'mono8' if channels == 1 else 'bgr8', width * channels, np.ascontiguousarray(image).reshape(-1))


@dataclass(frozen=True, eq=False)
class Intrinsics:
    """A pinhole camera, as sensor_msgs/CameraInfo describes it. Raises BagError when it cannot be one."""

    width: int  # pixels
    height: int
    k: Float64  # (3, 3), pixels
    distortion_model: str  # plumb_bob, rational_polynomial or equidistant
    d: Float64  # (n,)

    def __post_init__(self) -> None:
        if self.width <= 0 or self.height <= 0:
            raise BagError(f'the intrinsics are for {self.width}x{self.height} pixels')
        if self.k.shape != (3, 3) or not np.isfinite(self.k).all() or not np.isfinite(self.d).all():
            raise BagError(f'the intrinsics are not finite: K = {self.k.tolist()}, D = {self.d.tolist()}; calibrate the camera')
        if not (self.k[0, 0] > 0 and self.k[1, 1] > 0 and self.k[2, 2] == 1):
            raise BagError(f'the intrinsics are K = {self.k.tolist()}: the camera is not calibrated')


class Recording(ABC):
    """Frames of one camera in recorded order, with what else is known about it. Made by `bag.open_recording`."""

    path: Path
    topics: tuple[Topic, ...]
    image_topic: str

    @property
    def compressed(self) -> bool:
        """Whether frames load as CompressedImage."""
        return any(topic.name == self.image_topic and topic.type == COMPRESSED_IMAGE for topic in self.topics)

    @property
    def image_topics(self) -> tuple[Topic, ...]:
        """The topics that hold images."""
        return tuple(topic for topic in self.topics if topic.type in (IMAGE, COMPRESSED_IMAGE))

    @abstractmethod
    def __len__(self) -> int:
        """Number of frames."""

    @abstractmethod
    def frames(self) -> Iterator[Frame]:
        """Iterate from the first frame on; one frame is in memory at a time. Raises BagError."""

    @property
    @abstractmethod
    def intrinsics(self) -> Intrinsics | None:
        """The camera's, None where nothing was recorded. Raises BagError when NaN, infinite or not calibrated."""

    @property
    @abstractmethod
    def trajectory(self) -> Trajectory | None:
        """Ground truth, None where there is none. Raises BagError when it cannot be read."""

    @property
    def camera_info(self) -> bytes | None:
        """The first recorded sensor_msgs/CameraInfo, serialised (CDR); None in a folder."""
        return None


class FolderRecording(Recording):
    """images/ beside timestamps.txt (seconds, a line per image in the order of names), groundtruth.txt (TUM), calib.yaml.

    Raises BagError when there is no image, or when timestamps.txt does not fit.
    """

    def __init__(self, path: Path, image_topic: str = IMAGE_TOPIC) -> None:
        self.path, self.image_topic = path, image_topic
        folder = path / 'images'
        found = sorted(entry.name for entry in folder.iterdir() if entry.is_file()) if folder.is_dir() else []
        self.files = sorted((folder / name for name in found if name.lower().endswith(SUFFIXES)), key=_natural)
        if not self.files:
            what = f'holds no image ({len(found)} other files)' if folder.is_dir() else 'does not exist'
            raise BagError(f'{folder} {what}: an image folder has images/*.png (or {", ".join(SUFFIXES[1:])}) and timestamps.txt')
        self.stamps_ns = _read_stamps(path / 'timestamps.txt', len(self.files), folder)
        self.topics = (Topic(image_topic, IMAGE, len(self.files)),)

    def __len__(self) -> int:
        return len(self.files)

    def frames(self) -> Iterator[Frame]:
        for file, stamp in zip(self.files, self.stamps_ns, strict=True):
            yield Frame(stamp, stamp, partial(_load, file))

    def images(self) -> Iterator[tuple[int, UInt8]]:
        """Iterate over (stamp in ns, image): gray (H, W) or BGR (H, W, 3) uint8, as the file is. Raises BagError."""
        for file, stamp in zip(self.files, self.stamps_ns, strict=True):
            yield stamp, read_image(file)

    @cached_property
    def intrinsics(self) -> Intrinsics | None:
        path = self.path / 'calib.yaml'
        return _read_calib(path) if path.exists() else None

    @cached_property
    def trajectory(self) -> Trajectory | None:
        path = self.path / 'groundtruth.txt'
        return read_tum(path) if path.exists() else None


def read_image(path: Path) -> UInt8:
    """Read an image file as gray (H, W) or BGR (H, W, 3) uint8, EXIF orientation ignored; deeper ones lose their low bits.

    Raises BagError.
    """
    try:
        data = np.fromfile(path, np.uint8)
        text = data.tobytes()
        # some OpenCV versions return the upper part of a JPEG that has no end marker
        cut_off = not text or (text.startswith(b'\xff\xd8\xff') and text.rfind(b'\xff\xd9') < text.rfind(b'\xff\xda'))
        image = None if cut_off else cv2.imdecode(data, cv2.IMREAD_ANYCOLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    except (OSError, cv2.error) as error:
        raise BagError(f'cannot read {path}: {error}') from None
    if image is None:
        raise BagError(f'{path} ({data.size} bytes) is not an image, or is cut off: '
                       'replace it, or delete it and its line in timestamps.txt')
    return np.asarray(image, np.uint8)


def _load(path: Path) -> ImageRecord:
    return ImageRecord.from_array(read_image(path))


def _natural(path: Path) -> list[tuple[int, str]]:
    """Frame 10 comes after frame 9, with zeros in front or without."""
    return [(int(part), '') if part.isdigit() else (-1, part) for part in re.split(r'([0-9]+)', path.name)]


def _read_stamps(path: Path, count: int, images: Path) -> list[int]:
    try:
        lines = path.read_text(encoding='utf-8').splitlines()
    except FileNotFoundError:
        raise BagError(f'{path} does not exist: write one stamp per image into it, in seconds, in order of names') from None
    except (OSError, UnicodeDecodeError) as error:
        raise BagError(f'cannot read {path}: {error}') from None
    stamps: list[int] = []
    for number, line in enumerate(lines, 1):
        if text := line.split('#')[0].strip():
            try:
                stamps.append(parse_stamp(text))
            except ValueError as error:
                raise BagError(f'{path}, line {number}: {error}') from None
    if len(stamps) != count:
        raise BagError(f'{path} has {len(stamps)} stamps, {images} has {count} images: they must be as many')
    return stamps


def _read_calib(path: Path) -> Intrinsics:
    """Read model: pinhole, width, height, fx, fy, cx, cy, dist: [...], distortion: equidistant|anything else."""
    import yaml
    try:
        calib = yaml.safe_load(path.read_text(encoding='utf-8'))
        if not isinstance(calib, dict) or str(calib.get('model', 'pinhole')) != 'pinhole':
            raise ValueError('it must be a mapping, with model: pinhole')
        fx, fy, cx, cy = (float(calib[name]) for name in ('fx', 'fy', 'cx', 'cy'))
        d = np.asarray(calib.get('dist') or [], np.float64)
        fisheye = str(calib.get('distortion', '')).lower().startswith(('equidistant', 'fisheye'))
        model = 'equidistant' if fisheye else 'rational_polynomial' if d.size == 8 else 'plumb_bob'
        k = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]], np.float64)
        return Intrinsics(int(calib['width']), int(calib['height']), k, model, d)
    except KeyError as error:
        raise BagError(f'{path} has no {error.args[0]}: it needs width, height, fx, fy, cx, cy') from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValueError, TypeError, BagError) as error:
        raise BagError(f'{path}: {error}') from None
