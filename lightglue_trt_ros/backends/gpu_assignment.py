"""LightGlue's assignment on the GPU: launches the kernels of `kernels/assignment.cu`; `assign_on_host` is the same on the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..core.types import Float32, Int32
from ..utils.errors import EngineError
from .cuda import THREADS, Addressed, Cuda

PTX = Path(__file__).parent / 'kernels' / 'assignment.ptx'
TILE, STEP = 128, 16  # as the kernels have them: rows and columns of a tile; what the width is a multiple of
MASKED = -1e4  # as networks/lightglue.py has it, whose libraries a robot need not have
_KERNELS = {np.dtype(np.float16): 'fp16', np.dtype(np.float32): 'fp32'}


class GpuAssignment:
    """The kernels, and the memory that they share. Assignments of one stream follow one another, so all exits can use one."""

    def __init__(self, cuda: Cuda, count: int, width: int, dtype: DTypeLike) -> None:
        """For `count` rows of each image, projected to `width` values of FP16 or FP32. Raises EngineError, DeviceMemoryError."""
        if width % STEP or np.dtype(dtype) not in _KERNELS:
            raise EngineError(f'the kernels take FP16 or FP32 in multiples of {STEP} values, not {width} of {np.dtype(dtype)}')
        cuda.load_kernels(PTX.read_bytes())
        tiles = -(-count // TILE)
        self._cuda, self._count, self._width, self._tiles = cuda, count, width, tiles
        self._kernels = [f'assignment_{name}_{_KERNELS[np.dtype(dtype)]}' for name in ('sums', 'best')]
        self._sums = cuda.device((2, tiles, count, 2), np.float32)
        self._keys = cuda.device((2, count), np.uint64)

    @property
    def nbytes(self) -> int:
        """Device memory."""
        return self._sums.nbytes + self._keys.nbytes

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

    def close(self) -> None:
        """Let go of the memory, once nothing uses it."""
        self._cuda.free(self._sums, self._keys)


def assign_on_host(projected: NDArray[Any], matchability: Float32, scores: tuple[Float32, Float32], detection_threshold: float,
                   match_threshold: float, *, least: float = 0.0) -> tuple[Int32, Float32]:
    """Arrays as `GpuAssignment.enqueue` takes them -> matches int32 (count,), scores float32 (count,)."""
    valid = [each > detection_threshold for each in scores]
    with np.errstate(invalid='ignore', over='ignore', divide='ignore'):  # of rows that are not finite: they have no match
        wide = projected.astype(np.float32)
        similarity = np.where(valid[0][:, None] & valid[1], wide[0] @ wide[1].T, np.float32(MASKED))
        assignment = -(np.logaddexp(0, -matchability[0])[:, None] + np.logaddexp(0, -matchability[1]))
        for axis in (0, 1):
            lessened = similarity - similarity.max(axis=axis, keepdims=True)
            assignment += lessened - np.log(np.exp(lessened).sum(axis=axis, keepdims=True))
    assignment[np.isnan(assignment)] = -np.inf
    best, rows = assignment.argmax(axis=1), np.arange(len(assignment))
    found = np.exp(assignment[rows, best])
    kept = (assignment.argmax(axis=0)[best] == rows) & valid[0] & valid[1][best] & (found > max(match_threshold, least))
    return np.where(kept, best, -1).astype(np.int32), np.where(kept, found, 0).astype(np.float32)
