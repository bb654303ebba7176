"""The GPU's kernels on the CPU: their source is plain C++ for a compiler that knows no CUDA, with one thread that does it all."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lightglue_trt_ros.backends.cuda import KERNELS

SOURCES, SHARED = sorted(KERNELS.glob('*.cu')), sorted({*KERNELS.glob('*.h')} - {KERNELS / 'instructions.h'})


@cache
def compiled() -> ctypes.CDLL:
    """The kernels as a library of functions. Skips without a C++ compiler."""
    return library_of(*SOURCES)


def library_of(*sources: Path) -> ctypes.CDLL:
    """Kernels as a library of functions. Skips without a C++ compiler."""
    return built(['-std=c++17', '-Wall', '-Werror'], sources, read=[*SHARED, *sources])


def built(options: list[str], sources: Sequence[Path | str], *, read: Sequence[Path], include: Sequence[Path] = (),
          text: str = '') -> ctypes.CDLL:
    """A C++ library, kept in the temporary folder for all processes. Skips without a C++ compiler.

    Args:
        sources: files, or '-' for `text`.
        read: all files that the compiler reads.
        include: folders of headers.
    """
    compiler = next(filter(None, map(shutil.which, ('g++', 'clang++', 'c++'))), None)
    if compiler is None:
        pytest.skip('no C++ compiler: the kernels are not run here')
    options = ['-x', 'c++', '-O2', '-shared', '-fPIC', *options]
    contents = [' '.join(options).encode(), text.encode(), *(path.read_bytes() for path in read)]
    name = hashlib.sha256(b''.join(contents)).hexdigest()[:16]
    library = Path(tempfile.gettempdir()) / f'lightglue_trt_ros-kernels-{os.getuid()}-{name}.so'
    if not library.exists():
        draft = library.with_suffix(f'.{os.getpid()}')
        folders = [f'-I{folder}' for folder in (*include, KERNELS)]
        subprocess.run([compiler, *options, *folders, '-o', draft, *sources], input=text, text=True, check=True)
        draft.replace(library)
    return ctypes.CDLL(str(library))


def run(name: str, *arguments: int | Any) -> None:
    """Run a kernel; integers are int32, anything else is an array of the host."""
    values = (ctypes.c_int(each) if isinstance(each, int) else ctypes.c_void_p(each.ctypes.data) for each in arguments)
    getattr(compiled(), name)(*values)
