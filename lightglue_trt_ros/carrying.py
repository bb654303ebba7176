"""Points that outlive a missed match: which of them the image still shows, and which row they get in the next frame.

SuperPoint does not fire at every place again, though the place is still there. Where its neighbours went says where to look for it;
placement finds it there, or says by a large covariance that it does not; and the matches' epipolar geometry catches what was
found at another place. A camera that only turns, or sees a plane, has many such geometries: all that move alike fit each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .features import Float32, Int32, largest_sigmas
from .geometry import Size
from .placement import PREDICTED_PX, Placed
from .placement.consistency import epipolar_errors

KNOWN_PX = PREDICTED_PX / 2  # largest standard deviation: at least three quarters of what is known came from the images
LINE_PX = 2.0  # distance to the epipolar line
NEAR_PX = 3.0  # points nearer than this are one: SuperPoint's keypoints are more than 4 apart


class Candidates(NamedTuple):
    """N points of the reference that nothing matched, and where the current frame may show them; pixels."""

    rows: Int32  # (N,) of the reference
    reference_points: Float32  # (N, 2)
    placed: Placed

    def only(self, kept: NDArray[np.bool_]) -> Candidates:
        """Those that are `kept`, (N,)."""
        return Candidates(self.rows[kept], self.reference_points[kept], Placed(*(values[kept] for values in self.placed)))

    @classmethod
    def none(cls) -> Candidates:
        points = np.zeros((0, 2), np.float32)
        return cls(np.zeros(0, np.int32), points, Placed(points, np.zeros((0, 2, 2), np.float32)))


class Carried(NamedTuple):
    """C points that go on without a match, pixels of the current frame."""

    rows: Int32  # (C,) of the reference
    next_rows: Int32  # (C,) of the current frame: of the keypoint that is there, or new ones after all others
    placed: Placed

    def among(self, points: Float32) -> Float32:
        """The current frame's points, (K, 2), with these at their rows."""
        count = max(len(points), int(self.next_rows.max(initial=-1)) + 1)
        everything = np.concatenate([points, np.zeros((count - len(points), 2), np.float32)])
        everything[self.next_rows] = self.placed.points
        return everything


def carry(candidates: Candidates, keypoints: Float32, matched: Int32, size: Size, fundamental: NDArray[np.float64] | None = None,
          unit: float = 1.0) -> Carried:
    """Those of the candidates that are known well, best known first; none is near another one or near a match.

    `keypoints` (K, 2) are the current frame's, of `size`, and `matched` its rows with a match; at most K of both go on.
    `fundamental` (3, 3) maps points of the reference to their lines, where it is known; `unit` is how many pixels one of the
    extractor's image is.
    """
    points, covariances = candidates.placed
    if not len(points):
        return Carried(candidates.rows, candidates.rows, candidates.placed)
    sigmas = largest_sigmas(covariances)
    good = (sigmas <= KNOWN_PX * unit) & np.all((points >= 0) & (points <= np.array(size[::-1]) - 1), axis=1)
    if fundamental is not None:
        good &= epipolar_errors(candidates.reference_points, points, covariances, fundamental)[0] < LINE_PX * unit
    order = np.argsort(sigmas, kind='stable')
    order = order[good[order]]
    better, worse = _near(points[order], points[order], NEAR_PX * unit)
    met = np.zeros(len(order), np.bool_)
    met[worse[better < worse]] = True
    order = order[~met]

    rows, seen = _near(points[order], keypoints, NEAR_PX * unit)
    there = np.full(len(order), len(keypoints))
    np.minimum.at(there, rows, seen)
    new = there == len(keypoints)
    first = np.zeros(len(order), np.bool_)
    first[np.unique(there, return_index=True)[1]] = True
    kept = np.flatnonzero(new | (first & ~np.isin(there, matched)))[:len(keypoints) - len(matched)]
    chosen, next_rows, new = order[kept], there[kept], new[kept]
    next_rows[new] = len(keypoints) + np.arange(np.count_nonzero(new))
    return Carried(candidates.rows[chosen], next_rows.astype(np.int32), Placed(points[chosen], covariances[chosen]))


def _near(points0: Float32, points1: Float32, reach: float) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The rows (N,) of points (M, 2) and those (N,) of points (L, 2) that are nearer to each other than `reach`.

    A sweep along u: each point meets those between u - reach and u + reach alone.
    """
    along = np.argsort(points1[:, 0])
    sorted_u = points1[along, 0]
    first = np.searchsorted(sorted_u, points0[:, 0] - reach)
    counts = np.searchsorted(sorted_u, points0[:, 0] + reach, side='right') - first
    rows = np.repeat(np.arange(len(points0)), counts)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    others = along[first[rows] + within]
    near = np.sum((points0[rows] - points1[others])**2, axis=1) < reach**2
    return rows[near], others[near]
