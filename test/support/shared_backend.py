"""The light model on ONNX Runtime for tests of the node: opened once in a process, run once on each image and pair."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from support.networks import Remembered, light

from lightglue_trt_ros.backends.onnxruntime import OnnxRuntimeBackend
from lightglue_trt_ros.core.config import EngineSpec, MatcherConfig
from lightglue_trt_ros.core.types import HostFeatures
from lightglue_trt_ros.engines.selection import Opened


class SharedBackend(Remembered):
    """Closing and cancelling leave the shared networks as they are. `extracted` has the sum of each image."""

    def __init__(self, spec: EngineSpec) -> None:
        shared = _remembered(spec)
        super().__init__(shared.inner)
        self.known = shared.known
        self.extracted: list[int] = []

    def extract(self, image: np.ndarray, mask: np.ndarray | None = None) -> HostFeatures:
        assert mask is None, 'results are remembered by the image alone'
        self.extracted.append(int(image.sum()))
        return super().extract(image)

    def select_camera(self, camera: int) -> None:
        """Nothing is kept between frames."""

    def cancel(self) -> None:
        """The running call ends soon by itself."""

    def close(self) -> None:
        """It stays open for the next test."""


@cache
def _remembered(spec: EngineSpec) -> Remembered:
    return Remembered(OnnxRuntimeBackend(spec, light(), threads=1))


def open_shared(config: MatcherConfig, *, cancelled: Any = None) -> Opened:
    """As `selection.open_backend`."""
    backend = SharedBackend(config.engine_spec('fp32'))
    return Opened(backend, backend.description)
