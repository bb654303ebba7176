"""The metrics (docs/metrics.md defines them), the record of a pair of frames, and the results of each method and of all."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightglue_trt_ros.core.timing import PERCENTILES
from lightglue_trt_ros.core.types import Float64, UInt8
from lightglue_trt_ros.odometry.two_view import pose_auc

from ..baselines import MatchedPoints
from . import confidence
from .confidence import ConfidenceInterval, Difference

AUC_DEG = (5, 10, 20)
ROTATION_DEG = (1, 2, 5)  # rotations are an order finer than directions
PRECISION_PX = (1, 2, 3)


class Metric(NamedTuple):
    """Label, unit, direction, digits and meaning of a figure."""

    label: str  # at most four words
    unit: str  # empty: a number
    higher_is_better: bool
    digits: int
    meaning: str  # one line; docs/metrics.md has the definition


METRICS: dict[str, Metric] = {
    'matches': Metric('matches per frame', '', True, 0, 'correspondences of a pair of frames'),
    'inlier_ratio': Metric('inliers', '%', True, 1, 'matches within 1 px of the better two-view model'),
    **{f'precision@{px}': Metric(f'matches within {px} px', '%', True, 1, f'matches within {px} px of the true epipolar line')
       for px in PRECISION_PX},
    **{f'pose_auc@{deg}': Metric(f'pose AUC@{deg}', '%', True, 1, f'area under the curve of pose errors up to {deg} degrees')
       for deg in AUC_DEG},
    **{f'rotation_auc@{deg}': Metric(f'rotation AUC@{deg}', '%', True, 1, 'area under the curve of rotation errors up to '
                                     f'{deg} degree{"s" * (deg > 1)}') for deg in ROTATION_DEG},
    'within_1_sigma': Metric('within one deviation', '%', True, 1,
                             "matches within their standard deviation of the pose's epipolar line: 68.3 is right"),
    'within_2_sigma': Metric('within two deviations', '%', True, 1, 'matches within two standard deviations: 95.4 is right'),
    'true_within_1_sigma': Metric('one deviation, ground truth', '%', True, 1,
                                  "matches within it of the true motion's line, if the ground truth is exact: 68.3 is right"),
    'true_within_2_sigma': Metric('two deviations, ground truth', '%', True, 1,
                                  "matches within two of them of the true motion's line"),
    'pose_failures': Metric('pairs without a pose', '', False, 0, 'pairs without a pose, of all pairs with a true one'),
    'track_length': Metric('mean track length', 'frames', True, 1, 'frames in which a point was observed without interruption'),
    'track_survival': Metric('points matched again', '%', True, 1, 'points that are matched again in the next frame'),
    'forward_backward': Metric('matches that come back', '%', True, 1, 'matches that come back when matched backwards'),
    'ate_m': Metric('ATE', 'm', False, 3, 'absolute trajectory error, RMSE after Sim(3) alignment'),
    'rpe_m': Metric('RPE, translation', 'm', False, 4, 'relative pose error of a frame, RMSE'),
    'rpe_deg': Metric('RPE, rotation', 'deg', False, 4, 'relative pose error of a frame, RMSE'),
    'drift_percent': Metric('drift, translation', '%', False, 2, "KITTI's, of two-view odometry with true step lengths"),
    'drift_deg_per_m': Metric('drift, rotation', 'deg/m', False, 4, "KITTI's, of two-view odometry"),
    'stereo_points': Metric('points with right pixel', '%', True, 1, 'points with a pixel in the right image'),
    'stereo_row_px': Metric('row difference', 'px', False, 2, 'rows of left and right differ by, median'),
    'stereo_disparity_px': Metric('disparity error', 'px', False, 2, 'difference from the disparity of the true motion, median'),
    'stereo_consistent': Metric('consistent points', '%', True, 1, 'points within 2 px in the frame before, by disparity and true '
                                'motion'),
    'stereo_drift_percent': Metric('stereo drift, translation', '%', False, 2, "KITTI's, of the stereo odometry in metres"),
    'stereo_drift_deg_per_m': Metric('stereo drift, rotation', 'deg/m', False, 4, "KITTI's, of the stereo odometry"),
    'depth_points': Metric('points with depth', '%', True, 1, 'points with a depth'),
    'depth_error_p50': Metric('depth error, median', '%', False, 2, 'z from that of the frame before, moved by the true motion'),
    'depth_error_p90': Metric('depth error, p90', '%', False, 2, 'the same, 90th percentile'),
    'depth_within_1_sigma': Metric('depth, one deviation', '%', True, 1, 'z within its standard deviation of that: 68.3 is right'),
    'depth_within_2_sigma': Metric('depth, two deviations', '%', True, 1, 'z within two of them: 95.4 is right'),
    'depth_drift_percent': Metric('depth drift, translation', '%', False, 2, "KITTI's, of the odometry in metres by depth"),
    'depth_drift_deg_per_m': Metric('depth drift, rotation', 'deg/m', False, 4, "KITTI's, of the odometry by depth"),
    'depth_frames_lost': Metric('frames without a pose', '', False, 0, 'frames of which the odometry by depth has no pose'),
    **{f'frame_ms_p{p}': Metric(f'frame time, p{p}', 'ms', False, 1, 'wall time of a frame by itself') for p in PERCENTILES},
    'fps': Metric('frames per second', '1/s', True, 1, 'from the median time of a frame'),
    'cpu_ms': Metric('CPU time', 'ms', False, 1, 'of a frame, all threads, mean'),
    'gpu_ms': Metric('GPU time', 'ms', False, 2, 'of a frame, mean'),
    'retention': Metric('matches kept', '%', True, 1, "the first's matches that are found again"),
    'agreement_f1': Metric('F1 of matches', '%', True, 1, "against the first's matches"),
    'count_ratio': Metric('number of matches', '%', True, 1, "against the first's number"),
    'layers': Metric('mean layers', '', False, 2, 'layers of LightGlue that ran'),
    'dropped': Metric('frames without a cloud', '', False, 0, 'frames that got no cloud'),
    **{f'latency_ms_p{p}': Metric(f'latency, p{p}', 'ms', False, 1, 'image sent to cloud received') for p in PERCENTILES},
}
MEANS = {'matches': 1, 'inlier_ratio': 100, 'within_1_sigma': 100, 'within_2_sigma': 100, 'true_within_1_sigma': 100,
         'true_within_2_sigma': 100, 'track_survival': 100, 'retention': 100, 'agreement_f1': 100, 'count_ratio': 100,
         'layers': 1}  # fields of PairResult: factors
PAIR_METRICS = (*MEANS, *(name for name in METRICS if name.startswith(('precision@', 'pose_', 'rotation_'))))
HEADLINES = ('pose_auc@10', 'rotation_auc@2', 'inlier_ratio')  # what matchers are judged by, the first that is known
CONTESTED = (*(name for name in METRICS if name.startswith(('pose_auc@', 'rotation_auc@'))), 'precision@1', 'inlier_ratio')
DEVIATION_EDGES = np.concatenate([np.linspace(0, 4, 81), [np.inf]])  # bins of distances over their standard deviations
ERROR_EDGES_PX = np.concatenate([[0], np.geomspace(0.05, 50, 121), [np.inf]])  # bins of the epipolar errors' histogram


Table = dict[str, NDArray[Any]]  # columns of N pairs; NaN: unknown, infinite: no pose was found
ERRORS = {'pose_auc': 'pose_error_deg', 'rotation_auc': 'rotation_deg', 'pose_failures': 'rotation_deg'}  # what is counted there
COUNTS = ('matches', 'inliers')
VALUES = (*MEANS, 'inliers', 'stamp', 'error_median_px', 'rotation_deg', 'translation_deg', 'pose_error_deg', 'step_m',
          'step_per_depth')  # of PairResult, one number each


@dataclass(frozen=True)
class PairResult:
    """One frame and its reference, seen by one matcher. Unknown values are None: no ground truth, no intrinsics."""

    frames: tuple[int, int]  # numbers of the reference and of the current frame in the recording, from 0
    stamp: float  # seconds, the current frame's
    matches: int
    inliers: int = 0  # of the model that explains more matches
    model: str = ''  # essential (fundamental without intrinsics), homography, or empty where neither was found
    precision: tuple[float, ...] | None = None  # share within PRECISION_PX of the true epipolar line; zeros without matches
    error_median_px: float | None = None  # of the same distances; None without truth or without matches
    rotation_deg: float | None = None  # inf where no pose was found; None without truth
    translation_deg: float | None = None  # direction; inf where no pose was found, None where the truth does not resolve it
    track_survival: float | None = None  # share of the reference's tracked points that were matched again
    retention: float | None = None  # against the first matcher on the same pair: share of its matches that this one has too
    agreement_f1: float | None = None  # against the first matcher
    count_ratio: float | None = None  # against the first matcher
    layers: int | None = None  # of LightGlue that ran
    within_1_sigma: float | None = None  # share of `plausible` matches whose distance to the estimated pose's epipolar
    within_2_sigma: float | None = None  # line is below one, and two, standard deviations; None without covariances or a pose
    true_within_1_sigma: float | None = None  # the same to the line of the true motion; None without covariances, truth or
    true_within_2_sigma: float | None = None  # baseline
    step_m: float | None = None  # true distance between the two cameras; None without truth
    step_per_depth: float | None = None  # the same over the median depth of the scene; None where that is unknown

    @property
    def inlier_ratio(self) -> float:
        """Share of the matches; 0 without any."""
        return self.inliers / self.matches if self.matches else 0.0

    @property
    def pose_error_deg(self) -> float | None:
        """The larger of the rotation's and the direction's error, degrees; None where either is."""
        if self.rotation_deg is None or self.translation_deg is None:
            return None
        return max(self.rotation_deg, self.translation_deg)


def table_of(pairs: Sequence[PairResult]) -> Table:
    """The columns of pairs in order of frames, as PairResult has them; `precision` is one for each of PRECISION_PX."""
    table: Table = {name: np.array([pair.frames[end] for pair in pairs], np.int64)
                    for end, name in enumerate(('reference_frame', 'frame'))}
    table['model'] = np.array([pair.model for pair in pairs], np.str_)
    table |= {f'precision@{px}': np.array([pair.precision[place] if pair.precision else None for pair in pairs], np.float64)
              for place, px in enumerate(PRECISION_PX)}
    return table | {name: np.array([getattr(pair, name) for pair in pairs], np.int64 if name in COUNTS else np.float64)
                    for name in VALUES}


def summary_of(table: Table) -> dict[str, float]:
    """The metrics over pairs, without those that are unknown. Shares are in percent."""
    figures = {}
    for name in PAIR_METRICS:
        values = _known(name, table)
        if len(values) and (name != 'inlier_ratio' or (table['model'] != '').any()):
            angle = name.partition('_auc@')[2]
            figures[name] = (float(values.sum()) if name == 'pose_failures' else 100 * pose_auc(values, (float(angle),))[0] if angle
                             else MEANS.get(name, 100) * float(values.mean()))
    return figures


def pair_intervals(table: Table) -> dict[str, ConfidenceInterval]:
    """The intervals of `summary_of`; each figure is over the pairs of which it is known."""
    return {name: confidence.share_interval(values).scaled(len(values)) if name == 'pose_failures' else
            confidence.interval_of(_sample(name, values)).scaled(MEANS.get(name, 100))
            for name in PAIR_METRICS if len(values := _known(name, table))}


def paired_differences(first: Table, other: Table, metrics: Sequence[str]) -> dict[str, Difference]:
    """Metrics of the first less the other's, as shares, each over the pairs of which both know it, where there are any."""
    mine, theirs = (side['reference_frame'] * (1 << 32) + side['frame'] for side in (first, other))
    _, rows, others = np.intersect1d(mine, theirs, return_indices=True)
    differences = {}
    for metric in metrics:
        values = np.array([_values(metric, first)[rows], _values(metric, other)[others]])
        values = values[:, ~np.isnan(values).any(axis=0)]
        if values.size:
            differences[metric] = confidence.difference(*(_sample(metric, side) for side in values)).within(1)
    return differences


