"""Pairs as cv2.stereoCalibrate and stereoRectify give them, with the keys of many scripts."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np

from ..core.types import Float64
from .calibration_shapes import flat
from .export_tables import Cameras, Tools, Values

_SIDES = ('1', '2'), ('0', '1'), ('left', 'right'), ('Left', 'Right'), ('l', 'r'), ('L', 'R')  # in the keys of a pair
_OF_PAIRS = (('K', 'M', 'mtx', 'cameraMatrix', 'camera_matrix', 'camera_mat', 'intrinsics', 'intrinsic'),
             ('D', 'dist', 'distCoeffs', 'dist_coeffs', 'distortion_coefficients', 'distortion', 'dist_coefs'))
_ROTATIONS = 'R', 'rot', 'rotation', 'rotation_matrix', 'R_stereo', 'rotationMatrix', 'rotMatrix'  # right from left
_TRANSLATIONS = 'T', 'trans', 'translation', 'translation_vector', 'T_stereo', 'translationVector', 'transVector'
_RECTIFYING = ('size', *_ROTATIONS, *_TRANSLATIONS, 'E', 'F', 'R1', 'R2', 'P1', 'P2', 'Q')  # of stereoCalibrate and stereoRectify


def _opencv_keys(values: Values) -> list[tuple[str, str]]:
    """The keys of matrix and coefficients, of the first camera and of the second; empty where there are no such."""
    for sides in _SIDES:
        found = [[key for stem in stems for key in (f'{stem}{side}', f'{stem}_{side}', f'{side}_{stem}') if key in values][:1]
                 for side in sides for stems in _OF_PAIRS]
        if all(found):
            keys = [key for each in found for key in each]
            return [(keys[0], keys[1]), (keys[2], keys[3])]
    return []


def _opencv_pair(values: Values) -> Cameras:
    """The pair of cv2.stereoCalibrate: two matrices, two lists of coefficients, and R and T, right from left."""
    pair = _opencv_keys(values)
    common = {key: value for key, value in values.items() if key not in {*pair[0], *pair[1], *_RECTIFYING}}
    if isinstance(values.get('size'), list):
        common['image_size'] = values['size']
    left, right = (dict(flat({**common, 'camera_matrix': values[k], 'dist_coeffs': values[d]})) for k, d in pair)
    return {0: left, 1: right | step_of_pair(values)}


def step_of_pair(values: Values) -> dict[str, Any]:
    """T_cn_cnm1 of the second camera by R and T of cv2.stereoCalibrate; empty without them."""
    rotation, translation = (_numbers_of(values, keys) for keys in (_ROTATIONS, _TRANSLATIONS))
    if rotation.size not in (3, 9) or translation.size != 3:
        return {}
    rotation = np.asarray(cv2.Rodrigues(rotation)[0] if rotation.size == 3 else rotation.reshape(3, 3))
    return {'T_cn_cnm1': np.column_stack([rotation, translation]).tolist()}


def sides_of(values: Values) -> Cameras:
    """The raw pair that ORB-SLAM2 and AirVO rectify, by LEFT.K, LEFT.D, LEFT.R and LEFT.P; a size may be of both cameras."""
    cameras: Cameras = {}
    for side in ('LEFT', 'RIGHT'):
        own = {name.removeprefix(f'{side}.'): value for name, value in values.items() if name.startswith(f'{side}.')}
        size = {f'image_{name}': own.get(name, values.get(f'image_{name}')) for name in ('width', 'height')}
        d = _numbers_of(own, ('D',)).tolist()
        lens = 'equidistant' if values.get('distortion_type') == 1 else 'radtan'
        cameras[side.lower()] = {
            **{name: each for name, each in size.items() if each is not None}, 'camera_matrix': own.get('K'),
            'distortion_model': lens, 'distortion_coefficients': d[:4] if lens == 'equidistant' and d[4:] == [0] else d,
            **{name: own[key] for key, name in (('R', 'rectification_matrix'), ('P', 'projection_matrix')) if key in own}}
    return cameras


def _numbers_of(values: Values, keys: tuple[str, ...]) -> Float64:
    """(n,) of the first of `keys` that is there; empty without any."""
    value: Any = next((values[key] for key in keys if key in values), [])
    return np.ravel(value['data'] if isinstance(value, dict) else value).astype(np.float64)


TOOLS: Tools = (
    (lambda values: {'LEFT.K', 'RIGHT.K'}.issubset(values) and 'Camera.fx' not in values, sides_of),
    (_opencv_keys, _opencv_pair))
