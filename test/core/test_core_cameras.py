"""Intrinsics from YAML of every form, and points without distortion against OpenCV's forward models."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cameras import BARREL, FISHEYE, RATIONAL, K
from support.stereo_pairs import camera_info

from lightglue_trt_ros.core.cameras import (
    Intrinsics,
    camera_info_places,
    camera_info_topic,
    camera_info_topics,
    distortion_model,
    intrinsics_of,
    is_rectified,
    same_frame,
    same_view,
    undistort,
)
from lightglue_trt_ros.datasets.calibration_files import check_size, load_camera_in_body, load_intrinsics
from lightglue_trt_ros.utils.errors import BagError

EUROC = """# General sensor definitions.
sensor_type: camera
T_BS:
  cols: 4
  rows: 4
  data: [0.0, -1.0, 0.0, 0.5,
         1.0, 0.0, 0.0, 0.25,
         0.0, 0.0, 1.0, -0.125,
         0.0, 0.0, 0.0, 1.0]
resolution: [752, 480]
camera_model: pinhole
intrinsics: [458.654, 457.296, 367.215, 248.375] #fu, fv, cu, cv
distortion_model: radial-tangential
distortion_coefficients: [-0.28340811, 0.07395907, 0.00019359, 1.76187114e-05]
"""
ROS = """image_width: 752
image_height: 480
camera_name: narrow
camera_matrix:
  rows: 3
  cols: 3
  data: [458.654, 0, 367.215, 0, 457.296, 248.375, 0, 0, 1]
distortion_model: plumb_bob
distortion_coefficients:
  rows: 1
  cols: 5
  data: [-0.28340811, 0.07395907, 0.00019359, 1.76187114e-05, 0]
"""


def camera(model: str, d: list[float]) -> Intrinsics:
    return Intrinsics(752, 480, K, model, np.array(d, np.float64))


def seen(rays: np.ndarray, model: str, d: list[float]) -> np.ndarray:
    project = cv2.fisheye.projectPoints if model in ('equidistant', 'fisheye') else cv2.projectPoints
    points = np.column_stack([rays, np.ones(len(rays))])[:, None]
    return np.asarray(project(points, np.zeros(3), np.zeros(3), K, np.array(d))[0]).reshape(-1, 2)


def ideal(rays: np.ndarray) -> np.ndarray:
    return rays * K[[0, 1], [0, 1]] + K[:2, 2]


@pytest.mark.parametrize(('model', 'd'), [('plumb_bob', BARREL), ('plumb_bob', BARREL[:4]), ('radtan', BARREL),
                                          ('rational_polynomial', RATIONAL), ('equidistant', FISHEYE), ('fisheye', FISHEYE),
                                          ('equidistant', [0.0] * 4)])
@settings(max_examples=40, deadline=None)
@given(rays=st.lists(st.tuples(st.floats(-0.75, 0.75), st.floats(-0.55, 0.55)), min_size=1, max_size=20))
def test_undistorting_is_the_inverse_of_distorting(model: str, d: list[float], rays: list[tuple[float, float]]) -> None:
    table = np.array(rays)
    distorted = seen(table, model, d)
    assert np.abs(undistort(distorted, camera(model, d)) - ideal(table)).max() < 0.02
    assert np.abs(undistort(distorted.astype(np.float32), camera(model, d)) - ideal(table)).max() < 0.05


@pytest.mark.parametrize(('name', 'model'), [
    ('Plumb Bob', 'plumb_bob'), ('radial_tangential', 'plumb_bob'), ('radial-tangential', 'plumb_bob'),
    ('Brown-Conrady', 'plumb_bob'), ('brown_conrady', 'plumb_bob'), ('Kannala Brandt4', 'equidistant'),
    ('kannala_brandt', 'equidistant')])
def test_names_of_models_have_any_hyphens_and_spaces(name: str, model: str) -> None:
    assert distortion_model(camera(name, FISHEYE)) == model
    assert distortion_model(camera('inverse_brown_conrady', [0.0] * 5)) is None


def test_the_corner_of_a_wide_lens() -> None:
    """Where five iterations, OpenCV's default until 4, are not enough."""
    corner = np.array([[0.0, 0.0]])
    straight = undistort(corner, camera('plumb_bob', BARREL))
    rays = (straight - K[:2, 2]) / K[[0, 1], [0, 1]]
    assert np.abs(seen(rays, 'plumb_bob', BARREL) - corner).max() < 1e-4
    assert straight[0, 0] < -60  # the pinhole's corner lies far outside


