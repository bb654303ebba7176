"""What an evaluation found: a record per pair and matcher, and the metrics that sum them up (docs/evaluation.md defines them)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..features import UInt8
from ..recordings.poses import Float64
from ..telemetry import PERCENTILES
from .baselines import Correspondences
from .bootstrap import Interval, pose_auc_difference
from .twoview import pose_auc

AUC_DEG = (5, 10, 20)
PRECISION_PX = (1, 2, 3)
ERROR_EDGES_PX = np.concatenate([[0], np.geomspace(0.05, 50, 121), [np.inf]])  # bins of the epipolar errors' histogram


class Metric(NamedTuple):
    """How a figure is called, written and judged."""

    label: str
    unit: str  # empty: a number
    higher_is_better: bool
    digits: int


METRICS: dict[str, Metric] = {
    'matches': Metric('matches per frame', '', True, 0),
    'inlier_ratio': Metric('inliers of the better two-view model', '%', True, 1),
    **{f'precision@{px}': Metric(f'matches within {px} px of the true epipolar line', '%', True, 1) for px in PRECISION_PX},
    **{f'pose_auc@{deg}': Metric(f'pose AUC up to {deg} degrees', '%', True, 1) for deg in AUC_DEG},
    'pose_failures': Metric('pairs without a pose', '', False, 0),
    'track_length': Metric('track length, mean', 'frames', True, 1),
    'track_survival': Metric('points matched again in the next frame', '%', True, 1),
    'forward_backward': Metric('matches that come back when matched backwards', '%', True, 1),
    'ate_m': Metric('ATE, RMSE after Sim(3) alignment', 'm', False, 3),
    'rpe_m': Metric('RPE per frame, translation, RMSE', 'm', False, 4),
    'rpe_deg': Metric('RPE per frame, rotation, RMSE', 'deg', False, 4),
    'drift_percent': Metric('drift, translation', '%', False, 2),
    'drift_deg_per_m': Metric('drift, rotation', 'deg/m', False, 4),
    **{f'frame_ms_p{p}': Metric(f'time of a frame, p{p}', 'ms', False, 1) for p in PERCENTILES},
    'fps': Metric('frames per second, from the median', '1/s', True, 1),
    'retention': Metric("the first's matches that are kept", '%', True, 1),
    'agreement_f1': Metric("F1 against the first's matches", '%', True, 1),
    'count_ratio': Metric("matches against the first's", '%', True, 1),
    'layers': Metric('layers of LightGlue that ran, mean', '', False, 2),
    'dropped': Metric('frames that got no cloud', '', False, 0),
    **{f'latency_ms_p{p}': Metric(f'image sent to cloud received, p{p}', 'ms', False, 1) for p in PERCENTILES},
}


@dataclass(frozen=True)
class PairResult:
    """One frame and its reference, seen by one matcher. What cannot be known (no truth, no intrinsics) is None."""

    frames: tuple[int, int]  # numbers of the reference and of the current frame in the recording, from 0
    stamp: float  # seconds, the current frame's
    matches: int
    inliers: int = 0  # of the model that explains more matches
    model: str = ''  # essential (fundamental without intrinsics), homography, or empty where neither was found
    precision: tuple[float, ...] | None = None  # share within PRECISION_PX of the true epipolar line; zeros without matches
    error_median_px: float | None = None  # of the same distances; None without truth or without matches
    rotation_deg: float | None = None  # inf where no pose was found; None without truth
    translation_deg: float | None = None  # direction; inf where no pose was found
    track_survival: float | None = None  # share of the reference's tracked points that were matched again
    retention: float | None = None  # against the first matcher on the same pair: share of its matches that this one has too
    agreement_f1: float | None = None  # against the first matcher
    count_ratio: float | None = None  # against the first matcher
    layers: int | None = None  # of LightGlue that ran

    @property
    def pose_error_deg(self) -> float | None:
        """The larger of the rotation's and the direction's error, degrees."""
        if self.rotation_deg is None or self.translation_deg is None:
            return None
        return max(self.rotation_deg, self.translation_deg)


@dataclass(frozen=True, eq=False)
class DrawnPair:
    """A pair worth looking at, with what is needed to draw it."""

    frames: tuple[int, int]
    images: tuple[UInt8, UInt8]  # gray (H, W): reference, current
    points: Correspondences  # pixels of those images
    errors_px: Float64 | None  # (M,) distance to the true epipolar line; None without truth
    badness: float  # larger is worse: pose error in degrees, else the share that are no inliers


@dataclass(eq=False)
class OdometryResult:
    """The trajectory that chained two-view poses give, N frames, and how far it is from the truth."""

    frames: NDArray[np.int64]  # (N,) numbers of the frames
    stamps: Float64  # (N,) seconds
    poses: Float64  # (N, 4, 4) world from camera; after Sim(3) alignment with the truth where there is one
    true_poses: Float64 | None  # (N, 4, 4); None without truth
    scale: str  # where each step's length comes from: 'truth' or 'unit'
    figures: dict[str, float] = field(default_factory=dict)  # those of METRICS that apply: ate_m, rpe_m, drift_percent ...
    segments_m: tuple[float, ...] = ()  # lengths of the segments that the drift is averaged over


@dataclass(eq=False)
class MatcherResult:
    """One matcher on the recording."""

    name: str  # short, for legends: 'ours fp16', 'SIFT'
    description: str  # one line: what ran, with which settings
    ours: bool
    pairs: dict[int, list[PairResult]] = field(default_factory=dict)  # by stride, in order of frames
    stage_ms: dict[str, list[float]] = field(default_factory=dict)  # of stride 1, by stage; 'frame' is all of it
    track_lengths: dict[int, int] = field(default_factory=dict)  # frames -> number of tracks that were that long
    error_histogram: NDArray[np.int64] | None = None  # stride 1: counts between ERROR_EDGES_PX; None without truth
    forward_backward: float | None = None  # share
    odometry: OdometryResult | None = None
    worst_pairs: list[DrawnPair] = field(default_factory=list)  # worst first
    figures: dict[str, float] = field(default_factory=dict)  # more of METRICS: dropped, latency_ms_p50 ...

    def summary(self, stride: int = 1) -> dict[str, float]:
        """METRICS over the pairs of a stride; what cannot be known is missing. Shares are in percent."""
        found = {**_of_pairs(self.pairs.get(stride, []))}
        if stride == 1:
            if self.forward_backward is not None:
                found['forward_backward'] = 100 * self.forward_backward
            if total := sum(self.track_lengths.values()):
                found['track_length'] = sum(length * count for length, count in self.track_lengths.items()) / total
            if times := self.stage_ms.get('frame'):
                found |= {f'frame_ms_p{p}': float(np.percentile(times, p)) for p in PERCENTILES}
                found['fps'] = 1e3 / max(float(np.median(times)), 1e-9)
            if self.odometry is not None:
                found |= self.odometry.figures
            found |= self.figures
        return {name: found[name] for name in METRICS if name in found}


class Contest(NamedTuple):
    """The first matcher's pose AUC beside another's, over the pairs that both have."""

    stride: int
    other: str
    metric: str  # pose_auc@5 ...
    interval: Interval  # of the first's less the other's, points of a percentage


@dataclass(eq=False)
class Evaluation:
    """Everything that a report shows."""

    recording: dict[str, Any]  # path, topic, frames, duration_s, width, height, camera, truth: plain values for people
    machine: str
    matchers: list[MatcherResult]  # ours first; comparisons are against the first
    strides: tuple[int, ...]
    notes: list[str] = field(default_factory=list)  # what was left out or lost, and why: one line each
    interrupted: bool = False  # Ctrl-C: the figures are over what was done until then
    wall_s: dict[str, float] = field(default_factory=dict)  # where the time went: inference, baselines, reading, estimating, report
    peak_memory_mib: float = 0.0
    estimator: str = ''  # how poses were estimated

    def contests(self, degrees: tuple[int, ...] = AUC_DEG) -> list[Contest]:
        """The first matcher against each other one, by stride and angle, where both know the pose error of a pair."""
        found = []
        for stride in self.strides:
            first, *others = [_pose_errors(matcher.pairs.get(stride, [])) for matcher in self.matchers] or [{}]
            for matcher, errors in zip(self.matchers[1:], others, strict=True):
                common = [frames for frames in first if frames in errors]
                mine, theirs = ([side[frames] for frames in common] for side in (first, errors))
                for degree in degrees if common else ():
                    interval = pose_auc_difference(mine, theirs, degree)
                    found.append(Contest(stride, matcher.name, f'pose_auc@{degree}', interval.scaled(100)))
        return found


def _pose_errors(pairs: list[PairResult]) -> dict[tuple[int, int], float]:
    return {pair.frames: error for pair in pairs if (error := pair.pose_error_deg) is not None}


def _of_pairs(pairs: list[PairResult]) -> dict[str, float]:
    if not pairs:
        return {}
    found = {'matches': float(np.mean([pair.matches for pair in pairs]))}
    if any(pair.model for pair in pairs):
        found['inlier_ratio'] = 100 * _mean(pair.inliers / pair.matches if pair.matches else 0.0 for pair in pairs)
    if precisions := [pair.precision for pair in pairs if pair.precision is not None]:
        found |= {f'precision@{px}': 100 * float(share) for px, share in zip(PRECISION_PX, np.mean(precisions, 0), strict=True)}
    if errors := [pair.pose_error_deg for pair in pairs if pair.pose_error_deg is not None]:
        found |= {f'pose_auc@{deg}': 100 * area for deg, area in zip(AUC_DEG, pose_auc(errors, AUC_DEG), strict=True)}
        found['pose_failures'] = float(sum(math.isinf(error) for error in errors))
    for key, factor in (('track_survival', 100), ('retention', 100), ('agreement_f1', 100), ('count_ratio', 100), ('layers', 1)):
        if known := [value for pair in pairs if (value := getattr(pair, key)) is not None]:
            found[key] = factor * _mean(known)
    return found


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))
