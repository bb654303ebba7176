"""The matcher's graphs for TensorRT, with the attention and the assignment in NumPy: the matches of the graphs for ONNX Runtime."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from support.networks import SMALL, extract, light, matcher_feed, moved, photo, session
from support.on_host import assign_on_host

from lightglue_trt_ros.core.early_exit import EARLY_MATCH_SCORE, EarlyExits, confidence_threshold
from lightglue_trt_ros.networks.lightglue import lightglue_engines, lightglue_stages
from lightglue_trt_ros.networks.superpoint import superpoint

EXITS = EarlyExits((2, 3, 4))
HEAD = 64


@pytest.fixture(scope='module')
def feed():
    extractor, image = session(superpoint(SMALL, light().extractor)), photo('coffee', SMALL.image_height, SMALL.image_width)
    return matcher_feed(*(extract(extractor, each) for each in (image, moved(image, 4, 1.05)[0])))


@pytest.fixture(scope='module')
def expected(feed):
    """By exit: the state, None after the last one, and the results."""
    stages, tensors, by_exit = lightglue_stages(SMALL, light().matcher, EXITS), dict(feed), []
    for stage, head in itertools.zip_longest(EXITS.stages, EXITS.heads):
        tensors |= run(stages[stage], tensors)
        if head is not None:
            tensors['state'] = tensors['next_state']
        results = run(stages[head], tensors) if head is not None else tensors
        by_exit.append((tensors['state'] if head else None, tensors['confidence'], results['matches0'], results['scores']))
    return by_exit


def run(model, tensors):
    """The model's outputs by name."""
    opened = session(model)
    names = [output.name for output in opened.get_outputs()]
    return dict(zip(names, opened.run(names, {each.name: tensors[each.name] for each in opened.get_inputs()}), strict=True))


def heads(x):
    """(2, K, width) -> (2, heads, K, 64)."""
    return x.reshape(*x.shape[:2], -1, HEAD).swapaxes(1, 2)


def attended(tensors, state, cross):
    """What the kernels make of the projections: the state and the context."""
    if cross:
        query, value = (heads(part) for part in np.split(tensors['projected'], 2, axis=2))
        key, value = query[::-1], value[::-1]
    else:
        query, key, value = (heads(part) for part in np.split(tensors['projected'], 3, axis=2))
        query, key = (x * tensors['cosines'] + np.concatenate([-x[..., HEAD // 2:], x[..., :HEAD // 2]], axis=3) * tensors['sines']
                      for x in (query, key))
    logits = query @ key.swapaxes(2, 3)
    weights = np.exp(logits - logits.max(axis=3, keepdims=True))
    context = weights / weights.sum(axis=3, keepdims=True) @ value
    return np.concatenate([state, context.swapaxes(1, 2).reshape(state.shape)], axis=2)


def judged(tensors, threshold):
    """What the kernel makes of the tokens: the share of confident rows and their mean -log of the confidence."""
    valid = np.stack([tensors['scores0'], tensors['scores1']]) > tensors['detection_threshold']
    doubt = np.logaddexp(0, -tensors['tokens'])[valid]
    return np.mean(doubt <= -np.log(threshold)), np.mean(doubt)


def assert_equal_exit(tensors, graphs, head, expected):
    state, confidence, matches, scores = expected
    given = run(graphs[head], tensors | {'state': tensors['next_state']}) if head else tensors
    if state is not None:
        np.testing.assert_allclose(tensors['next_state'], state, atol=2e-4)
        layer = EXITS.ends[EXITS.heads.index(head)] - 1
        np.testing.assert_allclose(judged(tensors, confidence_threshold(layer, EXITS.ends[-1])), confidence, atol=1e-4)
    assert given['matchability'].shape == (2, SMALL.max_keypoints)
    found = assign_on_host(given['final'], given['matchability'], (tensors['scores0'], tensors['scores1']),
                           tensors['detection_threshold'], tensors['match_threshold'], least=EARLY_MATCH_SCORE if head else 0.0)
    assert np.sum(matches >= 0) > 60
    np.testing.assert_array_equal(found[0], matches)
    np.testing.assert_allclose(found[1], scores, atol=1e-3)


def test_blocks_between_attentions_are_the_layers(feed, expected):
    graphs, tensors, exits = lightglue_engines(SMALL, light().matcher, EXITS, own_attention=True), dict(feed), iter(expected)
    assert tuple(graphs) == EXITS.graphs(own_attention=True)
    start, *blocks = EXITS.blocks
    tensors |= run(graphs[start], tensors)
    for row, name in enumerate(blocks):
        tensors['attended'] = attended(tensors, tensors['next_state'], cross=row % 2 == 1)
        tensors |= run(graphs[name], tensors)
        layer = 1 + row // 2
        if row % 2 and layer in EXITS.ends:
            assert_equal_exit(tensors, graphs, dict(zip(EXITS.ends, EXITS.heads, strict=False)).get(layer), next(exits))


def test_stages_without_the_assignment_are_the_stages(feed, expected):
    graphs, tensors = lightglue_engines(SMALL, light().matcher, EXITS), dict(feed)
    assert tuple(graphs) == EXITS.graphs()
    for stage, head, each in itertools.zip_longest(EXITS.stages, EXITS.heads, expected):
        tensors |= run(graphs[stage], tensors)
        tensors |= {'state': tensors['next_state']}
        assert_equal_exit(tensors, graphs, head, each)
