"""Scores of image pairs with known homographies."""

import cv2
import numpy as np
import pytest
from support.networks import moved, photo

from benchmarks.homographies import score_scenes
from lightglue_trt_eval.baselines import SiftMatcher
from lightglue_trt_ros.utils.errors import BagError


def test_homographies(tmp_path):
    image = photo('camera', 512, 512)
    view, homography = moved(image)
    scene = tmp_path / 'camera'
    scene.mkdir()
    for number, each in ((1, image), (2, view), (3, cv2.cvtColor(image, cv2.COLOR_GRAY2BGR))):
        cv2.imwrite(str(scene / f'img{number}.png'), each)
    np.savetxt(scene / 'H1to2p', homography)
    np.savetxt(scene / 'H1to3p', np.eye(3))
    scores = score_scenes(tmp_path, SiftMatcher(500).match, 'SIFT', scenes=['camera'])
    assert [score.pair for score in scores] == ['camera 1-2', 'camera 1-3']
    assert scores[0].within > 0.8
    assert scores[1].within > 0.98
    assert scores[0].as_dict()['within_3px'] == scores[0].within
    (scene / 'H1to3p').write_text('1 2 3')
    with pytest.raises(BagError, match='3 x 3'):
        score_scenes(tmp_path, SiftMatcher(500).match, 'SIFT', scenes=['camera'])
    with pytest.raises(BagError, match='img1'):
        score_scenes(tmp_path, SiftMatcher(500).match, 'SIFT', scenes=['nowhere'])
