"""Disks on which only small files find room: a real one, and one without root.

Without root it is the limit of the size of this process's files. The write that goes beyond it is cut short, and the next one
fails, as on a full disk; errno says EFBIG in place of ENOSPC.
"""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

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


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of 128 KiB below a folder; skips where none can be mounted."""
    disk = folder / 'disk'
    disk.mkdir()
    command = ['mount', '-t', 'tmpfs', '-o', 'size=128k', 'tmpfs', str(disk)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f'no file system can be mounted here: {mounted.stderr.strip()}')
    try:
        yield disk
    finally:
        subprocess.run(['umount', str(disk)], check=True)
