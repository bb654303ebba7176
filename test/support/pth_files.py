"""Writes .pth files opcode by opcode, well-formed or not, so that tests need no PyTorch; and small ones in place of the real."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import pickle
import struct
import zipfile
from typing import Any

import numpy as np
import pytest

from lightglue_trt_ros.networks.weight_store import REGISTRY, Source

BODY = bytes(range(256)) * 8192  # 2 MiB
NOWHERE = 'http://127.0.0.1:9/'  # the discard port: nobody listens
SUPERPOINT = {'conv1a.weight': np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3), 'conv1a.bias': np.array([0.5], np.float32)}
LIGHTGLUE = {'self_attn.0.Wqkv.weight': np.ones((3, 2), np.float32), 'cross_attn.10.to_qk.bias': np.zeros(2, np.float32),
             'posenc.Wr.weight': np.eye(2, dtype=np.float32)}
_CLASSES = {'<f4': 'FloatStorage', '<f2': 'HalfStorage', '<i8': 'LongStorage'}


def _constant(value: Any) -> bytes:
    return pickle.dumps(value, protocol=2)[2:-1]


def tensor_opcodes(key: str, elements: int, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0,
                   cls: str = 'FloatStorage') -> bytes:
    storage = b'(' + _constant('storage') + f'ctorch\n{cls}\n'.encode() + _constant(key) + _constant('cpu') + _constant(elements)
    return (b'ctorch._utils\n_rebuild_tensor_v2\n(' + storage + b'tQ' + _constant(offset) + _constant(shape)
            + _constant(strides) + b'\x89ccollections\nOrderedDict\n)RtR')


def zip_file(pickled: bytes, blobs: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, 'w', compression) as archive:
        for name, content in {'data.pkl': pickled, **{f'data/{key}': blob for key, blob in blobs.items()}}.items():
            archive.writestr(zipfile.ZipInfo(f'archive/{name}'), content, compression)  # dated 1980
    return out.getvalue()


def stream_file(pickled: bytes, blobs: dict[str, tuple[int, bytes]]) -> bytes:
    head = [0x1950A86A20F9469CFC6C, 1001, {'protocol_version': 1001, 'little_endian': True, 'type_sizes': {}}]
    return b''.join([*(pickle.dumps(item, protocol=2) for item in head), pickled, pickle.dumps(list(blobs), protocol=2),
                     *(struct.pack('<q', elements) + blob for elements, blob in blobs.values())])


def pth(tensors: dict[str, np.ndarray], legacy: bool = False) -> bytes:
    """A state dict in one of PyTorch's two formats."""
    opcodes, blobs = b'\x80\x02}(', {}
    for index, (name, array) in enumerate(tensors.items()):
        strides = tuple(s // array.itemsize for s in array.strides)
        opcodes += _constant(name) + tensor_opcodes(str(index), array.size, array.shape, strides, 0, _CLASSES[array.dtype.str])
        blobs[str(index)] = (array.size, array.tobytes())
    if legacy:
        return stream_file(opcodes + b'u.', blobs)
    return zip_file(opcodes + b'u.', {key: blob for key, (_, blob) in blobs.items()})


def pin(monkeypatch: pytest.MonkeyPatch, name: str, data: bytes, url: str = NOWHERE) -> Source:
    """Registers other bytes under a name, so that tests need neither the network nor licensed weights."""
    source = dataclasses.replace(REGISTRY[name], sha256=hashlib.sha256(data).hexdigest(), size=len(data), url=url)
    monkeypatch.setitem(REGISTRY, name, source)
    return source
