"""Which usual mistake in calibration or ground truth explains that matches are off the epipolar lines of the true motion.

Each mistake is fitted to the matches of every second pair, and judged by those of the others: the matches of wrong pairs, and of
things that move, are no mistake. Of two mistakes that explain as much both are named.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightglue_trt_ros.core.types import Float64
from lightglue_trt_ros.datasets.poses import angles_deg

from ..baselines import MatchedPoints
from ..predict.scene import MIN_BASELINE_M, Scene, Straight
from .calibration_mistakes import mistakes_of_camera
from .mistake import Corrected, Mistake
from .pose_mistakes import between, mistakes_of_conventions, mistakes_of_frames

LEAST_PAIRS, MOST_PAIRS, POINTS = 6, 100, 50  # of consecutive frames; so many, and so many points of each, are enough
LEFT_PX, LEFT, ALIKE = 0.6, 0.6, 1.25  # median distance without a mistake; shares of one with it, and of the best
NOISE_PX, LEFT_OF_LESS, LEAST_PX = 0.3, 1 / 3, 0.1  # of most true motions: of less more is explained; less spoils no pose
SOFT_PX, STEPS = 1.0, 60  # distances from which on they count less in a fit; of a fit
LEAST_DEG = 0.01  # usual rotation of a ground truth without steps: one that stands tells nothing of the camera
BEHIND = 0.3  # share of points before both cameras, where the true steps are reversed


class PairMatches(NamedTuple):
    """Matches of pairs."""

    pair: NDArray[np.int64]  # (N,) row of the poses
    points: Float64  # (N, 2, 2) of both images, without the lens's distortion
    recorded: Float64  # the same with it

    def of(self, odd: bool) -> PairMatches:
        """Those of every second pair."""
        rows = self.pair % 2 == odd
        return PairMatches(self.pair[rows], self.points[rows], self.recorded[rows])


class Explained(NamedTuple):
    """A mistake that was fitted."""

    left_px: float  # median distance, of the pairs that judge
    reason: str  # empty: no camera has it, and yet it may explain more than those that cameras have
    is_fitted: bool
    is_surer: bool  # than what rotations tell


Sample = tuple[PairMatches, Float64, list[tuple[int, int]]]  # matches, poses (P, 2, 4, 4) of their pairs, and these pairs' frames


class _Kept:
    """As many matches of as many pairs as are needed, from all over the recording."""

    def __init__(self) -> None:
        self._every, self._seen = 1, 0
        self._pairs: list[tuple[Float64, Float64, Float64]] = []  # points, as recorded, and poses (2, 4, 4)
        self._frames: list[tuple[int, int]] = []  # of these

    def add(self, frames: tuple[int, int], points: MatchedPoints, straight: Straight, poses: Float64) -> None:
        both = np.stack(straight.points, axis=1)
        rows = np.flatnonzero(np.isfinite(both).all(axis=(1, 2)))
        self._seen += 1
        if len(rows) < POINTS or self._seen % self._every:
            return
        rows = rows[np.linspace(0, len(rows) - 1, POINTS).astype(np.int64)]
        recorded = np.stack([points.reference, points.current], axis=1)[rows].astype(np.float64)
        self._pairs.append((both[rows], recorded, poses))
        self._frames.append(frames)
        if len(self._pairs) >= 2 * MOST_PAIRS:
            self._pairs, self._frames, self._every = self._pairs[::2], self._frames[::2], 2 * self._every

    @property
    def sample(self) -> Sample | None:
        """None of too few."""
        if len(self._pairs) < LEAST_PAIRS:
            return None
        points, recorded, poses = (np.stack(parts) for parts in zip(*self._pairs, strict=True))
        numbers = np.repeat(np.arange(len(points)), POINTS)
        return PairMatches(numbers, points.reshape(-1, 2, 2), recorded.reshape(-1, 2, 2)), poses, self._frames


class MatchCheck:
    """Gets the matches of consecutive frames; `doubts` are lines for people."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self._moving, self._rotating = scene, _Kept(), _Kept()  # pairs with a step, and without one

    def add(self, frames: tuple[int, int], points: MatchedPoints, straight: Straight) -> None:
        step, poses = self._scene.step_m(frames), self._scene.poses
        if poses is not None and step is not None and self._scene.camera(frames) is not None:
            kept = self._moving if step > MIN_BASELINE_M else self._rotating
            kept.add(frames, points, straight, poses[list(frames)])

    @property
    def sample(self) -> Sample | None:
        """Of pairs with a step."""
        return self._moving.sample

    @property
    def doubts(self) -> tuple[list[str], bool]:
        """Lines, none where matches fit or no usual mistake explains them; and whether these are surer than what rotations tell."""
        camera, other_view = self._scene.intrinsics, self._scene.other_view
        if camera is None:
            return [], False
        if (known := self._moving.sample) is not None:
            sample, poses, _ = known
            tried = [*mistakes_of_conventions(camera.k, poses), *mistakes_of_camera(camera, poses, other_view),
                     *mistakes_of_frames(camera.k, poses)]
            return _doubts(camera.k, sample, poses, tried, 'are off the epipolar lines of')
        if (known := self._rotating.sample) is not None and np.median(angles_deg(between(known[1]))) > LEAST_DEG:
            sample, poses = known[0], _with_steps(known[1])
            return _doubts(camera.k, sample, poses, mistakes_of_camera(camera, poses, other_view),
                           'without a step are not where they are by')
        return [], False


