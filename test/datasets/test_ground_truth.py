"""Ground truth from every kind of topic and file, and poses between poses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.bags import IMAGE, TF, TRANSFORM, header, image, new, transform, write_messages
from support.image_recordings import image_folder

from lightglue_trt_ros.core.types import Float64
from lightglue_trt_ros.datasets.bag_writer import write_bag
from lightglue_trt_ros.datasets.calibration_files import load_intrinsics
from lightglue_trt_ros.datasets.ground_truth import load_ground_truth, poses_at
from lightglue_trt_ros.datasets.own_odometry import OwnOdometry
from lightglue_trt_ros.datasets.pose_files import kind_of, read_kitti, read_quaternions
from lightglue_trt_ros.datasets.poses import (
    OPTICAL_IN_LINK,
    Trajectory,
    are_on_grid,
    on_grid,
    poses_from,
    quaternions_from_rotations,
)
from lightglue_trt_ros.datasets.recordings import open_recording
from lightglue_trt_ros.datasets.sequence import Recording
from lightglue_trt_ros.utils.errors import BagError

pytest.importorskip('rosbags', reason='bags need the Python package rosbags')

SECOND = 10**9
COUNT = 8
ODOMETRY, POSE, COVARIANCE = 'nav_msgs/msg/Odometry', 'geometry_msgs/msg/PoseStamped', 'geometry_msgs/msg/PoseWithCovarianceStamped'
OPTICAL = np.array([[0.0, 0, 1, 0.3], [-1, 0, 0, 0.02], [0, -1, 0, 0.1], [0, 0, 0, 1]])  # base (x forward) from an optical frame


def turn(axis: list[float], angle: float) -> Float64:
    return np.asarray(cv2.Rodrigues(np.array(axis) / np.linalg.norm(axis) * angle)[0], np.float64)


def pose(rotation: Float64, position: list[float]) -> Float64:
    result = np.eye(4)
    result[:3, :3], result[:3, 3] = rotation, position
    return result


NED = np.array([[0.0, 0, 1, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1]])  # TartanAir's axes from the optical frame


def camera_poses(count: int = COUNT) -> Float64:
    return np.stack([pose(turn([0.2, 1, 0.1], 0.1 * k), [0.1 * k, 0.01 * k * k, 1.0]) for k in range(count)])


LOOKING = pose(OPTICAL_IN_LINK, [0, 0, 0])


def pose_message(kind: str, stamp: int, parent: str, child: str, matrix: Float64) -> Any:
    if kind in (TF, TRANSFORM):
        stamped = transform(stamp, parent, child, matrix)
        return stamped if kind == TRANSFORM else new(TF, [stamped])
    q = quaternions_from_rotations(matrix[None, :3, :3])[0]
    body = new('geometry_msgs/msg/Pose', new('geometry_msgs/msg/Point', *matrix[:3, 3]), new('geometry_msgs/msg/Quaternion', *q))
    if kind == POSE:
        return new(POSE, header(stamp, parent), body)
    known = new('geometry_msgs/msg/PoseWithCovariance', body, np.zeros(36))
    if kind == COVARIANCE:
        return new(COVARIANCE, header(stamp, parent), known)
    zero = new('geometry_msgs/msg/Vector3', 0.0, 0.0, 0.0)
    twist = new('geometry_msgs/msg/TwistWithCovariance', new('geometry_msgs/msg/Twist', zero, zero), np.zeros(36))
    return new(ODOMETRY, header(stamp, parent), child, known, twist)


class Bag:
    """Writes a bag with images in frame `cam` and any other message."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.topics: dict[str, tuple[str, list[tuple[int, Any]]]] = {}

    def add(self, topic: str, kind: str, *messages: tuple[int, Any]) -> Bag:
        self.topics.setdefault(topic, (kind, []))[1].extend(messages)
        return self

    def poses(self, topic: str, kind: str, poses: Float64, parent: str = 'map', child: str = 'base_link') -> Bag:
        return self.add(topic, kind, *((SECOND * (k + 1), pose_message(kind, SECOND * (k + 1), parent, child, each))
                                       for k, each in enumerate(poses)))

    def static(self, *edges: tuple[str, str, Float64]) -> Bag:
        return self.add('/tf_static', TF, (1, new(TF, [transform(1, *edge) for edge in edges])))

    def open(self) -> Recording:
        images = [(SECOND * (k + 1), image(SECOND * (k + 1), 'cam', np.zeros((4, 4), np.uint8))) for k in range(COUNT)]
        return open_recording(write_messages(self.path, {'/image': (IMAGE, images), **self.topics}))


@pytest.mark.parametrize('kind', [POSE, COVARIANCE])
def test_topics_that_name_no_body(tmp_path: Path, kind: str) -> None:
    truth = load_ground_truth(Bag(tmp_path / 'bag').poses('/vicon', kind, camera_poses()).open())
    assert truth is not None
    assert truth.stamps_ns.tolist() == [SECOND * (k + 1) for k in range(COUNT)]
    assert np.abs(truth.poses - camera_poses()).max() < 1e-12
    assert '/vicon' in truth.source
    assert '--camera-in-body' in truth.source
    assert truth.as_camera


@pytest.mark.parametrize('topic', ['/goal_pose', '/move_base_simple/goal', '/initialpose', '/mavros/setpoint_position/local'])
def test_goals_are_no_ground_truth_unless_they_are_named(tmp_path: Path, topic: str) -> None:
    goals = Bag(tmp_path / 'goals').poses(topic, POSE, camera_poses()[::-1])
    recording, told = goals.open(), list[str]()
    assert load_ground_truth(recording, on_note=told.append) is None
    assert [topic in note and '--truth-topic' in note for note in told] == [True]
    assert load_ground_truth(recording, topic=topic) is not None
    both = Bag(tmp_path / 'both').poses(topic, POSE, camera_poses()[::-1]).poses('/a', POSE, camera_poses())
    truth = load_ground_truth(both.open())
    assert truth is not None
    assert '/a' in truth.source


@pytest.mark.parametrize('kind', [ODOMETRY, TRANSFORM, TF])
def test_topics_of_a_body(tmp_path: Path, kind: str) -> None:
    """The poses are base_link's; two static transforms lead to the camera, one of them the other way round."""
    bodies = camera_poses() @ np.linalg.inv(OPTICAL)
    mast = pose(turn([0, 0, 1], 0.3), [0.1, 0.2, 0.3])
    told: list[str] = []
    bag = Bag(tmp_path / 'bag').poses('/truth', kind, bodies, child='/base_link')
    truth = load_ground_truth(bag.static(('mast', 'base_link', mast), ('mast', 'cam', mast @ OPTICAL)).open(), on_note=told.append)
    assert truth is not None
    assert np.abs(truth.poses - camera_poses()).max() < 1e-12
    assert 'moved into cam by /tf_static' in truth.source
    assert not truth.as_camera
    assert not told


@pytest.mark.parametrize('kind', [POSE, COVARIANCE])
def test_named_body_of_a_topic_that_names_none_is_moved_into_the_camera(tmp_path: Path, kind: str) -> None:
    """As /amcl_pose, which is base_footprint's."""
    recording = Bag(tmp_path / 'bag').poses('/amcl_pose', kind, camera_poses() @ np.linalg.inv(OPTICAL)).static(
        ('base_footprint', 'base_link', np.eye(4)), ('base_link', 'cam', OPTICAL), ('base_link', 'lidar', OPTICAL)).open()
    doubtful, truth = load_ground_truth(recording), load_ground_truth(recording, child_frame='base_footprint')
    assert doubtful is not None
    assert truth is not None
    assert doubtful.source.endswith('; if they are of base_footprint: --truth-child-frame base_footprint')
    assert np.abs(truth.poses - camera_poses()).max() < 1e-12
    assert not truth.as_camera
    with pytest.raises(BagError, match="its poses are of wheel, and no /tf_static joins that to 'cam'"):
        load_ground_truth(recording, topic='/amcl_pose', child_frame='wheel')


@pytest.mark.parametrize('child', ['base_link', 'cam', 'cam_optical'])
def test_optical_frame_below_the_frame_id_of_the_images_counts(tmp_path: Path, child: str) -> None:
    """As where Gazebo's plugin, or a driver, writes camera_link into its images."""
    mounting = {'base_link': OPTICAL, 'cam': LOOKING, 'cam_optical': np.eye(4)}[child]
    bag, told = Bag(tmp_path / 'bag').poses('/truth', ODOMETRY, camera_poses() @ np.linalg.inv(mounting), child=child), list[str]()
    truth = load_ground_truth(bag.static(('base_link', 'cam', OPTICAL @ np.linalg.inv(LOOKING)),
                                         ('cam', 'cam_optical', LOOKING)).open(), on_note=told.append)
    assert truth is not None
    assert np.abs(truth.poses - camera_poses()).max() < 1e-12
    assert [note.partition(' has x forward by /tf_static: they are taken as those of cam_optical')[0] for note in told] == [
        'the frame_id of the images, cam,']


@pytest.mark.parametrize('below', [[('cam', 'cam_optical', np.eye(4))], [('cam', 'cam_imu', LOOKING)],
                                   [('cam', f'{side}_optical', LOOKING) for side in ('left', 'right')]])
def test_frame_id_counts_where_no_single_optical_frame_is_below(tmp_path: Path, below: list[tuple[str, str, Float64]]) -> None:
    bag, told = Bag(tmp_path / 'bag').poses('/truth', ODOMETRY, camera_poses(), child='cam'), list[str]()
    truth = load_ground_truth(bag.static(*below).open(), on_note=told.append)
    assert truth is not None
    assert np.abs(truth.poses - camera_poses()).max() < 1e-12
    assert not told


def test_a_body_that_nothing_joins_to_the_camera(tmp_path: Path) -> None:
    bodies = camera_poses() @ np.linalg.inv(OPTICAL)
    recording = Bag(tmp_path / 'bag').poses('/odom', ODOMETRY, bodies).static(('base_link', 'lidar', OPTICAL)).open()
    told: list[str] = []
    assert load_ground_truth(recording, on_note=told.append) is None  # rather no truth than a wrong one
    assert len(told) == 1
    assert "of base_link, and no /tf_static joins that to 'cam'" in told[0]
    with pytest.raises(BagError, match='--camera-in-body'):
        load_ground_truth(recording, topic='/odom')
    truth = load_ground_truth(recording, camera_in_body=OPTICAL)
    assert truth is not None
    assert np.abs(truth.poses - camera_poses()).max() < 1e-12


def test_a_body_that_is_the_camera(tmp_path: Path) -> None:
    truth = load_ground_truth(Bag(tmp_path / 'bag').poses('/odom', ODOMETRY, camera_poses(), child='cam').open())
    assert truth is not None
    assert np.abs(truth.poses - camera_poses()).max() < 1e-12


def test_tf_with_several_frames(tmp_path: Path) -> None:
    still = np.tile(OPTICAL, (COUNT, 1, 1))
    bag = Bag(tmp_path / 'one').poses('/tf', TF, camera_poses(), child='cam').poses('/tf', TF, still, 'cam', 'imu')
    truth = load_ground_truth(bag.open())
    assert truth is not None  # the imu does not move in the camera
    assert np.abs(truth.poses - camera_poses()).max() < 1e-12
    bag = Bag(tmp_path / 'two').poses('/tf', TF, camera_poses(), 'odom', 'cam')
    bag.poses('/tf', TF, camera_poses()[::-1], 'map', 'odom')
    recording, told = bag.open(), list[str]()
    assert load_ground_truth(recording, on_note=told.append) is None
    assert '2 frames that move, name one (--truth-child-frame). It holds: cam in odom (8 poses); odom in map (8 poses)' in told[0]
    truth = load_ground_truth(recording, topic='/tf', child_frame='cam')
    assert truth is not None
    assert np.abs(truth.poses - camera_poses()).max() < 1e-12
    with pytest.raises(BagError, match='0 sequences of poses of gripper'):
        load_ground_truth(recording, topic='/tf', child_frame='gripper')


def test_the_choice_of_a_topic(tmp_path: Path) -> None:
    bag = Bag(tmp_path / 'two').poses('/a', POSE, camera_poses()).poses('/b', POSE, camera_poses()[::-1])
    bag.poses('/initialpose', COVARIANCE, camera_poses(1))
    recording, told = bag.open(), list[str]()
    assert load_ground_truth(recording, on_note=told.append) is None
    assert '2 topics of poses, none is taken' in told[0]
    assert f'/a ({POSE}, 8 messages); /b ({POSE}, 8 messages)' in told[0]
    truth = load_ground_truth(recording, topic='/b')
    assert truth is not None
    assert np.abs(truth.poses - camera_poses()[::-1]).max() < 1e-12
    for topic in ('/image', '/c'):
        with pytest.raises(BagError, match=rf'no poses on {topic}(, but sensor_msgs.msg.Image: .*)?\. Topics of poses: /a \('):
            load_ground_truth(recording, topic=topic)
    bag = Bag(tmp_path / 'one').poses('/a', POSE, camera_poses()).poses('/initialpose', POSE, camera_poses(1))
    truth = load_ground_truth(bag.open())
    assert truth is not None  # a single pose is no truth
    truth = load_ground_truth(Bag(tmp_path / 'own').poses('/a', POSE, camera_poses()[::-1]).poses('/ground_truth/pose', POSE,
                                                                                           camera_poses()).open())
    assert truth is not None
    assert np.abs(truth.poses - camera_poses()).max() < 1e-12
    assert load_ground_truth(Bag(tmp_path / 'none').open(), on_note=told.append) is None
    assert len(told) == 1


