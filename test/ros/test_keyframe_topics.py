"""~/keyframe and ~/match_keyframes over real DDS: what place recognition and a loop closure need, without a second extraction."""

from __future__ import annotations

import numpy as np
import pytest

rclpy = pytest.importorskip('rclpy', reason='rclpy is not installed: the node is not tested')
pytest.importorskip('skimage', reason='the camera shows a photograph of scikit-image')
from rcl_interfaces.srv import GetParameters
from rclpy.parameter import Parameter
from sensor_msgs.msg import PointCloud2
from support.counted_backend import CountedBackend
from support.matches import frame_matches
from support.networks import light, photo
from support.ros_helpers import SECOND, image_message, matcher_node, opens, with_peer
from support.waiting import wait_for

from lightglue_trt_ros.core.config import EngineSpec
from lightglue_trt_ros.ros.matcher.keyframe_topics import COLUMNS, _columns

HEIGHT, WIDTH, STEP, FRAMES = 240, 320, 24, 8
SETTINGS = {'image_height': HEIGHT, 'image_width': WIDTH, 'max_keypoints': 600, 'backend': 'onnxruntime', 'keyframes': 10,
            'keyframe_min_ratio': 0.7}


def counted(spec: EngineSpec) -> CountedBackend:
    return CountedBackend(spec, light(), threads=2)


def points_in(cloud: PointCloud2) -> np.ndarray:
    """By the fields that the message declares, as a consumer reads them."""
    kinds = {7: 'f4', 6: 'u4', 4: 'u2'}
    layout = np.dtype({'names': [field.name for field in cloud.fields], 'itemsize': cloud.point_step,
                       'offsets': [field.offset for field in cloud.fields],
                       'formats': [(kinds[field.datatype], (field.count,)) if field.count > 1 else kinds[field.datatype]
                                   for field in cloud.fields]})
    return np.frombuffer(cloud.data, layout)


@pytest.mark.release
def test_a_way_forth_and_back_closes_its_loop_in_one_inference(stack):
    backends: list[CountedBackend] = []
    node = matcher_node(opens(counted, backends), SETTINGS)
    peer = with_peer(stack, node)
    keyframes: list[PointCloud2] = []
    peer.node.create_subscription(PointCloud2, '/matcher/keyframe', keyframes.append, 10)
    wait_for(lambda: backends and peer.node.count_publishers('/matcher/keyframe'), 30)
    wall = photo('coffee', HEIGHT, WIDTH + STEP * FRAMES)
    there = [wall[:, x:x + WIDTH].copy() for x in range(0, STEP * FRAMES, STEP)]
    images = there + there[-2::-1]
    for number, image in enumerate(images):
        before = len(peer.clouds)
        peer.send(image_message(SECOND + number * SECOND // 10, image))
        wait_for(lambda before=before, number=number: len(peer.clouds) > before if number else backends[0].extracted)
    wait_for(lambda: len(keyframes) >= 3)
    backend, (first, last) = backends[0], (keyframes[0], keyframes[-1])
    assert len(backend.extracted) == len(images)

    points = points_in(last)
    assert points['descriptor'].shape == (len(points), 256)
    lengths = np.linalg.norm(points['descriptor'].view(np.float16).astype(np.float32), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=1e-2)
    assert 0 < np.count_nonzero(points['track_id'] != 2**32 - 1) <= len(points)
    assert np.isnan(points['z']).all(), 'a camera without depth'

    def ask(*stamps: str) -> list:
        return peer.call(GetParameters, '/matcher/match_keyframes', GetParameters.Request(names=stamps), 30).values

    names = [f'{cloud.header.stamp.sec}.{cloud.header.stamp.nanosec:09d}' for cloud in (first, last)]
    matched = backend.matched
    answer = {name: np.array(value.double_array_value) for name, value in zip(COLUMNS, ask(*names), strict=True)}
    assert (len(backend.extracted), backend.matched) == (len(images), matched + 1)
    places = []
    for cloud in (first, last):
        number = round((cloud.header.stamp.sec + cloud.header.stamp.nanosec / SECOND - 1) * 10)
        places.append(min(number, 2 * (FRAMES - 1) - number) * STEP)
    error = np.hypot(answer['u'] - answer['u_ref'] - (places[0] - places[1]), answer['v'] - answer['v_ref'])
    assert np.count_nonzero(error < 1) >= 200
    assert np.isfinite(np.stack([answer[name] for name in ('cov_uu', 'cov_uv', 'cov_vv')])).all()

    for stamps, told in ((('5.0', names[1]), 'no keyframe has the stamp 5.000000: kept are'), (names[:1], 'give the stamps of two'),
                         (('a', 'b'), "names are ['a', 'b']")):
        (value,) = ask(*stamps)
        assert told in value.string_value
    node.stop()
    assert 'the node is not active' in ask(*names)[0].string_value


def test_columns_of_an_answer_have_their_names():
    points = np.float32([[1, 2], [3, 4]])
    covariances = np.float32([[[5, 6], [6, 7]], [[8, 9], [9, 10]]])
    matches = frame_matches(points, points + 10, scores=np.float32([0.5, 0.75]), covariances=covariances,
                            xyz=np.float32([[11, 12, 13], [14, 15, 16]]), sigma_z=np.float32([17, 18]))
    found = {name: list(value.double_array_value) for name, value in zip(COLUMNS, _columns(matches), strict=True)}
    assert found == {'u': [1, 3], 'v': [2, 4], 'u_ref': [11, 13], 'v_ref': [12, 14], 'score': [0.5, 0.75], 'cov_uu': [5, 8],
                     'cov_uv': [6, 9], 'cov_vv': [7, 10], 'x': [11, 14], 'y': [12, 15], 'z': [13, 16], 'sigma_z': [17, 18]}


def test_detection_threshold_set_at_runtime_applies_to_keyframes(stack):
    node = matcher_node(opens(counted), SETTINGS, keyframe_min_ratio=1.0)
    peer = with_peer(stack, node)
    keyframes: list[PointCloud2] = []
    peer.node.create_subscription(PointCloud2, '/matcher/keyframe', keyframes.append, 10)
    wait_for(lambda: 'ONNX Runtime' in peer.figures().get('backend', '') and peer.node.count_publishers('/matcher/keyframe'), 30)
    wall = photo('coffee', HEIGHT, WIDTH + 60)

    def send(number: int) -> None:
        peer.send(image_message(SECOND + number * SECOND // 10, wall[:, 8 * number:8 * number + WIDTH].copy()))

    send(0)
    wait_for(lambda: int(peer.figures().get('frames processed', 0)) >= 1)
    send(1)
    wait_for(lambda: keyframes)
    scores = points_in(keyframes[0])['score']
    least = float(np.median(scores))
    assert node.set_parameters([Parameter('detection_threshold', value=least)])[0].successful
    send(2)
    wait_for(lambda: len(keyframes) == 2)
    found = points_in(keyframes[1])['score']
    assert 0.2 * len(scores) < len(found) < 0.9 * len(scores)
    assert found.min() > least
