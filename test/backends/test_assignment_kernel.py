"""The assignment's kernels on the emulated device: the matches and scores of the graph."""

from __future__ import annotations

import re
from copy import copy
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from spox import Tensor, argument
from support.cuda_threads import ThreadedCuda
from support.emulated_device import EmulatedGpu
from support.networks import SMALL, extract, light, matcher_feed, moved, ours, photo, session
from support.on_host import assign_on_host

from lightglue_trt_ros.backends.cuda import KERNELS, LANES, THREADS, Cuda
from lightglue_trt_ros.backends.gpu_lightglue import GpuAssignment
from lightglue_trt_ros.core.config import EngineSpec
from lightglue_trt_ros.core.early_exit import EARLY_MATCH_SCORE, EarlyExits
from lightglue_trt_ros.networks import lightglue
from lightglue_trt_ros.networks.superpoint import superpoint
from lightglue_trt_ros.utils.errors import EngineError

DETECTION, MATCH = 0.1, 0.05
LAST, EARLY = 0.0, EARLY_MATCH_SCORE  # the least score of a match


@cache
def network(model) -> lightglue._LightGlue:
    return lightglue._LightGlue(SMALL, model().matcher, None)


@cache
def graph(count: int, width: int, least: float):
    """The assignment of a matcher's graph from what its two linear layers give: a session."""
    net = copy(network(light))
    net.spec = EngineSpec(240, 328, count)
    end = net.layers if least == LAST else net.layers - 1
    projected, matchability = (argument(Tensor(np.float32, (2, count, columns))) for columns in (width, 1))
    head = net.net.heads[end - 1]
    net.rounding = SimpleNamespace(observed={}, linear=lambda _, layer: projected if layer is head.final else matchability)
    inputs = net._inputs('scores0', 'scores1', 'detection_threshold')
    model = net._assigned(inputs | {'projected': projected, 'matchability': matchability}, end, projected, net.valid(inputs))
    return session(model)


def by_graph(projected, matchability, scores, detection, match, *, least):
    feed = {'projected': projected.astype(np.float32), 'matchability': matchability[:, :, None], 'scores0': scores[0],
            'scores1': scores[1], 'detection_threshold': np.float32(detection), 'match_threshold': np.float32(match)}
    feed = {name: np.asarray(values) for name, values in feed.items()}
    return graph(*projected.shape[1:], least).run(['matches0', 'scores'], feed)


def by_kernels(projected, matchability, scores, detection, match, *, least):
    """Twice in the same memory, as frames follow one another."""
    _, count, width = projected.shape
    with EmulatedGpu().installed():
        cuda = Cuda()
        assignment = GpuAssignment(cuda, count, width, projected.dtype)
        inputs = []
        for values in (projected, matchability, *scores, np.array([detection], np.float32), np.array([match], np.float32)):
            inputs.append(cuda.staged(values.shape, values.dtype))
            np.copyto(inputs[-1].array, values)
            cuda.send(inputs[-1])
        found = [cuda.staged((count,), dtype) for dtype in (np.int32, np.float32)]
        results = []
        for _ in range(2):
            assignment.enqueue(inputs[0], inputs[1], (inputs[2], inputs[3]), *inputs[4:], *found, least=least)
            for each in found:
                cuda.receive(each)
            cuda.synchronize()
            results.append([each.array.copy() for each in found])
        del found, inputs, each
        cuda.close()
    for once, again in zip(*results, strict=True):
        np.testing.assert_array_equal(once, again)
    return results[0]


def assert_agreement(*inputs, least=LAST, ways=(by_graph, assign_on_host)) -> np.ndarray:
    """The matches, by the kernels and by each of the other ways."""
    matches, scores = by_kernels(*inputs, least=least)
    assert matches.dtype == np.int32
    for way in ways:
        expected, expected_scores = way(*inputs, least=least)
        np.testing.assert_array_equal(matches, expected, err_msg=way.__name__)
        np.testing.assert_allclose(scores, expected_scores, atol=1e-5, err_msg=way.__name__)
    return matches


