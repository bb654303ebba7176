"""Points that outlive a missed match: which of them the image still shows, and which row they get in the next frame.

SuperPoint does not fire at every place again, though the place is still there. Where its neighbours went says where to look for it,
placement finds it to a fraction of a pixel, or says by a large covariance that it does not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .features import Float32, Int32, largest_sigmas
from .placement import Placed

KNOWN_PX = 1.0  # standard deviation in every direction: what is known less well is not carried
NEAR_PX = 1.0  # points closer than this are one


class Carried(NamedTuple):
    """C points that go on without a match, pixels of the current frame."""

    rows: Int32  # (C,) of the reference
    next_rows: Int32  # (C,) of the current frame: the keypoint's that is there, or a new one after all others
    points: Float32  # (C, 2)
    covariances: Float32  # (C, 2, 2) pixels squared

    def among(self, points: Float32) -> Float32:
        """The current frame's points (K, 2) with these, (K + N, 2)."""
        more = np.count_nonzero(self.next_rows >= len(points))
        everything = np.concatenate([points, np.zeros((more, 2), np.float32)])
        everything[self.next_rows] = self.points
        return everything


def carry(lost: Int32, candidates: Placed, keypoints: Float32, matched: Int32, unit: float = 1.0) -> Carried:
    """Those of the reference's `lost` rows (N,) that are known well at the places of the `candidates` (N); best known first.

    None is near another or near a match. `keypoints` (K, 2) are the frame's, `matched` its rows with a match; at most K of both go on. `unit` is how many pixels a pixel
    of the extractor's image is.
    """
    near = np.float32(NEAR_PX * unit)**2
    sigma = largest_sigmas(candidates.covariances)
    order = np.argsort(sigma, kind='stable')
    order = order[sigma[order] <= KNOWN_PX * unit]
    apart = _squared_distances(candidates.points[order], candidates.points[order])
    order = order[~np.tril(apart < near, -1).any(axis=1)]
    apart = _squared_distances(candidates.points[order], keypoints)
    nearest = apart.argmin(axis=1)
    there = np.where(apart[np.arange(len(order)), nearest] < near, nearest, -1)
    new = there < 0
    first = np.zeros(len(order), np.bool_)
    first[np.unique(there, return_index=True)[1]] = True
    kept = np.flatnonzero(new | (first & ~np.isin(there, matched)))[:len(keypoints) - len(matched)]
    chosen, next_rows, new = order[kept], there[kept], new[kept]
    next_rows[new] = len(keypoints) + np.arange(np.count_nonzero(new))
    return Carried(lost[chosen], next_rows.astype(np.int32), candidates.points[chosen], candidates.covariances[chosen])


def _squared_distances(points0: Float32, points1: Float32) -> Float32:
    """(M, N) of (M, 2) and (N, 2) points."""
    return np.asarray(np.sum((points0[:, None] - points1)**2, axis=2), np.float32)
