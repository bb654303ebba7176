"""play_bag: publish the images of a rosbag2 or an image folder, with their CameraInfo, at the recorded or a chosen pace."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import rclpy
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message, serialize_message
from rclpy.signals import SignalHandlerOptions
from rclpy.utilities import remove_ros_args
from sensor_msgs.msg import CameraInfo, CompressedImage, Image
from std_msgs.msg import Header

from ..errors import BagError, LightglueTrtError
from ..features import UInt8
from ..images import fill_image, gray_from_image
from ..options import positive
from ..processes import use_fastdds_profile
from ..recordings.bag import BagRecording, camera_info_topic, open_recording
from ..recordings.bag_writer import COMPRESSIONS, compressed_format, encode
from ..recordings.sequence import Frame, Recording

PREFETCH = 8  # frames that are read, encoded and serialised ahead
LATE_S = 0.005  # a frame that leaves this much after its time counts as late
FLUSH_S = 3.5  # Fast DDS asks for acknowledgements every 3 s
SUFFIX = '/compressed'


@dataclass
class Punctuality:
    """What was published, and how punctually."""

    frames: int = 0
    late: int = 0
    worst_s: float = 0.0
    first_s: float = 0.0  # monotonic time of the first and the last frame
    last_s: float = 0.0

    def add(self, now: float, due: float) -> None:
        """Count a frame that left at `now` and should have left at `due`, monotonic seconds."""
        self.first_s, self.last_s = (now if not self.frames else self.first_s), now
        self.frames += 1
        self.late += now - due > LATE_S
        self.worst_s = max(self.worst_s, now - due)

    def __str__(self) -> str:
        span = self.last_s - self.first_s
        rate = f'{(self.frames - 1) / span:.2f} Hz' if span > 0 else 'no rate'
        return (f'published {self.frames} frames in {span:.2f} s, {rate}, {self.late} late by more than {LATE_S * 1e3:.0f} ms '
                f'(worst {self.worst_s * 1e3:.1f} ms)')


@dataclass(frozen=True)
class Packet:
    """What is published for one frame, serialised."""

    due_s: float  # after the start
    image: bytes
    info: bytes | None
    stamp_ns: int  # the image's
    masks: tuple[bytes, ...] = ()  # recorded since the frame before


class PacketSource:
    """Packets of a recording in order, made by a thread that runs at most PREFETCH frames ahead."""

    def __init__(self, recording: Recording, rate: float = 1.0, hz: float | None = None, loop: bool = False,
                 compression: str | None = None, frame_id: str = 'camera', masks: Recording | None = None) -> None:
        self._masks = masks
        self._recording, self._rate, self._hz, self._loop, self._frame_id = recording, rate, hz, loop, frame_id
        self._compression = None if recording.compressed else compression
        self.compressed = recording.compressed or compression is not None
        self._info = _camera_info(recording)
        self.has_info = self._info is not None  # each packet has

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
        due, number = 0.0, 0
        while True:
            previous: int | None = None
            masks = iter(()) if self._masks is None else self._masks.frames()
            next_mask = next(masks, None)
            for frame in self._recording.frames():
                if self._hz is not None:
                    due = number / self._hz
                elif previous is not None:
                    due += max(0, frame.received_ns - previous) * 1e-9 / self._rate
                elif number:  # a repetition: one mean period after the last frame
                    due += due / (number - 1) if number > 1 else 1.0 / self._rate
                previous = frame.received_ns
                number += 1
                seen: list[bytes] = []
                while next_mask is not None and next_mask.received_ns <= frame.received_ns:
                    seen += [next_mask.raw] if next_mask.raw is not None else []
                    next_mask = next(masks, None)
                yield Packet(due, self._image(frame), self._info_for(frame), frame.stamp_ns, tuple(seen))
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


class Player(Node):  # type: ignore[misc]
    """The node: a publisher of images, one of CameraInfo, one of masks."""

    def __init__(self, args: argparse.Namespace, recording: Recording, source: PacketSource, stop: threading.Event) -> None:
        super().__init__('play_bag', start_parameter_services=False)  # nothing spins, so nothing would answer
        reliability = ReliabilityPolicy.RELIABLE if args.reliability == 'reliable' else ReliabilityPolicy.BEST_EFFORT
        qos = QoSProfile(depth=10, reliability=reliability)
        base = (args.topic or recording.image_topic).removesuffix(SUFFIX)
        topic = base + SUFFIX * source.compressed
        if not args.topic and recording.compressed:
            topic = recording.image_topic
        self.images = self.create_publisher(CompressedImage if source.compressed else Image, topic, qos)
        self.infos = self.create_publisher(CameraInfo, camera_info_topic(base), qos) if source.has_info else None
        self.masks = self.create_publisher(Image, args.mask_topic, qos) if args.mask_topic else None
        self.punctuality = Punctuality()
        self._args, self._source, self._stop = args, source, stop

    def wait_for_subscribers(self) -> None:
        """Return when enough subscriptions exist, when the timeout is over, or when told to stop."""
        wanted, deadline = self._args.wait_for_subscribers, time.monotonic() + self._args.subscriber_timeout
        if not wanted or self.images.get_subscription_count() >= wanted:
            return
        name = self.images.topic_name
        _say(f'waiting up to {self._args.subscriber_timeout:g} s for {wanted} subscriber{"s" * (wanted > 1)} on {name}')
        while (count := self.images.get_subscription_count()) < wanted and not self._stop.wait(0.02):
            if time.monotonic() > deadline:
                _say(f'{count} of {wanted} subscribers on {name} after {self._args.subscriber_timeout:g} s; playing all the same')
                return

    def play(self, log: TextIO | None = None) -> None:
        """Publish every packet at its time; `log` gets its stamp and that time. Raises what reading the recording raises."""
        self._stop.wait(self._args.start_delay)
        start: float | None = None
        for packet in self._source:
            start = time.monotonic() if start is None else start
            due = start + packet.due_s
            if (ahead := due - time.monotonic()) > 0:
                self._stop.wait(ahead)
            if self._stop.is_set():
                return
            if self.infos is not None and packet.info is not None:
                self.infos.publish(packet.info)
            if self.masks is not None:
                for mask in packet.masks:
                    self.masks.publish(mask)
            self.punctuality.add(time.monotonic(), due)
            if log is not None:
                log.write(f'{packet.stamp_ns} {time.monotonic_ns()}\n')
            self.images.publish(packet.image)

    def flush(self) -> None:
        """Stay until reliable subscribers have acknowledged the last frames: from a publisher gone they get none again."""
        deadline, at_once = time.monotonic() + FLUSH_S, Duration(seconds=0)
        for publisher in filter(None, (self.images, self.infos, self.masks)):
            while not publisher.wait_for_all_acked(at_once) and time.monotonic() < deadline and not self._stop.wait(0.02):
                pass


def main(argv: list[str] | None = None) -> int:
    """Exit code 0 when all was played or a signal ended it, 1 with a message when the recording cannot be played."""
    argv = sys.argv[1:] if argv is None else argv
    args = _parse(remove_ros_args(argv))
    stop = threading.Event()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
    use_fastdds_profile()
    rclpy.init(args=argv, signal_handler_options=SignalHandlerOptions.NO)
    try:
        recording = open_recording(args.path, args.image_topic)
        masks = _masks(args.path, args.mask_topic) if args.mask_topic else None
        source = PacketSource(recording, args.rate, args.hz, args.loop, args.compressed, args.frame_id, masks)
        player = Player(args, recording, source, stop)
        info = 'with CameraInfo' if source.has_info else 'no CameraInfo'
        info += f', {len(masks)} masks on {args.mask_topic}' if masks is not None else ''
        _say(f'{recording.path}: {len(recording)} frames on {player.images.topic_name}, {info}, {args.reliability}')
        player.wait_for_subscribers()
        try:
            with args.sent.open('w') if args.sent else nullcontext() as log:
                player.play(log)
        finally:
            _say(('stopped; ' if stop.is_set() else '') + str(player.punctuality))
            player.flush()
            player.destroy_node()
    except (LightglueTrtError, OSError) as error:
        print(f'play_bag: {error}', file=sys.stderr)
        return 1
    finally:
        rclpy.try_shutdown()
    return 0


def _masks(path: str, topic: str) -> Recording:
    """Raises BagError."""
    recording = open_recording(path, topic)
    if not isinstance(recording, BagRecording) or recording.compressed:
        raise BagError(f'{recording.path} has no masks to play on {topic}: a mask topic is one of Image, in a bag')
    return recording


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


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='play_bag', description='Publish the images and CameraInfo of a rosbag2 (directory, '
                                     '.db3, .mcap) or an image folder. Stamps are as recorded, in repetitions too.')
    parser.add_argument('path', help='bag or image folder')
    pace = parser.add_mutually_exclusive_group()
    pace.add_argument('--rate', type=positive, default=1.0, metavar='R', help='times the recorded pace, default: %(default)s')
    pace.add_argument('--hz', type=positive, metavar='N', help='frames per second, instead of the recorded pace')
    parser.add_argument('--image-topic', metavar='TOPIC', help='recorded topic to play, where a bag has several with images')
    parser.add_argument('--mask-topic', metavar='TOPIC', help='play these recorded masks too, each with the first image after it')
    parser.add_argument('--topic', help='topic to publish on (compressed images on TOPIC/compressed), default: as recorded')
    parser.add_argument('--compressed', nargs='?', const='jpeg', choices=COMPRESSIONS,
                        help='publish CompressedImage (jpeg unless named); what is recorded compressed is played as it is')
    parser.add_argument('--loop', action='store_true', help='start over at the end, until stopped')
    parser.add_argument('--start-delay', type=_not_negative, default=0.2, metavar='S',
                        help='seconds before the first frame, after subscribers came, default: %(default)s')
    parser.add_argument('--wait-for-subscribers', type=int, default=1, metavar='N', help='default: %(default)s, 0: do not wait')
    parser.add_argument('--subscriber-timeout', type=_not_negative, default=10.0, metavar='S',
                        help='seconds after which it plays all the same, default: %(default)s')
    parser.add_argument('--reliability', choices=('reliable', 'best_effort'), default='reliable',
                        help='QoS, default: %(default)s, which every subscriber matches')
    parser.add_argument('--sent', type=Path, metavar='FILE',
                        help="write each image's stamp and the monotonic time of its sending there, nanoseconds")
    parser.add_argument('--frame-id', default='camera', help='header.frame_id where none was recorded, default: %(default)s')
    args = parser.parse_args(argv)
    if args.wait_for_subscribers < 0:
        parser.error('--wait-for-subscribers must be at least 0')
    return args


def _not_negative(text: str) -> float:
    value = float(text)
    if not 0 <= value < threading.TIMEOUT_MAX:
        raise argparse.ArgumentTypeError(f'{text} must not be negative')
    return value


def _say(text: str) -> None:
    print(f'play_bag: {text}', flush=True)


if __name__ == '__main__':
    sys.exit(main())
