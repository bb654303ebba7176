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

from ..baselines import MatchedPoints
from ..predict.scene import Motion

ALL, OFF, REPEATED = 0.75, 0.5, 3  # shares of the matches that stand (noise moves the rest) and that should not; such pairs
BY_STEP = 4  # times MOVING_PX that a true step moves points at the usual depth: it moves those near the middle by a part of it
MANY = 0.25  # share of the matches that stand, in half of the pairs; where fewer move with the scene, poses are of these


class _Pair(NamedTuple):
    stands: bool  # nearly all of the picture
    is_off: bool  # much of it is off the true epipolar lines
    focal_px: float  # of the engine's image
    motion: Motion | None

    def step_px(self, depth_m: float) -> float:
        return 0.0 if self.motion is None else self.focal_px * self.motion.step_m / depth_m


class StandingCheck:
    """Gets the matches of pairs; `doubts` is of those that stand."""

    def __init__(self) -> None:
        self._shares: dict[int, list[float]] = {}  # of the matches of each pair, by stride
        self._pairs = list[_Pair]()  # of consecutive frames

    def add(self, stride: int, points: MatchedPoints, errors_px: Float64 | None, unit: float, motion: Motion | None = None,
            focal_px: float = 0.0) -> None:
        """`errors_px` (M,) are distances to true epipolar lines; `unit` is pixels of the image to one of the engine's."""
        if errors_px is None:
            return
        steps = np.linalg.norm(np.asarray(points.current, np.float64) - points.reference, axis=1) / unit
        off = errors_px > CONTRADICTED_PX * unit
        stand, move = (np.count_nonzero(each) for each in ((steps < STILL_PX) & off, (steps > MOVING_PX) & ~off))
        if stride == 1 and len(steps) >= LEAST:
            stands, is_off = bool(np.mean(steps < STILL_PX) > ALL), bool(np.mean(off) > OFF)
            self._pairs.append(_Pair(stands, is_off, focal_px / unit, motion))
        self._shares.setdefault(stride, []).append(stand / len(steps) if LEAST <= move < stand else 0.0)

    @property
    def _repeated(self) -> int:
        """Pairs of consecutive frames with one picture. On a step without rotation, points that stand are on their true lines."""
        depths = [each.motion.step_m / each.motion.per_depth for each in self._pairs
                  if not each.stands and each.motion is not None and each.motion.resolved and each.motion.per_depth]
        depth_m = float(np.median(depths)) if len(depths) >= REPEATED else np.inf
        return sum(each.stands and (each.is_off or each.step_px(depth_m) > BY_STEP * MOVING_PX) for each in self._pairs)

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
