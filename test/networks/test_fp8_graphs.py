"""FP8 graphs: the bases change nothing, rounding is where it belongs and exactly E4M3's, files say what they are.

Most of it on the first two layers of the network, which have all there is to see.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections import Counter

import ml_dtypes
import numpy as np
import onnx
import pytest
import spox.opset.ai.onnx.v17 as op
from onnx import TensorProto
from spox import Tensor, argument, build
from support.networks import LAYERS, SMALL, features_of_two_views, matcher_feed, ours, session, shallow

from lightglue_trt_ros.backends.onnxruntime import OnnxRuntimeBackend, _session
from lightglue_trt_ros.core.config import EngineSpec
from lightglue_trt_ros.core.early_exit import ALL_LAYERS, EarlyExits
from lightglue_trt_ros.core.types import HostFeatures, Thresholds
from lightglue_trt_ros.engines.precision_check import read_types
from lightglue_trt_ros.networks import e4m3
from lightglue_trt_ros.networks.fp8_calibration import BLOCKS, Calibration, RoundedWeights, linear_members
from lightglue_trt_ros.networks.fp8_rounding import Rounding
from lightglue_trt_ros.networks.lightglue import lightglue, lightglue_stages
from lightglue_trt_ros.networks.superpoint import superpoint
from lightglue_trt_ros.networks.typed_onnx import Typed, read_stamp, stamp
from lightglue_trt_ros.networks.weight_folding import Linear, fold, rebased
from lightglue_trt_ros.utils.errors import ConfigError, EngineError

pytestmark = pytest.mark.float8

LINEARS = frozenset(linear_members(LAYERS))
FP8 = dataclasses.replace(SMALL, precision='fp8')
ERF = np.vectorize(math.erf, otypes=[np.float32])


@pytest.fixture(scope='module')
def features() -> list[HostFeatures]:
    return features_of_two_views()


def turned(rng: np.random.Generator, size: int) -> np.ndarray:
    """A random basis that neither keeps lengths nor mixes them beyond FP32."""
    first, second = (np.linalg.qr(rng.standard_normal((size, size)))[0] for _ in range(2))
    return (first * np.linspace(0.5, 2, size) @ second).astype(np.float32)


def plain_calibration(layers: int = LAYERS) -> Calibration:
    """Random bases; no centres, no peaks, nothing in FP8."""
    rng = np.random.default_rng(0)
    values = np.stack([turned(rng, 64) for _ in range(layers * 2 * 4)]).reshape(layers, 2, 4, 64, 64)
    provenance = {'weights_sha256': shallow().sha256, 'image_height': SMALL.image_height,
                  'image_width': SMALL.image_width, 'max_keypoints': SMALL.max_keypoints}
    return Calibration(turned(rng, 256), values, {}, {}, frozenset(), provenance)


def observed(calibration: Calibration | None, features) -> dict[str, np.ndarray]:
    """What the graph shows of one pair, by name of the rounded tensor; and its matches."""
    run = session(lightglue(SMALL, shallow(), calibration=calibration, observe=True, log_assignment=True))
    outputs = run.run(None, matcher_feed(*features))
    return {tensor.name.removeprefix('inputs.'): value for tensor, value in zip(run.get_outputs(), outputs, strict=True)}


@pytest.fixture(scope='module')
def seen(features) -> dict[str, np.ndarray]:
    return observed(plain_calibration(), features)


@pytest.fixture(scope='module')
def calibration(features, seen) -> Calibration:
    """Of the one pair, all linears in FP8; in the first layer some inputs are compensated, and one has weights of its own."""
    rng, update = np.random.default_rng(6), rebased(fold(shallow().tensors), plain_calibration()).blocks[0, 'cross'].update
    compensated = {name: np.sort(rng.choice(seen[name].shape[-1], 48, False)).astype(np.int32) for name in LINEARS
                   if name.startswith('layers.0.')}
    centres = {name: seen[name].mean(axis=(0, 1)) for name in LINEARS}
    centred = dataclasses.replace(plain_calibration(), centres=centres, fp8=LINEARS, compensated=compensated,
                                  weights={'layers.0.cross.update': RoundedWeights.nearest(0.99 * update.weight)})
    peaks = {name: float(np.abs(values).max()) for name, values in observed(centred, features).items() if '.' in name}
    return dataclasses.replace(centred, peaks=peaks)


@pytest.fixture(scope='module')
def graph(calibration) -> onnx.ModelProto:
    return lightglue(FP8, shallow(), calibration=calibration)


def f1(found: np.ndarray, exact: np.ndarray) -> float:
    return 2 * np.count_nonzero((found == exact) & (exact >= 0)) / (np.count_nonzero(found >= 0) + np.count_nonzero(exact >= 0))


def test_bases_change_no_result(features, seen):
    """Before rounding: what leaves the network is the same, what flows in it is in the calibration's bases."""
    before, bases = observed(None, features), plain_calibration()
    np.testing.assert_array_equal(seen['matches0'], before['matches0'])
    assert np.count_nonzero(before['matches0'] >= 0) > 20
    np.testing.assert_allclose(seen['log_assignment'], before['log_assignment'], atol=2e-3)
    np.testing.assert_allclose(seen['scores'], before['scores'], atol=1e-4)
    for name in ('layers.0.self.project', 'layers.1.cross.project'):
        np.testing.assert_allclose(seen[name], before[name] @ bases.residual_basis.T, atol=2e-4)
    for block, name in enumerate(BLOCKS):
        context = before[f'layers.1.{name}.hidden'][..., 256:].reshape(2, -1, 4, 64)
        turned = np.einsum('hij,bkhj->bkhi', bases.value_bases[1, block], context).reshape(2, -1, 256)
        np.testing.assert_allclose(seen[f'layers.1.{name}.hidden'][..., 256:], turned, atol=2e-3)
        np.testing.assert_allclose(seen[f'layers.1.{name}.update'], before[f'layers.1.{name}.update'], atol=2e-3)


