"""The executables as users run them: processes of their own, real networks, real DDS, signals, messages on stderr."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import cv2
import numpy as np
import pytest

rclpy = pytest.importorskip('rclpy', reason='rclpy is not installed: the executables are not tested')
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from nav_msgs.msg import Odometry
from rcl_interfaces.srv import GetParameters, SetParameters
from rclpy.parameter import Parameter
from sensor_msgs.msg import CameraInfo, PointCloud2
from std_srvs.srv import Trigger
from support.full_disks import FULL, room_for
from support.networks import moved, photo
from support.ros_helpers import SECOND, Peer, image_message, wait_for

from lightglue_trt_ros.cli.export_onnx import main as export_onnx
from lightglue_trt_ros.datasets.flight import Flight
from lightglue_trt_ros.ros.clouds import matches_from_cloud

ROOT = Path(__file__).parents[2]
SMALL = ['-p', 'image_height:=240', '-p', 'image_width:=328', '-p', 'max_keypoints:=256']


def launch(module: str, *arguments: str, **variables: str) -> subprocess.Popen:
    environment = {**os.environ, 'PYTHONPATH': os.pathsep.join([str(ROOT), os.environ.get('PYTHONPATH', '')]), **variables}
    return subprocess.Popen([sys.executable, '-m', f'lightglue_trt_ros.{module}', *arguments], env=environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def finish(process: subprocess.Popen, timeout: float = 60) -> str:
    return process.communicate(timeout=timeout)[0]


@pytest.fixture
def peer():
    """A participant for each test: a second try does not meet what Fast DDS kept of all the processes before it."""
    rclpy.init()
    peer = Peer()
    yield peer
    peer.close()
    rclpy.try_shutdown()


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_real_networks_match_a_photograph_and_a_signal_ends_the_node_within_a_second(peer, number):
    process = launch('cli.matcher', '--ros-args', *SMALL)
    try:
        image = photo('coffee', 240, 328)
        view, homography = moved(image)
        wait_for(lambda: 'ONNX Runtime' in peer.figures().get('backend', ''), 30)
        peer.send(image_message(10 * SECOND, image))
        time.sleep(1.0)
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


NODE = """
import argparse, os, signal, subprocess, sys, threading, time
from lightglue_trt_ros.utils.commands import node_command

@node_command('matcher')
def main(argv, ending):
    from lightglue_trt_ros.ros.matcher.node import MatcherNode, run
    from lightglue_trt_ros.ros.executor import ros_started
    with ros_started(argparse.ArgumentParser(prog='matcher'), argv, ending):
        run(MatcherNode(opening), ending)
    return 0
"""
STARTING = NODE + """
def opening(config, *, cancelled):
    from lightglue_trt_ros.utils.errors import EngineError
    os.kill(os.getpid(), signal.SIGTERM)
    while not cancelled():
        time.sleep(0.01)
    raise EngineError('no engine')

sys.exit(main())
"""


def test_a_signal_while_the_node_activates_ends_it_without_an_error():
    environment = {**os.environ, 'PYTHONPATH': os.pathsep.join([str(ROOT), os.environ.get('PYTHONPATH', '')])}
    done = subprocess.run([sys.executable, '-c', STARTING], env=environment, text=True, capture_output=True, timeout=60)
    assert 'Traceback' not in done.stderr
    assert done.returncode == 0, done.stderr


BUILDING = NODE + """
def start(*words):
    builder = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])
    print(builder.pid, flush=True)
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    return builder

def opening(config, **cancelled):
    from lightglue_trt_ros.engines import selection
    selection.start = start
    selection._build(config, 'engines', 'fp16', *cancelled.values())

