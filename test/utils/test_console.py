"""Bars on a terminal, lines elsewhere."""

from __future__ import annotations

import logging
import os
import pty
import subprocess
import sys

import pytest
from support.executables import environment

from lightglue_trt_ros.utils import console
from lightglue_trt_ros.utils.console import progress


def test_lines_every_tenth_of_the_way(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(console, 'LINES_S', 0.0)
    caplog.set_level(logging.INFO, 'lightglue_trt_ros')
    with progress('frames', 30) as bar:
        for count in range(1, 16):
            bar(count)
        assert list(bar.each('abcdefghijklmno')) == list('abcdefghijklmno')
    assert caplog.messages == [f'frames: {count} of 30' for count in range(3, 31, 3)]


def test_lines_of_phases_whose_size_is_not_known_before(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(console, 'LINES_S', 0.0)
    caplog.set_level(logging.INFO, 'lightglue_trt_ros')
    with progress('building') as bar:
        for phase, total in (('tactics', 2), ('kernels', 30)):
            for done in range(total + 1):
                bar(done, total, phase)
    assert caplog.messages[:4] == [*(f'building: tactics {done} of 2' for done in range(3)), 'building: kernels 0 of 30']
    assert len(caplog.messages) == 3 + 11


def test_lines_keep_their_distance(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, 'lightglue_trt_ros')
    with progress('frames', 10) as bar:
        for count in range(1, 11):
            bar(count)
    assert not caplog.messages


def test_a_bar_on_a_terminal() -> None:
    script = ('from lightglue_trt_ros.utils.console import progress\n'
              'with progress("frames", 5) as bar:\n'
              '    for count in range(1, 6): bar(count, phase="last")\n    import time; time.sleep(0.3)')
    master, slave = pty.openpty()
    done = subprocess.run([sys.executable, '-c', script], stderr=slave, stdout=subprocess.PIPE, env=environment(TERM='xterm'),
                          timeout=60)
    shown = os.read(master, 100_000).decode()
    os.close(slave)
    os.close(master)
    assert done.returncode == 0
    assert done.stdout == b''
    assert '100%' in shown
    assert 'frames: last' in shown
