"""The adapter against stand-ins that have exactly what each TensorRT version has: typed wherever that exists, and never less."""

from __future__ import annotations

import logging
import sys
import types
from typing import Any

import numpy as np
import pytest
from onnx import helper
from support.fake_tensorrt import VERSIONS, fake_tensorrt
from support.networks import ours
from support.onnx_graphs import small_graph

from lightglue_trt_ros.core.config import EngineSpec
from lightglue_trt_ros.engines import tensorrt_api as adapter
from lightglue_trt_ros.engines.precision_check import TimingCache, audit, read_types
from lightglue_trt_ros.engines.tensorrt_api import BuildOptions, TensorRT, open_tensorrt
from lightglue_trt_ros.networks.lightglue import lightglue
from lightglue_trt_ros.networks.superpoint import superpoint
from lightglue_trt_ros.utils.errors import DeviceMemoryError, EngineError

TYPED = [version for version in VERSIONS if not version.startswith('8')]


def open_fake(version: str, **differences) -> tuple[TensorRT, Any]:
    module = fake_tensorrt(version, **differences)
    return TensorRT('tensorrt_rtx' if module.has.get('rtx') else 'tensorrt', module), module


@pytest.mark.parametrize('version', VERSIONS)
@pytest.mark.parametrize('precision', ['fp16', 'fp32'])
def test_every_version_builds_what_was_asked(version, precision):
    trt, module = open_fake(version)
    plan = trt.build(small_graph(precision), precision, BuildOptions(workspace_mib=256, opt_level=2))
    assert plan.strongly_typed is (version in TYPED)
    assert audit(plan, precision).startswith(precision)
    assert {layer.precision for layer in plan.layers if layer.name == 'Conv_0'} == {precision}
    assert module.config.pools == {'WORKSPACE': 256 << 20}
    assert module.config.builder_optimization_level == 2
    assert 'TF32' not in module.config.flags


@pytest.mark.parametrize('version', VERSIONS)
def test_outputs_come_with_channels_last_where_that_is_asked_for(version):
    trt, module = open_fake(version)
    trt.build(small_graph(), 'fp16', BuildOptions())
    names = [output.name for output in module.network.outputs]
    assert len(names) > 1
    assert {output.allowed_formats for output in module.network.outputs} == {7}, 'as it was'
    trt.build(small_graph(), 'fp16', BuildOptions(channels_last=(names[0],)))
    assert [output.allowed_formats == 1 << int(module.TensorFormat.HWC8) for output in module.network.outputs] == [
        name == names[0] for name in names]


@pytest.mark.parametrize('version', TYPED)
def test_strong_typing_is_asked_for_and_precision_flags_are_not(version):
    trt, module = open_fake(version)
    trt.build(small_graph(), 'fp16', BuildOptions())
    assert ('network', 1 << int(module.NetworkDefinitionCreationFlag.STRONGLY_TYPED)) in module.calls
    assert not module.config.flags


def test_a_version_past_the_flags_is_typed_without_them():
    trt, module = open_fake('11.0.0.114', network=None)
    plan = trt.build(small_graph(), 'fp16', BuildOptions())
    assert plan.strongly_typed
    assert ('network', 0) in module.calls
    assert '1 in fp16' in audit(plan, 'fp16')


def test_weakly_typed_build_pins_fp32_layers_and_runs_conv_in_fp16():
    trt, module = open_fake('8.6.1')
    plan = trt.build(small_graph(), 'fp16', BuildOptions())
    assert ('network', 1 << int(module.NetworkDefinitionCreationFlag.EXPLICIT_BATCH)) in module.calls
    assert module.config.flags == {'FP16', 'OBEY_PRECISION_CONSTRAINTS'}
    pins = {layer.name: getattr(layer.precision, 'name', None) for layer in module.network.layers}
    assert {name for name, pin in pins.items() if pin == 'FLOAT'} == {
        'Softmax_0', '(Unnamed Layer* 1) [Shuffle]', 'Add_1', 'Greater_0', 'ArgMax_0', 'MatMul_0'}
    assert {name for name, pin in pins.items() if pin == 'HALF'} == {'Conv_0'}
    outputs = {layer.name: {index: kind.name for index, kind in layer.output_types.items()} for layer in module.network.layers}
    assert outputs['Softmax_0'] == {0: 'FLOAT'}
    assert not outputs['ArgMax_0']  # an index stays an integer
    assert not outputs['Greater_0']
    assert plan.fp32_nodes == 1


