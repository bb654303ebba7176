"""Speed, size and agreement of the matcher's precisions at each shape. A figure that a machine cannot measure is missing."""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from benchmarks.sweep.runners import MIB, GpuBench, Graphs, HostBench, TargetEngines, UnavailableError
from lightglue_trt_eval.baselines import MatchedPoints
from lightglue_trt_eval.score.pair_score import Agreement, agreement
from lightglue_trt_ros.core.backend import Backend
from lightglue_trt_ros.core.config import PRECISIONS, EngineSpec
from lightglue_trt_ros.core.geometry import resize_gray
from lightglue_trt_ros.core.types import Features, HostFeatures, Thresholds, UInt8
from lightglue_trt_ros.utils.errors import LightglueTrtError

EXACT = 'fp32'  # what the others are compared with
LEAST_ROUNDS, SECONDS = 5, 20.0  # of each shape: more rounds as long as they take no longer
SPREAD = (5, 95)  # percentiles
COMPARED = {'match_ms': 'speedup', 'engine_mib': 'engine_ratio', 'onnx_mib': 'onnx_ratio', 'matches': 'agreement'}


class ImagePair(NamedTuple):
    """Two views of one scene, gray, uint8 (H, W)."""

    name: str
    first: UInt8
    second: UInt8


class Missing(NamedTuple):
    """Why there is no figure."""

    reason: str  # a few words, for a table
    text: str  # what lies behind it, and perhaps, on a last line, the command that changes it


NO_EXACT = Missing('no FP32 here', 'FP32 is what the others are compared with, and is missing at this shape')
OTHER_STAGES = Missing('other stages', 'build the engines of all precisions with the same --stages')
NO_TIMES = Missing('TensorRT only', 'FP8 runs only in TensorRT, on FP8 tensor cores (compute capability 8.9 or newer); '
                   'ONNX Runtime emulates it, which gives matches and no times')


@dataclass
class Cell:
    """One precision at one shape. A figure that cannot be had is NaN or empty, and `missing` says why."""

    side: int  # of the square image, pixels
    max_keypoints: int
    precision: str
    match_ms: list[float] = field(default_factory=list)  # by round: all precisions of a shape run in each
    speedup: list[float] = field(default_factory=list)  # by round: FP32's time over this one's
    engine_mib: float = math.nan
    engine_ratio: float = math.nan  # to FP32's
    ends: tuple[int, ...] = ()  # of the engines' stages
    onnx_mib: float = math.nan
    onnx_ratio: float = math.nan
    points: dict[str, MatchedPoints] = field(default_factory=dict)  # that are matched, by pair
    agreement: dict[str, Agreement] = field(default_factory=dict)  # with FP32's matches, by pair
    emulated: bool = False  # the matches are those of an emulation
    keypoints: dict[str, int] = field(default_factory=dict)  # by pair, the fewer of both images; the other rows are padding
    missing: dict[str, Missing] = field(default_factory=dict)  # by figure

    @property
    def matches(self) -> dict[str, int]:
        """How many, by pair."""
        return {kind: len(points.reference) for kind, points in self.points.items()}

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON, None for NaN."""
        values = {**dataclasses.asdict(dataclasses.replace(self, points={})), 'matches': self.matches,
                  'agreement': {kind: found._asdict() for kind, found in self.agreement.items()},
                  'missing': {figure: why.reason for figure, why in self.missing.items()}}
        del values['points']
        return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in values.items()}


def sweep(bench: HostBench | GpuBench, graphs: Graphs, sizes: TargetEngines | None, pairs: Mapping[str, ImagePair],
          sides: Sequence[int], keypoints: Sequence[int], precisions: Collection[str], rounds: int) -> Iterator[list[Cell]]:
    """The cells of one shape after another, FP32 first; engine sizes are the bench's own unless `sizes` brings others.

    The matcher runs all its layers. Times are those of the first pair, in up to `rounds` rounds in which the precisions alternate.
    """
    for side, count in itertools.product(sides, keypoints):
        cells = {name: Cell(side, count, name) for name in PRECISIONS if name in precisions or name == EXACT}
        specs: dict[str, EngineSpec] = {}
        for name, cell in cells.items():
            with _measuring([cell], *COMPARED, failed='no such shape'):
                spec = specs[name] = EngineSpec(side, side, count, name)
                with _measuring([cell], 'onnx_mib'):
                    cell.onnx_mib = len(graphs.matcher(spec)) / MIB
                with _measuring([cell], 'engine_mib'):
                    cell.engine_mib, cell.ends = (sizes or bench).engines(spec)
        resized = {kind: [resize_gray(image, (side, side)) for image in pair[1:]] for kind, pair in pairs.items()}
        _match_and_time(bench, specs, cells, resized, rounds)
        _compare(cells)
        yield list(cells.values())


def _match_and_time(bench: HostBench | GpuBench, specs: Mapping[str, EngineSpec], cells: Mapping[str, Cell],
                    pairs: Mapping[str, Sequence[UInt8]], rounds: int) -> None:
    """All precisions of one shape, side by side; afterwards, when their memory is free, what is emulated."""
    exact: dict[str, list[Features]] = {}
    for emulated in (False, True):
        runs: list[tuple[Cell, Backend]] = []
        with ExitStack() as opened:
            for name in specs:
                if (name in bench.emulated) == emulated:
                    with _measuring([cells[name]], 'match_ms', 'matches'):
                        runs.append((cells[name], opened.enter_context(closing(bench.open(specs[name])))))
            with _measuring([cell for cell, _ in runs], 'match_ms', 'matches'):
                for number, (kind, images) in enumerate(pairs.items()):
                    _match(runs, kind, images, exact, 0 if number or emulated else rounds)
    for name in set(specs).intersection(bench.emulated):
        cells[name].emulated = 'matches' not in cells[name].missing
        cells[name].missing['match_ms'] = NO_TIMES


def _match(runs: Sequence[tuple[Cell, Backend]], kind: str, images: Sequence[UInt8], exact: dict[str, list[Features]],
           rounds: int) -> None:
    """One pair in each precision, and its times; `exact` gets FP32's features, by pair, where they lie in host memory."""
    seen: list[list[Features]] = []  # of this pair alone: a GPU has slots for that and a frame
    for cell, backend in runs:
        features = [_see(backend, image, one) for image, one in zip(images, exact.get(kind, [None, None]), strict=True)]
        seen.append(features)
        if cell.precision == EXACT and all(isinstance(one, HostFeatures) for one in features):
            exact[kind] = features
        cell.keypoints[kind] = min(int((one.scores > Thresholds().detection).sum()) for one in features)
        indices = backend.match(features[0], features[1], Thresholds()).indices
        rows = np.flatnonzero(indices >= 0)
        cell.points[kind] = MatchedPoints(features[0].keypoints[rows], features[1].keypoints[indices[rows]])
    begin, order = time.monotonic(), list(zip(runs, seen, strict=True))
    for number in range(rounds):
        if number >= LEAST_ROUNDS and time.monotonic() - begin > SECONDS:
            break
        for (cell, backend), features in order[::-1] if number % 2 else order:
            cell.match_ms.append(_timed(backend, features))


