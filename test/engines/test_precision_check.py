"""The inspector's words, and the audit that finds an engine built in another precision."""

from __future__ import annotations

import json

import pytest

from lightglue_trt_ros.engines.precision_check import LayerInfo, Plan, TimingCache, audit, read_layers
from lightglue_trt_ros.utils.errors import EngineError


def layer(name: str, kind: str, dtype: str) -> dict:
    return {'Name': name, 'LayerType': kind, 'Inputs': [{'Format/Datatype': dtype}], 'Outputs': [{'Format/Datatype': dtype}]}


def plan_of(*layers: dict, typed: bool = True, fp32_nodes: int = 0, size: int = 100) -> Plan:
    return Plan(bytes(size), TimingCache(), read_layers(json.dumps({'Layers': layers})), 1.0, typed, fp32_nodes, 100)


@pytest.mark.parametrize(('text', 'precision'), [
    ('Row major linear FP16 format', 'fp16'), ('Channel major FP16 format where channel % 8 == 0', 'fp16'), ('Half', 'fp16'),
    ('Row major linear FP32', 'fp32'), ('Float', 'fp32'), ('BFloat16', 'bf16'), ('FP8 E4M3', 'fp8'),
    ('Row major Int8 format', 'int8'), ('Int32', 'int32'), ('Int64', 'int64'), ('UInt8', 'uint8'),
    ('Bool', 'bool'), ('something new', 'unknown')])
def test_the_inspectors_words_for_types(text, precision):
    assert read_layers(json.dumps({'Layers': [layer('a', 'gemm', text)]}))[0].precision == precision
    split = {'Name': 'a', 'LayerType': 'gemm', 'Inputs': [], 'Outputs': [{'Format': 'Row major', 'Datatype': text.split()[-1]}]}
    assert read_layers(json.dumps({'Layers': [split]}))[0].precision in (precision, 'unknown')


def test_a_layer_computes_in_what_it_reads():
    where = {'Name': 'w', 'LayerType': 'kgen', 'Inputs': [{'Format/Datatype': 'Bool'}, {'Format/Datatype': 'Half'}],
             'Outputs': [{'Format/Datatype': 'Float'}]}
    assert read_layers(json.dumps({'Layers': [where]})) == (LayerInfo('w', 'kgen', 'fp16'),)


@pytest.mark.parametrize('text', ['', 'null', '{}', '{"Layers": ["a name alone"]}'])
def test_an_inspector_without_details_is_an_error(text):
    with pytest.raises(EngineError, match='inspector'):
        read_layers(text)


def test_the_audit_finds_an_engine_that_is_silently_fp32():
    """What a guarded FP16 flag does on a builder that lost it."""
    with pytest.raises(EngineError, match=r'fp16 engine was asked for.*2 in fp32'):
        audit(plan_of(layer('Conv_0', 'CaskConvolution', 'Row major linear FP32'), layer('m', 'gemm', 'Float')), 'fp16')


def test_the_audit_allows_the_islands_and_no_more():
    half, single = layer('a', 'gemm', 'Half'), layer('b', 'gemm', 'Float')
    assert '1 in fp16, 1 in fp32' in audit(plan_of(half, single, fp32_nodes=1), 'fp16')
    with pytest.raises(EngineError, match=r'2 in fp32 \(1 belong in fp32'):
        audit(plan_of(half, single, single, fp32_nodes=1), 'fp16')
    with pytest.raises(EngineError, match='fp32 engine'):
        audit(plan_of(half, single), 'fp32')
    with pytest.raises(EngineError, match='fp8 engine'):
        audit(plan_of(half), 'fp8')
    assert '1 in fp8' in audit(plan_of(half, layer('c', 'gemm', 'FP8')), 'fp8')
    assert 'fp16' in audit(plan_of(layer('_gemm_mha_v2_myl0_4', 'kgen', 'Half'), layer('light', 'kgen', 'Float')), 'fp16')


def test_the_audit_weighs_closed_regions():
    region = layer('{ForeignNode[Cast_0...Where_9]}', 'Myelin', 'Row major linear FP32')
    assert '1 fused regions closed' in audit(plan_of(region, typed=False, size=130), 'fp16')
    with pytest.raises(EngineError, match=r'2\.1 times as large'):
        audit(plan_of(region, typed=False, size=210), 'fp16')


def test_nothing_to_audit_is_an_error_without_strong_typing():
    with pytest.raises(EngineError, match='its precision is unknown'):
        audit(plan_of(typed=False), 'fp16')
