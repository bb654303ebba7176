"""The command `python -m benchmarks`: what it refuses, in one line."""

from __future__ import annotations

import pytest

from benchmarks.__main__ import MEASUREMENTS, main
from lightglue_trt_ros.cli.benchmark import OF_A_CHECKOUT


def test_benchmark_names_every_measurement_of_a_checkout():
    assert set(OF_A_CHECKOUT) == set(MEASUREMENTS)


@pytest.mark.parametrize(('words', 'message'), [
    ([], 'required: NAME'), (['nothing'], "invalid choice: 'nothing'"), (['sweep', '--frames', '2'], 'at least 3')])
def test_wrong_words_are_refused(words, message, capsys):
    with pytest.raises(SystemExit):
        main(words)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(('name', 'message'), [
    ('homographies', 'oxford_affine is not there'), ('odometry', 'holds no stereo recording'),
    ('turns', 'name a folder of images')])
def test_data_that_is_not_there_is_named_in_one_line(name, message, tmp_path, capsys):
    assert main([name, '--data', str(tmp_path / 'nowhere')]) == 1
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count('\n') == 1
