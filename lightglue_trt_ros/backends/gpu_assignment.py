"""LightGlue's assignment on the GPU: launches the kernels of `kernels/assignment.cu`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from ..utils.errors import EngineError
from .cuda import KERNEL_TYPES, THREADS, Addressed, Cuda

PTX = Path(__file__).parent / 'kernels' / 'assignment.ptx'
TILE, STEP = 128, 16  # as the kernels have them: rows and columns of a tile; what the width is a multiple of


class GpuAssignment:
    """The kernels, and the memory that they share. Assignments of one stream follow one another, so all exits can use one."""

    def __init__(self, cuda: Cuda, count: int, width: int, dtype: DTypeLike) -> None:
        """For `count` rows of each image, projected to `width` values of FP16 or FP32. Raises EngineError, DeviceMemoryError."""
        if width % STEP or np.dtype(dtype) not in KERNEL_TYPES:
            raise EngineError(f'the kernels take FP16 or FP32 in multiples of {STEP} values, not {width} of {np.dtype(dtype)}')
        cuda.load_kernels(PTX.read_bytes())
        tiles = -(-count // TILE)
        self._cuda, self._count, self._width, self._tiles = cuda, count, width, tiles
        self._kernels = [f'assignment_{name}_{KERNEL_TYPES[np.dtype(dtype)]}' for name in ('sums', 'best')]
        self._sums = cuda.device((2, tiles, count, 2), np.float32)
        self._keys = cuda.device((2, count), np.uint64)

    def enqueue(self, projected: Addressed, matchability: Addressed, scores: tuple[Addressed, Addressed],
                detection_threshold: Addressed, match_threshold: Addressed, matches: Addressed, found: Addressed, *,
                least: float = 0.0) -> None:
        """Enqueue the assignment. Raises EngineError.

        projected (2, count, width), matchability float32 (2, count) before the sigmoid, scores float32 (count,) of both images,
        thresholds float32 scalars -> matches int32 (count,), the row of image 1 or -1; found float32 (count,), the match's score
        or 0. `least` bounds the threshold of matches from below, in thousandths.
        """
        cuda, shape, valid = self._cuda, (self._width, self._count), (*scores, detection_threshold)
        (sums, best), blocks = self._kernels, self._tiles**2
        cuda.launch(sums, blocks, (THREADS, 1), projected, *shape, *valid, self._sums, self._keys)
        cuda.launch(best, blocks, (THREADS, 1), projected, *shape, *valid, matchability, self._sums, self._keys)
        cuda.launch('assignment_matches', -(-self._count // THREADS), (THREADS, 1), *valid, match_threshold, round(1000 * least),
                    self._count, self._keys, matches, found)
