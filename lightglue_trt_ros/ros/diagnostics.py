"""Diagnostics of the nodes: a verdict that a user can act on, with its figures."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from diagnostic_msgs.msg import DiagnosticStatus, KeyValue
from rclpy.node import Node
from rclpy.utilities import get_rmw_implementation_identifier
from sensor_msgs.msg import CompressedImage

from ..core.config import STRIDE, MatcherConfig
from ..core.geometry import Size, fitting_size, size_text
from ..core.image_check import RECENT, ImageCheck
from ..core.images import FEW_LEVELS, OUTER_PERCENT
from ..core.types import UInt8
from ..utils.errors import ConfigError
from ..utils.processes import fastdds_variable
from .frame_statistics import FrameStatistics
from .parameters import LAUNCH
from .qos import unheard

STRETCH = 0.05  # of the aspect ratio: a smaller change is not reported
ENLARGED = 0.8  # share of the engine's pixels that the images need: a larger one is not reported
BLACK, WHITE = 16, 240  # mean gray values of 255, below and above
DARK = 64  # of 255: the maximum of a 10-bit image read as 16 bits is 3
RECENT_S = 3.0  # a rejected frame is reported for so long
SLOW = 0.1  # share of dropped frames that is reported
SETTLED_S = 3.0  # since the networks were opened: the first frames take longer
OFTEN = 3  # resets that are reported
SHARED_BYTES = 512 << 10  # Fast DDS's default segment
PROVEN = 10  # messages that came without a loss: their size is no reason for a silence
WARN = DiagnosticStatus.WARN
PACKETS = {'sensor_msgs/msg/CompressedImage', 'theora_image_transport/msg/Packet', 'ffmpeg_image_transport_msgs/msg/FFMPEGPacket',
           'foxglove_msgs/msg/CompressedVideo'}  # of image_transport's plugins
LOST = 'start their driver with config/fastdds_large_images.xml if images are large, or improve the network between both'


class Verdict(NamedTuple):
    """One of DiagnosticStatus's levels, and a sentence."""

    level: bytes
    message: str
    logged: bool = False  # already, where the problem was found
    silent_s: float = 0.0  # time without an image
    parts: tuple[str, ...] = ()  # of a message that joins several: those that are not logged already, each for a line


OPENING = Verdict(WARN, 'opening the networks')  # takes seconds, or minutes if engines are built
MATCHING = Verdict(DiagnosticStatus.OK, 'matching')


def idle(node: Node, state: str) -> Verdict:
    """The verdict on a node that is not active on purpose, in a state of its lifecycle."""
    steps = {'unconfigured': 'configure, then activate', 'inactive': 'activate'}.get(state, '')
    how = f'ros2 lifecycle set {node.get_fully_qualified_name()} {steps}' if steps else 'start the node again'
    return Verdict(DiagnosticStatus.STALE, f'not active ({state}), images are ignored: {how}')


def working(statistics: FrameStatistics, otherwise: Verdict = MATCHING, waits: str = '', fault: Verdict | None = None,
            several: str = '') -> Verdict:
    """The verdict while frames come, which may be rejected, lost or too fast; `otherwise` without such problems.

    `waits` says why frames are held up before they are matched, `several` that the images have several publishers. Behind a
    `fault` of images or topics no rate counts. What never ends with some cameras and computers hides nothing else.
    """
    state, is_rejected = fault or otherwise, statistics.rejection_age_s < RECENT_S
    problems = [Verdict(WARN, f'frames are rejected: {statistics.last_error}', logged=True)] if is_rejected else []
    if is_rejected and not statistics.recent()[1].processed:
        return problems[0]
    if state.level == WARN:
        problems.append(state)
    if fault is None:
        problems += [Verdict(WARN, line) for line in _of_rates(statistics, waits)]
    if several:  # no fault where one of them sends nothing, and the cause of all others where both do
        problems.append(Verdict(WARN, several) if problems else Verdict(state.level, f'{state.message}; {several}'))
    if len(problems) > 1:
        parts = tuple(each.message for each in problems if not each.logged)
        return Verdict(WARN, '; '.join(each.message for each in problems), not parts, parts=parts)
    return problems[0] if problems else state


