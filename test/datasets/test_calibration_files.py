"""One camera in every form of file, its pose in the body, stereo pairs, and refusals that name the key."""

from __future__ import annotations

import json
import re
from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lightglue_trt_ros.core.cameras import Intrinsics, StereoRig, distortion_model, is_rectified
from lightglue_trt_ros.datasets.calibration_choices import split_choice
from lightglue_trt_ros.datasets.calibration_files import find_camera_in_body, load_baseline, load_camera_in_body, load_intrinsics
from lightglue_trt_ros.datasets.calibration_pairs import load_pair
from lightglue_trt_ros.datasets.calibration_texts import of_text
from lightglue_trt_ros.utils.errors import BagError

RADTAN = [-0.28, 0.07, 0.0002, 2e-05]
KB = [-0.013, 0.004, -0.002, 0.0004]
K = [[450.0, 0, 319.5], [0, 451.0, 239.5], [0, 0, 1]]
FLAT_K = 'fx: 450.0\nfy: 451.0\ncx: 319.5\ncy: 239.5\n'
OWN = f'model: pinhole\nwidth: 640\nheight: 480\n{FLAT_K}'
ROS = ('image_width: 640\nimage_height: 480\ncamera_name: narrow\ncamera_matrix:\n  rows: 3\n  cols: 3\n'
       '  data: [450.0, 0, 319.5, 0, 451.0, 239.5, 0, 0, 1]\ndistortion_model: plumb_bob\ndistortion_coefficients:\n  rows: 1\n'
       f'  cols: 4\n  data: {RADTAN}\n')
RECTIFIED = 'projection_matrix:\n  rows: 3\n  cols: 4\n  data: [400.0, 0, 310, -40, 0, 400.0, 230, 0, 0, 0, 1, 0]\n'
OPENCV = ('%YAML:1.0\n---\nimage_width: 640\nimage_height: 480\ncamera_matrix: !!opencv-matrix\n   rows: 3\n   cols: 3\n   dt: d\n'
          '   data: [ 450., 0., 319.5, 0., 451., 239.5, 0., 0., 1. ]\n')
EUROC = 'sensor_type: camera\nresolution: [640, 480]\ncamera_model: pinhole\nintrinsics: [450.0, 451.0, 319.5, 239.5]\n'
KALIBR = f'{EUROC}distortion_model: radtan\ndistortion_coeffs: {RADTAN}\ncam_overlaps: []\nrostopic: /cam0/image_raw\n'
VINS = ('%YAML:1.0\n---\nmodel_type: PINHOLE\ncamera_name: camera\nimage_width: 640\nimage_height: 480\ndistortion_parameters:\n'
        '   k1: -0.28\n   k2: 0.07\n   p1: 0.0002\n   p2: 2.0e-05\nprojection_parameters:\n   fx: 450.0\n   fy: 451.0\n'
        '   cx: 319.5\n   cy: 239.5\nmin_dist: 30\nF_threshold: 1.0\nfisheye: 0\n')
BODY = [[0.0, -1, 0, 0.5], [1, 0, 0, 0.25], [0, 0, 1, -0.125], [0, 0, 0, 1]]
RIGHT_IN_LEFT = [[1.0, 0, 0, 0.11], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]


def plain_matrix(rows: int, columns: int) -> str:
    """K in numbers alone, as of ScanNet and many scripts."""
    matrix = np.eye(rows, columns)
    matrix[:3, :3] = K
    return ''.join(' '.join(map(str, row)) + '\n' for row in matrix)


def inside(name: str, text: str) -> str:
    """`text` as the mapping `name`."""
    return f'{name}:\n' + ''.join(f'  {line}\n' for line in text.splitlines())


def orbslam(prefix: str = 'Camera1', kind: str = 'PinHole', names: str = 'k1 k2 p1 p2', d: list[float] = RADTAN) -> str:
    lens = ''.join(f'{prefix}.{name}: {value:.8f}\n' for name, value in zip(names.split(), d, strict=True))
    k = ''.join(f'{prefix}.{line}\n' for line in FLAT_K.splitlines())
    return (f'%YAML:1.0\nFile.version: "1.0"\nCamera.type: "{kind}"\n{k}{lens}Camera.width: 640\nCamera.height: 480\n'
            'Camera.fps: 30\nStereo.ThDepth: 60.0\nORBextractor.nFeatures: 1000\nViewer.PointSize: 2\n')


def opencv_matrix(name: str, matrix: list[list[float]]) -> str:
    return f'{name}: !!opencv-matrix\n   rows: 4\n   cols: 4\n   dt: f\n   data: {np.ravel(matrix).tolist()}\n'


def mc_calib(lens: int, d: list[float]) -> str:
    camera = {'camera_matrix': {'rows': 3, 'cols': 3, 'data': np.ravel(K).tolist()}, 'distortion_vector': {'rows': 1, 'data': d},
              'distortion_type': lens, 'camera_group': 0, 'img_width': 640, 'img_height': 480}
    return '%YAML:1.0\n---\n' + yaml.safe_dump({'nb_camera': 1, 'camera_0': camera})


def sides() -> str:
    """The raw pair of ORB-SLAM2 and AirVO, which looks straight ahead and is 0.11 m wide."""
    projection = [[400.0, 0, 310, 0], [0, 400.0, 230, 0], [0, 0, 1, 0]]
    return ''.join(f'{side}.{key}: !!opencv-matrix\n   dt: d\n   data: {np.ravel(value).tolist()}\n' for side, shift in (
        ('LEFT', 0.0), ('RIGHT', -44.0)) for key, value in (('K', K), ('D', [*RADTAN, 0.0]), ('R', np.eye(3)), (
            'P', projection + np.array([[0, 0, 0, shift], [0, 0, 0, 0], [0, 0, 0, 0]]))))


MAPLAB = ('label: rig\ncameras:\n- camera:\n    distortion:\n      parameters:\n        cols: 1\n        rows: 4\n'
          f'        data: {RADTAN}\n      type: radial-tangential\n    image_height: 480\n    image_width: 640\n    intrinsics:\n'
          '      cols: 1\n      rows: 4\n      data: [450.0, 451.0, 319.5, 239.5]\n    label: cam0\n    type: pinhole\n'
          f'  T_B_C:\n    cols: 4\n    rows: 4\n    data: {np.ravel(BODY).tolist()}\n')
OKVIS = (f'%YAML:1.0\ncameras:\n  - {{T_SC:\n    {np.ravel(BODY).tolist()},\n    image_dimension: [640, 480],\n'
         f'    distortion_coefficients: {RADTAN},\n    distortion_type: radialtangential,\n    focal_length: [450.0, 451.0],\n'
         '    principal_point: [319.5, 239.5]}\ncamera_params: {camera_rate: 20}\n')
COLMAP = '# Camera list with one line of data per camera:\n#   CAMERA_ID, MODEL, WIDTH, HEIGHT, PARAMS[]\n1 {} 640 480 {}\n'


def basalt(kind: str, lens: dict[str, float]) -> str:
    camera = {'camera_type': kind, 'intrinsics': {'fx': 450.0, 'fy': 451.0, 'cx': 319.5, 'cy': 239.5, **lens}}
    half = 0.5**0.5  # BODY rotates by a quarter about z
    pose = {'px': 0.5, 'py': 0.25, 'pz': -0.125, 'qx': 0, 'qy': 0, 'qz': half, 'qw': half}
    return json.dumps({'value0': {'T_imu_cam': [pose], 'intrinsics': [camera], 'resolution': [[640, 480]], 'vignette': []}})


def luxonis(kind: int, d: list[float]) -> str:
    camera = {'cameraType': kind, 'distortionCoeff': d, 'height': 480, 'width': 640, 'intrinsicMatrix': K, 'lensPosition': 0}
    return json.dumps({'boardName': 'OAK', 'cameraData': [[2, camera]], 'version': 7})


def matlab(**matrix: list[list[float]]) -> str:
    lens = {'RadialDistortion': RADTAN[:2], 'TangentialDistortion': RADTAN[2:]}
    return json.dumps({**lens, **matrix, 'ImageSize': [480, 640], 'WorldUnits': 'millimeters', 'EstimateSkew': False})


def vikit(kind: str = 'Pinhole', names: str = 'cam_d0 cam_d1 cam_d2 cam_d3', d: list[float] = RADTAN) -> str:
    lens = ''.join(f'{name}: {value}\n' for name, value in zip(names.split(), d, strict=True))
    return (f'cam_model: {kind}\ncam_width: 640\ncam_height: 480\nscale: 0.5\n'
            + ''.join(f'cam_{line}\n' for line in FLAT_K.splitlines()) + lens)


def gyroflow(**changed: object) -> str:
    lens = {'camera_matrix': K, 'distortion_coeffs': KB, 'RMS_error': 0.5, 'radial_distortion_limit': 1.2}
    return json.dumps({'camera_brand': 'Maker', 'camera_model': 'Model 7', 'calib_dimension': {'w': 640, 'h': 480},
                       'input_horizontal_stretch': 1.0, 'fisheye_params': lens, 'distortion_model': None, **changed})


def airslam(kind: int, d: list[float]) -> str:
    return (f'%YAML:1.0\nimage_height: 480\nimage_width: 640\ndistortion_type: {kind}\n' + ''.join(inside(
        f'cam{number}', f'intrinsics: [450.0, 451.0, 319.5, 239.5]\ndistortion_coeffs: {d}\nT_type: {number}\nT: '
        f'{[BODY, np.linalg.inv(BODY).tolist()][number]}\n') for number in range(2)))


def ov2slam(kind: str, d: list[float]) -> str:
    sides = ''.join(f'Camera.model_{side}: {kind}\nCamera.{side}_nwidth: 640\nCamera.{side}_nheight: 480\n' + ''.join(
        f'Camera.{line.replace(":", side[0] + ":")}\n' for line in FLAT_K.splitlines()) + ''.join(
        f'Camera.{name}{side[0]}: {value}\n' for name, value in zip(('k1', 'k2', 'p1', 'p2'), d, strict=True))
        for side in ('left', 'right'))
    return f'%YAML:1.0\n---\n{sides}body_T_cam0: {BODY}\nbody_T_cam1: {BODY}\n'


def opensfm(kind: str, names: str, d: list[float], middle: tuple[float, float] = (8.0, -4.0)) -> str:
    focal = {'focal_x': 450 / 640, 'focal_y': 451 / 640, 'c_x': middle[0] / 640, 'c_y': middle[1] / 640}
    return json.dumps({'v2 maker model 640 480': {'projection_type': kind, 'width': 640, 'height': 480, **focal,
                                                  **dict(zip(names.split(), d, strict=True))}})


def spectacular(kind: str, d: list[float]) -> str:
    camera = {'focalLengthX': 450.0, 'focalLengthY': 451.0, 'principalPointX': 319.5, 'principalPointY': 239.5, 'imageWidth': 640,
              'imageHeight': 480, 'model': kind, 'distortionCoefficients': d, 'imuToCamera': np.linalg.inv(BODY).tolist()}
    return json.dumps({'cameras': [camera], 'imuToOutput': np.eye(4).tolist()})


PHOTONVISION = json.dumps({'resolution': {'width': 640.0, 'height': 480.0}, 'perViewErrors': [0.3], 'cameraIntrinsics': {
    'rows': 3, 'cols': 3, 'type': 6, 'data': np.ravel(K).tolist()}, 'distCoeffs': {'rows': 1, 'cols': 4, 'data': RADTAN}})
OPENCALIB = json.dumps({'center_camera-intrinsic': {'sensor_name': 'center_camera', 'param': {
    'img_dist_w': 640, 'img_dist_h': 480, 'cam_K': {'rows': 3, 'cols': 3, 'data': K}, 'cam_dist': {'rows': 1, 'cols': 4,
                                                                                                  'data': [RADTAN]}}}})
RAW_OF_DSEC = f'camera_model: pinhole\ndistortion_coeffs: {RADTAN}\ndistortion_model: radtan\n'
DSEC = f'extrinsics:\n  T_10: {np.linalg.inv(RIGHT_IN_LEFT).tolist()}\n' + inside('intrinsics', ''.join(inside(
    name, f'camera_matrix: [450.0, 451.0, 319.5, 239.5]\nresolution: [640, 480]\n{lens}')
    for name, lens in (('cam0', RAW_OF_DSEC), ('cam1', RAW_OF_DSEC), ('camRect1', ''))))
FLAT_LENS = 'k1: -0.28\nk2: 0.07\np1: 0.0002\np2: 0.00002\n'
REALSENSE = json.dumps({'width': 640, 'height': 480, 'ppx': 319.5, 'ppy': 239.5, 'fx': 450.0, 'fy': 451.0,
                        'model': 'Inverse Brown Conrady', 'coeffs': [0.0, 0, 0, 0, 0]})
