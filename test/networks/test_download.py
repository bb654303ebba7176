"""Downloads from real HTTP servers on the loopback: whole, resumed, cut, wrong, stalled, refused."""

from __future__ import annotations

import hashlib
import os
import socket
import time

import pytest
from support.pth_files import BODY

from lightglue_trt_ros.networks import weight_store
from lightglue_trt_ros.networks.weight_store import download
from lightglue_trt_ros.utils.errors import WeightsError

pytest_plugins = ['support.weights_fixtures']
SHA256 = hashlib.sha256(BODY).hexdigest()


def get(http_server, target, progress=lambda done, total: None):
    download(http_server.url, target, len(BODY), SHA256, progress)


def test_a_whole_file_arrives_with_progress(http_server, tmp_path):
    seen = []
    get(http_server, tmp_path / 'deep' / 'f', lambda done, total: seen.append((done, total)))
    assert (tmp_path / 'deep' / 'f').read_bytes() == BODY
    assert os.listdir(tmp_path / 'deep') == ['f']
    assert seen == sorted(seen)
    assert seen[-1] == (len(BODY), len(BODY))


def test_a_part_is_resumed_where_it_ended(http_server, tmp_path):
    (tmp_path / 'f.part').write_bytes(BODY[:700_000])
    get(http_server, tmp_path / 'f')
    assert http_server.requests == ['bytes=700000-']
    assert (tmp_path / 'f').read_bytes() == BODY
    assert not (tmp_path / 'f.part').exists()


def test_a_server_without_ranges_starts_over(http_server, tmp_path):
    http_server.ranges = False
    (tmp_path / 'f.part').write_bytes(b'x' * 700_000)
    get(http_server, tmp_path / 'f')
    assert (tmp_path / 'f').read_bytes() == BODY


def test_a_complete_part_needs_no_request(http_server, tmp_path):
    (tmp_path / 'f.part').write_bytes(BODY)
    get(http_server, tmp_path / 'f')
    assert http_server.requests == []
    assert (tmp_path / 'f').read_bytes() == BODY


@pytest.mark.parametrize('announced', [True, False])
def test_a_cut_connection_goes_on_by_itself(http_server, tmp_path, announced):
    http_server.cuts, http_server.announced = [500_000, 1_500_000], announced
    get(http_server, tmp_path / 'f')
    assert http_server.requests == [None, 'bytes=500000-', 'bytes=1500000-']
    assert (tmp_path / 'f').read_bytes() == BODY


def test_a_connection_cut_again_and_again_keeps_the_part_for_the_next_run(http_server, tmp_path):
    http_server.cuts = [400_000, 800_000, 1_200_000]
    with pytest.raises(WeightsError, match=f'1200000 of {len(BODY)} bytes are kept'):
        get(http_server, tmp_path / 'f')
    assert not (tmp_path / 'f').exists()
    get(http_server, tmp_path / 'f')
    assert http_server.requests[-1] == 'bytes=1200000-'
    assert (tmp_path / 'f').read_bytes() == BODY


def test_a_server_that_never_gets_further_is_given_up(http_server, tmp_path):
    http_server.ranges, http_server.cuts = False, [400_000] * 9
    with pytest.raises(WeightsError, match='ended early'):
        get(http_server, tmp_path / 'f')
    assert len(http_server.requests) == 2


def test_wrong_bytes_name_both_checksums_and_leave_nothing(http_server, tmp_path):
    http_server.body = BODY[::-1]
    with pytest.raises(WeightsError) as caught:
        get(http_server, tmp_path / 'f')
    assert SHA256 in str(caught.value)
    assert hashlib.sha256(http_server.body).hexdigest() in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_another_size_is_refused_before_it_is_read(http_server, tmp_path):
    http_server.body = b'<html>please log in</html>'
    with pytest.raises(WeightsError, match='offers 26 bytes where 2097152 are expected'):
        get(http_server, tmp_path / 'f')
    assert os.listdir(tmp_path) == []


def test_a_resumed_file_that_is_shorter_there_is_refused(http_server, tmp_path):
    http_server.body = BODY[:1000]
    (tmp_path / 'f.part').write_bytes(BODY[:2000])
    with pytest.raises(WeightsError, match='offers 1000 bytes'):
        get(http_server, tmp_path / 'f')
    assert http_server.requests == ['bytes=2000-', None]


@pytest.mark.parametrize('status', [403, 404, 503])
def test_an_http_error_is_told_and_not_repeated(http_server, tmp_path, status):
    http_server.status = status
    with pytest.raises(WeightsError, match=f'HTTP {status}'):
        get(http_server, tmp_path / 'f')
    assert len(http_server.requests) == 1
    assert os.listdir(tmp_path) == []


def test_a_stalled_server_is_left_after_the_timeout(http_server, tmp_path, monkeypatch):
    monkeypatch.setattr(weight_store, 'TIMEOUT_S', 0.1)
    http_server.cuts, http_server.stall_at = [300_000], 300_000
    get(http_server, tmp_path / 'f')
    assert http_server.requests == [None, 'bytes=300000-']
    assert (tmp_path / 'f').read_bytes() == BODY


def test_nobody_listening_fails_at_once(tmp_path):
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        url = f'http://127.0.0.1:{free.getsockname()[1]}/f'
    before = time.monotonic()
    with pytest.raises(WeightsError, match='refused'):
        download(url, tmp_path / 'f', 1, SHA256, lambda done, total: None)
    assert time.monotonic() - before < 2
    assert os.listdir(tmp_path) == []
