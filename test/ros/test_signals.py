"""SIGINT, SIGTERM and SIGHUP end the executables with 0 from their start on, whatever they do, and nothing outlives them."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

rclpy = pytest.importorskip('rclpy', reason='rclpy is not installed: the executables are not tested')
from support.executables import SMALL, environment, finish, launch, launch_code
from support.image_recordings import folder_of_images
from support.waiting import wait_for

pytestmark = pytest.mark.release

LIGHT = [*SMALL, '-p', 'weights:=ours_light']

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
    done = subprocess.run([sys.executable, '-c', STARTING], env=environment(), text=True, capture_output=True,
                          timeout=60)
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
    done = subprocess.run([sys.executable, '-c', BUILDING], env=environment(), text=True, capture_output=True,
                          timeout=50)
    assert done.returncode == 0, done.stderr
    assert not Path(f'/proc/{done.stdout.strip()}').exists()


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
    backend, image = OnnxRuntimeBackend(config.engine_spec('fp32'), load_model('ours_light')), np.zeros((240, 328), np.uint8)
    print('busy', flush=True)
    while True:
        backend.extract(image)

node.STOP_S = 0.2
node.MatcherNode.__init__.__defaults__ = (opened,)
sys.exit(matcher.main())
"""


def test_thread_left_behind_in_cpp_does_not_abort_the_process():
    process = launch_code(BUSY, '--ros-args', *LIGHT)
    while process.stdout.readline() not in ('busy\n', ''):
        pass
    process.send_signal(signal.SIGINT)
    log = finish(process, 20)
    assert process.returncode == 0, log
    assert 'left behind' in log


def test_sim_time_without_clock_keeps_diagnostics_and_signals_working(peer):
    process = launch('cli.matcher', '--ros-args', *LIGHT, '-p', 'use_sim_time:=true')
    try:
        wait_for(lambda: 'no image on /image' in peer.status()[1], 30)
    finally:
        process.send_signal(signal.SIGTERM)
        log = finish(process, 10)
    assert process.returncode == 0, log


def test_signals_while_it_ends_change_nothing(peer):
    pauses = (0.0, 0.02, 0.05, 0.1)
    processes = [launch('cli.matcher', '--ros-args', *LIGHT, '-r', f'__node:=matcher{number}') for number in range(len(pauses))]

    def opened() -> set[str]:
        """Nodes that have reported their backend."""
        return {status.name for report in peer.reports for status in report.status
                if any(value.key == 'backend' and 'ONNX Runtime' in value.value for value in status.values)}

    try:
        wait_for(lambda: len(opened()) == len(pauses), 60)
        for process, pause in zip(processes, pauses, strict=True):
            for _ in range(8):
                process.send_signal(signal.SIGINT)
                time.sleep(pause)
            log = finish(process, 10)
            assert process.returncode == 0, f'signals {pause} s apart: {log}'
            assert 'Traceback' not in log
    finally:
        for process in processes:
            process.kill()
            process.wait()


STATUS = re.compile(r'SigCgt:\s*(\w+)')


@pytest.mark.parametrize('command', ['matcher', 'odometry', 'play_bag'])
def test_signals_end_a_node_with_0_from_its_start_on(command, tmp_path):
    """From where Python, which takes a tenth of a second, has come to the node's own first line; imports take a second and more."""
    def hears(process: subprocess.Popen) -> bool:
        caught = int(STATUS.search(Path(f'/proc/{process.pid}/status').read_text())[1], 16)
        return bool(caught & 1 << (signal.SIGHUP - 1))  # the last one that it hears

    arguments = [str(folder_of_images(tmp_path, 2)), '--subscriber-timeout', '60'] if command == 'play_bag' else []

    def end_after(step: int) -> None:
        number = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)[step % 3]
        process = launch(f'cli.{command}', *arguments)
        wait_for(lambda: hears(process))
        time.sleep(0.2 * step)
        process.send_signal(number)
        log = finish(process, 10)
        assert process.returncode == 0, f'{number.name} after {0.2 * step:.1f} s: {log}'
        assert 'Traceback' not in log

    with ThreadPoolExecutor(2) as two_at_a_time:
        list(two_at_a_time.map(end_after, range(8)))
