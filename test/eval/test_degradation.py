"""Frames in bad light: the same in every run, each with noise of its own, and as dim as is said."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from support.networks import photo

from lightglue_trt_eval.images.degradation import DEGRADATIONS, degraded
from lightglue_trt_eval.images.static_structure import STRUCTURES

LIGHT = [name for name in DEGRADATIONS if name not in STRUCTURES]


def test_noise_depends_on_seed_and_image_and_not_on_the_number():
    image = photo('coffee', 60, 80)
    rng = np.random.default_rng([3, zlib.crc32(image.data)])
    noise = rng.standard_normal(image.shape, np.float32) * np.float32(5)
    np.testing.assert_array_equal(degraded(image, 'dim', 3), np.clip(np.rint(np.float32(0.3) * image + noise), 0, 255))
    for name in LIGHT:
        np.testing.assert_array_equal(degraded(image, name), degraded(image, name, number=7, before=lambda: image))


@pytest.mark.parametrize('name', LIGHT)
def test_noise_of_a_frame_is_reproducible_and_unlike_other_frames(name):
    image = photo('coffee', 120, 160)
    found = degraded(image, name)
    assert (found.dtype, found.shape) == (np.uint8, image.shape)
    np.testing.assert_array_equal(found, degraded(image.copy(), name))
    assert not np.array_equal(found, degraded(image, name, seed=1))
    gray = np.full((120, 160), 128, np.uint8)
    one, other = (degraded(gray + np.uint8(more), name).astype(float) for more in (0, 1))
    assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.05
    assert one.std() > 1


@pytest.mark.parametrize(('name', 'light', 'contrast', 'noise'), [
    ('blur', 1.0, 1.0, 1.5), ('dim', 0.3, 0.3, 5.0), ('fog', 170 / 128, 0.25, 2.5), ('night', 0.44, 0.6, 12.0)])
def test_each_is_as_its_docstring_says(name, light, contrast, noise):
    half = np.full((200, 400), 98, np.uint8)
    half[:, 200:] = 158
    found = degraded(half, name).astype(float)
    left, right = found[:, :180], found[:, 220:]
    assert (left.mean() + right.mean()) / 2 / 128 == pytest.approx(light, rel=0.05)
    assert (right.mean() - left.mean()) / 60 == pytest.approx(contrast, rel=0.15)
    assert (left.std() + right.std()) / 2 == pytest.approx(noise, rel=0.15)
