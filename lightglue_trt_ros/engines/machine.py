"""What GPU this machine has, asked of the driver itself: needs neither PyCUDA nor nvidia-smi, which a Jetson lacks.

CUDA driver API (libcuda.so.1), functions by their versioned names.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import EngineError

LIBRARY = 'libcuda.so.1'
_MULTIPROCESSORS, _INTEGRATED, _MAJOR, _MINOR = 16, 18, 75, 76  # CUdevice_attribute
_ADVICE = {  # CUresult
    34: 'the library is a stub for linking: take the stubs folder out of LD_LIBRARY_PATH',
    100: 'no GPU is visible: check CUDA_VISIBLE_DEVICES, and start a container with its GPUs (--gpus all, --runtime nvidia)',
    802: 'the GPU is not initialised yet: wait, or start the fabric manager',
    803: 'driver and kernel module differ: reboot after a driver update',
    999: 'the kernel module does not answer: reboot, or load nvidia_uvm (nvidia-modprobe -u)',
}


@dataclass(frozen=True)
class Machine:
    """One GPU as its driver describes it, or, with `multiprocessors` 0, any GPU of a compute capability."""

    gpu: str  # empty where it is any
    compute_capability: tuple[int, int]
    multiprocessors: int
    free_mib: int  # what an allocation may take now
    total_mib: int
    driver: str  # the newest CUDA that the driver supports, e.g. 12.6
    integrated: bool  # shares the machine's memory, as on a Jetson

    @property
    def present(self) -> bool:
        """Whether this is the machine's own GPU."""
        return self.multiprocessors > 0

    def __str__(self) -> str:
        major, minor = self.compute_capability
        if not self.present:
            return f'any GPU of compute capability {major}.{minor}'
        return (f'{self.gpu}, compute capability {major}.{minor}, {self.multiprocessors} multiprocessors, '
                f'{self.free_mib} of {self.total_mib} MiB {"shared memory " if self.integrated else ""}free, '
                f'driver for CUDA {self.driver}')


def target(sm: int) -> Machine:
    """Any GPU of the compute capability that `sm` writes without its point: 89 is 8.9. Raises EngineError."""
    if not 50 <= sm <= 199:
        raise EngineError(f'compute capability {sm} does not exist: write 8.9 as 89')
    return Machine('', divmod(sm, 10), 0, 0, 0, '', False)


def probe(cuda: Any = None) -> Machine:
    """The GPU that CUDA counts as the first one; `cuda` replaces the driver's library.

    The device's primary context lives for the length of the call. Raises EngineError where there is no driver or no GPU.
    """
    driver = _Driver(cuda or _library())
    driver('cuInit', 0)
    version, device, total = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
    name = ctypes.create_string_buffer(256)
    driver('cuDriverGetVersion', ctypes.byref(version))
    driver('cuDeviceGet', ctypes.byref(device), 0)
    driver('cuDeviceGetName', name, len(name), device)
    driver('cuDeviceTotalMem_v2', ctypes.byref(total), device)
    integrated = bool(driver.attribute(_INTEGRATED, device))
    free = driver.free_bytes(device)
    if integrated:  # the driver counts what caches hold as taken; the kernel gives it back on demand
        free = max(free, _available_bytes())
    return Machine(gpu=name.value.decode(errors='replace'),
                   compute_capability=(driver.attribute(_MAJOR, device), driver.attribute(_MINOR, device)),
                   multiprocessors=driver.attribute(_MULTIPROCESSORS, device), free_mib=free >> 20, total_mib=total.value >> 20,
                   driver=f'{version.value // 1000}.{version.value % 1000 // 10}', integrated=integrated)


class _Driver:
    """Calls that raise EngineError, with the driver's own words and what to do."""

    def __init__(self, cuda: Any) -> None:
        self.cuda = cuda

    def __call__(self, function: str, *arguments: Any) -> None:
        code = getattr(self.cuda, function)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self.cuda.cuGetErrorString(code, ctypes.byref(text))
            words = (text.value or b'unknown error').decode()
            raise EngineError(f'no usable GPU: {function} says "{words}" (CUDA error {code}); '
                              f'{_ADVICE.get(code, "check the NVIDIA driver")}')

    def attribute(self, number: int, device: ctypes.c_int) -> int:
        value = ctypes.c_int()
        self('cuDeviceGetAttribute', ctypes.byref(value), number, device)
        return value.value

    def free_bytes(self, device: ctypes.c_int) -> int:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        with self._context(device):
            self('cuMemGetInfo_v2', ctypes.byref(free), ctypes.byref(total))
        return free.value

    @contextmanager
    def _context(self, device: ctypes.c_int) -> Iterator[None]:
        context = ctypes.c_void_p()
        self('cuDevicePrimaryCtxRetain', ctypes.byref(context), device)
        try:
            self('cuCtxPushCurrent_v2', context)
            try:
                yield
            finally:
                self('cuCtxPopCurrent_v2', ctypes.byref(ctypes.c_void_p()))
        finally:
            self('cuDevicePrimaryCtxRelease_v2', device)


def _library() -> Any:
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise EngineError(f'no usable GPU: the NVIDIA driver\'s {LIBRARY} cannot be loaded ({error}); install the driver, or start '
                          f'the container with its GPUs (--gpus all, on a Jetson --runtime nvidia)') from error


def _available_bytes(meminfo: Path = Path('/proc/meminfo')) -> int:
    try:
        fields = dict(line.split(':', 1) for line in meminfo.read_text().splitlines())
        return int(fields['MemAvailable'].split()[0]) << 10
    except (OSError, KeyError, ValueError):
        return 0
