"""TensorRT engines on the GPU. Features and camera frames stay there: only the image is uploaded; only keypoints, scores, matches
and refined points are downloaded.

Everything of a frame is enqueued on one stream, as CUDA graphs where they can be captured.
"""

from __future__ import annotations

import atexit
import itertools
import math
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from ..core.config import EngineSpec
from ..core.correspondences import Correspondences, Sought
from ..core.early_exit import EarlyExits
from ..core.refinement import Refined
from ..core.score_calibration import UNCALIBRATED, ScoreCalibration
from ..core.types import NOT_FINITE, Features, Float32, Int32, Matches, Thresholds, UInt8
from ..networks import engine_tensors as names
from ..utils.errors import EngineError, clear_frames
from .cuda import Addressed, Cuda, DeviceInput, Graph, Staged
from .gpu_geometry import GpuGeometry
from .gpu_refinement import Camera, GpuRefinement
from .gpu_selection import GpuSelection
from .tensorrt_engines import KEPT, DeviceFeatures, Engine, KeptDeviceFeatures, Slot, StagedMatcher, TensorType, load_engines

Pair: TypeAlias = 'tuple[Slot, Slot]'  # of a reference and a current frame
Key: TypeAlias = 'tuple[Any, ...]'  # what a CUDA graph does, and with which slots
SLOTS = 3  # a camera's feature sets on the device: a keyframe, the frame before, the current one
OF_ONE_SIZE = 'frame', 'refine', 'correspond'  # kinds of graphs with the buffers of a camera's frames


