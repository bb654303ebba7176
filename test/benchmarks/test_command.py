"""`python -m benchmarks` on a bag of several cameras."""

from __future__ import annotations

import pytest
from support.image_recordings import bag_of_two_cameras

from benchmarks.__main__ import main
from lightglue_trt_ros.datasets.sequence import RIGHT_TOPIC

pytestmark = pytest.mark.networks

SMALL = ('--height', '64', '--width', '80', '--max-keypoints', '32', '--backend', 'onnxruntime')


@pytest.mark.parametrize('words', [
    ('depth',), ('sweep', '--sizes', '64', '--keypoints', '32', '--precisions', 'fp32', '--frames', '3')])
def test_one_camera_of_several_in_a_bag(tmp_path, capsys, words):
    asked = [*words, '--data', str(bag_of_two_cameras(tmp_path / 'bag')), *SMALL, '--out', str(tmp_path / 'out')]
    assert main(asked) == 1
    assert 'holds 2 image topics, choose one (--image-topic)' in capsys.readouterr().err
    if words[0] == 'depth':  # which needs engines of one stage beside these
        return
    assert main([*asked, '--image-topic', RIGHT_TOPIC]) == 0
