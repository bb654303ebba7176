"""What a board does with each shape: engines, their agreement with the CPU, times of a frame; and with the node of a camera."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import numpy as np

from lightglue_trt_ros.backends.tensorrt import TensorRTBackend
from lightglue_trt_ros.core.backend import Backend
from lightglue_trt_ros.core.config import EngineSpec, MatcherConfig
from lightglue_trt_ros.core.geometry import resize_gray
from lightglue_trt_ros.core.types import UInt8
from lightglue_trt_ros.engines.manifest import Artifact, engine_dir_of
from lightglue_trt_ros.engines.parity import FRAMES, failures, parity
from lightglue_trt_ros.engines.selection import open_backend
from lightglue_trt_ros.utils.errors import LightglueTrtError

from .sensors import sampled
from .stages import device_times, measure_stages

Frames = Callable[[int, int, int], Iterator[UInt8]]  # count, height, width: gray images
SKIPPED = 20  # frames before those that count
LEVELS = (50, 95, 99, 100)  # percentiles of times; 100 is the largest


@dataclass(frozen=True)
class ShapeCheck:
    """One shape. Times in milliseconds: those of LEVELS."""

    name: str
    engine: str
    build_s: float | None  # None: no engines
    open_s: float
    device_mib: float | None
    disagreements: list[str] | None  # with the CPU's FP32; None: not compared, as it is the CPU's
    layers: float  # of LightGlue, in the mean
    stages_ms: dict[str, list[float]]
    device_ms: dict[str, list[float]] = field(default_factory=dict)  # all layers, and `at exit 0`


@dataclass(frozen=True)
class NodeCheck:
    """The node with one camera."""

    hz: float
    seconds: float
    lost: int  # images without a cloud; that of the last one may be on its way
    latency_ms: list[float]  # of LEVELS, image published to cloud received
    cpu_ms: float  # for a cloud
    memory_mib: float
    device_mib: float
    sensors: dict[str, tuple[float, float]]  # first and largest value


def check_shape(config: MatcherConfig, frames: Frames, count: int) -> ShapeCheck:
    """Open the backend of `config` and run `count` frames. Raises LightglueTrtError."""
    started = time.perf_counter()
    opened = open_backend(config)
    open_s = time.perf_counter() - started
    with closing(opened.backend) as backend:
        height, width = config.image_height, config.image_width
        times = measure_stages(backend, config, frames(SKIPPED + count, height, width), SKIPPED)
        on_gpu = isinstance(backend, TensorRTBackend)
        return ShapeCheck(
            backend.spec.name, opened.reason,
            build_seconds(engine_dir_of(config.engine_dir), backend.spec, config.weights) if on_gpu else None,
            round(open_s, 2), round(backend.device_memory_mib, 1) if isinstance(backend, TensorRTBackend) else None,
            _disagreements(backend, config, frames) if on_gpu else None, round(float(np.mean(times.layers)), 2),
            {name: levels(values) for name, values in times.stages.items()},
            _device_ms(backend, frames(min(count, 200), height, width)))


def check_node(config: MatcherConfig, hz: float, seconds: float) -> NodeCheck:
    """Run the node for some seconds. Raises LightglueTrtError, also where rclpy is missing."""
    try:
        from .node_costs import measure_matcher
    except ImportError as error:
        raise LightglueTrtError(f'the node needs ROS 2, which is not sourced here ({error})') from error
    with sampled() as sensors:
        cost = measure_matcher(config, hz, seconds)
    clouds = len(cost.latency_ms[0])
    if not clouds:
        raise LightglueTrtError(f'the node published no cloud in {seconds:g} s at {hz:g} Hz: run it longer (--seconds), and see '
                                'its lines')
    return NodeCheck(hz, seconds, max(0, round(hz * seconds) - 1 - clouds), levels(cost.latency_ms[0]), round(cost.cpu_ms, 2),
                     round(cost.memory_mib, 1), round(cost.device_mib, 1),
                     {name: (values[0], max(values)) for name, values in sensors.items()})


def levels(values: Sequence[float]) -> list[float]:
    """The LEVELS of some times, rounded; none of no times."""
    return [round(float(value), 3) for value in np.percentile(values, LEVELS)] if values else []


def build_seconds(engine_dir: Path, spec: EngineSpec, weights: str) -> float | None:
    """What building the engines of `spec` took, by their manifest; None where none tells."""
    for path in sorted(engine_dir.glob(f'*-{spec.name}')):
        try:
            artifact = Artifact.of_folder(path)
        except (OSError, ValueError):
            continue
        if artifact.identity.weights == weights:
            return round(float(sum(artifact.record.get('build_seconds', {}).values())), 1)
    return None


def _disagreements(backend: Backend, config: MatcherConfig, frames: Frames) -> list[str]:
    on_cpu = replace(config, backend='onnxruntime', precision='fp32')
    with closing(open_backend(on_cpu, depth=backend.early_exits).backend) as reference:
        images = [resize_gray(image, config.engine_spec('fp16').size)
                  for image in islice(frames(FRAMES, config.image_height, config.image_width), FRAMES)]
        return failures(parity(backend, reference, images), backend.spec.precision)


def _device_ms(backend: Backend, frames: Iterator[UInt8]) -> dict[str, list[float]]:
    if not isinstance(backend, TensorRTBackend):
        return {}
    return {name: levels(values) for name, values in device_times(backend, frames).items()}
