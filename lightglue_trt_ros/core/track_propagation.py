"""Points that outlive a missed match: which of them the image still shows, and which row they get in the next frame.

SuperPoint does not fire at every place again, though the place is still there. Where its neighbours went says where to look for it;
placement finds it there, or says by a large covariance that it does not; and the matches' epipolar geometry catches what was
found at another place. A camera that only turns, or sees a plane, has many such geometries: all that move alike fit each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .geometry import Float64, Size, epipolar_distances
from .refinement import PREDICTED_PX, Refined
from .types import Float32, Rows, largest_sigmas

MAX_SIGMA_PX = 0.57 * PREDICTED_PX  # largest standard deviation: at least two thirds of what is known came from the images
LINE_PX = 2.0  # distance to the epipolar line
NEAR_PX = 3.0  # points nearer than this are one: SuperPoint's keypoints are more than 4 apart


class Candidates(NamedTuple):
    """N points of the reference that nothing matched, and where the current frame may show them; pixels."""

    rows: Rows  # (N,) of the reference
    reference_points: Float32  # (N, 2)
    placed: Refined

    def only(self, kept: NDArray[np.bool_]) -> Candidates:
        """Those that are `kept`, (N,)."""
        which = np.flatnonzero(kept)
        return Candidates(self.rows.take(which), self.reference_points.take(which, axis=0), self.placed.of(which))

    @classmethod
    def none(cls) -> Candidates:
        points = np.zeros((0, 2), np.float32)
        return cls(np.zeros(0, np.intp), points, Refined(points, np.zeros((0, 2, 2), np.float32)))


class Propagated(NamedTuple):
    """C points that go on without a match, pixels of the current frame."""

    rows: Rows  # (C,) of the reference
    next_rows: Rows  # (C,) of the current frame: of the keypoint that is there, or new ones after all others
    placed: Refined

    def among(self, points: Float32) -> Float32:
        """The current frame's points, (K, 2), with these at their rows."""
        count = max(len(points), int(self.next_rows.max(initial=-1)) + 1)
        everything = np.concatenate([points, np.zeros((count - len(points), 2), np.float32)])
        everything[self.next_rows] = self.placed.points
        return everything


def propagate(candidates: Candidates, keypoints: Float32, matched: Rows, size: Size, fundamental: Float64 | None = None,
          unit: float = 1.0) -> Propagated:
    """Those of the candidates that are known well, best known first; none is near another one or near a match.

    `keypoints` (K, 2) are the current frame's, of `size`, and `matched` its rows with a match; at most K go on.
    `fundamental` (3, 3) maps points of the reference to their lines, where it is known; `unit` is how many pixels one of the
    extractor's image is.
    """
    if not len(candidates.rows):
        return Propagated(candidates.rows, candidates.rows, candidates.placed)
    (u, v), sigmas = candidates.placed.points.T, largest_sigmas(candidates.placed.covariances)
    good = (sigmas <= MAX_SIGMA_PX * unit) & (u >= 0) & (v >= 0) & (u <= size[1] - 1) & (v <= size[0] - 1)
    if fundamental is not None:
        distances, _ = epipolar_distances(candidates.reference_points, candidates.placed.points, fundamental)
        good &= np.abs(distances) < LINE_PX * unit
    known = np.flatnonzero(good)
    order = known.take(sigmas.take(known).argsort(kind='stable'))
    points, count = candidates.placed.points.take(order, axis=0), len(keypoints)
    rows, others = _near(points, np.concatenate([keypoints, points]), NEAR_PX * unit)
    there, met = np.full(len(order), count), np.zeros(len(order), np.bool_)
    beside, better = others < count, others - count < rows  # a keypoint, and a candidate that is better known
    met[rows[better & ~beside]] = True
    np.minimum.at(there, rows[beside], others[beside])

    left = np.flatnonzero(~met)
    there, numbers = there.take(left), np.arange(len(left))
    taken, first = np.zeros(count + 1, np.bool_), np.empty(count + 1, np.intp)
    taken[matched] = True
    first[there[::-1]] = numbers[::-1]  # the last one written stays
    new = there == count
    kept = np.flatnonzero(new | ((first.take(there) == numbers) & ~taken.take(there)))[:count]
    chosen, next_rows, new = order.take(left.take(kept)), there.take(kept), new.take(kept)
    next_rows[new] = count + np.arange(np.count_nonzero(new))
    return Propagated(candidates.rows.take(chosen), next_rows, candidates.placed.of(chosen))


def _near(points0: Float32, points1: Float32, reach: float) -> tuple[Rows, Rows]:
    """The rows (N,) of points (M, 2) and those (N,) of points (L, 2) that are nearer to each other than `reach`.

    A sweep along u: each point meets those between u - reach and u + reach alone.
    """
    (u0, v0), (u1, v1) = points0.T, points1.T
    along = u1.argsort()
    sorted_u = u1.take(along)
    first = sorted_u.searchsorted(u0 - np.float32(reach))
    counts = sorted_u.searchsorted(u0 + np.float32(reach), side='right') - first
    rows = np.repeat(np.arange(len(u0)), counts)
    others = along.take(np.arange(len(rows)) + np.repeat(first - (np.cumsum(counts) - counts), counts))
    du, dv = u0.take(rows) - u1.take(others), v0.take(rows) - v1.take(others)
    near = np.flatnonzero(du * du + dv * dv < reach**2)
    return rows.take(near), others.take(near)