def _of_rates(statistics: FrameStatistics, waits: str) -> Iterator[str]:
    """Resets, losses and drops of the last seconds that are too many; `waits` as in `working`."""
    seconds, count = statistics.recent()
    if count.resets >= OFTEN or 1 < count.resets >= count.processed:  # a slow camera has few frames
        yield f'tracks started anew {count.resets} times in {seconds:.0f} s; the last reason: {statistics.last_reset}'
    if count.lost:
        yield (f'{count.lost} of {count.received + count.lost} frames of the last {seconds:.0f} s were lost before they came here: '
               f'{LOST}')
    elif seconds > SETTLED_S and count.replaced > SLOW * count.received:
        yield (f'slower than the camera: {count.replaced / seconds:.1f} of {count.received / seconds:.1f} frames a second are '
               f'dropped: {waits or "fewer keypoints, smaller images or a GPU make it faster"}')


def mixed_matches(node: Node, topic: str) -> Verdict | None:
    """The verdict on several publishers of the matches of one camera; None for one."""
    count = node.count_publishers(topic)
    if count < 2:
        return None
    return Verdict(WARN, f'{topic} has {count} publishers, and their matches come mixed: stop the other node or recording, or '
                   'start it with another name (-r __node:=NAME) or namespace (-r __ns:=/NAME)')


def useless_images(check: ImageCheck, side: str = '') -> Verdict | None:
    """The verdict on images of several cameras, without texture, or of one picture under new stamps; None without such problems.

    `side` says which camera of a pair they are of.
    """
    which = f'{side} ' if side else ''
    if cameras := check.cameras:
        return Verdict(WARN, f'the {which}images alternate between {" and ".join(cameras)}, by their frame_id: several cameras '
                       'publish on this topic; give each a topic of its own')
    if untextured := check.untextured:
        gray, most = untextured
        look = 'black' if gray < BLACK else 'white' if gray > WHITE else 'without texture'
        return Verdict(WARN, f'the {which}images are {look}, with a mean gray value of {gray:.0f} of 255, and have '
                       f"{most} matches at most: check the lens cap, the exposure, the images' encoding and image_bits")
    if seconds := check.repeated_s:
        return Verdict(WARN, f'the {which}camera has sent the same picture for {seconds:.0f} s, under new stamps: restart its '
                       'driver, and check its cable or stream; a simulated camera that stands still needs noise')
    return None


def several_publishers(node: Node, topic: str) -> str:
    """That images come mixed from several publishers, for people; empty: there is one."""
    count = node.count_publishers(topic)
    return f'{topic} has {count} publishers: stop recordings, or give each camera a topic of its own' if count > 1 else ''


def few_matches(count: int, config: MatcherConfig) -> Verdict:
    """The verdict on a median of `count` matches in the last frames."""
    return Verdict(WARN, f'{count} matches a frame in the last {RECENT} frames, too few for a pose: look at ~/debug_image whether '
                   f'each frame shows what the one before showed; match_threshold is {config.match_threshold:g}, '
                   f'detection_threshold {config.detection_threshold:g}, max_sigma_px {config.max_sigma_px:g}')


class Wanted(NamedTuple):
    """Images that a node subscribes to."""

    subscription: Any
    setting: str  # parameter that chooses the transport
    compressed: str  # the transport besides raw
    pixel_bytes: float  # of the largest pixels
    size: Size | None = None  # of the images, (height, width), where known
    message_bytes: int = 0  # of the newest message, 0 where none came
    came: int = 0  # messages, where none was lost on the way; else 0
    name: str = 'image'  # of the topic, as it is remapped


def silent(node: Node, statistics: FrameStatistics, wanted: Wanted, *others: Wanted) -> Verdict:
    """The verdict when no frame comes; `others` are the images that come with the frames."""
    lost, seconds = statistics.recent()[1].lost, statistics.silence_s
    reason = f'{lost} were lost on their way: {LOST}' if lost else why_silent(node, wanted, *others)
    return Verdict(WARN, f'no image on {wanted.subscription.topic_name} for {seconds:.0f} s: {reason}', silent_s=seconds)


