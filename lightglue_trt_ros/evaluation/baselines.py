"""Classical matchers that ours is measured against. Each is a stream: frames in, correspondences with the frame before out."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, FrameError
from ..features import Float32, UInt8

Correspondences = tuple[Float32, Float32]  # points (M, 2) in the earlier and in the later image, pixels


class DescriptorMatcher:
    """Detect, describe, and match to the nearest descriptor by Lowe's ratio test (IJCV 2004, 7.1).

    A detector of OpenCV and the norm of its descriptors make a baseline; each frame is described once.
    Raises ConfigError for a ratio outside (0, 1].
    """

    def __init__(self, detector: Any, norm: int, ratio: float, mutual: bool = False) -> None:
        if not 0 < ratio <= 1:
            raise ConfigError(f'the ratio is {ratio}: it must lie in (0, 1]')
        self.detector, self.norm, self.ratio, self.mutual = detector, norm, ratio, mutual
        self._previous: tuple[Float32, NDArray[Any]] | None = None

    def process(self, image: UInt8) -> Correspondences | None:
        """Match a gray image, uint8 (H, W), with the one before: two (M, 2) float32; None for the first. Raises FrameError."""
        previous, self._previous = self._previous, None
        current = self._previous = self._describe(image)
        return None if previous is None else self._match(previous, current)

    def match(self, image0: UInt8, image1: UInt8) -> Correspondences:
        """Match two gray images, uint8 (H, W): two (M, 2) float32. The stream of `process` is left alone. Raises FrameError."""
        return self._match(self._describe(image0), self._describe(image1))

    def reset(self) -> None:
        """Forget the last image: the next one is a first one."""
        self._previous = None

    def _describe(self, image: UInt8) -> tuple[Float32, NDArray[Any]]:
        if image.ndim != 2 or image.dtype != np.uint8 or not image.size:
            raise FrameError(f'the image is {image.dtype} {image.shape}: the baselines take gray uint8 (H, W)')
        keypoints, descriptors = self.detector.detectAndCompute(image, None)
        points = np.asarray([keypoint.pt for keypoint in keypoints], np.float32).reshape(-1, 2)
        return points, np.zeros((0, 1), np.float32) if descriptors is None else descriptors

    def _match(self, first: tuple[Float32, NDArray[Any]], second: tuple[Float32, NDArray[Any]]) -> Correspondences:
        (points0, descriptors0), (points1, descriptors1) = first, second
        if not len(points0) or len(points1) < 2:  # a ratio needs a second neighbour
            return np.zeros((0, 2), np.float32), np.zeros((0, 2), np.float32)
        distances, neighbours = self._nearest(descriptors0, descriptors1, 2)
        good = distances[:, 0] < self.ratio * distances[:, 1]
        if self.mutual:
            back = self._nearest(descriptors1, descriptors0, 1)[1][:, 0]
            good &= back[neighbours[:, 0]] == np.arange(len(good))
        return points0[good], points1[neighbours[good, 0]]

    def _nearest(self, queries: NDArray[Any], candidates: NDArray[Any], count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Distances and rows, (N, count) each, of every query's nearest candidates."""
        kind = cv2.CV_32S if self.norm == cv2.NORM_HAMMING else cv2.CV_32F
        distances, rows = cv2.batchDistance(queries, candidates, kind, normType=self.norm, K=count)
        return distances, rows


class SiftMatcher(DescriptorMatcher):
    """SIFT (Lowe, IJCV 2004): about `features` keypoints per image, ratio test; `mutual` asks for nearest both ways too."""

    def __init__(self, features: int = 4000, ratio: float = 0.8, mutual: bool = False) -> None:
        if features < 1:
            raise ConfigError(f'{features} features: SIFT needs at least 1')
        opencv: Any = cv2  # some releases' type stubs lack SIFT
        super().__init__(opencv.SIFT_create(nfeatures=features), cv2.NORM_L2, ratio, mutual)
        self.name = f'SIFT {features}, ratio {ratio:g}'
