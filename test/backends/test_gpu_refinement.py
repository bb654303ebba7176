"""The TensorRT backend on an emulated device: the camera's frame goes up once, and refined points come back."""

from __future__ import annotations

import atexit
import dataclasses
import gc
import hashlib
import weakref
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import pytest
from support.emulated_device import EmulatedGpu, EmulatedTensorRT
from support.networks import light, moved, photo
from support.stereo_pairs import plain_rig
from support.written_engines import ADA, OURS, TENSORRT, WANTED, put
from support.written_plans import written_plans

from lightglue_trt_eval.demo.flight import textured_frames
from lightglue_trt_eval.times import board_check
from lightglue_trt_eval.times.stages import device_times, measure_stages
from lightglue_trt_ros.backends import gpu_refinement as placing
from lightglue_trt_ros.backends import tensorrt
from lightglue_trt_ros.backends.cuda import KERNELS, Cuda
from lightglue_trt_ros.backends.onnxruntime import OnnxRuntimeBackend
from lightglue_trt_ros.core.backend import RefiningBackend
from lightglue_trt_ros.core.config import EngineSpec, MatcherConfig
from lightglue_trt_ros.core.correspondences import Sought, correspond
from lightglue_trt_ros.core.depth_zero import DepthZero
from lightglue_trt_ros.core.early_exit import EarlyExits
from lightglue_trt_ros.core.frame_matcher import FrameMatcher
from lightglue_trt_ros.core.geometry import resize_gray, to_original
from lightglue_trt_ros.core.masks import Mask
from lightglue_trt_ros.core.refinement import Pyramid, refine_points
from lightglue_trt_ros.core.stereo import RightImage
from lightglue_trt_ros.core.types import Thresholds
from lightglue_trt_ros.engines.manifest import Identity
from lightglue_trt_ros.engines.selection import Opened
from lightglue_trt_ros.utils.errors import EngineError

pytestmark = pytest.mark.networks

SPEC, EARLY_EXITS = EngineSpec(160, 216, 192), EarlyExits((0, 2, 4))
ENGINE = SPEC.image_height, SPEC.image_width
CONFIG = MatcherConfig(image_height=SPEC.image_height, image_width=SPEC.image_width, max_keypoints=SPEC.max_keypoints)
# pixels, and shares: before OpenCV 5 cv2.remap rounds to 1/32 of a pixel
CLOSE, ALIKE = (0.02, 0.02) if int(cv2.__version__.partition('.')[0]) >= 5 else (0.05, 0.15)
DRIFT = 0.01  # pixels a frame: differences add up along a track


@pytest.fixture(scope='module')
def plans():
    return written_plans(SPEC, light(), EARLY_EXITS)


@pytest.fixture(scope='module')
def gpu():
    with EmulatedGpu().installed() as device:
        yield device


def opened_on(gpu, plans):
    return tensorrt.TensorRTBackend(EmulatedTensorRT(gpu), SPEC, EARLY_EXITS, plans, 'emulated',
                                    score_calibration=light().score_calibration)


@pytest.fixture(scope='module')
def backend(plans, gpu):
    opened = opened_on(gpu, plans)
    yield opened
    opened.close()


@pytest.fixture(scope='module')
def on_host():
    return OnnxRuntimeBackend(SPEC, light(), early_exits=EARLY_EXITS)


def pair(size):
    image = photo('coffee', *size)
    return image, moved(image, 3, 1.02, (4, -3))[0]


def points_of(features, size):
    return to_original(features.keypoints, ENGINE, size)


def apart(covariances, expected):
    """Distances of matrices (N, 2, 2), as shares of the expected ones; one of a point that was not refined has zeros."""
    return np.linalg.norm(covariances - expected, axis=(1, 2)) / np.linalg.norm(expected, axis=(1, 2))


