"""Camera poses: trajectories with stamps, rotations and unit quaternions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.types import Float64
from ..utils.errors import BagError

_STILL = 1e-3  # metres, and of the rotation matrix's entries
_FAR_M = 10.0  # of a camera from a body: in most vehicles it is nearer, and millimetres are more
FEW = 10  # poses that may have one rotation
OPTICAL_IN_LINK = np.array([[0.0, 0, 1], [-1, 0, 0], [0, -1, 0]])  # x right, y down, z forward in x forward, y left, z up
_ALIKE = 0.05  # of a rotation's entries
AS_IT_IS = "taken as the camera's own (--camera-in-body says otherwise)"
GRID = 2.0**-32  # of numbers in the poses that this package computes: a quarter of a nanometre


@dataclass(frozen=True, eq=False)
class Trajectory:
    """N poses with stamps. Raises BagError when a value is not finite."""

    stamps_ns: NDArray[np.int64]  # (N,) nanoseconds
    poses: Float64  # (N, 4, 4) world from camera, metres, the camera in its optical frame (x right, y down, z forward)
    source: str = ''  # for people: where the poses are from, and how they became the camera's
    as_camera: bool = False  # taken as the camera's own as they were

    def __post_init__(self) -> None:
        if not np.isfinite(self.poses).all():
            number = int(np.argmin(np.isfinite(self.poses).all(axis=(1, 2))))
            raise BagError(f'pose {number} is not finite: correct it, or remove it')

    def __len__(self) -> int:
        return len(self.stamps_ns)

    def of_camera(self, camera_in_body: Float64 | None, how: str = '') -> Trajectory:
        """The camera's poses where these are a body's: `camera_in_body` (4, 4) is body from camera; None leaves them as they are.

        `how` is added to the source, empty: whether they were moved; and a distance that may be of millimetres.
        """
        how = how or (AS_IT_IS if camera_in_body is None else 'moved into the camera as asked')
        away_m = 0.0 if camera_in_body is None else float(np.linalg.norm(camera_in_body[:3, 3]))
        how += f', {away_m:.4g} m away: positions in the body are in metres' * (away_m > _FAR_M)
        poses = self.poses if camera_in_body is None else self.poses @ camera_in_body
        return Trajectory(self.stamps_ns, poses, f'{self.source}, {how}', camera_in_body is None)

    def ordered(self) -> Trajectory:
        """In the order of the stamps, the first of each that occurs again; itself where that is so already."""
        if (np.diff(self.stamps_ns) > 0).all():
            return self
        stamps, first = np.unique(self.stamps_ns, return_index=True)
        return Trajectory(stamps, self.poses[first], self.source, self.as_camera)


@dataclass
class Poses:
    """The poses of one frame in another."""

    parent: str
    child: str  # empty where the messages do not name it
    stamps: list[int] = field(default_factory=list)  # nanoseconds
    rows: list[list[float]] = field(default_factory=list)  # x, y, z, qx, qy, qz, qw
    received: list[int] = field(default_factory=list)  # nanoseconds, by the recorder's clock

    def __str__(self) -> str:
        count = f'{len(self.stamps)} poses'
        return f'{self.frames} ({count})' if self.child else f'{count} {self.frames}'

    @property
    def frames(self) -> str:
        """The frame and its parent, for people."""
        return f'{self.child} in {self.parent or "a frame without a name"}'.strip()

    @property
    def matrices(self) -> Float64:
        """(N, 4, 4) parent from child."""
        table = np.asarray(self.rows, np.float64).reshape(-1, 7)
        return poses_from(table[:, :3], table[:, 3:])

    @property
    def moves(self) -> bool:
        poses = self.matrices
        return bool((np.abs(poses - poses[0]) > _STILL).any())

    @property
    def stays(self) -> bool:
        """Whether it is repeated and does not move, as a mounting."""
        return len(self.stamps) > 1 and not self.moves


def optical_frame(frame: str, transforms: Iterable[tuple[str, str, Float64]]) -> str:
    """The frame with a camera's axes of images whose frame_id is `frame`; itself unless one below it is called optical.

    `transforms` are parent, child and (4, 4) parent from child. Below camera_link, with x forward and z up, drivers have
    camera_optical_link (REP 103), and some write camera_link into their images all the same.
    """
    below = {child for parent, child, pose in transforms if parent == frame and 'optical' in child.lower()
             and np.abs(pose[:3, :3] - OPTICAL_IN_LINK).max() < _ALIKE}
    return below.pop() if len(below) == 1 and 'optical' not in frame.lower() else frame


def are_positions(rows: ArrayLike) -> bool:
    """Whether poses (N, 7) move and all have one rotation, as of GPS or a prism; a few may."""
    table = np.asarray(rows, np.float64).reshape(-1, 7)
    return bool(len(table) > FEW and (table[:, 3:] == table[0, 3:]).all() and (table[:, :3] != table[0, :3]).any())


def quaternions_from_rotations(rotations: ArrayLike) -> Float64:
    """Unit quaternions (N, 4), x, y, z, w with w >= 0, of rotation matrices (N, 3, 3)."""
    m = np.asarray(rotations, np.float64).reshape(-1, 3, 3)
    diagonal = np.einsum('nii->ni', m)
    trace = diagonal.sum(axis=1)
    products = np.empty((len(m), 4, 4))  # 4 q q^T: any row has the direction of q, that of the largest component is exact
    products[:, :3, :3] = m + m.transpose(0, 2, 1)
    products[:, range(3), range(3)] = 1 - trace[:, None] + 2 * diagonal
    products[:, :3, 3] = products[:, 3, :3] = m[:, (2, 0, 1), (1, 2, 0)] - m[:, (1, 2, 0), (2, 0, 1)]
    products[:, 3, 3] = 1 + trace
    q: Float64 = products[np.arange(len(m)), np.einsum('nii->ni', products).argmax(axis=1)]
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    return np.where(q[:, 3:] < 0, -q, q)


def _rotations_from(quaternions: Float64) -> Float64:
    """Rotation matrices (N, 3, 3) of unit quaternions (N, 4), x, y, z, w."""
    x, y, z, w = quaternions.T
    rows = [[x * x - y * y - z * z + w * w, 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), -x * x + y * y - z * z + w * w, 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), -x * x - y * y + z * z + w * w]]
    return np.asarray(rows).transpose(2, 0, 1)


def on_grid(values: ArrayLike) -> Float64:
    """The nearest multiples of GRID: by these a recording shows who computed its poses."""
    return np.asarray(np.round(np.asarray(values, np.float64) / GRID) * GRID, np.float64)


def are_on_grid(rows: ArrayLike) -> bool:
    """Whether positions and quaternions (N, 7) were made by `on_grid`: numbers of others are not, or have single precision."""
    values = np.asarray(rows, np.float64)
    if not np.isfinite(values).all() or (on_grid(values) != values).any():
        return False
    return bool(np.mean((values.astype(np.float32) != values).any(axis=1)) >= 0.5)


def interpolated(first: Float64, second: Float64, share: Float64) -> Float64:
    """Poses between two (N, 4, 4) each, at shares (N,) of the way: positions on the line, rotations along the shortest arc."""
    start, end = (quaternions_from_rotations(poses[:, :3, :3]) for poses in (first, second))
    end = np.where((start * end).sum(axis=1, keepdims=True) < 0, -end, end)
    angle = 2 * np.arctan2(np.linalg.norm(end - start, axis=1), np.linalg.norm(end + start, axis=1))  # of the quaternions
    weights = [part * np.sinc(part * angle / np.pi) / np.sinc(angle / np.pi) for part in (1 - share, share)]
    between = weights[0][:, None] * start + weights[1][:, None] * end
    poses = first + share[:, None, None] * (second - first)
    poses[:, :3, :3] = _rotations_from(between / np.linalg.norm(between, axis=1, keepdims=True))
    return poses


def angles_deg(rotations: ArrayLike) -> Float64:
    """Angles (N,) of rotations (N, 3, 3)."""
    q = quaternions_from_rotations(rotations)
    return np.asarray(np.degrees(2 * np.arctan2(np.linalg.norm(q[:, :3], axis=1), q[:, 3])), np.float64)


def poses_from(translations: ArrayLike, quaternions: ArrayLike) -> Float64:
    """Poses (N, 4, 4) of translations (N, 3) and quaternions (N, 4) in the order x, y, z, w, which are normalised first.

    Raises BagError when a quaternion is not finite or has no length.
    """
    q = np.asarray(quaternions, np.float64)
    norm = np.linalg.norm(q, axis=1)
    if (bad := ~(np.isfinite(norm) & (norm > 1e-6))).any():
        row = int(np.argmax(bad))
        raise BagError(f'the quaternion of pose {row} is {q[row].tolist()}: it has no direction; correct it, or remove the pose')
    poses = np.tile(np.eye(4), (len(q), 1, 1))
    poses[:, :3, :3] = _rotations_from(q / norm[:, None])
    poses[:, :3, 3] = np.asarray(translations, np.float64)
    return poses


def is_rotation(values: ArrayLike) -> bool:
    """Whether the left 3x3 of a matrix (3, 4), or of its 12 numbers row by row, is one."""
    r = np.asarray(values, np.float64).reshape(3, 4)[:, :3]
    return bool(np.abs(r @ r.T - np.eye(3)).max() < 1e-3 and np.linalg.det(r) > 0)
