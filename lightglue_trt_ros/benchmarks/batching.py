"""Whether an extractor of batch 2 would be worth building: a stereo pair's images in one run of the convolutions against two."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ..backends.onnxruntime import Network, ort_values
from ..config import MatcherConfig
from ..features import UInt8
from ..graphs.superpoint import dense_superpoint
from ..weights.pairs import load_pair

WARM = 2  # pairs of frames before the first that counts


@dataclass(frozen=True)
class BatchTimes:
    """Milliseconds for both images of each pair, wall and of all threads."""

    single_ms: list[float] = field(default_factory=list)
    single_cpu_ms: list[float] = field(default_factory=list)
    batch_ms: list[float] = field(default_factory=list)
    batch_cpu_ms: list[float] = field(default_factory=list)


def measure_batch(config: MatcherConfig, frames: Iterator[UInt8], threads: int = 0) -> BatchTimes:
    """ONNX Runtime in FP32, both ways in turn on the same images. Raises WeightsError, EngineError."""
    spec, weights = config.engine_spec('fp32'), load_pair(config.weights).extractor
    single, both = (Network(dense_superpoint(spec, weights, batch), threads) for batch in (1, 2))
    found = BatchTimes()
    for number, pair in enumerate(zip(frames, frames, strict=False), -WARM):
        ones = [ort_values({'images': image[None]}) for image in pair]
        two = ort_values({'images': np.stack(pair)})
        for wall_ms, cpu_ms, runs in ((found.single_ms, found.single_cpu_ms, [(single, each) for each in ones]),
                                      (found.batch_ms, found.batch_cpu_ms, [(both, two)])):
            wall, cpu = time.perf_counter(), time.process_time()
            for network, images in runs:
                network.run(images, None)
            if number >= 0:
                wall_ms.append((time.perf_counter() - wall) * 1e3)
                cpu_ms.append((time.process_time() - cpu) * 1e3)
    return found
