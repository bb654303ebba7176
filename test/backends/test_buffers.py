"""What the TensorRT backend holds of the device goes before its context, in every order of failing; with stand-ins for both."""

from __future__ import annotations

import os
import re
import sys
import threading
import weakref
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from lightglue_trt_ros.backends import cuda, tensorrt
from lightglue_trt_ros.backends.gpu_selection import map_strides
from lightglue_trt_ros.backends.tensorrt_engines import StagedMatcher
from lightglue_trt_ros.core.config import EngineSpec
from lightglue_trt_ros.core.early_exit import EarlyExits
from lightglue_trt_ros.utils.errors import DeviceMemoryError, EngineError

EARLY_EXITS = EarlyExits((9,))
SPEC = EngineSpec(48, 64, 8, 'fp16')
SHAPES = {'image': ((48, 64), np.uint8), 'logits': ((1, 65, 6, 8), np.float16), 'dense': ((1, 256, 6, 8), np.float16),
          'descriptors0': ((8, 256), np.float16), 'final': ((2, 8, 256), np.float16), 'matchability': ((2, 8), np.float32)}
NAMES = {'extractor': ('image', 'logits', 'dense'),
         **dict.fromkeys(EARLY_EXITS.graphs(), ('descriptors0', 'final', 'matchability'))}


class Held(SimpleNamespace):
    """An engine, a context or an event: lives on the device."""

    living: weakref.WeakSet

    def __init__(self, **methods) -> None:
        super().__init__(**methods)
        Held.living.add(self)

    def __hash__(self) -> int:  # type: ignore[override]  # for the set
        return id(self)


class FakeCuda:
    """A device whose allocation number `fails_at` fails; `left` counts what lived when the context went."""

    stream, name, fails_at = 0, 'none', 10**9
    left: int | None = None

    def __init__(self) -> None:
        self.allocations, self.kernels = 0, set()
        FakeCuda.left = None

    def memory_mib(self):
        return 1000.0, 1000.0

    def device(self, shape, dtype):
        self.allocations += 1
        if self.allocations == self.fails_at:
            raise DeviceMemoryError('device memory is exhausted')
        return SimpleNamespace(address=0, nbytes=1)

    def event(self, *, timing=False):
        return Held()

    def capture(self, work):
        raise EngineError('nothing can be captured')

    def staged(self, shape, dtype, *, shared=False):
        return SimpleNamespace(array=np.zeros(shape, dtype), address=self.device(shape, dtype).address)

    def send(self, staged):
        """Nowhere to."""

    receive = send

    def load_kernels(self, name):
        self.kernels.update(re.findall(r'\.entry (\w+)', (cuda.KERNELS / f'{name}.ptx').read_text()))

    def launch(self, kernel, blocks, threads, *arguments):
        """Nothing runs."""

    def free(self, *things):
        """Nothing is held."""

    def mark(self, event):
        """Nothing runs."""

    wait = mark

    def synchronize(self):
        """Nothing runs."""

    def close(self):
        if FakeCuda.left is None:
            FakeCuda.left = len(Held.living)


class FakeTensorRT:
    """An adapter whose engines compute nothing."""

    def load(self, plan):
        return Held(plan=plan)

    def describe(self, engine):
        kinds = {name: kind for name, kind in SHAPES.items() if name in NAMES[engine.plan.decode()]}
        return {name: (shape, np.dtype(dtype)) for name, (shape, dtype) in kinds.items()}

    def activation_bytes(self, engine):
        return 1

    def context(self, engine, address, size):
        return Held(set_tensor_address=lambda name, where: None, execute_async_v3=lambda stream: True)


@pytest.fixture
def opened(monkeypatch):
    """A function that opens a backend whose allocation of that number fails."""
    Held.living = weakref.WeakSet()
    monkeypatch.setattr(tensorrt, 'Cuda', FakeCuda)
    monkeypatch.setattr(StagedMatcher, 'enqueue', lambda self, pair, first, last: None)

    def make(fails_at=10**9):
        monkeypatch.setattr(FakeCuda, 'fails_at', fails_at)
        plans = {name: name.encode() for name in NAMES}
        return tensorrt.TensorRTBackend(FakeTensorRT(), SPEC, EARLY_EXITS, plans, 'fake')

    return make


@pytest.mark.parametrize('fails_at', range(1, 31))
def test_nothing_outlives_the_context_where_opening_runs_out_of_memory(opened, fails_at):
    with pytest.raises(DeviceMemoryError) as caught:
        opened(fails_at)
    assert FakeCuda.left == 0, 'engines, contexts and events go before the context, though the error is held'
    assert caught.value.__traceback__ is not None