FORMS = {
    'own': f'{OWN}dist: {RADTAN}\n',
    'own, model_type': f'model_type: PINHOLE\n{OWN}dist: {RADTAN}\n',
    'own with a word': f'{OWN}distortion: radtan (of the first flight)\ndist: {RADTAN}\n',
    'own, flat': OWN + FLAT_LENS,
    'INI, a section for each': '; a section for each\n[image_size]\nwidth=640\nheight=480\n[intrinsics]\n'
           + f'{FLAT_K}[distortion]\n{FLAT_LENS}'.replace(':', '='),
    'own, named inside': OWN + inside('distortion', FLAT_LENS),
    'own, a list named distortion': f'{OWN}distortion: {RADTAN}\n',
    'ROS': ROS,
    'ROS with P': ROS + RECTIFIED,
    'OpenCV': f'{OPENCV}distortion_coefficients: !!opencv-matrix\n   rows: 4\n   cols: 1\n   dt: d\n   data: {RADTAN}\n',
    'OpenCV, dist_coeffs': f'{OPENCV}dist_coeffs: !!opencv-matrix\n   rows: 1\n   cols: 4\n   dt: d\n   data: {RADTAN}\n',
    'OpenCV 2': re.sub('^(image|camera)_([a-z])', lambda found: f'{found[1].title()}_{found[2].title()}',
                       f'{OPENCV}Distortion_Coefficients: !!opencv-matrix\n   rows: 4\n   cols: 1\n   dt: d\n   data: {RADTAN}\n',
                       flags=re.MULTILINE),
    'EuRoC': f'{EUROC}distortion_model: radial-tangential\ndistortion_coefficients: {RADTAN}\n',
    'EuRoC, distortion_coeffs': f'{EUROC}distortion_model: radial-tangential\ndistortion_coeffs: {RADTAN}\n',
    'EuRoC inside cam0': inside('cam0', f'{EUROC}distortion_model: radtan\ndistortion_coefficients: {RADTAN}\n'),
    'Kalibr, flat': KALIBR,
    'Kalibr, one camera': '%YAML:1.0\n' + inside('cam0', KALIBR),
    'VINS': VINS,
    'ORB-SLAM2': orbslam('Camera'),
    'ORB-SLAM3': orbslam(),
    'YAML as its standard has it': '%YAML 1.0\n' + KALIBR,
    'slambook, small letters': orbslam('Camera').replace('Camera.', 'camera.'),
    'without spaces': orbslam().replace('PointSize: ', 'PointSize:').replace('Camera1.k1: ', 'Camera1.k1:'),
    'CameraInfo of `topic echo`': 2 * (f'header:\n  frame_id: cam\nheight: 480\nwidth: 640\ndistortion_model: plumb_bob\n'
                                      f'd: {RADTAN}\nk: {np.ravel(K).tolist()}\nbinning_x: 0\n---\n'),
    'nested K and D': f'image_size: [640, 480]\nK: {K}\nD: [{RADTAN}]\n',
    'Autoware': f'ImageSize: [640, 480]\nCameraMat:\n  data: {np.ravel(K).tolist()}\nDistCoeff:\n  data: {RADTAN}\nDistModel: ""\n',
    'nerfstudio': json.dumps({'camera_model': 'OPENCV', 'fl_x': 450.0, 'fl_y': 451.0, 'cx': 320.0, 'cy': 240.0, 'w': 640, 'h': 480,
                              **dict(zip(('k1', 'k2', 'p1', 'p2'), RADTAN, strict=True)), 'frames': [{'file_path': '0.png'}]}),
    'JSON with tabs, inside a name': json.dumps({'camera': {'w': 640, 'h': 480, 'fx': 450.0, 'fy': 451.0, 'cx': 319.5, 'cy': 239.5,
                                                            'dist': RADTAN}}, indent='\t'),
    'tabs before comments': f'{OWN}dist: {RADTAN}'.replace('\n', '\t# measured\n'),
    'OpenVSLAM': inside('Camera', f'model: "perspective"\n{FLAT_K}{FLAT_LENS}cols: 640\nrows: 480\nfps: 30.0\n'),
    'stella_vslam': inside('Camera', f'model: "perspective"\n{FLAT_K}{FLAT_LENS}cols: 640\nrows: 480\nfps: 30.0\n') + inside(
        'Mapping', 'baseline_dist_thr: 0.11\nbaseline_dist_thr_ratio: 0.02\n'),
    'OpenVSLAM, flat': orbslam('Camera').replace('type: "PinHole"', 'model: perspective').replace('width', 'cols').replace(
        'height', 'rows'),
    'OpenCV in XML': ('<?xml version="1.0"?>\n<opencv_storage>\n<image_width>640</image_width>\n<image_height>480</image_height>\n'
                      '<camera_matrix type_id="opencv-matrix">\n<rows>3</rows><cols>3</cols><dt>d</dt>\n'
                      '<data>450. 0. 319.5 0. 451. 239.5 0. 0. 1.</data></camera_matrix>\n<distortion_coefficients '
                      'type_id="opencv-matrix">\n<rows>4</rows><cols>1</cols><dt>d</dt>\n'
                      '<data>-0.28 0.07 0.0002 2e-05</data></distortion_coefficients>\n</opencv_storage>\n'),
    'OpenCV, camelCase': re.sub('camera_matrix', 'cameraMatrix', f'{OPENCV}distCoeffs: !!opencv-matrix\n   rows: 4\n   cols: 1\n'
                                f'   dt: d\n   data: {RADTAN}\n'),
    'OpenCV 5, one dimension': f'{OPENCV}D: !!opencv-nd-matrix\n   sizes: [ 4 ]\n   dt: d\n   data: {RADTAN}\n',
    'RealSense': REALSENSE.replace('Inverse Brown Conrady', 'distortion.brown_conrady').replace('[0.0, 0, 0, 0, 0]', str(RADTAN)),
    'byte order mark': f'\ufeff{OWN}dist: {RADTAN}\n',
    'Open3D, column by column': json.dumps({'width': 640, 'height': 480, 'intrinsic_matrix': np.ravel(K, 'F').tolist(),
                                            'dist': RADTAN}),
    'Record3D': json.dumps({'w': 640, 'h': 480, 'K': np.ravel(K, 'F').tolist(), 'fps': 60, 'poses': [], 'dist': RADTAN}),
    'OpenCV in Python': json.dumps({'ret': 0.4, 'mtx': K, 'dist': [RADTAN], 'image_size': [640, 480]}),
    'COLMAP': COLMAP.format('OPENCV', '450 451 320 240 -0.28 0.07 0.0002 2e-05'),
    'maplab, SVO': MAPLAB,
    'OKVIS': OKVIS,
    'MATLAB': matlab(K=[[450.0, 0, 320.5], [0, 451.0, 240.5], [0, 0, 1]]),
    'MATLAB before 2022': matlab(IntrinsicMatrix=[[450.0, 0, 0], [0, 451.0, 0], [320.5, 240.5, 1]]),
}
FORMS |= {
    'JSON with K by names': json.dumps({'image_size': {'width': 640, 'height': 480}, 'dist_coeffs': RADTAN, 'camera_matrix': {
        'fx': 450.0, 'fy': 451.0, 'cx': 319.5, 'cy': 239.5}}),
    'JSON with intrinsics by names': json.dumps({'width': 640, 'height': 480, 'intrinsics': {
        'fx': 450.0, 'fy': 451.0, 'ppx': 319.5, 'ppy': 239.5}, 'distortion': dict(
            zip(('k1', 'k2', 'p1', 'p2'), RADTAN, strict=True))}),
    'JSON with a camera of names': json.dumps({'left': {'resolution': {'w': 640, 'h': 480}, 'intrinsic': {
        'fx': 450.0, 'fy': 451.0, 'u0': 319.5, 'v0': 239.5, 'k1': RADTAN[0], 'k2': RADTAN[1], 'p1': RADTAN[2], 'p2': RADTAN[3]}}}),
    'JSON with the lens by model and list': json.dumps({'image_size': {'width': 640, 'height': 480}, 'intrinsics': {
        'fx': 450.0, 'fy': 451.0, 'cx': 319.5, 'cy': 239.5}, 'distortion': {'model': 'radtan', 'coefficients': RADTAN}}),
    'JSON with the lens by type and list': json.dumps({'width': 640, 'height': 480, 'K': K, 'distortion': {
        'type': 'radial-tangential', 'parameters': RADTAN}}),
    'JSON with values inside the lens': json.dumps({'width': 640, 'height': 480, 'K': K, 'distortion_coefficients': {
        'values': RADTAN}}),
    'JSON with intrinsics as a matrix': json.dumps({'width': 640, 'height': 480, 'intrinsics': K, 'distortion': RADTAN}),
    'JSON with a flat intrinsic matrix': json.dumps({'width': 640, 'height': 480, 'intrinsic': np.ravel(K).tolist(), 'kc': RADTAN}),
    'JSON in camelCase': json.dumps({'width': 640, 'height': 480, 'intrinsicMatrix': K, 'distortionCoefficients': RADTAN}),
    'a list of cameras': json.dumps({'cameras': [{'name': 'front', 'K': K, 'D': RADTAN, 'width': 640, 'height': 480}]}),
    'a list of cameras with mappings': json.dumps({'sensors': [{'id': 7, 'width': 640, 'height': 480, 'intrinsics': {
        'fx': 450.0, 'fy': 451.0, 'cx': 319.5, 'cy': 239.5}, 'distortion': {'model': 'radtan', 'coefficients': RADTAN}}]}),
    'only a list': json.dumps([{'camera_matrix': K, 'dist_coeffs': RADTAN, 'resolution': '640x480'}]),
    'the product of a lens': f'{OWN}dist: {RADTAN}\nlens: 4 mm, f/2\n',
    'OpenCV, imageWidth': f'{OPENCV}D: {RADTAN}\n'.replace('image_width', 'imageWidth').replace('image_height', 'imageHeight'),
    'YAML with a projection by names': inside('left', (
        f'image_width: 640\nimage_height: 480\n{inside("projection", FLAT_K)}'
        + inside('distortion', f'do_undistortion: false\n{FLAT_LENS}'))),
    'Orbbec, the size twice': json.dumps({'color': {'width': 640, 'height': 480, 'intrinsic': {
        'width': 640, 'height': 480, 'fx': 450.0, 'fy': 451.0, 'cx': 319.5, 'cy': 239.5}, 'distortion': dict(
            zip(('k1', 'k2', 'p1', 'p2'), RADTAN, strict=True))}}),
    'CalibAnything, K with a fourth column': json.dumps({'width': 640, 'height': 480, 'cam_K': {'rows': 3, 'cols': 4, 'data': [
        [*row, 0.0] for row in K]}, 'cam_dist': {'cols': 4, 'data': RADTAN}, 'T_lidar_to_cam': {'data': BODY}}),
    'XRSLAM': inside('cam0', f'{EUROC}distortion_model: radtan\ncamera_distortion_flag: 1\ndistortion: {RADTAN}\n'),
    'mrcal': "{\n    'lensmodel': 'LENSMODEL_OPENCV4',\n    # focal\n    'intrinsics': [ 450, 451, 319.5, 239.5, -0.28, 0.07, "
             "0.0002, 0.00002,],\n    'extrinsics': [ 0,0,0,0,0,0,],\n    'imagersize': [ 640, 480,],\n"
             "    'optimization_inputs': b'P+ewY{$]|T#0',\n}\n",
    'Co-SLAM and a rig with a DVL': inside('training', 'n_samples_d: 32\nsigmoid_coef_tracker: 0.1\n') + inside(
        'DVL', f'T_I_D: {BODY}\n') + inside('cam', f'{FLAT_K}H: 480\nW: 640\ndistortion: {RADTAN}\n'),
    'r3live': inside('common', 'estimate_intrinsic: 1\n') + inside('vio', (
        f'image_width: 640\nimage_height: 480\ncamera_intrinsic: {np.ravel(K).tolist()}\ncamera_dist_coeffs: {RADTAN}\n')),
    'MonoGS': inside('Dataset', 'type: tum\n' + inside('Calibration', f'{FLAT_K}{FLAT_LENS}width: 640\nheight: 480\n'
                                                       'depth_scale: 5000.0\ndistorted: True\n')),
    'FAST-LIVO': vikit(),
    'FAST-LIVO as parameters of ROS 2': inside('/**', inside('ros__parameters', vikit())),
    'PhotonVision': PHOTONVISION,
    'OpenCalib': OPENCALIB,
    'MASt3R-SLAM': f'width: 640\nheight: 480\ncalibration: {[450.0, 451.0, 319.5, 239.5, *RADTAN]}\n',
    'Spectacular AI': spectacular('brown-conrady', RADTAN),
    'SVO inside cam0': inside('cam0', vikit('PinholeRadialTangential')),
    'LSD-SLAM': f'450 451 319.5 239.5 {" ".join(map(str, RADTAN))}\n640 480\ncrop\n320 240\n',
    'reconstruction of OpenSfM': json.dumps([{'cameras': json.loads(opensfm('brown', 'k1 k2 p1 p2', RADTAN, (0, 0))),
                                             'shots': {}}]),
    'sensors of maplab': 'sensors:\n- sensor_type: IMU\n  topic: /imu\n- sensor_type: NCAMERA\n' + ''.join(
        f'  {line}\n' for line in MAPLAB.splitlines()),
}
FORMS |= {
    'VINS with a mask for fisheyes': VINS.replace('fisheye: 0', 'fisheye: 1\nfisheye_mask: mask.jpg'),
    'LARVIO': ('%YAML:1.0\ncamera_model: "pinhole"\ndistortion_model: "radtan"\nresolution_width: 640\nresolution_height: 480\n'
               + inside('intrinsics', FLAT_K) + inside('distortion_coeffs', FLAT_LENS)),
    'IC-GVINS': inside('cam0', f'intrinsic: [450.0, 451.0, 319.5, 239.5]\ndistortion: {RADTAN}\nresolution: [640, 480]\n'),
    'fu, fv, cu, cv': f'width: 640\nheight: 480\nfu: 450.0\nfv: 451.0\ncu: 319.5\ncv: 239.5\ndistortionCoeff: {RADTAN}\n',
    'Unity': json.dumps({'FocalLength': {'x': 450.0, 'y': 451.0}, 'PrincipalPoint': {'x': 319.5, 'y': 239.5},
                         'Resolution': {'x': 640, 'y': 480}, 'distortion': RADTAN}),
    'focal_length and principal_point': json.dumps({
        'width': 640, 'height': 480, 'focal_length': [450.0, 451.0], 'principal_point': [319.5, 239.5], 'distortion': RADTAN}),
    'px and py': f'width: 640\nheight: 480\nfx: 450.0\nfy: 451.0\npx: 319.5\npy: 239.5\ndist: {RADTAN}\n',
    'intrinsics with K inside': json.dumps({'image_size': [640, 480], 'intrinsics': {'camera_matrix': K, 'dist_coeffs': RADTAN}}),
    'multical': json.dumps({'cameras': {'cam1': {'model': 'standard', 'image_size': [640, 480], 'K': K, 'dist': [RADTAN]}}}),
    'MC-Calib': mc_calib(0, RADTAN),
    'INI': '[camera]\n' + f'{FLAT_K}{FLAT_LENS}width: 640\nheight: 480\n'.replace(': ', '='),
    'TOML': f'# front\nwidth = 640\nheight = 480\n\nK = {K}\ndist = {RADTAN}  # radtan\n',
    'both by names, inside': json.dumps({'camera': {'resolution': [640, 480], 'focal_length': {'fx': 450.0, 'fy': 451.0},
                                                    'principal_point': {'cx': 319.5, 'cy': 239.5}, 'dist': RADTAN}}),
    'RealSense, printed': f'[ 640x480  p[319.5 239.5]  f[450 451]  Brown Conrady [{" ".join(map(str, RADTAN))}] ]\n',
    'keys with hyphens': f'{OPENCV}distortion-coefficients: {RADTAN}\n'.replace('camera_matrix', 'camera-matrix'),
    'JSON with remarks': ('// of the front camera\n{"width": 640, /* pixels\n */ "height": 480, "url": "http://a/b", "fx": 450.0,\n'
                          f'"fy": 451.0, // measured\n"cx": 319.5, "cy": 239.5, "dist": {RADTAN}}}\n'),
}
FISHEYES = {
    'LARVIO': f'{OWN}distortion_model: equidistant\n' + inside('distortion_coeffs', ''.join(
        f'{name}: {value}\n' for name, value in zip(('k1', 'k2', 'p1', 'p2'), KB, strict=True))),
    'MC-Calib': mc_calib(1, KB),
    'XIVO': '{"model": "equidistant", "rows": 480, "cols": 640, // of TUM-VI\n' + FLAT_K.replace(': ', '": ').replace(
        '\n', ', "').replace('fx', '"fx').rstrip('"') + f'"k0123": {KB}}}',
    'FAST-LIVO': vikit('EquidistantCamera', 'k1 k2 k3 k4', KB),
    'SVO': vikit('PinholeEquidistant', d=KB),
    'Gyroflow': gyroflow(),
    'instant-ngp': json.dumps({'fl_x': 450.0, 'fl_y': 451.0, 'cx': 320.0, 'cy': 240.0, 'w': 640.0, 'h': 480.0, 'is_fisheye': True,
                               'p1': 0, 'p2': 0, **dict(zip(('k1', 'k2', 'k3', 'k4'), KB, strict=True)), 'frames': []}),
    'VOXL': f'{OPENCV}D: !!opencv-matrix\n   rows: 4\n   cols: 1\n   dt: d\n   data: {KB}\ndistortion_model: fisheye\n'.replace(
        'camera_matrix', 'M').replace('image_', ''),
    'Spectacular AI': spectacular('kannala-brandt4', KB),
    'own': f'{OWN}distortion: equidistant\ndist: {KB}\n',
    'own, model': f'{OWN.replace("pinhole", "equidistant")}dist: {KB}\n',
    'own, fisheye is true': f'{OWN}fisheye: true\ndist: {KB}\n',
    'own, inside the lens': OWN + inside('distortion', f'model: equidistant\ncoeffs: {KB}\n'),
    'own, calibration_model': f'{OWN}calibration_model: fisheye\ndist: {KB}\n',
    'own, projection_model': f'{OWN}projection_model: equidistant\ndist: {KB}\n',
    'own, flat': f'{OWN}distortion: fisheye\n' + ''.join(f'k{number}: {value}\n' for number, value in enumerate(KB, 1)),
    'ROS': ROS.replace('plumb_bob', 'equidistant').replace(str(RADTAN), str(KB)),
    'OpenCV': f'{OPENCV}fisheye_model: 1\ndistortion_coefficients: !!opencv-matrix\n   rows: 4\n   cols: 1\n   data: {KB}\n',
    'Kalibr': inside('cam0', f'{EUROC}distortion_model: equidistant\ndistortion_coeffs: {KB}\n'),
    'ORB-SLAM3': orbslam(kind='KannalaBrandt8', names='k1 k2 k3 k4', d=KB),
    'COLMAP': COLMAP.format('OPENCV_FISHEYE', '450 451 320 240 ' + ' '.join(map(str, KB))),
    'maplab, SVO': MAPLAB.replace('radial-tangential', 'equidistant').replace(str(RADTAN), str(KB)),
    'OKVIS': OKVIS.replace('radialtangential', 'equidistant').replace(str(RADTAN), str(KB)),
    'Basalt': basalt('kb4', dict(zip(('k1', 'k2', 'k3', 'k4'), KB, strict=True))),
    'Luxonis': luxonis(1, KB),
    '4Seasons': f'Equidistant 450 451 319.5 239.5 {" ".join(map(str, KB))}\n640 480\ncrop\n640 480\n',
}
WITHOUT = {
    'own, perspective': f'{OWN}distortion_model: perspective\nD: []\n',
    'own, perspective alone': f'{OWN}distortion_model: perspective\n',
    'ARCore': json.dumps({'focalLength': [450.0, 451.0], 'principalPoint': [319.5, 239.5], 'imageDimensions': [640, 480]}),
    'ARKit': json.dumps({'intrinsics': np.transpose(K).ravel().tolist(), 'imageResolution': [640, 480], 'timestamp': 1.5}),
    'RealSense': REALSENSE,
    'own': f'{OWN}distortion: none (rectified)\ndist:\n- 0\n- 0\n',
    'ROS, pinhole': ROS.replace('plumb_bob', 'pinhole').replace(str(RADTAN), '[0, 0, 0, 0, 0]'),
    'Kalibr': inside('cam0', f'{EUROC}distortion_model: none\ndistortion_coeffs: []\n'),
    'Kalibr without the key': inside('cam0', f'{EUROC}distortion_model: none\n'),
    'ORB-SLAM3': orbslam(kind='Rectified', names='', d=[]),
    'COLMAP': COLMAP.format('PINHOLE', '450.0 451.0 320.0 240.0'),
    'Basalt': basalt('pinhole', {}),
    'SVO': inside('cam0', vikit('PinholeNoDistortion', '', [])),
    'nerfstudio, SIMPLE_PINHOLE': json.dumps({'camera_model': 'SIMPLE_PINHOLE', 'fl_x': 450.0, 'fl_y': 451.0, 'cx': 320.0,
                                              'cy': 240.0, 'w': 640, 'h': 480, 'frames': []}),
    'DSO': 'Pinhole 450 451 319.5 239.5 0\n640 480\ncrop\n320 240\n',
    'DSO, relative': f'Pinhole {450 / 640} {451 / 480} 0.5 0.5 0\n640 480\nnone\n640 480\n',
    'Luxonis': luxonis(0, [0] * 14),
    'DSO without a name': f'{450 / 640} {451 / 480} 0.5 0.5 0\n640 480\ncrop\n640 480\n',
    'ElasticFusion': '450 451 319.5 239.5 640 480\n',
    'ARKitScenes': '640 480 450 451 319.5 239.5\n',
    'VINS': VINS.replace('-0.28', '0').replace('0.07', '0.0').replace('0.0002', '0').replace('2.0e-05', '0'),
}


