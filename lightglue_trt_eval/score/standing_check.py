"""Whether matches stand in the image although the true motion moves them: on a part of the robot, dirt, what is behind a turntable.

Where most matches are on such, the images alone do not show it: it could as well be a camera that stands, before which the rest
moves. The true motion does, where those that move are near its epipolar lines.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lightglue_trt_ros.core.static_evidence import LEAST, MOVING_PX, STILL_PX
from lightglue_trt_ros.core.static_points import CONTRADICTED_PX
from lightglue_trt_ros.core.types import CAUSES, Float64
from lightglue_trt_ros.datasets.poses import angles_deg

from ..baselines import MatchedPoints
from ..predict.scene import Motion

ALL, OFF, REPEATED = 0.75, 0.5, 3  # shares of the matches that stand (noise moves the rest) and that should not; such pairs
BY_STEP = 4  # times MOVING_PX that a true step moves points at the usual depth: it moves those near the middle by a part of it
NEARLY_ALL, SEEN_PX = 0.9, 5.0  # share of the pairs that stand, and what the truth of all moves the picture by, of one picture
FAR_M, REACH = 100.0, 5  # farthest usual depth; times its usual step that a true motion gets from its start: noise gets no two
MANY = 0.25  # share of the matches that stand, in half of the pairs; where fewer move with the scene, poses are of these


class _Pair(NamedTuple):
    stands: bool  # nearly all of the picture
    is_off: bool  # much of it is off the true epipolar lines
    focal_px: float  # of the engine's image
    motion: Motion | None
    moved_px: Float64  # (3,) right, down and away from the middle: medians
    poses: Float64 | None  # (2, 4, 4) true ones of both frames

    def step_px(self, depth_m: float) -> float:
        return 0.0 if self.motion is None else self.focal_px * self.motion.step_m / depth_m


class StandingCheck:
    """Gets the matches of pairs; `doubts` is of those that stand."""

    def __init__(self) -> None:
        self._shares: dict[int, list[float]] = {}  # of the matches of each pair, by stride
        self._pairs = list[_Pair]()  # of consecutive frames

    def add(self, stride: int, points: MatchedPoints, errors_px: Float64 | None, unit: float, motion: Motion | None = None,
            focal_px: float = 0.0, poses: Float64 | None = None) -> None:
        """`errors_px` (M,) are distances to true epipolar lines; `unit` is pixels of the image to one of the engine's."""
        if errors_px is None:
            return
        moved = (np.asarray(points.current, np.float64) - points.reference) / unit
        steps = np.linalg.norm(moved, axis=1)
        off = errors_px > CONTRADICTED_PX * unit
        stand, move = (np.count_nonzero(each) for each in ((steps < STILL_PX) & off, (steps > MOVING_PX) & ~off))
        if stride == 1 and len(steps) >= LEAST:
            stands, is_off = bool(np.mean(steps < STILL_PX) > ALL), bool(np.mean(off) > OFF)
            away = points.reference - np.mean(points.reference, axis=0)
            radial = np.sum(moved * away, axis=1) / np.maximum(np.linalg.norm(away, axis=1), 1e-9)
            self._pairs.append(_Pair(stands, is_off, focal_px / unit, motion,
                                     np.median(np.column_stack([moved, radial]), axis=0), poses))
        self._shares.setdefault(stride, []).append(stand / len(steps) if LEAST <= move < stand else 0.0)

    @property
    def _repeated(self) -> int:
        """Pairs of consecutive frames with one picture. On a step without rotation, points that stand are on their true lines."""
        depths = [each.motion.step_m / each.motion.per_depth for each in self._pairs
                  if not each.stands and each.motion is not None and each.motion.resolved and each.motion.per_depth]
        depth_m = float(np.median(depths)) if len(depths) >= REPEATED else np.inf
        return sum(each.stands and (each.is_off or each.step_px(depth_m) > BY_STEP * MOVING_PX) for each in self._pairs)

    @property
    def one_picture(self) -> list[str]:
        """A line where all images are one picture, and the truth goes somewhere: such matches tell nothing else of it."""
        true = [each.poses for each in self._pairs if each.poses is not None]
        stand = [each.stands for each in self._pairs]
        if len(true) < 2 * REPEATED or np.mean(stand) < NEARLY_ALL or \
                np.abs(np.sum([each.moved_px for each in self._pairs], axis=0)).max() > 1:
            return []
        path = np.stack([true[0][0], *(each[1] for each in true)])
        metres = np.linalg.norm(path[:, :3, 3] - path[0, :3, 3], axis=1)
        degrees = angles_deg(path[0, :3, :3].T @ path[:, :3, :3])
        usual = np.array([np.median(np.linalg.norm(np.diff(path[:, :3, 3], axis=0), axis=1)),
                          np.median(angles_deg(np.swapaxes(path[:-1, :3, :3], 1, 2) @ path[1:, :3, :3]))])
        most = np.array([metres.max(), degrees.max()])
        seen_px = np.where(most > REACH * usual, most * [1 / FAR_M, np.pi / 180], 0) * self._pairs[0].focal_px
        return [f'the picture stands in {sum(stand)} of {len(stand)} pairs of frames, and the ground truth goes {most[0]:.2g} m '
                f'and {most[1]:.2g} degrees from its start: the camera or its driver repeats one picture, or the ground truth '
                'is of another recording'] * bool(seen_px.max() > SEEN_PX)

    @property
    def doubts(self) -> list[str]:
        """A line, none where few stand."""
        if (repeated := self._repeated) >= REPEATED and repeated < len(self._pairs):
            return [f'in {repeated} of {len(self._pairs)} pairs of frames the whole picture stands while the true motion moves '
                    'it: the camera or its driver repeats pictures, as thermal cameras do that calibrate, or the ground truth has '
                    'noise or another clock there; leave these frames out']
        share, stride = max(((float(np.median(shares)), stride) for stride, shares in self._shares.items()), default=(0.0, 1))
        if share < MANY:
            return []
        apart = f', in frames {stride} apart,' if stride > 1 else ''
        return [f'{share:.0%} of the matches{apart} stand still where the true motion moves them, fewer move with it, and poses '
                f'are of those that stand: give --static-points drop. It is {CAUSES}']
