"""evaluate_bag --live: a recording is played into a node, whose matches are scored as those offline are."""

from __future__ import annotations

import gzip
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

rclpy = pytest.importorskip('rclpy', reason='rclpy is not installed: nothing is evaluated live')
pytest.importorskip('rosbags', reason='bags need the Python package rosbags')

from rclpy.node import Node
from sensor_msgs.msg import Image, PointCloud2
from support.evaluated_bags import HEIGHT, PERIOD, SMALL, START, WIDTH, launched, make_bag, masked, no_pictures, report_of, view
from support.image_recordings import image_folder, pinhole
from support.ros_helpers import spun
from support.schemas import violations
from support.transport_bags import bag, packed

from lightglue_trt_eval import replay
from lightglue_trt_eval.cli.evaluate_bag import main
from lightglue_trt_eval.predict import methods
from lightglue_trt_eval.times.null_backend import NullBackend
from lightglue_trt_ros.engines.selection import Opened
from lightglue_trt_ros.utils.errors import LightglueTrtError


def live(tmp_path: Path, count: int, *arguments: str) -> tuple[dict[str, Any], str]:
    tmp_path.mkdir(exist_ok=True)
    return live_of(make_bag(tmp_path / 'bag', count), tmp_path, *arguments)


def live_of(recording: Path, tmp_path: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    text = launched(tmp_path / 'out', recording, *SMALL, '--live', '--backend', 'onnxruntime', '--weights', 'ours_light',
                    *arguments)
    return report_of(tmp_path / 'out'), text


def pairs_of(matcher: dict[str, Any]) -> dict[tuple[int, int], tuple[Any, ...]]:
    pairs = matcher['pairs']['1']
    names = ('reference_frame', 'frame', 'matches', 'inliers', 'rotation_deg', 'precision@1')
    return {row[:2]: row[2:] for row in zip(*(pairs[name] for name in names), strict=True)}


def running_robot(stack: ExitStack) -> list[Image]:
    """What a camera's subscriber hears meanwhile on the recording's topic; clouds, which are none, come on the matcher's."""
    node, heard = Node('robot'), []
    clouds = node.create_publisher(PointCloud2, '/matcher/matches', 10)
    node.create_timer(0.2, lambda: clouds.publish(PointCloud2()))
    node.create_subscription(Image, '/camera/image_raw', heard.append, 10)
    stack.enter_context(spun(node))
    return heard


@pytest.mark.slow
def test_live_and_offline_agree_frame_by_frame(tmp_path: Path, stack: ExitStack) -> None:
    heard = running_robot(stack)
    for attempt in range(3):  # a busy machine may stall for more than a frame's time: then that run says nothing
        report, text = live(tmp_path / str(attempt), 15, '--max-frames', '12', '--rate', '0.5', '--mask', str(masked(tmp_path)))
        offline, online = report['matchers']
        assert online['name'] == 'ours_light live'
        if online['summary']['1']['dropped'] == 0:
            break
    assert online['summary']['1']['dropped'] == 0, text
    assert 0 < online['summary']['1']['latency_ms_p50'] < 2000
    assert report['recording']['mask'] == f'{tmp_path}/mask.png, 50.0 % of the image'
    assert pairs_of(online) == pairs_of(offline), 'the same frames, the same matches, the same scores'
    assert any('12 frames sent, 11 clouds received, 0 frames dropped' in note for note in report['notes'])
    assert heard == [], 'a robot that runs meanwhile sees nothing of it'


def test_what_the_node_does_not_get_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: object, **more: object) -> None:
        raise LightglueTrtError('no node')

    monkeypatch.setattr(replay, 'replay', fails)
    monkeypatch.setattr(methods, 'open_backend', lambda config: Opened(NullBackend(config.engine_spec('fp32')), 'null', ''))
    views = [view(number) for number in range(3)]
    folder = image_folder(tmp_path / 'in', views, calibration=pinhole(WIDTH, HEIGHT, 100), baseline_m=0.1, images_right=views)
    with no_pictures():
        assert main([str(folder), '--out', str(tmp_path / 'out'), *SMALL, '--live', '--stereo', '--max-frames', '2', '--camera',
                     str(folder / 'calib.yaml')]) == 1
    report = report_of(tmp_path / 'out')
    assert report['recording']['recorded_frames'] == 3
    assert 'live: the node gets no right images, and has no stereo figures' in report['notes']
    assert f'live: the node has the recorded calibration; {folder}/calib.yaml counts where' in ' '.join(report['notes'])
    assert violations('report', report) == []


def test_node_that_ends_is_not_told_to_be_slow() -> None:
    ended = subprocess.Popen([sys.executable, '-c', 'raise SystemExit(3)'])
    ended.wait()
    with pytest.raises(LightglueTrtError, match='the node ended with exit code 3 before it was active'):
        replay._wait_until_active(replay.Reception(), ended, lambda: False)


def test_drops_are_drops_and_no_loss_of_quality(tmp_path: Path) -> None:
    # a placed point depends on the frame before, which is another one after a drop, and the size of covariances on all before
    report, text = live(tmp_path, 40, '--rate', '15', '--refinement', 'none', '--weights', 'ours')
    offline, online = map(pairs_of, report['matchers'])
    summary = report['matchers'][1]['summary']['1']
    assert summary['dropped'] == 39 - len(online) > 0, text
    shared = set(online) & set(offline)
    assert all(online[pair] == offline[pair] for pair in shared)
    wider = [row for pair, row in online.items() if pair not in shared]
    assert wider, 'frames in between were dropped: those pairs are scored as the pairs that they are'
    assert summary['pose_failures'] == 0


@pytest.mark.slow
def test_depth_is_played_into_the_node_too(tmp_path: Path) -> None:
    depths = [(START + number * PERIOD, np.full((HEIGHT, WIDTH), 2000, np.uint16)) for number in range(8)]
    bag = make_bag(tmp_path / 'bag', 8, depth=depths)
    report, text = live_of(bag, tmp_path, '--depth', '--hz', '5')
    matchers = report['matchers']
    offline, online = (each['summary']['1'] for each in matchers)
    assert 'the node over DDS at 5 frames per second' in matchers[1]['description']
    assert offline['depth_points'] > 95
    assert online['depth_points'] > 90, text


def test_images_of_zstd_image_transport_reach_the_node(tmp_path: Path) -> None:
    images = [packed(view(number), 'mono8', gzip.compress) for number in range(6)]
    report, text = live_of(bag(tmp_path / 'bag', {'/camera/image_raw/zstd': images}), tmp_path, '--rate', '0.5')
    assert pairs_of(report['matchers'][1]), text
