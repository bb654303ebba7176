"""The odometry over real DDS: clouds of exact tracks, a rendered flight through the real matcher, and what it says if it cannot."""

from __future__ import annotations

import dataclasses
import itertools
import time

import numpy as np
import pytest

rclpy = pytest.importorskip('rclpy', reason='rclpy is not installed: the node is not tested')
nav = pytest.importorskip('nav_msgs.msg', reason='nav_msgs is not installed: the odometry is not tested')
from diagnostic_msgs.msg import DiagnosticStatus
from rcl_interfaces.srv import SetParameters
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.qos import QoSProfile, ReliabilityPolicy
from scipy.spatial.transform import Rotation
from sensor_msgs.msg import CameraInfo, PointCloud2, PointField
from support.bags import IMAGE, write_messages
from support.matches import frame_matches
from support.moving_camera import BASELINE, FOCAL, SIZE, poses_of, steps
from support.ros_helpers import SECOND, Peer, as_parameters, header, image_message, report_often, spun, started
from support.waiting import wait_for

from lightglue_trt_eval.demo.flight import Flight
from lightglue_trt_eval.score.trajectory import align_sim3, ate
from lightglue_trt_ros.datasets.ground_truth import load_ground_truth
from lightglue_trt_ros.datasets.recordings import open_recording
from lightglue_trt_ros.odometry.sliding_window import MatchOdometry
from lightglue_trt_ros.ros.cloud_reader import matches_from_cloud
from lightglue_trt_ros.ros.clouds import fill_cloud, layout_of, point_fields
from lightglue_trt_ros.ros.matcher.node import MatcherNode
from lightglue_trt_ros.ros.odometry_node import UPRIGHT, OdometryNode
from lightglue_trt_ros.ros.parameters import settings_given
from lightglue_trt_ros.utils.errors import ConfigError

K = np.array([[FOCAL, 0, SIZE[0] / 2], [0, FOCAL, SIZE[1] / 2], [0, 0, 1]])
STRAIGHT = np.eye(3)  # axes of a camera that looks as the plane z = 1 lies


def info(k: np.ndarray = K, size: tuple[int, int] = SIZE, axes: np.ndarray = STRAIGHT, shift: float = 0.0) -> CameraInfo:
    return CameraInfo(header=header(SECOND), width=size[0], height=size[1], distortion_model='plumb_bob', d=[0.0] * 5, k=k.ravel(),
                      r=axes.ravel(), p=np.hstack([k, [[-k[0, 0] * shift], [0], [0]]]).ravel())


def pixels_of(points: np.ndarray, axes: np.ndarray) -> np.ndarray:
    """Points (M, 2) on the plane z = 1, as a camera sees them whose axes `axes` (3, 3) turns to those of the plane."""
    rays = np.column_stack([points, np.ones(len(points))]) @ axes
    return (rays[:, :2] / rays[:, 2:]) @ K[:2, :2].T + K[:2, 2]


def cloud_of(step, left: np.ndarray = STRAIGHT, right: np.ndarray | None = None, size: tuple[int, int] = SIZE[::-1],
             depth: bool = False) -> PointCloud2:
    """With `right` the cloud is a stereo one, every third point without a place in the right image; `size` (height, width).

    With `depth` points are known in space, every third one not.
    """
    pixels, before = (pixels_of(points, left) for points in (step.points, step.reference_points))
    across = None
    if right is not None:
        across = pixels_of(np.column_stack([step.right_x, step.points[:, 1]]), right).astype(np.float32)
        across[::3] = np.nan
    matches = frame_matches(pixels, before, step.stamp, track_ids=step.ids.astype(np.uint32), right_keypoints=across,
                            image_size=size)
    if depth:
        z = BASELINE / (step.points[:, 0] - step.right_x)
        z[::3] = np.nan
        xyz = np.column_stack([step.points * z[:, None], z]).astype(np.float32)
        matches = dataclasses.replace(matches, xyz=xyz, sigma_z=(0.0025 * z * z).astype(np.float32))
    fields = point_fields(PointField, layout_of(matches))
    return fill_cloud(PointCloud2(header=header(round(step.stamp * SECOND)), fields=fields), matches)