def test_without_an_input_projection_the_basis_becomes_one():
    tensors = shallow().tensors
    net, bases = fold({name: tensors[name] for name in tensors if 'input_proj' not in name}), plain_calibration()
    assert net.project is None
    np.testing.assert_array_equal(rebased(net, bases).project.weight, bases.residual_basis)


def test_observing_shows_all_that_could_be_rounded_and_rounds_nothing(features, seen, calibration):
    shown = {name for name in seen if '.' in name}
    assert shown == LINEARS
    k = SMALL.max_keypoints
    assert seen['layers.1.cross.hidden'].shape == (2, k, 512)
    centred = observed(calibration, features)
    np.testing.assert_array_equal(centred['matches0'], seen['matches0'])
    for name, centre in calibration.centres.items():
        np.testing.assert_allclose(centred[name], seen[name] - centre, atol=2e-3 * calibration.peaks[name])
    np.testing.assert_allclose(centred['scores'], seen['scores'], atol=1e-4)
    model = lightglue(SMALL, shallow(), calibration=calibration, observe=True)
    assert not any(node.op_type == 'QuantizeLinear' for node in model.graph.node)


def test_what_is_rounded_and_what_is_not(graph):
    """Q/DQ stand on both sides of the products that compute in FP8, and nowhere else; what is stored is FP8."""
    onnx.checker.check_model(graph, full_check=True)
    assert graph.opset_import[0].version == 21
    kinds = Counter(node.op_type for node in graph.graph.node)
    assert kinds['QuantizeLinear'] == 4 * 3 + 6  # the linears' inputs; what is compensated once more
    assert kinds['Gather'] == 6 + 2  # and two of the matches
    assert kinds['DequantizeLinear'] == kinds['QuantizeLinear'] + 2 * 5 + 2 * 4  # and the weights
    makers = {name: node for node in graph.graph.node for name in node.output}
    readers = [(name, node) for node in graph.graph.node for name in node.input]
    dequantised = {name for node in graph.graph.node if node.op_type == 'DequantizeLinear' for name in node.output}
    assert {node.op_type for name, node in readers if name in dequantised} == {'MatMul', 'Sub'}
    quantised = Counter(makers[node.input[0]].op_type for node in graph.graph.node if node.op_type == 'QuantizeLinear')
    assert quantised == {'Sub': 12, 'Concat': 6}  # the inputs, centred; those with what they lost
    float8 = [tensor for tensor in graph.graph.initializer if tensor.data_type == TensorProto.FLOAT8E4M3FN]
    assert len(float8) == len(graph.graph.initializer)
    assert sum(len(tensor.raw_data) for tensor in float8) > 2.2e6
    plain = [node for node in graph.graph.node if node.op_type == 'MatMul' and makers[node.input[1]].op_type != 'DequantizeLinear']
    assert len(plain) == 5 + 2 * 4  # input projection, frequencies, final projection, matchability, similarity; attentions
    types = read_types(graph.SerializeToString())
    types.require('fp8')
    assert types.heavy == {'fp16': 2 * 5 + 2 * 4 + 8 + 4, 'fp32': 1}


