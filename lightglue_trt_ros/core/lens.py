"""A lens: which pixel of an ideal pinhole camera a pixel would be, and the derivative of that.

`kernels/lens.h` does the same on the GPU, by the same equations and from the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import ArrayLike

from .types import Float64, Rows

ROUNDS = 30  # of Newton's method at most: three are usual, a pixel near the fold of a polynomial takes more
RADII = 1024  # of a table that they begin with
SETTLED = 1e-6  # step of a round, and the last one: the error that is left is about its square
OFF_PX = 1.0  # most that such a step may move the image: more is no inverse, but a pole of a rational model
LARGEST_RAY = 1e3  # on the plane z = 1: 89.94 degrees from the axis
IDEAL, RATIONAL, EQUIDISTANT = range(3)  # kinds, as the kernels have them
CONSTANTS = 33


class Undistorted(NamedTuple):
    """M pixels of an image in the ideal pinhole camera with the same K, NaN where the lens has no inverse."""

    points: Float64  # (M, 2) pixels
    jacobians: Float64  # (M, 2, 2) derivative of `points` by the pixels of the image

    def carried(self, covariances: ArrayLike) -> Float64:
        """J cov J^T: covariances (M, 2, 2) of pixels of the image as those of `points`, pixels squared."""
        return np.asarray(self.jacobians @ np.asarray(covariances, np.float64) @ self.jacobians.transpose(0, 2, 1), np.float64)


def in_image(jacobians: Float64, lines: Float64) -> Float64:
    """Lengths (M,) of the gradients by pixels of the image, of functions whose gradients by undistorted points are `lines` (2, M).

    A distance to an epipolar line, divided by that, is in pixels of the image. `jacobians` as of `Undistorted`.
    """
    slopes = jacobians[:, 0].T * lines[0] + jacobians[:, 1].T * lines[1]
    return np.asarray(np.sqrt(slopes[0] * slopes[0] + slopes[1] * slopes[1]), np.float64)


@dataclass(frozen=True, eq=False)
class Lens:
    """K and the distortion of a camera, in the terms of sensor_msgs/CameraInfo and OpenCV.

    A polynomial has 4, 5, 8, 12 or 14 coefficients: k1, k2, p1, p2, k3 (Brown), k4 to k6 (rational), s1 to s4 (thin prism), and
    the angles of a tilted sensor. An equidistant lens has four (Kannala and Brandt, PAMI 2006).
    """

    k: Float64  # (3, 3)
    d: Float64  # (n,)
    kind: int  # IDEAL, RATIONAL or EQUIDISTANT

    @property
    def distorts(self) -> bool:
        return self.kind != IDEAL

    @cached_property
    def constants(self) -> Float64:
        """Numbers (CONSTANTS,) for the kernels: k[:2, :2] and its inverse, the principal point, twelve coefficients, the inverse of
        the tilt, kind and limit.
        """
        k, d = self.k[:2, :2], self._coefficients
        return np.array([*k.ravel(), *np.linalg.inv(k).ravel(), *self.k[:2, 2], *d[:12], *np.linalg.inv(_tilt(*d[12:])).ravel(),
                         self.kind, self.limit])

    def same_as(self, other: Lens) -> bool:
        """Whether both distort in the same way; zeros behind the coefficients do not count."""
        return self is other or np.array_equal(self.constants, other.constants)

    @cached_property
    def _coefficients(self) -> Float64:
        return np.concatenate([self.d, np.zeros(14 - len(self.d))])

    @cached_property
    def limit(self) -> float:
        """Radius on the plane z = 1, or angle in radians of an equidistant lens, up to which distortion grows with it.

        Beyond that the model folds back, and means nothing.
        """
        if self.kind == IDEAL:
            return LARGEST_RAY
        if self.kind == EQUIDISTANT:
            slope = np.array([1, *(self.d[:4] * [3, 5, 7, 9])])  # by the squared angle
            return float(np.sqrt(_first_root(slope, float(np.arctan(LARGEST_RAY))**2)))
        d = self._coefficients
        above, below = Polynomial([1, d[0], d[1], d[4]]), Polynomial([1, *d[5:8]])  # of the squared radius
        twice = Polynomial([0, 2])
        growth = (above + twice * above.deriv()) * below - twice * above * below.deriv()
        return float(np.sqrt(min(_first_root(np.asarray(each.coef, np.float64), LARGEST_RAY**2) for each in (growth, below))))

    @cached_property
    def limit_px(self) -> float:
        """The limit in pixels of the image from the principal point, along its x axis; infinite where the model does not fold."""
        if self.kind == EQUIDISTANT:
            return float(self.k[0, 0] * _angle(self.limit, self.d)[0]) if self.limit < np.arctan(LARGEST_RAY) else np.inf
        return float(self.k[0, 0] * self._radii[0][-1]) if self.limit < LARGEST_RAY else np.inf

    def undistorted(self, pixels: ArrayLike) -> Undistorted:
        """Pixels (M, 2) in the ideal pinhole camera. A row is NaN where it is not finite, or beyond the model's limit."""
        given = np.array(pixels, np.float64).reshape(-1, 2)
        if self.kind == IDEAL:
            return Undistorted(given, np.tile(np.eye(2), (len(given), 1, 1)))
        constants = self.constants
        k, inverse, centre, untilt = constants[:4].reshape(2, 2), constants[4:8].reshape(2, 2), constants[8:10], constants[22:31]
        with np.errstate(all='ignore'):  # of rows that have no inverse
            onto = untilt.reshape(3, 3)
            sensor = inverse @ (given.T - centre[:, None])
            seen, tilt = perspective(onto, sensor)
            seen[:, ~(onto[2, :2] @ sensor + onto[2, 2] > 0)] = np.nan  # behind a tilted sensor
            rays, slopes = (self._of_angle if self.kind == EQUIDISTANT else self._of_polynomial)(seen)
            jacobians = np.moveaxis(_product(_product(k[:, :, None], slopes), _product(tilt, inverse[:, :, None])), -1, 0)
            good = np.isfinite(jacobians).all(axis=(1, 2)) & (np.abs(rays) < LARGEST_RAY).all(axis=0)
        points = (k @ rays).T + centre
        points[~good], jacobians[~good] = np.nan, np.nan
        return Undistorted(points, jacobians)

    def distorted(self, rays: Float64) -> tuple[Float64, Float64]:
        """Where the polynomial takes points (2, M) of the plane z = 1, (2, M), before the tilt; and the derivative (2, 2, M)."""
        x, y = rays
        k1, k2, p1, p2, k3, k4, k5, k6, s1, s2, s3, s4 = self._coefficients[:12]
        s = x * x + y * y
        above, below = 1 + s * (k1 + s * (k2 + s * k3)), 1 + s * (k4 + s * (k5 + s * k6))
        g = above / below
        slope = 2 * (k1 + s * (2 * k2 + s * 3 * k3) - g * (k4 + s * (2 * k5 + s * 3 * k6))) / below  # of g, over x or y
        prism_x, prism_y, mixed = 2 * (s1 + 2 * s2 * s), 2 * (s3 + 2 * s4 * s), x * y * slope + 2 * p1 * x + 2 * p2 * y
        points = np.array([x * g + 2 * p1 * x * y + p2 * (s + 2 * x * x) + s * (s1 + s2 * s),
                           y * g + p1 * (s + 2 * y * y) + 2 * p2 * x * y + s * (s3 + s4 * s)])
        return points, np.array([[g + x * x * slope + 2 * p1 * y + 6 * p2 * x + prism_x * x, mixed + prism_x * y],
                                 [mixed + prism_y * x, g + y * y * slope + 6 * p1 * y + 2 * p2 * x + prism_y * y]])

    @cached_property
    def _radii(self) -> tuple[Float64, Float64]:
        """Distorted radii in ascending order, and by what they are multiplied to get those on the plane z = 1."""
        radii = np.tan(np.linspace(0, np.arctan(self.limit), RADII))[1:] * (1 - 1e-9)  # short of a pole
        k1, k2, _, _, k3, k4, k5, k6 = self._coefficients[:8]
        s = radii * radii
        distorted = radii * (1 + s * (k1 + s * (k2 + s * k3))) / (1 + s * (k4 + s * (k5 + s * k6)))
        return distorted, radii / distorted

    def _of_polynomial(self, seen: Float64) -> tuple[Float64, Float64]:
        """Rays (2, M) of distorted points (2, M) by Newton's method, and the derivative (2, 2, M); NaN where there is no inverse.

        It begins at the inverse without tangential terms. The radius of no round exceeds the limit, so that it cannot come from
        beyond the fold.
        """
        rays = seen * np.interp(np.sqrt(seen[0] * seen[0] + seen[1] * seen[1]), *self._radii)
        slopes = np.full((2, 2, seen.shape[1]), np.nan)
        rows: Rows = np.arange(seen.shape[1])
        for _ in range(ROUNDS):
            x = self._within_limit(rays.take(rows, axis=1))
            distorted, slope = self.distorted(x)
            inverse, off = _inverse(slope), distorted - seen.take(rows, axis=1)
            step = inverse[:, 0] * off[0] + inverse[:, 1] * off[1]
            rays[:, rows] = x - step
            settled = np.abs(step).max(axis=0) < SETTLED
            good = settled & (np.abs(off).max(axis=0) * self.k[0, 0] < OFF_PX)
            good &= inverse[0, 0] * inverse[1, 1] > inverse[0, 1] * inverse[1, 0]  # as before the fold
            slopes[:, :, rows[good]] = inverse[:, :, good]
            rows = rows[~settled]
            if not len(rows):
                break
        return rays, slopes

    def _within_limit(self, rays: Float64) -> Float64:
        radius = np.sqrt(rays[0] * rays[0] + rays[1] * rays[1])
        return np.asarray(rays * np.minimum(1.0, self.limit / np.maximum(radius, 1e-300)), np.float64)

    def _of_angle(self, seen: Float64) -> tuple[Float64, Float64]:
        """The same for an equidistant lens, by the angle from the axis."""
        radius = np.sqrt(seen[0] * seen[0] + seen[1] * seen[1])
        angle, slope = np.minimum(radius, self.limit), np.ones_like(radius)
        off, step = np.zeros_like(radius), np.full_like(radius, np.inf)
        for _ in range(ROUNDS):
            distorted, slope = _angle(angle, self.d)
            off = distorted - radius
            step = off / slope
            angle = np.clip(angle - step, 0, self.limit)
            if not np.any((np.abs(step) >= SETTLED) & (angle < self.limit)):
                break
        good = (np.abs(step) < SETTLED) & (np.abs(off) * self.k[0, 0] < OFF_PX) & (angle < self.limit) & (slope > 0)
        along = 1 / (np.cos(angle)**2 * slope)  # how a step along the radius grows, and one across it
        across = np.where(radius > 1e-9, np.tan(angle) / np.maximum(radius, 1e-9), 1.0)
        unit = seen / np.maximum(radius, 1e-9)
        slopes = np.eye(2)[:, :, None] * across + unit[:, None] * unit * np.where(radius > 1e-9, along - across, 0.0)
        return seen * across, np.where(good, slopes, np.nan)