class Watcher:
    """The odometry, spun in this process, and who listens to it."""

    def __init__(self, stack, **parameters) -> None:
        self.node = OdometryNode(parameter_overrides=as_parameters(parameters))
        self.peer = Peer()
        stack.callback(self.peer.close)
        report_often(self.node)
        stack.enter_context(spun(self.node))
        self.messages: list = []
        self.paths: list = []
        self.peer.node.create_subscription(nav.Odometry, '/odometry/odometry', self.messages.append, 100)
        self.peer.node.create_subscription(nav.Path, '/odometry/path', self.paths.append, 10)
        self.clouds = self.peer.node.create_publisher(PointCloud2, '/matcher/matches', 100)
        self.infos = self.peer.node.create_publisher(CameraInfo, '/camera_info', 10)
        self.right_infos = self.peer.node.create_publisher(CameraInfo, '/right/camera_info', 10)
        wait_for(lambda: all(each.get_subscription_count() for each in (self.clouds, self.infos, self.right_infos))
                 and self.peer.node.count_publishers('/odometry/odometry'))

    def hear(self, *messages) -> None:
        """Publish clouds, each when the one before is taken, and CameraInfos, which are taken before the rest."""
        for message in messages:
            taken = self.node._clouds
            if isinstance(message, PointCloud2):
                self.clouds.publish(message)
                wait_for(lambda: self.node._clouds > taken)  # noqa: B023
            else:
                self.infos.publish(message)
                time.sleep(0.3)

    def status(self) -> tuple[bytes, str, dict[str, str]]:
        found = self.peer.reports[-1].status[0] if self.peer.reports else DiagnosticStatus()
        return found.level, found.message, {each.key: each.value for each in found.values}

    def poses(self) -> np.ndarray:
        """(N, 4, 4) of the camera's optical axes in the first ones."""
        found = np.tile(np.eye(4), (len(self.messages), 1, 1))
        for pose, message in zip(found, (each.pose.pose for each in self.messages), strict=True):
            pose[:3, 3] = message.position.x, message.position.y, message.position.z
            turn = message.orientation
            pose[:3, :3] = Rotation.from_quat([turn.x, turn.y, turn.z, turn.w]).as_matrix()
        return np.linalg.inv(UPRIGHT) @ found


@pytest.mark.release
def test_clouds_become_poses_a_path_and_velocities(stack, capfd):
    watcher = Watcher(stack, odom_frame='world', publish_tf=False)
    truth = list(steps(poses_of(12)))
    watcher.infos.publish(info())
    time.sleep(0.3)
    for step in truth:
        watcher.clouds.publish(cloud_of(step))
        time.sleep(0.05)  # a queue of ten
    wait_for(lambda: len(watcher.messages) >= len(truth) - 1)
    last = watcher.messages[-1]
    assert (last.header.frame_id, last.child_frame_id) == ('world', 'camera')
    assert last.header.stamp.sec + last.header.stamp.nanosec / SECOND == pytest.approx(truth[-1].stamp)
    poses, true = watcher.poses(), np.stack([step.pose for step in truth[-len(watcher.messages):]])
    alignment = align_sim3(poses, true)
    assert ate(alignment.apply(poses), true) < 2e-3
    np.testing.assert_allclose(alignment.rotation, np.eye(3), atol=2e-3)
    velocity = last.twist.twist.linear
    expected = true[-1][:3, :3].T @ (true[-1][:3, 3] - true[-2][:3, 3]) / 0.1 / alignment.scale
    np.testing.assert_allclose([velocity.x, velocity.y, velocity.z], expected, rtol=0.02, atol=0.02)
    wait_for(lambda: watcher.paths and len(watcher.paths[-1].poses) == len(watcher.messages))
    log = capfd.readouterr().err
    assert 'the unit is the distance between the first two views' in log
    assert log.count('tracking') == 1


