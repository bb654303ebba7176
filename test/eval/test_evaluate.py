"""The pass over a recording, on a made-up world with exact truth: who is shown what, which frames make a pair, what is scored."""

from __future__ import annotations

import dataclasses
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from support.scored import QUICK, scored

from lightglue_trt_eval.baselines import MatchedPoints
from lightglue_trt_eval.evaluate import with_images
from lightglue_trt_eval.options import variants
from lightglue_trt_eval.predict import methods
from lightglue_trt_eval.predict.frames import Frames, ShownFrame
from lightglue_trt_eval.predict.methods import Alone, Baseline, OurMethod
from lightglue_trt_eval.predict.predictions import FramePredictions, Predicted, Prediction, Predictions
from lightglue_trt_eval.predict.run import BACKWARD_PAIRS, predict, predict_together
from lightglue_trt_eval.predict.scene import SECOND, Scene, Timeline
from lightglue_trt_eval.predict.shared_networks import SharedNetworks
from lightglue_trt_eval.score.method_score import WORST, MethodScore, score
from lightglue_trt_eval.times.null_backend import NullBackend
from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.core.config import EngineSpec, MatcherConfig
from lightglue_trt_ros.datasets.sequence import Frame
from lightglue_trt_ros.engines.selection import Opened
from lightglue_trt_ros.utils.errors import BagError, ConfigError, EngineError, FrameError

HEIGHT, WIDTH = 240, 320
CAMERA = Intrinsics(WIDTH, HEIGHT, np.array([[260.0, 0, 160], [0, 260.0, 120], [0, 0, 1]]), 'plumb_bob', np.zeros(5))
FISHEYE = Intrinsics(WIDTH, HEIGHT, CAMERA.k, 'plumb_bob', np.array([-0.2, 0.05, 0.001, -0.002, 0.0]))
PERIOD = 100_000_000
START = 1_700_000_000 * 10**9
POINTS = np.random.default_rng(0).uniform([-6, -4, 4], [6, 4, 14], (1500, 3))


def true_poses(count: int) -> np.ndarray:
    """A curve to the right, world from camera."""
    poses = np.tile(np.eye(4), (count, 1, 1))
    for k in range(count):
        poses[k, :3, :3] = cv2.Rodrigues(np.array([0.0, 0.02 * k, 0.005 * k]))[0]
        poses[k, :3, 3] = [0.15 * k, 0.01 * k, 0.1 * k]
    return poses


