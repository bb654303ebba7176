"""Ground truth: the camera's poses from the topics of a bag, the files of an image folder, or a file of poses."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..core.cameras import same_frame
from ..core.timing import usual_period
from ..core.types import Float64
from ..utils.errors import BagError
from .bag import BagRecording
from .bag_parts import ENDINGS, is_bag
from .bag_storage import deserialize
from .folder_recordings import FolderRecording
from .image_folders import euroc_ground_truth
from .own_odometry import PATH, TF, Origin, OwnOdometry
from .pose_files import KINDS, axes_by_name, kind_of, read_arkitscenes, read_kitti, read_quaternions
from .pose_json import read_nuscenes, read_spectacular
from .pose_times import numbered, timed
from .poses import Poses, Trajectory, are_on_grid, are_positions, interpolated, optical_frame
from .reconstructions import read_reconstruction
from .sequence import POSE_STAMPED, POSE_TOPIC, Recording, Topic
from .stamps import read_stamps

_ODOMETRY = ('nav_msgs/msg/Odometry', 'geometry_msgs/msg/PoseWithCovarianceStamped')
_TRANSFORM = 'geometry_msgs/msg/TransformStamped'
POSE_TYPES = (POSE_STAMPED, *_ODOMETRY, _TRANSFORM, TF)  # a Path is read where it is named: most are plans
STATIC = '/tf_static'
_POSITIONS = ('geometry_msgs/msg/PointStamped', 'sensor_msgs/msg/NavSatFix')  # without rotations
_NOT_READ = (PATH, 'geometry_msgs/msg/PoseArray', *_POSITIONS)
_AIMS = re.compile('goal|initial_?pose|setpoint|waypoint|desired', re.IGNORECASE)  # topics of where a robot is to be
_OF_GPS = re.compile('gps|gnss|rtk|navsat|prism|leica|total_?station', re.IGNORECASE)  # topics of what measures positions alone
_FUSE = 'has positions without rotations, and pose errors need both: give the Odometry of a fusion with an IMU (robot_localization)'
_OF_TOOLS = {'.traj': read_arkitscenes, '.jsonl': read_spectacular, '.json': read_nuscenes}  # by endings; None of another file
GAP_PERIODS, GAP_LIMITS = 3, 10  # usual times between poses, and times `max_difference_s`: what is longer than both is a gap
_SAME = 1e-2  # metres, and of the rotation matrix's entries: between mountings that several transforms give
_MOVES, _MIXED = 1e-6, 0.3  # metres, and of a rotation's entries; share of poses, of which two bodies have half
_SOUND_M_S = 340.0  # no camera on a robot is faster; those of a hand or a drone in millimetres are
_MOVED = 'moved into the camera as asked'
_AS_IT_IS = "taken as the camera's own (--camera-in-body says otherwise)"


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
        recorded = _from_topics(recording, topic, child_frame, camera_in_body, on_note)
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
        return named.of_camera(camera_in_body, _AS_IT_IS if camera_in_body is None else _MOVED)
    if kind is None and path.suffix in _OF_TOOLS and (read := _OF_TOOLS[path.suffix](path)) is not None:
        return read.of_camera(camera_in_body, _AS_IT_IS if camera_in_body is None else _MOVED)
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
    return poses.of_camera(camera_in_body, _AS_IT_IS if camera_in_body is None else _MOVED)


def _kitti_stamps(recording: Recording, path: Path) -> Sequence[int]:
    poses = path.resolve()
    for times in (poses.with_name('times.txt'), poses.parent.parent / 'sequences' / poses.stem / 'times.txt'):
        if times.is_file():
            return read_stamps(times)
    return [frame.stamp_ns for frame in recording.frames()]


def _from_topics(bag: BagRecording, name: str | None, child_frame: str | None, camera_in_body: Float64 | None,
                 on_note: Callable[[str], None]) -> Trajectory | None:
    kinds = POSE_TYPES if name is None else (*POSE_TYPES, PATH)
    topics = [topic for topic in bag.topics if topic.type in kinds and not topic.name.endswith(STATIC)]
    listing, own_odometry = '; '.join(map(str, topics)) or 'none', OwnOdometry(bag)
    computed = [topic for topic in topics if name in (None, topic.name) and own_odometry.publishes(topic)]
    for topic in computed:
        on_note(_computed(topic.name, None if name is not None else '--truth-topic'))
    measured: dict[str, list[Poses]] = {}  # of TF, by topic
    if name is None:
        aims = [topic for topic in topics if _AIMS.search(topic.name)]
        if several := [topic for topic in aims if topic.count > 1]:
            on_note(f'{"; ".join(map(str, several))}: by the name where a robot is to be, and no ground truth; name it if it is '
                    'one (--truth-topic)')
        topics = [topic for topic in topics if topic not in computed and topic not in aims]
        own = [topic for topic in topics if (topic.name, topic.type) == (POSE_TOPIC, POSE_STAMPED) and topic.count]
        chosen = own or [topic for topic in topics if topic.count > 1]
        for topic in chosen:
            if topic.type == TF and child_frame is None:
                measured[topic.name] = _measured(own_odometry, topic, read_poses(bag, topic, on_note), on_note)
        chosen = [topic for topic in chosen if measured.get(topic.name) != []]
        if len(chosen) > 1:
            on_note(f'{bag.path} has {len(chosen)} topics of poses, none is taken as ground truth: name one (--truth-topic). '
                    f'{listing}')
        if not topics and (others := [topic for topic in bag.topics if topic.type in _NOT_READ and topic.count]) and not computed:
            on_note(f'{"; ".join(map(str, others))}: not read as ground truth; poses are read from {", ".join(POSE_TYPES)}, from a '
                    'Path that is named (--truth-topic), or from a file (--truth)'
                    + next((f'. {topic.name} {_FUSE}' for topic in others if topic.type in _POSITIONS), ''))
        if len(chosen) != 1:
            return None
    else:
        chosen = [topic for topic in topics if topic.name == name]
        if not chosen:
            form = ', '.join(kind.rpartition('/')[2] for kind in kinds)
            other = next((f', but {topic.type}: ' + (f'it {_FUSE}' if topic.type in _POSITIONS else
                                                    f'write its poses into a file (--truth), or name a topic of {form}')
                          for topic in bag.topics if topic.name == name), '')
            raise BagError(f'{bag.path} has no poses on {name}{other}. Topics of poses: {listing}')
    try:
        tracks = measured[chosen[0].name] if chosen[0].name in measured else read_poses(bag, chosen[0], on_note)
        if chosen[0].type == PATH and any(are_on_grid(track.rows) for track in tracks):
            on_note(_computed(chosen[0].name, None))
        if name is not None and chosen[0].type == TF and child_frame is None:
            tracks = _measured(own_odometry, chosen[0], tracks, on_note)
        poses = _moving(tracks if child_frame is not None else _that_carry(bag, tracks, on_note), chosen[0], child_frame)
        if carrier := next((track for track in tracks if track.child == poses.parent and track.moves), None):
            on_note(f'{carrier} moves itself: {poses} are not poses in {carrier.parent}. That is right where a map is '
                    f'corrected so; else write the poses of {poses.child} in {carrier.parent} into a file (--truth)')
        is_seen = bool(poses.parent and bag.frame_id) and not poses.child and same_frame(poses.parent, bag.frame_id)
        doubt = f'all rotations of {poses} are equal, as where only positions are measured, by GPS or a prism' \
            if are_positions(poses.rows) else \
            f'{poses} are in the frame of the images, as those of a tag that the camera sees' if is_seen else ''
        if doubt:
            is_refused = name is None and (is_seen or _OF_GPS.search(chosen[0].name))
            on_note(f'{chosen[0].name}: {doubt}: ' + (
                'it is no ground truth unless you name it (--truth-topic)' if is_refused else
                'figures need both' if not is_seen else 'they are taken as the poses of the camera in the world'))
            if is_refused:
                return None
        truth = _of_camera(bag, poses, chosen[0], camera_in_body, on_note)
        if name is None and own_odometry.origin_of(poses, chosen[0]) is Origin.IMAGES:
            on_note(f'{poses} of {chosen[0].name} have the stamps of the images: if an odometry computed them from these, figures '
                    'compare two estimates')
        return truth
    except BagError as error:
        if name is not None:
            raise
        on_note(f'no ground truth is taken from {chosen[0].name}: {error}')
        return None


def _measured(own_odometry: OwnOdometry, topic: Topic, tracks: list[Poses], on_note: Callable[[str], None]) -> list[Poses]:
    """Those of a TF topic that this package's odometry does not move."""
    measured = []
    for track in tracks:
        if own_odometry.origin_of(track, topic) is Origin.OWN:
            on_note(_computed(f'{track} of {topic.name}', f'--truth-topic {topic.name} --truth-child-frame {track.child}'))
        else:
            measured.append(track)
    return measured


