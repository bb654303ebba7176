"""Masks of a camera: from a file, and the newest message of the mask topic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from rclpy.node import Node
from sensor_msgs.msg import Image

from ...core.geometry import Size
from ...core.images import gray_from_image
from ...core.masks import Mask, load_mask
from ...utils.errors import FrameError
from .. import diagnostics
from ..camera_info import camera_topic
from ..clouds import stamp_seconds
from ..fading_log import FadingLog
from ..parameters import NodeConfig
from ..qos import OVERRIDABLE, newest
from .subscription import deserialise

ENCODINGS = ('mono8', '8UC1')


class CameraMasks:
    """Masks of the file and of the topic. Frames go on without a mask that is missing, too old or invalid, with a line."""

    def __init__(self, node: Node, log: Any, settings: NodeConfig, engine: Size, camera: str = '') -> None:
        """`engine` is the size, (height, width), that frames are resized to; `camera` its name, empty for a single one.

        Raises ConfigError for a file that is no mask.
        """
        topic, file = camera_topic(camera, 'mask'), settings.mask_file.replace('{camera}', camera)
        self._node, self._log, self._engine, self._max_age_s = node, log, engine, settings.mask_max_age_s
        self._file_mask = load_mask(Path(file).expanduser()) if file else None
        self._remapped = node.resolve_topic_name(topic) != node.resolve_topic_name(topic, only_expand=True)
        self._subscription = node.create_subscription(Image, topic, self._on_mask, newest(), qos_overriding_options=OVERRIDABLE,
                                                      raw=True)
        self._topic = self._subscription.topic_name
        self._newest: bytes | None = None
        self._decoded: tuple[bytes, float, Mask | FrameError] | None = None  # message, its stamp, its mask
        self._combined: tuple[Mask, Size, Mask] | None = None  # topic mask, image size, topic and file mask
        self._problem, self._is_missed = '', False  # why the topic's mask is not used; from a line about that to that of its end
        self._problems = FadingLog(pause_s=0.0)
        self.description = ''  # which masks hide how much, for diagnostics; empty: no mask so far
        self._hidden: Mask | None = None  # by which the newest image is hidden

    def close(self) -> None:
        self._node.destroy_subscription(self._subscription)

    def mask(self, image: Size, stamp: float) -> Mask | None:
        """The mask for an image of a size (height, width) with a stamp in seconds; from the pipeline's thread.

        Raises FrameError when the file's mask has another size: the frame must not be matched without it.
        """
        if self._file_mask is not None:
            self._file_mask.check(image, self._engine)
        mask = self._topic_mask(image, stamp)
        if mask is not None and self._file_mask is not None:
            if self._combined is None or self._combined[:2] != (mask, image):
                self._combined = mask, image, mask.both(self._file_mask, image)
            mask = self._combined[2]
        mask = mask or self._file_mask
        hidden = 'nothing' if mask is None else f'{100 * mask.share:.0f} % of the image, by {mask.name}'
        self.description = '' if mask is None and not self._problem else f'{hidden}; {self._problem}'.strip('; ')
        self._hidden = mask
        return mask

    @property
    def verdict(self) -> diagnostics.Verdict | None:
        """On a mask that is not used, or that leaves nothing; None without such problems."""
        if problem := self._problem:
            return diagnostics.Verdict(diagnostics.WARN, f'{problem}: matching goes on without it', logged=True)
        if (mask := self._hidden) is not None and mask.share == 1:
            return diagnostics.Verdict(diagnostics.WARN, f'{mask.name} is 0 in the whole image: there can be no keypoints')
        return None

    def _topic_mask(self, image: Size, stamp: float) -> Mask | None:
        """The topic's mask for this image; None with a line where there is none."""
        try:
            mask = self._current(image, stamp)
        except FrameError as error:
            self._problem = str(error)
            self._is_missed |= self._problems.warn(self._log, f'{error}: matching goes on without it')
            return None
        self._problem = ''
        if mask is not None and self._is_missed:
            self._is_missed = False
            self._log.info(f'{mask.name} is used')
        return mask

    def _current(self, image: Size, stamp: float) -> Mask | None:
        """The decoded mask, or None when none is published. Raises FrameError when it cannot be used."""
        newest = self._newest
        if newest is None:
            if self._remapped:
                is_there = self._node.count_publishers(self._topic)
                why = 'give one that never changes as mask_file' if is_there else 'nobody publishes it'
                raise FrameError(f'no mask has come on {self._topic} ({why})')
            return None
        if self._decoded is None or self._decoded[0] is not newest:
            self._decoded = newest, *self._decode(newest)
        _, taken, mask = self._decoded
        if isinstance(mask, FrameError):
            raise mask
        mask.check(image, self._engine)
        if abs(stamp - taken) > self._max_age_s:
            side = 'older' if taken < stamp else 'newer'
            raise FrameError(f'the newest mask on {self._topic} is {abs(stamp - taken):.2f} s {side} than the image, '
                             f'mask_max_age_s is {self._max_age_s:g}')
        return mask

    def _decode(self, data: bytes) -> tuple[float, Mask | FrameError]:
        name = f'the mask on {self._topic}'
        try:
            message = deserialise(data, Image, f' on {self._topic}')
            if message.encoding not in ENCODINGS:
                raise FrameError(f'{name} is {message.encoding}: send mono8, 0 where no keypoint may be')
            return stamp_seconds(message.header), Mask(np.ascontiguousarray(gray_from_image(message)), name)
        except FrameError as error:
            return 0.0, error

    def _on_mask(self, data: bytes) -> None:
        self._newest = data
