"""How an FP8 calibration is made and judged: the split, the bases, the statistics, the gate, the search, and where it is kept."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.networks import LAYERS, ours, photo, shallow

from lightglue_trt_eval.predict.scene import Scene, Timeline
from lightglue_trt_eval.quantization import measurement
from lightglue_trt_eval.quantization.measurement import (
    HEADROOM,
    Moments,
    Reader,
    balanced,
    bounded,
    hartley,
    noise,
    observations,
    rounded_weights,
    shared,
)
from lightglue_trt_eval.quantization.quality import (
    AcceptanceCheck,
    HeldOutSet,
    Score,
    Trial,
    answers,
    chance,
    check_motion,
    choose_held_out,
    geometry,
    open_matcher,
    score,
)
from lightglue_trt_eval.quantization.samples import (
    GAP,
    RUN,
    FramePair,
    RecordingSample,
    Split,
    even_runs,
    mixed,
    quotas,
    some,
    split,
)
from lightglue_trt_eval.quantization.search import Search, draw_frontier, flops, frontier, groups, plain_trials, share
from lightglue_trt_eval.quantization.workflow import verdicts
from lightglue_trt_ros.backends.onnxruntime import OnnxRuntimeBackend
from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.core.config import EngineSpec
from lightglue_trt_ros.core.types import HostFeatures, Matches, Thresholds
from lightglue_trt_ros.networks import e4m3
from lightglue_trt_ros.networks.fp8_calibration import Calibration, RoundedWeights, linear_members, member
from lightglue_trt_ros.networks.lightglue import lightglue
from lightglue_trt_ros.networks.weight_folding import fold
from lightglue_trt_ros.utils.errors import BagError, EngineError

pytestmark = pytest.mark.float8

SPEC = EngineSpec(160, 208, 128)
FP8 = frozenset(linear_members(LAYERS))


@cache
def sample(number: int = 10) -> RecordingSample:
    """Frames of a photograph that goes by, the last four held out, with SuperPoint's features of the whole of it."""
    from support.networks import extract, session

    from lightglue_trt_ros.networks.superpoint import superpoint
    run = session(superpoint(SPEC, ours().extractor))
    scene = photo('coffee', 2 * SPEC.image_height, 2 * SPEC.image_width)
    features = {}
    for place in range(number):
        shift = np.float32([[1, 0.01 * place, -20 - 6 * place], [0, 1, -30 - 2 * place]])
        features[place] = extract(run, cv2.warpAffine(scene, shift, (SPEC.image_width, SPEC.image_height)))
    return made(features, Split((range(number - 4),), (range(number - 4, number),)))


def made(features: dict[int, HostFeatures], parts: Split, scene: Scene | None = None) -> RecordingSample:
    count = max(features) + 1
    timeline = Timeline(np.arange(count), np.arange(count) * 10**8, np.zeros(count, np.int64), 1.0)
    sizes = dict.fromkeys(features, (SPEC.image_height, SPEC.image_width))
    return RecordingSample(Path('seen'), scene or Scene(timeline), parts, 'sha', {}, sizes, dict(features))


def pairs(*places: tuple[int, int]) -> list[FramePair]:
    return [FramePair(sample(), *each) for each in places]


def provenance() -> dict[str, object]:
    return {'weights_sha256': shallow().sha256, 'image_height': SPEC.image_height, 'image_width': SPEC.image_width,
            'max_keypoints': SPEC.max_keypoints}


@cache
def calibrated() -> Calibration:
    return measurement.calibrate(SPEC, shallow(), pairs((0, 1), (1, 3), (0, 4), (4, 5)), provenance())


