"""Calibrations that tools write in a text of their own, neither YAML nor JSON, in the words that `calibration_forms` reads.

COLMAP's cameras.txt, ZED's SN12345678.conf, the output of `rs-enumerate-devices -c`, ROS's ost.txt, Metashape's
XML, kapture's sensors.txt, DSO's camera.txt, KITTI's and Middlebury's calib.txt, matrices K, lines of numbers, TOML and INI.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import cv2
import numpy as np

from . import colmap, other_lenses

_NUMBER = r'[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?'
_ZED_SIZES = {'4K': (3840, 2160), 'QHDPLUS': (3200, 1800), '2K': (2208, 1242), 'FHD1200': (1920, 1200), 'FHD': (1920, 1080),
              'HD': (1280, 720), 'SVGA': (960, 600), 'VGA': (672, 376)}  # of one camera, by its sections' names
_ZED_REMARK = "of raw images: those of ZED's SDK and ROS driver mostly are rectified, and have the calibration of their CameraInfo"
_OST = re.compile(rf'^(width|height|camera matrix|distortion|rectification|projection)\s*\n((?:\s*{_NUMBER}\s)+)', re.MULTILINE)
_OST_KEYS = {'width': 'image_width', 'height': 'image_height', 'camera matrix': 'camera_matrix',
             'distortion': 'distortion_coefficients', 'rectification': 'rectification_matrix',
             'projection': 'projection_matrix'}
_DSO = {'pinhole': 'none', 'radtan': 'radtan', 'equidistant': 'equidistant', 'kannalabrandt': 'equidistant', 'fov': 'fov',
        'atan': 'fov'}  # what the lens is called
_PROJECTION = re.compile(rf'^P(?:_rect_)?0?(\d):((?:[ \t]+{_NUMBER}){{12}})[ \t]*$', re.MULTILINE)  # P2 or P_rect_02
_MIDDLEBURY = re.compile(rf'^cam(\d)\s*=\s*\[((?:[\s;]*{_NUMBER}){{9}})\s*\]', re.MULTILINE)
_REALSENSE = re.compile(r'^\s*Intrinsic of "(.+?)"(.*?)(?=^\s*(?:Intrinsic|Extrinsic|Motion|Device)|\Z)', re.MULTILINE | re.DOTALL)

_OF_SDK = re.compile(  # how RealSense's SDK prints intrinsics
    rf'\[\s*(\d+)x(\d+)\s+p\[({_NUMBER}) ({_NUMBER})\]\s+f\[({_NUMBER}) ({_NUMBER})\]\s+([A-Za-z ]+?) \[([^]]*)\]\s*\]')
_REALSENSE_POSE = re.compile(rf'^\s*Extrinsic from "(.+?)"\s+To\s+"(.+?)"\s*:\s*Rotation Matrix:((?:\s+{_NUMBER}){{9}})\s+'
                             rf'Translation Vector:((?:\s+{_NUMBER}){{3}})', re.MULTILINE)


class BySize(list[dict[str, Any]]):
    """What counts for a camera, for each size of its images."""

    def __init__(self, entries: list[dict[str, Any]], remark: str = '') -> None:
        super().__init__(entries)
        self.remark = remark  # for people


def of_text(text: str) -> dict[str, Any]:
    """The cameras of such a text by name, or the keys of its only one; empty for another text. Raises ValueError."""
    if re.search(r'^\[(LEFT|RIGHT)_CAM_', text, re.MULTILINE):
        return dict(_of_zed(text))
    if re.search(r'^\s*Intrinsic of "', text, re.MULTILINE):
        return dict(_of_realsense(text))
    if found := _OF_SDK.fullmatch(text.strip()):
        return dict(zip(('width', 'height', 'ppx', 'ppy', 'fx', 'fy', 'model', 'coeffs'), [*found.groups()[:-1], found[8].split()],
                        strict=True))
    if re.search(r'^\s*type: <class .aslam|^\s*Reprojection error( \[px\]| \(cam\d)', text, re.MULTILINE):
        raise ValueError('a report of Kalibr: give its camchain, a YAML file that Kalibr writes next to it')
    if text.lstrip().startswith('#polynomial coefficients for the DIRECT'):
        return other_lenses.of_ocamcalib(text)
    if scannet := _of_scannet(dict(re.findall(r'^(?:m_)?(\w+) = (.*)$', text, re.MULTILINE))):
        return scannet
    if re.search(r'^\[image\]', text, re.MULTILINE):
        return _of_ost(text)
    if matrices := dict(_PROJECTION.findall(text)):
        return _of_kitti(text, matrices)
    if len((numbers := _named_numbers(text)).get('K', [])) == 9:  # of calibrations with a lidar
        return numbers if len(numbers) == len(_values_in(text)) else {}
    if matrices := dict(_MIDDLEBURY.findall(text)):
        return _of_middlebury(text, matrices)
    if text.startswith('# kapture format'):
        return _of_kapture(text)
    if '<sensor ' in text and '<calibration ' in text:
        return _of_metashape_project(text)
    if '<projection>' in text:
        return _of_metashape(text)
    return colmap.cameras_of(text) or _of_numbers(text) or _of_assignments(text)


def _values_in(text: str) -> list[str]:
    """Its lines without blanks and comments."""
    return [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(('#', ';'))]


def _of_assignments(text: str) -> dict[str, Any]:
    """Lines key = value, perhaps under [sections], each value in a line of its own, as of TOML and INI; empty for another text."""
    import yaml
    values = dict[str, Any]()
    section = values
    for line in map(str.strip, _values_in(text)):
        if name := re.fullmatch(r'\[([\w. -]+)\]', line):
            section = values[name[1].strip()] = {}
        elif pair := re.fullmatch(r'([\w. -]+?)\s*=\s*(.+)', line):
            try:
                section[pair[1]] = yaml.safe_load(pair[2])
            except yaml.YAMLError:
                return {}
        else:
            return {}
    return values if '=' in text else {}


def _of_zed(text: str) -> dict[str, BySize]:
    """cam0 is the left camera, cam1 the right one."""
    file = configparser.ConfigParser(strict=False, interpolation=None)
    try:
        file.read_string(text)
    except configparser.Error as error:
        raise ValueError(f'no calibration of a ZED ({" ".join(str(error).split())}): download it anew') from None
    sections = {name.upper().replace('RESOLUTION_', ''): dict(file[name]) for name in file.sections()}
    cameras = {}
    for number, side in enumerate(('LEFT', 'RIGHT')):
        entries = [{**_zed_camera(camera, sections.get(f'{side}_DISTO', camera)), 'resolution': list(size),
                    **(_zed_pose(sections.get('STEREO', {}), mode.lower()) if number else {})}
                   for mode, size in _ZED_SIZES.items() if (camera := sections.get(f'{side}_CAM_{mode}')) is not None]
        if entries:
            cameras[f'cam{number}'] = BySize(entries, _ZED_REMARK)
    return cameras


def _zed_camera(camera: Mapping[str, str], lens: Mapping[str, str]) -> dict[str, Any]:
    """K, and the coefficients of `lens`: of four radial ones alone, as Stereolabs writes fisheyes, these are equidistant."""
    if missing := [name for name in ('fx', 'fy', 'cx', 'cy') if name not in camera]:
        raise ValueError(f'a camera without {missing[0]}: download the calibration anew')
    d = {name: float(lens[name]) for name in lens if name not in ('fx', 'fy', 'cx', 'cy')}
    is_fisheye = bool(d.get('k4')) and not any(d.get(name) for name in ('p1', 'p2', 'k5', 'k6'))
    return {'camera_matrix': [camera['fx'], 0, camera['cx'], 0, camera['fy'], camera['cy'], 0, 0, 1],
            **({'distortion_model': 'equidistant'} if is_fisheye else {}), **d}


def _zed_pose(stereo: Mapping[str, str], mode: str) -> dict[str, Any]:
    """T_cn_cnm1 of the right camera: R and T of cv2.stereoCalibrate, T in millimetres, its -x as Baseline. Empty without them."""
    if not all(name in stereo for name in ('baseline', f'rx_{mode}', f'cv_{mode}', f'rz_{mode}')):
        return {}
    rotation = cv2.Rodrigues(np.array([float(stereo[f'{name}_{mode}']) for name in ('rx', 'cv', 'rz')]))[0]
    y, z = (float(stereo.get(f'{name}_{mode}', stereo.get(name, '0'))) for name in ('ty', 'tz'))
    translation = np.array([[-float(stereo['baseline'])], [y], [z]]) / 1000
    return {'T_cn_cnm1': np.hstack([rotation, translation]).tolist()}


def _of_realsense(text: str) -> dict[str, BySize]:
    """By the streams' names: color, depth, infrared_1 ..., with their poses in the first one, whose axes points are moved into."""
    cameras: dict[str, BySize] = {}
    poses = {(one, other): np.column_stack([np.reshape(rotation.split(), (3, 3)), translation.split()]).astype(np.float64).tolist()
             for one, other, rotation, translation in _REALSENSE_POSE.findall(text)}
    blocks = _REALSENSE.findall(text)
    for name, block in blocks:
        values = {key.lower(): value.strip() for key, value in re.findall(r'^\s*([A-Za-z]+):(.*)$', block, re.MULTILINE)}
        pose = np.eye(4)[:3].tolist() if name == blocks[0][0] else poses.get((name, blocks[0][0]))
        camera = {'resolution': [int(values.pop('width', 0)), int(values.pop('height', 0))], 'model': values.pop('distortion', ''),
                  'coeffs': values.pop('coeffs', '').split(), **values, **({} if pose is None else {'T_rig_cam': pose})}
        entries = cameras.setdefault(re.sub(r'\W+', '_', name.lower()), BySize([]))
        if camera not in entries:
            entries.append(camera)
    return cameras


