"""Whether a ground truth rotates as the images do, and which usual mistake explains it where it does not.

Rotations between frames need no scale, and nearly every method finds them. Where a mistake in the ground truth explains those of
most pairs, and the ground truth as it is does not, the pose errors are those of the mistake.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightglue_trt_ros.core.timing import usual_period
from lightglue_trt_ros.core.types import Float64
from lightglue_trt_ros.datasets.poses import Trajectory, angles_deg, interpolated, quaternions_from_rotations

from ..predict.scene import SECOND, Scene
from .pose_mistakes import INVERT, between, of_axes, reordered, swaps
from .trajectory import known_poses

LEAST_DEG, LEAST_PAIRS, MOST_PAIRS = 0.3, 10, 500  # pairs that rotate less say nothing; so many are enough
WRONG, RIGHT = 0.5, 0.25  # median difference over the usual rotation: with a mistake, and without it
CLOCK_DEG, LEFT = 0.1, 0.5  # median difference that a clock may cause, and the share that is left where the clock is right
LEAST_CLOCK_DEG, LEFT_OF_LESS = 0.03, 0.25  # of less more is explained; less spoils no pose
MOST_OFF_S, STEP_S, NEAR_PERIODS = 2.0, 0.01, 3  # of clocks that are tried; between poses that are joined
MOST = 2 / 3  # share of the pairs that a clock explains: frames out of order have one for half of them
NEARLY = 2.0  # times the least difference, of clocks that are nearly as good
LEAP_S = 0.0, 18.0, -18.0, 37.0, -37.0  # of clocks: those of GPS and of TAI are ahead of UTC
SAME, LEAST_FROZEN, HELD = 1e-9, 3, 0.5  # of a pose's entries; pairs; others to one of these, where every third pose is new
NEVER_DEG = 1e-4  # largest rotation of a ground truth without rotations
ABOVE_NOISE = 5  # rotations about a second axis, over what is left
LEFT_HANDED = '; mirror axes that are left-handed, as those of Unity and CARLA are'

class Clock(NamedTuple):
    """Stamps of the ground truth that are moved."""

    late_s: float
    difference_deg: float  # median, that is left
    most_deg: float = np.inf  # of MOST of the pairs


class OtherAxes(NamedTuple):
    """Axes of a frame, by which its rotations fit best."""

    left_deg: float  # median difference
    reason: str
    is_known: bool  # which axes these are


class TruthCheck:
    """Gets the rotations that images show, pair by pair; `doubts` compare them with those of the ground truth."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self._frames, self._rotations = scene, list[tuple[int, int]](), list[Float64]()
        self._count = 0  # pairs
        self._frozen = 0  # pairs that rotate, and have one and the same true pose

    def add(self, frames: tuple[int, int], rotation: Float64) -> None:
        """The rotation (3, 3) of a pair's second camera from the first."""
        poses = self._scene.poses
        self._count += 1
        if poses is None or not known_poses(poses[list(frames)]).all() or angles_deg(rotation)[0] < LEAST_DEG:
            return
        if np.abs(poses[frames[0]] - poses[frames[1]]).max() < SAME:
            self._frozen += 1
            return
        self._frames.append(frames)
        self._rotations.append(rotation)

    @property
    def doubts(self) -> list[str]:
        """Lines for people; none where the ground truth is right, or no usual mistake explains it."""
        count = len(self._frames)
        is_held = self._frozen >= LEAST_FROZEN and self._frozen + count >= LEAST_PAIRS and \
            count >= min(LEAST_PAIRS, HELD * self._frozen)
        lines = [self._mistake(with_clock=not is_held)]
        if is_held:
            lines.append(f'the ground truth stands still in {self._frozen} of {self._frozen + count} pairs of frames that rotate: '
                         'its tracker may repeat a pose while it sees nothing; remove these poses')
        return list(filter(None, lines))

    def _mistake(self, with_clock: bool) -> str:
        """`with_clock`: also of a clock, which poses that are held seem to have."""
        if len(self._frames) < LEAST_PAIRS or self._scene.poses is None:
            return ''
        rows = np.unique(np.linspace(0, len(self._frames) - 1, MOST_PAIRS).round().astype(np.int64))
        pairs, seen = np.array(self._frames)[rows], np.array(self._rotations)[rows]
        poses, usual = self._scene.poses[pairs], float(np.median(angles_deg(seen)))
        if 2 * len(self._frames) > self._count and angles_deg(between(poses)).max() < NEVER_DEG:
            return (f'the ground truth never rotates, and the images do, by {usual:.2f} degrees a frame: its rotations are not '
                    'those of the camera, as of GPS, which has only positions. Nothing that is scored by it is right')
        found = _apart(seen, poses)
        explained = _without_mistakes(poses, seen, found, usual)
        if not explained and with_clock and found > LEAST_CLOCK_DEG:
            explained = self._clock(pairs, seen, found, usual)
        if not explained:
            return ''
        return (f'the ground truth does not rotate as the images do: these rotate by {usual:.2f} degrees a frame, it differs by '
                f'{found:.2f}, and only by {min(explained.values()):.2f} if {", or if ".join(explained)}')

    def _clock(self, pairs: NDArray[np.int64], seen: Float64, found: float, usual: float) -> dict[str, float]:
        """As `_without_mistakes`, of a clock."""
        clock = self._best_clock(pairs, seen)
        if clock.difference_deg >= min((LEFT if found > CLOCK_DEG else LEFT_OF_LESS) * found, RIGHT * usual) or \
                clock.most_deg >= WRONG * usual:
            return {}
        late = 'late' if clock.late_s > 0 else 'early'
        leap = '; GPS and TAI are 18 and 37 s ahead of UTC' if abs(clock.late_s) > MOST_OFF_S else ''
        return {f'its stamps are about {abs(clock.late_s):.2f} s too {late}: correct its clock{leap}': clock.difference_deg}

    def _best_clock(self, pairs: NDArray[np.int64], seen: Float64) -> Clock:
        """The clock by which the ground truth fits best."""
        assert self._scene.poses is not None
        stamps, known = self._scene.timeline.stamps_ns, known_poses(self._scene.poses)
        truth = Trajectory(stamps[known], self._scene.poses[known]).ordered()
        period = usual_period(truth.stamps_ns.tolist())
        tried = [Clock(0.0, np.inf)]
        near = np.arange(-MOST_OFF_S * SECOND, MOST_OFF_S * SECOND + 1, STEP_S * SECOND)
        for late_ns in np.concatenate([near + leap * SECOND for leap in LEAP_S]):
            at = stamps[pairs] + round(late_ns)
            after = np.searchsorted(truth.stamps_ns, at).clip(1, len(truth) - 1)
            first, second = truth.stamps_ns[after - 1], truth.stamps_ns[after]
            inside = ((first <= at) & (at <= second) & (second - first <= NEAR_PERIODS * period)).all(axis=1)
            if 2 * inside.sum() < len(pairs):
                continue
            share = ((at - first) / (second - first))[inside].ravel()
            rows = after[inside].ravel()
            poses = interpolated(truth.poses[rows - 1], truth.poses[rows], share).reshape(-1, 2, 4, 4)
            apart = np.sort(angles_deg(seen[inside].transpose(0, 2, 1) @ between(poses)))
            if abs(late_ns) <= MOST_OFF_S * SECOND:  # leap seconds are known, and may be most of a recording; of others the pairs
                apart = np.append(apart, np.full(len(pairs) - len(apart), np.inf))  # that no truth is for are not explained
            tried.append(Clock(late_ns / SECOND, float(np.median(apart)), float(apart[int(MOST * len(apart))])))
        return _middle(tried)


