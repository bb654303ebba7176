"""Run executables and functions of this package in processes of their own, which end cleanly and with their parent."""

from __future__ import annotations

import ctypes
import logging
import os
import pickle
import platform
import select
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from .errors import EngineError, LightglueTrtError, in_words

Given = ParamSpec('Given')
Result = TypeVar('Result')

logger = logging.getLogger(__name__)

PACKAGE = Path(__file__).resolve().parents[1]
FASTDDS_VARIABLES = ('FASTRTPS_DEFAULT_PROFILES_FILE', 'FASTDDS_DEFAULT_PROFILES_FILE')  # up to Jazzy, from Kilted on
FASTDDS_CHOICES = (*FASTDDS_VARIABLES, 'FASTDDS_BUILTIN_TRANSPORTS')  # if any of them is set, the user has chosen transports


def fastdds_variable() -> str:
    """The variable that this release reads: Jazzy does not know the new name, later ones warn about the old."""
    return FASTDDS_VARIABLES[os.environ.get('ROS_DISTRO', 'jazzy') not in ('humble', 'jazzy')]


def fastdds_profile() -> Path | None:
    """The Fast DDS profile for large images: of the installed share folder, or of the source tree."""
    folders = [PACKAGE.parent / 'config']
    for prefix in os.environ.get('AMENT_PREFIX_PATH', '').split(os.pathsep):
        folders.append(Path(prefix) / 'share' / 'lightglue_trt_ros' / 'config')
    paths = [folder / 'fastdds_large_images.xml' for folder in folders]
    return next((path for path in paths if path.is_file()), None)


def use_fastdds_profile() -> None:
    """Let this process, before its rclpy.init(), and its children use the profile, unless the user has chosen transports."""
    profile = fastdds_profile()
    if profile and not any(os.environ.get(name) for name in FASTDDS_CHOICES):
        os.environ[fastdds_variable()] = str(profile)


def start(module: str, *arguments: str, environment: Mapping[str, str] | None = None, **options: Any) -> subprocess.Popen[bytes]:
    """Run `python -m <module>` in this interpreter and environment, with what `environment` adds to it.

    The module is one of this package, or of one in the same folder. `options` are subprocess.Popen's.
    """
    path = os.pathsep.join(filter(None, [str(PACKAGE.parent), os.environ.get('PYTHONPATH')]))
    command = [sys.executable, '-m', module, *arguments]
    return subprocess.Popen(command, env={**os.environ, **(environment or {}), 'PYTHONPATH': path}, **options)


# Whether the caller of `called_elsewhere` no longer wants the result.
given_up: ContextVar[Callable[[], bool]] = ContextVar('given_up', default=bool)


def called_elsewhere(function: Callable[Given, Result], *arguments: Given.args, **named: Given.kwargs) -> Result:
    """Call a function of the packages in a process of its own, whose memory and imports end with it, and return its result.

    Function, arguments and result are pickled. The process ends with this one, however that ends, and gets no Ctrl-C. Raises the
    function's LightglueTrtError, and EngineError where the process ends without an answer or `given_up` returns true.
    """
    return run_elsewhere(partial(function, *arguments, **named), {})


