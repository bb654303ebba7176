"""The node's own cost over real DDS: image published to cloud received, two processes, no networks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import rclpy
from sensor_msgs.msg import Image, PointCloud2
from std_msgs.msg import Header

from ...core.images import fill_image
from ...datasets.flight import textured_frames
from ...utils.errors import LightglueTrtError
from ...utils.processes import memory_mib, start, stop, use_fastdds_profile
from ..executor import spun_by_a_thread

START_S = 20.0  # for the node to be found over DDS


@dataclass(frozen=True)
class NodeCost:
    """What `measure_node` saw."""

    published: int
    clouds: int  # all but the first frame's, when none is lost
    latency_ms: list[float]
    growth_mib: float  # of the node's resident memory, from the first tenth of the frames to the end

    @property
    def lost(self) -> int:
        return self.published - 1 - self.clouds


def measure_node(frames: int = 1000, rate: float = 100.0, height: int = 480, width: int = 640, *, echo: bool = False) -> NodeCost:
    """Publish mono8 images at `rate` Hz into a node of its own process; with `echo` into one that computes nothing at all.

    Raises LightglueTrtError when it does not come up.
    """
    use_fastdds_profile()
    rclpy.init()
    node = rclpy.create_node('benchmark')
    process = (start('ros.timing.echo_node') if echo else
               start('ros.timing.null_node', '--ros-args', '--log-level', 'warn', '-p', 'refinement:=none'))
    sent: dict[tuple[int, int], float] = {}
    latency: list[float] = []

    def receive(cloud: PointCloud2) -> None:
        latency.append((time.perf_counter() - sent[cloud.header.stamp.sec, cloud.header.stamp.nanosec]) * 1e3)

    node.create_subscription(PointCloud2, '/matcher/matches', receive, 10)
    publisher = node.create_publisher(Image, '/image', 10)
    try:
        with spun_by_a_thread(node):
            _wait(lambda: publisher.get_subscription_count() > 0 and node.count_publishers('/matcher/matches') > 0)
            time.sleep(0.5)  # discovery of the way back
            messages = [fill_image(Image(header=Header(frame_id='camera')), image, 'mono8')
                        for image in textured_frames(16, height, width)]
            early = max(frames // 10, 1)
            memory = begin = time.perf_counter()
            for i in range(frames):
                message = messages[i % len(messages)]
                message.header.stamp.sec, message.header.stamp.nanosec = divmod(round(1e9 + i * 1e9 / rate), 10**9)
                time.sleep(max(0.0, begin + i / rate - time.perf_counter()))
                sent[message.header.stamp.sec, message.header.stamp.nanosec] = time.perf_counter()
                publisher.publish(message)
                if i == early:
                    memory = memory_mib(process.pid)
            time.sleep(0.5)
            growth = memory_mib(process.pid) - memory
    finally:
        stop(process)
    return NodeCost(frames, len(latency), latency, growth)


def _wait(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_S
    while not ready():
        if time.monotonic() > deadline:
            raise LightglueTrtError(f'the node did not come up within {START_S:.0f} s: run it alone to see why')
        time.sleep(0.05)
