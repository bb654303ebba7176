"""Lenses of polynomials and prisms: pixels by the formulas of their papers and tools, against the lens that was taken instead."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest

from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.core.types import Float64
from lightglue_trt_ros.datasets.calibration_files import camera_names, load_camera_in_body, load_intrinsics
from lightglue_trt_ros.utils.errors import BagError

DIRECT = [-244.5, 0.0, 1.7e-3, -1.7e-6, 4.4e-9]
AFFINE = 1.0009, 0.0011, -0.0006  # c, d, e
ROW, COLUMN = 486.0, 645.1
OCAMCALIB = ('#polynomial coefficients for the DIRECT mapping function (ocam_model.ss in MATLAB). These are used by cam2world\n\n'
             f'{len(DIRECT)} {" ".join(map(str, DIRECT))} \n\n#polynomial coefficients for the inverse mapping function\n\n'
             '3 376.8 246.7 19.0 \n\n#center: "row" and "column", starting from 0 (C convention)\n\n'
             f'{ROW} {COLUMN}\n\n#affine parameters "c", "d", "e"\n\n{" ".join(map(str, AFFINE))}\n\n'
             '#image size: "height" and "width"\n\n960 1280\n')
CAMODOCAL = ('%YAML:1.0\n---\nmodel_type: scaramuzza\ncamera_name: pal\nimage_width: 1280\nimage_height: 960\npoly_parameters:\n'
             + ''.join(f'   p{power}: {value}\n' for power, value in enumerate(DIRECT))
             + 'inv_poly_parameters:\n   p0: 376.8\n   p1: 246.7\naffine_parameters:\n   ac: 1.0009\n   ad: 0.0011\n'
               f'   ae: -0.0006\n   cx: {COLUMN}\n   cy: {ROW}\n')
MULTICOL = ('%YAML:1.0\nCamera.Iw: 1280\nCamera.Ih: 960\nCamera.nrpol: 5\nCamera.nrinvpol: 2\n'
            + ''.join(f'Camera.a{power}: {value}\n' for power, value in enumerate(DIRECT))
            + f'Camera.pol0: 376.8\nCamera.pol1: 246.7\nCamera.c: 1.0009\nCamera.d: 0.0011\nCamera.e: -0.0006\n'
              f'Camera.u0: {COLUMN}\nCamera.v0: {ROW}\n')
SVO_NUMBERS = [*DIRECT, COLUMN, ROW, *AFFINE, 376.8, 246.7, *[0.0] * 10, 0.0, 0.95]
SVO_CAMERA = ('distortion:\n  parameters: {cols: 1, rows: 0, data: []}\n  type: none\nimage_height: 960\nimage_width: 1280\n'
              f'intrinsics:\n  cols: 1\n  rows: 24\n  data: {SVO_NUMBERS}\nlabel: cam0\nline-delay-nanoseconds: 0\ntype: omni\n')
SVO = 'cameras:\n- camera:\n' + ''.join(f'    {line}\n' for line in SVO_CAMERA.splitlines()) + (
    '  T_B_C:\n    cols: 4\n    rows: 4\n    data: [0, 0, 1, 1.7, 1, 0, 0, 0, 0, 1, 0, 1.4, 0, 0, 0, 1]\nlabel: rig\n')
KIMERA = ('%YAML:1.0\ncamera_id: left_cam\nT_BS:\n  data: [0, 0, 1, 1.7, 1, 0, 0, 0, 0, 1, 0, 1.4, 0, 0, 0, 1]\n'
          'resolution: [1280, 960]\ncamera_model: omni\nintrinsics: []\ndistortion_model: omni\n'
          f'distortion_coefficients: {[-value for value in DIRECT]}\nomni_pol_inv: {[0.0] * 12}\n'
          f'omni_affine: [{AFFINE[2]}, {AFFINE[1]}, {AFFINE[0]}]\nomni_distortion_center: [{COLUMN}, {ROW}]\n')
MAPPING = [875.1, -3.0e-4, -4.8e-8, 1.7e-11]
MATLAB = {'MappingCoefficients': MAPPING, 'ImageSize': [1500, 2000], 'DistortionCenter': [1000.4, 740.7],
          'StretchMatrix': [[1.001, 0.0], [0.0, 1]]}
RADIAL = [339.7, -32.0, 48.3, -7.2]
WOODSCAPE = {'intrinsic': {'aspect_ratio': 1.01, 'cx_offset': 3.9, 'cy_offset': -3.1, 'height': 966.0, 'width': 1280.0,
                           **{f'k{power}': value for power, value in enumerate(RADIAL, 1)}, 'model': 'radial_poly',
                           'poly_order': 4},
             'extrinsic': {'quaternion': [0.5, -0.5, 0.5, -0.5], 'translation': [3.7, 0.0, 0.6]}, 'name': 'FV'}
FORWARD, BACKWARD = [0.0, 1875.2, 2.1, -30.2, 5.1], [0.0, 5.35e-4, -1.0e-9, 1.0e-12, 0.0]
PRISM = [0.21047, 0.21102, -5.4e-06, 0.00051541, -0.158023, 0.406856, -8.5e-05, 0.000861313]  # k1 k2 p1 p2 k3 k4 sx1 sy1
ARIA = [-0.0256, 0.0985, -0.0675, 0.0095, 0.0023, -0.0006, 0.0003, -0.0002, 0.0002, -0.0001, 0.0003, -0.0001]  # k, p, s


def sensor(name: str, **properties: object) -> dict[str, object]:
    """A camera of NVIDIA's rig.json."""
    return {'name': name, 'nominalSensor2Rig_FLU': {'roll-pitch-yaw': [0.0, 0.0, 90.0], 't': [1.7, 0.0, 1.4]},
            'correction_sensor_R_FLU': {'roll-pitch-yaw': [0.0, 0.0, 0.0]}, 'properties': {
                'Model': 'ftheta', 'cx': '1927.5', 'cy': '1096.1', 'width': '3848', 'height': '2168', **properties}}