def run_elsewhere(call: partial[Result], environment: Mapping[str, str]) -> Result:
    """`called_elsewhere` of one call, with what `environment` adds; process lists show the paths among its arguments."""
    name, paths = call.func.__name__, [str(each) for each in call.args if isinstance(each, Path)]
    process = start('lightglue_trt_ros.utils.processes', name, *paths, environment=environment, stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with suppress(BrokenPipeError):  # it has ended already: its status says how
            pickle.dump(call, process.stdin, pickle.HIGHEST_PROTOCOL)
            process.stdin.flush()  # it stays open: the process ends when this pipe does
        while not select.select([process.stdout], [], [], 0.1)[0]:
            if given_up.get()():
                raise EngineError(f'{name}, in a process of its own, was given up')
        answer: Result | LightglueTrtError = pickle.load(process.stdout)
    except (EOFError, pickle.UnpicklingError):
        status = process.wait()
        how = f'ended with exit status {status}: lines above say why' if status >= 0 else \
            f'was ended by {signal.Signals(-status).name}' + (': the memory was probably exhausted' if status == -9 else '')
        raise EngineError(f'{name}, in a process of its own, {how}') from None
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        with suppress(BrokenPipeError):
            process.stdin.close()
    if isinstance(answer, LightglueTrtError):
        raise answer
    return answer


def _answer() -> None:
    """Run in the process that `run_elsewhere` starts. It ends silently when its parent does."""
    def end_with_parent() -> None:
        wait_for_parent()
        os._exit(1)

    answers = os.fdopen(os.dup(sys.stdout.fileno()), 'wb')
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # prints of libraries must not mix with the answer
    call = pickle.load(sys.stdin.buffer)
    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        answer = call()
    except LightglueTrtError as error:
        answer = error
    except Exception as error:
        traceback.print_exc()
        answer = EngineError(f'{call.func.__name__}, in a process of its own, failed: {in_words(error)}')
    with suppress(BrokenPipeError), answers:  # the caller has ended
        pickle.dump(answer, answers, pickle.HIGHEST_PROTOCOL)


def wait_for_parent() -> None:
    """Block until standard input ends: the parent holds the other end of that pipe, which the kernel closes however it ends."""
    while os.read(0, 1):
        pass


def wait(process: subprocess.Popen[bytes], cancelled: Callable[[], bool]) -> int:
    """The exit status of a process, which is ended once `cancelled()` is true, or when waiting itself is cut short."""
    try:
        while not cancelled():
            try:
                return process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
    finally:
        status = stop(process, timeout=3.0)
    return status


def stop(process: subprocess.Popen[bytes], timeout: float = 5.0) -> int:
    """SIGINT, then SIGKILL after `timeout` seconds; the exit status."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()


@contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C or SIGTERM sets, as of `timeout` and of CI; the second one is a KeyboardInterrupt."""
    stop = threading.Event()

    def on_signal(number: int, frame: object) -> None:
        for each in before:
            signal.signal(each, signal.default_int_handler)
        stop.set()
        logger.info('interrupted: the report of what was done follows; once more to leave at once')

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, on_signal)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def memory_mib(pid: int) -> float:
    """Resident memory of a process, MiB (Linux)."""
    for line in Path(f'/proc/{pid}/status').read_text().splitlines():
        if line.startswith('VmRSS'):
            return int(line.split()[1]) / 1024
    return float('nan')


_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # of malloc.h


def give_memory_back() -> None:
    """From now on, large freed blocks go back to the system at once, and threads share two heaps (glibc; else nothing).

    Without it, long work of several threads on images keeps the memory of its worst moment.
    """
    _mallopt({_MMAP_THRESHOLD: 1 << 20, _ARENA_MAX: 2})


def keep_memory() -> None:
    """From now on, each heap keeps up to 32 MiB of freed memory (glibc; else nothing).

    Without it, a node returns the memory of each image and gets it anew: the page faults take more time than decoding.
    """
    _mallopt({_MMAP_THRESHOLD: 1 << 25, _TRIM_THRESHOLD: 1 << 25})


def _mallopt(values: dict[int, int]) -> None:
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL('libc.so.6')
        for parameter, value in values.items():
            libc.mallopt(parameter, value)


def trim_heap() -> None:
    """Give freed memory back to the system (glibc; else nothing)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL('libc.so.6').malloc_trim(0)


def describe_machine() -> str:
    """Processor, cores and Python, for reports."""
    info = Path('/proc/cpuinfo')
    lines = info.read_text().splitlines() if info.exists() else []
    model = next((line.split(':')[1].strip() for line in lines if line.startswith('model name')), platform.machine())
    return f'{model}, {os.cpu_count()} cores, Python {platform.python_version()}'


if __name__ == '__main__':
    _answer()
