"""Visual odometry over a sliding window of views: PnP, then bundle adjustment. No map, no loop closure.

Points are undistorted, on the plane z = 1. Poses are world from camera, the camera in its optical frame. With the right image's
columns, or with depth, the world is metric; without them its unit is the distance between the first two views. If the right camera
is rotated by a tenth of a degree, all columns have an error of a pixel, which costs a tenth of the scale. So this offset is
estimated. Depth z counts as the column x - 1 / z of a right camera at one metre, with a precision of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.cameras import Intrinsics, StereoRig, normalised
from ..core.geometry import contiguous
from ..core.types import Float64, FrameMatches
from .bundle_adjustment import Bundle, OffsetEstimate, adjust, reprojection_errors
from .covariances import Adjusted, WindowCovariances, of_step_and_drift
from .pose_covariance import Drift, after_unknown, seen_from, step_between
from .two_view import RelativePose, estimate_relative_pose

VIEWS = 8  # in the window, without the newest; the oldest poses are fixed
POINTS = 500  # in the adjustment at most, those that most views observe
STEPS = 6  # of the adjustment per frame
SCALE_PX = 0.5  # of Cauchy's loss
WRONG_PX = 3.0  # of reprojection error, from which a point is dropped
PNP_PX = 4.0
OFFSET_PX, NO_OFFSET_PX = 1.0, 1e-6  # prior standard deviation of the offset of the right image's columns; where they are depths
DEPTH_BASELINE_M = 1.0  # of the right camera whose columns stand for depths
LEAST_SIGMA = 1e-4  # of z, as a share: a deviation of 0 would weigh without end
LEAST_INLIERS = 12  # for a pose
MOVED_PX = 10.0  # of the median point since the last kept view: the next one is kept
SHARED = 0.6  # of that view's points; with fewer the next view is kept
PARALLAX = np.radians(1.0)  # between the rays of a point that is triangulated over time
START_PARALLAX = np.radians(1.0)  # of the median point, to start without a right image
DEPTH_CHANGE = 2.0  # of the scene between two windows of one camera; by more it is the last speed that means nothing
LEAST_DISPARITY_PX = 0.5
VARIANCE = 13.0  # of errors, over that of independent ones: tracks pass theirs on from frame to frame
SAME_S = 1e-3  # stamps this close are of one frame

Ids = NDArray[np.int64]


class Quality(Enum):
    """How a pose was estimated."""

    STARTING = 'starting'  # nothing yet: no motion observed
    TRACKING = 'tracking'
    LOST = 'lost'  # the last motion, repeated


class Fix(NamedTuple):
    """The estimated pose of one frame."""

    stamp: float  # seconds
    pose: Float64  # (4, 4) world from camera
    quality: Quality
    points: int  # inliers
    velocity: Float64 = np.zeros(3)  # (3,) along the camera's axes, units a second; 0 unless it is tracking
    rotation_rate: Float64 = np.zeros(3)  # (3,) about these axes, radians a second
    covariance: Float64 = np.zeros((6, 6))  # of the pose: translation and rotation in the camera's axes, since the first pose
    twist_covariance: Float64 = np.zeros((6, 6))  # of velocity and rotation rate


class Unit(NamedTuple):
    """The last step, and the scene: what tells the unit of one camera in units of its own. 0 where that is not known."""

    speed: float = 0.0  # of the last step, units a second; near 0 while the camera stands
    depth: float = 0.0  # of the scene, units
    rotation_rate: float = 0.0  # of the last step, radians a second
    seconds: float = 0.0  # that it took

    def moved(self, seconds: float) -> tuple[float, float]:
        """How far the camera moves, units, and rotates, radians, in so many seconds; in those of the last step at least."""
        longer = max(seconds, self.seconds)
        return self.speed * longer, self.rotation_rate * longer


@dataclass
class _View:
    """The observations of a frame, by ascending id."""

    stamp: float
    pose: Float64  # (4, 4) world from camera
    ids: Ids  # (M,)
    observed: Float64  # (M, 4) x, y and the right image's x, NaN where none, and the precision of that x
    covariance: Float64 = field(default_factory=lambda: np.zeros((6, 6)))  # as in Fix, without the drift
    drift: Drift = Drift()  # noqa: RUF009 - it never changes

    def of(self, ids: Ids) -> Float64:
        """Its observations of `ids` (L,), (L, 4), NaN where it has none."""
        observed = np.full((len(ids), 4), np.nan)
        own_rows, rows = np.intersect1d(self.ids, ids, assume_unique=True, return_indices=True)[1:]
        observed[rows] = self.observed[own_rows]
        return observed

    def add(self, ids: Ids, observed: Float64) -> None:
        """Add observations (L, 4) of the `ids` (L,) that it has none of yet."""
        new = ~np.isin(ids, self.ids)
        all_ids = np.concatenate([self.ids, ids[new]])
        order = np.argsort(all_ids)
        self.ids, self.observed = all_ids[order], np.concatenate([self.observed, observed[new]])[order]


class SlidingWindow:
    """Poses of consecutive frames.

        window = SlidingWindow(focal_px=camera.k[0, 0], baseline_m=0.54)
        fix = window.add(stamp, track_ids, points, reference_stamp, reference_points, right_x)
    """

    def __init__(self, focal_px: float, baseline_m: float | None = None, pose: Float64 | None = None, unit: Unit | None = None,
                 offset_px: float = OFFSET_PX, covariance: Float64 | None = None) -> None:
        """`focal_px` converts pixels to the plane z = 1. Without `baseline_m`, right columns are ignored.

        A window that continues another one takes its last pose (4, 4), the `covariance` (6, 6) of that, and its `unit`.
        `offset_px` is the prior deviation of the offset of right columns.
        """
        self._pixel, self._baseline = 1 / focal_px, baseline_m
        self._views: list[_View] = []
        self._points: dict[int, Float64] = {}  # (3,) world, by id
        self._pose = np.eye(4) if pose is None else pose  # the last frame's
        self._covariance = np.zeros((6, 6)) if covariance is None else covariance  # of that, without the drift
        self._drift = Drift()  # of that too
        self._covariances = WindowCovariances(SCALE_PX * self._pixel, baseline_m, VARIANCE)
        self._step, self.unit = np.eye(4), unit or Unit()  # the motion to it from the one before, and the unit then
        self._started, self._start = False, self._start_in_own_unit if baseline_m is None else self._start_metric
        self._offset = OffsetEstimate(0.0, (offset_px * self._pixel)**-2)

    @property
    def right_offset_px(self) -> float:
        """Estimated error of the right image's columns, which the window corrects."""
        return self._offset.offset / self._pixel

    def add(self, stamp: float, ids: ArrayLike, points: ArrayLike, reference_stamp: float, reference_points: ArrayLike,
            right_x: ArrayLike | None = None, precisions: ArrayLike | None = None) -> Fix:
        """A frame's tracks: ids (M,), points (M, 2) in it and in its reference, and in the right image, (M,), NaN where none.

        `precisions` (M,) of the right image's x: 1 is that of x and y.
        """
        tracks, order = np.unique(np.asarray(ids, np.int64), return_index=True)
        current, reference = _without_right(points)[order], _without_right(reference_points)[order]
        if right_x is not None and self._baseline is not None:
            current[:, 2] = np.asarray(right_x, np.float64)[order]
        if precisions is not None:
            current[:, 3] = np.asarray(precisions, np.float64)[order]
        before = self._add_reference(stamp, tracks, reference_stamp, reference)
        covariance = after_unknown(before.covariance, self._step, self.unit.moved(stamp - before.stamp))
        view = _View(stamp, before.pose @ self._step, tracks, current, covariance, before.drift)
        self._views.append(view)
        follows, velocity, rate, of_step = self._started, np.zeros(3), np.zeros(3), np.zeros((6, 6))
        try:
            quality, count = self._follow() if follows else self._start()
            origin = before if follows else self._views[-2:][0]  # one camera starts from a view that may be some frames back
            if quality is Quality.TRACKING:
                of_step = self._estimate_covariances(origin)
        except (np.linalg.LinAlgError, cv2.error):  # tracks that fit no geometry, which earlier checks did not catch
            quality, count = self._lose(before.pose @ self._step)
        if quality is Quality.TRACKING:
            self._step, seconds = step_between(origin.pose, view.pose), stamp - origin.stamp
            velocity = self._step[:3, :3].T @ self._step[:3, 3] / seconds
            rate = np.asarray(cv2.Rodrigues(contiguous(self._step[:3, :3]))[0], np.float64).ravel() / seconds
            self.unit = Unit(float(np.linalg.norm(velocity)), self._depth(), float(np.linalg.norm(rate)), seconds)
            of_step = of_step_and_drift(self._views[-2], view, self._step, of_step, self.unit.depth, seconds)
        if len(self._views) > VIEWS:
            self._views = self._views[-VIEWS:]
            self._covariances.drop_first()
        self._pose, self._covariance, self._drift = view.pose, view.covariance, view.drift
        return Fix(stamp, view.pose, quality, count, velocity, rate, view.covariance + view.drift.covariance, of_step)

    def _add_reference(self, stamp: float, tracks: Ids, reference_stamp: float, reference: Float64) -> _View:
        """Add the points in the reference of a frame to the view of that; returns the newest one, which the window may drop."""
        if self._views and stamp <= self._views[-1].stamp:
            self._views, self._points, self._started = [], {}, False
        if not self._views:
            covariance = after_unknown(self._covariance, np.eye(4), self.unit.moved(0.0))  # zero at the first start
            self._views.append(_View(reference_stamp, self._pose, tracks[:0], reference[:0], covariance, self._drift))
        for view in self._views:
            if abs(view.stamp - reference_stamp) < SAME_S:
                view.add(tracks, reference)
        before = self._views[-1]
        if len(self._views) > 2 and not self._keeps(self._views[-2], before):
            self._views.pop()
        return before

    def _estimate_covariances(self, origin: _View) -> Float64:
        """Set those of all views after the first one; returns that of the step (6, 6) from `origin` to the newest."""
        views = list(self._views)
        is_left_out = all(each is not origin for each in views)  # of the window, when the newest came
        if is_left_out:
            views.insert(-1, origin)
        observed, precisions = self._observations(np.array(list(self._points), np.int64), views)
        bundle = Bundle(_inverse(views), np.array(list(self._points.values())).reshape(-1, 3), self._offset.offset)
        return self._covariances.estimate(views, origin, is_left_out, Adjusted(bundle, observed, precisions, self._offset))

    def _depth(self) -> float:
        """Of the median point before the newest view."""
        positions, pose = np.array(list(self._points.values())).reshape(-1, 3), self._views[-1].pose
        return float(np.median((positions - pose[:3, 3]) @ pose[:3, 2])) if len(positions) else 1.0

    def _keeps(self, before: _View, view: _View) -> bool:
        moved = np.linalg.norm(view.of(before.ids)[:, :2] - before.observed[:, :2], axis=1) / self._pixel
        moved = moved[np.isfinite(moved)]
        return len(moved) < SHARED * len(before.ids) or bool(np.median(moved) > MOVED_PX)

    def _start_metric(self) -> tuple[Quality, int]:
        """Locate the view before by points whose depth the newest view knows."""
        before, last = self._views[-2:]
        self._views = [last]
        self._triangulate()
        pose_before = self._located(before)
        self._points = {}
        if pose_before is None:
            return Quality.STARTING, 0
        last.pose = before.pose @ np.linalg.solve(pose_before, last.pose)
        self._views, self._started = [before, last], True
        self._triangulate()
        return Quality.TRACKING, self._adjusted()

    def _start_in_own_unit(self) -> tuple[Quality, int]:
        """Start from two views as soon as their parallax suffices."""
        first, last = self._views[0], self._views[-1]
        shared = last.of(first.ids)
        known = np.isfinite(shared[:, 0])
        last.pose = first.pose
        if np.count_nonzero(known) < 2 * LEAST_INLIERS:
            last.covariance = after_unknown(first.covariance, np.eye(4), self.unit.moved(last.stamp - first.stamp))
            self._views = [last]
            return Quality.STARTING, 0
        x0, x1 = first.observed[known, :2] / self._pixel, shared[known, :2] / self._pixel
        matrix = np.diag([1 / self._pixel, 1 / self._pixel, 1.0])
        last.covariance = first.covariance
        relative = estimate_relative_pose(x0, x1, matrix, matrix)
        if relative is None:
            return Quality.STARTING, 0
        rays0, rays1 = _rays(first.observed[known]), _rays(shared[known]) @ relative.rotation
        angles = np.arccos(np.clip(np.sum(rays0 * rays1, axis=1), -1, 1))[relative.inliers]
        if len(angles) < LEAST_INLIERS or np.median(angles) < START_PARALLAX:
            return Quality.STARTING, 0
        self._views, self._started = [first, last], True
        self._covariances.start(is_guessed=self.unit.speed > 0)
        length = self.unit.speed * (last.stamp - first.stamp) or 1.0  # the unit, or the length at the speed before
        self._move_apart(relative, length)
        change = abs(self._depth()) / self.unit.depth if self.unit.depth else 1.0
        if not 1 / DEPTH_CHANGE <= change <= DEPTH_CHANGE:
            self._move_apart(relative, length / change)
        return Quality.TRACKING, self._adjusted()

    def _move_apart(self, relative: RelativePose, length: float) -> None:
        """Put the second of two views where it is at a distance of `length` from the first, and triangulate."""
        first, last = self._views
        motion = np.eye(4)
        motion[:3, :3], motion[:3, 3] = relative.rotation, relative.translation * length
        last.pose, self._points = first.pose @ np.linalg.inv(motion), {}
        self._triangulate()

    def _follow(self) -> tuple[Quality, int]:
        view = self._views[-1]
        pose = self._located(view)
        if pose is None:
            return self._lose(view.pose)
        view.pose = pose
        self._triangulate()
        return Quality.TRACKING, self._adjusted()

    def _lose(self, pose: Float64) -> tuple[Quality, int]:
        """Start again at `pose`."""
        view = self._views[-1]
        view.pose = pose
        self._points, self._views, self._started = {}, [view], False
        return Quality.LOST, 0

    def _located(self, view: _View) -> Float64 | None:
        """The view's pose by its triangulated points; None where too few are inliers."""
        known = np.array([number in self._points for number in view.ids.tolist()], np.bool_)
        positions = np.array([self._points[number] for number in view.ids[known].tolist()]).reshape(-1, 3)
        return _perspective(positions, view.observed[known, :2], PNP_PX * self._pixel)

    def _triangulate(self) -> None:
        """Triangulate new points of the newest view: by the right image, else by rays from several views."""
        view = self._views[-1]
        new = np.array([number for number in view.ids.tolist() if number not in self._points], np.int64)
        if not len(new):
            return
        observed, precisions = self._observations(new)
        positions = _nearest_to_rays(np.stack([each.pose for each in self._views]), observed)
        if self._baseline is not None:
            disparity = observed[-1, :, 0] - observed[-1, :, 2] + self._offset.offset
            deep = np.flatnonzero(disparity > LEAST_DISPARITY_PX * self._pixel)
            in_camera = np.column_stack([observed[-1, deep, :2], np.ones(len(deep))]) * (self._baseline / disparity[deep])[:, None]
            positions[deep] = in_camera @ view.pose[:3, :3].T + view.pose[:3, 3]
        bundle = Bundle(_inverse(self._views), positions, self._offset.offset)
        errors = reprojection_errors(bundle, observed, precisions, self._baseline or 0.0)
        good = np.isfinite(positions).all(axis=1) & (np.fmax.reduce(errors) < WRONG_PX * self._pixel)
        self._points.update(zip(new[good].tolist(), positions[good], strict=True))

    def _adjusted(self) -> int:
        """Adjust the window, drop wrong points and those out of view; the number of the newest view's points that remain."""
        all_ids, counts = np.unique(np.concatenate([view.ids for view in self._views]), return_counts=True)
        often = [number for number in all_ids[np.argsort(-counts, kind='stable')].tolist() if number in self._points][:POINTS]
        self._points = {number: self._points[number] for number in often}
        ids = np.array(often, np.int64)
        observed, precisions = self._observations(ids)
        fixed = 1 if self._baseline is not None else 2
        bundle = Bundle(_inverse(self._views), np.array(list(self._points.values())).reshape(-1, 3), self._offset.offset)
        if len(self._views) > fixed:
            before = self._offset
            bundle, after = adjust(bundle, observed, precisions, fixed, self._baseline or 0.0, SCALE_PX * self._pixel, STEPS,
                                   before)
            gained = (after.information - before.information) / VIEWS  # each view is in as many adjustments
            self._offset = OffsetEstimate(after.offset, before.information + max(0.0, gained))
        for view, inverse in zip(self._views, bundle.inverse_poses, strict=True):
            view.pose = np.linalg.inv(inverse)
        errors = reprojection_errors(bundle, observed, precisions, self._baseline or 0.0)
        good = ~(errors > WRONG_PX * self._pixel).any(axis=0)
        self._points = dict(zip(ids[good].tolist(), bundle.points[good], strict=True))
        return int(np.count_nonzero(np.isfinite(errors[-1, good])))

    def _observations(self, ids: Ids, views: list[_View] | None = None) -> tuple[Float64, Float64]:
        """Observations (P, L, 3) of `ids` (L,) by all views, NaN where none, and the precisions (P, L) of their right x."""
        observed = np.stack([view.of(ids) for view in views or self._views])
        return observed[..., :3], np.where(np.isfinite(observed[..., 3]), observed[..., 3], 1.0)


