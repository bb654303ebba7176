"""Nodes whose cost is compared with the matcher's (python -m lightglue_trt_eval.times.nodes echo|null [--ros-args ...])."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import numpy as np
from rclpy.node import Node
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import Image, PointCloud2

from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.engines.selection import Opened
from lightglue_trt_ros.ros.clouds import MATCH_DTYPE, fill_points
from lightglue_trt_ros.ros.executor import ros_started, spin
from lightglue_trt_ros.ros.matcher.camera_interface import FIELDS
from lightglue_trt_ros.ros.matcher.node import MatcherNode, run
from lightglue_trt_ros.ros.qos import newest
from lightglue_trt_ros.utils.commands import Ending, node_command

from .null_backend import NullBackend

POINTS = np.zeros(1024, MATCH_DTYPE)


class EchoNode(Node):  # type: ignore[misc]
    """Answers each image but the first with a cloud of the matcher's size: the cost of middleware and machine.

    It has the matcher's name and topics.
    """

    def __init__(self) -> None:
        super().__init__('matcher')
        self._clouds = self.create_publisher(PointCloud2, '~/matches', 10)
        self.create_subscription(Image, 'image', self._on_image, newest(), raw=True)
        self._begun = False

    def _on_image(self, data: bytes) -> None:
        image = deserialize_message(data, Image)
        if self._begun:
            cloud = PointCloud2(header=image.header, fields=FIELDS[MATCH_DTYPE])
            self._clouds.publish(fill_points(cloud, POINTS, dense=True))
        self._begun = True


def open_null(config: MatcherConfig, *, cancelled: Callable[[], bool]) -> Opened:
    """As `selection.open_backend`, without networks."""
    backend = NullBackend(config.engine_spec('fp32'))
    return Opened(backend, backend.description)


@node_command('nodes')
def main(argv: list[str] | None, ending: Ending) -> int:
    """Run until a signal ends it."""
    parser = argparse.ArgumentParser(prog='nodes')
    parser.add_argument('node', choices=('echo', 'null'), help='null: the matcher with a backend that computes nothing')
    with ros_started(parser, argv, ending) as args:
        if args.node == 'echo':
            spin(EchoNode(), ending)
        else:
            run(MatcherNode(open_null), ending)
    return 0


if __name__ == '__main__':
    sys.exit(main())
