"""TensorRT engines on the GPU. Features stay there: only the image goes in, only keypoints, scores and matches come out.

Everything of a frame is enqueued on one stream, as CUDA graphs where they can be captured.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ..config import EngineSpec
from ..depth import Depth
from ..errors import EngineError, clear_frames
from ..features import NOT_FINITE, Features, Matches, Thresholds, UInt8
from .cuda import Cuda
from .device import DeviceFeatures, Engine, Slot, load_engines
from .staged import StagedMatcher

SLOTS = 3  # feature sets on the device: a keyframe, the frame before, the current one


class TensorRTBackend:
    """All engines, their buffers and one stream, made, used and closed by one thread. Raises EngineError, DeviceMemoryError."""

    feature_sets = SLOTS  # that may be held at a time

    def __init__(self, tensorrt: Any, spec: EngineSpec, depth: Depth, plans: Mapping[str, bytes], description: str, *,
                 cuda_graphs: bool = True) -> None:
        """`tensorrt` is the adapter that loads `plans`: 'extractor' and the graphs of `depth`."""
        self.spec, self.depth, self._cancelled, self._cuda_graphs = spec, depth, False, cuda_graphs
        self._engines: dict[str, Engine] = {}
        self._slots: list[Slot] = []
        self.cuda = Cuda()
        try:
            free = self.cuda.memory_mib()[0]
            self._load(tensorrt, plans)
            self._allocate()
            self._warm_up()
            self.device_memory_mib = free - self.cuda.memory_mib()[0]
        except BaseException as error:
            clear_frames(error)
            self.close()
            raise
        mode = 'CUDA graphs' if self._graphs and all(self._graphs.values()) else 'plain enqueue'
        self.description = f'{description}, {depth}, {mode}, {self.device_memory_mib:.0f} MiB on {self.cuda.name}'

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
        pair, matcher = self._prepared(reference, current, thresholds)
        self.cuda.mark(self._marks['match'])
        layers, finite = matcher.run(lambda first, last: self._launch(pair, first, last), thresholds)
        return self._found(layers, finite)

    def match_exits(self, reference: Features, current: Features, thresholds: Thresholds) -> Iterator[Matches]:
        pair, matcher = self._prepared(reference, current, thresholds)
        self.cuda.mark(self._marks['match'])
        return (self._found(*reached) for reached in matcher.run_exits(lambda first, last: self._launch(pair, first, last)))

    def device_ms(self) -> dict[str, float]:
        """Milliseconds that the GPU took for the last extract and the last match, copies and waits between stages included."""
        marks = self._marks
        return {'extract': marks['extracted'].time_since(marks['extract']), 'match': marks['matched'].time_since(marks['match'])}

    def enqueue_plainly(self) -> dict[str, tuple[Any, Callable[[], None]]]:
        """Each network's execution context, and a function that enqueues it without a CUDA graph: for profilers."""
        first, second = self._slots[:2]
        extractor = {'extractor': (self._extractor.context, lambda: self._enqueue_extract(first))}
        return extractor | self._matcher.enqueue_plainly((first, second))

    def cancel(self) -> None:
        self._cancelled = True

    def close(self) -> None:
        for part in [*vars(self).get('_slots', []), *vars(self).get('_engines', {}).values()]:
            part.close()  # whoever still holds features, or an error, holds nothing of the device
        kept = ('spec', 'depth', 'description', 'device_memory_mib', 'cuda', '_cancelled')
        for name in [name for name in vars(self) if name not in kept]:
            delattr(self, name)  # engines, arrays and events go before the context that they live in
        self.cuda.close()

    def _prepared(self, reference: Features, current: Features, thresholds: Thresholds) -> tuple[tuple[Slot, Slot], StagedMatcher]:
        self._check()
        if not isinstance(reference, DeviceFeatures) or not isinstance(current, DeviceFeatures):
            raise EngineError('TensorRT was given features of another backend: extract and match with the same one')
        self._matcher.set_thresholds(thresholds)
        return (reference.slot, current.slot), self._matcher

    def _found(self, layers: int, finite: bool, confident: float = math.nan) -> Matches:
        found = self._matcher.found
        return Matches(found['matches0'].copy(), found['scores'].copy(), layers, '' if finite else NOT_FINITE,
                       confident)

    def _load(self, tensorrt: Any, plans: Mapping[str, bytes]) -> None:
        self._engines = load_engines(tensorrt, plans, self.cuda)
        self._extractor = self._engines['extractor']
        self._matcher = StagedMatcher(self.cuda, self.depth, self._engines)

    def _allocate(self) -> None:
        cuda = self.cuda
        self._image = cuda.device(*self._extractor.tensor('image'))
        self._staging = cuda.pinned(*self._extractor.tensor('image'))
        for index in range(SLOTS):
            self._slots.append(Slot(cuda, index, self._extractor))
        self._free = list(self._slots)
        self._marks = {name: cuda.event(timing=True) for name in ('extract', 'extracted', 'match', 'matched')}
        self._graphs: dict[tuple[Any, ...], Callable[[], None] | None] = {}

    def _warm_up(self) -> None:
        """Run everything once, so that the first frame costs what the others do, and capture the graphs."""
        image = np.zeros(self._staging.shape, np.uint8)
        self._matcher.set_thresholds(Thresholds())
        for _ in range(2):  # the first run of an engine cannot be captured
            features = [self.extract(image) for _ in range(SLOTS)]
            for first, last in self._matcher.spans():
                for reference in features:
                    for current in features:
                        if reference is not current:
                            self._launch((reference.slot, current.slot), first, last)
            self.cuda.synchronize()
            del features, reference, current

    def _launch(self, pair: tuple[Slot, Slot], first: int, last: int) -> None:
        self._run(('match', pair[0].index, pair[1].index, first, last), lambda: self._matcher.enqueue(pair, first, last))
        self.cuda.mark(self._marks['matched'])

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

    def _enqueue_extract(self, slot: Slot) -> None:
        self.cuda.upload(self._image, self._staging)
        self._extractor.enqueue({'image': self._image, **slot.device}, self.cuda.stream)
        for name, array in slot.host.items():
            self.cuda.download(array, slot.device[name])

    def _take_slot(self) -> Slot:
        if not self._free:
            raise EngineError(f'the features of {SLOTS} frames are held already: drop one before extracting another')
        return self._free.pop(0)

    def _check(self) -> None:
        if self._cancelled or not hasattr(self, '_matcher'):
            raise EngineError('this backend is cancelled or closed: open another one')
