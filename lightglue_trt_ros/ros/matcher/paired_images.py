"""The images that come with a camera's frames: right images of a stereo pair, or depth images."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from rclpy.node import Node

from ...core.cameras import JITTER, REGISTERED_PX, Intrinsics, StereoRig, same_view
from ...core.depth import DepthImage, depth_pixels, share_known
from ...core.geometry import size_of, size_text
from ...core.image_check import TEXTURE, ImageCheck, same_pixels, texture_of
from ...core.images import stamp_of, view_image
from ...core.stereo import RightImage
from ...core.types import FrameMatches, UInt8
from ...utils.errors import BagError, FrameError
from ..camera_info import RIGHT, CameraListener, RigListener, camera_topic
from ..clouds import stamp_seconds
from ..diagnostics import LOST, RECENT_S, WARN, Verdict, Wanted, useless_images, why_silent
from ..fading_log import FadingLog
from ..parameters import NodeConfig
from .pairing import DEPTH, PARTNERS, STEREO, Pairing, Words
from .subscription import decode, deserialise, subscribe, wanted_images

Image = TypeVar('Image')

JUDGED, FEW_PERCENT = 5, 2.0  # of the last clouds, so many at least, have so few points with depth: the cause is given


class _Share(NamedTuple):
    """Points of a cloud."""

    known: int  # that have what the images give
    points: int  # in all
    is_used: bool  # whether the frame had a usable image


class PairedImages(ABC, Generic[Image]):
    """Subscribes to images, and finds the one of each frame by its stamp."""

    def __init__(self, node: Node, settings: NodeConfig, topic: str, transport: str, words: Words, max_skew_s: float,
                 listener: CameraListener | RigListener) -> None:
        """`listener` is that of the calibration; who made it closes it."""
        self._node, self._settings, self._words, self._max_skew_s, self._listener = node, settings, words, max_skew_s, listener
        self._message_bytes = 0  # of the newest message
        self._refusals = FadingLog()  # of the pipeline's thread
        self.begin()
        self.images: Any = subscribe(node, settings, topic, transport, self._on_image, self._on_lost, waiting=PARTNERS)
        self.topic: str = self.images.topic_name
        self.name = topic  # as it is remapped

    def close(self) -> None:
        self._node.destroy_subscription(self.images)

    def begin(self) -> None:
        """Forget earlier images, when the node becomes active."""
        self._pairing: Pairing[bytes] = Pairing(self._max_skew_s, self._words, max_wait_s=self._settings.max_wait_s)
        self._came = self._reached = self._rejected = self._lost = 0  # _reached: clouds that have points with what the images give
        self._shares: deque[_Share] = deque(maxlen=10)  # of the last clouds
        self._is_used = False  # whether the newest frame has a usable image
        self._why_few = ''  # of the newest image whose points have none of it
        self._lost_at = -math.inf
        self._refusal = ''  # why the newest image cannot be used

    def frame_came(self, data: bytes) -> None:
        """Report the stamp of a frame before it is processed."""
        self._note_stamp(data, self._pairing.frame_came)

    def claim(self, data: bytes) -> None:
        """A frame is processed from now on: its image is kept for it however many come meanwhile. From the pipeline's thread."""
        self._note_stamp(data, self._pairing.claim)

    def image_of(self, frame: UInt8, stamp: float, frame_id: str) -> Image | None:
        """The image for a frame (H, W) with a stamp in seconds; None where there is none. From the pipeline's thread."""
        self._is_used = False
        calibration, item = self._listener.calibration(size_of(frame), frame_id), self._pairing.take(stamp)
        if item is None or calibration is None:
            return None
        try:
            image, self._refusal, self._is_used = self._usable(item, frame, calibration), '', True
        except FrameError as error:
            self._rejected += 1
            self._refusal = f'{self._words.partner} image dropped: {error}'
            self._refusals.warn(self._node.get_logger(), self._refusal)
            return None
        return image

    def published(self, matches: FrameMatches) -> None:
        """Count what reached a cloud. From the pipeline's thread."""
        values = matches.sigma_z if matches.right_keypoints is None else matches.right_keypoints[:, 0]
        known = 0 if values is None else int(np.count_nonzero(np.isfinite(values)))
        self._reached += known > 0
        self._shares.append(_Share(known, len(matches), self._is_used))
        if self._is_used:
            self._why_few = self._why_none(matches.note)

    @abstractmethod
    def _why_none(self, of_matches: str) -> str:
        """Why no point has what usable images give, for people; `of_matches` is their note."""

    @abstractmethod
    def _usable(self, item: bytes, frame: UInt8, calibration: Any) -> Image:
        """The decoded message. Raises FrameError where it cannot be used with the frame."""

    def figures(self) -> dict[str, str]:
        """Counts by name, for diagnostics."""
        pairing, images = self._pairing, f'{self._words.partner} images'
        shares = list(self._shares)
        return {self._words.paired: str(self._reached),
                self._words.share: f'last {_percent(shares[-1:]):.0f}, mean {_percent(shares):.0f}' if shares else '',
                f'{images} missing': str(pairing.missing), f'{images} late': str(pairing.late),
                f'{images} rejected': str(self._rejected), f'{images} lost before': str(self._lost),
                self._words.skew: f'{pairing.skew_s * 1e3:.1f}', f'{self._words.partner} delay ms': f'{pairing.delay_s * 1e3:.1f}',
                f'age of the last {self._words.partner} image s': f'{pairing.age_s:.1f}'}

    @property
    @abstractmethod
    def wanted(self) -> Wanted:
        """The subscription, for diagnostics."""

    def verdict(self, frames: Wanted) -> Verdict | None:
        """Why most frames have no image, why the newest one cannot be used, or why it gives nothing; None without such problems."""
        if problem := self._pairing.problem:
            reason = (f': {self._lost} were lost on their way so far; {LOST}' if time.monotonic() - self._lost_at < RECENT_S else
                      f': {why_silent(self._node, self.wanted, frames)}' if self._pairing.silent else '')
            return Verdict(WARN, f'{problem} ({self.topic}){reason}')
        if refusal := self._refusal or self._listener.problem:
            return Verdict(WARN, refusal, logged=True)
        used = [share for share in list(self._shares) if share.is_used and share.points]
        if len(used) >= JUDGED and _percent(used) < FEW_PERCENT:
            return Verdict(WARN, f'{_percent(used):.0f} % of the points have {self._words.gives}: {self._why_few}')
        return None

    @property
    def fault(self) -> Verdict | None:
        """What makes all images useless; None without such problems."""
        return None

    @property
    def waits(self) -> str:
        """Why frames are held up, for people; empty: they are not."""
        if not self._pairing.holds_up:
            return ''
        return (f'each waits for its {self._words.partner} image, which comes {self._pairing.delay_s:.3f} s later ({self.topic}): '
                'lower max_wait_s to match all without it')

    def _on_image(self, data: bytes) -> None:
        self._message_bytes, self._came = len(data), self._came + 1
        self._note_stamp(data, lambda stamp: self._pairing.partner_came(stamp, data))

    def _on_lost(self, count: int) -> None:
        self._lost, self._lost_at = self._lost + count, time.monotonic()

    def _note_stamp(self, data: bytes, came: Callable[[float], None]) -> None:
        with suppress(BagError):  # `decode` reports the reason
            seconds, nanoseconds = divmod(stamp_of(data, 'an image'), 10**9)
            came(seconds + nanoseconds * 1e-9)  # to the last bit as stamp_seconds


