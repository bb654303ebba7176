"""Stand-ins for TensorRT's Python modules: each version has exactly the names that its released bindings have, and no others.

A fake builder honours the flags it is given as the real one does: without strong typing and without BuilderFlag.FP16 everything
comes out in FP32, and nobody is told. `module.calls` records what was asked of it.
"""

from __future__ import annotations

import enum
import itertools
import json
import types
from typing import Any

import onnx

WEAK_FLAGS = ('FP16', 'INT8', 'FP8', 'OBEY_PRECISION_CONSTRAINTS', 'PREFER_PRECISION_CONSTRAINTS')
_CUDA_SOURCES = ('CUBLAS', 'CUBLAS_LT', 'CUDNN')
_OWN_SOURCES = ('EDGE_MASK_CONVOLUTIONS', 'JIT_CONVOLUTIONS')
_LATER_TYPES = ('BF16', 'INT64', 'INT4')

# what differs between the released bindings, of all that the adapter could touch
_EIGHT = {'network': ('EXPLICIT_BATCH', 'EXPLICIT_PRECISION'), 'builder': WEAK_FLAGS, 'sources': _CUDA_SOURCES + _OWN_SOURCES,
          'types': (), 'monitor': False, 'pins': True, 'node_names': False}
_TEN = {'network': ('EXPLICIT_BATCH', 'STRONGLY_TYPED'), 'builder': WEAK_FLAGS, 'sources': _CUDA_SOURCES + _OWN_SOURCES,
        'types': _LATER_TYPES, 'monitor': True, 'pins': True, 'node_names': True}
_TEN_12 = _TEN | {'network': ('EXPLICIT_BATCH', 'STRONGLY_TYPED', 'PREFER_AOT_PYTHON_PLUGINS', 'PREFER_JIT_PYTHON_PLUGINS')}
_ELEVEN = _TEN | {'network': ('STRONGLY_TYPED', 'PREFER_AOT_PYTHON_PLUGINS', 'PREFER_JIT_PYTHON_PLUGINS'), 'builder': (),
                  'sources': _OWN_SOURCES, 'pins': False}
VERSIONS: dict[str, dict[str, Any]] = {
    '8.6.1': _EIGHT, '10.3.0': _TEN, '10.12.0.36': _TEN_12, '10.16.1.11': _TEN_12, '11.0.0.114': _ELEVEN,
    '1.7.1.116': _ELEVEN | {'network': ('STRONGLY_TYPED',), 'rtx': True},
}
_KINDS = {'Conv': 'CONVOLUTION', 'MatMul': 'MATRIX_MULTIPLY', 'MaxPool': 'POOLING', 'TopK': 'TOPK', 'ArgMax': 'TOPK',
          'Constant': 'CONSTANT', 'Cast': 'CAST', 'Reshape': 'SHUFFLE', 'Gather': 'GATHER', 'Concat': 'CONCATENATION',
          'Softmax': 'SOFTMAX', 'LayerNormalization': 'NORMALIZATION', 'GridSample': 'GRID_SAMPLE', 'Where': 'SELECT'}
_TYPES = {onnx.TensorProto.FLOAT: 'FLOAT', onnx.TensorProto.FLOAT16: 'HALF', onnx.TensorProto.INT32: 'INT32',
          onnx.TensorProto.INT64: 'INT32', onnx.TensorProto.BOOL: 'BOOL', onnx.TensorProto.UINT8: 'UINT8',
          onnx.TensorProto.FLOAT8E4M3FN: 'FP8'}
_FORMATS = {'FLOAT': 'Row major linear FP32', 'HALF': 'Channel major FP16 format where channel % 8 == 0', 'INT32': 'Int32'}


