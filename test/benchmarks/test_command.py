"""The command `python -m benchmarks`: what it refuses, and a bag of several cameras."""

from __future__ import annotations

import pytest
from support.image_recordings import bag_of_two_cameras

from benchmarks.__main__ import MEASUREMENTS, main
from lightglue_trt_eval.cli.benchmark import OF_A_CHECKOUT
from lightglue_trt_ros.datasets.sequence import RIGHT_TOPIC

pytestmark = pytest.mark.networks

SMALL = ('--height', '64', '--width', '80', '--max-keypoints', '32', '--backend', 'onnxruntime')


@pytest.mark.parametrize('words', [
    ('depth',), ('sweep', '--sizes', '64', '--keypoints', '32', '--precisions', 'fp32', '--frames', '3')])
def test_one_camera_of_several_in_a_bag(tmp_path, capsys, words):
    asked = [*words, '--data', str(bag_of_two_cameras(tmp_path / 'bag')), *SMALL,
             *(('--out', str(tmp_path / 'out')) if words[0] == 'sweep' else ())]
    assert main(asked) == 1
    assert 'holds 2 image topics, choose one (--image-topic)' in capsys.readouterr().err
    if words[0] == 'depth':  # which needs engines of one stage beside these
        return
    assert main([*asked, '--image-topic', RIGHT_TOPIC]) == 0


def test_benchmark_names_every_measurement_of_a_checkout():
    assert set(OF_A_CHECKOUT) == set(MEASUREMENTS)


@pytest.mark.parametrize(('words', 'message'), [
    ([], 'required: NAME'), (['nothing'], "invalid choice: 'nothing'"), (['sweep', '--frames', '2'], 'at least 3')])
def test_wrong_words_are_refused(words, message, usage_error):
    assert message in usage_error(main, *words)


@pytest.mark.parametrize(('name', 'message'), [
    ('homographies', 'oxford_affine is not there'), ('odometry', 'holds no stereo recording'),
    ('turns', 'name a folder of images'), ('layers', 'does not exist'), ('structure', 'does not exist')])
def test_data_that_is_not_there_is_named_in_one_line(name, message, tmp_path, capsys):
    assert main([name, '--data', str(tmp_path / 'nowhere')]) == 1
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count('\n') == 1
