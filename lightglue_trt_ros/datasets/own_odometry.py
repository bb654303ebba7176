"""Poses in a recording that this package computed from the images: they are no ground truth."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from typing import Any

import numpy as np

from ..core.images import stamp_of
from ..core.types import Float64
from ..utils.errors import BagError
from .bag_readers import unpacked
from .bag_recording import BagRecording
from .bag_storage import deserialize
from .poses import Poses, are_on_grid, poses_from
from .sequence import Topic

ODOMETRY, PATH, CLOUD = 'nav_msgs/msg/Odometry', 'nav_msgs/msg/Path', 'sensor_msgs/msg/PointCloud2'
TF = 'tf2_msgs/msg/TFMessage'
OF_MATCHES = {'u', 'v', 'u_ref', 'v_ref', 'track_id'}  # fields of ~/matches that no other cloud has
JUDGED = 30  # poses, from the first on
UPRIGHT = np.array([[0.0, 0, 1, 0], [-1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 0, 1]])  # where the odometry node begins
LOST = 0.1  # of the images of these poses, by the recorder
NEAR_M, NEAR_COS = 1.0, 0.98  # of that, for the first pose that was recorded
USUAL_NAME, USUAL_FRAME = '/odometry/odometry', 'odom'  # REP 105: poses in `odom` drift, so they are estimates


class Origin(Enum):
    """Who computed poses."""

    OWN = 'this package'
    IMAGES = 'perhaps an odometry, from the images: they have the stamps, and covariances or a frame of estimates'
    OTHER = 'anything else'


class OwnOdometry:
    """Recognises the poses of the odometry node, and others that have the stamps of images to the nanosecond.

    The node writes numbers of a grid that no other source has. Former versions did not.
    """

    def __init__(self, bag: BagRecording) -> None:
        self._bag, self._found = bag, dict[str, Origin]()

    def publishes(self, topic: Topic) -> bool:
        """Whether a topic of Odometry is that node's."""
        return self.origin(topic) is Origin.OWN

    def origin(self, topic: Topic) -> Origin:
        """Of a topic of Odometry; OTHER for other types."""
        if topic.name not in self._found:
            self._found[topic.name] = self._origin(topic) if topic.type == ODOMETRY else Origin.OTHER
        return self._found[topic.name]

    def _origin(self, topic: Topic) -> Origin:
        messages = list(self._first(topic))
        if messages and are_on_grid([_row(message.pose.pose) for message in messages]):
            return Origin.OWN
        if not messages or not self._are_of_images([_stamp(message.header) for message in messages], topic):
            return Origin.OTHER
        if self._is_of_former_version(topic, messages):
            return Origin.OWN
        return Origin.IMAGES if all(np.all(message.pose.covariance) for message in messages) else Origin.OTHER

    def _is_of_former_version(self, topic: Topic, messages: list[Any]) -> bool:
        """By its usual name with full covariances; or as poses of the camera, by its path, its begin, or its velocities.

        These never rotate.
        """
        if topic.name.endswith(USUAL_NAME) and all(
                np.all(each.covariance) for message in messages for each in (message.pose, message.twist)):
            return True
        if messages[0].child_frame_id != self._bag.frame_id:
            return False
        place = topic.name[:topic.name.rfind('/') + 1]
        if any(other.type == PATH and other.name == f'{place}path' for other in self._bag.topics):
            return True
        first = np.array([_row(messages[0].pose.pose)])
        with suppress(BagError):  # of a quaternion that is none
            if _begins(poses_from(first[:, :3], first[:, 3:])[0]):
                return True
        twists = [message.twist.twist for message in messages]
        linear, angular = (np.array([[vector.x, vector.y, vector.z] for vector in vectors])
                           for vectors in ([each.linear for each in twists], [each.angular for each in twists]))
        return bool(linear.any() and not angular.any())

    def origin_of(self, track: Poses, topic: Topic) -> Origin:
        """Of the poses of one frame, which `topic` has."""
        if topic.type != TF:
            return self.origin(topic)
        if are_on_grid(track.rows[:JUDGED]):
            return Origin.OWN
        for other in self._bag.topics:
            if other.count and self.publishes(other):
                message = next(self._first(other))
                if (message.header.frame_id.strip('/'), message.child_frame_id.strip('/')) == (track.parent, track.child):
                    return Origin.OWN
        if track.stays:  # a mounting, which some publish with the stamps of images
            return Origin.OTHER
        stamps, first, of_camera = track.stamps[:JUDGED], track.matrices[0], track.child == self._bag.frame_id
        if of_camera and _begins(first) and self._are_of_images(stamps, topic):
            return Origin.OWN
        if not of_camera and _begins(first @ UPRIGHT) and self._are_of_images(stamps, topic, of_matches=True):
            return Origin.OWN  # of base_frame
        is_estimate = track.parent.rpartition('/')[2] == USUAL_FRAME
        return Origin.IMAGES if is_estimate and self._are_of_images(stamps, topic) else Origin.OTHER

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


def _row(pose: Any) -> list[float]:
    """Position and quaternion of a message, as in Poses.rows."""
    position, q = pose.position, pose.orientation
    return [position.x, position.y, position.z, q.x, q.y, q.z, q.w]


def _stamp(header: Any) -> int:
    return int(header.stamp.sec) * 10**9 + int(header.stamp.nanosec)
