"""Placement on the device, as ONNX Runtime computes its graphs: the resized image, the pyramid, and where the host puts points."""

from __future__ import annotations

from functools import cache

import cv2
import numpy as np
import onnx
import pytest
from networks import moved, photo, session

from lightglue_trt_ros.backends.placing import sizes_of
from lightglue_trt_ros.config import EngineSpec
from lightglue_trt_ros.demo.flight import Flight
from lightglue_trt_ros.engines.audit import read_types
from lightglue_trt_ros.geometry import resize_gray, resize_matrices, to_original
from lightglue_trt_ros.graphs.frames import frame, halve
from lightglue_trt_ros.graphs.placement import coarse, fine
from lightglue_trt_ros.graphs.precision import OPSET
from lightglue_trt_ros.placement import Placed, Pyramid, place_all

SPEC = EngineSpec(240, 320, 512)
ENGINE = SPEC.image_height, SPEC.image_width
WRITERS = frame, halve, coarse, fine
# pixels, and shares of the variance: before OpenCV 5 cv2.remap rounds to 1/32 of a pixel
CLOSE, ALIKE = (0.02, 0.03) if int(cv2.__version__.partition('.')[0]) >= 5 else (0.05, 0.25)


@cache
def graphs():
    return {write.__name__: session(write(SPEC)) for write in WRITERS}


def levels_of(image: np.ndarray, count: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """The resized image and the pyramid, by the graphs."""
    rows, columns = resize_matrices(image.shape, ENGINE)
    resized, level = graphs()['frame'].run(['resized', 'level'], {'image': image, 'rows': rows, 'columns': columns})
    levels = [level]
    while len(levels) < count:
        levels += graphs()['halve'].run(['half'], {'level': levels[-1]})
    return resized, levels


def place(reference: list[np.ndarray], current: list[np.ndarray], points: np.ndarray, keypoints: np.ndarray,
          matches: np.ndarray) -> Placed:
    """By the graphs: points (K + C, 2) of the reference in its pixels, keypoints (K, 2) in the engine's, matches (K,)."""
    size, more, kind = reference[0].shape, {'keypoints1': keypoints, 'matches0': matches}, 'coarse'
    points = np.concatenate([points, np.zeros((2 * SPEC.max_keypoints - len(points), 2), np.float32)])
    for depth in reversed(range(len(reference))):
        found = graphs()[kind].run(None, {'reference': reference[depth], 'current': current[depth], 'reference_points': points,
                                          'sizes': sizes_of(size, ENGINE, depth), **more})
        kind, more = 'fine', {'state': found[0]}
    a, b, d = found[2].T
    return Placed(found[1], np.stack([a, b, b, d], axis=1).reshape(-1, 2, 2))


def scene(name: str, size: tuple[int, int], angle: float, scale: float, matched: int):
    """A photograph and its view, K reference points, and K keypoints near where `matched` of them went, in another order."""
    rng = np.random.default_rng(len(name) + matched)
    image = photo(name, *size)
    view, homography = moved(image, angle, scale)
    unit = np.array(size[::-1]) / ENGINE[::-1]
    corners = cv2.goodFeaturesToTrack(image, SPEC.max_keypoints, 0.001, 4).reshape(-1, 2)
    points = np.zeros((SPEC.max_keypoints, 2), np.float32)
    points[:len(corners)] = corners
    there = np.column_stack([points, np.ones(len(points))]) @ homography.T
    there = there[:, :2] / there[:, 2:] + rng.normal(0, 0.6, points.shape) * unit
    inside = np.flatnonzero(np.all((there >= 0) & (there < np.array(size[::-1]) - 1), axis=1)[:len(corners)])
    rows = np.sort(rng.permutation(inside)[:matched])
    order = rng.permutation(SPEC.max_keypoints)
    matches = np.full(len(points), -1, np.int32)
    matches[rows] = order[rows]
    keypoints = np.zeros_like(points)
    keypoints[order[rows]] = (there[rows] + 0.5) / unit - 0.5
    return (image, view), points, keypoints.astype(np.float32), matches


def assert_agreement(pair, points, keypoints, matches) -> None:
    """Of matches, and of points that were not matched, some of them carried for a while."""
    size, rows = pair[0].shape, np.flatnonzero(matches >= 0)
    pyramids = [Pyramid(image, max(size[0] / ENGINE[0], size[1] / ENGINE[1])) for image in pair]
    levels = [levels_of(image, len(pyramids[0].levels))[1] for image in pair]
    carried = np.random.default_rng(0).uniform(40, np.array(size[::-1]) - 40, (100, 2)).astype(np.float32)
    points = np.concatenate([points, carried])
    lost = np.append(np.flatnonzero(np.any(points[:len(matches)] > 0, axis=1) & (matches < 0)), len(matches) + np.arange(100))
    found = place(*levels, points, keypoints, matches)
    expected = place_all(*pyramids, points[rows], to_original(keypoints, ENGINE, size)[matches[rows]], points[lost])
    for where, there, share in ((rows, expected[0], 0.99), (lost, expected[1], 0.97)):
        assert len(where)
        assert np.mean(np.linalg.norm(found.points[where] - there.points, axis=1) < CLOSE) >= share
        largest = np.trace(there.covariances, axis1=1, axis2=2)[:, None, None]
        assert np.mean((np.abs(found.covariances[where] - there.covariances) / largest).max(axis=(1, 2)) < ALIKE) >= share


@pytest.mark.parametrize(('name', 'size', 'angle', 'scale', 'matched'), [
    ('coffee', (240, 320), 3, 1.02, 400), ('astronaut', (480, 512), -12, 0.9, 300), ('coffee', (370, 601), 0.5, 1.0, 500),
    ('brick', (240, 320), 1, 0.98, 40), ('coins', (400, 640), 5, 1.1, 250), ('coffee', (481, 900), 2, 1.0, 5)])
def test_points_are_placed_where_the_host_places_them(name, size, angle, scale, matched):
    assert_agreement(*scene(name, size, angle, scale, matched))


def test_points_of_the_flight_are_placed_where_the_host_places_them():
    pytest.importorskip('skimage', reason='scikit-image is not installed: no flight')
    flight = Flight(height=480, width=640)
    pair = [flight.frame(number).image for number in (10, 11)]
    corners = [cv2.goodFeaturesToTrack(image, 512, 0.003, 5).reshape(-1, 2) for image in pair]
    moved_to, seen, _ = cv2.calcOpticalFlowPyrLK(*pair, corners[0], None)
    points, keypoints = np.zeros((2, SPEC.max_keypoints, 2), np.float32)
    points[:len(corners[0])], keypoints[:len(corners[0])] = corners[0], (np.rint(moved_to) + 0.5) / 2 - 0.5
    matches = np.full(len(points), -1, np.int32)
    rows = np.flatnonzero(seen.ravel() == 1)
    matches[rows] = rows
    assert len(rows) > 200
    assert_agreement(pair, points, keypoints, matches)


def test_rows_without_a_match_say_nothing():
    pair, points, keypoints, matches = scene('coffee', (240, 320), 3, 1.02, 200)
    levels = [levels_of(image, 2)[1] for image in pair]
    first = place(*levels, points, keypoints, matches)
    rows, others = np.flatnonzero(matches >= 0), np.flatnonzero(matches < 0)
    points[others] = np.random.default_rng(0).uniform(-1e4, 1e4, (len(others), 2))
    keypoints[np.setdiff1d(np.arange(len(points)), matches[rows])] = -1e4
    again = place(*levels, points, keypoints, matches)
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one[rows], other[rows])


