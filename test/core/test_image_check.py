"""Images without texture, and one picture under new stamps."""

from __future__ import annotations

import timeit

import numpy as np
import pytest

from lightglue_trt_ros.core.image_check import JUDGED, NEEDED, RECENT, STRIDE, ImageCheck, same_pixels

RNG = np.random.default_rng(0)
SCENE = np.kron(RNG.integers(60, 200, (15, 20)), np.ones((32, 32))).astype(np.uint8)


def noisy(image: np.ndarray, sigma: float) -> np.ndarray:
    return np.clip(image + RNG.normal(0, sigma, image.shape), 0, 255).astype(np.uint8)


def checked(images: list[np.ndarray], matches: int, period_s: float = 0.1) -> ImageCheck:
    check = ImageCheck()
    for number, image in enumerate(images):
        check.add(image, 10 + number * period_s)
        check.matched(matches)
    return check


@pytest.mark.parametrize(('gray', 'sigma'), [(0, 0), (0, 3), (255, 0), (128, 5)])
def test_uniform_images_have_no_texture_with_noise(gray, sigma):
    images = [noisy(np.full((480, 640), gray), sigma) for _ in range(JUDGED)]
    untextured = checked(images, matches=2).untextured
    assert untextured is not None
    assert untextured == (pytest.approx(images[-1].mean()), 2)
    assert checked(images, matches=4).untextured is None
    assert checked(images[1:], matches=0).untextured is None


def test_a_scene_without_matches_has_texture():
    assert checked([SCENE] * JUDGED, matches=0).untextured is None
    assert checked([(SCENE // 20).astype(np.uint8)] * JUDGED, matches=0).untextured is None


def test_few_matches_are_the_median_of_ten_frames():
    assert checked([SCENE] * (RECENT - 1), 3).few_matches is None
    assert checked([SCENE] * RECENT, NEEDED).few_matches is None
    check = checked([SCENE] * RECENT, 3)
    check.matched(100)
    assert check.few_matches == 3


@pytest.mark.parametrize('shape', [(1, 1), (1, 9), (7, 3)])
def test_tiny_uniform_images_have_no_texture(shape):
    assert checked([np.zeros(shape, np.uint8)] * JUDGED, matches=0).untextured is not None


def test_one_picture_is_reported_from_a_second_on():
    assert checked([SCENE.copy() for _ in range(10)], 50).repeated_s == 0
    assert checked([SCENE.copy() for _ in range(21)], 50).repeated_s == pytest.approx(2.0)


def test_noise_of_a_standing_camera_is_no_repeated_picture():
    assert checked([noisy(SCENE, 0.6) for _ in range(30)], 50).repeated_s == 0


def test_one_pixel_makes_another_picture():
    other = SCENE.copy()
    other[STRIDE + 1, STRIDE + 1] ^= 1
    assert not same_pixels(SCENE, other)
    assert checked([SCENE] * 20 + [other], 50).repeated_s == 0


def test_another_size_is_another_picture():
    assert not same_pixels(SCENE, SCENE[:, :-1])


def test_time_that_goes_back_begins_the_picture_anew():
    check = checked([SCENE] * 30, 50)
    check.add(SCENE, 5.0)
    assert check.repeated_s == 0
    check.add(SCENE, 6.5)
    assert check.repeated_s == pytest.approx(1.5)


def test_a_moving_camera_costs_a_subsample_only():
    images = [noisy(SCENE, 3) for _ in range(2)]
    whole = min(timeit.repeat(lambda: np.array_equal(*images), number=50, repeat=5))
    assert min(timeit.repeat(lambda: same_pixels(*images), number=50, repeat=5)) < whole


@pytest.mark.parametrize(('frame_ids', 'cameras'), [
    (['left', 'right'] * 3, ['left', 'right']), (['rig/left_optical', 'left', ''] * 3, []), (['left'] * 5 + ['right'] * 5, [])])
def test_cameras_that_send_in_turns_are_named_by_their_frame_ids(frame_ids, cameras):
    check = ImageCheck()
    for number, frame_id in enumerate(frame_ids):
        check.add(SCENE, number, frame_id)
    assert check.cameras == cameras
