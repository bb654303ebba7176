"""How far a long command has come: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

LINES_S = 5.0  # at least, between two lines


class Tell(Protocol):
    """Hears how much is done; of how much, where that is not known from the start, and of what."""

    def __call__(self, done: int, total: int | None = None, phase: str = '') -> None: ...


@contextmanager
def progress(title: str, total: int | None = None, say: Callable[[str], None] | None = None) -> Iterator[Tell]:
    """What is told how much is done: it moves a bar where stderr is a terminal and rich is installed.

    Elsewhere `say` gets a line every tenth of the way, LINES_S apart or more; without it nothing is shown.
    """
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        yield _lines(title, total, say)
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(title, total, say)
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(title, total=total)

        def tell(done: int, total: int | None = None, phase: str = '') -> None:
            bar.update(task, completed=done, total=total, description=f'{title}: {phase}' if phase else title)

        yield tell


def _lines(title: str, total: int | None, say: Callable[[str], None] | None) -> Tell:
    whole, told, last = total, ('', 0), time.monotonic()

    def tell(done: int, total: int | None = None, phase: str = '') -> None:
        nonlocal told, last
        total = total or whole or 1
        tenth, now = (phase, 10 * done // total), time.monotonic()
        if say is not None and now - last >= LINES_S and tenth != told:
            told, last = tenth, now
            say(f'{title}: {f"{phase} " * bool(phase)}{done} of {total}')

    return tell
