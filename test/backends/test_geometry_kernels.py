"""The kernels behind refinement, on the CPU: the correspondences of the host, by one thread and by a thread for each of a GPU's."""

from __future__ import annotations

import re
import sys
from typing import Any, NamedTuple

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cuda_threads import ThreadedCuda, array_of
from support.emulated_kernels import run

from lightglue_trt_ros.backends.cuda import KERNELS, DeviceInput
from lightglue_trt_ros.backends.gpu_geometry import BLOCK, FIT, GpuGeometry, device_lens, settings_of
from lightglue_trt_ros.core.cameras import Intrinsics, undistort
from lightglue_trt_ros.core.correspondences import Correspondences, Sought, correspond
from lightglue_trt_ros.core.geometry import to_original, unit_of
from lightglue_trt_ros.core.masks import Mask
from lightglue_trt_ros.core.refinement import Refined, variance_factor
from lightglue_trt_ros.core.types import Matches

ENGINE, COUNT = (240, 320), 256
LENSES = {  # model and coefficients
    'radtan': ('plumb_bob', [-0.28340811, 0.07395907, 0.00019359, 1.76187114e-05]),
    'rational': ('rational_polynomial', [0.52, -2.63, 0.0006, -0.0002, 1.52, 0.40, -2.45, 1.45]),
    'prism': ('rational_polynomial', [-0.28, 0.07, 0.0002, 0.001, 0.01, 0.1, 0.02, 0.001, 0.001, -0.002, 0.0013, 0.0005]),
    'tilted': ('rational_polynomial', [-0.28, 0.07, 0.0002, 0.001, 0.01, 0.1, 0.02, 0.001, 0.001, -0.002, 0.0013, 0.0005, 0.02,
                                       -0.03]),
    'folding': ('plumb_bob', [-0.45, 0.02, 0.0, 0.0]),
    'equidistant': ('equidistant', [0.0034823894, 0.0007150348, -0.0020532361, 0.00020293673])}


class OneThread(ThreadedCuda):
    """One thread of the CPU does what all threads of a launch do."""

    def launch(self, kernel: str, blocks: int, threads: tuple[int, int], *arguments: Any) -> None:
        run(kernel, *(each if isinstance(each, int) else array_of(each) for each in arguments))


class Pair(NamedTuple):
    """Two frames of `size`, as matching and refinement leave them; points are pixels of the frames, keypoints of the engine's."""

    size: tuple[int, int]
    points: np.ndarray  # (2 COUNT, 2) of the reference
    searched: np.ndarray  # (2 COUNT,)
    keypoints: np.ndarray  # (COUNT, 2)
    matches: np.ndarray  # (COUNT,)
    scores: np.ndarray  # (COUNT,)
    refined: np.ndarray  # (2 COUNT, 2)
    covariances: np.ndarray  # (2 COUNT, 3)
    camera: Intrinsics | None = None

    def by_host(self, mask: Mask | None, fit_limit: float) -> Correspondences:
        a, b, d = self.covariances.T
        refined = Refined(self.refined, np.stack([a, b, b, d], axis=1).reshape(-1, 2, 2))
        return correspond(Sought(self.points, self.searched, mask, fit_limit, self.camera), Matches(self.matches, self.scores, 9),
                          to_original(self.keypoints, ENGINE, self.size), self.size, unit_of(self.size, ENGINE),
                          lambda rows, points: refined.take(rows))

    def by_kernels(self, cuda: ThreadedCuda, mask: Mask | None, fit_limit: float) -> Correspondences | None:
        cuda.load_kernels('geometry')
        geometry, uploaded = GpuGeometry(cuda, COUNT), DeviceInput(cuda, self.size, np.uint8, 1)
        uploaded.set(None if mask is None else mask.resized(self.size))
        lens = device_lens(cuda)
        lens.set(None if self.camera is None else self.camera.lens.constants)
        geometry.enqueue(settings_of(self.size, ENGINE), lens.staged, uploaded.staged, self.points, self.searched.astype(np.uint8),
                         *self[3:8])
        return geometry.correspondences(fit_limit)


