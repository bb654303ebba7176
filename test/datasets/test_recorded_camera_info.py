"""Which CameraInfo of a bag is taken for its images, with what changes, and the lines about those that are not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip('rosbags', reason='bags need the Python package rosbags')

from support.camera_info_bags import HEIGHT, WIDTH, ZERO, Images, Info, K, camera_bag, gray
from support.image_recordings import pinhole

from lightglue_trt_eval.options import EvaluationOptions
from lightglue_trt_eval.predict.recorded_scene import open_scene
from lightglue_trt_ros.core.cameras import Intrinsics, distortion_model
from lightglue_trt_ros.datasets.calibration_files import load_intrinsics
from lightglue_trt_ros.datasets.recordings import open_recording
from lightglue_trt_ros.datasets.stereo_and_depth import stereo_recording
from lightglue_trt_ros.utils.errors import BagError

OTHER = np.array([[120.0, 0, 40], [0, 120, 30], [0, 0, 1]])
RATIONAL = (-7.1, 1.2, 0.001, -0.002, 8.3, -7.2, 1.6, 8.1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def recorded(path: Path, topics: dict[str, Any], topic: str | None = None) -> tuple[Intrinsics | None, str]:
    recording = open_recording(camera_bag(path / 'bag', topics), topic)
    return recording.intrinsics, recording.calibration_note


def scene_of(path: Path, options: EvaluationOptions) -> tuple[dict[str, Any], list[str]]:
    notes: list[str] = []
    return open_scene(options.open(path), options, notes.append)[1], notes


def test_another_cameras_info_is_left_out_with_a_note(tmp_path: Path) -> None:
    topics = {'/camera/color/image_raw': Images(frame_id='camera_color_optical_frame'),
              '/camera/depth/camera_info': [Info(OTHER, frame_id='camera_depth_optical_frame')] * 3}
    camera, note = recorded(tmp_path, topics)
    assert camera is None
    for word in ('/camera/depth/camera_info', 'camera_depth_optical_frame', 'camera_color_optical_frame'):
        assert word in note
    assert open_recording(tmp_path / 'bag').camera_info is None, 'it is not played as if it were of these images'
    facts, notes = scene_of(tmp_path / 'bag', EvaluationOptions())
    assert (facts['camera'], facts['calibration_source']) == (None, None)
    assert any(note in line and '; give --camera' in line for line in notes)


@pytest.mark.parametrize(('images', 'info'), [
    ('/camera_optical_frame', 'camera_optical_frame'), ('camera_color_optical_frame', 'camera_color_frame'),
    ('cam_link', 'cam'), ('robot1/cam', 'cam'), ('', 'cam'), ('cam', '')])
def test_the_only_info_is_taken_where_frame_ids_agree_by_convention(tmp_path: Path, images: str, info: str) -> None:
    camera, note = recorded(tmp_path, {'/left/image_raw': Images(frame_id=images), '/driver/camera_info': [Info(frame_id=info)]})
    assert camera is not None
    assert (camera.k[0, 0], camera.source, note) == (80, 'CameraInfo on /driver/camera_info', '')


def test_p_is_the_other_view_of_images_that_are_raw_by_their_name(tmp_path: Path) -> None:
    info, options = Info(d=(-0.3, 0.1, 0.0, 0.0, 0.0), p=np.hstack([OTHER, np.zeros((3, 1))])), EvaluationOptions()
    path = camera_bag(tmp_path / 'bag', {'/left/image_raw': Images(), '/left/camera_info': [info]})
    scene = open_scene(options.open(path), options, [].append)[0]
    assert scene.intrinsics is not None
    assert scene.other_view is not None
    assert (scene.intrinsics.k[0, 0], scene.other_view.k.tolist(), scene.other_view.d.any()) == (80, OTHER.tolist(), False)


@pytest.mark.parametrize(('scale', 'is_told'), [(1.0, False), (1.5, True)])
def test_k_of_images_that_were_resized_since_is_told(tmp_path: Path, scale: float, is_told: bool) -> None:
    resized = np.diag([scale, scale, 1]) @ K
    camera, note = recorded(tmp_path, {'/left/image_raw': Images(), '/left/camera_info': [Info(resized)]})
    assert camera is not None
    assert camera.k[0, 0] == resized[0, 0]
    assert ('times as large as its 96x72: give that of these' in note) == ('(--camera)' in note) == is_told


@pytest.mark.parametrize(('focal', 'd', 'model', 'is_told'), [
    (30.0, (-0.003, 0.037, -0.036, 0.006, 0.0), 'plumb_bob', True), (30.0, (-0.003, 0.037, -0.036, 0.006, 0.1), 'plumb_bob', False),
    (30.0, (-0.003, 0.037, -0.036, 0.006), 'equidistant', False), (30.0, (-0.3, 0.1, 0.001, 0.002, 0.0), 'plumb_bob', False),
    (80.0, (-0.003, 0.037, -0.036, 0.006, 0.0), 'plumb_bob', False)])
def test_plumb_bob_that_may_be_a_fisheye_is_told(tmp_path: Path, focal: float, d: tuple[float, ...], model: str,
                                                 is_told: bool) -> None:
    """RealSense's driver called that of its T265 plumb_bob."""
    k = np.array([[focal, 0, 47.5], [0, focal, 35.5], [0, 0, 1]])
    camera, note = recorded(tmp_path, {'/left/image_raw': Images(), '/left/camera_info': [Info(k, d, model=model)]})
    assert camera is not None
    assert ('may be that of a fisheye' in note) == is_told
    path = tmp_path / 'c.yaml'
    path.write_text(f'width: 96\nheight: 72\nK: {k.tolist()}\nD: {list(d)}\ndistortion_model: {model}\n')
    assert ('may be that of a fisheye' in load_intrinsics(path).source) == is_told


