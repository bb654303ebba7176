"""KITTI's folders: sequences of its odometry benchmark, and drives of its raw data with GPS and IMU."""

from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path

import numpy as np

from ..core.cameras import Intrinsics
from ..core.types import Float64
from ..utils.errors import BagError, naming
from ..utils.files import text_of
from .folder_recordings import FolderRecording, RightFolder, images_in, natural
from .pose_files import read_kitti
from .poses import Trajectory
from .sequence import RIGHT_TOPIC
from .stamps import read_stamps

_EARTH_M = 6378137.0  # radius at the equator, of KITTI's devkit


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
        files = images_in(path / f'image_{self._number}', 'times.txt')
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
        return RightFolder(self, images_in(folder, 'times.txt'), None if projection is None else self._camera(projection))

    def _camera(self, projection: Float64) -> Intrinsics:
        return Intrinsics(*self._size(), projection[:, :3], 'plumb_bob', np.zeros(5), shift_m=-float(_offset_of(projection)[0]),
                          source=str(self.path / 'calib.txt'))

    @cached_property
    def camera_in_body(self) -> Float64 | None:
        if self._projection is None or not self._projection[:, 3].any():
            return None
        camera_in_body = np.eye(4)
        camera_in_body[:3, 3] = -_offset_of(self._projection)
        return camera_in_body

    @cached_property
    def _projection(self) -> Float64 | None:
        return self._projection_of(self._number)

    def _projection_of(self, camera: int) -> Float64 | None:
        path = self.path / 'calib.txt'
        return _numbers(path, f'P{camera}', (3, 4), f'projection of image_{camera}') if path.exists() else None

    def _ground_truth(self) -> Trajectory | None:
        here = self.path.resolve()
        places = (here / 'poses.txt', here.parent.parent / 'poses' / f'{here.name}.txt')
        path = next((place for place in places if place.is_file()), None)
        return None if path is None else read_kitti(path, self.stamps_ns)


def _offset_of(projection: Float64) -> Float64:
    """(3,) of a camera by its projection (3, 4): its x is that of camera 0 plus this."""
    return np.asarray(np.linalg.solve(projection[:, :3], projection[:, 3]), np.float64)


def _kitti_camera(path: Path) -> int | None:
    return next((number for number in (0, 2) if (path / f'image_{number}').is_dir()), None)


class KittiRawFolder(FolderRecording):
    """image_00/ or image_02/ with data/ and timestamps.txt, and oxts/: a drive of KITTI's raw data, or one of KITTI-360.

    The files calib_*.txt are in the folder of the day, above that of the drive, or in the latter. Ground truth is that of GPS and
    IMU, which these move into the camera. image_01/ and image_03/ are the right images of rectified ones.
    """

    kind = 'oxts'

    @staticmethod
    def find(path: Path) -> Path | None:
        cameras = (path / 'image_00', path / 'image_02', *[path] * path.name.startswith('image_0'))
        return next((each for each in cameras if _data_in(each).is_dir() and (each / 'timestamps.txt').is_file()), None)

    def __init__(self, path: Path, image_topic: str) -> None:
        super().__init__(path, image_topic, images_in(_data_in(path), 'timestamps.txt'), read_stamps(path / 'timestamps.txt'))
        names = [f'calib_{name}.txt' for name in ('imu_to_velo', 'velo_to_cam', 'cam_to_cam')]
        drive = path.resolve().parent
        self._oxts, self._camera = drive / 'oxts', path.resolve().name.removeprefix('image_')
        self._day = drive if any((drive / name).is_file() for name in names) else drive.parent
        missing = [name for name in names if not (self._day / name).is_file()]
        self._is_placed = not missing
        if missing and self._oxts.is_dir():
            self.notes = (f'{self._oxts} has the poses of the IMU, and {self._day} no {", ".join(missing)}: no ground truth is '
                          'taken from it. Add these files of KITTI, or say where the camera is in the IMU (--camera-in-body)',)

    @cached_property
    def intrinsics(self) -> Intrinsics | None:
        if not (self._day / 'calib_cam_to_cam.txt').is_file():
            return super().intrinsics
        source = f'{self._day / "calib_cam_to_cam.txt"}, camera {self._camera}, {"" if self._is_rectified else "not "}rectified'
        if not self._is_rectified:
            return Intrinsics(*self._size(), self._of_cameras('K', (3, 3)), 'plumb_bob', self._of_cameras('D', (5,)), source=source)
        return Intrinsics(*self._size(), self._of_cameras('P_rect', (3, 4))[:, :3], 'plumb_bob', np.zeros(5),
                          shift_m=-float(self._offset[0]), source=source)

    @cached_property
    def right(self) -> FolderRecording | None:
        folder = self.path.with_name(f'image_{int(self._camera) + 1:02d}')
        if self._camera not in ('00', '02') or not _data_in(folder).is_dir() or not self._is_rectified:
            return None
        other = KittiRawFolder(folder, RIGHT_TOPIC)
        return RightFolder(self, other.files, other.intrinsics, other.stamps_ns)

    @cached_property
    def camera_in_body(self) -> Float64 | None:
        """In the IMU; None without all three files."""
        if not self._is_placed:
            return None
        from_imu, from_lidar = (_rigid(self._day / f'calib_{name}.txt', 'R', 'T') for name in ('imu_to_velo', 'velo_to_cam'))
        if self._is_rectified:
            from_first = np.eye(4)
            from_first[:3, :3], from_first[:3, 3] = self._of_cameras('R_rect', (3, 3), '00'), self._offset
        else:
            from_first = _rigid(self._day / 'calib_cam_to_cam.txt', f'R_{self._camera}', f'T_{self._camera}')
        return np.asarray(np.linalg.inv(from_first @ from_lidar @ from_imu), np.float64)

    @cached_property
    def _is_rectified(self) -> bool:
        """By the size of the images. Raises BagError where it is neither of both."""
        if not (self._day / 'calib_cam_to_cam.txt').is_file():
            return False
        sizes = [tuple(self._of_cameras(name, (2,)).astype(int).tolist()) for name in ('S_rect', 'S')]
        if self._size() not in sizes:
            raise BagError(f'{self._day / "calib_cam_to_cam.txt"} is of images of {sizes}, rectified and raw, those in {self.path} '
                           f'have {self._size()}: give the calibration of their day')
        return self._size() == sizes[0]

    @property
    def _offset(self) -> Float64:
        """(3,) of a rectified camera."""
        return _offset_of(self._of_cameras('P_rect', (3, 4)))

    def _of_cameras(self, name: str, shape: tuple[int, ...], camera: str = '') -> Float64:
        number = camera or self._camera
        return _numbers(self._day / 'calib_cam_to_cam.txt', f'{name}_{number}', shape, f'{name} of camera {number}')

    def ground_truth(self, camera_in_body: Float64 | None = None) -> Trajectory | None:
        """The camera's poses; None where nothing says where it is in the IMU."""
        return None if camera_in_body is None and not self._is_placed else super().ground_truth(camera_in_body)

    def _ground_truth(self) -> Trajectory | None:
        return _of_oxts(self._oxts) if self._oxts.is_dir() else None


