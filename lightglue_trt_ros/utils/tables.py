"""Tables for people: through rich where it is installed, plain columns otherwise."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

FILE_WIDTH = 160  # columns, where the output goes to a file
UNBOUNDED = 10_000
LONGEST_FIGURE = 30  # letters: what is longer is text, which wraps rather than taking the room of other columns


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 2,
                *narrower: tuple[Sequence[str], Sequence[Sequence[str]]]) -> None:
    """Print `rows` under `header`; the first `left` columns and text are aligned to the left, figures to the right.

    `narrower`: other headers and rows, the first of which is taken that fits the terminal; the last one where none does.
    """
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        print('\n'.join([title, *('  '.join(map(str.ljust, line, widths)).rstrip() for line in (header, *rows))]))
        return
    known = sys.stdout.isatty() or 'COLUMNS' in os.environ  # which a launch file sets, whose terminal this is in the end
    console, unbounded = Console(width=None if known else FILE_WIDTH), Console(width=UNBOUNDED)
    for header, rows in ((header, rows), *narrower):  # noqa: B020 a version at a time
        table = Table()
        _fill(table, header, rows, left)
        if unbounded.measure(table).minimum > console.width:
            table.box, table.pad_edge = None, False
        if unbounded.measure(table).minimum <= console.width:
            break
    console.width = max(console.width, unbounded.measure(table).minimum)  # rather wider than the terminal than with broken words
    print(f'\n{title}')
    console.print(table, crop=False)


def _fill(table: Any, header: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> None:
    from rich.markup import escape
    for number, (column, *cells) in enumerate(zip(header, *rows, strict=True)):
        text = number < left or any(len(cell) > LONGEST_FIGURE for cell in cells)
        whole = ['', *' '.join([column, *cells]).split()] if text else [column, *cells]
        table.add_column(escape(column), justify='left' if text else 'right', no_wrap=not text, overflow='fold',
                         min_width=min(max(map(len, whole)), LONGEST_FIGURE))
    for row in rows:
        table.add_row(*map(escape, row))