def _doubts(k: Float64, sample: PairMatches, poses: Float64, tried: list[Mistake], off: str) -> tuple[list[str], bool]:
    found = _median(sample.of(True), Corrected(k, poses))
    if found < LEAST_PX:
        return [], False
    explained = [_explained(mistake, sample) for mistake in tried]
    least = min(each.left_px for each in explained)
    if least > min((LEFT if found > NOISE_PX else LEFT_OF_LESS) * found, LEFT_PX):
        return [], False
    alike = [each for each in explained if each.reason and each.left_px <= ALIKE * least]
    alike = [each for each in alike if not each.is_fitted] or alike
    if not alike:
        return [], False
    return [f'matches {off} the true motion: {found:.2f} px in the median, and only {least:.2f} if '
            f'{", or if ".join(each.reason for each in alike)}'], any(each.is_surer for each in alike)


def _with_steps(poses: Float64) -> Float64:
    """Poses (P, 2, 4, 4) of cameras that only rotate, with steps along x or y: matches of such are on the lines of any step."""
    changed = poses.copy()
    axes = np.arange(len(poses)) // 2 % 2  # both in each half of the pairs
    changed[:, 1, :3, 3] = poses[:, 0, :3, 3] + poses[np.arange(len(poses)), 1, :3, axes]
    return changed


def _explained(mistake: Mistake, sample: PairMatches) -> Explained:
    """The mistake of its kind that fits best."""
    fitted, judged = sample.of(False), sample.of(True)
    best = min(mistake.starts, key=lambda each: _median(fitted, mistake.model(each)))
    ends = [_fitted(mistake, fitted, each) for each in (best, np.zeros(len(best)))] if len(best) else [best]
    start = min(ends, key=lambda each: _median(fitted, mistake.model(each)))
    model = mistake.model(start)
    is_reversed = _before(judged, model) < BEHIND
    return Explained(_median(judged, model), mistake.reason(start, is_reversed), len(start) > 0, mistake.is_surer(is_reversed))


def _fitted(mistake: Mistake, matches: PairMatches, start: Float64) -> Float64:
    from scipy.optimize import least_squares
    found = least_squares(lambda given: distances(matches, mistake.model(given)), start, loss='cauchy', f_scale=SOFT_PX,
                          x_scale=0.01, max_nfev=STEPS)
    return np.asarray(found.x, np.float64)


def _median(sample: PairMatches, model: Corrected) -> float:
    found = np.abs(distances(sample, model))
    return float(np.median(np.where(np.isnan(found), np.inf, found)))  # NaN: no lens shows the point there


class Rays(NamedTuple):
    """Of N matches, in the axes of the second camera."""

    first: Float64  # (N, 3)
    second: Float64
    step: Float64  # to the first camera, of length 1
    rotations: Float64  # (N, 3, 3) from the axes of the first camera


def distances(sample: PairMatches, model: Corrected) -> Float64:
    """Distances (N,) of matches from their epipolar lines, pixels."""
    return sampson(rays_of(sample, model), float(model.k[0, 0]))


def sampson(rays: Rays, focal_px: float) -> Float64:
    """Those of rays, to the first order."""
    lines = np.cross(rays.step, rays.first)
    back = np.einsum('nji,nj->ni', rays.rotations, np.cross(rays.second, rays.step))
    size = np.sqrt(np.sum(lines[:, :2]**2, axis=1) + np.sum(back[:, :2]**2, axis=1))
    return np.asarray(focal_px * np.sum(lines * rays.second, axis=1) / np.maximum(size, 1e-12), np.float64)


def _before(sample: PairMatches, model: Corrected) -> float:
    """Share of points before the second camera."""
    rays = rays_of(sample, model)
    return float(np.mean(np.sum(np.cross(rays.step, rays.first) * np.cross(rays.second, rays.first), axis=1) > 0))


def rays_of(sample: PairMatches, model: Corrected) -> Rays:
    """Those of matches, as a model has the camera and the poses."""
    steps = np.einsum('pji,pj->pi', model.poses[:, 1, :3, :3], model.poses[:, 0, :3, 3] - model.poses[:, 1, :3, 3])
    steps = steps / np.maximum(np.linalg.norm(steps, axis=1, keepdims=True), 1e-12)
    seen = sample.points if model.view is None else model.view.lens.undistorted(sample.recorded.reshape(-1, 2)).points
    plane = (seen.reshape(-1, 2, 2) - model.k[:2, 2]) / np.diag(model.k)[:2]
    plane = plane * (1 + model.bend * np.sum(plane**2, axis=2, keepdims=True))
    rays = np.concatenate([plane, np.ones((len(plane), 2, 1))], axis=2)
    rotations = between(model.poses)[sample.pair]
    return Rays(np.einsum('nij,nj->ni', rotations, rays[:, 0]), rays[:, 1], steps[sample.pair], rotations)
