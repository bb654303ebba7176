"""Covariances of the poses of a sliding window, and of the steps between them: what the adjustment leaves open, and drift."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from ..core.types import Float64
from .bundle_adjustment import Bundle, OffsetEstimate, pose_covariances
from .pose_covariance import Drift, compounded, difference, larger, of_velocities, step_between, unseen

EXACT, GUESSED = 1e-6, 0.3  # standard deviation of a distance, as a share of it: the unit itself; by the speed of before


class Posed(Protocol):
    """A pose and how uncertain it is."""

    pose: Float64  # (4, 4) world from camera
    covariance: Float64  # (6, 6) since the first pose, without the drift
    drift: Drift


class Adjusted(NamedTuple):
    """A bundle of least cost, and what it was adjusted to."""

    bundle: Bundle
    observed: Float64  # (P, L, 3)
    precisions: Float64  # (P, L)
    offset: OffsetEstimate


class WindowCovariances:
    """Estimates covariances from the adjustment of each window, and keeps how exact the unit of one camera is."""

    def __init__(self, scale: float, baseline: float | None, variance: float) -> None:
        """Estimates for one window.

        Args:
            scale: Of the adjustment's loss.
            baseline: Of the right camera; None: the unit is the distance of the first two views.
            variance: Of errors, over that of independent ones.
        """
        self._scale, self._baseline, self._variance = scale, baseline, variance
        self._length_sigma = self._next_sigma = EXACT  # of the distance of the first two views, and of the next two, as a share

    def start(self, is_guessed: bool) -> None:
        """The first two views: whether their distance is guessed by the speed of before, or is the unit."""
        self._length_sigma = GUESSED if is_guessed else EXACT

    def drop_first(self) -> None:
        """The second view of the window becomes the first one."""
        self._length_sigma = self._next_sigma

    def estimate(self, views: Sequence[Posed], origin: Posed, is_left_out: bool, adjusted: Adjusted) -> Float64:
        """Set the covariances of all `views` after the first one; returns that of the step (6, 6) from `origin` to the last.

        `origin` is one of the views. `is_left_out`: the adjustment before did not have it, so its pose is of then. Raises
        LinAlgError where the adjustment has left no point.
        """
        if not len(adjusted.bundle.points):
            raise np.linalg.LinAlgError('no point is left')
        length_sigma = self._length_sigma if self._baseline is None else None
        bundle, observed, precisions, offset = adjusted
        found = self._variance * pose_covariances(bundle, observed, precisions, self._baseline or 0.0, self._scale, offset,
                                                  length_sigma)
        first, newest, of_origin = views[0], views[-1], origin.covariance
        for number, view in enumerate(views[1:]):
            view.covariance = compounded(first.covariance, step_between(first.pose, view.pose), found[number, :, number])
        if self._baseline is None and len(views) > 2:
            self._next_sigma = _length_sigma(found[:2, :, :2], views[1].pose, views[2].pose)
        if origin is first:
            return np.asarray(found[-1, :, -1], np.float64)
        joint = found[-2:, :, -2:]
        if is_left_out:  # the newest frame's share in what is known of it now is not in that pose
            joint[0, :, 0] += larger(of_origin - origin.covariance)
        return difference(joint, step_between(origin.pose, newest.pose))


def of_step_and_drift(kept: Posed, newest: Posed, step: Float64, of_step: Float64, depth: float, seconds: float) -> Float64:
    """Set the drift of the newest pose; returns the covariance (6, 6) of its velocities.

    Args:
        kept: The view before that stays in the window: while the camera stands, no way adds up from frame to frame.
        step: (4, 4) the motion to the newest pose, which took `seconds`.
        of_step: (6, 6) its covariance by the adjustment.
        depth: The usual depth of the scene.
    """
    newest.drift = kept.drift.after(step_between(kept.pose, newest.pose), depth)
    return of_velocities(of_step + unseen(step, depth), step, seconds)


def _length_sigma(joint: Float64, first: Float64, second: Float64) -> float:
    """Standard deviation of the distance of two poses (4, 4) of a `joint` covariance (2, 6, 2, 6), a share of it, at most 1."""
    apart = second[:3, 3] - first[:3, 3]
    along = np.concatenate([-apart @ first[:3, :3], np.zeros(3), apart @ second[:3, :3], np.zeros(3)]) / max(apart @ apart, 1e-12)
    return float(min(np.sqrt(along @ joint.reshape(12, 12) @ along), 1.0))