def aria(name: str, numbers: list[float], sizes: bool = True) -> str:
    """A calibration of Project Aria."""
    pose = {'Translation': [0.1, 0.2, 0.3], 'UnitQuaternion': [0.5**0.5, [0, 0, 0.5**0.5]]}
    camera = {'Label': 'camera-slam-left', 'Projection': {'Name': name, 'Params': numbers}, 'T_Device_Camera': pose}
    return json.dumps({'CameraCalibrations': [camera], **({'ImageSizes': [[640, 480]]} if sizes else {})})


RIG = json.dumps({'rig': {'sensors': [
    sensor('camera:front', **{'bw-poly': ' '.join(map(str, BACKWARD))}),
    sensor('camera:rear', **{'polynomial': ' '.join(map(str, FORWARD)), 'polynomial-type': 'angle-to-pixeldistance',
                             'linear-c': '1.001', 'linear-d': '0.0', 'linear-e': '0.0'}),
    {'name': 'lidar:top', 'properties': {'rows': 128}}]}})


def of_ocam(pixel: Float64) -> Float64:
    """cam2world of OCamCalib: x along the rows, y along the columns, z backwards; here in the optical frame."""
    c, d, e = AFFINE
    row, column = pixel[1] - ROW, pixel[0] - COLUMN
    x, y = np.array([row - d * column, -e * row + c * column]) / (c - d * e)
    return np.array([y, x, -np.polyval(DIRECT[::-1], np.hypot(x, y))])


def of_camodocal(pixel: Float64) -> Float64:
    """OCAMCamera::liftProjective of camodocal, with x along the columns, where both coordinates get the affine matrix."""
    c, d, e = AFFINE
    x, y = np.array([(pixel[0] - COLUMN) - d * (pixel[1] - ROW), -e * (pixel[0] - COLUMN) + c * (pixel[1] - ROW)]) / (c - d * e)
    return np.array([x, y, -np.polyval(DIRECT[::-1], np.hypot(x, y))])


def of_matlab(pixel: Float64) -> Float64:
    x, y = (pixel[0] + 1 - 1000.4) / 1.001, pixel[1] + 1 - 740.7
    a0, *others = MAPPING
    return np.array([x, y, np.polyval([*others[::-1], 0, a0], np.hypot(x, y))])


