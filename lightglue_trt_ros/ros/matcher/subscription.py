"""Image subscriptions of the node, and the decoding of their messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import CompressedImage, Image

from ...core.geometry import Size
from ...core.images import gray_of
from ...core.types import UInt8
from ...utils.errors import FrameError
from ..diagnostics import Wanted
from ..parameters import NodeConfig
from ..qos import OVERRIDABLE

try:
    from rclpy.event_handler import SubscriptionEventCallbacks, UnsupportedEventTypeError
except ImportError:  # Humble
    from rclpy.qos_event import SubscriptionEventCallbacks, UnsupportedEventTypeError


def wanted_images(subscription: Any, name: str, settings: NodeConfig, size: Size | None, message_bytes: int, came: int) -> Wanted:
    """A subscription of color or gray images, for diagnostics; of `size` (height, width), and the rest as in Wanted."""
    pixel_bytes = 3 if settings.image_transport == 'raw' else 0.3
    setting = 'image_transport' if settings.cameras == ('',) else 'image_transport of all cameras'
    return Wanted(subscription, setting, 'compressed', pixel_bytes, size, message_bytes, came, name)


def subscribe(node: Node, settings: NodeConfig, topic: str, transport: str, on_image: Callable[[bytes], None],
              on_lost: Callable[[int], None], waiting: int = 1) -> Any:
    """Subscribe to the newest images of `topic`, as bytes: a frame that another replaces is never deserialised. While the node is
    busy, `waiting` of them are kept.

    Compressed images come on <topic>/<transport>, wherever `topic` is remapped to. `on_lost` gets the number of messages that were
    lost on the way since the last call, where the middleware reports it.
    """
    qos = QoSProfile(depth=waiting, reliability=ReliabilityPolicy[settings.qos_reliability.upper()])
    kind: Any = Image
    if transport != 'raw':
        kind, topic = CompressedImage, f'{node.resolve_topic_name(topic)}/{transport}'
    events = SubscriptionEventCallbacks(message_lost=lambda event: on_lost(event.total_count_change))
    options: Any = {'qos_overriding_options': OVERRIDABLE, 'raw': True}
    try:
        return node.create_subscription(kind, topic, on_image, qos, event_callbacks=events, **options)
    except UnsupportedEventTypeError:
        return node.create_subscription(kind, topic, on_image, qos, **options)


def deserialise(item: bytes, kind: Any, where: str = '') -> Any:
    """The message of `kind`, which came `where`, for people. Raises FrameError."""
    try:
        return deserialize_message(item, kind)
    except Exception as error:
        raise FrameError(f'a message of {len(item)} bytes{where} is no {kind.__name__} ({error}): check its sender') from error


def decode(item: bytes, kind: Any, settings: NodeConfig) -> tuple[UInt8, Any]:
    """Deserialise a message of `kind` to a gray image (H, W) and the message. Raises FrameError."""
    message = deserialise(item, kind)
    return gray_of(message, settings.image_bits, settings.max_megapixels), message
