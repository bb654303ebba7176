"""Settings as ROS parameters, with descriptions and ranges from the dataclasses' metadata."""

from __future__ import annotations

import array
import dataclasses
import itertools
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.node import Node
from rclpy.parameter import Parameter

from ..core.config import MAX_KEYPOINTS, MatcherConfig, check_cameras, check_names, check_setting, setting
from ..core.depth import NOISE
from ..utils.errors import ConfigError, did_you_mean
from ..utils.limits import MEGAPIXELS
from .qos import check_overrides

SIMILAR = 0.8  # similarity from which an unknown name counts as a misspelt setting
TOPICS = {'image': 'image', 'image_topic': 'image', 'camera_info': 'camera_info', 'mask': 'mask', 'mask_topic': 'mask',
          'right_image_topic': 'right/image', 'depth_topic': 'depth'}  # to remap, by that name or the argument of the launch file
LAUNCH = {topic: argument for argument, topic in TOPICS.items() if argument.endswith('_topic')}  # arguments of the launch files
_OF_RCLPY = ('use_sim_time', 'start_type_description_service', 'qos_overrides')  # prefixes of parameters that rclpy declares


@dataclass(frozen=True)
class NodeConfig:
    """Settings of the node. Raises ConfigError as MatcherConfig does."""

    image_transport: str = setting(
        'raw', 'raw subscribes to sensor_msgs/Image on the image topic, compressed to CompressedImage on <image>/compressed',
        choices=('raw', 'compressed'))
    qos_reliability: str = setting(
        'best_effort', 'Reliability of the image subscription; best_effort receives from every publisher',
        choices=('best_effort', 'reliable'))
    image_bits: int = setting(
        16, 'Bits that a camera with 16-bit encodings fills, counted from the lowest: 10 or 12 where the image looks black',
        low=8, high=16)
    max_megapixels: float = setting(
        MEGAPIXELS, 'Compressed images of more megapixels are refused before they are decoded', low=0.01, high=170.0)
    tracks_format: str = setting(
        'none', 'vins also publishes tracks as the estimators of VINS-Mono and VINS-Fusion read them, on ~/feature and ~/restart; '
        'needs CameraInfo', choices=('none', 'vins'))
    vins_channels: int = setting(
        5, 'Channels of ~/feature: 5 as VINS-Mono reads (id, u, v, vx, vy), 9 as VINS-Fusion (id, camera, u, v, vx, vy, 0, 0, 0)',
        choices=(5, 9))
    max_tracks: int = setting(200, 'Most tracks in a message of ~/feature, distributed over the image', low=1, high=MAX_KEYPOINTS)
    mask_file: str = setting(
        '', "An 8-bit gray PNG of the images' or the engine's size: no keypoint is where it is 0; empty: none",
        detail='With cameras, {camera} in the path stands for the name')
    mask_max_age_s: float = setting(
        0.5, 'Largest difference between the stamps of an image and of its mask from the topic, seconds', low=0.0, high=3600.0)
    stereo: bool = setting(
        False, 'Also match every frame with the right image of its pair: ~/matches gains u_right, v_right, x, y, z, sigma_z; '
        'needs both CameraInfos')
    max_stereo_skew_s: float = setting(
        0.005, 'Largest difference between the stamps of a left and a right image, seconds', low=0.0, high=1.0)
    depth: bool = setting(
        False, 'Take the depth of points from depth images that are registered to the frames: ~/matches gains x, y, z, sigma_z; '
        'needs CameraInfo')
    depth_transport: str = setting(
        'raw', 'raw subscribes to Image on the depth topic, compressedDepth to CompressedImage on <depth>/compressedDepth',
        choices=('raw', 'compressedDepth'), detail='Images are 16UC1 in millimetres or 32FC1 in metres')
    max_depth_skew_s: float = setting(
        0.02, 'Largest difference between the stamps of an image and of its depth image, seconds', low=0.0, high=1.0)
    depth_noise: float = setting(
        NOISE, 'Of the depth camera, for sigma_z: standard deviation of z over z squared, 1 / metre', low=0.0, high=1.0)
    max_wait_s: float = setting(
        0.1, 'With stereo or depth: longest wait of a frame for its right or depth image, from its arrival on, seconds',
        low=0.0, high=10.0)
    draw_covariances: bool = setting(False, 'Draw covariances on ~/debug_image: ellipses of ten standard deviations')
    cameras: tuple[str, ...] = setting(
        ('',), "Names of several cameras, with topics such as <name>/image and ~/<name>/matches; ['']: one camera without a name",
        detail='All cameras share one set of networks')
    autostart: bool = setting(True, 'Configure and activate by itself; false leaves that to a lifecycle manager')

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            check_setting(field, getattr(self, field.name))
        check_cameras(self.cameras)
        if self.stereo and self.cameras != ('',):
            raise ConfigError(f'stereo is of one pair, and cameras has {", ".join(self.cameras)}: run a node for each pair')
        if self.stereo and self.depth:
            raise ConfigError('stereo and depth are both true: points have one depth, choose either')


