"""Properties of a recording before it is matched: its frames in time, the camera, the ground truth and what it resolves.

A rotation of the camera by a small angle e moves the picture as a step of e times the depth does. If the relative rotations of the
ground truth are good to e, the direction of a step of length b is good to atan(e * depth / b). The direction is scored where that
is no more than the finest bound of the pose AUC.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lightglue_trt_ros.core.cameras import Intrinsics, distortion_model, is_rectified
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.images import gray_of
from lightglue_trt_ros.core.types import Float32, Float64, UInt8
from lightglue_trt_ros.datasets.calibration_files import check_size, load_camera_in_body, load_intrinsics, load_pair
from lightglue_trt_ros.datasets.ground_truth import load_ground_truth, poses_at
from lightglue_trt_ros.datasets.poses import naming
from lightglue_trt_ros.datasets.sequence import Frame, Recording, readable_frames
from lightglue_trt_ros.datasets.units import JUDGED_IMAGES, bits_note
from lightglue_trt_ros.odometry.two_view import epipolar_errors, fundamental_from_poses, relative_pose
from lightglue_trt_ros.utils.errors import BagError, FrameError

from ..baselines import MatchedPoints, find_corners, follow_points
from ..images.degradation import camera_stands
from ..options import EvaluationOptions

POSES = 'epipolar precision, pose errors, drift'  # what a truth is needed for
SECOND = 10**9
GAP_PERIODS = 3  # a gap is longer than max_gap_s, and than this many times the usual time between frames

TRUTH_ROTATION_DEG = 0.05  # what true relative rotations are taken to be good to: trackers and GNSS/INS name a few hundredths
DIRECTION_DEG = 5.0  # how far that may rotate a direction
MIN_STEP_PER_DEPTH = math.tan(math.radians(TRUTH_ROTATION_DEG)) / math.tan(math.radians(DIRECTION_DEG))  # 0.01
MIN_BASELINE_M = 0.005  # true steps that are no longer say nothing about a direction: most is the truth's own noise
FASTEST_M_S = 100.0  # of a ground truth in metres
PERIODS_S = 1e-4, 10.0  # of images, unless their stamps are in another unit
STRETCHED, OFF_MIDDLE = 1.15, 0.2  # ratio of focal lengths, and of the image's size, above which a calibration is doubtful
MIN_POINTS = 20  # fewer say nothing about a scene's depth
CORNERS = 400
EPIPOLAR_PX = 3.0  # what is further from its true epipolar line moves by itself, or was lost
EPIPOLE = math.sin(math.radians(3))  # nearer to the direction of motion nothing tells a depth


@dataclass(eq=False)
class Timeline:
    """N frames in recorded order, and where the sequence breaks. Frames are counted from 0 here, lost ones left out."""

    numbers: NDArray[np.int64]  # (N,) in the recording
    stamps_ns: NDArray[np.int64]  # (N,)
    segments: NDArray[np.int64]  # (N,) frames of one segment follow each other
    max_gap_s: float
    notes: list[str] = field(default_factory=list)  # what was left out, and where the sequence breaks

    @classmethod
    def of(cls, frames: Iterable[Frame], max_gap_s: float) -> Timeline:
        """Read numbers and stamps, and nothing else. Raises BagError when there are not two frames.

        As the node has it: a frame whose stamp stands still is left out; a step back and a gap longer than `max_gap_s`, or than
        three usual periods, break the sequence.
        """
        table = np.array([(frame.number, frame.stamp_ns) for frame in frames], np.int64).reshape(-1, 2)
        if len(table) > 1 and (table[:, 1] == table[0, 1]).all():
            raise BagError(f'header.stamp of all {len(table)} images is {table[0, 1] / SECOND:g} s: the camera driver must '
                           'stamp each image with the time of its exposure')
        still = np.flatnonzero(np.diff(table[:, 1]) == 0) + 1
        table = np.delete(table, still, axis=0)
        if len(table) < 2:
            raise BagError(f'there {"is" if len(table) == 1 else "are"} {len(table)} frame{"s" * (len(table) != 1)} '
                           'that can be used: matching takes two')
        numbers, stamps = table.T
        steps = np.diff(stamps) / SECOND
        back = steps < 0
        period = float(np.median(steps[~back])) if not back.all() else 0.0
        gap = max(max_gap_s, GAP_PERIODS * period)
        long = steps > gap
        counts = {f'{len(still)} frames repeat the stamp before them and are left out': len(still),
                  f'frames are out of order: stamps step back {back.sum()} times, and the sequence starts anew there': back.sum(),
                  f'{long.sum()} gaps are longer than {gap:.3g} s: the sequence starts anew after each': long.sum(),
                  f'the images are {period:.3g} s apart by their stamps: if that is wrong, check the unit, which is seconds in '
                  'timestamps.txt, times.txt and rgb.txt, nanoseconds in data.csv':
                      period > 0 and not PERIODS_S[0] <= period <= PERIODS_S[1]}
        segments = np.concatenate([[0], np.cumsum(back | long)])
        return cls(numbers, stamps, segments, gap, [text for text, count in counts.items() if count])

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

        The depth is that of corners followed from one image (H, W) into the other, the same for all methods; where too few can be
        followed, that of the nearest frame in time that had one before; at the very first that of `points`. What was measured
        in images is kept for the pair.
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
            per_depth = step_per_depth(self.straight(frames, follow_corners(images, rotated)).points, camera, pose0, pose1)
        if per_depth is None and self.measured.depths_m:
            depths = self.measured.depths_m
            nearest = frames[0] if frames[0] in depths else min(depths, key=lambda frame: abs(frame - frames[0]))
            return Motion(step, step / depths[nearest])
        if per_depth is None and points is not None:
            per_depth = step_per_depth(self.straight(frames, points).points, camera, pose0, pose1)
        if per_depth is not None and per_depth >= MIN_STEP_PER_DEPTH:  # a step too small is mostly noise, and measures nothing
            self.measured.depths_m[frames[0]] = step / per_depth
        return Motion(step, per_depth)

    def step_m(self, frames: tuple[int, int]) -> float | None:
        """How far the camera moved, metres."""
        first, second = map(self.pose, frames)
        return None if first is None or second is None else float(np.linalg.norm(second[:3, 3] - first[:3, 3]))


def step_per_depth(points: tuple[ArrayLike, ArrayLike], camera: Float64, pose0: Float64, pose1: Float64) -> float | None:
    """The true step over the median depth of what is seen, of undistorted points (M, 2) of both images and world-from-camera poses.

    In the triangle of both cameras and a point the law of sines gives it: the sine of the parallax over that of the angle between
    ray and step. No lengths are needed, and noise makes small steps a little longer, never long: half a pixel is a thousandth.
    Points that are not EPIPOLAR_PX near their true line do not count. None where MIN_POINTS are not left.
    """
    pixels0, pixels1 = (np.asarray(side, np.float64).reshape(-1, 2) for side in points)
    rotation, translation = relative_pose(pose0, pose1)
    length = float(np.linalg.norm(translation))
    if not length or len(pixels0) < MIN_POINTS:
        return None if length else 0.0
    rays0, rays1 = _rays(pixels0, camera) @ rotation.T, _rays(pixels1, camera)
    with np.errstate(invalid='ignore'):
        off_axis = np.linalg.norm(np.cross(rays1, translation / length), axis=1)
        near = (epipolar_errors(pixels0, pixels1, fundamental_from_poses(pose0, pose1, camera, camera)) < EPIPOLAR_PX)
        ratios = np.linalg.norm(np.cross(rays0, rays1), axis=1)[near & (off_axis > EPIPOLE)] / off_axis[near & (off_axis > EPIPOLE)]
    return float(np.median(ratios)) if len(ratios) >= MIN_POINTS else None


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


def open_scene(recording: Recording, options: EvaluationOptions, on_note: Callable[[str], None]) -> tuple[Scene, dict[str, Any]]:
    """The scene, and facts about the recording for people; `on_note` gets a line for all that is missing. Raises BagError."""
    for text in recording.notes:
        on_note(text)
    with naming(f'{recording.path}, {recording.image_topic}'):
        timeline = Timeline.of(itertools.islice(readable_frames(recording, on_note), options.max_frames), MatcherConfig().max_gap_s)
    for text in timeline.notes:
        on_note(text)
    size = _first_size(recording, usable_frames(recording, timeline.numbers))
    if note := bits_note(usable_frames(recording, spread(timeline.numbers, JUDGED_IMAGES)), recording.bits):
        on_note(note)
    left_out: list[str] = []
    intrinsics = _intrinsics(options, recording, size, on_note, left_out)
    poses, truth, as_camera = _poses(options, recording, timeline, on_note, left_out)
    camera = None if intrinsics is None else \
        f'{intrinsics.distortion_model or "no distortion"}, fx {intrinsics.k[0, 0]:.1f}, fy {intrinsics.k[1, 1]:.1f}'
    stamps = timeline.stamps_ns
    return Scene(timeline, intrinsics, poses), {
        'path': str(recording.path), 'topic': recording.image_topic, 'frames': len(timeline),
        'duration_s': float(stamps[-1] - stamps[0]) * 1e-9, 'width': size[1], 'height': size[0], 'camera': camera,
        'calibration_source': None if intrinsics is None else _source(intrinsics, options), 'truth': truth,
        'truth_as_camera': as_camera, 'left_out': left_out}


def usable_frames(recording: Recording, numbers: NDArray[np.int64]) -> Iterator[Frame]:
    """The frames of these numbers (N,) once more; `open_scene` has noted damaged ones."""
    wanted = set(numbers.tolist())
    with suppress(BagError):
        for frame in recording.frames(lambda number, error: None):
            if frame.number in wanted:
                wanted.remove(frame.number)
                yield frame
            if not wanted:
                return


def spread(numbers: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """`count` of the numbers (N,), evenly distributed; all where they are fewer."""
    return numbers[np.unique(np.linspace(0, len(numbers) - 1, count).round().astype(np.int64))]


def _first_size(recording: Recording, frames: Iterable[Frame]) -> tuple[int, int]:
    """(H, W) of the first image that can be decoded. Raises BagError."""
    reason = ''
    for frame in frames:
        try:
            height, width = gray_of(frame.load(), recording.bits).shape
            return height, width
        except (BagError, FrameError) as error:
            reason = reason or str(error)
    raise BagError(f'{recording.path}: no image can be decoded; the first: {reason}')


def _intrinsics(options: EvaluationOptions, recording: Recording, size: tuple[int, int],
                on_note: Callable[[str], None], left_out: list[str]) -> Intrinsics | None:
    """Raises BagError for unusable intrinsics only if the user named them; recorded ones are left out with a note and a reason."""
    try:
        intrinsics = recording.intrinsics if options.camera is None else _named_camera(options, recording, size)
        if intrinsics is not None:
            distorted = distortion_model(intrinsics) is not None
            check_size(intrinsics, *size)
            if distorted and options.camera and is_rectified(recording.image_topic):
                on_note(f'{intrinsics.source} has distortion, and the images on {recording.image_topic} are rectified by their '
                        'name: it must be the calibration of the rectified images')
            if intrinsics.fold:
                on_note(f'{_source(intrinsics, options)}: {intrinsics.fold}')
            if doubt := _doubt(intrinsics):
                on_note(f'{_source(intrinsics, options)}: {doubt}')
            if not options.camera and recording.calibration_note:
                on_note(f'{recording.calibration_note}; --camera replaces it')
            if not options.camera and (change := recording.calibration_change(options.max_frames)):
                on_note(change)
            return intrinsics
        reason, advice = recording.calibration_note or 'no intrinsics in the recording', '; give --camera'
    except BagError as error:
        if options.camera:
            raise
        reason, advice = f'the recorded intrinsics cannot be used: {error}', ''
    left_out.append(reason)
    on_note(f'{reason}{advice}. Left out: {POSES}, odometry')
    return None


def _doubt(camera: Intrinsics) -> str:
    """What few calibrations have, for people: focal lengths that differ, or a principal point far from the middle of the image."""
    (fx, _, cx), (_, fy, cy) = camera.k[:2]
    reasons = [f'fx is {fx:g} and fy {fy:g}, and nearly every camera has square pixels'] * bool(max(fx / fy, fy / fx) > STRETCHED)
    if max(abs(cx / camera.width - 0.5), abs(cy / camera.height - 0.5)) > OFF_MIDDLE:
        reasons.append(f'the principal point {cx:g}, {cy:g} is far from the middle of {camera.width}x{camera.height}')
    return f'{", and ".join(reasons)}: unless the images are stretched or cropped, calibrate anew' if reasons else ''


def named_pair(options: EvaluationOptions, recording: Recording) -> tuple[Intrinsics, Intrinsics] | None:
    """Left and right camera, where right images are asked for and --camera describes both. Raises BagError."""
    if options.camera is None or not options.right_topic:
        return None
    return load_pair(options.camera, is_rectified(recording.image_topic),
                     lambda: _first_size(recording, readable_frames(recording, lambda line: None))[::-1])


def _named_camera(options: EvaluationOptions, recording: Recording, size: tuple[int, int]) -> Intrinsics:
    """The camera that --camera gives, the left one of a pair, of images of `size` (H, W). Raises BagError."""
    assert options.camera is not None
    pair = named_pair(options, recording)
    if pair is not None:
        return pair[0]
    return load_intrinsics(options.camera, is_rectified(recording.image_topic), lambda: (size[1], size[0]))


def _source(intrinsics: Intrinsics, options: EvaluationOptions) -> str:
    """Where the intrinsics come from, for people."""
    return intrinsics.source or (str(options.camera) if options.camera else 'the recording')


def _speed(poses: Float64, timeline: Timeline) -> float:
    """The median between frames, metres a second; 0 where no two have a pose."""
    seconds, steps = np.diff(timeline.stamps_ns) / SECOND, np.linalg.norm(np.diff(poses[:, :3, 3], axis=0), axis=1)
    speeds = steps[seconds > 0] / seconds[seconds > 0]
    return float(np.median(speeds[np.isfinite(speeds)])) if np.isfinite(speeds).any() else 0.0


def _poses(options: EvaluationOptions, recording: Recording, timeline: Timeline,
           on_note: Callable[[str], None], left_out: list[str]) -> tuple[Float64 | None, str | None, bool]:
    """The true pose at each frame, the source in words, and whether its poses are taken as the camera's own."""
    if camera_stands(options.degrade):
        return np.tile(np.eye(4), (len(timeline), 1, 1)), f'the camera stands, by --degrade {",".join(options.degrade)}', False
    wanted = options.truth_topic or options.truth or options.truth_child_frame
    mounting = load_camera_in_body(options.camera_in_body) if options.camera_in_body else None
    try:
        truth = load_ground_truth(recording, topic=options.truth_topic, file=options.truth, kind=options.truth_kind,
                           child_frame=options.truth_child_frame, camera_in_body=mounting, on_note=on_note)
        if truth is not None:
            poses = poses_at(truth, timeline.stamps_ns, options.max_time_difference)
            if missing := int(np.isnan(poses).any(axis=(1, 2)).sum()):
                on_note(f'{missing} of {len(poses)} frames have no true pose within {options.max_time_difference:g} s '
                        '(--max-time-difference)')
            if (speed := _speed(poses, timeline)) > FASTEST_M_S:
                on_note(f'the ground truth moves at {speed:.0f} m/s: if that is wrong, its unit is not the metre; divide '
                        'millimetres by 1000')
            return poses, f'{truth.source}, {len(truth)} poses', truth.as_camera
        reason, advice = 'no ground truth in the recording', '; --truth-topic or --truth names one'
    except BagError as error:
        if wanted:
            raise
        reason, advice = f'the recorded ground truth cannot be used: {error}', ''
    left_out.append(reason)
    on_note(f'{reason}{advice}. Left out: {POSES}')
    return None, None, False
