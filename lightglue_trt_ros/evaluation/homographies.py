"""Image pairs that a known homography joins: how many matches follow it (Mikolajczyk et al., IJCV 2005)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BagError
from ..features import UInt8
from ..recordings.poses import Float64
from ..recordings.sequence import read_gray
from .baselines import Correspondences
from .twoview import homography_errors

WITHIN_PX = 3
SCENES = ('graf', 'boat', 'leuven', 'bikes')


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


def evaluate_homographies(folder: Path, match: Callable[[UInt8, UInt8], Correspondences], name: str, *,
                          scenes: Sequence[str] = SCENES) -> list[HomographyScore]:
    """Score `match`, a function of two gray images, on pairs 1-2 and 1-3 of each scene: SCENE/img1.png ... and SCENE/H1to2p ...

    Raises BagError when a file is missing or damaged, and what `match` raises.
    """
    scores = []
    for scene in scenes:
        first = read_gray(folder / scene / 'img1.png')
        for other in (2, 3):
            homography = _read_homography(folder / scene / f'H1to{other}p')
            found = match(first, read_gray(folder / scene / f'img{other}.png'))
            errors = homography_errors(*found, homography)
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
