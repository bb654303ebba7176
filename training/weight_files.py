"""The files that `lightglue_trt_ros.networks.models.load_model` takes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lightglue_trt_ros.networks.architecture import DESCRIPTOR_HEAD, check_network
from lightglue_trt_ros.networks.weights import serialize
from lightglue_trt_ros.utils.files import write_whole

Tensor = TypeVar('Tensor')


def first_layers(tensors: Mapping[str, Tensor], layers: int) -> dict[str, Tensor]:
    """A LightGlue of so many layers, out of the tensors of one that may have more."""
    def kept(name: str) -> bool:
        block, number, *_ = name.split('.')
        return not number.isdigit() or int(number) < layers - (block == 'token_confidence')  # the last layer needs no confidence
    return {name: tensor for name, tensor in tensors.items() if kept(name)}


def with_descriptor_assignment(untrained: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A LightGlue's `tensors`; where it has no assignment before its first layer, the untrained one."""
    return {name: tensor for name, tensor in untrained.items() if name.startswith(f'{DESCRIPTOR_HEAD}.')} | dict(tensors)


def write_network(path: Path, tensors: Mapping[str, NDArray[Any]], *, pair: str, network: str, licence: str,
                  half: bool = True) -> str:
    """Write one network of a model as a file that `load_model` takes, whole or not at all, and return the file's sha256.

    `tensors` are float arrays under the original names, `pair` the model's name, `network` extractor or matcher; with `half` they
    are stored in FP16, else in FP32. The same tensors give the same bytes. Raises WeightsError, naming the tensor, where one is
    missing, has a shape that does not go with the others, or is not finite, in FP16 where that is stored; OSError.
    """
    dtype = np.float16 if half else np.float32
    with np.errstate(over='ignore'):  # found by the check, with the tensor's name
        stored = {name: np.ascontiguousarray(np.asarray(tensor), dtype) for name, tensor in tensors.items()}
    check_network(network, stored, f'the {network} of {pair} in {np.dtype(dtype)}')
    data = serialize(stored, {'licence': licence, 'network': network, 'pair': pair})
    write_whole(path, data)
    return hashlib.sha256(data).hexdigest()
