"""The embedded default: the graphs in ONNX Runtime, on the CPU or on any provider it has."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..core.config import EngineSpec
from ..core.early_exit import EarlyExits, assignment_after, stops
from ..core.types import NOT_FINITE, Features, HostFeatures, Matches, Thresholds, UInt8
from ..networks.architecture import EXTRACTOR
from ..networks.fp8_calibration import Calibration
from ..networks.graph_cache import written_graphs
from ..networks.models import Model
from ..utils.errors import EngineError

FLOAT8 = (1, 18)  # the first ONNX Runtime with E4M3 at opset 21
THREADS_VARIABLE = 'LIGHTGLUE_TRT_THREADS'  # of a session whose owner leaves their number open
KEPT = ('next_state', 'cosines', 'sines')  # what only the next stage reads: it stays on the session's device

Tensors = dict[str, Any]  # OrtValues by name


class Network:
    """A session that takes the tensors its graph names, and leaves those that the next stage reads where they are."""

    def __init__(self, model: Any, threads: int) -> None:
        """`model` is an onnx.ModelProto, or the bytes of one."""
        self._session = _session(model, threads)
        self.provider = self._session.get_providers()[0].removesuffix('ExecutionProvider')
        device = 'cuda' if self.provider == 'CUDA' else 'cpu'
        self._inputs = [tensor.name for tensor in self._session.get_inputs()]
        self._outputs = {tensor.name: device if tensor.name in KEPT else 'cpu' for tensor in self._session.get_outputs()}

    def run(self, tensors: Tensors, options: Any) -> Tensors:
        """Its outputs. Raises EngineError."""
        try:
            binding = self._session.io_binding()
            for name in self._inputs:
                binding.bind_ortvalue_input(name, tensors[name])
            for name, device in self._outputs.items():
                binding.bind_output(name, device)
            self._session.run_with_iobinding(binding, options)
        except Exception as error:  # ONNX Runtime has no public root exception
            raise EngineError(f'ONNX Runtime failed: {error}') from error
        return dict(zip(self._outputs, binding.get_outputs(), strict=True))


class OnnxMatcher:
    """LightGlue as ONNX graphs, run by ONNX Runtime. Raises EngineError."""

    def __init__(self, graphs: dict[str, Any], early_exits: EarlyExits, threads: int = 0) -> None:
        """`graphs`, emptied, are of `early_exits` by their names; `threads` 0 is one per physical core."""
        self.early_exits, self._options = early_exits, import_runtime().RunOptions()
        self._networks = {name: Network(graphs.pop(name), threads) for name in list(graphs)}  # each file goes when it is loaded

    def match(self, reference: Features, current: Features, thresholds: Thresholds) -> Matches:
        return next(self.match_exits(reference, current, thresholds, every=False))

    def match_exits(self, reference: Features, current: Features, thresholds: Thresholds, *,
                    every: bool = True) -> Iterator[Matches]:
        """The matches at every exit, or from the first one at which enough points are confident."""
        tensors, finite, exits = matcher_inputs(reference, current, thresholds), True, self.early_exits
        if exits.at_zero and (every or thresholds.at_zero):
            outputs = self.run(assignment_after(0), tensors)
            yield Matches(_to_keep(outputs['matches0']), _to_keep(outputs['scores']), 0)
        for stage, end in zip(exits.stages, exits.after_layers, strict=True):
            tensors |= self.run(stage, tensors)
            share = math.nan
            if end < exits.ends[-1]:
                tensors['state'] = tensors['next_state']
                share, mean = map(float, tensors['confidence'].numpy())
                finite &= math.isfinite(mean)
                if not every and not stops(share, thresholds.depth_confidence):
                    continue
                tensors |= self.run(assignment_after(end), tensors)
            yield Matches(_to_keep(tensors['matches0']), _to_keep(tensors['scores']), end, '' if finite else NOT_FINITE, share,
                          finite)

    def run(self, name: str, tensors: Tensors) -> Tensors:
        """Outputs of one of the graphs. Raises EngineError."""
        if name not in self._networks:
            raise EngineError('this backend is closed: open another one')
        return self._networks[name].run(tensors, self._options)

    def cancel(self) -> None:
        self._options.terminate = True

    def close(self) -> None:
        self._networks = {}


class OnnxRuntimeBackend(OnnxMatcher):
    """SuperPoint and LightGlue as ONNX graphs, run by ONNX Runtime. Raises EngineError."""

    def __init__(self, spec: EngineSpec, model: Model, *, early_exits: EarlyExits | None = None, threads: int = 0,
                 calibration: Calibration | None = None) -> None:
        """`early_exits` None takes the default exits; `threads` 0 takes THREADS_VARIABLE, or else one per physical core.

        With a `calibration` the matcher emulates the FP8 engine of that calibration: it rounds where that does. Raises ConfigError
        when it was made for something else.
        """
        self.score_calibration = model.score_calibration
        self.spec, early_exits, threads = spec, early_exits or EarlyExits.of(model.layers), threads or _threads_asked_for()
        super().__init__(written_graphs(spec, model, early_exits, calibration), early_exits, threads)
        self._whole_image = np.ones(spec.size, np.uint8)
        what = spec if calibration is None else f'{replace(spec, precision="fp8")}, emulated in {len(calibration.fp8)} members'
        self.description = (f'ONNX Runtime {import_runtime().__version__} on {self._networks[EXTRACTOR].provider}, {what}, '
                            f'weights {model.identity}, {early_exits}, {f"{threads} threads" if threads else "a thread per core"}')

    def extract(self, image: UInt8, mask: UInt8 | None = None) -> HostFeatures:
        mask = self._whole_image if mask is None else np.ascontiguousarray(mask)
        outputs = self.run(EXTRACTOR, ort_values({'image': np.ascontiguousarray(image), 'mask': mask}))
        return HostFeatures(*(_to_keep(outputs[name]) for name in ('keypoints', 'scores', 'descriptors')))

    def keep(self, features: Features) -> HostFeatures:
        if not isinstance(features, HostFeatures):
            raise EngineError('ONNX Runtime was given features of another backend: extract and match with the same one')
        return features

    def select_camera(self, camera: int) -> None:
        """Nothing is kept between frames."""


def matcher_inputs(reference: Features, current: Features, thresholds: Thresholds) -> Tensors:
    """The inputs of a whole matcher, by name. Raises EngineError for features of another backend."""
    if not isinstance(reference, HostFeatures) or not isinstance(current, HostFeatures):
        raise EngineError('ONNX Runtime was given features of another backend: extract and match with the same one')
    arrays = {f'{name}{side}': getattr(features, name) for side, features in enumerate((reference, current))
              for name in ('keypoints', 'descriptors', 'scores')}
    return ort_values(arrays | {'match_threshold': np.array(thresholds.match, np.float32),
                                'detection_threshold': np.array(thresholds.detection, np.float32)})


def ort_values(arrays: dict[str, Any]) -> Tensors:
    make = import_runtime().OrtValue.ortvalue_from_numpy
    return {name: make(array) for name, array in arrays.items()}


def _to_keep(value: Any) -> Any:
    """An OrtValue as an array of its own: a view would hold a piece of a block of the arena, which then takes another one."""
    return np.array(value.numpy())


def import_runtime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise EngineError(f'ONNX Runtime cannot be imported ({error}): pip install onnxruntime') from error
    return onnxruntime


@functools.cache
def _share_memory() -> bool:
    """Let all sessions of this process work in one arena, for they run one after the other; whether that can be had.

    With one each they held twice as much, most of it idle.
    """
    runtime = import_runtime()
    try:
        cpu = runtime.OrtMemoryInfo('Cpu', runtime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, runtime.OrtMemType.DEFAULT)
        as_requested = 1  # no powers of two
        runtime.create_and_register_allocator(cpu, runtime.OrtArenaCfg(0, as_requested, -1, -1))
    except Exception:  # of a release that has it otherwise, or where somebody has registered one
        return False
    return True


def _session(model: Any, threads: int) -> Any:
    runtime, data = import_runtime(), model if isinstance(model, bytes) else model.SerializeToString()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.enable_mem_pattern = False  # a block for each network's worst case: half as much again, and no faster
    # One network's idle threads would slow the next one. One pool for all of them, which some releases offer Python
    # (set_global_thread_pool_sizes), spins, and nothing there forbids it: a frame took 1.2 to 1.6 times the CPU time with it.
    options.add_session_config_entry('session.intra_op.allow_spinning', '0')
    if _share_memory():
        options.add_session_config_entry('session.use_env_allocators', '1')
    chosen, disabled = providers(), list[str]()
    if b'QuantizeLinear' in data:  # an operator's name stands in the file as it is
        if tuple(map(int, runtime.__version__.split('.')[:2])) < FLOAT8:
            raise EngineError(f'FP8 is emulated by ONNX Runtime {FLOAT8[0]}.{FLOAT8[1]} or later, this is {runtime.__version__}: '
                              'do it on another machine, or in a virtual environment with a newer NumPy')
        # an emulation: on the CPU, rounded as written; the transpose optimizer moves float8 into transposes, which have none
        chosen, disabled = ['CPUExecutionProvider'], ['TransposeOptimizer']
        options.add_session_config_entry('session.disable_quant_qdq', '1')
    try:
        return runtime.InferenceSession(data, options, providers=chosen, disabled_optimizers=disabled)
    except Exception as error:  # as above
        raise EngineError(f'ONNX Runtime cannot load a graph of {len(data)} bytes: {error}') from error


def providers() -> list[str]:
    """Those of this ONNX Runtime that are used. Not its own TensorRT provider: it would build engines for minutes, unasked."""
    known = ('CUDAExecutionProvider', 'CPUExecutionProvider')
    return [name for name in import_runtime().get_available_providers() if name in known]


def _threads_asked_for() -> int:
    text = os.environ.get(THREADS_VARIABLE, '')
    if text and not text.isdecimal():
        raise EngineError(f'{THREADS_VARIABLE} is {text!r}: it must be a whole number, or 0 for one per physical core')
    return int(text or 0)
