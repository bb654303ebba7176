"""The GPU as the TensorRT backend needs it: one context, one stream, buffers, CUDA graphs. The only file that imports PyCUDA.

A context belongs to the thread that made it: make, use and close a Cuda in one thread.
"""

from __future__ import annotations

import math
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ..utils.errors import DeviceMemoryError, EngineError, in_words

KERNELS = Path(__file__).parent / 'kernels'
LANES, WARPS, THREADS = 32, 8, 256  # of a warp, and of the kernels' blocks, as kernels/portable.h has them
KERNEL_TYPES = {np.dtype(np.float16): 'fp16', np.dtype(np.float32): 'fp32'}  # how kernels of a type are called
Array = NDArray[Any]


class DevicePointer(NamedTuple):
    """On the device, in memory that something else owns."""

    address: int


class DeviceBuffer:
    """Device memory for one tensor; `address` is what TensorRT and kernels take."""

    def __init__(self, driver: Any, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self.nbytes = max(1, math.prod(shape)) * np.dtype(dtype).itemsize
        self._memory = driver.mem_alloc(self.nbytes)
        self.address = int(self._memory)

    def free(self) -> None:
        self._memory.free()


class Staged(NamedTuple):
    """A pinned host array and its copy on the device; without a `buffer` both are the same memory."""

    array: Array
    address: int
    buffer: DeviceBuffer | None


Addressed: TypeAlias = 'DeviceBuffer | Staged | DevicePointer'


class Cuda:
    """The primary context of the first GPU, current in this thread, and one stream. Raises EngineError when there is no GPU."""

    def __init__(self) -> None:
        self._driver = _pycuda()
        self._context: _Context | None = None
        os.environ.setdefault('CUDA_MODULE_LOADING', 'LAZY')  # the default since CUDA 12.2: kernels that never run take no memory
        try:
            self._driver.init()
            device, attributes = self._driver.Device(0), self._driver.device_attribute
            self.name: str = device.name()
            self.compute_capability: tuple[int, int] = device.compute_capability()
            self.multiprocessors: int = device.get_attribute(attributes.MULTIPROCESSOR_COUNT)
            self.integrated = bool(device.get_attribute(attributes.INTEGRATED))  # shares the machine's memory, as on a Jetson
            version = self._driver.get_driver_version()
            self.driver = f'{version // 1000}.{version % 1000 // 10}'  # the newest CUDA that it supports, e.g. 12.6
            self._context = _Context.enter(device)
            self._stream = self._driver.Stream()
        except self._driver.Error as error:
            if self._context is not None:
                self._context.leave()
            raise EngineError(f'GPU 0 cannot be used ({error}): check the NVIDIA driver') from error
        self._held: dict[int, DeviceBuffer | Array | Graph] = {}  # by id
        self._modules: dict[str, Any] = {}  # by the names of their kernels
        self._functions: dict[str, Any] = {}  # the kernels that were launched

    @property
    def stream(self) -> int:
        """The stream's handle, for TensorRT."""
        return int(self._stream.handle)

    def memory_mib(self) -> tuple[float, float]:
        """Free and total device memory, MiB. Raises EngineError."""
        with self._checked(''):
            free, total = self._driver.mem_get_info()
        return free / 2**20, total / 2**20

    def device(self, shape: tuple[int, ...], dtype: DTypeLike) -> DeviceBuffer:
        """A new device buffer. Raises EngineError, DeviceMemoryError when memory is exhausted."""
        with self._checked():
            buffer = DeviceBuffer(self._driver, shape, dtype)
        self._held[id(buffer)] = buffer
        return buffer

    def staged(self, shape: tuple[int, ...], dtype: DTypeLike, *, shared: bool = False) -> Staged:
        """A pinned host array with memory on the device, for `send` and `receive`.

        With `shared` both are the same memory on a GPU that shares the machine's. Raises EngineError, DeviceMemoryError.
        """
        shared = shared and self.integrated
        with self._checked('page-locked memory'):
            flags = self._driver.host_alloc_flags.DEVICEMAP if shared else 0
            array: Array = self._driver.pagelocked_empty(shape, dtype, mem_flags=flags)
        self._held[id(array)] = array
        if shared:
            return Staged(array, int(array.base.get_device_pointer()), None)  # type: ignore[union-attr]
        buffer = self.device(shape, dtype)
        return Staged(array, buffer.address, buffer)

    def send(self, staged: Staged) -> None:
        """Enqueue its copy to the device, where there is one. Raises EngineError."""
        if staged.buffer is not None:
            with self._checked():
                self._driver.memcpy_htod_async(staged.address, staged.array, self._stream)

    def receive(self, staged: Staged) -> None:
        """Enqueue its copy to the host, where there is one. Raises EngineError."""
        if staged.buffer is not None:
            with self._checked():
                self._driver.memcpy_dtoh_async(staged.array, staged.address, self._stream)

    def load_kernels(self, name: str) -> None:
        """Let the driver compile the kernels of `name`.ptx for its GPU. Raises EngineError."""
        ptx = (KERNELS / f'{name}.ptx').read_bytes()
        try:
            module = self._driver.module_from_buffer(ptx + b'\0')
        except self._driver.Error as error:
            raise EngineError(f'the driver does not take the kernels ({error}): update it') from error
        self._modules |= dict.fromkeys(re.findall(r'\.entry (\w+)', ptx.decode()), module)

    def launch(self, kernel: str, blocks: int, threads: tuple[int, int], *arguments: int | Addressed) -> None:
        """Enqueue `blocks` blocks of so many threads; arguments are int32, and pointers whatever has an address.

        Raises EngineError.
        """
        with self._checked():
            function = self._functions.get(kernel)
            if function is None:
                function = self._functions[kernel] = self._modules[kernel].get_function(kernel)
                function.prepare(''.join('i' if isinstance(each, int) else 'P' for each in arguments))
            values = (each if isinstance(each, int) else each.address for each in arguments)
            function.prepared_async_call((blocks, 1), (*threads, 1), self._stream, *values)

    def event(self, *, timing: bool = False) -> Any:
        """A new event, for `mark` and `wait`; `.time_since(earlier)` is in milliseconds. Raises EngineError.

        A thread that waits for it sleeps: one that asks again and again takes a whole core from the robot.
        """
        flags = self._driver.event_flags
        with self._checked():
            return self._driver.Event(flags.BLOCKING_SYNC | (0 if timing else flags.DISABLE_TIMING))

    def mark(self, event: Any) -> None:
        """Record `event` on the stream. Raises EngineError."""
        with self._checked():
            event.record(self._stream)

    def wait(self, event: Any) -> None:
        """Wait for all that was enqueued before `event` was marked. Raises EngineError."""
        with self._checked():
            event.synchronize()

    def synchronize(self) -> None:
        """Wait for all that is enqueued. Raises EngineError when it failed, DeviceMemoryError for want of memory."""
        self.mark(self._enqueued)
        self.wait(self._enqueued)

    @cached_property
    def _enqueued(self) -> Any:
        return self.event()

    def capture(self, work: Callable[[], None]) -> Graph:
        """Record what `work` enqueues as a CUDA graph. Raises EngineError where that is not possible."""
        graph = Graph(self.stream, work)
        self._held[id(graph)] = graph
        return graph

    def free(self, *things: DeviceBuffer | Staged | Graph) -> None:
        """Give back what is of here and nothing uses any more; `close` frees all that is left."""
        for thing in things:
            for part in (thing.array, thing.buffer) if isinstance(thing, Staged) else (thing,):
                held = self._held.pop(id(part), None)
                if isinstance(held, (DeviceBuffer, Graph)):
                    held.free()

    def close(self) -> None:
        """Release graphs, memory, stream and context, in this order. Safe to call twice."""
        context, self._context = self._context, None
        if context is None:
            return
        with suppress(self._driver.Error):
            self._stream.synchronize()
        self.free(*(each for each in self._held.values() if isinstance(each, Graph)))
        self.free(*(each for each in self._held.values() if isinstance(each, DeviceBuffer)))
        self._held, self._functions, self._modules, self._stream = {}, {}, {}, None
        vars(self).pop('_enqueued', None)
        context.leave()

    @contextmanager
    def _checked(self, memory: str = 'device memory') -> Iterator[None]:
        """Raise PyCUDA's errors as EngineError, and as DeviceMemoryError where `memory` is exhausted."""
        try:
            yield
        except self._driver.Error as error:
            if memory and (isinstance(error, self._driver.MemoryError) or 'out of memory' in str(error)):
                raise DeviceMemoryError(f'{memory} is exhausted ({error}), {self.memory_mib()[0]:.0f} MiB are free on the device: '
                                        'use a smaller engine or end other programs') from error
            raise EngineError(f'the GPU failed: {error}; start the program again, and see dmesg if it goes on') from error


class DeviceInput:
    """An array that changes rarely, uploaded once for all frames that have it.

    Captured graphs read it in `staged`, which does not move.
    """

    def __init__(self, cuda: Cuda, shape: tuple[int, ...], dtype: DTypeLike, default: ArrayLike, *, shared: bool = False) -> None:
        """`default` at first, a value or an array. `shared` as for `Cuda.staged`. Raises EngineError, DeviceMemoryError."""
        self.staged = cuda.staged(shape, dtype, shared=shared)
        self._cuda, self._sent, self._default = cuda, cuda.event(), default
        self._upload(None)

    def set(self, array: NDArray[Any] | None) -> None:
        """Upload the array of the next frame where it is another one; None: the default. Raises EngineError."""
        if array is not self._uploaded:
            self._upload(array)

    def _upload(self, array: NDArray[Any] | None) -> None:
        self._cuda.wait(self._sent)  # the staging array may still be on its way
        np.copyto(self.staged.array, self._default if array is None else array)
        self._cuda.send(self.staged)
        self._cuda.mark(self._sent)
        self._uploaded = array  # held, so that no other array has its identity


class _Context:
    """A thread's primary context of the GPU, current from the first `enter` to the last `leave`, in whatever order those come."""

    _of_this_thread: ClassVar = threading.local()  # not by the thread's id, which the next one may get

    def __init__(self, device: Any) -> None:
        self._context, self._users = device.retain_primary_context(), 0
        self._context.push()

    @classmethod
    def enter(cls, device: Any) -> _Context:
        here = vars(cls._of_this_thread)
        context: _Context = here.get('context') or cls(device)
        context._users += 1
        here['context'] = context
        return context

    def leave(self) -> None:
        self._users -= 1
        if not self._users:
            self._of_this_thread.context = None
            self._context.pop()
            self._context.detach()


class Graph:
    """An instantiated CUDA graph, through cuda-python's driver, which shares the thread's current context."""

    def __init__(self, stream_handle: int, work: Callable[[], None]) -> None:
        """Record what `work` enqueues on the stream. Raises EngineError where it cannot be recorded."""
        try:
            from cuda.bindings import driver
        except ImportError as error:
            raise EngineError('cuda-python is not installed') from error
        self._driver, self._stream, ok = driver, driver.CUstream(stream_handle), driver.CUresult.CUDA_SUCCESS
        status, = driver.cuStreamBeginCapture(self._stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
        if status != ok:
            raise EngineError(f'the capture could not begin: {status.name}')
        failure = ''
        try:
            work()
        except Exception as error:  # capture has to end whatever happened; plain enqueueing then shows the error
            failure = in_words(error)
        status, graph = driver.cuStreamEndCapture(self._stream)
        if status != ok:
            raise EngineError(failure or f'the capture failed: {status.name}')
        if not failure:
            status, self._executable = driver.cuGraphInstantiate(graph, 0)
        driver.cuGraphDestroy(graph)
        if failure or status != ok:
            raise EngineError(failure or f'the graph could not be instantiated: {status.name}')

    def launch(self) -> None:
        """Enqueue what was recorded. Raises EngineError, DeviceMemoryError."""
        status = self._driver.cuGraphLaunch(self._executable, self._stream)[0]
        if status == self._driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            raise DeviceMemoryError('device memory is exhausted: a CUDA graph could not be launched; end other programs')
        if status != self._driver.CUresult.CUDA_SUCCESS:
            raise EngineError(f'the CUDA graph could not be launched: {status.name}')

    def free(self) -> None:
        """Destroy it, once it does not run any more."""
        self._driver.cuGraphExecDestroy(self._executable)


def _pycuda() -> Any:
    try:
        import pycuda.driver
    except ModuleNotFoundError as error:
        raise EngineError(f'PyCUDA is not installed ({error}): pip install pycuda, with the CUDA toolkit on PATH') from error
    except ImportError as error:
        raise EngineError(f'PyCUDA cannot be loaded ({error})') from error
    return pycuda.driver
