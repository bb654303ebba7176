"""Odometry of a robot whose camera is mounted somewhere on it: the poses of base_frame, by the transforms between both."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

rclpy = pytest.importorskip('rclpy', reason='rclpy is not installed: the node is not tested')
nav = pytest.importorskip('nav_msgs.msg', reason='nav_msgs is not installed: the odometry is not tested')
from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import Quaternion, Transform, TransformStamped, Vector3
from rclpy.serialization import serialize_message
from scipy.spatial.transform import Rotation
from std_msgs.msg import Header
from support import bags
from support.moving_camera import poses_of, steps
from support.ros_helpers import image_message
from support.waiting import wait_for
from test_odometry_node import UPRIGHT, Watcher, cloud_of, info

from lightglue_trt_ros.datasets.ground_truth import load_ground_truth
from lightglue_trt_ros.datasets.recordings import open_recording
from lightglue_trt_ros.datasets.sequence import Recording
from lightglue_trt_ros.ros import odometry_node
from lightglue_trt_ros.ros.frames import FrameTree
from lightglue_trt_ros.utils.errors import ConfigError

pytestmark = pytest.mark.release


def pose(shift=(0.0, 0.0, 0.0), degrees=(0.0, 0.0, 0.0)) -> np.ndarray:
    made = np.eye(4)
    made[:3, :3], made[:3, 3] = Rotation.from_rotvec(degrees, degrees=True).as_matrix(), shift
    return made


def transform(parent: str, child: str, matrix: np.ndarray) -> TransformStamped:
    """The message that says where `child` is in `parent`, (4, 4) parent from child."""
    rotation = Quaternion(**dict(zip('xyzw', Rotation.from_matrix(matrix[:3, :3]).as_quat().tolist(), strict=True)))
    return TransformStamped(header=Header(frame_id=parent), child_frame_id=child, transform=Transform(
        translation=Vector3(**dict(zip('xyz', matrix[:3, 3].tolist(), strict=True))), rotation=rotation))


MOUNTED, OPTICAL = pose((0.4, -0.1, 0.9), (0, 20, 30)), UPRIGHT
BASE_FROM_CAMERA = MOUNTED @ OPTICAL


def given(message: Any) -> np.ndarray:
    position, rotation = message.pose.pose.position, message.pose.pose.orientation
    made = np.eye(4)
    made[:3, :3] = Rotation.from_quat([rotation.x, rotation.y, rotation.z, rotation.w]).as_matrix()
    made[:3, 3] = position.x, position.y, position.z
    return made


def vector(message: Vector3) -> np.ndarray:
    return np.array([message.x, message.y, message.z])


class Robot(Watcher):
    """A Watcher whose node hears transforms. Wheels have no tf2_msgs: where it lacks, they are handed to its callback."""

    def __init__(self, stack, monkeypatch, **parameters) -> None:
        if odometry_node.TFMessage is None:  # type: ignore[attr-defined]  # imported there
            monkeypatch.setattr(odometry_node, 'TFMessage', nav.Path)  # of whatever type: nobody publishes it
        super().__init__(stack, publish_tf=False, base_frame='base_link', **parameters)

    def tell(self, *transforms: TransformStamped) -> None:
        self.node._on_transforms(SimpleNamespace(transforms=transforms))


def test_poses_and_velocities_are_those_of_the_base(stack, monkeypatch, capfd):
    robot, truth = Robot(stack, monkeypatch), list(steps(poses_of(14)))
    robot.hear(info(), *(cloud_of(step, depth=True) for step in truth[:2]))
    line = ("no transform connects the camera's frame 'camera' (below 'camera') with base_frame 'base_link' (below 'base_link'): "
            'publish the missing one on /tf_static, or correct base_frame')
    wait_for(lambda: robot.status()[:2] == (DiagnosticStatus.WARN, line))
    robot.tell(transform('camera_link', 'camera', OPTICAL))
    robot.hear(cloud_of(truth[2], depth=True))
    wait_for(lambda: "'camera' (below 'camera_link')" in robot.status()[1])
    robot.tell(transform('base_link', 'camera_link', MOUNTED))
    robot.hear(*(cloud_of(step, depth=True) for step in truth[3:]))
    wait_for(lambda: len(robot.messages) == len(truth) - 3)
    assert {(each.header.frame_id, each.child_frame_id) for each in robot.messages} == {('odom', 'base_link')}
    first = np.linalg.inv(truth[2].pose)  # the first cloud that counts has its reference there
    expected = [BASE_FROM_CAMERA @ first @ step.pose @ np.linalg.inv(BASE_FROM_CAMERA) for step in truth[3:]]
    np.testing.assert_allclose([given(each) for each in robot.messages], expected, atol=5e-3)
    for before, now, message in zip(expected, expected[1:], robot.messages[1:], strict=False):
        step, twist = np.linalg.inv(before) @ now, message.twist.twist
        rate = Rotation.from_matrix(step[:3, :3]).as_rotvec() / 0.1
        np.testing.assert_allclose(vector(twist.angular), rate, atol=0.02)
        middle = step[:3, :3].T @ step[:3, 3] / 0.1
        np.testing.assert_allclose(vector(twist.linear), middle, atol=0.05)
    assert capfd.readouterr().err.count('no transform connects') == 2, 'a line for each place where the frames end'


def test_optical_frame_below_the_frame_of_the_images_is_the_camera(stack, monkeypatch, capfd):
    robot = Robot(stack, monkeypatch)
    robot.tell(transform('base_link', 'camera', MOUNTED), transform('camera', 'camera_optical', OPTICAL))
    assert robot.node._is_mounted('/camera')
    np.testing.assert_allclose(robot.node._mounting, BASE_FROM_CAMERA, atol=1e-9)
    assert 'has x forward by TF: camera_optical, the optical frame below it, is taken as the camera' in capfd.readouterr().err
    assert robot.node._is_mounted('camera_optical')
    np.testing.assert_allclose(robot.node._mounting, BASE_FROM_CAMERA, atol=1e-9)
    assert not capfd.readouterr().err


@pytest.mark.parametrize('has_base', [True, False])
def test_covariances_are_those_of_the_base_in_the_axes_of_each_message(stack, monkeypatch, has_base):
    """The camera's errors, moved to the base: its rotation moves what is far from it."""
    robot = Robot(stack, monkeypatch) if has_base else Watcher(stack, publish_tf=False)
    base_from_camera = BASE_FROM_CAMERA if has_base else np.eye(4)
    if isinstance(robot, Robot):
        robot.tell(transform('base_link', 'camera', BASE_FROM_CAMERA))
    robot.hear(info(), *(cloud_of(step, depth=True) for step in list(steps(poses_of(9), noise_px=0.3))))
    wait_for(lambda: len(robot.messages) == 8)
    message, own = robot.messages[-1], robot.node._covariance
    base, errors = given(message), np.random.default_rng(0).multivariate_normal(np.zeros(6), own, 20_000)
    poses = np.tile(np.eye(4), (len(errors), 1, 1))
    poses[:, :3, 3], poses[:, :3, :3] = errors[:, :3], Rotation.from_rotvec(errors[:, 3:]).as_matrix()
    moved = base @ base_from_camera @ poses @ np.linalg.inv(base_from_camera)
    turns = Rotation.from_matrix(moved[:, :3, :3] @ base[:3, :3].T).as_rotvec()
    expected, found = np.cov(np.hstack([moved[:, :3, 3] - base[:3, 3], turns]).T), message.pose.covariance.reshape(6, 6)
    sigma = np.sqrt(np.diag(expected))
    np.testing.assert_allclose(found / np.outer(sigma, sigma), expected / np.outer(sigma, sigma), atol=0.04)
    for each in robot.messages:
        for covariance in (each.pose.covariance, each.twist.covariance):
            np.linalg.cholesky(covariance.reshape(6, 6))
    spread = np.sqrt(np.diag(message.twist.covariance.reshape(6, 6)))
    assert (spread > 1e-4).all()
    assert (spread < 1).all()


