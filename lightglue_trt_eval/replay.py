"""Play a recording into the matcher node over DDS, player and node in processes of their own, and receive the clouds."""

from __future__ import annotations

import dataclasses
import itertools
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.signals import SignalHandlerOptions
from rclpy.utilities import remove_ros_args
from sensor_msgs.msg import PointCloud2

from lightglue_trt_ros.core.cameras import camera_info_topic, without_transport
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.types import FrameMatches
from lightglue_trt_ros.datasets.bag_recording import BagRecording
from lightglue_trt_ros.datasets.recordings import open_recording
from lightglue_trt_ros.datasets.sequence import COMPRESSED_DEPTH
from lightglue_trt_ros.ros.cloud_reader import matches_from_cloud
from lightglue_trt_ros.utils.errors import LightglueTrtError
from lightglue_trt_ros.utils.processes import start, stop, use_fastdds_profile

START_S = 60.0  # the node may take this long to become active
QUIET_S = 2.0  # without a cloud, at least, before the last one counts as lost
SECOND = 10**9

Arrival = tuple[int, int]  # a cloud's stamp and when it came, both in nanoseconds, the latter on the monotonic clock


@dataclass
class Reception:
    """The messages that came over DDS."""

    matches: list[FrameMatches] = field(default_factory=list)  # empty where `keep` got them
    arrivals: list[Arrival] = field(default_factory=list)  # one per cloud
    sent: dict[int, int] = field(default_factory=dict)  # stamps of the images that were played, and when
    diagnostics: dict[str, str] = field(default_factory=dict)  # the last figures of the node

    @property
    def latency_ms(self) -> list[float]:
        """Image sent to its cloud received, one per cloud; NaN where no image has its stamp."""
        return [(came - self.sent[stamp]) * 1e-6 if stamp in self.sent else float('nan') for stamp, came in self.arrivals]


def replay(path: Path, config: MatcherConfig, hz: float | None = None, *, rate: float = 1.0, image_topic: str | None = None,
           max_frames: int | None = None, mask: Path | None = None, keep: Callable[[FrameMatches], None] | None = None,
           depth_topic: str | None = None, image_bits: int = 16, stopped: Callable[[], bool] = lambda: False) -> Reception:
    """Play the bag or folder at `path` into a node of this configuration, `hz` frames per second or `rate` times the recorded pace.

    Player and node use a namespace of their own: a robot that runs at the same time does not receive these images.

    Args:
        max_frames: Play this many frames from the first on.
        mask: File for the node's `mask_file`.
        keep: Called with every cloud's matches, from another thread; without it the Reception holds them.
        depth_topic: Of the depth images, which are played along, in the recording.
        image_bits: The node's parameter: bits that the camera fills, of images of 16 bits.
        stopped: Once it returns true, the player ends.

    Raises:
        LightglueTrtError: The node does not become active.
        BagError: The recording cannot be read.
    """
    use_fastdds_profile()
    recording = open_recording(path, image_topic)
    namespace = f'/replay_{os.getpid()}'
    topic = f'{namespace}/{without_transport(recording.image_topic).strip("/")}'
    parameters = parameters_of(config, image_transport='compressed' if recording.compressed else 'raw',
                               **({} if mask is None else {'mask_file': mask.absolute()}),
                               **({} if image_bits == 16 else {'image_bits': image_bits}))
    pace = ['--rate', f'{rate:.6g}'] if hz is None else ['--hz', f'{hz:.3f}']
    pace += [] if max_frames is None else ['--max-frames', str(max_frames)]
    if depth_topic is not None:
        of_player, of_node = _depth_arguments(depth_topic, namespace, isinstance(recording, BagRecording))
        pace += of_player
        parameters += of_node
    with _receiving(f'{namespace}/matcher', keep) as reception, tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / 'sent'
        log.touch()
        with ExitStack() as ends:
            # Both at once: node and publishers find each other while the networks open, not after that.
            player = start('lightglue_trt_ros.cli.play_bag', str(path), '--image-topic', recording.image_topic, '--topic', topic,
                           '--left-alone', '--sent', str(log), '--start-paused', *pace, stdin=subprocess.PIPE)
            ends.callback(stop, player)
            matcher = start('lightglue_trt_ros.cli.matcher', '--ros-args', '-r', f'__ns:={namespace}', '-r', f'image:={topic}',
                            *parameters)
            ends.callback(stop, matcher)
            _wait_until_active(reception, matcher, stopped)
            assert player.stdin is not None
            with suppress(BrokenPipeError), player.stdin as line:  # a player that failed says why itself
                line.write(b'\n')
            while player.poll() is None and not stopped():
                time.sleep(0.02)
            stop(player)
            reception.sent = {int(stamp): int(when) for stamp, when in map(str.split, log.read_text().splitlines())}
            if not stopped():
                _drain(reception)
    return reception


