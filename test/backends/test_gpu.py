"""Real TensorRT on a real GPU: make gpu-test. Everywhere else these tests skip, and say why.

LIGHTGLUE_TRT_TEST_ENGINES keeps the engines between runs; LIGHTGLUE_TRT_TACTIC_SOURCES limits TensorRT's tactics.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from support.evaluated_streams import evaluated_beside_the_node

from lightglue_trt_eval.score.pair_score import score_pair
from lightglue_trt_ros.backends.onnxruntime import OnnxRuntimeBackend
from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.core.config import EngineSpec, MatcherConfig
from lightglue_trt_ros.core.correspondences import Sought, correspond
from lightglue_trt_ros.core.depth_zero import DepthZero
from lightglue_trt_ros.core.early_exit import EarlyExits
from lightglue_trt_ros.core.frame_matcher import FrameMatcher
from lightglue_trt_ros.core.geometry import resize_gray, to_original
from lightglue_trt_ros.core.refinement import Pyramid, Refined, refine_points
from lightglue_trt_ros.core.types import HostFeatures, Thresholds
from lightglue_trt_ros.datasets.image_folders import ImagesFolder
from lightglue_trt_ros.engines.gpu_info import probe
from lightglue_trt_ros.engines.parity import distances, failures, parity
from lightglue_trt_ros.engines.selection import open_backend
from lightglue_trt_ros.engines.tensorrt_api import open_tensorrt
from lightglue_trt_ros.networks.models import load_model
from lightglue_trt_ros.odometry.two_view import pose_auc
from lightglue_trt_ros.utils.errors import EngineError
from lightglue_trt_ros.utils.processes import memory_mib

for module in ('tensorrt', 'pycuda'):
    if importlib.util.find_spec(module) is None:
        pytest.skip(f'{module} is not installed: engines cannot run here', allow_module_level=True)
try:
    MACHINE = probe()
except EngineError as error:
    pytest.skip(f'no GPU: {error}'.partition('\n')[0], allow_module_level=True)

from lightglue_trt_ros.backends.cuda import Cuda, Graph
from lightglue_trt_ros.backends.tensorrt import SLOTS, TensorRTBackend

pytestmark = pytest.mark.gpu

REPOSITORY = Path(__file__).resolve().parents[2]
SHAPES = {'full': EngineSpec(480, 640, 1024), 'small': EngineSpec(240, 320, 512)}
MODEL = 'ours_light'  # no test here is of one model: the faster one to build
EXITS = EarlyExits.of(4)
SOURCES = os.environ.get('LIGHTGLUE_TRT_TACTIC_SOURCES', '')
SETS = {  # every engine set of these tests: folder, shape, precision, more options
    'default': ('default', 'full', 'fp16'),
    'fp32': ('default', 'small', 'fp32'),
    'one stage': ('one_stage', 'small', 'fp16', '--attention', 'tensorrt', '--stages', '4'),
}


@pytest.fixture(scope='session')
def engine_sets(tmp_path_factory) -> Path:
    """The folder of all engine sets."""
    return Path(os.environ.get('LIGHTGLUE_TRT_TEST_ENGINES') or tmp_path_factory.mktemp('engines'))


def config_of(engine_dir: Path, shape: str = 'full', precision: str = 'fp16', **settings) -> MatcherConfig:
    spec = SHAPES[shape]
    return MatcherConfig(backend='tensorrt', weights=MODEL, engine_dir=str(engine_dir), precision=precision,
                         image_height=spec.image_height, image_width=spec.image_width, max_keypoints=spec.max_keypoints, **settings)


def build_arguments(engine_sets: Path, name: str) -> list[str]:
    folder, shape, precision, *more = SETS[name]
    spec = SHAPES[shape]
    sources = ['--tactic-sources', SOURCES] if SOURCES else []
    return ['--height', str(spec.image_height), '--width', str(spec.image_width), '--max-keypoints', str(spec.max_keypoints),
            '--weights', MODEL, '--precision', precision, '--engine-dir', str(engine_sets / folder),
            '--opt-level', '1',  # results are tested, not times
            *sources, *more]


@pytest.fixture(scope='session')
def builds(engine_sets) -> dict[str, tuple[int, str]]:
    """Exit code and output of the build of each engine set.

    They are built at the same time, but one by one where the GPU shares the memory of the CPU.
    """
    started = {}
    engine_sets.mkdir(parents=True, exist_ok=True)
    for name in SETS:
        output = engine_sets / f'{name}.log'
        command = [sys.executable, '-m', 'lightglue_trt_ros.cli.build_engines', *build_arguments(engine_sets, name)]
        with output.open('w') as stream:
            process = subprocess.Popen(command, cwd=REPOSITORY, stdout=stream, stderr=subprocess.STDOUT)
        started[name] = process, output
        if MACHINE.integrated:
            process.wait()
    return {name: (process.wait(), output.read_text()) for name, (process, output) in started.items()}


@pytest.fixture(scope='session')
def engines(engine_sets, builds) -> Path:
    """The folder with FP16 engines of the full shape and FP32 engines of the small one."""
    return engine_sets / 'default'


@pytest.fixture(scope='session')
def one_stage(engine_sets, builds) -> Path:
    """The folder with FP16 engines of the small shape, all layers in one, with TensorRT's attention."""
    return engine_sets / 'one_stage'


