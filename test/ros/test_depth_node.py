"""The node with a depth camera over real DDS: raw, compressed, late, silent, of another size, unregistered, in a wrong unit."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

rclpy = pytest.importorskip('rclpy', reason='rclpy is not installed: the node is not tested')
pytest.importorskip('skimage', reason='the camera shows a photograph of scikit-image')
from diagnostic_msgs.msg import DiagnosticStatus
from rcl_interfaces.srv import GetParameters
from rclpy.node import Node
from sensor_msgs.msg import CameraInfo, CompressedImage, Image, PointCloud2, PointField
from support.matches import frame_matches
from support.ros_helpers import (
    SECOND,
    Peer,
    as_parameters,
    depth_message,
    header,
    image_message,
    matcher_node,
    opens,
    spun,
    with_peer,
)
from support.shared_backend import SharedBackend, open_shared
from support.stereo_pairs import HEIGHT, WIDTH, K, camera_info, wall_pairs
from support.waiting import wait_for

from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.core.types import FrameMatches
from lightglue_trt_ros.ros.cloud_reader import matches_from_cloud
from lightglue_trt_ros.ros.clouds import fill_cloud, layout_of, point_fields
from lightglue_trt_ros.ros.matcher.node import MatcherNode

SETTINGS = {'image_height': HEIGHT, 'image_width': WIDTH, 'max_keypoints': 150, 'backend': 'onnxruntime', 'depth': True}
PERIOD_NS = SECOND // 5
FRAMES = 14
MATCH_S = 0.4  # of a slow matcher
WALL = np.full((HEIGHT, WIDTH), 2000, np.uint16)  # millimetres


class DepthRig:
    """A node with depth, and who publishes images and depth."""

    def __init__(self, stack: ExitStack, compressed: bool = False, topic: str = '/depth', open_backend: Any = open_shared,
                 **given: Any) -> None:
        transport = {'depth_transport': 'compressedDepth'} if compressed else {}
        self.node = MatcherNode(open_backend=open_backend, cli_args=['--ros-args', '-r', f'depth:={topic}'],
                                parameter_overrides=as_parameters({**SETTINGS, **transport, **given}))
        self.peer = with_peer(stack, self.node)
        make = self.peer.node.create_publisher
        self.depths = make(CompressedImage, f'{topic}/compressedDepth', 10) if compressed else make(Image, topic, 10)
        self.info, self.depth_info = (make(CameraInfo, name, 10) for name in ('/camera_info', '/aligned/camera_info'))
        wait_for(lambda: self.peer.figures().get('backend', 'none') != 'none', 30)
        wait_for(lambda: all(each.get_subscription_count() for each in (self.depths, self.peer.images, self.info)))

    def tell_camera(self, publisher: Any = None, **given: Any) -> None:
        (publisher or self.info).publish(CameraInfo(header=header(SECOND), **vars(camera_info(**given))))
        time.sleep(0.3)

    def send(self, number: int, image: np.ndarray, depth: Any = None, skew_ns: int = 0) -> Any:
        """A frame and its depth, pixels or a message without stamp; the matches of the cloud that comes of it."""
        stamp, before = SECOND + round(number * PERIOD_NS), len(self.peer.clouds)
        if isinstance(depth, np.ndarray):
            depth = depth_message(stamp, depth)
        if depth is not None:
            depth.header = header(stamp + skew_ns)
            self.depths.publish(depth)
        self.peer.images.publish(image_message(stamp, image))
        wait_for(lambda: int(self.peer.figures().get('frames processed', 0)) >= 1 if not number else len(self.peer.clouds) > before)
        return matches_from_cloud(self.peer.clouds[-1]) if number else None


class SlowBackend(SharedBackend):
    """Needs MATCH_S for a pair."""

    def match(self, *args: Any) -> Any:
        time.sleep(MATCH_S)
        return super().match(*args)


def known(matches) -> float:
    """Share of points that are known in space."""
    return float(np.mean(np.isfinite(matches.xyz[:, 2])))


def frames(count: int = FRAMES) -> list[np.ndarray]:
    return [left for left, _ in wall_pairs(count)]


def stream(rig: DepthRig, seconds: float, rate: float, depth_rate: float, depth_delay_s: float = 0.005) -> list[FrameMatches]:
    """Images at a rate and depth images at another, which come a little later, as a camera driver sends them; the new clouds."""
    images, before = frames(), len(rig.peer.clouds)
    events = [(number / rate, number, 'image') for number in range(round(seconds * rate))]
    events += [(number / depth_rate + depth_delay_s, number, 'depth') for number in range(round(seconds * depth_rate))]
    began, first = time.monotonic(), int(SECOND * (10 + time.monotonic()))
    for when, number, what in sorted(events):
        time.sleep(max(0.0, began + when - time.monotonic()))
        if what == 'image':
            rig.peer.images.publish(image_message(first + round(number * SECOND / rate), images[number % len(images)]))
        else:
            rig.depths.publish(depth_message(first + round(number * SECOND / depth_rate), WALL))
    time.sleep(2 * MATCH_S)
    return [matches_from_cloud(cloud) for cloud in rig.peer.clouds[before:]]


def frames_processed(peer: Peer, camera: str) -> int:
    """Of one of several cameras."""
    statuses = peer.reports[-1].status if peer.reports else ()
    figures = {value.key: value.value for each in statuses if each.name == f'matcher: {camera}' for value in each.values}
    return int(figures.get('frames processed', 0))


@pytest.mark.parametrize('depth_rate', [30, 90])
def test_every_cloud_of_a_slow_matcher_has_the_depth_of_a_fast_camera(stack, depth_rate):
    rig = DepthRig(stack, open_backend=opens(SlowBackend))
    rig.tell_camera()
    clouds = stream(rig, 3.5, 30, depth_rate)
    assert 5 <= len(clouds) <= 12, 'the others are dropped'
    assert [known(matches) for matches in clouds] == [1.0] * len(clouds)
    wait_for(lambda: rig.peer.figures().get('depth images missing') == '0')


def test_depth_images_that_come_while_the_node_is_busy_are_kept(stack):
    """A frame is taken, and the executor has no time until its depth image and two later ones are there."""
    rig, images = DepthRig(stack, open_backend=opens(SlowBackend)), frames()
    rig.tell_camera()
    rig.send(0, images[0], WALL)
    stamps = [SECOND + number * PERIOD_NS for number in (1, 2, 3)]
    rig.peer.images.publish(image_message(stamps[0], images[1]))
    time.sleep(MATCH_S / 8)
    timer: Any = rig.node.create_timer(0.001, lambda: (timer.cancel(), time.sleep(MATCH_S / 2)))
    time.sleep(MATCH_S / 8)
    for stamp in stamps:
        rig.depths.publish(depth_message(stamp, WALL))
    wait_for(lambda: rig.peer.clouds)
    assert known(matches_from_cloud(rig.peer.clouds[0])) == 1.0


def test_a_node_that_waits_for_late_depth_is_not_called_a_slow_one(stack):
    rig = DepthRig(stack, open_backend=opens(), max_wait_s=0.5, refinement='none')
    rig.tell_camera()
    clouds = stream(rig, 4, 30, 30, 0.15)
    assert [known(matches) for matches in clouds] == [1.0] * len(clouds), 'the first depth comes with the fifth image'
    wait_for(lambda: 'frames a second are dropped: each waits for its depth image, which comes 0.1'
             in rig.peer.status()[1])
    assert 'lower max_wait_s' in rig.peer.status()[1]


@pytest.mark.release
def test_points_are_in_metres_whatever_the_depth_camera_does(stack):
    """In millimetres, in metres, a little skewed, missing, of another size, colour, full of holes; the frame always goes on."""
    rig, images = DepthRig(stack), frames()
    rig.tell_camera()
    holes = np.where(np.arange(WIDTH) % 40 < 20, WALL / np.float32(1000), np.float32(np.nan)).astype(np.float32)
    holes[:, :10], holes[:, 10:15], holes[:, 15:20] = np.inf, -1, 0
    odd = {4: holes, 5: None, 6: WALL[:, :-8], 7: Image(height=2, width=2, step=6, encoding='rgb8', data=bytes(12)),
           8: WALL.astype(np.float32)}  # which are millimetres
    matches = {}
    for number, image in enumerate(images):
        depth = odd.get(number, WALL if number % 2 else (WALL / 1000).astype(np.float32))
        matches[number] = rig.send(number, image, depth, skew_ns=(number % 3 - 1) * 15_000_000)
    for number in range(1, FRAMES):
        share = known(matches[number])
        assert share == 0 if number in (5, 6, 7, 8) else share < 0.8 if number == 4 else share == 1.0, number
    last = matches[FRAMES - 1]
    np.testing.assert_allclose(last.xyz[:, 2], 2.0, rtol=1e-5)
    np.testing.assert_allclose(last.xyz[:, :2] / last.xyz[:, 2:] * K[0, 0] + K[:2, 2], last.keypoints, atol=1e-2)
    np.testing.assert_allclose(last.sigma_z, 0.0025 * 4, rtol=1e-3)
    assert last.track_lengths.max() == FRAMES
    assert (rig.peer.clouds[-1].point_step, rig.peer.clouds[-1].is_dense) == (68, False)
    wait_for(lambda: rig.peer.figures().get('images with depth') == str(FRAMES - 5))  # the first has no reference
    figures = rig.peer.figures()
    assert (figures['depth images missing'], figures['depth images rejected']) == ('1', '3')
    assert 'depth ms (p50 / p95 / p99)' in figures
    shares = [known(matches[number]) for number in range(FRAMES - 10, FRAMES)]
    weights = [len(matches[number]) for number in range(FRAMES - 10, FRAMES)]
    assert figures['points with depth %'] == f'last 100, mean {100 * np.average(shares, weights=weights):.0f}'
    assert 0 <= float(figures['age of the last depth image s']) < 30
    assert rig.peer.status()[1] == 'matching'


def test_depth_images_that_cannot_be_used_are_told_with_the_remedy(stack):
    rig, images = DepthRig(stack), itertools.cycle(frames())
    rig.tell_camera()
    number = 0
    for depth, told in (
            (WALL[:, :-8], 'depth image dropped: it has 248x192 pixels, the image 256x192: let the driver register'),
            (WALL.astype(np.float32), 'its median is 2000 m: it must be in metres'),
            (WALL // 1000, 'its median is 0.002 m: 16UC1 is in millimetres (REP 118), multiply by 1000 or publish 32FC1'),
            (WALL.view(np.uint8), 'depth is 16UC1 in millimetres or 32FC1 in metres')):
        for image in itertools.islice(images, 3):
            matches = rig.send(number, image, image_message(0, depth) if depth.dtype == np.uint8 else depth)
            number += 1
        assert known(matches) == 0
        wait_for(lambda told=told: told in rig.peer.status()[1])
        assert rig.peer.figures()['images with depth'] == '0'


def test_refused_depth_images_are_logged_less_often_the_longer_they_come(stack, capfd, monkeypatch):
    """At once and after the first pause; the next one is longer than the test."""
    monkeypatch.setattr('lightglue_trt_ros.ros.fading_log.PAUSES_S', (0.0, 1.0, 1000.0))
    monkeypatch.setattr('lightglue_trt_ros.ros.fading_log.CALM_S', 0.9)
    rig, images = DepthRig(stack), frames(4)
    rig.tell_camera()
    began = time.monotonic()
    for number in range(1000):
        rig.send(number, images[number % len(images)], WALL[:, :-8])
        if time.monotonic() - began > 7.0:
            break
    assert number > 10
    assert capfd.readouterr().err.count('depth image dropped: it has 248x192 pixels') == 2


def test_clouds_without_any_depth_are_a_warning_with_the_cause(stack):
    """The depth images come, fit and are taken; before, the node said that it was matching."""
    rig, images, numbers = DepthRig(stack), frames(8), itertools.count()
    rig.tell_camera()
    for depth, told in (
            (np.full((HEIGHT, WIDTH), np.nan, np.float32), 'no pixel of the depth images is known, all are 0, not finite'),
            (np.zeros((HEIGHT, WIDTH), np.uint16), 'no pixel of the depth images is known'),
            (np.full((HEIGHT, WIDTH), 65535, np.uint16), 'no pixel of the depth images is known'),
            (WALL + (np.add.outer(np.arange(HEIGHT), np.arange(WIDTH)) % 2 * 1000).astype(np.uint16),
             '100 % of the pixels of the newest depth image are known, and none where the points are (/depth)')):
        for image in [*images, *images[:3]]:  # ten clouds, and those before are forgotten
            matches = rig.send(next(numbers), image, depth)
        assert known(matches) < 0.02
        wait_for(lambda told=told: f'0 % of the points have depth: {told}' in rig.peer.status()[1])
        assert rig.peer.status()[0] == DiagnosticStatus.WARN
        assert rig.peer.figures()['points with depth %'].startswith('last 0, mean 0')
        for image in images:
            rig.send(next(numbers), image, WALL)
        wait_for(lambda: rig.peer.status()[1] == 'matching')
    assert int(rig.peer.figures()['images with depth']) <= 4 * len(images) + 4


@pytest.mark.parametrize('other', [{'k': K + np.outer([12, 0, 0], [0, 0, 1])}, {'d': (-0.3, 0.1, 0.0, 0.0, 0.0)}])
def test_depth_with_a_camera_info_of_its_own_must_be_registered(stack, other):
    rig, images = DepthRig(stack, topic='/aligned/image'), frames(6)
    rig.tell_camera()
    rig.tell_camera(rig.depth_info)
    matches = [rig.send(number, image, WALL) for number, image in enumerate(images[:3])]
    assert min(map(known, matches[1:])) == 1.0
    rig.tell_camera(rig.depth_info, **other)
    assert known(rig.send(4, images[4], WALL)) == 0
    wait_for(lambda: 'its CameraInfo is another one' in rig.peer.status()[1])
    assert 'align_depth' in rig.peer.status()[1]


def test_camera_info_that_images_and_depth_share_is_logged_once(stack, capfd):
    rig = DepthRig(stack)
    rig.tell_camera()
    for number, image in enumerate(frames(3)):
        matches = rig.send(number, image, WALL)
    assert known(matches) == 1.0
    assert capfd.readouterr().err.count('is used from now on') == 1


def test_autofocus_does_not_make_registered_depth_another_cameras(stack):
    """Each topic's CameraInfo is kept until it has changed enough: those that are kept may be of different moments."""
    depth = DepthRig(stack).node._cameras[0]._paired

    def wide(focal: float) -> Intrinsics:
        return Intrinsics(1920, 1080, np.array([[focal, 0, 960], [0, focal, 540], [0, 0, 1]]), 'plumb_bob', np.zeros(5))
    assert wide(1500).nearly(wide(1502))
    assert depth._registered(wide(1502), wide(1498))
    assert not depth._registered(wide(1500), wide(1520))


