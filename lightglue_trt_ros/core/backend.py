"""What runs the networks. The frontend knows these protocols alone; each backend stands in a file of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from .config import EngineSpec
from .early_exit import Depth
from .refinement import Refined
from .types import Features, Float32, Int32, Matches, Thresholds, UInt8


class Extractor(Protocol):
    """SuperPoint for one image size."""

    def extract(self, image: UInt8, mask: UInt8 | None = None) -> Features:
        """Keypoints, scores and descriptors of a gray image, uint8 (H, W) of the spec's size. Raises EngineError.

        No keypoint is where `mask`, of the same shape, is 0; None: they may be everywhere. The same array is taken for the same
        mask: what is in it must not change.
        """


class Matcher(Protocol):
    """LightGlue for two feature sets of the same extractor."""

    def match(self, reference: Features, current: Features, thresholds: Thresholds) -> Matches:
        """Mutual matches of the reference's rows in the current frame, after as many layers as `thresholds.depth` takes.

        Raises EngineError.
        """


class Backend(Extractor, Matcher, Protocol):
    """Both networks on one device. Made, used and closed by one thread; `cancel` alone may come from another."""

    spec: EngineSpec
    depth: Depth  # where the matcher may stop
    description: str  # one line for people: what runs, where, in which precision, with which weights

    def match_exits(self, reference: Features, current: Features, thresholds: Thresholds) -> Iterator[Matches]:
        """The matches at each of `depth.ends`, whatever is confident, and with how much is: each exit runs when it is asked for.

        For those who judge engines or several thresholds. Raises EngineError.
        """

    def select_camera(self, camera: int) -> None:
        """What is extracted from here on is of this one of the cameras that share the backend, counted from 0.

        What is kept between frames is kept for each; the first turn makes room for it. Raises EngineError.
        """

    def cancel(self) -> None:
        """Make a run that is in flight end soon, with an EngineError; every later run too."""

    def close(self) -> None:
        """Release everything. Safe to call twice."""


@runtime_checkable
class RefiningBackend(Backend, Protocol):
    """A backend that is given the camera's own frames, once, and places points where these lie. All raise EngineError.

    Otherwise the host resizes with `resize_gray` and places with `refine_all`, to the same places.
    """

    @property
    def refines(self) -> bool:
        """Whether it does: not where its device cannot."""

    def extract_frame(self, image: UInt8, mask: UInt8 | None = None) -> Features:
        """As `extract`, of a frame of any size, which stays there with its features; `mask` is of the spec's size."""

    def match_and_refine(self, reference: Features, current: Features, thresholds: Thresholds,
                     points: Float32) -> tuple[Matches, Refined]:
        """As `match`, and where each of `points` is in the current frame, in its pixels, as `refine_all`.

        `points` (K + C, 2) are the reference's K rows in the pixels of its frame, and up to K more that were carried there. Those
        that match are placed from their matches on, all others from where the matches around them went. Both are features of
        `extract_frame`, of one size. It waits for the device once, as `match` does.
        """

    def refine(self, reference: Features, current: Features, indices: Int32, points: Float32) -> Refined:
        """As `match_and_refine`, of matches that are known: the current frame's row of each of the reference's, or -1, (K,)."""


def refining_backend(backend: Backend) -> RefiningBackend | None:
    """The backend itself where it places points; where it is None, the host does."""
    return backend if isinstance(backend, RefiningBackend) and backend.refines else None