class RightCamera(PairedImages[RightImage]):
    """Finds the right image of each frame."""

    def __init__(self, node: Node, settings: NodeConfig, left: CameraListener) -> None:
        self._rig = RigListener(node, 'stereo', left)
        super().__init__(node, settings, camera_topic(RIGHT, 'image'), settings.image_transport, STEREO, settings.max_stereo_skew_s,
                         self._rig)

    def close(self) -> None:
        self._rig.close()
        super().close()

    def begin(self) -> None:
        super().begin()
        self._check = ImageCheck()

    def published(self, matches: FrameMatches) -> None:
        super().published(matches)
        self._check.matched(self._shares[-1].known)

    @property
    def fault(self) -> Verdict | None:
        return useless_images(self._check, RIGHT)

    @property
    def wanted(self) -> Wanted:
        came = 0 if self._lost else self._came
        return wanted_images(self.images, self.name, self._settings, self._rig.size, self._message_bytes, came)

    def _usable(self, item: bytes, frame: UInt8, calibration: StereoRig) -> RightImage:
        image, message = decode(item, self.images.msg_type, self._settings)
        self._check.add(image, stamp_seconds(message.header), message.header.frame_id)
        if image.shape != frame.shape:
            raise FrameError(f'it has {size_text(size_of(image))} pixels, the left one {size_text(size_of(frame))}: both '
                             'cameras must be alike')
        if same_pixels(frame, image) and texture_of(image) >= TEXTURE:
            raise FrameError('it is the left image itself: give the topic of the right camera, and look at its driver')
        return RightImage(image, calibration)

    def _why_none(self, of_matches: str) -> str:
        return of_matches or ('are left and right swapped? Do both CameraInfos belong to these images, and does the word rect in '
                              "the topics' last name tell whether they are rectified?")