def test_weights_are_stored_in_a_quarter():
    """The whole network, as that is what is shipped."""
    network, layers = ours().matcher, 9
    linears = linear_members(layers)
    compensated = {name: np.arange(32 if name.endswith('project') else 64, dtype=np.int32) for name in linears}
    calibration = dataclasses.replace(plain_calibration(layers), fp8=frozenset(linears), peaks=dict.fromkeys(linears, 10.0),
                                      compensated=compensated)
    sizes = [len(lightglue(spec, network, calibration=chosen).SerializeToString())
             for spec, chosen in ((FP8, calibration), (SMALL, None))]
    assert sizes[0] <= 0.30 * sizes[1]


def test_stored_weights_are_the_nearest_e4m3_numbers(graph):
    exact = rebased(fold(shallow().tensors), plain_calibration()).blocks[1, 'cross'].update.weight
    stored = {tensor.name: tensor for tensor in graph.graph.initializer}
    constants = {node.output[0]: onnx.numpy_helper.to_array(node.attribute[0].t) for node in graph.graph.node
                 if node.op_type == 'Constant' and node.attribute[0].t.data_type == TensorProto.FLOAT16}
    for node in graph.graph.node:
        if node.op_type != 'DequantizeLinear' or node.input[0] not in stored:
            continue
        tensor, scales = stored[node.input[0]], constants[node.input[1]].astype(np.float32)
        if tuple(tensor.dims) != exact.T.shape:
            continue
        numbers = np.frombuffer(tensor.raw_data, ml_dtypes.float8_e4m3fn).reshape(tensor.dims).astype(np.float32)
        assert np.all(np.log2(scales) == np.round(np.log2(scales)))
        if np.allclose(numbers * scales, exact.T, rtol=0.1, atol=0.01):
            nearest = (exact.T / scales).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
            np.testing.assert_array_equal(numbers, nearest)
            assert 200 < np.abs(numbers).max() <= 448
            return
    pytest.fail('the weights of layers.1.cross.update are not in the graph')


