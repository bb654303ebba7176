"""report.json: everything that an evaluation found but the images, as plain values under a versioned schema."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from lightglue_trt_ros.core.timing import PERCENTILES
from lightglue_trt_ros.core.types import Float64

from ..score.confidence import LEVEL, SEED, ConfidenceInterval
from ..score.metrics import ERROR_EDGES_PX, METRICS, PRECISION_PX, Evaluation, MatcherResult, OdometryResult, Table
from ..score.trajectory import TRAJECTORIES

SCHEMA = 2
DIGITS = 7  # significant ones of what is kept per pair; summaries are kept in full, poses to 1e-9
WHOLE = ('reference_frame', 'frame', 'stamp', 'matches', 'inliers', 'model')
KEPT = (*(f'precision@{px}' for px in PRECISION_PX), 'error_median_px', 'rotation_deg', 'translation_deg', 'within_1_sigma',
        'within_2_sigma', 'step_m', 'step_per_depth', 'track_survival', 'retention', 'agreement_f1', 'count_ratio')


def document(evaluation: Evaluation) -> dict[str, Any]:
    """The report as plain values: no NaN, no infinity (both None; `pose_found` tells a failed pose from an unknown one).

    Contests are the first matcher's figure less another's, in points, with its interval. Pairs are columns by stride; poses are 12
    numbers each, the rows of the 3x4 matrix, world from camera. Intervals also say how many pairs, frames or tracks
    the figure rests on (`over`).
    """
    return dict(_plain({
        'schema': SCHEMA, 'package': 'lightglue_trt_ros', 'recording': evaluation.recording, 'machine': evaluation.machine,
        'interrupted': evaluation.interrupted, 'covered': evaluation.covered, 'notes': evaluation.notes,
        'estimator': evaluation.estimator,
        'strides': evaluation.strides, 'wall_s': evaluation.wall_s, 'peak_memory_mib': evaluation.peak_memory_mib,
        **definitions(), 'error_edges_px': ERROR_EDGES_PX,
        'contests': [{'stride': stride, 'other': other, 'metric': metric, **interval.plain()}
                     for (stride, other, metric), interval in evaluation.contests.items()],
        'matchers': [_matcher(matcher, evaluation.strides) for matcher in evaluation.matchers]}))


def definitions() -> dict[str, Any]:
    """Definitions of the metrics and of their intervals."""
    return {'metrics': {name: {'label': metric.label, 'unit': metric.unit, 'higher_is_better': metric.higher_is_better}
                        for name, metric in METRICS.items()},
            'bootstrap': {'resamples': TRAJECTORIES, 'level': LEVEL, 'seed': SEED}}


def as_text(value: dict[str, Any]) -> bytes:
    """A document of plain values as JSON, readable; None for what is not finite."""
    return (_lines(_plain(value)) + '\n').encode()


def _matcher(matcher: MatcherResult, strides: tuple[int, ...]) -> dict[str, Any]:
    summary = {str(stride): matcher.summary(stride) for stride in strides}
    return {'name': matcher.name, 'description': matcher.description, 'ours': matcher.ours, 'engine': matcher.engine,
            'summary': summary,
            'intervals': {str(stride): intervals_of(matcher.intervals(stride)) for stride in strides},
            'stage_ms': {stage: {**{f'p{p}': float(np.percentile(values, p)) for p in PERCENTILES if values},
                                 'values': [round(value, 3) for value in values]} for stage, values in matcher.stage_ms.items()},
            'cost_ms': {name: [round(value, 3) for value in values] for name, values in matcher.cost_ms.items()},
            'track_lengths': dict(sorted(matcher.track_lengths.items())), 'error_histogram': matcher.error_histogram,
            'deviation_histogram': matcher.deviation_histogram,
            'forward_backward': sum(shares) / len(shares) if (shares := matcher.forward_backward) else None,
            'odometry': matcher.odometry and _odometry(matcher.odometry),
            'worst': [{'frames': pair.frames, 'badness': pair.badness, 'matches': len(pair.points.reference), 'why': pair.why}
                      for pair in matcher.worst_pairs],
            'pairs': {str(stride): _columns(pairs) for stride, pairs in matcher.pairs.items()}}


def _columns(table: Table) -> dict[str, list[Any]]:
    columns = {name: table[name].tolist() for name in (*WHOLE, *KEPT, 'pose_error_deg')}
    return {**{name: columns[name] for name in WHOLE}, **{name: list(map(_short, columns[name])) for name in KEPT},
            'layers': [None if math.isnan(value) else int(value) for value in table['layers'].tolist()],
            'pose_found': [None if math.isnan(value) else math.isfinite(value) for value in columns['pose_error_deg']]}


def _odometry(odometry: OdometryResult) -> dict[str, Any]:
    true_poses = None if odometry.true_poses is None else _rows(odometry.true_poses)
    plain = {name: value for name, value in vars(odometry).items() if name != 'intervals'}  # they stand with the other intervals
    return {**plain, 'poses': _rows(odometry.poses), 'true_poses': true_poses}


def intervals_of(intervals: dict[str, ConfidenceInterval]) -> dict[str, Any]:
    """Ends and size of each, by the same names; an open end is infinite."""
    return {name: {'low': interval.low, 'high': interval.high, 'over': interval.size} for name, interval in intervals.items()}


def _rows(poses: Float64) -> Float64:
    return np.round(poses[:, :3].reshape(-1, 12), 9)


def _short(value: float) -> float:
    return float(f'{value:.{DIGITS}g}') if math.isfinite(value) else value


def _plain(value: Any) -> Any:
    """Values that JSON knows: arrays as lists, None for what is not finite, text for what is left."""
    text = json.dumps(value, default=lambda each: each.tolist() if isinstance(each, (np.ndarray, np.generic)) else str(each))
    return json.loads(text, parse_constant=lambda _: None)


def _lines(value: Any, depth: int = 0) -> str:
    """JSON with a line for each key and each list of scalars: readable, and no line per number."""
    inside, end = '\n' + ' ' * (depth + 1), '\n' + ' ' * depth
    if isinstance(value, dict) and value:
        entries = (f'{json.dumps(key)}: {_lines(entry, depth + 1)}' for key, entry in value.items())
        return '{' + inside + f',{inside}'.join(entries) + end + '}'
    if isinstance(value, list) and any(isinstance(entry, (dict, list)) for entry in value):
        return '[' + inside + f',{inside}'.join(_lines(entry, depth + 1) for entry in value) + end + ']'
    return json.dumps(value, allow_nan=False)
