"""E4M3, the 8-bit floating-point format of FP8 matrix products: 4 bits of exponent, 3 of mantissa, no infinities.

Micikevicius et al.: FP8 Formats for Deep Learning, 2022; ONNX and TensorRT call it FLOAT8E4M3FN and kFP8.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

LARGEST = 448.0
LEAST_EXPONENT = -6  # of a normal number; subnormals share its step, 2^-9
MANTISSA_BITS = 3
LEAST_SCALE, GREATEST_SCALE = 2.0 ** -14, 2.0 ** 15  # what FP16 holds as a normal number


def rounded(values: ArrayLike) -> NDArray[np.float32]:
    """The nearest E4M3 number of each value, ties to even, beyond 448 saturated; NaN stays NaN and zero keeps its sign."""
    x = np.asarray(values, np.float32)
    magnitude = np.minimum(np.abs(x), np.float32(LARGEST))
    exponent = np.maximum(np.frexp(magnitude)[1] - 1, LEAST_EXPONENT)
    step = np.ldexp(np.float32(1), exponent - MANTISSA_BITS)
    nearest: NDArray[np.float32] = np.copysign(np.rint(magnitude / step) * step, x)
    return nearest


def encoded(values: ArrayLike) -> NDArray[np.uint8]:
    """The bytes of the nearest E4M3 numbers: sign, exponent with a bias of 7, mantissa."""
    x = rounded(values)
    magnitude = np.abs(x)
    normal = (magnitude.view(np.uint32) >> 20).astype(np.int32) - (127 - 7 << MANTISSA_BITS)  # FP32 in as many bits of mantissa
    subnormal = np.nan_to_num(magnitude * np.float32(2 ** (MANTISSA_BITS - LEAST_EXPONENT))).astype(np.int32)
    code: NDArray[Any] = np.where(magnitude < 2.0 ** LEAST_EXPONENT, subnormal, np.where(np.isnan(x), 0x7F, normal))
    return (code | np.where(np.signbit(x), 0x80, 0)).astype(np.uint8)


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