def _of_ost(text: str) -> dict[str, Any]:
    """What camera_calibration prints and writes as ost.txt; of a pair left and right."""
    cameras = {}
    for block in re.split(r'^\[image\]', text, flags=re.MULTILINE)[1:]:
        name = next(iter(re.findall(r'^\[(?:.*/)?(.+?)\]', block, re.MULTILINE)), 'camera')
        found = {_OST_KEYS[key]: [float(each) for each in values.split()] for key, values in _OST.findall(block)}
        cameras[name] = {key: values[0] if key.startswith('image') else values for key, values in found.items()}
    return cameras if len(cameras) > 1 else next(iter(cameras.values()))


def _of_scannet(values: Mapping[str, str]) -> dict[str, Any]:
    """The cameras color and depth of ScanNet's scene0000_00.txt, and of the _info.txt of its sensor; empty for other texts."""
    cameras: dict[str, Any] = {}
    for name in ('color', 'depth'):
        matrix = values.get(f'calibration{name.capitalize()}Intrinsic', '').split()
        size = [values.get(f'{name}{side}') for side in ('Width', 'Height')]
        if len(matrix) == 16 and None not in size:
            cameras[name] = {'resolution': size, 'camera_matrix': matrix}
        elif f'fx_{name}' in values and None not in size:
            cameras[name] = {'resolution': size, 'intrinsics': [values.get(f'{each}_{name}') for each in ('fx', 'fy', 'mx', 'my')]}
    return cameras