def pair(seed: int, size: tuple[int, int] = (480, 640), *, matched: int = 180, searched: int = 80, wrong: float = 0.1,
         noise_px: float = 0.3, motion: tuple[float, float, float] = (0.4, 0.05, 0.2), lens: str = '') -> Pair:
    """Points in space seen by a camera that moves; `wrong` of the matches, and of the points that are searched, are elsewhere."""
    rng = np.random.default_rng(seed)
    height, width = size
    focal, middle, unit = 0.8 * width, np.array([width, height]) / 2, max(1.0, unit_of(size, ENGINE))
    seen = rng.uniform(0, (width - 1, height - 1), (2 * COUNT, 2))
    camera = camera_of(lens, size) if lens else None
    straight = seen if camera is None else undistort(seen, camera)
    rays = np.column_stack([(straight - middle) / focal, np.ones(len(seen))]) * rng.uniform(2, 20, (len(seen), 1)) - motion
    sigmas = rng.uniform(0.05, 1.5, (len(seen), 2)) * unit * noise_px
    angles = rng.uniform(0, np.pi, len(seen))
    axes = np.stack([np.cos(angles), -np.sin(angles), np.sin(angles), np.cos(angles)], axis=1).reshape(-1, 2, 2)
    there = rays[:, :2] / rays[:, 2:] * focal + middle if camera is None else distorted(rays, camera)
    there = np.where(np.isfinite(there), there, seen + 5)  # beyond the model's fold
    there += np.einsum('nij,nj->ni', axes, rng.normal(0, sigmas))
    there += (rng.random(len(seen)) < wrong)[:, None] * rng.normal(0, 30, there.shape)
    covariances = np.einsum('nij,nj,nkj->nik', axes, sigmas**2, axes)
    rows, order = np.sort(rng.choice(COUNT, matched, replace=False)), rng.permutation(COUNT)
    matches = np.full(COUNT, -1, np.int32)
    matches[rows] = order[:matched]
    keypoints = rng.uniform(0, ENGINE[::-1], (COUNT, 2))
    keypoints[order[:matched]] = (there[rows] + rng.normal(0, 0.5, (matched, 2)) + 0.5) * ENGINE[1] / width - 0.5
    wanted = rng.choice(np.setdiff1d(np.arange(2 * COUNT), rows), searched, replace=False)
    near = rng.permutation(wanted)[:searched // 3]  # some are found at keypoints, some at each other
    keypoints[order[matched:][:len(near)]] = ((there[near] + rng.normal(0, unit, (len(near), 2)) + 0.5) * ENGINE[1] / width - 0.5)[
        :COUNT - matched]
    there[wanted[::7]] = there[wanted[:1]] + rng.normal(0, 2 * unit, (len(wanted[::7]), 2))
    is_searched = np.isin(np.arange(2 * COUNT), wanted)
    scores = np.where(matches >= 0, rng.uniform(0.1, 1, COUNT), 0)
    return Pair(size, *(np.ascontiguousarray(each, np.float32) if each.dtype == np.float64 else each for each in (
        seen, is_searched, keypoints, matches, scores, there, covariances.reshape(-1, 4)[:, [0, 1, 3]])), camera=camera)


def assert_same(found: Correspondences | None, expected: Correspondences) -> None:
    assert found is not None
    assert found.matched == expected.matched
    np.testing.assert_array_equal(found.rows, expected.rows)
    np.testing.assert_array_equal(found.next_rows, expected.next_rows)
    for name in ('reference_points', 'points', 'covariances', 'scores'):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-5, err_msg=name)
    assert (found.inliers, found.tested) == (expected.inliers, expected.tested)
    if expected.inliers:
        assert found.quantile == pytest.approx(expected.quantile, rel=2e-4)
        alike = variance_factor.ALIKE[0] + variance_factor.ALIKE[1] / expected.inliers**0.5  # log of a ratio that counts
        if min(found.second_quantile, expected.second_quantile) < np.exp(alike + 0.5) * expected.quantile:
            assert found.second_quantile == pytest.approx(expected.second_quantile, rel=0.02), 'of a matrix that nothing iterates'


def distorted(points: np.ndarray, camera: Intrinsics) -> np.ndarray:
    """Points (N, 3) before the camera as OpenCV sees them, pixels (N, 2)."""
    project = cv2.fisheye.projectPoints if camera.distortion_model == 'equidistant' else cv2.projectPoints
    return project(points[:, None], np.zeros(3), np.zeros(3), camera.k, camera.d)[0].reshape(-1, 2)


def camera_of(lens: str, size: tuple[int, int]) -> Intrinsics:
    model, d = LENSES[lens]
    k = np.array([[0.8 * size[1], 0, size[1] / 2], [0, 0.8 * size[1], size[0] / 2], [0, 0, 1]])
    return Intrinsics(size[1], size[0], k, model, np.array(d))


ALL = 1e9  # every fit is likely


def test_the_kernels_have_room_for_what_the_host_asks_of_them():
    source = (KERNELS / 'geometry.cu').read_text()
    assert int(re.search(r'SAMPLES = (\d+)', source)[1]) == variance_factor.SAMPLES
    assert int(re.search(r'BLOCK = (\d+)', source)[1]) == BLOCK >= variance_factor.SAMPLES
    assert FIT.itemsize % 8 == 0, 'what comes behind it is aligned'


