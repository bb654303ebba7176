"""Scores as probabilities: the calibration and its inverse, and where scores and thresholds pass through it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.networks import light, photo

from lightglue_trt_ros.backends.onnxruntime import OnnxRuntimeBackend
from lightglue_trt_ros.core.config import SHIPPED_MODELS, MatcherConfig
from lightglue_trt_ros.core.frame_matcher import FrameMatcher
from lightglue_trt_ros.core.score_calibration import UNCALIBRATED, ScoreCalibration
from lightglue_trt_ros.networks.models import load_model

HEIGHT, WIDTH, STEP = 192, 256, 12
CONFIG = MatcherConfig(backend='onnxruntime', image_height=HEIGHT, image_width=WIDTH, max_keypoints=400, keyframes=2,
                       depth_confidence=0.97)  # of the matches after few layers, few have high scores
CALIBRATION = ScoreCalibration(0.3, 0.6)
EXPONENTS = st.floats(0.15, 4)


@given(EXPONENTS, EXPONENTS, st.floats(0.02, 0.98))
def test_raw_is_the_inverse_of_probability(a, b, probability):
    calibration = ScoreCalibration(a, b)
    raw = calibration.raw(probability)
    assert 0 < raw <= 1
    assert calibration.probability(np.array([raw])) == pytest.approx(probability, abs=1e-6)


@given(EXPONENTS, EXPONENTS)
def test_probabilities_rise_from_0_to_1(a, b):
    found = ScoreCalibration(a, b).probability(np.linspace(0, 1, 500, dtype=np.float32))
    assert found.dtype == np.float32
    assert (found[0], found[-1]) == (0, 1)
    assert (np.diff(found) >= 0).all()
    assert ScoreCalibration(a, b).probability(np.float32([1 + 1e-6])) == 1, 'rounding of a GPU'
    assert [ScoreCalibration(a, b).raw(limit) for limit in (0, 1)] == [0, 1]


def test_without_a_calibration_scores_stay_as_they_are():
    raw = np.random.default_rng(0).uniform(1e-4, 1, 1000).astype(np.float32)
    np.testing.assert_array_equal(UNCALIBRATED.probability(raw), raw)
    np.testing.assert_array_equal([np.float32(UNCALIBRATED.raw(float(value))) for value in raw], raw)


@pytest.mark.parametrize('name', SHIPPED_MODELS)
def test_shipped_models_are_calibrated(name):
    assert load_model(name).score_calibration != UNCALIBRATED


@pytest.mark.networks
@pytest.mark.parametrize('probability', [0.4, 0.85])
def test_calibration_changes_scores_and_threshold_but_not_matches(probability):
    wall = photo('coffee', HEIGHT, WIDTH + STEP * 14)
    found = []
    for calibration, threshold in ((UNCALIBRATED, CALIBRATION.raw(probability)), (CALIBRATION, probability)):
        backend = OnnxRuntimeBackend(CONFIG.engine_spec('fp32'), dataclasses.replace(light(), score_calibration=calibration))
        frames = FrameMatcher(backend, dataclasses.replace(CONFIG, match_threshold=threshold))
        stamps = []
        for number, x in enumerate(range(0, STEP * 14, STEP)):
            matches = frames.process(wall[:, x:x + WIDTH].copy(), 0.1 * number)
            if (newest := frames.keyframes.newest) is not None and newest.stamp not in stamps:
                stamps.append(newest.stamp)
        found.append((matches, frames.matches_between(*stamps[-2:])))
    for raw, published in zip(*found, strict=True):
        assert len(raw.matched()) > 50
        np.testing.assert_array_equal(published.keypoints, raw.keypoints)
        np.testing.assert_array_equal(published.covariances, raw.covariances)
        np.testing.assert_array_equal(published.scores, CALIBRATION.probability(raw.scores))
        assert published.matched().scores.min() >= np.float32(probability)
        np.testing.assert_array_equal(published.scores == 0, published.carried > 0)
