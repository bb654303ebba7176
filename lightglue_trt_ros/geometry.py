"""Coordinates. Pixels are (u, v) = (column, row); the centre of the top-left pixel is (0, 0), as in OpenCV."""

from __future__ import annotations

import cv2
import numpy as np

from .config import STRIDE
from .features import Float32, UInt8

Size = tuple[int, int]  # (height, width)


def fitting_size(image: Size, area: int = 640 * 480) -> Size:
    """The engine's size for an image: its aspect ratio, about `area` pixels, each side a multiple of 8."""
    scale = (area / (image[0] * image[1])) ** 0.5
    height, width = (max(2 * STRIDE, round(side * scale / STRIDE) * STRIDE) for side in image)
    return height, width


def resize_gray(image: UInt8, size: Size) -> UInt8:
    """Resize a gray image, uint8 (H, W), to `size`: area averaging, or bilinear where both sides grow."""
    height, width = size
    if image.shape == (height, width):
        return image
    grows = height >= image.shape[0] and width >= image.shape[1]
    return np.asarray(cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR if grows else cv2.INTER_AREA), np.uint8)


def to_original(keypoints: Float32, engine: Size, original: Size) -> Float32:
    """Map (N, 2) pixels of the engine's image to the original's: u = (u' + 0.5) / s - 0.5, each axis with its own s."""
    scale = np.array([original[1] / engine[1], original[0] / engine[0]], np.float32)
    return np.asarray((keypoints + np.float32(0.5)) * scale - np.float32(0.5), np.float32)
