"""The executables as users run them: processes of their own, real networks, real DDS, parameters, messages on stderr."""

from __future__ import annotations

import signal
import sys
import time
from importlib import import_module

import numpy as np
import pytest

rclpy = pytest.importorskip('rclpy', reason='rclpy is not installed: the executables are not tested')
from nav_msgs.msg import Odometry
from sensor_msgs.msg import CameraInfo
from support.executables import ROOT, SMALL, finish, launch
from support.networks import moved, photo
from support.ros_helpers import SECOND, image_message
from support.waiting import wait_for

from lightglue_trt_eval.demo.flight import EPOCH_NS, Flight
from lightglue_trt_ros.cli.matcher import main as matcher
from lightglue_trt_ros.cli.odometry import main as odometry
from lightglue_trt_ros.ros.cloud_reader import matches_from_cloud
from lightglue_trt_ros.ros.launch_arguments import misplaced
from lightglue_trt_ros.ros.parameters import FIELDS

pytestmark = pytest.mark.release


@pytest.mark.parametrize(('number', 'weights'), [(signal.SIGINT, 'ours'), (signal.SIGTERM, 'ours_light')])
def test_real_networks_match_a_photograph_and_a_signal_ends_the_node(peer, number, weights):
    process = launch('cli.matcher', '--ros-args', *SMALL, '-p', f'weights:={weights}')
    try:
        image = photo('coffee', 240, 328)
        view, homography = moved(image)
        peer.wait_for_backend()
        peer.send(image_message(10 * SECOND, image))
        wait_for(lambda: peer.figures()['frames processed'] == '1')
        cloud = peer.send(image_message(10 * SECOND + SECOND // 10, view), clouds=1)[-1]
        matches = matches_from_cloud(cloud)
        projected = np.c_[matches.reference_keypoints, np.ones(len(matches))] @ homography.T
        error = np.linalg.norm(projected[:, :2] - matches.keypoints, axis=1)
        assert len(matches) > 80
        assert np.mean(error < 3) > 0.9
        peer.send(image_message(10 * SECOND + 2 * SECOND // 10, image))  # in flight while the signal comes
    finally:
        process.send_signal(number)
        started = time.monotonic()
        log = finish(process, 10)
    assert time.monotonic() - started < 2.0, 'a second where nothing else runs'
    assert process.returncode == 0, log
    assert 'Traceback' not in log
    assert 'backend: ONNX Runtime' in log
    assert 'auto: TensorRT cannot be used here' in log
    assert '[WARN]' in log, 'a fallback is said at WARN'
    assert 'running on ONNX Runtime, not on TensorRT: ' in log


@pytest.mark.parametrize(('arguments', 'words'), [
    (['-p', 'match_treshold:=0.2'], 'did you mean match_threshold?'), (['-p', 'max_keypoints:=many'], "max_keypoints is 'many'")])
def test_bad_parameters_end_the_node_with_one_line(arguments, words, capfd):
    assert matcher(['--ros-args', *arguments]) == 1
    log = capfd.readouterr().err
    assert words in log
    assert 'Traceback' not in log


def test_a_params_file_with_an_unknown_key_is_refused(tmp_path):
    params = tmp_path / 'params.yaml'
    params.write_text((ROOT / 'config' / 'matcher.yaml').read_text().replace('max_gap_s', 'max_gap'))
    process = launch('cli.matcher', '--ros-args', '--params-file', str(params))
    assert "unknown setting 'max_gap': did you mean max_gap_s?" in finish(process)
    assert process.returncode == 1


@pytest.mark.parametrize('main', [matcher, odometry])
def test_an_empty_list_is_refused_with_its_name_and_file(tmp_path, monkeypatch, capfd, main):
    params = tmp_path / 'params.yaml'
    params.write_text('/**: {ros__parameters: {cameras: [], arm: {joints: []}}}')
    monkeypatch.setattr(sys, 'argv', ['node', '--ros-args', '--params-file', str(params)])
    assert main() == 1
    assert (f': cameras in {params}, arm.joints in {params}: an empty list, for which ROS has no type; '
            "write [''], or leave it out\n") in capfd.readouterr().err


def test_foreign_parameters_are_ignored_and_launch_lists_are_read(peer, tmp_path):
    params = tmp_path / 'params.yaml'
    params.write_text((ROOT / 'config' / 'matcher.yaml').read_text().replace('matcher:', '/**:')
                      + '    camera: {exposure_us: 500}\n    image_topic: /left\n')
    launched = tmp_path / 'launch_params.yaml'  # as launch writes the overrides of a launch file
    launched.write_text('/**:\n  ros__parameters:\n    cameras: !!python/tuple\n    - front\n    - rear\n')
    process = launch('cli.matcher', '--ros-args', '--params-file', str(params), '--params-file', str(launched), *SMALL,
                     '-p', 'weights:=ours_light')
    try:
        peer.wait_for_backend()
    finally:
        process.send_signal(signal.SIGINT)
        log = finish(process)
    assert process.returncode == 0, log
    assert ('a params file gives camera.exposure_us, image_topic to every node (/**): this node has no such parameter; if its '
            'topics are meant, start it with --ros-args -r image:=/left\n') in log
    assert '/matcher/rear/matches' in log


COMMANDS = sorted(f'{package}.cli.{path.stem}' for package in ('lightglue_trt_ros', 'lightglue_trt_eval')
                  for path in (ROOT / package / 'cli').glob('[a-z]*.py'))


@pytest.mark.parametrize('command', COMMANDS)
def test_every_command_explains_itself_and_refuses_what_it_does_not_know(command, capfd):
    main = import_module(command).main
    for word, code in (('--help', 0), ('--frobnicate', 2)):
        with pytest.raises(SystemExit) as ended:
            sys.exit(main([word]))
        assert ended.value.code == code
        printed = capfd.readouterr()
        if word == '--help':
            assert printed.out.startswith(f'usage: {command.rpartition(".")[2]} ')
        else:
            assert '--frobnicate' in printed.err or 'required' in printed.err
            assert 'Traceback' not in printed.err


@pytest.mark.parametrize(('arguments', 'words'), [
    (['--log-level', 'verbose'], "'--log-level verbose'"), (['--params-file', '/nowhere.yaml'], "'--params-file /nowhere.yaml'"),
    (['--frobnicate'], '--frobnicate')])
def test_ros_arguments_that_ros_refuses_end_the_node_with_one_line(arguments, words, capfd):
    with pytest.raises(SystemExit) as ended:
        matcher(['--ros-args', *arguments])
    assert ended.value.code == 2
    log = ''.join(capfd.readouterr())
    assert log.startswith('matcher: ')
    assert words in log
    assert len(log.strip().splitlines()) == 1


def test_a_log_that_cannot_begin_names_the_variables_to_set(tmp_path):
    """As in a systemd unit, which has no HOME, or on a read-only disk."""
    (tmp_path / 'file').touch()
    process = launch('cli.matcher', ROS_LOG_DIR=str(tmp_path / 'file' / 'log'))
    log = finish(process)
    assert process.returncode == 2, log
    assert log.startswith('matcher: failed to initialize logging')
    assert log.endswith('; set ROS_LOG_DIR or HOME\n')


def test_a_parameter_without_its_option_is_refused(capfd):
    with pytest.raises(SystemExit) as ended:
        matcher(['weights:=ours_light'])
    assert ended.value.code == 2
    log = capfd.readouterr().err
    assert 'weights:=ours_light remaps a name, and weights is a parameter: write --ros-args -p weights:=ours_light' in log
    words = ['image:=/left', '--ros-args', '-p', 'depth:=true', '-r', 'depth:=/aligned', 'depth:=false']
    assert [*misplaced(words, FIELDS)] == ['depth:=false remaps a name, and depth is a parameter: write --ros-args -p depth:=false']


def test_a_topic_given_as_a_parameter_is_refused_with_its_remapping(capfd):
    for word, remapping in (('image:=/left', 'image:=/left'), ('right_image_topic:=/right', 'right/image:=/right')):
        with pytest.raises(SystemExit) as ended:
            matcher(['--ros-args', '-p', 'match_threshold:=0.3', '-p', word])
        assert ended.value.code == 2
        assert capfd.readouterr().err.endswith(f' is a topic: write --ros-args -r {remapping}\n')


def test_a_remapped_argument_of_the_launch_file_is_refused(capfd):
    for words in (['--ros-args', '-r', 'image_topic:=/left'], ['image_topic:=/left']):
        with pytest.raises(SystemExit):
            odometry(words)
        assert capfd.readouterr().err.endswith('remaps a name that this node does not have: write --ros-args -r image:=/left\n')
    with pytest.raises(SystemExit):
        odometry(['base_frame:=base_link'])
    assert capfd.readouterr().err.endswith('base_frame is a parameter: write --ros-args -p base_frame:=base_link\n')
    assert not [*misplaced(['--ros-args', '-r', 'image:=/image_topic', '-r', 'mask:=/a', '-p', 'depth:=true'], FIELDS)]


@pytest.mark.slow
def test_black_frames_lose_odometry_which_recovers_within_ten_frames(peer):
    """Real networks, two processes: 25 frames of a flight, 20 black ones, which are two seconds at 10 Hz, and the flight's next."""
    pytest.importorskip('skimage', reason='the flight shows photographs of scikit-image')
    flight = Flight(frames=55, height=192, width=256, rate_hz=10.0)
    sizes = ['-p', 'image_height:=192', '-p', 'image_width:=256', '-p', 'max_keypoints:=150', '-p', 'weights:=ours_light']
    processes = [launch('cli.matcher', '--ros-args', *sizes), launch('cli.odometry')]
    poses: list[Odometry] = []
    own = [peer.node.create_subscription(Odometry, '/odometry/odometry', poses.append, 100)]
    infos = peer.node.create_publisher(CameraInfo, '/camera_info', 10)
    try:
        wait_for(lambda: 'ONNX Runtime' in str(peer.reports), 40)
        wait_for(infos.get_subscription_count, 30)
        infos.publish(CameraInfo(width=256, height=192, distortion_model='plumb_bob', d=[0.0] * 5, k=flight.intrinsics.ravel()))
        again = []
        black = np.zeros((192, 256), np.uint8)
        for number in range(55):
            stamp_ns = EPOCH_NS + number * SECOND // 10
            image = black if 25 <= number < 45 else flight.frame(number).image
            peer.send(image_message(stamp_ns, image), clouds=min(number, 1))
            if number in (0, 24, 44):
                time.sleep(1.0)  # for what is published of it
            if number == 24:
                assert len(poses) > 15
            if number >= 45:
                again.append(len(poses))
        wait_for(lambda: poses[-1].header.stamp.nanosec == peer.clouds[-1].header.stamp.nanosec)
    finally:
        for process in processes:
            process.send_signal(signal.SIGINT)
        logs = [finish(process, 20) for process in processes]
        for each in own:
            peer.node.destroy_subscription(each)
        peer.node.destroy_publisher(infos)
    assert [process.returncode for process in processes] == [0, 0], logs
    assert logs[1].count('lost: too few tracks agree') == 1
    assert '[WARN]' in logs[1]
    assert len(poses) > again[0], 'it publishes again'
    assert 'Traceback' not in ''.join(logs)


def test_odometry_ends_on_sigterm_and_refuses_wrong_parameter_type():
    process = launch('cli.odometry')
    try:
        started = next((line for line in process.stdout if 'publishing /odometry/odometry' in line), '')
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)
        log = started + process.stdout.read()
    assert started, log
    assert process.returncode == 0, log
    assert 'Traceback' not in log
    refused = launch('cli.odometry', '--ros-args', '-p', 'odom_frame:=5')
    log = finish(refused)
    assert refused.returncode == 1, log
    assert log.startswith('odometry: ')
    assert 'odom_frame' in log
    assert len(log.strip().splitlines()) == 1


def test_missing_weights_leave_the_node_inactive_with_instructions(peer, tmp_path):
    process = launch('cli.matcher', '--ros-args', *SMALL, '-p', 'weights:=magicleap', LIGHTGLUE_TRT_CACHE=str(tmp_path))
    try:
        wait_for(lambda: 'fetch_weights magicleap' in peer.status()[1], 30)
    finally:
        process.send_signal(signal.SIGINT)
        log = finish(process)
    assert 'not activated' in log
    assert 'read-only parameters change only by a restart' in log
    assert str(tmp_path) in log
