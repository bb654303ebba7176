"""What the node reports of itself over time: rates, ages, and how often a warning is logged."""

from __future__ import annotations

import pytest

from lightglue_trt_ros.ros.fading_log import FadingLog
from lightglue_trt_ros.ros.frame_statistics import FrameStatistics, in_time


class Clock:
    """Seconds, set by the test."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_rates_are_over_ten_seconds():
    clock = Clock()
    statistics = FrameStatistics(clock)
    statistics.opened()
    for second in range(1, 31):
        clock.now = 100.0 + second + 0.01 * (second % 3)
        if second % 2:  # a frame every other second: 0, 1, 0, 1 over the last second alone
            statistics.arrived()
        if second % 4 == 1:
            statistics.finished({}, None)
        figures = statistics.report()
        if second >= 10:
            assert float(figures['fps in']) == pytest.approx(0.5, abs=0.01)
            assert float(figures['fps out']) in (pytest.approx(0.2, abs=0.01), pytest.approx(0.3, abs=0.01))
    clock.now += 60.0  # nobody asked for a minute
    statistics.arrived()
    assert statistics.report()['fps in'] == '0.02'


def test_a_warning_that_lasts_is_logged_less_and_less_often():
    clock = Clock()
    log = FadingLog(clock)
    lines = []
    for second in range(2000):
        clock.now = 100.0 + second
        if log.due(f'no image on /image for {second:.0f} s: nobody publishes it'):
            lines.append(second)
    assert lines == [0, 10, 70, 670, 1270, 1870]
    clock.now += 4.0
    assert log.lasts('no image on /image for 9 s: nobody publishes it')
    clock.now += 2.0
    assert not log.lasts('no image on /image for 9 s: nobody publishes it')
    assert log.due('no image on /image for 3 s: nobody publishes it'), 'it is a new one'


def test_warnings_that_differ_in_bytes_are_one():
    clock = Clock()
    log = FadingLog(clock)
    lines = 0
    for second in range(60):
        clock.now = 100.0 + second
        lines += log.due(f'300 bytes starting {bytes([second * 37 % 256, second * 91 % 256]).hex(" ")}: it cannot be decoded')
    assert lines == 2


def test_warnings_that_alternate_are_logged_in_turns_and_not_each_time():
    clock = Clock()
    log = FadingLog(clock)
    lines = []
    for second in range(100):
        clock.now = 100.0 + second
        if log.due(warning := 'ab'[second % 2]):
            lines.append((second, warning))
    assert lines == [(0, 'a'), (5, 'b'), (10, 'a'), (15, 'b'), (70, 'a'), (75, 'b')]


def test_each_warning_fades_separately_and_restarts_if_time_goes_back():
    clock = Clock()
    log = FadingLog(clock, pause_s=0.0)
    lines = []
    for step in range(300):
        clock.now = 100.0 + (step if step < 150 else step - 150) * 0.1  # the clock of a recording that begins again
        if log.due(warning := 'ab'[step % 2]):
            lines.append((step, warning))
    assert lines == [(0, 'a'), (1, 'b'), (100, 'a'), (101, 'b'), (150, 'a'), (151, 'b'), (250, 'a'), (251, 'b')]


def test_the_last_error_has_its_age():
    clock = Clock()
    statistics = FrameStatistics(clock)
    assert statistics.dated_error == ''
    statistics.failed('a bad frame')
    assert statistics.dated_error == '0 s ago: a bad frame'
    clock.now += 7200.0
    assert statistics.dated_error == '2 h ago: a bad frame'


@pytest.mark.parametrize(('seconds', 'words'), [
    (12.4, '12 s'), (119.0, '119 s'), (300.0, '5 min'), (86400.0, '24 h'), (200000.0, '2 days')])
def test_spans_of_time_for_people(seconds, words):
    assert in_time(seconds) == words
