"""The graphs by themselves: shapes, types, the exactness of their shortcuts, FP16 against FP32 on real images."""

import dataclasses
import itertools

import cv2
import numpy as np
import onnx
import pytest
import spox.opset.ai.onnx.v17 as op
from spox import Tensor, argument, build
from support.networks import SMALL, extract, matcher_feed, moved, ours, photo, session
from support.on_host import suppressed

from lightglue_trt_ros.core.config import EngineSpec
from lightglue_trt_ros.networks.architecture import BORDER
from lightglue_trt_ros.networks.lightglue import lightglue
from lightglue_trt_ros.networks.superpoint import refine, select_keypoints, superpoint, suppress_non_maxima
from lightglue_trt_ros.networks.typed_onnx import Typed, read_stamp
from lightglue_trt_ros.utils.errors import ConfigError


@pytest.fixture(scope='module')
def networks():
    """Sessions of both networks by precision, K = 256 at 240x328."""
    return {precision: (session(superpoint(spec, ours().extractor)), session(lightglue(spec, ours().matcher)))
            for precision in ('fp32', 'fp16') for spec in [dataclasses.replace(SMALL, precision=precision)]}


def test_suppression_and_block_selection_equal_the_dense_way():
    rng = np.random.default_rng(3)
    height, width, count = 64, 88, 40
    scores = cv2.GaussianBlur(rng.random((height, width)).astype(np.float32), (0, 0), 1.2)
    full = argument(Tensor(np.float32, (1, 1, height, width)))
    kept = suppress_non_maxima(full)
    inner = op.slice(kept, op.const(np.array([BORDER, BORDER])), op.const(np.array([height - BORDER, width - BORDER])),
                     op.const(np.array([2, 3])))
    keypoints, top = select_keypoints(inner, count)
    found, found_keypoints, found_top = session(build({'scores': full}, {'kept': kept, 'keypoints': keypoints, 'top': top})).run(
        None, {'scores': scores[None, None]})

    expected = suppressed(scores)
    np.testing.assert_array_equal(found[0, 0], expected)
    expected[:BORDER], expected[-BORDER:], expected[:, :BORDER], expected[:, -BORDER:] = 0, 0, 0, 0
    order = np.argsort(-expected, axis=None, kind='stable')[:count]
    v, u = np.unravel_index(order, expected.shape)
    np.testing.assert_array_equal(found_top, expected[v, u])
    np.testing.assert_array_equal(found_keypoints, np.stack([u, v], 1))


def test_subpixel_refinement_is_the_mean_under_the_scores():
    rng = np.random.default_rng(4)
    scores = rng.random((40, 56)).astype(np.float32)
    pixels = np.array([[20, 10], [4, 4], [51, 35]], np.int32)
    dense, where = argument(Tensor(np.float32, (1, 1, 40, 56))), argument(Tensor(np.int32, (3, 2)))
    found = session(build({'dense': dense, 'pixels': where}, {'keypoints': refine(dense, where)})).run(
        None, {'dense': scores[None, None], 'pixels': pixels})[0]
    for (u, v), keypoint in zip(pixels, found, strict=True):
        patch = scores[v - 2:v + 3, u - 2:u + 3].astype(np.float64)
        rows, columns = np.mgrid[v - 2:v + 3, u - 2:u + 3]
        np.testing.assert_allclose(keypoint, [np.average(columns, weights=patch), np.average(rows, weights=patch)], atol=1e-4)


def test_subpixel_refinement_brings_matches_closer_to_the_truth(networks):
    image = photo('coffee', 240, 328)
    view, homography = moved(image, angle=3.0, scale=0.97, shift=(2.5, -1.5))
    errors = {}
    for subpixel in (False, True):
        run = session(superpoint(SMALL, ours().extractor, subpixel=subpixel))
        reference, current = extract(run, image), extract(run, view)
        matches, _ = networks['fp32'][1].run(None, matcher_feed(reference, current))
        rows = np.flatnonzero(matches >= 0)
        projected = np.c_[reference.keypoints[rows], np.ones(len(rows))] @ homography.T
        errors[subpixel] = np.median(np.linalg.norm(projected[:, :2] - current.keypoints[matches[rows]], axis=1))
    assert errors[True] < 0.8 * errors[False], errors


