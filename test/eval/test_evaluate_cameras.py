"""evaluate_bag --cameras: the cameras of one bag, each as if it were alone, side by side in the end."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from support.image_recordings import image_folder
from support.schemas import violations

pytest.importorskip('rosbags', reason='bags need the Python package rosbags')

from support.evaluated_bags import (
    CAMERA,
    HEIGHT,
    PERIOD,
    SMALL,
    START,
    WIDTH,
    figures,
    launched,
    no_pictures,
    path_of,
    report_of,
    view,
)

from lightglue_trt_eval.cli.evaluate_bag import main
from lightglue_trt_ros.datasets.bag_writer import write_bag

pytestmark = pytest.mark.slow

BIG = dataclasses.replace(CAMERA, width=2 * WIDTH, height=2 * HEIGHT,
                          k=np.array([[220.0, 0, 128], [0, 220.0, 96], [0, 0, 1]]))
BOTH = ('--cameras', 'camera,camera_right')


def two_cameras(path: Path, count: int = 6, **second: Any) -> Path:
    """A bag of two cameras: the second one is larger, has fewer frames and another calibration."""
    def frames(number: int, height: int, width: int) -> list[tuple[int, np.ndarray]]:
        return [(START + PERIOD * k, view(k, height, width)) for k in range(number)]

    right = {'frames': frames(count - 1, 2 * HEIGHT, 2 * WIDTH), 'intrinsics': BIG, **second}
    write_bag(path, frames(count, HEIGHT, WIDTH), CAMERA, path_of(count), right=(right['frames'], right['intrinsics']))
    return path


@pytest.fixture
def run(tmp_path: Path, capfd: pytest.CaptureFixture[str], null: None) -> Callable[..., tuple[int, str, Path]]:
    """Runs the command: exit code, all that it printed, and where its reports are."""
    def evaluate(*arguments: str | Path, out: str = 'out') -> tuple[int, str, Path]:
        with no_pictures():
            code = main([*map(str, arguments), '--out', str(tmp_path / out), *SMALL])
        captured = capfd.readouterr()
        assert 'Traceback' not in captured.err
        return code, captured.out + captured.err, tmp_path / out

    return evaluate


def test_each_camera_is_evaluated_as_if_it_were_alone(run: Any, tmp_path: Path) -> None:
    bag = two_cameras(tmp_path / 'bag')
    code, text, out = run(bag, *BOTH, '--baselines', 'klt')
    assert code == 0, text
    together = report_of(out)
    assert list(together['cameras']) == ['camera', 'camera_right']
    assert violations('report', together) == violations('report', report_of(out / 'camera')) == []
    for name, size, frames in (('camera', (WIDTH, HEIGHT), 6), ('camera_right', (2 * WIDTH, 2 * HEIGHT), 5)):
        assert run(bag, '--image-topic', f'/{name}/image_raw', '--baselines', 'klt', out=name)[0] == 0
        alone, own = report_of(tmp_path / name), report_of(out / name)
        assert figures(own) == figures(alone), 'its own reference, calibration and truth'
        assert (own['recording']['width'], own['recording']['height']) == size
        assert own['recording']['frames'] == frames
        assert own['recording']['camera'] == alone['recording']['camera'], 'of the CameraInfo beside its images'
        kept = together['cameras'][name]
        assert [each['name'] for each in kept['matchers']] == ['ours', 'KLT']
        assert kept['matchers'][1]['summary']['2']['matches'] == own['matchers'][1]['summary']['2']['matches']
        assert kept['matchers'][1]['intervals']['1'].keys() == own['matchers'][1]['intervals']['1'].keys()
        assert (out / kept['report']).exists()
        page = (out / 'report.html').read_text()
        assert f'href="{name}/report.html"' in page
    assert 'ours, every camera by itself' in text
    assert "the same poses are taken as each camera's own" in text, 'two cameras are not at one place'


def test_what_is_of_one_camera_has_its_name_in_it(run: Any, tmp_path: Path) -> None:
    bag = two_cameras(tmp_path / 'bag')
    for name, (height, width), columns in (('camera', (HEIGHT, WIDTH), 64), ('camera_right', (2 * HEIGHT, 2 * WIDTH), 64)):
        allowed = np.full((height, width), 255, np.uint8)
        allowed[:, :columns] = 0
        cv2.imwrite(str(tmp_path / f'{name}.png'), allowed)
    mounting = 'T_BS:\n  rows: 4\n  cols: 4\n  data: [1, 0, 0, {}, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]\n'
    for name, x in (('camera', 0), ('camera_right', 0.3)):
        (tmp_path / f'{name}.yaml').write_text(mounting.format(x))
    code, text, out = run(bag, *BOTH, '--image-topic', '/{camera}/image_raw', '--mask', tmp_path / '{camera}.png',
                          '--camera-in-body', tmp_path / '{camera}.yaml', '--fail-under', 'matches=64')
    assert code == 1, 'fewer keypoints are left for some matches, and a requirement holds for every camera'
    for name in ('camera', 'camera_right'):
        assert f'evaluate_bag: {name}: matches of ours is ' in text
    cameras = report_of(out)['cameras']
    assert cameras['camera']['recording']['mask'] == f'{tmp_path}/camera.png, 50.0 % of the image'
    assert cameras['camera_right']['recording']['mask'] == f'{tmp_path}/camera_right.png, 25.0 % of the image'
    assert "each camera's own" not in text
    assert not report_of(out / 'camera')['recording']['truth_as_camera']


def test_one_camera_that_fails_costs_the_others_nothing(run: Any, tmp_path: Path) -> None:
    bag = two_cameras(tmp_path / 'bag', frames=[(START, view(0))])
    code, text, out = run(bag, *BOTH)
    assert code == 1
    assert 'evaluate_bag: camera_right: ' in text
    assert 'matching takes two' in text
    cameras = report_of(out)['cameras']
    assert cameras['camera']['matchers'][0]['summary']['1']['matches'] == 64
    assert cameras['camera_right'] | {'matchers': [], 'report': None} == cameras['camera_right']
    assert 'matching takes two' in cameras['camera_right']['failures'][0]


def test_a_calibration_is_of_the_camera_beside_it(run: Any, tmp_path: Path) -> None:
    code, text, out = run(two_cameras(tmp_path / 'bag', intrinsics=None), *BOTH)
    assert code == 0, text
    notes = {name: found['notes'] for name, found in report_of(out)['cameras'].items()}
    assert any('no intrinsics in the recording' in note for note in notes['camera_right']), 'it does not take the other one\'s'
    assert not any('no intrinsics' in note for note in notes['camera'])


@pytest.mark.parametrize(('words', 'told'), [
    (('--cameras', 'camera,rear'), 'holds no images of a camera rear'),
    (('--cameras', 'camera,image_raw'), 'holds 2 image topics of a camera image_raw'),
    (('--cameras', 'front,rear', '--image-topic', '/{camera}/image_raw'), 'has no images on /front/image_raw'),
])
def test_topics_that_are_not_there_are_told_with_what_there_is(run: Any, tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    code, text, out = run(two_cameras(tmp_path / 'bag', 2), *words)
    assert code == 1
    assert told in text
    assert '/camera_right/image_raw (sensor_msgs/msg/Image, 1 messages)' in text
    assert not list(out.iterdir()), 'before any work'


def test_two_cameras_of_one_topic_are_refused(run: Any, tmp_path: Path) -> None:
    write_bag(tmp_path / 'bag', [(START, view(0)), (START + PERIOD, view(1))], image_topic='/rig/front/image_raw')
    code, text, _ = run(tmp_path / 'bag', '--cameras', 'rig,front')
    assert code == 1
    assert '/rig/front/image_raw is the topic of 2 of these cameras, rig among them' in text


def test_a_folder_has_one_camera(run: Any, tmp_path: Path) -> None:
    code, text, _ = run(image_folder(tmp_path / 'folder', [view(0)]), *BOTH)
    assert code == 1
    assert 'is a folder of images, of one camera' in text


@pytest.mark.parametrize(('words', 'told'), [
    (('--cameras', 'front,front'), "cameras has 'front' 2 times"), (('--cameras', 'front,'), "cameras has ''"),
    (('--cameras', '../front,rear'), "cameras has '../front'"),
    ((*BOTH, '--image-topic', '/camera/image_raw'), 'is one topic for 2 cameras: write {camera}'),
    ((*BOTH, '--stereo'), 'leave out --cameras')])
def test_wrong_usage(tmp_path: Path, usage_error: Callable[..., str], words: tuple[str, ...], told: str) -> None:
    assert told in usage_error(main, tmp_path, *words)


@pytest.mark.ros
@pytest.mark.networks
def test_live_a_camera_plays_into_a_node(tmp_path: Path) -> None:
    pytest.importorskip('rclpy', reason='rclpy is not installed: nothing is evaluated live')
    launched(tmp_path / 'out', two_cameras(tmp_path / 'bag'), *SMALL, '--cameras', 'camera_right', '--live',
             '--backend', 'onnxruntime', '--refinement', 'none')
    report = report_of(tmp_path / 'out' / 'camera_right')
    offline, live = report['matchers']
    assert live['name'] == 'ours live'
    assert any('5 frames sent' in note for note in report['notes'])
    assert set(live['pairs']['1']['frame']) <= set(offline['pairs']['1']['frame'])
