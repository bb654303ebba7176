"""Downloads from real HTTP servers on the loopback: whole, cut, wrong, stalled, refused."""

from __future__ import annotations

import hashlib
import socket
import time

import pytest
from support.pth_files import BODY

from lightglue_trt_ros.networks import weight_store
from lightglue_trt_ros.networks.weight_store import download
from lightglue_trt_ros.utils.errors import WeightsError

pytest_plugins = ['support.weights_fixtures']
SHA256 = hashlib.sha256(BODY).hexdigest()


def get(http_server, progress=lambda done, total: None):
    return download(http_server.url, len(BODY), SHA256, progress)


@pytest.mark.parametrize('announced', [True, False])
def test_a_whole_file_arrives_with_progress(http_server, announced):
    seen, http_server.announced = [], announced
    assert get(http_server, lambda done, total: seen.append((done, total))) == BODY
    assert seen == sorted(seen)
    assert seen[-1] == (len(BODY), len(BODY))


@pytest.mark.parametrize('announced', [True, False])
def test_a_cut_connection_is_told_with_what_came(http_server, announced):
    http_server.cut, http_server.announced = 500_000, announced
    with pytest.raises(WeightsError, match=f'the connection ended after 500000 of {len(BODY)} bytes'):
        get(http_server)


def test_another_size_is_refused_before_it_is_read(http_server):
    http_server.body = b'<html>please log in</html>'
    with pytest.raises(WeightsError, match='offers 26 bytes where 2097152 are expected'):
        get(http_server)


@pytest.mark.parametrize('status', [403, 404, 503])
def test_an_http_error_is_told_and_not_repeated(http_server, status):
    http_server.status = status
    with pytest.raises(WeightsError, match=f'HTTP {status}'):
        get(http_server)
    assert http_server.requests == 1


def test_a_stalled_server_is_left_after_the_timeout(http_server, monkeypatch):
    monkeypatch.setattr(weight_store, 'TIMEOUT_S', 0.1)
    http_server.cut, http_server.stalls = 300_000, True
    with pytest.raises(WeightsError, match='timed out'):
        get(http_server)


def test_nobody_listening_fails_at_once():
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        url = f'http://127.0.0.1:{free.getsockname()[1]}/f'
    before = time.monotonic()
    with pytest.raises(WeightsError, match='refused'):
        download(url, 1, SHA256, lambda done, total: None)
    assert time.monotonic() - before < 2
