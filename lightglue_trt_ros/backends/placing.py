"""Cameras' frames on the device, uploaded once, and points placed in them: `graphs.frames` and `graphs.placement` as engines.

A camera's size shows with its first frame: contexts and buffers are made then, and anew when it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ..config import EngineSpec
from ..errors import EngineError
from ..features import Float32, UInt8
from ..geometry import CAMERA_SIDES, SMALLEST_SIDE, Size, resize_matrices
from ..graphs.cache import PLACEMENT
from ..placement import Placed
from .cuda import Array, Cuda, DeviceBuffer
from .device import Engine, Slot

FRAME, HALVE, COARSE, FINE = PLACEMENT


def takes(size: Size) -> bool:
    """Whether engines take frames of this size, (height, width)."""
    return all(SMALLEST_SIDE <= side <= CAMERA_SIDES[name][2] for name, side in zip(('height', 'width'), size, strict=True))


def sizes_of(size: Size, engine: Size, depth: int, given: bool = False) -> Float32:
    """The input `sizes` for level `depth` of a frame of that size: float32 (8,).

    The last column and row of the level, those of the frame, the level's scale, pixels of the frame to one of the engine's image
    (at least 1), and what takes the matches' u and v to the frame: the same, or 1 where they are `given` in its pixels.
    """
    along, level = (size[1] / engine[1], size[0] / engine[0]), _levels(size, depth + 1)[-1]
    ends = [side - 1 for shape in (level, size) for side in reversed(shape)]
    return np.array([*ends, 2**depth, max(1.0, *along), *((1.0, 1.0) if given else along)], np.float32)


class DevicePlacement:
    """The engines with what lies between them. Used by the one thread that owns `cuda`."""

    def __init__(self, cuda: Cuda, spec: EngineSpec, engines: Mapping[str, Engine], slots: int) -> None:
        """`slots` is how many each camera has."""
        self.cuda, self._engine_size, self._slots = cuda, (spec.image_height, spec.image_width), slots
        self._engines = {name: engines[name] for name in PLACEMENT}
        coarse, fine = self._engines[COARSE], self._engines[FINE]
        inputs = {name: coarse.tensor(name) for name in ('reference_points', 'keypoints1', 'matches0')}
        self._given = {name: (cuda.device(*kind), cuda.pinned(*kind)) for name, kind in inputs.items()}
        self._states = [cuda.device(*fine.tensor('state')) for _ in range(2)]
        outputs = {name: fine.tensor(name) for name in ('points', 'covariances')}
        self._found = {name: (cuda.device(*kind), cuda.pinned(*kind)) for name, kind in outputs.items()}
        self.cameras: dict[int, Camera] = {}
        self.camera: Camera | None = None  # looked at last

    def look(self, number: int, size: Size) -> bool:
        """Be ready for frames of this size, (height, width), of that camera; whether it is a new one: nothing of it is captured."""
        self.camera = self.cameras.get(number)
        if self.camera is not None and self.camera.size == size:
            return False
        if self.camera is not None:
            self.cuda.synchronize()
            self.camera = None
            self.cameras.pop(number).close()
        slots = range(number * self._slots, (number + 1) * self._slots)
        self.cameras[number] = self.camera = Camera(self.cuda, self._engines, self._engine_size, size, slots)
        return True

    def enqueue_frame(self, slot: Slot, resized: DeviceBuffer) -> None:
        """Upload what was staged, resize it into the extractor's image and make the slot's pyramid."""
        camera, stream = self.seen, self.cuda.stream
        levels = camera.levels[slot.index]
        self.cuda.upload(camera.image, camera.staging)
        camera.frame.enqueue({**camera.matrices, 'image': camera.image, 'resized': resized, 'level': levels[0]}, stream)
        for engine, level, half in zip(camera.halve, levels[:-1], levels[1:], strict=True):
            engine.enqueue({'level': level, 'half': half}, stream)

    def enqueue(self, pair: tuple[Slot, Slot], matched: Mapping[str, DeviceBuffer] | None = None) -> None:
        """Enqueue placement of what was `matched` (keypoints1, matches0) or is staged; the reference's points are staged always."""
        self.cuda.upload(*self._given['reference_points'])
        if matched is None:
            for name in ('keypoints1', 'matches0'):
                self.cuda.upload(*self._given[name])
        for engine, tensors in self._levels(pair, matched):
            engine.enqueue(tensors, self.cuda.stream)
        for buffer, array in self._found.values():
            self.cuda.download(array, buffer)

    def stage(self, **values: Array) -> None:
        """Rows, as many as the engine has at most, for the next upload of these inputs; there is no match beyond them."""
        for name, rows in values.items():
            array = self._given[name][1]
            if len(rows) > len(array):
                raise EngineError(f'{len(rows)} points are to be placed at once, these engines have {len(array)} rows')
            array[:len(rows)], array[len(rows):] = rows, -1 if name == 'matches0' else 0

    def found(self, count: int) -> Placed:
        """What placement gave for the reference's first rows, once it has run."""
        points, (a, b, d) = self._found['points'][1][:count], self._found['covariances'][1][:count].T
        return Placed(points.copy(), np.stack([a, b, b, d], axis=1).reshape(-1, 2, 2))

    def enqueue_plainly(self, pair: tuple[Slot, Slot]) -> dict[str, tuple[Any, Callable[[], None]]]:
        """Each kind of level's execution context, and a function that enqueues it alone: for profilers."""
        (coarse, first), (fine, second), *_ = self._levels(pair, None)
        return {COARSE: (coarse.context, lambda: coarse.enqueue(first, self.cuda.stream)),
                FINE: (fine.context, lambda: fine.enqueue(second, self.cuda.stream))}

    @property
    def seen(self) -> Camera:
        assert self.camera is not None, 'nothing was looked at'
        return self.camera

    def _levels(self, pair: tuple[Slot, Slot], matched: Mapping[str, DeviceBuffer] | None) -> list[
            tuple[Engine, dict[str, DeviceBuffer]]]:
        """What runs, from the last level to the first, and on what."""
        camera: Camera = pair[1].camera or self.seen
        runs = []
        common = {name: buffer for name, (buffer, _) in (*self._given.items(), *self._found.items())} | dict(matched or {})
        for number, depth in enumerate(reversed(range(len(camera.placing)))):
            sizes = camera.sizes_given if matched is None and not number else camera.sizes[depth]
            states = {'state': self._states[(number + 1) % 2], 'next_state': self._states[number % 2]}
            images = {name: camera.levels[slot.index][depth] for name, slot in zip(('reference', 'current'), pair, strict=True)}
            runs.append((camera.placing[depth], {**common, **states, **images, 'sizes': sizes}))
        return runs


