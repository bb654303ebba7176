"""Recordings: rosbag2 (sqlite3 or mcap, compressed or not) read without ROS, image folders, and stereo pairs of either."""

from __future__ import annotations

import itertools
import os
import re
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from ..core.cameras import (
    Intrinsics,
    StereoRig,
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
from ..core.timing import usual_period
from ..core.types import UInt8
from ..utils.errors import BagError, FrameError, first_of, naming
from .bag_parts import ENDINGS, ROS1_ADVICE, ZSTD, bag_files, is_bag
from .bag_readers import unpacked
from .bag_storage import Storage, deserialize
from .bag_topics import ImageTopics, load_image, stamped
from .calibration_choices import doubt_of_size
from .calibration_lens import doubt_of_lens
from .folder_recordings import SUFFIXES as IMAGE_SUFFIXES
from .folder_recordings import files_in, is_hidden, natural
from .image_folders import LEVELS, has_layout, open_folder
from .sequence import CAMERA_INFO, COMPRESSED_IMAGE, IMAGE, IMAGE_TOPIC, Frame, Recording, Topic, holds_depth, readable_frames

ARCHIVES = ('.gz', '.bz2', '.xz', '.lz4', *ZSTD, '.zip', '.tar', '.tgz', '.7z')  # that are not unpacked here
VIDEOS = ('.mp4', '.avi', '.mov', '.mkv', '.webm', '.m4v')
VIDEO_ADVICE = ('take its frames out, each once, and the stamp of each, as telephones have no constant rate: mkdir images, '
                'ffmpeg -r 30 -i {file} images/%06d.png, and ffprobe -v error -select_streams v:0 -show_entries '
                'frame=best_effort_timestamp_time -of default=nk=1:nw=1 {file} > timestamps.txt')
STAMPS_ADVICE = ('write the stamp of each, in seconds and in the order of names, into timestamps.txt next to it, unless stamps are '
                 'their names')
PACKETS = ('/Packet', '/FFMPEGPacket', '/CompressedVideo')  # types of videos
_NO_DEPTH = re.compile(r'disparity|label|segment|confidence', re.IGNORECASE)  # names of topics whose 16 bits are others
_UNDISTORTED = re.compile(r'(^|[/_])undist(ort(ed)?)?([/_]|$)', re.IGNORECASE)  # in names of topics
LISTED = 12  # topics in a message: a robot has hundreds
OF_VIDEO = 10  # images beside a video, which may be its frames: fewer are no recording
FOLDERS = 500  # of a level below a folder that is no recording, in which one is looked for
FIRST_IMAGES = 50  # in which one that has a stamp is looked for
STAMP_ENDS = 12  # bytes of encapsulation and stamp, with which a serialised message with a header begins
SKEW_NS = 5_000_000  # between the stamps of a stereo pair
DEPTH_SKEW_NS = 20_000_000  # between those of an image and its depth image
PERIODS = 63  # between the last frames, of which the usual one is the median


class StereoRecording(NamedTuple):
    """Left and right images of one recording, and the calibration of the pair."""

    left: Recording
    right: Recording
    rig: StereoRig


def open_recording(path: str | os.PathLike[str], image_topic: str | None = None, camera: str = '', *, image_bits: int = 16,
                   depth_scale: float | None = None) -> Recording:
    """Open a rosbag2 directory, a single .db3 or .mcap file, or an image folder (see image_folders).

    `image_topic` may be left out when the bag holds images on one topic; those that are called depth do not count. Of several
    cameras, `camera` selects the one whose name is a part of the topic: /front/image_raw belongs to the camera front, and only the
    CameraInfo next to it does. `image_bits` is what the camera fills of images of 16 bits, `depth_scale` how many units of depth
    images are a metre (None: as their encoding or layout has it). A damaged bag opens as long as something in it can be read.
    Raises BagError, which lists the topics or files.
    """
    recording = _opened(path, image_topic, camera)
    recording.bits, recording.depth_scale = image_bits, depth_scale
    return recording


def _opened(path: str | os.PathLike[str], image_topic: str | None, camera: str) -> Recording:
    path = Path(path)
    if not path.exists():
        raise BagError(f'{path} does not exist')
    if path.is_dir():
        has_metadata = (path / 'metadata.yaml').exists()
        if not has_metadata or not bag_files(path):  # a data set may have a metadata.yaml of its own
            folder = open_folder(path, image_topic or IMAGE_TOPIC)
            if folder is not None and camera:
                raise BagError(f'{path} is a folder of images, of one camera: several have names in the topics of a bag')
            if folder is not None:
                return folder
        if not has_metadata:
            path = _bag_without_metadata(path)
    elif not path.name.endswith(ENDINGS):
        advice = ROS1_ADVICE.format(file=path, folder=path.with_suffix('')) if path.suffix == '.bag' else \
            'unpack it first, and name what comes out of it' if path.suffix in ARCHIVES else \
            VIDEO_ADVICE.format(file=path) if path.suffix.lower() in VIDEOS else \
            'its recorder of ROS 1 died: rosbag reindex it, and convert it with rosbags-convert' if path.suffix == '.active' else \
            f'name its folder, {path.parent}' if path.name == 'metadata.yaml' else 'name a bag or an image folder'
        raise BagError(f'{path} is no rosbag2 file (.db3, .mcap, also .zstd): {advice}')
    return BagRecording(Storage(path), image_topic, camera)


def gray_images(path: Path, image_topic: str | None = None, image_bits: int = 16) -> Iterator[UInt8]:
    """The images of a recording, uint8 (H, W), one at a time. Raises BagError."""
    for frame in open_recording(path, image_topic).frames():
        yield gray_of(frame.load(), image_bits)


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


def right_of(recording: Recording, topic: str | None = None) -> Recording | None:
    """The right images: those of `topic` in a bag, else those of an image folder's layout. Raises BagError."""
    return recording.right if topic is None else _other(recording, topic, 'its right images are found by themselves')


def depth_of(recording: Recording, topic: str | None = None) -> Recording:
    """The depth images: those of `topic` in a bag, else those that the recording has by itself. Raises BagError without any."""
    if topic is not None:
        return _other(recording, topic, 'give --depth, which finds its depth images')
    if recording.depth is not None:
        return recording.depth
    if not isinstance(recording, BagRecording):
        raise BagError(f'{recording.path} has no depth images: put them into depth/ next to images/, PNGs of 16 bits in '
                       'millimetres, or list them in depth.txt next to rgb.txt')
    if not recording.depths:
        raise BagError(f'{recording.path} has no depth images: none of its topics has images of 16UC1 or 32FC1, or '
                       f'compressedDepth. It holds: {recording.listing}')
    found = ', '.join(f'{each.image_topic} ({each.frame_id!r})' for each in recording.depths)
    raise BagError(f'{recording.path} does not say which depth images are registered to {recording.image_topic}: of the topics '
                   f'that hold depth, not exactly one has its frame_id {recording.frame_id!r}: {found}. Register them in the '
                   f'driver, or name the topic (--depth-topic)')


def _other(recording: Recording, topic: str, advice: str) -> Recording:
    if not isinstance(recording, BagRecording):
        raise BagError(f'{recording.path} is an image folder without a topic {topic}: {advice}')
    return recording.other(topic)


def stereo_recording(left: Recording, topic: str | None = None,
                     pair: tuple[Intrinsics, Intrinsics] | None = None) -> StereoRecording:
    """A recording with its right images, as `right_of` finds them; `pair` replaces the recorded calibration of both cameras.

    Raises BagError where there are none, or no calibration.
    """
    right = right_of(left, topic)
    if right is None:
        raise BagError(f'{left.path} does not say which images are the right ones: a folder has them next to the left ones, '
                       'in a bag their topic has to be named (--right-topic)')
    cameras = [each.intrinsics for each in (left, right)] if pair is None else [*pair]
    for recording, camera in zip((left, right), cameras, strict=True):
        if camera is None:
            note = f'; {recording.calibration_note}' if recording.calibration_note else ''
            raise BagError(f'{recording.path} has no calibration for {recording.image_topic}: stereo needs that of both '
                           f'cameras, as --camera camchain.yaml gives it{note}')
    with naming(left.path):
        return StereoRecording(left, right, StereoRig(*filter(None, cameras)))


def paired(left: Iterator[Frame], right: Iterator[Frame]) -> Iterator[tuple[Frame, Frame | None]]:
    """Every left frame with the right one whose stamp is within SKEW_NS, or None. The stamps of both must ascend."""
    waiting = next(right, None)
    for frame in left:
        while waiting is not None and waiting.stamp_ns < frame.stamp_ns - SKEW_NS:
            waiting = next(right, None)
        is_pair = waiting is not None and waiting.stamp_ns <= frame.stamp_ns + SKEW_NS
        yield frame, waiting if is_pair else None
        if is_pair:
            waiting = next(right, None)


def with_nearest(frames: Iterator[Frame], others: Iterator[Frame]) -> Iterator[tuple[Frame, Frame | None]]:
    """Every frame with the nearest of `others` in time, as the node pairs them: each of `others` is of one frame.

    None if further than DEPTH_SKEW_NS, or than half the usual time between frames: there another frame is nearer. The stamps of
    both must ascend.
    """
    nearest, following = next(others, None), next(others, None)
    stamps: deque[int] = deque(maxlen=PERIODS + 1)
    for frame in frames:
        stamps.append(frame.stamp_ns)
        reach = min(DEPTH_SKEW_NS, usual_period(stamps) / 2)
        while nearest is not None and following is not None and _apart_ns(following, frame) <= _apart_ns(nearest, frame):
            nearest, following = following, next(others, None)
        if nearest is None or _apart_ns(nearest, frame) > reach:
            yield frame, None
            continue
        yield frame, nearest
        nearest, following = following, next(others, None)


def _apart_ns(one: Frame, other: Frame) -> int:
    return abs(one.stamp_ns - other.stamp_ns)


def _bag_without_metadata(path: Path) -> Path:
    """The bag of a directory whose recorder died: its only file, or the directory of several. Raises BagError."""
    files = bag_files(path)
    if files:
        return files[0] if len(files) == 1 else path
    ros1 = sorted((entry for entry in path.iterdir() if entry.suffix == '.bag' and not is_hidden(entry.name)), key=natural)
    if ros1:
        advice = ROS1_ADVICE.format(file=ros1[0], folder=ros1[0].with_suffix(''))
        if len(ros1) > 1:
            advice = f'{advice}; or all, if they are parts of one recording: --src {path}/*.bag --dst {path / "ros2"}'
        raise BagError(f'{path} holds {len(ros1)} bag{"s" * (len(ros1) != 1)} of ROS 1, {ros1[0].name}: {advice}')
    if bags := sorted(filter(is_bag, _inner_folders(path)), key=lambda folder: (len(folder.parts), natural(folder))):
        raise BagError(f'{path} is no recording, and has {len(bags)} bag{"s" * (len(bags) != 1)} in it: name one, as {bags[0]}')
    names = sorted(entry.name for entry in path.iterdir() if not is_hidden(entry.name))
    raise BagError(f'{path} is neither a rosbag2 (metadata.yaml) nor an image folder (images/ and timestamps.txt, rgb.txt, '
                   f'image_0/ and times.txt, or mav0/): it holds {first_of(names, 8) or "nothing"}'
                   f'{_advice(path, names)}')


def _advice(path: Path, names: list[str]) -> str:
    """What to do with a folder that has these names and is no recording; empty: nothing is known."""
    whole = next((place for place in path.absolute().parents[:LEVELS] if has_layout(place) and not _lacks_images(place)), None)
    if whole is not None:
        return f'. Name {whole}'
    if recordings := list(filter(_is_recording, _inner_folders(path))):
        recordings = [each for each in recordings if each.parent not in recordings]
        return f'. It has a recording in {_listing(path, recordings)}: name one, as {recordings[0]}'
    videos = [name for name in names if name.lower().endswith(VIDEOS)]
    images = sum(name.lower().endswith(IMAGE_SUFFIXES) for name in names)
    if videos and images < OF_VIDEO:
        return f'. Of a video {VIDEO_ADVICE.format(file=path / videos[0])}'
    if images:
        depth = ', those of depth into depth/' * any('depth' in name.lower() for name in names)
        return f'. Move the images into images/{depth}, and {STAMPS_ADVICE}'
    if inner := list(filter(_holds_images, _inner_folders(path))):
        depth = ', its images of depth as depth/' * any('depth' in file.name.lower() for file in files_in(inner[0]))
        return (f'. It has images in {_listing(path, inner)}: copy one of these as images/ into a new folder{depth}, and '
                f'{STAMPS_ADVICE}')
    return ''


def _inner_folders(path: Path) -> list[Path]:
    """Three levels of folders, the upper ones first, and of each level the first ones."""
    level, found = [path], list[Path]()
    for _ in range(LEVELS):
        inner = list[Path]()
        for folder in level:
            with suppress(OSError):
                inner += sorted(entry for entry in folder.iterdir() if not is_hidden(entry.name) and entry.is_dir())
        level = inner[:FOLDERS]
        found += level
    return found


def _listing(path: Path, inner: list[Path]) -> str:
    return first_of([folder.relative_to(path) for folder in inner], 4)


def _is_recording(folder: Path) -> bool:
    with suppress(BagError, OSError):
        return open_folder(folder) is not None
    return False


def _lacks_images(place: Path) -> bool:
    """Whether a folder has images/ without an image, as one of folders of images."""
    return (place / 'images').is_dir() and not _holds_images(place / 'images')


def _holds_images(folder: Path) -> bool:
    with suppress(OSError):
        return not is_hidden(folder.name) and any(entry.name.lower().endswith(IMAGE_SUFFIXES) for entry in folder.iterdir())
    return False
