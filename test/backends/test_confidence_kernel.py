"""The confidence's kernel, by a thread for each of the GPU's and as plain C++: the shares and means of the paper's rule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cuda_threads import ThreadedCuda
from support.emulated_kernels import run

from lightglue_trt_ros.backends.gpu_lightglue import GpuConfidence
from lightglue_trt_ros.core.early_exit import confidence_threshold

DETECTION, LAYERS = np.array([0.1], np.float32), 9


class PlainCuda(ThreadedCuda):
    """Kernels as plain C++, with one thread that does it all."""

    def launch(self, kernel, blocks, threads, *arguments):
        run(kernel, *arguments)


def judged(cuda, end, tokens, scores):
    confidence = np.full(2, 7, np.float32)
    GpuConfidence(cuda, tokens.shape[1], LAYERS, tokens.dtype).enqueue(end, tokens, tuple(scores), DETECTION, confidence)
    return confidence


def expected(end, tokens, scores):
    valid = scores > DETECTION[0]
    doubt = np.logaddexp(0, -tokens[valid].astype(np.float64))
    count = max(1, valid.sum())
    with np.errstate(invalid='ignore'):
        confident = doubt <= np.float32(-np.log(confidence_threshold(end - 1, LAYERS)))
    return 1 - np.sum(~confident) / count, np.sum(doubt) / count


@pytest.mark.parametrize('kind', [np.float16, np.float32])
@pytest.mark.parametrize('device', [ThreadedCuda, PlainCuda])
def test_the_share_of_confident_rows_and_their_mean_doubt(device, kind):
    rng = np.random.default_rng(0)
    for count, end in ((700, 4), (16, 9), (1, 1)):
        tokens, scores = rng.normal(2, 2, (2, count)).astype(kind), rng.random((2, count), np.float32)
        np.testing.assert_allclose(judged(device(), end, tokens, scores), expected(end, tokens, scores), rtol=1e-5, atol=1e-6)


@settings(max_examples=30)
@given(st.integers(1, 300), st.integers(1, LAYERS), st.integers(0, 2**32 - 1), st.sampled_from([np.nan, np.inf, -np.inf, 0.0]))
def test_values_that_are_not_finite_count_as_doubtful_where_they_are_valid(count, end, seed, value):
    rng = np.random.default_rng(seed)
    tokens, scores = rng.normal(2, 2, (2, count)).astype(np.float32), rng.random((2, count), np.float32)
    tokens[rng.random((2, count)) < 0.1] = value
    with np.errstate(invalid='ignore', over='ignore'):
        np.testing.assert_allclose(judged(PlainCuda(), end, tokens, scores), expected(end, tokens, scores), rtol=1e-5, atol=1e-6)


def test_where_no_row_is_valid_all_are_confident():
    np.testing.assert_array_equal(judged(PlainCuda(), 4, np.full((2, 8), np.nan, np.float32), np.zeros((2, 8), np.float32)), [1, 0])
