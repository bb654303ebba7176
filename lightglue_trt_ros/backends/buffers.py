"""What lies on the device: engines, and rings of slots for frames' features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from ..core.types import Float32
from ..utils.errors import DeviceMemoryError, EngineError
from .cuda import Cuda, DeviceBuffer

FEATURES = ('keypoints', 'scores', 'descriptors')

TensorType: TypeAlias = 'tuple[tuple[int, ...], np.dtype[Any]]'  # shape, dtype


class Engine:
    """A deserialised plan and its execution context; names, shapes and types of its tensors are the engine's own."""

    def __init__(self, tensorrt: Any, plan: bytes) -> None:
        self.engine, self._tensorrt = tensorrt.load(plan), tensorrt
        self._tensors: dict[str, TensorType] = {tensor.name: (tensor.shape, tensor.dtype)
                                                for tensor in tensorrt.describe(self.engine)}
        self.context: Any = None

    def close(self) -> None:
        """Let go of TensorRT's objects, whoever holds this one."""
        self.context = self.engine = None

    @property
    def activation_bytes(self) -> int:
        """Device memory that it works in."""
        return int(self._tensorrt.activation_bytes(self.engine))

    def work_in(self, memory: DeviceBuffer) -> None:
        """Make the context; engines that run one after the other may share `memory`."""
        self.context = self._tensorrt.context(self.engine, memory.address, memory.nbytes)

    def tensor(self, name: str) -> TensorType:
        """Shape and dtype of an input or output. Raises EngineError when the engine has none of that name."""
        if name not in self._tensors:
            raise EngineError(f'the engine has no tensor {name!r}, but {", ".join(self._tensors)}: rebuild it with build_engines')
        return self._tensors[name]

    def enqueue(self, buffers: Mapping[str, DeviceBuffer], stream: int) -> None:
        """Enqueue a run on those of `buffers` that the engine has. Raises EngineError."""
        for name in self._tensors:
            if name not in buffers:
                raise EngineError(f'the engine wants a tensor {name!r}, which this version does not know: update the package')
            self.context.set_tensor_address(name, buffers[name].address)
        if not self.context.execute_async_v3(stream):
            raise EngineError('TensorRT could not enqueue the engine: see its log')


class Slot:
    """Device and pinned host buffers for one frame's features; descriptors never come to the host."""

    def __init__(self, cuda: Cuda, index: int, extractor: Engine) -> None:
        self.index, self.ready = index, cuda.event()  # the event is None once the slot is closed
        self.device = {name: cuda.device(*extractor.tensor(name)) for name in FEATURES}
        self.host = {name: cuda.pinned(*extractor.tensor(name)) for name in ('keypoints', 'scores')}
        self.camera: Any = None  # that took the frame, where its pyramid lies on the device too

    def close(self) -> None:
        """Let go of the event and the buffers, whoever holds features in here."""
        self.ready, self.device, self.host, self.camera = None, {}, {}, None

    def wait(self) -> None:
        """Until what was extracted is on the host. Raises EngineError once the slot is closed."""
        if self.ready is None:
            raise EngineError('the backend of these features is closed: extract them again')
        self.ready.synchronize()


class DeviceFeatures:
    """One frame's features in a slot of the ring; the slot is free again when this object is gone."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot

    @property
    def keypoints(self) -> Float32:
        self.slot.wait()
        return np.asarray(self.slot.host['keypoints'], np.float32)

    @property
    def scores(self) -> Float32:
        self.slot.wait()
        return np.asarray(self.slot.host['scores'], np.float32)


def load_engines(tensorrt: Any, plans: Mapping[str, bytes], cuda: Cuda) -> dict[str, Engine]:
    """The engines of `plans`, all working in one piece of device memory: they run one after the other on one stream.

    Raises EngineError, DeviceMemoryError.
    """
    engines = {name: Engine(tensorrt, plan) for name, plan in plans.items()}
    needed = max(engine.activation_bytes for engine in engines.values())
    if needed > cuda.memory_mib()[0] * 2**20:
        raise DeviceMemoryError(f'device memory is exhausted: the engines work in {needed >> 20} MiB, '
                                f'{cuda.memory_mib()[0]:.0f} MiB are free; use smaller engines or end other programs')
    memory = cuda.device((needed,), np.uint8)
    for engine in engines.values():
        engine.work_in(memory)
    return engines