def test_poses_that_are_none(tmp_path: Path) -> None:
    """A filter that has not started yet sends NaN, or no orientation at all; stamps repeat and step back."""
    bag = Bag(tmp_path / 'bag').poses('/p', POSE, camera_poses())
    messages = bag.topics['/p'][1]
    messages[0][1].pose.position.x = np.nan
    messages[1][1].pose.orientation.x = messages[1][1].pose.orientation.y = messages[1][1].pose.orientation.z = 0.0
    messages[1][1].pose.orientation.w = 0.0
    messages[4][1].header.stamp.sec, messages[5][1].header.stamp.sec = 6, 5
    messages[7][1].header.stamp.sec = 7
    told: list[str] = []
    truth = load_ground_truth(bag.open(), on_note=told.append)
    assert truth is not None
    assert truth.stamps_ns.tolist() == [SECOND * k for k in (3, 4, 5, 6, 7)]
    assert np.abs(truth.poses - camera_poses()[[2, 3, 5, 4, 6]]).max() < 1e-12
    assert told[0].startswith('2 poses on /p are left out: message 1 holds the pose [nan')
    assert told[1].startswith('1 poses of /p')


def test_topic_of_positions_is_taken_only_where_it_is_named(tmp_path: Path) -> None:
    """As /odometry/gps of robot_localization, whose rotations are those of no turn. Those of another name may be of a slide."""
    poses, told = camera_poses(12), list[str]()
    poses[:, :3, :3] = np.eye(3)
    recording = Bag(tmp_path / 'bag').poses('/odometry/gps', ODOMETRY, poses, child='cam').open()
    assert load_ground_truth(recording, on_note=told.append) is None
    assert 'all rotations of cam in map (12 poses) are equal' in told[-1]
    assert '--truth-topic' in told[-1]
    slide = Bag(tmp_path / 'slide').poses('/slide', ODOMETRY, poses, child='cam').open()
    for bag, topic in ((recording, '/odometry/gps'), (slide, None)):
        told.clear()
        assert load_ground_truth(bag, topic=topic, on_note=told.append) is not None
        assert any('by GPS or a prism: figures need both' in line for line in told)


@pytest.mark.parametrize('parent', ['cam', 'cam_optical_frame'])
def test_poses_in_the_frame_of_the_images_are_taken_only_where_named(tmp_path: Path, parent: str) -> None:
    """Those of a tag that the camera sees are: camera from tag, and no pose of the camera."""
    recording, told = Bag(tmp_path / 'bag').poses('/tag', POSE, camera_poses(), parent).open(), list[str]()
    assert load_ground_truth(recording, on_note=told.append) is None
    assert [f'in {parent} are in the frame of the images' in line and '(--truth-topic)' in line for line in told] == [True]
    assert load_ground_truth(recording, topic='/tag', on_note=told.append) is not None
    assert 'taken as the poses of the camera in the world' in told[-1]


def test_poses_without_stamps_have_the_times_of_the_recorder(tmp_path: Path) -> None:
    poses, told = Bag(tmp_path / 'bag').poses('/p', POSE, camera_poses()), list[str]()
    for _, message in poses.topics['/p'][1]:
        message.header.stamp.sec = 0
    truth = load_ground_truth(poses.open(), on_note=told.append)
    assert truth is not None
    assert truth.stamps_ns.tolist() == [SECOND * (k + 1) for k in range(COUNT)]
    assert told == [f'header.stamp of {COUNT} poses in map on /p is 0: the times at which they were recorded are taken']


def test_topic_without_a_whole_pose_is_named_as_such(tmp_path: Path) -> None:
    bag, told = Bag(tmp_path / 'bag').poses('/p', POSE, camera_poses()), list[str]()
    for _, message in bag.topics['/p'][1]:
        message.pose.position.x = np.nan
    assert load_ground_truth(bag.open(), on_note=told.append) is None
    assert told[-1] == 'no ground truth is taken from /p: /p holds no pose that can be read'


def tum(poses: Float64) -> str:
    rows = np.column_stack([poses[:, :3, 3], quaternions_from_rotations(poses[:, :3, :3])])
    return ''.join(f'{k + 1}.0 ' + ' '.join(f'{value:.12f}' for value in row) + '\n' for k, row in enumerate(rows))


