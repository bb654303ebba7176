"""The right camera of a stereo pair: its images, and both cameras' CameraInfos."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy.node import Node

from ..core.cameras import Intrinsics, StereoRig
from ..core.epipolar_check import RightImage
from ..core.images import stamp_of
from ..core.types import UInt8
from ..utils.errors import BagError, FrameError
from .camera_info import CameraListener, camera_topic
from .diagnostics import why_silent
from .parameters import NodeConfig
from .stereo_sync import StereoPairing
from .subscription import decode, subscribe

RIGHT = 'right'  # the camera's name: its topics are right/image and right/camera_info
THROTTLE_S = 5.0  # one line of a kind in this time


class RigListener:
    """How the two cameras stand, once both CameraInfos are known; one line of log for each reason why they are not."""

    def __init__(self, node: Node, purpose: str, left: CameraListener | None = None) -> None:
        """`purpose` is what needs the cameras, for people: the subject of a sentence."""
        self._node, self._purpose = node, purpose
        self._own = [CameraListener(node, purpose, RIGHT), *([] if left else [CameraListener(node, purpose)])]
        self._right, self._left = self._own[0], left or self._own[1]
        self._of: tuple[Intrinsics, Intrinsics] | None = None
        self._known: StereoRig | None = None
        self._refused = ''  # why there is no rig, as it was said

    def close(self) -> None:
        for listener in self._own:
            listener.close()

    def rig(self, size: tuple[int, int] | None = None) -> StereoRig | None:
        """Of images of `size` (height, width), if given."""
        left, right = self._left.camera(size), self._right.camera(size)
        if left is None or right is None:
            return None
        if self._of is None or self._of[0] is not left or self._of[1] is not right:
            self._of, self._known = (left, right), self._made(left, right)
        return self._known

    @property
    def trouble(self) -> str:
        """Why there is no rig, for people; empty: there is one."""
        return self._left.trouble or self._right.trouble or self._refused

    def _made(self, left: Intrinsics, right: Intrinsics) -> StereoRig | None:
        try:
            rig, refused = StereoRig(left, right), ''
        except BagError as error:
            rig, refused = None, str(error)
        if refused and refused != self._refused:
            self._node.get_logger().warning(f'{self._purpose} waits: {refused}')
        self._refused = refused
        return rig


class RightCamera:
    """Has the right image of each frame, where there is one in time."""

    def __init__(self, node: Node, settings: NodeConfig) -> None:
        self._node, self._settings = node, settings
        self.begin()
        self._rig = RigListener(node, 'stereo')
        self.images: Any = subscribe(node, settings, camera_topic(RIGHT, 'image'), self._on_image, self._on_lost)

    def close(self) -> None:
        self._rig.close()
        self._node.destroy_subscription(self.images)

    def begin(self) -> None:
        """The node is active: what came before is forgotten."""
        self._pairing: StereoPairing[bytes] = StereoPairing(self._settings.max_stereo_skew_s)
        self._rejected = self._lost = 0

    def noting(self, on_image: Callable[[bytes], None]) -> Callable[[bytes], None]:
        """The same callback of left images, that takes note of their stamps first."""
        def noted(data: bytes) -> None:
            self._tell(data, lambda stamp: self._pairing.left_came(stamp))
            on_image(data)
        return noted

    def image_of(self, left: UInt8, stamp: float) -> RightImage | None:
        """From the pipeline's thread, for a frame (H, W) of a stamp in seconds."""
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
    def trouble(self) -> str:
        """Why most frames have no right points, for people; empty: they have."""
        if not (trouble := self._pairing.trouble):
            return ''
        reason = f': {why_silent(self._node, self.images)}' if self._pairing.silent else ''
        return f'{trouble} ({self.images.topic_name}){reason}'

    def _on_image(self, data: bytes) -> None:
        self._tell(data, lambda stamp: self._pairing.right_came(stamp, data))

    def _on_lost(self, count: int) -> None:
        self._lost += count

    def _tell(self, data: bytes, came: Callable[[float], None]) -> None:
        try:
            seconds, nanoseconds = divmod(stamp_of(data, 'an image'), 10**9)
            came(seconds + nanoseconds * 1e-9)  # to the last bit as stamp_seconds
        except BagError:
            self._rejected += 1  # whoever decodes it says why