def test_an_fp32_engine_needs_no_flags_on_8_6():
    trt, module = open_fake('8.6.1')
    trt.build(small_graph('fp32'), 'fp32', BuildOptions())
    assert not module.config.flags
    assert all(layer.precision is None for layer in module.network.layers)


@pytest.mark.parametrize('missing', ['FP16', 'OBEY_PRECISION_CONSTRAINTS'])
def test_neither_typing_nor_flags_is_an_error(missing):
    flags = tuple({'FP16', 'OBEY_PRECISION_CONSTRAINTS'} - {missing})
    trt, _ = open_fake('10.3.0', network=('EXPLICIT_BATCH',), builder=flags)
    with pytest.raises(EngineError, match=f'neither strong typing nor BuilderFlag.{missing}'):
        trt.build(small_graph(), 'fp16', BuildOptions())


def test_layers_that_cannot_be_pinned_are_an_error():
    trt, _ = open_fake('8.6.1', pins=False)
    with pytest.raises(EngineError, match='nor pin Conv_0'):
        trt.build(small_graph(), 'fp16', BuildOptions())


def test_a_network_that_came_out_untyped_is_an_error():
    trt, module = open_fake('10.3.0')
    make = module.Builder
    module.Builder = lambda log: _forgetful(make(log))
    with pytest.raises(EngineError, match='made another'):
        trt.build(small_graph(), 'fp16', BuildOptions())


def _forgetful(builder):
    make = builder.create_network
    builder.create_network = lambda flags=0: make(0)
    return builder


def test_a_graph_of_another_precision_is_refused():
    trt, _ = open_fake('10.3.0')
    with pytest.raises(EngineError, match=r'not fp16: export it in fp16.*2 in fp32'):
        trt.build(small_graph('fp32'), 'fp16', BuildOptions())
    with pytest.raises(EngineError, match='not fp32'):
        trt.build(small_graph(), 'fp32', BuildOptions())
    with pytest.raises(EngineError, match=r'not fp8.*float8 tensors: none'):
        trt.build(small_graph(), 'fp8', BuildOptions())
    with pytest.raises(EngineError, match='not an ONNX model'):
        trt.build(b'junk', 'fp16', BuildOptions())


@pytest.mark.parametrize('version', VERSIONS)
def test_parser_errors_name_their_node(version):
    trt, _ = open_fake(version)
    extra = (helper.make_node('Unsupported', ['y'], ['z'], 'Odd_7', domain='own'),)
    with pytest.raises(EngineError, match=r'node 11 \(Unsupported Odd_7\): no importer for Unsupported'):
        trt.build(small_graph(extra=extra), 'fp16', BuildOptions())


def test_a_failed_build_tells_what_tensorrt_said():
    trt, module = open_fake('10.3.0')
    module.fail = 'Could not find any implementation for node Conv_0'
    with pytest.raises(EngineError, match='built no engine: Could not find any implementation'):
        trt.build(small_graph(), 'fp16', BuildOptions())


def test_no_builder_is_an_error():
    """What pybind raises where TensorRT 8.6 and 10 return none: there is no GPU."""
    def none(log):
        raise TypeError('pybind11::init(): factory function returned nullptr')
    trt, module = open_fake('8.6.1')
    module.Builder = none
    with pytest.raises(EngineError, match='could not make a builder'):
        trt.build(small_graph(), 'fp16', BuildOptions())


def test_progress_comes_from_the_monitor_or_marks_both_ends():
    for version, expected in (('10.3.0', [(0, 3), (1, 3), (2, 3), (3, 3), (3, 3)]), ('8.6.1', [(0, 1), (1, 1)])):
        seen = []
        open_fake(version)[0].build(small_graph(), 'fp16', BuildOptions(), lambda *told, seen=seen: seen.append(told[1:]))
        assert seen == expected


