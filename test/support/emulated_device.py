"""A GPU and a TensorRT that are not there: the driver's Python modules on host memory, and engines that are ONNX Runtime sessions.

The device is as late and as strict as a real one may be. A stream runs only when the host waits for it. A faulty use of the
device raises `FaultError`, where a real device would give wrong results: memory used after it was freed, or beyond its end; host
arrays overwritten, or given back, while they are copied; graphs that were destroyed, or whose memory was freed.
"""

from __future__ import annotations

import hashlib
import itertools
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from support.emulated_kernels import run
from support.networks import session

FIRST, APART = 1 << 20, 1 << 30  # device addresses are never used again, so that use after free always shows
GUARD, GARBAGE = 256, 0x7F  # bytes behind each allocation; what nobody has written yet: huge numbers, as integers and as floats
TYPES = {'tensor(float)': np.float32, 'tensor(float16)': np.float16, 'tensor(uint8)': np.uint8, 'tensor(int32)': np.int32}
DEVICEMAP = DISABLE_TIMING = 2
BLOCKING_SYNC = 1
OK, PROHIBITED, INVALIDATED = (SimpleNamespace(name=name) for name in (
    'CUDA_SUCCESS', 'CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED', 'CUDA_ERROR_STREAM_CAPTURE_INVALIDATED'))

Run = Callable[[], None]
Operation = Callable[[], Run]  # called when it is enqueued, or launched with its graph; what that returns runs later


class FaultError(AssertionError):
    """The device was used wrongly. Kept in `EmulatedGpu.faults`, for code that catches everything."""


class Error(Exception):
    """pycuda.driver.Error."""


