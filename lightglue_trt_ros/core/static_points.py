"""What stands still in the image of a moving camera is no part of the scene: a bonnet, burnt-in text, dirt, a projector's dots.

A match that stays where it was is told from the world by what the others do: they agree on a motion that would have moved it. A track
is judged over as many frames as it stands. Where there are such points, the images of some frames tell the pattern that stands in
all of them, and no keypoint is taken there any more.
"""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from .geometry import Size, contiguous, resize_gray
from .types import Float32, Float64, Rows, UInt8

STILL_PX = 0.7  # a point that moved less stands,
MOVING_PX = 1.5  # one that moved more moves; pixels of the engine's image, as all below
SUSPICIOUS = 0.03  # share of the matches that stand, from which on the others are asked
EXPECTED_PX = 3.0  # motion of the others, at a point that stands, from which on it is not of their scene
AGREE_PX = 6.0  # largest difference of a moving match from the motion of all
LEAST = 12  # moving matches that agree, for a motion to be known
GRID = (6, 8)  # rows and columns of cells of the image
SPREAD = 0.3  # share of the cells with matches in which some agree,
APART = 0.1  # and their least deviation, as a share of the image's sides: the camera moves, and not something before it
INTERLEAVED = 0.4  # share of the moving points whose nearest neighbour stands: they are seen through what stands


class Judged(NamedTuple):
    """The matches of a frame."""

    foreign: NDArray[np.bool_]  # (N,) not of the scene
    standing: int  # that stay where they were
    motion_px: float  # of the others, where the camera moves; else 0


class StaticPoints:
    """Judges the matches of consecutive frames, in pixels of the engine's image, of (height, width) `size`."""

    def __init__(self, size: Size, mode: str = 'auto') -> None:
        """`mode`: auto; drop, where the camera is known to move; keep, which drops nothing."""
        self.size, self.mode = size, mode
        self.pattern = Pattern(size)
        self._rows, self._anchors, self._expected = _nobody()  # of the points that stand: rows of the newest frame

    def judge(self, rows: Rows, next_rows: Rows, before: Float32, after: Float32) -> Judged:
        """Points (N, 2) `before` and `after`, which are `rows` of the frame before and `next_rows` of this one."""
        motion = after - before
        steps = np.einsum('ij,ij->i', motion, motion)
        standing = steps < STILL_PX**2
        count = int(np.count_nonzero(standing))
        nothing = Judged(np.zeros(len(rows), np.bool_), count, 0.0)
        if self.mode == 'keep' or count <= SUSPICIOUS * len(rows):
            self.forget_tracks()
            return nothing._replace(motion_px=float(np.sqrt(np.median(steps)))) if self.pattern.blocked and len(rows) else nothing
        model = _motion(before, after, steps > MOVING_PX**2)
        if model is None or not (self.mode == 'drop' or self._camera_moves(before, standing, model.agreeing)):
            self.forget_tracks()
            return nothing
        still = np.flatnonzero(standing)
        anchors, expected = self._since(rows[still], before[still], model)
        stays = np.linalg.norm(after[still] - anchors, axis=1) < STILL_PX
        foreign = np.zeros(len(rows), np.bool_)
        foreign[still] = stays & (np.linalg.norm(expected, axis=1) > EXPECTED_PX)
        self._rows, self._anchors, self._expected = next_rows[still][stays], anchors[stays], expected[stays]
        if np.count_nonzero(foreign) <= SUSPICIOUS * len(rows) and not self.pattern.blocked:
            return Judged(foreign, count, 0.0)
        return Judged(foreign, count, float(np.median(np.linalg.norm(model.at(before), axis=1))))

    def forget_tracks(self) -> None:
        """The next frame has other rows."""
        self._rows, self._anchors, self._expected = _nobody()

    def _since(self, rows: Rows, before: Float32, model: _Motion) -> tuple[Float32, Float32]:
        """Where points (N, 2) began to stand, and how far (N, 2) the others have moved there since."""
        anchors, expected = before.copy(), model.at(before)
        if len(self._rows):
            order = self._rows.argsort()
            place = np.minimum(self._rows[order].searchsorted(rows), len(order) - 1)
            known = self._rows[order][place] == rows
            anchors[known] = self._anchors[order][place[known]]
            expected[known] += self._expected[order][place[known]]
        return anchors, expected

    def _camera_moves(self, points: Float32, standing: NDArray[np.bool_], agreeing: NDArray[np.bool_]) -> bool:
        """Whether what moves is seen all over the image, or through what stands; else something moves before a camera that stands."""
        scale = np.array([GRID[1] / self.size[1], GRID[0] / self.size[0]], np.float32)
        columns, rows = np.clip((points * scale).astype(np.intp), 0, (GRID[1] - 1, GRID[0] - 1)).T
        cells = rows * GRID[1] + columns
        every, some = (np.bincount(each, minlength=GRID[0] * GRID[1]) > 1 for each in (cells, cells[agreeing]))
        spread = (points[agreeing].std(axis=0) / (self.size[1], self.size[0])).min()
        if spread > APART and np.count_nonzero(some) >= SPREAD * np.count_nonzero(every):
            return True
        return _interleaved(points[agreeing], points[standing])


