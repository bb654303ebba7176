"""Camera poses: rotations and unit quaternions, trajectories with stamps."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.types import Float64
from ..utils.errors import BagError

MAX_STAMP_NS = (2**31 - 1) * 10**9  # builtin_interfaces/Time holds seconds in an int32


@dataclass(frozen=True, eq=False)
class Trajectory:
    """N poses with stamps. Raises BagError when the shapes differ or a value is not finite."""

    stamps_ns: NDArray[np.int64]  # (N,) nanoseconds
    poses: Float64  # (N, 4, 4) world from camera, metres, the camera in its optical frame (x right, y down, z forward)
    source: str = ''  # for people: where the poses are from, and how they became the camera's

    def __post_init__(self) -> None:
        if self.stamps_ns.ndim != 1 or self.poses.shape != (len(self.stamps_ns), 4, 4):
            raise BagError(f'a trajectory has stamps (N,) and poses (N, 4, 4), not {self.stamps_ns.shape} and {self.poses.shape}')
        if not np.isfinite(self.poses).all():
            raise BagError(f'pose {int(np.argmin(np.isfinite(self.poses).all(axis=(1, 2))))} is not finite')

    def __len__(self) -> int:
        return len(self.stamps_ns)

    def of_camera(self, camera_in_body: Float64 | None, how: str) -> Trajectory:
        """The camera's poses where these are a body's: `camera_in_body` (4, 4) is body from camera; None leaves them as they are.

        `how` is added to the source.
        """
        poses = self.poses if camera_in_body is None else self.poses @ camera_in_body
        return Trajectory(self.stamps_ns, poses, f'{self.source}, {how}')

    def ordered(self) -> Trajectory:
        """In the order of the stamps, the first of each that occurs again; itself where that is so already."""
        if (np.diff(self.stamps_ns) > 0).all():
            return self
        stamps, first = np.unique(self.stamps_ns, return_index=True)
        return Trajectory(stamps, self.poses[first], self.source)


def rotations_from_quaternions(quaternions: ArrayLike) -> Float64:
    """Rotation matrices (N, 3, 3) of quaternions (N, 4) in the order x, y, z, w; they are normalised first.

    Raises BagError when one is not finite or has no length.
    """
    from scipy.spatial.transform import Rotation
    q = np.asarray(quaternions, np.float64)
    norm = np.linalg.norm(q, axis=1)
    if (bad := ~(np.isfinite(norm) & (norm > 1e-6))).any():
        row = int(np.argmax(bad))
        raise BagError(f'the quaternion of pose {row} is {q[row].tolist()}: it has no direction')
    return np.asarray(Rotation.from_quat(q).as_matrix(), np.float64)


def quaternions_from_rotations(rotations: ArrayLike) -> Float64:
    """Unit quaternions (N, 4), x, y, z, w with w >= 0, of rotation matrices (N, 3, 3)."""
    from scipy.spatial.transform import Rotation
    q = np.asarray(Rotation.from_matrix(rotations).as_quat(), np.float64)
    return np.where(q[:, 3:] < 0, -q, q)


def interpolated(first: Float64, second: Float64, share: Float64) -> Float64:
    """Poses between two (N, 4, 4) each, at shares (N,) of the way: positions on the line, rotations along the shortest arc."""
    from scipy.spatial.transform import Rotation
    start, end = (Rotation.from_matrix(poses[:, :3, :3]) for poses in (first, second))
    poses = first + share[:, None, None] * (second - first)
    poses[:, :3, :3] = (start * Rotation.from_rotvec(share[:, None] * (start.inv() * end).as_rotvec())).as_matrix()
    return poses


def angles_deg(rotations: ArrayLike) -> Float64:
    """Angles (N,) of rotations (N, 3, 3)."""
    from scipy.spatial.transform import Rotation
    return np.asarray(np.degrees(Rotation.from_matrix(rotations).magnitude()), np.float64)


def poses_from(translations: ArrayLike, quaternions: ArrayLike) -> Float64:
    """Poses (N, 4, 4) of translations (N, 3) and quaternions (N, 4) x, y, z, w. Raises BagError as above."""
    rotations = rotations_from_quaternions(quaternions)
    poses = np.tile(np.eye(4), (len(rotations), 1, 1))
    poses[:, :3, :3] = rotations
    poses[:, :3, 3] = np.asarray(translations, np.float64)
    return poses


def parse_stamp(text: str) -> int:
    """Seconds in decimal notation to nanoseconds, exactly. Raises ValueError when that is no stamp ROS can hold."""
    try:
        ns = int((Decimal(text) * 10**9).to_integral_value())
    except (InvalidOperation, OverflowError, ValueError):
        raise ValueError(f'{text!r} is not a number of seconds') from None
    if not 0 <= ns <= MAX_STAMP_NS:
        raise ValueError(f'{text!r} is not a time in seconds between 0 and {MAX_STAMP_NS // 10**9}')
    return ns