def test_without_camera_info_points_stay_pixels_and_the_diagnostics_say_so(stack):
    rig, images = DepthRig(stack), frames(3)
    matches = [rig.send(number, image, WALL) for number, image in enumerate(images)]
    assert known(matches[2]) == 0
    assert len(matches[2]) > 30
    wait_for(lambda: 'depth waits for a CameraInfo on /camera_info' in rig.peer.status()[1])
    assert rig.peer.figures()['images with depth'] == '0', 'no cloud has it'


def test_a_depth_camera_that_dies_and_comes_back(stack):
    rig, images = DepthRig(stack), frames(FRAMES + 6)
    rig.tell_camera()
    shares = [known(matches) for number, image in enumerate(images)
              if (matches := rig.send(number, image, None if 3 <= number < FRAMES else WALL)) is not None]
    assert shares[:2] == [1.0, 1.0]
    assert set(shares[2:FRAMES - 1]) == {0.0}
    assert shares[-1] == 1.0
    wait_for(lambda: int(rig.peer.figures().get('depth images missing', 0)) == FRAMES - 3)


def test_depth_noise_sets_sigma_z_and_activation_resets_counters(stack):
    rig, images = DepthRig(stack, depth_noise=0.05), frames(FRAMES)
    rig.tell_camera()
    for number, image in enumerate(images[:4]):
        matches = rig.send(number, image, WALL if number % 2 else None)
    assert np.nanmin(matches.sigma_z) >= 0.05 * 2.0**2 * 0.99
    wait_for(lambda: rig.peer.figures().get('depth images missing') not in (None, '0'))
    rig.node.trigger_deactivate()
    rig.node.trigger_activate()
    wait_for(lambda: rig.peer.figures().get('depth images missing') == '0')
    assert rig.peer.figures()['images with depth'] == '0'


