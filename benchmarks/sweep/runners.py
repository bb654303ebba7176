"""Runners of a matcher for the sweep: ONNX Runtime, or TensorRT's engines on the GPU; and why a case cannot run here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from lightglue_trt_ros.core.backend import Backend
from lightglue_trt_ros.core.config import EngineSpec, MatcherConfig
from lightglue_trt_ros.core.early_exit import EarlyExits
from lightglue_trt_ros.engines.engine_store import open_artifact
from lightglue_trt_ros.engines.gpu_info import Machine, decide, probe, target
from lightglue_trt_ros.engines.manifest import Artifact, Identity, engine_dir_of
from lightglue_trt_ros.engines.precision_check import audit
from lightglue_trt_ros.engines.tensorrt_api import BuildOptions, TensorRT, open_tensorrt
from lightglue_trt_ros.networks.architecture import EXTRACTOR
from lightglue_trt_ros.networks.fp8_calibration import Calibration
from lightglue_trt_ros.networks.models import load_model
from lightglue_trt_ros.utils.errors import EngineError, LightglueTrtError

MIB = 1 << 20


class UnavailableError(LightglueTrtError):
    """A case that this machine cannot run; `reason` is a few words for a table."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Engines(NamedTuple):
    """The matcher's."""

    mib: float
    ends: tuple[int, ...]  # of their stages


class Graphs:
    """The matcher's graphs for one set of weights, and the calibrations that lie next to the engines."""

    def __init__(self, config: MatcherConfig) -> None:
        """Raises ConfigError, WeightsError."""
        self.engine_dir = engine_dir_of(config.engine_dir)
        self.model = load_model(config.weights)
        self.whole = EarlyExits((self.model.layers,))  # the matcher in one graph

    def calibration(self, spec: EngineSpec) -> Calibration | None:
        """The FP8 calibration for this shape and these weights; None for the other precisions. Raises UnavailableError."""
        if spec.precision != 'fp8':
            return None
        with _called('no calibration'):
            return open_artifact(self.engine_dir, Identity.of_calibration(spec, self.model.identity)).calibration()

    def matcher(self, spec: EngineSpec) -> bytes:
        """The whole matcher as an ONNX file. Raises UnavailableError, and ConfigError for a calibration of something else."""
        from lightglue_trt_ros.networks.lightglue import lightglue
        return bytes(lightglue(spec, self.model.matcher, calibration=self.calibration(spec)).SerializeToString())


class HostBench:
    """ONNX Runtime: FP32 and FP16 as they are, FP8 emulated."""

    name = 'ONNX Runtime, wall time'
    emulated = ('fp8',)  # it brings matches, and no times

    def __init__(self, graphs: Graphs) -> None:
        self._graphs = graphs

    def open(self, spec: EngineSpec) -> Backend:
        """Open the matcher. Raises UnavailableError."""
        from lightglue_trt_ros.backends.onnxruntime import OnnxRuntimeBackend
        calibration = self._graphs.calibration(spec)
        with _called('cannot run'):
            return OnnxRuntimeBackend(replace(spec, precision='fp32') if calibration else spec, self._graphs.model,
                                      early_exits=self._graphs.whole, calibration=calibration)

    def engines(self, spec: EngineSpec) -> Engines:
        """Raises UnavailableError."""
        raise UnavailableError('no GPU', 'engines are built on the machine that runs them; --target-sm 89 builds with TensorRT-RTX '
                               'for a compute capability (8.9), without a GPU, and tells their sizes')


class GpuBench:
    """TensorRT's engines, out of their engine sets."""

    emulated = ()

    def __init__(self, graphs: Graphs) -> None:
        """Raises EngineError where there is no GPU or no TensorRT."""
        self._graphs, self._machine, self._tensorrt = graphs, probe(), open_tensorrt()
        self.name = f"{self._tensorrt.title} on {self._machine.gpu}, the GPU's own time, copies included"

    def open(self, spec: EngineSpec) -> Backend:
        """As HostBench."""
        from lightglue_trt_ros.backends.tensorrt import TensorRTBackend
        engine_set = self._engine_set(spec)
        with _called('cannot run'):
            return TensorRTBackend(self._tensorrt, spec, engine_set.identity.early_exits, engine_set.plans(), self._tensorrt.title)

    def engines(self, spec: EngineSpec) -> Engines:
        """As HostBench."""
        engine_set = self._engine_set(spec)
        early_exits = engine_set.identity.early_exits
        with _called('engines damaged'):
            sizes = [len(plan) for name, plan in engine_set.plans().items() if name != EXTRACTOR]
            return Engines(sum(sizes) / MIB, early_exits.ends)

    def _engine_set(self, spec: EngineSpec) -> Artifact:
        check_fp8(spec, self._machine, self._tensorrt)
        with _called('no engines'):
            try:
                return open_artifact(self._graphs.engine_dir,
                                     Identity.of_engines(spec, self._graphs.model.identity, self._tensorrt, self._machine))
            except EngineError:
                self._graphs.calibration(spec)  # FP8 engines need one first
                raise


class TargetEngines:
    """Sizes of engines that TensorRT-RTX builds for a compute capability, kept nowhere and never run: it needs no GPU."""

    def __init__(self, graphs: Graphs, sm: int) -> None:
        """`sm` is 89 for 8.9. Raises EngineError."""
        self._graphs, self._sm, self._machine, self._tensorrt = graphs, sm, target(sm), open_tensorrt('rtx')
        self.name = f'{self._tensorrt.title}, built for compute capability {sm // 10}.{sm % 10} and not run'

    def engines(self, spec: EngineSpec) -> Engines:
        """As HostBench."""
        check_fp8(spec, self._machine, self._tensorrt)
        graph = self._graphs.matcher(spec)
        with _called('does not build'):
            plan = self._tensorrt.build(graph, spec.precision, BuildOptions(target_sm=self._sm))
            audit(plan, spec.precision)
        return Engines(len(plan.data) / MIB, self._graphs.whole.ends)


def open_bench(config: MatcherConfig, graphs: Graphs) -> tuple[HostBench | GpuBench, str]:
    """TensorRT where there are a GPU and `config` wants it, else ONNX Runtime; and why, where that was not the first choice.

    Raises EngineError when TensorRT was asked for and cannot be had.
    """
    if config.backend == 'onnxruntime':
        return HostBench(graphs), ''
    try:
        return GpuBench(graphs), ''
    except EngineError as error:
        if config.backend == 'tensorrt':
            raise
        return HostBench(graphs), error.reason


def check_fp8(spec: EngineSpec, machine: Machine, tensorrt: TensorRT) -> None:
    """Raises UnavailableError where FP8 is wanted and the GPU or its TensorRT lacks it."""
    if spec.precision == 'fp8':
        with _called('no FP8 here'):
            decide('fp8', machine.compute_capability, tensorrt.version, tensorrt.name)


@contextmanager
def _called(reason: str) -> Iterator[None]:
    """A failure in it makes the case unavailable, with these words unless it has some."""
    try:
        yield
    except UnavailableError:
        raise
    except LightglueTrtError as error:
        raise UnavailableError(reason, str(error)) from error
