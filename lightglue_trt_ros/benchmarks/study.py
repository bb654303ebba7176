"""Our matcher against SIFT on recorded sequences with known poses, and on image pairs with known homographies, in one run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..accuracy import FrontendStream, HomographyScore, SequenceMatcher, SequenceScore, evaluate_homographies, evaluate_sequence
from ..backends.select import open_backend
from ..bag import open_recording
from ..baselines import SiftMatcher
from ..config import MatcherConfig
from ..errors import BagError
from ..features import UInt8
from ..frontend import FrameMatcher
from ..geometry import Size, fitting_size
from ..messages import gray_of
from ..poses import Float64

SEQUENCES = ('kitti_short_1', 'kitti_short_2', 'hololens')


def study_sequence(path: Path, *, max_keypoints: int = 1024, lightglue: str = 'homography', sift: bool = True,
                   frames: int | None = None, stride: int = 1) -> Iterator[SequenceScore]:
    """Score ours, then SIFT with 4,000 features and ratio 0.8, on the first `frames` frames. Raises LightglueTrtError."""
    images, camera, poses = _load(path, frames)
    for matcher in _matchers((images[0].shape[0], images[0].shape[1]), max_keypoints, lightglue, sift):
        yield evaluate_sequence(images, camera, poses, matcher, stride=stride, sequence=path.name, name=_name(matcher, lightglue))


def study_homographies(folder: Path, *, max_keypoints: int = 1024, lightglue: str = 'homography',
                       sift: bool = True) -> Iterator[HomographyScore]:
    """Score ours and SIFT on graf, boat, leuven and bikes, pairs 1-2 and 1-3. Raises LightglueTrtError."""
    for matcher in _matchers((480, 640), max_keypoints, lightglue, sift):
        yield from evaluate_homographies(folder, matcher, name=_name(matcher, lightglue))


def _matchers(size: Size, max_keypoints: int, lightglue: str, sift: bool) -> Iterator[SequenceMatcher]:
    height, width = fitting_size(size, 640 * 480, shrink=False)
    config = MatcherConfig(image_height=height, image_width=width, max_keypoints=max_keypoints, lightglue_weights=lightglue)
    backend, _ = open_backend(config)
    yield FrontendStream(FrameMatcher(backend, config))
    backend.close()
    if sift:
        yield SiftMatcher()


def _name(matcher: SequenceMatcher, lightglue: str) -> str:
    return f'ours ({lightglue})' if isinstance(matcher, FrontendStream) else 'SIFT 4000, 0.8'


def _load(path: Path, frames: int | None) -> tuple[list[UInt8], Float64, Float64]:
    recording = open_recording(path)
    if recording.intrinsics is None or recording.trajectory is None:
        raise BagError(f'{path} has no intrinsics or no ground truth: accuracy needs both')
    images = [gray_of(frame.load()) for frame, _ in zip(recording.frames(), range(frames or len(recording)), strict=False)]
    return images, recording.intrinsics.k, recording.trajectory.poses[:len(images)]