def test_recorded_with_its_images_it_is_no_ground_truth(stack, monkeypatch, tmp_path):
    """Odometry of another frame than the camera's, without path and clouds; with the numbers of another source it is."""
    pytest.importorskip('rosbags', reason='bags need the Python package rosbags')
    robot = Robot(stack, monkeypatch)
    robot.tell(transform('base_link', 'camera', BASE_FROM_CAMERA))
    robot.hear(info(), *(cloud_of(step, depth=True) for step in list(steps(poses_of(9), noise_px=0.3))))
    wait_for(lambda: len(robot.messages) == 8)
    for name, messages in (('own', robot.messages), ('later', robot.messages[4:])):
        told: list[str] = []
        assert load_ground_truth(recorded(tmp_path / name, messages), on_note=told.append) is None
        assert told[0].startswith('/odom is the odometry of this package, computed from images of this recording')
    for message in robot.messages:
        message.pose.pose.position.x += 1e-11
    truth = load_ground_truth(recorded(tmp_path / 'theirs', robot.messages))
    assert truth is not None
    assert len(truth) == 8


def recorded(path, odometry: list) -> Recording:
    """A bag of images of the messages' stamps, and the messages."""
    stamped = [(message.header.stamp.sec * 10**9 + message.header.stamp.nanosec, message) for message in odometry]
    mounting = bags.transform(0, 'base_link', 'camera', BASE_FROM_CAMERA)
    return open_recording(bags.write_messages(path, {
        '/camera/image_raw': (bags.IMAGE, [(stamp, serialize_message(image_message(stamp))) for stamp, _ in stamped]),
        '/odom': ('nav_msgs/msg/Odometry', [(stamp, serialize_message(message)) for stamp, message in stamped]),
        '/tf_static': (bags.TF, [(1, bags.new(bags.TF, [mounting]))])}))


