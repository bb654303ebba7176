"""What has to be the same wherever a fleet is evaluated: the package's code, the weights, the libraries and the GPU."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np

from ... import __version__
from ...backends.onnxruntime import import_runtime, providers
from ...engines.gpu_info import probe
from ...engines.tensorrt_api import open_tensorrt
from ...networks.models import identify_pair
from ...utils.errors import EngineError
from ...utils.processes import called_elsewhere

PACKAGE = Path(__file__).resolve().parents[2]
CODE = ('.py', '.cu', '.ptx', '.jinja', '.js')  # suffixes of files that figures and pages are made by


class Installation(NamedTuple):
    """What a result is made with."""

    build: str
    weights: str  # the pair's name
    extractor_sha256: str
    matcher_sha256: str
    libraries: str = ''  # with their versions
    gpu: str = ''  # and the TensorRT for it; empty: TensorRT has none, or is not asked for

    def differences(self, other: Installation) -> list[str]:
        """What `other` has differently, one line each."""
        named = zip(('package', 'weights', "the extractor's sha256", "the matcher's sha256", 'libraries', 'GPU'), self, other,
                    strict=True)
        return [f'{name} {short(there)}, not {short(here)}' for name, here, there in named if name != 'weights' and here != there]


def short(value: str) -> str:
    """For people: of a checksum its beginning, `none` of nothing."""
    return value[:12] if len(value) == 64 and ' ' not in value else value or 'none'


@lru_cache(maxsize=1)
def build() -> str:
    """The package's version and the beginning of the sha256 of CODE: 0.1.0-3f2a9c01. Equal copies have the same."""
    total = hashlib.sha256()
    for path in sorted(path for path in PACKAGE.rglob('*') if path.suffix in CODE):
        total.update(path.relative_to(PACKAGE).as_posix().encode() + b'\0' + path.read_bytes())
    return f'{__version__}-{total.hexdigest()[:8]}'


def installation(weights: str, backend: str = 'auto') -> Installation:
    """What is installed here, the pair that the setting `weights` names, and the GPU where `backend` may use it.

    Raises ConfigError, WeightsError.
    """
    pair = identify_pair(weights)
    return Installation(build(), pair.name, pair.extractor_sha256, pair.matcher_sha256, _libraries(),
                        '' if backend == 'onnxruntime' else _gpu())


@lru_cache(maxsize=1)
def _libraries() -> str:
    try:
        runtime = f'ONNX Runtime {import_runtime().__version__} ({", ".join(map(_name, providers()))})'
    except EngineError:
        runtime = 'no ONNX Runtime'
    return f'OpenCV {cv2.__version__}, NumPy {np.__version__}, {runtime}'


def _name(provider: str) -> str:
    return provider.removesuffix('ExecutionProvider')


@lru_cache(maxsize=1)
def _gpu() -> str:
    return called_elsewhere(describe_gpu)  # no context is made in a process that goes on


def describe_gpu() -> str:
    """The GPU and the TensorRT that `backend: auto` would take here; empty where it would take neither."""
    try:
        machine, tensorrt = probe(), open_tensorrt()
    except Exception:  # a broken installation fails in many ways, as in selection: it is none
        return ''
    capability = '.'.join(map(str, machine.compute_capability))
    return (f'{machine.gpu}, compute capability {capability}, {machine.multiprocessors} multiprocessors, driver for CUDA '
            f'{machine.driver}, {tensorrt.name} {tensorrt.version}')
