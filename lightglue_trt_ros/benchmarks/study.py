"""What the benchmarks that need real images run on: recorded sequences, and image pairs with known homographies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..config import MatcherConfig
from ..evaluation.baselines import Correspondences, SiftMatcher
from ..evaluation.homographies import HomographyScore, evaluate_homographies
from ..features import UInt8
from ..frontend import FrameMatcher
from ..recordings.bag import open_recording
from ..selection import open_backend

SEQUENCES = ('kitti_short_1', 'kitti_short_2', 'hololens')


def load_images(path: Path) -> list[UInt8]:
    """The gray images of a recording, uint8 (H, W). Raises BagError."""
    from ..messages import gray_of
    return [gray_of(frame.load()) for frame in open_recording(path).frames()]


def study_homographies(folder: Path, config: MatcherConfig) -> Iterator[HomographyScore]:
    """Score ours and SIFT (4,000 features, ratio 0.8) on graf, boat, leuven and bikes, pairs 1-2 and 1-3."""
    backend = open_backend(config).backend
    frames = FrameMatcher(backend, config)

    def match(first: UInt8, second: UInt8) -> Correspondences:
        frames.reset()
        frames.process(first, 0.0)
        found = frames.process(second, 0.1)
        assert found is not None
        return found.reference_keypoints, found.keypoints

    try:
        yield from evaluate_homographies(folder, match, 'ours')
    finally:
        backend.close()
    yield from evaluate_homographies(folder, SiftMatcher().match, 'SIFT 4000, ratio 0.8')
