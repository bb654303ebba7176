"""A GPU and a TensorRT that are not there: buffers are arrays, engines are ONNX Runtime's sessions of their graphs."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
from emulated_kernels import run
from networks import session

FIRST, APART = 1 << 20, 1 << 30
ADDRESSES = itertools.count(FIRST, APART)
MEMORY: dict[int, np.ndarray] = {}
TYPES = {'tensor(float)': np.float32, 'tensor(float16)': np.float16, 'tensor(uint8)': np.uint8, 'tensor(int32)': np.int32}


class Buffer:
    def __init__(self, shape, dtype) -> None:
        self.shape, self.dtype, self.address = tuple(shape), np.dtype(dtype), next(ADDRESSES)
        MEMORY[self.address] = np.full(max(1, int(np.prod(shape))) * self.dtype.itemsize, 0x55, np.uint8)
        self.nbytes = MEMORY[self.address].nbytes

    def free(self) -> None:
        MEMORY.pop(self.address, None)


class EmulatedCuda:
    """A stream that does everything at once, and captures what it did; `waits` counts."""

    stream, name = 0, 'an emulated device'

    def __init__(self) -> None:
        self.waits, self.uploaded = 0, 0
        self.graphs: list[Any] = []  # that were captured, and not freed

    def memory_mib(self) -> tuple[float, float]:
        return 1e4, 1e4

    def device(self, shape, dtype) -> Buffer:
        return Buffer(shape, dtype)

    def pinned(self, shape, dtype) -> np.ndarray:
        return np.zeros(shape, dtype)

    def staged(self, shape, dtype) -> Any:
        return SimpleNamespace(array=self.pinned(shape, dtype), buffer=self.device(shape, dtype))

    def send(self, staged) -> None:
        self.upload(staged.buffer, staged.array)

    def receive(self, staged) -> None:
        self.download(staged.array, staged.buffer)

    def kernels(self, ptx) -> Any:
        return SimpleNamespace(launch=launch)

    def free(self, *things) -> None:
        for each in things:
            getattr(each, 'buffer', each).free()

    def upload(self, target, source) -> None:
        assert target.nbytes == source.nbytes
        self.uploaded += source.nbytes
        MEMORY[target.address][:] = source.reshape(-1).view(np.uint8)

    def download(self, target, source) -> None:
        assert target.nbytes == source.nbytes
        target.reshape(-1).view(np.uint8)[:] = MEMORY[source.address]

    def event(self, *, timing=False) -> Any:
        return SimpleNamespace(synchronize=lambda: None, time_since=lambda other: 1.0)

    def mark(self, event) -> None:
        """Everything has run."""

    def synchronize(self) -> None:
        self.waits += 1

    def capture(self, work):
        graph = SimpleNamespace(launch=work, free=lambda: self.graphs.remove(graph))
        self.graphs.append(graph)
        return graph

    def close(self) -> None:
        """Nothing is held."""


def launch(name, blocks, threads, *arguments) -> None:
    """As Kernels: everything at once; addresses may lie within a buffer."""
    assert blocks > 0
    run(name, *(each if isinstance(each, int) else memory_at(each.address) for each in arguments))


def memory_at(address: int) -> np.ndarray:
    offset = (address - FIRST) % APART
    return MEMORY[address - offset][offset:]


class EmulatedTensorRT:
    """An adapter whose plans are ONNX graphs."""

    def load(self, plan: bytes) -> Any:
        return session(onnx.load_model_from_string(plan))

    def describe(self, engine) -> list[Any]:
        return [SimpleNamespace(name=tensor.name, dtype=np.dtype(TYPES[tensor.type]), input=number < len(engine.get_inputs()),
                                shape=tuple(tensor.shape) or (1,))
                for number, tensor in enumerate([*engine.get_inputs(), *engine.get_outputs()])]

    def activation_bytes(self, engine) -> int:
        return 1

    def context(self, engine, address, size) -> Any:
        return Context(engine, self.describe(engine))


class Context:
    def __init__(self, engine, tensors) -> None:
        self.engine, self.tensors, self.addresses = engine, tensors, {}
        self.scalars = {tensor.name for tensor in engine.get_inputs() if not tensor.shape}
        self.shapes = {tensor.name: tensor.shape for tensor in tensors if tensor.input}

    def set_tensor_address(self, name, address) -> None:
        self.addresses[name] = address

    def execute_async_v3(self, stream) -> bool:
        feed = {}
        for tensor in self.tensors:
            if tensor.input:
                shape = () if tensor.name in self.scalars else self.shapes[tensor.name]
                size = int(np.prod(shape)) * tensor.dtype.itemsize
                feed[tensor.name] = MEMORY[self.addresses[tensor.name]][:size].view(tensor.dtype).reshape(shape)
        for tensor, values in zip((each for each in self.tensors if not each.input), self.engine.run(None, feed), strict=True):
            memory = MEMORY[self.addresses[tensor.name]]
            assert memory.nbytes == values.nbytes, tensor.name
            memory[:] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        return True