@pytest.mark.parametrize(('size', 'matched', 'searched'), [
    ((240, 320), 180, 80), ((480, 640), 256, 60), ((370, 1226), 200, 90), ((480, 640), 31, 200), ((180, 240), 29, 50),
    ((240, 320), 1, 40), ((240, 320), 0, 40), ((240, 320), 100, 1)])
@pytest.mark.parametrize('seed', range(6))
def test_correspondences_are_those_of_the_host(size, matched, searched, seed):
    case = pair(seed, size, matched=matched, searched=searched)
    expected = case.by_host(None, ALL)
    assert_same(case.by_kernels(OneThread(), None, ALL), expected)
    if matched == 180:
        assert len(expected.rows) - matched > 10
        assert (expected.next_rows[matched:] < COUNT).any(), 'some go on at keypoints'
        assert (expected.next_rows[matched:] >= COUNT).any(), 'some as new rows'


@pytest.mark.parametrize('lens', LENSES)
@pytest.mark.parametrize('seed', range(3))
def test_correspondences_behind_a_lens_are_those_of_the_host(lens, seed):
    case = pair(seed, lens=lens, wrong=0.0)
    expected = case.by_host(None, ALL)
    assert_same(case.by_kernels(OneThread(), None, ALL), expected)
    assert_same(pair(seed, lens=lens).by_kernels(OneThread(), None, ALL), pair(seed, lens=lens).by_host(None, ALL))
    assert expected.inliers == (180 if lens != 'folding' else pytest.approx(150, abs=15)), 'its corners are unknown'
    flat = case._replace(camera=None).by_host(None, ALL)
    assert flat.quantile > (1.1 if lens == 'rational' else 2.5) * expected.quantile, 'which no pinhole explains'


@pytest.mark.parametrize('lens', LENSES)
def test_pixels_are_undistorted_as_on_the_host(lens):
    """Within 1e-3 px up to 75 degrees from the axis, and unknown in the same places but for the very edge of the model."""
    rng, cuda, size = np.random.default_rng(0), OneThread(), (480, 640)
    camera = camera_of(lens, size)
    pixels = rng.uniform(-200, (840, 680), (4000, 2)).astype(np.float32)
    pixels[:2] = [[np.nan, 3], [320, 240]]
    cuda.load_kernels('geometry')
    uploaded, points, again, slopes = device_lens(cuda), *(cuda.device((4000, width), np.float32) for width in (2, 2, 4))
    uploaded.set(camera.lens.constants)
    cuda.launch('straighten', 1, (1, 1), uploaded.staged, pixels, np.ones(4000, np.uint8), np.full(4000, -1, np.int32), pixels,
                2000, 4000, points, again, slopes)
    expected = camera.lens.undistorted(pixels)
    near = np.linalg.norm(expected.points - camera.k[:2, 2], axis=1) < 3.7 * camera.k[0, 0]
    assert np.mean(near) > (0.25 if lens == 'folding' else 0.6)
    np.testing.assert_allclose(points[near], expected.points[near], rtol=0, atol=1e-3)
    np.testing.assert_allclose(slopes.reshape(-1, 2, 2)[near], expected.jacobians[near], rtol=1e-3, atol=1e-4)
    assert np.mean(np.isfinite(points).all(axis=1) != np.isfinite(expected.points).all(axis=1)) < 1e-3


