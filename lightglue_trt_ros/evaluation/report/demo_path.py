"""The path that the odometry makes of the demo's matches, beside the true one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...core.cameras import Intrinsics, normalised
from ...core.drawing import BLUE, GRAY
from ...core.types import Float64, FrameMatches
from ...datasets.poses import Trajectory
from ...odometry.sliding_window import Quality, SlidingWindow
from ..trajectory import align_sim3, ate
from .style import finish, new_figure, styled

SAME_NS = 1_000_000  # a truth further from a cloud's stamp than this is not its own


@dataclass(frozen=True)
class WatchedPath:
    """Positions of the frames that the odometry has poses of, scaled, turned and shifted to the truth where there is one."""

    positions: Float64  # (N, 3)
    truth: Float64 | None  # (N, 3)
    figures: dict[str, float]  # frames; with truth ate_m and length_m


def odometry_path(found: Sequence[FrameMatches], camera: Intrinsics, truth: Trajectory | None) -> WatchedPath | None:
    """None where fewer than three frames have a pose, or a pose and a truth."""
    window = SlidingWindow(float(camera.k[0, 0]))
    fixes = [window.add(each.stamp, each.track_ids, normalised(each.keypoints, camera), each.reference_stamp,
                        normalised(each.reference_keypoints, camera)) for each in found]
    tracked = [fix for fix in fixes if fix.quality is Quality.TRACKING]
    poses = np.array([fix.pose for fix in tracked]).reshape(-1, 4, 4)
    if truth is None:
        return WatchedPath(poses[:, :3, 3], None, {'frames': len(poses)}) if len(poses) > 2 else None
    stamps = np.array([round(fix.stamp * 1e9) for fix in tracked], np.int64)
    rows = np.abs(stamps[:, None] - truth.stamps_ns).argmin(axis=1) if len(stamps) else stamps
    near = np.abs(truth.stamps_ns[rows] - stamps) < SAME_NS
    poses, true = poses[near], truth.poses[rows[near]]
    if len(poses) < 3 or (alignment := align_sim3(poses, true)) is None:
        return None
    aligned = alignment.apply(poses)
    length = float(np.linalg.norm(np.diff(true[:, :3, 3], axis=0), axis=1).sum())
    return WatchedPath(aligned[:, :3, 3], true[:, :3, 3],
                       {'frames': len(poses), 'ate_m': float(ate(aligned, true) or 0.0), 'length_m': length})


@styled()
def draw_path(path: WatchedPath) -> bytes:
    """The PNG: from where most of the path is seen."""
    shown = path.positions if path.truth is None else path.truth
    middle = shown.mean(axis=0)
    sides = np.linalg.svd(shown - middle, full_matrices=False)[2][:2]  # the plane that it spreads most in
    figure, (axes,) = new_figure()
    if path.truth is not None:
        axes.plot(*(sides @ (path.truth - middle).T), color=GRAY, lw=4, label='truth')
    axes.plot(*(sides @ (path.positions - middle).T), color=BLUE, lw=2, marker='o', ms=3, label='odometry')
    axes.set_aspect('equal', adjustable='datalim')
    axes.set_title('Path, m' if path.truth is not None else 'Path, in a unit of its own')
    return finish(figure, axes)