def test_a_silent_depth_camera_is_told(stack):
    rig, images = DepthRig(stack), frames()
    rig.tell_camera()
    for number, image in enumerate(images):
        rig.send(number, image)
    wait_for(lambda: f'no depth image came with the last {FRAMES} images (/depth): ' in rig.peer.status()[1])


@pytest.mark.parametrize('skew_ns', [40_000_000, -40_000_000])
def test_depth_of_another_clock_is_told_by_how_much(stack, skew_ns):
    rig = DepthRig(stack)
    rig.tell_camera()
    shares = [known(matches) for number, image in enumerate(frames())
              if (matches := rig.send(number, image, WALL, skew_ns)) is not None]
    assert set(shares) == {0.0}
    told = f'the stamps of images and depth images are {skew_ns / SECOND:+.3f} s apart, max_depth_skew_s is 0.02: trigger both'
    wait_for(lambda: told in rig.peer.status()[1])
    assert rig.peer.figures()['depth skew ms (depth - image)'] == f'{skew_ns / 1e6:.1f}'


def test_depth_that_comes_after_its_frame_was_matched_is_counted_and_told(stack):
    rig = DepthRig(stack)
    rig.tell_camera()
    for number, image in enumerate(frames()):
        matches = rig.send(number, image)
        rig.depths.publish(depth_message(SECOND + number * PERIOD_NS, WALL))
        time.sleep(0.05)
    assert known(matches) == 0
    wait_for(lambda: 'after the images of their stamps, too late to be paired' in rig.peer.status()[1])
    wait_for(lambda: int(rig.peer.figures()['depth images late']) >= FRAMES - 2)


