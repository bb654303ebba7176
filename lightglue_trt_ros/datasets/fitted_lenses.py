"""Lenses of other models, as the lens that fits them of those that the matcher knows: equidistant ones, and OpenCV's polynomials.

Double sphere (Usenko et al., 3DV 2018), the unified models (Mei and Rives, ICRA 2007; Khomutenko et al., RA-L 2016), FOV
(Devernay and Faugeras, 2001), OCamCalib's (Scaramuzza et al., ICVS 2006) and NVIDIA's f-theta are functions of the angle from the
axis, and Kannala and Brandt's polynomial of the ninth degree is near all of them. OpenCV's rational polynomial may be nearer to
lenses that are not wide, and where fisheyes have tangential terms and those of a thin prism, as COLMAP's and Project Aria's. What
is left is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.polynomial import polynomial

from ..core.lens import LARGEST_RAY, RATIONAL, Lens
from ..core.types import Float64

PARAMETERS: dict[str, tuple[str, ...]] = {  # before the focal lengths in Kalibr's lists, or by these names
    'ds': ('xi', 'alpha'), 'eucm': ('alpha', 'beta'), 'ucm': ('alpha',), 'omni': ('xi',), 'fov': ('w',)}
LISTED = {  # models whose parameters are one list, and how many there are; 0: any number
    'ocamcalib': 0,  # z of a ray in polynomials of its radius in pixels, constant term first (OCamCalib, with z along the axis)
    'f_theta_forward': 0,  # radius in pixels by the angle, constant term first
    'f_theta_backward': 0,  # angle by the radius in pixels
    'thin_prism_fisheye': 8,  # COLMAP's k1, k2, p1, p2, k3, k4, sx1, sy1, of the equidistant plane
    'fisheye624': 12}  # Project Aria's k0 to k5, p0, p1, s0 to s3
LARGEST_PX = 0.5  # difference that is accepted
ANGLES, DIRECTIONS = 1000, 16  # at which lenses are compared
RADII = 100_000  # of a table of angles
LARGEST_TURN_DEG = 0.5  # that an affine matrix may have: more is no error of a sensor's axes
_STEEPEST = 6.0  # tangent of an angle, 80.5 degrees: to wider ones no polynomial is fitted
_ROUNDS = 8  # of linear equations for a quotient of polynomials
_POWERS = np.arange(1, 10, 2)  # of the angle


class Fitted(NamedTuple):
    """A lens that the matcher knows."""

    k: Float64  # (3, 3)
    model: str  # equidistant or rational_polynomial
    d: list[float]  # k1 to k4, or twelve of a rational polynomial
    off_px: float  # largest difference from the other lens inside the image
    turn_deg: float = 0.0  # of the camera about its axis, by which rows and columns of the other lens are rotated


class _Rays(NamedTuple):
    """What is compared: M angles from the axis in D directions, where the other lens has them on its plane, and which count."""

    angles: Float64  # (M,)
    directions: Float64  # (2, D)
    plane: Float64  # (2, M, D)
    inside: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]  # (M, D) of the image


def fitted(model: str, parameters: Sequence[float], k: Float64, d: Sequence[float], size: tuple[int, int]) -> Fitted:
    """The lens that is nearest to one of PARAMETERS or LISTED inside images of `size` (width, height).

    Args:
        k: (3, 3) its K, whose focal lengths are on its own plane; an affine matrix of rows and columns may stand in it.
        d: k1, k2, p1, p2, k3 on that plane, of omni (Mei) alone.

    Raises ValueError where no lens is within LARGEST_PX.
    """
    k, turn_deg = _upright(k)
    rays = _compared(model, parameters, k, d, size)
    found = [_equidistant(k, rays)]
    if model in LISTED and found[0].off_px > LARGEST_PX and np.tan(rays.angles[-1]) < _STEEPEST:
        found += [_rational(k, rays, degree) for degree in range(4)]
    best = min(found, key=lambda each: each.off_px)
    if not best.off_px <= LARGEST_PX:
        raise ValueError(f'the nearest {best.model.replace("_polynomial", "")} lens is {best.off_px:.1f} px off this {model}, more '
                         f'than {LARGEST_PX}: undistort the images, or calibrate anew with pinhole and radtan or equidistant')
    return best._replace(turn_deg=turn_deg)


def _upright(k: Float64) -> tuple[Float64, float]:
    """K as an upper triangular matrix, and by how many degrees it was rotated. Raises ValueError for a rotation that no sensor has.

    Where an affine matrix is calibrated, the rotation of the camera about its axis cannot be told from that of its plane.
    """
    turn = np.arctan2(k[1, 0], k[1, 1])
    if not abs(np.degrees(turn)) <= LARGEST_TURN_DEG:
        raise ValueError(f'its rows and columns are {k[:2, :2].tolist()}, rotated by {np.degrees(turn):.1f} degrees: give the '
                         'calibration of images that are not rotated')
    upright = k.copy()
    upright[:2, :2] = k[:2, :2] @ np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    upright[1, 0] = 0.0
    return upright, float(np.degrees(turn))


def _compared(model: str, parameters: Sequence[float], k: Float64, d: Sequence[float], size: tuple[int, int]) -> _Rays:
    """Raises ValueError where the model is no lens of such images."""
    corners = np.array([[0, 0, 1], [size[0], 0, 1], [0, size[1], 1], [*size, 1]], np.float64) @ np.linalg.inv(k).T
    farthest = float(np.linalg.norm(corners[:, :2], axis=1).max())
    angles = np.linspace(0, np.arctan(LARGEST_RAY), ANGLES)[1:]
    around = np.linspace(0, 2 * np.pi, DIRECTIONS, endpoint=False)
    directions = np.array([np.cos(around), np.sin(around)])
    with np.errstate(all='ignore'):
        radii, plane = _plane(model, parameters, d, angles, directions, farthest)
    grows = (np.diff(radii, prepend=0.0) > 0) & (radii < farthest)
    count = len(angles) if grows.all() else int(np.argmin(grows))  # up to the corner, or where the model folds
    if count < len(_POWERS):
        raise ValueError(f'{model} with {list(map(float, parameters))} is no lens of images of {size[0]}x{size[1]}: look at the '
                         'order of its parameters')
    pixels = np.einsum('ij,jkl->ikl', k[:2, :2], plane[:, :count]) + k[:2, 2, None, None]
    inside = ((pixels >= 0) & (pixels <= np.array(size)[:, None, None])).all(axis=0)
    return _Rays(angles[:count], directions, plane[:, :count], inside)


def _equidistant(k: Float64, rays: _Rays) -> Fitted:
    terms = rays.angles[:, None]**_POWERS
    radii = np.einsum('jkl,jl->kl', rays.plane, rays.directions).mean(axis=1)  # without tangential terms
    slope, *coefficients = np.linalg.lstsq(terms, radii, rcond=None)[0]
    off = np.einsum('ij,jkl->ikl', k[:2, :2], rays.plane - (terms @ [slope, *coefficients])[:, None] * rays.directions[:, None])
    off = off[:, rays.inside]
    middle = (off.min(axis=1) + off.max(axis=1)) / 2
    matrix = k.copy()
    matrix[:2, :2] *= slope
    matrix[:2, 2] += middle
    return Fitted(matrix, 'equidistant', [float(each / slope) for each in coefficients],
                  float(np.linalg.norm(off - middle[:, None], axis=0).max()))


def _rational(k: Float64, rays: _Rays, degree: int) -> Fitted:
    """By least squares: each round takes the denominator of the one before, and the equations are linear then.

    `degree` is that of the denominator, by squared radii: the largest may have a pole in the image.
    """
    x, y = (np.tan(rays.angles)[:, None] * rays.directions[:, None])[:, rays.inside]
    target, s, none = rays.plane[:, rays.inside], x * x + y * y, np.zeros_like(x)
    radial, tangential = np.array([s**0, s, s**2, s**3]), np.array([[2 * x * y, s + 2 * y * y], [s + 2 * x * x, 2 * x * y]])
    prism = np.array([[s, none], [s**2, none], [none, s], [none, s**2], [s**0, none], [none, s**0]])  # the last two are a shift
    below, values = np.ones_like(x), np.zeros(12 + degree)
    for _ in range(_ROUNDS):
        columns = [*(np.array([x, y]) * each / below for each in radial), *tangential, *prism,
                   *(-target * each / below for each in radial[1:1 + degree])]
        table = np.array([column.ravel() for column in columns]).T
        lengths = np.linalg.norm(table, axis=0)
        values = np.linalg.lstsq(table / lengths, (target / below).ravel(), rcond=None)[0] / lengths
        below = 1 + values[12:] @ radial[1:1 + degree] if degree else below
    (slope, *radials), (p1, p2), prisms, shift, denominator = np.split(values, [4, 6, 10, 12])
    matrix = k @ np.array([[slope, 0, shift[0]], [0, slope, shift[1]], [0, 0, 1]])
    k1, k2, k3, p1, p2 = np.array([*radials, p1, p2]) / slope
    d = np.array([k1, k2, p1, p2, k3, *denominator, *[0.0] * (3 - degree), *prisms / slope])
    lens = Lens(matrix, d, RATIONAL)
    off = (k[:2, :2] @ target + k[:2, 2:]) - (matrix[:2, :2] @ lens.distorted(np.array([x, y]))[0] + matrix[:2, 2:])
    folds = lens.limit <= np.sqrt(s.max())
    return Fitted(matrix, 'rational_polynomial', d.tolist(), np.inf if folds else float(np.linalg.norm(off, axis=0).max()))


def _plane(model: str, parameters: Sequence[float], d: Sequence[float], angles: Float64, directions: Float64,
           farthest: float) -> tuple[Float64, Float64]:
    """Radii (M,) without tangential terms, and points (2, M, D), where rays meet the plane of a model."""
    if model in ('thin_prism_fisheye', 'fisheye624'):
        return _fisheye_with_prism(model, parameters, angles, directions)
    k1, k2, p1, p2, k3 = np.concatenate([d, np.zeros(5 - len(d))])
    ideal = _radius(model, angles, parameters, farthest)
    radii = ideal * (1 + ideal**2 * (k1 + ideal**2 * (k2 + ideal**2 * k3)))
    (x, y), s = ideal[:, None] * directions[:, None], ideal[:, None]**2
    tangential = np.array([2 * p1 * x * y + p2 * (s + 2 * x * x), p1 * (s + 2 * y * y) + 2 * p2 * x * y])
    return radii, radii[:, None] * directions[:, None] + tangential


def _fisheye_with_prism(model: str, parameters: Sequence[float], angles: Float64, directions: Float64) -> tuple[Float64, Float64]:
    """COLMAP's terms are of the equidistant plane, and Project Aria's of what its radial terms have made of that."""
    if model == 'fisheye624':
        radial, (p2, p1), (sx1, sx2, sy1, sy2) = parameters[:6], parameters[6:8], parameters[8:]
    else:
        k1, k2, p1, p2, k3, k4, sx1, sy1 = parameters
        radial, sx2, sy2 = (k1, k2, k3, k4), 0.0, 0.0
    radii = angles * polynomial.polyval(angles**2, [1, *radial])
    of_terms = radii if model == 'fisheye624' else angles
    (x, y), s = of_terms[:, None] * directions[:, None], of_terms[:, None]**2
    terms = np.array([2 * p1 * x * y + p2 * (s + 2 * x * x) + s * (sx1 + sx2 * s),
                      p1 * (s + 2 * y * y) + 2 * p2 * x * y + s * (sy1 + sy2 * s)])
    return radii, radii[:, None] * directions[:, None] + terms


def _radius(model: str, angles: Float64, parameters: Sequence[float], farthest: float) -> Float64:
    """Where a ray at an angle from the axis meets the plane of the model; what is tabled goes to `farthest`."""
    if model == 'f_theta_forward':
        return np.asarray(polynomial.polyval(angles, parameters))
    if model in ('ocamcalib', 'f_theta_backward'):
        radii = np.linspace(0, farthest, RADII)
        values = np.asarray(polynomial.polyval(radii, parameters))
        table = np.arctan2(radii, values) if model == 'ocamcalib' else values
        count = int(np.argmax(np.diff(table) <= 0)) + 1 if (np.diff(table) <= 0).any() else RADII  # where the model folds
        return np.interp(angles, table[:count], radii[:count], right=np.inf)
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