def test_kernels_of_exits_are_not_loaded_where_there_are_none(opened):
    kernels = opened().cuda.kernels
    assert {'find_peaks', 'assignment_matches', 'refine'} <= kernels
    assert not [name for name in kernels if name.startswith('judge')]


def test_nothing_outlives_the_context_though_somebody_holds_features(opened):
    backend = opened()
    features = backend.extract(np.zeros((48, 64), np.uint8))
    backend.close()
    assert FakeCuda.left == 0
    with pytest.raises(EngineError, match='closed'):
        features.scores  # noqa: B018
    backend.close()


def test_each_camera_holds_as_many_frames_whatever_the_others_hold(opened):
    backend, image = opened(), np.zeros((48, 64), np.uint8)
    held = []
    for camera in range(3):
        backend.select_camera(camera)
        held += [backend.extract(image) for _ in range(tensorrt.SLOTS)]
        with pytest.raises(EngineError, match='the features of 3 frames are held already'):
            backend.extract(image)
    assert len({features.slot.index for features in held}) == len(held)
    del held[0]
    backend.select_camera(0)
    assert backend.extract(image).slot.index < tensorrt.SLOTS


def test_nothing_outlives_the_context_where_another_camera_finds_no_memory(opened):
    backend = opened()
    backend.cuda.fails_at = backend.cuda.allocations + 4
    with pytest.raises(DeviceMemoryError):
        backend.select_camera(1)
    backend.close()
    assert FakeCuda.left == 0


@pytest.mark.parametrize(('shape', 'strides'), [
    ((1, 65, 6, 8), (48, 1)), ((1, 6, 8, 72), (1, 72)), ((1, 256, 6, 8), (48, 1)), ((1, 6, 8, 256), (1, 256))])
def test_maps_are_read_as_they_lie(shape, strides):
    assert map_strides(shape, SPEC) == strides


class PyCudaError(Exception):
    """As PyCUDA's."""


class OutOfMemoryError(PyCudaError):
    """As PyCUDA's, of its own kind."""


def a_cuda(monkeypatch, **driver) -> cuda.Cuda:
    """On a driver whose functions do nothing but for these."""
    device = SimpleNamespace(name=lambda: 'none', compute_capability=lambda: (8, 7), get_attribute=lambda which: 1,
                             retain_primary_context=lambda: SimpleNamespace(**dict.fromkeys(('push', 'pop', 'detach'), list)))
    monkeypatch.setattr(cuda, '_pycuda', lambda: SimpleNamespace(**{
        'init': lambda: None, 'Device': lambda index: device, 'get_driver_version': lambda: 12060, 'Error': PyCudaError,
        'device_attribute': SimpleNamespace(MULTIPROCESSOR_COUNT=0, INTEGRATED=1), 'mem_get_info': lambda: (300 << 20, 1 << 30),
        'Stream': lambda: SimpleNamespace(handle=1, synchronize=lambda: None), 'MemoryError': OutOfMemoryError,
        'host_alloc_flags': SimpleNamespace(DEVICEMAP=2), **driver}))
    return cuda.Cuda()


@pytest.mark.parametrize('shared', [False, True])
@pytest.mark.parametrize(('error', 'kind', 'words'), [
    (OutOfMemoryError('cuMemHostAlloc failed: out of memory'), DeviceMemoryError, 'page-locked memory is exhausted .* 300 MiB'),
    (PyCudaError('cuMemHostAlloc failed: invalid value'), EngineError, 'the GPU failed')])
def test_page_locked_memory_that_cannot_be_had_is_told_as_what_it_is(monkeypatch, shared, error, kind, words):
    def fail(*_, **__):
        raise error

    opened = a_cuda(monkeypatch, pagelocked_empty=fail)
    with pytest.raises(EngineError, match=words) as caught:
        opened.staged((8, 8), np.uint8, shared=shared)
    assert type(caught.value) is kind
    opened.close()


class Memory(int):
    """Of a device."""

    def free(self) -> None:
        """Nothing is held."""


@pytest.mark.parametrize(('failing', 'use'), [
    ('memcpy_htod_async', lambda device, staged: device.send(staged)),
    ('memcpy_dtoh_async', lambda device, staged: device.receive(staged)),
    ('Event', lambda device, staged: device.event()),
    ('mem_get_info', lambda device, staged: device.memory_mib()),
    ('get_function', lambda device, staged: device.launch('halve', 1, (1, 1), staged, 8)),
    ('record', lambda device, staged: device.mark(SimpleNamespace(record=device._driver.record))),
    ('synchronize', lambda device, staged: device.wait(SimpleNamespace(synchronize=device._driver.synchronize)))])
