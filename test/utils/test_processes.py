"""Functions that are called in a process of their own: what they return and raise comes back, and nothing of it stays."""

from __future__ import annotations

import operator
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.executables import environment

from lightglue_trt_ros.core.config import EngineSpec
from lightglue_trt_ros.core.early_exit import EarlyExits
from lightglue_trt_ros.networks.graph_cache import write_graphs
from lightglue_trt_ros.networks.models import load_model
from lightglue_trt_ros.utils import processes
from lightglue_trt_ros.utils.errors import ConfigError, EngineError
from lightglue_trt_ros.utils.processes import called_elsewhere, stop_on_signal

PARENT = '''
import time
from lightglue_trt_ros.utils.processes import called_elsewhere
print('calls', flush=True)
called_elsewhere(time.sleep, 60)  # without a guard of __main__, as a user's script is
'''


def test_what_it_returns_comes_back_from_another_process(capfd: pytest.CaptureFixture[str]) -> None:
    assert called_elsewhere(os.getpid) not in (os.getpid(), called_elsewhere(os.getpid))
    assert called_elsewhere(sorted, [3, 1, 2], reverse=True) == [3, 2, 1]
    large = bytes(3 << 20)  # more than pipes hold, both ways
    assert called_elsewhere(bytes.join, b'-', [large, large]) == large + b'-' + large
    assert called_elsewhere(print, 'what libraries say', flush=True) is None
    assert capfd.readouterr().err == 'what libraries say\n', 'is no answer'


def test_what_it_raises_on_purpose_is_raised_here() -> None:
    pair = load_model('ours_light')
    with pytest.raises(ConfigError) as here:
        write_graphs(EngineSpec(96, 128, 64), pair, EarlyExits((1, 2)))
    with pytest.raises(ConfigError) as there:
        called_elsewhere(write_graphs, EngineSpec(96, 128, 64), pair, EarlyExits((1, 2)))
    assert str(there.value) == str(here.value)
    assert 'the stages end after layer 2' in str(there.value)


def test_an_end_without_an_answer_is_told_with_its_status(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(EngineError, match='raise_signal, in a process of its own, was ended by SIGKILL: the memory was'):
        called_elsewhere(signal.raise_signal, signal.SIGKILL)
    with pytest.raises(EngineError, match='truediv, in a process of its own, failed: ZeroDivisionError: division by zero'):
        called_elsewhere(operator.truediv, 1, 0)
    assert 'ZeroDivisionError' in capfd.readouterr().err


def test_what_is_wanted_no_more_is_given_up() -> None:
    began = time.monotonic()
    token = processes.given_up.set(lambda: time.monotonic() - began > 0.5)
    try:
        with pytest.raises(EngineError, match='sleep, in a process of its own, was given up'):
            called_elsewhere(time.sleep, 60)
    finally:
        processes.given_up.reset(token)
    assert time.monotonic() - began < 20
    assert called_elsewhere(len, 'abc') == 3


def test_one_that_cannot_start_is_an_error_and_not_a_broken_pipe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / 'python'
    broken.write_text('#!/bin/sh\nexit 3\n')
    broken.chmod(0o755)
    monkeypatch.setattr(sys, 'executable', str(broken))
    with pytest.raises(EngineError, match='exit status 3'):
        called_elsewhere(len, bytes(3 << 20))


@pytest.mark.slow
@pytest.mark.parametrize('ending', [signal.SIGKILL, signal.SIGINT])
def test_it_ends_with_its_parent(ending: signal.Signals, tmp_path: Path) -> None:
    script = tmp_path / 'script.py'
    script.write_text(PARENT)
    parent = subprocess.Popen([sys.executable, script], env=environment(),
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert parent.stdout is not None
    assert parent.stdout.readline() == b'calls\n'
    assert (child := _soon(lambda: _children(parent.pid))), 'no process was started'
    time.sleep(1.0)  # it has begun by now, or begins without a parent: both end it
    parent.send_signal(ending)
    parent.wait(10)
    parent.stdout.close()
    assert _soon(lambda: not os.path.exists(f'/proc/{child[0]}')), 'it outlives its parent'


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f'/proc/{pid}/task/{pid}/children').read_text().split()]


def _soon(told: Callable[[], Any]) -> Any:
    """What `told` says, as soon as it says anything, within ten seconds."""
    deadline = time.monotonic() + 10
    while not (found := told()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def test_kept_memory_costs_no_page_faults() -> None:
    program = ('import resource\nfrom lightglue_trt_ros.utils.processes import keep_memory\n{}\n'
               'faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n'
               'for number in range(40):\n    before = faults() if number == 20 else before if number else 0\n'
               '    held = [bytearray(1 << 21) for _ in range(3)]\n    del held\n'
               'print(faults() - before)')
    kept, given_back = (int(subprocess.check_output([sys.executable, '-c', program.format(call)], cwd=processes.PACKAGE.parent))
                        for call in ('keep_memory()', ''))
    assert kept < 200 < 10_000 < given_back  # of 30,720 pages of 4 KiB; the default keeps some of them


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_first_signal_asks_to_stop_and_the_second_one_interrupts(number: signal.Signals) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_signal() as stop:
        os.kill(os.getpid(), number)
        assert stop.wait(5.0)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