@pytest.mark.parametrize('error', [KeyboardInterrupt, OSError])
def test_what_progress_raises_stops_the_build(error):
    steps = []

    def stop(phase, step, total):
        steps.append(step)
        if step == 1:
            raise error
    with pytest.raises(error):
        open_fake('10.12.0.36')[0].build(small_graph(), 'fp16', BuildOptions(), stop)
    assert steps == [0, 1]


def test_options_reach_the_builder():
    trt, module = open_fake('8.6.1')
    sources = ('EDGE_MASK_CONVOLUTIONS', 'JIT_CONVOLUTIONS')
    plan = trt.build(small_graph(), 'fp16', BuildOptions(tactic_sources=sources, timing_cache=TimingCache(b'mine')))
    assert ('tactic sources', 0b11000) in module.calls
    assert plan.timing_cache.data == b'mine+1'
    with pytest.raises(EngineError, match='no tactic source CUDNN: it has EDGE_MASK_CONVOLUTIONS'):
        open_fake('11.0.0.114')[0].build(small_graph(), 'fp16', BuildOptions(tactic_sources=('CUDNN',)))


def test_a_timing_cache_of_another_machine_is_passed_over(caplog):
    trt, _ = open_fake('10.3.0')
    with caplog.at_level(logging.WARNING, 'tensorrt'):
        assert trt.build(small_graph(), 'fp16', BuildOptions(timing_cache=TimingCache(b'other GPU'))).timing_cache.data == b'+1'
    assert 'belongs to another GPU' in caplog.text


def test_the_next_build_takes_the_timing_cache_as_it_is():
    """TensorRT 8.6 cannot read back what it timed of fused regions."""
    trt, module = open_fake('8.6.1')
    first = trt.build(small_graph(), 'fp16', BuildOptions())
    second = trt.build(small_graph(), 'fp16', BuildOptions(timing_cache=first.timing_cache))
    assert second.timing_cache.made is first.timing_cache.made
    assert [call for call in module.calls if call[0] == 'timing cache'] == [('timing cache', b'')], 'none is read'
    assert trt.build(small_graph(), 'fp16', BuildOptions(timing_cache=TimingCache(second.timing_cache.data))).timing_cache.made
    assert ('timing cache', second.timing_cache.data) in module.calls


def test_only_rtx_builds_for_another_gpu():
    trt, module = open_fake('1.7.1.116')
    plan = trt.build(small_graph(), 'fp16', BuildOptions(target_sm=89))
    assert ('compute capability', 'SM89', 0) in module.calls
    assert module.config.num_compute_capabilities == 1
    assert plan.layers == ()
    assert 'strongly typed; layers not inspected' in audit(plan, 'fp16')
    with pytest.raises(EngineError, match=r'no target SM87: it has .*SM86'):
        trt.build(small_graph(), 'fp16', BuildOptions(target_sm=87))
    with pytest.raises(EngineError, match='SM89 was asked for, but TensorRT builds only for the GPU it runs on'):
        open_fake('10.3.0')[0].build(small_graph(), 'fp16', BuildOptions(target_sm=89))


def test_an_engine_is_described_and_a_damaged_one_refused():
    trt, _ = open_fake('8.6.1')
    assert trt.describe(trt.load(b'{}')) == {
        'image': ((480, 640), np.uint8), 'descriptors': ((1024, 256), np.float16),
        'logits': ((1, 60, 80, 72), np.float16)}, 'channels last, padded to a multiple of 8'
    with pytest.raises(EngineError, match='cannot load this engine: Version tag does not match'):
        trt.load(b'old')


def test_types_of_a_graph():
    found = read_types(small_graph())
    assert found.heavy == {'fp16': 1, 'fp32': 1}
    assert {name: found.tensors[name] for name in ('x', 'sum', 'soft', 'seen', 'best')} == {
        'x': 'fp16', 'sum': 'fp16', 'soft': 'fp32', 'seen': 'bool', 'best': 'int64'}


