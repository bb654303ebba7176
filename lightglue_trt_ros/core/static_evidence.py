"""What the matches of two frames show of those that stand in the image: are they of the scene, or of no part of it?"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from .cells import GRID, cell_of, per_cell
from .geometry import Size, contiguous, epipolar_distances, middle
from .refinement.variance_factor import fit_epipolar
from .types import Float32, Float64, Rows

STILL_PX, MOVING_PX = 0.7, 1.5  # a point that moved less stands, one that moved more moves; of the engine's image, as all below
EXPECTED_PX = 3.0  # motion of the others, at a point that stands, from which on it is not of their scene
AGREE_PX = 6.0  # largest difference of a moving match from the motion of all
LEAST = 12  # moving matches that agree, for a motion to be known
INTERLEAVED = 0.4  # share of the moving points whose nearest neighbour stands: they are seen through what stands
SPREAD = 0.3  # share of the cells with matches in which some agree,
OUTER = np.pad(np.zeros((GRID[0] - 2, GRID[1] - 2), np.bool_), 1, constant_values=True).ravel()  # and of those at the edges,
APART = 0.1  # and their least deviation, as a share of the image's sides: the camera moves, and not something before it
MINORITY, OUTSIDE = 0.6, 0.1  # points and cells that stand to those that move, of a patch on the world; share outside a bonnet
DOUBTFUL_PX = 6.0  # standard deviation of points that stand in the fit of the geometry, of those that move 1
WORSE = 1.3  # deviation without rotation to that of the fit: 0.5 to 1.3 before standing cameras, mostly 1.7 to 5 in drives
FITTED, ROUNDS = 150, 5  # points of either kind in that fit, or of which the nearest are looked for, about; of weights
PATCHES = (15, 20)  # rows and columns of cells: neighbours with points that stand are one patch
NEIGHBOURS, SLOW, FEW = 3, 0.1, 0.1  # of a point; square of a motion to the median's; share of a patch's neighbours
LOWEST = 0.85  # of the image's height, below which a camera that drives sees the ground, or its robot


class Displacements:
    """How points moved from one frame to the next: which stand, which move, and how most of these do."""

    def __init__(self, before: Float32, after: Float32, size: Size, unit: float) -> None:
        """Points (N, 2) in pixels of images of `size`; `unit` is such pixels to one of the engine's image."""
        self.before, self.after, self.size, self.unit = before, after, size, unit
        self.steps = after - before  # (N, 2)
        self.squares = squares(self.steps)  # (N,)
        self.standing = self.squares < (STILL_PX * unit)**2  # (N,)
        self.moving = self.squares > (MOVING_PX * unit)**2  # (N,); a point may neither move nor stand

    def common_motion(self) -> CommonMotion | None:
        """None where too few moving points agree."""
        which = np.flatnonzero(self.moving)
        if len(which) < LEAST:
            return None
        before, after = (contiguous(points.take(which, axis=0)) for points in (self.before, self.after))
        coefficients, inliers = cv2.estimateAffine2D(before, after, method=cv2.RANSAC, ransacReprojThreshold=AGREE_PX * self.unit,
                                                     maxIters=300)
        if coefficients is None or np.count_nonzero(inliers) < max(LEAST, len(which) / 4):
            return None
        agreeing = which[inliers.ravel() > 0]
        expected = np.asarray(self.before @ coefficients[:, :2].T + coefficients[:, 2] - self.before, np.float32)
        left, explained = (middle(squares(part.take(agreeing, axis=0))) for part in (self.steps - expected, expected))
        return CommonMotion(expected, agreeing) if left < explained / 4 else None  # leaves that sway have none


class CommonMotion(NamedTuple):
    """How most moving matches move, as an affine function of where they are."""

    expected: Float32  # (N, 2) how far each match would have moved so
    agreeing: Rows  # of the moving matches that do