sys.exit(main())
"""


def test_a_signal_while_engines_are_built_ends_the_builder_too():
    environment = {**os.environ, 'PYTHONPATH': os.pathsep.join([str(ROOT), os.environ.get('PYTHONPATH', '')])}
    done = subprocess.run([sys.executable, '-c', BUILDING], env=environment, text=True, capture_output=True, timeout=50)
    assert done.returncode == 0, done.stderr
    assert not Path(f'/proc/{done.stdout.strip()}').exists()


@pytest.mark.parametrize(('arguments', 'words'), [
    (['-p', 'match_treshold:=0.2'], 'did you mean match_threshold?'), (['-p', 'image_width:=641'], 'image_width is 641'),
    (['-p', 'max_keypoints:=many'], "max_keypoints is 'many'"),
    (['-p', 'lightglue_weights:=auto'], "the setting 'lightglue_weights' is now weights")])
def test_bad_parameters_end_the_node_with_one_line(arguments, words):
    process = launch('cli.matcher', '--ros-args', *arguments)
    log = finish(process)
    assert process.returncode == 1
    assert words in log
    assert 'Traceback' not in log


def test_a_params_file_with_an_unknown_key_is_refused(tmp_path):
    params = tmp_path / 'params.yaml'
    params.write_text((ROOT / 'config' / 'matcher.yaml').read_text().replace('max_gap_s', 'max_gap'))
    process = launch('cli.matcher', '--ros-args', '--params-file', str(params))
    assert "unknown setting 'max_gap': did you mean max_gap_s?" in finish(process)
    assert process.returncode == 1


def test_parameters_of_another_node_in_a_file_for_all_are_left_alone_and_lists_of_launch_are_read(peer, tmp_path):
    params = tmp_path / 'params.yaml'
    params.write_text((ROOT / 'config' / 'matcher.yaml').read_text() + '    camera: {exposure_us: 500}\n')
    launched = tmp_path / 'launch_params.yaml'  # as launch writes the overrides of a launch file
    launched.write_text('/**:\n  ros__parameters:\n    cameras: !!python/tuple\n    - front\n    - rear\n')
    process = launch('cli.matcher', '--ros-args', '--params-file', str(params), '--params-file', str(launched), *SMALL)
    try:
        wait_for(lambda: 'ONNX Runtime' in peer.figures().get('backend', ''), 30)
    finally:
        process.send_signal(signal.SIGINT)
        log = finish(process)
    assert process.returncode == 0, log
    assert 'camera.exposure_us' in log
    assert '/matcher/rear/matches' in log


def test_a_signal_while_graphs_are_written_ends_the_node_and_the_writing(tmp_path):
    process = launch('cli.matcher', '--ros-args', LIGHTGLUE_TRT_CACHE=str(tmp_path))  # at the defaults, which takes seconds

    def writers() -> list[str]:
        children = ''.join(path.read_text() for path in Path(f'/proc/{process.pid}/task').glob('*/children')).split()
        return [child for child in children if 'lightglue_trt_ros.utils.processes' in Path(f'/proc/{child}/cmdline').read_text()]

    (writer,) = wait_for(writers, 30)
    process.send_signal(signal.SIGINT)
    log = finish(process, 20)
    assert process.returncode == 0, log
    assert 'left behind' not in log
    assert not Path(f'/proc/{writer}').exists()


BUSY = """
import sys
import numpy as np
from lightglue_trt_ros.backends.onnxruntime import OnnxRuntimeBackend
from lightglue_trt_ros.cli import matcher
from lightglue_trt_ros.networks.models import load_model
from lightglue_trt_ros.ros.matcher import node

def opened(config, *, cancelled):
    backend, image = OnnxRuntimeBackend(config.engine_spec('fp32'), load_model('ours_light')), np.zeros((48, 64), np.uint8)
    print('busy', flush=True)
    while True:
        backend.extract(image)

