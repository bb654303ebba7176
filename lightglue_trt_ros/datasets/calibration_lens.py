"""The lens of a camera in a calibration file: the names of its model, and its coefficients. Errors are ValueError and KeyError."""

from __future__ import annotations

import re

import numpy as np

from ..core.cameras import FISHEYE, POLYNOMIAL, Intrinsics
from .calibration_fields import OTHER_LENSES, Fields
from .fitted_lenses import LISTED, PARAMETERS

OTHERS = ('inverse_brown_conrady', 'modified_brown_conrady')  # RealSense's own lenses: their coefficients mostly are zero
MODELS = {  # names of a camera's model in files, small letters, and the lens that they stand for; '' where another key names it
    '': '', 'pinhole': '', 'perspective': '', 'opencv': 'plumb_bob', 'kannalabrandt8': 'equidistant',
    'opencv_fisheye': 'equidistant', 'fisheye': 'equidistant', 'rectified': 'none', 'none': 'none', 'brown_conrady': 'plumb_bob',
    'kannala_brandt4': 'equidistant', 'equidistant': 'equidistant', 'plumb_bob': 'plumb_bob', 'radtan': 'radtan',
    'radial_tangential': 'radtan', 'kb4': 'equidistant', 'simple_pinhole': '', 'simple_radial': 'plumb_bob', 'radial': 'plumb_bob',
    'standard': 'plumb_bob', 'rational': 'rational_polynomial',  # multical's
    'rational_polynomial': 'rational_polynomial', 'double_sphere': 'ds', 'mei': 'omni', 'atan': 'fov',
    **{name: name for name in (*OTHERS, *PARAMETERS, *LISTED)}}
LENS_KEYS = ('calibration_model', 'projection_model', 'projection_type', 'lens_model', 'lens_type', 'camera_type', 'cam_type',
             'type')  # may name a lens of MODELS; other words, as of products, do not count
FISHEYE_KEYS = ('fisheye_model', 'is_fisheye', 'use_fisheye', 'fisheye')  # are true for equidistant
MODEL_KEYS = ('distortion_model', 'distortion_type', 'distortion')
COEFFICIENTS = ('distortion_coefficients', 'distortion_coeffs', 'distortion_coefs', 'dist_coeffs', 'dist_coefs', 'dist_coeff',
                'distcoeff', 'distcoeffs', 'dist', 'd', 'coeffs', 'camera_dist_coeffs', 'distortioncoefficients', 'distortioncoeff',
                'distortion_coefficient', 'dist_coefficients', 'distortion_params', 'dist_params', 'distcoef', 'coefficients',
                'cam_dist', 'kc', 'k0123')
INNER_COEFFICIENTS = ('params', 'parameters', 'values')  # inside of a mapping of distortion
FLAT = ('k1', 'k2', 'p1', 'p2', 'k3', 'k4', 'k5', 'k6')  # in the order of OpenCV's vector
MOST_TANGENTIAL = 0.02  # of real lenses; cv2.fisheye's files name no model, and its third and fourth coefficient are larger
WIDE = 1.2  # tangent of the angle to a corner, 50 degrees: of lenses with four coefficients and no model mostly fisheyes see more


def doubt_of_lens(camera: Intrinsics) -> str:
    """That a polynomial may have the coefficients of a fisheye, as drivers of RealSense's T265 named them, or empty."""
    wide = float(np.hypot(camera.width / camera.k[0, 0], camera.height / camera.k[1, 1])) / 2
    has_four = camera.distortion_model in POLYNOMIAL and not camera.d[4:].any()
    if not has_four or wide <= WIDE or np.abs(camera.d[2:4]).max(initial=0.0) <= MOST_TANGENTIAL:
        return ''
    return (f'D = {camera.d.tolist()} of {camera.distortion_model} has tangential coefficients above {MOST_TANGENTIAL}, and K sees '
            f'{2 * np.degrees(np.arctan(wide)):.0f} degrees from corner to corner: it may be that of a fisheye, as of a T265. Then '
            'give distortion_model: equidistant (--camera)')


def camera_model(fields: Fields, *names: str) -> str:
    """The lens that a camera's model stands for, '' where another key names it. Raises ValueError for other models."""
    for name in names:
        model = fields.text(name)
        lens = MODELS.get(re.sub('[ -]', '_', model.lower().removeprefix('distortion.')))  # RealSense's: distortion.brown_conrady
        if lens is None:
            raise ValueError(f'{fields.whole(name)}: {model}, and only {fields.whole(name)}: pinhole can be used: {_advice(model)}')
        if lens:
            return lens
    if any(fields.text(name) for name in MODEL_KEYS if not fields.is_listed(name)):
        return ''
    for name in (name for name in LENS_KEYS if not fields.is_listed(name)):
        model = fields.text(name).lower()
        if lens := MODELS.get(re.sub('[ -]', '_', model), ''):
            return lens
        if OTHER_LENSES.search(model):
            raise ValueError(f'{fields.whole(name)}: {model}, and only plumb_bob, rational_polynomial and equidistant are read: '
                             f'name one of these if it is that, else {_advice(model)}')
    return ''