@pytest.mark.parametrize(('topic', 'd', 'is_told'), [
    ('/left/image_undistorted', (-0.3, 0.1, 0.0, 0.0, 0.0), True), ('/left/undistorted/image', (-0.3, 0.1, 0.0, 0.0, 0.0), True),
    ('/left/image_undistorted', (0.0,) * 5, False), ('/left/image_raw', (-0.3, 0.1, 0.0, 0.0, 0.0), False)])
def test_distortion_of_images_that_are_called_undistorted_is_told(tmp_path: Path, topic: str, d: tuple[float, ...],
                                                                  is_told: bool) -> None:
    note = recorded(tmp_path, {topic: Images(), '/left/camera_info': [Info(d=d)]})[1]
    assert ('is undistorted by its name, and D of' in note) == is_told


def test_camera_info_with_another_frame_id_is_used_and_noted(tmp_path: Path) -> None:
    camera, note = recorded(tmp_path, {'/left/image_raw': Images(frame_id='left'), '/left/camera_info': [Info(frame_id='right')]})
    assert camera is not None
    assert "frame_id is 'right', that of /left/image_raw is 'left'" in note
    facts, notes = scene_of(tmp_path / 'bag', EvaluationOptions())
    assert facts['calibration_source'] == 'CameraInfo on /left/camera_info'
    assert f'{note}; --camera replaces it' in notes


def test_infos_of_other_topics_are_listed(tmp_path: Path) -> None:
    camera, note = recorded(tmp_path, {'/left/image_raw': Images(), '/a/camera_info': [Info()], '/b/camera_info': [Info()]})
    assert camera is None
    assert 'CameraInfo on /a/camera_info, /b/camera_info' in note
    assert '/left/camera_info' in note


@pytest.mark.parametrize('images', ['/cam1/image_raw/rectified', '/cam1/left/rect/image', 'cam1/image/raw/compressed'])
def test_of_several_infos_the_nearest_above_is_taken_with_a_note(tmp_path: Path, images: str) -> None:
    others = {'/cam2/camera_info': [Info(OTHER, frame_id='cam2')], '/camera_info': [Info(OTHER, frame_id='cam1')]}
    name = images[:images.index('cam1')] + 'cam1/camera_info'
    camera, note = recorded(tmp_path, {images: Images(frame_id='cam1'), name: [Info(frame_id='cam1')], **others})
    assert camera is not None
    assert (camera.k[0, 0], note) == (80, f'CameraInfo on {name} is the nearest above {images}, and used')
    camera, note = recorded(tmp_path / 'b', {images: Images(frame_id='cam1'), name: [Info(frame_id='cam3')], **others})
    assert camera is None
    assert "its frame_id is 'cam3'" in note