def random_inputs(count: int, width: int, dtype: type, seed: int = 0, invalid: float = DETECTION):
    """Image 1 has the rows of image 0 with noise, in another order; a share `invalid` of the rows is at or under the threshold."""
    rng = np.random.default_rng(seed)
    rows, noise = rng.normal(size=(2, count, width)) * 2.5 / width**0.25
    projected = np.stack([rows, (rows + noise / 3)[rng.permutation(count)]]).astype(dtype)
    scores = tuple((rng.random((2, count)) + DETECTION - invalid).astype(np.float32))
    scores[0][0], scores[1][-1] = DETECTION, np.float32(np.nextafter(np.float32(DETECTION), np.float32(1)))
    return projected, rng.normal(2, 3, (2, count)).astype(np.float32), scores, np.float32(DETECTION), MATCH


def test_the_kernels_have_the_sizes_of_what_launches_them():
    sources = (KERNELS / 'assignment.cu').read_text() + (KERNELS / 'portable.h').read_text()
    found = {name: float(value) for name, value in re.findall(r'\b(TILE|MASKED|LANES|THREADS) = (-?[\de]+)f?[,;]', sources)
             if value != '1'}
    assert found == {'TILE': GpuAssignment.TILE, 'MASKED': lightglue.MASKED, 'LANES': LANES, 'THREADS': THREADS}


@pytest.mark.slow
@settings(derandomize=True, max_examples=25)  # of some seeds two scores are as near to one another as their rounding
@given(count=st.integers(16, 300), width=st.sampled_from(range(16, 96, 16)), dtype=st.sampled_from([np.float16, np.float32]),
       least=st.sampled_from([LAST, EARLY]), seed=st.integers(0, 2**16), invalid=st.sampled_from([0.0, 0.1, 0.6]))
@example(count=64, width=256, dtype=np.float16, least=LAST, seed=0, invalid=0.1)
@example(count=129, width=256, dtype=np.float32, least=EARLY, seed=0, invalid=0.1)
@example(count=3840, width=16, dtype=np.float16, least=LAST, seed=0, invalid=0.1)
def test_matches_are_those_of_the_graph(count, width, dtype, least, seed, invalid):
    assert_agreement(*random_inputs(count, width, dtype, seed, invalid), least=least)


@pytest.mark.slow
@pytest.mark.parametrize(('dtype', 'model'), [(np.float16, ours), (np.float32, light)])
def test_photographs_are_matched_as_by_the_graph(dtype, model):
    """By the real weights of an early exit."""
    net, extractor = network(model), session(superpoint(SMALL, model().extractor))
    end = EarlyExits.of(net.layers).after_layers[0]
    pair = [extract(extractor, image) for image in (photo('coffee', 240, 328), moved(photo('coffee', 240, 328))[0])]
    feed = matcher_feed(*pair)
    del feed['match_threshold']
    state = session(net.stage(0, end)).run(['next_state'], feed)[0]
    head = net.net.heads[end - 1]
    projected, matchability = (state @ layer.weight.T + layer.bias for layer in (head.final, head.matchability))
    scores, matchability = tuple(each.scores for each in pair), np.ascontiguousarray(matchability[:, :, 0])
    matches = assert_agreement(projected.astype(dtype), matchability, scores, np.float32(0.0005), 0.1, least=EARLY)
    assert np.sum(matches >= 0) > 40


@pytest.mark.parametrize('dtype', [np.float16, np.float32])
def test_of_equal_values_the_first_wins(dtype):
    projected, matchability, *rest = random_inputs(150, 32, dtype, invalid=0)
    projected = np.round(2 * projected) / 2  # sums are exact in any order
    projected[:, 75:], matchability[:, 75:] = projected[:, :75], matchability[:, :75]
    projected[1, :], matchability[1, :] = projected[0], matchability[0]
    matches = assert_agreement(projected, matchability, *rest)
    assert (matches >= 0).sum() > 30
    assert matches.max() < 75
    projected[:] = 1
    matchability[:] = 9
    np.testing.assert_array_equal(assert_agreement(projected, matchability, *rest[:2], 0.0), np.where(np.arange(150) == 1, 0, -1))