class DepthCamera(PairedImages[DepthImage]):
    """Finds the depth image of each frame, which must be registered to it."""

    def __init__(self, node: Node, settings: NodeConfig, camera: str, listener: CameraListener) -> None:
        """`camera` is the name of one of several, empty for a single one; `listener` is that of its images."""
        self._known = 0.0  # share of known pixels of the newest depth image
        self._compared: tuple[Intrinsics, Intrinsics, bool] | None = None  # calibrations, and whether they are the same
        self._own = CameraListener(node, ('the check that depth is registered',), camera, 'depth', listener)
        super().__init__(node, settings, camera_topic(camera, 'depth'), settings.depth_transport, DEPTH, settings.max_depth_skew_s,
                         listener)

    def close(self) -> None:
        self._own.close()
        super().close()

    @property
    def wanted(self) -> Wanted:
        return Wanted(self.images, 'depth_transport', 'compressedDepth', 4 if self._settings.depth_transport == 'raw' else 0.4,
                      self._own.size or self._listener.size, self._message_bytes, 0 if self._lost else self._came, self.name)

    def _usable(self, item: bytes, frame: UInt8, calibration: Intrinsics) -> DepthImage:
        view = view_image(item) if self._settings.depth_transport == 'raw' else None  # it saves copies
        pixels, unit_m = depth_pixels(view or deserialise(item, self.images.msg_type), self._settings.max_megapixels)
        if pixels.shape != frame.shape:
            raise FrameError(f'it has {size_text(size_of(pixels))} pixels, the image {size_text(size_of(frame))}: {_REGISTER}')
        own = self._own.newest(size_of(frame))
        if own is not None and not self._registered(own, calibration):
            raise FrameError(f'its CameraInfo is another one, {own}, the image has {calibration}: {_REGISTER}')
        self._known = share_known(pixels)
        return DepthImage(pixels, unit_m, calibration, self._settings.depth_noise)

    def _why_none(self, of_matches: str) -> str:
        if not self._known:
            return (f'no pixel of the depth images is known, all are 0, not finite or negative ({self.topic}): look at the range, '
                    'the emitter and the exposure of the depth camera')
        return (f'{100 * self._known:.0f} % of the pixels of the newest depth image are known, and none where the points are '
                f'({self.topic}): look at the range and the field of view of the depth camera')

    def _registered(self, own: Intrinsics, calibration: Intrinsics) -> bool:
        """`same_view` of the depth images and the frames, which may be kept from two moments; computed when one of them changes."""
        if self._compared is None or self._compared[0] is not own or self._compared[1] is not calibration:
            self._compared = own, calibration, same_view(own, calibration, max(REGISTERED_PX, 2 * JITTER * own.width))
        return self._compared[2]


def _percent(shares: Sequence[_Share]) -> float:
    return 100 * sum(share.known for share in shares) / max(sum(share.points for share in shares), 1)


_REGISTER = 'let the driver register depth to the images (align_depth, depth_registration), and give that topic'
