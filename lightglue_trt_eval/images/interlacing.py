"""Interlaced images: every second row is of another moment."""

from __future__ import annotations

import numpy as np

from lightglue_trt_ros.core.types import UInt8

COMB = 1.3  # differences of neighbouring rows, over those of rows two apart: 0.5 to 0.7 in images, 1 in noise, 2 to 6 interlaced


def is_interlaced(image: UInt8) -> bool:
    """Whether rows of a gray image (H, W) are less like their neighbours than like the next but one, and columns are not."""
    return _comb(image) > COMB > _comb(image.T)


def _comb(image: UInt8) -> float:
    rows = image.astype(np.int16)
    if len(rows) < 3:
        return 0.0
    near, far = (float(np.abs(rows[step:] - rows[:-step]).mean()) for step in (1, 2))
    return near / max(far, 1e-6)
