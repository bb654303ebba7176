"""The embedded default: both graphs in ONNX Runtime, on the CPU or on any provider it has."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..config import EngineSpec
from ..errors import EngineError
from ..features import Features, HostFeatures, Matches, Thresholds, UInt8
from ..weights.store import Weights


class OnnxRuntimeBackend:
    """SuperPoint and LightGlue written as ONNX graphs in memory and run by ONNX Runtime. Raises EngineError."""

    def __init__(self, spec: EngineSpec, superpoint_weights: Weights, lightglue_weights: Weights, *, threads: int = 0) -> None:
        """`threads` 0 leaves the number to ONNX Runtime: one per physical core."""
        from ..graphs.lightglue import lightglue
        from ..graphs.superpoint import superpoint
        self.spec = spec
        self._options = _runtime().RunOptions()
        self._extractor = _session(superpoint(spec, superpoint_weights), threads)
        self._matcher = _session(lightglue(spec, lightglue_weights), threads)
        provider = self._matcher.get_providers()[0].removesuffix('ExecutionProvider')
        self.description = f'ONNX Runtime {_runtime().__version__} on {provider}, {spec}, {lightglue_weights.name}'

    def extract(self, image: UInt8) -> HostFeatures:
        keypoints, scores, descriptors = self._run(self._extractor, {'image': np.ascontiguousarray(image)})
        return HostFeatures(keypoints, scores, descriptors)

    def match(self, reference: Features, current: Features, thresholds: Thresholds) -> Matches:
        if not isinstance(reference, HostFeatures) or not isinstance(current, HostFeatures):
            raise EngineError('ONNX Runtime was given features of another backend: extract and match with the same one')
        feed = {f'{name}{side}': getattr(features, name) for side, features in enumerate((reference, current))
                for name in ('keypoints', 'descriptors', 'scores')}
        feed |= {'match_threshold': np.array(thresholds.match, np.float32),
                 'detection_threshold': np.array(thresholds.detection, np.float32)}
        return Matches(*self._run(self._matcher, feed))

    def cancel(self) -> None:
        self._options.terminate = True

    def close(self) -> None:
        self._extractor = self._matcher = None

    def _run(self, session: Any, feed: dict[str, Any]) -> list[Any]:
        if session is None:
            raise EngineError('this backend is closed: open another one')
        try:
            outputs: list[Any] = session.run(None, feed, self._options)
        except Exception as error:  # ONNX Runtime has no public root exception
            raise EngineError(f'ONNX Runtime failed: {error}') from error
        return outputs


def _runtime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise EngineError(f'ONNX Runtime cannot be imported ({error}): pip install onnxruntime') from error
    return onnxruntime


def _session(model: Any, threads: int) -> Any:
    runtime = _runtime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    # not ONNX Runtime's own TensorRT provider: it would build engines for minutes, unasked
    providers = [name for name in runtime.get_available_providers() if name in ('CUDAExecutionProvider', 'CPUExecutionProvider')]
    try:
        return runtime.InferenceSession(model.SerializeToString(), options, providers=providers)
    except Exception as error:  # as above
        raise EngineError(f'ONNX Runtime cannot load the {model.metadata_props[0].value} graph: {error}') from error
