"""TensorRT engines on the GPU. Features stay there: only the image goes in, only keypoints, scores and matches come out.

Everything of a frame is enqueued on one stream, as CUDA graphs where they can be captured, and waited for once.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ..config import EngineSpec
from ..errors import EngineError
from ..features import Features, Float32, Matches, Thresholds, UInt8
from .cuda import Cuda, DeviceBuffer

SLOTS = 3  # feature sets on the device: a keyframe, the frame before, the current one
FEATURES = ('keypoints', 'scores', 'descriptors')


class DeviceFeatures:
    """One frame's features in a slot of the ring; the slot is free again when this object is gone."""

    def __init__(self, slot: _Slot) -> None:
        self.slot = slot

    @property
    def keypoints(self) -> Float32:
        self.slot.ready.synchronize()
        return np.asarray(self.slot.host['keypoints'], np.float32)

    @property
    def scores(self) -> Float32:
        self.slot.ready.synchronize()
        return np.asarray(self.slot.host['scores'], np.float32)


class TensorRTBackend:
    """Both engines, their buffers and one stream, made, used and closed by one thread. Raises EngineError."""

    def __init__(self, tensorrt: Any, spec: EngineSpec, extractor_plan: bytes, matcher_plan: bytes, description: str, *,
                 cuda_graphs: bool = True) -> None:
        self.spec, self._cancelled, self._cuda_graphs = spec, False, cuda_graphs
        self.cuda = Cuda()
        try:
            free = self.cuda.memory_mib()[0]
            self._extractor = _Engine(tensorrt, extractor_plan)
            self._matcher = _Engine(tensorrt, matcher_plan)
            self._allocate()
            self._warm_up()
            self.device_memory_mib = free - self.cuda.memory_mib()[0]
        except BaseException:
            self.close()
            raise
        mode = 'CUDA graphs' if self._graphs and all(self._graphs.values()) else 'plain enqueue'
        self.description = f'{description}, {mode}, {self.device_memory_mib:.0f} MiB on {self.cuda.name}'

    @classmethod
    def from_plans(cls, tensorrt: Any, spec: EngineSpec, extractor_plan: bytes, matcher_plan: bytes,
                   description: str) -> TensorRTBackend:
        """From the plans of a bundle; `tensorrt` is the adapter that loads them."""
        return cls(tensorrt, spec, extractor_plan, matcher_plan, description)

    def extract(self, image: UInt8) -> DeviceFeatures:
        self._check()
        slot = self._take_slot()
        features = DeviceFeatures(slot)
        weakref.finalize(features, self._free.append, slot).atexit = False  # also when what follows fails
        self._marks['extracted'].synchronize()  # the staging array may still be on its way
        np.copyto(self._staging, image)
        self.cuda.mark(self._marks['extract'])
        self._run(('extract', slot.index), lambda: self._enqueue_extract(slot))
        self.cuda.mark(self._marks['extracted'])
        self.cuda.mark(slot.ready)
        return features

    def match(self, reference: Features, current: Features, thresholds: Thresholds) -> Matches:
        self._check()
        if not isinstance(reference, DeviceFeatures) or not isinstance(current, DeviceFeatures):
            raise EngineError('TensorRT was given features of another backend: extract and match with the same one')
        self._set_thresholds(thresholds)
        pair = (reference.slot, current.slot)
        self.cuda.mark(self._marks['match'])
        self._run(('match', pair[0].index, pair[1].index), lambda: self._enqueue_match(*pair))
        self.cuda.mark(self._marks['matched'])
        self.cuda.synchronize()
        return Matches(self._found['matches0'].copy(), self._found['scores'].copy())

    def device_ms(self) -> dict[str, float]:
        """Milliseconds that the GPU took for the last extract and the last match, copies included."""
        marks = self._marks
        return {'extract': marks['extracted'].time_since(marks['extract']), 'match': marks['matched'].time_since(marks['match'])}

    def enqueue_plainly(self) -> dict[str, tuple[Any, Callable[[], None]]]:
        """Each network's execution context, and a function that enqueues it without a CUDA graph: for profilers."""
        first, second = self._slots[:2]
        return {'extractor': (self._extractor.context, lambda: self._enqueue_extract(first)),
                'matcher': (self._matcher.context, lambda: self._enqueue_match(first, second))}

    def cancel(self) -> None:
        self._cancelled = True

    def close(self) -> None:
        for name in [name for name in vars(self) if name not in ('spec', 'description', 'device_memory_mib', 'cuda', '_cancelled')]:
            delattr(self, name)  # engines, arrays and events go before the context that they live in
        self.cuda.close()

    def _allocate(self) -> None:
        cuda = self.cuda
        self._image = cuda.device(*self._extractor.tensor('image'))
        self._staging = cuda.pinned(*self._extractor.tensor('image'))
        self._slots = [_Slot(cuda, index, {name: self._extractor.tensor(name) for name in FEATURES}) for index in range(SLOTS)]
        self._free = list(self._slots)
        outputs = ('matches0', 'scores')
        self._outputs = {name: cuda.device(*self._matcher.tensor(name)) for name in outputs}
        self._found = {name: cuda.pinned(*self._matcher.tensor(name)) for name in outputs}
        names = ('match_threshold', 'detection_threshold')
        self._thresholds = {name: cuda.device(*self._matcher.tensor(name)) for name in names}
        self._staged_thresholds = {name: cuda.pinned((1,), np.float32) for name in names}
        self._set: Thresholds | None = None
        self._marks = {name: cuda.event(timing=True) for name in ('extract', 'extracted', 'match', 'matched')}
        self._graphs: dict[tuple[Any, ...], Callable[[], None] | None] = {}

    def _warm_up(self) -> None:
        """Run everything once, so that the first frame costs what the others do, and capture the graphs."""
        image = np.zeros(self._staging.shape, np.uint8)
        for _ in range(2):  # the first run of an engine cannot be captured
            features = [self.extract(image) for _ in range(SLOTS)]
            for reference in features:
                for current in features:
                    if reference is not current:
                        self.match(reference, current, Thresholds())
            del features, reference, current

    def _run(self, key: tuple[Any, ...], work: Callable[[], None]) -> None:
        """Launch the graph of `work`; enqueue it where there is none, and try to capture it on its second run."""
        graph = self._graphs.get(key)
        if graph is not None:
            graph()
        elif self._cuda_graphs and key in self._graphs:
            self._graphs[key] = graph = self.cuda.capture(work)
            (graph or work)()
            self._cuda_graphs = graph is not None
        else:
            self._graphs[key] = None
            work()

    def _enqueue_extract(self, slot: _Slot) -> None:
        self.cuda.upload(self._image, self._staging)
        self._extractor.enqueue({'image': self._image, **slot.device}, self.cuda.stream)
        for name, array in slot.host.items():
            self.cuda.download(array, slot.device[name])

    def _enqueue_match(self, reference: _Slot, current: _Slot) -> None:
        inputs = {f'{name}{side}': slot.device[name] for side, slot in enumerate((reference, current)) for name in FEATURES}
        self._matcher.enqueue({**inputs, **self._thresholds, **self._outputs}, self.cuda.stream)
        for name, array in self._found.items():
            self.cuda.download(array, self._outputs[name])

    def _set_thresholds(self, thresholds: Thresholds) -> None:
        if thresholds == self._set:
            return
        self.cuda.synchronize()  # the staging arrays may still be on their way
        for name, value in (('match_threshold', thresholds.match), ('detection_threshold', thresholds.detection)):
            self._staged_thresholds[name][0] = value
            self.cuda.upload(self._thresholds[name], self._staged_thresholds[name])
        self._set = thresholds

    def _take_slot(self) -> _Slot:
        if not self._free:
            raise EngineError(f'the features of {SLOTS} frames are held already: drop one before extracting another')
        return self._free.pop(0)

    def _check(self) -> None:
        if self._cancelled or not hasattr(self, '_matcher'):
            raise EngineError('this backend is cancelled or closed: open another one')


