"""Whether matches of the descriptors alone are enough, or LightGlue's layers have to run: the decision about exit 0.

It is taken by what the pair's correspondences show, because no network says before the first layer how sure it is. Most pairs of
consecutive frames are easy. A pair that was refused has cost an assignment and a refinement for nothing, so pairs like it are not
tried again at once.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .cells import per_cell
from .correspondences import Correspondences
from .geometry import Size, as_complex, middle
from .types import NOTABLE, Float32

OF_ROWS = 1024  # of a frame, for which `Limits.matches` is; engines may have fewer
SEVERAL = 3  # keypoints of a cell that counts as covered or not
LONGEST_PAUSE = 8  # pairs: a hard stream pays for one try in nine


class Limits(NamedTuple):
    """Of accepted pairs. `python -m benchmarks zero` measures them."""

    inliers: float = 0.9  # least share: on poor texture, wrong matches are a tenth and more
    matches: float = 200  # least number,
    of_keypoints: float = 0.45  # and least share of the keypoints of the frame with fewer: a texture that repeats matches less
    covered: float = 0.5  # least share
    change: float = 0.2  # largest: descriptors follow neither rotation nor scale far
    standing: float = NOTABLE  # largest share


class Evidence(NamedTuple):
    """What the correspondences of a pair show that were found before the first layer."""

    inliers: float  # share of the tested matches
    standing: float  # share of the matches that stand still while the others move
    covered: float  # share of the image, see `covered`
    change: float  # radians, or share of the scale, see `change`


class DepthZero:
    """Which pairs of one stream are tried before the first layer, and which are accepted.

    All are tried while they are accepted, fewer and fewer else.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._pause = self._left = 0  # pairs after the last refusal, and those of them that are still to come

    def due(self) -> bool:
        """Whether to try this pair; asked once for each."""
        self._left = max(self._left - 1, -1)
        return self._left < 0

    def enough(self, matches: int, keypoints: int, rows: int) -> bool:
        """Whether so many matches can be accepted; the frame with fewer has so many keypoints, and each so many `rows`."""
        return matches >= max(self.limits.matches * min(1.0, rows / OF_ROWS), self.limits.of_keypoints * keypoints)

    def is_sure(self, evidence: Evidence) -> bool:
        """Whether the layers would not make these correspondences better."""
        return (evidence.inliers >= self.limits.inliers and evidence.standing <= self.limits.standing
                and evidence.covered >= self.limits.covered and evidence.change <= self.limits.change)

    def learn(self, accepted: bool) -> None:
        """After a try."""
        self._pause = 0 if accepted else min(2 * self._pause or 1, LONGEST_PAUSE)
        self._left = self._pause


def evidence_of(found: Correspondences, foreign: NDArray[np.bool_] | None, keypoints: NDArray[np.intp], size: Size) -> Evidence:
    """What these correspondences show.

    Args:
        foreign: (M + C,) which of them stand still while the others move; None: none.
        keypoints: of the reference, in each cell, valid ones alone.
        size: (height, width) of the frames.
    """
    before, after = found.reference_points[:found.matched], found.points[:found.matched]
    return Evidence(found.inliers / max(found.tested, 1), 0.0 if foreign is None else float(np.mean(foreign[:found.matched])),
                    covered(before, keypoints, size), change(before, after))


def covered(points: Float32, keypoints: NDArray[np.intp], size: Size) -> float:
    """Share of the cells with SEVERAL `keypoints` that also have one of the points (M, 2); 0 without such cells."""
    cells = np.flatnonzero(keypoints >= SEVERAL)
    return np.count_nonzero(per_cell(points, size).take(cells)) / max(len(cells), 1)


def change(before: Float32, after: Float32) -> float:
    """How far the motion of points (M, 2) is from a translation: of most pairs of points, as a share of their distance.

    A rotation by r radians gives r, a change of scale by a tenth 0.1; a plane that is seen from the side counts little.
    """
    half = len(before) // 2
    first, second = (as_complex(points[:half] - points[half:2 * half]) for points in (before, after))
    apart = np.flatnonzero(abs(first) > 1)
    if not len(apart):
        return 0.0
    turned = second.take(apart) / first.take(apart)  # a rotation and a scale, as a complex number
    return math.hypot(middle(turned.real - 1), middle(turned.imag))