@pytest.mark.parametrize('size', [ENGINE, (240, 320), (120, 300), (90, 120)], ids=str)
def test_matches_are_returned_refined_as_on_the_host(backend, gpu, size):
    assert isinstance(backend, RefiningBackend)
    images = pair(size)
    for _ in range(3):  # plainly, while it is captured, and as captured
        reference, current = (backend.extract_frame(image) for image in images)
        carried = np.random.default_rng(0).uniform(20, 100, (50, 2)).astype(np.float32)
        points = np.concatenate([points_of(reference, size) + np.float32(0.25), carried])
        waits = gpu.waits
        found, placed = backend.match_and_refine(reference, current, Thresholds(), points)
        assert gpu.waits == waits + 1, 'one wait for both'
        rows = np.flatnonzero(found.indices >= 0)
        unit = max(size[0] / ENGINE[0], size[1] / ENGINE[1])
        lost = np.setdiff1d(np.arange(len(points)), rows)
        refined = refine_points(Pyramid(images[0], unit), Pyramid(images[1], unit), points[[*rows, *lost]],
                                points_of(current, size)[found.indices[rows]])
        expected, others = (refined.take(part) for part in np.split(np.arange(len(points)), [len(rows)]))
        assert len(rows) > 60
        assert np.mean(np.linalg.norm(placed.points[rows] - expected.points, axis=1) < CLOSE) >= 0.98
        assert np.mean(np.linalg.norm(placed.points[lost] - others.points, axis=1) < CLOSE) >= 0.9
        assert np.median(apart(placed.covariances[rows], expected.covariances)) < ALIKE
        again = backend.refine(reference, current, found.indices, points)
        np.testing.assert_array_equal(again.points, placed.points)
        np.testing.assert_array_equal(again.covariances, placed.covariances)
        del reference, current


@pytest.mark.parametrize('size', [ENGINE, (240, 320)], ids=str)
def test_correspondences_come_back_as_the_host_finds_them(backend, gpu, size):
    images, unit = pair(size), max(size[0] / ENGINE[0], size[1] / ENGINE[1])
    allowed = np.full(size, 255, np.uint8)
    allowed[:, :size[1] // 2] = 0
    for mask in (None, None, Mask(allowed), None):  # plainly, while it is captured, and as captured
        reference, current = (backend.extract_frame(image) for image in images)
        lost = np.random.default_rng(0).uniform(20, 100, (50, 2)).astype(np.float32)
        points = np.concatenate([points_of(reference, size) + np.float32(0.25), lost])
        sought = Sought(points, np.random.default_rng(1).random(len(points)) < 0.7, mask, 1e9)
        waits = gpu.waits
        answer, found = backend.correspond(reference, current, Thresholds(), sought)
        assert gpu.waits == waits + 1, 'one wait for all'
        refined = backend.refine(reference, current, answer.indices, points)
        expected = correspond(sought, answer, points_of(current, size), size, unit,
                              lambda rows, _, all_rows=refined: all_rows.take(rows))
        assert expected.matched > 60
        assert len(expected.rows) > expected.matched
        np.testing.assert_array_equal(found.rows, expected.rows)
        np.testing.assert_array_equal(found.next_rows, expected.next_rows)
        for name in ('reference_points', 'points', 'covariances', 'scores'):
            np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-5, err_msg=name)
        assert (found.matched, found.inliers) == (expected.matched, expected.inliers)
        assert found.quantile == pytest.approx(expected.quantile, rel=1e-4)
        assert backend.correspond(reference, current, Thresholds(), sought._replace(fit_limit=0.0))[1] is None
        del reference, current


