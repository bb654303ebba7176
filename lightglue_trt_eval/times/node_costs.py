"""Costs of the node over real DDS: of one without networks, and of several cameras on one node against a node each."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from subprocess import Popen

import numpy as np
import rclpy
from rclpy.node import Node
from sensor_msgs.msg import CameraInfo, Image, PointCloud2
from std_msgs.msg import Header

from lightglue_trt_ros.backends.cuda import Cuda
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.images import fill_image
from lightglue_trt_ros.utils.errors import EngineError, LightglueTrtError
from lightglue_trt_ros.utils.processes import memory_mib, start, stop, use_fastdds_profile

from ..demo.flight import textured_frames
from ..replay import parameters_of, spun_by_a_thread

ONE, MANY = 'one node', 'a node each'
SETTINGS = ('-p', 'max_gap_s:=60.0')  # on a slow machine a camera's turn comes after more than a second
OPENING_S = 120.0  # for the networks of all nodes
IDLE_S = 2.0  # without a cloud: the nodes are done with their last frames
PERIOD = 32  # frames of the texture; then it drifts back
START_S = 20.0  # for the node to be found over DDS


@dataclass(frozen=True)
class NodeCost:
    """Clouds, latency, CPU time and memory of one node without networks."""

    published: int
    clouds: int  # all but the first frame's, when none is lost
    latency_ms: list[float]
    cpu_ms: float  # of all cores for a frame, from the first tenth of the frames to the end
    growth_mib: float  # of the node's resident memory, from the first tenth of the frames to the end

    @property
    def lost(self) -> int:
        return self.published - 1 - self.clouds


@dataclass
class RigCost:
    """Memory, time and latency of several cameras, on one node or on a node each."""

    memory_mib: float = 0.0  # of the nodes' processes, what they share counted once
    device_mib: float = 0.0  # of the GPU's memory; 0 without one
    seconds: float = 0.0
    cpu_s: float = 0.0  # of all cores
    latency_ms: list[list[float]] = field(default_factory=list)  # by camera, image published to cloud received

    @property
    def fps(self) -> list[float]:
        """Clouds a second, by camera."""
        return [len(times) / self.seconds for times in self.latency_ms]

    @property
    def cpu_ms(self) -> float:
        """Time of one core for a cloud: what another load of the machine changes least."""
        return 1e3 * self.cpu_s / max(1, sum(map(len, self.latency_ms)))


def measure_node(frames: int, rate: float, height: int, width: int, *, echo: bool = False, depth: bool = False) -> NodeCost:
    """Publish mono8 images at `rate` Hz into a node of its own process; with `echo` into one that computes nothing at all.

    With `depth` a 16UC1 depth image follows each image, as drivers send what they have aligned to it.

    Raises LightglueTrtError when it does not come up.
    """
    words = ('echo',) if echo else ('null', '--ros-args', '--log-level', 'warn', '-p', 'refinement:=none', '-p', f'depth:={depth}')
    with _rig({'/image': '/matcher/matches'}, height, width, depth) as rig:
        process = start('lightglue_trt_eval.times.nodes', *words)
        try:
            rig.wait()
            early = max(frames // 10, 1)
            rig.feed(rate, early, [process])
            memory, cpu_s = memory_mib(process.pid), cpu_seconds(process.pid)
            rig.feed(rate, frames - early, [process])
            cpu_ms = 1e3 * (cpu_seconds(process.pid) - cpu_s) / (frames - early)
            time.sleep(0.5)
            growth = memory_mib(process.pid) - memory
        finally:
            stop(process)
    return NodeCost(frames, len(rig.latency_ms[0]), rig.latency_ms[0], cpu_ms, growth)


def measure_cameras(config: MatcherConfig, cameras: int, rate: float, seconds: float, rounds: int) -> dict[str, RigCost]:
    """Both ways in turn, `rounds` times, each fed by `cameras` at `rate` Hz for `seconds`.

    Raises LightglueTrtError when a node does not come up.
    """
    names = [f'camera{number}' for number in range(cameras)]
    remaps = [f'-r __node:=matcher_{name} -r image:=/{name}/image -r ~/matches:=/matcher/{name}/matches'.split() for name in names]
    arguments = {ONE: [['-p', f'cameras:=[{", ".join(names)}]']], MANY: remaps}  # of each node; topics are the same
    costs = {way: RigCost(latency_ms=[[] for _ in names]) for way in (ONE, MANY)}
    with _rig({f'/{name}/image': f'/matcher/{name}/matches' for name in names}, config.image_height, config.image_width) as rig:
        for way in (ONE, MANY) * rounds:
            _add_round(costs[way], rig, arguments[way], config, rate, seconds)
    return costs


def measure_matcher(config: MatcherConfig, rate: float, seconds: float) -> RigCost:
    """The node with its networks, of one camera at `rate` Hz. Raises LightglueTrtError when it does not come up."""
    cost = RigCost(latency_ms=[[]])
    with _rig({'/image': '/matcher/matches'}, config.image_height, config.image_width) as rig:
        _add_round(cost, rig, [[]], config, rate, seconds)
    return cost


def _add_round(cost: RigCost, rig: _Rig, arguments: Sequence[Sequence[str]], config: MatcherConfig, rate: float,
               seconds: float) -> None:
    """Start a node with each of the `arguments`, feed them once all answer, and add what they cost to `cost`."""
    free = _free_device_mib()
    with ExitStack() as ends:
        nodes = [start('lightglue_trt_ros.cli.matcher', '--ros-args', '--log-level', 'error', *parameters_of(config), *SETTINGS,
                       *words) for words in arguments]
        for each in nodes:
            ends.callback(stop, each)
        rig.feed(rate, round(OPENING_S * rate), nodes, until=lambda: all(rig.latency_ms))
        if not all(rig.latency_ms):
            raise LightglueTrtError(f'not every camera had matches within {OPENING_S:.0f} s: run only the node to see why')
        rig.clear()  # late clouds are not waited for
        cost.cpu_s -= sum(cpu_seconds(each.pid) for each in nodes)
        rig.feed(rate, round(seconds * rate), nodes)
        cost.cpu_s += sum(cpu_seconds(each.pid) for each in nodes)
        cost.memory_mib = max(cost.memory_mib, sum(proportional_mib(each.pid) for each in nodes))
        cost.device_mib = max(cost.device_mib, free - _free_device_mib())
        cost.seconds += seconds
        for all_times, times in zip(cost.latency_ms, rig.latency_ms, strict=True):
            all_times += times
        rig.settle()
    rig.clear()


class _Rig:
    """Publishers of the cameras' images, and the clouds that come back."""

    def __init__(self, node: Node, topics: Mapping[str, str], height: int, width: int, depth: bool = False) -> None:
        """`topics`: of the clouds, by that of the images."""
        self.latency_ms: list[list[float]] = [[] for _ in topics]  # by camera, image published to cloud received
        self._sent: dict[tuple[int, int], float] = {}
        self._ticks = itertools.count(1)
        self._images = [node.create_publisher(Image, topic, 10) for topic in topics]
        for number, topic in enumerate(topics.values()):
            node.create_subscription(PointCloud2, topic, partial(self._receive, number), 10)
        self._sources = [partial(node.count_publishers, topic) for topic in topics.values()]
        self._messages = [fill_image(Image(header=Header(frame_id='camera')), image, 'mono8')
                          for image in textured_frames(PERIOD, height, width)]
        self._messages += self._messages[-2:0:-1]
        self._info = node.create_publisher(CameraInfo, '/camera_info', 10)
        self._camera = CameraInfo(width=width, height=height, distortion_model='plumb_bob', d=[0.0] * 5,
                                  k=[float(width), 0.0, width / 2, 0.0, float(width), height / 2, 0.0, 0.0, 1.0])
        self._depths, self._depth = [node.create_publisher(Image, '/depth', 10)] if depth else [], Image()
        if depth:
            self._depth = Image(header=Header(frame_id='camera'), height=height, width=width, encoding='16UC1', step=2 * width)
            self._depth.data.frombytes(np.linspace(500, 9500, height * width).astype(np.uint16).tobytes())

    def wait(self) -> None:
        """Wait for a node at the topics. Raises LightglueTrtError where none comes up."""
        deadline = time.monotonic() + START_S
        waiting = [*self._images, *self._depths]
        while not all(each.get_subscription_count() for each in waiting) or not all(count() for count in self._sources):
            if time.monotonic() > deadline:
                raise LightglueTrtError(f'the node did not come up within {START_S:.0f} s: run only the node to see why')
            time.sleep(0.05)
        time.sleep(0.5)  # discovery of the way back
        self._info.publish(self._camera)

    def feed(self, rate: float, count: int, nodes: Sequence[Popen[bytes]], until: Callable[[], bool] = bool) -> None:
        """Publish `count` images of each camera at `rate` Hz, the cameras out of step with each other, at most until `until()`.

        Raises LightglueTrtError where a node ends.
        """
        begin, cameras = time.perf_counter(), len(self._images)
        for step in range(count * cameras):
            if until():
                break
            if any(each.poll() is not None for each in nodes):
                raise LightglueTrtError('a node ended by itself: the lines above say why')
            time.sleep(max(0.0, begin + step / (rate * cameras) - time.perf_counter()))
            tick, number = divmod(step, cameras)
            stamp = round(next(self._ticks) * 1e9 / (rate * cameras))
            message = self._messages[(tick + 7 * number) % len(self._messages)]
            message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp, 10**9)
            self._sent[message.header.stamp.sec, message.header.stamp.nanosec] = time.perf_counter()
            self._images[number].publish(message)
            for each in self._depths:
                self._depth.header.stamp = message.header.stamp
                each.publish(self._depth)

    def settle(self) -> None:
        count = -1
        while count != (count := sum(map(len, self.latency_ms))):
            time.sleep(IDLE_S)

    def clear(self) -> None:
        for times in self.latency_ms:
            times.clear()

    def _receive(self, number: int, cloud: PointCloud2) -> None:
        sent = self._sent[cloud.header.stamp.sec, cloud.header.stamp.nanosec]
        self.latency_ms[number].append((time.perf_counter() - sent) * 1e3)


@contextmanager
def _rig(topics: Mapping[str, str], height: int, width: int, depth: bool = False) -> Iterator[_Rig]:
    use_fastdds_profile()
    rclpy.init()
    with spun_by_a_thread(node := rclpy.create_node('benchmark')):
        yield _Rig(node, topics, height, width, depth)


def proportional_mib(pid: int) -> float:
    """Memory of a process, MiB, where pages that several share count in parts (Linux)."""
    lines = Path(f'/proc/{pid}/smaps_rollup').read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith('Pss:')) / 1024


def cpu_seconds(pid: int) -> float:
    """Of all cores, since a process began (Linux)."""
    words = Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf('SC_CLK_TCK')


def _free_device_mib() -> float:
    """0 without a GPU."""
    try:
        with closing(Cuda()) as cuda:
            return cuda.memory_mib()[0]
    except EngineError:
        return 0.0
