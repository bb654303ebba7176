"""One small adapter over TensorRT 8.6, 10, 11 and TensorRT-RTX 1: build a typed graph, load a plan, describe an engine.

Strong typing wherever it exists; below it (8.6) FP16 with what the graph has in FP32 pinned. A version that has neither is refused:
nothing here builds less than it was asked for.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import logging
import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..utils.errors import DeviceMemoryError, EngineError
from .precision_check import NOTHING_TIMED, GraphTypes, LayerInfo, Plan, TimingCache, pin_types, read_layers, read_types

Progress = Callable[[str, int, int], None]  # phase, steps done, steps in all

OLDEST = (8, 6)
logger = logging.getLogger('tensorrt')  # not of the package: commands print its warnings as they are, on stderr
_VERBOSE = 5  # under DEBUG: TensorRT writes a hundred thousand lines at this level
_MODULES = {'tensorrt': (('tensorrt',),), 'rtx': (('tensorrt_rtx',), ('tensorrt_rtx_libs', 'tensorrt_rtx_bindings'))}
_INSTALL = {'tensorrt': 'on a Jetson: sudo apt install python3-libnvinfer; on a desktop: pip install tensorrt',
            'rtx': 'pip install tensorrt-rtx, or, only to build engines, tensorrt-rtx-cu12-libs and tensorrt-rtx-cu12-bindings'}
_NUMPY = {'FLOAT': np.float32, 'HALF': np.float16, 'INT8': np.int8, 'UINT8': np.uint8, 'INT32': np.int32, 'INT64': np.int64,
          'BOOL': np.bool_}


@dataclass(frozen=True)
class BuildOptions:
    """How to build. `target_sm`, e.g. 89, builds for that compute capability without a GPU, only with TensorRT-RTX.

    `tactic_sources` limits TensorRT to these, e.g. ('EDGE_MASK_CONVOLUTIONS', 'JIT_CONVOLUTIONS') where cuBLAS and cuDNN are
    absent. `timing_cache` is what an earlier Plan gave; one of another machine is passed over. `channels_last` names FP16 outputs
    (N, C, H, W) that come as (N, H, W, C), C padded to a multiple of 8, which spares a copy of each.
    """

    workspace_mib: int = 1024
    opt_level: int | None = None
    target_sm: int | None = None
    timing_cache: TimingCache = NOTHING_TIMED
    tactic_sources: tuple[str, ...] | None = None
    channels_last: tuple[str, ...] = ()


class TensorRT:
    """An imported TensorRT; `open_tensorrt` makes one. `name` is 'tensorrt' or 'tensorrt_rtx'."""

    def __init__(self, name: str, module: Any) -> None:
        """Raises EngineError when the module is older than what this adapter knows, or not whole."""
        self.name, self.module = name, module
        self.version = str(getattr(module, '__version__', ''))
        numbers = tuple(int(number) for number in re.findall(r'\d+', self.version)[:2])
        if not numbers:
            raise EngineError(f'{module.__name__} tells no version: it is not whole; {_INSTALL["tensorrt"]}')
        if name == 'tensorrt' and numbers < OLDEST:
            raise EngineError(f'TensorRT {self.version} is too old: 8.6 is the oldest that these networks build with (JetPack 6)')
        self.title = f'{"TensorRT" if name == "tensorrt" else "TensorRT-RTX"} {self.version}'
        self._major = numbers[0]
        self._log = _log_of(module)
        self._runtime: Any = None

    @property
    def strongly_typed(self) -> bool:
        """Whether all types come from the graph."""
        return self.name == 'tensorrt_rtx' or self._major >= 11 or self._flag_of_typing() is not None

    def build(self, onnx: bytes, precision: str, options: BuildOptions, progress: Progress | None = None) -> Plan:
        """Build the engine of a typed graph. Raises EngineError; what `progress` raises (Ctrl-C too) stops the build and passes.

        `precision` is what the graph is written in: fp32, fp16 or fp8. TF32 is off: FP32 means FP32. Call `audit` on the result.
        """
        types = read_types(onnx)
        types.require(precision)
        self._log.errors.clear()
        started = time.monotonic()
        builder = self._on_device(self.module.Builder, 'a builder')
        network = self._network(builder)
        self._parse(network, onnx, types)
        for output in map(network.get_output, range(network.num_outputs)) if options.channels_last else ():
            if output.name in options.channels_last:
                output.allowed_formats = 1 << int(self.module.TensorFormat.HWC8)
        config = self._made(builder.create_builder_config(), 'a builder configuration')
        self._configure(config, options)
        made = self._warm(config, options.timing_cache) if self.name == 'tensorrt' else None  # TensorRT-RTX times nothing
        if not self.strongly_typed and precision == 'fp16':
            self._type_weakly(network, config, types)
        monitor = self._watch(config, progress)
        data = builder.build_serialized_network(network, config)
        if monitor is not None and monitor.error is not None:
            raise monitor.error
        if data is None:
            raise EngineError(f'{self.title} built no engine: {self._complaints()}')
        if monitor is None and progress is not None:
            progress('build', 1, 1)
        plan, layers = bytes(data), tuple[LayerInfo, ...]()
        if options.target_sm is None:
            inspector = self.load(plan).create_engine_inspector()
            layers = read_layers(inspector.get_engine_information(self.module.LayerInformationFormat.JSON))
        timed = NOTHING_TIMED if made is None else TimingCache(bytes(config.get_timing_cache().serialize()), made)
        return Plan(plan, timed, layers, time.monotonic() - started,
                    self.strongly_typed, fp32_nodes=types.heavy['fp32'], onnx_bytes=len(onnx))

    def load(self, data: bytes) -> Any:
        """The ICudaEngine of a plan. Raises EngineError: another version, another GPU, a damaged plan, no GPU at all; or memory."""
        self._log.errors.clear()
        if self._runtime is None:
            self._runtime = self._on_device(self.module.Runtime, 'a runtime')
        engine = self._runtime.deserialize_cuda_engine(data)
        if engine is None:
            complaints = self._complaints()
            kind = DeviceMemoryError if 'out of memory' in complaints.lower() else EngineError
            raise kind(f'{self.title} cannot load this engine: {complaints}')
        return engine

    def describe(self, engine: Any) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape in memory and dtype of the engine's inputs and outputs, in its order.

        Tensors that were built with channels last are (N, H, W, C). Raises EngineError for a type that numpy lacks.
        """
        tensors = {}
        for name in (engine.get_tensor_name(index) for index in range(engine.num_io_tensors)):
            kind = engine.get_tensor_dtype(name).name
            if kind not in _NUMPY:
                raise EngineError(f'the engine has {name} in {kind}, which numpy lacks: export fp32 or fp16 inputs and outputs')
            shape = tuple(engine.get_tensor_shape(name))
            if len(shape) == 4 and engine.get_tensor_format(name) == self.module.TensorFormat.HWC8:
                shape = shape[0], *shape[2:], -(-shape[1] // 8) * 8
            tensors[name] = shape, np.dtype(_NUMPY[kind])
        return tensors

    def activation_bytes(self, engine: Any) -> int:
        """Device memory that a context of `engine` works in."""
        return int(engine.device_memory_size_v2 if hasattr(engine, 'device_memory_size_v2') else engine.device_memory_size)

    def context(self, engine: Any, address: int, size: int) -> Any:
        """A context of `engine` that works in `size` bytes at `address`, which engines that alternate may share.

        Raises DeviceMemoryError when TensorRT makes none.
        """
        strategies = getattr(self.module, 'ExecutionContextAllocationStrategy', None)  # from 10 on
        context = (engine.create_execution_context_without_device_memory() if strategies is None
                   else engine.create_execution_context(strategies.USER_MANAGED))
        if context is None:
            raise DeviceMemoryError(f'device memory is exhausted: {self.title} could not make a context ({self._complaints()})')
        if hasattr(context, 'set_device_memory'):  # from 10.1 on
            context.set_device_memory(address, size)
        else:
            context.device_memory = address
        return context

    def _flag_of_typing(self) -> Any:
        return getattr(getattr(self.module, 'NetworkDefinitionCreationFlag', None), 'STRONGLY_TYPED', None)

    def _network(self, builder: Any) -> Any:
        flag, flags = self._flag_of_typing(), 0
        if flag is not None:
            flags = 1 << int(flag)
        elif not self.strongly_typed:
            flags = 1 << int(self.module.NetworkDefinitionCreationFlag.EXPLICIT_BATCH)  # before 10; then every network has one
        network = self._made(builder.create_network(flags), 'a network')
        if flag is not None and hasattr(network, 'get_flag') and not network.get_flag(flag):
            raise EngineError(f'{self.title} was asked for a strongly typed network and made another: nothing is built')
        return network

    def _parse(self, network: Any, onnx: bytes, types: GraphTypes) -> None:
        parser = self.module.OnnxParser(network, self._log)
        if not parser.parse(onnx):
            errors = [parser.get_error(index) for index in range(parser.num_errors)]
            reasons = '; '.join(_at(error.node(), types) + error.desc() for error in errors[:3]) or self._complaints()
            more = f' (and {len(errors) - 3} more)' if len(errors) > 3 else ''
            raise EngineError(f'{self.title} cannot parse the graph: {reasons}{more}')

    def _configure(self, config: Any, options: BuildOptions) -> None:
        config.set_memory_pool_limit(self.module.MemoryPoolType.WORKSPACE, options.workspace_mib << 20)
        config.profiling_verbosity = self.module.ProfilingVerbosity.DETAILED
        config.clear_flag(self.module.BuilderFlag.TF32)
        if options.opt_level is not None:
            config.builder_optimization_level = options.opt_level
        if options.tactic_sources is not None:
            mask = sum(1 << int(_member(self.module.TacticSource, name, 'tactic source')) for name in options.tactic_sources)
            if not config.set_tactic_sources(mask):
                raise EngineError(f'{self.title} refuses tactic sources {options.tactic_sources}: {self._complaints()}')
        if options.target_sm is not None:
            self._aim(config, options.target_sm)

    def _aim(self, config: Any, target_sm: int) -> None:
        if self.name != 'tensorrt_rtx':
            raise EngineError(f'an engine for SM{target_sm} was asked for, but TensorRT builds only for the GPU it runs on: '
                              f'use TensorRT-RTX ({_INSTALL["rtx"]})')
        config.num_compute_capabilities = 1
        if not config.set_compute_capability(_member(self.module.ComputeCapability, f'SM{target_sm}', 'target'), 0):
            raise EngineError(f'{self.title} does not build for SM{target_sm}: {self._complaints()}')

    def _warm(self, config: Any, earlier: TimingCache) -> Any:
        """The timing cache that `config` uses, and the configuration that made it."""
        if earlier.made is not None and config.set_timing_cache(earlier.made[0], False):
            return earlier.made
        for data in dict.fromkeys((earlier.data, b'')):
            cache = config.create_timing_cache(data)
            if cache is not None and config.set_timing_cache(cache, False):
                return cache, config
            logger.warning('the timing cache (%d bytes) belongs to another GPU or TensorRT: building without it', len(data))
        return None

    def _type_weakly(self, network: Any, config: Any, types: GraphTypes) -> None:
        for name in ('FP16', 'OBEY_PRECISION_CONSTRAINTS'):
            flag = getattr(self.module.BuilderFlag, name, None)
            if flag is None:
                raise EngineError(f'{self.title} has neither strong typing nor BuilderFlag.{name}: it cannot build fp16')
            config.set_flag(flag)
        logger.debug('%d layers pinned to FP32', pin_types(self.module, network, types.tensors))

    def _watch(self, config: Any, progress: Progress | None) -> Any:
        if progress is None:
            return None
        if not hasattr(config, 'progress_monitor'):  # 8.6
            progress('build', 0, 1)
            return None
        config.progress_monitor = monitor = _monitor_of(self.module, progress)
        return monitor

    def _on_device(self, kind: Any, what: str) -> Any:
        """A Builder or a Runtime, for which CUDA must work."""
        try:
            thing = kind(self._log)
        except TypeError:  # pybind's, where TensorRT makes no builder
            thing = None
        if any('CUDA initialization failure' in error for error in self._log.errors):
            # 10.16 then returns a runtime around a null pointer: its use crashes the process, and so does its end
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
            thing = None
        return self._made(thing, f'{what} (is there a GPU, and a driver for the CUDA of this TensorRT?)')

    def _made(self, thing: Any, what: str) -> Any:
        if thing is None:
            raise EngineError(f'{self.title} could not make {what}: {self._complaints()}')
        return thing

    def _complaints(self) -> str:
        """The last errors of the log, each once."""
        return '; '.join(list(dict.fromkeys(self._log.errors))[:3]) or 'it gives no reason'


def open_tensorrt(flavour: str = 'auto') -> TensorRT:
    """Import 'tensorrt', 'rtx', or the first of both that works ('auto'). Raises EngineError that says what to install."""
    failures = []
    for name in _MODULES if flavour == 'auto' else (flavour,):
        for modules in _MODULES[name]:
            try:
                module = [importlib.import_module(part) for part in modules][-1]
                return TensorRT('tensorrt' if name == 'tensorrt' else 'tensorrt_rtx', module)
            except EngineError as error:
                failures.append(str(error))
            except Exception as error:  # a broken installation fails in many ways: no library, no driver, another numpy
                failures.append(f'{modules[-1]} cannot be imported ({error})')
    install = '; '.join(_INSTALL[name] for name in (_INSTALL if flavour == 'auto' else (flavour,)))
    raise EngineError(f'no usable TensorRT: {"; ".join(failures)}. Install one: {install}')


def _member(enumeration: Any, name: str, what: str) -> Any:
    if name not in enumeration.__members__:
        raise EngineError(f'this TensorRT has no {what} {name}: it has {", ".join(enumeration.__members__)}')
    return enumeration.__members__[name]


def _at(node: int, types: GraphTypes) -> str:
    name, operator = types.nodes[node] if 0 <= node < len(types.nodes) else ('', '')
    return f'at node {node} ({operator} {name}): ' if operator else ''


@functools.cache
def _log_of(module: Any) -> Any:
    """The one ILogger of a TensorRT module: it keeps the first for the whole process. `.errors` holds the latest error texts."""
    severity = module.ILogger.Severity
    levels = {severity.INTERNAL_ERROR: logging.ERROR, severity.ERROR: logging.ERROR, severity.WARNING: logging.WARNING,
              severity.INFO: logging.DEBUG, severity.VERBOSE: _VERBOSE}

    class Log(module.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            module.ILogger.__init__(self)
            self.errors: deque[str] = deque(maxlen=20)

        def log(self, severity: Any, message: str) -> None:
            level = levels[severity]
            if level == logging.ERROR:
                self.errors.append(message)
            logger.log(level, '%s', message)

    return Log()


def _monitor_of(module: Any, progress: Progress) -> Any:
    """An IProgressMonitor that calls `progress`; what that raises stops the build and is kept in `.error`."""

    class Monitor(module.IProgressMonitor):  # type: ignore[misc]
        def __init__(self) -> None:
            module.IProgressMonitor.__init__(self)
            self.error: BaseException | None = None
            self._sizes: dict[str, int] = {}

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            self._sizes[phase_name] = num_steps
            self._show(phase_name, 0)

        def step_complete(self, phase_name: str, step: int) -> bool:
            self._show(phase_name, step + 1)
            return self.error is None

        def phase_finish(self, phase_name: str) -> None:
            self._show(phase_name, self._sizes.get(phase_name, 0))

        def _show(self, phase: str, step: int) -> None:
            if self.error is None:
                try:
                    progress(phase, step, self._sizes.get(phase, 0))
                except BaseException as error:  # an exception, Ctrl-C too, must not cross TensorRT's frames
                    self.error = error

    return Monitor()
