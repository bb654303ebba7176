"""What stands still in the image of a moving camera is no part of the scene: a bonnet, burnt-in text, dirt, a projector's dots.

A match that stays where it was is told from the world by what the others do. They agree on a motion that would have moved it, and
their epipolar geometry rules out that it stands, which needs a rotation; or it is in the smaller part of the image, and they are
fast wherever they are next to it. Scenery far away is next to some that hardly move, and the room behind people takes as much of
the image as they. A track is judged over as many frames as it stands. Where there are such points, the images of some frames tell
the pattern that stands in all of them, and no keypoint is taken there any more.
"""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from .cells import GRID, cell_of, per_cell, where
from .geometry import Size, contiguous, epipolar_distances
from .refinement.variance_factor import fit_epipolar
from .static_pixels import StaticPixels
from .types import NOTABLE, Float32, Float64, Rows, Standing, UInt8

STILL_PX, MOVING_PX = 0.7, 1.5  # a point that moved less stands, one that moved more moves; of the engine's image, as all below
EXPECTED_PX = 3.0  # motion of the others, at a point that stands, from which on it is not of their scene,
CONTRADICTED_PX = 1.5  # and its distance from its epipolar line; both since it stands
DOUBTFUL_PX = 6.0  # standard deviation of points that stand in the fit of the geometry, of those that move 1
WORSE = 1.3  # deviation without rotation to that of the fit: 0.5 to 1.3 before standing cameras, mostly 1.7 to 5 in drives
AGREE_PX = 6.0  # largest difference of a moving match from the motion of all
FITTED, ROUNDS = 150, 5  # points of either kind in that fit, or of which the nearest are looked for, about; of weights
LEAST = 12  # moving matches that agree, for a motion to be known
RECENT, OFTEN = 15, 0.25  # frames; share of those, from which on it is said
PATCHES = (15, 20)  # rows and columns of cells: neighbours with points that stand are one patch
NEIGHBOURS, SLOW, FEW = 3, 0.1, 0.1  # of a point; square of a motion to the median's; share of a patch's neighbours
SPREAD = 0.3  # share of the cells with matches in which some agree,
APART = 0.1  # and their least deviation, as a share of the image's sides: the camera moves, and not something before it
MINORITY, OUTSIDE = 0.6, 0.1  # points and cells that stand to those that move, of a patch on the world; share outside a bonnet
INTERLEAVED = 0.4  # share of the moving points whose nearest neighbour stands: they are seen through what stands


class _Still(NamedTuple):
    """Points of a frame that stand."""

    rows: Rows  # (N,)
    anchors: Float32  # (N, 2) where they began to
    expected: Float32  # (N, 2) how far the others have moved there since
    off: Float32  # (N, 2) how far they would have had to move since to be on their epipolar lines

    def since(self, rows: Rows, before: Float32, expected: Float32, off: Float32) -> _Still:
        """Points `rows` (M,) that stood `before` (M, 2) and go on, or begin."""
        anchors, expected, off = before.copy(), expected.copy(), off.copy()
        if len(self.rows):
            order = self.rows.argsort()
            place = order[np.minimum(self.rows[order].searchsorted(rows), len(order) - 1)]
            known = self.rows[place] == rows
            anchors[known] = self.anchors[place[known]]
            expected[known] += self.expected[place[known]]
            off[known] += self.off[place[known]]
        return _Still(rows, anchors, expected, off)

    def only(self, which: NDArray[np.bool_]) -> _Still:
        """Those of the points `which` (N,) marks."""
        return _Still(self.rows[which], self.anchors[which], self.expected[which], self.off[which])


class Judged(NamedTuple):
    """The correspondences of a frame."""

    foreign: NDArray[np.bool_] | None  # (N,) of no part of the scene; None: all are of it
    motion_px: float = 0.0  # of the others, pixels of the engine's image, where the camera was seen to move before a pattern
    standing: _Still | None = None
    cells: NDArray[np.intp] | None = None  # how many are foreign in each cell of GRID


NOTHING = Judged(None)
NOBODY = _Still(np.zeros(0, np.intp), *np.zeros((3, 0, 2), np.float32))


