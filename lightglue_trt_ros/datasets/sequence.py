"""Recordings: what a bag and an image folder have in common."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from ..core.cameras import Intrinsics
from ..core.images import eight_bits
from ..core.types import UInt8
from ..utils.errors import BagError
from ..utils.files import lfs_advice
from ..utils.limits import decode_image

IMAGE = 'sensor_msgs/msg/Image'
COMPRESSED_IMAGE = 'sensor_msgs/msg/CompressedImage'
CAMERA_INFO = 'sensor_msgs/msg/CameraInfo'
POSE_STAMPED = 'geometry_msgs/msg/PoseStamped'
IMAGE_TOPIC = '/camera/image_raw'
RIGHT_TOPIC = '/camera_right/image_raw'
DEPTH_TOPIC = '/camera/depth/image_raw'
POSE_TOPIC = '/ground_truth/pose'
COMPRESSED_DEPTH = '/compressedDepth'  # at the end of a topic of compressed_depth_image_transport
_NETPBM = re.compile(rb'P[2356](?:\s|#[^\n]*\n)+\d+(?:\s|#[^\n]*\n)+\d+(?:\s|#[^\n]*\n)+(\d{1,5})\s')  # its maxval
_PLAIN = (b'P2', b'P3')  # Netpbm in text
_DEPTH = re.compile(r'(^|[/_])(compressed)?depth(?![a-z])', re.IGNORECASE)  # a word in a topic's name


@dataclass(frozen=True)
class Topic:
    """One topic of a recording."""

    name: str
    type: str  # as ROS 2 spells it, e.g. sensor_msgs/msg/Image
    count: int  # messages
    encoding: str = 'cdr'  # of its messages: cdr is ROS 2's

    def __str__(self) -> str:
        return f'{self.name} ({self.type}, {self.count} messages)'


@dataclass(frozen=True)
class Frame:
    """One image of a recording, not read or decoded yet."""

    stamp_ns: int  # header.stamp, nanoseconds
    received_ns: int  # when the recorder wrote it; the stamp where nobody recorded that
    load: Callable[[], Any]  # an object with the fields of sensor_msgs/Image or CompressedImage; raises BagError
    raw: bytes | None = None  # the message as serialised in the bag (CDR), None in a folder
    number: int = 0  # its place in the recording, from 0; frames that cannot be read have places too


@dataclass(frozen=True)
class ImageRecord:
    """The fields of sensor_msgs/Image, for images that never were a message."""

    height: int
    width: int
    encoding: str  # mono8, bgr8, mono16, bgr16, or of depth 16UC1 and 32FC1
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

    @classmethod
    def from_samples(cls, samples: NDArray[Any]) -> ImageRecord:
        """Wrap what `read_samples` returns: as `from_array`, and 16 bits as mono16 or bgr16. Raises BagError."""
        if samples.dtype != np.uint16:
            return cls.from_array(np.asarray(samples, np.uint8))
        height, width = samples.shape[:2]
        data = np.ascontiguousarray(samples).view(np.uint8).reshape(-1)
        return cls(height, width, 'mono16' if samples.ndim == 2 else 'bgr16', len(data) // height, data)

    @classmethod
    def from_depth(cls, pixels: NDArray[Any]) -> ImageRecord:
        """Wrap a depth image (H, W): uint16 in millimetres or float32 in metres. Raises BagError for anything else."""
        encoding = {'uint16': '16UC1', 'float32': '32FC1'}.get(pixels.dtype.name)
        if encoding is None or pixels.ndim != 2 or pixels.size == 0:
            raise BagError(f'a depth image of shape {pixels.shape} and type {pixels.dtype}: uint16 or float32 (H, W) can be '
                           'recorded')
        height, width = pixels.shape
        data = np.ascontiguousarray(pixels).view(np.uint8).reshape(-1)
        return cls(height, width, encoding, width * pixels.itemsize, data)


class Recording(ABC):
    """Frames of one camera in recorded order, with what else is known about it. Made by `bag.open_recording`."""

    path: Path
    topics: tuple[Topic, ...]
    image_topic: str
    bits: int = 16  # that the camera fills, of images of 16 bits
    depth_scale: float | None = None  # units to a metre of depth images; None: as their encoding or layout has it

    @property
    def compressed(self) -> bool:
        """Whether frames load as CompressedImage."""
        return any(topic.name == self.image_topic and topic.type == COMPRESSED_IMAGE for topic in self.topics)

    @property
    def image_topics(self) -> tuple[Topic, ...]:
        """The topics that hold images."""
        return tuple(topic for topic in self.topics if topic.type in (IMAGE, COMPRESSED_IMAGE) and topic.encoding == 'cdr')

    @abstractmethod
    def __len__(self) -> int:
        """Number of frames."""

    @abstractmethod
    def frames(self, on_bad: Callable[[int, BagError], None] | None = None) -> Iterator[Frame]:
        """Iterate from the first frame on; one frame is in memory at a time. Raises BagError.

        A message that is none is told to `on_bad`, with its number, and left out; without `on_bad` it raises.
        """

    @property
    @abstractmethod
    def intrinsics(self) -> Intrinsics | None:
        """The camera's, None where nothing was recorded. Raises BagError when NaN, infinite or not calibrated."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines for people: files that are absent, and what was chosen of several."""
        return ()

    @property
    def calibration_note(self) -> str:
        """Why no recorded calibration is used, or a doubt about the one that is, for people; empty: nothing to tell."""
        return ''

    def calibration_change(self, most: int | None = None) -> str:
        """A line for people where the recorded calibration changes within its first `most` messages (None: all), or empty."""
        return ''

    @property
    def right(self) -> Recording | None:
        """The right images of the same moments, where the recording says by itself which these are."""
        return None

    @property
    def depth(self) -> Recording | None:
        """The depth images registered to these, where the recording says by itself which these are. They load as Image of 16UC1
        or 32FC1, or as CompressedImage of compressedDepth."""
        return None

    @property
    def camera_info(self) -> bytes | None:
        """The sensor_msgs/CameraInfo that `intrinsics` are of, or the first if none is usable, serialised; None in a folder."""
        return None


