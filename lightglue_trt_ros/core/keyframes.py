"""Keyframes for whoever maps: the last N, with what place recognition needs, and matches between any two of them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..utils.errors import FrameError
from .backend import Backend
from .cameras import Intrinsics
from .config import MatcherConfig
from .correspondences import Sought
from .depth import DepthImage, locate
from .frame_pair import TrackedFrame, TrackedPair
from .geometry import Size, size_of, unit_of
from .refinement import Pyramid, unrefined
from .refinement.variance_factor import VarianceFactor
from .tracks import Tracks
from .types import Float32, FrameMatches, KeptFeatures, Rows, UInt8, UInt32

NO_TRACK = 2**32 - 1  # track id of a keypoint that was never matched


@dataclass(frozen=True, eq=False)
class Keyframe:
    """A frame that is kept, and its K keypoints, best score first."""

    stamp: float  # seconds: what it is asked for by
    image: UInt8  # gray (H, W)
    features: KeptFeatures  # in the backend
    keypoints: Float32  # (K, 2) (u, v) pixels of the image, refined where they were matched
    track_ids: UInt32  # (K,) NO_TRACK where none
    xyz: Float32  # (K, 3) metres in the camera's optical frame, NaN where unknown
    sigma_z: Float32  # (K,) metres, standard deviation of z
    camera: Intrinsics | None = None  # None: unknown

    @property
    def descriptors(self) -> NDArray[Any]:
        """(K, 256) float16, unit length."""
        return np.asarray(self.features.descriptors, np.float16)

    def frame(self, engine: Size, refine: bool) -> TrackedFrame:
        """As it is matched, by features of images of the size `engine`; with its image to `refine` by."""
        size = size_of(self.image)
        frame = TrackedFrame(self.stamp, size, engine, self.features, Tracks.empty(0),
                      pyramid=Pyramid(self.image, unit_of(size, engine)) if refine else None)
        frame.points = self.keypoints
        return frame


class Keyframes:
    """Takes a frame as keyframe when few tracks of the keyframe before are left, and keeps the last ones."""

    def __init__(self, count: int) -> None:
        self._kept: deque[Keyframe] = deque(maxlen=count)
        self._tracks: UInt32 = np.empty(0, np.uint32)  # of the newest, as it was matched

    @property
    def newest(self) -> Keyframe | None:
        return self._kept[-1] if self._kept else None

    def wants(self, matches: FrameMatches, least_share: float) -> bool:
        """Whether the frame of these matches is a keyframe: fewer than this share of the tracks go on in it."""
        if not len(matches):
            return False
        return not self._kept or float(np.mean(np.isin(self._tracks, matches.track_ids))) < least_share

    def take(self, backend: Backend, image: UInt8, keypoints: Float32, features: Any, matches: FrameMatches, rows: Rows,
             depth: DepthImage | None = None, camera: Intrinsics | None = None) -> None:
        """Keep a frame: its keypoints (K, 2) and features, and its matches, whose M points are those of `rows` in the frame.

        Rows from K on are propagated points. With `depth`, keypoints without a match also get positions. Raises EngineError.
        """
        count = len(features.scores)
        own = rows < count
        ids = np.full(count, NO_TRACK, np.uint32)
        xyz, sigma_z = np.full((count, 3), np.nan, np.float32), np.full(count, np.nan, np.float32)
        if depth is not None:
            xyz, sigma_z = locate(depth, keypoints[:count], unrefined(count, unit_of(size_of(image), backend.spec.size)))
        ids[rows[own]] = matches.track_ids[own]
        if matches.xyz is not None and matches.sigma_z is not None:
            xyz[rows[own]], sigma_z[rows[own]] = matches.xyz[own], matches.sigma_z[own]
        kept = backend.keep(features)
        self._kept.append(Keyframe(matches.stamp, image.copy(), kept, keypoints[:count].copy(), ids, xyz, sigma_z, camera))
        self._tracks = matches.track_ids

    def of(self, stamp: float) -> Keyframe:
        """The newest keyframe with this stamp, to a microsecond: stamps repeat after time has gone back. Raises FrameError."""
        for keyframe in reversed(self._kept):
            if abs(keyframe.stamp - stamp) < 1e-6:
                return keyframe
        stamps = [keyframe.stamp for keyframe in self._kept]
        kept = f'{len(stamps)} from {min(stamps):.6f} to {max(stamps):.6f}' if stamps else 'none'
        raise FrameError(f'no keyframe has the stamp {stamp:.6f}: kept are {kept}, at most {self._kept.maxlen}')


def match_keyframes(backend: Backend, config: MatcherConfig, reference: Keyframe, current: Keyframe) -> FrameMatches:
    """Matches of two keyframes, refined on the host: no image is extracted. Raises EngineError."""
    refine, factor = config.refinement != 'none' and reference.image.shape == current.image.shape, VarianceFactor()
    pair = TrackedPair(backend, *(each.frame(backend.spec.size, refine) for each in (reference, current)))
    sought = Sought(reference.keypoints, np.zeros(len(reference.keypoints), np.bool_), None, factor.fit_limit,
                    current.camera if current.camera is reference.camera else None)
    answer, found = pair.correspond(backend.match(reference.features, current.features,
                                                  config.thresholds(backend.score_calibration)), sought)
    factor.add(found.quantile, found.inliers, found.second_quantile)
    rows = found.next_rows
    return FrameMatches(
        current.stamp, reference.stamp, found.points, found.reference_points,
        backend.score_calibration.after(answer.layers).probability(found.scores), current.track_ids[rows],
        np.full(len(rows), 2, np.uint32), found.covariances * np.float32(factor.value), np.zeros(len(rows), np.uint8),
        layers=answer.layers, note=answer.note, image_size=pair.current.size, xyz=current.xyz[rows], sigma_z=current.sigma_z[rows])
