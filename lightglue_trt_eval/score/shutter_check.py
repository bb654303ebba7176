"""Whether images are of the times of their stamps, by matches and the true motion: a rolling shutter, or another clock.

A rolling shutter spoils the directions of steps where matches are a twentieth of a pixel off, and covariances do not show it: the
matches of a pair nearly fit one motion, which is another one. Over all pairs, one readout explains them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from lightglue_trt_ros.core.types import Float64

from ..predict.scene import SECOND, Scene
from .match_check import LEAST_PX, PairMatches, Rays, Sample, distances, sampson
from .mistake import Corrected
from .trajectory import known_poses

MOST, LEFT = 1.2, 0.8  # over the time between frames; share of the costs, of less no pose suffers
MOST_LATE, LEFT_BY_CLOCK = 1.0, 0.4  # of stamps, over the time between frames; share of the costs
SOFT = 3.0  # median distances, from which on they count less
STEPS = 60  # of a fit


def exposure_doubts(scene: Scene, known: Sample | None) -> list[str]:
    """A line where what half of the pairs find explains the others' distances: a readout a fifth, or a delay most; else none.

    `known`: matches, poses (P, 2, 4, 4) and frames of pairs.
    """
    camera, period_s = scene.intrinsics, scene.timeline.period_s
    if known is None or camera is None or scene.poses is None or period_s <= 0:
        return []
    sample, poses, frames = known
    moving, k = _Moving(poses, *_velocities(scene, frames)), camera.k
    soft = SOFT * float(np.median(np.abs(distances(sample, Corrected(k, poses)))))
    if soft <= 0:
        return []

    def off(half: PairMatches, given: Sequence[float]) -> Float64:
        delay, readout = given
        late = delay + readout * (half.recorded[:, :, 1] / camera.height - 0.5)
        return sampson(moving.rays(half, k, period_s * late), k[0, 0]) / soft

    fits, costs, halves = list[list[float]](), np.zeros(3), (sample.of(False), sample.of(True))
    for half, other in (halves, halves[::-1]):
        delayed = [*_fitted(partial(off, half), [0.0], [0.0]), 0.0]
        both = _fitted(partial(off, half), delayed)
        costs += [float(np.sum(np.log1p(off(other, each)**2))) for each in ([0.0, 0.0], delayed, both)]
        fits.append([delayed[0], both[1]])
    delay, readout = np.mean(fits, axis=0)
    if abs(readout) <= MOST and costs[2] <= LEFT * costs[1]:
        return [f'a rolling shutter: the camera reads the rows of an image over {1e3 * abs(readout) * period_s:.0f} ms, '
                f'{abs(readout):.2f} of the time between frames. Poses take an image as one moment, and are wrong where the camera '
                'rotates, by more than covariances have: use a global shutter, or one that reads faster']
    if abs(delay) <= MOST_LATE and costs[1] <= LEFT_BY_CLOCK * costs[0] and soft > SOFT * LEAST_PX:
        return [f'matches are {soft / SOFT:.2f} px off the epipolar lines of the true motion in the median, and much less if the '
                f'stamps of the ground truth are about {abs(delay) * period_s:.3f} s too {"late" if delay > 0 else "early"}: '
                'correct its clock']
    return []


def _fitted(off: Callable[[Sequence[float]], Float64], start: list[float], fixed: Sequence[float] = ()) -> list[float]:
    """The parameters before the `fixed` ones."""
    from scipy.optimize import least_squares
    found = least_squares(lambda given: off([*given, *fixed]), start, loss='cauchy', x_scale=0.01, max_nfev=STEPS)
    return [float(each) for each in found.x]


def _velocities(scene: Scene, frames: list[tuple[int, int]]) -> tuple[Float64, Float64]:
    """Of both cameras of pairs, (P, 2, 3) each: rotation vectors a second, in axes of the camera, and metres a second."""
    from scipy.spatial.transform import Rotation
    assert scene.poses is not None
    stamps, segments, known = scene.timeline.stamps_ns / SECOND, scene.timeline.segments, known_poses(scene.poses)
    around = np.array(frames)[..., None] + [-1, 1]  # frames before and after each
    own = np.repeat(np.array(frames)[..., None], 2, axis=2)
    inside = around.clip(0, len(stamps) - 1)
    around = np.where((inside == around) & known[inside] & (segments[inside] == segments[own]), inside, own)
    first, second = scene.poses[around[..., 0]], scene.poses[around[..., 1]]
    seconds = np.diff(stamps[around], axis=2)
    between = np.swapaxes(first[..., :3, :3], -1, -2) @ second[..., :3, :3]
    turns = Rotation.from_matrix(between.reshape(-1, 3, 3)).as_rotvec().reshape((*seconds.shape[:2], 3))
    return turns / seconds, (second[..., :3, 3] - first[..., :3, 3]) / seconds


class _Moving:
    """Cameras of pairs that go on evenly around the time of each image."""

    def __init__(self, poses: Float64, turns: Float64, speeds: Float64) -> None:
        self._poses, self._turns, self._speeds = poses, turns, speeds

    def rays(self, sample: PairMatches, k: Float64, late_s: Float64) -> Rays:
        """Of matches that were exposed `late_s` (N, 2) after the stamps of their images."""
        from scipy.spatial.transform import Rotation
        rotations, places = [], []
        for side in (0, 1):
            late = late_s[:, side, None]
            rotations.append(Rotation.from_matrix(self._poses[:, side, :3, :3])[sample.pair]
                             * Rotation.from_rotvec(late * self._turns[sample.pair, side]))
            places.append(self._poses[sample.pair, side, :3, 3] + late * self._speeds[sample.pair, side])
        steps = rotations[1].inv().apply(places[0] - places[1])
        steps /= np.maximum(np.linalg.norm(steps, axis=1, keepdims=True), 1e-12)
        between = rotations[1].inv() * rotations[0]
        plane = (sample.points - k[:2, 2]) / np.diag(k)[:2]
        first, second = (np.column_stack([plane[:, side], np.ones(len(steps))]) for side in (0, 1))
        return Rays(between.apply(first), second, steps, between.as_matrix())