FIELDS = {field.name: field for kind in (MatcherConfig, NodeConfig) for field in dataclasses.fields(kind)}


def declare_settings(node: Node) -> tuple[MatcherConfig, NodeConfig]:
    """Declare every setting and return the values; `node` must declare its parameters from overrides automatically.

    Raises ConfigError for an unknown name, a wrong type or a value out of range in a params file or on the command line.
    """
    given = settings_given(node, FIELDS)
    given = {name: tuple(value) or ('',) if isinstance(value, (list, array.array)) else value for name, value in given.items()}
    matcher = MatcherConfig(**_of(MatcherConfig, given))
    own = NodeConfig(**_of(NodeConfig, given))
    for name, field in FIELDS.items():
        value = getattr(own if hasattr(own, name) else matcher, name)
        value = float(value) if isinstance(field.default, float) else list(value) if isinstance(value, tuple) else value
        node.declare_parameter(name, value, _descriptor(field), ignore_override=True)
    return matcher, own


def as_declared(parameters: Iterable[Parameter]) -> list[Parameter]:
    """Whole numbers as floats where the setting is one: `ros2 param set` sends 1 as an integer, which rclpy does not convert."""
    floats = {name for name, field in FIELDS.items() if isinstance(field.default, float)}
    return [Parameter(given.name, value=float(given.value)) if given.name in floats and type(given.value) is int else given
            for given in parameters]


def check_declared(node: Node, values: Mapping[str, Any]) -> None:
    """Raises ConfigError for an unknown name, a fixed setting, and a value out of range. rclpy's own words have no remedy."""
    _check_names({name: value for name, value in values.items() if not node.has_parameter(name)}, FIELDS)
    for name, value in values.items():
        if name in FIELDS and FIELDS[name].metadata['dynamic']:
            check_setting(FIELDS[name], value)
        elif name in FIELDS:
            text = str(value).lower() if isinstance(value, bool) else value
            raise ConfigError(f'{name} is read-only: start the node with --ros-args -p {name}:={text}')


def _check_names(given: Mapping[str, Any], known: Collection[str]) -> None:
    for name in TOPICS.keys() & given.keys():
        raise ConfigError(f'{name} is a topic, no parameter: start the node with --ros-args -r {TOPICS[name]}:={given[name]}')
    check_names(given, known)


@contextmanager
def empty_lists_refused() -> Iterator[None]:
    """While a node declares parameters from overrides: raises ConfigError for an empty list, which rclpy does not name."""
    try:
        yield
    except ValueError as error:
        if 'NOT_SET' not in str(error):
            raise
        found = ', '.join(f'{name} in {path}' for path, sections in params_files(sys.argv) for parameters in sections.values()
                          for name, value in _flat(parameters) if value == []) or 'a parameter'
        raise ConfigError(f"{found}: an empty list, for which ROS has no type; write [''], or leave it out") from error