@pytest.fixture
def write(tmp_path: Path):
    def to_file(text: str, name: str = 'calib.yaml') -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name
    return to_file


@pytest.mark.parametrize(('name', 'text', 'model', 'd'), [
    *((name, text, 'plumb_bob', RADTAN) for name, text in FORMS.items()),
    *((name, text, 'equidistant', KB) for name, text in FISHEYES.items()),
    *((name, text, None, []) for name, text in WITHOUT.items())])
def test_each_form_gives_the_same_camera(write, name: str, text: str, model: str | None, d: list[float]) -> None:
    camera = load_intrinsics(write(text))
    assert (camera.width, camera.height) == (640, 480)
    assert camera.k.tolist() == K
    assert distortion_model(camera) == model
    assert model is None or camera.d.tolist() == d
    assert 'calib.yaml' in camera.source


@pytest.mark.parametrize(('names', 'count'), [('k1', 4), ('k1 k2', 4), ('k1 k2 p1 p2', 4), ('k1 k2 k3', 5), ('k1 k2 p1 p2 k3', 5),
                                              ('k1 k2 p1 p2 k3 k4 k5 k6', 8), ('k1 k4 k5', 8)])
def test_coefficients_by_name_are_in_the_order_of_opencv(write, names: str, count: int) -> None:
    values = {name: (number + 1) / 100 for number, name in enumerate(names.split())}
    order = ('k1', 'k2', 'p1', 'p2', 'k3', 'k4', 'k5', 'k6')[:count]
    flat = ''.join(f'{name}: {value}\n' for name, value in values.items())
    right = [values.get(name, 0.0) for name in order]
    for text in (OWN + flat, OWN + inside('dist_coeffs', flat), OWN + inside('distortion', flat),
                 re.sub(r'(?s)distortion_parameters:.*?(?=projection)', lambda _: inside('distortion_parameters', flat), VINS)):
        assert load_intrinsics(write(text)).d.tolist() == right


@given(d=st.lists(st.floats(-0.3, 0.3).filter(bool), min_size=4, max_size=4), style=st.sampled_from(['list', 'block', 'nested']))
def test_numbers_are_read_as_yaml_and_opencv_write_them(tmp_path_factory, d: list[float], style: str) -> None:
    path = tmp_path_factory.mktemp('calib') / 'calib.yaml'
    coefficients = {'list': yaml.safe_dump({'distortion_coeffs': d}, default_flow_style=True).strip(' {}\n'),
                    'block': yaml.safe_dump({'distortion_coeffs': d}),
                    'nested': yaml.safe_dump({'distortion_coeffs': [[value] for value in d]})}[style]
    path.write_text(f'{EUROC}distortion_model: radtan\n{coefficients}\n')
    assert load_intrinsics(path).d.tolist() == d


NO_D = f'distortion_coeffs: {RADTAN}', 'distortion_coeffs: []'
REFUSED = {
    'omni without xi': (KALIBR.replace('camera_model: pinhole', 'camera_model: omni'), 'has no xi'),
    'ds with radtan': (inside('cam0', KALIBR.replace('camera_model: pinhole', 'camera_model: ds\nxi: -0.2\nalpha: 0.6')),
                       r'cam0: ds with D = \[-0.28'),
    'omni with equidistant': (KALIBR.replace('pinhole', 'omni\nxi: 0.9').replace('radtan', 'equidistant'), 'omni with equidistant'),
    'fov with four numbers': (KALIBR.replace('radtan', 'fov'), r'fov with D = \[0.0, 0.07'),
    'ds that is no lens': (KALIBR.replace('pinhole', 'ds').replace(*NO_D).replace('[450.0,', '[-2.0, 0.1, 450.0,'),
                           r'ds with \[-2.0, 0.1\] is no lens'),
    'omni that no lens fits': (KALIBR.replace('pinhole', 'omni\nxi: 0.9').replace('0.0002', '0.02'), 'nearest equidistant lens is'),
    'own, other model': (f'{OWN}distortion: kannala_brandt6\ndist: {KB}\n', "'kannala_brandt6'"),
    'MEI': (VINS.replace('PINHOLE', 'MEI'), 'has no gamma1'),
    'KANNALA_BRANDT': (VINS.replace('PINHOLE', 'KANNALA_BRANDT'), 'has no mu'),
    'SCARAMUZZA': (VINS.replace('PINHOLE', 'SCARAMUZZA'), 'model_type: SCARAMUZZA'),
    'ORB-SLAM3': (orbslam(kind='Omni'), 'the lens is omni, whose xi are not read here'),
    'inverse of RealSense': (REALSENSE.replace('[0.0', '[0.1'), r'inverse_brown_conrady with D = \[0.1.*undistort the images'),
    'ftheta of RealSense': (REALSENSE.replace('Inverse Brown Conrady', 'distortion.ftheta'), 'model: distortion.ftheta'),
    'pinhole with D': (ROS.replace('plumb_bob', 'pinhole'), 'pinhole with D = .*plumb_bob'),
    'none with D': (f'{OWN}distortion: none\ndist: {RADTAN}\n', 'no distortion by the model'),
    'rectified with k1': (orbslam(kind='Rectified'), 'no distortion by the model'),
    'equidistant without coefficients': (f'{EUROC}distortion_model: equidistant\n', 'has no distortion_coefficients'),
    'equidistant with none': (f'{EUROC}distortion_model: equidistant\ndistortion_coeffs: []\n', 'has no distortion_coeffs'),
    'radtan without coefficients': (f'{EUROC}distortion_model: radtan\n', 'has no distortion_coefficients'),
    'two lists': (f'{OWN}dist: [0.1, 0, 0, 0]\ndist_coeffs: {RADTAN}\n', r'dist: \[0.1'),
    'list and names': (f'{OWN}dist: {RADTAN}\nk3: 0.2\n', 'k3: 0.2'),
    'distortion beside coefficients': (f'{EUROC}distortion_coefficients: [0, 0, 0, 0]\ndistortion: {RADTAN}\n', 'distortion: '),
    'another spelling': (f'{OWN}distorsion: {RADTAN}\n', 'distorsion: '),
    'coeffs': (f'{OWN}lens_coeffs: {RADTAN}\n', 'lens_coeffs: '),
    'k_1': (f'{OWN}k_1: 0.2\n', 'k_1: 0.2'),
    'rad_dist': (f'{OWN}rad_dist: {RADTAN}\n', 'rad_dist: '),
    'inside another key': (OWN + inside('camera', FLAT_LENS), 'camera.k1: -0.28'),
    'inside two': (OWN + inside('sensor', inside('Lens', f'distortion: {RADTAN}')), r'sensor.Lens.distortion: \[-0.28'),
    'camchain without a model': (inside('cam0', KALIBR.replace('distortion_model: radtan\n', '')),
                                 'cam0: it has no distortion_model'),
    'D of cv2.fisheye': (f'{OPENCV}D: [[-0.0067], [0.045], [-0.042], [0.0075]]\n', r'D: .*fisheye.*: equidistant or'),
    'p of a fisheye': (f'{OWN}distortion: equidistant\nk1: 0.1\np1: 0.1\n', 'p1: 0.1'),
    'k5 of a fisheye': (orbslam(kind='KannalaBrandt8', names='k1 k2 k3 k4 k5', d=[*KB, 0.1]), 'Camera1.k5'),
    'unknown names inside the lens': (OWN + inside('distortion', 'd0: -0.28\nd1: 0.07\n'), 'd0: -0.28 is not read'),
    'coefficients beside a list': (f'{OWN}dist: {RADTAN}\ncoefficients: {RADTAN}\n', r'coefficients: \[-0.28'),
    'disto': (f'{OWN}disto: {RADTAN}\n', r'disto: \[-0.28.* is not read'),
    'lens_params': (f'{OWN}lens_params: {RADTAN}\n', r'lens_params: \[-0.28.* is not read'),
    'a mask named fisheye': (f'{OWN}fisheye: mask.png\ndist: {RADTAN}\n', 'fisheye: mask.png is not read'),
    'numbers inside a lens': (OWN + inside('lens', f'params: {RADTAN}\n'), r'lens.*-0.28.* is not read'),
    'a list named lens': (f'{OWN}lens: {RADTAN}\n', r'lens: \[-0.28.* is not read'),
    'a lens that is a fisheye': (f'{OWN}dist: {RADTAN}\n' + inside('lens', 'model: fisheye\n'), 'lens: .*fisheye.* is not read'),
    'a lens by its type': (f'{OWN}type: ocam\ndist: {RADTAN}\n', 'type: ocam, and only plumb_bob.*name one of these if it is that'),
    'a product': (OWN.replace('pinhole', 'acA1300') + f'dist: {RADTAN}\n', 'model: acA1300, .*names a product, remove the line'),
    'a projection with a shift': (json.dumps({'width': 640, 'height': 480, 'cam_K': [[*row, 0.5] for row in K]}),
                                  r'cam_K is a projection, its fourth column is \[0.5'),
    'mrcal, other model': ("{'lensmodel': 'LENSMODEL_CAHVOR', 'intrinsics': [450, 451, 319.5, 239.5, 0.1], 'imagersize': [64, 48]}",
                           'camera_model: CAHVOR, and only'),
    'thin prism': (f'{OWN}dist: {RADTAN}\ns1: 0.01\n', 's1: 0.01'),
    'skew': (f'{OWN}dist: {RADTAN}\nskew: 0.3\n', 'skew: 0.3'),
    'k1 to k4 without a model': (f'{OWN}k1: 0.1\nk2: 0.1\nk3: 0.1\nk4: 0.1\n', 'name the model'),
    'unread in VINS': (VINS.replace('p1:', 'q1:').replace('   k1', '   xi: 0.2\n   k1'), 'xi: 0.2'),
    'LEFT.D': (f'{orbslam("Camera")}LEFT.D: !!opencv-matrix\n   rows: 1\n   cols: 4\n   dt: d\n   data: {RADTAN}\n', 'LEFT.D'),
    'stray Camera.k1': (f'{orbslam()}Camera.k1: 0.3\n', 'Camera.k1: 0.3'),
    'count': (f'{OWN}dist: [0.1, 0.2, 0.3]\n', 'plumb_bob has 4 or 5 or 8 or 12 or 14 coefficients'),
    'an IMU': ('imu0:\n  rostopic: /imu0\n  update_rate: 200.0\n', 'it has imu0; the forms'),
    'VINS, no file': ('%YAML:1.0\ncam0_calib: "left.yaml"\nimage_width: 640\nmin_dist: 30\n', 'cam0.*cannot read .*left.yaml'),
    'VINS, no key': (f'{opencv_matrix("body_T_cam0", BODY)}image_width: 640\n', 'cam0 has no cam0_calib'),
    'no width of ORB-SLAM': (orbslam().replace('Camera.width: 640\n', ''), 'no Camera.width: add Camera.width'),
    'no resolution': (inside('cam0', KALIBR.replace('resolution', 'size')), 'cam0 has no resolution'),
    'size of a word': (KALIBR.replace('[640, 480]', '[wide, 480]'), "resolution: 'wide' is no number"),
    'size of one': (KALIBR.replace('[640, 480]', '[640]'), 'resolution has 1 value, not 2'),
    'broken pixels': (OWN.replace('640', '640.5'), 'width: 640.5 is no number of pixels'),
    'size of a truth': (OWN.replace('640', 'true'), 'width: True is no number'),
    'millimetres': ('width: 5472\nheight: 3648\nfocal_length: 8.8\nprincipal_point: [2736, 1824]\n', 'no lens has K'),
    'report of Kalibr': ('Calibration results \n==\nCamera-system parameters:\n\tcam0 (/cam0):\n\t    type: <class '
                         "'aslam_cv.libaslam_cv_python.DistortedPinholeCameraGeometry'>\n\t    projection: [450. 451.]\n",
                         'a report of Kalibr: give its camchain'),
    'report of Kalibr, IMU': ('Calibration results\nNormalized Residuals\nReprojection error (cam0): mean 0.09\n',
                                     'a report of Kalibr: give its camchain'),
    'five intrinsics': (KALIBR.replace('[450.0,', '[0.9, 450.0,'), 'intrinsics has 5 values, not 4'),
    'seven values': (ROS.replace('0, 0, 1]', '0]'), 'camera_matrix has 7 values, not 9'),
    'no mapping': (VINS.replace('projection_parameters:\n', 'projection_parameters: 3\nother:\n'), 'projection_parameters: 3'),
    'COLMAP, other model': (COLMAP.format('SIMPLE_DIVISION', '450 320 240 0.9'), 'cam1: camera_model: SIMPLE_D.*, and only'),
    'COLMAP, too few': (COLMAP.format('OPENCV', '450 451 320 240'), "begins with '1 OPENCV 640 480.*forms that are"),
    'Open3D, an empty K': (json.dumps({'width': 640, 'height': 480, 'intrinsic_matrix': [0] * 9}), 'not calibrated'),
    'ICL-NUIM': (OWN.replace('fy: ', 'fy: -'), r'fx is 450 and fy -451: give both positive.* mirror the ground truth, x y z'),
    'cameras of another tool': (json.dumps({'cameras': [{'name': 'left'}]}), 'has no width, it has cameras'),
    'MATLAB with skew': (matlab(K=[[450.0, 0.3, 320.5], [0, 451.0, 240.5], [0, 0, 1]]), 'skew: 0.3'),
    'Gyroflow, stretched': (gyroflow(input_horizontal_stretch=1.5), 'camera_model: stretched by 1.5 and 1, and only'),
    'Gyroflow, other lens': (gyroflow(digital_lens='gopro_superview'), 'camera_model: gopro_superview, and only'),
    'FAST-LIVO, other model': (vikit('Ocam'), 'camera_model: Ocam, and only'),
    'OpenSfM, other model': (opensfm('spherical', '', []), 'camera_model: spherical, and only'),
    'OpenCalib, of OCamCalib': (OPENCALIB.replace('450.0', '0.99').replace('451.0', '1.0'), 'is a fisheye'),
    'calibration of names': (json.dumps({'width': 640, 'height': 480, 'calibration': {'fx': 450.0}}), 'has no fx, it has width'),
    'lens beside a camera two mappings deep': (inside('Dataset', inside('Calibration', OWN) + 'k1: 0.1\n'), 'k1: 0.1 is not read'),
    'D of images that are undistorted': (f'{OWN}{FLAT_LENS}distorted: false\n', 'distorted: False, and D = .* of the raw images'),
    'an INI file that breaks off': ('[camera]\nfx=700.0\nfy', 'is no YAML, JSON or XML .*forms that are read'),
    'an INI file without a camera': ('[camera]\nfx=700.0\nfy=700.0\n', 'has no width, it has camera; the forms'),
    'XML that is cut off': ('<?xml version="1.0"?>\n<opencv_storage>\n<image_width>640</im', 'is no YAML, JSON or XML'),
    'nothing': ('# later\n', 'it is empty'),
    'keys of others': ('P0: 1\nP1: 2\n', 'has no width, it has P0, P1; the forms'),
    'two documents': (f'{OWN}---\n{OWN.replace("450", "400")}', '2 documents .* that differ: keep one'),
    'lens beside a nested camera': (inside('camera', OWN) + 'k1: 0.1\n', 'k1: 0.1 is not read'),
    'fisheye of OpenVSLAM': (inside('Camera', f'model: equirectangular\n{OWN[15:]}'), 'Camera: model: equirectangular'),
    'identity': (ROS.replace('[450.0, 0, 319.5, 0, 451.0, 239.5, 0, 0, 1]', '[1, 0, 0, 0, 1, 0, 0, 0, 1]'), 'not calibrated'),
}


