"""Mistakes that ground truths usually have: inverted poses, quaternions in another order, and frames other than the camera's."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np

from lightglue_trt_ros.core.types import Float64
from lightglue_trt_ros.datasets.poses import OPTICAL_IN_LINK, poses_from, quaternions_from_rotations

from .mistake import Corrected, Mistake, always, if_changed, is_changed, without_parameters

MOST_AWAY_M = 5.0  # of a camera from the point that poses are of
OFF_AXES = 0.1  # of a rotation from one that swaps axes
DIRECTIONS = ('right', 'left'), ('down', 'up'), ('forward', 'backward')  # of a camera's x, y and z, and against them
BODIES = (  # axes, frame from camera, of frames that poses usually are of
    OPTICAL_IN_LINK,  # ROS
    np.array([[0.0, 0, 1], [1, 0, 0], [0, 1, 0]]),  # aircraft: x forward, z down
    np.diag([1.0, -1, -1]))  # OpenGL
ORDERS = {'w, x, y, z': [1, 2, 3, 0], 'x, y, z, w': [3, 0, 1, 2]}  # of quaternions that were read in the other one
INVERT = 'its poses are camera from world: invert them'


def mistakes_of_conventions(k: Float64, poses: Float64) -> list[Mistake]:
    """Poses (P, 2, 4, 4), world from camera, that were written in another way: models without parameters."""
    inverse, rotations = np.asarray(np.linalg.inv(poses), np.float64), poses.copy()
    rotations[..., :3, :3] = inverse[..., :3, :3]
    models = {INVERT: Corrected(k, inverse),
              'its rotations are camera from world, its positions are not: invert the rotations': Corrected(k, rotations)}
    models |= {reason: Corrected(k, read) for reason, read in reordered(poses).items()}
    return [without_parameters(reason, model) for reason, model in models.items()] + \
        [_of_body(k, poses, axes) for axes in BODIES]


def mistakes_of_frames(k: Float64, poses: Float64) -> list[Mistake]:
    """Poses (P, 2, 4, 4) of another point than the camera, or of a frame with other axes."""
    return [_of_place(k, poses), _of_positions(k, poses), _of_mounting(k, poses)]


def _of_body(k: Float64, poses: Float64, axes: Float64) -> Mistake:
    """Poses of a frame with usual `axes` (3, 3), frame from camera: about a motion that is straight, a fit knows no rotation."""
    changed = poses.copy()
    changed[..., :3, :3] = poses[..., :3, :3] @ axes
    return Mistake(partial(always, Corrected(k, changed)), [np.zeros(0)], lambda _, is_reversed: '' if is_reversed else
                   of_axes(axes, are_known=True))


def reordered(poses: Float64) -> dict[str, Float64]:
    """Poses (P, 2, 4, 4) with their quaternions read in another order, by what would be wrong then."""
    flat = poses.reshape(-1, 4, 4)
    quaternions = quaternions_from_rotations(flat[:, :3, :3])
    return {f'its quaternions are {order}: name its columns':
            poses_from(flat[:, :3, 3], quaternions[:, columns]).reshape(poses.shape) for order, columns in ORDERS.items()}


def between(poses: Float64) -> Float64:
    """Rotations (P, 3, 3) of second cameras from first ones, by poses (P, 2, 4, 4), world from camera."""
    return np.asarray(poses[:, 1, :3, :3].transpose(0, 2, 1) @ poses[:, 0, :3, :3], np.float64)


def _of_place(k: Float64, poses: Float64) -> Mistake:
    """The poses are those of a point beside the camera."""
    step = float(np.median(np.linalg.norm(poses[:, 0, :3, 3] - poses[:, 1, :3, 3], axis=1)))

    def moved(place: Float64) -> Corrected:
        changed = poses.copy()
        changed[..., :3, 3] += step * poses[..., :3, :3] @ place
        return Corrected(k, changed)

    def reason(place: Float64, _: bool) -> str:
        away = step * float(np.linalg.norm(place))
        return (f'the camera is {away:.2f} m away from the point that the poses are of, in axes of the camera at '
                f'{", ".join(f"{each:.2f}" for each in step * place)}: give its place (--camera-in-body)'
                if away < MOST_AWAY_M else '')

    return Mistake(moved, [np.zeros(3)], if_changed(reason))


def _of_positions(k: Float64, poses: Float64) -> Mistake:
    def rotated(vector: Float64) -> Corrected:
        changed = poses.copy()
        changed[..., :3, 3] = poses[..., :3, 3] @ _rotation(vector).T
        return Corrected(k, changed)

    return Mistake(rotated, _quarter_turns(), lambda vector, is_reversed: '' if not is_reversed and not is_changed(vector) else
                   f'its positions {"are mirrored or " * is_reversed}have other axes than its rotations')


def _of_mounting(k: Float64, poses: Float64) -> Mistake:
    """Rotations of another frame than the camera; a mirrored one looks like a rotation, but for the direction of each step."""
    def rotated(vector: Float64) -> Corrected:
        changed = poses.copy()
        changed[..., :3, :3] = poses[..., :3, :3] @ _rotation(vector)
        return Corrected(k, changed)

    return Mistake(rotated, _quarter_turns(), if_changed(
        lambda vector, is_reversed: _mirrored(vector) if is_reversed else _mounted(vector)), bool)


def _mirrored(vector: Float64) -> str:
    along = int(np.abs(vector).argmax())
    images = ('left to right', 'top to bottom', '')[along]
    return (f'its poses are mirrored along the {"xyz"[along]} axis of the camera, as left-handed ones of Unity and CARLA'
            + (f', or the images are mirrored {images}' if images else ''))


def _mounted(vector: Float64) -> str:
    axes = _rotation(vector)
    if np.abs(axes - np.round(axes)).max() < OFF_AXES and np.trace(axes) < 2:  # by 90 degrees or more
        return of_axes(axes, True)
    return (f'the camera is rotated by {np.degrees(np.linalg.norm(vector)):.0f} degrees against the frame of the poses: say how '
            '(--camera-in-body)')


def of_axes(axes: Float64, are_known: bool) -> str:
    """That poses are of another frame, in words; `axes` (3, 3), frame from camera, are not known by rotations about one axis."""
    signs, found = np.round(axes), ''
    if are_known and swaps(axes):
        words = [DIRECTIONS[int(np.abs(row).argmax())][int(row.sum() < 0)] for row in signs]
        pose = np.eye(4, dtype=np.int64)
        pose[:3, :3] = signs
        found = (f', by its rotations x {words[0]}, y {words[1]}, z {words[2]}, as of a file with the line T_BS: '
                 f'{pose.ravel().tolist()}, where the 4th, 8th and 12th number are its position')
        if signs[2, 2] == 1:
            found += f'; or the images are rotated by {np.degrees(np.arccos(signs[0, 0])):.0f} degrees: rotate them back'
    return f'its poses are of a frame with other axes than the camera: say where the camera is in it (--camera-in-body){found}'


def swaps(axes: Float64) -> bool:
    """Whether a rotation (3, 3) takes axes to other axes."""
    signs = np.round(axes)
    return bool(np.abs(axes - signs).max() < OFF_AXES and np.trace(signs) < 3)


def _rotation(vector: Float64) -> Float64:
    from scipy.spatial.transform import Rotation
    return np.asarray(Rotation.from_rotvec(vector).as_matrix(), np.float64)


def _quarter_turns() -> list[Float64]:
    """Vectors of the 24 rotations that take axes to axes."""
    from scipy.spatial.transform import Rotation
    signed = (np.eye(3)[list(order)] * signs for order in itertools.permutations(range(3))
              for signs in itertools.product((1.0, -1.0), repeat=3))
    return [np.asarray(Rotation.from_matrix(each).as_rotvec(), np.float64) for each in signed if np.linalg.det(each) > 0]
