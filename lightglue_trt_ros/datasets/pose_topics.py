"""Poses from the topics of a bag: which topic is the ground truth, and the camera's place in the frame that moves."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..core.cameras import same_frame
from ..core.types import Float64
from ..utils.errors import BagError
from .bag_recording import BagRecording
from .bag_storage import deserialize
from .own_odometry import PATH, TF, Origin, OwnOdometry
from .poses import AS_IT_IS, Poses, Trajectory, are_on_grid, are_positions, optical_frame
from .sequence import POSE_STAMPED, POSE_TOPIC, Topic

_ODOMETRY = ('nav_msgs/msg/Odometry', 'geometry_msgs/msg/PoseWithCovarianceStamped')
_TRANSFORM = 'geometry_msgs/msg/TransformStamped'
POSE_TYPES = (POSE_STAMPED, *_ODOMETRY, _TRANSFORM, TF)  # a Path is read where it is named: most are plans
STATIC = '/tf_static'
_POSITIONS = ('geometry_msgs/msg/PointStamped', 'sensor_msgs/msg/NavSatFix')  # without rotations
_NOT_READ = (PATH, 'geometry_msgs/msg/PoseArray', *_POSITIONS)
_AIMS = re.compile('goal|initial_?pose|setpoint|waypoint|desired', re.IGNORECASE)  # topics of where a robot is to be
_OF_GPS = re.compile('gps|gnss|rtk|navsat|prism|leica|total_?station', re.IGNORECASE)  # topics of what measures positions alone
_FUSE = 'has positions without rotations, and pose errors need both: give the Odometry of a fusion with an IMU (robot_localization)'
_SAME = 1e-2  # metres, and of the rotation matrix's entries: between mountings that several transforms give


def from_topics(bag: BagRecording, name: str | None, child_frame: str | None, camera_in_body: Float64 | None,
                on_note: Callable[[str], None]) -> Trajectory | None:
    """The poses of the topic `name`, else of the only one that may be a ground truth; None where there is not one such topic.

    The other arguments are those of `load_ground_truth`. Raises BagError where a topic is named, and has no such poses.
    """
    return _PoseTopics(bag, name, child_frame, on_note).trajectory(camera_in_body)


class _PoseTopics:
    """The topics of poses in a bag, and which of them is the ground truth."""

    def __init__(self, bag: BagRecording, name: str | None, child_frame: str | None, on_note: Callable[[str], None]) -> None:
        self._bag, self._name, self._child_frame, self._on_note = bag, name, child_frame, on_note
        self._kinds = POSE_TYPES if name is None else (*POSE_TYPES, PATH)
        self._topics = [topic for topic in bag.topics if topic.type in self._kinds and not topic.name.endswith(STATIC)]
        self._listing = '; '.join(map(str, self._topics)) or 'none'
        self._own_odometry = OwnOdometry(bag)
        self._tracks: dict[str, list[Poses]] = {}  # of TF that were measured, by topic

    def trajectory(self, camera_in_body: Float64 | None) -> Trajectory | None:
        computed = [topic for topic in self._topics if self._name in (None, topic.name) and self._own_odometry.publishes(topic)]
        for each in computed:
            self._on_note(_computed(each.name, None if self._name is not None else '--truth-topic'))
        topic = self._automatic(computed) if self._name is None else self._named(self._name)
        if topic is None:
            return None
        try:
            poses = self._poses(topic)
            if self._is_refused(poses, topic):
                return None
            truth = _of_camera(self._bag, poses, topic, camera_in_body, self._on_note)
            if self._name is None and self._own_odometry.origin_of(poses, topic) is Origin.IMAGES:
                self._on_note(f'{poses} of {topic.name} have the stamps of the images: if an odometry computed them from these, '
                              'figures compare two estimates')
            return truth
        except BagError as error:
            if self._name is not None:
                raise
            self._on_note(f'no ground truth is taken from {topic.name}: {error}')
            return None

    def _automatic(self, computed: list[Topic]) -> Topic | None:
        """The only topic of poses that are neither goals nor `computed` by this package; None of several, or of none."""
        aims = [topic for topic in self._topics if _AIMS.search(topic.name)]
        if several := [topic for topic in aims if topic.count > 1]:
            self._on_note(f'{"; ".join(map(str, several))}: by the name where a robot is to be, and no ground truth; name it if it '
                          'is one (--truth-topic)')
        topics = [topic for topic in self._topics if topic not in computed and topic not in aims]
        own = [topic for topic in topics if (topic.name, topic.type) == (POSE_TOPIC, POSE_STAMPED) and topic.count]
        chosen = own or [topic for topic in topics if topic.count > 1]
        for topic in chosen:
            if topic.type == TF and self._child_frame is None:
                self._tracks[topic.name] = self._measured(topic, read_poses(self._bag, topic, self._on_note))
        chosen = [topic for topic in chosen if self._tracks.get(topic.name) != []]
        if len(chosen) > 1:
            self._on_note(f'{self._bag.path} has {len(chosen)} topics of poses, none is taken as ground truth: name one '
                          f'(--truth-topic). {self._listing}')
        others = [topic for topic in self._bag.topics if topic.type in _NOT_READ and topic.count]
        if others and not topics and not computed:
            self._on_note(f'{"; ".join(map(str, others))}: not read as ground truth; poses are read from {", ".join(POSE_TYPES)}, '
                          'from a Path that is named (--truth-topic), or from a file (--truth)'
                          + next((f'. {topic.name} {_FUSE}' for topic in others if topic.type in _POSITIONS), ''))
        return chosen[0] if len(chosen) == 1 else None

    def _named(self, name: str) -> Topic:
        found = [topic for topic in self._topics if topic.name == name]
        if not found:
            form = ', '.join(kind.rpartition('/')[2] for kind in self._kinds)
            other = next((f', but {topic.type}: ' + (f'it {_FUSE}' if topic.type in _POSITIONS else
                                                    f'write its poses into a file (--truth), or name a topic of {form}')
                          for topic in self._bag.topics if topic.name == name), '')
            raise BagError(f'{self._bag.path} has no poses on {name}{other}. Topics of poses: {self._listing}')
        return found[0]

    def _poses(self, topic: Topic) -> Poses:
        """Of the frame that moves. Raises BagError."""
        tracks = self._tracks[topic.name] if topic.name in self._tracks else read_poses(self._bag, topic, self._on_note)
        if topic.type == PATH and any(are_on_grid(track.rows) for track in tracks):
            self._on_note(_computed(topic.name, None))
        if self._name is not None and topic.type == TF and self._child_frame is None:
            tracks = self._measured(topic, tracks)
        chosen = tracks if self._child_frame is not None else _that_carry(self._bag, tracks, self._on_note)
        poses = _moving(chosen, topic, self._child_frame)
        if carrier := next((track for track in tracks if track.child == poses.parent and track.moves), None):
            self._on_note(f'{carrier} moves itself: {poses} are not poses in {carrier.parent}. That is right where a map is '
                          f'corrected so; else write the poses of {poses.child} in {carrier.parent} into a file (--truth)')
        return poses

    def _measured(self, topic: Topic, tracks: list[Poses]) -> list[Poses]:
        """Those of a TF topic that this package's odometry does not move."""
        measured = []
        for track in tracks:
            if self._own_odometry.origin_of(track, topic) is Origin.OWN:
                self._on_note(_computed(f'{track} of {topic.name}',
                                        f'--truth-topic {topic.name} --truth-child-frame {track.child}'))
            else:
                measured.append(track)
        return measured

    def _is_refused(self, poses: Poses, topic: Topic) -> bool:
        """Whether poses that nobody named are no ground truth by themselves; a line says so, or what is to be doubted."""
        is_seen = bool(poses.parent and self._bag.frame_id) and not poses.child and same_frame(poses.parent, self._bag.frame_id)
        if are_positions(poses.rows):
            doubt = f'all rotations of {poses} are equal, as where only positions are measured, by GPS or a prism'
        elif is_seen:
            doubt = f'{poses} are in the frame of the images, as those of a tag that the camera sees'
        else:
            return False
        is_refused = self._name is None and (is_seen or _OF_GPS.search(topic.name) is not None)
        self._on_note(f'{topic.name}: {doubt}: ' + (
            'it is no ground truth unless you name it (--truth-topic)' if is_refused else
            'figures need both' if not is_seen else 'they are taken as the poses of the camera in the world'))
        return is_refused


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
        return trajectory.of_camera(camera_in_body)
    if not poses.child:
        body = _body_of(bag.frame_id, _static_edges(bag, lambda line: None))
        return trajectory.of_camera(None, AS_IT_IS + f'; if they are of {body}: --truth-child-frame {body}' * bool(body))
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
