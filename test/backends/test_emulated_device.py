"""The emulated GPU is as late and as strict as a real one may be: each wrong use of it shows."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from support.emulated_device import BLOCKING_SYNC, EmulatedGpu, Error, FaultError

COUNT = 64


@pytest.fixture
def gpu():
    """With its context entered."""
    device = EmulatedGpu()
    device.pycuda.Device(0).retain_primary_context().push()
    return device


@pytest.fixture
def stream(gpu):
    return gpu.pycuda.Stream()


@pytest.fixture
def memory(gpu):
    return gpu.pycuda.mem_alloc(COUNT)


def pinned(gpu, value=0):
    array = gpu.pycuda.pagelocked_empty((COUNT,), np.uint8)
    array[:] = value
    return array


def captured(gpu, stream, work):
    """The status, and the executable graph."""
    gpu.cuda.cuStreamBeginCapture(gpu.cuda.CUstream(stream.handle), 1)
    work()
    status, graph = gpu.cuda.cuStreamEndCapture(stream)
    if graph is None:
        return status, None
    executable = gpu.cuda.cuGraphInstantiate(graph, 0)[1]
    gpu.cuda.cuGraphDestroy(graph)
    return status, executable


def test_copies_are_made_when_somebody_waits(gpu, stream, memory):
    source, target = pinned(gpu, 7), pinned(gpu, 9)
    gpu.pycuda.memcpy_htod_async(int(memory), source, stream)
    gpu.pycuda.memcpy_dtoh_async(target, int(memory), stream)
    assert not np.isin(target, (7, 9)).any(), 'neither what was there nor what will be'
    stream.synchronize()
    assert (target == 7).all()
    assert (gpu.waits, gpu.uploaded, gpu.faults) == (1, COUNT, [])


def test_an_event_waits_for_what_was_enqueued_before_it(gpu, stream, memory):
    source, targets, event = pinned(gpu, 7), [pinned(gpu) for _ in range(2)], gpu.pycuda.Event(BLOCKING_SYNC)
    event.synchronize()  # never recorded: at once
    gpu.pycuda.memcpy_htod_async(int(memory), source, stream)
    for number, target in enumerate(targets):
        gpu.pycuda.memcpy_dtoh_async(target, int(memory), stream)
        if number == 0:
            event.record(stream)
            with pytest.raises(Error, match='not ready'):
                event.time_since(event)
    event.synchronize()
    assert event.time_since(event) == 1.0
    assert [target[0] == 7 for target in targets] == [True, False]


def test_a_host_array_that_is_overwritten_too_early_is_a_fault(gpu, stream, memory):
    source = pinned(gpu, 7)
    gpu.pycuda.memcpy_htod_async(int(memory), source, stream)
    source[3] = 8
    with pytest.raises(FaultError, match='overwritten while'):
        stream.synchronize()


def test_a_host_array_that_is_given_back_too_early_is_a_fault(gpu, stream, memory):
    source = pinned(gpu, 7)
    gpu.pycuda.memcpy_htod_async(int(memory), source, stream)
    del source
    gc.collect()
    with pytest.raises(FaultError, match='given back'):
        stream.synchronize()
    with pytest.raises(FaultError, match='not pinned'):
        gpu.pycuda.memcpy_htod_async(int(memory), np.zeros(COUNT, np.uint8), stream)


def test_memory_that_is_freed_or_too_small_is_a_fault(gpu, stream, memory):
    source = pinned(gpu)
    gpu.pycuda.memcpy_htod_async(int(memory) + 1, source, stream)
    with pytest.raises(FaultError, match=f'{COUNT} bytes of {COUNT - 1}'):
        stream.synchronize()
    gpu.pycuda.memcpy_htod_async(int(memory), source, stream)
    memory.free()
    with pytest.raises(FaultError, match='after it was freed'):
        stream.synchronize()
    assert len(gpu.faults) == 2


def test_a_kernel_that_writes_beyond_the_end_is_a_fault(gpu, stream, memory):
    gray = gpu.pycuda.mem_alloc(COUNT)
    widen = gpu.pycuda.module_from_buffer(b'').get_function('widen')
    widen.prepare('PPi')
    widen.prepared_async_call((1, 1), (256, 1, 1), stream, int(gray), int(memory), COUNT // 4)
    stream.synchronize()
    widen.prepared_async_call((1, 1), (256, 1, 1), stream, int(gray), int(memory), COUNT // 4 + 1)
    with pytest.raises(FaultError, match='widen wrote beyond'):
        stream.synchronize()


def test_graph_keeps_captured_addresses_and_reads_values_at_launch(gpu, stream, memory):
    first, second, target = pinned(gpu, 1), pinned(gpu, 2), pinned(gpu)
    sources = [first]
    _, graph = captured(gpu, stream, lambda: gpu.pycuda.memcpy_htod_async(int(memory), sources[0], stream))
    stream.synchronize()
    assert gpu.uploaded == 0, 'nothing runs while it is captured'
    sources[0] = second
    first[:] = 3
    gpu.cuda.cuGraphLaunch(graph, stream)
    gpu.pycuda.memcpy_dtoh_async(target, int(memory), stream)
    stream.synchronize()
    assert (target == 3).all()
    memory.free()
    gpu.cuda.cuGraphLaunch(graph, stream)
    with pytest.raises(FaultError, match='after it was freed'):
        stream.synchronize()
    gpu.cuda.cuGraphExecDestroy(graph)
    with pytest.raises(FaultError, match='launched after it was destroyed'):
        gpu.cuda.cuGraphLaunch(graph, stream)


@pytest.mark.parametrize('prohibited', [
    lambda gpu, stream: stream.synchronize(), lambda gpu, stream: gpu.pycuda.mem_alloc(1), lambda gpu, stream: pinned(gpu)])
def test_what_waits_or_allocates_cannot_be_captured(gpu, stream, prohibited):
    def work() -> None:
        with pytest.raises(Error, match='not permitted'):
            prohibited(gpu, stream)

    assert captured(gpu, stream, work)[1] is None
    assert gpu.graphs == set()


def test_nothing_may_outlive_the_context(gpu, stream, memory):
    array, context = pinned(gpu), gpu.pycuda.Device(0).retain_primary_context()
    _, graph = captured(gpu, stream, lambda: None)
    with pytest.raises(FaultError, match='1 device, 1 pinned, 1 graphs'):
        context.pop()
    context.push()
    memory.free()
    gpu.cuda.cuGraphExecDestroy(graph)
    del array
    gc.collect()
    context.pop()
    with pytest.raises(Error, match='invalid device context'):
        gpu.pycuda.mem_alloc(1)
