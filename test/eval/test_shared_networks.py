"""One pass for all variants and strides gives what each variant gives alone, on the real networks; and asks them once."""

from __future__ import annotations

import logging
import weakref
from collections import Counter
from contextlib import closing
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.emulated_device import EmulatedGpu, EmulatedTensorRT
from support.evaluated_streams import evaluated_beside_the_node
from support.networks import Remembered, Wrapped, light, photo
from support.scored import QUICK, scored
from support.written_plans import written_plans

from lightglue_trt_eval.options import variants
from lightglue_trt_eval.predict import methods, run
from lightglue_trt_eval.predict.frames import Frames
from lightglue_trt_eval.predict.methods import Baseline, OurMethod, by_networks, open_methods
from lightglue_trt_eval.predict.predictions import Predictions
from lightglue_trt_eval.predict.run import predict
from lightglue_trt_eval.predict.scene import Scene, Timeline
from lightglue_trt_eval.predict.shared_networks import SharedNetworks
from lightglue_trt_eval.report.summary import coverage
from lightglue_trt_eval.score.method_score import score
from lightglue_trt_eval.score.metrics import Evaluation, MatcherResult, Table
from lightglue_trt_ros.backends import tensorrt
from lightglue_trt_ros.core import frame_pair
from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.early_exit import EarlyExits
from lightglue_trt_ros.core.types import HostFeatures, Matches, Thresholds
from lightglue_trt_ros.datasets.sequence import Frame
from lightglue_trt_ros.engines.selection import Opened, open_backend
from lightglue_trt_ros.utils.errors import EngineError

pytest.importorskip('onnxruntime', reason='the networks run in ONNX Runtime')

pytestmark = pytest.mark.networks

HEIGHT, WIDTH, COUNT = 96, 128, 9
CONFIG = MatcherConfig(backend='onnxruntime', weights='ours_light', image_height=HEIGHT, image_width=WIDTH, max_keypoints=128)
CAMERA = Intrinsics(WIDTH, HEIGHT, np.array([[110.0, 0, 64], [0, 110.0, 48], [0, 0, 1]]), 'plumb_bob', np.zeros(5))
PLACED = tuple(f'refinement={way}' for way in next(
    field for field in fields(MatcherConfig) if field.name == 'refinement').metadata['choices'])
THRESHOLDS = ('match_threshold=0.6', 'depth_confidence=0.5', 'depth_confidence=-1', 'detection_threshold=0.01')
STRIDES = (1, 2, 4)
EXITS = EarlyExits((2, 4))  # of engines on the emulated GPU


@cache
def opened_once(weights: str, max_keypoints: int) -> tuple[Opened, Remembered]:
    opened = open_backend(replace(CONFIG, weights=weights, max_keypoints=max_keypoints))
    return opened, Remembered(opened.backend)


class Answering(Wrapped):
    """A backend that all tests share: what it was asked before, it answers again, with features that are new objects."""

    closed = False

    def extract(self, image: np.ndarray, mask: np.ndarray | None = None) -> HostFeatures:
        assert mask is None
        assert not self.closed
        return replace(self.inner.extract(image))

    def match(self, reference: HostFeatures, current: HostFeatures, thresholds: Thresholds) -> Matches:
        assert not self.closed
        return self.inner.match(reference, current, thresholds)

    def close(self) -> None:
        self.closed = True


def answering(config: MatcherConfig) -> Opened:
    """As `open_backend`."""
    opened, backend = opened_once(config.weights, config.max_keypoints)
    return opened._replace(backend=Answering(backend))


@pytest.fixture(autouse=True)
def networks_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, 'open_backend', answering)