def to_plane(ray: Float64, radius: Callable[[float], float]) -> Float64:
    """A ray at an angle from the axis, at a radius by that."""
    beside = float(np.hypot(*ray[:2]))
    return np.asarray(ray[:2] / beside * radius(np.arctan2(beside, ray[2])), np.float64)


def of_woodscape(ray: Float64) -> Float64:
    x, y = to_plane(ray, lambda angle: float(np.polyval([*RADIAL[::-1], 0], angle)))
    return np.array([x + 3.9 + 640 - 0.5, 1.01 * y - 3.1 + 483 - 0.5])


def of_forward(ray: Float64) -> Float64:
    x, y = to_plane(ray, lambda angle: float(np.polyval(FORWARD[::-1], angle)))
    return np.array([1.001 * x + 1927.5, y + 1096.1])


def of_backward(pixel: Float64) -> Float64:
    x, y = pixel - [1927.5, 1096.1]
    radius = np.hypot(x, y)
    angle = np.polyval(BACKWARD[::-1], radius)
    return np.array([x / radius * np.sin(angle), y / radius * np.sin(angle), np.cos(angle)])


def of_colmap(ray: Float64) -> Float64:
    """COLMAP's THIN_PRISM_FISHEYE; its pixels begin at the corner of the first one."""
    k1, k2, p1, p2, k3, k4, sx1, sy1 = PRISM
    u, v = to_plane(ray, float)
    s = u * u + v * v
    radial = s * (k1 + s * (k2 + s * (k3 + s * k4)))
    return np.array([3411.4 * (u + u * radial + 2 * p1 * u * v + p2 * (s + 2 * u * u) + sx1 * s) + 3041.3 - 0.5,
                     3410.0 * (v + v * radial + 2 * p2 * u * v + p1 * (s + 2 * v * v) + sy1 * s) + 2014.1 - 0.5])


def of_aria(ray: Float64) -> Float64:
    """FisheyeRadTanThinPrism of projectaria_tools: its terms are of the plane behind the radial ones."""
    k, p, s = ARIA[:6], np.array(ARIA[6:8]), ARIA[8:]
    point = to_plane(ray, lambda angle: angle * (1 + sum(each * angle**(2 * power) for power, each in enumerate(k, 1))))
    square = float(point @ point)
    prism = np.array([s[0] * square + s[1] * square**2, s[2] * square + s[3] * square**2])
    return np.asarray(241.1 * (point + 2 * (point @ p) * point + square * p + prism) + [316.6, 237.0], np.float64)


def projected(camera: Intrinsics, ray: Float64) -> Float64:
    """By OpenCV's formulas."""
    if camera.distortion_model == 'equidistant':
        x, y = to_plane(ray, lambda angle: angle * (1 + sum(d * angle**(2 * power) for power, d in enumerate(camera.d, 1))))
        return np.asarray((camera.k @ [x, y, 1])[:2], np.float64)
    return np.asarray(cv2.projectPoints(ray[None], np.zeros(3), np.zeros(3), camera.k, camera.d)[0].ravel(), np.float64)


PIXELS = np.array([[0.05, 0.1], [0.5, 0.02], [0.93, 0.9], [0.52, 0.51], [0.3, 0.75], [0.7, 0.2]])  # of the image's size
RAYS = np.array([[0.3, 0.2, 1], [-0.5, 0.4, 1], [0.6, -0.1, 1], [0.01, 0, 1], [-0.4, -0.4, 1], [0.1, 0.45, 1]])


def turned(tangent: float) -> Float64:
    """The rotation to a camera whose rows are along its x axis."""
    return np.asarray(cv2.Rodrigues(np.array([0, 0, np.arctan(tangent)]))[0], np.float64)


