"""Weights that are fetched: where they come from, how they are downloaded, converted, kept and checked.

They are kept as `weights` writes them. Every source file is pinned by its sha256. Loading never touches the network; `fetch` does.
"""

from __future__ import annotations

import hashlib
import http.client
import logging
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..utils.errors import ConfigError, WeightsError
from ..utils.files import locked, write_whole
from .torch_checkpoint import read_torch
from .weights import Tensors, Weights, content_sha256, parse, read_file, serialize

CACHE_VARIABLE = 'LIGHTGLUE_TRT_CACHE'
logger = logging.getLogger(__name__)
FETCH_COMMAND = 'ros2 run lightglue_trt_ros fetch_weights'
Progress = Callable[[int, int], None]  # (bytes there, bytes in all)

TIMEOUT_S = 10.0
_CHUNK = 1 << 18


@dataclass(frozen=True)
class Source:
    """One network's weights: the file they come from and the terms they come under."""

    name: str
    model: str  # that they belong to
    file: str
    sha256: str  # of that file, hexadecimal
    size: int  # bytes
    licence: str
    url: str
    caveat: str = ''  # what a user accepts by fetching


_RELEASE = 'https://github.com/cvg/LightGlue/releases/download/v0.1_arxiv'

REGISTRY = {source.name: source for source in (  # of each model the extractor, then the matcher
    Source(
        name='superpoint', model='magicleap', file='superpoint_v1.pth', size=5206086,
        url=f'{_RELEASE}/superpoint_v1.pth',
        sha256='52b6708629640ca883673b5d5c097c4ddad37d8048b33f09c8ca0d69db12c40e',
        licence='Magic Leap, non-commercial research only',
        caveat="SuperPoint's released weights belong to Magic Leap, Inc. Their licence allows academic and non-profit,\n"
               'NON-COMMERCIAL RESEARCH USE ONLY. They are not part of this package; by fetching them you accept that licence:\n'
               'https://github.com/magicleap/SuperPointPretrainedNetwork/blob/master/LICENSE'),
    Source(
        name='lightglue_official', model='magicleap', file='superpoint_lightglue.pth', size=47500279,
        url=f'{_RELEASE}/superpoint_lightglue.pth',
        sha256='6ff7040d0a497fc6639337946d7538dae07428c18f77a067a0b5a960e7cc551a', licence='Apache-2.0'),
)}


def cache_dir() -> Path:
    """$LIGHTGLUE_TRT_CACHE, else $XDG_CACHE_HOME/lightglue_trt_ros, else ~/.cache/lightglue_trt_ros; it need not exist.

    Raises ConfigError where the user has no home.
    """
    own = os.environ.get(CACHE_VARIABLE)
    if own:
        return Path(own).expanduser().absolute()
    xdg = Path(os.environ.get('XDG_CACHE_HOME', ''))
    try:
        base = xdg if xdg.is_absolute() else Path('~/.cache').expanduser()
    except RuntimeError as error:  # of a user without an entry in the system, as in containers
        raise ConfigError(f'this user has no home folder for the cache: set HOME, or {CACHE_VARIABLE} to a folder') from error
    return base / 'lightglue_trt_ros'


def sources_of(model: str) -> tuple[Source, Source]:
    """A fetched model's extractor and matcher."""
    extractor, matcher = (source for source in REGISTRY.values() if source.model == model)
    return extractor, matcher


def is_available(name: str, cache: Path | None = None) -> bool:
    """Whether the weights are here: cached, or put into the cache by hand. Raises WeightsError on an unknown name."""
    return any(os.path.isfile(path) for path in places(_source(name), cache))


def load_weights(name: str, cache: Path | None = None) -> Weights:
    """Load weights that are on this machine, checked against their checksums; `cache` replaces `cache_dir()`.

    A .pth file that was put into the cache by hand is converted on first use. Raises WeightsError when the weights are
    missing (it says where to get them), damaged, or not the ones that the registry pins.
    """
    source = _source(name)
    converted, original = places(source, cache)
    if os.path.isfile(converted):
        return Weights(name, _read_converted(source, converted), source.sha256, converted)
    if not os.path.isfile(original):
        raise WeightsError(f'the weights {name} are not on this machine',
                           f': run `{FETCH_COMMAND} {source.model}`,\nor {_by_hand(source, original)}')
    tensors = _read_original(source, original)
    try:
        write_whole(converted, _serialize(source, tensors))
    except OSError:  # a cache that cannot be written: converted again next time
        return Weights(name, tensors, source.sha256, original)
    return Weights(name, tensors, source.sha256, converted)