node.STOP_S = 0.2
node.MatcherNode.__init__.__defaults__ = (opened,)
sys.exit(matcher.main())
"""


def test_a_thread_that_is_left_behind_in_c_plus_plus_does_not_abort_the_process():
    small = ['-p', 'image_height:=48', '-p', 'image_width:=64', '-p', 'max_keypoints:=50']
    process = subprocess.Popen([sys.executable, '-c', BUSY, '--ros-args', *small], text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, env={**os.environ, 'PYTHONPATH': str(ROOT)})
    while process.stdout.readline() not in ('busy\n', ''):
        pass
    process.send_signal(signal.SIGINT)
    log = finish(process, 20)
    assert process.returncode == 0, log
    assert 'left behind' in log


COMMANDS = sorted(path.stem for path in (ROOT / 'lightglue_trt_ros' / 'cli').glob('[a-z]*.py'))


@pytest.mark.parametrize('command', COMMANDS)
def test_every_command_explains_itself_and_refuses_what_it_does_not_know(command, capfd):
    main = import_module(f'lightglue_trt_ros.cli.{command}').main
    for word, code in (('--help', 0), ('--frobnicate', 2)):
        with pytest.raises(SystemExit) as ended:
            sys.exit(main([word]))
        assert ended.value.code == code
        printed = capfd.readouterr()
        if word == '--help':
            assert printed.out.startswith(f'usage: {command} ')
        else:
            assert '--frobnicate' in printed.err or 'required' in printed.err
            assert 'Traceback' not in printed.err


@pytest.mark.parametrize(('arguments', 'words'), [
    (['--log-level', 'verbose'], "'--log-level verbose'"), (['--params-file', '/nowhere.yaml'], "'--params-file /nowhere.yaml'"),
    (['--frobnicate'], '--frobnicate')])
def test_ros_arguments_that_ros_refuses_end_the_node_with_one_line(arguments, words):
    process = launch('cli.matcher', '--ros-args', *arguments)
    log = finish(process)
    assert process.returncode == 2, log
    assert log.startswith('matcher: ')
    assert words in log
    assert len(log.strip().splitlines()) == 1


def test_simulated_time_without_a_clock_stops_neither_diagnostics_nor_signals(peer):
    process = launch('cli.matcher', '--ros-args', *SMALL, '-p', 'use_sim_time:=true')
    try:
        wait_for(lambda: 'no image on /image' in peer.status()[1], 30)
    finally:
        process.send_signal(signal.SIGTERM)
        log = finish(process, 10)
    assert process.returncode == 0, log


def test_signals_while_it_ends_change_nothing(peer):
    for pause in (0.0, 0.02, 0.05, 0.1):
        process = launch('cli.matcher', '--ros-args', *SMALL)
        wait_for(lambda: 'ONNX Runtime' in peer.figures().get('backend', ''), 30)
        for _ in range(8):
            process.send_signal(signal.SIGINT)
            time.sleep(pause)
        log = finish(process, 10)
        assert process.returncode == 0, log
        assert 'Traceback' not in log
        peer.reports.clear()


STATUS = re.compile(r'SigCgt:\s*(\w+)')


@pytest.mark.parametrize('command', ['matcher', 'odometry', 'play_bag'])
def test_signals_end_a_node_with_0_from_its_start_on(command, tmp_path):
    """From where Python, which takes a tenth of a second, has come to the node's own first line; imports take a second and more."""
    def hears(process: subprocess.Popen) -> bool:
        caught = int(STATUS.search(Path(f'/proc/{process.pid}/status').read_text())[1], 16)
        return bool(caught & 1 << (signal.SIGTERM - 1))

    arguments = [str(recording(tmp_path)), '--subscriber-timeout', '60'] if command == 'play_bag' else []
    for step in range(8):
        number = (signal.SIGINT, signal.SIGTERM)[step % 2]
        process = launch(f'cli.{command}', *arguments)
        wait_for(lambda: hears(process))  # noqa: B023
        time.sleep(0.2 * step)
        process.send_signal(number)
        log = finish(process, 10)
        assert process.returncode == 0, f'{number.name} after {0.2 * step:.1f} s: {log}'
        assert 'Traceback' not in log


def recording(folder: Path) -> Path:
    """Two frames, as an image folder."""
    (folder / 'images').mkdir()
    for name in ('000000.png', '000001.png'):
        cv2.imwrite(str(folder / 'images' / name), np.zeros((48, 64), np.uint8))
    (folder / 'timestamps.txt').write_text('1.0\n1.1\n')
    return folder


