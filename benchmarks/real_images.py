"""Recorded images, and the two matchers that the measurements on image pairs compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from lightglue_trt_eval.baselines import MatchedPoints, SiftMatcher
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.frame_matcher import FrameMatcher
from lightglue_trt_ros.core.types import UInt8
from lightglue_trt_ros.datasets.folder_recordings import SUFFIXES, natural
from lightglue_trt_ros.engines.selection import open_backend
from lightglue_trt_ros.utils.errors import BagError

SEQUENCES = ('kitti_short_1', 'kitti_short_2', 'hololens')
SCENES = ('graf', 'boat', 'leuven', 'bikes')  # of oxford_affine/ (Mikolajczyk et al., IJCV 2005)

PairMatcher = Callable[[UInt8, UInt8], MatchedPoints]  # of two gray images (H, W)


def find_sequences(data: Path) -> dict[str, Path]:
    """The recordings with images/ that a folder holds, by name; else `data` itself, any bag or image folder."""
    known = {path.parent.name: path.parent for path in sorted(data.glob('*/images'))}
    return known or {data.name or str(data): data}


def image_files(folder: Path) -> list[Path]:
    """The images of a folder, image 10 after image 9. Raises BagError where there is none."""
    try:
        files = sorted((path for path in folder.iterdir() if path.name.lower().endswith(SUFFIXES)), key=natural)
    except OSError as error:
        raise BagError(f'{folder} cannot be read ({error.strerror}): name a folder of images with --data') from None
    if not files:
        raise BagError(f'{folder} holds no image ({", ".join(SUFFIXES)}): name a folder of images with --data')
    return files


def pair_matchers(config: MatcherConfig) -> Iterator[tuple[str, PairMatcher]]:
    """By name: FrameMatcher with each pair for itself, and SIFT with 4,000 features and ratio 0.8."""
    with closing(open_backend(config).backend) as backend:
        frames = FrameMatcher(backend, config)

        def match(first: UInt8, second: UInt8) -> MatchedPoints:
            frames.reset()
            frames.process(first, 0.0)
            matches = frames.process(second, 0.1)
            assert matches is not None
            return MatchedPoints(matches.reference_keypoints, matches.keypoints)

        yield 'ours', match
    yield 'SIFT 4000, ratio 0.8', SiftMatcher().match
