"""Ground truth: the camera's poses from the topics of a bag, the files of an image folder, or a file of poses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from ..core.timing import usual_period
from ..core.types import Float64
from ..utils.errors import BagError
from .bag_parts import ENDINGS, is_bag
from .bag_recording import BagRecording
from .folder_recordings import FolderRecording
from .image_folders import euroc_ground_truth
from .pose_files import KINDS, axes_by_name, kind_of, read_arkitscenes, read_kitti, read_quaternions
from .pose_json import read_nuscenes, read_spectacular
from .pose_times import numbered, timed
from .pose_topics import from_topics
from .poses import Trajectory, interpolated
from .reconstructions import read_reconstruction
from .sequence import Recording
from .stamps import read_stamps

_OF_TOOLS = {'.traj': read_arkitscenes, '.jsonl': read_spectacular, '.json': read_nuscenes}  # by endings; None of another file
GAP_PERIODS, GAP_LIMITS = 3, 10  # usual times between poses, and times `max_difference_s`: what is longer than both is a gap
_MOVES, _MIXED = 1e-6, 0.3  # metres, and of a rotation's entries; share of poses, of which two bodies have half
_SOUND_M_S = 340.0  # no camera on a robot is faster; those of a hand or a drone in millimetres are


def load_ground_truth(recording: Recording, *, topic: str | None = None, file: Path | None = None, kind: str | None = None,
               child_frame: str | None = None, camera_in_body: Float64 | None = None,
               on_note: Callable[[str], None] = lambda line: None) -> Trajectory | None:
    """The camera's ground truth poses in order of their stamps, from a topic, a file, or the recording itself.

    Without `topic` and `file`: of a bag /ground_truth/pose, or else its only topic of poses that are no goals; of an image folder
    its layout's file.

    Args:
        kind: Format of the file: tum, kitti or euroc. None: by its first line.
        child_frame: The moving frame, where a topic has several, or does not name it.
        camera_in_body: (4, 4) body from camera, where the poses are of a body. Left out, EuRoC's T_BS, KITTI's calibration or
            /tf_static give it.
        on_note: Gets a line for every pose or topic that is left out.

    Returns:
        Poses whose `source` names topic or file; None where the recording itself has none.

    Raises:
        BagError: The topic or file that was named has no such poses.
    """
    if file is not None:
        recorded: Trajectory | None = _from_file(recording, file, kind, camera_in_body, on_note)
    elif isinstance(recording, FolderRecording):
        if topic is not None:
            raise BagError(f'{recording.path} is an image folder: it has no topic {topic}; name a file with poses (--truth)')
        recorded = recording.ground_truth(camera_in_body)
    else:
        assert isinstance(recording, BagRecording)
        recorded = from_topics(recording, topic, child_frame, camera_in_body, on_note)
    if recorded is None:
        return None
    ordered = recorded.ordered()
    if reason := _mixed(recorded, ordered):
        if file is not None or topic is not None:
            raise BagError(f'{recorded.source}: {reason}')
        on_note(f'no ground truth is taken from {recorded.source}: {reason}')
        return None
    if duplicates := len(recorded) - len(ordered):
        on_note(f'{duplicates} poses of {recorded.source} have stamps that others have: they are left out')
    if (speed := _usual_speed(ordered)) > _SOUND_M_S:
        on_note(f'{recorded.source}: its positions change by {speed:.0f} m a second, faster than sound: they may be in '
                'millimetres, or the times in another unit; write metres, and seconds or nanoseconds')
    return ordered


def _mixed(recorded: Trajectory, ordered: Trajectory) -> str:
    """That many poses have the time of another one and differ from it; empty where they do not. `ordered` has one of each time."""
    first = ordered.poses[np.searchsorted(ordered.stamps_ns, recorded.stamps_ns)]
    count = int((np.abs(recorded.poses - first) > _MOVES).any(axis=(1, 2)).sum())
    return '' if count < len(recorded) * _MIXED else (
        f'{count} of {len(recorded)} poses have the time of another one, and differ from it: their times were rounded as they were '
        'written (seconds need a point and six digits or more behind it), or they are of several bodies (keep those of one)')


def _usual_speed(trajectory: Trajectory) -> float:
    """The median in metres a second; 0 of one pose."""
    steps = np.linalg.norm(np.diff(trajectory.poses[:, :3, 3], axis=0), axis=1) / np.diff(trajectory.stamps_ns) * 1e9
    return float(np.median(steps)) if len(steps) else 0.0


def poses_at(trajectory: Trajectory, stamps_ns: ArrayLike, max_difference_s: float) -> Float64:
    """Poses (N, 4, 4) at stamps (N,) in nanoseconds.

    A row is NaN where no pose is within `max_difference_s` of the stamp. Between two poses the position is interpolated linearly
    and the rotation along the shortest arc at constant speed (slerp: Shoemake, SIGGRAPH 1985): the nearest pose of a slow ground
    truth is a frame's motion away. Beside a gap the nearest pose is taken. Raises BagError, with both ranges of
    time, when no stamp has a pose.
    """
    known, stamps = trajectory.ordered(), np.asarray(stamps_ns, np.int64).reshape(-1)
    result = np.full((len(stamps), 4, 4), np.nan)
    if not len(stamps):
        return result
    limit = round(max_difference_s * 1e9)
    if len(known):
        after = np.searchsorted(known.stamps_ns, stamps)
        first, second = np.maximum(after - 1, 0), np.minimum(after, len(known) - 1)
        gaps = np.abs(stamps - known.stamps_ns[first]), np.abs(known.stamps_ns[second] - stamps)
        nearest, gap = np.where(gaps[0] < gaps[1], first, second), np.minimum(*gaps)
        near = gap <= limit
        result[near] = known.poses[nearest[near]]
        joined = max(GAP_LIMITS * limit, GAP_PERIODS * usual_period(known.stamps_ns.tolist()))
        between = near & (gap > 0) & (after > 0) & (after < len(known)) & (gaps[0] + gaps[1] <= joined)
        share = gaps[0][between] / (gaps[0] + gaps[1])[between]
        if between.any():  # older SciPy knows no empty rotations
            result[between] = interpolated(known.poses[first[between]], known.poses[second[between]], share)
    if np.isnan(result[:, 0, 0]).all():
        apart = not len(known) or known.stamps_ns[0] > stamps.max() + limit or known.stamps_ns[-1] < stamps.min() - limit
        why = 'does not overlap with the images' if apart else f'is {gap.min() * 1e-9:.3g} s or more away from each image'
        raise BagError(f'the ground truth {why}: {trajectory.source or "it"} covers '
                       f'{_range(known.stamps_ns)}, the images {_range(stamps)}, and {max_difference_s:g} s between them are '
                       'allowed (--max-time-difference): both need one clock' + '; a larger value interpolates' * (not apart))
    return result


def _range(stamps: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> str:
    return f'{stamps.min() * 1e-9:.3f} to {stamps.max() * 1e-9:.3f} s' if len(stamps) else 'nothing'


def _from_file(recording: Recording, path: Path, kind: str | None, camera_in_body: Float64 | None,
               on_note: Callable[[str], None]) -> Trajectory:
    if path.name.endswith((*ENDINGS, '.bag')) or (path.is_dir() and is_bag(path)):
        raise BagError(f'{path} is a bag: its poses are read where it has the images too (--truth-topic). Else play it, and write '
                       'them into a file: ros2 topic echo --csv TOPIC > poses.csv')
    if kind is None and (named := read_reconstruction(path, recording)) is not None:
        return named.of_camera(camera_in_body)
    if kind is None and path.suffix in _OF_TOOLS and (read := _OF_TOOLS[path.suffix](path)) is not None:
        return read.of_camera(camera_in_body)
    kind = kind_of(path) if kind is None else kind
    if kind not in KINDS:
        raise BagError(f'{path}: ground truth of kind {kind!r}: it is one of {", ".join(KINDS)}')
    if kind == 'kitti':
        poses = read_kitti(path, _kitti_stamps(recording, path), numbered(recording))
        if camera_in_body is None and (axes := axes_by_name(path)) is not None:
            return poses.of_camera(axes, "with TartanAir's axes, forward, right and down, by the name of the file")
    else:
        poses = read_quaternions(path, kind) if kind == 'tum' else euroc_ground_truth(path)
        poses = timed(poses, recording, on_note)
    if isinstance(recording, FolderRecording) and recording.kind == kind:
        return recording.of_camera(poses, camera_in_body)
    return poses.of_camera(camera_in_body)


def _kitti_stamps(recording: Recording, path: Path) -> Sequence[int]:
    poses = path.resolve()
    for times in (poses.with_name('times.txt'), poses.parent.parent / 'sequences' / poses.stem / 'times.txt'):
        if times.is_file():
            return read_stamps(times)
    return [frame.stamp_ns for frame in recording.frames()]