def _angle(angle: ArrayLike, d: Float64) -> tuple[Float64, Float64]:
    """Kannala and Brandt's distorted angle, and its derivative."""
    theta = np.asarray(angle, np.float64)
    square = theta * theta
    k1, k2, k3, k4 = d[:4]
    return (theta * (1 + square * (k1 + square * (k2 + square * (k3 + square * k4)))),
            1 + square * (3 * k1 + square * (5 * k2 + square * (7 * k3 + square * 9 * k4))))


def _first_root(coefficients: Float64, largest: float) -> float:
    """The smallest positive real root of a polynomial, constant term first; `largest` where there is none below."""
    used = np.trim_zeros(coefficients, 'b')
    roots = Polynomial(used).roots() if len(used) > 1 else np.zeros(0)
    real = roots.real[(np.abs(roots.imag) < 1e-9 * np.maximum(1, np.abs(roots.real))) & (roots.real > 0)]
    return float(min(real.min(initial=largest), largest))


def _tilt(about_x: float, about_y: float) -> Float64:
    """Homography (3, 3) of a sensor tilted by two angles, radians: OpenCV's computeTiltProjectionMatrix (Louhichi et al., 2007)."""
    cx, sx, cy, sy = np.cos(about_x), np.sin(about_x), np.cos(about_y), np.sin(about_y)
    rotation = np.array([[cy, 0, -sy], [0, 1, 0], [sy, 0, cy]]) @ np.array([[1, 0, 0], [0, cx, sx], [0, -sx, cx]])
    onto = np.array([[rotation[2, 2], 0, -rotation[0, 2]], [0, rotation[2, 2], -rotation[1, 2]], [0, 0, 1]])
    return np.asarray(onto @ rotation, np.float64)


def perspective(homography: Float64, points: Float64) -> tuple[Float64, Float64]:
    """Points (2, M) through a homography (3, 3), and the derivative (2, 2, M)."""
    mapped = homography[:, :2] @ points + homography[:, 2:]
    image = mapped[:2] / mapped[2]
    return image, (homography[:2, :2, None] - image[:, None] * homography[2, :2, None]) / mapped[2]


def _product(left: Float64, right: Float64) -> Float64:
    """Matrix products (2, 2, M)."""
    return np.asarray(left[:, :1] * right[0] + left[:, 1:] * right[1], np.float64)


def _inverse(matrices: Float64) -> Float64:
    """Inverses (2, 2, M) of matrices (2, 2, M)."""
    (a, b), (c, d) = matrices
    return np.asarray(np.array([[d, -b], [-c, a]]) / (a * d - b * c), np.float64)
