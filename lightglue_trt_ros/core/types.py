"""Features, matches and correspondences: their arrays, shapes and coordinates."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from .early_exit import ALL_LAYERS, LAYERS

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]
Rows = NDArray[np.intp]  # NumPy's own index type: it converts all others at each use
UInt8 = NDArray[np.uint8]
UInt32 = NDArray[np.uint32]

NOT_FINITE = 'LightGlue confidence is not finite: no early exit there; check weights and engines (build_engines --force)'


class Features(Protocol):
    """One frame's features, owned by the backend that extracted them. K rows, best score first."""

    @property
    def keypoints(self) -> Float32:
        """(K, 2) float32, (u, v) in pixels of the engine's image; on a GPU this may wait for the extractor."""

    @property
    def scores(self) -> Float32:
        """(K,) float32 in [0, 1]; rows under the detection threshold are padding and never match."""


class KeptFeatures(Features, Protocol):
    """Features that stay valid for as long as they are held."""

    @property
    def descriptors(self) -> NDArray[Any]:
        """(K, D) float32 or float16, unit length; on a GPU a copy."""


@dataclass(frozen=True, eq=False)
class HostFeatures:
    """Features in host memory."""

    keypoints: Float32  # (K, 2)
    scores: Float32  # (K,)
    descriptors: NDArray[Any]  # (K, D), float32 or float16, unit length


@dataclass(frozen=True)
class Thresholds:
    """Inputs of the matcher's graph: they may change between frames without another engine."""

    match: float = 0.1  # least raw score of a match, see ScoreCalibration
    detection: float = 0.0005  # least SuperPoint score of a keypoint
    depth_confidence: float = ALL_LAYERS  # share of confident points that stops LightGlue early
    at_zero: bool = False  # take the exit before the first layer, whatever is confident: for backends that have it


@dataclass(frozen=True, eq=False)
class Matches:
    """The matcher's answer for a (reference, current) pair, one row per reference keypoint."""

    indices: Int32  # (K,) the current frame's row that reference row i matches, -1 where none
    scores: Float32  # (K,) in (0, 1], raw, 0 where none
    layers: int  # of LightGlue that ran
    note: str = ''  # problems, for people; empty: none
    confident: float = math.nan  # share of confident points at this exit; NaN after the last layer, or if not computed
    confidence_finite: bool = True  # at every exit so far

    def finite(self, points0: Float32, points1: Float32) -> Matches:
        """Without matches whose score or points are not finite; points are (K or more, 2) of both frames."""
        rows = np.flatnonzero(self.indices >= 0)
        parts = self.scores.take(rows)[:, None], points0.take(rows, axis=0), points1.take(self.indices.take(rows), axis=0)
        finite = np.isfinite(np.concatenate(parts, axis=1))
        if finite.all():
            return self
        wrong = rows[~finite.all(axis=1)]
        indices, scores = self.indices.copy(), self.scores.copy()
        indices[wrong], scores[wrong] = -1, 0
        note = f'{len(wrong)} of {len(rows)} matches are not finite and are left out; check weights and engines'
        return dataclasses.replace(self, indices=indices, scores=scores, note='; '.join(filter(None, (self.note, note))))


NOTABLE = 0.03  # share of the matches that stand still while the others move, from which on this is told
CAUSES = ("a part of the robot, a border, writing, dirt, hot pixels or an infrared projector's dots before the scene: make_mask "
          'writes a mask for mask_file; or switch the projector off (depth_module.emitter_enabled of realsense2_camera, '
          'i_enable_ir of depthai_ros_driver)')