@pytest.fixture
def backend(engines):
    """Opened for one test, which may leave it as it likes."""
    backend = open_backend(config_of(engines)).backend
    yield backend
    backend.close()


@pytest.fixture(scope='module')
def shared_backend(engines):
    """Opened once: for tests that leave it as it was."""
    backend = open_backend(config_of(engines)).backend
    yield backend
    backend.close()


@pytest.fixture(scope='module')
def cpu():
    """ONNX Runtime in FP32 at the full shape."""
    return OnnxRuntimeBackend(SHAPES['full'], load_model(MODEL))


@functools.cache
def gray_images(folder: Path) -> list[np.ndarray]:
    return [image if image.ndim == 2 else cv2.cvtColor(image, cv2.COLOR_BGR2GRAY) for _, image in ImagesFolder(folder).images()]


def engine_images(folder: Path) -> list[np.ndarray]:
    """Of the full shape."""
    return [resize_gray(image, (480, 640)) for image in gray_images(folder)]


def frames(count: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        yield rng.integers(0, 256, (480, 640), np.uint8)


@pytest.mark.parametrize('name', SETS)
def test_engines_build_pass_their_check_and_are_not_built_twice(engine_sets, builds, name, capsys):
    from lightglue_trt_ros.cli.build_engines import main
    code, output = builds[name]
    print(output)
    assert code == 0
    assert 'parity check: passed' in output
    assert main(build_arguments(engine_sets, name)) == 0
    again = capsys.readouterr().out
    assert 'nothing to build' in again
    assert 'ros2 ' in again.strip().splitlines()[-1]


@pytest.mark.parametrize('sequence', ['kitti_short_1', 'hololens'])
def test_fp16_engines_keep_keypoints_and_matches_of_real_frames(shared_backend, cpu, shared_data, sequence):
    images = engine_images(shared_data / sequence)[:8]
    found = parity(shared_backend, cpu, images)
    print(sequence, found)
    assert not failures(found, 'fp16')


def test_fp16_costs_less_than_a_point_of_pose_auc(shared_backend, cpu, engines, shared_data):
    recording, images = ImagesFolder(shared_data / 'kitti_short_1'), gray_images(shared_data / 'kitti_short_1')
    camera, poses, areas = recording.intrinsics.k, recording.ground_truth().poses, []
    for backend in (cpu, shared_backend):
        matcher = FrameMatcher(backend, config_of(engines))
        errors = []
        for row, image in enumerate(images):
            found = matcher.process(image, 0.1 * row)
            if found is not None:
                points = found.reference_keypoints, found.keypoints
                errors.append(score_pair((row - 1, row), 0.1 * row, points, camera, poses[row - 1], poses[row]).pair.pose_error_deg)
        areas.append(pose_auc(errors))
        print(backend.description, areas[-1])
    for full, half in zip(*areas, strict=True):
        assert half >= full - 0.01


def test_two_thousand_frames_grow_neither_device_nor_host_memory(backend, engines):
    matcher = FrameMatcher(backend, config_of(engines))
    pool = list(frames(16))
    before = None
    for i in range(2000):
        matcher.process(pool[i % 16], 0.1 * i)
        if i == 200:
            before = backend.cuda.memory_mib()[0], memory_mib(os.getpid())
    after = backend.cuda.memory_mib()[0], memory_mib(os.getpid())
    print(f'device {before[0] - after[0]:.1f} MiB, host {after[1] - before[1]:.1f} MiB, peak of the engines '
          f'{backend.device_memory_mib:.0f} MiB')
    assert before[0] - after[0] < 4
    assert after[1] - before[1] < 10


def test_matches_are_equal_with_and_without_cuda_graphs(engines):
    spec = EngineSpec(480, 640, 1024, 'fp16')
    plans = {path.stem: path.read_bytes() for path in (engines / f'{MODEL}-{spec.name}').glob('*.plan')}
    assert 'self-1' in plans, 'our attention'
    found = []
    for graphs in (True, False):
        backend = TensorRTBackend(open_tensorrt(), spec, EXITS, plans, 'test', cuda_graphs=graphs)
        print(backend.description)
        features = [backend.extract(image) for image in frames(2)]
        found.append((features[0].keypoints.copy(), backend.match(features[0], features[1], Thresholds())))
        del features
        backend.close()
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1].indices, found[1][1].indices)


