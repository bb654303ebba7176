"""Tracks of a rectified stereo recording, by the networks, SIFT and KLT: matched over time and from left to right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np

from lightglue_trt_ros.core.cameras import StereoRig
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.epipolar_check import RightImage
from lightglue_trt_ros.core.frame_matcher import FrameMatcher
from lightglue_trt_ros.core.images import gray_of
from lightglue_trt_ros.core.types import Float32, UInt8, UInt32
from lightglue_trt_ros.datasets.bag import open_recording
from lightglue_trt_ros.datasets.stereo_pairs import paired, stereo_recording
from lightglue_trt_ros.engines.selection import open_backend
from lightglue_trt_ros.evaluation.baselines import KltMatcher, SiftMatcher

Points = tuple[Float32, Float32]  # (M, 2) of the left image and of the right one
ROWS_PX = 1.5  # a match further from its row is none: the images are rectified


class StereoMatches(NamedTuple):
    """The tracks of one left image and of the one before, and where they are in the right image."""

    stamp: float  # seconds
    reference_stamp: float
    track_ids: UInt32  # (M,)
    keypoints: Float32  # (M, 2) in the left image
    reference_keypoints: Float32  # (M, 2) in the left image before
    right_u: Float32  # (M,) columns in the right image, NaN where none


class StereoPair(NamedTuple):
    """Two rectified images of one moment."""

    stamp: float  # seconds
    left: UInt8
    right: UInt8


def stereo_pairs(folder: Path) -> Iterator[StereoPair]:
    """The images of a recording that have right ones, in order. Raises BagError."""
    recording = stereo_recording(open_recording(folder))
    for frame, other in paired(recording.left.frames(), recording.right.frames()):
        if other is not None:
            yield StereoPair(frame.stamp_ns * 1e-9, gray_of(frame.load()), gray_of(other.load()))


def our_tracks(pairs: Iterator[StereoPair], config: MatcherConfig, rig: StereoRig) -> Iterator[StereoMatches]:
    """By the networks, as the node does it."""
    with closing(open_backend(config).backend) as backend:
        frames = FrameMatcher(backend, config)
        for pair in pairs:
            found = frames.process(pair.left, pair.stamp, RightImage(pair.right, rig))
            if found is not None and found.right_keypoints is not None:
                yield StereoMatches(found.stamp, found.reference_stamp, found.track_ids, found.keypoints, found.reference_keypoints,
                                    found.right_keypoints[:, 0])


def sift_tracks(pairs: Iterator[StereoPair], features: int) -> Iterator[StereoMatches]:
    """By SIFT with the ratio test, both ways and nearest to nearest."""
    across = SiftMatcher(features, mutual=True)
    return _chained(pairs, SiftMatcher(features, mutual=True), lambda pair, points: across.match(pair.left, pair.right)[:2])


def klt_tracks(pairs: Iterator[StereoPair], features: int) -> Iterator[StereoMatches]:
    """By corners that Lucas-Kanade follows, over time and, from where they are, into the right image and back."""
    def follow(pair: StereoPair, points: Float32) -> Points:
        if not len(points):
            return points, points
        flow: Any = cv2.calcOpticalFlowPyrLK
        settings = {'winSize': KltMatcher.WINDOW, 'maxLevel': KltMatcher.LEVELS, 'criteria': KltMatcher.STOP}
        there, found, _ = flow(pair.left, pair.right, points, None, **settings)
        back, returned, _ = flow(pair.right, pair.left, there, None, **settings)
        good = (found.ravel() == 1) & (returned.ravel() == 1) & (np.linalg.norm(back - points, axis=1) < KltMatcher.BACKWARD_PX)
        return points[good], there[good]
    return _chained(pairs, KltMatcher(features), follow)


def _chained(pairs: Iterator[StereoPair], matcher: SiftMatcher | KltMatcher,
             across: Callable[[StereoPair, Float32], Points]) -> Iterator[StereoMatches]:
    """Correspondences of consecutive frames as tracks: a keypoint is the same where its coordinates are."""
    ids: dict[tuple[float, float], int] = {}
    before, count = 0.0, 0
    for pair in pairs:
        found = matcher.process(pair.left)
        if found is not None:
            tracks = []
            for start in map(tuple, found[0].tolist()):
                tracks.append(ids.get(start, count))
                count += start not in ids
            ids = dict(zip(map(tuple, found[1].tolist()), tracks, strict=True))
            left, right = across(pair, found[1])
            place = {point: row for row, point in enumerate(map(tuple, left.tolist()))}
            both = [(row, place[point]) for row, point in enumerate(map(tuple, found[1].tolist())) if point in place]
            rows, others = np.array(both, np.int64).reshape(-1, 2).T
            yield StereoMatches(pair.stamp, before, np.array(tracks, np.uint32), found[1], found[0],
                                _columns(len(tracks), rows, left[others], right[others]))
        before = pair.stamp


def _columns(count: int, rows: Any, left: Float32, right: Float32) -> Float32:
    """Columns of `right` (N, 2) at `rows` of (count,), where they lie on the row of `left` and not to its right."""
    columns = np.full(count, np.nan, np.float32)
    good = (np.abs(left[:, 1] - right[:, 1]) < ROWS_PX) & (left[:, 0] > right[:, 0])
    columns[rows[good]] = right[good, 0]
    return columns
