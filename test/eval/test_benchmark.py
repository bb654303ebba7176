"""What `benchmark` measures on a recording of one's own."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.image_recordings import bag_of_two_cameras, folder_of_images

from lightglue_trt_eval.cli.benchmark import main
from lightglue_trt_eval.demo.flight import forth_and_back
from lightglue_trt_ros import __version__
from lightglue_trt_ros.datasets.sequence import RIGHT_TOPIC
from lightglue_trt_ros.utils.errors import BagError

pytestmark = pytest.mark.networks

SMALL = ('--height', '64', '--width', '80', '--max-keypoints', '32', '--backend', 'onnxruntime')


def numbers_of(count, wanted):
    images = (np.full((1, 1), number, np.uint8) for number in range(count))
    return [int(image[0, 0]) for image in forth_and_back(images, wanted)]


def test_a_recording_is_gone_through_forth_and_back():
    assert numbers_of(4, 10) == [0, 1, 2, 3, 2, 1, 0, 1, 2, 3]
    assert numbers_of(2, 5) == [0, 1, 0, 1, 0]
    assert numbers_of(9, 3) == [0, 1, 2], 'no more than are asked for'


@pytest.mark.parametrize('count', [0, 1])
def test_a_frame_alone_is_no_recording(count):
    with pytest.raises(BagError, match=f'the recording has {count} frames'):
        numbers_of(count, 5)


def test_stages_of_a_recording_s_own_frames(tmp_path, capsys):
    out = tmp_path / 'figures.json'
    assert main(['stages', 'caching', '--recording', str(folder_of_images(tmp_path / 'recording', 4)), '--frames', '9', *SMALL,
                 '--json', str(out)]) == 0
    assert 'Stages of a frame' in capsys.readouterr().out
    figures = json.loads(out.read_text())
    assert figures['version'].startswith(__version__)
    assert figures['command'].startswith('benchmark stages')
    assert figures['date']
    assert len(figures['stages']['stages']['frame']) == 9
    assert figures['caching']['cached_ms'] > 0


def test_benchmark_device_without_gpu_prints_only_predictions(tmp_path, capsys):
    out = tmp_path / 'figures.json'
    assert main(['device', *SMALL, '--json', str(out)]) == 0
    printed = capsys.readouterr().out
    assert 'Nothing was measured' in printed
    assert 'PREDICTION' in printed
    assert printed.count('PREDICTED') == 5, 'each board is marked'
    device = json.loads(out.read_text())['device']
    assert list(device) == ['prediction']
    prediction = device['prediction']
    assert prediction['measured_ms'] == {}, 'nobody has measured this shape'
    assert set(prediction['boards']) == {'Orin Nano Super', 'Orin NX 16 GB', 'AGX Orin 64 GB', 'RTX 4060', 'RTX 4090'}
    assert set(prediction['work']) == {'extract', 'match', 'place'}
    for stages in prediction['boards'].values():
        assert set(stages) == {'extract', 'match', 'place', 'together'}
        assert all(0 < each['bound_ms'] <= each['estimate_ms'] for each in stages.values())


def test_one_camera_of_several_in_a_bag(tmp_path, capsys):
    asked = ['stages', '--frames', '3', '--recording', str(bag_of_two_cameras(tmp_path / 'bag')), *SMALL]
    assert main(asked) == 1
    assert 'holds 2 image topics, choose one (--image-topic)' in capsys.readouterr().err
    assert main([*asked, '--image-topic', RIGHT_TOPIC]) == 0


def test_a_recording_that_is_not_there_is_told_in_a_line(tmp_path, capsys):
    assert main(['stages', '--recording', str(tmp_path / 'none'), *SMALL]) == 1
    told = capsys.readouterr().err
    assert str(tmp_path / 'none') in told
    assert told.count('\n') == 1


def test_options_of_a_part_that_does_not_run_are_refused(usage_error):
    for words in (('stages', '--node-frames', '50'), ('--cameras', '9'), ('node', '--hz', '5')):
        assert f'{words[-2]} is of ' in usage_error(main, *words)


def test_a_part_of_a_checkout_says_where_it_is_measured(usage_error):
    assert 'python -m benchmarks sweep' in usage_error(main, 'sweep')
