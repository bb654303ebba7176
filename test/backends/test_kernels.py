"""The kernels that place points on a GPU, on the CPU: the resized image, the pyramid, and where the host puts points."""

from __future__ import annotations

import re
from collections.abc import Sequence

import cv2
import numpy as np
import pytest
from support.emulated_kernels import run
from support.networks import moved, photo

from lightglue_trt_eval.demo.flight import Flight
from lightglue_trt_ros.backends.cuda import KERNELS, LANES, THREADS, WARPS
from lightglue_trt_ros.backends.gpu_refinement import SOURCES_BYTES, settings_of
from lightglue_trt_ros.core.geometry import resize_gray, resize_taps, to_original
from lightglue_trt_ros.core.refinement import COARSE, FINE, UNREFINED_PX, Pyramid, Refined, refine_points
from lightglue_trt_ros.core.refinement.patches import SOURCES

ENGINE, COUNT = (240, 320), 512
# pixels, and shares of the variance: before OpenCV 5 cv2.remap rounds to 1/32 of a pixel
CLOSE, ALIKE = (0.005, 0.02) if int(cv2.__version__.partition('.')[0]) >= 5 else (0.05, 0.25)


def levels_of(image: np.ndarray, count: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """The resized image and the pyramid, by the kernels."""
    down, right = resize_taps(image.shape, ENGINE)
    resized, levels = np.zeros(ENGINE, np.uint8), [np.zeros(image.shape, np.float32)]
    run('resize', image, image.shape[1], *down, down.weights.shape[1], *right, right.weights.shape[1], resized, *ENGINE)
    run('widen', image, levels[0], image.size)
    while len(levels) < count:
        height, width = levels[-1].shape
        levels.append(np.zeros(((height + 1) // 2, (width + 1) // 2), np.float32))
        run('halve', levels[-2], height, width, levels[-1])
    return resized, levels


def place(levels: Sequence[list[np.ndarray]], points: np.ndarray, keypoints: np.ndarray, matches: np.ndarray,
          searched: np.ndarray | None = None) -> Refined:
    """By the kernels: points (K + C, 2) of the reference in its pixels, keypoints (K, 2) in the engine's, matches (K,).

    `levels` are the reference's and the current image's. Unmatched points are `searched` (K + C,), all of them without it.
    """
    (height, width), count, sources = levels[0][0].shape, len(matches), np.zeros(SOURCES_BYTES, np.uint8)
    settings = settings_of((height, width), ENGINE)
    images = (np.concatenate([level.ravel() for level in of_one]) for of_one in levels)
    found, covariances = (np.zeros((len(points), columns), np.float32) for columns in (2, 3))
    run('choose_sources', settings, points, keypoints, matches, count, sources)
    wanted = np.ones(len(points), np.uint8) if searched is None else searched.astype(np.uint8)
    run('refine', settings, sources, *images, height, width, len(levels[0]), points, wanted, len(points), keypoints, matches, count,
        found, covariances)
    a, b, d = covariances.T
    return Refined(found, np.stack([a, b, b, d], axis=1).reshape(-1, 2, 2))


def scene(name: str, size: tuple[int, int], angle: float, scale: float, matched: int):
    """A photograph and its view, K reference points, and K keypoints near where `matched` of them went, in another order."""
    rng = np.random.default_rng(len(name) + matched)
    image = photo(name, *size)
    view, homography = moved(image, angle, scale)
    unit = np.array(size[::-1]) / ENGINE[::-1]
    corners = cv2.goodFeaturesToTrack(image, COUNT, 0.001, 4).reshape(-1, 2)
    points = np.zeros((COUNT, 2), np.float32)
    points[:len(corners)] = corners
    there = np.column_stack([points, np.ones(len(points))]) @ homography.T
    there = there[:, :2] / there[:, 2:] + rng.normal(0, 0.6, points.shape) * unit
    inside = np.flatnonzero(np.all((there >= 0) & (there < np.array(size[::-1]) - 1), axis=1)[:len(corners)])
    rows = np.sort(rng.permutation(inside)[:matched])
    order = rng.permutation(COUNT)
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
    found = place(levels, points, keypoints, matches)
    refined = refine_points(pyramids[0], pyramids[1], points[[*rows, *lost]], to_original(keypoints, ENGINE, size)[matches[rows]])
    order = np.arange(len(rows) + len(lost))
    for where, there, share in ((rows, refined.take(order[:len(rows)]), 0.99), (lost, refined.take(order[len(rows):]), 0.97)):
        assert len(where)
        assert np.mean(np.linalg.norm(found.points[where] - there.points, axis=1) < CLOSE) >= share
        largest = np.trace(there.covariances, axis1=1, axis2=2)[:, None, None]
        assert np.mean((np.abs(found.covariances[where] - there.covariances) / largest).max(axis=(1, 2)) < ALIKE) >= share


def test_the_kernels_have_room_for_what_the_host_asks_of_them():
    """What a compiler must know stands in the source, too: patches' radius, sources, and the threads of a launch."""
    sources = (KERNELS / 'portable.h').read_text() + (KERNELS / 'refinement.cu').read_text()
    on_the_gpu = sources.replace('constexpr int LANES = 1, WARPS = 1, THREADS = 1;', '')  # as plain C++
    found = {name: int(value) for name, value in re.findall(r'\b(COARSE|FINE|SOURCES|LANES|WARPS|THREADS) = (\d+)[,;]', on_the_gpu)}
    assert found == {'COARSE': COARSE.radius, 'FINE': FINE.radius, 'SOURCES': SOURCES, 'LANES': LANES, 'WARPS': WARPS,
                     'THREADS': THREADS}


@pytest.mark.parametrize(('name', 'size', 'angle', 'scale', 'matched'), [
    ('coffee', (240, 320), 3, 1.02, 400), ('astronaut', (480, 512), -12, 0.9, 300), ('coffee', (370, 601), 0.5, 1.0, 500),
    ('brick', (240, 320), 1, 0.98, 40), ('coins', (400, 640), 5, 1.1, 250), ('coffee', (481, 900), 2, 1.0, 5),
    ('coffee', (120, 160), 3, 1.02, 150)])
def test_points_are_refined_as_on_the_host(name, size, angle, scale, matched):
    assert_agreement(*scene(name, size, angle, scale, matched))


def test_points_of_the_flight_are_refined_as_on_the_host():
    pytest.importorskip('skimage', reason='scikit-image is not installed: no flight')
    flight = Flight(height=480, width=640)
    pair = [flight.frame(number).image for number in (10, 11)]
    corners = [cv2.goodFeaturesToTrack(image, 512, 0.003, 5).reshape(-1, 2) for image in pair]
    moved_to, seen, _ = cv2.calcOpticalFlowPyrLK(*pair, corners[0], None)
    points, keypoints = np.zeros((2, COUNT, 2), np.float32)
    points[:len(corners[0])], keypoints[:len(corners[0])] = corners[0], (np.rint(moved_to) + 0.5) / 2 - 0.5
    matches = np.full(len(points), -1, np.int32)
    rows = np.flatnonzero(seen.ravel() == 1)
    matches[rows] = rows
    assert len(rows) > 200
    assert_agreement(pair, points, keypoints, matches)


def test_rows_without_a_match_say_nothing():
    pair, points, keypoints, matches = scene('coffee', (240, 320), 3, 1.02, 200)
    levels = [levels_of(image, 2)[1] for image in pair]
    first = place(levels, points, keypoints, matches)
    rows, others = np.flatnonzero(matches >= 0), np.flatnonzero(matches < 0)
    points[others] = np.random.default_rng(0).uniform(-1e4, 1e4, (len(others), 2))
    keypoints[np.setdiff1d(np.arange(len(points)), matches[rows])] = -1e4
    again = place(levels, points, keypoints, matches)
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one[rows], other[rows])


def test_rows_without_a_match_are_left_alone_where_they_are_not_searched():
    pair, points, keypoints, matches = scene('coffee', (240, 320), 3, 1.02, 200)
    levels = [levels_of(image, 2)[1] for image in pair]
    searched = np.random.default_rng(0).random(len(points)) < 0.5
    found, everything = place(levels, points, keypoints, matches, searched), place(levels, points, keypoints, matches)
    left = (matches < 0) & ~searched
    assert 0 < left.sum() < np.sum(matches < 0)
    for some, all_of_them in zip(found, everything, strict=True):
        np.testing.assert_array_equal(some[~left], all_of_them[~left])
        assert not some[left].any()


@pytest.mark.parametrize('matched', [0, 1, 2])
@pytest.mark.parametrize('gray', [0, 255])
def test_frames_without_texture_and_hardly_a_match_give_numbers(gray, matched):
    levels = levels_of(np.full((240, 320), gray, np.uint8), 2)[1]
    points = np.random.default_rng(0).uniform(0, 240, (COUNT, 2)).astype(np.float32)
    matches = np.full(len(points), -1, np.int32)
    matches[:matched] = np.arange(matched)
    found = place([levels, levels], points, points, matches)
    assert all(np.isfinite(values).all() for values in found)
    assert (np.linalg.eigvalsh(found.covariances[:matched]) > 1).all(), 'hardly known'


def test_a_row_that_is_not_finite_poisons_no_other():
    """A keypoint of a network that gives NaN: the mean of all matches was NaN with it, and with the mean every view."""
    pair, points, keypoints, matches = scene('coffee', (240, 320), 3, 1.02, 200)
    rows, levels = np.flatnonzero(matches >= 0), [levels_of(image, 2)[1] for image in pair]
    hostile, seen, fewer = points.copy(), keypoints.copy(), matches.copy()
    hostile[rows[::20]] = np.nan
    seen[matches[rows[7::20]]] = np.inf
    fewer[rows[::20]] = fewer[rows[7::20]] = -1
    left = np.flatnonzero(fewer >= 0)
    expected, found = place(levels, points, keypoints, fewer), place(levels, hostile, seen, matches)
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one[left], other[left])
        assert np.isfinite(other).all()


def test_ramps_without_noise_give_numbers_as_on_the_host():
    """Under a textured patch the way back goes on for ever, and squared it is more than a float holds."""
    v, u = np.mgrid[:480, :640].astype(np.float64)
    textured = np.clip(128 + 100 * np.sin(u * u / 90) * np.cos(v * v / 70), 0, 255).astype(np.uint8)
    points = np.random.default_rng(0).uniform(10, [629, 469], (COUNT, 2)).astype(np.float32)
    keypoints, matches = ((points + 0.5) / 2 - 0.5).astype(np.float32), np.arange(COUNT, dtype=np.int32)
    for shading in (u / 4, (u + 2 * v) / 8, u / 4 + np.sin(v / 50)):
        pair = textured, np.clip(shading, 0, 255).astype(np.uint8)
        found = place([levels_of(image, 3)[1] for image in pair], points, keypoints, matches)
        assert all(np.isfinite(values).all() for values in found)
        refined = refine_points(Pyramid(pair[0], 2.0), Pyramid(pair[1], 2.0), points, points)
        assert all(np.isfinite(values).all() for values in refined)


def test_a_black_frame_has_nothing_of_the_patches():
    (image, _), points, keypoints, matches = scene('coffee', (240, 320), 3, 1.02, 200)
    rows = matches >= 0
    found = place([levels_of(each, 2)[1] for each in (image, np.zeros_like(image))], points, keypoints, matches)
    np.testing.assert_allclose(found.points[np.flatnonzero(rows)], keypoints[matches[rows]], atol=1e-3)
    unknown = np.broadcast_to(UNREFINED_PX**2 * np.eye(2), (rows.sum(), 2, 2))
    np.testing.assert_allclose(found.covariances[np.flatnonzero(rows)], unknown, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize('size', [(240, 320), (480, 640), (370, 1226), (241, 323), (200, 300)], ids=str)
def test_the_camera_s_frame_is_resized_and_halved_as_opencv_does(size):
    image = cv2.GaussianBlur(np.random.default_rng(0).integers(0, 256, size, np.uint8), (3, 3), 0)
    resized, levels = levels_of(image, 3)
    assert resized.dtype == np.uint8
    assert np.abs(resized.astype(int) - resize_gray(image, ENGINE)).max() <= 1
    for level, expected in zip(levels, Pyramid(image, 2.0).levels, strict=True):
        np.testing.assert_allclose(level, expected, atol=1e-3)
