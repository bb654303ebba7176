"""The pattern that stands in the images of a moving camera: what is blocked, and what stays free."""

import cv2
import numpy as np

from lightglue_trt_ros.core.static_pixels import StaticPixels


def textures(rng, count):
    scene = cv2.GaussianBlur(rng.uniform(0, 255, (120, 400)).astype(np.float32), (0, 0), 1.5)
    scene = cv2.normalize(scene, None, 20, 235, cv2.NORM_MINMAX)
    return [scene[:, 7 * number:7 * number + 160].copy() for number in range(count)]


def with_pattern(images):
    """Dark text above, bright dots on the left, dimmer on darker ground."""
    dots = np.zeros((120, 160), np.float32)
    dots[10:110:10, 10:70:10] = 1
    dots = cv2.dilate(dots, np.ones((3, 3)))
    shown = []
    for image in images:
        image = image * (1 - dots) + dots * np.clip(60 + image, 0, 255)
        image[5:8, 100:150] = 3
        shown.append(np.clip(image, 0, 255).astype(np.uint8))
    return shown, dots > 0


def learned(images, motion_px=7.0):
    pattern = StaticPixels((120, 160))
    for image in images:
        pattern.add(image, motion_px)
    return pattern


def test_a_pattern_is_learned_from_few_images_and_the_world_stays_free():
    images, dots = with_pattern(textures(np.random.default_rng(9), 12))
    allowed = learned(images).allowed(None)
    assert allowed.dtype == np.uint8
    assert (allowed[dots] == 0).mean() > 0.9
    assert (allowed[6, 100:150] == 0).mean() > 0.9
    assert (allowed[60:, 90:] == 0).mean() < 0.1
    assert learned(images[:2]).allowed(None) is None


def test_a_pattern_that_is_gone_is_forgotten_also_after_a_long_time():
    worlds = textures(np.random.default_rng(10), 34)
    images, _ = with_pattern(worlds)
    pattern = learned(images[number % 34] for number in range(400))
    assert pattern.blocked > 0.05
    for number in range(100):  # of which every fifth counts
        pattern.add(worlds[number % 34].astype(np.uint8), 7.0)
    assert pattern.blocked < 0.03


def test_images_that_are_hardly_apart_teach_nothing():
    images, _ = with_pattern(textures(np.random.default_rng(11), 6))
    assert learned(images, motion_px=0.5).images == 0


def test_never_more_than_half_of_the_image_is_blocked():
    rng = np.random.default_rng(12)
    fixed = rng.normal(0, 12, (120, 160))
    images = [np.clip(image * 0.2 + 60 + fixed, 0, 255).astype(np.uint8) for image in textures(rng, 8)]
    pattern = learned(images)
    assert 0.05 < pattern.blocked <= StaticPixels.LARGEST


def test_a_mask_and_the_pattern_both_count_and_the_array_stays_the_same():
    images, dots = with_pattern(textures(np.random.default_rng(13), 8))
    pattern, mask = learned(images), np.full((120, 160), 255, np.uint8)
    mask[100:] = 0
    both = pattern.allowed(mask)
    assert not both[100:].any()
    assert (both[:100][dots[:100]] == 0).mean() > 0.9
    assert pattern.allowed(mask) is both
    assert pattern.allowed(None) is pattern.allowed(None)
    nothing = np.zeros((120, 160), np.uint8)
    nothing[11, 11] = 255  # a mask that leaves what the pattern blocks is used as it is
    assert pattern.allowed(nothing).any()
