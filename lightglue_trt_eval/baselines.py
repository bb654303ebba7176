"""Classical matchers that ours is measured against. Each is a stream: frames in, correspondences with the frame before out.

Their settings are those that their papers, OpenCV and the common visual odometries use; none is tuned to a recording.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from lightglue_trt_ros.core.geometry import contiguous, size_of
from lightglue_trt_ros.core.masks import Mask
from lightglue_trt_ros.core.types import Float32, UInt8
from lightglue_trt_ros.utils.errors import FrameError

WINDOW, LEVELS, BACKWARD_PX = (21, 21), 4, 1.0  # of Lucas-Kanade
QUALITY = 0.01  # of a corner, at least, over that of the best one
STOP = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 30, 0.01)

Description = tuple[Float32, NDArray[Any]]  # keypoints (K, 2), and a descriptor in each row


class MatchedPoints(NamedTuple):
    """M points of two images that are the same, row by row, pixels."""

    reference: Float32  # (M, 2) in the earlier image
    current: Float32  # (M, 2) in the later one
    covariances: Float32 | None = None  # (M, 2, 2) square pixels: of each current point given its reference point; None: unknown

    @classmethod
    def none(cls) -> MatchedPoints:
        """No point at all."""
        return cls(np.zeros((0, 2), np.float32), np.zeros((0, 2), np.float32))


class DescriptorMatcher:
    """Detect, describe, and match to the nearest descriptor by Lowe's ratio test (IJCV 2004, 7.1).

    A detector of OpenCV and the norm of its descriptors make a baseline; each frame is described once. A ratio of None takes
    every nearest descriptor; `mutual` asks for nearest both ways.
    """

    def __init__(self, detector: Any, norm: int, ratio: float | None, mutual: bool = False) -> None:
        self.detector, self.norm, self.ratio, self.mutual = detector, norm, ratio, mutual
        self.mask: Mask | None = None  # no keypoint is where it is 0,
        self.mask_margin = 0.0  # or nearer to there, pixels of the image
        self.described: deque[tuple[UInt8, Description]] = deque(maxlen=0)  # images, which streams of the same frames may share
        self._previous: Description | None = None

    def process(self, image: UInt8) -> MatchedPoints | None:
        """Match a gray image, uint8 (H, W), with the one before; None for the first. Raises FrameError."""
        previous, self._previous = self._previous, None
        current = self._previous = self._describe(image)
        return None if previous is None else self._match(previous, current)

    def match(self, image0: UInt8, image1: UInt8) -> MatchedPoints:
        """Match two gray images, uint8 (H, W). The stream of `process` does not change. Raises FrameError."""
        return self._match(self._describe(image0), self._describe(image1))

    def reset(self) -> None:
        """Forget the last image: the next one is a first one."""
        self._previous = None

    def _describe(self, image: UInt8) -> Description:
        for known, description in self.described:
            if known is image:
                return description
        _check_gray(image)
        allowed = None if self.mask is None else self.mask.grown(size_of(image), self.mask_margin)
        keypoints, descriptors = self.detector.detectAndCompute(image, allowed)
        points = np.asarray([keypoint.pt for keypoint in keypoints], np.float32).reshape(-1, 2)
        description = points, np.zeros((0, 1), np.float32) if descriptors is None else descriptors
        self.described.append((image, description))
        return description

    def _match(self, first: Description, second: Description) -> MatchedPoints:
        (points0, descriptors0), (points1, descriptors1) = first, second
        neighbours_needed = 1 if self.ratio is None else 2
        if not len(points0) or len(points1) < neighbours_needed:
            return MatchedPoints.none()
        distances, neighbours = self._nearest(descriptors0, descriptors1, neighbours_needed)
        good = np.ones(len(points0), np.bool_) if self.ratio is None else distances[:, 0] < self.ratio * distances[:, 1]
        if self.mutual:
            back = self._nearest(descriptors1, descriptors0, 1)[1][:, 0]
            good &= back[neighbours[:, 0]] == np.arange(len(good))
        return MatchedPoints(points0[good], points1[neighbours[good, 0]])

    def _nearest(self, queries: NDArray[Any], candidates: NDArray[Any], count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Distances and rows, (N, count) each, of every query's nearest candidates."""
        kind = cv2.CV_32S if self.norm == cv2.NORM_HAMMING else cv2.CV_32F
        distances, rows = cv2.batchDistance(contiguous(queries, queries.dtype), contiguous(candidates, candidates.dtype), kind,
                                            normType=self.norm, K=count)
        return distances, rows


class SiftMatcher(DescriptorMatcher):
    """SIFT (Lowe, IJCV 2004): about `features` keypoints per image, ratio test; `mutual` also asks for nearest both ways.

    OpenCV's defaults, which are the paper's: 3 layers per octave, the first octave doubled, contrast threshold 0.04 / 3.
    """

    def __init__(self, features: int = 4000, ratio: float = 0.8, mutual: bool = False) -> None:
        opencv: Any = cv2  # some releases' type stubs lack SIFT
        super().__init__(opencv.SIFT_create(nfeatures=features), cv2.NORM_L2, ratio, mutual)
        self.name = f'SIFT {features}, ratio {ratio:g}' + (', mutual' if mutual else '')


