"""Engines on the device, slots for the features of frames, and the matcher's stages with their early exits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from ..core.early_exit import EARLY_MATCH_SCORE, EarlyExits, stops
from ..core.types import Float32, Thresholds
from ..networks import engine_tensors as names
from ..utils.errors import DeviceMemoryError, EngineError
from .cuda import Addressed, Cuda, Staged
from .gpu_lightglue import GpuAssignment, GpuAttention, GpuConfidence

KEPT = -1  # index of slots for features that are kept
# among engines, of which the first has the largest
SHARED = (*names.ROTATION, names.PROJECTED, names.ATTENDED, names.TOKENS, names.FINAL, names.MATCHABILITY)

TensorType: TypeAlias = 'tuple[tuple[int, ...], np.dtype[Any]]'  # shape, dtype
Launch = Callable[[int, int], None]  # stages first to last, and the assignment of the last
BEFORE = -1  # in place of a last stage: none runs, and the assignment is that before the first layer


class Engine:
    """A deserialised plan and its execution context; names, shapes and types of its tensors are the engine's own."""

    def __init__(self, tensorrt: Any, plan: bytes) -> None:
        self.engine: Any = tensorrt.load(plan)
        self.context: Any = None
        self._tensors: dict[str, TensorType] = tensorrt.describe(self.engine)

    def close(self) -> None:
        """Let go of TensorRT's objects, whoever holds this one."""
        self.context = self.engine = None

    def has(self, name: str) -> bool:
        return name in self._tensors

    def tensor(self, name: str) -> TensorType:
        """Shape and dtype of an input or output. Raises EngineError when the engine has none of that name."""
        if name not in self._tensors:
            raise EngineError(f'the engine has no tensor {name!r}, but {", ".join(self._tensors)}: rebuild it with build_engines')
        return self._tensors[name]

    def enqueue(self, buffers: Mapping[str, Addressed], stream: int) -> None:
        """Enqueue a run on those of `buffers` that the engine has. Raises EngineError."""
        for name in self._tensors:
            if name not in buffers:
                raise EngineError(f'the engine wants a tensor {name!r}, which this version does not know: update the package')
            self.context.set_tensor_address(name, buffers[name].address)
        if not self.context.execute_async_v3(stream):
            raise EngineError('TensorRT could not enqueue the engine: see its log')


class Slot:
    """Memory for one frame's features, on the device and, without descriptors, on the host; where they are kept, with them."""

    def __init__(self, cuda: Cuda, index: int, features: Mapping[str, TensorType], kept: bool = False) -> None:
        """`features` are keypoints, scores and descriptors. Graphs are captured by `index`: kept slots have KEPT, and none."""
        self.index, self.ready, self._cuda = index, cuda.event(), cuda  # the event is None once the slot is closed
        self.staged = {name: cuda.staged(*kind) for name, kind in features.items() if kept or name != names.DESCRIPTORS}
        self.tensors: dict[str, Addressed] = dict(self.staged)
        if not kept:
            self.tensors[names.DESCRIPTORS] = cuda.device(*features[names.DESCRIPTORS])
        self.camera: Any = None  # that took the frame, where its pyramid lies on the device too

    def close(self) -> None:
        """Let go of the event and the buffers, whoever holds features in here."""
        self.ready, self.staged, self.tensors, self.camera = None, {}, {}, None

    def on_host(self, name: str) -> Float32:
        """Keypoints, scores or kept descriptors, once they were extracted. Raises EngineError, also where the slot is closed."""
        if self.ready is None:
            raise EngineError('the backend of these features is closed: extract them again')
        self._cuda.wait(self.ready)
        return np.asarray(self.staged[name].array, np.float32)