def test_files(tmp_path: Path) -> None:
    recording = Bag(tmp_path / 'bag').open()
    q = quaternions_from_rotations(camera_poses()[:, :3, :3])
    rows = [(SECOND * (k + 1), *each[:3, 3], q[k, 3], *q[k, :3], 0.1) for k, each in enumerate(camera_poses())]
    texts = {'tum': tum(camera_poses()),
             'kitti': ''.join(' '.join(f'{value:.12e}' for value in each[:3].reshape(-1)) + '\n' for each in camera_poses()),
             'kitti of 4x4': ''.join(' '.join(f'{value:.12e}' for value in each.reshape(-1)) + '\n' for each in camera_poses()),
             'euroc': '#t, p, q\n' + ''.join(','.join(map(str, row)) + '\n' for row in rows)}
    for name, text in texts.items():
        path = tmp_path / f'{name}.txt'
        path.write_text(text)
        for kind in (None, name.split()[0]):
            truth = load_ground_truth(recording, file=path, kind=kind)
            assert truth is not None
            assert truth.stamps_ns.tolist() == [SECOND * (k + 1) for k in range(COUNT)]  # KITTI's are the recording's
            assert np.abs(truth.poses - camera_poses()).max() < 1e-9
        moved = load_ground_truth(recording, file=path, camera_in_body=OPTICAL)
        assert moved is not None
        assert np.abs(moved.poses - camera_poses() @ OPTICAL).max() < 1e-9
    (tmp_path / 'times.txt').write_text(''.join(f'{k * 0.5}\n' for k in range(COUNT)))
    beside = load_ground_truth(recording, file=tmp_path / 'kitti.txt')
    assert beside is not None
    assert beside.stamps_ns.tolist() == [k * SECOND // 2 for k in range(COUNT)]


@pytest.mark.parametrize('parent_moves', [False, True])
def test_of_a_robot_with_wheels_the_frame_that_carries_the_camera_is_taken(tmp_path: Path, parent_moves: bool) -> None:
    bag, notes = Bag(tmp_path / 'bag'), list[str]()
    bag.poses('/tf', TF, camera_poses(), 'odom', 'base_link').poses('/tf', TF, camera_poses(), 'base_link', 'wheel')
    bag.static(('base_link', 'cam', OPTICAL))
    if parent_moves:  # a localisation corrects odom, and poses in odom drift
        bag.poses('/tf', TF, camera_poses(), 'map', 'odom')
    recording = bag.open()
    truth = load_ground_truth(recording, on_note=notes.append)
    if parent_moves:
        assert truth is None
        assert 'has 3 frames that move, name one (--truth-child-frame)' in notes[0]
        named = load_ground_truth(recording, child_frame='base_link', on_note=notes.append)
        assert named is not None
        assert notes[1].startswith('odom in map (8 poses) moves itself: base_link in odom (8 poses) are not poses in map. ')
        return
    assert truth is not None
    assert np.abs(truth.poses - camera_poses() @ OPTICAL).max() < 1e-9
    assert 'base_link in odom (8 poses) carries the camera by /tf_static' in notes[0]


@pytest.mark.parametrize('kind', [ODOMETRY, TF])
def test_mounting_that_is_repeated_on_tf_places_the_camera(tmp_path: Path, kind: str) -> None:
    """As in bags of ROS 1, whose static_transform_publisher repeats; with a wheel, which carries no camera."""
    bag = Bag(tmp_path / 'bag')
    bag.poses('/odom' if kind == ODOMETRY else '/tf', kind, camera_poses(), 'odom', 'base_link')
    bag.poses('/tf', TF, camera_poses(), 'base_link', 'wheel')
    bag.add('/tf', TF, *((stamp, pose_message(TF, stamp, 'base_link', 'cam', OPTICAL)) for stamp in range(1, SECOND, SECOND // 9)))
    truth = load_ground_truth(bag.open(), topic='/odom' if kind == ODOMETRY else None)
    assert truth is not None
    assert np.abs(truth.poses - camera_poses() @ OPTICAL).max() < 1e-9
    assert 'moved into cam by the transforms that stay' in truth.source


def test_transform_that_moves_or_comes_once_is_no_mounting(tmp_path: Path) -> None:
    for name, poses in (('moves', camera_poses()), ('once', camera_poses(1))):
        bag = Bag(tmp_path / name).poses('/odom', ODOMETRY, camera_poses(), 'odom', 'base_link')
        with pytest.raises(BagError, match='no /tf_static joins that to'):
            load_ground_truth(bag.poses('/tf', TF, poses, 'base_link', 'cam').open(), topic='/odom')


@pytest.mark.parametrize('topics', [('/tf_static', '/tf_static'), ('/tf_static', '/other/tf_static')])
def test_two_mountings_that_differ_in_one_namespace_are_refused(tmp_path: Path, topics: tuple[str, str]) -> None:
    bag = Bag(tmp_path / 'bag').poses('/odom', ODOMETRY, camera_poses(), 'odom', 'base_link')
    for topic, mounting in zip(topics, (OPTICAL, np.eye(4)), strict=True):
        bag.add(topic, TF, (1, pose_message(TF, 1, 'base_link', 'cam', mounting)))
    recording = bag.open()
    if topics[1] == '/other/tf_static':  # of another robot, whose frames are called alike
        truth = load_ground_truth(recording, topic='/odom')
        assert truth is not None
        assert np.abs(truth.poses - camera_poses() @ OPTICAL).max() < 1e-9
        return
    with pytest.raises(BagError, match=r'several poses of cam in base_link, as .*: say where the camera is .*--camera-in-body'):
        load_ground_truth(recording, topic='/odom')
    repeated = Bag(tmp_path / 'repeated').poses('/odom', ODOMETRY, camera_poses(), 'odom', 'base_link')
    mounting = 'base_link', 'cam', OPTICAL
    assert load_ground_truth(repeated.static(mounting).static(mounting).open()) is not None


def test_poses_that_are_not_read_are_named(tmp_path: Path) -> None:
    bag, notes = Bag(tmp_path / 'bag'), list[str]()
    bag.add('/slam/path', 'nav_msgs/msg/Path', (SECOND, new('nav_msgs/msg/Path', header(SECOND, 'map'), [])))
    assert load_ground_truth(bag.open(), on_note=notes.append) is None
    assert re.search(r'/slam/path .*not read as ground truth; poses are read from .*PoseStamped.*a Path that is named', notes[0])


def test_path_that_is_named_has_the_poses_of_its_last_message(tmp_path: Path) -> None:
    bag, poses = Bag(tmp_path / 'bag'), camera_poses()
    stamped = [pose_message(POSE, SECOND * (k + 1), 'map', '', each) for k, each in enumerate(poses)]
    bag.add('/gt/path', 'nav_msgs/msg/Path', *((SECOND * (k + 1), new('nav_msgs/msg/Path', header(SECOND * (k + 1), 'map'),
                                                                     stamped[:k + 1])) for k in range(COUNT)))
    notes = list[str]()
    truth = load_ground_truth(bag.open(), topic='/gt/path', on_note=notes.append)
    assert truth is not None
    assert truth.stamps_ns.tolist() == [SECOND * (k + 1) for k in range(COUNT)]
    assert np.abs(truth.poses - poses).max() < 1e-9
    assert notes == []
    own = pose_message(POSE, SECOND, 'odom', '', np.eye(4))
    own.pose.position.x = 1 / 3 // 2.0**-32 * 2.0**-32
    bag.path = tmp_path / 'own'
    bag.add('/path', 'nav_msgs/msg/Path', (SECOND, new('nav_msgs/msg/Path', header(SECOND, 'odom'), [own])))
    assert load_ground_truth(bag.open(), topic='/path', on_note=notes.append) is not None
    assert notes[0].startswith('/path is the odometry of this package, computed from images of this recording')


@pytest.mark.parametrize('heading', [
    '#timestamp,tx,ty,tz,qx,qy,qz,qw', 'timestamp,p_x,p_y,p_z,q_x,q_y,q_z,q_w', 'timestamp [ns],qw,qx,qy,qz,x,y,z',
    '#timestamp [ns], p_RS_R_x [m], p_RS_R_y [m], p_RS_R_z [m], q_RS_w [], q_RS_x [], q_RS_y [], q_RS_z [], v_RS_R_x [m s^-1]',
    '%time,field.header.seq,field.header.stamp,field.pose.position.x,field.pose.position.y,field.pose.position.z,'
    'field.pose.orientation.x,field.pose.orientation.y,field.pose.orientation.z,field.pose.orientation.w,field.twist.linear.x',
    ';t;x;y;z;qx;qy;qz;qw', 'timestamp tx ty tz qx qy qz qw', '# t(s) x y z qw qx qy qz vx',
    '#timestamp ns, tx, ty, tz, qx, qy, qz, qw',
    'timestamp_s,tx,ty,tz,qx,qy,qz,qw', 'utc_time_ns,tx,ty,tz,qx,qy,qz,qw', 'seq,timestamp_nanoseconds,x,y,z,qx,qy,qz,qw',
    '# timestamp_ns, tran_x, tran_y, tran_z, quat_x, quat_y, quat_z, quat_w, scale_v',
    'TimeStamp;POS_X;POS_Y;POS_Z;Q_W;Q_X;Q_Y;Q_Z',
    '__time,/odom/pose/pose/orientation/w,/odom/pose/pose/orientation/x,/odom/pose/pose/orientation/y,/odom/pose/pose/orientation/z,'
    '/odom/pose/pose/position/x,/odom/pose/pose/position/y,/odom/pose/pose/position/z'])
@pytest.mark.parametrize('unit', [9, 0])
def test_columns_are_read_by_their_names(tmp_path: Path, heading: str, unit: int) -> None:
    separator = next((each for each in ',;' if each in heading), ' ')
    names = re.sub(r'\[.*?\]|\(.*?\)', '', heading).lstrip('# ').replace('%', '').split(separator if separator != ' ' else None)
    pose = dict(zip(('x', 'y', 'z', 'qx', 'qy', 'qz', 'qw'), (1.0, 2, 3, 0, 0, 0.6, 0.8), strict=True))

    def value(name: str) -> str:
        name = name.lower()
        last = name.strip()[-1:]
        if re.search('seq|^$|linear|_v|v_|^vx', name.strip()):
            return '7'
        if last not in 'wxyz':
            return '1403636579.763555584' if unit and not re.search('ns|nano|field', heading) else '1403636579763555584'
        return str(pose[('q' if re.search('q|orient', name) else '') + last])

    path = tmp_path / 'poses.txt'
    path.write_text(f'{heading}\n{separator.join(map(value, names))}\n')
    truth = read_quaternions(path, kind_of(path))
    assert truth.stamps_ns.tolist() == [1403636579763555584]
    np.testing.assert_allclose(truth.poses[0], [[0.28, -0.96, 0, 1], [0.96, 0.28, 0, 2], [0, 0, 1, 3], [0, 0, 0, 1]], atol=1e-12)


@pytest.mark.parametrize(('heading', 'time'), [
    ('Time (ms),Position X,Position Y,Position Z,Rotation X,Rotation Y,Rotation Z,Rotation W', '1250.5'),
    ('frame,timestamp_ms,tx,ty,tz,rx,ry,rz,rw', '1250.5'), ('#timestamp [us],x,y,z,qx,qy,qz,qw', '1250500'),
    ('time_usec,x,y,z,qx,qy,qz,qw', '1250500'), ('t[ms] x y z qx qy qz qw', '1250.5'),
    ('Timestamp(ns),Tx,Ty,Tz,Ox,Oy,Oz,Ow', '1250500000'), ('seq,time_ns,x,y,z,qx,qy,qz,qw', '1250500000'),
    ('Time (Seconds),Pos X,Pos Y,Pos Z,Rot X,Rot Y,Rot Z,Rot W', '1.2505')])
def test_unit_of_time_that_the_column_names_counts(tmp_path: Path, heading: str, time: str) -> None:
    path, separator = tmp_path / 'poses.csv', ',' if ',' in heading else ' '
    before = ['7'] * heading.startswith(('frame', 'seq'))
    path.write_text(f'{heading}\n{separator.join([*before, time, "1", "2", "3", "0", "0", "0.6", "0.8"])}\n')
    truth = read_quaternions(path, kind_of(path))
    assert truth.stamps_ns.tolist() == [1_250_500_000]
    np.testing.assert_allclose(truth.poses[0, :3, (0, 3)], [[0.28, 0.96, 0], [1, 2, 3]], atol=1e-12)


@pytest.mark.parametrize('kind', ['geometry_msgs/msg/PoseArray', 'mocap_msgs/msg/RigidBodies'])
def test_a_named_topic_of_another_type_is_refused_with_the_types(tmp_path: Path, kind: str) -> None:
    bag = Bag(tmp_path / 'bag')
    bag.add('/gt', kind, (SECOND, bytes(20)))
    with pytest.raises(BagError, match=f'has no poses on /gt, but {kind}: write its poses into a file .--truth., or name a topic '
                                       'of PoseStamped, Odometry, .*TFMessage, Path. Topics of poses: none'):
        load_ground_truth(bag.open(), topic='/gt')


@pytest.mark.parametrize('names', ['timestamp tx ty tz qw qx qy qz', '# by a tracker\n# t_ns, x, y, z, qw, qx, qy, qz',
                                   'seq;Time [ns];Pos X [mm];Pos Y [mm];Pos Z [mm];Rot W;Rot X;Rot Y;Rot Z',
                                   '# t|x|y|z|qw|qx|qy|qz', 'stamp x_cm y_cm z_cm qw qx qy qz',
                                   'made by,a,tool\nt(ns) x(mm) y(mm) z(mm) qw qx qy qz'])
@pytest.mark.parametrize('separator', [' ', ',', ';', '\t'])
def test_names_of_columns_count_whatever_stands_between_the_values(tmp_path: Path, names: str, separator: str) -> None:
    per_metre = 1000 if 'mm' in names else 100 if 'cm' in names else 1
    position = [str(value * per_metre) for value in (1, 2, 3)]
    path = tmp_path / 'poses.csv'
    values = [*['7'] * names.startswith('seq'), '1403636579763555584', *position, '0.8', '0', '0', '0.6']
    path.write_text(f'{names}\n{separator.join(values)}\n')
    truth = read_quaternions(path, kind_of(path))
    assert truth.stamps_ns.tolist() == [1403636579763555584]
    np.testing.assert_allclose(truth.poses[0, :3, (0, 3)], [[0.28, 0.96, 0], [1, 2, 3]], atol=1e-12)
    assert 'qw is taken' not in truth.source


def test_quaternions_of_4seasons_have_qw_last(tmp_path: Path) -> None:
    path = tmp_path / 'GNSSPoses.txt'
    path.write_text(''.join(f'158506{k}000000000,1,2,{k},0,0,0.6,0.8,1,{k}\n' for k in range(1000, 1003)))
    truth = read_quaternions(path, kind_of(path))
    assert truth.stamps_ns.tolist() == [1585061000000000000, 1585061001000000000, 1585061002000000000]
    np.testing.assert_allclose(truth.poses[0, :3, (0, 3)], [[0.28, 0.96, 0], [1, 2, 1000]], atol=1e-12)
    assert '4Seasons' in truth.source


@pytest.mark.parametrize('frame', ['world', 'odometry'])
def test_trajectory_of_project_aria_is_read(tmp_path: Path, frame: str) -> None:
    path = tmp_path / 'trajectory.csv'
    names = [*(f't{axis}_{frame}_device' for axis in 'xyz'), *(f'q{axis}_{frame}_device' for axis in 'xyzw')]
    others = 'device_linear_velocity_x_device,gravity_x_world,quality_score'
    path.write_text(f'graph_uid,tracking_timestamp_us,utc_timestamp_ns,{",".join(names)},{others}\n'
                    'c0ffee-1,87551170,-1,1,2,3,0,0,0.6,0.8,0.1,0,1.0\n')
    truth = read_quaternions(path, kind_of(path))
    assert truth.stamps_ns.tolist() == [87551170000]
    np.testing.assert_allclose(truth.poses[0, :3, (0, 3)], [[0.28, 0.96, 0], [1, 2, 3]], atol=1e-12)


def test_trajectory_of_kapture_is_of_cameras_from_the_world(tmp_path: Path) -> None:
    path = tmp_path / 'trajectories.txt'
    line = '{}, {}, 0.8, 0, 0, 0.6, 1, 2, 3\n'
    heading = '# kapture format: 1.1\n# timestamp, device_id, qw, qx, qy, qz, tx, ty, tz\n'
    path.write_text(heading + line.format(7, 'cam') + line.format(8, 'cam'))
    truth = read_quaternions(path, kind_of(path))
    np.testing.assert_allclose(truth.poses @ [[0.28, -0.96, 0, 1], [0.96, 0.28, 0, 2], [0, 0, 1, 3], [0, 0, 0, 1]],
                               [np.eye(4)] * 2, atol=1e-12)
    assert 'camera from world' in truth.source
    path.write_text(heading + line.format(7, 'cam') + line.format(7, 'other'))
    with pytest.raises(BagError, match='line 4: poses of more frames than cam: '):
        read_quaternions(path, kind_of(path))


@pytest.mark.parametrize('heading', ['', '#timestamp [ns],p_x [m],p_y [m],p_z [m],q_w [],q_x [],q_y [],q_z []\n'])
def test_nanoseconds_may_have_zeros_behind_a_point(tmp_path: Path, heading: str) -> None:
    path = tmp_path / 'MH01_GT.txt'
    path.write_text(f'{heading}1403636580863555584.0000000000,1,2,3,0.8,0,0,0.6\n')
    assert read_quaternions(path, kind_of(path)).stamps_ns.tolist() == [1403636580863555584]
    for seconds in ('1403636580.0', '1403636580863555584.5'):
        path.write_text(f'{heading}{seconds},1,2,3,0.8,0,0,0.6\n')
        with pytest.raises(BagError, match=f"'{seconds}' is not a number of nanoseconds"):
            read_quaternions(path, kind_of(path))


def test_another_bag_with_poses_is_refused_with_the_way_to_read_them(tmp_path: Path) -> None:
    recording = Bag(tmp_path / 'bag').poses('/pose', POSE, camera_poses()).open()
    for path in (recording.path, next(recording.path.glob('*.db3'))):
        with pytest.raises(BagError, match=r'is a bag: its poses are read where it has the images too .*echo --csv TOPIC'):
            load_ground_truth(recording, file=path)


def test_positions_of_a_prism_are_refused_as_such(tmp_path: Path) -> None:
    path = tmp_path / 'hall.txt'
    path.write_text('1628410457.03 -10.3 -7.1 -4.9 0 0 0 0\n1628410457.18 -10.3 -7.1 -4.9 0 0 0 0\n')
    with pytest.raises(BagError, match='the quaternions of all 2 poses are 0: it has only positions, as of a prism'):
        read_quaternions(path, kind_of(path))


def test_source_tells_of_quaternions_that_are_all_equal(tmp_path: Path) -> None:
    path, text = tmp_path / 'leica.txt', ''.join(f'{k} {k / 9} 2 3 0 0 0 1\n' for k in range(1, 20))
    path.write_text(text)
    assert read_quaternions(path, kind_of(path)).source.endswith('all quaternions are equal, as in a file of only positions)')
    path.write_text(f'{text}20 1 2 3 0 0 0.6 0.8\n')
    assert 'are equal' not in read_quaternions(path, kind_of(path)).source


@pytest.mark.parametrize('names', [
    'p_CW_{},q_CW_{}', 't_cw_{},q_cw_{}', 'w2c_t{},w2c_q{}', 'world_to_camera.{},world_to_camera.q{}', 'T_cw: t{},q{}',
    'cam_from_world.t{},cam_from_world.q{}'])
def test_columns_that_name_camera_from_world_are_inverted(tmp_path: Path, names: str) -> None:
    path = tmp_path / 'poses.csv'
    label, _, names = names.rpartition(': ')
    position, rotation = names.split(',')
    columns = [*(position.format(axis) for axis in 'xyz'), *(rotation.format(axis) for axis in 'xyzw')]
    path.write_text(f'{label and f"{label}: "}timestamp,{",".join(columns)}\n1.5,1,2,3,0,0,0.6,0.8\n')
    truth = read_quaternions(path, kind_of(path))
    np.testing.assert_allclose(np.linalg.inv(truth.poses[0])[:3, (0, 3)], [[0.28, 1], [0.96, 2], [0, 3]], atol=1e-12)
    assert 'camera from world' in truth.source


@pytest.mark.parametrize('names', ['p_WC_{},q_WC_{}', '{},q_c{}', '{},q_bs_{}', 'cam_to_world_t{},cam_to_world_q{}',
                                   'c2w_t{},c2w_q{}'])
def test_columns_of_other_frames_stay_world_from_camera(tmp_path: Path, names: str) -> None:
    """q_cw may be the w of q_c."""
    path, (position, rotation) = tmp_path / 'poses.csv', names.split(',')
    columns = [*(position.format(axis) for axis in 'xyz'), *(rotation.format(axis) for axis in 'xyzw')]
    path.write_text(f'timestamp,{",".join(columns)}\n1.5,1,2,3,0,0,0.6,0.8\n')
    np.testing.assert_allclose(read_quaternions(path, kind_of(path)).poses[0, :3, 0], [0.28, 0.96, 0], atol=1e-12)


@pytest.mark.parametrize(('names', 'values', 'reason'), [
    ('p_wc_x,p_wc_y,p_wc_z,q_cw_x,q_cw_y,q_cw_z,q_cw_w', '1,2,3,0,0,0.6,0.8', 'camera from world in one part'),
    ('p_a_x,p_a_y,p_a_z,p_b_x,p_b_y,p_b_z,qx,qy,qz,qw', '1,2,3,4,5,6,0,0,0.6,0.8',
     'it has the positions a, b and rotations without a word by the words in their names')],
    ids=['of two directions', 'that no word joins'])
def test_positions_and_rotations_that_are_no_pose_are_refused(tmp_path: Path, names: str, values: str, reason: str) -> None:
    path = tmp_path / 'poses.csv'
    path.write_text(f'time,{names}\n1.5,{values}\n')
    with pytest.raises(BagError, match=reason):
        kind_of(path)


@pytest.mark.parametrize('heading', ['# format: ', '# columns: ', 'Fields: '])
def test_a_word_before_the_names_is_no_column(tmp_path: Path, heading: str) -> None:
    """Counted as one, it moved each value to the name before: a file that has one more value was read so."""
    path = tmp_path / 'poses.txt'
    path.write_text(f'{heading}timestamp tx ty tz qw qx qy qz\n1.5 1 2 3 0.8 0 0 0.6 0\n')
    truth = read_quaternions(path, kind_of(path))
    assert truth.stamps_ns.tolist() == [1_500_000_000]
    np.testing.assert_allclose(truth.poses[0, :3, (0, 3)], [[0.28, 0.96, 0], [1, 2, 3]], atol=1e-12)


@pytest.mark.parametrize(('sentence', 'order', 'values'), [
    ('timestamp [s], position (x, y, z) [m], quaternion ({})', 'w, x, y, z', '1.5 1 2 3 0.8 0 0 0.6'),
    ('position, quaternion ({})', 'w, x, y, z', '1 2 3 0.8 0 0 0.6'), ('orientation in {}', 'wxyz', '1.5 1 2 3 0.8 0 0 0.6'),
    ('quaternion: {}', 'x, y, z, w', '1403715529812143104,1,2,3,0,0,0.6,0.8')])
def test_a_sentence_with_another_order_of_quaternions_is_refused(tmp_path: Path, sentence: str, order: str, values: str) -> None:
    path = tmp_path / 'poses.txt'
    path.write_text(f'# {sentence.format(order)}\n{values}\n')
    with pytest.raises(BagError, match='write one name for each column into that line'):
        read_quaternions(path, kind_of(path))
    usual = order.replace('w, x, y, z', 'x, y, z, w') if order[0] == 'w' else 'w, x, y, z'
    path.write_text(f'# {sentence.format(usual.replace("wxyz", "xyzw"))}\n{values}\n')
    assert kind_of(path) == ('kitti' if values.startswith('1 ') else 'euroc' if ',' in values else 'tum')


@pytest.mark.parametrize('unit', ['ft', 'km', 'inch', 'dm'])
def test_lengths_that_are_not_read_are_refused(tmp_path: Path, unit: str) -> None:
    path = tmp_path / 'poses.csv'
    path.write_text(f't,x ({unit}),y ({unit}),z ({unit}),qx,qy,qz,qw\n1.5,1,2,3,0,0,0.6,0.8\n')
    with pytest.raises(BagError, match='x, y, z in metres, or x_mm, x_cm'):
        kind_of(path)


def test_nanoseconds_may_be_written_with_an_exponent(tmp_path: Path) -> None:
    """As NumPy's savetxt does."""
    path = tmp_path / 'poses.csv'
    path.write_text('1.403715529812143104e+18,1,2,3,0.8,0,0,0.6\n')
    assert read_quaternions(path, kind_of(path)).stamps_ns.tolist() == [1403715529812143104]
    for bad in ('1.4e+9', '1e+999'):
        path.write_text(f'{bad},1,2,3,0.8,0,0,0.6\n')
        with pytest.raises(BagError, match='is not a number of nanoseconds'):
            read_quaternions(path, 'euroc')


def test_velocities_of_a_start_at_rest_are_no_line_of_4seasons(tmp_path: Path) -> None:
    path = tmp_path / 'vio.csv'
    path.write_text('1403715529812143104,1,2,3,0.8,0,0,0.6,0,0,0\n1403715529912143104,1,2,3,0.8,0,0,0.6,0.1,0,0\n')
    np.testing.assert_allclose(read_quaternions(path, kind_of(path)).poses[0, 0, :3], [0.28, -0.96, 0], atol=1e-12)


def test_nanoseconds_without_zeros_before_them_are_told_by_their_order(tmp_path: Path) -> None:
    """Scripts print sec, a point and nsec: 8.50000000 is 8.05 s."""
    path, pose = tmp_path / 'poses.txt', ' 1 2 3 0 0 0.6 0.8\n'
    path.write_text(pose.join(['7.950000000', '8.50000000', '8.150000000', '8.250000000', '']))
    truth = read_quaternions(path, kind_of(path))
    assert truth.stamps_ns.tolist() == [7_950_000_000, 8_050_000_000, 8_150_000_000, 8_250_000_000]
    assert 'nanoseconds without zeros' in truth.source
    path.write_text(pose.join(['7.950000000', '8.5', '8.55', '8.650000000', '']))
    assert read_quaternions(path, kind_of(path)).stamps_ns.tolist()[1] == 8_500_000_000


@pytest.mark.parametrize('last', ['0.5', '0.5,-0.25'])
def test_velocities_of_vins_are_no_line_of_4seasons(tmp_path: Path, last: str) -> None:
    path = tmp_path / 'vio.csv'
    path.write_text(f'1403715529812143104,1,2,3,0.8,0,0,0.6,0.1,{last}\n')
    np.testing.assert_allclose(read_quaternions(path, kind_of(path)).poses[0, 0, :3], [0.28, -0.96, 0], atol=1e-12)


@pytest.mark.parametrize('names', [
    'time,x,y,z,rx,ry,rz,qx,qy,qz,qw', 'time,x,y,z,r_x,r_y,r_z,q_x,q_y,q_z,q_w', 'time,loc_x,loc_y,loc_z,o_x,o_y,o_z,qx,qy,qz,qw',
    'time,gps.pos.x,gps.pos.y,gps.pos.z,gt.pos.x,gt.pos.y,gt.pos.z,gt.quat.x,gt.quat.y,gt.quat.z,gt.quat.w'])
def test_parts_of_a_pose_are_of_one_topic_and_one_name(tmp_path: Path, names: str) -> None:
    """Rotation vectors or angles stand next to quaternions, and positions of one body next to poses of another."""
    path, has_others = tmp_path / 'poses.csv', 'gps' in names
    values = ['9', '9', '9', '1', '2', '3'] if has_others else ['1', '2', '3', '0.1', '0.2', '0.3']
    path.write_text(f'{names}\n1.5,{",".join(values)},0,0,0.6,0.8\n')
    truth = read_quaternions(path, kind_of(path))
    np.testing.assert_allclose(truth.poses[0, :3, (0, 3)], [[0.28, 0.96, 0], [1, 2, 3]], atol=1e-12)


@pytest.mark.parametrize(('names', 'values'), [
    ('p_target_x,p_target_y,p_target_z,p_x,p_y,p_z,q_x,q_y,q_z,q_w', '9,9,9,1,2,3,0,0,0.6,0.8'),
    ('pos_gps_x,pos_gps_y,pos_gps_z,pos_x,pos_y,pos_z,quat_x,quat_y,quat_z,quat_w', '9,9,9,1,2,3,0,0,0.6,0.8'),
    ('x,y,z,q_des_x,q_des_y,q_des_z,q_des_w,q_x,q_y,q_z,q_w', '1,2,3,0,0,0,1,0,0,0.6,0.8')])
def test_of_several_positions_or_rotations_those_of_one_word_are_a_pose(tmp_path: Path, names: str, values: str) -> None:
    path = tmp_path / 'poses.csv'
    path.write_text(f'time,{names}\n1.5,{values}\n')
    truth = read_quaternions(path, kind_of(path))
    np.testing.assert_allclose(truth.poses[0, :3, (0, 3)], [[0.28, 0.96, 0], [1, 2, 3]], atol=1e-12)


@pytest.mark.parametrize('times', ['1.60000e+09', '{0:.0f}', '{0:.9f}\\n{0:.9f}'])
def test_poses_that_share_their_times_and_differ_are_refused(tmp_path: Path, times: str) -> None:
    """Times that were rounded, and two bodies in turns."""
    path, bag = tmp_path / 'poses.txt', Bag(tmp_path / 'bag')
    stamps = [stamp for k in range(20) for stamp in times.format(1 + k / 10).split('\\n')]
    path.write_text(''.join(f'{stamp} {k * 0.1} 0 0 0 0 0 1\n' for k, stamp in enumerate(stamps)))
    recording = bag.open()
    with pytest.raises(BagError, match=r'poses have the time of another one, and differ .* rounded .* several bodies'):
        load_ground_truth(recording, file=path)
    path.write_text(''.join(f'{stamp} 0 0 0 0 0 0 1\n' for stamp in stamps))
    assert load_ground_truth(recording, file=path) is not None


def test_two_bodies_on_one_topic_are_no_ground_truth(tmp_path: Path) -> None:
    told, poses = list[str](), camera_poses()
    bag = Bag(tmp_path / 'bag').poses('/vicon', POSE, poses).poses('/vicon', POSE, poses[::-1])
    assert load_ground_truth(bag.open(), on_note=told.append) is None
    assert 'no ground truth is taken from /vicon' in told[-1]


@pytest.mark.parametrize('scale', [1, 1000])
def test_positions_that_are_faster_than_sound_are_told(tmp_path: Path, scale: int) -> None:
    path, notes = tmp_path / 'poses.txt', list[str]()
    path.write_text(''.join(f'{k / 10} {k * scale * 0.1} 0 0 0 0 0 1\n' for k in range(20)))
    bag = Bag(tmp_path / 'bag')
    load_ground_truth(bag.open(), file=path, on_note=notes.append)
    assert [('faster than sound: they may be in millimetres' in note) for note in notes] == [True] * (scale == 1000)


@pytest.mark.parametrize('names', [
    'gt_x,gt_y,gt_z,gt_qx,gt_qy,gt_qz,gt_qw', 'ground_truth_tx,ground_truth_ty,ground_truth_tz,' + ','.join(
        f'ground_truth_q{axis}' for axis in 'xyzw'), 'gt.x,gt.y,gt.z,gt.qx,gt.qy,gt.qz,gt.qw',
    'cam_pos_x,cam_pos_y,cam_pos_z,cam_ori_x,cam_ori_y,cam_ori_z,cam_ori_w'])
def test_one_word_may_stand_before_all_columns_of_a_pose(tmp_path: Path, names: str) -> None:
    path = tmp_path / 'poses.csv'
    path.write_text(f'timestamp,vel_x,vel_y,vel_z,{names}\n1.5,9,9,9,1,2,3,0,0,0.6,0.8\n')
    truth = read_quaternions(path, kind_of(path))
    np.testing.assert_allclose(truth.poses[0, :3, (0, 3)], [[0.28, 0.96, 0], [1, 2, 3]], atol=1e-12)
    other = names.replace('gt', 'est').replace('ground', 'estimated').replace('cam', 'lidar')
    path.write_text(f'timestamp,{other},{names}\n1.5,9,9,9,0,0,0,1,1,2,3,0,0,0.6,0.8\n')
    with pytest.raises(BagError, match=r'has the poses of \w+, \w+: keep the columns of one'):
        kind_of(path)


def test_poses_of_several_topics_in_one_line_are_refused(tmp_path: Path) -> None:
    path, axes = tmp_path / 'poses.csv', ('position/x', 'position/y', 'position/z', *(f'orientation/{axis}' for axis in 'xyzw'))
    names = [f'/{topic}/{axis}' for topic in ('odom/pose/pose', 'gt/pose') for axis in axes]
    path.write_text(f'__time,{",".join(names)}\n1.5,{",".join(["1", "2", "3", "0", "0", "0", "1"] * 2)}\n')
    with pytest.raises(BagError, match=r'has the poses of \.gt\.pose, \.odom\.pose\.pose: keep the columns of one'):
        read_quaternions(path, 'euroc')


@pytest.mark.parametrize('name', ['camera_id', 'subject', 'object_id'])
def test_poses_of_several_cameras_in_one_file_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / 'poses.csv'
    path.write_text(f'timestamp,{name},tx,ty,tz,qx,qy,qz,qw\n1.5,left,1,2,3,0,0,0,1\n1.5,right,9,2,3,0,0,0,1\n')
    with pytest.raises(BagError, match='line 3: poses of more frames than left: '):
        read_quaternions(path, kind_of(path))


def test_source_tells_the_order_of_quaternions_that_no_line_names(tmp_path: Path) -> None:
    path = tmp_path / 'poses.csv'
    path.write_text('1403636579763555584,1,2,3,0.8,0,0,0.6\n')
    assert read_quaternions(path, kind_of(path)).source.endswith('no line names the columns, qw is taken as the first of the '
                                                                 'quaternion)')


@pytest.mark.parametrize('separator', [' ', ', '])
@pytest.mark.parametrize('time', ['', '1403636579.763555584', '1403636579763555584'])
@pytest.mark.parametrize('end', ['', '0 0 0 1'])
def test_matrices_may_stand_after_a_time_and_have_commas(tmp_path: Path, separator: str, time: str, end: str) -> None:
    path = tmp_path / 'poses.txt'
    path.write_text(separator.join(f'{time} 0.28 -0.96 0 1 0.96 0.28 0 2 0 0 1 3 {end}'.split()) + '\n')
    assert kind_of(path) == 'kitti'
    truth = read_kitti(path, [5])
    assert truth.stamps_ns.tolist() == [1403636579763555584 if time else 5]
    np.testing.assert_allclose(truth.poses[0, :3, (0, 3)], [[0.28, 0.96, 0], [1, 2, 3]], atol=1e-12)


@pytest.mark.parametrize('kind', ['sensor_msgs/msg/NavSatFix', 'geometry_msgs/msg/PointStamped'])
def test_positions_without_rotations_are_refused_with_what_to_give(tmp_path: Path, kind: str) -> None:
    bag, notes = Bag(tmp_path / 'bag'), list[str]()
    bag.add('/gps/fix', kind, (SECOND, bytes(20)))
    recording = bag.open()
    with pytest.raises(BagError, match=f'but {kind}: it has positions without rotations, .*: give the Odometry of a fusion'):
        load_ground_truth(recording, topic='/gps/fix')
    assert load_ground_truth(recording, on_note=notes.append) is None
    assert '/gps/fix has positions without rotations' in notes[0]


@pytest.mark.parametrize(('start', 'end', 'source'), [
    ('map', '', '(of map, echoed)'), ('map', ',0.5,0,0', '(of map, echoed)'),
    ('odom,base_link', ',0.5,0,0', '(of base_link in odom, echoed)')])
def test_messages_that_are_echoed_as_csv_are_read(tmp_path: Path, start: str, end: str, source: str) -> None:
    """`ros2 topic echo --csv` of PoseStamped, and of Odometry with its covariances; it names no columns."""
    path = tmp_path / 'poses.csv'
    path.write_text(f'1403636579,763555584,{start},1.0,2.0,3.0,0.0,0.0,0.6,0.8{end}\n')
    truth = read_quaternions(path, kind_of(path))
    assert truth.stamps_ns.tolist() == [1403636579763555584]
    np.testing.assert_allclose(truth.poses[0, :3, (0, 3)], [[0.28, 0.96, 0], [1, 2, 3]], atol=1e-12)
    assert source in truth.source


def test_echoed_poses_of_several_frames_are_refused(tmp_path: Path) -> None:
    path = tmp_path / 'tf.csv'
    names = ','.join(f'field.transforms0.{name}' for name in (
        'header.stamp', 'header.frame_id', 'child_frame_id', *(f'transform.translation.{axis}' for axis in 'xyz'),
        *(f'transform.rotation.{axis}' for axis in 'xyzw')))
    lines = ['odom,base,1,2,3,0,0,0,1', 'odom,wheel,1,2,3,0,0,0,1']
    for text in (f'1,0,{lines[0]}\n2,0,{lines[1]}', f'{names}\n10,{lines[0]}\n20,{lines[1]}'):
        path.write_text(f'{text}\n')
        with pytest.raises(BagError, match=r'line [23]: poses of more frames than odom and base: record a bag of the topic'):
            read_quaternions(path, kind_of(path))


@pytest.mark.parametrize('names', ['%time,field.header.seq,field.header.stamp', '%time,field.header.seq,field.header.none'])
def test_times_of_rostopic_are_nanoseconds_also_of_a_simulation(tmp_path: Path, names: str) -> None:
    path = tmp_path / 'poses.csv'
    values = [*(f'position.{axis}' for axis in 'xyz'), *(f'orientation.{axis}' for axis in 'xyzw')]
    pose = ','.join(f'field.pose.{value}' for value in values)
    path.write_text(f'{names},{pose}\n175447000001,5,175447000001,1,2,3,0,0,0,1\n')
    assert read_quaternions(path, kind_of(path)).stamps_ns.tolist() == [175447000001]


def test_recording_of_airsim_has_milliseconds_and_w_first(tmp_path: Path) -> None:
    path = tmp_path / 'airsim_rec.txt'
    path.write_text('VehicleName\tTimeStamp\tPOS_X\tPOS_Y\tPOS_Z\tQ_W\tQ_X\tQ_Y\tQ_Z\tImageFile\n'
                    'Drone\t1532556128437\t1\t2\t3\t0.8\t0\t0\t0.6\timg_0_1532556128437.png\n')
    truth = read_quaternions(path, kind_of(path))
    assert truth.stamps_ns.tolist() == [1532556128437 * 10**6]
    np.testing.assert_allclose(truth.poses[0, :3, (0, 3)], [[0.28, 0.96, 0], [1, 2, 3]], atol=1e-12)


@pytest.mark.parametrize('separator', [' ', ','])
@pytest.mark.parametrize('time', ['', '1403636579.763555584'])
def test_matrices_column_by_column_are_read_as_such(tmp_path: Path, separator: str, time: str) -> None:
    path, poses = tmp_path / 'poses.txt', np.stack([np.eye(4), camera_poses()[1]])
    poses[0, :3, :3] = camera_poses()[2, :3, :3]  # at the origin nothing tells rows from columns
    rows = [separator.join([*time.split(), *map(str, pose.T.ravel())]) for pose in poses]
    path.write_text('\n'.join(rows) + '\n')
    assert kind_of(path) == 'kitti'
    truth = read_kitti(path, [5, 6])
    np.testing.assert_allclose(truth.poses, poses, atol=1e-12)
    assert truth.source.endswith('(KITTI, matrices column by column)')
    path.write_text('\n'.join(separator.join(map(str, pose.ravel())) for pose in poses) + '\n')
    np.testing.assert_allclose(read_kitti(path, [5, 6]).poses, poses, atol=1e-12)


@pytest.mark.parametrize('head', ['', '{0} {0} {1}\n'])
@pytest.mark.parametrize('separator', [' ', ', '])
def test_matrices_over_four_lines_are_read(tmp_path: Path, head: str, separator: str) -> None:
    path, poses = tmp_path / 'trajectory.log', camera_poses()[:3]
    path.write_text(''.join(head.format(number, number + 1) + '\n'.join(separator.join(map(str, row)) for row in pose) + '\n'
                            for number, pose in enumerate(poses)))
    assert kind_of(path) == 'kitti'
    np.testing.assert_allclose(read_kitti(path, [5, 6, 7]).poses, poses, atol=1e-12)
    path.write_text(path.read_text().replace(f'0.0{separator}1.0', f'0.1{separator}1.0'))
    with pytest.raises(BagError, match=r'poses are 8 a line|values where 8 belong'):
        load_ground_truth(Bag(tmp_path / 'bag').open(), file=path)


@pytest.mark.parametrize(('count', 'between'), [(3, '\n'), (4, '')])  # of ICL-NUIM's .gt.sim, and SUN3D
def test_matrices_over_three_lines_are_read(tmp_path: Path, count: int, between: str) -> None:
    path, poses = tmp_path / 'living_room.gt.sim', camera_poses()[:count]
    path.write_text(''.join('\n'.join(' '.join(map(str, row)) for row in pose[:3]) + f'\n{between}' for pose in poses))
    assert kind_of(path) == 'kitti'
    np.testing.assert_allclose(read_kitti(path, range(count)).poses, poses, atol=1e-12)


@pytest.mark.parametrize('separator', [' ', ','])
def test_seven_values_a_line_are_the_poses_of_the_images(tmp_path: Path, separator: str) -> None:
    path, recording = tmp_path / 'poses.txt', Bag(tmp_path / 'bag').open()
    path.write_text('\n'.join(separator.join(line.split()[1:]) for line in tum(camera_poses()).splitlines()) + '\n')
    truth = load_ground_truth(recording, file=path)
    assert truth is not None
    assert truth.stamps_ns.tolist() == [frame.stamp_ns for frame in recording.frames()]
    assert np.abs(truth.poses - camera_poses()).max() < 1e-9
    assert '(a line per image: tx ty tz qx qy qz qw)' in truth.source


@pytest.mark.parametrize('name', ['pose_left.txt', 'pose_lcam_front.txt'])
def test_axes_of_tartanair_are_known_by_the_name_of_its_file(tmp_path: Path, name: str) -> None:
    path, recording = tmp_path / name, Bag(tmp_path / 'bag').open()
    path.write_text('\n'.join(' '.join(line.split()[1:]) for line in tum(NED @ camera_poses() @ NED.T).splitlines()) + '\n')
    truth, as_body = load_ground_truth(recording, file=path), load_ground_truth(recording, file=path, camera_in_body=NED)
    assert truth is not None
    assert as_body is not None
    steps = [np.linalg.solve(poses[:-1], poses[1:]) for poses in (truth.poses, as_body.poses, camera_poses())]
    np.testing.assert_allclose(steps[0], steps[2], atol=1e-9)
    np.testing.assert_allclose(steps[1], steps[2], atol=1e-9)  # where somebody says the axes they are not turned twice
    assert "TartanAir's axes, forward, right and down, by the name of the file" in truth.source


def test_traj_of_arkitscenes_has_rotation_vectors_from_the_world(tmp_path: Path) -> None:
    path, recording = tmp_path / 'lowres_wide.traj', Bag(tmp_path / 'bag').open()
    from_world = enumerate(np.linalg.inv(camera_poses()), 1)
    lines = [(float(k), *cv2.Rodrigues(each[:3, :3])[0].ravel(), *each[:3, 3]) for k, each in from_world]
    np.savetxt(path, lines, '%.12f')
    truth = load_ground_truth(recording, file=path)
    assert truth is not None
    assert truth.stamps_ns.tolist() == [frame.stamp_ns for frame in recording.frames()]
    np.testing.assert_allclose(truth.poses, camera_poses(), atol=1e-9)
    path.write_text('1.0 0 0 0 1 2 3\n2.0 0 0 0 1\n')
    with pytest.raises(BagError, match=r'traj, line 2: 5 values where 7 belong, .* of ARKitScenes: t rx ry rz tx ty tz'):
        load_ground_truth(recording, file=path)


@pytest.mark.parametrize('values', ['1.0 1 2 3 0 0 0.6 0.8', '1.0 1 0 0 1 0 1 0 2 0 0 1 3', '1 2 3 0 0 0.6 0.8'])
def test_traj_of_another_tool_is_read_by_its_values(tmp_path: Path, values: str) -> None:
    path, recording = tmp_path / 'gt.traj', Bag(tmp_path / 'bag').open()
    path.write_text(f'{values}\n' * (1 if values.startswith('1.0') else len(list(recording.frames()))))
    truth = load_ground_truth(recording, file=path)
    assert truth is not None
    assert truth.poses[0, :3, 3].tolist() == [1, 2, 3]


def test_lines_of_spectacular_ai_with_poses_are_its_ground_truth(tmp_path: Path) -> None:
    path, recording = tmp_path / 'data.jsonl', Bag(tmp_path / 'bag').open()
    q, lines = quaternions_from_rotations(camera_poses()[:, :3, :3]), ['{"sensor": {"type": "gyroscope", "values": [0, 0, 0]}}']
    for k, each in enumerate(camera_poses()):
        pose = {'position': dict(zip('xyz', each[:3, 3], strict=True)), 'orientation': dict(zip('xyzw', q[k], strict=True))}
        lines.append(json.dumps({'groundTruth': pose, 'time': k + 1.0}))
    lines.append('{"groundTruth": {"position": {"x": 0, "y": 0, "z": 0}}, "time": 99.0}')  # as of GPS
    path.write_text('\n'.join(lines) + '\n')
    truth = load_ground_truth(recording, file=path)
    assert truth is not None
    assert truth.stamps_ns.tolist() == [frame.stamp_ns for frame in recording.frames()]
    np.testing.assert_allclose(truth.poses, camera_poses(), atol=1e-9)


@pytest.mark.parametrize(('names', 'other'), [
    (('timestamp', 'translation', 'rotation'), 'token'), (('utime', 'pos', 'orientation'), 'rotation_rate')])
def test_poses_of_nuscenes_are_of_the_car_in_microseconds(tmp_path: Path, names: tuple[str, str, str], other: str) -> None:
    """Without its `other` key they may be another tool's, with w last."""
    path, recording = tmp_path / 'ego_pose.json', Bag(tmp_path / 'bag').open()
    q = quaternions_from_rotations(camera_poses()[:, :3, :3])
    rows = [dict(zip(names, (frame.stamp_ns // 1000, each[:3, 3].tolist(), [q[k, 3], *q[k, :3]]), strict=True))
            for k, (frame, each) in enumerate(zip(recording.frames(), camera_poses(), strict=True))]
    path.write_text(json.dumps([{other: [0, 0, 0], **rows[0]}, *rows[::-1]]))
    truth = load_ground_truth(recording, file=path, camera_in_body=OPTICAL)
    assert truth is not None
    assert truth.stamps_ns.tolist() == [frame.stamp_ns for frame in recording.frames()]
    np.testing.assert_allclose(truth.poses, camera_poses() @ OPTICAL, atol=1e-9)
    path.write_text(json.dumps(rows))
    with pytest.raises(BagError, match='holds no pose'):
        load_ground_truth(recording, file=path)
    path.write_text(json.dumps([{other: 0, **rows[0]}, {names[0]: 5}]))
    with pytest.raises(BagError, match=rf"each entry of nuScenes has {', '.join(names)}, and one is broken .'{names[1]}'"):
        load_ground_truth(recording, file=path)


@pytest.mark.parametrize('heading', ['#name,x,y,alt,heading,pitch,roll', '# Label, X, Y, Z, Omega, Phi, Kappa'])
def test_rotations_as_angles_are_refused_with_what_to_export(tmp_path: Path, heading: str) -> None:
    path = tmp_path / 'poses.csv'
    path.write_text(f'{heading}\nIMG_1.JPG,1.0,2.0,3.0,10.1,2.2,179.9\n')
    with pytest.raises(BagError, match=r'has rotations as angles, .*: export quaternions or matrices, RealityCapture and'):
        load_ground_truth(Bag(tmp_path / 'bag').open(), file=path)


@pytest.mark.parametrize('headings', [
    '#timestamp,x,y,z,qx,qy,qz,qw,yaw,pitch,roll\n', '# yaw, pitch, roll of the log, as quaternions\n#t,x,y,z,qx,qy,qz,qw\n'])
def test_quaternions_are_read_where_angles_are_named_as_well(tmp_path: Path, headings: str) -> None:
    path = tmp_path / 'poses.csv'
    path.write_text(f'{headings}1403636579.5,1,2,3,0,0,0.6,0.8{",90,0,0" * headings.startswith("#timestamp")}\n')
    truth = load_ground_truth(Bag(tmp_path / 'bag').open(), file=path)
    assert truth is not None
    np.testing.assert_allclose(truth.poses[0, :3, :3], [[0.28, -0.96, 0], [0.96, 0.28, 0], [0, 0, 1]], atol=1e-12)


def test_seven_values_that_end_in_no_quaternion_are_refused(tmp_path: Path) -> None:
    path = tmp_path / 'poses.txt'  # stamp, rotation vector, position, whose first line looks like a pose
    path.write_text('10.0 0.1 0.2 0.6 0.8 0 0\n10.1 0.1 0.2 0.6 0.9 0.1 0\n')
    with pytest.raises(BagError, match=r'poses.txt, line 2: the quaternion \[0\.6, 0\.9, 0\.1, 0\.0\] has length 1\.09, not 1'):
        load_ground_truth(Bag(tmp_path / 'bag').open(), file=path)


@pytest.mark.parametrize('heading', [
    f'# frame_id, {", ".join(f"translation_{x}" for x in "xyz")}, {", ".join(f"rotation_{x}" for x in "xyzw")}, scale, quality',
    'nsecs,x,y,z,qx,qy,qz,qw,v,w'], ids=['4seasons', 'subt-mrs'])
def test_time_may_be_called_by_its_unit_or_as_a_frame(tmp_path: Path, heading: str) -> None:
    path = tmp_path / 'poses.csv'
    path.write_text(f'{heading}\n1403636579763555584,1,2,3,0,0,0.6,0.8,1,3\n')
    truth = read_quaternions(path, kind_of(path))
    assert truth.stamps_ns.tolist() == [1403636579763555584]
    np.testing.assert_allclose(truth.poses[0, :3, (0, 3)], [[0.28, 0.96, 0], [1, 2, 3]], atol=1e-12)


@pytest.mark.parametrize('time', ['1403636579763', '1403636579763555'])
def test_digits_tell_the_unit_where_no_line_names_it(tmp_path: Path, time: str) -> None:
    path = tmp_path / 'poses.txt'
    path.write_text(f'{time} 1 2 3 0 0 0 1\n')
    assert read_quaternions(path, kind_of(path)).stamps_ns.tolist() == [int(f'{time:0<19}')]


@pytest.mark.parametrize('between', ['[s],[m],[m],[m],[],[],[],[]', '# 1403636578,1,2,3,0,0,0,1', '# of the last run, by Ann'])
def test_other_lines_may_stand_between_names_and_values(tmp_path: Path, between: str) -> None:
    path = tmp_path / 'poses.csv'
    path.write_text(f'timestamp,x,y,z,qx,qy,qz,qw\n{between}\n1403636579,1,2,3,0,0,0.6,0.8\n')
    truth = read_quaternions(path, kind_of(path))
    np.testing.assert_allclose(truth.poses[0, :3, (0, 3)], [[0.28, 0.96, 0], [1, 2, 3]], atol=1e-12)
    path.write_text('# 1403636578000000000,1,2,3,1,0,0,0\n1403636579000000000,1,2,3,0.8,0,0,0.6\n')
    np.testing.assert_allclose(read_quaternions(path, kind_of(path)).poses, truth.poses, atol=1e-12)


@pytest.mark.parametrize('digits', [13, 16, 19])
def test_times_of_images_tell_the_unit_of_those_of_poses(tmp_path: Path, digits: int) -> None:
    """Blackbird has microseconds without a line of names."""
    stamps, notes = [1526523160 * SECOND + k * 10**8 for k in range(3)], list[str]()
    folder = image_folder(tmp_path / 'in', [np.zeros((8, 9), np.uint8)] * 3, [f'{each / 1e9:.1f}' for each in stamps])
    (tmp_path / 'poses.csv').write_text(''.join(f'{str(stamp)[:digits]},{k},0,0,1,0,0,0\n' for k, stamp in enumerate(stamps)))
    truth = load_ground_truth(open_recording(folder), file=tmp_path / 'poses.csv', on_note=notes.append)
    assert truth is not None
    assert truth.stamps_ns.tolist() == stamps
    assert len(notes) == (digits < 19)
    assert all('only as mi' in line for line in notes)


@pytest.mark.parametrize(('time', 'stamp'), [
    ('1403636579763', 1403636579763 * 10**6), ('1403636579763555', 1403636579763555 * 10**3), ('1403636579', 1403636579 * SECOND)])
def test_digits_tell_the_unit_of_a_time_since_1970(tmp_path: Path, time: str, stamp: int) -> None:
    path = tmp_path / 'airsim_rec.txt'
    path.write_text(f'TimeStamp\tPOS_X\tPOS_Y\tPOS_Z\tQ_W\tQ_X\tQ_Y\tQ_Z\tImageFile\n{time}\t1\t2\t3\t1\t0\t0\t0\ta.png\n')
    assert read_quaternions(path, kind_of(path)).stamps_ns.tolist() == [stamp]


def counted(path: Path, count: int, first: int = 0) -> Path:
    """Poses with numbers of frames instead of times."""
    path.write_text(''.join(f'{first + k:04d} {k} 0 0 0 0 0 1\n' for k in range(count)))
    return path


def test_numbers_of_frames_instead_of_times_pair_poses_with_images(tmp_path: Path) -> None:
    recording, notes = open_recording(image_folder(tmp_path / 'in', [np.zeros((8, 9), np.uint8)] * 12)), list[str]()
    truth = load_ground_truth(recording, file=counted(tmp_path / 'poses.txt', 12), on_note=notes.append)
    assert truth is not None
    assert truth.stamps_ns.tolist() == [frame.stamp_ns for frame in recording.frames()]
    assert truth.poses[:, 0, 3].tolist() == list(range(12))
    assert re.search(r'the times of the poses count from 0 to 11 s, .* each image gets the pose of its place$', notes[0])
    other = load_ground_truth(recording, file=counted(tmp_path / 'poses.txt', 15), on_note=notes.append)
    assert other is not None
    assert other.stamps_ns.tolist() == [k * SECOND for k in range(15)]
    assert notes[1].endswith('there are 15 poses and 12 images: if they are no times, give each pose the stamp of its image')


def test_numbers_of_frames_with_gaps_are_of_images_with_these_numbers(tmp_path: Path) -> None:
    recording, notes = open_recording(image_folder(tmp_path / 'in', [np.zeros((8, 9), np.uint8)] * 12)), list[str]()
    path, stamps = tmp_path / 'poses.txt', [frame.stamp_ns for frame in recording.frames()]
    path.write_text(''.join(f'{k} {k} 0 0 0 0 0 1\n' for k in (1, 5, 10)))  # as of key frames
    truth = load_ground_truth(recording, file=path, on_note=notes.append)
    assert truth is not None
    assert truth.stamps_ns.tolist() == [stamps[k] for k in (1, 5, 10)]
    assert truth.poses[:, 0, 3].tolist() == [1, 5, 10]
    assert re.search(r'each is in the name of an image: these images get the poses of their numbers$', notes[0])
    for seconds in ((1, 5, 10, 12), (1, 2, 6)):  # no image has the number 12; at 1 s and 2 s there are images
        path.write_text(''.join(f'{k} 0 0 0 0 0 0 1\n' for k in seconds))
        truth = load_ground_truth(recording, file=path)
        assert truth is not None
        assert truth.stamps_ns.tolist() == [k * SECOND for k in seconds]


@pytest.mark.parametrize('values', [12, 16])
def test_matrices_after_numbers_of_frames_are_of_images_with_these(tmp_path: Path, values: int) -> None:
    recording, path = open_recording(image_folder(tmp_path / 'in', [np.zeros((8, 9), np.uint8)] * 6)), tmp_path / 'poses.txt'
    path.write_text(''.join(f'{k} {" ".join(map(str, camera_poses()[k].ravel()[:values]))}\n' for k in (1, 4, 5, 7)))
    truth = load_ground_truth(recording, file=path)  # as of KITTI-360; image 7 was left out
    assert truth is not None
    assert truth.stamps_ns.tolist() == [SECOND + k * SECOND // 10 for k in (1, 4, 5)]
    assert 'by numbers of images' in truth.source
    assert np.abs(truth.poses - camera_poses()[[1, 4, 5]]).max() < 1e-12
    for times in (['7'], ['0', '0.1']):  # no image has the number; the other one is a time
        path.write_text(''.join(f'{time} {" ".join(map(str, np.eye(4).ravel()[:values]))}\n' for time in times))
        with pytest.raises(BagError, match=f'{times[0]} before the matrix is the number of a frame and no time'):
            load_ground_truth(recording, file=path)


def test_numbers_of_images_instead_of_times_pair_them_with_poses(tmp_path: Path) -> None:
    folder = image_folder(tmp_path / 'in', [np.zeros((8, 9), np.uint8)] * 4)
    (folder / 'timestamps.txt').write_text('0\n1\n2\n3\n')
    path = tmp_path / 'poses.txt'
    path.write_text(''.join(f'{1341841278.8 + 0.7 * k} {k} 0 0 0 0 0 1\n' for k in range(4)))
    truth = load_ground_truth(open_recording(folder), file=path)
    assert truth is not None
    assert truth.stamps_ns.tolist() == [0, SECOND, 2 * SECOND, 3 * SECOND]


def test_whole_seconds_that_images_have_too_are_times(tmp_path: Path) -> None:
    folder = image_folder(tmp_path / 'in', [np.zeros((8, 9), np.uint8)] * 4)
    (folder / 'timestamps.txt').write_text('2\n3\n4\n5\n')
    notes = list[str]()
    truth = load_ground_truth(open_recording(folder), file=counted(tmp_path / 'poses.txt', 4, 2), on_note=notes.append)
    assert truth is not None
    assert truth.stamps_ns.tolist() == [k * SECOND for k in range(2, 6)]
    assert not notes


@pytest.mark.parametrize(('names', 'times'), [
    ('%time,field.header.seq,field.header.stamp,field.', '9403636579763555584,7,1403636579763555584,'),
    ('Time,header.stamp.secs,header.stamp.nsecs,pose.', '1403636580.9,1403636579,763555584,'),
    ('.header.stamp.sec,.header.stamp.nanosec,.pose.', '1403636579,763555584,'),
    ('__time,/imu/header/stamp,/odom/header/stamp/sec,/odom/header/stamp/nanosec,/odom/', '1.5,2.5,1403636579,763555584,'),
    ('timestamp,/imu/header/stamp,/odom/', '1403636579763555584,2.5,')])
def test_stamp_in_the_header_of_poses_comes_before_other_times(tmp_path: Path, names: str, times: str) -> None:
    before, _, prefix = names.rpartition(',')
    pose = [f'{prefix}{each}' for each in ('position.x', 'position.y', 'position.z', *(f'orientation.{axis}' for axis in 'xyzw'))]
    path = tmp_path / 'poses.csv'
    path.write_text(f'{",".join([before, *pose])}\n{times}1,2,3,0,0,0.6,0.8\n')
    assert read_quaternions(path, kind_of(path)).stamps_ns.tolist() == [1403636579763555584]


@pytest.mark.parametrize('heading', [
    '#sec,nsec,x,y,z,qx,qy,qz,qw', 'sec,nsec,x,y,z,qx,qy,qz,qw', '# counter, sec, nsec, x, y, z, qx, qy, qz, qw',
    'timestamp_sec,timestamp_nsec,x,y,z,qx,qy,qz,qw', 't_s,t_ns,x_m,y_m,z_m,qx,qy,qz,qw', 'seconds,nanoseconds,x,y,z,qx,qy,qz,qw',
    'header_stamp_sec,header_stamp_nanosec,' + ','.join(
        f'pose_pose_{part}_{axis}' for part, axes in (('position', 'xyz'), ('orientation', 'xyzw')) for axis in axes),
    'field.stamp.secs,field.stamp.nsecs,field.p.x,field.p.y,field.p.z,field.q.x,field.q.y,field.q.z,field.q.w',
    '% written by MATLAB\n% secs nsecs x y z qx qy qz qw', '// by a tracker\n// secs nsecs x y z qx qy qz qw'])
def test_seconds_and_nanoseconds_in_two_columns_are_one_time(tmp_path: Path, heading: str) -> None:
    path, separator = tmp_path / 'poses.csv', ',' if ',' in heading else ' '
    values = ['7'] * ('counter' in heading) + ['1403636579', '763555584', '1', '2', '3', '0', '0', '0.6', '0.8']
    path.write_text(f'{heading}\n{separator.join(values)}\n')
    truth = read_quaternions(path, kind_of(path))
    assert truth.stamps_ns.tolist() == [1403636579763555584]
    np.testing.assert_allclose(truth.poses[0, :3, (0, 3)], [[0.28, 0.96, 0], [1, 2, 3]], atol=1e-12)


@pytest.mark.parametrize(('names', 'times', 'stamp_ns'), [
    ('tv_sec,tv_usec', '1403636579,763555', 1403636579763555000), ('time_s,time_ms', '12,500', 12500000000),
    ('timestamp_s,timestamp_ns', '1403636579.75,1403636579763555584', 1403636579750000000),
    ('timestamp_s,timestamp_ns', '1403636579,1403636579763555584', 1403636579763555584),
    ('time_s,time_ns', '0.25,250000000', 250000000), ('timestamp_s,exposure_time_us', '1403636579,5000', 1403636579000000000)])
def test_second_column_of_a_time_is_its_part_or_all_of_it(tmp_path: Path, names: str, times: str, stamp_ns: int) -> None:
    path = tmp_path / 'poses.csv'
    path.write_text(f'{names},x,y,z,qx,qy,qz,qw\n{times},1,2,3,0,0,0.6,0.8\n')
    assert read_quaternions(path, kind_of(path)).stamps_ns.tolist() == [stamp_ns]


@pytest.mark.parametrize('encoding', ['utf-8-sig', 'utf-16', 'latin-1'])
@pytest.mark.parametrize('ends', ['\n', '\r\n'])
def test_text_of_windows_and_older_tools_is_read(tmp_path: Path, encoding: str, ends: str) -> None:
    path = tmp_path / 'poses.txt'
    path.write_bytes(f'# 5 µs, 20 °C{ends}1 1 2 3 0 0 0 1{ends}'.encode(encoding))
    assert read_quaternions(path, kind_of(path)).poses[0, :3, 3].tolist() == [1, 2, 3]
    camera = 'width: 640', 'height: 480  # 20 °C', 'fx: 300', 'fy: 300', 'cx: 320', 'cy: 240'
    path.write_bytes(ends.join(camera).encode(encoding))
    assert load_intrinsics(path).width == 640
    path.write_bytes(b'\x89PNG\r\n\x1a\n')
    with pytest.raises(BagError, match='is no text'):
        kind_of(path)


@pytest.mark.parametrize('lost', ['2 nan nan nan nan nan nan nan', '2 0 0 0 0 0 0 0', '2,1,2,3,nan,0,0,1', '2,,,,,,,'])
def test_lines_of_a_tracker_that_saw_nothing_are_left_out(tmp_path: Path, lost: str) -> None:
    path, separator = tmp_path / 'poses.txt', lost[1]
    path.write_text('\n'.join(['t x y z qx qy qz qw', '1 1 2 3 0 0 0 1', lost, '3 4 5 6 0 0 0 1']).replace(' ', separator))
    truth = read_quaternions(path, kind_of(path))
    assert (truth.stamps_ns // SECOND).tolist() == [1, 3]
    assert truth.source.endswith('left out: 1)')


@pytest.mark.parametrize(('text', 'kind', 'message'), [
    ('1403636579.7,0,0,0,0,0,0,1\n', None, 'not a number of nanoseconds .t,x,y,z,qw,qx,qy,qz, and t in nano.*no line above names'),
    ('timestamp,x,y,z,qx,qy,qz,qw\n1.5,0,0,0\n', None, '4 values where 8 belong .by the line that names the columns'),
    ('1 2 3\n', None, 'line 1: 3 values: poses are 8 a line'), ('', None, 'holds no pose'), ('# x\n', 'tum', 'no pose'),
    ('1 2 3\n', 'kitti', '3 values where 12'), ('1 0 0 0 0 1 0 0 0 0 1 0 1 2 3 2\n', None, '16 values where 12 belong'),
    ('2 0 0 0 0 1 0 0 0 0 1 0\n', None, 'no rotation'), ('# x\n', 'kitti', 'no pose'),
    ('1 0 0 0 0 1 0 0 0 0 1 0\n', None, '1 poses for 8 stamps'), ('1,2,3\n', None, 'line 1: 3 values where 8'),
    ('timestamp,x,y,z,roll,pitch,yaw,v\n1403636579763555584,0,0,0,0.1,0.2,0.3,1\n', None, 'columns are timestamp,x,.*a quaternion'),
    ('# time x y z roll pitch yaw v\n1.5 0 0 0 0.1 0.2 0.3 1\n', None, 'its columns are time x y z roll pitch yaw v: '),
    ('timestamp_min,x,y,z,qx,qy,qz,qw\n23393942,0,0,0,0,0,0,1\n', None, 'timestamp_min,.*in seconds, or timestamp_ms, _us or _ns'),
    ('1646320773.5 1 2 3\n', None, 'line 1: 4 values: it has only positions'),
    ('imgid, x_gt, y_gt, z_gt, omega_gt, phi_gt, kappa_gt, x_gps\n1, 1, 2, 3, 0.8, 0, 0, 0.6\n', None, 'are imgid, .*: a time'),
    ('timestamp,x,y,z,qx,qy,qz,qw,v\n7,1.5,1,2,3,0,0,0.6,0.8,1\n', None, 'length 3.06, not 1, and 10 values have 9 names'),
    ('# stamp, where_x, where_y, where_z, q_x, q_y, q_z, q_w, more\n1403636579763555584,1,2,3,0,0,0.6,0.8\n', None,
     'columns are stamp, where_x, .* a position .x, y, z in metres,'),
    ('Format Version,1.23,Capture Start Time\n,,,,,,,\n,Name,drone,drone,2,3,4,5\nFrame,Time (s),X,Y,Z,X,Y,Z\n0,0,1,2,3,4,5,6\n',
     None, 'columns are Frame,Time .s.,X,Y,Z,X,Y,Z: .* a quaternion'),
    ('frame tx ty tz qx qy qz qw\n0 1 2 3 0 0 0 1\n', None, 'columns are frame tx ty .*: a time'),
    ('timestamp_ms,x,y,z,qx,qy,qz,qw\nnow,0,0,0,0,0,0,1\n', None, 'line 2: .now. is not a number of milliseconds'),
    ('1403636579763555584,1,0,0,8,0,1,0,9,0,0,2,7\n', None, r'quaternion .0.0, 1.0, 0.0, 8.0. has length 8.06, not 1 .t,x'),
    ('{"frames": [{"file_path": "a.png"}]}\n', None, 'holds no pose: poses are 8 a line'),
    ('header:\n  frame_id: map\n---\n', None, "with 'header:': ros2 topic echo --csv writes lines that are read; poses are 8"),
    ('Trajectories\n100\n', None, "begins with 'Trajectories'"),
    ('Frame,Time (s),X,Y,Z,W,X,Y,Z\n0,0,0,0,0,1,1,2,3\n', None, 'columns are Frame,Time .s.,X,Y,Z,W,X,Y,Z: .* are needed, rename'),
    ('7 1 0 0 8 0 1 0 9 0 0 1 7\n', None, '7 before the matrix is the number of a frame and no time'),
    ('1.5 0 0 0 0.1 0.2 0.3 1.5\n', None, 'line 1: the quaternion .* has length 1.55, not 1.*qw, where no line'),
    ('now,0,0,0,1,0,0,0\n', None, 'line 1: .*now'), ('1 0 0 0 0 0 0 1\n', 'gps', "kind 'gps'"), ('-1,0,0,0,1,0,0,0\n', None, '-1')])
def test_files_that_hold_no_poses(tmp_path: Path, text: str, kind: str | None, message: str) -> None:
    path = tmp_path / 'poses.txt'
    path.write_text(text)
    with pytest.raises(BagError, match=message):
        load_ground_truth(Bag(tmp_path / 'bag').open(), file=path, kind=kind)


def test_folder_with_another_truth(tmp_path: Path, shared_data: Path) -> None:
    recording = open_recording(shared_data / 'hololens')
    own = load_ground_truth(recording)
    assert own is not None
    stamps = [frame.stamp_ns for frame in recording.frames()]
    assert np.abs(poses_at(own, stamps, 0.0) - own.poses).max() == 0
    with pytest.raises(BagError, match='is an image folder: it has no topic /odom'):
        load_ground_truth(recording, topic='/odom')
    (tmp_path / 'other.txt').write_text(tum(camera_poses()))
    other = load_ground_truth(recording, file=tmp_path / 'other.txt')
    assert other is not None
    assert np.abs(other.poses - camera_poses()).max() < 1e-9
    assert len(own) == len(stamps) == 120


def test_truth_of_another_time(tmp_path: Path) -> None:
    truth = Trajectory(np.array([50, 60]) * SECOND, camera_poses(2), 'poses.txt')
    with pytest.raises(BagError, match=r'poses\.txt covers 50\.000 to 60\.000 s, the images 1\.000 to 8\.000 s, and 0\.02 s'):
        poses_at(truth, np.arange(1, 9) * SECOND, 0.02)
    assert np.isfinite(poses_at(truth, [1 * SECOND, 50 * SECOND], 0.0)[:, 0, 0]).tolist() == [False, True]
    assert poses_at(truth, [], 0.02).shape == (0, 4, 4)
    with pytest.raises(BagError, match='covers nothing'):
        poses_at(Trajectory(np.zeros(0, np.int64), np.zeros((0, 4, 4)), 'x'), [1], 1.0)


def test_which_poses_count() -> None:
    """Between two poses: between them. Beside a gap: the near one, as it is. None is near: nothing."""
    truth = Trajectory(np.array([0, 100, 200, 1100]) * 10**6, camera_poses(4))
    at = poses_at(truth, np.array([0, 40, 240, 600, 1080, 1110, 1200]) * 10**6, 0.08)
    assert np.isnan(at[:, 0, 0]).tolist() == [False, False, False, True, False, False, True]
    assert np.array_equal(at[0], truth.poses[0])
    assert np.abs(at[1, :3, 3] - (0.6 * truth.poses[0] + 0.4 * truth.poses[1])[:3, 3]).max() < 1e-12
    assert np.array_equal(at[2], truth.poses[2])
    assert np.array_equal(at[4], truth.poses[3])
    assert np.array_equal(at[5], truth.poses[3])
    shuffled = Trajectory(truth.stamps_ns[[2, 0, 1, 0]], truth.poses[[2, 0, 1, 2]])
    assert np.array_equal(poses_at(shuffled, np.array([0, 40]) * 10**6, 0.08), at[:2])  # the first of two with one stamp


@pytest.mark.parametrize('hz', [4, 10, 20, 25, 40])
def test_truth_slower_than_images_gives_the_motion_between_frames(hz: int) -> None:
    """The nearest pose of 20 Hz stands still between two frames of 30 Hz, and moves twice as far between the next two."""
    def at(seconds: Float64) -> Float64:
        return np.stack([pose(turn([0.2, 1, 0.1], 0.5 * second), [second, 0, 0]) for second in seconds])

    known, frames = np.arange(0, 4, 1 / hz), np.arange(0.501, 3, 1 / 30)
    found = poses_at(Trajectory(np.round(known * SECOND).astype(np.int64), at(known)), np.round(frames * SECOND), 0.02)
    right, has_pose = at(frames), np.isfinite(found[:, 0, 0])
    apart = np.abs(frames[:, None] - known).min(axis=1)
    assert has_pose.tolist() == (apart < 0.02).tolist()
    assert np.abs(found - right)[has_pose].max() < 1e-6


def test_frames_beside_lost_poses_of_a_fast_truth_get_interpolated_ones() -> None:
    """Of 100 Hz, 0.15 s of each second are lost: 15 usual times."""
    known = np.arange(0, 400) / 100
    known = known[known % 1.0 > 0.15]
    frames = known[:-1][np.diff(known) > 0.1] + 0.015
    poses = np.stack([pose(np.eye(3), [2 * each, 0, 0]) for each in known])
    at = poses_at(Trajectory(np.round(known * SECOND).astype(np.int64), poses), np.round(frames * SECOND), 0.02)
    assert np.abs(at[:, 0, 3] - 2 * frames).max() < 1e-6


@settings(max_examples=100, deadline=None)
@given(axis=st.tuples(*[st.floats(-1, 1)] * 3).filter(lambda axis: np.linalg.norm(axis) > 0.1), angle=st.floats(-3.1, 3.1),
       first=st.tuples(*[st.floats(-1, 1)] * 4).filter(lambda q: np.linalg.norm(q) > 0.1), share=st.floats(0, 1))
def test_rotation_at_constant_speed(axis: tuple[float, ...], angle: float, first: tuple[float, ...], share: float) -> None:
    start = poses_from([[1, 2, 3]], [first])[0]
    end = start @ pose(turn(list(axis), angle), [0.5, 0, 0])
    stamp = round(share * SECOND)
    at = poses_at(Trajectory(np.array([0, SECOND]), np.stack([start, end])), [stamp], 1.0)[0]
    assert np.abs(at[:3, :3] - start[:3, :3] @ turn(list(axis), angle * stamp / SECOND)).max() < 1e-6
    assert np.abs(at[:3, 3] - (start[:3, 3] + (end - start)[:3, 3] * stamp / SECOND)).max() < 1e-9
    assert abs(np.linalg.det(at[:3, :3]) - 1) < 1e-9


def test_own_bag_with_truth(tmp_path: Path) -> None:
    stamps = np.array([SECOND * (k + 1) for k in range(COUNT)], np.int64)
    frames = [(int(stamp), np.zeros((8, 8), np.uint8)) for stamp in stamps]
    write_bag(tmp_path / 'bag', frames, None, Trajectory(stamps, camera_poses()))
    recording = open_recording(tmp_path / 'bag')
    truth = load_ground_truth(recording)
    assert truth is not None
    assert np.abs(truth.poses - camera_poses()).max() < 1e-9
    halfway = (camera_poses()[1:] + camera_poses()[:-1])[:, :3, 3] / 2
    assert np.abs(poses_at(truth, stamps + 500_000_000, 0.6)[:-1, :3, 3] - halfway).max() < 1e-9


def own_odometry(bag: Bag, topic: str, stamps: list[int], child: str = 'cam', angular: float = 0.0,
                 begins_m: float = 0.0) -> Bag:
    """Messages as the odometry node writes them: with the stamps of images, and the camera's velocity."""
    zero, moving = (new('geometry_msgs/msg/Vector3', 0.0, 0.0, value) for value in (angular, 0.9))
    twist = new('geometry_msgs/msg/TwistWithCovariance', new('geometry_msgs/msg/Twist', moving, zero), np.zeros(36))
    messages = []
    for number, stamp in enumerate(stamps):
        message = pose_message(ODOMETRY, stamp, 'odom', child, pose(OPTICAL[:3, :3], [begins_m + 0.1 * number, 0.0, 0.0]))
        message.twist = twist
        messages.append((stamp, message))
    return bag.add(topic, ODOMETRY, *messages)


STAMPS = [SECOND * (number + 1) for number in range(COUNT)]


@pytest.mark.parametrize(('topic', 'angular'), [('/odometry/odometry', 0.0), ('/vo', 0.2)])
def test_own_odometry_is_no_ground_truth(tmp_path: Path, topic: str, angular: float) -> None:
    told: list[str] = []
    bag = own_odometry(Bag(tmp_path / 'bag'), topic, STAMPS[1:], angular=angular).open()
    assert load_ground_truth(bag, on_note=told.append) is None
    assert told == [f'{topic} is the odometry of this package, computed from images of this recording: '
                    'it is no ground truth, and left out; --truth-topic takes it all the same']
    named = load_ground_truth(bag, topic=topic, on_note=told.append)
    assert named is not None
    assert told[1].endswith('figures by it compare matches with themselves')
    with_truth = own_odometry(Bag(tmp_path / 'two').poses('/mocap', POSE, camera_poses()), topic, STAMPS[1:]).open()
    truth = load_ground_truth(with_truth)
    assert truth is not None
    assert '/mocap' in truth.source


@pytest.mark.parametrize(('child', 'own'), [('cam', True), ('body', False)])
def test_own_odometry_of_a_former_version_is_known_by_its_velocities(tmp_path: Path, child: str, own: bool) -> None:
    """It was recorded on the way. VINS-Fusion has no rotation rates either, and poses of a body."""
    opened = own_odometry(Bag(tmp_path / 'bag'), '/vo', STAMPS, child, begins_m=20.0).open()
    (topic,) = (topic for topic in opened.topics if topic.name == '/vo')
    assert OwnOdometry(opened).publishes(topic) == own


@pytest.mark.parametrize('size', [0.0, np.nan])
def test_odometry_without_attitude_is_not_taken_for_the_own_one(tmp_path: Path, size: float) -> None:
    bag = own_odometry(Bag(tmp_path / 'bag'), '/vo', STAMPS, angular=0.2)
    for _, message in bag.topics['/vo'][1]:
        message.pose.pose.orientation = new('geometry_msgs/msg/Quaternion', size, size, size, size)
    opened = bag.open()
    (topic,) = (topic for topic in opened.topics if topic.name == '/vo')
    assert not OwnOdometry(opened).publishes(topic)


@pytest.mark.parametrize(('shift', 'angular'), [(3, 0.0), (0, 0.2)])
def test_odometry_of_others_is_taken_whatever_its_topic(tmp_path: Path, shift: int, angular: float) -> None:
    """Its stamps are not those of images, or it has rates and begins elsewhere."""
    bag = own_odometry(Bag(tmp_path / 'bag'), '/odometry/odometry', [stamp + shift for stamp in STAMPS],
                       angular=angular, begins_m=20 * angular).open()
    assert load_ground_truth(bag) is not None


def test_a_mounting_with_the_stamps_of_images_is_no_odometry(tmp_path: Path) -> None:
    """As CARLA publishes all transforms at every step."""
    bag, notes = Bag(tmp_path / 'bag').poses('/tf', TF, camera_poses(), 'map', 'car'), list[str]()
    bag.poses('/tf', TF, np.stack([pose(OPTICAL[:3, :3], [0.5, 0.0, 0.3])] * COUNT), 'car', 'cam')
    truth = load_ground_truth(bag.open(), on_note=notes.append)
    assert truth is not None
    assert truth.source.endswith('car in map, moved into cam by the transforms that stay')
    assert not any('odometry of this package' in note for note in notes)


def test_tf_of_own_odometry_is_no_ground_truth(tmp_path: Path) -> None:
    moving = np.stack([pose(OPTICAL[:3, :3], [0.1 * number, 0.0, 0.0]) for number in range(COUNT)])
    alone = Bag(tmp_path / 'alone').poses('/tf', TF, moving, 'odom', 'cam').open()
    assert load_ground_truth(alone) is None
    away = moving.copy()
    away[:, 0, 3] += 20
    both = own_odometry(Bag(tmp_path / 'both'), '/odometry/odometry', STAMPS).poses('/tf', TF, away, 'odom', 'cam').open()
    assert load_ground_truth(both) is None
    others = Bag(tmp_path / 'others').poses('/tf', TF, away, 'map', 'cam').open()
    assert load_ground_truth(others) is not None
    told: list[str] = []
    body = Bag(tmp_path / 'body').poses('/tf', TF, moving, 'odom', 'base_link').static(('base_link', 'cam', OPTICAL)).open()
    assert load_ground_truth(body, on_note=told.append) is not None
    assert told == ['base_link in odom (8 poses) of /tf have the stamps of the images: if an odometry computed them from these, '
                    'figures compare two estimates']


def as_written_by_us(poses: Float64) -> Float64:
    """Positions on the grid of our odometry; quaternions of a level base are on it too."""
    written = poses.copy()
    written[:, :3, 3] = on_grid(poses[:, :3, 3] + [0.0, 0.01, 0.003])
    return written


LEVEL = np.stack([pose(np.eye(3), [0.1 * number, 0.0, 0.0]) for number in range(COUNT)])


@pytest.mark.parametrize(('parent', 'away_m'), [('odom', 0.0), ('world', 30.0)])
def test_tf_of_own_base_frame_without_matches_is_no_ground_truth(tmp_path: Path, parent: str, away_m: float) -> None:
    """Any name of the frame, any begin of the recording, and no other topic of the package."""
    ours = as_written_by_us(LEVEL)
    ours[:, 0, 3] += away_m
    told: list[str] = []
    bag = Bag(tmp_path / 'bag').poses('/tf', TF, ours, parent).static(('base_link', 'cam', OPTICAL))
    recording = bag.open()
    assert load_ground_truth(recording, on_note=told.append) is None
    assert told == [f'base_link in {parent} (8 poses) of /tf is the odometry of this package, computed from images of this '
                    'recording: it is no ground truth, and left out; --truth-topic /tf --truth-child-frame base_link takes it all '
                    'the same']
    assert load_ground_truth(recording, topic='/tf', child_frame='base_link') is not None
    bag.path = tmp_path / 'with_truth'
    truth = load_ground_truth(bag.poses('/mocap', POSE, camera_poses()).open())
    assert truth is not None
    assert '/mocap' in truth.source


def full(bag: Bag, topic: str) -> Bag:
    """Full covariances in each message of the topic."""
    for _, message in bag.topics[topic][1]:
        message.pose.covariance = np.full(36, 1e-4) + np.eye(6).ravel()
        message.twist.covariance = message.pose.covariance
    return bag


def test_full_covariances_and_stamps_of_images_do_not_make_odometry_ours(tmp_path: Path) -> None:
    told: list[str] = []
    theirs = full(own_odometry(Bag(tmp_path / 'theirs'), '/vio/odom', STAMPS, 'base_link'), '/vio/odom')
    theirs.add('/vio/path', 'nav_msgs/msg/Path', (SECOND, new('nav_msgs/msg/Path', header(SECOND, 'odom'), [])))
    truth = load_ground_truth(theirs.static(('base_link', 'cam', OPTICAL)).open(), on_note=told.append)
    assert truth is not None
    assert '/vio/odom' in truth.source
    assert told == ['base_link in odom (8 poses) of /vio/odom have the stamps of the images: if an odometry computed them from '
                    'these, figures compare two estimates']
    usual = full(own_odometry(Bag(tmp_path / 'usual'), '/robot/odometry/odometry', STAMPS, 'base_link'), '/robot/odometry/odometry')
    assert load_ground_truth(usual.static(('base_link', 'cam', OPTICAL)).open()) is None


def test_numbers_on_the_grid_are_ours_and_others_are_not() -> None:
    rows = np.random.default_rng(0).normal(size=(30, 7))
    assert are_on_grid(on_grid(rows))
    assert np.abs(on_grid(rows) - rows).max() < 1.2e-10
    for others in (rows, rows.round(9), rows.astype(np.float32), rows.round(3), np.zeros((30, 7)), on_grid(rows) * np.nan):
        assert not are_on_grid(others)
    assert not are_on_grid(np.concatenate([on_grid(rows), rows[:1]]))


def test_tf_of_base_frame_next_to_matches_is_no_ground_truth(tmp_path: Path) -> None:
    """It begins where the base is, as any body's poses may: the matches of those images tell whose it is."""
    moving = np.stack([pose(np.eye(3), [0.1 * number, 0.0, 0.0]) for number in range(COUNT)])

    def bag(name: str, fields: tuple[str, ...], first_m: float = 0.0) -> Bag:
        made, poses = Bag(tmp_path / name), moving.copy()
        poses[:, 0, 3] += first_m
        columns = [new('sensor_msgs/msg/PointField', field, 4 * number, 7, 1) for number, field in enumerate(fields)]
        clouds = [(stamp, new('sensor_msgs/msg/PointCloud2', header(stamp, 'cam'), 1, 0, columns, False, 4 * len(fields),
                              0, np.zeros(0, np.uint8), True)) for stamp in STAMPS]
        made.poses('/tf', TF, poses, 'odom', 'base_link').static(('base_link', 'cam', OPTICAL))
        return made.add('/matcher/matches', 'sensor_msgs/msg/PointCloud2', *clouds)

    matches = ('x', 'u', 'v', 'u_ref', 'v_ref', 'track_id')
    assert load_ground_truth(bag('own', matches).open()) is None
    for name, fields, first_m in (('lidar', ('x', 'y', 'z'), 0.0), ('elsewhere', matches, 20.0)):
        assert load_ground_truth(bag(name, fields, first_m).open()) is not None
