"""A disk on which only small files find room, without root: the limit of the size of this process's files.

The write that goes beyond it is cut short, and the next one fails, as on a full disk; errno says EFBIG in place of ENOSPC.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

FULL = 'File too large'  # what the error says


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file can grow beyond `size` bytes. Python ignores the signal that comes with it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
