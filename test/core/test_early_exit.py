"""Early exits: the stages equal the whole network, they stop where the reference implementation does, bad values are refused."""

import dataclasses
import math
from functools import lru_cache

import numpy as np
import pytest
from onnxruntime import InferenceSession
from support.networks import SMALL, extract, features_of_two_views, matcher_feed, moved, ours, photo, session

from lightglue_trt_ros.backends.onnxruntime import OnnxRuntimeBackend
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.early_exit import ALL_LAYERS, EARLY_MATCH_SCORE, EarlyExits, confidence_threshold, stops
from lightglue_trt_ros.core.types import HostFeatures, Thresholds
from lightglue_trt_ros.networks.lightglue import lightglue, lightglue_stages
from lightglue_trt_ros.networks.superpoint import superpoint
from lightglue_trt_ros.utils.errors import ConfigError

pytestmark = pytest.mark.networks

EVERY_LAYER = EarlyExits(tuple(range(1, 7)))


@pytest.fixture(scope='module')
def features() -> list[HostFeatures]:
    return features_of_two_views()


@pytest.fixture(scope='module')
def backend() -> OnnxRuntimeBackend:
    return OnnxRuntimeBackend(SMALL, ours(), threads=2)


@lru_cache(maxsize=1)
def stages(early_exits) -> list[InferenceSession]:
    """All but the last."""
    graphs = lightglue_stages(SMALL, ours().matcher, early_exits)
    return [session(graphs[name]) for name in early_exits.stages[:-1]]


def confidences(features, early_exits=EVERY_LAYER, detection=0.0) -> np.ndarray:
    """(stages - 1, 2): what each stage says, none of them stopping."""
    feed, found = matcher_feed(*features, detection=detection), []
    for run in stages(early_exits):
        outputs = run.run(None, {tensor.name: feed[tensor.name] for tensor in run.get_inputs()})
        feed |= dict(zip([tensor.name for tensor in run.get_outputs()], outputs, strict=True))
        feed['state'] = feed['next_state']
        found.append(feed['confidence'])
    return np.stack(found)


def test_names_of_graphs():
    assert EarlyExits((9,)).graphs() == ('matcher',)
    assert EarlyExits((3, 4, 9)).graphs() == ('matcher-1-3', 'matcher-4', 'matcher-5-9', 'assignment-3', 'assignment-4')
    assert EarlyExits((0, 9)).graphs() == ('matcher', 'assignment-0')
    assert EarlyExits((0, 3, 9)).graphs() == ('matcher-1-3', 'matcher-4-9', 'assignment-0', 'assignment-3')
    assert EarlyExits((0, 3, 9)).spans == EarlyExits((3, 9)).spans == ((0, 3), (3, 9))
    assert str(EarlyExits((3, 9))) == 'exits after 3 and 9 layers'
    assert str(EarlyExits((0, 3, 9))) == 'exits after 0, 3 and 9 layers'
    assert str(EarlyExits((9,))) == 'all 9 layers'


@pytest.mark.parametrize('ends', [(), (0,), (3, 3), (5, 3), (0, 0, 9), (-1, 9)])
def test_ends_must_ascend(ends):
    with pytest.raises(ConfigError, match='ascending'):
        EarlyExits(ends)


def test_stages_must_end_with_the_network():
    with pytest.raises(ConfigError, match='has 6'):
        lightglue_stages(SMALL, ours().matcher, EarlyExits((3, 5)))


def test_one_stage_is_the_whole_network():
    tensors = ours().matcher
    whole, alone = lightglue(SMALL, tensors), lightglue_stages(SMALL, tensors, EarlyExits((6,)))
    assert list(alone) == ['matcher']
    assert alone['matcher'].SerializeToString() == whole.SerializeToString()


def test_all_stages_give_the_matches_of_the_whole_network(features, backend):
    expected = session(lightglue(SMALL, ours().matcher)).run(None, matcher_feed(*features))
    found = backend.match(*features, Thresholds(depth_confidence=ALL_LAYERS))
    assert found.layers == 6
    assert np.count_nonzero(found.indices >= 0) > 50
    np.testing.assert_array_equal(found.indices, expected[0])
    np.testing.assert_allclose(found.scores, expected[1], atol=1e-5)


def test_it_stops_at_the_first_exit_with_enough_confident_points(features):
    early_exits = EarlyExits((2, 3, 4, 6))
    backend = OnnxRuntimeBackend(SMALL, ours(), early_exits=early_exits, threads=2)
    shares = confidences(features, early_exits, detection=0.0005)[:, 0]
    seen = set()
    for enough in (*(shares - 1e-3), *(shares + 1e-3)):
        expected = next((end for end, share in zip(early_exits.ends, shares, strict=False) if share > enough), 6)
        assert backend.match(features[0], features[1], Thresholds(depth_confidence=float(enough))).layers == expected
        seen.add(expected)
    assert seen == {2, 3, 4, 6}


