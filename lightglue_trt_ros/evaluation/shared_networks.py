"""Networks that several settings and strides share: each image is extracted once, each pair of images matched once."""

from __future__ import annotations

import itertools
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..core.backend import Backend, RefiningBackend
from ..core.early_exit import stops
from ..core.refinement import Refined
from ..core.types import Features, Float32, Int32, Matches, Thresholds, UInt8
from ..utils.errors import EngineError
from .costs import Cost, Meter

T = TypeVar('T')
RECENT = 3  # images whose features are kept although no FrameMatcher holds them: pairs are also matched backwards


class SeenFeatures:
    """The features of an image, and its matches so far. A backend with room for few images may have released its own copy."""

    _numbers = itertools.count()

    def __init__(self, image: UInt8, resized: UInt8, mask: UInt8 | None, features: Features, cost: Cost) -> None:
        self.image, self.resized, self.mask, self.cost = image, resized, mask, cost
        self.number = next(self._numbers)  # unlike an address, never used again
        self.features: Features | None = features
        self.answers: dict[tuple[int, Thresholds], tuple[Matches, Cost]] = {}  # by the reference's number; this is the current one
        self._rest: tuple[Float32, Float32] | None = None

    @property
    def keypoints(self) -> Float32:
        return self.features.keypoints if self.features is not None else self._kept[0]

    @property
    def scores(self) -> Float32:
        return self.features.scores if self.features is not None else self._kept[1]

    def let_go(self) -> None:
        """Release the features; the copies of keypoints and scores stay."""
        self._rest = self.keypoints.copy(), self.scores.copy()
        self.features = None

    @property
    def _kept(self) -> tuple[Float32, Float32]:
        assert self._rest is not None
        return self._rest


class SharedNetworks:
    """A Backend for several FrameMatchers with one model and one size, whose thresholds may differ.

    `show` announces the next image. Nothing is computed twice: `saved` is the cost of earlier computations. Thresholds that
    give the same result are read from one run of the matcher, exit by exit; each runs by itself while it is timed (`alone`). Only
    the thread that owns the backend uses it.
    """

    def __init__(self, backend: Backend, thresholds: Collection[Thresholds]) -> None:
        self.spec, self.depth, self.description = backend.spec, backend.depth, backend.description
        self.rows: NDArray[np.int32] = np.zeros((0, 2), np.int32)  # (M, 2) of the last match, reference and current
        self.saved, self.stage_ms = Cost(), dict[str, float]()
        self._backend, self._thresholds = backend, tuple(dict.fromkeys(thresholds))
        self._room = int(getattr(backend, 'feature_sets', 0))  # 0: for any number
        self._image: UInt8 | None = None
        self._alone = False
        self._seen: weakref.WeakValueDictionary[int, SeenFeatures] = weakref.WeakValueDictionary()  # by the image's address
        self._recent: deque[SeenFeatures] = deque(maxlen=RECENT)
        self._held: list[weakref.ref[SeenFeatures]] = []  # features that the backend holds, used last at the end

    def show(self, image: UInt8, alone: bool = False) -> None:
        """Announce the image, as it was recorded, that the next calls are about; `alone`: it is timed, and nothing else runs."""
        self._image, self._alone = image, alone
        self.saved, self.stage_ms, self.rows = Cost(), {}, np.zeros((0, 2), np.int32)

    def extract(self, image: UInt8, mask: UInt8 | None = None) -> SeenFeatures:
        original = image if self._image is None else self._image
        meter, seen = Meter(), self._seen.get(id(original))
        if seen is None or seen.mask is not mask:
            seen = SeenFeatures(original, image, mask, self._extracted(original, image, mask), Cost())
            seen.cost = meter.cost
            self._seen[id(original)] = seen
        if seen not in self._recent:
            self._recent.append(seen)
        self._use(seen)
        self._account('extract', seen.cost._replace(gpu_ms=0.0), meter.cost)  # the GPU's time is known once it is done: see match
        return seen

    def match(self, reference: Features, current: Features, thresholds: Thresholds) -> Matches:
        first, second = _ours(reference), _ours(current)
        meter, key = Meter(), (first.number, thresholds)
        if key not in second.answers:
            for asked, answer in self._answers(first, second, thresholds):
                second.answers[first.number, asked] = answer
        return self._accounted(second, *second.answers[key], meter)

    def match_exits(self, reference: Features, current: Features, thresholds: Thresholds) -> Iterator[Matches]:
        return self._backend.match_exits(*self._both(_ours(reference), _ours(current)), thresholds)

    def select_camera(self, camera: int) -> None:
        self._backend.select_camera(camera)

    def cancel(self) -> None:
        self._backend.cancel()

    def close(self) -> None:
        self._recent.clear()
        self._image = None
        self._backend.close()

    def _accounted(self, current: SeenFeatures, found: Matches, cost: Cost, meter: Meter) -> Matches:
        """Account for matches whose computation had `cost`, and now cost what `meter` shows."""
        rows = np.flatnonzero(found.indices >= 0).astype(np.int32)
        self.rows = np.column_stack([rows, found.indices[rows]]).astype(np.int32)
        self._account('match', cost._replace(gpu_ms=cost.gpu_ms + current.cost.gpu_ms), meter.cost)
        return found

    def _account(self, stage: str, ran: Cost, spent: Cost) -> None:
        """Note the time of a stage when it ran, and how much of it is saved now."""
        self.stage_ms[stage] = ran.wall_ms
        self.saved = self.saved.plus(ran).plus(spent, -1)

    def _answers(self, first: SeenFeatures, second: SeenFeatures,
                 asked: Thresholds) -> Iterator[tuple[Thresholds, tuple[Matches, Cost]]]:
        pair, alike = self._both(first, second), [each for each in self._thresholds if each.detection == asked.detection]
        meter = Meter()
        if self._alone or len(alike) < 2 or asked not in alike:
            found = self._backend.match(*pair, asked)
            yield asked, (found, self._with_gpu(second, meter.cost))
            return
        lowest = replace(asked, match=min(each.match for each in alike))
        exits = iter(self._backend.match_exits(*pair, lowest))
        for number in range(len(self.depth.ends)):
            found, last = next(exits), number == len(self.depth.ends) - 1
            for each in [each for each in alike if last or stops(found.confident, each.depth)]:
                alike.remove(each)
                yield each, (_above(found, each.match), meter.cost)
            if not alike:
                return

    def _with_gpu(self, current: SeenFeatures, cost: Cost) -> Cost:
        """The cost of a match with its GPU time. The GPU time of the extraction is known now, and noted as well."""
        times: Callable[[], dict[str, float]] | None = getattr(self._backend, 'device_ms', None)
        if times is None or not self._alone:
            return cost
        gpu_ms = times()
        current.cost = current.cost._replace(gpu_ms=gpu_ms['extract'])
        return cost._replace(gpu_ms=gpu_ms['match'])

    def _both(self, first: SeenFeatures, second: SeenFeatures) -> tuple[Features, Features]:
        """The features of both, extracted again if they were released."""
        for seen in (first, second):
            if seen.features is None:
                self._use(first if seen is second else second)
                seen.features = self._extracted(seen.image, seen.resized, seen.mask)
            self._use(seen)
        assert first.features is not None
        assert second.features is not None
        return first.features, second.features

    def _extracted(self, image: UInt8, resized: UInt8, mask: UInt8 | None) -> Features:
        """Extract, after releasing the features used longest ago if the backend has no room."""
        held = self._holding()
        for seen in held[:max(0, len(held) - self._room + 1)] if self._room else ():
            seen.let_go()
        self._held = [weakref.ref(seen) for seen in self._holding()]
        return self._run_extractor(image, resized, mask)

    def _run_extractor(self, image: UInt8, resized: UInt8, mask: UInt8 | None) -> Features:
        return self._backend.extract(resized, mask)

    def _holding(self) -> list[SeenFeatures]:
        """The images whose features the backend holds, the one used last at the end."""
        return [seen for ref in self._held if (seen := ref()) is not None and seen.features is not None]

    def _use(self, seen: SeenFeatures) -> None:
        if self._room and seen.features is not None:
            self._held = [ref for ref in self._held if ref() is not None and ref() is not seen] + [weakref.ref(seen)]


