"""Image subscriptions of the node, and the right camera of a stereo pair."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy.node import Node
from rclpy.qos import HistoryPolicy, QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import CompressedImage, Image

from ...core.epipolar_check import RightImage
from ...core.images import gray_of, stamp_of
from ...core.types import UInt8
from ...utils.errors import BagError, FrameError
from ..camera_info import RIGHT, RigListener, camera_topic
from ..diagnostics import why_silent
from ..parameters import NodeConfig
from .stereo_sync import StereoPairing

try:
    from rclpy.event_handler import SubscriptionEventCallbacks, UnsupportedEventTypeError
except ImportError:  # Humble
    from rclpy.qos_event import SubscriptionEventCallbacks, UnsupportedEventTypeError

THROTTLE_S = 5.0  # one line of a kind in this time


def subscribe(node: Node, settings: NodeConfig, topic: str, on_image: Callable[[bytes], None],
              on_lost: Callable[[int], None]) -> Any:
    """Subscribe to the newest image of `topic`, as bytes: a frame that another replaces is never deserialised.

    Compressed images come on <topic>/compressed, wherever `topic` is remapped to. `on_lost` gets the number of messages that were
    lost on the way since the last call, where the middleware reports it.
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
    """Deserialise a message of `kind` to a gray image (H, W) and the message. Raises FrameError."""
    try:
        message = deserialize_message(item, kind)
    except Exception as error:
        raise FrameError(f'a message of {len(item)} bytes is no {kind.__name__} ({error}): check its sender') from error
    return gray_of(message, settings.image_bits, settings.max_megapixels), message


class RightCamera:
    """Finds the right image of each frame."""

    def __init__(self, node: Node, settings: NodeConfig) -> None:
        self._node, self._settings = node, settings
        self.begin()
        self._rig = RigListener(node, 'stereo')
        self.images: Any = subscribe(node, settings, camera_topic(RIGHT, 'image'), self._on_image, self._on_lost)

    def close(self) -> None:
        self._rig.close()
        self._node.destroy_subscription(self.images)

    def begin(self) -> None:
        """Forget earlier images, when the node becomes active."""
        self._pairing: StereoPairing[bytes] = StereoPairing(self._settings.max_stereo_skew_s)
        self._rejected = self._lost = 0

    def left_came(self, data: bytes) -> None:
        """Report the stamp of a left image before it is processed."""
        self._note_stamp(data, self._pairing.left_came)

    def image_of(self, left: UInt8, stamp: float) -> RightImage | None:
        """The right image of a frame (H, W) with a stamp in seconds; None where there is none. From the pipeline's thread."""
        item, rig = self._pairing.take(stamp), self._rig.rig((left.shape[0], left.shape[1]))
        if item is None or rig is None:
            return None
        try:
            image, _ = decode(item, self.images.msg_type, self._settings)
            if image.shape != left.shape:
                raise FrameError(f'it has {image.shape[1]}x{image.shape[0]} pixels, the left one {left.shape[1]}x{left.shape[0]}: '
                                 'both cameras must be alike')
        except FrameError as error:
            self._rejected += 1
            self._node.get_logger().warning(f'right image dropped: {error}', throttle_duration_sec=THROTTLE_S)
            return None
        return RightImage(image, rig)

    def figures(self) -> dict[str, str]:
        """Counts by name, for diagnostics."""
        pairing = self._pairing
        return {'stereo pairs': str(pairing.paired), 'right images missing': str(pairing.missing),
                'right images late': str(pairing.late), 'right images rejected': str(self._rejected),
                'right images lost before': str(self._lost), 'stereo skew ms (right - left)': f'{pairing.skew_s * 1e3:.1f}'}

    @property
    def problem(self) -> str:
        """Why most frames have no right points; empty if they have."""
        if not (problem := self._pairing.problem):
            return ''
        reason = f': {why_silent(self._node, self.images)}' if self._pairing.silent else ''
        return f'{problem} ({self.images.topic_name}){reason}'

    def _on_image(self, data: bytes) -> None:
        self._note_stamp(data, lambda stamp: self._pairing.right_came(stamp, data))

    def _on_lost(self, count: int) -> None:
        self._lost += count

    def _note_stamp(self, data: bytes, came: Callable[[float], None]) -> None:
        try:
            seconds, nanoseconds = divmod(stamp_of(data, 'an image'), 10**9)
            came(seconds + nanoseconds * 1e-9)  # to the last bit as stamp_seconds
        except BagError:
            self._rejected += 1  # `decode` reports the reason
