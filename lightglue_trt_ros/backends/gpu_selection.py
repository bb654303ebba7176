"""SuperPoint's keypoints on the GPU: launches the kernels of `kernels/selection.cu`."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from ..core.config import EngineSpec
from ..networks.architecture import BLOCK, BORDER, CELL
from ..utils.errors import EngineError
from .cuda import KERNEL_TYPES, THREADS, WARPS, Addressed, Cuda

TILE, CHOOSERS, CHANNELS = 32, 1024, 256  # as the kernels have them; CHANNELS: the longest descriptors
SCORERS = 64  # threads of a block that have a cell each: many small blocks fill a small GPU evenly


class GpuSelection:
    """The kernels, and the memory between them. Selections of one stream follow one another."""

    def __init__(self, cuda: Cuda, spec: EngineSpec, channels: int, dtype: DTypeLike, logits: tuple[int, ...],
                 dense: tuple[int, ...]) -> None:
        """For maps of FP16 or FP32 in these shapes, and descriptors of `channels` values.

        A shape is (1, C, H / 8, W / 8), or (1, H / 8, W / 8, C) with any C from that of the map on. Raises EngineError,
        DeviceMemoryError.
        """
        if not 1 <= channels <= CHANNELS or np.dtype(dtype) not in KERNEL_TYPES:
            raise EngineError(f'the kernels take FP16 or FP32 and descriptors of up to {CHANNELS} values, not {channels} of '
                              f'{np.dtype(dtype)}')
        cuda.load_kernels('selection')
        self._cuda, self._count, self._channels, self._type = cuda, spec.max_keypoints, channels, KERNEL_TYPES[np.dtype(dtype)]
        self._size = height, width = spec.size
        self._cells, self._tiles = height // CELL * (width // CELL), -(-height // TILE) * -(-width // TILE)
        self._logits_strides, self._dense_strides = (map_strides(shape, spec) for shape in (logits, dense))
        self._scores = cuda.device((height, width), np.float32)
        self._candidates = cuda.device(((height - 2 * BORDER) * (width - 2 * BORDER) // BLOCK**2,), np.uint64)
        self._winners = cuda.device((self._count,), np.uint64)
        self._peak_count = cuda.device((1,), np.uint32)

    def enqueue(self, logits: Addressed, dense: Addressed, mask: Addressed, keypoints: Addressed, scores: Addressed,
                descriptors: Addressed) -> None:
        """Enqueue the selection. Raises EngineError.

        logits of 65 channels and dense, as `superpoint_maps` gives them, mask uint8 (H, W) -> keypoints float32 (K, 2), scores
        float32 (K,), descriptors (K, D) in the maps' type, as `superpoint` gives them. Rows without a keypoint have score 0 and
        are about the pixel (BORDER, BORDER).
        """
        cuda, size, threads = self._cuda, self._size, (THREADS, 1)
        cuda.launch(f'score_pixels_{self._type}', -(-self._cells // SCORERS), (SCORERS, 1), logits, *self._logits_strides, *size,
                    self._scores, self._peak_count)
        cuda.launch('find_peaks', self._tiles, threads, self._scores, mask, *size, self._candidates, self._peak_count)
        cuda.launch('choose_keypoints', 1, (CHOOSERS, 1), self._candidates, self._peak_count, self._count, self._winners)
        cuda.launch(f'describe_keypoints_{self._type}', -(-self._count // WARPS), threads, self._winners, self._count,
                    self._scores, mask, *size, dense, self._channels, *self._dense_strides, keypoints, scores, descriptors)


def map_strides(shape: tuple[int, ...], spec: EngineSpec) -> tuple[int, int]:
    """Values from a channel of a map to the next one, and from a cell to the next one: channels come first, or last."""
    rows, columns = spec.image_height // CELL, spec.image_width // CELL
    return (rows * columns, 1) if shape[2:] == (rows, columns) else (1, shape[3])
