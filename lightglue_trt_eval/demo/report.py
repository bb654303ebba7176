"""The report of the demo: the errors of each received cloud, their medians, the path of the odometry, and their plots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lightglue_trt_ros.core.cameras import Intrinsics, undistort
from lightglue_trt_ros.core.drawing import BLUE, GRAY, ORANGE
from lightglue_trt_ros.core.types import Float64, FrameMatches
from lightglue_trt_ros.datasets.poses import Trajectory
from lightglue_trt_ros.odometry.sliding_window import MatchOdometry, Quality
from lightglue_trt_ros.odometry.two_view import epipolar_errors, fundamental_from_poses
from lightglue_trt_ros.utils.processes import describe_machine

from ..replay import Reception
from ..report.style import finish, new_figure, styled
from ..score.trajectory import align_sim3, ate
from .flight import FlightFrame, transfer

CORRECT_PX = 3.0
SAME_NS = 1_000_000  # a truth further from a cloud's stamp than this is not its own
FORMATS = {'within_3px': '{:.1%}', 'error_median_px': '{:.2f}', 'error_p95_px': '{:.2f}'}  # others: whole numbers
SUMMARY = {'matches': 'matches per frame', 'error_median_px': 'error, median, px', 'error_p95_px': 'error, 95th percentile, px',
           'within_3px': f'matches within {CORRECT_PX:g} px', 'track_length': 'track length, frames', 'latency_ms': 'latency, ms'}


class Truth(NamedTuple):
    """Ground truth for the demo's points."""

    kind: str  # in words
    errors: Callable[[FrameMatches], Float64]  # (M,) pixels from the truth, NaN where it does not say


NO_TRUTH = Truth('no ground truth in the recording', lambda matches: np.full(len(matches), np.nan))


def flight_truth(frames: Sequence[FlightFrame], camera: Float64) -> Truth:
    """Depth and poses of a rendered flight: how far a point is from where it really went."""
    by_stamp = {frame.stamp_ns: frame for frame in frames}

    def errors(matches: FrameMatches) -> Float64:
        first, second = _both(by_stamp, matches)
        expected, visible = transfer(matches.reference_keypoints, first.depth, first.pose, second.pose, camera)
        return np.where(visible, np.linalg.norm(expected - matches.keypoints, axis=1), np.nan)

    return Truth('distance to the true position', errors)


def pose_truth(trajectory: Trajectory, camera: Intrinsics) -> Truth:
    """Recorded poses: how far a point, without the lens's distortion, is from its true epipolar line."""
    by_stamp = dict(zip(trajectory.stamps_ns.tolist(), trajectory.poses, strict=True))

    def errors(matches: FrameMatches) -> Float64:
        first, second = _both(by_stamp, matches)
        fundamental = fundamental_from_poses(first, second, camera.k, camera.k)
        return epipolar_errors(undistort(matches.reference_keypoints, camera), undistort(matches.keypoints, camera), fundamental)

    return Truth('distance to the true epipolar line', errors)


def _both(by_stamp: Mapping[int, Any], matches: FrameMatches) -> list[Any]:
    """The entries nearest to the stamps of the reference and of the current frame."""
    return [by_stamp[min(by_stamp, key=lambda key: abs(key * 1e-9 - stamp))] for stamp in (matches.reference_stamp, matches.stamp)]


def make_report(got: Reception, truth: Truth, published: int, hz: float) -> dict[str, Any]:
    """Plain values for JSON, the table and the plot."""
    start = got.matches[0].reference_stamp
    rows = [{'time_s': each.stamp - start, **_row(each.matched(), latency_ms, truth)}
            for each, latency_ms in zip(got.matches, got.latency_ms, strict=True)]
    return {'schema': 1, 'machine': describe_machine(),
            'backend': got.diagnostics.get('backend', 'none'), 'truth': truth.kind, 'correct_px': CORRECT_PX,
            'frames_published': published, 'rate_hz': hz, 'period_ms': 1e3 / hz, 'clouds_received': len(rows),
            'frames_dropped': published - 1 - len(rows), 'summary': {name: _median(rows, name) for name in SUMMARY},
            'diagnostics': got.diagnostics, 'per_frame': rows}


