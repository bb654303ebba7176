"""Bars on a terminal, lines elsewhere."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from lightglue_trt_ros.utils import progress as module
from lightglue_trt_ros.utils.progress import progress


def test_lines_every_tenth_of_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, 'LINES_S', 0.0)
    lines: list[str] = []
    with progress('frames', 30, lines.append) as tell:
        for count in range(1, 31):
            tell(count)
    assert lines == [f'frames: {count} of 30' for count in range(3, 31, 3)]


def test_lines_of_phases_whose_size_is_not_known_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, 'LINES_S', 0.0)
    lines: list[str] = []
    with progress('building', None, lines.append) as tell:
        for phase, total in (('tactics', 2), ('kernels', 30)):
            for done in range(total + 1):
                tell(done, total, phase)
    assert lines[:4] == [*(f'building: tactics {done} of 2' for done in range(3)), 'building: kernels 0 of 30']
    assert len(lines) == 3 + 11


def test_lines_keep_their_distance_and_nobody_need_listen() -> None:
    lines: list[str] = []
    for say in (lines.append, None):
        with progress('frames', 10, say) as tell:
            for count in range(1, 11):
                tell(count)
    assert lines == []


def test_a_bar_on_a_terminal() -> None:
    pytest.importorskip('rich', reason='rich is not installed: there is no bar')
    script = ('from lightglue_trt_ros.utils.progress import progress\n'
              'with progress("frames", 5, print) as tell:\n'
              '    for count in range(1, 6): tell(count, phase="last")\n    import time; time.sleep(0.3)')
    master, slave = pty.openpty()
    environment = {**os.environ, 'PYTHONPATH': str(Path(__file__).parents[2]), 'TERM': 'xterm'}
    done = subprocess.run([sys.executable, '-c', script], stderr=slave, stdout=subprocess.PIPE, env=environment, timeout=60)
    shown = os.read(master, 100_000).decode()
    os.close(slave)
    os.close(master)
    assert done.returncode == 0
    assert done.stdout == b''
    assert '100%' in shown
    assert 'frames: last' in shown
