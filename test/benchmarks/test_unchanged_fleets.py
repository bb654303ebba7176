"""The simulation of fleets in which nothing changed."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.unchanged_fleets import CORRELATIONS, resembling, simulated


def test_values_resemble_their_neighbours_as_asked():
    values = np.array([resembling(np.random.default_rng(seed), 200, 0.8) for seed in range(200)])
    assert values.std() == pytest.approx(1, abs=0.03)
    assert np.mean(values[:, 1:] * values[:, :-1]) == pytest.approx(0.8, abs=0.03)


@pytest.mark.slow
def test_few_fleets_fail_and_few_verdicts_are_given():
    found = simulated(25, 0.5, 40)
    assert found.as_a_whole <= found.failed <= 10
    assert 0 < found.verdicts < 8
    assert 0.1 < found.detects_as_a_whole < 0.5 < found.detects_recording < 20


def test_the_table_has_each_kind(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr('benchmarks.unchanged_fleets.PAIRS', (10,))
    assert main(['unchanged', '--fleets', '2', '--json', str(tmp_path / 'out.json')]) == 0
    assert '2 fleets of 20 recordings in which nothing changed' in capsys.readouterr().out
    row, = json.loads((tmp_path / 'out.json').read_text())['unchanged']['rows']
    assert row['correlation'] == [*CORRELATIONS]
    assert len(row['detects_recording']) == len(CORRELATIONS)
