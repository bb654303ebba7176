"""LightGlue's attention, confidence and assignment on the GPU: launches the kernels between and behind its engines."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from ..core.early_exit import confidence_threshold
from ..utils.errors import EngineError
from .cuda import KERNEL_TYPES, THREADS, Addressed, Cuda


class GpuAttention:
    """The kernels; they have no memory of their own, so that all layers can use one.

    All arrays are FP16: projected (2, count, columns) is what the matrix product leaves, state (2, count, width) is its input, and
    attended (2, count, 2 width) becomes the next product's: [state | context].
    """

    HEAD, TILE, BLOCK = 64, 64, 128  # as the kernels have them: channels of a head; queries and threads of a block
    PIECES = 4  # of a head: one thread rotates each

    def __init__(self, cuda: Cuda, count: int, width: int) -> None:
        """For `count` rows of each image. Raises EngineError, also for a GPU before Ampere."""
        if width % self.HEAD:
            raise EngineError(f'the kernels take heads of {self.HEAD} channels, not a width of {width}')
        cuda.load_kernels('attention')
        self._cuda, self._count, self._width, self._heads = cuda, count, width, width // self.HEAD

    def enqueue_self(self, projected: Addressed, cosines: Addressed, sines: Addressed, state: Addressed,
                     attended: Addressed) -> None:
        """Each image attends to itself. Raises EngineError.

        projected has queries, keys and values; queries and keys are rotated in place by cosines and sines (2, 1, count, 64).
        """
        blocks, columns = -(-2 * self._count * 2 * self._heads * self.PIECES // THREADS), 3 * self._width
        self._cuda.launch('rotate', blocks, (THREADS, 1), self._count, self._width, columns, projected, cosines, sines)
        self._attend(columns, self._width, 0, projected, state, attended)

    def enqueue_cross(self, projected: Addressed, state: Addressed, attended: Addressed) -> None:
        """Each image attends to the other; projected has what is query and key in one, and values. Raises EngineError."""
        self._attend(2 * self._width, 0, 1, projected, state, attended)

    def _attend(self, columns: int, key_at: int, swap: int, *arrays: Addressed) -> None:
        blocks, value_at = 2 * self._heads * -(-self._count // self.TILE), columns - self._width
        self._cuda.launch('attend', blocks, (self.BLOCK, 1), self._count, self._width, columns, key_at, value_at, swap, *arrays)


class GpuConfidence:
    """The kernel. It has no memory of its own, so that all exits can use one."""

    def __init__(self, cuda: Cuda, count: int, layers: int, dtype: DTypeLike) -> None:
        """For `count` rows of each image and tokens of FP16 or FP32. Raises EngineError."""
        cuda.load_kernels('confidence')
        self._cuda, self._count, self._layers = cuda, count, layers
        self._kernel = f'judge_{KERNEL_TYPES[np.dtype(dtype)]}'

    def enqueue(self, end: int, tokens: Addressed, scores: tuple[Addressed, Addressed], detection_threshold: Addressed,
                confidence: Addressed) -> None:
        """Enqueue the judgement after `end` layers. Raises EngineError.

        tokens (2, count), scores float32 (count,) of both images -> confidence float32 (2,): the share of confident rows among the
        valid ones, 1 where none is, and the mean -log of their confidence, NaN where one is.
        """
        limit = np.float32(-np.log(confidence_threshold(end - 1, self._layers)))
        self._cuda.launch(self._kernel, 1, (THREADS, 1), tokens, self._count, *scores, detection_threshold,
                          int(limit.view(np.int32)), confidence)


class GpuAssignment:
    """The kernels, and the memory that they share. Assignments of one stream follow one another, so all exits can use one."""

    TILE, STEP = 128, 16  # as the kernels have them: rows and columns of a tile; what the width is a multiple of

    def __init__(self, cuda: Cuda, count: int, width: int, dtype: DTypeLike) -> None:
        """For `count` rows of each image, projected to `width` values of FP16 or FP32. Raises EngineError, DeviceMemoryError."""
        if width % self.STEP or np.dtype(dtype) not in KERNEL_TYPES:
            raise EngineError(f'the kernels take FP16 or FP32 in multiples of {self.STEP} values, not {width} of {np.dtype(dtype)}')
        cuda.load_kernels('assignment')
        tiles = -(-count // self.TILE)
        self._cuda, self._count, self._width, self._tiles = cuda, count, width, tiles
        self._kernels = [f'assignment_{name}_{KERNEL_TYPES[np.dtype(dtype)]}' for name in ('sums', 'best')]
        self._sums = cuda.device((2, tiles, count, 2), np.float32)
        self._keys = cuda.device((2, count), np.uint64)

    def enqueue(self, projected: Addressed, matchability: Addressed, scores: tuple[Addressed, Addressed],
                detection_threshold: Addressed, match_threshold: Addressed, matches: Addressed, match_scores: Addressed, *,
                least: float = 0.0) -> None:
        """Enqueue the assignment. Raises EngineError.

        projected (2, count, width), matchability float32 (2, count) before the sigmoid, scores float32 (count,) of both images,
        thresholds float32 scalars -> matches int32 (count,), the row of image 1 or -1; match_scores float32 (count,), the match's
        score or 0. `least` bounds the threshold of matches from below, in thousandths.
        """
        cuda, shape, valid = self._cuda, (self._width, self._count), (*scores, detection_threshold)
        (sums, best), blocks = self._kernels, self._tiles**2
        cuda.launch(sums, blocks, (THREADS, 1), projected, *shape, *valid, self._sums, self._keys)
        cuda.launch(best, blocks, (THREADS, 1), projected, *shape, *valid, matchability, self._sums, self._keys)
        cuda.launch('assignment_matches', -(-self._count // THREADS), (THREADS, 1), *valid, match_threshold, round(1000 * least),
                    self._count, self._keys, matches, match_scores)
