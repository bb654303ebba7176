"""Image folders: this package's own layout, TUM RGB-D, KITTI and EuRoC."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import islice, pairwise
from pathlib import Path

import numpy as np

from ..core.cameras import Intrinsics
from ..core.types import Float64
from ..utils.errors import BagError
from .calibration_choices import split_choice
from .calibration_files import camera_names, find_camera_in_body, load_baseline, load_intrinsics
from .calibration_pairs import rectifying
from .folder_recordings import SUFFIXES, DepthFolder, FolderRecording, RightFolder, files_in, images_in, is_hidden
from .kitti_folders import KittiFolder, KittiRawFolder
from .pose_files import read_quaternions
from .poses import Trajectory
from .sequence import IMAGE_TOPIC, RIGHT_TOPIC, holds_depth
from .stamps import begins_list, parse_nanoseconds, parse_stamp, read_list, read_stamps_of, stamps_of_names

# Names of lists that other files have too: COLMAP's images.txt has poses.
LEVELS = 3  # above or below a folder, in which a recording is looked for
LISTS = ('images.txt', 'left_images.txt', 'associations.txt', 'color.txt')
GROUND_TRUTH = ('state_groundtruth_estimate0', 'mocap0', 'vicon0')  # of EuRoC, of TUM-VI, and EuRoC's tracker
TUM_PER_METRE = 5000  # of a depth image: https://cvg.cit.tum.de/data/datasets/rgbd-dataset/file_formats


class ImagesFolder(FolderRecording):
    """images/ next to timestamps.txt (seconds, a line per image in the order of names), groundtruth.txt (TUM), calib.yaml.

    Images that are named by their stamps need no timestamps.txt. It may be called times.txt, and have names before the stamps.
    Of a rectified stereo pair images/ is the left one; images_right/ has the right images, calib_right.yaml also baseline_m.
    depth/ has a depth image per image: PNGs of 16 bits in millimetres, 0 where unknown.
    """

    @staticmethod
    def find(path: Path) -> Path | None:
        has_list = not (path / 'timestamps.txt').exists() and _list_in(path)
        return path if (path / 'images').is_dir() and not has_list else None

    def __init__(self, path: Path, image_topic: str = IMAGE_TOPIC) -> None:
        files, stamps = images_in(path / 'images', 'timestamps.txt'), path / 'timestamps.txt'
        if not stamps.exists() and (path / 'times.txt').is_file():
            stamps = path / 'times.txt'
        named = [] if stamps.exists() else stamps_of_names(files)
        if not named and not stamps.exists():
            lines = f"awk 'BEGIN {{for (i = 0; i < {len(files)}; i++) printf \"%.6f\\n\", i / 30}}' > {shlex.quote(str(stamps))}"
            raise BagError(f'{stamps} does not exist: {_stamps_among(files)}write one stamp per image into it, in seconds, in '
                           'order of names; or name each image by its stamp, as 1403636579763555584.png. Of a video with 30 frames '
                           f'a second: {lines}')
        super().__init__(path, image_topic, files, named or read_stamps_of(stamps, files))
        if named:
            self.note_names()
        self.note_kinds()

    @cached_property
    def right(self) -> FolderRecording | None:
        folder, calibration = self.path / 'images_right', self.path / 'calib_right.yaml'
        if not folder.is_dir():
            return None
        camera = replace(load_intrinsics(calibration), shift_m=load_baseline(calibration)) if calibration.exists() else None
        return RightFolder(self, images_in(folder, 'timestamps.txt'), camera)

    @cached_property
    def depth(self) -> FolderRecording | None:
        folder = self.path / 'depth'
        return DepthFolder(self, images_in(folder, 'timestamps.txt')) if folder.is_dir() else None


class TumFolder(FolderRecording):
    """rgb.txt (stamp, file), rgb/, groundtruth.txt: the TUM RGB-D benchmark. It has no calibration: add a calib.yaml.

    Recordings of event cameras have images.txt in its place, and calib.txt; UZH-FPV has left_images.txt (number, stamp, file).
    ICL-NUIM has associations.txt (stamp, file, stamp, depth file, or the other way round), ETH3D calibration.txt.
    depth.txt (stamp, file) lists depth images of 5000 to a metre, with stamps of their own.
    OpenLORIS has color.txt and aligned_depth.txt, in millimetres; its depth.txt is of the depth camera.
    """

    @staticmethod
    def find(path: Path) -> Path | None:
        return path if _list_in(path) else None

    def __init__(self, path: Path, image_topic: str) -> None:
        super().__init__(path, image_topic, *_listed(path, _list_in(path), path, parse_stamp))
        names = (self.calibration, 'calib.txt', 'calibration.txt')
        self.calibration = next((name for name in names if (path / name).exists()), names[1])

    @cached_property
    def depth(self) -> FolderRecording | None:
        own = _list_in(self.path)
        depths, per_metre = ('aligned_depth.txt', None) if own == 'color.txt' else ('depth.txt', TUM_PER_METRE)
        listing = depths if (self.path / depths).is_file() else own
        files, stamps = _listed(self.path, listing, self.path, parse_stamp, depth=True)
        return None if files == self.files else DepthFolder(self, files, stamps, per_metre)


class EurocFolder(FolderRecording):
    """data.csv, data/ and sensor.yaml of mav0/cam0, with mav0/state_groundtruth_estimate0, mav0/mocap0 or
    mav0/vicon0: a sequence of EuRoC or TUM-VI. Without data.csv the names of the images are their stamps.

    mav0/cam1 has the right images; T_BS in both sensor.yaml gives the pose between the cameras. TUM-VI has the calibration of all
    in dso/camchain.yaml next to mav0/ instead.
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
        return (path / 'data.csv').is_file() or bool(stamps_of_names(files_in(path / 'data')))

    def __init__(self, path: Path, image_topic: str) -> None:
        if (path / 'data.csv').is_file():
            super().__init__(path, image_topic, *_listed(path, 'data.csv', path / 'data', parse_nanoseconds, ','))
        else:
            super().__init__(path, image_topic, files := files_in(path / 'data'), stamps_of_names(files))
            self.note_names()

    @cached_property
    def intrinsics(self) -> Intrinsics | None:
        path = self._calibration_of(self.path)
        camera = load_intrinsics(path, size=self._size) if split_choice(path)[0].exists() else None
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
        right = find_camera_in_body(self._calibration_of(self._right_path)) if self.path.name == 'cam0' else None
        return None if left is None or right is None else rectifying(np.asarray(np.linalg.solve(left, right), np.float64))

    @cached_property
    def camera_in_body(self) -> Float64 | None:
        return find_camera_in_body(self._calibration_of(self.path))

    def _calibration_of(self, camera: Path) -> Path:
        """sensor.yaml of a camera's folder, or the camera of this name in the file of TUM-VI."""
        own, chain = camera / self.calibration, camera.absolute().parent.with_name('dso') / 'camchain.yaml'
        name, is_chain = camera.absolute().name, chain.is_file() and not own.exists()
        return Path(f'{chain}:{name}') if is_chain and name in camera_names(chain) else own

    def _ground_truth(self) -> Trajectory | None:
        places = (self.path.parent / name / 'data.csv' for name in GROUND_TRUTH)
        path = next((place for place in places if place.is_file()), None)
        return None if path is None else euroc_ground_truth(path)