def why_silent(node: Node, wanted: Wanted, *others: Wanted) -> str:
    """Why a subscription gets no image, for people: no publisher, another type, topic or transport, QoS, or large images."""
    subscription = wanted.subscription
    if line := unheard(node, subscription, 'qos_reliability'):
        return line
    publishers = node.get_publishers_info_by_topic(subscription.topic_name)
    topic, kinds = subscription.topic_name, sorted({info.topic_type for info in publishers})
    is_raw, suffix = subscription.msg_type is not CompressedImage, f'/{wanted.compressed}'
    now, instead = (('raw', 'sensor_msgs/msg/Image'), (wanted.compressed, 'sensor_msgs/msg/CompressedImage'))[::1 if is_raw else -1]
    if now[1] in kinds:
        return f'{len(publishers)} publisher(s) there, but no image arrives: {_why_lost(node, wanted, others)}'
    raw_topic = topic if is_raw else topic.removesuffix(suffix)
    twin, given = f'{topic}{suffix}' if is_raw else raw_topic, raw_topic.removesuffix(suffix)
    as_given = f'give {given}, as the node appends {suffix}' if given != raw_topic else ''
    remedy = f'set {wanted.setting} to {instead[0]}'
    if instead[1] in kinds:
        return f'{instead[1]} comes there: {remedy}, and {as_given or (f"remap {twin} to it" if is_raw else f"give {topic}")}'
    taken = {each.topic_name for each in node.subscriptions}
    published = {name: types for name, types in node.get_topic_names_and_types()
                 if node.count_publishers(name) and not name.endswith('/debug_image') and name not in taken}  # of any matcher

    def named(transport: str, kind: str) -> list[str]:
        end = '' if transport == 'raw' else f'/{transport}'
        return [name for name, types in published.items() if kind in types and name.endswith(end)]

    def comes(names: list[str], transport: str, kind: str, *steps: str) -> str:
        base = names[0].removesuffix(f'/{transport}') if len(names) == 1 else 'TOPIC'
        launch = f' (ros2 launch: {LAUNCH[wanted.name]}:={base})' if wanted.name in LAUNCH else ''
        steps += (f'start this node with --ros-args -r {wanted.name}:={base}{launch}',) if base != raw_topic else ()
        return f'{kind} comes on {", ".join(names)}: {", and ".join(steps)}' if names else ''
    same = named(*now)
    other = [twin] if instead[1] in published.get(twin, ()) else [] if same else named(*instead)
    videos = ', '.join(name for name, types in published.items()
                       if name.startswith(f'{raw_topic}/') and name != twin and PACKETS & {*types})
    first = (f'{", ".join(kinds)} comes there, no {now[1]}' if kinds else
             'nobody publishes it' if same or other == [twin] else f'nobody publishes {now[1]} anywhere')
    remedies = [*filter(None, (comes(other, *instead, remedy), comes(same, *now), as_given,
                               videos and f'{videos} can be made raw by image_transport republish'))]
    start = 'start its driver' + ('' if any(each.message_bytes for each in others) else f', with the same {_network(node)}')
    return '; '.join((first, *(remedies or ['give another topic' if kinds else start])))


def _network(node: Node) -> str:
    """What keeps nodes apart, with the values of this one."""
    own = {'ROS_DOMAIN_ID': node.context.get_domain_id(), 'RMW_IMPLEMENTATION': get_rmw_implementation_identifier()}
    asked = {name: os.environ[name] for name in ('ROS_AUTOMATIC_DISCOVERY_RANGE', 'ROS_LOCALHOST_ONLY') if name in os.environ}
    return ', '.join(f'{name}={value}' for name, value in (own | asked).items())


