"""~/feature and ~/restart: what the estimators of VINS-Mono and VINS-Fusion subscribe to."""

from __future__ import annotations

import array
from typing import Any

from geometry_msgs.msg import Point32
from rclpy.lifecycle import LifecycleNode
from rclpy.qos import QoSProfile
from sensor_msgs.msg import ChannelFloat32, PointCloud
from std_msgs.msg import Bool

from ...core.types import FrameMatches
from ..camera_info import CameraListener, camera_topic
from ..parameters import NodeConfig
from .vins_tracks import VinsTracks, channels
from .worker import Input


class VinsTopics:
    """Publishes every frame's tracks once the camera is known."""

    def __init__(self, node: LifecycleNode, settings: NodeConfig, reliable: QoSProfile, camera: str) -> None:
        self._node, self._channels = node, settings.vins_channels
        feature, restart = (camera_topic(camera, topic) for topic in ('~/feature', '~/restart'))
        self._feature: Any = node.create_lifecycle_publisher(PointCloud, feature, reliable)
        self._restart: Any = node.create_lifecycle_publisher(Bool, restart, reliable)
        self._camera = CameraListener(node, feature, camera)
        self._tracks = VinsTracks(settings.max_tracks, settings.cameras.index(camera), len(settings.cameras))
        self._published = False

    def close(self) -> None:
        for publisher in (self._feature, self._restart):
            self._node.destroy_lifecycle_publisher(publisher)
        self._camera.close()

    def publish(self, frame: Input, matches: FrameMatches) -> None:
        """From the pipeline's thread."""
        camera = self._camera.camera((frame.image.shape[0], frame.image.shape[1]))
        if camera is None:
            return
        right = None if frame.right is None or self._channels == 5 else frame.right.rig.right  # VINS-Mono knows no second camera
        found = self._tracks.update(matches, camera, right)
        message = PointCloud(header=frame.source.header)
        message.points = [Point32(x=x, y=y, z=1.0) for x, y in found.points.tolist()]
        message.channels = [ChannelFloat32(name=name, values=array.array('f', values.tobytes()))
                            for name, values in channels(found, self._channels).items()]
        self._feature.publish(message)
        self._published = True

    def begin(self) -> None:
        """The node is active; where it was so before, the tracks of that time have ended."""
        if self._published:
            self.restart()

    def restart(self) -> None:
        """The estimator's window ends: what comes next has nothing to do with what came before."""
        self._restart.publish(Bool(data=True))
