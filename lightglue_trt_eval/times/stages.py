"""Times of a frame: of its stages, of the GPU by network, of TensorRT by layer; and the gain of the feature cache."""

from __future__ import annotations

import resource
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from lightglue_trt_ros.backends.tensorrt import TensorRTBackend
from lightglue_trt_ros.core.backend import Backend
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.correspondences import Sought
from lightglue_trt_ros.core.frame_matcher import FrameMatcher
from lightglue_trt_ros.core.geometry import resize_gray, size_of, to_original
from lightglue_trt_ros.core.types import Thresholds, UInt8
from lightglue_trt_ros.engines.precision_check import read_layers
from lightglue_trt_ros.engines.tensorrt_api import open_tensorrt
from lightglue_trt_ros.utils.errors import EngineError

RUNS = 50


@dataclass(frozen=True)
class StageTimes:
    """Wall milliseconds of every frame that counts, by stage; `frame` is all of FrameMatcher.process."""

    stages: dict[str, list[float]]
    peak_memory_mib: float
    layers: list[int]  # of LightGlue that ran

    @property
    def fps(self) -> float:
        return 1e3 / float(np.median(self.stages['frame']))


def measure_stages(backend: Backend, config: MatcherConfig, frames: Iterator[UInt8], skip: int = 1, hz: float = 0.0) -> StageTimes:
    """Run `frames` through FrameMatcher; on a GPU `gpu` is its own time, copies and tries before the first layer included.

    The first `skip` frames are not counted. With `hz` frames come as those of a camera of this rate, else one after the other.
    """
    matcher, device_ms = FrameMatcher(backend, config), getattr(backend, 'device_ms', None)
    stages: dict[str, list[float]] = {}
    layers: list[int] = []
    begun = time.perf_counter()
    for i, image in enumerate(frames):
        if hz:
            time.sleep(max(0.0, begun + i / hz - time.perf_counter()))
        started = time.perf_counter()
        matches = matcher.process(image, 0.1 * i)
        if matches is not None and i >= skip:
            elapsed = (time.perf_counter() - started) * 1e3
            layers.append(matches.layers)
            spent = device_ms() if device_ms else {}
            gpu = {'gpu': spent['extract'] + spent['match']} if spent else {}
            for name, value in {**matches.stage_ms, **gpu, 'frame': elapsed}.items():
                stages.setdefault(name, []).append(value)
    return StageTimes(stages, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, layers)


def measure_caching(backend: Backend, config: MatcherConfig, frames: Iterator[UInt8]) -> dict[str, float]:
    """A frame with cached reference features against one that extracts both images again: cached_ms, uncached_ms, their `ratio`.

    Every other frame extracts the frame before it again, as a pair pipeline does, so that a drifting clock favours neither.
    Times are medians. `predicted` is the ratio that extract_ms and match_ms alone give.
    """
    matcher, size = FrameMatcher(backend, config), (backend.spec.image_height, backend.spec.image_width)
    times: dict[str, list[float]] = {'cached': [], 'uncached': [], 'extract': [], 'match': []}
    previous: UInt8 | None = None
    for i, image in enumerate(frames):
        started = time.perf_counter()
        if previous is not None and i % 2:
            backend.extract(resize_gray(previous, size))
        matches = matcher.process(image, 0.1 * i)
        elapsed = (time.perf_counter() - started) * 1e3
        if matches is not None:
            times['uncached' if i % 2 else 'cached'].append(elapsed)
            for name in () if i % 2 else ('extract', 'match'):
                times[name].append(matches.stage_ms[name])
        previous = image
    cached, uncached, extract, match = (float(np.median(values)) for values in times.values())
    return {'cached_ms': cached, 'uncached_ms': uncached, 'extract_ms': extract, 'match_ms': match, 'ratio': uncached / cached,
            'predicted': (2 * extract + match) / (extract + match)}


@dataclass(frozen=True)
class LayerTime:
    """One layer of an engine, median milliseconds of RUNS runs."""

    network: str
    name: str
    kind: str
    precision: str
    ms: float


def device_times(engines: TensorRTBackend, frames: Iterator[UInt8]) -> dict[str, list[float]]:
    """The GPU's milliseconds per frame, by stage and together, copies included.

    `extract` also resizes the frame and makes its pyramid. `place` is refinement and geometry: correspondences less matches.
    `match` has all layers; `at exit 0` is what is left of `together` without any. Points are searched without a match where the
    pair before matched them.
    """
    engine = engines.spec.image_height, engines.spec.image_width
    previous, sought, times = None, None, defaultdict(list)
    for image in frames:
        current, matched = engines.extract_frame(image), np.zeros(engines.spec.max_keypoints, np.bool_)
        if previous is not None and sought is not None:
            indices = engines.match(previous, current, Thresholds()).indices
            by_stage = engines.device_ms()
            engines.correspond(previous, current, Thresholds(), sought)
            by_stage['place'] = engines.device_ms()['match'] - by_stage['match']
            by_stage['together'] = sum(by_stage.values())
            if engines.early_exits.at_zero:
                engines.correspond(previous, current, Thresholds(at_zero=True), sought)
                by_stage['at exit 0'] = by_stage['extract'] + engines.device_ms()['match']
            for name, value in by_stage.items():
                times[name].append(value)
            matched[indices[indices >= 0]] = True
        previous, sought = current, Sought(to_original(current.keypoints, engine, size_of(image)), matched, None, 0.0)
    return dict(times)


def profile(backend: Backend) -> list[LayerTime]:
    """Time per layer, by TensorRT's profiler: without CUDA graphs and with a wait after each run, so the sum exceeds the real time.

    Raises EngineError without a GPU.
    """
    if not isinstance(backend, TensorRTBackend):
        raise EngineError('there is no GPU to measure: the backend is not TensorRT; see --backend tensorrt')
    module: Any = open_tensorrt().module
    layers = []

    class Recorder(module.IProfiler):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.times: dict[str, list[float]] = defaultdict(list)

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            self.times[layer_name].append(ms)

    for network, (context, enqueue) in backend.enqueue_plainly().items():
        inspected = context.engine.create_engine_inspector().get_engine_information(module.LayerInformationFormat.JSON)
        known = {layer.name: layer for layer in read_layers(inspected)}
        context.profiler = recorder = Recorder()
        for _ in range(RUNS):
            enqueue()
            backend.cuda.synchronize()
        for name, times in recorder.times.items():
            layer = known.get(name)
            layers.append(LayerTime(network, name, layer.kind if layer else 'unknown', layer.precision if layer else 'unknown',
                                    float(np.median(times))))
    return layers


def shares(layers: Iterable[LayerTime], field: str) -> list[tuple[str, str, float]]:
    """(network, value of `field`, share of the network's time), largest first within each network."""
    sums: dict[tuple[str, str], float] = defaultdict(float)
    totals: dict[str, float] = defaultdict(float)
    for layer in layers:
        sums[layer.network, getattr(layer, field)] += layer.ms
        totals[layer.network] += layer.ms
    return sorted(((network, value, ms / totals[network]) for (network, value), ms in sums.items()),
                  key=lambda row: (row[0], -row[2]))
