"""The gate of placement: engines must put points where the host puts them, in frames of another size than their own."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import cv2
import numpy as np

from ..core.backend import Placer
from ..core.geometry import to_original
from ..core.refinement import Placed, Pyramid, place_matches
from ..core.types import Float32, Thresholds, UInt8

PLACED_PX, PLACED_SIGMAS, PLACED_SHARE = 0.05, 0.5, 0.9  # OpenCV before 5 rounds to 1/32 of a pixel: the host, too, is off
LARGER = 1.5  # frames than the engines' image, which asks for resizing


def placed_as_on_the_host(candidate: Placer, frames: Sequence[UInt8]) -> float:
    """The share of matches in consecutive gray frames that are placed where the host places them.

    That is within PLACED_PX, or within PLACED_SIGMAS of the deviations there: along an edge a place is hardly known.
    0 where nothing matches or anything is not finite. Raises EngineError.
    """
    size = round(frames[0].shape[0] * LARGER), round(frames[0].shape[1] * LARGER)
    engine = candidate.spec.image_height, candidate.spec.image_width
    images = [np.asarray(cv2.resize(image, size[::-1], interpolation=cv2.INTER_LINEAR), np.uint8) for image in frames]
    unit, near, count = max(size[0] / engine[0], size[1] / engine[1]), 0, 0
    for before, image in itertools.pairwise(images):
        reference, current = candidate.extract_frame(before), candidate.extract_frame(image)
        points0, points1 = (to_original(features.keypoints, engine, size) for features in (reference, current))
        found, placed = candidate.match_placed(reference, current, Thresholds(), points0)
        rows = np.flatnonzero(found.indices >= 0)
        expected = place_matches(Pyramid(before, unit), Pyramid(image, unit), points0[rows], points1[found.indices[rows]])
        apart, deviations = distances(placed.points[rows], expected)
        del reference, current  # there are slots for three frames
        close = (apart < PLACED_PX) | (deviations < PLACED_SIGMAS)
        near += int(np.count_nonzero(close & np.isfinite(placed.covariances[rows]).all(axis=(1, 2))))
        count += len(rows)
    return near / count if count else 0.0


def distances(points: Float32, expected: Placed) -> tuple[Float32, Float32]:
    """Of points (M, 2) to those expected: pixels (M,), and standard deviations (M,)."""
    apart = points - expected.points
    towards = np.linalg.solve(expected.covariances, apart[:, :, None])[:, :, 0]
    return np.asarray(np.linalg.norm(apart, axis=1), np.float32), np.asarray(np.sqrt(np.sum(apart * towards, axis=1)), np.float32)