def parameters_of(config: MatcherConfig, **more: object) -> list[str]:
    """ROS arguments for the settings that differ from their defaults, and for `more` parameters."""
    fields = ((field.name, getattr(config, field.name), field.default) for field in dataclasses.fields(config))
    values = {name: value for name, value, default in fields if value != default} | more
    return [word for name, value in values.items() for word in ('-p', f'{name}:={value}')]


def _depth_arguments(topic: str, namespace: str, in_bag: bool) -> tuple[list[str], list[str]]:
    """For the player and for the node: depth images and their CameraInfo come under `namespace`."""
    plain = without_transport(topic)
    renamed = [word for name in (topic, plain, camera_info_topic(plain)) for word in ('-r', f'{name}:={namespace}{name}')]
    transport = 'compressedDepth' if topic.endswith(COMPRESSED_DEPTH) else 'raw'
    return ([*(['--depth-topic', topic] if in_bag else ['--depth']), '--ros-args', *renamed],
            ['-p', 'depth:=true', '-p', f'depth_transport:={transport}', '-r', f'depth:={namespace}{plain}'])


@contextmanager
def _receiving(matcher: str, keep: Callable[[FrameMatches], None] | None) -> Iterator[Reception]:
    """Receive clouds and diagnostics of the node with the full name `matcher`."""
    reception = Reception()
    keep = keep or reception.matches.append

    def on_matches(cloud: PointCloud2) -> None:
        came, stamp = time.monotonic_ns(), cloud.header.stamp
        keep(matches_from_cloud(cloud))
        reception.arrivals.append((stamp.sec * SECOND + stamp.nanosec, came))

    def on_diagnostics(array: DiagnosticArray) -> None:
        own = (status for status in array.status if status.name.startswith(f'{matcher[1:]}:'))
        reception.diagnostics.update({value.key: value.value for status in own for value in status.values})

    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    node = Node('replay')
    node.create_subscription(PointCloud2, f'{matcher}/matches', on_matches, QoSProfile(depth=100))
    node.create_subscription(DiagnosticArray, '/diagnostics', on_diagnostics, 10)
    with spun_by_a_thread(node):
        yield reception


def _wait_until_active(reception: Reception, matcher: subprocess.Popen[bytes], stopped: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_S
    while reception.diagnostics.get('backend', 'none') == 'none' and not stopped():
        if error := reception.diagnostics.get('last error'):
            raise LightglueTrtError(f'the node is not active: {error}')
        if matcher.poll() is not None:
            raise LightglueTrtError(f'the node ended with exit code {matcher.poll()} before it was active: its log above says why')
        if time.monotonic() > deadline:
            raise LightglueTrtError(f'the node is not active after {START_S:.0f} s: its log above says why')
        time.sleep(0.05)


def _drain(reception: Reception) -> None:
    """Wait for the last image's cloud, or until none has come for QUIET_S and twice the longest time between two of them."""
    last = next(reversed(reception.sent), None)
    count, since = len(reception.arrivals), time.monotonic()
    times = [came for _, came in reception.arrivals]
    longest = max((b - a for a, b in itertools.pairwise(times)), default=0) / SECOND
    while time.monotonic() - since < QUIET_S + 2 * longest and not (reception.arrivals and reception.arrivals[-1][0] == last):
        time.sleep(0.05)
        if len(reception.arrivals) != count:
            count, since = len(reception.arrivals), time.monotonic()


@contextmanager
def spun_by_a_thread(node: Node) -> Iterator[None]:
    """The node's callbacks run in a thread; at the end node and context are gone."""
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    thread = threading.Thread(target=executor.spin, daemon=True)
    thread.start()
    try:
        yield
    finally:
        executor.shutdown()
        thread.join(2.0)
        node.destroy_node()
        rclpy.try_shutdown()


def without_ros_args(words: list[str]) -> list[str]:
    """A command line without the --ros-args that a launch file adds."""
    return list(remove_ros_args(words))