def test_an_info_of_rectified_images_is_not_taken_for_raw_ones(tmp_path: Path) -> None:
    camera, note = recorded(tmp_path, {'/left/image_raw': Images(), '/left/camera_info_rect': [Info()]})
    assert camera is None
    assert '/left/camera_info_rect' in note


@pytest.mark.parametrize('topic', ['/rectified/left/image', '/left/image_rect', '/left/image_rect_raw', '/zed/color/rect/image',
                                   '/rectified/image_raw'])
def test_of_rectified_images_p_counts_where_k_is_the_identity(tmp_path: Path, topic: str) -> None:
    info = Info(np.eye(3), p=np.column_stack([K, [-8.0, 0, 0]]))
    camera, _ = recorded(tmp_path, {topic: Images(), topic.rpartition('/')[0] + '/camera_info': [info]})
    assert camera is not None
    assert (camera.k.tolist(), camera.shift_m) == (K.tolist(), 0.1)


def test_of_rectified_images_k_counts_where_p_is_the_identity_or_zero(tmp_path: Path) -> None:
    for name, p in (('identity', np.eye(3, 4)), ('zero', np.zeros((3, 4)))):
        camera, _ = recorded(tmp_path / name, {'/left/image_rect': Images(), '/left/camera_info': [Info(p=p)]})
        assert camera is not None
        assert camera.k.tolist() == K.tolist()
        with pytest.raises(BagError, match=r'left/camera_info: P of the CameraInfo .* /left/image_rect are rectified'):
            recorded(tmp_path / f'{name}_bent', {'/left/image_rect': Images(), '/left/camera_info': [Info(d=(0.1,) * 5, p=p)]})


def test_the_identity_is_refused_as_not_calibrated(tmp_path: Path) -> None:
    info = Info(np.eye(3), p=np.column_stack([K, np.zeros(3)]))
    with pytest.raises(BagError, match=r'/left/camera_info: K .* not calibrated; its P is, .* /left/image_raw does not say rect'):
        recorded(tmp_path, {'/left/image_raw': Images(), '/left/camera_info': [info]})
    _, notes = scene_of(tmp_path / 'bag', EvaluationOptions())
    assert any('not calibrated' in line for line in notes)


def test_isaacs_camera_info_rect_is_that_of_image_rect(tmp_path: Path) -> None:
    topics = {'/left/image_rect': Images(), '/left/camera_info': [Info(OTHER, d=(0.1,) * 5)], '/left/camera_info_rect': [Info()],
              '/left/image_raw': Images()}
    camera, _ = recorded(tmp_path, topics, '/left/image_rect')
    assert camera is not None
    assert (camera.k.tolist(), camera.source) == (K.tolist(), 'CameraInfo on /left/camera_info_rect, its P')
    raw = open_recording(tmp_path / 'bag', '/left/image_raw').intrinsics
    assert raw is not None
    assert (raw.k.tolist(), raw.source) == (OTHER.tolist(), 'CameraInfo on /left/camera_info')


def test_the_first_usable_message_counts(tmp_path: Path) -> None:
    topics = {'/camera/image_raw': Images(), '/camera/camera_info': [ZERO, ZERO, Info(), Info(OTHER)]}
    camera, note = recorded(tmp_path, topics)
    assert camera is not None
    assert camera.k.tolist() == K.tolist()
    assert note.startswith('message 3 of /camera/camera_info is the first usable CameraInfo: ')
    with pytest.raises(BagError, match=r'/camera/camera_info: .* not calibrated'):
        recorded(tmp_path / 'zeros', {'/camera/image_raw': Images(), '/camera/camera_info': [ZERO] * 3})
    assert open_recording(tmp_path / 'zeros' / 'bag').camera_info is not None, 'play_bag plays what was recorded'


