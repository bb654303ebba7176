"""Calibration files: intrinsics, poses in the body, the distance of a right camera.

A file that describes several cameras is named with one of them: camchain.yaml:cam1.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..core.cameras import Intrinsics
from ..core.types import Float64
from ..utils.errors import BagError
from .calibration_choices import choices, chosen, split_choice
from .calibration_forms import POSE_KEYS, check_baseline
from .calibration_values import values_of


def load_intrinsics(path: Path, rectified: bool = False, size: Callable[[], tuple[int, int]] | None = None) -> Intrinsics:
    """Read intrinsics from a YAML file; docs/evaluation.md lists the forms and their keys.

    Args:
        path: The file; of a file with several cameras FILE:NAME, as in camchain.yaml:cam1.
        rectified: Whether the images are rectified. Then the projection_matrix of a camera_calibration file counts, as P of a
            CameraInfo does; such a file with distortion and without projection_matrix is refused.
        size: Gives width and height of the images, for a file that does not say them.

    Raises BagError that names the file and the key.
    """
    return chosen(path, size).read(rectified)


def camera_names(path: Path, size: Callable[[], tuple[int, int]] | None = None) -> list[str]:
    """The cameras that a file describes; an empty name of one without. Raises BagError."""
    return list(choices(path, size))


def check_size(intrinsics: Intrinsics, height: int, width: int) -> None:
    """Raise BagError unless the intrinsics are for images of `height` x `width` pixels.

    Nothing is scaled: a resized image and a cropped one have the same size and different intrinsics.
    """
    if (intrinsics.height, intrinsics.width) != (height, width):
        swapped = (intrinsics.height, intrinsics.width) == (width, height)
        raise BagError(f'the intrinsics are for {intrinsics.width}x{intrinsics.height} pixels, the images have {width}x{height}: '
                       + 'its width and height are swapped, as where MATLAB has rows first, or the images are rotated; ' * swapped
                       + 'give the calibration of these images (--camera)')


def load_camera_in_body(path: Path) -> Float64:
    """The pose of a camera in the body, (4, 4) body from camera: T_BS of EuRoC, T_cam_imu of Kalibr, or VINS's or ORB-SLAM's.

    Of a file with several cameras `path` is FILE:NAME. Raises BagError, also for a file without a pose.
    """
    camera = chosen(path)
    pose = camera.in_body()
    if pose is None:
        raise BagError(f'{camera.words} does not say where the camera is in the body: it needs {POSE_KEYS}, or T_BS in a YAML file '
                       'of its own, as 16 numbers row by row, body from camera')
    return pose


def find_camera_in_body(path: Path) -> Float64 | None:
    """As `load_camera_in_body`; None where the file does not exist, or has no pose. Raises BagError."""
    return chosen(path).in_body() if split_choice(path)[0].exists() else None


def load_baseline(path: Path) -> float:
    """baseline_m in the calib.yaml of a right camera: metres along x from the left camera. Raises BagError."""
    try:
        return check_baseline(float(values_of(path)['baseline_m']), 'baseline_m')
    except KeyError:
        raise BagError(f'{path} has no baseline_m, the metres between left and right camera') from None
    except (TypeError, ValueError) as error:
        raise BagError(f'{path}: {error}; baseline_m has the metres between left and right camera') from None
