"""Predictions of boards: where they must meet what was measured, their order, and the table of the docs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

import pytest

from lightglue_trt_eval.times import board_prediction as prediction
from lightglue_trt_eval.times.board_prediction import SHARES, STAGES, Board, measured_ms, predict, share_of_h200
from lightglue_trt_eval.times.graph_costs import Work
from lightglue_trt_ros.core.config import MatcherConfig
from tools import figures

pytestmark = pytest.mark.networks


@pytest.fixture(autouse=True, scope='module')
def graphs_counted_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prediction, 'stage_work', cache(prediction.stage_work))
        yield


def test_a_bound_is_of_operations_or_of_bytes():
    board = Board('', matrix_tflops=10, tflops=2, gb_per_s=100)
    assert board.bound_ms(Work(matrix_flops=30e9, flops=4e9, bytes=1e8)) == pytest.approx(3 + 2)
    assert board.bound_ms(Work(matrix_flops=30e9, flops=4e9, bytes=1e9)) == pytest.approx(10)


@pytest.mark.parametrize('model', ['ours', 'ours_light'])
@pytest.mark.parametrize('count', SHARES)
def test_a_share_of_the_h200_is_predicted_as_it_was_measured(monkeypatch, model, count):
    share = share_of_h200(count)
    monkeypatch.setattr(prediction, 'BOARDS', (share,))
    predicted = predict(MatcherConfig(weights=model)).boards[share.name]
    times = prediction.TIMES_MS[model, count]
    expected = dict(zip((*STAGES, 'together'), (*times, sum(times)), strict=True))
    assert {stage: each.estimate_ms for stage, each in predicted.items()} == pytest.approx(expected)


def test_predicted_times_interpolate_scale_or_clamp_by_gpu_share(monkeypatch):
    shares = [share_of_h200(count) for count in (4, *SHARES, 11, 40, 264)]
    monkeypatch.setattr(prediction, 'BOARDS', tuple(shares))
    boards = predict(MatcherConfig()).boards
    for stage in STAGES:
        four, eight, sixteen, whole, eleven, forty, more = (boards[share.name][stage].estimate_ms for share in shares)
        assert four == pytest.approx(2 * eight)
        assert eight > eleven > sixteen > forty > whole
        assert eleven == pytest.approx(eight * (sixteen / eight)**(math.log(11 / 8) / math.log(16 / 8)))
        assert forty == pytest.approx(sixteen * (whole / sixteen)**(math.log(40 / 16) / math.log(132 / 16)))
        assert more == whole


def test_no_estimate_is_below_the_bound_of_the_boards_rates(monkeypatch):
    slow = Board('slow memory', 165, 82.6, 5.0)
    monkeypatch.setattr(prediction, 'BOARDS', (slow,))
    stages = predict(MatcherConfig()).boards['slow memory']
    assert all(each.estimate_ms >= each.bound_ms for each in stages.values())
    assert stages['match'].estimate_ms == stages['match'].bound_ms, 'its memory is slower than that of any share'


def test_estimates_are_ordered_as_boards_models_and_shapes_are():
    ours, light, fewer = (predict(MatcherConfig(**settings)).boards
                          for settings in ({}, {'weights': 'ours_light'}, {'max_keypoints': 512, 'image_height': 240}))
    for boards in (ours, light, fewer):
        assert all(0 < each.bound_ms <= each.estimate_ms for stages in boards.values() for each in stages.values())
        for stage in STAGES:
            nx, nano, agx, ada, best = (boards[name][stage].estimate_ms for name in (
                'Orin NX 16 GB', 'Orin Nano Super', 'AGX Orin 64 GB', 'RTX 4060', 'RTX 4090'))
            assert nx >= nano >= agx >= best
            assert nano >= ada >= best
    for name, stages in ours.items():
        assert light[name]['together'].estimate_ms < stages['together'].estimate_ms
        assert all(fewer[name][stage].estimate_ms < stages[stage].estimate_ms for stage in ('extract', 'match'))
    for name in ('Orin Nano Super', 'Orin NX 16 GB'):  # slower than 8 multiprocessors with half the work
        extract, match = (fewer[name][stage].estimate_ms / ours[name][stage].estimate_ms for stage in ('extract', 'match'))
        assert extract == pytest.approx(1 / 2, rel=0.01)
        assert 1 / 4 < match < 1 / 2


def test_measured_times_are_of_their_shapes_and_models_alone():
    light = MatcherConfig(weights='ours_light')
    assert {name: each['match'] for name, each in measured_ms(light).items()} == {
        share_of_h200(count).name: prediction.TIMES_MS['ours_light', count][1] for count in SHARES}
    assert not measured_ms(MatcherConfig(weights='ours_light', max_keypoints=512))
    assert not measured_ms(MatcherConfig(weights='magicleap'))


def test_figures_of_the_docs_have_these_predictions():
    models = [predict(MatcherConfig(weights=model)).boards for model in ('ours', 'ours_light')]
    expected = []
    for board in prediction.BOARDS:
        cells = [board.name, f'{board.matrix_tflops}', f'{board.gb_per_s}']
        for boards in models:
            for stage in (*STAGES, 'together'):
                each = boards[board.name][stage]
                cells.append(f'{each.bound_ms:.{2 if stage == "place" else 1}f} to {each.estimate_ms:.1f}')
        expected.append(cells)
    assert figures.load('boards').rows == expected