def _middle(tried: list[Clock]) -> Clock:
    """The middle of the clocks around the best one that are nearly as good, which noise moves less than the best itself."""
    best = min(range(len(tried)), key=lambda k: tried[k].difference_deg)
    good = [clock.difference_deg <= NEARLY * tried[best].difference_deg for clock in tried]
    before, after = (next((k for k, is_good in enumerate(side) if not is_good), len(side))
                     for side in (good[:best][::-1], good[best + 1:]))
    return tried[best]._replace(late_s=(tried[best - before].late_s + tried[best + after].late_s) / 2)


def _without_mistakes(poses: Float64, seen: Float64, found: float, usual: float) -> dict[str, float]:
    """Mistakes in `poses` (N, 2, 4, 4) of pairs that explain their rotations, and the median difference in degrees without each.

    It is `found` with them, where images rotate by the `usual` angle. Another order of quaternions may change rotations by little.
    """
    wrong = found > WRONG * usual
    tried = reordered(poses) if found > CLOCK_DEG else {}
    if wrong:
        tried = {INVERT: np.asarray(np.linalg.inv(poses), np.float64), **tried}
    left = {reason: _apart(seen, each) for reason, each in tried.items()}
    if wrong:
        own, inverted = _of_axes(poses, seen), _of_axes(tried[INVERT], seen)
        is_view = inverted.is_known and inverted.left_deg < LEFT * min(own.left_deg, left[INVERT])
        left = {**({f'{INVERT}, and then {inverted.reason}': inverted.left_deg} if is_view else
                   {f'{own.reason}{LEFT_HANDED}': own.left_deg}), **left}
    return {reason: each for reason, each in left.items() if each < RIGHT * (usual if wrong else found)}


def _of_axes(poses: Float64, seen: Float64) -> OtherAxes:
    """The same of a frame with other axes than the camera."""
    vectors, others = _vectors(seen), _vectors(between(poses))
    axes, second = np.eye(3), 0.0
    off = np.abs(np.linalg.norm(others, axis=1) - np.linalg.norm(vectors, axis=1))  # other axes keep the angle
    for _ in range(3):  # wrong pairs fall out
        near = off <= np.median(off)
        left, sizes, right = np.linalg.svd(others[near].T @ vectors[near])
        axes = left @ np.diag([1, 1, np.linalg.det(left @ right)]) @ right
        off, second = np.linalg.norm(others - vectors @ axes.T, axis=1), float(np.sqrt(sizes[1] / near.sum()))
    are_known = second > ABOVE_NOISE * float(np.median(off))
    return OtherAxes(float(np.degrees(np.median(off))), of_axes(axes, are_known), are_known and swaps(axes))


def _apart(seen: Float64, poses: Float64) -> float:
    """Median angle between rotations (N, 3, 3) and those of true poses (N, 2, 4, 4), degrees."""
    return float(np.median(angles_deg(seen.transpose(0, 2, 1) @ between(poses))))


def _vectors(rotations: Float64) -> Float64:
    """Rotation vectors (N, 3) of rotations (N, 3, 3)."""
    axes = quaternions_from_rotations(rotations)[:, :3]
    lengths = np.linalg.norm(axes, axis=1, keepdims=True)
    return np.asarray(np.radians(angles_deg(rotations))[:, None] * axes / np.maximum(lengths, 1e-12), np.float64)
