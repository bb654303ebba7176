"""Poses in a recording that this package computed from the images: they are no ground truth."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from ..core.images import stamp_of
from ..core.types import Float64
from ..utils.errors import BagError
from .bag import BagRecording
from .bag_readers import unpacked
from .bag_storage import deserialize
from .poses import poses_from
from .sequence import Topic

ODOMETRY, PATH, CLOUD = 'nav_msgs/msg/Odometry', 'nav_msgs/msg/Path', 'sensor_msgs/msg/PointCloud2'
OF_MATCHES = {'u', 'v', 'u_ref', 'v_ref', 'track_id'}  # fields of ~/matches that no other cloud has
JUDGED = 30  # poses, from the first on
UPRIGHT = poses_from(np.zeros((1, 3)), np.array([[-0.5, 0.5, -0.5, 0.5]]))[0]  # where the odometry node begins, up to sign
LOST = 0.1  # of the images of these poses, by the recorder
NEAR_M, NEAR_COS = 1.0, 0.98  # of that, for the first pose that was recorded


class OwnOdometry:
    """Recognises the poses of the odometry node: each has the stamp of an image to the nanosecond."""

    def __init__(self, bag: BagRecording) -> None:
        self._bag, self._found = bag, dict[str, bool]()

    def publishes(self, topic: Topic) -> bool:
        """Whether a topic of Odometry is that node's: with its path next to it, its first pose, or its covariances.

        Those of pose and twist are full. Former versions wrote none, and velocities that never rotate.
        """
        if topic.name not in self._found:
            self._found[topic.name] = topic.type == ODOMETRY and self._is_own(topic)
        return self._found[topic.name]

    def _is_own(self, topic: Topic) -> bool:
        messages = list(self._first(topic))
        if not messages or not self._are_of_images([_stamp(message.header) for message in messages], topic):
            return False
        place = topic.name[:topic.name.rfind('/') + 1]
        if any(other.type == PATH and other.name == f'{place}path' for other in self._bag.topics):
            return True
        if all(np.all(each.covariance) for message in messages for each in (message.pose, message.twist)):
            return True  # wheels, filters and simulators leave out some, and have other stamps
        first = messages[0].pose.pose
        position, attitude = ([[getattr(vector, axis) for axis in axes]] for vector, axes in (
            (first.position, 'xyz'), (first.orientation, 'xyzw')))
        with suppress(BagError):  # of a quaternion that is none
            if messages[0].child_frame_id == self._bag.frame_id and _begins(poses_from(position, attitude)[0]):
                return True
        twists = [message.twist.twist for message in messages]
        linear, angular = (np.array([[vector.x, vector.y, vector.z] for vector in vectors])
                           for vectors in ([each.linear for each in twists], [each.angular for each in twists]))
        return bool(linear.any() and not angular.any())

    def moves(self, topic: Topic, parent: str, child: str, stamps: list[int], first: Float64) -> bool:
        """Whether a frame of a TF topic is moved by that node; `first` (4, 4) is its first pose."""
        for other in self._bag.topics:
            if other.count and self.publishes(other):
                message = next(self._first(other))
                if (message.header.frame_id.strip('/'), message.child_frame_id.strip('/')) == (parent, child):
                    return True
        if child == self._bag.frame_id:
            return _begins(first) and self._are_of_images(stamps[:JUDGED], topic)
        return _begins(first @ UPRIGHT) and self._are_of_images(stamps[:JUDGED], topic, of_matches=True)  # of base_frame

    def _are_of_images(self, stamps: list[int], topic: Topic, of_matches: bool = False) -> bool:
        """Whether nearly all stamps are those of images, or of clouds of matches (of these alone), of one topic."""
        images = () if of_matches else self._bag.image_topics
        for other in (*images, *(each for each in self._bag.topics if each.type == CLOUD)):
            if not other.count or other.encoding != 'cdr' or (other.type == CLOUD and not self._holds_matches(other)):
                continue
            waiting, last = set(stamps), max(stamps)
            with suppress(BagError):
                for _, raw in self._bag.storage.messages(other):
                    stamp = stamp_of(unpacked(raw, other.name), other.name)
                    waiting.discard(stamp)
                    if len(waiting) <= LOST * len(stamps):
                        return True
                    if stamp > last:
                        break
        return False

    def _holds_matches(self, topic: Topic) -> bool:
        first = next(self._first(topic), None)
        return first is not None and {field.name for field in first.fields} >= OF_MATCHES

    def _first(self, topic: Topic) -> Iterator[Any]:
        """The first messages of a topic that can be read."""
        with suppress(BagError):
            for _, raw in itertools.islice(self._bag.storage.messages(topic), JUDGED):
                with suppress(BagError):
                    yield deserialize(raw, topic.type, topic.name)


def _begins(pose: Float64) -> bool:
    """Whether the odometry node begins at such a pose (4, 4)."""
    return bool(np.linalg.norm(pose[:3, 3]) < NEAR_M and (np.trace(UPRIGHT[:3, :3].T @ pose[:3, :3]) - 1) / 2 > NEAR_COS)


def _stamp(header: Any) -> int:
    return int(header.stamp.sec) * 10**9 + int(header.stamp.nanosec)
