"""Evaluations made up for the tests of reports: realistic figures, without a recording."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from lightglue_trt_eval.baselines import MatchedPoints
from lightglue_trt_eval.score.confidence import ConfidenceInterval
from lightglue_trt_eval.score.metrics import (
    ERROR_EDGES_PX,
    DrawnPair,
    Evaluation,
    MatcherResult,
    OdometryResult,
    PairResult,
    table_of,
)

KINDS = {  # matches, share of good ones, pose error in degrees, share of failures, ms, mean track
    'ours fp32': (620, 0.93, 2.0, 0.01, 21.0, 14), 'ours fp16': (612, 0.92, 2.1, 0.01, 12.3, 13.5),
    'ours fp8': (540, 0.85, 3.5, 0.02, 9.1, 10), 'SIFT': (350, 0.72, 6.0, 0.05, 41.0, 5),
    'ORB': (280, 0.55, 11.0, 0.12, 9.5, 3.5), 'KLT': (480, 0.66, 8.0, 0.08, 6.2, 9)}
FOUR = ('ours fp16', 'SIFT', 'ORB', 'KLT')


def evaluation(names: Sequence[str] = FOUR, frames: int = 120, truth: bool = True, intrinsics: bool = True,
               strides: tuple[int, ...] = (1, 2, 4), hz: float = 5.0, seed: int = 0, size: tuple[int, int] = (360, 540),
               worst: int = 1, **changes: Any) -> Evaluation:
    """frames: 0 for a recording without pairs. truth, intrinsics: what the metrics may know."""
    rng = np.random.default_rng(seed)
    matchers = [_matcher(name, number, frames, truth, intrinsics, strides, hz, rng, size, worst)
                for number, name in enumerate(names)]
    notes = [] if truth else ['no ground truth: pose errors, epipolar precision and ATE are left out']
    return Evaluation(**{
        'recording': {'path': '/bags/hololens', 'topic': '/camera/image', 'frames': frames, 'duration_s': frames / hz,
                      'rate_hz': hz, 'width': size[1], 'height': size[0],
                      'camera': 'plumb_bob, from /camera/camera_info' if intrinsics else None,
                      'truth': 'PoseStamped on /truth' if truth else None},
        'machine': 'AMD EPYC 7R13, 2 cores, 8 GiB, Python 3.11', 'matchers': matchers, 'strides': strides, 'notes': notes,
        'wall_s': {'inference': 41.2, 'baselines': 12.0, 'reading': 1.9, 'estimating': 3.0, 'report': 2.2},
        'peak_memory_mib': 612.0, 'estimator': 'MAGSAC++, 1 px, 10,000 iterations', **changes})


def _matcher(name: str, number: int, frames: int, truth: bool, intrinsics: bool, strides: tuple[int, ...], hz: float,
             rng: np.random.Generator, size: tuple[int, int], worst: int) -> MatcherResult:
    count, good, error_deg, failing, ms, track = KINDS.get(name, KINDS['SIFT'])
    ours = name.startswith('ours')
    pairs = {}
    for stride in strides:
        rows = []
        for k in range(stride, frames):
            dip = 1 - 0.7 * np.exp(-((k - frames / 2) / (frames / 15)) ** 2)
            matches = max(0, int(rng.normal(count * dip / stride ** 0.3, 20)))
            errors = np.inf if rng.random() < failing else abs(rng.normal(0, error_deg / dip))
            known = truth and intrinsics
            retention, agreement, ratio = (0.9, 0.88, 0.99) if ours and number else (None, None, None)
            rows.append(PairResult(
                (k - stride, k), 1.7e9 + k / hz, matches, int(matches * good * dip ** 0.2),
                'essential' if intrinsics else 'homography',
                tuple(good * share for share in (0.6, 0.85, 0.95)) if known else None, 0.8 if known else None,
                errors / 2 if known else None, errors if known else None, 0.8 * good,
                retention, agreement, ratio, 9 if ours else None))
        pairs[stride] = table_of(rows)
    steps = max(frames - 1, 0)
    times = rng.gamma(30, ms / 30, steps)
    stages = {'resize': 0.02, 'extract': 0.48, 'match': 0.44, 'track': 0.03} if ours else {'detect': 0.7, 'match': 0.28}
    if name == 'KLT':
        stages = {}
    stage_ms = {stage: (share * times).tolist() for stage, share in stages.items()} | {'frame': times.tolist()}
    tracks = 2 + rng.geometric(1 / (track - 1), (steps, 20)) - 1
    lengths, counts = np.unique(tracks, return_counts=True)
    histogram: NDArray[np.int64] | None = None
    if truth and intrinsics and steps:
        distances = np.concatenate([abs(rng.normal(0, 0.8, int(9000 * good))), rng.gamma(1, 30, int(9000 * (1 - good)))])
        histogram = np.histogram(distances, ERROR_EDGES_PX)[0]
    return MatcherResult(
        name, f'{name}: 1,024 keypoints at 640x480', ours, pairs, stage_ms if steps else {},
        dict(zip(lengths.tolist(), counts.tolist(), strict=True)), histogram,
        rng.uniform(0.8 * good, good, 20).tolist() if steps else [],
        _odometry(error_deg, frames, truth, rng, hz) if intrinsics and steps else None,
        [_drawn(k, truth and intrinsics, rng, size) for k in range(worst)] if steps and not number else [],
        middle_pair=[_drawn(1, truth and intrinsics, rng, size)] if steps and worst and not number else [],
        tracks_ended=[(int(ended.sum()), len(ended)) for ended in tracks],
        cost_ms={'cpu_ms': (1.7 * times).tolist(), 'gpu_ms': [0.0] * steps} if steps else {})


def _odometry(error_deg: float, frames: int, truth: bool, rng: np.random.Generator, hz: float) -> OdometryResult:
    angle = np.linspace(0, 1.6 * np.pi, frames)
    true = np.tile(np.eye(4), (frames, 1, 1))
    true[:, 0, 3], true[:, 1, 3], true[:, 2, 3] = 6 * np.sin(angle), 0.2 * np.sin(5 * angle), 9 * (1 - np.cos(angle)) + angle
    poses = true.copy()
    poses[:, :3, 3] += rng.normal(0, 0.012 * error_deg, (frames, 3)).cumsum(0)
    figures = {'ate_m': 0.05 * error_deg, 'rpe_m': 0.011, 'rpe_deg': 0.2, 'drift_percent': 0.6 * error_deg} if truth else {}
    return OdometryResult(np.arange(frames), 1.7e9 + np.arange(frames) / hz, poses, true if truth else None,
                          'truth' if truth else 'unit', figures,
                          intervals={name: ConfidenceInterval(0.8 * value, 1.3 * value, frames - 1)
                                     for name, value in figures.items()})


def _drawn(k: int, truth: bool, rng: np.random.Generator, size: tuple[int, int], count: int = 160) -> DrawnPair:
    height, width = size
    noise = cv2.resize(rng.integers(0, 255, (height // 12, width // 12), np.uint8), (width, height), interpolation=cv2.INTER_CUBIC)
    base = np.asarray(cv2.add(noise // 2, rng.integers(0, 60, (height, width), np.uint8)), np.uint8)
    points = rng.uniform((5, 5), (width - 25, height - 5), (count, 2)).astype(np.float32)
    errors = rng.gamma(1, 1.5, count)
    moved = (points + np.array([15, 3]) + rng.normal(0, 1, (count, 2)) * errors[:, None] * 6).astype(np.float32)
    return DrawnPair((10 * k, 10 * k + 1), (base, np.roll(base, 15, 1)), MatchedPoints(points, moved), errors if truth else None,
                     (np.inf if k == 0 else 60.0 / k) if truth else 0.8 - 0.1 * k)
