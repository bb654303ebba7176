"""The most likely pose of two views: from a given one, and from others whose translation has another direction.

A pose (R, t) maps camera 0 to camera 1, x1 = R x0 + t with a t of length 1. Points are homogeneous (M, 3), of a pinhole whose
camera matrix is the identity. HZ is Hartley & Zisserman, Multiple View Geometry in Computer Vision, second edition.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from ..core.geometry import contiguous, sampled_model
from ..core.types import Float64, Rows
from ..datasets.poses import angles_deg
from .pose_covariance import GENERATORS, cross_matrix

REFINE_STEPS = 20  # of Levenberg-Marquardt at most
DIRECTIONS, TRIED, APART = 48, 3, 0.94  # of translation, on half the sphere; how many of them, and the cosine between these
SCREENED = 150  # points that choose the best directions, about
WRONG = 5.0  # deviations; a match that is further off costs no more, or many wrong ones would choose the pose
ALIKE, NEARLY = 1.1, 1.5  # times the lowest cost: poses up to there fit alike, and nearly alike
CLEARLY = 0.8  # of the cost with sides: where a pose of a plane that fits nearly alike has less, the other one is wrong
CHANCE = 3.0  # times the root of the number of points off a plane: differences of their costs that tell nothing
FARTHER = 1.5  # times the rotation of a plane's pose that turns least: the other one turns clearly more
NEAR_PLANE, ON_PLANE, MOSTLY = 5.0, 3.0, 0.75  # deviations from the plane sought, and of points on it; share of these in a plane
FOR_PLANE = 8  # points at least, of which a plane is sought
LOOSE = (16.0, 4.0, 1.0, 1.0)  # deviations that count as one while the rotation for each direction is looked for


def most_likely(rotation: Float64, direction: Float64, residuals: Residuals) -> tuple[Float64, Float64]:
    """The most likely pose that is reached from the given one, from its rotation and other directions, or from two planes.

    Scenes close to a plane and short baselines leave several poses that fit nearly alike, and five points choose one by chance.
    Which side points move to decides between these: noise that many points share, as of dots on the lens, is on one side too.
    """
    found, plane = [refine(rotation, direction, residuals)], _main_plane(residuals)
    off_plane = residuals.squares_from(plane)
    second = _main_plane(residuals.of(np.flatnonzero(off_plane > NEAR_PLANE**2)))
    rotations, directions = _other_starts(found[0][0], residuals.some(SCREENED))
    starts = [*zip(rotations, directions, strict=True), *_planar_starts(plane), *_planar_starts(second)]
    found += [refine(*start, residuals) for start in starts]
    rotations, directions = (np.stack(part) for part in zip(*found, strict=True))
    fits, costs = residuals.costs(rotations, directions)
    alike = fits <= ALIKE * fits.min()
    if np.mean(off_plane < ON_PLANE**2) > MOSTLY:
        others = residuals.of(np.flatnonzero(off_plane > ON_PLANE**2))
        chance = CHANCE * len(others.x0)**0.5
        alike = _alike_in_plane(fits, costs, others.costs(rotations, directions)[0], chance, angles_deg(rotations))
    return found[int(np.argmin(np.where(alike, costs, np.inf)))]


def _alike_in_plane(fits: Float64, costs: Float64, fits_off_plane: Float64, chance: float, turns: Float64) -> NDArray[np.bool_]:
    """Which poses (K,) of a scene that is mostly a plane fit alike: rule by rule, where those before leave several.

    - Of the two poses of a plane the wrong one may fit a little better, with many points behind a camera: sides decide as well.
      Off a plane they do not: wrong matches are on either side, and a pose that turns far has all points on one.
    - Where both have all points before the cameras, points off the plane tell them apart, and noise on it does not.
    - Without such points it is the pose that turns less: a camera that moves along a plane rarely turns as the other pose has it.

    Args:
        fits: (K,) costs without the sides of points.
        costs: (K,) costs with them.
        fits_off_plane: (K,) costs of the points off the plane alone, without their sides.
        chance: difference of these that tells nothing.
        turns: (K,) rotations, in any unit.
    """
    alike = fits <= ALIKE * fits.min()
    alike |= (fits <= NEARLY * fits.min()) & (costs < CLEARLY * costs[alike].min())
    alike &= costs <= costs[alike].min() + (ALIKE - 1) * fits.min()
    alike &= fits_off_plane <= fits_off_plane[alike].min() + chance
    return np.asarray(alike & (turns <= FARTHER * turns[alike].min()), np.bool_)


def _main_plane(residuals: Residuals) -> Float64 | None:
    """The homography (3, 3) of the plane that most points are near.

    In deviations: on normalised points OpenCV's MAGSAC++ finds none where a fifth of the matches are wrong.
    """
    if len(residuals.x0) < FOR_PLANE:
        return None
    scale = 1 / float(np.sqrt(np.median(residuals.covariances1[:, 0, 0] + residuals.covariances1[:, 1, 1]) / 2))
    homography = sampled_model(cv2.findHomography, scale * residuals.x0[:, :2], scale * residuals.x1[:, :2], method=cv2.USAC_MAGSAC,
                               ransacReprojThreshold=NEAR_PLANE)
    return None if homography is None else homography * [scale, scale, 1] / np.array([[scale], [scale], [1]])


def _planar_starts(homography: Float64 | None) -> list[tuple[Float64, Float64]]:
    """The two poses of a plane (HZ 13.3), of which RANSAC's five points on it find one by chance."""
    if homography is None:
        return []
    _, rotations, translations, _ = cv2.decomposeHomographyMat(contiguous(homography), contiguous(np.eye(3)))
    starts = [(np.asarray(rotation, np.float64), np.asarray(translation, np.float64).ravel())
              for rotation, translation in zip(rotations[::2], translations[::2], strict=True)]  # the others are opposite
    return [(rotation, translation / length) for rotation, translation in starts
            if (length := float(np.linalg.norm(translation))) > 0]