OF_PIXELS: dict[str, tuple[str, Callable[[Float64], Float64], Float64]] = {  # text, ray of a pixel, rotation of the camera
    'OCamCalib': (OCAMCALIB, of_ocam, turned(AFFINE[1] / AFFINE[0])),
    'camodocal': (CAMODOCAL, of_camodocal, turned(AFFINE[2])),
    'MultiCol-SLAM': (MULTICOL, of_camodocal, turned(AFFINE[2])),
    'SVO': (SVO, of_ocam, turned(AFFINE[1] / AFFINE[0])), 'SVO, flat': (SVO_CAMERA, of_ocam, turned(AFFINE[1] / AFFINE[0])),
    'Kimera': (KIMERA, of_ocam, turned(AFFINE[1] / AFFINE[0])),
    'MATLAB': (json.dumps(MATLAB), of_matlab, np.eye(3)),
    'MATLAB, with points': (json.dumps({'Intrinsics': MATLAB, 'WorldPoints': [[0, 0]]}), of_matlab, np.eye(3)),
    'f-theta, backwards': (RIG, of_backward, np.eye(3))}
OF_RAYS: dict[str, tuple[str, Callable[[Float64], Float64]]] = {
    'WoodScape': (json.dumps(WOODSCAPE), of_woodscape), 'f-theta': (RIG, of_forward),
    'COLMAP': ('1 THIN_PRISM_FISHEYE 6048 4032 3411.4 3410.0 3041.3 2014.1 ' + ' '.join(map(str, PRISM)) + '\n', of_colmap),
    'Project Aria': (aria('FisheyeRadTanThinPrism', [241.1, 316.6, 237.0, *ARIA]), of_aria),
    'COLMAP, as Project Aria': ('1 RAD_TAN_THIN_PRISM_FISHEYE 640 480 241.1 241.1 317.1 237.5 ' + ' '.join(map(str, ARIA)) + '\n',
                                of_aria)}
CHOICES = {'f-theta': ':camera_rear', 'f-theta, backwards': ':camera_front'}


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def written(text: str) -> Path:
        (tmp_path / 'calib.txt').write_text(text)
        return tmp_path / 'calib.txt'
    return written


@pytest.mark.parametrize('tool', OF_PIXELS)
def test_pixel_of_another_lens_has_the_ray_of_its_formula(write, tool: str) -> None:
    text, formula, turn = OF_PIXELS[tool]
    camera = load_intrinsics(Path(f'{write(text)}{CHOICES.get(tool, "")}'))
    assert (within := re.search(r'as the (\w+) lens within (0\.\d\d) px of it', camera.source)) is not None
    for share in PIXELS:
        pixel = share * [camera.width, camera.height]
        ray = turn @ formula(pixel)
        if ray[2] > 0:
            assert np.linalg.norm(projected(camera, ray) - pixel) < float(within[2]) + 0.01
        else:  # of more than 90 degrees from the axis, which no pinhole camera sees
            assert np.isnan(camera.lens.undistorted(pixel).points).all()


@pytest.mark.parametrize('tool', OF_RAYS)
def test_ray_meets_the_pixel_of_the_formula_of_another_lens(write, tool: str) -> None:
    text, formula = OF_RAYS[tool]
    camera = load_intrinsics(Path(f'{write(text)}{CHOICES.get(tool, "")}'))
    assert (within := re.search(r'as the (\w+) lens within (0\.\d\d) px of it', camera.source)) is not None
    assert (within[1], camera.distortion_model) in (('equidistant', 'equidistant'), ('rational', 'rational_polynomial'))
    for ray in RAYS:
        pixel = formula(ray)
        assert np.linalg.norm(projected(camera, ray) - pixel) < float(within[2]) + 0.01
        ideal = camera.k @ ray
        np.testing.assert_allclose(camera.lens.undistorted(pixel).points[0], ideal[:2] / ideal[2], atol=3.0)


def test_rotation_of_rows_and_columns_is_told_or_refused(write) -> None:
    assert load_intrinsics(write(OCAMCALIB)).source.endswith('px of it, whose axes are rotated by 0.06 degrees')
    assert load_intrinsics(write(OCAMCALIB.replace('0.0011', '0.0').replace('-0.0006', '0.0'))).source.endswith('px of it')
    with pytest.raises(BagError, match=r'its rows and columns are \[\[1\.0.*, rotated by 2\.9 degrees'):
        load_intrinsics(write(OCAMCALIB.replace('0.0011', '0.05')))


