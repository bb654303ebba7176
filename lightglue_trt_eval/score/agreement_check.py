"""Where the matches of consecutive frames agree with no motion, or with another one than the ground truth, in words.

A motion that most matches of a pair agree with is that of the camera, unless something large moves. Where the true motion is
another one, figures against it measure calibration and ground truth.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..predict.scene import MIN_BASELINE_M
from .metrics import Table, mean
from .pair_score import FEW

AGREED, OFF = 0.8, 0.7  # mean inliers, and matches within 3 px of the true lines, where the two contradict each other
PAIR_AGREED, PAIR_OFF = 0.7, 0.5  # the same of one pair
RIGHT, MOST_JUMPS, LEAST_PAIRS = 0.9, 0.5, 4  # matches near the true lines of usual pairs; share of pairs that jump; pairs
NO_MOTION, POOR, RETURN = 0.7, 0.6, 0.8  # inliers of matches that fit no motion, of poor ones; matches that come back if right
FITS = 0.8  # matches within two standard deviations of one motion, mean; usual recordings have 0.87 to 0.97
STANDS, NEAR_DEG = 0.9, 1.0  # share of pairs with a step too short for a direction, and median rotation error, of a wrong unit


def disagreement(table: Table, second: Table) -> list[str]:
    """A line, where no mistake is known that explains it; `table`: pairs of consecutive frames, `second`: of frames two apart."""
    known = ~np.isnan(table['precision@3']) & (table['matches'] >= FEW)
    if known.sum() < LEAST_PAIRS:
        return []
    near = table['precision@3'][known]
    agreed = table['inliers'][known] / table['matches'][known]
    if any(agreed.mean() >= least and near.mean() < most for least, most in ((AGREED, OFF), (PAIR_AGREED, PAIR_OFF))):
        return [_in_all(table, known, agreed, near) + _reason(table, second, known)]
    jumps = (agreed >= PAIR_AGREED) & (near < PAIR_OFF)
    if 0 < jumps.sum() <= MOST_JUMPS * len(jumps) and np.median(near) >= RIGHT and not _within(table, known) < FITS:
        first = int(np.flatnonzero(known)[jumps.argmax()])
        return [f'in {jumps.sum()} of {len(jumps)} pairs of frames, first of {table["reference_frame"][first]} and '
                f'{table["frame"][first]}, matches agree with each other and not with the ground truth: it jumps there, the '
                'camera zooms, frames are out of order, or something large moves']
    return []


def misfit(table: Table, returning: Sequence[float], period_s: float, remedy: str = '') -> list[str]:
    """A line where matches are far from any one motion; `returning`: shares of them that come back when matched backwards.

    `remedy` is what may help imprecise matches.
    """
    enough = table['matches'] >= FEW
    if enough.sum() < LEAST_PAIRS or not returning:
        return []
    inliers, back = float(np.mean(table['inliers'][enough] / table['matches'][enough])), mean(returning)
    shares = f'{100 * inliers:.0f} % of the matches are inliers, {100 * back:.0f} % come back when matched backwards'
    within = _within(table, enough)
    known = not np.isnan(within)
    if known:
        shares += f', {100 * within:.0f} % are within two of their standard deviations of one motion, where 95 are right'
    if back > RETURN and (within < FITS if known else inliers < NO_MOTION):
        return [f'{shares}: they are right and fit no single motion, as with a rolling shutter, a zoom, a lens that the '
                'calibration does not describe, or much that moves']
    if inliers < NO_MOTION and back > RETURN:
        return [f'{shares}: they are imprecise, as of noise, little contrast or blur, or much moves{remedy}']
    if inliers < POOR:
        return [f'{shares}: many are wrong, as of frames that share little, {period_s:.2g} s apart, of blur, interlaced '
                'rows or repeated texture, or what they are on moves, as leaves and water']
    return []


def _within(table: Table, pairs: NDArray[np.bool_]) -> float:
    """Mean share of matches within two of their standard deviations of the estimated motion; NaN without covariances."""
    shares = table['within_2_sigma'][pairs]
    known = ~np.isnan(shares)
    return float(np.mean(shares[known])) if known.any() else np.nan


def _in_all(table: Table, known: NDArray[np.bool_], agreed: NDArray[np.float64], near: NDArray[np.float64]) -> str:
    return (f'matches agree with each other (inliers {100 * agreed.mean():.0f} %) and not with the ground truth '
            f'({100 * near.mean():.0f} % within 3 px of its epipolar lines; rotations differ by '
            f'{np.median(table["rotation_deg"][known]):.2f} degrees): ')


def _reason(table: Table, second: Table, known: NDArray[np.bool_]) -> str:
    steps, rotation = table['step_m'][known], float(np.median(table['rotation_deg'][known]))
    if np.mean(steps <= MIN_BASELINE_M) >= STANDS and rotation < NEAR_DEG:
        large = 'something large moves before a camera that stands, as a train or a film'
        if not np.median(steps):
            return f'it stands; {large}, or its tracker repeats one pose'
        return (f'it moves by {1e3 * np.median(steps):.2g} mm a frame, and the images by more; check the unit of its positions, '
                f'which is the metre, and whether {large}')
    others = second['precision@3'][~np.isnan(second['precision@3']) & (second['matches'] >= FEW)]
    if len(others) >= LEAST_PAIRS and others.mean() >= RIGHT:
        return (f'of frames two apart {100 * others.mean():.0f} % are; two cameras send images alternately, as a stereo pair on '
                'one topic, or every second stamp is off: give each camera its own topic or folder')
    return ('the figures against it measure the ground truth and the calibration; check noise, rate and clock of the poses, the '
            'calibration, that the camera neither zooms, hangs in a gimbal nor stabilises its images, that these are of one '
            'camera, in order, and of the run that the poses are of, and whether most of them is a thing that moves by itself, or '
            'a part of the vehicle, which --mask leaves out')