class DeviceFeatures:
    """One frame's features in a slot of the ring; the slot is free again when this object is gone."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot

    @property
    def keypoints(self) -> Float32:
        return self.slot.on_host(names.KEYPOINTS)

    @property
    def scores(self) -> Float32:
        return self.slot.on_host(names.SCORES)


class KeptDeviceFeatures(DeviceFeatures):
    """Features in a slot of their own."""

    @property
    def descriptors(self) -> Float32:
        return self.slot.on_host(names.DESCRIPTORS)


def load_engines(tensorrt: Any, plans: Mapping[str, bytes], cuda: Cuda) -> dict[str, Engine]:
    """The engines of `plans`, all working in one piece of device memory: they run one after the other on one stream.

    Raises EngineError, DeviceMemoryError.
    """
    engines = {name: Engine(tensorrt, plan) for name, plan in plans.items()}
    needed, free_mib = max(tensorrt.activation_bytes(each.engine) for each in engines.values()), cuda.memory_mib()[0]
    if needed > free_mib * 2**20:
        raise DeviceMemoryError(f'device memory is exhausted: the engines work in {needed >> 20} MiB, '
                                f'{free_mib:.0f} MiB are free; use smaller engines or end other programs')
    memory = cuda.device((needed,), np.uint8)
    for each in engines.values():
        each.context = tensorrt.context(each.engine, memory.address, memory.nbytes)
    return engines


class StagedMatcher:
    """The matcher's engines and kernels with the buffers between them. Used by the one thread that owns `cuda`.

    The stages up to the last exit and its assignment are enqueued in one go, so that a pair that is as easy or as hard as the one
    before costs one read back in all. Where it is not, more stages run, or the assignment of an earlier exit: the exit taken is
    always the first one at which enough points are confident.

    A stage is one engine, or engines that end where a layer attends, with our attention between them. Engines of somebody else's
    graph, one stage, may give matches themselves.
    """

    def __init__(self, cuda: Cuda, count: int, early_exits: EarlyExits, engines: Mapping[str, Engine]) -> None:
        """`count` rows of each image. Raises EngineError, also where the driver refuses the kernels, DeviceMemoryError."""
        self.cuda, self.early_exits, own_attention = cuda, early_exits, early_exits.blocks[0] in engines
        self._engines = [engines[name] for name in (early_exits.blocks if own_attention else early_exits.stages)]
        self._layers = early_exits.after_layers  # that have run after each stage
        early = (*((BEFORE,) if early_exits.at_zero else ()), *range(len(self._layers) - 1))
        self._heads = {stage: engines[name] for stage, name in zip(early, early_exits.heads, strict=True)}
        first, last, exits = self._engines[0], self._engines[-1], len(self._layers) - 1
        self._states = [cuda.device(*first.tensor(names.NEXT_STATE)) for _ in range(exits + own_attention)]
        self._confidences = [cuda.staged((2,), np.float32) for _ in range(exits)]
        self._scalars = {at_zero: {name: cuda.staged((1,), np.float32) for name in names.THRESHOLDS} for at_zero in (False, True)}
        self.results = {name: cuda.staged(kind.shape, kind.dtype) for name, kind in names.result_types(count).items()}
        self._shared: dict[str, Addressed] = {}
        for engine, name in itertools.product(self._engines, SHARED):
            if name not in self._shared and engine.has(name):
                self._shared[name] = cuda.device(*engine.tensor(name))
        (_, _, width), dtype = last.tensor(names.FINAL) if last.has(names.FINAL) else ((2, count, 0), np.float16)
        self._assignment = GpuAssignment(cuda, count, width, dtype) if width else None
        self._confidence = GpuConfidence(cuda, count, early_exits.ends[-1], dtype) if exits else None
        self._attention = GpuAttention(cuda, count, width) if own_attention else None
        self._set: dict[bool, tuple[float, float]] = {}
        self._guesses: dict[Hashable, int] = {}

    def run(self, launch: Launch, thresholds: Thresholds, kind: Hashable = None) -> tuple[int, bool]:
        """Match with `launch`, which enqueues: layers that ran, and whether every confidence was finite. Matches are in `results`.

        The pair is guessed to be as easy as the last one of its `kind`.
        """
        if thresholds.at_zero and BEFORE in self._heads:
            launch(0, BEFORE)
            self.cuda.synchronize()
            return 0, True
        last_stage = len(self._confidences)
        first, last = 0, self._guesses.get(kind, last_stage) if thresholds.depth_confidence >= 0 else last_stage
        finite = True
        while True:
            launch(first, last)
            self.cuda.synchronize()
            finite &= all(map(_finite, self._confidences[first:last + 1]))
            stop = next((stage for stage in range(last + 1) if stage == last_stage
                         or stops(float(self._confidences[stage].array[0]), thresholds.depth_confidence)), None)
            if stop == last:
                break
            first, last = (last + 1, last + 1) if stop is None else (stop + 1, stop)  # on, or back: no stage, the assignment alone
        if thresholds.depth_confidence >= 0:
            self._guesses[kind] = last
        return self._layers[last], finite

    def run_exits(self, launch: Launch) -> Iterator[tuple[int, bool, float]]:
        """Go from exit to exit, whatever is confident: as `run` says it, with the matches of that exit in `results` meanwhile.

        Third comes the share of points that are confident there, NaN after the last layer and before the first.
        """
        finite = True
        if BEFORE in self._heads:
            launch(0, BEFORE)
            self.cuda.synchronize()
            yield 0, True, math.nan
        for stage, layers in enumerate(self._layers):
            launch(stage, stage)
            self.cuda.synchronize()
            finite &= all(map(_finite, self._confidences[stage:stage + 1]))
            yield layers, finite, float(self._confidences[stage].array[0]) if stage < len(self._confidences) else math.nan

    def enqueue(self, pair: tuple[Slot, Slot], first: int, last: int) -> None:
        """Enqueue stages `first` to `last`, none where first > last, the assignment after `last`, and what comes to the host.

        `last` may be BEFORE.
        """
        for stage in range(first, last + 1):
            tensors = self._tensors(pair, stage)
            self._enqueue_stage(stage, tensors)
            if self._confidence is not None and stage < len(self._confidences):
                self._confidence.enqueue(self._layers[stage], tensors[names.TOKENS], _scores(tensors),
                                         tensors[names.DETECTION_THRESHOLD], self._confidences[stage])
                self.cuda.receive(self._confidences[stage])
        tensors = self._tensors(pair, last + 1, at_zero=last == BEFORE)
        if last in self._heads:
            self._heads[last].enqueue(tensors, self.cuda.stream)
        if self._assignment is not None:
            rest = (tensors[name] for name in (names.DETECTION_THRESHOLD, names.MATCH_THRESHOLD, names.MATCHES, names.MATCH_SCORES))
            self._assignment.enqueue(tensors[names.FINAL], tensors[names.MATCHABILITY], _scores(tensors), *rest,
                                     least=EARLY_MATCH_SCORE if last in self._heads else 0.0)
        for result in self.results.values():
            self.cuda.receive(result)

    def _enqueue_stage(self, stage: int, tensors: Mapping[str, Addressed]) -> None:
        if self._attention is None:
            self._engines[stage].enqueue(tensors, self.cuda.stream)
            return
        projected, attended = tensors[names.PROJECTED], tensors[names.ATTENDED]
        first, end = self.early_exits.spans[stage]
        if first == 0:
            self._engines[0].enqueue(tensors, self.cuda.stream)
        state = tensors[names.STATE if first else names.NEXT_STATE]
        for layer in range(first, end):
            self._attention.enqueue_self(projected, tensors[names.COSINES], tensors[names.SINES], state, attended)
            self._engines[1 + 2 * layer].enqueue(tensors, self.cuda.stream)
            state = tensors[names.NEXT_STATE]
            self._attention.enqueue_cross(projected, state, attended)
            self._engines[2 + 2 * layer].enqueue(tensors, self.cuda.stream)

    def spans(self) -> list[tuple[int, int]]:
        """Every (first, last) that `run` may launch."""
        count = len(self._layers)
        before = [(0, BEFORE)] if BEFORE in self._heads else []
        return [*before, *((0, last) for last in range(count)), *((last, last) for last in range(1, count)),
                *((last + 1, last) for last in range(count - 1))]

    def set_thresholds(self, thresholds: Thresholds) -> None:
        """Upload the thresholds of the exit before the first layer, or of the others, where they changed."""
        wanted, scalars = (thresholds.match, thresholds.detection), self._scalars[thresholds.at_zero]
        if wanted == self._set.get(thresholds.at_zero):
            return
        self.cuda.synchronize()  # the staging arrays may still be on their way
        for name, value in zip(names.THRESHOLDS, wanted, strict=True):
            scalars[name].array[0] = value
            self.cuda.send(scalars[name])
        self._set[thresholds.at_zero] = wanted

    def enqueue_plainly(self, pair: tuple[Slot, Slot]) -> dict[str, tuple[Any, Callable[[], None]]]:
        """Each engine's execution context, and a function that enqueues only that engine: for profilers."""
        stages = range(len(self._layers))
        if self._attention is None:
            numbered = list(zip(self.early_exits.stages, stages, strict=True))
        else:
            numbered = [(name, next(stage for stage in stages if row <= 2 * self._layers[stage]))
                        for row, name in enumerate(self.early_exits.blocks)]
        numbered += zip(self.early_exits.heads, (last + 1 for last in self._heads), strict=True)
        return {name: (engine.context, partial(engine.enqueue, self._tensors(pair, stage), self.cuda.stream))
                for (name, stage), engine in zip(numbered, [*self._engines, *self._heads.values()], strict=True)}

    def _tensors(self, pair: tuple[Slot, Slot], stage: int, *, at_zero: bool = False) -> dict[str, Addressed]:
        """Everything that `stage`, or the assignment before it, may read and write."""
        tensors: dict[str, Addressed] = {**self._shared, **self._scalars[at_zero], **self.results}
        tensors |= {names.of_pair(name)[side]: tensor for side, slot in enumerate(pair) for name, tensor in slot.tensors.items()}
        if 0 < stage <= len(self._states):
            tensors[names.STATE] = self._states[stage - 1]
        if stage < len(self._states):
            tensors[names.NEXT_STATE] = self._states[stage]
        return tensors


def _scores(tensors: Mapping[str, Addressed]) -> tuple[Addressed, Addressed]:
    """The detection scores of both images."""
    first, second = names.of_pair(names.SCORES)
    return tensors[first], tensors[second]


def _finite(confidence: Staged) -> bool:
    """Of two numbers, which Python asks sooner than NumPy."""
    return all(map(math.isfinite, confidence.array.tolist()))