def _other_starts(rotation: Float64, residuals: Residuals) -> tuple[Float64, Float64]:
    """The TRIED directions (3,) of the lowest costs, each with the rotation (3, 3) near the given one that fits it."""
    along = (np.arange(DIRECTIONS) + 0.5) / DIRECTIONS  # a spiral: all have as much of the sphere to themselves
    turn, radius = np.pi * (1 + 5**0.5) * DIRECTIONS * along, np.sqrt(1 - along**2)
    directions = np.column_stack([radius * np.cos(turn), radius * np.sin(turn), along])
    rotations = np.repeat(rotation[None], DIRECTIONS, axis=0)
    for loose in LOOSE:
        distances, slopes = residuals.turning(rotations, directions)
        weighted = slopes / (1 + (distances / loose)**2)[..., None]
        normal = np.swapaxes(weighted, 1, 2) @ slopes
        normal += (1e-9 * np.trace(normal, axis1=1, axis2=2)[:, None, None] + 1e-15) * np.eye(3)  # all points may be one
        steps = -np.linalg.solve(normal, np.swapaxes(weighted, 1, 2) @ distances[..., None])[..., 0]
        rotations = np.stack([cv2.Rodrigues(contiguous(step))[0] @ each for step, each in zip(steps, rotations, strict=True)])
    chosen: list[int] = []
    for number in residuals.costs(rotations, directions)[1].argsort():
        if len(chosen) < TRIED and np.all(np.abs(directions[chosen] @ directions[number]) < APART):
            chosen.append(int(number))
    return rotations[chosen], directions[chosen]


