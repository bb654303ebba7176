"""What needs no ROS runs where there is none: the commands in processes in which every import of ROS fails."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from support.executables import ROOT, environment
from support.image_recordings import image_folder
from support.networks import ours, photo, shallow
from support.no_pictures import NO_PICTURES
from support.random_pairs import write_pair
from support.ros_modules import ROS

pytestmark = pytest.mark.networks

ENVIRONMENT = environment(ROOT, NO_PICTURES)
SIZE = ('--height', 96, '--width', 128, '--max-keypoints', 64)
WITHOUT_ROS = f"""
import runpy, sys
sys.modules.update(dict.fromkeys({sorted(ROS)!r}))
from lightglue_trt_eval.quantization import measurement
measurement.shared.__defaults__ = 0, 5  # a short descent
module, sys.argv = sys.argv[1], sys.argv[1:]
runpy.run_module(module, run_name='__main__', alter_sys=True)
"""


def run(command: str, *arguments: str | int | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, '-c', WITHOUT_ROS, f'{COMMANDS[command]}.cli.{command}', *map(str, arguments)],
                          env=ENVIRONMENT, text=True, capture_output=True, timeout=240)


@pytest.fixture(scope='module')
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image folder: a photograph on a wall, past which the camera goes sideways."""
    scene = photo('coffee', 192, 384)
    return image_folder(tmp_path_factory.mktemp('recording'), [
        cv2.warpAffine(scene, np.float32([[1, 0, -10 - 4 * number], [0, 1, -40]]), (128, 96)) for number in range(14)])


COMMANDS = {'quantize': 'lightglue_trt_eval', 'evaluate_bag': 'lightglue_trt_eval', 'evaluate_fleet': 'lightglue_trt_eval',
            'benchmark': 'lightglue_trt_eval', 'make_bag': 'lightglue_trt_eval', 'make_mask': 'lightglue_trt_eval',
            'check_board': 'lightglue_trt_eval',
            'build_engines': 'lightglue_trt_ros', 'export_onnx': 'lightglue_trt_ros', 'fetch_weights': 'lightglue_trt_ros'}


def test_commands_explain_themselves() -> None:
    """All in one process: what they import is the same."""
    script = f'''
import contextlib, io, runpy, sys
sys.modules.update(dict.fromkeys({sorted(ROS)!r}))
for name, package in {COMMANDS!r}.items():
    sys.argv, printed = [name, '--help'], io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            runpy.run_module(f'{{package}}.cli.{{name}}', run_name='__main__')
    except SystemExit as end:
        print(name, end.code, printed.getvalue().split()[:2])
'''
    done = subprocess.run([sys.executable, '-c', script], env=ENVIRONMENT, text=True, capture_output=True, timeout=240)
    assert done.stdout.splitlines() == [f"{name} 0 ['usage:', {name!r}]" for name in COMMANDS], done.stderr


def test_a_recording_is_evaluated(recording: Path, tmp_path: Path) -> None:
    bag, out = tmp_path / 'bag', tmp_path / 'out'
    assert run('make_bag', recording, bag).returncode == 0
    done = run('evaluate_bag', bag, '--out', out, '--strides', 1, '--baselines', 'orb', '--backend', 'onnxruntime',
               '--weights', 'ours_light', '--estimator', 'magsac', *SIZE)
    assert done.returncode == 0, done.stderr
    report = json.loads((out / 'report.json').read_text())
    assert [matcher['name'] for matcher in report['matchers']] == ['ours_light', 'ORB']
    assert report['matchers'][0]['summary']['1']['matches'] > 10
    refused = run('evaluate_bag', bag, '--live')
    assert refused.returncode == 2
    assert 'needs ROS 2: source its setup.bash' in refused.stderr


def test_a_matcher_is_calibrated(recording: Path, tmp_path: Path) -> None:
    weights = write_pair(tmp_path / 'weights', pair=replace(ours(), matcher=shallow()))
    done = run('quantize', '--calibration', recording, '--weights', weights, '--engine-dir', tmp_path, '--gate', 0.6,
               '--height', 128, '--width', 160, '--max-keypoints', 96)
    assert done.returncode == 0, done.stderr
    assert 'acceptance check on consecutive frames: passed' in done.stdout