@pytest.mark.parametrize('size', [ENGINE, (240, 320)], ids=str)
def test_easy_frame_matches_before_first_layer_as_on_the_host(backend, on_host, gpu, size):
    matchers, wall = [FrameMatcher(each, CONFIG) for each in (backend, on_host)], photo('coffee', size[0] + 20, size[1] + 60)
    for number in range(8):  # plainly, while it is captured, and as captured
        image = wall[number:, 3 * number:][:size[0], :size[1]].copy()
        waits = gpu.waits
        mine = matchers[0].process(image, 0.1 * number)
        waits = gpu.waits - waits
        theirs = matchers[1].process(image, 0.1 * number)
        if mine is None:
            continue
        assert (mine.layers, theirs.layers, mine.note) == (0, 0, '')
        assert number < 2 or waits <= 2, 'for the frame before to be uploaded, and for all'
        assert len(mine.matched()) == pytest.approx(len(theirs.matched()), abs=4)
        apart = np.linalg.norm(mine.matched().keypoints[:, None] - theirs.matched().keypoints, axis=2)
        assert np.median(apart.min(axis=1)) < 0.05
        np.testing.assert_allclose(mine.matched().scores.mean(), theirs.matched().scores.mean(), atol=0.02)
    ran = [key[3:] for key in backend._graphs if key[0] == 'correspond']
    assert (0, -1) in ran


@pytest.mark.parametrize('elsewhere', [False, True], ids=['own thread', 'another thread'])
def test_unclosed_backend_is_closed_at_exit_only_by_its_own_thread(plans, gpu, monkeypatch, elsewhere):
    at_exit = []
    monkeypatch.setattr(atexit, 'register', at_exit.append)
    left = opened_on(gpu, plans)
    try:
        if elsewhere:
            with ThreadPoolExecutor(1) as threads:
                threads.submit(at_exit[0]).result()
        else:
            at_exit[0]()
        assert hasattr(left, '_matcher') == elsewhere
    finally:
        left.close()
    gone = weakref.ref(left)
    del left
    gc.collect()
    assert gone() is None, 'what is called at exit does not keep it'
    at_exit[0]()


def test_alternating_exit_thresholds_apply_with_one_wait_per_match(backend, gpu):
    reference, current = (backend.extract(image) for image in pair(ENGINE))
    for number in range(3):
        for least, at_zero in ((0.4, True), (0.1, False)):
            waits = gpu.waits
            found = backend.match(reference, current, Thresholds(match=least, at_zero=at_zero))
            scores = found.scores[found.indices >= 0]
            assert (scores.min() > 0.4) == at_zero
            assert number == 0 or gpu.waits == waits + 1


def test_a_refused_try_is_timed_with_the_layers_and_leaves_the_guess_alone(backend, monkeypatch):
    marks, mark = [], backend.cuda.mark
    monkeypatch.setattr(backend.cuda, 'mark', lambda event: (marks.append(event), mark(event))[1])
    reference, current = (backend.extract(image) for image in pair(ENGINE))
    for at_zero, begun in ((True, 1), (False, 1), (False, 2), (True, 3)):
        found = backend.match(reference, current, Thresholds(at_zero=at_zero))
        assert (found.layers == 0) == at_zero
        assert marks.count(backend._marks['match']) == begun


def test_the_gpus_time_of_frames_is_measured_with_and_without_layers(backend):
    wall = photo('coffee', ENGINE[0] + 20, ENGINE[1] + 20)
    images = [wall[x:x + ENGINE[0], x:x + ENGINE[1]].copy() for x in range(4)]
    found = measure_stages(backend, CONFIG, iter(images))
    assert (found.layers, found.stages['gpu']) == ([0, 0, 0], [2.0, 2.0, 2.0]), 'the emulated device takes 1 ms for each'
    times = device_times(backend, iter(images))
    assert len(times['together']) == len(times['at exit 0']) == 3


def test_check_of_a_board_runs_through_its_engines(plans, gpu, on_host, monkeypatch, tmp_path):
    def opened(config, depth=None):
        if config.backend == 'onnxruntime':
            assert depth == EARLY_EXITS
            return Opened(on_host, 'CPU')
        return Opened(opened_on(gpu, plans), 'emulated')
    monkeypatch.setattr(board_check, 'open_backend', opened)
    monkeypatch.setattr(on_host, 'close', lambda: None)
    put(tmp_path, dataclasses.replace(Identity.of_engines(SPEC, OURS, TENSORRT, ADA), ends=WANTED.ends))
    config = dataclasses.replace(CONFIG, engine_dir=str(tmp_path))
    found = board_check.check_shape(config, lambda count, *size: textured_frames(count, *size), 3)
    assert (found.name, found.engine, found.build_s, found.disagreements) == (SPEC.name, 'emulated', 3.5, [])
    assert len(found.stages_ms['frame']) == len(found.device_ms['at exit 0']) == len(board_check.LEVELS)