def test_gpu_failure_raises_engine_error_with_advice_to_restart(monkeypatch, failing, use):
    def fail(*_):
        raise PyCudaError('an illegal memory access was encountered')

    opened = a_cuda(monkeypatch, mem_alloc=Memory, pagelocked_empty=lambda shape, dtype, mem_flags: np.zeros(shape, dtype),
                    module_from_buffer=lambda ptx: SimpleNamespace(get_function=fail),
                    event_flags=SimpleNamespace(DISABLE_TIMING=2, BLOCKING_SYNC=1), **{failing: fail})
    opened.load_kernels('refinement')
    staged = opened.staged((8, 8), np.uint8)
    with pytest.raises(EngineError, match='the GPU failed: an illegal memory access was encountered; start the program again'):
        use(opened, staged)
    opened.close()


class GraphDriver(SimpleNamespace):
    """cuda-python's, of which the function `failing` fails; `living` are the graphs and executables that were not destroyed."""

    def __init__(self, failing: str = '') -> None:
        ok, wrong, living = SimpleNamespace(name='CUDA_SUCCESS'), SimpleNamespace(name='CUDA_ERROR_UNKNOWN'), []

        def made(name, *_):
            if name == failing:
                return wrong, None
            living.append(object())
            return ok, living[-1]

        super().__init__(
            living=living, CUstream=int, CUstreamCaptureMode=SimpleNamespace(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL=1),
            CUresult=SimpleNamespace(CUDA_SUCCESS=ok, CUDA_ERROR_OUT_OF_MEMORY=None), cuGraphDestroy=living.remove,
            cuGraphExecDestroy=living.remove, cuGraphLaunch=lambda executable, stream: (ok if executable in living else wrong,),
            cuStreamBeginCapture=lambda *_: (wrong if failing == 'cuStreamBeginCapture' else ok,),
            **{name: partial(made, name) for name in ('cuStreamEndCapture', 'cuGraphInstantiate')})


def installed(monkeypatch, driver) -> None:
    monkeypatch.setitem(sys.modules, 'cuda', SimpleNamespace())
    monkeypatch.setitem(sys.modules, 'cuda.bindings', SimpleNamespace(driver=driver))


@pytest.mark.parametrize(('failing', 'words'), [
    ('cuStreamBeginCapture', 'could not begin: CUDA_ERROR_UNKNOWN'), ('work', 'ValueError: what is enqueued'),
    ('cuStreamEndCapture', 'the capture failed: CUDA_ERROR_UNKNOWN'),
    ('cuGraphInstantiate', 'could not be instantiated: CUDA_ERROR_UNKNOWN')])
def test_a_capture_that_fails_leaves_no_graph_and_says_why(monkeypatch, failing, words):
    driver = GraphDriver(failing)
    installed(monkeypatch, driver)
    opened = a_cuda(monkeypatch)

    def work() -> None:
        if failing == 'work':
            raise ValueError('what is enqueued')

    with pytest.raises(EngineError, match=words):
        opened.capture(work)
    assert driver.living == []
    opened.close()


def test_destroys_graph_when_freed_and_the_rest_when_device_closes(monkeypatch):
    driver = GraphDriver()
    installed(monkeypatch, driver)
    opened = a_cuda(monkeypatch)
    first, second = (opened.capture(lambda: None) for _ in range(2))
    first.launch()
    assert len(driver.living) == 2
    opened.free(first)
    assert len(driver.living) == 1
    second.launch()
    opened.close()
    assert driver.living == []


def test_without_cuda_python_the_description_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, 'cuda', None)
    monkeypatch.setitem(sys.modules, 'cuda.bindings', None)
    opened = a_cuda(monkeypatch)
    with pytest.raises(EngineError, match='cuda-python is not installed'):
        opened.capture(lambda: None)
    opened.close()


def test_new_thread_with_a_reused_id_enters_its_own_context():
    entered = []

    class Device:
        def retain_primary_context(self):
            entered.append(threading.get_ident())
            return SimpleNamespace(push=lambda: None, pop=lambda: None, detach=lambda: None)

    for _ in range(20):  # ids come again at once
        thread = threading.Thread(target=cuda._Context.enter, args=(Device(),))
        thread.start()
        thread.join()
    assert len(entered) == 20
    assert len(set(entered)) < 20


@pytest.mark.parametrize(('told', 'loading'), [('', 'LAZY'), ('EAGER', 'EAGER')])
def test_kernels_are_loaded_when_they_run_unless_the_user_says_otherwise(monkeypatch, told, loading):
    monkeypatch.setenv('CUDA_MODULE_LOADING', told)
    if not told:
        del os.environ['CUDA_MODULE_LOADING']
    at_init = []
    a_cuda(monkeypatch, init=lambda: at_init.append(os.environ['CUDA_MODULE_LOADING'])).close()
    assert at_init == [loading]
