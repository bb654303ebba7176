"""Engines that end where layers attend, on an emulated device: our attention between them gives the network's matches."""

from __future__ import annotations

import numpy as np
import pytest
from support.emulated_device import EmulatedGpu, EmulatedTensorRT
from support.networks import light, moved, photo
from support.written_plans import written_plans

from lightglue_trt_ros.backends.onnxruntime import OnnxRuntimeBackend
from lightglue_trt_ros.backends.tensorrt import TensorRTBackend
from lightglue_trt_ros.core.config import EngineSpec
from lightglue_trt_ros.core.early_exit import EARLY_MATCH_SCORE, EarlyExits
from lightglue_trt_ros.core.types import Thresholds
from lightglue_trt_ros.engines.parity import failures, parity

pytestmark = pytest.mark.networks

SPEC, EARLY_EXITS = EngineSpec(160, 216, 192, 'fp16'), EarlyExits((0, 2, 4))


@pytest.fixture(scope='module')
def backend():
    plans = written_plans(SPEC, light(), EARLY_EXITS, own_attention=True)
    assert 'cross-4' in plans
    with EmulatedGpu().installed() as gpu:
        opened = TensorRTBackend(EmulatedTensorRT(gpu), SPEC, EARLY_EXITS, plans, 'emulated')
        yield opened
        opened.close()


@pytest.fixture(scope='module')
def images():
    image = photo('coffee', SPEC.image_height, SPEC.image_width)
    return [image, *(moved(image, angle, 1 + angle / 100, (angle, -angle))[0] for angle in (2, 4))]


def test_every_exit_passes_the_acceptance_check_of_engines(backend, images):
    reference = OnnxRuntimeBackend(EngineSpec(160, 216, 192), light(), early_exits=EARLY_EXITS)
    assert not failures(parity(backend, reference, images), 'fp16')


@pytest.mark.parametrize('depths', [(0.0, -1.0), (-1.0, 0.0), (2.0, 0.0, 2.0, 0.0)])
def test_matches_are_the_same_whatever_was_guessed(backend, images, depths):
    """A stage goes on from what the one before has left, and an earlier exit is assigned from its own state."""
    reference, current = (backend.extract(image) for image in images[:2])
    exits = {exit.layers: exit for exit in backend.match_exits(reference, current, Thresholds())}
    first = backend.match(reference, current, Thresholds(at_zero=True))
    np.testing.assert_array_equal(first.indices, exits[0].indices)
    for depth in depths * 2:  # as captured, too
        found = backend.match(reference, current, Thresholds(depth_confidence=depth))
        assert found.layers == (2 if depth == 0 else 4)
        np.testing.assert_array_equal(found.indices, exits[found.layers].indices)
        np.testing.assert_array_equal(found.scores, exits[found.layers].scores)
        assert np.sum(found.indices >= 0) > 60


def test_weak_matches_of_an_early_exit_are_dropped(backend, images):
    reference, current = backend.extract(images[0]), backend.extract(images[2])
    *early, last = (exit.scores[exit.indices >= 0] for exit in backend.match_exits(reference, current, Thresholds(match=0.0)))
    assert min(each.min() for each in early) > EARLY_MATCH_SCORE > last.min()
