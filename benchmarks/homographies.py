"""Image pairs that a known homography joins, recorded (Mikolajczyk et al., IJCV 2005) or turned: how many matches follow it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from lightglue_trt_ros.core.types import Float64, UInt8
from lightglue_trt_ros.datasets.sequence import read_gray
from lightglue_trt_ros.evaluation.baselines import Correspondences
from lightglue_trt_ros.odometry.two_view import homography_errors
from lightglue_trt_ros.utils.errors import BagError

WITHIN_PX = 3
SCENES = ('graf', 'boat', 'leuven', 'bikes')
TURNS_DEG = (0, 30, 45, 60, 90, 120, 150, 180)  # in the image plane: when the camera rolls


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
            errors = homography_errors(found.reference, found.current, homography)
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


@dataclass(frozen=True)
class TurnScore:
    """A matcher on one picture and its middle, turned."""

    picture: str
    matcher: str
    right: dict[int, int]  # matches within WITHIN_PX of the truth, by degrees; 0 is the upright

    @property
    def shares(self) -> dict[int, float | None]:
        """Of the upright's matches, by degrees; None where it has none."""
        return {turn: count / self.right[0] if self.right[0] else None for turn, count in self.right.items()}

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {'picture': self.picture, 'matcher': self.matcher, f'within_{WITHIN_PX}px': self.right}


def evaluate_turns(pictures: Iterable[tuple[str, UInt8]], match: Callable[[UInt8, UInt8], Correspondences], name: str, *,
                   turns: Sequence[int] = TURNS_DEG) -> list[TurnScore]:
    """Score `match`, a function of two gray images, on pictures by name, uint8 (H, W), each against `turned` of it.

    0 is always among the turns. Raises what `match` raises.
    """
    scores = []
    for picture, image in pictures:
        right = {}
        for turn in dict.fromkeys((0, *turns)):
            view, truth = turned(image, turn)
            found = match(image, view)
            right[turn] = int(np.sum(homography_errors(found.reference, found.current, truth) < WITHIN_PX))
        scores.append(TurnScore(picture, name, right))
    return scores


def mean_shares(scores: Sequence[TurnScore]) -> dict[int, float | None]:
    """Shares by degrees, mean over the pictures whose upright has matches; None without any."""
    shares = [score.shares for score in scores]
    known = {turn: [share for each in shares if (share := each[turn]) is not None] for turn in (shares[0] if shares else ())}
    return {turn: float(np.mean(found)) if found else None for turn, found in known.items()}


def turned(image: UInt8, degrees: float) -> tuple[UInt8, Float64]:
    """The square in the middle of an image, uint8 (H, W), turned clockwise about its centre; black (H, W) around it.

    With the homography (3, 3) from pixels of the image to those of the view. What leaves the square is lost: of a turn by 45
    degrees an octagon remains. The image shows all that the view can show, so that what is lost is the view's loss alone.
    """
    height, width = image.shape
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    middle = (side - 1) / 2
    turn = np.eye(3)
    turn[:2] = cv2.getRotationMatrix2D((middle, middle), -degrees, 1.0)
    view = np.zeros_like(image)
    square = np.ascontiguousarray(image[top:top + side, left:left + side])
    view[top:top + side, left:left + side] = cv2.warpAffine(square, turn[:2], (side, side), flags=cv2.INTER_LINEAR)
    there = np.array([[1.0, 0, left], [0, 1, top], [0, 0, 1]])
    return view, there @ turn @ np.linalg.inv(there)