class StaticPoints:
    """Judges the correspondences of consecutive frames, and learns what stands in their images."""

    def __init__(self, engine: Size, mode: str = 'auto') -> None:
        """`mode` is the setting `static_points`, `engine` (height, width) of the engine's image."""
        self.mode, self.pixels = mode, StaticPixels(engine)
        self._share = self._often = 0.0  # of the matches that stand while the others move, and of frames with such: means of RECENT
        self._cells = np.zeros(GRID[0] * GRID[1])  # where in the image
        self._still = NOBODY  # in the newest frame

    def judge(self, rows: Rows, next_rows: Rows, before: Float32, after: Float32, size: Size, unit: float) -> Judged:
        """Points (N, 2) `before` and `after`, `rows` of the frame before and `next_rows` of this one; pixels of images of `size`.

        `unit` is pixels of the image to one of the engine's. Nothing is kept before `learn`.
        """
        motion = after - before
        steps = np.einsum('ij,ij->i', motion, motion)
        standing = steps < (STILL_PX * unit)**2
        if np.count_nonzero(standing) > NOTABLE * len(rows):
            return self._judge(rows, next_rows, before, after, standing, steps, size, unit)
        return Judged(None, float(np.sqrt(np.median(steps))) / unit) if self.pixels.blocked and len(rows) else NOTHING

    def corrected(self, image: UInt8) -> UInt8:
        """A gray image, uint8 (H, W), without what the pattern adds to it; the same where nothing is known."""
        return image if self.mode == 'keep' else self.pixels.fixed.corrected(image)

    @property
    def standing(self) -> Standing | None:
        """None where nothing was found."""
        if max(self._share if self._often > OFTEN else 0.0, self.pixels.blocked) <= NOTABLE:
            return None
        cells = self.pixels.cells if self.pixels.blocked > NOTABLE else self._cells
        return Standing(self._share, self.pixels.blocked, where(cells), self.mode != 'keep')

    def learn(self, image: UInt8, judged: Judged) -> None:
        """Keep what was `judged` of a frame, and look for the pattern in its image, gray uint8 (H, W)."""
        self._still = judged.standing or NOBODY
        share = 0.0 if judged.foreign is None else float(judged.foreign.mean())
        self._share += (share - self._share) / RECENT
        self._often += ((share > 0) - self._often) / RECENT
        if share and judged.cells is not None:
            self._cells += (judged.cells - self._cells) / RECENT
        if judged.motion_px and self.mode != 'keep':
            self.pixels.add(image, judged.motion_px)

    def forget_tracks(self) -> None:
        """The next frame has other rows."""
        self._still = NOBODY

    def _judge(self, rows: Rows, next_rows: Rows, before: Float32, after: Float32, standing: NDArray[np.bool_], steps: Float32,
               size: Size, unit: float) -> Judged:
        moving = steps > (MOVING_PX * unit)**2
        model = _motion(before, after, moving, unit)
        if model is None:
            return NOTHING
        certain = self.mode == 'drop' or _interleaved(before[model.agreeing], before[standing])
        stand, move = (per_cell(before[which], size) for which in (standing, moving))
        low = stand[:-2 * GRID[1]].sum() < OUTSIDE * stand.sum() and move[-GRID[1]:].sum() < OUTSIDE * move.sum()  # a bonnet
        smaller = low or max(standing.sum() / moving.sum(), (stand > move).sum() / max(1, (move > stand).sum())) < MINORITY
        seen, least = (~standing, APART / 2) if smaller else (np.s_[:], APART)  # beside a bonnet, texture may be little
        if not (certain or _camera_moves(before[seen], model.agreeing[seen], size, least)):
            return NOTHING
        at, expected = np.flatnonzero(standing), model.at(before)
        off = np.zeros((len(at), 2), np.float32) if certain else _off_their_lines(before, after, np.flatnonzero(moving), at, unit)
        still = self._still.since(rows[at], before[at], expected[at], off)
        stays = np.linalg.norm(after[at] - still.anchors, axis=1) < STILL_PX * unit
        contradicts = np.linalg.norm(still.expected, axis=1) > EXPECTED_PX * unit
        if not certain:
            rules_out = np.linalg.norm(still.off, axis=1) > CONTRADICTED_PX * unit
            if smaller:
                alike = ~standing & (np.linalg.norm(after - before - expected, axis=1) < EXPECTED_PX * unit)
                rules_out |= _among_fast(before[at], before[alike], steps[alike], size)
            contradicts &= rules_out
        foreign = np.zeros(len(rows), np.bool_)
        foreign[at] = stays & contradicts
        many = self.pixels.blocked or np.count_nonzero(foreign) > NOTABLE * len(rows)
        return Judged(foreign, float(np.median(np.linalg.norm(expected, axis=1))) / unit if many else 0.0,
                      _Still(next_rows[at], *still[1:]).only(stays), per_cell(after[foreign], size))


class _Motion(NamedTuple):
    """How most moving matches move, as an affine function of where they are."""

    coefficients: Float64  # (2, 3)
    agreeing: NDArray[np.bool_]  # (N,) the moving matches that move so

    def at(self, points: Float32) -> Float32:
        """Motion (N, 2) at points (N, 2)."""
        return np.asarray(points @ self.coefficients[:, :2].T + self.coefficients[:, 2] - points, np.float32)


