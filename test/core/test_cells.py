"""Parts of an image, for people."""

import numpy as np
import pytest

from lightglue_trt_ros.core.cells import per_cell, where

SIZE = (480, 640)


@pytest.mark.parametrize(('boxes', 'words'), [
    ([(0, 0, 640, 60), (0, 420, 640, 480)], 'at the edges'), ([(240, 160, 400, 320)], 'in the middle'),
    ([(0, 400, 640, 480)], 'at the bottom'), ([(0, 0, 640, 480)], 'in all parts')])
def test_place_of_what_stands_is_named(boxes, words):
    rng = np.random.default_rng(23)
    assert where(per_cell(np.concatenate([rng.uniform(box[:2], box[2:], (90, 2)) for box in boxes]), SIZE).astype(float)) == words
