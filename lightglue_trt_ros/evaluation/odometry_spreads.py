"""How sure the figures of a trajectory are: the bootstrap over its steps and segments, and over trajectories of the same steps."""

from __future__ import annotations

import math

import numpy as np

from ..core.types import Float64
from .confidence import LEVEL, SEED, Spread, dependence, drawn_blocks, mean_spread, ratio_spread
from .trajectory import Drift, align_sim3, ate, known_poses, step_errors

TRAJECTORIES = 200  # that are drawn
_CHUNK = 100_000  # poses of them that are held at a time


def odometry_spreads(poses: Float64, truth: Float64, drift: Drift | None) -> dict[str, Spread]:
    """The intervals of a trajectory's figures: poses (N, 4, 4) as chained, truth (N, 4, 4) with NaN where it is unknown.

    One trajectory is one draw: its ATE is set beside those of trajectories that make the same errors, step by step, at other
    places, several consecutive steps at a time. Segments count by the frame where they begin: those of neighbouring ones overlap.
    """
    found = {}
    lengths, angles = step_errors(poses, truth)
    if len(lengths):
        found = {'rpe_m': _root(mean_spread(lengths**2)), 'rpe_deg': _root(mean_spread(angles**2)), 'ate_m': _ate(poses, truth)}
    if drift is not None:
        starts, places = np.unique(drift.starts, return_inverse=True)
        counts = np.bincount(places)
        sums = [np.bincount(places, errors, len(starts)) for errors in (drift.translations, drift.rotations)]
        found |= {'drift_percent': ratio_spread(sums[0], counts).scaled(100), 'drift_deg_per_m': ratio_spread(sums[1], counts)}
    return found


def _ate(poses: Float64, truth: Float64) -> Spread:
    rows = known_poses(truth)
    true, chained = truth[rows], poses[rows]
    steps = np.linalg.solve(true[:-1], true[1:])
    errors = np.linalg.solve(steps, np.linalg.solve(chained[:-1], chained[1:]))
    block = dependence(np.hstack([errors[:, :3, 3], (errors - errors.transpose(0, 2, 1))[:, (0, 0, 1), (1, 2, 2)]])).block
    rng, found = np.random.default_rng(SEED), list[float]()
    for start in range(0, TRAJECTORIES, step := max(1, _CHUNK // len(true))):
        drawn = drawn_blocks(len(steps), block, min(step, TRAJECTORIES - start), rng)
        others = np.tile(np.eye(4), (len(drawn), len(true), 1, 1))
        for number in range(len(steps)):
            others[:, number + 1] = others[:, number] @ steps[number] @ errors[drawn[:, number]]
        for other in others:
            alignment = align_sim3(other, true)
            value = None if alignment is None else ate(alignment.apply(other), true)
            found += [] if value is None else [value]
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Spread(float(low), float(high), len(steps))


def _root(squared: Spread) -> Spread:
    return Spread(math.sqrt(squared.low), math.sqrt(squared.high), squared.size)
