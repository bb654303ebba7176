"""Which backend runs, and why: nothing falls back without saying so."""

from __future__ import annotations

from ..config import MatcherConfig
from ..errors import EngineError
from ..weights.store import load_weights, resolve_lightglue
from . import Backend


def open_backend(config: MatcherConfig, *, threads: int = 0) -> tuple[Backend, str]:
    """The backend for `config`, and a sentence that says which was taken and why.

    Call it from the thread that will use the backend. Raises EngineError, ConfigError or WeightsError.
    """
    if config.backend == 'tensorrt':
        raise EngineError('backend is tensorrt, which this version does not have yet: use onnxruntime or auto')
    if config.precision == 'fp8':
        raise EngineError('precision is fp8, which ONNX Runtime does not run: use fp32 or fp16')
    from .onnxruntime import OnnxRuntimeBackend
    lightglue_name, reason = resolve_lightglue(config.lightglue_weights)
    precision = 'fp32' if config.precision == 'auto' else config.precision
    backend = OnnxRuntimeBackend(config.engine_spec(precision), load_weights('superpoint'), load_weights(lightglue_name),
                                 threads=threads)
    asked = 'asked for' if config.backend == 'onnxruntime' else 'auto: this version has no TensorRT backend yet'
    return backend, f'{backend.description} ({asked}; {reason})'
