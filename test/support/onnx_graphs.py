"""Small ONNX graphs, each with what one question to a builder needs."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def small_graph(precision: str = 'fp16', extra: tuple[onnx.NodeProto, ...] = ()) -> bytes:
    """A convolution, a broadcast sum, an FP32 island (softmax, maximum, comparison, ArgMax, matrix product), a cast back."""
    dtype, half = (np.float16, TensorProto.FLOAT16) if precision == 'fp16' else (np.float32, TensorProto.FLOAT)
    nodes = [
        helper.make_node('Conv', ['x', 'w'], ['conv'], 'Conv_0', pads=[1] * 4),
        helper.make_node('Add', ['conv', 'b'], ['sum'], 'Add_0'),
        helper.make_node('Cast', ['sum'], ['wide'], 'Cast_0', to=TensorProto.FLOAT),
        helper.make_node('Softmax', ['wide'], ['soft'], 'Softmax_0', axis=-1),
        helper.make_node('Add', ['soft', 'one'], ['more'], 'Add_1'),
        helper.make_node('Greater', ['more', 'one'], ['seen'], 'Greater_0'),
        helper.make_node('ArgMax', ['more'], ['best'], 'ArgMax_0', axis=-1),
        helper.make_node('Add', ['best', 'step'], ['next'], 'Add_2'),
        helper.make_node('MatMul', ['more', 'eye'], ['turned'], 'MatMul_0'),
        helper.make_node('Cast', ['turned'], ['narrow'], 'Cast_1', to=half),
        helper.make_node('Mul', ['narrow', 'sum'], ['y'], 'Mul_0'),
        *extra,
    ]
    values = {'w': np.zeros((4, 4, 3, 3), dtype), 'b': np.zeros((4, 1, 1), dtype), 'one': np.ones(1, np.float32),
              'eye': np.eye(8, dtype=np.float32), 'step': np.ones(1, np.int64)}
    outputs = [helper.make_tensor_value_info('y', half, [1, 4, 8, 8]),
               helper.make_tensor_value_info('seen', TensorProto.BOOL, [1, 4, 8, 8]),
               helper.make_tensor_value_info('next', TensorProto.INT64, [1, 4, 8, 1])]
    graph = helper.make_graph(nodes, 'small', [helper.make_tensor_value_info('x', half, [1, 4, 8, 8])], outputs,
                              [numpy_helper.from_array(value, name) for name, value in values.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17), helper.make_opsetid('own', 1)], ir_version=8)
    if not extra:
        onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def fp8_graph() -> bytes:
    """One matrix product between Q/DQ pairs of float8."""
    rng = np.random.default_rng(0)
    values = {'w': rng.standard_normal((64, 64)).astype(np.float16), 's': np.array(0.01, np.float16)}
    zero = helper.make_tensor('z', TensorProto.FLOAT8E4M3FN, [], [0.0])
    nodes = [helper.make_node(f'{kind}Linear', [source, 's', 'z'], [result], f'{kind}_{source}')
             for kind, source, result in (('Quantize', 'x', 'xq'), ('Dequantize', 'xq', 'xd'),
                                          ('Quantize', 'w', 'wq'), ('Dequantize', 'wq', 'wd'))]
    nodes.append(helper.make_node('MatMul', ['xd', 'wd'], ['y'], 'MatMul_0'))
    graph = helper.make_graph(nodes, 'fp8', [helper.make_tensor_value_info('x', TensorProto.FLOAT16, [32, 64])],
                              [helper.make_tensor_value_info('y', TensorProto.FLOAT16, [32, 64])],
                              [*(numpy_helper.from_array(value, name) for name, value in values.items()), zero])
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid('', 21)], ir_version=10).SerializeToString())


def topk_graph(count: int) -> bytes:
    graph = helper.make_graph(
        [helper.make_node('MatMul', ['x', 'w'], ['p'], 'MatMul_0'), helper.make_node('TopK', ['p', 'k'], ['v', 'i'], 'TopK_0'),
         helper.make_node('Cast', ['i'], ['index'], 'Cast_0', to=TensorProto.INT32)], 'topk',
        [helper.make_tensor_value_info('x', TensorProto.FLOAT, [1, 8])],
        [helper.make_tensor_value_info('v', TensorProto.FLOAT, [1, count]),
         helper.make_tensor_value_info('index', TensorProto.INT32, [1, count])],
        [numpy_helper.from_array(np.array([count], np.int64), 'k'), numpy_helper.from_array(np.ones((8, 8192), np.float32), 'w')])
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8).SerializeToString())
