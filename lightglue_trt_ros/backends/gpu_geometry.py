"""Correspondences on the GPU, behind matching and refinement: launches the kernels of `kernels/geometry.cu`."""

from __future__ import annotations

import numpy as np

from ..core.correspondences import Correspondences
from ..core.geometry import Size
from ..core.lens import CONSTANTS, IDEAL, Lens
from ..core.refinement import DOUBT
from ..core.refinement import variance_factor as factor
from ..core.track_propagation import LINE_PX, MAX_SIGMA_PX, NEAR_PX
from ..core.types import Float32
from .cuda import THREADS, WARPS, Addressed, Cuda, DeviceInput

BLOCK = 512  # threads of the kernel that fits
FIT = np.dtype([('fundamental', np.float64, (3, 3)), *((name, np.float64) for name in ('middle', 'quantile', 'second_quantile')),
                *((name, np.uint32) for name in ('matched', 'irregular', 'inliers', 'propagated', 'fitted', 'unused'))])


def settings_of(size: Size, engine: Size) -> Float32:
    """`Settings` of the kernels, for frames of that size and the engine's images of theirs."""
    along = size[1] / engine[1], size[0] / engine[0]
    return np.array([factor.ENOUGH, factor.ROUNDS, factor.SETTLED, factor.EXACT, factor.QUANTILE, factor.WRONG_PX,
                     factor.WRONG_SIGMAS, DOUBT, MAX_SIGMA_PX, LINE_PX, NEAR_PX, max(along),
                     *along, size[1], size[0], factor.SHARP], np.float32)


class GpuGeometry:
    """The kernels, and what they work on. Used by the one thread that owns `cuda`."""

    def __init__(self, cuda: Cuda, count: int) -> None:
        """For frames of `count` keypoints. Raises EngineError where the driver refuses the kernels, DeviceMemoryError."""
        cuda.load_kernels('geometry')
        self._cuda, self._count, rows = cuda, count, 2 * count
        self._points = cuda.device((count, 2), np.float32)  # of the current frame, refined where matched
        self._keys, self._winners = cuda.device((rows,), np.uint64), cuda.device((count,), np.uint64)
        self._targets = cuda.device((rows,), np.int32)
        self._straight = [cuda.device((rows, width), np.float32) for width in (2, 2, 4)]  # points of both frames, derivatives
        # in words: of the fit, and the ends of what follows
        head, offsets = FIT.itemsize // 4, [rows * words for words in (2, 3, 5, 7, 11)]
        self._results = cuda.staged((head + offsets[-1],), np.int32)  # not shared: the kernels read the fit again and again
        self._fit, (indices, *values) = self._results.array[:head].view(FIT), np.split(self._results.array[head:], offsets[:-1])
        self._indices = indices.reshape(2, rows)  # of the reference and of the current frame
        self._scores, *self._values = (part.view(np.float32).reshape(rows, -1) for part in values)

    def enqueue(self, settings: Addressed, lens: Addressed, mask: Addressed, points: Addressed, searched: Addressed,
                keypoints: Addressed, matches: Addressed, scores: Addressed, refined: Addressed, covariances: Addressed) -> None:
        """Enqueue all. Raises EngineError.

        settings of `settings_of`; lens of `Lens.constants`; mask uint8 (H, W) of the frames, 0 where no point may continue. Of
        2 count rows of the reference: points float32 (2 count, 2), searched uint8, refined (2 count, 2) and covariances
        (2 count, 3), as refinement gives them. keypoints float32 (count, 2) of the current frame, in the engine's pixels; matches
        int32 and scores float32 (count,), as the assignment gives them.
        """
        cuda, count, rows, results = self._cuda, self._count, 2 * self._count, self._results
        block, given, blocks = (THREADS, 1), (refined, covariances, count), -(-rows // THREADS)
        cuda.launch('straighten', blocks, block, lens, points, searched, matches, refined, count, rows, *self._straight)
        cuda.launch('fit_matches', 1, (BLOCK, 1), settings, points, keypoints, matches, scores, *given, *self._straight,
                    self._points, self._winners, results)
        cuda.launch('find_candidates', blocks, block, settings, points, searched, matches, *given, rows, *self._straight, mask,
                    results, self._keys)
        warps = -(-rows // WARPS)
        cuda.launch('compete', warps, block, settings, refined, self._points, count, rows, self._keys, self._targets, self._winners)
        cuda.launch('propagate', warps, block, points, *given, rows, self._keys, self._targets, self._winners, results)
        cuda.receive(results)

    def correspondences(self, fit_limit: float) -> Correspondences | None:
        """The correspondences, after the stream was synchronised; None where the host has to do it. `fit_limit` as in `Sought`."""
        _, middle, quantile, second_quantile, matched, irregular, inliers, propagated, fitted, _ = self._fit[0].tolist()
        if irregular or (fitted >= factor.ENOUGH and not middle <= fit_limit):
            return None
        total = matched + propagated
        rows, next_rows = self._indices[:, :total].astype(np.intp)
        reference_points, points, covariances = (part[:total].copy() for part in self._values)
        return Correspondences(matched, rows, next_rows, reference_points, points, covariances.reshape(-1, 2, 2),
                               self._scores[:total, 0].copy(), quantile, inliers, second_quantile, factor.tested_of(fitted))


def device_lens(cuda: Cuda) -> DeviceInput:
    """The lens of a camera's frames; an ideal pinhole's until it is set."""
    return DeviceInput(cuda, (CONSTANTS,), np.float64, Lens(np.eye(3), np.zeros(0), IDEAL).constants, shared=True)