def _data_in(camera: Path) -> Path:
    """The folder of a camera's images; KITTI-360 calls it data_rect, or data_rgb where they are a fisheye's."""
    return next((folder for name in ('data_rect', 'data_rgb') if (folder := camera / name).is_dir()), camera / 'data')


def _of_oxts(folder: Path) -> Trajectory:
    """The poses of the IMU (x forward, y left, z up) in metres east, north and up of the first, as KITTI's devkit computes them."""
    files, stamps = sorted((folder / 'data').glob('*.txt'), key=natural), read_stamps(folder / 'timestamps.txt')
    if len(files) != len(stamps) or not files:
        raise BagError(f'{folder} has {len(stamps)} stamps and {len(files)} files of data: they must be as many')
    latitude, longitude, up, *angles = np.array([_oxts(file) for file in files]).T
    scale = _EARTH_M * np.cos(np.radians(latitude[0]))  # of Mercator's projection, where the drive begins
    poses = np.tile(np.eye(4), (len(files), 1, 1))
    poses[:, :3, 3] = np.column_stack([scale * np.radians(longitude), scale * np.log(np.tan(np.radians(45 + latitude / 2))), up])
    poses[:, :3, 3] -= poses[0, :3, 3].copy()
    poses[:, :3, :3] = _about(2, angles[2]) @ _about(1, angles[1]) @ _about(0, angles[0])
    return Trajectory(np.array(stamps, np.int64), poses, f'{folder} (GPS and IMU, by Mercator)')


def _oxts(file: Path) -> list[float]:
    """Latitude and longitude in degrees, altitude in metres, roll, pitch and yaw in radians. Raises BagError."""
    with naming(file):
        try:
            values = [float(word) for word in text_of(file).split()[:6]]
        except OSError as error:
            raise BagError(f'it cannot be read: {error}') from None
        if len(values) < 6 or not abs(values[0]) < 90 or not abs(values[1]) <= 360 or max(map(abs, values[3:])) > 2 * np.pi:
            raise BagError(f'it begins with {values}: latitude, longitude (degrees), altitude (metres), roll, pitch and yaw '
                           '(radians) are needed')
    return values


def _about(axis: int, angles: Float64) -> Float64:
    """Rotations (N, 3, 3) about an axis by angles (N,) in radians."""
    first, second = (axis + 1) % 3, (axis + 2) % 3
    rotations = np.tile(np.eye(3), (len(angles), 1, 1))
    rotations[:, first, first] = rotations[:, second, second] = np.cos(angles)
    rotations[:, second, first] = np.sin(angles)
    rotations[:, first, second] = -np.sin(angles)
    return rotations


def _rigid(path: Path, rotation: str, translation: str) -> Float64:
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = (_numbers(path, name, shape, 'part of a pose')
                                     for name, shape in ((rotation, (3, 3)), (translation, (3,))))
    return matrix


def _numbers(path: Path, name: str, shape: tuple[int, ...], what: str) -> Float64:
    """What stands behind NAME: in a calibration file of KITTI. Raises BagError."""
    try:
        rows = dict(line.split(':', 1) for line in text_of(path).splitlines() if ':' in line)
        return np.array([float(word) for word in rows[name].split()], np.float64).reshape(shape)
    except KeyError:
        raise BagError(f'{path} has no {name}, the {what}') from None
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise BagError(f'{path}, {name}: {error}; it needs the {math.prod(shape)} numbers of the {what}') from None
