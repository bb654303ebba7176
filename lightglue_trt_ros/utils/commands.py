"""How commands end: an error is a line, so is Ctrl-C; a signal ends a node with 0, and a reader that goes away (`| head`) any."""

from __future__ import annotations

import functools
import logging
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from .errors import LightglueTrtError

INTERRUPTED = 130  # exit code, as shells have it for SIGINT
UNREAD = 141  # and for SIGPIPE
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # the last one comes where the terminal or the connection goes away

Main = Callable[..., int]

log = logging.getLogger('lightglue_trt_ros')  # of the package; commands log their own lines here
LOGS = (log, logging.getLogger('lightglue_trt_eval'))  # a command prints both


def command(name: str, interrupted: str = 'interrupted') -> Callable[[Main], Main]:
    """Decorate a command's `main(argv) -> exit code`.

    The packages' logs go to stdout, a line each with the command's name. A LightglueTrtError becomes a line on stderr and exit
    code 1, Ctrl-C the line `interrupted` and 130; a reader of the output that went away gives 141.
    """

    def decorate(main: Main) -> Main:
        @functools.wraps(main)
        def run(argv: list[str] | None = None, *more: Any) -> int:
            try:
                with _logging_to_stdout(name):
                    code = main(argv, *more)
                sys.stdout.flush()
                return code
            except LightglueTrtError as error:
                return _end(name, str(error), 1)
            except KeyboardInterrupt:
                return _end(name, interrupted, INTERRUPTED)
            except BrokenPipeError:
                if not _nobody_reads():
                    raise
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it once more when it ends
                return UNREAD
        return run

    return decorate


class _Lines(logging.Handler):
    """Prints `<command>: <message>`, and `<command>: warning: <message>`."""

    def __init__(self, command: str) -> None:
        super().__init__()
        self._command = command

    def emit(self, record: logging.LogRecord) -> None:
        warning = 'warning: ' if record.levelno >= logging.WARNING else ''
        try:
            print(f'{self._command}: {warning}{record.getMessage()}', flush=True)
        except OSError:  # nobody reads, or the disk is full: `command` ends; another thread, such as a node's, goes on
            if threading.current_thread() is threading.main_thread():
                raise


@contextmanager
def _logging_to_stdout(command: str) -> Iterator[None]:
    levels, handler = [each.level for each in LOGS], _Lines(command)
    for each in LOGS:
        each.addHandler(handler)
        each.setLevel(logging.INFO)
    try:
        yield
    finally:
        for each, level in zip(LOGS, levels, strict=True):
            each.removeHandler(handler)
            each.setLevel(level)


class Ending:
    """The SIGNALS, as a node takes them: they end the process with exit code 0, at once until it is `ready`, then in order.

    A thread reads them from Python's wakeup descriptor: no import and no wait in C delays them, and no exception comes of them.
    """

    def __init__(self) -> None:
        self.asked = threading.Event()  # by the first signal; more of them change nothing
        self.ready = False  # once true, the process watches `asked`: there is something to be ended in order
        self.wake: Callable[[], None] = lambda: None  # called when the first signal comes, from the thread that reads them

    @contextmanager
    def listening(self) -> Iterator[None]:
        """In the main thread, whose signals they are: from here to the process's end; in any other one nothing changes."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        ear, mouth = os.pipe()
        os.set_blocking(mouth, False)
        signal.set_wakeup_fd(mouth, warn_on_full_buffer=False)
        heard = [number for number in SIGNALS if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]  # by nohup
        for number in heard:
            signal.signal(number, lambda *_: None)
        threading.Thread(target=self._listen, args=(ear,), name='signals', daemon=True).start()
        try:
            yield
        finally:
            for number in heard:
                signal.signal(number, signal.SIG_IGN)  # a function would give way to the default while the interpreter ends
            signal.set_wakeup_fd(-1)
            os.close(mouth)

    def _listen(self, ear: int) -> None:
        while numbers := os.read(ear, 64):
            if not set(numbers).intersection(SIGNALS) or self.asked.is_set():
                continue
            if not self.ready:
                os._exit(0)
            self.asked.set()
            with suppress(Exception):  # of an executor that is gone already
                self.wake()
        os.close(ear)


def node_command(name: str) -> Callable[[Callable[[list[str] | None, Ending], int]], Main]:
    """Decorate a node's `main(argv, ending) -> exit code`: as `command`, but SIGNALS end it with 0, from the start.

    The imports that take long belong into `main`.
    """

    def decorate(main: Callable[[list[str] | None, Ending], int]) -> Main:
        @functools.wraps(main)
        def run(argv: list[str] | None = None) -> int:
            ending = Ending()
            with ending.listening():
                return command(name)(main)(argv, ending)
        return run

    return decorate


def _end(name: str, message: str, code: int) -> int:
    print(f'{name}: {message}', file=sys.stderr)
    return code


def _nobody_reads() -> bool:
    """Whether it is the output's own pipe that is broken."""
    output = select.poll()
    output.register(sys.stdout, 0)  # errors are told in any case
    return any(events & select.POLLERR for _, events in output.poll(0))
