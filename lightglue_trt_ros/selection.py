"""Which backend runs, and why: nothing falls back without saying so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from .backends import Backend
from .config import MatcherConfig
from .depth import Depth
from .engines.bundle import engine_dir_of
from .engines.calibrations import find_calibration
from .errors import EngineError, LightglueTrtError
from .processes import start, wait
from .weights.pairs import identify_pair, load_pair


class Opened(NamedTuple):
    """A backend, what it is and why it was taken, and what was given up for it (empty: nothing)."""

    backend: Backend
    reason: str
    warning: str = ''


def open_backend(config: MatcherConfig, *, threads: int = 0, depth: Depth | None = None,
                 cancelled: Callable[[], bool] = lambda: False) -> Opened:
    """The backend for `config`, opened in the thread that will use it; `depth` is for ONNX Runtime, engines have their own.

    `auto` takes TensorRT where its engines fit this machine, else ONNX Runtime with a warning that says why and how to get the
    GPU back. Engines that it builds are given up once `cancelled()` is true.
    Raises EngineError where `tensorrt` was asked for and cannot be had, ConfigError, WeightsError.
    """
    if config.backend == 'onnxruntime':
        return _open_onnxruntime(config, threads, depth, 'asked for')
    try:
        return _warned(_open_tensorrt(config, cancelled), config)
    except EngineError as error:
        if config.backend == 'tensorrt' or cancelled():
            raise
        why = str(error)  # the error itself would keep what its traceback holds
    opened = _open_onnxruntime(config, threads, depth, 'auto: TensorRT cannot be used here')
    return opened._replace(warning=f'running on ONNX Runtime, not on TensorRT: {why}')


def _warned(opened: Opened, config: MatcherConfig) -> Opened:
    """Said once, at the start: early exits are asked for, and these engines have none."""
    if config.depth_confidence < 0 or len(opened.backend.depth.ends) > 1:
        return opened
    return opened._replace(warning=f'depth_confidence is {config.depth_confidence:g}, but these engines run all layers: '
                                   'build_engines makes others (without --stages 9), -1 asks for no early exit')


def _open_onnxruntime(config: MatcherConfig, threads: int, depth: Depth | None, why: str) -> Opened:
    from .backends.onnxruntime import OnnxRuntimeBackend
    pair = load_pair(config.weights)
    precision = 'fp16' if config.precision == 'fp16' else 'fp32'
    spec, calibration, warning = config.engine_spec(precision), None, ''
    if config.precision == 'fp8':
        calibration = find_calibration(engine_dir_of(config.engine_dir), spec, pair.identity).load()
        warning = 'precision is fp8, which ONNX Runtime emulates: its matches are those of FP8, its times are not'
    backend = OnnxRuntimeBackend(spec, pair, depth=depth, threads=threads, calibration=calibration)
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
    from .engines.adapter import open_tensorrt
    from .engines.bundle import open_bundle
    from .engines.machine import probe
    from .engines.manifest import Identity
    from .engines.precision import decide
    machine, tensorrt = probe(), open_tensorrt()
    pair = identify_pair(config.weights)
    folder = engine_dir_of(config.engine_dir)
    calibrated = (folder / config.engine_spec('fp8').name).is_dir()
    decision = decide(config.precision, machine.compute_capability, tensorrt.version, tensorrt.name, calibrated)
    spec = config.engine_spec(decision.matcher)
    wanted = Identity.of(spec, pair, tensorrt, machine)
    if config.build_on_start:
        _build(config, folder, decision.matcher, cancelled)
    bundle = open_bundle(folder, wanted)
    from .backends.tensorrt import TensorRTBackend
    backend = TensorRTBackend(tensorrt, spec, bundle.manifest.depth, bundle.plans(),
                              f'TensorRT {tensorrt.version}, {spec}, weights {pair}')
    return Opened(backend, f'{backend.description} ({decision.reason}; engines in {bundle.path})')


def _build(config: MatcherConfig, folder: Path, precision: str, cancelled: Callable[[], bool]) -> None:
    """Build the engines where they are not there yet, which takes minutes: in a process of its own, whose memory then goes back."""
    words = ['--height', config.image_height, '--width', config.image_width, '--max-keypoints', config.max_keypoints,
             '--precision', precision, '--engine-dir', folder, '--weights', config.weights]
    if wait(start('cli.build_engines', *map(str, words)), cancelled):
        raise EngineError('build_on_start: the engines could not be built; the lines above say why')
