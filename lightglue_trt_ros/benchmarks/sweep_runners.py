"""What runs a matcher for the sweep: ONNX Runtime, or TensorRT's engines on the GPU; and why something cannot be had here."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from ..backends import Backend
from ..calibration import Calibration
from ..config import EngineSpec, MatcherConfig
from ..depth import Depth
from ..engines.adapter import BuildOptions, open_tensorrt
from ..engines.artifacts import Artifact, Identity, engine_dir_of, open_artifact
from ..engines.audit import audit
from ..engines.machine import FP8_CAPABILITY, Machine, decide, probe, target
from ..errors import ConfigError, DeviceMemoryError, EngineError, EngineMismatchError
from ..features import Features, HostFeatures, UInt8
from ..weights.pairs import load_pair

NO_CALIBRATION = 'FP8 needs a calibration for each shape and the weights, which quantize makes'


class Missing(NamedTuple):
    """Why there is no figure."""

    reason: str  # a few words, for a table
    advice: str = ''  # what lies behind it, the same for all shapes
    command: str = ''  # what changes it


class Plans(NamedTuple):
    """The matcher's engines."""

    bytes: int
    ends: tuple[int, ...]  # their stages


class Runner(NamedTuple):
    """A matcher of one precision, ready to run."""

    backend: Backend
    own_features: bool  # it extracts by itself; otherwise it is given what the FP32 one extracted

    def see(self, image: UInt8, exact: Features | None) -> Features:
        """Features to match: `exact`, of the FP32 runner, in this one's type where they can be given to it."""
        if self.own_features or not isinstance(exact, HostFeatures):
            return self.backend.extract(image)
        dtype = 'float16' if self.backend.spec.precision == 'fp16' else 'float32'
        return HostFeatures(exact.keypoints, exact.scores, exact.descriptors.astype(dtype))

    def device_ms(self) -> float | None:
        """The GPU's own time for the last match, where it is one."""
        measure = getattr(self.backend, 'device_ms', None)
        return None if measure is None else float(measure()['match'])


class Graphs:
    """The matcher's graphs for one set of weights, and the calibrations that lie beside the engines."""

    def __init__(self, config: MatcherConfig) -> None:
        """Raises ConfigError, WeightsError."""
        self.engine_dir = engine_dir_of(config.engine_dir)
        self.pair = load_pair(config.weights)
        self.whole = Depth((self.pair.layers,))  # the matcher in one graph

    def calibration(self, spec: EngineSpec) -> Calibration | Missing:
        """The calibration for this shape and these weights that passed its gate."""
        wanted = Identity.of_calibration(spec, self.pair.identity)
        try:
            return open_artifact(self.engine_dir, wanted).calibration()
        except EngineMismatchError as error:
            return Missing('no calibration', NO_CALIBRATION, _command(error))
        except EngineError as error:
            if (self.engine_dir / wanted.name).is_dir():
                return Missing('no good calibration', _first_line(error), _command(error))
            return Missing('no calibration', NO_CALIBRATION, _command(error))

    def matcher(self, spec: EngineSpec) -> bytes | Missing:
        """The whole matcher as an ONNX file."""
        from ..graphs.lightglue import lightglue
        if spec.precision != 'fp8':
            return bytes(lightglue(spec, self.pair.matcher).SerializeToString())
        calibration = self.calibration(spec)
        if isinstance(calibration, Missing):
            return calibration
        try:
            return bytes(lightglue(spec, self.pair.matcher, calibration=calibration).SerializeToString())
        except ConfigError as error:
            return Missing('no good calibration', _first_line(error))


class Bench(Protocol):
    """A machine's way to run matchers."""

    name: str  # for people: what runs, and how its times are taken

    def open(self, spec: EngineSpec) -> Runner | Missing:
        """A runner whose times mean something here."""

    def emulate(self, spec: EngineSpec) -> Runner | Missing:
        """A runner that rounds as FP8 does, where `open` has none; its times mean nothing."""

    def plans(self, spec: EngineSpec) -> Plans | Missing:
        """The engines of the matcher."""


class HostBench:
    """ONNX Runtime: FP32 and FP16 as they are, FP8 emulated."""

    def __init__(self, graphs: Graphs) -> None:
        self._graphs = graphs
        self.name = 'ONNX Runtime, wall time'

    def open(self, spec: EngineSpec) -> Runner | Missing:
        from ..backends.onnxruntime import OnnxRuntimeBackend
        if spec.precision == 'fp8':
            return Missing('TensorRT only', 'FP8 runs in TensorRT alone, on FP8 tensor cores (compute capability 8.9 or newer); '
                           'ONNX Runtime emulates it, which gives matches and no times')
        return _opened(lambda: OnnxRuntimeBackend(spec, self._graphs.pair, depth=self._graphs.whole), own_features=False)

    def emulate(self, spec: EngineSpec) -> Runner | Missing:
        from ..backends.onnxruntime import OnnxRuntimeBackend
        calibration = self._graphs.calibration(spec)
        if isinstance(calibration, Missing):
            return calibration
        exact = EngineSpec(spec.image_height, spec.image_width, spec.max_keypoints)
        return _opened(lambda: OnnxRuntimeBackend(exact, self._graphs.pair, depth=self._graphs.whole,
                                                  calibration=calibration), own_features=False)

    def plans(self, spec: EngineSpec) -> Plans | Missing:
        return Missing('no GPU', 'engines are built on the machine that runs them; --target-sm 89 builds with TensorRT-RTX for a '
                       'compute capability (8.9), without a GPU, and tells their sizes')