def _sample(name: str, values: Float64) -> confidence.Sample:
    angle = name.partition('_auc@')[2]
    return confidence.area_sample(values, float(angle)) if angle else confidence.Sample(values)


def _known(name: str, table: Table) -> Float64:
    values = _values(name, table)
    return values[~np.isnan(values)]


def _values(name: str, table: Table) -> Float64:
    """The values of all pairs (N,) for one of PAIR_METRICS; NaN where unknown."""
    values = np.asarray(table[name if name in table else ERRORS[name.partition('@')[0]]], np.float64)
    return np.where(np.isnan(values), np.nan, np.isinf(values)) if name == 'pose_failures' else values


def mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


@dataclass(frozen=True, eq=False)
class DrawnPair:
    """A pair that is drawn, with the data to draw it."""

    frames: tuple[int, int]
    images: tuple[UInt8, UInt8] | None  # gray (H, W): reference, current; kept of the first matcher's pairs, which are drawn
    points: MatchedPoints  # pixels of those images
    errors_px: Float64 | None  # (M,) distance to the true epipolar line; None without truth
    badness: float = 0.0  # larger is worse: pose error in degrees, else the share that are no inliers
    why: str = ''  # what there is to see, in words: the true motion, a plane, few matches


@dataclass(eq=False)
class OdometryResult:
    """The trajectory that chained two-view poses give, N frames, and how far it is from the ground truth."""

    frames: NDArray[np.int64]  # (N,) numbers of the frames
    stamps: Float64  # (N,) seconds
    poses: Float64  # (N, 4, 4) world from camera; after Sim(3) alignment with the truth where there is one
    true_poses: Float64 | None  # (N, 4, 4); None without truth
    scale: str  # where each step's length comes from: 'truth' or 'unit'
    figures: dict[str, float] = field(default_factory=dict)  # those of METRICS that apply: ate_m, rpe_m, drift_percent ...
    segments_m: tuple[float, ...] = ()  # lengths of the segments that the drift is averaged over
    intervals: dict[str, ConfidenceInterval] = field(default_factory=dict)  # of the figures

    @property
    def guessed_steps(self) -> int:
        """Steps whose length the ground truth does not have, of a trajectory with true lengths."""
        if self.true_poses is None or self.scale != 'truth':
            return 0
        known = np.asarray(np.isfinite(self.true_poses).all(axis=(1, 2)), np.bool_)
        return int(np.count_nonzero(~(known[1:] & known[:-1])))

    @property
    def true_path_m(self) -> float:
        """Length of the true trajectory, between frames that have a pose; 0 without."""
        if self.true_poses is None:
            return 0.0
        places = self.true_poses[np.isfinite(self.true_poses).all(axis=(1, 2)), :3, 3]
        return float(np.linalg.norm(np.diff(places, axis=0), axis=1).sum())