class MatchOdometry:
    """A SlidingWindow for the matches of one camera or stereo rig: poses of the (left) camera, in its optical axes."""

    def __init__(self, calibration: Intrinsics | StereoRig, pose: Float64 | None = None, unit: Unit | None = None,
                 depth: bool = False, covariance: Float64 | None = None) -> None:
        """Odometry that continues from `pose` (4, 4), world from camera, with a `covariance` (6, 6) as in Fix, and `unit`.

        `depth`: points of one camera have depth.
        """
        self.calibration, self.depth = calibration, depth
        self.baseline_m = DEPTH_BASELINE_M if depth else None
        self._axes = np.eye(4)  # from the camera's axes to those of the plane z = 1
        if isinstance(calibration, StereoRig):
            self._axes[:3, :3] = calibration.left.rectification
            self.baseline_m, focal_px = calibration.baseline_m, calibration.focal_px
        else:
            focal_px = float(calibration.k[0, 0])
        self._scale = SCALE_PX / focal_px
        self.window = SlidingWindow(focal_px, self.baseline_m, None if pose is None else self._axes @ pose @ self._axes.T, unit,
                                    NO_OFFSET_PX if depth else OFFSET_PX,
                                    None if covariance is None else seen_from(self._axes, covariance))

    def add(self, matches: FrameMatches) -> Fix:
        """The next frame. Points that have no direction, which the lens model cannot undistort, are left out."""
        right = precisions = None
        if isinstance(self.calibration, StereoRig):
            points, before = map(self.calibration.left_points, (matches.keypoints, matches.reference_keypoints))
            if matches.right_keypoints is not None:
                right = self.calibration.right_points(matches.right_keypoints)[:, 0]
        else:
            points, before = (normalised(side, self.calibration) for side in (matches.keypoints, matches.reference_keypoints))
        if self.depth and matches.xyz is not None and matches.sigma_z is not None:
            z = matches.xyz[:, 2].astype(np.float64)
            sigma_z = np.maximum(matches.sigma_z, LEAST_SIGMA * z)
            right, precisions = points[:, 0] - DEPTH_BASELINE_M / z, self._scale * z * z / (DEPTH_BASELINE_M * sigma_z)
        known = np.isfinite(points).all(axis=1) & np.isfinite(before).all(axis=1)
        fix = self.window.add(matches.stamp, matches.track_ids[known], points[known], matches.reference_stamp, before[known],
                              *(None if each is None else each[known] for each in (right, precisions)))
        velocity, rate = (self._axes[:3, :3].T @ each for each in (fix.velocity, fix.rotation_rate))
        covariance, of_twist = (seen_from(self._axes.T, each) for each in (fix.covariance, fix.twist_covariance))
        return fix._replace(pose=self._axes.T @ fix.pose @ self._axes, velocity=velocity, rotation_rate=rate, covariance=covariance,
                            twist_covariance=of_twist)


