"""Networks of other widths and depths than the published ones: the graphs read them from the tensors."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import pytest
from support.networks import SMALL, photo, session
from support.random_pairs import random_matcher, random_pair, write_pair

from lightglue_trt_ros.backends.onnxruntime import OnnxRuntimeBackend
from lightglue_trt_ros.core.config import EngineSpec, MatcherConfig
from lightglue_trt_ros.core.early_exit import EarlyExits
from lightglue_trt_ros.core.types import HostFeatures, Thresholds
from lightglue_trt_ros.engines.selection import open_backend
from lightglue_trt_ros.networks.lightglue import lightglue, lightglue_stages
from lightglue_trt_ros.networks.superpoint import superpoint
from lightglue_trt_ros.networks.weight_folding import SHARPNESS, fold
from lightglue_trt_ros.utils.errors import ConfigError, WeightsError

LIGHT = {'encoder': (32, 32, 64, 64), 'descriptors': 256, 'width': 128, 'layers': 5}
OTHERS = [LIGHT, LIGHT | {'hidden': 192}, {'encoder': (16, 24, 32, 40), 'descriptors': 128, 'width': 128, 'layers': 3},
          {'encoder': (64, 64, 128, 128), 'descriptors': 64, 'width': 192, 'layers': 1}]


def shuffled(backend: OnnxRuntimeBackend, descriptors: int) -> tuple[HostFeatures, HostFeatures, np.ndarray]:
    """A frame's features under descriptors that differ, as a random extractor's hardly do; the same in another order; it."""
    spec, rng = backend.spec, np.random.default_rng(3)
    seen = backend.extract(photo('coffee', spec.image_height, spec.image_width))
    assert seen.descriptors.shape == (spec.max_keypoints, descriptors)
    assert seen.descriptors.dtype == (np.float16 if spec.precision == 'fp16' else np.float32)
    np.testing.assert_allclose(np.linalg.norm(seen.descriptors.astype(np.float32), axis=1), 1, atol=2e-3)
    rows = rng.normal(size=seen.descriptors.shape)
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(seen.descriptors.dtype)
    order = rng.permutation(len(rows))
    return (HostFeatures(seen.keypoints, seen.scores, rows),
            HostFeatures(seen.keypoints[order], seen.scores[order], rows[order]), order)


@pytest.mark.parametrize('widths', OTHERS, ids=str)
@pytest.mark.parametrize('precision', ['fp32', 'fp16'])
def test_model_of_other_widths_extracts_and_matches(widths, precision):
    spec = dataclasses.replace(SMALL, precision=precision)
    pair = random_pair(**widths)
    backend = OnnxRuntimeBackend(spec, pair, threads=2)
    assert backend.early_exits == EarlyExits.of(widths['layers'])
    first, second, order = shuffled(backend, widths['descriptors'])
    found = backend.match(first, second, Thresholds())
    assert found.layers == widths['layers']
    assert (found.indices >= 0).mean() > 0.9
    kept = np.flatnonzero(found.indices >= 0)
    np.testing.assert_array_equal(order[found.indices[kept]], kept)


def test_the_stages_of_another_depth_give_what_the_whole_gives():
    pair = random_pair(**LIGHT)
    whole, staged = (OnnxRuntimeBackend(SMALL, pair, early_exits=exits, threads=2) for exits in (EarlyExits((5,)), None))
    *features, _ = shuffled(whole, LIGHT['descriptors'])
    expected, found = (backend.match(features[0], features[1], Thresholds()) for backend in (whole, staged))
    assert (expected.indices >= 0).mean() > 0.9
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)
    assert staged.early_exits.ends == (0, 2, 3, 5)
    for layer in range(4):  # tokens that are sure of everything
        pair.matcher.tensors[f'token_confidence.{layer}.token.0.bias'] += 20
    sure = OnnxRuntimeBackend(SMALL, pair, threads=2)
    assert sure.match(features[0], features[1], Thresholds(depth_confidence=0.9)).layers == 2


@pytest.mark.parametrize('widths', OTHERS, ids=str)
@pytest.mark.parametrize('precision', ['fp32', 'fp16'])
def test_descriptors_match_before_first_layer_without_trained_head(widths, precision):
    backend = OnnxRuntimeBackend(dataclasses.replace(SMALL, precision=precision), random_pair(**widths), threads=2)
    first, second, order = shuffled(backend, widths['descriptors'])
    found = backend.match(first, second, Thresholds(at_zero=True))
    kept = np.flatnonzero(found.indices >= 0)
    assert found.layers == 0
    assert len(kept) > 0.8 * len(order)
    assert np.mean(order[found.indices[kept]] == kept) == 1


@pytest.mark.parametrize(('descriptors', 'width'), [(64, 64), (32, 64), (256, 128)])
def test_an_untrained_head_compares_by_cosines_all_that_the_matcher_reads(descriptors, width):
    tensors = random_matcher(0, descriptors, width, 1)
    weight = fold(tensors).descriptor_head.final.weight
    read = tensors['input_proj.weight'].T if descriptors > width else np.eye(descriptors, dtype=np.float32)
    assert weight.shape == (width, descriptors)
    np.testing.assert_allclose(weight.T @ (weight @ read), SHARPNESS * read, atol=1e-4)


def test_a_trained_head_assigns_descriptors_as_lightglue_assigns_states():
    """`final_proj` and `matchability`, by the formula of the paper."""
    pair, rng = random_pair(**LIGHT), np.random.default_rng(0)
    weight, matchability = rng.normal(0, 2, (128, 256)).astype(np.float32), rng.normal(0, 1, (1, 256)).astype(np.float32)
    head = {'final_proj.weight': weight, 'final_proj.bias': np.full(128, 0.1, np.float32),
            'matchability.weight': matchability, 'matchability.bias': np.ones(1, np.float32)}
    pair.matcher.tensors.update({f'descriptor_assignment.{name}': tensor for name, tensor in head.items()})
    first, second, _ = shuffled(OnnxRuntimeBackend(SMALL, pair, threads=2), 256)
    second = dataclasses.replace(second, descriptors=second.descriptors + rng.normal(0, 0.03, second.descriptors.shape).astype('f'))
    found = OnnxRuntimeBackend(SMALL, pair, threads=2).match(first, second, Thresholds(match=0.0, at_zero=True))
    final = [(each.descriptors @ weight.T + 0.1) / 128**0.25 for each in (first, second)]
    similarity = np.exp((final[0] @ final[1].T).astype(np.float64))
    logits = [each.descriptors @ matchability[0] + 1 for each in (first, second)]
    certain = [1 / (1 + np.exp(-each)) for each in logits]
    valid = [each.scores > 0.0005 for each in (first, second)]
    similarity[~valid[0]] = similarity[:, ~valid[1]] = 0
    score = similarity**2 / (similarity.sum(0) * similarity.sum(1)[:, None] + 1e-30) * certain[0][:, None] * certain[1]
    rows = np.flatnonzero(found.indices >= 0)
    assert len(rows) > 50
    np.testing.assert_array_equal(found.indices[rows], score.argmax(1)[rows])
    np.testing.assert_allclose(found.scores[rows], score.max(1)[rows], rtol=2e-3)


def test_tensors_in_the_graphs_are_as_wide_as_the_weights():
    pair, spec = random_pair(**LIGHT), EngineSpec(64, 80, 32)

    def inputs(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
        return {value.name: tuple(size.dim_value for size in value.type.tensor_type.shape.dim) for value in model.graph.input}

    stages = lightglue_stages(spec, pair.matcher, EarlyExits.of(5))
    assert inputs(stages['matcher-1-2'])['descriptors0'] == (32, 256)
    assert inputs(stages['matcher-3'])['state'] == (2, 32, 128)
    assert inputs(stages['assignment-2'])['state'] == (2, 32, 128)
    for model in (superpoint(spec, pair.extractor), *stages.values()):
        onnx.checker.check_model(model, full_check=True)
        session(model)


@pytest.mark.parametrize(('layers', 'ends'), [(9, (4, 5, 6, 9)), (5, (2, 3, 5)), (6, (3, 4, 6)), (4, (2, 3, 4)), (3, (1, 2, 3)),
                                              (2, (1, 2)), (1, (1,)), (12, (5, 7, 8, 12))])
def test_exits_of_another_depth_are_those_of_nine_layers_in_proportion(layers, ends):
    assert EarlyExits.of(layers).ends == (0, *ends)


def test_fp8_of_other_widths_is_refused_in_words():
    spec = EngineSpec(64, 80, 32, 'fp8')
    with pytest.raises(ConfigError, match='matchers 256 channels wide, 512 in their FFN: these weights have 128 and 256; use fp16'):
        lightglue(spec, random_pair(**LIGHT).matcher)


def test_folder_of_a_light_model_is_opened_by_the_setting(tmp_path):
    folder = write_pair(tmp_path / 'mine', 'featherweight', random_pair(**LIGHT))
    config = MatcherConfig(backend='onnxruntime', weights=str(folder), image_height=64, image_width=80, max_keypoints=32)
    opened = open_backend(config)
    opened.backend.close()
    assert f'weights featherweight of {folder}, exits after 0, 2, 3 and 5 layers' in opened.reason
    (folder / 'matcher.safetensors').unlink()
    with pytest.raises(WeightsError, match=r'has no matcher\.safetensors'):
        open_backend(config)
