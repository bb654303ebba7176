"""Getting a file whose checksum is known: over HTTP, resumable.

With the standard library: pooch does not resume, and requests or urllib3 would leave ten lines less for another dependency.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from ..utils.errors import WeightsError

Progress = Callable[[int, int], None]  # (bytes there, bytes in all)

TIMEOUT_S = 10.0
RETRIES = 2  # after a connection that brought something and broke; one that brings nothing is not tried again
_CHUNK = 1 << 18


class _NetworkError(Exception):
    """Sets the network's failures apart from the disk's: both are OSError."""


def check_sha256(data: bytes, sha256: str, what: str, advice: str) -> None:
    """Raise WeightsError, with both checksums, unless `data` has the checksum `sha256` (hexadecimal)."""
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise WeightsError(f'{what} has sha256 {found} where {sha256} is expected: {advice}')


def download(url: str, target: Path, size: int, sha256: str, progress: Progress) -> None:
    """Fetch `url` into `target`, which appears only when it is complete and its checksum is right.

    What has come so far lies in `target`.part, and another call goes on from there (HTTP range requests, RFC 9110 section 14;
    from the beginning where the server ignores them). Raises WeightsError when the network or the server fails, the bytes are
    not the expected ones (the .part is then removed); OSError when the disk fails. One at a time: see `alone`.
    """
    part = target.with_name(target.name + '.part')
    part.parent.mkdir(parents=True, exist_ok=True)
    try:
        with part.open('ab') as file:
            _receive(url, file, size, progress)
        try:
            check_sha256(part.read_bytes(), sha256, f'what {url} sent', 'it was removed; fetch it again')
        except WeightsError:
            part.unlink()
            raise
        os.replace(part, target)
    finally:
        if part.exists() and not part.stat().st_size:
            part.unlink()


def _receive(url: str, file: IO[bytes], size: int, progress: Progress) -> None:
    reason = ''
    for _ in range(1 + RETRIES):
        start = file.tell()
        if start >= size:
            return
        try:
            with _request(url, start) as response:
                _check_range(url, response, start, size)
                if response.status != http.client.PARTIAL_CONTENT:
                    file.seek(0)
                    file.truncate()
                while file.tell() < size and (chunk := _read(response)):
                    file.write(chunk)
                    progress(file.tell(), size)
            reason = 'the connection ended early'
        except _NetworkError as error:
            reason = str(error)
        if file.tell() <= start:
            break
    if file.tell() < size:
        kept = f'; {file.tell()} of {size} bytes are kept, and the next run goes on from there' if file.tell() else ''
        raise WeightsError(f'{url}: {reason}{kept}')


def _request(url: str, start: int) -> Any:
    headers = {'User-Agent': 'lightglue_trt_ros', 'Accept-Encoding': 'identity'}
    if start:
        headers['Range'] = f'bytes={start}-'
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        if start and error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            return _request(url, 0)
        raise _NetworkError(f'HTTP {error.code} {error.reason}') from error
    except urllib.error.URLError as error:
        raise _NetworkError(str(error.reason)) from error
    except (OSError, http.client.HTTPException) as error:
        raise _NetworkError(str(error) or type(error).__name__) from error


def _check_range(url: str, response: Any, start: int, size: int) -> None:
    total = response.headers.get('Content-Length')
    if response.status == http.client.PARTIAL_CONTENT:
        span, _, total = response.headers.get('Content-Range', '').rpartition('/')
        if not span.startswith(f'bytes {start}-'):
            raise _NetworkError(f'the server answered the range {span!r} where byte {start} was asked for')
    if total and total.isdigit() and int(total) != size:
        raise WeightsError(f'{url} offers {total} bytes where {size} are expected: a proxy or login page may have answered')


def _read(response: Any) -> bytes:
    try:
        return bytes(response.read1(_CHUNK))  # what is there: a stall loses nothing
    except (OSError, http.client.HTTPException) as error:
        raise _NetworkError(str(error) or type(error).__name__) from error
