"""How commands end: an error, Ctrl-C, and a reader of the output that goes away."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lightglue_trt_ros.utils.commands import INTERRUPTED, UNREAD, command, log
from lightglue_trt_ros.utils.errors import BagError


def ending(error: BaseException | type[BaseException]):
    @command('walk', interrupted='interrupted on the way')
    def main(argv: list[str] | None = None) -> int:
        raise error
    return main([])


def test_an_error_is_a_line(capsys):
    assert ending(BagError('no bag there')) == 1
    assert capsys.readouterr().err == 'walk: no bag there\n'


def test_ctrl_c_is_a_line(capsys):
    assert ending(KeyboardInterrupt) == INTERRUPTED
    assert capsys.readouterr().err == 'walk: interrupted on the way\n'


def test_the_log_is_lines_on_stdout_while_the_command_runs(capsys):
    @command('walk')
    def main(argv: list[str] | None = None) -> int:
        log.info('100 % of the way')
        logging.getLogger('lightglue_trt_ros.core').warning('a stone')
        log.debug('a leaf')
        logging.getLogger('elsewhere').info('a bird')
        return 0
    assert main([]) == 0
    log.info('home')
    assert capsys.readouterr() == ('walk: 100 % of the way\nwalk: warning: a stone\n', '')


def test_other_errors_and_other_broken_pipes_are_not_hidden():
    for error in (ZeroDivisionError, BrokenPipeError):
        with pytest.raises(error):
            ending(error)


def test_what_main_returns_is_the_exit_code():
    assert command('walk')(lambda argv: 7)([]) == 7


@contextmanager
def started(module: str, *arguments: str, **pipes: int) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, '-m', module, *arguments], text=True,
                               stderr=subprocess.PIPE, **pipes)
    with process:
        try:
            yield process
        finally:
            process.kill()  # one that did not end in time is not waited for


@pytest.mark.parametrize('unbuffered', ['', '1'])
def test_a_reader_that_goes_away_ends_a_command_quietly(unbuffered, monkeypatch):
    monkeypatch.setenv('PYTHONUNBUFFERED', unbuffered)
    reader, writer = os.pipe()
    os.close(reader)
    with started('lightglue_trt_ros.cli.fetch_weights', stdout=writer) as process:
        os.close(writer)
        err = process.communicate(timeout=60)[1]
    assert (process.returncode, err) == (UNREAD, '')


LOGGING = """
import sys, threading
from lightglue_trt_ros.utils.commands import log, node_command

@node_command('walk')
def main(argv, ending):
    def work():
        log.info('the first step')
        print('the second step', file=sys.stderr)
    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    return 7

sys.exit(main([]))
"""


def test_work_of_a_node_outlives_a_log_that_cannot_be_written():
    """As on a full disk: nothing of the node's thread fails."""
    with open('/dev/full', 'w') as full:
        done = subprocess.run([sys.executable, '-c', LOGGING], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (7, 'the second step\n')


def test_ctrl_c_ends_a_measurement_with_a_line():
    with started('lightglue_trt_eval.cli.benchmark', 'stages', '--frames', '100000', '--backend', 'onnxruntime',
                 '--height', '64', '--width', '96', '--max-keypoints', '64', stdout=subprocess.PIPE) as process:
        assert process.stdout.readline().startswith('benchmark: ')
        process.send_signal(signal.SIGINT)
        err = process.communicate(timeout=60)[1]
    assert process.returncode == INTERRUPTED
    assert err.splitlines()[-1] == 'benchmark: interrupted'
    assert 'Traceback' not in err


HANGS_UP = """
import os, signal, sys
from lightglue_trt_ros.utils.commands import node_command

@node_command('walk')
def main(argv, ending):
    ending.ready = True
    os.kill(os.getpid(), signal.SIGHUP)
    return 5 if ending.asked.wait(0.5) else 6

signal.signal(signal.SIGHUP, signal.{handler})
sys.exit(main([]))
"""


@pytest.mark.parametrize(('handler', 'code'), [('SIG_DFL', 5), ('SIG_IGN', 6)], ids=['terminal', 'nohup'])
def test_a_terminal_that_goes_away_ends_a_node_in_order_but_under_nohup(handler, code):
    code_of = HANGS_UP.replace('{handler}', handler)
    done = subprocess.run([sys.executable, '-c', code_of], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (code, '')
