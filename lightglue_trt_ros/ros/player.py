"""The node of play_bag: images of one camera or several, with their CameraInfo, at the recorded or a chosen pace."""

from __future__ import annotations

import argparse
import heapq
import itertools
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from rclpy.duration import Duration
from rclpy.exceptions import InvalidTopicNameException
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import CameraInfo, CompressedImage, Image
from std_msgs.msg import Header

from ..core.cameras import camera_info_topic, without_transport
from ..core.images import eight_bits, gray_from_image
from ..core.types import UInt8
from ..datasets.bag_recording import BagRecording
from ..datasets.bag_writer import COMPRESSIONS, compressed_format, encode
from ..datasets.recordings import open_recording
from ..datasets.sequence import DEPTH_TOPIC, RIGHT_TOPIC, Frame, ImageRecord, Recording
from ..datasets.stereo_and_depth import depth_of, right_of
from ..utils.arguments import number, positive
from ..utils.commands import Ending, log
from ..utils.errors import BagError
from ..utils.processes import use_fastdds_profile
from .executor import ros_started

LATE_S = 0.005  # a frame that leaves this much after its time counts as late
SETTLE_S = 1.0  # for subscriptions to what goes along with the first camera's images
FLUSH_S = 3.5  # Fast DDS asks for acknowledgements every 3 s
SUFFIX = '/compressed'
PREFETCH = 8  # frames that are read, encoded and serialised ahead
JUDGED = 1000  # first CameraInfos that are compared before it plays


@dataclass(frozen=True)
class Packet:
    """The messages of one frame, serialised."""

    due_s: float  # after the start
    image: bytes
    info: bytes | None
    stamp_ns: int  # the image's
    camera: int = 0  # its number, the first one's is 0
    masks: tuple[bytes, ...] = ()  # recorded since the first camera's frame before


class PlayedCamera:
    """Serialises and publishes the messages of one camera: images, and CameraInfo where the recording has it."""

    def __init__(self, recording: Recording, compression: str | None, frame_id: str) -> None:
        self.recording, self._frame_id = recording, frame_id
        self._compression = None if recording.compressed else compression
        self._info = _camera_info(recording)
        self._compressed = recording.compressed or self._compression is not None

    def topics(self, asked: str | None) -> list[str]:
        """That of the images, `asked` for or the recorded one, and that of the CameraInfo where there is one."""
        recorded = self.recording.image_topic
        base = without_transport(asked or recorded)
        images = base + SUFFIX * self._compressed if asked or not self.recording.compressed else recorded
        return [images, *[camera_info_topic(base)] * (self._info is not None)]

    def advertise(self, node: Node, asked: str | None, qos: QoSProfile) -> None:
        """Make the publishers."""
        images, *infos = self.topics(asked)
        self.images = node.create_publisher(CompressedImage if self._compressed else Image, images, qos)
        self.infos = node.create_publisher(CameraInfo, infos[0], qos) if infos else None

    def publish(self, packet: Packet) -> None:
        if self.infos is not None:
            self.infos.publish(packet.info)
        self.images.publish(packet.image)

    def packet(self, frame: Frame, due_s: float, camera: int, masks: tuple[bytes, ...] = ()) -> Packet:
        return Packet(due_s, self._image(frame), self._info_for(frame), frame.stamp_ns, camera, masks)

    def _image(self, frame: Frame) -> bytes:
        if frame.raw is not None and self._compression is None:
            return frame.raw
        record = frame.load()
        recorded = getattr(record, 'header', None)
        header = _header(frame.stamp_ns, recorded.frame_id if recorded else self._frame_id)
        if self._compression is None:
            plain = Image(header=header, height=record.height, width=record.width, encoding=record.encoding, step=record.step,
                          is_bigendian=record.is_bigendian)
            plain.data.frombytes(record.data)
            return bytes(serialize_message(plain))
        image = _for_encoder(record)
        encoding = 'mono8' if image.ndim == 2 else 'bgr8'
        msg = CompressedImage(header=header, format=compressed_format(encoding, self._compression))
        msg.data.frombytes(encode(image, self._compression))
        return bytes(serialize_message(msg))

    def _info_for(self, frame: Frame) -> bytes | None:
        if self._info is None:
            return None
        self._info.header = _header(frame.stamp_ns, self._info.header.frame_id or self._frame_id)
        return bytes(serialize_message(self._info))


