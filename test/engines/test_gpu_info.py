"""The GPU and the precision it gets: against a PyCUDA that answers as the real one does, and on this machine as it is."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from lightglue_trt_ros.engines.gpu_info import Decision, Machine, _available_mib, decide, probe, target
from lightglue_trt_ros.utils.errors import EngineError

MIB = 1 << 20
ORIN, ADA, BLACKWELL = (8, 7), (8, 9), (12, 0)


class FakePycuda(ModuleType):
    """pycuda.driver with one GPU. Keeps account of contexts; a call named in `failing` raises in these words."""

    class Error(Exception):
        pass

    MemoryError = type('MemoryError', (Error,), {})

    device_attribute = SimpleNamespace(MULTIPROCESSOR_COUNT='multiprocessors', INTEGRATED='integrated')

    def __init__(self, *, name='NVIDIA RTX 2000 Ada', capability=ADA, integrated=0, free=6000 * MIB, **failing):
        super().__init__('pycuda.driver')
        self.facts, self.failing, self.stack, self.retained = (name, capability, integrated, free), failing, [], 0

    def told(self, function, value=None):
        if function in self.failing:
            raise self.Error(f'{function} failed: {self.failing[function]}')
        return value

    def init(self):
        self.told('cuInit')

    def get_driver_version(self):
        return 12060

    def Device(self, index):  # noqa: N802
        name, capability, integrated, _ = self.facts
        attributes = {'multiprocessors': 22, 'integrated': integrated}
        return self.told('cuDeviceGet', SimpleNamespace(name=lambda: name, compute_capability=lambda: capability,
                                                        get_attribute=attributes.__getitem__,
                                                        retain_primary_context=self.retain))

    def retain(self):
        self.told('cuDevicePrimaryCtxRetain')
        self.retained += 1
        return SimpleNamespace(push=lambda: self.stack.append(1), pop=self.stack.pop, detach=self.release)

    def release(self):
        self.retained -= 1

    def Stream(self):  # noqa: N802
        assert self.stack, 'streams are made in a context'
        return self.told('cuStreamCreate', SimpleNamespace(synchronize=lambda: None))

    def mem_get_info(self):
        assert self.stack == [1], 'memory is asked of a current context'
        return self.told('cuMemGetInfo', (self.facts[3], 16380 * MIB))


@pytest.fixture
def pycuda(monkeypatch):
    """A function that installs such a PyCUDA and gives it."""
    def install(**settings):
        module, package = FakePycuda(**settings), ModuleType('pycuda')
        vars(package)['driver'] = module
        monkeypatch.setitem(sys.modules, 'pycuda', package)
        monkeypatch.setitem(sys.modules, 'pycuda.driver', module)
        return module
    return install


def test_a_gpu_is_described_and_its_context_released(pycuda):
    cuda = pycuda()
    machine = probe()
    assert machine == Machine('NVIDIA RTX 2000 Ada', (8, 9), 22, 6000, 16380, '12.6', False)
    assert machine.present
    assert str(machine) == ('NVIDIA RTX 2000 Ada, compute capability 8.9, 22 multiprocessors, 6000 of 16380 MiB free, '
                            'driver for CUDA 12.6')
    assert (cuda.retained, cuda.stack) == (0, [])


def test_a_jetson_counts_the_memory_that_the_kernel_would_give_back(pycuda):
    pycuda(name='Orin', capability=ORIN, integrated=1, free=5 * MIB)
    machine = probe()
    assert machine.integrated
    assert machine.free_mib == pytest.approx(_available_mib(), abs=2000)
    assert machine.free_mib > 5
    assert 'shared memory free' in str(machine)


@pytest.mark.parametrize('text', ['', 'MemTotal: 5 kB', 'MemAvailable: some kB', 'no colon'])
def test_a_strange_meminfo_counts_nothing(tmp_path, text):
    (tmp_path / 'meminfo').write_text(text)
    assert _available_mib(tmp_path / 'meminfo') == 0
    assert _available_mib(tmp_path / 'missing') == 0


@pytest.mark.parametrize(('function', 'words', 'advice'), [
    ('cuInit', 'no CUDA-capable device is detected', 'CUDA_VISIBLE_DEVICES'), ('cuDeviceGet', 'invalid device ordinal', 'driver'),
    ('cuInit', 'CUDA driver is a stub library', 'LD_LIBRARY_PATH'), ('cuInit', 'something new', 'check the NVIDIA driver'),
    ('cuInit', 'system has unsupported display driver / cuda driver combination', 'reboot'), ('cuInit', 'unknown error', 'reboot'),
    ('cuDevicePrimaryCtxRetain', 'out of memory', 'driver')])
def test_a_failing_driver_is_quoted_with_advice(pycuda, function, words, advice):
    pycuda(**{function: words})
    with pytest.raises(EngineError, match=rf'no usable GPU: GPU 0 cannot be used \({function} failed: {words}\)') as caught:
        probe()
    assert advice in str(caught.value)


@pytest.mark.parametrize('function', ['cuMemGetInfo', 'cuStreamCreate'])
def test_a_failure_in_the_context_still_releases_it(pycuda, function):
    cuda = pycuda(**{function: 'out of memory'})
    with pytest.raises(EngineError, match=function):
        probe()
    assert (cuda.retained, cuda.stack) == (0, [])


def test_without_pycuda_or_driver_the_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, 'pycuda', None)
    with pytest.raises(EngineError, match=r'no usable GPU: PyCUDA is not installed.*pip install pycuda'):
        probe()
    monkeypatch.delitem(sys.modules, 'pycuda')
    monkeypatch.delitem(sys.modules, 'pycuda.driver', raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / 'pycuda').mkdir()
    (tmp_path / 'pycuda' / '__init__.py').write_text('')
    (tmp_path / 'pycuda' / 'driver.py').write_text("raise ImportError('libcuda.so.1: cannot open shared object file')")
    with pytest.raises(EngineError, match=r'PyCUDA cannot be loaded \(libcuda\.so\.1.*install the NVIDIA driver'):
        probe()


def test_this_machine_as_it_is():
    """The real PyCUDA. Nothing but the package's own error may come from a machine without it, without a driver or GPU."""
    try:
        machine = probe()
    except EngineError as error:
        pytest.skip(str(error))
    assert 0 < machine.free_mib <= max(machine.total_mib, _available_mib())
    assert machine.compute_capability >= (5, 0)


