"""LightGlue's confidence on the GPU: launches the kernel of `kernels/confidence.cu`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from ..core.early_exit import confidence_threshold
from .cuda import KERNEL_TYPES, THREADS, Addressed, Cuda

PTX = Path(__file__).parent / 'kernels' / 'confidence.ptx'


class GpuConfidence:
    """The kernel. It has no memory of its own, so that all exits can use one."""

    def __init__(self, cuda: Cuda, count: int, layers: int, dtype: DTypeLike) -> None:
        """For `count` rows of each image and tokens of FP16 or FP32. Raises EngineError."""
        cuda.load_kernels(PTX.read_bytes())
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
