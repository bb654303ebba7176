"""Finer positions of matched points, by the images themselves.

SuperPoint knows a point to about half a pixel; the patch around it tells where the same point is in the other image to a tenth.
"""

from __future__ import annotations

import numpy as np

from ..features import Float32, UInt8

LIMIT_PX = 4.0  # a step this long leaves the point: the match stands where it was


def refine_matches(way: str, reference: UInt8, current: UInt8, reference_points: Float32, current_points: Float32) -> Float32:
    """Matched points (M, 2) of the current image, moved to where the reference's patches are found; pixels of both images.

    `way` is lucas_kanade or affine. Both images are gray, uint8 (H, W), of one size. A point that is not found within LIMIT_PX of
    where it was, or would leave the image, stays.
    """
    from .affine import affine
    from .lucas_kanade import lucas_kanade
    if not len(current_points):
        return current_points
    moved = (affine if way == 'affine' else lucas_kanade)(reference, current, reference_points, current_points)
    last = np.array([current.shape[1] - 1, current.shape[0] - 1], np.float32)
    inside = np.all((moved >= 0) & (moved <= last), axis=1)
    return np.where(inside[:, None], moved, current_points).astype(np.float32)