def test_what_the_node_publishes_is_no_ground_truth_of_its_recording(stack, tmp_path):
    pytest.importorskip('rosbags', reason='bags need the Python package rosbags')
    from rclpy.serialization import serialize_message
    watcher = Watcher(stack, publish_tf=False)
    clouds = [cloud_of(step) for step in steps(poses_of(8))]
    watcher.hear(info(), *clouds)
    wait_for(lambda: len(watcher.messages) >= len(clouds) - 1)
    images = [image_message(cloud.header.stamp.sec * SECOND + cloud.header.stamp.nanosec) for cloud in clouds]
    write_messages(tmp_path / 'bag', {
        '/camera/image_raw': (IMAGE, enumerate(map(serialize_message, images))),
        '/vo/poses': ('nav_msgs/msg/Odometry', enumerate(map(serialize_message, watcher.messages)))})
    notes: list[str] = []
    assert load_ground_truth(open_recording(tmp_path / 'bag'), on_note=notes.append) is None
    assert notes == ['/vo/poses is the odometry of this package, computed from images of this recording: '
                     'it is no ground truth, and left out; --truth-topic takes it all the same']


@pytest.mark.parametrize('turn', [0.0, 3.0], ids=['rectified', 'as they are mounted'])
def test_stereo_clouds_become_poses_in_metres(stack, capfd, turn):
    """Of cameras that are turned against each other too: R of both CameraInfos says how."""
    left, right = (Rotation.from_rotvec(axis, degrees=True).as_matrix() for axis in ([turn, turn / 2, 0], [0, -turn, turn]))
    watcher, truth = Watcher(stack, publish_tf=False), list(steps(poses_of(12)))
    watcher.infos.publish(info(axes=left))
    time.sleep(0.3)
    watcher.clouds.publish(cloud_of(truth[0], left, right))  # the first one finds no right camera: it waits with one line
    time.sleep(0.5)  # and what is written while capfd is read gets lost
    assert '~/odometry waits for a CameraInfo on /right/camera_info' in capfd.readouterr().err
    watcher.right_infos.publish(info(axes=right, shift=BASELINE))
    time.sleep(0.3)
    for step in truth[1:]:
        watcher.clouds.publish(cloud_of(step, left, right))
        time.sleep(0.05)
    wait_for(lambda: len(watcher.messages) >= len(truth) - 1)
    first = poses_of(12)[1]  # where the second cloud's reference was
    axes = np.eye(4)
    axes[:3, :3] = left
    true = np.stack([axes.T @ np.linalg.inv(first) @ step.pose @ axes for step in truth[1:]])
    np.testing.assert_allclose(watcher.poses(), true, atol=5e-3)
    velocity = watcher.messages[-1].twist.twist.linear
    expected = true[-1, :3, :3].T @ (true[-1, :3, 3] - true[-2, :3, 3]) / 0.1
    np.testing.assert_allclose([velocity.x, velocity.y, velocity.z], expected, atol=0.02)
    log = capfd.readouterr().err
    assert f'the baseline is {BASELINE:.3f} m: poses are in metres' in log
    watcher.clouds.publish(cloud_of(truth[-1], left))  # and the right camera is gone for good
    time.sleep(0.5)
    assert 'one camera knows no metres' in capfd.readouterr().err


def test_clouds_with_depth_become_poses_in_metres_from_the_first_on(stack, capfd):
    watcher, truth = Watcher(stack, publish_tf=False), list(steps(poses_of(20)))
    watcher.hear(info(), *(cloud_of(step, depth=True) for step in truth[:12]))
    wait_for(lambda: len(watcher.messages) == 12)
    first = np.linalg.inv(poses_of(12)[0])  # where the first cloud's reference was
    np.testing.assert_allclose(watcher.poses(), np.stack([first @ step.pose for step in truth[:12]]), atol=5e-3)
    log = capfd.readouterr().err
    assert 'points have depth: poses are in metres' in log
    watcher.hear(*map(cloud_of, truth[12:]))
    wait_for(lambda: watcher.status()[2].get('unit') == 'own')
    assert 'one camera knows no metres' in capfd.readouterr().err


def test_of_two_kinds_of_frames_that_alternate_one_gives_the_poses(stack):
    """As with `reference: alternate`. Before, each cloud ended the tracks of the other kind, and it was lost for ever."""
    watcher, poses = Watcher(stack, publish_tf=False), poses_of(24)
    flashed, others = list(steps(poses[::2])), list(steps(poses[1::2], seed=2))
    watcher.hear(info())
    for one, other in zip(flashed, others, strict=True):
        watcher.hear(cloud_of(one, depth=True),
                     cloud_of(other._replace(stamp=other.stamp + 0.05, ids=other.ids + 10_000), depth=True))
    wait_for(lambda: len(watcher.messages) == len(flashed))
    np.testing.assert_allclose(watcher.poses(), np.stack([step.pose for step in flashed]), atol=5e-3)


