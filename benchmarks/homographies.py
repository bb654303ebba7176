"""Share of matches that follow the recorded homography of an image pair (Mikolajczyk et al., IJCV 2005), ours and SIFT."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.images import read_gray
from benchmarks.real_images import SCENES, PairMatcher, pair_matchers
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.types import Float64
from lightglue_trt_ros.odometry.two_view import homography_errors
from lightglue_trt_ros.utils.console import print_table
from lightglue_trt_ros.utils.errors import BagError

DATA = 'folder with oxford_affine/'
WITHIN_PX = 3


@dataclass(frozen=True)
class HomographyScore:
    """A matcher on one pair of images."""

    pair: str  # e.g. graf 1-2
    matcher: str
    matches: int
    within: float  # share of matches within WITHIN_PX of the homography, 0 without matches

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {'pair': self.pair, 'matcher': self.matcher, 'matches': self.matches, f'within_{WITHIN_PX}px': self.within}


def measure(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    """Score both matchers on pairs 1-2 and 1-3 of each scene. Raises BagError."""
    folder = args.data / 'oxford_affine'
    if not folder.is_dir():
        raise BagError(f'{folder} is not there: name the folder above it with --data')
    scores = [score for name, match in pair_matchers(config) for score in score_scenes(folder, match, name)]
    print_table('Homographies', ['pair', 'matcher', 'matches', f'within {WITHIN_PX} px'], [
        [score.pair, score.matcher, str(score.matches), f'{score.within:.3f}'] for score in scores])
    return {'pairs': [score.as_dict() for score in scores]}


def score_scenes(folder: Path, match: PairMatcher, name: str, scenes: Sequence[str] = SCENES) -> list[HomographyScore]:
    """Score `match` on pairs 1-2 and 1-3 of each scene: SCENE/img1.png ... and SCENE/H1to2p ...

    Raises BagError when a file is missing or damaged, and what `match` raises.
    """
    scores = []
    for scene in scenes:
        first = read_gray(folder / scene / 'img1.png')
        for other in (2, 3):
            homography = _read_homography(folder / scene / f'H1to{other}p')
            matches = match(first, read_gray(folder / scene / f'img{other}.png'))
            errors = homography_errors(matches.reference, matches.current, homography)
            within = float(np.mean(errors < WITHIN_PX)) if len(errors) else 0.0
            scores.append(HomographyScore(f'{scene} 1-{other}', name, len(errors), within))
    return scores


def _read_homography(path: Path) -> Float64:
    try:
        matrix = np.loadtxt(path, dtype=np.float64)
    except (OSError, ValueError) as error:
        raise BagError(f'cannot read {path}: {error}') from None
    if matrix.shape != (3, 3) or not np.isfinite(matrix).all():
        raise BagError(f'{path} holds {matrix.shape} values: a homography has 3 x 3, all finite')
    return matrix