def _motion(before: Float32, after: Float32, moving: NDArray[np.bool_], unit: float) -> _Motion | None:
    """None where too few `moving` (N,) points agree."""
    which = np.flatnonzero(moving)
    if len(which) < LEAST:
        return None
    coefficients, inliers = cv2.estimateAffine2D(contiguous(before[which]), contiguous(after[which]), method=cv2.RANSAC,
                                                 ransacReprojThreshold=AGREE_PX * unit, maxIters=300)
    if coefficients is None or np.count_nonzero(inliers) < max(LEAST, len(which) / 4):
        return None
    agreeing = np.zeros(len(before), np.bool_)
    agreeing[which[inliers.ravel() > 0]] = True
    motion = _Motion(np.asarray(coefficients, np.float64), agreeing)
    here, expected = before[agreeing], motion.at(before[agreeing])
    errors = np.linalg.norm(after[agreeing] - here - expected, axis=1)
    agrees = np.median(errors) < np.median(np.linalg.norm(expected, axis=1)) / 2  # leaves that sway have no common motion
    return motion if agrees else None


def _off_their_lines(before: Float32, after: Float32, moving: Rows, still: Rows, unit: float) -> Float32:
    """How far (M, 2) points `still` (M,) are from their epipolar lines, of the geometry that fits those `moving` (N,).

    They are on them where a camera that does not rotate explains those that move as well: all that is far away stands then.
    """
    some, others = (each[::max(1, len(each) // FITTED)] for each in (moving, still))
    variances = np.repeat((1.0, DOUBTFUL_PX**2), (len(some), len(others)))[:, None, None] * np.eye(2) * unit**2
    fitted = np.concatenate([some, others])
    fit = fit_epipolar(before[fitted], after[fitted], variances, fit_limit=np.inf)
    if _off_without_rotation(before[some], after[some], unit) < WORSE * np.median(fit.distances[:len(some)]):
        return np.zeros((len(still), 2), np.float32)
    distances, normals = epipolar_distances(before[still], after[still], fit.fundamental)
    return np.asarray(np.nan_to_num(-distances * normals).T, np.float32)


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


def _among_fast(still: Float32, others: Float32, steps: Float32, size: Size) -> NDArray[np.bool_]:
    """Whether points that stand (M, 2) are in a patch that has fast ones alone next to it, of `others` (N, 2); squared `steps`.

    A bonnet, dirt and text are. Scenery far away is also next to some of the world that moves little, as at the horizon.
    """
    if not len(others):
        return np.zeros(len(still), np.bool_)  # nothing is known of what is next to them
    some = np.s_[::max(1, len(others) // FITTED)]
    slow = steps[some] < SLOW * np.median(steps)
    nearest = np.argpartition(_distances(still, others[some]), min(NEIGHBOURS, len(slow)) - 1, axis=1)[:, :NEIGHBOURS]
    cells = (per_cell(still, size, PATCHES) > 0).reshape(PATCHES)
    patches = cv2.connectedComponents(cells.astype(np.uint8))[1].ravel()[cell_of(still, size, PATCHES)]
    among = np.zeros(len(still), np.bool_)
    for patch in np.unique(patches):
        around = slow[np.unique(nearest[patches == patch])]
        among[patches == patch] = np.count_nonzero(around) < max(NEIGHBOURS, FEW * len(around))
    return among


def _camera_moves(points: Float32, agreeing: NDArray[np.bool_], size: Size, least: float) -> bool:
    """Whether what moves is seen all over the image; else something moves before a camera that stands."""
    every, some = (np.count_nonzero(per_cell(part, size) > 1) for part in (points, points[agreeing]))
    apart = (points[agreeing].std(axis=0) / (size[1], size[0])).min()
    return bool(apart > least and some >= SPREAD * every)


def _interleaved(moving: Float32, standing: Float32) -> bool:
    """Whether the nearest neighbours of moving points (N, 2) stand (M, 2), as of things that are seen through a pattern."""
    some = np.arange(0, len(moving), max(1, len(moving) // 64))
    to_moving = _distances(moving[some], moving)
    to_moving[np.arange(len(some)), some] = np.inf  # itself
    return bool(np.mean(_distances(moving[some], standing).min(axis=1) < to_moving.min(axis=1)) > INTERLEAVED)


def _distances(points: Float32, others: Float32) -> Float64:
    """Squares (N, M) of those from points (N, 2) to others (M, 2), less a number for each point."""
    to = others.astype(np.float64)
    return np.asarray((to**2).sum(axis=1) - 2 * points @ to.T, np.float64)