class EmulatedGpu:
    """`pycuda` and `cuda` are its modules. `waits` counts waits for what was not done, `uploaded` the bytes that were sent."""

    def __init__(self, *, integrated: bool = False) -> None:
        self.memory: dict[int, np.ndarray] = {}  # by device address; mapped host memory too
        self.pinned: dict[int, np.ndarray] = {}  # by host address
        self.graphs: set[Graph] = set()  # that nobody destroyed, instantiated or not
        self.streams: dict[int, Stream] = {}  # by handle
        self.faults: list[FaultError] = []
        self.waits = self.uploaded = 0
        self._integrated, self._addresses, self._handles = integrated, itertools.count(FIRST, APART), itertools.count(1)
        self._thread = threading.local()
        self.pycuda, self.cuda = self._pycuda(), self._cuda()

    @contextmanager
    def installed(self) -> Iterator[EmulatedGpu]:
        """PyCUDA and cuda-python are of this device meanwhile. No fault may come."""
        modules: dict[str, Any] = {}
        for path, driver in (('pycuda', self.pycuda), ('cuda.bindings', self.cuda)):
            packages: list[Any] = [ModuleType(path[:end]) for end in range(len(path) + 1) if path[end:end + 1] in ('.', '')]
            packages[-1].driver = driver
            modules |= {package.__name__: package for package in packages} | {f'{path}.driver': driver}
        with pytest.MonkeyPatch.context() as patched:
            for name, module in modules.items():
                patched.setitem(sys.modules, name, module)
            yield self
        assert not self.faults

    def fault(self, words: str) -> FaultError:
        self.faults.append(FaultError(words))
        return self.faults[-1]

    def at(self, address: int, nbytes: int = 0) -> np.ndarray:
        """Device memory from `address` on, with the guard behind it."""
        base = address - (address - FIRST) % APART
        if base not in self.memory:
            raise self.fault(f'device memory at {address:#x} is used after it was freed')
        found = self.memory[base][address - base:]
        if nbytes > len(found) - GUARD:
            raise self.fault(f'{nbytes} bytes of {len(found) - GUARD} are used at {address:#x}')
        return found

    def host(self, address: int, nbytes: int) -> np.ndarray:
        for base, found in self.pinned.items():
            if base <= address and address + nbytes <= base + found.nbytes:
                return found[address - base:address - base + nbytes]
        raise self.fault('a host array that is not pinned, or was given back, is copied from or to')

    def allocate(self, nbytes: int) -> int:
        self.usable()
        address = next(self._addresses)
        self.memory[address] = np.full(nbytes + GUARD, GARBAGE, np.uint8)
        return address

    def free(self, address: int) -> None:
        self.usable()
        self.memory.pop(address).fill(GARBAGE)

    def usable(self, *, captured: bool = False) -> None:
        """For calls that need a context, and may not be part of a graph unless they are `captured`."""
        if not getattr(self._thread, 'contexts', 0):
            raise Error('invalid device context')
        if not captured and any(stream.graph for stream in self.streams.values()):
            for stream in self.streams.values():
                stream.invalid = stream.graph is not None
            raise Error('operation not permitted when stream is capturing')

    def _enter(self) -> None:
        self._thread.contexts = getattr(self._thread, 'contexts', 0) + 1

    def _leave(self) -> None:
        self._thread.contexts -= 1
        left = {'device': self.memory, 'pinned': self.pinned, 'graphs': self.graphs}
        if not self._thread.contexts and any(left.values()):
            raise self.fault('the context goes before what lives in it: ' + ', '.join(f'{len(n)} {of}' for of, n in left.items()))

    def _pagelocked(self, shape: tuple[int, ...], dtype: Any, mem_flags: int = 0) -> np.ndarray:
        assert all(type(side) is int for side in shape), 'PyCUDA takes no integers of NumPy'
        return np.asarray(Pagelocked(self, shape, np.dtype(dtype), mem_flags == DEVICEMAP))

    def _upload(self, target: int, source: np.ndarray, stream: Stream) -> None:
        address, nbytes = source.ctypes.data, source.nbytes
        self.host(address, nbytes)

        def enqueued() -> Run:
            sent = self.host(address, nbytes).copy()
            self.uploaded += nbytes

            def run() -> None:
                if not np.array_equal(self.host(address, nbytes), sent):
                    raise self.fault('a host array was overwritten while it was copied to the device')
                self.at(target, nbytes)[:nbytes] = sent
            return run
        stream.give(enqueued)

    def _download(self, target: np.ndarray, source: int, stream: Stream) -> None:
        address, nbytes = target.ctypes.data, target.nbytes
        self.host(address, nbytes)

        def enqueued() -> Run:
            self.host(address, nbytes)[:] = GARBAGE  # until somebody waits

            def run() -> None:
                self.host(address, nbytes)[:] = self.at(source, nbytes)[:nbytes]
            return run
        stream.give(enqueued)

    def _pycuda(self) -> Any:
        attributes = {'multiprocessors': 8, 'integrated': int(self._integrated)}
        context = SimpleNamespace(push=self._enter, pop=self._leave, detach=lambda: None)
        device = SimpleNamespace(name=lambda: 'an emulated device', compute_capability=lambda: (8, 7), get_attribute=attributes.get,
                                 retain_primary_context=lambda: context)
        module: Any = ModuleType('pycuda.driver')
        vars(module).update(
            Error=Error, MemoryError=type('MemoryError', (Error,), {}), LogicError=type('LogicError', (Error,), {}),
            init=lambda: None, Device=lambda index: device, get_driver_version=lambda: 12060,
            device_attribute=SimpleNamespace(MULTIPROCESSOR_COUNT='multiprocessors', INTEGRATED='integrated'),
            mem_get_info=lambda: (10**10, 10**10), mem_alloc=lambda nbytes: Allocation(self, nbytes),
            pagelocked_empty=self._pagelocked, host_alloc_flags=SimpleNamespace(DEVICEMAP=DEVICEMAP),
            Stream=lambda: Stream(self, next(self._handles)), Event=lambda flags=0: Event(self, flags),
            event_flags=SimpleNamespace(DISABLE_TIMING=DISABLE_TIMING, BLOCKING_SYNC=BLOCKING_SYNC),
            memcpy_htod_async=self._upload, memcpy_dtoh_async=self._download,
            module_from_buffer=lambda ptx: SimpleNamespace(get_function=lambda name: Function(self, name)))
        return module

    def _cuda(self) -> Any:
        module: Any = ModuleType('cuda.bindings.driver')
        vars(module).update(
            CUstream=self.streams.__getitem__,
            CUresult=SimpleNamespace(CUDA_SUCCESS=OK, CUDA_ERROR_OUT_OF_MEMORY=SimpleNamespace(name='CUDA_ERROR_OUT_OF_MEMORY')),
            CUstreamCaptureMode=SimpleNamespace(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL=1),
            cuStreamBeginCapture=lambda stream, mode: (stream.begin(),), cuStreamEndCapture=lambda stream: stream.end(),
            cuGraphInstantiate=lambda graph, flags: (OK, Graph(self, graph.operations)),
            cuGraphLaunch=lambda graph, stream: (graph.launch(stream),),
            cuGraphDestroy=lambda graph: (graph.destroy(),), cuGraphExecDestroy=lambda graph: (graph.destroy(),))
        return module


