"""Which backend runs, and why: nothing falls back without saying so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..core.backend import Backend
from ..core.config import MatcherConfig
from ..core.early_exit import EarlyExits
from ..core.score_calibration import UNCALIBRATED
from ..networks.models import SCORES, identify_model, load_model
from ..utils.errors import EngineError, EngineMismatchError, LightglueTrtError
from ..utils.processes import given_up, start, trim_heap, wait
from .engine_store import open_artifact, read_artifact
from .manifest import Artifact, Identity, engine_dir_of

if TYPE_CHECKING:
    from .gpu_info import Decision


class Opened(NamedTuple):
    """A backend, what it is and why it was taken, and what was given up for it (empty: nothing)."""

    backend: Backend
    reason: str
    warning: str = ''
    without_gpu: bool = False  # the warning is that there is no GPU, which nobody had asked for

    def warned(self, warning: str) -> Opened:
        """With one more warning, said once, at the start."""
        return self._replace(warning='; '.join(filter(None, (self.warning, warning))), without_gpu=False)


def open_backend(config: MatcherConfig, *, threads: int = 0, depth: EarlyExits | None = None,
                 cancelled: Callable[[], bool] = lambda: False) -> Opened:
    """The backend for `config`, opened in the thread that will use it; `depth` is for ONNX Runtime, engines have their own.

    `auto` takes TensorRT where its engines fit this machine, else ONNX Runtime with a warning that says why and how to get the
    GPU back. Engines that it builds, and graphs that are written for it, are given up once `cancelled()` is true.
    Raises EngineError where `tensorrt` was asked for and cannot be had, ConfigError, WeightsError.
    """
    before = given_up.set(cancelled)
    try:
        opened = _open(config, threads, depth, cancelled)
        if opened.backend.score_calibration != UNCALIBRATED:
            return opened
        return opened.warned(f"the model {config.weights} has no {SCORES}: scores are LightGlue's own, for which match_threshold "
                             '0.1 is usual (docs/models.md, Scores)')
    finally:
        given_up.reset(before)
        trim_heap()  # of weights and graphs as they were read: the backend has them otherwise


def _open(config: MatcherConfig, threads: int, depth: EarlyExits | None, cancelled: Callable[[], bool]) -> Opened:
    if config.backend == 'onnxruntime':
        return _open_onnxruntime(config, threads, depth, 'asked for')
    try:
        opened = _open_tensorrt(config, cancelled)
        if config.depth_confidence < 0 or len(opened.backend.early_exits.ends) > 1:
            return opened
        return opened.warned(f'depth_confidence is {config.depth_confidence:g}, but these engines run all layers: build_engines '
                             'makes others (without --stages), -1 asks for no early exit')
    except EngineError as error:
        if config.backend == 'tensorrt' or cancelled():
            raise
        why = str(error)  # the error itself would keep what its traceback holds
    opened = _open_onnxruntime(config, threads, depth, 'auto: TensorRT cannot be used here')
    from .gpu_info import has_gpu
    return opened._replace(warning=f'running on ONNX Runtime, not on TensorRT: {why}', without_gpu=not has_gpu())


def _open_onnxruntime(config: MatcherConfig, threads: int, depth: EarlyExits | None, why: str) -> Opened:
    from ..backends.onnxruntime import OnnxRuntimeBackend
    model = load_model(config.weights)
    precision = 'fp16' if config.precision == 'fp16' else 'fp32'
    spec, calibration, warning = config.engine_spec(precision), None, ''
    if config.precision == 'fp8':
        wanted = Identity.of_calibration(spec, model.identity)
        calibration = read_artifact(engine_dir_of(config.engine_dir), wanted, Artifact.calibration)[1]
        warning = 'precision is fp8, which ONNX Runtime emulates: its matches are those of FP8, its times are not'
    backend = OnnxRuntimeBackend(spec, model, early_exits=depth, threads=threads, calibration=calibration)
    return Opened(backend, f'{backend.description} ({why})', warning)


def _open_tensorrt(config: MatcherConfig, cancelled: Callable[[], bool]) -> Opened:
    try:
        return _open_engines(config, cancelled)
    except LightglueTrtError:
        raise
    except Exception as error:  # a broken installation fails in many ways: no library, no driver, another version
        raise EngineError(f'TensorRT cannot be used, {type(error).__name__}: {error}; mend the installation, or set backend to '
                          'onnxruntime') from error


def _open_engines(config: MatcherConfig, cancelled: Callable[[], bool]) -> Opened:
    engines, warning = _Engines(config), ''
    decision = engines.decide()
    if decision.matcher == 'fp8' and engines.uncalibrated and (why := engines.missing('fp8')) is not None:
        # only a calibration that passed makes such engines: they may have come without it
        decision = engines.decide(str(why if isinstance(why, EngineMismatchError) else engines.uncalibrated))
        if isinstance(engines.uncalibrated, EngineMismatchError):  # of an earlier version, say
            warning = f'running in fp16: {engines.uncalibrated}'
    precision, reason = decision.matcher, decision.reason
    if (why := engines.missing(precision)) is not None:
        if config.build_on_start:
            _build(config, engines.folder, precision, cancelled)
        elif config.precision == 'auto' and precision == 'fp8' and engines.missing('fp16') is None:
            precision, reason, warning = 'fp16', 'FP16 engines are there', f'running in fp16, not in fp8: {why}'
    return engines.open(precision, reason, warning)


class _Engines:
    """The engine sets of a configuration for this machine."""

    def __init__(self, config: MatcherConfig) -> None:
        from .gpu_info import probe
        from .tensorrt_api import open_tensorrt
        self.machine, self.tensorrt = probe(), open_tensorrt()
        self.config, self.model, self.folder = config, identify_model(config.weights), engine_dir_of(config.engine_dir)
        self.uncalibrated: EngineError | None = None  # why no calibration for FP8 is there
        self.calibration_sha256, self._loaded = '', dict[str, tuple[Artifact, dict[str, bytes]]]()
        try:
            wanted = Identity.of_calibration(config.engine_spec('fp8'), self.model)
            self.calibration_sha256 = open_artifact(self.folder, wanted).identity.calibration_sha256
        except EngineError as error:
            self.uncalibrated = error.with_traceback(None)  # which holds what its frames do

    def decide(self, uncalibrated: str = '') -> Decision:
        """The precisions, as of a machine with a calibration unless `uncalibrated` says why there is none."""
        from .gpu_info import decide
        capability, tensorrt = self.machine.compute_capability, self.tensorrt
        return decide(self.config.precision, capability, tensorrt.version, tensorrt.name, uncalibrated)

    def load(self, precision: str) -> tuple[Artifact, dict[str, bytes]]:
        """A set and its plans, read once. Raises EngineError."""
        if precision not in self._loaded:
            wanted = Identity.of_engines(self.config.engine_spec(precision), self.model, self.tensorrt, self.machine,
                                         calibration_sha256=self.calibration_sha256)
            self._loaded[precision] = read_artifact(self.folder, wanted, Artifact.plans)
        return self._loaded[precision]

    def missing(self, precision: str) -> EngineError | None:
        """Why these engines cannot be loaded; None: they can."""
        try:
            self.load(precision)
        except EngineError as error:
            return error.with_traceback(None)
        return None

    def open(self, precision: str, reason: str, warning: str) -> Opened:
        from ..backends.tensorrt import TensorRTBackend
        engine_set, plans = self.load(precision)
        spec = engine_set.identity.spec
        description = f'TensorRT {self.tensorrt.version}, {spec}, weights {self.model}'
        backend = TensorRTBackend(self.tensorrt, spec, engine_set.identity.early_exits, plans, description,
                                  score_calibration=self.model.score_calibration)
        return Opened(backend, f'{backend.description} ({reason}; engines in {engine_set.path})', warning)


def _build(config: MatcherConfig, folder: Path, precision: str, cancelled: Callable[[], bool]) -> None:
    """Build the engines where they are not there yet, which takes minutes: in a process of its own, whose memory then goes back."""
    words = ['--height', config.image_height, '--width', config.image_width, '--max-keypoints', config.max_keypoints,
             '--precision', precision, '--engine-dir', folder, '--weights', config.weights]
    if wait(start('lightglue_trt_ros.cli.build_engines', *map(str, words)), cancelled):
        raise EngineError('build_on_start: the engines could not be built; the lines above say why')
