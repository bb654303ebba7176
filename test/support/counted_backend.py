"""A backend on the real networks that counts what it is asked for."""

from __future__ import annotations

from typing import Any

from lightglue_trt_ros.backends.onnxruntime import OnnxRuntimeBackend
from lightglue_trt_ros.core.types import Features, HostFeatures, Matches, Thresholds, UInt8


class CountedBackend(OnnxRuntimeBackend):
    """`extracted` has the sum of each image so far, `matched` the number of pairs."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.extracted: list[int] = []
        self.matched = 0

    def extract(self, image: UInt8, mask: UInt8 | None = None) -> HostFeatures:
        self.extracted.append(int(image.sum()))
        return super().extract(image, mask)

    def match(self, reference: Features, current: Features, thresholds: Thresholds) -> Matches:
        self.matched += 1
        return super().match(reference, current, thresholds)
