"""Left and right images in pairs: by their stamps, in time, each once, and in words where that fails."""

from __future__ import annotations

import threading
import time

import pytest

from lightglue_trt_ros.ros.matcher.pairing import PARTNERS, SILENT, Pairing

pytestmark = pytest.mark.stereo
PERIOD = 0.1


class Timeline:
    """A pairing whose clock is set, and both cameras."""

    def __init__(self, max_skew_s: float = 0.005) -> None:
        self.now = 50.0
        self.pairing: Pairing[float] = Pairing(max_skew_s, clock=lambda: self.now)

    def play(self, *arrivals: tuple[float, str, float]) -> None:
        """Arrivals (when, 'left' or 'right', stamp) in order; items are stamps. A left one is taken when the next comes."""
        waiting: float | None = None
        self.taken: list[float | None] = []
        for when, side, stamp in sorted(arrivals):
            self.now = when
            if side == 'right':
                self.pairing.partner_came(stamp, stamp)
                continue
            self.pairing.frame_came(stamp)
            if waiting is not None:
                self.taken.append(self.pairing.take(waiting))
            waiting = stamp


def both(count: int, *, skew: float = 0.0, delay: float = 0.001, drop=lambda number: False) -> list[tuple[float, str, float]]:
    """Stamps of the right camera are `skew` ahead, and it comes `delay` later."""
    lefts = [(50 + number * PERIOD, 'left', number * PERIOD) for number in range(count)]
    return lefts + [(when + delay, 'right', stamp + skew) for number, (when, _, stamp) in enumerate(lefts) if not drop(number)]


def test_images_of_one_stamp_are_a_pair():
    line = Timeline()
    line.play(*both(30))
    assert line.taken == pytest.approx([number * PERIOD for number in range(29)])
    pairing = line.pairing
    assert (pairing.missing, pairing.late, pairing.problem) == (0, 0, '')
    assert pairing.skew_s == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize('skew', [0.004, -0.004])
def test_a_small_skew_is_allowed_and_told(skew):
    line = Timeline()
    line.play(*both(30, skew=skew))
    assert None not in line.taken
    assert line.pairing.skew_s == pytest.approx(skew)


@pytest.mark.parametrize('skew', [0.02, -0.02, 0.4, 0.43, 1e5, -1e5])
@pytest.mark.parametrize('delay', [0.001, -0.001])
def test_clocks_that_differ_are_told_by_how_much(skew, delay):
    line = Timeline()
    line.play(*both(40, skew=skew, delay=delay))
    if skew == 0.4:  # four periods: images of equal stamps are there, taken at other times, and only their arrival tells
        assert line.pairing.skew_s == pytest.approx(skew)
        return
    assert not any(line.taken)
    assert f'{skew:+.3f} s apart, max_stereo_skew_s is 0.005' in line.pairing.problem


def test_missing_images_cost_their_pairs_alone():
    line = Timeline()
    line.play(*both(30, drop=lambda number: number % 3 == 1))
    assert [found is None for found in line.taken] == [number % 3 == 1 for number in range(29)]
    assert line.pairing.problem == '', 'most are there'
    line = Timeline()
    line.play(*both(30, drop=lambda number: number % 4))
    assert line.pairing.missing == 21


def test_late_images_are_counted_and_told_by_how_much():
    line = Timeline()
    line.play(*both(40, delay=0.25))
    assert not any(line.taken)
    assert line.pairing.late == 39
    assert 'right images come 0.250 s after the left images of their stamps' in line.pairing.problem


def test_a_silent_camera_is_told_and_not_waited_for():
    line = Timeline()
    line.play(*both(20, drop=lambda number: number > 3))
    assert 'no right image came with the last 16 left images' in line.pairing.problem
    pairing: Pairing[int] = Pairing(0.005, max_wait_s=0.05)
    for number in range(SILENT + 1):
        pairing.frame_came(float(number))
        began = time.monotonic()
        assert pairing.take(float(number)) is None
        assert (time.monotonic() - began < 0.02) == (number == SILENT)


def test_waits_for_first_right_image_after_many_unpaired_frames():
    """The node finds the topics of a camera that runs already one after the other."""
    pairing: Pairing[str] = Pairing(0.005, max_wait_s=0.5)
    for number in range(20):
        pairing.frame_came(number * 0.033)
    threading.Timer(0.02, pairing.partner_came, (19 * 0.033, 'right')).start()
    assert pairing.take(19 * 0.033) == 'right'