def test_points_without_an_inverse() -> None:
    inside = K[:2, 2] + [[30.0, -20.0]]
    for model, d, outside in (('plumb_bob', [-0.3, 0, 0, 0, 0], [3000.0, 2000.0]), ('equidistant', FISHEYE, [9000.0, 250.0])):
        points = np.vstack([inside, [outside], [[np.nan, 3.0]], [[np.inf, 3.0]], inside])
        straight = undistort(points, camera(model, d))
        assert np.isfinite(straight).all(axis=1).tolist() == [True, False, False, False, True], model
        assert np.abs(straight[[0, 4]] - inside).max() < 2
        assert np.isnan(undistort(points[1:4], camera(model, d))).all()
    assert undistort(np.zeros((0, 2)), camera('plumb_bob', BARREL)).shape == (0, 2)


@pytest.mark.parametrize(('model', 'd'), [('plumb_bob', []), ('plumb_bob', [0.0] * 5), ('', []), ('none', [0.0]),
                                          ('pinhole', []), ('pinhole', [0.0] * 5), ('equidistant', []),
                                          ('rational_polynomial', [0.0] * 8)])
def test_an_ideal_pinhole_leaves_points_alone(model: str, d: list[float]) -> None:
    points = np.array([[1.5, 2.5], [-3.0, 1e6]], np.float32)
    result = undistort(points, camera(model, d))
    assert result.dtype == np.float64
    assert np.array_equal(result, points)
    assert distortion_model(camera(model, d)) is None
    result[:] = 0
    assert points[0, 0] == 1.5  # never a view of what came in


def test_models_that_cannot_be_used() -> None:
    for model, d, message in (('double_sphere', [0.1, 0.2], "'double_sphere'.*plumb_bob"), ('', [0.1], "model '' with"),
                              ('pinhole', [0.1] * 5, 'Name the model of D: plumb_bob'),
                              ('plumb_bob', [0.1, 0.2], 'has 4 or 5 or 8 or 12 or 14 coefficients'),
                              ('equidistant', [0.1] * 5, 'equidistant has 4')):
        with pytest.raises(BagError, match=message):
            undistort([[1, 2]], camera(model, d))


@pytest.mark.parametrize(('model', 'd', 'same'), [
    ('equidistant', [0.1, 0.01, 0.002, 0.0003, 0.0], [0.1, 0.01, 0.002, 0.0003]),
    ('fisheye', [0.1, 0.01, 0, 0, 0, 0, 0, 0], [0.1, 0.01, 0, 0]),
    ('rational_polynomial', [0.1, 0.02, 0.001, 0.002, 0.03], [0.1, 0.02, 0.001, 0.002, 0.03, 0, 0, 0]),
    ('plumb_bob', [0.1, 0.02, 0.001, 0.002, 0.03, 0, 0, 0, 0, 0, 0, 0], [0.1, 0.02, 0.001, 0.002, 0.03])])
def test_zeros_that_drivers_add_or_leave_out_do_not_count(model: str, d: list[float], same: list[float]) -> None:
    assert undistort([[10, 20]], camera(model, d)).tolist() == undistort([[10, 20]], camera(model, same)).tolist()