class OrbMatcher(DescriptorMatcher):
    """ORB (Rublee et al., ICCV 2011): at most `features` keypoints per image, best Harris score first, nearest both ways.

    OpenCV's defaults (8 levels of 1.2, patches of 31 pixels), but for FAST's threshold: 7, to which ORB-SLAM falls back in dim
    parts (Mur-Artal et al., T-RO 2015), so that the budget also fills there; where 20 fills it, 7 changes little.
    """

    def __init__(self, features: int = 4000) -> None:
        opencv: Any = cv2  # as for SIFT
        super().__init__(opencv.ORB_create(nfeatures=features, fastThreshold=7), cv2.NORM_HAMMING, None, mutual=True)
        self.name = f'ORB {features}, cross-check'


def find_corners(image: UInt8, count: int, spacing: float, mask: UInt8 | None = None) -> Float32:
    """Up to `count` corners (M, 2) of a gray image (H, W), pixels, at least `spacing` apart (Shi and Tomasi, CVPR 1994)."""
    opencv: Any = cv2  # its type stubs know nothing of None for no corners
    corners = opencv.goodFeaturesToTrack(image, count, QUALITY, spacing, mask=mask)
    return np.zeros((0, 2), np.float32) if corners is None else np.asarray(corners, np.float32).reshape(-1, 2)


def follow_points(first: UInt8, second: UInt8, points: Float32,
                  guess: Float32 | None = None) -> tuple[Float32, NDArray[np.bool_]]:
    """Follow points (M, 2) of a gray image into another by pyramidal Lucas-Kanade (Bouguet, 2001), from `guess` (M, 2) if given.

    Returns their pixels (M, 2) in the second image, and which of them return to within BACKWARD_PX when followed back.
    """
    opencv: Any = cv2  # its type stubs forbid the missing first guess
    settings = {'winSize': WINDOW, 'maxLevel': LEVELS, 'criteria': STOP,
                'flags': 0 if guess is None else cv2.OPTFLOW_USE_INITIAL_FLOW}
    points = contiguous(points, np.float32)
    guess = None if guess is None else contiguous(guess, np.float32).copy()  # OpenCV writes into it
    forward, status, _ = opencv.calcOpticalFlowPyrLK(first, second, points, guess, **settings)
    start = None if guess is None else points.copy()
    backward, back_status, _ = opencv.calcOpticalFlowPyrLK(second, first, forward, start, **settings)
    returned = np.linalg.norm(backward - points, axis=1) < BACKWARD_PX
    return np.asarray(forward, np.float32), (status.ravel() == 1) & (back_status.ravel() == 1) & returned


class KltMatcher:
    """Shi-Tomasi corners (CVPR 1994) followed by pyramidal Lucas-Kanade (Bouguet, 2001), as a visual odometry follows them.

    A point goes on from where it was followed to, and ends where it leaves the image or does not come back within
    `BACKWARD_PX` when followed backwards. New corners fill the budget of `features` up after every frame, away from those that
    live on: by half the spacing of as many points on a grid, so that the budget fits. Windows of 21 x 21, OpenCV's default; four
    levels above the image, the upper end of what Bouguet calls typical: fast motion needs them.
    """

    def __init__(self, features: int = 4000) -> None:
        self.features = features
        self.name = f'KLT {features}'
        self.mask: Mask | None = None  # no corner is where it is 0, and none is followed there,
        self.mask_margin = 0.0  # or nearer to there, pixels of the image
        self._previous: UInt8 | None = None
        self._points: Float32 = MatchedPoints.none().reference

    def process(self, image: UInt8) -> MatchedPoints | None:
        """Follow the points into a gray image, uint8 (H, W); None for the first. Raises FrameError.

        An image of another size cannot be followed into: no correspondences, and new points.
        """
        previous, points = self._previous, self._points
        self.reset()
        _check_gray(image)
        matches = None if previous is None else MatchedPoints.none()
        if previous is not None and previous.shape == image.shape and len(points):
            matches = self._follow(previous, image, points)
        followed = MatchedPoints.none().current if matches is None else matches.current
        self._previous, self._points = image.copy(), self._top_up(image, followed)  # the caller may reuse its buffer
        return matches

    def reset(self) -> None:
        """Forget the last image and every point."""
        self._previous, self._points = None, MatchedPoints.none().reference

    def _follow(self, previous: UInt8, image: UInt8, points: Float32) -> MatchedPoints:
        forward, good = follow_points(previous, image, points)
        good &= ((forward >= 0) & (forward <= np.array(image.shape[::-1]) - 1)).all(axis=1)
        if self.mask is not None:
            good &= self.mask.allows(forward, size_of(image), self.mask_margin)
        return MatchedPoints(points[good], forward[good])

    def _top_up(self, image: UInt8, points: Float32) -> Float32:
        missing = self.features - len(points)
        if missing <= 0:
            return points
        spacing = max(1.0, math.sqrt(image.size / self.features) / 2)
        free = np.full(image.shape, 255, np.uint8)
        if self.mask is not None:
            free = self.mask.grown(size_of(image), self.mask_margin).copy()
        for u, v in points:
            cv2.circle(free, (round(float(u)), round(float(v))), round(spacing), 0, -1)
        return np.concatenate([points, find_corners(image, missing, spacing, free)])


BASELINES: dict[str, Callable[[int], DescriptorMatcher | KltMatcher]] = {  # of a keypoint budget
    'sift': partial(SiftMatcher, mutual=True),  # one to one, as the others are: the stronger setting
    'orb': OrbMatcher,
    'klt': KltMatcher,
}


def _check_gray(image: UInt8) -> None:
    if image.ndim != 2 or image.dtype != np.uint8 or not image.size:
        raise FrameError(f'the image is {image.dtype} {image.shape}: the baselines take gray uint8 (H, W)')
