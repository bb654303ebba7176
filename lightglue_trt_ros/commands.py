"""How commands end, but for the nodes: an error is a line, so is Ctrl-C, and where nobody reads on (`| head`) there is none."""

from __future__ import annotations

import functools
import os
import select
import sys
from collections.abc import Callable

from .errors import LightglueTrtError

INTERRUPTED = 130  # exit code, as shells have it for SIGINT
UNREAD = 141  # and for SIGPIPE

Main = Callable[..., int]


def command(name: str, interrupted: str = 'interrupted') -> Callable[[Main], Main]:
    """Decorate a command's `main(argv) -> exit code`.

    A LightglueTrtError is told in a line and gives 1, Ctrl-C is told as `interrupted` and gives 130, and a reader of the output
    that went away gives 141.
    """

    def decorate(main: Main) -> Main:
        @functools.wraps(main)
        def run(argv: list[str] | None = None) -> int:
            try:
                code = main(argv)
                sys.stdout.flush()
                return code
            except LightglueTrtError as error:
                return _tell(name, str(error), 1)
            except KeyboardInterrupt:
                return _tell(name, interrupted, INTERRUPTED)
            except BrokenPipeError:
                if not _nobody_reads():
                    raise
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it once more when it ends
                return UNREAD
        return run

    return decorate


def _tell(name: str, message: str, code: int) -> int:
    print(f'{name}: {message}', file=sys.stderr)
    return code


def _nobody_reads() -> bool:
    """Whether it is the output's own pipe that is broken."""
    output = select.poll()
    output.register(sys.stdout, 0)  # errors are told in any case
    return any(events & select.POLLERR for _, events in output.poll(0))
