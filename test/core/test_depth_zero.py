"""The exit before the first layer: which pairs are tried, which are accepted, and what is published of them."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from support.networks import light, moved, photo

from lightglue_trt_ros.backends.onnxruntime import OnnxRuntimeBackend
from lightglue_trt_ros.core.cells import per_cell
from lightglue_trt_ros.core.config import EngineSpec, MatcherConfig
from lightglue_trt_ros.core.correspondences import Correspondences
from lightglue_trt_ros.core.depth_zero import DepthZero, change, covered, evidence_of
from lightglue_trt_ros.core.early_exit import EarlyExits
from lightglue_trt_ros.core.frame_matcher import FrameMatcher
from lightglue_trt_ros.core.score_calibration import ScoreCalibration
from lightglue_trt_ros.core.types import Thresholds

SIZE = HEIGHT, WIDTH = 240, 320
SPEC = EngineSpec(HEIGHT, WIDTH, 400)
CONFIG = MatcherConfig(backend='onnxruntime', image_height=HEIGHT, image_width=WIDTH, max_keypoints=400)


class Asked(OnnxRuntimeBackend):
    """Keeps the layers of every answer."""

    def __init__(self, *given, **named) -> None:
        super().__init__(*given, **named)
        self.layers: list[int] = []

    def match(self, reference, current, thresholds):
        found = super().match(reference, current, thresholds)
        self.layers.append(found.layers)
        return found


@pytest.fixture(scope='module')
def backend():
    return Asked(SPEC, light(), threads=2)


def published(backend, images, config=CONFIG, **given):
    """The last frame of a stream."""
    backend.layers.clear()
    frames, found = FrameMatcher(backend, config), None
    for number, image in enumerate(images):
        found = frames.process(image, 0.1 * number, **given)
    return found


def correspondences(before, after, **others) -> Correspondences:
    count = len(before)
    rows = np.arange(count)
    return Correspondences(count, rows, rows, before, after, np.tile(np.eye(2, dtype=np.float32), (count, 1, 1)),
                           np.ones(count, np.float32), **{'quantile': 1.0, 'inliers': 300, 'tested': 300} | others)


@pytest.fixture
def points():
    return np.random.default_rng(0).uniform(0, (WIDTH, HEIGHT), (600, 2)).astype(np.float32)


def about(points, angle=0.0, scale=1.0):
    cosine, sine = scale * math.cos(angle), scale * math.sin(angle)
    return (points @ np.array([[cosine, sine], [-sine, cosine]]) + (7, -3)).astype(np.float32)


def test_easy_pairs_are_each_tried_and_hard_ones_after_pauses():
    depth_zero, tried = DepthZero(), []
    for number in range(40):
        if depth_zero.due():
            tried.append(number)
            depth_zero.learn(False)
    assert np.diff(tried).tolist() == [2, 3, 5, 9, 9, 9]
    while not depth_zero.due():
        pass
    depth_zero.learn(True)
    assert depth_zero.due()
    depth_zero.learn(False)
    assert [depth_zero.due() for _ in range(3)] == [False, True, True], 'a success ends the pauses'


def test_numbers_of_matches_go_by_rows_and_keypoints():
    enough = DepthZero().enough
    assert enough(200, 444, 1024)
    assert not enough(199, 444, 1024)
    assert not enough(200, 445, 1024), '45 % of those that there are'
    assert enough(40, 80, 200)
    assert not enough(39, 80, 200)
    assert not enough(0, 0, 1024)


def test_a_pair_is_sure_by_inliers_place_and_motion(points):
    def is_sure(found, foreign=None):
        return DepthZero().is_sure(evidence_of(found, foreign, per_cell(points, SIZE), SIZE))

    sure = correspondences(points, about(points))
    assert is_sure(sure)
    assert is_sure(sure._replace(inliers=270))
    assert not is_sure(sure._replace(inliers=269))
    assert not is_sure(sure._replace(inliers=0, tested=0))
    assert not is_sure(correspondences(points, about(points, 0.25)))
    left = points[points[:, 0] < 0.3 * WIDTH]
    assert not is_sure(correspondences(left, about(left)))
    foreign = np.arange(600) < 12
    assert is_sure(sure, foreign)
    foreign[12:24] = True
    assert not is_sure(sure, foreign)


@pytest.mark.parametrize(('angle', 'scale', 'expected'), [(0, 1, 0), (0.1, 1, 0.1), (-0.3, 1, 0.3), (0, 1.25, 0.25), (0, 0.7, 0.3)])
def test_rotation_and_scale_are_seen_in_spite_of_wrong_matches(points, angle, scale, expected):
    after = about(points, angle, scale)
    after[::8] = points[::-8] + 50
    assert change(points, after) == pytest.approx(expected, abs=0.02)


def test_few_or_equal_points_have_no_change(points):
    for count in (0, 1):
        assert change(points[:count], points[:count] + 3) == 0
    same = np.zeros((8, 2), np.float32)
    assert change(same, same) == 0
    assert covered(points, per_cell(points[:0], SIZE), SIZE) == 0
    assert covered(points, per_cell(points, SIZE), SIZE) == 1


@pytest.mark.networks
def test_an_easy_pair_runs_no_layer_and_finds_what_they_find(backend):
    image = photo('coffee', 250, 330)
    images = image[:HEIGHT, :WIDTH].copy(), image[4:4 + HEIGHT, 6:6 + WIDTH].copy()
    found = published(backend, images)
    assert (found.layers, backend.layers, found.note) == (0, [0], '')
    expected = published(backend, images, dataclasses.replace(CONFIG, depth_confidence=-1.0))
    assert (expected.layers, backend.layers) == (4, [4])
    for each in (found, expected):
        shift = each.matched().keypoints - each.matched().reference_keypoints
        np.testing.assert_allclose(np.median(shift, axis=0), (-6, -4), atol=0.02)
        assert np.mean(np.abs(shift - (-6, -4)).max(axis=1) < 1) > 0.97
    assert len(found.matched()) > 0.85 * len(expected.matched())


@pytest.mark.networks
@pytest.mark.parametrize(('angle', 'scale'), [(20, 1), (45, 1), (0, 1.35)])
def test_rotated_and_scaled_pairs_run_layers(backend, angle, scale):
    image = photo('coffee', HEIGHT, WIDTH)
    found = published(backend, (image, moved(image, angle, scale, (0, 0))[0]))
    assert found.layers > 0
    assert backend.layers == [0, found.layers]


@pytest.mark.networks
def test_what_a_refused_try_notes_is_published(backend, monkeypatch):
    match = backend.match
    monkeypatch.setattr(backend, 'match', lambda *given: dataclasses.replace(found := match(*given), note=f'after {found.layers}'))
    image = photo('coffee', HEIGHT, WIDTH)
    assert published(backend, (image, moved(image, 45)[0])).note == 'after 0; after 3'
    assert published(backend, (image, image)).note == 'after 0'


@pytest.mark.networks
def test_a_hard_stream_is_tried_less_and_less(backend):
    images = [photo('coffee', HEIGHT, WIDTH), photo('astronaut', HEIGHT, WIDTH)] * 6
    published(backend, images)
    assert [number for number, layers in enumerate(backend.layers) if layers == 0] == [0, 3, 7, 13]
    assert len(backend.layers) == 11 + 4


@pytest.mark.networks
def test_a_camera_that_stands_runs_no_layer_and_nothing_moves(backend):
    image = photo('coffee', HEIGHT, WIDTH)
    found = published(backend, [image] * 4)
    assert (backend.layers, found.layers, found.note, found.standing) == ([0, 0, 0], 0, '', None)
    np.testing.assert_allclose(found.keypoints, found.reference_keypoints, atol=0.02)


def tiles(period: int, shift: int, seed: int = 0) -> np.ndarray:
    """A wall of equal tiles, whose camera has moved by `shift` pixels."""
    rng = np.random.default_rng(seed)
    tile = np.kron(rng.integers(0, 256, (period // 4, period // 4)), np.ones((4, 4)))
    wall = np.tile(tile, (HEIGHT // period + 3, WIDTH // period + 3))
    noise = np.random.default_rng(shift + 1).normal(0, 2, SIZE)
    return np.clip(wall[:HEIGHT, shift:shift + WIDTH] + noise, 0, 255).astype(np.uint8)


@pytest.mark.networks
@pytest.mark.parametrize('period', [24, 40, 64])
@pytest.mark.parametrize('part', [0.25, 0.5])
def test_tiles_that_all_look_alike_do_not_win_with_a_wrong_shift(backend, period, part):
    shift = int(part * period)
    published(backend, (tiles(period, 0), tiles(period, shift)))
    found = published(backend, (tiles(period, 0), tiles(period, shift)))
    if found.layers == 0:
        moves = np.median(found.matched().keypoints - found.matched().reference_keypoints, axis=0)
        np.testing.assert_allclose(moves, (-shift, 0), atol=0.5)


@pytest.mark.networks
def test_frames_without_keypoints_and_with_few_run_layers(backend):
    empty = np.full(SIZE, 128, np.uint8)
    assert published(backend, (empty, empty)).layers > 0
    few = empty.copy()
    few[100:140, 100:140] = photo('coffee', 40, 40)
    assert published(backend, (few, few)).layers > 0


@pytest.mark.networks
def test_a_backend_without_the_exit_is_not_asked_for_it():
    without = Asked(SPEC, light(), early_exits=EarlyExits((2, 4)), threads=2)
    image = photo('coffee', HEIGHT, WIDTH)
    assert published(without, [image] * 3).layers > 0
    assert len(without.layers) == 2


@pytest.mark.networks
def test_matches_before_first_layer_have_own_score_calibration(backend):
    model = dataclasses.replace(light(), score_calibration=ScoreCalibration(0.3, 0.6, {0: ScoreCalibration(2.0, 3.0)}))
    image = photo('coffee', HEIGHT, WIDTH)
    images = image, moved(image, 2, 1.0, (5, 3))[0]
    own = published(Asked(SPEC, model, threads=2), images, dataclasses.replace(CONFIG, match_threshold=0.2))
    raw = published(Asked(SPEC, dataclasses.replace(model, score_calibration=ScoreCalibration()), threads=2), images,
                    dataclasses.replace(CONFIG, match_threshold=ScoreCalibration(2.0, 3.0).raw(0.2)))
    assert own.layers == raw.layers == 0
    np.testing.assert_array_equal(own.keypoints, raw.keypoints)
    np.testing.assert_allclose(own.scores, ScoreCalibration(2.0, 3.0).probability(raw.scores), rtol=1e-6)
    assert own.matched().scores.min() >= 0.2


@pytest.mark.networks
def test_every_exit_is_given_in_turn(backend):
    image = photo('coffee', HEIGHT, WIDTH)
    features = [backend.extract(each) for each in (image, moved(image)[0])]
    exits = list(backend.match_exits(*features, Thresholds()))
    assert [each.layers for each in exits] == list(backend.early_exits.ends)
    assert exits[0].layers == 0
    assert math.isnan(exits[0].confident)
    first = backend.match(*features, Thresholds(at_zero=True))
    np.testing.assert_array_equal(first.indices, exits[0].indices)
