"""Fetching weights: download, fallback, read-only caches, the command."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from pathlib import Path

import pytest
from support.pth_files import NOWHERE, SUPERPOINT, pin, pth
from support.random_pairs import TINY, random_pair

from lightglue_trt_ros.cli.fetch_weights import main
from lightglue_trt_ros.networks.models import load_model
from lightglue_trt_ros.networks.weight_store import REGISTRY, fetch, is_available, load_weights
from lightglue_trt_ros.utils.errors import WeightsError

pytest_plugins = ['support.weights_fixtures']
pytestmark = pytest.mark.usefixtures('weights_cache')


def test_fetch_downloads_converts_and_leaves_only_the_canonical_file(http_server, monkeypatch, weights_cache):
    http_server.body = pth(SUPERPOINT, legacy=True)
    pin(monkeypatch, 'superpoint', http_server.body, http_server.url)
    assert fetch('superpoint') == weights_cache / 'superpoint_v1.safetensors'
    assert os.listdir(weights_cache) == ['superpoint_v1.safetensors']
    fetch('superpoint')
    assert http_server.requests == 1
    fetch('superpoint', force=True)
    assert http_server.requests == 2
    assert load_weights('superpoint').tensors.keys() == SUPERPOINT.keys()


def test_force_that_fails_leaves_what_was_there(http_server, monkeypatch, weights_cache):
    http_server.body = pth(SUPERPOINT)
    pin(monkeypatch, 'superpoint', http_server.body, http_server.url)
    fetch('superpoint')
    http_server.status = 503
    with pytest.raises(WeightsError, match='503'):
        fetch('superpoint', force=True)
    assert load_weights('superpoint').tensors.keys() == SUPERPOINT.keys()


def test_wrong_bytes_are_refused_with_both_checksums(http_server, monkeypatch, weights_cache):
    data = pth(SUPERPOINT)
    http_server.body = data[::-1]
    source = pin(monkeypatch, 'superpoint', data, http_server.url)
    with pytest.raises(WeightsError) as caught:
        fetch('superpoint')
    assert source.sha256 in str(caught.value)
    assert hashlib.sha256(http_server.body).hexdigest() in str(caught.value)
    assert os.listdir(weights_cache) == []


def test_a_failed_download_gives_its_reason_and_the_way_by_hand(monkeypatch, weights_cache):
    source = pin(monkeypatch, 'superpoint', pth(SUPERPOINT))
    with pytest.raises(WeightsError) as caught:
        fetch('superpoint')
    for part in (NOWHERE, 'refused', source.sha256, str(weights_cache / source.file)):
        assert part in str(caught.value)


def test_a_cache_that_cannot_be_made_names_the_path_and_the_variable(http_server, monkeypatch, tmp_path):
    http_server.body = pth(SUPERPOINT)
    pin(monkeypatch, 'superpoint', http_server.body, http_server.url)
    (tmp_path / 'file').touch()
    monkeypatch.setenv('LIGHTGLUE_TRT_CACHE', str(tmp_path / 'file' / 'cache'))
    with pytest.raises(WeightsError, match=r'file/cache/weights cannot be written.*LIGHTGLUE_TRT_CACHE'):
        fetch('superpoint')


def test_read_only_cache_fails_fetching_but_not_loading(http_server, monkeypatch):
    http_server.body = pth(SUPERPOINT)
    pin(monkeypatch, 'superpoint', http_server.body, http_server.url)
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base) / 'weights'
        folder.mkdir()
        monkeypatch.setenv('LIGHTGLUE_TRT_CACHE', base)
        try:
            os.chmod(base, 0o755)
            folder.chmod(0o555)
            if user == 0:
                os.seteuid(65534)  # permissions do not bind root
            with pytest.raises(WeightsError, match=r'weights cannot be written \(Permission denied\): set LIGHTGLUE_TRT_CACHE'):
                fetch('superpoint')
            os.seteuid(user)
            folder.chmod(0o755)
            (folder / 'superpoint_v1.pth').write_bytes(http_server.body)
            folder.chmod(0o555)
            if user == 0:
                os.seteuid(65534)
            assert load_weights('superpoint').path == folder / 'superpoint_v1.pth'
        finally:
            os.seteuid(user)
            folder.chmod(0o755)


# The command

@pytest.fixture
def small_pair(monkeypatch):
    """The pair magicleap, pinned to small random networks; without a source for its matcher."""
    pair = random_pair(**TINY)
    official = {re.sub(r'^transformers\.(\d+)\.(self_attn|cross_attn)\.', r'\2.\1.', name): tensor
                for name, tensor in pair.matcher.tensors.items()}
    data = pth(pair.extractor.tensors), pth(official)
    for name, each in zip(('superpoint', 'lightglue_official'), data, strict=True):
        pin(monkeypatch, name, each)
    return data


def test_the_command_fetches_what_it_can_and_says_what_is_lacking(http_server, small_pair, monkeypatch, weights_cache, capsys):
    http_server.body, matcher = small_pair
    pin(monkeypatch, 'superpoint', http_server.body, http_server.url)
    assert main(['magicleap']) == 1
    out, err = capsys.readouterr()
    assert 'NON-COMMERCIAL RESEARCH USE ONLY' in out
    assert http_server.url in out
    assert err.startswith('fetch_weights: lightglue_official: http://127.0.0.1:9/')
    assert f'put {NOWHERE}' in err
    assert is_available('superpoint')
    (weights_cache / 'superpoint_lightglue.pth').write_bytes(matcher)  # as it says
    assert main(['magicleap']) == 0
    assert 'magicleap: complete; to use it: weights: magicleap' in capsys.readouterr().out
    assert load_model('magicleap').layers == TINY['layers']
    assert http_server.requests == 1, 'what is there is not fetched again'


def test_model_whose_networks_cannot_be_fetched_fails_with_both_reasons(small_pair, capsys):
    assert main(['magicleap']) == 1
    err = capsys.readouterr().err
    assert 'fetch_weights: superpoint: http://127.0.0.1:9/' in err
    assert 'fetch_weights: lightglue_official: http://127.0.0.1:9/' in err


def test_the_command_takes_another_cache_and_says_how_to_use_it(http_server, small_pair, monkeypatch, tmp_path, weights_cache,
                                                                capsys):
    http_server.body, matcher = small_pair
    pin(monkeypatch, 'superpoint', http_server.body, http_server.url)
    other = tmp_path / 'other/weights'
    other.mkdir(parents=True)
    (other / 'superpoint_lightglue.pth').write_bytes(matcher)
    assert main(['magicleap', '--cache-dir', str(tmp_path / 'other')]) == 0
    assert f'export LIGHTGLUE_TRT_CACHE={tmp_path / "other"}' in capsys.readouterr().out
    assert main(['ours', '--cache-dir', str(tmp_path / 'other')]) == 0
    assert 'export' not in capsys.readouterr().out, 'shipped models are not in the cache'
    assert (other / 'superpoint_v1.safetensors').exists()
    assert not weights_cache.exists()


def test_the_pairs_are_shown_with_what_is_there_and_nothing_is_fetched(weights_cache, capsys):
    assert main([]) == 0
    out = capsys.readouterr().out
    for source in REGISTRY.values():
        assert source.sha256 in out
        assert source.licence in out
    pair = load_model()
    assert 'ours: shipped, nothing to fetch' in out
    assert f'sha256 {pair.extractor.sha256}' in out
    assert str(pair.matcher.path) in out
    assert 'magicleap: not fetched; fetch_weights magicleap gets it' in out
    assert not weights_cache.exists()


def test_what_is_shipped_needs_no_fetching(weights_cache, capsys):
    assert main(['ours']) == 0
    assert str(load_model('ours').extractor.path.parent) in capsys.readouterr().out
    assert not weights_cache.exists()


def test_force_without_a_model_is_refused(usage_error):
    assert '--force fetches a model again: name the model' in usage_error(main, '--force')


def test_an_unknown_name_is_an_error_without_a_traceback(capsys):
    assert main(['superglue']) == 1
    assert "there is no model 'superglue': use ours, ours_light, magicleap" in capsys.readouterr().err
