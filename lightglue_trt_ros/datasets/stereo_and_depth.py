"""The right images and the depth images of a recording, and which of them belong to a frame."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from ..core.cameras import Intrinsics, StereoRig
from ..core.timing import usual_period
from ..utils.errors import BagError, naming
from .bag_recording import BagRecording
from .sequence import Frame, Recording

SKEW_NS = 5_000_000  # between the stamps of a stereo pair
DEPTH_SKEW_NS = 20_000_000  # between those of an image and its depth image
PERIODS = 63  # between the last frames, of which the usual one is the median


class StereoRecording(NamedTuple):
    """Left and right images of one recording, and the calibration of the pair."""

    left: Recording
    right: Recording
    rig: StereoRig


def right_of(recording: Recording, topic: str | None = None) -> Recording | None:
    """The right images: those of `topic` in a bag, else those of an image folder's layout. Raises BagError."""
    return recording.right if topic is None else _other(recording, topic, 'its right images are found by themselves')


def depth_of(recording: Recording, topic: str | None = None) -> Recording:
    """The depth images: those of `topic` in a bag, else those that the recording has by itself. Raises BagError without any."""
    if topic is not None:
        return _other(recording, topic, 'give --depth, which finds its depth images')
    if recording.depth is not None:
        return recording.depth
    if not isinstance(recording, BagRecording):
        raise BagError(f'{recording.path} has no depth images: put them into depth/ next to images/, PNGs of 16 bits in '
                       'millimetres, or list them in depth.txt next to rgb.txt')
    if not recording.depths:
        raise BagError(f'{recording.path} has no depth images: none of its topics has images of 16UC1 or 32FC1, or '
                       f'compressedDepth. It holds: {recording.listing}')
    found = ', '.join(f'{each.image_topic} ({each.frame_id!r})' for each in recording.depths)
    raise BagError(f'{recording.path} does not say which depth images are registered to {recording.image_topic}: of the topics '
                   f'that hold depth, not exactly one has its frame_id {recording.frame_id!r}: {found}. Register them in the '
                   f'driver, or name the topic (--depth-topic)')


def _other(recording: Recording, topic: str, advice: str) -> Recording:
    if not isinstance(recording, BagRecording):
        raise BagError(f'{recording.path} is an image folder without a topic {topic}: {advice}')
    return recording.other(topic)


def stereo_recording(left: Recording, topic: str | None = None,
                     pair: tuple[Intrinsics, Intrinsics] | None = None) -> StereoRecording:
    """A recording with its right images, as `right_of` finds them; `pair` replaces the recorded calibration of both cameras.

    Raises BagError where there are none, or no calibration.
    """
    right = right_of(left, topic)
    if right is None:
        raise BagError(f'{left.path} does not say which images are the right ones: a folder has them next to the left ones, '
                       'in a bag their topic has to be named (--right-topic)')
    cameras = [each.intrinsics for each in (left, right)] if pair is None else [*pair]
    for recording, camera in zip((left, right), cameras, strict=True):
        if camera is None:
            note = f'; {recording.calibration_note}' if recording.calibration_note else ''
            raise BagError(f'{recording.path} has no calibration for {recording.image_topic}: stereo needs that of both '
                           f'cameras, as --camera camchain.yaml gives it{note}')
    with naming(left.path):
        return StereoRecording(left, right, StereoRig(*filter(None, cameras)))


def paired(left: Iterator[Frame], right: Iterator[Frame]) -> Iterator[tuple[Frame, Frame | None]]:
    """Every left frame with the right one whose stamp is within SKEW_NS, or None. The stamps of both must ascend."""
    waiting = next(right, None)
    for frame in left:
        while waiting is not None and waiting.stamp_ns < frame.stamp_ns - SKEW_NS:
            waiting = next(right, None)
        is_pair = waiting is not None and waiting.stamp_ns <= frame.stamp_ns + SKEW_NS
        yield frame, waiting if is_pair else None
        if is_pair:
            waiting = next(right, None)


def with_nearest(frames: Iterator[Frame], others: Iterator[Frame]) -> Iterator[tuple[Frame, Frame | None]]:
    """Every frame with the nearest of `others` in time, as the node pairs them: each of `others` is of one frame.

    None if further than DEPTH_SKEW_NS, or than half the usual time between frames: there another frame is nearer. The stamps of
    both must ascend.
    """
    nearest, following = next(others, None), next(others, None)
    stamps: deque[int] = deque(maxlen=PERIODS + 1)
    for frame in frames:
        stamps.append(frame.stamp_ns)
        reach = min(DEPTH_SKEW_NS, usual_period(stamps) / 2)
        while nearest is not None and following is not None and _apart_ns(following, frame) <= _apart_ns(nearest, frame):
            nearest, following = following, next(others, None)
        if nearest is None or _apart_ns(nearest, frame) > reach:
            yield frame, None
            continue
        yield frame, nearest
        nearest, following = following, next(others, None)


def _apart_ns(one: Frame, other: Frame) -> int:
    return abs(one.stamp_ns - other.stamp_ns)
