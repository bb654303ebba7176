"""The scene of a recording: its frames, its camera and its ground truth, with a line for people about each that is missing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightglue_trt_ros.core.cameras import Intrinsics, distortion_model, intrinsics_of, is_rectified, same_view
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.images import gray_of
from lightglue_trt_ros.core.types import Float64
from lightglue_trt_ros.datasets.bag_recording import BagRecording
from lightglue_trt_ros.datasets.bag_storage import deserialize
from lightglue_trt_ros.datasets.calibration_choices import doubt_of_size
from lightglue_trt_ros.datasets.calibration_files import check_size, load_camera_in_body, load_intrinsics
from lightglue_trt_ros.datasets.calibration_pairs import load_pair
from lightglue_trt_ros.datasets.folder_recordings import FolderRecording
from lightglue_trt_ros.datasets.ground_truth import load_ground_truth, poses_at
from lightglue_trt_ros.datasets.sequence import CAMERA_INFO, Frame, Recording, readable_frames
from lightglue_trt_ros.datasets.units import JUDGED_IMAGES, bits_note
from lightglue_trt_ros.utils.errors import BagError, FrameError, naming

from ..images.degradation import camera_stands
from ..options import EvaluationOptions
from .nearby_files import calibrations_near, ground_truths_near
from .scene import SECOND, Scene, Timeline
from .slow_truth import doubt_of_few_digits, doubt_of_slow_truth

POSES = 'epipolar precision, pose errors, drift'  # what a truth is needed for
FASTEST_M_S = 100.0  # of a ground truth in metres
STRETCHED, OFF_MIDDLE = 1.15, 0.2  # ratio of focal lengths, and of the image's size, above which a calibration is doubtful


def open_scene(recording: Recording, options: EvaluationOptions, on_note: Callable[[str], None]) -> tuple[Scene, dict[str, Any]]:
    """The scene, and facts about the recording for people; `on_note` gets a line for all that is missing. Raises BagError."""
    for text in recording.notes:
        on_note(text)
    with naming(f'{recording.path}, {recording.image_topic}'):
        timeline = Timeline.of(itertools.islice(readable_frames(recording, on_note), options.max_frames), MatcherConfig().max_gap_s)
    for text in timeline.notes:
        on_note(text)
    size = first_size(recording, usable_frames(recording, timeline.numbers))
    if note := bits_note(usable_frames(recording, spread(timeline.numbers, JUDGED_IMAGES)), recording.bits):
        on_note(note)
    left_out: list[str] = []
    intrinsics = _intrinsics(options, recording, size, on_note, left_out)
    poses, truth, as_camera = _poses(options, recording, timeline, on_note, left_out)
    camera = None if intrinsics is None else \
        f'{intrinsics.distortion_model or "no distortion"}, fx {intrinsics.k[0, 0]:.1f}, fy {intrinsics.k[1, 1]:.1f}'
    stamps = timeline.stamps_ns
    rate = {'rate_hz': 1 / timeline.period_s} if timeline.period_s else {}
    part = {'recorded_frames': len(recording)} if options.max_frames is not None and options.max_frames < len(recording) else {}
    return Scene(timeline, intrinsics, poses, other_view=_other_view(options, recording, size, intrinsics)), {
        'path': str(recording.path), 'topic': recording.image_topic, 'frames': len(timeline), **part,
        'duration_s': float(stamps[-1] - stamps[0]) * 1e-9, **rate, 'width': size[1], 'height': size[0], 'camera': camera,
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


def first_size(recording: Recording, frames: Iterable[Frame]) -> tuple[int, int]:
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
        reason = recording.calibration_note or 'no intrinsics in the recording'
        advice = f'; give --camera{calibrations_near(recording.path, size)}'
    except BagError as error:
        if options.camera:
            raise
        reason, advice = f'the recorded intrinsics cannot be used: {error}', ''
    left_out.append(reason)
    on_note(f'{reason}{advice}. Left out: {POSES}, odometry')
    return None


def _other_view(options: EvaluationOptions, recording: Recording, size: tuple[int, int],
                used: Intrinsics | None) -> Intrinsics | None:
    """What the calibration says of rectified images where these are raw by their name, or of raw ones; None: it is the same."""
    rectified, topic = is_rectified(recording.image_topic), recording.image_topic
    info = recording.camera_info if isinstance(recording, BagRecording) and not options.camera else None
    own = recording.path / recording.calibration if isinstance(recording, FolderRecording) else None
    path, other = options.camera or own, None
    with suppress(BagError):  # a calibration has only one of both
        if info is not None:
            other = intrinsics_of(deserialize(info, CAMERA_INFO, topic), 'image_raw' if rectified else 'image_rect', size)
        elif path is not None:
            other = load_intrinsics(path, not rectified, lambda: (size[1], size[0]))
        if used is not None and other is not None and other.size == used.size and not same_view(used, other):
            return other
    return None


def _doubt(camera: Intrinsics) -> str:
    """What few calibrations have, for people: focal lengths that differ, or a principal point far from the middle of the image."""
    (fx, _, cx), (_, fy, cy) = camera.k[:2]
    reasons = [f'fx is {fx:g} and fy {fy:g}, and nearly every camera has square pixels'] * bool(max(fx / fy, fy / fx) > STRETCHED)
    off_middle = max(abs(cx / camera.width - 0.5), abs(cy / camera.height - 0.5)) > OFF_MIDDLE
    if off_middle and not doubt_of_size(camera):  # which is told with the calibration, and has another remedy
        reasons.append(f'the principal point {cx:g}, {cy:g} is far from the middle of {camera.width}x{camera.height}')
    return f'{", and ".join(reasons)}: unless the images are stretched or cropped, calibrate anew' if reasons else ''


def named_pair(options: EvaluationOptions, recording: Recording) -> tuple[Intrinsics, Intrinsics] | None:
    """Left and right camera, where right images are asked for and --camera describes both. Raises BagError."""
    if options.camera is None or not options.right_topic:
        return None
    return load_pair(options.camera, is_rectified(recording.image_topic),
                     lambda: first_size(recording, readable_frames(recording, lambda line: None))[::-1])


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
            known = ~np.isnan(poses[:, 0, 0])
            if len(poses) > 1 and not (known[1:] & known[:-1]).any():
                left_out.append('no two consecutive frames have a true pose')
                on_note(f'{left_out[-1]}: a larger --max-time-difference interpolates a slow ground truth. Left out at stride 1: '
                        f'{POSES}')
            if (speed := _speed(poses, timeline)) > FASTEST_M_S:
                on_note(f'the ground truth moves at {speed:.0f} m/s: if that is wrong, its unit is not the metre; divide '
                        'millimetres by 1000')
            for doubt in filter(None, (doubt_of_slow_truth(truth, poses, timeline), doubt_of_few_digits(truth, poses))):
                on_note(doubt)
            return poses, f'{truth.source}, {len(truth)} pose{"s" * (len(truth) != 1)}', truth.as_camera
        near = ground_truths_near(recording, timeline.stamps_ns, options.max_time_difference)
        reason, advice = 'no ground truth in the recording', f'; --truth-topic or --truth names one{near}'
    except BagError as error:
        if wanted:
            raise
        reason, advice = f'the recorded ground truth cannot be used: {error}', ''
    left_out.append(reason)
    on_note(f'{reason}{advice}. Left out: {POSES}')
    return None, None, False