@pytest.mark.parametrize(('text', 'model'), [(EUROC, 'plumb_bob'), (ROS, 'plumb_bob')])
def test_files_of_other_tools(tmp_path: Path, text: str, model: str) -> None:
    path = tmp_path / 'sensor.yaml'
    path.write_text(text)
    found = load_intrinsics(path)
    assert (found.width, found.height, found.distortion_model) == (752, 480, model)
    assert np.array_equal(found.k, K)
    assert found.d[:4].tolist() == BARREL[:4]
    with pytest.raises(BagError, match='752x480 pixels, the images have 376x240'):
        check_size(found, 240, 376)
    check_size(found, 480, 752)


@pytest.mark.parametrize(('count', 'fisheye', 'model'), [(5, 0, 'plumb_bob'), (4, 1, 'equidistant'), (8, 0, 'rational_polynomial'),
                                                         (14, 0, 'rational_polynomial')])
def test_files_of_opencv(tmp_path: Path, count: int, fisheye: int, model: str) -> None:
    path, d = tmp_path / 'camera.yaml', np.linspace(-0.2, 0.1, count)
    storage = cv2.FileStorage(str(path), cv2.FILE_STORAGE_WRITE)
    for name, value in (('image_width', 752), ('image_height', 480), ('fisheye_model', fisheye), ('camera_matrix', K),
                        ('distortion_coefficients', d[:, None])):
        storage.write(name, value)
    storage.release()
    assert '!!opencv-matrix' in path.read_text()
    path.write_text(path.read_text().replace('%YAML 1.2', '%YAML:1.0'))  # as OpenCV before 5 has it
    found = load_intrinsics(path)
    assert (found.width, found.height, found.distortion_model) == (752, 480, model)
    assert np.allclose(found.k, K)
    assert np.allclose(found.d, d)


def test_a_sensor_of_euroc_that_opencv_can_read(tmp_path: Path) -> None:
    path = tmp_path / 'sensor.yaml'
    path.write_text(f'%YAML:1.0\n{EUROC}')
    assert np.array_equal(load_intrinsics(path).k, K)
    assert load_camera_in_body(path) is not None


def test_ros_file_of_a_fisheye(tmp_path: Path) -> None:
    path = tmp_path / 'camera.yaml'
    path.write_text(ROS.replace('plumb_bob', 'equidistant').replace(', 0]', ']'))
    assert distortion_model(load_intrinsics(path)) == 'equidistant'
    path.write_text(ROS.replace('distortion_model: plumb_bob', 'distortion_model: mei'))
    with pytest.raises(BagError, match=r"camera\.yaml: distortion model 'mei'"):
        load_intrinsics(path)


@pytest.mark.parametrize(('topic', 'rectified'), [
    ('image_rect', True), ('image_rect_color', True), ('left_rect', True), ('image_rect_raw', True), ('image_rectified', True),
    ('image_corrected', False), ('image_direct', False), ('image_unrectified', False), ('rect/image_raw', False)])
@pytest.mark.parametrize('transport', ['', '/compressed'])
def test_of_rectified_images_p_counts_and_of_no_others(topic, rectified, transport):
    info = camera_info(k=K, d=BARREL)
    info.p[0] = 400.0  # its focal length
    found = intrinsics_of(info, f'/cam/{topic}{transport}')
    assert (found.k[0, 0], bool(found.d.any())) == ((400.0, False) if rectified else (K[0, 0], True))


@pytest.mark.parametrize(('topic', 'rectified'), [
    ('/rectified/left/image', True), ('/zed/color/rect/image', True), ('/zed/color/raw/image', False), ('/rect/image_raw', False),
    ('/rect/camera_info', True), ('/left/camera_info_rect', True), ('/left/camera_info', False), ('/non_rectified/image', False),
    ('/unrectified/image', False), ('/direct/image', False), ('image_rect/zstd', True)])
def test_the_last_name_that_says_raw_or_rect_decides(topic: str, rectified: bool) -> None:
    assert is_rectified(topic) is rectified


