"""A scene before it is matched: frames in time, the camera, the ground truth and what it resolves.

A rotation of the camera by a small angle e moves the picture as a step of e times the depth does. If the relative rotations of the
ground truth are good to e, the direction of a step of length b is good to atan(e * depth / b). The direction is scored where that
is no more than the finest bound of the pose AUC.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.core.types import Float32, Float64, UInt8
from lightglue_trt_ros.datasets.sequence import Frame
from lightglue_trt_ros.odometry.two_view import epipolar_errors, fundamental_from_poses, relative_pose
from lightglue_trt_ros.utils.errors import BagError

from ..baselines import MatchedPoints, find_corners, follow_points

SECOND = 10**9
GAP_PERIODS = 3  # a gap is longer than max_gap_s, and than this many times the usual time between frames

TRUTH_ROTATION_DEG = 0.05  # what true relative rotations are taken to be good to: trackers and GNSS/INS name a few hundredths
DIRECTION_DEG = 5.0  # how far that may rotate a direction
MIN_STEP_PER_DEPTH = math.tan(math.radians(TRUTH_ROTATION_DEG)) / math.tan(math.radians(DIRECTION_DEG))  # 0.01
MIN_BASELINE_M = 0.005  # true steps that are no longer say nothing about a direction: most is the truth's own noise
BURST = 0.2  # usual time between frames over the mean: of 1 in 10 frames that are left both are alike
PERIODS_S = 1e-4, 10.0  # of images, unless their stamps are in another unit
MIN_POINTS = 20  # fewer say nothing about a scene's depth
CORNERS = 400
EPIPOLAR_PX = 3.0  # what is further from its true epipolar line moves by itself, or was lost
TRUSTED = 0.88  # least share of corners near their lines: 0.9 and more in good light, 0.6 to 0.85 in the dark or with pattern
EPIPOLE = math.sin(math.radians(3))  # nearer to the direction of motion nothing tells a depth


@dataclass(eq=False)
class Timeline:
    """N frames in recorded order, and where the sequence breaks. Frames are counted from 0 here, lost ones left out."""

    numbers: NDArray[np.int64]  # (N,) in the recording
    stamps_ns: NDArray[np.int64]  # (N,)
    segments: NDArray[np.int64]  # (N,) frames of one segment follow each other
    max_gap_s: float
    period_s: float = 0.0  # the usual time from one to the next; 0: unknown
    notes: list[str] = field(default_factory=list)  # what was left out, and where the sequence breaks
    in_bursts: bool = False  # most stamps follow one another at once: they are not those of exposures

    @classmethod
    def of(cls, frames: Iterable[Frame], max_gap_s: float) -> Timeline:
        """Read numbers and stamps, and nothing else. Raises BagError when there are not two frames.

        As the node has it: a frame whose stamp stands still is left out, and one whose stamp steps back by less than `max_gap_s`;
        other steps back, and a gap longer than `max_gap_s`, or than three usual periods, break the sequence.
        """
        table = np.array([(frame.number, frame.stamp_ns) for frame in frames], np.int64).reshape(-1, 2)
        if len(table) > 1 and (table[:, 1] == table[0, 1]).all():
            raise BagError(f'header.stamp of all {len(table)} images is {table[0, 1] / SECOND:g} s: the camera driver must '
                           'stamp each image with the time of its exposure')
        still = np.flatnonzero(np.diff(table[:, 1]) == 0) + 1
        table = np.delete(table, still, axis=0)
        back_s = -np.diff(table[:, 1]) / SECOND
        late = np.flatnonzero((back_s > 0) & (back_s < max_gap_s)) + 1
        table = np.delete(table, late, axis=0)
        if len(table) < 2:
            raise BagError(f'there {"is" if len(table) == 1 else "are"} {len(table)} frame{"s" * (len(table) != 1)} '
                           'that can be used: matching takes two')
        numbers, stamps = table.T
        steps = np.diff(stamps) / SECOND
        back = steps < 0
        period = float(np.median(steps[~back])) if not back.all() else 0.0
        gap = max(max_gap_s, GAP_PERIODS * period)
        long = steps > gap
        mean = float(np.mean(steps[~back & ~long])) if (~back & ~long).any() else 0.0
        in_bursts = period < BURST * mean
        counts = {f'frames that repeat the stamp before them, and are left out: {len(still)}': len(still),
                  f'frames out of order by less than {max_gap_s:.3g} s, which are left out: {len(late)}': len(late),
                  f'frames out of order, as stamps step back, and the sequence starts anew there: {back.sum()}': back.sum(),
                  f'gaps longer than {gap:.3g} s, after which the sequence starts anew: {long.sum()}': long.sum(),
                  f'stamps come in bursts: most frames are {1e3 * period:.2g} ms after the one before, and {1e3 * mean:.3g} ms in '
                  'the mean. They are of the arrival instead of the exposure, or several cameras share the topic: true motions '
                  'between such stamps are wrong': in_bursts,
                  f'the images are {period:.3g} s apart by their stamps: if that is wrong, check the unit, which is seconds in '
                  'timestamps.txt, times.txt and rgb.txt, nanoseconds in data.csv':
                      period > 0 and not PERIODS_S[0] <= period <= PERIODS_S[1]}
        segments = np.concatenate([[0], np.cumsum(back | long)])
        return cls(numbers, stamps, segments, gap, period, [text for text, count in counts.items() if count], in_bursts)

    def __len__(self) -> int:
        return len(self.stamps_ns)

    def seconds(self, frame: int) -> float:
        """A frame's stamp as the node has it."""
        return float(self.stamps_ns[frame]) / SECOND

    def nearest(self, stamp: float) -> int:
        """The frame stamped `stamp` seconds."""
        return int(np.argmin(np.abs(self.stamps_ns - round(stamp * SECOND))))

    def pairs(self, count: int) -> list[tuple[int, int]]:
        """About `count` pairs of consecutive frames, evenly distributed."""
        first = np.flatnonzero(self.segments[1:] == self.segments[:-1])
        if not len(first):
            return []
        chosen = first[np.unique(np.round(np.linspace(0, len(first) - 1, min(count, len(first)))).astype(np.int64))]
        return [(frame, frame + 1) for frame in chosen.tolist()]


