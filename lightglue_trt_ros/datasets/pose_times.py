"""Times of poses in a file next to those of images: in another unit, or numbers of frames instead."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .folder_recordings import FolderRecording
from .poses import Trajectory
from .sequence import Recording

SECOND, LEAST_EPOCH_NS = 10**9, 10**18  # a time since 1970 is larger: September 2001
DAY_NS = 86_400 * SECOND


def timed(truth: Trajectory, recording: Recording, on_note: Callable[[str], None]) -> Trajectory:
    """The same poses with times in the unit of the images, or with their stamps where one of both has numbers of frames."""
    truth, folder = _in_unit_of_images(truth, recording, on_note), isinstance(recording, FolderRecording)
    if not _are_whole(truth.stamps_ns) and not (folder and len(recording) == len(truth)):
        return truth
    stamps = np.array([frame.stamp_ns for frame in recording.frames()], np.int64)
    if 2 * np.isin(stamps, truth.stamps_ns).sum() >= len(stamps):
        return truth
    counted = [name for name, own in (('poses', truth.stamps_ns), ('images', stamps)) if _counts(own)]
    if len(stamps) != len(truth) and isinstance(recording, FolderRecording) and (own := _by_number(truth, recording)) is not None:
        on_note(f'{truth.source}: the times of the poses are whole numbers, as those of frames are, and each is in the name of an '
                'image: these images get the poses of their numbers')
        return own
    if not counted:
        return truth
    first, last = (truth.stamps_ns if counted[0] == 'poses' else stamps)[[0, -1]] // SECOND
    count = f'{truth.source}: the times of the {counted[0]} count from {first} to {last} s, as numbers of frames do'
    if len(stamps) != len(truth):
        on_note(f'{count}, and there are {len(truth)} poses and {len(stamps)} images: if they are no times, give each pose the '
                'stamp of its image')
        return truth
    on_note(f'{count}, and there are as many poses as images: each image gets the pose of its place')
    return Trajectory(stamps, truth.poses, f'{truth.source}, one pose per image')


def _in_unit_of_images(truth: Trajectory, recording: Recording, on_note: Callable[[str], None]) -> Trajectory:
    """The same poses with stamps as microseconds or milliseconds, where only so they are of the day of the images, after 2000."""
    first = next((frame.stamp_ns for frame in recording.frames()), 0)
    for name, unit_ns in (('microseconds', 10**3), ('milliseconds', 10**6)):
        if first > LEAST_EPOCH_NS and abs(int(truth.stamps_ns[0]) * unit_ns - first) < DAY_NS and truth.stamps_ns[-1] < first // 2:
            on_note(f'{truth.source}: the times of the poses are those of the images only as {name}: they are taken so')
            return Trajectory(truth.stamps_ns * unit_ns, truth.poses, f'{truth.source}, times in {name}')
    return truth


def _by_number(truth: Trajectory, recording: FolderRecording) -> Trajectory | None:
    """The poses with the stamps of the images whose names end in their whole seconds.

    None where a pose has no such image, and where most have the stamp of an image: these may be times.
    """
    stamps, wanted = numbered(recording), (truth.stamps_ns // SECOND).tolist()
    may_be_times = 2 * np.isin(truth.stamps_ns, recording.stamps_ns).sum() >= len(truth)
    if may_be_times or not _are_whole(truth.stamps_ns) or not stamps.keys() >= set(wanted):
        return None
    return Trajectory(np.array([stamps[number] for number in wanted], np.int64), truth.poses, f'{truth.source}, by number')


def numbered(recording: Recording) -> dict[int, int]:
    """The stamps of a folder's images by the numbers in which their names end; empty unless each has its own."""
    if not isinstance(recording, FolderRecording):
        return {}
    numbers = [int(match[0]) for file in recording.files if (match := re.search(r'\d+$', file.stem))]
    return dict(zip(numbers, recording.stamps_ns, strict=True)) if len(set(numbers)) == len(recording) else {}


def _are_whole(stamps_ns: NDArray[np.int64]) -> bool:
    """Whether stamps are whole seconds that ascend, and no times since 1970."""
    whole = len(stamps_ns) > 2 and not (stamps_ns % SECOND).any() and stamps_ns[-1] < LEAST_EPOCH_NS
    return bool(whole and (np.diff(stamps_ns) > 0).all())


def _counts(stamps_ns: NDArray[np.int64]) -> bool:
    """Whether they are whole seconds, one after the other."""
    return _are_whole(stamps_ns) and bool((np.diff(stamps_ns) == SECOND).all())
