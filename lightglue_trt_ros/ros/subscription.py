"""How the node listens to a camera: to bytes, and to what the middleware loses on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy.node import Node
from rclpy.qos import HistoryPolicy, QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import CompressedImage, Image

from ..core.images import gray_of
from ..core.types import UInt8
from ..utils.errors import FrameError
from .parameters import NodeConfig

try:
    from rclpy.event_handler import SubscriptionEventCallbacks, UnsupportedEventTypeError
except ImportError:  # Humble
    from rclpy.qos_event import SubscriptionEventCallbacks, UnsupportedEventTypeError


def subscribe(node: Node, settings: NodeConfig, topic: str, on_image: Callable[[bytes], None],
              on_lost: Callable[[int], None]) -> Any:
    """A subscription to the newest image of `topic`, as bytes: a frame that another replaces is never deserialised.

    Compressed images come on <topic>/compressed, wherever `topic` is remapped to. `on_lost` is told how many messages more were
    lost before they arrived, where the middleware tells.
    """
    reliability = ReliabilityPolicy.RELIABLE if settings.qos_reliability == 'reliable' else ReliabilityPolicy.BEST_EFFORT
    qos = QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=1, reliability=reliability)
    kind, topic = ((Image, topic) if settings.image_transport == 'raw'
                   else (CompressedImage, node.resolve_topic_name(topic) + '/compressed'))
    events = SubscriptionEventCallbacks(message_lost=lambda event: on_lost(event.total_count_change))
    try:
        return node.create_subscription(kind, topic, on_image, qos, raw=True, event_callbacks=events)
    except UnsupportedEventTypeError:
        return node.create_subscription(kind, topic, on_image, qos, raw=True)


def decode(item: bytes, kind: Any, settings: NodeConfig) -> tuple[UInt8, Any]:
    """A gray image (H, W) and the message of `kind` that it was. Raises FrameError."""
    try:
        message = deserialize_message(item, kind)
    except Exception as error:
        raise FrameError(f'a message of {len(item)} bytes is no {kind.__name__} ({error}): check its sender') from error
    return gray_of(message, settings.image_bits, settings.max_megapixels), message
