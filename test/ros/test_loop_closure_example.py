"""The example that closes loops, as a process of its own, against the real node over real DDS."""

from __future__ import annotations

import ast
import os
import re
import runpy
import subprocess
import sys
import threading
from pathlib import Path

import cv2
import numpy as np
import pytest

rclpy = pytest.importorskip('rclpy', reason='rclpy is not installed: the example is not run')
pytest.importorskip('skimage', reason='the camera shows a photograph of scikit-image')
from rcl_interfaces.msg import ParameterValue
from sensor_msgs.msg import CameraInfo, Image, PointCloud2
from support.networks import photo
from support.ros_helpers import SECOND, depth_message, header, image_message, matcher_node, with_peer
from support.shared_backend import open_shared
from support.stereo_pairs import FOCAL, HEIGHT, WIDTH, camera_info
from support.waiting import wait_for

pytestmark = pytest.mark.release

EXAMPLE = Path(__file__).resolve().parents[2] / 'examples' / 'loop_closure.py'
SETTINGS = {'image_height': HEIGHT, 'image_width': WIDTH, 'max_keypoints': 300, 'backend': 'onnxruntime', 'depth': True,
            'keyframes': 20, 'keyframe_min_ratio': 0.9}
STEP, FRAMES, DEPTH_M = 12, 10, 2.0
LOOP = re.compile(r'loop: (\S+) is at \[(\S+), (\S+), (\S+)\] m, (\S+) degrees from (\S+), (\d+) points')


def test_a_client_that_starts_late_closes_the_loop_of_a_way_forth_and_back(stack):
    node = matcher_node(open_shared, SETTINGS)
    peer = with_peer(stack, node)
    keyframes: list[PointCloud2] = []
    peer.node.create_subscription(PointCloud2, '/matcher/keyframe', keyframes.append, 10)
    depths, info = peer.node.create_publisher(Image, '/depth', 10), peer.node.create_publisher(CameraInfo, '/camera_info', 10)
    wait_for(lambda: 'ONNX Runtime' in peer.figures().get('backend', '') and depths.get_subscription_count(), 30)
    calibration, ended = CameraInfo(header=header(SECOND), **vars(camera_info())), threading.Event()

    def keep_telling() -> None:
        while not ended.wait(0.2):
            info.publish(calibration)

    teller = threading.Thread(target=keep_telling)
    teller.start()
    stack.callback(teller.join, 5)
    stack.callback(ended.set)
    depth = np.full((HEIGHT, WIDTH), round(1000 * DEPTH_M), np.uint16)
    wait_for(lambda: peer.figures().get('calibration', '').startswith('/camera_info') or info.get_subscription_count())
    wall = photo('coffee', HEIGHT, WIDTH + STEP * FRAMES)
    there = [*range(0, STEP * FRAMES, STEP)]
    places = there + there[-2::-1]

    def show(number: int) -> None:
        before = len(peer.clouds)
        depths.publish(depth_message(SECOND + number * SECOND // 10, depth))
        peer.send(image_message(SECOND + number * SECOND // 10, wall[:, places[number]:places[number] + WIDTH].copy()))
        wait_for(lambda: len(peer.clouds) > before if number else int(peer.figures().get('frames processed', 0)))

    for number in range(FRAMES):
        show(number)
    wait_for(lambda: len(keyframes) >= 3)
    told = info.get_subscription_count()
    process = subprocess.Popen([sys.executable, EXAMPLE], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               env={**os.environ, 'PYTHONUNBUFFERED': '1'})
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(iter(process.stdout.readline, '')))
    reader.start()
    try:
        wait_for(lambda: node.count_subscribers('/matcher/keyframe') == 2 and node.count_clients('/matcher/match_keyframes'), 30)
        wait_for(lambda: info.get_subscription_count() > told, 30)
        ended.wait(0.5)  # for the calibration, without which it finds no loop
        for number in range(FRAMES, len(places)):
            show(number)
        loops = wait_for(lambda: [match.groups() for line in lines if (match := LOOP.search(line))], 30)
    finally:
        process.terminate()
        reader.join(10)
    assert process.wait(10) in (0, -15)
    assert 'Traceback' not in ''.join(lines)
    for stamp, x, y, z, degrees, earlier, points in loops:
        now, then = (places[round(10 * (float(each) - 1))] for each in (stamp, earlier))
        assert float(earlier) < 1 + 0.1 * FRAMES, 'it came before the client'
        error = np.array([float(x), float(y), float(z)]) - [(now - then) / FOCAL * DEPTH_M, 0, 0]
        assert np.linalg.norm(error) < 0.03
        assert float(degrees) < 1
        assert int(points) >= 30


def test_a_loop_behind_a_fisheye_is_located_by_its_own_model(stack, capfd):
    """Its coefficients were taken for a polynomial's, and the place was wrong without a word."""
    example = runpy.run_path(str(EXAMPLE))['LoopClosure']()
    stack.callback(example.destroy_node)
    k, d = np.array([[300.0, 0, 320], [0, 300, 240], [0, 0, 1]]), np.array([0.05, -0.01, 0.002, -0.001])
    example.camera = CameraInfo(width=640, height=480, distortion_model='equidistant', d=d, k=k.ravel())
    points, shift = np.random.default_rng(0).uniform([-2, -1.5, 1.5], [2, 1.5, 4], (80, 3)), np.array([0.2, -0.1, 0.3])
    pixels = cv2.fisheye.projectPoints((points + shift)[:, None], np.zeros(3), np.zeros(3), k, d)[0][:, 0]
    nothing = np.zeros(len(points))
    example.on_matches('1.0', '2.0', [ParameterValue(double_array_value=column.tolist()) for column in (
        *pixels.T, *[nothing] * 6, *points.T, nothing)])
    (place,) = LOOP.findall(capfd.readouterr().err)
    np.testing.assert_allclose([*map(float, place[1:4])], shift, atol=2e-3)


def test_it_has_about_forty_lines_of_code():
    tree = ast.parse(EXAMPLE.read_text())
    (client,) = (each for each in tree.body if isinstance(each, ast.ClassDef))
    assert client.end_lineno - client.lineno < 45
