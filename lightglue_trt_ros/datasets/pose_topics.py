"""Poses in the topics of a bag."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..core.types import Float64
from ..utils.errors import BagError
from .bag_storage import deserialize
from .poses import Trajectory, poses_from
from .sequence import POSE_STAMPED, Topic

_ODOMETRY = ('nav_msgs/msg/Odometry', 'geometry_msgs/msg/PoseWithCovarianceStamped')
_TRANSFORM = 'geometry_msgs/msg/TransformStamped'
TF = 'tf2_msgs/msg/TFMessage'
POSE_TYPES = (POSE_STAMPED, *_ODOMETRY, _TRANSFORM, TF)
STATIC = '/tf_static'
_STILL = 1e-3  # metres, and of the rotation matrix's entries


@dataclass
class Poses:
    """The poses of one frame in another."""

    parent: str
    child: str  # empty where the messages do not name it
    stamps: list[int] = field(default_factory=list)  # nanoseconds
    rows: list[list[float]] = field(default_factory=list)  # x, y, z, qx, qy, qz, qw

    def __len__(self) -> int:
        return len(self.stamps)

    def __str__(self) -> str:
        return f'{self.child or "?"} in {self.parent or "?"} ({len(self)} poses)'

    @property
    def matrices(self) -> Float64:
        """(N, 4, 4) parent from child."""
        table = np.asarray(self.rows, np.float64).reshape(-1, 7)
        return poses_from(table[:, :3], table[:, 3:])

    @property
    def moves(self) -> bool:
        """Whether any pose differs from the first."""
        poses = self.matrices
        return bool((np.abs(poses - poses[0]) > _STILL).any())

    def trajectory(self, source: str) -> Trajectory:
        """All of them, as recorded."""
        return Trajectory(np.asarray(self.stamps, np.int64), self.matrices, source)


def read_poses(messages: Iterable[tuple[int, bytes]], topic: Topic, path: Path,
               tell: Callable[[str], None] | None = None) -> list[Poses]:
    """Poses by (parent, child) from the messages (received in ns, CDR) of a topic.

    What is not finite, has no direction or cannot be read is left out, with a line to `tell`. Raises BagError where the bag breaks
    off and nobody is told.
    """
    found: dict[tuple[str, str], Poses] = {}
    bad, why = 0, ''
    try:
        for number, (_, raw) in enumerate(messages, 1):
            try:
                message = deserialize(raw, topic.type, f'{path}, message {number} of {topic.name}')
            except BagError as error:
                if tell is None:
                    raise
                bad, why = bad + 1, why or str(error)
                continue
            for header, child, position, q in _transforms(message, topic.type):
                row = [position.x, position.y, position.z, q.x, q.y, q.z, q.w]
                if not np.isfinite(row).all() or q.x**2 + q.y**2 + q.z**2 + q.w**2 < 1e-6:
                    bad, why = bad + 1, why or f'message {number} holds the pose {row}'
                    continue
                key = header.frame_id.strip('/'), child.strip('/')
                poses = found.setdefault(key, Poses(*key))
                poses.stamps.append(header.stamp.sec * 10**9 + header.stamp.nanosec)
                poses.rows.append(row)
    except BagError as error:
        if tell is None:
            raise
        tell(f'{topic.name} was read up to where the bag breaks off, {sum(map(len, found.values()))} poses: {error}')
    if bad and tell is not None:
        tell(f'{bad} poses on {topic.name} are left out: {why}')
    return list(found.values())


def static_transform(edges: Iterable[Poses], target: str, source: str) -> Float64 | None:
    """(4, 4) target from source over transforms that do not change; None where they do not join the two frames."""
    steps: dict[str, list[tuple[str, Float64]]] = {}
    for edge in edges:
        matrix = edge.matrices[-1]
        steps.setdefault(edge.parent, []).append((edge.child, matrix))
        steps.setdefault(edge.child, []).append((edge.parent, np.linalg.inv(matrix)))
    reached, waiting = {target: np.eye(4)}, [target]
    while waiting:
        frame = waiting.pop(0)
        for neighbour, matrix in steps.get(frame, []):
            if neighbour not in reached:
                reached[neighbour] = reached[frame] @ matrix
                waiting.append(neighbour)
    return reached.get(source)


def _transforms(message: Any, kind: str) -> Iterator[tuple[Any, str, Any, Any]]:
    """(header, child frame, position, orientation) of each pose in a message."""
    if kind == TF:
        for each in message.transforms:
            yield from _transforms(each, _TRANSFORM)
    elif kind == _TRANSFORM:
        yield message.header, message.child_frame_id, message.transform.translation, message.transform.rotation
    else:
        pose = message.pose.pose if kind in _ODOMETRY else message.pose
        yield message.header, getattr(message, 'child_frame_id', ''), pose.position, pose.orientation