class SharedRefiner(SharedNetworks):
    """The same for a RefiningBackend: frames stay on the device with their features, and each FrameMatcher refines its own points.

    A timed frame runs as in the node: it waits once for matches and refined points.
    """

    refines = True
    _backend: RefiningBackend

    def __init__(self, backend: RefiningBackend, thresholds: Collection[Thresholds]) -> None:
        super().__init__(backend, thresholds)
        self._size: tuple[int, ...] = ()

    def extract_frame(self, image: UInt8, mask: UInt8 | None = None) -> SeenFeatures:
        return self.extract(image, mask)

    def match_and_refine(self, reference: Features, current: Features, thresholds: Thresholds,
                     points: Float32) -> tuple[Matches, Refined]:
        if not self._alone:
            found = self.match(reference, current, thresholds)
            return found, self.refine(reference, current, found.indices, points)
        first, second, meter = _ours(reference), _ours(current), Meter()
        found, placed = self._backend.match_and_refine(*self._both(first, second), thresholds, points)
        cost = self._with_gpu(second, meter.cost)
        second.answers[first.number, thresholds] = found, cost
        return self._accounted(second, found, cost, meter), placed

    def refine(self, reference: Features, current: Features, indices: Int32, points: Float32) -> Refined:
        return self._backend.refine(*self._both(_ours(reference), _ours(current)), indices, points)

    def _run_extractor(self, image: UInt8, resized: UInt8, mask: UInt8 | None) -> Features:
        if image.shape != self._size:  # the device keeps frames of one size
            for seen in self._holding():
                seen.let_go()
            self._size = image.shape
        return self._backend.extract_frame(image, mask)


def _ours(features: Any) -> SeenFeatures:
    if not isinstance(features, SeenFeatures):
        raise EngineError('these features are of another backend: extract and match with the same one')
    return features


def _above(found: Matches, threshold: float) -> Matches:
    """The matches above a higher threshold, as the network itself gives them."""
    keep = found.scores > np.float32(threshold)
    return replace(found, indices=np.where(keep, found.indices, -1).astype(np.int32),
                   scores=np.where(keep, found.scores, 0).astype(np.float32))
