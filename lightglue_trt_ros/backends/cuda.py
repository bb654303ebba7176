"""The GPU as the TensorRT backend needs it: one context, one stream, buffers, CUDA graphs. The only file that imports PyCUDA.

A context belongs to the thread that made it: make, use and close a Cuda in one thread.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..utils.errors import DeviceMemoryError, EngineError, in_words

Array = NDArray[Any]


class Addressed(Protocol):
    """What lies on the device."""

    @property
    def address(self) -> int: ...


class DeviceBuffer:
    """Device memory for one tensor; `address` is what TensorRT binds."""

    def __init__(self, driver: Any, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.nbytes = max(1, math.prod(shape)) * self.dtype.itemsize
        self._memory = driver.mem_alloc(self.nbytes)

    @property
    def address(self) -> int:
        return int(self._memory)

    def free(self) -> None:
        """Give the memory back. Safe to call twice."""
        memory, self._memory = self._memory, None
        if memory is not None:
            memory.free()


class Staged:
    """A host array and what it is on the device: a copy, or, on a Jetson, whose memory is one, itself."""

    def __init__(self, array: Array, buffer: Addressed) -> None:
        self.array, self.buffer = array, buffer
        self.copied = isinstance(buffer, DeviceBuffer)


class Place(NamedTuple):
    """On the device, in memory that something else owns."""

    address: int


class Kernels:
    """Kernels of a PTX file, which the driver compiles for its GPU. Raises EngineError."""

    def __init__(self, driver: Any, stream: Any, ptx: bytes) -> None:
        self._stream = stream
        try:
            self._module = driver.module_from_buffer(ptx + b'\0')
        except driver.Error as error:
            raise EngineError(f'the driver does not take the kernels ({error}): update it') from error
        self._functions: dict[str, Any] = {}

    def launch(self, name: str, blocks: int, threads: tuple[int, int], *arguments: int | Addressed) -> None:
        """Enqueue `blocks` blocks of so many threads; arguments are int32, and pointers whatever has an address."""
        function = self._functions.get(name)
        if function is None:
            function = self._functions[name] = self._module.get_function(name)
            function.prepare(''.join('i' if isinstance(each, int) else 'P' for each in arguments))
        values = (each if isinstance(each, int) else each.address for each in arguments)
        function.prepared_async_call((blocks, 1), (*threads, 1), self._stream, *values)


class Cuda:
    """The primary context of a GPU, current in this thread, and one stream. Raises EngineError when there is no GPU."""

    def __init__(self, index: int = 0) -> None:
        self._driver = _pycuda()
        try:
            self._driver.init()
            device, attributes = self._driver.Device(index), self._driver.device_attribute
            self.name: str = device.name()
            self.compute_capability: tuple[int, int] = device.compute_capability()
            self.multiprocessors: int = device.get_attribute(attributes.MULTIPROCESSOR_COUNT)
            self.integrated = bool(device.get_attribute(attributes.INTEGRATED))  # shares the machine's memory, as on a Jetson
            self.mapped = self.integrated  # whether `staged` is the same memory on both sides
            version = self._driver.get_driver_version()
            self.driver = f'{version // 1000}.{version % 1000 // 10}'  # the newest CUDA that it supports, e.g. 12.6
            self._context: _Context | None = _Context.enter(device, index)
        except self._driver.Error as error:
            raise EngineError(f'GPU {index} cannot be used ({error}): check the NVIDIA driver') from error
        try:
            self._stream = self._driver.Stream()
        except self._driver.Error as error:
            self._context.leave()
            raise EngineError(f'GPU {index} cannot be used ({error}): check the NVIDIA driver') from error
        self._buffers: list[DeviceBuffer] = []
        self._pinned: list[Array] = []
        self._graphs: list[Graph] = []

    @property
    def stream(self) -> int:
        """The stream's handle, for TensorRT."""
        return int(self._stream.handle)

    def memory_mib(self) -> tuple[float, float]:
        """Free and total device memory, MiB. Raises EngineError."""
        try:
            free, total = self._driver.mem_get_info()
        except self._driver.Error as error:
            raise EngineError(f'the GPU failed: {error}') from error
        return free / 2**20, total / 2**20

    def device(self, shape: tuple[int, ...], dtype: DTypeLike) -> DeviceBuffer:
        """A new device buffer, freed by `close`. Raises DeviceMemoryError when memory is exhausted."""
        try:
            buffer = DeviceBuffer(self._driver, shape, dtype)
        except self._driver.Error as error:
            raise self._failed(error) from error
        self._buffers.append(buffer)
        return buffer

    def pinned(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """A host array that the GPU copies from and to without a detour. Raises DeviceMemoryError when memory is exhausted."""
        return self._page_locked(shape, dtype, 0)

    def staged(self, shape: tuple[int, ...], dtype: DTypeLike) -> Staged:
        """A pinned host array with its place on the device, for `send` and `receive`. Raises DeviceMemoryError."""
        if not self.mapped:
            return Staged(self.pinned(shape, dtype), self.device(shape, dtype))
        array = self._page_locked(shape, dtype, self._driver.host_alloc_flags.DEVICEMAP)
        return Staged(array, Place(int(array.base.get_device_pointer())))  # type: ignore[union-attr]

    def send(self, staged: Staged) -> None:
        """Enqueue its copy to the device, where there is one."""
        if staged.copied:
            self.upload(staged.buffer, staged.array)

    def receive(self, staged: Staged) -> None:
        """Enqueue its copy to the host, where there is one."""
        if staged.copied:
            self.download(staged.array, staged.buffer)

    def kernels(self, ptx: bytes) -> Kernels:
        """The kernels of a PTX file, on this stream. Raises EngineError."""
        return Kernels(self._driver, self._stream, ptx)

    def free(self, *things: DeviceBuffer | Staged | Graph) -> None:
        """Give back what is of here and nothing uses any more."""
        parts = [part for each in things for part in ((each.buffer, each.array) if isinstance(each, Staged) else (each,))]
        for part in parts:
            if isinstance(part, (DeviceBuffer, Graph)):
                part.free()
        given = set(map(id, parts))
        self._graphs = [graph for graph in self._graphs if id(graph) not in given]
        self._buffers = [buffer for buffer in self._buffers if id(buffer) not in given]
        self._pinned = [array for array in self._pinned if id(array) not in given]

    def upload(self, target: Addressed, source: Array) -> None:
        """Enqueue a copy of a pinned array to the device."""
        self._driver.memcpy_htod_async(target.address, source, self._stream)

    def download(self, target: Array, source: Addressed) -> None:
        """Enqueue a copy of device memory into a pinned array."""
        self._driver.memcpy_dtoh_async(target, source.address, self._stream)

    def event(self, *, timing: bool = False) -> Any:
        """A new event: `.record(…)` is `mark`, `.synchronize()` waits, `.time_since(earlier)` is in milliseconds."""
        return self._driver.Event(0 if timing else self._driver.event_flags.DISABLE_TIMING)

    def mark(self, event: Any) -> None:
        """Record `event` on the stream."""
        event.record(self._stream)

    def synchronize(self) -> None:
        """Wait for all that is enqueued. Raises EngineError when it failed, DeviceMemoryError for want of memory."""
        try:
            self._stream.synchronize()
        except self._driver.Error as error:
            raise self._failed(error) from error

    def capture(self, work: Callable[[], None]) -> Graph:
        """Record what `work` enqueues as a CUDA graph, which `free` gives back. Raises EngineError where that is not possible."""
        graph = Graph.record(self.stream, work)
        self._graphs.append(graph)
        return graph

    def close(self) -> None:
        """Release graphs, memory, stream and context, in this order. Safe to call twice."""
        context, self._context = self._context, None
        if context is None:
            return
        with suppress(self._driver.Error):
            self._stream.synchronize()
        self.free(*self._graphs)
        self.free(*self._buffers)
        self._pinned, self._stream = [], None
        context.leave()

    def _page_locked(self, shape: tuple[int, ...], dtype: DTypeLike, flags: int) -> Array:
        try:
            array: Array = self._driver.pagelocked_empty(shape, dtype, mem_flags=flags)
        except self._driver.Error as error:
            raise self._failed(error, 'page-locked memory') from error
        self._pinned.append(array)
        return array

    def _failed(self, error: Exception, memory: str = 'device memory') -> EngineError:
        if isinstance(error, self._driver.MemoryError) or 'out of memory' in str(error):
            return DeviceMemoryError(f'{memory} is exhausted ({error}), {self.memory_mib()[0]:.0f} MiB are free on the device: '
                                     'use a smaller engine or end other programs')
        return EngineError(f'the GPU failed: {error}')


class _Context:
    """A thread's primary context of one GPU, current from the first `enter` to the last `leave`, in whatever order those come."""

    _of_this_thread: ClassVar = threading.local()  # not by the thread's id, which the next one may get

    def __init__(self, entered: dict[int, _Context], index: int, context: Any) -> None:
        self._entered, self._index, self._context, self._users = entered, index, context, 0

    @classmethod
    def enter(cls, device: Any, index: int) -> _Context:
        entered: dict[int, _Context] = cls._of_this_thread.__dict__.setdefault('entered', {})
        if index not in entered:
            context = device.retain_primary_context()
            context.push()
            entered[index] = cls(entered, index, context)
        entered[index]._users += 1
        return entered[index]

    def leave(self) -> None:
        self._users -= 1
        if not self._users:
            del self._entered[self._index]
            self._context.pop()
            self._context.detach()


class Graph:
    """An instantiated CUDA graph, through cuda-python's driver, which shares the thread's current context."""

    def __init__(self, driver: Any, executable: Any, stream: Any) -> None:
        self._driver, self._executable, self._stream = driver, executable, stream

    @classmethod
    def record(cls, stream_handle: int, work: Callable[[], None]) -> Graph:
        """What `work` enqueues on the stream. Raises EngineError where it cannot be recorded."""
        try:
            from cuda.bindings import driver
        except ImportError as error:
            raise EngineError('cuda-python is not installed') from error
        stream, ok = driver.CUstream(stream_handle), driver.CUresult.CUDA_SUCCESS
        status, = driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
        if status != ok:
            raise EngineError(f'the capture could not begin: {status.name}')
        failure = ''
        try:
            work()
        except Exception as error:  # capture has to end whatever happened; plain enqueueing then shows the error
            failure = in_words(error)
        status, graph = driver.cuStreamEndCapture(stream)
        if status != ok:
            raise EngineError(failure or f'the capture failed: {status.name}')
        if not failure:
            status, executable = driver.cuGraphInstantiate(graph, 0)
        driver.cuGraphDestroy(graph)
        if failure or status != ok:
            raise EngineError(failure or f'the graph could not be instantiated: {status.name}')
        return cls(driver, executable, stream)

    def launch(self) -> None:
        """Enqueue what was recorded. Raises EngineError, DeviceMemoryError."""
        status = self._driver.cuGraphLaunch(self._executable, self._stream)[0]
        if status == self._driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            raise DeviceMemoryError('device memory is exhausted: a CUDA graph could not be launched; end other programs')
        if status != self._driver.CUresult.CUDA_SUCCESS:
            raise EngineError(f'the CUDA graph could not be launched: {status.name}')

    def free(self) -> None:
        """Destroy it, once it does not run any more. Safe to call twice."""
        executable, self._executable = self._executable, None
        if executable is not None:
            self._driver.cuGraphExecDestroy(executable)


def _pycuda() -> Any:
    try:
        import pycuda.driver
    except ModuleNotFoundError as error:
        raise EngineError(f'PyCUDA is not installed ({error}): pip install pycuda, with the CUDA toolkit on PATH') from error
    except ImportError as error:
        raise EngineError(f'PyCUDA cannot be loaded ({error})') from error
    return pycuda.driver