@pytest.fixture(autouse=True, scope='module')
def quick() -> Iterator[None]:
    """A short descent: the bases are good enough for what is asked here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measurement, 'shared', partial(shared, steps=10))
        yield


# the split

@given(length=st.integers(10, 3000), frames=st.integers(10, 400))
def test_what_is_held_out_comes_last_behind_a_gap(length: int, frames: int):
    parts = split(length, min(frames, length))
    seen, held_out = ({place for run in runs for place in run} for runs in (parts.calibration, parts.held_out))
    assert seen
    assert held_out
    assert max(seen) + 1 < min(held_out), 'no frame is next to the other part'
    assert min(held_out) - max(seen) > min(4, GAP * length / 2) or length < 40
    assert min(held_out) == length - max(4, round(length / 4))
    assert len(seen) + len(held_out) <= max(min(frames, length), 10) + 1
    assert 4 <= len(held_out) <= max(4, len(seen) + 2)


def test_a_short_recording_is_used_as_a_whole():
    parts = split(51, 51)
    assert parts.calibration == (range(0, 34),)
    assert parts.held_out == (range(38, 51),)
    assert 'calibration on 34 frames (0 to 33), held out 13 frames (38 to 50)' in str(parts)
    assert split(20, 20, 0).held_out == ()
    assert split(20, 20, 1).calibration == ()
    with pytest.raises(BagError, match='8 frames are too few'):
        split(8, 8)


@given(start=st.integers(0, 50), length=st.integers(1, 3000), count=st.integers(4, 300))
def test_frames_are_spread_in_runs(start: int, length: int, count: int):
    places = range(start, start + length)
    runs = even_runs(places, count)
    chosen = [place for run in runs for place in run]
    assert chosen == sorted(set(chosen))
    assert set(chosen) <= set(places)
    assert len(chosen) == min(count, length)
    if length > 2 * count and len(runs) > 1:
        assert runs[0].start == start
        assert runs[-1].stop == start + length
        assert all(len(run) >= min(count, RUN // 2) for run in runs)


@given(lengths=st.lists(st.integers(1, 500), min_size=1, max_size=5), frames=st.integers(5, 400))
def test_recordings_give_equal_parts_and_short_ones_all(lengths: list[int], frames: int):
    given_ = quotas(lengths, frames)
    assert sum(given_) == min(frames, sum(lengths))
    assert all(part <= length for part, length in zip(given_, lengths, strict=True))
    assert all(part == length or part >= max(given_) - 1 for part, length in zip(given_, lengths, strict=True))


def test_pairs_stay_in_their_run_their_segment_and_among_usable_frames():
    recording = made(dict.fromkeys(range(10)), Split((range(0, 6), range(7, 10)), ()))
    recording.scene.timeline.segments = np.array([0, 0, 0, 0, 1, 1, 1, 1, 1, 1])
    assert recording.pairs(2, False) == [FramePair(recording, *places) for places in ((0, 2), (1, 3), (7, 9))]
    for place in (1, 4, 5, 6, 8):
        del recording.features[place]
    assert recording.pairs(2, False) == [FramePair(recording, *places) for places in ((0, 2), (7, 9))]
    pairs = [FramePair(recording, place, place + 1) for place in range(10)]
    assert [pair.first for pair in some(pairs, 3)] == [0, 4, 9]
    assert [pair.stride for pair in mixed([pairs, [FramePair(recording, 0, 4)], []], 5)] == [1, 1, 1, 1, 4]


# the bases

def readers(size: int = 8, count: int = 3) -> list[Reader]:
    rng = np.random.default_rng(3)
    found = []
    for _ in range(count):
        a, b = rng.normal(size=(size, size)) * 2.0 ** rng.integers(-3, 3, size), rng.normal(size=(size, size))
        found.append(Reader(a.T @ a / size, b.T @ b / size))
    return found


@pytest.mark.parametrize('leading', [0, 3])
def test_the_gradient_is_the_slope_of_the_noise(leading: int):
    from lightglue_trt_eval.quantization.measurement import _slope
    found, basis = readers(), np.eye(8) + 0.1 * np.random.default_rng(0).normal(size=(8, 8))
    covariances, gramians = (np.hstack([getattr(each, name) for each in found]) for name in ('covariance', 'gramian'))
    slope, value = _slope(basis, covariances, gramians, leading)
    assert value == pytest.approx(noise(basis, found, leading))
    for place in ((0, 0), (2, 5), (7, 1)):
        step = np.zeros((8, 8))
        step[place] = 1e-6
        change = noise(basis + step, found, leading) - noise(basis - step, found, leading)
        assert change / 2e-6 == pytest.approx(slope[place], rel=1e-4)


def test_one_reader_is_balanced_and_many_share():
    one = readers(count=1)
    basis = balanced(one[0].covariance, one[0].gramian, ridge=1e-9)
    inverse = np.linalg.inv(basis)
    seen, read = basis @ one[0].covariance @ basis.T, inverse.T @ one[0].gramian @ inverse
    np.testing.assert_allclose(seen / np.trace(seen), read / np.trace(read), atol=1e-5)
    assert np.diag(seen).std() < 0.4 * np.linalg.eigvalsh(seen).std(), "Hartley's rotation levels them"
    assert np.trace(seen) == pytest.approx(np.trace(one[0].covariance))
    assert noise(basis, one) < 0.7 * noise(np.eye(8), one)
    many = readers()
    together = shared(many)
    assert noise(together, many) < 0.9 * noise(np.eye(8), many)
    assert noise(together, many) <= noise(shared(many, steps=0), many)
    np.testing.assert_array_equal(together, shared(many))


def test_the_costly_directions_come_first_where_they_are_compensated():
    one = readers(count=1)
    basis = balanced(one[0].covariance, one[0].gramian, 2, 1e-9)
    seen = basis @ one[0].covariance @ basis.T
    np.testing.assert_allclose(seen[:2, 2:], 0, atol=1e-5 * seen[0, 0])
    assert seen[0, 0] > seen[1, 1] > np.linalg.eigvalsh(seen[2:, 2:]).max()
    assert noise(basis, one, 2) < 0.5 * noise(balanced(one[0].covariance, one[0].gramian), one)
    many = readers()
    together = shared(many, 2)
    assert noise(together, many, 2) < min(noise(shared(many), many), noise(shared(many, 2, 0), many, 2), noise(np.eye(8), many, 2))


def test_a_basis_stays_well_conditioned():
    assert np.linalg.cond(bounded(np.diag([1e4, 1.0, 1e-5]), 16)) <= 16.01
    steady = np.diag([2.0, 1.0])
    assert bounded(steady) is steady
    never_seen = np.diag([1.0, 0, 0, 0])
    assert np.linalg.cond(balanced(never_seen, np.eye(4))) < 40
    for size in (1, 7, 56, 64, 224):
        np.testing.assert_allclose(hartley(size) @ hartley(size).T, np.eye(size), atol=1e-10)
        assert np.abs(hartley(size)).max() <= (2 / size) ** 0.5 + 1e-12


# the weights

def test_weights_make_up_for_each_others_errors():
    rng = np.random.default_rng(4)
    weight = rng.normal(size=(24, 32)).astype(np.float32) * np.float32(2.0) ** rng.integers(-4, 4, (24, 1))
    inputs = rng.normal(size=(4000, 6)) @ rng.normal(size=(6, 32)) + 0.1 * rng.normal(size=(4000, 32))
    found, nearest = rounded_weights(weight, np.cov(inputs.T)), RoundedWeights.nearest(weight)
    np.testing.assert_array_equal(found.scales, nearest.scales)
    error, plain = (np.mean((inputs @ (decoded(each) - weight).T) ** 2) for each in (found, nearest))
    assert error < 0.3 * plain
    again = rounded_weights(weight, np.cov(inputs.T))
    np.testing.assert_array_equal(again.codes, found.codes)
    independent = rounded_weights(weight, np.diag(rng.uniform(1, 2, 32)))
    np.testing.assert_array_equal(independent.codes, nearest.codes, 'inputs that say nothing of each other make up for nothing')


def test_weights_of_inputs_that_never_change_are_finite():
    weight = np.random.default_rng(5).normal(size=(8, 16)).astype(np.float32)
    for covariance in (np.zeros((16, 16)), np.diag([1.0] + [0.0] * 15)):
        np.testing.assert_array_equal(rounded_weights(weight, covariance).codes, RoundedWeights.nearest(weight).codes)


def decoded(weights: RoundedWeights) -> np.ndarray:
    codes = np.arange(256, dtype=np.uint8)
    magnitude = np.where(codes & 0x78, (1 + (codes & 7) / 8) * 2.0 ** ((codes >> 3 & 15) - 7.0), (codes & 7) * 2.0 ** -9)
    return (np.where(codes & 0x80, -magnitude, magnitude)[weights.codes] * weights.scales[:, None]).astype(np.float32)


# statistics

@cache
def exact_exits() -> list[list[Matches]]:
    return exits_of_held_out_pairs(None)


def exits_of_held_out_pairs(calibration: Calibration | None) -> list[list[Matches]]:
    """The matches at each exit, in FP32 or as the calibration rounds."""
    backend = OnnxRuntimeBackend(SPEC, replace(ours(), matcher=shallow()), threads=2, calibration=calibration)
    return [list(backend.match_exits(*pair.features, Thresholds())) for pair in held_out_pairs()]


def held_out_pairs() -> list[FramePair]:
    return pairs((6, 7), (7, 8), (8, 9), (6, 9))


def emulated(calibration: Calibration) -> tuple[float, float]:
    """Mean error of the scores, and F1, of an emulation against FP32 on held-out pairs."""
    found = exact_exits(), exits_of_held_out_pairs(calibration)
    exact, rounded = ([np.stack([each.indices for each in exits]) for exits in answers] for answers in found)
    errors = [np.abs(a[-1].scores - b[-1].scores)[(a[-1].indices >= 0) & (a[-1].indices == b[-1].indices)]
              for a, b in zip(*found, strict=True)]
    return float(np.concatenate(errors).mean()), score(HeldOutSet('', 'easy', 1, held_out_pairs(), exact), rounded).f1


def test_centres_are_the_means_in_the_bases_and_peaks_what_remains():
    calibration = calibrated()
    net = fold(shallow().tensors)
    assert net.layers == LAYERS
    assert set(calibration.centres) == set(calibration.peaks) == FP8
    assert set(calibration.compensated) == set(calibration.weights) == FP8
    assert [len(calibration.compensated[member(1, 'cross', part)]) for part in ('project', 'hidden', 'update')] == [32, 64, 64]
    assert calibration.fp8 == frozenset()
    inputs, = observations(SPEC, shallow(), pairs((0, 1)), calibration)
    for name in FP8:  # of a pair of those that were averaged: its own mean is near theirs
        assert np.abs(inputs[name].mean(axis=(0, 1))).max() < 0.25 * calibration.peaks[name], name
        assert np.linalg.norm(inputs[name].mean(axis=(0, 1))) < 0.5 * np.linalg.norm(calibration.centres[name]), name
        assert 0.3 * calibration.peaks[name] < np.abs(inputs[name]).max() <= calibration.peaks[name] / HEADROOM * (1 + 1e-6)


def test_calibration_keeps_matches_that_plain_rounding_loses():
    calibration = calibrated()
    plain = replace(calibration, residual_basis=np.eye(256, dtype=np.float32), centres={}, compensated={}, weights={},
                    value_bases=np.tile(np.eye(64, dtype=np.float32), (LAYERS, 2, 4, 1, 1)))
    observed = observations(SPEC, shallow(), pairs((0, 1), (0, 4)), plain)
    plain = replace(plain, peaks=measurement.measure_peaks(observed), fp8=FP8)
    whole = replace(calibration, fp8=FP8)
    error, f1 = emulated(whole)
    plain_error, plain_f1 = emulated(plain)
    assert error < 0.5 * plain_error
    assert f1 > 0.95
    assert plain_f1 > 0.5
    assert emulated(replace(whole, compensated={}))[0] > 1.3 * error, 'each of the means counts'
    assert emulated(replace(whole, weights={}))[0] > 1.1 * error
    assert emulated(calibration)[0] < 1e-4, 'without members in FP8 it is the same network'


def test_covariances_of_some_rows_and_means_of_all():
    names = (member(0, 'self', 'project'), member(0, 'self', 'hidden'), member(0, 'self', 'update'))
    rng, moments = np.random.default_rng(1), Moments(names)
    tensors = [rng.normal(5, [1, 2, 3, 4], (2, 400, 4)).astype(np.float32) for _ in range(8)]
    for tensor in tensors:
        moments.add({names[0]: tensor, names[1]: -tensor, names[2]: 2 * tensor})
    rows = np.concatenate(tensors).reshape(-1, 4)
    np.testing.assert_allclose(moments.mean(names[0]), rows.mean(0), rtol=1e-5)
    np.testing.assert_allclose(moments.mean(names[1]), -rows.mean(0), rtol=1e-5)
    np.testing.assert_allclose(np.diag(moments.covariance(names[1])), [1, 4, 9, 16], rtol=0.15)
    np.testing.assert_allclose(np.diag(moments.covariance(names[2])), [4, 16, 36, 64], rtol=0.15)


def test_tensors_without_a_scale_are_named(monkeypatch: pytest.MonkeyPatch):
    designed = calibrated()
    monkeypatch.setattr(measurement, 'design', lambda *arguments: designed)
    for peak, shown in ((0.0, '0'), (float('nan'), 'nan'), (float('inf'), 'inf')):
        peaks = {'layers.0.self.update': 1.0, 'layers.1.self.update': peak}
        monkeypatch.setattr(measurement, 'measure_peaks', lambda *arguments, peaks=peaks: peaks)
        with pytest.raises(EngineError, match=rf'1 tensors.*layers\.1\.self\.update \({shown}\)'):
            measurement.calibrate(SPEC, shallow(), pairs((0, 1)), provenance())


def test_a_tensor_that_was_nan_in_one_pair_has_no_peak():
    assert math.isnan(measurement.measure_peaks([{'x': np.array([1.0, np.nan])}, {'x': np.array([1.0, -2.0])}])['x'])


def test_saturating_tensors_are_named():
    calibration = replace(calibrated(), fp8=frozenset({member(0, 'self', 'project'), member(0, 'cross', 'update')}))
    limits = {name: e4m3.LARGEST * e4m3.scale_of(peak) for name, peak in calibration.peaks.items()}
    assert measurement.saturated(calibration, limits) == []
    lines = measurement.saturated(calibration, {name: 1.5 * limit for name, limit in limits.items()})
    assert {line.split()[0] for line in lines} == {'layers.0.self.project', 'layers.0.cross.update'}
    assert '1.50 times' in lines[0]


# the gate

def test_f1_is_of_pairs_of_rows_over_all_pairs():
    reference = [np.array([[0, 1, -1, 3]], np.int32), np.array([[2, -1, -1, -1]], np.int32)]
    held_out = HeldOutSet('r', 'easy', 1, pairs((0, 1), (1, 2)), reference)
    assert score(held_out, reference) == Score('r', 'easy', 1, 2, 4, 1.0, 1.0, (1.0,))
    worse = [np.array([[0, 3, -1, -1]], np.int32), np.array([[2, 1, 0, -1]], np.int32)]
    found = score(held_out, worse)
    assert (found.f1, found.count_ratio) == (2 * 2 / (4 + 5), 5 / 4)
    assert score(held_out, [np.full((1, 4), -1, np.int32)] * 2).f1 == 0


def test_the_lowest_exit_decides():
    """Most frames take an early exit: what FP8 loses there counts, however good all layers together are."""
    last = [np.array([0, 1, 2, 3], np.int32), np.array([2, -1, 1, 0], np.int32)]
    held_out = HeldOutSet('r', 'easy', 1, pairs((0, 1), (1, 2)), [np.stack([each, each]) for each in last])
    assert held_out.matches == 7
    silent = [np.stack([np.full(4, -1, np.int32), each]) for each in last]
    found = score(held_out, silent)
    assert (found.f1, found.count_ratio, found.exits) == (0.0, 0.0, (0.0, 1.0))
    assert not AcceptanceCheck().passes(found)
    alone = score(held_out, [each[None] for each in last])
    assert (alone.f1, alone.exits) == (1.0, (1.0,)), 'one graph alone is compared after all layers'


@pytest.mark.parametrize(('level', 'f1', 'ratio', 'passes'), [
    ('easy', 0.96, 1.0, True), ('easy', 0.959, 1.0, False), ('hard', 0.92, 1.0, True), ('hard', 0.919, 1.0, False),
    ('easy', 0.99, 0.97, True), ('easy', 0.99, 0.969, False), ('easy', 0.99, 1.031, False)])
def test_acceptance_check_requires_f1_and_ratio_of_each_recording(level: str, f1: float, ratio: float, passes: bool):
    gate, found = AcceptanceCheck(0.96), Score('r', level, 1, 5, 100, f1, ratio)
    assert gate.passes(found) is passes
    good = Score('other', 'easy', 1, 5, 100, 1.0, 1.0)
    assert gate.passed([good, found]) is passes, 'every recording has to'
    assert [': passed' in line for line in verdicts([good, found], gate)] == [*([True] if level == 'hard' else []), passes]
    assert not gate.passed([])


class Fading:
    """FP32 whose matches grow fewer with the distance of the frames, which their first scores tell."""

    def __init__(self, left: dict[int, int]) -> None:
        self.left = left

    def match_exits(self, first: HostFeatures, second: HostFeatures, thresholds: Thresholds) -> list[SimpleNamespace]:
        count = self.left[int(second.scores[0] - first.scores[0])]
        return [SimpleNamespace(indices=np.where(np.arange(200) < count, np.arange(200), -1).astype(np.int32))]


def numbered(count: int, held_out: int, step_px: float = 3.0) -> RecordingSample:
    rows = np.stack([np.arange(200), np.arange(200) % 7], axis=1).astype(np.float32)
    features = {place: HostFeatures(rows + np.float32(step_px * place), np.full(200, place, np.float32), np.zeros((200, 1)))
                for place in range(count)}
    return made(features, Split((range(count - held_out),), (range(count - held_out, count),)))


def test_hard_pairs_are_as_far_apart_as_leaves_half_of_the_matches(caplog):
    for left, held_out, stride in (({1: 100, 2: 80, 3: 60, 4: 55}, 12, 4), ({1: 100, 2: 80, 3: 60, 4: 45}, 12, 3),
                                   ({1: 100, 2: 80, 3: 60, 4: 55}, 4, 3)):
        sets = choose_held_out([numbered(20, held_out)], Fading(left))
        assert [(each.level, each.stride) for each in sets] == [('easy', 1), ('hard', stride)]
        assert all(pair.first >= 20 - held_out for each in sets for pair in each.pairs), 'none was calibrated on'
    assert not caplog.messages
    assert len(choose_held_out([numbered(20, 12)], Fading({1: 100, 2: 40, 3: 10, 4: 9}))) == 1
    assert 'no hard pairs' in caplog.messages[0]
    with pytest.raises(BagError, match='no pair of frames is held out'):
        choose_held_out([made(numbered(9, 4).features, Split((range(9),), ()))], Fading({1: 9}))


def test_a_camera_that_stands_is_told(caplog):
    left = dict.fromkeys((1, 2, 4), 100)
    assert check_motion([numbered(20, 8)], Fading(left), (1, 2, 4)) == pytest.approx(12 * 2**0.5, rel=1e-3)
    assert not caplog.messages
    check_motion([numbered(20, 8, 0.05)], Fading(left), (1, 2, 4))
    assert 'nothing moves' in caplog.messages[0]


def test_geometry_is_of_original_pixels_against_the_truth():
    camera = Intrinsics(416, 320, np.array([[300.0, 0, 208], [0, 300.0, 160], [0, 0, 1]]), 'plumb_bob', np.zeros(5))
    rng = np.random.default_rng(2)
    world = rng.uniform([-2, -2, 4], [2, 2, 9], (128, 3))
    poses = np.tile(np.eye(4), (2, 1, 1))
    poses[1, :3, 3] = [0.3, 0.1, 0.1]
    features = {}
    for place, pose in enumerate(poses):
        local = world - pose[:3, 3]
        pixels = local[:, :2] / local[:, 2:] * 300 + [208, 160]
        features[place] = HostFeatures(((pixels + 0.5) / 2 - 0.5).astype(np.float32), np.ones(128, np.float32), np.zeros((128, 1)))
    timeline = Timeline(np.arange(2), np.arange(2) * 10**8, np.zeros(2, np.int64), 1.0)
    each = made(features, Split((), (range(2),)), Scene(timeline, camera, poses))
    each.sizes.update(dict.fromkeys(each.sizes, (320, 416)))
    held_out, size = HeldOutSet('r', 'easy', 1, [FramePair(each, 0, 1)]), (160, 208)
    good = geometry(held_out, [np.arange(128, dtype=np.int32)[None]], size)
    assert good['precision@1'] == 100
    assert good['pose_auc@5'] > 95
    bad = geometry(held_out, [np.roll(np.arange(128, dtype=np.int32), 5)[None]], size)
    assert bad['precision@1'] < 20
    held_out.reference.append(np.where(np.arange(128) % 8, np.arange(128), (np.arange(128) + 9) % 128).astype(np.int32)[None])
    whole = geometry(held_out, held_out.reference, size)
    ranges = chance(held_out, Score('r', 'easy', 1, 1, 128, 0.7, 1.0), size)
    assert set(ranges) == set(whole)
    assert ranges['precision@1'][0] < whole['precision@1'] < ranges['precision@1'][1], 'some draws lose more of the wrong ones'
    same = chance(held_out, Score('r', 'easy', 1, 1, 128, 1.0, 1.0), size)
    assert same == {name: (value, value) for name, value in whole.items()}
    each.scene.poses = None
    assert geometry(held_out, [np.arange(128, dtype=np.int32)[None]], size) == {}
    assert chance(held_out, Score('r', 'easy', 1, 1, 128, 0.9, 1.0), size) == {}


# the search

def test_flops_are_those_of_the_graph():
    """Counted in the ONNX graph itself, which also tells which of its products are in FP8; without the compensated inputs."""
    calibration = replace(calibrated(), fp8=FP8, compensated={})
    graph = lightglue(SPEC, shallow(), calibration=calibration)
    assert _share_of_flops(graph) == pytest.approx(share(FP8, LAYERS, SPEC.max_keypoints), rel=0.01)
    assert share(linear_members(9), 9, 1024) == pytest.approx(0.51, abs=0.01)
    assert sum(flops(9, 2048).values()) > 2 * sum(flops(9, 1024).values())


def test_groups_are_all_of_it_once():
    found = groups(9, frozenset(linear_members(9)))
    assert len(found) == 12
    assert sorted(name for members in found.values() for name in members) == sorted(linear_members(9))
    assert len(found['self project, layers 1 to 5']) == 5
    assert len(found['cross update, layers 6 to 9']) == 4
    assert list(groups(9, frozenset({member(7, 'cross', 'update')}))) == ['cross update, layers 6 to 9']


class Additive(Search):
    """Each member costs F1, as given; nothing is run."""

    def __init__(self, cost: dict[str, float], gate: AcceptanceCheck, fp8: frozenset[str] = FP8, bias: float = 0.0) -> None:
        self.cost, self.asked, self.bias = cost, [], bias
        held_out = HeldOutSet('r', 'easy', 1, pairs((0, 1)), [np.zeros((1, 1), np.int32)])
        super().__init__(SPEC, shallow(), replace(calibrated(), fp8=fp8),
                         [held_out, dataclasses.replace(held_out, level='hard')], gate)

    def evaluate(self, name: str, fp8: frozenset[str], *, whole: bool = False, one_group: bool = False, bar: Any = None) -> Trial:
        self.asked.append((name, fp8, whole))
        loss = sum(self.cost.get(part, 0.0) for part in fp8) + self.bias * whole
        scores = [Score('r', level, 1, 1, 50, 1 - loss, 1.0) for level in ('easy', 'hard')]
        return Trial(name, fp8, share(fp8, LAYERS, SPEC.max_keypoints), scores, one_group=one_group)


def test_the_search_leaves_out_the_worst_and_no_more():
    cost = dict.fromkeys(FP8, 0.001) | {'layers.0.self.update': 0.05, 'layers.1.cross.project': 0.03}
    found = Additive(cost, AcceptanceCheck(0.96)).run()
    assert found is not None
    assert found.fp8 == FP8 - {'layers.0.self.update'}
    assert found.scores[0].f1 == pytest.approx(1 - 0.03 - 0.001 * 10)
    gate = AcceptanceCheck(0.985)
    search = Additive(cost, gate)
    found = search.run()
    assert found is not None
    assert found.fp8 == FP8 - {'layers.0.self.update', 'layers.1.cross.project'}
    alone = {trial.name: trial.f1('easy') for trial in search.trials if trial.one_group}
    assert min(alone, key=lambda name: alone[name]) == 'self update, layers 1 to 1'
    best = max((trial for trial in frontier(search.trials) if gate.passed(trial.scores)), key=lambda trial: trial.share)
    assert best == found


def test_what_passes_on_some_pairs_has_to_pass_on_all():
    cost = dict.fromkeys(FP8, 0.004)
    search = Additive(cost, AcceptanceCheck(0.96), bias=0.008)
    found = search.run()
    assert found is not None
    assert sum(cost[name] for name in found.fp8) + 0.008 <= 0.04
    assert [whole for _, _, whole in search.asked].count(True) > 1
    assert Additive(cost, AcceptanceCheck(0.96), bias=0.1).run() is None, 'nothing passes'


def test_search_with_real_networks_scores_the_group_it_is_given():
    """One group of the shallow network, on real pairs: its point is what the emulation gives."""
    calibration = replace(calibrated(), fp8=FP8)
    held_out = HeldOutSet('r', 'easy', 1, pairs((6, 7), (7, 8)))
    held_out.reference = answers(open_matcher(SPEC, shallow()), held_out.pairs)
    search = Search(SPEC, shallow(), calibration, [held_out], AcceptanceCheck(0.96))
    group = frozenset({member(1, 'self', 'hidden')})
    trial = search.evaluate('one', group, one_group=True)
    expected = answers(open_matcher(SPEC, shallow(), replace(calibration, fp8=group)), held_out.pairs)
    assert trial.scores == [score(held_out, expected)]
    assert (trial.f1('easy'), trial.f1('hard')) == (trial.scores[0].f1, 1.0)
    assert trial.share == share(group, LAYERS, SPEC.max_keypoints)


def test_the_frontier_is_drawn_and_written():
    def trial(name: str, part: float, easy: float, hard: float, ratio: float, one_group: bool = False) -> Trial:
        scores = [Score('r', level, 1, 5, 100, f1, ratio) for level, f1 in (('easy', easy), ('hard', hard))]
        return Trial(name, frozenset(), part, scores, one_group=one_group)

    trials = [trial('all', 0.5, 0.94, 0.9, 1.01), trial('less', 0.3, 0.97, 0.93, 1.0), trial('one', 0.05, 0.99, 0.98, 1.0, True)]
    png = cv2.imdecode(np.frombuffer(draw_frontier(trials, AcceptanceCheck()), np.uint8), cv2.IMREAD_COLOR)
    assert png.shape[1] == 1200
    blue = (np.abs(png.astype(int) - [0xb2, 0x72, 0x00]).max(axis=2) < 12).sum()
    assert blue > 1000
    assert json.loads(json.dumps(plain_trials(trials, AcceptanceCheck())))[1] == {
        'name': 'less', 'share': 0.3, 'easy': 0.97, 'hard': 0.93, 'count_ratio': 1.0, 'passed': True, 'alone': False, 'pairs': 10}


def _share_of_flops(model: Any) -> float:
    """Of the FLOPs of a graph's matrix products, those whose two sides come out of a DequantizeLinear."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    makers = {output: node.op_type for node in graph.node for output in node.output}
    shapes = {value.name: [size.dim_value for size in value.type.tensor_type.shape.dim]
              for value in (*graph.value_info, *graph.input, *graph.output)}
    shapes |= {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    total = done = 0.0
    for node in graph.node:
        if node.op_type == 'MatMul':
            work = math.prod(shapes[node.output[0]]) * (shapes.get(node.input[0]) or shapes[node.input[1]][-2:-1])[-1]
            total += work
            done += work * all(makers.get(name) == 'DequantizeLinear' for name in node.input)
    return done / total if total else 0.0
