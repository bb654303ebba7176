"""Image folders: this package's own layout, TUM RGB-D, KITTI odometry and EuRoC."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.cameras import Intrinsics
from ..core.depth import SATURATED
from ..core.types import Float64
from ..utils.errors import BagError
from ..utils.files import text_of
from .calibration_files import find_camera_in_body, load_baseline, load_intrinsics, rectifying
from .named_stamps import stamps_of_names
from .poses import Trajectory, parse_nanoseconds, parse_stamp, read_kitti, read_list, read_quaternions, read_stamps
from .sequence import (
    DEPTH_TOPIC,
    IMAGE,
    IMAGE_TOPIC,
    RIGHT_TOPIC,
    Frame,
    ImageRecord,
    Recording,
    Topic,
    read_depth,
    read_image,
    read_samples,
)

SUFFIXES = ('.png', '.jpg', '.jpeg', '.bmp', '.pgm', '.ppm', '.tif', '.tiff', '.webp')
GROUND_TRUTH = ('state_groundtruth_estimate0', 'mocap0', 'vicon0')  # of EuRoC, of TUM-VI, and EuRoC's tracker
TUM_PER_METRE = 5000  # of a depth image: https://cvg.cit.tum.de/data/datasets/rgbd-dataset/file_formats
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

    def _note_names(self) -> None:
        self.notes = (f'the stamps of the images are the numbers in their names, as {self.files[0].name}',)

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
            return recorded.of_camera(camera_in_body, 'moved into the camera as asked')
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
        self._camera, self.bits = camera, left.bits

    @property
    def intrinsics(self) -> Intrinsics | None:
        return self._camera


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


class ImagesFolder(FolderRecording):
    """images/ next to timestamps.txt (seconds, a line per image in the order of names), groundtruth.txt (TUM), calib.yaml.

    Images that are named by their stamps need no timestamps.txt.
    Of a rectified stereo pair images/ is the left one; images_right/ has the right images, calib_right.yaml also baseline_m.
    depth/ has a depth image per image: PNGs of 16 bits in millimetres, 0 where unknown.
    """

    @staticmethod
    def find(path: Path) -> Path | None:
        return path if (path / 'images').is_dir() else None

    def __init__(self, path: Path, image_topic: str = IMAGE_TOPIC) -> None:
        files, stamps = _images_in(path / 'images', 'timestamps.txt'), path / 'timestamps.txt'
        named = [] if stamps.exists() else stamps_of_names(files)
        if not named and not stamps.exists():
            lines = f"awk 'BEGIN {{for (i = 0; i < {len(files)}; i++) printf \"%.6f\\n\", i / 30}}' > {shlex.quote(str(stamps))}"
            raise BagError(f'{stamps} does not exist: write one stamp per image into it, in seconds, in order of names; or name '
                           f'each image by its stamp, as 1403636579763555584.png. Of a video with 30 frames a second: {lines}')
        super().__init__(path, image_topic, files, named or read_stamps(stamps))
        if named:
            self._note_names()

    @cached_property
    def right(self) -> FolderRecording | None:
        folder, calibration = self.path / 'images_right', self.path / 'calib_right.yaml'
        if not folder.is_dir():
            return None
        camera = replace(load_intrinsics(calibration), shift_m=load_baseline(calibration)) if calibration.exists() else None
        return RightFolder(self, _images_in(folder, 'timestamps.txt'), camera)

    @cached_property
    def depth(self) -> FolderRecording | None:
        folder = self.path / 'depth'
        return DepthFolder(self, _images_in(folder, 'timestamps.txt')) if folder.is_dir() else None


class TumFolder(FolderRecording):
    """rgb.txt (stamp, file), rgb/, groundtruth.txt: the TUM RGB-D benchmark. It has no calibration: add a calib.yaml.

    depth.txt (stamp, file) lists depth images of 5000 to a metre, with stamps of their own.
    """

    @staticmethod
    def find(path: Path) -> Path | None:
        return path if (path / 'rgb.txt').is_file() else None

    def __init__(self, path: Path, image_topic: str) -> None:
        super().__init__(path, image_topic, *_listed(path, 'rgb.txt', path, parse_stamp))

    @cached_property
    def depth(self) -> FolderRecording | None:
        if not (self.path / 'depth.txt').is_file():
            return None
        return DepthFolder(self, *_listed(self.path, 'depth.txt', self.path, parse_stamp), per_metre=TUM_PER_METRE)


class KittiFolder(FolderRecording):
    """image_0/ or image_2/, times.txt, calib.txt, and poses in poses.txt or in ../../poses/NN.txt: a sequence of KITTI's odometry.

    Ground truth is of camera 0; the offset of another camera is the fourth column of its projection in calib.txt. image_1/ and
    image_3/ are the right images of image_0/ and image_2/.
    """

    kind = 'kitti'

    @staticmethod
    def find(path: Path) -> Path | None:
        return path if (path / 'times.txt').is_file() and _kitti_camera(path) is not None else None

    def __init__(self, path: Path, image_topic: str) -> None:
        self._number = _kitti_camera(path) or 0
        files = _images_in(path / f'image_{self._number}', 'times.txt')
        super().__init__(path, image_topic, files, read_stamps(path / 'times.txt'))

    @cached_property
    def intrinsics(self) -> Intrinsics | None:
        return super().intrinsics if self._projection is None else self._camera(self._projection)

    @cached_property
    def right(self) -> FolderRecording | None:
        number = self._number + 1
        folder = self.path / f'image_{number}'
        if not folder.is_dir():
            return None
        projection = self._projection_of(number)
        return RightFolder(self, _images_in(folder, 'times.txt'), None if projection is None else self._camera(projection))

    def _camera(self, projection: Float64) -> Intrinsics:
        height, width = read_image(self.files[0]).shape[:2]
        shift_m = -float(np.linalg.solve(projection[:, :3], projection[:, 3])[0])
        return Intrinsics(width, height, projection[:, :3], 'plumb_bob', np.zeros(5), shift_m=shift_m,
                          source=str(self.path / 'calib.txt'))

    @cached_property
    def camera_in_body(self) -> Float64 | None:
        if self._projection is None or not self._projection[:, 3].any():
            return None
        camera_in_body = np.eye(4)
        camera_in_body[:3, 3] = -np.linalg.solve(self._projection[:, :3], self._projection[:, 3])
        return camera_in_body

    @cached_property
    def _projection(self) -> Float64 | None:
        return self._projection_of(self._number)

    def _projection_of(self, camera: int) -> Float64 | None:
        path, name = self.path / 'calib.txt', f'P{camera}'
        if not path.exists():
            return None
        try:
            rows = dict(line.split(':', 1) for line in text_of(path).splitlines() if ':' in line)
            return np.array([float(word) for word in rows[name].split()], np.float64).reshape(3, 4)
        except KeyError:
            raise BagError(f'{path} has no {name}, the projection of image_{name[1:]}') from None
        except (OSError, UnicodeDecodeError, ValueError) as error:
            raise BagError(f'{path}, {name}: {error}; it needs the 12 numbers of a 3x4 projection') from None

    def _ground_truth(self) -> Trajectory | None:
        here = self.path.resolve()
        places = (here / 'poses.txt', here.parent.parent / 'poses' / f'{here.name}.txt')
        path = next((place for place in places if place.is_file()), None)
        return None if path is None else read_kitti(path, self.stamps_ns)


class EurocFolder(FolderRecording):
    """data.csv, data/ and sensor.yaml of mav0/cam0, with mav0/state_groundtruth_estimate0, mav0/mocap0 or
    mav0/vicon0: a sequence of EuRoC or TUM-VI. Without data.csv the names of the images are their stamps.

    mav0/cam1 has the right images; T_BS in both sensor.yaml gives the pose between the cameras.
    """

    kind = 'euroc'
    calibration = 'sensor.yaml'

    @staticmethod
    def find(path: Path) -> Path | None:
        places = [place for place in (path / 'mav0' / 'cam0', path / 'cam0', path) if (place / 'data').is_dir()]
        whole = next(filter(EurocFolder._says_stamps, places), None)
        named = next((place for place in places if place.name == 'cam0' or (place / 'sensor.yaml').is_file()), None)
        if whole is None and named is not None:
            raise BagError(f'{named / "data.csv"} is missing: it lists the stamp in nanoseconds and the file of each image in '
                           f'{named / "data"}, as "1403636579763555584,1403636579763555584.png"')
        return whole

    @staticmethod
    def _says_stamps(path: Path) -> bool:
        """Whether a camera has data.csv, or images that are named by their stamps."""
        return (path / 'data.csv').is_file() or bool(stamps_of_names(_files_in(path / 'data')))

    def __init__(self, path: Path, image_topic: str) -> None:
        if (path / 'data.csv').is_file():
            super().__init__(path, image_topic, *_listed(path, 'data.csv', path / 'data', parse_nanoseconds, ','))
        else:
            super().__init__(path, image_topic, files := _files_in(path / 'data'), stamps_of_names(files))
            self._note_names()

    @cached_property
    def intrinsics(self) -> Intrinsics | None:
        camera = super().intrinsics
        return camera if camera is None or self._rig is None else replace(camera, rectification=self._rig[0])

    @cached_property
    def right(self) -> FolderRecording | None:
        if self.path.name != 'cam0' or not self._says_stamps(self._right_path):
            return None
        other = EurocFolder(self._right_path, RIGHT_TOPIC)
        camera = other.intrinsics
        if camera is not None and self._rig is not None:
            camera = replace(camera, rectification=self._rig[1], shift_m=self._rig[2])
        return RightFolder(self, other.files, camera, other.stamps_ns)

    @property
    def _right_path(self) -> Path:
        return self.path.with_name('cam1')

    @cached_property
    def _rig(self) -> tuple[Float64, Float64, float] | None:
        """Rectifying rotations and baseline of this camera and the right one, as `rectifying` returns them."""
        left = self.camera_in_body
        right = find_camera_in_body(self._right_path / self.calibration) if self.path.name == 'cam0' else None
        return None if left is None or right is None else rectifying(np.asarray(np.linalg.solve(left, right), np.float64))

    @cached_property
    def camera_in_body(self) -> Float64 | None:
        return find_camera_in_body(self.path / self.calibration)

    def _ground_truth(self) -> Trajectory | None:
        places = (self.path.parent / name / 'data.csv' for name in GROUND_TRUTH)
        path = next((place for place in places if place.is_file()), None)
        return None if path is None else euroc_ground_truth(path)


def euroc_ground_truth(path: Path) -> Trajectory:
    """Poses of the body from an EuRoC data.csv; the sensor.yaml next to it has the sensor's pose in the body. Raises BagError."""
    recorded, sensor_in_body = read_quaternions(path, 'euroc'), find_camera_in_body(path.with_name('sensor.yaml'))
    if sensor_in_body is None:
        return recorded
    return Trajectory(recorded.stamps_ns, recorded.poses @ np.linalg.inv(sensor_in_body), recorded.source)


