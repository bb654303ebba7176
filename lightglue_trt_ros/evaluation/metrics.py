"""The metrics (docs/evaluation.md defines them), what is kept of a pair of frames, and the figures that sum pairs up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..core.timing import PERCENTILES
from ..odometry.two_view import pose_auc
from .confidence import Interval, Sample, Spread, area_sample, difference, spread

AUC_DEG = (5, 10, 20)
ROTATION_DEG = (1, 2, 5)  # rotations are an order finer than directions
PRECISION_PX = (1, 2, 3)


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
    **{f'rotation_auc@{deg}': Metric(f'rotation AUC up to {deg} degree{"s" * (deg > 1)}', '%', True, 1) for deg in ROTATION_DEG},
    'within_1_sigma': Metric("matches within their standard deviation of the pose's epipolar line: 68.3 is right", '%', True, 1),
    'within_2_sigma': Metric('matches within two of them: 95.4 is right', '%', True, 1),
    'true_within_1_sigma': Metric("matches within it of the true motion's line, if the truth is exact", '%', True, 1),
    'true_within_2_sigma': Metric('matches within two of them', '%', True, 1),
    'pose_failures': Metric('pairs without a pose', '', False, 0),
    'track_length': Metric('track length, mean', 'frames', True, 1),
    'track_survival': Metric('points matched again in the next frame', '%', True, 1),
    'forward_backward': Metric('matches that come back when matched backwards', '%', True, 1),
    'ate_m': Metric('ATE, RMSE after Sim(3) alignment', 'm', False, 3),
    'rpe_m': Metric('RPE per frame, translation, RMSE', 'm', False, 4),
    'rpe_deg': Metric('RPE per frame, rotation, RMSE', 'deg', False, 4),
    'drift_percent': Metric('drift, translation', '%', False, 2),
    'drift_deg_per_m': Metric('drift, rotation', 'deg/m', False, 4),
    'stereo_points': Metric('points with a place in the right image', '%', True, 1),
    'stereo_row_px': Metric('rows of left and right differ by, median', 'px', False, 2),
    'stereo_disparity_px': Metric('disparity from that of the true motion, median', 'px', False, 2),
    'stereo_consistent': Metric('points within 2 px in the frame before, by disparity and true motion', '%', True, 1),
    'stereo_drift_percent': Metric('drift in metres, translation', '%', False, 2),
    'stereo_drift_deg_per_m': Metric('drift in metres, rotation', 'deg/m', False, 4),
    **{f'frame_ms_p{p}': Metric(f'time of a frame, p{p}', 'ms', False, 1) for p in PERCENTILES},
    'fps': Metric('frames per second, from the median', '1/s', True, 1),
    'cpu_ms': Metric('CPU time of a frame, all threads, mean', 'ms', False, 1),
    'gpu_ms': Metric('GPU time of a frame, mean', 'ms', False, 2),
    'retention': Metric("the first's matches that are kept", '%', True, 1),
    'agreement_f1': Metric("F1 against the first's matches", '%', True, 1),
    'count_ratio': Metric("matches against the first's", '%', True, 1),
    'layers': Metric('layers of LightGlue that ran, mean', '', False, 2),
    'dropped': Metric('frames that got no cloud', '', False, 0),
    **{f'latency_ms_p{p}': Metric(f'image sent to cloud received, p{p}', 'ms', False, 1) for p in PERCENTILES},
}
MEANS = {'within_1_sigma': 100, 'within_2_sigma': 100, 'true_within_1_sigma': 100, 'true_within_2_sigma': 100,
         'track_survival': 100, 'retention': 100, 'agreement_f1': 100, 'count_ratio': 100, 'layers': 1}  # factors
FACTORS = {'matches': 1.0, 'layers': 1.0}  # others are shares, in percent
PAIR_METRICS = ('matches', 'inlier_ratio', *(name for name in METRICS if name.startswith(('precision@', 'pose_', 'rotation_'))),
                *MEANS)
HEADLINES = ('pose_auc@10', 'rotation_auc@2', 'inlier_ratio')  # what matchers are judged by, the first that is known
CONTESTED = (*(name for name in METRICS if name.startswith(('pose_auc@', 'rotation_auc@'))), 'precision@1', 'inlier_ratio')


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
    translation_deg: float | None = None  # direction; inf where no pose was found, None where the truth does not resolve it
    track_survival: float | None = None  # share of the reference's tracked points that were matched again
    retention: float | None = None  # against the first matcher on the same pair: share of its matches that this one has too
    agreement_f1: float | None = None  # against the first matcher
    count_ratio: float | None = None  # against the first matcher
    layers: int | None = None  # of LightGlue that ran
    within_1_sigma: float | None = None  # share of `consistency.plausible` matches whose distance to the estimated pose's epipolar
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


def summary_of(pairs: Sequence[PairResult]) -> dict[str, float]:
    """The metrics over pairs; what cannot be known is missing. Shares are in percent."""
    if not pairs:
        return {}
    found = {'matches': float(np.mean([pair.matches for pair in pairs]))}
    if any(pair.model for pair in pairs):
        found['inlier_ratio'] = 100 * mean(pair.inlier_ratio for pair in pairs)
    if precisions := [pair.precision for pair in pairs if pair.precision is not None]:
        found |= {f'precision@{px}': 100 * float(share) for px, share in zip(PRECISION_PX, np.mean(precisions, 0), strict=True)}
    if errors := [pair.pose_error_deg for pair in pairs if pair.pose_error_deg is not None]:
        found |= {f'pose_auc@{deg}': 100 * area for deg, area in zip(AUC_DEG, pose_auc(errors, AUC_DEG), strict=True)}
    if turns := [pair.rotation_deg for pair in pairs if pair.rotation_deg is not None]:
        found |= {f'rotation_auc@{deg}': 100 * area for deg, area in zip(ROTATION_DEG, pose_auc(turns, ROTATION_DEG), strict=True)}
        found['pose_failures'] = float(sum(math.isinf(error) for error in turns))
    for key, factor in MEANS.items():
        if known := [value for pair in pairs if (value := getattr(pair, key)) is not None]:
            found[key] = factor * mean(known)
    return found


def spreads_of(pairs: Sequence[PairResult]) -> dict[str, Spread]:
    """The intervals of what `MatcherResult.summary` says about pairs; each figure is over the pairs of which it is known."""
    found: dict[str, Spread] = {}
    for name in PAIR_METRICS:
        values = np.array([_value(name, pair) for pair in pairs], np.float64)
        values = values[~np.isnan(values)]  # in order of frames, as the pairs are
        if len(values):
            factor = float(len(values)) if name == 'pose_failures' else FACTORS.get(name, 100.0)
            found[name] = spread(_sample(name, values)).scaled(factor)
    return found


def paired_differences(first: Sequence[PairResult], other: Sequence[PairResult]) -> dict[str, Interval]:
    """CONTESTED of the first less the other's, as shares, each over the pairs of which both know it, where there are any."""
    theirs = {pair.frames: pair for pair in other}
    both = [(pair, theirs[pair.frames]) for pair in first if pair.frames in theirs]
    found: dict[str, Interval] = {}
    for metric in CONTESTED:
        values = np.array([[_value(metric, pair) for pair in pairs] for pairs in both], np.float64).reshape(-1, 2)
        values = values[~np.isnan(values).any(axis=1)]
        if len(values):
            found[metric] = difference(_sample(metric, values[:, 0]), _sample(metric, values[:, 1])).within(1)
    return found


def _sample(name: str, values: ArrayLike) -> Sample:
    angle = name.partition('_auc@')[2]
    return area_sample(values, float(angle)) if angle else Sample(np.asarray(values, np.float64))


def _value(name: str, pair: PairResult) -> float:
    """What a pair adds to one of PAIR_METRICS; NaN where it is unknown."""
    base, _, number = name.partition('@')
    if base == 'precision':
        return math.nan if pair.precision is None else pair.precision[PRECISION_PX.index(int(number))]
    value = {'pose_auc': pair.pose_error_deg, 'rotation_auc': pair.rotation_deg, 'pose_failures': pair.rotation_deg}.get(base)
    if base == 'pose_failures' and value is not None:
        return float(math.isinf(value))
    if base not in ('pose_auc', 'rotation_auc', 'pose_failures'):
        value = getattr(pair, base)
    return math.nan if value is None else float(value)


def mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))