def test_features_of_a_frame_are_those_of_the_resized_one(backend, on_host):
    image, _ = pair((240, 320))
    plain = on_host.extract(resize_gray(image, ENGINE))
    found = backend.extract_frame(image)
    apart = np.linalg.norm(found.keypoints[:, None] - plain.keypoints, axis=2).min(axis=1)
    assert np.mean(apart < 0.1) > 0.9


def test_a_frame_goes_up_once_and_nothing_else_of_its_size(backend, gpu):
    size = (240, 320)
    reference, current = (backend.extract_frame(image) for image in pair(size))
    points = points_of(reference, size)
    backend.match_and_refine(reference, current, Thresholds(), points)
    before = gpu.uploaded
    del reference
    later = backend.extract_frame(pair(size)[0])
    backend.match_and_refine(current, later, Thresholds(), points)
    assert gpu.uploaded - before == size[0] * size[1] + 2 * points.nbytes + 2 * SPEC.max_keypoints, 'and which are searched'


def test_mask_is_uploaded_only_on_change_and_applies_in_cuda_graphs(backend, gpu):
    left = np.zeros(ENGINE, np.uint8)
    left[:, :100] = 1
    right = 1 - left
    images, uploads = pair((240, 320)), []
    backend.extract_frame(images[0])  # what depends on the size goes up
    for mask in (left, left, right, left, left, None, None):  # each slot's graph was captured with another one, or none
        for take, image in ((backend.extract_frame, images[0]), (backend.extract, resize_gray(images[1], ENGINE))):
            before = gpu.uploaded
            found = take(image, mask)
            uploads.append(gpu.uploaded - before - image.size)
            u = found.keypoints[found.scores > 0][:, 0]
            assert len(u) > 100
            assert (u.min() > 99) == (mask is right)
            assert (u.max() < 100) == (mask is left)
            del found
    assert uploads == [left.size * changed for changed in (1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0)]


def test_refines_twice_max_keypoints_and_refuses_one_more(backend):
    images = pair((240, 320))
    reference, current = (backend.extract_frame(image) for image in images)
    points = np.random.default_rng(0).uniform(30, 200, (2 * SPEC.max_keypoints, 2)).astype(np.float32)
    nothing = np.full(SPEC.max_keypoints, -1, np.int32)
    found = backend.refine(reference, current, nothing, points)
    assert found.points.shape == points.shape
    assert found.covariances.shape == (len(points), 2, 2)
    assert len(backend.refine(reference, current, nothing, points[:0]).points) == 0
    with pytest.raises(EngineError, match=f'room for {len(points)}'):
        backend.refine(reference, current, nothing, np.concatenate([points, points[:1]]))


def test_another_size_is_another_camera(backend):
    first, second = (backend.extract_frame(photo('coffee', *size)) for size in ((240, 320), (200, 300)))
    points = points_of(first, (240, 320))
    with pytest.raises(EngineError, match='two frames of one size'):
        backend.match_and_refine(first, second, Thresholds(), points)
    del first
    third = backend.extract_frame(photo('coffee', 200, 300))
    backend.match_and_refine(second, third, Thresholds(), points)
    with pytest.raises(EngineError, match='two frames of one size'):
        backend.refine(third, backend.extract(photo('coffee', *ENGINE)), np.zeros(SPEC.max_keypoints, np.int32), points)