def test_a_keyframe_whose_own_cloud_was_lost_stays_the_reference(stack):
    watcher, truth = Watcher(stack, publish_tf=False), list(steps(poses_of(12)))
    watcher.hear(info())
    for number, step in enumerate(truth):
        cloud = cloud_of(step, depth=True)
        if number in (7, 8):  # their reference is that of cloud 6
            matches = matches_from_cloud(cloud)
            older = dataclasses.replace(matches, reference_stamp=truth[5].stamp)
            cloud = fill_cloud(PointCloud2(header=cloud.header, fields=cloud.fields), older)
        if number != 5:
            watcher.hear(cloud)
    wait_for(lambda: len(watcher.messages) == len(truth) - 1)


SECTIONS = ['odometry', '/odometry', 'robot1/camera/odometry', '/robot1/camera/odometry', '/**', '/*', '/*/odometry',
            '/**/odometry', '/robot1/**', '/robot1/*/odometry', '/robot1/*', '/robot1/camera/*', 'robot1: camera: odometry',
            'robot1: camera/odometry', 'robot2: camera: odometry', 'camera: odometry', 'odo', 'odometry2', 'watcher', '']


@pytest.mark.parametrize('section', SECTIONS)
@pytest.mark.release
def test_a_line_tells_of_a_params_file_exactly_where_rcl_does_not_apply_it(section, stack, tmp_path, monkeypatch, capfd):
    file, own = tmp_path / 'params.yaml', '{ros__parameters: {odom_frame: map}}'
    keys = section.split(': ')
    file.write_text(f"{''.join(f'{{{key!r}: ' for key in keys)}{own}{'}' * len(keys)}" if section else '')
    for name in ('/odometry', '/robot1/camera/odometry', '/robot1/camera/watcher', '/robot1/odometry'):
        namespace, _, node_name = name.rpartition('/')
        arguments = ['--ros-args', '-r', f'__ns:={namespace or "/"}', '-r', f'__node:={node_name}', '--params-file', str(file)]
        monkeypatch.setattr('sys.argv', ['odometry', *arguments])
        node = Node('any', cli_args=arguments, automatically_declare_parameters_from_overrides=True, enable_rosout=False,
                    start_parameter_services=False)
        assert node.get_fully_qualified_name() == name
        is_applied = settings_given(node, ['odom_frame']) == {'odom_frame': 'map'}
        node.destroy_node()
        line = f'the params file {file} has parameters of {"nobody" if not section else ""}'
        assert (line in capfd.readouterr().err) is not is_applied


def test_a_parameter_that_it_does_not_have_is_refused(stack):
    with pytest.raises(ConfigError, match="unknown setting 'odom_fram': did you mean odom_frame"):
        Watcher(stack, odom_fram='world')


@pytest.mark.release
def test_its_parameters_are_refused_while_it_runs(stack):
    """They would change nothing."""
    watcher = Watcher(stack, odom_frame='map', publish_tf=False)
    assert watcher.node.get_parameter('odom_frame').value == 'map'
    for name, value in (('base_frame', 'base_link'), ('odom_frame', 'odom'), ('publish_tf', True)):
        request = SetParameters.Request(parameters=[Parameter(name, value=value).to_parameter_msg()])
        result = watcher.peer.call(SetParameters, '/odometry/set_parameters', request).results[0]
        assert (result.successful, 'read-only' in result.reason) == (False, True)
        assert watcher.node.describe_parameter(name).description


def test_forward_is_x_and_up_is_z():
    np.testing.assert_array_equal(UPRIGHT[:3, :3] @ [0, 0, 1], [1, 0, 0])
    np.testing.assert_array_equal(UPRIGHT[:3, :3] @ [0, -1, 0], [0, 0, 1])
    assert np.linalg.det(UPRIGHT) == 1


