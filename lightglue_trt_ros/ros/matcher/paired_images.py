"""The images that come with a camera's frames: right images of a stereo pair, or depth images."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rclpy.node import Node

from ...core.cameras import Intrinsics
from ...core.depth import DepthImage, depth_from_compressed, depth_from_image
from ...core.epipolar_check import RightImage
from ...core.geometry import size_of, size_text
from ...core.images import stamp_of
from ...core.types import UInt8
from ...utils.errors import BagError, FrameError
from ..camera_info import RIGHT, CameraListener, RigListener, camera_topic
from ..diagnostics import LOST, RECENT_S, why_silent
from ..parameters import NodeConfig
from .pairing import DEPTH, STEREO, Pairing, Words
from .subscription import decode, deserialise, subscribe

THROTTLE_S = 5.0  # one line of a kind in this time
REGISTERED_PX = 1.0  # K of depth images and of the frames differ by no more


class PairedImages:
    """Subscribes to images, and finds the one of each frame by its stamp."""

    def __init__(self, node: Node, settings: NodeConfig, topic: str, transport: str, words: Words, max_skew_s: float) -> None:
        self._node, self._settings, self._words, self._max_skew_s = node, settings, words, max_skew_s
        self.begin()
        self.images: Any = subscribe(node, settings, topic, transport, self._on_image, self._on_lost)

    def close(self) -> None:
        self._node.destroy_subscription(self.images)

    def begin(self) -> None:
        """Forget earlier images, when the node becomes active."""
        self._pairing: Pairing[bytes] = Pairing(self._max_skew_s, self._words)
        self._rejected = self._lost = 0
        self._lost_at = -math.inf
        self._refusal = ''  # why the newest image cannot be used

    def frame_came(self, data: bytes) -> None:
        """Report the stamp of a frame before it is processed."""
        self._note_stamp(data, self._pairing.frame_came)

    def taken(self, stamp: float, use: Callable[[bytes], Any]) -> Any:
        """What `use` makes of the image for the frame with this stamp, seconds; None without one, or if it raises FrameError."""
        item = self._pairing.take(stamp)
        if item is None:
            return None
        try:
            used, self._refusal = use(item), ''
        except FrameError as error:
            self._rejected += 1
            self._refusal = f'{self._words.partner} image dropped: {error}'
            self._node.get_logger().warning(self._refusal, throttle_duration_sec=THROTTLE_S)
            return None
        return used

    def figures(self) -> dict[str, str]:
        """Counts by name, for diagnostics."""
        pairing, images = self._pairing, f'{self._words.partner} images'
        paired = 'stereo pairs' if self._words is STEREO else 'images with depth'
        return {paired: str(pairing.paired), f'{images} missing': str(pairing.missing), f'{images} late': str(pairing.late),
                f'{images} rejected': str(self._rejected), f'{images} lost before': str(self._lost),
                self._words.skew: f'{pairing.skew_s * 1e3:.1f}'}

    @property
    def problem(self) -> str:
        """Why most frames have no image; empty if they have."""
        if not (problem := self._pairing.problem):
            return ''
        if time.monotonic() - self._lost_at < RECENT_S:
            return f'{problem} ({self.images.topic_name}): {self._lost} were lost on their way so far; {LOST}'
        reason = f': {why_silent(self._node, self.images)}' if self._pairing.silent else ''
        return f'{problem} ({self.images.topic_name}){reason}'

    @property
    def refusal(self) -> str:
        """Why the newest image cannot be used, which is logged already; empty if it can."""
        return self._refusal

    def _on_image(self, data: bytes) -> None:
        self._note_stamp(data, lambda stamp: self._pairing.partner_came(stamp, data))

    def _on_lost(self, count: int) -> None:
        self._lost, self._lost_at = self._lost + count, time.monotonic()

    def _note_stamp(self, data: bytes, came: Callable[[float], None]) -> None:
        try:
            seconds, nanoseconds = divmod(stamp_of(data, 'an image'), 10**9)
            came(seconds + nanoseconds * 1e-9)  # to the last bit as stamp_seconds
        except BagError:
            self._rejected += 1  # `decode` reports the reason


class RightCamera(PairedImages):
    """Finds the right image of each frame."""

    def __init__(self, node: Node, settings: NodeConfig) -> None:
        self._rig = RigListener(node, 'stereo')
        super().__init__(node, settings, camera_topic(RIGHT, 'image'), settings.image_transport, STEREO, settings.max_stereo_skew_s)

    def close(self) -> None:
        self._rig.close()
        super().close()

    def image_of(self, left: UInt8, stamp: float) -> RightImage | None:
        """The right image of a frame (H, W) with a stamp in seconds; None where there is none. From the pipeline's thread."""
        rig = self._rig.rig(size_of(left))

        def right_image(item: bytes) -> RightImage | None:
            if rig is None:
                return None
            image, _ = decode(item, self.images.msg_type, self._settings)
            if image.shape != left.shape:
                raise FrameError(f'it has {size_text(size_of(image))} pixels, the left one {size_text(size_of(left))}: both '
                                 'cameras must be alike')
            return RightImage(image, rig)

        return self.taken(stamp, right_image)  # type: ignore[no-any-return]

    @property
    def refusal(self) -> str:
        return self._refusal or self._rig.problem


class DepthCamera(PairedImages):
    """Finds the depth image of each frame, which must be registered to it."""

    def __init__(self, node: Node, settings: NodeConfig, camera: str = '') -> None:
        """`camera` is the name of one of several, empty for a single one."""
        self._camera = CameraListener(node, 'depth', camera)
        self._own = CameraListener(node, 'the check that depth is registered', camera, 'depth')
        super().__init__(node, settings, camera_topic(camera, 'depth'), settings.depth_transport, DEPTH, settings.max_depth_skew_s)

    def close(self) -> None:
        self._camera.close()
        self._own.close()
        super().close()

    def image_of(self, frame: UInt8, stamp: float) -> DepthImage | None:
        """The depth image of a frame (H, W) with a stamp in seconds; None where there is none. From the pipeline's thread."""
        camera = self._camera.camera(size_of(frame))

        def depth_image(item: bytes) -> DepthImage | None:
            if camera is None:
                return None
            message = deserialise(item, self.images.msg_type)
            pixels, unit_m = (depth_from_compressed(message, self._settings.max_megapixels) if hasattr(message, 'format')
                              else depth_from_image(message))
            if pixels.shape != frame.shape:
                raise FrameError(f'it has {size_text(size_of(pixels))} pixels, the image {size_text(size_of(frame))}: {_REGISTER}')
            _check_registered(camera, self._own.newest)
            return DepthImage(pixels, unit_m, camera, self._settings.depth_noise)

        return self.taken(stamp, depth_image)  # type: ignore[no-any-return]

    @property
    def refusal(self) -> str:
        return self._refusal or self._camera.problem


_REGISTER = 'let the driver register depth to the images (align_depth, depth_registration), and give that topic'


def _check_registered(camera: Intrinsics, own: Intrinsics | None) -> None:
    """Raise FrameError where the depth images have a CameraInfo of their own that differs from the frames'."""
    if own is None:
        return
    if (own.height, own.width) != (camera.height, camera.width) or np.abs(own.k - camera.k).max() > REGISTERED_PX:
        raise FrameError(f'its CameraInfo is another one, {_in_words(own)}, the image has {_in_words(camera)}: {_REGISTER}')


def _in_words(camera: Intrinsics) -> str:
    return f'{camera.width}x{camera.height}, fx {camera.k[0, 0]:.1f}, cx {camera.k[0, 2]:.1f}, cy {camera.k[1, 2]:.1f}'
