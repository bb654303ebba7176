"""One network's weights, and their file, which says of itself what it is and what checksum its content has.

Canonical form: safetensors under the original names (`conv1a.weight`, `transformers.0.self_attn.Wqkv.weight`, ...).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..utils.errors import WeightsError
from .architecture import check_network

Tensors = dict[str, NDArray[Any]]

_CODES = {'f8': 'F64', 'f4': 'F32', 'f2': 'F16', 'i8': 'I64', 'i4': 'I32', 'i2': 'I16', 'i1': 'I8', 'u1': 'U8', 'b1': 'BOOL'}


@dataclass(frozen=True)
class Weights:
    """A network's tensors under their original names, in the dtype they are stored in (float32 or float16)."""

    name: str  # of the source that they come from, or of the model and the network
    tensors: Tensors
    sha256: str  # of the file that they come from, hexadecimal; of what is fetched, as pinned
    path: Path  # what was read
    metadata: Mapping[str, str] = field(default_factory=dict)  # of the file, e.g. pair (the model), network, licence


def read_network(path: Path, network: str, advice: str) -> Weights:
    """Read an extractor's or a matcher's file, checked as far as it can be: its own checksum, its tensors' names, shapes, values.

    Raises WeightsError where that fails, or where the file says that it holds the other network; `advice` ends the messages about
    damage.
    """
    data = read_file(path)
    try:
        tensors, metadata = parse(data)
    except ValueError as error:
        raise WeightsError(f'{path} is damaged, or no safetensors file of FP32 or FP16 ({error}): {advice}') from error
    if metadata.get('content_sha256', '') not in ('', actual := content_sha256(tensors)):
        raise WeightsError(f'{path} is damaged: its content has sha256 {actual} where {metadata["content_sha256"]} was written: '
                           f'{advice}')
    if metadata.get('network', network) != network:
        raise WeightsError(f'{path} is the {metadata["network"]} of a model, where the {network} is expected: are the two files '
                           'exchanged?')
    check_network(network, tensors, str(path))
    name = f'{metadata.get("pair") or path.parent.name} {network}'
    return Weights(name, tensors, hashlib.sha256(data).hexdigest(), path, metadata)


def read_file(path: Path) -> bytes:
    """Raises WeightsError where the file is missing or cannot be read."""
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise WeightsError(f'{path} does not exist') from error
    except OSError as error:
        raise WeightsError(f'{path} cannot be read ({error.strerror}): check its owner and permissions') from error


def parse(data: bytes) -> tuple[Tensors, Mapping[str, str]]:
    """Tensors and metadata of a safetensors file. Raises ValueError when it is damaged."""
    import safetensors
    import safetensors.numpy
    try:
        tensors: Tensors = safetensors.numpy.load(data)
        metadata = json.loads(data[8:8 + int.from_bytes(data[:8], 'little')]).get('__metadata__', {})
    except (safetensors.SafetensorError, KeyError, TypeError, AttributeError) as error:  # the latter: a type that NumPy has not
        raise ValueError(str(error)) from error
    return tensors, metadata


def content_sha256(tensors: Tensors) -> str:
    """Of names, types, shapes and values, in whatever order they are."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f'{name} {tensor.dtype.str} {tensor.shape}\n'.encode())
        digest.update(np.ascontiguousarray(tensor).data)
    return digest.hexdigest()


def serialize(tensors: Tensors, metadata: Mapping[str, str]) -> bytes:
    """The safetensors file, the same bytes each time: the library's own writer orders metadata at random."""
    notes = {'content_sha256': content_sha256(tensors), **metadata}
    header: dict[str, Any] = {'__metadata__': dict(sorted(notes.items()))}
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0]))  # widest first keeps each one aligned
    end = 0
    for name, tensor in ordered:
        start, end = end, end + tensor.nbytes
        header[name] = {'dtype': _CODES[tensor.dtype.str[1:]], 'shape': list(tensor.shape), 'data_offsets': [start, end]}
    text = json.dumps(header, separators=(',', ':')).encode()
    text += b' ' * (-len(text) % 8)
    return b''.join([len(text).to_bytes(8, 'little'), text, *(tensor.tobytes() for _, tensor in ordered)])
