"""E4M3 by numpy against two independent implementations, bit for bit: ml_dtypes, and the Q/DQ nodes of ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import TensorProto, helper, numpy_helper

from lightglue_trt_ros import e4m3


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


def reference(values: np.ndarray) -> np.ndarray:
    ml_dtypes = pytest.importorskip('ml_dtypes', reason='ml_dtypes is not installed: E4M3 is not checked against it')
    return np.clip(values, -448, 448).astype(ml_dtypes.float8_e4m3fn)


def test_rounding_and_bytes_are_those_of_ml_dtypes():
    values = interesting()
    expected = reference(values)
    np.testing.assert_array_equal(bits(e4m3.rounded(values)), bits(expected.astype(np.float32)))
    number = ~np.isnan(values)
    np.testing.assert_array_equal(e4m3.encoded(values)[number], expected.view(np.uint8)[number])
    assert set(e4m3.encoded([np.nan, -np.nan]) & 0x7F) == {0x7F}


def test_all_codes_are_reached_and_stay():
    ml_dtypes = pytest.importorskip('ml_dtypes', reason='ml_dtypes is not installed: E4M3 is not checked against it')
    codes = np.arange(256, dtype=np.uint8)
    numbers = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    np.testing.assert_array_equal(e4m3.encoded(numbers)[(codes & 0x7F) != 0x7F], codes[(codes & 0x7F) != 0x7F])
    np.testing.assert_array_equal(bits(e4m3.rounded(numbers)), bits(numbers))


@given(hnp.arrays(np.float32, 16, elements=st.floats(width=32)))
def test_any_float_rounds_as_ml_dtypes_rounds_it(values):
    np.testing.assert_array_equal(bits(e4m3.rounded(values)), bits(reference(values).astype(np.float32)))


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
