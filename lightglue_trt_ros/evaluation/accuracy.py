"""The accuracy study: how well a matcher's correspondences agree with known poses and known homographies.

Any matcher can take part: a stream (`SequenceMatcher`), the frontend (`FrontendStream`), a function of two images (`PairStream`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import cv2
import numpy as np
from numpy.typing import ArrayLike

from ..errors import BagError, ConfigError
from ..features import FrameMatches, UInt8
from ..recordings.poses import Float64
from ..recordings.sequence import read_image
from ..tables import print_table
from .baselines import Correspondences
from .baselines import SequenceMatcher as SequenceMatcher
from .results import AUC_DEG, PRECISION_PX
from .twoview import PoseEstimator as PoseEstimator
from .twoview import (
    epipolar_errors,
    estimate_relative_pose,
    fundamental_from_poses,
    homography_errors,
    pose_auc,
    pose_error_deg,
    relative_pose,
)

HOMOGRAPHY_PX = 3
HOMOGRAPHY_SCENES = ('graf', 'boat', 'leuven', 'bikes')


class Frontend(Protocol):
    """What FrameMatcher offers."""

    def process(self, image: UInt8, stamp: float) -> FrameMatches | None: ...

    def reset(self) -> None: ...


class PairStream:
    """A function of two images as a SequenceMatcher."""

    def __init__(self, match: Callable[[UInt8, UInt8], Correspondences]) -> None:
        self._match = match
        self._previous: UInt8 | None = None

    def process(self, image: UInt8) -> Correspondences | None:
        previous, self._previous = self._previous, image
        return None if previous is None else self._match(previous, image)

    def reset(self) -> None:
        self._previous = None


class FrontendStream:
    """A FrameMatcher as a SequenceMatcher; its reference must be the previous frame, else `process` raises ConfigError."""

    def __init__(self, frontend: Frontend) -> None:
        self._frontend = frontend
        self._count = 0

    def process(self, image: UInt8) -> Correspondences | None:
        self._count += 1
        found = self._frontend.process(image, self._count * 1e-3)  # stamps so close that no gap resets
        if found is None:
            return None
        if round(found.reference_stamp * 1e3) != self._count - 1:
            raise ConfigError('the accuracy study scores consecutive frames: set reference to previous')
        return found.reference_keypoints, found.keypoints

    def reset(self) -> None:
        self._frontend.reset()


@dataclass(frozen=True)
class PairScore:
    """One pair of frames against the truth."""

    frames: tuple[int, int]  # rows of the sequence
    baseline: float  # true distance between the cameras, metres
    matches: int
    precision: tuple[float, ...]  # share of matches within PRECISION_PX of the true epipolar geometry, 0 without matches
    rotation_deg: float  # inf where no pose was found
    translation_deg: float  # inf where no pose was found

    @property
    def error_deg(self) -> float:
        """The larger of the rotation's and the translation direction's error, degrees."""
        return max(self.rotation_deg, self.translation_deg)


@dataclass(frozen=True)
class SequenceScore:
    """A matcher on a sequence. Areas and precisions are shares in [0, 1], averaged over pairs."""

    sequence: str
    matcher: str
    stride: int
    pairs: tuple[PairScore, ...]

    @property
    def auc(self) -> tuple[float, ...]:
        """Area under the recall curve of the pose error, up to each of AUC_DEG."""
        return tuple(pose_auc([pair.error_deg for pair in self.pairs], AUC_DEG))

    @property
    def precision(self) -> tuple[float, ...]:
        """Share of matches within each of PRECISION_PX of the true epipolar geometry; a pair without matches counts as 0."""
        return tuple(float(p) for p in np.mean([pair.precision for pair in self.pairs], axis=0))

    @property
    def mean_matches(self) -> float:
        """Matches per pair."""
        return float(np.mean([pair.matches for pair in self.pairs]))

    @property
    def failures(self) -> int:
        """Pairs without a pose: infinite errors in the areas."""
        return sum(math.isinf(pair.error_deg) for pair in self.pairs)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; errors of failed pairs are None."""
        def finite(value: float) -> float | None:
            return value if math.isfinite(value) else None

        pairs = [{'frames': list(pair.frames), 'baseline_m': pair.baseline, 'matches': pair.matches,
                  'precision': list(pair.precision), 'rotation_deg': finite(pair.rotation_deg),
                  'translation_deg': finite(pair.translation_deg)} for pair in self.pairs]
        return {'sequence': self.sequence, 'matcher': self.matcher, 'stride': self.stride,
                'auc': {str(limit): area for limit, area in zip(AUC_DEG, self.auc, strict=True)},
                'precision': {str(limit): share for limit, share in zip(PRECISION_PX, self.precision, strict=True)},
                'mean_matches': self.mean_matches, 'failures': self.failures, 'pairs': pairs}


@dataclass(frozen=True)
class HomographyScore:
    """A matcher on one pair of images that a known homography joins."""

    pair: str  # e.g. graf 1-2
    matcher: str
    matches: int
    within: float  # share of matches within HOMOGRAPHY_PX of the homography, 0 without matches

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {'pair': self.pair, 'matcher': self.matcher, 'matches': self.matches, f'within_{HOMOGRAPHY_PX}px': self.within}


