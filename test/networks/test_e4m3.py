"""E4M3 as the package rounds to it, bit for bit: against the format's definition, and the Q/DQ nodes of ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from lightglue_trt_ros.networks import e4m3


def interesting() -> np.ndarray:
    """All numbers of the format, the midpoints between neighbours, all their neighbours in FP32, saturation, tiny and random."""
    numbers = np.sort(np.concatenate([np.arange(8) / 512, *(np.ldexp(1 + np.arange(8) / 8, e) for e in range(-6, 9))]))
    numbers = numbers[numbers <= 448].astype(np.float32)
    beyond = [456, 463.99, 464, 464.01, 480, 512, 1e30, np.inf]
    exact = np.concatenate([numbers, (numbers[1:] + numbers[:-1]) / 2, beyond]).astype(np.float32)
    near = np.concatenate([exact, np.nextafter(exact, np.float32(np.inf)), np.nextafter(exact, np.float32(-np.inf))])
    rng = np.random.default_rng(0)
    wide = np.ldexp(rng.standard_normal(20000), rng.integers(-30, 12, 20000)).astype(np.float32)
    tiny = np.array([2.0 ** -10, 2.0 ** -11, 1e-40, 1.4e-45], np.float32)
    values = np.concatenate([near, tiny, wide])
    return np.concatenate([values, -values, [np.nan]]).astype(np.float32)


def bits(values: np.ndarray) -> np.ndarray:
    """FP32 as integers, so that the zeros differ; NaNs are all one."""
    return np.where(np.isnan(values), np.float32(np.nan), values).astype(np.float32).view(np.uint32)


def number_of(code: int) -> float:
    """As the format's paper says it: sign, 4 bits of exponent with a bias of 7, 3 of mantissa; one NaN, no infinities."""
    exponent, mantissa = code >> 3 & 15, code & 7
    magnitude = (1 + mantissa / 8) * 2.0 ** (exponent - 7) if exponent else mantissa * 2.0 ** -9
    return float('nan') if code & 0x7F == 0x7F else -magnitude if code & 0x80 else magnitude


def nearest(value: float) -> int:
    """The code of the nearest number, ties to the even one, found by looking at all of them."""
    distances = [(abs(abs(value) - number_of(code)), code & 1, code) for code in range(0x7F)]
    return min(distances)[2] | (0x80 if np.signbit(value) else 0)


def test_all_codes_are_reached_and_stay():
    codes = np.arange(256, dtype=np.uint8)
    numbers = np.array([number_of(code) for code in range(256)], np.float32)
    np.testing.assert_array_equal(e4m3.encoded(numbers)[(codes & 0x7F) != 0x7F], codes[(codes & 0x7F) != 0x7F])
    np.testing.assert_array_equal(bits(e4m3.rounded(numbers)), bits(numbers))


def test_values_become_the_nearest_number():
    values = interesting()
    values = np.concatenate([values[:2000], values[-2000:]])
    number = values[~np.isnan(values)]
    expected = [nearest(float(np.clip(value, -448, 448))) for value in number]
    np.testing.assert_array_equal(e4m3.encoded(number), expected)
    assert set(e4m3.encoded([np.nan, -np.nan]) & 0x7F) == {0x7F}
    assert e4m3.encoded([1e30, -np.inf]).tolist() == [0x7E, 0xFE], 'saturated'


@given(st.floats(width=32, allow_nan=False))
def test_any_float_becomes_the_nearest_number(value):
    assert e4m3.encoded([value])[0] == nearest(float(np.clip(value, -448, 448)))


def quantized(values: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """What ONNX Runtime's QuantizeLinear and DequantizeLinear, and its Casts, make of `values`."""
    nodes = [helper.make_node('QuantizeLinear', ['x', 's', 'z'], ['q']),
             helper.make_node('DequantizeLinear', ['q', 's', 'z'], ['linear']),
             helper.make_node('Cast', ['x'], ['c'], to=TensorProto.FLOAT8E4M3FN),
             helper.make_node('Cast', ['c'], ['cast'], to=TensorProto.FLOAT)]
    graph = helper.make_graph(nodes, 'round', [helper.make_tensor_value_info('x', 1, values.shape)],
                              [helper.make_tensor_value_info(name, 1, values.shape) for name in ('linear', 'cast')],
                              [numpy_helper.from_array(np.float32(scale), 's'),
                               helper.make_tensor('z', TensorProto.FLOAT8E4M3FN, [], [0.0])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 21)], ir_version=10)
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=['CPUExecutionProvider'])
    return tuple(session.run(None, {'x': values}))


@pytest.mark.float8
@pytest.mark.parametrize('exponent', [-14, -6, 0, 5])
def test_onnx_runtime_rounds_alike(exponent):
    scale = np.float32(2.0 ** exponent)
    values = interesting()
    values = values[~(np.abs(values) > 1e20)]  # what dividing would overflow
    linear, cast = quantized(values, float(scale))
    np.testing.assert_array_equal(bits(linear), bits(e4m3.rounded(values / scale) * scale))
    np.testing.assert_array_equal(bits(cast), bits(e4m3.rounded(values)))


@pytest.mark.parametrize(('peak', 'scale'), [
    (448, 1), (448.1, 2), (224, 0.5), (1, 2 ** -8), (0, 1), (1e-30, 2 ** -14), (1e30, 2 ** 15)])
def test_scales_are_powers_of_two_that_fp16_holds(peak, scale):
    assert e4m3.scale_of(peak) == scale
    assert np.float16(scale) == scale
