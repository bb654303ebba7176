"""Visual odometry over a sliding window of views: PnP to begin with, then bundle adjustment. No map, no loop closure.

Pixels do not come here: points are undistorted, on the plane z = 1. Poses are world from camera, the camera in its optical frame.
With a right image's columns the world is metric; without them its unit is the distance between the first two views. Where the right
camera is turned by a tenth of a degree, all columns are off by a pixel, which costs a tenth of the scale: so that is estimated.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.types import Float64
from .bundle_adjustment import Belief, Bundle, adjust, reprojection_errors
from .two_view import estimate_relative_pose

VIEWS = 8  # in the window beside the newest; poses of the oldest are kept as they are
POINTS = 500  # in the adjustment at most, those that most views see
STEPS = 6  # of the adjustment per frame
SCALE_PX = 0.5  # of Cauchy's loss
WRONG_PX = 3.0  # further from where it should be, a point is dropped
PNP_PX = 4.0
OFFSET_PX = 1.0  # how far off the right image's columns may well be, all by the same
ENOUGH = 12  # points that agree, for a pose
MOVED_PX = 10.0  # by the median point, since the last view that stays: the next one stays too
SHARED = 0.6  # of that view's points; with fewer the next one stays too
PARALLAX = np.radians(1.0)  # between the rays of a point that is triangulated over time
STARTED = np.radians(1.0)  # of the median point, to begin without a right image
LEAST_DISPARITY_PX = 0.5
SAME_S = 1e-3  # stamps this close are of one frame

Ids = NDArray[np.int64]


class Quality(Enum):
    """What a pose rests on."""

    STARTING = 'starting'  # nothing yet: no motion seen
    TRACKING = 'tracking'
    LOST = 'lost'  # the motion before, repeated


class Fix(NamedTuple):
    """Where the camera was."""

    stamp: float  # seconds
    pose: Float64  # (4, 4) world from camera
    quality: Quality
    points: int  # that agree
    velocity: Float64 = np.zeros(3)  # (3,) along the camera's axes, units a second; 0 where it is not tracking


@dataclass
class _View:
    """What a frame saw, by ascending id."""

    stamp: float
    pose: Float64  # (4, 4) world from camera
    ids: Ids  # (M,)
    seen: Float64  # (M, 3) x, y and the right image's x, NaN where none

    def of(self, ids: Ids) -> Float64:
        """Its observations of `ids` (L,), (L, 3), NaN where it has none."""
        found = np.full((len(ids), 3), np.nan)
        mine, theirs = np.intersect1d(self.ids, ids, assume_unique=True, return_indices=True)[1:]
        found[theirs] = self.seen[mine]
        return found

    def gain(self, ids: Ids, seen: Float64) -> None:
        """Observations of ids that it has none of yet."""
        fresh = ~np.isin(ids, self.ids)
        every = np.concatenate([self.ids, ids[fresh]])
        order = np.argsort(every)
        self.ids, self.seen = every[order], np.concatenate([self.seen, seen[fresh]])[order]


class SlidingWindow:
    """Poses of consecutive frames.

        window = SlidingWindow(focal_px=camera.k[0, 0], baseline_m=0.54)
        fix = window.add(stamp, track_ids, points, reference_stamp, reference_points, right_x)
    """

    def __init__(self, focal_px: float, baseline_m: float | None = None, pose: Float64 | None = None, speed: float = 0.0) -> None:
        """`focal_px` tells how large a pixel is on the plane z = 1. Without `baseline_m`, right columns are not looked at.

        One that goes on from another has that one's last pose (4, 4) and its `speed`.
        """
        self._pixel, self._baseline = 1 / focal_px, baseline_m
        self._views: list[_View] = []
        self._points: dict[int, Float64] = {}  # (3,) world, by id
        self._pose = np.eye(4) if pose is None else pose  # the last frame's
        self._step, self.speed = np.eye(4), speed  # the motion to it from the one before, and its speed, units a second
        self._begun, self._begin = False, self._begin_in_own_unit if baseline_m is None else self._begin_metric
        self._belief = Belief(0.0, (OFFSET_PX * self._pixel)**-2)

    @property
    def metric(self) -> bool:
        """Whether its unit is the metre."""
        return self._baseline is not None

    @property
    def right_offset_px(self) -> float:
        """By how much the right image's columns are too large, by the tracks themselves; it is taken into account."""
        return self._belief.offset / self._pixel

    def add(self, stamp: float, ids: ArrayLike, points: ArrayLike, reference_stamp: float, reference_points: ArrayLike,
            right_x: ArrayLike | None = None) -> Fix:
        """A frame's tracks: ids (M,), points (M, 2) in it and in its reference, and in the right image, (M,), NaN where none."""
        tracks, order = np.unique(np.asarray(ids, np.int64), return_index=True)
        here, there = _three(points)[order], _three(reference_points)[order]
        if right_x is not None and self._baseline is not None:
            here[:, 2] = np.asarray(right_x, np.float64)[order]
        if self._views and stamp <= self._views[-1].stamp:
            self._views, self._points, self._begun = [], {}, False
        if not self._views:
            self._views.append(_View(reference_stamp, self._pose, tracks[:0], there[:0]))
        for view in self._views:
            if abs(view.stamp - reference_stamp) < SAME_S:
                view.gain(tracks, there)
        before = self._views[-1]
        if len(self._views) > 2 and not self._stays(self._views[-2], before):
            self._views.pop()
        view = _View(stamp, before.pose @ self._step, tracks, here)
        self._views.append(view)
        follows, velocity = self._begun, np.zeros(3)
        try:
            quality, count = self._follow() if follows else self._begin()
        except (np.linalg.LinAlgError, cv2.error):  # tracks that no geometry fits, where nothing before has noticed
            quality, count = self._lose(before.pose @ self._step)
        if quality is Quality.TRACKING:
            origin = before if follows else self._views[-2]  # one camera begins with a view that may be some frames back
            self._step = np.asarray(np.linalg.solve(origin.pose, view.pose), np.float64)
            velocity = self._step[:3, :3].T @ self._step[:3, 3] / (stamp - origin.stamp)
            self.speed = float(np.linalg.norm(velocity))
        self._views, self._pose = self._views[-VIEWS:], view.pose
        return Fix(stamp, view.pose, quality, count, velocity)

    def _stays(self, before: _View, view: _View) -> bool:
        moved = np.linalg.norm(view.of(before.ids)[:, :2] - before.seen[:, :2], axis=1) / self._pixel
        moved = moved[np.isfinite(moved)]
        return len(moved) < SHARED * len(before.ids) or bool(np.median(moved) > MOVED_PX)

    def _begin_metric(self) -> tuple[Quality, int]:
        """The newest view's points have depth: where did the one before see them from?"""
        before, last = self._views[-2:]
        self._views = [last]
        self._triangulate()
        there = self._located(before)
        self._points = {}
        if there is None:
            return Quality.STARTING, 0
        last.pose = before.pose @ np.linalg.solve(there, last.pose)
        self._views, self._begun = [before, last], True
        self._triangulate()
        return Quality.TRACKING, self._adjusted()

    def _begin_in_own_unit(self) -> tuple[Quality, int]:
        """Two views, as soon as they are far enough apart."""
        first, last = self._views[0], self._views[-1]
        last.pose = first.pose
        shared = last.of(first.ids)
        known = np.isfinite(shared[:, 0])
        if np.count_nonzero(known) < 2 * ENOUGH:
            self._views = [last]
            return Quality.STARTING, 0
        x0, x1 = first.seen[known, :2] / self._pixel, shared[known, :2] / self._pixel
        matrix = np.diag([1 / self._pixel, 1 / self._pixel, 1.0])
        relative = estimate_relative_pose(x0, x1, matrix, matrix)
        if relative is None:
            return Quality.STARTING, 0
        motion = np.eye(4)
        length = self.speed * (last.stamp - first.stamp) or 1.0  # the unit, or on as fast as before
        motion[:3, :3], motion[:3, 3] = relative.rotation, relative.translation * length
        rays0, rays1 = _rays(first.seen[known]), _rays(shared[known]) @ relative.rotation
        angles = np.arccos(np.clip(np.sum(rays0 * rays1, axis=1), -1, 1))[relative.inliers]
        if len(angles) < ENOUGH or np.median(angles) < STARTED:
            return Quality.STARTING, 0
        last.pose = first.pose @ np.linalg.inv(motion)
        self._views, self._begun = [first, last], True
        self._triangulate()
        return Quality.TRACKING, self._adjusted()

    def _follow(self) -> tuple[Quality, int]:
        view = self._views[-1]
        pose = self._located(view)
        if pose is None:
            return self._lose(view.pose)
        view.pose = pose
        self._triangulate()
        return Quality.TRACKING, self._adjusted()

    def _lose(self, pose: Float64) -> tuple[Quality, int]:
        """On from here, with the motion before."""
        view = self._views[-1]
        view.pose = pose
        self._points, self._views, self._begun = {}, [view], False
        return Quality.LOST, 0

    def _located(self, view: _View) -> Float64 | None:
        """The pose in which it sees the points that have places; None where too few agree."""
        known = np.array([number in self._points for number in view.ids.tolist()], np.bool_)
        places = np.array([self._points[number] for number in view.ids[known].tolist()]).reshape(-1, 3)
        return _perspective(places, view.seen[known, :2], PNP_PX * self._pixel)

    def _triangulate(self) -> None:
        """Places of the newest view's points that have none: by the right image, else by rays from several views."""
        view = self._views[-1]
        fresh = np.array([number for number in view.ids.tolist() if number not in self._points], np.int64)
        if not len(fresh):
            return
        seen = np.stack([each.of(fresh) for each in self._views])  # (P, L, 3)
        places = _nearest_to_rays(np.stack([each.pose for each in self._views]), seen)
        if self._baseline is not None:
            disparity = seen[-1, :, 0] - seen[-1, :, 2] + self._belief.offset
            deep = np.flatnonzero(disparity > LEAST_DISPARITY_PX * self._pixel)
            there = np.column_stack([seen[-1, deep, :2], np.ones(len(deep))]) * (self._baseline / disparity[deep])[:, None]
            places[deep] = there @ view.pose[:3, :3].T + view.pose[:3, 3]
        errors = reprojection_errors(Bundle(self._inverse_poses(), places, self._belief.offset), seen, self._baseline or 0.0)
        good = np.isfinite(places).all(axis=1) & (np.fmax.reduce(errors) < WRONG_PX * self._pixel)
        self._points.update(zip(fresh[good].tolist(), places[good], strict=True))

    def _adjusted(self) -> int:
        """Adjust the window, drop what is wrong, forget what is no longer seen; the newest view's points that are left."""
        every, counts = np.unique(np.concatenate([view.ids for view in self._views]), return_counts=True)
        often = [number for number in every[np.argsort(-counts, kind='stable')].tolist() if number in self._points][:POINTS]
        self._points = {number: self._points[number] for number in often}
        ids = np.array(often, np.int64)
        seen = np.stack([view.of(ids) for view in self._views])
        fixed = 1 if self._baseline is not None else 2
        bundle = Bundle(self._inverse_poses(), np.array(list(self._points.values())).reshape(-1, 3), self._belief.offset)
        if len(self._views) > fixed:
            before = self._belief
            bundle, after = adjust(bundle, seen, fixed, self._baseline or 0.0, SCALE_PX * self._pixel, STEPS, before)
            gained = (after.information - before.information) / VIEWS  # each view is in as many adjustments
            self._belief = Belief(after.offset, before.information + max(0.0, gained))
        for view, inverse in zip(self._views, bundle.inverse_poses, strict=True):
            view.pose = np.linalg.inv(inverse)
        errors = reprojection_errors(bundle, seen, self._baseline or 0.0)
        good = ~(errors > WRONG_PX * self._pixel).any(axis=0)
        self._points = dict(zip(ids[good].tolist(), bundle.points[good], strict=True))
        return int(np.count_nonzero(np.isfinite(errors[-1, good])))

    def _inverse_poses(self) -> Float64:
        return np.linalg.inv(np.stack([view.pose for view in self._views]))