class StaticEvidence:
    """The questions that are asked about the S of N points that stand, while others have a common motion."""

    def __init__(self, points: Displacements, motion: CommonMotion) -> None:
        self._points, self._agreeing = points, motion.agreeing
        self.rows = np.flatnonzero(points.standing)  # (S,)
        self.static = points.before.take(self.rows, axis=0)  # (S, 2) where they are
        self.expected = motion.expected  # (N, 2) how far each would have moved with the others

    def are_interleaved(self) -> bool:
        """Whether the nearest neighbours of moving points stand, as of things that are seen through a pattern."""
        moving = self._points.before[self._agreeing]
        some = np.arange(0, len(moving), max(1, len(moving) // 64))
        to_moving = _distances(moving[some], moving)
        to_moving[np.arange(len(some)), some] = np.inf  # itself
        to_static = _distances(moving[some], self.static)
        return bool(np.mean(to_static.min(axis=1) < to_moving.min(axis=1)) > INTERLEAVED)

    def camera_moves(self) -> bool:
        """Whether what moves is seen all over the image, of a bonnet all over the rest; else something moves before the camera."""
        before, size, agreeing = self._points.before, self._points.size, self._points.before[self._agreeing]
        world, least, places = before, APART, [np.ones_like(OUTER), OUTER]  # what a moving camera sees goes on to the edges
        if self.is_smaller:  # beside a bonnet, texture may be little
            world, least, places = before[~self._points.standing], APART / 2, places[:1]
        every, some = (per_cell(part, size) > 1 for part in (world, agreeing))
        apart = (agreeing.std(axis=0) / (size[1], size[0])).min()
        return bool(apart > least and all(some[place].sum() >= SPREAD * every[place].sum() for place in places))

    @cached_property
    def is_smaller(self) -> bool:
        """Whether what stands is the smaller part of the image: a bonnet, or a patch with fewer points and cells than the rest."""
        points = self._points
        stand, move = (per_cell(points.before[which], points.size) for which in (points.standing, points.moving))
        below = stand[:-2 * GRID[1]].sum() < OUTSIDE * stand.sum() and move[-GRID[1]:].sum() < OUTSIDE * move.sum()
        return bool(below or max(stand.sum() / move.sum(), (stand > move).sum() / max(1, (move > stand).sum())) < MINORITY)

    def off_lines(self) -> Float32:
        """How far (S, 2) they are from their epipolar lines, of the geometry that fits those that move.

        They are on them where a camera that does not rotate explains those that move as well: all that is far away stands then.
        """
        before, after, unit = self._points.before, self._points.after, self._points.unit
        moving = np.flatnonzero(self._points.moving)
        some, others = (rows[::max(1, len(rows) // FITTED)] for rows in (moving, self.rows))
        variances = np.repeat((1.0, DOUBTFUL_PX**2), (len(some), len(others)))[:, None, None] * np.eye(2) * unit**2
        fitted = np.concatenate([some, others])
        fit = fit_epipolar(before[fitted], after[fitted], variances, fit_limit=np.inf)
        if _off_without_rotation(before[some], after[some], unit) < WORSE * np.median(fit.distances[:len(some)]):
            return np.zeros((len(self.rows), 2), np.float32)
        distances, normals = epipolar_distances(self.static, after[self.rows], fit.fundamental)
        return np.asarray(np.nan_to_num(-distances * normals).T, np.float32)

    def among_fast(self) -> NDArray[np.bool_]:
        """Which (S,) are in a patch that has fast ones alone next to it, of those that move as expected.

        A bonnet, dirt and text are; an arm up to the horizon, where it is lowest and nothing else that is low moves little. Scenery
        far away is next to some that does. None is where what stands is not the smaller part, as is the room behind people.
        """
        points = self._points
        alike = ~points.standing & (squares(points.steps - self.expected) < (EXPECTED_PX * points.unit)**2)
        among = np.zeros(len(self.rows), np.bool_)
        if not (self.is_smaller and alike.any()):
            return among  # nothing is known of what is next to them
        others = np.flatnonzero(alike)[::max(1, np.count_nonzero(alike) // FITTED)]
        slow, low = points.squares < SLOW * np.median(points.squares[alike]), points.before[:, 1] > LOWEST * points.size[0]
        near = np.count_nonzero(low & slow & ~points.standing) < NEIGHBOURS  # all that is low is
        to_others = _distances(self.static, points.before[others])
        nearest = others[np.argpartition(to_others, min(NEIGHBOURS, len(others)) - 1, axis=1)[:, :NEIGHBOURS]]
        patches = _patches(self.static, points.size)
        for patch in np.unique(patches):
            around = slow[np.unique(nearest[patches == patch])]
            below = near and np.count_nonzero(low[self.rows] & (patches == patch)) >= LEAST
            among[patches == patch] = below or np.count_nonzero(around) < max(NEIGHBOURS, FEW * len(around))
        return among


def squares(steps: Float32) -> Float32:
    """Squares (N,) of the lengths of steps (N, 2)."""
    return steps[:, 0] * steps[:, 0] + steps[:, 1] * steps[:, 1]


def _patches(points: Float32, size: Size) -> NDArray[np.intp]:
    """The number of each point's patch (N,): of neighbouring cells with points (N, 2)."""
    cells = (per_cell(points, size, PATCHES) > 0).reshape(PATCHES)
    return np.asarray(cv2.connectedComponents(cells.astype(np.uint8))[1].ravel()[cell_of(points, size, PATCHES)], np.intp)


def _off_without_rotation(before: Float32, after: Float32, unit: float) -> float:
    """Median distance of points (N, 2) from lines that meet in one point, pixels: their epipolar lines if nothing rotates."""
    scale = float(before.std()) + 1e-15
    (x0, y0), (x1, y1) = (((side - before.mean(axis=0)) / scale).T.astype(np.float64) for side in (before, after))
    through = np.stack([y1 - y0, x0 - x1, x1 * y0 - x0 * y1])
    lengths, distances = np.hypot(through[0], through[1]) + 1e-15, np.zeros(len(before))
    for _ in range(ROUNDS):
        weighted = through / (lengths * (1 + (distances / unit)**2))
        middle = np.linalg.eigh(weighted @ weighted.T)[1][:, 0]
        lengths = np.hypot(middle[0] - middle[2] * x0, middle[1] - middle[2] * y0) + 1e-15
        distances = scale * np.abs(middle @ through) / lengths
    return float(np.median(distances))


def _distances(points: Float32, others: Float32) -> Float64:
    """Squares (N, M) of those from points (N, 2) to others (M, 2), less a number for each point."""
    to = others.astype(np.float64)
    return np.asarray((to**2).sum(axis=1) - 2 * points @ to.T, np.float64)
