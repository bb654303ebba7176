"""Ground truth: where the camera really was, from whatever a recording or a file says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from ..core.types import Float64
from ..utils.errors import BagError
from .bag import BagRecording
from .image_folders import FolderRecording, euroc_truth
from .pose_files import KINDS, kind_of, read_kitti, read_stamps, read_tum
from .pose_topics import POSE_TYPES, STATIC, TF, Poses, static_transform
from .poses import Trajectory, interpolated
from .sequence import POSE_STAMPED, POSE_TOPIC, Recording, Topic

_AS_IT_IS = "taken as the camera's own (--camera-in-body says otherwise)"


def load_truth(recording: Recording, *, topic: str | None = None, file: Path | None = None, kind: str | None = None,
               child_frame: str | None = None, camera_in_body: Float64 | None = None,
               tell: Callable[[str], None] = lambda line: None) -> Trajectory | None:
    """The camera's true poses, in order of their stamps, from a topic or a file; without either, what the recording has by itself.

    By itself a bag has /ground_truth/pose, or else its only topic of poses; an image folder has its layout's truth.
    kind: of the file, tum, kitti or euroc; None: by its first line. child_frame: which moving frame, where a topic has several.
    camera_in_body: (4, 4) body from camera, where the poses are of a body; left out, EuRoC's T_BS, KITTI's calibration or
    /tf_static say so. `tell` gets a line for everything that was left out; the result's `source` says what was used.

    None where nothing is found by itself. Raises BagError when what was asked for cannot be had.
    """
    if file is not None:
        found: Trajectory | None = _from_file(recording, file, kind, camera_in_body)
    elif isinstance(recording, FolderRecording):
        if topic is not None:
            raise BagError(f'{recording.path} is an image folder: it has no topic {topic}; name a file with poses (--truth)')
        found = recording.truth(camera_in_body)
    else:
        assert isinstance(recording, BagRecording)
        found = _from_topics(recording, topic, child_frame, camera_in_body, tell)
    if found is None:
        return None
    ordered = found.ordered()
    if lost := len(found) - len(ordered):
        tell(f'{lost} poses of {found.source} have stamps that others have: they are left out')
    return ordered


def poses_at(trajectory: Trajectory, stamps_ns: ArrayLike, max_difference_s: float) -> Float64:
    """Poses (N, 4, 4) at stamps (N,) in nanoseconds.

    Between two poses that are both within `max_difference_s` of the stamp the position is interpolated linearly and the rotation
    along the shortest arc at constant speed (slerp: Shoemake, SIGGRAPH 1985); otherwise the nearest pose within it is taken; a row
    is NaN where there is none. Raises BagError, with both ranges of time, when no stamp has a pose.
    """
    truth, stamps = trajectory.ordered(), np.asarray(stamps_ns, np.int64).reshape(-1)
    result = np.full((len(stamps), 4, 4), np.nan)
    if not len(stamps):
        return result
    limit = round(max_difference_s * 1e9)
    if len(truth):
        after = np.searchsorted(truth.stamps_ns, stamps)
        first, second = np.maximum(after - 1, 0), np.minimum(after, len(truth) - 1)
        gaps = np.abs(stamps - truth.stamps_ns[first]), np.abs(truth.stamps_ns[second] - stamps)
        nearest, gap = np.where(gaps[0] < gaps[1], first, second), np.minimum(*gaps)
        known = gap <= limit
        result[known] = truth.poses[nearest[known]]
        between = (gap > 0) & (first != second) & (gaps[0] <= limit) & (gaps[1] <= limit)
        between &= (after > 0) & (after < len(truth))
        share = gaps[0][between] / (gaps[0] + gaps[1])[between]
        if between.any():  # older SciPy knows no empty rotations
            result[between] = interpolated(truth.poses[first[between]], truth.poses[second[between]], share)
    if np.isnan(result[:, 0, 0]).all():
        raise BagError(f'the truth does not overlap with the images: {trajectory.source or "it"} covers {_range(truth.stamps_ns)}, '
                       f'the images {_range(stamps)}, and {max_difference_s:g} s between them are allowed (--max-time-difference)')
    return result


def _range(stamps: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> str:
    return f'{stamps.min() * 1e-9:.3f} to {stamps.max() * 1e-9:.3f} s' if len(stamps) else 'nothing'


def _from_file(recording: Recording, path: Path, kind: str | None, camera_in_body: Float64 | None) -> Trajectory:
    kind = kind_of(path) if kind is None else kind
    if kind not in KINDS:
        raise BagError(f'truth of kind {kind!r}: it is one of {", ".join(KINDS)}')
    if kind == 'kitti':
        truth = read_kitti(path, _kitti_stamps(recording, path))
    else:
        truth = read_tum(path) if kind == 'tum' else euroc_truth(path)
    if isinstance(recording, FolderRecording) and recording.kind == kind:
        return recording.mount(truth, camera_in_body)
    return truth.of_camera(camera_in_body, _AS_IT_IS if camera_in_body is None else 'moved into the camera as asked')


def _kitti_stamps(recording: Recording, path: Path) -> Sequence[int]:
    here = path.resolve()
    for times in (here.with_name('times.txt'), here.parent.parent / 'sequences' / here.stem / 'times.txt'):
        if times.is_file():
            return read_stamps(times)
    return [frame.stamp_ns for frame in recording.frames()]


def _from_topics(bag: BagRecording, name: str | None, child_frame: str | None, camera_in_body: Float64 | None,
                 tell: Callable[[str], None]) -> Trajectory | None:
    topics = [topic for topic in bag.topics if topic.type in POSE_TYPES and not topic.name.endswith(STATIC)]
    listing = '; '.join(map(str, topics)) or 'none'
    if name is None:
        own = [topic for topic in topics if (topic.name, topic.type) == (POSE_TOPIC, POSE_STAMPED) and topic.count]
        chosen = own or [topic for topic in topics if topic.count > 1]
        if len(chosen) > 1:
            tell(f'{bag.path} has {len(chosen)} topics of poses, none is taken for the truth: name one (--truth-topic). {listing}')
        if len(chosen) != 1:
            return None
    else:
        chosen = [topic for topic in topics if topic.name == name]
        if not chosen:
            raise BagError(f'{bag.path} has no poses on {name}. Topics of poses: {listing}')
    try:
        poses = _moving(bag.poses(chosen[0], tell), chosen[0], child_frame)
        return _of_camera(bag, poses, chosen[0], camera_in_body, tell)
    except BagError as error:
        if name is not None:
            raise
        tell(f'no truth is taken from {chosen[0].name}: {error}')
        return None


def _moving(tracks: list[Poses], topic: Topic, child_frame: str | None) -> Poses:
    """The poses of the frame that moves."""
    listing = '; '.join(map(str, tracks)) or 'nothing'
    if child_frame is not None:
        named = [track for track in tracks if track.child == child_frame.strip('/')]
        if len(named) != 1:
            raise BagError(f'{topic.name} has {len(named)} sequences of poses of {child_frame}. It holds: {listing}')
        return named[0]
    moving = tracks if len(tracks) == 1 and topic.type != TF else [track for track in tracks if track.moves]
    if len(moving) != 1:
        raise BagError(f'{topic.name} has {len(moving)} frames that move, name one (--truth-child-frame). It holds: {listing}')
    return moving[0]


def _of_camera(bag: BagRecording, poses: Poses, topic: Topic, camera_in_body: Float64 | None,
               tell: Callable[[str], None]) -> Trajectory:
    truth = poses.trajectory(f'{topic.name} ({topic.type}), {poses}')
    if camera_in_body is not None:
        return truth.of_camera(camera_in_body, 'moved into the camera as asked')
    if not poses.child:
        return truth.of_camera(None, _AS_IT_IS)
    if poses.child == bag.frame_id:
        return truth.of_camera(None, "the camera's own")
    static = [edge for each in bag.topics if each.type == TF and each.name.endswith(STATIC) for edge in bag.poses(each, tell)]
    mounting = static_transform(static, poses.child, bag.frame_id)
    if mounting is None:
        raise BagError(f'its poses are of {poses.child}, and no {STATIC} joins that to {bag.frame_id!r}, the frame of the images: '
                       'say where the camera is in it (--camera-in-body)')
    return truth.of_camera(mounting, f'moved into {bag.frame_id} by {STATIC}')