def _computed(what: str, options: str | None) -> str:
    """A line about poses that are ours; `options` take them, None: they are taken."""
    return f'{what} is the odometry of this package, computed from images of this recording: ' + (
        'figures by it compare matches with themselves' if options is None else
        f'it is no ground truth, and left out; {options} takes it all the same')


def _moving(tracks: list[Poses], topic: Topic, child_frame: str | None) -> Poses:
    """The poses of the one frame that moves. Raises BagError."""
    if not tracks:
        raise BagError(f'{topic.name} holds no pose that can be read')
    listing = '; '.join(map(str, tracks))
    if child_frame is not None:
        if len(tracks) == 1 and not tracks[0].child:  # the messages do not say of what they are, and the user does
            return replace(tracks[0], child=child_frame.strip('/'))
        named = [track for track in tracks if track.child == child_frame.strip('/')]
        if len(named) != 1:
            raise BagError(f'{topic.name} has {len(named)} sequences of poses of {child_frame}. It holds: {listing}')
        return named[0]
    moving = tracks if len(tracks) == 1 and topic.type != TF else [track for track in tracks if track.moves]
    if len(moving) != 1:
        raise BagError(f'{topic.name} has {len(moving)} frames that move, name one (--truth-child-frame). It holds: {listing}')
    return moving[0]