@pytest.mark.parametrize('precision', ['fp32', 'fp16'])
def test_models_say_what_they_are_and_what_they_take(precision):
    spec = dataclasses.replace(SMALL, precision=precision)
    kind = {'fp32': onnx.TensorProto.FLOAT, 'fp16': onnx.TensorProto.FLOAT16}[precision]
    extractor, matcher = superpoint(spec, ours().extractor), lightglue(spec, ours().matcher)

    def types(values):
        return {value.name: (value.type.tensor_type.elem_type, tuple(d.dim_value for d in value.type.tensor_type.shape.dim))
                for value in values}

    for model, network in ((extractor, 'superpoint'), (matcher, 'lightglue')):
        onnx.checker.check_model(model, full_check=True)
        assert [(entry.domain, entry.version) for entry in model.opset_import] == [('', 17)]
        assert read_stamp(model) == {
            'network': network, 'image_height': '240', 'image_width': '328', 'max_keypoints': '256', 'precision': precision,
            'weights_sha256': (ours().extractor if network == 'superpoint' else ours().matcher).sha256}
    assert types(extractor.graph.input) == dict.fromkeys(('image', 'mask'), (onnx.TensorProto.UINT8, (240, 328)))
    assert types(extractor.graph.output) == {'keypoints': (onnx.TensorProto.FLOAT, (256, 2)),
                                             'scores': (onnx.TensorProto.FLOAT, (256,)), 'descriptors': (kind, (256, 256))}
    assert types(matcher.graph.input)['descriptors0'] == (kind, (256, 256))
    assert types(matcher.graph.output) == {'matches0': (onnx.TensorProto.INT32, (256,)), 'scores': (onnx.TensorProto.FLOAT, (256,))}
    operators = [node.op_type for node in matcher.graph.node]
    assert operators.count('LayerNormalization') == 12
    assert operators.count('Softmax') == 12


def test_fp16_graphs_compute_in_fp16_but_for_the_islands():
    spec = dataclasses.replace(SMALL, precision='fp16')
    for model in (superpoint(spec, ours().extractor), lightglue(spec, ours().matcher)):
        inferred = onnx.shape_inference.infer_shapes(model)
        kinds = {value.name: value.type.tensor_type.elem_type for value in [*inferred.graph.value_info, *inferred.graph.output]}
        heavy = [node for node in model.graph.node if node.op_type in ('Conv', 'MatMul')]
        wide = [node for node in heavy if kinds[node.output[0]] != onnx.TensorProto.FLOAT16]
        assert len(heavy) >= 12
        assert len(wide) <= 2, [node.name for node in wide]  # the subpixel refinement, the positional encoding
        for node in model.graph.node:
            if node.op_type in ('GridSample', 'TopK', 'ReduceL2', 'LogSoftmax', 'Cos', 'Sin'):
                assert kinds[node.output[0]] == onnx.TensorProto.FLOAT, node.op_type


def test_a_precision_that_graphs_are_not_written_in_is_refused():
    with pytest.raises(ConfigError, match='fp8'):
        Typed('fp8')


def test_features_and_matches_follow_a_known_motion(networks):
    extractor, matcher = networks['fp32']
    image = photo('coffee', 240, 328)
    view, homography = moved(image)
    reference, current = extract(extractor, image), extract(extractor, view)
    assert np.all(np.diff(reference.scores) <= 0)
    np.testing.assert_allclose(np.linalg.norm(reference.descriptors, axis=1), 1, atol=1e-5)
    matches, scores = matcher.run(None, matcher_feed(reference, current))
    rows = np.flatnonzero(matches >= 0)
    assert len(rows) >= 80
    assert len(set(matches[rows])) == len(rows)
    assert np.all(scores[rows] > 0.1)
    assert np.all(scores[matches < 0] == 0)
    projected = np.c_[reference.keypoints[rows], np.ones(len(rows))] @ homography.T
    error = np.linalg.norm(projected[:, :2] / projected[:, 2:] - current.keypoints[matches[rows]], axis=1)
    assert np.mean(error < 3) > 0.9


def test_thresholds_act_inside_the_graph(networks):
    extractor, matcher = networks['fp32']
    image = photo('coffee', 240, 328)
    reference, current = extract(extractor, image), extract(extractor, moved(image)[0])
    loose, _ = matcher.run(None, matcher_feed(reference, current, match=0.0))
    strict, scores = matcher.run(None, matcher_feed(reference, current, match=0.9))
    assert 0 < np.sum(strict >= 0) < np.sum(loose >= 0)
    assert np.all(scores[strict >= 0] > 0.9)
    detection = float(np.median(reference.scores))
    masked, _ = matcher.run(None, matcher_feed(reference, current, detection=detection))
    rows = np.flatnonzero(masked >= 0)
    assert len(rows)
    assert np.all(reference.scores[rows] > detection)
    assert np.all(current.scores[masked[rows]] > detection)
    none, none_scores = matcher.run(None, matcher_feed(reference, current, detection=1.0))
    assert np.all(none == -1)
    assert np.all(none_scores == 0)


