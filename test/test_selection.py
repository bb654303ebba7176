"""Which backend is taken, and that nothing falls back silently; on a machine without a GPU or without TensorRT."""

import importlib.util

import pytest
from networks import weights

from lightglue_trt_ros.backends.onnxruntime import OnnxRuntimeBackend
from lightglue_trt_ros.config import MatcherConfig
from lightglue_trt_ros.engines.machine import probe
from lightglue_trt_ros.errors import EngineError
from lightglue_trt_ros.selection import open_backend

SMALL = {'image_height': 64, 'image_width': 80, 'max_keypoints': 32}


@pytest.fixture(autouse=True)
def no_gpu():
    weights('superpoint')
    try:
        probe()
    except EngineError:
        return
    if importlib.util.find_spec('tensorrt') is not None:
        pytest.skip('this machine has a GPU and TensorRT: test/gpu asks what is taken here')


def test_auto_falls_back_with_a_warning_that_says_why():
    opened = open_backend(MatcherConfig(**SMALL))
    assert isinstance(opened.backend, OnnxRuntimeBackend)
    assert opened.warning.startswith('running on ONNX Runtime, not on TensorRT: ')
    assert 'auto' in opened.reason


def test_tensorrt_asked_for_is_refused_instead():
    with pytest.raises(EngineError):
        open_backend(MatcherConfig(backend='tensorrt', **SMALL))


def test_onnxruntime_asked_for_warns_of_nothing():
    opened = open_backend(MatcherConfig(backend='onnxruntime', **SMALL))
    assert opened.warning == ''
    assert 'asked for' in opened.reason


def test_fp8_needs_engines():
    with pytest.raises(EngineError, match='fp8'):
        open_backend(MatcherConfig(backend='onnxruntime', precision='fp8', **SMALL))