def _named_numbers(text: str) -> dict[str, list[float]]:
    """Of lines `name: numbers`."""
    lines = re.findall(rf'^(\w+):((?:[ \t]+{_NUMBER})+)[ \t]*$', text, re.MULTILINE)
    return {name: [float(word) for word in words.split()] for name, words in lines}


def _of_kitti(text: str, matrices: Mapping[str, str]) -> dict[str, Any]:
    """Rectified cameras by their projections, each shifted from the one before it; of raw data those of raw images too, by size."""
    numbers = _named_numbers(text)
    cameras: dict[str, Any] = {}
    before = np.zeros(3)
    for name in sorted(matrices):
        projection = np.reshape([float(word) for word in matrices[name].split()], (3, 4))
        offset = np.linalg.solve(projection[:, :3], projection[:, 3])
        step = np.hstack([np.eye(3), (offset - before)[:, None]])
        camera = {'camera_matrix': projection[:, :3].ravel().tolist(), 'distortion_model': 'none',
                  **({'T_cn_cnm1': step.tolist()} if cameras else {})}
        raw = {key: numbers.get(f'{key}_0{name}') for key in ('S', 'K', 'D')}
        size, whole = ([int(side) for side in each or []] for each in (numbers.get(f'S_rect_0{name}'), raw['S']))
        if not {len(size), len(whole)} <= {0, 2}:
            raise ValueError(f'S_0{name} has {whole} and S_rect_0{name} {size}, where width and height belong: take the file anew')
        cameras[f'cam{name}'] = camera if not size else {**camera, 'resolution': size} if None in raw.values() else BySize([
            {**camera, 'resolution': size},
            {'resolution': whole, 'camera_matrix': raw['K'], 'dist_coeffs': raw['D'], **_place_of_kitti(numbers, name)}])
        before = offset
    return cameras


def _place_of_kitti(numbers: Mapping[str, list[float]], name: str) -> dict[str, Any]:
    """The pose of a raw camera in camera 0, whose points R and T move into it; empty without them."""
    rotation, translation = (numbers.get(f'{key}_0{name}', []) for key in 'RT')
    if (len(rotation), len(translation)) != (9, 3):
        return {}
    turn = np.reshape(rotation, (3, 3))
    return {'T_rig_cam': np.column_stack([turn.T, -turn.T @ translation]).tolist()}