def evaluate_sequence(frames: Iterable[UInt8], intrinsics: ArrayLike, poses: ArrayLike, matcher: SequenceMatcher, *,
                      stride: int = 1, sequence: str = '', name: str = '', min_baseline: float = 0.0,
                      estimator: PoseEstimator = estimate_relative_pose) -> SequenceScore:
    """Score a matcher on every `stride`-th frame against the one before it.

    `frames` are gray, uint8 (H, W), undistorted, read one at a time; `intrinsics` is (3, 3) in pixels; `poses` are (N, 4, 4),
    world from camera. Where the cameras are `min_baseline` metres apart or less there is no epipolar geometry: the rotation's
    homography stands in, and the translation's direction is not scored. A pair without matches or without a pose is a failure,
    never skipped. Another `estimator` of the same signature, e.g. a functools.partial of the default, may stand in.
    Raises BagError when frames and poses are not as many or make no pair, and what the matcher raises.
    """
    camera, truth = np.asarray(intrinsics, np.float64), np.asarray(poses, np.float64)
    if stride < 1:
        raise ConfigError(f'the stride is {stride}: it must be at least 1')
    matcher.reset()
    scores: list[PairScore] = []
    count = 0
    for count, image in enumerate(frames, 1):
        row = count - 1
        if row % stride or row >= len(truth):
            continue
        found = matcher.process(image)
        if row:
            scores.append(_score_pair((row - stride, row), found, camera, truth, min_baseline, estimator))
    if count != len(truth) or not scores:
        raise BagError(f'{sequence or "the sequence"} has {count} frames and {len(truth)} poses: '
                       f'a stride of {stride} takes more than {stride} of both, as many of one as of the other')
    return SequenceScore(sequence, name or _name(matcher), stride, tuple(scores))


def evaluate_homographies(folder: Path, matcher: SequenceMatcher, *, name: str = '',
                          scenes: Sequence[str] = HOMOGRAPHY_SCENES) -> list[HomographyScore]:
    """Score a matcher on pairs 1-2 and 1-3 of each scene in the Oxford affine layout: SCENE/img1.png ... and SCENE/H1to2p ...

    (Mikolajczyk et al., IJCV 2005.) Raises BagError when a file is missing or damaged, and what the matcher raises.
    """
    scores = []
    for scene in scenes:
        first = _gray(folder / scene / 'img1.png')
        for other in (2, 3):
            homography = _read_homography(folder / scene / f'H1to{other}p')
            matcher.reset()
            matcher.process(first)
            matches, errors = 0, np.zeros(0)
            if (found := matcher.process(_gray(folder / scene / f'img{other}.png'))) is not None:
                matches, errors = len(found[0]), homography_errors(*found, homography)
            scores.append(HomographyScore(f'{scene} 1-{other}', name or _name(matcher), matches, _share(errors, HOMOGRAPHY_PX)))
    return scores


def print_scores(sequences: Sequence[SequenceScore], homographies: Sequence[HomographyScore] = ()) -> None:
    """Print a table of each, through rich where it is installed: areas in percent, precisions as shares."""
    if sequences:
        header = ['sequence', 'matcher', 'stride', 'pairs', 'matches', *(f'AUC@{limit}' for limit in AUC_DEG),
                  *(f'P@{limit}px' for limit in PRECISION_PX), 'failed']
        print_table('Pose and epipolar accuracy', header, [
            [score.sequence, score.matcher, str(score.stride), str(len(score.pairs)), f'{score.mean_matches:.0f}',
             *(f'{100 * area:.1f}' for area in score.auc), *(f'{share:.3f}' for share in score.precision), str(score.failures)]
            for score in sequences])
    if homographies:
        print_table('Homographies', ['pair', 'matcher', 'matches', f'within {HOMOGRAPHY_PX} px'], [
            [score.pair, score.matcher, str(score.matches), f'{score.within:.3f}'] for score in homographies])


def _score_pair(frames: tuple[int, int], found: Correspondences | None, camera: Float64, poses: Float64,
                min_baseline: float, estimator: PoseEstimator) -> PairScore:
    pose0, pose1 = poses[frames[0]], poses[frames[1]]
    rotation, translation = relative_pose(pose0, pose1)
    baseline = float(np.linalg.norm(translation))
    if found is None or not len(found[0]):
        return PairScore(frames, baseline, 0, (0.0,) * len(PRECISION_PX), math.inf, math.inf)
    if baseline > min_baseline:
        errors = epipolar_errors(*found, fundamental_from_poses(pose0, pose1, camera, camera))
    else:
        errors = homography_errors(*found, camera @ rotation @ np.linalg.inv(camera))
    precision = tuple(_share(errors, limit) for limit in PRECISION_PX)
    estimate = estimator(*found, camera, camera)
    turn = shift = math.inf
    if estimate is not None:
        turn, shift = pose_error_deg(estimate.rotation, estimate.translation, rotation, translation, min_baseline=min_baseline)
    return PairScore(frames, baseline, len(found[0]), precision, turn, shift)


def _share(errors: Float64, limit: float) -> float:
    return float(np.mean(errors < limit)) if len(errors) else 0.0


def _name(matcher: SequenceMatcher) -> str:
    return str(getattr(matcher, 'name', type(matcher).__name__))


def _gray(path: Path) -> UInt8:
    image = read_image(path)
    if image.ndim == 2:
        return image
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), np.uint8)


def _read_homography(path: Path) -> Float64:
    try:
        matrix = np.loadtxt(path, dtype=np.float64)
    except (OSError, ValueError) as error:
        raise BagError(f'cannot read {path}: {error}') from None
    if matrix.shape != (3, 3) or not np.isfinite(matrix).all():
        raise BagError(f'{path} holds {matrix.shape} values: a homography has 3 x 3, all finite')
    return matrix
