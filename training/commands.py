"""How commands of the training room end: an error that a user can mend is a line."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable

Main = Callable[..., int]


def command(name: str, *errors: type[Exception]) -> Callable[[Main], Main]:
    """Decorate a `main(arguments) -> exit code`: one of `errors` becomes a line on stderr that begins with `name`, and code 1."""
    def decorate(main: Main) -> Main:
        @functools.wraps(main)
        def run(arguments: list[str] | None = None) -> int:
            try:
                return main(arguments)
            except errors as error:
                print(f'{name}: {error}', file=sys.stderr)
                return 1
        return run

    return decorate
