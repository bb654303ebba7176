"""The published sweep: what a precision of the matcher brings and costs, over sizes of image and numbers of keypoints.

What cannot be had on a machine is Missing, with the reason: nothing is estimated, and no figure comes from another machine.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..config import PRECISIONS, EngineSpec
from ..errors import ConfigError, EngineError
from ..evaluation.baselines import Correspondences
from ..evaluation.scoring import Agreement, agreement
from ..features import Features, HostFeatures, Thresholds, UInt8
from ..geometry import resize_gray
from ..recordings.sequence import read_gray
from .sweep_runners import Bench, Graphs, Missing, Plans, Runner, TargetPlans

SIDES, KEYPOINTS = (512, 1024), (512, 1024, 2048, 3840)
EXACT, EMULATED = 'fp32', 'fp8'  # what the others are compared with; what can be emulated
LEAST_ROUNDS, SECONDS = 5, 20.0  # of each shape: more rounds as long as they take no longer
SPREAD = (5, 95)  # percentiles

NO_EXACT = Missing('no FP32 here', 'FP32 is what the others are compared with, and is missing at this shape')
_NOT_YET = Missing('not measured')


class ImagePair(NamedTuple):
    """Two views of one scene, gray, uint8 (H, W)."""

    name: str
    first: UInt8
    second: UInt8


@dataclass
class Cell:
    """One precision at one shape. A figure that is not there is Missing."""

    side: int  # of the square image, pixels
    max_keypoints: int
    precision: str
    match_ms: list[float] | Missing = _NOT_YET  # by round: all precisions of a shape run in each
    speedup: list[float] | Missing = _NOT_YET  # by round: FP32's time over this one's
    plans: Plans | Missing = _NOT_YET
    plan_ratio: float | Missing = _NOT_YET  # to FP32's
    onnx_bytes: int | Missing = _NOT_YET
    onnx_ratio: float | Missing = _NOT_YET
    matches: dict[str, int] | Missing = _NOT_YET  # by pair
    agreement: dict[str, Agreement] | Missing = _NOT_YET  # with FP32's matches, by pair
    emulated: bool = False  # the matches are those of an emulation
    keypoints: dict[str, int] = field(default_factory=dict)  # by pair, the fewer of both images; the other rows are padding

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is missing is {'missing': the reason}."""
        return {entry.name: _plain(getattr(self, entry.name)) for entry in dataclasses.fields(self)}


def load_pairs(data: Path) -> dict[str, ImagePair] | None:
    """The easy pair, two consecutive frames of driving, and the hard one, a wall under a large change of view; None without `data`.

    Raises BagError when a file is damaged.
    """
    drive, wall = data / 'kitti_short_2' / 'images', data / 'oxford_affine' / 'graf'
    if not drive.is_dir() or not wall.is_dir():
        return None
    frames = sorted(drive.iterdir())[25:27]
    return {'easy': ImagePair('kitti_short_2, frames 25 and 26', *map(read_gray, frames)),
            'hard': ImagePair('graf 1-3', read_gray(wall / 'img1.png'), read_gray(wall / 'img3.png'))}


def sweep(bench: Bench, graphs: Graphs, sizes: TargetPlans | None, pairs: Mapping[str, ImagePair], sides: Sequence[int],
          keypoints: Sequence[int], precisions: Sequence[str], rounds: int) -> Iterator[list[Cell]]:
    """The cells of one shape after another, FP32 first; engine sizes are the bench's own unless `sizes` brings others.

    The matcher runs all its layers. Times are those of the first pair, in up to `rounds` rounds in which the precisions take
    turns. Raises EngineError when a calibration is damaged.
    """
    wanted = [name for name in PRECISIONS if name in precisions or name == EXACT]
    for side, count in itertools.product(sides, keypoints):
        cells = {name: Cell(side, count, name) for name in wanted}
        try:
            shape = EngineSpec(side, side, count)
        except ConfigError as error:
            _fill(cells.values(), Missing('K too large' if 'max_keypoints' in str(error) else 'no such size', str(error)))
        else:
            specs = {name: dataclasses.replace(shape, precision=name) for name in wanted}
            for name, cell in cells.items():
                graph = graphs.matcher(specs[name])
                cell.onnx_bytes = graph if isinstance(graph, Missing) else len(graph)
                cell.plans = (sizes or bench).plans(specs[name])
            _Shape(bench, specs, cells, pairs).run(rounds)
            _compare(cells)
        yield list(cells.values())


