"""What comes for RViz and Foxglove: it reads, and it shows what the node really publishes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

rclpy = pytest.importorskip('rclpy', reason='rclpy is not installed: there is no node to compare with')
from rclpy.qos import ReliabilityPolicy
from sensor_msgs.msg import PointCloud2
from support.waiting import wait_for

from lightglue_trt_ros.ros import diagnostics
from lightglue_trt_ros.ros.clouds import DEPTH_DTYPE
from lightglue_trt_ros.ros.matcher.node import MatcherNode

pytestmark = pytest.mark.release

CONFIG = Path(__file__).parents[2] / 'config'
CAMERA = '/camera/image_raw'  # as matcher.launch.py has it by default


@pytest.fixture(scope='module')
def node() -> Iterator[MatcherNode]:
    rclpy.init()
    node = MatcherNode()
    node.trigger_configure()
    yield node
    node.destroy_node()
    rclpy.try_shutdown()


@pytest.fixture(scope='module')
def topics(node: MatcherNode) -> dict[str, list[str]]:
    # not by the node's name: nodes of tests before, gone but not yet forgotten by DDS, have the same
    wait_for(lambda: all(map(node.count_publishers, ('/diagnostics', '/matcher/matches', '/matcher/debug_image'))))
    return {name: types for name, types in node.get_topic_names_and_types() if node.count_publishers(name)}


def test_rviz_shows_the_debug_image_as_it_is_published(node: MatcherNode, topics: dict[str, list[str]]) -> None:
    displays = yaml.safe_load((CONFIG / 'matcher.rviz').read_text())['Visualization Manager']['Displays']
    assert {display['Class'] for display in displays} == {'rviz_default_plugins/Image'}
    shown = {display['Topic']['Value']: display['Topic'] for display in displays}
    (debug_image,) = set(shown) - {CAMERA}
    assert topics[debug_image] == ['sensor_msgs/msg/Image']
    (publisher,) = node.get_publishers_info_by_topic(debug_image)
    assert publisher.qos_profile.reliability == ReliabilityPolicy.RELIABLE
    assert shown[debug_image]['Reliability Policy'] == 'Reliable'


def test_rviz_shows_points_in_space_by_fields_that_they_have(node: MatcherNode, topics: dict[str, list[str]]) -> None:
    displays = yaml.safe_load((CONFIG / 'matcher_points.rviz').read_text())['Visualization Manager']['Displays']
    (points,) = (display for display in displays if display['Class'] == 'rviz_default_plugins/PointCloud2')
    assert topics[points['Topic']['Value']] == ['sensor_msgs/msg/PointCloud2']
    assert {'x', 'y', 'z', points['Channel Name']} <= set(DEPTH_DTYPE.names)
    (publisher,) = node.get_publishers_info_by_topic(points['Topic']['Value'])
    assert publisher.qos_profile.reliability == ReliabilityPolicy.RELIABLE
    assert '/matcher/debug_image' in [display['Topic']['Value'] for display in displays if 'Topic' in display]


def panels_in(layout: Any) -> list[str]:
    return [layout] if isinstance(layout, str) else [*panels_in(layout['first']), *panels_in(layout['second'])]


def test_foxglove_shows_the_debug_image_the_diagnostics_and_their_figures(node: MatcherNode, topics: dict[str, list[str]]) -> None:
    document = json.loads((CONFIG / 'foxglove.json').read_text())
    panels = document['configById']
    assert sorted(panels_in(document['layout'])) == sorted(panels)
    status = diagnostics.status(node, '', diagnostics.OPENING, node._pipeline.figures(node._pipeline.inputs[0]))
    for name, panel in panels.items():
        kind = name.partition('!')[0]
        if kind == 'Image':
            assert topics[panel['imageMode']['imageTopic']] == ['sensor_msgs/msg/Image']
        elif kind == '3D':
            for topic, shown in panel['topics'].items():
                assert topics[topic] == ['sensor_msgs/msg/PointCloud2']
                assert shown['colorField'] in DEPTH_DTYPE.names
        elif kind == 'Plot':
            for path in panel['paths']:
                topic, field = re.fullmatch(r'([a-z/_]+)\.(.*)', path['value']).groups()
                if topic == '/diagnostics':
                    hardware, key = re.findall(r'=="([^"]*)"', field)
                    assert hardware == status.hardware_id
                    float(next(value.value for value in status.values if value.key == key))
                else:
                    assert topics[topic] == ['sensor_msgs/msg/PointCloud2']
                    assert field in PointCloud2.get_fields_and_field_types()
        else:
            assert topics[panel['topicToRender']] == ['diagnostic_msgs/msg/DiagnosticArray']
            assert panel.get('selectedName', status.name) == status.name
            assert panel.get('selectedHardwareId', status.hardware_id) == status.hardware_id