@pytest.mark.parametrize('name', REFUSED)
def test_refusals_name_the_file_and_the_key(write, name: str) -> None:
    text, message = REFUSED[name]
    with pytest.raises(BagError, match=message) as error:
        load_intrinsics(write(text))
    assert 'calib.yaml' in str(error.value)
    assert len(str(error.value)) < 600


@pytest.mark.parametrize('bad', ['.nan', '.inf', '-.inf', 'nan'])
@pytest.mark.parametrize(('text', 'number', 'key'), [
    (OWN, '450.0', 'fx'), (OWN, '239.5', 'cy'), (OWN, '640', 'width'), (f'{OWN}dist: {RADTAN}', '0.07', 'dist'),
    (ROS, '451.0', 'camera_matrix'), (ROS, '0.0002', 'distortion_coefficients'), (KALIBR, '319.5', 'intrinsics'),
    (KALIBR, '480', 'resolution'), (KALIBR, '0.07', 'distortion_coeffs'), (VINS, '0.07', 'k2'), (VINS, '451.0', 'fy'),
    (orbslam(), '450.0', 'Camera1.fx'), (orbslam(), '480', 'Camera.height'), (f'fps: 30.5\n{OWN}', '30.5', 'fps'),
    (inside('cam0', f'T_cam_imu: [[8.5]]\n{KALIBR}'), '8.5', 'cam0.T_cam_imu')])
def test_what_is_not_finite_is_refused_by_its_key(write, text: str, number: str, key: str, bad: str) -> None:
    if bad == 'nan' and key in ('fps', 'cam0.T_cam_imu'):
        pytest.skip('a word where no number is read')
    with pytest.raises(BagError, match=rf'{re.escape(key)}(\.data)?: \S+ is not finite'):
        load_intrinsics(write(text.replace(number, bad, 1)))


@pytest.mark.parametrize('line', ['pcl_dist: 10', 'map:\n  neighbor_dist_thresh: 2.5', 'keyframe_dist_m: 0.3'])
def test_number_that_is_called_a_distance_is_of_no_lens(write, line: str) -> None:
    assert load_intrinsics(write(f'{VINS}{line}\n')).d.tolist() == RADTAN


@pytest.mark.parametrize('line', ['t1: 0.001', 'T_2: -0.002', 'R1: -0.28', 'r3: 0.01', 'cam_dist: 0.1',
                                  'dist: 0.1', 'lens_dist: 0.1', 'pcl_dist: [0.1, 0.2]', 'cam_dist_k1: 0.1'])
def test_distortion_with_such_a_name_is_refused(write, line: str) -> None:
    with pytest.raises(BagError, match='is not read here, and speaks of the lens'):
        load_intrinsics(write(f'{VINS}{line}\n'))


def test_zero_says_nothing_of_a_lens(write) -> None:
    zeros = 'k3: 0\nskew: 0.0\nfisheye_model: 0\nlens_coeffs: [0, 0.0]\ndistortion_flags: none\n'
    assert load_intrinsics(write(f'{OWN}dist: {RADTAN}\n{zeros}')).d.tolist() == RADTAN


CHAIN = inside('cam0', KALIBR) + inside('cam1', KALIBR.replace('450.0, 451.0', '452.0, 453.0').replace('radtan', 'equidistant'))


def test_one_camera_of_several_is_chosen_by_name(write) -> None:
    chain = write(CHAIN, 'camchain.yaml')
    for number, (fx, model) in enumerate(((450.0, 'plumb_bob'), (452.0, 'equidistant'))):
        camera = load_intrinsics(Path(f'{chain}:cam{number}'))
        assert (camera.k[0, 0], distortion_model(camera)) == (fx, model)
        assert camera.source == f'{chain}, cam{number}'
    for path, message in ((chain, f'cam0, cam1: choose one, as {chain}:cam0'),
                          (f'{chain}:cam2', 'no camera cam2: it has cam0, cam1')):
        with pytest.raises(BagError, match=message):
            load_intrinsics(Path(path))
        with pytest.raises(BagError, match=message):
            load_camera_in_body(Path(path))
    with pytest.raises(BagError, match='leave out :cam0'):
        load_intrinsics(Path(f'{write(OWN)}:cam0'))
    both = write(orbslam() + ''.join(line for line in orbslam('Camera2').splitlines(True) if line.startswith('Camera2')))
    assert load_intrinsics(Path(f'{both}:Camera2')).k.tolist() == K
    with pytest.raises(BagError, match='Camera1, Camera2: choose one'):
        load_intrinsics(both)
    assert split_choice(Path(f'{chain}:cam1')) == (chain, 'cam1')
    odd = write(CHAIN, 'chain:cam1')
    assert split_choice(odd) == (odd, '')
    assert split_choice(Path('/gone.yaml:cam1')) == (Path('/gone.yaml:cam1'), '')


def test_intrinsics_of_frames_are_the_cameras_of_transforms_json(write) -> None:
    frame = {'w': 640, 'h': 480, 'fl_x': 450.0, 'fl_y': 451.0, 'cx': 320.0, 'cy': 240.0, 'transform_matrix': np.eye(4).tolist()}
    frames = [{**frame, 'file_path': f'{number}.png'} for number in range(3)]
    assert np.array_equal(load_intrinsics(write(json.dumps({'k1': 0.1, 'frames': frames}))).k, K)
    file = write(json.dumps({'frames': [*frames, {**frame, 'fl_x': 500.0}]}))
    with pytest.raises(BagError, match=r'describes the cameras cam0, cam1: choose one, as .*:cam0'):
        load_intrinsics(file)
    assert load_intrinsics(Path(f'{file}:cam1')).k[0, 0] == 500


A2D2 = {'cameras': {'front_center': {
    'CamMatrix': [[400.0, 0, 310], [0, 400.0, 230], [0, 0, 1]], 'CamMatrixOriginal': K, 'Distortion': [RADTAN], 'Lens': 'Telecam',
    'Resolution': [640, 480], 'view': {'origin': [1.7, 0, 0.9], 'x-axis': [2.0, 0, 0], 'y-axis': [0, 2.0, 0]}}},
    'lidars': {}, 'vehicle': {'view': {}}}
A2D2['cameras']['rear'] = {**A2D2['cameras']['front_center'], 'Lens': 'Fisheye', 'Distortion': [KB]}


def test_cameras_of_a2d2_are_raw_or_rectified(write) -> None:
    path = write(json.dumps(A2D2))
    raw, rear = (load_intrinsics(Path(f'{path}:{name}')) for name in ('front_center', 'rear'))
    assert (raw.k.tolist(), raw.d.tolist(), raw.distortion_model, rear.d.tolist()) == (K, RADTAN, 'plumb_bob', KB)
    assert rear.distortion_model == 'equidistant'
    rectified = load_intrinsics(Path(f'{path}:front_center'), rectified=True)
    assert (rectified.k.tolist(), rectified.d.any()) == (A2D2['cameras']['front_center']['CamMatrix'], False)
    pose = load_camera_in_body(Path(f'{path}:rear'))  # x of the view is forward, y is left
    assert pose[:3].tolist() == [[0, 0, 1, 1.7], [-1, 0, 0, 0], [0, -1, 0, 0.9]]


def test_coefficients_of_argoverse_do_not_count(write) -> None:
    own = {'focal_length_x_px_': 450.0, 'focal_length_y_px_': 451.0, 'focal_center_x_px_': 319.5, 'focal_center_y_px_': 239.5,
           'skew_': 0.0, 'distortion_coefficients_': [-0.17, 0.12, -0.03],
           'vehicle_SE3_camera_': {'rotation': {'coefficients': [0.5, -0.5, 0.5, -0.5]}, 'translation': [1.6, 0.0, 1.4]}}
    cameras = [{'key': f'image_raw_ring_{name}', 'value': own} for name in ('front_center', 'rear_left')]
    path = Path(f'{write(json.dumps({"camera_data_": cameras}))}:ring_rear_left')
    camera = load_intrinsics(path, size=lambda: (640, 480))
    assert (camera.k.tolist(), camera.d.tolist()) == (K, [])
    assert 'whose coefficients are left out: images of Argoverse are undistorted' in camera.source
    np.testing.assert_allclose(load_camera_in_body(path)[:3], [[0, 0, 1, 1.6], [-1, 0, 0, 0], [0, -1, 0, 1.4]], atol=1e-12)


