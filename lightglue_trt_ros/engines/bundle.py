"""Bundles: both engines of a shape in one directory, with a manifest that says what they are and where they run.

A bundle appears whole or not at all: it is written beside its place, under a lock that the kernel releases when its holder
dies, and renamed.
"""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import hashlib
import json
import os
import shlex
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightglue_trt_ros import __version__

from ..config import EngineSpec
from ..errors import EngineError, EngineMismatchError
from ..weights.store import REGISTRY, cache_dir
from .machine import Machine

if TYPE_CHECKING:
    from .adapter import TensorRT

SCHEMA = 1
MANIFEST = 'manifest.json'
NETWORKS = ('extractor', 'matcher')
FILES = (*(f'{network}.{kind}' for kind in ('onnx', 'plan') for network in NETWORKS), 'timing.cache')


@dataclass(frozen=True)
class Identity:
    """What must agree between a bundle and who wants to run it. Its fields are flat: each is compared and named by itself."""

    image_height: int
    image_width: int
    max_keypoints: int
    extractor_precision: str
    matcher_precision: str
    superpoint_sha256: str  # of the weights' source file
    lightglue: str  # as in the weights' registry
    lightglue_sha256: str
    tensorrt: str  # tensorrt or tensorrt_rtx
    tensorrt_version: str
    compute_capability: str  # 8.7
    gpu: str  # empty: any of the compute capability
    multiprocessors: int  # tells GPUs of one name apart; 0: any

    @classmethod
    def of(cls, spec: EngineSpec, lightglue: str, tensorrt: TensorRT, machine: Machine) -> Identity:
        """What a bundle of `spec` with the registry's weights `lightglue` is, when TensorRT builds it for `machine`."""
        return cls(spec.image_height, spec.image_width, spec.max_keypoints, 'fp32' if spec.precision == 'fp32' else 'fp16',
                   spec.precision, REGISTRY['superpoint'].sha256, lightglue, REGISTRY[lightglue].sha256, tensorrt.name,
                   tensorrt.version, '{}.{}'.format(*machine.compute_capability), machine.gpu, machine.multiprocessors)

    @property
    def spec(self) -> EngineSpec:
        return EngineSpec(self.image_height, self.image_width, self.max_keypoints, self.matcher_precision)

    def differences(self, wanted: Identity) -> list[str]:
        """The fields in which this bundle is not the wanted one, each with both values."""
        free = set() if self.multiprocessors else {'gpu', 'multiprocessors'}
        return [f'{name.replace("_", " ")}: the bundle has {mine}, needed is {getattr(wanted, name)}'
                for name, mine in dataclasses.asdict(self).items() if name not in free and mine != getattr(wanted, name)]