def readable_frames(recording: Recording, on_loss: Callable[[str], None]) -> Iterator[Frame]:
    """Iterate over the frames of a recording that may be damaged, in recorded order, not loaded yet.

    Messages that are no images are left out, and a recording that breaks off ends there. `on_loss` gets a line for each of the
    two, with counts, when the iteration ends or is closed. Never raises BagError; what a frame's `load` raises is the caller's.
    """
    unreadable: list[tuple[int, BagError]] = []
    read, end = 0, ''
    try:
        for frame in recording.frames(lambda number, error: unreadable.append((number, error))):
            read += 1
            yield frame
    except BagError as error:
        end = str(error)
    finally:
        count = read + len(unreadable)
        total = max(len(recording), count)
        if unreadable:
            number, reason = unreadable[0]
            on_loss(f'{len(unreadable)} of {total} frames cannot be used; the first is frame {number}: {reason}')
        if end:
            lost = f'{total - count} of {total} frames are lost' if total > count else \
                f'the recording breaks off after {count} frames, how many followed is not known'
            on_loss(f'{lost}: {end}')


def read_image(path: Path, bits: int = 16) -> UInt8:
    """`read_samples` as uint8: of 16 bits the low ones are lost, or with `bits` those above them. Raises BagError."""
    samples = read_samples(path)
    return eight_bits(samples, bits) if samples.dtype == np.uint16 else np.asarray(samples, np.uint8)


def read_samples(path: Path) -> NDArray[Any]:
    """Read an image file as gray (H, W) or BGR (H, W, 3), uint8 or uint16, EXIF orientation ignored.

    Where a PGM or PPM names another maxval than 255 or 65535, it is scaled to 8 bits by that. Raises BagError.
    """
    try:
        data = path.read_bytes()
        image = decode_image(data, cv2.IMREAD_ANYCOLOR | cv2.IMREAD_ANYDEPTH | cv2.IMREAD_IGNORE_ORIENTATION)
    except (OSError, ValueError, cv2.error) as error:
        raise BagError(f'cannot read {path}: {error}') from None
    if image is None:
        raise BagError(lfs_advice(path) or
                       f'{path} ({len(data)} bytes) is not an image, or is cut off: replace it, or delete it and its stamp')
    if image.dtype not in (np.uint8, np.uint16):  # their range is not known
        raise BagError(f'{path} has samples of {image.dtype}: write images of 8 or 16 bits')
    if (maxval := _maxval(data)) is None or (image.dtype == np.uint8 and data[:2] in _PLAIN):  # OpenCV has scaled these
        return image
    return np.asarray(cv2.convertScaleAbs(image, alpha=255 / maxval), np.uint8)


def _maxval(data: bytes) -> int | None:
    """The maxval of a PGM or PPM where it is neither 255 nor 65535; None of other files."""
    header = _NETPBM.match(data)
    maxval = int(header[1]) if header else 255
    return maxval if 0 < maxval < 65535 and maxval != 255 else None


def read_depth(path: Path) -> NDArray[np.uint16]:
    """Read a depth image (H, W): a gray PNG of 16 bits, in the unit of its recording. Raises BagError."""
    try:
        data = path.read_bytes()
        image = decode_image(data, cv2.IMREAD_UNCHANGED)
    except (OSError, ValueError, cv2.error) as error:
        raise BagError(f'cannot read {path}: {error}') from None
    if image is None:
        raise BagError(lfs_advice(path) or f'{path} ({len(data)} bytes) is not an image, or is cut off: replace it')
    if image.dtype != np.uint16 or image.ndim != 2:
        raise BagError(f'{path} has {8 * image.itemsize} bits and {image[0, 0].size} channels: depth is a gray PNG of 16 bits; '
                       'write the distances themselves, not a picture of them')
    return np.asarray(image, np.uint16)


def holds_depth(topic: str) -> bool:
    """Whether a topic of images holds depth, by the words of its name."""
    return _DEPTH.search(topic) is not None
