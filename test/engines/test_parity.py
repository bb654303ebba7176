"""The parity check on real networks: half precision passes, sabotage does not."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from support.networks import Remembered, Wrapped, ours

from lightglue_trt_ros.backends.onnxruntime import OnnxRuntimeBackend
from lightglue_trt_ros.core.config import EngineSpec
from lightglue_trt_ros.core.early_exit import ALL_LAYERS, EarlyExits
from lightglue_trt_ros.core.types import HostFeatures, Matches, Thresholds
from lightglue_trt_ros.engines.parity import FRAMES, LIMITS, ExitParity, Parity, _nearest, failures, parity, rendered_frames, rows

pytestmark = pytest.mark.networks

HEIGHT, WIDTH, K = 160, 208, 128


@pytest.fixture(scope='module')
def frames() -> list[np.ndarray]:
    return list(rendered_frames(5, HEIGHT, WIDTH))


def network(precision: str) -> OnnxRuntimeBackend:
    spec = EngineSpec(HEIGHT, WIDTH, K, precision)
    return OnnxRuntimeBackend(spec, ours())


@pytest.fixture(scope='module')
def reference() -> Remembered:
    return Remembered(network('fp32'))


class Sabotaged(Wrapped):
    """The reference, with its results bent; those of the matcher at the exits after `exits` layers."""

    def __init__(self, reference, features=lambda given: given, matches=lambda given: given, exits=(0, 3, 4, 6)):
        super().__init__(reference)
        self.features, self.matches, self.exits = features, matches, exits

    def extract(self, image):
        return self.features(self.inner.extract(image))

    def match(self, reference, current, thresholds):
        found = self.inner.match(reference, current, thresholds)
        return self.matches(found) if found.layers in self.exits else found

    def match_exits(self, reference, current, thresholds):
        found = list(self.inner.match_exits(reference, current, thresholds))
        return [self.matches(each) if each.layers in self.exits else each for each in found]


def changed(**changes):
    def change(given):
        values = {name: getattr(given, name) for name in given.__dataclass_fields__}
        return type(given)(**values | {name: action(values[name]) for name, action in changes.items()})
    return change


def shuffled(indices):
    rows_ = np.flatnonzero(indices >= 0)
    result = indices.copy()
    result[rows_] = np.roll(indices[rows_], 1)
    return result


def with_nan(values):
    values = values.copy()
    values[3] = np.nan
    return values


def test_an_exit_before_the_layers_that_gives_nothing_is_not_judged():
    nothing, enough = ExitParity(0, 0.0, math.nan, 9), ExitParity(6, 1.0, 0.0, 500)
    assert failures(Parity(1.0, 1.0, True, 900, 8, (nothing, enough)), 'fp16') == []
    assert len(failures(Parity(1.0, 1.0, True, 900, 8, (replace(nothing, matches=10), enough)), 'fp16')) == 2
    assert len(failures(Parity(1.0, 1.0, True, 900, 8, (replace(nothing, layers=3), enough)), 'fp16')) == 3


def test_the_reference_agrees_with_itself_entirely(reference, frames):
    found = parity(reference, reference, frames)
    assert (found.keypoint_overlap, found.pairs) == (1, 4)
    assert [each.layers for each in found.exits] == [0, 3, 4, 6]
    assert {(each.match_agreement, each.score_error) for each in found.exits} == {(1, 0)}
    assert found.descriptor_cosine == pytest.approx(1, abs=1e-5)
    assert found.finite
    assert all(each.matches > 100 for each in found.exits)
    assert failures(found, 'fp32') == []


def test_fp16_passes_the_parity_check(reference, frames):
    found = parity(network('fp16'), reference, frames)
    assert failures(found, 'fp16') == []
    assert found.keypoint_overlap < 1 or found.exits[0].score_error > 0, 'it was not half precision that ran'


def test_rows_in_another_order_are_the_same_features(reference, frames):
    order = np.random.default_rng(0).permutation(K)

    permuted = Sabotaged(reference, lambda given: HostFeatures(*(getattr(given, name)[order] for name in
                                                                 ('keypoints', 'scores', 'descriptors'))))
    found = parity(permuted, reference, frames)
    assert found.keypoint_overlap == 1
    assert all(each.match_agreement > 0.99 for each in found.exits)
    assert failures(found, 'fp16') == []


@pytest.mark.parametrize(('name', 'features', 'matches', 'complaint'), [
    ('keypoints scaled', changed(keypoints=lambda xy: xy * np.float32(1.02)), None, 'keypoint overlap'),
    ('keypoints moved a pixel', changed(keypoints=lambda xy: xy + np.float32(0.8)), None, 'keypoint overlap'),
    ('half the keypoints', changed(scores=lambda s: np.where(np.arange(K) % 2, s, 0).astype(np.float32)), None, 'keypoint overlap'),
    ('all keypoints NaN', changed(keypoints=lambda xy: xy * np.float32(np.nan)), None, 'NaN'),
    ('one score NaN', changed(scores=with_nan), None, 'NaN'),
    ('descriptors flushed to zero', changed(descriptors=lambda d: d * 0), None, 'descriptor cosine'),
    ('matches shuffled', None, changed(indices=shuffled), 'match agreement'),
    ('no matches', None, changed(indices=lambda i: np.full_like(i, -1)), 'match agreement'),
    ('matches out of range', None, changed(indices=lambda i: np.where(i >= 0, 10 * K, -1).astype(np.int32)), 'match agreement'),
    ('too many matches', None, changed(indices=lambda i: np.where(i < 0, np.arange(K), i).astype(np.int32)), 'match agreement'),
    ('scores off', None, changed(scores=lambda s: s * np.float32(0.8)), 'score error'),
    ('a match score NaN', None, changed(scores=with_nan), 'NaN'),
])
def test_sabotage_fails(reference, frames, name, features, matches, complaint):
    def same(given):
        return given
    found = parity(Sabotaged(reference, features or same, matches or same), reference, frames)
    lines = failures(found, 'fp16')
    assert any(complaint in line for line in lines), f'{name}: {lines} of {found}'
    assert lines


@pytest.mark.parametrize('layers', [3, 4, 6])
@pytest.mark.parametrize('precision', ['fp16', 'fp8'])
def test_an_exit_that_matches_nothing_fails_and_is_named(reference, frames, layers, precision):
    """Most frames take an early exit: all layers alone say nothing of them."""
    silent = Sabotaged(reference, matches=changed(indices=lambda i: np.full_like(i, -1), scores=lambda s: s * 0), exits=(layers,))
    found = failures(parity(silent, reference, frames), precision)
    assert len(found) == 2
    assert found[0].startswith(f'match agreement after {layers} layers is 0.0000')


def test_confidences_that_are_not_finite_fail(reference, frames):
    doubtful = Sabotaged(reference, matches=changed(confidence_finite=lambda finite: False), exits=(4,))
    assert failures(parity(doubtful, reference, frames), 'fp16') == ['the engines gave NaN or infinity']


def test_every_exit_is_where_the_matcher_would_have_stopped(reference, frames):
    first, second = (reference.extract(image) for image in frames[:2])
    exits = list(reference.match_exits(first, second, Thresholds()))
    assert [each.layers for each in exits] == [0, 3, 4, 6]
    for depth_confidence in (0.0, 0.999999, ALL_LAYERS):  # the first exit, later ones
        found = reference.match(first, second, Thresholds(depth_confidence=depth_confidence))
        same = next(each for each in exits if each.layers == found.layers)
        np.testing.assert_array_equal(same.indices, found.indices)
        np.testing.assert_array_equal(same.scores, found.scores)


def test_descriptors_on_a_device_are_not_asked_for(reference, frames):
    class Device:
        def __init__(self, features):
            self.kept, self.keypoints, self.scores = features, features.keypoints, features.scores

    class OnDevice(Sabotaged):
        def match_exits(self, first, second, thresholds):
            return self.inner.match_exits(first.kept, second.kept, thresholds)

    found = parity(OnDevice(reference, Device), reference, frames)
    assert math.isnan(found.descriptor_cosine)
    assert failures(found, 'fp32') == []
    assert ('descriptor cosine', 'not on the host', '>= 0.9999') in rows(found, 'fp32')
    assert json.loads(json.dumps(found.as_dict(), allow_nan=False))['descriptor_cosine'] is None


def test_frames_that_show_nothing_judge_nothing(reference):
    found = parity(reference, reference, [np.full((HEIGHT, WIDTH), 80, np.uint8)] * 3)
    assert any('too few to judge by' in line for line in failures(found, 'fp16'))


@pytest.mark.parametrize('precision', LIMITS)
def test_every_figure_is_held_to_its_limit(precision):
    exits = (ExitParity(4, 1.0, 0.0, 500), ExitParity(9, 1.0, 0.0, 500))
    good = Parity(1.0, 1.0, True, 900, 8, exits)
    assert failures(good, precision) == []
    for name in ('keypoint_overlap', 'match_agreement', 'score_error', 'descriptor_cosine'):
        limit = getattr(LIMITS[precision], name)
        worse = limit + 1e-6 if name == 'score_error' else limit - 1e-6
        for number in (0, 1) if name in vars(exits[0]) else (None,):
            at_limit, beyond = (
                replace(good, **{name: value}) if number is None else
                replace(good, exits=tuple(replace(each, **{name: value}) if place == number else each
                                          for place, each in enumerate(exits))) for value in (limit, worse))
            assert failures(at_limit, precision) == []
            assert len(failures(beyond, precision)) == 1
            assert number is None or f'after {exits[number].layers} layers' in failures(beyond, precision)[0]
    assert len(rows(good, precision)) == 11


def test_the_nearest_keypoint_is_one_to_one():
    reference = np.array([[10, 10], [10.3, 10], [50, 50], [np.nan, np.nan]], np.float32)
    candidate = np.array([[80, 80], [10.2, 10], [50.6, 50], [np.nan, np.nan]], np.float32)
    assert _nearest(reference, candidate).tolist() == [-1, 1, -1, -1]


def test_match_agreement_is_counted_by_hand():
    """Two frames; the candidate's rows are the reference's in reverse. Of three matches one is right, one wrong, one lost."""
    points = np.array([[10, 10], [20, 20], [30, 30], [40, 40]], np.float32)
    ones, nothing = np.ones(4, np.float32), np.empty((4, 0), np.float32)

    class Fixed:
        early_exits = EarlyExits((9,))

        def __init__(self, keypoints, indices):
            self.features, self.indices = HostFeatures(keypoints, ones, nothing), np.array(indices, np.int32)

        def extract(self, image):
            return self.features

        def match_exits(self, reference, current, thresholds):
            return [Matches(self.indices, ones, 9)]

    # the reference matches 0-0, 1-1, 2-2; the candidate, counted backwards, 3-3 (right), 2-0 (wrong)
    found = parity(Fixed(points[::-1].copy(), [-1, -1, 0, 3]), Fixed(points, [0, 1, 2, -1]), [np.zeros((8, 8), np.uint8)] * 2)
    assert (found.keypoint_overlap, found.exits[0].matches) == (1, 3)
    assert found.exits[0].match_agreement == pytest.approx(1 / 3)


def test_rendered_frames_are_the_same_each_time_and_never_repeat():
    first, second = (list(rendered_frames(FRAMES, 64, 96)) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert all(image.shape == (64, 96) and image.dtype == np.uint8 and image.std() > 15 for image in first)
    assert not any(np.array_equal(a, b) for a, b in pairwise(first))