class Counting(Wrapped):
    """A backend that counts what it is asked, and, with `feature_sets`, holds as few features of a camera as a GPU does.

    It has no exit before the first layer, whose tries would count.
    """

    def __init__(self, inner: Any, feature_sets: int = 0) -> None:
        super().__init__(inner)
        self.asked, self.early_exits = Counter[str](), EarlyExits(inner.early_exits.after_layers)
        self.camera, self.held = 0, dict[int, list[Any]]()
        if feature_sets:
            self.feature_sets = feature_sets

    def select_camera(self, camera: int) -> None:
        self.camera = camera

    def extract(self, image: np.ndarray, mask: np.ndarray | None = None) -> HostFeatures:
        held = [ref for ref in self.held.get(self.camera, []) if ref() is not None]
        assert len(held) < getattr(self, 'feature_sets', COUNT)
        self.asked['extract'] += 1
        features = self.inner.extract(image, mask)
        self.held[self.camera] = [*held, weakref.ref(features)]
        return features

    def match(self, reference: Any, current: Any, thresholds: Thresholds) -> Matches:
        self.asked['match'] += 1
        return self.inner.match(reference, current, thresholds)


@pytest.fixture(scope='module')
def frames() -> list[np.ndarray]:
    """A camera that goes sideways over a photograph."""
    scene = photo('coffee', 2 * HEIGHT, 3 * WIDTH)
    return [np.ascontiguousarray(scene[40:40 + HEIGHT, 20 + 5 * k:20 + 5 * k + WIDTH]) for k in range(COUNT)]


def recording(images: list[np.ndarray]) -> tuple[Any, Any, Scene]:
    """The frames, how they are decoded, and what is known about them."""
    poses = np.tile(np.eye(4), (COUNT, 1, 1))
    poses[:, 0, 3] = 0.1 * np.arange(COUNT)
    recorded = [Frame(k * 10**8, k * 10**8, lambda k=k: images[k], number=k) for k in range(COUNT)]
    return lambda: recorded, lambda image: image.copy(), Scene(Timeline.of(recorded, 1.0), CAMERA, poses)


def evaluated(images: list[np.ndarray], taking_part: list[Any], strides: tuple[int, ...] = STRIDES,
              sampled: int = COUNT) -> list[MatcherResult]:
    found, kept = scored(taking_part, Frames(*recording(images), sampled=sampled), strides)
    assert not kept.interrupted
    return found


def alone_of(table: Table) -> str:
    """The columns that compare with no other method, in full; equal texts are equal to the last bit, NaN included."""
    others = ('retention', 'agreement_f1', 'count_ratio')
    return repr({name: column.tolist() for name, column in table.items() if name not in others})


def figures(result: MatcherResult, strides: tuple[int, ...] = STRIDES) -> list[Any]:
    """All but times, and what compares with another one."""
    pairs = {stride: alone_of(result.pairs[stride]) for stride in strides}
    return [pairs, result.track_lengths, result.forward_backward, result.odometry.figures, [
        (drawn.frames, drawn.badness, drawn.why) for drawn in result.worst_pairs]]


def test_variants_together_are_what_each_is_alone(frames: list[np.ndarray]) -> None:
    wanted = variants(CONFIG, (*PLACED, *THRESHOLDS))
    frontends, warning = open_methods(wanted)
    assert warning == ''
    together = evaluated(frames, [*frontends, Baseline('sift', 128), Baseline('klt', 128)], sampled=3)
    assert [result.name for result in together] == [*wanted, 'SIFT', 'KLT']
    first = next(iter(wanted))
    described = {result.name: result.description for result in together}
    assert described['ours_light none'] == f'as {first}, but refinement none'
    assert described['ours_light match_threshold=0.6'] == f'as {first}, but match threshold 0.6'
    layers = {result.name: result.summary()['layers'] for result in together[:len(wanted)]}
    assert layers['ours_light depth_confidence=0.5'] < layers['ours_light depth_confidence=-1'], 'they do stop at different exits'
    with closing(answering(CONFIG).backend) as backend:
        for result, config in zip(together, wanted.values(), strict=False):
            networks = SharedNetworks(backend, [config])
            (alone,) = evaluated(frames, [OurMethod(result.name, networks, config)], sampled=3)
            assert figures(alone) == figures(result), result.name
            for stride in STRIDES[1:]:  # and stride by stride, where nothing was seen before
                (single,) = evaluated(frames, [OurMethod(result.name, networks, config)], (stride,), sampled=3)
                assert alone_of(single.pairs[stride]) == alone_of(result.pairs[stride])
    for result, key in zip(together[len(wanted):], ('sift', 'klt'), strict=True):
        (alone,) = evaluated(frames, [Baseline(key, 128)], sampled=3)
        assert figures(alone) == figures(result)


