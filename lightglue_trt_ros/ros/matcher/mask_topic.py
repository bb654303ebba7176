"""A camera's masks: the one of a file, and the newest message that is near enough in time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from rclpy.node import Node
from rclpy.qos import HistoryPolicy, QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import Image

from ...core.geometry import Size
from ...core.images import gray_from_image
from ...core.masks import Mask, load_mask
from ...core.timing import FIGURES
from ...utils.errors import FrameError
from ..camera_info import camera_topic
from ..clouds import stamp_seconds
from ..parameters import NodeConfig

QOS = QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
ENCODINGS = ('mono8', '8UC1')
SETTLED_S = 2.0  # masks have to be used for so long before the next that is missing is told of again


class CameraMasks:
    """Listens to masks. One that is missing, too old or of no use is told of once, and the frames go on without it."""

    def __init__(self, node: Node, log: Any, settings: NodeConfig, engine: Size, camera: str = '') -> None:
        """`engine` is the size, (height, width), that frames are resized to; `camera` its name, empty for the only one.

        Raises ConfigError for a file of no use.
        """
        topic, file = camera_topic(camera, 'mask'), settings.mask_file.replace('{camera}', camera)
        self._node, self._log, self._engine, self._longest_s = node, log, engine, settings.mask_max_age_s
        self._of_file = load_mask(Path(file).expanduser()) if file else None
        self._remapped = node.resolve_topic_name(topic) != node.resolve_topic_name(topic, only_expand=True)
        self._subscription = node.create_subscription(Image, topic, self._on_mask, QOS, raw=True)
        self._topic = self._subscription.topic_name
        self._newest: bytes | None = None
        self._decoded: tuple[bytes, float, Mask | FrameError] | None = None  # of what was newest, and its stamp
        self._both: tuple[Mask, Size, Mask] | None = None  # of the topic, for images of that size, with that of the file
        self.complaint = self._said = ''  # why the topic's is not used, and what was said of that, without figures
        self._used_since: float | None = None  # stamp
        self.told = ''  # what hides parts of the images just now, for people; empty: nothing ever did

    def close(self) -> None:
        self._node.destroy_subscription(self._subscription)

    def mask(self, image: Size, stamp: float) -> Mask | None:
        """What hides parts of an image of that size, taken at `stamp`; from the pipeline's thread.

        Raises FrameError where the file's mask does not fit: without it the frame would show what must not be seen.
        """
        if self._of_file is not None:
            self._of_file.check(image, self._engine)
        seen = self._seen(image, stamp)
        if seen is not None and self._of_file is not None:
            if self._both is None or self._both[:2] != (seen, image):
                self._both = seen, image, seen.both(self._of_file, image)
            seen = self._both[2]
        found = seen or self._of_file
        hidden = 'nothing' if found is None else f'{100 * found.share:.0f} % of the image, by {found.name}'
        self.told = '' if found is None and not self.complaint else f'{hidden}; {self.complaint}'.strip('; ')
        return found

    def _seen(self, image: Size, stamp: float) -> Mask | None:
        """The topic's mask, where there is one for this image; else why not is told, once until masks have come for a while."""
        try:
            mask = self._current(image, stamp)
        except FrameError as error:
            self.complaint, self._used_since = str(error), None
            if (kind := FIGURES.sub('', self.complaint)) != self._said:
                self._said = kind
                self._log.warning(f'{error}: matching goes on without it')
            return None
        self.complaint = ''
        if mask is not None and self._used_since is None:
            self._used_since = stamp
        if mask is not None and self._said and abs(stamp - (self._used_since or 0.0)) > SETTLED_S:
            self._said = ''
            self._log.info(f'{mask.name} is used')
        return mask

    def _current(self, image: Size, stamp: float) -> Mask | None:
        """None where nobody sends any. Raises FrameError where there should be one."""
        newest = self._newest
        if newest is None:
            if self._remapped:
                raise FrameError(f'no mask has come on {self._topic}')
            return None
        if self._decoded is None or self._decoded[0] is not newest:
            self._decoded = newest, *self._decode(newest)
        _, taken, mask = self._decoded
        if isinstance(mask, FrameError):
            raise mask
        mask.check(image, self._engine)
        if abs(stamp - taken) > self._longest_s:
            side = 'older' if taken < stamp else 'newer'
            raise FrameError(f'the newest mask on {self._topic} is {abs(stamp - taken):.2f} s {side} than the image, '
                             f'mask_max_age_s is {self._longest_s:g}')
        return mask

    def _decode(self, data: bytes) -> tuple[float, Mask | FrameError]:
        try:
            message = deserialize_message(data, Image)
        except Exception as error:
            return 0.0, FrameError(f'a message of {len(data)} bytes on {self._topic} is no Image ({error}): check its sender')
        name = f'the mask on {self._topic}'
        try:
            if message.encoding not in ENCODINGS:
                raise FrameError(f'{name} is {message.encoding}: send mono8, 0 where no keypoint may be')
            return stamp_seconds(message.header), Mask(np.ascontiguousarray(gray_from_image(message)), name)
        except FrameError as error:
            return 0.0, error

    def _on_mask(self, data: bytes) -> None:
        self._newest = data
