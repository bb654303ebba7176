"""A backend that computes nothing: it shows the cost of the node alone, in benchmarks and tests."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from lightglue_trt_ros.core.config import EngineSpec
from lightglue_trt_ros.core.early_exit import LAYERS, EarlyExits
from lightglue_trt_ros.core.score_calibration import UNCALIBRATED
from lightglue_trt_ros.core.types import Features, HostFeatures, Matches, Thresholds, UInt8


class NullBackend:
    """Every frame has the same K keypoints, and each matches itself."""

    def __init__(self, spec: EngineSpec) -> None:
        rng = np.random.default_rng(0)
        size = np.array([spec.image_width, spec.image_height], np.float32)
        keypoints = rng.random((spec.max_keypoints, 2), np.float32) * size
        self.spec, self.description = spec, 'null: no networks run, every keypoint matches itself'
        self.early_exits, self.score_calibration = EarlyExits((LAYERS,)), UNCALIBRATED
        self._features = HostFeatures(keypoints, np.ones(spec.max_keypoints, np.float32), np.empty((0, 256), np.float32))
        self._matches = Matches(np.arange(spec.max_keypoints, dtype=np.int32), np.ones(spec.max_keypoints, np.float32), 0)

    def extract(self, image: UInt8, mask: UInt8 | None = None) -> HostFeatures:
        return self._features

    def match(self, reference: Features, current: Features, thresholds: Thresholds) -> Matches:
        return self._matches

    def match_exits(self, reference: Features, current: Features, thresholds: Thresholds) -> Iterator[Matches]:
        return itertools.repeat(self._matches, len(self.early_exits.ends))

    def keep(self, features: Features) -> HostFeatures:
        return self._features

    def select_camera(self, camera: int) -> None:
        """Nothing is kept between frames."""

    def cancel(self) -> None:
        """Nothing runs."""

    def close(self) -> None:
        """Nothing is held."""
