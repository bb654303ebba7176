"""Images whose rows are of two moments."""

from __future__ import annotations

import numpy as np
from support.networks import photo

from lightglue_trt_eval.images.interlacing import is_interlaced


def test_rows_of_two_moments_are_told_from_images_noise_and_mosaics() -> None:
    image = photo('coffee', 240, 320)
    combed = image.copy()
    combed[::2] = np.roll(image, 8, axis=1)[::2]
    mosaic = image.copy()
    mosaic[::2, ::2] //= 2
    assert is_interlaced(combed)
    noise = np.random.default_rng(0).integers(0, 255, (240, 320)).astype(np.uint8)
    assert not any(is_interlaced(each) for each in (image, noise, mosaic, np.zeros((240, 320), np.uint8), image[:2]))