class Camera:
    """What depends on the size of a camera's frames: buffers, pyramids of its slots, and engines with contexts of their own."""

    def __init__(self, cuda: Cuda, engines: Mapping[str, Engine], engine: Size, size: Size, slots: Iterable[int]) -> None:
        self.size, self._cuda, self._buffers, self._arrays = size, cuda, list[DeviceBuffer](), list[Array]()
        count = 2 + round(float(np.log2(max(1.0, size[0] / engine[0], size[1] / engine[1]))))  # as placement.Pyramid
        shapes = _levels(size, count)
        self.staging: UInt8 = self._pinned(size, np.uint8)
        self.image = self._device(size, np.uint8)
        self.levels = {index: [self._device(shape, np.float32) for shape in shapes] for index in slots}
        rows, columns = resize_matrices(size, engine)
        self.matrices = {'rows': self._constant(rows), 'columns': self._constant(columns)}
        self.sizes = [self._constant(sizes_of(size, engine, depth)) for depth in range(count)]
        self.sizes_given = self._constant(sizes_of(size, engine, count - 1, given=True))
        cuda.synchronize()  # what was uploaded is staged in arrays of here
        self.frame = engines[FRAME].sized(cuda.stream, image=size, rows=rows.shape, columns=columns.shape)
        self.halve = [engines[HALVE].sized(cuda.stream, level=shape) for shape in shapes[:-1]]
        kinds = [*[FINE] * (count - 1), COARSE]
        self.placing = [engines[kind].sized(cuda.stream, reference=shape, current=shape)
                        for kind, shape in zip(kinds, shapes, strict=True)]

    def close(self) -> None:
        """Let go of contexts and buffers, once nothing uses them."""
        for engine in (self.frame, *self.halve, *self.placing):
            engine.close()
        self._cuda.free(self._buffers, self._arrays)

    def _device(self, shape: tuple[int, ...], dtype: Any) -> DeviceBuffer:
        self._buffers.append(self._cuda.device(shape, dtype))
        return self._buffers[-1]

    def _pinned(self, shape: tuple[int, ...], dtype: Any) -> Array:
        self._arrays.append(self._cuda.pinned(shape, dtype))
        return self._arrays[-1]

    def _constant(self, values: Float32) -> DeviceBuffer:
        buffer, staged = self._device(values.shape, np.float32), self._pinned(values.shape, np.float32)
        np.copyto(staged, values)
        self._cuda.upload(buffer, staged)
        return buffer


def _levels(size: Size, count: int) -> list[Size]:
    """Sizes of a pyramid's levels."""
    shapes = [size]
    while len(shapes) < count:
        height, width = shapes[-1]
        shapes.append(((height + 1) // 2, (width + 1) // 2))
    return shapes