@pytest.mark.parametrize('precision', ['fp16', 'fp32'])
def test_engines_with_tensorrt_s_attention_keep_matches_of_real_frames(engines, one_stage, shared_data, precision):
    folder = one_stage if precision == 'fp16' else engines
    plans = {path.stem for path in folder.glob(f'[!.]*-240x320-k512-{precision}/*.plan')}
    assert 'extractor' in plans
    assert 'self-1' not in plans, 'our attention'
    backend = open_backend(config_of(folder, 'small', precision)).backend
    reference = OnnxRuntimeBackend(SHAPES['small'], load_model(MODEL), early_exits=backend.early_exits)
    found = parity(backend, reference, [resize_gray(image, (240, 320)) for image in gray_images(shared_data / 'kitti_short_1')[:8]])
    print(found)
    backend.close()
    assert not failures(found, precision)


def test_slots_come_back_and_holding_too_many_is_refused(backend):
    images = list(frames(4))
    held = [backend.extract(image) for image in images[:SLOTS]]
    with pytest.raises(EngineError, match='held already'):
        backend.extract(images[3])
    del held
    backend.extract(images[3])


def test_cameras_in_turn_are_each_as_if_alone(backend, engines, shared_data):
    """Frames of two sizes, an easy recording and a hard one."""
    config = config_of(engines)
    cameras = [gray_images(shared_data / name)[:8] for name in ('kitti_short_1', 'tartanair_hospital')]
    alone = []
    for images in cameras:
        matcher = FrameMatcher(backend, config)
        alone.append([matcher.process(image, 0.1 * number) for number, image in enumerate(images)])
    free = backend.cuda.memory_mib()[0]
    del matcher
    matchers = [FrameMatcher(backend, config) for _ in cameras]
    for number, images in enumerate(zip(*cameras, strict=True)):
        for camera, (matcher, image) in enumerate(zip(matchers, images, strict=True)):
            backend.select_camera(camera)
            found, expected = matcher.process(image, 0.1 * number), alone[camera][number]
            if number:
                np.testing.assert_array_equal(found.keypoints, expected.keypoints)
                np.testing.assert_array_equal(found.covariances, expected.covariances)
                assert found.layers == expected.layers
    print(f'another camera takes {free - backend.cuda.memory_mib()[0]:.0f} MiB of the GPU')
    assert all(key[1] // SLOTS == key[2] // SLOTS for key in backend._graphs if key[0] in ('match', 'refine', 'correspond'))


def test_a_failing_extract_gives_its_slot_back(backend):
    for _ in range(SLOTS + 1):
        with pytest.raises(ValueError, match='broadcast'):
            backend.extract(np.zeros((10, 10), np.uint8))
    backend.extract(next(frames(1)))


def test_thresholds_change_between_frames(backend):
    image = next(frames(1))
    features = backend.extract(image)
    other = backend.extract(image)
    many = np.sum(backend.match(features, other, Thresholds(0.1, 0.0)).indices >= 0)
    none = np.sum(backend.match(features, other, Thresholds(0.1, 1.0)).indices >= 0)
    assert many > 0
    assert none == 0


def test_masks_change_between_frames_and_hold_in_captured_graphs(backend):
    image = next(frames(1))
    left = (np.arange(640) < 320).astype(np.uint8) * np.ones((480, 1), np.uint8)
    right = 1 - left
    plain = backend.extract(image).keypoints.copy()
    times = {}
    for name, mask in [('none', None), ('left', left), ('left', left), ('right', right), ('none', None)] * 3:
        for take in (backend.extract, backend.extract_frame):
            features = take(image, mask)
            keypoints = features.keypoints[features.scores > Thresholds().detection]
            times.setdefault((take.__name__, name), []).append(backend.device_ms()['extract'])
            assert len(keypoints) > 200
            assert (keypoints[:, 0].max() < 320) == (name == 'left')
            assert (keypoints[:, 0].min() > 319) == (name == 'right')
            if mask is None and take == backend.extract:
                np.testing.assert_array_equal(features.keypoints, plain)
            del features
    print('device ms', {key: round(float(np.median(values)), 3) for key, values in times.items()})


def test_a_second_context_beside_the_first(backend, engines):
    results, image = {}, next(frames(1))

    def work() -> None:
        other = open_backend(config_of(engines)).backend
        results['other'] = other.extract(image).keypoints.copy()
        other.close()

    thread = threading.Thread(target=work)
    thread.start()
    mine = backend.extract(image).keypoints.copy()
    thread.join()
    np.testing.assert_array_equal(results['other'], mine)


def test_engines_open_again_after_close(engines):
    for _ in range(3):
        opened = open_backend(config_of(engines))
        opened.backend.extract(next(frames(1)))
        opened.backend.close()
        opened.backend.close()
        with pytest.raises(EngineError):
            opened.backend.extract(next(frames(1)))


def test_a_flipped_byte_is_found_and_auto_falls_back_with_a_warning(one_stage, tmp_path):
    name = next(one_stage.glob('[!.]*-240x320-k512-fp16')).name
    shutil.copytree(one_stage / name, tmp_path / name)
    plan = tmp_path / name / 'extractor.plan'
    data = bytearray(plan.read_bytes())
    data[len(data) // 2] ^= 1
    plan.write_bytes(data)
    with pytest.raises(EngineError, match='damaged'):
        open_backend(config_of(tmp_path, 'small'))
    opened = open_backend(replace(config_of(tmp_path, 'small'), backend='auto'))
    assert 'ONNX Runtime' in opened.backend.description
    assert 'damaged' in opened.warning
    assert 'build_engines' in opened.warning
    opened.backend.close()


def test_exhausted_device_memory_raises_and_backend_stays_usable(backend):
    with pytest.raises(EngineError, match='exhausted'):
        backend.cuda.device((1 << 44,), np.uint8)
    backend.extract(next(frames(1)))


def test_without_memory_the_backend_does_not_open_and_with_it_opens_again(engines):
    with contextlib.closing(Cuda()) as hog:
        held = hog.device((int((hog.memory_mib()[0] - 10) * 2**20),), np.uint8)  # the driver gives what earlier tests left besides
        with pytest.raises(EngineError) as caught:
            open_backend(config_of(engines))
        print(type(caught.value).__name__, caught.value)
        assert 'memory' in str(caught.value).lower()
        hog.free(held)
        opened = open_backend(config_of(engines))
        opened.backend.extract(next(frames(1)))
        opened.backend.close()


def test_the_exit_is_the_first_one_whatever_the_pair_before_took(backend, shared_data):
    images = engine_images(shared_data / 'kitti_short_1')[:12:4]
    pairs = [(images[0], images[0]), (images[0], images[2]), *[tuple(frames(2))]]
    expected = [matched(backend, pair, Thresholds(depth_confidence=0.9)) for pair in pairs]
    print('layers', [found.layers for found in expected])
    assert len({found.layers for found in expected}) > 1
    for number in (0, 1, 0, 2, 2, 1, 2, 0, 1, 1):
        found = matched(backend, pairs[number], Thresholds(depth_confidence=0.9))
        assert found.layers == expected[number].layers
        np.testing.assert_array_equal(found.indices, expected[number].indices)
    for pair in pairs:
        assert matched(backend, pair, Thresholds()).layers == EXITS.ends[-1]


def test_the_decision_on_the_gpu_is_the_cpus(shared_backend, cpu, shared_data):
    images = engine_images(shared_data / 'kitti_short_1')[:9]
    layers = [[matched(each, pair, Thresholds(depth_confidence=0.97)).layers for pair in itertools.pairwise(images)]
              for each in (shared_backend, cpu)]
    print('GPU', layers[0], 'CPU', layers[1])
    assert sum(gpu == cpu for gpu, cpu in zip(*layers, strict=True)) >= 6


def test_every_exit_is_what_the_matcher_gives_where_it_stops_there(backend, shared_data):
    images = engine_images(shared_data / 'kitti_short_1')[:5:4]
    features = [backend.extract(image) for image in images]
    exits = list(backend.match_exits(*features, Thresholds()))
    assert [each.layers for each in exits] == list(EXITS.ends)
    assert all(np.sum(each.indices >= 0) > 100 for each in exits)
    for depth_confidence in (0.01, 0.9, -1.0):
        found = backend.match(*features, Thresholds(depth_confidence=depth_confidence))
        same = next(each for each in exits if each.layers == found.layers)
        np.testing.assert_array_equal(same.indices, found.indices)


@pytest.mark.parametrize('sequence', ['kitti_short_1', 'kitti_short_2', 'hololens'])
def test_easy_frames_match_before_first_layer_as_on_cpu_with_one_wait(
        backend, cpu, engines, shared_data, monkeypatch, sequence):
    config, waits, synchronize = config_of(engines), [], backend.cuda.synchronize
    monkeypatch.setattr(backend.cuda, 'synchronize', lambda: (waits.append(1), synchronize())[1])
    matchers = [FrameMatcher(each, config) for each in (backend, cpu)]
    layers, apart = [], []
    for number, image in enumerate(gray_images(shared_data / sequence)[:8]):
        waits.clear()
        mine = matchers[0].process(image, 0.1 * number)
        waited, theirs = len(waits), matchers[1].process(image, 0.1 * number)
        if mine is None:
            continue
        layers.append((mine.layers, theirs.layers))
        if not any(layers[-1]):
            assert number < 2 or waited == 1
            assert len(mine.matched()) == pytest.approx(len(theirs.matched()), rel=0.03)
            assert mine.matched().scores.mean() == pytest.approx(theirs.matched().scores.mean(), abs=0.02)
            apart.append(displacements_apart(mine.matched(), theirs.matched()))
    print(sequence, 'layers on the GPU and the CPU', layers, 'deviations apart', np.quantile(np.concatenate(apart), [0.5, 0.9]))
    assert sum(mine == theirs for mine, theirs in layers) >= 6
    assert sum(mine == 0 for mine, _ in layers) >= 5
    assert np.median(np.concatenate(apart)) < 0.25


def displacements_apart(found, expected) -> np.ndarray:
    """(N,) distance of the displacements of equal reference keypoints, in standard deviations of `found`."""
    between = np.linalg.norm(found.reference_keypoints[:, None] - expected.reference_keypoints, axis=2)
    rows, others = np.flatnonzero(between.min(axis=1) < 0.5), between.argmin(axis=1)
    moved, moved_there = (each.keypoints - each.reference_keypoints for each in (found, expected))
    return np.linalg.norm(moved[rows] - moved_there[others[rows]], axis=1) / found.sigmas[rows]


def test_matches_before_first_layer_agree_with_cpu_for_equal_features(backend, cpu, shared_data):
    images = engine_images(shared_data / 'hololens')[:3]
    for pair in itertools.pairwise(images):
        features = [backend.keep(backend.extract(image)) for image in pair]
        copies = [HostFeatures(each.keypoints, each.scores, each.descriptors.astype(np.float32)) for each in features]
        found, expected = (each.match(*given, Thresholds(at_zero=True)) for each, given in ((backend, features), (cpu, copies)))
        assert found.layers == expected.layers == 0
        both = (found.indices >= 0) & (found.indices == expected.indices)
        print(np.sum(found.indices >= 0), np.sum(expected.indices >= 0), np.sum(both))
        assert np.sum(both) >= 0.98 * max(np.sum(each.indices >= 0) for each in (found, expected))
        assert np.abs(found.scores - expected.scores)[both].mean() < 0.01


def test_frame_rejected_before_first_layer_matches_as_without_attempt(backend, engines, shared_data, monkeypatch):
    images, found = gray_images(shared_data / 'tartanair_hospital')[:13:4], []
    for tries in (True, False):
        monkeypatch.setattr(DepthZero, 'due', lambda self, tries=tries: tries)
        matcher = FrameMatcher(backend, config_of(engines))
        found.append([matcher.process(image, 0.1 * number) for number, image in enumerate(images)][1:])
    for tried, expected in zip(*found, strict=True):
        print('layers', tried.layers, expected.layers)
        if not tried.layers:  # later frames continue from other points
            break
        assert tried.layers == expected.layers
        np.testing.assert_array_equal(tried.keypoints, expected.keypoints)
        np.testing.assert_array_equal(tried.covariances, expected.covariances)
    assert found[0][0].layers


def matched(backend, pair, thresholds):
    return backend.match(backend.extract(pair[0]), backend.extract(pair[1]), thresholds)


def test_engines_of_one_stage_run_all_layers_and_it_is_said(one_stage):
    opened = open_backend(config_of(one_stage, 'small'))
    assert 'run all layers' in opened.warning
    image = np.ascontiguousarray(next(frames(1))[:240, :320])
    assert matched(opened.backend, (image, image), Thresholds(depth_confidence=0.5)).layers == 4
    opened.backend.close()
    opened = open_backend(config_of(one_stage, 'small', depth_confidence=-1.0))
    assert not opened.warning
    opened.backend.close()


def test_a_context_belongs_to_its_thread_and_closes_twice():
    cuda = Cuda()
    assert cuda.memory_mib()[1] == pytest.approx(MACHINE.total_mib, rel=0.05)
    cuda.close()
    cuda.close()


def device_array(backend, memory, shape, dtype):
    staged = backend.cuda.staged(shape, dtype)._replace(address=memory.address)
    backend.cuda.receive(staged)
    backend.cuda.synchronize()
    return staged.array


CAMERAS = pytest.mark.parametrize('sequence', ['kitti_short_1', 'kitti_short_2', 'hololens', 'tartanair_hospital'])


@CAMERAS
def test_gpu_resizes_frame_and_builds_pyramid_as_the_cpu(shared_backend, shared_data, sequence):
    image = gray_images(shared_data / sequence)[3]
    features = shared_backend.extract_frame(image)
    if image.shape != (480, 640):  # else the extractor reads the frame itself
        resized = device_array(shared_backend, shared_backend._image, (480, 640), np.uint8)
        apart = np.abs(resized.astype(int) - resize_gray(image, (480, 640)))
        print(sequence, image.shape, f'{np.mean(apart > 0):.2%} differ, by at most {apart.max()}')
        assert apart.max() <= 1
    levels = Pyramid(image, max(image.shape[0] / 480, image.shape[1] / 640)).levels
    level = shared_backend._refiner.cameras[0]._levels[features.slot.index]
    found = device_array(shared_backend, level, (level.nbytes // 4,), np.float32)
    np.testing.assert_allclose(found, np.concatenate([level.ravel() for level in levels]), atol=1e-2)


@CAMERAS
@pytest.mark.parametrize('stride', [1, 4])
def test_points_are_refined_on_the_gpu_as_on_the_host(shared_backend, shared_data, sequence, stride):
    images = gray_images(shared_data / sequence)[:8 * stride:stride]
    size = images[0].shape
    unit, apart, deviations, alike, again = max(size[0] / 480, size[1] / 640), [], [], [], []
    for before, image in itertools.pairwise(images):
        reference, current = shared_backend.extract_frame(before), shared_backend.extract_frame(image)
        points0, points1 = (to_original(features.keypoints, (480, 640), size) for features in (reference, current))
        found, placed = shared_backend.match_and_refine(reference, current, Thresholds(), points0)
        rows = np.flatnonzero(found.indices >= 0)
        matched = points0[rows], points1[found.indices[rows]]
        expected = refine_points(Pyramid(before, unit), Pyramid(image, unit), *matched)
        placed = Refined(placed.points[rows], placed.covariances[rows])
        for found_there, values in zip((apart, deviations), distances(placed.points, expected), strict=True):
            found_there.append(values)
        largest = np.trace(expected.covariances, axis1=1, axis2=2)
        alike.append(np.abs(placed.covariances - expected.covariances).max(axis=(1, 2)) / largest)
        again.append(distances(shared_backend.refine(reference, current, found.indices, points0).points[rows], placed)[1])
        del reference, current
    apart, deviations, alike, again = map(np.concatenate, (apart, deviations, alike, again))
    print(sequence, stride, f'{len(apart)} points, apart (median, 99 %, worst)', np.quantile(apart, [0.5, 0.99, 1]),
          'deviations', np.quantile(deviations, [0.5, 0.9, 0.99]),
          'covariances', np.quantile(alike, [0.5, 0.99]), 'by themselves', np.quantile(again, [0.5, 0.99, 1]),
          'device ms', {name: round(ms, 3) for name, ms in shared_backend.device_ms().items()})
    if int(cv2.__version__.partition('.')[0]) >= 5:
        assert np.mean(apart < 0.02) >= 0.99
        assert np.mean(alike < 0.03) >= 0.98
    else:  # the host rounds to 1/32 px, and steps along edges go astray
        assert np.mean((apart < 0.05) | (deviations < 0.5)) >= 0.9
        assert np.median(alike) < 0.1
    assert np.mean(again < 0.1) >= 0.99, 'the same matches, told by the host'


@CAMERAS
@pytest.mark.parametrize('stride', [1, 4])
@pytest.mark.parametrize(('model', 'd'), [
    ('', []), ('plumb_bob', [-0.28, 0.07, 2e-4, 2e-5]), ('equidistant', [0.003, 7e-4, -2e-3, 2e-4])])
def test_correspondences_of_the_device_are_those_of_the_host(shared_backend, shared_data, sequence, stride, model, d):
    images = gray_images(shared_data / sequence)[:8 * stride:stride]
    size, engine, rng = images[0].shape, (480, 640), np.random.default_rng(0)
    k = np.array([[0.8 * size[1], 0, size[1] / 2], [0, 0.8 * size[1], size[0] / 2], [0, 0, 1]])
    camera = Intrinsics(size[1], size[0], k, model, np.array(d)) if model else None
    unit, quantiles, same = max(size[0] / 480, size[1] / 640), [], []
    for before, image in itertools.pairwise(images):
        reference, current = shared_backend.extract_frame(before), shared_backend.extract_frame(image)
        points = to_original(reference.keypoints, engine, size)
        points = np.concatenate([points, points[::5] + np.float32(6)])  # some that are no keypoints
        sought = Sought(points, rng.random(len(points)) < 0.5, None, 1e9, camera)
        answer, found = shared_backend.correspond(reference, current, Thresholds(), sought)
        refined = shared_backend.refine(reference, current, answer.indices, points)
        expected = correspond(sought, answer, to_original(current.keypoints, engine, size), size, unit,
                              lambda rows, _, all_rows=refined: all_rows.take(rows))
        assert found.matched == expected.matched
        np.testing.assert_array_equal(found.rows[:found.matched], expected.rows[:found.matched])
        np.testing.assert_allclose(found.points[:found.matched], expected.points[:found.matched], atol=1e-3)
        np.testing.assert_allclose(found.covariances[:found.matched], expected.covariances[:found.matched], rtol=1e-3, atol=1e-6)
        rows, others = (set(each.rows[each.matched:].tolist()) for each in (found, expected))
        same.append(len(rows & others) / max(1, len(rows | others)))
        quantiles.append(found.quantile / expected.quantile)
        assert found.second_quantile == pytest.approx(expected.second_quantile, rel=0.05)
        del reference, current
    print(sequence, stride, model, 'points that continue', np.mean(same), 'quantiles', np.min(quantiles), np.max(quantiles))
    assert np.mean(same) > 0.98
    np.testing.assert_allclose(quantiles, 1, rtol=1e-3)


def test_keyframes_are_matched_again_as_on_the_host(backend, cpu, engines, shared_data):
    """A way forth and back: the first keyframe and the last, kept by the device and by ONNX Runtime."""
    images = gray_images(shared_data / 'tartanair_hospital')[5:15]  # its first frames have hardly any texture
    images += images[-2::-1]
    config, memory = config_of(engines, keyframes=20, keyframe_min_ratio=0.8), []
    matchers = {name: (FrameMatcher(each, config), []) for name, each in (('device', backend), ('host', cpu))}
    for number, image in enumerate(images):
        for matcher, stamps in matchers.values():
            matcher.process(image, 0.1 * number)
            if matcher.keyframes.newest is not None and matcher.keyframes.newest.stamp not in stamps:
                stamps.append(matcher.keyframes.newest.stamp)
        memory.append(backend.cuda.memory_mib()[0])
    print('device MiB free after each frame', np.round(memory, 1))
    of_both = sorted(set.intersection(*(set(stamps) for _, stamps in matchers.values())))  # FP16 may take one a frame later
    shifts = []
    for name, (matcher, stamps) in matchers.items():
        found = matcher.matches_between(of_both[0], of_both[-1])
        assert np.isfinite(found.covariances).all()
        assert len(found) > 200
        assert found.keypoints.shape == found.reference_keypoints.shape
        shifts.append(np.median(found.keypoints - found.reference_keypoints, axis=0))
        print(name, stamps, len(found), shifts[-1], np.median(found.sigmas))
    np.testing.assert_allclose(*shifts, atol=1)


def test_an_evaluation_finds_what_the_node_finds(backend, engines, shared_data):
    images = gray_images(shared_data / 'kitti_short_2')[:9]
    for found, expected in evaluated_beside_the_node(backend, config_of(engines), images):
        np.testing.assert_allclose(found.current, expected.keypoints, atol=1e-3)
        np.testing.assert_allclose(found.covariances, expected.covariances, rtol=1e-3, atol=1e-6)


def test_frames_of_two_sizes_and_plain_ones_take_turns(backend):
    memory = None
    for number, size in enumerate([(480, 640), (370, 1226)] * 10):
        for image in (np.random.default_rng(number).integers(0, 256, size, np.uint8) for _ in range(3)):
            reference, current = backend.extract_frame(image), backend.extract_frame(image)
            _, placed = backend.match_and_refine(reference, current, Thresholds(), np.zeros((1024, 2), np.float32))
            assert np.isfinite(placed.covariances).all()
            del reference, current
        backend.extract(next(frames(1)))
        memory = memory or (backend.cuda.memory_mib()[0] if number == 5 else None)
        held = {each for each in backend.cuda._held.values() if isinstance(each, Graph)}
        assert held == set(filter(None, backend._graphs.values())), 'none is kept that nothing launches'
    assert memory - backend.cuda.memory_mib()[0] < 64


def test_the_benchmark_measures_the_gpu(engines, capsys):
    from lightglue_trt_eval.cli.benchmark import main
    assert main(['device', 'stages', 'profile', '--backend', 'tensorrt', '--precision', 'fp16',
                 '--weights', MODEL, '--engine-dir', str(engines), '--frames', '100']) == 0
    printed = capsys.readouterr().out
    print(printed)
    for text in ("The GPU's own time", 'this machine, fp16', 'place', 'Stages of a frame', 'cross-4',
                 'Share of time by precision'):
        assert text in printed


def test_a_board_is_checked_in_one_command(engines, tmp_path):
    from lightglue_trt_eval.cli.check_board import main
    sources = ['--tactic-sources', SOURCES] if SOURCES else []
    assert main(['--backend', 'tensorrt', '--precision', 'fp16', '--weights', MODEL, '--engine-dir', str(engines),
                 '--opt-level', '1', *sources, '--shapes', '480x640:1024', '--frames', '50', '--seconds', '0',
                 '--out', str(tmp_path)]) == 0
    [shape] = json.loads((tmp_path / 'board.json').read_text())['shapes']
    assert shape['build_s'] > 0
    assert shape['disagreements'] == []


def test_the_node_on_the_gpu_over_dds(engines, shared_data, tmp_path):
    pytest.importorskip('rclpy', reason='rclpy is not installed: the node is not tested')
    from lightglue_trt_eval.cli.make_bag import main as make_bag
    from lightglue_trt_eval.replay import replay
    assert make_bag([str(shared_data / 'kitti_short_1'), str(tmp_path / 'bag')]) == 0
    config = MatcherConfig(backend='tensorrt', weights=MODEL, engine_dir=str(engines), precision='fp16', max_gap_s=10.0)
    got = replay(tmp_path / 'bag', config, hz=30.0)
    print(got.diagnostics, f'latency {np.nanmedian(got.latency_ms):.2f} ms')
    assert len(got.matches) == 50
    assert 'TensorRT' in got.diagnostics['backend']
    assert np.median([len(matches) for matches in got.matches]) > 300
