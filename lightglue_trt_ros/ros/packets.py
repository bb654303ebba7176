"""Recordings as messages: the images of one camera or of several with their CameraInfos, serialised, at their times."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import CameraInfo, CompressedImage, Image
from std_msgs.msg import Header

from ..core.images import fill_image, gray_from_image
from ..core.types import UInt8
from ..datasets.bag_writer import compressed_format, encode
from ..datasets.sequence import Frame, Recording

PREFETCH = 8  # frames that are read, encoded and serialised ahead


@dataclass(frozen=True)
class Packet:
    """What is published for one frame, serialised."""

    due_s: float  # after the start
    image: bytes
    info: bytes | None
    stamp_ns: int  # the image's
    camera: int = 0  # its number, the first one's is 0
    masks: tuple[bytes, ...] = ()  # recorded since the first camera's frame before


class CameraMessages:
    """What the frames of one camera become."""

    def __init__(self, recording: Recording, compression: str | None, frame_id: str) -> None:
        self.recording, self._frame_id = recording, frame_id
        self._compression = None if recording.compressed else compression
        self.compressed = recording.compressed or compression is not None
        self._info = _camera_info(recording)
        self.has_info = self._info is not None  # each packet has

    def packet(self, frame: Frame, due_s: float, camera: int, masks: tuple[bytes, ...] = ()) -> Packet:
        return Packet(due_s, self._image(frame), self._info_for(frame), frame.stamp_ns, camera, masks)

    def _image(self, frame: Frame) -> bytes:
        if frame.raw is not None and self._compression is None:
            return frame.raw
        record = frame.load()
        recorded = getattr(record, 'header', None)
        header = _header(frame.stamp_ns, recorded.frame_id if recorded else self._frame_id)
        if self._compression is None:
            return _bytes(fill_image(Image(header=header), record.data.reshape(record.height, record.width, -1), record.encoding))
        image = _for_encoder(record)
        encoding = 'mono8' if image.ndim == 2 else 'bgr8'
        msg = CompressedImage(header=header, format=compressed_format(encoding, self._compression))
        msg.data.frombytes(encode(image, self._compression))
        return _bytes(msg)

    def _info_for(self, frame: Frame) -> bytes | None:
        if self._info is None:
            return None
        self._info.header = _header(frame.stamp_ns, self._info.header.frame_id or self._frame_id)
        return _bytes(self._info)


class PacketSource:
    """Packets of a recording in order, made by a thread that runs at most PREFETCH frames ahead.

    With `others`, cameras of the same recording, all come in the order in which they were recorded, and of one moment in theirs.
    """

    def __init__(self, recording: Recording, rate: float = 1.0, hz: float | None = None, loop: bool = False,
                 compression: str | None = None, frame_id: str = 'camera', others: Sequence[Recording] = (),
                 masks: Recording | None = None, max_frames: int | None = None) -> None:
        """With `max_frames`, up to that many recorded images of the first camera."""
        self._masks, self._max_frames = masks, max_frames
        self._rate, self._hz, self._loop = rate, hz, loop
        self.cameras = [CameraMessages(recording, compression, frame_id)]
        # folders alone have no frame ids of their own, and at most a right camera beside the first
        self.cameras += [CameraMessages(each, compression, f'{frame_id}_right') for each in others]

    def __iter__(self) -> Iterator[Packet]:
        packets = self._packets()
        with ThreadPoolExecutor(1) as pool:
            ahead = deque(pool.submit(next, packets, None) for _ in range(PREFETCH))
            try:
                while (packet := ahead.popleft().result()) is not None:
                    ahead.append(pool.submit(next, packets, None))
                    yield packet
            finally:
                for waiting in ahead:
                    waiting.cancel()
                pool.submit(packets.close)  # by the thread that opened the bag

    def _packets(self) -> Generator[Packet, None, None]:
        due, number = 0.0, 0  # of the first camera's frames
        while True:
            previous: int | None = None
            masks = iter(()) if self._masks is None else self._masks.frames()
            next_mask = next(masks, None)
            for frame, camera in self._frames():
                first = camera == 0
                if first and self._max_frames is not None and frame.number >= self._max_frames:
                    break
                if self._hz is not None:
                    due = number / self._hz if first else max(number - 1, 0) / self._hz  # others with the first one's before them
                elif previous is not None:
                    due += max(0, frame.received_ns - previous) * 1e-9 / self._rate
                elif number:  # a repetition: one mean period after the last frame
                    due += due / (number - 1) if number > 1 else 1.0 / self._rate
                previous = frame.received_ns
                number += first
                seen: list[bytes] = []
                while first and next_mask is not None and next_mask.received_ns <= frame.received_ns:
                    seen += [next_mask.raw] if next_mask.raw is not None else []
                    next_mask = next(masks, None)
                yield self.cameras[camera].packet(frame, due, camera, tuple(seen))
            if not self._loop:
                return

    def _frames(self) -> Iterator[tuple[Frame, int]]:
        streams = [zip(camera.recording.frames(), itertools.repeat(number)) for number, camera in enumerate(self.cameras)]
        return heapq.merge(*streams, key=lambda each: each[0].received_ns)


def _camera_info(recording: Recording) -> Any:
    """A CameraInfo message, None where the recording has none. What a bag holds is played even if it is no calibration."""
    if recording.camera_info is not None:
        return deserialize_message(recording.camera_info, CameraInfo)
    if recording.intrinsics is None:
        return None
    camera = recording.intrinsics
    return CameraInfo(width=camera.width, height=camera.height, distortion_model=camera.distortion_model, d=camera.d.tolist(),
                      k=camera.k.reshape(-1), r=camera.rectification.reshape(-1), p=camera.projection.reshape(-1))


def _for_encoder(record: Any) -> UInt8:
    """Gray (H, W) or BGR (H, W, 3) of an Image. Raises ImageEncodingError."""
    channels = {'bgr8': 3, '8UC3': 3, 'rgb8': 3}.get(record.encoding)
    if channels is None:
        return gray_from_image(record)
    gray_from_image(record)  # it checks that size, step and data fit
    rows = np.frombuffer(record.data, np.uint8)[:record.step * record.height].reshape(record.height, record.step)
    image = rows[:, :channels * record.width].reshape(record.height, record.width, channels)
    return np.ascontiguousarray(image[..., ::-1] if record.encoding == 'rgb8' else image)


def _header(stamp_ns: int, frame_id: str) -> Any:
    header = Header(frame_id=frame_id)
    header.stamp.sec, header.stamp.nanosec = divmod(stamp_ns, 10**9)
    return header


def _bytes(msg: Any) -> bytes:
    return bytes(serialize_message(msg))
