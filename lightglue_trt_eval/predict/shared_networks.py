"""Networks that several settings and strides share: each image is extracted once, each pair matched once."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary, WeakValueDictionary, ref

import numpy as np
from numpy.typing import NDArray

from lightglue_trt_ros.backends.onnxruntime import OnnxRuntimeBackend
from lightglue_trt_ros.core.backend import Backend, refining_backend
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.correspondences import Sought
from lightglue_trt_ros.core.refinement import Refined
from lightglue_trt_ros.core.types import Features, Float32, Int32, KeptFeatures, Matches, Thresholds, UInt8
from lightglue_trt_ros.utils.errors import EngineError

Extract: TypeAlias = 'Callable[[UInt8, UInt8 | None], Features]'


class SeenFeatures:
    """The features of an image that `extract` makes, and its matches so far."""

    def __init__(self, image: UInt8, mask: UInt8 | None, extract: Extract, camera: int) -> None:
        self.image, self.mask, self.extract, self.camera = image, mask, extract, camera
        self.features: Any = None  # those of a GPU go where others need their room
        self.answers: WeakKeyDictionary[SeenFeatures, dict[Thresholds, Matches]] = WeakKeyDictionary()  # by reference

        self._points: tuple[Float32, Float32] | None = None  # keypoints and scores of features that are gone

    @property
    def keypoints(self) -> Float32:
        return np.asarray(self.features.keypoints) if self._points is None else self._points[0]

    @property
    def scores(self) -> Float32:
        return np.asarray(self.features.scores) if self._points is None else self._points[1]

    def let_go(self) -> None:
        """Of the features, but for keypoints and scores."""
        self._points, self.features = (self.keypoints.copy(), self.scores.copy()), None


class SharedNetworks:
    """A Backend for several FrameMatchers with one model and one size, whose other settings (`configs`) may differ.

    `show` announces the next image. Nothing is computed twice. Only the thread that owns the backend uses it.

    Where the backend has room for few frames of a camera, each stride is a camera of its own, and shares nothing with the others;
    features that were seen longest ago go first, and are extracted again where they are needed again.
    Where it refines points, frames stay on the device with their features, and each FrameMatcher refines its own points.
    """

    def __init__(self, backend: Backend, configs: Collection[MatcherConfig]) -> None:
        self.spec, self.early_exits, self.description = backend.spec, backend.early_exits, backend.description
        self.backend_name = 'onnxruntime' if isinstance(backend, OnnxRuntimeBackend) else 'tensorrt'
        self.score_calibration = backend.score_calibration
        self.rows: NDArray[np.int32] = np.zeros((0, 2), np.int32)  # (M, 2) of the shown image's match: reference and current
        self.backend: Any = backend
        self.refines = refining_backend(backend) is not None and any(config.refinement != 'none' for config in configs)
        self._camera = 0
        self._image: UInt8 | None = None
        self._left: ref[SeenFeatures] | None = None  # of the shown image, where a pair has two
        self._cache: WeakValueDictionary[tuple[int, int, int], SeenFeatures] = WeakValueDictionary()  # by camera and image
        self._room: int = getattr(backend, 'feature_sets', 0)  # 0: without end
        self._resident: list[ref[SeenFeatures]] = []  # in the order in which they were needed last

    def show(self, image: UInt8, camera: int) -> None:
        """Announce the image, as it was recorded, that the next calls are about."""
        self._image, self._left = image, None
        self.rows = np.zeros((0, 2), np.int32)
        if self._room:
            self._camera = camera
            self.backend.select_camera(camera)

    def extract(self, image: UInt8, mask: UInt8 | None = None) -> SeenFeatures:
        return self._seen(image, mask, self.backend.extract)

    def match(self, reference: Features, current: Features, thresholds: Thresholds) -> Matches:
        first, second = self._pair(reference, current)
        answers = second.answers.setdefault(first, {})
        if thresholds not in answers:
            answers[thresholds] = self.backend.match(first.features, second.features, thresholds)
        matches = answers[thresholds]
        if self._left is not None and second is self._left():
            rows = np.flatnonzero(matches.indices >= 0)
            self.rows = np.column_stack([rows, matches.indices[rows]]).astype(np.int32)
        return matches

    def match_exits(self, reference: Features, current: Features, thresholds: Thresholds) -> Iterator[Matches]:
        first, second = self._pair(reference, current)
        exits: Iterator[Matches] = self.backend.match_exits(first.features, second.features, thresholds)
        return exits

    def extract_frame(self, image: UInt8, mask: UInt8 | None = None) -> SeenFeatures:
        return self._seen(image, mask, self.backend.extract_frame)

    def correspond(self, reference: Features, current: Features, thresholds: Thresholds,
                   sought: Sought) -> tuple[Matches, None]:
        return self.match(reference, current, thresholds), None

    def match_and_refine(self, reference: Features, current: Features, thresholds: Thresholds,
                         points: Float32) -> tuple[Matches, Refined]:
        matches = self.match(reference, current, thresholds)
        return matches, self.refine(reference, current, matches.indices, points)

    def refine(self, reference: Features, current: Features, indices: Int32, points: Float32) -> Refined:
        first, second = self._pair(reference, current)
        refined: Refined = self.backend.refine(first.features, second.features, indices, points)
        return refined

    def keep(self, features: Features) -> KeptFeatures:
        kept: KeptFeatures = self.backend.keep(self._pair(features)[0].features)
        return kept

    def select_camera(self, camera: int) -> None:
        self.backend.select_camera(camera)

    def cancel(self) -> None:
        self.backend.cancel()

    def close(self) -> None:
        self._image = None
        self.backend.close()

    def _seen(self, image: UInt8, mask: UInt8 | None, extract: Extract) -> SeenFeatures:
        """Features of the shown image; FrameMatchers may have resized it, or subtracted what stands in it, each its own."""
        original = image if self._image is None else self._image
        key = self._camera, id(original), 0 if image is original else zlib.adler32(image.tobytes())
        seen = self._cache.get(key)
        if seen is None or seen.mask is not mask or seen.extract != extract:
            seen = self._cache[key] = SeenFeatures(image, mask, extract, self._camera)
        self._left = self._left or ref(seen)  # a right image comes after it
        return self._pair(seen)[0]

    def _pair(self, *features: Features) -> list[SeenFeatures]:
        """The features, which the backend has then."""
        pair = [_ours(each) for each in features]
        for seen in pair:
            if self._room:
                self._make_room(seen, pair)
            if seen.features is None:
                seen.features = seen.extract(seen.image, seen.mask)
        return pair

    def _make_room(self, seen: SeenFeatures, pair: Collection[SeenFeatures]) -> None:
        held = [each for each in (weak() for weak in self._resident) if each is not None and each.features is not None]
        others = [each for each in held if each is not seen]
        of_camera = [each for each in others if each.camera == seen.camera]
        longest_ago = [each for each in of_camera if each not in pair]
        for each in longest_ago[:max(0, len(of_camera) + 1 - self._room)]:
            each.let_go()
        self._resident = [ref(each) for each in (*others, seen)]


def _ours(features: Any) -> SeenFeatures:
    if not isinstance(features, SeenFeatures):
        raise EngineError('these features are of another backend: extract and match with the same one')
    return features
