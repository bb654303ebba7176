"""What the tests of weights share: a cache of their own, an HTTP server."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.pth_files import BODY


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(('127.0.0.1', 0), _Handler)
        self.body, self.status, self.requests, self.announced = BODY, 200, 0, True
        self.cut: int | None = None
        self.stalls, self.delay = False, 0.0  # after what it sends; seconds before the first byte

    @property
    def url(self) -> str:
        return f'http://127.0.0.1:{self.server_port}/weights.pth'


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        server = self.server
        server.requests += 1
        time.sleep(server.delay)
        if server.status != 200:
            self.send_error(server.status)
            return
        self.send_response(200)
        if server.announced:
            self.send_header('Content-Length', str(len(server.body)))
        self.end_headers()
        self.wfile.write(server.body[:server.cut])
        if server.stalls:
            time.sleep(1.0)
        self.close_connection = True


@pytest.fixture
def http_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv('no_proxy', '127.0.0.1')
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def weights_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv('LIGHTGLUE_TRT_CACHE', str(tmp_path / 'cache'))
    monkeypatch.setenv('no_proxy', '127.0.0.1')
    return tmp_path / 'cache' / 'weights'