@pytest.mark.release
def test_the_transform_is_published_where_tf2_is_installed(stack, capfd):
    tf2 = pytest.importorskip('tf2_msgs.msg', reason='tf2_msgs is not installed (no wheels)')
    watcher = Watcher(stack)
    transforms: list = []
    watcher.peer.node.create_subscription(tf2.TFMessage, '/tf', transforms.append, 100)
    watcher.infos.publish(info())
    time.sleep(0.3)
    for step in steps(poses_of(6)):
        watcher.clouds.publish(cloud_of(step))
    wait_for(lambda: transforms)
    assert (transforms[0].transforms[0].header.frame_id, transforms[0].transforms[0].child_frame_id) == ('odom', 'camera')


def test_calibration_of_another_image_size_is_refused_with_both_sizes(stack, capfd):
    watcher, truth = Watcher(stack, publish_tf=False), list(steps(poses_of(12)))
    watcher.hear(info(size=(320, 240)), *map(cloud_of, truth[:5]))
    line = 'CameraInfo on /camera_info is for 320x240 pixels, the images have 640x480'
    wait_for(lambda: line in watcher.status()[1])
    assert watcher.status()[0] == DiagnosticStatus.WARN
    assert not watcher.messages
    assert capfd.readouterr().err.count(line) == 1
    watcher.hear(info(), *map(cloud_of, truth[5:]))
    wait_for(lambda: watcher.messages)
    wait_for(lambda: watcher.status()[0] == DiagnosticStatus.OK and watcher.status()[1].startswith('tracking '))


def test_the_calibration_of_another_camera_is_refused(stack):
    watcher, truth, other = Watcher(stack, publish_tf=False), list(steps(poses_of(12))), info(K @ np.diag([2.0, 2.0, 1.0]))
    other.header.frame_id = 'depth'
    watcher.hear(other, *map(cloud_of, truth[:5]))
    line = "~/odometry waits: CameraInfo on /camera_info is of frame_id 'depth', the images are of 'camera': remap camera_info"
    wait_for(lambda: line in watcher.status()[1])
    assert not watcher.messages
    watcher.hear(info(), other, *map(cloud_of, truth[5:]))
    wait_for(lambda: watcher.messages)


def test_odometry_restarts_at_last_pose_only_if_calibration_changes(stack, capfd):
    watcher, truth = Watcher(stack, publish_tf=False), list(steps(poses_of(30)))
    watcher.hear(info(), *map(cloud_of, truth[:8]), info(), *map(cloud_of, truth[8:14]))
    wait_for(lambda: len(watcher.messages) >= 13)
    assert 'calibration' not in capfd.readouterr().err
    before = len(watcher.messages)
    watcher.hear(info(K @ np.diag([1.01, 1.01, 1])), *map(cloud_of, truth[14:]))
    wait_for(lambda: len(watcher.messages) >= before + 10)
    assert 'the calibration has changed, fx 500.00' in capfd.readouterr().err
    assert_continuous(watcher)


def test_a_pair_that_is_refused_for_a_moment_and_comes_back_goes_on(stack, capfd):
    watcher, truth = Watcher(stack, publish_tf=False), list(steps(poses_of(24)))
    for baseline, part in ((BASELINE, truth[:8]), (0.0, truth[8:9]), (BASELINE, truth[9:])):
        watcher.right_infos.publish(info(shift=baseline))
        watcher.hear(info(), *(cloud_of(step, right=STRAIGHT) for step in part))
    wait_for(lambda: watcher.messages and watcher.messages[-1].header.stamp == cloud_of(truth[-1]).header.stamp)
    log = capfd.readouterr().err
    assert '~/odometry waits: the CameraInfos have no baseline' in log
    assert 'the calibration has changed' not in log
    assert_continuous(watcher)


def test_a_calibration_that_quivers_with_autofocus_costs_no_poses(stack, capfd):
    watcher, truth = Watcher(stack, publish_tf=False), list(steps(poses_of(16)))
    for number, step in enumerate(truth):
        watcher.hear(info(K @ np.diag([1 + 1e-4 * (number % 3), 1 + 1e-4 * (number % 3), 1])), cloud_of(step, depth=True))
    wait_for(lambda: len(watcher.messages) >= 14)
    assert 'has changed' not in capfd.readouterr().err