def test_an_info_of_the_images_size_counts_before_others(tmp_path: Path) -> None:
    """A driver that starts in another mode sends the calibration of that first."""
    large = Info(OTHER, width=2 * WIDTH, height=2 * HEIGHT)
    camera, note = recorded(tmp_path, {'/camera/image_raw': Images(), '/camera/camera_info': [large, large, Info()]})
    assert camera is not None
    assert camera.k.tolist() == K.tolist()
    assert 'message 3 of /camera/camera_info is the first usable CameraInfo: those before are of another size' in note
    camera, _ = recorded(tmp_path / 'large', {'/camera/image_raw': Images(), '/camera/camera_info': [large] * 3})
    assert camera is not None
    assert camera.width == 2 * WIDTH, 'check_size tells the sizes'


@pytest.mark.parametrize('count', [8, 14])
def test_oaks_info_without_p_and_r_is_that_of_raw_images(tmp_path: Path, count: int) -> None:
    info = Info(d=RATIONAL[:count], p=np.zeros((3, 4)), r=np.zeros((3, 3)), model='rational_polynomial')
    camera, note = recorded(tmp_path, {'/oak/rgb/image_raw': Images(), '/oak/rgb/camera_info': [info]})
    assert camera is not None
    assert (distortion_model(camera), camera.k.tolist(), note) == ('rational_polynomial', K.tolist(), '')


@pytest.mark.parametrize(('images', 'info'), [
    ('image_raw', 'camera_info'), ('image_raw', '/camera_info'), ('left/image_raw', 'left/camera_info'),
    ('/camera/image_raw/compressed', '/camera/camera_info')])
def test_the_own_info_is_found_without_slash_and_of_transports(tmp_path: Path, images: str, info: str) -> None:
    topics = {images: Images(png='compressed' in images), info: [Info()], '/other/camera_info': [Info(OTHER)]}
    camera, note = recorded(tmp_path, topics)
    assert camera is not None
    assert (camera.k[0, 0], camera.source, note) == (80, f'CameraInfo on {info}', '')


@pytest.mark.parametrize('images', ['/zed/rgb/color/rect/image', '/left/image_color/compressed', 'image_raw'])
def test_camera_info_below_its_images_is_found_among_others(tmp_path: Path, images: str) -> None:
    below = images.removesuffix('/compressed') + '/camera_info'
    topics = {images: Images(png='compressed' in images), below: [Info()], '/depth/camera_info': [Info(OTHER)]}
    camera, note = recorded(tmp_path, topics)
    assert camera is not None
    assert camera.k[0, 0] == 80
    assert camera.source.startswith(f'CameraInfo on {below}')
    assert note == ''


@pytest.mark.parametrize(('model', 'expected'), [
    ('Inverse Brown Conrady', None), ('None', None), ('Brown Conrady', 'plumb_bob'), ('Kannala Brandt4', 'equidistant')])
def test_recording_of_realsenses_viewer_has_its_camera(tmp_path: Path, model: str, expected: str | None) -> None:
    device, depth = '/device_0/sensor_1/Color_0', '/device_0/sensor_0/Depth_0'
    d = (0.1, -0.2, 0.001, 0, 0) if expected else (0.0,) * 5  # KB4's fifth is a zero
    bag = camera_bag(tmp_path / 'bag', {
        f'{device}/image/data': Images(frame_id='0'), f'{device}/info/camera_info': [Info(d=d, model=model, frame_id='')],
        f'{depth}/image/data': Images([gray(0).astype(np.uint16)] * 3, frame_id='0'),
        f'{depth}/info/camera_info': [Info(K * [[2], [2], [1]], model=model, frame_id='')]})
    recording = open_recording(bag)
    assert recording.image_topic == f'{device}/image/data'
    camera = recording.intrinsics
    assert camera is not None
    assert np.array_equal(camera.k, K)
    assert distortion_model(camera) == expected
    assert recording.calibration_note == ''