@pytest.mark.parametrize(('count', 'matched'), [(16, 16), (40, 35), (1000, 999), (3840, 3000)])
def test_frames_of_few_and_of_many_keypoints(count, matched, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], 'COUNT', count)
    case = pair(0, (1536, 2048), matched=matched, searched=count // 4)
    assert_same(case.by_kernels(OneThread(), None, ALL), case.by_host(None, ALL))


@pytest.mark.parametrize('seed', range(2))
def test_many_threads_find_what_one_finds(seed):
    case = pair(seed, searched=40)
    one, many = (case.by_kernels(cuda(), None, ALL) for cuda in (OneThread, ThreadedCuda))
    assert_same(many, one)


@given(st.integers(0, 2**32 - 1), st.integers(0, COUNT), st.integers(0, COUNT), st.sampled_from([0.0, 0.05, 0.2]),
       st.sampled_from([0.05, 0.3, 1.0]))
@settings(max_examples=60, deadline=None)
def test_correspondences_of_any_numbers_are_those_of_the_host(seed, matched, searched, wrong, noise_px):
    case = pair(seed, matched=matched, searched=searched, wrong=wrong, noise_px=noise_px)
    assert_same(case.by_kernels(OneThread(), None, ALL), case.by_host(None, ALL))


def test_points_in_masked_places_do_not_continue():
    case = pair(0)
    allowed = np.full(case.size, 255, np.uint8)
    allowed[:, :300] = 0
    for mask in (Mask(allowed), Mask(np.ascontiguousarray(allowed[::2, ::2]))):  # of the images' size, of the engine's
        found, expected = case.by_kernels(OneThread(), mask, ALL), case.by_host(mask, ALL)
        assert_same(found, expected)
        assert (expected.points[expected.matched:, 0] >= 299.5).all()
        assert 0 < len(expected.rows) < len(case.by_host(None, ALL).rows)


def test_the_mask_of_each_frame_holds():
    case, cuda = pair(0), OneThread()
    cuda.load_kernels('geometry')
    geometry, uploaded = GpuGeometry(cuda, COUNT), DeviceInput(cuda, case.size, np.uint8, 1)
    everywhere, nowhere = (np.full(case.size, value, np.uint8) for value in (1, 0))
    counts = []
    for mask in (everywhere, nowhere, everywhere, None, nowhere, None):
        uploaded.set(mask)
        geometry.enqueue(settings_of(case.size, ENGINE), device_lens(cuda).staged, uploaded.staged, case.points,
                         case.searched.astype(np.uint8), *case[3:8])
        counts.append(len(geometry.correspondences(ALL).rows) - geometry.correspondences(ALL).matched)
    assert counts == [counts[0], 0, counts[0], counts[0], 0, counts[0]]
    assert counts[0]


def test_correspondences_stay_when_the_next_frame_comes():
    case, cuda = pair(0), OneThread()
    cuda.load_kernels('geometry')
    geometry, uploaded = GpuGeometry(cuda, COUNT), DeviceInput(cuda, case.size, np.uint8, 1)
    uploaded.set(None)
    geometry.enqueue(settings_of(case.size, ENGINE), device_lens(cuda).staged, uploaded.staged, case.points,
                     case.searched.astype(np.uint8), *case[3:8])
    found = geometry.correspondences(ALL)
    before = [np.array(each) for each in (found.rows, found.reference_points, found.points, found.covariances, found.scores)]
    geometry._results.array[:] = 0
    for kept, each in zip(before, (found.rows, found.reference_points, found.points, found.covariances, found.scores), strict=True):
        np.testing.assert_array_equal(each, kept)


@pytest.mark.parametrize('motion', [(0.0, 0.0, 0.0), (0.0, 0.0, 1e-9)])
def test_a_camera_that_stands_still_has_correspondences(motion):
    """Every geometry fits: which one the fit finds does not matter."""
    still = pair(0, wrong=0.0, noise_px=0.0, motion=motion, searched=30)
    found = still._replace(covariances=np.full_like(still.covariances, 0.01) * (1, 0, 1)).by_kernels(OneThread(), None, ALL)
    assert found is not None
    assert len(found.rows) > 180
    assert found.inliers == 180
    assert 0 <= found.quantile < 1e-6


@pytest.mark.parametrize('name', ['points', 'keypoints', 'scores', 'refined', 'covariances'])
@pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf])
def test_values_of_matches_that_are_not_finite_are_left_to_the_host(name, value):
    case = pair(0)
    row = np.flatnonzero(case.matches >= 0)[7]
    values = getattr(case, name).copy()
    values[case.matches[row] if name == 'keypoints' else row] = value
    assert case._replace(**{name: values}).by_kernels(OneThread(), None, ALL) is None


@pytest.mark.parametrize('value', [np.nan, np.inf])
def test_points_that_are_not_finite_do_not_continue(value):
    case = pair(0)
    continued = case.by_host(None, ALL)
    values = case.refined.copy()
    values[continued.rows[continued.matched]] = value
    hostile = case._replace(refined=values)
    with np.errstate(invalid='ignore'):
        assert_same(hostile.by_kernels(OneThread(), None, ALL), hostile.by_host(None, ALL))


def test_a_fit_that_is_not_likely_is_left_to_the_host():
    case = pair(0, wrong=0.6)
    assert case.by_kernels(OneThread(), None, 1.0) is None
    assert case.by_kernels(OneThread(), None, ALL) is not None


def test_too_few_matches_for_a_fit_are_never_unlikely():
    assert_same(pair(0, matched=variance_factor.ENOUGH - 1).by_kernels(OneThread(), None, 0.0),
                pair(0, matched=variance_factor.ENOUGH - 1).by_host(None, 0.0))
