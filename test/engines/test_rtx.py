"""Real builds without a GPU: TensorRT-RTX's wheels build for a named compute capability on any x86-64 machine."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections import Counter
from functools import cache

import numpy as np
import pytest
from onnx import TensorProto, helper
from support.networks import ours
from support.onnx_graphs import fp8_graph, topk_graph

from lightglue_trt_ros.core.config import EngineSpec
from lightglue_trt_ros.core.early_exit import EarlyExits
from lightglue_trt_ros.engines.precision_check import Plan, TimingCache, audit
from lightglue_trt_ros.engines.tensorrt_api import BuildOptions, TensorRT
from lightglue_trt_ros.networks.fp8_calibration import Calibration, linear_members
from lightglue_trt_ros.networks.lightglue import lightglue, lightglue_engines
from lightglue_trt_ros.networks.superpoint import superpoint
from lightglue_trt_ros.networks.typed_onnx import read_stamp
from lightglue_trt_ros.utils.errors import ConfigError, EngineError

pytestmark = pytest.mark.networks

SPECS = (EngineSpec(480, 640, 1024, 'fp16'), EngineSpec(240, 320, 512, 'fp16'))
NETWORKS = {'superpoint': (superpoint, 'extractor'), 'lightglue': (lightglue, 'matcher')}


@cache
def graph(network: str, spec: EngineSpec) -> bytes:
    write, name = NETWORKS[network]
    return write(spec, getattr(ours(), name)).SerializeToString()


@cache
def build(rtx: TensorRT, network: str, spec: EngineSpec, sm: int) -> tuple[Plan, int]:
    """What is built, once for all tests, and the bytes of its graph."""
    data = graph(network, spec)
    return rtx.build(data, spec.precision, BuildOptions(target_sm=sm)), len(data)


@pytest.mark.parametrize(('spec', 'sm'), [(SPECS[0], 89), (SPECS[1], 86)], ids=str)
@pytest.mark.parametrize('network', NETWORKS)
def test_both_networks_build_in_fp16_and_in_silence(rtx, caplog, network, spec, sm):
    with caplog.at_level(logging.WARNING, 'tensorrt'):
        plan, graph_size = build(rtx, network, spec, sm)
    assert not caplog.records
    assert plan.strongly_typed
    assert plan.timing_cache == TimingCache()  # TensorRT-RTX times nothing while it builds
    assert 'strongly typed' in audit(plan, 'fp16')
    # weights in FP16, and beside them up to 6 MB of code
    assert 0.9 * graph_size < len(plan.data) < graph_size + 6e6


def test_fp32_weights_double_the_plan(rtx):
    """So that the size above says something."""
    half, _ = build(rtx, 'lightglue', SPECS[1], 86)
    single, graph_size = build(rtx, 'lightglue', dataclasses.replace(SPECS[1], precision='fp32'), 86)
    assert len(single.data) > 1.6 * len(half.data)
    assert len(single.data) > 0.9 * graph_size


def test_progress_is_told_and_can_stop_a_build(rtx):
    seen = []
    build_small = BuildOptions(target_sm=89)
    rtx.build(topk_graph(100), 'fp32', build_small, lambda phase, step, total: seen.append((phase, step, total)))
    assert len({phase for phase, _, _ in seen}) > 5
    assert all(0 <= step <= total for _, step, total in seen)

    def stop(phase, step, total):
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        rtx.build(topk_graph(100), 'fp32', build_small, stop)


def test_more_keypoints_than_topk_takes_are_refused(rtx):
    with pytest.raises(ConfigError, match='3840'):
        EngineSpec(480, 640, 4096, 'fp16')
    assert rtx.build(topk_graph(3840), 'fp32', BuildOptions(target_sm=86)).data
    with pytest.raises(EngineError, match=r'K exceeds the maximum value allowed \(3840\)'):
        rtx.build(topk_graph(4096), 'fp32', BuildOptions(target_sm=86))


def test_fp8_builds_for_ada_and_is_refused_for_ampere(rtx):
    assert rtx.build(fp8_graph(), 'fp8', BuildOptions(target_sm=89)).data
    with pytest.raises(EngineError, match=r'sm86.*fp8_e4m3'):
        rtx.build(fp8_graph(), 'fp8', BuildOptions(target_sm=86))


def test_a_target_and_a_graph_that_it_does_not_know(rtx):
    with pytest.raises(EngineError, match=r'no target SM87: it has .*SM86'):
        rtx.build(topk_graph(100), 'fp32', BuildOptions(target_sm=87))
    with pytest.raises(EngineError, match='cannot load this engine'):
        rtx.load(b'no engine at all, but long enough to be one' * 10)


def test_parser_errors_name_the_node(rtx):
    nodes = [helper.make_node('MatMul', ['x', 'x'], ['p'], 'MatMul_0'), helper.make_node('Det', ['p'], ['y'], 'Det_0')]
    graph = helper.make_graph(nodes, 'odd', [helper.make_tensor_value_info('x', TensorProto.FLOAT, [8, 8])],
                              [helper.make_tensor_value_info('y', TensorProto.FLOAT, [])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8)
    with pytest.raises(EngineError, match=r'cannot parse the graph: at node 1 \(Det Det_0\)'):
        rtx.build(model.SerializeToString(), 'fp32', BuildOptions(target_sm=89))


def calibration(spec: EngineSpec) -> Calibration:
    """One that is right in form: for a builder the numbers do not matter."""
    layers = ours().layers
    linears = linear_members(layers)
    return Calibration(
        np.eye(256, dtype=np.float32), np.broadcast_to(np.eye(64, dtype=np.float32), (layers, 2, 4, 64, 64)),
        {linear: np.full(256 if linear.endswith('project') else 512, 0.5, np.float32) for linear in linears},
        dict.fromkeys(linears, 10.0), frozenset(linears),
        {'weights_sha256': ours().matcher.sha256, 'image_height': spec.image_height, 'image_width': spec.image_width,
         'max_keypoints': spec.max_keypoints},
        {linear: np.arange(0, 256, 8 if linear.endswith('project') else 4, dtype=np.int32) for linear in linears})


def products(plan: bytes) -> Counter[tuple[str, ...]]:
    """What a plan of this TensorRT-RTX says of its matrix products: how many there are by the types of both sides."""
    text = plan.decode('latin1')
    kinds = dict(re.findall(r'tensor=\{.* name="([^"]*)".* type=(\w+) \}', text))
    sides = re.findall(r'fully_connected=\{ name="[^"]*" output=\{[^}]*\} input=\{"([^"]*)" "([^"]*)"', text)
    return Counter(tuple(kinds[side] for side in pair) for pair in sides)


def test_the_calibrated_matcher_computes_in_fp8(rtx, caplog):
    """Queries, keys and values of an attention become one product: three linears in each of the 12 blocks."""
    spec = dataclasses.replace(SPECS[0], precision='fp8')
    data = lightglue(spec, ours().matcher, calibration=calibration(spec)).SerializeToString()
    with caplog.at_level(logging.WARNING, 'tensorrt'):
        plan = rtx.build(data, 'fp8', BuildOptions(target_sm=89))
    assert not caplog.records
    assert plan.strongly_typed
    assert products(plan.data) == {('fp8_e4m3', 'fp8_e4m3'): 36, ('half', 'half'): 3, ('float', 'float'): 1}
    widths = Counter(re.findall(rb'dims=\{ (\d+) \d+ \} name="\w+_dconst".* type=fp8_e4m3 ', plan.data))
    assert widths == {b'288': 12, b'576': 24}, 'with an eighth more inputs, those that are compensated'
    fused = Counter(re.findall(rb'fmha::(A\w+)_traits', plan.data))  # named twice in the code of each fused attention
    assert fused == {b'Ampere_hmma_fp16': 24}
    half, _ = build(rtx, 'lightglue', SPECS[0], 89)
    assert len(plan.data) < 0.85 * len(half.data)
    assert ('fp8_e4m3', 'fp8_e4m3') not in products(half.data)


def test_stages_of_the_calibrated_matcher_build_beside_their_fp16_heads(rtx, caplog):
    spec = dataclasses.replace(SPECS[0], precision='fp8')
    models = lightglue_engines(spec, ours().matcher, EarlyExits((0, 4, 6)), calibration=calibration(spec))
    found = {}
    with caplog.at_level(logging.WARNING, 'tensorrt'):
        for name, model in models.items():
            plan = rtx.build(model.SerializeToString(), read_stamp(model)['precision'], BuildOptions(target_sm=89))
            found[name] = products(plan.data)['fp8_e4m3', 'fp8_e4m3']
    assert not caplog.records
    assert found == {'matcher-1-4': 24, 'matcher-5-6': 12, 'assignment-0': 0, 'assignment-4': 0}
