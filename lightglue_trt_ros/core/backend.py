"""The protocols of backends, which run the networks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from .config import EngineSpec
from .correspondences import Correspondences, Sought
from .early_exit import EarlyExits
from .refinement import Refined
from .score_calibration import ScoreCalibration
from .types import Features, Float32, Int32, KeptFeatures, Matches, Thresholds, UInt8


class Backend(Protocol):
    """SuperPoint and LightGlue on one device. One thread makes, uses and closes it; `cancel` may come from another."""

    spec: EngineSpec
    early_exits: EarlyExits  # where the matcher may stop
    description: str  # one line: engine, device, precision and weights
    score_calibration: ScoreCalibration  # of the model; scores and thresholds of all methods are raw

    def extract(self, image: UInt8, mask: UInt8 | None = None) -> Features:
        """Keypoints, scores and descriptors of a gray image, uint8 (H, W) of the spec's size. Raises EngineError.

        No keypoint is where `mask`, of the same shape, is 0. An array is uploaded once: do not change the values of a mask.
        """

    def match(self, reference: Features, current: Features, thresholds: Thresholds) -> Matches:
        """Mutual matches of the reference's rows, after the layers that `thresholds.depth_confidence` needs. Raises EngineError.

        With `thresholds.at_zero` after none, where `early_exits.at_zero`.
        """

    def match_exits(self, reference: Features, current: Features, thresholds: Thresholds) -> Iterator[Matches]:
        """The matches at each of `early_exits.ends`, with the share of confident points; each exit runs when it is asked for.

        For the evaluation of engines and thresholds. Raises EngineError.
        """

    def keep(self, features: Features) -> KeptFeatures:
        """These features, valid however many frames are extracted later, and matched as any others. Raises EngineError."""

    def select_camera(self, camera: int) -> None:
        """Extract the images of this camera from now on, counted from 0, of those that share the backend.

        Each camera has memory of its own, allocated at its first selection. Raises EngineError.
        """

    def cancel(self) -> None:
        """End the running call soon, with an EngineError, and every later one."""

    def close(self) -> None:
        """Release everything. Safe to call twice."""


@runtime_checkable
class RefiningBackend(Backend, Protocol):
    """A backend that takes camera images in full size, once, and refines points in them. All methods raise EngineError.

    With other backends the host resizes by `resize_gray` and refines by `refine_points`, with the same results.
    """

    @property
    def refines(self) -> bool:
        """Whether this device can."""

    def extract_frame(self, image: UInt8, mask: UInt8 | None = None) -> Features:
        """Extract an image (H, W) of any size and keep it with its features; `mask` is of the spec's size."""

    def correspond(self, reference: Features, current: Features, thresholds: Thresholds,
                   sought: Sought) -> tuple[Matches, Correspondences | None]:
        """Match, and find all that `correspondences.correspond` finds, waiting for the device once.

        `reference` and `current` are features of `extract_frame`, of images of one size. Correspondences are None where the host
        has to find them: values are not finite, or the epipolar fit is not likely.
        """

    def match_and_refine(self, reference: Features, current: Features, thresholds: Thresholds,
                         points: Float32) -> tuple[Matches, Refined]:
        """Match, and refine `points` in the current image as `refine_points` does, waiting for the device once.

        Args:
            reference, current: features of `extract_frame`, of images of one size.
            points: (K + C, 2) pixels of the reference image: its K keypoints, and up to K propagated points. Matched points are
                refined from their matches, all others are searched where the matches around them went.
        """

    def refine(self, reference: Features, current: Features, indices: Int32, points: Float32) -> Refined:
        """As `match_and_refine`, with known matches: `indices` (K,) has the current row of each reference row, or -1."""


def refining_backend(backend: Backend) -> RefiningBackend | None:
    """The backend itself where it refines points; None where the host does."""
    return backend if isinstance(backend, RefiningBackend) and backend.refines else None