class PacketSource:
    """Packets of a recording in order, made by a thread that runs at most PREFETCH frames ahead.

    With `others`, cameras of the same recording, and its `depth` images, packets come in recorded order; those of one moment in
    this order.
    """

    def __init__(self, recording: Recording, rate: float = 1.0, hz: float | None = None, loop: bool = False,
                 compression: str | None = None, frame_id: str = 'camera', others: Sequence[Recording] = (),
                 masks: Recording | None = None, depth: Recording | None = None, max_frames: int | None = None) -> None:
        """`max_frames` limits the recorded images of the first camera."""
        self._masks, self._max_frames = masks, max_frames
        self._rate, self._hz, self._loop = rate, hz, loop
        self.cameras = [PlayedCamera(recording, compression, frame_id)]
        # folders alone have no frame ids of their own, and at most a right camera beside the first
        self.cameras += [PlayedCamera(each, compression, f'{frame_id}_right') for each in others]
        self.cameras += [] if depth is None else [PlayedCamera(depth, None, frame_id)]  # registered: in the first one's frame

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
                masks_before: list[bytes] = []
                while first and next_mask is not None and next_mask.received_ns <= frame.received_ns:
                    masks_before += [next_mask.raw] if next_mask.raw is not None else []
                    next_mask = next(masks, None)
                yield self.cameras[camera].packet(frame, due, camera, tuple(masks_before))
            if not self._loop:
                return

    def _frames(self) -> Iterator[tuple[Frame, int]]:
        streams = [zip(camera.recording.frames(), itertools.repeat(number)) for number, camera in enumerate(self.cameras)]
        return heapq.merge(*streams, key=lambda each: each[0].received_ns)


@dataclass
class Punctuality:
    """Number of published frames, and their delays."""

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


class Player(Node):  # type: ignore[misc]
    """The node: publishers of a camera or several, and of masks."""

    def __init__(self, args: argparse.Namespace, source: PacketSource, stop: threading.Event) -> None:
        super().__init__('play_bag', start_parameter_services=False)  # nothing spins, so nothing would answer
        qos = QoSProfile(depth=10, reliability=ReliabilityPolicy[args.reliability.upper()])
        self.cameras = source.cameras
        first, *others = self.cameras
        _check_topics([first.topics(args.topic), *(each.topics(None) for each in others)], args.mask_topic)
        for camera in self.cameras:
            camera.advertise(self, args.topic if camera is self.cameras[0] else None, qos)
        self._masks = self.create_publisher(Image, args.mask_topic, qos) if args.mask_topic else None
        self.punctuality = Punctuality()
        self._args, self._source, self._stop = args, source, stop

    def wait_for_line(self) -> None:
        """Return when standard input has a line, or when the player is stopped: by a signal, or by the end of that input."""
        if sys.stdin.isatty():
            log.info('press Enter to play')
        while not self._stop.is_set() and not select.select([sys.stdin], [], [], 0.02)[0]:
            pass
        if not self._stop.is_set() and not sys.stdin.readline():
            self._stop.set()

    def wait_for_subscribers(self) -> None:
        """Return when enough subscriptions exist, when the timeout is over, or when the player is stopped.

        The timeout is that of the first camera's images. Masks and further cameras get SETTLE_S more, because their subscriptions
        are optional, and the same node makes them at about the same time. So do the CameraInfo of several cameras: without the
        first of them the first depth image cannot be used.
        """
        wanted, timeout = self._args.wait_for_subscribers, self._args.subscriber_timeout
        first, *others = (camera.images for camera in self.cameras)
        name = first.topic_name
        if first.get_subscription_count() < wanted:
            log.info(f'waiting up to {timeout:g} s for {wanted} subscriber{"s" * (wanted > 1)} on {name}')
        if self._subscribed([first], timeout):
            infos = [camera.infos for camera in self.cameras] if others else []
            self._subscribed([*others, *filter(None, [*infos, self._masks])], SETTLE_S)
        elif not self._stop.is_set():
            log.info(f'{first.get_subscription_count()} of {wanted} subscribers on {name} after {timeout:g} s; '
                     'playing all the same')

    def _subscribed(self, publishers: list[Publisher], seconds: float) -> bool:
        """Wait that long for as many subscriptions as are wanted to each; whether they came."""
        deadline = time.monotonic() + seconds
        while any(each.get_subscription_count() < self._args.wait_for_subscribers for each in publishers):
            if time.monotonic() > deadline or self._stop.wait(0.02):
                return False
        return True

    def play(self, sent: TextIO | None = None) -> None:
        """Publish every packet at its time, and write its stamp and that time to the file `sent`.

        Raises what reading the recording raises.
        """
        self._stop.wait(self._args.start_delay)
        start: float | None = None
        for packet in self._source:
            start = time.monotonic() if start is None else start
            due = start + packet.due_s
            if (ahead := due - time.monotonic()) > 0:
                self._stop.wait(ahead)
            if self._stop.is_set():
                return
            if packet.camera:
                self.cameras[packet.camera].publish(packet)
                continue
            if self._masks is not None:
                for mask in packet.masks:
                    self._masks.publish(mask)
            self.punctuality.add(time.monotonic(), due)
            if sent is not None:
                sent.write(f'{packet.stamp_ns} {time.monotonic_ns()}\n')
            self.cameras[0].publish(packet)

    def flush(self) -> None:
        """Stay until reliable subscribers have acknowledged the last frames: from a publisher gone they get none again."""
        deadline, at_once = time.monotonic() + FLUSH_S, Duration(seconds=0)
        for publisher in filter(None, [self._masks, *(each for camera in self.cameras for each in (camera.images, camera.infos))]):
            while not publisher.wait_for_all_acked(at_once) and time.monotonic() < deadline and not self._stop.wait(0.02):
                pass


