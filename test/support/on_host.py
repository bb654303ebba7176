"""What the GPU's kernels do, in NumPy and OpenCV: a second opinion for their tests."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from lightglue_trt_ros.core.config import EngineSpec
from lightglue_trt_ros.core.types import Float32, Int32
from lightglue_trt_ros.networks.architecture import BLOCK, BORDER, CELL
from lightglue_trt_ros.networks.lightglue import MASKED
from lightglue_trt_ros.networks.superpoint import NMS_RADIUS, REFINE_RADIUS


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


def select_on_host(logits: NDArray[Any], dense: NDArray[Any], mask: NDArray[np.uint8], spec: EngineSpec) -> tuple[
        Float32, Float32, NDArray[Any]]:
    """logits (1, 65, H / 8, W / 8), dense (1, D, H / 8, W / 8), mask (H, W) -> what `GpuSelection.enqueue` gives."""
    dense_scores = scores_on_host(logits[0])
    peaks = suppressed(_detectable(dense_scores, mask))[BORDER:-BORDER, BORDER:-BORDER]
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


def suppressed(scores: Float32) -> Float32:
    """Non-maximum suppression as the released model describes it, written with dilations."""
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