class Motion(NamedTuple):
    """A pair's true motion."""

    step_m: float  # between the two cameras
    per_depth: float | None = None  # the same over the scene's median depth; None: nothing is known about the depth

    @property
    def resolved(self) -> bool:
        """Whether the ground truth can say where to."""
        return self.step_m > MIN_BASELINE_M and self.per_depth is not None and self.per_depth >= MIN_STEP_PER_DEPTH


class Straight(NamedTuple):
    """M correspondences in the ideal pinhole camera with the same K, NaN where the lens has no inverse."""

    reference: Float64  # (M, 2) pixels
    current: Float64  # (M, 2)
    covariances: Float64 | None = None  # (M, 2, 2) of the current points there; None: unknown
    jacobians: Float64 | None = None  # (M, 2, 2) derivative of the current points by the pixels of their image; None: no lens

    @property
    def points(self) -> tuple[Float64, Float64]:
        return self.reference, self.current


@dataclass
class Measured:
    """What takes images to be measured."""

    resized: set[int] = field(default_factory=set)  # frames of another size than the intrinsics are for
    depths_m: dict[int, float] = field(default_factory=dict)  # median, by frame
    motions: dict[tuple[int, int], Motion] = field(default_factory=dict)  # of a pair there is one


@dataclass(eq=False)
class Scene:
    """The frames in time, the camera, and the ground truth if there is one."""

    timeline: Timeline
    intrinsics: Intrinsics | None = None
    poses: Float64 | None = None  # (N, 4, 4) world from camera, NaN where the truth says nothing
    measured: Measured = field(default_factory=Measured)
    other_view: Intrinsics | None = None  # what the calibration says if the name of the images is wrong, which says rect or not

    def see(self, frame: int, shape: tuple[int, ...]) -> None:
        """Note the size of a frame, since intrinsics are valid for one size."""
        if self.intrinsics is not None and shape != (self.intrinsics.height, self.intrinsics.width):
            self.measured.resized.add(frame)

    def numbers(self, frames: tuple[int, int]) -> tuple[int, int]:
        """The frames' numbers in the recording."""
        first, second = (int(self.timeline.numbers[frame]) for frame in frames)
        return first, second

    def camera(self, frames: tuple[int, int]) -> Float64 | None:
        """The camera matrix (3, 3) of both frames, where it is known."""
        camera = self.camera_of(*frames)
        return None if camera is None else camera.k

    def camera_of(self, *frames: int) -> Intrinsics | None:
        """The camera of frames that were seen, where it is known and for their size."""
        return None if self.measured.resized.intersection(frames) else self.intrinsics

    def straight(self, frames: tuple[int, int], points: MatchedPoints) -> Straight:
        """Points and covariances without distortion; as they are where the camera is unknown."""
        camera = self.camera_of(*frames)
        if camera is None or not camera.lens.distorts:
            reference, current = (np.asarray(side, np.float64) for side in points[:2])
            return Straight(reference, current, None if points.covariances is None else np.asarray(points.covariances, np.float64))
        undistorted = camera.lens.undistorted(points.current)
        covariances = None if points.covariances is None else undistorted.carried(points.covariances)
        return Straight(camera.lens.undistorted(points.reference).points, undistorted.points, covariances, undistorted.jacobians)

    def pose(self, frame: int) -> Float64 | None:
        """The true pose (4, 4), world from camera; None if it is unknown."""
        if self.poses is None or not np.isfinite(self.poses[frame]).all():
            return None
        return np.asarray(self.poses[frame], np.float64)

    def motion(self, frames: tuple[int, int], images: tuple[UInt8, UInt8] | None = None,
               points: MatchedPoints | None = None) -> Motion | None:
        """The true motion of a pair over the depth of what it sees; None where ground truth or camera is unknown.

        The depth is that of corners followed from one image (H, W) into the other, the same for all methods; where the truth
        contradicts many of these, as in bad light, that of `points` if they fit better; where too few can be followed, that of the
        nearest frame in time that had one before, at the very first that of `points`. What was measured in images is kept for the
        pair.
        """
        if frames not in self.measured.motions:
            motion = self._motion(frames, images, points)
            if motion is None or images is None:
                return motion
            self.measured.motions[frames] = motion
        return self.measured.motions[frames]

    def _motion(self, frames: tuple[int, int], images: tuple[UInt8, UInt8] | None, points: MatchedPoints | None) -> Motion | None:
        step, camera = self.step_m(frames), self.camera(frames)
        pose0, pose1 = map(self.pose, frames)
        if step is None or camera is None or pose0 is None or pose1 is None:
            return None
        rotation = camera @ relative_pose(pose0, pose1)[0] @ np.linalg.inv(camera)

        def rotated(corners: Float32) -> Float64:
            return corners + shifts(self.straight(frames, MatchedPoints(corners, corners))[0], rotation)

        per_depth = None
        if images is not None:
            per_depth, share = step_per_depth(self.straight(frames, follow_corners(images, rotated)).points, camera, pose0, pose1)
            if per_depth is not None and share < TRUSTED and points is not None:
                other, of_points = step_per_depth(self.straight(frames, points).points, camera, pose0, pose1)
                per_depth = other if of_points > share else per_depth
        if per_depth is None and self.measured.depths_m:
            depths = self.measured.depths_m
            nearest = frames[0] if frames[0] in depths else min(depths, key=lambda frame: abs(frame - frames[0]))
            return Motion(step, step / depths[nearest])
        if per_depth is None and points is not None:
            per_depth, _ = step_per_depth(self.straight(frames, points).points, camera, pose0, pose1)
        if per_depth is not None and per_depth >= MIN_STEP_PER_DEPTH:  # a step too small is mostly noise, and measures nothing
            self.measured.depths_m[frames[0]] = step / per_depth
        return Motion(step, per_depth)

    def step_m(self, frames: tuple[int, int]) -> float | None:
        """How far the camera moved, metres."""
        first, second = map(self.pose, frames)
        return None if first is None or second is None else float(np.linalg.norm(second[:3, 3] - first[:3, 3]))


