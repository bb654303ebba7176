"""Frames in bad light: out of focus, dim, in fog, at night; depth images with noise. `evaluate_bag --degrade NAME` shows them.

Poses and intrinsics stay those of the recording, so reports with and without can be compared. It is a model of a camera, not of a
scene: fog has one density at every depth, and lamps do not glare.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import cv2
import numpy as np

from ..core.depth import DepthImage
from ..core.types import Float32, UInt8

BLOCK = 4  # pixels of a depth image that share their noise

Degradation = Callable[[Float32, np.random.Generator], Float32]


def degraded(image: UInt8, name: str, seed: int = 0) -> UInt8:
    """A gray image, uint8 (H, W), under one of DEGRADATIONS.

    Noise depends on `seed` and on the image: a frame gets the same noise in every run, and no two frames share theirs.
    """
    rng = np.random.default_rng([seed, zlib.crc32(np.ascontiguousarray(image).data)])
    return np.asarray(np.clip(np.rint(DEGRADATIONS[name](image.astype(np.float32), rng)), 0, 255), np.uint8)


def degraded_depth(depth: DepthImage, name: str, seed: int = 0) -> DepthImage:
    """A depth image under one of DEPTH_DEGRADATIONS, in metres; noise as in `degraded`."""
    rng = np.random.default_rng([seed, zlib.crc32(np.ascontiguousarray(depth.pixels).data)])
    metres = depth.pixels.astype(np.float32) * np.float32(depth.unit_m)
    return depth._replace(pixels=DEPTH_DEGRADATIONS[name](metres, rng), unit_m=1.0)


def _blur(gray: Float32, rng: np.random.Generator) -> Float32:
    """Out of focus by 2 px, noise of 1.5 gray levels."""
    return _noisy(_blurred(gray, 2.0), rng, 1.5)


def _dim(gray: Float32, rng: np.random.Generator) -> Float32:
    """Three tenths of the light, noise of 5 gray levels."""
    return _noisy(0.3 * gray, rng, 5.0)


def _fog(gray: Float32, rng: np.random.Generator) -> Float32:
    """A quarter of the contrast, around 170 gray levels, scattered by 1 px, noise of 2.5 gray levels."""
    return _noisy(170 + 0.25 * (_blurred(gray, 1.0) - 127.5), rng, 2.5)


def _night(gray: Float32, rng: np.random.Generator) -> Float32:
    """A long exposure blurred by 1 px, 60 photons for white, an amplified read-out noise of 6 gray levels."""
    photons = rng.poisson(60 * (_blurred(gray, 1.0) / 255)**1.5).astype(np.float32)
    return _noisy(photons * np.float32(160 / 60), rng, 6.0)


def _blurred(gray: Float32, sigma_px: float) -> Float32:
    return np.asarray(cv2.GaussianBlur(gray, (0, 0), sigma_px), np.float32)


def _noisy(gray: Float32, rng: np.random.Generator, sigma: float) -> Float32:
    return np.asarray(gray + rng.standard_normal(gray.shape, np.float32) * np.float32(sigma), np.float32)


def _depth_noise(metres: Float32, rng: np.random.Generator) -> Float32:
    """Depth images with noise of 0.0025 z^2 metres, the same in blocks of 4x4 pixels."""
    height, width = metres.shape
    noise = rng.standard_normal((-(-height // BLOCK), -(-width // BLOCK)), np.float32).repeat(BLOCK, 0).repeat(BLOCK, 1)
    noisy = metres + np.float32(0.0025) * metres**2 * noise[:height, :width]
    return np.where(metres > 0, np.maximum(noisy, 0), metres)


DEPTH_DEGRADATIONS: dict[str, Degradation] = {'depth_noise': _depth_noise}
DEGRADATIONS: dict[str, Degradation] = {'blur': _blur, 'dim': _dim, 'fog': _fog, 'night': _night}