class Allocation:
    """What mem_alloc returns: it goes with the last reference, as PyCUDA's does."""

    def __init__(self, gpu: EmulatedGpu, nbytes: int) -> None:
        self._address = gpu.allocate(nbytes)
        self._free = weakref.finalize(self, gpu.free, self._address)
        self._free.atexit = False

    def __int__(self) -> int:
        return self._address

    def free(self) -> None:
        assert self._free.alive, 'freed twice'
        self._free()


class Pagelocked:
    """The base of a pinned array: its memory goes with the last view of it."""

    def __init__(self, gpu: EmulatedGpu, shape: tuple[int, ...], dtype: np.dtype[Any], mapped: bool) -> None:
        gpu.usable()
        nbytes = int(np.prod(shape)) * dtype.itemsize
        self._mapped = gpu.allocate(nbytes) if mapped else None
        memory = np.full(nbytes + GUARD, GARBAGE, np.uint8) if self._mapped is None else gpu.memory[self._mapped]
        address = memory.ctypes.data
        gpu.pinned[address] = memory[:nbytes]
        self.__array_interface__ = {'version': 3, 'shape': tuple(map(int, shape)), 'typestr': dtype.str, 'data': (address, False)}
        weakref.finalize(self, self._release, gpu, address, self._mapped).atexit = False

    def get_device_pointer(self) -> int:
        assert self._mapped is not None
        return self._mapped

    @staticmethod
    def _release(gpu: EmulatedGpu, address: int, mapped: int | None) -> None:
        gpu.pinned.pop(address).fill(GARBAGE)
        gpu.memory.pop(mapped or 0, None)


class Stream:
    """What was enqueued runs in its order when somebody waits for it; while a graph is captured, nothing does."""

    def __init__(self, gpu: EmulatedGpu, handle: int) -> None:
        gpu.usable()
        self.handle, self.invalid, self._gpu = handle, False, gpu
        self.graph: Graph | None = None
        self._enqueued: list[Run] = []
        gpu.streams[handle] = self

    def give(self, operation: Operation) -> None:
        self._gpu.usable(captured=True)
        if self.graph is not None:
            self.graph.operations.append(operation)
        else:
            self._enqueued.append(operation())

    def synchronize(self) -> None:
        self._gpu.usable()
        self._gpu.waits += 1
        self.run_until(lambda: False)

    def run_until(self, reached: Callable[[], bool]) -> None:
        while self._enqueued and not reached():
            self._enqueued.pop(0)()

    def begin(self) -> Any:
        self.graph, self.invalid = Graph(self._gpu, []), False
        return OK

    def end(self) -> tuple[Any, Graph | None]:
        graph, self.graph = self.graph, None
        if self.invalid and graph is not None:
            graph.destroy()
        return (INVALIDATED, None) if self.invalid else (OK, graph)


class Graph:
    """Operations with the addresses that they had when they were captured."""

    def __init__(self, gpu: EmulatedGpu, operations: list[Operation]) -> None:
        self.operations, self._gpu = operations, gpu
        gpu.graphs.add(self)

    def launch(self, stream: Stream) -> Any:
        if self not in self._gpu.graphs:
            raise self._gpu.fault('a graph is launched after it was destroyed')
        for operation in self.operations:
            stream.give(operation)
        return OK

    def destroy(self) -> Any:
        if self not in self._gpu.graphs:
            raise self._gpu.fault('a graph is destroyed twice')
        self._gpu.graphs.remove(self)
        return OK


class Event:
    """Waiting for one runs what its stream was given before it, and nothing later."""

    def __init__(self, gpu: EmulatedGpu, flags: int) -> None:
        gpu.usable()
        assert flags & BLOCKING_SYNC, 'a thread that waits for it takes a whole core'
        self._gpu, self._timing, self._pending = gpu, not flags & DISABLE_TIMING, 0
        self._stream: Stream | None = None

    def record(self, stream: Stream) -> None:
        self._gpu.usable()  # of a graph, nobody can wait for it
        self._stream, self._pending = stream, self._pending + 1
        stream.give(lambda: self._reached)

    def synchronize(self) -> None:
        self._gpu.usable()
        if self._stream is not None:
            self._gpu.waits += bool(self._pending)
            self._stream.run_until(lambda: not self._pending)

    def time_since(self, earlier: Event) -> float:
        """Always 1 ms."""
        for event in (self, earlier):
            if not event._timing or event._stream is None or event._pending:
                raise Error('device not ready, or an event without a time')
        return 1.0

    def _reached(self) -> None:
        self._pending -= 1


