"""A test's own end of the conversation with a node: publish images, collect what comes back, over real DDS."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter
from sensor_msgs.msg import CompressedImage, Image, PointCloud2
from std_msgs.msg import Header
from support.waiting import wait_for

from lightglue_trt_eval.times.null_backend import NullBackend
from lightglue_trt_ros.core.config import EngineSpec, MatcherConfig
from lightglue_trt_ros.core.images import fill_image
from lightglue_trt_ros.engines.selection import Opened
from lightglue_trt_ros.ros.matcher.node import MatcherNode

SECOND = 10**9
SMALL = {'image_height': 48, 'image_width': 64, 'max_keypoints': 50}  # the size of uniform images


def header(stamp_ns: int) -> Header:
    result = Header(frame_id='camera')
    result.stamp.sec, result.stamp.nanosec = divmod(stamp_ns, SECOND)
    return result


def image_message(stamp_ns: int, image: np.ndarray | None = None, encoding: str = 'mono8') -> Image:
    return fill_image(Image(header=header(stamp_ns)), uniform_image(stamp_ns) if image is None else image, encoding)


def uniform_image(stamp_ns: int, size: tuple[int, int] = (48, 64), gray: int = 0) -> np.ndarray:
    """Uniform but for noise in one corner, which differs with the stamp: equal images would be those of a driver that hangs."""
    image = np.full(size, gray, np.uint8)
    image[0, :4] = np.random.default_rng(abs(stamp_ns)).integers(0, 256, 4)
    return image


def depth_message(stamp_ns: int, pixels: np.ndarray) -> Image:
    """Uint16 in millimetres or float32 in metres."""
    message = Image(header=header(stamp_ns), height=pixels.shape[0], width=pixels.shape[1], step=pixels.shape[1] * pixels.itemsize,
                    encoding={'uint16': '16UC1', 'float32': '32FC1'}[pixels.dtype.name])
    message.data.frombytes(pixels.tobytes())
    return message


def opens(make: Callable[[EngineSpec], Any] = NullBackend, opened: list[Any] | None = None) -> Callable[..., Opened]:
    """An `open_backend` of nodes; `opened` collects the backends."""
    def open_backend(config: MatcherConfig, *, cancelled: Any = None) -> Opened:
        backend = make(config.engine_spec('fp32'))
        if opened is not None:
            opened.append(backend)
        return Opened(backend, backend.description)

    return open_backend


def matcher_node(open_backend: Callable[..., Opened], settings: dict[str, Any], **changes: Any) -> MatcherNode:
    return MatcherNode(open_backend, parameter_overrides=as_parameters({**settings, **changes}))


def report_often(node: Node) -> None:
    """Have the node publish its diagnostics ten times a second instead of once, for tests that wait for them."""
    for timer in node.timers:
        timer.timer_period_ns = SECOND // 10
        timer.reset()


class SpunMatcher:
    """A MatcherNode spun by a thread, and a peer; `active` tells whether it started."""

    def __init__(self, node: MatcherNode) -> None:
        self.node, ends = node, ExitStack()
        self.active, self.peer = started(ends, node), Peer()
        ends.callback(self.peer.close)
        self.close = ends.close


def peer_node() -> Node:
    """A node that destroys in the thread that spins it: rclpy's executor ends where something goes while it prepares to wait."""
    node = Node('peer')

    def in_its_thread(destroy: Callable[[Any], bool], entity: Any) -> Any:
        if node.executor is None:  # no longer spun
            return destroy(entity)
        done = node.executor.create_task(destroy, entity)
        wait_for(done.done)
        return done.result()

    for name in ('destroy_publisher', 'destroy_subscription', 'destroy_client'):
        setattr(node, name, partial(in_its_thread, getattr(node, name)))
    return node


class Peer:
    """A node with publishers for images and subscriptions to all that the matcher publishes, spun by a thread."""

    def __init__(self, matcher: str = '/matcher') -> None:
        self.node = peer_node()
        self.clouds: list[PointCloud2] = []
        self.debug_images: list[Image] = []
        self.reports: list[DiagnosticArray] = []
        self.images = self.node.create_publisher(Image, '/image', 10)
        self.compressed = self.node.create_publisher(CompressedImage, '/image/compressed', 10)
        self.node.create_subscription(PointCloud2, f'{matcher}/matches', self.clouds.append, 10)
        self.node.create_subscription(DiagnosticArray, '/diagnostics', self.reports.append, 10)
        ends = ExitStack()
        ends.enter_context(spun(self.node))
        self.close = ends.close

    def watch_debug_image(self) -> Any:
        return self.node.create_subscription(Image, '/matcher/debug_image', self.debug_images.append, 10)

    def send(self, message: Image | CompressedImage, publisher: Any = None, clouds: int = 0) -> list[PointCloud2]:
        """Publish once somebody listens, and wait for `clouds` more clouds, which it returns."""
        publisher = publisher or (self.images if isinstance(message, Image) else self.compressed)
        wait_for(publisher.get_subscription_count)
        before = len(self.clouds)
        publisher.publish(message)
        wait_for(lambda: len(self.clouds) >= before + clouds)
        return self.clouds[before:]

    def figures(self) -> dict[str, str]:
        return {value.key: value.value for value in self.reports[-1].status[0].values} if self.reports else {}

    def status(self) -> tuple[bytes, str]:
        return (self.reports[-1].status[0].level, self.reports[-1].status[0].message) if self.reports else (b'', '')

    def wait_for_backend(self, name: str = 'ONNX Runtime', timeout: float = 30.0) -> None:
        wait_for(lambda: name in self.figures().get('backend', ''), timeout)

    def change_state(self, transition: int, timeout: float = 20.0) -> bool:
        request = ChangeState.Request(transition=Transition(id=transition))
        return bool(self.call(ChangeState, '/matcher/change_state', request, timeout).success)

    def call(self, kind: Any, name: str, request: Any, timeout: float = 10.0) -> Any:
        client = self.node.create_client(kind, name)
        assert client.wait_for_service(timeout)
        future = client.call_async(request)
        wait_for(future.done, timeout)
        self.node.destroy_client(client)
        return future.result()


@contextmanager
def spun(node: Node) -> Iterator[None]:
    """Its callbacks run in a thread until the end, when it is destroyed; the context goes on for others."""
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    thread = threading.Thread(target=executor.spin, daemon=True)
    thread.start()
    yield
    executor.shutdown()
    thread.join(2)
    node.executor = None
    node.destroy_node()


def as_parameters(values: dict[str, Any]) -> list[Parameter]:
    """Values as a node's parameters."""
    return [Parameter(name, value=value) for name, value in values.items()]


def started(stack: ExitStack, node: MatcherNode) -> bool:
    """Start a matcher that starts by itself, and spin it until the stack ends; whether it is active."""
    report_often(node)
    active = node.settings.autostart and node.start()
    stack.enter_context(spun(node))
    stack.callback(node.stop)
    return active


def with_peer(stack: ExitStack, node: MatcherNode) -> Peer:
    """A peer of a matcher that is started and spun until the stack ends."""
    peer = Peer()
    stack.callback(peer.close)
    started(stack, node)
    return peer