def test_cameras_of_nuscenes_have_a_matrix_and_their_tokens(write) -> None:
    sensors = [{'token': 'a', 'translation': [1.7, 0, 1.5], 'rotation': [0.5, -0.5, 0.5, -0.5], 'camera_intrinsic': K},
               {'token': 'lidar', 'translation': [0.9, 0, 1.8], 'rotation': [1, 0, 0, 0], 'camera_intrinsic': []}]
    path = write(json.dumps(sensors))
    assert load_intrinsics(path, size=lambda: (640, 480)).k.tolist() == K
    np.testing.assert_allclose(find_camera_in_body(path)[:3], [[0, 0, 1, 1.7], [-1, 0, 0, 0], [0, -1, 0, 1.5]], atol=1e-12)


def test_angle_of_view_of_a_renderer_gives_k_by_the_size_of_images(write) -> None:
    """transforms_train.json of Blender, which has neither size nor focal length."""
    view = {'camera_angle_x': 2 * np.arctan(320 / 450), 'frames': []}
    found = [load_intrinsics(write(json.dumps(view)), size=lambda: (640, 480)),
             load_intrinsics(write(json.dumps({**view, 'w': 640, 'h': 480})))]
    np.testing.assert_allclose([camera.k for camera in found], [[[450, 0, 319.5], [0, 450, 239.5], [0, 0, 1]]] * 2)
    assert [camera.source.endswith('that of the images is taken') for camera in found] == [True, False]


def test_infinitam_has_a_color_and_a_depth_camera(write) -> None:
    path = write('640 480\n450.0 451.0\n319.5 239.5\n\n320 240\n220 221\n160 120\n\n1 0 0 0\n0 1 0 0\n0 0 1 0\n\naffine\n0.001 0\n')
    assert load_intrinsics(Path(f'{path}:color')).k.tolist() == K
    assert load_intrinsics(Path(f'{path}:depth')).width == 320


def test_model_of_robotcar_is_of_undistorted_images(write) -> None:
    """models/stereo_narrow_left.txt: focal lengths and principal point, and the axes of the camera (its SDK's camera_model.py)."""
    path = write('450.000000 451.000000 319.500000 239.500000\n0 0 1 0\n1 0 0 0\n0 1 0 0\n0 0 0 1\n')
    camera = load_intrinsics(path, size=lambda: (640, 480))
    assert (camera.k.tolist(), camera.lens.distorts) == (K, False)
    assert camera.source.endswith('of undistorted images, by the SDK of RobotCar, which has no size: that of the images is taken')


@pytest.mark.parametrize(('size', 'k'), [
    ((1280, 720), [640.0, 672.0, 639.5, 359.5]), ((2048, 1536), [1024.0, 1075.2, 1023.5, 767.5]),  # 120 rows are cut off above
    ((640, 576), [512.0, 614.4, 319.5, 331.5])])  # 180 rows and 192 columns of the depth camera
def test_azure_kinect_has_a_camera_for_each_size(write, size: tuple[int, int], k: list[float]) -> None:
    def camera(location: str, cy: float, fy: float, codx: float = 0.0) -> dict[str, object]:
        numbers = [0.5, cy, 0.5, fy, 0.3, -2.5, 1.4, 0.2, -2.3, 1.3, codx, 0, -2e-4, 1e-4]  # cx cy fx fy k1-k6 codx cody p2 p1
        return {'Location': f'CALIBRATION_CameraLocation{location}', 'Intrinsics': {
            'ModelParameters': numbers, 'ModelType': 'CALIBRATION_LensDistortionModelBrownConrady'}}

    path = write(json.dumps({'CalibrationInformation': {'Cameras': [camera('D0', 0.5, 0.6), camera('PV0', 0.5, 0.7)]}}))
    found = load_intrinsics(path, size=lambda: size)
    np.testing.assert_allclose(found.k[[0, 1, 0, 1], [0, 1, 2, 2]], k)
    assert found.d.tolist() == [0.3, -2.5, 1e-4, -2e-4, 1.4, 0.2, -2.3, 1.3]
    with pytest.raises(BagError, match=r'it is for images of 320x288, .*4096x3072, and these have 800x600'):
        load_intrinsics(path, size=lambda: (800, 600))
    path = write(json.dumps({'CalibrationInformation': {'Cameras': [camera('D0', 0.5, 0.6, 0.1), camera('PV0', 0.5, 0.7, 0.1)]}}))
    with pytest.raises(BagError, match=r'radial_centre: .* is not read here'):
        load_intrinsics(path, size=lambda: size)


@pytest.mark.parametrize(('lens', 'model', 'd'), [
    ({}, 'plumb_bob', []), ({'disto_k1': [-0.1]}, 'plumb_bob', [-0.1, 0, 0, 0, 0]),
    ({'disto_k3': [-0.1, 0.2, -0.3]}, 'plumb_bob', [-0.1, 0.2, 0, 0, -0.3]),
    ({'disto_t2': [-0.1, 0.2, -0.3, 0.004, 0.005]}, 'plumb_bob', [-0.1, 0.2, 0.004, 0.005, -0.3]),
    ({'fisheye': KB}, 'equidistant', KB)])
def test_intrinsics_of_openmvg_are_named_by_their_coefficients(write, lens, model: str, d: list[float]) -> None:
    data = {'width': 640, 'height': 480, 'focal_length': 450.0, 'principal_point': [319.5, 239.5], **lens}
    intrinsic = {'key': 0, 'value': {'polymorphic_id': 2147483649, 'ptr_wrapper': {'id': 2147483651, 'data': data}}}
    file = {'sfm_data_version': '0.3', 'views': [], 'intrinsics': [intrinsic], 'extrinsics': []}
    camera = load_intrinsics(write(json.dumps(file)))
    assert (camera.distortion_model, camera.d.tolist()) == (model, d)
    assert camera.k.tolist() == [[450.0, 0, 319.5], [0, 450.0, 239.5], [0, 0, 1]]


def alicevision(**changed: object) -> str:
    intrinsic = {'width': '640', 'height': '480', 'sensorWidth': '36', 'type': 'pinhole', 'focalLength': '25.3125',
                 'pixelRatio': '1', 'principalPoint': ['-0.5', '-0.5'], 'distortionType': 'radialk3',
                 'distortionParams': ['-0.1', '0.2', '-0.3'], **changed}
    return json.dumps({'version': ['1', '2', '8'], 'views': [], 'intrinsics': [intrinsic], 'poses': []})


@pytest.mark.parametrize('changed', [
    {}, {'principalPoint': ['319.5', '239.5']}, {'type': 'radial3', 'distortionType': None}, {'pxFocalLength': '450'}])
def test_intrinsics_of_alicevision_are_in_the_unit_of_the_sensor(write, changed: dict[str, object]) -> None:
    text = alicevision(**changed)
    camera = load_intrinsics(write(text.replace(', "distortionType": null', '')))
    assert camera.k.tolist() == [[450.0, 0, 319.5], [0, 450.0, 239.5], [0, 0, 1]]
    assert camera.d.tolist() == [-0.1, 0.2, 0, 0, -0.3]


@pytest.mark.parametrize(('changed', 'message'), [
    ({'distortionType': '3deanamorphic4'}, 'camera_model: 3deanamorphic4'),
    ({'pixelRatio': '1.1'}, r'camera_model: a pixelRatio of 1\.1')])
def test_lenses_of_alicevision_that_are_not_read_are_named(write, changed: dict[str, object], message: str) -> None:
    with pytest.raises(BagError, match=message):
        load_intrinsics(write(alicevision(**changed)))


def test_arrays_of_numpy_are_a_calibration_by_their_names(tmp_path: Path) -> None:
    views = np.empty(2, object)  # as of boards that were seen differently, which are stored as objects
    views[:] = [[1], [1, 2]]
    np.savez(tmp_path / 'calib.npz', ret=0.3, mtx=np.array(K), dist=[[*RADTAN, 0.1]], rvecs=np.zeros((4, 3, 1)), objects=views)
    camera = load_intrinsics(tmp_path / 'calib.npz', size=lambda: (640, 480))
    assert (camera.k.tolist(), camera.d.tolist(), camera.distortion_model) == (K, [*RADTAN, 0.1], 'plumb_bob')
    np.save(tmp_path / 'k.npy', np.array(K))
    assert load_intrinsics(tmp_path / 'k.npy', size=lambda: (640, 480)).k.tolist() == K
    np.savez_compressed(tmp_path / 'zipped.npz', mtx=np.array(K))
    whole = (tmp_path / 'zipped.npz').read_bytes()
    damaged = whole[:60] + b'\xff' * 60 + whole[120:]
    for name, content in (('half.npz', (tmp_path / 'calib.npz').read_bytes()[:200]), ('half.npy', b'\x93NUMPY\x01'),
                          ('damaged.npz', damaged)):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(BagError, match=rf'{name} has no arrays that are read, .*: np\.savez\('):
            load_intrinsics(tmp_path / name, size=lambda: (640, 480))


def test_focal_lengths_of_frames_do_not_stop_record3d(write) -> None:
    text = json.dumps({'w': 640, 'h': 480, 'K': np.transpose(K).ravel().tolist(), 'perFrameIntrinsicCoeffs': [[450, 451, 319, 239]],
                       'poses': [[0, 0, 0, 1, 0, 0, 0]], 'initPose': [0, 0, 0, 1, 0, 0, 0]})
    assert load_intrinsics(write(text)).k.tolist() == K


def test_of_many_cameras_a_message_names_the_first(write) -> None:
    file = write(''.join(f'{number} PINHOLE 640 480 450 451 320 240\n' for number in range(1, 292)), 'cameras.txt')
    with pytest.raises(BagError, match=r"cam8 … \(291 in all\): if COLMAP has .*single_camera 1; else choose one, as .*:cam1$"):
        load_intrinsics(file)


@pytest.mark.parametrize('text', [
    'Pinhole 450 451 319.5 239.5 0\n', 'RadTan 450 451 319.5\n640 480\n', '1 2 3\n4 5 6\n7 8 9\n',
    '0 -1 0 1\n1 0 0 2\n0 0 1 3\n0 0 0 1', '1403636580.8 4.6 -1.7 0.8 0.5 -0.1 -0.8 -0.1\n', '450 319.5 30 239.5\n',
    '450 451 320 240 450 451\n', '450 451 320 240.5 0.1\n', '450 451 320 240\n0.1 0.2 0.3 0.4\n'])
def test_numbers_that_are_no_camera_are_no_calibration(write, text: str) -> None:
    with pytest.raises(BagError, match='is no calibration, it begins with'):
        load_intrinsics(write(text))


def renamed(text: str, **names: str) -> str:
    """A text with other names of keys."""
    for name, other in names.items():
        text = text.replace(f'{name}:', f'{other}:')
    return text


FOV = '0.703125 0.93958333333 0.5 0.5 0.9\n640 480\ncrop\n640 480\n'  # of K, relative to the size
OTHER_LENSES = {
    'DSO': (FOV, 'fov'), 'DSO by name': (f'FOV {FOV}', 'fov'),
    'Kalibr, fov': (KALIBR.replace('radtan', 'fov').replace(str(RADTAN), '[0.9]'), 'fov'),
    'COLMAP': (COLMAP.format('FOV', '450 451 320 240 0.9'), 'fov'),
    'SVO': (vikit('ATAN', 'cam_d0', [0.9]).replace('450.0', '0.703125').replace('451.0', '0.93958333333').replace('319.5', '0.5')
            .replace('239.5', '0.5'), 'fov'),
    'Kalibr, ds': (inside('cam0', KALIBR.replace('pinhole', 'ds').replace(*NO_D).replace('radtan', 'none')
                          .replace('[450.0,', '[-0.2, 0.6, 450.0,')), 'ds'),
    'Basalt, ds': (basalt('ds', {'xi': -0.2, 'alpha': 0.6}), 'ds'),
    'Basalt, eucm': (basalt('eucm', {'alpha': 0.6, 'beta': 1.1}), 'eucm'),
    'Basalt, ucm': (basalt('ucm', {'alpha': 0.6}), 'ucm'),
    'Kalibr, eucm': (KALIBR.replace('pinhole', 'eucm').replace(*NO_D).replace('[450.0,', '[0.6, 1.1, 450.0,'), 'eucm'),
    'Kalibr, omni': (KALIBR.replace('pinhole', 'omni').replace('-0.28', '0.02').replace('[450.0,', '[0.9, 450.0,'), 'omni'),
    'cv2.omnidir': (f'{OPENCV}model: omni\nxi: 0.9\nD: {[0.02, *RADTAN[1:]]}\n', 'omni'),
    'VINS, MEI': (renamed(VINS.replace('PINHOLE', 'MEI').replace('-0.28', '0.02'), fx='gamma1', fy='gamma2', cx='u0', cy='v0')
                  + 'mirror_parameters:\n   xi: 0.9\n', 'omni'),
}


def plane_of(model: str, ray: np.ndarray) -> np.ndarray:
    """Where a ray meets the plane of a lens of OTHER_LENSES, by the formulas of the tools' papers."""
    x, y, z = ray
    radius, length = np.hypot(x, y), np.linalg.norm(ray)
    if model == 'fov':
        return ray[:2] / radius * np.arctan(2 * radius / z * np.tan(0.45)) / 0.9
    if model == 'omni':
        return ray[:2] / (z + 0.9 * length)
    if model == 'ds':
        w = -0.2 * length + z
        return ray[:2] / (0.6 * np.sqrt(x * x + y * y + w * w) + 0.4 * w)
    beta = 1.1 if model == 'eucm' else 1.0
    return ray[:2] / (0.6 * np.sqrt(beta * (x * x + y * y) + z * z) + 0.4 * z)


@pytest.mark.parametrize('tool', OTHER_LENSES)
def test_other_lens_is_read_as_the_equidistant_one_near_it(write, tool: str) -> None:
    text, model = OTHER_LENSES[tool]
    camera = load_intrinsics(write(text, 'cameras.txt' if tool == 'COLMAP' else 'camera.yaml'))
    assert (camera.distortion_model, camera.size) == ('equidistant', (480, 640))
    assert re.search(rf'its {model} as the equidistant lens within 0\.\d\d px of it', camera.source)
    for ray in np.array([[0.3, 0.2, 1], [-0.5, 0.4, 1], [0.6, -0.1, 1], [0.01, 0, 1], [-0.4, -0.4, 1]]):
        u, v = plane_of(model, ray)
        if model == 'omni':
            s = u * u + v * v
            scale, p1, p2 = 1 + 0.02 * s + RADTAN[1] * s * s, *RADTAN[2:]
            u, v = u * scale + 2 * p1 * u * v + p2 * (s + 2 * u * u), v * scale + p1 * (s + 2 * v * v) + 2 * p2 * u * v
        found, ideal = camera.lens.undistorted([[450 * u + 319.5, 451 * v + 239.5]]).points[0], camera.k @ ray
        np.testing.assert_allclose(found, ideal[:2] / ideal[2], atol=0.3 if model == 'omni' else 0.02)