def test_one_camera_twice_as_fast():
    fast = Timeline()
    fast.play(*both(20), *[(when + PERIOD / 2, side, stamp + PERIOD / 2) for when, side, stamp in both(20) if side == 'right'])
    assert fast.taken == pytest.approx([number * PERIOD for number in range(19)])
    slow = Timeline()
    slow.play(*both(20, drop=lambda number: number % 2 == 1))
    assert slow.pairing.missing == 9
    near = Timeline(max_skew_s=0.06)  # each right image suits two left ones
    near.play(*both(20, drop=lambda number: number % 2 == 1))
    right = [found for found in near.taken if found is not None]
    assert len(right) == len(set(right)), 'no image is in two pairs'


def test_the_nearest_of_several_is_taken():
    line = Timeline(max_skew_s=0.06)
    line.play(*both(10), *[(when - PERIOD / 2, side, stamp - PERIOD / 2) for when, side, stamp in both(10) if side == 'right'])
    assert line.taken == pytest.approx([number * PERIOD for number in range(9)])


def test_no_more_than_a_few_right_images_wait():
    """Of a clock that is ahead, of one that is behind, and without any left image."""
    for offset in (10_000, -10_000, None):
        pairing: Pairing[bytes] = Pairing(0.005)
        for number in range(2000):
            if offset is not None:
                pairing.frame_came(number * PERIOD)
                assert pairing.take((number - 1) * PERIOD) is None
            pairing.partner_came(number * PERIOD + (offset or 0), bytes(1))
            assert len(pairing._partners) <= PARTNERS
        assert all(len(held) <= 64 for held in vars(pairing).values() if hasattr(held, 'maxlen'))


def test_waits_for_partner_beyond_next_frame_but_not_past_max_wait():
    pairing: Pairing[str] = Pairing(0.005, max_wait_s=0.05)
    pairing.frame_came(1.0)
    threading.Timer(0.01, pairing.partner_came, (1.001, 'right')).start()
    assert pairing.take(1.0) == 'right'
    pairing.frame_came(2.0)
    threading.Timer(0.01, pairing.frame_came, (3.0,)).start()
    threading.Timer(0.02, pairing.partner_came, (2.0, 'second')).start()
    assert pairing.take(2.0) == 'second'
    pairing.frame_came(4.0)
    began = time.monotonic()
    assert pairing.take(4.0) is None
    assert 0.03 < time.monotonic() - began < 0.2
    pairing.frame_came(5.0)
    time.sleep(0.06)
    began = time.monotonic()
    assert pairing.take(5.0) is None, 'it waited since it came'
    assert time.monotonic() - began < 0.03


@pytest.mark.parametrize('rate', [1, 3, 30])
def test_frame_keeps_its_partner_while_many_later_images_arrive(rate):
    """One frame is processed while 40 others come, and another waits in the slot meanwhile."""
    pairing: Pairing[tuple[float, bytes]] = Pairing(0.02)

    def come(number: int) -> None:
        pairing.frame_came(number * PERIOD)
        for step in range(rate):
            stamp = (number + step / rate) * PERIOD
            pairing.partner_came(stamp, (stamp, bytes(100)))
            assert len(pairing._partners) <= 2 * PARTNERS

    for number in range(0, 200, 40):
        come(number)
        pairing.claim(number * PERIOD)
        for later in range(number + 1, number + 40):
            come(later)
        assert pairing.take(number * PERIOD)[0] == number * PERIOD
    assert pairing.missing == 0
    pairing.frame_came(200 * PERIOD)
    for step in range(500):
        pairing.partner_came((200 + step / rate) * PERIOD, ((200 + step / rate) * PERIOD, b''))
    pairing.claim(200 * PERIOD)
    assert pairing.take(200 * PERIOD)[0] == 200 * PERIOD, 'it waited in the slot while 500 came'


def live(pairing: Pairing[float], arrivals: list[tuple[float, str, float]],
         work_s: float) -> tuple[list[bool], list[float], list[float]]:
    """Arrivals in real time beside a pipeline that takes the newest frame.

    For each frame: whether it is paired, seconds of waiting, seconds from its arrival to the end.
    """
    change, newest, paired, held, latency = threading.Condition(), [], [], [], []

    def pipeline() -> None:
        while True:
            with change:
                change.wait_for(lambda: newest)
                stamp, came = newest.pop()
            if stamp is None:
                return
            pairing.claim(stamp)
            time.sleep(work_s)
            began = time.monotonic()
            paired.append(pairing.take(stamp) is not None)
            held.append(time.monotonic() - began)
            latency.append(time.monotonic() - came)

    thread = threading.Thread(target=pipeline)
    thread.start()
    start = time.monotonic()
    for when, side, stamp in [*sorted(arrivals), (max(arrivals)[0] + 0.2, 'left', None)]:
        time.sleep(max(0.0, start + when - time.monotonic()))
        if side == 'right':
            pairing.partner_came(stamp, stamp)
            continue
        if stamp is not None:
            pairing.frame_came(stamp)
        with change:
            newest[:] = [(stamp, time.monotonic())]
            change.notify()
    thread.join()
    return paired, held, latency


