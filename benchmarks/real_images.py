"""What the benchmarks that need real images run on: recorded sequences, and image pairs with known homographies."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np

from benchmarks.homographies import SCENES, HomographyScore, TurnScore, evaluate_homographies, evaluate_turns
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.frame_matcher import FrameMatcher
from lightglue_trt_ros.core.geometry import resize_gray
from lightglue_trt_ros.core.types import UInt8
from lightglue_trt_ros.datasets.image_folders import SUFFIXES, natural
from lightglue_trt_ros.datasets.sequence import read_gray
from lightglue_trt_ros.engines.selection import open_backend
from lightglue_trt_ros.evaluation.baselines import Correspondences, SiftMatcher
from lightglue_trt_ros.utils.errors import BagError

SEQUENCES = ('kitti_short_1', 'kitti_short_2', 'hololens')
PICTURES = 7  # at most, of any other folder


def find_recordings(data: Path) -> dict[str, Path]:
    """Those of SEQUENCES that a folder holds, by name; else `data` itself, any bag or image folder."""
    known = {name: data / name for name in SEQUENCES if (data / name).is_dir()}
    return known or {data.name or str(data): data}


def score_homographies(folder: Path, config: MatcherConfig) -> Iterator[HomographyScore]:
    """Score ours and SIFT (4,000 features, ratio 0.8) on graf, boat, leuven and bikes, pairs 1-2 and 1-3. Raises BagError."""
    if not folder.is_dir():
        raise BagError(f'{folder} is not there: name the folder above it with --data')
    for name, match in _matchers(config):
        yield from evaluate_homographies(folder, match, name)


def score_turns(folder: Path, config: MatcherConfig) -> Iterator[TurnScore]:
    """Score ours, without refinement, and SIFT as above on pictures of `folder` and on their middles, turned.

    Pictures are resized to the engine's size. Raises BagError.
    """
    size = config.image_height, config.image_width
    pictures = [(name, resize_gray(read_gray(path), size)) for name, path in find_pictures(folder).items()]
    for name, match in _matchers(dataclasses.replace(config, refinement='none')):
        yield from evaluate_turns(pictures, match, name)


def find_pictures(folder: Path) -> dict[str, Path]:
    """PICTURES of a folder by name, spread evenly; of a folder as SEQUENCES and SCENES stand in, the first of each.

    Raises BagError where there is none.
    """
    places = {name: folder / 'oxford_affine' / name for name in SCENES} | {name: folder / name / 'images' for name in SEQUENCES}
    known = {name: _images(place)[0] for name, place in places.items() if place.is_dir()}
    if known:
        return known
    files = _images(folder / 'images' if (folder / 'images').is_dir() else folder)
    spread = np.unique(np.linspace(0, len(files) - 1, PICTURES).round().astype(np.int64))
    return {files[row].name: files[row] for row in spread.tolist()}


def _images(folder: Path) -> list[Path]:
    try:
        files = sorted((path for path in folder.iterdir() if path.name.lower().endswith(SUFFIXES)), key=natural)
    except OSError as error:
        raise BagError(f'{folder} cannot be read ({error.strerror}): name a folder of images with --data') from None
    if not files:
        raise BagError(f'{folder} holds no image ({", ".join(SUFFIXES)}): name a folder of images with --data')
    return files


def _matchers(config: MatcherConfig) -> Iterator[tuple[str, Callable[[UInt8, UInt8], Correspondences]]]:
    """By name, as functions of two gray images: the frontend, each pair for itself, and SIFT."""
    with closing(open_backend(config).backend) as backend:
        frames = FrameMatcher(backend, config)

        def match(first: UInt8, second: UInt8) -> Correspondences:
            frames.reset()
            frames.process(first, 0.0)
            found = frames.process(second, 0.1)
            assert found is not None
            return Correspondences(found.reference_keypoints, found.keypoints)

        yield 'ours', match
    yield 'SIFT 4000, ratio 0.8', SiftMatcher().match
