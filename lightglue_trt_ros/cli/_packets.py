"""Recorded frames as serialised messages, made ahead of the time at which play_bag publishes them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import CameraInfo, CompressedImage, Image
from std_msgs.msg import Header

from ..features import UInt8
from ..images import fill_image, gray_from_image
from ..recordings.bag_writer import compressed_format, encode
from ..recordings.sequence import Frame, Recording

PREFETCH = 8  # frames that are read, encoded and serialised ahead


@dataclass(frozen=True)
class Packet:
    """What is published for one frame, serialised."""

    due_s: float  # after the start
    image: bytes
    info: bytes | None
    stamp_ns: int  # the image's


class Source:
    """Packets of a recording in order, made by a thread that runs at most PREFETCH frames ahead."""

    def __init__(self, recording: Recording, rate: float = 1.0, hz: float | None = None, loop: bool = False,
                 compression: str | None = None, frame_id: str = 'camera') -> None:
        self._recording, self._rate, self._hz, self._loop, self._frame_id = recording, rate, hz, loop, frame_id
        self._compression = None if recording.compressed else compression
        self.compressed = recording.compressed or compression is not None
        self._info = _camera_info(recording)
        self._queue: queue.Queue[Packet | Exception | None] = queue.Queue(PREFETCH)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._fill, name='prefetch', daemon=True)

    @property
    def has_info(self) -> bool:
        """Whether each packet holds a CameraInfo."""
        return self._info is not None

    def __enter__(self) -> Source:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join()

    def __iter__(self) -> Iterator[Packet]:
        while not isinstance(item := self._queue.get(), Exception):
            if item is None:
                return
            yield item
        raise item

    def _fill(self) -> None:
        try:
            for packet in self._packets():
                if not self._put(packet):
                    return
            self._put(None)
        except Exception as error:
            self._put(error)

    def _put(self, item: Packet | Exception | None) -> bool:
        while not self._closed.is_set():
            try:
                self._queue.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def _packets(self) -> Iterator[Packet]:
        due, number = 0.0, 0
        while True:
            previous: int | None = None
            for frame in self._recording.frames():
                if self._hz is not None:
                    due = number / self._hz
                elif previous is not None:
                    due += max(0, frame.received_ns - previous) * 1e-9 / self._rate
                elif number:  # a repetition: one mean period after the last frame
                    due += due / (number - 1) if number > 1 else 1.0 / self._rate
                previous = frame.received_ns
                number += 1
                yield Packet(due, self._image(frame), self._info_for(frame), frame.stamp_ns)
            if not self._loop:
                return

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


def _camera_info(recording: Recording) -> Any:
    """A CameraInfo message, None where the recording has none. What a bag holds is played even if it is no calibration."""
    if recording.camera_info is not None:
        return deserialize_message(recording.camera_info, CameraInfo)
    if recording.intrinsics is None:
        return None
    camera = recording.intrinsics
    p = np.hstack([camera.k, np.zeros((3, 1))])
    return CameraInfo(width=camera.width, height=camera.height, distortion_model=camera.distortion_model, d=camera.d.tolist(),
                      k=camera.k.reshape(-1), r=np.eye(3).reshape(-1), p=p.reshape(-1))


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