def test_lens_far_from_all_is_refused_with_its_distance(write) -> None:
    text = aria('FisheyeRadTanThinPrism', [241.1, 316.6, 237.0, *ARIA[:8], 0.02, 0.0, 0.0, 0.01])
    with pytest.raises(BagError, match=r'camera-slam-left: the nearest \w+ lens is \d\.\d px off this fisheye624, more than 0\.5'):
        load_intrinsics(write(text))


def test_no_lens_is_taken_that_folds_inside_the_image(write) -> None:
    terms = [-0.0255612, 0.0984733, -0.0675009, 0.00948425, 0.00233176, -0.000574631,
             0.001260864, -0.001648735, -0.001356718, -0.000131642, 0.00251427, -6.2137e-05]
    values = json.loads(aria('FisheyeRadTanThinPrism', [241.1, 255.0, 191.0, *terms]))
    camera = load_intrinsics(write(json.dumps({**values, 'ImageSizes': [[510, 382]]})))  # the nearest polynomial of all folds
    assert (camera.distortion_model, camera.fold) == ('rational_polynomial', '')


def test_other_lenses_of_a_rig_are_refused_by_name(write) -> None:
    rig = {'rig': {'sensors': [sensor('camera:left', Model='pinhole-of-mirrors'), sensor('camera:right', polynomial='0 1',
                                                                                         **{'polynomial-type': 'of-sines'})]}}
    path = write(json.dumps(rig))
    assert camera_names(path) == ['camera_left', 'camera_right']
    with pytest.raises(BagError, match='camera_model: pinhole-of-mirrors'):
        load_intrinsics(Path(f'{path}:camera_left'))
    with pytest.raises(BagError, match='camera_model: of-sines'):
        load_intrinsics(Path(f'{path}:camera_right'))


@pytest.mark.parametrize(('name', 'numbers', 'model', 'd'), [
    ('KannalaBrandtK3', [241.0, 242.0, 316.0, 237.0, -0.01, 0.02, -0.003, 0.0004], 'equidistant', [-0.01, 0.02, -0.003, 0.0004]),
    ('Linear', [241.0, 242.0, 316.0, 237.0], 'none', [])])
def test_plain_lenses_of_project_aria(write, name: str, numbers: list[float], model: str, d: list[float]) -> None:
    camera = load_intrinsics(write(aria(name, numbers, sizes=False)), size=lambda: (640, 480))
    assert (camera.size, camera.k[[0, 1, 0, 1], [0, 1, 2, 2]].tolist()) == ((480, 640), numbers[:4])
    assert (camera.distortion_model == 'equidistant', camera.d.tolist()) == (model == 'equidistant', d)


@pytest.mark.parametrize(('text', 'choice', 'forward', 'right', 'position'), [
    (RIG, ':camera_front', [0, 1, 0], [1, 0, 0], [1.7, 0, 1.4]),  # yaw by 90 degrees: it looks to the left
    (json.dumps(WOODSCAPE), '', [1, 0, 0], [0, -1, 0], [3.7, 0, 0.6]),
    (SVO, '', [1, 0, 0], [0, 1, 0], [1.7, 0, 1.4]), (KIMERA, '', [1, 0, 0], [0, 1, 0], [1.7, 0, 1.4]),
    (aria('Linear', [241.0, 242.0, 316.0, 237.0]), '', [0, 0, 1], [0, 1, 0], [0.1, 0.2, 0.3])])
def test_pose_of_such_a_camera_in_the_body(write, text: str, choice: str, forward, right, position) -> None:
    pose = load_camera_in_body(Path(f'{write(text)}{choice}'))
    np.testing.assert_allclose(pose[:3, [2, 0, 3]].T, [forward, right, position], atol=1e-9)


def test_half_a_calib_results_is_refused_with_what_it_lacks(write) -> None:
    with pytest.raises(BagError, match=r'it has lines of \[6, 4\] numbers, and calib_results\.txt of OCamCalib'):
        load_intrinsics(write(OCAMCALIB.partition('#center')[0]))
