"""Mistakes that calibrations and ground truths usually have, each as the camera and the poses that would be right instead."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.core.types import Float64
from lightglue_trt_ros.datasets.poses import OPTICAL_IN_LINK, poses_from, quaternions_from_rotations

LEAST, MOST_BEND = 0.02, 1.0  # of a change; of a radius
BENT_PX = 5.0  # of a corner of the image by its lens; less can hardly be told from none
MOST_SCALED = 1.5  # logarithm of a factor of K
MOST_AWAY_M = 5.0  # of a camera from the point that poses are of
OFF_AXES = 0.1  # of a rotation from one that swaps axes
DIRECTIONS = ('right', 'left'), ('down', 'up'), ('forward', 'backward')  # of a camera's x, y and z, and against them
BODIES = (  # axes, frame from camera, of frames that poses usually are of
    OPTICAL_IN_LINK,  # ROS
    np.array([[0.0, 0, 1], [1, 0, 0], [0, 1, 0]]),  # aircraft: x forward, z down
    np.diag([1.0, -1, -1]))  # OpenGL
ORDERS = {'w, x, y, z': [1, 2, 3, 0], 'x, y, z, w': [3, 0, 1, 2]}  # of quaternions that were read in the other one
INVERT = 'its poses are camera from world: invert them'


class Corrected(NamedTuple):
    """The camera and the true poses, as a mistake would have them."""

    k: Float64  # (3, 3)
    poses: Float64  # (P, 2, 4, 4) world from camera, of both frames of each pair
    bend: float = 0.0  # relative change of a radius that is as long as the focal length
    view: Intrinsics | None = None  # whose distortion the points have; None: that of the calibration


class Mistake(NamedTuple):
    """A family of models."""

    model: Callable[[Float64], Corrected]
    starts: list[Float64]  # (n,) parameters; those of n = 0 are not fitted
    reason: Callable[[Float64, bool], str]  # in words, of parameters and whether true steps are reversed; empty: no reason
    is_surer: Callable[[bool], bool] = lambda is_reversed: False  # than what rotations tell, if true steps are reversed or not


def mistakes(camera: Intrinsics, poses: Float64, other_view: Intrinsics | None = None) -> list[Mistake]:
    """Those that are usual; `poses` (P, 2, 4, 4) world from camera, of both frames of pairs.

    `other_view`: what the calibration says of rectified images where these are raw by their name, or of raw ones.
    """
    k = camera.k
    return [*_of_poses(k, poses), *mistakes_of_camera(camera, poses, other_view), _of_place(k, poses), _of_positions(k, poses),
            _of_mounting(k, poses)]


def mistakes_of_camera(camera: Intrinsics, poses: Float64, other_view: Intrinsics | None = None) -> list[Mistake]:
    """Those of the calibration."""
    views = {}
    if camera.lens.distorts:
        views['the images have no distortion, as rectified ones: give a calibration without coefficients'] = \
            _undistorted(camera)
    if other_view is not None:
        views[_of_view(other_view)] = other_view
    return [*(_without_parameters(reason, Corrected(view.k, poses, view=view)) for reason, view in views.items()),
            *_of_matrix(camera, poses), _of_distortion(camera, poses),
            *([_of_rectification(camera, poses)] if _bent_px(camera) > BENT_PX else [])]


def _of_poses(k: Float64, poses: Float64) -> list[Mistake]:
    """Those without parameters."""
    inverse, rotations = np.asarray(np.linalg.inv(poses), np.float64), poses.copy()
    rotations[..., :3, :3] = inverse[..., :3, :3]
    models = {INVERT: Corrected(k, inverse),
              'its rotations are camera from world, its positions are not: invert the rotations': Corrected(k, rotations)}
    models |= {reason: Corrected(k, read) for reason, read in reordered(poses).items()}
    return [_without_parameters(reason, model) for reason, model in models.items()] + \
        [_of_body(k, poses, axes) for axes in BODIES]


def _without_parameters(reason: str, model: Corrected) -> Mistake:
    return Mistake(partial(_always, model), [np.zeros(0)], partial(_always, reason), lambda _: True)


def _of_body(k: Float64, poses: Float64, axes: Float64) -> Mistake:
    """Poses of a frame with usual `axes` (3, 3), frame from camera: about a motion that is straight, a fit knows no rotation."""
    changed = poses.copy()
    changed[..., :3, :3] = poses[..., :3, :3] @ axes
    return Mistake(partial(_always, Corrected(k, changed)), [np.zeros(0)], lambda _, is_reversed: '' if is_reversed else
                   of_axes(axes, are_known=True))


def _of_view(camera: Intrinsics) -> str:
    if camera.lens.distorts:
        return f'the images are not rectified, and K and D of the calibration count instead of P: give them (--camera), {camera}'
    return f'the images are rectified, and P of the calibration counts instead of K and D: give it (--camera), {camera}'


def _always(given: Any, *_: object) -> Any:
    return given


def reordered(poses: Float64) -> dict[str, Float64]:
    """Poses (P, 2, 4, 4) with their quaternions read in another order, by what would be wrong then."""
    flat = poses.reshape(-1, 4, 4)
    quaternions = quaternions_from_rotations(flat[:, :3, :3])
    return {f'its quaternions are {order}: name its columns':
            poses_from(flat[:, :3, 3], quaternions[:, columns]).reshape(poses.shape) for order, columns in ORDERS.items()}


def between(poses: Float64) -> Float64:
    """Rotations (P, 3, 3) of second cameras from first ones, by poses (P, 2, 4, 4), world from camera."""
    return np.asarray(poses[:, 1, :3, :3].transpose(0, 2, 1) @ poses[:, 0, :3, :3], np.float64)


def _of_matrix(camera: Intrinsics, poses: Float64) -> list[Mistake]:
    """Another focal length, image size or principal point."""
    k = camera.k

    def with_focal_length(scale: Float64) -> Float64:
        times = _times(scale)[0]
        return np.asarray(k * np.array([[times, 1, 1], [1, times, 1], [1, 1, 1]]), np.float64)

    def moved(shift: Float64) -> Float64:
        return np.asarray(k + k[0, 0] * np.array([[0, 0, shift[0]], [0, 0, shift[1]], [0, 0, 0]]), np.float64)

    def of_focal_length(scale: Float64, _: bool) -> str:
        return (f'the focal length is {with_focal_length(scale)[0, 0]:.0f} px instead of {k[0, 0]:.0f}, as of images that were '
                'cropped or zoomed, or taken under water: calibrate anew')

    def of_size(scale: Float64, _: bool) -> str:
        return f'K is that of images {1 / _times(scale)[0]:.2f} times as large: give the calibration of this size'

    def of_principal_point(shift: Float64, _: bool) -> str:
        (cx, cy), (old_cx, old_cy) = moved(shift)[:2, 2], k[:2, 2]
        return (f'the principal point is {cx:.0f}, {cy:.0f} instead of {old_cx:.0f}, {old_cy:.0f}, as of images whose edges were '
                'cropped: calibrate anew' if 0 < cx < camera.width and 0 < cy < camera.height else '')

    def stretched(scales: Float64) -> Corrected:
        return Corrected(np.diag([*_times(scales), 1]) @ k, poses)

    def of_stretch(scales: Float64, _: bool) -> str:
        wide, high = 1 / _times(scales)
        return '' if abs(scales[0] - scales[1]) < LEAST else \
            f'K is that of images {wide:.2f} times as wide and {high:.2f} times as high: give the calibration of this size'

    sizes = [np.array([each]) for each in (-0.7, 0.0, 0.7)]
    return [Mistake(lambda p: Corrected(with_focal_length(p), poses), [np.zeros(1)], _if_changed(of_focal_length)),
            Mistake(lambda p: Corrected(np.diag([*_times(p), *_times(p), 1]) @ k, poses), sizes, _if_changed(of_size)),
            Mistake(stretched, [np.zeros(2)], _if_changed(of_stretch)),
            Mistake(lambda p: Corrected(moved(p), poses), [np.zeros(2)], _if_changed(of_principal_point))]


def _of_rectification(camera: Intrinsics, poses: Float64) -> Mistake:
    """The images were rectified to another K."""
    k, flat = camera.k, _undistorted(camera)

    def rectified(given: Float64) -> Corrected:
        times, (right, down) = _times(given[:1])[0], k[0, 0] * given[1:]
        shift = np.array([[0, 0, k[0, 2] + right], [0, 0, k[1, 2] + down], [0, 0, 0]])
        return Corrected(k * np.diag([times, times, 1]) + shift, poses, view=flat)

    return Mistake(rectified, [np.zeros(3)], _if_changed(
        lambda given, _: f'the images have no distortion, and a focal length of {rectified(given).k[0, 0]:.0f} px instead of '
                         f'{k[0, 0]:.0f}, as rectified ones: give their own calibration (P, not K and D)'))


def _undistorted(camera: Intrinsics) -> Intrinsics:
    return replace(camera, d=np.zeros(5), distortion_model='plumb_bob')


def _bent_px(camera: Intrinsics) -> float:
    """How far the lens moves a corner of the image."""
    corner = np.zeros((1, 2))
    return float(np.nan_to_num(np.linalg.norm(camera.lens.undistorted(corner).points - corner), nan=np.inf))


def _times(scales: Float64) -> Float64:
    """Factors of a K: without a limit, distances would vanish with the focal length."""
    return np.asarray(np.exp(np.clip(scales, -MOST_SCALED, MOST_SCALED)), np.float64)


def _of_distortion(camera: Intrinsics, poses: Float64) -> Mistake:
    reason = 'the distortion is another one than that of the calibration: check the model and the order of its coefficients, or' \
        if camera.lens.distorts else 'the images are distorted, and the calibration has no coefficients:'
    return Mistake(lambda bend: Corrected(camera.k, poses, float(bend[0])), [np.zeros(1)], _if_changed(
        lambda bend, _: f'{reason} calibrate anew' if abs(bend[0]) < MOST_BEND else ''))


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

    return Mistake(moved, [np.zeros(3)], _if_changed(reason))


def _of_positions(k: Float64, poses: Float64) -> Mistake:
    def rotated(vector: Float64) -> Corrected:
        changed = poses.copy()
        changed[..., :3, 3] = poses[..., :3, 3] @ _rotation(vector).T
        return Corrected(k, changed)

    return Mistake(rotated, _quarter_turns(), lambda vector, is_reversed: '' if not is_reversed and not _changed(vector) else
                   f'its positions {"are mirrored or " * is_reversed}have other axes than its rotations')


def _of_mounting(k: Float64, poses: Float64) -> Mistake:
    """Rotations of another frame than the camera; a mirrored one looks like a rotation, but for the direction of each step."""
    def rotated(vector: Float64) -> Corrected:
        changed = poses.copy()
        changed[..., :3, :3] = poses[..., :3, :3] @ _rotation(vector)
        return Corrected(k, changed)

    return Mistake(rotated, _quarter_turns(), _if_changed(
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


def _changed(parameters: Float64) -> bool:
    return bool(np.abs(parameters).max() > LEAST)


def _if_changed(reason: Callable[[Float64, bool], str]) -> Callable[[Float64, bool], str]:
    return lambda parameters, is_reversed: reason(parameters, is_reversed) if _changed(parameters) else ''


def _rotation(vector: Float64) -> Float64:
    from scipy.spatial.transform import Rotation
    return np.asarray(Rotation.from_rotvec(vector).as_matrix(), np.float64)


def _quarter_turns() -> list[Float64]:
    """Vectors of the 24 rotations that take axes to axes."""
    from scipy.spatial.transform import Rotation
    signed = (np.eye(3)[list(order)] * signs for order in itertools.permutations(range(3))
              for signs in itertools.product((1.0, -1.0), repeat=3))
    return [np.asarray(Rotation.from_matrix(each).as_rotvec(), np.float64) for each in signed if np.linalg.det(each) > 0]
