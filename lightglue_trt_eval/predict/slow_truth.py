"""Ground truth that is slower than the images: how far it is off between its poses, where a constant motion is assumed.

So is one that was interpolated before it was recorded: the poses count at which its motion changes. And one with few digits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightglue_trt_ros.core.timing import usual_period
from lightglue_trt_ros.core.types import Float64
from lightglue_trt_ros.datasets.poses import Trajectory, angles_deg, interpolated

from .scene import SECOND, Timeline

LEAST_POSES = 10
OFF_DEG, OFF_STEPS = 0.2, 0.02  # of a frame's pose; a position, in usual steps of the camera: 1 degree of their direction
SMOOTH, LESS_SURE = 1.3, 3.0  # times as far off over twice the time: 4 of a smooth motion, less of one that turns back, 1 of noise
STRAIGHT, MOSTLY = 0.02, 0.45  # deviation from a constant motion, over the large ones, of a pose that was interpolated; their share
GRID, ROUND, LEAST_COUNTS = 0.05, 0.02, 4  # unit of positions, in steps of the camera; of a multiple; different multiples
JOINED = 1.25  # times as long as usual, at most, of the time between poses


def doubt_of_slow_truth(truth: Trajectory, poses: Float64, timeline: Timeline) -> str:
    """A line for people where the `poses` (N, 4, 4) of frames between two of the truth are far off; empty: they are not.

    A motion of constant velocity over a time h is off by a s (1 - s) h**2 / 2 at a share s of it, a the acceleration. Each pose of
    the truth tells that of its neighbours, for 2 h and in their middle.
    """
    known, step = truth.ordered(), _usual_step(poses)
    changes = _changes(known)
    if changes is not None:
        known = Trajectory(known.stamps_ns[changes.rows], known.poses[changes.rows])
    period = usual_period(known.stamps_ns.tolist())
    if len(known) < LEAST_POSES + 4 or step is None or not timeline.period_s or timeline.in_bursts:
        return ''
    off, far_off = (_left_out(known, count, period) for count in (1, 2))
    if off is None or far_off is None:
        return ''
    after = np.searchsorted(known.stamps_ns, timeline.stamps_ns).clip(1, len(known) - 1)
    share = ((timeline.stamps_ns - known.stamps_ns[after - 1]) / (known.stamps_ns[after] - known.stamps_ns[after - 1])).clip(0, 1)
    degrees, metres = float(np.mean((share * (1 - share))[np.isfinite(poses[:, 0, 0])])) * off
    degrees *= changes is None or changes.of_rotations
    is_off = np.array([degrees > OFF_DEG, metres > OFF_STEPS * step > 0]) & (far_off > (SMOOTH + LESS_SURE / len(known)**0.5) * off)
    if not is_off.any():
        return ''
    images_hz, truth_hz = 1 / timeline.period_s, SECOND / period
    says, remedy = (f'has {truth_hz:.3g} poses a second', 'a faster one, or take frames near a pose alone '
                    f'(--max-time-difference {period / SECOND / 10:.2g}, and --strides that lead from pose to pose)') \
        if changes is None else (f'was interpolated before it was recorded, from {truth_hz:.3g} poses a second',
                                 'one that was measured as often as there are images')
    return (f'the ground truth {says}, the images come {images_hz:.3g} times: between '
            f'two poses a constant motion is taken, which is off by about {degrees:.2g} degrees and {metres:.2g} m, of a step of '
            f'{step:.2g} m. Figures by it are too low: give {remedy}')


def doubt_of_few_digits(truth: Trajectory, poses: Float64) -> str:
    """A line for people where positions were rounded by much of a step, as 32-bit coordinates of maps are; empty: they were not."""
    step, positions = _usual_step(poses), truth.ordered().poses[:, :3, 3]
    for along in positions.T:
        apart = np.diff(np.unique(along))
        if not step or len(apart) < LEAST_COUNTS or (unit := float(apart.min())) < GRID * step:
            continue
        counts = np.diff(along) / unit
        if np.abs(counts - counts.round()).max() < ROUND and len(np.unique(counts.round())) >= LEAST_COUNTS:
            return (f'positions of the ground truth are multiples of {unit:.2g} m, and the camera moves {step:.2g} m a frame: true '
                    f'directions are off by about {np.degrees(unit / 6**0.5 / step):.2g} degrees; write more digits, with 64 bits')
    return ''


def _usual_step(poses: Float64) -> float | None:
    """Metres between frames; None of none."""
    steps = np.linalg.norm(np.diff(poses[:, :3, 3], axis=0), axis=1)
    return float(np.median(steps[np.isfinite(steps)])) if np.isfinite(steps).any() else None


class _Changes(NamedTuple):
    """Where a motion changes that is constant in between."""

    rows: NDArray[np.int64]
    of_rotations: bool  # not of positions alone


def _changes(known: Trajectory) -> _Changes | None:
    """None where motion changes all the time, as that of a camera does, or over many poses, as that of a simulated one may."""
    if len(known) < LEAST_POSES:
        return None
    stamps, poses = known.stamps_ns, known.poses
    share = (stamps[1:-1] - stamps[:-2]) / (stamps[2:] - stamps[:-2])
    apart = np.linalg.inv(poses[1:-1]) @ interpolated(poses[:-2], poses[2:], share)
    rotated = angles_deg(np.linalg.inv(poses[:-1, :3, :3]) @ poses[1:, :3, :3])
    moved = np.linalg.norm(np.diff(poses[:, :3, 3], axis=0), axis=1)
    for off, steps in ((angles_deg(apart[:, :3, :3]), rotated), (np.linalg.norm(apart[:, :3, 3], axis=1), moved)):
        bends = off > STRAIGHT * np.percentile(off, 90)
        moves = np.maximum(steps[1:], steps[:-1]) > STRAIGHT * np.percentile(steps, 90)
        long = bends[:-2] & bends[1:-1] & bends[2:]  # a change between two poses bends at both
        if bends.sum() >= LEAST_POSES and np.sum(bends & moves) <= (1 - MOSTLY) * moves.sum() and \
                long.sum() < MOSTLY * bends.sum():
            first = bends & ~np.concatenate([[False], bends[:-1]])
            return _Changes(1 + np.flatnonzero(first), steps is rotated)
    return None


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
