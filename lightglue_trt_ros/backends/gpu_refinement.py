"""Refinement on the GPU: uploads each camera frame once and launches the kernels of `kernels/refinement.cu`.

Buffers of a camera are made at its first frame, and again when the size of its frames changes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..core import refinement as host
from ..core.config import EngineSpec
from ..core.geometry import Size, resize_taps, unit_of
from ..core.refinement import Refined, levels_for, patches
from ..core.types import Float32, Int32
from ..networks.engine_tensors import KEYPOINTS
from ..utils.errors import EngineError
from .cuda import LANES, THREADS, WARPS, Addressed, Cuda, DeviceInput, DevicePointer
from .gpu_geometry import device_lens
from .gpu_geometry import settings_of as geometry_settings
from .tensorrt_engines import Slot

FULL = (0, 1, 1, 2)  # a symmetric matrix of its three entries
SOURCES_BYTES = 4 * (5 + 4 * patches.SOURCES)


def settings_of(size: Size, engine: Size) -> Float32:
    """`Settings` of the kernels, for frames of that size and the engine's images of theirs."""
    along = size[1] / engine[1], size[0] / engine[0]
    return np.array([*host.COARSE, *host.FINE, host.FLOOR_PX, host.DISAGREEMENT, host.GHOST, host.BEND, host.LIMIT_PX,
                     host.UNREFINED_PX, host.PREDICTED_PX, host.PREDICTED_LIMIT_PX, patches.FAINT, patches.ALIKE,
                     patches.QUANTISATION, patches.REACH_PX, patches.RIDGE_PX, max(1.0, *along), *along], np.float32)


