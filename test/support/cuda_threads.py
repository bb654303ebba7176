"""The GPU's kernels on the CPU as a GPU runs them: a fiber for each of its threads, which meet where those do. For small sizes."""

from __future__ import annotations

import ctypes
import mmap
import re
from functools import cache
from pathlib import Path

import numpy as np
from support.emulated_kernels import SHARED, built

from lightglue_trt_ros.backends.cuda import KERNELS, Staged

HEADERS = Path(__file__).parent / 'threads'


@cache
def library(name: str) -> ctypes.CDLL:
    """Kernels of `name`.cu; launch_KERNEL starts one. Skips without a C++ compiler."""
    source = KERNELS / f'{name}.cu'
    kernels = re.findall(r'^KERNEL (?:[A-Z]+ |__launch_bounds__\(.*?\) )?(\w+)\(', source.read_text(), re.M)
    text = ['#include <instructions.h>', f'#include "{source.name}"', *(f'LAUNCHED({each})' for each in dict.fromkeys(kernels))]
    # a checked longjmp refuses to change the stack; no frame may overflow a fiber's
    options = ['-std=c++17', '-ffp-contract=off', '-U_FORTIFY_SOURCE', '-Werror=frame-larger-than=20000']
    return built(options, ['-'], read=[HEADERS / 'instructions.h', *SHARED, source], include=[HEADERS],
                 text='\n'.join(text) + '\n')


class ThreadedCuda:
    """A Cuda whose memory is the host's. Kernels run when they are launched; their arguments are arrays."""

    def __init__(self) -> None:
        self._sources: dict[str, str] = {}  # by the names of their kernels

    def load_kernels(self, name: str) -> None:
        text = (KERNELS / f'{name}.ptx').read_text()
        self._sources |= dict.fromkeys(re.findall(r'\.entry (\w+)', text), name)

    def device(self, shape: tuple[int, ...], dtype: type) -> np.ndarray:
        return np.frombuffer(bytearray(b'\x7f' * int(np.prod(shape) * np.dtype(dtype).itemsize)), dtype).reshape(shape)

    def staged(self, shape: tuple[int, ...], dtype: type, *, shared: bool = False) -> Staged:
        array = self.device(shape, dtype)
        return Staged(array, array.ctypes.data, None)

    def free(self, *arrays: np.ndarray) -> None:
        pass

    def event(self) -> None:
        """What all is done with at once needs none."""

    send = receive = mark = wait = synchronize = free

    def launch(self, kernel: str, blocks: int, threads: tuple[int, int], *arguments: int | np.ndarray) -> None:
        values = [each if isinstance(each, int) else array_of(each).ctypes.data for each in arguments]
        start = getattr(library(self._sources[kernel]), f'launch_{kernel}')
        start.restype = ctypes.c_char_p
        error = start(blocks, threads[0], (ctypes.c_int64 * len(values))(*values))
        assert error is None, f'{kernel}: {error.decode()}'


def array_of(memory: np.ndarray | Staged) -> np.ndarray:
    """What a kernel works on."""
    return memory.array if isinstance(memory, Staged) else memory


def before_a_guard(values: np.ndarray) -> np.ndarray:
    """A copy that ends where memory ends: who reads or writes behind it ends the process."""
    page = mmap.PAGESIZE
    pages = -(-values.nbytes // page)
    memory = mmap.mmap(-1, (pages + 1) * page)
    copied = np.frombuffer(memory, values.dtype, values.size, pages * page - values.nbytes).reshape(values.shape)
    copied[:] = values
    behind = copied.ctypes.data + values.nbytes
    protected = ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(behind), ctypes.c_size_t(page), 0)  # PROT_NONE
    assert not protected
    return copied
