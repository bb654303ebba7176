"""The .pth reader: exact on what PyTorch writes, closed to everything else."""

from __future__ import annotations

import io
import os
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pth_files import pth, stream_file, tensor_opcodes, zip_file

from lightglue_trt_ros.networks.torch_checkpoint import read_torch
from lightglue_trt_ros.utils.errors import WeightsError

TENSORS: dict[str, np.ndarray] = {
    'a.weight': np.arange(6, dtype=np.float32).reshape(2, 3), 'b': np.array([1.5, -2], np.float16), 'n': np.array(7)}


@pytest.mark.parametrize('legacy', [False, True])
def test_hand_written_files_read_exactly(legacy):
    read = read_torch(pth(TENSORS, legacy), 'x.pth')
    assert list(read) == list(TENSORS)
    for name, tensor in TENSORS.items():
        assert (read[name].dtype, read[name].shape) == (tensor.dtype, tensor.shape)
        assert read[name].tobytes() == tensor.tobytes()


@pytest.mark.parametrize('zipped', [True, False])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_what_pytorch_writes_reads_exactly(zipped, data):
    torch = pytest.importorskip('torch', reason='PyTorch, the reference here, is not installed')
    dtype = data.draw(st.sampled_from([torch.float32, torch.float16, torch.float64, torch.int64, torch.uint8, torch.bool]))
    shape = data.draw(st.lists(st.integers(0, 4), max_size=4))
    whole = torch.randint(0, 2 if dtype is torch.bool else 100, shape).to(dtype)
    state = {'whole': whole, 'turned': whole.permute(list(reversed(range(whole.ndim)))), 'again': whole,
             'parameter': torch.nn.Parameter(torch.ones(2, 3))}
    if shape and shape[0] > 1:
        state['part'] = whole[1::2]
    out = io.BytesIO()
    torch.save(state, out, _use_new_zipfile_serialization=zipped)
    read = read_torch(out.getvalue(), 'x.pth')
    assert read.keys() == state.keys()
    for name, tensor in state.items():
        expected = tensor.detach().numpy()
        assert (read[name].dtype, read[name].shape) == (expected.dtype, expected.shape)
        assert read[name].tobytes() == expected.tobytes()
        assert read[name].flags.c_contiguous


@pytest.mark.parametrize('zipped', [True, False])
def test_state_dict_of_a_module_with_its_metadata(zipped):
    torch = pytest.importorskip('torch', reason='PyTorch, the reference here, is not installed')
    module, out = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2)), io.BytesIO()
    torch.save(module.state_dict(), out, _use_new_zipfile_serialization=zipped)
    read = read_torch(out.getvalue(), 'x.pth')
    assert {name: tensor.tobytes() for name, tensor in read.items()} == {
        name: tensor.numpy().tobytes() for name, tensor in module.state_dict().items()}


class _Touch:
    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize('protocol', [0, 2, 4])
@pytest.mark.parametrize('write', [lambda p: zip_file(p, {}), lambda p: stream_file(p, {}), lambda p: p])
def test_a_pickle_that_calls_is_refused_and_not_run(tmp_path, write, protocol):
    victim = tmp_path / 'victim'
    attack = pickle.dumps({'w': _Touch(victim)}, protocol=protocol)
    with pytest.raises(WeightsError, match=r'evil\.pth cannot be read: it refers to posix\.mkdir, which is refused'):
        read_torch(write(attack), 'evil.pth')
    assert not victim.exists()
    pickle.loads(attack)
    assert victim.exists()  # the attack itself works


@pytest.mark.parametrize('name', ['builtins\neval', 'torch\nload', 'torch.storage\n_load_from_bytes', 'collections\nUserDict',
                                  'torch._utils\n_rebuild_tensor_v3', 'torch\nBFloat16Storage'])
def test_every_other_global_is_refused_by_name(name):
    with pytest.raises(WeightsError, match=name.replace('\n', '.')):
        read_torch(zip_file(b'\x80\x02c' + name.encode() + b'\n.', {}), 'x.pth')


@pytest.mark.parametrize('tensor', [
    tensor_opcodes('0', 4, (5,), (1,)),
    tensor_opcodes('0', 4, (2, 2), (4, 1)),
    tensor_opcodes('0', 4, (1,), (1,), offset=4),
    tensor_opcodes('0', 4, (1,), (1,), offset=-1),
    tensor_opcodes('0', 4, (2,), (-1,)),
    tensor_opcodes('0', 4, (2, 2), (1,)),
    tensor_opcodes('../0', 4, (4,), (1,)),
    b'K\x01',
])
def test_a_tensor_that_does_not_fit_its_storage_is_refused(tensor):
    with pytest.raises(WeightsError):
        read_torch(zip_file(b'\x80\x02}X\x01\0\0\0w' + tensor + b's.', {'0': bytes(16)}), 'x.pth')


def test_the_same_tensor_is_read_when_it_fits():
    data = zip_file(b'\x80\x02}X\x01\0\0\0w' + tensor_opcodes('0', 4, (2,), (2,), offset=1) + b's.', {'0': bytes(range(16))})
    assert read_torch(data, 'x.pth')['w'].tobytes() == bytes([4, 5, 6, 7, 12, 13, 14, 15])


@pytest.mark.parametrize('state', [b'\x80\x02].', b'\x80\x02K\x01.', b'\x80\x02}K\x01K\x02s.'])
def test_what_is_no_state_dict_is_refused(state):
    with pytest.raises(WeightsError):
        read_torch(zip_file(state, {}), 'x.pth')


@pytest.mark.parametrize('legacy', [False, True])
def test_every_truncation_is_an_error(legacy):
    data = pth(TENSORS, legacy)
    for end in range(len(data)):
        with pytest.raises(WeightsError):
            read_torch(data[:end], 'x.pth')


def test_a_flipped_bit_in_an_archive_is_found():
    data = bytearray(pth({'w': np.full(64, 1.25, np.float32)}))
    data[data.index(np.full(64, 1.25, np.float32).tobytes()) + 100] ^= 1
    with pytest.raises(WeightsError, match='CRC'):
        read_torch(bytes(data), 'x.pth')


@given(st.binary(max_size=64).filter(lambda data: b'r' not in data))  # LONG_BINPUT can ask for 64 GB
def test_garbage_is_a_weights_error(data):
    with pytest.raises(WeightsError):
        read_torch(data, 'x.pth')
