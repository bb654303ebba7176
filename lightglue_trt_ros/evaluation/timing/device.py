"""What the GPU does with a frame: its own time per network, and TensorRT's time per layer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends.tensorrt import TensorRTBackend
from ...core.backend import Backend
from ...core.geometry import to_original
from ...core.types import Thresholds, UInt8
from ...engines.precision_check import read_layers
from ...engines.tensorrt_api import open_tensorrt
from ...utils.errors import EngineError

RUNS = 50


@dataclass(frozen=True)
class LayerTime:
    """One layer of an engine, median milliseconds of RUNS runs."""

    network: str
    name: str
    kind: str
    precision: str
    ms: float


def device_times(backend: Backend, frames: Iterator[UInt8]) -> dict[str, list[float]]:
    """The GPU's milliseconds per frame, by stage and together, copies included. Raises EngineError without a GPU.

    With engines that place points `extract` resizes the frame and makes its pyramid too, and the reference's points are placed by
    themselves, so that it shows.
    """
    engines = _engines_of(backend)
    engine = engines.spec.image_height, engines.spec.image_width
    previous, before, times = None, None, defaultdict(list)
    for image in frames:
        size, placing = (image.shape[0], image.shape[1]), engines.places
        current = engines.extract_frame(image) if placing else engines.extract(image)
        if previous is not None and before is not None:
            found = engines.match(previous, current, Thresholds())
            if placing:
                engines.place(previous, current, found.indices, to_original(before, engine, size))
            taken = engines.device_ms()
            for name, value in {**taken, 'together': sum(taken.values())}.items():
                times[name].append(value)
        previous, before = current, current.keypoints
    return dict(times)


def profile(backend: Backend) -> list[LayerTime]:
    """Time per layer, by TensorRT's profiler: without CUDA graphs and with a wait after each run, so the sum exceeds the real time.

    Raises EngineError without a GPU.
    """
    engines, tensorrt, layers = _engines_of(backend), open_tensorrt(), []
    for network, (context, enqueue) in engines.enqueue_plainly().items():
        inspected = context.engine.create_engine_inspector().get_engine_information(tensorrt.module.LayerInformationFormat.JSON)
        known = {layer.name: layer for layer in read_layers(inspected)}
        recorder = _recorder(tensorrt.module)
        context.profiler = recorder
        for _ in range(RUNS):
            enqueue()
            engines.cuda.synchronize()
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


def _engines_of(backend: Backend) -> TensorRTBackend:
    if not isinstance(backend, TensorRTBackend):
        raise EngineError('there is no GPU to measure: the backend is not TensorRT; see --backend tensorrt')
    return backend


def _recorder(module: Any) -> Any:
    class Recorder(module.IProfiler):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.times: dict[str, list[float]] = defaultdict(list)

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            self.times[layer_name].append(ms)

    return Recorder()
