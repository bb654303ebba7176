"""Play a recording into the node as it is launched for real, each in a process of its own, and receive what it publishes."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import CompressedImage, Image, PointCloud2

from ..errors import LightglueTrtError
from ..features import FrameMatches
from ..messages import matches_from_cloud, stamp_seconds
from ..processes import start, stop, use_fastdds_profile
from ..recordings.bag import open_recording

START_S = 60.0  # the node may take this long to become active


@dataclass
class Reception:
    """What came over DDS."""

    matches: list[FrameMatches] = field(default_factory=list)
    latency_ms: list[float] = field(default_factory=list)  # image received here to its cloud received here; NaN without image
    images: int = 0
    last_stamp: float = 0.0  # of the newest image, seconds
    diagnostics: dict[str, str] = field(default_factory=dict)  # the last figures of the node


def replay(path: Path, settings: dict[str, Any], hz: float) -> Reception:
    """Play the bag or folder at `path` with `hz` frames per second into a node with these parameters.

    Raises LightglueTrtError when the node does not become active, BagError for the recording.
    """
    use_fastdds_profile()
    recording = open_recording(path)
    topic = recording.image_topic.removesuffix('/compressed')
    settings = {**settings, 'image_transport': 'compressed' if recording.compressed else 'raw'}
    parameters = [item for name, value in settings.items() for item in ('-p', f'{name}:={value}')]
    with _listening(recording.image_topic, recording.compressed) as got:
        matcher = start('cli.matcher', '--ros-args', '-r', f'image:={topic}', *parameters)
        player = None
        try:
            _wait_until_active(got, matcher)
            player = start('cli.play_bag', str(path), '--hz', f'{hz:.3f}', '--wait-for-subscribers', '2')
            player.wait()
            _drain(got, 2.0 + 2.0 / hz)
        finally:
            for process in (player, matcher):
                if process is not None:
                    stop(process)
    return got


@contextmanager
def _listening(image_topic: str, compressed: bool) -> Iterator[Reception]:
    got, arrivals = Reception(), dict[tuple[int, int], float]()

    def on_image(message: Any) -> None:
        got.images += 1
        got.last_stamp = stamp_seconds(message.header)
        arrivals[message.header.stamp.sec, message.header.stamp.nanosec] = time.perf_counter()

    def on_matches(cloud: PointCloud2) -> None:
        arrived = arrivals.get((cloud.header.stamp.sec, cloud.header.stamp.nanosec), float('nan'))
        got.latency_ms.append((time.perf_counter() - arrived) * 1e3)
        got.matches.append(matches_from_cloud(cloud))

    def on_diagnostics(array: DiagnosticArray) -> None:
        got.diagnostics.update({value.key: value.value for status in array.status for value in status.values})

    rclpy.init()
    node = Node('replay')
    node.create_subscription(CompressedImage if compressed else Image, image_topic, on_image, qos_profile_sensor_data)
    node.create_subscription(PointCloud2, '/matcher/matches', on_matches, 10)
    node.create_subscription(DiagnosticArray, '/diagnostics', on_diagnostics, 10)
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    listener = threading.Thread(target=executor.spin, daemon=True)
    listener.start()
    try:
        yield got
    finally:
        executor.shutdown()
        listener.join(2.0)
        node.destroy_node()
        rclpy.try_shutdown()


def _wait_until_active(got: Reception, matcher: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S
    while got.diagnostics.get('backend', 'none') == 'none':
        if matcher.poll() is not None or time.monotonic() > deadline:
            raise LightglueTrtError(f'the node is not active after {START_S:.0f} s: its log above says why')
        time.sleep(0.05)


def _drain(got: Reception, quiet_s: float) -> None:
    """Wait for the last image's cloud, or until no cloud has come for `quiet_s` seconds."""
    count, since = len(got.matches), time.monotonic()
    while time.monotonic() - since < quiet_s and not (got.matches and got.matches[-1].stamp >= got.last_stamp):
        time.sleep(0.05)
        if len(got.matches) != count:
            count, since = len(got.matches), time.monotonic()