class _Shape:
    """All precisions of one shape, side by side."""

    def __init__(self, bench: Bench, specs: Mapping[str, EngineSpec], cells: Mapping[str, Cell],
                 pairs: Mapping[str, ImagePair]) -> None:
        self.bench, self.specs, self.cells = bench, specs, cells
        size = next((spec.image_height, spec.image_width) for spec in specs.values())
        self.pairs = {kind: (resize_gray(pair.first, size), resize_gray(pair.second, size)) for kind, pair in pairs.items()}
        self.runners: dict[str, Runner] = {}
        self.exact: dict[str, list[Features]] = {}  # by pair, where they lie in host memory
        self.found: dict[str, dict[str, Correspondences]] = {name: {} for name in specs}  # by precision and pair

    def run(self, rounds: int) -> None:
        try:
            self._open()
            self._time(self._match(), rounds)
        except EngineError as error:
            _fill(self.cells.values(), Missing('failed', str(error).partition('\n')[0]))
        finally:
            for runner in self.runners.values():
                runner.backend.close()
        if EMULATED in self.specs.keys() - self.runners.keys():
            self._emulate()  # now that the others' memory is free
        for name, matched in self.found.items():
            if len(matched) < len(self.pairs):
                continue
            self.cells[name].matches = {kind: len(points[0]) for kind, points in matched.items()}
            exact = self.found[EXACT]
            self.cells[name].agreement = {kind: agreement(exact[kind], points) for kind, points in matched.items()} \
                if len(exact) == len(self.pairs) else NO_EXACT

    def _open(self) -> None:
        for name, spec in self.specs.items():
            opened, cell = self.bench.open(spec), self.cells[name]
            if isinstance(opened, Missing):
                cell.match_ms = cell.matches = cell.agreement = opened
            else:
                self.runners[name] = opened

    def _match(self) -> dict[str, list[Features]]:
        """Match all pairs; the features of the first one, by precision."""
        seen: dict[str, list[Features]] = {}
        for kind in reversed(list(self.pairs)):
            seen.clear()  # a GPU has slots for one pair and a frame
            for name, runner in self.runners.items():
                given: Sequence[Features | None] = seen.get(EXACT, [None, None])
                seen[name] = [runner.see(image, one) for image, one in zip(self.pairs[kind], given, strict=True)]
                self.found[name][kind] = _correspondences(runner, seen[name])
                self.cells[name].keypoints[kind] = min(int((one.scores > Thresholds().detection).sum()) for one in seen[name])
            if all(isinstance(one, HostFeatures) for one in seen.get(EXACT, [None])):
                self.exact[kind] = seen[EXACT]
        return seen

    def _time(self, seen: Mapping[str, list[Features]], rounds: int) -> None:
        times: dict[str, list[float]] = {name: [] for name in self.runners}
        started, order = time.monotonic(), list(self.runners.items())
        for number in range(rounds):
            if number >= LEAST_ROUNDS and time.monotonic() - started > SECONDS:
                break
            for name, runner in order[::-1] if number % 2 else order:
                times[name].append(_timed(runner, seen[name]))
        for name, taken in times.items():
            self.cells[name].match_ms = taken

    def _emulate(self) -> None:
        cell = self.cells[EMULATED]
        runner = self.bench.emulate(self.specs[EMULATED])
        if isinstance(runner, Missing):
            cell.matches = cell.agreement = runner
            return
        try:
            for kind, exact in self.exact.items():
                features = [runner.see(image, one) for image, one in zip(self.pairs[kind], exact, strict=True)]
                self.found[EMULATED][kind] = _correspondences(runner, features)
                cell.emulated = True
        except EngineError as error:
            cell.matches = cell.agreement = Missing('failed', str(error).partition('\n')[0])
        finally:
            runner.backend.close()


def _correspondences(runner: Runner, seen: Sequence[Features]) -> Correspondences:
    indices = runner.backend.match(seen[0], seen[1], Thresholds()).indices
    rows = np.flatnonzero(indices >= 0)
    return seen[0].keypoints[rows], seen[1].keypoints[indices[rows]]


def _timed(runner: Runner, seen: Sequence[Features]) -> float:
    """Milliseconds of one match."""
    started = time.perf_counter()
    runner.backend.match(seen[0], seen[1], Thresholds())
    wall = (time.perf_counter() - started) * 1e3
    device = runner.device_ms()
    return wall if device is None else device


def _compare(cells: Mapping[str, Cell]) -> None:
    """Everything that is a ratio to FP32."""
    exact = cells[EXACT]
    for cell in cells.values():
        cell.onnx_ratio = _ratio(cell.onnx_bytes, exact.onnx_bytes)
        cell.plan_ratio = _ratio(_bytes(cell.plans), _bytes(exact.plans))
        if isinstance(cell.match_ms, Missing):
            cell.speedup = cell.match_ms
        elif isinstance(exact.match_ms, Missing):
            cell.speedup = NO_EXACT
        else:
            cell.speedup = [slow / fast for slow, fast in zip(exact.match_ms, cell.match_ms, strict=True)]
        if not isinstance(cell.plans, Missing) and not isinstance(exact.plans, Missing) and cell.plans.ends != exact.plans.ends:
            cell.plan_ratio = cell.speedup = Missing('other stages', 'build the engines of all precisions with the same --stages')


def _ratio(value: int | Missing, exact: int | Missing) -> float | Missing:
    if isinstance(value, Missing):
        return value
    return NO_EXACT if isinstance(exact, Missing) else value / exact


def _bytes(plans: Plans | Missing) -> int | Missing:
    return plans if isinstance(plans, Missing) else plans.bytes


def _fill(cells: Iterable[Cell], reason: Missing) -> None:
    """Say why for every figure that has not been measured."""
    for cell in cells:
        for entry in dataclasses.fields(cell):
            if getattr(cell, entry.name) is _NOT_YET:
                setattr(cell, entry.name, reason)


def _plain(value: Any) -> Any:
    if isinstance(value, Missing):
        return {'missing': value.reason}
    if isinstance(value, (Agreement, Plans)):
        return value._asdict()
    return {name: _plain(one) for name, one in value.items()} if isinstance(value, dict) else value