class Residuals:
    """Distances of points to an epipolar geometry, over their standard deviations, and their derivatives.

    x1' E x0 over the root of l1' S1 l1 + l0' S0 l0, of lines' first two coordinates (HZ 11.9, 5.2.3): where both covariances are
    the same circle, Sampson's distance over its radius; without the first one, that of the second point from its line.
    """

    def __init__(self, x0: Float64, x1: Float64, covariances1: Float64, covariances0: Float64) -> None:
        """Covariances are (M, 2, 2) of the points, or (1, 2, 2) of all."""
        self.x0, self.x1, self.covariances1, self.covariances0 = x0, x1, covariances1, covariances0
        self.products = (x1[:, :, None] * x0[:, None, :]).reshape(-1, 9)  # times the matrix, row by row: x1' E x0

    def some(self, count: int) -> Residuals:
        """Those of about so many points."""
        return self.of(np.arange(0, len(self.x0), max(1, len(self.x0) // count)))

    def of(self, rows: Rows) -> Residuals:
        """Those of the points `rows` (N,)."""
        covariances = (each if len(each) == 1 else each[rows] for each in (self.covariances1, self.covariances0))
        return Residuals(self.x0[rows], self.x1[rows], *covariances)

    def squares_from(self, homography: Float64 | None) -> Float64:
        """Squares (M,) of the points' deviations from where the homography (3, 3) sends them; infinite without one."""
        if homography is None:
            return np.full(len(self.x0), np.inf)
        sent = self.x0 @ homography.T
        with np.errstate(divide='ignore', invalid='ignore'):
            off = (self.x1 - sent / sent[:, 2:])[:, :2]
        return np.asarray(np.sum(off * np.linalg.solve(self.covariances1, off[..., None])[..., 0], axis=1), np.float64)

    def turning(self, rotations: Float64, directions: Float64) -> tuple[Float64, Float64]:
        """Residuals (K, M) of poses (K, 3, 3) and (K, 3), and their derivatives (K, M, 3) by a rotation, with constant scales."""
        rays, crosses = self.x0 @ np.swapaxes(rotations, 1, 2), cross_matrix(directions)
        across = self.x1 @ crosses
        lines1, lines0 = rays @ np.swapaxes(crosses, 1, 2), across @ rotations
        lengths = np.sqrt(_variances(lines1, self.covariances1) + _variances(lines0, self.covariances0)) + 1e-15
        return np.sum(rays * across, axis=2) / lengths, np.cross(rays, across) / lengths[..., None]

    def costs(self, rotations: Float64, directions: Float64) -> tuple[Float64, Float64]:
        """Cauchy's, bounded, (K,) of poses (K, 3, 3) and (K, 3), without and with the sides of points.

        A point on the wrong side of where it would be at infinity, on its line, is behind a camera: that is also a distance. The
        cost with it is that of the opposite directions where that is lower.
        """
        squares, rays = self.turning(rotations, directions)[0]**2, self.x0 @ np.swapaxes(rotations, 1, 2)
        with np.errstate(divide='ignore', invalid='ignore'):
            infinite = rays[..., :2] / rays[..., 2:]
        nearer = directions[:, None, :2] - directions[:, None, 2:] * infinite  # where a point moves that comes from there
        moved = np.sum((self.x1[:, :2] - infinite) * nearer, axis=2) / (np.sqrt(_variances(nearer, self.covariances1)) + 1e-15)
        behind = np.minimum(moved, 0), np.maximum(moved, 0)  # with the direction, and with the opposite one
        return _bounded(squares).sum(axis=1), np.min([_bounded(squares + each**2).sum(axis=1) for each in behind], axis=0)

    def at(self, essential: Float64) -> tuple[Float64, Float64, Float64, Float64]:
        """Residuals and their standard deviations (M,), and both lines (2, M) times the covariances."""
        plain1, plain0 = essential[:2] @ self.x0.T, essential.T[:2] @ self.x1.T
        lines1, lines0 = _times(self.covariances1, plain1), _times(self.covariances0, plain0)
        lengths = np.sqrt(np.sum(plain1 * lines1 + plain0 * lines0, axis=0)) + 1e-15
        return self.products @ essential.ravel() / lengths, lengths, lines1, lines0

    def slopes(self, changes: Float64, distances: Float64, lengths: Float64, lines1: Float64, lines0: Float64) -> Float64:
        """Derivatives (N, M) of what is `at` an essential matrix by N parameters that change it by `changes` (N, 3, 3)."""
        growth = np.sum((changes[:, :2] @ self.x0.T) * lines1 + (changes.swapaxes(1, 2)[:, :2] @ self.x1.T) * lines0, axis=1)
        return np.asarray((changes.reshape(-1, 9) @ self.products.T - distances / lengths * growth) / lengths, np.float64)


def _bounded(squares: Float64) -> Float64:
    """Cauchy's costs; where they cannot be told: wrong."""
    return np.log1p(np.fmin(squares, WRONG**2))


def _variances(lines: Float64, covariances: Float64) -> Float64:
    """Along the first two coordinates of lines (K, M, 2 or 3); covariances (M or 1, 2, 2)."""
    x, y = lines[..., 0], lines[..., 1]
    return np.asarray(covariances[:, 0, 0] * x * x + 2 * covariances[:, 0, 1] * x * y + covariances[:, 1, 1] * y * y, np.float64)


def _times(covariances: Float64, lines: Float64) -> Float64:
    """Covariances (M or 1, 2, 2) times lines (2, M), without M products of small matrices."""
    return np.asarray(covariances[:, :, 0].T * lines[0] + covariances[:, :, 1].T * lines[1], np.float64)


def refine(rotation: Float64, direction: Float64, residuals: Residuals) -> tuple[Float64, Float64]:
    """Levenberg-Marquardt with Cauchy weights over five parameters: a rotation vector, and two along the sphere of directions."""
    fit, damping = residuals.at(cross_matrix(direction) @ rotation), 1e-3
    current = np.log1p(fit[0]**2).sum()
    for _ in range(REFINE_STEPS):
        tangent = np.linalg.svd(direction[None])[2][1:]
        changes = np.concatenate([cross_matrix(direction) @ GENERATORS, cross_matrix(tangent)]) @ rotation
        slopes = residuals.slopes(changes, *fit)
        weighted = slopes / (1 + fit[0]**2)
        normal, gradient = weighted @ slopes.T, weighted @ fit[0]
        while True:
            step = -np.linalg.solve(normal * (1 + damping * np.eye(5)) + 1e-15 * np.eye(5), gradient)
            rotated = np.asarray(cv2.Rodrigues(contiguous(step[:3]))[0], np.float64) @ rotation
            moved = direction + step[3:] @ tangent
            moved /= np.linalg.norm(moved)
            next_fit = residuals.at(cross_matrix(moved) @ rotated)
            reached = np.log1p(next_fit[0]**2).sum()
            if reached <= current or damping > 1e6:
                break
            damping *= 10
        if reached > current:
            break
        gain, damping = current - reached, max(damping / 10, 1e-9)
        rotation, direction, fit, current = rotated, moved, next_fit, reached
        if gain <= 1e-6 * current:
            break
    return rotation, direction