def test_calibrations_that_alternate_give_no_flood_of_lines(stack, capfd):
    watcher, truth = Watcher(stack, publish_tf=False), list(steps(poses_of(24)))
    for number in range(0, 24, 3):
        watcher.hear(info(K @ np.diag([1 + 0.1 * (number % 2), 1 + 0.1 * (number % 2), 1])),
                     *(cloud_of(step, depth=True) for step in truth[number:number + 3]))
    log = capfd.readouterr().err
    assert log.count('the calibration has changed') == 1, log
    assert log.count('] [odometry]: tracking') <= 2, log


def test_two_publishers_of_its_clouds_are_said_by_the_odometry(stack, capfd):
    watcher, truth = Watcher(stack, publish_tf=False), list(steps(poses_of(16)))
    other = watcher.peer.node.create_publisher(PointCloud2, '/matcher/matches', 10)
    wait_for(other.get_subscription_count)
    watcher.hear(info())
    for step in truth:
        watcher.hear(cloud_of(step, depth=True))
        other.publish(cloud_of(step))
    wait_for(lambda: '/matcher/matches has 2 publishers, and their matches come mixed' in watcher.status()[1])
    assert watcher.status()[0] == DiagnosticStatus.WARN
    log = capfd.readouterr().err
    assert log.count('has 2 publishers') == 1, log
    assert log.count('[INFO]') < 9, log


def test_poses_are_continuous_across_stereo_mono_and_time_going_back(stack, capfd):
    watcher, truth = Watcher(stack, publish_tf=False), list(steps(poses_of(40)))
    watcher.right_infos.publish(info(shift=BASELINE))
    watcher.hear(info(), *(cloud_of(step, right=STRAIGHT) for step in truth[:12]))
    wait_for(lambda: len(watcher.messages) >= 11)
    watcher.hear(*map(cloud_of, truth[12:24]), *(cloud_of(step, right=STRAIGHT) for step in truth[24:30]))
    wait_for(lambda: watcher.messages[-1].header.stamp.nanosec == cloud_of(truth[29]).header.stamp.nanosec)
    assert_continuous(watcher)
    poses, first = watcher.poses(), watcher.messages[0].header.stamp
    begun = round((first.sec + first.nanosec / SECOND - truth[0].stamp) * 10)
    moved = np.linalg.norm(poses[-1, :3, 3] - poses[0, :3, 3])
    assert moved == pytest.approx(np.linalg.norm(truth[29].pose[:3, 3] - truth[begun].pose[:3, 3]), rel=0.1), 'metres, more or less'
    last = len(watcher.messages)
    capfd.readouterr()
    watcher.hear(*(cloud_of(step, right=STRAIGHT) for step in truth[:6]))
    wait_for(lambda: len(watcher.messages) >= last + 4)
    assert 'time went back by 2.900 s: it begins anew where it was' in capfd.readouterr().err
    assert_continuous(watcher)


def assert_continuous(watcher: Watcher) -> None:
    """No pose is further from the one before than a few frames' way, and every velocity is that of the frames."""
    way = np.linalg.norm(np.diff(watcher.poses()[:, :3, 3], axis=0), axis=1)
    assert way.max() < 6 * np.median(way)
    assert np.linalg.norm(watcher.poses()[-1, :3, 3]) > 5 * np.median(way)
    speeds = np.array([np.linalg.norm([each.x, each.y, each.z]) for each in (one.twist.twist.linear for one in watcher.messages)])
    np.testing.assert_allclose(speeds, np.median(speeds), rtol=0.25)


def test_lost_is_a_warning_and_it_begins_anew_within_ten_frames(stack, capfd):
    """Twenty frames without a point, as of a black image, and other tracks afterwards."""
    watcher, truth = Watcher(stack, publish_tf=False), list(steps(poses_of(60)))
    watcher.hear(info(), *map(cloud_of, truth[:12]))
    wait_for(lambda: len(watcher.messages) >= 9)
    wait_for(lambda: watcher.status()[2].get('state') == 'tracking')
    nobody = [each._replace(**{name: getattr(each, name)[:0] for name in ('ids', 'points', 'reference_points', 'right_x')})
              for each in truth[12:32]]
    watcher.hear(*map(cloud_of, nobody))
    wait_for(lambda: watcher.status()[1].startswith('lost for '))
    level, _, figures = watcher.status()
    assert (level, figures['state'], figures['times lost'], figures['points']) == (DiagnosticStatus.WARN, 'lost', '1', '0')
    before = len(watcher.messages)
    watcher.hear(*(cloud_of(each._replace(ids=each.ids + 10_000)) for each in truth[32:42]))
    wait_for(lambda: len(watcher.messages) > before)
    log = capfd.readouterr().err
    assert log.count('lost: too few tracks agree') == 1
    assert '[WARN]' in log
    wait_for(lambda: watcher.status()[0] == DiagnosticStatus.OK)


