"""PyTorch checkpoints without PyTorch: a reader that knows tensors and nothing else.

A .pth file is a pickle, and a pickle may call anything. This reader resolves the few globals a state dict consists of and
refuses every other by name, so that reading runs no code of the file's choosing. Formats: torch.serialization, both the zip
archive (PyTorch >= 1.6) and the stream before it, little endian.
"""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..utils.errors import WeightsError

_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001  # open the stream format
_DTYPES = {'DoubleStorage': '<f8', 'FloatStorage': '<f4', 'HalfStorage': '<f2', 'LongStorage': '<i8', 'IntStorage': '<i4',
           'ShortStorage': '<i2', 'CharStorage': '<i1', 'ByteStorage': '<u1', 'BoolStorage': '?'}


class _Storage(NamedTuple):
    key: str
    dtype: np.dtype[Any]


class _TensorView(NamedTuple):
    """A tensor as the pickle describes it; its bytes may come later in the file."""

    storage: _Storage
    offset: int  # elements, as the strides
    shape: tuple[int, ...]
    strides: tuple[int, ...]


_GLOBALS: dict[tuple[str, str], Any] = {
    ('collections', 'OrderedDict'): OrderedDict,
    ('torch._utils', '_rebuild_tensor_v2'): lambda storage, offset, shape, strides, *_: _TensorView(
        storage, offset, shape, strides),
    ('torch._utils', '_rebuild_parameter'): lambda view, *_: view,
    **{('torch', name): dtype for name, dtype in _DTYPES.items()},  # strings: nothing that could be called
}


class _TensorUnpickler(pickle.Unpickler):
    """Knows dictionaries, numbers, strings and tensors."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, encoding='utf-8')
        self.storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _GLOBALS:
            raise WeightsError(f'it refers to {module}.{name}, which is refused: only tensors are read')
        return _GLOBALS[module, name]

    def persistent_load(self, pid: Any) -> _Storage:
        _, dtype, key, *_ = pid
        return self.storages.setdefault(key, _Storage(key, np.dtype(dtype)))


def read_torch(data: bytes, source: str) -> dict[str, NDArray[Any]]:
    """Read the state dict in the bytes of a .pth file: name -> contiguous array, of the dtype and values stored.

    `source` names the file in errors. Raises WeightsError when the file is truncated or damaged, is not a flat dictionary
    of dense tensors, or refers to anything else; the message names the first global that is refused.
    """
    try:
        return _read_zip(data) if data[:2] == b'PK' else _read_stream(io.BytesIO(data))
    except WeightsError as error:
        raise WeightsError(f'{source} cannot be read: {error}') from error
    except Exception as error:  # a damaged pickle can fail in any way
        raise WeightsError(f'{source} is damaged or no PyTorch checkpoint ({type(error).__name__}: {error})') from error


def _read_zip(data: bytes) -> dict[str, NDArray[Any]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        root = next(name.removesuffix('data.pkl') for name in archive.namelist() if name.endswith('/data.pkl'))
        unpickler = _TensorUnpickler(io.BytesIO(archive.read(f'{root}data.pkl')))
        state = unpickler.load()
        return _tensors(state, {key: archive.read(f'{root}data/{key}') for key in unpickler.storages})


def _read_stream(stream: io.BytesIO) -> dict[str, NDArray[Any]]:
    if [_TensorUnpickler(stream).load() for _ in range(3)][:2] != [_MAGIC, _PROTOCOL]:
        raise WeightsError('it is neither a PyTorch archive nor a PyTorch stream')
    unpickler = _TensorUnpickler(stream)
    state, blobs = unpickler.load(), {}
    for key in _TensorUnpickler(stream).load():
        count, = struct.unpack('<q', stream.read(8))
        blobs[key] = stream.read(count * unpickler.storages[key].dtype.itemsize)
    return _tensors(state, blobs)


def _tensors(state: Any, blobs: dict[str, bytes]) -> dict[str, NDArray[Any]]:
    if not isinstance(state, dict) or not all(type(view) is _TensorView for view in dict.values(state)):
        raise WeightsError(f'it holds a {type(state).__name__} that is no dictionary of tensors')
    return {name: _array(view, blobs[view.storage.key]) for name, view in dict.items(state)}


def _array(view: _TensorView, blob: bytes) -> NDArray[Any]:
    """NumPy itself refuses what reaches beyond the blob."""
    dtype = view.storage.dtype
    if 0 in view.shape:
        return np.empty(view.shape, dtype)
    strides = [stride * dtype.itemsize for stride in view.strides]
    return np.array(np.ndarray(view.shape, dtype, blob, view.offset * dtype.itemsize, strides), order='C')
