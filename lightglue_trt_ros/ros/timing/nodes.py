"""The least that a node of rclpy can do: an image comes, a cloud of as many bytes as the matcher's goes, and nothing is computed.

What the middleware and the machine cost, to hold the matcher's own node against (python -m lightglue_trt_ros.ros.timing.echo_node).
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
from rclpy.node import Node
from rclpy.qos import HistoryPolicy, QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import Image, PointCloud2

from ...utils.commands import Ending, node_command
from ..clouds import MATCH_DTYPE
from ..executor import ros_started, spin
from ..matcher.camera_interface import MATCH_FIELDS, RELIABLE

POINTS = np.zeros(1024, MATCH_DTYPE)


class EchoNode(Node):  # type: ignore[misc]
    """Takes the matcher's place on its topics; like the matcher it answers no first frame."""

    def __init__(self, **node_options: Any) -> None:
        super().__init__('matcher', **node_options)
        self._clouds = self.create_publisher(PointCloud2, '~/matches', RELIABLE)
        newest = QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
        self.create_subscription(Image, 'image', self._on_image, newest, raw=True)
        self._begun = False

    def _on_image(self, data: bytes) -> None:
        image = deserialize_message(data, Image)
        if self._begun:
            cloud = PointCloud2(header=image.header, fields=MATCH_FIELDS, height=1, width=len(POINTS), point_step=POINTS.itemsize,
                                row_step=POINTS.nbytes)
            cloud.data.frombytes(POINTS.view(np.uint8))
            self._clouds.publish(cloud)
        self._begun = True


@node_command('echo_node')
def main(argv: list[str] | None, ending: Ending) -> int:
    """Until a signal ends it."""
    with ros_started(argparse.ArgumentParser(prog='echo_node'), argv, ending):
        spin(EchoNode(), ending)
    return 0


if __name__ == '__main__':
    sys.exit(main())