@pytest.mark.parametrize(('count', 'width', 'dtype', 'least'), [
    (48, 32, np.float16, LAST), (64, 64, np.float32, EARLY), (100, 80, np.float16, EARLY), (130, 256, np.float16, LAST),
    (130, 48, np.float32, LAST)])
def test_a_gpu_s_threads_find_the_same_matches(count, width, dtype, least):
    """Twice in the same memory, as frames follow one another."""
    projected, matchability, scores, detection, match = random_inputs(count, width, dtype)
    expected, expected_scores = assign_on_host(projected, matchability, scores, detection, match, least=least)
    assert (expected >= 0).sum() > count / 3
    assignment = GpuAssignment(ThreadedCuda(), count, width, dtype)
    thresholds = np.array([detection], np.float32), np.array([match], np.float32)
    for _ in range(2):
        matches, found = np.full(count, 77, np.int32), np.full(count, np.nan, np.float32)
        assignment.enqueue(projected, matchability, scores, *thresholds, matches, found, least=least)
        np.testing.assert_array_equal(matches, expected)
        np.testing.assert_allclose(found, expected_scores, atol=1e-5)


@pytest.mark.parametrize('dtype', [np.float16, np.float32])
@pytest.mark.parametrize('bad', [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_harm_nothing_unless_they_are_valid(dtype, bad):
    projected, matchability, scores, *thresholds = random_inputs(100, 32, dtype)
    expected = assert_agreement(projected, matchability, scores, *thresholds)
    invalid = [np.flatnonzero(each <= DETECTION) for each in scores]
    for side in (0, 1):
        projected[side, invalid[side][1], 5] = bad
    np.testing.assert_array_equal(assert_agreement(projected, matchability, scores, *thresholds), expected)
    projected[0, np.flatnonzero(scores[0] > DETECTION)[3], 5] = bad
    # an infinite value makes NaN of some rows and columns, which ONNX Runtime's ArgMax takes where they come first
    ways = (by_graph, assign_on_host) if np.isnan(bad) else (assign_on_host,)
    matches = assert_agreement(projected, matchability, scores, *thresholds, ways=ways)
    assert np.all(matches == -1) or not np.isnan(bad)


def test_a_matchability_that_is_not_a_number_takes_its_row_alone():
    projected, matchability, *rest = random_inputs(100, 32, np.float32, invalid=0)
    expected = assert_agreement(projected, matchability, *rest)
    row, other = np.flatnonzero(expected >= 0)[[0, 2]]
    matchability[0, row] = matchability[1, expected[other]] = np.nan
    matches = assert_agreement(projected, matchability, *rest, ways=(assign_on_host,))
    assert matches[row] == -1
    assert expected[other] not in matches
    kept = np.flatnonzero(expected >= 0)
    assert np.mean(matches[kept] == expected[kept]) > 0.9
    matchability[0, 0] = np.nan
    assert np.sum(assert_agreement(projected, matchability, *rest, ways=(assign_on_host,)) >= 0) > 20


@pytest.mark.parametrize('sides', [(0,), (1,), (0, 1)])
def test_an_image_without_keypoints_has_no_matches(sides):
    projected, matchability, scores, *thresholds = random_inputs(70, 16, np.float32, invalid=0)
    for side in sides:
        scores[side][:] = DETECTION
    assert np.all(assert_agreement(projected, matchability, scores, *thresholds) == -1)
    for side in sides:
        scores[side][:] = np.nan
    assert np.all(assert_agreement(projected, matchability, scores, *thresholds) == -1)


@pytest.mark.parametrize(('width', 'dtype'), [(24, np.float16), (32, np.float64)])
def test_widths_and_types_that_the_kernels_do_not_take_are_refused(width, dtype):
    with EmulatedGpu().installed():
        cuda = Cuda()
        with pytest.raises(EngineError, match=f'not {width} of'):
            GpuAssignment(cuda, 64, width, dtype)
        cuda.close()