def open_folder(path: Path, image_topic: str = IMAGE_TOPIC) -> FolderRecording | None:
    """The recording of an image folder; None where the folder has none of the layouts. Raises BagError."""
    for layout in LAYOUTS:
        images = layout.find(path)
        if images is not None:
            return layout(images, image_topic)
    return None


def has_layout(path: Path) -> bool:
    """Whether a folder has one of the layouts, whole or not."""
    try:
        return any(layout.find(path) is not None for layout in LAYOUTS)
    except BagError:
        return True


LAYOUTS = (ImagesFolder, TumFolder, KittiFolder, EurocFolder)  # the first that fits counts


def _listed(home: Path, listing: str, folder: Path, parse: Callable[[str], int],
            separator: str | None = None) -> tuple[list[Path], list[int]]:
    """The files in `folder` that a listing in `home` names, and their stamps.

    Raises BagError where one lies outside of `home`, through a link too.
    """
    root, rows = home.resolve(), read_list(home / listing, parse, separator)
    for _, name in rows:
        if not (file := (folder / name).resolve()).is_relative_to(root):
            raise BagError(f'{home / listing} names {name!r}, which is {file}, outside of {root}: '
                           'copy what belongs to the recording into its folder')
    return [folder / name for _, name in rows], [stamp for stamp, _ in rows]