def test_kannala_brandt_of_vins_is_equidistant(write) -> None:
    text = re.sub(r'(?s)distortion_parameters:.*?(?=projection)', '', VINS.replace('PINHOLE', 'KANNALA_BRANDT'))
    text = renamed(text, fx='mu', fy='mv', cx='u0', cy='v0')
    lens = ''.join(f'   k{number}: {value}\n' for number, value in zip(range(2, 6), KB, strict=True))
    for mask in '01':  # `fisheye` is of a mask
        camera = load_intrinsics(write(text.replace('projection_parameters:\n', f'projection_parameters:\n{lens}').replace(
            'fisheye: 0', f'fisheye: {mask}')))
        assert (camera.distortion_model, camera.d.tolist(), camera.k.tolist()) == ('equidistant', KB, K)


@pytest.mark.parametrize('name', ['equidistant', 'fisheye'])
def test_six_coefficients_of_rtabmaps_fisheye_have_zeros_inside(write, name: str) -> None:
    text = ROS.replace('plumb_bob', name)
    camera = load_intrinsics(write(text.replace(str(RADTAN), str([*KB[:2], 0.0, 0.0, *KB[2:]]))))
    assert (camera.distortion_model, camera.d.tolist()) == ('equidistant', KB)
    with pytest.raises(BagError, match='has 4 coefficients, not D'):
        load_intrinsics(write(text.replace(str(RADTAN), str([*KB, 0.1, 0.0]))))


@pytest.mark.parametrize('model', [{'camera_model': 'OPENCV'}, {}])
def test_k4_of_nerfstudio_is_no_coefficient_of_opencv(write, model: dict[str, str]) -> None:
    """It is of the eighth power of the radius, and OpenCV's is in the denominator."""
    values = {**model, 'fl_x': 450, 'fl_y': 451, 'cx': 320, 'cy': 240, 'w': 640, 'h': 480, 'k1': -0.28, 'k2': 0.07, 'k3': 0.01,
              'k4': 0.0, 'p1': 0.0002, 'p2': 2e-05}
    assert load_intrinsics(write(json.dumps(values), 'transforms.json')).d.tolist() == [*RADTAN, 0.01]
    with pytest.raises(BagError, match=r'k4_of_the_eighth_power: 0\.02 is not read here'):
        load_intrinsics(write(json.dumps({**values, 'k4': 0.02}), 'transforms.json'))


@pytest.mark.parametrize('d', [RADTAN, [*RADTAN, 0.003], [*RADTAN, 0.003, 0.1, 0.2, 0.3]])
def test_line_of_numbers_has_coefficients_in_the_order_of_opencv(write, d: list[float]) -> None:
    camera = load_intrinsics(write(f'450 451 319.5 239.5 {" ".join(map(str, d))}\n', 'calib.txt'), size=lambda: (640, 480))
    assert (camera.width, camera.height, camera.k.tolist(), camera.d.tolist()) == (640, 480, K, d)
    if len(d) == 5:  # nine numbers are no matrix, as of Waymo
        waymo = json.dumps({'name': 'FRONT', 'width': 640, 'height': 480, 'intrinsic': [450, 451, 319.5, 239.5, *d]})
        assert (load_intrinsics(write(waymo)).k.tolist(), load_intrinsics(write(waymo)).d.tolist()) == (K, d)
        with pytest.raises(BagError, match=r'intrinsic is \[.*\], and the last row of K is 0, 0, 1: give a matrix, or the numbers'):
            load_intrinsics(write(waymo.replace('0.0002', '0.2')))
    with pytest.raises(BagError, match='equidistant or plumb_bob'):
        load_intrinsics(write('450 451 319.5 239.5 -0.05 0.01 -0.055 0.02\n'), size=lambda: (640, 480))


def test_settings_that_name_the_file_of_the_cameras_are_refused_with_it(write) -> None:
    write('imu0:\n  rate: 200\n', 'config_imu.yaml')
    cameras = write(inside('cam0', KALIBR), 'config_camera.yaml')
    path = write('config_imu: "config_imu.yaml"\nconfig_camera: "config_camera.yaml"\nconfig_gps: "absent.yaml"\n', 'config.yaml')
    with pytest.raises(BagError, match=f'config.yaml has no width, .*; its config_camera names {cameras}: give that file$'):
        load_intrinsics(path)


def test_camera_beside_a_model_that_is_not_read(write) -> None:
    chain = write(inside('cam0', KALIBR) + inside('cam1', KALIBR.replace('pinhole', 'ocam')), 'camchain.yaml')
    assert load_intrinsics(Path(f'{chain}:cam0')).d.tolist() == RADTAN
    with pytest.raises(BagError, match='cam1: camera_model: ocam'):
        load_intrinsics(Path(f'{chain}:cam1'))


INVERSE = np.linalg.inv(BODY).tolist()
SECOND = (np.array(BODY) @ RIGHT_IN_LEFT).tolist()
EXTRINSIC = ('extrinsicRotation: !!opencv-matrix\n   rows: 3\n   cols: 3\n   dt: d\n   data: [0, -1, 0, 1, 0, 0, 0, 0, 1]\n'
             'extrinsicTranslation: !!opencv-matrix\n   rows: 3\n   cols: 1\n   dt: d\n   data: [0.5, 0.25, -0.125]\n')
NO_LENS = KALIBR.replace('pinhole', 'ocam')  # a pose is read whatever the lens


@pytest.mark.parametrize(('text', 'choice'), [
    (f'T_BS:\n  cols: 4\n  rows: 4\n  data: {np.ravel(BODY).tolist()}\n{EUROC}', ''),
    (f'T_BS: {BODY}\n', ''),
    (inside('cam0', f'T_cam_imu: {INVERSE}\n{NO_LENS}'), ''),
    (inside('cam0', f'T_imu_cam: {BODY}\n{NO_LENS}'), ':cam0'),
    (inside('cam0', KALIBR) + inside('cam1', f'T_cam_imu: {INVERSE}\n{NO_LENS}'), ':cam1'),
    (f'T_cam_imu: {INVERSE}\n{KALIBR}', ''),
    ('%YAML:1.0\n---\nimu: 1\n' + opencv_matrix('body_T_cam0', BODY), ''),
    ('%YAML:1.0\n' + opencv_matrix('body_T_cam0', SECOND) + opencv_matrix('body_T_cam1', BODY), ':cam1'),
    (VINS + EXTRINSIC, ''),
    (orbslam() + opencv_matrix('IMU.T_b_c1', BODY), ''),
    (orbslam('Camera') + opencv_matrix('Tbc', BODY), ''),
    (MAPLAB, ''), (OKVIS, ':cam0'), (basalt('ds', {}), ''),
    (opencv_matrix('Tbc', BODY), ''), ('%YAML:1.0\n' + opencv_matrix('body_T_cam', BODY), ''),  # UrbanNav's
    (f'{ROS}local_transform:\n  rows: 3\n  cols: 4\n  data: {np.ravel(BODY)[:12].tolist()}\n', '')])  # RTAB-Map's
def test_pose_in_the_body_in_each_form(write, text: str, choice: str) -> None:
    path = Path(f'{write(text)}{choice}')
    np.testing.assert_allclose(load_camera_in_body(path), BODY, atol=1e-12)


@pytest.mark.parametrize(('model', 'numbers', 'd'), [
    ('SIMPLE_RADIAL', '450 320 240 -0.28', [-0.28, 0, 0, 0]), ('RADIAL', '450 320 240 -0.28 0.07', [-0.28, 0.07, 0, 0]),
    ('RADIAL_FISHEYE', '450 320 240 0.1 0.2', [0.1, 0.2, 0, 0]),
    ('FULL_OPENCV', '450 450 320 240 1 2 3 4 5 6 7 8', [1, 2, 3, 4, 5, 6, 7, 8])])
def test_colmaps_models_have_opencvs_coefficients(write, model: str, numbers: str, d: list[float]) -> None:
    path = write(COLMAP.format(model, numbers) + '7 PINHOLE 320 240 200 200 160 120\n', 'cameras.txt')
    camera = load_intrinsics(Path(f'{path}:cam1'))
    assert camera.k.tolist() == [[450, 0, 319.5], [0, 450, 239.5], [0, 0, 1]]  # its pixels begin at the corner
    assert camera.d.tolist() == d
    assert (distortion_model(camera) == 'equidistant') == ('FISHEYE' in model)
    assert load_intrinsics(Path(f'{path}:cam7')).width == 320


@pytest.mark.parametrize(('scale', 'shift', 'is_refused'), [(1.5, 0, True), (0.5, 0, True), (1.15, 0, False), (1.5, 100, False)])
@pytest.mark.parametrize('text', [OWN, VINS, ROS], ids=['own', 'vins', 'ros'])
def test_k_of_images_of_another_size_is_refused(write, text: str, scale: float, shift: float, is_refused: bool) -> None:
    """As where only width and height were edited; a crop moves the principal point along one axis more."""
    middle = 319.5 * scale - shift, 239.5 * scale
    path = write(text.replace('319.5', str(middle[0])).replace('239.5', str(middle[1])))
    if not is_refused:
        assert load_intrinsics(path).k[0, 2] == middle[0]
        return
    with pytest.raises(BagError, match=rf'is the middle of images {scale:.2f} times as large as its 640x480: give K of this size'):
        load_intrinsics(path)


@pytest.mark.parametrize(('middle', 'message'), [
    ('239.5 319.5', 'is the middle of images of 480x640, as of rotated ones: give K of this size'),
    ('3.5 -2.5', 'is next to the first pixel of its 640x480, as where it is counted from the middle'), ('280.5 300.5', '')])
def test_principal_point_that_no_such_image_has_is_refused(write, middle: str, message: str) -> None:
    text = OWN
    for name, old, new in zip(('cx', 'cy'), ('319.5', '239.5'), middle.split(), strict=True):
        text = text.replace(f'{name}: {old}', f'{name}: {new}')
    if not message:
        assert load_intrinsics(write(text)).k[0, 2] == 280.5
        return
    with pytest.raises(BagError, match=message):
        load_intrinsics(write(text))


def test_sections_of_an_orbbec_are_its_cameras(write) -> None:
    lens = 'k1=0.1\nk2=0.2\nk3=0.3\nk4=0.4\nk5=0.5\nk6=0.6\np1=0.001\np2=0.002\n'
    sizes = 'width=640\nheight=480\n'
    text = ''.join(f'[{name}Intrinsic]\n{FLAT_K.replace(": ", "=").replace("450", focal)}{sizes}\n[{name}Distortion]\n{lens}\n'
                   for name, focal in (('Depth', '350'), ('Color', '450'))) + '[D2CTransformParam]\nrot0=1\ntrans0=-14.5\n'
    path = write(text)
    camera, depth = (load_intrinsics(Path(f'{path}:{name}')) for name in ('color', 'depth'))
    assert (camera.width, camera.height, camera.k.tolist(), depth.k[0, 0]) == (640, 480, K, 350)
    assert camera.d.tolist() == [0.1, 0.2, 0.001, 0.002, 0.3, 0.4, 0.5, 0.6]
    assert distortion_model(camera) == 'rational_polynomial'


@pytest.mark.parametrize('size', ['image', 'cam'])
def test_camera_of_vikit_may_have_no_model(write, size: str) -> None:
    """As Coco-LIC's."""
    lens = ''.join(f'cam_d{number}: {value}\n' for number, value in enumerate([*RADTAN, 0.01]))
    k = ''.join(f'cam_{line}\n' for line in FLAT_K.splitlines())
    camera = load_intrinsics(write(f'{size}_width: 640\n{size}_height: 480\n{k}{lens}'))
    assert (camera.width, camera.height, camera.k.tolist(), camera.d.tolist()) == (640, 480, K, [*RADTAN, 0.01])


@pytest.mark.parametrize(('numbers', 'right', 'order'), [
    ([450.0, 319.5, 451.0, 239.5], [450.0, 451.0, 319.5, 239.5], 'fx, cx, fy, cy'),
    ([319.5, 239.5, 450.0, 451.0], [450.0, 451.0, 319.5, 239.5], 'cx, cy, fx, fy'),
    *[(numbers, numbers, '') for numbers in (
        [450.0, 451.0, 319.5, 239.5], [325.0, 325.5, 319.5, 239.5], [320.0, 240.0, 320.0, 240.0], [450.0, 400.0, 300.0, 260.0])]],
    ids=['openloris', 'azure kinect', 'usual', 'all alike', '90 degrees both ways', 'no squares'])
def test_order_of_four_intrinsics_is_known_by_their_values(write, numbers: list[float], right: list[float], order: str) -> None:
    camera = load_intrinsics(write('width: 640\nheight: 480\nmodel: pinhole\nintrinsics: !!opencv-matrix\n   rows: 1\n   cols: 4\n'
                                   f'   dt: d\n   data: {numbers}\n'))
    assert camera.k[[0, 1, 0, 1], [0, 1, 2, 2]].tolist() == right
    assert order in camera.source
    assert ('by their values' in camera.source) == bool(order)


def test_rational_polynomials_of_basalt_and_luxonis(write) -> None:
    d = [0.1, 0.2, 0.001, 0.002, 0.3, 0.4, 0.5, 0.6]
    lens = dict(zip(('k1', 'k2', 'p1', 'p2', 'k3', 'k4', 'k5', 'k6'), d, strict=True))
    for text in (basalt('pinhole-radtan8', lens), luxonis(0, [*d, 0, 0, 0, 0, 0, 0])):
        camera = load_intrinsics(write(text))
        assert camera.d[:8].tolist() == d
        assert distortion_model(camera) == 'rational_polynomial'


@pytest.mark.parametrize(('text', 'model', 'd'), [
    (airslam(1, [*RADTAN, 0.01]), 'plumb_bob', [*RADTAN, 0.01]), (airslam(2, [*KB, 0]), 'equidistant', KB),
    (ov2slam('pinhole', RADTAN), 'plumb_bob', RADTAN), (ov2slam('fisheye', KB), 'equidistant', KB)])
def test_pairs_whose_lens_is_named_once_for_both_are_read(write, text: str, model: str, d: list[float]) -> None:
    path = write(text)
    for name in ('cam0', 'cam1'):
        camera = load_intrinsics(Path(f'{path}:{name}'))
        assert (camera.width, camera.height, camera.k.tolist(), camera.d.tolist()) == (640, 480, K, d)
        assert distortion_model(camera) == model
        assert load_camera_in_body(Path(f'{path}:{name}')) == pytest.approx(np.array(BODY))


