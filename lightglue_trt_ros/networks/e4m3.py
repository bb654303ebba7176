"""E4M3, the 8-bit floating-point format of FP8 matrix products: 4 bits of exponent, 3 of mantissa, no infinities.

Micikevicius et al.: FP8 Formats for Deep Learning, 2022; ONNX and TensorRT call it FLOAT8E4M3FN and kFP8. Rounded by ml_dtypes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

LARGEST = 448.0
LEAST_EXPONENT = -6  # of a normal number; subnormals share its step, 2^-9
LEAST_SCALE, GREATEST_SCALE = 2.0 ** -14, 2.0 ** 15  # what FP16 holds as a normal number


def encoded(values: ArrayLike) -> NDArray[np.uint8]:
    """The bytes of the nearest E4M3 numbers: ties to even, beyond 448 saturated; NaN stays NaN and zero keeps its sign."""
    return _nearest(values).view(np.uint8)


def rounded(values: ArrayLike) -> NDArray[np.float32]:
    """The nearest E4M3 numbers."""
    return _nearest(values).astype(np.float32)


def scale_of(peak: float) -> float:
    """The power of two by which values up to `peak` are divided before rounding.

    A finer scale would gain nothing, for the format's error is a share of each value; dividing by this one is exact in FP16 and
    FP32. It stays a normal number of FP16.
    """
    if not peak > 0:
        return 1.0
    return min(max(2.0 ** math.ceil(math.log2(peak / LARGEST)), LEAST_SCALE), GREATEST_SCALE)


def scales_of(weight: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """(outputs,) `scale_of` each row of weights (outputs, inputs)."""
    return np.array([scale_of(peak) for peak in np.abs(weight).max(axis=1)], np.float32)


def _nearest(values: ArrayLike) -> NDArray[Any]:
    import ml_dtypes  # onnx brings it; the node without FP8 does without both
    return np.clip(np.asarray(values, np.float32), -LARGEST, LARGEST).astype(ml_dtypes.float8_e4m3fn)
