"""CameraInfo of a camera or a stereo pair: the newest usable one; each reason why one cannot be used is logged once."""

from __future__ import annotations

import dataclasses

import numpy as np
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import CameraInfo

from ..core.cameras import Intrinsics, StereoRig, camera_info_topic, distortion_model, intrinsics_of
from ..core.geometry import Size
from ..utils.errors import BagError

NEWEST = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)  # of any publisher the last message alone
INFO_OF = {'image': 'camera_info', 'depth': 'depth_camera_info'}  # topics to remap, by that of the images
STAMP_ENDS = 12  # bytes of encapsulation and stamp, with which a serialised message with a header begins
RIGHT = 'right'  # name of the right camera: its topics are right/image and right/camera_info


def camera_topic(camera: str, topic: str) -> str:
    """A topic of one of several cameras: front/image, ~/front/matches. A single camera, '', keeps the topic as it is."""
    if not camera:
        return topic
    return f'~/{camera}/{topic[2:]}' if topic.startswith('~/') else f'{camera}/{topic}'


class CameraListener:
    """Listens next to the image topic, as image_transport does, or where `camera_info` is remapped to."""

    def __init__(self, node: Node, purpose: str, camera: str = '', image: str = 'image') -> None:
        """`purpose` is what needs the camera: the subject of log lines; `camera` its name, empty for a single one.

        `image` is the topic of its images, image or depth.
        """
        self._node, self._purpose = node, purpose
        self._image_topic = node.resolve_topic_name(camera_topic(camera, image))
        info = camera_topic(camera, INFO_OF[image])
        remapped, plain = (node.resolve_topic_name(info, only_expand=only) for only in (False, True))
        topic = remapped if remapped != plain else camera_info_topic(self._image_topic)
        self._subscription = node.create_subscription(CameraInfo, topic, self._on_info, NEWEST, raw=True)
        self._values = b''  # of the newest message, all but its stamp: drivers repeat the same one with each image
        self._camera: Intrinsics | None = None  # the same object as long as its values are the same
        self._refused = False  # the newest CameraInfo cannot be used
        self._logged = ''
        self.problem = ''  # why there is no camera; empty: there is one

    def close(self) -> None:
        self._node.destroy_subscription(self._subscription)

    @property
    def newest(self) -> Intrinsics | None:
        """The camera of the newest CameraInfo, if any came; None where that is refused."""
        return None if self._refused else self._camera

    def calibration(self, size: Size | None) -> Intrinsics | None:
        """The camera for images of `size` (height, width), if known. None, with the reason logged once, while there is none."""
        camera = self.newest
        if camera is None:
            if not self._refused:
                self._warn(f'{self._purpose} waits for a CameraInfo on {self._subscription.topic_name}')
        elif size is not None and (camera.height, camera.width) != size:
            # Nothing is scaled: a resized image and a cropped one have the same size and different intrinsics.
            self._warn(f'{self._purpose} waits: CameraInfo on {self._subscription.topic_name} is for '
                       f'{camera.width}x{camera.height} pixels, the images have {size[1]}x{size[0]}; publish the calibration of '
                       'these images')
            return None
        else:
            self.problem = ''
        return camera

    def _on_info(self, data: bytes) -> None:
        if data[STAMP_ENDS:] == self._values:
            return
        self._values = data[STAMP_ENDS:]
        try:
            camera = intrinsics_of(deserialize_message(data, CameraInfo), self._image_topic)
            distortion_model(camera)
        except BagError as error:
            self._refused = True
            self._warn(f'{self._purpose} waits: CameraInfo on {self._subscription.topic_name} is refused: {error}')
        else:
            self._refused = False
            self._camera = self._camera if self._camera and _same(self._camera, camera) else camera

    def _warn(self, line: str) -> None:
        """Log a problem once, until another one comes."""
        self.problem = line
        if line != self._logged:
            self._logged = line
            self._node.get_logger().warning(line)


class RigListener:
    """The stereo rig of both CameraInfos; each reason why there is none is logged once."""

    def __init__(self, node: Node, purpose: str) -> None:
        """`purpose` is what needs the cameras: the subject of log lines."""
        self._node, self._purpose = node, purpose
        self.left, self._right = CameraListener(node, purpose), CameraListener(node, purpose, RIGHT)
        self._cameras: tuple[Intrinsics, Intrinsics] | None = None  # of `_rig`
        self._rig: StereoRig | None = None
        self._refused = ''  # why there is no rig, as it was logged

    def close(self) -> None:
        self.left.close()
        self._right.close()

    def calibration(self, size: Size | None) -> StereoRig | None:
        """The rig for images of `size` (height, width), if known; None while there is none."""
        left, right = self.left.calibration(size), self._right.calibration(size)
        if left is None or right is None:
            return None
        if self._cameras != (left, right):
            try:
                self._rig, refused = StereoRig(left, right), ''
            except BagError as error:
                self._rig, refused = None, str(error)
                if refused != self._refused:
                    self._node.get_logger().warning(f'{self._purpose} waits: {error}')
            self._cameras, self._refused = (left, right), refused
        return self._rig

    @property
    def problem(self) -> str:
        """Why there is no rig; empty: there is one."""
        return self.left.problem or self._right.problem or self._refused


def _same(one: Intrinsics, other: Intrinsics) -> bool:
    return all(np.array_equal(getattr(one, field.name), getattr(other, field.name)) for field in dataclasses.fields(one))
