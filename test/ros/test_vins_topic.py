"""~/feature and ~/restart over real DDS: read as the estimators read them, measured against the flight, with bad CameraInfos."""

from __future__ import annotations

import itertools
import time
from contextlib import ExitStack

import cv2
import numpy as np
import pytest

rclpy = pytest.importorskip('rclpy', reason='rclpy is not installed: the node is not tested')
pytest.importorskip('skimage', reason='the flight shows photographs of scikit-image')
from diagnostic_msgs.msg import DiagnosticStatus
from sensor_msgs.msg import CameraInfo
from std_srvs.srv import Trigger
from support.flight_truth import transferred
from support.ros_helpers import SECOND, SMALL, header, image_message, matcher_node, opens, with_peer
from support.vins_estimator import Estimator
from support.waiting import wait_for

from lightglue_trt_eval.demo.flight import Flight
from lightglue_trt_ros.core.cameras import Intrinsics, normalised, undistort
from lightglue_trt_ros.engines.selection import open_backend

BARREL = [-0.28, 0.07, 0.0002, 0.00002, 0.0]


def camera_info(camera: Intrinsics, stamp_ns: int = SECOND, **changes) -> CameraInfo:
    info = CameraInfo(header=header(stamp_ns), width=camera.width, height=camera.height, distortion_model=camera.distortion_model,
                      d=camera.d.tolist(), k=camera.k.ravel())
    for name, value in changes.items():
        setattr(info, name, value)
    return info


@pytest.fixture
def run():
    """A function that runs a matcher for VINS with a peer and an estimator in this process; all end with the test."""
    rclpy.init()
    ends = ExitStack()

    def start(opener, **parameters):
        node = matcher_node(opener, parameters, tracks_format='vins')
        peer = with_peer(ends, node)
        infos = peer.node.create_publisher(CameraInfo, '/camera_info', 10)
        estimator = Estimator(peer)
        wait_for(lambda: peer.node.count_publishers('/matcher/feature') and peer.node.count_publishers('/matcher/restart'))
        return node, peer, infos, estimator

    with ends:
        yield start
    rclpy.try_shutdown()


TINY = Intrinsics(64, 48, np.array([[60.0, 0, 31.5], [0, 60.0, 23.5], [0, 0, 1]]), 'plumb_bob', np.zeros(5))


@pytest.fixture(scope='module')
def flight():
    """Frames of a flight through a lens that distorts, and the camera."""
    town = Flight(frames=7, height=240, width=320, blur=False)
    ideal = Intrinsics(320, 240, town.intrinsics, 'plumb_bob', np.array(BARREL))
    v, u = np.mgrid[0:240, 0:320]
    there = undistort(np.stack([u.ravel(), v.ravel()], axis=1), ideal).reshape(240, 320, 2).astype(np.float32)
    frames = list(town.render())
    images = [cv2.remap(frame.image, there[..., 0], there[..., 1], cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT)
              for frame in frames]
    return frames, images, ideal


@pytest.mark.parametrize(('channels', 'reference'), [(5, 'previous'), (9, 'keyframe')])
@pytest.mark.release
def test_an_estimator_reads_the_flight(run, flight, channels, reference):
    frames, images, camera = flight
    _, peer, infos, estimator = run(open_backend, image_height=240, image_width=320, max_keypoints=400, max_tracks=150,
                                    backend='onnxruntime', vins_channels=channels, reference=reference, weights='ours_light')
    peer.wait_for_backend()
    wait_for(infos.get_subscription_count)
    for index, (frame, image) in enumerate(zip(frames, images, strict=True)):
        infos.publish(camera_info(camera, frame.stamp_ns))
        time.sleep(0.05)
        peer.send(image_message(frame.stamp_ns, image), clouds=min(index, 1))
        if not index:
            wait_for(lambda: peer.figures()['frames processed'] == '1')
    wait_for(lambda: len(estimator.frames) == len(frames) - 1)
    assert estimator.sizes == {channels}
    assert estimator.check_tracks() >= 5
    errors, offsets = [], []
    for (before, now), (stamp, found) in zip(itertools.pairwise(frames), estimator.frames, strict=True):
        assert stamp == pytest.approx(now.stamp_ns / SECOND)
        assert 60 < len(found) <= 150
        rows = np.stack(list(found.values()))
        offsets.append(np.abs(normalised(rows[:, 3:5], camera) - rows[:, :2]).max())
        ideal = rows[:, :2] @ camera.k[:2, :2].T + camera.k[:2, 2]
        back, visible = transferred(now, before, ideal, camera.k)
        truth = (ideal - back) / camera.k[0, 0] / 0.1
        errors.append(np.linalg.norm(rows[:, 5:7] - truth, axis=1)[visible])
        assert np.median(np.linalg.norm(truth[visible], axis=1)) > 0.05
    assert max(offsets) < 1e-5
    error = np.concatenate(errors)
    assert len(error) > 300
    assert np.median(error) < 0.4 / camera.k[0, 0] / 0.1, 'two fifths of a pixel from frame to frame'
    assert np.mean(error < 2 / camera.k[0, 0] / 0.1) > 0.9


