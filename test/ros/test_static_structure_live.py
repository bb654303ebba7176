"""A recording with a projector's dots, played into the node over real DDS: diagnostics name what stands, and only then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

rclpy = pytest.importorskip('rclpy', reason='rclpy is not installed: the node is not tested')
pytest.importorskip('rosbags', reason='bags need the Python package rosbags')
pytest.importorskip('skimage', reason="the flight's town has photographs of scikit-image")
from diagnostic_msgs.msg import DiagnosticStatus
from sensor_msgs.msg import Image
from support.image_recordings import image_folder
from support.ros_helpers import SECOND, as_parameters, with_peer
from support.waiting import wait_for

from lightglue_trt_eval.cli.make_bag import main as make_bag
from lightglue_trt_eval.demo.flight import Flight
from lightglue_trt_ros.core.types import CAUSES
from lightglue_trt_ros.ros.matcher.node import MatcherNode

pytestmark = pytest.mark.slow
HEIGHT, WIDTH, FRAMES = 240, 320, 30  # 2.9 s
RATE = 0.15  # 1.5 images a second: two busy cores match them
WITHIN_S = 2.5  # of the recording: diagnostics come each second, of which the recording's pace would take half a second more
SETTINGS = {'image_height': HEIGHT, 'image_width': WIDTH, 'max_keypoints': 400, 'backend': 'onnxruntime', 'weights': 'ours_light'}


@pytest.fixture(scope='module')
def flight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image folder."""
    frames = list(Flight(frames=FRAMES, height=HEIGHT, width=WIDTH, blur=False).render())
    return image_folder(tmp_path_factory.mktemp('flight'), [frame.image for frame in frames],
                        [f'{frame.stamp_ns / SECOND:.9f}' for frame in frames])


def seconds_of(message: Image) -> float:
    return message.header.stamp.sec + message.header.stamp.nanosec / SECOND


class Watched:
    """The node while a bag is played into it: each report on it, with how much of the recording was played before."""

    def __init__(self, stack, bag: Path) -> None:
        node = MatcherNode(parameter_overrides=as_parameters(SETTINGS))
        self.peer = with_peer(stack, node)
        self.stamps: list[float] = []
        self.peer.node.create_subscription(Image, '/image', lambda message: self.stamps.append(seconds_of(message)), 10)
        self.peer.wait_for_backend(timeout=60)
        command = [sys.executable, '-m', 'lightglue_trt_ros.cli.play_bag', str(bag), '--topic', '/image', '--rate', str(RATE),
                   '--wait-for-subscribers', '2']
        self.player = subprocess.Popen(command, cwd=Path(__file__).resolve().parents[2], stdout=subprocess.DEVNULL)
        stack.callback(self.player.communicate)
        stack.callback(self.player.kill)

    @property
    def played_s(self) -> float:
        return self.stamps[-1] - self.stamps[0] if self.stamps else 0.0


def test_diagnostics_name_the_dots_within_three_seconds(stack, flight, tmp_path):
    """In fog: where the world has strong texture, the networks take no keypoints on dots, and nothing is to be warned of."""
    assert make_bag([str(flight), str(tmp_path / 'dots'), '--degrade', 'fog,dots']) == 0
    watched = Watched(stack, tmp_path / 'dots')
    wait_for(lambda: CAUSES in watched.peer.status()[1], 60)
    assert watched.played_s < WITHIN_S
    found = next(report.status[0] for report in watched.peer.reports if CAUSES in report.status[0].message)
    level, message = found.level, found.message
    assert level == DiagnosticStatus.WARN
    assert ' of it' in message, 'the place'
    assert 'projector' in message, 'the cause'
    assert 'emitter_enabled' in message, 'the remedy'
    assert 'standing still' in {value.key for value in found.values}


def test_diagnostics_are_silent_on_the_same_flight_without_dots(stack, flight, tmp_path):
    assert make_bag([str(flight), str(tmp_path / 'clean'), '--degrade', 'fog']) == 0
    watched = Watched(stack, tmp_path / 'clean')
    assert watched.player.wait(90) == 0
    assert watched.played_s == pytest.approx((FRAMES - 1) / 10, abs=0.15)
    assert len(watched.peer.clouds) > FRAMES / 3
    last = len(watched.peer.reports)
    wait_for(lambda: len(watched.peer.reports) > last + 1)
    reports = [report.status[0] for report in watched.peer.reports]
    assert all(CAUSES not in report.message for report in reports)
    assert all(value.key != 'standing still' for report in reports for value in report.values)
