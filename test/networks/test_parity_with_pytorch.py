"""Both graphs against transformers' SuperPoint and LightGlue, an independent implementation, with the same weights."""

import dataclasses
from functools import lru_cache
from importlib.util import find_spec

import numpy as np
import pytest
from support.networks import SMALL, extract, features_of_two_views, matcher_feed, ours, photo, session
from support.random_pairs import random_pair

from lightglue_trt_ros.core.config import EngineSpec
from lightglue_trt_ros.core.types import HostFeatures
from lightglue_trt_ros.networks.lightglue import lightglue
from lightglue_trt_ros.networks.superpoint import superpoint
from lightglue_trt_ros.networks.weights import Weights

torch = pytest.importorskip('torch', reason='PyTorch (CPU) is not installed: parity with transformers is not checked')
pytestmark = pytest.mark.skipif(find_spec('transformers') is None,  # imported by the tests: that takes seconds
                                reason='transformers is not installed: parity with it is not checked')

SPEC = EngineSpec(232, 408, 200)


NARROW = random_pair(encoder=(32, 32, 64, 64), descriptors=256, width=128, layers=5)


@pytest.mark.parametrize(('name', 'narrow'), [('coffee', False), ('astronaut', False), ('coffee', True)])
def test_superpoint_keypoints_scores_and_descriptors(name, narrow):
    image = photo(name, SPEC.image_height, SPEC.image_width)
    weights = (NARROW if narrow else ours()).extractor
    from support import reference
    model = reference.superpoint(weights.tensors, threshold=0.0005)
    with torch.no_grad():
        out = model(torch.from_numpy(image / np.float32(255))[None, None].expand(1, 3, -1, -1))
    size = np.array([SPEC.image_width, SPEC.image_height])
    keypoints = np.round(out.keypoints[0].numpy() * size)  # given relative to the size
    inside = np.all((keypoints >= 4) & (keypoints < size - 4), axis=1)  # its border check misses the far sides
    order = np.argsort(-out.scores[0].numpy()[inside], kind='stable')[:SPEC.max_keypoints]

    found = extract(session(superpoint(SPEC, weights, subpixel=False)), image)
    np.testing.assert_allclose(found.scores, out.scores[0].numpy()[inside][order], atol=1e-4)
    place = {tuple(uv): row for row, uv in enumerate(keypoints[inside][order])}
    assert set(place) == set(map(tuple, found.keypoints))
    rows = [place[tuple(uv)] for uv in found.keypoints]
    np.testing.assert_allclose(found.descriptors, out.descriptors[0].numpy()[inside][order][rows], atol=1e-4)


@lru_cache(maxsize=1)
def _matchers(name: str):
    """transformers' LightGlue and our graph, of the same weights."""
    from support import reference
    weights = {'trained': ours().matcher, 'narrow': NARROW.matcher}.get(name) or _random_weights(5)
    return reference.lightglue(weights.tensors), session(lightglue(SMALL, weights, log_assignment=True))


def _random_weights(seed: int) -> Weights:
    """LightGlue's tensors as an untrained network has them: logits stay small, so FP32 has digits to spare."""
    rng = np.random.default_rng(seed)
    tensors = {}
    for name, like in ours().matcher.tensors.items():
        if name.endswith('ffn.1.weight'):
            tensors[name] = np.ones(like.shape, np.float32)
        else:
            fan_in = like.shape[-1] if like.ndim > 1 else 256
            tensors[name] = rng.uniform(-1, 1, like.shape).astype(np.float32) / np.float32(np.sqrt(fan_in))
    return dataclasses.replace(ours().matcher, tensors=tensors)


def _both(name: str, features: list[HostFeatures], threshold: float, dtype: type = np.float32):
    """Log assignments (K, K) of transformers, computed in `dtype`, and of our FP32 graph with its matches and scores."""
    from support import reference
    valid = np.stack([f.scores > threshold for f in features])
    model, run = _matchers(name)
    model = model.to(getattr(torch, np.dtype(dtype).name))
    expected = reference.log_assignment(model, np.stack([f.keypoints for f in features]).astype(dtype),
                                        np.stack([f.descriptors for f in features]).astype(dtype), valid,
                                        (SMALL.image_height, SMALL.image_width))
    matches, scores, assignment = run.run(None, matcher_feed(*features, detection=threshold))
    return expected, assignment, matches, scores, valid


@pytest.mark.parametrize(('masked', 'narrow'), [(0, False), (60, False), (60, True)])
def test_lightglue_log_assignment_with_random_weights(masked, narrow):
    features = features_of_two_views()
    threshold = float(features[0].scores[-masked]) if masked else 0.0
    expected, assignment, _, _, valid = _both('narrow' if narrow else 'random', features, threshold)
    alive = np.ix_(valid[0], valid[1])
    assert np.ptp(expected[alive]) > 0.1
    np.testing.assert_allclose(assignment[alive], expected[alive], atol=1e-4, rtol=0)


@pytest.mark.parametrize('masked', [0, 60])
def test_lightglue_matches_with_trained_weights(masked):
    features = features_of_two_views()
    threshold = float(features[0].scores[-masked]) if masked else 0.0
    expected, _, matches, scores, valid = _both('trained', features, threshold)
    expected = np.where(valid[0][:, None] & valid[1][None], expected, -np.inf)
    best = expected.argmax(1)
    mutual = (expected.argmax(0)[best] == np.arange(len(best))) & (np.exp(expected.max(1)) > 0.1)
    np.testing.assert_array_equal(matches, np.where(mutual, best, -1))
    np.testing.assert_allclose(scores[mutual], np.exp(expected.max(1))[mutual], atol=1e-3)
    assert mutual.sum() > 50


def test_log_assignment_of_trained_lightglue_is_as_exact_as_fp32():
    """Trained logits reach hundreds, where FP32 itself is off by 1e-2: so both are held against float64."""
    features = features_of_two_views()
    exact, found, *_ = _both('trained', features, 0.0, np.float64)
    theirs, *_ = _both('trained', features, 0.0, np.float32)
    noise = np.abs(theirs - exact)
    error = np.abs(found - exact)
    assert np.median(error) <= 1.5 * np.median(noise)
    assert np.sqrt(np.mean(error**2)) <= 1.5 * np.sqrt(np.mean(noise**2))  # the largest of either is one of 65,536, by chance
    assert np.median(error / np.abs(exact)) < 1e-5