@pytest.mark.parametrize('compensated', [[], [0, 3, 17]])
@pytest.mark.parametrize('centred', [False, True])
def test_a_small_linear_rounds_as_numpy_does(centred, compensated):
    """Weights of powers of two make the product exact, so that all bits can be compared."""
    rng = np.random.default_rng(1)
    x = (rng.standard_normal((2, 40, 32)) * 3).astype(np.float32)
    x[0, 0, :4] = 0, 1e-5, 100, -500  # nothing, too little, saturated
    centre = rng.standard_normal(32).astype(np.float16).astype(np.float32)
    weight = np.zeros((32, 32), np.float32)
    weight[np.arange(32), rng.permutation(32)] = 2.0 ** rng.integers(-3, 4, 32)
    layer, name = Linear(weight, np.zeros(32, np.float32)), 'layers.0.self.hidden'
    centres = {name: centre} if centred else {}
    calibration = dataclasses.replace(plain_calibration(), fp8=frozenset({name}), peaks={name: 20.0}, centres=centres,
                                      compensated={name: np.array(compensated, np.int32)} if compensated else {})
    found = run_linear(calibration, name, x, layer)
    around = centre if centred else np.zeros(32, np.float32)
    scale = np.float32(2.0 ** -4)  # 20 / 448 is less
    rounded = e4m3.rounded((x - around) / scale) * scale
    assert np.abs(rounded).max() == 448 * scale
    lost = x - around - rounded
    rounded[..., compensated] += e4m3.rounded(lost[..., compensated] / scale) * scale
    np.testing.assert_array_equal(found, rounded @ weight.T + weight @ around)
    left = np.abs(x - around - rounded)[1:]
    assert np.all(left[..., compensated] <= np.abs(lost[1:, :, compensated]) / 15 + 2.0 ** -10 * scale)


def test_a_linear_rounds_its_weights_and_keeps_the_centre_exact():
    rng = np.random.default_rng(2)
    x, weight = rng.standard_normal((2, 40, 64)).astype(np.float32), rng.standard_normal((48, 64)).astype(np.float32)
    weight *= np.float32(2) ** rng.integers(-8, 3, 48)[:, None]
    bias, centre = rng.standard_normal(48).astype(np.float32), (5 * rng.standard_normal(64)).astype(np.float16).astype(np.float32)
    name = 'layers.0.self.update'
    calibration = dataclasses.replace(plain_calibration(), fp8=frozenset({name}), peaks={name: 5.0}, centres={name: centre})
    found = run_linear(calibration, name, x + centre, Linear(weight, bias))
    scales = np.float32(2) ** np.ceil(np.log2(np.abs(weight).max(axis=1, keepdims=True) / 448))
    step = np.float32(2.0 ** -6)
    rounded = e4m3.rounded((x + centre - centre) / step) * step
    expected = rounded @ (e4m3.rounded(weight / scales) * scales).T + (bias + weight @ centre)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)
    assert np.abs(found - ((x + centre) @ weight.T + bias)).max() > 1e-2  # so that this says something
    # no value differs from the mean: nothing is left to round
    alone = run_linear(calibration, name, np.broadcast_to(centre, x.shape).copy(), Linear(weight, bias))
    np.testing.assert_allclose(alone, np.broadcast_to(weight @ centre + bias, alone.shape), rtol=1e-5, atol=1e-5)


def run_linear(calibration: Calibration, name: str, x: np.ndarray, layer: Linear) -> np.ndarray:
    """One linear as an emulation writes and runs it."""
    tensor = argument(Tensor(np.float32, x.shape))
    outputs = Rounding(Typed('fp32'), calibration, observe=False).linears(name, tensor, layer)
    model = stamp(build({'x': tensor}, {'y': op.relu(outputs[0]), 'z': outputs[0]}), 'test', SMALL, '')
    return _session(model, 1).run(['z'], {'x': x})[0]