@pytest.mark.release
def test_compressed_depth_comes_on_its_own_topic(stack):
    rig, images = DepthRig(stack, compressed=True), frames(3)
    rig.tell_camera()
    for number, image in enumerate(images):
        depth = CompressedImage(format='16UC1; compressedDepth png', data=bytes(12) + cv2.imencode('.png', WALL)[1].tobytes())
        matches = rig.send(number, image, depth)
    assert known(matches) == 1.0
    np.testing.assert_allclose(matches.xyz[:, 2], 2.0, rtol=1e-5)


def test_a_depth_topic_of_another_transport_is_told_with_its_own_setting(stack):
    """The topics of the images are no remedy, and neither is image_transport."""
    rig = DepthRig(stack)
    other = rig.peer.node.create_publisher(CompressedImage, '/depth/compressedDepth', 1)
    rig.peer.node.create_publisher(CompressedImage, '/photo/compressed', 1)
    rig.peer.node.destroy_publisher(rig.depths)
    for number, image in enumerate(frames(12)):
        rig.send(number, image)
    wait_for(lambda: 'nobody publishes it; sensor_msgs/msg/CompressedImage comes on /depth/compressedDepth: set depth_transport to '
             'compressedDepth' in rig.peer.status()[1])
    rig.peer.node.destroy_publisher(other)
    wait_for(lambda: rig.peer.status()[1].endswith('nobody publishes sensor_msgs/msg/Image anywhere; start its driver'))
    rig.peer.node.create_publisher(Image, '/aligned/depth', 1)
    wait_for(lambda: rig.peer.status()[1].endswith(
        'nobody publishes it; sensor_msgs/msg/Image comes on /aligned/depth: start this node with --ros-args -r '
        'depth:=/aligned/depth (ros2 launch: depth_topic:=/aligned/depth)'))