def test_a_target_is_any_gpu_of_its_compute_capability():
    assert target(89).compute_capability == (8, 9)
    assert target(120).compute_capability == (12, 0)
    assert not target(86).present
    assert 'any GPU of compute capability 8.6' in str(target(86))
    for sm in (9, 890, 0):
        with pytest.raises(EngineError, match=r'write 8\.9 as 89'):
            target(sm)


NONE_PASSED = 'there is no calibration'


@pytest.mark.parametrize(('capability', 'version', 'flavour', 'uncalibrated', 'matcher', 'decided_by'), [
    (ORIN, '8.6.2', 'tensorrt', '', 'fp16', 'compute capability 8.7 is below 8.9'),
    (ORIN, '10.3.0', 'tensorrt', '', 'fp16', 'compute capability 8.7 is below 8.9'),
    (ADA, '8.6.1', 'tensorrt', '', 'fp16', 'TensorRT 8.6.1 is older than 10'),
    (ADA, '10.16.1.11', 'tensorrt', NONE_PASSED, 'fp16', 'no calibrated FP8 matcher'),
    (ADA, '10.0.1', 'tensorrt', '', 'fp8', 'an FP8 graph, given or calibrated'),
    (ADA, '1.7.1.116', 'tensorrt_rtx', '', 'fp8', 'an FP8 graph, given or calibrated'),
    (BLACKWELL, '11.0.0.114', 'tensorrt', '', 'fp8', 'compute capability 12.0'),
])
def test_auto_says_which_of_the_three_decided(capability, version, flavour, uncalibrated, matcher, decided_by):
    decision = decide('auto', capability, version, flavour, uncalibrated)
    assert (decision.extractor, decision.matcher) == ('fp16', matcher)
    assert decided_by in decision.reason


@pytest.mark.parametrize('asked', ['fp32', 'fp16'])
def test_a_plain_precision_is_taken_at_its_word_everywhere(asked):
    for capability, version in ((ORIN, '8.6.2'), (ADA, '10.3.0')):
        assert decide(asked, capability, version, 'tensorrt') == Decision(asked, asked, f'{asked} was asked for')


@pytest.mark.parametrize(('capability', 'version', 'flavour', 'uncalibrated', 'message'), [
    (ORIN, '10.3.0', 'tensorrt', '', r'8\.7 is below 8\.9.*use fp16 or auto'),
    ((8, 6), '1.7.1.116', 'tensorrt_rtx', '', r'8\.6 is below 8\.9'),
    (ADA, '8.6.1', 'tensorrt', '', r'TensorRT 8\.6\.1 is older than 10'),
    (ADA, '10.3.0', 'tensorrt', NONE_PASSED, 'fp8 was asked for, but there is no calibration'),
])
def test_fp8_is_refused_before_anything_is_built(capability, version, flavour, uncalibrated, message):
    with pytest.raises(EngineError, match=message):
        decide('fp8', capability, version, flavour, uncalibrated)


def test_fp8_is_for_the_matcher():
    decision = decide('fp8', ADA, '10.3.0', 'tensorrt')
    assert (decision.extractor, decision.matcher) == ('fp16', 'fp8')