def _files_in(folder: Path) -> list[Path]:
    """The images of a folder, in the order of names; none where it does not exist."""
    return sorted((entry for entry in folder.glob('*')
                   if entry.name.lower().endswith(SUFFIXES) and not is_hidden(entry.name) and entry.is_file()), key=natural)


def _images_in(folder: Path, stamps: str) -> list[Path]:
    files = _files_in(folder)
    if not files:
        if inner := sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not is_hidden(entry.name)):
            listing = ', '.join(inner[:4]) + ', …' * (len(inner) > 4)
            raise BagError(f'{folder} holds no image, and the folders {listing}: a recording is of one camera; copy the images of '
                           f'one of these as {folder.name}/ into a new folder')
        names = sorted(entry.name for entry in folder.iterdir() if entry.is_file() and not is_hidden(entry.name))
        raise BagError(f'{folder} holds no image ({_in_words(names)}): an image folder has {folder.name}/*.png '
                       f'(or {", ".join(SUFFIXES[1:])}) and {stamps}')
    return files


def _in_words(names: list[str]) -> str:
    return f'{len(names)} other file{"s" * (len(names) != 1)}' + (f', as {names[0]}' if names else '')


def _kitti_camera(path: Path) -> int | None:
    return next((number for number in (0, 2) if (path / f'image_{number}').is_dir()), None)


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