def fetch(name: str, force: bool = False, progress: Progress = lambda done, total: None,
          cache: Path | None = None) -> Path:
    """Get weights into the cache, unless they are there, and return the path of the converted file.

    A second process waits for the first. `force` replaces what is there; `progress` is called with (bytes there, bytes in all).
    Raises WeightsError when they cannot be had, are not the pinned ones, or the cache cannot be written.
    """
    source = _source(name)
    converted, original = places(source, cache)
    if os.path.isfile(converted) and not force:
        return load_weights(name, cache).path
    folder = converted.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder.with_name(f'.{folder.name}.lock'),
                    lambda: logger.info(f'waiting for another process that fetches into {folder}')):
            if os.path.isfile(converted) and not force:  # another process was at it
                return load_weights(name, cache).path
            if os.path.isfile(original) and not (force and hashlib.sha256(original.read_bytes()).hexdigest() != source.sha256):
                tensors = _read_original(source, original)
            else:
                try:
                    data = download(source.url, source.size, source.sha256, progress)
                except WeightsError as error:
                    raise WeightsError(error.reason, f'\nWithout this download, {_by_hand(source, original)}') from error
                tensors = _tensors(data, source.url)
            write_whole(converted, _serialize(source, tensors))
    except OSError as error:
        raise WeightsError(f'the cache {folder} cannot be written ({error.strerror or error}): '
                           f'set {CACHE_VARIABLE} or --cache-dir to a directory that can') from error
    return converted


def _source(name: str) -> Source:
    if name not in REGISTRY:
        raise WeightsError(f'there are no weights {name!r}: use one of {", ".join(REGISTRY)}')
    return REGISTRY[name]


def places(source: Source, cache: Path | None = None) -> tuple[Path, Path]:
    """Where the canonical file and the source file belong."""
    original = (cache or cache_dir()) / 'weights' / source.file
    return original.with_suffix('.safetensors'), original


def _by_hand(source: Source, original: Path) -> str:
    return f'put {source.url} (sha256 {source.sha256}) at {original}'


def _read_original(source: Source, path: Path) -> Tensors:
    data = read_file(path)
    check_sha256(data, source.sha256, str(path), f'replace it, or run `{FETCH_COMMAND} {source.model} --force`')
    return _tensors(data, str(path))


def _tensors(data: bytes, where: str) -> Tensors:
    # The official LightGlue checkpoint numbers its layers the other way round: self_attn.0.… is transformers.0.self_attn.…
    return {re.sub(r'^(self_attn|cross_attn)\.(\d+)\.', r'transformers.\2.\1.', name): tensor
            for name, tensor in read_torch(data, where).items()}


def _read_converted(source: Source, path: Path) -> Tensors:
    advice = f'run `{FETCH_COMMAND} {source.model} --force`'
    try:
        tensors, metadata = parse(read_file(path))
    except ValueError as error:
        raise WeightsError(f'{path} is damaged ({error}): {advice}') from error
    if metadata.get('source_sha256') != source.sha256:
        raise WeightsError(f'{path} was made from sha256 {metadata.get("source_sha256")}, '
                           f'where {source.sha256} is expected: {advice}')
    if metadata.get('content_sha256') != content_sha256(tensors):
        raise WeightsError(f'{path} is damaged (its content has another checksum than was written): {advice}')
    return tensors


def _serialize(source: Source, tensors: Tensors) -> bytes:
    return serialize(tensors, {'licence': source.licence, 'name': source.name, 'source_sha256': source.sha256})


def check_sha256(data: bytes | bytearray, sha256: str, what: str, advice: str) -> None:
    """Raise WeightsError, with both checksums, unless `data` has the checksum `sha256` (hexadecimal)."""
    actual = hashlib.sha256(data).hexdigest()
    if actual != sha256:
        raise WeightsError(f'{what} has sha256 {actual} where {sha256} is expected: {advice}')


def download(url: str, size: int, sha256: str, progress: Progress) -> bytes:
    """What `url` sends. Raises WeightsError when the network or the server fails, or the bytes are not the expected ones."""
    request = urllib.request.Request(url, headers={'User-Agent': 'lightglue_trt_ros', 'Accept-Encoding': 'identity'})
    data = bytearray()
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            total = response.headers.get('Content-Length', str(size))
            if total != str(size):
                raise WeightsError(f'{url} offers {total} bytes where {size} are expected: a proxy or login page may have answered')
            while len(data) < size and (chunk := response.read1(_CHUNK)):
                data += chunk
                progress(len(data), size)
    except urllib.error.HTTPError as error:
        raise WeightsError(f'{url}: HTTP {error.code} {error.reason}') from error
    except (OSError, http.client.HTTPException) as error:
        raise WeightsError(f'{url}: {getattr(error, "reason", error) or type(error).__name__}') from error
    if len(data) < size:
        raise WeightsError(f'{url}: the connection ended after {len(data)} of {size} bytes; fetch it again')
    check_sha256(data, sha256, f'what {url} sent', 'fetch it again')
    return bytes(data)