class GpuRefinement:
    """The kernels, and what they work on. Used by the one thread that owns `cuda`."""

    def __init__(self, cuda: Cuda, spec: EngineSpec, slots: int) -> None:
        """`slots` is how many each camera has. Raises EngineError where the driver refuses the kernels, DeviceMemoryError."""
        cuda.load_kernels('refinement')
        self.cuda, self._slots, self._count = cuda, slots, spec.max_keypoints
        self._engine = spec.size
        self.points = cuda.staged((2 * self._count, 2), np.float32, shared=True)  # of the reference
        self.searched = cuda.staged((2 * self._count,), np.uint8, shared=True)
        self._matches = cuda.staged((self._count,), np.int32, shared=True)
        # not shared: the geometry's kernels read them again, and a Jetson's GPU does not cache shared memory
        self.refined = cuda.staged((2 * self._count, 2), np.float32)
        self.covariances = cuda.staged((2 * self._count, 3), np.float32)
        self._sources = cuda.device((SOURCES_BYTES,), np.uint8)
        self.cameras: dict[int, Camera] = {}

    def look(self, number: int, size: Size) -> tuple[Camera, bool]:
        """The camera of that number for frames of this size, (height, width), and whether it is new: nothing of it is captured."""
        camera = self.cameras.get(number)
        if camera is not None and camera.size == size:
            return camera, False
        if camera is not None:
            self.cuda.synchronize()
            self.cameras.pop(number).close()
        slots = range(number * self._slots, (number + 1) * self._slots)
        self.cameras[number] = Camera(self.cuda, self._engine, size, slots)
        return self.cameras[number], True

    def enqueue_frame(self, camera: Camera, slot: Slot, resized: Addressed) -> Addressed:
        """Upload the camera's staged image and make the slot's pyramid; the extractor's image, `resized` where it must be."""
        (height, width), (new_height, new_width) = camera.size, self._engine
        level = camera.pyramids[slot.index]
        self.cuda.send(camera.image)
        if camera.size != self._engine:
            self._launch_over('resize', new_height * new_width, camera.image, width, *camera.taps, resized, new_height, new_width)
        self._launch_over('widen', height * width, camera.image, level[0], height * width)
        for (height, width), larger, half in zip(camera.shapes, level, level[1:], strict=False):
            self._launch_over('halve', (height + 1) // 2 * ((width + 1) // 2), larger, height, width, half)
        return resized if camera.size != self._engine else camera.image

    def enqueue(self, pair: tuple[Slot, Slot], camera: Camera, matches: Addressed | None = None) -> None:
        """Enqueue refinement in two frames of a camera. The reference's points must be staged.

        `matches` (K,) has the current row of each reference row, or -1; None takes the staged matches.
        """
        (height, width), cuda = camera.size, self.cuda
        cuda.send(self.points)
        cuda.send(self.searched)
        if matches is None:
            cuda.send(self._matches)
        matched = pair[1].tensors[KEYPOINTS], matches or self._matches, self._count
        cuda.launch('choose_sources', 1, (THREADS, 1), camera.settings, self.points, *matched, self._sources)
        images, rows = (camera.pyramids[slot.index][0] for slot in pair), 2 * self._count
        cuda.launch('refine', -(-rows // WARPS), (LANES, WARPS), camera.settings, self._sources, *images, height, width,
                    len(camera.shapes), self.points, self.searched, rows, *matched, self.refined, self.covariances)

    def stage(self, points: Float32, matches: Int32 | None = None, searched: NDArray[np.bool_] | None = None) -> None:
        """For the next upload: the reference's points (N, 2), 2 K at most; the current row of each reference row (K,), or -1.

        Without a match only the `searched` (N,) are refined; None: all.
        """
        if len(points) > 2 * self._count:
            raise EngineError(f'{len(points)} points are to be refined at once, there is room for {2 * self._count}')
        self.points.array[:len(points)], self.points.array[len(points):] = points, np.nan
        self.searched.array[:len(points)] = 1 if searched is None else searched
        if matches is not None:
            self._matches.array[:] = matches

    def result(self, count: int) -> Refined:
        """Refined points of the first `count` reference points, after the stream was synchronised."""
        covariances = self.covariances.array[:count].take(FULL, axis=1)
        return Refined(self.refined.array[:count].copy(), covariances.reshape(-1, 2, 2))

    def _launch_over(self, kernel: str, count: int, *arguments: int | Addressed) -> None:
        """Launch a kernel of one thread for each of `count` pixels."""
        self.cuda.launch(kernel, -(-count // THREADS), (THREADS, 1), *arguments)


class Camera:
    """Buffers by the size of a camera's frames: the frame, its mask, how it is resized, and the pyramids of its slots."""

    def __init__(self, cuda: Cuda, engine: Size, size: Size, slots: range) -> None:
        self.size, self._cuda = size, cuda
        self.shapes = levels_for(size, unit_of(size, engine))
        self.image, self.lens = cuda.staged(size, np.uint8, shared=True), device_lens(cuda)
        self.mask = DeviceInput(cuda, size, np.uint8, 1, shared=True)  # allows all until it is set
        rows, columns = resize_taps(size, engine)
        constants = [settings_of(size, engine), geometry_settings(size, engine), *rows, *columns]
        self._constants = [cuda.staged(values.shape, values.dtype, shared=True) for values in constants]
        for staged, values in zip(self._constants, constants, strict=True):
            np.copyto(staged.array, values)
            cuda.send(staged)
        self.settings, self.geometry_settings, *taps = self._constants
        self.taps = (*taps[:2], rows.weights.shape[1], *taps[2:], columns.weights.shape[1])  # as `resize` takes them
        offsets = np.cumsum([0, *(4 * height * width for height, width in self.shapes)]).tolist()
        self._levels = [cuda.device((offsets[-1] // 4,), np.float32) for _ in slots]
        self.pyramids = {slot: [DevicePointer(buffer.address + offset) for offset in offsets[:-1]]
                         for slot, buffer in zip(slots, self._levels, strict=True)}
        cuda.synchronize()

    def close(self) -> None:
        """Let go of the buffers, once nothing uses them, whoever holds this one."""
        self._cuda.free(self.image, self.mask.staged, self.lens.staged, *self._constants, *self._levels)
        vars(self).clear()
