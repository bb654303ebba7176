"""The left and the right camera of a pair, by one calibration file or two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..core.cameras import Intrinsics
from ..core.types import Float64
from ..utils.errors import BagError, first_of
from .calibration_choices import MOST_NAMED, Choice, choices, chosen, named_camera, split_choice, two_of
from .calibration_forms import check_baseline


def load_pair(path: Path, rectified: bool = False, size: Callable[[], tuple[int, int]] | None = None) \
        -> tuple[Intrinsics, Intrinsics] | None:
    """Left and right camera of a file that describes both and how they stand; FILE:LEFT,RIGHT or FILE,FILE chooses them.

    Of several cameras these are the ones that the file or their names call left and right; of two others, the first is the left.
    None where the file describes one, where `path` chooses one, or where the file does not say how they stand. Raises BagError,
    also where it describes more cameras and no pair.
    """
    first, second = two_of(path)
    file, name = split_choice(first)
    if second and split_choice(Path(second))[0].is_file():
        left, right = (chosen(Path(each), size) for each in (first, second))
        steps = None
    else:
        cameras = {} if name and not second else choices(file, size)
        raw = {} if rectified else {side: only._replace(name=side, camera=camera) for only in cameras.values()
                                    for side, camera in only.camera.raw_pair.items()}
        cameras = raw or cameras
        if len(cameras) < 2 and not second:
            return next((found for each in cameras.values() if (found := _rectified_pair(each, rectified))), None)
        if second and second not in cameras:
            raise BagError(f'{second} is no file, and no camera of {file}: it has {first_of(cameras, MOST_NAMED) or "one"}')
        left, right = [named_camera(file, each, cameras) for each in (name, second)] if second else _pair_of(file, cameras)
        steps = list(cameras.values())
    with right.naming():
        pose = _between(left, right, steps, rectified)
        if pose is None and second:
            raise ValueError(f'it does not say how this camera stands to {left.words}: give poses of both in the body, T_cn_cnm1, '
                             'or rectification_matrix and projection_matrix of both')
        if pose is None:
            return None
        check_baseline(float(np.linalg.norm(pose[:3, 3])), f'the distance between {left.label} and {right.label}')
    *rotations, baseline = rectifying(pose)
    return (replace(left.read(rectified), rectification=rotations[0]),
            replace(right.read(rectified), rectification=rotations[1], shift_m=baseline))


def _rectified_pair(camera: Choice, rectified: bool) -> tuple[Intrinsics, Intrinsics] | None:
    """Both cameras of rectified images by the only one that a file describes with a baseline, as ORB-SLAM2 does; None without."""
    with camera.naming():
        baseline = camera.camera.baseline()
        if baseline is None:
            return None
        check_baseline(baseline, 'the baseline')
    left = camera.read(rectified)
    return None if left.lens.distorts else (left, replace(left, shift_m=baseline))


def _pair_of(file: Path, cameras: dict[str, Choice]) -> list[Choice]:
    """Left and right camera. Raises BagError where nothing tells which of several they are."""
    sides = [[each for each in cameras.values() if each.camera.side == side] for side in ('left', 'right')]
    if all(len(each) == 1 for each in sides):
        return [each[0] for each in sides]
    if len(cameras) > 2 and any(each.has_pose() for each in cameras.values()):
        raise BagError(f'{file} describes the cameras {first_of(cameras, MOST_NAMED)}, and does not say which are left and right: '
                       f'name both, as {file}:{",".join(list(cameras)[:2])}')
    return list(cameras.values())[:2]


def _between(left: Choice, right: Choice, cameras: list[Choice] | None, rectified: bool) -> Float64 | None:
    """The pose of `right` in `left` (4, 4), by the steps between the `cameras` of their file, or else by what both say."""
    if cameras is not None:
        first, last = sorted((cameras.index(left), cameras.index(right)))
        steps = [step for each in cameras[first + 1:last + 1] if (step := each.camera.in_left()) is not None]
        if len(steps) == last - first:
            pose = np.eye(4)
            for step in steps:
                pose = np.asarray(pose @ step, np.float64)
            return pose if cameras[first] is left else np.asarray(np.linalg.inv(pose), np.float64)
    for one, other in ((left.camera.in_body(), right.camera.in_body()),
                       (left.camera.in_rig(rectified), right.camera.in_rig(rectified))):
        if one is not None and other is not None and not np.array_equal(one, other):
            return np.asarray(np.linalg.solve(one, other), np.float64)
    return None


def rectifying(right_in_left: Float64) -> tuple[Float64, Float64, float]:
    """Rotations (3, 3) from the axes of the left and of the right camera to rectified ones, and the baseline in metres.

    `right_in_left` (4, 4), left from right. x goes along the baseline, z is as near to both optical axes as it can be.
    """
    rotation, translation = right_in_left[:3, :3], right_in_left[:3, 3]
    baseline = float(np.linalg.norm(translation))
    x = translation / (baseline or 1.0)
    y = np.cross(rotation[:, 2] + [0, 0, 1], x)
    y /= np.linalg.norm(y)
    shared = np.stack([x, y, np.cross(x, y)])
    return shared, shared @ rotation, baseline