class Standing(NamedTuple):
    """What stands still in the images of a camera that moves."""

    share: float  # of the matches of the last frames
    blocked: float  # share of the image where it was learned to stand, and no keypoint is taken
    where: str  # part of the image, for people: at the top, in all parts
    dropped: bool  # whether such points are dropped

    def __str__(self) -> str:
        return f'{self.share:.0%} of the matches, {self.blocked:.0%} of the image, {self.where}'

    @property
    def in_words(self) -> str:
        """A sentence with causes and remedies."""
        found = (f'{self.blocked:.0%} of the image, {self.where} of it, stands still while the camera moves, and gets no keypoints'
                 if self.blocked > NOTABLE else f'{self.share:.0%} of the matches, {self.where} of the image, stand still while '
                 f'the others move, and are {"dropped" if self.dropped else "kept (static_points)"}')
        return f'{found}: {CAUSES}'


@dataclass(frozen=True, eq=False)
class FrameMatches:
    """The correspondences of one frame with its reference: M rows, in pixels of the original images."""

    stamp: float  # seconds, the current image's
    reference_stamp: float  # seconds, the reference image's
    keypoints: Float32  # (M, 2) (u, v) in the current image
    reference_keypoints: Float32  # (M, 2) (u, v) in the reference image
    scores: Float32  # (M,) probability that the match is right, 0 for propagated points
    track_ids: UInt32  # (M,) kept while a point is matched or propagated
    track_lengths: UInt32  # (M,) frames in which the point was seen, >= 2
    covariances: Float32  # (M, 2, 2) pixels squared, of keypoints given reference_keypoints
    carried: UInt8  # (M,) frames since the point was last matched: 0 for matches of LightGlue
    stage_ms: dict[str, float] = field(default_factory=dict)  # wall time by stage: resize, extract, match, track, place
    layers: int = LAYERS  # of LightGlue that ran
    note: str = ''  # problems, for people; empty: none
    right_keypoints: Float32 | None = None  # (M, 2) (u, v) in the right image, NaN where none; None without stereo
    image_size: tuple[int, int] | None = None  # (height, width) of the current image, pixels, where it is known
    xyz: Float32 | None = None  # (M, 3) metres in the camera's optical frame, NaN where unknown; None without depth and stereo
    sigma_z: Float32 | None = None  # (M,) metres, standard deviation of z; None as xyz
    standing: Standing | None = None  # what stands still in the image while the camera moves; None: nothing was found

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def sigmas(self) -> Float32:
        """(M,) pixels, the largest standard deviation of each point in any direction."""
        return largest_sigmas(self.covariances)

    def well_known(self, max_sigma_px: float) -> FrameMatches:
        """Matches whose standard deviation is at most `max_sigma_px` in every direction."""
        return self.only(self.sigmas <= max_sigma_px)

    def matched(self) -> FrameMatches:
        """The matches of LightGlue, without propagated points."""
        return self if not self.carried.any() else self.only(self.carried == 0)

    def without_right(self) -> FrameMatches:
        """The same matches, with no point found in the right image."""
        return dataclasses.replace(self.without_depth(), right_keypoints=np.full((len(self), 2), np.nan, np.float32))

    def without_depth(self) -> FrameMatches:
        """The same matches, with no point known in space."""
        return dataclasses.replace(self, xyz=np.full((len(self), 3), np.nan, np.float32),
                                   sigma_z=np.full(len(self), np.nan, np.float32))

    def only(self, kept: NDArray[np.bool_]) -> FrameMatches:
        """Matches where `kept` (M,) is true."""
        which = np.flatnonzero(kept)
        rows = {name: getattr(self, name).take(which, axis=0) for name in _ROWS if getattr(self, name) is not None}
        return dataclasses.replace(self, **rows)


def largest_sigmas(covariances: Float32) -> Float32:
    """Standard deviations (M,) of covariances (M, 2, 2) along the axis in which each is largest."""
    a, b, d = covariances[:, 0, 0], covariances[:, 0, 1], covariances[:, 1, 1]
    return np.asarray(np.sqrt((a + d) / 2 + np.sqrt((a - d)**2 / 4 + b * b)), np.float32)


_ROWS = ('keypoints', 'reference_keypoints', 'scores', 'track_ids', 'track_lengths', 'covariances', 'carried',
         'right_keypoints', 'xyz', 'sigma_z')
