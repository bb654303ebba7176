"""Stereo recordings: which images are the right ones, how the two cameras stand, and the frames in pairs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..core.cameras import StereoRig
from ..utils.errors import BagError
from .bag import BagRecording
from .sequence import Frame, Recording

SKEW_NS = 5_000_000  # between the stamps of a pair


class StereoRecording(NamedTuple):
    """Left and right images of one recording, and how the two cameras stand."""

    left: Recording
    right: Recording
    rig: StereoRig


def right_of(recording: Recording, topic: str | None = None) -> Recording | None:
    """The right images: those that the recording knows by itself, or in a bag those of `topic`. Raises BagError."""
    if topic is None:
        return recording.right
    if not isinstance(recording, BagRecording):
        raise BagError(f'{recording.path} is an image folder without a topic {topic}: its right images are found by themselves')
    return BagRecording(recording.path, topic)


def stereo_recording(left: Recording, topic: str | None = None) -> StereoRecording:
    """A recording with its right images, as `right_of` finds them. Raises BagError where there are none, or no calibration."""
    right = right_of(left, topic)
    if right is None:
        raise BagError(f'{left.path} does not say which images are the right ones: a folder has them beside the left ones, '
                       'in a bag their topic has to be named (--right-topic)')
    cameras = [each.intrinsics for each in (left, right)]
    for recording, camera in zip((left, right), cameras, strict=True):
        if camera is None:
            raise BagError(f'{recording.path} has no calibration for {recording.image_topic}: stereo needs that of both cameras')
    try:
        return StereoRecording(left, right, StereoRig(*filter(None, cameras)))
    except BagError as error:
        raise BagError(f'{left.path}: {error}') from None


def paired(left: Iterator[Frame], right: Iterator[Frame], skew_ns: int = SKEW_NS) -> Iterator[tuple[Frame, Frame | None]]:
    """Every left frame with the right one of its stamp, give or take `skew_ns`; None where there is none. Both ascend in time."""
    waiting = next(right, None)
    for frame in left:
        while waiting is not None and waiting.stamp_ns < frame.stamp_ns - skew_ns:
            waiting = next(right, None)
        together = waiting is not None and waiting.stamp_ns <= frame.stamp_ns + skew_ns
        yield frame, waiting if together else None
        if together:
            waiting = next(right, None)