class _Slot:
    """Device and pinned host buffers for one frame's features; descriptors never come to the host."""

    def __init__(self, cuda: Cuda, index: int, tensors: dict[str, tuple[tuple[int, ...], Any]]) -> None:
        self.index, self.ready = index, cuda.event()
        self.device = {name: cuda.device(*tensor) for name, tensor in tensors.items()}
        self.host = {name: cuda.pinned(*tensors[name]) for name in ('keypoints', 'scores')}


class _Engine:
    """A deserialised plan and its execution context; names, shapes and types are the engine's own."""

    def __init__(self, tensorrt: Any, plan: bytes) -> None:
        self.engine = tensorrt.load(plan)
        self.context = self.engine.create_execution_context()
        if self.context is None:
            raise EngineError('device memory is exhausted: TensorRT could not make an execution context')
        self._tensors = {tensor.name: (tensor.shape, tensor.dtype) for tensor in tensorrt.describe(self.engine)}

    def tensor(self, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and dtype of an input or output. Raises EngineError when the engine has none of that name."""
        if name not in self._tensors:
            raise EngineError(f'the engine has no tensor {name!r}, but {", ".join(self._tensors)}: rebuild it with build_engines')
        return self._tensors[name]

    def enqueue(self, buffers: dict[str, DeviceBuffer], stream: int) -> None:
        for name, buffer in buffers.items():
            self.context.set_tensor_address(name, buffer.address)
        if not self.context.execute_async_v3(stream):
            raise EngineError('TensorRT could not enqueue the engine: see its log')
