"""Which precision each machine gets, and the reason it is given."""

from __future__ import annotations

import pytest

from lightglue_trt_ros.engines.precision import Decision, decide
from lightglue_trt_ros.errors import EngineError

ORIN, ADA, BLACKWELL = (8, 7), (8, 9), (12, 0)


@pytest.mark.parametrize(('capability', 'version', 'flavour', 'calibrated', 'matcher', 'decided_by'), [
    (ORIN, '8.6.2', 'tensorrt', True, 'fp16', 'compute capability 8.7 is below 8.9'),
    (ORIN, '10.3.0', 'tensorrt', True, 'fp16', 'compute capability 8.7 is below 8.9'),
    (ADA, '8.6.1', 'tensorrt', True, 'fp16', 'TensorRT 8.6.1 is older than 10'),
    (ADA, '10.16.1.11', 'tensorrt', False, 'fp16', 'no calibrated FP8 matcher'),
    (ADA, '10.0.1', 'tensorrt', True, 'fp8', 'a calibration that passed'),
    (ADA, '1.7.1.116', 'tensorrt_rtx', True, 'fp8', 'a calibration that passed'),
    (BLACKWELL, '11.0.0.114', 'tensorrt', True, 'fp8', 'compute capability 12.0'),
])
def test_auto_says_which_of_the_three_decided(capability, version, flavour, calibrated, matcher, decided_by):
    decision = decide('auto', capability, version, flavour, calibrated)
    assert (decision.extractor, decision.matcher) == ('fp16', matcher)
    assert decided_by in decision.reason


@pytest.mark.parametrize('asked', ['fp32', 'fp16'])
def test_a_plain_precision_is_taken_at_its_word_everywhere(asked):
    for capability, version in ((ORIN, '8.6.2'), (ADA, '10.3.0')):
        assert decide(asked, capability, version, 'tensorrt', True) == Decision(asked, asked, f'{asked} was asked for')


@pytest.mark.parametrize(('capability', 'version', 'flavour', 'calibrated', 'message'), [
    (ORIN, '10.3.0', 'tensorrt', True, r'8\.7 is below 8\.9.*use fp16 or auto'),
    ((8, 6), '1.7.1.116', 'tensorrt_rtx', True, r'8\.6 is below 8\.9'),
    (ADA, '8.6.1', 'tensorrt', True, r'TensorRT 8\.6\.1 is older than 10'),
    (ADA, '10.3.0', 'tensorrt', False, 'no calibrated FP8 graph'),
])
def test_fp8_is_refused_before_anything_is_built(capability, version, flavour, calibrated, message):
    with pytest.raises(EngineError, match=message):
        decide('fp8', capability, version, flavour, calibrated)


def test_fp8_is_for_the_matcher():
    decision = decide('fp8', ADA, '10.3.0', 'tensorrt', True)
    assert (decision.extractor, decision.matcher) == ('fp16', 'fp8')


def test_an_unknown_precision_and_an_unreadable_version_are_named():
    with pytest.raises(EngineError, match="'int8'"):
        decide('int8', ADA, '10.3.0', 'tensorrt', True)
    with pytest.raises(EngineError, match="'dev'"):
        decide('auto', ADA, 'dev', 'tensorrt', True)