@pytest.mark.parametrize('matched', [0, 1, 2])
@pytest.mark.parametrize('gray', [0, 255])
def test_frames_without_texture_and_hardly_a_match_give_numbers(gray, matched):
    levels = levels_of(np.full((240, 320), gray, np.uint8), 2)[1]
    points = np.random.default_rng(0).uniform(0, 240, (SPEC.max_keypoints, 2)).astype(np.float32)
    matches = np.full(len(points), -1, np.int32)
    matches[:matched] = np.arange(matched)
    found = place(levels, levels, points, points, matches)
    assert all(np.isfinite(values).all() for values in found)
    assert (np.linalg.eigvalsh(found.covariances[:matched]) > 1).all(), 'hardly known'


@pytest.mark.parametrize('size', [(240, 320), (480, 640), (370, 1226), (241, 323), (200, 300)], ids=str)
def test_the_camera_s_frame_is_resized_and_halved_as_opencv_does(size):
    image = cv2.GaussianBlur(np.random.default_rng(0).integers(0, 256, size, np.uint8), (3, 3), 0)
    resized, levels = levels_of(image, 3)
    assert resized.dtype == np.uint8
    assert np.abs(resized.astype(int) - resize_gray(image, ENGINE)).max() <= 1
    for level, expected in zip(levels, Pyramid(image, 2.0).levels, strict=True):
        np.testing.assert_allclose(level, expected, atol=1e-3)


def test_graphs_are_for_tensorrt_8_6():
    """Opset 17, no 64-bit floats, uint8 at the graph's edges alone."""
    for write in WRITERS:
        model = write(SPEC)
        assert {entry.domain or 'ai.onnx': entry.version for entry in model.opset_import}['ai.onnx'] == OPSET
        read_types(model.SerializeToString()).require('fp32')
        inner = onnx.shape_inference.infer_shapes(model).graph.value_info
        assert not {value.type.tensor_type.elem_type for value in inner} & {onnx.TensorProto.DOUBLE, onnx.TensorProto.UINT8}
