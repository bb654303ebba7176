"""What a camera adds to all its images alike is subtracted, and only where an image has it."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from lightglue_trt_ros.core.fixed_pattern import GONE, SETTLED_AT, FixedPattern

SIZE = 120, 160


def worlds(rng, count, contrast=10.0):
    """What a moving camera sees in the dark: textures, float32."""
    for _ in range(count):
        texture = cv2.GaussianBlur(rng.normal(0, 1, SIZE).astype(np.float32), (0, 0), 2)
        yield 90 + contrast * texture / texture.std()


def fixed(rng, deviation=6.0):
    return rng.normal(0, deviation, SIZE) + rng.normal(0, deviation / 2, (1, SIZE[1]))


def dots(rng, gain=60.0):
    pattern = np.zeros(SIZE, np.float32)
    pattern[rng.integers(3, SIZE[0] - 3, 150), rng.integers(3, SIZE[1] - 3, 150)] = 1
    return gain * cv2.dilate(pattern, np.ones((3, 3)))


def shown(world, pattern, rng):
    return np.clip(world + pattern + rng.normal(0, 2, SIZE), 0, 255).astype(np.uint8)


def detail(image):
    image = image.astype(np.float32)
    return image - cv2.GaussianBlur(image, (0, 0), 4)


@pytest.mark.parametrize('made', [fixed, dots])
def test_pattern_that_is_in_all_images_is_subtracted(made):
    rng = np.random.default_rng(0)
    pattern, learned = made(rng), FixedPattern()
    for world in worlds(rng, 20):
        learned.add(shown(world, pattern, rng))
    for world in worlds(rng, 3):
        image = shown(world, pattern, rng)
        before, after = (np.abs(detail(each) - detail(world)).mean() for each in (image, learned.corrected(image)))
        assert after < 0.5 * before


def test_what_the_pattern_adds_to_patches_of_more_contrast_is_subtracted():
    rng = np.random.default_rng(6)
    pattern, learned = fixed(rng), FixedPattern()
    for number, world in enumerate(worlds(rng, 60)):
        world[:, (40 * number) % 160:][:, :60] = 90  # a wall, here and there
        learned.add(shown(world, pattern, rng))
    image = shown(next(worlds(rng, 1)), pattern, rng)
    subtracted = image.astype(np.float32) - learned.corrected(image)
    added, left = (detail(cv2.GaussianBlur(each, (0, 0), 3)).std() for each in (pattern.astype(np.float32), pattern - subtracted))
    assert left < 0.48 * added


def test_images_without_pattern_stay_the_same_object():
    rng, learned = np.random.default_rng(1), FixedPattern()
    for world in worlds(rng, 20):
        image = shown(world, 0.0, rng)
        assert learned.corrected(image) is image
        learned.add(image)


def test_what_scenes_happen_to_repeat_is_left():
    rng = np.random.default_rng(7)
    pattern, learned = dots(rng), FixedPattern()
    for world in worlds(rng, SETTLED_AT[1]):
        learned.add(shown(world, pattern, rng))
    image = shown(next(worlds(rng, 1)), pattern, rng)
    changed = np.abs(image.astype(np.float32) - learned.corrected(image))[cv2.dilate(pattern, np.ones((15, 15))) == 0]
    assert changed.mean() < 0.5


def test_image_that_lacks_the_pattern_stays_as_it_is_and_teaches_nothing():
    """As those between the flashes of a projector."""
    rng = np.random.default_rng(2)
    pattern, learned = dots(rng), FixedPattern()
    for world in worlds(rng, 10):
        learned.add(shown(world, pattern, rng))
    for world in worlds(rng, GONE):
        image = shown(world, 0.0, rng)
        assert learned.corrected(image) is image
        learned.add(image)
    image = shown(next(worlds(rng, 1)), pattern, rng)
    assert learned.corrected(image) is not image


def test_pattern_that_is_gone_is_forgotten_and_another_is_learned():
    rng = np.random.default_rng(3)
    first, second, learned = dots(rng), dots(rng), FixedPattern()
    for pattern in (first, second):
        for world in worlds(rng, GONE + 10):
            learned.add(shown(world, pattern, rng))
    image = shown(next(worlds(rng, 1)), first, rng)
    assert learned.corrected(image) is image
    image = shown(next(worlds(rng, 1)), second, rng)
    assert learned.corrected(image) is not image


def test_nothing_is_subtracted_before_some_images_or_after_another_size():
    rng = np.random.default_rng(4)
    pattern, learned = fixed(rng), FixedPattern()
    for number, world in enumerate(worlds(rng, SETTLED_AT[0] + 2)):
        image = shown(world, pattern, rng)
        assert (learned.corrected(image) is image) == (number < SETTLED_AT[0])
        learned.add(image)
    half = np.ascontiguousarray(image[::2, ::2])
    assert learned.corrected(half) is half
    learned.add(half)
    assert learned.corrected(image) is image


def test_saturated_pixels_do_not_wrap():
    rng = np.random.default_rng(5)
    pattern, learned = dots(rng, 200.0), FixedPattern()
    for world in worlds(rng, 12):
        learned.add(shown(world, pattern, rng))
    dark = np.where(pattern > 0, 30, 0).astype(np.uint8)
    dark[pattern > 0] = 255
    corrected = learned.corrected(dark)
    assert corrected[dark == 0].max() < 60
    assert corrected is not dark