class TensorRTBackend:
    """All engines, their buffers and one stream, made, used and closed by one thread: a RefiningBackend.

    Raises EngineError, DeviceMemoryError.
    """

    feature_sets = SLOTS  # of a camera that may be held at a time
    refines = True

    def __init__(self, tensorrt: Any, spec: EngineSpec, early_exits: EarlyExits, plans: Mapping[str, bytes], description: str, *,
                 score_calibration: ScoreCalibration = UNCALIBRATED, cuda_graphs: bool = True) -> None:
        """`tensorrt` is the adapter that loads `plans`: the extractor's and those of `early_exits`."""
        self.spec, self.early_exits, self.score_calibration, self._cancelled = spec, early_exits, score_calibration, False
        self._not_captured = '' if cuda_graphs else 'plain enqueue'  # why no more graphs are, for people
        self._note = ''  # for whoever gets the next matches
        self._engines: dict[str, Engine] = {}
        self._slots: list[Slot] = []  # SLOTS for each camera, so that only pairs of one camera are matched, and captured
        self._free: list[list[Slot]] = []  # by camera
        self._kept: set[Slot] = set()  # of features that are kept
        self._first: Pair | None = None  # that was matched since the last extraction
        self._tried = False  # whether the last match was one before the first layer
        self.cuda = Cuda()
        try:
            free = self.cuda.memory_mib()[0]
            self._allocate(tensorrt, plans)
            self._warm_up()
            self.device_memory_mib = free - self.cuda.memory_mib()[0]
        except BaseException as error:
            clear_frames(error)
            self.close()
            raise
        self.description = (f'{description}, {early_exits}, {self._not_captured or "CUDA graphs"}, '
                            f'{self.device_memory_mib:.0f} MiB on {self.cuda.name}')
        self._note = ''  # which the description has said
        _close_at_exit(self)

    def select_camera(self, camera: int) -> None:
        self._check()
        while camera >= len(self._free):
            for _ in range(SLOTS):
                self._slots.append(Slot(self.cuda, len(self._slots), self._features))
            self._free.append(self._slots[-SLOTS:])
        self._camera = camera

    def extract(self, image: UInt8, mask: UInt8 | None = None) -> DeviceFeatures:
        self._check()
        return self._extract(self._image, image, mask, 'extract', self._upload)

    def extract_frame(self, image: UInt8, mask: UInt8 | None = None) -> DeviceFeatures:
        self._check()
        camera, new = self._refiner.look(self._camera, (image.shape[0], image.shape[1]))
        if new:
            stale = [key for key in self._graphs if key[0] in OF_ONE_SIZE and key[1] // SLOTS == self._camera]
            self.cuda.free(*filter(None, map(self._graphs.pop, stale)))  # captured with the buffers of another size
        features = self._extract(camera.image, image, mask, 'frame',
                                 lambda slot: self._refiner.enqueue_frame(camera, slot, self._image))
        features.slot.camera = camera
        return features

    def match(self, reference: Features, current: Features, thresholds: Thresholds) -> Matches:
        return self._match(self._slots_of(reference, current), thresholds)

    def match_and_refine(self, reference: Features, current: Features, thresholds: Thresholds,
                         points: Float32) -> tuple[Matches, Refined]:
        pair = self._slots_of(reference, current, refine=True)
        self._refiner.stage(points)
        return self._match(pair, thresholds, 'refine'), self._refiner.result(len(points))

    def correspond(self, reference: Features, current: Features, thresholds: Thresholds,
                   sought: Sought) -> tuple[Matches, Correspondences | None]:
        pair = self._slots_of(reference, current, refine=True)
        self._refiner.stage(sought.points, searched=sought.searched)
        camera = pair[1].camera
        camera.mask.set(None if sought.mask is None else sought.mask.resized(camera.size))
        camera.lens.set(None if sought.camera is None else sought.camera.lens.constants)
        return self._match(pair, thresholds, 'correspond'), self._geometry.correspondences(sought.fit_limit)

    def refine(self, reference: Features, current: Features, indices: Int32, points: Float32) -> Refined:
        pair = self._slots_of(reference, current, refine=True)
        self._refiner.stage(points, indices)
        self.cuda.mark(self._marks['place'])
        self._refine(pair, pair[1].camera)  # seldom: not worth graphs
        self.cuda.mark(self._marks['placed'])
        self.cuda.synchronize()
        return self._refiner.result(len(points))

    def keep(self, features: Features) -> KeptDeviceFeatures:
        slot, kept = self._slots_of(features, features)[0], Slot(self.cuda, KEPT, self._features, kept=True)
        copy = KeptDeviceFeatures(kept)
        self._kept.add(kept)
        weakref.finalize(copy, self._let_go, kept).atexit = False
        for name in (names.KEYPOINTS, names.SCORES):
            np.copyto(kept.staged[name].array, slot.on_host(name))
        descriptors = slot.tensors[names.DESCRIPTORS]
        self.cuda.receive(kept.staged[names.DESCRIPTORS]._replace(address=descriptors.address))
        self.cuda.synchronize()
        for each in kept.staged.values():
            self.cuda.send(each)
        self.cuda.mark(kept.ready)
        return copy

    def _let_go(self, slot: Slot) -> None:
        if slot.ready is not None:  # else the backend is closed, and its memory is free
            self.cuda.wait(slot.ready)
            buffers = list(slot.staged.values())
            slot.close()
            self._kept.discard(slot)
            self.cuda.free(*buffers)

    def match_exits(self, reference: Features, current: Features, thresholds: Thresholds) -> Iterator[Matches]:
        pair = self._slots_of(reference, current)
        for at_zero in (False, True):
            self._matcher.set_thresholds(replace(thresholds, at_zero=at_zero))
        self.cuda.mark(self._marks['match'])
        return (self._matches(*reached) for reached in self._matcher.run_exits(lambda first, last: self._launch(pair, first, last)))

    def device_ms(self) -> dict[str, float]:
        """Milliseconds that the GPU took for the last extract, match and refinement, copies and waits between stages included."""
        ends = {'extract': 'extracted', 'match': 'matched', 'place': 'placed'}
        return {name: self._marks[end].time_since(self._marks[name]) for name, end in ends.items()}

    def enqueue_plainly(self) -> dict[str, tuple[Any, Callable[[], None]]]:
        """Each network's execution context, and a function that enqueues it without a CUDA graph: for profilers."""
        first, second = self._slots[:2]
        extractor = {'extractor': (self._extractor.context, lambda: self._enqueue_extract(first, self._upload))}
        return extractor | self._matcher.enqueue_plainly((first, second))

    def cancel(self) -> None:
        self._cancelled = True

    def close(self) -> None:
        opened = vars(self)
        cameras = getattr(opened.get('_refiner'), 'cameras', {})
        for part in [*cameras.values(), *opened.get('_slots', []), *opened.get('_kept', []), *opened.get('_engines', {}).values()]:
            part.close()  # whoever still holds features, or an error, holds nothing of the device
        kept = ('spec', 'early_exits', 'description', 'device_memory_mib', 'cuda', '_cancelled')
        for name in [name for name in vars(self) if name not in kept]:
            delattr(self, name)  # engines, arrays and events go before the context that they live in
        self.cuda.close()

    def _slots_of(self, reference: Features, current: Features, *, refine: bool = False) -> Pair:
        self._check()
        if not isinstance(reference, DeviceFeatures) or not isinstance(current, DeviceFeatures):
            raise EngineError('TensorRT was given features of another backend: extract and match with the same one')
        cameras = [features.slot.camera for features in (reference, current)]
        if refine and (cameras[0] is not cameras[1] or cameras[1] not in self._refiner.cameras.values()):
            raise EngineError('points are refined in two frames of one size that extract_frame was given: extract them again')
        return reference.slot, current.slot

    def _match(self, pair: Pair, thresholds: Thresholds, then: str = 'match') -> Matches:
        self._first = self._first or pair
        kind = pair[1].index // SLOTS, self._first != pair  # whether it was matched with another one already, as a right image is
        self._matcher.set_thresholds(thresholds)
        if not (self._tried and self._first == pair):  # a try that was refused counts
            self.cuda.mark(self._marks['match'])
        self._tried = thresholds.at_zero
        return self._matches(*self._matcher.run(lambda first, last: self._launch(pair, first, last, then), thresholds, kind))

    def _extract(self, staging: Staged, image: UInt8, mask: UInt8 | None, kind: str,
                 upload: Callable[[Slot], Addressed]) -> DeviceFeatures:
        """Features of the extractor's image, which `upload` makes of the image in `staging`, and returns."""
        free = self._free[self._camera]
        if not free:
            raise EngineError(f'the features of {SLOTS} frames are held already: drop one before extracting another')
        slot = free.pop(0)
        features = DeviceFeatures(slot)
        weakref.finalize(features, free.append, slot).atexit = False  # also when what follows fails
        slot.camera, self._first, self._tried = None, None, False
        self.cuda.wait(self._marks['extracted'])  # the staging arrays may still be on their way
        np.copyto(staging.array, image)
        self.cuda.mark(self._marks['extract'])
        self._mask.set(mask)
        self._run((kind, slot.index), lambda key: self._enqueue_extract(self._slots[key[1]], upload),
                  lambda: ((kind, each) for each in _slots_beside(slot)))
        self.cuda.mark(self._marks['extracted'])
        self.cuda.mark(slot.ready)
        return features

    def _upload(self, slot: Slot) -> Addressed:
        self.cuda.send(self._image)
        return self._image

    def _matches(self, layers: int, finite: bool, confident: float = math.nan) -> Matches:
        matches, scores = (self._matcher.results[name].array.copy() for name in (names.MATCHES, names.MATCH_SCORES))
        note, self._note = '; '.join(filter(None, (self._note, '' if finite else NOT_FINITE))), ''
        return Matches(matches, scores, layers, note, confident, finite)

    def _allocate(self, tensorrt: Any, plans: Mapping[str, bytes]) -> None:
        cuda = self.cuda
        self._engines = load_engines(tensorrt, plans, cuda)
        self._extractor = self._engines['extractor']
        self._matcher = StagedMatcher(cuda, self.spec.max_keypoints, self.early_exits, self._engines)
        self._refiner = GpuRefinement(cuda, self.spec, SLOTS)
        self._geometry = GpuGeometry(cuda, self.spec.max_keypoints)
        self._maps = {name: cuda.device(*self._extractor.tensor(name)) for name in (names.LOGITS, names.DENSE)}
        descriptors = names.of_pair(names.DESCRIPTORS)[0]
        (_, channels), dtype = next(each.tensor(descriptors) for each in self._engines.values() if each.has(descriptors))
        types = names.frame_types(self.spec.max_keypoints, channels, dtype)
        self._features: dict[str, TensorType] = {name: (kind.shape, np.dtype(kind.dtype)) for name, kind in types.items()}
        shapes = (self._extractor.tensor(name)[0] for name in self._maps)
        self._selection = GpuSelection(cuda, self.spec, channels, dtype, *shapes)
        self._image = cuda.staged(*self._extractor.tensor('image'))
        self._mask = DeviceInput(cuda, self._image.array.shape, np.uint8, 1)
        self.select_camera(0)
        self._marks = {name: cuda.event(timing=True) for name in ('extract', 'extracted', 'match', 'matched', 'place', 'placed')}
        self._graphs: dict[Key, Graph | None] = {}

    def _warm_up(self) -> None:
        """Run every engine, and capture the graphs of a camera whose frames have the size of the engine.

        So no frame of it costs more than the others. Of a camera of another size the first two frames capture theirs.
        """
        image, count = np.zeros(self._image.array.shape, np.uint8), self.spec.max_keypoints
        for mark in self._marks.values():  # no time is known of a stage that has not run yet
            self.cuda.mark(mark)
        for at_zero in (False, True):
            self._matcher.set_thresholds(Thresholds(at_zero=at_zero))
        pair = [self.extract_frame(image) for _ in range(2)]
        for first, last in self._matcher.spans():  # the first run of an engine cannot be captured
            self._matcher.enqueue((pair[0].slot, pair[1].slot), first, last)
        self.correspond(pair[0], pair[1], Thresholds(), Sought(pair[0].keypoints, np.zeros(count, np.bool_), None, 0.0))

    def _launch(self, pair: Pair, first: int, last: int, then: str = 'match') -> None:
        """Match, and refine what matched, or find all correspondences, before anybody has seen it: one wait for all."""
        camera = pair[1].camera

        def work(pair: Pair, span: tuple[int, int]) -> None:
            self._matcher.enqueue(pair, *span)
            if then == 'refine':
                self._refine(pair, camera, self._matcher.results[names.MATCHES])
            elif then == 'correspond':
                self._correspond(pair, camera)
        if KEPT in (pair[0].index, pair[1].index):
            work(pair, (first, last))
        else:
            self._run((then, pair[0].index, pair[1].index, first, last),
                      lambda key: work((self._slots[key[1]], self._slots[key[2]]), key[3:]),
                      lambda: ((then, *slots, *span) for slots in itertools.permutations(_slots_beside(pair[0]), 2)
                               for span in self._matcher.spans()))
        self.cuda.mark(self._marks['matched'])

    def _refine(self, pair: Pair, camera: Camera, matches: Addressed | None = None) -> None:
        self._refiner.enqueue(pair, camera, matches)
        self.cuda.receive(self._refiner.refined)
        self.cuda.receive(self._refiner.covariances)

    def _correspond(self, pair: Pair, camera: Camera) -> None:
        refiner, matches, scores = self._refiner, self._matcher.results[names.MATCHES], self._matcher.results[names.MATCH_SCORES]
        refiner.enqueue(pair, camera, matches)
        self._geometry.enqueue(camera.geometry_settings, camera.lens.staged, camera.mask.staged, refiner.points, refiner.searched,
                               pair[1].tensors[names.KEYPOINTS], matches, scores, refiner.refined, refiner.covariances)

    def _run(self, key: Key, work: Callable[[Key], None], alike: Callable[[], Iterable[Key]]) -> None:
        """Launch the graph of `key`. At the first run enqueue its `work` plainly, and capture all keys that are `alike`.

        These are what any later frame of the camera may need, so that none of them waits for a capture.
        """
        if key not in self._graphs:
            work(key)
            for each in alike():
                self._graphs[each] = self._capture(partial(work, each))
        elif graph := self._graphs[key]:
            graph.launch()
        else:
            work(key)

    def _capture(self, work: Callable[[], None]) -> Graph | None:
        if self._not_captured:
            return None
        try:
            return self.cuda.capture(work)
        except EngineError as error:
            self._not_captured = f'plain enqueue ({error})'
            self._note = f'CUDA graphs are given up, which costs time: {error}'
        return None

    def _enqueue_extract(self, slot: Slot, upload: Callable[[Slot], Addressed]) -> None:
        self._extractor.enqueue({'image': upload(slot), **self._maps}, self.cuda.stream)
        self._selection.enqueue(self._maps[names.LOGITS], self._maps[names.DENSE], self._mask.staged, **slot.tensors)
        for staged in slot.staged.values():
            self.cuda.receive(staged)

    def _check(self) -> None:
        if self._cancelled or not hasattr(self, '_matcher'):
            raise EngineError('this backend is cancelled or closed: open another one')


def _slots_beside(slot: Slot) -> range:
    """Indices of all slots of its camera."""
    first = slot.index // SLOTS * SLOTS
    return range(first, first + SLOTS)


def _close_at_exit(backend: TensorRTBackend) -> None:
    """Close it where a script that made it in this thread ends without: PyCUDA aborts a process that leaves a context (134)."""
    own, thread = weakref.ref(backend), threading.get_ident()

    def close() -> None:
        left = own()
        if left is not None and threading.get_ident() == thread:
            left.close()

    atexit.register(close)
    weakref.finalize(backend, atexit.unregister, close).atexit = False