def fake_tensorrt(version: str, **differences: Any) -> Any:
    """A module of that version; `differences` overrides entries of its row, for versions that do not exist (yet)."""
    has = VERSIONS[version] | differences
    module: Any = types.ModuleType('tensorrt_rtx' if has.get('rtx') else 'tensorrt')
    module.__version__, module.calls, module.has, module.fail = version, [], has, ''
    module.BuilderFlag = _enum('BuilderFlag', ('TF32', 'STRICT_NANS', *has['builder']))
    if has['network'] is not None:
        module.NetworkDefinitionCreationFlag = _enum('NetworkDefinitionCreationFlag', has['network'])
    module.TacticSource = _enum('TacticSource', has['sources'])
    module.DataType = _enum('DataType', ('FLOAT', 'HALF', 'INT8', 'INT32', 'BOOL', 'UINT8', 'FP8', *has['types']))
    module.MemoryPoolType = _enum('MemoryPoolType', ('WORKSPACE', 'TACTIC_DRAM'))
    module.ProfilingVerbosity = _enum('ProfilingVerbosity', ('LAYER_NAMES_ONLY', 'DETAILED', 'NONE'))
    module.LayerInformationFormat = _enum('LayerInformationFormat', ('ONELINE', 'JSON'))
    module.TensorIOMode = _enum('TensorIOMode', ('NONE', 'INPUT', 'OUTPUT'))
    module.TensorFormat = _enum('TensorFormat', ('LINEAR', 'CHW2', 'HWC8'))
    if not version.startswith('8.'):
        module.ExecutionContextAllocationStrategy = _enum('ExecutionContextAllocationStrategy',
                                                          ('STATIC', 'ON_PROFILE_CHANGE', 'USER_MANAGED'))
    if has.get('rtx'):
        module.ComputeCapability = _enum('ComputeCapability', ('NONE', 'CURRENT', 'SM75', 'SM80', 'SM86', 'SM89', 'SM120'))

    class ILogger:
        Severity = _enum('Severity', ('INTERNAL_ERROR', 'ERROR', 'WARNING', 'INFO', 'VERBOSE'))
    module.ILogger = ILogger
    if has['monitor']:
        module.IProgressMonitor = type('IProgressMonitor', (), {})
    module.Builder = lambda log: Builder(module, log)
    module.OnnxParser = lambda network, log: Parser(module, network)
    module.Runtime = lambda log: Runtime(module, log)
    return module


def _enum(name: str, members: tuple[str, ...]) -> Any:
    return enum.IntEnum(name, {member: number for number, member in enumerate(members)})


class Strict:
    """As pybind's classes: an attribute that is not declared cannot be set."""

    def __init__(self, module: Any, **attributes: Any) -> None:
        self.__dict__.update(module=module, **attributes)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f'{type(self).__name__} of TensorRT {self.__dict__["module"].__version__} has no attribute {name}')

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.__dict__:
            raise AttributeError(f'{type(self).__name__} of TensorRT {self.module.__version__} has no attribute {name}')
        self.__dict__[name] = value


class Tensor(Strict):
    pass


class Layer(Strict):
    """Has `precision` and `set_output_type` only where `pins`."""

    def __init__(self, module: Any, name: str, kind: Any, inputs: list[Any], outputs: list[Any]) -> None:
        super().__init__(module, name=name, type=kind, inputs=inputs, outputs=outputs,
                         num_inputs=len(inputs), num_outputs=len(outputs))
        if module.has['pins']:
            self.__dict__.update(precision=None, output_types={},
                                 set_output_type=lambda index, dtype: self.output_types.__setitem__(index, dtype))

    def get_input(self, index: int) -> Any:
        return self.inputs[index]

    def get_output(self, index: int) -> Any:
        return self.outputs[index]


class Network:
    def __init__(self, module: Any, flags: int) -> None:
        self.module, self.flags = module, flags
        self.layers: list[Layer] = []
        self.outputs: list[Any] = []
        if module.__version__[:2] != '8.':
            self.get_flag = lambda flag: bool(self.flags >> int(flag) & 1)

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def num_outputs(self) -> int:
        return len(self.outputs)

    def get_output(self, index: int) -> Any:
        return self.outputs[index]

    def get_layer(self, index: int) -> Any:
        return self.layers[index]

    @property
    def typed(self) -> bool:
        flag = getattr(getattr(self.module, 'NetworkDefinitionCreationFlag', None), 'STRONGLY_TYPED', None)
        always = self.module.__version__.startswith('11') or self.module.has.get('rtx')
        return bool(always or (flag is not None and self.flags >> int(flag) & 1))


