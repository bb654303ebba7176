"""Commands that start nodes or write networks, as users run them: export_onnx, benchmark, demo."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

rclpy = pytest.importorskip('rclpy', reason='rclpy is not installed: the executables are not tested')
from support.executables import finish, launch
from support.full_disks import FULL, room_for

from lightglue_trt_eval.cli import demo as demo_command
from lightglue_trt_eval.score.metrics import Evaluation, MatcherResult
from lightglue_trt_ros.cli.export_onnx import main as export_onnx


@pytest.mark.slow
def test_export_onnx_writes_both_networks(tmp_path, capsys):
    process = launch('cli.export_onnx', '--height', '64', '--width', '80', '--max-keypoints', '32', '--out', str(tmp_path))
    log = finish(process)
    assert process.returncode == 0, log
    assert sorted(path.name for path in (tmp_path / 'ours-64x80-k32-fp32').iterdir()) == ['extractor.onnx', 'matcher.onnx']
    assert export_onnx(['--height', '65', '--out', str(tmp_path)]) == 1
    assert 'image_height is 65' in capsys.readouterr().err


@pytest.mark.slow
def test_a_full_disk_leaves_no_network_without_the_other(tmp_path, capsys):
    with room_for(10_000_000):  # for the extractor, and for no matcher
        assert export_onnx(['--height', '64', '--width', '80', '--max-keypoints', '32', '--out', str(tmp_path)]) == 1
    assert f'cannot be written ({FULL}), and nothing was' in capsys.readouterr().err
    assert not [path for path in tmp_path.rglob('*') if path.is_file()]


@pytest.fixture(scope='module')
def benchmarks(tmp_path_factory) -> Iterator[dict[str, tuple[subprocess.Popen[str], Path]]]:
    """The benchmark of all parts and that of cameras, with their figures' files: both at once, as they mostly wait."""
    small = ['--height', '64', '--width', '80', '--max-keypoints', '32', '--weights', 'ours_light']
    parts = {'all': ['--frames', '5', '--node-frames', '60'],
             'cameras': ['cameras', '--cameras', '2', '--camera-hz', '10', '--seconds', '2', '--rounds', '1',
                         '--backend', 'onnxruntime']}
    folder, started = tmp_path_factory.mktemp('figures'), {}
    for name, words in parts.items():
        process = launch('cli.benchmark', *words, *small, '--json', str(folder / name), package='lightglue_trt_eval')
        started[name] = process, folder / name
        if name == 'all':  # its first table is printed: the graphs are written, once for both
            while 'Stages of a frame' not in (line := process.stdout.readline()) and line:
                pass
    yield started
    for process, _ in started.values():
        process.kill()
        process.wait()


@pytest.mark.slow
def test_benchmark_prints_and_keeps_its_figures(benchmarks):
    process, out = benchmarks['all']
    log = finish(process, 120)
    assert process.returncode == 0, log
    figures = json.loads(out.read_text())
    assert set(figures['stages']['stages']) == {'resize', 'extract', 'match', 'track', 'place', 'frame'}
    assert set(figures['caching']) == {'cached_ms', 'uncached_ms', 'extract_ms', 'match_ms', 'ratio', 'predicted'}
    assert figures['node']['clouds'] > 0
    assert figures['node']['echo']['clouds'] > 0
    assert 'predicted' in log
    assert "The node's own cost" in log


@pytest.mark.slow
def test_benchmark_compares_one_node_of_several_cameras_with_a_node_each(benchmarks):
    process, out = benchmarks['cameras']
    log = finish(process, 120)
    assert process.returncode == 0, log
    one, many = json.loads(out.read_text())['cameras'].values()
    assert one['memory_mib'] < many['memory_mib']
    for cost in (one, many):
        assert len(cost['fps']) == 2
        assert sum(cost['fps']) > 0, 'how many, a busy machine decides'
        assert all(ms > 0 for times in cost['latency_ms'] for ms in times)
    assert '2 cameras of 80x64 at 10 Hz each' in log


def demo(out: Path, *words: str) -> tuple[str, dict[str, Any]]:
    process = launch('cli.demo', *words, '--weights', 'ours_light', '--out', str(out), package='lightglue_trt_eval')
    log = finish(process, 100)
    assert process.returncode == 0, log
    for name in ('report.html', 'matches.png', 'trajectory.png'):
        assert str(out / name) in log
        assert (out / name).stat().st_size > 20_000
    return log, json.loads((out / 'report.json').read_text())


@pytest.mark.slow
def test_demo_on_an_image_folder(tmp_path, shared_data):
    folder = tmp_path / 'short'
    (folder / 'images').mkdir(parents=True)
    source = shared_data / 'hololens'
    for image in sorted((source / 'images').iterdir())[:4]:
        (folder / 'images' / image.name).symlink_to(image)
    for name in ('timestamps.txt', 'groundtruth.txt'):
        lines = [line for line in (source / name).read_text().splitlines() if not line.startswith('#')][:4]
        (folder / name).write_text('\n'.join(lines) + '\n')
    (folder / 'calib.yaml').symlink_to(source / 'calib.yaml')
    log, report = demo(tmp_path / 'out', '--sequence', str(folder), '--image-topic', '/front/image_raw')
    node = report['matchers'][1]
    assert len(node['pairs']['1']['frame']) + node['summary']['1']['dropped'] == 3
    assert node['summary']['1']['matches'] > 200
    assert node['summary']['1']['precision@3'] > 60
    assert 'frames without a cloud' in log


@pytest.mark.slow
def test_demo_renders_a_flight_with_poses_and_depth(tmp_path):
    log, report = demo(tmp_path / 'out', '--frames', '4', '--hz', '1')
    assert report['recording']['depth'] == '/camera/depth/image_raw, 4 images'
    node = report['matchers'][1]
    assert 'at 1 frames per second' in node['description']
    assert node['summary']['1']['precision@1'] > 95
    assert node['summary']['1']['depth_points'] > 95
    assert 'px from the true epipolar line' in log
    above = cv2.imread(str(tmp_path / 'out' / 'matches.png'))[:110, -20:]
    assert np.ptp(above) == 0, 'the title reaches the edge of the picture'


def test_demo_fails_with_the_reason_when_the_node_publishes_nothing(tmp_path, monkeypatch, capfd):
    def evaluated(recording, options, folder, stopped):
        return Evaluation({'path': str(folder)}, 'here', [MatcherResult('ours', 'ours', True)], (1,)), ['live: nothing came']

    monkeypatch.setattr(demo_command, 'evaluate_recording', evaluated)
    assert demo_command.main(['--frames', '2', '--out', str(tmp_path)]) == 1
    assert capfd.readouterr().err == 'demo: live: nothing came\n'
