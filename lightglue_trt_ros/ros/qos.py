"""Quality of service that ROS's own parameters override: qos_overrides./TOPIC.subscription.reliability and the like."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSPolicyKind, QoSProfile, ReliabilityPolicy
from rclpy.qos_overriding_options import QoSOverridingOptions

from ..utils.errors import ConfigError

PREFIX = 'qos_overrides.'
POLICIES = ('history', 'depth', 'reliability', 'durability')
OVERRIDABLE = QoSOverridingOptions([QoSPolicyKind[name.upper()] for name in POLICIES])  # of each subscription and publisher
VALUES = {'history': ('keep_last', 'keep_all'), 'reliability': ('reliable', 'best_effort'),
          'durability': ('volatile', 'transient_local')}


def newest() -> QoSProfile:
    """For the last message alone, of any publisher."""
    return QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)


def latched() -> QoSProfile:
    """For the last message of publishers that keep it, sent before too. Best effort would not get that."""
    return QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)


def unheard(node: Node, subscription: Any, setting: str = '') -> str:
    """Publishers whose quality a subscription refuses, for people; empty: none. `setting` is a parameter of its reliability."""
    for policy, least in (('reliability', ReliabilityPolicy.BEST_EFFORT), ('durability', DurabilityPolicy.VOLATILE)):
        asked = getattr(subscription.qos_profile, policy)
        names = ', '.join(info.node_name for info in node.get_publishers_info_by_topic(subscription.topic_name)
                          if asked != least == getattr(info.qos_profile, policy))
        if names:
            has, wants = (value.name.lower().replace('_', ' ') for value in (least, asked))
            also, to = (f'{setting}, or ', ',') if setting and policy == 'reliability' else ('', '')
            return (f'{names} publishes {has}, which a {wants} subscription never receives; set {also}the {policy} in the '
                    f'qos_overrides of this topic{to} to {least.name.lower()}')
    return ''


def check_overrides(node: Node) -> None:
    """Raises ConfigError for a value that rclpy would end the node with."""
    for name, value in _given(node):
        policy = name.rpartition('.')[2]
        if policy == 'depth' and (type(value) is not int or value < 1):
            raise ConfigError(f'{name} is {value}: give a number of messages, 1 or more')
        if policy in VALUES and value not in VALUES[policy]:
            raise ConfigError(f'{name} is {value}: choose {" or ".join(VALUES[policy])}')


def without_effect(node: Node) -> str:
    """The overrides that are of no topic of a node whose topics are open, and how they are written, for people; empty: none."""
    topics = [f'{each.topic_name}.{kind}' for kind, group in (('subscription', node.subscriptions), ('publisher', node.publishers))
              for each in group]
    known = {f'{PREFIX}{topic}.{policy}' for topic in topics for policy in POLICIES}
    unknown = sorted({name for name, _ in _given(node)} - known)
    if not unknown:
        return ''
    return (f'{", ".join(unknown[:3])}{" and more" * (len(unknown) > 3)}: without effect. A name is {PREFIX}TOPIC.subscription or '
            f'.publisher, with one of {", ".join(POLICIES)}; topics are those of ros2 node info {node.get_fully_qualified_name()}')


def _given(node: Node) -> Iterator[tuple[str, object]]:
    for name, parameter in node.get_parameters_by_prefix(PREFIX.rstrip('.')).items():
        yield f'{PREFIX}{name}', parameter.value