def test_an_early_exit_keeps_most_matches(features, backend):
    full = backend.match(*features, Thresholds())
    early = backend.match(*features, Thresholds(depth_confidence=0.9))
    assert early.layers < 6
    assert early.scores[early.indices >= 0].min() > EARLY_MATCH_SCORE
    both = (full.indices >= 0) & (full.indices == early.indices)
    assert np.count_nonzero(both) >= 0.9 * np.count_nonzero(full.indices >= 0)


def test_weak_matches_are_none_at_an_early_exit_however_low_the_threshold(features, backend):
    *early, last = (found.scores[found.indices >= 0].min() for found in backend.match_exits(*features, Thresholds(match=0.0)))
    assert min(early) > EARLY_MATCH_SCORE > last


def test_masked_rows_do_not_count(features):
    """Padding is never confident: counted, it would keep the share under its part of the rows."""
    threshold = float(features[0].scores[64])
    padded = [HostFeatures(f.keypoints, np.where(f.scores > threshold, f.scores, 0), f.descriptors) for f in features]
    shares = confidences(padded)[:, 0]
    valid = [f.scores > threshold for f in features]
    assert all(mask.sum() < 150 for mask in valid)
    logits_known = confidences([HostFeatures(f.keypoints, f.scores, f.descriptors) for f in features], detection=threshold)[:, 0]
    np.testing.assert_allclose(shares, logits_known, atol=1e-6)
    assert shares[-1] > 0.8


def test_without_keypoints_it_stops_at_once(features, backend):
    found = backend.match(*features, Thresholds(detection=1.0, depth_confidence=0.95))
    assert (found.layers, np.count_nonzero(found.indices >= 0)) == (3, 0)


def test_nan_descriptors_are_not_confident_and_are_reported(features, backend):
    broken = [dataclasses.replace(f, descriptors=np.full_like(f.descriptors, np.nan)) for f in features]
    found = backend.match(*broken, Thresholds(depth_confidence=0.01))
    assert found.layers == 6
    assert 'not finite' in found.note
    assert not found.confidence_finite
    assert not backend.match(*features, Thresholds(depth_confidence=0.5)).note


def test_thresholds_of_the_paper():
    assert confidence_threshold(0, 9) == pytest.approx(0.9)
    assert confidence_threshold(7, 9) == pytest.approx(0.8 + 0.1 * math.exp(-28 / 9))
    assert stops(0.951, 0.95)
    assert not stops(0.95, 0.95)
    assert not stops(1.0, ALL_LAYERS)
    assert not stops(math.nan, 0.5)


@pytest.mark.parametrize('value', [0.0, 1.0, -0.5, math.nan])
def test_depth_confidence_must_lie_between_0_and_1(value):
    with pytest.raises(ConfigError, match='depth_confidence'):
        MatcherConfig(depth_confidence=value)


def test_depth_confidence_of_minus_one_is_fine():
    assert MatcherConfig(depth_confidence=-1.0).depth_confidence == ALL_LAYERS


def test_the_decision_is_the_reference_implementations_layer_by_layer(features):
    pytest.importorskip('torch', reason='PyTorch (CPU) is not installed: parity with transformers is not checked')
    pytest.importorskip('transformers', reason='transformers is not installed: parity with it is not checked')
    from support import reference
    model = reference.lightglue(ours().matcher.tensors)
    # a pair so hard that the share of confident points rises with every layer, and each of them may be the first to stop
    image = photo('coffee', SMALL.image_height, SMALL.image_width)
    features = [features[0], extract(session(superpoint(SMALL, ours().extractor)), moved(image, angle=45, scale=0.6)[0])]
    for threshold in (0.0, float(features[0].scores[-60])):
        valid = np.stack([f.scores > threshold for f in features])
        shares = confidences(features, detection=threshold)[:, 0]
        confidences_asked = (*(shares - 2e-3), *(shares + 2e-3), 0.95)
        expected = reference.layers_that_run(model, np.stack([f.keypoints for f in features]),
                                             np.stack([f.descriptors for f in features]), valid,
                                             (SMALL.image_height, SMALL.image_width), [float(each) for each in confidences_asked])
        assert expected == [next((i + 1 for i, share in enumerate(shares) if stops(share, enough)), 6)
                            for enough in confidences_asked]
        assert len(set(expected)) > 4