def _inverse(views: list[_View]) -> Float64:
    """(P, 4, 4) camera from world."""
    return np.asarray(np.linalg.inv(np.stack([view.pose for view in views])), np.float64)


def _without_right(points: ArrayLike) -> Float64:
    """Observations (M, 4) of points (M, 2), without right columns."""
    xy = np.asarray(points, np.float64).reshape(-1, 2)
    return np.column_stack([xy, np.full(len(xy), np.nan), np.ones(len(xy))])


def _rays(observed: Float64) -> Float64:
    """Unit vectors (..., 3) of observations (..., 3 or 4)."""
    rays = np.concatenate([observed[..., :2], np.ones((*observed.shape[:-1], 1))], axis=-1)
    return np.asarray(rays / np.linalg.norm(rays, axis=-1, keepdims=True), np.float64)


def _nearest_to_rays(poses: Float64, observed: Float64) -> Float64:
    """The points (L, 3) nearest to the rays of observations (P, L, 3); NaN where the rays are too parallel."""
    rays = _rays(observed) @ poses[:, :3, :3].transpose(0, 2, 1)
    across = np.eye(3) - rays[..., :, None] * rays[..., None, :]
    across[np.isnan(observed[..., 0])] = 0
    square = across.sum(axis=0)
    right = np.einsum('plij,pj->li', across, poses[:, :3, 3])
    apart = np.linalg.eigvalsh(square)[:, 0] > 1 - np.cos(PARALLAX)
    positions = np.full((len(square), 3), np.nan)
    positions[apart] = np.linalg.solve(square[apart], right[apart, :, None])[..., 0]
    return positions


def _perspective(positions: Float64, observed: Float64, limit: float) -> Float64 | None:
    """The pose (4, 4), world from camera, of points (N, 3) observed at (N, 2), `limit` for inliers; None where they are too few."""
    if len(positions) < LEAST_INLIERS:
        return None
    solve: Any = cv2.solvePnPRansac
    solved, rotation, shift, rows = solve(contiguous(positions), contiguous(observed), np.eye(3), None, iterationsCount=300,
                                      reprojectionError=limit, confidence=0.999, flags=cv2.SOLVEPNP_AP3P)
    if not solved or rows is None or len(rows) < LEAST_INLIERS:
        return None
    refine: Any = cv2.solvePnPRefineLM  # where most points are far away, the pose of a few of them has a large error
    inliers = rows.ravel()
    rotation, shift = refine(contiguous(positions[inliers]), contiguous(observed[inliers]), np.eye(3), None, rotation, shift)
    inverse = np.eye(4)
    inverse[:3, :3], inverse[:3, 3] = cv2.Rodrigues(rotation)[0], shift.ravel()
    return np.asarray(np.linalg.inv(inverse), np.float64)