def _see(backend: Backend, image: UInt8, exact: Features | None) -> Features:
    """Features to match: what FP32 saw, in this precision's type, where that can be given to it."""
    if not isinstance(exact, HostFeatures):
        return backend.extract(image)
    dtype = 'float16' if backend.spec.precision == 'fp16' else 'float32'
    return HostFeatures(exact.keypoints, exact.scores, exact.descriptors.astype(dtype))


def _timed(backend: Backend, seen: Sequence[Features]) -> float:
    """Milliseconds of one match: the GPU's own, where it is one."""
    started = time.perf_counter()
    backend.match(seen[0], seen[1], Thresholds())
    wall_ms = (time.perf_counter() - started) * 1e3
    device_ms = getattr(backend, 'device_ms', None)
    return float(device_ms()['match']) if device_ms else wall_ms


def _compare(cells: Mapping[str, Cell]) -> None:
    """Everything that is a ratio to FP32."""
    exact = cells[EXACT]
    for cell in cells.values():
        if 'matches' in cell.missing:  # what failed half-way has none of both
            cell.match_ms, cell.points = [], {}
        cell.engine_ratio, cell.onnx_ratio = cell.engine_mib / exact.engine_mib, cell.onnx_mib / exact.onnx_mib
        cell.speedup = [slow / fast for slow, fast in zip(exact.match_ms, cell.match_ms, strict=False)]
        cell.agreement = {kind: agreement(points, cell.points[kind]) for kind, points in exact.points.items() if cell.points}
        for figure, ratio in COMPARED.items():
            if missing := cell.missing.get(figure) or (NO_EXACT if figure in exact.missing else None):
                cell.missing[ratio] = missing
        if cell.ends and exact.ends and cell.ends != exact.ends:
            cell.speedup, cell.engine_ratio = [], math.nan
            cell.missing['speedup'] = cell.missing['engine_ratio'] = OTHER_STAGES


@contextmanager
def _measuring(cells: Collection[Cell], *figures: str, failed: str = 'failed') -> Iterator[None]:
    """An error in there is why these figures are missing."""
    try:
        yield
    except LightglueTrtError as error:
        missing = Missing(error.reason if isinstance(error, UnavailableError) else failed, str(error))
        for cell in cells:
            cell.missing.update(dict.fromkeys(figures, missing))
