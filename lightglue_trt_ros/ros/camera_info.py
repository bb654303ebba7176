"""CameraInfo of a camera or a stereo pair: the newest usable one; the log says why one cannot be used."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import CameraInfo

from ..core.cameras import Intrinsics, StereoRig, camera_info_places, intrinsics_of, same_frame, without_transport
from ..core.geometry import Size
from ..utils.errors import BagError
from .fading_log import FadingLog
from .qos import OVERRIDABLE, latched, newest

INFO_OF = {'image': 'camera_info', 'depth': 'depth_camera_info'}  # topics to remap, by that of the images
STAMP_ENDS = 12  # bytes of encapsulation and stamp, with which a serialised message with a header begins
RIGHT = 'right'  # name of the right camera: its topics are right/image and right/camera_info
FRAMES = 8  # of one topic: more values of frame_id are not kept
MISSING_S = 5.0  # of images without a CameraInfo, before a line says that none comes
KIND, LOOK_S = 'sensor_msgs/msg/CameraInfo', 1.0
LINES, IN_S = 5, 10.0  # lines of one listener about changes, at most in this time: a driver may send another with every image
LONGEST_S = 600.0  # of such a time, which grows while that goes on


def camera_topic(camera: str, topic: str) -> str:
    """A topic of one of several cameras: front/image, ~/front/matches. A single camera, '', keeps the topic as it is."""
    if not camera:
        return topic
    return f'~/{camera}/{topic[2:]}' if topic.startswith('~/') else f'{camera}/{topic}'


class _Heard(NamedTuple):
    """A CameraInfo, the number of its topic, of which the first counts most, and the name."""

    info: CameraInfo
    values: bytes  # all but the stamp: drivers repeat the same message with each image
    number: int
    topic: str


class CameraListener:
    """Listens next to the image topic, as image_transport does, and below it, or where `camera_info` is remapped to.

    Of rectified images, camera_info_rect counts before camera_info. The newest CameraInfo of the images' frame_id counts, and stays
    when no more come, or only those that are nearly as it. One that cannot be used is none.
    """

    def __init__(self, node: Node, needed_by: Sequence[str] = (), camera: str = '', image: str = 'image',
                 but: CameraListener | None = None) -> None:
        """`needed_by` names what waits for a CameraInfo, the subject of log lines; `camera` is empty for a single one.

        `image` is the topic of its images, image or depth; the topics of `but` are left out.
        """
        self._node = node
        self._waiting = f'{" and ".join(needed_by)} {"wait" if len(needed_by) > 1 else "waits"}' if needed_by else ''
        self._image_name, self._info_name = camera_topic(camera, image), camera_topic(camera, INFO_OF[image])  # to remap
        self._image_topic = node.resolve_topic_name(self._image_name)
        remapped, plain = (node.resolve_topic_name(self._info_name, only_expand=only) for only in (False, True))
        topics = (remapped,) if remapped != plain else camera_info_places(self._image_topic)
        shared = {each.topic_name for each in but._subscriptions} if but else ()
        topics = tuple(each for each in topics if each not in shared)
        self._subscriptions: list[Any] = [self._listen(topic, number, newest(), qos_overriding_options=OVERRIDABLE)
                                          for number, topic in enumerate(topics)]
        named = self._subscriptions[:max(1, len(topics) - 1)]  # without the one below the images
        self.topic = ' or '.join(each.topic_name for each in named)
        self._infos: dict[str, _Heard] = {}  # newest of each frame_id, the newest of all last; replaced, never changed
        self._read: tuple[_Heard, Size | None, Intrinsics | None, str] | None = None  # what `_converted` gives for the first two
        self._camera: Intrinsics | None = None  # the last one: the same object as long as its values are the same
        self._missing_since = math.inf  # monotonic seconds
        self._looked, self._elsewhere, self._is_latched = -math.inf, '', False  # of `_look`: time, other topics in words
        self._state: Intrinsics | str | None = None  # the calibration, or the reason for none
        self._logged: Intrinsics | str | None = None  # that of the last line
        self._changed, self._lines_in_s = -math.inf, IN_S  # time of the last change; least time of LINES lines
        self._line_times, self._problems = deque[float](maxlen=LINES), FadingLog(pause_s=0.0)
        self._changes = deque[bytes](maxlen=LINES)  # values of CameraInfo at the last changes: all alike where images change size
        self.problem = ''  # why there is none, of use to somebody; empty: there is one, or nobody needs it
        self.description = f'none: no CameraInfo on {self.topic}'  # of the camera, or why there is none, for diagnostics

    def close(self) -> None:
        for each in self._subscriptions:
            self._node.destroy_subscription(each)

    @property
    def size(self) -> Size | None:
        """Size (height, width) that the newest CameraInfo names, if any came."""
        newest = next(reversed(self._infos.values()), None)
        return None if newest is None else (int(newest.info.height), int(newest.info.width))

    def newest(self, size: Size) -> Intrinsics | None:
        """The camera of the newest CameraInfo of any frame_id for images of `size`, if any came; None where that is refused."""
        return self.calibration(size) if self._infos else None

    def calibration(self, size: Size | None, frame_id: str = '', needed: bool = True) -> Intrinsics | None:
        """The camera of images of `size` (height, width) and of `frame_id`, if these are known; None while there is none.

        The reason is logged; that none came yet, only where the camera is `needed` now. Always called by the same thread.
        """
        infos = self._infos
        if not infos:
            self._missing_since = min(self._missing_since, time.monotonic())
            self._look()
            where = f'CameraInfo on {self.topic}{self._elsewhere}'
            self.description = f'none: no {where}'
            self.problem = f'{self._waiting} for a {where}' if self._waiting else ''
            if self._waiting and needed:
                self._problems.warn(self._node.get_logger(), self.problem)
            elif not self._waiting and time.monotonic() - self._missing_since > MISSING_S and self._is_due(where):
                self._node.get_logger().info(f'no {where}: matching goes on without the lens, see "Calibration" in '
                                             'docs/camera-setups.md')
            return None
        # of that frame_id, or one that can be of it; without one any message counts
        heard = infos.get(frame_id) or next((each for name, each in reversed(infos.items()) if same_frame(name, frame_id)), None)
        topic = self.topic if heard is None else heard.topic
        if heard is None:
            camera, words = None, (f'is of frame_id {" and ".join(map(repr, infos))}, the images are of {frame_id!r}: remap '
                                   f'{self._info_name} to the topic of this camera, or give both one frame_id')
        else:
            if self._read is None or self._read[0] is not heard or self._read[1] != size:
                self._read = heard, size, *self._converted(heard, size)
            camera, words = self._read[2:]
        if camera is None:
            self.description = f'none: CameraInfo on {topic} {words}'
            self.problem = f'{self._waiting or "matching goes on without the lens"}: CameraInfo on {topic} {words}'
            if self._is_due(self.problem, heard) | self._problems.due(self.problem):  # both: one remembers that it was given
                self._node.get_logger().warning(self.problem)
        else:
            self.problem, self.description = '', f'CameraInfo on {topic}, {words}'
            if self._is_due(camera, heard):
                self._node.get_logger().info(f'CameraInfo on {topic} is used from now on: {words}')
        return camera

    def _converted(self, heard: _Heard, size: Size | None) -> tuple[Intrinsics | None, str]:
        """The camera that a message describes with its description, or None with why."""
        try:
            camera = intrinsics_of(heard.info, self._image_topic, size, heard.topic)
            _ = camera.lens
        except BagError as error:
            return None, f'is refused: {error}'
        if size is not None and (camera.height, camera.width) != size:
            # Nothing is scaled: a resized image and a cropped one have the same size and different intrinsics.
            return None, (f'is for {camera.width}x{camera.height} pixels, the images have {size[1]}x{size[0]}; publish the '
                          'calibration of these images')
        self._camera = self._camera if self._camera and self._camera.nearly(camera) else camera
        return self._camera, '; '.join(filter(None, (str(self._camera), self._camera.fold)))

    def _on_info(self, data: bytes, number: int) -> None:
        values, topic = data[STAMP_ENDS:], self._subscriptions[number].topic_name
        known = (each for each in reversed(self._infos.values()) if (each.values, each.number) == (values, number))
        heard = next(known, None) or _Heard(deserialize_message(data, CameraInfo), values, number, topic)
        frame_id = heard.info.header.frame_id
        before = self._infos.get(frame_id)
        if before is None or number <= before.number:
            others = [each for each in self._infos.items() if each[0] != frame_id]
            self._infos = dict([*others[1 - FRAMES:], (frame_id, heard)])

    def _listen(self, topic: str, number: int, qos: QoSProfile, **options: Any) -> Any:
        return self._node.create_subscription(CameraInfo, topic, lambda data: self._on_info(data, number), qos, raw=True, **options)

    def _look(self) -> None:
        """Listen to publishers that sent it once and keep it, and name the topics of others; once a second."""
        if time.monotonic() - max(self._looked, self._missing_since) < LOOK_S:
            return
        self._looked, node = time.monotonic(), self._node
        own = {without_transport(each.topic_name) for each in node.subscriptions}
        if not self._is_latched:
            kept = [(number, each.topic_name) for number, each in enumerate(self._subscriptions)
                    if any(info.qos_profile.durability == DurabilityPolicy.TRANSIENT_LOCAL
                           for info in node.get_publishers_info_by_topic(each.topic_name))]
            self._subscriptions += [self._listen(topic, number, latched()) for number, topic in kept]
            self._is_latched = bool(kept)
        found = ', '.join(name for name, types in node.get_topic_names_and_types()
                          if KIND in types and name not in own and node.count_publishers(name))
        remap = (f'{self._info_name}:={"TOPIC" if "," in found else found} if it is of these images'
                 if without_transport(self._image_topic) in own else f'{self._image_name}:=TOPIC, the topic of the images')
        self._elsewhere = found and f'; there is one on {found}: start this node with --ros-args -r {remap}'

    def _is_due(self, state: Intrinsics | str, heard: _Heard | None = None) -> bool:
        """Whether to log a state, of `heard`: once, when it begins; of those that follow each other quickly fewer, and the last."""
        now, times = time.monotonic(), self._line_times
        if state != self._state:
            self._state, self._changed = state, now
            self._changes.append(b'' if heard is None else heard.values)
        if now - self._changed >= IN_S:
            times.clear()
            self._lines_in_s = IN_S
        is_full = len(times) == LINES
        if state == self._logged or (is_full and now - times[0] < self._lines_in_s):  # cameras are equal if they are the same
            return False
        self._lines_in_s = min(6 * self._lines_in_s, LONGEST_S) if is_full else self._lines_in_s
        self._logged = state
        times.append(now)
        return True

    @property
    def restless(self) -> str:
        """That the calibration changes again and again, for people; empty: it does not."""
        if len({*self._changes}) < 2 or len(self._line_times) < LINES or time.monotonic() - self._changed >= IN_S:
            return ''
        count = sum(map(self._node.count_publishers, {each.topic_name for each in self._subscriptions}))
        remedy = f'{count} publishers send it: stop all but that of this camera' if count > 1 else 'fix focus, zoom and image size'
        return f'CameraInfo on {self.topic} changes again and again: {remedy}'


class RigListener:
    """The stereo rig of both CameraInfos; the log says why there is none."""

    def __init__(self, node: Node, needed_by: str, left: CameraListener) -> None:
        """`needed_by` is what needs the cameras: the subject of log lines. `left` stays its owner's."""
        self._node, self._needed_by, self.left = node, needed_by, left
        self._right = CameraListener(node, (needed_by,), RIGHT)
        self._cameras: tuple[Intrinsics, Intrinsics] | None = None  # of `_rig`
        self._rig: StereoRig | None = None
        self._refused, self._problems = '', FadingLog(pause_s=0.0)  # why there is no rig

    @property
    def size(self) -> Size | None:
        """Size (height, width) that the newest CameraInfo of the right camera names, if any came."""
        return self._right.size

    def close(self) -> None:
        self._right.close()

    def calibration(self, size: Size | None, frame_id: str = '') -> StereoRig | None:
        """The rig for images of `size` (height, width), left ones of `frame_id`, if known; None while there is none."""
        left, right = self.left.calibration(size, frame_id), self._right.calibration(size)
        if left is None or right is None:
            return None
        if self._cameras != (left, right):
            self._cameras = left, right
            try:
                self._rig, self._refused = StereoRig(left, right), ''
            except BagError as error:
                self._rig, self._refused = None, str(error)
        if self._refused:
            self._problems.warn(self._node.get_logger(), f'{self._needed_by} waits: {self._refused}')
        return self._rig

    @property
    def problem(self) -> str:
        """Why there is no rig; empty: there is one."""
        return self.left.problem or self._right.problem or self._refused
