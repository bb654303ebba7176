"""Coordinates: what a resize does to a point, measured on images."""

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightglue_trt_ros.core.geometry import (
    SMALLEST,
    epipolar_distances,
    fitting_size,
    resize_gray,
    resize_taps,
    sampled_model,
    to_original,
)


def blob(size, u, v, sigma):
    rows, columns = np.mgrid[:size[0], :size[1]]
    return (255 * np.exp(-((columns - u)**2 + (rows - v)**2) / (2 * sigma**2))).round().astype(np.uint8)


def centroid(image):
    rows, columns = np.mgrid[:image.shape[0], :image.shape[1]]
    weights = image.astype(np.float64)
    return np.array([(columns * weights).sum(), (rows * weights).sum()]) / weights.sum()


@pytest.mark.parametrize('engine', [(120, 160), (96, 200), (480, 640), (240, 328)])
def test_a_blob_found_in_the_resized_image_maps_back_to_where_it_is(engine):
    original = (240, 320)
    image = blob(original, 201.3, 97.8, 12.0)
    found = centroid(resize_gray(image, engine)).astype(np.float32)[None]
    np.testing.assert_allclose(to_original(found, engine, original)[0], centroid(image), atol=0.05)


def test_corners_of_the_image_map_to_corners():
    edges = np.array([[-0.5, -0.5], [319.5, 239.5]], np.float32)
    np.testing.assert_allclose(to_original(edges, (240, 320), (480, 960)), [[-0.5, -0.5], [959.5, 479.5]])


def test_an_image_of_the_right_size_is_not_copied():
    image = np.zeros((48, 64), np.uint8)
    assert resize_gray(image, (48, 64)) is image


def test_shrinking_averages_and_enlarging_interpolates():
    image = np.zeros((64, 64), np.uint8)
    image[::2] = 200
    assert np.all(resize_gray(image, (32, 32)) == 100)
    grown = resize_gray(image, (128, 128))
    np.testing.assert_array_equal(grown, cv2.resize(image, (128, 128), interpolation=cv2.INTER_LINEAR))


@given(st.integers(60, 4000), st.integers(60, 4000), st.integers(10_000, 1_000_000))
def test_a_fitting_size_keeps_aspect_and_area_in_multiples_of_8(height, width, area):
    fitted = fitting_size((height, width), area)
    assert all(side % 8 == 0 and side >= 16 for side in fitted)
    own = height * width
    expected = area if 2 * own >= area else min(area, max(own, SMALLEST))
    if min(fitted) >= 80:
        assert fitted[0] / fitted[1] == pytest.approx(height / width, rel=0.1)
        assert fitted[0] * fitted[1] == pytest.approx(expected, rel=0.12)


@pytest.mark.parametrize(('image', 'expected'), [
    ((480, 640), (480, 640)), ((960, 1280), (480, 640)), ((360, 540), (456, 680)), ((240, 320), (240, 320)),
    ((120, 160), (240, 320))])
def test_an_image_is_enlarged_a_little_or_where_it_is_tiny(image, expected):
    assert fitting_size(image) == expected


SIZES = [((480, 640), (480, 640)), ((960, 1280), (480, 640)), ((370, 1226), (480, 640)), ((720, 960), (480, 640)),
         ((240, 320), (480, 640)), ((360, 540), (480, 640)), ((480, 752), (480, 640)), ((1200, 1920), (480, 640)),
         ((481, 641), (480, 640)), ((100, 1000), (480, 640)), ((37, 50), (64, 48))]


@pytest.mark.parametrize(('source', 'target'), SIZES, ids=str)
def test_taps_resize_as_opencv_does(source, target):
    image = np.random.default_rng(0).integers(0, 256, source, np.uint8)
    down, right = resize_taps(source, target)
    assert len(down.first) == target[0]
    assert len(right.first) == target[1]
    lines = image.astype(np.float32)[:, right.first[:, None] + np.arange(right.weights.shape[1])]
    wide = (lines * right.weights).sum(axis=2)
    found = np.rint((wide[down.first[:, None] + np.arange(down.weights.shape[1])] * down.weights[:, :, None]).sum(axis=1))
    assert np.abs(found - resize_gray(image, target)).max() <= 1


def test_distances_to_epipolar_lines_have_a_side_and_none_at_the_epipole():
    """A camera that moves to the right: lines are the image's rows. One that moves forward: all lines meet in its middle."""
    points = np.array([[10, 20], [300, 40.5]], np.float32)
    distances, normals = epipolar_distances(points, points + np.float32([[7, 2], [-3, -1.5]]), [[0, 0, 0], [0, 0, -2], [0, 2, 0]])
    np.testing.assert_allclose(distances * np.sign(normals[1]), [2, -1.5], atol=1e-6)
    np.testing.assert_allclose(np.abs(normals), [[0, 0], [1, 1]], atol=1e-9)
    forward = np.array([[0, -1, 50], [1, 0, -100], [-50, 100, 0]])
    distances, normals = epipolar_distances([[100, 50], [130, 90]], [[101, 50], [160, 130]], forward)
    assert np.isnan(distances[0])
    assert np.isnan(normals[:, 0]).all()
    assert distances[1] == pytest.approx(0, abs=1e-9)


def test_where_opencv_fails_there_is_no_model():
    points = np.random.default_rng(0).uniform(0, 100, (40, 2))
    with pytest.raises(cv2.error):
        cv2.findHomography(points, points[:20], cv2.USAC_MAGSAC, 1.0)
    assert sampled_model(cv2.findHomography, points, points[:20], cv2.USAC_MAGSAC, 1.0) is None
    assert sampled_model(cv2.findHomography, points, points + 3, cv2.USAC_MAGSAC, 1.0).shape == (3, 3)
