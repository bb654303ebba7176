"""Which backend is taken, and that nothing falls back silently; on a machine without a GPU or without TensorRT."""

import importlib.util

import numpy as np
import pytest
from support.networks import ours
from support.random_pairs import write_pair

from lightglue_trt_eval.predict.methods import open_methods
from lightglue_trt_ros.backends.onnxruntime import OnnxRuntimeBackend
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.early_exit import LAYERS
from lightglue_trt_ros.core.score_calibration import UNCALIBRATED
from lightglue_trt_ros.engines.engine_store import drafting
from lightglue_trt_ros.engines.gpu_info import probe
from lightglue_trt_ros.engines.manifest import GRAPH, TENSORS, Identity
from lightglue_trt_ros.engines.selection import open_backend
from lightglue_trt_ros.networks.fp8_calibration import Calibration, linear_members
from lightglue_trt_ros.utils.errors import EngineError

pytestmark = pytest.mark.networks

SMALL = {'image_height': 64, 'image_width': 80, 'max_keypoints': 32}


@pytest.fixture(autouse=True)
def no_gpu():
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


@pytest.mark.parametrize('gpu', [False, True])
def test_a_report_tells_of_a_gpu_that_is_not_used_where_there_is_one(monkeypatch, gpu):
    monkeypatch.setattr('lightglue_trt_ros.engines.gpu_info.has_gpu', lambda: gpu)
    frontends, warning = open_methods({'ours': MatcherConfig(**SMALL)})
    for frontend in frontends:
        frontend.close()
    assert warning.startswith('ours: running on ONNX Runtime, not on TensorRT: ') == gpu
    assert bool(warning) == gpu


def test_tensorrt_asked_for_is_refused_instead():
    with pytest.raises(EngineError):
        open_backend(MatcherConfig(backend='tensorrt', **SMALL))


@pytest.mark.parametrize('kind', [ImportError, OSError, RuntimeError, AttributeError])
def test_broken_tensorrt_falls_back_to_onnx_runtime_with_a_warning(monkeypatch, kind):
    def broken(*arguments):
        raise kind('libnvinfer.so.10: cannot open shared object file')

    monkeypatch.setattr('lightglue_trt_ros.engines.gpu_info.probe', broken)
    opened = open_backend(MatcherConfig(**SMALL))
    assert isinstance(opened.backend, OnnxRuntimeBackend)
    assert f'{kind.__name__}: libnvinfer.so.10' in opened.warning
    with pytest.raises(EngineError, match=r'libnvinfer\.so\.10'):
        open_backend(MatcherConfig(backend='tensorrt', **SMALL))


def test_onnxruntime_asked_for_warns_of_nothing():
    opened = open_backend(MatcherConfig(backend='onnxruntime', **SMALL))
    assert opened.warning == ''
    assert 'asked for' in opened.reason


@pytest.mark.parametrize('backend', ['auto', 'onnxruntime'])
def test_a_model_without_calibrated_scores_is_named_once(tmp_path, backend):
    config = MatcherConfig(backend=backend, weights=str(write_pair(tmp_path)), **SMALL)
    opened = open_backend(config)
    assert opened.backend.score_calibration == UNCALIBRATED
    assert opened.warning.count('has no scores.json') == 1
    assert not opened.without_gpu, 'a warning that reports show'


@pytest.mark.float8
def test_fp8_on_the_cpu_is_an_emulation_that_needs_a_calibration(tmp_path):
    config = MatcherConfig(backend='onnxruntime', precision='fp8', engine_dir=str(tmp_path),
                           **SMALL)
    with pytest.raises(EngineError, match='there is no FP8 calibration'):
        open_backend(config)
    spec, bases = config.engine_spec('fp32'), np.tile(np.eye(64, dtype=np.float32), (LAYERS, 2, 4, 1, 1))
    provenance = {'weights_sha256': ours().matcher.sha256, **{
        name: getattr(spec, name) for name in ('image_height', 'image_width', 'max_keypoints')}}
    residual, linears = np.eye(256, dtype=np.float32), linear_members(LAYERS)
    calibration = Calibration(residual, bases, {}, dict.fromkeys(linears, 64.0), frozenset(linears), provenance)
    identity = Identity.of_calibration(spec, ours().identity)
    with drafting(tmp_path, identity.name) as draft:
        draft.write(TENSORS, calibration.content())
        draft.write(GRAPH, b'graph')
        draft.publish(identity, {}, {'settings': {}, 'flops_share': 0.5, 'provenance': {}, 'frontier': []})
    opened = open_backend(config)
    opened.backend.close()
    assert 'emulated in 36 members' in opened.reason
    assert 'emulates' in opened.warning


def test_threads_that_nobody_chose_come_from_the_environment(monkeypatch):
    onnxruntime = pytest.importorskip('onnxruntime')
    seen = []
    real = onnxruntime.InferenceSession
    monkeypatch.setattr(onnxruntime, 'InferenceSession', lambda data, options, **more: (
        seen.append(options.intra_op_num_threads), real(data, options, **more))[1])
    config = MatcherConfig(**SMALL, backend='onnxruntime')
    for text, threads, expected in (('', 0, 0), ('3', 0, 3), ('3', 2, 2)):
        monkeypatch.setenv('LIGHTGLUE_TRT_THREADS', text)
        open_backend(config, threads=threads)
        assert set(seen) == {expected}
        seen.clear()
    monkeypatch.setenv('LIGHTGLUE_TRT_THREADS', 'many')
    with pytest.raises(EngineError, match="LIGHTGLUE_TRT_THREADS is 'many'"):
        open_backend(config)
