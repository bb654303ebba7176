"""Scores of image pairs with known homographies."""

import cv2
import numpy as np
import pytest

from benchmarks.homographies import score_scenes
from lightglue_trt_eval.baselines import SiftMatcher
from lightglue_trt_ros.utils.errors import BagError

WARP = np.array([[0.92, 0.12, 20], [-0.1, 0.95, 45], [1e-4, -5e-5, 1]])


@pytest.fixture(scope='module')
def photographs():
    skimage_data = pytest.importorskip('skimage.data', reason='the photograph is one of scikit-image')
    image = skimage_data.camera()
    return image, cv2.warpPerspective(image, WARP, image.shape[::-1])


def test_homographies(photographs, tmp_path):
    scene = tmp_path / 'camera'
    scene.mkdir()
    for number, image in ((1, photographs[0]), (2, photographs[1]), (3, cv2.cvtColor(photographs[0], cv2.COLOR_GRAY2BGR))):
        cv2.imwrite(str(scene / f'img{number}.png'), image)
    np.savetxt(scene / 'H1to2p', WARP)
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