def settings_given(node: Node, known: Collection[str]) -> dict[str, Any]:
    """The `known` settings that a params file or the command line gives; `node` declares parameters from overrides by itself.

    Undeclared again, as rclpy declares them without type, range and description. What a params file gives to every node (/**) and
    is unlike any setting belongs to another one, and is left alone. Raises ConfigError for any other name.
    """
    given = {name: parameter.value for name, parameter in node.get_parameters_by_prefix('').items()
             if not name.startswith(_OF_RCLPY)}
    check_overrides(node)
    own, everywhere = node.get_fully_qualified_name(), set[str]()
    for path, sections in params_files(sys.argv):
        if not any(is_named(own, name) and parameters for name, parameters in sections.items()):
            others = ', '.join(name for name, parameters in sections.items() if parameters) or 'nobody'
            node.get_logger().warning(f'the params file {path} has parameters of {others}, and none of {own}: what is not set '
                                      'elsewhere keeps its default')
        everywhere.update(key for name, parameters in sections.items() if '*' in name for key, _ in _flat(parameters))
    foreign = {name for name in everywhere.intersection(given) - set(known) if not did_you_mean(name, known, SIMILAR)}
    if foreign:
        remaps = ' '.join(f'-r {TOPICS[name]}:={given[name]}' for name in sorted(foreign & TOPICS.keys()))
        node.get_logger().warning(f'a params file gives {", ".join(sorted(foreign))} to every node (/**): this node has no such '
                                  'parameter' + f'; if its topics are meant, start it with --ros-args {remaps}' * bool(remaps))
    given = {name: value for name, value in given.items() if name not in foreign}
    _check_names(given, known)
    for name in given:
        node.undeclare_parameter(name)
    return given


def params_files(arguments: Sequence[str]) -> Iterator[tuple[str, dict[str, dict[str, Any]]]]:
    """(path, parameters by the full name of their node, which may have wildcards) of each params file among the ROS arguments."""
    for option, path in itertools.pairwise(arguments):
        if option == '--params-file' and Path(path).is_file():
            yield path, dict(_sections(yaml.load(Path(path).read_text(), Loader=yaml.BaseLoader)))  # reads launch's !!python/tuple


def _sections(tree: Any, name: str = '') -> Iterator[tuple[str, dict[str, Any]]]:
    """As rcl reads them: namespaces and names are nested, or joined by slashes."""
    for key, value in tree.items() if isinstance(tree, dict) else ():
        if key == 'ros__parameters':
            yield name, value or {}
        else:
            yield from _sections(value, f'{name}/{key.strip("/")}')


def is_named(node: str, pattern: str) -> bool:
    """Whether the name of a params file's section is that of a `node` (/namespace/name): /* is one part of it, /** any number."""
    return re.fullmatch(re.escape(pattern).replace(r'/\*\*', r'(/\w+)*').replace(r'/\*', r'/\w+'), node) is not None


def _flat(section: dict[str, Any], prefix: str = '') -> Iterator[tuple[str, Any]]:
    for name, value in section.items():
        if isinstance(value, dict):
            yield from _flat(value, f'{prefix}{name}.')
        else:
            yield f'{prefix}{name}', value


def _of(kind: type, given: dict[str, Any]) -> dict[str, Any]:
    return {field.name: given[field.name] for field in dataclasses.fields(kind) if field.name in given}


def _descriptor(field: dataclasses.Field[Any]) -> ParameterDescriptor:
    meta = field.metadata
    descriptor = ParameterDescriptor(
        description='. '.join(filter(None, (meta['doc'], meta['detail']))), read_only=not meta['dynamic'],
        additional_constraints='one of: ' + ', '.join(map(str, meta['choices'])) if meta['choices'] else '')
    if meta['low'] is not None and isinstance(field.default, float):
        descriptor.floating_point_range = [FloatingPointRange(from_value=float(meta['low']), to_value=float(meta['high']))]
    elif meta['low'] is not None:
        descriptor.integer_range = [IntegerRange(from_value=int(meta['low']), to_value=int(meta['high']), step=1)]
    return descriptor
