"""Calibrations in texts of tools' own: numbers by hand, projections of known points, and the size of the images that chooses."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import cv2
import numpy as np
import pytest

from lightglue_trt_ros.core.cameras import Intrinsics, StereoRig, distortion_model
from lightglue_trt_ros.datasets.calibration_files import load_camera_in_body, load_intrinsics
from lightglue_trt_ros.datasets.calibration_pairs import load_pair
from lightglue_trt_ros.utils.errors import BagError

ZED = """
[LEFT_CAM_2K]
fx=1068.5
fy=1068.25
cx=1106.5
cy=640
{left}
[RIGHT_CAM_2K]
fx=1067
fy=1066.5
cx=1089
cy=648
{right}
[LEFT_CAM_HD]
fx=534.25
fy=534.125
cx=639.5
cy=368
{left}
[RIGHT_CAM_HD]
fx=533.5
fy=533.25
cx=631
cy=372
{right}
[STEREO]
Baseline=120.5
TY=0.25
TZ=-0.5
CV_2K=-0.003
CV_HD=-0.003
RX_2K=0.004
RX_HD=0.004
RZ_2K=-0.001
RZ_HD=-0.001
"""
LEFT, RIGHT = 'k1=-0.06\nk2=0.04\np1=-0.0003\np2=-9e-05\nk3=-0.014\n', 'k1=-0.064\nk2=0.044\np1=-0.0004\np2=-0.0006\nk3=-0.018\n'
ZED = ZED.format(left=LEFT, right=RIGHT)
REALSENSE = """Device info:
    Name                          : \tIntel RealSense D435I
Stream Profiles supported by RGB Camera
 STREAM      RESOLUTION     FORMAT      FPS
 Color       640x480        RGB8        @ 30 Hz
Intrinsic Parameters:

 Intrinsic of "Color" / 640x480 / {YUYV/RGB8/BGR8/RGBA8/BGRA8/Y16}
  Width:      \t640
  Height:     \t480
  PPX:        \t327.25
  PPY:        \t233.5
  Fx:         \t609.75
  Fy:         \t609.5
  Distortion: \tInverse Brown Conrady
  Coeffs:     \t0  \t0  \t0  \t0  \t0
  FOV (deg):  \t55.37 x 42.98

 Intrinsic of "Color" / 1280x720 / {YUYV/RGB8/BGR8/RGBA8/BGRA8/Y16}
  Width:      \t1280
  Height:     \t720
  PPX:        \t650.75
  PPY:        \t350.25
  Fx:         \t914.5
  Fy:         \t914.25
  Distortion: \tInverse Brown Conrady
  Coeffs:     \t0  \t0  \t0  \t0  \t0
  FOV (deg):  \t69.99 x 42.98

 Intrinsic of "Infrared 1" / 640x480 / {Y8}
  Width:      \t640
  Height:     \t480
  PPX:        \t319.5
  PPY:        \t236.25
  Fx:         \t384.25
  Fy:         \t384.25
  Distortion: \tBrown Conrady
  Coeffs:     \t0.1  \t-0.2  \t0.001  \t0.002  \t0.3

Extrinsic Parameters:
Extrinsic from "Color"\t  To\t  "Infrared 1" :
 Rotation Matrix:
   0.999749        -0.021599        -0.00590855
"""
OST = """# oST version 5.0 parameters


[image]

width
640

height
480

[narrow_stereo{side}]

camera matrix
{fx} 0.000000 311.500000
0.000000 509.250000 247.250000
0.000000 0.000000 1.000000

distortion
0.198900 -0.317700 0.002250 -0.001670 0.000000

rectification
1.000000 0.000000 0.000000
0.000000 1.000000 0.000000
0.000000 0.000000 1.000000

projection
525.500000 0.000000 310.000000 0.000000
0.000000 524.000000 247.500000 0.000000
0.000000 0.000000 1.000000 0.000000

"""
METASHAPE = """<?xml version="1.0" encoding="UTF-8"?>
<calibration>
  <projection>frame</projection>
  <width>1920</width>
  <height>1080</height>
  <f>1430.5</f>
  <cx>-24.25</cx>
  <cy>17.75</cy>
  <b1>0.5</b1>
  <k1>-0.12</k1>
  <k2>0.3</k2>
  <k3>-0.02</k3>
  <p1>0.0003</p1>
  <p2>0.0018</p2>
  <date>2017-11-14T23:30:12Z</date>
