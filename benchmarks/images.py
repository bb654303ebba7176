"""Image files, read as the benchmarks need them."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

from lightglue_trt_ros.core.types import UInt8
from lightglue_trt_ros.datasets.sequence import read_image


def read_gray(path: Path) -> UInt8:
    """An image file as gray (H, W) uint8. Raises BagError."""
    image = read_image(path)
    return image if image.ndim == 2 else np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), np.uint8)