def _why_lost(node: Node, wanted: Wanted, others: Sequence[Wanted]) -> str:
    """Why images that are published do not arrive. Fast DDS's shared memory has to hold those of one moment of a process."""
    bytes_of = {each: each.message_bytes or (math.prod(each.size) * each.pixel_bytes if each.size else 0)
                for each in (wanted, *others)}
    sources = _processes(node, wanted)
    together = [each for each in others if bytes_of[each] and sources & _processes(node, each)]
    count = bytes_of[wanted] + sum(bytes_of[each] for each in together)
    fits = wanted.came >= PROVEN or (bytes_of[wanted] and count <= SHARED_BYTES)
    if 'fastrtps' not in get_rmw_implementation_identifier() or fits:
        return 'look at its driver, and at the network between both'
    company = ''.join(f' with those on {each.subscription.topic_name} from the same process' for each in together)
    what = f'messages of up to {count / 1e6:.1f} MB{company}' if bytes_of[wanted] else 'large images'
    return (f'its driver sends nothing, or {what} do not fit the {SHARED_BYTES >> 10} KiB of shared memory of Fast DDS: start it '
            f'with {fastdds_variable()} set to config/fastdds_large_images.xml, see "Large images" in docs/troubleshooting.md')


def _processes(node: Node, wanted: Wanted) -> set[bytes]:
    """Participants that publish these images, by the first half of their publishers' ids."""
    return {bytes(info.endpoint_gid[:12]) for info in node.get_publishers_info_by_topic(wanted.subscription.topic_name)}


def way_back(node: Node, transition: str) -> str:
    """The command that brings the node back once the cause of a failure is removed: a line of its own, to copy."""
    return (f'Once that is mended: ros2 lifecycle set {node.get_fully_qualified_name()} {transition} (weights, precision, '
            'engine_dir, mask_file and other read-only parameters change only by a restart)')


def advice(image: UInt8, encoding: str, config: MatcherConfig) -> list[str]:
    """Settings that would improve matching, judged by one gray frame, uint8 (H, W)."""
    lines, height, width = [], *image.shape
    engine, area = (config.image_height, config.image_width), config.image_height * config.image_width
    fitting, stretch = fitting_size((height, width), area), (engine[0] * width) / (engine[1] * height)
    cost = f'stretched to {size_text(engine)}, which costs matches' if max(stretch, 1 / stretch) > 1 + STRETCH else \
        f'enlarged to {size_text(engine)}, which costs time and, with noise, matches' * (math.prod(fitting) < ENLARGED * area)
    if cost:
        lines.append(f'frames of {width}x{height} are {cost}: {_size_for((height, width), fitting, config)}')
    low, high = np.percentile(image[::4, ::4], OUTER_PERCENT) if '16' in encoding else (0, 255)
    if '16' in encoding and image.max() < DARK:
        lines.append(f'the brightest pixel of this {encoding} frame is {image.max()} of 255: '
                     'if the camera fills fewer than 16 bits, set image_bits')
    elif 0 < high - low < FEW_LEVELS:
        lines.append(f'nearly all pixels of this {encoding} frame are from {low:.0f} to {high:.0f} of 255: if all frames are like '
                     'that, as of thermal cameras, let the driver publish 8 bits, stretched to the range that it uses')
    return lines


def _size_for(image: Size, fitting: Size, config: MatcherConfig) -> str:
    """The size to set for images (height, width), for people."""
    with suppress(ConfigError):
        if min(image) >= 2 * STRIDE:
            dataclasses.replace(config, image_height=fitting[0], image_width=fitting[1])
            return f'set image_width to {fitting[1]} and image_height to {fitting[0]}'
    return 'the networks take no size that would fit images so small or so narrow'


def status(node: Node, camera: str, verdict: Verdict, figures: dict[str, str]) -> DiagnosticStatus:
    """A diagnostic_msgs/DiagnosticStatus of the verdict on a camera, whose name is empty for a single one, and its figures."""
    return DiagnosticStatus(
        level=verdict.level, message=verdict.message, hardware_id='lightglue_trt_ros',
        name=f'{node.get_fully_qualified_name().lstrip("/")}: {camera or "matching"}',
        values=[KeyValue(key=key, value=value) for key, value in figures.items()])