def test_margins_of_masks_share_no_networks() -> None:
    """The features of a frame differ by it."""
    wanted = variants(CONFIG, ('mask_margin=0', 'mask_margin=4', 'refinement=none'))
    assert [[*group] for group in by_networks(wanted)] == [
        ['ours_light mask_margin=0'], ['ours_light mask_margin=4', 'ours_light none']]


def test_networks_in_turn_are_what_they_are_side_by_side(frames: list[np.ndarray], tmp_path: Path,
                                                         monkeypatch: pytest.MonkeyPatch,
                                                         caplog: pytest.LogCaptureFixture) -> None:
    wanted = variants(CONFIG, ('refinement=patches', '64', 'refinement=none', 'weights=ours'))
    together = [method for group in by_networks(wanted) for method in open_methods(group)[0]]
    expected = {result.name: result for result in evaluated(frames, [*together, Baseline('klt', 128)], sampled=3)}
    caplog.set_level(logging.INFO, 'lightglue_trt_eval')
    open_now, most, notes = [0], [0], list[str]()

    def opened(config: MatcherConfig) -> Opened:
        found = answering(config)
        open_now[0] += 1
        most[0] = max(most[0], open_now[0])
        backend: Any = found.backend
        close = backend.close

        def closed() -> None:
            open_now[0] -= not backend.closed
            close()

        backend.close = closed
        return found

    monkeypatch.setattr(methods, 'open_backend', opened)
    seen, kept = Frames(*recording(frames), on_note=notes.append, sampled=3), Predictions(tmp_path)
    predict(wanted, [Baseline('klt', 128)], seen, STRIDES, kept)
    results, _ = score(kept, seen.scene, QUICK)
    assert (kept.interrupted, kept.failure, notes, most[0], open_now[0]) == (False, '', [], 1, 0)
    assert [result.name for result in results] == ['ours_light patches', 'ours_light 64', 'ours_light none', 'ours', 'KLT']
    said = [each.getMessage() for each in caplog.records if each.name.endswith('.run')]  # not how far it is
    assert [line.partition(':')[0] for line in said] == ['ours_light patches', 'ours_light none', 'KLT', 'ours_light 64', 'ours']
    for result in results:
        for stride, table in result.pairs.items():
            np.testing.assert_equal(table, expected[result.name].pairs[stride], 'what compares with the first one too')
        assert figures(result) == figures(expected[result.name])
    assert 0 < results[3].summary()['retention'] < 100


def test_an_end_in_a_later_turn_says_what_it_covers(frames: list[np.ndarray], tmp_path: Path) -> None:
    asked, notes = [0], list[str]()

    def stopped() -> bool:
        asked[0] += 1
        return asked[0] > 2 * COUNT + 1 + 4  # two passes of the first, matched and timed

    wanted = variants(CONFIG, ('128', '96', '64'))
    seen, kept = Frames(*recording(frames), stopped=stopped, on_note=notes.append), Predictions(tmp_path)
    predict(wanted, [], seen, STRIDES, kept)
    results, _ = score(kept, seen.scene, QUICK)
    assert [result.count() for result in results] == [8, 3]
    assert (kept.interrupted, kept.covered, notes) == (True, 4, ['ours_light 64: not begun'])
    found = Evaluation({'frames': COUNT}, '', results, STRIDES, interrupted=True, covered=kept.covered)
    assert coverage(found).startswith('Interrupted: the figures of ours_light 96 cover the first 4 of 9 frames (44 %), pairs: 3 ')


