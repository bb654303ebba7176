"""A frame and the one that it is matched with: matched by the backend, refined by it where it has both images, else by the host."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from .backend import Backend, RefiningBackend
from .correspondences import Correspondences, Sought, correspond
from .geometry import Size, to_original, unit_of
from .masks import Mask
from .refinement import Pyramid, Refined, refine_points, unrefined
from .tracks import Tracks
from .types import Features, Float32, Matches, Rows, Thresholds


@dataclass
class TrackedFrame:
    """A frame that later ones may be matched with: its features stay in the backend."""

    stamp: float
    size: Size
    engine: Size  # of the image that the features are of
    features: Features
    tracks: Tracks
    mask: Mask | None = None
    pyramid: Pyramid | None = None  # None without refinement, or where the backend has the image
    refiner: RefiningBackend | None = None  # the backend, where it has the image for refinement

    @cached_property
    def points(self) -> Float32:
        """(K + C, 2) pixels of the image: keypoints, refined where matched, then propagated points. On a GPU this may wait."""
        return to_original(self.features.keypoints, self.engine, self.size)

    @property
    def unit(self) -> float:
        """Pixels of the image to one of the engine's."""
        return unit_of(self.size, self.engine)

    @property
    def can_be_refined(self) -> bool:
        """Whether the image is kept for refinement."""
        return self.pyramid is not None or self.refiner is not None


class TrackedPair:
    """A frame, `current`, and its reference; or the right image of a frame, and the frame."""

    def __init__(self, backend: Backend, reference: TrackedFrame, current: TrackedFrame) -> None:
        self.reference, self.current, self._backend = reference, current, backend
        self._features = reference.features, current.features
        self._refiner = current.refiner if reference.refiner is not None else None

    def match(self, thresholds: Thresholds, sought: Sought) -> tuple[Matches, Correspondences | None]:
        """Matches, and correspondences where the backend finds them. Raises EngineError."""
        if self._refiner is not None:
            return self._refiner.correspond(*self._features, thresholds, sought)
        return self._backend.match(*self._features, thresholds), None

    def correspond(self, answer: Matches, sought: Sought) -> tuple[Matches, Correspondences]:
        """Those of the matches that are finite, and correspondences by the host. Raises EngineError."""
        answer, refined = answer.finite(self.reference.points, self.current.points), None
        if self._refiner is not None:
            refined = self._refiner.refine(*self._features, answer.indices, self.reference.points)
        return answer, correspond(sought, answer, self.current.points, self.current.size, self.current.unit,
                                  partial(self._refine, refined))

    def matched_and_refined(self, rows: Rows, thresholds: Thresholds) -> tuple[Float32, Refined]:
        """Where the reference's points `rows` (M,) are matched, (M, 2), NaN where they are not; and all of them refined.

        Unmatched points are searched where the matches around them went. Raises EngineError.
        """
        refined = None
        if self._refiner is not None:
            answer, refined = self._refiner.match_and_refine(*self._features, thresholds, self.reference.points)
        else:
            answer = self._backend.match(*self._features, thresholds)
        answer = answer.finite(self.reference.points, self.current.points)
        current_rows = answer.indices[np.minimum(rows, len(answer.indices) - 1)]
        matched = (rows < len(answer.indices)) & (current_rows >= 0)
        points = np.full((len(rows), 2), np.nan, np.float32)
        points[matched] = self.current.points[current_rows[matched]]
        return points, self._refine(refined, rows, points)

    def _refine(self, device_refined: Refined | None, rows: Rows, points: Float32) -> Refined:
        """Refine the reference's points `rows` (N,), matched at `points` (N, 2) of the current frame, NaN where unmatched.

        Without images, or without any match, the points stay as they are. `device_refined` has all rows if the backend refined.
        """
        if device_refined is not None:
            return device_refined.take(rows)
        reference, current = self.reference, self.current
        matched = np.isfinite(points).all(axis=1)
        if reference.pyramid is None or current.pyramid is None or not matched.any():
            return Refined(points, unrefined(len(points), current.unit))
        order = np.argsort(~matched, kind='stable')  # matched points first
        refined = refine_points(reference.pyramid, current.pyramid, reference.points.take(rows[order], axis=0), points[matched])
        return refined.take(np.argsort(order))
