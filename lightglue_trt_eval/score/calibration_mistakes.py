"""Mistakes that calibrations usually have: another focal length, size, principal point, lens, or view of rectified images."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.core.types import Float64

from .mistake import LEAST, Corrected, Mistake, if_changed, without_parameters

MOST_BEND = 1.0  # of a radius
BENT_PX = 5.0  # of a corner of the image by its lens; less can hardly be told from none
MOST_SCALED = 1.5  # logarithm of a factor of K


def mistakes_of_camera(camera: Intrinsics, poses: Float64, other_view: Intrinsics | None = None) -> list[Mistake]:
    """Those of the calibration; `poses` (P, 2, 4, 4) world from camera, of both frames of pairs.

    `other_view`: what the calibration says of rectified images where these are raw by their name, or of raw ones.
    """
    views = {}
    if camera.lens.distorts:
        views['the images have no distortion, as rectified ones: give a calibration without coefficients'] = \
            _undistorted(camera)
    if other_view is not None:
        views[_of_view(other_view)] = other_view
    return [*(without_parameters(reason, Corrected(view.k, poses, view=view)) for reason, view in views.items()),
            *_of_matrix(camera, poses), _of_distortion(camera, poses),
            *([_of_rectification(camera, poses)] if _bent_px(camera) > BENT_PX else [])]


def _of_view(camera: Intrinsics) -> str:
    if camera.lens.distorts:
        return f'the images are not rectified, and K and D of the calibration count instead of P: give them (--camera), {camera}'
    return f'the images are rectified, and P of the calibration counts instead of K and D: give it (--camera), {camera}'


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
    return [Mistake(lambda p: Corrected(with_focal_length(p), poses), [np.zeros(1)], if_changed(of_focal_length)),
            Mistake(lambda p: Corrected(np.diag([*_times(p), *_times(p), 1]) @ k, poses), sizes, if_changed(of_size)),
            Mistake(stretched, [np.zeros(2)], if_changed(of_stretch)),
            Mistake(lambda p: Corrected(moved(p), poses), [np.zeros(2)], if_changed(of_principal_point))]


def _of_rectification(camera: Intrinsics, poses: Float64) -> Mistake:
    """The images were rectified to another K."""
    k, flat = camera.k, _undistorted(camera)

    def rectified(given: Float64) -> Corrected:
        times, (right, down) = _times(given[:1])[0], k[0, 0] * given[1:]
        shift = np.array([[0, 0, k[0, 2] + right], [0, 0, k[1, 2] + down], [0, 0, 0]])
        return Corrected(k * np.diag([times, times, 1]) + shift, poses, view=flat)

    return Mistake(rectified, [np.zeros(3)], if_changed(
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
    return Mistake(lambda bend: Corrected(camera.k, poses, float(bend[0])), [np.zeros(1)], if_changed(
        lambda bend, _: f'{reason} calibrate anew' if abs(bend[0]) < MOST_BEND else ''))
