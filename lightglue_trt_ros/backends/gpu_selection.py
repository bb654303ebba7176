"""SuperPoint's keypoints on the GPU: launches the kernels of `kernels/selection.cu`; `select_on_host` is the same on the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..core.config import EngineSpec
from ..core.types import Float32
from ..utils.errors import EngineError
from .cuda import THREADS, WARPS, Addressed, Cuda

PTX = Path(__file__).parent / 'kernels' / 'selection.ptx'
TILE, CHOOSERS, CHANNELS = 32, 1024, 256  # as the kernels have them; CHANNELS: the longest descriptors
SCORERS = 64  # threads of a block that have a cell each: many small blocks fill a small GPU evenly
# as networks/superpoint.py has them, whose libraries a robot need not have
CELL, NMS_RADIUS, BORDER, REFINE_RADIUS, BLOCK = 8, 4, 4, 2, 4
_KERNELS = {np.dtype(np.float16): 'fp16', np.dtype(np.float32): 'fp32'}

Strides = tuple[int, int]  # values from a channel to the next one, and from a cell to the next one


class GpuSelection:
    """The kernels, and the memory between them. Selections of one stream follow one another."""

    def __init__(self, cuda: Cuda, spec: EngineSpec, channels: int, dtype: DTypeLike, *, logits_strides: Strides | None = None,
                 dense_strides: Strides | None = None) -> None:
        """For maps of FP16 or FP32, and descriptors of `channels` values. Without strides, maps are (channels, H / 8, W / 8).

        Raises EngineError, DeviceMemoryError.
        """
        if not 1 <= channels <= CHANNELS or np.dtype(dtype) not in _KERNELS:
            raise EngineError(f'the kernels take FP16 or FP32 and descriptors of up to {CHANNELS} values, not {channels} of '
                              f'{np.dtype(dtype)}')
        cuda.load_kernels(PTX.read_bytes())
        self._cuda, self._count, self._channels, self._type = cuda, spec.max_keypoints, channels, _KERNELS[np.dtype(dtype)]
        self._size = height, width = spec.image_height, spec.image_width
        self._cells, self._tiles = height // CELL * (width // CELL), -(-height // TILE) * -(-width // TILE)
        self._logits_strides, self._dense_strides = (strides or (self._cells, 1) for strides in (logits_strides, dense_strides))
        self._scores = cuda.device((height, width), np.float32)
        self._candidates = cuda.device(((height - 2 * BORDER) * (width - 2 * BORDER) // BLOCK**2,), np.uint64)
        self._winners = cuda.device((self._count,), np.uint64)
        self._found = cuda.device((1,), np.uint32)

    @property
    def nbytes(self) -> int:
        """Device memory."""
        return sum(each.nbytes for each in (self._scores, self._candidates, self._winners, self._found))

    def enqueue(self, logits: Addressed, dense: Addressed, mask: Addressed, keypoints: Addressed, scores: Addressed,
                descriptors: Addressed) -> None:
        """Enqueue the selection. Raises EngineError.

        logits of 65 channels and dense, as `superpoint_maps` gives them, mask uint8 (H, W) -> keypoints float32 (K, 2), scores
        float32 (K,), descriptors (K, D) in the maps' type, as `superpoint` gives them. Rows without a keypoint have score 0 and
        are about the pixel (BORDER, BORDER).
        """
        cuda, size, threads = self._cuda, self._size, (THREADS, 1)
        cuda.launch(f'score_pixels_{self._type}', -(-self._cells // SCORERS), (SCORERS, 1), logits, *self._logits_strides, *size,
                    self._scores, self._found)
        cuda.launch('find_peaks', self._tiles, threads, self._scores, mask, *size, self._candidates, self._found)
        cuda.launch('choose_keypoints', 1, (CHOOSERS, 1), self._candidates, self._found, self._count, self._winners)
        cuda.launch(f'describe_keypoints_{self._type}', -(-self._count // WARPS), threads, self._winners, self._count,
                    self._scores, mask, *size, dense, self._channels, *self._dense_strides, keypoints, scores, descriptors)

    def close(self) -> None:
        """Let go of the memory, once nothing uses it."""
        self._cuda.free(self._scores, self._candidates, self._winners, self._found)


def select_on_host(logits: NDArray[Any], dense: NDArray[Any], mask: NDArray[np.uint8], spec: EngineSpec) -> tuple[
        Float32, Float32, NDArray[Any]]:
    """logits (1, 65, H / 8, W / 8), dense (1, D, H / 8, W / 8), mask (H, W) -> what `GpuSelection.enqueue` gives."""
    dense_scores = scores_on_host(logits[0])
    peaks = _suppressed(_detectable(dense_scores, mask))[BORDER:-BORDER, BORDER:-BORDER]
    rows, columns = (side // BLOCK for side in peaks.shape)
    squares = peaks.reshape(rows, BLOCK, columns, BLOCK).transpose(0, 2, 1, 3).reshape(rows * columns, -1)
    best = squares.max(axis=1)
    chosen = np.argsort(-best, kind='stable')[:spec.max_keypoints]
    scores, place = best[chosen], squares.argmax(axis=1)[chosen]
    row, column = np.divmod(chosen, columns)
    pixels = BORDER + np.stack([column * BLOCK + place % BLOCK, row * BLOCK + place // BLOCK], axis=1)
    pixels[scores == 0] = BORDER
    keypoints = _refined(np.where(mask == 0, np.float32(0), dense_scores), pixels)
    return keypoints, scores, _described(dense[0], pixels, spec).astype(dense.dtype)


def scores_on_host(logits: NDArray[Any]) -> Float32:
    """Logits (65, H / 8, W / 8) -> how much each pixel is a keypoint (H, W), 0 in cells that are not finite."""
    with np.errstate(invalid='ignore'):
        wide = logits.astype(np.float32)
        cells = np.exp(wide - wide.max(axis=0))
        cells = (cells / cells.sum(axis=0))[:-1]
    height, width = logits.shape[1:]
    cells = np.where(np.isfinite(cells), cells, np.float32(0)).reshape(CELL, CELL, height, width)
    return np.ascontiguousarray(cells.transpose(2, 0, 3, 1).reshape(height * CELL, width * CELL))


def _detectable(scores: Float32, mask: NDArray[np.uint8]) -> Float32:
    masked = (mask == 0).astype(np.uint8)
    slope = _local_max(scores, radius=1) > scores
    return np.where((masked > 0) | ((_local_max(masked) > 0) & slope), np.float32(0), scores)


def _suppressed(scores: Float32) -> Float32:
    maxima = scores == _local_max(scores)
    for _ in range(2):
        suppressed = _local_max(maxima.astype(np.uint8)) > 0
        rest = np.where(suppressed, np.float32(0), scores)
        maxima |= (rest == _local_max(rest)) & ~suppressed
    return np.where(maxima, scores, np.float32(0))


def _local_max(values: NDArray[Any], radius: int = NMS_RADIUS) -> NDArray[Any]:
    return cv2.dilate(values, np.ones((2 * radius + 1, 2 * radius + 1), np.uint8))


def _refined(scores: Float32, pixels: NDArray[np.int64]) -> Float32:
    around = np.arange(-REFINE_RADIUS, REFINE_RADIUS + 1)
    shifts = np.stack(np.meshgrid(around, around), axis=-1).reshape(-1, 2)
    u, v = (pixels[:, None] + shifts).transpose(2, 0, 1)
    weights = scores[v, u]
    keypoints: Float32 = pixels.astype(np.float32)
    keypoints += weights @ shifts.astype(np.float32) / (weights.sum(axis=1, keepdims=True) + np.float32(1e-9))
    return keypoints


def _described(dense: NDArray[Any], pixels: NDArray[np.int64], spec: EngineSpec) -> Float32:
    sides = np.array(dense.shape[:0:-1])  # (2,) as (u, v)
    extent = np.array([spec.image_width, spec.image_height], np.float32) - np.float32(CELL / 2 + 0.5)
    places = (pixels - (CELL / 2 - 0.5)) / extent * (sides - 1)
    first = np.floor(places).astype(np.int64)
    mixed = np.zeros((len(pixels), len(dense)), np.float32)
    for corner in ((0, 0), (1, 0), (0, 1), (1, 1)):
        cells = first + corner
        weights = np.prod(1 - np.abs(places - cells), axis=1) * np.all((cells >= 0) & (cells < sides), axis=1)
        u, v = np.clip(cells, 0, sides - 1).T
        mixed += weights[:, None].astype(np.float32) * _unit(dense[:, v, u].T.astype(np.float32))
    return _unit(mixed)


def _unit(rows: Float32) -> Float32:
    units: Float32 = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.float32(1e-12))
    return units
