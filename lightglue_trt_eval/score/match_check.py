"""Which usual mistake in calibration or ground truth explains that matches are off the epipolar lines of the true motion.

Each mistake is fitted to the matches of every second pair, and judged by those of the others: the matches of wrong pairs, and of
things that move, are no mistake. Of two mistakes that explain as much both are named.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightglue_trt_ros.core.types import Float64

from ..baselines import MatchedPoints
from ..predict.scene import MIN_BASELINE_M, Scene, Straight
from .usual_mistakes import Corrected, Mistake, between, mistakes

LEAST_PAIRS, MOST_PAIRS, POINTS = 6, 100, 50  # of consecutive frames; so many, and so many points of each, are enough
LEFT_PX, LEFT, ALIKE = 0.6, 0.6, 1.25  # median distance without a mistake; shares of one with it, and of the best
NOISE_PX, LEFT_OF_LESS, LEAST_PX = 0.3, 1 / 3, 0.1  # of most true motions: of less more is explained; less spoils no pose
SOFT_PX, STEPS = 1.0, 60  # distances from which on they count less in a fit; of a fit
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


class MatchCheck:
    """Gets the matches of consecutive frames; `doubts` are lines for people."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self._every, self._seen = scene, 1, 0
        self._pairs: list[tuple[Float64, Float64, Float64]] = []  # points, as recorded, and poses (2, 4, 4)
        self._frames: list[tuple[int, int]] = []  # of these

    def add(self, frames: tuple[int, int], points: MatchedPoints, straight: Straight) -> None:
        step, poses = self._scene.step_m(frames), self._scene.poses
        if poses is None or step is None or step <= MIN_BASELINE_M or self._scene.camera(frames) is None:
            return
        both = np.stack(straight.points, axis=1)
        rows = np.flatnonzero(np.isfinite(both).all(axis=(1, 2)))
        self._seen += 1
        if len(rows) < POINTS or self._seen % self._every:
            return
        rows = rows[np.linspace(0, len(rows) - 1, POINTS).astype(np.int64)]
        recorded = np.stack([points.reference, points.current], axis=1)[rows].astype(np.float64)
        self._pairs.append((both[rows], recorded, poses[list(frames)]))
        self._frames.append(frames)
        if len(self._pairs) >= 2 * MOST_PAIRS:
            self._pairs, self._frames, self._every = self._pairs[::2], self._frames[::2], 2 * self._every

    @property
    def sample(self) -> tuple[PairMatches, Float64, list[tuple[int, int]]] | None:
        """The matches, the poses (P, 2, 4, 4) of their pairs, and these pairs' frames; None of too few."""
        if self._scene.intrinsics is None or len(self._pairs) < LEAST_PAIRS:
            return None
        points, recorded, poses = (np.stack(parts) for parts in zip(*self._pairs, strict=True))
        numbers = np.repeat(np.arange(len(points)), POINTS)
        return PairMatches(numbers, points.reshape(-1, 2, 2), recorded.reshape(-1, 2, 2)), poses, self._frames

    @property
    def doubts(self) -> tuple[list[str], bool]:
        """Lines, none where matches fit or no usual mistake explains them; and whether these are surer than what rotations tell."""
        camera, known = self._scene.intrinsics, self.sample
        if camera is None or known is None:
            return [], False
        sample, poses, _ = known
        found = _median(sample.of(True), Corrected(camera.k, poses))
        if found < LEAST_PX:
            return [], False
        explained = [_explained(mistake, sample) for mistake in mistakes(camera, poses)]
        least = min(each.left_px for each in explained)
        if least > min((LEFT if found > NOISE_PX else LEFT_OF_LESS) * found, LEFT_PX):
            return [], False
        alike = [each for each in explained if each.reason and each.left_px <= ALIKE * least]
        alike = [each for each in alike if not each.is_fitted] or alike
        if not alike:
            return [], False
        return ['matches are off the epipolar lines of the true motion: '
                f'{found:.2f} px in the median, and only {least:.2f} if {", or if ".join(each.reason for each in alike)}'], \
            any(each.is_surer for each in alike)


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
    return float(np.median(np.abs(distances(sample, model))))


class Rays(NamedTuple):
    """Of N matches, in the axes of the second camera."""

    first: Float64  # (N, 3)
    second: Float64
    step: Float64  # to the first camera, of length 1
    rotations: Float64  # (N, 3, 3) from the axes of the first camera


def distances(sample: PairMatches, model: Corrected) -> Float64:
    """Distances (N,) of matches from their epipolar lines, pixels."""
    return sampson(_rays(sample, model), float(model.k[0, 0]))


def sampson(rays: Rays, focal_px: float) -> Float64:
    """Those of rays, to the first order."""
    lines = np.cross(rays.step, rays.first)
    back = np.einsum('nji,nj->ni', rays.rotations, np.cross(rays.second, rays.step))
    size = np.sqrt(np.sum(lines[:, :2]**2, axis=1) + np.sum(back[:, :2]**2, axis=1))
    return np.asarray(focal_px * np.sum(lines * rays.second, axis=1) / np.maximum(size, 1e-12), np.float64)


def _before(sample: PairMatches, model: Corrected) -> float:
    """Share of points before the second camera."""
    rays = _rays(sample, model)
    return float(np.mean(np.sum(np.cross(rays.step, rays.first) * np.cross(rays.second, rays.first), axis=1) > 0))


def _rays(sample: PairMatches, model: Corrected) -> Rays:
    steps = np.einsum('pji,pj->pi', model.poses[:, 1, :3, :3], model.poses[:, 0, :3, 3] - model.poses[:, 1, :3, 3])
    steps = steps / np.maximum(np.linalg.norm(steps, axis=1, keepdims=True), 1e-12)
    plane = ((sample.recorded if model.as_recorded else sample.points) - model.k[:2, 2]) / np.diag(model.k)[:2]
    plane = plane * (1 + model.bend * np.sum(plane**2, axis=2, keepdims=True))
    rays = np.concatenate([plane, np.ones((len(plane), 2, 1))], axis=2)
    rotations = between(model.poses)[sample.pair]
    return Rays(np.einsum('nij,nj->ni', rotations, rays[:, 0]), rays[:, 1], steps[sample.pair], rotations)
