"""Matches that stand in the image although the true motion moves them."""

from __future__ import annotations

import numpy as np
import pytest
from support.trajectories import pose

from lightglue_trt_eval.baselines import MatchedPoints
from lightglue_trt_eval.predict.scene import Motion
from lightglue_trt_eval.score.standing_check import StandingCheck


def lines(standing: int, moving: int, off_px: float = 4.0, pairs: int = 6, others: int = 0, unit: float = 1.0) -> list[str]:
    """Of pairs with so many matches that stand, `off_px` from true lines, so many that move with the scene; some without any."""
    check = StandingCheck()
    for pair in range(pairs + others):
        still, moved = (standing, moving) if pair < pairs else (0, 40)
        reference = np.random.default_rng(pair).uniform(0, 400, (still + moved, 2)).astype(np.float32)
        steps = np.repeat([[0.3, 0.2], [9.0, 1.0]], (still, moved), axis=0) * unit
        errors = np.repeat([off_px, 0.2], (still, moved)) * unit
        check.add(4, MatchedPoints(reference, (reference + steps).astype(np.float32)), errors, unit)
        check.add(1, MatchedPoints(reference, reference), None, unit)
    return check.doubts


@pytest.mark.parametrize('unit', [1.0, 4.0])
def test_share_of_matches_that_stand_is_named_with_remedies(unit: float) -> None:
    line, = lines(60, 40, unit=unit)
    assert line.startswith('60% of the matches, in frames 4 apart, stand still where the true motion moves them, fewer move')
    assert 'give --static-points drop' in line
    assert 'make_mask' in line


@pytest.mark.parametrize('given', [
    {'standing': 40, 'moving': 60},  # poses are of those that move
    {'standing': 60, 'moving': 40, 'off_px': 1.0},  # far away: they stand by the true motion
    {'standing': 95, 'moving': 5},  # a camera that stands, with a true motion of noise
    {'standing': 60, 'moving': 40, 'pairs': 3, 'others': 4}])  # as of copies of images, or a stop with a wrong clock
def test_matches_that_may_stand_get_no_line(given: dict[str, int]) -> None:
    assert lines(**given) == []


@pytest.mark.parametrize(('pairs', 'off_px', 'named'), [(3, 4.0, True), (2, 4.0, False), (3, 1.0, False), (9, 4.0, False)])
def test_picture_that_stands_in_some_pairs_is_named(pairs: int, off_px: float, named: bool) -> None:
    check, reference = StandingCheck(), np.random.default_rng(0).uniform(0, 400, (50, 2)).astype(np.float32)
    for pair in range(9):
        step, error = (0.2, off_px) if pair < pairs else (9, 0.3)
        check.add(1, MatchedPoints(reference, reference + np.float32(step)), np.full(50, error), 1)
    line = f'in {pairs} of 9 pairs of frames the whole picture stands'
    assert [each.startswith(line) for each in check.doubts] == [True] * named


@pytest.mark.parametrize(('step_m', 'per_depth', 'named'), [(0.1, 0.05, True), (0.01, 0.05, False), (0.1, 0.01, False)])
def test_picture_that_stands_on_its_true_lines_is_named_by_the_step(step_m: float, per_depth: float, named: bool) -> None:
    check, reference = StandingCheck(), np.random.default_rng(0).uniform(0, 400, (50, 2)).astype(np.float32)
    for pair in range(9):
        step, motion = (0.2, Motion(step_m, None)) if pair < 3 else (9, Motion(0.1, per_depth))
        check.add(1, MatchedPoints(reference, reference + np.float32(step)), np.full(50, 0.3), 1, motion, 400)
    assert [each.startswith('in 3 of 9 pairs of frames the whole picture stands') for each in check.doubts] == [True] * named


@pytest.mark.parametrize(('turn', 'step', 'shift_px', 'noise', 'named'), [
    (0.004, 0.0, 0.02, 0.0, True), (0.0, 0.2, 0.02, 0.0, True),
    (0.004, 0.2, 0.3, 0.0, False),  # a fast camera, whose picture moves on
    (0.0, 0.01, 0.02, 0.0, False), (0.0, 0.0, 0.02, 0.05, False)])  # far away by a short way; noise of a tripod
def test_one_picture_while_the_truth_goes_away_is_named(turn: float, step: float, shift_px: float, noise: float,
                                                        named: bool) -> None:
    check, rng = StandingCheck(), np.random.default_rng(0)
    poses = np.stack([pose([0, turn * k, 0] + noise * rng.normal(size=3), [step * k, 0, 0]) for k in range(21)])
    reference = rng.uniform(0, 400, (50, 2)).astype(np.float32)
    for k in range(20):
        points = MatchedPoints(reference, reference + np.float32(shift_px) * np.float32([1, 0]))
        check.add(1, points, np.full(50, 0.3), 1, None, 400, poses[k:k + 2])
    assert [each.startswith('the picture stands in 20 of 20 pairs of frames, and') for each in check.one_picture] == [True] * named
    assert StandingCheck().one_picture == []


def test_pairs_without_a_true_motion_get_no_line() -> None:
    check = StandingCheck()
    assert check.doubts == []
