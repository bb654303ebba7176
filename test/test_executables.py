"""The executables as users run them: processes of their own, real networks, real DDS, signals, messages on stderr."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

rclpy = pytest.importorskip('rclpy', reason='rclpy is not installed: the executables are not tested')
from networks import moved, photo  # noqa: E402
from ros_helpers import SECOND, Peer, image_message, wait_for  # noqa: E402

from lightglue_trt_ros.clouds import matches_from_cloud  # noqa: E402

ROOT = Path(__file__).parents[1]
SMALL = ['-p', 'image_height:=240', '-p', 'image_width:=328', '-p', 'max_keypoints:=256']


def launch(module: str, *arguments: str, **variables: str) -> subprocess.Popen:
    environment = {**os.environ, 'PYTHONPATH': os.pathsep.join([str(ROOT), os.environ.get('PYTHONPATH', '')]), **variables}
    return subprocess.Popen([sys.executable, '-m', f'lightglue_trt_ros.{module}', *arguments], env=environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def finish(process: subprocess.Popen, timeout: float = 60) -> str:
    return process.communicate(timeout=timeout)[0]


@pytest.fixture(scope='module')
def peer():
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
    peer.reports.clear()


STARTING = """
import os, signal, time
import rclpy
from lightglue_trt_ros.errors import EngineError
from lightglue_trt_ros.node import MatcherNode, run

def opening(config, *, cancelled):
    os.kill(os.getpid(), signal.SIGTERM)
    while rclpy.ok():
        time.sleep(0.01)
    raise EngineError('no engine')

rclpy.init()
run(MatcherNode(opening))
"""


def test_a_signal_while_the_node_activates_ends_it_without_an_error():
    environment = {**os.environ, 'PYTHONPATH': os.pathsep.join([str(ROOT), os.environ.get('PYTHONPATH', '')])}
    done = subprocess.run([sys.executable, '-c', STARTING], env=environment, text=True, capture_output=True, timeout=60)
    assert 'Traceback' not in done.stderr
    assert done.returncode == 0, done.stderr


BUILDING = """
import os, signal, subprocess, sys, threading
import rclpy
from lightglue_trt_ros import selection
from lightglue_trt_ros.node import MatcherNode, run

def start(*words):
    builder = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])
    print(builder.pid, flush=True)
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    return builder

def opening(config, **cancelled):
    selection._build(config, 'engines', 'fp16', *cancelled.values())

selection.start = start
rclpy.init()
run(MatcherNode(opening))
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
        peer.reports.clear()
        wait_for(lambda: 'ONNX Runtime' in peer.figures().get('backend', ''), 30)
    finally:
        process.send_signal(signal.SIGINT)
        log = finish(process)
    assert process.returncode == 0, log
    assert 'camera.exposure_us' in log
    assert '/matcher/rear/matches' in log
    peer.reports.clear()


COMMANDS = sorted(path.stem for path in (ROOT / 'lightglue_trt_ros' / 'cli').glob('[a-z]*.py'))


@pytest.mark.parametrize('command', COMMANDS)
def test_every_command_explains_itself_and_refuses_what_it_does_not_know(command):
    process = launch(f'cli.{command}', '--help')
    log = finish(process)
    assert process.returncode == 0, log
    assert log.startswith(f'usage: {command} ')
    process = launch(f'cli.{command}', '--frobnicate')
    log = finish(process)
    assert process.returncode == 2, log
    assert '--frobnicate' in log or 'required' in log
    assert 'Traceback' not in log


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
    peer.reports.clear()
    process = launch('cli.matcher', '--ros-args', *SMALL, '-p', 'use_sim_time:=true')
    try:
        wait_for(lambda: 'no image on /image' in peer.status()[1], 30)
    finally:
        process.send_signal(signal.SIGTERM)
        log = finish(process, 10)
    assert process.returncode == 0, log
    peer.reports.clear()


def test_signals_while_it_ends_change_nothing(peer):
    peer.reports.clear()
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


def test_the_odometry_ends_with_a_signal_and_refuses_a_parameter_of_the_wrong_type(peer):
    process = launch('cli.odometry')
    try:
        wait_for(lambda: peer.node.count_publishers('/odometry/odometry'), 30)
    finally:
        process.send_signal(signal.SIGTERM)
        log = finish(process, 10)
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
    peer.reports.clear()


def test_export_onnx_writes_both_networks(tmp_path):
    process = launch('cli.export_onnx', '--height', '64', '--width', '80', '--max-keypoints', '32', '--out', str(tmp_path))
    log = finish(process)
    assert process.returncode == 0, log
    assert sorted(path.name for path in (tmp_path / 'ours-64x80-k32-fp32').iterdir()) == ['extractor.onnx', 'matcher.onnx']
    refused = launch('cli.export_onnx', '--height', '65', '--out', str(tmp_path))
    assert 'image_height is 65' in finish(refused)
    assert refused.returncode == 1


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


def test_benchmark_of_two_images_in_one_run(tmp_path):
    out = tmp_path / 'figures.json'
    process = launch('cli.benchmark', 'batch', '--height', '64', '--width', '80', '--max-keypoints', '32', '--frames', '3',
                     '--json', str(out))
    log = finish(process)
    assert process.returncode == 0, log
    figures = json.loads(out.read_text())['batch']
    assert {name: len(values) for name, values in figures.items()} == dict.fromkeys(
        ('single_ms', 'single_cpu_ms', 'batch_ms', 'batch_cpu_ms'), 3)
    assert min(figures['single_ms'] + figures['batch_ms']) > 0
    assert 'one of batch 2' in log


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
    log = finish(process, 120)
    assert process.returncode == 0, log
    report = json.loads((tmp_path / 'out' / 'report.json').read_text())
    assert 'frames of /front/image_raw into the node' in log
    assert report['clouds_received'] + report['frames_dropped'] == 5
    assert report['summary']['matches'] > 200
    assert report['summary']['error_median_px'] < 2
    assert report['path']['ate_m'] < 0.05 * report['path']['length_m']
    for picture in ('matches.png', 'plot.png', 'path.png'):
        assert (tmp_path / 'out' / picture).stat().st_size > 20_000
