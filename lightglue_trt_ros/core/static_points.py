"""What stands still in the image of a moving camera is no part of the scene: a bonnet, burnt-in text, dirt, a projector's dots.

A match that stays where it was is told from the world by what the others do. They agree on a motion that would have moved it, and
their epipolar geometry rules out that it stands, which needs a rotation; or it is in the smaller part of the image, and they are
fast wherever they are next to it. Scenery far away is next to some that hardly move, and the room behind people takes as much of
the image as they. A track is judged over as many frames as it stands. Where there are such points, the images of some frames tell
the pattern that stands in all of them, and no keypoint is taken there any more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .cells import GRID, per_cell, where
from .geometry import Size
from .static_evidence import EXPECTED_PX, STILL_PX, CommonMotion, Displacements, StaticEvidence, squares
from .static_pixels import StaticPixels
from .types import NOTABLE, Float32, Rows, Standing, UInt8

CONTRADICTED_PX = 1.5  # from its epipolar line, since it stands; of the engine's image
RECENT, OFTEN = 15, 0.25  # frames; share of those, from which on it is said
RARELY, HARDLY = 5, 0.005  # frames to the next one that is judged, once RECENT have shown hardly any foreign point: share


class _Still(NamedTuple):
    """Points of a frame that stand."""

    rows: Rows  # (N,)
    anchors: Float32  # (N, 2) where they began to
    since: Float32  # (N, 2, 2) sums: how far the others moved there, and how far they would have had to, to be on their lines

    def and_now(self, rows: Rows, before: Float32, now: Float32) -> _Still:
        """Points `rows` (M,) that stood `before` (M, 2) and go on, or begin; what was found `now` (M, 2, 2) is added."""
        anchors, since = before.copy(), now.copy()
        if len(self.rows):
            order = self.rows.argsort()
            place = order[np.minimum(self.rows[order].searchsorted(rows), len(order) - 1)]
            known = self.rows[place] == rows
            anchors[known] = self.anchors[place[known]]
            since[known] += self.since[place[known]]
        return _Still(rows, anchors, since)


class Judged(NamedTuple):
    """The correspondences of a frame."""

    foreign: NDArray[np.bool_] | None  # (N,) of no part of the scene; None: all are of it
    motion_px: float = 0.0  # of the others, pixels of the engine's image, where the camera was seen to move before a pattern
    standing: _Still | None = None
    cells: NDArray[np.intp] | None = None  # how many are foreign in each cell of GRID


NOTHING = Judged(None)
NOBODY = _Still(np.zeros(0, np.intp), np.zeros((0, 2), np.float32), np.zeros((0, 2, 2), np.float32))


class StaticPoints:
    """Judges the correspondences of consecutive frames, and learns what stands in their images."""

    def __init__(self, engine: Size, mode: str = 'auto') -> None:
        """`mode` is the setting `static_points`, `engine` (height, width) of the engine's image."""
        self.mode, self.pixels = mode, StaticPixels(engine)
        self._share = self._often = 0.0  # of the matches that stand while the others move, and of frames with such: means of RECENT
        self._cells = np.zeros(GRID[0] * GRID[1])  # where in the image
        self._still = NOBODY  # in the newest frame
        self._clean = 0  # frames in turn in which points stand and hardly any was foreign

    def judge(self, rows: Rows, next_rows: Rows, before: Float32, after: Float32, size: Size, unit: float) -> Judged:
        """Points (N, 2) `before` and `after`, `rows` of the frame before and `next_rows` of this one; pixels of images of `size`.

        `unit` is pixels of the image to one of the engine's. Nothing is kept before `learn`.
        """
        points = Displacements(before, after, size, unit)
        if np.count_nonzero(points.standing) > NOTABLE * len(rows):
            if self._clean >= RECENT and self._clean % RARELY and not self.pixels.blocked:  # they stand on, and no more is known
                at = np.flatnonzero(points.standing)
                still = self._still.and_now(rows[at], before[at], np.zeros((len(at), 2, 2), np.float32))
                return Judged(None, standing=still._replace(rows=next_rows[at]))
            motion = points.common_motion()
            return NOTHING if motion is None else self._judge(rows, next_rows, points, motion)
        return Judged(None, float(np.sqrt(np.median(points.squares))) / unit) if self.pixels.blocked and len(rows) else NOTHING

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
        if judged.standing is not None:
            self._clean = self._clean + 1 if share < HARDLY else 0
        self._share += (share - self._share) / RECENT
        self._often += ((share > 0) - self._often) / RECENT
        if share and judged.cells is not None:
            self._cells += (judged.cells - self._cells) / RECENT
        if judged.motion_px and self.mode != 'keep':
            self.pixels.add(image, judged.motion_px)

    def forget_tracks(self) -> None:
        """The next frame has other rows."""
        self._still = NOBODY

    def _judge(self, rows: Rows, next_rows: Rows, points: Displacements, motion: CommonMotion) -> Judged:
        evidence = StaticEvidence(points, motion)
        at, unit = evidence.rows, points.unit
        now = np.stack([evidence.expected.take(at, axis=0), np.zeros_like(evidence.static)], axis=1)
        still = self._still.and_now(rows[at], evidence.static, now)
        stays = squares(points.after.take(at, axis=0) - still.anchors) < (STILL_PX * unit)**2
        static = stays & (squares(still.since[:, 0]) > (EXPECTED_PX * unit)**2)
        if self.mode != 'drop' and not self.pixels.blocked and np.count_nonzero(static) <= NOTABLE * len(rows):  # mostly far away
            return Judged(None, standing=_Still(next_rows[at][stays], still.anchors[stays], still.since[stays]))
        certain = self.mode == 'drop' or evidence.are_interleaved()
        if not (certain or evidence.camera_moves()):
            return NOTHING
        if not certain:
            still.since[:, 1] += evidence.off_lines()
            static &= (squares(still.since[:, 1]) > (CONTRADICTED_PX * unit)**2) | evidence.among_fast()
        foreign = np.zeros(len(rows), np.bool_)
        foreign[at[static]] = True
        many = self.pixels.blocked or np.count_nonzero(foreign) > NOTABLE * len(rows)
        motion_px = float(np.sqrt(np.median(squares(evidence.expected)))) / unit if many else 0.0
        standing = _Still(next_rows[at][stays], still.anchors[stays], still.since[stays])
        return Judged(foreign, motion_px, standing, per_cell(points.after[foreign], points.size))
