"""The stages' decisions without a GPU: what is launched, and where it ends, for every order of easy and hard pairs."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.emulated_device import EmulatedGpu

from lightglue_trt_ros.backends.cuda import Cuda
from lightglue_trt_ros.backends.tensorrt_engines import BEFORE, StagedMatcher
from lightglue_trt_ros.core.early_exit import ALL_LAYERS, EarlyExits
from lightglue_trt_ros.core.types import Thresholds

EARLY_EXITS = EarlyExits((4, 5, 6, 9))
ENGINE = SimpleNamespace(tensor=lambda name: ((2, 8, 64), np.float32), has=lambda name: False)  # it gives matches itself


class FakeCuda:
    """Buffers without a device: the staged matcher's launches are the test's."""

    stream = 0

    def device(self, shape, dtype):
        return SimpleNamespace(shape=shape, dtype=dtype)

    def staged(self, shape, dtype):
        return SimpleNamespace(array=np.zeros(shape, dtype))

    def synchronize(self):
        """Nothing runs."""

    def send(self, staged):
        """Nowhere to."""

    def load_kernels(self, name):
        """Nothing runs."""


class Pairs:
    """Launches on a pair whose stages have these confident shares; records them."""

    def __init__(self, early_exits: EarlyExits = EARLY_EXITS) -> None:
        self.matcher = StagedMatcher(FakeCuda(), 8, early_exits, dict.fromkeys(early_exits.graphs(), ENGINE))
        self.launches: list[tuple[int, int]] = []
        self.assigned = -1

    def match(self, shares, depth_confidence, camera=0, at_zero=False):
        self.launches.clear()

        def launch(first: int, last: int) -> None:
            self.launches.append((first, last))
            assert first <= last + 1
            for stage in range(first, min(last + 1, len(shares))):
                self.matcher._confidences[stage].array[:] = shares[stage], 0.0 if np.isfinite(shares[stage]) else np.nan
            self.assigned = last
        return self.matcher.run(launch, Thresholds(depth_confidence=depth_confidence, at_zero=at_zero), camera)


share = st.floats(0, 1) | st.just(float('nan'))


@given(st.lists(st.tuples(st.tuples(share, share, share), st.sampled_from([0.5, 0.95, ALL_LAYERS])), min_size=1, max_size=8))
def test_it_ends_at_the_first_exit_whatever_was_before(pairs):
    run = Pairs()
    for shares, confidence in pairs:
        layers, finite = run.match(shares, confidence)
        exits = zip(EARLY_EXITS.ends, shares, strict=False)
        first = next((end for end, value in exits if confidence >= 0 and value > confidence), 9)
        assert layers == first
        assert EARLY_EXITS.ends[run.assigned] == first, 'the last assignment is the one of the exit'
        ran = max(last for _, last in run.launches)
        assert finite == bool(np.isfinite(shares[:ran + 1]).all())


def test_a_pair_like_the_one_before_takes_one_launch():
    run = Pairs()
    for shares, layers in (((0.99, 1, 1), 4), ((0.1, 0.99, 1), 5), ((0.1, 0.2, 0.3), 9)):
        run.match(shares, 0.95)
        assert run.match(shares, 0.95) == (layers, True)
        assert run.launches == [(0, EARLY_EXITS.ends.index(layers))]


def test_hard_pair_adds_stages_and_easy_pair_returns_to_earlier_exit():
    run = Pairs()
    run.match((0.99, 1, 1), 0.95)
    assert run.match((0.1, 0.1, 0.99), 0.95) == (6, True)
    assert run.launches == [(0, 0), (1, 1), (2, 2)]
    assert run.match((0.99, 1, 1), 0.95) == (4, True)
    assert run.launches == [(0, 2), (1, 0)]


def test_all_layers_in_one_launch_leave_the_guess_alone():
    run = Pairs()
    run.match((0.99, 1, 1), 0.95)
    assert run.match((0.99, 1, 1), ALL_LAYERS) == (9, True)
    assert run.launches == [(0, 3)]
    run.match((0.99, 1, 1), 0.95)
    assert run.launches == [(0, 0)]


def test_every_exit_is_reached_in_turn_and_the_guess_stays():
    run = Pairs()
    run.match((0.1, 0.99, 1), 0.95)
    shares = 1.0, float('nan'), 1.0
    run.launches.clear()

    def launch(first: int, last: int) -> None:
        run.launches.append((first, last))
        for stage in range(first, min(last + 1, 3)):
            run.matcher._confidences[stage].array[:] = shares[stage], shares[stage]
    found = list(run.matcher.run_exits(launch))
    assert run.launches == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert set(run.launches) <= set(run.matcher.spans())
    assert [(layers, finite) for layers, finite, _ in found] == [(4, True), (5, False), (6, False), (9, False)]
    np.testing.assert_array_equal([confident for *_, confident in found], [*shares, float('nan')])
    assert run.match((0.1, 0.99, 1), 0.95) == (5, True)
    assert run.launches == [(0, 1)]


def test_exit_before_first_layer_is_one_launch_and_keeps_prediction():
    run = Pairs(EarlyExits((0, 4, 5, 6, 9)))
    assert run.match((0.1, 0.99, 1), 0.95) == (5, True)
    assert run.match((0.1, 0.99, 1), 0.95, at_zero=True) == (0, True)
    assert run.launches == [(0, BEFORE)]
    assert set(run.launches) <= set(run.matcher.spans())
    assert run.match((0.1, 0.99, 1), 0.95) == (5, True)
    assert run.launches == [(0, 1)]
    reached = run.matcher.run_exits(lambda first, last: run.launches.append((first, last)))
    assert [layers for layers, *_ in reached] == [0, 4, 5, 6, 9]
    assert run.launches[1:] == [(0, BEFORE), (0, 0), (1, 1), (2, 2), (3, 3)]


def test_every_launch_is_one_that_was_warmed_up():
    run = Pairs()
    spans = set(run.matcher.spans())
    for guess in range(4):
        for exit_at in range(4):
            for stage in (guess, exit_at):
                run.match([1.0 if number >= stage else 0.0 for number in range(3)], 0.95)
                assert set(run.launches) <= spans


@pytest.mark.parametrize('confidence', [0.5, ALL_LAYERS])
def test_one_stage_is_one_launch(confidence):
    run = Pairs(EarlyExits((9,)))
    assert run.match((), confidence) == (9, True)
    assert run.launches == [(0, 0)]


def test_an_easy_camera_and_a_hard_one_in_turn_take_one_launch_each():
    run, cameras = Pairs(), (((0.99, 1, 1), 4), ((0.1, 0.2, 0.3), 9))
    for number in range(6):
        for camera, (shares, layers) in enumerate(cameras):
            assert run.match(shares, 0.95, camera) == (layers, True)
            assert number == 0 or run.launches == [(0, EARLY_EXITS.ends.index(layers))]


def test_thresholds_that_follow_each_other_at_once_are_each_sent():
    with EmulatedGpu().installed() as gpu:
        device = Cuda()
        matcher = StagedMatcher(device, 8, EARLY_EXITS, dict.fromkeys(EARLY_EXITS.graphs(), ENGINE))
        for match, at_zero in ((0.1, False), (0.2, False), (0.3, True)):
            matcher.set_thresholds(Thresholds(match=match, detection=0.01, at_zero=at_zero))
        device.synchronize()
        for at_zero, match in ((False, 0.2), (True, 0.3)):
            for name, value in (('match_threshold', match), ('detection_threshold', 0.01)):
                assert gpu.at(matcher._scalars[at_zero][name].address)[:4].view(np.float32) == pytest.approx(value)
        del matcher
        device.close()
