"""Lenses of other models, as the equidistant lens that fits them: what the matcher knows are polynomials and equidistant lenses.

Double sphere (Usenko et al., 3DV 2018), the unified models (Mei and Rives, ICRA 2007; Khomutenko et al., RA-L 2016) and FOV
(Devernay and Faugeras, 2001) are functions of the angle from the axis, and Kannala and Brandt's polynomial of the ninth degree is
near all of them. What tangential terms leave is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..core.lens import LARGEST_RAY
from ..core.types import Float64

PARAMETERS: dict[str, tuple[str, ...]] = {  # before the focal lengths in Kalibr's lists, or by these names
    'ds': ('xi', 'alpha'), 'eucm': ('alpha', 'beta'), 'ucm': ('alpha',), 'omni': ('xi',), 'fov': ('w',)}
LARGEST_PX = 0.5  # difference that is accepted
ANGLES, DIRECTIONS = 1000, 16  # at which lenses are compared
_POWERS = np.arange(1, 10, 2)  # of the angle


class Fitted(NamedTuple):
    """An equidistant lens."""

    k: Float64  # (3, 3)
    d: list[float]  # k1 to k4
    off_px: float  # largest difference from the other lens inside the image


def fitted(model: str, parameters: Sequence[float], k: Float64, d: Sequence[float], size: tuple[int, int]) -> Fitted:
    """The equidistant lens that is nearest to one of PARAMETERS inside images of `size` (width, height).

    Args:
        k: (3, 3) its K, whose focal lengths are on its own plane.
        d: k1, k2, p1, p2, k3 on that plane, of omni (Mei) alone.

    Raises ValueError where no equidistant lens is within LARGEST_PX.
    """
    k1, k2, p1, p2, k3 = np.concatenate([d, np.zeros(5 - len(d))])
    angles = np.linspace(0, np.arctan(LARGEST_RAY), ANGLES)[1:]
    with np.errstate(all='ignore'):
        plane = _radius(model, angles, *parameters)
        radii = plane * (1 + plane**2 * (k1 + plane**2 * (k2 + plane**2 * k3)))
    corners = np.array([[0, 0, 1], [size[0], 0, 1], [0, size[1], 1], [*size, 1]], np.float64) @ np.linalg.inv(k).T
    inside = (np.diff(radii, prepend=0.0) > 0) & (radii < np.linalg.norm(corners[:, :2], axis=1).max())
    count = len(angles) if inside.all() else int(np.argmin(inside))  # up to the corner, or where the model folds
    if count < len(_POWERS):
        raise ValueError(f'{model} with {list(map(float, parameters))} is no lens of images of {size[0]}x{size[1]}: look at the '
                         'order of its parameters')
    angles, plane, radii = angles[:count], plane[:count], radii[:count]
    terms = angles[:, None]**_POWERS
    slope, *coefficients = np.linalg.lstsq(terms, radii, rcond=None)[0]
    around = np.linspace(0, 2 * np.pi, DIRECTIONS, endpoint=False)
    directions = np.array([np.cos(around), np.sin(around)])[:, None]
    (x, y), s = plane[:, None] * directions, plane[:, None]**2
    tangential = np.array([2 * p1 * x * y + p2 * (s + 2 * x * x), p1 * (s + 2 * y * y) + 2 * p2 * x * y])
    radial = (radii - terms @ [slope, *coefficients])[:, None] * directions
    off = np.einsum('ij,jkl->ikl', k[:2, :2], radial + tangential)
    middle = (off.min(axis=(1, 2)) + off.max(axis=(1, 2))) / 2
    off_px = float(np.linalg.norm(off - middle[:, None, None], axis=0).max())
    if off_px > LARGEST_PX:
        raise ValueError(f'the nearest equidistant lens is {off_px:.1f} px off this {model}, more than {LARGEST_PX}: undistort the '
                         'images, or calibrate anew with pinhole and radtan or equidistant')
    matrix = k.copy()
    matrix[:2, :2] *= slope
    matrix[:2, 2] += middle
    return Fitted(matrix, [float(each / slope) for each in coefficients], off_px)


def _radius(model: str, angles: Float64, *parameters: float) -> Float64:
    """Where a ray at an angle from the axis meets the plane of the model."""
    sine, cosine = np.sin(angles), np.cos(angles)
    if model == 'fov':
        return np.asarray(np.arctan(2 * np.tan(parameters[0] / 2) * np.tan(angles)) / parameters[0])
    if model == 'omni':
        return np.asarray(sine / (cosine + parameters[0]))
    if model == 'ds':
        xi, alpha = parameters
        return np.asarray(sine / (alpha * np.hypot(sine, xi + cosine) + (1 - alpha) * (xi + cosine)))
    alpha, beta = (*parameters, 1.0)[:2]
    return np.asarray(sine / (alpha * np.sqrt(beta * sine**2 + cosine**2) + (1 - alpha) * cosine))
