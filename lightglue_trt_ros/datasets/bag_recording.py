"""rosbag2 (sqlite3 or mcap, compressed or not), read without ROS: the images of one topic, their calibration, and other topics."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property, partial
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from ..core.cameras import (
    Intrinsics,
    camera_info_places,
    camera_info_topics,
    intrinsics_of,
    is_rectified,
    same_frame,
    same_view,
    without_transport,
)
from ..core.geometry import Size, size_of
from ..core.images import gray_of, stamp_of
from ..utils.errors import BagError, FrameError, naming
from .bag_readers import unpacked
from .bag_storage import Storage, deserialize
from .bag_topics import ImageTopics, load_image, stamped
from .calibration_choices import doubt_of_size
from .calibration_lens import doubt_of_lens
from .sequence import CAMERA_INFO, COMPRESSED_IMAGE, IMAGE, Frame, Recording, Topic, holds_depth, readable_frames

PACKETS = ('/Packet', '/FFMPEGPacket', '/CompressedVideo')  # types of videos
_NO_DEPTH = re.compile(r'disparity|label|segment|confidence', re.IGNORECASE)  # names of topics whose 16 bits are others
_UNDISTORTED = re.compile(r'(^|[/_])undist(ort(ed)?)?([/_]|$)', re.IGNORECASE)  # in names of topics
LISTED = 12  # topics in a message: a robot has hundreds
FIRST_IMAGES = 50  # in which one that has a stamp is looked for
STAMP_ENDS = 12  # bytes of encapsulation and stamp, with which a serialised message with a header begins


class _Calibration(NamedTuple):
    """What the CameraInfo of a bag says about one camera."""

    message: bytes | None = None  # serialised
    camera: Intrinsics | None = None
    note: str = ''  # for people: why there is no message, or a doubt
    refusal: BagError | None = None  # why no message can be used


class BagRecording(Recording):
    """One image topic of a rosbag2. Every pass opens the bag anew, so passes may run side by side."""

    def __init__(self, storage: Storage, image_topic: str | None = None, camera: str = '') -> None:
        self.path, self._camera, self.storage, self.topics = storage.path, camera, storage, storage.topics
        self._images, self._notes = ImageTopics(storage), list[str]()
        self._topic = self._choose(image_topic)
        self.image_topic = self._topic.name

    def __len__(self) -> int:
        return self._topic.count

    def frames(self, on_bad: Callable[[int, BagError], None] | None = None) -> Iterator[Frame]:
        """As in Recording. Raises BagError when the bag ends early, after its last readable frame."""
        count = 0
        for received, raw in self.storage.messages(self._topic):
            where, number, count = f'{self.path}, message {count + 1} of {self._topic.name}', count, count + 1
            try:
                raw = unpacked(raw, where)
                stamp = stamp_of(raw, where)
                if not (stamp or self._lacks_stamps) and (number or self._unstamped > 1):
                    raise BagError(f'{where} has header.stamp 0, and others have a time: see why the driver did not stamp it')
            except BagError as error:
                if on_bad is None:
                    raise
                on_bad(number, error)
                continue
            if self._lacks_stamps:
                raw, stamp = stamped(raw, received), received
            yield Frame(stamp, received, partial(load_image, raw, self._topic.type, where),
                        None if self._is_zstd else raw, number)
        if count < len(self):
            raise BagError(f'{self.path} ends after {count} of the {len(self)} messages that it promises on {self._topic.name}: '
                           f'{self.storage.loss}')

    @property
    def notes(self) -> tuple[str, ...]:
        unstamped = (f'header.stamp of the images on {self.image_topic} is 0: the times at which they were recorded are taken. '
                     'Let the driver stamp each image with the time of its exposure',)
        return (*self.storage.notes, *self._notes, *(unstamped if self._lacks_stamps else ()))

    @property
    def _lacks_stamps(self) -> bool:
        """Whether the driver left the stamps of all the first images at 0; a simulation may begin there."""
        return self._unstamped > 1 and self._unstamped == min(len(self), FIRST_IMAGES)

    @cached_property
    def _unstamped(self) -> int:
        """How many images have the stamp 0 before the first of another one."""
        count = 0
        with suppress(BagError):
            for _, raw in itertools.islice(self.storage.messages(self._topic), FIRST_IMAGES):
                if stamp_of(unpacked(raw, self.image_topic), self.image_topic):
                    break
                count += 1
        return count

    @property
    def compressed(self) -> bool:
        return self._topic.type == COMPRESSED_IMAGE and not self._is_zstd

    @cached_property
    def _is_zstd(self) -> bool:
        """Whether these are images of zstd_image_transport, which load as Image."""
        return self._topic.type == COMPRESSED_IMAGE and hasattr(self._images.first(self._topic), 'encoding')

    @property
    def camera_info(self) -> bytes | None:
        return self._calibration.message

    @property
    def intrinsics(self) -> Intrinsics | None:
        """By the first usable CameraInfo of these images, of their size if there is one: K and D; of rectified images its P."""
        if self._calibration.refusal is not None:
            raise self._calibration.refusal
        return self._calibration.camera

    @property
    def calibration_note(self) -> str:
        return self._calibration.note

    def calibration_change(self, most: int | None = None) -> str:
        used, (topic, _), others = self.intrinsics, self._info_topic(), list[str]()
        if used is None or topic is None:
            return ''
        with suppress(BagError):  # where the bag breaks off
            for number, _, info in self._infos(topic, [], most):
                if not same_frame(info.header.frame_id, self.frame_id):
                    continue
                with suppress(BagError):
                    camera = intrinsics_of(info, self.image_topic, self._size)
                    if not same_view(used, camera):
                        others.append(f'message {number}: {camera.width}x{camera.height} pixels, fx {camera.k[0, 0]:.1f}, cx '
                                      f'{camera.k[0, 2]:.1f}, D {camera.d.tolist()}')
        return '' if not others else (
            f'CameraInfo on {topic.name} changes, and {used.width}x{used.height} pixels, fx {used.k[0, 0]:.1f}, cx '
            f'{used.k[0, 2]:.1f} are used for all images; others: {len(others)}, the first is {others[0]}. Record each setting of '
            'the camera on its own')

    @cached_property
    def _calibration(self) -> _Calibration:
        topic, note = self._info_topic()
        if topic is None:
            return _Calibration(note=note)
        first, errors, notes = None, list[BagError](), list[str]()
        if not self._is_own(topic) and sum(each.type == CAMERA_INFO and each.count > 0 for each in self.topics) > 1:
            notes.append(f'CameraInfo on {topic.name} is the nearest above {self.image_topic}, and used')
        usable: _Calibration | None = None  # the first of another size
        try:
            for number, raw, info in self._infos(topic, errors):
                if first is None and not same_frame(info.header.frame_id, self.frame_id):
                    doubt = (f'CameraInfo on {topic.name} may be of another camera: its frame_id is {info.header.frame_id!r}, that '
                             f'of {self.image_topic} is {self.frame_id!r}')
                    if not self._is_own(topic):
                        return _Calibration(note=f'no intrinsics in the recording: {doubt}')
                    notes.append(f'{doubt}. It is used, since it is next to the images')
                first = first or raw
                try:
                    with naming(f'{self.path}, message {number} of {topic.name}'):
                        camera = intrinsics_of(info, self.image_topic, self._size, topic.name)
                except BagError as error:
                    errors.append(error)
                    continue
                found = _Calibration(raw, camera, '. '.join(notes))
                if self._size not in (None, (camera.height, camera.width)):
                    usable = usable or found
                    continue
                if errors or usable is not None:
                    reason = errors[0] if errors else 'those before are of another size than the images'
                    notes.append(f'message {number} of {topic.name} is the first usable CameraInfo: {reason}')
                if doubt := doubt_of_size(camera):
                    notes.append(f'K of {topic.name} is not of these images, {doubt}: give that of these (--camera)')
                if camera.d.any() and _UNDISTORTED.search(self.image_topic):
                    notes.append(f'{self.image_topic} is undistorted by its name, and D of {topic.name} is of raw images: give the '
                                 'calibration of these (--camera)')
                if doubt := doubt_of_lens(camera):
                    notes.append(f'{topic.name}: {doubt}')
                return found._replace(note='. '.join(notes))
        except BagError as error:  # the bag is damaged
            errors.append(error)
        return usable or _Calibration(first, note='. '.join(notes), refusal=errors[0] if errors else None)

    def _infos(self, topic: Topic, errors: list[BagError], most: int | None = None) -> Iterator[tuple[int, bytes, Any]]:
        """Number, data and message of each CameraInfo that is not as the one before: most drivers repeat it with each image.

        `errors` gets those of messages that cannot be read. Raises BagError where the bag breaks off.
        """
        before = None
        for number, (_, stored) in enumerate(itertools.islice(self.storage.messages(topic), most), 1):
            where = f'{self.path}, message {number} of {topic.name}'
            try:
                raw = unpacked(stored, where)
                if raw[STAMP_ENDS:] != before:
                    before = raw[STAMP_ENDS:]
                    yield number, raw, deserialize(raw, CAMERA_INFO, where)
            except BagError as error:
                errors.append(error)

    def _info_topic(self) -> tuple[Topic | None, str]:
        """The topic of these images' CameraInfo; or None, and why."""
        infos = [topic for topic in self.topics if topic.type == CAMERA_INFO and topic.count]
        if own := list(filter(self._is_own, infos)):
            return min(own, key=lambda topic: not (is_rectified(topic.name) or topic.name.endswith('_raw'))), ''
        fitting = [topic for topic in infos if is_rectified(self.image_topic) or not is_rectified(topic.name)]
        if len(infos) == 1 and fitting and not self._camera:
            return infos[0], ''
        for place in list(PurePosixPath(without_transport(self.image_topic)).parents)[1:-1]:  # /cam1 of /cam1/image_raw/rectified
            if above := [topic for topic in fitting if topic.name in camera_info_topics(f'{place}/image')]:
                return above[0], ''
        if not infos:
            return None, ''
        listing, expected = ', '.join(topic.name for topic in infos), ' or '.join(camera_info_topics(self.image_topic))
        return None, (f'no intrinsics in the recording: there is CameraInfo on {listing}, and that of {self.image_topic} would be '
                      f'on {expected}')

    def _is_own(self, topic: Topic) -> bool:
        """Whether a topic is where these images' CameraInfo belongs.

        The viewer of RealSense has Color_0/info/camera_info for Color_0/image/data. Older ZED drivers have camera_info_raw next to
        images that are not rectified, and camera_info for those that are.
        """
        places = [*camera_info_places(self.image_topic), re.sub(r'/image/data$', '/info/camera_info', self.image_topic)]
        if not is_rectified(self.image_topic):
            places.append(without_transport(self.image_topic).rpartition('/')[0] + '/camera_info_raw')
        return topic.name.strip('/') in [name.strip('/') for name in places]

    @property
    def frame_id(self) -> str:
        """header.frame_id of the first image that can be read; empty where there is none."""
        return self._first_image[0]

    @property
    def _size(self) -> Size | None:
        """Of that image; None where it is a compressed depth image, or cannot be decoded."""
        return self._first_image[1]

    @cached_property
    def _first_image(self) -> tuple[str, Size | None]:
        for frame in readable_frames(self, lambda line: None):
            with suppress(BagError):
                image, size = frame.load(), None
                with suppress(FrameError):
                    size = size_of(gray_of(image)) if hasattr(image, 'format') else (image.height, image.width)
                return str(image.header.frame_id).strip('/'), size
        return '', None

    @cached_property
    def depth(self) -> BagRecording | None:
        """The one image of depth that has these images' frame_id, as registered depth images do (REP 118); raw, if it is there."""
        of_frame = [each for each in self.depths if each.frame_id == self.frame_id]
        return of_frame[0] if len(of_frame) == 1 else None

    @cached_property
    def depths(self) -> list[BagRecording]:
        """Images of depth, by what they hold; what is called disparity, labels or confidence is none."""
        own = without_transport(self.image_topic)
        return [self.other(camera[0].name) for camera in self._images.cameras()
                if without_transport(camera[0].name) != own and self._images.holds_depth(camera[0])
                and not _NO_DEPTH.search(camera[0].name)]

    def other(self, topic: str) -> BagRecording:
        """Another image topic of the same bag, with the same bits and depth scale."""
        recording = BagRecording(self.storage, topic)
        recording.bits, recording.depth_scale = self.bits, self.depth_scale
        return recording

    def _choose(self, name: str | None) -> Topic:
        topic = self._automatic() if name is None else self._named(name)
        if self._images.is_video(topic):
            self._refuse_videos([topic])
        if self._images.is_own(topic):
            raise BagError(f'{self.path}: {topic.name} has the pictures that the matcher draws (~/debug_image), which are no '
                           f'images of a camera: name its topic (--image-topic). It holds: {self.listing}')
        return topic

    def _named(self, name: str) -> Topic:
        chosen = [topic for topic in self.image_topics if topic.name == name]
        if not chosen:  # one that was recorded in another transport
            chosen = next(([camera[0]] for camera in self._images.cameras() if without_transport(camera[0].name) == name), [])
            self._notes += [f'{name} was recorded as {topic.name}' for topic in chosen]
        if not chosen:
            other = next((f', but {topic.type}' for topic in self.topics if topic.name == name), '')
            raise BagError(f'{self.path} has no images on {name}{other}. It holds: {self.listing}')
        if not chosen[0].count:
            raise BagError(self._silence(chosen[0]))
        return chosen[0]

    def _silence(self, topic: Topic) -> str:
        return (f'{self.path} has no message on {topic.name}: see that the camera publishes, and record with the QoS it offers '
                f'(ros2 topic info --verbose {topic.name}, ros2 bag record --qos-profile-overrides-path). '
                f'It holds: {self.listing}')

    def _automatic(self) -> Topic:
        """The topic of the only camera. Raises BagError."""
        cameras = self._images.cameras()
        of_camera, choice = '', 'choose one (--image-topic); evaluate_bag and play_bag take the right one as --right-topic'
        if self._camera:
            cameras = [camera for camera in cameras if self._camera in camera[0].name.split('/')]
            of_camera, choice = f' of a camera {self._camera}', 'name them with --image-topic and {camera} in place of the name'
        if not cameras:
            self._refuse_foreign()
            silent = [topic for topic in self.image_topics if self._camera in ('', *topic.name.split('/')) and not topic.count]
            if silent:
                raise BagError(self._silence(silent[0]))
            raise BagError(f'{self.path} holds no images{of_camera} ({IMAGE} or {COMPRESSED_IMAGE}). It holds: {self.listing}')
        if len(cameras) > 1:
            cameras = self._of_light(cameras)
        if len(cameras) > 1:
            raise BagError(f'{self.path} holds {len(cameras)} image topics{of_camera}, {choice}. It holds: {self.listing}')
        chosen, *others = cameras[0]
        if self._images.holds_depth(chosen):
            self._notes.append(f'images: {chosen} is depth by its encoding or name, and taken for want of others')
        if others:
            self._notes.append(f'images: {chosen}; not read are the same ones in another transport, {"; ".join(map(str, others))}')
        return chosen

    def _of_light(self, cameras: list[list[Topic]]) -> list[list[Topic]]:
        """Those of several that are neither depth nor drawn by the matcher; with a note about those."""
        own = [camera for camera in cameras if self._images.is_own(camera[0])]
        if own and len(own) < len(cameras):
            self._notes.append(f'{", ".join(camera[0].name for camera in own)}: pictures that the matcher draws, left out')
        others = [camera for camera in cameras if camera not in own] or cameras
        light = [camera for camera in others if not self._images.holds_depth(camera[0])] or others
        unexpected = [camera[0].name for camera in others if camera not in light and not holds_depth(camera[0].name)]
        if unexpected:
            self._notes.append(f'{", ".join(unexpected)}: depth by its encoding, so no camera; --image-topic takes it all the same')
        if len(light) == 1:
            return light
        return [camera for camera in light if not holds_depth(camera[0].name)] or light

    def _refuse_foreign(self) -> None:
        """Raises BagError where messages are not those of ROS 2, and where images are in packets of a video."""
        foreign = {topic.encoding for topic in self.topics} - {'cdr'}
        if 'ros1' in foreign:
            raise BagError(f'{self.path} holds messages of ROS 1 ({self.listing}), and those of ROS 2 are needed: convert the '
                           '.bag that it was made from (pip install rosbags, rosbags-convert --src FILE.bag --dst FOLDER)')
        if foreign:
            raise BagError(f'{self.path} holds messages in {", ".join(sorted(foreign))} ({self.listing}), and cdr is needed, '
                           'which ROS 2 writes: record the topics with ros2 bag record')
        others = [topic for topic in self.topics if topic.count and topic.type.endswith('Image')
                  and topic.type not in (IMAGE, COMPRESSED_IMAGE)]
        if others:
            raise BagError(f'{self.path} holds images of another type, {"; ".join(map(str, others))}, and {IMAGE} or '
                           f'{COMPRESSED_IMAGE} are read: publish them as one of these, and record that')
        self._refuse_videos([topic for topic in self._images.topics if self._images.is_video(topic)])
        packets = [topic for topic in self.topics if topic.count and topic.type.endswith(PACKETS)]
        if packets:
            raise BagError(f'{self.path} holds images in packets of a video only, {"; ".join(map(str, packets))}: play it, and '
                           'record what comes out of ros2 run image_transport republish')

    def _refuse_videos(self, topics: list[Topic]) -> None:
        if topics:
            raise BagError(f'{self.path} holds images in packets of a video, {"; ".join(map(str, topics))}: play it into a '
                           f'decoder, as isaac_ros_h264_decoder, and record the {IMAGE} that come out')

    @property
    def listing(self) -> str:
        """The topics of images, for people; of a bag without any the first ones."""
        topics = self.image_topics or self.topics
        return '; '.join(map(str, topics[:LISTED])) + f' … ({len(topics)} in all)' * (len(topics) > LISTED) or 'nothing'