def test_placement_alone_leaves_the_matches_as_they_are(frames: list[np.ndarray]) -> None:
    """Those of all layers: whether a pair needs any is seen in its refined points."""
    frontends, _ = open_methods(variants(replace(CONFIG, depth_confidence=-1.0), (*PLACED, THRESHOLDS[0])))
    _, *others, stricter = evaluated(frames, frontends)
    for other in others:
        compared = [other.summary(stride)[name] for stride in STRIDES for name in ('retention', 'agreement_f1', 'count_ratio')]
        assert compared == [100.0] * 9
    summary = stricter.summary()
    assert summary['retention'] == pytest.approx(summary['count_ratio'], abs=1e-9), 'what remains is of the same matches'
    assert summary['retention'] < 100


@pytest.mark.parametrize('feature_sets', [0, 3])
def test_each_frame_is_extracted_once_and_each_pair_matched_once(frames: list[np.ndarray], feature_sets: int,
                                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, 'time_methods', lambda *given: None)
    backend = Counting(answering(CONFIG).backend, feature_sets)
    configs = variants(CONFIG, PLACED)
    networks = SharedNetworks(backend, configs.values())
    counted = evaluated(frames, [OurMethod(name, networks, config) for name, config in configs.items()])
    backward = COUNT - 1
    assert backend.asked['match'] == 8 + 4 + 2 + backward, 'every pair, and the consecutive ones back'
    if not feature_sets:
        assert backend.asked['extract'] == COUNT
    else:  # each stride by itself
        assert backend.asked['extract'] == 9 + 5 + 3
        plain = SharedNetworks(Counting(backend.inner), configs.values())
        expected = evaluated(frames, [OurMethod(name, plain, config) for name, config in configs.items()])
        assert list(map(figures, counted)) == list(map(figures, expected))
    backend.close()


def test_times_are_those_of_the_networks_themselves(frames: list[np.ndarray]) -> None:
    class Device(Counting):
        def device_ms(self) -> dict[str, float]:
            return {'extract': 2.0, 'match': 3.0, 'place': 4.0}

    backend, configs = Device(open_backend(CONFIG).backend), variants(CONFIG, PLACED)
    networks = SharedNetworks(backend, configs.values())
    with closing(networks):
        for result in evaluated(frames, [OurMethod(name, networks, config) for name, config in configs.items()], (1,)):
            for frame, extract, match, cpu in zip(*(result.stage_ms[name] for name in ('frame', 'extract', 'match')),
                                                  result.cost_ms['cpu_ms'], strict=True):
                assert frame >= extract + match
                assert min(extract, match, cpu) > 0
            assert result.cost_ms['gpu_ms'] == [5.0] * (COUNT - 1)
    pairs = COUNT - 1
    assert backend.asked['extract'] == COUNT + 2 * pairs * len(configs), 'each pair anew for each variant'
    assert backend.asked['match'] == 2 * pairs + pairs * len(configs)


@pytest.fixture(scope='module')
def plans() -> dict[str, bytes]:
    return written_plans(CONFIG.engine_spec('fp32'), light(), EXITS)


