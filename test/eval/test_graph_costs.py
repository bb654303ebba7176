"""Operations and bytes of graphs, against counts by hand."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import spox.opset.ai.onnx.v17 as op
from spox import Tensor, argument, build

from lightglue_trt_eval.times.graph_costs import Work, graph_work, network_work
from lightglue_trt_ros.core.config import EngineSpec
from lightglue_trt_ros.networks.models import load_model

pytestmark = pytest.mark.networks


def given(*shape, dtype=np.float16):
    return argument(Tensor(dtype, shape))


def test_a_convolution_reads_weights_and_input_and_writes_its_output_once():
    x, kernel = given(1, 3, 8, 10), op.const(np.zeros((4, 3, 3, 3), np.float16))
    y = op.relu(op.add(op.conv(x, kernel, pads=[1] * 4, strides=[2, 2]), op.const(np.float16(1))))
    assert graph_work(build({'x': x}, {'y': y})) == Work(matrix_flops=2 * (4 * 4 * 5) * 27, bytes=2 * (240 + 108 + 80))


def test_groups_of_a_convolution_multiply_less():
    x, kernel = given(1, 4, 6, 6), op.const(np.zeros((4, 1, 3, 3), np.float16))
    assert graph_work(build({'x': x}, {'y': op.conv(x, kernel, group=4)})).matrix_flops == 2 * (4 * 4 * 4) * 9


def test_a_product_of_matrices_in_fp32():
    x, y = given(2, 5, 7, dtype=np.float32), given(7, 3, dtype=np.float32)
    work = graph_work(build({'x': x, 'y': y}, {'z': op.matmul(x, y)}))
    assert work == Work(matrix_flops=2 * (2 * 5 * 3) * 7, bytes=4 * (70 + 21 + 30))


@pytest.mark.parametrize('transposed', [0, 1])
def test_a_gemm_with_weights_as_an_initializer(transposed):
    node = onnx.helper.make_node('Gemm', ['x', 'w'], ['y'], transA=transposed)
    shape = (7, 5) if transposed else (5, 7)
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, size)
              for name, size in (('x', shape), ('y', (5, 3)))]
    weights = onnx.numpy_helper.from_array(np.zeros((7, 3), np.float32), 'w')
    work = graph_work(onnx.helper.make_model(onnx.helper.make_graph([node], 'gemm', values[:1], values[1:], [weights])))
    assert work == Work(matrix_flops=2 * 15 * 7, bytes=4 * (35 + 21 + 15))


def test_logits_of_attention_are_not_written_and_other_softmaxes_are():
    q, k, v = (given(2, 4, 16, 8) for _ in range(3))
    logits = op.matmul(q, op.transpose(k, perm=[0, 1, 3, 2]))
    attended = graph_work(build({'q': q, 'k': k, 'v': v}, {'y': op.matmul(op.softmax(logits), v)}))
    assert attended == Work(matrix_flops=2 * 2 * (2 * 4 * 16 * 16) * 8, bytes=2 * 4 * 1024)
    x = given(3, 65)
    assert graph_work(build({'x': x}, {'y': op.softmax(x)})) == Work(bytes=2 * 2 * 3 * 65)


def test_both_networks_at_640x480_have_the_operations_of_their_papers():
    extractor, matcher = network_work(EngineSpec(precision='fp16'), load_model('ours'))
    convolutions = [(240, 1, 64, 36), (240, 64, 64, 9), (240, 64, 64, 9), (240, 64, 64, 9), (120, 64, 128, 9), (120, 128, 128, 9),
                    (60, 128, 128, 9), (60, 128, 128, 9), (60, 128, 256, 9), (60, 256, 65, 1), (60, 128, 256, 9), (60, 256, 256, 1)]
    by_hand = sum(2 * height * height * 4 // 3 * inputs * outputs * taps for height, inputs, outputs, taps in convolutions)
    assert by_hand <= extractor.matrix_flops <= 1.001 * by_hand  # 17.5 GMAC, and the sub-pixel mean
    k, d = 1024, 256
    projections, attention = 2 * 2 * k * d * (3 + 2) * d, 2 * 2 * 2 * (2 * k * k * d)
    layer = projections + attention + 2 * 2 * (2 * k) * (2 * d) * (3 * d)  # the output projections are folded into the last
    assert layer == pytest.approx(8.86e9, rel=1e-3)
    around = 2 * 2 * (2 * k) * d * d + 2 * k * k * d  # input and final projection, similarities
    assert 6 * layer + around <= matcher.matrix_flops <= 1.001 * (6 * layer + around)


def test_bytes_are_at_least_the_weights_and_fp16_halves_those_of_matrices():
    model = load_model('ours')
    spec = EngineSpec(96, 128, 64)
    halves = network_work(EngineSpec(96, 128, 64, 'fp16'), model)
    for half, single in zip(halves, network_work(spec, model), strict=True):
        assert half.matrix_flops == single.matrix_flops
        assert single.bytes / 2 <= half.bytes < 0.6 * single.bytes
    assert halves[0].bytes > 2 * sum(tensor.size for tensor in model.extractor.tensors.values())