def play(argv: list[str] | None, ending: Ending) -> None:
    """Play the recording of the command line until a signal comes. Raises BagError when the recording cannot be played."""
    use_fastdds_profile()
    try:
        with ros_started(_parser(), argv, ending) as args:
            _play(args, ending.asked)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise BagError(str(error)) from error
    except InvalidTopicNameException as error:
        why = ' '.join(map(str.strip, str(error).splitlines()[:2]))  # the third line points at the letter
        raise BagError(f'{why}; --topic names another one') from None


def _play(args: argparse.Namespace, stop: threading.Event) -> None:
    recording = open_recording(args.path, args.image_topic)
    right = None if args.left_alone else right_of(recording, args.right_topic)
    others = [*filter(None, [right]), *(_more(recording, topic) for topic in args.more_topics)]
    masks = _masks(recording, args.mask_topic) if args.mask_topic else None
    depth = depth_of(recording, args.depth_topic) if args.depth or args.depth_topic else None
    source = PacketSource(recording, args.rate, args.hz, args.loop, args.compressed, args.frame_id, others, masks, depth,
                          args.max_frames)
    player = Player(args, source, stop)
    info = 'no CameraInfo' if player.cameras[0].infos is None else 'with CameraInfo'
    info += f', {len(masks)} masks on {args.mask_topic}' if masks is not None else ''
    frames = min(len(recording), args.max_frames or len(recording))
    topics = ' and '.join(camera.images.topic_name for camera in player.cameras)
    log.info(f'{recording.path}: {frames} frames on {topics}, {info}, {args.reliability}')
    played = [*filter(None, (recording, *others, masks, depth))]
    lines = (line for each in played for line in (*each.notes, each.calibration_note, _calibration_change(each, args.max_frames)))
    for line in filter(None, dict.fromkeys(lines)):
        log.info(line)
    if args.start_paused:
        player.wait_for_line()
    player.wait_for_subscribers()
    try:
        with _opened(args.sent) if args.sent else nullcontext() as sent:
            player.play(sent)
    finally:
        log.info(('stopped; ' if stop.is_set() else '') + str(player.punctuality))
        player.flush()
        player.destroy_node()


def _check_topics(cameras: Sequence[Sequence[str]], mask_topic: str | None) -> None:
    """Raise BagError where images or masks share a topic with something else; cameras may share that of their CameraInfo.

    `cameras` have the topic of their images first.
    """
    images = [f'/{topic.lstrip("/")}' for topic in (*(camera[0] for camera in cameras), *filter(None, [mask_topic]))]
    infos = {f'/{topic.lstrip("/")}' for camera in cameras for topic in camera[1:]}
    if taken := [topic for topic in images if images.count(topic) > 1 or topic in infos]:
        raise BagError(f'two streams would be played on {taken[0]}: name another topic with --topic')


def _opened(path: Path) -> TextIO:
    """Raises BagError."""
    try:
        return path.open('w')
    except OSError as error:
        raise BagError(f'{path} cannot be written ({error.strerror}): choose another file with --sent') from None


def _more(first: Recording, topic: str) -> Recording:
    """Another camera's images. Raises BagError."""
    other = first.other(topic) if isinstance(first, BagRecording) else first
    if other.image_topic == first.image_topic:
        raise BagError(f'{first.path} has no further camera on {topic}: name other topics of a bag than {first.image_topic}')
    return other


def _masks(images: Recording, topic: str) -> Recording:
    """Raises BagError."""
    masks = images.other(topic) if isinstance(images, BagRecording) else None
    if masks is None or masks.compressed:
        raise BagError(f'{images.path} has no masks to play on {topic}: a mask topic is one of Image, in a bag')
    return masks


