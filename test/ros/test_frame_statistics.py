"""What the node reports of itself over time: rates, ages, and how often a warning is logged."""

from __future__ import annotations

from collections.abc import Iterable

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
    assert statistics.report()['fps in'] == '0.00', 'that pause is no rate'


@pytest.mark.parametrize(('pause_s', 'fps'), [(30.0, 10.0), (6.0, 10.0), (1.0, 9.0)])
def test_rates_after_a_pause_do_not_count_it(pause_s, fps):
    clock = Clock()
    statistics = FrameStatistics(clock)
    begins = round(10 * (12.0 + pause_s))  # tenths of a second
    for tenth in range(begins + 56):
        clock.now = 100.0 + 0.1 * tenth
        if tenth < 120 or tenth >= begins:
            statistics.arrived()
            statistics.finished({}, 1)
        if tenth % 10 == 5:  # once a second, also in the pause
            figures = statistics.report()
    assert float(figures['fps in']) == pytest.approx(fps, abs=0.2)
    assert float(figures['fps out']) == pytest.approx(fps, abs=0.2)


def test_a_slow_camera_keeps_its_rate():
    clock = Clock()
    statistics = FrameStatistics(clock)
    for second in range(1, 60):
        clock.now = 100.0 + second
        if second % 4 == 0:
            statistics.arrived()
        figures = statistics.report()
    assert float(figures['fps in']) == pytest.approx(0.25, abs=0.06)


def logged(log: FadingLog, clock: Clock, warnings: Iterable[tuple[float, str]]) -> list[int]:
    """Numbers of the warnings, each with its second, that are logged."""
    lines = []
    for number, (second, warning) in enumerate(warnings):
        clock.now = 100.0 + second
        if log.due(warning):
            lines.append(number)
    return lines


def test_a_warning_that_lasts_is_logged_less_and_less_often():
    clock = Clock()
    log = FadingLog(clock)
    warnings = ((second, f'no image on /image for {second:.0f} s: nobody publishes it') for second in range(2000))
    assert logged(log, clock, warnings) == [0, 10, 70, 670, 1270, 1870]
    clock.now += 6.0
    assert log.due('no image on /image for 3 s: nobody publishes it'), 'it is a new one'


def test_warnings_that_differ_in_bytes_are_one():
    clock = Clock()
    warnings = ((second, f'300 bytes starting {bytes([second * 37 % 256, second * 91 % 256]).hex(" ")}: it cannot be decoded')
                for second in range(60))
    assert len(logged(FadingLog(clock), clock, warnings)) == 2


def test_warnings_that_alternate_are_logged_in_turns_and_not_each_time():
    clock = Clock()
    warnings = ((second, 'ab'[second % 2]) for second in range(100))
    assert logged(FadingLog(clock), clock, warnings) == [0, 5, 10, 15, 70, 75], 'of an even number a, of an odd one b'


@pytest.mark.parametrize('apart', [6, 30, 590])
def test_a_warning_that_comes_again_and_again_fades_as_well(apart):
    """A frame that a loose cable damages, or a recording in a loop."""
    clock = Clock()
    log = FadingLog(clock)
    warnings = [(second, 'frame dropped: the JPEG is cut off') for second in range(0, 86_400, apart)]
    assert len(logged(log, clock, warnings)) <= 3 + 86_400 // 600
    clock.now += 601.0
    assert log.due('frame dropped: the JPEG is cut off'), 'it had ended long ago'
    clock.now += 12.0
    assert log.due('frame dropped: the JPEG is cut off'), 'and is new'


def test_each_warning_fades_separately_and_restarts_if_time_goes_back():
    clock = Clock()
    warnings = ((step % 150 * 0.1, 'ab'[step % 2]) for step in range(300))  # the clock of a recording that begins again
    assert logged(FadingLog(clock, pause_s=0.0), clock, warnings) == [0, 1, 100, 101, 150, 151, 250, 251]


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
