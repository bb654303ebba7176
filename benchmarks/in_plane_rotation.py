"""Matches of a picture with its middle, rotated in the image plane as when the camera rolls: ours without refinement, and SIFT."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from benchmarks.images import read_gray
from benchmarks.real_images import SCENES, SEQUENCES, PairMatcher, image_files, pair_matchers
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.geometry import resize_gray
from lightglue_trt_ros.core.types import Float64, UInt8
from lightglue_trt_ros.odometry.two_view import homography_errors
from lightglue_trt_ros.utils.console import print_table

DATA = 'any folder of images, or the folder of several recordings'
WITHIN_PX = 3
ROTATIONS_DEG = (0, 30, 45, 60, 90, 120, 150, 180)
PICTURES = 7  # at most, of any other folder than that of the recordings


@dataclass(frozen=True)
class RotationScore:
    """A matcher on one picture and its rotated middle."""

    picture: str
    matcher: str
    correct: dict[int, int]  # matches within WITHIN_PX of the known rotation, by degrees; 0 is the upright

    @property
    def shares(self) -> dict[int, float | None]:
        """Of the upright's matches, by degrees; None where it has none."""
        return {degrees: count / self.correct[0] if self.correct[0] else None for degrees, count in self.correct.items()}

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {'picture': self.picture, 'matcher': self.matcher, f'within_{WITHIN_PX}px': self.correct}


def measure(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    """Score both matchers on pictures of `args.data`, resized to the engine's size. Raises BagError."""
    size = config.image_height, config.image_width
    pictures = [(name, resize_gray(read_gray(path), size)) for name, path in find_pictures(args.data).items()]
    rows, scores, means = [], [], {}
    for matcher, match in pair_matchers(dataclasses.replace(config, refinement='none')):
        of_matcher = score_rotations(pictures, match, matcher)
        means[matcher] = mean_shares(of_matcher)
        rows += [(score.picture, matcher, str(score.correct[0]), *_percent(score.shares)) for score in of_matcher]
        rows.append(('mean', matcher, '', *_percent(means[matcher])))
        scores += of_matcher
    print_table(f'In-plane rotation: matches within {WITHIN_PX} px, % of those of the upright middle; refinement none',
                ['picture', 'matcher', 'upright', *(f'{degrees} deg' for degrees in scores[0].correct if degrees)], rows)
    return {'pictures': [score.as_dict() for score in scores], 'mean': means}


def find_pictures(folder: Path) -> dict[str, Path]:
    """PICTURES of a folder by name, at equal steps; of a folder with SEQUENCES and SCENES the first of each.

    Raises BagError where there is none.
    """
    folders = {name: folder / 'oxford_affine' / name for name in SCENES} | {name: folder / name / 'images' for name in SEQUENCES}
    known = {name: image_files(images)[0] for name, images in folders.items() if images.is_dir()}
    if known:
        return known
    files = image_files(folder / 'images' if (folder / 'images').is_dir() else folder)
    chosen = np.unique(np.linspace(0, len(files) - 1, PICTURES).round().astype(np.int64))
    return {files[row].name: files[row] for row in chosen.tolist()}


def score_rotations(pictures: Iterable[tuple[str, UInt8]], match: PairMatcher, name: str,
                    rotations: Sequence[int] = ROTATIONS_DEG) -> list[RotationScore]:
    """Score `match` on pictures by name, uint8 (H, W), each against `rotated` of it, at 0 degrees in any case.

    Raises what `match` raises.
    """
    scores = []
    for picture, image in pictures:
        correct = {}
        for degrees in dict.fromkeys((0, *rotations)):
            view, homography = rotated(image, degrees)
            matches = match(image, view)
            correct[degrees] = int(np.sum(homography_errors(matches.reference, matches.current, homography) < WITHIN_PX))
        scores.append(RotationScore(picture, name, correct))
    return scores


def mean_shares(scores: Sequence[RotationScore]) -> dict[int, float | None]:
    """Shares by degrees, mean over the pictures whose upright has matches; None without any."""
    shares = [score.shares for score in scores]
    means = {}
    for degrees in shares[0] if shares else ():
        known = [share for each in shares if (share := each[degrees]) is not None]
        means[degrees] = float(np.mean(known)) if known else None
    return means


def rotated(image: UInt8, degrees: float) -> tuple[UInt8, Float64]:
    """The square in the middle of an image, uint8 (H, W), rotated clockwise about its centre; black (H, W) around it.

    Returns the view and the homography (3, 3) from pixels of the image to those of the view. Pixels that leave the square are lost:
    a rotation by 45 degrees leaves an octagon. The image shows all that the view can show, so only the view loses pixels.
    """
    height, width = image.shape
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    middle = (side - 1) / 2
    rotation = np.eye(3)
    rotation[:2] = cv2.getRotationMatrix2D((middle, middle), -degrees, 1.0)
    view = np.zeros_like(image)
    square = np.ascontiguousarray(image[top:top + side, left:left + side])
    view[top:top + side, left:left + side] = cv2.warpAffine(square, rotation[:2], (side, side), flags=cv2.INTER_LINEAR)
    image_from_square = np.array([[1.0, 0, left], [0, 1, top], [0, 0, 1]])
    return view, image_from_square @ rotation @ np.linalg.inv(image_from_square)


def _percent(shares: dict[int, float | None]) -> list[str]:
    return ['-' if share is None else f'{100 * share:.0f}' for degrees, share in shares.items() if degrees]
