"""A folder of images with stamps as a recording: its frames, and its right and depth images."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.cameras import Intrinsics
from ..core.depth import SATURATED
from ..core.types import Float64
from ..utils.errors import BagError, first_of
from .calibration_files import load_intrinsics
from .pose_files import read_quaternions
from .poses import Trajectory
from .sequence import DEPTH_TOPIC, IMAGE, RIGHT_TOPIC, Frame, ImageRecord, Recording, Topic, read_depth, read_image, read_samples

SUFFIXES = ('.png', '.jpg', '.jpeg', '.bmp', '.pgm', '.ppm', '.tif', '.tiff', '.webp')
KINDS = 4  # of names of images in one folder: more are names without an order
_DEPTH = re.compile(r'(?<![a-z])depth(?![a-z])', re.IGNORECASE)  # in the name of a file
_STAMP = re.compile(r'([0-9]+|.*[0-9]{9,})(\.[0-9]+\.\w+)')  # a file named by its stamp in seconds, also behind a word


class FolderRecording(Recording):
    """An image folder. Raises BagError when there is no image, or when the stamps do not fit."""

    kind = 'tum'  # of its ground truth: tum, kitti or euroc
    calibration = 'calib.yaml'
    notes: tuple[str, ...] = ()

    def __init__(self, path: Path, image_topic: str, files: list[Path], stamps_ns: list[int]) -> None:
        self.path, self.image_topic, self.files, self.stamps_ns = path, image_topic, files, stamps_ns
        if len(files) != len(stamps_ns):
            raise BagError(f'{path} has {len(stamps_ns)} stamps and {len(files)} images: they must be as many')
        if not files:
            raise BagError(f'{path} lists no image: a line with stamp and file is needed for each')
        self.topics = (Topic(image_topic, IMAGE, len(files)),)

    def __len__(self) -> int:
        return len(self.files)

    def frames(self, on_bad: Callable[[int, BagError], None] | None = None) -> Iterator[Frame]:
        for number, (file, stamp) in enumerate(zip(self.files, self.stamps_ns, strict=True)):
            yield Frame(stamp, stamp, partial(self._load, file), number=number)

    def images(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """Iterate over (stamp in ns, image): gray (H, W) or BGR (H, W, 3) uint8, as the file is, by `bits`. Raises BagError."""
        for file, stamp in zip(self.files, self.stamps_ns, strict=True):
            yield stamp, self._read(file)

    def note_names(self) -> None:
        self.notes = (f'the stamps of the images are the numbers in their names, as {self.files[0].name}',)

    def note_kinds(self) -> None:
        """Note names that differ by more than numbers, as those of two cameras do."""
        kinds = Counter(re.sub('[0-9]+', '#', file.name) for file in self.files)
        if 1 < len(kinds) <= KINDS and min(kinds.values()) > 1:
            listing = ', '.join(f'{count} as {kind}' for kind, count in kinds.items())
            self.notes += (f'{self.files[0].parent} has images of {len(kinds)} kinds of names, {listing}: leave those of one '
                           'camera, if they are of several',)

    def _load(self, file: Path) -> ImageRecord:
        return ImageRecord.from_samples(read_samples(file))

    def _read(self, file: Path) -> NDArray[Any]:
        return read_image(file, self.bits)

    @property
    def right(self) -> FolderRecording | None:
        return None

    @property
    def depth(self) -> FolderRecording | None:
        return None

    @cached_property
    def intrinsics(self) -> Intrinsics | None:
        path = self.path / self.calibration
        return load_intrinsics(path, size=self._size) if path.exists() else None

    def _size(self) -> tuple[int, int]:
        """Width and height of the first image."""
        height, width = self._read(self.files[0]).shape[:2]
        return width, height

    def ground_truth(self, camera_in_body: Float64 | None = None) -> Trajectory | None:
        """The folder's ground truth as poses of this camera; `camera_in_body` (4, 4) replaces the folder's own calibration."""
        recorded = self._ground_truth()
        return None if recorded is None else self.of_camera(recorded, camera_in_body)

    def of_camera(self, recorded: Trajectory, camera_in_body: Float64 | None) -> Trajectory:
        """Poses of this camera from the poses in a ground truth file of this layout."""
        if camera_in_body is not None:
            return recorded.of_camera(camera_in_body)
        if self.camera_in_body is not None:
            return recorded.of_camera(self.camera_in_body, f'moved into the camera by its calibration in {self.path}')
        return recorded.of_camera(None, "taken as the camera's own")

    @property
    def camera_in_body(self) -> Float64 | None:
        """(4, 4) body from camera, for the body that this layout's ground truth tracks; None where that is the camera."""
        return None

    def _ground_truth(self) -> Trajectory | None:
        """The poses of the ground truth file next to the images."""
        path = self.path / 'groundtruth.txt'
        return read_quaternions(path, 'tum') if path.exists() else None


