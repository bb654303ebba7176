"""A ground truth slower than the images has a line where the camera moves otherwise between its poses than is assumed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from support.trajectories import hand_held

from lightglue_trt_eval.predict.scene import SECOND, Timeline
from lightglue_trt_eval.predict.slow_truth import doubt_of_few_digits, doubt_of_slow_truth
from lightglue_trt_ros.core.types import Float64
from lightglue_trt_ros.datasets.ground_truth import poses_at
from lightglue_trt_ros.datasets.poses import Trajectory, poses_from

HZ, SECONDS = 30, 12  # of the images


def held_in_a_hand(seconds: Float64) -> Float64:
    """Poses (N, 4, 4): it walks 0.6 m a second, and sways by 3 cm and 4 degrees once a second."""
    sway, half = np.sin(2 * np.pi * seconds), np.radians(2) * np.cos(2 * np.pi * seconds)
    zero = np.zeros_like(seconds)
    return poses_from(np.stack([0.03 * sway, zero, 0.6 * seconds], axis=1),
                      np.stack([zero, np.sin(half), zero, np.cos(half)], axis=1))


def driven(seconds: Float64) -> Float64:
    """Poses (N, 4, 4): 10 m a second along a circle of 100 m."""
    angle, zero = 0.1 * seconds, np.zeros_like(seconds)
    return poses_from(100 * np.stack([1 - np.cos(angle), zero, np.sin(angle)], axis=1),
                      np.stack([zero, np.sin(angle / 2), zero, np.cos(angle / 2)], axis=1))


@pytest.mark.parametrize(('motion', 'truth_hz', 'noise_m', 'is_named'), [
    (held_in_a_hand, 5, 0, True), (held_in_a_hand, 5, 1e-3, True), (held_in_a_hand, 100, 0, False),
    (held_in_a_hand, 100, 3e-3, False), (held_in_a_hand, HZ, 0, False), (driven, 5, 0, False), (driven, 5, 0.1, False)])
def test_slow_truth_is_named_where_it_is_off(motion: Callable[[Float64], Float64], truth_hz: int, noise_m: float,
                                             is_named: bool) -> None:
    own, frames = np.arange(0, SECONDS, 1 / truth_hz), np.arange(0.5, SECONDS - 1, 1 / HZ)
    poses = motion(own)
    poses[:, :3, 3] += np.random.default_rng(1).normal(0, noise_m, (len(own), 3))
    truth, stamps = Trajectory((own * SECOND).astype(np.int64), poses), (frames * SECOND).round().astype(np.int64)
    timeline = Timeline(np.arange(len(stamps)), stamps, np.zeros(len(stamps), np.int64), 1.0, 1 / HZ)
    line = doubt_of_slow_truth(truth, poses_at(truth, stamps, 1.0), timeline)
    assert line.startswith('the ground truth has 5 poses a second, the images come 30 times: ' * is_named)
    assert bool(line) == is_named
    bursts = replace(timeline, in_bursts=True)
    assert not doubt_of_slow_truth(truth, poses_at(truth, stamps, 1.0), bursts), 'the stamps are to blame'


def waved(seconds: Float64) -> Float64:
    return np.stack([hand_held(1, late_s=-each)[0] for each in seconds.tolist()])


def starts_and_stops(seconds: Float64) -> Float64:
    """Poses (N, 4, 4) of a simulated robot: constant velocities, and a quarter of a second of acceleration between."""
    speed = np.interp(seconds % 1, [0, 0.2, 0.6, 0.8, 1], [0, 1, 1, 0, 0])
    return driven(np.cumsum(speed))


@pytest.mark.parametrize(('motion', 'known_hz', 'of_positions', 'named'), [
    (held_in_a_hand, 5, False, 'from 5 poses a second'), (waved, 5, True, 'about 0 degrees and 0.0'),
    (held_in_a_hand, 7, False, 'was interpolated before it was recorded, from 7'), (starts_and_stops, HZ, False, ''),
    (driven, 5, False, '')])
def test_truth_that_was_interpolated_is_named(motion: Callable[[Float64], Float64], known_hz: int, of_positions: bool,
                                              named: str) -> None:
    own, frames = np.arange(0, SECONDS, 1 / known_hz), np.arange(0.5, SECONDS - 1, 1 / HZ)
    stamps = (frames * SECOND).round().astype(np.int64)
    poses = poses_at(Trajectory((own * SECOND).astype(np.int64), motion(own)), stamps, 1.0)
    if of_positions:
        poses[:, :3, :3] = motion(frames)[:, :3, :3]
    timeline = Timeline(np.arange(len(stamps)), stamps, np.zeros(len(stamps), np.int64), 1.0, 1 / HZ)
    line = doubt_of_slow_truth(Trajectory(stamps, poses), poses, timeline)
    assert ('was interpolated before it was recorded' in line) == bool(named)
    assert named in line


@pytest.mark.parametrize(('unit_m', 'named'), [(0.01, True), (1e-4, False), (0, False)])
def test_positions_with_few_digits_are_named(unit_m: float, named: bool) -> None:
    stamps = np.arange(60) * SECOND // HZ
    poses = waved(stamps / SECOND)
    if unit_m:
        poses[:, :3, 3] = (poses[:, :3, 3] / unit_m).round() * unit_m
    line = doubt_of_few_digits(Trajectory(stamps, poses), poses)
    assert line.startswith('positions of the ground truth are multiples of 0.01 m, and the camera moves 0.0' * named)
    assert bool(line) == named
    assert not doubt_of_few_digits(Trajectory(stamps, driven(stamps / SECOND)), driven(stamps / SECOND))


@pytest.mark.parametrize('count', [1, 3, 13])
def test_slow_truth_of_few_poses_has_no_line(count: int) -> None:
    seconds = np.arange(count) / 5
    truth, stamps = Trajectory((seconds * SECOND).astype(np.int64), held_in_a_hand(seconds)), np.arange(40) * SECOND // HZ
    timeline = Timeline(np.arange(40), stamps, np.zeros(40, np.int64), 1.0, 1 / HZ)
    assert doubt_of_slow_truth(truth, poses_at(truth, stamps, 0.1), timeline) == ''
