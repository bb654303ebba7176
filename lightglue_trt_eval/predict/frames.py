"""The frames of a recording as methods see them: decoded once, with the depth image and the right image of the same moment."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar

from lightglue_trt_ros.core.cameras import Intrinsics, distortion_model, same_view
from lightglue_trt_ros.core.depth import DepthImage, depth_pixels
from lightglue_trt_ros.core.geometry import size_of, size_text
from lightglue_trt_ros.core.image_check import TEXTURE, same_pixels, texture_of
from lightglue_trt_ros.core.images import gray_of
from lightglue_trt_ros.core.stereo import RightImage
from lightglue_trt_ros.core.types import UInt8
from lightglue_trt_ros.datasets.sequence import Frame, Recording, readable_frames
from lightglue_trt_ros.datasets.stereo_and_depth import DEPTH_SKEW_NS, StereoRecording, paired, with_nearest
from lightglue_trt_ros.utils.errors import BagError, FrameError

from ..images.degradation import degraded_depth
from .scene import Scene

Loaded = TypeVar('Loaded')

BAD_NAMED = 3  # frames that cannot be decoded, each with a line; the others are counted


class WallTime:
    """Seconds by what they were spent on, from any thread: what goes on side by side counts on each side."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._lock = threading.Lock()

    @contextmanager
    def spent(self, name: str) -> Iterator[None]:
        """Count the time of a block as `name`."""
        started = time.perf_counter()
        try:
            yield
        finally:
            with self._lock:
                self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started


class ShownDepth(NamedTuple):
    """The depth image of a frame."""

    given: DepthImage  # to our matchers
    recorded: DepthImage  # the same, where it is not degraded; without noise where it is: it is the truth then


class ShownFrame(NamedTuple):
    """A frame as every method sees it."""

    number: int  # in the timeline
    seconds: float
    image: UInt8
    camera: Intrinsics | None = None  # None: unknown
    depth: ShownDepth | None = None  # None: it has none of its moment and size, or was not asked for
    right: RightImage | None = None  # likewise


class DepthImages(NamedTuple):
    """The depth images of a recording, registered to the images of `camera`; `degradation` may be empty."""

    recording: Recording
    camera: Intrinsics
    degradation: str = ''

    def load(self, frame: Frame) -> ShownDepth:
        """Raises BagError, FrameError."""
        pixels, unit_m = depth_pixels(frame.load(), per_metre=self.recording.depth_scale)
        (height, width), camera = pixels.shape, self.camera
        if (height, width) != (camera.height, camera.width):
            raise FrameError(f'it has {width}x{height} pixels, the images {camera.width}x{camera.height}: register it to them')
        recorded = DepthImage(pixels, unit_m, camera)
        if not self.degradation:
            return ShownDepth(recorded, recorded)
        return ShownDepth(degraded_depth(recorded, self.degradation), recorded._replace(noise=0.0))