class Parser:
    """One layer per node; a reshape in front of Add, as the real one adds for broadcasts, bears no ONNX name."""

    def __init__(self, module: Any, network: Network) -> None:
        self.module, self.network = module, network
        self.errors: list[Error] = []

    @property
    def num_errors(self) -> int:
        return len(self.errors)

    def get_error(self, index: int) -> Any:
        return self.errors[index]

    def parse(self, data: bytes) -> bool:
        graph = onnx.shape_inference.infer_shapes(onnx.load_model_from_string(data)).graph
        dtype = {value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.value_info, *graph.output)}
        dtype |= {initializer.name: initializer.data_type for initializer in graph.initializer}
        kinds = _enum('LayerType', tuple(dict.fromkeys((*_KINDS.values(), 'ELEMENTWISE'))))
        tensors: dict[str, Any] = {}
        numbers = itertools.count()

        def tensor(name: str) -> Any:
            kind = self.module.DataType[_TYPES[dtype[name]]]
            return tensors.setdefault(name, Tensor(self.module, name=name, dtype=kind, allowed_formats=7)) if name else None

        for number, node in enumerate(graph.node):
            if node.op_type == 'Unsupported' or node.domain:
                self.errors.append(Error(self.module, number, node))
                continue
            inputs = [tensor(name) for name in node.input]
            if node.op_type == 'Add':
                inner = Tensor(self.module, name=f'(Unnamed Layer* {next(numbers)}) [Shuffle]_output', dtype=inputs[1].dtype)
                self.network.layers.append(Layer(self.module, inner.name[:-7], kinds['SHUFFLE'], [inputs[1]], [inner]))
                inputs[1] = inner
            outputs = [tensor(name) for name in node.output]
            kind = kinds[_KINDS.get(node.op_type, 'ELEMENTWISE')]
            self.network.layers.append(Layer(self.module, node.name, kind, inputs, outputs))
        self.network.outputs = [tensors[output.name] for output in graph.output if output.name in tensors]
        return not self.errors


class Error:
    def __init__(self, module: Any, number: int, node: Any) -> None:
        self.node, self.desc = lambda: number, lambda: f'no importer for {node.op_type}'
        if module.has['node_names']:
            self.node_name, self.node_operator = lambda: node.name, lambda: node.op_type


class Config(Strict):
    def __init__(self, module: Any) -> None:
        super().__init__(module, calls=module.calls, flags={'TF32'}, pools={}, cache=None,
                         profiling_verbosity=None, builder_optimization_level=3)
        if module.has['monitor']:
            self.__dict__['progress_monitor'] = None
        if module.has.get('rtx'):
            self.__dict__.update(num_compute_capabilities=0, set_compute_capability=self._aim)

    def set_flag(self, flag: Any) -> None:
        self.flags.add(flag.name)

    def clear_flag(self, flag: Any) -> None:
        self.flags.discard(flag.name)

    def set_memory_pool_limit(self, pool: Any, size: int) -> None:
        self.pools[pool.name] = size

    def set_tactic_sources(self, mask: int) -> bool:
        self.calls.append(('tactic sources', mask))
        return True

    def create_timing_cache(self, data: bytes) -> Any:
        self.calls.append(('timing cache', data))
        return bytearray(data)

    def set_timing_cache(self, cache: Any, ignore_mismatch: bool) -> bool:
        if bytes(cache).startswith(b'other'):
            return False
        self.cache = cache
        return True

    def get_timing_cache(self) -> Any:
        return types.SimpleNamespace(serialize=lambda: bytes(self.cache) + b'+1')

    def _aim(self, capability: Any, index: int) -> bool:
        self.calls.append(('compute capability', capability.name, index))
        return True