@pytest.mark.slow
@pytest.mark.parametrize(('rate', 'delay'), [(30, 0.155), (60, 0.09)])
def test_partners_many_periods_late_are_awaited_within_max_wait_s(rate, delay):
    """The newest image is more than five periods older than the frame; a frame that took no wait would never get one."""
    pairing: Pairing[float] = Pairing(0.02, max_wait_s=0.5)
    paired, _, latency = live(pairing, cameras(rate, rate, delay, 2.0), 0.003)
    assert all(paired[8:]), 'the first ones come before any image'
    assert len(paired) >= 12
    assert max(latency) < 0.5
    assert pairing.problem == ''


def cameras(rate: float, other: float, delay: float, seconds: float = 1.0) -> list[tuple[float, str, float]]:
    """Left images of a rate, and right ones of another, which come `delay` later than they were taken."""
    return ([(number / rate, 'left', number / rate) for number in range(int(seconds * rate))]
            + [(number / other + delay, 'right', number / other) for number in range(int(seconds * other))])


@pytest.mark.slow
@pytest.mark.parametrize('factor', [1 / 3, 0.5, 2, 3])
def test_a_camera_of_another_rate_holds_nobody_up(factor):
    pairing: Pairing[float] = Pairing(0.02)
    paired, held, latency = live(pairing, cameras(30, 30 * factor, 0.004), 0.001)
    assert sum(paired) >= 0.9 * 30 * min(factor, 1)
    assert sorted(held)[int(0.85 * len(held))] < 0.015, 'no wait for an image of which none is taken'
    assert len(latency) >= 28


@pytest.mark.slow
def test_of_a_faster_camera_the_image_of_the_same_moment_is_awaited():
    """The one of half a period before is there, within reach."""
    pairing: Pairing[float] = Pairing(0.02)
    taken = []
    for number in range(12):
        pairing.partner_came((2 * number - 1) / 60, (2 * number - 1) / 60)
        pairing.frame_came(number / 30)
        threading.Timer(0.01, pairing.partner_came, (number / 30, number / 30)).start()
        taken.append(pairing.take(number / 30) == number / 30)
        time.sleep(0.02)
    assert all(taken[2:])