@styled()
def draw_plot(report: dict[str, Any]) -> bytes:
    """The PNG of matches, error and latency of every frame over time."""
    def column(name: str) -> Float64:
        return np.array([row.get(name) for row in report['per_frame']], float)  # None becomes NaN, which matplotlib leaves out

    time, latency_ms = column('time_s'), column('latency_ms')
    figure, (counts, errors, latency) = new_figure(3, 8.0)
    counts.set_title('Matches')
    counts.plot(time, column('matches'), color=BLUE, label='published')
    counts.fill_between(time, column('correct'), color=BLUE, alpha=0.15, lw=0, label=f'within {CORRECT_PX:g} px')
    errors.set_title(f'{report["truth"].capitalize()}, px')
    errors.plot(time, column('error_median_px'), color=BLUE, label='median')
    errors.plot(time, column('error_p95_px'), color=ORANGE, label='p95')
    latency.set_title('Latency, ms')
    latency.plot(time, latency_ms, color=BLUE, lw=1, marker='o', ms=4, label='image to matches')
    latency.axhline(report['period_ms'], color=GRAY, lw=1.5, ls='--', label='period of the frames')
    latency.set_xlabel('time since the first frame, s')
    for axes in (counts, errors, latency):
        axes.set_ylim(0, 1.25 * axes.get_ylim()[1])  # room for the legend
        axes.margins(x=0.01)
        axes.legend(loc='upper right', ncol=2, fontsize='small')
    return finish(figure)


def table_rows(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Rows of the table: names and values."""
    rows = [('backend', report['backend']), ('frames published', f'{report["frames_published"]} at {report["rate_hz"]:.2f} Hz'),
            ('clouds received', f'{report["clouds_received"]} (the first frame has no reference)'),
            ('frames dropped', str(report['frames_dropped'])), ('error against', report['truth'])]
    rows += [(SUMMARY[name], FORMATS.get(name, '{:.0f}').format(value))
             for name, value in report['summary'].items() if value is not None]
    path = report.get('path', {})
    if 'ate_m' in path:
        rows.append(('odometry of the matches',
                     f'{path["ate_m"]:.3f} m off the ground truth over {path["length_m"]:.1f} m (ATE, aligned)'))
    return rows


def _row(matches: FrameMatches, latency_ms: float, truth: Truth) -> dict[str, Any]:
    """The figures of a frame; those of errors where the ground truth says something."""
    errors = truth.errors(matches)
    errors = errors[np.isfinite(errors)]
    row: dict[str, Any] = {'matches': len(matches), 'latency_ms': latency_ms if np.isfinite(latency_ms) else None,
                           'track_length': float(np.median(matches.track_lengths)) if len(matches) else None}
    if len(errors):
        within = float(np.mean(errors <= CORRECT_PX))
        row |= {'within_3px': within, 'correct': within * len(matches), 'error_median_px': float(np.median(errors)),
                'error_p95_px': float(np.percentile(errors, 95))}
    return row


def _median(rows: list[dict[str, Any]], name: str) -> float | None:
    values = [row[name] for row in rows if row.get(name) is not None]
    return float(np.median(values)) if values else None


def draw_odometry(matches: Sequence[FrameMatches], camera: Intrinsics,
                  truth: Trajectory | None) -> tuple[dict[str, float], bytes] | None:
    """The path of the odometry, after Sim(3) alignment with the ground truth if there is one: its figures, and its PNG.

    None where fewer than three frames have a pose, or a pose and a true one.
    """
    tracked = [fix for fix in map(MatchOdometry(camera).add, matches) if fix.quality is Quality.TRACKING]
    poses, true_poses = np.array([fix.pose for fix in tracked]).reshape(-1, 4, 4), None
    if truth is not None and tracked:
        stamps = np.array([round(fix.stamp * 1e9) for fix in tracked], np.int64)
        rows = np.abs(stamps[:, None] - truth.stamps_ns).argmin(axis=1)
        near = np.abs(truth.stamps_ns[rows] - stamps) < SAME_NS
        poses, true_poses = poses[near], truth.poses[rows[near]]
    if len(poses) < 3:
        return None
    if true_poses is None:
        return {'frames': len(poses)}, _draw_path(poses[:, :3, 3], None)
    alignment = align_sim3(poses, true_poses)
    if alignment is None:
        return None
    aligned, true_path = alignment.apply(poses), true_poses[:, :3, 3]
    length_m = float(np.linalg.norm(np.diff(true_path, axis=0), axis=1).sum())
    figures = {'frames': len(poses), 'ate_m': float(ate(aligned, true_poses) or 0.0), 'length_m': length_m}
    return figures, _draw_path(aligned[:, :3, 3], true_path)


@styled()
def _draw_path(path: Float64, true_path: Float64 | None) -> bytes:
    """The PNG of positions (N, 3), from where most of the path is seen."""
    shown = path if true_path is None else true_path
    middle = shown.mean(axis=0)
    sides = np.linalg.svd(shown - middle, full_matrices=False)[2][:2]  # the plane in which it extends most
    figure, (axes,) = new_figure()
    if true_path is not None:
        axes.plot(*(sides @ (true_path - middle).T), color=GRAY, lw=4, label='ground truth')
    axes.plot(*(sides @ (path - middle).T), color=BLUE, lw=2, marker='o', ms=3, label='odometry')
    axes.set_aspect('equal', adjustable='datalim')
    axes.set_title('Path, m' if true_path is not None else 'Path, in a unit of its own')
    return finish(figure, axes)