class Builder:
    def __init__(self, module: Any, log: Any) -> None:
        self.module, self.log = module, log

    def create_network(self, flags: int = 0) -> Network:
        self.module.calls.append(('network', flags))
        network = self.module.network = Network(self.module, flags)
        return network

    def create_builder_config(self) -> Config:
        config = self.module.config = Config(self.module)
        return config

    def build_serialized_network(self, network: Network, config: Config) -> Any:
        monitor = config.__dict__.get('progress_monitor')
        if monitor is not None:
            monitor.phase_start('Building engine', None, 3)
            for step in range(3):
                if not monitor.step_complete('Building engine', step):
                    self.log.log(self.module.ILogger.Severity.ERROR, 'the build was cancelled')
                    return None
            monitor.phase_finish('Building engine')
        if self.module.fail:
            self.log.log(self.module.ILogger.Severity.ERROR, self.module.fail)
            return None
        layers = [self._built(layer, network.typed, config) for layer in network.layers]
        return json.dumps({'Layers': layers if config.profiling_verbosity.name == 'DETAILED' else ['a name']}).encode()

    def _built(self, layer: Layer, typed: bool, config: Config) -> dict[str, Any]:
        def dtype(tensor: Any) -> str:
            if typed or tensor.dtype.name not in ('FLOAT', 'HALF'):
                return str(tensor.dtype.name)
            pin = layer.precision.name if layer.precision is not None and 'OBEY_PRECISION_CONSTRAINTS' in config.flags else 'HALF'
            return pin if 'FP16' in config.flags else 'FLOAT'
        kind = {'CONVOLUTION': 'CaskConvolution', 'MATRIX_MULTIPLY': 'MatrixMultiply'}.get(layer.type.name, 'PointWiseV2')
        inputs, outputs = ([{'Name': tensor.name, 'Format/Datatype': _FORMATS.get(dtype(tensor), dtype(tensor))}
                            for tensor in side if tensor] for side in (layer.inputs, layer.outputs))
        return {'Name': layer.name, 'LayerType': kind, 'Inputs': inputs, 'Outputs': outputs}


class Runtime:
    def __init__(self, module: Any, log: Any) -> None:
        self.module, self.log = module, log

    def deserialize_cuda_engine(self, data: bytes) -> Any:
        if not data.startswith(b'{'):
            self.log.log(self.module.ILogger.Severity.ERROR, 'Version tag does not match')
            return None
        return Engine(self.module, data)


class Engine:
    """An image in, rows of descriptors and a map with channels last out."""

    def __init__(self, module: Any, data: bytes) -> None:
        self.module, self.data, self.num_io_tensors = module, data, 3
        self.tensors = {'image': ((480, 640), 'UINT8', 'INPUT'), 'descriptors': ((1024, 256), 'HALF', 'OUTPUT'),
                        'logits': ((1, 65, 60, 80), 'HALF', 'OUTPUT')}

    def get_tensor_name(self, index: int) -> str:
        return list(self.tensors)[index]

    def get_tensor_shape(self, name: str) -> Any:
        return self.tensors[name][0]

    def get_tensor_dtype(self, name: str) -> Any:
        return self.module.DataType[self.tensors[name][1]]

    def get_tensor_format(self, name: str) -> Any:
        return self.module.TensorFormat['HWC8' if name == 'logits' else 'LINEAR']

    def get_tensor_mode(self, name: str) -> Any:
        return self.module.TensorIOMode[self.tensors[name][2]]

    def create_engine_inspector(self) -> Any:
        return types.SimpleNamespace(get_engine_information=lambda form: self.data.decode())

    def __getattr__(self, name: str) -> Any:
        """What contexts are made with: 8.6 has a function and a property of its own, 10 has an enumeration and both sizes."""
        eight = self.module.__version__.startswith('8.')
        known: dict[str, Any] = {'device_memory_size': 4096} if eight else {'device_memory_size_v2': 4096}
        if eight:
            known['create_execution_context_without_device_memory'] = lambda: None if self.module.fail else Strict(
                self.module, device_memory=None)
        else:
            known['create_execution_context'] = lambda strategy: None if self.module.fail else self._managed(strategy)
        if name not in known:
            raise AttributeError(f'ICudaEngine of TensorRT {self.module.__version__} has no attribute {name}')
        return known[name]

    def _managed(self, strategy: Any) -> Any:
        assert strategy == self.module.ExecutionContextAllocationStrategy.USER_MANAGED
        context = types.SimpleNamespace(given=None)
        context.set_device_memory = lambda memory, size: setattr(context, 'given', (memory, size))
        return context