@pytest.mark.parametrize('png', [False, True])
def test_binning_gives_the_camera_of_the_images(tmp_path: Path, png: bool) -> None:
    small = Images([gray(number, HEIGHT // 2, WIDTH // 2) for number in range(3)], png=png)
    topic = '/camera/image_raw' + '/compressed' * png
    camera, _ = recorded(tmp_path, {topic: small, '/camera/camera_info': [Info(binning=(2, 2))]})
    assert camera is not None
    assert (camera.width, camera.height, camera.k[0, 0], *camera.k[:2, 2]) == (48, 36, 40, 23.5, 17.5)
    assert camera.source == 'CameraInfo on /camera/camera_info, with its binning and ROI'


def test_binning_that_does_not_give_the_images_size_is_named(tmp_path: Path) -> None:
    small = Images([gray(0, 20, 30)])
    with pytest.raises(BagError, match='96x72 pixels, with binning_x 2, binning_y 3, roi 40x60 at x_offset 8, y_offset 4: '
                                       'that gives 20x20 pixels, the images have 30x20'):
        recorded(tmp_path, {'/camera/image_raw': small, '/camera/camera_info': [Info(binning=(2, 3), roi=(8, 4, 60, 40))]})


def test_a_right_camera_without_its_own_info_is_told_with_the_reason(tmp_path: Path) -> None:
    topics = {'/left/image_raw': Images(frame_id='left'), '/left/camera_info': [Info(frame_id='left')],
              '/right/image_raw': Images(frame_id='right')}
    left = open_recording(camera_bag(tmp_path / 'bag', topics), '/left/image_raw')
    with pytest.raises(BagError, match=r"no calibration for /right/image_raw.*CameraInfo on /left/camera_info.*'left'"):
        stereo_recording(left, '/right/image_raw')


def test_a_camera_file_replaces_a_doubtful_info(tmp_path: Path) -> None:
    calib = tmp_path / 'calib.yaml'
    calib.write_text(pinhole(WIDTH, HEIGHT, 99))
    bag = camera_bag(tmp_path / 'bag', {'/left/image_raw': Images(frame_id='left'), '/left/camera_info': [Info(frame_id='right')]})
    facts, notes = scene_of(bag, EvaluationOptions(camera=calib))
    assert str(calib) in facts['calibration_source']
    assert not any('frame_id' in line for line in notes)


@pytest.mark.parametrize(('images', 'focal'), [
    ('/zed/left/image_raw_color', 120), ('/zed/left/image_raw_color/compressed', 120), ('/zed/left/image_rect_color', 80)])
def test_camera_info_raw_counts_for_images_that_are_not_rectified(tmp_path: Path, images: str, focal: int) -> None:
    topics = {images: Images(png=images.endswith('compressed')), '/zed/left/camera_info': [Info()],
              '/zed/left/camera_info_raw': [Info(OTHER, (-0.2, 0.1, 0.0, 0.0, 0.0))]}
    camera, _ = recorded(tmp_path, topics)
    assert camera is not None
    assert (camera.k[0, 0], camera.d.any()) == (focal, focal == 120)


@pytest.mark.parametrize(('later', 'words'), [
    (Info(OTHER), 'the first is message 3: 96x72 pixels, fx 120.0, cx 40.0'),
    (Info(width=48, height=36, k=K / [[2, 1, 2], [1, 2, 2], [1, 1, 1]]), 'message 3: 48x36 pixels, fx 40.0'),
    (Info(d=(-0.3, 0.1, 0.0, 0.0, 0.0)), 'D [-0.3, 0.1')])
def test_a_camera_info_that_changes_in_the_recording_is_noted(tmp_path: Path, later: Info, words: str) -> None:
    infos = [Info(), Info(), later, later, replace(later, frame_id='other')]
    camera_bag(tmp_path / 'bag', {'/cam/image_raw': Images(), '/cam/camera_info': infos})
    facts, notes = scene_of(tmp_path / 'bag', EvaluationOptions())
    line, = (line for line in notes if 'changes' in line)
    assert '96x72 pixels, fx 80.0, cx 47.5 are used for all images; others: 1,' in line
    assert words in line
    assert facts['camera'].endswith('fx 80.0, fy 80.0')
    assert not any('changes' in line for line in scene_of(tmp_path / 'bag', EvaluationOptions(max_frames=2))[1]), 'of these frames'


def test_a_camera_info_that_trembles_or_is_of_others_is_no_change(tmp_path: Path) -> None:
    infos = [Info(), Info(K * 1.0001), Info(frame_id='rear', k=OTHER), ZERO, Info()]
    camera_bag(tmp_path / 'bag', {'/cam/image_raw': Images(), '/cam/camera_info': infos})
    assert open_recording(tmp_path / 'bag').calibration_change() == ''
