"""Progress bars and tables on the terminal; lines in the log and wide tables elsewhere."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

LINES_S = 5.0  # at least, between two log lines of one bar
FILE_WIDTH = 160  # columns, where the output goes to a file
UNBOUNDED = 10_000
LONGEST_FIGURE = 30  # letters: longer cells are text, which wraps and leaves room for the other columns
Item = TypeVar('Item')
Show = Callable[[int, 'int | None', str], None]  # steps done, steps in all, phase

logger = logging.getLogger(__name__)


class Bar:
    """How far a long task is. Without `show` nothing is shown."""

    def __init__(self, show: Show = lambda done, total, phase: None) -> None:
        self._show, self._done = show, 0

    def __call__(self, done: int, total: int | None = None, phase: str = '') -> None:
        """Show `done` steps; of `total` and in `phase`, where these are not known from the start."""
        self._done = done
        self._show(done, total, phase)

    def each(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items; the bar moves one step when the caller is done with each."""
        for item in items:
            yield item
            self(self._done + 1)


@contextmanager
def progress(title: str, total: int | None = None) -> Iterator[Bar]:
    """A bar on stderr where that is a terminal; elsewhere a log line for each tenth, at least LINES_S apart."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Bar(_log_lines(title, total))
        return
    with Progress(console=console, transient=True) as display:
        task = display.add_task(title, total=total)
        yield Bar(lambda done, total, phase: display.update(task, completed=done, total=total,
                                                            description=f'{title}: {phase}' if phase else title))


def _log_lines(title: str, whole: int | None) -> Show:
    logged, last = ('', 0), time.monotonic()

    def show(done: int, total: int | None, phase: str) -> None:
        nonlocal logged, last
        total = total or whole or 1
        tenth, now = (phase, 10 * done // total), time.monotonic()
        if now - last >= LINES_S and tenth != logged:
            logged, last = tenth, now
            logger.info('%s: %s%d of %d', title, f'{phase} ' * bool(phase), done, total)

    return show


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 2,
                *narrower: tuple[Sequence[str], Sequence[Sequence[str]]]) -> None:
    """Print `rows` under `header`; the first `left` columns and text are aligned to the left, figures to the right.

    `narrower` are other headers and rows. The first one that fits the terminal is printed; where none fits, the last one.
    """
    width_known = sys.stdout.isatty() or 'COLUMNS' in os.environ  # a launch file sets COLUMNS to its terminal's width
    console, unbounded = Console(width=None if width_known else FILE_WIDTH), Console(width=UNBOUNDED)
    for version_header, version_rows in ((header, rows), *narrower):
        table = _table(version_header, version_rows, left)
        if (least := unbounded.measure(table).minimum) > console.width:
            table.box, table.pad_edge = None, False
            least = unbounded.measure(table).minimum
        if least <= console.width:
            break
    console.width = max(console.width, least)  # rather wider than the terminal than with broken words
    print(f'\n{title}')
    console.print(table, crop=False)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> Table:
    table = Table()
    for number, (column, *cells) in enumerate(zip(header, *rows, strict=True)):
        text = number < left or any(len(cell) > LONGEST_FIGURE for cell in cells)
        whole = ['', *' '.join([column, *cells]).split()] if text else [column, *cells]
        table.add_column(escape(column), justify='left' if text else 'right', no_wrap=not text, overflow='fold',
                         min_width=min(max(map(len, whole)), LONGEST_FIGURE))
    for row in rows:
        table.add_row(*map(escape, row))
    return table