@pytest.mark.slow
@pytest.mark.parametrize(('rate', 'delay'), [(5, 0.08), (10, 0.08), (10, 0.04), (30, 0.04)])
def test_late_images_are_awaited_also_while_the_next_frame_waits(rate, delay):
    seconds = max(1.0, 8 / rate)
    pairing: Pairing[float] = Pairing(0.02, max_wait_s=0.1)
    paired, _, latency = live(pairing, cameras(rate, rate, delay, seconds), 0.003)
    assert sum(paired) >= len(paired) - 1
    assert len(paired) >= rate * seconds - 2, 'no frame is lost'
    assert max(latency) < 0.2
    pairing = Pairing(0.02, max_wait_s=0.02)
    paired, held, _ = live(pairing, cameras(rate, rate, delay, seconds), 0.003)
    assert sum(paired) <= 2, 'only a machine under load holds a frame back for so long'
    assert sorted(held)[len(held) // 2] < 0.01, 'images that always come too late are not waited for'
    if rate > 5:
        assert 'max_wait_s is 0.02' in pairing.problem


def test_a_right_image_in_the_middle_of_two_left_ones_serves_one():
    pairing: Pairing[str] = Pairing(0.1)
    pairing.frame_came(0.0)
    pairing.partner_came(0.0625, 'right')
    pairing.frame_came(0.125)
    assert [pairing.take(0.0), pairing.take(0.125)] == ['right', None]
    assert pairing.missing == 1


@pytest.mark.slow
def test_an_extra_right_image_between_two_does_not_end_the_wait():
    """The frame comes before the extra image and its own, as over topics that overtake one another."""
    pairing: Pairing[float] = Pairing(0.005, max_wait_s=5.0)
    extra = [(7 * PERIOD + 0.01, 'right', 6.5 * PERIOD), (7 * PERIOD + 0.03, 'right', 7 * PERIOD)]
    arrivals = [arrival for arrival in both(12, delay=-0.01) if arrival[1:] != ('right', 7 * PERIOD)]
    paired, held, _ = live(pairing, [(when - 50, side, stamp) for when, side, stamp in arrivals] + extra, 0.001)
    assert all(paired)
    assert max(held) < 2.5


@pytest.mark.parametrize('max_skew', [0.06, 0.1, 0.12, 0.5])
def test_a_lost_image_costs_its_pair_alone_however_large_a_skew_is_allowed(max_skew):
    line = Timeline(max_skew)
    line.play(*both(30, drop=lambda number: number == 9))
    assert [number for number, found in enumerate(line.taken) if found is None] == [9]
    assert line.pairing.late == 0


def test_large_allowed_skew_still_waits_for_the_exact_partner():
    pairing: Pairing[float] = Pairing(0.5)
    for number in range(5):  # of which the pipeline takes the last one
        pairing.frame_came(number * PERIOD)
        if number < 4:
            pairing.partner_came(number * PERIOD, number * PERIOD)
    threading.Timer(0.01, pairing.partner_came, (4 * PERIOD, 4 * PERIOD)).start()
    assert pairing.take(4 * PERIOD) == 4 * PERIOD


def test_skew_above_half_the_image_period_is_reported_as_that():
    line = Timeline(0.5)
    line.play(*both(30, skew=1000.07))
    assert '+1000.070 s apart, half the time between images is 0.050 s: trigger both cameras' in line.pairing.problem
    assert 'raise' not in line.pairing.problem


def changing(*phases: tuple[int, float, float]) -> list[tuple[float, str, float]]:
    """Arrivals of so many frames, whose right stamps are ahead and which come later by so many seconds, after each other."""
    arrivals, before = [], 0.0
    for number, (skew, delay) in enumerate((skew, delay) for count, skew, delay in phases for _ in range(count)):
        stamp = number * PERIOD
        before = max(before + 1e-6, 50 + stamp + delay)  # none overtakes another
        arrivals += [(50 + stamp, 'left', stamp), (before, 'right', stamp + skew)]
    return arrivals


GOOD, SKEWED, LATE = (0.0, 0.001), (0.02, 0.001), (0.0, 0.2)


@pytest.mark.parametrize(('phases', 'words'), [
    ([(8, *SKEWED), (8, 0.0, 0.03)], ''),
    ([(8, *SKEWED), (8, 0.0, 0.03), (8, *LATE)], 'right images come 0.200 s after'),
    ([(13, *LATE), (26, *GOOD)], ''),
    ([(13, *LATE), (26, *GOOD), (8, *SKEWED)], '+0.020 s apart'),
    ([(40, *SKEWED), (12, *LATE)], 'right images come 0.200 s after'),
    ([(40, *LATE), (12, *SKEWED)], '+0.020 s apart')], ids=str)
def test_each_cause_is_judged_by_the_last_frames(phases, words):
    line = Timeline()
    line.play(*changing(*phases))
    assert words in line.pairing.problem
    assert bool(words) == bool(line.pairing.problem)


def test_images_that_never_come_are_no_matter_of_clocks():
    line = Timeline()
    line.play(*both(30, drop=lambda number: number % 4))
    assert line.pairing.problem.startswith('7 of the last 10 left images have no right image')


def test_time_that_starts_again_finds_pairs_again():
    line = Timeline()
    line.play(*both(10))
    again = [(when + 10, side, stamp) for when, side, stamp in both(20)]
    line.play(*again)
    assert line.taken.count(None) <= 1


@pytest.mark.parametrize('first', ['left', 'right'])
def test_nothing_of_before_is_left_when_time_starts_again(first):
    """A simulator that starts anew while right images wait; and a recording in a loop, whose first pass lost an image."""
    pairing: Pairing[tuple[int, int]] = Pairing(0.005)
    for run, (lefts, rights) in enumerate([(range(6), range(10)), (range(10), range(10)), (range(10), range(10))]):
        found = []
        for number in range(10):
            come = [lambda number=number, lefts=lefts: pairing.frame_came(number * PERIOD) if number in lefts else None,
                    lambda number=number, run=run, rights=rights: pairing.partner_came(number * PERIOD, (run, number))
                    if number in rights and (run, number) != (0, 3) else None]
            for each in come if first == 'left' else come[::-1]:
                each()
            if number in lefts:
                found.append(pairing.take(number * PERIOD))
        assert found == [None if (run, number) == (0, 3) else (run, number) for number in lefts]


def test_stale_frame_taken_after_time_reset_does_not_block_its_stamp():
    pairing: Pairing[str] = Pairing(0.005)
    pairing.frame_came(5.0)
    pairing.frame_came(1.0)
    assert pairing.take(5.0) is None
    pairing.frame_came(5.0)
    pairing.partner_came(5.0, 'right')
    assert pairing.take(5.0) == 'right'


def test_one_frame_makes_one_image_late():
    """A camera of twice the rate: the second image near a frame that went without one may be the next frame's."""
    line = Timeline(max_skew_s=0.02)
    line.play(*((50 + number * PERIOD, 'left', number * PERIOD) for number in range(4)))
    assert line.taken == [None, None, None]
    for stamp in (0.2, 0.21):
        line.now += 0.001
        line.pairing.partner_came(stamp, stamp)
    assert line.pairing.late == 1