@pytest.mark.parametrize(('kind', 'names', 'model', 'd'), [
    ('brown', 'k1 k2 p1 p2 k3', 'plumb_bob', [*RADTAN, 0.01]), ('fisheye_opencv', 'k1 k2 k3 k4', 'equidistant', KB),
    ('fisheye', 'k1 k2', 'equidistant', [0.1, 0.2]), ('radial', 'k1 k2', 'plumb_bob', [0.1, 0.2])])
def test_cameras_of_opensfm_are_counted_from_the_middle(write, kind: str, names: str, model: str, d: list[float]) -> None:
    camera = load_intrinsics(write(opensfm(kind, names, d), 'cameras.json'))
    assert camera.k == pytest.approx(np.array([[450, 0, 327.5], [0, 451, 235.5], [0, 0, 1]]))
    assert (distortion_model(camera), [each for each in camera.d.tolist() if each]) == (model, d)


def test_pair_of_matlab_has_rows_first_and_pixels_from_one(write) -> None:
    one = json.loads(matlab(K=[[450.0, 0, 320.5], [0, 451.0, 240.5], [0, 0, 1]]))
    path = write(json.dumps({'CameraParameters1': one, 'CameraParameters2': one, 'RotationOfCamera2': np.eye(3).tolist()}))
    camera = load_intrinsics(Path(f'{path}:cam1'))
    assert (camera.width, camera.height, camera.k.tolist(), camera.d.tolist()) == (640, 480, K, RADTAN)
    assert load_pair(path) is None


def test_raw_and_rectified_cameras_of_dsec_are_chosen_by_name(write) -> None:
    path = write(DSEC)
    assert load_intrinsics(Path(f'{path}:intrinsics.cam1')).d.tolist() == RADTAN
    rectified = load_intrinsics(Path(f'{path}:intrinsics.camRect1'))
    assert (rectified.k.tolist(), distortion_model(rectified)) == (K, None)
    with pytest.raises(BagError, match=r'cameras intrinsics\.cam0, intrinsics\.cam1, intrinsics\.camRect1: choose one'):
        load_intrinsics(path)


def test_pose_through_the_camera_before_it(write) -> None:
    second = np.linalg.inv(RIGHT_IN_LEFT).tolist()
    chain = write(inside('cam0', f'T_cam_imu: {INVERSE}\n{KALIBR}') + inside('cam1', f'T_cn_cnm1: {second}\n{KALIBR}'))
    np.testing.assert_allclose(load_camera_in_body(Path(f'{chain}:cam1')), SECOND, atol=1e-12)
    other = ''.join(line for line in orbslam('Camera2').splitlines(True) if line.startswith('Camera2'))
    both = write(orbslam() + other + opencv_matrix('IMU.T_b_c1', BODY) + opencv_matrix('Stereo.T_c1_c2', RIGHT_IN_LEFT))
    np.testing.assert_allclose(load_camera_in_body(Path(f'{both}:Camera2')), SECOND, atol=1e-12)


@pytest.mark.parametrize('text', [OWN, ROS, OPENCV, KALIBR, VINS, orbslam(), inside('cam0', KALIBR)])
def test_file_without_a_pose_is_refused_with_the_keys_that_are_read(write, text: str) -> None:
    path = write(text)
    with pytest.raises(BagError, match=r'T_BS .*T_cam_imu.*body_T_cam0.*Tbc'):
        load_camera_in_body(path)
    assert find_camera_in_body(path) is None
    assert find_camera_in_body(path.with_name('gone.yaml')) is None


@pytest.mark.parametrize(('change', 'message'), [
    (('-1', '-2'), 'T_cam_imu: its left upper 3x3 is no rotation'), (('0.5', '.nan'), 'T_cam_imu: nan is not finite'),
    (('0, 0, 0, 1]', '0, 0, 0, 2]'), 'T_cam_imu: its last row'), (('[0.0, -1, 0, 0.5], ', ''), None),
    (('0.5', 'far'), "T_cam_imu: 'far' is no number"), (('[1, 0, 0, 0.25]', '[-1, 0, 0, 0.25]'), 'no rotation')])
def test_bad_pose_is_refused_by_its_key(write, change: tuple[str, str], message: str | None) -> None:
    path = write(inside('cam0', f'T_cam_imu: {BODY}\n{KALIBR}'.replace(*change)))
    if message is None:  # 12 values are a matrix without its last row: here they are other rows
        message = 'T_cam_imu: its left upper 3x3'
    with pytest.raises(BagError, match=message):
        load_camera_in_body(path)


def test_projection_matrix_counts_for_rectified_images(write) -> None:
    path = write(ROS + RECTIFIED)
    raw, rectified = load_intrinsics(path), load_intrinsics(path, rectified=True)
    assert (raw.k.tolist(), raw.d.tolist(), raw.source) == (K, RADTAN, str(path))
    assert rectified.k.tolist() == [[400, 0, 310], [0, 400, 230], [0, 0, 1]]
    assert distortion_model(rectified) is None
    assert rectified.shift_m == pytest.approx(0.1)
    assert rectified.source == f'{path}, its projection_matrix'
    with pytest.raises(BagError, match='no projection_matrix'):
        load_intrinsics(write(ROS), rectified=True)
    with pytest.raises(BagError, match=r'projection_matrix\.data: nan is not finite'):
        load_intrinsics(write(ROS + RECTIFIED.replace('310', '.nan')), rectified=True)
    with pytest.raises(BagError, match='not calibrated'):
        load_intrinsics(write(ROS + RECTIFIED.replace('400.0', '0')), rectified=True)
    zero_p = f'projection_matrix: {{data: {12 * [0]}}}\n'  # of drivers that leave it out
    for text in (WITHOUT['ROS, pinhole'], WITHOUT['own'], KALIBR, WITHOUT['ROS, pinhole'] + zero_p):  # of rectified images
        camera, as_raw = load_intrinsics(write(text), rectified=True), load_intrinsics(write(text))
        assert np.array_equal(camera.k, as_raw.k)
        assert np.array_equal(camera.d, as_raw.d)
    for topic in ('/left/image_rect', '/left/image_rect_color/compressed'):
        assert is_rectified(topic)
    assert not is_rectified('/rect/image_raw')


def test_chain_of_two_cameras_is_a_rig(write) -> None:
    """The same rays as OpenCV's stereoRectify would give: points of a wall have equal rows and the disparity of their depth."""
    turn = cv2.Rodrigues(np.array([0.02, -0.03, 0.01]))[0]
    right_in_left = np.eye(4)
    right_in_left[:3, :3], right_in_left[:3, 3] = turn, [0.11, 0.004, -0.002]
    rest = {'T_cn_cnm1': ('', f'T_cn_cnm1: {np.linalg.inv(right_in_left).tolist()}\n'),
            'T_cam_imu': (f'T_cam_imu: {INVERSE}\n', f'T_cam_imu: {np.linalg.inv(np.array(BODY) @ right_in_left).tolist()}\n')}
    points = np.random.default_rng(0).uniform([-1, -0.7, 2], [1, 0.7, 6], (50, 3))
    for left, right in rest.values():
        pair = load_pair(write(inside('cam0', left + KALIBR) + inside('cam1', right + KALIBR)))
        assert pair is not None
        rig = StereoRig(*pair)
        assert rig.baseline_m == pytest.approx(np.linalg.norm(right_in_left[:3, 3]))
        pixels = [cv2.projectPoints(local, np.zeros(3), np.zeros(3), np.array(K), np.array(RADTAN))[0][:, 0]
                  for local in (points, (points - right_in_left[:3, 3]) @ turn)]
        first, second = rig.left_points(pixels[0]), rig.right_points(pixels[1])
        np.testing.assert_allclose(first[:, 1], second[:, 1], atol=1e-6)
        depth = rig.baseline_m / (first[:, 0] - second[:, 0])
        np.testing.assert_allclose(depth, (points @ pair[0].rectification.T)[:, 2], rtol=1e-5)


@pytest.mark.parametrize(('number', 'model'), [(0, 'plumb_bob'), (1, 'equidistant')])
def test_left_and_right_of_airvo_are_a_rig(write, number: int, model: str) -> None:
    path = write(f'%YAML:1.0\nimage_height: 480\nimage_width: 640\nbf: 44.0\ndistortion_type: {number}\n{sides()}')
    pair = load_pair(path)
    assert pair is not None
    assert [camera.k.tolist() for camera in pair] == [K, K]
    assert distortion_model(pair[0]) == model
    assert StereoRig(*pair).baseline_m == pytest.approx(0.11)
    rectified = load_intrinsics(Path(f'{path}:right'), rectified=True)
    assert (rectified.k[0, 0], rectified.lens.distorts, rectified.shift_m) == (400.0, False, 0.11)


def test_rectified_images_of_orbslam_have_its_focal_length(write) -> None:
    path = write(f'{orbslam("Camera", d=[0.0] * 4)}{sides()}Camera.bf: 44.0\n'.replace('fx: 450', 'fx: 435'))
    camera = load_intrinsics(path, rectified=True)
    assert (camera.k[0, 0], camera.lens.distorts) == (435.0, False)
    raw = load_intrinsics(path)
    assert (raw.k.tolist(), raw.d.tolist()) == (K, [*RADTAN, 0.0])
    assert raw.source.endswith('its LEFT.K and LEFT.D, of raw images')
    pairs = [load_pair(path, rectified) or pytest.fail('no pair') for rectified in (False, True)]
    assert [[camera.k[0, 0] for camera in pair] for pair in pairs] == [[450.0, 450.0], [435.0, 435.0]]
    assert [camera.d.tolist() for camera in pairs[0]] == [[*RADTAN, 0.0]] * 2
    assert [pair[1].shift_m for pair in pairs] == pytest.approx([0.11, 44.0 / 435])


def test_fisheye_of_one_coefficient_is_the_fov_model(write) -> None:
    """As maplab and SVO call it; of another model one coefficient stays an error."""
    camera = load_intrinsics(write(MAPLAB.replace('radial-tangential', 'fisheye').replace(str(RADTAN), '[0.932]')))
    assert 'its fov as the equidistant lens' in camera.source
    angle = np.arctan(0.5)
    radius = 450.0 * np.arctan(2 * np.tan(0.932 / 2) * 0.5) / 0.932
    k1, k2, k3, k4 = camera.d
    ours = camera.k[0, 0] * angle * (1 + k1 * angle**2 + k2 * angle**4 + k3 * angle**6 + k4 * angle**8)
    assert ours == pytest.approx(radius, abs=0.5)
    for alone in (f'{OWN}distortion: {{type: fisheye, parameters: [0.932]}}\n', f'{OWN}distortion_model: fisheye\nD: [0.932]\n'):
        assert load_intrinsics(write(alone)).k[0, 0] == pytest.approx(camera.k[0, 0])
    with pytest.raises(BagError, match='equidistant has 4 coefficients'):
        load_intrinsics(write(f'{OWN}distortion_model: equidistant\nD: [0.932]\n'))


def test_cameras_of_oxford_spires_have_their_labels_and_poses(write) -> None:
    pose = np.linalg.inv(BODY)
    w = np.sqrt(np.trace(pose[:3, :3]) + 1) / 2
    q = [*((pose[[2, 0, 1], [1, 2, 0]] - pose[[1, 2, 0], [2, 0, 1]]) / (4 * w)), w]
    camera = {'label': 'cam_left', 'topic': '/cam1/image', 'T_cam_imu_t_xyz_q_xyzw': [*pose[:3, 3], *q], 'extra_params': KB,
              'intrinsics': [450.0, 451.0, 319.5, 239.5], 'image_height': 480, 'image_width': 640}
    other = {**{key: value for key, value in camera.items() if key[0] != 'T'}, 'label': 'cam_right'}
    text = json.dumps({'sensor': {'cameras': [camera, other], 'camera_model': 'OPENCV_FISHEYE'}})
    chosen = Path(f'{write(text)}:cam_left')
    found = load_intrinsics(chosen)
    assert (found.k.tolist(), distortion_model(found), found.d.tolist()) == (K, 'equidistant', KB)
    np.testing.assert_allclose(load_camera_in_body(chosen), BODY, atol=1e-9)


def test_cameras_of_dgp_have_their_names_and_poses(write) -> None:
    zero = {'fx': 0.0, 'fy': 0.0, 'cx': 0.0, 'cy': 0.0, 'skew': 0.0}
    camera = {**zero, 'fx': 450.0, 'fy': 451.0, 'cx': 319.5, 'cy': 239.5, 'k1': 0.0, 'w': 0.0, 'alpha': 0.0, 'fisheye': 0}
    pose = {'rotation': {'qw': 0.5**0.5, 'qx': 0.0, 'qy': 0.0, 'qz': 0.5**0.5}, 'translation': {'x': 0.5, 'y': 0.25, 'z': -0.125}}
    values = {'names': ['LIDAR', 'CAMERA_01'], 'intrinsics': [zero, camera], 'extrinsics': [pose, pose]}
    chosen = Path(f'{write(json.dumps(values))}:CAMERA_01')
    found = load_intrinsics(chosen, size=lambda: (640, 480))
    assert (found.k.tolist(), found.lens.distorts) == (K, False)
    np.testing.assert_allclose(load_camera_in_body(chosen), BODY, atol=1e-12)
    values['intrinsics'][1] = {**camera, 'xi': 0.9}
    with pytest.raises(BagError, match=r'lens_parameter_xi: 0\.9 is not read'):
        load_intrinsics(Path(f'{write(json.dumps(values))}:CAMERA_01'), size=lambda: (640, 480))


@pytest.mark.parametrize('sides', [(1, 2), ('left', 'right'), ('Left', 'Right'), ('L', 'R')])
@pytest.mark.parametrize('names', ['K{} D{}', 'M{} D{}', 'cameraMatrix{} distCoeffs{}', 'camera_matrix_{} dist_coeffs_{}',
                                   'camera_mat_{} distortion_{}', '{}_intrinsics distortion_{}', 'mtx{} dist{}'])
def test_pair_of_opencvs_stereo_calibration_is_a_rig(write, names: str, sides: tuple[object, object]) -> None:
    def matrix(name: str, values: object, rows: int) -> str:
        data = np.ravel(values).tolist()
        return f'{name}: !!opencv-matrix\n   rows: {rows}\n   cols: {len(data) // rows}\n   dt: d\n   data: {data}\n'

    (left, left_d), (right, right_d) = (names.format(side, side).split() for side in sides)
    text = '%YAML:1.0\n---\nimage_width: 640\nimage_height: 480\n' + ''.join(matrix(*each) for each in (
        (left, K, 3), (left_d, RADTAN, 1), (right, [[440, 0, 320], [0, 441, 240], [0, 0, 1]], 3), (right_d, [0.0] * 4, 1),
        ('R', np.eye(3), 3), ('T', [-0.11, 0, 0], 3), ('P1', np.eye(4)[:3], 3), ('Q', np.eye(4), 4)))
    path = write(text)
    pair = load_pair(path)
    assert pair is not None
    rig = StereoRig(*pair)
    assert rig.baseline_m == pytest.approx(0.11)
    assert (rig.left.k.tolist(), rig.left.d.tolist(), rig.right.k[0, 0]) == (K, RADTAN, 440)
    assert load_intrinsics(Path(f'{path}:cam1')).k[1, 1] == 441
    with pytest.raises(BagError, match=r'110 m, .*give it in metres, not in millimetres'):
        load_pair(write(text.replace('-0.11', '-110.0')))
    with pytest.raises(BagError, match='has no fx, it has image_width'):
        load_intrinsics(write(text.replace('data: [-0.11', 'other: [-0.11')))