class RightFolder(FolderRecording):
    """The right images of another folder, with the rectified `camera` of the pair. Raises BagError."""

    def __init__(self, left: FolderRecording, files: list[Path], camera: Intrinsics | None,
                 stamps_ns: list[int] | None = None) -> None:
        """Without `stamps_ns`, one image per left image is required, and has its stamp."""
        if stamps_ns is None and len(files) != len(left.files):
            raise BagError(f'{left.path} has {len(left.files)} images and {len(files)} right ones: they must be pairs')
        super().__init__(left.path, RIGHT_TOPIC, files, stamps_ns or left.stamps_ns)
        self.intrinsics, self.bits = camera, left.bits


class DepthFolder(FolderRecording):
    """The depth images registered to those of another folder: PNGs of 16 bits, 0 where unknown. Raises BagError."""

    def __init__(self, images: FolderRecording, files: list[Path], stamps_ns: list[int] | None = None,
                 per_metre: float | None = None) -> None:
        """Without `stamps_ns`, one file per image is required, and has its stamp.

        `per_metre` are units to a metre, which the `depth_scale` of the images replaces; without both they are millimetres.
        """
        if stamps_ns is None and len(files) != len(images.files):
            raise BagError(f'{images.path} has {len(images.files)} images and {len(files)} depth images: give each image one, in '
                           'the order of names, or none to any')
        super().__init__(images.path, DEPTH_TOPIC, files, stamps_ns or images.stamps_ns)
        self._images, self._per_metre = images, images.depth_scale or per_metre
        self.has_units_of_layout = per_metre is not None and images.depth_scale is None

    @property
    def intrinsics(self) -> Intrinsics | None:
        return self._images.intrinsics

    def _load(self, file: Path) -> ImageRecord:
        return ImageRecord.from_depth(self._read(file))

    def _read(self, file: Path) -> NDArray[Any]:
        pixels = read_depth(file)
        if self._per_metre in (None, 1000):
            return pixels
        metres = np.where(pixels > 0, pixels / np.float32(self._per_metre), np.float32(np.nan))
        return np.where(pixels < SATURATED, metres, np.float32(np.inf))  # too far, by REP 117


def files_in(folder: Path) -> list[Path]:
    """The images of a folder, in the order of names; none where it does not exist."""
    return sorted((entry for entry in folder.glob('*')
                   if entry.name.lower().endswith(SUFFIXES) and not is_hidden(entry.name) and entry.is_file()), key=natural)


def images_in(folder: Path, stamps: str) -> list[Path]:
    files = files_in(folder)
    if not files:
        if inner := sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not is_hidden(entry.name)):
            raise BagError(f'{folder} holds no image, and the folders {first_of(inner, 4)}: a recording is of one camera; copy the '
                           f'images of one of these as {folder.name}/ into a new folder')
        names = sorted(entry.name for entry in folder.iterdir() if entry.is_file() and not is_hidden(entry.name))
        others = f'{len(names)} other file{"s" * (len(names) != 1)}' + (f', as {names[0]}' if names else '')
        raise BagError(f'{folder} holds no image ({others}): an image folder has {folder.name}/*.png '
                       f'(or {", ".join(SUFFIXES[1:])}) and {stamps}')
    if 0 < len(of_depth := [file for file in files if _DEPTH.search(file.stem)]) < len(files):
        raise BagError(f'{folder} holds {len(files)} images, {len(of_depth)} of them depth by their names, as {of_depth[0].name}: '
                       f'move those into depth/ next to {folder.name}/')
    return files


def is_hidden(name: str) -> bool:
    """Whether a file of this name belongs to an operating system or an archive, as ._0.png of macOS does."""
    return name.startswith('.')


def natural(path: Path) -> list[tuple[int, str]]:
    """A key for sorting: frame 10 comes after frame 9, with zeros in front or without; 2.15.png, a stamp, before 2.2.png."""
    name, fraction = path.name, ''
    if stamp := _STAMP.fullmatch(name):
        name, fraction = stamp.groups()
    parts = [(int(part), '') if part.isdigit() else (-1, part) for part in re.split(r'([0-9]+)', name)]
    return [*parts, (-1, fraction)]
