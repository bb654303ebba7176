"""CameraInfo as drivers send it: the same one again with each image, and sometimes another."""

from __future__ import annotations

import pytest

rclpy = pytest.importorskip('rclpy', reason='rclpy is not installed: the nodes are not tested')
from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import CameraInfo

from lightglue_trt_ros.ros import camera_info
from lightglue_trt_ros.ros.camera_info import CameraListener

pytestmark = pytest.mark.usefixtures('ros')


def info(second: int, focal: float = 500.0, model: str = 'plumb_bob') -> bytes:
    message = CameraInfo(width=640, height=480, distortion_model=model, d=[0.1, 0.0, 0.0, 0.0, 0.0],
                         k=[focal, 0.0, 320.0, 0.0, focal, 240.0, 0.0, 0.0, 1.0])
    message.header.stamp.sec, message.header.frame_id = second, 'camera'
    return bytes(serialize_message(message))


def test_a_repeated_camera_info_is_read_once_and_another_one_at_once(monkeypatch):
    read = []
    monkeypatch.setattr(camera_info, 'deserialize_message',
                        lambda data, kind: read.append(data) or deserialize_message(data, kind))
    node = rclpy.create_node('listener')
    try:
        listener = CameraListener(node, 'the test')
        for second in range(5):
            listener._on_info(info(second))
        first = listener.newest
        assert (len(read), first.k[0, 0]) == (1, 500.0)
        listener._on_info(info(5, focal=400.0))
        assert (len(read), listener.newest.k[0, 0]) == (2, 400.0)
        for second in (6, 7):
            listener._on_info(info(second, model='unheard of'))
        assert (len(read), listener.newest) == (3, None)
        assert "distortion model 'unheard of'" in listener.problem
        listener._on_info(info(8, focal=400.0))
        camera = listener.newest
        listener._on_info(of_another_frame(info(9, focal=400.0)))
        assert listener.newest is camera, 'the same values are the same camera'
    finally:
        node.destroy_node()


def of_another_frame(data: bytes) -> bytes:
    message = deserialize_message(data, CameraInfo)
    message.header.frame_id = 'other'
    return bytes(serialize_message(message))
