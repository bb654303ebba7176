"""A folder's frames there and back, over and over: long recordings from short ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..errors import BagError
from ..features import UInt8
from .layouts import FolderRecording
from .poses import Trajectory
from .sequence import read_image


class Loop:
    """`passes` over a folder, every second one backwards, with stamps that go on: N + (passes - 1) * (N - 1) frames.

    Raises BagError when there is nothing to walk back over.
    """

    def __init__(self, folder: FolderRecording, passes: int) -> None:
        stamps = folder.stamps_ns
        if passes < 1 or (passes > 1 and not (np.diff(stamps) > 0).all()):
            raise BagError(f'{passes} passes over {folder.path}: at least 1, and for more than 1 stamps that increase')
        if passes > 1 and len(folder) < 2:
            raise BagError(f'{folder.path} has {len(folder)} image: walking there and back takes two')
        self._folder, self._passes = folder, passes

    def __len__(self) -> int:
        return len(self._folder) + (self._passes - 1) * (len(self._folder) - 1)

    def images(self) -> Iterator[tuple[int, UInt8]]:
        """As FolderRecording.images; the frames at the turns come once."""
        stamps, files = self._folder.stamps_ns, self._folder.files
        span = stamps[-1] - stamps[0]
        for number in range(self._passes):
            order = range(len(files)) if number % 2 == 0 else range(len(files) - 1, -1, -1)
            for index in order[1 if number else 0:]:
                since = stamps[index] - stamps[0] if number % 2 == 0 else stamps[-1] - stamps[index]
                yield stamps[0] + number * span + since, read_image(files[index])

    def trajectory(self) -> Trajectory | None:
        """The truth along the way; what lies before the first or after the last image is left out when there are several passes."""
        truth = self._folder.truth()
        if truth is None or self._passes == 1:
            return truth
        truth = truth.ordered()
        first, last = self._folder.stamps_ns[0], self._folder.stamps_ns[-1]
        inside = (truth.stamps_ns >= first) & (truth.stamps_ns <= last)
        stamps, poses = truth.stamps_ns[inside], truth.poses[inside]
        parts = [(first + number * (last - first) + (stamps - first if number % 2 == 0 else (last - stamps)[::-1]),
                  poses if number % 2 == 0 else poses[::-1]) for number in range(self._passes)]
        every = Trajectory(np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts]), truth.source)
        return every.ordered()