def _of_camera(bag: BagRecording, poses: Poses, topic: Topic, camera_in_body: Float64 | None,
               on_note: Callable[[str], None]) -> Trajectory:
    trajectory = Trajectory(np.asarray(poses.stamps, np.int64), poses.matrices, f'{topic.name} ({topic.type}), {poses.frames}')
    if camera_in_body is not None:
        return trajectory.of_camera(camera_in_body, _MOVED)
    if not poses.child:
        body = _body_of(bag.frame_id, _static_edges(bag, lambda line: None))
        return trajectory.of_camera(None, _AS_IT_IS + f'; if they are of {body}: --truth-child-frame {body}' * bool(body))
    edges, fixed_by = _static_edges(bag, on_note), STATIC
    frame, in_body = _placed(bag.frame_id, poses.child, edges)
    if in_body is None:  # ROS 1 publishes mountings again and again
        others = [other for other in bag.topics if other.type == TF and not other.name.endswith(STATIC)]
        edges += [edge for other in others for edge in read_poses(bag, other, lambda line: None) if edge.stays]
        (frame, in_body), fixed_by = _placed(bag.frame_id, poses.child, edges), 'the transforms that stay'
    if poses.child == bag.frame_id == frame:
        return trajectory.of_camera(None, "the camera's own")
    if frame != bag.frame_id:
        on_note(f'the frame_id of the images, {bag.frame_id}, has x forward by {fixed_by}: they are taken as those of {frame}, the '
                'optical frame below it. Let the driver write that')
    if in_body is None:
        raise BagError(f'its poses are of {poses.child}, and no {STATIC} joins that to {frame!r}, the frame of the images: '
                       'say where the camera is in it (--camera-in-body)')
    first = [Poses(edge.parent, edge.child, edge.stamps[:1], edge.rows[:1]) for edge in reversed(edges)]
    other = static_transform(first, poses.child, frame)
    if other is not None and np.abs(other - in_body).max() > _SAME:
        raise BagError(f'{fixed_by} have several poses of {frame} in {poses.child}, as {other[:3].round(3).tolist()} and '
                       f'{in_body[:3].round(3).tolist()}: say where the camera is in it (--camera-in-body)')
    return trajectory.of_camera(in_body, f'moved into {frame} by {fixed_by}')