@pytest.mark.parametrize('at_zero', [False, True])
def test_exit_is_predicted_separately_for_temporal_and_stereo_pairs(backend, monkeypatch, at_zero):
    """A camera that stands, so that pairs in time are easy, beside one that sees something else: one launch each."""
    left, launches = photo('coffee', *ENGINE), []
    right = left[::-1].copy()
    pictures = [backend.extract(image) for image in (left, left, right)]
    easy, hard = (list(backend.match_exits(pictures[0], other, Thresholds()))[1].confident for other in pictures[1:])
    assert hard + 0.1 < easy
    del pictures

    def launch(pair, first, last, refine=False, launch=backend._launch):
        launches.append((first, last))
        launch(pair, first, last, refine)

    monkeypatch.setattr(backend, '_launch', launch)
    monkeypatch.setattr(DepthZero, 'due', lambda self: at_zero)
    matcher = FrameMatcher(backend, dataclasses.replace(CONFIG, depth_confidence=(easy + hard) / 2))
    for number in range(4):
        launches.clear()
        matcher.process(left, 0.1 * number, RightImage(right, plain_rig(size=ENGINE)))
    assert launches == [(0, -1 if at_zero else 0), (0, 1)]


def test_frees_cuda_graphs_when_image_size_changes(backend, gpu):
    """Long enough for each slot's graph to be captured, and launched with the buffers of another size."""
    found, counts = {}, []
    for size in ((240, 320), (200, 300)) * 3:
        for _ in range(4):  # in turn through the slots: plainly, captured, and as captured
            reference, current = (backend.extract_frame(image) for image in pair(size))
            matches, placed = backend.match_and_refine(reference, current, Thresholds(), points_of(reference, size))
            expected = found.setdefault(size, (matches, placed))
            np.testing.assert_array_equal(matches.indices, expected[0].indices)
            np.testing.assert_array_equal(placed.points, expected[1].points)
            del reference, current
        assert len(gpu.graphs) == sum(graph is not None for graph in backend._graphs.values())
        counts.append(len(gpu.graphs))
    assert len(set(counts[1:])) == 1


def notes_of(backend, count=6):
    """Of as many pairs, all of which are matched."""
    images, notes = pair((160, 240)), []
    for _ in range(count):
        reference, current = (backend.extract_frame(image) for image in images)
        found, _ = backend.match_and_refine(reference, current, Thresholds(), np.zeros((1, 2), np.float32))
        notes.append(found.note)
        assert (found.indices >= 0).sum() > 60
        del reference, current
    return notes


def test_failed_graph_capture_is_noted_with_the_next_matches_alone(backend, monkeypatch):
    tried = []

    def fail(work):
        tried.append(work)
        raise EngineError('the capture failed: CUDA_ERROR_STREAM_CAPTURE_INVALIDATED')

    monkeypatch.setattr(backend.cuda, 'capture', fail)
    monkeypatch.setattr(backend, '_graphs', {})
    monkeypatch.setattr(backend, '_not_captured', '')
    assert notes_of(backend) == ['CUDA graphs are given up, which costs time: the capture failed: '
                                 'CUDA_ERROR_STREAM_CAPTURE_INVALIDATED', *[''] * 5]
    assert len(tried) == 1


def test_graph_capture_that_fails_at_start_is_described_and_not_noted(plans, monkeypatch):
    def fail(self, work):
        raise EngineError('the capture failed: CUDA_ERROR_UNKNOWN')

    def on_another_gpu():
        with EmulatedGpu().installed() as gpu:
            opened = opened_on(gpu, plans)
            notes = notes_of(opened, 2)
            opened.close()
        return opened.description, notes

    monkeypatch.setattr(Cuda, 'capture', fail)
    with ThreadPoolExecutor(1) as thread:  # contexts belong to threads
        description, notes = thread.submit(on_another_gpu).result()
    assert ', plain enqueue (the capture failed: CUDA_ERROR_UNKNOWN), ' in description
    assert notes == ['', '']