def test_the_topics_of_a_camera_info_are_next_to_the_images() -> None:
    for transport in ('', '/compressed', '/compressedDepth', '/zstd', '/ffmpeg', '/theora'):
        assert camera_info_topics(f'/left/image_raw{transport}') == ('/left/camera_info',)
    assert camera_info_topics('image_raw') == ('camera_info',)
    assert camera_info_topics('/image') == ('/camera_info',)
    assert camera_info_topics('/left/image_rect/compressed') == ('/left/camera_info_rect', '/left/camera_info')
    assert camera_info_topic('/left/image_rect') == '/left/camera_info'
    assert camera_info_places('/zed/image/compressed') == ('/zed/camera_info', '/zed/image/camera_info')


@pytest.mark.parametrize(('one', 'other', 'same'), [
    ('camera_color_optical_frame', '/camera_color_frame', True), ('robot/cam', 'cam', True), ('', 'cam', True),
    ('camera_color_optical_frame', 'camera_depth_optical_frame', False), ('left', 'right', False), ('my_cam', 'cam', False)])
def test_frames_of_one_camera_have_one_stem(one: str, other: str, same: bool) -> None:
    assert same_frame(one, other) is same_frame(other, one) is same


def binned(binning: tuple[int, int], roi: tuple[int, int, int, int], images: tuple[int, int], **more: Any) -> Intrinsics:
    info, (x, y, width, height) = camera_info(k=K, size=(480, 752), **more), roi
    info.binning_x, info.binning_y = binning
    info.roi = SimpleNamespace(x_offset=x, y_offset=y, width=width, height=height, do_rectify=False)
    return intrinsics_of(info, '/cam/image_raw', images)


@pytest.mark.parametrize(('binning', 'roi', 'size'), [
    ((2, 2), (0, 0, 0, 0), (240, 376)), ((1, 1), (100, 40, 400, 300), (300, 400)), ((4, 2), (100, 40, 400, 300), (150, 100)),
    ((0, 3), (0, 0, 0, 0), (160, 752)), ((2, 2), (0, 0, 751, 479), (240, 376)), ((2, 2), (0, 0, 751, 479), (239, 375))])
def test_binning_and_roi_move_the_pixels_of_rays(binning, roi, size) -> None:
    """The mean of the sensor pixels that make an image pixel has the image pixel's ray."""
    found = binned(binning, roi, size, d=BARREL)
    assert (found.height, found.width) == size
    assert found.d.tolist() == BARREL
    u, v = np.array([3, 50]), np.array([7, 90])
    bins = np.maximum(binning, 1)
    sensor = [np.stack([offset + bins[axis] * places + part for part in range(bins[axis])]).mean(axis=0)
              for axis, (offset, places) in enumerate(zip(roi[:2], (u, v), strict=True))]
    np.testing.assert_allclose(np.linalg.solve(found.k, [u, v, [1, 1]]), np.linalg.solve(K, [*sensor, [1, 1]]), atol=1e-12)


def test_images_of_the_messages_own_size_have_its_k() -> None:
    """Some drivers set binning, and send the calibration of the binned images."""
    assert binned((2, 2), (0, 0, 0, 0), (480, 752)).k.tolist() == K.tolist()
    plain = intrinsics_of(camera_info(k=K, size=(480, 752)), '/cam/image_raw', (240, 376))
    assert (plain.width, plain.height) == (752, 480), 'check_size tells the difference'


def shifted(pixels: float) -> np.ndarray:
    """K with another cx."""
    return K + np.outer([pixels, 0, 0], [0, 0, 1])


def test_two_calibrations_show_the_same_if_rays_agree_to_a_pixel() -> None:
    plain, bent, bent_too = camera('plumb_bob', []), camera('plumb_bob', BARREL), camera('rational_polynomial', [*BARREL, 0, 0, 0])
    assert same_view(bent, bent_too), 'two names of one model'
    assert not same_view(plain, bent), 'K is the same'
    assert same_view(plain, Intrinsics(752, 480, shifted(0.9), 'plumb_bob', np.zeros(5)))
    assert not same_view(plain, Intrinsics(752, 480, shifted(1.1), 'plumb_bob', np.zeros(5)))
    assert not same_view(plain, Intrinsics(640, 480, K, 'plumb_bob', np.zeros(5)))
    assert not same_view(camera('equidistant', FISHEYE), camera('plumb_bob', FISHEYE))


