"""What a path holds: a rosbag2 or an image folder is opened, of all else a line says what to do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..core.images import gray_of
from ..core.types import UInt8
from ..utils.errors import BagError, first_of
from .bag_parts import ENDINGS, ROS1_ADVICE, ZSTD, bag_files, is_bag
from .bag_recording import BagRecording
from .bag_storage import Storage
from .folder_recordings import SUFFIXES as IMAGE_SUFFIXES
from .folder_recordings import files_in, is_hidden, natural
from .image_folders import LEVELS, has_layout, open_folder
from .sequence import IMAGE_TOPIC, Recording

ARCHIVES = ('.gz', '.bz2', '.xz', '.lz4', *ZSTD, '.zip', '.tar', '.tgz', '.7z')  # that are not unpacked here
VIDEOS = ('.mp4', '.avi', '.mov', '.mkv', '.webm', '.m4v')
VIDEO_ADVICE = ('take its frames out, each once, and the stamp of each, as telephones have no constant rate: mkdir images, '
                'ffmpeg -r 30 -i {file} images/%06d.png, and ffprobe -v error -select_streams v:0 -show_entries '
                'frame=best_effort_timestamp_time -of default=nk=1:nw=1 {file} > timestamps.txt')
STAMPS_ADVICE = ('write the stamp of each, in seconds and in the order of names, into timestamps.txt next to it, unless stamps are '
                 'their names')
OF_VIDEO = 10  # images beside a video, which may be its frames: fewer are no recording
FOLDERS = 500  # of a level below a folder that is no recording, in which one is looked for


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
