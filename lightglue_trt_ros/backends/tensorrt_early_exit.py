"""LightGlue's stages on the device: as far as the last pair went, then one look at the confidences, then on or back.

The stages up to the last exit and its assignment are enqueued in one go, so that a pair that is as easy or as hard as the one
before costs one read back in all. Where it is not, more stages run, or the assignment of an earlier exit: the exit taken is always
the first one at which enough points are confident.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import Any

import numpy as np

from ..core.early_exit import Depth, stops
from ..core.types import Float32, Thresholds
from .buffers import FEATURES, Engine, Slot
from .cuda import Cuda, DeviceBuffer

RESULTS = ('matches0', 'scores')
SCALARS = ('match_threshold', 'detection_threshold')

Launch = Callable[[int, int], None]  # stages first to last, and the assignment of the last


class StagedMatcher:
    """The matcher's engines with the buffers between them. Used by the one thread that owns `cuda`."""

    def __init__(self, cuda: Cuda, depth: Depth, engines: dict[str, Engine]) -> None:
        self.cuda, self.depth = cuda, depth
        self.stages = [engines[name] for name in depth.stages]
        self.heads = [engines[name] for name in depth.heads]
        early, final = self.stages[:-1], self.stages[-1]
        self._states = [cuda.device(*stage.tensor('next_state')) for stage in early]
        self._confidences = [cuda.device(*stage.tensor('confidence')) for stage in early]
        self._seen = [cuda.pinned(*stage.tensor('confidence')) for stage in early]
        self._common = {name: cuda.device(*final.tensor(name)) for name in (*RESULTS, *SCALARS)}
        if early:
            self._common |= {name: cuda.device(*early[0].tensor(name)) for name in ('cosines', 'sines')}
        self.found = {name: cuda.pinned(*final.tensor(name)) for name in RESULTS}
        self._staged = {name: cuda.pinned((1,), np.float32) for name in SCALARS}
        self._set: tuple[float, float] | None = None
        self._guesses: dict[Hashable, int] = {}

    def run(self, launch: Launch, thresholds: Thresholds, kind: Hashable = None) -> tuple[int, bool]:
        """Match with `launch`, which enqueues: layers that ran, and whether every confidence was finite. Results are in `found`.

        The pair is guessed to be as easy as the last one of its `kind`.
        """
        last_stage = len(self.stages) - 1
        first, last = 0, self._guesses.get(kind, last_stage) if thresholds.depth >= 0 else last_stage
        finite = True
        while True:
            launch(first, last)
            self.cuda.synchronize()
            finite &= all(_finite(self._seen[stage]) for stage in range(first, min(last + 1, last_stage)))
            stop = next((stage for stage in range(last + 1) if stage == last_stage
                         or stops(float(self._seen[stage][0]), thresholds.depth)), None)
            if stop == last:
                break
            first, last = (last + 1, last + 1) if stop is None else (stop + 1, stop)  # on, or back: no stage, the assignment alone
        if thresholds.depth >= 0:
            self._guesses[kind] = last
        return self.depth.ends[last], finite

    def run_exits(self, launch: Launch) -> Iterator[tuple[int, bool, float]]:
        """Go from exit to exit, whatever is confident: as `run` says it, with the results of that exit in `found` meanwhile.

        Third comes the share of points that are confident there, NaN after the last layer.
        """
        finite = True
        for stage, layers in enumerate(self.depth.ends):
            launch(stage, stage)
            self.cuda.synchronize()
            finite &= all(map(_finite, self._seen[stage:stage + 1]))
            yield layers, finite, float(self._seen[stage][0]) if stage < len(self._seen) else math.nan

    def enqueue(self, pair: tuple[Slot, Slot], first: int, last: int) -> None:
        """Enqueue stages `first` to `last`, none where first > last, the assignment after `last`, and what comes to the host."""
        for stage in range(first, last + 1):
            self.stages[stage].enqueue(self._tensors(pair, stage), self.cuda.stream)
            if stage < len(self._seen):
                self.cuda.download(self._seen[stage], self._confidences[stage])
        if last < len(self.heads):
            self.heads[last].enqueue(self._tensors(pair, last + 1), self.cuda.stream)
        for name, array in self.found.items():
            self.cuda.download(array, self._common[name])

    @property
    def matches(self) -> DeviceBuffer:
        """Where matches0 is on the device."""
        return self._common['matches0']

    def spans(self) -> list[tuple[int, int]]:
        """Every (first, last) that `run` may launch."""
        count = len(self.stages)
        return [*((0, last) for last in range(count)), *((last, last) for last in range(1, count)),
                *((last + 1, last) for last in range(count - 1))]

    def set_thresholds(self, thresholds: Thresholds) -> None:
        """Upload the thresholds that the engines read, where they changed."""
        wanted = thresholds.match, thresholds.detection
        if wanted == self._set:
            return
        self.cuda.synchronize()  # the staging arrays may still be on their way
        for name, value in zip(SCALARS, wanted, strict=True):
            self._staged[name][0] = value
            self.cuda.upload(self._common[name], self._staged[name])
        self._set = wanted

    def enqueue_plainly(self, pair: tuple[Slot, Slot]) -> dict[str, tuple[Any, Callable[[], None]]]:
        """Each engine's execution context, and a function that enqueues that engine alone: for profilers."""
        stream = self.cuda.stream
        numbered = [*enumerate(self.depth.stages), *enumerate(self.depth.heads, 1)]
        engines = [*self.stages, *self.heads]
        return {name: (engine.context, partial(engine.enqueue, self._tensors(pair, stage), stream))
                for (stage, name), engine in zip(numbered, engines, strict=True)}

    def _tensors(self, pair: tuple[Slot, Slot], stage: int) -> dict[str, DeviceBuffer]:
        """Everything that `stage`, or the assignment before it, may read and write."""
        tensors = {f'{name}{side}': slot.device[name] for side, slot in enumerate(pair) for name in FEATURES}
        if stage > 0:
            tensors['state'] = self._states[stage - 1]
        if stage < len(self._states):
            tensors |= {'next_state': self._states[stage], 'confidence': self._confidences[stage]}
        return tensors | self._common


def _finite(confidences: Float32) -> bool:
    """Of two numbers, which Python asks sooner than NumPy."""
    return all(map(math.isfinite, confidences.tolist()))