def test_configuration_of_vins_names_the_files_of_its_cameras(write) -> None:
    left, right = write(VINS, 'left.yaml'), write(VINS.replace('450.0', '452.0'), 'right.yaml')
    both = (f'%YAML:1.0\nimu: 1\nnum_of_cam: 2\ncam0_calib: "left.yaml"\ncam1_calib: "right.yaml"\nmin_dist: 30\n'
            f'{opencv_matrix("body_T_cam0", BODY)}{opencv_matrix("body_T_cam1", SECOND)}')
    config = write(both, 'config.yaml')
    cameras = [load_intrinsics(Path(f'{config}:cam{number}')) for number in range(2)]
    assert [camera.k[0, 0] for camera in cameras] == [450, 452]
    assert cameras[1].source == f'{config}, cam1, right.yaml'
    pair = load_pair(config)
    assert pair is not None
    assert StereoRig(*pair).baseline_m == pytest.approx(0.11)
    for count in (0, 1):
        assert load_intrinsics(write(both.replace('num_of_cam: 2', f'num_of_cam: {count}'))).k.tolist() == K
    right.write_text(VINS.replace('PINHOLE', 'SCARAMUZZA'))
    with pytest.raises(BagError, match=r'config.yaml, cam1: cam1_calib, right.yaml: model_type: SCARAMUZZA'):
        load_intrinsics(Path(f'{config}:cam1'))
    left.write_text(VINS.replace('image_width', 'width'))
    with pytest.raises(BagError, match=r'config.yaml, cam0 has no image_width in cam0_calib, left.yaml'):
        load_intrinsics(Path(f'{config}:cam0'))


def test_configuration_of_openvins_names_the_file_of_its_cameras(write) -> None:
    write(inside('cam0', f'T_imu_cam: {BODY}\n{KALIBR}') + inside('cam1', KALIBR), 'kalibr_imucam_chain.yaml')
    config = write('%YAML:1.0 # need to specify\nverbosity: "INFO"\nrelative_config_imucam: "kalibr_imucam_chain.yaml"\n', 'e.yaml')
    camera = Path(f'{config}:cam0')
    assert (load_intrinsics(camera).k.tolist(), load_intrinsics(camera).d.tolist()) == (K, RADTAN)
    assert np.allclose(load_camera_in_body(camera), BODY)
    with pytest.raises(BagError, match=r'describes the cameras cam0, cam1: choose one, as .*e\.yaml:cam0'):
        load_intrinsics(config)
    with pytest.raises(BagError, match=r'cannot read .*absent\.yaml'):
        load_intrinsics(write('relative_config_imucam: absent.yaml\n', 'f.yaml'))


def test_files_that_describe_no_rig(write) -> None:
    assert load_pair(write(OWN)) is None
    assert load_pair(write(CHAIN)) is None
    chain = write(inside('cam0', KALIBR) + inside('cam1', f'T_cn_cnm1: {np.linalg.inv(RIGHT_IN_LEFT).tolist()}\n{KALIBR}'))
    assert load_pair(chain) is not None
    first, second = chain.read_text().split('cam1:')
    backwards = load_pair(write(f'cam1:{second}{first}'))
    assert backwards is not None
    assert StereoRig(*backwards).baseline_m == pytest.approx(0.11)
    assert load_pair(Path(f'{chain}:cam0')) is None


@pytest.mark.parametrize('metres', [110.0, -110.0, 2e-5, 1.2e-4, 7.5e-4, 0.0])
def test_distance_that_no_rig_has_is_refused(write, metres: float) -> None:
    pose = np.eye(4)
    pose[0, 3] = -metres
    chain = write(inside('cam0', KALIBR) + inside('cam1', f'T_cn_cnm1: {pose.tolist()}\n{KALIBR}'))
    advice = 'give it in metres' + ', not in millimetres' * (abs(metres) > 1)
    with pytest.raises(BagError, match=f'between cam0 and cam1 is .*{advice}$'):
        load_pair(chain)
    with pytest.raises(BagError, match=f'baseline_m is .*{advice};'):
        load_baseline(write(f'{OWN}baseline_m: {metres}\n'))
    left = load_intrinsics(write(OWN))
    with pytest.raises(BagError, match=r'metres'):
        StereoRig(left, Intrinsics(640, 480, left.k, '', left.d, shift_m=metres))


@pytest.mark.parametrize('text', ['baseline_m: .nan', 'baseline_m: wide', 'baseline_m:', 'other: 1'])
def test_baseline_that_is_no_number_is_refused(write, text: str) -> None:
    with pytest.raises(BagError, match='baseline_m'):
        load_baseline(write(f'{OWN}{text}\n'))


@pytest.mark.parametrize(('focal', 'extra', 'known'), [
    (190, '', False), (190, 'distortion: equidistant\n', True), (190, 'distortion: plumb_bob\n', True), (450, '', True)])
def test_four_coefficients_of_a_wide_lens_need_a_model(write, focal: int, extra: str, known: bool) -> None:
    text = f'width: 512\nheight: 512\nfx: {focal}\nfy: {focal}\ncx: 256\ncy: 256\ndist: [0.0034, 0.0007, -0.002, 0.0002]\n{extra}'
    if known:
        assert load_intrinsics(write(text)).d.tolist() == [0.0034, 0.0007, -0.002, 0.0002]
    else:
        with pytest.raises(BagError, match=r'without a model, and K sees 125 degrees .* mostly that is a fisheye. Name the model'):
            load_intrinsics(write(text))
    named = text.replace('dist: [0.0034, 0.0007, -0.002, 0.0002]', 'k1: 0.0034\nk2: 0.0007\np1: -0.002\np2: 0.0002')
    for clear in (text.replace('-0.002, 0.0002', '0, 0'), named):
        assert load_intrinsics(write(clear.replace('equidistant', 'plumb_bob'))).d[0] == 0.0034


@pytest.mark.parametrize('text', [
    orbslam('Camera').replace('Camera.width: 640\nCamera.height: 480\n', ''),  # ORB-SLAM2's files of TUM and KITTI
    OPENCV.replace('image_width: 640\nimage_height: 480\n', ''), FLAT_K, inside('CameraIntrinsics', inside(
        'CameraMatrix', FLAT_K.upper()) + inside('Distortion', 'K1: 0.0\n')), f'K: {np.transpose(K).ravel().tolist()}\n',
    plain_matrix(3, 3), plain_matrix(3, 4), plain_matrix(4, 4).replace(' ', ','), '450, 451, 319.5, 239.5\n',
    f'{" ".join(map(str, np.ravel(K)))}\n0.12\n', f'K: {" ".join(map(str, np.ravel(K)))}\nD: 0 0 0 0\nT: 1 0 0 0.5\n'])
def test_calibration_without_size_gets_that_of_the_images(tmp_path: Path, text: str) -> None:
    path = tmp_path / 'calib.yaml'
    path.write_text(text)
    with pytest.raises(BagError, match='width'):
        load_intrinsics(path)
    camera = load_intrinsics(path, size=lambda: (640, 480))
    assert (camera.width, camera.height) == (640, 480)
    assert np.array_equal(camera.k, K)
    assert camera.source == f'{path}, which has no size: that of the images is taken'
    for other in ((800, 600), (512, 384), (480, 640)):
        with pytest.raises(BagError, match=f'no (Camera.)?width, and its principal point 319.5, 239.5 .* {other[0]}x{other[1]}'):
            load_intrinsics(path, size=lambda size=other: size)


@pytest.mark.parametrize(('middle', 'is_read'), [
    ((350, 293), True), ((352, 297), True), ((360, 293), False), ((320, 300), False), ((384, 240), True), ((400, 240), False)])
def test_principal_point_may_be_off_a_bit_more_along_one_axis(write, middle: tuple[int, int], is_read: bool) -> None:
    path = write(f'450 451 {middle[0]} {middle[1]} -0.28 0.07 0.0002 0.0001 0\n', 'calib.txt')
    if is_read:
        assert load_intrinsics(path, size=lambda: (640, 480)).k[:2, 2].tolist() == list(middle)
    else:
        with pytest.raises(BagError, match='is far from the middle of the images of 640x480'):
            load_intrinsics(path, size=lambda: (640, 480))


def kitti(number: int, shift: float = 0.0, name: str = 'P') -> str:
    matrix = np.hstack([K, [[-450.0 * shift], [0], [0]]])
    return f'{name}{number}: {" ".join(f"{value:.12e}" for value in matrix.ravel())}\n'


def test_projections_of_kitti_need_no_names(write) -> None:
    """As in the sequences of a course on visual odometry."""
    named, size = kitti(0) + kitti(1, 0.5), lambda: (640, 480)
    pairs = [load_pair(write(text, 'calib.txt'), size=size) for text in (named, re.sub(r'P\d: ', '', named))]
    assert [(left.k.tolist(), right.shift_m) for left, right in pairs] == [(K, pytest.approx(0.5))] * 2


def test_projections_of_kitti_are_a_rig(write) -> None:
    text = kitti(0) + kitti(1, 0.5) + kitti(2, -0.06) + kitti(3, 0.47) + kitti(0, 0.3, 'Tr')
    assert [camera['T_cn_cnm1'][0][3] for camera in list(of_text(text).values())[1:]] == pytest.approx([-0.5, 0.56, -0.53])
    path = write(text, 'calib.txt')
    left, right = load_pair(Path(f'{path}:cam0,cam1'), size=lambda: (640, 480))
    assert load_pair(Path(f'{path}:cam2,cam3'), size=lambda: (640, 480))[1].shift_m == pytest.approx(0.53)
    assert left.k.tolist() == K
    assert right.shift_m == pytest.approx(0.5)
    assert load_intrinsics(Path(f'{path}:cam2'), size=lambda: (640, 480)).k.tolist() == K
    with pytest.raises(BagError, match='describes the cameras cam0, cam1, cam2, cam3: choose one'):
        load_intrinsics(path, size=lambda: (640, 480))


@pytest.mark.parametrize(('size', 'd'), [((600, 440), []), ((640, 480), [*RADTAN, 0.1])])
def test_raw_and_rectified_images_of_kitti_are_told_by_size(write, size: tuple[int, int], d: list[float]) -> None:
    raw = f'S_02: 640 480\nK_02: {" ".join(map(str, np.ravel(K)))}\nD_02: {" ".join(map(str, [*RADTAN, 0.1]))}\n'
    path = write(f'calib_time: 09-Jan-2012 13:57:47\n{raw}S_rect_02: 600 440\n{kitti(2, 0.5, "P_rect_0")}', 'calib_cam_to_cam.txt')
    camera = load_intrinsics(path, size=lambda: size)
    assert (camera.width, camera.height, camera.k.tolist(), camera.d.tolist()) == (*size, K, d)
    with pytest.raises(BagError, match='it is for images of 600x440, 640x480, and these have 800x600'):
        load_intrinsics(path, size=lambda: (800, 600))


@pytest.mark.parametrize('equals', ['=', ' = '])
def test_pair_of_middlebury_is_a_rig_with_millimetres(write, equals: str) -> None:
    path = write('cam0=[450 0 300.5; 0 450 239.5; 0 0 1]\ncam1=[450 0 330.5; 0 450 239.5; 0 0 1]\ndoffs=30\nbaseline=173.5\n'
                 'width=640\nheight=480\nndisp=125\nisint=0\n'.replace('=', equals), 'calib.txt')
    left, right = load_pair(path)
    assert (left.width, left.height, left.k[0, 2], right.k[0, 2]) == (640, 480, 300.5, 330.5)
    assert right.shift_m == pytest.approx(0.1735)


@pytest.mark.parametrize('extra', ['size: [640, 480]\n', ''])
def test_pair_of_opencv_gets_a_size_for_both_cameras(write, extra: str) -> None:
    path = write(''.join(f'M{number}: {K}\nD{number}: {RADTAN}\n' for number in (1, 2)) + extra, 'intrinsics.yml')
    camera = load_intrinsics(Path(f'{path}:cam1'), size=None if extra else lambda: (640, 480))
    assert (camera.width, camera.height, camera.k.tolist(), camera.d.tolist()) == (640, 480, K, RADTAN)


@pytest.mark.parametrize('text', [ROS, OWN, KALIBR, VINS, orbslam(), orbslam('Camera')])
def test_calibration_with_a_size_never_reads_the_images(tmp_path: Path, text: str) -> None:
    path = tmp_path / 'calib.yaml'
    path.write_text(text)
    camera = load_intrinsics(path, size=lambda: pytest.fail('read'))
    assert camera.width == 640
    assert camera.source == str(path)


@pytest.mark.parametrize(('text', 'words'), [
    ('{"k": ' + '[' * 3000 + ']' * 3000 + '}', 'is no YAML, JSON or XML'), (f'{OWN}k1: 1{"0" * 400}\n', 'k1: 1000.* is not finite'),
    (json.dumps([{'K': K, 'width': 640, 'height': 480, 'a': {'b': [float('nan')]}}]), 'a.b: nan is not finite'),
    (json.dumps({'views': [], 'version': [], 'intrinsics': [{
        'width': 640, 'height': 480, 'type': 'pinhole', 'focalLength': 3, 'sensorWidth': 0, 'principalPoint': [0, 0]}]}),
     'has no resolution'),
    ('640 1e999 450 451 319.5 239.5\n', 'is no calibration'),
    (json.dumps({'value0': {
        'intrinsics': [{'camera_type': 'pinhole', 'intrinsics': {'fx': 450, 'fy': 451, 'cx': 319, 'cy': 239}}],
        'resolution': [[640, 480]], 'T_imu_cam': [dict.fromkeys(('px', 'py', 'pz', 'qx', 'qy', 'qz', 'qw'), 0)]}}),
     'the quaternion of pose 0 is .* no direction')])
def test_values_that_no_calibration_has_are_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / 'calib.yaml').write_text(text)
    with pytest.raises(BagError, match=f'calib.yaml.*{words}'):
        load_intrinsics(tmp_path / 'calib.yaml')
