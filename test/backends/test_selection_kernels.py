"""The selection's kernels on the emulated device: the keypoints, scores and descriptors of the graph."""

from __future__ import annotations

import dataclasses
import re
from functools import cache
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
import spox.opset.ai.onnx.v17 as op
from hypothesis import example, given, settings
from hypothesis import strategies as st
from spox import Tensor, argument, build
from support.cuda_threads import ThreadedCuda
from support.emulated_device import EmulatedGpu
from support.networks import SMALL, extract, light, ours, photo, session
from support.on_host import scores_on_host, select_on_host

from lightglue_trt_ros.backends import gpu_selection
from lightglue_trt_ros.backends.cuda import KERNELS, Cuda
from lightglue_trt_ros.backends.gpu_selection import GpuSelection
from lightglue_trt_ros.core.config import EngineSpec
from lightglue_trt_ros.networks import superpoint as graphs
from lightglue_trt_ros.networks.architecture import BORDER
from lightglue_trt_ros.networks.superpoint import superpoint, superpoint_maps
from lightglue_trt_ros.utils.errors import EngineError

DIGITS = {np.float32: 1e-5, np.float16: 1e-3}  # of descriptors


@cache
def graph(spec: EngineSpec, channels: int):
    """The extractor's graph from its scores and descriptors on: a session."""
    size = spec.image_height, spec.image_width
    net = graphs._SuperPoint(spec, SimpleNamespace(tensors={'convDb.weight': np.zeros((channels, 1, 1, 1))}))
    scores, mask = argument(Tensor(np.float32, (1, 1, *size))), argument(Tensor(np.uint8, size))
    dense = argument(Tensor(np.float32, (1, channels, size[0] // 8, size[1] // 8)))
    allowed, detectable = graphs.mask_scores(scores, mask)
    pixels, best = net.detect(detectable)
    outputs = {'keypoints': graphs.refine(allowed, pixels), 'scores': best,
               'descriptors': net.describe(dense, op.cast(pixels, to=np.float32))}
    return session(build({'of_pixels': scores, 'dense': dense, 'mask': mask}, outputs))


def by_kernels(logits, dense, mask, spec, *, channels_last: bool = False):
    """After another selection in the same memory -> keypoints, scores, descriptors, scores of all pixels."""
    count, channels = spec.max_keypoints, dense.shape[1]
    if channels_last:
        logits, dense = (np.ascontiguousarray(np.pad(each.transpose(0, 2, 3, 1), [*[(0, 0)] * 3, (0, -each.shape[1] % 8)]))
                         for each in (logits, dense))
    with EmulatedGpu().installed() as gpu:
        cuda = Cuda()
        selection = GpuSelection(cuda, spec, channels, dense.dtype, logits.shape, dense.shape)
        inputs = [cuda.staged(each.shape, each.dtype) for each in (logits, dense, mask)]
        found = [cuda.staged(shape, dtype) for shape, dtype in (((count, 2), np.float32), ((count,), np.float32),
                                                                ((count, channels), dense.dtype))]
        for maps in ((-logits, -dense, mask[::-1]), (logits, dense, mask)):
            for staged, values in zip(inputs, maps, strict=True):
                np.copyto(staged.array, values)
                cuda.send(staged)
            selection.enqueue(*inputs, *found)
            cuda.synchronize()
        for each in found:
            cuda.receive(each)
        cuda.synchronize()
        size = spec.image_height * spec.image_width
        scores = gpu.at(selection._scores.address)[:4 * size].view(np.float32).reshape(mask.shape).copy()
        results = [each.array.copy() for each in found]
        del found, inputs, staged, each
        cuda.close()
    return *results, scores


def assert_agreement(logits, dense, mask, spec, *, channels_last: bool = False) -> np.ndarray:
    """With the softmax in its scores, with the graph that goes on from these in its rows, with the host in rows without a keypoint.

    Another exp has other last digits, and so another order of nearly equal scores: from the same scores on, the order is exact.
    Returns which rows have a keypoint.
    """
    keypoints, found, descriptors, scores = by_kernels(logits, dense, mask, spec, channels_last=channels_last)
    np.testing.assert_allclose(scores, scores_on_host(logits[0]), rtol=2e-6, atol=1e-12)
    expected = graph(spec, dense.shape[1]).run(None, {
        'of_pixels': scores[None, None], 'dense': dense.astype(np.float32), 'mask': mask})
    expected = dict(zip(('keypoints', 'scores', 'descriptors'), expected, strict=True))
    np.testing.assert_array_equal(found, expected['scores'])
    rows, digits = found > 0, DIGITS[dense.dtype.type]
    np.testing.assert_allclose(keypoints[rows], expected['keypoints'][rows], atol=1e-4)
    np.testing.assert_allclose(descriptors[rows].astype(np.float32), expected['descriptors'][rows], atol=digits)
    assert not found[np.argmin(rows):].any() or rows.all()
    if not rows.all():
        on_host = select_on_host(logits, dense, mask, spec)
        np.testing.assert_allclose(keypoints[~rows], np.broadcast_to(on_host[0][-1], keypoints[~rows].shape), atol=1e-4)
        np.testing.assert_allclose(descriptors[~rows], np.broadcast_to(on_host[2][-1], descriptors[~rows].shape), atol=digits)
        assert np.abs(keypoints[~rows] - BORDER).max() <= 2
    return rows


def cells_of(pixels: np.ndarray) -> np.ndarray:
    """(H, W) -> (1, 64, H / 8, W / 8)."""
    height, width = pixels.shape
    return pixels.reshape(height // 8, 8, width // 8, 8).transpose(1, 3, 0, 2).reshape(1, 64, height // 8, width // 8)


def random_logits(kind: str, height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    shape = height // 8, width // 8
    if kind == 'ties':  # a few cells of a few values each, many times
        palette = rng.integers(0, 3, (3, 65))
        return np.moveaxis(palette[rng.integers(0, 3, shape)], -1, 0)[None].astype(np.float32)
    if kind == 'flat':
        return np.zeros((1, 65, *shape), np.float32)
    pixels = rng.normal(size=(height, width)).astype(np.float32)
    if kind == 'smooth':
        pixels = 20 * cv2.GaussianBlur(pixels, (0, 0), 3)
    if kind == 'plateaus':
        pixels = np.round(4 * cv2.GaussianBlur(pixels, (0, 0), 2))
    nowhere = np.full((1, 1, *shape), 1e4 if kind == 'nowhere' else 2.0)  # no keypoint here
    return np.concatenate([cells_of(pixels), nowhere], axis=1).astype(np.float32)


def random_mask(kind: str, height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    mask = np.full((height, width), kind != 'one pixel is allowed' and kind != 'nothing is', np.uint8)
    v, u = rng.integers(0, [height, width])
    if kind == 'rectangles':
        for _ in range(8):
            (top, bottom), (left, right) = (np.sort(rng.integers(0, side, 2)) for side in (height, width))
            mask[top:bottom, left:right] = rng.choice([0, 1, 255])
    elif kind.startswith('one pixel'):
        mask[v, u] = 1 - mask[v, u]
    elif kind == 'noise':
        mask[rng.random(mask.shape) < 0.05] = 0
    return mask


def random_inputs(height, width, logits, mask, dtype, channels, seed):
    rng = np.random.default_rng(seed)
    dense = rng.normal(size=(1, channels, height // 8, width // 8)).astype(dtype)
    return np.ascontiguousarray(random_logits(logits, height, width, rng), dtype), dense, random_mask(mask, height, width, rng)


def spec_of(height: int, width: int, count: int) -> EngineSpec:
    return EngineSpec(height, width, min(count, (height - 8) * (width - 8) // 16))


def test_the_kernels_have_the_sizes_of_the_graph_and_of_what_launches_them():
    source = (KERNELS / 'selection.cu').read_text()
    found = {name: int(value) for name, value in re.findall(
        r'\b(CELL|RADIUS|BORDER|BLOCK|REFINE_RADIUS|CHANNELS|TILE|CHOOSERS) = (\d+)[,;]', source)}
    names = {name: name if name != 'RADIUS' else 'NMS_RADIUS' for name in found}
    assert len(found) == 8
    alone, shared = ('RADIUS', 'REFINE_RADIUS'), ('CELL', 'BORDER', 'BLOCK')  # these the launcher has as well
    of_the_graph = {name: found[name] for name in shared} | {name: found.pop(name) for name in alone}
    assert found == {name: getattr(gpu_selection, name) for name in found}
    assert of_the_graph == {name: getattr(graphs, names[name]) for name in of_the_graph}


SHAPES = [  # height and width in cells, with any remainder of a tile's four; keypoints; channels: each has a graph of its own
    (8, 8, 16, 9), (9, 22, 1024, 256), (23, 11, 100, 64), (36, 33, 3840, 9), (14, 19, 16, 256), (13, 16, 1024, 64),
    (15, 21, 100, 9), (18, 12, 3840, 256)]


@pytest.mark.slow
@settings(derandomize=True, max_examples=60)
@given(shape=st.sampled_from(SHAPES), logits=st.sampled_from(['noise', 'smooth', 'ties', 'plateaus', 'flat', 'nowhere']),
       mask=st.sampled_from(['everything', 'nothing is', 'rectangles', 'noise', 'one pixel', 'one pixel is allowed']),
       dtype=st.sampled_from([np.float16, np.float32]), seed=st.integers(0, 2**16), channels_last=st.booleans())
@example(shape=(192, 256, 3840, 64), logits='noise', mask='rectangles', dtype=np.float16, seed=0, channels_last=False)
@example(shape=(60, 80, 1024, 256), logits='smooth', mask='everything', dtype=np.float16, seed=0, channels_last=False)
@example(shape=(60, 80, 1024, 256), logits='ties', mask='everything', dtype=np.float32, seed=0, channels_last=True)
@example(shape=(60, 80, 1000, 8), logits='flat', mask='noise', dtype=np.float32, seed=0, channels_last=False)
@example(shape=(8, 8, 196, 8), logits='noise', mask='noise', dtype=np.float32, seed=0, channels_last=False)
def test_keypoints_are_those_of_the_graph(shape, logits, mask, dtype, seed, channels_last):
    (height, width), (count, channels) = (8 * shape[0], 8 * shape[1]), shape[2:]
    inputs = random_inputs(height, width, logits, mask, dtype, channels, seed)
    rows = assert_agreement(*inputs, spec_of(height, width, count), channels_last=channels_last)
    assert rows.any() or mask != 'everything' or logits == 'nowhere'


@pytest.mark.parametrize(('count', 'logits', 'mask', 'dtype'), [
    (20, 'smooth', 'rectangles', np.float16), (40, 'ties', 'everything', np.float32), (200, 'noise', 'noise', np.float16)])
def test_a_thread_for_each_of_the_gpu_s_finds_the_same_keypoints(count, logits, mask, dtype):
    logits, dense, mask = random_inputs(64, 72, logits, mask, dtype, 40, 0)
    spec = EngineSpec(64, 72, count)
    expected = by_kernels(logits, dense, mask, spec)
    threaded: Any = GpuSelection(ThreadedCuda(), spec, 40, dtype, logits.shape, dense.shape)
    for _ in range(2):
        found = [np.full(each.shape, 77, each.dtype) for each in expected[:3]]
        threaded.enqueue(logits, dense, mask, *found)
        for values, other in zip((*found, threaded._scores), expected, strict=True):
            np.testing.assert_allclose(values.astype(np.float32), other.astype(np.float32), rtol=1e-6, atol=DIGITS[dtype])


def test_an_image_without_keypoints_has_none_and_ties_are_many():
    """What the random inputs above are for is in them."""
    for kind, least, most in (('nowhere', 0, 0), ('flat', 400, 400), ('ties', 100, 400), ('plateaus', 20, 400)):
        logits, dense, mask = random_inputs(128, 160, kind, 'everything', np.float32, 8, 0)
        _, found, _, _ = by_kernels(logits, dense, mask, EngineSpec(128, 160, 400))
        assert least <= np.sum(found > 0) <= most, kind
        assert kind == 'nowhere' or len(np.unique(found[found > 0])) < np.sum(found > 0), kind


@pytest.mark.parametrize('bad', [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize('dtype', [np.float16, np.float32])
def test_a_cell_that_is_not_finite_has_no_keypoint_and_harms_no_other(bad, dtype):
    logits, dense, mask = random_inputs(128, 160, 'smooth', 'everything', dtype, 16, 0)
    spec, harmless = EngineSpec(128, 160, 200), logits.copy()
    logits[0, :, 3, 4] = logits[0, 7, 10, 12] = logits[0, 64, 8, 8] = bad
    for row, column in ((3, 4), (10, 12), (8, 8)):
        harmless[0, :, row, column], harmless[0, 64, row, column] = 0, 1e4
    assert assert_agreement(logits, dense, mask, spec).sum() > 30
    if bad != -np.inf:  # of one pixel that is a 0 as good as any
        for one, other in zip(by_kernels(logits, dense, mask, spec), by_kernels(harmless, dense, mask, spec), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.networks
@pytest.mark.parametrize('model', [ours, light])
def test_photographs_have_the_keypoints_of_the_whole_graph(model):
    image, mask = photo('coffee', 240, 328), np.ones((240, 328), np.uint8)
    mask[100:140, 50:200] = 0
    logits, dense = session(superpoint_maps(SMALL, model().extractor)).run(['logits', 'dense'], {'image': image})
    expected = extract(session(superpoint(SMALL, model().extractor)), image, mask)
    for found in (by_kernels(logits, dense, mask, SMALL), select_on_host(logits, dense, mask, SMALL)):
        np.testing.assert_allclose(found[1], expected.scores, rtol=1e-5)
        # scores that are nearly equal may change places
        rows = np.linalg.norm(found[0][:, None] - expected.keypoints, axis=2).argmin(axis=0)
        assert sorted(rows) == list(range(len(rows)))
        np.testing.assert_allclose(found[0][rows], expected.keypoints, atol=1e-4)
        np.testing.assert_allclose(found[2][rows], expected.descriptors, atol=1e-5)


@pytest.mark.networks
@pytest.mark.parametrize('precision', ['fp16', 'fp32'])
def test_the_maps_are_in_the_engine_s_precision(precision):
    outputs = session(superpoint_maps(dataclasses.replace(SMALL, precision=precision), light().extractor)).get_outputs()
    kind = {'fp16': 'tensor(float16)', 'fp32': 'tensor(float)'}[precision]
    assert [(each.name, each.type, each.shape) for each in outputs] == [
        ('logits', kind, [1, 65, 30, 41]), ('dense', kind, [1, 256, 30, 41])]


@pytest.mark.parametrize(('channels', 'dtype'), [(257, np.float16), (64, np.float64), (0, np.float32)])
def test_descriptors_and_types_that_the_kernels_do_not_take_are_refused(channels, dtype):
    with EmulatedGpu().installed():
        cuda = Cuda()
        with pytest.raises(EngineError, match=f'not {channels} of'):
            GpuSelection(cuda, EngineSpec(64, 64, 16), channels, dtype, (1, 65, 8, 8), (1, channels, 8, 8))
        cuda.close()
