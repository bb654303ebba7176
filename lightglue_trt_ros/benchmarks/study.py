"""Our matcher against SIFT on recorded sequences with known poses, and on image pairs with known homographies, in one run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import cv2

from ..config import MatcherConfig
from ..errors import BagError
from ..evaluation.accuracy import (
    FrontendStream,
    HomographyScore,
    PoseEstimator,
    SequenceMatcher,
    SequenceScore,
    evaluate_homographies,
    evaluate_sequence,
)
from ..evaluation.baselines import Correspondences, SiftMatcher
from ..evaluation.twoview import estimate_relative_pose
from ..features import UInt8
from ..frontend import FrameMatcher
from ..geometry import Size, fitting_size
from ..recordings.bag import open_recording
from ..recordings.poses import Float64
from ..selection import open_backend
from ..weights.store import resolve_lightglue

SEQUENCES = ('kitti_short_1', 'kitti_short_2', 'hololens')
AREA = 640 * 480  # smaller images are enlarged to as many pixels
ESTIMATORS: dict[str, PoseEstimator] = {
    'MAGSAC++, 1 px': partial(estimate_relative_pose, method=cv2.USAC_MAGSAC, threshold_px=1.0, refine_px=0.0),
    'RANSAC, 0.5 px, then maximum likelihood over all matches': estimate_relative_pose,
}


class Sequence(NamedTuple):
    """A recording in memory: gray images, (3, 3) intrinsics, (N, 4, 4) poses."""

    name: str
    images: list[UInt8]
    camera: Float64
    poses: Float64


class Settings(NamedTuple):
    """Which of our settings a study runs with."""

    max_keypoints: int = 1024
    lightglue: str = 'auto'
    sift: bool = True


def load_sequence(path: Path, frames: int | None = None) -> Sequence:
    """The first `frames` frames of a recording with ground truth. Raises BagError."""
    recording = open_recording(path)
    if recording.intrinsics is None or recording.trajectory is None:
        raise BagError(f'{path} has no intrinsics or no ground truth: accuracy needs both')
    from ..messages import gray_of  # needs ROS, which a machine that only measures may lack
    images = [gray_of(frame.load()) for frame, _ in zip(recording.frames(), range(frames or len(recording)), strict=False)]
    return Sequence(path.name, images, recording.intrinsics.k, recording.trajectory.poses[:len(images)])


def study_sequence(sequence: Sequence, settings: Settings) -> Iterator[tuple[str, SequenceScore]]:
    """Score ours and SIFT (4,000 features, ratio 0.8) on consecutive frames, once per estimator, which is named first."""
    size = (sequence.images[0].shape[0], sequence.images[0].shape[1])
    for name, matcher in _matchers(fitting_size(size, AREA, shrink=False), settings):
        matches = _Replay(matcher, sequence.images)
        for estimator, estimate in ESTIMATORS.items():
            yield estimator, evaluate_sequence(sequence.images, sequence.camera, sequence.poses, matches,
                                               sequence=sequence.name, name=name, estimator=estimate)


def study_homographies(folder: Path, settings: Settings) -> Iterator[HomographyScore]:
    """Score ours and SIFT on graf, boat, leuven and bikes, pairs 1-2 and 1-3."""
    for name, matcher in _matchers((480, 640), settings):
        yield from evaluate_homographies(folder, matcher, name=name)


class _Replay:
    """Matches of a sequence, found once, for several estimators."""

    def __init__(self, matcher: SequenceMatcher, images: Iterable[UInt8]) -> None:
        self._found = [matcher.process(image) for image in images]
        self._next = 0

    def process(self, image: UInt8) -> Correspondences | None:
        self._next += 1
        return self._found[self._next - 1]

    def reset(self) -> None:
        self._next = 0


def _matchers(size: Size, settings: Settings) -> Iterator[tuple[str, SequenceMatcher]]:
    config = MatcherConfig(image_height=size[0], image_width=size[1], max_keypoints=settings.max_keypoints,
                           lightglue_weights=settings.lightglue)
    backend = open_backend(config).backend
    weights = resolve_lightglue(settings.lightglue)[0].removeprefix('lightglue_')
    yield f'ours, {weights}, {size[1]}x{size[0]}', FrontendStream(FrameMatcher(backend, config))
    backend.close()
    if settings.sift:
        yield 'SIFT 4000, ratio 0.8', SiftMatcher()