@pytest.fixture
def device(plans: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Engines on an emulated GPU, which places points there; the host must not."""
    def host(*arguments: Any) -> Any:
        raise AssertionError('points were placed on the host')

    monkeypatch.setattr(frame_pair, 'refine_points', host)
    with EmulatedGpu().installed() as gpu:
        backend = tensorrt.TensorRTBackend(EmulatedTensorRT(gpu), CONFIG.engine_spec('fp32'), EXITS, dict(plans), 'emulated')
        monkeypatch.setattr(methods, 'open_backend', lambda config: Opened(backend, 'emulated'))
        yield backend
        backend.close()


def test_variants_evaluated_together_give_the_figures_of_each_by_itself(frames: list[np.ndarray], device: Any) -> None:
    """On the GPU, for each variant by itself; `device` has room for three frames, and four are looked at."""
    asked = Counter[str]()

    def counting(name: str, run: Any) -> Any:
        def counted(*arguments: Any) -> Any:
            asked[name] += 1
            return run(*arguments)
        return counted

    for name in ('correspond', 'refine'):
        setattr(device, name, counting(name, getattr(device, name)))
    wanted = variants(CONFIG, ('refinement=patches', 'refinement=none', 'carry_frames=0', 'match_threshold=0.6'))
    placed = [name for name, config in wanted.items() if config.refinement != 'none']
    frontends, _ = open_methods(wanted)
    together = dict(zip(wanted, evaluated(frames, frontends), strict=True))
    del frontends
    pairs, timed = 8 + 4 + 2 + 8, COUNT - 1  # back, too
    assert asked['correspond'] == timed * len(placed), 'as in the node'
    assert asked['refine'] >= pairs * len(placed)
    for name in placed:
        (alone,) = evaluated(frames, [OurMethod(name, SharedNetworks(device, [wanted[name]]), wanted[name])])
        assert figures(alone) == figures(together[name]), name
        assert 'resize' not in together[name].stage_ms
        assert together[name].cost_ms['gpu_ms'] == [2.0] * timed


def test_an_evaluation_finds_what_the_node_finds(frames: list[np.ndarray], device: Any) -> None:
    for found, expected in evaluated_beside_the_node(device, CONFIG, frames):
        np.testing.assert_array_equal(found.current, expected.keypoints)
        np.testing.assert_allclose(found.covariances, expected.covariances, rtol=1e-3)  # the host's fit, and the device's


def test_frames_of_different_image_sizes_make_no_pair(frames: list[np.ndarray], device: Any) -> None:
    larger = photo('coffee', 120, 160)
    images = [larger if number in (1, 5, 6) else image for number, image in enumerate(frames)]
    frontends, _ = open_methods(variants(CONFIG, PLACED))
    first, _ = evaluated(images, frontends)
    assert first.pairs[1]['frame'].tolist() == [3, 4, 6, 8]
    assert first.pairs[2]['frame'].tolist() == [2, 4], 'a frame of another size is between the first two'


def test_features_of_others_are_refused(frames: list[np.ndarray]) -> None:
    with closing(SharedNetworks(answering(CONFIG).backend, [])) as networks:
        networks.show(frames[0], 0)
        mine = networks.extract(frames[0])
        with pytest.raises(EngineError, match='of another backend'):
            networks.match(mine, mine.features, Thresholds())


@pytest.mark.parametrize('feature_sets', [0, 3])
def test_each_variant_sees_the_image_that_it_corrected(frames: list[np.ndarray], feature_sets: int) -> None:
    """Four variants of one camera hold eight sets of features: more than a GPU has room for."""
    backend = Counting(answering(CONFIG).backend, feature_sets)
    networks = SharedNetworks(backend, [CONFIG])
    corrections: list[dict[str, Any]] = [{} for _ in range(4)]
    for number, image in enumerate(frames[:4]):
        networks.show(image, 0)
        for darker, held in enumerate(corrections):
            seen = image - np.minimum(image, np.uint8(8 * darker)) if darker else image
            current = networks.extract(seen)
            alone = backend.inner.extract(seen)
            np.testing.assert_array_equal(current.keypoints, alone.keypoints)
            if number:
                found = networks.match(held['reference'], current, Thresholds())
                expected = backend.inner.match(held['alone'], alone, Thresholds())
                np.testing.assert_array_equal(found.indices, expected.indices)
            held |= {'reference': current, 'alone': alone}
    with closing(networks):
        if not feature_sets:
            assert backend.asked['extract'] == 4 * 4
