"""Images that a glance tells: panoramas, two views in one, and exposures that take turns."""

from __future__ import annotations

import numpy as np
import pytest
from support.networks import photo

from lightglue_trt_eval.images.layout import Layout, is_pair, is_panorama
from lightglue_trt_eval.images.moving_frames import Exposures


def test_panorama_is_told_by_edges_that_go_on() -> None:
    image = photo('coffee', 240, 480)
    around = np.hstack([image[:, ::2], image[:, ::-2]])
    assert is_panorama(around)
    assert is_panorama(np.roll(around, 100, axis=1))
    bordered = image.copy()
    bordered[:, :20] = bordered[:, -20:] = 0
    assert not any(is_panorama(each) for each in (image, bordered, around[:200], np.zeros((240, 480), np.uint8), image[:2, :4]))


def test_two_views_of_one_scene_are_told_from_one() -> None:
    wide = photo('coffee', 240, 340)
    left, right = wide[:, :320], wide[:, 12:332]
    assert is_pair(np.hstack([left, right]))
    assert is_pair(np.vstack([left, right]))
    layout = Layout()
    for image in [np.hstack([left, right])] * 60:
        layout.add(image)
    assert layout.doubts[0].startswith('50 of the first 50 images are two views of one scene')
    assert len(layout.doubts) == 1
    layout = Layout()
    for image in [np.hstack([left, right]), wide] * 2:
        layout.add(image)
    assert not layout.doubts, 'half are not most'
    assert not any(is_pair(each) for each in (wide, photo('coffee', 240, 480), photo('coffee', 480, 240),
                                              np.hstack([left, right[::-1]]), np.zeros((240, 640), np.uint8)))


@pytest.mark.parametrize(('gains', 'named'), [
    ((0.15, 0.6, 3.0), True), ((0.3, 1.0), True), ((0.6, 1.0), False), ((1.0,) * 11 + (0.2,), False)])
def test_exposures_that_take_turns_are_named(gains: tuple[float, ...], named: bool) -> None:
    exposures, image = Exposures(), photo('coffee', 120, 160)
    for number in range(24):
        exposures.add(np.clip(image * gains[number % len(gains)], 0, 255).astype(np.uint8))
    assert exposures.doubt.startswith('23 of 24 frames are more than twice as bright or dark as the frame before' * named)
    assert bool(exposures.doubt) == named