def seen(pose: np.ndarray, camera: Intrinsics = CAMERA) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (N, 2) of POINTS, and which of them are in the image."""
    local = (POINTS - pose[:3, 3]) @ pose[:3, :3]
    pixels = cv2.projectPoints(local, np.zeros(3), np.zeros(3), camera.k, camera.d)[0][:, 0]
    inside = (local[:, 2] > 1) & (pixels > 0).all(1) & (pixels < [WIDTH, HEIGHT]).all(1)
    return pixels, inside


class KnowingStream:
    def __init__(self, knowing: Knowing) -> None:
        self.knowing, self.previous = knowing, None

    def process(self, shown: ShownFrame) -> Prediction | None:
        knowing, number = self.knowing, int(shown.image[0, 0])
        knowing.shown.append(number)
        previous, self.previous = self.previous, number
        if previous is None:
            return None
        (first, there), (second, here) = (knowing.pixels(k) for k in (previous, number))
        rows = np.flatnonzero(there & here)
        rows = rows[:round(knowing.share * len(rows))]
        return Prediction(MatchedPoints(first[rows].astype(np.float32), second[rows].astype(np.float32)), 9)

    def reset(self) -> None:
        self.previous = None


class Knowing:
    """A contestant that knows the world: a frame's first four bytes are its number."""

    description, engine, networks = 'knows', None, ''

    def __init__(self, name: str = 'knowing', noise: float = 0.0, share: float = 1.0, camera: Intrinsics = CAMERA,
                 ours: bool = True, streams: type[KnowingStream] = KnowingStream) -> None:
        self.name, self.noise, self.share, self.camera, self.ours, self.streams = name, noise, share, camera, ours, streams
        self.poses = true_poses(60)
        self.shown: list[int] = []

    def stream(self, camera: int = 0) -> KnowingStream:
        return self.streams(self)

    def alone(self) -> Alone:
        stream = self.stream()

        def process(shown: ShownFrame) -> dict[str, float]:
            stream.process(shown)
            return {'match': 1.0}

        return Alone(process, stream.reset)

    def close(self) -> None:
        """Nothing is held."""

    def pixels(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """The same in every pair, as keypoints are."""
        pixels, inside = seen(self.poses[number], self.camera)
        return pixels + np.random.default_rng(number).normal(0, self.noise, pixels.shape) if self.noise else pixels, inside


def images(count: int, bad: tuple[int, ...] = (), odd: tuple[int, ...] = ()) -> Callable[[int], np.ndarray]:
    def load(number: int) -> np.ndarray:
        if number in bad:
            raise FrameError('cut off')
        image = np.zeros((HEIGHT // 2, WIDTH // 2) if number in odd else (HEIGHT, WIDTH), np.uint8)
        image[HEIGHT // 4:] = 99  # a texture
        image[0, 0] = number
        return image

    return load


class World:
    """A recording of `count` frames, with what the evaluation needs of it."""

    def __init__(self, count: int, steps: dict[int, int] | None = None, bad: tuple[int, ...] = (),
                 odd: tuple[int, ...] = ()) -> None:
        periods = np.full(count, PERIOD, np.int64)
        for number, step in (steps or {}).items():
            periods[number] = step
        self.stamps = START + np.cumsum(periods)
        self.decoded: list[int] = []
        self.first, self.skipped = 0, set()
        self._load = images(count, bad, odd)

    def frames(self) -> Iterator[Frame]:
        for number, stamp in enumerate(self.stamps.tolist()):
            if number in self.skipped:
                continue
            yield Frame(stamp, stamp, lambda number=number: number, number=number + self.first)

    def decode(self, number: int) -> np.ndarray:
        self.decoded.append(number)
        return self._load(number)

    def timeline(self, max_gap_s: float = 1.0) -> Timeline:
        return Timeline.of(self.frames(), max_gap_s)

    def read_by(self, scene: Scene | None = None, **options: Any) -> Frames:
        return Frames(self.frames, self.decode, scene or Scene(self.timeline(), CAMERA, true_poses(len(self.stamps))), **options)

    def evaluated(self, *methods: Any, strides: Sequence[int] = (1,), **options: Any) -> list[Any]:
        return scored(methods, self.read_by(**options), strides)[0]


def correct(first: int, second: int) -> list[np.ndarray]:
    """True correspondences (M, 2) of two frames."""
    (one, there), (two, here) = (Knowing().pixels(number) for number in (first, second))
    return [side[there & here].astype(np.float32) for side in (one, two)]


def pairs_of(result: Any, stride: int = 1) -> list[tuple[int, int]]:
    table = result.table(stride)
    return list(zip(table['reference_frame'].tolist(), table['frame'].tolist(), strict=True))


@pytest.mark.parametrize(('noise', 'line'), [((0.0, 2.0), False), ((2.0, 0.0), True)], ids=['of a baseline', 'of the first'])
def test_imprecise_matches_of_a_baseline_blame_no_recording(tmp_path: Path, noise: tuple[float, float], line: bool) -> None:
    both = [Knowing(name, each, ours=name == 'a') for name, each in zip('ab', noise, strict=True)]
    world, kept = World(9).read_by(sampled=5), Predictions(tmp_path)
    predict_together(both, world, (1,), kept)
    lines = score(kept, world.scene, QUICK)[1]
    assert any('come back when matched backwards' in each for each in lines) == line


class CertainStream(KnowingStream):
    """With the covariances of its noise."""

    def process(self, shown: ShownFrame) -> Prediction | None:
        found = super().process(shown)
        if found is None:
            return None
        each = np.float32(2 * self.knowing.noise**2) * np.eye(2, dtype=np.float32)
        return found._replace(points=found.points._replace(covariances=np.tile(each, (len(found.points.current), 1, 1))))


@pytest.mark.parametrize('times', [1.0, 1.3, 2.0])
def test_imprecise_matches_of_much_enlarged_images_name_their_own_size(tmp_path: Path, times: float) -> None:
    world, kept = World(9).read_by(sampled=5), Predictions(tmp_path)
    predict_together([Knowing('a', 2.0, streams=CertainStream)], world, (1,), kept)
    kept.methods[0].engine = {'image_height': round(times * CAMERA.height), 'image_width': round(times * CAMERA.width)}
    line, = (each for each in score(kept, world.scene, QUICK)[1] if 'they are imprecise' in each)
    assert line.endswith(f'and noise with them: try --height {CAMERA.height} --width {CAMERA.width}') == (times == 2)


def test_every_frame_is_decoded_once_and_shown_to_all() -> None:
    world, first, second = World(9), Knowing('a'), Knowing('b', ours=False)
    done: list[int] = []
    results, kept = scored([first, second], world.read_by(), [1, 4], done.append)
    assert world.decoded == 2 * list(range(9)), 'to be matched, and to be timed'
    assert first.shown == second.shown
    assert kept.covered == 9
    assert [result.name for result in results] == ['a', 'b']
    assert pairs_of(results[0]) == pairs_of(results[1]) == [(k, k + 1) for k in range(8)]
    assert pairs_of(results[0], 4) == [(0, 4), (4, 8)]
    assert done == list(range(1, 10))


def test_true_correspondences_score_as_true() -> None:
    (result,) = World(12).evaluated(Knowing(), strides=[1, 3])
    for stride in (1, 3):
        summary = result.summary(stride)
        assert summary['pose_auc@5'] > 99
        assert summary['precision@1'] == 100
        assert summary['inlier_ratio'] > 99
        assert summary['matches'] > 200
    summary = result.summary()
    assert summary['forward_backward'] == 100
    assert summary['track_survival'] > 80
    assert summary['ate_m'] < 1e-3
    assert summary['rpe_deg'] < 0.01
    assert summary['layers'] == 9
    assert result.error_histogram is not None
    assert result.error_histogram.sum() == result.pairs[1]['matches'].sum()
    assert result.odometry is not None
    assert result.odometry.scale == 'truth'
    assert len(result.odometry.frames) == 12


@pytest.mark.slow
def test_points_are_undistorted_before_any_geometry() -> None:
    world = World(13)
    (right,) = world.evaluated(Knowing(camera=FISHEYE), scene=Scene(world.timeline(), FISHEYE, true_poses(13)), strides=[1, 6])
    (wrong,) = world.evaluated(Knowing(camera=FISHEYE), strides=[1, 6])
    assert right.summary(6)['precision@1'] > 99
    assert right.summary(6)['pose_auc@5'] > 98
    assert wrong.summary(6)['precision@1'] < 70


@pytest.mark.slow
def test_the_same_recording_gives_the_same_figures() -> None:
    def figures() -> list[Any]:
        runs = World(6).evaluated(Knowing(noise=0.5), Knowing('other', noise=0.8, share=0.7), strides=[1, 2])
        return [[repr(result.pairs), result.track_lengths, result.odometry.figures, result.forward_backward] for result in runs]

    assert figures() == figures()


def test_no_pair_spans_a_gap() -> None:
    world, contestant = World(8, {4: 5 * 10**9}), Knowing()
    (result,) = world.evaluated(contestant, strides=[1, 2])
    assert pairs_of(result) == [(0, 1), (1, 2), (2, 3), (4, 5), (5, 6), (6, 7)]
    assert pairs_of(result, 2) == [(0, 2), (4, 6)]
    assert world.timeline().notes == ['gaps longer than 1 s, after which the sequence starts anew: 1']
    assert result.odometry is not None
    assert result.odometry.frames.tolist() == list(range(8)), 'the motion before goes on over the gap'


def test_stamps_of_arrival_in_bursts_are_named() -> None:
    stamps = [k // 4 * 4 * SECOND // 10 + k % 4 * SECOND // 500 for k in range(40)]
    burst = Timeline.of([Frame(stamp, 0, lambda: None, number=k) for k, stamp in enumerate(stamps)], 1.0)
    assert burst.in_bursts
    assert [note[:69] for note in burst.notes] == ['stamps come in bursts: most frames are 2 ms after the one before, and']


@pytest.mark.parametrize(('step', 'expected', 'note'), [
    (-10 * PERIOD, [(0, 1), (1, 2), (2, 3), (4, 5), (5, 6), (6, 7)], 'frames out of order, as stamps step back'),
    (-PERIOD // 2, [(0, 1), (1, 2), (2, 3), (3, 5), (5, 6), (6, 7)], 'out of order by less than 1 s, which are left out: 1'),
    (0, [(0, 1), (1, 2), (2, 3), (3, 5), (5, 6), (6, 7)], 'frames that repeat the stamp before them, and are left out: 1')])
def test_stamps_that_do_not_increase_are_treated_as_by_the_node(step: int, expected: list[tuple[int, int]], note: str) -> None:
    world = World(8, {4: step})
    scene = Scene(world.timeline(), CAMERA)
    world.skipped = set(range(8)).difference(scene.timeline.numbers.tolist())
    (result,) = world.evaluated(Knowing(), scene=scene)
    assert pairs_of(result) == expected
    assert note in scene.timeline.notes[0]


def test_frames_have_their_numbers_in_the_recording() -> None:
    world = World(5)
    world.first = 7  # what came before could not be read
    (result,) = world.evaluated(Knowing())
    assert pairs_of(result) == [(7, 8), (8, 9), (9, 10), (10, 11)]
    assert result.odometry.frames.tolist() == [7, 8, 9, 10, 11]
    assert (7, 8) in [drawn.frames for drawn in result.worst_pairs]


def test_a_change_of_resolution_is_a_break_and_its_frames_have_no_camera() -> None:
    told: list[str] = []
    (result,) = World(9, odd=(3, 4, 5)).evaluated(Knowing(), strides=[1, 2], on_note=told.append)
    assert [line[:70] for line in told] == ['the images change their size 2 times, first to 160x120 with frame 3: t']
    assert pairs_of(result) == [(0, 1), (1, 2), (3, 4), (4, 5), (6, 7), (7, 8)]
    assert np.isnan(result.pairs[1]['precision@1']).tolist() == [False, False, True, True, False, False]


def test_a_frame_that_cannot_be_decoded_is_left_out_and_told_once() -> None:
    told: list[str] = []
    (result,) = World(8, bad=(3,)).evaluated(Knowing(), strides=[1, 2], on_note=told.append)
    assert pairs_of(result) == [(0, 1), (1, 2), (2, 4), (4, 5), (5, 6), (6, 7)]
    assert told == ['frame 3 cannot be decoded: cut off']


def test_many_frames_that_cannot_be_decoded_are_counted() -> None:
    told: list[str] = []
    World(12, bad=(3, 4, 5, 6, 7)).evaluated(Knowing(), on_note=told.append)
    assert told == [*(f'frame {number} cannot be decoded: cut off' for number in (3, 4, 5)),
                    '5 of 12 frames cannot be decoded; the first 3 are named']


def test_images_without_texture_are_noted_with_what_to_check() -> None:
    told: list[str] = []
    world = World(4)
    world._load = lambda number: np.full((HEIGHT, WIDTH), 3, np.uint8)
    world.evaluated(Knowing(), on_note=told.append)
    assert told == ['4 of 4 images are black, white or without texture: check the lens cap, the exposure, and whether the camera '
                    'needs --image-bits']


def test_matches_that_do_not_come_back_are_told_apart() -> None:
    class DriftingStream(KnowingStream):
        def process(self, shown: ShownFrame) -> Prediction | None:
            before = self.previous
            sighting = super().process(shown)
            if sighting is None or before < self.previous:
                return sighting
            (first, second, _), count = sighting.points, len(sighting.points.reference)
            wrong = np.where(np.arange(count)[:, None] < count // 4, np.float32(5), np.float32(0))
            return sighting._replace(points=MatchedPoints(first, second + wrong))  # a quarter goes elsewhere on the way back

    (result,) = World(6).evaluated(Knowing(streams=DriftingStream))
    assert result.summary()['forward_backward'] == pytest.approx(75, abs=2)
    assert len(result.forward_backward) == 5


def test_a_pause_changes_no_frame_rate() -> None:
    assert World(6, {3: 60 * 10**9}).timeline().period_s == PERIOD * 1e-9


def test_a_slow_camera_has_longer_gaps() -> None:
    slow = World(6, dict.fromkeys(range(6), 2 * 10**9)).timeline()
    assert slow.max_gap_s == 6.0
    assert len(set(slow.segments)) == 1


def test_two_frames_are_needed() -> None:
    with pytest.raises(BagError, match='there is 1 frame that can be used: matching takes two'):
        World(1).timeline()


def test_images_without_stamps_are_named() -> None:
    with pytest.raises(BagError, match=r'header\.stamp of all 4 images is 0 s: the camera driver must stamp each image'):
        Timeline.of([Frame(0, number, dict, number=number) for number in range(4)], 1.0)


@pytest.mark.parametrize(('period_ns', 'noted'), [
    (33 * 10**9, '33 s'), (33_000_000 * 10**9, '3.3e+07 s'), (33_000, '3.3e-05 s'), (33_000_000, ''), (5 * 10**9, '')])
def test_stamps_in_another_unit_are_noted(period_ns: int, noted: str) -> None:
    timeline = Timeline.of([Frame(period_ns * number, number, dict, number=number) for number in range(4)], 1.0)
    assert [note.partition(' apart')[0] for note in timeline.notes] == [f'the images are {noted}'] * bool(noted)


def test_backward_pairs_are_spread_over_the_recording() -> None:
    chosen = World(200, {100: 5 * 10**9}).timeline().pairs(BACKWARD_PAIRS)
    assert len(chosen) == BACKWARD_PAIRS
    assert chosen[0] == (0, 1)
    assert chosen[-1] == (198, 199)
    assert all(b == a + 1 for a, b in chosen)
    assert (99, 100) not in World(200, {100: 5 * 10**9}).timeline().pairs(1000)


@pytest.mark.slow
def test_others_of_ours_are_compared_with_the_first_on_the_same_pair() -> None:
    first, half, baseline = World(6).evaluated(Knowing('a'), Knowing('b', share=0.5), Knowing('SIFT', ours=False), strides=[1, 2])
    assert 'retention' not in first.summary()
    assert 'retention' not in baseline.summary()
    for stride in (1, 2):
        summary = half.summary(stride)
        assert summary['retention'] == pytest.approx(50, abs=1)
        assert summary['count_ratio'] == pytest.approx(50, abs=1)
        assert summary['agreement_f1'] == pytest.approx(200 / 3, abs=1)


def test_without_ground_truth_or_intrinsics_pose_metrics_are_missing() -> None:
    world = World(8)
    (blind,) = world.evaluated(Knowing(), scene=Scene(world.timeline()))
    summary = blind.summary()
    assert {'matches', 'track_survival', 'track_length', 'forward_backward', 'fps'} <= set(summary)
    assert not any(name.startswith(('pose', 'precision', 'ate', 'rpe', 'drift')) for name in summary)
    assert blind.odometry is None
    (seeing,) = world.evaluated(Knowing(), scene=Scene(world.timeline(), CAMERA))
    assert seeing.summary()['inlier_ratio'] > 99
    assert 'pose_auc@5' not in seeing.summary()
    assert seeing.odometry is not None
    assert (seeing.odometry.scale, seeing.odometry.true_poses) == ('unit', None)


def test_only_the_worst_pairs_get_their_images() -> None:
    world = World(10)
    world.first = 7
    (result,) = world.evaluated(Knowing(noise=0.7), strides=[1, 2])
    errors = sorted(result.pairs[1]['pose_error_deg'], reverse=True)
    assert [drawn.badness for drawn in result.worst_pairs] == errors[:WORST]
    assert [drawn.frames for drawn in result.middle_pair] == [(11, 12)]
    for drawn in with_images([*result.worst_pairs, *result.middle_pair], world.read_by(stopped=lambda: True)):
        assert [7 + int(image[0, 0]) for image in drawn.images] == list(drawn.frames)
        assert drawn.errors_px is not None
        assert len(drawn.errors_px) == len(drawn.points.reference)


def test_an_end_asked_for_leaves_what_was_done() -> None:
    world, asked = World(20), []

    def stopped() -> bool:
        asked.append(None)
        return len(asked) > 7

    (result,), kept = scored([Knowing()], world.read_by(stopped=stopped), [1, 2])
    assert kept.interrupted
    assert pairs_of(result) == [(k, k + 1) for k in range(6)]
    assert pairs_of(result, 2) == [(0, 2), (2, 4), (4, 6)], 'all strides have come as far'
    assert kept.covered == 7
    assert result.summary()['ate_m'] < 1e-3


def test_a_backend_that_fails_leaves_what_was_done() -> None:
    class FailingStream(KnowingStream):
        def process(self, shown: ShownFrame) -> Prediction | None:
            if shown.image[0, 0] == 4:
                raise EngineError('the GPU is gone')
            return super().process(shown)

    (result,), kept = scored([Knowing(streams=FailingStream)], World(8).read_by(), [1, 2])
    assert (kept.interrupted, kept.failure) == (True, 'the GPU is gone')
    assert pairs_of(result) == [(0, 1), (1, 2), (2, 3)]


def test_time_is_accounted_for() -> None:
    frames = World(6).read_by()
    scored([Knowing('a'), Knowing('b', ours=False)], frames, [1])
    assert set(frames.wall.seconds) == {'reading', 'inference', 'baselines', 'estimating', 'timing'}
    assert all(seconds > 0 for seconds in frames.wall.seconds.values())


@pytest.mark.slow
def test_nothing_else_works_while_a_frame_is_timed() -> None:
    working, while_timed = Counter[str](), list[Counter[str]]()

    @contextmanager
    def work(name: str) -> Iterator[None]:
        working[name] += 1
        time.sleep(0.002)
        yield
        working[name] -= 1

    class Slow(KnowingStream):
        def process(self, shown: ShownFrame) -> Prediction | None:
            with work(self.knowing.name):
                return super().process(shown)

    class SlowMethod(Knowing):
        def alone(self) -> Alone:
            process, reset = super().alone()

            def timed(shown: ShownFrame) -> dict[str, float]:
                while_timed.append(+working)
                return process(shown)

            return Alone(timed, reset)

    def decode(number: int) -> np.ndarray:
        with work('reading'):
            return World.decode(world, number)

    world = World(12)
    slow = SlowMethod('a', streams=Slow), SlowMethod('b', ours=False, streams=Slow)
    scored(slow, Frames(world.frames, decode, Scene(world.timeline())), [1, 2])
    assert while_timed == [Counter()] * 2 * 2 * 11, 'the reference, and the frame'


def test_tracks_are_those_of_the_frontend() -> None:
    spec = EngineSpec(HEIGHT, WIDTH, 64)
    config = MatcherConfig(image_height=HEIGHT, image_width=WIDTH, max_keypoints=64)
    frontend = OurMethod('ours', SharedNetworks(NullBackend(spec), [config]), config)
    (result,) = World(7).evaluated(frontend)
    assert result.track_lengths == {7: 64}, 'the null backend matches every keypoint with itself'
    np.testing.assert_array_equal(result.pairs[1]['track_survival'], [np.nan, *[1.0] * 5])
    assert set(result.stage_ms) == {'resize', 'extract', 'match', 'track', 'place', 'frame'}
    assert all(len(values) == 6 for values in result.stage_ms.values())
    assert all(frame >= sum(stages) for frame, *stages in zip(result.stage_ms['frame'], *(
        values for stage, values in result.stage_ms.items() if stage != 'frame'), strict=True))
    assert [len(values) for values in result.cost_ms.values()] == [6, 6]


def test_live_pairs_are_scored_as_what_they_are() -> None:
    world, knowing = World(10), Knowing().stream()
    scene = Scene(world.timeline(), CAMERA, true_poses(10))
    tally = MethodScore(Predicted('live', '', True), scene, QUICK)
    scene.motion((0, 1), points=MatchedPoints(*(side[:200] for side in correct(0, 1))))  # as the offline pass leaves it
    for number in (0, 1, 4, 5):  # two frames were dropped in between
        sighting = knowing.process(ShownFrame(number, 0.0, world.decode(number)))
        if sighting is not None:
            tally.add(FramePredictions(number, {1: 0 if number == 1 else 1 if number == 4 else 4}, {1: sighting}))
    result = tally.finish()
    assert pairs_of(result) == [(0, 1), (1, 4), (4, 5)]
    assert (result.pairs[1]['pose_error_deg'] < 0.1).all()
    assert result.pairs[1]['track_survival'][1] > 0, 'frame 4 was matched with frame 1: the tracks go on'


def test_baselines_are_streams_with_a_budget() -> None:
    baseline = Baseline('sift', 100)
    assert (baseline.name, baseline.ours) == ('SIFT', False)
    assert re.fullmatch(r'SIFT 100, ratio 0.8, mutual, OpenCV with \d+ threads?', baseline.description)
    image = np.random.default_rng(0).integers(0, 256, (120, 160), np.uint8)
    stream = baseline.stream()
    assert stream.process(ShownFrame(0, 0.0, image)) is None
    sighting = stream.process(ShownFrame(1, 1.0, image))
    assert sighting is not None
    np.testing.assert_array_equal(*sighting.points[:2])


def test_variants() -> None:
    config = MatcherConfig()
    assert variants(config, []) == {'ours': config}
    light = MatcherConfig(weights='models/ours_light')
    assert variants(light, []) == {'ours_light': light}
    assert list(variants(light, ['512'])) == ['ours_light', 'ours_light 512'], 'a single one is compared with what is given'
    folders = ['weights=/new/ours', 'weights=/old/ours']
    assert list(variants(config, folders)) == folders, 'of one name'
    assert list(variants(config, folders[:1])) == ['ours', 'weights=/new/ours']
    assert list(variants(config, ['weights=ours'])) == ['ours']
    found = variants(config, ['fp32', '512'])
    assert list(found) == ['ours fp32', 'ours 512']
    assert found['ours fp32'] == dataclasses.replace(config, precision='fp32')
    assert found['ours 512'] == dataclasses.replace(config, max_keypoints=512)
    assert variants(config, ['depth_confidence=-1'])['ours depth_confidence=-1'].depth_confidence == -1
    assert variants(config, ['static_points=keep'])['ours static_points=keep'].static_points == 'keep'
    assert variants(config, ['refinement=none'])['ours none'].refinement == 'none'
    assert variants(config, ['weights=ours_light'])['ours_light'].weights == 'ours_light'
    for words, message in ((['fp12'], '--compare fp12: give precisions'), (['fp32', 'fp32'], 'each may stand there once'),
                           (['999999'], 'max_keypoints is 999999'), (['match_treshold=1'], 'did you mean match_threshold'),
                           (['match_threshold=high'], 'must be a float'), (['depth_confidence=2'], 'must lie in'),
                           (['static_points=x'], 'use one of auto, drop, keep'), (['backend=x'], 'unknown setting'),
                           (['reference=alternate'], 'it changes nothing here')):
        with pytest.raises(ConfigError, match=message):
            variants(config, words)


def test_what_cannot_be_had_is_said_and_not_faked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(config: MatcherConfig) -> Opened:
        if config.precision == 'fp8':
            raise EngineError('no FP8 here')
        return Opened(NullBackend(config.engine_spec('fp32')), 'null', 'only a null one' if config.precision == 'fp16' else '')

    monkeypatch.setattr(methods, 'open_backend', opened)
    world, notes = World(4), list[str]()
    frames, kept = world.read_by(Scene(world.timeline()), on_note=notes.append), Predictions(tmp_path)
    predict(variants(MatcherConfig(), ['fp32', 'fp16', 'fp8']), [], frames, (1,), kept)
    assert [method.name for method in kept.methods] == ['ours fp32', 'ours fp16']
    assert not kept.interrupted
    assert notes == ['ours fp16: only a null one', 'ours fp8 is unavailable: no FP8 here']
    with pytest.raises(EngineError, match='no FP8 here'):
        predict(variants(MatcherConfig(precision='fp8'), []), [], frames, (1,), Predictions(tmp_path))
