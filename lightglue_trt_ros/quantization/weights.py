"""Weights rounded to E4M3 with what is known of their inputs: each input makes up for the errors of those before it.

Frantar et al.: GPTQ, ICLR 2023, after Hassibi and Stork's Optimal Brain Surgeon, with a floating-point grid in place of integers.
"""

from __future__ import annotations

import numpy as np

from .. import e4m3
from ..calibration import RoundedWeights
from ..features import Float32
from .bases import Float64

DAMPING = 1e-2  # of the mean variance, added to each: directions that were never seen still count


def rounded_weights(weight: Float32, covariance: Float64) -> RoundedWeights:
    """Of weights (outputs, inputs): those on E4M3's grid that change products least.

    `covariance` (inputs, inputs) is that of the inputs around their centre, whose product is exact.
    """
    size, scales = len(covariance), e4m3.scales_of(weight)
    damped = covariance + DAMPING * max(float(np.trace(covariance)), 1e-30) / size * np.eye(size)
    order = np.argsort(-np.diag(damped), kind='stable')  # the greatest first, while there are others to make up for them
    factor = np.linalg.cholesky(np.linalg.inv(damped[np.ix_(order, order)])).T  # upper: its rows say how errors spread
    left = np.ascontiguousarray((weight / scales[:, None]).T[order], np.float64)  # (inputs, outputs)
    for row in range(size):
        exact = left[row].copy()
        left[row] = e4m3.rounded(exact)
        left[row + 1:] -= np.outer(factor[row, row + 1:], (exact - left[row]) / factor[row, row])
    found = np.empty_like(left)
    found[order] = left
    return RoundedWeights(e4m3.encoded(found.T), scales)
