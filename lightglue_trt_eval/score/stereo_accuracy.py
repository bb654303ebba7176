"""How good the right points of a stereo recording are, and the metric odometry that they give, against the ground truth."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from lightglue_trt_ros.core.cameras import StereoRig
from lightglue_trt_ros.core.types import Float64, FrameMatches
from lightglue_trt_ros.odometry.sliding_window import MatchOdometry

from .trajectory import MetricOdometryScore

LOOK_BACK = 5  # frames back to where a point is triangulated from, at most
SIGMA_PX = 0.3  # of a point, for how well its depth is known by that
RESOLVED_PX = 0.5  # standard deviation of the disparity that the truth then tells
CONSISTENT_PX = 2.0  # in the reference image, after the true motion
OFFSET_PX = 0.5  # by which right columns are off in the median, to be told
STRETCHED, SURE = 0.05, 0.7  # relative difference of disparities; what is left of a difference that a wrong baseline explains
FAR_LONGER = 1.5  # steps of the odometry, than those of the truth
UNEVEN = 0.25  # of an offset, the median difference from it that a rotation of a camera leaves
MANY = 0.25  # share of the frames
KNOWN = 0.5  # share of an offset that may be left by the odometry's estimate of it
NO_DISPARITY = 0.02  # of those of the true motion: both images are of one camera
BENT, BENT_PX, LEAST_ROWS = 0.7, 0.15, 500  # rows, over what rotations leave of them; which is more than noise; points
ROWS_PX = 0.5  # that rotations leave of rows: points of right images have a tenth
LOOSE_PX, FEW_PERCENT = 2.5, 5.0  # median difference that no rotation of a camera leaves; points with a right pixel


class _EarlierFrame(NamedTuple):
    """The points of an earlier frame."""

    pose: Float64  # (4, 4) of the shared axes
    ids: Float64  # (M,)
    points: Float64  # (M, 2) on the shared plane


class StereoScore(MetricOdometryScore):
    """The figures over frames, as they come; errors are in pixels of the left image."""

    def __init__(self, rig: StereoRig) -> None:
        super().__init__('stereo', MatchOdometry(rig))
        self.rig, self._axes = rig, np.eye(4)
        self._axes[:3, :3] = rig.left.rectification
        self._earlier_frames: deque[_EarlierFrame] = deque(maxlen=LOOK_BACK)
        self._rows: list[Float64] = []  # differences of rows, pixels
        self._places: list[Float64] = []  # (M, 2) of the left points of these
        self._disparities: list[Float64] = []
        self._expected: list[Float64] = []  # disparities by the true motion
        self._consistent: list[Float64] = []
        self._right_shares: list[tuple[int, float]] = []  # of frames with a right image: number, points that have a right pixel

    def add(self, matches: FrameMatches | None, true_before: Float64 | None, true: Float64 | None) -> None:
        """A frame, None without a reference; true poses (4, 4), world from camera, of its reference and of it."""
        self._follow(matches, true)
        if matches is None:
            self._earlier_frames.clear()
            return
        left, before = self.rig.left_points(matches.keypoints), self.rig.left_points(matches.reference_keypoints)
        right = np.full_like(left, np.nan)
        if matches.right_keypoints is not None:
            right = self.rig.right_points(matches.right_keypoints)
        known = np.asarray(np.isfinite(right).all(axis=1) & np.isfinite(left).all(axis=1), np.bool_)
        self._share(known)
        if matches.right_keypoints is not None:
            self._right_shares.append((len(self._true) - 1, self._shares[-1]))
        self._rows.append((left - right)[known, 1] * self.rig.focal_px)
        self._places.append(left[known])
        disparities = (left - right)[:, 0]
        if true is None:
            self._earlier_frames.clear()
            return
        pose = np.asarray(true @ self._axes.T, np.float64)
        if true_before is not None:
            places = np.column_stack([left, np.ones(len(left))])[known] * (self.rig.baseline_m / disparities[known])[:, None]
            motion = np.linalg.solve(true_before @ self._axes.T, pose)
            moved = places @ motion[:3, :3].T + motion[:3, 3]
            apart = np.linalg.norm(moved[:, :2] / moved[:, 2:] - before[known], axis=1) * self.rig.focal_px
            self._consistent.append((apart < CONSISTENT_PX) & (moved[:, 2] > 0))
        if self._earlier_frames:
            expected = self._triangulated(pose, matches.track_ids.astype(np.float64), left)
            both = known & np.isfinite(expected)
            self._disparities.append(((disparities - expected) * self.rig.focal_px)[both])
            self._expected.append(expected[both] * self.rig.focal_px)
        self._earlier_frames.append(_EarlierFrame(pose, matches.track_ids.astype(np.float64), left))

    def figures(self) -> dict[str, float]:
        """By the names of METRICS; what cannot be known is missing."""
        figures = super().figures()
        rows, disparities, consistent = (np.concatenate(parts) if parts else np.empty(0) for parts in
                                         (self._rows, self._disparities, self._consistent))
        if len(rows):
            figures['stereo_row_px'] = float(np.median(np.abs(rows)))
        if len(disparities):
            figures['stereo_disparity_px'] = float(np.median(np.abs(disparities)))
        if len(consistent):
            figures['stereo_consistent'] = 100 * float(np.mean(consistent))
        return figures

    @property
    def advice(self) -> str:
        """Advice about the calibration from the figures; empty: nothing."""
        if self._right_shares and (share := 100 * float(np.mean(self._shares))) < FEW_PERCENT:
            return (f'{share:.1f} % of the points have a right pixel: check that left and right are not swapped, that both see the '
                    'same, and the calibration of the pair')
        few = [number for number, share in self._right_shares if 100 * share < FEW_PERCENT]
        if len(few) > MANY * len(self._right_shares):
            return (f'in {len(few)} of {len(self._right_shares)} frames, first in frame {few[0]}, fewer than {FEW_PERCENT:g} % of '
                    'the points have a right pixel: check that left and right images are of one moment there')
        rotated, bent = self._rows_left or (0.0, 0.0)
        if rotated > BENT_PX and bent < BENT * rotated:
            return (f'rows of left and right points differ by {rotated:.2f} px where the cameras are rotated, and by {bent:.2f} '
                    'where one has another lens: check the model and the coefficients of distortion of both, and that none are of '
                    'another camera')
        if rotated > ROWS_PX:
            return (f'rows of left and right points differ by {rotated:.2f} px, whichever way the cameras are rotated: check that '
                    'left and right images are of one moment and in focus')
        if not any(map(len, self._disparities)):  # a long baseline asks for a better resolution than the truth has
            ratio = self.length_ratio()
            return '' if ratio is None or 1 / FAR_LONGER < ratio < FAR_LONGER else _other_baseline(ratio)
        differences, expected = np.concatenate(self._disparities), np.concatenate(self._expected)
        offset, stretch = float(np.median(differences)), float(np.median(differences / expected))
        left, if_stretched = (float(np.median(np.abs(differences - each))) for each in (offset, stretch * expected))
        if abs(stretch) > STRETCHED and if_stretched < SURE * min(left, float(np.median(np.abs(differences)))):
            return (f'disparities are near 0, and {np.median(expected):.0f} px by the true motion: both images are of one camera'
                    if 1 + stretch < NO_DISPARITY else _other_baseline(1 / (1 + stretch)))
        if left > max(LOOSE_PX, abs(offset) * UNEVEN):
            return (f'disparities differ by {left:.2f} px from those of the true motion, and not by one offset: check that left '
                    'and right images are of one moment, in focus and not mirrored, and their calibration')
        if abs(offset) < OFFSET_PX:
            return ''
        known = -self._odometry.window.right_offset_px  # as disparities have it
        remedy = '' if abs(offset - known) < KNOWN * abs(offset) else ': calibrate anew'
        return (f'disparities are {offset:+.2f} px from those of the true motion in the median: the right camera is rotated '
                f'against its calibration (odometry estimates {known:+.2f} px){remedy}')

    @property
    def _rows_left(self) -> tuple[float, float] | None:
        """What is left of row differences, pixels, by rotations and a focal length, and by these and a lens; None of few points.

        Rows of a right lens and a right moment are equal at any depth. Each half of the frames judges what the other finds.
        """
        halves = [[np.concatenate(parts[half::2]) for parts in (self._places, self._rows)] for half in (0, 1)] \
            if len(self._rows) > 1 else []
        if not halves or min(len(rows) for _, rows in halves) < LEAST_ROWS:
            return None
        left = np.zeros(2)
        for (places, rows), (others, judged) in (halves, halves[::-1]):
            basis, other = _row_changes(places), _row_changes(others)
            for model, count in enumerate((basis.shape[1] - 1, basis.shape[1])):
                found = np.linalg.lstsq(basis[:, :count], rows, rcond=None)[0]
                left[model] += float(np.median(np.abs(judged - other[:, :count] @ found))) / 2
        return float(left[0]), float(left[1])

    def _triangulated(self, pose: Float64, ids: Float64, points: Float64) -> Float64:
        """Disparities (M,) on the shared plane by the true motion since the earliest sight; NaN where it does not resolve them."""
        expected, waiting = np.full(len(ids), np.nan), np.ones(len(ids), np.bool_)
        for frame in self._earlier_frames:
            _, rows, others = np.intersect1d(ids, frame.ids, return_indices=True)
            rows, others = rows[waiting[rows]], others[waiting[rows]]
            waiting[rows] = False
            motion = np.linalg.solve(frame.pose, pose)
            rotated = np.column_stack([points[rows], np.ones(len(rows))]) @ motion[:3, :3].T
            earlier = frame.points[others]
            across = rotated[:, :2] - earlier * rotated[:, 2:]
            along = earlier * motion[2, 3] - motion[:2, 3]  # across * depth = along
            square = np.sum(across**2, axis=1) + 1e-18
            depth = np.sum(across * along, axis=1) / square
            earlier_depth = rotated[:, 2] * depth + motion[2, 3]
            sigma = self.rig.baseline_m * SIGMA_PX * np.abs(earlier_depth) / np.sqrt(square) / (depth**2 + 1e-18)
            good = (depth > 0) & (earlier_depth > 0) & (sigma < RESOLVED_PX)
            expected[rows[good]] = self.rig.baseline_m / depth[good]
        return expected


def _row_changes(places: Float64) -> Float64:
    """What rotations and a focal length (N, 5), and a lens (the last of N, 6) change in rows of points (N, 2)."""
    x, y = places.T
    return np.column_stack([np.ones_like(x), x, y, x * y, y * y, y * (x * x + y * y)])


def _other_baseline(ratio: float) -> str:
    return (f'the baseline is {ratio:.3g} times as long as by the true motion: check it, the focal length, and the unit of the '
            'ground truth, which is the metre')
