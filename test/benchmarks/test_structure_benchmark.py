"""Pictures of the kinds of structure, and the rows of the table of their figures."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

pytest.importorskip('skimage', reason='scikit-image is not installed: no flight is rendered')

from benchmarks.__main__ import main
from benchmarks.static_structure import COLUMNS, METRIC, row_of
from lightglue_trt_eval.images.static_structure import STRUCTURES


@pytest.mark.slow
def test_the_sheet_has_a_picture_of_every_kind(tmp_path: Path) -> None:
    assert main(['structure', '--sheet', str(tmp_path / 'sheet.png')]) == 0
    sheet = cv2.imread(str(tmp_path / 'sheet.png'), cv2.IMREAD_GRAYSCALE)
    rows = -(-len(STRUCTURES) // COLUMNS)
    tiles = [tile for row in np.vsplit(sheet, rows) for tile in np.hsplit(row, COLUMNS)]
    assert all(tile.std() > 20 for tile in tiles[:len(STRUCTURES)])
    assert all(tile.min() == 255 for tile in tiles[len(STRUCTURES):])


def test_a_row_has_every_stride_and_a_dash_where_nothing_is_known() -> None:
    figures = {'ours': {1: 61.44, 4: 70.0}, 'KLT': {1: None, 4: 3.06}}
    assert row_of({'recording': 'hall', 'kind': 'dots', METRIC: figures}) == ['hall', 'dots', '61.4 / 70.0', '— / 3.1']