def _of_kapture(text: str) -> dict[str, Any]:
    """The cameras of sensors.txt by their ids, with COLMAP's models; empty for kapture's other files."""
    rows = [[word.strip() for word in line.split(',')] for line in _values_in(text)]
    cameras = {row[0]: colmap.cameras_of(' '.join(['0', *row[3:]])).get('cam0') for row in rows if row[2:3] == ['camera']}
    known = {name: camera for name, camera in cameras.items() if camera is not None}
    if cameras and not known:
        raise ValueError(f'none of its cameras has intrinsics: {", ".join(list(cameras)[:4])}; calibrate them')
    return known if len(known) != 1 else next(iter(known.values()))


def _of_middlebury(text: str, matrices: Mapping[str, str]) -> dict[str, Any]:
    """A rectified pair; its baseline is in millimetres."""
    values = {name: float(number) for name, number in re.findall(rf'^(\w+)\s*=\s*({_NUMBER})\s*$', text, re.MULTILINE)}
    cameras: dict[str, Any] = {}
    for name in sorted(matrices):
        step = [[1, 0, 0, -values['baseline'] / 1000], [0, 1, 0, 0], [0, 0, 1, 0]] if 'baseline' in values else None
        cameras[f'cam{name}'] = {
            'camera_matrix': [float(word) for word in matrices[name].replace(';', ' ').split()], 'distortion_model': 'none',
            **{side: values[side] for side in ('width', 'height') if side in values},
            **({'T_cn_cnm1': step} if cameras and step is not None else {})}
    return cameras


def _of_metashape_project(text: str) -> dict[str, Any]:
    """The cameras that Metashape exports with their poses: of each sensor the calibration that was adjusted to the images."""
    cameras = {}
    for number, sensor in enumerate(re.findall(r'<sensor .*?</sensor>', text, re.DOTALL)):
        found = {attributes.get('class', ''): (attributes, inner) for words, inner in re.findall(
            r'<calibration ([^>]*)>(.*?)</calibration>', sensor, re.DOTALL)
            for attributes in [dict(re.findall(r'(\w+)="([^"]*)"', words))]}
        if 'adjusted' not in found:
            raise ValueError(f'its sensor {number} has no calibration of the class "adjusted": align the photos, and export anew')
        attributes, inner = found['adjusted']
        size = ''.join(f'<{name}>{side}</{name}>' for name, side in re.findall(r'(width|height)="(\d+)"', inner))
        cameras[f'cam{number}'] = _of_metashape(f'<projection>{attributes.get("type")}</projection>{size}{inner}')
    return cameras


def _of_metashape(text: str) -> dict[str, Any]:
    """A frame camera (Metashape's manual, appendix D): cx and cy from the middle of the image, p1 and p2 in the other order.

    Pixels are counted from the corner of the first one. k4 is a coefficient that OpenCV does not have.
    """
    values = dict(re.findall(r'<(\w+)>\s*([^<>]*?)\s*</\1>', text))
    if values.get('projection') != 'frame' or 'f' not in values:
        raise ValueError(f'projection {values.get("projection")}, f {values.get("f")}: only "frame" with f is read, of Metashape '
                         'and of PhotoScan since 1.3; export the calibration as OpenCV XML')
    number = {name: float(values.get(name) or 0) for name in ('width', 'height', 'f', 'b1', 'cx', 'cy', 'p1', 'p2')}
    return {'width': values.get('width'), 'height': values.get('height'), 'fx': number['f'] + number['b1'], 'fy': number['f'],
            'cx': number['width'] / 2 + number['cx'] - 0.5, 'cy': number['height'] / 2 + number['cy'] - 0.5,
            'p1': number['p2'], 'p2': number['p1'], 'skew_b2': values.get('b2', 0), 'radial_k4': values.get('k4', 0),
            **{name: values.get(name, 0) for name in ('k1', 'k2', 'k3', 'p3', 'p4')}}