def _advice(model: str) -> str:
    if model.lower() == 'kannala_brandt':
        return ('write k2, k3, k4, k5 as dist and mu, mv, u0, v0 as fx, fy, cx, cy of a calib.yaml with distortion: equidistant')
    product = '' if OTHER_LENSES.search(model.lower()) else '; if it names a product, remove the line'
    return f'undistort the images, or calibrate anew with pinhole and radtan or equidistant{product}'


def lens_of(fields: Fields, model: str = '', wide: float = 0.0) -> tuple[str, list[float]]:
    """Model and coefficients: a list, or k1, k2, p1, p2, k3 ... by name. Raises ValueError, KeyError.

    `wide` is the tangent of the angle from the middle of the image to its corner, by K.
    """
    key, word = next((name for name in MODEL_KEYS if not fields.is_listed(name) and fields.text(name)), None), ''
    if not model and key is not None:
        word = re.split(r'[\s(,;]', fields.text(key).lower(), maxsplit=1)[0]  # calibrations have `none (rectified)`
        model = 'equidistant' if word.startswith(FISHEYE[:2]) else word
    elif not model and any(map(fields.is_true, FISHEYE_KEYS)):
        model = 'equidistant'
    name = next((name for name in (*COEFFICIENTS, 'distortion') if fields.is_listed(name)), None)
    if name is not None and not fields.is_named(name):
        d = fields.numbers(name)
        if not model and len(d) == 4 and max(map(abs, d[2:])) > MOST_TANGENTIAL:
            raise ValueError(f'{fields.whole(name)}: {d} are of a fisheye by the last two, tangential ones are below '
                             f'{MOST_TANGENTIAL}: name the model, distortion_model: equidistant or plumb_bob')
        if not model and len(d) == 4 and any(d[2:]) and wide > WIDE:
            raise ValueError(f'{fields.whole(name)}: {d} without a model, and K sees {2 * np.degrees(np.arctan(wide)):.0f} degrees '
                             'from corner to corner: mostly that is a fisheye. Name the model, distortion_model: equidistant or '
                             'plumb_bob')
    elif name is not None:
        inner = fields.inner(name)
        model = model or camera_model(inner, 'model', 'type', *MODEL_KEYS)
        word = word or inner.text('type').lower()
        d = _inner_list(inner) or _by_name(inner, model)
        inner.check_all_read(is_lens=True)
    else:
        d = _by_name(fields, model)
    if not d and (model == 'equidistant' or (name is None and key is not None and model not in ('none', 'pinhole', 'perspective'))):
        raise KeyError(f'{fields.prefix}{fields.first(*COEFFICIENTS) or COEFFICIENTS[0]}')
    if model == 'equidistant' and len(d) == 6 and not any(d[2:4]):  # RTAB-Map leaves two zeros for tangential ones
        d = d[:2] + d[4:]
    if word == 'fisheye' and len(d) == 1:  # as maplab and SVO call it
        model = 'fov'
    return model or ('rational_polynomial' if len(d) >= 8 else 'plumb_bob'), d


def _inner_list(fields: Fields) -> list[float]:
    """The coefficients in a mapping of distortion, where they are a list."""
    name = next((name for name in (*COEFFICIENTS, *INNER_COEFFICIENTS) if fields.is_plain_list(name)), None)
    return [] if name is None else fields.numbers(name)


def _by_name(fields: Fields, model: str) -> list[float]:
    """Coefficients that have a key each, in OpenCV's order; none where there is no such key."""
    names_all = fields.prefix or 'k3' in fields or 'p2' not in fields  # LARVIO calls the four k1, k2, p1, p2
    order: tuple[str, ...] = FLAT if model != 'equidistant' else FLAT[:2] + FLAT[4:6] if names_all else FLAT[:4]
    values = {each: fields.number(each) for each in order if each in fields}
    if not model and values.get('k4') and not values.keys() & {'p1', 'p2', 'k5', 'k6'}:
        raise ValueError(f'{", ".join(map(fields.whole, values))} are of a fisheye or of a polynomial: name the model, '
                         'distortion_model: equidistant or plumb_bob')
    if model != 'equidistant':
        order = FLAT if any(values.get(each) for each in FLAT[5:]) else FLAT[:5] if 'k3' in values else FLAT[:4]
    return [values.get(each, 0.0) for each in order] if values else []