def test_an_emulated_layer_equals_one_written_with_numpy(features, calibration):
    """Through the session that the backend makes, with its optimizations; but for values that lie between two numbers.

    Where one of a key falls the other way, by the last bit of a product, all points hear of it, and more follow: the means differ
    from run to run. A layer without the compensation of its inputs is beyond both bounds.
    """
    emulation = lightglue_stages(SMALL, shallow(), EarlyExits((1, 2)), calibration=calibration)['matcher-1']
    run, feed = _session(emulation, 2), matcher_feed(*features)
    found = dict(zip([tensor.name for tensor in run.get_outputs()],
                     run.run(None, {tensor.name: feed[tensor.name] for tensor in run.get_inputs()}), strict=True))
    net = rebased(fold(shallow().tensors), calibration)
    start = np.stack([f.descriptors for f in features]) @ net.project.weight.T + net.project.bias
    rotation = found['cosines'], found['sines']
    expected, unrounded = (numpy_layer(net, calibration, start, rotation, rounding) for rounding in (True, False))
    error, noise = (np.abs(found['next_state'] - state) for state in (expected, unrounded))
    assert np.mean(error) < 0.4 * np.mean(noise)  # seen: 0.01 to 0.25
    assert np.median(error) < 0.3 * np.median(noise)  # seen: 0.000003 to 0.17


def numpy_layer(net, calibration, x, rotation, rounding):
    """The first layer, rounded where the calibration says, or not at all."""
    def pair(values, peak):
        scale = np.float32(e4m3.scale_of(peak))
        return e4m3.rounded(values / scale) * scale if rounding else values

    def linear(name, values, layer):
        centre = calibration.centres[name].astype(np.float16).astype(np.float32)
        own = 0.99 * layer.weight if name in calibration.weights else layer.weight
        scales = np.array([e4m3.scale_of(peak) for peak in np.abs(own).max(axis=1)], np.float32)[:, None]
        weight, shift = layer.weight, layer.bias + layer.weight @ centre
        if not rounding:
            return (values - centre) @ weight.T + shift
        weight, inputs = e4m3.rounded(own / scales) * scales, calibration.compensated[name]
        once = pair(values - centre, calibration.peaks[name])
        lost = pair((values - centre - once)[..., inputs], calibration.peaks[name])
        return once @ weight.T + lost @ weight[:, inputs].T + shift

    def heads(values):
        return values.reshape(2, -1, 4, 64).transpose(0, 2, 1, 3)

    def rotate(values):
        return values * rotation[0] + np.concatenate([-values[..., 32:], values[..., :32]], axis=-1) * rotation[1]

    for name in BLOCKS:
        block, part = net.blocks[0, name], f'layers.0.{name}'
        q, v = (heads(linear(f'{part}.project', x, layer)) for layer in (block.query, block.value))
        if block.key is None:
            k, v = q[::-1], v[::-1]
        else:
            q, k = rotate(q), rotate(heads(linear(f'{part}.project', x, block.key)))
        logits = q @ k.transpose(0, 1, 3, 2)
        chances = np.exp(logits - logits.max(-1, keepdims=True))
        chances /= chances.sum(-1, keepdims=True)
        context = (chances @ v).transpose(0, 2, 1, 3).reshape(x.shape)
        hidden = linear(f'{part}.hidden', np.concatenate([x, context], axis=2), block.hidden)
        hidden = (hidden - hidden.mean(-1, keepdims=True)) / np.sqrt(hidden.var(-1, keepdims=True) + 1e-5)
        hidden = hidden * block.gain + block.shift
        x = x + linear(f'{part}.update', hidden * (ERF(hidden / np.sqrt(2)) + 1) / 2, block.update)
    return x


def test_models_say_what_they_are(calibration, graph, tmp_path):
    (tmp_path / 'calibration').write_bytes(calibration.content())
    digested = hashlib.sha256((tmp_path / 'calibration').read_bytes()).hexdigest()
    told = read_stamp(graph)
    assert (told['precision'], told['calibration_sha256']) == ('fp8', digested)
    assert Calibration.of_content(calibration.content()).sha256 == digested != plain_calibration().sha256
    emulation = lightglue(SMALL, shallow(), calibration=calibration)
    assert (read_stamp(emulation)['precision'], read_stamp(emulation)['calibration_sha256']) == ('fp32', digested)
    for precision in ('fp32', 'fp16'):
        with pytest.raises(EngineError, match='that is not'):
            read_types(emulation.SerializeToString()).require(precision)
    assert 'calibration_sha256' not in read_stamp(lightglue(SMALL, shallow()))