def test_opening_takes_tensorrt_before_rtx_and_says_what_to_install(monkeypatch):
    for name in ('tensorrt', 'tensorrt_rtx', 'tensorrt_rtx_libs', 'tensorrt_rtx_bindings'):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(EngineError, match=r'python3-libnvinfer.*pip install tensorrt.*tensorrt-rtx-cu12-bindings'):
        open_tensorrt()
    monkeypatch.setitem(sys.modules, 'tensorrt_rtx_libs', types.ModuleType('tensorrt_rtx_libs'))
    monkeypatch.setitem(sys.modules, 'tensorrt_rtx_bindings', fake_tensorrt('1.7.1.116'))
    assert open_tensorrt().name == 'tensorrt_rtx'
    monkeypatch.setitem(sys.modules, 'tensorrt', fake_tensorrt('10.16.1.11'))
    assert (open_tensorrt().name, open_tensorrt().version) == ('tensorrt', '10.16.1.11')
    assert open_tensorrt('rtx').name == 'tensorrt_rtx'


def test_an_old_or_hollow_tensorrt_is_named(monkeypatch):
    old = fake_tensorrt('8.6.1')
    old.__version__ = '8.5.2'
    monkeypatch.setitem(sys.modules, 'tensorrt', old)
    with pytest.raises(EngineError, match=r'8\.5\.2 is too old.*python3-libnvinfer'):
        open_tensorrt('tensorrt')
    monkeypatch.setitem(sys.modules, 'tensorrt', types.ModuleType('tensorrt'))  # what an uninstalled one leaves behind
    with pytest.raises(EngineError, match='tells no version'):
        open_tensorrt('tensorrt')


def test_the_log_of_a_module_is_one(caplog):
    module = fake_tensorrt('10.3.0')
    log = adapter._log_of(module)
    assert adapter._log_of(module) is log
    severity = module.ILogger.Severity
    with caplog.at_level(logging.INFO, 'tensorrt'):
        log.log(severity.WARNING, 'careful')
        log.log(severity.INFO, 'chatter')
    assert [record.message for record in caplog.records] == ['careful']


@pytest.mark.slow
@pytest.mark.parametrize(('write', 'name', 'singles'), [(superpoint, 'extractor', 1), (lightglue, 'matcher', 1)])
def test_the_islands_of_the_real_networks_are_pinned_on_8_6(write, name, singles):
    trt, module = open_fake('8.6.1')
    data = write(EngineSpec(64, 80, 8, 'fp16'), getattr(ours(), name)).SerializeToString()
    plan = trt.build(data, 'fp16', BuildOptions())
    assert plan.fp32_nodes == singles
    assert f'{singles} in fp32' in audit(plan, 'fp16')
    free = [layer for layer in module.network.layers if layer.precision is None]
    assert not [layer.name for layer in free if layer.type.name not in ('CONSTANT', 'CAST')
                and any(tensor.dtype.name == 'FLOAT' for tensor in layer.outputs)]
    pinned = [layer for layer in module.network.layers if layer.precision is module.DataType.FLOAT]
    assert len(pinned) > 20
    assert not [layer.name for layer in pinned if any(tensor.dtype.name == 'HALF' for tensor in layer.outputs)]
    assert not [layer.name for layer in pinned for index in layer.output_types if layer.outputs[index].dtype.name != 'FLOAT']


@pytest.mark.parametrize('version', VERSIONS)
def test_contexts_work_in_the_memory_they_are_given(version):
    module = fake_tensorrt(version)
    trt = TensorRT('tensorrt_rtx' if version.startswith('1.') else 'tensorrt', module)
    engine = trt.load(b'{}')
    assert trt.activation_bytes(engine) == 4096
    context = trt.context(engine, 0x7f00, 8192)
    assert (context.device_memory if version.startswith('8.') else context.given) in (0x7f00, (0x7f00, 8192))
    module.fail = 'out of memory'
    with pytest.raises(DeviceMemoryError, match='exhausted'):
        trt.context(engine, 0x7f00, 8192)