def test_calibrations_that_differ_by_a_thousandth_of_the_width_are_one() -> None:
    plain = camera('plumb_bob', [])
    assert plain.nearly(dataclasses.replace(plain, k=shifted(0.7), source='another topic'))
    assert not plain.nearly(dataclasses.replace(plain, k=shifted(0.8)))
    assert not plain.nearly(camera('plumb_bob', BARREL))
    assert not plain.nearly(dataclasses.replace(plain, width=640))
    right = dataclasses.replace(plain, shift_m=0.5)
    assert not right.nearly(plain)
    assert right.nearly(dataclasses.replace(right, shift_m=0.5004))
    assert not right.nearly(dataclasses.replace(right, shift_m=0.501))
    turned = cv2.Rodrigues(np.array([0, 2e-3, 0]))[0]
    assert not right.nearly(dataclasses.replace(right, rectification=turned))


def test_mounting(tmp_path: Path) -> None:
    path = tmp_path / 'sensor.yaml'
    path.write_text(EUROC)
    mounting = load_camera_in_body(path)
    assert mounting is not None
    assert mounting.tolist() == [[0, -1, 0, 0.5], [1, 0, 0, 0.25], [0, 0, 1, -0.125], [0, 0, 0, 1]]
    path.write_text(ROS)
    with pytest.raises(BagError, match='T_BS'):
        load_camera_in_body(path)
    for bad in (EUROC.replace('-1.0', '-2.0'), EUROC.replace('0.5,', ''), EUROC.replace('data: [0.0, -1', 'date: [0.0, -1')):
        path.write_text(bad)
        with pytest.raises(BagError, match='T_BS'):
            load_camera_in_body(path)


@pytest.mark.parametrize(('k', 'size'), [
    ([1, 1, 0, 0], (640, 480)), ([1, 1, 0, 0], (48, 36)),  # the identity
    ([4.2, 4.2, 320, 240], (640, 480)),  # a focal length in millimetres
    ([450, 4.5, 320, 240], (640, 480)), ([450, 450, 3195, 240], (640, 480)), ([450, 450, 320, -1e5], (640, 480)),
    ([4.5e7, 450, 320, 240], (640, 480))])
def test_k_that_no_lens_has_is_refused(k: list[float], size: tuple[int, int]) -> None:
    fx, fy, cx, cy = k
    with pytest.raises(BagError, match=rf'no lens has K = .* for {size[0]}x{size[1]} pixels: the camera is not calibrated'):
        Intrinsics(*size, np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]]), 'plumb_bob', np.zeros(5))
    with pytest.raises(BagError, match='not calibrated'):  # written by columns
        Intrinsics(640, 480, K.T, 'plumb_bob', np.zeros(5))
    with pytest.raises(BagError, match='not calibrated'):  # a skew on the wrong side
        Intrinsics(640, 480, np.array([[450, 450, 320], [450, 450, 240], [0, 0, 1]]), 'plumb_bob', np.zeros(5))


@pytest.mark.filterwarnings('error')
@pytest.mark.parametrize('number', [np.inf, np.nan, 1e300, 1e-300])
def test_numbers_of_no_camera_are_refused_without_a_warning(number: float) -> None:
    info = SimpleNamespace(width=1280, height=960, k=[number, 0, 640, 0, 450, 480, 0, 0, 1], d=[], distortion_model='plumb_bob',
                           r=np.eye(3).ravel(), p=[number, 0, 640, number, 0, 450, 480, 0, 0, 0, 1, 0], binning_x=2, binning_y=2)
    with pytest.raises(BagError, match=r'not finite|no lens has K'):
        intrinsics_of(info, '/camera/image_raw', (480, 640))