def test_a_joint_that_moves_the_camera_does_not_move_the_base(stack, monkeypatch):
    robot, standing = Robot(stack, monkeypatch), []
    head = [pose((0.2, 0, 1.0), (0, 0, 2.0 * number)) for number in range(12)]
    views = np.stack([np.linalg.inv(head[0] @ OPTICAL) @ each @ OPTICAL for each in head])  # poses of the camera as it is rotated
    robot.hear(info())
    for number, step in enumerate(steps(views), 1):
        robot.tell(transform('base_link', 'head', head[number]), transform('head', 'camera', OPTICAL))
        robot.hear(cloud_of(step, depth=True))
        standing.append(step)
    wait_for(lambda: len(robot.messages) == len(standing))
    places = np.array([given(each)[:3, 3] for each in robot.messages[1:]])
    assert np.abs(places - places[0]).max() < 0.02


def test_frames_are_connected_below_the_frame_that_the_robot_moves_in():
    tree = FrameTree('odom')
    tree.add([transform('odom', 'base_link', pose((5, 0, 0))), transform('odom', 'other', pose((9, 0, 0))),
              transform('base_link', '/arm', pose((1, 0, 0), (0, 0, 90))), transform('arm', 'camera', pose((2, 0, 0))),
              transform('a', 'b', pose()), transform('b', 'a', pose())])
    np.testing.assert_allclose(tree.pose('camera', 'base_link')[:3, 3], [1, 2, 0], atol=1e-12)
    np.testing.assert_allclose(tree.pose('/base_link', 'camera'), np.linalg.inv(tree.pose('camera', 'base_link')), atol=1e-12)
    np.testing.assert_array_equal(tree.pose('camera', 'camera'), np.eye(4))
    assert tree.pose('camera', 'other') is None, 'only the world connects them'
    assert tree.pose('camera', 'nobody') is None
    assert tree.pose('a', 'camera') is None
    assert (tree.root('camera'), tree.root('nobody')) == ('base_link', 'nobody')
    spoilt = transform('base_link', 'arm', pose((np.nan, 0, 0)))
    turned = transform('base_link', 'arm', pose())
    turned.transform.rotation = Quaternion(x=0.0, y=0.0, z=0.0, w=0.0)
    tree.add([spoilt, turned])
    np.testing.assert_allclose(tree.pose('camera', 'base_link')[:3, 3], [1, 2, 0], atol=1e-12)
    tree.add([transform('base_link', 'arm', pose((3, 0, 0)))])
    np.testing.assert_allclose(tree.pose('camera', 'base_link')[:3, 3], [5, 0, 0], atol=1e-12)


def test_without_tf2_msgs_a_base_frame_is_refused(stack, monkeypatch):
    monkeypatch.setattr(odometry_node, 'TFMessage', None)
    with pytest.raises(ConfigError, match='base_frame is base_link, and tf2_msgs is not installed'):
        Watcher(stack, base_frame='base_link')


def test_the_base_is_found_by_real_transforms_where_tf2_is_installed(stack):
    tf2 = pytest.importorskip('tf2_msgs.msg', reason='tf2_msgs is not installed (no wheels)')
    from rclpy.qos import DurabilityPolicy, QoSProfile
    robot, transforms = Watcher(stack, base_frame='base_link'), []
    latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    static = robot.peer.node.create_publisher(tf2.TFMessage, '/tf_static', latched)
    robot.peer.node.create_subscription(tf2.TFMessage, '/tf', transforms.append, 100)
    static.publish(tf2.TFMessage(transforms=[transform('base_link', 'camera', BASE_FROM_CAMERA)]))
    wait_for(lambda: robot.node._frames.pose('camera', 'base_link') is not None)
    robot.hear(info(), *(cloud_of(step, depth=True) for step in steps(poses_of(6))))
    wait_for(lambda: transforms)
    assert (transforms[0].transforms[0].header.frame_id, transforms[0].transforms[0].child_frame_id) == ('odom', 'base_link')
