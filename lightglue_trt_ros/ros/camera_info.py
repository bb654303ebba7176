"""The node's camera: the newest CameraInfo that can be used, and one line for each that cannot."""

from __future__ import annotations

import dataclasses

import numpy as np
from rclpy.node import Node
from rclpy.qos import HistoryPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CameraInfo

from ..core.cameras import Intrinsics, camera_info_topic, distortion_model, intrinsics_of
from ..core.geometry import Size
from ..utils.errors import BagError

QOS = QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)


def camera_topic(camera: str, topic: str) -> str:
    """A topic of one of several cameras: image is front/image, ~/matches is ~/front/matches; of the only one, '', as it is."""
    if not camera:
        return topic
    return f'~/{camera}/{topic[2:]}' if topic.startswith('~/') else f'{camera}/{topic}'


class CameraListener:
    """Listens beside the image topic, as image_transport does, or where the camera's `camera_info` is remapped to."""

    def __init__(self, node: Node, purpose: str, camera: str = '') -> None:
        """`purpose` is what needs the camera, for people: the subject of a sentence; `camera` its name, empty for the only one."""
        self._node, self._purpose = node, purpose
        self._image_topic = node.resolve_topic_name(camera_topic(camera, 'image'))
        remapped, plain = (node.resolve_topic_name(camera_topic(camera, 'camera_info'), only_expand=only) for only in (False, True))
        topic = remapped if remapped != plain else camera_info_topic(self._image_topic)
        self._subscription = node.create_subscription(CameraInfo, topic, self._on_info, QOS)
        self._camera: Intrinsics | None = None  # the same object as long as its values are the same
        self._refused = False  # what came last was no camera
        self._said = ''
        self.trouble = ''  # why there is no camera, for people; empty: there is one

    def close(self) -> None:
        self._node.destroy_subscription(self._subscription)

    def camera(self, size: Size | None = None) -> Intrinsics | None:
        """The camera of images of `size` (height, width), if given; None, with one line of log, while there is none."""
        camera = None if self._refused else self._camera
        if camera is None:
            if not self._refused:
                self._say(f'{self._purpose} waits for a CameraInfo on {self._subscription.topic_name}')
        elif size is not None and (camera.height, camera.width) != size:
            # Nothing is scaled: a resized image and a cropped one have the same size and different intrinsics.
            self._say(f'{self._purpose} waits: CameraInfo on {self._subscription.topic_name} is for {camera.width}x{camera.height} '
                      f'pixels, the images have {size[1]}x{size[0]}; publish the calibration of these images')
            return None
        else:
            self.trouble = ''
        return camera

    def _on_info(self, info: CameraInfo) -> None:
        try:
            camera = intrinsics_of(info, self._image_topic)
            distortion_model(camera)
        except BagError as error:
            self._refused = True
            self._say(f'{self._purpose} waits: CameraInfo on {self._subscription.topic_name} is refused: {error}')
        else:
            self._refused = False
            if self._camera is None or not _same(self._camera, camera):
                self._camera = camera

    def _say(self, line: str) -> None:
        """Once, until there is something else to say."""
        self.trouble = line
        if line != self._said:
            self._said = line
            self._node.get_logger().warning(line)


def _same(one: Intrinsics, other: Intrinsics) -> bool:
    return all(np.array_equal(getattr(one, field.name), getattr(other, field.name)) for field in dataclasses.fields(one))