def _three(points: ArrayLike) -> Float64:
    xy = np.asarray(points, np.float64).reshape(-1, 2)
    return np.column_stack([xy, np.full(len(xy), np.nan)])


def _rays(seen: Float64) -> Float64:
    """Unit vectors (..., 3) of observations (..., 3)."""
    rays = np.concatenate([seen[..., :2], np.ones((*seen.shape[:-1], 1))], axis=-1)
    return np.asarray(rays / np.linalg.norm(rays, axis=-1, keepdims=True), np.float64)


def _nearest_to_rays(poses: Float64, seen: Float64) -> Float64:
    """The points (L, 3) nearest to the rays of views (P, L, 3); NaN where the rays are too parallel."""
    rays = _rays(seen) @ poses[:, :3, :3].transpose(0, 2, 1)
    across = np.eye(3) - rays[..., :, None] * rays[..., None, :]
    across[np.isnan(seen[..., 0])] = 0
    square = across.sum(axis=0)
    right = np.einsum('plij,pj->li', across, poses[:, :3, 3])
    apart = np.linalg.eigvalsh(square)[:, 0] > 1 - np.cos(PARALLAX)
    places = np.full((len(square), 3), np.nan)
    places[apart] = np.linalg.solve(square[apart], right[apart, :, None])[..., 0]
    return places


def _perspective(places: Float64, seen: Float64, limit: float) -> Float64 | None:
    """The pose (4, 4), world from camera, in which points (N, 3) are seen at (N, 2) within `limit`; None where too few agree."""
    if len(places) < ENOUGH:
        return None
    solve: Any = cv2.solvePnPRansac
    found, turn, shift, rows = solve(places, np.ascontiguousarray(seen), np.eye(3), None, iterationsCount=300,
                                     reprojectionError=limit, confidence=0.999, flags=cv2.SOLVEPNP_AP3P)
    if not found or rows is None or len(rows) < ENOUGH:
        return None
    refine: Any = cv2.solvePnPRefineLM  # the pose of few points is far off where most are far away
    turn, shift = refine(places[rows.ravel()], np.ascontiguousarray(seen[rows.ravel()]), np.eye(3), None, turn, shift)
    inverse = np.eye(4)
    inverse[:3, :3], inverse[:3, 3] = cv2.Rodrigues(turn)[0], shift.ravel()
    return np.asarray(np.linalg.inv(inverse), np.float64)