def _calibration_change(recording: Recording, frames: int | None) -> str:
    """Of what is played, for people: each image gets the first CameraInfo; empty: it is the right one, or cannot be used."""
    with suppress(BagError):
        return recording.calibration_change(min(frames or JUDGED, JUDGED))
    return ''


def _camera_info(recording: Recording) -> Any:
    """A CameraInfo message, None where the recording has none. A recorded one is played even if it is no calibration."""
    if recording.camera_info is not None:
        return deserialize_message(recording.camera_info, CameraInfo)
    if recording.intrinsics is None:
        return None
    camera = recording.intrinsics
    return CameraInfo(width=camera.width, height=camera.height, distortion_model=camera.distortion_model, d=camera.d.tolist(),
                      k=camera.k.reshape(-1), r=camera.rectification.reshape(-1), p=camera.projection.reshape(-1))


def _for_encoder(record: Any) -> UInt8:
    """Gray (H, W) or BGR (H, W, 3) of an Image. Raises ImageEncodingError."""
    if isinstance(record, ImageRecord) and record.encoding == 'bgr16':  # of a folder
        return eight_bits(record.data.view(np.uint16).reshape(record.height, record.width, 3))
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog='play_bag', description='Publish the images and CameraInfo of a rosbag2 (directory, '
                                     '.db3, .mcap) or an image folder. Stamps are as recorded, also in repetitions.')
    parser.add_argument('path', help='bag or image folder')
    pace = parser.add_mutually_exclusive_group()
    pace.add_argument('--rate', type=positive, default=1.0, metavar='R', help='times the recorded pace, default: %(default)s')
    pace.add_argument('--hz', type=positive, metavar='N', help='frames per second, instead of the recorded pace')
    parser.add_argument('--image-topic', metavar='TOPIC', help='recorded topic to play, where a bag has several with images')
    parser.add_argument('--more-topics', type=lambda text: text.split(','), default=[], metavar='TOPIC,…',
                        help="recorded topics of further cameras' images: they are played as recorded")
    parser.add_argument('--mask-topic', metavar='TOPIC', help='also play these recorded masks, each with the first image after it')
    stereo = parser.add_mutually_exclusive_group()
    stereo.add_argument('--right-topic', metavar='TOPIC', help='recorded topic of the right images of a stereo pair: they are also '
                        'played; an image folder has them next to the left ones, and they are played on ' + RIGHT_TOPIC)
    stereo.add_argument('--left-alone', action='store_true', help='leave out the right images of an image folder')
    depth = parser.add_mutually_exclusive_group()
    depth.add_argument('--depth', action='store_true', help='also play the depth images: those of an image folder on '
                       f'{DEPTH_TOPIC}, of a bag those that are called depth and have the frame_id of the images')
    depth.add_argument('--depth-topic', metavar='TOPIC', help='recorded topic of the depth images: they are also played')
    parser.add_argument('--topic', help='topic to publish on (compressed images on TOPIC/compressed), default: as recorded')
    parser.add_argument('--compressed', nargs='?', const='jpeg', choices=COMPRESSIONS,
                        help='publish CompressedImage (jpeg unless named); what is recorded compressed is played as it is')
    parser.add_argument('--loop', action='store_true', help='start over at the end, until stopped')
    parser.add_argument('--max-frames', type=number(int, 1), metavar='N', help='play only the first N frames')
    parser.add_argument('--start-paused', action='store_true', help='wait for Enter (a line on standard input) before all else')
    parser.add_argument('--start-delay', type=number(float, 0, threading.TIMEOUT_MAX), default=0.2, metavar='S',
                        help='seconds before the first frame, after subscribers came, default: %(default)s')
    parser.add_argument('--wait-for-subscribers', type=number(int, 0), default=1, metavar='N',
                        help='default: %(default)s, 0: do not wait')
    parser.add_argument('--subscriber-timeout', type=number(float, 0, threading.TIMEOUT_MAX), default=10.0, metavar='S',
                        help='seconds after which it plays all the same, default: %(default)s')
    parser.add_argument('--reliability', choices=('reliable', 'best_effort'), default='reliable',
                        help='QoS, default: %(default)s, which every subscriber matches')
    parser.add_argument('--sent', type=Path, metavar='FILE',
                        help="write each image's stamp and the monotonic time of its sending there, nanoseconds")
    parser.add_argument('--frame-id', default='camera', help='header.frame_id where none was recorded, default: %(default)s')
    return parser
