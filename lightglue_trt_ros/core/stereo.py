"""From left to right: which of a frame's points in the other image of a pair are matches, and where they are in space."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .cameras import StereoRig
from .depth import Positions
from .types import Float32, UInt8

LINE_PX = 1.5  # a point further from its epipolar line is another one
NO_DISPARITY_PX = 1.0  # a negative disparity of less is none
ENOUGH = 20  # points on their lines, to say that the images are swapped


class RightImage(NamedTuple):
    """The right image of a frame, taken with it, and how the two cameras stand."""

    image: UInt8  # gray (H, W), of the left image's size
    rig: StereoRig


class StereoMatches(NamedTuple):
    """A frame's M points in the right image."""

    points: Float32  # (M, 2) pixels, NaN where none
    positions: Positions  # of these M, in the left camera's optical frame
    note: str = ''  # what is wrong with the pair, for people; empty: nothing


def check_epipolar(rig: StereoRig, left: Float32, right: Float32, covariances: Float32, unit: float = 1.0) -> StereoMatches:
    """Those of `right` (M, 2) that lie on the epipolar lines of `left` (M, 2), pixels, in front of both cameras.

    `covariances` (M, 2, 2) are of the right points given the left ones: along the epipolar line they give the variance of the
    depth. The distance to the line is in pixels of the right image, as it was taken. `unit` is how many pixels of the images one
    of the extractor's is. NaN rows stay NaN.
    """
    rectified = rig.right_rectified(right)
    left_px, right_px = rig.left_points(left) * rig.focal_px, rectified.points * rig.focal_px
    slopes = rectified.jacobians * rig.focal_px
    limit = max(1.0, unit)
    on_line = np.abs(right_px[:, 1] - left_px[:, 1]) < LINE_PX * limit * np.hypot(*slopes[:, 1].T)
    disparities = left_px[:, 0] - right_px[:, 0]
    good = on_line & (disparities > 0)
    behind = int(np.count_nonzero(on_line & (disparities < -NO_DISPARITY_PX * limit)))
    note = ''
    if behind >= ENOUGH and behind > np.count_nonzero(good):
        note = (f'left and right look swapped: {behind} of {np.count_nonzero(on_line)} points on their epipolar lines have '
                'negative disparities; swap the topics')
    disparities = np.where(good, disparities, np.nan)
    z = rig.focal_px * rig.baseline_m / disparities
    sigma_px = np.sqrt(np.einsum('mi,mij,mj->m', slopes[:, 0], covariances, slopes[:, 0]))
    positions = Positions.along(left_px / rig.focal_px, z, z / disparities * sigma_px)
    xyz = (positions.xyz @ rig.left.rectification).astype(np.float32)  # in the left camera's axes: the point moves along its ray
    positions = Positions(xyz, positions.sigma_z * xyz[:, 2] / positions.xyz[:, 2])
    return StereoMatches(np.where(good[:, None], right, np.float32(np.nan)).astype(np.float32), positions, note)
