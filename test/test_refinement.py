"""Finer positions: known warps of a photograph, and points that have nothing to go by."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from networks import moved, photo

from lightglue_trt_ros.refinement import LIMIT_PX
from lightglue_trt_ros.refinement import refine_matches as refine

WAYS = pytest.mark.parametrize('way', ['lucas_kanade', 'affine'])


def grid(shape, step=24, border=60):
    v, u = np.mgrid[border:shape[0] - border:step, border:shape[1] - border:step]
    return np.stack([u.ravel(), v.ravel()], 1).astype(np.float32)


def corners(image):
    """Points with something around them."""
    return cv2.goodFeaturesToTrack(image, 200, 0.02, 8).reshape(-1, 2)


def through(homography, points):
    mapped = np.column_stack([points, np.ones(len(points))]) @ homography.T
    return (mapped[:, :2] / mapped[:, 2:]).astype(np.float32)


@WAYS
@pytest.mark.parametrize(('angle', 'scale'), [(0, 1.0), (2, 1.0), (8, 0.93), (25, 0.85), (-90, 1.0)])
def test_points_go_where_the_image_has_gone(way, angle, scale):
    image = photo('coffee', 480, 640)
    view, homography = moved(image, angle, scale)
    points = corners(image)
    truth = through(homography, points)
    inside = ((truth > 20) & (truth < [619, 459])).all(axis=1)
    points, truth = points[inside], truth[inside]
    seen = (truth + np.random.default_rng(0).normal(0, 0.8, truth.shape)).astype(np.float32)
    found = refine(way, image, view, points, seen)
    before, after = np.linalg.norm(seen - truth, axis=1), np.linalg.norm(found - truth, axis=1)
    assert len(points) > 80
    assert np.median(before) > 0.7
    assert np.median(after) < 0.1
    assert np.mean(after < 0.5) > 0.9
    assert np.linalg.norm(found - seen, axis=1).max() < LIMIT_PX


@WAYS
def test_points_on_nothing_stay(way):
    blank = np.full((120, 160), 90, np.uint8)
    points = grid(blank.shape, 20, 30)
    np.testing.assert_array_equal(refine(way, blank, blank, points, points + np.float32(1.5)), points + np.float32(1.5))


@WAYS
def test_points_of_another_place_stay(way):
    """What is not found nearby is no finer position of this point."""
    image, other = photo('coffee', 480, 640), photo('astronaut', 480, 640)
    points = corners(image)
    found = refine(way, image, other, points, points)
    steps = np.linalg.norm(found - points, axis=1)
    assert steps.max() < LIMIT_PX
    assert ((found >= 0) & (found <= [639, 479])).all()


@WAYS
def test_points_at_the_border_stay_inside(way):
    image = photo('coffee', 480, 640)
    points = np.array([[0, 0], [639, 479], [0, 479], [320, 0], [-3, 5], [700, 20]], np.float32)
    found = refine(way, image, np.roll(image, -2, axis=1), points, points)
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found[4:], points[4:])


@WAYS
@pytest.mark.parametrize('count', [0, 1, 2])
def test_few_points(way, count):
    image = photo('coffee', 480, 640)
    points = corners(image)[:count]
    found = refine(way, image, image, points, points + np.float32(0.4))
    assert found.shape == (count, 2)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, points, atol=0.1)