def _placed(camera: str, body: str, edges: list[Poses]) -> tuple[str, Float64 | None]:
    """The optical frame of images with the frame_id `camera`, and its pose in the body; None where no edges join them."""
    frame = optical_frame(camera, ((edge.parent, edge.child, edge.matrices[-1]) for edge in edges))
    return frame, static_transform(edges, body, frame)


def _body_of(frame: str, edges: list[Poses]) -> str:
    """The frame at the root of `edges` that lead to `frame`; empty where none does."""
    parents, root = {edge.child: edge.parent for edge in edges}, frame
    while root in parents:
        root = parents.pop(root)
    return root if root != frame else ''


def _static_edges(bag: BagRecording, on_note: Callable[[str], None]) -> list[Poses]:
    """The transforms on static topics; if some are in a namespace of the images, as of one of several robots, on these."""
    topics = [topic for topic in bag.topics if topic.type == TF and topic.name.endswith(STATIC)]
    topics = [topic for topic in topics if bag.image_topic.startswith(topic.name.removesuffix(STATIC) + '/')] or topics
    return [edge for topic in topics for edge in read_poses(bag, topic, on_note)]


def _that_carry(bag: BagRecording, tracks: list[Poses], on_note: Callable[[str], None]) -> list[Poses]:
    """Of several, the only one that carries the camera, without wheels and arms; all where there is none, or its parent moves."""
    if len(tracks) < 2:
        return tracks
    moving = [track for track in tracks if track.moves]
    static = [*_static_edges(bag, on_note), *(track for track in tracks if track.stays)]
    carrying = [track for track in moving if static_transform(static, track.child, bag.frame_id) is not None]
    if len(carrying) != 1 or any(track.child == carrying[0].parent for track in tracks):
        return tracks
    on_note(f'of the frames that move, {carrying[0]} carries the camera by {STATIC} or transforms that stay: it is taken')
    return carrying


def read_poses(bag: BagRecording, topic: Topic, on_note: Callable[[str], None]) -> list[Poses]:
    """The poses of a topic by (parent, child). `on_note` gets a line for those that are not finite or cannot be read."""
    tracks: dict[tuple[str, str], Poses] = {}
    bad, reason = 0, ''
    try:
        numbered = enumerate(bag.storage.messages(topic), 1)
        for number, (received, raw) in deque(numbered, 1) if topic.type == PATH else numbered:  # a path grows to its last one
            try:
                message = deserialize(raw, topic.type, f'{bag.path}, message {number} of {topic.name}')
            except BagError as error:
                bad, reason = bad + 1, reason or str(error)
                continue
            for header, child, position, q in _transforms(message, topic.type):
                row = [position.x, position.y, position.z, q.x, q.y, q.z, q.w]
                if not np.isfinite(row).all() or q.x**2 + q.y**2 + q.z**2 + q.w**2 < 1e-6:
                    bad, reason = bad + 1, reason or f'message {number} holds the pose {row}'
                    continue
                key = header.frame_id.strip('/'), child.strip('/')
                poses = tracks.setdefault(key, Poses(*key))
                poses.stamps.append(header.stamp.sec * 10**9 + header.stamp.nanosec)
                poses.received.append(received)
                poses.rows.append(row)
    except BagError as error:
        count = sum(len(poses.stamps) for poses in tracks.values())
        on_note(f'{topic.name} was read up to where the bag breaks off, {count} poses: {error}')
    for poses in tracks.values():
        if len(poses.stamps) > 1 and not any(poses.stamps) and topic.type != PATH and not topic.name.endswith(STATIC):
            poses.stamps = poses.received
            on_note(f'header.stamp of {poses} on {topic.name} is 0: the times at which they were recorded are taken')
    if bad:
        on_note(f'{bad} poses on {topic.name} are left out: {reason}')
    return list(tracks.values())


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
    if kind in (TF, PATH):
        for each in message.transforms if kind == TF else message.poses:
            yield from _transforms(each, _TRANSFORM if kind == TF else POSE_STAMPED)
    elif kind == _TRANSFORM:
        yield message.header, message.child_frame_id, message.transform.translation, message.transform.rotation
    else:
        pose = message.pose.pose if kind in _ODOMETRY else message.pose
        yield message.header, getattr(message, 'child_frame_id', ''), pose.position, pose.orientation