</calibration>
"""
POINT = np.array([0.3, -0.2, 1.5])  # in the frame of a camera


@pytest.fixture
def write(tmp_path: Path):
    def to_file(text: str, name: str = 'SN123.conf') -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name
    return to_file


def at(width: int, height: int):
    return lambda: (width, height)


def numbers(camera: Intrinsics) -> list[float]:
    return [float(camera.k[row, column]) for row, column in ((0, 0), (1, 1), (0, 2), (1, 2))]


@pytest.mark.parametrize(('size', 'left', 'right'), [
    ((2208, 1242), [1068.5, 1068.25, 1106.5, 640], [1067, 1066.5, 1089, 648]),
    ((1280, 720), [534.25, 534.125, 639.5, 368], [533.5, 533.25, 631, 372])])
@pytest.mark.parametrize('change', [('', ''), ('=', ' = '), ('_CAM_HD', '_CAM_RESOLUTION_HD')])
def test_section_of_a_zed_is_chosen_by_the_size_of_the_images(write, size, left, right, change) -> None:
    path = write(ZED.replace(*change) if change[0] else ZED)
    first, second = (load_intrinsics(Path(f'{path}:cam{number}'), size=at(*size)) for number in (0, 1))
    assert (numbers(first), numbers(second)) == (left, right)
    assert first.d.tolist() == [-0.06, 0.04, -0.0003, -9e-05, -0.014]
    assert (first.width, first.height) == size
    assert 'of raw images' in first.source


def test_pair_of_a_zed_projects_points_of_space_into_both_cameras(write) -> None:
    """By [STEREO] a point of the left camera is R p + T in the right one, with T in millimetres and -Baseline first."""
    pair = load_pair(write(ZED), size=at(1280, 720))
    assert pair is not None
    rig = StereoRig(*pair)
    assert rig.baseline_m == pytest.approx(np.linalg.norm([0.1205, 0.00025, 0.0005]))
    in_right = cv2.Rodrigues(np.array([0.004, -0.003, -0.001]))[0] @ POINT + [-0.1205, 0.00025, -0.0005]
    pixels = [cv2.projectPoints(point[None], np.zeros(3), np.zeros(3), camera.k, camera.d)[0][:, 0]
              for point, camera in zip((POINT, in_right), pair, strict=True)]
    first, second = rig.left_points(pixels[0])[0], rig.right_points(pixels[1])[0]
    assert first[1] == pytest.approx(second[1], abs=1e-6)
    assert rig.baseline_m / (first[0] - second[0]) == pytest.approx((pair[0].rectification @ POINT)[2], rel=1e-6)
    assert load_pair(write(ZED.partition('[STEREO]')[0]), size=at(1280, 720)) is None


def test_raw_calibration_of_a_zed_is_refused_for_rectified_images(write) -> None:
    with pytest.raises(BagError, match=r'are of the raw images. Give the calibration of the rectified'):
        load_intrinsics(Path(f'{write(ZED)}:cam0'), rectified=True, size=at(1280, 720))


RATIONAL = [-0.06, 0.04, -0.0003, -0.00009, -0.014, 0.5, 0.1, 0.02]


@pytest.mark.parametrize(('lens', 'model', 'd'), [
    (dict(zip(('k1', 'k2', 'p1', 'p2', 'k3', 'k4', 'k5', 'k6'), RATIONAL, strict=True)), 'rational_polynomial', RATIONAL),
    ({'k1': 0.04, 'k2': 0.03, 'k3': -0.02, 'k4': 0.01}, 'equidistant', [0.04, 0.03, -0.02, 0.01]),
    ({'p1': 0, 'p2': 0, 'k1': 0.04, 'k2': 0.03, 'k3': -0.02, 'k4': 0.01, 'k5': 0}, 'equidistant', [0.04, 0.03, -0.02, 0.01])])
def test_lens_of_a_zed_is_in_its_own_section(write, lens: dict[str, float], model: str, d: list[float]) -> None:
    disto = '[LEFT_DISTO]\n' + ''.join(f'{name}={value}\n' for name, value in lens.items())
    camera = load_intrinsics(Path(f'{write(ZED + disto)}:cam0'), size=at(1280, 720))
    assert (distortion_model(camera), camera.d.tolist()) == (model, d)


ZEROS = '0  \t0  \t0  \t0  \t0'
TWICE = REALSENSE.replace('Color" / 1280x720', 'Color" / 640x480').replace('\t1280\n', '\t640\n').replace('\t720\n', '\t480\n')


@pytest.mark.parametrize(('text', 'name', 'size', 'message'), [
    (ZED, '', (2560, 720), 'SN123.conf: it is for images of 2208x1242, 1280x720, and these have 2560x720: give images of one'),
    (ZED, '', (640, 360), 'and these have 640x360'),
    (ZED, '', (1280, 720), 'describes the cameras cam0, cam1: choose one'),
    (ZED.replace('fy=534.125\n', ''), ':cam0', (1280, 720), 'a camera without fy'),
    (ZED + '[LEFT_DISTO]\nk1=0.1\ns1=0.01\n', ':cam0', (1280, 720), 's1: 0.01 is not read'),
    (ZED.replace('fx=', 'fx'), '', (1280, 720), 'no calibration of a ZED .*download it anew'),
    (REALSENSE, '', (848, 480), 'it is for images of 640x480, 1280x720, and these have 848x480'),
    (REALSENSE, '', (640, 480), 'describes the cameras color, infrared_1: choose one'),
    (REALSENSE.replace(ZEROS, '0.1 0 0 0 0'), '', (1280, 720), 'model: inverse_brown_conrady with D = .0.1, .*undistort'),
    (REALSENSE.replace('Inverse', 'Modified').replace(ZEROS, '0.1 0 0 0 0'), '', (1280, 720), 'modified_brown_conrady'),
    (REALSENSE.replace('Inverse Brown Conrady', 'F-Theta'), '', (1280, 720), 'model: F-Theta'),
    (TWICE, '', (640, 480), 'describes color more than once'),
    (METASHAPE.replace('0.5</b1>', '0.5</b1><b2>0.3</b2>'), '', (1920, 1080), 'skew_b2: 0.3 is not read'),
    (METASHAPE.replace('</k3>', '</k3><k4>0.01</k4>'), '', (1920, 1080), 'radial_k4: 0.01 is not read'),
    (METASHAPE.replace('>frame<', '>fisheye<'), '', (1920, 1080), 'projection fisheye, .*OpenCV XML'),
    (METASHAPE.replace('<f>1430.5</f>', '<fx>1430</fx>'), '', (1920, 1080), 'f None: .*export the calibration as OpenCV XML')])
def test_refusals_of_texts_name_what_is_wrong(write, text: str, name: str, size: tuple[int, int], message: str) -> None:
    with pytest.raises(BagError, match=message) as error:
        load_intrinsics(Path(f'{write(text)}{name}'), size=at(*size))
    assert 'SN123.conf' in str(error.value)


def test_several_sizes_without_images_are_refused_with_the_sizes(write) -> None:
    for read in (load_intrinsics, load_camera_in_body, load_pair):
        with pytest.raises(BagError, match='it is for images of 2208x1242, 1280x720: give images of one of these sizes'):
            read(write(ZED))


def test_stream_of_a_realsense_is_chosen_by_name_and_size(write) -> None:
    path = write(REALSENSE)
    color = load_intrinsics(path, size=at(1280, 720))
    assert (numbers(color), distortion_model(color)) == ([914.5, 914.25, 650.75, 350.25], None)
    assert numbers(load_intrinsics(Path(f'{path}:color'), size=at(640, 480))) == [609.75, 609.5, 327.25, 233.5]
    infrared = load_intrinsics(Path(f'{path}:infrared_1'), size=at(640, 480))
    assert infrared.d.tolist() == [0.1, -0.2, 0.001, 0.002, 0.3]
    fisheye = REALSENSE.replace('Inverse Brown Conrady', 'Kannala Brandt4').replace(ZEROS, '0.1 0.02 -0.03 0.004 0')
    assert load_intrinsics(write(fisheye), size=at(1280, 720)).d.tolist()[:4] == [0.1, 0.02, -0.03, 0.004]


def test_ost_of_camera_calibration_is_one_camera_or_a_pair(write) -> None:
    text = 'mono pinhole calibration...\n' + OST.format(side='', fx='511.500000')
    camera = load_intrinsics(write(text))
    assert (camera.width, camera.height, numbers(camera)) == (640, 480, [511.5, 509.25, 311.5, 247.25])
    assert camera.d.tolist() == [0.1989, -0.3177, 0.00225, -0.00167, 0]
    assert numbers(load_intrinsics(write(text), rectified=True)) == [525.5, 524, 310, 247.5]
    pair = write(OST.format(side='/left', fx='511.5') + OST.format(side='/right', fx='512.5'))
    assert load_intrinsics(Path(f'{pair}:right')).k[0, 0] == 512.5
    with pytest.raises(BagError, match='describes the cameras left, right: choose one'):
        load_intrinsics(pair)


def test_metashape_projects_as_its_manual_says(write) -> None:
    camera = load_intrinsics(write(METASHAPE))
    x, y = POINT[:2] / POINT[2]
    r = x * x + y * y
    radial = 1 - 0.12 * r + 0.3 * r**2 - 0.02 * r**3
    p1, p2 = 0.0003, 0.0018
    x, y = (x * radial + p1 * (r + 2 * x * x) + 2 * p2 * x * y, y * radial + p2 * (r + 2 * y * y) + 2 * p1 * x * y)
    corner = [1920 / 2 - 24.25 + x * (1430.5 + 0.5), 1080 / 2 + 17.75 + y * 1430.5]
    pixel = cv2.projectPoints(POINT[None], np.zeros(3), np.zeros(3), camera.k, camera.d)[0].ravel()
    np.testing.assert_allclose(pixel, np.array(corner) - 0.5, atol=1e-9)


def test_sensor_of_a_metashape_project_is_its_adjusted_calibration(write) -> None:
    own = dict(re.findall(r'<(\w+)>([-\d.e]+)</', METASHAPE))
    numbers = ''.join(f'<{name}>{value}</{name}>' for name, value in own.items() if name not in ('width', 'height'))
    size = '<resolution width="1920" height="1080"/>'
    calibrations = ''.join(f'<calibration type="frame" class="{kind}">{size}{inner}</calibration>'
                           for kind, inner in (('initial', '<f>9</f>'), ('adjusted', numbers)))
    text = ('<?xml version="1.0" encoding="UTF-8"?>\n<document version="2.0.0"><chunk><sensors><sensor id="0" type="frame">'
            f'{size}{calibrations}</sensor></sensors></chunk></document>\n')
    camera, same = load_intrinsics(write(text)), load_intrinsics(write(METASHAPE))
    assert (camera.width, camera.height, camera.k.tolist(), camera.d.tolist()) == (1920, 1080, same.k.tolist(), same.d.tolist())
    with pytest.raises(BagError, match='its sensor 0 has no calibration of the class "adjusted": align the photos'):
        load_intrinsics(write(text.replace('adjusted', 'other')))


@pytest.mark.parametrize(('model', 'values', 'k', 'd'), [
    (1, [450, 451, 320, 240], [450, 451, 319.5, 239.5], []),
    (2, [450, 320, 240, -0.01], [450, 450, 319.5, 239.5], [-0.01, 0, 0, 0]),
    (4, [450, 451, 320, 240, -0.28, 0.07, 0.0002, 2e-05], [450, 451, 319.5, 239.5], [-0.28, 0.07, 0.0002, 2e-05])])
def test_colmaps_binary_has_the_cameras_of_its_text(tmp_path: Path, model: int, values, k, d) -> None:
    path = tmp_path / 'cameras.bin'
    other = struct.pack('<iiQQ3d', 7, 0, 96, 72, 80, 48, 36)
    path.write_bytes(struct.pack('<Q', 2) + struct.pack(f'<iiQQ{len(values)}d', 1, model, 640, 480, *values) + other)
    camera = load_intrinsics(Path(f'{path}:cam1'))
    assert (camera.width, camera.height, numbers(camera)) == (640, 480, k)
    assert not d or camera.d.tolist() == d
    assert numbers(load_intrinsics(Path(f'{path}:cam7'))) == [80, 80, 47.5, 35.5]
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(BagError, match=r'is no text: export it as text, that of MATLAB by writelines'):
        load_intrinsics(path)


def test_cameras_of_kapture_have_their_ids(write) -> None:
    heading = '# kapture format: 1.1\n# sensor_id, name, sensor_type, [sensor_params]+\n'
    left = '001, left, camera, OPENCV_FISHEYE, 640, 480, 450, 451, 320, 240, -0.013, 0.004, -0.002, 0.0004\n'
    path = write(f'{heading}{left}lidar0, , lidar\n')
    camera = load_intrinsics(path)
    assert (camera.width, camera.height, numbers(camera)) == (640, 480, [450, 451, 319.5, 239.5])
    assert (camera.distortion_model, camera.d.tolist()) == ('equidistant', [-0.013, 0.004, -0.002, 0.0004])
    path = write(f'{heading}{left}other, , camera, SIMPLE_PINHOLE, 640, 480, 525, 320, 240\n')
    assert numbers(load_intrinsics(Path(f'{path}:other'))) == [525, 525, 319.5, 239.5]
    with pytest.raises(BagError, match='describes the cameras 001, other: choose one'):
        load_intrinsics(path)
    with pytest.raises(BagError, match='none of its cameras has intrinsics: 7; calibrate them'):
        load_intrinsics(write(f'{heading}7, , camera, UNKNOWN_CAMERA, 640, 480\n'))


@pytest.mark.parametrize('text', [
    'fx: 450\nfy: 451\nppx: 319.5\nppy: 239.5\n', 'K: [450, 0, 319.5, 0, 451, 239.5, 0, 0, 1]\nH: [1, 0, 0, 0, 1, 0, 0, 0, 1]\n',
    'intrinsics: [[450, 0, 319.5], [0, 451, 239.5], [0, 0, 1]]\ndepth_scale: 0.001\n'])
def test_cameras_without_a_size_get_that_of_the_images(write, text: str) -> None:
    camera = load_intrinsics(write(text), size=lambda: (640, 480))
    assert (camera.width, camera.height, numbers(camera)) == (640, 480, [450, 451, 319.5, 239.5])


@pytest.mark.parametrize(('text', 'd'), [
    ('450 451 319.5 239.5\n', []), ('450, 451, 319.5, 239.5, -0.28, 0.07, 0.0002, 1.7e-05\n', [-0.28, 0.07, 0.0002, 1.7e-05]),
    ('# fx fy cx cy k1 k2 p1 p2 k3\n450 451 319.5 239.5 0.26 -0.95 -0.005 0.002 1.16\n', [0.26, -0.95, -0.005, 0.002, 1.16]),
    ('450\n451\n319.5\n239.5\n0.26\n-0.95\n-0.005\n0.002\n1.16\n', [0.26, -0.95, -0.005, 0.002, 1.16])])
def test_line_or_column_has_focal_lengths_middle_and_coefficients(write, text: str, d: list[float]) -> None:
    camera = load_intrinsics(write(text), size=lambda: (640, 480))
    assert numbers(camera) == [450, 451, 319.5, 239.5]
    assert camera.d[:len(d)].tolist() == d


@pytest.mark.parametrize('text', [
    'axisAlignment = 1.0 0.0\ncolorHeight = 480\ncolorWidth = 640\ndepthHeight = 48\ndepthWidth = 64\nfx_color = 450.0\n'
    'fy_color = 451.0\nmx_color = 319.5\nmy_color = 239.5\nfx_depth = 45.0\nfy_depth = 45.0\nmx_depth = 32.0\nmy_depth = 24.0\n',
    'm_versionNumber = 4\nm_colorWidth = 640\nm_colorHeight = 480\nm_depthWidth = 64\nm_depthHeight = 48\n'
    'm_calibrationColorIntrinsic = 450 0 319.5 0 0 451 239.5 0 0 0 1 0 0 0 0 1\n'
    'm_calibrationDepthIntrinsic = 45 0 32 0 0 45 24 0 0 0 1 0 0 0 0 1\n'])
def test_scannets_texts_have_the_cameras_color_and_depth(write, text: str) -> None:
    path = write(text, 'scene0000_00.txt')
    color, depth = (load_intrinsics(Path(f'{path}:{name}')) for name in ('color', 'depth'))
    assert (color.size, color.k.tolist()) == ((480, 640), [[450.0, 0, 319.5], [0, 451.0, 239.5], [0, 0, 1]])
    assert (depth.size, depth.k.tolist()) == ((48, 64), [[45.0, 0, 32.0], [0, 45.0, 24.0], [0, 0, 1]])


def test_scannets_extrinsic_color_is_not_that_of_an_opencv_pair(write) -> None:
    write('1 0 0 0\n0 1 0 0\n0 0 1 0\n0 0 0 1\n', 'extrinsic_color.txt')
    path = write('450 0 319.5 0\n0 451 239.5 0\n0 0 1 0\n0 0 0 1\n', 'intrinsic_color.txt')
    assert numbers(load_intrinsics(path, size=lambda: (640, 480))) == [450, 451, 319.5, 239.5]


def test_text_of_another_tool_is_left_to_yaml(write) -> None:
    text = '# Intrinsic of a camera\nwidth: 640\nheight: 480\nfx: 450\nfy: 451\ncx: 319.5\ncy: 239.5\n'
    assert load_intrinsics(write(text)).width == 640
    with pytest.raises(BagError, match='has no width, it has section; '):
        load_intrinsics(write('[section]\nfx=1\nfy=2\n'))