@dataclass(frozen=True)
class Manifest:
    """manifest.json."""

    identity: Identity
    files: dict[str, str]  # name -> sha256
    build_seconds: dict[str, float]  # by network
    layers: dict[str, dict[str, int]]  # by network: precision -> number of layers
    gate: dict[str, Any]  # verdict, frames, figures
    package_version: str = __version__
    schema: int = SCHEMA

    def to_json(self) -> str:
        return json.dumps({'schema': self.schema, **dataclasses.asdict(self)}, indent=1, allow_nan=False) + '\n'

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Raises ValueError, which says what is wrong."""
        values: Any = json.loads(text)
        if not isinstance(values, dict) or type(values.get('schema')) is not int:
            raise ValueError('it has no schema number')
        if values['schema'] != SCHEMA:
            age = 'a newer' if values['schema'] > SCHEMA else 'an older'
            raise ValueError(f'{age} version of this package wrote it: its schema is {values["schema"]}, this one reads {SCHEMA}')
        types: dict[str, type] = {'identity': dict, 'files': dict, 'build_seconds': dict, 'layers': dict, 'gate': dict,
                                  'package_version': str, 'schema': int}
        _check_types(values, types)
        _check_types(values['identity'], {entry.name: {'int': int, 'str': str}[str(entry.type)]
                                          for entry in dataclasses.fields(Identity)})
        if missing := [name for name in FILES if not isinstance(values['files'].get(name), str)]:
            raise ValueError(f'it has no checksum of {", ".join(missing)}')
        values['identity'] = Identity(**values['identity'])
        return cls(**values)


def _check_types(values: Any, types: dict[str, type]) -> None:
    if wrong := [name for name in {*types, *values} if type(values.get(name)) is not types.get(name)]:
        raise ValueError(f'{", ".join(sorted(wrong))}: missing, unknown or of the wrong type')


@dataclass(frozen=True)
class Bundle:
    """A bundle whose manifest was read, and fits."""

    path: Path
    manifest: Manifest

    def read(self, name: str) -> bytes:
        """One of FILES, its checksum compared. Raises EngineError."""
        path = self.path / name
        try:
            data = path.read_bytes()
        except OSError as error:
            raise self._damaged(f'{path} cannot be read ({error.strerror})') from error
        if (found := hashlib.sha256(data).hexdigest()) != self.manifest.files[name]:
            raise self._damaged(f'{path} is damaged: {len(data)} bytes of sha256 {found} where the manifest has '
                                f'{self.manifest.files[name]}')
        return data

    def verify(self) -> None:
        """Read every file. Raises EngineError."""
        for name in FILES:
            self.read(name)

    def _damaged(self, what: str) -> EngineError:
        return EngineError(f'{what}; build the bundle again:\n{build_command(self.path.parent, self.manifest.identity)}')


def default_engine_dir() -> Path:
    """`engines` in the cache that also holds the weights."""
    return cache_dir() / 'engines'


def build_command(engine_dir: Path, wanted: Identity) -> str:
    """The command that builds what is wanted."""
    words = ['ros2', 'run', 'lightglue_trt_ros', 'build_engines', '--height', wanted.image_height, '--width', wanted.image_width,
             '--max-keypoints', wanted.max_keypoints, '--precision', wanted.matcher_precision,
             '--lightglue', wanted.lightglue.removeprefix('lightglue_')]
    if engine_dir != default_engine_dir():
        words += ['--engine-dir', engine_dir]
    if wanted.tensorrt == 'tensorrt_rtx':
        words += ['--flavour', 'rtx']
    if not wanted.multiprocessors:
        words += ['--target-sm', wanted.compute_capability.replace('.', '')]
    return shlex.join(map(str, words))


def open_bundle(engine_dir: Path, wanted: Identity) -> Bundle:
    """The bundle in `engine_dir` that is the wanted one.

    Raises EngineMismatchError, naming each field that differs, and EngineError where the bundle is missing or damaged; both
    give the command that builds it. Files are checked as they are read.
    """
    path, rebuild = engine_dir / wanted.spec.name, build_command(engine_dir, wanted)
    try:
        manifest = Manifest.from_json((path / MANIFEST).read_text(encoding='utf-8'))
    except (FileNotFoundError, NotADirectoryError):
        if path.is_dir():
            raise EngineError(f'{path} has no {MANIFEST}: it is no whole bundle; build it:\n{rebuild}') from None
        others = sorted(other.parent.name for other in engine_dir.glob(f'*/{MANIFEST}'))
        found = f'there are {", ".join(others)}' if others else 'there are no others'
        raise EngineError(f'no engines in {path} ({found}); build them:\n{rebuild}') from None
    except OSError as error:
        raise EngineError(f'{path / MANIFEST} cannot be read ({error.strerror}): check its owner and permissions') from error
    except ValueError as error:  # JSON's and Unicode's too
        raise EngineError(f'{path / MANIFEST} cannot be used: {error};\nupdate the package, or build the bundle again:\n'
                          f'{rebuild}') from error
    if differences := manifest.identity.differences(wanted):
        raise EngineMismatchError('\n  '.join([f'the engines in {path} are not the ones needed:', *differences])
                                  + f'\nbuild them again:\n{rebuild}')
    return Bundle(path, manifest)


@dataclass
class Draft:
    """A bundle that is being written, in a directory of its own beside its place. Raises EngineError when the disk fails."""

    place: Path
    scratch: Path
    files: dict[str, str] = field(default_factory=dict)

    def write(self, name: str, data: bytes) -> None:
        """Write one of FILES, down to the disk."""
        self.files[name] = hashlib.sha256(data).hexdigest()
        self._write(name, data)

    def publish(self, manifest: Manifest) -> Bundle:
        """Add the manifest, which has this draft's `files`, and put the bundle into its place."""
        self._write(MANIFEST, manifest.to_json().encode())
        retired = self.scratch.with_name(f'{self.scratch.name}.old')
        with _disk(self.place.parent):
            _sync(self.scratch)
            if self.place.exists():
                os.rename(self.place, retired)
            os.rename(self.scratch, self.place)
            _sync(self.place.parent)
        shutil.rmtree(retired, ignore_errors=True)
        return Bundle(self.place, manifest)

    def _write(self, name: str, data: bytes) -> None:
        with _disk(self.place.parent), (self.scratch / name).open('wb') as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def drafting(engine_dir: Path, name: str, say: Callable[[str], None]) -> Iterator[Draft]:
    """Hold the lock of the bundle `name` and give a draft of it; what is not published is removed.

    Where another process holds the lock, says so and waits. Removes what killed builders left. Raises EngineError when
    `engine_dir` cannot be written.
    """
    with _disk(engine_dir):
        engine_dir.mkdir(parents=True, exist_ok=True)
        lock = (engine_dir / f'.lock-{name}').open('ab')
    with lock:
        with _disk(engine_dir):
            _acquire(lock.fileno(), lambda: say(f'another process is building {name}: waiting for it'))
            for left in engine_dir.glob(f'.{name}.*.tmp*'):
                shutil.rmtree(left)
            scratch = engine_dir / f'.{name}.{uuid.uuid4().hex}.tmp'
            scratch.mkdir()
        try:
            yield Draft(engine_dir / name, scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def find_timing_cache(engine_dir: Path, wanted: Identity) -> bytes:
    """The newest timing cache that the same TensorRT wrote for the same GPU, for any shape; empty where there is none."""
    def key(identity: Identity) -> tuple[str | int, ...]:
        return identity.tensorrt, identity.tensorrt_version, identity.compute_capability, identity.gpu, identity.multiprocessors

    for path in sorted(engine_dir.glob(f'[!.]*/{MANIFEST}'), key=os.path.getmtime, reverse=True):
        try:
            bundle = Bundle(path.parent, Manifest.from_json(path.read_text(encoding='utf-8')))
            if key(bundle.manifest.identity) == key(wanted):
                return bundle.read('timing.cache')
        except (OSError, ValueError, EngineError):
            continue
    return b''


def _acquire(descriptor: int, waiting: Callable[[], None]) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        waiting()
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _disk(engine_dir: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        advice = 'free some space' if error.errno in (errno.ENOSPC, errno.EDQUOT) else 'make it writable'
        raise EngineError(f'{engine_dir} cannot be written ({error.strerror}): {advice}, '
                          'or choose another folder with --engine-dir') from error