ATTACKED = """
import os, sys, threading, traceback
from lightglue_trt_ros.utils.commands import node_command
from lightglue_trt_ros.engines.selection import Opened

node_name, where, times = sys.argv.pop(1), sys.argv.pop(1), int(sys.argv.pop(1))

def failing(owner, name):
    healthy = getattr(owner, name)
    def fails(*arguments, **words):
        global times
        times -= 1
        if times >= 0:
            raise ZeroDivisionError(f'injected into {name}')
        return healthy(*arguments, **words)
    fails.__name__ = name
    setattr(owner, name, fails)

if node_name == 'matcher':
    from lightglue_trt_ros.ros.timing.null_backend import NullBackend
    from lightglue_trt_ros.ros.matcher import node
    from lightglue_trt_ros.utils.errors import EngineError
    refusals = [EngineError('no engine')] if where == '_give_up' else []
    def opening(config, *, cancelled):
        if refusals:
            raise refusals.pop()
        return Opened(NullBackend(config.engine_spec('fp32')), 'null')
    node.MatcherNode.__init__.__defaults__ = (opening,)
    from lightglue_trt_ros.ros.matcher.camera_interface import CameraInterface
    from lightglue_trt_ros.ros.matcher.keyframe_topics import KeyframeTopics
    from lightglue_trt_ros.ros.matcher.mask_topic import CameraMasks
    from lightglue_trt_ros.ros.matcher.paired_images import PairedImages
    from lightglue_trt_ros.ros.camera_info import CameraListener
    owner = {'_on_image': CameraInterface, '_on_mask': CameraMasks, '_on_request': KeyframeTopics, '_on_info': CameraListener,
             'depth': PairedImages}.get(where, node.MatcherNode)
    from lightglue_trt_ros.cli.matcher import main
else:
    from lightglue_trt_ros.ros.camera_info import CameraListener
    from lightglue_trt_ros.ros.odometry_node import OdometryNode
    owner = CameraListener if where == '_on_info' else OdometryNode
    from lightglue_trt_ros.cli.odometry import main
failing(owner, '_on_image' if where == 'depth' else where)
sys.exit(main())
"""


