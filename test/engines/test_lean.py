"""The runtime half of the adapter against the real TensorRT 10.16, by its lean runtime, which needs no GPU to be imported.

Without a GPU there is no ICudaEngine and no IExecutionContext. A stand-in answers for them: it has the attributes of the real class
and refuses arguments that the real signature has not. The lean module lacks TensorFormat (HWC8), the inspector, builder and parser.
"""

from __future__ import annotations

import re
import subprocess
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.fake_tensorrt import fake_tensorrt

from lightglue_trt_ros.backends.tensorrt_engines import Engine
from lightglue_trt_ros.engines.tensorrt_api import _NUMPY, TensorRT
from lightglue_trt_ros.utils.errors import DeviceMemoryError

LOAD_TWICE = """
import tensorrt_lean_bindings
from lightglue_trt_ros.engines.tensorrt_api import TensorRT
from lightglue_trt_ros.utils.errors import EngineError
for plan in (b'no engine at all, but long enough to be one' * 10, b''):
    try:
        TensorRT('tensorrt', tensorrt_lean_bindings).load(plan)
    except EngineError as error:
        print(error)
"""
TYPES = {'str': str, 'SupportsInt': int, 'int': int, 'Buffer': bytes}  # of signatures, without their modules


@pytest.fixture(scope='module')
def lean() -> ModuleType:
    return pytest.importorskip('tensorrt_lean_bindings', exc_type=ImportError, reason='the lean runtime of TensorRT 10.16 '
                               '(tensorrt-lean-cu12-libs and -bindings) is not installed: the adapter meets no real runtime')


class StandIn:
    """Answers for an object of a real class; `answers` are values or functions."""

    def __init__(self, kind: Any, **answers: Any) -> None:
        self._kind, self._answers = kind, answers

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._kind, name)  # raises AttributeError, as the real object does
        if isinstance(member, property):
            return self._answers[name]

        def call(*arguments: Any) -> Any:
            forms = re.findall(rf'{name}\(self: [\w.]+(.*)\) -> ', member.__doc__)
            assert any(fits(form, arguments) for form in forms), f'{name}{arguments}: the real one has {forms}'
            return self._answers[name](*arguments)
        return call


def fits(form: str, arguments: tuple[Any, ...]) -> bool:
    """Whether positional arguments fit a pybind signature, as ', name: str, strategy: package.Kind = ...'."""
    parameters = re.findall(r', \w+: (?:\w+\.)*(\w+)( = )?', form)
    required = sum(not default for _, default in parameters)
    return required <= len(arguments) <= len(parameters) and all(
        isinstance(given, TYPES.get(kind, ())) or type(given).__name__ == kind
        for given, (kind, _) in zip(arguments, parameters, strict=False))


def test_a_runtime_without_cuda_and_a_wrong_plan_are_one_error(lean):
    """In a process of its own: without CUDA the real Runtime holds a null pointer, whose use or end is a segmentation fault."""
    process = subprocess.run([sys.executable, '-c', LOAD_TWICE], capture_output=True, text=True, timeout=60)
    assert process.returncode == 0, process.stderr
    errors = re.findall(r'^TensorRT 10\.16\.1\.11 (?:could not make a runtime \(is there a GPU, and a driver.*CUDA initialization '
                        'failure|cannot load this engine: )', process.stdout, re.MULTILINE)
    assert len(errors) == 2, process.stdout


def test_an_engine_is_loaded_described_and_run_by_calls_that_exist(lean):
    ran: dict[str, Any] = {}
    context = StandIn(lean.IExecutionContext, set_device_memory=lambda address, size: ran.update(memory=(address, size)),
                      set_tensor_address=lambda name, address: not ran.update({name: address}),
                      execute_async_v3=lambda stream: not ran.update(stream=stream))
    engine = StandIn(lean.ICudaEngine, num_io_tensors=2, device_memory_size_v2=4096,
                     get_tensor_name=['image', 'scores'].__getitem__,
                     get_tensor_dtype={'image': lean.DataType.UINT8, 'scores': lean.DataType.HALF}.get,
                     get_tensor_shape={'image': lean.Dims((480, 640)), 'scores': lean.Dims((1024,))}.get,
                     create_execution_context=lambda strategy: context)
    adapter = TensorRT('tensorrt', lean)
    adapter._runtime = StandIn(lean.Runtime, deserialize_cuda_engine=lambda plan: engine)
    loaded = Engine(adapter, b'a plan')
    assert adapter.describe(engine) == {'image': ((480, 640), np.uint8), 'scores': ((1024,), np.float16)}
    assert adapter.activation_bytes(engine) == 4096
    loaded.context = adapter.context(engine, 0x7f00, 4096)
    loaded.enqueue({'image': SimpleNamespace(address=256), 'scores': SimpleNamespace(address=512)}, 7)
    assert ran == {'memory': (0x7f00, 4096), 'image': 256, 'scores': 512, 'stream': 7}
    engine._answers['create_execution_context'] = lambda strategy: None
    with pytest.raises(DeviceMemoryError, match='exhausted'):
        adapter.context(engine, 0x7f00, 4096)


def test_fake_tensorrt_and_numpy_types_agree_with_lean_tensorrt(lean):
    assert lean.__version__ == '10.16.1.11'
    assert {name: lean.nptype(getattr(lean.DataType, name)) for name in _NUMPY} == _NUMPY
    fake = fake_tensorrt(lean.__version__)
    shared = [name for name in vars(fake) if hasattr(getattr(fake, name), '__members__') and hasattr(lean, name)]
    assert {'DataType', 'BuilderFlag', 'TensorIOMode', 'ExecutionContextAllocationStrategy', 'TacticSource'} <= set(shared)
    for name in shared:
        assert set(getattr(fake, name).__members__) <= set(getattr(lean, name).__members__), name
    engine = fake.Runtime(None).deserialize_cuda_engine(b'{}')
    for name in (name for name in dir(engine) if name[0] != '_' and name not in ('module', 'data', 'tensors')):
        assert hasattr(lean.ICudaEngine, name), name
    assert set(fake.ILogger.Severity.__members__) == set(lean.ILogger.Severity.__members__)
