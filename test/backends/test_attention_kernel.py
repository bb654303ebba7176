"""The attention's kernels: as a GPU runs them, by a fiber for each thread, and on the emulated device; against float64."""

from __future__ import annotations

import re

import numpy as np
import pytest
from support.cuda_threads import ThreadedCuda, before_a_guard
from support.emulated_device import EmulatedGpu

from lightglue_trt_ros.backends.cuda import KERNELS, Cuda
from lightglue_trt_ros.backends.gpu_lightglue import GpuAttention
from lightglue_trt_ros.networks.architecture import HEAD_DIM
from lightglue_trt_ros.utils.errors import EngineError

GUARD = 777.0  # of what is behind an array


def run(way: str, inputs: dict[str, np.ndarray], *, cross: bool) -> tuple[np.ndarray, np.ndarray]:
    """Arrays as GpuAttention takes them: projected as it is left, and attended."""
    arrays = {name: np.append(values, np.float16([GUARD] * 64)) for name, values in inputs.items()}
    _, count, width = inputs['state'].shape
    arrays['attended'] = np.full(2 * count * 2 * width + 64, GUARD, np.float16)
    names = ('projected', 'state', 'attended') if cross else ('projected', 'cosines', 'sines', 'state', 'attended')
    if way == 'threads':
        attention = GpuAttention(ThreadedCuda(), count, width)
        (attention.enqueue_cross if cross else attention.enqueue_self)(*(arrays[name] for name in names))
    else:
        with EmulatedGpu().installed():
            cuda = Cuda()
            attention = GpuAttention(cuda, count, width)
            staged = {name: cuda.staged(values.shape, values.dtype) for name, values in arrays.items()}
            for name, values in arrays.items():
                staged[name].array[:] = values
                cuda.send(staged[name])
            (attention.enqueue_cross if cross else attention.enqueue_self)(*(staged[name] for name in names))
            cuda.synchronize()
            for each in staged.values():
                cuda.receive(each)
            cuda.synchronize()
            arrays = {name: each.array.copy() for name, each in staged.items()}
            del staged, each
            cuda.close()
    for name, values in arrays.items():
        assert np.all(values[-64:] == GUARD), f'{name} is written beyond its end'
        if name in inputs and name != 'projected':
            np.testing.assert_array_equal(values[:-64].reshape(inputs[name].shape), inputs[name])
    return arrays['projected'][:-64].reshape(inputs['projected'].shape), arrays['attended'][:-64].reshape(2, count, 2 * width)


def random_inputs(count: int, heads: int, *, cross: bool, seed: int = 0) -> dict[str, np.ndarray]:
    """In the order that GpuAttention takes them. Some logits are near 30, where a row attends to few keys, and most near 0."""
    rng = np.random.default_rng(seed)
    width = heads * HEAD_DIM
    projected = rng.normal(size=(2, count, (2 if cross else 3) * width))
    projected[..., :-width] *= rng.uniform(0.1, 1.2, (2, count, 1))
    angles = rng.uniform(0, 6, (2, 1, count, HEAD_DIM))  # of both halves, to see which sine is taken
    state = rng.normal(size=(2, count, width))
    arrays = {'projected': projected, 'cosines': np.cos(angles), 'sines': np.sin(angles), 'state': state}
    return {name: values.astype(np.float16) for name, values in arrays.items() if not cross or name in ('projected', 'state')}


def by_heads(x: np.ndarray) -> np.ndarray:
    """(2, K, heads * 64) -> float64 (2, heads, K, 64)."""
    return x.astype(np.float64).reshape(*x.shape[:2], -1, HEAD_DIM).transpose(0, 2, 1, 3)


def rotated(x: np.ndarray, cosines: np.ndarray, sines: np.ndarray) -> np.ndarray:
    """As `rotate` of networks/lightglue.py."""
    first, second = np.split(x, 2, axis=-1)
    return x * cosines + np.concatenate([-second, first], axis=-1) * sines


