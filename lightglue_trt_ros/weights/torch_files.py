"""PyTorch checkpoints without PyTorch: a reader that knows tensors and nothing else.

A .pth file is a pickle, and a pickle may call anything. This reader resolves the few globals a state dict consists of and
refuses every other by name, so that reading runs no code of the file's choosing. Formats: torch.serialization, both the zip
archive (PyTorch >= 1.6) and the stream before it.
"""

from __future__ import annotations

import io
import math
import pickle
import struct
import zipfile
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import WeightsError

_MAGIC = 0x1950A86A20F9469CFC6C  # opens the stream format
_PROTOCOL = 1001
_DTYPES = {'DoubleStorage': '<f8', 'FloatStorage': '<f4', 'HalfStorage': '<f2', 'LongStorage': '<i8', 'IntStorage': '<i4',
           'ShortStorage': '<i2', 'CharStorage': '<i1', 'ByteStorage': '<u1', 'BoolStorage': '?'}


class _Storage(NamedTuple):
    key: str
    dtype: str
    elements: int


class _View(NamedTuple):
    """A tensor as the pickle describes it; its bytes may come later in the file."""

    storage: _Storage
    offset: int  # elements, as the strides
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _RebuildTensor:
    __slots__ = ()  # no state that a pickle's BUILD could change

    def __call__(self, storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> _View:
        numbers = (offset, *shape, *strides)
        if type(storage) is not _Storage or len(shape) != len(strides) or not all(type(n) is int and n >= 0 for n in numbers):
            raise WeightsError('a tensor with a malformed description')
        return _View(storage, offset, tuple(shape), tuple(strides))


class _RebuildParameter:
    __slots__ = ()

    def __call__(self, view: Any, *_: Any) -> Any:
        return view


class _TensorUnpickler(pickle.Unpickler):
    """Knows dictionaries, numbers, strings and tensors."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, encoding='utf-8')
        self.storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        import collections
        if (module, name) == ('collections', 'OrderedDict'):
            return collections.OrderedDict
        if (module, name) == ('torch._utils', '_rebuild_tensor_v2'):
            return _RebuildTensor()
        if (module, name) == ('torch._utils', '_rebuild_parameter'):
            return _RebuildParameter()
        if module == 'torch' and name in _DTYPES:
            return _DTYPES[name]  # a string: nothing that could be called
        raise WeightsError(f'it refers to {module}.{name}, which is refused: only tensors are read')

    def persistent_load(self, pid: Any) -> _Storage:
        kind, dtype, key, _, elements, *view = pid
        if kind != 'storage' or dtype not in _DTYPES.values() or type(key) is not str or type(elements) is not int or any(view):
            raise WeightsError('a storage with a malformed description')
        return self.storages.setdefault(key, _Storage(key, dtype, elements))


def read_torch(data: bytes, source: str) -> dict[str, NDArray[Any]]:
    """Read the state dict in the bytes of a .pth file: name -> contiguous array, of the dtype and values stored.

    `source` names the file in errors. Raises WeightsError when the file is truncated or damaged, is not a flat dictionary
    of dense tensors, or refers to anything else; the message names the first global that is refused.
    """
    try:
        return _read_zip(data) if data[:2] == b'PK' else _read_stream(data)
    except WeightsError as error:
        raise WeightsError(f'{source} cannot be read: {error}') from error
    except Exception as error:  # a damaged pickle can fail in any way
        raise WeightsError(f'{source} is damaged or no PyTorch checkpoint ({type(error).__name__}: {error})') from error


def _read_zip(data: bytes) -> dict[str, NDArray[Any]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if any(info.compress_type != zipfile.ZIP_STORED for info in archive.infolist()):
            raise WeightsError('its archive is compressed, which PyTorch never does')
        names = set(archive.namelist())
        roots = [name[:-len('/data.pkl')] for name in names if name.endswith('/data.pkl') and name.count('/') == 1]
        if len(roots) != 1:
            raise WeightsError('its archive holds no data.pkl')
        if f'{roots[0]}/byteorder' in names and archive.read(f'{roots[0]}/byteorder') != b'little':
            raise WeightsError('it is not little endian')
        unpickler = _TensorUnpickler(io.BytesIO(archive.read(f'{roots[0]}/data.pkl')))
        state = unpickler.load()
        return _tensors(state, {key: archive.read(f'{roots[0]}/data/{key}') for key in unpickler.storages})


def _read_stream(data: bytes) -> dict[str, NDArray[Any]]:
    stream = io.BytesIO(data)
    head = [_TensorUnpickler(stream).load() for _ in range(3)]
    if head[0] != _MAGIC or head[1] != _PROTOCOL or not head[2]['little_endian']:
        raise WeightsError('it is neither a PyTorch archive nor a little-endian PyTorch stream')
    unpickler = _TensorUnpickler(stream)
    state = unpickler.load()
    blobs = {}
    for key in _TensorUnpickler(stream).load():
        storage = unpickler.storages[key]
        count, = struct.unpack('<q', stream.read(8))
        if count != storage.elements:
            raise WeightsError(f'a storage of {count} elements where {storage.elements} are announced')
        blobs[key] = stream.read(count * np.dtype(storage.dtype).itemsize)
    return _tensors(state, blobs)


def _tensors(state: Any, blobs: dict[str, bytes]) -> dict[str, NDArray[Any]]:
    if not isinstance(state, dict):
        raise WeightsError(f'it holds a {type(state).__name__}, not a dictionary of tensors')
    tensors = {}
    for name, view in dict.items(state):
        if type(name) is not str or type(view) is not _View:
            raise WeightsError(f'its entry {name!r} is a {type(view).__name__}, not a tensor')
        tensors[name] = _array(name, view, blobs[view.storage.key])
    return tensors


def _array(name: str, view: _View, blob: bytes) -> NDArray[Any]:
    dtype = np.dtype(view.storage.dtype)
    if len(blob) != view.storage.elements * dtype.itemsize:
        raise WeightsError(f'{name} has {len(blob)} bytes of storage where {view.storage.elements} {dtype} are announced')
    last = view.offset + sum((n - 1) * s for n, s in zip(view.shape, view.strides, strict=True))
    elements = math.prod(view.shape)
    if elements and (last >= view.storage.elements or elements > view.storage.elements):
        raise WeightsError(f'{name} of shape {view.shape} reaches beyond its storage of {view.storage.elements} elements')
    if not elements:
        return np.empty(view.shape, dtype)
    flat = np.frombuffer(blob, dtype)[view.offset:]
    strided: NDArray[Any] = np.lib.stride_tricks.as_strided(flat, view.shape, [s * dtype.itemsize for s in view.strides])
    return np.array(strided, order='C')
