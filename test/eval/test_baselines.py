"""Baselines on warped photographs."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest

from lightglue_trt_eval import baselines
from lightglue_trt_eval.baselines import BASELINES, KltMatcher, OrbMatcher, SiftMatcher
from lightglue_trt_ros.core.masks import Mask
from lightglue_trt_ros.odometry.two_view import homography_errors
from lightglue_trt_ros.utils.errors import FrameError

DATA = Path(__file__).resolve().parents[3] / 'shared' / 'data'
WARP = np.array([[0.92, 0.12, 20], [-0.1, 0.95, 45], [1e-4, -5e-5, 1]])
CAMERA = np.array([[300.0, 0, 160], [0, 300, 120], [0, 0, 1]])
BLANK = np.zeros((240, 320), np.uint8)


@pytest.fixture(scope='module')
def photographs():
    skimage_data = pytest.importorskip('skimage.data', reason='the photograph is one of scikit-image')
    image = skimage_data.camera()
    return image, cv2.warpPerspective(image, WARP, image.shape[::-1])


def test_sift_finds_the_warp_of_a_photograph(photographs):
    points0, points1, _ = SiftMatcher(1000).match(*photographs)
    assert points0.dtype == points1.dtype == np.float32
    assert points0.shape == points1.shape
    assert len(points0) > 150
    assert np.mean(homography_errors(points0, points1, WARP) < 2) > 0.85


def test_mutual_neighbours_are_fewer_and_one_to_one(photographs):
    plain, mutual = (SiftMatcher(1000, 0.9, mutual=mutual).match(*photographs) for mutual in (False, True))
    assert 0 < len(mutual[0]) < len(plain[0])
    assert np.mean(homography_errors(*mutual[:2], WARP) < 2) > np.mean(homography_errors(*plain[:2], WARP) < 2)


def test_a_stream_matches_as_pairs_do_and_describes_each_frame_once(photographs):
    matcher = SiftMatcher(500)
    calls = []
    detector = matcher.detector
    matcher.detector = SimpleNamespace(detectAndCompute=lambda *args: calls.append(1) or detector.detectAndCompute(*args))
    frames = [*photographs, photographs[0]]
    found = [matcher.process(frame) for frame in frames]
    assert found[0] is None
    assert len(calls) == 3
    for pair, streamed in zip(itertools.pairwise(frames), found[1:], strict=True):
        for expected, points in zip(SiftMatcher(500).match(*pair)[:2], streamed[:2], strict=True):
            np.testing.assert_array_equal(points, expected)
    matcher.reset()
    assert matcher.process(frames[0]) is None


def test_images_without_features_give_no_matches(photographs):
    for pair in itertools.product([BLANK, photographs[0]], [BLANK]):
        assert [points.shape for points in SiftMatcher(100).match(*pair)[:2]] == [(0, 2), (0, 2)]
    assert len(SiftMatcher(100).match(BLANK, photographs[0])[0]) == 0


@pytest.mark.parametrize('name', BASELINES)
class TestEveryBaseline:
    def test_finds_a_warp_within_its_budget(self, name, photographs):
        matcher = BASELINES[name](600)
        assert '600' in matcher.name
        image, warped = photographs
        small = cv2.warpPerspective(image, np.array([[1, 0.01, 4], [-0.01, 1, 6.0], [0, 0, 1]]), image.shape[::-1])
        assert matcher.process(image) is None
        points0, points1, _ = matcher.process(small)
        assert points0.dtype == points1.dtype == np.float32
        assert 150 < len(points0) == len(points1) <= 610
        assert np.mean(homography_errors(points0, points1, [[1, 0.01, 4], [-0.01, 1, 6], [0, 0, 1]]) < 2) > 0.85
        assert len(np.unique(points0, axis=0)) > 0.8 * len(points0)
        matcher.reset()
        assert matcher.process(warped) is None

    def test_takes_blank_images_and_what_follows_them(self, name, photographs):
        matcher = BASELINES[name](100)
        blank = np.zeros_like(photographs[0])
        assert matcher.process(blank) is None
        for image in (photographs[0], blank, blank):
            assert [points.shape for points in matcher.process(image)[:2]] == [(0, 2), (0, 2)]

    def test_goes_on_after_a_frame_that_it_refuses(self, name, photographs):
        matcher = BASELINES[name](100)
        matcher.process(photographs[0])
        with pytest.raises(FrameError, match='gray uint8'):
            matcher.process(np.zeros((4, 4, 3), np.uint8))
        assert matcher.process(photographs[0]) is None
        assert len(matcher.process(photographs[0])[0]) > 50

    def test_takes_another_size(self, name, photographs):
        matcher = BASELINES[name](100)
        matcher.process(photographs[0])
        found = matcher.process(photographs[0][:300, :400])
        assert found[0].shape == found[1].shape
        assert len(matcher.process(photographs[0][:300, :400])[0]) > 30

    @pytest.mark.parametrize('margin', [0.0, 20.0])
    def test_finds_nothing_behind_a_mask_and_within_its_margin(self, name, photographs, margin):
        matcher = BASELINES[name](600)
        allowed = np.zeros_like(photographs[0])
        allowed[:, :300] = 1
        matcher.mask, matcher.mask_margin = Mask(allowed), margin
        moved = np.roll(photographs[0], 5, axis=1)
        matcher.process(photographs[0])
        for image in (moved, photographs[0], moved):
            points0, points1, _ = matcher.process(image)
            assert len(points0) > 100
            farthest = max(points0[:, 0].max(), points1[:, 0].max())
            assert farthest <= 280 if margin else farthest < 300

    def test_gives_the_same_twice(self, name, photographs):
        first, second = ([matcher.process(image) for image in photographs][1]
                         for matcher in (BASELINES[name](300), BASELINES[name](300)))
        np.testing.assert_array_equal(first[:2], second[:2])


def shifted(image, shift):
    matrix = np.array([[1, 0, shift], [0, 1, 0.5 * shift], [0, 0, 1.0]])
    return cv2.warpPerspective(image, matrix, image.shape[::-1])[100:400, 100:400]


def test_orb_matches_are_one_to_one(photographs):
    points0, points1, _ = OrbMatcher(500).match(*photographs)
    assert len(np.unique(np.column_stack([points0, points1]), axis=0)) > 100
    one_way = OrbMatcher(500)
    one_way.mutual = False
    assert len(one_way.match(*photographs)[0]) > 1.2 * len(points0)


def test_klt_goes_on_from_where_it_was_and_fills_its_budget_up(photographs):
    matcher = KltMatcher(400)
    found = [matcher.process(shifted(photographs[0], 3 * k)) for k in range(6)][1:]
    found = [(points.reference, points.current) for points in found]
    followed = [set(map(tuple, reference.tolist())) & set(map(tuple, current.tolist()))
                for (_, current), (reference, _) in itertools.pairwise(found)]
    assert all(len(points) > 0.8 * len(reference) for points, (reference, _) in zip(followed, found[1:], strict=True))
    assert all(len(np.unique(reference, axis=0)) == len(reference) for reference, _ in found)
    for reference, current in found:
        np.testing.assert_allclose(np.median(current - reference, axis=0), [3, 1.5], atol=0.05)
    assert len(matcher._points) > len(found[-1][1])  # new corners came in
    assert len(matcher._points) <= 400
    kept, fresh = found[-1][1], matcher._points[len(found[-1][1]):]
    assert np.linalg.norm(kept[:, None] - fresh[None], axis=2).min() > 300 / 20 / 2 - 1.5


def test_klt_drops_what_does_not_come_back(photographs, monkeypatch):
    image = photographs[0]
    other = image.copy()
    other[:, 256:] = np.random.default_rng(0).integers(0, 256, other[:, 256:].shape)
    counts = []
    for backward_px in (baselines.BACKWARD_PX, 1e9):
        monkeypatch.setattr(baselines, 'BACKWARD_PX', backward_px)
        matcher = KltMatcher(600)
        matcher.process(image)
        points0, points1, _ = matcher.process(other)
        counts.append(np.sum(points0[:, 0] > 262))
        assert np.sum(points0[:, 0] < 240) > 100
        assert ((points1 >= 0) & (points1 <= 511)).all()
    assert counts[0] < 0.5 * counts[1]


def test_klt_lets_go_of_what_leaves_the_image(photographs):
    matcher = KltMatcher(800)
    left = 0
    for k in range(8):
        found = matcher.process(shifted(photographs[0], -7 * k))
        if found is not None:
            assert ((found[1] >= 0) & (found[1] <= 299)).all()
            left += np.sum((found[0] < 4).any(axis=1))
    assert left < 20


def test_klt_does_not_hold_on_to_the_callers_buffer(photographs):
    buffer = photographs[0].copy()
    matcher = KltMatcher(300)
    matcher.process(buffer)
    buffer[:] = 0
    assert len(matcher.process(photographs[0])[0]) > 200


def test_what_sift_cannot_take_is_refused():
    with pytest.raises(FrameError, match='gray uint8'):
        SiftMatcher().process(np.zeros((4, 4, 3), np.uint8))