class StampedFolder(FolderRecording):
    """Images that are named by their stamps, in the folder itself: as of Oxford RobotCar, KAIST Urban, Boreas and nuScenes."""

    @staticmethod
    def find(path: Path) -> Path | None:
        """None in a folder of one of LAYOUTS, which says more of the images; depth images are none of a camera."""
        images = (entry for entry in path.iterdir() if entry.name.lower().endswith(SUFFIXES) and not is_hidden(entry.name))
        if not stamps_of_names([*islice(images, 1)]) or holds_depth(path.name):  # a data set has many images
            return None
        is_whole = not any(map(has_layout, path.absolute().parents[:LEVELS]))
        return path if is_whole and len(stamps_of_names(files_in(path))) > 1 else None

    def __init__(self, path: Path, image_topic: str) -> None:
        super().__init__(path, image_topic, files := files_in(path), stamps_of_names(files))
        self.note_names()


def euroc_ground_truth(path: Path) -> Trajectory:
    """Poses of the body from an EuRoC data.csv; the sensor.yaml next to it has the sensor's pose in the body. Raises BagError."""
    recorded, sensor_in_body = read_quaternions(path, 'euroc'), find_camera_in_body(path.with_name('sensor.yaml'))
    if sensor_in_body is None:
        return recorded
    return Trajectory(recorded.stamps_ns, recorded.poses @ np.linalg.inv(sensor_in_body), recorded.source)


def open_folder(path: Path, image_topic: str = IMAGE_TOPIC) -> FolderRecording | None:
    """The recording of an image folder; None where the folder has none of the layouts. Raises BagError."""
    found = ((layout, layout.find(path)) for layout in (*LAYOUTS, StampedFolder))
    return next((layout(images, image_topic) for layout, images in found if images is not None), None)


def has_layout(path: Path) -> bool:
    """Whether a folder has one of the layouts, whole or not."""
    try:
        return any(layout.find(path) is not None for layout in LAYOUTS)
    except BagError:
        return True


LAYOUTS = (ImagesFolder, TumFolder, KittiFolder, KittiRawFolder, EurocFolder)  # the first that fits counts


def _stamps_among(files: list[Path]) -> str:
    """Advice for people: a text between images that has a later stamp for each of them; empty where there is none."""
    for path in sorted((*files[0].parent.glob('*.txt'), *files[0].parent.glob('*.csv'))):
        with suppress(BagError):
            stamps = read_stamps_of(path, files)
            if len(stamps) == len(files) and all(before < after for before, after in pairwise(stamps)):
                return f'copy {path} there, which has a stamp for each image, or '
    return ''


def _list_in(path: Path) -> str:
    """The name of the list of images in a folder: rgb.txt, or another one whose first line is a stamp and an image; or empty."""
    if (path / 'rgb.txt').is_file():
        return 'rgb.txt'
    return next((name for name in LISTS if begins_list(path / name)), '')


def _listed(home: Path, listing: str, folder: Path, parse: Callable[[str], int],
            separator: str | None = None, *, depth: bool = False) -> tuple[list[Path], list[int]]:
    """The files in `folder` that a listing in `home` names, and their stamps; those of `depth` images where it has both.

    Raises BagError where one lies outside of `home`, through a link too.
    """
    root, rows = home.resolve(), read_list(home / listing, parse, separator, depth=depth)
    for _, name in rows:
        if not (file := (folder / name).resolve()).is_relative_to(root):
            raise BagError(f'{home / listing} names {name!r}, which is {file}, outside of {root}: '
                           'copy what belongs to the recording into its folder')
    return [folder / name for _, name in rows], [stamp for stamp, _ in rows]
