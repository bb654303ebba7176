"""What the TensorRT backend holds of the device goes before its context, in every order of failing; with stand-ins for both."""

from __future__ import annotations

import threading
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

from lightglue_trt_ros.backends import cuda, tensorrt
from lightglue_trt_ros.config import EngineSpec
from lightglue_trt_ros.depth import Depth
from lightglue_trt_ros.errors import DeviceMemoryError, EngineError

DEPTH = Depth((9,))
SPEC = EngineSpec(48, 64, 8, 'fp16')
SHAPES = {'image': ((48, 64), np.uint8), 'mask': ((48, 64), np.uint8), 'keypoints': ((8, 2), np.float32),
          'scores': ((8,), np.float32), 'descriptors': ((8, 256), np.float16), 'matches0': ((8,), np.int32),
          'match_threshold': ((1,), np.float32), 'detection_threshold': ((1,), np.float32)}
NAMES = {'extractor': ('image', 'mask', 'keypoints', 'scores', 'descriptors'),
         **dict.fromkeys(DEPTH.graphs, ('matches0', 'scores', 'match_threshold', 'detection_threshold'))}


class Held(SimpleNamespace):
    """An engine, a context or an event: lives on the device."""

    living: weakref.WeakSet

    def __init__(self, **methods) -> None:
        super().__init__(**methods)
        Held.living.add(self)

    def __hash__(self) -> int:
        return id(self)


class FakeCuda:
    """A device whose allocation number `fails_at` fails; `left` counts what lived when the context went."""

    stream, name, fails_at = 0, 'none', 10**9
    left: int | None = None

    def __init__(self) -> None:
        self.allocations = 0
        FakeCuda.left = None

    def memory_mib(self):
        return 1000.0, 1000.0

    def device(self, shape, dtype):
        self.allocations += 1
        if self.allocations == self.fails_at:
            raise DeviceMemoryError('device memory is exhausted')
        return SimpleNamespace(address=0, nbytes=1)

    def pinned(self, shape, dtype):
        return np.zeros(shape, dtype)

    def event(self, *, timing=False):
        return Held(synchronize=lambda: None)

    def capture(self, work):
        return None

    def staged(self, shape, dtype):
        return SimpleNamespace(array=self.pinned(shape, dtype), buffer=self.device(shape, dtype))

    def send(self, staged):
        """Nowhere to."""

    receive = send

    def kernels(self, ptx):
        return Held(launch=lambda *arguments: None)

    def free(self, *things):
        """Nothing is held."""

    def upload(self, target, source):
        """Nowhere to."""

    download = upload

    def mark(self, event):
        """Nothing runs."""

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
        return [SimpleNamespace(name=name, shape=shape, dtype=np.dtype(dtype)) for name, (shape, dtype) in kinds.items()]

    def activation_bytes(self, engine):
        return 1

    def context(self, engine, address, size):
        return Held(set_tensor_address=lambda name, where: None, execute_async_v3=lambda stream: True)


@pytest.fixture
def opened(monkeypatch):
    """A function that opens a backend whose allocation of that number fails."""
    Held.living = weakref.WeakSet()
    monkeypatch.setattr(tensorrt, 'Cuda', FakeCuda)
    monkeypatch.setattr(tensorrt.StagedMatcher, 'enqueue', lambda self, pair, first, last: None)

    def make(fails_at=10**9):
        monkeypatch.setattr(FakeCuda, 'fails_at', fails_at)
        plans = {name: name.encode() for name in NAMES}
        return tensorrt.TensorRTBackend(FakeTensorRT(), SPEC, DEPTH, plans, 'fake')

    return make


@pytest.mark.parametrize('fails_at', range(1, 31))
def test_nothing_outlives_the_context_where_opening_runs_out_of_memory(opened, fails_at):
    with pytest.raises(DeviceMemoryError) as caught:
        opened(fails_at)
    assert FakeCuda.left == 0, 'engines, contexts and events go before the context, though the error is held'
    assert caught.value.__traceback__ is not None


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
        backend.turn_to(camera)
        held += [backend.extract(image) for _ in range(tensorrt.SLOTS)]
        with pytest.raises(EngineError, match='the features of 3 frames are held already'):
            backend.extract(image)
    assert len({features.slot.index for features in held}) == len(held)
    del held[0]
    backend.turn_to(0)
    assert backend.extract(image).slot.index < tensorrt.SLOTS


def test_nothing_outlives_the_context_where_another_camera_finds_no_memory(opened):
    backend = opened()
    backend.cuda.fails_at = backend.cuda.allocations + 4
    with pytest.raises(DeviceMemoryError):
        backend.turn_to(1)
    backend.close()
    assert FakeCuda.left == 0


def test_a_thread_that_has_the_id_of_an_earlier_one_gets_a_context_of_its_own():
    entered = []

    class Device:
        def retain_primary_context(self):
            entered.append(threading.get_ident())
            return SimpleNamespace(push=lambda: None, pop=lambda: None, detach=lambda: None)

    for _ in range(20):  # ids come again at once
        thread = threading.Thread(target=cuda._Context.enter, args=(Device(), 0))
        thread.start()
        thread.join()
    assert len(entered) == 20
    assert len(set(entered)) < 20