@dataclass(eq=False)
class MatcherResult:
    """One matcher on the recording."""

    name: str  # short, for legends: 'ours fp16', 'SIFT'
    description: str  # one line: what ran, with which settings
    ours: bool
    pairs: dict[int, Table] = field(default_factory=dict)  # by stride, in order of frames
    stage_ms: dict[str, list[float]] = field(default_factory=dict)  # of timed frames, by stage; 'frame' is all of it
    track_lengths: dict[int, int] = field(default_factory=dict)  # frames -> number of tracks that were that long
    error_histogram: NDArray[np.int64] | None = None  # stride 1: counts between ERROR_EDGES_PX; None without truth
    forward_backward: list[float] = field(default_factory=list)  # shares, one for each pair that was matched both ways
    odometry: OdometryResult | None = None
    worst_pairs: list[DrawnPair] = field(default_factory=list)  # worst first
    cost_ms: dict[str, list[float]] = field(default_factory=dict)  # of timed frames: cpu_ms, over all threads, and gpu_ms
    latency_ms: list[float] = field(default_factory=list)  # live: image sent to cloud received
    figures: dict[str, float] = field(default_factory=dict)  # more of METRICS: dropped
    deviation_histogram: NDArray[np.int64] | None = None  # stride 1: counts between DEVIATION_EDGES; None without covariances
    tracks_ended: list[tuple[int, int]] = field(default_factory=list)  # by pair in time: the sum of their lengths, their number
    engine: dict[str, Any] | None = None  # of our methods offline: backend, image_height, image_width, max_keypoints
    middle_pair: list[DrawnPair] = field(default_factory=list)  # of the middle of the recording, neither best nor worst
    _intervals: dict[int, dict[str, ConfidenceInterval]] = field(default_factory=dict, repr=False)

    def table(self, stride: int = 1) -> Table:
        """The pairs of a stride, also where there are none."""
        return self.pairs.get(stride, table_of(()))

    def count(self, stride: int = 1) -> int:
        """Pairs of a stride."""
        return len(self.table(stride)['frame'])

    def summary(self, stride: int = 1) -> dict[str, float]:
        """METRICS over the pairs of a stride; what cannot be known is missing. Shares are in percent."""
        figures = summary_of(self.table(stride))
        if stride == 1:
            if self.forward_backward:
                figures['forward_backward'] = 100 * (sum(self.forward_backward) / len(self.forward_backward))
            if total := sum(self.track_lengths.values()):
                figures['track_length'] = sum(length * count for length, count in self.track_lengths.items()) / total
            if times := self.stage_ms.get('frame'):
                figures |= {f'frame_ms_p{p}': float(np.percentile(times, p)) for p in PERCENTILES}
                figures['fps'] = 1e3 / max(float(np.median(times)), 1e-9)
            if self.latency_ms:
                figures |= {f'latency_ms_p{p}': float(np.percentile(self.latency_ms, p)) for p in PERCENTILES}
            figures |= {name: mean(values) for name, values in self.cost_ms.items() if values}
            if self.odometry is not None:
                figures |= self.odometry.figures
            figures |= self.figures
        return {name: figures[name] for name in METRICS if name in figures}

    def intervals(self, stride: int = 1) -> dict[str, ConfidenceInterval]:
        """The 95 % intervals of `summary`, and what each figure rests on; missing where there is none, as of a single pair.

        The upper end of a percentile is infinite where too few frames tell it.
        """
        if stride not in self._intervals:
            self._intervals[stride] = self._measure_intervals(stride)
        return self._intervals[stride]

    def _measure_intervals(self, stride: int) -> dict[str, ConfidenceInterval]:
        intervals = pair_intervals(self.table(stride))
        if stride == 1:
            if self.forward_backward:
                intervals['forward_backward'] = confidence.mean_interval(self.forward_backward).scaled(100)
            if self.tracks_ended:
                intervals['track_length'] = confidence.ratio_interval(*zip(*self.tracks_ended, strict=True))
            for name, times in (('frame_ms', self.stage_ms.get('frame')), ('latency_ms', self.latency_ms)):
                if times:
                    parts = confidence.percentile_intervals(times, PERCENTILES)
                    intervals |= {f'{name}_p{p}': part for p, part in zip(PERCENTILES, parts, strict=True)}
            if 'frame_ms_p50' in intervals:
                low, high, size = intervals['frame_ms_p50']
                if math.isfinite(high):  # few frames leave an end of a median open
                    most = 1e3 / low if low > 0 else math.inf
                    intervals['fps'] = ConfidenceInterval(1e3 / max(high, 1e-9), most, size)
            intervals |= {name: confidence.mean_interval(values) for name, values in self.cost_ms.items() if values}
            if self.odometry is not None:
                intervals |= self.odometry.intervals
        return {name: interval for name, interval in intervals.items() if interval.size > 1 and math.isfinite(interval.low)}


