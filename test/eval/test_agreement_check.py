"""Matches that agree with each other and not with the ground truth."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from lightglue_trt_eval.score.agreement_check import disagreement, misfit
from lightglue_trt_eval.score.metrics import PairResult, table_of


def pairs(near: Sequence[float], inliers: int = 93, step_m: float = 0.1, second: Sequence[float] = ()) -> list[str]:
    return disagreement(*(table_of([PairResult((k, k + stride), float(k), 100, inliers, 'essential', (0.1, 0.2, each), 1.0, 0.3,
                                               None, step_m=step_m) for k, each in enumerate(shares)])
                          for stride, shares in ((1, near), (2, second))))


def test_truth_that_contradicts_matches_is_named_with_both_shares() -> None:
    line, = pairs([0.52] * 6)
    assert line.startswith('matches agree with each other (inliers 93 %) and not with the ground truth (52 % within 3 px of its '
                           'epipolar lines; rotations differ by 0.30 degrees): the figures against it measure')
    assert 'check noise, rate and clock of the poses, the calibration, that the camera neither zooms, hangs in a gimbal nor' in line
    assert len(pairs([0.42] * 6, inliers=74)) == 1
    assert not pairs([0.52] * 6, inliers=60) + pairs([0.62] * 6, inliers=74), 'poor matches contradict themselves'


def test_truth_without_steps_names_its_unit() -> None:
    line, = pairs([0.1] * 6, step_m=0.00004)
    assert 'it moves by 0.04 mm a frame, and the images by more; check the unit of its positions, which is the metre, and' in line


def test_truth_that_stands_blames_what_moves_and_no_unit() -> None:
    """As of a train that passes a camera that stands."""
    line, = pairs([0.001] * 6, step_m=0.0)
    assert line.endswith('it stands; something large moves before a camera that stands, as a train or a film, or its tracker '
                         'repeats one pose')


def test_frames_two_apart_that_agree_are_those_of_two_cameras() -> None:
    line, = pairs([0.37] * 12, second=[0.97] * 11)
    assert '(37 % within 3 px of its epipolar lines; rotations differ by 0.30 degrees): of frames two apart 97 % are; two' in line
    assert 'alternately' not in ''.join(pairs([0.37] * 12, second=[0.4] * 11)) + ''.join(pairs([0.37] * 12, second=[0.97] * 3))


def test_pairs_in_which_the_truth_jumps_are_counted() -> None:
    line, = pairs([0.97] * 9 + [0.1] * 8 + [0.97] * 10)
    assert line.startswith('in 8 of 27 pairs of frames, first of 9 and 10, matches agree with each other and not with the ground')


@pytest.mark.parametrize('near', [[0.98] * 20, [0.75] * 20, [0.97] * 12 + [0.6] * 8, [0.1] * 3, []])
def test_right_unclear_or_short_recordings_get_no_line(near: list[float]) -> None:
    assert not pairs(near)


@pytest.mark.parametrize(('inliers', 'returning', 'reason'), [
    (61, 0.88, '61 % of the matches are inliers, 88 % come back when matched backwards: they are right and fit no single motion'),
    (48, 0.5, '48 % of the matches are inliers, 50 % come back when matched backwards: many are wrong, .* little, 1 s apart')])
def test_few_inliers_get_a_reason_by_matches_that_come_back(inliers: int, returning: float, reason: str) -> None:
    found = table_of([PairResult((k, k + 1), float(k), 100, inliers) for k in range(6)])
    line, = misfit(found, [returning], 1.0)
    assert re.match(reason, line), line
    assert not misfit(table_of([PairResult((0, 1), 0.0, 100, inliers)]), [returning], 1.0)
    assert not misfit(table_of([PairResult((k, k + 1), float(k), 100, 84) for k in range(6)]), [returning], 1.0)


@pytest.mark.parametrize(('inliers', 'within', 'reason'), [
    (63, 0.95, 'they are imprecise, as of noise'), (63, 0.74, 'they are right and fit no single motion, as with a rolling shutter'),
    (85, 0.74, 'they are right and fit no single motion'), (85, 0.87, '')])
def test_standard_deviations_tell_matches_that_fit_no_motion_from_noise(inliers: int, within: float, reason: str) -> None:
    """As of ORB in a drive, and of a camera that turns 4 degrees between frames and reads its rows over 0.4 of the time."""
    found = table_of([PairResult((k, k + 1), float(k), 100, inliers, within_2_sigma=within if k else None) for k in range(6)])
    line = ''.join(misfit(found, [0.95], 1.0))
    assert reason in line
    assert bool(line) == bool(reason)


def test_a_recording_that_fits_no_motion_has_no_jumps_of_the_truth() -> None:
    rows = [PairResult((k, k + 1), float(k), 100, 93, 'essential', (0.1, 0.2, 0.1 if k == 9 else 0.97),
                       within_2_sigma=0.9 if k == 9 else 0.7)
            for k in range(20)]
    assert not disagreement(table_of(rows), table_of([]))
