"""The matcher on the CPU: in FP32, emulating FP8, or with what its layers read as further outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ..backends.onnxruntime import OnnxMatcher, matcher_inputs
from ..core.config import EngineSpec
from ..core.early_exit import EarlyExits
from ..core.types import Float32, Int32, Thresholds
from ..networks.architecture import layers_of
from ..networks.fp8_calibration import Calibration
from ..networks.weights import Weights
from ..utils.console import Bar
from .samples import FramePair

OBSERVED = 'inputs.'
THRESHOLDS = Thresholds()


def open_matcher(spec: EngineSpec, weights: Weights, calibration: Calibration | None = None) -> OnnxMatcher:
    """The FP32 matcher with its usual exits; with a calibration its emulation in FP8. Raises EngineError."""
    from ..networks.lightglue import lightglue_stages
    early_exits = EarlyExits.of(layers_of(weights.tensors))
    stages = lightglue_stages(replace(spec, precision='fp32'), weights, early_exits, calibration=calibration)
    return OnnxMatcher(stages, early_exits)


def answers(matcher: OnnxMatcher, pairs: Sequence[FramePair], bar: Bar | None = None) -> list[Int32]:
    """For each pair (exits, K): the second image's row that each of the first matches, -1 where none. Raises EngineError."""
    return [np.stack([found.indices for found in matcher.match_exits(*pair.features, THRESHOLDS)])
            for pair in (bar or Bar()).each(pairs)]


def observations(spec: EngineSpec, weights: Weights, pairs: Sequence[FramePair], calibration: Calibration | None = None,
                 bar: Bar | None = None) -> Iterator[dict[str, Float32]]:
    """For each pair what the FP32 matcher's linears read, (2, K, inputs) by name. Raises EngineError.

    With a calibration in its bases and around its centres: what would be rounded.
    """
    from ..networks.lightglue import lightglue
    graph = lightglue(replace(spec, precision='fp32'), weights, calibration=calibration, observe=True)
    matcher = OnnxMatcher({'matcher': graph}, EarlyExits((layers_of(weights.tensors),)))
    for pair in (bar or Bar()).each(pairs):
        outputs = matcher.run('matcher', matcher_inputs(*pair.features, THRESHOLDS))
        yield {name.removeprefix(OBSERVED): value.numpy() for name, value in outputs.items() if name.startswith(OBSERVED)}
