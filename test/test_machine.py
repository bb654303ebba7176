"""The probe of the GPU: against a driver that answers as the CUDA driver API says, and on this machine as it is."""

from __future__ import annotations

import ctypes

import pytest

from lightglue_trt_ros.engines.machine import LIBRARY, Machine, _available_bytes, probe, target
from lightglue_trt_ros.errors import EngineError

MIB = 1 << 20


class FakeCuda:
    """libcuda with one GPU. Keeps account of contexts; a function named in `failing` returns that code."""

    def __init__(self, *, attributes=None, name=b'NVIDIA RTX 2000 Ada', free=6000 * MIB, total=16380 * MIB, **failing):
        self.attributes = {16: 22, 18: 0, 75: 8, 76: 9} | (attributes or {})
        self.name, self.free, self.total, self.failing = name, free, total, failing
        self.retained, self.stack, self.ready = 0, [], False

    def __getattr__(self, function):
        action = getattr(type(self), f'do_{function.lower()}')

        def call(*arguments):
            assert self.ready or function in ('cuInit', 'cuGetErrorString'), 'nothing may be called before cuInit'
            code = self.failing.get(function, 0)
            if not code:
                action(self, *arguments)
            return code
        return call

    def do_cuinit(self, flags):
        assert flags == 0
        self.ready = True

    def do_cudrivergetversion(self, out):
        out._obj.value = 12060

    def do_cudeviceget(self, out, ordinal):
        out._obj.value = 0

    def do_cudevicegetname(self, buffer, length, device):
        buffer.value = self.name

    def do_cudevicetotalmem_v2(self, out, device):
        out._obj.value = self.total

    def do_cudevicegetattribute(self, out, number, device):
        out._obj.value = self.attributes[number]

    def do_cudeviceprimaryctxretain(self, out, device):
        self.retained += 1
        out._obj.value = 0x7777

    def do_cudeviceprimaryctxrelease_v2(self, device):
        self.retained -= 1

    def do_cuctxpushcurrent_v2(self, context):
        self.stack.append(context.value)

    def do_cuctxpopcurrent_v2(self, out):
        out._obj.value = self.stack.pop()

    def do_cumemgetinfo_v2(self, free, total):
        assert self.stack == [0x7777], 'memory is asked of a current context'
        free._obj.value, total._obj.value = self.free, self.total

    def do_cugeterrorstring(self, code, out):
        out._obj.value = b'words of the driver'


def test_a_gpu_is_described_and_its_context_released():
    cuda = FakeCuda()
    machine = probe(cuda)
    assert machine == Machine('NVIDIA RTX 2000 Ada', (8, 9), 22, 6000, 16380, '12.6', False)
    assert machine.present
    assert str(machine) == ('NVIDIA RTX 2000 Ada, compute capability 8.9, 22 multiprocessors, 6000 of 16380 MiB free, '
                            'driver for CUDA 12.6')
    assert cuda.retained == 0
    assert cuda.stack == []


def test_a_jetson_counts_the_memory_that_the_kernel_would_give_back():
    machine = probe(FakeCuda(attributes={18: 1, 76: 7}, name=b'Orin', free=5 * MIB))
    assert machine.integrated
    assert machine.free_mib == pytest.approx(_available_bytes() >> 20, abs=2000)
    assert machine.free_mib > 5
    assert 'shared memory free' in str(machine)


@pytest.mark.parametrize('text', ['', 'MemTotal: 5 kB', 'MemAvailable: some kB', 'no colon'])
def test_a_strange_meminfo_counts_nothing(tmp_path, text):
    (tmp_path / 'meminfo').write_text(text)
    assert _available_bytes(tmp_path / 'meminfo') == 0
    assert _available_bytes(tmp_path / 'missing') == 0


@pytest.mark.parametrize(('function', 'code', 'advice'), [
    ('cuInit', 100, 'CUDA_VISIBLE_DEVICES'), ('cuInit', 34, 'LD_LIBRARY_PATH'), ('cuInit', 803, 'reboot'),
    ('cuInit', 1234, 'driver'), ('cuDeviceGet', 101, 'driver'), ('cuDevicePrimaryCtxRetain', 2, 'driver')])
def test_a_failing_driver_is_quoted_with_advice(function, code, advice):
    with pytest.raises(EngineError, match=f'{function} says "words of the driver" \\(CUDA error {code}\\)') as caught:
        probe(FakeCuda(**{function: code}))
    assert advice in str(caught.value)


@pytest.mark.parametrize('function', ['cuMemGetInfo_v2', 'cuCtxPushCurrent_v2'])
def test_a_failure_in_the_context_still_releases_it(function):
    cuda = FakeCuda(**{function: 2})
    with pytest.raises(EngineError, match=function):
        probe(cuda)
    assert cuda.retained == 0
    assert cuda.stack == []


def test_without_a_driver_the_error_says_which_library_is_missing(monkeypatch):
    def refuse(name):
        raise OSError(f'{name}: cannot open shared object file: No such file or directory')
    monkeypatch.setattr(ctypes, 'CDLL', refuse)
    with pytest.raises(EngineError, match=f'{LIBRARY} cannot be loaded.*install the driver'):
        probe()


def test_this_machine_as_it_is():
    """The real library. Nothing but the package's own error may come from a machine without a driver or GPU."""
    try:
        machine = probe()
    except EngineError as error:
        pytest.skip(str(error))
    assert 0 < machine.free_mib <= max(machine.total_mib, _available_bytes() >> 20)
    assert machine.compute_capability >= (5, 0)


def test_a_target_is_any_gpu_of_its_compute_capability():
    assert target(89).compute_capability == (8, 9)
    assert target(120).compute_capability == (12, 0)
    assert not target(86).present
    assert 'any GPU of compute capability 8.6' in str(target(86))
    for sm in (9, 890, 0):
        with pytest.raises(EngineError, match=r'write 8\.9 as 89'):
            target(sm)
