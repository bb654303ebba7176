"""Quality of service by ROS's own parameters, qos_overrides, over real DDS."""

from __future__ import annotations

import pytest

rclpy = pytest.importorskip('rclpy', reason='rclpy is not installed: the nodes are not tested')
nav = pytest.importorskip('nav_msgs.msg', reason='nav_msgs is not installed: the odometry is not tested')
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, ReliabilityPolicy
from support.ros_helpers import SMALL, Peer, SpunMatcher, as_parameters, image_message, matcher_node, opens
from support.waiting import wait_for

from lightglue_trt_ros.ros.matcher.node import MatcherNode
from lightglue_trt_ros.ros.odometry_node import OdometryNode
from lightglue_trt_ros.utils.errors import ConfigError

pytestmark = pytest.mark.release

IMAGE, MASK, INFO, MATCHES = (f'qos_overrides./{topic}' for topic in (
    'image.subscription', 'mask.subscription', 'camera_info.subscription', 'matcher/matches.publisher'))


def overrides(**values) -> list[Parameter]:
    return as_parameters(values)


def matcher(**parameters) -> MatcherNode:
    return matcher_node(opens(), SMALL, **parameters)


def of_subscription(peer: Peer, topic: str, node: str = 'matcher') -> tuple:
    found = [each.qos_profile for each in peer.node.get_subscriptions_info_by_topic(topic) if each.node_name == node]
    return (found[0].reliability, found[0].durability) if found else ()


def test_subscriptions_and_publishers_have_the_quality_that_is_given(stack, capfd):
    running = SpunMatcher(matcher(**{f'{IMAGE}.reliability': 'reliable', f'{IMAGE}.depth': 5, f'{MASK}.reliability': 'reliable',
                                     f'{MATCHES}.reliability': 'best_effort', f'{MATCHES}.durability': 'volatile'}))
    stack.callback(running.close)
    node, peer = running.node, running.peer
    volatile, reliable, best_effort = DurabilityPolicy.VOLATILE, ReliabilityPolicy.RELIABLE, ReliabilityPolicy.BEST_EFFORT
    wait_for(lambda: of_subscription(peer, '/image') == (reliable, volatile))
    wait_for(lambda: of_subscription(peer, '/mask') == (reliable, volatile))
    wait_for(lambda: of_subscription(peer, '/camera_info') == (best_effort, volatile))  # another topic keeps its own
    assert node._cameras[0].images.qos_profile.depth == 5
    assert node.get_parameter(f'{INFO}.depth').value == 1
    wait_for(lambda: [each.qos_profile.reliability for each in peer.node.get_publishers_info_by_topic('/matcher/matches')]
             == [best_effort])
    peer.send(image_message(10**9), peer.images)
    wait_for(lambda: peer.figures().get('frames received') == '1')
    log = capfd.readouterr().err
    assert 'subscribed to /image (reliable)' in log
    assert 'without effect' not in log
    node.trigger_deactivate()
    node.trigger_cleanup()
    assert node.start(), 'the parameters are there a second time'
    wait_for(lambda: of_subscription(peer, '/image') == (reliable, volatile))


def test_a_durability_that_no_driver_offers_is_named_with_the_remedy(stack):
    running = SpunMatcher(matcher(**{f'{IMAGE}.durability': 'transient_local', f'{IMAGE}.reliability': 'reliable'}))
    stack.callback(running.close)
    wait_for(lambda: 'peer publishes volatile, which a transient local subscription never receives; set the durability in the '
             'qos_overrides of this topic to volatile' in running.peer.status()[1])


def test_an_override_of_no_topic_of_the_node_is_named(stack, capfd):
    running = SpunMatcher(matcher(**{'qos_overrides./camera/image_raw.subscription.reliability': 'reliable',
                                     f'{IMAGE}.deadline': 5, f'{IMAGE}.reliability': 'reliable'}))
    stack.callback(running.close)
    assert ('qos_overrides./camera/image_raw.subscription.reliability, qos_overrides./image.subscription.deadline: without effect. '
            'A name is qos_overrides.TOPIC.subscription or .publisher') in capfd.readouterr().err
    dumped = {f'qos_overrides./matches.subscription.{policy}': value for policy, value in (
        ('depth', 3), ('durability', 'volatile'), ('history', 'keep_last'), ('reliability', 'reliable'))}
    node = OdometryNode(parameter_overrides=overrides(**dumped))
    node.destroy_node()
    assert 'qos_overrides./matches.subscription.history and more: without effect' in capfd.readouterr().err


@pytest.mark.parametrize(('name', 'value', 'words'), [
    (f'{IMAGE}.reliability', 'relaible', r'reliability is relaible: choose reliable or best_effort'),
    (f'{IMAGE}.durability', 3, r'durability is 3: choose volatile or transient_local'),
    (f'{IMAGE}.history', 'all', r'history is all: choose keep_last or keep_all'),
    (f'{IMAGE}.depth', 0, r'depth is 0: give a number of messages, 1 or more'),
    (f'{IMAGE}.depth', 'ten', r'depth is ten: give a number of messages')])
def test_a_value_that_is_none_is_refused(stack, name, value, words):
    with pytest.raises(ConfigError, match=words):
        matcher(**{name: value})


def test_the_odometry_takes_overrides(stack, peer):
    node = OdometryNode(parameter_overrides=overrides(**{f'qos_overrides./{topic}.reliability': 'best_effort' for topic in (
        'matcher/matches.subscription', 'odometry/odometry.publisher')}))
    stack.callback(node.destroy_node)
    wait_for(lambda: of_subscription(peer, '/matcher/matches', 'odometry')[:1] == (ReliabilityPolicy.BEST_EFFORT,))
    wait_for(lambda: [each.qos_profile.reliability for each in peer.node.get_publishers_info_by_topic('/odometry/odometry')]
             == [ReliabilityPolicy.BEST_EFFORT])
