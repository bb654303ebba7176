"""Ground truth that is slower than the images: how far it is off between its poses, where a constant motion is assumed."""

from __future__ import annotations

import numpy as np

from lightglue_trt_ros.core.timing import usual_period
from lightglue_trt_ros.core.types import Float64
from lightglue_trt_ros.datasets.poses import Trajectory, angles_deg, interpolated

from .scene import SECOND, Timeline

LEAST_POSES = 10
OFF_DEG, OFF_STEPS = 0.2, 0.02  # of a frame's pose; a position, in usual steps of the camera: 1 degree of their direction
SMOOTH, LESS_SURE = 1.3, 3.0  # times as far off over twice the time: 4 of a smooth motion, less of one that turns back, 1 of noise
JOINED = 1.25  # times as long as usual, at most, of the time between poses


def doubt_of_slow_truth(truth: Trajectory, poses: Float64, timeline: Timeline) -> str:
    """A line for people where the `poses` (N, 4, 4) of frames between two of the truth are far off; empty: they are not.

    A motion of constant velocity over a time h is off by a s (1 - s) h**2 / 2 at a share s of it, a the acceleration. Each pose of
    the truth tells that of its neighbours, for 2 h and in their middle.
    """
    known = truth.ordered()
    steps = np.linalg.norm(np.diff(poses[:, :3, 3], axis=0), axis=1)
    steps, period = steps[np.isfinite(steps)], usual_period(known.stamps_ns.tolist())
    if len(known) < LEAST_POSES + 4 or not len(steps) or not timeline.period_s:
        return ''
    off, far_off = (_left_out(known, count, period) for count in (1, 2))
    if off is None or far_off is None:
        return ''
    after = np.searchsorted(known.stamps_ns, timeline.stamps_ns).clip(1, len(known) - 1)
    share = ((timeline.stamps_ns - known.stamps_ns[after - 1]) / (known.stamps_ns[after] - known.stamps_ns[after - 1])).clip(0, 1)
    degrees, metres = float(np.mean((share * (1 - share))[np.isfinite(poses[:, 0, 0])])) * off
    step = float(np.median(steps))
    is_off = np.array([degrees > OFF_DEG, metres > OFF_STEPS * step > 0]) & (far_off > (SMOOTH + LESS_SURE / len(known)**0.5) * off)
    if not is_off.any():
        return ''
    images_hz, truth_hz = 1 / timeline.period_s, SECOND / period
    return (f'the ground truth has {truth_hz:.3g} poses a second, the images come {images_hz:.3g} times: between '
            f'two poses a constant motion is taken, which is off by about {degrees:.2g} degrees and {metres:.2g} m, of a step of '
            f'{step:.2g} m. Figures by it are too low: give a faster one, or take frames near a pose alone '
            f'(--max-time-difference {period / SECOND / 10:.2g}, and --strides that lead from pose to pose)')


def _left_out(known: Trajectory, count: int, period: float) -> Float64 | None:
    """Median angle in degrees and distance from each pose to the motion from the pose `count` before to that as many after."""
    first, middle, last = (known.stamps_ns[start:len(known) - 2 * count + start] for start in (0, count, 2 * count))
    rows = np.flatnonzero(last - first < JOINED * 2 * count * period)
    if len(rows) < LEAST_POSES:
        return None
    share = (middle - first)[rows] / (last - first)[rows]
    found, true = interpolated(known.poses[rows], known.poses[rows + 2 * count], share), known.poses[rows + count]
    apart = np.linalg.inv(true) @ found
    return np.array([np.median(angles_deg(apart[:, :3, :3])), np.median(np.linalg.norm(apart[:, :3, 3], axis=1))])