def test_raw_depth_is_told_where_compressed_depth_is_wanted(stack):
    rig = DepthRig(stack, compressed=True)
    rig.peer.node.destroy_publisher(rig.depths)
    rig.peer.node.create_publisher(Image, '/depth', 1)
    rig.peer.node.create_publisher(CompressedImage, '/other/compressedDepth', 1)
    for number, image in enumerate(frames(12)):
        rig.send(number, image)
    wait_for(lambda: rig.peer.status()[1].endswith(
        'nobody publishes it; sensor_msgs/msg/Image comes on /depth: set depth_transport to raw; sensor_msgs/msg/CompressedImage '
        'comes on /other/compressedDepth: start this node with --ros-args -r depth:=/other (ros2 launch: depth_topic:=/other)'))


@pytest.mark.skipif('fastrtps' not in rclpy.utilities.get_rmw_implementation_identifier(), reason='the profile is of Fast DDS')
@pytest.mark.release
def test_images_and_depth_beyond_shared_memory_are_diagnosed(stack):
    """The driver publishes both; from a process of its own, images of 300 kB fit."""
    rig = DepthRig(stack)
    wait_for(lambda: 'no image arrives: its driver sends nothing, or large images do not fit the 512 KiB' in rig.peer.status()[1])
    rig.tell_camera(size=(480, 640))
    told = 'its driver sends nothing, or messages of up to 2.2 MB with those on /depth from the same process do not fit the 512 KiB'
    wait_for(lambda: told in rig.peer.status()[1])
    rig.peer.images.publish(image_message(SECOND, np.zeros((480, 640), np.uint8)))
    rig.depths.publish(depth_message(SECOND, np.zeros((480, 640), np.uint16)))
    wait_for(lambda: told.replace('2.2', '0.9') in rig.peer.status()[1])
    assert 'config/fastdds_large_images.xml' in rig.peer.status()[1]
    rig.peer.node.destroy_publisher(rig.depths)
    wait_for(lambda: rig.peer.status()[1].endswith('no image arrives: look at its driver, and at the network between both'))