class GpuBench:
    """TensorRT's engines, out of their bundles."""

    def __init__(self, graphs: Graphs) -> None:
        """Raises EngineError where there is no GPU or no TensorRT."""
        self._graphs, self.machine, self._tensorrt = graphs, probe(), open_tensorrt()
        self.name = f"{self._tensorrt.title} on {self.machine.gpu}, the GPU's own time, copies included"

    def open(self, spec: EngineSpec) -> Runner | Missing:
        from ..backends.tensorrt import TensorRTBackend
        bundle = self._bundle(spec)
        if isinstance(bundle, Missing):
            return bundle
        return _opened(lambda: TensorRTBackend(self._tensorrt, spec, bundle.identity.depth, bundle.plans(), self._tensorrt.title),
                       own_features=True)

    def emulate(self, spec: EngineSpec) -> Runner | Missing:
        found = self._bundle(spec)
        return found if isinstance(found, Missing) else Missing('cannot run')

    def plans(self, spec: EngineSpec) -> Plans | Missing:
        bundle = self._bundle(spec)
        if isinstance(bundle, Missing):
            return bundle
        depth = bundle.identity.depth
        try:
            return Plans(sum((bundle.path / f'{name}.plan').stat().st_size for name in depth.graphs), depth.ends)
        except OSError as error:
            return Missing('engines damaged', f'{error.filename} cannot be read ({error.strerror}): build them again')

    def _bundle(self, spec: EngineSpec) -> Artifact | Missing:
        if spec.precision == 'fp8' and (lacking := lacks_fp8(self.machine, self._tensorrt.version, self._tensorrt.name)):
            return lacking
        wanted = Identity.of_engines(spec, self._graphs.pair.identity, self._tensorrt, self.machine)
        try:
            return open_artifact(self._graphs.engine_dir, wanted)
        except EngineMismatchError:
            return Missing('engines of another kind', 'they were built for other weights, another GPU or another TensorRT',
                           wanted.command(self._graphs.engine_dir))
        except EngineError:
            calibration = self._graphs.calibration(spec) if spec.precision == 'fp8' else None
            if isinstance(calibration, Missing):
                return calibration
            return Missing('no engines', 'build_engines makes them for each shape', wanted.command(self._graphs.engine_dir))


class TargetPlans:
    """Sizes of engines that TensorRT-RTX builds for a compute capability, kept nowhere and never run: it needs no GPU."""

    def __init__(self, graphs: Graphs, sm: int) -> None:
        """`sm` is 89 for 8.9. Raises EngineError."""
        self._graphs, self._sm, self._machine, self._tensorrt = graphs, sm, target(sm), open_tensorrt('rtx')
        self.name = f'{self._tensorrt.title}, built for compute capability {sm // 10}.{sm % 10} and not run'

    def plans(self, spec: EngineSpec) -> Plans | Missing:
        if spec.precision == 'fp8' and (lacking := lacks_fp8(self._machine, self._tensorrt.version, self._tensorrt.name)):
            return lacking
        graph = self._graphs.matcher(spec)
        if isinstance(graph, Missing):
            return graph
        try:
            plan = self._tensorrt.build(graph, spec.precision, BuildOptions(target_sm=self._sm))
            audit(plan, spec.precision)
        except EngineError as error:
            return Missing('does not build', _first_line(error))
        return Plans(len(plan.data), self._graphs.whole.ends)


def open_bench(config: MatcherConfig, graphs: Graphs) -> tuple[Bench, str]:
    """TensorRT where there are a GPU and `config` wants it, else ONNX Runtime; and why, where that was not the first choice.

    Raises EngineError when TensorRT was asked for and cannot be had, WeightsError.
    """
    if config.backend == 'onnxruntime':
        return HostBench(graphs), ''
    try:
        return GpuBench(graphs), ''
    except EngineError as error:
        if config.backend == 'tensorrt':
            raise
        return HostBench(graphs), _first_line(error)


def lacks_fp8(machine: Machine, tensorrt_version: str, flavour: str) -> Missing | None:
    """What keeps a GPU from FP8, if anything."""
    try:
        decide('fp8', machine.compute_capability, tensorrt_version, flavour)
    except EngineError as error:
        below = tuple(machine.compute_capability) < FP8_CAPABILITY
        return Missing('no FP8 tensor cores' if below else 'TensorRT too old', str(error))
    return None


def _opened(make: Callable[[], Backend], *, own_features: bool) -> Runner | Missing:
    try:
        return Runner(make(), own_features)
    except DeviceMemoryError as error:
        return Missing('GPU memory full', _first_line(error))
    except (ConfigError, EngineError) as error:
        return Missing('cannot run', _first_line(error))


def _command(error: Exception) -> str:
    """What an error of ours ends with: the command that helps, on a line of its own."""
    last = str(error).rpartition('\n')[2]
    return last if last.startswith('ros2 ') else ''


def _first_line(error: Exception) -> str:
    return str(error).partition('\n')[0]
