"""A camera's topic that has messages of another type, over real DDS: the node's reason names the topic to give instead."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Any

import pytest

rclpy = pytest.importorskip('rclpy', reason='rclpy is not installed: the node is not tested')
from rclpy.node import Node
from rclpy.utilities import get_rmw_implementation_identifier
from sensor_msgs.msg import CompressedImage, Image, PointCloud2
from support.waiting import wait_for

from lightglue_trt_ros.ros import diagnostics

pytestmark = pytest.mark.release

RAW, COMPRESSED = 'sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage'
REMAP = 'start this node with --ros-args -r image:=/camera/image_raw (ros2 launch: image_topic:=/camera/image_raw)'
NETWORK = ', '.join(f'{name}={value}' for name, value in {
    'ROS_DOMAIN_ID': os.environ['ROS_DOMAIN_ID'], 'RMW_IMPLEMENTATION': get_rmw_implementation_identifier(),
    **{name: os.environ[name] for name in ('ROS_AUTOMATIC_DISCOVERY_RANGE', 'ROS_LOCALHOST_ONLY') if name in os.environ}}.items())


@pytest.fixture
def driver(stack: ExitStack) -> Node:
    """Of another process, as far as DDS knows: within one, a topic has one type."""
    context = rclpy.Context()
    rclpy.init(context=context)
    stack.callback(context.try_shutdown)
    node = Node('driver', context=context)
    stack.callback(node.destroy_node)
    return node


@pytest.mark.parametrize(('kind', 'topic', 'given', 'transport', 'reason'), [
    (CompressedImage, '/camera/image_raw/compressed', '/camera/image_raw/compressed', 'raw',
     f'{COMPRESSED} comes there: set image_transport to compressed, and give /camera/image_raw, as the node appends /compressed'),
    (CompressedImage, '/camera/jpeg', '/camera/jpeg', 'raw',
     f'{COMPRESSED} comes there: set image_transport to compressed, and remap /camera/jpeg/compressed to it'),
    (Image, '/camera/small/compressed', '/camera/small', 'compressed',
     f'{RAW} comes there: set image_transport to raw, and give /camera/small/compressed'),
    (CompressedImage, '/camera/image_raw/compressed', '/camera/image_raw/compressed', 'compressed',
     f'nobody publishes it; {COMPRESSED} comes on /camera/image_raw/compressed: {REMAP}; give /camera/image_raw, as the node '
     'appends /compressed'),
    (Image, '/camera/image_raw', '/image', 'raw', f'nobody publishes it; {RAW} comes on /camera/image_raw: {REMAP}'),
    (CompressedImage, '/camera/image_raw/compressed', '/image', 'raw',
     f'nobody publishes {RAW} anywhere; {COMPRESSED} comes on /camera/image_raw/compressed: set image_transport to compressed, and '
     f'{REMAP}'),
    (Image, '/camera/image_raw', '/image', 'compressed',
     f'nobody publishes {COMPRESSED} anywhere; {RAW} comes on /camera/image_raw: set image_transport to raw, and {REMAP}'),
    (PointCloud2, '/points', '/camera/image_raw', 'raw',
     f'nobody publishes {RAW} anywhere; start its driver, with the same {NETWORK}'),
    (CompressedImage, '/camera/image_raw/zstd', '/camera/image_raw', 'raw',
     f'nobody publishes {RAW} anywhere; /camera/image_raw/zstd can be made raw by image_transport republish'),
    (PointCloud2, '/camera/points', '/camera/points', 'raw',
     f'sensor_msgs/msg/PointCloud2 comes there, no {RAW}; give another topic')])
def test_a_topic_of_another_type_is_told_with_the_topic_to_give(stack: ExitStack, driver: Node, kind: Any, topic: str, given: str,
                                                                 transport: str, reason: str) -> None:
    node = Node('matcher')
    stack.callback(node.destroy_node)
    of = (Image, given) if transport == 'raw' else (CompressedImage, f'{given}/compressed')
    images = node.create_subscription(*of, print, 1)
    driver.create_publisher(Image, '/left/matcher/debug_image', 1)  # of another matcher: no camera
    driver.create_publisher(kind, topic, 1)
    wanted = diagnostics.Wanted(images, 'image_transport', 'compressed', 1)
    wait_for(lambda: diagnostics.why_silent(node, wanted) == reason)
