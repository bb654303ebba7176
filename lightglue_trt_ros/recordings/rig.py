"""Two cameras side by side: pixels of either one on the plane that both share, where rows are epipolar lines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..errors import BagError
from .camera import normalised
from .poses import Float64
from .sequence import Intrinsics

LEAST_BASELINE_M = 1e-4


@dataclass(frozen=True, eq=False)
class StereoRig:
    """A left and a right camera, as their two CameraInfos describe them: K and D, and the R and P of stereo calibration.

    Of rectified images K is P's and there is no D and no R; of others the rectification goes into the points, not into the images:
    rows on the shared plane z = 1 are the epipolar lines of the essential matrix R_right^T [baseline]x R_left.
    Raises BagError when the two are no pair, or are swapped.
    """

    left: Intrinsics
    right: Intrinsics

    def __post_init__(self) -> None:
        for name, camera in (('left', self.left), ('right', self.right)):
            turn = camera.rectification
            if not (np.isfinite(turn).all() and np.abs(turn @ turn.T - np.eye(3)).max() < 1e-3 and np.linalg.det(turn) > 0):
                raise BagError(f'R of the {name} camera is {turn.tolist()}, which is no rotation: calibrate the pair as one')
        if not np.isfinite(self.baseline_m):
            raise BagError(f'the baseline is {self.baseline_m} m: P of the CameraInfos is not finite; calibrate the pair as one')
        if self.baseline_m < -LEAST_BASELINE_M:
            raise BagError(f'left and right are swapped: by their CameraInfos the right camera stands {-self.baseline_m:.3f} m to '
                           'the left of the left one')
        if self.baseline_m < LEAST_BASELINE_M:
            raise BagError('the CameraInfos have no baseline: P[3] of the right one must be -fx * baseline, in metres; calibrate '
                           'the pair as one')

    @property
    def baseline_m(self) -> float:
        return self.right.shift_m - self.left.shift_m

    @property
    def focal_px(self) -> float:
        """Pixels of the left image that 1 on the shared plane is."""
        return float(self.left.k[0, 0])

    def left_points(self, pixels: ArrayLike) -> Float64:
        """Pixels (M, 2) of the left image on the shared plane z = 1, (M, 2); NaN where they have no place on it."""
        return _shared(pixels, self.left)

    def right_points(self, pixels: ArrayLike) -> Float64:
        """The same of the right image: x is smaller than the left one's by baseline over depth, y is the same."""
        return _shared(pixels, self.right)


def _shared(pixels: ArrayLike, camera: Intrinsics) -> Float64:
    flat = normalised(pixels, camera)
    rays = np.column_stack([flat, np.ones(len(flat))]) @ camera.rectification.T
    depth = np.where(rays[:, 2:] > 0, rays[:, 2:], np.nan)
    return np.asarray(rays[:, :2] / depth, np.float64)