@pytest.mark.parametrize('pair', ['graf', 'leuven', 'boat', 'bikes'])
def test_fp16_keeps_keypoints_and_matches_on_real_images(networks, shared_data, pair):
    images = [cv2.resize(cv2.imread(str(shared_data / 'oxford_affine' / pair / f'img{i}.png'), cv2.IMREAD_GRAYSCALE), (328, 240),
                         interpolation=cv2.INTER_AREA) for i in (1, 2)]
    full = [extract(networks['fp32'][0], image) for image in images]
    half = [extract(networks['fp16'][0], image) for image in images]
    # a keypoint is kept where FP16 has one within half a pixel; the same row then stands for it
    near = [np.linalg.norm(a.keypoints[:, None] - b.keypoints[None], axis=2) for a, b in zip(full, half, strict=True)]
    assert min(np.mean(distance.min(1) < 0.5) for distance in near) >= 0.98

    exact = networks['fp32'][1].run(None, matcher_feed(*full))[0]
    again = networks['fp16'][1].run(None, matcher_feed(*half))[0]
    rows = np.flatnonzero(exact >= 0)
    kept = [near[0][i].min() < 0.5 and again[j := near[0][i].argmin()] >= 0 and near[1][exact[i], again[j]] < 0.5 for i in rows]
    assert len(rows) > 20
    assert np.mean(kept) >= 0.97


@pytest.mark.parametrize('precision', ['fp32', 'fp16'])
def test_images_without_content_give_no_matches_and_no_nan(networks, precision):
    """Their keypoints score below those of poor texture, and match neither each other nor a scene."""
    extractor, matcher = networks[precision]
    images = {level: np.full((240, 328), level, np.uint8) for level in (0, 128, 255)}
    features = [extract(extractor, image) for image in (*images.values(), photo('coffee', 240, 328))]
    assert max(each.scores.max() for each in features[:3]) < 0.005
    for each in features:
        assert np.all(np.isfinite(each.keypoints))
        assert np.all(np.isfinite(each.descriptors.astype(np.float32)))
    for pair in itertools.product(features, features):
        if pair[0] is pair[1] is features[3]:  # the scene
            continue
        matches, scores = matcher.run(None, matcher_feed(*pair))
        assert np.all(np.isfinite(scores))
        assert np.all(matches == -1)
        assert np.all(scores == 0)


def test_descriptors_are_sampled_on_the_released_models_grid():
    """The centre of the first cell is pixel 3.5, and W - 4.5 comes to the last one."""
    height, width, spec = 48, 64, EngineSpec(48, 64, 20)
    image = np.random.default_rng(2).integers(0, 256, (height, width), np.uint8)
    model, shape = superpoint(spec, ours().extractor, subpixel=False), ours().extractor.tensors['convDb.weight'].shape
    kernels = {node.output[0]: tuple(node.attribute[0].t.dims) for node in model.graph.node if node.op_type == 'Constant'}
    name, = (node.output[0] for node in model.graph.node if node.op_type == 'Conv' and kernels.get(node.input[1]) == shape)
    cells = (1, shape[0], height // 8, width // 8)
    model.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, cells))
    pixels, _, descriptors, dense = session(model).run(None, {'image': image, 'mask': np.ones_like(image)})
    cells = dense[0].transpose(1, 2, 0)  # (H / 8, W / 8, D)
    cells /= np.linalg.norm(cells, axis=2, keepdims=True)
    u, v = ((pixels - 3.5) / (np.array([width, height]) - 4.5) * (np.array([width, height]) / 8 - 1)).T
    expected = np.zeros_like(descriptors)
    for row in (0, 1):
        for column in (0, 1):
            j, i = np.floor(v).astype(int) + row, np.floor(u).astype(int) + column
            weight = (1 - np.abs(v - j)) * (1 - np.abs(u - i)) * ((j >= 0) & (j < height // 8) & (i >= 0) & (i < width // 8))
            expected += weight[:, None] * cells[np.clip(j, 0, height // 8 - 1), np.clip(i, 0, width // 8 - 1)]
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(descriptors, expected, atol=1e-5)