def test_restart_follows_every_reset(run):
    node, peer, infos, estimator = run(opens(), **SMALL)
    wait_for(infos.get_subscription_count)
    infos.publish(camera_info(TINY))
    peer.send(image_message(SECOND))
    time.sleep(0.2)
    peer.send(image_message(11 * SECOND // 10), clouds=1)
    wait_for(lambda: estimator.frames)
    assert not estimator.restarts
    assert peer.call(Trigger, '/matcher/reset', Trigger.Request()).success
    peer.send(image_message(12 * SECOND // 10))
    wait_for(lambda: estimator.restarts == [True])
    peer.send(image_message(13 * SECOND // 10), clouds=1)
    wait_for(lambda: len(estimator.frames) == 2)
    assert not set(estimator.frames[0][1]) & set(estimator.frames[1][1])
    peer.send(image_message(30 * SECOND))  # a gap
    wait_for(lambda: estimator.restarts == [True, True])
    node.trigger_deactivate()
    node.trigger_activate()
    wait_for(lambda: estimator.restarts == [True] * 3)


def test_it_waits_for_the_camera_and_says_so_once_and_then_begins(run, capfd):
    _, peer, infos, estimator = run(opens(), **SMALL)
    peer.send(image_message(SECOND))
    time.sleep(0.2)
    for tenth in range(11, 16):
        peer.send(image_message(tenth * SECOND // 10), clouds=1)
    assert not estimator.frames
    wait_for(lambda: peer.status() == (DiagnosticStatus.WARN, '~/feature waits for a CameraInfo on /camera_info'))
    assert capfd.readouterr().err.count('~/feature waits for a CameraInfo on /camera_info') == 1
    wait_for(infos.get_subscription_count)
    infos.publish(camera_info(TINY))
    time.sleep(0.2)
    peer.send(image_message(16 * SECOND // 10), clouds=1)
    wait_for(lambda: estimator.frames)
    assert len(estimator.frames[0][1]) == 50
    wait_for(lambda: peer.status() == (DiagnosticStatus.OK, 'matching'))


NAN = TINY.k.ravel().copy()
NAN[2] = np.nan
BAD = {
    'another size': ({'width': 640, 'height': 480}, 'is for 640x480 pixels, the images have 64x48'),
    'NaN': ({'k': NAN}, 'is refused: the intrinsics are not finite'),
    'K of zeros': ({'k': np.zeros(9)}, 'is refused: K of the CameraInfo is [[0.0, 0.0, 0.0]'),
    'a model that nobody knows': ({'distortion_model': 'omni', 'd': [0.1]}, "is refused: distortion model 'omni'"),
    'too few coefficients': ({'d': [0.1, 0.2]}, 'coefficients, not D = [0.1, 0.2]'),
    'no size': ({'width': 0, 'height': 0}, 'is refused: the intrinsics are for 0x0 pixels'),
}


@pytest.mark.parametrize('name', BAD)
def test_a_bad_camera_is_one_line_and_the_next_good_one_works(run, capfd, name):
    changes, words = BAD[name]
    _, peer, infos, estimator = run(opens(), **SMALL)
    wait_for(infos.get_subscription_count)
    peer.send(image_message(SECOND))
    time.sleep(0.2)
    for tenth in range(11, 14):
        infos.publish(camera_info(TINY, **changes))
        time.sleep(0.1)
        peer.send(image_message(tenth * SECOND // 10), clouds=1)
    assert not estimator.frames
    log = capfd.readouterr().err
    assert log.count(words) == 1, log
    assert log.count('~/feature') == 1, log
    infos.publish(camera_info(TINY))
    time.sleep(0.2)
    peer.send(image_message(2 * SECOND), clouds=1)
    wait_for(lambda: estimator.frames)


def test_nothing_of_it_is_there_by_default():
    rclpy.init()
    node = matcher_node(opens(), SMALL)
    node.trigger_configure()
    try:
        wait_for(lambda: node.count_publishers('/matcher/matches'))
        assert not any(map(node.count_publishers, ('/matcher/feature', '/matcher/restart')))
    finally:
        node.destroy_node()
        rclpy.try_shutdown()