def test_stages_without_anything_in_fp8_are_called_fp16(calibration):
    first = dataclasses.replace(calibration, fp8=frozenset(name for name in LINEARS if name.startswith('layers.0.')))
    stages = lightglue_stages(FP8, shallow(), EarlyExits((1, 2)), calibration=first)
    assert {name: read_stamp(model)['precision'] for name, model in stages.items()} == {
        'matcher-1': 'fp8', 'matcher-2': 'fp16', 'assignment-1': 'fp16'}
    for model in stages.values():
        read_types(model.SerializeToString()).require(read_stamp(model)['precision'])
        assert read_stamp(model)['calibration_sha256'] == first.sha256


def test_the_backend_emulates_in_stages_what_it_emulates_whole(features, calibration):
    pair = dataclasses.replace(ours(), matcher=shallow())
    plain = OnnxRuntimeBackend(SMALL, pair, threads=2, early_exits=EarlyExits((1, 2)))
    emulated = OnnxRuntimeBackend(SMALL, pair, threads=2, early_exits=EarlyExits((1, 2)), calibration=calibration)
    assert 'fp8, ' in emulated.description
    assert 'fp32' not in emulated.description
    assert 'emulated in 12 members' in emulated.description
    for depth_confidence, layers in ((ALL_LAYERS, 2), (1e-9, 1)):
        thresholds = Thresholds(match=0.01, depth_confidence=depth_confidence)
        exact, rounded = (backend.match(features[0], features[1], thresholds) for backend in (plain, emulated))
        assert exact.layers == rounded.layers == layers
        assert f1(rounded.indices, exact.indices) > 0.9
        assert np.any(rounded.scores != exact.scores)
    whole = _session(lightglue(SMALL, shallow(), calibration=calibration), 2).run(None, matcher_feed(*features, match=0.01))[0]
    found = emulated.match(features[0], features[1], Thresholds(match=0.01, depth_confidence=ALL_LAYERS))
    assert f1(found.indices, whole) > 0.98


def changed(calibration: Calibration, **provenance) -> Calibration:
    return dataclasses.replace(calibration, provenance={**calibration.provenance, **provenance})


@pytest.mark.parametrize(('spec', 'change', 'message'), [
    (FP8, lambda c: None, 'needs a calibration'),
    (FP8, lambda c: changed(c, weights_sha256='0' * 64), 'made for weights_sha256 0000'),
    (FP8, lambda c: changed(c, max_keypoints=512), 'made for max_keypoints 512, not 256'),
    (SMALL, lambda c: changed(c, image_height=480), 'made for image_height 480, not 240'),
    (dataclasses.replace(SMALL, precision='fp16'), lambda c: c, 'given for an fp16 matcher'),
    (FP8, lambda c: dataclasses.replace(c, peaks={}), r'no peak of layers\.'),
    (FP8, lambda c: dataclasses.replace(c, peaks={**c.peaks, 'layers.1.self.update': 0.0}), r'layers\.1\.self\.update.* up to 0'),
    (FP8, lambda c: dataclasses.replace(c, peaks={**c.peaks, 'layers.1.self.update': 1e6}), 'goes up to 1e'),
    (FP8, lambda c: dataclasses.replace(c, peaks={**c.peaks, 'layers.1.self.update': math.nan}), 'goes up to nan'),
])
def test_what_does_not_fit_is_refused(calibration, spec, change, message):
    with pytest.raises(ConfigError, match=message):
        lightglue(spec, shallow(), calibration=change(calibration))


def test_the_extractor_has_no_fp8():
    with pytest.raises(ConfigError, match='which only the matcher has'):
        superpoint(EngineSpec(240, 328, 256, 'fp8'), ours().extractor)