@dataclass(eq=False)
class Evaluation:
    """Everything that a report shows."""

    recording: dict[str, Any]  # path, topic, frames, duration_s, width, height, camera, truth: plain values for people
    machine: str
    matchers: list[MatcherResult]  # ours first; comparisons are against the first
    strides: tuple[int, ...]
    notes: list[str] = field(default_factory=list)  # what was left out or lost, and why: one line each
    interrupted: bool = False  # Ctrl-C: the figures are over what was done until then
    covered: int | None = None  # frames of the recording that were evaluated; None: all
    wall_s: dict[str, float] = field(default_factory=dict)  # where the time went: inference, baselines, reading, estimating, report
    peak_memory_mib: float = 0.0
    estimator: str = ''  # how poses were estimated

    @property
    def headline(self) -> str:
        """The metric that judges the first matcher: the first of HEADLINES that it has; empty without any."""
        figures = self.matchers[0].summary() if self.matchers else {}
        return next((name for name in HEADLINES if name in figures), '')

    @cached_property
    def contests(self) -> dict[tuple[int, str, str], Difference]:
        """The first matcher's figures less another's, points, over the pairs of which both know it: by stride, name and metric."""
        contests = dict[tuple[int, str, str], Difference]()
        for stride, other in itertools.product(self.strides, self.matchers[1:]):
            differences = paired_differences(self.matchers[0].table(stride), other.table(stride), CONTESTED)
            contests |= {(stride, other.name, metric): each.scaled(100) for metric, each in differences.items()}
        return contests