def step_per_depth(points: tuple[ArrayLike, ArrayLike], camera: Float64, pose0: Float64, pose1: Float64,
                   ) -> tuple[float | None, float]:
    """The true step over the median depth of what is seen, and the share of points EPIPOLAR_PX near their true line, which count.

    Undistorted points (M, 2) of both images, world-from-camera poses. In the triangle of both cameras and a point the law of sines
    gives the step: the sine of the parallax over that of the angle between ray and step. No lengths are needed, and parallax that
    noise turns against the step counts as less than none. None where MIN_POINTS are not left.
    """
    pixels0, pixels1 = (np.asarray(side, np.float64).reshape(-1, 2) for side in points)
    rotation, translation = relative_pose(pose0, pose1)
    length = float(np.linalg.norm(translation))
    if not length or len(pixels0) < MIN_POINTS:
        return None if length else 0.0, 0.0
    rays0, rays1 = _rays(pixels0, camera) @ rotation.T, _rays(pixels1, camera)
    with np.errstate(invalid='ignore'):
        normals = np.cross(rays1, translation / length)  # of the planes through both cameras, as long as the sine of the angle
        squares = np.einsum('ij,ij->i', normals, normals)
        near = epipolar_errors(pixels0, pixels1, fundamental_from_poses(pose0, pose1, camera, camera)) < EPIPOLAR_PX
        which = near & (squares > EPIPOLE**2)
        ratios = np.einsum('ij,ij->i', np.cross(rays0, rays1), normals)[which] / squares[which]
    return max(0.0, float(np.median(ratios))) if len(ratios) >= MIN_POINTS else None, float(near.mean())


def follow_corners(images: tuple[UInt8, UInt8], expected: Callable[[Float32], Float64]) -> MatchedPoints:
    """Corners of the first gray image (H, W) followed into the second by Lucas-Kanade, forward and backward: pixels of both.

    `expected` tells of points (M, 2) of the first image where to look for them in the second, NaN where it does not know.
    """
    reference, current = images
    points = find_corners(reference, CORNERS, max(3.0, math.sqrt(reference.size / CORNERS) / 2))
    if not len(points) or reference.shape != current.shape:
        return MatchedPoints.none()
    guess = np.asarray(expected(points), np.float32)
    guess = np.where(np.isfinite(guess), guess, points)
    followed, good = follow_points(reference, current, points, guess)
    return MatchedPoints(points[good], followed[good])


def shifts(points: Float64, homography: Float64) -> Float64:
    """How far a homography moves points (M, 2)."""
    moved = np.column_stack([points, np.ones(len(points))]) @ homography.T
    with np.errstate(divide='ignore', invalid='ignore'):
        return np.asarray(moved[:, :2] / moved[:, 2:] - points, np.float64)


def _rays(pixels: Float64, camera: Float64) -> Float64:
    """Unit vectors (M, 3)."""
    rays = np.column_stack([pixels, np.ones(len(pixels))]) @ np.linalg.inv(camera).T
    return np.asarray(rays / np.linalg.norm(rays, axis=1, keepdims=True), np.float64)