class Frames:
    """The frames of the scene's timeline, which can be read again and again.

    `frames` opens the recording anew, `decode` makes gray uint8 (H, W) of what a frame loads, `on_note` gets a line
    about images that are lost. Whoever goes through all frames asks `stopped` at each.
    """

    def __init__(self, frames: Callable[[], Iterable[Frame]], decode: Callable[[Any], UInt8], scene: Scene, *,
                 wall: WallTime | None = None, stopped: Callable[[], bool] = lambda: False,
                 on_note: Callable[[str], None] = lambda line: None, depths: DepthImages | None = None,
                 stereo: StereoRecording | None = None, sampled: int = 30) -> None:
        """`sampled`: pairs that are also timed, and matched backwards."""
        self.scene, self.wall, self.on_note = scene, wall or WallTime(), on_note
        self.depths, self.stereo, self.sampled = depths, stereo, sampled
        self._frames, self._decode, self.stopped = frames, decode, stopped

    def __len__(self) -> int:
        return len(self.scene.timeline)

    def read(self, wanted: Collection[int] | None = None) -> Iterator[ShownFrame]:
        """Every frame that can be decoded; of the `wanted` numbers alone, without a line about those that cannot."""
        self._missing = {'depth': 0, 'stereo': 0}
        self._reasons, self._copies, count, bad = dict[str, str](), 0, 0, 0
        self._before: ShownFrame | None = None
        on_note = self.on_note if wanted is None else lambda line: None
        source = self._with_others(on_note)
        for number in itertools.count():
            with self.wall.spent('reading'):
                entry = next(source, None)
                if entry is None:
                    break
                if wanted is not None and number not in wanted:
                    continue
                count += 1
                try:
                    shown = self._shown(number, *entry)
                except (BagError, FrameError) as error:
                    bad += 1
                    if bad <= BAD_NAMED:
                        on_note(f'frame {entry[0].number} cannot be decoded: {error}')
                    continue
            yield shown
        if bad > BAD_NAMED:
            on_note(f'{bad} of {count} frames cannot be decoded; the first {BAD_NAMED} are named')
        if self._missing['depth']:
            on_note(f'depth: {self._missing["depth"]} of {count} frames have no depth image within {DEPTH_SKEW_NS / 1e9:g} s and '
                    f'half the time between frames{self._reasons.get("depth", "")}')
        if self._missing['stereo']:
            on_note(f'stereo: {self._missing["stereo"]} of {count} frames have no right image of their stamp and size'
                    f'{self._reasons.get("stereo", "")}')
        if self._copies:
            on_note(f'stereo: {self._copies} of {count} right images have the picture of the one before under a new stamp, and the '
                    'left ones have not: record what the right camera sends, without copies')

    def _with_others(self, on_note: Callable[[str], None]) -> Iterator[tuple[Frame, Frame | None, Frame | None]]:
        """Every frame with the one of its depth image and of its right image."""
        frames = iter(self._frames())
        depths: Iterable[Frame | None] = itertools.repeat(None)
        rights = depths
        if self.depths is not None:
            frames, own = itertools.tee(frames)
            depths = (near for _, near in with_nearest(own, readable_frames(self.depths.recording, on_note)))
        if self.stereo is not None:
            frames, own = itertools.tee(frames)
            rights = (right for _, right in paired(own, self.stereo.right.frames(lambda number, error: None)))
        return zip(frames, depths, rights, strict=False)

    def _shown(self, number: int, frame: Frame, depth_frame: Frame | None, right_frame: Frame | None) -> ShownFrame:
        """Raises BagError, FrameError for an image that cannot be decoded."""
        depth = None if self.depths is None else self._usable('depth', depth_frame, self.depths.load)
        image = self._decode(frame.load())
        self.scene.see(number, image.shape)
        if depth is not None and depth.given.pixels.shape != image.shape:
            depth = None
        right = None if self.stereo is None else self._usable('stereo', right_frame, partial(_right_image, self.stereo, image))
        shown = ShownFrame(number, self.scene.timeline.seconds(number), image, self.scene.camera_of(number), depth, right)
        self._copies += _only_right_repeats(self._before, shown)
        self._before = shown
        return shown

    def _usable(self, kind: str, frame: Frame | None, load: Callable[[Frame], Loaded]) -> Loaded | None:
        """What `load` makes of a frame; where that is nothing, it is counted, and the first reason kept."""
        try:
            if frame is not None:
                return load(frame)
        except (BagError, FrameError) as error:
            self._reasons.setdefault(kind, f'; the first that cannot be used: {error}')
        self._missing[kind] += 1
        return None


def _right_image(stereo: StereoRecording, left: UInt8, frame: Frame) -> RightImage:
    """The image of a right `frame`, of the same moment as the image `left` (H, W). Raises BagError, FrameError."""
    image = gray_of(frame.load(), stereo.right.bits)
    if image.shape != left.shape:
        raise FrameError(f'it has {size_text(size_of(image))} pixels, the left one {size_text(size_of(left))}')
    if same_pixels(left, image) and texture_of(image) >= TEXTURE:
        raise FrameError('it is the left image itself: give that of the right camera')
    return RightImage(image, stereo.rig)


def _only_right_repeats(before: ShownFrame | None, shown: ShownFrame) -> bool:
    if before is None or before.right is None or shown.right is None:
        return False
    is_copy = same_pixels(before.right.image, shown.right.image) and not same_pixels(before.image, shown.image)
    return is_copy and texture_of(shown.right.image) >= TEXTURE


def check_registered(depth: Recording, images: Recording, camera: Intrinsics) -> None:
    """Raise BagError where the depth images have a calibration of their own that is not that of the images.

    The recorded calibration of the images counts, and `camera` where there is none.
    """
    own, recorded = (_recorded_camera(each) for each in (depth, images))
    expected = recorded or camera
    if own is not None and not same_view(own, expected):
        raise BagError(f'{depth.image_topic} is not registered to {images.image_topic}: its CameraInfo is another one, '
                       f'{own}, the images have {expected}. Let the driver register depth to these images '
                       '(align_depth, depth_registration), or evaluate the rectified images with rectified depth')


def _recorded_camera(recording: Recording) -> Intrinsics | None:
    """None where it cannot be used."""
    try:
        camera = recording.intrinsics
        if camera is not None:
            distortion_model(camera)
        return camera
    except BagError:
        return None