def context(projected: np.ndarray, width: int, *, cross: bool) -> tuple[np.ndarray, np.ndarray]:
    """What `attend` gives, (2, K, width), and the bound of its error.

    Weights are rounded to FP16 and so is the result, by 2^-11 each; weights under the smallest normal number by 2^-25. A quarter is
    added for FP32: logits with errors up to 1e-5, and the exponential's two units.
    """
    parts = [by_heads(each) for each in np.split(projected, projected.shape[2] // width, axis=2)]
    q, k, v = (parts[0], *(each[::-1] for each in parts)) if cross else parts
    logits = q @ k.transpose(0, 1, 3, 2)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    total = weights.sum(axis=-1, keepdims=True)
    bound = 1.25 * 2**-10 * (weights @ abs(v) / total) + 2**-25 * (1 + abs(v).sum(axis=-2, keepdims=True) / total)
    return tuple(each.transpose(0, 2, 1, 3).reshape(2, -1, width) for each in (weights @ v / total, bound))


@pytest.fixture(params=['threads', 'emulated device'])
def way(request) -> str:
    return request.param


def test_the_kernels_have_the_sizes_of_what_launches_them():
    sizes = re.findall(r'constexpr int (HEAD|TILE|BLOCK) = (\d+);', (KERNELS / 'attention.cu').read_text())
    assert len(sizes) == 3
    assert all(getattr(GpuAttention, name) == int(value) for name, value in sizes)
    assert GpuAttention.HEAD == HEAD_DIM
    assert GpuAttention.PIECES * 8 * 2 == HEAD_DIM


@pytest.mark.parametrize('cross', [False, True])
@pytest.mark.parametrize(('count', 'heads'), [(1, 1), (48, 4), (64, 1), (100, 2), (130, 3)])
def test_the_context_is_that_of_float64(way, count, heads, cross):
    inputs = random_inputs(count, heads, cross=cross, seed=count)
    width = heads * HEAD_DIM
    projected, attended = run(way, inputs, cross=cross)
    if cross:
        np.testing.assert_array_equal(projected, inputs['projected'])
    else:
        rotation = (inputs[name].astype(np.float64) for name in ('cosines', 'sines'))
        expected = rotated(by_heads(inputs['projected'][..., :2 * width]), *rotation)
        expected = expected.transpose(0, 2, 1, 3).reshape(2, count, 2 * width)
        np.testing.assert_allclose(projected[..., :2 * width], expected, rtol=2**-11, atol=1e-6)
        np.testing.assert_array_equal(projected[..., 2 * width:], inputs['projected'][..., 2 * width:])
    np.testing.assert_array_equal(attended[..., :width], inputs['state'])
    expected, bound = context(projected, width, cross=cross)
    error = attended[..., width:] - expected
    assert np.all(abs(error) <= bound)
    assert np.linalg.norm(error) < 1e-3 * np.linalg.norm(expected)


@pytest.mark.parametrize('cross', [False, True])
def test_a_peak_in_a_late_tile_takes_the_weight_of_those_before(way, cross):
    inputs = random_inputs(130, 1, cross=cross)
    inputs['projected'][:, :, :-HEAD_DIM] = 0
    inputs['projected'][:, :, 0] = 4
    key_at = 0 if cross else HEAD_DIM
    inputs['projected'][:, :, key_at] = np.linspace(1, 12, 130)  # a query of itself in cross attention
    if not cross:
        inputs['cosines'][:], inputs['sines'][:] = 1, 0
    projected, attended = run(way, inputs, cross=cross)
    expected, bound = context(projected, HEAD_DIM, cross=cross)
    assert np.all(abs(attended[..., HEAD_DIM:] - expected) <= bound)


def test_a_row_that_is_not_a_number_takes_its_own_context_alone(way):
    inputs = random_inputs(100, 2, cross=False)
    _, expected = run(way, inputs, cross=False)
    bad = {name: values.copy() for name, values in inputs.items()}
    bad['projected'][1, 70, 128 - 5] = np.nan  # a query of the second head
    _, attended = run(way, bad, cross=False)
    wrong = np.zeros(attended.shape, bool)
    wrong[1, 70, 2 * 128 - 64:] = True
    assert np.all(np.isnan(attended[wrong]))
    np.testing.assert_array_equal(attended[~wrong], expected[~wrong])


@pytest.mark.parametrize('cross', [False, True])
def test_nan_key_poisons_its_head_and_nan_value_its_channel(way, cross):
    inputs = random_inputs(70, 2, cross=cross)
    _, expected = run(way, inputs, cross=cross)
    bad = {name: values.copy() for name, values in inputs.items()}
    bad['projected'][0, 66, 128 + 3 if not cross else 3] = np.nan  # a key of the first head, and with cross a query
    bad['projected'][1, 2, -1] = np.nan  # a value of the second head
    _, attended = run(way, bad, cross=cross)
    wrong = np.zeros(attended.shape, bool)
    wrong[int(cross), :, 128:128 + 64] = True
    wrong[1 - int(cross), :, -1] = True
    if cross:
        wrong[0, 66, 128:128 + 64] = True
    assert np.all(np.isnan(attended[wrong]))
    np.testing.assert_array_equal(attended[~wrong], expected[~wrong])


def test_infinite_logits_are_as_in_softmax(way):
    """A key with a logit of minus infinity has no weight, also where a whole tile is such."""
    inputs = random_inputs(100, 1, cross=True)
    inputs['projected'][:, :, 0] = 1
    inputs['projected'][1, :64, 0] = -np.inf
    _, attended = run(way, inputs, cross=True)
    others = np.stack([inputs['projected'][0, :36], inputs['projected'][1, 64:]])
    expected, bound = context(others, HEAD_DIM, cross=True)
    assert np.all(abs(attended[0, :36, HEAD_DIM:] - expected[0]) <= bound[0])
    assert np.all(np.isnan(attended[1, :64, HEAD_DIM:]))


@pytest.mark.parametrize('cross', [False, True])
def test_nothing_is_read_behind_the_arrays(cross):
    """Where memory ends with them: a fault here ends the process."""
    inputs = {name: before_a_guard(values) for name, values in random_inputs(66, 1, cross=cross).items()}
    attended = before_a_guard(np.zeros((2, 66, 2 * HEAD_DIM), np.float16))
    attention, arguments = GpuAttention(ThreadedCuda(), 66, HEAD_DIM), [*inputs.values(), attended]
    (attention.enqueue_cross if cross else attention.enqueue_self)(*arguments)
    assert np.all(np.isfinite(attended))


def test_a_width_without_whole_heads_is_refused():
    with EmulatedGpu().installed():
        cuda = Cuda()
        with pytest.raises(EngineError, match='not a width of 96'):
            GpuAttention(cuda, 64, 96)
        cuda.close()