class Function:
    """A kernel; arguments that are addresses may lie within an allocation."""

    def __init__(self, gpu: EmulatedGpu, name: str) -> None:
        self._gpu, self._name, self._kinds = gpu, name, ''

    def prepare(self, kinds: str) -> None:
        self._kinds = kinds

    def prepared_async_call(self, grid: tuple[int, int], block: tuple[int, int, int], stream: Stream, *arguments: int) -> None:
        assert min(*grid, *block) > 0
        assert len(arguments) == len(self._kinds)

        def work() -> None:
            values = [self._gpu.at(value) if kind == 'P' else value for kind, value in zip(self._kinds, arguments, strict=True)]
            run(self._name, *values)
            if not all(np.all(value[-GUARD:] == GARBAGE) for value in values if not isinstance(value, int)):
                raise self._gpu.fault(f'{self._name} wrote beyond the end of an allocation')
        stream.give(lambda: work)


class Engine:
    """A session that keeps its results: of inputs that come again it computes nothing again."""

    def __init__(self, plan: bytes) -> None:
        self._session, self._results = session(onnx.load_model_from_string(plan)), dict[bytes, list[np.ndarray]]()
        self.get_inputs, self.get_outputs = self._session.get_inputs, self._session.get_outputs

    def run(self, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
        key = hashlib.sha256(b''.join(feed[tensor.name].tobytes() for tensor in self.get_inputs())).digest()
        if key not in self._results:
            self._results[key] = self._session.run(None, feed)
        return self._results[key]


class EmulatedTensorRT:
    """An adapter whose plans are ONNX graphs."""

    _engine = staticmethod(lru_cache(16)(Engine))  # for all devices

    def __init__(self, gpu: EmulatedGpu) -> None:
        self._gpu = gpu

    def load(self, plan: bytes) -> Any:
        return self._engine(plan)

    def describe(self, engine: Any) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        return {tensor.name: (tensor.shape, tensor.dtype) for tensor in self._tensors(engine)}

    def _tensors(self, engine: Any) -> list[Any]:
        return [SimpleNamespace(name=tensor.name, dtype=np.dtype(TYPES[tensor.type]), input=number < len(engine.get_inputs()),
                                shape=tuple(tensor.shape) or (1,))
                for number, tensor in enumerate([*engine.get_inputs(), *engine.get_outputs()])]

    def activation_bytes(self, engine: Any) -> int:
        return 1

    def context(self, engine: Any, address: int, size: int) -> Any:
        return Context(self._gpu, engine, self._tensors(engine), address)


class Context:
    """Its first run cannot be captured, as those of TensorRT cannot."""

    def __init__(self, gpu: EmulatedGpu, engine: Any, tensors: list[Any], activations: int) -> None:
        self.engine, self.tensors = engine, tensors
        self.addresses: dict[str, int] = {}
        self.scalars = {tensor.name for tensor in engine.get_inputs() if not tensor.shape}
        self._gpu, self._activations, self._has_run = gpu, activations, False

    def set_tensor_address(self, name: str, address: int) -> None:
        self.addresses[name] = address

    def execute_async_v3(self, stream: int) -> bool:
        if self._gpu.streams[stream].graph is not None and not self._has_run:
            self._gpu.streams[stream].invalid = True
            return False
        self._has_run, addresses = True, dict(self.addresses)

        def work() -> None:
            feed, (inputs, outputs) = {}, ([each for each in self.tensors if each.input is side] for side in (True, False))
            self._gpu.at(self._activations)
            for tensor in inputs:
                memory = self._memory(tensor, addresses)
                feed[tensor.name] = memory.view(tensor.dtype).reshape(() if tensor.name in self.scalars else tensor.shape)
            for tensor, values in zip(outputs, self.engine.run(feed), strict=True):
                self._memory(tensor, addresses)[:] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        self._gpu.streams[stream].give(lambda: work)
        return True

    def _memory(self, tensor: Any, addresses: dict[str, int]) -> np.ndarray:
        nbytes = int(np.prod(tensor.shape)) * tensor.dtype.itemsize
        return self._gpu.at(addresses[tensor.name], nbytes)[:nbytes]