def _of_numbers(text: str) -> dict[str, Any]:
    """K of a text of numbers, with or without the name of a lens before them; empty for another text.

    That is a 3x3, 3x4 or 4x4 matrix, as ScanNet and many scripts have it, also with a baseline after it (FoundationStereo), a line
    or column of focal lengths, middle and coefficients, or the line of DSO and 4Seasons, lens fx fy cx cy and coefficients, with
    a line width height after it. Several lines are KITTI's projections without their names. A line fx fy cx cy and
    the 4x4 matrix of its axes are of Oxford RobotCar's models/*.txt, for images that its SDK has undistorted. Two numbers in
    each of six lines are InfiniTAM's: size, focal lengths and middle of its color camera, and of its depth camera.
    """
    lines = [line.replace(',', ' ').split() for line in _values_in(text)]
    lens, lines = (lines[0][0], [lines[0][1:], *lines[1:]]) if len(lines) > 1 and lines[0][0].lower() in _DSO else ('', lines)
    if not lens and len(lines) > 2 and len(lines[1]) == 2:  # those of LSD-SLAM and of TUM's monocular set do not name it
        lens = {5: 'fov', 8: 'radtan'}.get(len(lines[0]), '')
    with suppress(ValueError):
        if lens:
            width, height = map(int, lines[1])
            numbers = [float(word) for word in lines[0]]
            is_ideal = lens == 'fov' and numbers[4:] == [0]
            return _of_dso('none' if is_ideal else _DSO[lens.lower()], numbers, [width, height]) if len(numbers) >= 4 else {}
        if len(lines) > 1 and all(len(line) == 12 and list(map(float, line[8:11])) == [0, 0, 1] for line in lines):
            return _of_kitti('', {str(number): ' '.join(line) for number, line in enumerate(lines)})
        if list(map(len, lines[:6])) == [2] * 6:
            return {name: {'resolution': list(map(int, size)), 'intrinsics': list(map(float, focals + middle))}
                    for name, (size, focals, middle) in (('color', lines[:3]), ('depth', lines[3:6]))}
        if list(map(len, lines)) == [4] * 5 and list(map(float, lines[4])) == [0, 0, 0, 1]:
            return {**_of_line(list(map(float, lines[0]))), 'remark': 'of undistorted images, by the SDK of RobotCar'}
        values = np.array([float(word) for line in lines for word in line])
        if len(lines) in (1, len(values)) and len(values) in (4, 6, 8, 9, 12) and (found := _of_line(values.tolist())):
            return found
        baseline = {'baseline_m': float(values[9])} if len(values) == 10 and len(lines[-1]) == 1 else {}
        values = values[:9] if baseline else values
        k = values.reshape({9: (3, 3), 16: (4, 4)}.get(len(values), (3, 4)))[:3, :3]
        if (k[2] == [0, 0, 1]).all() and not k[1, 0] and min(k[0, 0], k[1, 1]) > 1:
            return {'camera_matrix': k.ravel().tolist(), **baseline}
    return {}


def _of_line(values: list[float]) -> dict[str, Any]:
    """fx fy cx cy and OpenCV's coefficients, as of DROID-SLAM and of event cameras; or with the size at one end.

    Of six numbers, as of ARKitScenes (width height first) and ElasticFusion (last), the size is at the end where the principal
    point comes near its middle. Empty for other numbers.
    """
    size: list[float] = []
    if len(values) == 6:
        ends = [(values[:2], values[2:]), (values[4:], values[:4])]
        fitting = [end for end in ends if all(side > 0 == side % 1 and abs(middle / side - 0.5) < 0.2
                                              for side, middle in zip(end[0], end[1][2:], strict=True))]
        if len(fitting) != 1:
            return {}
        size, values = fitting[0]
    (fx, fy, cx, cy), d = values[:4], values[4:]
    if not (min(fx, fy) > 10 and 0.75 < fx / fy < 1.34 and min(cx, cy) > 1):
        return {}
    return {**dict(zip(('width', 'height'), size, strict=False)), 'fx': fx, 'fy': fy, 'cx': cx, 'cy': cy,
            **({'dist': d} if d else {})}


def _of_dso(lens: str, values: list[float], size: list[int]) -> dict[str, Any]:
    """With Kalibr's keys."""
    d = values[4:]
    return {'cam0': {'camera_model': 'pinhole', 'resolution': size, 'intrinsics': in_pixels(values[:4], size),
                     'distortion_model': lens, 'distortion_coeffs': d if lens != 'none' or any(d) else []}}


def in_pixels(focals: list[float], size: list[int]) -> list[float]:
    """fx, fy, cx, cy of numbers relative to width and height, as PTAM and DSO have them; pixels as they are."""
    fx, fy, cx, cy = (value * side for value, side in zip(focals, size * 2, strict=True))
    return [fx, fy, cx - 0.5, cy - 0.5] if max(focals) < 10 else focals
