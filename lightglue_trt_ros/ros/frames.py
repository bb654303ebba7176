"""Where a camera is on its robot: the newest transforms of /tf_static and /tf, without interpolation between their times."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..core.types import Float64
from ..datasets.poses import optical_frame, poses_from
from ..utils.errors import BagError


class FrameTree:
    """Frames of a robot, each with its parent."""

    def __init__(self, outside: str) -> None:
        """`outside` is the frame that the robot moves in: no way between two frames of the robot leads through it."""
        self._outside = outside
        self._parents: dict[str, tuple[str, Float64]] = {}  # by name: its parent's, and (4, 4) parent from frame

    def add(self, transforms: Iterable[Any]) -> None:
        """Take geometry_msgs/TransformStamped; one whose values are no pose is left out."""
        for each in transforms:
            shift, rotation = each.transform.translation, each.transform.rotation
            try:
                pose = poses_from([[shift.x, shift.y, shift.z]], [[rotation.x, rotation.y, rotation.z, rotation.w]])[0]
            except BagError:
                continue
            if np.isfinite(pose).all():
                self._parents[_plain(each.child_frame_id)] = _plain(each.header.frame_id), pose

    def pose(self, frame: str, base: str) -> Float64 | None:
        """(4, 4) base from frame; None where no transforms connect them."""
        to_frame, to_base = self._ancestors(frame), self._ancestors(base)
        for name, pose in to_frame.items():
            if name in to_base:
                return np.asarray(np.linalg.inv(to_base[name]) @ pose, np.float64)
        return None

    def optical(self, frame: str) -> str:
        """The frame of the camera whose images have the frame_id `frame`: one below it if that is the only optical one."""
        return optical_frame(_plain(frame), ((parent, name, pose) for name, (parent, pose) in self._parents.items()))

    def root(self, frame: str) -> str:
        """The frame's last known ancestor on the robot; the frame itself where none is known."""
        return list(self._ancestors(frame))[-1]

    def _ancestors(self, frame: str) -> dict[str, Float64]:
        """The frame and its ancestors, nearest first: (4, 4) ancestor from frame."""
        name, found = _plain(frame), {_plain(frame): np.eye(4)}
        while name in self._parents:
            parent, pose = self._parents[name]
            if parent == _plain(self._outside) or parent in found:
                break
            found[parent] = pose @ found[name]
            name = parent
        return found


def _plain(frame: str) -> str:
    return frame.lstrip('/')