def test_on_a_jetson_whose_memory_is_one_the_same_is_found(backend, plans):
    points = np.random.default_rng(0).uniform(30, 200, (40, 2)).astype(np.float32)

    def found(opened):
        for _ in range(4):
            reference, current = (opened.extract_frame(image) for image in pair((240, 320)))
            matches, placed = opened.match_and_refine(reference, current, Thresholds(), points)
            yield matches.indices, placed.points, placed.covariances
            del reference, current

    def on_a_jetson():
        with EmulatedGpu(integrated=True).installed() as gpu:
            opened = opened_on(gpu, plans)
            sent = gpu.uploaded
            everything = list(found(opened))
            assert gpu.uploaded == sent, 'frames and points are where the kernels read them'
            opened.close()
        return everything

    with ThreadPoolExecutor(1) as thread:  # contexts belong to threads
        for mine, theirs in zip(thread.submit(on_a_jetson).result(), found(backend), strict=True):
            for one, other in zip(mine, theirs, strict=True):
                np.testing.assert_array_equal(one, other)


def test_what_runs_is_made_of_what_is_there_to_read():
    headers = b''.join(path.read_bytes() for path in sorted(KERNELS.glob('*.h')))
    for source in KERNELS.glob('*.cu'):
        digest = hashlib.sha256(headers + source.read_bytes()).hexdigest()
        assert digest in source.with_suffix('.ptx').read_text().partition('\n')[0], f'{source.name} has changed: make kernels'


