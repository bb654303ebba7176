"""Whether the focal length changes from frame to frame, by matches and the true motion: a zoom, or a focus that follows.

Half of a pair's matches find the change, and the others judge it. A calibration that is wrong in all frames is no change.
"""

from __future__ import annotations

import numpy as np

from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.core.types import Float64

from .match_check import LEAST_PX, Sample, distances, rays_of, sampson
from .mistake import Corrected

SIDE = np.geomspace(5e-4, 0.15, 30)
CHANGES = np.concatenate([-SIDE[::-1], [0.0], SIDE])  # logarithms of factors between two frames
LEFT = 0.4  # share of the costs: a change that points of other depths do not confirm leaves 0.8
SURE = 0.3  # difference of what both halves find, over a change that is named
SOFT = 3.0  # median distances, from which on they count less


def zoom_doubts(camera: Intrinsics | None, known: Sample | None) -> list[str]:
    """A line where changes of the focal length explain most of the distances; `known`: matches, poses and frames of pairs."""
    if camera is None or known is None:
        return []
    matches, poses, _ = known
    model, focal_px = Corrected(camera.k, poses), float(camera.k[0, 0])
    found, rays = np.abs(distances(matches, model)), rays_of(matches, model)
    soft = SOFT * float(np.median(found))
    if soft < SOFT * LEAST_PX:
        return []
    off = np.stack([sampson(rays._replace(second=rays.second * np.exp([change, change, 0])), focal_px) for change in CHANGES])
    odd, pair = np.arange(len(found)) % 2 == 1, matches.pair
    costs = [_by_pair(np.log1p((off[:, half] / soft)**2), pair[half], len(poses)) for half in (odd, ~odd)]  # (C, P) each
    best = [each.argmin(axis=0) for each in costs]
    every = np.arange(len(poses))
    left = costs[0][best[1], every].sum() + costs[1][best[0], every].sum()
    if left > LEFT * sum(each[len(SIDE)].sum() for each in costs):
        return []
    both = (costs[0] + costs[1]).argmin(axis=0)
    changes, apart = np.abs(CHANGES[both]), np.abs(CHANGES[best[0]] - CHANGES[best[1]])
    sure = changes[(apart < SURE * changes) & (changes < SIDE[-1])]
    if not len(sure):
        return []
    return [f'matches are {soft / SOFT:.2f} px off the epipolar lines of the true motion in the median, and only '
            f'{np.median(np.abs(off[both[pair], np.arange(len(pair))])):.2f} if the focal length changes between frames, in '
            f'{len(sure)} of {len(poses)} pairs and by {100 * np.median(sure):.1f} % there: fix zoom and focus, and calibrate so']


def _by_pair(costs: Float64, pair: object, count: int) -> Float64:
    """Sums (C, P) of costs (C, N)."""
    return np.stack([np.bincount(np.asarray(pair), each, count) for each in costs])