def test_large_images_that_came_and_stop_are_not_called_too_large(stack):
    rig = DepthRig(stack)
    rig.tell_camera(size=(480, 640))
    for number in range(12):
        rig.peer.images.publish(image_message(number * SECOND // 10, np.zeros((480, 640), np.uint8)))
        rig.depths.publish(depth_message(number * SECOND // 10, np.zeros((480, 640), np.uint16)))
        time.sleep(0.1)
    wait_for(lambda: rig.peer.status()[1].endswith('no image arrives: look at its driver, and at the network between both'))


def test_each_of_several_cameras_has_its_own_depth_and_keyframes(stack):
    names, metres = ('front', 'rear'), {'front': 2.0, 'rear': 3.0}

    peer = with_peer(stack, matcher_node(open_shared, SETTINGS, cameras=list(names), keyframes=3))
    rig = Node('rig')
    clouds: dict[str, list[PointCloud2]] = {name: [] for name in names}
    keyframes: dict[str, list[PointCloud2]] = {name: [] for name in names}
    publishers = {(name, topic): rig.create_publisher(kind, f'/{name}/{topic}', 10) for name in names
                  for topic, kind in (('image', Image), ('depth', Image), ('camera_info', CameraInfo))}
    for name in names:
        rig.create_subscription(PointCloud2, f'/matcher/{name}/matches', clouds[name].append, 10)
        rig.create_subscription(PointCloud2, f'/matcher/{name}/keyframe', keyframes[name].append, 10)
    stack.enter_context(spun(rig))
    peer.wait_for_backend()
    wait_for(lambda: all(each.get_subscription_count() for each in publishers.values()))
    wait_for(lambda: all(rig.count_publishers(f'/matcher/{name}/{topic}') for name in names for topic in ('matches', 'keyframe')))
    for name in names:
        publishers[name, 'camera_info'].publish(CameraInfo(header=header(SECOND), **vars(camera_info())))
    time.sleep(0.3)
    for number, image in enumerate(frames(4)):
        for name in names:
            stamp, before = SECOND + number * PERIOD_NS, len(clouds[name])
            publishers[name, 'depth'].publish(depth_message(stamp, np.full((HEIGHT, WIDTH), metres[name], np.float32)))
            publishers[name, 'image'].publish(image_message(stamp, image))
            if number:
                wait_for(lambda name=name, before=before: len(clouds[name]) > before)
            else:
                wait_for(lambda name=name: frames_processed(peer, name) == 1)
    for name in names:
        np.testing.assert_allclose(matches_from_cloud(clouds[name][-1]).xyz[:, 2], metres[name], rtol=1e-5)
        wait_for(lambda name=name: keyframes[name])
        stamp = keyframes[name][0].header.stamp
        asked = GetParameters.Request(names=[f'{stamp.sec}.{stamp.nanosec:09d}'] * 2)
        values = peer.call(GetParameters, f'/matcher/{name}/match_keyframes', asked, 30).values
        np.testing.assert_allclose(values[-2].double_array_value, metres[name], rtol=1e-5)


def test_example_prints_metres_of_points(stack):
    example = Path(__file__).parents[2] / 'examples' / 'distances.py'
    matches = frame_matches(np.zeros((3, 2)), np.zeros((3, 2)), 1.0, sigma_z=np.ones(3, np.float32),
                            xyz=np.array([[0, 0, 2], [0, 0, 3], [np.nan] * 3], np.float32))
    cloud = fill_cloud(PointCloud2(header=header(SECOND), fields=point_fields(PointField, layout_of(matches))), matches)
    peer = Node('cloud_sender')
    stack.callback(peer.destroy_node)
    publisher = peer.create_publisher(PointCloud2, '/matcher/matches', 10)
    process = subprocess.Popen([sys.executable, '-u', str(example)], stdout=subprocess.PIPE, text=True)
    stack.callback(process.stdout.close)
    stack.callback(process.wait, 10)
    stack.callback(process.kill)
    wait_for(publisher.get_subscription_count, 20)
    publisher.publish(cloud)
    assert process.stdout.readline() == 'nearest point 2.00 m, median 2.50 m\n'
