"""Texts in several encodings, files that appear whole or not at all, and folders that one process writes at a time."""

from __future__ import annotations

import codecs
import fcntl
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import LightglueTrtError

_POINTER = b'version https://git-lfs.github.com/spec/'
_WITHOUT_DATA = 'a pointer of Git LFS, without the data: run git lfs install and git lfs pull in its repository'
_BINARY = re.compile(r'[\x00-\x08\x0e-\x1f\x7f-\x9f]')  # no letters of Latin-1


def text_of(path: Path) -> str:
    """What a text file holds: in UTF-8, in UTF-16 with a mark, as Windows writes it, or in Latin-1, as older tools do in comments.

    Raises OSError, and UnicodeDecodeError where it is no text.
    """
    data = path.read_bytes()
    if data.startswith(_POINTER):
        raise OSError(f'it is {_WITHOUT_DATA}')
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode('utf-16')
    try:
        return data.decode('utf-8-sig')
    except UnicodeDecodeError:
        text = data.decode('latin-1')
        if _BINARY.search(text):
            raise
        return text


def lfs_advice(path: Path) -> str:
    """A sentence where a file is what Git LFS has in its place, as in a clone that was made without it; else empty."""
    with suppress(OSError), path.open('rb') as file:
        if file.read(len(_POINTER)) == _POINTER:
            return f'{path} is {_WITHOUT_DATA}'
    return ''


def write_whole(path: Path, data: bytes) -> None:
    """Write under a temporary name next to `path`, and rename. Raises OSError, and leaves nothing behind then."""
    temporary = path.with_name(f'.{path.name}.{secrets.token_hex(4)}.tmp')  # containers that share a folder share process ids
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def write_output(path: Path, data: bytes) -> None:
    """Write a result to the path that the user named, and make its folder. Raises LightglueTrtError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
    except OSError as error:
        raise LightglueTrtError(f'{path} cannot be written ({error.strerror}): choose another place') from error


@contextmanager
def written_together(folder: Path, advice: str = 'choose another folder') -> Iterator[Path]:
    """A scratch folder whose files move to `folder`, which is made, when the block ends well, and are removed otherwise.

    So either all files of a group exist or none, also on a full disk. Raises LightglueTrtError for an OSError, with `advice`.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix='.', suffix='.tmp', dir=folder))
        try:
            yield scratch
            for file in scratch.iterdir():
                file.replace(folder / file.name)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        raise LightglueTrtError(f'{folder} cannot be written ({error.strerror or error}), and nothing was: {advice}') from error


def make_output_folder(path: Path) -> None:
    """Make a folder for results before the work begins. Raises LightglueTrtError where it cannot be written."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise LightglueTrtError(f'cannot write to {path}: {error.strerror}; name another folder with --out') from None


@contextmanager
def own_output_folder(path: Path) -> Iterator[None]:
    """`make_output_folder`, locked against other runs of this function. Raises LightglueTrtError where another run has it.

    The lock is the kernel's, on the folder itself, so no file is left. Storage without such locks is not locked.
    """
    make_output_folder(path)
    folder = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError):
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LightglueTrtError(f'another run writes to {path}: wait for it, or name another folder with --out') from None
        yield
    finally:
        os.close(folder)


@contextmanager
def locked(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock file `path`; `waiting` is called first where another process has it. Raises OSError.

    The kernel releases the lock when its holder dies. The file stays: if it were removed, two processes could hold one name.
    """
    with path.open('ab') as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
