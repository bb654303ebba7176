"""How far a long command has come: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LINES_S = 5.0  # at least, between two lines


@contextmanager
def progress(title: str, total: int, say: Callable[[str], None] | None = None) -> Iterator[Callable[[int], None]]:
    """What is told how much of `total` is done: it moves a bar where stderr is a terminal and rich is installed.

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
        yield lambda count: bar.update(task, completed=count)


def _lines(title: str, total: int, say: Callable[[str], None] | None) -> Callable[[int], None]:
    told, last = 0, time.monotonic()

    def tell(count: int) -> None:
        nonlocal told, last
        now = time.monotonic()
        if say is not None and now - last >= LINES_S and 10 * (count - told) >= total:
            told, last = count, now
            say(f'{title}: {count} of {total}')

    return tell
