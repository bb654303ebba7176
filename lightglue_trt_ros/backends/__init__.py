"""What runs the networks. The frontend knows these protocols alone; each backend stands in a file of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from ..config import EngineSpec
from ..depth import Depth
from ..features import Features, Matches, Thresholds, UInt8


class Extractor(Protocol):
    """SuperPoint for one image size."""

    def extract(self, image: UInt8) -> Features:
        """Keypoints, scores and descriptors of a gray image, uint8 (H, W) of the spec's size. Raises EngineError."""


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

    def cancel(self) -> None:
        """Make a run that is in flight end soon, with an EngineError; every later run too."""

    def close(self) -> None:
        """Release everything. Safe to call twice."""