def attacked(node: str, where: str, times: int = 1) -> subprocess.Popen:
    """The executable, whose method `where` raises the first `times` times that it is called."""
    environment = {**os.environ, 'PYTHONPATH': os.pathsep.join([str(ROOT), os.environ.get('PYTHONPATH', '')])}
    more = {'_on_request': ['-p', 'keyframes:=2'], '_on_info': ['-p', 'depth:=true'], 'depth': ['-p', 'depth:=true']}
    settings = ['--ros-args', *SMALL, *more.get(where, [])] if node == 'matcher' else []
    return subprocess.Popen([sys.executable, '-c', ATTACKED, node, where, str(times), *settings], env=environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def change(peer: Peer, transition: int) -> bool:
    request = ChangeState.Request(transition=Transition(id=transition))
    return peer.call(ChangeState, '/matcher/change_state', request, 20).success


def poke(peer: Peer, where: str) -> None:
    """What has the matcher call `where`."""
    if where == '_on_image':
        wait_for(peer.images.get_subscription_count)
        peer.images.publish(image_message(SECOND))
    elif where == '_on_reset':
        client = peer.node.create_client(Trigger, '/matcher/reset')
        assert client.wait_for_service(20)
        client.call_async(Trigger.Request())
    elif where == '_on_set_parameters':
        client = peer.node.create_client(SetParameters, '/matcher/set_parameters')
        assert client.wait_for_service(20)
        client.call_async(SetParameters.Request(parameters=[Parameter('match_threshold', value=0.3).to_parameter_msg()]))
    elif where in ('_on_mask', 'depth', '_on_info'):
        topic, message = {'_on_mask': ('/mask', image_message(SECOND)), 'depth': ('/depth', image_message(SECOND)),
                          '_on_info': ('/camera_info', CameraInfo())}[where]
        publisher = peer.node.create_publisher(type(message), topic, 1)
        for _ in range(5):  # best effort
            peer.send(message, publisher)
            time.sleep(0.1)
    elif where == '_on_request':
        client = peer.node.create_client(GetParameters, '/matcher/match_keyframes')
        assert client.wait_for_service(20)
        client.call_async(GetParameters.Request())
    elif where == 'stop':  # within on_deactivate
        assert not change(peer, Transition.TRANSITION_DEACTIVATE)
        assert change(peer, Transition.TRANSITION_CONFIGURE)
        assert change(peer, Transition.TRANSITION_ACTIVATE)


@pytest.mark.parametrize('where', ['_on_image', '_publish_diagnostics', '_on_reset', '_on_set_parameters', '_on_mask',
                                   '_on_request', '_on_info', 'depth', '_give_up', 'stop'])
def test_what_a_callback_raises_is_logged_with_its_traceback_and_the_matcher_goes_on(peer, where):
    process = attacked('matcher', where)
    try:
        wait_for(lambda: 'null' in peer.figures().get('backend', '') or 'no engine' in peer.status()[1], 30)
        poke(peer, where)
        wait_for(lambda: change(peer, Transition.TRANSITION_DEACTIVATE))
        assert change(peer, Transition.TRANSITION_ACTIVATE)
        peer.send(image_message(10 * SECOND))
        time.sleep(0.5)
        peer.send(image_message(10 * SECOND + SECOND // 10), clouds=1)
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGINT)
        log = finish(process, 20)
    assert process.returncode == 0, log
    assert log.count('Traceback (most recent call last)') == 1
    assert f'ZeroDivisionError: injected into {"_on_image" if where == "depth" else where}' in log


def test_transitions_that_are_not_allowed_are_refused_and_cost_the_matcher_nothing(peer):
    process = attacked('matcher', '_on_image', 0)
    try:
        wait_for(lambda: 'null' in peer.figures().get('backend', ''), 30)
        for transition in (Transition.TRANSITION_CONFIGURE, 99):
            assert not change(peer, transition)
        peer.send(image_message(10 * SECOND))
        time.sleep(0.5)
        peer.send(image_message(10 * SECOND + SECOND // 10), clouds=1)
        assert change(peer, Transition.TRANSITION_DEACTIVATE)
    finally:
        process.send_signal(signal.SIGTERM)
        log = finish(process, 20)
    assert process.returncode == 0, log
    assert 'Traceback' not in log


@pytest.mark.parametrize(('node', 'where', 'topic'), [
    ('matcher', '_on_image', '/image'), ('odometry', '_on_matches', '/matcher/matches')])
def test_a_callback_that_always_fails_ends_the_process_with_1_and_a_line(peer, node, where, topic):
    process = attacked(node, where, 1000)
    publisher = peer.images if node == 'matcher' else peer.node.create_publisher(PointCloud2, topic, 10)
    message = image_message(SECOND) if node == 'matcher' else PointCloud2()
    try:
        wait_for(lambda: publisher.publish(message) or time.sleep(0.02) or process.poll() is not None, 60)
    finally:
        process.kill()
        log = finish(process)
    assert process.returncode == 1, log
    last = log.splitlines()[-1]
    assert last.startswith(f'{node}: the callback of a Subscription {topic} failed 10 times in a row, the last time with: ZeroDiv')
    assert log.count('Traceback (most recent call last)') == 10


def test_where_cleaning_up_fails_too_the_process_ends_with_1_and_a_line(peer):
    process = attacked('matcher', 'on_cleanup', 2)
    try:
        wait_for(lambda: 'null' in peer.figures().get('backend', ''), 30)
        assert change(peer, Transition.TRANSITION_DEACTIVATE)
        client = peer.node.create_client(ChangeState, '/matcher/change_state')
        assert client.wait_for_service(20)
        client.call_async(ChangeState.Request(transition=Transition(id=Transition.TRANSITION_CLEANUP)))
        log = finish(process, 20)
    finally:
        process.kill()
    assert process.returncode == 1, log
    assert log.splitlines()[-1].startswith('matcher: cleaning up after an error failed: ')


@pytest.mark.parametrize('where', ['_on_matches', '_report', '_on_info'])
def test_what_a_callback_raises_is_logged_with_its_traceback_and_the_odometry_goes_on(peer, where):
    process = attacked('odometry', where)
    clouds = peer.node.create_publisher(PointCloud2, '/matcher/matches', 10)
    infos = peer.node.create_publisher(CameraInfo, '/camera_info', 10)
    try:
        wait_for(clouds.get_subscription_count, 30)
        wait_for(infos.get_subscription_count)
        wait_for(lambda: infos.publish(CameraInfo()) or clouds.publish(PointCloud2()) or 'cloud lacks u, v' in peer.status()[1], 30)
    finally:
        process.send_signal(signal.SIGTERM)
        log = finish(process, 10)
    for each in (clouds, infos):
        peer.node.destroy_publisher(each)
    assert process.returncode == 0, log
    assert log.count('Traceback (most recent call last)') == 1
    assert f'ZeroDivisionError: injected into {where}' in log


@pytest.mark.slow
def test_black_frames_lose_the_odometry_which_says_so_and_publishes_again_within_ten_frames(peer):
    """Real networks, two processes: 25 frames of a flight, 20 black ones, which are two seconds at 10 Hz, and the flight's next."""
    pytest.importorskip('skimage', reason='the flight shows photographs of scikit-image')
    flight = Flight(frames=55, height=160, width=208, rate_hz=10.0)
    sizes = ['-p', 'image_height:=160', '-p', 'image_width:=208', '-p', 'max_keypoints:=300', '-p', 'weights:=ours_light']
    matcher, odometry = launch('cli.matcher', '--ros-args', *sizes), launch('cli.odometry')
    poses: list[Odometry] = []
    own = [peer.node.create_subscription(Odometry, '/odometry/odometry', poses.append, 100)]
    infos = peer.node.create_publisher(CameraInfo, '/camera_info', 10)
    try:
        wait_for(lambda: 'ONNX Runtime' in str(peer.reports), 40)
        wait_for(infos.get_subscription_count, 30)
        infos.publish(CameraInfo(width=208, height=160, distortion_model='plumb_bob', d=[0.0] * 5, k=flight.intrinsics.ravel()))
        again = []
        for number, frame in enumerate(flight.render()):
            image = np.zeros_like(frame.image) if 25 <= number < 45 else frame.image
            peer.send(image_message(frame.stamp_ns, image), clouds=min(number, 1))
            if number in (0, 24, 44):
                time.sleep(1.0)  # for what is published of it
            if number == 24:
                assert len(poses) > 15
            if number >= 45:
                again.append(len(poses))
        wait_for(lambda: poses[-1].header.stamp.nanosec == peer.clouds[-1].header.stamp.nanosec)
    finally:
        for process in (matcher, odometry):
            process.send_signal(signal.SIGINT)
        logs = [finish(process, 20) for process in (matcher, odometry)]
        for each in own:
            peer.node.destroy_subscription(each)
        peer.node.destroy_publisher(infos)
    assert (matcher.returncode, odometry.returncode) == (0, 0), logs
    assert logs[1].count('lost: too few tracks agree') == 1
    assert '[WARN]' in logs[1]
    assert len(poses) > again[0], 'it publishes again'
    assert 'Traceback' not in ''.join(logs)


def test_the_odometry_ends_with_a_signal_and_refuses_a_parameter_of_the_wrong_type():
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


@pytest.mark.slow
def test_export_onnx_writes_both_networks(tmp_path):
    process = launch('cli.export_onnx', '--height', '64', '--width', '80', '--max-keypoints', '32', '--out', str(tmp_path))
    log = finish(process)
    assert process.returncode == 0, log
    assert sorted(path.name for path in (tmp_path / 'ours-64x80-k32-fp32').iterdir()) == ['extractor.onnx', 'matcher.onnx']
    refused = launch('cli.export_onnx', '--height', '65', '--out', str(tmp_path))
    assert 'image_height is 65' in finish(refused)
    assert refused.returncode == 1


@pytest.mark.slow
def test_a_full_disk_leaves_no_network_without_the_other(tmp_path, capsys):
    with room_for(10_000_000):  # for the extractor, and for no matcher
        assert export_onnx(['--height', '64', '--width', '80', '--max-keypoints', '32', '--out', str(tmp_path)]) == 1
    assert f'cannot be written ({FULL}), and nothing was' in capsys.readouterr().err
    assert not [path for path in tmp_path.rglob('*') if path.is_file()]


@pytest.mark.slow
def test_benchmark_prints_and_keeps_its_figures(tmp_path):
    out = tmp_path / 'figures.json'
    process = launch('cli.benchmark', '--height', '64', '--width', '80', '--max-keypoints', '32', '--frames', '5',
                     '--node-frames', '60', '--json', str(out))
    log = finish(process)
    assert process.returncode == 0, log
    figures = json.loads(out.read_text())
    assert set(figures['stages']['stages']) == {'resize', 'extract', 'match', 'track', 'place', 'frame'}
    assert set(figures['caching']) == {'cached_ms', 'uncached_ms', 'extract_ms', 'match_ms', 'ratio', 'predicted'}
    assert figures['node']['clouds'] > 0
    assert figures['node']['echo']['clouds'] > 0
    assert 'predicted' in log
    assert "The node's own cost" in log


@pytest.mark.slow
def test_benchmark_compares_one_node_of_several_cameras_with_a_node_each(tmp_path):
    out = tmp_path / 'figures.json'
    process = launch('cli.benchmark', 'cameras', '--cameras', '2', '--camera-hz', '10', '--seconds', '2', '--rounds', '1',
                     '--height', '64', '--width', '80', '--max-keypoints', '32', '--backend', 'onnxruntime', '--json', str(out))
    log = finish(process)
    assert process.returncode == 0, log
    one, many = json.loads(out.read_text())['cameras'].values()
    assert one['memory_mib'] < many['memory_mib']
    for cost in (one, many):
        assert len(cost['fps']) == 2
        assert sum(cost['fps']) > 0, 'how many, a busy machine decides'
        assert all(ms > 0 for times in cost['latency_ms'] for ms in times)
    assert '2 cameras of 80x64 at 10 Hz each' in log


@pytest.mark.slow
def test_demo_on_an_image_folder_and_on_its_own_flight(tmp_path, shared_data):
    folder = tmp_path / 'short'
    (folder / 'images').mkdir(parents=True)
    source = shared_data / 'hololens'
    for image in sorted((source / 'images').iterdir())[:6]:
        (folder / 'images' / image.name).symlink_to(image)
    for name in ('timestamps.txt', 'groundtruth.txt'):
        lines = [line for line in (source / name).read_text().splitlines() if not line.startswith('#')][:6]
        (folder / name).write_text('\n'.join(lines) + '\n')
    (folder / 'calib.yaml').symlink_to(source / 'calib.yaml')
    process = launch('cli.demo', '--sequence', str(folder), '--image-topic', '/front/image_raw', '--out', str(tmp_path / 'out'))
    log = finish(process, 60)
    assert process.returncode == 0, log
    report = json.loads((tmp_path / 'out' / 'report.json').read_text())
    assert 'frames of /front/image_raw into the node' in log
    assert report['clouds_received'] + report['frames_dropped'] == 5
    assert report['summary']['matches'] > 200
    assert report['summary']['error_median_px'] < 2
    assert report['path']['ate_m'] < 0.05 * report['path']['length_m']
    for picture in ('matches.png', 'plot.png', 'path.png'):
        assert (tmp_path / 'out' / picture).stat().st_size > 20_000