def test_cameras_of_other_sizes_in_turn_are_each_as_if_alone(backend, monkeypatch):
    """One after the other, and then in turn: buffers are made once for each, and only pairs of one camera are captured."""
    made, cameras = [], ((240, 320), (200, 300))
    monkeypatch.setattr(placing.Camera, '__init__', lambda self, *rest, init=placing.Camera.__init__: (
        made.append(self), init(self, *rest))[1])

    def frame(size, number):
        return moved(photo('coffee', *size), number, 1 + 0.01 * number, (2 * number, -number))[0]

    expected = []
    for size in cameras:
        alone = FrameMatcher(backend, CONFIG)
        expected.append([alone.process(frame(size, number), 0.1 * number) for number in range(3)])
    del alone
    made.clear()
    matchers = [FrameMatcher(backend, CONFIG) for _ in cameras]
    for number in range(3):
        for camera, (size, matcher) in enumerate(zip(cameras, matchers, strict=True)):
            backend.select_camera(camera)
            found = matcher.process(frame(size, number), 0.1 * number)
            if number:
                np.testing.assert_array_equal(found.keypoints, expected[camera][number].keypoints)
                np.testing.assert_array_equal(found.covariances, expected[camera][number].covariances)
    backend.select_camera(0)
    assert len(made) == 2
    matched = [key for key in backend._graphs if key[0] in ('match', 'refine', 'correspond')]
    pairs = [{index // tensorrt.SLOTS for index in key[1:3]} for key in matched]
    assert all(pair in ({0}, {1}) for pair in pairs)
    firsts = [key[1] // tensorrt.SLOTS for key in matched if key[0] == 'correspond']
    assert firsts.count(1) == firsts.count(0) > 0


@pytest.mark.parametrize('size', [ENGINE, (240, 320)], ids=str)
def test_captures_no_graph_after_first_two_frames_whatever_exits(plans, gpu, monkeypatch, size):
    backend = opened_on(gpu, plans)
    captures, capture = [], backend.cuda.capture
    monkeypatch.setattr(backend.cuda, 'capture', lambda work: (captures.append(1), capture(work))[1])
    images = [moved(photo('coffee', *size), number, 1 + 0.02 * number, (3 * number, -number))[0] for number in range(4)]
    counts, layers = [], set()
    for depth in (CONFIG.depth_confidence, 0.01, -1.0):
        matcher = FrameMatcher(backend, dataclasses.replace(CONFIG, depth_confidence=depth))
        for number in range(8):
            found = matcher.process(images[number % 4], float(number))
            layers.add(found.layers if found else None)
            counts.append(len(captures))
        del matcher
    backend.close()
    assert len(layers) > 2
    assert counts[0] == (0 if size == ENGINE else tensorrt.SLOTS)
    assert counts[1] == counts[-1], 'the first pair has captured what all others need'
    assert (counts[1] == 0) == (size == ENGINE), 'a camera of the size of the engine was prepared when it was opened'


@pytest.mark.parametrize('reference', ['previous', 'keyframe'])
def test_frame_matcher_on_gpu_refines_and_propagates_as_on_the_host(backend, on_host, reference):
    """Also where placement is turned off and on again."""
    config = dataclasses.replace(CONFIG, reference=reference)
    matchers = [FrameMatcher(each, config) for each in (backend, on_host)]
    for number in range(7):
        image = moved(photo('coffee', 240, 320), number, 1 + 0.01 * number, (2 * number, -number))[0]
        for matcher in matchers:
            matcher.config = dataclasses.replace(config, refinement='none') if number == 5 else config
        mine, theirs = (matcher.process(image, 0.1 * number) for matcher in matchers)
        if mine is None:
            continue
        assert len(mine) == pytest.approx(len(theirs), abs=10)
        assert (mine.carried > 0).sum() == pytest.approx((theirs.carried > 0).sum(), abs=8)
        assert np.median(np.linalg.norm(mine.keypoints[:, None] - theirs.keypoints, axis=2).min(axis=1)) < DRIFT * min(number, 4)
        assert set(mine.stage_ms) == set(theirs.stage_ms) - ({'resize'} if number != 5 else set())


def test_the_frontend_finds_the_same_right_points_on_the_device(backend, on_host):
    """In the slots that one camera has: a reference, the current frame and its right image."""
    matchers = [FrameMatcher(each, CONFIG) for each in (backend, on_host)]
    rig, wall = plain_rig(size=(240, 320)), photo('coffee', 240, 400)
    for number, x in enumerate(range(0, 12, 3)):
        mine, theirs = (matcher.process(wall[:, x:x + 320], 0.1 * number, RightImage(wall[:, x + 9:x + 329], rig))
                        for matcher in matchers)
        if mine is None:
            continue
        known = np.isfinite(mine.right_keypoints[:, 0])
        assert known.sum() == pytest.approx(np.isfinite(theirs.right_keypoints[:, 0]).sum(), abs=10)
        assert known.mean() > 0.8
        assert np.median(np.linalg.norm(mine.keypoints[known] - mine.right_keypoints[known] - [9, 0], axis=1)) < 0.1


def test_kept_features_match_as_before_and_release_their_memory(backend, gpu):
    """Keyframes: further frames overwrite the slots, not what was copied out of them."""
    size = (240, 320)
    features = [backend.extract_frame(image) for image in pair(size)]
    free = len(gpu.memory), len(gpu.pinned)
    expected, keypoints = backend.match(*features, Thresholds()), features[0].keypoints.copy()
    kept = [backend.keep(each) for each in features]
    del features
    for seed in range(4):
        backend.extract_frame(np.random.default_rng(seed).integers(0, 255, size).astype(np.uint8))
    found = backend.match(*kept, Thresholds())
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_array_equal(found.scores, expected.scores)
    np.testing.assert_array_equal(kept[0].keypoints, keypoints)
    np.testing.assert_allclose(np.linalg.norm(kept[0].descriptors[:50].astype(np.float32), axis=1), 1, atol=1e-2)
    current = backend.extract_frame(pair(size)[1])
    assert np.count_nonzero(backend.match(kept[0], current, Thresholds()).indices >= 0) == np.count_nonzero(expected.indices >= 0)
    again = backend.keep(kept[1])
    np.testing.assert_array_equal(again.descriptors, kept[1].descriptors)
    del kept, again, current
    gc.collect()
    assert (len(gpu.memory), len(gpu.pinned)) == free