class Pattern:
    """What stands in the images of a moving camera: pixels that are brighter than what is around them in nearly all, or darker."""

    CONTRAST, AROUND_PX = 4.0, 4.0  # least difference, gray levels, from the mean of this deviation around
    SURE, LEAST_IMAGES = 0.8, 3  # share of the images in which a pixel differs, and of how many
    MEMORY = 20  # images
    REACH_PX = 2  # pixels around, in which no keypoint is taken either
    LARGEST = 0.5  # share of the image; above it, higher contrasts alone count
    APART_PX = 4.0  # motion from one image to the next that counts
    RARELY = 5  # frames to the next one, once it is known

    def __init__(self, size: Size) -> None:
        self.size, self.images = size, 0
        self.blocked = 0.0  # share of the image
        self._moved, self._late = 0.0, 0
        self._mean = self._brighter = self._darker = np.zeros(size, np.float32)
        self._allowed: UInt8 | None = None
        self._both: tuple[UInt8 | None, UInt8 | None, UInt8 | None] = None, None, None

    def allowed(self, mask: UInt8 | None) -> UInt8 | None:
        """`mask`, uint8 of `size` or None, without the pixels of the pattern; the same array until either changes."""
        if mask is None or self._allowed is None:
            return mask if self._allowed is None else self._allowed
        if self._both[0] is not mask or self._both[1] is not self._allowed:
            left = np.minimum(mask, self._allowed)
            self._both = mask, self._allowed, left if left.any() else mask
        return self._both[2]

    def add(self, image: UInt8, motion_px: float) -> None:
        """Learn from a gray image, uint8 (H, W), before which the camera moved so far."""
        self._moved += motion_px
        self._late += 1
        if self._moved < self.APART_PX or (self.images >= self.MEMORY and self._late < self.RARELY):
            return
        self._moved, self._late = 0.0, 0
        gray = resize_gray(image, self.size).astype(np.float32)
        detail = gray - cv2.GaussianBlur(gray, (0, 0), self.AROUND_PX)
        self.images += 1
        part = np.float32(1 / min(self.images, self.MEMORY))
        self._mean = self._mean + part * (detail - self._mean)
        self._brighter = self._brighter + part * ((detail > self.CONTRAST) - self._brighter)
        self._darker = self._darker + part * ((detail < -self.CONTRAST) - self._darker)
        if self.images >= self.LEAST_IMAGES:
            self._block()

    def _block(self) -> None:
        sure, contrast = np.maximum(self._brighter, self._darker) > self.SURE, np.abs(self._mean)
        disc = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * self.REACH_PX + 1,) * 2)
        least, blocked = self.CONTRAST, np.zeros(self.size, np.uint8)
        while least < 256:
            blocked = cv2.dilate((sure & (contrast > least)).astype(np.uint8), disc)
            if np.count_nonzero(blocked) <= self.LARGEST * blocked.size:
                break
            least *= 1.3
        self.blocked = np.count_nonzero(blocked) / blocked.size
        self._allowed = np.asarray(255 * (1 - blocked), np.uint8) if self.blocked else None


class _Motion(NamedTuple):
    """How most moving matches move, as an affine function of where they are."""

    coefficients: Float64  # (2, 3)
    agreeing: NDArray[np.bool_]  # (N,) the moving matches that move so

    def at(self, points: Float32) -> Float32:
        """Motion (N, 2) at points (N, 2)."""
        return np.asarray(points @ self.coefficients[:, :2].T + self.coefficients[:, 2] - points, np.float32)


def _motion(before: Float32, after: Float32, moving: NDArray[np.bool_]) -> _Motion | None:
    """None where too few `moving` (N,) points agree."""
    which = np.flatnonzero(moving)
    if len(which) < LEAST:
        return None
    coefficients, inliers = cv2.estimateAffine2D(contiguous(before[which], np.float64), contiguous(after[which], np.float64),
                                                 method=cv2.RANSAC, ransacReprojThreshold=AGREE_PX, maxIters=300)
    if coefficients is None or np.count_nonzero(inliers) < max(LEAST, len(which) / 4):
        return None
    agreeing = np.zeros(len(before), np.bool_)
    agreeing[which[inliers.ravel() > 0]] = True
    return _Motion(coefficients, agreeing)


def _interleaved(moving: Float32, standing: Float32) -> bool:
    """Whether the nearest neighbours of moving points (N, 2) stand (M, 2), as of things that are seen through a pattern."""
    some = moving[::max(1, len(moving) // 64)]
    to_standing = np.linalg.norm(some[:, None] - standing, axis=2).min(axis=1)
    to_moving = np.linalg.norm(some[:, None] - moving, axis=2)
    to_moving[to_moving < 1e-3] = np.inf  # itself
    return bool(np.mean(to_standing < to_moving.min(axis=1)) > INTERLEAVED)


def _nobody() -> tuple[Rows, Float32, Float32]:
    return np.zeros(0, np.intp), np.zeros((0, 2), np.float32), np.zeros((0, 2), np.float32)