def test_odometry_lost_again_and_again_logs_that_once(stack, capfd):
    watcher, truth = Watcher(stack, publish_tf=False), list(steps(poses_of(36)))
    watcher.hear(info(), *(cloud_of(each._replace(ids=each.ids + 10_000 * (number // 6)), depth=True)
                           for number, each in enumerate(truth)))
    wait_for(lambda: watcher.status()[2].get('times lost') == '5')
    log = capfd.readouterr().err
    assert log.count('lost: too few tracks agree') == 1
    assert log.count('] [odometry]: tracking') == 2, 'before that and after it'


def test_odometry_slower_than_its_clouds_warns_until_it_keeps_up(stack, monkeypatch, capfd):
    add = MatchOdometry.add

    def add_slowly(odometry, matches):
        time.sleep(0.08)
        return add(odometry, matches)
    watcher, truth = Watcher(stack, publish_tf=False), list(steps(poses_of(60)))
    watcher.hear(info())
    with monkeypatch.context() as patch:
        patch.setattr(MatchOdometry, 'add', add_slowly)
        for step in truth:
            watcher.clouds.publish(cloud_of(step, depth=True))
            time.sleep(0.03)
        wait_for(lambda: 'slower than the matcher: a cloud takes' in watcher.status()[1])
        assert watcher.status()[0] == DiagnosticStatus.WARN
    assert capfd.readouterr().err.count('slower than the matcher') == 1
    later = [each._replace(stamp=each.stamp + 10) for each in truth[:30]]
    watcher.hear(*(cloud_of(each, depth=True) for each in later))
    wait_for(lambda: watcher.status()[0] == DiagnosticStatus.OK)


def test_lost_odometry_is_silent_and_resumes_in_metres_with_depth(stack):
    watcher, truth = Watcher(stack, publish_tf=False), list(steps(poses_of(40)))
    watcher.hear(info(), *(cloud_of(step, depth=True) for step in truth[:12]))
    wait_for(lambda: len(watcher.messages) == 12)
    few = [each._replace(**{name: getattr(each, name)[:5] for name in ('ids', 'points', 'reference_points', 'right_x')})
           for each in truth[12:20]]
    watcher.hear(*(cloud_of(each, depth=True) for each in few))
    wait_for(lambda: watcher.status()[2].get('clouds received') == '20')
    assert watcher.status()[2]['times lost'] == '1'
    assert watcher.status()[2]['state'] in ('lost', 'starting')
    assert len(watcher.messages) == 12
    watcher.hear(*(cloud_of(each._replace(ids=each.ids + 10_000), depth=True) for each in truth[20:32]))
    wait_for(lambda: len(watcher.messages) >= 23)
    poses, way = watcher.poses()[:, :3, 3], np.array([step.pose[:3, 3] for step in truth])
    step_m = np.linalg.norm(np.diff(way, axis=0), axis=1).max()
    assert np.linalg.norm(poses[12] - poses[11]) < 10 * step_m
    first = len(poses) - 11
    assert np.linalg.norm(poses[-1] - poses[first]) == pytest.approx(np.linalg.norm(way[31] - way[21]), rel=0.02), 'metres'


def test_a_silent_matcher_is_told_in_the_diagnostics(stack):
    watcher = Watcher(stack, publish_tf=False)
    wait_for(lambda: watcher.status()[1].startswith('no cloud on /matcher/matches for '))
    assert watcher.peer.reports[-1].status[0].name == 'odometry: poses'
    assert watcher.status()[1].endswith('is the matcher active, and does it see images?')


def test_where_camera_info_is_missing_image_is_to_be_remapped(stack):
    """By the topic of the images it knows whether they are rectified."""
    watcher, (step, *_) = Watcher(stack, publish_tf=False), steps(poses_of(3))
    watcher.peer.node.destroy_publisher(watcher.infos)
    watcher.peer.node.create_publisher(CameraInfo, '/left/camera_info', 10)
    reason = 'there is one on /left/camera_info: start this node with --ros-args -r image:=TOPIC, the topic of the images'
    wait_for(lambda: (watcher.hear(cloud_of(step)), reason in watcher.status()[1])[1])


def test_matches_of_another_topic_are_named_where_none_come(stack, capfd, monkeypatch):
    monkeypatch.setattr('lightglue_trt_ros.ros.odometry_node.ALONE_S', 3.0)
    watcher = Watcher(stack, publish_tf=False)
    watcher.peer.node.create_publisher(PointCloud2, '/matcher/front/matches', 1)
    watcher.peer.node.create_publisher(PointCloud2, '/points', 1)
    watcher.peer.node.destroy_publisher(watcher.clouds)
    reason = ('nobody publishes it; matches come on /matcher/front/matches: start this node with --ros-args -r '
              'matcher/matches:=/matcher/front/matches')
    wait_for(lambda: watcher.status()[1].endswith(reason))
    assert capfd.readouterr().err.count(reason) == 1


@pytest.mark.release
def test_matches_that_it_never_receives_are_named_with_the_remedy(stack, capfd, monkeypatch):
    monkeypatch.setattr('lightglue_trt_ros.ros.odometry_node.ALONE_S', 3.0)
    watcher = Watcher(stack, publish_tf=False)
    watcher.peer.node.destroy_publisher(watcher.clouds)
    shy = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
    watcher.peer.node.create_publisher(PointCloud2, '/matcher/matches', shy)
    reason = ('s: peer publishes best effort, which a reliable subscription never receives; set the reliability in the '
              'qos_overrides of this topic to best_effort')
    wait_for(lambda: watcher.status()[1].endswith(reason))
    assert capfd.readouterr().err.count(reason) == 1


def test_without_camera_info_odometry_waits_and_drops_bad_clouds(stack, capfd):
    watcher = Watcher(stack, publish_tf=False)
    truth = list(steps(poses_of(10)))
    for step in truth[:3]:
        watcher.clouds.publish(cloud_of(step))
    watcher.clouds.publish(PointCloud2(header=header(2 * SECOND)))
    time.sleep(0.5)
    watcher.infos.publish(info(np.zeros((3, 3))))
    time.sleep(0.3)
    watcher.clouds.publish(cloud_of(truth[3]))
    time.sleep(0.2)
    assert not watcher.messages
    log = capfd.readouterr().err
    assert log.count('~/odometry waits for a CameraInfo on /camera_info') == 1
    assert log.count('is refused: K of the CameraInfo is [[0.0') == 1
    assert log.count('cloud dropped, cloud lacks u, v') == 1
    watcher.infos.publish(info())
    time.sleep(0.3)
    for step in truth[4:]:
        watcher.clouds.publish(cloud_of(step))
    wait_for(lambda: len(watcher.messages) > 3)


@pytest.mark.release
def test_a_flight_through_the_real_matcher(stack):
    pytest.importorskip('skimage', reason='the flight shows photographs of scikit-image')
    flight = Flight(frames=14, height=240, width=320, rate_hz=5.0)
    settings = {'image_height': 240, 'image_width': 320, 'max_keypoints': 400, 'backend': 'onnxruntime',
                'weights': 'ours_light'}
    watcher = Watcher(stack, publish_tf=False)
    matcher = MatcherNode(parameter_overrides=as_parameters(settings))
    started(stack, matcher)
    peer = watcher.peer
    peer.wait_for_backend()
    watcher.infos.publish(info(flight.intrinsics, (320, 240)))
    frames = list(flight.render())
    for index, frame in enumerate(frames):
        peer.send(image_message(frame.stamp_ns, frame.image), clouds=min(index, 1))
        if not index:
            time.sleep(1.0)
    wait_for(lambda: len(watcher.messages) >= len(frames) - 3)
    truth = {frame.stamp_ns: frame.pose for frame in frames}
    true = np.stack([truth[each.header.stamp.sec * SECOND + each.header.stamp.nanosec] for each in watcher.messages])
    length = sum(np.linalg.norm(b[:3, 3] - a[:3, 3]) for a, b in itertools.pairwise(true))
    poses = watcher.poses()
    assert ate(align_sim3(poses, true).apply(poses), true) < 0.02 * length