@pytest.mark.parametrize(('k', 'size'), [
    ([281, 281, 960, 540], (1920, 1080)),  # a fisheye of 220 degrees in the middle of a wide image
    ([102, 102, 320, 240], (640, 480)), ([90, 90, 1920, 540], (1920, 1080)),  # 360 degrees over the width; a small circle
    ([266_000, 266_000, 320, 240], (640, 480)),  # a telescope of 2 m on a small sensor
    ([1200, 1200, 2000, 1500], (640, 480)), ([1200, 1200, -1360, -1020], (640, 480)),  # corners of a sensor of 12 megapixels
    ([1.5, 2.5, 3.5, 4.5], (40, 30)), ([900, 450, 320, 120], (640, 240))])  # a toy; every second line
def test_real_cameras_at_the_extremes_are_taken(k: list[float], size: tuple[int, int]) -> None:
    fx, fy, cx, cy = k
    assert Intrinsics(*size, np.array([[fx, 0.5, cx], [0, fy, cy], [0, 0, 1]]), 'plumb_bob', np.zeros(5)).k[0, 0] == fx


def test_files_that_are_no_calibration(tmp_path: Path) -> None:
    path = tmp_path / 'sensor.yaml'
    for text, message in (('[1, 2]', 'no calibration'), ('a:\n\n  [', r'is no YAML, JSON or XML [^\n]*$'),
                          (EUROC.replace('resolution', 'size'), 'has no resolution'), (EUROC.replace(', 480', ''), 'sensor.yaml'),
                          (EUROC.replace('pinhole', 'ocam'), 'camera_model: ocam'),
                          (EUROC.replace('458.654', '.nan'), 'not finite'),
                          (ROS.replace('image_width', 'wide'), 'has no image_width, it has'),
                          (ROS.replace('0, 0, 1]', '0]'), 'has 7 values, not 9')):
        path.write_text(text)
        with pytest.raises(BagError, match=message):
            load_intrinsics(path)
    with pytest.raises(BagError, match='cannot read'):
        load_intrinsics(tmp_path / 'gone.yaml')


@pytest.mark.parametrize('shape', [(1, 5), (5, 1)])
def test_coefficients_in_the_shapes_of_opencv_are_those_of_a_row(shape: tuple[int, int]) -> None:
    """cv2.calibrateCamera returns (1, 5) or (5, 1), cv2.fisheye (4, 1). Before, NumPy raised ValueError at the first point."""
    k, d = np.array([[500.0, 0, 320], [0, 500, 240], [0, 0, 1]]), np.array([-0.2, 0.05, 0.001, -0.001, 0.0])
    camera = Intrinsics(640, 480, k, 'plumb_bob', d.reshape(shape))
    assert str(camera) == str(Intrinsics(640, 480, k, 'plumb_bob', d))
    np.testing.assert_allclose(undistort([[600.0, 400]], camera), cv2.undistortPoints(
        np.array([[[600.0, 400]]]), k, d, P=k)[0], atol=0.01)


@pytest.mark.parametrize(('k', 'r', 'shapes'), [
    ([500, 0, 320, 0, 500, 240, 0, 0, 1], np.eye(3), r'K of the intrinsics is \(9,\), and R \(3, 3\)'),
    (np.eye(3) * [[500], [500], [1]], np.eye(4), r'K of the intrinsics is \(3, 3\), and R \(4, 4\)')])
def test_k_and_r_of_another_shape_are_refused_by_it(k: list[float], r: np.ndarray, shapes: str) -> None:
    with pytest.raises(BagError, match=shapes):
        Intrinsics(640, 480, k, 'plumb_bob', np.zeros(5), r)


def test_words_of_a_right_camera_have_its_place() -> None:
    """So that a log shows a baseline in another unit."""
    k = np.array([[450.0, 0, 320], [0, 450, 240], [0, 0, 1]])
    left, right = (str(Intrinsics(640, 480, k, 'plumb_bob', np.zeros(5), shift_m=shift)) for shift in (0.0, 0.12))
    assert (left, right.removeprefix(left)) == ('no distortion, fx 450.0, fy 450.0, 640x480, cx 320.0, cy 240.0',
                                                ', x 0.12 m in the pair')
