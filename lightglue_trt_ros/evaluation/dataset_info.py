"""What is known about a recording before a frame of it is matched: its frames in time, the camera, the truth."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..core.cameras import Intrinsics, check_size, distortion_model
from ..core.config import MatcherConfig
from ..core.images import gray_of
from ..core.types import Float64
from ..datasets.calibration_files import load_camera_in_body, load_intrinsics
from ..datasets.ground_truth import load_truth, poses_at
from ..datasets.sequence import Frame, Recording, readable_frames
from ..utils.errors import BagError, FrameError
from .scene import Scene, Timeline

POSES = 'epipolar precision, pose errors, drift'  # what a truth is needed for


@dataclass(frozen=True)
class Asked:
    """What the user says about camera and truth, instead of what is recorded; None: nothing."""

    camera: Path | None = None
    truth_topic: str | None = None
    truth: Path | None = None
    truth_kind: str | None = None
    truth_child_frame: str | None = None
    camera_in_body: Path | None = None
    max_time_difference: float = 0.02  # between an image and its pose, seconds
    max_frames: int | None = None


def survey(recording: Recording, asked: Asked, note: Callable[[str], None]) -> tuple[Scene, dict[str, Any]]:
    """What is known about the recording, for matchers and for people; `note` hears what is not. Raises BagError."""
    timeline = Timeline.of(itertools.islice(readable_frames(recording, note), asked.max_frames), MatcherConfig().max_gap_s)
    for text in timeline.notes:
        note(text)
    size = _first_size(recording, timeline)
    intrinsics = _intrinsics(asked, recording, size, note)
    poses, truth = _poses(asked, recording, timeline, note)
    camera = None if intrinsics is None else \
        f'{intrinsics.distortion_model or "no distortion"}, fx {intrinsics.k[0, 0]:.1f}, fy {intrinsics.k[1, 1]:.1f}'
    stamps = timeline.stamps_ns
    return Scene(timeline, intrinsics, poses), {
        'path': str(recording.path), 'topic': recording.image_topic, 'frames': len(timeline),
        'duration_s': float(stamps[-1] - stamps[0]) * 1e-9, 'width': size[1], 'height': size[0], 'camera': camera, 'truth': truth}


def usable_frames(recording: Recording, timeline: Timeline) -> Iterator[Frame]:
    """The timeline's frames once more; what is damaged was told when they were counted."""
    wanted = set(timeline.numbers.tolist())
    with suppress(BagError):
        for frame in recording.frames(lambda number, error: None):
            if frame.number in wanted:
                wanted.remove(frame.number)
                yield frame
            if not wanted:
                return


def _first_size(recording: Recording, timeline: Timeline) -> tuple[int, int]:
    reason = ''
    for frame in usable_frames(recording, timeline):
        try:
            height, width = gray_of(frame.load()).shape
            return height, width
        except (BagError, FrameError) as error:
            reason = reason or str(error)
    raise BagError(f'{recording.path}: no image can be decoded; the first: {reason}')


def _intrinsics(asked: Asked, recording: Recording, size: tuple[int, int],
                note: Callable[[str], None]) -> Intrinsics | None:
    """What was asked for must be usable; what was merely recorded need not be."""
    try:
        found = load_intrinsics(asked.camera) if asked.camera else recording.intrinsics
        if found is not None:
            distortion_model(found)
            check_size(found, *size)
            return found
        reason = 'no intrinsics in the recording; give --camera'
    except BagError as error:
        if asked.camera:
            raise
        reason = f'the recorded intrinsics cannot be used: {error}'
    note(f'{reason}. Left out: {POSES}, odometry')
    return None


def _poses(asked: Asked, recording: Recording, timeline: Timeline,
           note: Callable[[str], None]) -> tuple[Float64 | None, str | None]:
    """The truth at each frame, and in words."""
    wanted = asked.truth_topic or asked.truth or asked.truth_child_frame
    try:
        mounting = load_camera_in_body(asked.camera_in_body) if asked.camera_in_body else None
        truth = load_truth(recording, topic=asked.truth_topic, file=asked.truth, kind=asked.truth_kind,
                           child_frame=asked.truth_child_frame, camera_in_body=mounting, tell=note)
        if truth is not None:
            poses = poses_at(truth, timeline.stamps_ns, asked.max_time_difference)
            if missing := int(np.isnan(poses).any(axis=(1, 2)).sum()):
                note(f'{missing} of {len(poses)} frames have no true pose within {asked.max_time_difference:g} s')
            return poses, f'{truth.source}, {len(truth)} poses'
        reason = 'no ground truth in the recording; --truth-topic or --truth names one'
    except BagError as error:
        if wanted:
            raise
        reason = f'the recorded ground truth cannot be used: {error}'
    note(f'{reason}. Left out: {POSES}')
    return None, None
