"""A backend on the real networks that counts what it is asked for."""

from __future__ import annotations

from lightglue_trt_ros.backends.onnxruntime import OnnxRuntimeBackend


class CountedBackend(OnnxRuntimeBackend):
    """`extracted` images and `matched` pairs so far."""

    extracted = matched = 0

    def extract(self, *given):
        self.extracted += 1
        return super().extract(*given)

    def match(self, *given):
        self.matched += 1
        return super().match(*given)
